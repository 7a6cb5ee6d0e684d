//! The supervisor: process 1 of a sandbox. It builds the sandbox, runs the commands in it as the worker asks, ends what they leave
//! running, and puts back the files that they change. When it ends, the kernel ends everything in the sandbox.

mod layer;
mod memory;
mod mounts;
mod namespace;
mod process;
mod rights;
mod root;
mod server;
mod sys;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{BuildError, errno};
use crate::protocol::{Channel, CommandLine, Config, Control, Parked, Ran, Reply, Request, Status};
use crate::recovery::Shared;
use layer::Layer;
use memory::Memory;
use process::{Capture, Launcher, Pid, Program};
use server::{NoServer, Outcome, Server, Waiting};

/// A server that is not parked by then never will be.
const PARK_TIME: Duration = Duration::from_secs(10);

/// As wait(2) says it of a process that SIGKILL ended.
const KILLED: i32 = libc::SIGKILL;

/// Becomes the supervisor: for a process started by a worker, with the socket as its standard input.
pub fn supervise() -> ! {
    sys::die_with_parent();
    // SAFETY: the worker made the socket the standard input; nothing else here uses it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) });
    let mut channel = Channel::new(stream);
    let rights = namespace::unshare();
    // A user namespace changes the credentials, and that clears it.
    sys::die_with_parent();
    let forked = rights.and_then(|rights| {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => Err(BuildError::Fork {
                errno: errno(&io::Error::last_os_error()),
            }),
            child => Ok((rights, child)),
        }
    });
    match forked {
        Ok((rights, 0)) => {
            sys::die_with_parent();
            match Supervisor::build(&mut channel, rights) {
                Ok(mut supervisor) => supervisor.serve(&mut channel),
                Err(error) => refuse(&mut channel, error),
            }
        }
        Ok((_, child)) => {
            // The worker must see the end of the socket when process 1 ends.
            drop(channel);
            process::wait(child);
        }
        Err(error) => {
            let _ = channel.receive::<Config>();
            refuse(&mut channel, error);
        }
    }
    std::process::exit(0)
}

fn refuse(channel: &mut Channel, error: BuildError) {
    // If the worker is gone, there is nobody to tell.
    let _ = channel.send(&Reply::Failed(error), &[]);
}

struct Supervisor {
    layers: Vec<Layer>,
    control: Vec<OwnedFd>,
    shared: Shared,
    launcher: Launcher,
    memory: Memory,
    new_root: OwnedFd,
    recover: Option<Runner>,
    check: Option<Runner>,
    /// By the file's index.
    placed: Vec<Option<Placed>>,
}

#[derive(Clone, Copy)]
enum Which {
    Recovery,
    Check,
}

/// A command and, maybe, its server.
struct Runner {
    program: Program,
    server: Option<Server>,
    stdout: Control,
    stderr: Control,
}

/// Where a PM file is.
struct Placed {
    layer: usize,
    /// Relative to the layer's folder.
    path: PathBuf,
    inode: u64,
}

impl Supervisor {
    fn build(channel: &mut Channel, rights: namespace::Rights) -> Result<Self, BuildError> {
        let (config, group) = channel.receive::<Config>().map_err(|error| BuildError::Protocol {
            what: error.to_string(),
        })?;
        let root = root::build(&config, rights)?;
        let control_error = |error: io::Error| BuildError::Control {
            path: Path::new(crate::protocol::CONTROL).join(Control::Recovery.name()),
            errno: errno(&error),
        };
        let shared = Shared::create(root.control[Control::Recovery as usize].as_fd()).map_err(control_error)?;
        let new_root = fs::File::open(root::NEW).map_err(control_error)?;
        let runner = |command: &CommandLine, stdout, stderr| {
            Ok(Runner {
                program: Program::watched(command, config.memory)?,
                server: None,
                stdout,
                stderr,
            })
        };
        let recover = config.recover.as_ref();
        let check = config.check.as_ref();
        let supervisor = Supervisor {
            recover: recover
                .map(|command| runner(command, Control::Stdout, Control::Stderr))
                .transpose()?,
            check: check
                .map(|command| runner(command, Control::CheckStdout, Control::CheckStderr))
                .transpose()?,
            launcher: Launcher::new(&config.cwd)?,
            memory: Memory::new(config.memory, config.disk, group),
            layers: root.layers,
            control: root.control,
            shared,
            new_root: new_root.into(),
            placed: Vec::new(),
        };
        let descriptors: Vec<BorrowedFd<'_>> = supervisor.control.iter().map(AsFd::as_fd).collect();
        channel
            .send(&Reply::Built, &descriptors)
            .map_err(|error| BuildError::Protocol {
                what: error.to_string(),
            })?;
        Ok(supervisor)
    }

    /// Answers the worker until it is gone.
    fn serve(&mut self, channel: &mut Channel) {
        while let Ok((request, _)) = channel.receive::<Request>() {
            let mut descriptor = None;
            let worker = channel.stream().as_fd();
            let reply = match request {
                Request::Place { file, path } => self.place(file, path.as_deref()).map(|file| {
                    descriptor = file;
                    Reply::Done
                }),
                Request::Hide { path } => self.hide(Path::new(&path)).map(|()| Reply::Done),
                Request::Allow { disk } => {
                    self.memory.allow(disk);
                    root::allow(disk).map(|()| Reply::Done)
                }
                Request::Park { recover, check } => self.park(recover, check, worker),
                Request::Run { alone, time } => self.run(alone, time, worker).map(Reply::Ran),
                Request::RunOther { command, share, time } => {
                    self.run_other(&command, &share, time, worker).map(Reply::Ran)
                }
            };
            let reply = reply.unwrap_or_else(Reply::Failed);
            let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().map(AsFd::as_fd).collect();
            if channel.send(&reply, &descriptors).is_err() {
                return;
            }
        }
    }

    /// Puts a PM file under a path, new and empty, or away.
    fn place(&mut self, file: usize, path: Option<&OsStr>) -> Result<Option<OwnedFd>, BuildError> {
        if self.placed.len() <= file {
            self.placed.resize_with(file + 1, || None);
        }
        if let Some(old) = self.placed[file].take() {
            let layer = &mut self.layers[old.layer];
            layer.pm.remove(&old.path);
            let there = sys::stat_path(&layer.overlay.upper.join(&old.path));
            let merged = layer.overlay.merged.join(&old.path);
            // Unless the recovery removed it, and maybe something else has its name.
            if there.ok().flatten().is_some_and(|stat| stat.st_ino == old.inode) {
                fs::remove_file(&merged).map_err(|error| BuildError::PmFile {
                    path: merged,
                    errno: errno(&error),
                })?;
            }
            layer.settle();
        }
        let Some(path) = path else { return Ok(None) };
        let created = self.create(file, Path::new(path)).map_err(|error| BuildError::PmFile {
            path: path.into(),
            errno: errno(&error),
        })?;
        Ok(Some(created))
    }

    fn create(&mut self, file: usize, path: &Path) -> io::Result<OwnedFd> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.make_folders(path.parent().unwrap_or(Path::new("/")))?;
        let before = sys::stat_at(folder.as_fd(), name)?;
        if before.is_some() {
            sys::remove_at(folder.as_fd(), name)?;
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let created = fs::File::from(sys::open_at(folder.as_fd(), name, flags, 0o644)?);
        if let Some(before) = before.filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG) {
            created.set_permissions(fs::Permissions::from_mode(before.st_mode & 0o7777))?;
            let _ = std::os::unix::fs::fchown(&created, Some(before.st_uid), Some(before.st_gid));
        }
        let number = std::os::fd::AsRawFd::as_raw_fd(&created);
        let merged = fs::read_link(root::inside(format!("/proc/self/fd/{number}")))?;
        let (index, relative) = self.layer_of(&merged).ok_or(io::ErrorKind::Unsupported)?;
        let layer = &mut self.layers[index];
        let upper = sys::stat_path(&layer.overlay.upper.join(&relative))?.ok_or(io::ErrorKind::NotFound)?;
        layer.pm.insert(relative.clone());
        layer.settle();
        self.placed[file] = Some(Placed {
            layer: index,
            path: relative,
            inode: upper.st_ino,
        });
        Ok(created.into())
    }

    /// Takes a file of the user's away. From now on that is how things are.
    fn hide(&mut self, path: &Path) -> Result<(), BuildError> {
        let removed = (|| {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let parent = path.parent().unwrap_or(Path::new("/"));
            let folder = sys::open_in_root(self.new_root.as_fd(), parent, libc::O_RDONLY | libc::O_DIRECTORY)?;
            match sys::stat_at(folder.as_fd(), name)? {
                Some(_) => sys::remove_at(folder.as_fd(), name),
                None => Ok(()),
            }
        })();
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BuildError::PmFile {
                path: path.into(),
                errno: errno(&error),
            }),
            _ => {
                self.layers.iter_mut().for_each(Layer::settle);
                Ok(())
            }
        }
    }

    /// Opens a folder of the commands' root, which is made if it is not there.
    fn make_folders(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let open = |path: &Path| sys::open_in_root(self.new_root.as_fd(), path, libc::O_RDONLY | libc::O_DIRECTORY);
        match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let mut done = PathBuf::from("/");
        for part in path.iter().skip(1) {
            let folder = open(&done)?;
            done.push(part);
            match sys::make_folder_at(folder.as_fd(), part) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let folder = open(&done)?;
        for layer in &mut self.layers {
            layer.settle();
        }
        Ok(folder)
    }

    /// The layer that holds a path of the supervisor's, and the path in it.
    fn layer_of(&self, merged: &Path) -> Option<(usize, PathBuf)> {
        self.layers
            .iter()
            .enumerate()
            .filter_map(|(index, layer)| {
                let relative = merged.strip_prefix(&layer.overlay.merged).ok()?;
                Some((index, relative.to_path_buf()))
            })
            .min_by_key(|(_, relative)| relative.as_os_str().len())
    }

    fn park(&mut self, recover: bool, check: bool, worker: BorrowedFd<'_>) -> Result<Reply, BuildError> {
        let (launcher, control, memory) = (&self.launcher, &self.control, &self.memory);
        let park = |runner: &mut Option<Runner>, wanted: bool| match runner {
            Some(runner) if wanted => runner.park(launcher, control, worker, memory).map(Some),
            _ => Ok(None),
        };
        let recover = park(&mut self.recover, recover)?;
        let check = park(&mut self.check, check)?;
        let mut left = Ran::default();
        if !sweep_but([&self.recover, &self.check]) {
            left.unparked = true;
            self.end_all();
        }
        self.put_back(&mut left);
        Ok(Reply::Parked { recover, check, left })
    }

    fn run(&mut self, alone: bool, time: Duration, worker: BorrowedFd<'_>) -> Result<Ran, BuildError> {
        let mut ran = Ran::default();
        ran.recovery = self.run_one(Which::Recovery, alone, time, worker, &mut ran.unparked)?;
        let succeeded = ran.recovery.is_some_and(|status| status.wait == 0 && !status.timed_out);
        ran.void = ran.recovery.is_none();
        if succeeded && self.check.is_some() {
            ran.check = self.run_one(Which::Check, alone, time, worker, &mut ran.unparked)?;
            ran.void = ran.check.is_none();
        }
        self.put_back(&mut ran);
        Ok(ran)
    }

    /// Runs one command to its end and ends what it left running. `None`: its server was lost, and with it the result.
    fn run_one(
        &mut self,
        which: Which,
        alone: bool,
        time: Duration,
        worker: BorrowedFd<'_>,
        unparked: &mut bool,
    ) -> Result<Option<Status>, BuildError> {
        let before = self.shared.get().started.load(Ordering::Relaxed);
        let runner = match which {
            Which::Recovery => &mut self.recover,
            Which::Check => &mut self.check,
        };
        let outcome = match runner {
            None => return Ok(None),
            Some(Runner {
                server: Some(server), ..
            }) if !alone => server.run(self.shared.get(), time, worker, &self.memory),
            Some(runner) => {
                let capture = runner.capture(&self.control);
                let given = match which {
                    Which::Recovery => self.shared.get().arguments(),
                    Which::Check => &[],
                };
                let program = runner.program.with(given);
                run_process(&self.launcher, &program, capture, time, worker, &self.memory)?
            }
        };
        let ended = matches!(outcome, Outcome::Ended { timed_out: false, .. });
        if !ended || !sweep_but([&self.recover, &self.check]) {
            self.end_all();
            *unparked = true;
        }
        Ok(match outcome {
            Outcome::Lost => None,
            Outcome::OverMemory => Some(self.status(KILLED, false, true, before)),
            Outcome::Ended { wait, timed_out } => {
                // Asked after every run, or the next would be blamed for this one.
                let over_memory = self.memory.was_exceeded() && !timed_out;
                // A success does not count that the command had without a process that it wanted.
                let wait = if over_memory && wait == 0 { KILLED } else { wait };
                Some(self.status(wait, timed_out, over_memory, before))
            }
        })
    }

    /// `before`: how often the runtime had started by then.
    fn status(&self, wait: i32, timed_out: bool, over_memory: bool, before: u32) -> Status {
        Status {
            wait,
            timed_out,
            over_memory,
            watched: self.shared.get().started.load(Ordering::Relaxed) > before,
        }
    }

    /// Ends everything in the sandbox, the servers too.
    fn end_all(&mut self) {
        process::sweep_all();
        for runner in [&mut self.recover, &mut self.check].into_iter().flatten() {
            runner.server = None;
        }
    }

    /// Puts back what commands changed, but for contents of PM files.
    fn put_back(&mut self, ran: &mut Ran) {
        process::sweep_ipc();
        let mut clean = true;
        for layer in self.layers.iter_mut().filter(|layer| !layer.is_clean()) {
            clean = false;
            if let Err(hopeless) = layer.tidy() {
                ran.hopeless = Some(hopeless.0);
                return;
            }
        }
        if clean {
            return;
        }
        for (file, placed) in self.placed.iter().enumerate() {
            let Some(placed) = placed else { continue };
            let layer = &self.layers[placed.layer];
            let there = sys::stat_path(&layer.overlay.upper.join(&placed.path)).ok().flatten();
            if there.is_none_or(|stat| stat.st_ino != placed.inode) {
                ran.lost_files.push(file);
            }
        }
    }

    fn run_other(
        &mut self,
        command: &CommandLine,
        share: &Path,
        time: Duration,
        worker: BorrowedFd<'_>,
    ) -> Result<Ran, BuildError> {
        let program = Program::plain(command)?;
        let shared = root::share(share)?;
        let capture = capture(&self.control, Control::Stdout, Control::Stderr);
        // A recording of a recovery takes what a recorder takes.
        let unbounded = Memory::new(u64::MAX, 0, Vec::new());
        let outcome = run_process(&self.launcher, &program, capture, time, worker, &unbounded);
        let ended = matches!(outcome, Ok(Outcome::Ended { timed_out: false, .. }));
        let unparked = !ended || !sweep_but([&self.recover, &self.check]);
        if unparked {
            self.end_all();
        }
        let unmounted = sys::unmount(&shared);
        let mut ran = Ran {
            unparked,
            ..Ran::default()
        };
        if let Outcome::Ended { wait, timed_out } = outcome? {
            ran.recovery = Some(Status {
                wait,
                timed_out,
                over_memory: false,
                watched: false,
            });
        }
        unmounted.map_err(|error| BuildError::Mount {
            what: "unmount".into(),
            path: share.into(),
            errno: errno(&error),
        })?;
        self.put_back(&mut ran);
        Ok(ran)
    }
}

impl Runner {
    fn park(
        &mut self,
        launcher: &Launcher,
        control: &[OwnedFd],
        worker: BorrowedFd<'_>,
        memory: &Memory,
    ) -> Result<Parked, BuildError> {
        if self.server.is_some() {
            return Ok(Parked::Ready);
        }
        let capture = self.capture(control);
        match Server::start(launcher, &self.program, capture, PARK_TIME, worker, memory) {
            Ok(server) => {
                self.server = Some(server);
                Ok(Parked::Ready)
            }
            Err(NoServer::Cannot(reason)) => Ok(Parked::Cannot(reason)),
            Err(NoServer::Broken(error)) => Err(error),
        }
    }

    fn capture<'a>(&self, control: &'a [OwnedFd]) -> Capture<'a> {
        capture(control, self.stdout, self.stderr)
    }
}

fn capture(control: &[OwnedFd], stdout: Control, stderr: Control) -> Capture<'_> {
    Capture {
        stdout: control[stdout as usize].as_fd(),
        stderr: control[stderr as usize].as_fd(),
    }
}

/// Ends what runs, but for the servers. False: they had to go too.
fn sweep_but(runners: [&Option<Runner>; 2]) -> bool {
    let servers = runners
        .into_iter()
        .flatten()
        .filter_map(|runner| runner.server.as_ref());
    let keep: Vec<Pid> = servers.flat_map(Server::processes).collect();
    process::sweep(&keep)
}

/// Runs a program in a process of its own.
fn run_process(
    launcher: &Launcher,
    program: &Program,
    capture: Capture<'_>,
    time: Duration,
    worker: BorrowedFd<'_>,
    memory: &Memory,
) -> Result<Outcome, BuildError> {
    let failed = |error: io::Error| BuildError::Process { errno: errno(&error) };
    let child = launcher.start(program, capture, memory.group())?;
    let descriptor = process::descriptor(child).map_err(failed)?;
    match server::wait_for(descriptor.as_fd(), Instant::now() + time, worker, memory) {
        Ok(()) => {}
        Err(Waiting::Late) => return Ok(Outcome::TIMED_OUT),
        Err(Waiting::OverMemory) => return Ok(Outcome::OverMemory),
        Err(Waiting::Failed(error)) => return Err(failed(error)),
    }
    let wait = process::wait(child);
    match launcher.failure(program) {
        Some(failure) => Err(failure),
        None => Ok(Outcome::Ended { wait, timed_out: false }),
    }
}
