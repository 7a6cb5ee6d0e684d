//! The options of `crashproof import` and `crashproof export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ProjectOption;

/// Make a trace of another tool's log, to be checked, crashed and repaired like one of our own
///
/// pmemcheck: the store log that `valgrind --tool=pmemcheck --log-stores=yes` writes. With --log-stores-stacktraces=yes and
/// --log-stores-stacktraces-depth=16 the stores have their call paths; --fullpath-after= gives their files with folders.
///
/// pmtest: what a program that is annotated for PMTest prints if PMTest's library was built with `make debug` (and NUM_CORES=1, its
/// default). It has no values, so it can be checked and repaired, but not crashed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        valgrind --tool=pmemcheck --log-stores=yes --log-stores-stacktraces=yes \\\n    \
                        --log-stores-stacktraces-depth=16 --fullpath-after= --log-file=app.log ./app pool\n  \
                        crashproof import pmemcheck app.log -o app.trace && crashproof check app.trace\n  \
                        ./app > app.log; crashproof import pmtest app.log -o app.trace")]
pub(crate) struct ImportArguments {
    /// Whose log it is
    pub tool: Tool,

    /// The log
    pub log: PathBuf,

    /// The trace to write
    #[arg(short, long, value_name = "TRACE")]
    pub output: PathBuf,

    /// What a file of the log held before the program ran (repeatable) [default: zeros]
    ///
    /// Of pmemcheck's logs. FILE as the log has it, COPY a copy of it. Needed for `crashproof crash`.
    #[arg(long, value_name = "FILE=COPY", value_parser = initial)]
    pub initial: Vec<(String, PathBuf)>,
}

fn initial(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((file, copy)) if !file.is_empty() && !copy.is_empty() => Ok((file.to_owned(), copy.into())),
        _ => Err("write FILE=COPY".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    Pmemcheck,
    Pmtest,
}

/// Write a trace in another tool's format
///
/// What the format cannot express is said on stderr.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof export --format pmemcheck app.trace -o app.log   for pmreorder\n  \
                        crashproof export --format perfetto app.trace -o app.json   open it in ui.perfetto.dev"
)]
pub(crate) struct ExportArguments {
    /// The format
    #[arg(long, value_name = "FORMAT")]
    pub format: ExportFormat,

    /// The trace
    pub trace: PathBuf,

    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub project: ProjectOption,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The store log of pmemcheck, which pmreorder reads
    Pmemcheck,
    /// A timeline of threads and cache lines, as Perfetto and Chrome show it
    Perfetto,
}
