//! System calls that write to PM, and the program's output.
//!
//! The kernel cannot write to a view, and libc makes system calls of its own that no interposition sees (`fread` into PM
//! got EFAULT). So a seccomp filter traps every call that would write to an address in the range of views: the handler makes
//! the call with a bounce buffer, and what the kernel wrote there is stored to PM and logged. The call is made on the
//! program's own stack with the program's own mask, as if by a handler of the program's, so that it blocks, is interrupted,
//! restarted and cancelled as it would have been.
//!
//! A second filter traps `write` and `writev` to stdout and stderr when libc makes them, for output events. It names
//! addresses of this process. In a program that this one executes, other code has these addresses: by the layout of chance, once
//! in a million, the runtime's own. So what the handler writes in the program's place is marked ([`filter::UNTRAPPED`]), and passes. The
//! first filter needs no such care, since nobody else has buffers in the range of views. Every other way to give the kernel a PM buffer or to produce output is a
//! function of libc's with an indirect buffer (`readv`, `recvmsg`) or a socket (`send`), and is interposed: a thread of libc's
//! own, which has SIGSYS blocked, must not be trapped there.

mod asynchronous;
mod bounce;
pub(crate) mod filter;
mod indirect;
pub(crate) mod table;
mod trap;
mod writes;

use crate::real::{Next, Resolve};
use crate::{files, log, pm, signals, spin::Spin, sys, threads, watch};
use crashproof_wire::record::*;
use filter::Filter;
use libc::{c_int, c_void, iovec, off_t, size_t};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use table::Effect;

pub(crate) use bounce::buffer_len;
pub(crate) use indirect::{indirect, is_into_pm};
pub(crate) use trap::trap;
pub(crate) use writes::{Destination, is_recorded, wrote_raw};

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// libc's code.
static LIBC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up libc's functions.
pub(crate) fn resolve() {
    indirect::resolve();
    asynchronous::resolve();
    writes::resolve();
    NEXT_SYSCALL.resolve();
}

/// Sets the filters. Our SIGSYS handler is in place.
pub(crate) fn install() -> Result<(), i32> {
    if watch::active() {
        watch::calls::install()?;
    } else {
        let (low, high) = pm::view_range();
        if !inherited(low) {
            Filter::for_buffers(low, high).install()?;
        }
        let (low, high) = libc_code().ok_or(libc::ENOENT)?;
        LIBC[0].store(low, Ordering::Relaxed);
        LIBC[1].store(high, Ordering::Relaxed);
        Filter::for_output(low, high).install()?;
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Whether a filter for buffers at `address` came with the program that executed this one.
fn inherited(address: u64) -> bool {
    threads::current().probing = true;
    // SAFETY: nothing is read from no file; the kernel answers EBADF, or our handler 1.
    let answer = unsafe { sys::syscall(libc::SYS_read, [u64::MAX, address, 0, 0, 0, 0]) };
    threads::current().probing = false;
    answer == Ok(1)
}

/// The ranges outside the reserved one that have a filter. Filters are never removed, so a range that comes back has one.
struct Ranges {
    lock: Spin,
    known: UnsafeCell<[(u64, u64); Ranges::MOST]>,
}

impl Ranges {
    /// More filters than that would cost every system call of the program too much; the kernel's limit is not far.
    const MOST: usize = 32;
}

// SAFETY: `known` is only touched with the lock held.
unsafe impl Sync for Ranges {}

static RANGES: Ranges = Ranges {
    lock: Spin::new(),
    known: UnsafeCell::new([(0, 0); Ranges::MOST]),
};

/// A view outside the reserved range: one more filter. The caller has signals blocked.
pub(crate) fn add_view_range(low: u64, high: u64) {
    if !INSTALLED.load(Ordering::Acquire) {
        return;
    }
    let added = {
        let _held = RANGES.lock.lock();
        // SAFETY: the lock is held.
        let known = unsafe { &mut *RANGES.known.get() };
        if known.iter().any(|&(l, h)| l <= low && high <= h) {
            return;
        }
        known.iter_mut().find(|range| range.1 == 0).is_some_and(|free| {
            *free = (low, high);
            let filter = if watch::active() {
                watch::calls::filter(low, high)
            } else {
                Filter::for_buffers(low, high)
            };
            filter.install().is_ok()
        })
    };
    if !added {
        log::incomplete(
            INCOMPLETE_LIMIT,
            b"too many PM mappings at addresses of the program's choice: a system call that writes there may fail",
        );
        watch::unwatched(crashproof_wire::recovery::UNWATCHED_OTHER);
    }
}

/// A forked child: no other thread can hold the ranges.
pub(crate) fn reset_after_fork() {
    RANGES.lock.reset();
}

/// Where libc's code is.
pub(crate) fn libc_code() -> Option<(u64, u64)> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
        // SAFETY: the loader's description of a module, and the caller's pair.
        unsafe {
            let (info, found) = (&*info, &mut *found.cast::<(u64, u64, u64)>());
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
            for header in headers
                .iter()
                .filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0)
            {
                let low = info.dlpi_addr + header.p_vaddr;
                let high = low + header.p_memsz;
                if (low..high).contains(&found.2) {
                    (found.0, found.1) = (low, high);
                    return 1;
                }
            }
        }
        0
    }
    // Never interposed by us, so it is libc's own.
    let inside = libc::gnu_get_libc_version as *const () as u64;
    let mut found = (0u64, 0u64, inside);
    // SAFETY: the callback gets what it expects.
    let status = unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    (status == 1).then_some((found.0, found.1))
}

/// The program may make by number the calls that have functions above; the others are as they were.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    // SAFETY: the program's call.
    unsafe {
        match number {
            number if table::effect(number) == Effect::Gather && is_into_pm(number, b, c) => {
                indirect(number, [a, b, c, d, e, f], log::stack_here)
            }
            libc::SYS_write => writes::write(a as c_int, b as *const c_void, c as size_t) as i64,
            libc::SYS_pwrite64 => writes::pwrite(a as c_int, b as *const c_void, c as size_t, d as off_t) as i64,
            libc::SYS_writev => writes::writev(a as c_int, b as *const iovec, c as c_int) as i64,
            libc::SYS_pwritev => writes::pwritev(a as c_int, b as *const iovec, c as c_int, d as off_t) as i64,
            libc::SYS_pwritev2 => {
                writes::pwritev2(a as c_int, b as *const iovec, c as c_int, d as off_t, f as c_int) as i64
            }
            libc::SYS_rt_sigprocmask if d == 8 => signals::raw_sigprocmask(a as c_int, b as *const u64, c as *mut u64),
            libc::SYS_rt_sigaction if d == 8 => {
                signals::raw_sigaction(a as c_int, b as *const c_void, c as *mut c_void)
            }
            libc::SYS_sigaltstack => signals::sigaltstack(a as *const libc::stack_t, b as *mut libc::stack_t) as i64,
            _ => {
                if let Some(result) = files::truncating(number, [a, b, c, d, e, f]) {
                    return sys::to_libc(result);
                }
                match files::by_number(number, [a, b, c, d, e, f]) {
                    Some(result) => result,
                    None => NEXT_SYSCALL.get()(number, a, b, c, d, e, f),
                }
            }
        }
    }
}

type Syscall = unsafe extern "C-unwind" fn(i64, u64, u64, u64, u64, u64, u64) -> i64;

// SAFETY: with the type that libc's headers declare.
static NEXT_SYSCALL: Next<Syscall> = unsafe { Next::new(c"syscall") };
