//! `crashproof infer`.

use std::path::PathBuf;

use clap::Args;

use super::ProjectOption;

/// Say what a program relies on when power fails: which data must persist before which, and which together
///
/// From the program's own code: data that is read only if a flag is set must persist before the flag. The trace is one of a program built with
/// `crashproof cc --deps`. `crashproof crash --strategy conditions` tests the crash states that violate what is listed here.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof cc --deps -g -O2 -o app app.c && crashproof record -o app.trace -- ./app args…\n  \
                        crashproof infer app.trace\n  crashproof infer --json conditions.json app.trace"
)]
pub(crate) struct InferArguments {
    /// Write all conditions as JSON (`-`: to stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// List all conditions, not only the most frequent of each rule
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub project: ProjectOption,

    /// A trace that `crashproof record` wrote
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}
