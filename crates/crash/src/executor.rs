//! What the campaign needs of whoever runs recoveries, and the words it speaks about them.

use std::ffi::OsString;

pub use crashproof_base::StoreId;
use crashproof_finding::Finding;
use crashproof_sandbox::Run;

use crate::error::CrashError;

/// The image that a recovery is run on, and the running of it. One per worker thread; tests have a simulated one.
///
/// Between runs the image holds what was written to it and nothing of what recoveries did to it. Files are indexed by
/// `FileId`.
pub trait Executor: Send {
    /// What the image holds. Beyond the end of the file it is zero.
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]);

    /// Cut off at the end of the file.
    fn write(&mut self, file: usize, offset: u64, data: &[u8]);

    /// What is cut off reads as zero if the file grows again.
    fn resize(&mut self, file: usize, size: u64);

    /// The file is there under this path, or (`None`) is not there.
    fn place(&mut self, file: usize, path: Option<&str>);

    /// What the recovery is given after its own arguments, in the runs from now on. Whoever runs no command has no use for it.
    fn set_arguments(&mut self, _arguments: &[OsString]) -> Result<(), ExecutorError> {
        Ok(())
    }

    /// Runs the recovery, and the checker if there is one, on the image. `output` is what the program had output.
    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError>;
}

/// Why an executor ran nothing.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// It is to run no more: the time is up, or the user stopped the test.
    #[error("the test ends")]
    Ends,
    /// The sandbox is broken, not the recovery.
    #[error("{0}")]
    Broken(Box<dyn std::error::Error + Send + Sync>),
}

/// What a run says of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Recovers,
    Fails,
}

/// A crash state from which the program does not recover.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The crash is just before this event. With eADR it may be within it; then `persisted` and `missing` name the pieces of
    /// its store, too.
    pub point: u64,
    /// Of the stores that were not guaranteed persistent at the point: those that had persisted, and the others. Left out are
    /// those that a later store hides: of `persisted`, a persisted one, of `missing`, any.
    pub persisted: Vec<StoreId>,
    pub missing: Vec<StoreId>,
    /// So many bytes had been output.
    pub output: u64,
    pub run: Run,
}

/// Finds out why states fail. Has an executor, and the thread, of its own.
pub trait Explainer: Send {
    /// Whether the failure has a cause that none before it had.
    fn explain(&mut self, failure: &Failure) -> Result<bool, CrashError>;

    /// A failure that cannot be explained any more, because the test ends. It is told of all the same.
    fn leave(&mut self, failure: Failure);

    /// One finding for each cause, and one for what was left unexplained.
    fn finish(&mut self) -> Vec<Finding>;

    /// Failing states that no finding tells of.
    fn unexplained(&self) -> u64 {
        0
    }

    /// What the user should know of the explanations as a whole.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
