//! What a worker is started with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use crashproof_wire::recovery::Mapping;

/// Enough of what a command prints, for those who only want to show it.
pub const DEFAULT_CAPTURE: u64 = 64 << 10;

/// A command of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments, started directly: it can be parked at `main`.
    Direct(Vec<OsString>),
    /// For `/bin/sh -c`.
    Shell(OsString),
}

#[derive(Clone, Debug)]
pub struct PmFile {
    /// Absolute, as the recorded program had it when it first mapped the file.
    pub path: PathBuf,
    /// The file's size at first, and whether it is there at first.
    pub size: u64,
    pub present: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Pages written, so that they can be put back.
    Writes,
    /// What the recovery looks at, too.
    Reads,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For one run of the recovery, and for one of the checker.
    pub time: Duration,
    /// Private memory of one process, in bytes.
    pub memory: u64,
    /// What the recovery may write to files, in bytes, beside the PM files.
    pub disk: u64,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub files: Vec<PmFile>,
    pub recover: Command,
    /// Run after a recovery that succeeded, on what it left.
    pub check: Option<Command>,
    /// Absolute: where both are started.
    pub directory: PathBuf,
    pub limits: Limits,
    pub track: Track,
    /// Pages (index of the file, offset) whose lines are told apart when reads are tracked.
    pub fine: Vec<(usize, u64)>,
    /// Where the recorded program had the files mapped.
    pub mappings: Vec<Mapping>,
    /// Set in the environment of both commands, beside that of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The shared object to preload.
    pub runtime: PathBuf,
    /// The program that becomes the supervisor when its only argument is `sandbox-supervisor`.
    pub supervisor: PathBuf,
    /// Start a process for each run, also where parking at `main` would work.
    pub no_server: bool,
    /// Compare all of the image after each run, also where the runtime watches.
    pub compare: bool,
    /// Files of the user's that are not there for the recovery, unless a PM file is put in their place.
    pub hidden: Vec<PathBuf>,
    /// What is kept of what a command prints to stdout or stderr, in bytes.
    pub capture: u64,
}
