//! Reads the stack of the interrupted thread without ever faulting.

use crate::sys::{self, PAGE};

/// No page has this address.
const NONE: u64 = 1;

/// The words that an unwinding has read. While they stay what they are, the same registers have the same call stack, because
/// nothing else decides it.
#[derive(Clone)]
pub struct Evidence {
    words: [(u64, u64); Evidence::MOST],
    len: usize,
    /// Every word was noted, and lay where the stack is known to be.
    sufficient: bool,
}

impl Evidence {
    /// Two for each of two dozen frames.
    pub const MOST: usize = 48;

    pub const fn new() -> Evidence {
        Evidence {
            words: [(0, 0); Evidence::MOST],
            len: 0,
            sufficient: false,
        }
    }

    #[inline]
    fn note(&mut self, address: u64, value: u64) {
        match self.words.get_mut(self.len) {
            Some(word) => {
                *word = (address, value);
                self.len += 1;
            }
            None => self.sufficient = false,
        }
    }

    pub fn is_sufficient(&self) -> bool {
        self.sufficient
    }

    /// Whether each word is what it was.
    ///
    /// # Safety
    /// It is sufficient, and the stack that it was noted on is still mapped.
    #[inline]
    pub unsafe fn holds(&self) -> bool {
        // SAFETY: the caller's promise.
        self.words[..self.len]
            .iter()
            .all(|&(address, value)| unsafe { (address as *const u64).read_unaligned() } == value)
    }
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence::new()
    }
}

pub(super) struct Stack<'a> {
    /// What the caller says is readable.
    low: u64,
    high: u64,
    /// The last page outside of that which the kernel could read: part of this thread's stack, so it stays.
    page: u64,
    evidence: Option<&'a mut Evidence>,
}

impl<'a> Stack<'a> {
    pub(super) fn new(low: u64, high: u64) -> Stack<'a> {
        Stack {
            low,
            high,
            page: NONE,
            evidence: None,
        }
    }

    pub(super) fn with_evidence(low: u64, high: u64, evidence: &'a mut Evidence) -> Stack<'a> {
        evidence.len = 0;
        evidence.sufficient = true;
        Stack {
            evidence: Some(evidence),
            ..Stack::new(low, high)
        }
    }

    #[inline]
    pub(super) fn read(&mut self, address: u64) -> Option<u64> {
        if address >= self.low && address < self.high.saturating_sub(7) {
            // SAFETY: readable by the caller's promise.
            let value = unsafe { (address as *const u64).read_unaligned() };
            if let Some(evidence) = &mut self.evidence {
                evidence.note(address, value);
            }
            return Some(value);
        }
        self.read_checked(address)
    }

    #[cold]
    fn read_checked(&mut self, address: u64) -> Option<u64> {
        if let Some(evidence) = &mut self.evidence {
            evidence.sufficient = false;
        }
        let page = address & !(PAGE as u64 - 1);
        if page == self.page && address <= page + PAGE as u64 - 8 {
            // SAFETY: the kernel has read from this page before.
            return Some(unsafe { (address as *const u64).read_unaligned() });
        }
        let mut value = [0; 8];
        sys::read_memory(address as usize, &mut value).then(|| {
            self.page = page;
            u64::from_ne_bytes(value)
        })
    }
}
