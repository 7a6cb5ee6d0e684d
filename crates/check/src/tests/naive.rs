//! A checker that keeps a list of every store to every byte, to compare the fast one with on random events.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_finding::Kind;
use crashproof_trace::FlushKind;
use proptest::prelude::*;

use super::*;
use crate::tag::MAX_EARLIER;

#[derive(Clone, Copy, Debug)]
enum Action {
    Store { offset: u64, len: usize },
    NtStore { offset: u64, len: usize },
    Locked { offset: u64 },
    Flush { offset: u64 },
    Clflush { offset: u64 },
    Sfence,
    Mfence,
    Remap,
}

/// The last store to a byte, until it is persistent.
#[derive(Clone, Debug)]
struct ByteState {
    place: u64,
    thread: u32,
    nontemporal: bool,
    flushed_by: BTreeSet<u32>,
    /// A fence of its thread has passed while nobody had flushed it.
    passed: bool,
    /// Places of stores to the byte that were passed so, and overwritten while nobody had flushed them.
    earlier: BTreeSet<u64>,
}

#[derive(Default)]
struct Naive {
    eadr: bool,
    bytes: BTreeMap<u64, ByteState>,
    modified: BTreeSet<u64>,
    shared: BTreeSet<u64>,
    pending: BTreeMap<u32, bool>,
    stored: BTreeMap<u32, bool>,
    found: BTreeMap<(Kind, u64), u64>,
    /// Of each missing flush: the other places where one is missing, too.
    earlier: BTreeMap<u64, BTreeSet<u64>>,
}

impl Naive {
    fn find(&mut self, kind: Kind, place: u64) {
        *self.found.entry((kind, place)).or_default() += 1;
    }

    fn store(&mut self, thread: u32, place: u64, offset: u64, len: usize, nontemporal: bool) {
        for byte in offset..offset + len as u64 {
            self.modified.insert(byte / 64);
            let old = self.bytes.remove(&byte);
            if old.as_ref().is_some_and(|old| old.thread != thread) {
                self.shared.insert(byte / 64);
            }
            let mut earlier = BTreeSet::new();
            if let Some(old) = old {
                earlier = old.earlier;
                if old.passed && old.flushed_by.is_empty() {
                    earlier.insert(old.place);
                }
            }
            if nontemporal || !self.eadr {
                self.bytes.insert(
                    byte,
                    ByteState {
                        place,
                        thread,
                        nontemporal,
                        flushed_by: BTreeSet::new(),
                        passed: false,
                        earlier,
                    },
                );
            }
        }
        self.stored.insert(thread, true);
        if nontemporal {
            self.pending.insert(thread, true);
        }
    }

    fn flush(&mut self, thread: u32, place: u64, offset: u64, at_once: bool) {
        let line = offset / 64;
        self.pending.insert(thread, true);
        let foreign = |s: &ByteState| !s.nontemporal && s.thread != thread;
        if self.bytes.range(line * 64..line * 64 + 64).any(|(_, s)| foreign(s)) {
            self.shared.insert(line);
        }
        let mut states: Vec<_> = self
            .bytes
            .range_mut(line * 64..line * 64 + 64)
            .map(|(_, s)| s)
            .filter(|s| !s.nontemporal)
            .collect();
        if !self.modified.contains(&line) {
            self.find(Kind::FlushUnmodified, place);
        } else if states.is_empty() {
            if self.eadr || !self.shared.contains(&line) {
                self.find(Kind::RedundantFlush, place);
            }
        } else if states.iter().all(|s| s.flushed_by.contains(&thread)) {
            self.find(Kind::RedundantFlush, place);
        } else {
            states.iter_mut().for_each(|s| _ = s.flushed_by.insert(thread));
        }
        if at_once {
            self.persist(|byte, s| byte / 64 == line && !s.nontemporal);
        }
    }

    fn persist(&mut self, persistent: impl Fn(u64, &ByteState) -> bool) {
        self.bytes.retain(|&byte, s| !persistent(byte, s));
    }

    fn fence(&mut self, thread: u32) {
        let own = |s: &ByteState| {
            if s.nontemporal {
                s.thread == thread
            } else {
                s.flushed_by.contains(&thread)
            }
        };
        self.persist(|_, s| own(s));
        for s in self.bytes.values_mut().filter(|s| s.thread == thread && !s.nontemporal) {
            s.passed |= s.flushed_by.is_empty();
        }
    }

    fn sfence(&mut self, thread: u32, place: u64) {
        let pending = self.pending.insert(thread, false).unwrap_or(false);
        let stored = self.stored.insert(thread, false).unwrap_or(false);
        // A fence that only plain stores preceded is another test's matter.
        if !pending && !stored {
            self.find(Kind::RedundantFence, place);
        }
        self.fence(thread);
    }

    fn gone(&mut self) {
        for (_, s) in std::mem::take(&mut self.bytes) {
            let flushed = s.nontemporal || !s.flushed_by.is_empty();
            if !flushed {
                self.earlier.entry(s.place).or_default().extend(s.earlier);
            }
            self.found.insert(
                (
                    if flushed {
                        Kind::MissingFence
                    } else {
                        Kind::MissingFlush
                    },
                    s.place,
                ),
                0,
            );
        }
        self.modified.clear();
        self.shared.clear();
    }
}

fn action() -> impl Strategy<Value = Action> {
    let offset = 0..256u64;
    let len = 1..=24usize;
    prop_oneof![
        5 => (offset.clone(), len.clone()).prop_map(|(offset, len)| Action::Store { offset, len }),
        2 => (offset.clone(), len).prop_map(|(offset, len)| Action::NtStore { offset, len }),
        1 => offset.clone().prop_map(|offset| Action::Locked { offset }),
        5 => offset.clone().prop_map(|offset| Action::Flush { offset }),
        1 => offset.prop_map(|offset| Action::Clflush { offset }),
        3 => Just(Action::Sfence),
        1 => Just(Action::Mfence),
        1 => Just(Action::Remap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_fast_checker_says_what_the_naive_one_says(
        actions in prop::collection::vec((0..3u32, action()), 0..60),
        eadr: bool,
    ) {
        let mut b = TraceBuilder::new();
        let mut naive = Naive { eadr, ..Naive::default() };
        b.thread(T1, 0).thread(2, 0);
        for (i, (thread, action)) in actions.into_iter().enumerate() {
            let place = i as u64 + 1;
            match action {
                Action::Store { offset, len } => {
                    b.store(thread, place, offset, len);
                    naive.store(thread, place, offset, len, false);
                }
                Action::NtStore { offset, len } => {
                    b.nt_store(thread, place, offset, len);
                    naive.store(thread, place, offset, len, true);
                }
                Action::Locked { offset } => {
                    b.locked(thread, place, offset);
                    naive.fence(thread);
                    naive.store(thread, place, offset, 8, false);
                }
                Action::Flush { offset } => {
                    b.flush(thread, place, offset);
                    naive.flush(thread, place, offset, false);
                }
                Action::Clflush { offset } => {
                    b.flush_as(thread, place, offset, FlushKind::Clflush);
                    naive.flush(thread, place, offset, true);
                }
                Action::Sfence => {
                    b.sfence(thread, place);
                    naive.sfence(thread, place);
                }
                Action::Mfence => {
                    b.mfence(thread, place);
                    naive.pending.insert(thread, false);
                    naive.stored.insert(thread, false);
                    naive.fence(thread);
                }
                Action::Remap => {
                    b.unmap(thread, place).map(thread);
                    naive.gone();
                }
            }
        }
        naive.gone();
        let report = b.report(if eadr { Model::Eadr } else { Model::Px86 }, "");
        let after_stores: BTreeSet<u64> = report
            .findings
            .iter()
            .filter(|f| f.kind == Kind::RedundantFence)
            .map(place)
            .filter(|p| !naive.found.contains_key(&(Kind::RedundantFence, *p)))
            .collect();
        let found: BTreeMap<_, _> = report
            .findings
            .iter()
            .filter(|f| f.kind != Kind::RedundantFence || !after_stores.contains(&place(f)))
            .map(|f| {
                let count = if matches!(f.kind, Kind::MissingFlush | Kind::MissingFence) { 0 } else { f.count };
                ((f.kind, place(f)), count)
            })
            .collect();
        prop_assert_eq!(found, naive.found);
        for finding in report.findings.iter().filter(|f| f.kind == Kind::MissingFlush) {
            let listed: BTreeSet<u64> = finding.related.iter().map(|related| related.stack[0].address).collect();
            let expected = &naive.earlier[&place(finding)];
            // Of more than a few, some.
            let enough = listed.len() >= expected.len().min(MAX_EARLIER);
            prop_assert!(listed.is_subset(expected) && enough, "{listed:?} {expected:?}");
        }
        prop_assert!(!eadr || after_stores.is_empty());
    }
}
