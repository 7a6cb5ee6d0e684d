//! Ends in order when interrupted: the running child gets the signal, temporary files are removed, and the caller sees that it
//! was a signal.

use std::sync::atomic::{AtomicI32, Ordering};

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static CHILD: AtomicI32 = AtomicI32::new(0);
static RECEIVED: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: libc::c_int) {
    RECEIVED.store(signal, Ordering::SeqCst);
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        // SAFETY: async-signal-safe; the child has not been waited for while its id is here.
        unsafe {
            libc::kill(child, signal);
        }
    }
}

/// From now on signals are noted and forwarded.
pub fn listen() {
    for signal in SIGNALS {
        // SAFETY: the handler does only what a handler may. A signal that the caller ignores (nohup) stays ignored.
        unsafe {
            if libc::signal(signal, on_signal as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
}

/// Ends this process as the signal would have.
pub fn die_by(signal: i32) {
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

pub struct Forwarding;

pub fn forward_to(child: u32) -> Forwarding {
    CHILD.store(child as i32, Ordering::SeqCst);
    Forwarding
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        CHILD.store(0, Ordering::SeqCst);
    }
}
