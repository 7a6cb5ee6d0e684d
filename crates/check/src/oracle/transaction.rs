//! `tx-snapshot-twice`, `tx-snapshot-overlap`, `tx-store-not-snapshotted` and `tx-store-outside`: misuse of PMDK transactions.
//!
//! From Agamotto §4.2.2, the redundant undo log oracle and the atomic operation oracle. Deviations: a snapshot is redundant
//! only if all of it was asked for before in the same transaction (Agamotto: if it overlaps one); which memory is changed
//! transactionally is not declared by the developer but taken from what transactions of the run do, so only memory with
//! such evidence is reported. docs/oracles.md has the definitions.

use crashproof_finding::Kind;
use crashproof_model::{Flush, LINE, LineAddress, pieces};
use crashproof_replay::{Transaction, TransactionChange, TransactionId};
use crashproof_trace::{FenceKind, PmAddress, ProcessId, StackId};
use rustc_hash::FxHashMap;

use super::{Oracle, Step, StoreAccess, World};
use crate::findings::{RawFinding, Relation};
use crate::words::WordSet;
use crashproof_stacks::Origin;

/// A store that is a finding unless the program persists it by hand.
struct Candidate {
    stack: StackId,
    store: StoreAccess,
    /// The transaction that it was made in.
    transaction: Option<TransactionId>,
    /// The program has fenced since, so it does not mean to persist it by hand.
    fenced: bool,
}

impl Candidate {
    fn touches_line(&self, at: PmAddress) -> bool {
        let line = at.offset / LINE;
        let last = (self.store.at.offset + self.store.len - 1) / LINE;
        self.store.at.file == at.file && (self.store.at.offset / LINE..=last).contains(&line)
    }
}

/// More are not kept for one transaction, or between two fences.
const MAX_CANDIDATES: usize = 1024;

#[derive(Default)]
struct Thread {
    process: Option<ProcessId>,
    /// In the transaction, to memory that it does not cover.
    not_snapshotted: Vec<Candidate>,
    /// Outside transactions since the last fence, to memory that a transaction changed under a snapshot.
    outside: Vec<Candidate>,
    /// Where ranges were snapshotted in the transaction, by their first byte.
    snapshots: FxHashMap<PmAddress, StackId>,
}

#[derive(Default)]
pub(crate) struct TransactionOracle {
    threads: Vec<Thread>,
    /// What transactions of the run snapshotted or allocated.
    transactional: WordSet,
    /// What transactions of the run changed under a snapshot that the program asked for.
    changed: WordSet,
}

impl TransactionOracle {
    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    fn store_inside(&mut self, step: Step, store: StoreAccess, world: &World) {
        let transactions = world.transactions;
        if !transactions.of(step.thread).is_some_and(Transaction::is_working) {
            return;
        }
        let (file, start, end) = (store.at.file.0, store.at.offset, store.at.offset + store.len);
        let any = |test: &dyn Fn(&Transaction) -> bool| transactions.all_of(step.thread).any(test);
        if any(&|t| t.asked.covers(file, start, end)) {
            self.changed.insert(file, start, end);
            return;
        }
        if !transactions.lacks_snapshot(step.thread, file, start, end)
            || transactions.is_in_pool(step.thread, file) == Some(false)
            || world.stacks.is_callback(step.stack, world.tables)
        {
            return;
        }
        let (first_line, last_line) = (start / LINE * LINE, end.div_ceil(LINE) * LINE);
        let evidence = any(&|t| t.snapshots().touches(file, first_line, last_line))
            || any(&|t| t.objects.covers(file, start, end))
            || self.transactional.contains_any(file, start, end);
        let transaction = transactions.id_of(step.thread);
        let thread = self.thread(step.thread);
        if evidence && thread.not_snapshotted.len() < MAX_CANDIDATES {
            thread.not_snapshotted.push(Candidate {
                stack: step.stack,
                store,
                transaction,
                fenced: false,
            });
        }
    }

    fn store_outside(&mut self, step: Step, store: StoreAccess) {
        let (file, start, end) = (store.at.file.0, store.at.offset, store.at.offset + store.len);
        if self.changed.contains_any(file, start, end) {
            let thread = self.thread(step.thread);
            thread.process = Some(step.process);
            if thread.outside.len() < MAX_CANDIDATES {
                thread.outside.push(Candidate {
                    stack: step.stack,
                    store,
                    transaction: None,
                    fenced: false,
                });
            }
        }
    }

    /// What threads stored in the transaction and it does not cover.
    fn take_not_snapshotted(&mut self, id: TransactionId) -> Vec<Candidate> {
        let mut taken = Vec::new();
        let threads = match id {
            TransactionId::Thread(thread) => self.threads.get_mut(thread as usize..=thread as usize),
            TransactionId::Numbered(..) => Some(&mut self.threads[..]),
        };
        for thread in threads.unwrap_or_default() {
            let (its, others) = std::mem::take(&mut thread.not_snapshotted)
                .into_iter()
                .partition(|c| c.transaction == Some(id));
            thread.not_snapshotted = others;
            taken.extend::<Vec<_>>(its);
        }
        taken
    }

    /// Reports what the thread stored outside transactions and has not flushed by now.
    fn report_outside(thread: &mut Thread, world: &mut World) {
        for Candidate { stack, store, .. } in thread.outside.drain(..) {
            let unflushed = pieces(store.at.offset, store.len, LINE).any(|piece| {
                let line = world.memory.line(LineAddress {
                    file: store.at.file.0,
                    line: piece.line,
                });
                line.is_some_and(|line| {
                    let is_it = |i: &usize| {
                        let s = &line.stores()[*i];
                        s.tag.stack == stack && s.bytes.intersects(piece.bytes) && !s.nontemporal
                    };
                    (0..line.stores().len())
                        .filter(is_it)
                        .any(|i| line.flushed_at(i).is_none())
                })
            });
            if unflushed {
                world
                    .findings
                    .add(RawFinding::new(Kind::TxStoreOutside, stack).at(store.at, store.len));
            }
        }
    }
}

/// Whether the program flushes or fences itself. The transaction does so for the sake of the ranges that it covers.
fn is_by_hand(step: Step, world: &mut World) -> bool {
    world
        .stacks
        .entry(step.stack, world.tables)
        .is_none_or(|entry| entry.is_persist_primitive())
}

impl Oracle for TransactionOracle {
    fn wants_stores(&self) -> bool {
        true
    }

    fn store(&mut self, step: Step, store: StoreAccess, world: &mut World) {
        let inside = world.transactions.of(step.thread).is_some();
        if !inside && self.changed.is_empty() || store.flags.syscall {
            return;
        }
        if world.stacks.origin(step.stack, world.tables) != Origin::Program {
            return;
        }
        if world
            .transactions
            .ignored
            .touches(store.at.file.0, store.at.offset, store.at.offset + store.len)
        {
            return;
        }
        if inside {
            self.store_inside(step, store, world);
        } else {
            self.store_outside(step, store);
        }
    }

    fn flush(&mut self, step: Step, at: PmAddress, _: Flush<u32>, world: &mut World) {
        let Some(thread) = self.threads.get_mut(step.thread as usize) else {
            return;
        };
        if !thread.not_snapshotted.iter().any(|c| c.touches_line(at)) {
            return;
        }
        // An undo log of the program's own commits by flushes that look like this one.
        let line = at.offset / LINE * LINE;
        let commits = |t: &Transaction| !t.is_by_call() && t.covered.touches(at.file.0, line, line + LINE);
        if !world.transactions.all_of(step.thread).any(commits) && is_by_hand(step, world) {
            thread.not_snapshotted.retain(|c| !c.touches_line(at));
        }
    }

    fn fence(&mut self, step: Step, _: FenceKind, world: &mut World) {
        let Some(thread) = self.threads.get_mut(step.thread as usize) else {
            return;
        };
        if !thread.outside.is_empty() {
            Self::report_outside(thread, world);
        }
        if thread.not_snapshotted.iter().any(|c| !c.fenced) && is_by_hand(step, world) {
            thread.not_snapshotted.iter_mut().for_each(|c| c.fenced = true);
        }
    }

    fn transaction(&mut self, step: Step, change: TransactionChange, world: &mut World) {
        let twice = |at, len| RawFinding::new(Kind::TxSnapshotTwice, step.stack).at(at, len);
        match change {
            TransactionChange::Asked { at, len, already_asked } => {
                let first = *self.thread(step.thread).snapshots.entry(at).or_insert(step.stack);
                if already_asked {
                    let related = (first != step.stack).then_some((Relation::SnapshottedFirst, first));
                    world.findings.add(RawFinding {
                        related,
                        ..twice(at, len)
                    });
                }
            }
            TransactionChange::Added {
                at,
                len,
                already_covered,
                other,
            } => {
                self.transactional
                    .insert(at.file.0, at.offset, at.offset.saturating_add(len));
                let by_call = world.transactions.of(step.thread).is_some_and(|t| t.is_by_call());
                if already_covered && !by_call {
                    world.findings.add(twice(at, len));
                } else if let Some(other) = other {
                    world.findings.add(RawFinding {
                        related: Some((Relation::OtherTransaction, other)),
                        ..RawFinding::new(Kind::TxSnapshotOverlap, step.stack).at(at, len)
                    });
                }
            }
            TransactionChange::Ended { id, .. } => {
                if let TransactionId::Thread(thread) = id {
                    self.thread(thread).snapshots.clear();
                }
                for Candidate { stack, store, .. } in self.take_not_snapshotted(id) {
                    world
                        .findings
                        .add(RawFinding::new(Kind::TxStoreNotSnapshotted, stack).at(store.at, store.len));
                }
            }
            // Its snapshots are rolled back, these are not.
            TransactionChange::Unfinished { id, begin, killed } => {
                for candidate in self.take_not_snapshotted(id) {
                    let Candidate {
                        stack, store, fenced, ..
                    } = candidate;
                    if killed && !fenced {
                        continue;
                    }
                    world.findings.add(RawFinding {
                        related: begin.map(|begin| (Relation::TransactionUnfinished, begin)),
                        in_flight: !fenced,
                        ..RawFinding::new(Kind::TxStoreNotSnapshotted, stack).at(store.at, store.len)
                    });
                }
            }
            TransactionChange::None => {}
        }
    }

    fn clean(&mut self, at: PmAddress, len: u64) {
        let end = at.offset.saturating_add(len);
        self.transactional.remove(at.file.0, at.offset, end);
        self.changed.remove(at.file.0, at.offset, end);
    }

    fn before_gone(&mut self, process: Option<ProcessId>, world: &mut World) {
        for thread in &mut self.threads {
            if process.is_none() || thread.process == process {
                Self::report_outside(thread, world);
            }
        }
    }
}
