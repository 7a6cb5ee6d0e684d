//! Interposed: output, and writes to PM files.

use super::indirect::parts;
use super::trap::each_part;
use crate::log::Begun;
use crate::real::{Next, Resolve};
use crate::{files, log, sys};
use crashproof_wire::Session;
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, off_t, size_t, ssize_t};
use std::sync::atomic::Ordering;

/// Where a write puts its data.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    /// At the file position, which is behind the data then.
    Position,
    /// At this offset, unless the descriptor or these flags (`RWF_*`) append: Linux then disregards the offset.
    Offset(off_t, c_int),
}

impl Destination {
    /// Where the data of a successful write begins. `size`: the file's, after the write.
    fn start(self, fd: c_int, size: u64, written: u64) -> u64 {
        match self {
            // SAFETY: lseek by 0 reads the position.
            Destination::Position => unsafe {
                let position = sys::syscall(libc::SYS_lseek, [fd as u64, 0, libc::SEEK_CUR as u64, 0, 0, 0]);
                position.unwrap_or(0).saturating_sub(written)
            },
            Destination::Offset(_, flags) if appends(fd, flags) => size.saturating_sub(written),
            Destination::Offset(offset, _) => offset as u64,
        }
    }
}

fn appends(fd: c_int, flags: c_int) -> bool {
    /// From Linux 6.9 on; libc's headers lack it.
    const RWF_NOAPPEND: c_int = 0x20;
    let mode = || {
        // SAFETY: F_GETFL reads only.
        unsafe { sys::syscall(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0]) }
    };
    flags & libc::RWF_APPEND != 0
        || flags & RWF_NOAPPEND == 0 && mode().is_ok_and(|mode| mode as c_int & libc::O_APPEND != 0)
}

/// What a descriptor is for, of which the trace may need what is written to it.
enum Target {
    Socket,
    /// Of which some PM file may be the file.
    File(Begun),
}

/// A write begins. `None`: the trace does not need it. What goes to stdout or stderr is seen by the filter.
fn begin(fd: c_int) -> Option<Target> {
    if fd == 1 || fd == 2 {
        return None;
    }
    let (session, status) = log::session().zip(sys::fstat(fd))?;
    match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => Some(Target::Socket),
        libc::S_IFREG if may_be_pm(session, status.st_ino) => {
            Some(Target::File(sys::without_signals(|| files::begin_on(fd))))
        }
        _ => None,
    }
}

/// Makes a write of the program's, and logs it: an output event if it goes to a socket, a file event if it goes to a PM file.
fn writing(fd: c_int, parts: &[iovec], destination: Destination, write: impl FnOnce() -> ssize_t) -> ssize_t {
    let target = begin(fd);
    let total = write();
    if let Some(target) = target.filter(|_| total > 0) {
        wrote(fd, parts, total, destination, target);
    }
    total
}

/// After a successful write.
fn wrote(fd: c_int, parts: &[iovec], total: ssize_t, destination: Destination, target: Target) {
    match target {
        Target::Socket => {
            sent(fd, parts, total);
        }
        Target::File(begun) => sys::without_signals(|| {
            let Some(status) = sys::fstat(fd) else { return };
            let start = destination.start(fd, status.st_size as u64, total as u64);
            each_part(parts, total as usize, |data, at| {
                files::written(fd, data, Some(start + at), begun)
            });
        }),
    }
}

/// Whether the trace may need what is written to this descriptor: a socket, or a PM file.
pub(crate) fn is_recorded(fd: c_int) -> bool {
    let Some((session, status)) = log::session().zip(sys::fstat(fd)) else {
        return false;
    };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => true,
        libc::S_IFREG => may_be_pm(session, status.st_ino),
        _ => false,
    }
}

/// After a successful write by an instruction of the program's.
pub(crate) fn wrote_raw(fd: c_int, parts: &[iovec], total: u64, destination: Destination) {
    if fd == 1 || fd == 2 {
        each_part(parts, total as usize, |data, _| log::output(fd as u32, data));
    } else if let Some((session, status)) = log::session().zip(sys::fstat(fd)) {
        // The copy of the instruction does not say when it began.
        match status.st_mode & libc::S_IFMT {
            libc::S_IFSOCK => wrote(fd, parts, total as ssize_t, destination, Target::Socket),
            libc::S_IFREG if may_be_pm(session, status.st_ino) => {
                wrote(fd, parts, total as ssize_t, destination, Target::File(Begun::NOT))
            }
            _ => {}
        }
    }
}

/// Cheap, and sure only in its no: some PM file has this inode number.
fn may_be_pm(session: &Session, inode: u64) -> bool {
    let count = (session.next_file.load(Ordering::Acquire) as usize).min(session.files.len());
    session.files[..count]
        .iter()
        .any(|file| file.ino.load(Ordering::Relaxed) == inode)
}

/// After a successful send.
fn sent(fd: c_int, parts: &[iovec], total: ssize_t) -> ssize_t {
    if total > 0 && log::session().is_some() {
        sys::without_signals(|| each_part(parts, total as usize, |data, _| log::output(fd as u32, data)));
    }
    total
}

fn one(buffer: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    }]
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's call.
    writing(fd, &one(buffer, len), Destination::Position, || unsafe {
        NEXT_WRITE.get()(fd, buffer, len)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the program's call.
    writing(fd, &one(buffer, len), Destination::Offset(offset, 0), || unsafe {
        NEXT_PWRITE.get()(fd, buffer, len, offset)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwrite(fd, buffer, len, offset) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        writing(fd, parts(buffers, count as usize), Destination::Position, || {
            NEXT_WRITEV.get()(fd, buffers, count)
        })
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pwritev(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        writing(
            fd,
            parts(buffers, count as usize),
            Destination::Offset(offset, 0),
            || NEXT_PWRITEV.get()(fd, buffers, count, offset),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwritev(fd, buffers, count, offset) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let destination = match offset {
        -1 => Destination::Position,
        _ => Destination::Offset(offset, flags),
    };
    // SAFETY: the program's call.
    unsafe {
        writing(fd, parts(buffers, n as usize), destination, || {
            NEXT_PWRITEV2.get()(fd, buffers, n, offset, flags)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    f: c_int,
) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwritev2(fd, buffers, n, offset, f) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    sent(fd, &one(buffer, len), unsafe {
        NEXT_SEND.get()(fd, buffer, len, flags)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const libc::sockaddr,
    address_len: libc::socklen_t,
) -> ssize_t {
    // SAFETY: the program's call.
    sent(fd, &one(buffer, len), unsafe {
        NEXT_SENDTO.get()(fd, buffer, len, flags, address, address_len)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        let total = NEXT_SENDMSG.get()(fd, message, flags);
        if total <= 0 {
            total
        } else {
            sent(fd, parts((*message).msg_iov, (*message).msg_iovlen), total)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: libc::c_uint, flags: c_int) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let done = NEXT_SENDMMSG.get()(fd, messages, count, flags);
        for i in 0..done.max(0) as usize {
            let message = &*messages.add(i);
            sent(
                fd,
                parts(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen),
                message.msg_len as ssize_t,
            );
        }
        done
    }
}

type Scattered = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type ScatteredAt = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type ScatteredFlags = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Pwrite = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type Sendto =
    unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int, *const libc::sockaddr, libc::socklen_t) -> ssize_t;
type Sendmsg = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
type Sendmmsg = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, libc::c_uint, c_int) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_WRITE: Next<Write> = unsafe { Next::new(c"write") };
// SAFETY: as above.
static NEXT_PWRITE: Next<Pwrite> = unsafe { Next::new(c"pwrite") };
// SAFETY: as above.
static NEXT_WRITEV: Next<Scattered> = unsafe { Next::new(c"writev") };
// SAFETY: as above.
static NEXT_PWRITEV: Next<ScatteredAt> = unsafe { Next::new(c"pwritev") };
// SAFETY: as above.
static NEXT_PWRITEV2: Next<ScatteredFlags> = unsafe { Next::new(c"pwritev2") };
// SAFETY: as above.
static NEXT_SEND: Next<Send> = unsafe { Next::new(c"send") };
// SAFETY: as above.
static NEXT_SENDTO: Next<Sendto> = unsafe { Next::new(c"sendto") };
// SAFETY: as above.
static NEXT_SENDMSG: Next<Sendmsg> = unsafe { Next::new(c"sendmsg") };
// SAFETY: as above.
static NEXT_SENDMMSG: Next<Sendmmsg> = unsafe { Next::new(c"sendmmsg") };

/// Looks up libc's functions.
pub(super) fn resolve() {
    let all: [&dyn Resolve; 9] = [
        &NEXT_WRITE,
        &NEXT_PWRITE,
        &NEXT_WRITEV,
        &NEXT_PWRITEV,
        &NEXT_PWRITEV2,
        &NEXT_SEND,
        &NEXT_SENDTO,
        &NEXT_SENDMSG,
        &NEXT_SENDMMSG,
    ];
    all.iter().for_each(|next| next.resolve());
}
