//! What can go wrong in `crashproof cc` besides what clang itself reports, each with the remedy.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error(
        "there is no clang 19: {tried}; install it (apt-get install clang-19), or set CRASHPROOF_CLANG to its path"
    )]
    NoClang { tried: String },
    #[error("cannot start {}: {source}; set CRASHPROOF_CLANG to a clang 19 that can be executed", path.display())]
    Start { path: PathBuf, source: io::Error },
    /// Clang has said why, on stderr.
    #[error("clang failed")]
    Clang { status: i32 },
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the bitcode that clang made of {source_file} cannot be read: {reason}; is CRASHPROOF_CLANG a clang 19?")]
    Bitcode { source_file: String, reason: String },
}
