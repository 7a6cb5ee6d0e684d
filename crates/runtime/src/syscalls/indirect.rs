//! Calls with indirect buffers: arrays of parts and messages. A filter cannot read them, so libc's functions are interposed.

use super::bounce::{Bounce, store, store_changed, writable_len};
#[cfg(doc)]
use super::table::Effect;
use crate::real::{Next, Resolve};
use crate::{log, pm, raw, registered, sys, watch};
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, off_t, ssize_t};
use std::mem::MaybeUninit;

pub(super) fn in_pm(address: *mut c_void, len: usize) -> bool {
    let (address, len) = (address as u64, len as u64);
    len > 0 && !watch::active() && (pm::contains(address, len) || registered::contains(address, len))
}

pub(super) unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if parts.is_null() || count > libc::UIO_MAXIOV as usize {
        return &[];
    }
    // SAFETY: the program's array, of the length it gave.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// A scattered read whose parts lie in PM: `read` is called with bounce buffers, and what it read is stored.
fn scattered(given: &[iovec], read: impl FnOnce(*const iovec) -> ssize_t, stack: impl FnOnce() -> u64) -> ssize_t {
    let writable = |part: &iovec| match in_pm(part.iov_base, part.iov_len) {
        true => Bounce::room(writable_len(part.iov_base as u64, part.iov_len as u64) as usize),
        false => 0,
    };
    let room = Bounce::room(size_of_val(given)) + given.iter().map(writable).sum::<u64>();
    let Ok(mut bounce) = Bounce::new(room) else {
        return sys::to_libc(Err(libc::ENOMEM)) as ssize_t;
    };
    let own = redirect(given, &mut bounce, true);
    let total = read(own.as_ptr());
    let stored = match total {
        1.. => sys::without_signals(|| store_parts(given, own, total as usize, stack())),
        _ => Ok(()),
    };
    bounce.free();
    stored.map_or_else(|errno| sys::to_libc(Err(errno)) as ssize_t, |()| total)
}

/// The same parts in bounce buffers, where they are in PM. If `cut`, they end where they cannot be written.
fn redirect<'a>(given: &[iovec], bounce: &mut Bounce, cut: bool) -> &'a [iovec] {
    let at = bounce.buffer(size_of_val(given)) as *mut iovec;
    let mut over = false;
    for (i, part) in given.iter().enumerate() {
        let (mut base, mut len) = (part.iov_base, if over { 0 } else { part.iov_len });
        if in_pm(base, len) {
            if cut {
                len = writable_len(base as u64, len as u64) as usize;
                over = len < part.iov_len;
            }
            base = match len {
                // Nothing is there, either: the kernel says what is wrong, or ends before it.
                0 => {
                    len = part.iov_len;
                    std::ptr::dangling_mut()
                }
                _ => bounce.buffer(len) as *mut c_void,
            };
        }
        // SAFETY: `at` has room for as many parts as were given.
        unsafe {
            at.add(i).write(iovec {
                iov_base: base,
                iov_len: len,
            })
        };
    }
    // SAFETY: filled just now.
    unsafe { std::slice::from_raw_parts(at, given.len()) }
}

/// Stores the first `total` bytes of what was read into `own` to the parts that the program gave.
fn store_parts(given: &[iovec], own: &[iovec], total: usize, stack: u64) -> Result<(), i32> {
    let mut left = total;
    for (given, own) in given.iter().zip(own) {
        let n = given.iov_len.min(left);
        if given.iov_base != own.iov_base {
            // SAFETY: a bounce buffer of that length.
            let read = unsafe { std::slice::from_raw_parts(own.iov_base.cast(), n) };
            store(given.iov_base as u64, read, stack)?;
        }
        left -= n;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_readv, buffers as u64, count as u64) {
            return NEXT_READV.get()(fd, buffers, count);
        }
        let given = parts(buffers, count as usize);
        scattered(given, |buffers| NEXT_READV.get()(fd, buffers, count), log::stack_here)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_preadv, buffers as u64, count as u64) {
            return NEXT_PREADV.get()(fd, buffers, count, offset);
        }
        scattered(
            parts(buffers, count as usize),
            |buffers| NEXT_PREADV.get()(fd, buffers, count, offset),
            log::stack_here,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { preadv(fd, buffers, count, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_preadv2, buffers as u64, n as u64) {
            return NEXT_PREADV2.get()(fd, buffers, n, offset, flags);
        }
        scattered(
            parts(buffers, n as usize),
            |buffers| NEXT_PREADV2.get()(fd, buffers, n, offset, flags),
            log::stack_here,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t, f: c_int) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { preadv2(fd, buffers, n, offset, f) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn process_vm_readv(
    process: libc::pid_t,
    local: *const iovec,
    local_count: libc::c_ulong,
    remote: *const iovec,
    remote_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if let Some(recovery) = watch::recovery() {
            let arguments = [
                process as u64,
                local as u64,
                local_count,
                remote as u64,
                remote_count,
                flags,
            ];
            let result = watch::calls::perform(recovery, libc::SYS_process_vm_readv, arguments);
            return sys::to_libc(result) as ssize_t;
        }
        let read = |local| NEXT_PROCESS_VM_READV.get()(process, local, local_count, remote, remote_count, flags);
        if is_into_pm(libc::SYS_process_vm_readv, local as u64, local_count) {
            scattered(parts(local, local_count as usize), read, log::stack_here)
        } else {
            read(local)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn process_vm_writev(
    process: libc::pid_t,
    local: *const iovec,
    local_count: libc::c_ulong,
    remote: *const iovec,
    remote_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> ssize_t {
    let arguments = [
        process as u64,
        local as u64,
        local_count,
        remote as u64,
        remote_count,
        flags,
    ];
    match watch::recovery() {
        Some(recovery) => {
            sys::to_libc(watch::calls::perform(recovery, libc::SYS_process_vm_writev, arguments)) as ssize_t
        }
        // SAFETY: the program's call.
        None => unsafe { NEXT_PROCESS_VM_WRITEV.get()(process, local, local_count, remote, remote_count, flags) },
    }
}

/// A message whose parts are redirected, and what is needed to store what it received.
struct Redirected {
    given: *mut msghdr,
    own: msghdr,
}

impl Redirected {
    unsafe fn room(message: &msghdr) -> u64 {
        // SAFETY: the program's message.
        let buffers = unsafe { parts(message.msg_iov, message.msg_iovlen) };
        Bounce::room(size_of_val(buffers))
            + buffers.iter().map(|p| Bounce::room(p.iov_len)).sum::<u64>()
            + Bounce::room(message.msg_namelen as usize)
            + Bounce::room(message.msg_controllen)
    }

    unsafe fn new(given: *mut msghdr, bounce: &mut Bounce) -> Redirected {
        // SAFETY: the program's message.
        unsafe {
            let mut own = *given;
            own.msg_iov = redirect(parts(own.msg_iov, own.msg_iovlen), bounce, false)
                .as_ptr()
                .cast_mut();
            for (buffer, len) in [
                (&mut own.msg_name, own.msg_namelen as usize),
                (&mut own.msg_control, own.msg_controllen),
            ] {
                if in_pm(*buffer, len) {
                    *buffer = bounce.buffer(len) as *mut c_void;
                }
            }
            Redirected { given, own }
        }
    }

    /// Stores what was received: `total` bytes of data, name, control data, and the message's own fields.
    unsafe fn store(&self, total: usize, stack: u64) -> Result<(), i32> {
        // SAFETY: the program's message, and buffers of the lengths that the kernel reports at most.
        unsafe {
            let given = *self.given;
            let buffers = parts(given.msg_iov, given.msg_iovlen);
            store_parts(buffers, parts(self.own.msg_iov, self.own.msg_iovlen), total, stack)?;
            let name = (
                given.msg_name,
                self.own.msg_name,
                given.msg_namelen.min(self.own.msg_namelen) as usize,
            );
            let control = (
                given.msg_control,
                self.own.msg_control,
                given.msg_controllen.min(self.own.msg_controllen),
            );
            for (given, own, len) in [name, control] {
                if given != own {
                    store(given as u64, std::slice::from_raw_parts(own.cast(), len), stack)?;
                }
            }
            let mut header = given;
            header.msg_namelen = self.own.msg_namelen;
            header.msg_controllen = self.own.msg_controllen;
            header.msg_flags = self.own.msg_flags;
            let bytes = std::slice::from_raw_parts((&raw const header).cast(), size_of::<msghdr>());
            store_changed(self.given as u64, bytes, stack)
        }
    }
}

/// Receives a message some of which lies in PM: `receive` is called with one that has bounce buffers.
unsafe fn received(
    message: *mut msghdr,
    receive: impl FnOnce(*mut msghdr) -> ssize_t,
    stack: impl FnOnce() -> u64,
) -> ssize_t {
    // SAFETY: the program's message.
    unsafe {
        let Ok(mut bounce) = Bounce::new(Redirected::room(&*message)) else {
            return sys::to_libc(Err(libc::ENOMEM)) as ssize_t;
        };
        let mut redirected = Redirected::new(message, &mut bounce);
        let total = receive(&mut redirected.own);
        let stored = match total {
            0.. => sys::without_signals(|| redirected.store(total as usize, stack())),
            _ => Ok(()),
        };
        bounce.free();
        stored.map_or_else(|errno| sys::to_libc(Err(errno)) as ssize_t, |()| total)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_recvmsg, message as u64, 1) {
            return NEXT_RECVMSG.get()(fd, message, flags);
        }
        received(
            message,
            |message| NEXT_RECVMSG.get()(fd, message, flags),
            log::stack_here,
        )
    }
}

/// The same for several messages.
unsafe fn received_many(
    given: &mut [mmsghdr],
    receive: impl FnOnce(*mut mmsghdr) -> c_int,
    stack: impl FnOnce() -> u64,
) -> c_int {
    // SAFETY: the program's messages.
    unsafe {
        let room = Bounce::room(size_of_val(given)) + given.iter().map(|m| Redirected::room(&m.msg_hdr)).sum::<u64>();
        let Ok(mut bounce) = Bounce::new(room) else {
            return sys::to_libc(Err(libc::ENOMEM)) as c_int;
        };
        let own = bounce.buffer(size_of_val(given)) as *mut mmsghdr;
        for (i, message) in given.iter_mut().enumerate() {
            let redirected = Redirected::new(&mut message.msg_hdr, &mut bounce);
            own.add(i).write(mmsghdr {
                msg_hdr: redirected.own,
                msg_len: 0,
            });
        }
        let received = receive(own);
        let stored: Result<(), i32> = sys::without_signals(|| {
            let stack = stack();
            for (i, message) in given.iter_mut().enumerate().take(received.max(0) as usize) {
                let mmsghdr { msg_hdr, msg_len } = *own.add(i);
                Redirected {
                    given: &mut message.msg_hdr,
                    own: msg_hdr,
                }
                .store(msg_len as usize, stack)?;
                store_changed(&raw const message.msg_len as u64, &msg_len.to_le_bytes(), stack)?;
            }
            Ok(())
        });
        bounce.free();
        stored.map_or_else(|errno| sys::to_libc(Err(errno)) as c_int, |()| received)
    }
}

/// The kernel takes no more than this at once.
const MOST_MESSAGES: libc::c_uint = 1024;

unsafe fn messages<'a>(messages: *mut mmsghdr, count: libc::c_uint) -> &'a mut [mmsghdr] {
    if messages.is_null() {
        return &mut [];
    }
    // SAFETY: the program's array, of the length it gave.
    unsafe { std::slice::from_raw_parts_mut(messages, count.min(MOST_MESSAGES) as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_recvmmsg, list as u64, count as u64) {
            return NEXT_RECVMMSG.get()(fd, list, count, flags, timeout);
        }
        let given = messages(list, count);
        let count = given.len() as libc::c_uint;
        let receive = |list| NEXT_RECVMMSG.get()(fd, list, count, flags, timeout);
        received_many(given, receive, log::stack_here)
    }
}

/// Whether a call of [`Effect::Gather`], with this array or message, writes to PM. What it points to may not be there: then it does not, and
/// the kernel says what is wrong.
pub(crate) fn is_into_pm(number: i64, at: u64, count: u64) -> bool {
    if pm::first_after(0).is_none() && !registered::any() {
        return false;
    }
    let into_pm = match number {
        libc::SYS_recvmsg => message_into_pm::<msghdr>(at, |message| message),
        libc::SYS_recvmmsg => {
            let count = count as libc::c_uint as u64;
            any_readable(count.min(MOST_MESSAGES as u64), |i| {
                message_into_pm::<mmsghdr>(at.checked_add(i * size_of::<mmsghdr>() as u64)?, |message| {
                    message.msg_hdr
                })
            })
        }
        _ => parts_into_pm(at, count),
    };
    into_pm == Some(true)
}

/// Whether it holds of any; `None`: one of them cannot be read.
fn any_readable(count: u64, holds: impl Fn(u64) -> Option<bool>) -> Option<bool> {
    (0..count).try_fold(false, |any, i| Some(any | holds(i)?))
}

fn message_into_pm<T: Copy>(at: u64, header: impl Fn(T) -> msghdr) -> Option<bool> {
    let message = header(raw::read::<T>(at).ok()??);
    let into_pm = in_pm(at as *mut c_void, size_of::<T>())
        || in_pm(message.msg_name, message.msg_namelen as usize)
        || in_pm(message.msg_control, message.msg_controllen);
    Some(into_pm | parts_into_pm(message.msg_iov as u64, message.msg_iovlen as u64)?)
}

fn parts_into_pm(at: u64, count: u64) -> Option<bool> {
    if count > libc::UIO_MAXIOV as u64 {
        return None;
    }
    const AT_ONCE: usize = 16;
    let mut into_pm = false;
    for first in (0..count).step_by(AT_ONCE) {
        let mut read = [MaybeUninit::<iovec>::zeroed(); AT_ONCE];
        let read = &mut read[..((count - first) as usize).min(AT_ONCE)];
        // SAFETY: plain bytes, all of them initialised.
        let bytes = unsafe { std::slice::from_raw_parts_mut(read.as_mut_ptr().cast::<u8>(), size_of_val(read)) };
        let there = sys::read_memory(at.checked_add(first * size_of::<iovec>() as u64)?, bytes);
        if !there {
            return None;
        }
        into_pm |= read.iter().any(|part| {
            // SAFETY: zeros, or what the program has there: any bytes are an `iovec`.
            let part = unsafe { part.assume_init() };
            in_pm(part.iov_base, part.iov_len)
        });
        let is_too_long = |part: &MaybeUninit<iovec>| {
            // SAFETY: as above.
            unsafe { part.assume_init() }.iov_len > isize::MAX as usize
        };
        if read.iter().any(is_too_long) {
            return None;
        }
    }
    Some(into_pm)
}

/// Makes a call of [`Effect::Gather`] that [`is_into_pm`], as libc's function for it does.
///
/// # Safety
/// The program's call, with its arguments.
pub(crate) unsafe fn indirect(number: i64, given: [u64; 6], stack: impl FnOnce() -> u64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        let call = |at: u64| {
            let mut arguments = given;
            arguments[1] = at;
            sys::to_libc(sys::syscall(number, arguments))
        };
        let [_, at, count, ..] = given;
        match number {
            libc::SYS_recvmsg => received(at as *mut msghdr, |message| call(message as u64) as ssize_t, stack) as i64,
            libc::SYS_recvmmsg => {
                let given = messages(at as *mut mmsghdr, count as libc::c_uint);
                received_many(given, |messages| call(messages as u64) as c_int, stack) as i64
            }
            _ => {
                let given = parts(at as *const iovec, count as usize);
                scattered(given, |buffers| call(buffers as u64) as ssize_t, stack) as i64
            }
        }
    }
}

type Scattered = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type ScatteredAt = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type ScatteredFlags = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type Recvmsg = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t;
type Recvmmsg = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, libc::c_uint, c_int, *mut libc::timespec) -> c_int;
type ProcessVm = unsafe extern "C" fn(
    libc::pid_t,
    *const iovec,
    libc::c_ulong,
    *const iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> ssize_t;

// SAFETY: each with the type that libc's headers declare.
static NEXT_READV: Next<Scattered> = unsafe { Next::new(c"readv") };
// SAFETY: as above.
static NEXT_PREADV: Next<ScatteredAt> = unsafe { Next::new(c"preadv") };
// SAFETY: as above.
static NEXT_PREADV2: Next<ScatteredFlags> = unsafe { Next::new(c"preadv2") };
// SAFETY: as above.
static NEXT_RECVMSG: Next<Recvmsg> = unsafe { Next::new(c"recvmsg") };
// SAFETY: as above.
static NEXT_RECVMMSG: Next<Recvmmsg> = unsafe { Next::new(c"recvmmsg") };
// SAFETY: as above.
static NEXT_PROCESS_VM_READV: Next<ProcessVm> = unsafe { Next::new(c"process_vm_readv") };
// SAFETY: as above.
static NEXT_PROCESS_VM_WRITEV: Next<ProcessVm> = unsafe { Next::new(c"process_vm_writev") };

/// Looks up libc's functions.
pub(super) fn resolve() {
    let all: [&dyn Resolve; 7] = [
        &NEXT_READV,
        &NEXT_PREADV,
        &NEXT_PREADV2,
        &NEXT_RECVMSG,
        &NEXT_RECVMMSG,
        &NEXT_PROCESS_VM_READV,
        &NEXT_PROCESS_VM_WRITEV,
    ];
    all.iter().for_each(|next| next.resolve());
}
