//! The call stacks that a thread has met in its hooks, so that none is unwound twice.
//!
//! A stack is known again by the caller's registers and by every word that unwinding it has read
//! ([`Evidence`]): nothing else decides what it is, so an answer from here is the one that unwinding would give.

use crate::code_map::{self, Evidence, Registers};
use crate::sys;

const ENTRIES: usize = 512;

struct Entry {
    rip: u64,
    rsp: u64,
    rbp: u64,
    /// Of the code; 0: empty.
    generation: u64,
    stack: u64,
    evidence: Evidence,
}

/// Made at the first use. Its memory comes zeroed, so that every entry is empty.
pub(crate) struct KnownStacks {
    entries: *mut [Entry; ENTRIES],
    /// Of the stack that is being unwound.
    fresh: Evidence,
}

impl Default for KnownStacks {
    fn default() -> Self {
        KnownStacks {
            entries: std::ptr::null_mut(),
            fresh: Evidence::new(),
        }
    }
}

impl KnownStacks {
    #[inline]
    fn entry(&mut self, registers: &Registers) -> Option<&mut Entry> {
        let mixed = (registers.rip() ^ registers.rsp().rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: null, or mapped by `insert`, and this thread's alone.
        unsafe { self.entries.as_mut() }.map(|entries| &mut entries[(mixed >> 32) as usize % ENTRIES])
    }

    #[inline]
    pub(crate) fn get(&mut self, registers: &Registers) -> Option<u64> {
        let generation = code_map::generation();
        let entry = self.entry(registers)?;
        let same = (entry.rip, entry.rsp, entry.rbp, entry.generation)
            == (registers.rip(), registers.rsp(), registers.rbp(), generation);
        // SAFETY: only sufficient evidence is kept, and the stack is in use: its stack pointer is the same.
        (same && unsafe { entry.evidence.holds() }).then_some(entry.stack)
    }

    /// To be filled by an unwinding, before [`KnownStacks::insert`].
    pub(crate) fn evidence(&mut self) -> &mut Evidence {
        &mut self.fresh
    }

    pub(crate) fn insert(&mut self, registers: &Registers, stack: u64) {
        if !self.fresh.is_sufficient() {
            return;
        }
        if self.entries.is_null() {
            let memory = sys::map_anonymous(size_of::<[Entry; ENTRIES]>() as u64);
            self.entries = memory.map_or(std::ptr::null_mut(), |memory| memory.cast());
        }
        let evidence = self.fresh.clone();
        if let Some(entry) = self.entry(registers) {
            *entry = Entry {
                rip: registers.rip(),
                rsp: registers.rsp(),
                rbp: registers.rbp(),
                generation: code_map::generation(),
                stack,
                evidence,
            };
        }
    }
}
