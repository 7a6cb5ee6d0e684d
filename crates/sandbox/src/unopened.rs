//! Whether anybody has opened a file. The kernel tells (inotify), whoever it is and by whatever path. A look at its size alone (`stat`) is not seen.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

/// A file that nobody has opened since it was watched, except for whoever had it then.
pub(crate) struct Unopened(File);

impl Unopened {
    /// `None`: it cannot be watched (the user has too many such watches), so somebody may have opened it.
    pub(crate) fn watch(file: BorrowedFd) -> Option<Unopened> {
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        // SAFETY: a new descriptor, which the file then owns; the path is a string.
        unsafe {
            let events = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            if events < 0 {
                return None;
            }
            let events = File::from_raw_fd(events);
            let mask = libc::IN_OPEN | libc::IN_ACCESS;
            (libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), mask) >= 0).then_some(Unopened(events))
        }
    }

    /// `None`: it has been opened.
    pub(crate) fn still(mut self) -> Option<Unopened> {
        let nothing = self.0.read(&mut [0; 512]);
        matches!(nothing, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock).then_some(self)
    }
}
