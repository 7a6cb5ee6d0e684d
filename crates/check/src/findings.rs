//! Findings as oracles emit them: by ids, deduplicated by kind and stack, with counts.

use std::collections::BTreeSet;

use crashproof_finding::{DurableByKind, Kind};
use crashproof_trace::{FileId, PmAddress, StackId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry::{Occupied, Vacant};

/// One occurrence of a finding, or (in [`Findings`]) the example of all with its kind and stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFinding {
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
pub(crate) enum Relation {
    FlushedHere,
    FlushedFirst,
    MustPersistFirst,
    SnapshottedFirst,
    OtherTransaction,
    NotFlushed,
    NotFenced,
    TransactionBegan,
    TransactionUnfinished,
    OverwrittenUnflushed,
    StoredAfter,
}

/// What the message needs beside the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
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
    /// The bytes were stored again and again, across fences, and nothing ever persisted their line; or they look like a lock that was
    /// used once.
    PerhapsVolatile,
    /// It is a lock that somebody holds.
    HeldLock,
    /// Volatile by its use as a lock.
    Lock,
    /// Volatile: a lock of the C library.
    LockFunction,
    /// Volatile: every process stores there before it reads.
    StoredFirst,
}

/// More places of one finding are not kept.
pub(crate) const MAX_OTHERS: usize = 16;

impl RawFinding {
    pub(crate) fn new(kind: Kind, stack: StackId) -> Self {
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
    pub(crate) fn as_transient(&self, detail: Detail) -> Self {
        RawFinding {
            kind: Kind::TransientData,
            durable_by: None,
            related: None,
            others: BTreeSet::new(),
            detail,
            ..self.clone()
        }
    }

    pub(crate) fn at(self, at: PmAddress, len: u64) -> Self {
        RawFinding {
            at: Some((at, len)),
            ..self
        }
    }
}

/// Kind, stack and the file that it is in: whether the program deletes the file is known only at the end.
type Key = (Kind, StackId, Option<FileId>);

struct Entry {
    finding: RawFinding,
    /// The example is the occurrence at the lowest address, not the first one.
    lowest: bool,
    /// When the first one was found.
    order: u64,
}

#[derive(Default)]
pub(crate) struct Findings {
    entries: FxHashMap<Key, Entry>,
    next: u64,
    /// Fences that passed by a store which was never persisted: they were meant for it.
    pub awaited_fences: FxHashSet<StackId>,
}

impl Findings {
    /// The first occurrence is the example.
    pub(crate) fn add(&mut self, finding: RawFinding) {
        self.merge(finding, false);
    }

    /// The occurrence at the lowest address is the example, so that it does not depend on the order of finding them.
    pub(crate) fn add_lowest(&mut self, finding: RawFinding) {
        self.merge(finding, true);
    }

    fn merge(&mut self, finding: RawFinding, lowest: bool) {
        let file = finding.at.map(|(at, _)| at.file);
        let order = self.next;
        self.next += 1;
        let new = Entry { finding, lowest, order };
        match self.entries.entry((new.finding.kind, new.finding.stack, file)) {
            Vacant(entry) => keep_few(&mut entry.insert(new).finding.others),
            Occupied(entry) => entry.into_mut().take(new),
        }
    }

    /// Drops the findings of a kind that cannot be known after all.
    pub(crate) fn forget(&mut self, kind: Kind) {
        self.entries.retain(|&(of, ..), _| of != kind);
    }

    /// What was found in one file is the same as what was found in another, with the same kind and stack; but what is in the
    /// files of `apart` stays by itself.
    pub(crate) fn join(&mut self, apart: impl Fn(FileId) -> bool) {
        let mut entries: Vec<(Key, Entry)> = self.entries.drain().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.order);
        for ((kind, stack, file), entry) in entries {
            match self.entries.entry((kind, stack, file.filter(|&file| apart(file)))) {
                Vacant(vacant) => {
                    vacant.insert(entry);
                }
                Occupied(occupied) => occupied.into_mut().take(entry),
            }
        }
    }

    /// The one in a file, before [`Findings::join`].
    pub(crate) fn get(&self, kind: Kind, stack: StackId, file: FileId) -> Option<&RawFinding> {
        self.entries.get(&(kind, stack, Some(file))).map(|entry| &entry.finding)
    }

    /// Whether there is one, in files that are kept. After [`Findings::join`].
    pub(crate) fn has(&self, kind: Kind, stack: StackId) -> bool {
        self.entries.contains_key(&(kind, stack, None))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RawFinding> {
        self.entries.values_mut().map(|entry| &mut entry.finding)
    }

    /// Makes `transient-data` of the findings of which `evidence` says so, for the reason that it gives.
    pub(crate) fn make_transient(&mut self, mut evidence: impl FnMut(&RawFinding) -> Option<Detail>) {
        let transient: Vec<(Key, RawFinding)> = self
            .entries
            .iter()
            .filter_map(|(&key, entry)| Some((key, entry.finding.as_transient(evidence(&entry.finding)?))))
            .collect();
        for (old, finding) in transient {
            self.entries.remove(&old);
            self.add_lowest(finding);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &RawFinding> {
        self.entries.values().map(|entry| &entry.finding)
    }
}

impl Entry {
    /// Another occurrence, which was found later.
    fn take(&mut self, later: Entry) {
        let count = self.finding.count + later.finding.count;
        let one_place = self.finding.one_place && later.finding.one_place && self.finding.at == later.finding.at;
        let in_flight = self.finding.in_flight && later.finding.in_flight;
        let mut others = std::mem::take(&mut self.finding.others);
        others.extend(later.finding.others.iter().copied());
        keep_few(&mut others);
        if later.lowest && later.finding.at < self.finding.at {
            self.finding = later.finding;
        }
        self.finding.others = others;
        self.finding.count = count;
        self.finding.one_place = one_place;
        self.finding.in_flight = in_flight;
    }
}

/// Those with the lowest numbers, so that it does not depend on the order of finding them.
fn keep_few(others: &mut BTreeSet<(Relation, StackId)>) {
    while others.len() > MAX_OTHERS {
        others.pop_last();
    }
}
