//! Signal frames on the program's stack.

use super::RESTORER;
use super::delivery::mask_of;
use crate::{sys, threads};
use libc::{c_int, siginfo_t, ucontext_t};
use std::sync::atomic::Ordering;

/// What the kernel puts on the stack for a handler, in its layout.
#[repr(C)]
struct Frame {
    return_address: u64,
    uc: [u8; UCONTEXT],
    info: [u8; size_of::<siginfo_t>()],
}

/// The kernel's ucontext is the beginning of libc's.
const UCONTEXT: usize = 304;
const RED_ZONE: u64 = 128;

/// No frame of the kernel's is larger, whatever registers the processor has.
const KERNEL_FRAME: u64 = 32 << 10;

type Handler = unsafe extern "C-unwind" fn(c_int, *const siginfo_t, *mut ucontext_t);

/// Makes the return from our handler enter `entry(signal, info, uc)` on the program's stack (its alternate one, if
/// `alternate` and it has one) with `mask`. False: the stack has no room.
pub(crate) fn enter_handler(
    signal: c_int,
    info: &siginfo_t,
    uc: &mut ucontext_t,
    entry: usize,
    mask: u64,
    alternate: bool,
) -> bool {
    let interrupted = uc.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
    let (mut top, mut bottom) = (interrupted.wrapping_sub(RED_ZONE), 0);
    let stack = &threads::current().alternate;
    if alternate && stack.ss_flags & libc::SS_DISABLE == 0 {
        let (low, high) = (stack.ss_sp as u64, stack.ss_sp as u64 + stack.ss_size as u64);
        if !(low..high).contains(&interrupted) {
            top = high;
        }
        bottom = low;
    }
    let on_same_stack = if threads::is_on_own_stack() {
        threads::is_own_stack(top)
    } else {
        top.wrapping_sub(&raw const *uc as u64) < KERNEL_FRAME
    };
    if on_same_stack {
        // The kernel's frame is where the program's belongs, so it serves for both: the thread has no stack of ours (yet), or code on it has faulted.
        sys::set_mask(mask);
        // SAFETY: a handler of the program's or of ours, called as the kernel would have.
        unsafe { std::mem::transmute::<usize, Handler>(entry)(signal, info, uc) };
        return true;
    }
    let state = uc.uc_mcontext.fpregs.cast::<u8>();
    let state_len = floating_point_len(state);
    let state_at = top.wrapping_sub(state_len as u64) & !63;
    let frame_at = (state_at.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
    if frame_at < bottom || frame_at > top || !writable(frame_at, top) {
        return false;
    }
    let frame = frame_at as *mut Frame;
    // SAFETY: [frame_at, top) was just seen to be writable, and belongs to nobody: it is below the program's stack pointer.
    unsafe {
        (*frame).return_address = RESTORER.load(Ordering::Relaxed);
        std::ptr::copy_nonoverlapping((&raw const *uc).cast::<u8>(), (&raw mut (*frame).uc).cast(), UCONTEXT);
        std::ptr::copy_nonoverlapping(&raw const *info, (&raw mut (*frame).info).cast(), 1);
        std::ptr::copy_nonoverlapping(state, state_at as *mut u8, state_len);
        let saved = (&raw mut (*frame).uc).cast::<ucontext_t>();
        (*saved).uc_mcontext.fpregs = if state.is_null() {
            std::ptr::null_mut()
        } else {
            state_at as *mut _
        };
        let registers = &mut uc.uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = entry as i64;
        registers[libc::REG_RSP as usize] = frame_at as i64;
        registers[libc::REG_RDI as usize] = signal as i64;
        registers[libc::REG_RSI as usize] = &raw const (*frame).info as i64;
        registers[libc::REG_RDX as usize] = saved as i64;
        registers[libc::REG_RAX as usize] = 0;
        // Direction, trap and resume flags are clear in a handler.
        registers[libc::REG_EFL as usize] &= !0x1_0500;
        // None: the kernel gives the handler a fresh floating-point state.
        uc.uc_mcontext.fpregs = std::ptr::null_mut();
        *mask_of(uc) = mask;
    }
    true
}

/// The length of the extended state that the kernel saved: legacy area, or what its software-reserved bytes say.
fn floating_point_len(state: *const u8) -> usize {
    const LEGACY: usize = 512;
    const MAGIC: u32 = 0x4650_5853;
    if state.is_null() {
        return 0;
    }
    // SAFETY: the legacy area is always there; its last 48 bytes are for software.
    let (magic, len) = unsafe { (state.add(464).cast::<u32>().read(), state.add(468).cast::<u32>().read()) };
    if magic == MAGIC {
        (len as usize).max(LEGACY)
    } else {
        LEGACY
    }
}

/// Whether the stack memory [from, to) can be written; a stack that grows on demand is grown by the asking.
fn writable(from: u64, to: u64) -> bool {
    let mut at = to.wrapping_sub(8);
    loop {
        let at_or_bottom = at.max(from);
        // The kernel writes 8 bytes there, the current mask: memory that the caller is about to overwrite.
        let probe = [libc::SIG_BLOCK as u64, 0, at_or_bottom, 8, 0, 0];
        // SAFETY: the kernel checks the address.
        if unsafe { sys::syscall(libc::SYS_rt_sigprocmask, probe) }.is_err() {
            return false;
        }
        if at_or_bottom == from {
            return true;
        }
        at = at.wrapping_sub(4096);
    }
}
