//! PMBugAssist's own encoding (ICSE 2024, figure 7 and algorithms 2 and 3), as SMT-LIB text for the `z3` command: what our verdicts are tested
//! against, and our times compared with.
//!
//! It speaks of one thread, plain stores to bytes of their own, `clflushopt` and `sfence`, and wants every store durable ([`Reference::of`] refuses the
//! rest). It does not know that two stores to one line persist in their order, so verdicts agree where each has a line of its own. Differences from the
//! paper's text:
//!
//! - A verdict is about the trace as it is: every `PC_I` is fixed to its place. (The paper asks whether some permutation is wrong.)
//! - Φ_mo says nothing here: no two stores write the same address.
//! - Φ_so is relaxed by the transitive closure of the properties from the start (section 6.3), where they contradict it.
//! - Blocking clauses. Section 5.1 takes them from the antecedents of Φ_fi that hold, store before flush and flush before fence. On the paper's own figure 8 that can
//!   block too much: of the wrong order I1 I4 I2 I5 I3 I6 it holds I1 < I4 < I5 and I2 < I3 < I6, and so it does of the only good one, I1 I4 I5 I2 I3 I6; what remains is
//!   the vacuous repair. Figure 10's second clause, with I5 < I1, has which of a store and a fence comes first, too; that is not enough: I1 I5 I4 I2 I3 I6 is wrong, and
//!   all that it holds of such pairs the good one does, because it lacks I4 < I5 and nothing says I5 < I4. With both signs ([`Blocking::Signed`]) a clause blocks only orders
//!   that are as wrong as the one it is from.
//! - Which instructions to add (section 6.2) is not searched for: the caller adds them.
//!
//! Limits are of z3's processor time, which other work on the machine does not shorten.

use std::fmt;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crashproof_litmus::{Action, AddressRange, Litmus, Property, Repair, StoreKind};

/// What the blocking clauses are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Store before flush, flush before fence: the antecedents of Φ_fi that hold.
    AsPrinted,
    /// And which of a store and a fence comes first.
    WithStores,
    /// And the fences before a flush.
    Signed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A permutation of the instructions, by their index.
    Repaired(Vec<usize>),
    /// No valid execution is left, right or wrong.
    Vacuous,
    TimedOut,
}

/// What became of a repair by the encoding, and what it took of the processor.
#[derive(Clone, Debug)]
pub struct Tried {
    pub outcome: Outcome,
    /// z3's.
    pub processor: Duration,
    /// Wrong orders blocked on the way.
    pub blocked: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("cannot run z3: {0}; install it (Debian's package z3)")]
    Run(#[from] io::Error),
    #[error("z3 needs more than {MEMORY} MB")]
    Memory,
    #[error("z3 answered `{0}`")]
    Answer(String),
}

/// A trace that the encoding can speak of.
pub struct Reference {
    /// The line of each instruction; `None` for fences.
    lines: Vec<Option<u64>>,
    stores: Vec<usize>,
    flushes: Vec<usize>,
    fences: Vec<usize>,
    /// Instructions, the first of which must persist before the second.
    before: Vec<(usize, usize)>,
    /// Stores whose order has to stay.
    store_order: Vec<(usize, usize)>,
}

impl Reference {
    /// `None`: it has what the encoding does not speak of.
    pub fn of(litmus: &Litmus) -> Option<Reference> {
        let thread = litmus.ops.first()?.thread;
        let mut reference = Reference {
            lines: Vec::new(),
            stores: Vec::new(),
            flushes: Vec::new(),
            fences: Vec::new(),
            before: Vec::new(),
            store_order: Vec::new(),
        };
        for (at, op) in litmus.ops.iter().enumerate() {
            let range = match op.action {
                Action::Store(id) => {
                    reference.stores.push(at);
                    (litmus.stores[id].kind == StoreKind::Plain).then_some(Some(litmus.stores[id].at))
                }
                Action::Flush(flush) => {
                    reference.flushes.push(at);
                    (!flush.at_once).then_some(Some(flush.at))
                }
                Action::Fence { .. } => {
                    reference.fences.push(at);
                    Some(None)
                }
            };
            let line = match range? {
                Some(range) if range.lines().nth(1).is_some() => return None,
                Some(range) => range.lines().next(),
                None => None,
            };
            if op.thread != thread {
                return None;
            }
            reference.lines.push(line);
        }
        let ranges: Vec<AddressRange> = litmus.stores.iter().map(|store| store.at).collect();
        let overlaps = |n: usize| ranges[..n].iter().any(|other| other.overlaps(ranges[n]));
        if (0..ranges.len()).any(overlaps) {
            return None;
        }
        let mut places = vec![0; litmus.stores.len()];
        for (place, op) in litmus.ops.iter().enumerate() {
            if let Action::Store(store) = op.action {
                places[store] = place;
            }
        }
        let at = |id: usize| places[id];
        let mut after = vec![Vec::new(); litmus.stores.len()];
        for property in &litmus.properties {
            if let Property::Before(first, second) = *property {
                reference.before.push((at(first), at(second)));
                after[first].push(second);
            }
        }
        let reached = closure(&after);
        for (second, later) in reached.iter().enumerate() {
            for (first, &contradicts) in later.iter().enumerate() {
                if at(first) < at(second) && !contradicts {
                    reference.store_order.push((at(first), at(second)));
                }
            }
        }
        Some(reference)
    }

    /// Assertions that the encoding of a repair begins with.
    pub fn assertions(&self) -> u64 {
        let pairs = |count: usize| (count as u64) * (count as u64).saturating_sub(1) / 2;
        let of_flushes = self.flushes.iter().map(|&flush| self.of_line(flush).count() as u64);
        let flushed: u64 = of_flushes.sum();
        let places = self.lines.len() as u64 + pairs(self.lines.len());
        let orders = self.store_order.len() + self.fences.len().saturating_sub(1);
        places + orders as u64 + flushed + self.stores.len() as u64 + flushed * self.fences.len() as u64
    }

    /// Whether the trace, as it is, satisfies the properties and makes every store durable.
    pub fn holds(&self) -> Result<bool, ReferenceError> {
        let mut solver = Solver::start(Duration::from_secs(60))?;
        self.program(true, &mut solver.input)?;
        self.persistency(&mut solver.input)?;
        writeln!(solver.input, "(assert {})", self.wrongness())?;
        match solver.check()? {
            Some(wrong) => Ok(!wrong),
            None => Err(ReferenceError::Answer("unknown".to_owned())),
        }
    }

    /// Algorithms 2 and 3, on the instructions there are. The limit is of z3's processor time, in whole seconds.
    pub fn repair(&self, blocking: Blocking, limit: Duration) -> Result<Tried, ReferenceError> {
        let mut solver = Solver::start(limit)?;
        let mut blocked = 0;
        let outcome = match self.search(blocking, &mut solver, &mut blocked) {
            Ok(outcome) => outcome,
            // Out of time it ends, wherever it is.
            Err(ReferenceError::Run(_)) if solver.is_out_of_time() => Outcome::TimedOut,
            Err(ReferenceError::Run(_)) if solver.is_out_of_memory() => return Err(ReferenceError::Memory),
            Err(error) => return Err(error),
        };
        let processor = match outcome {
            Outcome::TimedOut => limit,
            _ => solver.processor()?,
        };
        Ok(Tried {
            outcome,
            processor,
            blocked,
        })
    }

    fn search(&self, blocking: Blocking, solver: &mut Solver, blocked: &mut usize) -> Result<Outcome, ReferenceError> {
        self.program(false, &mut solver.input)?;
        self.persistency(&mut solver.input)?;
        // The clauses are to stay when the wrongness goes: it holds only while `wrong` is assumed.
        writeln!(
            solver.input,
            "(declare-const wrong Bool)\n(assert (=> wrong {}))",
            self.wrongness()
        )?;
        loop {
            match solver.check_assuming("wrong")? {
                None => return Ok(Outcome::TimedOut),
                Some(false) => break,
                Some(true) => {
                    let clause = self.clause(&solver.places(self.lines.len())?, blocking);
                    writeln!(solver.input, "(assert (not {clause}))")?;
                    *blocked += 1;
                }
            }
        }
        match solver.check()? {
            None => Ok(Outcome::TimedOut),
            Some(false) => Ok(Outcome::Vacuous),
            Some(true) => {
                let places = solver.places(self.lines.len())?;
                let mut order: Vec<usize> = (0..places.len()).collect();
                order.sort_by_key(|&at| places[at]);
                Ok(Outcome::Repaired(order))
            }
        }
    }

    /// The stores of the line that this flushes.
    fn of_line(&self, flush: usize) -> impl Iterator<Item = usize> {
        let stores = self.stores.iter().copied();
        stores.filter(move |&store| self.lines[store] == self.lines[flush])
    }

    /// Φ_pc, Φ_so, Φ_fs and Φ_fo; or every instruction where it is.
    fn program(&self, fixed: bool, out: &mut impl Write) -> io::Result<()> {
        let count = self.lines.len();
        writeln!(out, "(set-logic QF_LIA)")?;
        for at in 0..count {
            writeln!(
                out,
                "(declare-const pc{at} Int)\n(assert (and (<= 0 pc{at}) (< pc{at} {count})))"
            )?;
            if fixed {
                writeln!(out, "(assert (= pc{at} {at}))")?;
            }
        }
        if fixed {
            return Ok(());
        }
        for second in 0..count {
            for first in 0..second {
                writeln!(out, "(assert (not (= pc{first} pc{second})))")?;
            }
        }
        let fence_order = self.fences.windows(2).map(|pair| (pair[0], pair[1]));
        for (first, second) in self.store_order.iter().copied().chain(fence_order) {
            writeln!(out, "(assert (< pc{first} pc{second}))")?;
        }
        for &flush in &self.flushes {
            for store in self.of_line(flush) {
                writeln!(out, "(assert (< pc{store} pc{flush}))")?;
            }
        }
        Ok(())
    }

    /// Φ_pti, Φ_pts and Φ_fi.
    fn persistency(&self, out: &mut impl Write) -> io::Result<()> {
        let count = self.lines.len();
        for &store in &self.stores {
            writeln!(out, "(declare-const pt{store} Int)")?;
            writeln!(
                out,
                "(assert (and (<= (- 1) pt{store}) (<= pt{store} {}) (<= pc{store} pt{store})))",
                count + 1
            )?;
        }
        for &flush in &self.flushes {
            for store in self.of_line(flush) {
                for fence in &self.fences {
                    writeln!(
                        out,
                        "(assert (=> (and (< pc{store} pc{flush}) (< pc{flush} pc{fence})) (<= pt{store} pc{fence})))"
                    )?;
                }
            }
        }
        Ok(())
    }

    /// ¬(Φ_du ∧ Φ_cc).
    fn wrongness(&self) -> String {
        let count = self.lines.len();
        let lost = self.stores.iter().map(|store| format!("(>= pt{store} {count})"));
        let reversed = self
            .before
            .iter()
            .map(|(first, second)| format!("(>= pt{first} pt{second})"));
        format!("(or false {})", lost.chain(reversed).collect::<Vec<_>>().join(" "))
    }

    /// ψ_sat: what of the order at these places the clause is made of.
    fn clause(&self, places: &[i64], blocking: Blocking) -> String {
        let pairs = self.held(places, blocking).into_iter();
        let pairs: Vec<String> = pairs
            .map(|(first, second)| format!("(< pc{first} pc{second})"))
            .collect();
        format!("(and true {})", pairs.join(" "))
    }

    /// Pairs of instructions, in the order that these places have.
    pub(crate) fn held(&self, places: &[i64], blocking: Blocking) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for &flush in &self.flushes {
            pairs.extend(self.of_line(flush).map(|store| (store, flush)));
            pairs.extend(self.fences.iter().map(|&fence| (flush, fence)));
        }
        if blocking == Blocking::Signed {
            let flushes = self.flushes.iter();
            pairs.extend(flushes.flat_map(|&flush| self.fences.iter().map(move |&fence| (fence, flush))));
        }
        if blocking != Blocking::AsPrinted {
            for &store in &self.stores {
                pairs.extend(self.fences.iter().flat_map(|&fence| [(store, fence), (fence, store)]));
            }
        }
        pairs.retain(|&(first, second)| places[first] < places[second]);
        pairs
    }
}

/// For each store, which have to come later, if `after` has those of which a property says so.
fn closure(after: &[Vec<usize>]) -> Vec<Vec<bool>> {
    let count = after.len();
    let mut reached = vec![vec![false; count]; count];
    for (from, reached) in reached.iter_mut().enumerate() {
        let mut open = vec![from];
        while let Some(store) = open.pop() {
            for &to in &after[store] {
                if !std::mem::replace(&mut reached[to], true) {
                    open.push(to);
                }
            }
        }
    }
    reached
}

/// A running z3.
struct Solver {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Megabytes that z3 may take.
const MEMORY: u32 = 6_000;

impl Solver {
    fn start(limit: Duration) -> Result<Solver, ReferenceError> {
        // The kernel counts its processor time, and ends it.
        let script = format!("ulimit -t {}; exec z3 -in -memory:{MEMORY}", limit.as_secs().max(1));
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ReferenceError::Answer("no pipe".to_owned()));
        };
        Ok(Solver {
            child,
            input: BufWriter::new(input),
            output: BufReader::new(output),
        })
    }

    fn check(&mut self) -> Result<Option<bool>, ReferenceError> {
        self.ask(format_args!("(check-sat)"))
    }

    fn check_assuming(&mut self, what: &str) -> Result<Option<bool>, ReferenceError> {
        self.ask(format_args!("(check-sat-assuming ({what}))"))
    }

    /// `None`: it gave up.
    fn ask(&mut self, question: fmt::Arguments) -> Result<Option<bool>, ReferenceError> {
        writeln!(self.input, "{question}")?;
        match &*self.line()? {
            "sat" => Ok(Some(true)),
            "unsat" => Ok(Some(false)),
            "unknown" | "timeout" | "canceled" => Ok(None),
            other => Err(ReferenceError::Answer(other.to_owned())),
        }
    }

    fn line(&mut self) -> Result<String, ReferenceError> {
        self.input.flush()?;
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// The values of all `pc`, which are not negative.
    fn places(&mut self, count: usize) -> Result<Vec<i64>, ReferenceError> {
        write!(self.input, "(get-value (")?;
        for at in 0..count {
            write!(self.input, "pc{at} ")?;
        }
        writeln!(self.input, "))")?;
        // `((pc0 4)`, `(pc1 0))`: one on a line.
        (0..count)
            .map(|_| {
                let answer = self.line()?;
                let value = answer.trim_end_matches(')').rsplit(' ').next();
                let value = value.and_then(|value| value.parse().ok());
                value.ok_or(ReferenceError::Answer(answer))
            })
            .collect()
    }

    /// What it has used so far.
    fn processor(&self) -> io::Result<Duration> {
        let path = format!("/proc/{}/schedstat", self.child.id());
        let text = std::fs::read_to_string(path)?;
        let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
        nanoseconds
            .map(Duration::from_nanos)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Whether the kernel ended it for its limit: soft and hard are the same, so it may be either signal.
    fn is_out_of_time(&mut self) -> bool {
        const SIGKILL: i32 = 9;
        const SIGXCPU: i32 = 24;
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        signal.is_some_and(|signal| signal == SIGXCPU || signal == SIGKILL)
    }

    fn is_out_of_memory(&mut self) -> bool {
        const OUT_OF_MEMORY: i32 = 101;
        let code = self.child.wait().ok().and_then(|status| status.code());
        code == Some(OUT_OF_MEMORY)
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        // It ends with its input anyway; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The trace and, at its end, what a repair adds to it: what the encoding is given to permute.
pub fn extended(litmus: &Litmus, repair: &Repair) -> Litmus {
    let mut extended = litmus.clone();
    let added = repair.lines.iter().filter(|line| line.added);
    extended.ops.extend(added.map(|line| line.op.clone()));
    extended.times.clear();
    extended
}
