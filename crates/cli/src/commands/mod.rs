//! One module per command; each gives the exit code.

pub mod check;
pub mod doctor;
pub mod dump;
pub mod generate;
pub mod record;
pub mod self_test;

/// Errors are for people: a message with the cause and the remedy.
pub type Result = std::result::Result<crate::exit::Exit, Box<dyn std::error::Error>>;
