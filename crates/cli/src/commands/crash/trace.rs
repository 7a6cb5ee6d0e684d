//! Where the trace comes from: a recording made now, one made by an interrupted test, or a file of the user's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crashproof_report::{Program, TraceSummary};
use crashproof_trace::{EventKind, FileId, Item, TraceReader};

use super::plan::PlanError;
use super::state::State;
use crate::arguments::CrashArguments;
use crate::commands::{record, setup};

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(
        "{program} {ended}, and what a failed run did is not worth surviving: nothing was crashed; if that is how it should end, record it \
         (`crashproof record -o TRACE -- …`) and give the trace instead of the program"
    )]
    ProgramFailed { program: String, ended: String },
    #[error("interrupted while {program} was recorded: nothing was crashed")]
    Interrupted { program: String },
    #[error("cannot put the trace into {}: {source}", path.display())]
    Place { path: PathBuf, source: io::Error },
}

/// Sets up and records, if need be. The trace is `state.trace()` then. Gives the PM files that the program made.
pub fn obtain(
    arguments: &CrashArguments,
    state: &State,
    before_recording: impl FnOnce() -> Result<(), PlanError>,
) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let place = |path: PathBuf| move |source| TraceError::Place { path, source };
    let trace = state.trace();
    if arguments.resume {
        before_recording()?;
    } else if let Some(given) = &arguments.trace {
        before_recording()?;
        // Opened first: a wrong path is told as what it is.
        TraceReader::open(given)?;
        let given = given.canonicalize().map_err(place(given.clone()))?;
        std::os::unix::fs::symlink(given, &trace).map_err(place(trace.clone()))?;
    } else {
        if let Some(command) = &arguments.setup {
            setup::run(command)?;
        }
        before_recording()?;
        let unfinished = state.unfinished_trace();
        let start = tick();
        record(arguments, &unfinished)?;
        let list = serde_json::to_string(&created_since(start, &unfinished)?)?;
        std::fs::write(state.created(), list).map_err(place(state.created()))?;
        std::fs::rename(&unfinished, &trace).map_err(place(trace.clone()))?;
    }
    if let Some(path) = &arguments.keep_trace {
        std::fs::copy(&trace, path).map_err(place(path.clone()))?;
    }
    // A trace of the user's does not say which files were there before.
    match std::fs::read(state.created()) {
        Ok(list) => Ok(serde_json::from_slice(&list)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(place(state.created())(source).into()),
    }
}

/// A time after which, and not before, what is made has a later birth time. That of a file is the kernel's coarse clock, or
/// (since Linux 6.13) a finer one that may be ahead of it.
fn tick() -> SystemTime {
    let coarse = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills in the time that it is given.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut time) };
        SystemTime::UNIX_EPOCH + Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = SystemTime::now();
    while coarse() <= start {
        std::thread::sleep(Duration::from_millis(1));
    }
    start
}

/// The trace's PM files that are younger than that, under the names they had first. A file that the program itself took away, or
/// put another in the place of, is taken for one that was there before: nobody can say any more.
fn created_since(start: SystemTime, trace: &Path) -> Result<Vec<String>, crashproof_trace::ReadError> {
    let mut reader = TraceReader::open(trace)?;
    // Where each file is at last, if it was moved.
    let mut moved: BTreeMap<FileId, Option<String>> = BTreeMap::new();
    while let Some((item, tables)) = reader.next_with_tables()? {
        let Item::Event(event) = item else { continue };
        let EventKind::Rename { file, path } = event.kind else {
            continue;
        };
        for (index, other) in tables.files.iter().enumerate() {
            let other_id = FileId(index as u32);
            let at = moved
                .get(&other_id)
                .cloned()
                .unwrap_or_else(|| Some(other.path.clone()));
            if other_id != file && at.is_some() && at.as_deref() == path {
                moved.insert(other_id, None);
            }
        }
        moved.insert(file, path.map(str::to_owned));
    }
    let mut made = Vec::new();
    for (index, file) in reader.tables().files.iter().enumerate() {
        let last = match moved.get(&FileId(index as u32)) {
            Some(None) => continue,
            Some(Some(path)) => path,
            None => &file.path,
        };
        let is_new = match std::fs::metadata(last).and_then(|m| m.created()) {
            Ok(born) => born > start,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_new {
            made.push(file.path.clone());
        }
    }
    Ok(made)
}

fn record(arguments: &CrashArguments, output: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let recorded = record::record(&arguments.command, output, &arguments.recording)?;
    let program = arguments.command[0].to_string_lossy().into_owned();
    if recorded.end.interrupted {
        return Err(TraceError::Interrupted { program }.into());
    }
    let ended = match (recorded.end.signal, recorded.end.status) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(0)) => return Ok(()),
        (None, status) => format!("exited with status {}", status.unwrap_or_default()),
    };
    Err(TraceError::ProgramFailed { program, ended }.into())
}

/// What the report says of the program and its trace. Reads all of it.
pub fn summary(trace: &Path) -> Result<(Program, TraceSummary), crashproof_trace::ReadError> {
    let mut reader = TraceReader::open(trace)?;
    while reader.next_with_tables()?.is_some() {}
    let end = reader.end().unwrap_or_default();
    let counts = reader.counts();
    let program = Program {
        status: end.status,
        signal: end.signal,
        command: reader.header().command.clone(),
    };
    let incomplete = reader.incomplete();
    let trace = TraceSummary {
        stores: counts.stores,
        flushes: counts.flushes,
        fences: counts.fences,
        complete: incomplete.is_empty(),
        incomplete: incomplete.iter().map(|incomplete| incomplete.detail.clone()).collect(),
    };
    Ok((program, trace))
}
