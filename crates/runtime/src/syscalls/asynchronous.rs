//! Asynchronous input and output by libc.

use super::indirect::in_pm;
use super::writes::{pwrite, write};
use crate::real::{Next, Resolve};
use crate::{threads, watch};
use libc::{c_int, c_void, off_t, size_t, ssize_t};

/// libc reads and writes in a thread that has every signal blocked, where the filter's trap would kill the process. What
/// would be trapped is therefore done at once: it has ended when the call returns.
unsafe fn at_once(control: *mut libc::aiocb, transfer: [Transfer; 2]) {
    /// Where libc has the outcome, which its headers keep to themselves.
    const ERROR: usize = 112;
    const RESULT: usize = 120;
    // SAFETY: the program's control block.
    unsafe {
        let request = &*control;
        let (fd, buffer, len) = (request.aio_fildes, request.aio_buf, request.aio_nbytes);
        let errno = libc::__errno_location();
        let saved = *errno;
        let [at, here] = transfer;
        let mut result = at(fd, buffer, len, request.aio_offset);
        if result == -1 && *errno == libc::ESPIPE {
            result = here(fd, buffer, len, 0);
        }
        let failed = if result == -1 { *errno } else { 0 };
        *errno = saved;
        control.cast::<u8>().add(RESULT).cast::<ssize_t>().write(result);
        control.cast::<u8>().add(ERROR).cast::<c_int>().write(failed);
    }
}

/// At an offset, or at the file position.
type Transfer = unsafe fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;

const READ: [Transfer; 2] = [
    |fd, buffer, len, offset| {
        // SAFETY: the caller's promise.
        unsafe { libc::pread(fd, buffer, len, offset) }
    },
    |fd, buffer, len, _| {
        // SAFETY: the caller's promise.
        unsafe { libc::read(fd, buffer, len) }
    },
];

const WRITE: [Transfer; 2] = [
    |fd, buffer, len, offset| {
        // SAFETY: the caller's promise.
        unsafe { pwrite(fd, buffer, len, offset) }
    },
    |fd, buffer, len, _| {
        // SAFETY: the caller's promise.
        unsafe { write(fd, buffer, len) }
    },
];

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the program's control block. It is told of the end in the way that it asked for.
    unsafe {
        if !watch::active() && !in_pm((*control).aio_buf, (*control).aio_nbytes) {
            return NEXT_AIO_READ.get()(control);
        }
        at_once(control, READ);
        threads::notify(&(*control).aio_sigevent);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read64(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { aio_read(control) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write(control: *mut libc::aiocb) -> c_int {
    // SAFETY: as in `aio_read`.
    unsafe {
        if !watch::active() {
            return NEXT_AIO_WRITE.get()(control);
        }
        at_once(control, WRITE);
        threads::notify(&(*control).aio_sigevent);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write64(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { aio_write(control) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: the program's list.
    unsafe {
        if !watch::active() {
            return NEXT_LIO_LISTIO.get()(mode, list, count, event);
        }
        for i in 0..count.max(0) as usize {
            let control = *list.add(i);
            match control.as_ref().map(|request| request.aio_lio_opcode) {
                Some(libc::LIO_READ) => at_once(control, READ),
                Some(libc::LIO_WRITE) => at_once(control, WRITE),
                _ => continue,
            }
            threads::notify(&(*control).aio_sigevent);
        }
        if let (libc::LIO_NOWAIT, Some(event)) = (mode, event.as_ref()) {
            threads::notify(event);
        }
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { lio_listio(mode, list, count, event) }
}

type Listio = unsafe extern "C" fn(c_int, *const *mut libc::aiocb, c_int, *mut libc::sigevent) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_AIO_READ: Next<unsafe extern "C" fn(*mut libc::aiocb) -> c_int> = unsafe { Next::new(c"aio_read") };
// SAFETY: as above.
static NEXT_AIO_WRITE: Next<unsafe extern "C" fn(*mut libc::aiocb) -> c_int> = unsafe { Next::new(c"aio_write") };
// SAFETY: as above.
static NEXT_LIO_LISTIO: Next<Listio> = unsafe { Next::new(c"lio_listio") };

/// Looks up libc's functions.
pub(super) fn resolve() {
    let all: [&dyn Resolve; 3] = [&NEXT_AIO_READ, &NEXT_AIO_WRITE, &NEXT_LIO_LISTIO];
    all.iter().for_each(|next| next.resolve());
}
