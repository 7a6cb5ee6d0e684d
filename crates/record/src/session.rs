//! The session file: the shared memory through which the runtime in the program talks to the recorder.
//!
//! It lives in `/dev/shm` when there is room, else in the temporary directory, and is fully allocated before the
//! program starts: the program touches its pages one by one, and a page that could not be had would kill it (`SIGBUS`).
//! It has a name because the program opens it, in processes that may have closed every descriptor they inherited, or that see other
//! process numbers than the recorder (so that `/proc/PID/fd` would not do). A recorder that is killed cannot remove it, so each recorder holds
//! a lock on its own session, and at its start removes those that nobody holds. A session gets its name only when it is locked.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crashproof_wire as wire;
use wire::Session;

use crate::error::RecordError;
use crate::pattern;

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "crashproof-session-";
/// Of a file that is to become a session, is empty and not locked yet.
const UNLOCKED_PREFIX: &str = ".crashproof-session-";
/// Of the link that [`SessionFile::preloadable`] makes.
const LINK_SUFFIX: &str = ".so";

/// What the runtime is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionOptions {
    /// Globs of the files that are PM; none: every shared, writable file mapping.
    pub pm: Vec<String>,
    pub client_requests: bool,
    pub locked_rmw: bool,
}

/// The time, in nanoseconds since 1970, such that whatever is made from now on has a later birth time, and nothing that was
/// made before. That of a file is the kernel's coarse clock, or (since Linux 6.13) a finer one that may be ahead of it.
fn tick() -> u64 {
    let clock = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills in the time that it is given.
        unsafe { libc::clock_gettime(clock, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let now = clock(libc::CLOCK_REALTIME);
    while clock(libc::CLOCK_REALTIME_COARSE) <= now {
        std::thread::sleep(Duration::from_millis(1));
    }
    now
}

/// A mapped session; unmapped and removed on drop.
pub(crate) struct SessionFile {
    map: NonNull<Session>,
    path: tempfile::TempPath,
    /// Its lock says that the session is in use.
    _lock: File,
    /// Another name of the runtime, see [`SessionFile::preloadable`].
    link: Option<tempfile::TempPath>,
}

// SAFETY: the mapping is shared memory whose fields are atomics, except those that are written before any other thread
// or process can know of it.
unsafe impl Send for SessionFile {}
// SAFETY: as above.
unsafe impl Sync for SessionFile {}

impl SessionFile {
    pub(crate) fn create(options: &SessionOptions) -> Result<SessionFile, RecordError> {
        let patterns = pattern::encode(&options.pm)?;
        let shared_memory = Path::new(SHARED_MEMORY);
        let temporary = std::env::temp_dir();
        remove_stale(shared_memory);
        remove_stale(&temporary);
        let mut session = match allocate(shared_memory) {
            Ok(session) => session,
            Err(_) => allocate(&temporary).map_err(|source| RecordError::Session {
                directory: temporary.clone(),
                size: SIZE,
                source,
            })?,
        };
        // SAFETY: the mapping is new and nobody else knows of it; it is zeroed, which is a valid Session.
        let header = unsafe { session.map.as_mut() };
        header.options.client_requests = options.client_requests.into();
        header.options.locked_rmw = options.locked_rmw.into();
        header.options.pattern_count = options.pm.len() as u32;
        header.options.patterns[..patterns.len()].copy_from_slice(&patterns);
        header.recorder_pid = std::process::id();
        header.started = tick();
        header.version = wire::VERSION;
        header.magic = wire::MAGIC;
        Ok(session)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A name of `runtime` that `LD_PRELOAD` can hold: the variable is split at spaces and colons, so a path that has
    /// one gets a symbolic link beside the session.
    pub(crate) fn preloadable(&mut self, runtime: &Path) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        if !runtime
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| matches!(b, b' ' | b':' | b'\t' | b'\n'))
        {
            return Ok(runtime.to_owned());
        }
        let mut link = self.path.as_os_str().to_owned();
        link.push(LINK_SUFFIX);
        let link = PathBuf::from(link);
        symlink(runtime, &link)?;
        self.link = Some(tempfile::TempPath::try_from_path(&link)?);
        Ok(link)
    }
}

impl Deref for SessionFile {
    type Target = Session;

    fn deref(&self) -> &Session {
        // SAFETY: mapped until drop, and all that changes from now on is atomic.
        unsafe { self.map.as_ref() }
    }
}

impl Drop for SessionFile {
    fn drop(&mut self) {
        // Nobody reads any more: whoever still runs must not wait for room.
        self.closed.store(1, Ordering::Release);
        // SAFETY: the mapping was made by `allocate` with this size, and no reference outlives self.
        unsafe { libc::munmap(self.map.as_ptr().cast(), SIZE) };
    }
}

const SIZE: usize = size_of::<Session>();

/// A new session of zeros, locked and allocated.
fn allocate(directory: &Path) -> io::Result<SessionFile> {
    let (file, path) = tempfile::Builder::new()
        .prefix(UNLOCKED_PREFIX)
        .rand_bytes(12)
        .tempfile_in(directory)?
        .into_parts();
    // SAFETY: a plain system call on a descriptor that we own.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    let name = path
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_prefix('.'));
    let path = match name.map(|name| directory.join(name)) {
        Some(named) => {
            path.persist_noclobber(&named)?;
            tempfile::TempPath::try_from_path(named)?
        }
        None => path,
    };
    // SAFETY: a plain system call on a descriptor that we own.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, SIZE as libc::off_t) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: a new shared mapping of the whole file.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(SessionFile {
        map,
        path,
        _lock: file,
        link: None,
    })
}

/// Removes the sessions of recorders that were killed. What cannot be removed is somebody else's.
fn remove_stale(directory: &Path) {
    let Ok(entries) = directory.read_dir() else { return };
    for entry in entries.flatten() {
        if !is_session_name(&entry.file_name()) {
            continue;
        }
        // Whatever else has such a name is not followed and not waited for.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(file) = File::options().read(true).custom_flags(flags).open(entry.path()) else {
            continue;
        };
        // SAFETY: a plain system call on a descriptor that we own; closing it releases the lock.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            let mut link = entry.path().into_os_string();
            link.push(LINK_SUFFIX);
            let _ = std::fs::remove_file(entry.path());
            let _ = std::fs::remove_file(link);
        }
    }
}

fn is_session_name(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|n| n.starts_with(PREFIX) && !n.ends_with(LINK_SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_nobody_holds_are_removed_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // As a recorder leaves them that is killed.
        std::fs::write(at("crashproof-session-killed"), "x").unwrap();
        symlink("/no/such/runtime.so", at("crashproof-session-killed.so")).unwrap();
        std::fs::write(at("another-file"), "x").unwrap();
        let held = allocate(directory.path()).unwrap();
        remove_stale(directory.path());
        let mut left: Vec<_> = directory
            .path()
            .read_dir()
            .unwrap()
            .flatten()
            .map(|e| e.path())
            .collect();
        left.sort();
        assert_eq!(left, [at("another-file"), held.path().to_owned()]);
        assert!(is_session_name(held.path().file_name().unwrap()));

        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }
}
