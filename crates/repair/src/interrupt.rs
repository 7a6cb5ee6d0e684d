//! Ctrl-C and its like: the step that runs is ended, with all that it has started, and the copies are removed.
//!
//! A step is a child in a process group of its own, which gets the signal. What this process itself computes does not look for signals: if it goes on, a
//! thread removes the copies and ends the process.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So long a child may take to end in good order; a second signal shortens it.
const GRACE: Duration = Duration::from_secs(2);
/// So long the process itself may take to note that a child has ended, and to clean up.
const CLEANING: Duration = Duration::from_secs(1);

static RECEIVED: AtomicI32 = AtomicI32::new(0);
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The end of a pipe that the handler writes to; the other one wakes the thread.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static COPIES: Mutex<Option<PathBuf>> = Mutex::new(None);

extern "C" fn on_signal(signal: i32) {
    RECEIVED.store(signal, Ordering::SeqCst);
    // SAFETY: kill() and write() may be called in a handler, and one byte is there to write.
    unsafe {
        let child = CHILD.load(Ordering::SeqCst);
        if child > 0 {
            libc::kill(-child, signal);
        }
        let wake = WAKE.load(Ordering::SeqCst);
        if wake >= 0 {
            libc::write(wake, [0u8].as_ptr().cast(), 1);
        }
    }
}

/// From now on signals that end a process are noted, and handed to the step that runs.
pub fn listen() {
    let mut pipe = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } == 0 {
        WAKE.store(pipe[1], Ordering::SeqCst);
        std::thread::spawn(move || end_after_all(pipe[0]));
    }
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
            new.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|&signal| signal != 0)
}

/// The folder that is removed if the process does not come to it itself.
pub fn remove_at_end(folder: &Path) {
    *COPIES.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
}

/// A signal has come within the time.
fn woken(pipe: i32, within: Option<Duration>) -> bool {
    let timeout = within.map_or(-1, |time| time.as_millis() as i32);
    let mut poll = libc::pollfd {
        fd: pipe,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, and room for the byte that is there then.
    unsafe {
        while libc::poll(&mut poll, 1, timeout) < 0 {}
        poll.revents != 0 && libc::read(pipe, [0u8].as_mut_ptr().cast(), 1) == 1
    }
}

/// Ends what does not end by itself.
fn end_after_all(pipe: i32) {
    while !woken(pipe, None) {}
    if CHILD.load(Ordering::SeqCst) > 0 {
        woken(pipe, Some(GRACE));
        let child = CHILD.load(Ordering::SeqCst);
        if child > 0 {
            // SAFETY: a plain system call; the group is that of a child that is not reaped yet.
            unsafe { libc::kill(-child, libc::SIGKILL) };
        }
    }
    woken(pipe, Some(CLEANING));
    let copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The process may be writing there still.
    for _ in 0..10 {
        if copies
            .as_ref()
            .is_none_or(|folder| std::fs::remove_dir_all(folder).is_ok() || !folder.exists())
        {
            break;
        }
    }
    die_by(received().unwrap_or(libc::SIGTERM));
}

/// Ends this process as the signal would have.
pub fn die_by(signal: i32) {
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Starts a step, as the leader of a group.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    command.process_group(0).spawn()
}

/// Waits for the child, which gets the signals, too.
pub fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    CHILD.store(child.id() as i32, Ordering::SeqCst);
    // It may have come while the child was started.
    if let Some(signal) = received() {
        // SAFETY: the child is not reaped yet, so the id is its own.
        unsafe { libc::kill(-(child.id() as i32), signal) };
    }
    // SAFETY: an all-zero siginfo_t is valid, and the call fills it in. Not reaped before CHILD is forgotten.
    unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut ended, libc::WEXITED | libc::WNOWAIT) == -1
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::SeqCst);
    if received().is_some() {
        // What the child left behind in its group; it is not reaped, so the group is its own.
        // SAFETY: a plain system call.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    }
    child.wait()
}
