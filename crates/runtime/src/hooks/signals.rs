//! Between the moment at which a hook takes the first line lock and the moment at which its record is committed, no handler of
//! the program's may run in its thread: the handler's own events would wait for the locks for ever, and might never return.
//! The fault path blocks all signals by being a signal handler itself. A hook would need two system calls for that,
//! so it sets a flag instead, and the few signals that arrive meanwhile are put off: the runtime's
//! wrapper around the program's handlers sends the signal again, with everything blocked in the interrupted code, and the hook
//! restores the mask when it is done.
//!
//! So are signals whose default action ends the process: what the hook has done to PM would not be in the trace. (SIGKILL is not, nor
//! is anything that is fatal by itself; the recorder knows how to go on behind a record that a dead process has not finished.)

use crate::{sys, threads};
use libc::{siginfo_t, ucontext_t};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A thread's. The entries of the hooks set and clear the flag.
#[derive(Default)]
pub(crate) struct InHook {
    flag: AtomicBool,
    deferred: AtomicBool,
    /// What is restored when the hook is over: the mask of the code that the first deferred signal interrupted.
    mask: AtomicU64,
}

pub(crate) const FLAG: usize = offset_of!(InHook, flag);
pub(crate) const DEFERRED: usize = offset_of!(InHook, deferred);

impl InHook {
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Ends a hook that was abandoned. The mask, if there is one, is for the caller to restore.
    pub(crate) fn clear(&self) -> Option<u64> {
        self.flag.store(false, Ordering::Relaxed);
        self.take_mask()
    }

    fn take_mask(&self) -> Option<u64> {
        self.deferred
            .swap(false, Ordering::Relaxed)
            .then(|| self.mask.load(Ordering::Relaxed))
    }
}

/// For the entries, when the flag is clear again and a signal was put off: it is delivered here, on the program's stack.
pub(crate) extern "C" fn release() {
    if let Some(mask) = threads::current().in_hook.take_mask() {
        sys::set_mask(mask);
        crate::signals::after_our_code(mask);
    }
}

/// For the wrapper around the program's handlers. True: a hook was interrupted, and the signal comes again when it is done.
pub(crate) fn defer(signal: i32, info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    let state = &threads::current().in_hook;
    if !state.is_set() {
        return false;
    }
    sys::set_mask(!sys::OURS);
    // It stays pending: all are blocked.
    send_again(signal, info);
    let interrupted = crate::signals::mask_of(uc);
    // Of several signals that arrived at once, the last to get here interrupted the hook itself.
    state.mask.store(*interrupted, Ordering::Relaxed);
    *interrupted |= !sys::OURS;
    state.deferred.store(true, Ordering::Relaxed);
    true
}

/// A signal that this thread was sent, to itself.
pub(crate) fn send_again(signal: i32, info: &siginfo_t) {
    let (process, thread) = (sys::getpid() as u64, sys::gettid() as u64);
    let arguments = [process, thread, signal as u64, &raw const *info as u64, 0, 0];
    // SAFETY: the kernel reads the structure.
    let _ = unsafe { sys::syscall(libc::SYS_rt_tgsigqueueinfo, arguments) };
}
