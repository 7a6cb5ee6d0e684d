//! Commands that make what a program starts with. They run before it, outside of any recording.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("cannot run --setup {command:?}: {source}")]
    Start { command: String, source: std::io::Error },
    #[error("--setup {command:?} {ended}, so there is nothing to start from; run it alone to see why")]
    Failed { command: String, ended: String },
}

/// Runs it by the shell to its end. What it prints goes to stderr: stdout belongs to `--json -` and to the program.
pub fn run(command: &str) -> Result<(), SetupError> {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    crashproof_record::keep(&mut shell);
    let status = shell.status().map_err(|source| SetupError::Start {
        command: command.to_owned(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(SetupError::Failed {
        command: command.to_owned(),
        ended: ended(status),
    })
}

fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("exited with status {}", status.code().unwrap_or_default()),
    }
}
