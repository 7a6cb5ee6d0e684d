//! The memory shared with the runtime in the commands: `crashproof_wire::recovery::Recovery`, mapped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crashproof_wire::recovery::Recovery;

/// A mapping of the structure.
pub(crate) struct Shared(*mut Recovery);

// SAFETY: the pointer is to shared memory that stays mapped as long as the value lives; what others change in it is atomic.
unsafe impl Send for Shared {}

impl Shared {
    /// Gives the file the structure's size and maps it.
    pub(crate) fn create(file: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: changes the size of a file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size_of::<Recovery>() as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Shared::map(file)
    }

    pub(crate) fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping, of a file that `create` made large enough; all-zero is a valid structure.
        unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Recovery>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Shared(address.cast()))
        }
    }

    pub(crate) fn get(&self) -> &Recovery {
        // SAFETY: mapped until this is dropped. What is not atomic is written only through `get_mut`, by the worker,
        // while no command runs.
        unsafe { &*self.0 }
    }

    pub(crate) fn get_mut(&mut self) -> &mut Recovery {
        // SAFETY: as in `get`.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; no reference outlives the value.
        unsafe { libc::munmap(self.0.cast(), size_of::<Recovery>()) };
    }
}
