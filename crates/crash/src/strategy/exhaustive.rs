//! Yat's strategy: every allowed state at every crash point. States that the point before had are left out.
//!
//! After the early phases each phase goes further into the states of every point, so that one point with very many does not
//! keep the others waiting.

use super::{EARLY_PASSES, PassEnd, Step, Strategy, Work, early_parts, early_work};
use crate::state::{CrashPoint, PointHead};

/// States in a part.
const PART: u128 = 64;
/// A phase goes so many times further than the one before it.
const FACTOR: u128 = 16;

pub(crate) struct Exhaustive {
    /// States of the point that has most.
    pub largest: u128,
}

/// The first state of a phase.
fn first_of(phase: u32) -> u128 {
    if phase <= EARLY_PASSES {
        0
    } else {
        PART.saturating_mul(FACTOR.saturating_pow(phase - EARLY_PASSES - 1))
    }
}

impl Strategy for Exhaustive {
    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        first_of(Step::of(pass).phase) < self.largest
    }

    fn round(&self, pass: u32) -> u32 {
        Step::of(pass).phase
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let Step { phase, .. } = Step::of(pass);
        if !Step::of(pass).includes(head) {
            return 0;
        }
        if phase < EARLY_PASSES {
            return early_parts(phase, head);
        }
        let states = head.states.min(first_of(phase + 1)).saturating_sub(first_of(phase));
        states.div_ceil(PART).try_into().unwrap_or(u64::MAX)
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let phase = Step::of(pass).phase;
        if phase < EARLY_PASSES {
            return early_work(phase, point, part);
        }
        let first = first_of(phase).saturating_add(PART.saturating_mul(part as u128));
        let end = first.saturating_add(PART).min(first_of(phase + 1));
        let mut start = 0u128;
        let states = point.products().flat_map(move |product| {
            let count = product.count();
            let from = first.saturating_sub(start).min(count);
            let to = end.saturating_sub(start).min(count);
            start = start.saturating_add(count);
            (from..to).map(move |number| product.state(number))
        });
        Work::Once(Box::new(states))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other() {
        assert_eq!([2, 3, 4, 5].map(first_of), [0, 64, 1024, 16384]);
        let all = Exhaustive { largest: 65 };
        let first = |phase| (0..).find(|&pass| Step::of(pass).phase == phase).unwrap();
        assert!(all.has_pass(first(3), PassEnd::default()) && !all.has_pass(first(4), PassEnd::default()));
    }
}
