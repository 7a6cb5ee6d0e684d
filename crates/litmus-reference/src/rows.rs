//! The rows of PMBugAssist's table 3, rebuilt: traces of our own with the paper's length, whose least repair adds and reorders as many
//! instructions as the paper says. (The paper's traces are not published.)
//!
//! The short ones are files in `corpus/litmus`. The long ones are made here: a program that stores, flushes and fences one record after the other, each
//! persistent before the next begins, so that no fence can be spared; and somewhere in it the bug.

use crashproof_litmus::{Litmus, Repair};

/// A row of the table.
pub struct Row {
    pub name: &'static str,
    /// Instructions of the trace.
    pub length: usize,
    /// Seconds that PMBugAssist took.
    pub paper_seconds: f64,
    pub flushes_added: usize,
    pub fences_added: usize,
    pub reordered: usize,
    made: Made,
}

enum Made {
    File(&'static str),
    /// Records, with these mistakes at these thousandths of the way.
    Records(&'static [(usize, Mistake)]),
}

#[derive(Clone, Copy)]
enum Mistake {
    /// A record without its flush.
    Unflushed,
    /// Stores to so many lines, 19 or 20 each, without a flush.
    Array(usize),
    /// The last record has no flush and no fence.
    Lost,
    /// So many stores to one line, as of a loop, without flush and fence.
    Loop(usize),
    /// The last record has no fence.
    Unfenced,
    /// A counter stored before the flag that it counts, and never flushed: 1+1, and a store moves.
    CountedEarly,
    /// A flag stored and flushed before the two fields that it makes valid: 1+1, and the store and its flush move.
    ValidEarly,
    /// Data not persistent when it is linked: 1+1.
    LinkedEarly,
}

impl Row {
    pub fn litmus(&self) -> Litmus {
        match self.made {
            // A file that cannot be read gives a trace of no length, which the tests over all rows refuse.
            Made::File(text) => Litmus::parse(text).unwrap_or_default(),
            Made::Records(mistakes) => Litmus::parse(&records(self.length, mistakes)).unwrap_or_default(),
        }
    }

    /// Whether the repair has the paper's counts.
    pub fn is_as_in_the_paper(&self, repair: &Repair) -> bool {
        repair.added_flushes == self.flushes_added
            && repair.added_fences == self.fences_added
            && repair.moved + repair.stores_moved == self.reordered
    }
}

/// A trace under construction.
struct Records {
    ops: Vec<String>,
    required: Vec<String>,
    lines: u64,
    /// What has to be persistent before the next record begins.
    last: Option<String>,
}

impl Records {
    fn address(&mut self) -> u64 {
        self.lines += 1;
        self.lines * 64
    }

    fn op(&mut self, op: String) {
        self.ops.push(op);
    }

    fn store(&mut self, name: &str) {
        let at = self.address();
        self.op(format!("store {name} {at:#x} 8"));
    }

    /// `first` begins a record, which ends with `last`.
    fn record(&mut self, first: &str, last: String) {
        if let Some(before) = self.last.replace(last) {
            self.required.push(format!("require {before} before {first}"));
        }
    }

    fn require(&mut self, what: String) {
        self.required.push(format!("require {what}"));
    }

    fn proper(&mut self) {
        let name = format!("record{}", self.ops.len());
        self.store(&name);
        self.op(format!("flush {name}"));
        self.op("fence".to_owned());
        self.require(format!("durable {name}"));
        self.record(&name, name.clone());
    }

    fn mistake(&mut self, mistake: Mistake) {
        let n = self.ops.len();
        let (a, b) = (format!("counter{n}"), format!("valid{n}"));
        match mistake {
            Mistake::Unflushed => {
                self.store(&a);
                self.op("fence".to_owned());
                self.require(format!("durable {a}"));
                self.record(&a, a.clone());
            }
            Mistake::Array(lines) => {
                let (from, count) = (self.lines + 1, 210);
                self.lines += lines as u64;
                for element in 0..count {
                    let line = from + (element * lines / count) as u64;
                    let name = format!("element{element}");
                    self.op(format!("store {name} {:#x} 2", line * 64 + 2 * (element % 20) as u64));
                    self.require(format!("durable {name}"));
                }
                self.op("fence".to_owned());
                self.record("element0", format!("element{}", count - 1));
            }
            Mistake::Lost | Mistake::Unfenced => {
                self.store(&a);
                if matches!(mistake, Mistake::Unfenced) {
                    self.op(format!("flush {a}"));
                }
                self.require(format!("durable {a}"));
                self.record(&a, a.clone());
            }
            Mistake::Loop(count) => {
                let at = self.address();
                for byte in 0..count {
                    let name = format!("byte{byte}");
                    self.op(format!("store {name} {:#x} 1", at + byte as u64 % 64));
                }
                self.require(format!("durable byte{}", count - 1));
                self.record("byte0", format!("byte{}", count - 1));
            }
            Mistake::CountedEarly => {
                self.store(&a);
                self.store(&b);
                self.op(format!("flush {b}"));
                self.op("fence".to_owned());
                self.require(format!("{b} before {a}"));
                self.require(format!("durable {a}"));
                self.record(&b, a);
            }
            Mistake::ValidEarly => {
                self.store(&b);
                self.op(format!("flush {b}"));
                let at = self.address();
                for (field, offset) in [(format!("name{n}"), 0), (format!("address{n}"), 8)] {
                    self.op(format!("store {field} {:#x} 8", at + offset));
                    self.require(format!("{field} before {b}"));
                }
                self.op("fence".to_owned());
                self.require(format!("durable {b}"));
                self.record(&format!("name{n}"), b);
            }
            Mistake::LinkedEarly => {
                self.store(&a);
                self.store(&b);
                self.op(format!("flush {b}"));
                self.op("fence".to_owned());
                self.require(format!("{a} before {b}"));
                self.require(format!("durable {b}"));
                self.record(&a, b);
            }
        }
    }
}

fn records(length: usize, mistakes: &[(usize, Mistake)]) -> String {
    let mut trace = Records {
        ops: Vec::new(),
        required: Vec::new(),
        lines: 0,
        last: None,
    };
    let size: usize = mistakes.iter().map(|&(_, mistake)| size(mistake)).sum();
    // Fences that nothing needs would be free to move: a record takes three operations, what is left over is two records that share a flush.
    let proper = (length - size) / 3;
    let mut left_over = (length - size) % 3;
    let mut next = mistakes.iter().peekable();
    for n in 0..=proper {
        while let Some(&(_, mistake)) = next.next_if(|&&(at, _)| at * proper <= n * 1000) {
            trace.mistake(mistake);
        }
        if n < proper {
            // Further stores of the record, in its line.
            if left_over > 0 {
                let at = (trace.lines + 1) * 64;
                for field in 0..left_over {
                    trace.op(format!("store field{field} {:#x} 8", at + 8 + 8 * field as u64));
                    trace.require(format!("durable field{field}"));
                }
                left_over = 0;
            }
            trace.proper();
        }
    }
    trace.ops.extend(trace.required);
    trace.ops.join("\n")
}

fn size(mistake: Mistake) -> usize {
    match mistake {
        Mistake::Lost => 1,
        Mistake::Unflushed | Mistake::Unfenced => 2,
        Mistake::Array(_) => 211,
        Mistake::Loop(count) => count,
        Mistake::CountedEarly | Mistake::LinkedEarly => 4,
        Mistake::ValidEarly => 5,
    }
}

macro_rules! file {
    ($name:literal) => {
        Made::File(include_str!(concat!("../../../corpus/litmus/", $name, ".litmus")))
    };
}

const fn row(
    name: &'static str,
    length: usize,
    paper_seconds: f64,
    [flushes_added, fences_added, reordered]: [usize; 3],
    made: Made,
) -> Row {
    Row {
        name,
        length,
        paper_seconds,
        flushes_added,
        fences_added,
        reordered,
        made,
    }
}

/// All 31 of them, in the paper's order.
pub static ROWS: [Row; 31] = {
    use Mistake::*;
    const NINE: &[(usize, Mistake)] = &[
        (100, Unflushed),
        (200, Unflushed),
        (300, Unflushed),
        (400, Unflushed),
        (500, Unflushed),
        (600, Unflushed),
        (700, Unflushed),
        (800, Unflushed),
        (1000, Lost),
    ];
    [
        row(
            "obj_constructor",
            445_254,
            0.1,
            [1, 1, 0],
            Made::Records(&[(1000, Lost)]),
        ),
        row(
            "obj_first_next",
            559_572,
            0.3,
            [2, 0, 0],
            Made::Records(&[(300, Unflushed), (600, Unflushed)]),
        ),
        row("obj_mem", 566_129, 18.4, [11, 0, 0], Made::Records(&[(500, Array(11))])),
        row(
            "obj_memops",
            565_899,
            0.3,
            [2, 0, 0],
            Made::Records(&[(100, Unflushed), (900, Unflushed)]),
        ),
        row(
            "obj_toid",
            419_186,
            0.1,
            [3, 0, 0],
            Made::Records(&[(250, Unflushed), (500, Unflushed), (750, Unflushed)]),
        ),
        row(
            "pmem_memcpy",
            17_008,
            0.3,
            [4, 0, 0],
            Made::Records(&[(200, Unflushed), (400, Unflushed), (600, Unflushed), (800, Unflushed)]),
        ),
        row(
            "pmem_memmove",
            624,
            0.1,
            [2, 0, 0],
            Made::Records(&[(300, Unflushed), (700, Unflushed)]),
        ),
        row(
            "pmem_memset-1",
            194,
            183.52,
            [1, 1, 0],
            Made::Records(&[(1000, Loop(64))]),
        ),
        row(
            "pmem_memset-2",
            4_440,
            0.1,
            [1, 0, 0],
            Made::Records(&[(500, Unflushed)]),
        ),
        row("pmemspoil", 36, 0.1, [0, 1, 0], Made::Records(&[(1000, Unfenced)])),
        row("rpmemd_db", 8_993, 0.1, [1, 1, 0], Made::Records(&[(1000, Lost)])),
        row(
            "Recipe (2 bugs)",
            500_415,
            4.5,
            [3, 1, 0],
            Made::Records(&[(400, Unflushed), (800, Unflushed), (1000, Lost)]),
        ),
        row("Memcached (10 bugs)", 200_939, 1790.2, [9, 1, 0], Made::Records(NINE)),
        row("pmreorder_1", 8, 0.1, [1, 1, 1], file!("pmreorder_1")),
        row("pmreorder_2", 8, 0.1, [1, 1, 2], file!("pmreorder_2")),
        row("pmreorder_3", 10, 7.9, [2, 2, 4], file!("pmreorder_3")),
        row("pmreorder_4", 10, 7.9, [2, 2, 4], file!("pmreorder_4")),
        row("pmreorder_5", 8, 4.8, [2, 2, 1], file!("pmreorder_5")),
        row("pmreorder_6", 8, 22.9, [2, 2, 4], file!("pmreorder_6")),
        row("pmreorder_7", 10, 22.1, [2, 2, 4], file!("pmreorder_7")),
        row("pmreorder_8", 12, 3559.12, [3, 3, 5], file!("pmreorder_8")),
        row("pmreorder_stack_1", 26, 0.3, [0, 0, 1], file!("pmreorder_stack_1")),
        row("pmreorder_stack_2", 26, 0.6, [0, 0, 2], file!("pmreorder_stack_2")),
        row(
            "pmreorder_flushes_1",
            35,
            3857.8,
            [0, 0, 5],
            file!("pmreorder_flushes_1"),
        ),
        row(
            "pmreorder_flushes_2",
            35,
            539.0,
            [0, 0, 6],
            file!("pmreorder_flushes_2"),
        ),
        row(
            "Redis_1",
            10_577,
            0.2,
            [2, 2, 3],
            Made::Records(&[(300, CountedEarly), (700, ValidEarly)]),
        ),
        row(
            "Redis_2",
            10_577,
            0.2,
            [2, 2, 3],
            Made::Records(&[(500, ValidEarly), (500, CountedEarly)]),
        ),
        row(
            "Memcached_1",
            63_133,
            0.1,
            [2, 2, 1],
            Made::Records(&[(100, CountedEarly), (900, LinkedEarly)]),
        ),
        row(
            "Memcached_2",
            63_133,
            0.1,
            [2, 2, 1],
            Made::Records(&[(400, LinkedEarly), (600, CountedEarly)]),
        ),
        row(
            "Memcached_3",
            63_133,
            0.1,
            [2, 2, 1],
            Made::Records(&[(0, LinkedEarly), (1000, CountedEarly)]),
        ),
        row(
            "Memcached_4",
            63_133,
            0.1,
            [2, 2, 1],
            Made::Records(&[(990, CountedEarly), (990, LinkedEarly)]),
        ),
    ]
};
