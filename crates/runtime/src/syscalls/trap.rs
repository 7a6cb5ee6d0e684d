//! The trap: system calls that the filters hand over are made here, in the program's place.

use super::bounce::bounced_call;
use super::filter::{LAST_ARGUMENT, OURS, UNTRAPPED};
use super::table::{self, FUTEX_WORDS};
use crate::{log, pm, raw, signals, sys, threads, watch};
use crashproof_wire::record::*;
use libc::{c_int, c_void, iovec, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicBool, Ordering};

/// SIGSYS. True: one of our filters raised it, and the call is made.
pub(crate) fn trap(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    const SYS_SECCOMP: c_int = 1;
    if info.si_code != SYS_SECCOMP || info.si_errno != OURS as c_int {
        return false;
    }
    if threads::current().probing {
        uc.uc_mcontext.gregs[libc::REG_RAX as usize] = 1;
        return true;
    }
    let rip = uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    if let Some(origin) = raw::origin(rip) {
        uc.uc_mcontext.gregs[libc::REG_RIP as usize] = origin as i64;
    }
    let (mask, entry) = (*signals::mask_of(uc), emulate as *const () as usize);
    let [low, high] = super::LIBC.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    let alternate = !(low..high).contains(&rip) && raw::wants_alternate_stack();
    if !signals::enter_handler(libc::SIGSYS, info, uc, entry, mask, alternate) {
        // No room on the program's stack: here, then, with signals blocked.
        emulate(libc::SIGSYS, info, uc);
    }
    true
}

/// Makes the trapped call. Runs like a handler of the program's; a signal or a cancellation may take it off the stack.
extern "C-unwind" fn emulate(_: c_int, _: *const siginfo_t, uc: *mut ucontext_t) {
    // SAFETY: the frame that `enter_handler` laid.
    let uc = unsafe { &mut *uc };
    let (number, arguments) = (uc.uc_mcontext.gregs[libc::REG_RAX as usize], raw::arguments(uc));
    let result = match watch::recovery() {
        Some(recovery) => watch::calls::perform(recovery, number, arguments),
        None => recorded_call(number, arguments, uc),
    };
    uc.uc_mcontext.gregs[libc::REG_RAX as usize] = match result {
        Ok(value) => value as i64,
        Err(errno) => -errno as i64,
    };
}

fn recorded_call(number: i64, arguments: [u64; 6], uc: &ucontext_t) -> Result<u64, i32> {
    match number {
        libc::SYS_write | libc::SYS_writev => output_call(number, arguments),
        libc::SYS_futex => futex(arguments, uc),
        _ => match table::find(number).filter(|call| !call.outputs.is_empty()) {
            Some(call) => bounced_call(number, arguments, call.outputs, uc),
            // SAFETY: the program's call.
            None => unsafe { sys::syscall(number, arguments) },
        },
    }
}

fn output_call(number: i64, mut arguments: [u64; 6]) -> Result<u64, i32> {
    arguments[LAST_ARGUMENT] = UNTRAPPED;
    // SAFETY: the program's call, which has three arguments.
    let written = unsafe { sys::syscall(number, arguments) }?;
    let Some(fd) = shown_as(arguments[0] as u32, written) else {
        return Ok(written);
    };
    let whole = iovec {
        iov_base: arguments[1] as *mut c_void,
        iov_len: arguments[2] as usize,
    };
    let parts = if number == libc::SYS_write {
        std::slice::from_ref(&whole)
    } else {
        // SAFETY: the kernel has just read this array.
        unsafe { std::slice::from_raw_parts(arguments[1] as *const iovec, arguments[2] as usize) }
    };
    sys::without_signals(|| each_part(parts, written as usize, |data, _| log::output(fd, data)));
    Ok(written)
}

/// The descriptor under which a write is logged; none if it is no output. See [`RESULTS`].
fn shown_as(fd: u32, written: u64) -> Option<u32> {
    static SEPARATED: AtomicBool = AtomicBool::new(false);
    const STDOUT: u32 = libc::STDOUT_FILENO as u32;
    if fd == RESULTS && written == 0 {
        SEPARATED.store(true, Ordering::Relaxed);
    }
    match (fd, SEPARATED.load(Ordering::Relaxed)) {
        (RESULTS, separated) => separated.then_some(STDOUT),
        (STDOUT, true) => Some(libc::STDERR_FILENO as u32),
        (other, _) => Some(other),
    }
}

/// The first `total` bytes of a gathered write, part by part, each with its distance from the first.
pub(super) fn each_part(parts: &[iovec], total: usize, mut f: impl FnMut(&[u8], u64)) {
    let mut done = 0;
    for part in parts {
        let n = part.iov_len.min(total - done);
        if n > 0 {
            // SAFETY: the kernel has just read these bytes.
            f(
                unsafe { std::slice::from_raw_parts(part.iov_base.cast(), n) },
                done as u64,
            );
        }
        done += n;
    }
}

/// A futex whose word the kernel writes: on the alias; then what the word holds is logged.
fn futex(mut arguments: [u64; 6], uc: &ucontext_t) -> Result<u64, i32> {
    let words = FUTEX_WORDS.map(|i| {
        pm::find(arguments[i])
            .filter(|r| r.writable())
            .map(|r| (arguments[i], r))
    });
    for (i, word) in FUTEX_WORDS.into_iter().zip(&words) {
        if let Some((address, region)) = word {
            arguments[i] = address.wrapping_add_signed(region.delta);
        }
    }
    // SAFETY: the program's call, on the same words.
    let result = unsafe { sys::syscall(libc::SYS_futex, arguments) };
    sys::without_signals(|| {
        let Some(session) = log::session() else { return };
        let stack = log::stack_of_syscall(uc);
        for (address, region) in words.into_iter().flatten() {
            let place = region.place(address);
            let _locks = pm::LineLocks::take(session, std::iter::once((place, 4)));
            // SAFETY: the alias of a futex word that the kernel has just used; its line is locked.
            let word = unsafe { *(address.wrapping_add_signed(region.delta) as *const u32) };
            log::store(stack, place, STORE_SYSCALL, &word.to_le_bytes());
        }
    });
    result
}
