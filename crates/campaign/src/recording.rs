//! A recording with the options of the command line.

use std::ffi::OsString;
use std::path::Path;

use crashproof_record::{RecordOptions, Recorded};

use crate::options::{RecordingOptions, Switch};
use crate::{Error, runtime};

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
) -> Result<Recorded, Error> {
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
