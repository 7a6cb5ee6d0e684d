//! Findings as oracles emit them: by ids, deduplicated by kind and stack, with counts.

use crashproof_report::{DurableByKind, Kind};
use crashproof_trace::{PmAddress, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

/// One occurrence of a finding, or (in [`Findings`]) the example of all with its kind and stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFinding {
    pub kind: Kind,
    pub stack: StackId,
    pub at: Option<(PmAddress, u64)>,
    pub durable_by: Option<(DurableByKind, StackId)>,
    pub related: Option<(Relation, StackId)>,
    pub detail: Detail,
    pub count: u64,
    /// For redundant flushes and fences: of so many with this stack.
    pub out_of: Option<u64>,
    /// Nothing says that the program would not have made up for it, had it not been killed just then.
    pub in_flight: bool,
}

/// What a related place has to do with the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    FlushedHere,
    FlushedFirst,
    MustPersistFirst,
    SnapshottedFirst,
    NotFlushed,
    NotFenced,
    TransactionBegan,
    TransactionUnfinished,
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
}

impl RawFinding {
    pub fn new(kind: Kind, stack: StackId) -> Self {
        RawFinding {
            kind,
            stack,
            at: None,
            durable_by: None,
            related: None,
            detail: Detail::None,
            count: 1,
            out_of: None,
            in_flight: false,
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
        let old = match self.by_stack.entry((finding.kind, finding.stack)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(finding);
                return;
            }
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
        };
        let count = old.count + finding.count;
        let in_flight = old.in_flight && finding.in_flight;
        if better(&finding, old) {
            *old = finding;
        }
        old.count = count;
        old.in_flight = in_flight;
    }

    pub fn get(&self, kind: Kind, stack: StackId) -> Option<&RawFinding> {
        self.by_stack.get(&(kind, stack))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut RawFinding> {
        self.by_stack.values_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &RawFinding> {
        self.by_stack.values()
    }
}
