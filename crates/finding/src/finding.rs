//! `Finding`: the only thing that analyses produce and reports (and repairs) read. Its serialised form is the JSON contract.

pub use crashproof_base::LeftOutReason;
use serde::{Deserialize, Serialize};

use crate::conclusive::Inconclusive;
use crate::picture::{Graph, Sample, Timeline, Traffic};
use crate::words::signal_name;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A store is never flushed.
    MissingFlush,
    /// A store is flushed and no fence waits for it.
    MissingFence,
    /// A flush of a line that was flushed since the last store to it.
    RedundantFlush,
    /// A flush of a line that was not stored to.
    FlushUnmodified,
    /// A fence with nothing to wait for.
    RedundantFence,
    /// Data that is never flushed, and need not be.
    TransientData,
    /// Store in a transaction to memory of an object of it that no snapshot covers.
    TxStoreNotSnapshotted,
    /// The same range is snapshotted twice in one transaction (redundant undo log).
    TxSnapshotTwice,
    /// A range that overlaps another one is snapshotted in one transaction.
    TxSnapshotOverlap,
    /// Store, outside any transaction, to a range that is modified transactionally.
    TxStoreOutside,
    /// Rule `must-persist-before` of crashproof.toml violated.
    RuleOrder,
    /// Rule `must-be-in-transaction` of crashproof.toml violated.
    RuleTransaction,
    /// `CRASHPROOF_EXPECT_DURABLE` or `CRASHPROOF_OP_END` does not hold.
    ExpectDurable,
    /// `CRASHPROOF_EXPECT_ORDER` does not hold.
    ExpectOrder,
    /// Recovery fails from a crash state that another order of the same updates would exclude.
    CrashOrder,
    /// Recovery fails from a crash state that no order excludes: the updates must be one.
    CrashAtomicity,
    /// What the program had acknowledged in its output is lost.
    CrashDurability,
}

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A bug.
    Error,
    /// Costs time, or is a bug in some program.
    Warning,
    /// Worth knowing.
    Note,
}

/// A source position with its function; `None` where the debug info has nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Name of the function.
    pub function: Option<String>,
    /// Path of the source file.
    pub file: Option<String>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
    /// Column in the line, from 1.
    pub column: Option<u32>,
    /// The module's path, and the address in it.
    pub module: Option<String>,
    /// Address of the instruction in the module.
    pub address: u64,
    /// Inlined into the next frame.
    #[serde(default)]
    pub inlined: bool,
    /// Of a function that only does to its parameters what its caller asked for: the place to show is the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub helper: bool,
}

/// A range of a PM file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Path of the PM file.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The event by which a store had to be durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableBy {
    /// The kind of event.
    pub kind: DurableByKind,
    /// Call stack of the event.
    pub stack: Vec<Frame>,
}

/// The kind of event by which a store had to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurableByKind {
    /// The fence of another store that comes later.
    Fence,
    /// The end of a transaction.
    TxEnd,
    /// The file was unmapped.
    Unmap,
    /// The program ended.
    Exit,
}

/// Another place that explains the finding ("flushed first here").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Related {
    /// What that place has to do with the finding.
    pub message: String,
    /// Its call stack.
    pub stack: Vec<Frame>,
}

/// One bug, at one call path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// Position: that of the store for missing-*, of the flush or fence for redundant ones; the innermost frame with
    /// debug info.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<u32>,
    /// Column in the line.
    pub column: Option<u32>,
    /// The function that the position is in.
    pub function: Option<String>,
    /// How often it happened with this stack.
    pub count: u64,
    /// The finding in one sentence.
    pub message: String,
    /// The bytes that it is about.
    pub address: Option<Address>,
    /// Call stack of the event, innermost frame first.
    pub stack: Vec<Frame>,
    /// The event by which a store had to be durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_by: Option<DurableBy>,
    /// The optimiser merged several source lines into this instruction; the line is the nearest known one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// Other places that explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
    /// What the user should know beside the message (for example: locked instructions on volatile memory are not seen).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Of `crash-*`: the crash that recovery did not survive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// Of `crash-order`: what has to persist before what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<Order>,
}

impl Finding {
    /// Whether one of its addresses is in this PM file.
    pub fn is_in(&self, path: &str) -> bool {
        let stores = self.crash.iter();
        let stores = stores.flat_map(|crash| crash.persisted.iter().chain(&crash.missing));
        let mut places = self.address.iter().chain(stores.map(|store| &store.pm));
        places.any(|at| at.file == path)
    }
}

/// A crash after which recovery fails, reduced to what matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// The last store that had been executed.
    pub after: Frame,
    /// Its whole call stack.
    pub after_stack: Vec<Frame>,
    /// Stores that had persisted and matter.
    pub persisted: Vec<CrashStore>,
    /// Stores that had been executed, or come later, and had not persisted.
    pub missing: Vec<CrashStore>,
    /// How the recovery ended.
    pub recovery: RecoveryOutcome,
    /// How many of the tested states fail for this reason.
    pub states: u64,
    /// In how many operations of a driver they are, and on how many different sets of basic blocks; 0 where the program was not built with
    /// `cc --deps`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub operations: u64,
    /// Number of different sets of basic blocks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paths: u64,
    /// Where the failing image is saved, and the command that reproduces the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// 1: a crash of the program; 2: of its recovery.
    pub depth: u32,
    /// The test ended before it could be reduced: all uncertain stores are named, and the kind is a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreduced: bool,
    /// Power fails just before this event of the trace, as `crashproof dump` numbers them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// What the program relies on, by its own code, and the crash took away; where its dependences are known (`cc --deps`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violates: Option<ViolatedCondition>,
    /// The cache lines of these stores; for `--html` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The update behaviour that they belong to; for `--html` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Graph>,
    /// Where the output of a driver is judged: what it printed, and what it had to print.
    #[serde(flatten)]
    pub output: Option<OutputDifference>,
}

/// A condition that `crashproof infer` lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolatedCondition {
    /// "PO3", as the paper has it.
    pub rule: String,
    /// "`key` must persist before `token`, because …".
    pub text: String,
    /// The access of the program that says so.
    pub because: Frame,
}

/// What a driver of operations printed after a crash, beside what would have been right. In JSON its fields are those of the crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputDifference {
    /// The crash is in this operation; the number of operations, if it is after the last.
    pub operation: u64,
    /// Its line in the file of operations.
    #[serde(default, rename = "operation_text", skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The creation of the pool was crashed, too, and this crash is in it or in operation 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub creation: bool,
    /// The first operation after it that printed something that no oracle has; none if that is the probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs_at: Option<u64>,
    /// Line of that operation in the file of operations.
    #[serde(default, rename = "differs_at_text", skip_serializing_if = "Option::is_none")]
    pub differs_text: Option<String>,
    /// Operations that were done after it; one line each, the probe comes after them.
    pub operations_after: u64,
    /// The first line of the output that no oracle has, and the first one that is in the lists here, from 0.
    pub first_line: u64,
    /// Number of the first line that is in the lists here, from 0.
    pub lines_from: u64,
    /// One of these would have been right.
    pub expected: Vec<ExpectedOutput>,
    /// What the program printed, from that line on.
    pub got: Vec<String>,
}

impl OutputDifference {
    /// Where the crash is, after "in"; none if it is after the last operation.
    pub fn interrupted(&self) -> Option<String> {
        let text = self.text.as_ref()?;
        let creation = if self.creation {
            "the creation of the pool or in "
        } else {
            ""
        };
        Some(format!("{creation}operation {} ({text})", self.operation))
    }
}

/// An output that would have been right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedOutput {
    /// What became of the interrupted operation: "done", "left out".
    pub outcome: String,
    /// Its lines.
    pub output: Vec<String>,
}

/// A store in a crash state. In JSON the fields of its frame come first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashStore {
    /// The blamed frame.
    #[serde(flatten)]
    pub frame: Frame,
    /// The call stack of the store.
    pub stack: Vec<Frame>,
    /// The bytes that it wrote.
    pub pm: Address,
    /// What was stored, as hexadecimal digits.
    pub data: String,
    /// Before the crash; otherwise the program was still to make it.
    #[serde(default = "executed")]
    pub executed: bool,
    /// If it is no store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<FileOperation>,
    /// Its number in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
}

/// What a program does to a PM file beside storing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOperation {
    /// It is there from then on.
    Made,
    /// It has another size from then on.
    Resized {
        /// The new size.
        size: u64,
    },
    /// It has another name from then on.
    Renamed {
        /// The new path.
        path: String,
    },
    /// It is deleted.
    Removed,
    /// By write(2).
    Written,
}

impl FileOperation {
    /// "the new size of pool (8192 bytes)"; `file` is the file's name.
    pub fn in_words(&self, file: &str) -> String {
        match self {
            FileOperation::Made => format!("the file {file} itself"),
            FileOperation::Resized { size } => format!("the new size of {file} ({size} bytes)"),
            FileOperation::Renamed { path } => format!("the new name of {file} ({path})"),
            FileOperation::Removed => format!("the removal of {file}"),
            FileOperation::Written => format!("what was written to {file}"),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn uncounted() -> u64 {
    u64::MAX
}

fn is_uncounted(number: &u64) -> bool {
    *number == u64::MAX
}

fn executed() -> bool {
    true
}

/// How the recovery, or the checker after it, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryOutcome {
    /// The command that failed: the recovery or the checker.
    pub command: String,
    /// Exit status, if it exited.
    pub status: Option<i32>,
    /// Signal that ended it, if one did.
    pub signal: Option<i32>,
    /// It did not end within the time limit.
    pub timeout: bool,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it wrote to its standard error.
    pub stderr: String,
    /// The output is not the expected one (`--expect-output`).
    #[serde(default)]
    pub unexpected_output: bool,
}

impl RecoveryOutcome {
    /// "recovery exited with status 1"; `who` is what it was that ended.
    pub fn in_words(&self, who: &str) -> String {
        match (self.timeout, self.signal, self.status) {
            _ if self.unexpected_output => format!("{who} printed something else than expected"),
            (true, ..) => format!("{who} did not end within the time limit"),
            (_, Some(signal), _) => format!("{who} was ended by signal {signal}{}", signal_name(signal)),
            (_, None, Some(status)) => format!("{who} exited with status {status}"),
            (_, None, None) => format!("{who} failed"),
        }
    }
}

/// How to see the failure again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// The directory with the failing image.
    pub directory: String,
    /// The command that runs the recovery on it.
    pub command: String,
}

/// `before` has to persist before `after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What must persist first.
    pub before: Frame,
    /// What must persist later.
    pub after: Frame,
    /// The numbers of their events in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_event: Option<u64>,
    /// See `before_event`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_event: Option<u64>,
}

/// How much of the state space was tested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Name of the strategy.
    pub strategy: String,
    /// Allowed crash states; `u64::MAX`, which is left out of JSON, if there are more than were counted.
    #[serde(default = "uncounted", skip_serializing_if = "is_uncounted")]
    pub states_total: u64,
    /// Crash states that were tested.
    pub states_tested: u64,
    /// Not run because their outcome is known: same content, or same in all that the recovery reads.
    pub states_pruned: u64,
    /// Crash states after which the recovery failed.
    pub states_failed: u64,
    /// How often a recovery was run for them, this time: not for what `--resume` knew.
    #[serde(default)]
    pub recoveries: u64,
    /// With `--oracle output`: how often the driver was run to know what it would print without a crash.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oracle_runs: u64,
    /// If there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// Crash points (of `representative`: those of the behaviours that it tests), and those of them at which some state was
    /// tested or known.
    #[serde(default)]
    pub points_total: u64,
    /// Crash points at which some state was tested or known.
    #[serde(default)]
    pub points_reached: u64,
    /// How long the test took.
    pub seconds: f64,
    /// The budget ended it before all states were tested.
    pub cut_short: bool,
    /// Of the strategy `representative`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behaviours: Option<Behaviours>,
    /// What ran: one strategy, or those that `auto` consists of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<StrategyRun>,
}

/// How far a strategy of a crash test got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyRun {
    /// Its name.
    pub name: String,
    /// Crash states that it tested and no strategy before it had.
    pub states_tested: u64,
    /// Findings that were made while it ran.
    pub findings: u64,
    /// Why it stopped.
    pub ended: StrategyEnd,
}

/// Why a strategy of a crash test stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyEnd {
    /// It tested all that it had planned.
    Done,
    /// The budget ended it.
    Budget,
    /// `--fail-fast`, an interruption or an error ended it.
    Stopped,
    /// The budget ended before its turn came.
    #[default]
    NotBegun,
}

/// When the first state failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirstFailure {
    /// Tested by then, this one included.
    pub states: u64,
    /// From the start of the test, after the recording.
    pub seconds: f64,
}

/// What the strategy `representative` found in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviours {
    /// Update behaviours of one object.
    pub single: u64,
    /// Of two objects that are unordered with each other, or linked.
    pub joint: u64,
    /// Behaviours that no other represents, of one object and of two.
    pub single_groups: u64,
    /// Groups of behaviours of two objects.
    pub joint_groups: u64,
    /// Not taken for behaviours: too many updates.
    pub too_large: u64,
    /// Crash states of the representatives, what two of them have counted twice; `u64::MAX`, which is left out of JSON, if there are more
    /// than were counted.
    #[serde(default = "uncounted", skip_serializing_if = "is_uncounted")]
    pub states_planned: u64,
    /// Points at which a behaviour has more states than the strategy tests.
    pub points_in_part: u64,
}

/// What `--json` writes and every other rendering starts from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// How the program ended.
    pub program: Program,
    /// What the trace has.
    pub trace: TraceSummary,
    /// Why no finding does not mean clean, beside an incomplete trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inconclusive: Vec<Inconclusive>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// What the user should know of the check as a whole (an `[[ignore]]` that matched nothing, missing debug info).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The PM files whose stores are in the trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileLookedAt>,
    /// The files that the program mapped or tried to open, and whose stores are not in the trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<FileLeftOut>,
    /// Of a crash test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// Of a comparison with a baseline: the findings (their indices, ascending) that it has, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<usize>,
    /// Of a repair: the patch of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Patch>,
    /// Of a crash test: how it went; for `--html` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<Sample>,
    /// Who stores, flushes and fences, most costly first; for `--html` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
}

impl Report {
    /// Whether the baseline has the finding of this index, too.
    pub fn is_known(&self, finding: usize) -> bool {
        self.known.binary_search(&finding).is_ok()
    }

    /// Counts the findings in each file.
    pub fn count_findings(&mut self) {
        for file in &mut self.files {
            let is_here = |finding: &&Finding| finding.is_in(&file.path);
            file.findings = self.findings.iter().filter(is_here).count() as u64;
        }
    }

    /// Whether there is a finding that is not in the baseline, of this severity or worse.
    pub fn fails(&self, severity: Severity) -> bool {
        let mut new = (0..).zip(&self.findings).filter(|(index, _)| !self.is_known(*index));
        new.any(|(_, finding)| finding.severity <= severity)
    }
}

/// A PM file that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLookedAt {
    /// Path of the file.
    pub path: String,
    /// Stores to it.
    pub stores: u64,
    /// Flushes of its lines.
    pub flushes: u64,
    /// msync, fsync, fdatasync.
    pub syncs: u64,
    /// Findings of the report whose address is in it; each call path is one of its own.
    pub findings: u64,
    /// The program deleted it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Findings that are not in the report, because the program deleted the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_shown: u64,
}

/// A file whose stores are not in the trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLeftOut {
    /// Path of the file.
    pub path: String,
    /// Why its stores are not in the trace.
    #[serde(with = "crate::files::reason")]
    pub reason: LeftOutReason,
    /// Why it could not be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The option that brings it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
}

/// A change of the source that repairs findings, all of them together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// A unified diff, with `a/` and `b/` before the paths.
    pub diff: String,
    /// What the diff does to each file.
    #[serde(default)]
    pub files: Vec<FileChange>,
    /// The patched program was built, run and checked again.
    pub verified: bool,
    /// Indices of the findings that it repairs.
    pub findings: Vec<usize>,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Relative to the source tree.
    pub path: String,
    /// In the order of the file; they do not overlap.
    pub replacements: Vec<Replacement>,
}

/// Whole lines of a file that give way to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The first line that is deleted, from 1. If none is, the new lines come before this one.
    pub line: u32,
    /// How many lines are deleted.
    pub deleted: u32,
    /// The new lines, with their line ends.
    pub inserted: String,
}

/// The program that was recorded, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Exit status, if it exited.
    pub status: Option<i32>,
    /// Signal that ended it, if one did.
    pub signal: Option<i32>,
    /// By the user: Ctrl-C, or a signal sent to crashproof and passed on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_to_end: bool,
    /// Its command line.
    #[serde(default)]
    pub command: Vec<String>,
}

/// What a trace has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceSummary {
    /// Stores to PM.
    pub stores: u64,
    /// Flushes of PM.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Every event of the program is in it.
    pub complete: bool,
    /// Why it is not complete.
    #[serde(default)]
    pub incomplete: Vec<String>,
}
