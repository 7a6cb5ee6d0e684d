//! Watch mode: the runtime in a recovery program (`crashproof crash`). Nothing is recorded; what is noted is which pages of
//! the PM files the recovery wrote, so that they can be put back, and which parts of the crash image it looked at, so that
//! states that differ elsewhere need not be tried. Jaaru (Gorjiara, Xu, Demsky: ASPLOS 2021) sees each load of a program
//! that was compiled for it; here any binary runs, and page protection shows the first touch of each page, single steps
//! that of each line where the worker asks for lines.
//!
//! - [`maps`]: mappings of PM files get less protection than the program asked for, at the addresses that were recorded;
//! - [`fault`]: the first touch faults, is noted, and the page gets what the program asked for;
//! - [`pages`]: what was noted of each page;
//! - [`calls`]: system calls that use closed pages, or read a PM file by its descriptor;
//! - [`opens`]: files that are opened to be read in ways that cannot be watched, or before `main`;
//! - [`descriptors`]: what constructors opened;
//! - [`prepare`]: what the program does once there for all recoveries;
//! - [`server`]: the process parked at `main` from which each recovery is forked.
//!
//! Invariant: a page never has more protection than its notes allow, and may have less; the fault of a page that has less
//! gives it what it may have and notes nothing anew.
//!
//! What is noted may be more than what was touched (a buffer that the kernel filled in part), never less, but for what
//! [`Recovery::unwatched`] says. Not seen, and not said there: a mapping made by a `syscall` instruction of the program's own.

pub(crate) mod calls;
mod descriptors;
pub(crate) mod fault;
pub(crate) mod maps;
pub(crate) mod opens;
mod pages;
mod prepare;
pub(crate) mod server;

use crate::spin::{Held, Spin};
use crate::{sys, threads};
use crashproof_wire::recovery::{self as wire, Recovery};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

static RECOVERY: AtomicPtr<Recovery> = AtomicPtr::new(std::ptr::null_mut());
/// Guards the notes and the step. Nobody touches PM, or anything else that may fault, while holding it.
static LOCK: Spin = Spin::new();
/// Something was too much to follow: all pages are open, and nothing more is noted.
static OPEN: AtomicBool = AtomicBool::new(false);
/// This process was forked by a recovery: its touches are not in order with those of its parent.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The first thread of this process.
static FIRST_THREAD: AtomicU32 = AtomicU32::new(0);
/// Bits of [`Recovery::unwatched`] that hold for every run in this process.
static HANDICAP: AtomicU32 = AtomicU32::new(0);
/// There is, or was, another thread in this process.
static THREADS: AtomicBool = AtomicBool::new(false);

/// What is shared with the worker, if this is a recovery program.
pub(crate) fn recovery() -> Option<&'static Recovery> {
    // SAFETY: set once to a mapping of that size which is never unmapped.
    unsafe { RECOVERY.load(Ordering::Acquire).as_ref() }
}

pub(crate) fn active() -> bool {
    !RECOVERY.load(Ordering::Relaxed).is_null()
}

/// Maps the file that the worker prepared. False: there is none, the program runs as without us.
pub(crate) fn open(path: &[u8]) -> bool {
    let Some(mapped) = sys::map_file(path, size_of::<Recovery>() as u64) else {
        return false;
    };
    let recovery = mapped.cast::<Recovery>();
    // SAFETY: a mapping of that size which is never unmapped.
    let known = unsafe { (*recovery).magic == wire::MAGIC && (*recovery).version == wire::VERSION };
    if known {
        RECOVERY.store(recovery, Ordering::Release);
    }
    known
}

/// A recovery begins in this process.
pub(crate) fn begin() {
    let Some(recovery) = recovery() else { return };
    FIRST_THREAD.store(sys::gettid(), Ordering::Relaxed);
    maps::keep_recorded_free(recovery);
    if recovery.track == wire::TRACK_READS {
        calls::watch_descriptors();
    }
    unwatched(HANDICAP.load(Ordering::Relaxed));
    recovery.started.fetch_add(1, Ordering::Relaxed);
}

/// System calls cannot be watched here, in no run.
pub(crate) fn without_filters() {
    HANDICAP.store(wire::UNWATCHED_OTHER, Ordering::Relaxed);
}

/// A thread is about to be made. From here on the lines of a page are not told apart: while one thread is stepped, another
/// could touch the open page.
pub(crate) fn thread_made() {
    if let Some(recovery) = recovery() {
        THREADS.store(true, Ordering::Relaxed);
        if recovery.track == wire::TRACK_READS {
            unwatched(wire::UNWATCHED_CONCURRENT);
        }
    }
}

/// Another program is about to be executed, perhaps one that cannot be watched.
pub(crate) fn before_exec() {
    unwatched(wire::UNWATCHED_EXEC);
}

pub(crate) fn unwatched(reason: u32) {
    if let Some(recovery) = recovery() {
        recovery.unwatched.fetch_or(reason, Ordering::Relaxed);
    }
}

/// Keeps everyone from changing the notes, for a fork.
pub(crate) fn before_fork() {
    LOCK.lock().leave_locked();
}

pub(crate) fn after_fork_in_parent() {
    LOCK.reset();
}

pub(crate) fn after_fork_in_child() {
    FIRST_THREAD.store(sys::gettid(), Ordering::Relaxed);
    THREADS.store(false, Ordering::Relaxed);
    FORKED.store(server::parked().is_none(), Ordering::Relaxed);
}

/// The lock of the notes, taken at each touch.
fn lock_notes() -> Held<'static> {
    match threads::current().os_id {
        // It is just being made.
        0 => LOCK.lock(),
        me => LOCK.lock_as(me),
    }
}

/// Whether only the calling thread can touch PM.
fn alone() -> bool {
    !THREADS.load(Ordering::Relaxed) && threads::current().os_id == FIRST_THREAD.load(Ordering::Relaxed)
}

/// A log in the shared memory; full, it takes no more.
fn append(count: &AtomicU32, log: &[AtomicU64], unit: u64) -> bool {
    let take = |n: u32| ((n as usize) < log.len()).then_some(n + 1);
    match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(index) => {
            log[index as usize].store(unit, Ordering::Release);
            true
        }
        Err(_) => false,
    }
}

fn log_written(recovery: &Recovery, unit: u64) -> bool {
    append(&recovery.written_count, &recovery.written, unit)
}

fn log_touched(recovery: &Recovery, unit: u64) -> bool {
    if FORKED.load(Ordering::Relaxed) || !alone() {
        unwatched(wire::UNWATCHED_CONCURRENT);
    }
    append(&recovery.touched_count, &recovery.touched, unit)
}
