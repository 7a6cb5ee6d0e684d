//! Sets of words of PM files for a whole run, kept as bitmaps.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

pub(crate) const WORD: u64 = 8;
const PAGE_WORDS: u64 = 512;
/// Pages (of 4 KiB) that a [`WordSet`] holds at most: 32 MB of bitmaps.
const MAX_PAGES: usize = 1 << 18;

/// A set of 8-byte words. It is evidence only: when it is full, more is not taken in.
#[derive(Clone, Default)]
pub(crate) struct WordSet {
    pages: FxHashMap<(u32, u64), Box<[u64; 8]>>,
}

impl WordSet {
    pub(crate) fn insert(&mut self, file: u32, start: u64, end: u64) {
        if end.saturating_sub(start) / (PAGE_WORDS * WORD) > MAX_PAGES as u64 {
            return;
        }
        for (page, index, mask) in masks(start, end) {
            if self.pages.len() < MAX_PAGES || self.pages.contains_key(&(file, page)) {
                self.pages.entry((file, page)).or_default()[index] |= mask;
            }
        }
    }

    pub(crate) fn remove(&mut self, file: u32, start: u64, end: u64) {
        if (end.saturating_sub(start)) / (PAGE_WORDS * WORD) > self.pages.len() as u64 {
            // Longer than what there is: look through that instead. Pages at the ends go whole, which loses evidence only.
            let pages = start / (PAGE_WORDS * WORD)..=end / (PAGE_WORDS * WORD);
            self.pages.retain(|(f, page), _| *f != file || !pages.contains(page));
            return;
        }
        for (page, index, mask) in masks(start, end) {
            if let Some(bits) = self.pages.get_mut(&(file, page)) {
                bits[index] &= !mask;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Puts the words of one of the masks of [`masks`] in; gives those that were there.
    pub(crate) fn put(&mut self, file: u32, (page, index, mask): Mask) -> u64 {
        let full = self.is_full();
        let bits = match self.pages.entry((file, page)) {
            Entry::Occupied(bits) => bits.into_mut(),
            Entry::Vacant(_) if full => return 0,
            Entry::Vacant(place) => place.insert(Box::default()),
        };
        let before = bits[index] & mask;
        bits[index] |= mask;
        before
    }

    /// Whether something may not have been taken in.
    pub(crate) fn is_full(&self) -> bool {
        self.pages.len() >= MAX_PAGES
    }

    pub(crate) fn contains_any(&self, file: u32, start: u64, end: u64) -> bool {
        !self.pages.is_empty()
            && masks(start, end).any(|(page, index, mask)| {
                self.pages
                    .get(&(file, page))
                    .is_some_and(|bits| bits[index] & mask != 0)
            })
    }
}

/// Up to 64 words: (page, index in it, mask).
pub(crate) type Mask = (u64, usize, u64);

/// The words that the range touches.
pub(crate) fn masks(start: u64, end: u64) -> impl Iterator<Item = Mask> {
    let (mut word, end) = (start / WORD, end.div_ceil(WORD));
    std::iter::from_fn(move || {
        if word >= end {
            return None;
        }
        let (group, bit) = (word / 64, word % 64);
        let count = (end - word).min(64 - bit);
        word += count;
        Some((group / 8, (group % 8) as usize, (!0 >> (64 - count)) << bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let mut set = WordSet::default();
        set.insert(0, 4090, 4100);
        assert!(set.contains_any(0, 4088, 4089) && set.contains_any(0, 4103, 4104) && !set.contains_any(0, 4104, 9000));
        assert!(!set.contains_any(1, 0, 9000));
        set.remove(0, 4096, 4104);
        assert!(!set.contains_any(0, 4096, 9000) && set.contains_any(0, 0, 4096));
        set.remove(0, 0, 1 << 40);
        assert!(!set.contains_any(0, 0, 9000));
    }
}
