//! Strategies and campaigns: `dpor` against `exhaustive`, several workers against one, an interrupted campaign against one
//! that was not, and what the budget does.

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use crashproof_crash::{
    CampaignOptions, CrashError, Executor, ExecutorError, Failure, Progress, StrategyKind, Verdict,
};
use crashproof_model::LINE;
use crashproof_sandbox::Run;
use crashproof_trace::{FlushKind, TraceFile};
use proptest::prelude::*;

/// What recoveries did, as far as they can tell: what was output, what they read and how it ended.
type Behaviour = (Vec<u8>, Option<String>, usize, Vec<(u64, Vec<u8>)>, bool);

fn behaviours(campaign: &Campaign) -> BTreeSet<Behaviour> {
    campaign
        .seen
        .iter()
        .map(|seen| {
            (
                seen.output.clone(),
                seen.image.path.clone(),
                seen.image.content.len(),
                seen.reads.clone(),
                seen.recovers,
            )
        })
        .collect()
}

fn failing(campaign: &Campaign) -> BTreeSet<(u64, Vec<u64>)> {
    campaign
        .failures
        .iter()
        .map(|failure| (failure.point, failure.persisted.iter().map(|id| id.seq).collect()))
        .collect()
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn dpor_sees_what_exhaustive_sees(
        table in prop::collection::vec(any::<u8>(), 1..9),
        steps in steps(true, 16),
        fine in any::<bool>(),
        workers in 1..3usize,
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[1], &fitting(units, steps));
        let simulated = Simulated { fine, ..Simulated::new(wandering(table)) };
        let all = run(&trace, &tied(units, options(StrategyKind::Exhaustive)), &simulated, 1);
        let pruned = run(&trace, &tied(units, options(StrategyKind::Dpor)), &simulated, workers);
        prop_assert_eq!(behaviours(&pruned), behaviours(&all));
        let stats = &pruned.outcome.stats;
        prop_assert_eq!(stats.states_tested + stats.states_pruned, stats.states_total);
        prop_assert_eq!(&pruned.outcome.warnings, &Vec::<String>::new());
        if workers == 1 {
            prop_assert_eq!(stats.states_tested, behaviours(&all).len() as u64, "each behaviour has one run");
        }
    }

    /// 4: it never looks at the output.
    #[test]
    fn output_that_is_not_looked_at_does_not_count(
        table in prop::collection::vec(any::<u8>(), 1..9),
        steps in steps(true, 16),
        opens_output_at in 0..5u8,
        workers in 1..3usize,
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[1], &fitting(units, steps));
        let simulated = Simulated { opens_output_at: Some(opens_output_at), ..Simulated::new(wandering(table)) };
        let all = run(&trace, &tied(units, options(StrategyKind::Exhaustive)), &simulated, 1);
        let pruned = run(&trace, &tied(units, options(StrategyKind::Dpor)), &simulated, workers);
        prop_assert_eq!(behaviours(&pruned), behaviours(&all));
        prop_assert_eq!(&pruned.outcome.warnings, &Vec::<String>::new());
        if workers == 1 && opens_output_at == 4 {
            let stats = &pruned.outcome.stats;
            prop_assert_eq!(stats.states_tested, behaviours(&all).len() as u64, "each behaviour has one run");
        }
    }

    #[test]
    fn dpor_without_reads_is_exhaustive(table in prop::collection::vec(any::<u8>(), 1..9), steps in steps(true, 12), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[], &fitting(units, steps));
        let simulated = Simulated { tracked: false, ..Simulated::new(wandering(table)) };
        let all = run(&trace, &tied(units, options(StrategyKind::Exhaustive)), &simulated, 1);
        let pruned = run(&trace, &tied(units, options(StrategyKind::Dpor)), &simulated, 1);
        prop_assert_eq!(pruned.images(), all.images());
    }

    #[test]
    fn several_workers_do_what_one_does(table in prop::collection::vec(any::<u8>(), 1..9), steps in steps(true, 14), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[], &fitting(units, steps));
        let simulated = Simulated::new(wandering(table));
        for strategy in [StrategyKind::Prefix, StrategyKind::Exhaustive] {
            let one = run(&trace, &tied(units, options(strategy)), &simulated, 1);
            let three = run(&trace, &tied(units, options(strategy)), &simulated, 3);
            prop_assert_eq!(one.seen.iter().collect::<BTreeSet<_>>(), three.seen.iter().collect::<BTreeSet<_>>());
            prop_assert_eq!(one.outcome.stats.states_tested, three.outcome.stats.states_tested);
            prop_assert_eq!(one.outcome.stats.states_failed, three.outcome.stats.states_failed);
        }
    }

    #[test]
    fn what_is_in_the_journal_is_not_tested_again(
        table in prop::collection::vec(any::<u8>(), 1..9),
        steps in steps(true, 14),
        first in 0..20u64,
        torn in 0..40u64,
        dpor in any::<bool>(),
        units in units(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let journal = folder.path().join("journal");
        write_trace(&trace, &[], &fitting(units, steps));
        let strategy = if dpor { StrategyKind::Dpor } else { StrategyKind::Exhaustive };
        let simulated = Simulated::new(wandering(table));
        let whole = run(&trace, &tied(units, options(strategy)), &simulated, 1);
        let interrupted = CampaignOptions {
            max_states: Some(first),
            journal: Some(journal.clone()),
            ..tied(units, options(strategy))
        };
        let begun = run(&trace, &interrupted, &simulated, 1);
        let tested = begun.outcome.stats.states_tested;
        prop_assert_eq!(tested, first.min(whole.outcome.stats.states_tested));
        // Killed while it wrote.
        let mut content = std::fs::read(&journal).unwrap();
        let cut = torn.min(content.len() as u64 - 24);
        content.truncate(content.len() - cut as usize);
        std::fs::write(&journal, &content).unwrap();
        let resumed = CampaignOptions { max_states: None, ..interrupted };
        let rest = run(&trace, &resumed, &simulated, 1);
        prop_assert_eq!(rest.outcome.stats.states_tested, whole.outcome.stats.states_tested);
        prop_assert_eq!(rest.outcome.stats.states_failed, whole.outcome.stats.states_failed);
        prop_assert_eq!(rest.outcome.stats.states_pruned, whole.outcome.stats.states_pruned);
        if !dpor {
            prop_assert_eq!(failing(&rest), failing(&whole));
        }
        if cut == 0 && !dpor {
            let (begun, rest) = (begun.images(), rest.seen.len());
            prop_assert!(rest + begun.len() <= 3 * whole.seen.len());
        }
        // All is done: nothing is run.
        let again = run(&trace, &resumed, &simulated, 1);
        prop_assert_eq!(again.seen.len(), 0);
        prop_assert_eq!(again.outcome.stats.states_tested, whole.outcome.stats.states_tested);
        prop_assert_eq!(again.failures.len(), whole.failures.len());
    }

    #[test]
    fn random_draws_allowed_states_as_its_seed_says(steps in steps(true, 12), seed in any::<u64>(), units in units()) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &[], &fitting(units, steps));
        let options = CampaignOptions { seed, ..tied(units, options(StrategyKind::Random)) };
        let simulated = Simulated::new(Arc::new(|_, _| true));
        let one = run(&trace, &options, &simulated, 1);
        let two = run(&trace, &options, &simulated, 2);
        prop_assert_eq!(one.images(), two.images());
        let all = run(&trace, &tied(units, common::options(StrategyKind::Exhaustive)), &simulated, 1);
        prop_assert!(one.images().is_subset(&all.images()));
    }
}

fn store(at: u64, byte: u8, stack: u8) -> Step {
    let action = Action::Store {
        at,
        data: vec![byte],
        nontemporal: false,
        locked: false,
    };
    Step {
        thread: 0,
        stack,
        action,
    }
}

fn flush(at: u64) -> Step {
    let action = Action::Flush {
        at,
        kind: FlushKind::Clwb,
    };
    Step {
        thread: 0,
        stack: 8,
        action,
    }
}

fn fence() -> Step {
    Step {
        thread: 0,
        stack: 9,
        action: Action::Fence,
    }
}

/// A flag in one line, stored before the data in another; both flushed, then a fence.
fn flag_before_data(trace: &Path) {
    write_trace(
        trace,
        &[],
        &[store(0, 1, 1), store(128, 1, 2), flush(0), flush(128), fence()],
    );
}

/// Fails if the flag is set and the data is not there.
fn checks_flag() -> Simulated {
    Simulated::new(Arc::new(|view, _| view.read(0) == 0 || view.read(128) == 1))
}

#[test]
fn the_failing_state_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    flag_before_data(&trace);
    for strategy in [StrategyKind::Exhaustive, StrategyKind::Dpor, StrategyKind::Random] {
        let campaign = run(&trace, &options(strategy), &checks_flag(), 1);
        let [
            Failure {
                point,
                persisted,
                missing,
                ..
            },
        ] = &campaign.failures[..]
        else {
            panic!("{strategy:?}: {:?}", campaign.failures);
        };
        let seqs = |ids: &[crashproof_crash::StoreId]| ids.iter().map(|id| id.seq).collect::<Vec<_>>();
        // Three events start the process and its threads, one maps the file.
        assert_eq!(
            (*point, seqs(persisted), seqs(missing)),
            (8, vec![4], vec![5]),
            "{strategy:?}"
        );
        assert_eq!(campaign.outcome.stats.states_failed, 1);
    }
}

#[test]
fn prefix_tests_program_order_once_per_call_path() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps = [store(0, 1, 1), store(0, 2, 1), store(128, 3, 2), store(64, 4, 2)];
    write_trace(&trace, &[], &steps);
    let campaign = run(&trace, &options(StrategyKind::Prefix), &checks_flag(), 1);
    let lines: Vec<_> = campaign
        .seen
        .iter()
        .filter(|seen| seen.recovers)
        .map(|seen| [0, 64, 128].map(|at: usize| seen.image.content[at]))
        .collect();
    assert_eq!(lines, [[1, 0, 0]; 0].to_vec());
    let distinct: BTreeSet<_> = campaign
        .seen
        .iter()
        .map(|seen| [0, 64, 128].map(|at: usize| seen.image.content[at]))
        .collect();
    assert_eq!(distinct, BTreeSet::from([[1, 0, 0], [2, 0, 3], [2, 4, 3]]));
}

#[test]
fn the_baseline_is_the_first_and_the_last_image() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    flag_before_data(&trace);
    let mut simulated = checks_flag();
    let options = options(StrategyKind::Exhaustive);
    let baseline = baseline(&trace, &options, &mut simulated);
    for (_, verdict) in [&baseline.initial, &baseline.last] {
        assert_eq!(*verdict, Verdict::Recovers);
    }
    let seen = simulated.seen.lock().unwrap();
    let bytes: Vec<_> = seen
        .iter()
        .map(|seen| (seen.image.content[0], seen.image.content[128]))
        .collect();
    assert_eq!(bytes, [(0, 0), (1, 1)]);
}

/// An explainer that does nothing until more failures wait than the queue has room for.
#[derive(Clone, Default)]
struct Late {
    runs: Arc<AtomicU64>,
    explained: Arc<AtomicU64>,
}

/// The queue, the failure that is being explained, and the one that a worker holds.
const MORE_THAN_WAIT: u64 = (1 << 14) + 2;

impl crashproof_crash::Explainer for Late {
    fn explain(&mut self, _: &Failure) -> Result<bool, CrashError> {
        // Each failure is run twice.
        while self.explained.load(Ordering::Relaxed) == 0 && self.runs.load(Ordering::Relaxed) < 2 * MORE_THAN_WAIT {
            std::thread::yield_now();
        }
        self.explained.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }

    fn leave(&mut self, _: Failure) {}

    fn finish(&mut self) -> Vec<crashproof_finding::Finding> {
        Vec::new()
    }
}

impl Executor for Late {
    fn read(&self, _: usize, _: u64, buffer: &mut [u8]) {
        buffer.fill(0);
    }

    fn write(&mut self, _: usize, _: u64, _: &[u8]) {}

    fn resize(&mut self, _: usize, _: u64) {}

    fn place(&mut self, _: usize, _: Option<&str>) {}

    fn run(&mut self, _: &[u8]) -> Result<Run, ExecutorError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut run = Run::default();
        run.recovery.status = Some(1);
        Ok(run)
    }
}

#[test]
fn workers_wait_for_the_explainer_and_no_failure_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps: Vec<_> = (0..15).map(|line| store(line * 64, 1, line as u8)).collect();
    write_trace(&trace, &[], &steps);
    let late = Late::default();
    let outcome = tested(
        &trace,
        &options(StrategyKind::Exhaustive),
        vec![Box::new(late.clone())],
        Box::new(late.clone()),
        &|_: &Progress| {},
        &Default::default(),
    )
    .unwrap();
    assert_eq!(outcome.stats.states_failed, 1 << 15);
    assert_eq!(late.explained.load(Ordering::Relaxed), 1 << 15);
}

#[test]
fn a_budget_of_states_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps: Vec<_> = (0..8).map(|line| store(line * 64, 1, line as u8)).collect();
    write_trace(&trace, &[], &steps);
    let simulated = Simulated::new(Arc::new(|_, _| true));
    for workers in [1, 3] {
        let options = CampaignOptions {
            max_states: Some(100),
            ..options(StrategyKind::Exhaustive)
        };
        let campaign = run(&trace, &options, &simulated, workers);
        assert_eq!(campaign.outcome.stats.states_tested, 100);
        assert!(campaign.outcome.stats.cut_short);
        assert_eq!(campaign.outcome.stats.states_total, 256);
        let all = run(&trace, &common::options(StrategyKind::Exhaustive), &simulated, workers);
        assert_eq!(
            (all.outcome.stats.states_tested, all.outcome.stats.cut_short),
            (256, false)
        );
    }
    let options = CampaignOptions {
        time: Some(Duration::ZERO),
        ..options(StrategyKind::Exhaustive)
    };
    let campaign = run(&trace, &options, &simulated, 2);
    assert_eq!(campaign.outcome.stats.states_tested, 0);
    assert!(campaign.outcome.stats.cut_short);
}

#[test]
fn stopping_stops() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps: Vec<_> = (0..64).map(|line| store(line * 64, 1, 0)).collect();
    write_trace(&trace, &[], &steps);
    let stop = Arc::new(AtomicBool::new(false));
    let runs = AtomicU64::new(0);
    let simulated = {
        let stop = Arc::clone(&stop);
        Simulated::new(Arc::new(move |_, _| {
            if runs.fetch_add(1, Ordering::Relaxed) == 50 {
                stop.store(true, Ordering::Relaxed);
            }
            true
        }))
    };
    // 2^64 states: it would not end by itself.
    let outcome = tested(
        &trace,
        &options(StrategyKind::Exhaustive),
        vec![simulated.boxed(), simulated.boxed()],
        Box::new(Collector::default()),
        &|_: &Progress| {},
        &stop,
    )
    .unwrap();
    assert!(outcome.stats.cut_short);
    assert!((51..=53).contains(&outcome.stats.states_tested));
}

#[test]
fn a_failure_that_does_not_repeat_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    flag_before_data(&trace);
    let runs = AtomicU64::new(0);
    let flaky = Simulated::new(Arc::new(move |_, _| runs.fetch_add(1, Ordering::Relaxed) != 1));
    let campaign = run(&trace, &options(StrategyKind::Exhaustive), &flaky, 1);
    assert_eq!(campaign.failures.len(), 0);
    assert_eq!(campaign.outcome.unexplained, 1, "this is not clean");
    assert_eq!(campaign.outcome.warnings.len(), 1);
    assert!(
        campaign.outcome.warnings[0].starts_with("1 failure of the recovery did not repeat"),
        "{:?}",
        campaign.outcome.warnings
    );
}

#[test]
fn a_recovery_that_is_not_deterministic_is_not_pruned_by() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps: Vec<_> = (0..6).map(|line| store(line * 64, 1, line as u8)).collect();
    write_trace(&trace, &[], &steps);
    // After some runs it reads other places than before.
    for late in [0, 5] {
        let runs = Arc::new(AtomicU64::new(0));
        let simulated = Simulated::new(Arc::new(move |view, _| {
            if runs.fetch_add(1, Ordering::Relaxed) > late {
                view.read(PAGE);
            }
            for line in 0..4 {
                view.read(64 * line);
            }
            true
        }));
        let campaign = run(&trace, &options(StrategyKind::Dpor), &simulated, 1);
        assert_eq!(campaign.images().len(), 64, "every state is tested");
        assert_eq!(campaign.outcome.warnings.len(), 1, "{:?}", campaign.outcome.warnings);
    }
}

#[test]
fn a_journal_of_another_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let journal = folder.path().join("journal");
    flag_before_data(&trace);
    let options = CampaignOptions {
        journal: Some(journal),
        ..options(StrategyKind::Exhaustive)
    };
    run(&trace, &options, &checks_flag(), 1);
    write_trace(&trace, &[], &[store(0, 1, 1)]);
    let refused = tested(
        &trace,
        &options,
        vec![checks_flag().boxed()],
        Box::new(Collector::default()),
        &|_: &Progress| {},
        &AtomicBool::new(false),
    );
    assert!(matches!(refused, Err(CrashError::JournalOfAnother { .. })));
}

#[test]
fn states_that_recovered_by_writing_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    flag_before_data(&trace);
    let options = options(StrategyKind::Exhaustive);
    let campaign = run(&trace, &options, &checks_flag(), 1);
    assert!(!campaign.outcome.recovered.is_empty());
    for state in &campaign.outcome.recovered {
        let mut executor = checks_flag();
        crashproof_crash::make_image(&opened(&trace), &options, state.point, &state.persisted, &mut executor).unwrap();
        assert!(campaign.images().contains(&executor.file));
    }
}

/// Fails to run when the count of runs has come to `after`.
struct Breaking {
    inner: Box<dyn Executor>,
    runs: Arc<AtomicU64>,
    after: u64,
}

impl Executor for Breaking {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        self.inner.read(file, offset, buffer);
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        self.inner.write(file, offset, data);
    }

    fn resize(&mut self, file: usize, size: u64) {
        self.inner.resize(file, size);
    }

    fn place(&mut self, file: usize, path: Option<&str>) {
        self.inner.place(file, path);
    }

    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError> {
        if self.runs.fetch_add(1, Ordering::Relaxed) >= self.after {
            return Err(ExecutorError::Broken("no more processes".into()));
        }
        self.inner.run(output)
    }
}

#[test]
fn an_executor_that_breaks_does_not_take_the_findings_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let journal = folder.path().join("journal");
    let steps: Vec<_> = (0..8).map(|line| store(line * 64, 1, line as u8)).collect();
    write_trace(&trace, &[], &steps);
    let simulated = Simulated::new(Arc::new(|view, _| view.read(0) == 0));
    let options = CampaignOptions {
        journal: Some(journal),
        ..options(StrategyKind::Exhaustive)
    };
    let broken = |after| {
        let collector = Collector::default();
        let executor = Breaking {
            inner: simulated.boxed(),
            runs: Arc::default(),
            after,
        };
        let outcome = tested(
            &trace,
            &options,
            vec![Box::new(executor), simulated.boxed()],
            Box::new(collector.clone()),
            &|_: &Progress| {},
            &AtomicBool::new(false),
        );
        (outcome, collector.0.lock().unwrap().len() as u64)
    };
    let (outcome, explained) = broken(10);
    let outcome = outcome.unwrap();
    assert!(outcome.broken && outcome.stats.cut_short);
    assert!(outcome.stats.states_tested < 256 && outcome.stats.states_failed > 0);
    assert_eq!(explained, outcome.stats.states_failed, "what failed is explained");
    let why = |warning: &String| warning.contains("no more processes");
    assert!(outcome.warnings.iter().any(why), "{:?}", outcome.warnings);
    // It can be resumed.
    let (rest, _) = broken(u64::MAX);
    let rest = rest.unwrap();
    assert_eq!((rest.broken, rest.stats.states_tested), (false, 256));
}

#[test]
fn an_executor_that_never_runs_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    flag_before_data(&trace);
    let executor = Breaking {
        inner: checks_flag().boxed(),
        runs: Arc::default(),
        after: 0,
    };
    let refused = tested(
        &trace,
        &options(StrategyKind::Exhaustive),
        vec![Box::new(executor)],
        Box::new(Collector::default()),
        &|_: &Progress| {},
        &AtomicBool::new(false),
    );
    assert!(matches!(refused, Err(CrashError::Executor(_))), "{refused:?}");
}

#[test]
fn what_was_tested_is_in_the_journal_while_the_next_recovery_runs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let journal = folder.path().join("journal");
    flag_before_data(&trace);
    let runs = AtomicU64::new(0);
    let noted = Arc::new(AtomicBool::new(false));
    let simulated = {
        let (journal, noted) = (journal.clone(), Arc::clone(&noted));
        Simulated::new(Arc::new(move |_, _| {
            // The second run lasts until the first is in the file, or too long.
            let start = Instant::now();
            while runs.load(Ordering::Relaxed) == 1 && start.elapsed() < Duration::from_secs(20) {
                if journal.metadata().is_ok_and(|file| file.len() > 24) {
                    noted.store(true, Ordering::Relaxed);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            runs.fetch_add(1, Ordering::Relaxed);
            true
        }))
    };
    let options = CampaignOptions {
        journal: Some(journal),
        ..options(StrategyKind::Exhaustive)
    };
    run(&trace, &options, &simulated, 1);
    assert!(noted.load(Ordering::Relaxed));
}

#[test]
fn pruning_that_ended_stays_off_when_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let journal = folder.path().join("journal");
    let steps: Vec<_> = (0..6).map(|line| store(line * 64, 1, line as u8)).collect();
    write_trace(&trace, &[], &steps);
    // After some runs it reads other places than before.
    let runs = Arc::new(AtomicU64::new(0));
    let simulated = Simulated::new(Arc::new(move |view, _| {
        if runs.fetch_add(1, Ordering::Relaxed) > 5 {
            view.read(PAGE);
        }
        for line in 0..4 {
            view.read(64 * line);
        }
        true
    }));
    let begun = CampaignOptions {
        journal: Some(journal),
        max_states: Some(10),
        ..options(StrategyKind::Dpor)
    };
    let first = run(&trace, &begun, &simulated, 1);
    let ended = |warning: &String| warning.contains("no longer left out");
    assert!(first.outcome.warnings.iter().any(ended), "{:?}", first.outcome.warnings);
    let rest = CampaignOptions {
        max_states: None,
        ..begun
    };
    let rest = run(&trace, &rest, &simulated, 1);
    assert_eq!(rest.outcome.stats.states_tested, 64, "every state is tested");
    assert!(rest.outcome.warnings.iter().any(ended), "{:?}", rest.outcome.warnings);
}

#[test]
fn a_small_budget_reaches_all_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    // One call path, 250 crash points, each with a byte that says which it is.
    let update = |n: u64| [store(64 * (n % 60), n as u8, 1), flush(64 * (n % 60)), fence()];
    write_trace(&trace, &[], &(1..=250).flat_map(update).collect::<Vec<_>>());
    let simulated = Simulated::new(Arc::new(|view, _| (0..60).all(|line| view.read(64 * line) < 255)));
    for strategy in [StrategyKind::Dpor, StrategyKind::Exhaustive] {
        let options = CampaignOptions {
            max_states: Some(50),
            ..options(strategy)
        };
        let campaign = run(&trace, &options, &simulated, 1);
        let stats = &campaign.outcome.stats;
        assert!(stats.points_total >= 250 && stats.cut_short, "{stats:?}");
        assert!((8..=50).contains(&stats.points_reached), "{stats:?}");
        let newest = |seen: &Seen| seen.image.content.iter().copied().max().unwrap_or(0);
        let late = campaign.seen.iter().filter(|seen| newest(seen) > 125).count();
        assert!(late > 10, "{strategy:?}: {late} states of the second half");
        let whole = run(&trace, &common::options(strategy), &simulated, 1);
        let stats = &whole.outcome.stats;
        assert_eq!(stats.points_reached, stats.points_total, "{stats:?}");
    }
}

/// Notes how often the trace had been read when the first crash state was tested.
struct FirstState {
    simulated: Simulated,
    trace: TraceFile,
    times_read: Arc<Mutex<Option<f64>>>,
}

impl Executor for FirstState {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        Executor::read(&self.simulated, file, offset, buffer);
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        self.simulated.write(file, offset, data);
    }

    fn resize(&mut self, file: usize, size: u64) {
        self.simulated.resize(file, size);
    }

    fn place(&mut self, file: usize, path: Option<&str>) {
        self.simulated.place(file, path);
    }

    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError> {
        self.times_read.lock().unwrap().get_or_insert(self.trace.times_read());
        self.simulated.run(output)
    }
}

/// The start of a test is what a user of a long trace waits for.
#[test]
fn a_trace_is_read_at_most_three_times_before_the_first_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let persist = |number: u64| {
        let at = number % (SIZE / LINE) * LINE;
        let store = Action::Store {
            at,
            data: number.to_le_bytes().to_vec(),
            nontemporal: false,
            locked: false,
        };
        let kind = FlushKind::Clwb;
        [store, Action::Flush { at, kind }, Action::Fence].map(|action| Step {
            thread: 0,
            stack: 0,
            action,
        })
    };
    let steps: Vec<Step> = (0..150_000).flat_map(persist).collect();
    write_trace(&path, &[1], &steps);
    for strategy in [
        StrategyKind::Representative,
        StrategyKind::Auto,
        StrategyKind::Prefix,
        StrategyKind::Dpor,
        StrategyKind::Exhaustive,
        StrategyKind::Random,
    ] {
        let trace = opened(&path);
        let options = CampaignOptions {
            max_states: Some(10),
            ..options(strategy)
        };
        let mut simulated = Simulated::new(Arc::new(|_, _| true));
        let survey = crashproof_crash::survey(&trace, &options).unwrap();
        crashproof_crash::baseline(&trace, &options, &survey, &mut simulated).unwrap();
        let times_read = Arc::default();
        let executor = FirstState {
            simulated,
            trace: trace.clone(),
            times_read: Arc::clone(&times_read),
        };
        let (collector, stop) = (Box::new(Collector::default()), AtomicBool::new(false));
        let executors: Vec<Box<dyn Executor>> = vec![Box::new(executor)];
        crashproof_crash::run(&trace, &options, &survey, executors, collector, &|_| {}, &stop).unwrap();
        let times_read = times_read.lock().unwrap().expect("a state was tested");
        // Beside whole passes, first blocks are read: of what the files held, and of the pass that tests.
        assert!(times_read < 4.0, "{strategy:?}: {times_read}");
    }
}

/// What is planned is known from the start, although its states are counted beside the test.
#[test]
fn a_small_budget_of_representatives_tells_of_all_points() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let steps: Vec<Step> = (0..4u8)
        .flat_map(|stack| {
            let at = u64::from(stack) * LINE;
            let store = |at, byte| Action::Store {
                at,
                data: vec![byte],
                nontemporal: false,
                locked: false,
            };
            let kind = FlushKind::Clwb;
            let actions = [
                store(at, 1),
                store(at + 8, 2),
                Action::Flush { at, kind },
                Action::Fence,
            ];
            actions.map(|action| Step {
                thread: 0,
                stack,
                action,
            })
        })
        .collect();
    write_trace(&trace, &[0], &steps);
    let looks_at_all: Recovery = Arc::new(|view, _| {
        (0..4).for_each(|line| {
            view.read(line * LINE);
            view.read(line * LINE + 8);
        });
        true
    });
    let simulated = Simulated::new(looks_at_all);
    let points = |max_states| {
        let options = CampaignOptions {
            max_states,
            ..options(StrategyKind::Representative)
        };
        run(&trace, &options, &simulated, 1).outcome.stats
    };
    let (whole, cut) = (points(None), points(Some(1)));
    assert!(whole.points_total > 1 && cut.cut_short, "{whole:?} {cut:?}");
    assert_eq!((cut.points_total, cut.points_reached), (whole.points_total, 1));
}
