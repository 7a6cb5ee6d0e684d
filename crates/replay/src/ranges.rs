//! Sets of bytes of PM files, kept as exact ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent ranges of files.
#[derive(Default)]
pub struct RangeSet {
    /// (file, start) → end
    ranges: BTreeMap<(u32, u64), u64>,
}

impl RangeSet {
    /// Adds the bytes from `start` up to `end`.
    pub fn insert(&mut self, file: u32, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        while let Some((&(f, s), &e)) = self.ranges.range(..=(file, end)).next_back()
            && f == file
            && e >= start
        {
            self.ranges.remove(&(f, s));
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert((file, start), end);
    }

    /// Takes the bytes from `start` up to `end` out.
    pub fn remove(&mut self, file: u32, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&(f, s), &e)) = self.ranges.range(..(file, end)).next_back()
            && f == file
            && e > start
        {
            self.ranges.remove(&(f, s));
            if s < start {
                self.ranges.insert((f, s), start);
            }
            if end < e {
                self.ranges.insert((f, end), e);
            }
        }
    }

    /// Whether all of the range is in the set.
    pub fn covers(&self, file: u32, start: u64, end: u64) -> bool {
        self.ranges
            .range(..=(file, start))
            .next_back()
            .is_some_and(|(&(f, _), &e)| f == file && e >= end)
    }

    /// Whether some of the range is in the set.
    pub fn touches(&self, file: u32, start: u64, end: u64) -> bool {
        self.ranges
            .range(..(file, end))
            .next_back()
            .is_some_and(|(&(f, _), &e)| f == file && e > start)
    }

    /// The parts of the range that are in the set: start and end, the last one first.
    pub fn within(&self, file: u32, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.ranges.range(..(file, end)).rev();
        before
            .take_while(move |&(&(f, _), &e)| f == file && e > start)
            .map(move |(&(_, s), &e)| (s.max(start), e.min(end)))
    }

    /// Whether no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Takes all bytes out.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn range_set_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0..2u32, 0..40u64, 0..20u64), 0..30)) {
            let mut set = RangeSet::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (insert, file, start, len) in steps {
                if insert {
                    set.insert(file, start, start + len);
                    bytes.extend((start..start + len).map(|b| (file, b)));
                } else {
                    set.remove(file, start, start + len);
                    bytes.retain(|&(f, b)| f != file || b < start || b >= start + len);
                }
                for file in 0..2 {
                    for s in 0..62 {
                        prop_assert_eq!(set.touches(file, s, s + 1), bytes.contains(&(file, s)));
                        let all = (s..s + 5).all(|b| bytes.contains(&(file, b)));
                        prop_assert_eq!(set.covers(file, s, s + 5), all);
                        let within: std::collections::BTreeSet<_> =
                            set.within(file, s, s + 5).flat_map(|(from, to)| from..to).collect();
                        prop_assert!((s..s + 5).all(|b| within.contains(&b) == bytes.contains(&(file, b))));
                        prop_assert!(within.iter().all(|b| (s..s + 5).contains(b)));
                    }
                }
            }
        }
    }
}
