//! The options of `crashproof crash`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::results::RESULTS;
use super::{Model, RecordingOptions, ResultOptions};
use crate::units::{Size, Time};

/// Crash a program everywhere, and say from where its recovery fails
///
/// Runs the program once and records it. Then makes its persistent-memory files as a power failure could have left them, in
/// every way that the hardware allows, and runs the recovery on each: a command that opens the files, recovers, and exits
/// with 0 if all is well. What fails is reduced to the few stores that matter and reported with the order of stores that
/// would prevent it, and with the command that shows the failure again.
///
/// The recovery runs in a sandbox (namespaces and an overlay in memory): what it does to files reaches nobody. It finds the
/// crash image under the original paths. CRASHPROOF_OUTPUT names a file with all that the program had output before the
/// crash, so that a checker can demand what was acknowledged.
///
/// Exit status: 0 every tested state recovers, 1 findings that count (--baseline, --fail-on), 2 it could not be done (also when nothing was found and the test
/// was interrupted or the trace is incomplete, since that does not mean clean).
#[derive(Debug, Args)]
#[command(
    override_usage = "crashproof crash [OPTIONS] --recover CMD -- PROGRAM [ARGS]...\n       \
                      crashproof crash [OPTIONS] --recover CMD TRACE\n       crashproof crash --replay DIR",
    after_help = "Examples:\n  \
                  crashproof crash --recover './app --verify pool' -- ./app --load pool\n  \
                  crashproof crash --setup './app --create pool' --recover './app --open pool' --check './verify pool' \
                  -- ./app --load pool\n  \
                  crashproof crash --strategy prefix --recover './app --verify pool' -- ./app --load pool\n  \
                  crashproof crash --from append --time 10m --recover './app --verify pool' app.trace",
    mut_arg("client_requests", |argument| argument.default_value("off"))
)]
pub struct CrashArguments {
    /// The recovery: run on every crash state; must exit with 0
    ///
    /// Given as one string. What needs a shell (pipes, variables, `&&`) is run by /bin/sh; anything else is started directly,
    /// which is much faster.
    #[arg(long, value_name = "CMD", required_unless_present = "replay", help_heading = COMMANDS)]
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

    /// Which crash states are tested
    #[arg(long, value_name = "STRATEGY", default_value = "representative", help_heading = STATES)]
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

    /// Stop after this time (90s, 10m, 1h30m)
    #[arg(long, value_name = "TIME", help_heading = LIMITS)]
    pub time: Option<Time>,

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

    /// Memory of one recovery process [default: 2G]
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

    #[command(flatten)]
    pub results: ResultOptions,

    /// Save failing crash images here, one folder for each finding
    #[arg(long, value_name = "DIR", default_value = crate::project::DEFAULT_SAVE, help_heading = RESULTS)]
    pub save: PathBuf,

    /// Run the recovery on a saved crash image, with its output shown
    #[arg(long, value_name = "DIR", conflicts_with_all = NOT_WITH_REPLAY, help_heading = RESULTS)]
    pub replay: Option<PathBuf>,

    /// Ignore lists [default: crashproof.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub config: Option<PathBuf>,

    /// Keep the trace of the program in this file
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub keep_trace: Option<PathBuf>,

    #[command(flatten)]
    pub recording: RecordingOptions,

    /// A trace that `crashproof record` wrote
    #[arg(value_name = "TRACE", conflicts_with_all = ["pm", "client_requests", "locked_rmw", "keep_trace", "command"])]
    pub trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["trace", "replay"], value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

const COMMANDS: &str = "Commands";
const STATES: &str = "Crash states";
const LIMITS: &str = "Limits";
/// All of the test is in the saved folder.
const NOT_WITH_REPLAY: [&str; 12] = [
    "recover",
    "setup",
    "check",
    "expect_output",
    "resume",
    "keep_trace",
    "json",
    "sarif",
    "junit",
    "baseline",
    "trace",
    "command",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// One state at each distinct store: all before it has persisted, nothing after. Seconds
    Prefix,
    /// The states of a few update behaviours, each of which stands for many that are alike
    Representative,
    /// The states that violate what the program's code relies on, as `crashproof infer` lists it
    Conditions,
    /// Every state that the hardware allows
    Exhaustive,
    /// Every state but those that the recovery cannot tell apart; the same verdicts as exhaustive
    Dpor,
    /// Allowed states drawn at random, until --time or --max-states ends it
    Random,
}
