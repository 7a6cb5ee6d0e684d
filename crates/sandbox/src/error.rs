//! What can go wrong with a sandbox, each with the remedy.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The sandbox is broken, not the program in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("cannot start the sandbox's supervisor {}: {source}; {}", path.display(), spawn_remedy(source))]
    Spawn { path: PathBuf, source: io::Error },
    #[error(
        "{} does not answer as a supervisor; the program that starts sandboxes must call \
         `crashproof_sandbox::supervise` when its argument is `sandbox-supervisor`",
        path.display()
    )]
    NoSupervisor { path: PathBuf },
    #[error("{}", build_failure(.0))]
    Build(#[from] BuildError),
    #[error("the sandbox ended by itself while {doing}; did the machine run out of memory (see `dmesg`)?")]
    Ended { doing: &'static str },
    #[error("the sandbox did not answer while {doing}; is the machine overloaded? Try fewer --jobs")]
    Silent { doing: &'static str },
    #[error("cannot talk to the sandbox: {0}{more}", more = too_many_files(.0))]
    Socket(io::Error),
    #[error("cannot {what} the image of {}: {source}; is there enough memory for it? Try fewer --jobs", path.display())]
    Image {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{count} PM files are more than can be watched ({limit}); narrow them with --pm")]
    TooManyFiles { count: usize, limit: usize },
    #[error(
        "the arguments that the recovery is to be given take more than {limit} bytes, or have a zero byte in them; use a shorter path"
    )]
    Arguments { limit: usize },
}

/// What helps if a process cannot be started.
fn spawn_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => MORE_FILES,
        Some(libc::EAGAIN) => "there are too many processes: try fewer --jobs, or raise the limit (`ulimit -u`)",
        Some(libc::ENOMEM) => "there is too little memory: try fewer --jobs",
        _ => "is the crashproof program still there?",
    }
}

const MORE_FILES: &str = "too many files are open: try fewer --jobs, or raise the limit (`ulimit -n`)";

fn too_many_files(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => format!("; {MORE_FILES}"),
        _ => String::new(),
    }
}

/// What could not be built. If files are short, it is not the place that has to change.
fn build_failure(error: &BuildError) -> String {
    let text = error.to_string();
    match error.errno() {
        Some(libc::EMFILE | libc::ENFILE) => {
            let cause = text.split_once("; ").map_or(&*text, |(cause, _)| cause);
            format!("{cause}; {MORE_FILES}")
        }
        _ => text,
    }
}

/// Why the supervisor could not build or keep its sandbox; it crosses the socket.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize, PartialEq, Eq)]
pub enum BuildError {
    #[error(
        "cannot make a user namespace: {}; run as root, or allow it (sysctl -w user.max_user_namespaces=15000; on Debian \
         kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0); a container \
         must be started with --privileged, or with --security-opt seccomp=unconfined",
        Errno(*errno)
    )]
    UserNamespace { errno: i32 },
    #[error(
        "cannot map the user into the sandbox's user namespace ({file}): {}; run as root",
        Errno(*errno)
    )]
    UserMap { file: String, errno: i32 },
    #[error("cannot start process 1 of the sandbox: {}; is the limit of processes reached (ulimit -u)?", Errno(*errno))]
    Fork { errno: i32 },
    #[error("cannot read the list of mounts: {}; is /proc mounted?", Errno(*errno))]
    Mounts { errno: i32 },
    #[error(
        "cannot {what} {}: {}; the sandbox needs Linux 5.11 or later, and in a container --privileged",
        path.display(),
        Errno(*errno)
    )]
    Mount { what: String, path: PathBuf, errno: i32 },
    #[error(
        "cannot mount /proc for the sandbox: {}; where a container hides parts of /proc, the kernel forbids it: start the container with \
         --privileged, or with --security-opt systempaths=unconfined",
        Errno(*errno)
    )]
    Proc { errno: i32 },
    #[error("cannot bring up the loopback network in the sandbox: {}", Errno(*errno))]
    Loopback { errno: i32 },
    #[error(
        "cannot make the PM file {} in the sandbox: {}; put it into a folder of an ordinary file system that this user may write to",
        path.display(),
        Errno(*errno)
    )]
    PmFile { path: PathBuf, errno: i32 },
    #[error("cannot make {} for the sandbox's own use: {}", path.display(), Errno(*errno))]
    Control { path: PathBuf, errno: i32 },
    #[error(
        "the working folder {} is not there in the sandbox: {}; start crashproof from another folder",
        path.display(),
        Errno(*errno)
    )]
    Cwd { path: PathBuf, errno: i32 },
    #[error("cannot start `{command}`: {}; check the command and that it can be executed", Errno(*errno))]
    Start { command: String, errno: i32 },
    #[error("cannot start a process in the sandbox: {}; is the limit of processes reached (ulimit -u)?", Errno(*errno))]
    Process { errno: i32 },
    #[error(
        "the worker sent what the supervisor does not understand: {what}; crashproof's files are of different versions, install it again"
    )]
    Protocol { what: String },
}

impl BuildError {
    /// What the kernel said.
    fn errno(&self) -> Option<i32> {
        match self {
            BuildError::UserNamespace { errno }
            | BuildError::UserMap { errno, .. }
            | BuildError::Fork { errno }
            | BuildError::Mounts { errno }
            | BuildError::Mount { errno, .. }
            | BuildError::Proc { errno }
            | BuildError::Loopback { errno }
            | BuildError::PmFile { errno, .. }
            | BuildError::Control { errno, .. }
            | BuildError::Cwd { errno, .. }
            | BuildError::Start { errno, .. }
            | BuildError::Process { errno } => Some(*errno),
            BuildError::Protocol { .. } => None,
        }
    }
}

/// An error number of the kernel's, in words.
struct Errno(i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        // "No such file or directory (os error 2)"
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

/// The number behind an error of a system call.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
