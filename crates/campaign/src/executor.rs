//! Sandbox workers as the campaign wants them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crashproof_crash::{Executor, ExecutorError, Survey};
use crashproof_sandbox::{DEFAULT_CAPTURE, Ended, Limits, Options, PmFile, Run, SandboxError, Track, Worker};

use crate::plan::Plan;

/// Makes the recovery flush, as the recorded program did, instead of calling msync.
const PMDK: [(&str, &str); 2] = [("PMEM_IS_PMEM_FORCE", "1"), ("PMEM2_FORCE_GRANULARITY", "CACHE_LINE")];

/// All of what a driver prints is compared. What is longer than this is none of any use.
const DRIVER_CAPTURE: u64 = 256 << 20;

/// What all workers of a test are started with.
pub(crate) fn options(plan: &Plan, survey: &Survey, limits: Limits, track: Track, no_server: bool) -> Options {
    let files = survey.files.iter().map(|file| PmFile {
        path: PathBuf::from(&file.path),
        size: file.size,
        present: file.present,
    });
    Options {
        files: files.collect(),
        recover: plan.recover.clone(),
        check: plan.check.clone(),
        directory: plan.directory.clone(),
        limits,
        track,
        fine: survey.fine.clone(),
        mappings: survey.mappings.clone(),
        environment: environment(),
        runtime: plan.runtime.clone(),
        supervisor: plan.supervisor.clone(),
        no_server,
        compare: false,
        hidden: leftovers(&survey.paths),
        capture: match plan.driver {
            Some(_) => DRIVER_CAPTURE,
            None => capture(plan.expect_output.as_deref()),
        },
    }
}

/// Enough to see that an output is not the expected one.
pub(crate) fn capture(expected: Option<&[u8]>) -> u64 {
    let expected = expected.map_or(0, |expected| expected.len() as u64 + 1);
    expected.max(DEFAULT_CAPTURE)
}

/// What the recording left where a file is not to be yet.
pub(crate) fn leftovers(paths: &[String]) -> Vec<PathBuf> {
    let paths = paths.iter().map(PathBuf::from);
    paths
        .filter(|path| path.symlink_metadata().is_ok_and(|found| !found.is_dir()))
        .collect()
}

/// What the user has set stays.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    PMDK.iter()
        .filter(|(name, _)| std::env::var_os(name).is_none())
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Whether the recovery or the checker looked at a PM file, in any run of any executor.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Runs that may have looked.
    yes: AtomicBool,
    /// Runs that had a file to look at, and did not.
    no: AtomicBool,
}

impl Looked {
    fn note(&self, looked: Option<bool>) {
        match looked {
            Some(true) => self.yes.store(true, Ordering::Relaxed),
            Some(false) => self.no.store(true, Ordering::Relaxed),
            None => {}
        }
    }

    /// There was a file to look at, and nobody did.
    pub(crate) fn nobody(&self) -> bool {
        self.no.load(Ordering::Relaxed) && !self.yes.load(Ordering::Relaxed)
    }
}

/// A worker that keeps an error until somebody can be told: the next run fails with it.
pub(crate) struct SandboxExecutor {
    pub worker: Worker,
    /// What the longest run took.
    pub longest: Duration,
    /// What was output before all that a run says was output.
    before: Vec<u8>,
    broken: Option<SandboxError>,
    /// Runs that may have seen what a run before them had left, of all executors.
    doubtful: Arc<AtomicU64>,
    looked: Arc<Looked>,
    /// When this is set, or the time has come, it runs no more.
    until: Option<(&'static AtomicBool, Option<Instant>)>,
}

impl SandboxExecutor {
    pub(crate) fn new(worker: Worker, doubtful: &Arc<AtomicU64>, looked: &Arc<Looked>) -> SandboxExecutor {
        SandboxExecutor {
            worker,
            longest: Duration::ZERO,
            before: Vec::new(),
            broken: None,
            doubtful: Arc::clone(doubtful),
            looked: Arc::clone(looked),
            until: None,
        }
    }

    pub(crate) fn after(mut self, before: Vec<u8>) -> SandboxExecutor {
        self.before = before;
        self
    }

    pub(crate) fn until(mut self, stop: &'static AtomicBool, deadline: Option<Instant>) -> SandboxExecutor {
        self.until = Some((stop, deadline));
        self
    }

    fn keep(&mut self, result: Result<(), SandboxError>) {
        if let Err(error) = result {
            self.broken.get_or_insert(error);
        }
    }
}

impl Executor for SandboxExecutor {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        self.worker.read(file, offset, buffer);
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        self.worker.write(file, offset, data);
    }

    fn resize(&mut self, file: usize, size: u64) {
        let result = self.worker.resize(file, size);
        self.keep(result);
    }

    fn place(&mut self, file: usize, path: Option<&str>) {
        let result = self.worker.place(file, path.map(Path::new));
        self.keep(result);
    }

    fn set_arguments(&mut self, arguments: &[OsString]) -> Result<(), ExecutorError> {
        let set = self.worker.set_arguments(arguments);
        set.map_err(|error| ExecutorError::Broken(error.into()))
    }

    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError> {
        if let Some(error) = self.broken.take() {
            return Err(ExecutorError::Broken(error.into()));
        }
        let start = Instant::now();
        if let Some((stop, deadline)) = self.until
            && (stop.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| start >= deadline))
        {
            return Err(ExecutorError::Ends);
        }
        let output = [&self.before, output].concat();
        let run = self
            .worker
            .run(&output)
            .map_err(|error| ExecutorError::Broken(error.into()));
        if let Ok(run) = &run {
            self.looked.note(run.looked);
        }
        self.longest = self.longest.max(start.elapsed());
        self.doubtful.fetch_add(self.worker.doubtful(), Ordering::Relaxed);
        run
    }
}

impl Drop for SandboxExecutor {
    /// The last runs have not been looked at yet.
    fn drop(&mut self) {
        if self.worker.compare().is_ok() {
            self.doubtful.fetch_add(self.worker.doubtful(), Ordering::Relaxed);
        }
    }
}

pub fn how_it_ended(ended: &Ended) -> String {
    match (ended.timed_out, ended.signal, ended.status) {
        (true, ..) => "did not end within the time limit".to_owned(),
        (_, Some(signal), _) => format!("was ended by signal {signal}"),
        (_, None, Some(status)) => format!("exited with status {status}"),
        (_, None, None) => "failed".to_owned(),
    }
}

/// What a command printed, to stand below a message.
pub(crate) fn quote(ended: &Ended) -> String {
    let mut text = String::new();
    for (name, bytes) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
        let printed = String::from_utf8_lossy(bytes);
        if printed.trim().is_empty() {
            continue;
        }
        text += &format!("\nIts {name}:");
        for line in printed.trim_end().lines() {
            text += "\n  ";
            text += line;
        }
    }
    // SAFETY: only returns a number of this process.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root && text.contains(OVERFLOW) {
        text += "\nThat is the sandbox's limit, not the recovery's fault: without root, it cannot change files or folders that belong \
                 to other users. Run crashproof as root, or let the recovery write to folders of your own.";
    }
    text
}

/// What programs say when an overlay in a user namespace cannot copy what belongs to a user that the namespace does not have.
const OVERFLOW: &str = "Value too large for defined data type";
