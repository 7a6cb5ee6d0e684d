//! Signals: what is ours, what is the program's, and how each gets its own.
//!
//! The runtime needs SIGSEGV (stores to PM), SIGBUS (stores behind a file's end), SIGTRAP (flushes and fences) and SIGSYS
//! (system calls that write to PM) at any time, in any code of the program. The kernel therefore has our handlers for these
//! four and never has one of them blocked; what the program asks for them is kept here, and the program is told what it set.
//! A fault that is not ours is delivered to the program's handler as the kernel would have delivered it: a signal frame is
//! laid on the program's stack (or on the alternate stack it asked for), and our handler returns *into* the program's. So
//! nothing of ours is left on any stack while the program's handler runs, it may leave by `siglongjmp`, and when it returns,
//! the kernel resumes what the frame says.
//!
//! **The shadow signal.** Masks are saved and restored behind our back: by the kernel around handlers, by libc in
//! `siglongjmp` and `swapcontext`. Whether one of the four is blocked for the program must follow. Hence, whenever the
//! program has any of them blocked, SIGSTKFLT, which nothing on x86 ever sends, is really blocked in their place; which of
//! them it stands for is in the thread's state. A mask restored without it means that none is blocked.
//!
//! What differs from the kernel: the four are not blocked during a handler of another signal whose `sa_mask` names them; a
//! handler sees the shadow signal in `uc_sigmask`; `sigwait` does not see one of the four sent by `kill`; a SIGSYS that is sent in the very
//! moment in which a thread makes a system call that we trap takes the place of the trap, and the call is not made.
//!
//! **Sent while we are at it.** One of the four that some process sends (`kill`, `sigqueue`) may arrive while our own code runs, which holds locks and
//! stands on a stack that are not the program's. All other signals are blocked then, the shadow signal too. So it is kept in the thread's state, and the shadow
//! signal, sent to the thread itself, brings it as soon as the program's code goes on (`put_off` in [`delivery`]). Where the program has it blocked itself, our code looks when
//! it is done.
//!
//! **Hooks.** A hook of instrumented code must not be interrupted by the program's handlers, nor by the end of the process, so all of
//! them are entered through [`relay`] or [`delivery::intercept`], which put off what comes too early ([`crate::hooks::signals`]).

mod delivery;
mod dispositions;
mod exec;
mod frame;
mod interposed_masks;
mod masks;

use crate::spin::Spin;
use crate::sys::OURS;
use crate::{hooks, sys, threads};
use delivery::{handle, relay, send_shadow};
use libc::{c_int, siginfo_t};
use masks::kernel_mask;
use std::arch::global_asm;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub(crate) use delivery::{after_our_code, deliver_fault, make_endings_wait, mask_of};
pub(crate) use dispositions::{
    change_alternate_stack, change_kernel_action, is_for_programs, raw_sigaction, sigaltstack,
};
pub(crate) use exec::{Executing, executing, spawning};
pub(crate) use frame::enter_handler;
pub(crate) use interposed_masks::raw_sigprocmask;
pub(crate) use masks::change_mask_in;

const SHADOW: u64 = bit(libc::SIGSTKFLT);
const VIRTUAL: u64 = OURS | SHADOW;
/// libc's own signals (thread cancellation and set*id), which it keeps out of the masks that programs set.
const LIBC_INTERNAL: u64 = 3 << 31;
/// What no mask holds.
const UNBLOCKABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
const EACH_OF_OURS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP, libc::SIGSYS];
const SIGNALS: usize = 65;
const SA_RESTORER: c_int = 0x0400_0000;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The kernel has our handler for it, whatever the program wants.
fn is_ours(signal: c_int) -> bool {
    VIRTUAL & bit(signal) != 0
}

/// What the program wants done at a signal.
#[derive(Clone, Copy)]
struct Disposition {
    handler: usize,
    flags: c_int,
    mask: u64,
}

const DEFAULT: Disposition = Disposition {
    handler: libc::SIG_DFL,
    flags: 0,
    mask: 0,
};

impl Disposition {
    fn is_function(&self) -> bool {
        self.handler != libc::SIG_DFL && self.handler != libc::SIG_IGN
    }
}

/// As the kernel has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    pub(crate) const DEFAULT: KernelAction = KernelAction {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
}

struct Table {
    lock: Spin,
    /// The program's dispositions, by signal: all of our four, and of other signals those that go through [`relay`] or
    /// [`delivery::intercept`].
    dispositions: UnsafeCell<[Disposition; SIGNALS]>,
    /// Of our four: sent by some process while the program had them blocked.
    pending: UnsafeCell<[Option<siginfo_t>; SIGNALS]>,
}

// SAFETY: the cells are only touched with the lock held.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    lock: Spin::new(),
    dispositions: UnsafeCell::new([DEFAULT; SIGNALS]),
    pending: UnsafeCell::new([const { None }; SIGNALS]),
};

/// Some signal was sent while the program had it blocked.
static HELD: AtomicBool = AtomicBool::new(false);
static INSTALLED: AtomicBool = AtomicBool::new(false);
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// libc's `__restore_rt`: unwinders and debuggers know it.
static RESTORER: AtomicU64 = AtomicU64::new(0);

impl Table {
    fn with<R>(&self, f: impl FnOnce(&mut [Disposition; SIGNALS]) -> R) -> R {
        sys::without_signals(|| {
            let _held = self.lock.lock();
            // SAFETY: the lock is held, and `f` cannot reach the table by another way.
            f(unsafe { &mut *self.dispositions.get() })
        })
    }

    fn with_pending<R>(&self, f: impl FnOnce(&mut [Option<siginfo_t>; SIGNALS]) -> R) -> R {
        sys::without_signals(|| {
            let _held = self.lock.lock();
            // SAFETY: as above.
            f(unsafe { &mut *self.pending.get() })
        })
    }
}

/// Takes the four out of the mask that the process was started with. The first thread has its state; nothing has changed
/// the mask yet.
pub(crate) fn adopt_mask(came: Inherited) {
    let inherited = sys::set_mask(!OURS);
    let blocked = inherited & VIRTUAL;
    threads::current().blocked = blocked;
    sys::set_mask(kernel_mask(inherited) | inherited & LIBC_INTERNAL);
    came.each(keep);
}

/// Those of our four that were pending when the process was started.
pub(crate) struct Inherited([Option<siginfo_t>; 4]);

impl Inherited {
    /// They would end the process as soon as anything unblocks them: our handlers are not there yet.
    pub(crate) fn take() -> Inherited {
        Inherited(EACH_OF_OURS.map(take_from_kernel))
    }

    /// For a process in which we do nothing.
    pub(crate) fn give_back(self) {
        self.each(hooks::signals::send_again);
    }

    fn each(self, f: impl Fn(c_int, &siginfo_t)) {
        for (signal, info) in EACH_OF_OURS.into_iter().zip(self.0) {
            if let Some(info) = info {
                f(signal, &info);
            }
        }
    }
}

/// A signal that the kernel has for this thread and that is blocked, if there is one.
fn take_from_kernel(signal: c_int) -> Option<siginfo_t> {
    let (mut pending, set) = (0u64, bit(signal));
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all-zero is a valid siginfo; the kernel reads and fills what is ours.
    unsafe {
        sys::syscall(libc::SYS_rt_sigpending, [&raw mut pending as u64, 8, 0, 0, 0, 0]).ok()?;
        if pending & set == 0 {
            return None;
        }
        let mut info: siginfo_t = std::mem::zeroed();
        let arguments = [
            &raw const set as u64,
            &raw mut info as u64,
            &raw const now as u64,
            8,
            0,
            0,
        ];
        sys::syscall(libc::SYS_rt_sigtimedwait, arguments).ok().map(|_| info)
    }
}

/// Keeps a signal that came while the program has it blocked.
fn keep(signal: c_int, info: &siginfo_t) {
    HELD.store(true, Ordering::Relaxed);
    TABLE.with_pending(|pending| pending[signal as usize] = Some(*info));
    // The kernel unblocks it without our knowledge at the end of a handler.
    send_shadow(info);
}

/// In a thread that libc started with everything blocked: ours are not, and the program does not see that.
pub(crate) fn unblock_ours() {
    threads::current().blocked = VIRTUAL;
    sys::set_mask(sys::set_mask(!OURS) & !OURS | SHADOW);
}

/// Blocks everything but ours, so that a thread made now gets no signal before it has its state. Returns the mask to give
/// back, here and in the thread.
pub(crate) fn block_for_start() -> u64 {
    sys::set_mask(!OURS)
}

/// In the new thread: the mask that its creator had, unless its attributes gave it another. Only ours has libc's own
/// signals blocked, except for the first thread, for which libc has just unblocked them.
pub(crate) fn unblock_at_start(creators: u64) {
    static FIRST: AtomicBool = AtomicBool::new(true);
    let inherited = sys::set_mask(!OURS);
    let is_ours = inherited & LIBC_INTERNAL != 0
        || inherited | LIBC_INTERNAL | UNBLOCKABLE == !OURS && FIRST.swap(false, Ordering::Relaxed);
    sys::set_mask(if is_ours { creators } else { inherited });
}

/// Our handlers. What the process had before is the program's from here on.
pub(crate) fn install() {
    interposed_masks::resolve();
    dispositions::resolve();
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    RESTORER.store(libc_restorer() as u64, Ordering::Relaxed);
    reclaim();
    INSTALLED.store(true, Ordering::Release);
}

/// Puts our handlers and this thread's alternate stack (back) in place; what is there instead becomes the program's. Code
/// that makes system calls of its own (the run-time library of a sanitizer) does not ask us. Called at each PM mapping.
pub(crate) fn reclaim() {
    let ours = our_action();
    for signal in EACH_OF_OURS.into_iter().chain([libc::SIGSTKFLT]) {
        if kernel_action(signal, None).is_ok_and(|known| known.handler == ours.handler) {
            continue;
        }
        if let Ok(old) = kernel_action(signal, Some(&ours)) {
            let theirs = Disposition {
                handler: old.handler,
                flags: old.flags as c_int,
                mask: old.mask,
            };
            TABLE.with(|table| table[signal as usize] = theirs);
        }
    }
    if let Some(theirs) = threads::reclaim_stack() {
        threads::current().alternate = theirs;
    }
}

fn our_action() -> KernelAction {
    KernelAction {
        handler: handle as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | SA_RESTORER) as u64,
        restorer: RESTORER.load(Ordering::Relaxed) as usize,
        mask: !OURS,
    }
}

fn installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// A forked child: no other thread can hold the table.
pub(crate) fn reset_after_fork() {
    TABLE.lock.reset();
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    // Clearing what is clear would make a copy of its memory.
    if HELD.swap(false, Ordering::Relaxed) {
        TABLE.with_pending(|pending| *pending = [const { None }; SIGNALS]);
    }
}

/// A vfork child shares our memory, but has a signal table of the kernel's own: what it sets must not reach its parent.
pub(crate) fn in_vfork_child() -> bool {
    sys::getpid() != PROCESS.load(Ordering::Relaxed)
}

// For a process in which libc's cannot be learnt. The same bytes, by which unwinders know it.
global_asm!(
    ".hidden crashproof_restore",
    ".globl crashproof_restore",
    ".type crashproof_restore, @function",
    "crashproof_restore:",
    "mov rax, 15",
    "syscall",
    ".size crashproof_restore, . - crashproof_restore",
);

unsafe extern "C" {
    fn crashproof_restore();
}

fn libc_restorer() -> usize {
    let own = crashproof_restore as *const () as usize;
    // SIGSTKFLT's disposition is set through libc and put back: libc tells the kernel its restorer with every handler.
    let Ok(before) = kernel_action(libc::SIGSTKFLT, None) else {
        return own;
    };
    // SAFETY: libc's own sigaction with valid arguments.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = relay as *const () as usize;
        dispositions::NEXT_SIGACTION.get()(libc::SIGSTKFLT, &action, std::ptr::null_mut());
    }
    match kernel_action(libc::SIGSTKFLT, Some(&before)) {
        Ok(set) if set.restorer != 0 => set.restorer,
        _ => own,
    }
}

/// Sets (or only asks) what the kernel does at a signal, and returns what it did.
pub(crate) fn kernel_action(signal: c_int, new: Option<&KernelAction>) -> Result<KernelAction, i32> {
    let mut old = KernelAction::DEFAULT;
    let new = new.map_or(0, |n| &raw const *n as u64);
    // SAFETY: both are the kernel's structure.
    unsafe {
        sys::syscall(
            libc::SYS_rt_sigaction,
            [signal as u64, new, &raw mut old as u64, 8, 0, 0],
        )
    }?;
    Ok(old)
}
