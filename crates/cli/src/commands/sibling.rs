//! Programs that lie beside this one: those that need LLVM. Loading it takes longer than most of what crashproof does.

use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SiblingError {
    #[error("cannot find out where crashproof itself is: {source}; call {name} by its path")]
    OwnPath { name: &'static str, source: std::io::Error },
    #[error("{} does not exist; build it with `make build`, and keep it beside the crashproof binary", path.display())]
    Missing { path: PathBuf },
    #[error("cannot start {}: {source}; it needs LLVM's library (apt-get install libllvm19)", path.display())]
    Start { path: PathBuf, source: std::io::Error },
}

/// The program of this name, without arguments.
pub(crate) fn command(name: &'static str) -> Result<Command, SiblingError> {
    let own = std::env::current_exe().map_err(|source| SiblingError::OwnPath { name, source })?;
    let path = own.with_file_name(name);
    match path.is_file() {
        true => Ok(Command::new(path)),
        false => Err(SiblingError::Missing { path }),
    }
}

/// Becomes that program; returns only if that fails.
pub(crate) fn become_it(mut command: Command) -> SiblingError {
    use std::os::unix::process::CommandExt;
    let source = command.exec();
    SiblingError::Start {
        path: command.get_program().into(),
        source,
    }
}
