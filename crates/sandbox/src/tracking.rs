//! Whether the runtime notes which pages a run writes to, or all pages are compared after it.
//!
//! To note a page takes a fault, a signal and a change of protection, which is as much as comparing some thirty pages of memory that was just
//! used (measured: 5 to 8 µs against 0.2). A recovery that reads much and writes little is noted, a driver that does operations all over
//! a small pool compared. Either way what it wrote is known, so that the choice is looked at again from time to time.

/// Comparing so many pages takes as long as noting one.
const WORTH: u64 = 24;
/// Runs after which the choice is made, at first and later.
const FIRST: u32 = 8;
const LATER: u32 = 256;

pub(crate) struct Tracking {
    compares: bool,
    runs: u32,
    decide_after: u32,
    /// Pages that these runs wrote to.
    written: u64,
}

impl Tracking {
    pub(crate) fn new() -> Tracking {
        Tracking {
            compares: false,
            runs: 0,
            decide_after: FIRST,
            written: 0,
        }
    }

    pub(crate) fn compares(&self) -> bool {
        self.compares
    }

    /// A run wrote to so many pages. `all`: how many there are to be compared.
    pub(crate) fn ran(&mut self, written: u64, all: impl FnOnce() -> u64) {
        self.runs += 1;
        self.written += written;
        if self.runs < self.decide_after {
            return;
        }
        // Not to and fro where it hardly matters.
        let worth = if self.compares { 2 * WORTH } else { WORTH };
        self.compares = self.written * worth > all() * u64::from(self.runs);
        (self.runs, self.written, self.decide_after) = (0, 0, LATER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(tracking: &mut Tracking, written: u64, all: u64, runs: u32) -> bool {
        (0..runs).for_each(|_| tracking.ran(written, || all));
        tracking.compares()
    }

    #[test]
    fn compares_where_much_of_little_is_written() {
        let mut tracking = Tracking::new();
        assert!(!after(&mut tracking, 10, 200, FIRST - 1));
        assert!(after(&mut tracking, 10, 200, 1));
        // A little less is no reason to change; much less is.
        assert!(after(&mut tracking, 6, 200, LATER));
        assert!(!after(&mut tracking, 1, 200, LATER));
        assert!(!after(&mut tracking, 8, 200, LATER));
        assert!(!after(&mut Tracking::new(), 3, 2048, 3 * LATER));
    }
}
