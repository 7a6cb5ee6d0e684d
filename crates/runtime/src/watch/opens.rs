//! Files that a recovery program opens, by functions of libc.
//!
//! Before `main` a PM file must not be opened in the fork server. From then on two ways to read PM are noted as not watched: the
//! mode `m` of `fopen` and its kin, with which libc maps the file by a call of its own, and `/proc/self/mem`, through which
//! the kernel reads closed pages.

use super::{maps, recovery, server, unwatched};
use crate::real::{Next, Resolve};
use crate::sys;
use crashproof_wire::recovery::{TRACK_READS, UNWATCHED_OTHER};
use libc::{FILE, c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// A PM file was opened before `main`.
static PM_OPENED: AtomicBool = AtomicBool::new(false);

pub(crate) fn pm_opened() -> bool {
    PM_OPENED.load(Ordering::Relaxed)
}

/// The program has opened a file.
fn opened(fd: c_int) -> c_int {
    let Some(recovery) = recovery().filter(|_| fd >= 0) else {
        return fd;
    };
    if server::parked().is_some() {
        if maps::file_of(recovery, fd).is_some() {
            PM_OPENED.store(true, Ordering::Relaxed);
        }
    } else if recovery.track == TRACK_READS && is_memory(fd) {
        unwatched(UNWATCHED_OTHER);
    }
    fd
}

/// Notes an open for reading and writing that failed. `errno` stays as it is.
fn failing(directory: c_int, path: *const c_char, flags: c_int, fd: c_int) -> c_int {
    if fd < 0 && flags & libc::O_ACCMODE == libc::O_RDWR && crate::log::session().is_some() {
        // SAFETY: errno of this thread, which libc has just set; and the program's NUL-terminated path.
        unsafe {
            let errno = *libc::__errno_location();
            // A path that cannot be read cannot be named.
            if errno != libc::EFAULT {
                crate::selection::open_failed(directory, path, errno);
            }
            *libc::__errno_location() = errno;
        }
    }
    fd
}

/// Notes that the file was truncated.
fn truncated(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 && flags & libc::O_TRUNC != 0 {
        crate::files::truncated(fd, crate::log::Begun::NOT);
    }
    fd
}

/// The same of a stream.
///
/// # Safety
/// What libc gave for the mode.
unsafe fn truncated_stream(file: *mut FILE, mode: *const c_char) -> *mut FILE {
    // SAFETY: a stream that libc has just opened, and the program's NUL-terminated mode.
    unsafe {
        if !file.is_null() && *mode == b'w' as c_char {
            truncated(libc::fileno(file), libc::O_TRUNC);
        }
    }
    file
}

/// Whether it is the memory of a process, as a file: `/proc/12/mem`, `/proc/12/task/12/mem`.
fn is_memory(fd: c_int) -> bool {
    let mut buffer = [0; 4096];
    crate::files::path_of_fd(fd, &mut buffer).is_some_and(|path| path.starts_with(b"/proc/") && path.ends_with(b"/mem"))
}

/// The program has opened a file as a stream.
///
/// # Safety
/// What libc gave for the mode.
unsafe fn opened_stream(file: *mut FILE, mode: *const c_char) -> *mut FILE {
    let Some(recovery) = recovery().filter(|_| !file.is_null()) else {
        return file;
    };
    // SAFETY: a stream that libc has just opened, and the program's NUL-terminated mode. After a comma is a character set.
    let (fd, mode) = unsafe { (libc::fileno(file), CStr::from_ptr(mode).to_bytes()) };
    let maps_it = mode
        .iter()
        .take_while(|&&letter| letter != b',')
        .any(|&letter| letter == b'm');
    let reads = recovery.track == TRACK_READS;
    if maps_it && reads && sys::without_signals(|| maps::file_of(recovery, fd)).is_some() {
        unwatched(UNWATCHED_OTHER);
    }
    opened(fd);
    file
}

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type Openat = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, libc::mode_t) -> c_int;
type Fopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
type Freopen = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type Fdopen = unsafe extern "C-unwind" fn(c_int, *const c_char) -> *mut FILE;

// SAFETY: each with the type that libc's headers declare; a variable argument is passed like another.
static NEXT_OPEN: Next<Open> = unsafe { Next::new(c"open") };
// SAFETY: as above.
static NEXT_OPENAT: Next<Openat> = unsafe { Next::new(c"openat") };
// SAFETY: as above.
static NEXT_FOPEN: Next<Fopen> = unsafe { Next::new(c"fopen") };
// SAFETY: as above.
static NEXT_FREOPEN: Next<Freopen> = unsafe { Next::new(c"freopen") };
// SAFETY: as above.
static NEXT_FDOPEN: Next<Fdopen> = unsafe { Next::new(c"fdopen") };

/// Looks up libc's functions.
pub(crate) fn resolve() {
    let all: [&dyn Resolve; 5] = [&NEXT_OPEN, &NEXT_OPENAT, &NEXT_FOPEN, &NEXT_FREOPEN, &NEXT_FDOPEN];
    all.iter().for_each(|next| next.resolve());
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's call.
    let fd = unsafe { NEXT_OPEN.get()(path, flags, mode) };
    opened(truncated(failing(libc::AT_FDCWD, path, flags, fd), flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn creat(path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's call; this is what it stands for.
    unsafe { open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn creat64(path: *const c_char, mode: libc::mode_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { creat(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { open(path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the program's call.
    let fd = unsafe { NEXT_OPENAT.get()(directory, path, flags, mode) };
    opened(truncated(failing(directory, path, flags, fd), flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { openat(directory, path, flags, mode) }
}

/// What `open` is in a program that was compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's call; no file is created, so that there is no mode.
    unsafe { open(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { open(path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { openat(directory, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { openat(directory, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's call.
    unsafe { opened_stream(truncated_stream(NEXT_FOPEN.get()(path, mode), mode), mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the same function on a 64-bit system.
    unsafe { fopen(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    // SAFETY: the program's call.
    unsafe { opened_stream(truncated_stream(NEXT_FREOPEN.get()(path, mode, file), mode), mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    // SAFETY: the same function on a 64-bit system.
    unsafe { freopen(path, mode, file) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's call.
    unsafe { opened_stream(NEXT_FDOPEN.get()(fd, mode), mode) }
}
