//! The worker's end of a sandbox: the supervisor process and the socket to it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::cgroup::Cgroup;
use crate::error::SandboxError;
use crate::protocol::{Channel, Config, Reply, Request, SUPERVISOR_ARGUMENT};

/// For everything but a run.
const PATIENCE: Duration = Duration::from_secs(60);
/// For a sandbox to end by itself once its socket is closed.
const END_TIME: Duration = Duration::from_secs(5);

/// A sandbox that runs. Dropped, it and everything in it ends.
#[derive(Debug)]
pub(crate) struct Session {
    channel: Channel,
    patience: Duration,
    // Dropped in this order: a control group can be removed when its processes are gone.
    _process: Process,
    group: Option<Cgroup>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// A second handle of the socket, to close it with.
    socket: UnixStream,
}

impl Session {
    /// Starts a supervisor and has it build the sandbox; the descriptors are those of `Control::ALL`.
    pub(crate) fn start(
        supervisor: &Path,
        environment: &[(OsString, OsString)],
        config: &Config,
    ) -> Result<(Self, Vec<OwnedFd>), SandboxError> {
        let (ours, theirs) = UnixStream::pair().map_err(SandboxError::Socket)?;
        let mut command = Command::new(supervisor);
        command
            .arg(SUPERVISOR_ARGUMENT)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        // SAFETY: the calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                // Signals from the terminal are for crashproof, not for its sandboxes.
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // What crashproof was given by whoever started it is not the recovery's. Old kernels do not have the call.
                libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
                Ok(())
            })
        };
        let group = (config.memory < u64::MAX)
            .then(|| Cgroup::create(total(config)))
            .flatten();
        let child = spawn(command).map_err(|source| SandboxError::Spawn {
            path: supervisor.into(),
            source,
        })?;
        let socket = ours.try_clone().map_err(SandboxError::Socket)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(SandboxError::Socket)?;
        let mut session = Session {
            channel: Channel::new(ours),
            patience: PATIENCE,
            _process: Process { child, socket },
            group,
        };
        let no_supervisor = || SandboxError::NoSupervisor {
            path: PathBuf::from(supervisor),
        };
        // A supervisor that failed early has said why, and may be gone already.
        let group = session.group.as_ref().map(Cgroup::descriptors);
        let _ = session
            .channel
            .send(config, group.as_ref().map_or(&[], |group| &group[..]));
        match session.channel.receive() {
            Ok((Reply::Built, descriptors)) => Ok((session, descriptors)),
            Ok((Reply::Failed(error), _)) => Err(error.into()),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => Err(SandboxError::Socket(error)),
            _ => Err(no_supervisor()),
        }
    }

    /// The commands may take this much, files and memory together.
    pub(crate) fn limit(&self, bytes: u64) {
        if let Some(group) = &self.group {
            // A limit that cannot be raised ends recoveries that it should not, and they say so.
            let _ = group.limit(bytes);
        }
    }

    /// One request and its reply. `doing` says what for.
    pub(crate) fn request(
        &mut self,
        request: &Request,
        patience: Option<Duration>,
        doing: &'static str,
    ) -> Result<(Reply, Vec<OwnedFd>), SandboxError> {
        let patience = patience.unwrap_or_default() + PATIENCE;
        if patience != self.patience {
            let set = self.channel.stream().set_read_timeout(Some(patience));
            set.map_err(SandboxError::Socket)?;
            self.patience = patience;
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                SandboxError::Ended { doing }
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => SandboxError::Silent { doing },
            _ => SandboxError::Socket(error),
        };
        self.channel.send(request, &[]).map_err(failed)?;
        match self.channel.receive().map_err(failed)? {
            (Reply::Failed(error), _) => Err(error.into()),
            reply => Ok(reply),
        }
    }
}

/// Files that the commands write are in memory.
fn total(config: &Config) -> u64 {
    config.memory.saturating_add(config.disk)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Process 1 ends when its socket does, the kernel ends all others, and only then does the child that was waiting for it.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let begin = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if begin.elapsed() > END_TIME {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_micros(500));
        }
    }
}

type Spawned = io::Result<Child>;
type Spawn = (Command, mpsc::Sender<Spawned>);

/// Starts a process from a thread that never ends: PR_SET_PDEATHSIG is sent when the *thread* that started the process
/// ends, and a worker may move from thread to thread.
fn spawn(command: Command) -> Spawned {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Spawn>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Spawn>();
        let serve = move || {
            for (mut command, reply) in requests {
                // Dropped at once: the child's end of the socket must not stay open here.
                let spawned = command.spawn();
                drop(command);
                let _ = reply.send(spawned);
            }
        };
        // Without the thread the channel is closed, and that is reported below.
        let _ = thread::Builder::new().name("sandbox-spawner".into()).spawn(serve);
        Mutex::new(sender)
    });
    let (reply, spawned) = mpsc::channel();
    let gone = || io::Error::other("no thread to start processes from");
    let sender = spawner.lock().unwrap_or_else(PoisonError::into_inner).clone();
    sender.send((command, reply)).map_err(|_| gone())?;
    spawned.recv().map_err(|_| gone())?
}
