//! What a trace shows beside the findings: who stores to PM, who flushes, who fences.
//!
//! Planning marks pointers as PM by it (section 4.3), and the source patch finds the program's own flush functions by it. Read as
//! a stream and kept by stack: a trace has millions of events and thousands of stacks.

use std::collections::BTreeMap;

use crashproof_finding::Frame;
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, FileId, Item, PmAddress, ReadError, StackId, ThreadId, TraceReader};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// All that is known without a trace: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observed {
    pub stores: Vec<ObservedStore>,
    /// Of lines of PM.
    pub flushes: Vec<Seen>,
    pub fences: Vec<Seen>,
}

/// Events with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub stack: Vec<Frame>,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedStore {
    pub seen: Seen,
    /// After each of them came a fence of its thread, before the end of the thread's process.
    pub always_fenced: bool,
    /// The first fence of its thread that passed one of them by before anything flushed its line.
    pub passed_by: Option<Vec<Frame>>,
    /// One of them, at least, was flushed by its thread before a fence.
    pub flushed: bool,
}

#[derive(Default)]
struct Counted {
    stores: BTreeMap<StackId, u64>,
    flushes: BTreeMap<StackId, u64>,
    fences: BTreeMap<StackId, u64>,
    /// Stores of each thread since its last fence.
    unfenced: FxHashMap<ThreadId, FxHashSet<StackId>>,
    /// Lines that each thread stored to since its last fence, with the stacks of stores that no flush followed.
    unflushed: FxHashMap<ThreadId, FxHashMap<(FileId, u64), Vec<StackId>>>,
    passed_by: FxHashMap<StackId, StackId>,
    flushed: FxHashSet<StackId>,
    /// Stores that no fence followed.
    never_fenced: FxHashSet<StackId>,
}

impl Observed {
    /// Reads the rest of the trace.
    pub fn read(reader: &mut TraceReader) -> Result<Observed, ReadError> {
        let mut counted = Counted::default();
        while let Some(item) = reader.next()? {
            let Item::Event(event) = item else { continue };
            let (thread, stack) = (event.thread, event.stack);
            match event.kind {
                EventKind::Store { at, data, flags } => {
                    if flags.locked {
                        counted.fence(thread, stack);
                    }
                    counted.store(thread, stack, (at, data.len() as u64), flags.nontemporal);
                }
                EventKind::Flush { at, .. } => {
                    *counted.flushes.entry(stack).or_default() += 1;
                    let lines = counted.unflushed.get_mut(&thread);
                    let stores = lines.and_then(|lines| lines.remove(&(at.file, at.offset / LINE)));
                    counted.flushed.extend(stores.into_iter().flatten());
                }
                EventKind::Fence { .. } => {
                    *counted.fences.entry(stack).or_default() += 1;
                    counted.fence(thread, stack);
                }
                // Only what one process has mapped goes away; that of others is taken for gone, too, which is the safe side.
                EventKind::Unmap { .. } | EventKind::ProcessEnd { .. } => counted.end(),
                _ => {}
            }
        }
        counted.end();
        let mut stacks = Stacks::default();
        let tables = reader.tables();
        let mut passed_by: FxHashMap<StackId, Vec<Frame>> = counted
            .passed_by
            .iter()
            .map(|(&store, &fence)| (store, stacks.symbolize(fence, tables).frames))
            .collect();
        let mut seen = |counts: &BTreeMap<StackId, u64>| -> Vec<Seen> {
            counts
                .iter()
                .map(|(&stack, &count)| Seen {
                    stack: stacks.symbolize(stack, tables).frames,
                    count,
                })
                .collect()
        };
        let stores = seen(&counted.stores)
            .into_iter()
            .zip(counted.stores.keys())
            .map(|(seen, stack)| ObservedStore {
                seen,
                always_fenced: !counted.never_fenced.contains(stack),
                passed_by: passed_by.remove(stack),
                flushed: counted.flushed.contains(stack),
            })
            .collect();
        Ok(Observed {
            stores,
            flushes: seen(&counted.flushes),
            fences: seen(&counted.fences),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.stores.is_empty() && self.flushes.is_empty() && self.fences.is_empty()
    }

    /// What was seen of stores with this stack.
    pub fn store(&self, stack: &[Frame]) -> Option<&ObservedStore> {
        self.stores.iter().find(|store| store.seen.stack == stack)
    }
}

impl Counted {
    fn store(&mut self, thread: ThreadId, stack: StackId, (at, len): (PmAddress, u64), nontemporal: bool) {
        *self.stores.entry(stack).or_default() += 1;
        self.unfenced.entry(thread).or_default().insert(stack);
        if nontemporal {
            return;
        }
        let lines = self.unflushed.entry(thread).or_default();
        for line in at.offset / LINE..=(at.offset + len.saturating_sub(1)) / LINE {
            let stacks = lines.entry((at.file, line)).or_default();
            if !stacks.contains(&stack) {
                stacks.push(stack);
            }
        }
    }

    fn fence(&mut self, thread: ThreadId, fence: StackId) {
        if let Some(unfenced) = self.unfenced.get_mut(&thread) {
            unfenced.clear();
        }
        if let Some(lines) = self.unflushed.get_mut(&thread) {
            for store in lines.drain().flat_map(|(_, stacks)| stacks) {
                self.passed_by.entry(store).or_insert(fence);
            }
        }
    }

    fn end(&mut self) {
        for unfenced in self.unfenced.values_mut() {
            self.never_fenced.extend(unfenced.drain());
        }
    }
}
