//! One module per command; each gives the exit code.

pub(crate) mod check;
pub(crate) mod compiler;
pub(crate) mod crash;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod header;
pub(crate) mod import;
pub(crate) mod infer;
pub(crate) mod init;
pub(crate) mod litmus;
pub(crate) mod ops;
pub(crate) mod outcome;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod self_test;
pub(crate) mod sibling;
pub(crate) mod test;

#[derive(Debug, thiserror::Error)]
#[error("cannot find out where crashproof itself is: {0}")]
pub(crate) struct OwnPathError(#[source] std::io::Error);

/// This program, which is the supervisor of its sandboxes, too.
pub(crate) fn own_path() -> std::result::Result<std::path::PathBuf, OwnPathError> {
    std::env::current_exe().map_err(OwnPathError)
}

/// Errors are for people: a message with the cause and the remedy.
pub(crate) type Result = std::result::Result<crate::exit::Exit, Box<dyn std::error::Error>>;
