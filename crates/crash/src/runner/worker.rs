//! A worker at a crash point: shows the states that it is given, runs the recovery on them, and passes on what it finds.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use crashproof_finding::FirstFailure;
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::StackId;

use super::shared::{Shared, lock};
use super::walk::{Walked, Walker};
use crate::campaign::{Recovered, judge, recover};
use crate::cursor::Cursor;
use crate::edges::Among;
use crate::error::CrashError;
use crate::executor::{Failure, Verdict};
use crate::journal::{Entry, Record};
use crate::reads::{Next, UnitHash};
use crate::stage::Stage;
use crate::state::{CrashPoint, State};
use crate::strategy::{Walk, Work};

/// States kept in [`crate::Outcome::recovered`], in all and of one call path.
const MAX_RECOVERED: usize = 128;
const MAX_RECOVERED_OF_PATH: usize = 16;
/// Bytes kept of what a failing recovery printed: its end. Thousands of failures may wait to be explained.
const MAX_OUTPUT: usize = 1024;
/// Bytes kept of what a driver printed that is judged by it: its beginning, since it is compared line by line.
const MAX_JUDGED: usize = 16 << 10;
/// How often a worker looks whether the explainer has caught up.
const PAUSE: Duration = Duration::from_millis(20);

/// What came of a state.
pub(super) enum Tested {
    /// The campaign ends.
    Stopped,
    /// The same content was tested before, or is being tested.
    Known,
    Ran,
}

pub(super) struct Worker<'a> {
    pub shared: &'a Shared<'a>,
    pub cursor: &'a Cursor,
    pub point: &'a CrashPoint,
    pub stage: Stage<'a>,
    pub failures: &'a SyncSender<Failure>,
    /// A state of the part at work fails.
    pub failed: bool,
    /// The point is one of those that are counted.
    pub counts_points: bool,
}

impl Worker<'_> {
    /// Whether to go on.
    pub(super) fn part(&mut self, work: Work<'_>) -> Result<bool, CrashError> {
        let (states, once) = match work {
            Work::States(states) => (states, false),
            Work::Once(states) => (states, true),
            Work::Walk(walk) => {
                let products = self.point.products();
                return self.walk(walk, 0, products.map(|product| product.among()));
            }
            Work::Among { walk, id, options } => {
                let among = options.into_iter().map(Among::List).collect();
                return self.walk(walk, id, std::iter::once(among));
            }
        };
        for state in states {
            if matches!(self.test(&state)?, Tested::Stopped) {
                return Ok(false);
            }
            if once {
                lock(&self.shared.coverage).states += 1;
            }
        }
        Ok(true)
    }

    /// Tests a state, unless it is known.
    pub(super) fn test(&mut self, state: &State) -> Result<Tested, CrashError> {
        if self.shared.is_over() {
            return Ok(Tested::Stopped);
        }
        if self.shared.prunes.load(Ordering::Relaxed)
            && let Some(verdict) = self.lookup(state)
        {
            self.failed |= verdict == Verdict::Fails;
            return Ok(Tested::Known);
        }
        let hash = self.point.state_hash(state);
        if !lock(&self.shared.seen).insert(hash) {
            self.failed |= lock(&self.shared.failing).contains(&hash);
            return Ok(Tested::Known);
        }
        self.run(state, hash, true)
    }

    /// Runs the recovery. `new`: the state was not run before.
    pub(super) fn run(&mut self, state: &State, hash: u128, new: bool) -> Result<Tested, CrashError> {
        if !self.shared.reserve(new) {
            if new {
                lock(&self.shared.seen).remove(&hash);
            }
            return Ok(Tested::Stopped);
        }
        let ran = self.run_reserved(state, hash, new);
        if ran.is_err() && new {
            // Another campaign, or another worker, can test it.
            self.shared.tested.fetch_sub(1, Ordering::Relaxed);
            lock(&self.shared.seen).remove(&hash);
        }
        ran.map(|()| Tested::Ran)
    }

    fn run_reserved(&mut self, state: &State, hash: u128, new: bool) -> Result<(), CrashError> {
        if self.counts_points {
            lock(&self.shared.points).insert((self.point.head.seq, self.point.head.within));
        }
        self.stage.show(state);
        let mut run = self.recover()?;
        let mut verdict = self.judge(&run)?;
        if verdict == Verdict::Fails && new {
            let again = self.recover()?;
            verdict = self.judge(&again)?;
            if verdict == Verdict::Recovers {
                let timed_out = ends(&run).iter().any(|&(_, _, timed_out)| timed_out) as u64;
                self.shared.unrepeated.fetch_add(1, Ordering::Relaxed);
                self.shared.unrepeated_timeouts.fetch_add(timed_out, Ordering::Relaxed);
                run = again;
            }
        }
        if !self.shared.compared.swap(true, Ordering::Relaxed) {
            let again = self.recover()?;
            if again.touched != run.touched || ends(&again) != ends(&run) {
                self.shared
                    .stop_pruning("the same state, run twice, ended in different ways or was read at different places");
            }
        }
        self.failed |= verdict == Verdict::Fails;
        let touched = run.touched.take().map(|units| self.contents_of(&units, state));
        if !run.output_unread {
            self.shared.output_read.store(true, Ordering::Relaxed);
        }
        let read = self.shared.output_read.load(Ordering::Relaxed);
        let context = (self.point.context(read), read);
        if let Some(touched) = &touched {
            self.shared.learn(context.0, touched, verdict);
        }
        if new {
            self.note(state, hash, context, verdict, run, touched);
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<Run, CrashError> {
        self.shared.recoveries.fetch_add(1, Ordering::Relaxed);
        Ok(recover(self.stage.executor, self.cursor.output(), self.shared.options)?)
    }

    fn judge(&self, run: &Run) -> Result<Verdict, CrashError> {
        judge(run, self.cursor.output().len() as u64, self.shared.options)
    }

    fn contents_of(&self, units: &[u64], state: &State) -> Vec<(u64, UnitHash)> {
        units
            .iter()
            .map(|&unit| (unit, self.stage.unit(unit, self.cursor, |line| state.0[line])))
            .collect()
    }

    /// Passes on what a run found.
    fn note(
        &self,
        state: &State,
        hash: u128,
        context: (u128, bool),
        verdict: Verdict,
        mut run: Run,
        touched: Option<Vec<(u64, UnitHash)>>,
    ) {
        let shared = self.shared;
        let output = self.cursor.output().len() as u64;
        let point = self.point.head.seq;
        let (mut failure, mut recovered) = (None, None);
        if verdict == Verdict::Fails {
            shared.failed.fetch_add(1, Ordering::Relaxed);
            lock(&shared.failing).insert(hash);
            shared.first_failure.get_or_init(|| FirstFailure {
                states: shared.tested.load(Ordering::Relaxed),
                seconds: shared.start.elapsed().as_secs_f64(),
            });
            let (persisted, missing) = self.point.split(state);
            let judged = shared.options.oracle.is_some();
            std::iter::once(&mut run.recovery)
                .chain(&mut run.check)
                .for_each(|ended| shorten(ended, judged));
            failure = Some(Failure {
                point,
                persisted,
                missing,
                output,
                run,
            });
        } else if run.wrote {
            let stack = self.point.head.after.map_or(StackId(0), |after| after.stack);
            let mut known = lock(&shared.recovered);
            let all: usize = known.values().map(Vec::len).sum();
            let of_path = known.entry(stack).or_default();
            if all < MAX_RECOVERED && of_path.len() < MAX_RECOVERED_OF_PATH {
                let (persisted, _) = self.point.split(state);
                let state = Recovered {
                    point,
                    persisted,
                    output,
                };
                of_path.push(state.clone());
                recovered = Some((stack, state));
            }
        }
        shared.note(&Entry::Tested(Box::new(Record {
            state: hash,
            context: context.0,
            output_read: context.1,
            verdict,
            touched: touched.filter(|_| shared.options.strategy.prunes()),
            failure: failure.clone(),
            recovered,
        })));
        if let Some(failure) = failure {
            self.send(failure);
        }
    }

    /// To the explainer; waits for it if very many failures wait already.
    fn send(&self, mut failure: Failure) {
        loop {
            match self.failures.try_send(failure) {
                // It is gone only if it panicked, and that ends the campaign.
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => failure = back,
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Which tree a run belongs to. Where no run has looked at the program's output, what was learned holds for any.
    pub(super) fn context(&self) -> u128 {
        self.point.context(self.shared.output_read.load(Ordering::Relaxed))
    }

    /// How a run on this state ends, if the tree knows.
    fn lookup(&self, state: &State) -> Option<Verdict> {
        let tree = lock(&self.shared.tree);
        let mut at = tree.root(self.context())?;
        loop {
            match tree.next(at) {
                Next::Ends(verdict) => return Some(verdict),
                Next::Touch(unit) => {
                    at = tree.follow(at, self.stage.unit(unit, self.cursor, |line| state.0[line]))?;
                }
            }
        }
    }

    /// Goes over all states that the recovery can tell apart. Whether the campaign goes on.
    fn walk(&mut self, walk: Walk, id: u64, products: impl Iterator<Item = Vec<Among>>) -> Result<bool, CrashError> {
        let key = (self.point.head.seq, self.point.head.within, id);
        let Some(generation) = lock(&self.shared.coverage).begin_walk(key) else {
            return Ok(true);
        };
        let mut walker = Walker::new(walk);
        let mut complete = true;
        for among in products {
            match walker.product(self, among)? {
                Walked::All => {}
                Walked::InPart => {
                    complete = false;
                    break;
                }
                Walked::Stopped => return Ok(false),
            }
        }
        let valid = lock(&self.shared.coverage).walked(key, generation, walker.covered, complete);
        if !valid || !complete {
            self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// What must not differ between two runs on one image.
fn ends(run: &Run) -> Vec<(Option<i32>, Option<i32>, bool)> {
    let end = |ended: &Ended| (ended.status, ended.signal, ended.timed_out);
    std::iter::once(&run.recovery).chain(&run.check).map(end).collect()
}

/// Leaves the end of what was printed; of what is `judged`, whole lines from the beginning.
fn shorten(ended: &mut Ended, judged: bool) {
    if judged && ended.stdout.len() > MAX_JUDGED {
        let lines = ended.stdout[..MAX_JUDGED].iter().rposition(|&byte| byte == b'\n');
        ended.stdout.truncate(lines.map_or(MAX_JUDGED, |last| last + 1));
        ended.stdout.shrink_to_fit();
    }
    let stdout = (!judged).then_some(&mut ended.stdout);
    for output in stdout.into_iter().chain([&mut ended.stderr]) {
        output.drain(..output.len().saturating_sub(MAX_OUTPUT));
        output.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(length: usize) -> Vec<u8> {
        (0..length).map(|at| at as u8).collect()
    }

    fn shortened(stdout: Vec<u8>, stderr: Vec<u8>, judged: bool) -> (Vec<u8>, Vec<u8>) {
        let mut ended = Ended {
            stdout,
            stderr,
            ..Ended::default()
        };
        shorten(&mut ended, judged);
        (ended.stdout, ended.stderr)
    }

    #[test]
    fn the_end_of_what_was_printed_is_kept() {
        for length in [0, 1, MAX_OUTPUT - 1, MAX_OUTPUT, MAX_OUTPUT + 1, 70_000] {
            let end = |length: usize| printed(length)[length.saturating_sub(MAX_OUTPUT)..].to_vec();
            let kept = shortened(printed(length), printed(length / 2), false);
            assert_eq!(kept, (end(length), end(length / 2)));
        }
    }

    #[test]
    fn what_is_judged_is_kept_from_its_beginning() {
        let whole = printed(3 * MAX_OUTPUT);
        let end = whole[2 * MAX_OUTPUT..].to_vec();
        assert_eq!(shortened(whole.clone(), whole.clone(), true), (whole, end));
        let lines = b"line\n".repeat(MAX_JUDGED);
        let (kept, _) = shortened(lines.clone(), Vec::new(), true);
        assert!(lines.starts_with(&kept) && kept.ends_with(b"\n") && kept.len() > MAX_JUDGED - 5);
        assert!(kept.len() <= MAX_JUDGED);
    }
}
