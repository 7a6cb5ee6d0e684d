//! The one pass over a trace: runs the persistency model, keeps track of mappings and transactions, and shows every event
//! to the oracles.
//!
//! Memory stays bounded whatever the trace's length: the model holds only lines that are not persistent, findings are
//! one per kind and stack.

use crashproof_finding::DurableByKind;
use crashproof_model::{Flush, Keep, Memory, Model, Store, Unpersisted};
use crashproof_replay::{self as replay, Mappings, RangeSet, TransactionChange, Transactions};
use crashproof_trace::{
    Event, EventKind, FileId, MemoryRange, PmAddress, ProcessId, Request, StackId, StoreFlags, Tables, ThreadId,
};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

use crate::config::Rule;
use crate::findings::Findings;
use crate::first_access::FirstAccesses;
use crate::locks::{Locks, Use, is_lock_function};
use crate::oracle::annotation::{Annotation, Annotations, PmRange};
use crate::oracle::missing::Missing;
use crate::oracle::redundant_fence::RedundantFence;
use crate::oracle::redundant_flush::RedundantFlush;
use crate::oracle::transaction::TransactionOracle;
use crate::oracle::{Gone, Oracle, Step, StoreAccess, World, rules};
use crate::tag::{Earlier, OptionalStack, StoreTag};
use crate::traffic::ByStack;
use crashproof_stacks::{DeclaredHelpers, Origin, Stacks};

const STDOUT: u32 = 1;

pub(crate) struct Pass {
    model: Model,
    memory: Memory<StoreTag>,
    mappings: Mappings,
    underway: replay::Underway,
    transactions: Transactions,
    locks: Locks,
    first_accesses: FirstAccesses,
    /// What PMDK says is volatile data in the file.
    volatile: RangeSet,
    stacks: Stacks,
    findings: Findings,
    oracles: Vec<Box<dyn Oracle>>,
    /// Those of them that want to see stores.
    store_oracles: Vec<usize>,
    /// Fences of all threads.
    fences: u32,
    /// Outputs of each thread.
    outputs: Vec<u32>,
    /// Times at which nobody was in the middle of an update.
    quiets: u32,
    /// Whether some process had several threads.
    threads: bool,
    /// Processes that have a thread.
    processes: Vec<ProcessId>,
    /// Processes that a signal ended.
    killed: FxHashSet<ProcessId>,
    /// Where transactions began that had not committed when their process ended.
    unfinished: BTreeSet<StackId>,
    /// The program is annotated: there is an oracle for that.
    annotated: bool,
    /// Counted if it is wanted.
    pub traffic: Option<ByStack>,
}

/// What the pass leaves to be put into words.
pub(crate) struct Outcome {
    pub findings: Findings,
    pub stacks: Stacks,
    /// Whether some process had several threads.
    pub threads: bool,
    /// Where transactions began that had not committed when their process ended.
    pub unfinished: BTreeSet<StackId>,
    pub traffic: Option<ByStack>,
}

/// The world of an oracle, borrowed from the fields beside the oracles.
macro_rules! world {
    ($pass:ident, $tables:expr) => {
        &mut World {
            model: $pass.model,
            memory: &mut $pass.memory,
            transactions: &$pass.transactions,
            locks: &$pass.locks,
            first_accesses: &$pass.first_accesses,
            stacks: &mut $pass.stacks,
            tables: $tables,
            findings: &mut $pass.findings,
        }
    };
}

impl Pass {
    pub(crate) fn new(model: Model, config_rules: &[Rule], helpers: DeclaredHelpers) -> Self {
        let mut oracles: Vec<Box<dyn Oracle>> = vec![
            Box::new(Missing::default()),
            Box::new(RedundantFlush::default()),
            Box::new(RedundantFence::default()),
            Box::new(TransactionOracle::default()),
        ];
        oracles.extend(
            config_rules
                .iter()
                .enumerate()
                .map(|(index, rule)| rules::oracle(index, rule)),
        );
        let store_oracles = (0..oracles.len()).filter(|&i| oracles[i].wants_stores()).collect();
        Pass {
            model,
            memory: Memory::new(model, Keep::Last),
            mappings: Mappings::default(),
            underway: replay::Underway::default(),
            transactions: Transactions::default(),
            locks: Locks::default(),
            first_accesses: FirstAccesses::default(),
            volatile: RangeSet::default(),
            stacks: Stacks::new(helpers),
            findings: Findings::default(),
            oracles,
            store_oracles,
            fences: 0,
            outputs: Vec::new(),
            quiets: 0,
            threads: false,
            processes: Vec::new(),
            killed: FxHashSet::default(),
            unfinished: BTreeSet::new(),
            annotated: false,
            traffic: None,
        }
    }

    /// `tables` hold at least what the event refers to.
    pub(crate) fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        let process = tables.process_of(event.thread).unwrap_or(ProcessId(0));
        let step = Step {
            thread: event.thread.0,
            process,
            stack: event.stack,
        };
        if let Some(traffic) = &mut self.traffic {
            traffic.event(event);
        }
        let memory = &mut self.memory;
        self.underway.event(event, |change| replay::sync_memory(memory, change));
        match event.kind {
            EventKind::Store { at, data, flags } => self.store(step, at, data, flags, tables),
            EventKind::Flush { at, kind } => {
                let Some(outcome) = self.replay(step, &replay::Step::flush(at, kind, replay::Cut::LINES)) else {
                    return;
                };
                for oracle in &mut self.oracles {
                    oracle.flush(step, at, outcome, world!(self, tables));
                }
            }
            EventKind::Fence { kind } => {
                for oracle in &mut self.oracles {
                    oracle.fence(step, kind, world!(self, tables));
                }
                self.replay(step, &replay::Step::Fence);
            }
            EventKind::Map {
                file,
                address,
                offset,
                len,
                ..
            } => {
                self.mappings.map(process, file, offset, len, address);
            }
            EventKind::Unmap { file, offset, len } => {
                self.before_gone(Some(process), tables);
                self.volatile.remove(file.0, offset, offset.saturating_add(len));
                for range in self.mappings.unmap(process, file, offset, len) {
                    let gone = Gone {
                        by: DurableByKind::Unmap,
                        stack: step.stack,
                        acknowledged: false,
                        killed: false,
                        unfinished: false,
                        used_as: Use::Other,
                    };
                    self.drain(file, range.start, range.end - range.start, gone, tables);
                }
            }
            EventKind::Resize { .. } | EventKind::FileWrite { .. } | EventKind::Sync { .. } => {
                if let Some(part) = replay::Step::of(&event.kind, replay::Cut::LINES) {
                    self.replay(step, &part);
                }
            }
            EventKind::Request { request, range, .. } => {
                if let Some((at, len)) = range {
                    let (file, end) = (at.file.0, at.offset.saturating_add(len));
                    match request {
                        Request::SetClean => {
                            self.memory.set_clean(file, at.offset, len);
                            self.oracles.iter_mut().for_each(|oracle| oracle.clean(at, len));
                        }
                        Request::Volatile => self.volatile.insert(file, at.offset, end),
                        Request::Persistent => self.volatile.remove(file, at.offset, end),
                        _ => {}
                    }
                }
                self.follow_transactions(event, step, tables);
            }
            EventKind::Annotation(annotation) => {
                if let Some(annotation) = self.resolved(process, annotation) {
                    self.annotation(step, annotation, tables);
                }
            }
            EventKind::Call { name, ref arguments } if is_lock_function(name) => {
                let [object, len, ..] = *arguments;
                if let Some(at) = self.mappings.resolve(process, object) {
                    self.locks.object(at, len);
                }
            }
            EventKind::Call { .. } | EventKind::Return(_) => self.follow_transactions(event, step, tables),
            EventKind::ThreadStart { process, .. } => {
                self.threads |= self.processes.contains(&process);
                self.processes.push(process);
            }
            EventKind::ProcessStart { process, parent, .. } => {
                if let Some(parent) = parent {
                    self.mappings.inherit(process, parent);
                    self.first_accesses.fork(process, parent);
                }
            }
            EventKind::ProcessEnd { process, killed } => {
                if killed {
                    self.killed.insert(process);
                }
                self.before_gone(Some(process), tables);
                self.unfinished_transactions(Some(process), tables);
                for (file, range) in self.mappings.end(process) {
                    let gone = Gone {
                        by: DurableByKind::Exit,
                        stack: step.stack,
                        acknowledged: false,
                        killed: false,
                        unfinished: false,
                        used_as: Use::Other,
                    };
                    self.drain(file, range.start, range.end - range.start, gone, tables);
                }
                self.first_accesses.end(process);
                self.locks
                    .end(|thread| tables.process_of(ThreadId(thread)) == Some(process));
            }
            EventKind::Output { fd, data } => {
                if fd == STDOUT && data.contains(&b'\n') {
                    for oracle in &mut self.oracles {
                        oracle.line(step);
                    }
                }
                let thread = step.thread as usize;
                if thread >= self.outputs.len() {
                    self.outputs.resize(thread + 1, 0);
                }
                self.outputs[thread] = self.outputs[thread].wrapping_add(1);
            }
            EventKind::Quiet => self.quiets = self.quiets.wrapping_add(1),
            EventKind::Access { store, at, len, .. } => self.first_accesses.access(process, store, at, u64::from(len)),
            EventKind::Rename { .. } | EventKind::Path { .. } => {}
        }
    }

    fn follow_transactions(&mut self, event: &Event<'_>, step: Step, tables: &Tables) {
        let stacks = &mut self.stacks;
        let is_by_program = || stacks.origin(step.stack, tables) == Origin::Program;
        let change = self
            .transactions
            .event(event, step.process, &self.mappings, is_by_program);
        self.transaction(step, change, tables);
    }

    /// An annotation in terms of PM files. What is not PM is neither durable nor in order, and nobody expects it to be.
    fn resolved(&self, process: ProcessId, annotation: crashproof_trace::Annotation<'_>) -> Option<Annotation> {
        use crashproof_trace::Annotation as Said;
        let range = |memory: MemoryRange| {
            let at = self.mappings.resolve(process, memory.address)?;
            Some(PmRange { at, len: memory.len })
        };
        Some(match annotation {
            Said::OperationBegin { .. } => Annotation::OpBegin,
            Said::OperationEnd { .. } => Annotation::OpEnd,
            Said::ExpectDurable(memory) => Annotation::Durable(range(memory)?),
            Said::ExpectSnapshotted(memory) => Annotation::Snapshotted(range(memory)?),
            Said::ExpectOrder {
                before,
                after,
                backwards,
            } => Annotation::Order {
                before: range(before)?,
                after: range(after)?,
                backwards,
            },
            Said::Marker { .. } => return None,
        })
    }

    fn store(&mut self, step: Step, at: PmAddress, data: &[u8], flags: StoreFlags, tables: &Tables) {
        let len = data.len() as u64;
        if len == 0 {
            return;
        }
        if self
            .volatile
            .covers(at.file.0, at.offset, at.offset.saturating_add(len))
        {
            // Nothing is stored that has to persist; a locked instruction fences nevertheless.
            if flags.locked {
                self.replay(step, &replay::Step::Fence);
            }
            return;
        }
        self.locks.store(step.thread, step.stack, at, data, flags, tables);
        for &index in &self.store_oracles {
            self.oracles[index].store(step, StoreAccess { at, len, flags }, world!(self, tables));
        }
        let transaction = self
            .transactions
            .begin_for(step.thread, at.file.0, at.offset, at.offset.saturating_add(len));
        let not_snapshotted = transaction.is_some() && self.lacks_snapshot(step, at, len, flags, tables);
        let mut tag = StoreTag {
            stack: step.stack,
            transaction: transaction.into(),
            not_snapshotted,
            fence: OptionalStack::default(),
            fences: 0,
            outputs: outputs_of(&self.outputs, self.quiets, step.thread),
            rewrites: 0,
            repeated: false,
            count: 1,
            earlier: Earlier::default(),
        };
        for part in replay::Steps::of_store(at, len, flags, replay::Cut::LINES) {
            self.run(step, &part, |fences| {
                let kept = StoreTag { fences, ..tag.clone() };
                tag.count = 0;
                kept
            });
        }
    }

    /// Runs a step that is not a store. What a flush did.
    #[inline]
    fn replay(&mut self, by: Step, step: &replay::Step) -> Option<Flush<u32>> {
        self.run(by, step, |_| unreachable!("not a store"))
    }

    /// `tag` makes what is kept with a store, from the number of fences before it.
    #[inline]
    fn run(&mut self, by: Step, step: &replay::Step, tag: impl FnOnce(u32) -> StoreTag) -> Option<Flush<u32>> {
        if *step == replay::Step::Fence {
            self.fences = self.fences.wrapping_add(1);
        }
        let fences = self.fences;
        replay::step_memory(&mut self.memory, by.thread, by.stack.0, step, |_| tag(fences))
    }

    /// Whether the program makes the store in a transaction that ought to cover it and does not.
    fn lacks_snapshot(&mut self, step: Step, at: PmAddress, len: u64, flags: StoreFlags, tables: &Tables) -> bool {
        let stacks = &mut self.stacks;
        let is_by_program = || stacks.is_by_program(step.stack, tables);
        !flags.syscall && self.transactions.should_cover(step.thread, at, len, is_by_program)
    }

    /// Of a process (of every process, if not given) that is at its end: the transactions that it is in.
    fn unfinished_transactions(&mut self, process: Option<ProcessId>, tables: &Tables) {
        let process_of = |thread| tables.process_of(ThreadId(thread)).unwrap_or(ProcessId(0));
        let is_of_process = |of: ProcessId| process.is_none_or(|process| process == of);
        for (id, process, begin) in self.transactions.take_unfinished(is_of_process, process_of) {
            let killed = self.killed.contains(&process);
            // Killed in the middle of a transaction: nothing is wrong with that.
            self.unfinished.extend(begin.filter(|_| !killed));
            let step = Step {
                thread: 0,
                process,
                stack: begin.unwrap_or(StackId(0)),
            };
            self.transaction(step, TransactionChange::Unfinished { id, begin, killed }, tables);
        }
    }

    fn transaction(&mut self, step: Step, change: TransactionChange, tables: &Tables) {
        if change != TransactionChange::None {
            for oracle in &mut self.oracles {
                oracle.transaction(step, change, world!(self, tables));
            }
        }
    }

    fn annotation(&mut self, step: Step, annotation: Annotation, tables: &Tables) {
        if !self.annotated {
            // Stores are shown to it only in programs that have annotations.
            self.annotated = true;
            self.store_oracles.push(self.oracles.len());
            self.oracles.push(Box::new(Annotations::default()));
        }
        for oracle in &mut self.oracles {
            oracle.annotation(step, annotation, world!(self, tables));
        }
    }

    fn before_gone(&mut self, process: Option<ProcessId>, tables: &Tables) {
        for oracle in &mut self.oracles {
            oracle.before_gone(process, world!(self, tables));
        }
    }

    fn drain(&mut self, file: FileId, offset: u64, len: u64, gone: Gone, tables: &Tables) {
        let Pass {
            memory,
            oracles,
            findings,
            outputs,
            quiets,
            transactions,
            locks,
            killed,
            ..
        } = self;
        memory.drain(file.0, offset, len, |lost| {
            let begin = lost.store.tag.transaction.get();
            let unfinished = begin.is_some_and(|begin| transactions.is_uncommitted(lost.store.thread, begin));
            if unfinished && !lost.store.tag.not_snapshotted {
                // The next opening of the pool rolls it back. Its fences were meant for it all the same.
                findings.awaited_fences.extend(lost.store.tag.fence.get());
                return;
            }
            let acknowledged = outputs_of(outputs, *quiets, lost.store.thread) != lost.store.tag.outputs;
            let process = tables.process_of(ThreadId(lost.store.thread));
            let killed = process.is_some_and(|process| killed.contains(&process));
            let mut show = |lost: &Unpersisted<'_, StoreTag>| {
                let gone = Gone {
                    acknowledged,
                    killed,
                    unfinished,
                    used_as: locks.use_of(lost.at, lost.store.bytes, lost.store.tag.stack, tables),
                    ..gone
                };
                for oracle in oracles.iter_mut() {
                    oracle.unpersisted(lost, gone, findings);
                }
            };
            let bytes = lost.store.bytes;
            let object = locks.of_objects(lost.at, bytes);
            if object.is_empty() || object == bytes {
                return show(&lost);
            }
            // One store went to a lock and to data beside it.
            for bytes in [object, bytes.without(object)] {
                let store = Store {
                    bytes,
                    ..lost.store.clone()
                };
                show(&Unpersisted { store: &store, ..lost });
            }
        });
        locks.unmapped(file.0, offset, offset.saturating_add(len));
    }

    /// After the last event: whatever is still mapped goes away with the program. What is found in the files that the program
    /// `deleted` stays apart.
    pub(crate) fn finish(mut self, tables: &Tables, deleted: impl Fn(FileId) -> bool) -> Outcome {
        self.before_gone(None, tables);
        self.unfinished_transactions(None, tables);
        for file in 0..tables.files.len() as u32 {
            let gone = Gone {
                by: DurableByKind::Exit,
                stack: StackId(0),
                acknowledged: false,
                killed: false,
                unfinished: false,
                used_as: Use::Other,
            };
            self.drain(FileId(file), 0, u64::MAX, gone, tables);
        }
        self.findings.join(deleted);
        for oracle in &mut self.oracles {
            oracle.finish(world!(self, tables));
        }
        Outcome {
            findings: self.findings,
            stacks: self.stacks,
            threads: self.threads,
            unfinished: self.unfinished,
            traffic: self.traffic,
        }
    }
}

/// How often the thread has shown that it had gone on to other things: by output, or by doing nothing for long.
fn outputs_of(outputs: &[u32], quiets: u32, thread: u32) -> u32 {
    outputs.get(thread as usize).copied().unwrap_or(0).wrapping_add(quiets)
}
