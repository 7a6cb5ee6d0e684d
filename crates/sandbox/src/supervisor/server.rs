//! A fork server: the recovery program, parked at `main` by the runtime in it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crashproof_wire::recovery::{Recovery, server as word};

use super::memory::{Memory, SAMPLE_EVERY};
use super::process::{self, Capture, Launcher, Pid, Program};
use super::sys;
use crate::error::BuildError;

pub(super) struct Server {
    socket: UnixStream,
    nurse: Pid,
    process: Pid,
}

/// Why there is no server.
pub(super) enum NoServer {
    /// In words: a process is started for each run.
    Cannot(String),
    Broken(BuildError),
}

/// How a run ended. The processes of one that did not end in time still run.
pub(super) enum Outcome {
    Ended {
        wait: i32,
        timed_out: bool,
    },
    /// Its processes took more memory than they may. They still run.
    OverMemory,
    /// The server is gone or does not answer, and what the run came to is unknown.
    Lost,
}

impl Outcome {
    pub(super) const TIMED_OUT: Outcome = Outcome::Ended {
        wait: 0,
        timed_out: true,
    };
}

impl Server {
    /// Starts the program and waits until it is parked. `watch` ends the wait (and all) when it is closed.
    pub(super) fn start(
        launcher: &Launcher,
        program: &Program,
        capture: Capture<'_>,
        patience: Duration,
        watch: BorrowedFd<'_>,
        memory: &Memory,
    ) -> Result<Server, NoServer> {
        let broken = |error: io::Error| {
            NoServer::Broken(BuildError::Process {
                errno: crate::error::errno(&error),
            })
        };
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        let as_server = program.as_server();
        let nurse = launcher
            .start_server(&as_server, capture, theirs.as_fd(), memory.group())
            .map_err(NoServer::Broken)?;
        drop(theirs);
        let mut server = Server {
            socket: ours,
            nurse,
            process: 0,
        };
        let answer = server.next_word(Instant::now() + patience, watch, memory);
        server.process = launcher.server();
        let reason = match answer {
            Ok(Some((word::READY, _))) => return Ok(server),
            Ok(Some((word::CANNOT, word::CANNOT_THREADS))) => "it has several threads before `main`",
            Ok(Some((word::CANNOT, word::CANNOT_PM_OPEN))) => "it opens a PM file before `main`",
            Ok(Some((word::CANNOT, word::CANNOT_DESCRIPTORS))) => {
                "it opens a file to write to, a pipe or a socket before `main`, which all runs would share"
            }
            Ok(None) => "it does not come to `main`",
            Err(Waiting::OverMemory) => "it takes more memory before `main` than it may",
            Ok(Some(_)) => "the runtime in it cannot park it at `main`",
            Err(_) => {
                if let Some(failure) = launcher.failure(&as_server) {
                    server.end();
                    return Err(NoServer::Broken(failure));
                }
                "the runtime is not in it (a static or privileged program, or one without glibc)"
            }
        };
        server.end();
        Err(NoServer::Cannot(reason.into()))
    }

    pub(super) fn processes(&self) -> [Pid; 2] {
        [self.nurse, self.process]
    }

    /// One run. `worker` closes: this process ends.
    pub(super) fn run(
        &mut self,
        shared: &Recovery,
        time: Duration,
        worker: BorrowedFd<'_>,
        memory: &Memory,
    ) -> Outcome {
        shared.child.store(0, Ordering::Relaxed);
        let run = word::word(word::RUN, 0).to_le_bytes();
        if self.socket.write_all(&run).is_err() {
            return Outcome::Lost;
        }
        match self.next_word(Instant::now() + time, worker, memory) {
            Ok(Some((word::ENDED, wait))) => Outcome::Ended {
                wait: wait as u32 as i32,
                timed_out: false,
            },
            // If the child has ended, it is the server that hangs.
            Ok(None) => match shared.child.load(Ordering::Acquire) {
                child if child != 0 && process::is_running(child as Pid) => Outcome::TIMED_OUT,
                _ => Outcome::Lost,
            },
            Err(Waiting::OverMemory) => Outcome::OverMemory,
            _ => Outcome::Lost,
        }
    }

    /// The server's next word; `None`: not in time.
    fn next_word(
        &mut self,
        until: Instant,
        worker: BorrowedFd<'_>,
        memory: &Memory,
    ) -> Result<Option<(u8, u64)>, Waiting> {
        match wait_for(self.socket.as_fd(), until, worker, memory) {
            Err(Waiting::Late) => return Ok(None),
            other => other?,
        }
        let mut bytes = [0; 8];
        self.socket.read_exact(&mut bytes).map_err(Waiting::Failed)?;
        Ok(Some(word::parse(u64::from_le_bytes(bytes))))
    }

    fn end(self) {
        if self.process > 0 {
            process::kill(self.process);
        }
        process::kill(self.nurse);
        process::wait(self.nurse);
    }
}

/// Why there is nothing to read.
pub(super) enum Waiting {
    Late,
    OverMemory,
    Failed(io::Error),
}

/// Waits until there is something to read. If the worker is gone, so is this process, and with it the sandbox.
pub(super) fn wait_for(
    descriptor: BorrowedFd<'_>,
    until: Instant,
    worker: BorrowedFd<'_>,
    memory: &Memory,
) -> Result<(), Waiting> {
    let entry = |descriptor: BorrowedFd<'_>, events| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    loop {
        // Rounded up, so that the time has passed when it returns without anything.
        let left = until.saturating_duration_since(Instant::now()).min(SAMPLE_EVERY);
        let milliseconds = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
        let mut set = [entry(descriptor, libc::POLLIN), entry(worker, 0)];
        sys::poll(&mut set, milliseconds).map_err(Waiting::Failed)?;
        if set[1].revents != 0 {
            std::process::exit(0);
        }
        if set[0].revents != 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Waiting::Late);
        }
        if memory.is_exceeded() {
            return Err(Waiting::OverMemory);
        }
    }
}
