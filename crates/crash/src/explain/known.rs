//! The causes that are known, and what a failing state has in common with them.

use std::collections::BTreeSet;

use crashproof_report::{Finding, Kind};

use super::cause::Subject;
use super::clusters::Doing;
use super::history::Index;
use super::places::SpotId;
use super::timeline::Scene;

/// A cause is believed by its source lines alone when so many states have confirmed it.
const CONFIRMATIONS: u64 = 64;

/// Source lines of stores that are missing and of stores that had persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spots {
    pub missing: BTreeSet<SpotId>,
    pub persisted: BTreeSet<SpotId>,
}

/// Where the program's prefix fails: from just after `persisted` to just before the last of `missing`.
#[derive(Clone, Debug)]
pub struct Range {
    pub start: Index,
    pub end: Index,
    pub persisted: BTreeSet<Index>,
    pub missing: BTreeSet<Index>,
}

/// A range of a cause, by their numbers.
pub type RangeId = (usize, usize);

/// States that are alike: in the same ranges, with the same source lines.
pub type Signature = (Vec<RangeId>, Spots);

/// A cause that has been put into words.
pub struct Known {
    pub kind: Kind,
    pub spots: Spots,
    /// Of states of this cause: what had persisted is among the uncertain stores.
    pub uncertain: bool,
    /// Where the program's prefix is known to fail for this reason.
    pub between: Vec<Range>,
    /// There are states in which stores that had been executed are missing.
    pub lost: bool,
    pub states: u64,
    /// In which it was met, as far as the program says, and their paths.
    pub operations: BTreeSet<u64>,
    pub paths: BTreeSet<u64>,
    pub confirmed: u64,
    pub finding: Finding,
    pub scene: Scene,
}

impl Known {
    /// One more state fails for this reason.
    pub fn count(&mut self, doing: Option<Doing>) {
        self.states += 1;
        if let Some(doing) = doing {
            self.operations.insert(doing.operation);
            self.paths.insert(doing.path);
        }
    }

    pub fn finding(&self) -> Finding {
        let mut finding = self.finding.clone();
        finding.count = self.states;
        if let Some(crash) = &mut finding.crash {
            crash.states = self.states;
            crash.operations = self.operations.len() as u64;
            crash.paths = self.paths.len() as u64;
        }
        finding
    }

    /// Of two updates that have to be one, either may be the one that is missing.
    pub fn is_same(&self, kind: Kind, spots: &Spots) -> bool {
        let swapped = self.spots.missing == spots.persisted && self.spots.persisted == spots.missing;
        self.kind == kind && (self.spots == *spots || kind == Kind::CrashAtomicity && swapped)
    }

    /// Whether it is enough that a state misses, and has, what this cause is about.
    pub fn is_believed(&self, spots: &Spots) -> bool {
        let persisted = !self.uncertain || self.spots.persisted.is_subset(&spots.persisted);
        self.confirmed >= CONFIRMATIONS && self.lost && persisted && self.spots.missing.is_subset(&spots.missing)
    }
}

/// Ranges that a state lies in, and of which it misses nothing that came too early.
pub fn ranges_at(known: &[Known], subject: &Subject) -> Vec<RangeId> {
    let held = |range: &Range| !range.persisted.iter().any(|index| subject.missing.contains(index));
    let within = |range: &Range| (range.start..range.end).contains(&subject.point) && held(range);
    let ranges = known.iter().enumerate().flat_map(|(number, known)| {
        let of_cause = known.between.iter().enumerate();
        of_cause.filter_map(move |(index, range)| within(range).then_some((number, index)))
    });
    ranges.collect()
}

/// What came too early and what comes too late, of some ranges.
pub fn updates_of(known: &[Known], ranges: &[RangeId]) -> (BTreeSet<Index>, BTreeSet<Index>) {
    let range = |&(known_index, index): &RangeId| &known[known_index].between[index];
    let persisted = ranges.iter().flat_map(|id| range(id).persisted.iter().copied());
    let missing = ranges.iter().flat_map(|id| range(id).missing.iter().copied());
    (persisted.collect(), missing.collect())
}
