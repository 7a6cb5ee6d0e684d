//! A crash test as its caller sees it: what is in the trace ([`Survey`]), what to test ([`CampaignOptions`]), what came of
//! it ([`Outcome`]).

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crashproof_finding::{Finding, Stats};
use crashproof_infer::Conditions;
use crashproof_model::{LINE, Model};
use crashproof_replay::Cut;
use crashproof_sandbox::Run;
use crashproof_stacks::DeclaredHelpers;
use crashproof_trace::{FileId, TraceFile};
use crashproof_wire::recovery::Mapping;
use rustc_hash::FxHashSet;

use crate::cursor::{Cursor, Stops};
use crate::edges::Edges;
use crate::error::CrashError;
use crate::executor::{Executor, ExecutorError, Explainer, StoreId, Verdict};
use crate::image::LastImage;
use crate::oracle::OutputOracle;
use crate::representative::Behaviours;
use crate::runner;
use crate::stage::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyKind {
    Prefix,
    Exhaustive,
    Dpor,
    Random,
    Representative,
    /// Needs [`CampaignOptions::conditions`].
    Conditions,
    /// The conditions, if there are any, then the representatives, then the states at every point that most bugs show in.
    Auto,
}

impl StrategyKind {
    /// As the user writes it.
    pub fn name(self) -> &'static str {
        match self {
            StrategyKind::Prefix => "prefix",
            StrategyKind::Exhaustive => "exhaustive",
            StrategyKind::Dpor => "dpor",
            StrategyKind::Random => "random",
            StrategyKind::Representative => "representative",
            StrategyKind::Conditions => "conditions",
            StrategyKind::Auto => "auto",
        }
    }

    /// Whether it leaves out states that the recovery cannot tell apart, by what it reads.
    pub fn prunes(self) -> bool {
        matches!(
            self,
            StrategyKind::Dpor | StrategyKind::Representative | StrategyKind::Auto
        )
    }
}

/// When the time is up, failures that are waiting are explained for this much longer, or a quarter of the budget.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct CampaignOptions {
    pub model: Model,
    /// Bytes of what persists independently of the rest: of a cache line, or in another model of a page or sector of a file. A power of
    /// two, at least a word and at most a page.
    pub unit: u64,
    /// Stores wider than 8 bytes persist in pieces.
    pub tear: bool,
    /// Stores within a line persist in any order (the pessimistic model of pmreorder).
    pub reorder_in_line: bool,
    /// What the model demands of updates of different lines. Px86 and eADR: nothing.
    pub edges: Option<Arc<dyn Edges>>,
    pub strategy: StrategyKind,
    /// Of `representative`: behaviours of two objects, too.
    pub joint: bool,
    /// Of `conditions`: what the program relies on, by a recording with dependences.
    pub conditions: Option<Arc<Conditions>>,
    /// Of `random`.
    pub seed: u64,
    /// Crash points begin with the first event that has this function in its call path, and end with the first event after
    /// that which has the other.
    pub from: Option<String>,
    pub until: Option<String>,
    pub time: Option<Duration>,
    pub max_states: Option<u64>,
    /// Strategies without an end of their own go on until then.
    pub uses_all_time: bool,
    /// Ends with the first finding.
    pub fail_fast: bool,
    /// What recovery must print to stdout.
    pub expect_output: Option<Vec<u8>>,
    /// Judges what a driver of operations prints, and says with which arguments it is run.
    pub oracle: Option<Arc<OutputOracle>>,
    /// Where tested states are noted as they are tested. If the file is there, what it notes is not tested again: it must be
    /// of the same recovery and checker.
    pub journal: Option<PathBuf>,
    /// Failing images go here, one folder for each finding.
    pub save: Option<PathBuf>,
    /// Functions that a finding is not reported in, beside those that are found.
    pub helpers: DeclaredHelpers,
}

impl Default for CampaignOptions {
    /// What `crashproof crash` does if nothing else is said: the whole of the run, to its end, and nothing is kept.
    fn default() -> CampaignOptions {
        CampaignOptions {
            model: Model::Px86,
            unit: LINE,
            tear: true,
            reorder_in_line: false,
            edges: None,
            strategy: StrategyKind::Representative,
            joint: true,
            conditions: None,
            seed: 1,
            from: None,
            until: None,
            time: None,
            max_states: None,
            uses_all_time: true,
            fail_fast: false,
            expect_output: None,
            oracle: None,
            journal: None,
            save: None,
            helpers: DeclaredHelpers::default(),
        }
    }
}

impl CampaignOptions {
    /// Where stores are cut.
    pub(crate) fn cut(&self) -> Cut {
        Cut::units(self.unit, self.tear)
    }

    /// How long after the beginning a failure may still be explained.
    pub fn time_to_explain(&self) -> Option<Duration> {
        self.time.map(|time| time + GRACE.max(time / 4))
    }
}

/// What a trace holds for a crash test; all that is needed to make executors.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// By `FileId`.
    pub files: Vec<SurveyedFile>,
    /// All that they are called in the run.
    pub paths: Vec<String>,
    pub mappings: Vec<Mapping>,
    /// Pages (index of the file, offset) in which several lines are uncertain at one crash point.
    pub fine: Vec<(usize, u64)>,
    pub points: u64,
    /// Of all points, saturating; contents that are alike are counted once per point, and so is a state of two points in a
    /// row.
    pub states: u128,
    /// Of the point that has most.
    pub largest: u128,
    pub warnings: Vec<String>,
    /// Until the undisturbed recovery has been run on it. None if the window never began.
    pub(crate) last: Arc<Mutex<Option<LastImage>>>,
    /// If the strategy begins with their representatives.
    pub(crate) behaviours: Option<Arc<Behaviours>>,
}

#[derive(Clone, Debug)]
pub struct SurveyedFile {
    /// When first mapped.
    pub path: String,
    pub size: u64,
    /// Largest size in the run.
    pub max_size: u64,
    /// The recorded program did not make it: it is there from the start.
    pub present: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub tested: u64,
    pub pruned: u64,
    pub failed: u64,
    /// Root causes so far.
    pub findings: u64,
    /// States in all, as far as known.
    pub total: u128,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub stats: Stats,
    pub warnings: Vec<String>,
    /// The recovery could not be run any more, or what was tested not be noted: the test ended there, and a warning says why.
    pub broken: bool,
    /// States that failed and that no finding tells of.
    pub unexplained: u64,
    /// Some of the states that recovered, and in which the recovery wrote to the image: a crash of the recovery itself can
    /// be tested from them. At most 128, and 16 of one call path.
    pub recovered: Vec<Recovered>,
}

/// A state from which the program recovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The crash is just before this event.
    pub point: u64,
    /// Of the stores that were not guaranteed persistent at the point, those that had persisted.
    pub persisted: Vec<StoreId>,
    /// So many bytes had been output.
    pub output: u64,
}

/// The recovery on what was there before anything of the window was stored, and on what there is after it, and what is said of it.
#[derive(Clone, Debug)]
pub struct Baseline {
    pub initial: (Run, Verdict),
    pub last: (Run, Verdict),
}

/// By `FileId`.
pub(crate) fn surveyed_files(trace: &TraceFile) -> Vec<SurveyedFile> {
    let files = trace.tables().files.iter().zip((0..).map(FileId));
    let surveyed = files.map(|(file, id)| SurveyedFile {
        path: file.path.clone(),
        size: file.size,
        max_size: trace.max_size(id),
        present: !file.created,
    });
    surveyed.collect()
}

/// Looks at the trace; nothing is run.
pub fn survey(trace: &TraceFile, options: &CampaignOptions) -> Result<Survey, CrashError> {
    crate::survey::survey(trace, options)
}

/// Runs the recovery on the first and the last image of the window, with everything persisted that was executed. Unless both
/// succeed a crash test says nothing.
pub fn baseline(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    executor: &mut dyn Executor,
) -> Result<Baseline, CrashError> {
    let judged = |executor: &mut dyn Executor, output: &[u8]| -> Result<(Run, Verdict), CrashError> {
        let run = recover(executor, output, options)?;
        let verdict = judge(&run, output.len() as u64, options)?;
        Ok((run, verdict))
    };
    let mut cursor = Cursor::open(trace, options, Stops::CrashPoints, executor)?;
    let first = cursor.next(executor)?.is_some();
    let initial = match cursor.point().filter(|_| first) {
        Some(point) => {
            let mut stage = Stage::new(executor, &point);
            stage.show(&point.everything());
            Some(judged(stage.executor, cursor.output())?)
        }
        None => None,
    };
    let kept = survey.last.lock().unwrap_or_else(PoisonError::into_inner).take();
    let last = match kept.map_or_else(|| crate::survey::last_image(trace, options), |kept| Ok(Some(kept)))? {
        Some(last) => {
            last.show(executor);
            judged(executor, &last.output)?
        }
        None => (Run::default(), Verdict::Fails),
    };
    Ok(Baseline {
        initial: initial.unwrap_or_else(|| last.clone()),
        last,
    })
}

/// Tests crash states of the trace that was surveyed: one thread for each executor, and one for the explainer, which must have an executor of
/// its own. Ends early when `stop` is set or the budget is used up, and says so in [`Stats::cut_short`]. An error ends it, too;
/// if anything has been tested by then, that is the outcome all the same, and it is [`Outcome::broken`].
pub fn run(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    executors: Vec<Box<dyn Executor>>,
    explainer: Box<dyn Explainer>,
    progress: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Outcome, CrashError> {
    runner::run(trace, options, survey, executors, explainer, progress, stop)
}

/// Makes the image of a crash just before the event `point`, with just these of the stores that were not guaranteed persistent,
/// and gives what the program had output.
pub fn make_image(
    trace: &TraceFile,
    options: &CampaignOptions,
    point: u64,
    persisted: &[StoreId],
    executor: &mut dyn Executor,
) -> Result<Vec<u8>, CrashError> {
    let whole = CampaignOptions {
        from: None,
        until: None,
        ..options.clone()
    };
    let mut cursor = Cursor::open(trace, &whole, Stops::CrashPoints, executor)?;
    cursor.go_to(point, executor)?;
    let output = cursor.output().to_vec();
    let persisted: FxHashSet<StoreId> = persisted.iter().copied().collect();
    cursor.persist_only(point, &persisted, executor)?;
    Ok(output)
}

/// Runs the recovery on the image, after a crash before which this had been output.
pub fn recover(executor: &mut dyn Executor, output: &[u8], options: &CampaignOptions) -> Result<Run, ExecutorError> {
    if let Some(oracle) = &options.oracle {
        executor.set_arguments(&oracle.arguments(output.len() as u64))?;
    }
    executor.run(output)
}

/// What a run says of its state. The program had output so many bytes.
pub fn judge(run: &Run, output: u64, options: &CampaignOptions) -> Result<Verdict, CrashError> {
    let checked = run.check.as_ref().is_none_or(|check| check.succeeded());
    let expected = options
        .expect_output
        .as_ref()
        .is_none_or(|expected| *expected == run.recovery.stdout);
    if !run.recovery.succeeded() || !checked || !expected {
        return Ok(Verdict::Fails);
    }
    match &options.oracle {
        Some(oracle) if !oracle.accepts(output, &run.recovery.stdout)? => Ok(Verdict::Fails),
        _ => Ok(Verdict::Recovers),
    }
}
