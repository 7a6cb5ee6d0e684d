//! The program's masks: what the kernel is told in their place.

use super::delivery::mask_of;
use super::{EACH_OF_OURS, LIBC_INTERNAL, SHADOW, TABLE, VIRTUAL, bit, installed};
use crate::sys::OURS;
use crate::{sys, threads};
use libc::{c_int, sigset_t, ucontext_t};

/// What the kernel is told for a mask of the program's.
pub(super) fn kernel_mask(program: u64) -> u64 {
    (program & !VIRTUAL & !LIBC_INTERNAL) | if program & VIRTUAL != 0 { SHADOW } else { 0 }
}

/// What the program is told for a mask of the kernel's.
pub(super) fn program_mask(kernel: u64, blocked: u64) -> u64 {
    let stands_for = match (kernel & SHADOW, blocked) {
        (0, _) => 0,
        (_, 0) => SHADOW,
        (_, blocked) => blocked,
    };
    (kernel & !VIRTUAL) | stands_for
}

/// The mask that the program has after `how` with `set`.
fn changed_mask(old: u64, how: c_int, set: u64) -> Result<u64, i32> {
    match how {
        libc::SIG_BLOCK => Ok(old | set),
        libc::SIG_UNBLOCK => Ok(old & !set),
        libc::SIG_SETMASK => Ok(set),
        _ => Err(libc::EINVAL),
    }
}

/// Changes the program's mask as it will be when the handler with this frame returns; returns the old one.
pub(crate) fn change_mask_in(uc: &mut ucontext_t, how: c_int, set: Option<u64>) -> Result<u64, i32> {
    let kernel = *mask_of(uc);
    let state = threads::current();
    let old = program_mask(kernel, *state.blocked_here());
    let Some(set) = set else { return Ok(old) };
    let new = changed_mask(old, how, set)?;
    state.block(new & VIRTUAL);
    *mask_of(uc) = kernel_mask(new) | kernel & LIBC_INTERNAL;
    if old & !new & OURS != 0 {
        release_pending(!new);
    }
    Ok(old)
}

/// Changes the program's mask of this thread and returns the old one.
pub(super) fn change_mask(how: c_int, set: Option<u64>) -> Result<u64, i32> {
    let state = threads::current();
    let mut kernel = 0u64;
    // SAFETY: reads the mask.
    unsafe { sys::syscall(libc::SYS_rt_sigprocmask, [0, 0, &raw mut kernel as u64, 8, 0, 0]) }?;
    let ours = installed();
    let old = if ours {
        program_mask(kernel, *state.blocked_here())
    } else {
        kernel
    };
    let Some(set) = set else { return Ok(old) };
    let new = changed_mask(old, how, set)?;
    if !ours {
        sys::set_mask(new & !LIBC_INTERNAL | kernel & LIBC_INTERNAL);
        return Ok(old);
    }
    state.block(new & VIRTUAL);
    // libc's own signals are left as libc has them.
    sys::set_mask(kernel_mask(new) | kernel & LIBC_INTERNAL);
    if old & !new & OURS != 0 {
        release_pending(!new);
    }
    Ok(old)
}

/// Sends again what came while it was blocked.
fn release_pending(unblocked: u64) {
    for signal in EACH_OF_OURS {
        if unblocked & bit(signal) == 0 {
            continue;
        }
        if let Some(info) = TABLE.with_pending(|pending| pending[signal as usize].take()) {
            let arguments = [
                sys::getpid() as u64,
                sys::gettid() as u64,
                signal as u64,
                &raw const info as u64,
                0,
                0,
            ];
            // SAFETY: a signal that this process was sent, to this thread.
            let _ = unsafe { sys::syscall(libc::SYS_rt_tgsigqueueinfo, arguments) };
        }
    }
}

pub(super) unsafe fn read_set(set: *const sigset_t) -> Option<u64> {
    // SAFETY: the caller's pointer is null or a set; its first 64 bits are all the signals there are.
    (!set.is_null()).then(|| unsafe { *set.cast::<u64>() })
}

pub(super) unsafe fn write_set(set: *mut sigset_t, mask: u64) {
    if !set.is_null() {
        // As the kernel does: only the part of the set that holds signals.
        // SAFETY: the caller's pointer is a set.
        unsafe { *set.cast::<u64>() = mask };
    }
}

/// The set to hand to a function of libc's in place of the program's; null stays null.
pub(super) struct Translated(sigset_t, bool);

impl Translated {
    pub(super) unsafe fn new(set: *const sigset_t) -> Translated {
        // SAFETY: all-zero is an empty set; the caller's pointer is null or a set.
        unsafe {
            let mut own: sigset_t = std::mem::zeroed();
            let given = read_set(set);
            if let Some(mask) = given {
                write_set(&mut own, if installed() { kernel_mask(mask) } else { mask });
            }
            Translated(own, given.is_some())
        }
    }

    pub(super) fn as_ptr(&self) -> *const sigset_t {
        if self.1 { &self.0 } else { std::ptr::null() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_never_blocks_ours_and_the_program_sees_its_own_mask() {
        let others = bit(libc::SIGINT) | bit(libc::SIGUSR1);
        let each = EACH_OF_OURS.map(bit);
        for choice in 0..32u32 {
            let chosen = (0..4)
                .filter(|i| choice & 1 << i != 0)
                .fold(0, |mask, i| mask | each[i]);
            let program = others | chosen | if choice & 16 != 0 { SHADOW } else { 0 };
            let kernel = kernel_mask(program);
            assert_eq!(kernel & OURS, 0);
            assert_eq!(program_mask(kernel, program & VIRTUAL), program);
        }
    }

    #[test]
    fn a_mask_restored_without_the_shadow_blocks_none_of_ours() {
        assert_eq!(program_mask(bit(libc::SIGINT), OURS), bit(libc::SIGINT));
    }
}
