//! Where the trace comes from: a recording made now, one made by an interrupted test, or a file of the user's.

use std::io;
use std::path::{Path, PathBuf};

use crashproof_finding::{FileLeftOut, FileLookedAt, Program, TraceSummary};
use crashproof_record::Recorded;
use crashproof_trace::{FileId, PmFileKind, TraceFile, TraceReader, replace};

use crashproof_interrupt as interrupt;

use crate::options::CrashOptions;
use crate::plan::Plan;
use crate::recording::{self, Manner};
use crate::state::State;
use crate::{Error, Listener, setup};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("interrupted while {program} was recorded: nothing was crashed")]
    Interrupted { program: String },
    #[error("{source}; {NO_ROOM}")]
    Unwritten { source: crashproof_trace::WriteError },
    #[error("cannot put the trace into {}: {source}", path.display())]
    Place { path: PathBuf, source: io::Error },
}

/// The trace of a crash test is with its state.
pub(crate) const NO_ROOM: &str = "free some space, or set XDG_STATE_HOME to a folder that has more";

/// Sets up and records, if need be. The trace is `state.trace()` then.
pub(crate) fn obtain(
    arguments: &CrashOptions,
    plan: &Plan,
    state: &State,
    listener: &dyn Listener,
) -> Result<(), Error> {
    let place = |path: PathBuf| move |source| TraceError::Place { path, source };
    let trace = state.trace();
    if arguments.resume {
        plan.look_for_programs()?;
    } else if let Some(given) = &arguments.trace {
        plan.look_for_programs()?;
        // Opened first: a wrong path is told as what it is.
        let given = plan.relative_to.join(given);
        TraceReader::open(&given)?;
        let given = given.canonicalize().map_err(place(given.clone()))?;
        std::os::unix::fs::symlink(given, &trace).map_err(place(trace.clone()))?;
    } else {
        if let Some(command) = &arguments.setup {
            setup::run(command)?;
        }
        plan.look_for_programs()?;
        let unfinished = state.unfinished_trace();
        match &plan.driver {
            Some(driver) => driver.record(arguments, state, listener)?,
            None => record(arguments, &unfinished)?,
        }
        std::fs::rename(&unfinished, &trace).map_err(place(trace.clone()))?;
    }
    if let Some(path) = &arguments.keep_trace {
        replace::copy(&trace, &plan.relative_to.join(path)).map_err(place(path.clone()))?;
    }
    Ok(())
}

/// A recording whose trace was written to its end. A part of a run is not crashed: what the rest did is not known, and what
/// is at the trace's place may be of an earlier run.
pub(crate) fn whole(recorded: Recorded) -> Result<Recorded, TraceError> {
    match recorded.write_failure {
        Some(source) => Err(TraceError::Unwritten { source }),
        None => Ok(Recorded {
            write_failure: None,
            ..recorded
        }),
    }
}

fn record(arguments: &CrashOptions, output: &Path) -> Result<(), Error> {
    let manner = Manner {
        kept: true,
        remedy: Some(NO_ROOM),
        ..Manner::default()
    };
    let recorded = whole(recording::record(
        &arguments.command,
        output,
        &arguments.recording,
        manner,
    )?)?;
    // A program that was asked to end and did so in order may be crashed all the same.
    let stopped = recorded.end.terminated && recorded.end.status != Some(0);
    if recorded.end.interrupted || stopped {
        interrupt::request();
        let program = arguments.command[0].to_string_lossy().into_owned();
        return Err(TraceError::Interrupted { program }.into());
    }
    Ok(())
}

/// Of a trace, what a crash test does not look at and what it cannot do without.
pub(crate) struct Seen {
    /// Annotations `CRASHPROOF_EXPECT_…`, each time they were executed.
    pub expectations: u64,
    /// What is stored is not known.
    pub no_values: bool,
    pub files: Vec<FileLookedAt>,
    pub left_out: Vec<FileLeftOut>,
    /// Stores to files, and to memory that the program registered and that no file is behind.
    pub file_stores: u64,
    pub memory_stores: u64,
}

/// What the report says of the program and its trace.
pub(crate) fn summary(trace: &TraceFile) -> (Program, TraceSummary, Seen) {
    let (outline, uses) = (trace.outline(), trace.uses());
    let (mut files, left_out) = crashproof_check::files::files(outline, uses, &Default::default());
    let memory = |path: &str| {
        let mut memory = outline.tables.files.iter().filter(|file| file.is_registered_memory());
        memory.any(|file| file.path == path)
    };
    files.retain(|file| !memory(&file.path));
    let mut seen = Seen {
        expectations: trace.expectations(),
        no_values: false,
        files,
        left_out,
        file_stores: 0,
        memory_stores: 0,
    };
    for (file, id) in outline.tables.files.iter().zip((0..).map(FileId)) {
        let file_use = uses.of(id);
        seen.no_values |= file_use.mapped && file.kind == PmFileKind::UnknownMemory;
        match file.is_registered_memory() {
            true => seen.memory_stores += file_use.stores,
            false => seen.file_stores += file_use.stores,
        }
    }
    let end = outline.end.unwrap_or_default();
    let program = Program {
        status: end.status,
        signal: end.signal,
        asked_to_end: end.interrupted || end.terminated,
        command: outline.header.command.clone(),
    };
    let incomplete = &outline.incomplete;
    let summary = TraceSummary {
        stores: outline.counts.stores,
        flushes: outline.counts.flushes,
        fences: outline.counts.fences,
        complete: incomplete.is_empty(),
        incomplete: incomplete.iter().map(|incomplete| incomplete.detail.clone()).collect(),
    };
    (program, summary, seen)
}
