//! What is known of each operation of a run beside its conditions: what it wrote, to see whether two recordings of it did the same, and
//! which code it executed, to group what fails in it.

use crashproof_trace::{Boundaries, Event, EventKind, Item, Operations, PmAddress, ReadError, ThreadId, TraceFile};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::location::split;

/// An operation of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    pub written: Written,
    /// Digest of the set of basic blocks that it executed; none where the program was not built for that.
    pub blocks: Option<u64>,
}

/// The PM bytes that an operation stored to. The set, not the sequence: an optimiser merges stores, and their order within what is not
/// fenced is its to choose; another address shows in either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written(FxHashMap<(u32, u64), u8>);

impl Written {
    fn add(&mut self, at: PmAddress, len: u64) {
        for part in split(at, len) {
            let (file, word) = part.word();
            *self.0.entry((file.0, word)).or_default() |= part.mask();
        }
    }

    /// Whether all that the other one stored to is in it. An optimiser leaves out what nobody can see (padding, what is overwritten), so
    /// that the optimised program stores to a part of what the other one stores to.
    pub fn covers(&self, other: &Written) -> bool {
        let mut words = other.0.iter();
        words.all(|(word, mask)| self.0.get(word).is_some_and(|own| own & mask == *mask))
    }
}

/// By number; `None` is the set-up.
pub type ByOperation = FxHashMap<Option<u64>, Operation>;

/// Is shown all events of a run.
pub(crate) struct Summaries {
    operations: Operations,
    written: FxHashMap<Option<u64>, Written>,
    blocks: FxHashMap<Option<u64>, u64>,
    /// The operation of each thread's last event.
    last: FxHashMap<ThreadId, Option<u64>>,
    pub cuts: u64,
}

impl Summaries {
    pub(crate) fn new(boundaries: Boundaries) -> Summaries {
        Summaries {
            operations: Operations::new(boundaries),
            written: FxHashMap::default(),
            blocks: FxHashMap::default(),
            last: FxHashMap::default(),
            cuts: 0,
        }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let operation = self.operations.of(event);
        match event.kind {
            EventKind::Store { at, data, .. } => {
                self.written.entry(operation).or_default().add(at, data.len() as u64);
            }
            EventKind::Path { blocks, cuts } => {
                // It comes before the end of its operation or right after it.
                let last = self.last.get(&event.thread).copied();
                let ended = last.filter(|last| !self.blocks.contains_key(last));
                self.blocks.insert(ended.unwrap_or(operation), blocks);
                self.cuts = self.cuts.saturating_add(cuts);
                return;
            }
            _ => {}
        }
        self.last.insert(event.thread, operation);
    }

    pub(crate) fn finish(mut self) -> ByOperation {
        let known: FxHashSet<Option<u64>> = self.written.keys().chain(self.blocks.keys()).copied().collect();
        let of = |operation: Option<u64>| {
            let written = self.written.remove(&operation).unwrap_or_default();
            let blocks = self.blocks.get(&operation).copied();
            (operation, Operation { written, blocks })
        };
        known.into_iter().map(of).collect()
    }
}

/// The operations of a recorded run.
pub fn operations(trace: &TraceFile) -> Result<ByOperation, ReadError> {
    let mut summaries = Summaries::new(trace.boundaries());
    let mut reader = trace.files()?;
    while let Some(item) = reader.next()? {
        if let Item::Event(event) = item {
            summaries.event(&event);
        }
    }
    Ok(summaries.finish())
}
