//! `crashproof cc` and `crashproof c++`: become `crashproof-cc`, a program of its own, because loading LLVM takes longer than
//! most of what crashproof does, and only the compiler needs it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::Result;

const FILE_NAME: &str = "crashproof-cc";

#[derive(Debug, thiserror::Error)]
pub enum CompilerError {
    #[error("cannot find out where crashproof itself is: {0}; call {FILE_NAME} by its path")]
    OwnPath(#[source] std::io::Error),
    #[error(
        "the compiler {} does not exist; build it with `make build`, and keep it beside the crashproof binary",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error("cannot start {}: {source}; it needs LLVM's library (apt-get install libllvm19)", path.display())]
    Start { path: PathBuf, source: std::io::Error },
}

/// The command that compiles, without arguments; `name` is `cc` or `c++`.
pub fn command(name: &str) -> std::result::Result<Command, CompilerError> {
    let path = std::env::current_exe()
        .map_err(CompilerError::OwnPath)?
        .with_file_name(FILE_NAME);
    if !path.is_file() {
        return Err(CompilerError::Missing { path });
    }
    let mut command = Command::new(path);
    // By this name it knows its language.
    command.arg0(format!("crashproof-{name}"));
    Ok(command)
}

/// Every argument belongs to the compiler, also those that crashproof would understand.
pub fn run(name: &str, arguments: impl IntoIterator<Item = OsString>) -> Result {
    let mut command = command(name)?;
    let source = command.args(arguments).exec();
    Err(CompilerError::Start {
        path: command.get_program().into(),
        source,
    }
    .into())
}
