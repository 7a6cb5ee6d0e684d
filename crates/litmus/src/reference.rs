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

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::needs::{Index, Order};
use crate::{Action, Litmus, Property, Range, Repair, StoreKind};

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

#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("cannot run z3: {0}; install it (Debian's package z3)")]
    Run(#[from] std::io::Error),
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
        let ranges: Vec<Range> = litmus.stores.iter().map(|store| store.at).collect();
        let overlaps = |n: usize| ranges[..n].iter().any(|other| other.overlaps(ranges[n]));
        if (0..ranges.len()).any(overlaps) {
            return None;
        }
        let index = Index::of(litmus, &litmus.ops);
        for property in &litmus.properties {
            if let Property::Before(first, second) = *property {
                reference.before.push((index.at[first], index.at[second]));
            }
        }
        let reached = closure(&Order::of(litmus, &index.at));
        let at = |id: usize| index.at[id];
        for (second, later) in reached.iter().enumerate() {
            for (first, &contradicts) in later.iter().enumerate() {
                if at(first) < at(second) && !contradicts {
                    reference.store_order.push((at(first), at(second)));
                }
            }
        }
        Some(reference)
    }

    /// Whether the trace, as it is, satisfies the properties and makes every store durable.
    pub fn holds(&self) -> Result<bool, ReferenceError> {
        let mut solver = Solver::start(Duration::from_secs(60))?;
        solver.send(&self.program(true))?;
        solver.send(&self.persistency())?;
        solver.send(&self.wrong())?;
        match solver.check()? {
            Some(wrong) => Ok(!wrong),
            None => Err(ReferenceError::Answer("unknown".to_owned())),
        }
    }

    /// Algorithms 2 and 3, on the instructions there are.
    pub fn repair(&self, blocking: Blocking, limit: Duration) -> Result<Outcome, ReferenceError> {
        let deadline = Instant::now() + limit;
        let mut solver = Solver::start(limit)?;
        solver.send(&self.program(false))?;
        solver.send(&self.persistency())?;
        // The clauses are to stay when the wrongness goes: it holds only while `wrong` is assumed.
        solver.send(&format!(
            "(declare-const wrong Bool)\n(assert (=> wrong {}))\n",
            self.wrongness()
        ))?;
        loop {
            if Instant::now() > deadline {
                return Ok(Outcome::TimedOut);
            }
            match solver.check_assuming("wrong")? {
                None => return Ok(Outcome::TimedOut),
                Some(false) => break,
                Some(true) => {
                    let clause = self.clause(&solver.places(self.lines.len())?, blocking);
                    solver.send(&format!("(assert (not {clause}))\n"))?;
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

    /// Φ_pc, Φ_so, Φ_fs and Φ_fo; or every instruction where it is.
    fn program(&self, fixed: bool) -> String {
        let count = self.lines.len();
        let mut text = String::from("(set-logic QF_LIA)\n");
        for at in 0..count {
            text += &format!("(declare-const pc{at} Int)\n(assert (and (<= 0 pc{at}) (< pc{at} {count})))\n");
            if fixed {
                text += &format!("(assert (= pc{at} {at}))\n");
            }
        }
        if fixed {
            return text;
        }
        for second in 0..count {
            for first in 0..second {
                text += &format!("(assert (not (= pc{first} pc{second})))\n");
            }
        }
        let fence_order = self.fences.windows(2).map(|pair| (pair[0], pair[1]));
        for (first, second) in self.store_order.iter().copied().chain(fence_order) {
            text += &format!("(assert (< pc{first} pc{second}))\n");
        }
        for &flush in &self.flushes {
            for store in self
                .stores
                .iter()
                .filter(|&&store| self.lines[store] == self.lines[flush])
            {
                text += &format!("(assert (< pc{store} pc{flush}))\n");
            }
        }
        text
    }

    /// Φ_pti, Φ_pts and Φ_fi.
    fn persistency(&self) -> String {
        let count = self.lines.len();
        let mut text = String::new();
        for &store in &self.stores {
            text += &format!("(declare-const pt{store} Int)\n");
            text += &format!(
                "(assert (and (<= (- 1) pt{store}) (<= pt{store} {}) (<= pc{store} pt{store})))\n",
                count + 1
            );
            for flush in self
                .flushes
                .iter()
                .filter(|&&flush| self.lines[flush] == self.lines[store])
            {
                for fence in &self.fences {
                    text += &format!(
                        "(assert (=> (and (< pc{store} pc{flush}) (< pc{flush} pc{fence})) (<= pt{store} pc{fence})))\n"
                    );
                }
            }
        }
        text
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

    fn wrong(&self) -> String {
        format!("(assert {})\n", self.wrongness())
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
            let stores = self
                .stores
                .iter()
                .filter(|&&store| self.lines[store] == self.lines[flush]);
            pairs.extend(stores.map(|&store| (store, flush)));
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

/// For each store, which have to come later.
fn closure(order: &Order) -> Vec<Vec<bool>> {
    let count = order.after.len();
    let mut reached = vec![vec![false; count]; count];
    for (from, reached) in reached.iter_mut().enumerate() {
        let mut open = vec![from];
        while let Some(store) = open.pop() {
            for &to in &order.after[store] {
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
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Solver {
    fn start(limit: Duration) -> Result<Solver, ReferenceError> {
        let mut child = Command::new("z3")
            .args(["-in", &format!("-t:{}", limit.as_millis().max(1))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ReferenceError::Answer("no pipe".to_owned()));
        };
        Ok(Solver {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    fn send(&mut self, text: &str) -> Result<(), ReferenceError> {
        Ok(self.input.write_all(text.as_bytes())?)
    }

    fn line(&mut self) -> Result<String, ReferenceError> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err(ReferenceError::Answer("nothing".to_owned())),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn check(&mut self) -> Result<Option<bool>, ReferenceError> {
        self.ask("(check-sat)\n")
    }

    fn check_assuming(&mut self, what: &str) -> Result<Option<bool>, ReferenceError> {
        self.ask(&format!("(check-sat-assuming ({what}))\n"))
    }

    /// `None`: out of time.
    fn ask(&mut self, text: &str) -> Result<Option<bool>, ReferenceError> {
        self.send(text)?;
        match &*self.line()? {
            "sat" => Ok(Some(true)),
            "unsat" => Ok(Some(false)),
            "unknown" | "timeout" | "canceled" => Ok(None),
            other => Err(ReferenceError::Answer(other.to_owned())),
        }
    }

    /// The values of all `pc`, which are not negative.
    fn places(&mut self, count: usize) -> Result<Vec<i64>, ReferenceError> {
        (0..count)
            .map(|at| {
                self.send(&format!("(get-value (pc{at}))\n"))?;
                let answer = self.line()?;
                let value = answer
                    .trim_end_matches(')')
                    .rsplit(' ')
                    .next()
                    .and_then(|value| value.parse().ok());
                value.ok_or(ReferenceError::Answer(answer))
            })
            .collect()
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
