//! Ends in order when interrupted: the running child gets the signal, temporary files are removed, and the caller sees that it
//! was a signal.

use std::sync::atomic::{AtomicI32, Ordering};

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static CHILD: AtomicI32 = AtomicI32::new(0);
static RECEIVED: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: libc::c_int) {
    RECEIVED.store(signal, Ordering::SeqCst);
    forward(signal);
}

fn forward(signal: libc::c_int) {
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        // SAFETY: async-signal-safe; the child has not been reaped while its id is here.
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

/// Returns when the child has ended; until then it gets the signals, too. The child is not reaped yet, so its id is its own.
pub fn wait_for(child: u32) {
    CHILD.store(child as i32, Ordering::SeqCst);
    // It may have come while the child was started.
    if let Some(signal) = received() {
        forward(signal);
    }
    // SAFETY: an all-zero siginfo_t is valid, and the call fills it in.
    unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child, &mut ended, libc::WEXITED | libc::WNOWAIT) == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::SeqCst);
}
