//! Interposed: functions that set a mask or wait with one.

use super::delivery::mask_of;
use super::masks::{Translated, change_mask, kernel_mask, read_set, write_set};
use super::{LIBC_INTERNAL, SHADOW, SIGNALS, TABLE, bit, installed};
use crate::real::{Next, Resolve};
use crate::sys;
use crate::sys::OURS;
use libc::{c_int, siginfo_t, sigset_t, ucontext_t};
use std::arch::naked_asm;

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's sets.
    unsafe {
        if !installed() {
            return NEXT_PTHREAD_SIGMASK.get()(how, set, old);
        }
        match change_mask(how, read_set(set)) {
            Ok(mask) => {
                write_set(old, mask);
                0
            }
            Err(errno) => errno,
        }
    }
}

/// The system call itself: sets are 8 bytes.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn raw_sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> i64 {
    // SAFETY: the program's sets.
    let result = change_mask(how, unsafe { set.as_ref() }.copied()).map(|mask| {
        if !old.is_null() {
            // SAFETY: as above.
            unsafe { *old = mask };
        }
        0
    });
    sys::to_libc(result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's sets.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        errno => sys::to_libc(Err(errno)) as c_int,
    }
}

#[unsafe(no_mangle)]
extern "C" fn sigblock(mask: c_int) -> c_int {
    change_mask(libc::SIG_BLOCK, Some(mask as u32 as u64)).map_or(-1, |old| old as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn sigsetmask(mask: c_int) -> c_int {
    change_mask(libc::SIG_SETMASK, Some(mask as u32 as u64)).map_or(-1, |old| old as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn siggetmask() -> c_int {
    sigblock(0)
}

pub(super) fn change_one(how: c_int, signal: c_int) -> c_int {
    if !(1..SIGNALS as c_int).contains(&signal) {
        return sys::to_libc(Err(libc::EINVAL)) as c_int;
    }
    sys::to_libc(change_mask(how, Some(bit(signal))).map(|_| 0)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sighold(signal: c_int) -> c_int {
    change_one(libc::SIG_BLOCK, signal)
}

#[unsafe(no_mangle)]
extern "C" fn sigrelse(signal: c_int) -> c_int {
    change_one(libc::SIG_UNBLOCK, signal)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigsuspend(set: *const sigset_t) -> c_int {
    // SAFETY: the program's set, translated.
    unsafe { NEXT_SIGSUSPEND.get()(Translated::new(set).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __sigsuspend(set: *const sigset_t) -> c_int {
    // SAFETY: the same function.
    unsafe { sigsuspend(set) }
}

fn suspend_with(mask: u64) -> c_int {
    // SAFETY: a set of our own.
    unsafe {
        let mut set = std::mem::zeroed();
        write_set(&mut set, mask);
        sigsuspend(&set)
    }
}

/// BSD's: with a mask.
#[unsafe(no_mangle)]
extern "C-unwind" fn sigpause(mask: c_int) -> c_int {
    suspend_with(mask as u32 as u64)
}

/// System V's: the mask of now, without the signal.
#[unsafe(no_mangle)]
extern "C-unwind" fn __xpg_sigpause(signal: c_int) -> c_int {
    if !(1..SIGNALS as c_int).contains(&signal) {
        return sys::to_libc(Err(libc::EINVAL)) as c_int;
    }
    suspend_with(change_mask(libc::SIG_BLOCK, None).unwrap_or(0) & !bit(signal))
}

#[unsafe(no_mangle)]
extern "C-unwind" fn __sigpause(signal_or_mask: c_int, is_signal: c_int) -> c_int {
    if is_signal != 0 {
        __xpg_sigpause(signal_or_mask)
    } else {
        sigpause(signal_or_mask)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigpending(set: *mut sigset_t) -> c_int {
    let mut pending = 0u64;
    // SAFETY: the kernel writes 8 bytes; the program's set.
    unsafe {
        let result = sys::syscall(libc::SYS_rt_sigpending, [&raw mut pending as u64, 8, 0, 0, 0, 0]);
        if result.is_ok() {
            let held = TABLE.with_pending(|held| {
                (1..SIGNALS)
                    .filter(|&s| held[s].is_some())
                    .fold(0, |mask, s| mask | bit(s as c_int))
            });
            write_set(set, pending & !SHADOW | held);
        }
        sys::to_libc(result) as c_int
    }
}

/// Those of our signals that were sent while the program had them blocked are held here and not by the kernel: a wait for one
/// looks here, and at the kernel's for a moment at a time, since another thread may have been interrupted by it.
unsafe fn wait_for(set: u64, info: *mut siginfo_t, timeout: Option<libc::timespec>) -> Result<u64, i32> {
    const MOMENT: i64 = 20_000_000;
    let mut left = timeout.map(|t| t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec));
    let others = set & !OURS;
    loop {
        let held = TABLE.with_pending(|pending| {
            let signal = (1..SIGNALS).find(|&s| set & bit(s as c_int) != 0 && pending[s].is_some())?;
            Some((signal, pending[signal].take()?))
        });
        if let Some((signal, content)) = held {
            if !info.is_null() {
                // SAFETY: the program's buffer.
                unsafe { *info = content };
            }
            return Ok(signal as u64);
        }
        let moment = left.map_or(MOMENT, |left| left.min(MOMENT));
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: moment,
        };
        let arguments = [&raw const others as u64, info as u64, &raw const time as u64, 8, 0, 0];
        // SAFETY: the kernel reads the set and the time, and fills the program's buffer.
        match unsafe { sys::syscall(libc::SYS_rt_sigtimedwait, arguments) } {
            Err(libc::EAGAIN) if left == Some(moment) => return Err(libc::EAGAIN),
            Err(libc::EAGAIN) => left = left.map(|left| left - moment),
            // Perhaps by the very signal that is waited for.
            Err(libc::EINTR) if TABLE.with_pending(|pending| holds(pending, set)) => {}
            result => return result,
        }
    }
}

fn holds(pending: &[Option<siginfo_t>; SIGNALS], set: u64) -> bool {
    (1..SIGNALS).any(|s| set & bit(s as c_int) != 0 && pending[s].is_some())
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut siginfo_t,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        match read_set(set) {
            Some(wanted) if wanted & OURS != 0 => {
                sys::to_libc(wait_for(wanted, info, timeout.as_ref().copied())) as c_int
            }
            _ => NEXT_SIGTIMEDWAIT.get()(set, info, timeout),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int {
    // SAFETY: the program's call.
    unsafe { sigtimedwait(set, info, std::ptr::null()) }
}

/// Returns the error instead of setting `errno`, and is never interrupted.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let Some(wanted) = read_set(set).filter(|wanted| wanted & OURS != 0) else {
            return NEXT_SIGWAIT.get()(set, signal);
        };
        loop {
            match wait_for(wanted, std::ptr::null_mut(), None) {
                Ok(got) => {
                    *signal = got as c_int;
                    return 0;
                }
                Err(libc::EINTR) => {}
                Err(errno) => return errno,
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    descriptors: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call with its mask translated.
    unsafe { NEXT_PPOLL.get()(descriptors, count, timeout, Translated::new(mask).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *const libc::timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call with its mask translated.
    unsafe { NEXT_PSELECT.get()(count, read, write, except, timeout, Translated::new(mask).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call with its mask translated.
    unsafe { NEXT_EPOLL_PWAIT.get()(epoll, events, most, timeout, Translated::new(mask).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: *const libc::timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call with its mask translated.
    unsafe { NEXT_EPOLL_PWAIT2.get()(epoll, events, most, timeout, Translated::new(mask).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_attr_setsigmask_np(attributes: *mut libc::pthread_attr_t, mask: *const sigset_t) -> c_int {
    // SAFETY: the program's call with its mask translated.
    unsafe { NEXT_PTHREAD_ATTR_SETSIGMASK_NP.get()(attributes, Translated::new(mask).as_ptr()) }
}

/// `setcontext` and `swapcontext` set the mask that the context holds. It was saved by `getcontext`, as the kernel has it,
/// but the program may have added to it. Cleans it and returns libc's function.
extern "C" fn clean_context(context: *mut ucontext_t, swap: bool) -> usize {
    // SAFETY: the program's context.
    let mask = unsafe { mask_of(&mut *context) };
    if installed() && *mask & OURS != 0 {
        *mask = kernel_mask(*mask) | *mask & LIBC_INTERNAL;
    }
    let next = if swap {
        NEXT_SWAPCONTEXT.get()
    } else {
        NEXT_SETCONTEXT.get()
    };
    next as *const () as usize
}

/// Both save the caller's registers as they find them, so they must be jumped to from its very frame.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn swapcontext() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rsi",
        "mov esi, 1",
        "call {clean}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        clean = sym clean_context,
    )
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn setcontext() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "xor esi, esi",
        "call {clean}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        clean = sym clean_context,
    )
}

type Pselect = unsafe extern "C-unwind" fn(
    c_int,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *const libc::timespec,
    *const sigset_t,
) -> c_int;
type EpollPwait2 =
    unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, *const libc::timespec, *const sigset_t) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_PTHREAD_SIGMASK: Next<unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int> =
    unsafe { Next::new(c"pthread_sigmask") };
// SAFETY: as above.
static NEXT_SIGSUSPEND: Next<unsafe extern "C-unwind" fn(*const sigset_t) -> c_int> =
    unsafe { Next::new(c"sigsuspend") };
// SAFETY: as above.
static NEXT_SIGTIMEDWAIT: Next<
    unsafe extern "C-unwind" fn(*const sigset_t, *mut siginfo_t, *const libc::timespec) -> c_int,
> = unsafe { Next::new(c"sigtimedwait") };
// SAFETY: as above.
static NEXT_SIGWAIT: Next<unsafe extern "C-unwind" fn(*const sigset_t, *mut c_int) -> c_int> =
    unsafe { Next::new(c"sigwait") };
// SAFETY: as above.
static NEXT_PPOLL: Next<
    unsafe extern "C-unwind" fn(*mut libc::pollfd, libc::nfds_t, *const libc::timespec, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"ppoll") };
// SAFETY: as above.
static NEXT_PSELECT: Next<Pselect> = unsafe { Next::new(c"pselect") };
// SAFETY: as above.
static NEXT_EPOLL_PWAIT: Next<
    unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, c_int, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"epoll_pwait") };
// SAFETY: as above.
static NEXT_EPOLL_PWAIT2: Next<EpollPwait2> = unsafe { Next::new(c"epoll_pwait2") };
// SAFETY: as above.
static NEXT_PTHREAD_ATTR_SETSIGMASK_NP: Next<
    unsafe extern "C" fn(*mut libc::pthread_attr_t, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"pthread_attr_setsigmask_np") };
// SAFETY: as above.
static NEXT_SETCONTEXT: Next<unsafe extern "C" fn()> = unsafe { Next::new(c"setcontext") };
// SAFETY: as above.
static NEXT_SWAPCONTEXT: Next<unsafe extern "C" fn()> = unsafe { Next::new(c"swapcontext") };

/// Looks up libc's functions.
pub(super) fn resolve() {
    let all: [&dyn Resolve; 11] = [
        &NEXT_PTHREAD_SIGMASK,
        &NEXT_SIGSUSPEND,
        &NEXT_SIGTIMEDWAIT,
        &NEXT_SIGWAIT,
        &NEXT_PPOLL,
        &NEXT_PSELECT,
        &NEXT_EPOLL_PWAIT,
        &NEXT_EPOLL_PWAIT2,
        &NEXT_PTHREAD_ATTR_SETSIGMASK_NP,
        &NEXT_SETCONTEXT,
        &NEXT_SWAPCONTEXT,
    ];
    all.iter().for_each(|next| next.resolve());
}
