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
pub mod setup;
pub mod sibling;
pub mod test;

/// Errors are for people: a message with the cause and the remedy.
pub type Result = std::result::Result<crate::exit::Exit, Box<dyn std::error::Error>>;
