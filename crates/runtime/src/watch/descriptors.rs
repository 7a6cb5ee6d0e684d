//! Descriptors that constructors opened before the fork server was parked: all runs share what is behind them.
//!
//! What a run does to the position in a file that is only read is put back before the next one. Behind all others there is
//! something that a run may change and that cannot be put back (a pipe, a socket, a timer, a file to write to), or that
//! belongs to the process itself (`/proc/self/…`): then a process is started for each run.

use crate::sys;
use libc::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Descriptors with greater numbers are taken for opened by a constructor.
const NUMBERS: usize = 1024;
/// The descriptors that the process began with, a bit each.
static INHERITED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// More files are too many to put back.
const MOST: usize = 32;
/// Descriptors and their positions at `main`; unused ones are -1.
static POSITIONS: [(AtomicI32, AtomicU64); MOST] = [const { (AtomicI32::new(-1), AtomicU64::new(0)) }; MOST];

fn call(number: i64, arguments: [u64; 3]) -> Option<u64> {
    let [a, b, c] = arguments;
    // SAFETY: callers pass no pointers, or such to room that the kernel fills.
    unsafe { sys::syscall(number, [a, b, c, 0, 0, 0]) }.ok()
}

/// Before any constructor of the program's runs.
pub(super) fn remember_inherited() {
    sys::for_each_descriptor(|fd| {
        if let Some(word) = INHERITED.get(fd as usize / 64) {
            word.fetch_or(1 << (fd % 64), Ordering::Relaxed);
        }
    });
}

fn is_inherited(fd: c_int) -> bool {
    let word = INHERITED.get(fd as usize / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (fd % 64) & 1 == 1)
}

/// Looks at what constructors opened, and remembers where they stand. False: runs would share more than a position. `own` is a
/// descriptor of the server's.
pub(super) fn can_be_shared(own: c_int) -> bool {
    let mut places = POSITIONS.iter();
    let mut harmless = true;
    sys::for_each_descriptor(|fd| {
        if fd == own || is_inherited(fd) {
            return;
        }
        harmless &= match kind(fd) {
            Kind::Stateless => true,
            Kind::Read => match (
                call(libc::SYS_lseek, [fd as u64, 0, libc::SEEK_CUR as u64]),
                places.next(),
            ) {
                (Some(position), Some((descriptor, place))) => {
                    place.store(position, Ordering::Relaxed);
                    descriptor.store(fd, Ordering::Relaxed);
                    true
                }
                _ => false,
            },
            Kind::Shared => false,
        };
    });
    harmless
}

/// In the server, before it forks.
pub(super) fn put_back_positions() {
    for (descriptor, place) in &POSITIONS {
        match descriptor.load(Ordering::Relaxed) {
            -1 => return,
            fd => {
                let position = place.load(Ordering::Relaxed);
                call(libc::SYS_lseek, [fd as u64, position, libc::SEEK_SET as u64]);
            }
        }
    }
}

enum Kind {
    /// `/dev/null`, `/dev/urandom` and their kin.
    Stateless,
    /// A file or folder that is only read.
    Read,
    Shared,
}

fn kind(fd: c_int) -> Kind {
    let (Some(status), Some(flags)) = (
        sys::fstat(fd),
        call(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0]),
    ) else {
        return Kind::Shared;
    };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFCHR => Kind::Stateless,
        libc::S_IFREG | libc::S_IFDIR if flags as c_int & libc::O_ACCMODE == libc::O_RDONLY && !of_process(fd) => {
            Kind::Read
        }
        _ => Kind::Shared,
    }
}

/// Whether it is a file of `/proc`.
fn of_process(fd: c_int) -> bool {
    // SAFETY: all-zero is a valid statfs, which the kernel fills.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    let found = call(libc::SYS_fstatfs, [fd as u64, &raw mut status as u64, 0]);
    found.is_none() || status.f_type == libc::PROC_SUPER_MAGIC
}
