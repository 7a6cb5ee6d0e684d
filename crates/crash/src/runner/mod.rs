//! The campaign: workers that replay the trace, each on an executor of its own, and claim parts of the strategy's work in its
//! order; what they share (what was tested, the tree of reads, the budget, the journal); and the thread that explains.

mod shared;
mod walk;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crashproof_finding::{Behaviours, Finding, Stats, StrategyEnd, StrategyRun};
use crashproof_trace::TraceFile;

use crate::campaign::{CampaignOptions, Outcome, Progress, StrategyKind, Survey};
use crate::cursor::{Cursor, Stops};
use crate::error::CrashError;
use crate::executor::{Executor, ExecutorError, Explainer, Failure, Verdict};
use crate::journal::{Entry, Journal};
use crate::stage::Stage;
use crate::strategy::{PassEnd, strategy};
use crate::survey::count_stops;
use shared::{Shared, lock};
use worker::Worker;

/// How often progress is told and the journal flushed.
const TICK: Duration = Duration::from_millis(100);
/// Failures that wait to be explained; a worker with one more waits with them.
const QUEUE: usize = 1 << 14;

pub(crate) fn run(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    mut executors: Vec<Box<dyn Executor>>,
    mut explainer: Box<dyn Explainer>,
    progress: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Outcome, CrashError> {
    let start = Instant::now();
    let strategy = strategy(trace, options, survey, executors.len())?;
    let (states, points) = match options.strategy {
        StrategyKind::Prefix => {
            let count = count_stops(trace, options, strategy.stops(0))?;
            (count, count)
        }
        _ => (survey.states, u128::from(survey.points)),
    };
    let (journal, entries) = match &options.journal {
        Some(path) => {
            let (journal, entries) = Journal::open(path, trace.path(), options)?;
            (Some(Mutex::new(journal)), entries)
        }
        None => (None, Vec::new()),
    };
    let shared = Shared {
        trace,
        options,
        survey,
        strategy: &*strategy,
        states,
        stop,
        broken: AtomicBool::new(false),
        error: Mutex::default(),
        start,
        cut_short: AtomicBool::new(false),
        seen: Mutex::default(),
        failing: Mutex::default(),
        tested: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        recoveries: AtomicU64::new(0),
        first_failure: OnceLock::new(),
        findings: AtomicU64::new(0),
        unrepeated: AtomicU64::new(0),
        unrepeated_timeouts: AtomicU64::new(0),
        coverage: Mutex::default(),
        points: Mutex::default(),
        prunes: AtomicBool::new(options.strategy.prunes()),
        // Which operation was interrupted, and so what the driver is given, depends on it.
        output_read: AtomicBool::new(options.oracle.is_some()),
        compared: AtomicBool::new(!options.strategy.prunes()),
        tree: Mutex::default(),
        unfinished: AtomicU64::new(0),
        journal,
        recovered: Mutex::default(),
        warnings: Mutex::new(survey.warnings.clone()),
    };
    let waiting = resume(&shared, entries);
    let (failures, queue) = mpsc::sync_channel(QUEUE);
    let findings = thread::scope(|scope| {
        let (ended, end) = mpsc::channel();
        let explaining = {
            let (shared, explainer) = (&shared, &mut *explainer);
            scope.spawn(move || {
                let _alive = Alive(&shared.broken);
                let findings = explain(shared, explainer, waiting.into_iter().chain(queue));
                drop(ended);
                findings
            })
        };
        // The first state does not wait for what is only a figure.
        let (tested, counts) = mpsc::channel::<()>();
        let counting = {
            let shared = &shared;
            scope.spawn(move || {
                while shared.tested.load(Ordering::Relaxed) == 0
                    && counts.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout)
                {}
                let flags = [&shared.cut_short, shared.stop, &shared.broken];
                let ends = || flags.iter().any(|flag| flag.load(Ordering::Relaxed));
                if let Err(error) = shared.strategy.count(trace, options, &ends) {
                    shared.give_up(error);
                }
            })
        };
        passes(&shared, &mut executors, failures, progress);
        drop(tested);
        wait(&end, &shared, progress);
        if counting.join().is_err() {
            shared.give_up(CrashError::Panicked);
        }
        explaining.join().unwrap_or_else(|_| {
            shared.give_up(CrashError::Panicked);
            Vec::new()
        })
    });
    shared.flush();
    progress(&shared.progress());
    let error = lock(&shared.error).take();
    let nothing_yet = findings.is_empty() && shared.tested.load(Ordering::Relaxed) == 0;
    if let Some(error) = error {
        if nothing_yet || matches!(error, CrashError::Driver(_)) {
            return Err(error);
        }
        shared.cut_short.store(true, Ordering::Relaxed);
        shared.warn(format!(
            "the test ended early, and what follows is what was found until then: {error}"
        ));
    }
    let unexplained = explainer.unexplained() + not_repeated(&shared);
    Ok(Outcome {
        broken: shared.broken.load(Ordering::Relaxed),
        unexplained,
        ..outcome(&shared, points, findings)
    })
}

fn outcome(shared: &Shared<'_>, points: u128, findings: Vec<Finding>) -> Outcome {
    let tested = shared.tested.load(Ordering::Relaxed);
    let points_reached = lock(&shared.points).len() as u64;
    let mut recovered: Vec<_> = std::mem::take(&mut *lock(&shared.recovered))
        .into_values()
        .flatten()
        .collect();
    recovered.sort_by(|a, b| (a.point, &a.persisted).cmp(&(b.point, &b.persisted)));
    Outcome {
        findings,
        stats: Stats {
            strategy: shared.options.strategy.name().into(),
            states_total: shared.survey.states.try_into().unwrap_or(u64::MAX),
            states_tested: tested,
            states_pruned: shared.pruned(tested),
            states_failed: shared.failed.load(Ordering::Relaxed),
            recoveries: shared.recoveries.load(Ordering::Relaxed),
            oracle_runs: shared.options.oracle.as_ref().map_or(0, |oracle| oracle.runs()),
            first_failure: shared.first_failure.get().copied(),
            points_total: shared
                .strategy
                .points()
                .unwrap_or(points.try_into().unwrap_or(u64::MAX))
                // A strategy may look at points whose states the one before had, too.
                .max(points_reached),
            points_reached,
            seconds: shared.start.elapsed().as_secs_f64(),
            cut_short: shared.cut_short.load(Ordering::Relaxed),
            behaviours: behaviours_of(shared),
            strategies: runs(shared, tested),
        },
        warnings: {
            let mut warnings = std::mem::take(&mut *lock(&shared.warnings));
            warnings.extend(shared.strategy.warnings());
            if shared.cut_short.load(Ordering::Relaxed) && !shared.has_enough() {
                warnings.extend(shared.strategy.left());
            }
            warnings
        },
        recovered,
        ..Outcome::default()
    }
}

/// What ran, how far it got and why it stopped.
fn runs(shared: &Shared<'_>, tested: u64) -> Vec<StrategyRun> {
    let cut_short = shared.cut_short.load(Ordering::Relaxed);
    let stopped = shared.has_enough() || shared.stop.load(Ordering::Relaxed) || shared.broken.load(Ordering::Relaxed);
    let mut runs = shared.strategy.runs();
    if runs.is_empty() {
        runs.push(StrategyRun {
            name: shared.options.strategy.name().into(),
            states_tested: tested,
            findings: shared.findings.load(Ordering::Relaxed),
            ended: if cut_short {
                StrategyEnd::Budget
            } else {
                StrategyEnd::Done
            },
        });
    }
    for run in &mut runs {
        if run.ended == StrategyEnd::Budget && stopped {
            run.ended = StrategyEnd::Stopped;
        }
    }
    runs
}

fn behaviours_of(shared: &Shared<'_>) -> Option<Behaviours> {
    let behaviours = shared.strategy.behaviours()?;
    Some(Behaviours {
        points_in_part: lock(&shared.coverage).in_part(),
        ..behaviours
    })
}

/// Warns of failures that did not repeat. How many of them say that something is wrong: a time-out may be the machine's doing.
fn not_repeated(shared: &Shared<'_>) -> u64 {
    let unrepeated = shared.unrepeated.load(Ordering::Relaxed);
    let timeouts = shared.unrepeated_timeouts.load(Ordering::Relaxed);
    let failures = |count: u64, what: &str| match count {
        1 => format!("1 {what} of the recovery"),
        count => format!("{count} {what}s of the recovery"),
    };
    if unrepeated > timeouts {
        let failures = failures(unrepeated - timeouts, "failure");
        shared.warn(format!(
            "{failures} did not repeat on the same image: the recovery is not deterministic, so nothing can be said of such a \
             state, and this is not clean"
        ));
    }
    if timeouts > 0 {
        let failures = failures(timeouts, "time-out");
        shared.warn(format!(
            "{failures} did not repeat on the same image: the time limit is short for this machine (see --timeout), or the \
             recovery does not always do the same"
        ));
    }
    unrepeated - timeouts
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

/// Takes over what an earlier campaign tested. The failures are to be explained.
fn resume(shared: &Shared<'_>, entries: Vec<Entry>) -> Vec<Failure> {
    let mut failures = Vec::new();
    for entry in entries {
        let record = match entry {
            Entry::Tested(record) => record,
            Entry::PruningEnded { why } => {
                shared.stop_pruning(&why);
                continue;
            }
        };
        if lock(&shared.seen).insert(record.state) {
            shared.tested.fetch_add(1, Ordering::Relaxed);
            if record.verdict == Verdict::Fails {
                lock(&shared.failing).insert(record.state);
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if let Some(touched) = &record.touched {
            shared.output_read.fetch_or(record.output_read, Ordering::Relaxed);
            shared.learn(record.context, touched, record.verdict);
        }
        failures.extend(record.failure);
        if let Some((stack, recovered)) = record.recovered {
            lock(&shared.recovered).entry(stack).or_default().push(recovered);
        }
    }
    failures
}

fn explain(
    shared: &Shared<'_>,
    explainer: &mut dyn Explainer,
    failures: impl Iterator<Item = Failure>,
) -> Vec<Finding> {
    let mut left = 0;
    let mut over = false;
    for failure in failures {
        over = over || shared.explaining_is_over();
        if !over {
            match explainer.explain(&failure) {
                Ok(new) => {
                    shared.findings.fetch_add(new as u64, Ordering::Relaxed);
                    continue;
                }
                Err(CrashError::Executor(ExecutorError::Ends)) => {}
                Err(error) => shared.give_up(error),
            }
            over = true;
        }
        // The one finding that was asked for is there.
        if !shared.has_enough() {
            left += 1;
            explainer.leave(failure);
        }
    }
    if left > 0 {
        shared.cut_short.store(true, Ordering::Relaxed);
        let states = match left {
            1 => "1 failing state was".to_owned(),
            states => format!("{states} failing states were"),
        };
        shared.warn(format!(
            "{states} found too late to be explained; give more time, or resume"
        ));
    }
    let findings = explainer.finish();
    explainer
        .warnings()
        .into_iter()
        .for_each(|warning| shared.warn(warning));
    findings
}

/// Goes over the trace until the strategy has enough.
fn passes(
    shared: &Shared<'_>,
    executors: &mut [Box<dyn Executor>],
    failures: SyncSender<Failure>,
    progress: &(dyn Fn(&Progress) + Sync),
) {
    let mut end = PassEnd::default();
    for pass in 0.. {
        // To ask for a pass may take long.
        if shared.is_over() || shared.cut_short.load(Ordering::Relaxed) || !shared.strategy.has_pass(pass, end) {
            break;
        }
        let before = shared.tested.load(Ordering::Relaxed);
        let found = shared.findings.load(Ordering::Relaxed);
        if pass == 0 || shared.strategy.round(pass) != shared.strategy.round(pass - 1) {
            shared.unfinished.store(0, Ordering::Relaxed);
        }
        let claimed = AtomicU64::new(0);
        thread::scope(|scope| {
            let (ended, end) = mpsc::channel();
            let workers: Vec<_> = executors
                .iter_mut()
                .map(|executor| {
                    let (claimed, failures, ended) = (&claimed, failures.clone(), ended.clone());
                    scope.spawn(move || {
                        let _alive = Alive(&shared.broken);
                        if let Err(error) = work(shared, pass, claimed, &mut **executor, &failures) {
                            shared.give_up(error);
                        }
                        drop(ended);
                    })
                })
                .collect();
            drop(ended);
            wait(&end, shared, progress);
            for worker in workers {
                if worker.join().is_err() {
                    shared.give_up(CrashError::Panicked);
                }
            }
        });
        shared.flush();
        let tested = shared.tested.load(Ordering::Relaxed) - before;
        end = PassEnd {
            unfinished: shared.unfinished.load(Ordering::Relaxed),
            idle: if tested == 0 { end.idle + 1 } else { 0 },
            tested,
            findings: shared.findings.load(Ordering::Relaxed) - found,
        };
        shared.strategy.passed(pass, end);
    }
}

/// Tells the progress until whoever has the other end of the channel is done; nothing is sent on it.
fn wait(end: &Receiver<()>, shared: &Shared<'_>, progress: &(dyn Fn(&Progress) + Sync)) {
    while end.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        progress(&shared.progress());
        shared.flush();
    }
}

/// One worker's pass.
fn work(
    shared: &Shared<'_>,
    pass: u32,
    claimed: &AtomicU64,
    executor: &mut dyn Executor,
    failures: &SyncSender<Failure>,
) -> Result<(), CrashError> {
    let stops = shared.strategy.stops(pass);
    let mut cursor = Cursor::open(shared.trace, shared.options, stops, executor)?;
    // Of several strategies the figure is that of the crash points.
    let counts_points = stops == Stops::CrashPoints || shared.options.strategy == StrategyKind::Prefix;
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
                counts_points,
            };
            while next < end {
                let part = next - passed;
                let goes_on = worker.part(shared.strategy.work(pass, &point, part))?;
                if std::mem::take(&mut worker.failed) {
                    shared.strategy.failed(&point.head, part);
                }
                if !goes_on {
                    return Ok(());
                }
                if counts_points {
                    lock(&shared.points).insert((point.head.seq, point.head.within));
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
