//! One random state for each crash point, again and again until the budget ends. The seed decides, not the number of
//! workers.

use super::{PassEnd, Strategy, Work};
use crate::campaign::CampaignOptions;
use crate::hash::mix;
use crate::state::{CrashPoint, PointHead, State};

/// Passes if there is no budget.
const PASSES: u32 = 64;
/// After so many passes in which every state drawn was a known one there is nothing left to find.
const IDLE: u32 = 16;

pub(crate) struct Random {
    seed: u64,
    limited: bool,
}

impl Random {
    pub(crate) fn new(options: &CampaignOptions) -> Random {
        Random {
            seed: options.seed,
            limited: options.time.is_some() || options.max_states.is_some(),
        }
    }

    fn draw(&self, pass: u32, point: &CrashPoint) -> State {
        let place = mix(point.head.seq << 8 ^ point.head.within as u64);
        let mut random = mix(mix(self.seed) ^ place.wrapping_add(pass as u64));
        let mut next = || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(random)
        };
        // Bugs show when something is all there or not at all, more than in between.
        let choices = point.lines.iter().map(|line| match next() % 4 {
            0 => 0,
            1 => line.everything(),
            _ => next() % line.count(),
        });
        point.lowered(State(choices.collect()))
    }
}

impl Strategy for Random {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        last.idle < IDLE && (self.limited || pass < PASSES)
    }

    fn parts(&self, _pass: u32, head: &PointHead) -> u64 {
        (head.states > 0) as u64
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, _part: u64) -> Work<'p> {
        Work::States(Box::new(std::iter::once(self.draw(pass, point))))
    }
}
