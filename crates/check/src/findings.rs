//! Findings as oracles emit them: by ids, deduplicated by kind and stack, with counts.

use std::collections::BTreeSet;

use crashproof_report::{DurableByKind, Kind};
use crashproof_trace::{PmAddress, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

/// One occurrence of a finding, or (in [`Findings`]) the example of all with its kind and stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFinding {
    pub kind: Kind,
    pub stack: StackId,
    pub at: Option<(PmAddress, u64)>,
    /// All occurrences are there.
    pub one_place: bool,
    pub durable_by: Option<(DurableByKind, StackId)>,
    pub related: Option<(Relation, StackId)>,
    /// Further places like that of `related`, or of the finding itself: a few, the first by their number.
    pub others: BTreeSet<(Relation, StackId)>,
    pub detail: Detail,
    pub count: u64,
    /// For redundant flushes and fences: of so many with this stack.
    pub out_of: Option<u64>,
    /// Nothing says that the program would not have made up for it, had it not been killed just then.
    pub in_flight: bool,
}

/// What a related place has to do with the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    FlushedHere,
    FlushedFirst,
    MustPersistFirst,
    SnapshottedFirst,
    NotFlushed,
    NotFenced,
    TransactionBegan,
    TransactionUnfinished,
    OverwrittenUnflushed,
    StoredAfter,
}

/// What the message needs beside the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    /// The store was non-temporal.
    Nontemporal,
    /// The line was flushed before and not fenced since.
    Pending,
    /// Nothing flushes the store, not even by luck.
    NeverFlushed,
    /// Index of the rule in the configuration.
    Rule(usize),
    /// The end of an operation says that it has to be durable.
    Operation,
    /// What has to persist first is stored only later.
    Backwards,
    /// The bytes were stored again and again, across fences, and nothing ever persisted their line.
    Rewritten,
    /// It is a lock that somebody holds.
    HeldLock,
    /// Volatile by its use as a lock.
    Lock,
    /// Volatile: a function stores there that works on locks.
    LockFunction,
    /// Volatile: every process stores there before it reads.
    StoredFirst,
}

/// More places of one finding are not kept.
const MAX_OTHERS: usize = 16;

impl RawFinding {
    pub fn new(kind: Kind, stack: StackId) -> Self {
        RawFinding {
            kind,
            stack,
            at: None,
            one_place: true,
            durable_by: None,
            related: None,
            others: BTreeSet::new(),
            detail: Detail::None,
            count: 1,
            out_of: None,
            in_flight: false,
        }
    }

    /// The same as `transient-data`, of which nobody expects that it is durable.
    pub fn as_transient(&self, detail: Detail) -> Self {
        RawFinding {
            kind: Kind::TransientData,
            durable_by: None,
            related: None,
            others: BTreeSet::new(),
            detail,
            ..self.clone()
        }
    }

    pub fn at(self, at: PmAddress, len: u64) -> Self {
        RawFinding {
            at: Some((at, len)),
            ..self
        }
    }
}

#[derive(Default)]
pub struct Findings {
    by_stack: FxHashMap<(Kind, StackId), RawFinding>,
    /// Fences that passed by a store which was never persisted: they were meant for it.
    pub awaited_fences: FxHashSet<StackId>,
}

impl Findings {
    /// The first occurrence is the example.
    pub fn add(&mut self, finding: RawFinding) {
        self.merge(finding, |_, _| false);
    }

    /// The occurrence at the lowest address is the example, so that it does not depend on the order of finding them.
    pub fn add_lowest(&mut self, finding: RawFinding) {
        self.merge(finding, |new, old| new.at < old.at);
    }

    fn merge(&mut self, finding: RawFinding, better: impl Fn(&RawFinding, &RawFinding) -> bool) {
        let others = finding.others.clone();
        let old = match self.by_stack.entry((finding.kind, finding.stack)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                keep_few(&mut entry.insert(finding).others);
                return;
            }
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        let count = old.count + finding.count;
        let one_place = old.one_place && finding.one_place && old.at == finding.at;
        let in_flight = old.in_flight && finding.in_flight;
        if better(&finding, old) {
            let known = std::mem::take(&mut old.others);
            *old = finding;
            old.others = known;
        }
        old.others.extend(others);
        keep_few(&mut old.others);
        old.count = count;
        old.one_place = one_place;
        old.in_flight = in_flight;
    }

    pub fn get(&self, kind: Kind, stack: StackId) -> Option<&RawFinding> {
        self.by_stack.get(&(kind, stack))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RawFinding> {
        self.by_stack.values_mut()
    }

    /// Makes `transient-data` of the findings of which `evidence` says so, for the reason that it gives.
    pub fn make_transient(&mut self, mut evidence: impl FnMut(&RawFinding) -> Option<Detail>) {
        let transient: Vec<_> = self
            .iter()
            .filter_map(|finding| Some(finding.as_transient(evidence(finding)?)).map(|new| (finding.kind, new)))
            .collect();
        for (old, finding) in transient {
            self.by_stack.remove(&(old, finding.stack));
            self.add_lowest(finding);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &RawFinding> {
        self.by_stack.values()
    }
}

/// Those with the lowest numbers, so that it does not depend on the order of finding them.
fn keep_few(others: &mut BTreeSet<(Relation, StackId)>) {
    while others.len() > MAX_OTHERS {
        others.pop_last();
    }
}
