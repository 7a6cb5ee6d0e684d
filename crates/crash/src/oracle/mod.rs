//! Output equivalence: what a driver of operations prints after a crash must be what it prints if the interrupted operation was
//! done, or if it was left out (Witcher, SOSP 2021, section 4.4). Nobody has to say what is right: the program itself does.
//!
//! Operations are numbered from 0. After a crash in operation k the driver recovers, does the operations from k+1 on, and probes the
//! structure. All that it prints is compared, with one oracle or the other as a whole; what k itself prints is not.
//!
//! - *Done* is what the one recorded run printed for the same operations, and the probe of the pool as it was after them ([`mod@reference`]).
//! - *Left out* is what the driver prints if it is run on the pool as it was before k. It is only computed where *done* does
//!   not match.
//!
//! Deviations from the paper: it runs all operations that remain, here 64 do unless more are asked for, and the probe shows what they
//! do not read. It runs the oracles from an empty pool; here they begin with the snapshot of the pool that the trace has at
//! every boundary, so that they cost the same for any k.
//!
//! What it may miss: what neither 64 operations nor the probe print; a recovery that changes an undisturbed pool and
//! the crashed one alike. What it never reports: a state from which the driver prints what an oracle prints.

mod compare;
mod driver;
pub mod generate;
mod reference;
pub mod shrink;
pub mod transient;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crashproof_model::WORD;
use crashproof_trace::{Boundaries, EventKind, Item, Operations, TraceFile};

use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::executor::Executor;
use crate::hash::Fold;
pub use driver::DriverError;
use driver::Recorded;
use reference::Reference;

/// Operations after the interrupted one, unless the user says otherwise.
pub const DEFAULT_SUFFIX: u64 = 64;

/// The line after which a driver prints its probe.
pub(crate) const PROBE: &[u8] = b"probe\n";

/// How many operations after the interrupted one are done before the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suffix {
    Operations(u64),
    /// As the paper does.
    All,
}

/// What a crash may undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Durable linearizability: the interrupted operation is done or not, those before it are done.
    Durable,
    /// Buffered: the last operations may be lost too, so many, as a consistent prefix; none up to the last sync operation that ended.
    Buffered { operations: u64, sync: Option<String> },
}

/// The operations, and how they are judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleOptions {
    /// As the driver is given it.
    pub file: PathBuf,
    /// Its lines.
    pub operations: Vec<String>,
    pub suffix: Suffix,
    pub criterion: Criterion,
    /// The driver makes its pool in the recorded run, before operation 0, and that is crashed, too. A crash in it is one in operation 0: what the
    /// driver finds is no pool, a part of one, or an empty one, and it has to print what operations print without operation 0.
    pub creation: bool,
}

impl OracleOptions {
    pub fn count(&self) -> u64 {
        self.operations.len() as u64
    }

    /// What the driver is given to do these operations and probe.
    pub fn arguments(&self, from: u64, to: u64, probe: bool) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--ops".into(), self.file.clone().into()];
        arguments.extend(["--from".into(), from.to_string().into()]);
        arguments.extend(["--to".into(), to.to_string().into()]);
        arguments.extend(probe.then(|| "--probe".into()));
        arguments
    }

    /// What is done after a crash in operation `k`.
    fn suffix(&self, k: u64) -> (u64, u64) {
        let from = (k + 1).min(self.count());
        let to = match self.suffix {
            Suffix::Operations(count) => from.saturating_add(count).min(self.count()),
            Suffix::All => self.count(),
        };
        (from, to)
    }

    /// The fewest operations, from the first on, that a crash in `k` has to leave done.
    fn least(&self, k: u64) -> u64 {
        match &self.criterion {
            Criterion::Durable => k,
            Criterion::Buffered { operations, sync } => {
                let word = |line: &String| line.split_whitespace().next().map(str::to_owned);
                let done = &self.operations[..k.min(self.count()) as usize];
                let synced = sync.as_ref().and_then(|name| {
                    let last = done.iter().rposition(|line| word(line).as_ref() == Some(name))?;
                    Some(last as u64 + 1)
                });
                k.saturating_sub(*operations).max(synced.unwrap_or(0))
            }
        }
    }
}

/// One of the outputs that would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// So many operations, from the first on, were done before those that are printed.
    pub done: u64,
    pub stdout: Vec<u8>,
}

/// The oracle of one recorded run. Shared by all workers.
pub struct OutputOracle {
    options: OracleOptions,
    recorded: Recorded,
    reference: Mutex<Reference>,
}

impl fmt::Debug for OutputOracle {
    /// What judges: two that show the same judge the same traces alike.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(formatter)
    }
}

impl OutputOracle {
    /// Reads what the recorded run printed. The executor is the oracle's own; the driver is run on snapshots with it.
    pub fn new(
        trace: &TraceFile,
        options: OracleOptions,
        campaign: &CampaignOptions,
        executor: Box<dyn Executor>,
    ) -> Result<OutputOracle, OracleError> {
        let recorded = Recorded::read(trace, &options)?;
        let reference = Reference::new(trace, campaign, executor, &options)?;
        Ok(OutputOracle {
            options,
            recorded,
            reference: Mutex::new(reference),
        })
    }

    /// Looks whether the driver is one: it follows the protocol, and what it prints depends on nothing but the operations. The
    /// executor maps the pool elsewhere than the recorded run had it.
    pub fn check_driver(
        &self,
        trace: &TraceFile,
        campaign: &CampaignOptions,
        elsewhere: Box<dyn Executor>,
    ) -> Result<(), OracleError> {
        driver::check(self, trace, campaign, elsewhere)
    }

    pub fn options(&self) -> &OracleOptions {
        &self.options
    }

    /// How often it had the driver run.
    pub fn runs(&self) -> u64 {
        self.reference().runs
    }

    /// The operation in which a crash lies before which so many bytes had been output; the number of operations if
    /// all had ended.
    pub fn operation(&self, output: u64) -> u64 {
        self.recorded.ended(output)
    }

    /// What the driver is given after such a crash.
    pub fn arguments(&self, output: u64) -> Vec<OsString> {
        let (from, to) = self.options.suffix(self.operation(output));
        self.options.arguments(from, to, true)
    }

    /// Whether what the driver printed after such a crash is right. If it would be but for what its recovery printed, that is the driver's
    /// mistake.
    pub fn accepts(&self, output: u64, stdout: &[u8]) -> Result<bool, CrashError> {
        if self.is_right(output, stdout)? {
            return Ok(true);
        }
        let (from, to) = self.options.suffix(self.operation(output));
        match driver::without_extra_lines(stdout, to - from) {
            Some((extra, rest)) if self.is_right(output, rest)? => {
                let line = String::from_utf8_lossy(extra)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                Err(DriverError::RecoveryPrints { line }.into())
            }
            _ => Ok(false),
        }
    }

    fn is_right(&self, output: u64, stdout: &[u8]) -> Result<bool, CrashError> {
        let k = self.operation(output);
        let (from, to) = self.options.suffix(k);
        let probe = stdout.strip_prefix(self.recorded.printed(from, to));
        let probe = probe.map(reference::digest);
        let mut reopened = probe;
        if let Some(probe) = probe {
            let mut reference = self.reference();
            match reference.probe_on_the_way(to, &self.recorded)? {
                Some(expected) if expected == probe => return Ok(true),
                // Most likely it was left out.
                Some(_) => {}
                None if reference.probe(to)? == probe => return Ok(true),
                None => reopened = None,
            }
        }
        let got = reference::digest(stdout);
        for done in self.undone(k) {
            if self.reference().on_snapshot(done, from, to)? == Some(got) {
                return Ok(true);
            }
        }
        // What is printed on the way may differ from what is printed after the pool was opened anew; both are right.
        match reopened {
            Some(probe) => Ok(self.reference().probe(to)? == probe),
            None => Ok(false),
        }
    }

    /// What had to be printed after such a crash: one of these.
    pub fn expected(&self, output: u64) -> Result<Vec<Expected>, CrashError> {
        let k = self.operation(output);
        let (from, to) = self.options.suffix(k);
        let mut reference = self.reference();
        let mut stdout = self.recorded.printed(from, to).to_vec();
        stdout.extend_from_slice(&reference.probe_text(to)?);
        let mut expected = vec![Expected { done: from, stdout }];
        // Not every prefix that is allowed: what the interrupted operation makes of it is what one wants to see.
        if let Some(done) = self.undone(k).next()
            && let Some(stdout) = reference.text_on_snapshot(done, from, to)?
        {
            expected.push(Expected { done, stdout });
        }
        Ok(expected)
    }

    /// The prefixes of the operations, beside the one with `k`, that may be all that is left of them; the longest first.
    fn undone(&self, k: u64) -> impl Iterator<Item = u64> + use<> {
        let least = self.options.least(k);
        // If no operation was interrupted, there is none to leave out.
        let most = if k == self.options.count() { k } else { k + 1 };
        (least..most).rev()
    }

    fn reference(&self) -> MutexGuard<'_, Reference> {
        // What it has computed stays right whoever panicked.
        self.reference.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That a trace is one of a driver that printed one line for each operation.
pub fn check_recording(trace: &TraceFile, options: &OracleOptions) -> Result<(), OracleError> {
    Recorded::read(trace, options).map(drop)
}

/// Operations that store to PM in another sequence in the one trace than in the other. Words are compared, not stores: compilers make one of
/// two, or two of one.
pub fn differing_operations(trace: &TraceFile, other: &TraceFile) -> Result<Vec<u64>, CrashError> {
    let (one, other) = (sequences(trace)?, sequences(other)?);
    let count = one.len().max(other.len());
    let differs = |&at: &usize| one.get(at) != other.get(at);
    Ok((0..count).filter(differs).map(|at| at as u64).collect())
}

/// By operation: a digest of the words that it stores to, in order.
fn sequences(trace: &TraceFile) -> Result<Vec<u128>, CrashError> {
    let mut reader = trace.files()?;
    let mut operations = Operations::new(Boundaries::Lines);
    let mut sequences: Vec<Fold> = Vec::new();
    let mut last = None;
    while let Some(item) = reader.next()? {
        let Item::Event(event) = item else { continue };
        let operation = operations.of(&event).unwrap_or(0) as usize;
        let EventKind::Store { at, data, .. } = event.kind else {
            continue;
        };
        if sequences.len() <= operation {
            sequences.resize_with(operation + 1, Fold::default);
        }
        for word in at.offset / WORD..(at.offset + data.len() as u64).div_ceil(WORD) {
            if last.replace((operation, at.file, word)) != Some((operation, at.file, word)) {
                sequences[operation].bytes(&[u64::from(at.file.0).to_le_bytes(), word.to_le_bytes()].concat());
            }
        }
    }
    Ok(sequences.into_iter().map(|fold| fold.0).collect())
}

/// Why outputs cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Crash(#[from] CrashError),
}

impl From<crashproof_trace::ReadError> for OracleError {
    fn from(error: crashproof_trace::ReadError) -> OracleError {
        OracleError::Crash(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(criterion: Criterion, suffix: Suffix) -> OracleOptions {
        let operations = ["put a", "sync", "put b", "put c", "put d"];
        OracleOptions {
            file: "ops".into(),
            operations: operations.map(str::to_owned).to_vec(),
            suffix,
            criterion,
            creation: false,
        }
    }

    #[test]
    fn what_is_done_after_a_crash() {
        let two = options(Criterion::Durable, Suffix::Operations(2));
        assert_eq!(
            [0, 2, 3, 4, 5].map(|k| two.suffix(k)),
            [(1, 3), (3, 5), (4, 5), (5, 5), (5, 5)]
        );
        let all = options(Criterion::Durable, Suffix::All);
        assert_eq!([0, 4].map(|k| all.suffix(k)), [(1, 5), (5, 5)]);
        let words = two.arguments(1, 3, true).join(std::ffi::OsStr::new(" "));
        assert_eq!(words, "--ops ops --from 1 --to 3 --probe");
    }

    #[test]
    fn what_a_crash_may_undo() {
        let durable = options(Criterion::Durable, Suffix::All);
        assert_eq!([0, 3, 5].map(|k| durable.least(k)), [0, 3, 5]);
        let buffered = |operations, sync: Option<&str>| {
            let sync = sync.map(str::to_owned);
            options(Criterion::Buffered { operations, sync }, Suffix::All)
        };
        assert_eq!([0, 1, 3, 5].map(|k| buffered(2, None).least(k)), [0, 0, 1, 3]);
        let synced = buffered(100, Some("sync"));
        assert_eq!([0, 1, 2, 5].map(|k| synced.least(k)), [0, 0, 2, 2]);
    }
}
