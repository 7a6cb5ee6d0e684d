//! `dpor` at one crash point: a walk down the tree of reads for all choices of the uncertain lines at once.
//!
//! A line's choice is open until the recovery touches a unit with the line in it; then each of its options is tried. Where the
//! tree has no edge for what a unit holds, one state is run, and its reads become the edge. At a leaf the lines that
//! are still open were never looked at: all their choices have the leaf's verdict.

use std::sync::atomic::Ordering;

use super::shared::lock;
use super::worker::{Tested, Worker};
use crate::edges::Among;
use crate::error::CrashError;
use crate::reads::{Next, Position, Tree};
use crate::state::{CrashPoint, State};
use crate::strategy::Walk;

/// How far a walk came.
pub(super) enum Walked {
    All,
    /// As far as its runs went.
    InPart,
    /// The campaign ends.
    Stopped,
}

/// A unit with open lines, all of whose contents are tried.
struct Branch {
    at: Position,
    lines: Vec<usize>,
    number: u128,
    count: u128,
}

/// The choices of a point's lines.
struct Choices<'p> {
    point: &'p CrashPoint,
    among: Vec<Among>,
    fixed: Vec<Option<u64>>,
}

impl<'p> Choices<'p> {
    fn new(point: &'p CrashPoint, among: Vec<Among>) -> Choices<'p> {
        let fixed = among
            .iter()
            .map(|options| (options.count() == 1).then(|| options.nth(0)));
        Choices {
            point,
            fixed: fixed.collect(),
            among,
        }
    }

    /// How many choices there are for some lines, each by itself.
    fn count(&self, lines: &[usize]) -> u128 {
        let counts = lines.iter().map(|&line| self.among[line].count() as u128);
        counts.fold(1, u128::saturating_mul)
    }

    /// How many states have what is fixed.
    fn states(&self) -> u128 {
        self.point.ways(&self.among).count(&self.fixed)
    }

    /// Whether there is a state that has what is fixed.
    fn is_possible(&self) -> bool {
        self.point.ties.is_none() || self.states() > 0
    }

    fn is_open(&self, line: usize) -> bool {
        self.fixed[line].is_none()
    }

    fn fix(&mut self, lines: &[usize], mut number: u128) {
        for &line in lines {
            let options = &self.among[line];
            let count = options.count() as u128;
            self.fixed[line] = Some(options.nth((number % count) as u64));
            number /= count;
        }
    }

    fn release(&mut self, lines: &[usize]) {
        lines.iter().for_each(|&line| self.fixed[line] = None);
    }

    /// Of a line that is fixed.
    fn option(&self, line: usize) -> u64 {
        self.fixed[line].unwrap_or_else(|| self.among[line].nth(0))
    }

    /// One of the states that have what is fixed.
    fn state(&self, number: u128) -> State {
        self.point.ways(&self.among).state(&self.fixed, number)
    }
}

pub(super) struct Walker {
    walk: Walk,
    /// Runs made.
    runs: u64,
    /// States that are known to have the verdict of a run.
    pub covered: u128,
}

impl Walker {
    pub(super) fn new(walk: Walk) -> Walker {
        Walker {
            walk,
            runs: 0,
            covered: 0,
        }
    }

    /// Goes over all states in which each line has one of its options.
    pub(super) fn product(&mut self, worker: &mut Worker<'_>, among: Vec<Among>) -> Result<Walked, CrashError> {
        let mut choices = Choices::new(worker.point, among);
        let mut branches: Vec<Branch> = Vec::new();
        if !choices.is_possible() {
            return Ok(Walked::All);
        }
        loop {
            let at = branches.last().map(|branch| branch.at);
            match self.descend(worker, &mut choices, &mut branches, at)? {
                Walked::All => {}
                other => return Ok(other),
            }
            loop {
                let Some(branch) = branches.last_mut() else {
                    return Ok(Walked::All);
                };
                branch.number += 1;
                if branch.fix(&mut choices, self.walk) {
                    break;
                }
                branches.pop();
            }
        }
    }

    /// From a position, or the root, to a leaf, which is made if there is none.
    fn descend(
        &mut self,
        worker: &mut Worker<'_>,
        choices: &mut Choices<'_>,
        branches: &mut Vec<Branch>,
        from: Option<Position>,
    ) -> Result<Walked, CrashError> {
        if !worker.shared.prunes.load(Ordering::Relaxed) {
            return self.one_by_one(worker, choices);
        }
        let (shared, contexts) = (worker.shared, [false, true].map(|output| worker.point.context(output)));
        let context = || contexts[shared.output_read.load(Ordering::Relaxed) as usize];
        let root = |tree: &Tree| from.or_else(|| tree.root(context()));
        let mut at = match self.find(worker, choices, root)? {
            Ok(at) => at,
            Err(walked) => return Ok(walked),
        };
        loop {
            let unit = match lock(&worker.shared.tree).next(at) {
                Next::Ends(_) => {
                    self.covered = self.covered.saturating_add(choices.states());
                    return Ok(Walked::All);
                }
                Next::Touch(unit) => unit,
            };
            let lines = worker.stage.lines_of(unit);
            let lines: Vec<usize> = lines.filter(|&line| choices.is_open(line)).collect();
            if !lines.is_empty() {
                let mut branch = Branch {
                    at,
                    number: 0,
                    count: choices.count(&lines),
                    lines,
                };
                // There is one, or no state would have what is fixed.
                branch.fix(choices, self.walk);
                branches.push(branch);
            }
            let content = worker.stage.unit(unit, worker.cursor, |line| choices.option(line));
            at = match self.find(worker, choices, |tree| tree.follow(at, content))? {
                Ok(next) => next,
                Err(walked) => return Ok(walked),
            };
        }
    }

    /// Where the tree leads, if need be after a run that makes it lead there. Else how the walk over these choices ended
    /// without the tree.
    fn find(
        &mut self,
        worker: &mut Worker<'_>,
        choices: &Choices<'_>,
        edge: impl Fn(&Tree) -> Option<Position>,
    ) -> Result<Result<Position, Walked>, CrashError> {
        let known = edge(&lock(&worker.shared.tree));
        if let Some(at) = known {
            return Ok(Ok(at));
        }
        if self.runs >= self.walk.runs {
            return Ok(Err(Walked::InPart));
        }
        if worker.shared.is_over() {
            return Ok(Err(Walked::Stopped));
        }
        let state = choices.state(0);
        let hash = worker.point.state_hash(&state);
        let new = lock(&worker.shared.seen).insert(hash);
        if matches!(worker.run(&state, hash, new)?, Tested::Stopped) {
            return Ok(Err(Walked::Stopped));
        }
        self.runs += 1;
        if !worker.shared.prunes.load(Ordering::Relaxed) {
            return Ok(Err(Walked::InPart));
        }
        let made = edge(&lock(&worker.shared.tree));
        match made {
            Some(at) => Ok(Ok(at)),
            // What the run read is not known, or there is no room for it.
            None => Ok(Err(self.one_by_one(worker, choices)?)),
        }
    }

    /// Without the tree: every state of the choices by itself.
    fn one_by_one(&mut self, worker: &mut Worker<'_>, choices: &Choices<'_>) -> Result<Walked, CrashError> {
        for number in 0..choices.states() {
            if self.runs >= self.walk.runs {
                return Ok(Walked::InPart);
            }
            match worker.test(&choices.state(number))? {
                Tested::Stopped => return Ok(Walked::Stopped),
                Tested::Known => {}
                Tested::Ran => self.runs += 1,
            }
            self.covered = self.covered.saturating_add(1);
        }
        Ok(Walked::All)
    }
}

impl Branch {
    /// Fixes what it is at, or what comes next that some state has. Whether there is anything left.
    fn fix(&mut self, choices: &mut Choices<'_>, walk: Walk) -> bool {
        while self.number < self.count {
            choices.fix(&self.lines, rotated(self, walk));
            if choices.is_possible() {
                return true;
            }
            self.number += 1;
        }
        choices.release(&self.lines);
        false
    }
}

/// Workers that share a point begin at different ends.
fn rotated(branch: &Branch, walk: Walk) -> u128 {
    let shift = branch.count / walk.ways.max(1) as u128 * walk.way as u128;
    branch.number.wrapping_add(shift) % branch.count
}
