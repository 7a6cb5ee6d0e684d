//! Over an exec: the next program gets the mask and the dispositions that the program has asked for.

use super::delivery::mask_of;
use super::masks::{program_mask, write_set};
use super::{
    EACH_OF_OURS, Inherited, KernelAction, RESTORER, TABLE, bit, in_vfork_child, installed, kernel_action, our_action,
    reclaim, take_from_kernel,
};
use crate::{sys, threads};
use libc::{c_int, c_void, ucontext_t};
use std::arch::naked_asm;
use std::sync::atomic::{AtomicU64, Ordering};

/// The program's mask where the kernel's is this one, and those of our four that the program ignores.
fn native_state(kernel: u64) -> (u64, u64) {
    let mask = program_mask(kernel, *threads::current().blocked_here());
    let chosen = CHILD_CHOICE.load(Ordering::Relaxed);
    let child = in_vfork_child() && (chosen >> 32) as u32 == sys::getpid();
    let ignored = TABLE.with(|table| {
        EACH_OF_OURS
            .into_iter()
            .filter(|&signal| match choice(signal) {
                choice if child && chosen & choice != 0 => chosen & choice << 16 != 0,
                _ => table[signal as usize].handler == libc::SIG_IGN,
            })
            .fold(0, |ignored, signal| ignored | bit(signal))
    });
    (mask, ignored)
}

/// What a vfork child wants for our four, which is not its parent's wish: the child, a bit for each that it has set, and a bit for each
/// that it ignores.
static CHILD_CHOICE: AtomicU64 = AtomicU64::new(0);

/// The bit for a signal in [`CHILD_CHOICE`].
pub(super) fn choice(signal: c_int) -> u64 {
    EACH_OF_OURS
        .iter()
        .position(|&s| s == signal)
        .map_or(0, |index| 1 << index)
}

pub(super) fn choose_in_child(signal: c_int, handler: usize) {
    let me = (sys::getpid() as u64) << 32;
    let known = CHILD_CHOICE.load(Ordering::Relaxed);
    let known = if known >> 32 == me >> 32 { known } else { me };
    let (set, ignored) = (choice(signal), choice(signal) << 16);
    let ignored = if handler == libc::SIG_IGN {
        known | ignored
    } else {
        known & !ignored
    };
    CHILD_CHOICE.store(ignored | set, Ordering::Relaxed);
}

/// Ignores signals for real. What another thread stores to PM meanwhile would end the process, so this is only for a process of one thread.
fn ignore(ignored: u64) {
    if ignored == 0 || !in_vfork_child() && sys::threads() != 1 {
        return;
    }
    for signal in EACH_OF_OURS.into_iter().filter(|&signal| ignored & bit(signal) != 0) {
        let known = TABLE.with(|table| table[signal as usize]);
        let action = KernelAction {
            handler: libc::SIG_IGN,
            flags: known.flags as u32 as u64,
            restorer: RESTORER.load(Ordering::Relaxed) as usize,
            mask: known.mask,
        };
        let _ = kernel_action(signal, Some(&action));
    }
}

/// An exec that is under way in a thread: the kernel has the program's own mask and dispositions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Executing {
    /// The stack pointer at which it is left; 0: there is none.
    left_at: u64,
    /// The kernel's id of the thread or of a vfork child, which shares the state of its parent's thread and may be gone by now.
    task: u32,
    /// The mask that the kernel had before.
    mask: u64,
}

/// Executes another program. The kernel hands on the mask, what is ignored and what is pending, so it gets the program's own for the
/// four: the next program is then as without us, whether it has the runtime or not. `execute` returns if that fails.
///
/// A signal that comes meanwhile finds the kernel without our handlers. It leaves the exec ([`leave_exec`]), which begins anew when the program's
/// handler has returned.
pub(crate) fn executing<F: FnMut() -> c_int>(execute: F) -> c_int {
    struct Call<F> {
        execute: F,
        mask: u64,
        result: Option<c_int>,
    }

    extern "C" fn make<F: FnMut() -> c_int>(call: *mut c_void) {
        // SAFETY: the one below, which waits for us.
        let call = unsafe { &mut *call.cast::<Call<F>>() };
        sys::set_mask(call.mask);
        let result = (call.execute)();
        sys::set_mask(!0);
        call.result = Some(result);
    }

    let mut call = Call {
        execute,
        mask: 0,
        result: None,
    };
    loop {
        let Some((mask, kernel)) = before_exec() else {
            return (call.execute)();
        };
        call.mask = mask;
        let state = threads::current();
        state.executing = Executing {
            left_at: 0,
            task: sys::gettid(),
            mask: kernel,
        };
        let left_at = &raw mut state.executing.left_at;
        // SAFETY: the kernel's mask is put back for the call, and nothing but the call runs then. If a signal takes it off the stack before, `execute` is in a function of
        // libc that executes programs: a system call, on nothing but the stack.
        unsafe { leave_to(make::<F>, (&raw mut call).cast(), left_at) };
        // SAFETY: as above.
        unsafe { left_at.write_volatile(0) };
        after_exec(kernel);
        if let Some(result) = call.result.take() {
            return result;
        }
    }
}

/// Calls `function(argument)`. Notes before where its stack begins: whoever goes on at [`crashproof_left`] with that stack pointer takes the call off
/// the stack.
#[unsafe(naked)]
unsafe extern "C" fn leave_to(function: extern "C" fn(*mut c_void), argument: *mut c_void, left_at: *mut u64) {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "push rbp",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset rbp, -24",
        "push r12",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset r12, -32",
        "push r13",
        ".cfi_def_cfa_offset 40",
        ".cfi_offset r13, -40",
        "push r14",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset r14, -48",
        "push r15",
        ".cfi_def_cfa_offset 56",
        ".cfi_offset r15, -56",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 64",
        "mov [rdx], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        ".globl crashproof_left",
        ".hidden crashproof_left",
        "crashproof_left:",
        "add rsp, 8",
        ".cfi_def_cfa_offset 56",
        "pop r15",
        ".cfi_def_cfa_offset 48",
        "pop r14",
        ".cfi_def_cfa_offset 40",
        "pop r13",
        ".cfi_def_cfa_offset 32",
        "pop r12",
        ".cfi_def_cfa_offset 24",
        "pop rbp",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
    )
}

unsafe extern "C" {
    fn crashproof_left();
}

/// If a signal has interrupted an exec: puts our handlers and the mask back, and has the exec begin anew when the signal's handler has returned.
/// The frame has the mask of the program then.
pub(super) fn leave_exec(uc: &mut ucontext_t) -> bool {
    let executing = &mut threads::current().executing;
    if executing.left_at == 0 || executing.task != sys::gettid() {
        return false;
    }
    let registers = &mut uc.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = crashproof_left as *const () as i64;
    registers[libc::REG_RSP as usize] = std::mem::take(&mut executing.left_at) as i64;
    registers[libc::REG_EFL as usize] &= !0x400;
    put_back();
    *mask_of(uc) = executing.mask;
    true
}

/// Our handlers in place of what was ignored for real. The table has what the program wants.
fn put_back() {
    let ours = our_action();
    for signal in EACH_OF_OURS {
        let _ = kernel_action(signal, Some(&ours));
    }
}

/// The program's mask, and the kernel's; `None` if there is nothing to hand on. All signals are blocked then, ours too.
fn before_exec() -> Option<(u64, u64)> {
    if !installed() {
        return None;
    }
    let kernel = sys::set_mask(!0);
    let (mask, ignored) = native_state(kernel);
    if mask == kernel && ignored == 0 {
        sys::set_mask(kernel);
        return None;
    }
    // A vfork child was not sent what its parent was.
    let held = Inherited(match in_vfork_child() {
        true => [None; 4],
        false => EACH_OF_OURS.map(|signal| TABLE.with_pending(|pending| pending[signal as usize].take())),
    });
    ignore(ignored);
    take_from_kernel(libc::SIGSTKFLT);
    held.give_back();
    Some((mask, kernel))
}

/// The other program could not be executed. What is pending is found to be blocked by the program, because the mask comes with the shadow signal.
fn after_exec(kernel: u64) {
    let _errno = sys::KeptErrno::new();
    put_back();
    sys::set_mask(kernel);
}

/// The same for a child that `spawn` starts with these attributes: it gets the program's mask, unless they say otherwise.
///
/// # Safety
/// `attributes` is null or initialised.
pub(crate) unsafe fn spawning(
    attributes: *const libc::posix_spawnattr_t,
    spawn: impl FnOnce(*const libc::posix_spawnattr_t) -> c_int,
) -> c_int {
    if !installed() {
        return spawn(attributes);
    }
    let mut kernel = 0u64;
    // SAFETY: reads the mask.
    let _ = unsafe { sys::syscall(libc::SYS_rt_sigprocmask, [0, 0, &raw mut kernel as u64, 8, 0, 0]) };
    let (mask, ignored) = native_state(kernel);
    if mask == kernel && ignored == 0 {
        return spawn(attributes);
    }
    // SAFETY: plain data, of which libc's functions for it make a copy with another mask.
    let own = unsafe {
        let mut own: libc::posix_spawnattr_t = std::mem::zeroed();
        libc::posix_spawnattr_init(&mut own);
        if let Some(given) = attributes.as_ref() {
            own = *given;
        }
        let (mut flags, mut set) = (0, std::mem::zeroed());
        libc::posix_spawnattr_getflags(&own, &mut flags);
        if flags & libc::POSIX_SPAWN_SETSIGMASK as i16 == 0 {
            write_set(&mut set, mask);
            libc::posix_spawnattr_setsigmask(&mut own, &set);
            libc::posix_spawnattr_setflags(&mut own, flags | libc::POSIX_SPAWN_SETSIGMASK as i16);
        }
        own
    };
    if ignored == 0 || in_vfork_child() {
        return spawn(&own);
    }
    sys::without_signals(|| {
        ignore(ignored);
        let result = spawn(&own);
        reclaim();
        result
    })
}
