//! Spin locks that work in signal handlers and in shared memory. The word holds the owner's thread id, so that a lock
//! whose owner was killed can be taken over instead of hanging every other process.

use crate::sys;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Spin(AtomicU32);

pub(crate) struct Held<'a>(&'a AtomicU32);

impl Spin {
    pub(crate) const fn new() -> Self {
        Spin(AtomicU32::new(0))
    }

    pub(crate) fn lock(&self) -> Held<'_> {
        self.lock_as(sys::gettid())
    }

    /// For a thread that knows its id: to ask for it is a system call.
    pub(crate) fn lock_as(&self, me: u32) -> Held<'_> {
        acquire(&self.0, me);
        Held(&self.0)
    }

    /// Releases what was left locked.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Held<'_> {
    /// For a lock that is held across functions; [`Spin::reset`] releases it.
    pub(crate) fn leave_locked(self) {
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// Takes the lock at `word` for the thread `me`.
pub(crate) fn acquire(word: &AtomicU32, me: u32) {
    let mut tries = 0u32;
    while let Err(holder) = word.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
        tries += 1;
        if tries < 100 {
            std::hint::spin_loop();
        } else if !tries.is_multiple_of(10_000) {
            // SAFETY: no arguments.
            let _ = unsafe { sys::syscall(libc::SYS_sched_yield, [0; 6]) };
        } else if holder != 0
            && !sys::alive(holder)
            && word
                .compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
    }
}

pub(crate) fn release(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}
