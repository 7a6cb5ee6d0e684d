//! `crashproof cc` and `crashproof c++`: become `crashproof-cc`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::sibling::{self, SiblingError};

/// The command that compiles, without arguments; `name` is `cc` or `c++`.
pub(crate) fn command(name: &str) -> Result<Command, SiblingError> {
    let mut command = sibling::command("crashproof-cc")?;
    // By this name it knows its language.
    command.arg0(format!("crashproof-{name}"));
    Ok(command)
}

/// Every argument belongs to the compiler, also those that crashproof would understand.
pub(crate) fn run(name: &str, arguments: impl IntoIterator<Item = OsString>) -> super::Result {
    let mut command = command(name)?;
    command.args(arguments);
    Err(sibling::become_it(command).into())
}
