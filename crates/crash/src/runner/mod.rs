//! The campaign: workers that replay the trace, each on an executor of its own, and claim parts of the strategy's work in its
//! order; what they share (what was tested, the tree of reads, the budget, the journal); and the thread that explains.

mod walk;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crashproof_report::{Behaviours, Finding, Stats};
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::campaign::{CampaignOptions, Outcome, Progress, Recovered, judge};
use crate::cursor::{Cursor, Stops};
use crate::error::CrashError;
use crate::executor::{Executor, Explainer, Failure, Verdict};
use crate::journal::{Journal, Record};
use crate::reads::{Next, Tree, UnitHash};
use crate::stage::Stage;
use crate::state::{CrashPoint, Product, State};
use crate::strategy::{PassEnd, Strategy, Walk, Work, strategy};
use crate::survey::{Surveyed, count_stops, survey};
use walk::{Among, Walked, Walker};

/// States kept in [`Outcome::recovered`], in all and of one call path.
const MAX_RECOVERED: usize = 128;
const MAX_RECOVERED_OF_PATH: usize = 16;
/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);
/// When the time is up, failures that are waiting are explained for this much longer, or a quarter of the budget.
const GRACE: Duration = Duration::from_secs(10);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is shared is consistent between any two statements; a panic elsewhere is reported where it happened.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all workers of a campaign share.
struct Shared<'a> {
    trace: &'a Path,
    options: &'a CampaignOptions,
    surveyed: &'a Surveyed,
    strategy: &'a dyn Strategy,
    /// States that the strategy and the budget are about.
    planned: u128,
    stop: &'a AtomicBool,
    /// Set when a worker or the explainer gave up: the others need not go on.
    broken: AtomicBool,
    start: Instant,
    cut_short: AtomicBool,
    seen: Mutex<FxHashSet<u128>>,
    tested: AtomicU64,
    failed: AtomicU64,
    findings: AtomicU64,
    /// Failures that did not repeat.
    unrepeated: AtomicU64,
    coverage: Mutex<Coverage>,
    prunes: AtomicBool,
    /// Whether a run has been compared with itself.
    compared: AtomicBool,
    tree: Mutex<Tree>,
    unfinished: AtomicU64,
    journal: Option<Mutex<Journal>>,
    recovered: Mutex<FxHashMap<StackId, Vec<Recovered>>>,
    warnings: Mutex<Vec<String>>,
}

/// A crash point: its event, and how much of the event was done; and which part of the work there, if a strategy has several.
type PointKey = (u64, u16, u64);

/// States that came up, or are alike to one that did in all that the recovery reads.
#[derive(Default)]
struct Coverage {
    states: u128,
    /// Points whose walk is finished: their states are in `states`.
    finished: FxHashSet<PointKey>,
    /// States that unfinished walks of the pass came to.
    unfinished: FxHashMap<PointKey, u128>,
}

impl Coverage {
    fn total(&self) -> u128 {
        self.unfinished
            .values()
            .fold(self.states, |sum, &states| sum.saturating_add(states))
    }

    fn walked(&mut self, key: PointKey, states: u128, finished: bool) {
        if self.finished.contains(&key) {
            return;
        }
        if finished {
            self.unfinished.remove(&key);
            self.finished.insert(key);
            self.states = self.states.saturating_add(states);
        } else {
            let known = self.unfinished.entry(key).or_default();
            *known = states.max(*known);
        }
    }
}

/// What came of a state.
enum Tested {
    /// The campaign ends.
    Stopped,
    /// The same content was tested before, or is being tested.
    Known,
    Ran,
}

impl Shared<'_> {
    fn warn(&self, warning: String) {
        lock(&self.warnings).push(warning);
    }

    fn time_is_up(&self) -> bool {
        self.options.time.is_some_and(|time| self.start.elapsed() >= time)
    }

    fn is_over(&self) -> bool {
        let over = self.stop.load(Ordering::Relaxed) || self.broken.load(Ordering::Relaxed) || self.time_is_up();
        if over {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Takes a state from the budget, if it is not one that was run before.
    fn reserve(&self, new: bool) -> bool {
        let limit = self.options.max_states.unwrap_or(u64::MAX);
        let taken = self
            .tested
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tested| {
                (tested < limit).then_some(tested + new as u64)
            });
        if taken.is_err() {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn progress(&self) -> Progress {
        let tested = self.tested.load(Ordering::Relaxed);
        Progress {
            tested,
            pruned: self.pruned(tested),
            failed: self.failed.load(Ordering::Relaxed),
            findings: self.findings.load(Ordering::Relaxed),
            total: self.planned,
        }
    }

    fn pruned(&self, tested: u64) -> u64 {
        let covered = lock(&self.coverage).total();
        covered.saturating_sub(tested as u128).try_into().unwrap_or(u64::MAX)
    }

    /// Takes a run into the tree.
    fn learn(&self, context: u128, touched: &[(u64, UnitHash)], verdict: Verdict) {
        if self.prunes.load(Ordering::Relaxed) && lock(&self.tree).insert(context, touched, verdict).is_err() {
            self.stop_pruning("the recovery looked at other places than before although all it had read was the same");
        }
    }

    fn stop_pruning(&self, why: &str) {
        if self.prunes.swap(false, Ordering::Relaxed) {
            *lock(&self.coverage) = Coverage::default();
            self.unfinished.fetch_add(1, Ordering::Relaxed);
            self.warn(format!(
                "states are no longer left out by what the recovery reads: {why}; it is not deterministic (addresses, time and \
                 random numbers do that), so every state is tested"
            ));
        }
    }
}

pub(crate) fn run(
    trace: &Path,
    options: &CampaignOptions,
    mut executors: Vec<Box<dyn Executor>>,
    mut explainer: Box<dyn Explainer>,
    progress: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Outcome, CrashError> {
    let start = Instant::now();
    let surveyed = survey(trace, options)?;
    let strategy = strategy(trace, options, &surveyed, executors.len())?;
    let planned = match strategy.stops() {
        Stops::CrashPoints => strategy.planned().unwrap_or(surveyed.survey.states),
        stops => count_stops(trace, &surveyed.contents, options, stops)?,
    };
    let (journal, records) = match &options.journal {
        Some(path) => {
            let (journal, records) = Journal::open(path, trace, options)?;
            (Some(Mutex::new(journal)), records)
        }
        None => (None, Vec::new()),
    };
    let shared = Shared {
        trace,
        options,
        surveyed: &surveyed,
        strategy: &*strategy,
        planned: planned.min(options.max_states.map_or(u128::MAX, u128::from)),
        stop,
        broken: AtomicBool::new(false),
        start,
        cut_short: AtomicBool::new(false),
        seen: Mutex::default(),
        tested: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        findings: AtomicU64::new(0),
        unrepeated: AtomicU64::new(0),
        coverage: Mutex::default(),
        prunes: AtomicBool::new(options.strategy.prunes()),
        compared: AtomicBool::new(!options.strategy.prunes()),
        tree: Mutex::default(),
        unfinished: AtomicU64::new(0),
        journal,
        recovered: Mutex::default(),
        warnings: Mutex::new(surveyed.survey.warnings.clone()),
    };
    let (failures, queue) = mpsc::channel();
    resume(&shared, records, &failures);
    let findings = thread::scope(|scope| {
        let (ended, end) = mpsc::channel();
        let explaining = {
            let (shared, explainer) = (&shared, &mut *explainer);
            scope.spawn(move || {
                let _alive = Alive(&shared.broken);
                let findings = explain(shared, explainer, queue);
                drop(ended);
                findings
            })
        };
        let tested = passes(&shared, &mut executors, failures, progress);
        wait(&end, &shared, progress);
        let explained = explaining.join().unwrap_or(Err(CrashError::Panicked));
        tested.and(explained)
    })?;
    if let Some(journal) = &shared.journal {
        lock(journal).flush()?;
    }
    progress(&shared.progress());
    Ok(outcome(&shared, findings))
}

fn outcome(shared: &Shared<'_>, findings: Vec<Finding>) -> Outcome {
    let tested = shared.tested.load(Ordering::Relaxed);
    let mut warnings = std::mem::take(&mut *lock(&shared.warnings));
    let unrepeated = shared.unrepeated.load(Ordering::Relaxed);
    if unrepeated > 0 {
        warnings.push(format!(
            "{unrepeated} failures of the recovery did not repeat on the same image and are not reported: the recovery is not \
             deterministic (or a time limit is too short; see --timeout)"
        ));
    }
    let mut recovered: Vec<_> = std::mem::take(&mut *lock(&shared.recovered))
        .into_values()
        .flatten()
        .collect();
    recovered.sort_by(|a, b| (a.point, &a.persisted).cmp(&(b.point, &b.persisted)));
    Outcome {
        findings,
        stats: Stats {
            strategy: shared.options.strategy.name().into(),
            states_total: shared.surveyed.survey.states.try_into().unwrap_or(u64::MAX),
            states_tested: tested,
            states_pruned: shared.pruned(tested),
            states_failed: shared.failed.load(Ordering::Relaxed),
            seconds: shared.start.elapsed().as_secs_f64(),
            cut_short: shared.cut_short.load(Ordering::Relaxed),
            behaviours: behaviours_of(shared),
        },
        warnings,
        recovered,
    }
}

fn behaviours_of(shared: &Shared<'_>) -> Option<Behaviours> {
    let behaviours = shared.strategy.behaviours()?;
    let points_in_part = lock(&shared.coverage).unfinished.len() as u64;
    Some(Behaviours {
        points_in_part,
        ..behaviours
    })
}

/// If its thread panics, the others need not go on.
struct Alive<'a>(&'a AtomicBool);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Takes over what an earlier campaign tested.
fn resume(shared: &Shared<'_>, records: Vec<Record>, failures: &Sender<Failure>) {
    for record in records {
        if lock(&shared.seen).insert(record.state) {
            shared.tested.fetch_add(1, Ordering::Relaxed);
            shared
                .failed
                .fetch_add((record.verdict == Verdict::Fails) as u64, Ordering::Relaxed);
        }
        if let Some(touched) = &record.touched {
            shared.learn(record.context, touched, record.verdict);
        }
        if let Some(failure) = record.failure {
            // The explainer's thread lives as long as there are senders.
            let _ = failures.send(failure);
        }
        if let Some((stack, recovered)) = record.recovered {
            lock(&shared.recovered).entry(stack).or_default().push(recovered);
        }
    }
}

fn explain(
    shared: &Shared<'_>,
    explainer: &mut dyn Explainer,
    queue: Receiver<Failure>,
) -> Result<Vec<Finding>, CrashError> {
    let grace = shared.options.time.map(|time| time + GRACE.max(time / 4));
    let mut left_out = 0;
    let ends = || {
        let late = grace.is_some_and(|grace| shared.start.elapsed() >= grace);
        late || shared.stop.load(Ordering::Relaxed) || shared.broken.load(Ordering::Relaxed)
    };
    let is_over_time = || shared.options.time.is_some_and(|time| shared.start.elapsed() >= time);
    for failure in queue {
        if ends() {
            left_out += 1;
            continue;
        }
        match explainer.explain(failure) {
            Ok(new) => {
                shared.findings.fetch_add(new as u64, Ordering::Relaxed);
            }
            // Its executor runs no more when the time is up, by a clock that began a little earlier.
            Err(CrashError::Executor(_)) if ends() || is_over_time() => left_out += 1,
            Err(error) => {
                shared.broken.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
    }
    if left_out > 0 {
        shared.cut_short.store(true, Ordering::Relaxed);
        shared.warn(format!(
            "{left_out} failing states were found too late to be explained; give more time, or resume"
        ));
    }
    let findings = explainer.finish()?;
    explainer
        .warnings()
        .into_iter()
        .for_each(|warning| shared.warn(warning));
    Ok(findings)
}

/// Goes over the trace until the strategy has enough.
fn passes(
    shared: &Shared<'_>,
    executors: &mut [Box<dyn Executor>],
    failures: Sender<Failure>,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<(), CrashError> {
    let mut end = PassEnd::default();
    for pass in 0.. {
        if !shared.strategy.has_pass(pass, end) || shared.is_over() || shared.cut_short.load(Ordering::Relaxed) {
            break;
        }
        let before = shared.tested.load(Ordering::Relaxed);
        shared.unfinished.store(0, Ordering::Relaxed);
        lock(&shared.coverage).unfinished.clear();
        let claimed = AtomicU64::new(0);
        let result = thread::scope(|scope| {
            let (ended, end) = mpsc::channel();
            let workers: Vec<_> = executors
                .iter_mut()
                .map(|executor| {
                    let (claimed, failures, ended) = (&claimed, failures.clone(), ended.clone());
                    scope.spawn(move || {
                        let _alive = Alive(&shared.broken);
                        let result = work(shared, pass, claimed, &mut **executor, &failures);
                        if result.is_err() {
                            shared.broken.store(true, Ordering::Relaxed);
                        }
                        drop(ended);
                        result
                    })
                })
                .collect();
            drop(ended);
            wait(&end, shared, progress);
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or(Err(CrashError::Panicked)))
                .fold(Ok(()), Result::and)
        });
        if let Some(journal) = &shared.journal {
            lock(journal).flush()?;
        }
        result?;
        let idle = shared.tested.load(Ordering::Relaxed) == before;
        end = PassEnd {
            unfinished: shared.unfinished.load(Ordering::Relaxed),
            idle: if idle { end.idle + 1 } else { 0 },
        };
    }
    Ok(())
}

/// Tells the progress until whoever has the other end of the channel is done; nothing is sent on it.
fn wait(end: &Receiver<()>, shared: &Shared<'_>, progress: &(dyn Fn(&Progress) + Sync)) {
    while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        progress(&shared.progress());
    }
}

/// One worker's pass.
fn work(
    shared: &Shared<'_>,
    pass: u32,
    claimed: &AtomicU64,
    executor: &mut dyn Executor,
    failures: &Sender<Failure>,
) -> Result<(), CrashError> {
    let contents = &shared.surveyed.contents;
    let mut cursor = Cursor::open(
        shared.trace,
        contents,
        shared.options,
        shared.strategy.stops(),
        executor,
    )?;
    let mut next = claimed.fetch_add(1, Ordering::Relaxed);
    let mut passed = 0u64;
    while let Some(head) = cursor.next(executor)? {
        let end = passed.saturating_add(shared.strategy.parts(pass, head));
        if next < end
            && let Some(point) = cursor.point()
        {
            let mut worker = Worker {
                shared,
                cursor: &cursor,
                point: &point,
                stage: Stage::new(executor, &point),
                failures,
                failed: false,
            };
            while next < end {
                let part = next - passed;
                let goes_on = worker.part(shared.strategy.work(pass, &point, part), part)?;
                if std::mem::take(&mut worker.failed) {
                    shared.strategy.failed(&point.head, part);
                }
                if !goes_on {
                    return Ok(());
                }
                next = claimed.fetch_add(1, Ordering::Relaxed);
            }
            worker.stage.clear();
        }
        if shared.is_over() {
            break;
        }
        passed = end;
    }
    Ok(())
}

/// A worker at a crash point.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    cursor: &'a Cursor<'a>,
    point: &'a CrashPoint,
    stage: Stage<'a>,
    failures: &'a Sender<Failure>,
    /// A state of the part at work fails.
    failed: bool,
}

impl Worker<'_> {
    /// Whether to go on.
    fn part(&mut self, work: Work<'_>, part: u64) -> Result<bool, CrashError> {
        let (states, once) = match work {
            Work::States(states) => (states, false),
            Work::Once(states) => (states, true),
            Work::Walk(walk) => {
                let products = self.point.products();
                let among = |product: Product<'_>| {
                    let mut among = vec![Among::Range(0..0); self.point.lines.len()];
                    product
                        .digits()
                        .for_each(|(line, range)| among[line] = Among::Range(range));
                    among
                };
                return self.walk(walk, 0, products.map(among));
            }
            Work::Among(walk, options) => {
                let among = options.into_iter().map(Among::List).collect();
                return self.walk(walk, part, std::iter::once(among));
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
    fn test(&mut self, state: &State) -> Result<Tested, CrashError> {
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
            return Ok(Tested::Known);
        }
        self.run(state, hash, true)
    }

    /// Runs the recovery. `new`: the state was not run before.
    fn run(&mut self, state: &State, hash: u128, new: bool) -> Result<Tested, CrashError> {
        if !self.shared.reserve(new) {
            if new {
                lock(&self.shared.seen).remove(&hash);
            }
            return Ok(Tested::Stopped);
        }
        self.stage.show(state);
        let output = self.cursor.output();
        let mut run = self.stage.executor.run(output)?;
        let mut verdict = judge(&run, self.shared.options);
        if verdict == Verdict::Fails && new {
            let again = self.stage.executor.run(output)?;
            verdict = judge(&again, self.shared.options);
            if verdict == Verdict::Recovers {
                self.shared.unrepeated.fetch_add(1, Ordering::Relaxed);
                run = again;
            }
        }
        if !self.shared.compared.swap(true, Ordering::Relaxed) {
            let again = self.stage.executor.run(output)?;
            if again.touched != run.touched || ends(&again) != ends(&run) {
                self.shared
                    .stop_pruning("the same state, run twice, ended in different ways or was read at different places");
            }
        }
        self.failed |= verdict == Verdict::Fails;
        let touched = run.touched.take().map(|units| self.contents_of(&units, state));
        if let Some(touched) = &touched {
            self.shared.learn(self.point.context, touched, verdict);
        }
        if new {
            self.note(state, hash, verdict, run, touched.as_deref())?;
        }
        Ok(Tested::Ran)
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
        verdict: Verdict,
        run: Run,
        touched: Option<&[(u64, UnitHash)]>,
    ) -> Result<(), CrashError> {
        let shared = self.shared;
        let output = self.cursor.output().len() as u64;
        let point = self.point.head.seq;
        let (mut failure, mut recovered) = (None, None);
        if verdict == Verdict::Fails {
            shared.failed.fetch_add(1, Ordering::Relaxed);
            let (persisted, missing) = self.point.split(state);
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
        if let Some(journal) = &shared.journal {
            lock(journal).append(&Record {
                state: hash,
                context: self.point.context,
                verdict,
                touched: touched.filter(|_| shared.options.strategy.prunes()).map(Into::into),
                failure: failure.clone(),
                recovered,
            })?;
        }
        if let Some(failure) = failure {
            // The explainer has gone only if it failed; then the campaign ends with its error.
            let _ = self.failures.send(failure);
        }
        Ok(())
    }

    /// How a run on this state ends, if the tree knows.
    fn lookup(&self, state: &State) -> Option<Verdict> {
        let tree = lock(&self.shared.tree);
        let mut at = tree.root(self.point.context)?;
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
    fn walk(&mut self, walk: Walk, part: u64, products: impl Iterator<Item = Vec<Among>>) -> Result<bool, CrashError> {
        let key = (self.point.head.seq, self.point.head.within, part);
        if lock(&self.shared.coverage).finished.contains(&key) {
            return Ok(true);
        }
        let pruned = self.shared.prunes.load(Ordering::Relaxed);
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
        // Where pruning ended meanwhile, what it left out counts no more.
        let valid = pruned == self.shared.prunes.load(Ordering::Relaxed);
        if valid {
            lock(&self.shared.coverage).walked(key, walker.covered, complete);
        }
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
