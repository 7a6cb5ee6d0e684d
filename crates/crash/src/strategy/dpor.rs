//! Jaaru's strategy: every state that the recovery can tell from those that were tested. What it looked at decides
//! ([`crate::reads`]).
//!
//! Each phase makes more runs at every point than the one before it. Several workers walk over the states of one point
//! from different ends.

use super::{EARLY_PASSES, PassEnd, Step, Strategy, Walk, Work, early_parts, early_work};
use crate::state::{CrashPoint, PointHead};

/// Runs at a point in the first phase.
const RUNS: u64 = 16;
/// A phase makes so many times more than the one before it.
const FACTOR: u64 = 8;
/// Points with fewer states have one walk.
const SHARED: u128 = 64;

pub(crate) struct Dpor {
    pub workers: u64,
}

impl Strategy for Dpor {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let step = Step::of(pass);
        step.phase <= EARLY_PASSES || !step.is_first() || last.unfinished > 0
    }

    fn round(&self, pass: u32) -> u32 {
        Step::of(pass).phase
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let step = Step::of(pass);
        match (step.phase < EARLY_PASSES, head.states) {
            _ if !step.includes(head) => 0,
            (true, _) => early_parts(step.phase, head),
            (false, 0) => 0,
            (false, states) if states < SHARED => 1,
            (false, _) => self.workers,
        }
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let phase = Step::of(pass).phase;
        if phase < EARLY_PASSES {
            return early_work(phase, point, part);
        }
        let runs = RUNS.saturating_mul(FACTOR.saturating_pow(phase - EARLY_PASSES));
        Work::Walk(Walk {
            runs,
            way: part,
            ways: self.parts(pass, &point.head),
        })
    }
}
