//! Yat's strategy: every allowed state at every crash point. States that the point before had are left out.
//!
//! After the early passes each pass goes further into the states of every point, so that one point with very many does not
//! keep the others waiting.

use super::{EARLY_PASSES, PassEnd, Strategy, Work, early_parts, early_work};
use crate::state::{CrashPoint, PointHead};

/// States in a part.
const PART: u128 = 64;
/// A pass goes so many times further than the one before it.
const FACTOR: u128 = 16;

pub(crate) struct Exhaustive {
    /// States of the point that has most.
    pub largest: u128,
}

/// The first state of a pass.
fn first_of(pass: u32) -> u128 {
    if pass <= EARLY_PASSES {
        0
    } else {
        PART.saturating_mul(FACTOR.saturating_pow(pass - EARLY_PASSES - 1))
    }
}

impl Strategy for Exhaustive {
    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        first_of(pass) < self.largest
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        if pass < EARLY_PASSES {
            return early_parts(pass, head);
        }
        let states = head.states.min(first_of(pass + 1)).saturating_sub(first_of(pass));
        states.div_ceil(PART).try_into().unwrap_or(u64::MAX)
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        if pass < EARLY_PASSES {
            return early_work(pass, point, part);
        }
        let first = first_of(pass).saturating_add(PART.saturating_mul(part as u128));
        let end = first.saturating_add(PART).min(first_of(pass + 1));
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
    fn passes_follow_each_other() {
        assert_eq!([2, 3, 4, 5].map(first_of), [0, 64, 1024, 16384]);
        let all = Exhaustive { largest: 65 };
        assert!(all.has_pass(3, PassEnd::default()) && !all.has_pass(4, PassEnd::default()));
    }
}
