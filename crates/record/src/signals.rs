//! The recorder's signals while the program runs.
//!
//! Ctrl-C and Ctrl-\ reach the program through the process group; the recorder only remembers them, for it has to finish
//! the trace. SIGTERM and SIGHUP, and SIGINT and SIGQUIT that a process sends, reach the recorder alone and are passed on. SIGXFSZ (a trace larger than `ulimit -f`)
//! becomes the error of a write. Handlers, not `SIG_IGN`: a handler is reset by exec, so the program starts with the
//! dispositions that it would have had without us.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
/// 0: no program yet, or none any more.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the program was there.
static PENDING: AtomicI32 = AtomicI32::new(0);

type Handler = unsafe extern "C" fn(i32, *const libc::siginfo_t, *mut libc::c_void);

unsafe extern "C" fn disregard(_: i32, _: *const libc::siginfo_t, _: *mut libc::c_void) {}

unsafe extern "C" fn interrupt(signal: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: the kernel gives what it knows of the signal. Of one that the terminal sends the code is positive.
    if unsafe { (*info).si_code } <= 0 {
        pass_on(signal);
    }
}

unsafe extern "C" fn terminate(signal: i32, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    pass_on(signal);
}

fn pass_on(signal: i32) {
    TERMINATED.store(true, Ordering::Relaxed);
    match PROGRAM.load(Ordering::Acquire) {
        0 => PENDING.store(signal, Ordering::Release),
        // SAFETY: kill is async-signal-safe; the process was not reaped yet, so the number is still its own.
        pid => unsafe {
            libc::kill(pid, signal);
        },
    }
}

/// The handlers; dropped, what was before is back.
pub(crate) struct Signals {
    previous: Vec<(i32, libc::sigaction)>,
}

impl Signals {
    pub(crate) fn install() -> Signals {
        INTERRUPTED.store(false, Ordering::Relaxed);
        TERMINATED.store(false, Ordering::Relaxed);
        PROGRAM.store(0, Ordering::Release);
        PENDING.store(0, Ordering::Release);
        let mut previous = Vec::new();
        let handlers: [(i32, Handler); 5] = [
            (libc::SIGINT, interrupt),
            (libc::SIGQUIT, interrupt),
            (libc::SIGTERM, terminate),
            (libc::SIGHUP, terminate),
            (libc::SIGXFSZ, disregard),
        ];
        for (signal, handler) in handlers {
            let flags = libc::SA_RESTART | libc::SA_SIGINFO;
            // SAFETY: the handlers take what SA_SIGINFO gives, and are async-signal-safe. What is ignored stays so, also for the
            // program.
            let old = unsafe { crashproof_interrupt::handle(signal, handler as *const (), flags) };
            previous.extend(old.map(|old| (signal, old)));
        }
        Signals { previous }
    }

    /// From now on signals are passed on to this process.
    pub(crate) fn program_started(&self, pid: u32) {
        PROGRAM.store(pid as i32, Ordering::Release);
        match PENDING.swap(0, Ordering::AcqRel) {
            0 => {}
            signal => pass_on(signal),
        }
    }

    /// To be called before the program is reaped.
    pub(crate) fn program_ended(&self) {
        PROGRAM.store(0, Ordering::Release);
    }

    /// Whether the user pressed Ctrl-C (or Ctrl-\).
    pub(crate) fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }

    /// Whether a signal that asks to end was passed on.
    pub(crate) fn terminated(&self) -> bool {
        TERMINATED.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.previous {
            // SAFETY: restores what sigaction gave.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}
