//! Delivery: the kernel's entries for signals, and how the program gets its own.

use super::exec::leave_exec;
use super::frame::enter_handler;
use super::masks::kernel_mask;
use super::{
    DEFAULT, Disposition, EACH_OF_OURS, HELD, KernelAction, LIBC_INTERNAL, RESTORER, SA_RESTORER, SHADOW, SIGNALS,
    TABLE, UNBLOCKABLE, VIRTUAL, bit, installed, keep, kernel_action,
};
use crate::sys::OURS;
use crate::threads::Sent;
use crate::{handler, hooks, sys, syscalls, threads};
use crashproof_instruction::Fault;
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::arch::naked_asm;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signal mask in a frame.
pub(crate) fn mask_of(uc: &mut ucontext_t) -> &mut u64 {
    // SAFETY: the kernel's mask is the first 8 bytes of libc's longer one.
    unsafe { &mut *(&raw mut uc.uc_sigmask).cast::<u64>() }
}

/// The kernel's entry for our four. Runs on the alternate stack with all other signals blocked.
pub(super) extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, uc: *mut c_void) {
    // `errno` is not saved here: code of ours does not touch it, and the program's instructions that are executed ahead may store to it.
    // SAFETY: the kernel's frame.
    unsafe {
        let (info, uc) = (&*info, &mut *uc.cast::<ucontext_t>());
        if signal == libc::SIGSTKFLT || info.si_code <= 0 {
            leave_exec(uc);
        }
        let done = match signal {
            libc::SIGSTKFLT => bring(info, uc),
            // What another process sent has no code above 0, and is never ours. But the kernel has one SIGTRAP at a time: if it was sent
            // just before a breakpoint, this is both. (A fault comes again by itself.)
            _ if info.si_code <= 0 => {
                if signal == libc::SIGTRAP && handler::at_breakpoint(uc) {
                    handler::trap(info, uc);
                }
                put_off(signal, info, uc)
            }
            libc::SIGSEGV => handler::segv(info, uc),
            libc::SIGBUS => handler::bus(info, uc),
            libc::SIGTRAP => handler::trap(info, uc),
            _ => syscalls::trap(info, uc),
        };
        if !done {
            forward(signal, info, uc);
        }
        if shadow_stays_blocked(*mask_of(uc)) && !threads::current().in_hook.is_set() {
            deliver_sent(uc);
        }
    }
}

/// One of the four was sent. True: code of ours was interrupted, which must be over first; [`bring`] then delivers it.
fn put_off(signal: c_int, info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    let state = threads::current();
    let all_blocked = is_ours_alone(*mask_of(uc));
    if !all_blocked && !state.in_hook.is_set() {
        return false;
    }
    if let Some(index) = EACH_OF_OURS.iter().position(|&ours| ours == signal) {
        // As with the kernel, a second one before the first was delivered is the same one.
        state.sent[index] = Some(Sent::to_this_task(info));
    }
    if all_blocked {
        send_shadow(info);
        return true;
    }
    hooks::signals::defer(libc::SIGSTKFLT, &marked(info), uc)
}

/// Sends the shadow signal to this thread, which has it blocked.
pub(super) fn send_shadow(info: &siginfo_t) {
    hooks::signals::send_again(libc::SIGSTKFLT, &marked(info));
}

fn marked(info: &siginfo_t) -> siginfo_t {
    let mut marked = *info;
    marked.si_errno = BRINGS;
    marked
}

/// Marks a shadow signal of our own; nobody else's has an error.
const BRINGS: c_int = 0xc9af;

/// The shadow signal has come: the program's code goes on, and gets what was sent meanwhile. False: it was sent by somebody else.
fn bring(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    if hooks::signals::defer(libc::SIGSTKFLT, info, uc) {
        return true;
    }
    deliver_sent(uc);
    if HELD.load(Ordering::Relaxed) {
        for signal in EACH_OF_OURS {
            // Once the first handler is entered, the next may be blocked again, and is held again.
            if let Some(held) = TABLE.with_pending(|pending| pending[signal as usize].take()) {
                forward(signal, &held, uc);
            }
        }
    }
    info.si_errno == BRINGS
}

fn deliver_sent(uc: &mut ucontext_t) {
    for (index, signal) in EACH_OF_OURS.into_iter().enumerate() {
        if let Some(sent) = threads::current().take_sent(index) {
            forward(signal, &sent, uc);
        }
    }
}

/// Whether code of ours has set this mask. Only we block the signals of libc, too (which it may unblock when it starts a thread), and
/// where the program has the shadow signal blocked, it stands for something.
fn is_ours_alone(mask: u64) -> bool {
    mask | LIBC_INTERNAL | UNBLOCKABLE == !OURS
        && (mask & LIBC_INTERNAL != 0 || *threads::current().blocked_here() == 0)
}

/// The program has set this mask, and the shadow signal does not come under it.
fn shadow_stays_blocked(mask: u64) -> bool {
    mask & SHADOW != 0 && !is_ours_alone(mask)
}

/// For code of ours that is done and has given the program its mask back.
pub(crate) fn after_our_code(mask: u64) {
    if !shadow_stays_blocked(mask) || !installed() {
        return;
    }
    for (index, signal) in EACH_OF_OURS.into_iter().enumerate() {
        if let Some(sent) = threads::current().take_sent(index) {
            hooks::signals::send_again(signal, &sent);
        }
    }
}

/// The instruction at which `uc` stands must get this signal, as if it had faulted there by itself.
pub(crate) fn deliver_fault(fault: &Fault, uc: &mut ucontext_t) {
    // SAFETY: all-zero is a valid siginfo; a fault's address is the first word behind its three integers and their padding.
    let info = unsafe {
        let mut info: siginfo_t = std::mem::zeroed();
        info.si_signo = fault.signal;
        info.si_code = fault.code;
        (&raw mut info).cast::<u64>().add(2).write(fault.address);
        info
    };
    forward(fault.signal, &info, uc);
}

/// Gives the program a signal that is not ours.
pub(super) fn forward(signal: c_int, info: &siginfo_t, uc: &mut ucontext_t) {
    let forced = info.si_code > 0;
    let interrupted = *mask_of(uc);
    let state = threads::current();
    let blocked = interrupted & SHADOW != 0 && *state.blocked_here() & bit(signal) != 0;
    let disposition = TABLE.with(|table| {
        let entry = &mut table[signal as usize];
        let taken = *entry;
        if taken.flags & libc::SA_RESETHAND != 0 && taken.is_function() && !blocked {
            entry.handler = libc::SIG_DFL;
        }
        taken
    });
    if blocked && !forced {
        keep(signal, info);
        return;
    }
    if disposition.handler == libc::SIG_IGN && !forced {
        return;
    }
    if blocked || !disposition.is_function() {
        die(signal, info, uc);
        return;
    }
    let mut during = disposition.mask;
    if disposition.flags & libc::SA_NODEFER == 0 {
        during |= bit(signal);
    }
    if interrupted & SHADOW == 0 {
        state.block(during & VIRTUAL);
    }
    let mask = interrupted | kernel_mask(during);
    if !enter_handler(
        signal,
        info,
        uc,
        disposition.handler,
        mask,
        disposition.flags & libc::SA_ONSTACK != 0,
    ) {
        // As the kernel does when it cannot lay a frame.
        die(libc::SIGSEGV, info, uc);
    }
}

/// The default action: the kernel's, at the instruction where the program stands.
fn die(signal: c_int, info: &siginfo_t, uc: &mut ucontext_t) {
    let _ = kernel_action(signal, Some(&KernelAction::DEFAULT));
    let only = bit(signal);
    // SAFETY: the signal is queued to this very thread, blocked until our handler returns.
    unsafe {
        let block = [libc::SIG_BLOCK as u64, &raw const only as u64, 0, 8, 0, 0];
        let _ = sys::syscall(libc::SYS_rt_sigprocmask, block);
        let (process, thread) = (sys::getpid() as u64, sys::gettid() as u64);
        let queue = [process, thread, signal as u64, &raw const *info as u64, 0, 0];
        let _ = sys::syscall(libc::SYS_rt_tgsigqueueinfo, queue);
    }
    *mask_of(uc) &= !only;
}

/// The kernel's entry for those of the program's other handlers that asked for an alternate stack: the kernel knows ours only, so
/// the frame is moved to where the program wanted it.
pub(super) extern "C-unwind" fn relay(signal: c_int, info: *mut siginfo_t, uc: *mut c_void) {
    // SAFETY: the kernel's frame.
    let (info, uc) = unsafe { (&*info, &mut *uc.cast::<ucontext_t>()) };
    leave_exec(uc);
    let Some(disposition) = take_turn(signal, info, uc) else {
        return;
    };
    let mut mask = *mask_of(uc) | disposition.mask & !OURS;
    if disposition.flags & libc::SA_NODEFER == 0 {
        mask |= bit(signal);
    }
    if !enter_handler(signal, info, uc, disposition.handler, mask, true) {
        die(libc::SIGSEGV, info, uc);
    }
}

/// What the program wants done now; `None` if a hook was interrupted, which must be over first, or if there is no handler.
fn take_turn(signal: c_int, info: &siginfo_t, uc: &mut ucontext_t) -> Option<Disposition> {
    if hooks::signals::defer(signal, info, uc) {
        return None;
    }
    let disposition = TABLE.with(|table| {
        let entry = &mut table[signal as usize];
        let taken = *entry;
        if taken.is_function() && taken.flags & libc::SA_RESETHAND != 0 {
            // The kernel was not told to do so: it would have done it at a delivery that was put off, too.
            *entry = DEFAULT;
            let _ = kernel_action(signal, Some(&default_action(signal)));
        }
        taken
    });
    if disposition.handler == libc::SIG_DFL {
        die(signal, info, uc);
    }
    disposition.is_function().then_some(disposition)
}

/// Signals that end the process unless it handles them, and that come from outside at any moment.
const ENDING: u64 = {
    use libc::*;
    let named = bit(SIGHUP) | bit(SIGINT) | bit(SIGQUIT) | bit(SIGALRM) | bit(SIGTERM) | bit(SIGUSR1) | bit(SIGUSR2);
    let timers = bit(SIGVTALRM) | bit(SIGPROF) | bit(SIGXCPU) | bit(SIGIO) | bit(SIGPWR);
    named | timers | !0 << 33
};

/// There are hooks, which even an ending signal must not interrupt: the trace would lack what the hook was doing.
static ENDINGS_WAIT: AtomicBool = AtomicBool::new(false);

/// What the kernel is told when the program wants nothing special.
pub(super) fn default_action(signal: c_int) -> KernelAction {
    if ENDING & bit(signal) == 0 || !ENDINGS_WAIT.load(Ordering::Relaxed) {
        return KernelAction::DEFAULT;
    }
    KernelAction {
        handler: intercept as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_RESTART | SA_RESTORER) as u64,
        restorer: RESTORER.load(Ordering::Relaxed) as usize,
        mask: 0,
    }
}

/// Ending signals go through us from now on; the program is told that they have their default action.
pub(crate) fn make_endings_wait() {
    if !installed() || ENDINGS_WAIT.swap(true, Ordering::Relaxed) {
        return;
    }
    for signal in (1..SIGNALS as c_int).filter(|&signal| ENDING & bit(signal) != 0) {
        TABLE.with(|table| {
            if kernel_action(signal, None).is_ok_and(|known| known.handler == libc::SIG_DFL) {
                table[signal as usize] = DEFAULT;
                let _ = kernel_action(signal, Some(&default_action(signal)));
            }
        });
    }
}

/// Which handler of the program's to go on to; 0: none.
extern "C" fn choose(signal: c_int, info: *const siginfo_t, uc: *mut c_void) -> usize {
    // SAFETY: the kernel's frame.
    let (info, uc) = unsafe { (&*info, &mut *uc.cast::<ucontext_t>()) };
    if leave_exec(uc) {
        // The kernel has made the mask of this handler from that of the exec.
        let during = sys::set_mask(!0);
        sys::set_mask(during & !OURS | *mask_of(uc) & SHADOW);
    }
    take_turn(signal, info, uc).map_or(0, |disposition| disposition.handler)
}

/// The kernel's entry for all other handlers of the program's. Nothing of ours is left on the stack when it goes on to one.
#[unsafe(naked)]
pub(super) extern "C" fn intercept() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "call {choose}",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "mov r11, rax",
        "xor eax, eax",
        "jmp r11",
        "2: ret",
        ".cfi_endproc",
        choose = sym choose,
    )
}
