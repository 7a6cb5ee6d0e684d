//! Jaaru's strategy: every state that the recovery can tell from those that were tested. What it looked at decides
//! ([`crate::reads`]).
//!
//! Each pass makes more runs at every point than the one before it. Several workers walk over the states of one point
//! from different ends.

use super::{EARLY_PASSES, PassEnd, Strategy, Walk, Work, early_parts, early_work};
use crate::state::{CrashPoint, PointHead};

/// Runs at a point in the first pass.
const RUNS: u64 = 16;
/// A pass makes so many times more than the one before it.
const FACTOR: u64 = 8;
/// Points with fewer states have one walk.
const SHARED: u128 = 64;

pub(crate) struct Dpor {
    pub workers: u64,
}

impl Strategy for Dpor {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        pass <= EARLY_PASSES || last.unfinished > 0
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        match (pass < EARLY_PASSES, head.states) {
            (true, _) => early_parts(pass, head),
            (false, 0) => 0,
            (false, states) if states < SHARED => 1,
            (false, _) => self.workers,
        }
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        if pass < EARLY_PASSES {
            return early_work(pass, point, part);
        }
        let runs = RUNS.saturating_mul(FACTOR.saturating_pow(pass - EARLY_PASSES));
        Work::Walk(Walk {
            runs,
            way: part,
            ways: self.parts(pass, &point.head),
        })
    }
}
