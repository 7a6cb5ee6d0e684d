//! Ctrl-C and its like: the step that runs is ended, with all that it has started, and the copies are removed.
//!
//! A step is a child in a process group of its own, which gets the signal, or a crash test in this process, which is asked to stop. What else this process
//! computes does not look for signals: if it goes on, or if the crash test waits for a recovery, a thread removes the copies and ends the process, and with
//! it the sandboxes.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use crashproof_interrupt::{die_by, received};

/// So long a child may take to end in good order; a second signal shortens it.
const GRACE: Duration = Duration::from_secs(2);
/// So long the process itself may take to note that a child has ended, and to clean up.
const CLEANING: Duration = Duration::from_secs(1);

static COPIES: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on signals that end a process are noted, and handed to the step that runs.
pub fn listen() {
    let mut pipe = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } == 0 {
        crashproof_interrupt::wake(pipe[1]);
        std::thread::spawn(move || end_after_all(pipe[0]));
    }
    crashproof_interrupt::listen();
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
    // 0 asks whether there is one.
    if crashproof_interrupt::signal_child(0) {
        woken(pipe, Some(GRACE));
        crashproof_interrupt::signal_child(libc::SIGKILL);
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

/// Starts a step, as the leader of a group.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    command.process_group(0).spawn()
}

/// Waits for the child, which gets the signals, too.
pub fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    crashproof_interrupt::wait_for_group(child.id());
    child.wait()
}
