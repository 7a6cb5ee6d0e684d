//! Which words of PM every process stores to before it reads them, as far as the program tracks its accesses (`cc --deps`): what such a word holds
//! after a restart is never used, so it is volatile. One process is no evidence: a new entry of a log is stored to before it is read, too.

use crashproof_trace::{PmAddress, ProcessId};
use rustc_hash::FxHashMap;

use crate::words::{WORD, WordSet, masks};

/// A longer access ends the search for evidence: it would take longer than all others.
const LONGEST: u64 = 16 << 20;

#[derive(Default)]
pub(crate) struct FirstAccesses {
    /// What the processes that run have accessed.
    accessed: FxHashMap<ProcessId, WordSet>,
    /// Words that some process accessed first by storing all of them, and those that a second one did, too.
    stored: WordSet,
    stored_again: WordSet,
    /// Words that some process accessed first in another way.
    read: WordSet,
    /// Something was not looked at.
    is_incomplete: bool,
}

impl FirstAccesses {
    pub(crate) fn access(&mut self, process: ProcessId, store: bool, at: PmAddress, len: u64) {
        if len > LONGEST {
            self.is_incomplete = true;
            return;
        }
        let accessed = self.accessed.entry(process).or_default();
        let (file, end) = (at.file.0, at.offset.saturating_add(len));
        for part in masks(at.offset, end) {
            let (page, index, mask) = part;
            let first = mask & !accessed.put(file, part);
            // The words at the ends may be accessed in part.
            let word = (page * 8 + index as u64) * 64;
            let is_whole = |bit: u32| {
                let start = (word + u64::from(bit)) * WORD;
                at.offset <= start && end - start >= WORD
            };
            let (lowest, highest) = (mask.trailing_zeros(), 63 - mask.leading_zeros());
            let partial = [lowest, highest].into_iter().filter(|&bit| !is_whole(bit));
            let partial = partial.fold(0, |bits, bit| bits | 1 << bit);
            let stored = if store { first & !partial } else { 0 };
            if first & !stored != 0 {
                self.read.put(file, (page, index, first & !stored));
            }
            if stored != 0 {
                let again = self.stored.put(file, (page, index, stored));
                if again != 0 {
                    self.stored_again.put(file, (page, index, again));
                }
            }
        }
    }

    /// A forked child goes on where its parent is.
    pub(crate) fn fork(&mut self, child: ProcessId, parent: ProcessId) {
        if let Some(accessed) = self.accessed.get(&parent).cloned() {
            self.accessed.insert(child, accessed);
        }
    }

    pub(crate) fn end(&mut self, process: ProcessId) {
        self.accessed.remove(&process);
    }

    /// Whether several processes accessed all of the range, and each stored to it first.
    pub(crate) fn is_volatile(&self, at: PmAddress, len: u64) -> bool {
        let (file, end) = (at.file.0, at.offset.saturating_add(len));
        let mut words = (at.offset / WORD..end.div_ceil(WORD)).map(|word| word * WORD);
        // Not all words are kept in the sets; none of those that were read may be missing.
        !self.stored_again.is_empty()
            && !self.is_incomplete
            && !self.read.is_full()
            && !self.read.contains_any(file, at.offset, end)
            && words.all(|word| self.stored_again.contains_any(file, word, word + WORD))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crashproof_trace::FileId;
    use proptest::prelude::*;

    use super::*;

    fn at(offset: u64) -> PmAddress {
        PmAddress {
            file: FileId(0),
            offset,
        }
    }

    /// Word by word.
    #[derive(Default)]
    struct Naive {
        accessed: HashSet<(u32, u64)>,
        stored: HashSet<u64>,
        stored_again: HashSet<u64>,
        read: HashSet<u64>,
    }

    impl Naive {
        fn access(&mut self, process: ProcessId, store: bool, offset: u64, len: u64) {
            let end = offset + len;
            for word in offset / WORD..end.div_ceil(WORD) {
                if self.accessed.insert((process.0, word)) {
                    if !store || offset > word * WORD || end < (word + 1) * WORD {
                        self.read.insert(word);
                    } else if !self.stored.insert(word) {
                        self.stored_again.insert(word);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn masks_do_what_words_do(accesses in prop::collection::vec((0..3u32, any::<bool>(), 0..2000u64, 0..1200u64), 0..20)) {
            let (mut fast, mut naive) = (FirstAccesses::default(), Naive::default());
            for (process, store, offset, len) in accesses {
                fast.access(ProcessId(process), store, at(offset), len);
                naive.access(ProcessId(process), store, offset, len);
            }
            for word in 0..400 {
                let volatile = naive.stored_again.contains(&word) && !naive.read.contains(&word);
                prop_assert_eq!(fast.is_volatile(at(word * WORD), WORD), volatile, "word {}", word);
            }
        }
    }

    /// A damaged trace may have accesses of four gigabytes, one after the other.
    #[test]
    fn accesses_of_gigabytes_are_no_evidence_and_take_no_time() {
        let mut accesses = FirstAccesses::default();
        for process in 0..1000 {
            accesses.access(ProcessId(process), true, at(0), 64);
            accesses.access(ProcessId(process), true, at(128), u64::from(u32::MAX));
        }
        assert!(!accesses.is_volatile(at(0), 64));
    }
}
