//! `crashproof record`.

use std::ffi::OsString;
use std::path::Path;

use crashproof_record::{RecordOptions, Recorded};

use super::Result;
use crate::arguments::{RecordArguments, RecordingOptions, Switch};
use crate::exit::Exit;
use crate::{runtime, terminal};

pub fn run(arguments: &RecordArguments) -> Result {
    let recorded = record(
        &arguments.command,
        &arguments.output,
        &arguments.recording,
        Manner {
            dependences: !arguments.no_deps,
            ..Manner::default()
        },
    )?;
    if recorded.dependences {
        terminal::note(&"recorded the version of the program that follows dependences (--no-deps: the optimised one)");
        if !recorded.unlabelled.is_empty() {
            terminal::note(&format_args!(
                "what {} loads from persistent memory was not seen: it was not built by crashproof cc --deps",
                recorded.unlabelled.join(", ")
            ));
        }
        if recorded.cuts > 0 {
            terminal::note(&format_args!(
                "{} labels had more than 64 members; the farthest were left out",
                recorded.cuts
            ));
        }
    }
    if recorded.trace != arguments.output {
        terminal::warning(&format_args!(
            "{} is as it was before; what was recorded is in {}",
            arguments.output.display(),
            recorded.trace.display()
        ));
    }
    for incomplete in &recorded.incomplete {
        terminal::warning(&format_args!("the trace is incomplete: {}", incomplete.detail));
    }
    Ok(match (recorded.end.signal, recorded.end.status) {
        (Some(signal), _) => Exit::Signal(signal),
        (None, Some(status)) => Exit::Status(status),
        (None, None) => Exit::Failed,
    })
}

/// How a program is recorded, beside what the user chooses.
#[derive(Clone, Copy, Default)]
pub struct Manner {
    /// The version that follows dependences, if the program has one.
    pub dependences: bool,
    /// It does not outlive us.
    pub kept: bool,
    /// What it prints to its standard output is not shown.
    pub quiet: bool,
    /// What helps if there is no room for the trace.
    pub remedy: Option<&'static str>,
}

/// Runs the program and writes its trace.
pub fn record(
    command: &[OsString],
    output: &Path,
    options: &RecordingOptions,
    manner: Manner,
) -> std::result::Result<Recorded, Box<dyn std::error::Error>> {
    Ok(crashproof_record::record(&RecordOptions {
        command: command.to_vec(),
        output: output.to_owned(),
        pm: options.pm.clone(),
        client_requests: options.client_requests == Switch::On,
        locked_rmw: options.locked_rmw,
        runtime: runtime::find()?,
        dependences: manner.dependences,
        kept: manner.kept,
        quiet: manner.quiet,
        remedy: manner
            .remedy
            .unwrap_or("free some space, or choose another place with -o"),
    })?)
}
