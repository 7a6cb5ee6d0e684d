//! The recorder: runs a program under the runtime and writes its trace.
//!
//! [`record`] makes the session (`session`), starts the program with the runtime preloaded, drains the ring while it runs
//! (`drain`, over `ring` and `watch`), translates records to the trace (`translate`, `output`), and verifies that the log
//! holds everything (`verify`, `image`).
//!
//! Architecture invariant: knows what records mean for the trace, not what findings are; never stops the program, not
//! when the disk is full either (unless it is asked to take it along when it is killed: `keeper`). `unsafe` only where it touches shared memory and system calls.
#![warn(clippy::undocumented_unsafe_blocks)]

mod drain;
mod error;
pub mod executable;
mod image;
mod keeper;
mod left_out;
mod output;
mod pattern;
mod ring;
mod session;
mod signals;
#[cfg(test)]
mod tests;
mod translate;
mod unlabelled;
mod verify;
mod watch;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use crashproof_trace::{Counts, Header, Incomplete, IncompleteReason, Options, ProgramEnd, WriteError, replace};
use crashproof_wire::SESSION_ENV;

use drain::Recording;
use output::Output;
use session::{SessionFile, SessionOptions};
use signals::Signals;
use verify::Images;

pub use error::RecordError;
pub use keeper::keep;

#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where the trace goes. What is there stays until the new one is whole.
    pub output: PathBuf,
    /// What helps if there is no room for it.
    pub remedy: &'static str,
    /// Globs of the files that are PM; none: every shared, writable file mapping.
    pub pm: Vec<String>,
    /// Answer pmemcheck's client requests.
    pub client_requests: bool,
    /// Record locked read-modify-writes on volatile memory as fences.
    pub locked_rmw: bool,
    /// The shared object to preload.
    pub runtime: PathBuf,
    /// If the program has a version within it that follows dependences (`crashproof cc --deps`), that one is executed.
    pub dependences: bool,
    /// The program, and all that it has started, ends if the recorder is killed.
    pub kept: bool,
    /// What it prints to its standard output is recorded and not shown.
    pub quiet: bool,
}

/// A recording that was made.
#[derive(Debug)]
pub struct Recorded {
    /// The version that follows dependences was executed.
    pub dependences: bool,
    /// Of a recording of dependences: libraries that have stored to PM, and whose loads were not seen.
    pub unlabelled: Vec<String>,
    /// And how many labels had too many members, of which the farthest were left out.
    pub cuts: u64,
    /// How the program ended.
    pub end: ProgramEnd,
    /// What the program did, also where the trace does not hold it.
    pub counts: Counts,
    /// Why the trace does not hold everything; the trace says the same.
    pub incomplete: Vec<Incomplete>,
    /// Where the trace is: where it was asked for, or beside it if it could not be written to its end and there was a trace before.
    pub trace: PathBuf,
    /// The trace could not be written to its end. The program was not disturbed.
    pub write_failure: Option<WriteError>,
}

/// Signal dispositions belong to the process: one recording at a time.
static RECORDING: Mutex<()> = Mutex::new(());

/// Runs the command to its end and writes its trace.
pub fn record(options: &RecordOptions) -> Result<Recorded, RecordError> {
    let _one_at_a_time = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let [program, arguments @ ..] = &options.command[..] else {
        return Err(RecordError::NoCommand);
    };
    executable::check(program)?;
    let runtime_error = |source| RecordError::Runtime {
        path: options.runtime.clone(),
        source,
    };
    let runtime = options.runtime.canonicalize().map_err(runtime_error)?;
    // First, so that they are the last to go: no signal may end us before the session is removed.
    let signals = Signals::install();
    let mut session = SessionFile::create(&SessionOptions {
        pm: options.pm.clone(),
        client_requests: options.client_requests,
        locked_rmw: options.locked_rmw,
    })?;
    let runtime = session.preloadable(&runtime).map_err(runtime_error)?;
    let (writing, output) = create(options)?;
    let tracked = match options.dependences {
        true => executable::tracked(program)?,
        false => None,
    };
    let names = tracked.as_ref().map(executable::Within::names);
    let mut recording = Recording::new(&session, output, Images::new(&options.output), names);

    let mut command = match &tracked {
        Some(within) => Command::new(&within.executable),
        None => Command::new(program),
    };
    command
        .arg0(program)
        .args(arguments)
        .env(SESSION_ENV, session.path())
        .env("LD_PRELOAD", preload(&runtime));
    // libpmem and libpmem2 then flush, as on PM, instead of calling msync.
    for (variable, value) in [("PMEM_IS_PMEM_FORCE", "1"), ("PMEM2_FORCE_GRANULARITY", "CACHE_LINE")] {
        if std::env::var_os(variable).is_none() {
            command.env(variable, value);
        }
    }
    if options.kept {
        keep(&mut command);
    }
    if options.quiet {
        command.stdout(Stdio::null());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(source) => {
            drop(recording);
            discard(&writing);
            return Err(RecordError::spawn(program.clone(), source));
        }
    };
    signals.program_started(child.id());
    let status = recording.run(|| reap(&mut child, &signals));
    let status = status.map_err(|source| RecordError::Wait {
        command: program.clone(),
        source,
    })?;
    let end = ProgramEnd {
        status: status.code(),
        signal: status.signal(),
        interrupted: signals.interrupted(),
        terminated: signals.terminated(),
    };
    if !recording.saw_runtime() {
        drop(recording);
        discard(&writing);
        return Err(RecordError::NoRuntime {
            command: program.clone(),
            end,
        });
    }
    let counts = recording.counts();
    let (unlabelled, cuts) = (recording.unlabelled().libraries(), recording.unlabelled().cuts);
    let mut written = recording.finish(end);
    let mut trace = options.output.clone();
    if written.failure.is_none()
        && writing != trace
        && let Err(source) = replace::take_place(&writing, &trace)
    {
        let error = WriteError::Create {
            path: trace.clone(),
            source,
        };
        written.incomplete.push(Incomplete {
            reason: IncompleteReason::WriteFailed,
            detail: error.to_string(),
        });
        written.failure = Some(error);
    }
    if written.failure.is_some() {
        trace = writing;
    }
    Ok(Recorded {
        trace,
        dependences: tracked.is_some(),
        unlabelled,
        cuts,
        end,
        counts,
        incomplete: written.incomplete,
        write_failure: written.failure,
    })
}

/// The trace, and where it is written: beside one that is there already. Nothing of a recording is lost if it is cut short, so a trace that
/// replaces none is written in place.
fn create(options: &RecordOptions) -> Result<(PathBuf, Output), RecordError> {
    let path = &options.output;
    let header = header(options);
    let failed = |source| RecordError::Trace {
        source,
        remedy: options.remedy,
    };
    if replace::is_worth_keeping(path) {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".partial");
        let beside = PathBuf::from(beside);
        match Output::create(&beside, &header, options.remedy) {
            Ok(output) => return Ok((beside, output)),
            // The folder cannot be written to, the file can.
            Err(WriteError::Create { source, .. }) if replace::is_refused(&source) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let output = Output::create(path, &header, options.remedy).map_err(failed)?;
    Ok((path.clone(), output))
}

fn header(options: &RecordOptions) -> Header {
    Header {
        command: options
            .command
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
        options: Options {
            client_requests: options.client_requests,
            locked_rmw: options.locked_rmw,
            pm: options.pm.clone(),
        },
    }
}

/// The runtime first, then what the user preloads.
fn preload(runtime: &Path) -> OsString {
    let mut preload = runtime.as_os_str().to_owned();
    if let Some(existing) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(OsStr::new(":"));
        preload.push(existing);
    }
    preload
}

/// The program's status once it has ended.
fn reap(child: &mut Child, signals: &Signals) -> Option<std::io::Result<ExitStatus>> {
    // SAFETY: an all-zero siginfo is valid, and waitid fills it. WNOWAIT: the number stays the program's until signals are
    // no longer passed on to it.
    let ended = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, child.id(), &mut info, flags) != 0 || info.si_pid() != 0
    };
    ended.then(|| {
        signals.program_ended();
        child.wait()
    })
}

/// Removes a trace that holds nothing. What is no file (`/dev/null`) stays.
fn discard(trace: &Path) {
    if trace.symlink_metadata().is_ok_and(|m| m.is_file()) {
        let _ = std::fs::remove_file(trace);
    }
}
