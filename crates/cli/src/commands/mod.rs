//! One module per command; each gives the exit code.

pub mod check;
pub mod compiler;
pub mod crash;
pub mod doctor;
pub mod dump;
pub mod explain;
pub mod export;
pub mod generate;
pub mod header;
pub mod import;
pub mod infer;
pub mod init;
pub mod litmus;
pub mod ops;
pub mod outcome;
pub mod record;
pub mod repair;
pub mod self_test;
pub mod sibling;
pub mod test;

#[derive(Debug, thiserror::Error)]
#[error("cannot find out where crashproof itself is: {0}")]
pub struct OwnPathError(#[source] std::io::Error);

/// This program, which is the supervisor of its sandboxes, too.
pub fn own_path() -> std::result::Result<std::path::PathBuf, OwnPathError> {
    std::env::current_exe().map_err(OwnPathError)
}

/// Errors are for people: a message with the cause and the remedy.
pub type Result = std::result::Result<crate::exit::Exit, Box<dyn std::error::Error>>;
