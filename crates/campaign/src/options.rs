//! The options of a crash test and of a recording, as `crashproof crash` takes them.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the text of --help, where [default: …] is no link"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches, ValueEnum};
use crashproof_crash::StrategyKind;
use crashproof_crash::oracle::{Criterion, Suffix};

use crate::project::DEFAULT_SAVE;
use crate::units::{Size, Time};

/// The heading in `--help` of what becomes of the findings.
pub const RESULTS: &str = "Results";
/// Options under that heading that are declared here come after those of what is written and shown.
pub const RESULTS_ORDER: usize = 1000;

/// Options of a recording.
#[derive(Clone, Debug, Args)]
pub struct RecordingOptions {
    /// Files whose path matches are persistent memory (repeatable)
    ///
    /// Without it, every file that the program maps shared and writable is, but for those that hold no data: what
    /// shm_open, sem_open or memfd_create made, lock files, hsperfdata, SQLite's `-shm` and deleted files (see
    /// docs/files.md). With it, files that match are, and no others. `*` matches any text, `/` too; a pattern
    /// without `/` is compared with the file's name alone, and one with `/` that begins neither with `/` nor with `*`
    /// starts in the current directory.
    #[arg(long, value_name = "GLOB")]
    pub pm: Vec<String>,

    /// Answer pmemcheck's client requests
    ///
    /// The stock libpmem and libpmemobj then announce their transactions, snapshots and the fields that they never flush
    /// by design. It also makes PMDK take a few other code paths.
    #[arg(long, value_name = "WHEN", default_value = "on")]
    pub client_requests: Switch,

    /// Record locked instructions on ordinary memory as the fences that they are
    ///
    /// Slow. Without it a fence that only such an instruction makes is not seen, and a missing-fence that depends on it
    /// is a warning that says so.
    #[arg(long)]
    pub locked_rmw: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// What a run may be like and still mean something.
#[derive(Clone, Copy, Debug, Args)]
pub struct RunAllowances {
    /// The program may fail
    ///
    /// Without it, a program that exits with a status other than 0, or that a signal ends, gives exit status 2 unless something is found.
    /// A program that you end with Ctrl-C, or by a signal to crashproof, has not failed.
    #[arg(long)]
    pub allow_failure: bool,

    /// The program may store nothing to persistent memory
    ///
    /// Without it, a run of which not one store to a file under test was recorded gives exit status 2.
    #[arg(long)]
    pub allow_no_stores: bool,
}

impl From<RunAllowances> for crashproof_finding::Allowed {
    fn from(allowances: RunAllowances) -> Self {
        crashproof_finding::Allowed {
            failure: allowances.allow_failure,
            no_stores: allowances.allow_no_stores,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Caches are lost: a store is durable once flushed and fenced
    Px86,
    /// Caches survive: a store is durable once visible; non-temporal stores still need a fence
    Eadr,
}

impl From<Model> for crashproof_check::Model {
    fn from(model: Model) -> Self {
        match model {
            Model::Px86 => crashproof_check::Model::Px86,
            Model::Eadr => crashproof_check::Model::Eadr,
        }
    }
}

/// How a program is crashed, and what from.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("client_requests", |argument| argument.default_value("off")))]
pub struct CrashOptions {
    /// The recovery: run on every crash state; must exit with 0
    ///
    /// Given as one string. What needs a shell (pipes, variables, `&&`) is run by /bin/sh; anything else is started directly,
    /// which is much faster.
    #[arg(long, value_name = "CMD", required_unless_present = "oracle", help_heading = COMMANDS)]
    pub recover: Option<String>,

    /// Makes the files that the program starts with; run first, not crashed
    #[arg(long, value_name = "CMD", conflicts_with = "trace", help_heading = COMMANDS)]
    pub setup: Option<String>,

    /// A checker: run after each recovery that succeeded, on what it left; must exit with 0
    #[arg(long, value_name = "CMD", help_heading = COMMANDS)]
    pub check: Option<String>,

    /// What the recovery must print to stdout, exactly
    #[arg(long, value_name = "FILE", help_heading = COMMANDS)]
    pub expect_output: Option<PathBuf>,

    /// Judge by what the program prints: it is a driver of operations
    ///
    /// PROGRAM is a driver: `DRIVER POOL --ops FILE --from N --to M [--probe]` does the operations N to M-1 of the file, prints one line
    /// for each, and then, after the line `probe`, what the structure holds. A missing POOL is created first, which is not crashed
    /// unless --crash-creation is given.
    /// After a crash in operation k the driver recovers and goes on with k+1; what it prints must be what it prints if k was
    /// done, or if k was left out. crashproof appends the arguments itself. See docs/output-oracle.md.
    #[arg(long, value_name = "ORACLE", requires = "ops", conflicts_with_all = ["recover", "expect_output", "trace"],
          help_heading = OUTPUT)]
    pub oracle: Option<Oracle>,

    /// The operations, one a line; `crashproof ops generate` makes some
    #[arg(long, value_name = "FILE", requires = "oracle", help_heading = OUTPUT)]
    pub ops: Option<PathBuf>,

    /// Operations that are done after the interrupted one, or `all`
    #[arg(long, value_name = "N", requires = "oracle", default_value = "64", help_heading = OUTPUT)]
    pub suffix: SuffixLength,

    /// What a crash may undo: `durable`, only the interrupted operation; `buffered=D`, the D operations before it, too
    ///
    /// `buffered=D,NAME`: up to D operations, but none up to the last operation NAME that ended (a sync).
    #[arg(long, value_name = "CRITERION", requires = "oracle", default_value = "durable", help_heading = OUTPUT)]
    pub criterion: Durability,

    /// Crash the creation of the pool, too
    ///
    /// POOL must not be there; the recorded run creates it. After a crash in its creation, the driver must print what it prints on an
    /// empty structure: it opens what it finds, or recognises a pool that was never finished and makes it anew.
    #[arg(long, requires = "oracle", help_heading = OUTPUT)]
    pub crash_creation: bool,

    /// Also say what is done for nothing
    ///
    /// Flushes, fences and snapshots that are not needed, as `crashproof check` has them; and transient data: stores that nothing
    /// persists, and whose loss at the crash points after them changes nothing that the driver prints.
    #[arg(long, requires = "oracle", help_heading = OUTPUT)]
    pub performance: bool,

    /// Which crash states are tested
    #[arg(long, value_name = "STRATEGY", default_value = "auto", help_heading = STATES)]
    pub strategy: Strategy,

    /// Of the strategy `conditions`: a recording of the same run by a program built with `crashproof cc --deps`
    #[arg(long, value_name = "TRACE", help_heading = STATES)]
    pub dependences: Option<PathBuf>,

    /// Of the strategy `representative`: only behaviours of one object, as Squint has them
    #[arg(long, help_heading = STATES)]
    pub no_joint: bool,

    /// Where the strategy `random` starts
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = STATES)]
    pub seed: u64,

    /// Crash only from the first event on that has this function in its call path
    ///
    /// A pool in creation rightly fails to open. This, or --setup, leaves its creation out.
    #[arg(long, value_name = "FUNCTION", help_heading = STATES)]
    pub from: Option<String>,

    /// Crash only up to the first event, after --from, that has this function in its call path
    #[arg(long, value_name = "FUNCTION", help_heading = STATES)]
    pub until: Option<String>,

    /// 2: crash the recovery, too
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2),
          help_heading = STATES)]
    pub depth: u32,

    /// What the hardware promises
    #[arg(long, value_name = "MODEL", default_value = "px86", help_heading = STATES)]
    pub model: Model,

    /// Stores wider than 8 bytes persist as one
    #[arg(long, help_heading = STATES)]
    pub no_tear: bool,

    /// Stores within a cache line persist in any order, as pmreorder has it
    #[arg(long, help_heading = STATES)]
    pub reorder_in_line: bool,

    /// Stop after this time (90s, 10m, 1h30m), or never: `none` [default: 2m; none if all states are asked for]
    ///
    /// All states are asked for with --strategy exhaustive or dpor. With --max-states there is no limit in time, either.
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub time: Option<TimeLimit>,

    /// Stop after so many states
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = LIMITS)]
    pub max_states: Option<u64>,

    /// Stop at the first finding
    #[arg(long, help_heading = LIMITS)]
    pub fail_fast: bool,

    /// Recoveries at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = LIMITS)]
    pub jobs: Option<u16>,

    /// A recovery that takes longer hangs, which is a finding [default: 20 times what it takes undisturbed, at least 2s]
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub timeout: Option<Time>,

    /// Memory of a process; all together may take this and --disk [default: 2G]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub memory: Option<Size>,

    /// What one recovery may write to files [default: 1G]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub disk: Option<Size>,

    /// Go on with the same test where it was interrupted
    #[arg(long, help_heading = LIMITS)]
    pub resume: bool,

    /// Start a process for each state, also where one parked at main could be forked
    #[arg(long, help_heading = LIMITS)]
    pub no_server: bool,

    /// Save failing crash images here, one folder for each finding
    #[arg(long, value_name = "DIR", default_value = DEFAULT_SAVE, help_heading = RESULTS,
          display_order = RESULTS_ORDER)]
    pub save: PathBuf,

    /// Ignore lists [default: crashproof.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE", help_heading = RESULTS, display_order = RESULTS_ORDER + 2)]
    pub config: Option<PathBuf>,

    /// Keep the trace of the program in this file
    #[arg(long, value_name = "FILE", help_heading = RESULTS, display_order = RESULTS_ORDER + 3)]
    pub keep_trace: Option<PathBuf>,

    #[command(flatten)]
    pub recording: RecordingOptions,

    #[command(flatten)]
    pub allowances: RunAllowances,

    /// A trace that `crashproof record` wrote
    #[arg(value_name = "TRACE", conflicts_with_all = ["pm", "client_requests", "locked_rmw", "keep_trace", "command"])]
    pub trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required_unless_present = "trace", value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

impl CrashOptions {
    /// From words of a command line; the first is the command's name.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<CrashOptions, clap::Error> {
        let command = CrashOptions::augment_args(Command::new("crashproof crash"));
        CrashOptions::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// After how long the test stops.
    pub fn time_limit(&self) -> Option<Duration> {
        match self.time {
            Some(limit) => limit.0.map(|time| time.0),
            None if self.max_states.is_some() || matches!(self.strategy, Strategy::Exhaustive | Strategy::Dpor) => None,
            None => Some(DEFAULT_TIME),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Oracle {
    /// What a driver prints after the crash, compared with what it prints if the operation was done, or left out
    Output,
}

/// A crash test that is given no limit stops after this time.
const DEFAULT_TIME: Duration = Duration::from_secs(120);

/// `10m`, `none`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Time>);

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(TimeLimit(None)),
            text => text.parse().map(|time| TimeLimit(Some(time))),
        }
    }
}

/// `64`, `all`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixLength(pub Suffix);

impl FromStr for SuffixLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(SuffixLength(Suffix::All)),
            (_, Ok(count)) => Ok(SuffixLength(Suffix::Operations(count))),
            (_, Err(_)) => Err("give a number of operations, or `all`".to_owned()),
        }
    }
}

/// `durable`, `buffered=8`, `buffered=8,sync`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability(pub Criterion);

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "durable" {
            return Ok(Durability(Criterion::Durable));
        }
        let advice = || {
            "give `durable`, `buffered=D` with a number, or `buffered=D,NAME` with the name of an operation".to_owned()
        };
        let (count, sync) = match text.strip_prefix("buffered=").ok_or_else(advice)?.split_once(',') {
            Some((count, name)) if !name.is_empty() => (count, Some(name.to_owned())),
            Some(_) => return Err(advice()),
            None => (text.trim_start_matches("buffered="), None),
        };
        let operations = count.parse().map_err(|_| advice())?;
        Ok(Durability(Criterion::Buffered { operations, sync }))
    }
}

const COMMANDS: &str = "Commands";
pub const OUTPUT: &str = "Judging by output";
const STATES: &str = "Crash states";
const LIMITS: &str = "Limits";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// One state at each distinct store: all before it has persisted, nothing after. Seconds
    Prefix,
    /// The states of a few update behaviours, each of which stands for many that are alike
    Representative,
    /// The states that violate what the program's code relies on, as `crashproof infer` lists it
    Conditions,
    /// Prefix, then all states if the budget has time for them; otherwise conditions, if the program has dependences,
    /// representative, the states at each point that most bugs show in, and random ones
    Auto,
    /// Every state that the hardware allows
    Exhaustive,
    /// Every state but those that the recovery cannot tell apart; the same verdicts as exhaustive
    Dpor,
    /// Allowed states drawn at random, until --time or --max-states ends it
    Random,
}

impl From<Strategy> for StrategyKind {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Representative => StrategyKind::Representative,
            Strategy::Prefix => StrategyKind::Prefix,
            Strategy::Exhaustive => StrategyKind::Exhaustive,
            Strategy::Dpor => StrategyKind::Dpor,
            Strategy::Random => StrategyKind::Random,
            Strategy::Conditions => StrategyKind::Conditions,
            Strategy::Auto => StrategyKind::Auto,
        }
    }
}
