//! The data of a page, as its script reads it. What `--json` has, with frames, stacks, files and recurring texts in tables,
//! so that a thousand findings stay small, and with what the page cannot make by itself: the source around every place, and
//! the words for each kind of finding.
//!
//! A number where one would expect a stack, a frame, a file or a text is an index into the table of that name.

use std::collections::BTreeMap;

use crashproof_finding::picture::{LineState, Sample, StoreOutcome, TimelineKind};
use crashproof_finding::{DurableByKind, Inconclusive, Severity, Stats, TraceSummary};
use serde::Serialize;

/// Of the shape of this data; the script refuses others.
pub const VERSION: u32 = 1;

#[derive(Debug, Default, Serialize)]
pub struct Page {
    pub version: u32,
    pub title: String,
    /// The command line that made it.
    pub command: String,
    /// "crashproof 0.1.0".
    pub generated_by: String,
    /// One for `check` and `crash`; of `test` one for each command that it ran.
    pub runs: Vec<Run>,
    /// The kinds that occur, by name.
    pub kinds: BTreeMap<&'static str, Kind>,
    pub files: Vec<File>,
    pub frames: Vec<Frame>,
    /// Innermost frame first.
    pub stacks: Vec<Vec<usize>>,
    pub texts: Vec<String>,
    /// Paths of PM files.
    pub pm_files: Vec<String>,
    /// Paths of executables and libraries.
    pub modules: Vec<String>,
}

/// What came of one command.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    /// "check", "crash", "check append".
    pub name: String,
    /// It could not be done, and why; then there is nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub program: Program,
    pub trace: TraceSummary,
    /// Why no finding does not mean clean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inconclusive: Vec<Inconclusive>,
    pub findings: Vec<Finding>,
    pub warnings: Vec<String>,
    /// The PM files that were looked at, and those left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileLine>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<FileLine>,
    /// Of a crash test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// It was compared with a baseline: findings may be `known`.
    pub compared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Sample>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
}

/// What is said of a PM file.
#[derive(Debug, Serialize)]
pub struct FileLine {
    pub path: String,
    /// "111 stores, 3 flushes"; "a lock file; --pm lock.mdb".
    pub words: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Program {
    pub command: Vec<String>,
    /// "exited with status 0", "was ended by signal 6 (SIGABRT)".
    pub ended: String,
}

/// A unified diff, `a/` and `b/` before the paths.
#[derive(Debug, Serialize)]
pub struct Patch {
    pub diff: String,
    /// The patched program was built, run and checked again.
    pub verified: bool,
    /// Indices of the run's findings that it repairs.
    pub findings: Vec<usize>,
}

/// The words for a kind of finding.
#[derive(Debug, Serialize)]
pub struct Kind {
    pub severity: Severity,
    /// One sentence that says what the kind is.
    pub summary: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do, unless the finding knows better.
    pub help: &'static str,
}

/// A source file.
#[derive(Debug, Default, Serialize)]
pub struct File {
    /// Relative to the folder in which the command ran, if it is below.
    pub path: String,
    /// In order, apart from each other by at least one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excerpts: Vec<Excerpt>,
    /// Why there are no excerpts, or why they may not be what was compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt {
    /// Number of the first line.
    pub first: u32,
    pub lines: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Only where there is no source position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<usize>,
    /// In the module, hexadecimal; only where there is no source position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Inlined into the next frame.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    /// Key of [`Page::kinds`].
    pub kind: &'static str,
    pub severity: Severity,
    pub message: String,
    /// How often it happened with this stack.
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    pub stack: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pm: Option<Range>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_by: Option<DurableBy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// Texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<usize>,
    /// A text; without it the kind's help holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<usize>,
    /// The baseline has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// The run's patch repairs it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repaired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// Frames: the first has to persist before the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<(usize, usize)>,
    /// The most important first; at most one a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// A place to be marked in the source.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    pub file: usize,
    pub line: u32,
    /// What to mark in the line, in UTF-16 units as JavaScript counts; without it the source is not as it was compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(usize, usize)>,
    pub roles: Vec<Role>,
    /// A text.
    pub label: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Store,
    Flush,
    Fence,
    /// By which the data had to be durable: the end of a transaction, an unmapping, the program's end.
    End,
    /// Crash: a store that had not persisted, had persisted, was still to come; the last thing before power failed.
    Missing,
    Persisted,
    Later,
    Crash,
    Related,
}

/// Of a PM file.
#[derive(Debug, Serialize)]
pub struct Range {
    /// Index of [`Page::pm_files`].
    pub file: usize,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Serialize)]
pub struct DurableBy {
    pub kind: DurableByKind,
    /// A text.
    pub label: usize,
    pub stack: usize,
}

#[derive(Debug, Serialize)]
pub struct Related {
    /// A text.
    pub message: usize,
    pub stack: usize,
}

#[derive(Debug, Serialize)]
pub struct Crash {
    /// Of the last store that had been executed.
    pub after: usize,
    pub after_stack: usize,
    pub persisted: Vec<CrashStore>,
    pub missing: Vec<CrashStore>,
    pub recovery: Recovery,
    pub states: u64,
    /// The command that reproduces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// 1: a crash of the program; 2: of its recovery.
    pub depth: u32,
    /// Not reduced to what matters: the test ended before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreduced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<Graph>,
    /// Why there is no timeline, or no graph, or less of it than there could be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
pub struct CrashStore {
    pub frame: usize,
    pub stack: usize,
    pub pm: Range,
    /// The first 64 bytes, as hexadecimal digits.
    pub data: String,
    /// Else the program was still to make it.
    pub executed: bool,
    /// What it is, in words, if it is no store: "the new size of pool (8192 bytes)".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Index of the timeline's event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<usize>,
}

#[derive(Debug, Serialize)]
pub struct Recovery {
    pub command: String,
    /// "exited with status 1".
    pub ended: String,
    /// The last part of each.
    pub stdout: String,
    pub stderr: String,
}

/// One row a cache line, time to the right; every event is a step.
#[derive(Debug, Serialize)]
pub struct Timeline {
    pub lines: Vec<TimelineLine>,
    pub events: Vec<TimelineEvent>,
    /// Earlier events of these lines that are not shown.
    pub omitted: u64,
    /// Lines that are not shown.
    pub more_lines: u64,
}

#[derive(Debug, Serialize)]
pub struct TimelineLine {
    /// Index of [`Page::pm_files`].
    pub file: usize,
    pub offset: u64,
    /// Before the first event.
    pub state: LineState,
}

#[derive(Debug, Serialize)]
pub struct TimelineEvent {
    /// Number in the trace.
    pub seq: u64,
    pub kind: TimelineKind,
    pub thread: u32,
    pub frame: usize,
    /// Rows that it touches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// What is stored, as hexadecimal digits (at most 64 bytes); what is output; what happens to the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Of a gap: how many events are not shown there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// Of a store that ends in one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<StoreOutcome>,
    /// Of one that is torn: offset, length, outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(u64, u64, StoreOutcome)>,
    /// Rows whose state it changes, and to what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<(usize, LineState)>,
}

#[derive(Debug, Serialize)]
pub struct Graph {
    pub types: Vec<String>,
    pub represents: u64,
    pub nodes: Vec<GraphNode>,
    /// Nodes: the first must persist before the second.
    pub edges: Vec<(usize, usize)>,
}

#[derive(Debug, Serialize)]
pub struct GraphNode {
    /// Which of the types.
    pub of: usize,
    pub field: String,
    pub frame: usize,
    pub pm: Range,
    pub seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<StoreOutcome>,
}

#[derive(Debug, Serialize)]
pub struct Traffic {
    /// `None`: unknown, or the sum of several (`functions`).
    pub function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<usize>,
    pub stores: u64,
    pub bytes: u64,
    pub flushes: u64,
    pub fences: u64,
    pub redundant_flushes: u64,
    pub redundant_fences: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<u64>,
    /// Where it is called from, the most costly first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Caller>,
}

#[derive(Debug, Serialize)]
pub struct Caller {
    pub frame: usize,
    pub stores: u64,
    pub flushes: u64,
    pub fences: u64,
    pub redundant_flushes: u64,
    pub redundant_fences: u64,
}
