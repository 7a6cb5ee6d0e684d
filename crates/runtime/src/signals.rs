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
//! signal, sent to the thread itself, brings it as soon as the program's code goes on ([`put_off`]). Where the program has it blocked itself, our code looks when
//! it is done.
//!
//! **Hooks.** A hook of instrumented code must not be interrupted by the program's handlers, nor by the end of the process, so all of
//! them are entered through [`relay`] or [`intercept`], which put off what comes too early ([`crate::hooks::signals`]).

use crate::real::{Next, Resolve};
use crate::{handler, hooks, spin::Spin, sys, syscalls, threads};
use crashproof_instruction::Fault;
use libc::{c_int, c_void, siginfo_t, sigset_t, ucontext_t};
use std::arch::{global_asm, naked_asm};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sys::OURS;
use threads::Sent;

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
pub struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    pub const DEFAULT: KernelAction = KernelAction {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
}

struct Table {
    lock: Spin,
    /// The program's dispositions, by signal: all of our four, and of other signals those that go through [`relay`] or
    /// [`intercept`].
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
pub fn adopt_mask(came: Inherited) {
    let inherited = sys::set_mask(!OURS);
    let blocked = inherited & VIRTUAL;
    threads::current().blocked = blocked;
    sys::set_mask(kernel_mask(inherited) | inherited & LIBC_INTERNAL);
    came.each(keep);
}

/// Those of our four that were pending when the process was started.
pub struct Inherited([Option<siginfo_t>; 4]);

impl Inherited {
    /// They would end the process as soon as anything unblocks them: our handlers are not there yet.
    pub fn take() -> Inherited {
        Inherited(EACH_OF_OURS.map(take_from_kernel))
    }

    /// For a process in which we do nothing.
    pub fn give_back(self) {
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
pub fn unblock_ours() {
    threads::current().blocked = VIRTUAL;
    sys::set_mask(sys::set_mask(!OURS) & !OURS | SHADOW);
}

/// Blocks everything but ours, so that a thread made now gets no signal before it has its state. Returns the mask to give
/// back, here and in the thread.
pub fn block_for_start() -> u64 {
    sys::set_mask(!OURS)
}

/// In the new thread: the mask that its creator had, unless its attributes gave it another. Only ours has libc's own
/// signals blocked, except for the first thread, for which libc has just unblocked them.
pub fn unblock_at_start(creators: u64) {
    static FIRST: AtomicBool = AtomicBool::new(true);
    let inherited = sys::set_mask(!OURS);
    let is_ours = inherited & LIBC_INTERNAL != 0
        || inherited | LIBC_INTERNAL | UNBLOCKABLE == !OURS && FIRST.swap(false, Ordering::Relaxed);
    sys::set_mask(if is_ours { creators } else { inherited });
}

/// Our handlers. What the process had before is the program's from here on.
pub fn install() {
    let all: [&dyn Resolve; 18] = [
        &NEXT_SIGTIMEDWAIT,
        &NEXT_SIGWAIT,
        &NEXT_SETCONTEXT,
        &NEXT_SWAPCONTEXT,
        &NEXT_PTHREAD_SIGMASK,
        &NEXT_SIGSUSPEND,
        &NEXT_PPOLL,
        &NEXT_PSELECT,
        &NEXT_EPOLL_PWAIT,
        &NEXT_EPOLL_PWAIT2,
        &NEXT_PTHREAD_ATTR_SETSIGMASK_NP,
        &NEXT_SIGACTION,
        &NEXT_SIGNAL,
        &NEXT_SYSV_SIGNAL,
        &NEXT_SIGSET,
        &NEXT_SIGIGNORE,
        &NEXT_SIGINTERRUPT,
        &NEXT_SIGALTSTACK,
    ];
    all.iter().for_each(|next| next.resolve());
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    RESTORER.store(libc_restorer() as u64, Ordering::Relaxed);
    reclaim();
    INSTALLED.store(true, Ordering::Release);
}

/// Puts our handlers and this thread's alternate stack (back) in place; what is there instead becomes the program's. Code
/// that makes system calls of its own (the run-time library of a sanitizer) does not ask us. Called at each PM mapping.
pub fn reclaim() {
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
pub fn reset_after_fork() {
    TABLE.lock.reset();
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    // Clearing what is clear would make a copy of its memory.
    if HELD.swap(false, Ordering::Relaxed) {
        TABLE.with_pending(|pending| *pending = [const { None }; SIGNALS]);
    }
}

/// A vfork child shares our memory, but has a signal table of the kernel's own: what it sets must not reach its parent.
pub fn in_vfork_child() -> bool {
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
        NEXT_SIGACTION.get()(libc::SIGSTKFLT, &action, std::ptr::null_mut());
    }
    match kernel_action(libc::SIGSTKFLT, Some(&before)) {
        Ok(set) if set.restorer != 0 => set.restorer,
        _ => own,
    }
}

/// Sets (or only asks) what the kernel does at a signal, and returns what it did.
pub fn kernel_action(signal: c_int, new: Option<&KernelAction>) -> Result<KernelAction, i32> {
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

// --- Delivery -------------------------------------------------------------------------------------------------------

/// The signal mask in a frame.
pub fn mask_of(uc: &mut ucontext_t) -> &mut u64 {
    // SAFETY: the kernel's mask is the first 8 bytes of libc's longer one.
    unsafe { &mut *(&raw mut uc.uc_sigmask).cast::<u64>() }
}

/// The kernel's entry for our four. Runs on the alternate stack with all other signals blocked.
extern "C-unwind" fn handle(signal: c_int, info: *mut siginfo_t, uc: *mut c_void) {
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
fn send_shadow(info: &siginfo_t) {
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
pub fn after_our_code(mask: u64) {
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
pub fn deliver_fault(fault: &Fault, uc: &mut ucontext_t) {
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
pub fn forward(signal: c_int, info: &siginfo_t, uc: &mut ucontext_t) {
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
extern "C-unwind" fn relay(signal: c_int, info: *mut siginfo_t, uc: *mut c_void) {
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
fn default_action(signal: c_int) -> KernelAction {
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
pub fn make_endings_wait() {
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
extern "C" fn intercept() {
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
pub fn enter_handler(
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
        // SAFETY: the kernel checks the address.
        let probe = [libc::SIG_BLOCK as u64, 0, at_or_bottom, 8, 0, 0];
        if unsafe { sys::syscall(libc::SYS_rt_sigprocmask, probe) }.is_err() {
            return false;
        }
        if at_or_bottom == from {
            return true;
        }
        at = at.wrapping_sub(4096);
    }
}

// --- Masks ----------------------------------------------------------------------------------------------------------

/// What the kernel is told for a mask of the program's.
fn kernel_mask(program: u64) -> u64 {
    (program & !VIRTUAL & !LIBC_INTERNAL) | if program & VIRTUAL != 0 { SHADOW } else { 0 }
}

/// What the program is told for a mask of the kernel's.
fn program_mask(kernel: u64, blocked: u64) -> u64 {
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
pub fn change_mask_in(uc: &mut ucontext_t, how: c_int, set: Option<u64>) -> Result<u64, i32> {
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
fn change_mask(how: c_int, set: Option<u64>) -> Result<u64, i32> {
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

unsafe fn read_set(set: *const sigset_t) -> Option<u64> {
    // SAFETY: the caller's pointer is null or a set; its first 64 bits are all the signals there are.
    (!set.is_null()).then(|| unsafe { *set.cast::<u64>() })
}

unsafe fn write_set(set: *mut sigset_t, mask: u64) {
    if !set.is_null() {
        // As the kernel does: only the part of the set that holds signals.
        // SAFETY: the caller's pointer is a set.
        unsafe { *set.cast::<u64>() = mask };
    }
}

/// The set to hand to a function of libc's in place of the program's; null stays null.
struct Translated(sigset_t, bool);

impl Translated {
    unsafe fn new(set: *const sigset_t) -> Translated {
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

    fn as_ptr(&self) -> *const sigset_t {
        if self.1 { &self.0 } else { std::ptr::null() }
    }
}

// --- Over an exec -----------------------------------------------------------------------------------------------------

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
fn choice(signal: c_int) -> u64 {
    EACH_OF_OURS
        .iter()
        .position(|&s| s == signal)
        .map_or(0, |index| 1 << index)
}

fn choose_in_child(signal: c_int, handler: usize) {
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
pub struct Executing {
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
pub fn executing<F: FnMut() -> c_int>(execute: F) -> c_int {
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
fn leave_exec(uc: &mut ucontext_t) -> bool {
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
pub unsafe fn spawning(
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

// --- Interposed: masks ----------------------------------------------------------------------------------------------

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
pub unsafe fn raw_sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> i64 {
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

fn change_one(how: c_int, signal: c_int) -> c_int {
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

// --- Interposed: dispositions -----------------------------------------------------------------------------------------

/// A signal that programs set handlers for; libc keeps two for itself.
pub fn is_for_programs(signal: c_int) -> bool {
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
pub fn change_kernel_action(signal: c_int, new: Option<&KernelAction>) -> Result<KernelAction, i32> {
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
pub unsafe fn raw_sigaction(signal: c_int, new: *const c_void, old: *mut c_void) -> i64 {
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
extern "C" fn signal(signal: c_int, handler: usize) -> usize {
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
pub fn change_alternate_stack(here: u64, new: Option<&libc::stack_t>) -> Result<libc::stack_t, i32> {
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
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
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

// --- libc's functions behind the interposed ones ----------------------------------------------------------------------

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
type SetHandler = unsafe extern "C" fn(c_int, usize) -> usize;
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
static NEXT_SIGSUSPEND: Next<unsafe extern "C-unwind" fn(*const sigset_t) -> c_int> =
    unsafe { Next::new(c"sigsuspend") };
static NEXT_SIGTIMEDWAIT: Next<
    unsafe extern "C-unwind" fn(*const sigset_t, *mut siginfo_t, *const libc::timespec) -> c_int,
> = unsafe { Next::new(c"sigtimedwait") };
static NEXT_SIGWAIT: Next<unsafe extern "C-unwind" fn(*const sigset_t, *mut c_int) -> c_int> =
    unsafe { Next::new(c"sigwait") };
static NEXT_PPOLL: Next<
    unsafe extern "C-unwind" fn(*mut libc::pollfd, libc::nfds_t, *const libc::timespec, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"ppoll") };
static NEXT_PSELECT: Next<Pselect> = unsafe { Next::new(c"pselect") };
static NEXT_EPOLL_PWAIT: Next<
    unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, c_int, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"epoll_pwait") };
static NEXT_EPOLL_PWAIT2: Next<EpollPwait2> = unsafe { Next::new(c"epoll_pwait2") };
static NEXT_PTHREAD_ATTR_SETSIGMASK_NP: Next<
    unsafe extern "C" fn(*mut libc::pthread_attr_t, *const sigset_t) -> c_int,
> = unsafe { Next::new(c"pthread_attr_setsigmask_np") };
static NEXT_SIGACTION: Next<Sigaction> = unsafe { Next::new(c"sigaction") };
static NEXT_SIGNAL: Next<SetHandler> = unsafe { Next::new(c"signal") };
static NEXT_SYSV_SIGNAL: Next<SetHandler> = unsafe { Next::new(c"sysv_signal") };
static NEXT_SIGSET: Next<SetHandler> = unsafe { Next::new(c"sigset") };
static NEXT_SIGIGNORE: Next<unsafe extern "C" fn(c_int) -> c_int> = unsafe { Next::new(c"sigignore") };
static NEXT_SIGINTERRUPT: Next<unsafe extern "C" fn(c_int, c_int) -> c_int> = unsafe { Next::new(c"siginterrupt") };
static NEXT_SETCONTEXT: Next<unsafe extern "C" fn()> = unsafe { Next::new(c"setcontext") };
static NEXT_SWAPCONTEXT: Next<unsafe extern "C" fn()> = unsafe { Next::new(c"swapcontext") };
static NEXT_SIGALTSTACK: Next<unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int> =
    unsafe { Next::new(c"sigaltstack") };

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
