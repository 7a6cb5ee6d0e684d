//! The options of `crashproof crash`: those of the test, and what becomes of its findings.

use std::path::PathBuf;

use clap::Args;
use crashproof_campaign::options::{CrashOptions, RESULTS, RESULTS_ORDER};

use super::ResultOptions;

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
/// Exit status: 0 every tested state recovers, 1 findings that count (--baseline, --fail-on), 2 it could not be done. Also 2, with the
/// reason, when nothing was found and that does not mean clean: the program failed or stored nothing to persistent memory, the test was
/// interrupted, or the trace is incomplete.
#[derive(Debug, Args)]
#[command(
    override_usage = "crashproof crash [OPTIONS] --recover CMD -- PROGRAM [ARGS]...\n       \
                      crashproof crash [OPTIONS] --oracle output --ops FILE -- DRIVER POOL\n       \
                      crashproof crash [OPTIONS] --recover CMD TRACE\n       crashproof crash --replay DIR",
    after_help = "Examples:\n  \
                  crashproof crash --recover './app --verify pool' -- ./app --load pool\n  \
                  crashproof crash --setup './app --create pool' --recover './app --open pool' --check './verify pool' \
                  -- ./app --load pool\n  \
                  crashproof crash --strategy prefix --recover './app --verify pool' -- ./app --load pool\n  \
                  crashproof crash --from append --time 10m --recover './app --verify pool' app.trace\n  \
                  crashproof crash --oracle output --ops puts.ops --time 5m -- ./driver pool",
    mut_arg("recover", |argument| argument.required_unless_present("replay")),
    mut_arg("command", |argument| argument.required_unless_present("replay"))
)]
pub(crate) struct CrashArguments {
    #[command(flatten)]
    pub options: CrashOptions,

    #[command(flatten)]
    pub results: ResultOptions,

    /// Run the recovery on a saved crash image, with its output shown
    #[arg(long, value_name = "DIR", conflicts_with_all = NOT_WITH_REPLAY, help_heading = RESULTS,
          display_order = RESULTS_ORDER + 1)]
    pub replay: Option<PathBuf>,
}

/// All of the test is in the saved folder.
const NOT_WITH_REPLAY: [&str; 15] = [
    "recover",
    "setup",
    "check",
    "expect_output",
    "oracle",
    "resume",
    "keep_trace",
    "json",
    "sarif",
    "junit",
    "baseline",
    "allow_failure",
    "allow_no_stores",
    "trace",
    "command",
];
