//! What is known of each operation of a run beside its conditions: what it wrote, to see whether two recordings of it did the same, and
//! which code it executed, to group what fails in it.

use std::path::Path;

use crashproof_trace::{Boundaries, Event, EventKind, Item, Operations, PmAddress, ReadError, ThreadId, TraceReader};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::location::split;

/// An operation of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Digest of the set of PM bytes that it stored to. The set, not the sequence: an optimiser merges stores, and their order
    /// within what is not fenced is its to choose; another address shows in either.
    pub written: u64,
    /// Digest of the set of basic blocks that it executed; none where the program was not built for that.
    pub blocks: Option<u64>,
}

/// By number; `None` is the set-up.
pub type ByOperation = FxHashMap<Option<u64>, Operation>;

/// Is shown all events of a run.
pub(crate) struct Summaries {
    operations: Operations,
    written: FxHashMap<Option<u64>, FxHashMap<(u32, u64), u8>>,
    blocks: FxHashMap<Option<u64>, u64>,
    /// The operation of each thread's last event.
    last: FxHashMap<ThreadId, Option<u64>>,
    pub cuts: u64,
}

impl Summaries {
    pub fn new(boundaries: Boundaries) -> Summaries {
        Summaries {
            operations: Operations::new(boundaries),
            written: FxHashMap::default(),
            blocks: FxHashMap::default(),
            last: FxHashMap::default(),
            cuts: 0,
        }
    }

    pub fn event(&mut self, event: &Event<'_>) {
        let operation = self.operations.of(event);
        match event.kind {
            EventKind::Store { at, data, .. } => self.store(operation, at, data.len() as u64),
            EventKind::Path { blocks, cuts } => {
                // It comes before the end of its operation or right after it.
                let last = self.last.get(&event.thread).copied();
                let ended = last.filter(|last| !self.blocks.contains_key(last));
                self.blocks.insert(ended.unwrap_or(operation), blocks);
                self.cuts += cuts;
                return;
            }
            _ => {}
        }
        self.last.insert(event.thread, operation);
    }

    fn store(&mut self, operation: Option<u64>, at: PmAddress, len: u64) {
        let words = self.written.entry(operation).or_default();
        for part in split(at, len) {
            let (file, word) = part.word();
            *words.entry((file.0, word)).or_default() |= part.mask();
        }
    }

    pub fn finish(self) -> ByOperation {
        let known: FxHashSet<Option<u64>> = self.written.keys().chain(self.blocks.keys()).copied().collect();
        let of = |operation: Option<u64>| {
            let words = self.written.get(&operation).into_iter().flatten();
            let written = words.fold(0u64, |sum, (&(file, word), &mask)| {
                sum.wrapping_add(mix(mix(word ^ (file as u64) << 48) ^ mask as u64))
            });
            let blocks = self.blocks.get(&operation).copied();
            (operation, Operation { written, blocks })
        };
        known.into_iter().map(of).collect()
    }
}

/// The finaliser of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The operations of a recorded run.
pub fn operations(trace: &Path) -> Result<ByOperation, ReadError> {
    let mut summaries = Summaries::new(Boundaries::of(trace)?);
    let mut reader = TraceReader::open(trace)?;
    while let Some(item) = reader.next()? {
        if let Item::Event(event) = item {
            summaries.event(&event);
        }
    }
    Ok(summaries.finish())
}
