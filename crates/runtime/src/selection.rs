//! Which files are PM: the decision for a file that the program maps, with its reason.
//!
//! Without patterns of the user's, every file that is mapped shared and writable is PM, but for those that hold no data by
//! the evidence at hand: how the file was made (`shm_open`, `memfd_create`), what it is called beside which other file, and
//! whether it still has a name. With patterns, they alone decide. `docs/files.md` describes the rules.

use crate::files::{self, Identity};
use crate::real::{Next, Resolve};
use crate::{log, sys};
use crashproof_wire::{Session, record::*};
use libc::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering;

/// What becomes of a file that the program maps.
pub(crate) enum Selection {
    Pm,
    /// A `LEFT_OUT_*`.
    LeftOut(u32),
}

/// The decision for an open file.
pub(crate) fn of_file(session: &Session, fd: c_int, identity: &Identity, path: &[u8]) -> Selection {
    let selected = (session.options.pattern_count > 0).then(|| matches_pattern(session, path));
    if selected == Some(true) {
        return Selection::Pm;
    }
    match (no_data(session, fd, identity, path), selected) {
        (Some(reason), _) => Selection::LeftOut(reason),
        (None, Some(_)) => Selection::LeftOut(LEFT_OUT_NOT_SELECTED),
        (None, None) => Selection::Pm,
    }
}

/// The decision for a mapping that is known only by its path: as far as that tells.
pub(crate) fn of_path(session: &Session, path: &[u8]) -> bool {
    if session.options.pattern_count > 0 {
        return matches_pattern(session, path);
    }
    !path.starts_with(b"/memfd:") && path != b"/dev/zero" && by_name(path, None).is_none()
}

/// Whether one of the user's patterns matches: the path if the pattern has a slash, else the name.
pub(crate) fn matches_pattern(session: &Session, path: &[u8]) -> bool {
    let options = &session.options;
    let mut subject = [0u8; 4096];
    subject[..path.len()].copy_from_slice(path);
    let name = path.len() - name_of(path).len();
    options
        .patterns
        .split(|&b| b == 0)
        .take(options.pattern_count as usize)
        .any(|pattern| {
            let subject = if pattern.contains(&b'/') {
                &subject[..]
            } else {
                &subject[name..]
            };
            // SAFETY: both are NUL-terminated: the pattern by the split's separator, the subject by the zeroed buffer.
            unsafe { libc::fnmatch(pattern.as_ptr().cast(), subject.as_ptr().cast(), 0) == 0 }
        })
}

fn name_of(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    &path[start..]
}

/// Why the file holds no data, if it does not.
fn no_data(session: &Session, fd: c_int, identity: &Identity, path: &[u8]) -> Option<u32> {
    if path.starts_with(b"/memfd:") {
        return Some(LEFT_OUT_MEMFD);
    }
    if session.shared_memory.iter().any(|slot| files::is_file(slot, identity)) {
        let semaphore = path.starts_with(SEMAPHORE);
        return Some(if semaphore {
            LEFT_OUT_SEMAPHORE
        } else {
            LEFT_OUT_SHARED_MEMORY
        });
    }
    if let Some(reason) = by_name(path, Some(fd)) {
        return Some(reason);
    }
    (identity.links == 0 && !is_temporary(identity, path)).then_some(LEFT_OUT_UNLINKED)
}

/// What a file's name says, beside the files around it. `fd`: the file, where it is open.
fn by_name(path: &[u8], fd: Option<c_int>) -> Option<u32> {
    let name = name_of(path);
    let folder = path[..path.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
    if name_of(folder).starts_with(b"hsperfdata_") && !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
        return Some(LEFT_OUT_JAVA_COUNTERS);
    }
    let lock_name = [&b"-lock"[..], b".lock", b".lck"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    if name == b"lock.mdb" || lock_name && fd.is_some_and(is_locked) {
        return Some(LEFT_OUT_LOCK_FILE);
    }
    let database = path.strip_suffix(b"-shm").filter(|_| name.len() > b"-shm".len())?;
    is_sqlite(database).then_some(LEFT_OUT_SQLITE_INDEX)
}

/// Whether the file at this path is an SQLite database: by its first bytes, or because there is a write-ahead log beside it (an
/// encrypted database has no plain header).
fn is_sqlite(path: &[u8]) -> bool {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    let mut log = [0u8; 4096 + 8];
    let Some(end) = log.get_mut(path.len()..path.len() + 4) else {
        return false;
    };
    end.copy_from_slice(b"-wal");
    log[..path.len()].copy_from_slice(path);
    let mut database = [0u8; 4096];
    let Some(start) = database.get_mut(..path.len()).filter(|_| path.len() < 4096) else {
        return false;
    };
    start.copy_from_slice(path);
    let is_there = |path: &[u8]| files::identity(libc::AT_FDCWD, path.as_ptr().cast(), 0).is_some();
    if !is_there(&database) {
        return false;
    }
    // A descriptor of the database must not be opened here: to close it would drop the locks (`fcntl`) that the process has
    // on it. Those that the process has open are read from instead.
    is_there(&log) || files::starts_with(path, MAGIC)
}

/// Whether the process has a lock (`fcntl`, `flock`) on the file, by this descriptor.
fn is_locked(fd: c_int) -> bool {
    let mut name = [0u8; 36];
    files::proc_fd_path(b"/proc/self/fdinfo/", fd, &mut name);
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    // SAFETY: a NUL-terminated path.
    let info = unsafe {
        sys::syscall(
            libc::SYS_openat,
            [libc::AT_FDCWD as u64, name.as_ptr() as u64, flags, 0, 0, 0],
        )
    };
    let Ok(info) = info else { return false };
    let mut text = [0u8; 1024];
    // SAFETY: our own descriptor and buffer.
    let read = unsafe { sys::syscall(libc::SYS_read, [info, text.as_mut_ptr() as u64, 1024, 0, 0, 0]) };
    // SAFETY: a descriptor of ours, of a file in /proc on which nobody has locks.
    let _ = unsafe { sys::syscall(libc::SYS_close, [info, 0, 0, 0, 0, 0]) };
    let text = &text[..read.unwrap_or(0) as usize];
    text.split(|&b| b == b'\n').any(|line| line.starts_with(b"lock:"))
}

/// Whether the file was made without a name (`O_TMPFILE`), and can still get one by `linkat`: the kernel calls it `#INODE`.
pub(crate) fn is_temporary(identity: &Identity, path: &[u8]) -> bool {
    let Some(digits) = name_of(path).strip_prefix(b"#") else {
        return false;
    };
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    identity.links == 0 && number == Some(identity.ino)
}

/// A mapping or an open that cannot be recorded, of a file that could have been PM. Only told while no file is: it explains
/// why there is none.
pub(crate) fn unusable(reason: u32, fd: c_int) {
    let Some(session) = log::session().filter(|session| session.next_file.load(Ordering::Relaxed) == 0) else {
        return;
    };
    let mut buffer = [0u8; 4096];
    let regular = files::identity_of_fd(fd).is_some_and(|identity| identity.mode & libc::S_IFMT == libc::S_IFREG);
    if let (true, Some(path)) = (regular, files::path_of_fd(fd, &mut buffer))
        && (session.options.pattern_count == 0 || matches_pattern(session, path))
    {
        log::left_out(reason, 0, path);
    }
}

/// The program could not open a file for reading and writing, with this error.
///
/// # Safety
/// `path` is NUL-terminated.
pub(crate) unsafe fn open_failed(directory: c_int, path: *const c_char, errno: c_int) {
    let is_unused = |session: &&'static Session| session.next_file.load(Ordering::Relaxed) == 0;
    if log::session().filter(is_unused).is_none() || path.is_null() {
        return;
    }
    // It is there, or may be the next time: the program tries again.
    if matches!(errno, libc::EEXIST | libc::EINTR | libc::EAGAIN) {
        return;
    }
    // SAFETY: the caller's promise.
    let given = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let mut buffer = [0u8; 4096];
    let Some(path) = absolute(directory, given, &mut buffer) else {
        return;
    };
    let device = path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/") && !path.starts_with(b"/dev/dax");
    if !device && !path.starts_with(b"/proc/") && !path.starts_with(b"/sys/") {
        sys::without_signals(|| log::left_out(LEFT_OUT_OPEN_FAILED, errno, path));
    }
}

/// The path with its directory before it.
pub(crate) fn absolute<'a>(directory: c_int, path: &'a [u8], buffer: &'a mut [u8; 4096]) -> Option<&'a [u8]> {
    if path.first() == Some(&b'/') {
        return (path.len() < 4096).then_some(path);
    }
    let mut len = match directory {
        libc::AT_FDCWD => {
            // SAFETY: the buffer has the room that is said.
            let len = unsafe { sys::syscall(libc::SYS_getcwd, [buffer.as_mut_ptr() as u64, 4096, 0, 0, 0, 0]) };
            // The NUL counts.
            len.ok()?.checked_sub(1)? as usize
        }
        directory => files::path_of_fd(directory, buffer)?.len(),
    };
    for part in [&b"/"[..], path] {
        buffer.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    Some(&buffer[..len])
}

type ShmOpen = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t) -> c_int;

type SemOpen = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t, c_uint) -> *mut libc::sem_t;

// SAFETY: the type that libc gives this function.
static NEXT_SHM_OPEN: Next<ShmOpen> = unsafe { Next::new(c"shm_open") };
// SAFETY: likewise. It is variadic; the arguments of a variadic function that are integers are passed as those of others are.
static NEXT_SEM_OPEN: Next<SemOpen> = unsafe { Next::new(c"sem_open") };

pub(crate) fn resolve() {
    NEXT_SHM_OPEN.resolve();
    NEXT_SEM_OPEN.resolve();
}

/// What it opens is memory that processes share, and lasts no longer than the machine runs. libc makes it in /dev/shm, where a
/// program can also keep the file of a pool: only the call tells them apart.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's own call.
    let fd = unsafe { NEXT_SHM_OPEN.get()(name, flags, mode) };
    if let (Some(session), 0..) = (log::session(), fd) {
        sys::without_signals(|| {
            if let Some(identity) = files::identity_of_fd(fd) {
                remember(session, &identity);
            }
        });
    }
    fd
}

/// How the path of a named semaphore begins.
const SEMAPHORE: &[u8] = b"/dev/shm/sem.";

/// libc maps the semaphore itself, unseen. A file of that name that the program opens by its path is data, unless it is one that this
/// call made.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_open(
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    value: c_uint,
) -> *mut libc::sem_t {
    // SAFETY: the program's own call. What it did not pass, libc does not look at.
    let semaphore = unsafe { NEXT_SEM_OPEN.get()(name, flags, mode, value) };
    if let Some(session) = log::session()
        && !semaphore.is_null()
    {
        // SAFETY: libc has read the name.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
        let name = &name[name.iter().take_while(|&&b| b == b'/').count()..];
        let mut path = [0u8; 512];
        if let Some(end) = path.get_mut(SEMAPHORE.len()..SEMAPHORE.len() + name.len()) {
            end.copy_from_slice(name);
            path[..SEMAPHORE.len()].copy_from_slice(SEMAPHORE);
            sys::without_signals(|| {
                if let Some(identity) = files::identity(libc::AT_FDCWD, path.as_ptr().cast(), 0) {
                    remember(session, &identity);
                }
                log::left_out(LEFT_OUT_SEMAPHORE, 0, &path[..SEMAPHORE.len() + name.len()]);
            });
        }
    }
    semaphore
}

/// All processes are to know it. When there is no room, the oldest is forgotten.
fn remember(session: &Session, identity: &Identity) {
    crate::spin::acquire(&session.files_lock, sys::gettid());
    if !session.shared_memory.iter().any(|slot| files::is_file(slot, identity)) {
        let count = session.next_shared_memory.fetch_add(1, Ordering::Relaxed) as usize;
        files::assign(&session.shared_memory[count % session.shared_memory.len()], identity);
    }
    crate::spin::release(&session.files_lock);
}
