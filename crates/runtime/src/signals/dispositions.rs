//! Interposed: functions that set handlers, and the alternate stack.

use super::delivery::{default_action, intercept, relay};
use super::exec::choose_in_child;
use super::interposed_masks::change_one;
use super::masks::{change_mask, read_set, write_set};
use super::{
    Disposition, KernelAction, LIBC_INTERNAL, RESTORER, SA_RESTORER, SIGNALS, TABLE, bit, in_vfork_child, installed,
    is_ours, kernel_action,
};
use crate::real::{Next, Resolve};
use crate::sys::OURS;
use crate::{sys, threads};
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// A signal that programs set handlers for; libc keeps two for itself.
pub(crate) fn is_for_programs(signal: c_int) -> bool {
    (1..SIGNALS as c_int).contains(&signal) && LIBC_INTERNAL & bit(signal) == 0
}

/// Sets the program's disposition (or only asks) and returns the old one.
fn change_disposition(signal: c_int, new: Option<Disposition>) -> Result<Disposition, i32> {
    if !is_for_programs(signal) {
        return Err(libc::EINVAL);
    }
    let shares_memory = new.is_some() && in_vfork_child();
    let new = new.map(|n| Disposition {
        flags: n.flags | SA_RESTORER,
        ..n
    });
    TABLE.with(|table| {
        let entry = &mut table[signal as usize];
        let known = *entry;
        if is_ours(signal) && installed() {
            match new {
                // The exec that follows a vfork makes it so.
                Some(new) if shares_memory => choose_in_child(signal, new.handler),
                Some(new) => *entry = new,
                None => {}
            }
            return Ok(known);
        }
        let wrapper = |n: &Disposition| {
            if !installed() || shares_memory || !n.is_function() {
                None
            } else if n.flags & libc::SA_ONSTACK != 0 {
                // It is on our stack, which must be free again before any code of the program's runs.
                Some((relay as *const () as usize, !OURS))
            } else {
                Some((intercept as *const () as usize, n.mask & !OURS))
            }
        };
        let action = new.map(|n| match n.handler {
            libc::SIG_DFL if installed() && !shares_memory => KernelAction {
                mask: n.mask & !OURS,
                ..default_action(signal)
            },
            _ => {
                let (handler, flags, mask) = match wrapper(&n) {
                    Some((ours, mask)) => (ours, n.flags & !libc::SA_RESETHAND | libc::SA_SIGINFO, mask),
                    None => (n.handler, n.flags, n.mask & !OURS),
                };
                KernelAction {
                    handler,
                    flags: flags as u32 as u64,
                    restorer: RESTORER.load(Ordering::Relaxed) as usize,
                    mask,
                }
            }
        });
        if let (Some(new), false) = (new, shares_memory) {
            *entry = new;
        }
        match kernel_action(signal, action.as_ref()) {
            Ok(old) if [relay as *const (), intercept as *const ()].contains(&(old.handler as *const ())) => Ok(known),
            Ok(old) => Ok(Disposition {
                handler: old.handler,
                flags: old.flags as c_int,
                mask: old.mask
                    | if known.handler == old.handler {
                        known.mask & OURS
                    } else {
                        0
                    },
            }),
            Err(errno) => {
                *entry = known;
                Err(errno)
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the program's structures. The old one is written without the table's lock: it may lie in PM.
    unsafe {
        if !installed() {
            return NEXT_SIGACTION.get()(signal, new, old);
        }
        let wanted = new.as_ref().map(|n| Disposition {
            handler: n.sa_sigaction,
            flags: n.sa_flags,
            mask: read_set(&n.sa_mask).unwrap_or(0),
        });
        let result = change_disposition(signal, wanted).map(|known| {
            if let Some(old) = old.as_mut() {
                old.sa_sigaction = known.handler;
                old.sa_flags = known.flags;
                write_set(&mut old.sa_mask, known.mask);
                let restorer = if known.flags & SA_RESTORER != 0 {
                    RESTORER.load(Ordering::Relaxed)
                } else {
                    0
                };
                old.sa_restorer = std::mem::transmute::<usize, Option<extern "C" fn()>>(restorer as usize);
            }
            0
        });
        sys::to_libc(result) as c_int
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the same function.
    unsafe { sigaction(signal, new, old) }
}

/// Sets the program's disposition (or only asks) as the system call does, and returns the old one.
pub(crate) fn change_kernel_action(signal: c_int, new: Option<&KernelAction>) -> Result<KernelAction, i32> {
    let wanted = new.map(|n| Disposition {
        handler: n.handler,
        flags: n.flags as c_int,
        mask: n.mask,
    });
    change_disposition(signal, wanted).map(|known| KernelAction {
        handler: known.handler,
        flags: known.flags as u32 as u64,
        restorer: RESTORER.load(Ordering::Relaxed) as usize,
        mask: known.mask,
    })
}

/// The system call itself, with the kernel's structures.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn raw_sigaction(signal: c_int, new: *const c_void, old: *mut c_void) -> i64 {
    // SAFETY: the program's structures.
    unsafe {
        let result = change_kernel_action(signal, new.cast::<KernelAction>().as_ref()).map(|known| {
            if let Some(old) = old.cast::<KernelAction>().as_mut() {
                *old = known;
            }
            0
        });
        sys::to_libc(result)
    }
}

/// Signals whose system calls `siginterrupt` asked not to restart.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

fn set_handler(signal: c_int, handler: usize, flags: c_int, mask: u64) -> usize {
    match change_disposition(signal, Some(Disposition { handler, flags, mask })) {
        Ok(old) => old.handler,
        Err(errno) => {
            sys::to_libc(Err(errno));
            libc::SIG_ERR
        }
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    if !installed() {
        // SAFETY: libc's function of this name.
        return unsafe { NEXT_SIGNAL.get()(signal, handler) };
    }
    if handler == libc::SIG_ERR || !(1..SIGNALS as c_int).contains(&signal) {
        sys::to_libc(Err(libc::EINVAL));
        return libc::SIG_ERR;
    }
    let interrupting = INTERRUPTING.load(Ordering::Relaxed) & bit(signal) != 0;
    set_handler(
        signal,
        handler,
        if interrupting { 0 } else { libc::SA_RESTART },
        bit(signal),
    )
}

#[unsafe(no_mangle)]
extern "C" fn bsd_signal(number: c_int, handler: usize) -> usize {
    signal(number, handler)
}

#[unsafe(no_mangle)]
extern "C" fn ssignal(number: c_int, handler: usize) -> usize {
    signal(number, handler)
}

#[unsafe(no_mangle)]
extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    const SA_INTERRUPT: c_int = 0x2000_0000;
    if !installed() {
        // SAFETY: libc's function of this name.
        return unsafe { NEXT_SYSV_SIGNAL.get()(signal, handler) };
    }
    set_handler(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT, 0)
}

#[unsafe(no_mangle)]
extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    sysv_signal(signal, handler)
}

#[unsafe(no_mangle)]
extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    if !installed() {
        // SAFETY: libc's function of this name.
        return unsafe { NEXT_SIGSET.get()(signal, handler) };
    }
    if !(1..SIGNALS as c_int).contains(&signal) {
        sys::to_libc(Err(libc::EINVAL));
        return libc::SIG_ERR;
    }
    let before = change_mask(libc::SIG_BLOCK, None).unwrap_or(0);
    let old = if handler == SIG_HOLD {
        change_one(libc::SIG_BLOCK, signal);
        change_disposition(signal, None).map_or(libc::SIG_ERR, |d| d.handler)
    } else {
        let old = set_handler(signal, handler, 0, 0);
        if old != libc::SIG_ERR {
            change_one(libc::SIG_UNBLOCK, signal);
        }
        old
    };
    if old != libc::SIG_ERR && before & bit(signal) != 0 {
        SIG_HOLD
    } else {
        old
    }
}

#[unsafe(no_mangle)]
extern "C" fn sigignore(signal: c_int) -> c_int {
    if !installed() {
        // SAFETY: libc's function of this name.
        return unsafe { NEXT_SIGIGNORE.get()(signal) };
    }
    if set_handler(signal, libc::SIG_IGN, 0, 0) == libc::SIG_ERR {
        -1
    } else {
        0
    }
}

#[unsafe(no_mangle)]
extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    if !installed() {
        // SAFETY: libc's function of this name.
        return unsafe { NEXT_SIGINTERRUPT.get()(signal, interrupt) };
    }
    let result = change_disposition(signal, None).and_then(|mut disposition| {
        if interrupt != 0 {
            INTERRUPTING.fetch_or(bit(signal), Ordering::Relaxed);
            disposition.flags &= !libc::SA_RESTART;
        } else {
            INTERRUPTING.fetch_and(!bit(signal), Ordering::Relaxed);
            disposition.flags |= libc::SA_RESTART;
        }
        change_disposition(signal, Some(disposition)).map(|_| 0)
    });
    sys::to_libc(result) as c_int
}

/// Sets the program's alternate stack (or only asks) and returns the old one. The program's own stack pointer is `here`.
pub(crate) fn change_alternate_stack(here: u64, new: Option<&libc::stack_t>) -> Result<libc::stack_t, i32> {
    const SS_AUTODISARM: c_int = 1 << 31;
    let own = threads::current();
    let known = own.alternate;
    let (low, high) = (known.ss_sp as u64, known.ss_sp as u64 + known.ss_size as u64);
    let on_it = known.ss_flags & libc::SS_DISABLE == 0 && (low..high).contains(&here);
    if let Some(new) = new {
        match new.ss_flags & !SS_AUTODISARM {
            _ if on_it => return Err(libc::EPERM),
            libc::SS_DISABLE => {}
            0 | libc::SS_ONSTACK if new.ss_size < libc::MINSIGSTKSZ => return Err(libc::ENOMEM),
            0 | libc::SS_ONSTACK => {}
            _ => return Err(libc::EINVAL),
        }
        own.alternate = match new.ss_flags & libc::SS_DISABLE {
            0 => libc::stack_t { ss_flags: 0, ..*new },
            _ => libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            },
        };
    }
    Ok(libc::stack_t {
        ss_flags: if on_it { libc::SS_ONSTACK } else { known.ss_flags },
        ..known
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    let local = 0u8;
    // SAFETY: the program's structures.
    unsafe {
        if !installed() {
            return NEXT_SIGALTSTACK.get()(new, old);
        }
        let result = change_alternate_stack(&raw const local as u64, new.as_ref()).map(|known| {
            if let Some(old) = old.as_mut() {
                *old = known;
            }
            0
        });
        sys::to_libc(result) as c_int
    }
}

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type SetHandler = unsafe extern "C" fn(c_int, usize) -> usize;

// SAFETY: each with the type that libc's headers declare.
pub(super) static NEXT_SIGACTION: Next<Sigaction> = unsafe { Next::new(c"sigaction") };
// SAFETY: as above.
static NEXT_SIGNAL: Next<SetHandler> = unsafe { Next::new(c"signal") };
// SAFETY: as above.
static NEXT_SYSV_SIGNAL: Next<SetHandler> = unsafe { Next::new(c"sysv_signal") };
// SAFETY: as above.
static NEXT_SIGSET: Next<SetHandler> = unsafe { Next::new(c"sigset") };
// SAFETY: as above.
static NEXT_SIGIGNORE: Next<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Next::new(c"sigignore") };
// SAFETY: as above.
static NEXT_SIGINTERRUPT: Next<unsafe extern "C" fn(c_int, c_int) -> c_int> = unsafe { Next::new(c"siginterrupt") };
// SAFETY: as above.
static NEXT_SIGALTSTACK: Next<unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int> =
    unsafe { Next::new(c"sigaltstack") };

/// Looks up libc's functions.
pub(super) fn resolve() {
    let all: [&dyn Resolve; 7] = [
        &NEXT_SIGACTION,
        &NEXT_SIGNAL,
        &NEXT_SYSV_SIGNAL,
        &NEXT_SIGSET,
        &NEXT_SIGIGNORE,
        &NEXT_SIGINTERRUPT,
        &NEXT_SIGALTSTACK,
    ];
    all.iter().for_each(|next| next.resolve());
}
