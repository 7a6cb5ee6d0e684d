//! Why a recording could not be made.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crashproof_trace::tracked::TrackedError;
use crashproof_trace::{ProgramEnd, WriteError};

use crate::executable::Unrecordable;

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("no command to record: give the program after `--`")]
    NoCommand,
    #[error("cannot run {}: there is no such program; check the path, or PATH for a name without `/`", command.display())]
    NotFound { command: OsString },
    #[error(
        "cannot run {}: the file exists, but the interpreter or dynamic loader that it names does not; \
         `head -1` (a script) or `readelf -l` (a binary) shows which one",
        command.display()
    )]
    NoInterpreter { command: OsString },
    #[error("cannot run {}: permission denied; is it an executable file (`chmod +x`)?", command.display())]
    NotExecutable { command: OsString },
    #[error("cannot run {}: it is neither a program for this machine nor a script with a `#!` line", command.display())]
    NotAProgram { command: OsString },
    #[error(transparent)]
    Tracked(#[from] TrackedError),
    #[error(transparent)]
    Unrecordable(#[from] Unrecordable),
    #[error("cannot run {}: {source}", command.display())]
    Spawn { command: OsString, source: io::Error },
    #[error("lost track of {} while it ran: {source}", command.display())]
    Wait { command: OsString, source: io::Error },
    #[error(
        "cannot use the runtime {}: {source}; build it (`make build`), or name it in CRASHPROOF_RUNTIME",
        path.display()
    )]
    Runtime { path: PathBuf, source: io::Error },
    #[error(
        "cannot make the session file ({} MiB) in /dev/shm or {}: {source}; free some space there, or set TMPDIR",
        size >> 20,
        directory.display()
    )]
    Session {
        directory: PathBuf,
        size: usize,
        source: io::Error,
    },
    #[error("the pattern {pattern:?} can match no file; leave --pm away to take every shared, writable file mapping")]
    BadPattern { pattern: String },
    #[error("the --pm patterns are longer than {limit} bytes together; use fewer, more general ones")]
    PatternsTooLong { limit: usize },
    #[error("{source}; {}", trace_remedy(source, remedy))]
    Trace { source: WriteError, remedy: &'static str },
    /// The program ran, and without the runtime: nothing was recorded.
    #[error(
        "{} ran without the runtime, so nothing was recorded; is LD_PRELOAD disabled, or is it a wrapper that starts \
         the real program in a clean environment (then record that one)?",
        command.display()
    )]
    NoRuntime { command: OsString, end: ProgramEnd },
}

/// What helps if the trace cannot be written; `room`: if there is no room for it.
fn trace_remedy(error: &WriteError, room: &'static str) -> &'static str {
    let WriteError::Create { source, .. } = error else {
        return room;
    };
    match source.kind() {
        io::ErrorKind::NotFound => "make its folder first, or choose another place",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "choose a place that you may write to",
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => "name a file",
        _ => room,
    }
}

impl RecordError {
    /// What the system call that starts the program said, with the remedy.
    pub(crate) fn spawn(command: OsString, source: io::Error) -> RecordError {
        let is_path = command.as_encoded_bytes().contains(&b'/');
        match source.raw_os_error() {
            Some(libc::ENOENT) if is_path && PathBuf::from(&command).exists() => RecordError::NoInterpreter { command },
            Some(libc::ENOENT) => RecordError::NotFound { command },
            Some(libc::EACCES | libc::EPERM) => RecordError::NotExecutable { command },
            Some(libc::ENOEXEC) => RecordError::NotAProgram { command },
            _ => RecordError::Spawn { command, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_cannot_be_made_gets_the_remedy_for_its_cause() {
        let message = |errno| {
            let source = WriteError::Create {
                path: "x/trace".into(),
                source: io::Error::from_raw_os_error(errno),
            };
            let remedy = "free some space";
            RecordError::Trace { source, remedy }.to_string()
        };
        assert!(message(libc::ENOENT).ends_with("; make its folder first, or choose another place"));
        assert!(message(libc::EROFS).ends_with("; choose a place that you may write to"));
        assert!(message(libc::EISDIR).ends_with("; name a file"));
        assert!(message(libc::ENOSPC).ends_with("; free some space"));
    }
}
