//! Why a crash test could not be made.

use std::path::PathBuf;

use crashproof_trace::ReadError;

use crate::executor::ExecutorError;
use crate::oracle::DriverError;

#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    #[error(transparent)]
    Trace(#[from] ReadError),
    #[error("the recovery could not be run: {0}")]
    Executor(#[from] ExecutorError),
    #[error(
        "no access to persistent memory in the trace has the function `{function}` in its call path; check the name (as \
         `crashproof record` and `nm -C` show it), that the program was built with symbols, and that the function is not \
         only a caller of what runs in another thread"
    )]
    FromNotFound { function: String },
    #[error("cannot {what} the journal {}: {source}; remove the file to begin anew, or choose another place", path.display())]
    Journal {
        path: PathBuf,
        what: &'static str,
        source: std::io::Error,
    },
    #[error(
        "the journal {} is not of this crash test: the trace or the options differ; remove the file to begin anew",
        path.display()
    )]
    JournalOfAnother { path: PathBuf },
    #[error(
        "crash point {point} is not in the trace, which has {events} events; use the trace that the state was found in"
    )]
    NoSuchPoint { point: u64, events: u64 },
    #[error(
        "the strategy `conditions` needs conditions: record the program, built with `crashproof cc --deps`, with its dependences"
    )]
    NoConditions,
    /// The driver is none whose output can be judged.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Of whoever explains failures.
    #[error("a failure could not be explained: {0}")]
    Explainer(Box<dyn std::error::Error + Send + Sync>),
    #[error("a worker of the crash test panicked; this is a defect of crashproof")]
    Panicked,
}
