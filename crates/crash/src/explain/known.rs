//! The causes that are known, and what a failing state has in common with them.

use std::collections::BTreeSet;

use crashproof_finding::{Finding, Kind};

use super::cause::Subject;
use super::clusters::Doing;
use super::history::Index;
use super::places::SpotId;
use super::snapshots::LackingSnapshot;
use super::timeline::Scene;

/// A cause is believed by its source lines alone when so many states have confirmed it.
const CONFIRMATIONS: u64 = 64;

/// Source lines of stores that are missing and of stores that had persisted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spots {
    pub missing: BTreeSet<SpotId>,
    pub persisted: BTreeSet<SpotId>,
}

/// Where the program's prefix fails: from just after `persisted` to just before the last of `missing`.
#[derive(Clone, Debug)]
pub(super) struct FailingSpan {
    pub start: Index,
    pub end: Index,
    pub persisted: BTreeSet<Index>,
    pub missing: BTreeSet<Index>,
}

/// A range of a cause, by their numbers.
pub(super) type RangeId = (usize, usize);

/// States that are alike: in the same ranges, with the same source lines.
pub(super) type Signature = (Vec<RangeId>, Spots);

/// A cause that has been put into words.
pub(super) struct Known {
    pub kind: Kind,
    pub spots: Spots,
    /// Of an update that the program itself leaves incomplete for a while: the line that completes it.
    pub completed: Option<SpotId>,
    /// Of states of this cause: what had persisted is among the uncertain stores.
    pub uncertain: bool,
    /// Where the program's prefix is known to fail for this reason.
    pub between: Vec<FailingSpan>,
    /// There are states in which stores that had been executed are missing.
    pub lost: bool,
    pub states: u64,
    /// In which it was met, as far as the program says, and their paths.
    pub operations: BTreeSet<u64>,
    pub paths: BTreeSet<u64>,
    pub confirmed: u64,
    /// What a snapshot would have prevented is told apart by that alone.
    pub snapshot: Option<LackingSnapshot>,
    pub finding: Finding,
    pub scene: Scene,
}

impl Known {
    /// One more state fails for this reason.
    pub(super) fn count(&mut self, doing: Option<Doing>) {
        self.states += 1;
        if let Some(doing) = doing {
            self.operations.insert(doing.operation);
            self.paths.insert(doing.path);
        }
    }

    pub(super) fn finding(&self) -> Finding {
        let mut finding = self.finding.clone();
        finding.count = self.states;
        if let Some(crash) = &mut finding.crash {
            crash.states = self.states;
            crash.operations = self.operations.len() as u64;
            crash.paths = self.paths.len() as u64;
        }
        finding
    }

    /// Takes in the states of another one, which is then no cause of its own.
    fn absorb(&mut self, other: Known) {
        self.states += other.states;
        self.operations.extend(other.operations);
        self.paths.extend(other.paths);
    }

    /// Of two updates that have to be one, either may be the one that is missing. And an update of many stores, which is begun by one line and completed
    /// by another, is the same one whatever it does in between.
    pub(super) fn is_same(&self, kind: Kind, spots: &Spots, completed: Option<SpotId>) -> bool {
        let swapped = self.spots.missing == spots.persisted && self.spots.persisted == spots.missing;
        let update = self.spots.persisted == spots.persisted && completed.is_some() && self.completed == completed;
        self.kind == kind && (self.spots == *spots || kind == Kind::CrashAtomicity && (swapped || update))
    }

    /// Whether its states miss what several others do, each of them for the same reason.
    fn is_made_of(&self, others: &[Known]) -> bool {
        let part = |other: &&Known| {
            (other.kind, &other.spots.persisted) == (self.kind, &self.spots.persisted)
                // What the program itself stores in the wrong order is mended by another order of its stores only.
                && (self.between.is_empty() || !other.between.is_empty())
                && other.spots.missing.len() < self.spots.missing.len()
                && other.spots.missing.is_subset(&self.spots.missing)
        };
        let parts = others.iter().filter(part);
        let missing: BTreeSet<SpotId> = parts.flat_map(|other| other.spots.missing.iter().copied()).collect();
        !missing.is_empty() && missing == self.spots.missing
    }

    /// Whether it is enough that a state misses, and has, what this cause is about.
    pub(super) fn is_believed(&self, spots: &Spots) -> bool {
        let persisted = !self.uncertain || self.spots.persisted.is_subset(&spots.persisted);
        self.confirmed >= CONFIRMATIONS && self.lost && persisted && self.spots.missing.is_subset(&spots.missing)
    }
}

/// The causes that are one to the user.
///
/// Two updates that an order would keep right in some states and none in others have to be one: an order of them is no repair, and no
/// cause beside. And a state that misses what has to persist first of several orders at once has no cause of its own.
pub(super) fn merge(known: Vec<Known>) -> Vec<Known> {
    let (orders, mut merged): (Vec<Known>, Vec<Known>) =
        known.into_iter().partition(|known| known.kind == Kind::CrashOrder);
    let mut left = Vec::new();
    for order in orders {
        let atomic = |known: &&mut Known| known.is_same(Kind::CrashAtomicity, &order.spots, None);
        match merged.iter_mut().find(atomic) {
            Some(atomic) => {
                atomic.finding.notes.push(format!(
                    "in {} of these states another order of the two would have been enough; in the others no order would",
                    order.states
                ));
                atomic.absorb(order);
            }
            None => left.push(order),
        }
    }
    // The smaller ones first, which others are made of.
    left.sort_by_key(|order| order.spots.missing.len());
    let first = merged.len();
    for order in left {
        let orders = &mut merged[first..];
        if order.is_made_of(orders) {
            let part = |other: &&mut Known| {
                other.spots.persisted == order.spots.persisted && other.spots.missing.is_subset(&order.spots.missing)
            };
            if let Some(part) = orders.iter_mut().find(part) {
                part.absorb(order);
            }
        } else {
            merged.push(order);
        }
    }
    merged
}

/// Ranges that a state lies in, and of which it misses nothing that came too early.
pub(super) fn ranges_at(known: &[Known], subject: &Subject) -> Vec<RangeId> {
    let held = |range: &FailingSpan| !range.persisted.iter().any(|index| subject.missing.contains(index));
    let within = |range: &FailingSpan| (range.start..range.end).contains(&subject.point) && held(range);
    let ranges = known.iter().enumerate().flat_map(|(number, known)| {
        let of_cause = known.between.iter().enumerate();
        of_cause.filter_map(move |(index, range)| within(range).then_some((number, index)))
    });
    ranges.collect()
}

/// What came too early and what comes too late, of some ranges.
pub(super) fn updates_of(known: &[Known], ranges: &[RangeId]) -> (BTreeSet<Index>, BTreeSet<Index>) {
    let range = |&(known_index, index): &RangeId| &known[known_index].between[index];
    let persisted = ranges.iter().flat_map(|id| range(id).persisted.iter().copied());
    let missing = ranges.iter().flat_map(|id| range(id).missing.iter().copied());
    (persisted.collect(), missing.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kind: Kind, missing: &[SpotId], persisted: &[SpotId], completed: Option<SpotId>) -> Known {
        let finding = serde_json::json!({
            "kind": kind, "severity": "error", "file": null, "line": null, "column": null, "function": null,
            "count": 0, "message": "", "address": null, "stack": []
        });
        Known {
            kind,
            spots: spots(missing, persisted),
            completed,
            uncertain: true,
            between: Vec::new(),
            lost: completed.is_none(),
            states: 1,
            operations: BTreeSet::new(),
            paths: BTreeSet::new(),
            confirmed: 1,
            snapshot: None,
            finding: serde_json::from_value(finding).unwrap(),
            scene: Scene::default(),
        }
    }

    fn spots(missing: &[SpotId], persisted: &[SpotId]) -> Spots {
        Spots {
            missing: missing.iter().copied().collect(),
            persisted: persisted.iter().copied().collect(),
        }
    }

    fn merged(all: Vec<Known>) -> Vec<(Kind, Vec<SpotId>, u64)> {
        let merged = merge(all).into_iter();
        merged
            .map(|known| (known.kind, known.spots.missing.into_iter().collect(), known.states))
            .collect()
    }

    #[test]
    fn what_misses_all_that_several_orders_are_about_is_no_cause_of_its_own() {
        use Kind::CrashOrder as Order;
        let parts = || vec![known(Order, &[1], &[3], None), known(Order, &[2], &[3], None)];
        let mut all = parts();
        all.insert(0, known(Order, &[1, 2], &[3], None));
        assert_eq!(merged(all), [(Order, vec![1], 2), (Order, vec![2], 1)]);
        // It is counted for a part of the same reason.
        let mut all = parts();
        all.insert(0, known(Order, &[1], &[9], None));
        all.push(known(Order, &[1, 2], &[3], None));
        assert_eq!(merged(all).iter().map(|cause| cause.2).collect::<Vec<_>>(), [1, 2, 1]);
        // The program itself stores in the wrong order.
        let mut all = parts();
        all.push(known(Order, &[1, 2], &[3], None));
        all[2].between.push(FailingSpan {
            start: 1,
            end: 2,
            persisted: BTreeSet::new(),
            missing: BTreeSet::new(),
        });
        assert_eq!(merged(all).len(), 3);
        // Part of it is about something else.
        for other in [known(Order, &[1, 2, 4], &[3], None), known(Order, &[1, 2], &[5], None)] {
            let mut all = parts();
            all.push(other);
            assert_eq!(merged(all).len(), 3);
        }
    }

    #[test]
    fn an_order_of_what_has_to_be_one_is_no_cause_of_its_own() {
        let atomic = known(Kind::CrashAtomicity, &[1], &[2], None);
        for order in [
            known(Kind::CrashOrder, &[1], &[2], None),
            known(Kind::CrashOrder, &[2], &[1], None),
        ] {
            let all = vec![order, known(Kind::CrashAtomicity, &[1], &[2], None)];
            assert_eq!(merged(all), [(Kind::CrashAtomicity, vec![1], 2)]);
        }
        let other = known(Kind::CrashOrder, &[1], &[3], None);
        assert_eq!(merged(vec![other, atomic]).len(), 2);
    }

    #[test]
    fn an_update_is_known_by_where_it_begins_and_where_it_is_complete() {
        let update = known(Kind::CrashAtomicity, &[1, 2, 9], &[5], Some(9));
        let is_same = |missing: &[SpotId], persisted: &[SpotId], completed| {
            update.is_same(Kind::CrashAtomicity, &spots(missing, persisted), completed)
        };
        assert!(is_same(&[3, 9], &[5], Some(9)));
        assert!(!is_same(&[3, 8], &[5], Some(8)));
        assert!(!is_same(&[3, 9], &[6], Some(9)));
        assert!(!is_same(&[3, 9], &[5], None));
    }
}
