//! What all workers of a campaign share: what was tested, the tree of reads, the budget, the journal.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crashproof_finding::FirstFailure;
use crashproof_trace::{StackId, TraceFile};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::campaign::{CampaignOptions, Progress, Recovered, Survey};
use crate::error::CrashError;
use crate::executor::Verdict;
use crate::journal::{Entry, Journal};
use crate::reads::{Tree, UnitHash};
use crate::strategy::Strategy;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is shared is consistent between any two statements; a panic elsewhere is reported where it happened.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Shared<'a> {
    pub trace: &'a TraceFile,
    pub options: &'a CampaignOptions,
    pub survey: &'a Survey,
    pub strategy: &'a dyn Strategy,
    /// Places where the strategy stops, or the states that are allowed there.
    pub states: u128,
    pub stop: &'a AtomicBool,
    /// Set when a worker or the explainer gave up: the others need not go on.
    pub broken: AtomicBool,
    /// Why; the first that said so.
    pub error: Mutex<Option<CrashError>>,
    pub start: Instant,
    pub cut_short: AtomicBool,
    pub seen: Mutex<FxHashSet<u128>>,
    /// Those of them that failed.
    pub failing: Mutex<FxHashSet<u128>>,
    pub tested: AtomicU64,
    pub failed: AtomicU64,
    pub recoveries: AtomicU64,
    pub first_failure: OnceLock<FirstFailure>,
    pub findings: AtomicU64,
    /// Failures that did not repeat, and how many of them were time-outs, which a busy machine can cause.
    pub unrepeated: AtomicU64,
    pub unrepeated_timeouts: AtomicU64,
    pub coverage: Mutex<Coverage>,
    /// At which some state came up.
    pub points: Mutex<FxHashSet<(u64, u16)>>,
    pub prunes: AtomicBool,
    /// Some run has looked at what the program had output.
    pub output_read: AtomicBool,
    /// Whether a run has been compared with itself.
    pub compared: AtomicBool,
    pub tree: Mutex<Tree>,
    pub unfinished: AtomicU64,
    pub journal: Option<Mutex<Journal>>,
    pub recovered: Mutex<FxHashMap<StackId, Vec<Recovered>>>,
    pub warnings: Mutex<Vec<String>>,
}

/// A crash point: its event, and how much of the event was done; and which of the walks there, if a strategy has several.
pub(super) type PointKey = (u64, u16, u64);

/// States that came up, or are alike to one that did in all that the recovery reads.
#[derive(Default)]
pub(super) struct Coverage {
    pub states: u128,
    /// Points whose walk is finished: their states are in `states`.
    finished: FxHashSet<PointKey>,
    /// States that unfinished walks came to.
    unfinished: FxHashMap<PointKey, u128>,
    /// How often all of it was forgotten.
    generation: u32,
}

impl Coverage {
    fn total(&self) -> u128 {
        self.unfinished
            .values()
            .fold(self.states, |sum, &states| sum.saturating_add(states))
    }

    /// Walks that are not finished.
    pub(super) fn in_part(&self) -> u64 {
        self.unfinished.len() as u64
    }

    /// For [`Coverage::walked`]; none if the point's walk is finished.
    pub(super) fn begin_walk(&self, key: PointKey) -> Option<u32> {
        (!self.finished.contains(&key)).then_some(self.generation)
    }

    /// Whether the walk counts: what a walk left out counts no more if pruning ended meanwhile.
    pub(super) fn walked(&mut self, key: PointKey, generation: u32, states: u128, finished: bool) -> bool {
        if generation != self.generation {
            return false;
        }
        if self.finished.contains(&key) {
            return true;
        }
        if finished {
            self.unfinished.remove(&key);
            self.finished.insert(key);
            self.states = self.states.saturating_add(states);
        } else {
            let known = self.unfinished.entry(key).or_default();
            *known = states.max(*known);
        }
        true
    }

    fn forget(&mut self) {
        *self = Coverage {
            generation: self.generation + 1,
            ..Coverage::default()
        };
    }
}

impl Shared<'_> {
    pub(super) fn warn(&self, warning: String) {
        lock(&self.warnings).push(warning);
    }

    /// Ends the campaign: what there is by now is its outcome.
    pub(super) fn give_up(&self, error: CrashError) {
        lock(&self.error).get_or_insert(error);
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        let late = self.options.time.is_some_and(|time| self.start.elapsed() >= time);
        let over =
            late || self.has_enough() || self.stop.load(Ordering::Relaxed) || self.broken.load(Ordering::Relaxed);
        if over {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        over
    }

    pub(super) fn has_enough(&self) -> bool {
        self.options.fail_fast && self.findings.load(Ordering::Relaxed) > 0
    }

    /// Whether failures that are waiting are to be left unexplained.
    pub(super) fn explaining_is_over(&self) -> bool {
        let limit = self.options.time_to_explain();
        self.has_enough()
            || self.stop.load(Ordering::Relaxed)
            || limit.is_some_and(|limit| self.start.elapsed() >= limit)
    }

    /// Takes a state from the budget, if it is not one that was run before.
    pub(super) fn reserve(&self, new: bool) -> bool {
        let limit = self.options.max_states.unwrap_or(u64::MAX);
        let taken = self
            .tested
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tested| {
                (tested < limit).then_some(tested + new as u64)
            });
        if taken.is_err() {
            self.cut_short.store(true, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    pub(super) fn progress(&self) -> Progress {
        let tested = self.tested.load(Ordering::Relaxed);
        Progress {
            tested,
            pruned: self.pruned(tested),
            failed: self.failed.load(Ordering::Relaxed),
            findings: self.findings.load(Ordering::Relaxed),
            total: self
                .strategy
                .planned()
                .unwrap_or(self.states)
                .min(self.options.max_states.map_or(u128::MAX, u128::from)),
        }
    }

    pub(super) fn pruned(&self, tested: u64) -> u64 {
        let covered = lock(&self.coverage).total();
        covered.saturating_sub(tested as u128).try_into().unwrap_or(u64::MAX)
    }

    /// Takes a run into the tree.
    pub(super) fn learn(&self, context: u128, touched: &[(u64, UnitHash)], verdict: Verdict) {
        if self.prunes.load(Ordering::Relaxed) && lock(&self.tree).insert(context, touched, verdict).is_err() {
            self.stop_pruning("the recovery looked at other places than before although all it had read was the same");
        }
    }

    pub(super) fn stop_pruning(&self, why: &str) {
        // First, so that a walk of the new generation does not prune.
        if self.prunes.swap(false, Ordering::Relaxed) {
            lock(&self.coverage).forget();
            self.unfinished.fetch_add(1, Ordering::Relaxed);
            self.warn(format!(
                "states are no longer left out by what the recovery reads: {why}; it is not deterministic (addresses, time and \
                 random numbers do that), so every state is tested"
            ));
            self.note(&Entry::PruningEnded { why: why.into() });
        }
    }

    /// Writes to the journal; a journal that cannot be written to ends the campaign.
    pub(super) fn note(&self, entry: &Entry) {
        if let Some(journal) = &self.journal
            && let Err(error) = lock(journal).append(entry)
        {
            self.give_up(error);
        }
    }

    /// What a killed campaign would lose otherwise.
    pub(super) fn flush(&self) {
        if let Some(journal) = &self.journal
            && let Err(error) = lock(journal).flush()
        {
            self.give_up(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_walk_left_out_counts_no_more_when_pruning_ended_meanwhile() {
        let mut coverage = Coverage::default();
        let generation = coverage.begin_walk((1, 0, 0)).unwrap();
        coverage.forget();
        assert!(!coverage.walked((1, 0, 0), generation, 100, true));
        assert_eq!(coverage.total(), 0);
        let generation = coverage.begin_walk((1, 0, 0)).expect("it is to be walked again");
        assert!(coverage.walked((1, 0, 0), generation, 70, false));
        assert!(coverage.walked((1, 0, 0), generation, 100, true));
        assert_eq!((coverage.total(), coverage.begin_walk((1, 0, 0))), (100, None));
    }
}
