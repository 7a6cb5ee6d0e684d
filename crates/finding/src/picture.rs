//! What the HTML report draws beside the findings: the cache lines before a crash, the persistence graph of an update
//! behaviour, how a crash test went, and who causes the PM traffic. Analyses fill it in when it is asked for.

use serde::{Deserialize, Serialize};

use crate::Frame;

/// What happened to the cache lines that matter to a crash, up to it and a little beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The rows, by file and offset.
    pub lines: Vec<TimelineLine>,
    /// In the order of the trace. One of them is the crash.
    pub events: Vec<TimelineEvent>,
    /// Events of these lines before the first one shown, which were left out for their number.
    #[serde(default)]
    pub omitted: u64,
    /// Lines that were left out for their number.
    #[serde(default)]
    pub more_lines: u64,
}

/// A row: a cache line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineLine {
    /// The PM file's path.
    pub file: String,
    /// Of the line's first byte.
    pub offset: u64,
    /// Before the first event shown.
    pub state: LineState,
}

/// An event that touches the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEvent {
    /// Its number in the trace; of the crash, that of the event before which power fails.
    pub event: u64,
    /// What happened.
    pub kind: TimelineKind,
    /// Number of the thread.
    pub thread: u32,
    /// Where in the source.
    pub frame: Frame,
    /// The rows that it touches: those that a store changes or a flush is for; of a fence those that it made persistent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<usize>,
    /// Of what is stored or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// The beginning of what the program printed; what happened to the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Of a gap: how many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    /// The rows whose state it changes, and to what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<(usize, LineState)>,
}

/// What happened at an event of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimelineKind {
    /// A store.
    Store,
    /// A non-temporal store.
    NtStore,
    /// clwb, clflushopt: pending until the thread's next fence.
    Flush,
    /// clflush: persistent at once.
    FlushNow,
    /// A fence.
    Fence,
    /// msync, fsync.
    Sync,
    /// write(2) to the PM file.
    Write,
    /// The PM file appears, gets another size or another name, or goes away.
    File,
    /// The program printed something.
    Output,
    /// Events that are left out for their number.
    Gap,
    /// Power fails.
    Crash,
}

/// The bytes of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// First byte in the PM file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The first 64 of them, as hexadecimal digits.
    pub data: String,
    /// What became of it in the crash, piece by piece if it tears: offset, length, outcome.
    pub pieces: Vec<(u64, u64, StoreOutcome)>,
}

/// What became of a store in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreOutcome {
    /// Flushed and fenced before the crash: it survives every crash from here on.
    Certain,
    /// Not guaranteed, and it had persisted.
    Persisted,
    /// Lost.
    Missing,
    /// The program was still to make it.
    Later,
}

/// State of a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineState {
    /// Not stored to so far, or all that was stored is persistent.
    Persistent,
    /// Holds a store that nothing has flushed.
    Dirty,
    /// All that is not persistent is flushed, or non-temporal, and waits for a fence.
    Pending,
}

/// The persistence graph of an update behaviour: what must persist before what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// One type, or two if the behaviour is joint.
    pub types: Vec<String>,
    /// How many behaviours of the run are like it, itself included.
    pub represents: u64,
    /// In the order of execution.
    pub nodes: Vec<GraphNode>,
    /// Indices of nodes: the first must persist before the second. What follows from others is left out.
    pub edges: Vec<(usize, usize)>,
}

/// An update of a behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphNode {
    /// Which of the types.
    pub of: usize,
    /// As the type has it; where the code has no types, the place in the code.
    pub field: String,
    /// Where in the source.
    pub frame: Frame,
    /// Path of the PM file.
    pub pm_file: String,
    /// First byte in the PM file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Number of the store in the trace.
    pub event: u64,
    /// In the crash of the finding, as far as it is among what matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<StoreOutcome>,
}

/// How far a crash test was at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the start of the test.
    pub seconds: f64,
    /// States tested by then.
    pub tested: u64,
    /// States by then after which the recovery failed.
    pub failed: u64,
    /// Causes known by then.
    pub findings: u64,
}

/// What a function does to PM, itself or by what it calls in libraries without source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// `None`: unknown, or all that the list has no room for.
    pub function: Option<String>,
    /// Path of its source file.
    pub file: Option<String>,
    /// Stores to PM.
    pub stores: u64,
    /// Stored.
    pub bytes: u64,
    /// Flushes of PM.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Of the flushes those that found nothing to flush.
    pub redundant_flushes: u64,
    /// Of the fences those that had nothing to wait for.
    pub redundant_fences: u64,
    /// How many functions it is the sum of, if of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u64>,
    /// Where it is called from, the most costly first; not all, if there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Caller>,
}

/// A place from which a function is called, and what part of its traffic is on behalf of that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The call.
    pub frame: Frame,
    /// Stores to PM.
    pub stores: u64,
    /// Flushes of PM.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Flushes that found nothing to flush.
    pub redundant_flushes: u64,
    /// Fences that had nothing to wait for.
    pub redundant_fences: u64,
}
