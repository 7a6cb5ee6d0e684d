//! Ctrl-C and its like: the step that runs is ended, and the copies are removed.

use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

static RECEIVED: AtomicI32 = AtomicI32::new(0);
static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    RECEIVED.store(signal, Ordering::SeqCst);
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo; kill() may be called in a handler.
    unsafe {
        // A terminal's Ctrl-C has reached the child, too; what somebody sent to this process alone has not.
        let sent_by_process = !info.is_null() && (*info).si_code <= 0;
        let child = CHILD.load(Ordering::SeqCst);
        if sent_by_process && child > 0 {
            libc::kill(child, signal);
        }
    }
}

/// From now on signals that end a process are noted, and handed to the step that runs.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all-zero sigactions are valid, and the handler does only what a handler may.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            // What the user has ignored (nohup, background jobs) stays ignored.
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_signal as *const () as usize;
            new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            libc::sigaction(signal, &new, std::ptr::null_mut());
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

/// Waits for the child, which gets the signals, too.
pub fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    CHILD.store(child.id() as i32, Ordering::SeqCst);
    // It may have come while the child was started.
    if let Some(signal) = received() {
        // SAFETY: the child is not reaped yet, so the id is its own.
        unsafe { libc::kill(child.id() as i32, signal) };
    }
    // SAFETY: an all-zero siginfo_t is valid, and the call fills it in. Not reaped before CHILD is forgotten.
    unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut ended, libc::WEXITED | libc::WNOWAIT) == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::SeqCst);
    child.wait()
}
