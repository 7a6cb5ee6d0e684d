//! Ctrl-C, SIGTERM and SIGHUP, in every program of crashproof.
//!
//! Work of this process looks at a flag ([`watch`]): the first signal asks it to stop and report what there is, the second ends the
//! process at once. A program whose work is done by children ([`listen`]) notes every signal and hands it to the child it
//! waits for. What the user has ignored (nohup, background jobs) stays ignored.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

static STOP: AtomicBool = AtomicBool::new(false);
static RECEIVED: AtomicI32 = AtomicI32::new(0);
/// Who gets the signals, too: a process, or, if negative, the group of one; 0 for nobody.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The end of a pipe that a signal writes to, or -1.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static LISTENING: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(signal: i32) {
    RECEIVED.store(signal, Ordering::SeqCst);
    STOP.store(true, Ordering::Relaxed);
    signal_child(signal);
    let wake = WAKE.load(Ordering::SeqCst);
    if wake >= 0 {
        // SAFETY: write() may be called in a handler, and one byte is there to write.
        unsafe { libc::write(wake, [0u8].as_ptr().cast(), 1) };
    }
}

/// Sets a handler, a function of signal.h's kind, unless the signal is ignored. Returns what was there before.
///
/// # Safety
///
/// The handler takes what `flags` (SA_SIGINFO) say, and does only what a handler may.
pub unsafe fn handle(signal: i32, handler: *const (), flags: i32) -> Option<libc::sigaction> {
    // SAFETY: all-zero sigactions are valid; the caller vouches for the handler.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old);
        if old.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as usize;
        new.sa_flags = flags;
        libc::sigaction(signal, &new, std::ptr::null_mut());
        Some(old)
    }
}

fn handle_all(flags: i32) {
    for signal in SIGNALS {
        // SAFETY: the handler stores to atomics, and calls kill() and write().
        unsafe { handle(signal, on_signal as *const (), libc::SA_RESTART | flags) };
    }
}

/// From now on signals ask for a stop: the flag is set then. The second signal has its default effect, unless the process
/// listens.
pub fn watch() -> &'static AtomicBool {
    if !LISTENING.load(Ordering::SeqCst) {
        handle_all(libc::SA_RESETHAND);
    }
    &STOP
}

/// From now on all signals are noted, and handed to the child that is waited for.
pub fn listen() {
    LISTENING.store(true, Ordering::SeqCst);
    handle_all(0);
}

/// The last signal, if there was one.
pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
}

/// Each signal writes a byte to this end of a pipe.
pub fn wake(pipe: i32) {
    WAKE.store(pipe, Ordering::SeqCst);
}

/// Ends this process as the signal would have.
pub fn die_by(signal: i32) {
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Sends a signal to the child that is waited for, if there is one.
pub fn signal_child(signal: i32) -> bool {
    let child = CHILD.load(Ordering::SeqCst);
    if child != 0 {
        // SAFETY: kill() may be called in a handler, and a child that is not reaped yet has its id.
        unsafe { libc::kill(child, signal) };
    }
    child != 0
}

/// Returns when the child has ended; until then it gets the signals, too. It is not reaped, so its id is still its own.
pub fn wait_for(child: u32) {
    wait(child, child as i32);
}

/// The same for the leader of a group, all of which gets the signals; and if there was one, nothing of the group is left.
pub fn wait_for_group(leader: u32) {
    let group = -(leader as i32);
    wait(leader, group);
    if received().is_some() {
        // SAFETY: a plain system call; the leader is not reaped, so the group is its own.
        unsafe { libc::kill(group, libc::SIGKILL) };
    }
}

fn wait(child: u32, signalled: i32) {
    CHILD.store(signalled, Ordering::SeqCst);
    // It may have come while the child was started.
    if let Some(signal) = received() {
        signal_child(signal);
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

/// Ctrl-C came to somebody else.
pub fn request() {
    STOP.store(true, Ordering::Relaxed);
}

pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Who reads does what has to come to its end, who writes ends the process.
static HELD: RwLock<()> = RwLock::new(());

/// Until this is dropped, the first stop waits: a file of the user is being changed, and put back.
pub fn hold() -> RwLockReadGuard<'static, ()> {
    HELD.read().unwrap_or_else(PoisonError::into_inner)
}

/// While there is nothing to report yet, a stop is the end: until this is dropped.
pub struct NothingYet(#[expect(dead_code, reason = "the thread ends when it is closed")] Sender<()>);

/// How soon a stop is noticed.
const NOTICE: Duration = Duration::from_millis(50);

impl NothingYet {
    /// `end` cleans up and ends the process.
    pub fn new(end: impl FnOnce() + Send + 'static) -> NothingYet {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            while receiver.recv_timeout(NOTICE) == Err(RecvTimeoutError::Timeout) {
                if requested()
                    && let Ok(_ending) = HELD.try_write()
                {
                    return end();
                }
            }
        });
        NothingYet(sender)
    }
}
