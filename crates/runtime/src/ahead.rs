//! Whether running ahead pays: after some events the next one is a few instructions away (a copy loop, the fields of a
//! structure), after others it never is, and looking for it would cost as much as the signal that it saves.

const ENTRIES: usize = 1024;
const BEST: u8 = 3;
/// Without prospects, one time in so many is tried all the same: programs change their ways.
const RETRY: u32 = 64;

/// A small saturating score for each place of an event, by a hash of its address.
pub(crate) struct Prospects {
    scores: [u8; ENTRIES],
    refused: u32,
}

impl Default for Prospects {
    fn default() -> Self {
        Prospects {
            scores: [BEST; ENTRIES],
            refused: 0,
        }
    }
}

impl Prospects {
    fn score(&mut self, event: u64) -> &mut u8 {
        &mut self.scores[(event.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % ENTRIES]
    }

    pub(crate) fn good(&mut self, event: u64) -> bool {
        if *self.score(event) > 0 {
            return true;
        }
        self.refused = self.refused.wrapping_add(1);
        self.refused.is_multiple_of(RETRY)
    }

    pub(crate) fn confirm(&mut self, event: u64) {
        let score = self.score(event);
        *score = (*score + 1).min(BEST);
    }

    pub(crate) fn disappoint(&mut self, event: u64) {
        let score = self.score(event);
        *score = score.saturating_sub(1);
    }
}
