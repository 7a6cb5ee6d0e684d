//! Which words of PM every process stores to before it reads them, as far as the program tracks its accesses (`cc --deps`): what such a word holds
//! after a restart is never used, so it is volatile. One process is no evidence: a new entry of a log is stored to before it is read, too.

use crashproof_trace::{PmAddress, ProcessId};
use rustc_hash::FxHashMap;

use crate::ranges::{WORD, WordSet};

#[derive(Default)]
pub struct FirstAccesses {
    /// What the processes that run have accessed.
    accessed: FxHashMap<ProcessId, WordSet>,
    /// Words that some process accessed first by storing all of them, and those that a second one did, too.
    stored: WordSet,
    stored_again: WordSet,
    /// Words that some process accessed first in another way.
    read: WordSet,
}

impl FirstAccesses {
    pub fn access(&mut self, process: ProcessId, store: bool, at: PmAddress, len: u64) {
        let accessed = self.accessed.entry(process).or_default();
        let (file, end) = (at.file.0, at.offset.saturating_add(len));
        let mut word = at.offset / WORD * WORD;
        while word < end {
            let next = word + WORD;
            if !accessed.contains_any(file, word, next) {
                accessed.insert(file, word, next);
                let whole = at.offset <= word && next <= end;
                if !store || !whole {
                    self.read.insert(file, word, next);
                } else if self.stored.contains_any(file, word, next) {
                    self.stored_again.insert(file, word, next);
                } else {
                    self.stored.insert(file, word, next);
                }
            }
            word = next;
        }
    }

    /// A forked child goes on where its parent is.
    pub fn fork(&mut self, child: ProcessId, parent: ProcessId) {
        if let Some(accessed) = self.accessed.get(&parent).cloned() {
            self.accessed.insert(child, accessed);
        }
    }

    pub fn end(&mut self, process: ProcessId) {
        self.accessed.remove(&process);
    }

    /// Whether several processes accessed all of the range, and each stored to it first.
    pub fn is_volatile(&self, at: PmAddress, len: u64) -> bool {
        let (file, end) = (at.file.0, at.offset.saturating_add(len));
        let mut words = (at.offset / WORD..end.div_ceil(WORD)).map(|word| word * WORD);
        // Not all words are kept in the sets; none of those that were read may be missing.
        !self.stored_again.is_empty()
            && !self.read.is_full()
            && !self.read.contains_any(file, at.offset, end)
            && words.all(|word| self.stored_again.contains_any(file, word, word + WORD))
    }
}
