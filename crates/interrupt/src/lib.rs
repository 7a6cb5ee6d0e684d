//! Ctrl-C during long work: the first asks it to stop and report what there is, the second ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn ask_to_stop(_signal: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C, SIGTERM and SIGHUP ask for a stop. The flag is set then.
pub fn watch() -> &'static AtomicBool {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid; the handler only stores to an atomic. SA_RESETHAND: the second signal
        // has its default effect.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            // What the user has ignored (nohup, background jobs) stays ignored.
            if old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = ask_to_stop as *const () as usize;
            new.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
    &STOP
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
