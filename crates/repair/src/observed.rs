//! What a trace shows beside the findings: who stores to PM, who flushes, who fences.
//!
//! Planning marks pointers as PM by it (section 4.3), and the source patch finds the program's own flush functions by it. Read as
//! a stream and kept by stack: a trace has millions of events and thousands of stacks.

use std::collections::BTreeMap;

use crashproof_base::{FileId, LINE, LineAddress};
use crashproof_finding::Frame;
use crashproof_model::Bytes;
use crashproof_replay::{Cut, Step, Steps, StorePiece};
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, Item, ReadError, StackId, ThreadId, TraceReader};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

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
    /// Lines that each thread stored to since its last fence, with the stores that no flush followed.
    unflushed: FxHashMap<ThreadId, BTreeMap<LineAddress, Vec<(StackId, Bytes)>>>,
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
                EventKind::Store { .. } => *counted.stores.entry(stack).or_default() += 1,
                EventKind::Flush { .. } => *counted.flushes.entry(stack).or_default() += 1,
                EventKind::Fence { .. } => *counted.fences.entry(stack).or_default() += 1,
                // Only what one process has mapped goes away; that of others is taken for gone, too, which is the safe side.
                EventKind::Unmap { .. } | EventKind::ProcessEnd { .. } => counted.end(),
                _ => {}
            }
            for step in Steps::of(&event.kind, Cut::LINES) {
                counted.step(thread, stack, &step);
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
    fn step(&mut self, thread: ThreadId, stack: StackId, step: &Step) {
        match *step {
            Step::Store(piece) => self.store(thread, stack, &piece),
            Step::Flush { line, .. } => self.flush(thread, line),
            Step::Fence => self.fence(thread, stack),
            // What is durable or gone needs no flush.
            Step::Sync { file, offset, len } => self.forget(file, offset, len),
            Step::Write { at, len } => self.forget(at.file, at.offset, len),
            Step::Resize { file, size } => self.forget(file, size, u64::MAX - size),
            Step::Rename { .. } | Step::Map { .. } => {}
        }
    }

    fn store(&mut self, thread: ThreadId, stack: StackId, piece: &StorePiece) {
        self.unfenced.entry(thread).or_default().insert(stack);
        if piece.nontemporal {
            return;
        }
        let lines = self.unflushed.entry(thread).or_default();
        let stores = lines.entry(piece.line).or_default();
        match stores.iter_mut().find(|(known, _)| *known == stack) {
            Some((_, bytes)) => *bytes = bytes.union(piece.bytes()),
            None => stores.push((stack, piece.bytes())),
        }
    }

    /// Covers the stores of all threads, and only the thread's own will be persistent with its fence.
    fn flush(&mut self, thread: ThreadId, line: LineAddress) {
        for (of, lines) in &mut self.unflushed {
            let stores = lines.remove(&line).unwrap_or_default();
            if *of == thread {
                self.flushed.extend(stores.into_iter().map(|(stack, _)| stack));
            }
        }
    }

    fn fence(&mut self, thread: ThreadId, fence: StackId) {
        if let Some(unfenced) = self.unfenced.get_mut(&thread) {
            unfenced.clear();
        }
        if let Some(lines) = self.unflushed.get_mut(&thread) {
            for (store, _) in std::mem::take(lines).into_values().flatten() {
                self.passed_by.entry(store).or_insert(fence);
            }
        }
    }

    fn forget(&mut self, file: FileId, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let line = |line| LineAddress { file: file.0, line };
        for lines in self.unflushed.values_mut() {
            let touched = lines.range_mut(line(offset / LINE)..line(end.div_ceil(LINE)));
            let emptied = touched.filter_map(|(at, stores)| {
                let gone = Bytes::of_line(at.line, offset, end);
                stores.iter_mut().for_each(|(_, bytes)| *bytes = bytes.without(gone));
                stores.retain(|(_, bytes)| !bytes.is_empty());
                stores.is_empty().then_some(*at)
            });
            for at in emptied.collect::<Vec<_>>() {
                lines.remove(&at);
            }
        }
    }

    fn end(&mut self) {
        for unfenced in self.unfenced.values_mut() {
            self.never_fenced.extend(unfenced.drain());
        }
    }
}

#[cfg(test)]
mod tests {
    use crashproof_trace::{
        FenceKind, FlushKind, Header, Module, PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd, StoreFlags,
        TraceWriter,
    };

    use super::*;

    /// What is seen of a store of thread 0 that these events of threads follow.
    fn seen(events: &[(u32, EventKind<'_>)]) -> ObservedStore {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("trace");
        let mut writer = TraceWriter::create(&path, &Header::default()).expect("a trace");
        writer
            .file(&PmFile {
                path: "/pm/pool".into(),
                size: 4096,
                created: false,
                kind: PmFileKind::File,
            })
            .expect("a file");
        let module = Module::of_place("app", Some("main"), Some("app.c"), Some(1));
        let module = writer.module(&module).expect("a module");
        let mut stack = |address| {
            let frame = crashproof_trace::Frame {
                module: Some(module),
                address,
            };
            writer.stack(&[frame]).expect("a stack")
        };
        let (storing, other) = (stack(1), stack(2));
        let process = ProcessId(0);
        let start = EventKind::ProcessStart {
            process,
            pid: 1,
            parent: None,
            executable: "/app",
        };
        writer.event(ThreadId(0), other, &start).expect("an event");
        for thread in 0..2 {
            let start = EventKind::ThreadStart { process, os_id: thread };
            writer.event(ThreadId(thread), other, &start).expect("an event");
        }
        writer.event(ThreadId(0), storing, &store(false)).expect("an event");
        for (thread, event) in events {
            writer.event(ThreadId(*thread), other, event).expect("an event");
        }
        writer.finish(ProgramEnd::default()).expect("the end");
        let mut reader = TraceReader::open(&path).expect("the trace");
        let observed = Observed::read(&mut reader).expect("the events");
        observed.stores.into_iter().next().expect("the store")
    }

    const AT: PmAddress = PmAddress {
        file: FileId(0),
        offset: 8,
    };
    const FENCE: EventKind = EventKind::Fence {
        kind: FenceKind::Sfence,
    };
    const FLUSH: EventKind = EventKind::Flush {
        at: AT,
        kind: FlushKind::Clwb,
    };

    fn store(locked: bool) -> EventKind<'static> {
        let flags = StoreFlags {
            locked,
            ..StoreFlags::default()
        };
        let at = PmAddress {
            offset: if locked { 640 } else { 8 },
            ..AT
        };
        EventKind::Store {
            at,
            data: &[1; 8],
            flags,
        }
    }

    #[test]
    fn a_fence_passes_by_what_was_not_flushed() {
        let passed = seen(&[(0, FENCE), (0, FLUSH)]);
        assert!(passed.passed_by.is_some() && passed.always_fenced && !passed.flushed);
        assert!(seen(&[(0, store(true))]).passed_by.is_some(), "a locked store fences");
        assert!(seen(&[(1, FENCE)]).passed_by.is_none(), "the fence of another thread");
        let flushed = seen(&[(0, FLUSH), (0, FENCE)]);
        assert!(flushed.passed_by.is_none() && flushed.flushed);
    }

    #[test]
    fn a_flush_of_another_thread_is_one() {
        let flushed = seen(&[(1, FLUSH), (0, FENCE)]);
        assert!(flushed.passed_by.is_none() && !flushed.flushed);
    }

    #[test]
    fn what_is_durable_or_gone_is_not_passed_by() {
        let durable = |event| seen(&[(0, event), (0, FENCE)]).passed_by.is_none();
        let sync = |len| EventKind::Sync {
            file: FileId(0),
            offset: 0,
            len,
        };
        assert!(durable(sync(16)) && !durable(sync(12)));
        let resize = |size| EventKind::Resize { file: FileId(0), size };
        assert!(durable(resize(8)) && !durable(resize(9)));
        assert!(durable(EventKind::FileWrite { at: AT, data: &[2; 8] }));
    }
}
