//! Reads the stack of the interrupted thread without ever faulting.

use crate::sys::{self, PAGE};

/// No page has this address.
const NONE: u64 = 1;

pub struct Stack {
    /// What the caller says is readable.
    low: u64,
    high: u64,
    /// The last page outside of that which the kernel could read: part of this thread's stack, so it stays.
    page: u64,
}

impl Stack {
    pub fn new(low: u64, high: u64) -> Stack {
        Stack { low, high, page: NONE }
    }

    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        if address >= self.low && address < self.high.saturating_sub(7) {
            // SAFETY: readable by the caller's promise.
            return Some(unsafe { (address as *const u64).read_unaligned() });
        }
        self.read_checked(address)
    }

    #[cold]
    fn read_checked(&mut self, address: u64) -> Option<u64> {
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
