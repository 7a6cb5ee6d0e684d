//! A minimal worker: prepares what a recovery program shares with its worker, runs it through the fork server or by itself,
//! and reads what was noted.

use crashproof_wire::recovery::{self as wire, Recovery, server};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;

/// A run's notes.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Notes {
    pub started: u32,
    pub unwatched: u32,
    pub written: Vec<u64>,
    pub touched: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Worker {
    recovery: *mut Recovery,
    path: PathBuf,
}

impl Worker {
    /// For the PM files given, in their order.
    pub(crate) fn new(path: &Path, files: &[&Path]) -> Worker {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .expect("a file to share");
        let size = size_of::<Recovery>();
        file.set_len(size as u64).expect("room in it");
        // SAFETY: a fresh shared mapping of a file of that size; all-zero is valid but for the first fields.
        let recovery = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                size,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(mapped, libc::MAP_FAILED);
            mapped.cast::<Recovery>()
        };
        let worker = Worker {
            recovery,
            path: path.to_owned(),
        };
        let recovery = worker.shared();
        recovery.magic = wire::MAGIC;
        recovery.version = wire::VERSION;
        recovery.file_count = files.len() as u32;
        for (place, file) in recovery.files.iter_mut().zip(files) {
            let status = std::fs::metadata(file).expect("the PM file is there");
            *place = wire::File {
                dev: status.dev(),
                ino: status.ino(),
            };
        }
        worker
    }

    /// To be changed between runs only.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn shared(&self) -> &mut Recovery {
        // SAFETY: mapped for as long as the test runs; no recovery runs meanwhile, and no other reference is kept.
        unsafe { &mut *self.recovery }
    }

    pub(crate) fn track_reads(&self, fine: &[u64]) {
        let shared = self.shared();
        shared.track = wire::TRACK_READS;
        shared.fine_count = fine.len() as u32;
        shared.fine[..fine.len()].copy_from_slice(fine);
        shared.fine[..fine.len()].sort_unstable();
    }

    fn command(&self, program: &[&str], directory: &Path) -> Command {
        let mut command = Command::new(directory.join(program[0]));
        command
            .args(&program[1..])
            .current_dir(directory)
            .env("PM_FILE", directory.join("pm"))
            .env("LD_PRELOAD", super::runtime())
            .env(wire::RECOVERY_ENV, &self.path)
            .stdin(Stdio::null());
        command
    }

    fn reset(&self) {
        let shared = self.shared();
        for counter in [
            &shared.started,
            &shared.unwatched,
            &shared.written_count,
            &shared.touched_count,
        ] {
            counter.store(0, Ordering::Release);
        }
    }

    fn notes(&self) -> Notes {
        let shared = self.shared();
        let log = |count: u32, log: &[std::sync::atomic::AtomicU64]| {
            log[..count as usize]
                .iter()
                .map(|unit| unit.load(Ordering::Acquire))
                .collect()
        };
        Notes {
            started: shared.started.load(Ordering::Acquire),
            unwatched: shared.unwatched.load(Ordering::Acquire),
            written: log(shared.written_count.load(Ordering::Acquire), &shared.written),
            touched: log(shared.touched_count.load(Ordering::Acquire), &shared.touched),
        }
    }

    /// A process for this one run.
    pub(crate) fn run_alone(&self, program: &[&str], directory: &Path) -> (ExitStatus, Notes) {
        self.reset();
        let status = self.command(program, directory).status().expect("running the program");
        (status, self.notes())
    }

    /// The program, parked at its `main`; or the reason why it cannot be.
    pub(crate) fn park(&self, program: &[&str], directory: &Path) -> Result<Server<'_>, u64> {
        self.park_with(program, directory, &[])
    }

    /// The same, with more in its environment.
    pub(crate) fn park_with(
        &self,
        program: &[&str],
        directory: &Path,
        more: &[(&str, &str)],
    ) -> Result<Server<'_>, u64> {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let theirs = OwnedFd::from(theirs);
        let number = theirs.as_raw_fd();
        let mut command = self.command(program, directory);
        command
            .env(wire::SERVER_ENV, number.to_string())
            .envs(more.iter().copied());
        // SAFETY: only a system call between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let process = command.spawn().expect("starting the server");
        drop(theirs);
        let mut server = Server {
            worker: self,
            process,
            socket: Some(ours),
        };
        match server.receive() {
            (server::READY, 0) => Ok(server),
            (server::CANNOT, reason) => Err(reason),
            other => panic!("the server says {other:?}"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Server<'a> {
    worker: &'a Worker,
    process: Child,
    socket: Option<UnixStream>,
}

impl Server<'_> {
    fn receive(&mut self) -> (u8, u64) {
        let mut word = [0; 8];
        let socket = self.socket.as_mut().expect("a socket");
        socket.read_exact(&mut word).expect("the server speaks");
        server::parse(u64::from_le_bytes(word))
    }

    pub(crate) fn run(&mut self) -> (ExitStatus, Notes) {
        self.worker.reset();
        let word = server::word(server::RUN, 0).to_le_bytes();
        let socket = self.socket.as_mut().expect("a socket");
        socket.write_all(&word).expect("the server listens");
        let (tag, status) = self.receive();
        assert_eq!(tag, server::ENDED);
        let child = self.worker.shared().child.load(Ordering::Acquire);
        assert!(child != 0 && child != self.process.id());
        (ExitStatus::from_raw(status as i32), self.worker.notes())
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.socket = None;
        let status = self.process.wait().expect("the server ends when its socket is closed");
        assert!(status.success(), "{status}");
    }
}
