//! What can go wrong in `crashproof cc` besides what clang itself reports, each with the remedy.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

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
    #[error("the bitcode within {} cannot be read: {source}", path.display())]
    Embedded {
        path: PathBuf,
        source: crashproof_sites::SitesError,
    },
    #[error("dependences of {source_file} cannot be followed: {reason}; please report this")]
    Labels { source_file: String, reason: String },
    #[error(
        "the version of the program that follows dependences (--deps) could not be made: {} failed with exit code {status}",
        program.display()
    )]
    Tracking { program: OsString, status: i32 },
}

/// For `map_err`: what was being done to which file.
pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CompileError {
    let path = path.to_owned();
    move |source| CompileError::File { what, path, source }
}
