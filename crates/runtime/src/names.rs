//! Names of files that were made without one (`O_TMPFILE`) and got one before they were mapped.
//!
//! A file is mapped through a descriptor, and of that the kernel tells the name by which it was opened. `linkat` may have given
//! the file a name in any directory, so what it gave is kept here until the file is mapped.

use crate::files::{self, Identity};
use crate::spin::Spin;
use crate::sys;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program that names more files before it maps the first of them is told that their names are not known.
const MOST: usize = 256;

struct Name {
    dev: u64,
    ino: u64,
    born: u64,
    path: Box<[u8]>,
}

impl Name {
    fn is_of(&self, file: &Identity) -> bool {
        (self.dev, self.ino, self.born) == (file.dev, file.ino, file.born)
    }
}

struct Names {
    lock: Spin,
    /// The oldest first.
    known: UnsafeCell<Vec<Name>>,
}

// SAFETY: the cell is only touched with the lock held.
unsafe impl Sync for Names {}

static NAMES: Names = Names {
    lock: Spin::new(),
    known: UnsafeCell::new(Vec::new()),
};
/// Some file has been named. Most programs never do that.
static EVER: AtomicBool = AtomicBool::new(false);

impl Names {
    /// Signals are blocked.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Name>) -> R) -> R {
        let _held = self.lock.lock();
        // SAFETY: the lock is held, and `f` cannot reach the names by another way.
        f(unsafe { &mut *self.known.get() })
    }
}

pub(crate) fn any() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// A file that had no name has this one now.
pub(crate) fn given(file: &Identity, path: &[u8]) {
    EVER.store(true, Ordering::Relaxed);
    NAMES.with(|known| {
        known.retain(|name| !name.is_of(file));
        if known.len() == MOST {
            known.remove(0);
        }
        known.push(Name {
            dev: file.dev,
            ino: file.ino,
            born: file.born,
            path: path.into(),
        });
    });
}

/// A file was renamed. It need not be one of those here.
pub(crate) fn moved(file: &Identity, path: &[u8]) {
    NAMES.with(|known| {
        if let Some(name) = known.iter_mut().find(|name| name.is_of(file)) {
            name.path = path.into();
        }
    });
}

/// Puts the file's name here into the buffer, if the file still has it; its length then.
pub(crate) fn of(file: &Identity, buffer: &mut [u8; 4096]) -> Option<usize> {
    if !any() {
        return None;
    }
    let mut path = [0u8; 4096];
    let len = NAMES.with(|known| {
        let name = known.iter().find(|name| name.is_of(file))?;
        // A zero stays at the end.
        path[..4095].get_mut(..name.path.len())?.copy_from_slice(&name.path);
        Some(name.path.len())
    })?;
    let there = files::identity(libc::AT_FDCWD, path.as_ptr().cast(), libc::AT_SYMLINK_NOFOLLOW)?;
    ((there.dev, there.ino) == (file.dev, file.ino)).then(|| {
        *buffer = path;
        len
    })
}

/// The child must not inherit a name that is half changed.
pub(crate) fn before_fork() {
    NAMES.lock.lock_as(sys::gettid()).leave_locked();
}

pub(crate) fn after_fork() {
    NAMES.lock.reset();
}
