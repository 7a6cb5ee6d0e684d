//! Per-thread state, and an alternate signal stack for every thread.
//!
//! The state hangs off one word of static thread-local storage, so that a handler reaches it without libc: no allocation,
//! no lazy set-up of thread-local blocks. A thread made by `pthread_create` or `thrd_create` gets its state and a stack for
//! our handlers before its start routine runs, so that a PM store works on the smallest stack. Other work of ours is done there
//! too ([`on_own_stack`]). Any other thread (a raw `clone`, a helper of libc's) gets a state at its first event, and its handlers
//! run on its own stack. Those of libc's that run a function of the program's (`SIGEV_THREAD`) do so with all signals blocked,
//! so ours are unblocked there first.
//!
//! The memory of a thread that has ended is used again, but only once the kernel no longer knows the thread: up to its very
//! last instruction it may still fault.

use crate::code_map::Registers;
use crate::hooks::InHook;
use crate::real::{Next, Resolve};
use crate::{signals, spin::Spin, sys, syscalls, watch};
use libc::{c_int, c_void};
use std::arch::{asm, global_asm, naked_asm};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const GUARD: u64 = 4096;
pub(crate) const STACK: u64 = 256 << 10;
const STATE: u64 = 4096;

/// What the runtime keeps for a thread.
pub(crate) struct ThreadState {
    /// The kernel's id of the thread. Memory of an ended thread is used again: whoever keeps something in `user` compares.
    pub os_id: u32,
    /// The logger's.
    pub user: *mut c_void,
    /// Those of our signals (and the shadow signal) that the program has blocked; valid while the shadow signal is really
    /// blocked. See [`signals`].
    pub blocked: u64,
    /// What the thread itself has there, while a vfork child, which shares this state, has changed it.
    lent: Option<(u64, u32)>,
    /// The alternate stack that the program asked for; the kernel knows ours only.
    pub alternate: libc::stack_t,
    /// Of our own, for the handlers; null if the thread was not made by `pthread_create`.
    stack: *mut c_void,
    /// Memory for bounce buffers, unless it is in use. See [`crate::syscalls`].
    pub bounce: *mut u8,
    /// See [`crate::hooks::signals`].
    pub in_hook: InHook,
    /// Those of our signals that some process sent while our own code ran.
    pub sent: [Option<Sent>; 4],
    /// A system call is being made only to see whether the filter traps it.
    pub probing: bool,
    /// Where the program stands, while a system call of its own is made for it; else null. See [`crate::raw`].
    pub raw_call: *const libc::ucontext_t,
    /// An exec that is under way.
    pub executing: signals::Executing,
    /// Where the program's stack was left for our own; see [`on_own_stack`].
    left_at: Option<Registers>,
    /// See [`crate::registered::try_again`].
    pub restored: u32,
    /// The program's stack of a thread made by `pthread_create` or `thrd_create`: its lowest address, if the program gave
    /// it, and the thread's control block, which is at its upper end; 0 before it runs.
    stack_low: u64,
    control_block: u64,
    /// In the list of all states.
    all: *mut ThreadState,
    routine: usize,
    argument: *mut c_void,
    /// The mask to start with.
    mask: u64,
    /// In the list of ended threads.
    next: *mut ThreadState,
}

const _: () = assert!(size_of::<ThreadState>() <= STATE as usize);

/// A signal, and the task that got it. A task that is copied with this memory (fork), or that shares it (vfork), was not sent it.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    info: libc::siginfo_t,
    task: u32,
}

impl Sent {
    pub(crate) fn to_this_task(info: &libc::siginfo_t) -> Sent {
        Sent {
            info: *info,
            task: sys::gettid(),
        }
    }
}

impl ThreadState {
    /// What [`ThreadState::blocked`] is for this task: a vfork child has its own, its parent has what it had before.
    pub(crate) fn blocked_here(&mut self) -> &mut u64 {
        if let Some((parents, borrower)) = self.lent
            && sys::gettid() != borrower
        {
            self.blocked = parents;
            self.lent = None;
        }
        &mut self.blocked
    }

    pub(crate) fn block(&mut self, blocked: u64) {
        let known = *self.blocked_here();
        if known != blocked {
            if self.lent.is_none() && crate::signals::in_vfork_child() {
                self.lent = Some((known, sys::gettid()));
            }
            self.blocked = blocked;
        }
    }

    /// Takes the signal at `index` out of [`ThreadState::sent`] if this task was sent it.
    pub(crate) fn take_sent(&mut self, index: usize) -> Option<libc::siginfo_t> {
        let sent = &mut self.sent[index];
        sent.take_if(|sent| sent.task == sys::gettid()).map(|sent| sent.info)
    }
}

/// Of the stack for our handlers in a [`ThreadState`], for the entries of the hooks.
pub(crate) const STACK_OFFSET: usize = std::mem::offset_of!(ThreadState, stack);

global_asm!(
    ".pushsection .tbss.crashproof_thread, \"awT\", @nobits",
    ".balign 8",
    ".hidden crashproof_thread",
    ".globl crashproof_thread",
    ".type crashproof_thread, @object",
    ".size crashproof_thread, 8",
    "crashproof_thread: .zero 8",
    ".popsection",
);

fn slot() -> *mut *mut ThreadState {
    let address: *mut *mut ThreadState;
    // SAFETY: the initial-exec sequence: the word's offset from the thread pointer, which fs:0 holds.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + crashproof_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) address,
            options(nostack, readonly),
        );
    }
    address
}

/// The calling thread's state.
pub(crate) fn current() -> &'static mut ThreadState {
    // SAFETY: the slot is this thread's; its state lives until the thread is gone. Handlers of this thread may hold a
    // reference at the same time as interrupted code does, but neither keeps one across the other's changes.
    unsafe {
        let slot = slot();
        if (*slot).is_null() {
            let Some(memory) = sys::map_anonymous(STATE) else {
                sys::fail(b"no memory for a thread's state")
            };
            *slot = initialise(memory.cast());
            (**slot).os_id = sys::gettid();
        }
        &mut **slot
    }
}

/// # Safety
/// `state` points to memory for a state that nobody else uses.
unsafe fn initialise(state: *mut ThreadState) -> *mut ThreadState {
    // SAFETY: the caller's promise.
    unsafe {
        let (user, bounce) = ((*state).user, (*state).bounce);
        state.write(ThreadState {
            os_id: 0,
            user,
            blocked: 0,
            lent: None,
            alternate: libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            },
            stack: std::ptr::null_mut(),
            bounce,
            in_hook: InHook::default(),
            sent: [None; 4],
            probing: false,
            raw_call: std::ptr::null(),
            executing: signals::Executing::default(),
            left_at: None,
            restored: 0,
            stack_low: 0,
            control_block: 0,
            all: (*state).all,
            routine: 0,
            argument: std::ptr::null_mut(),
            mask: 0,
            next: std::ptr::null_mut(),
        });
    }
    state
}

/// Ended threads whose memory waits to be used again.
struct Ended {
    lock: Spin,
    first: UnsafeCell<*mut ThreadState>,
}

// SAFETY: `first` is only touched with the lock held.
unsafe impl Sync for Ended {}

static ENDED: Ended = Ended {
    lock: Spin::new(),
    first: UnsafeCell::new(std::ptr::null_mut()),
};

/// The states of all threads that [`prepare`] ever made one for; they are never unmapped.
static ALL: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());

/// Whether some of [start, end), which lies in the given mapping, is the stack of a running thread.
pub(crate) fn is_stack(start: u64, end: u64, mapping: Range<u64>) -> bool {
    const PAGE: u64 = 4096;
    let process = sys::getpid() as u64;
    let mut next = ALL.load(Ordering::Acquire);
    // SAFETY: states are never unmapped. The fields may be of a thread that has just ended, or of the next.
    while let Some(state) = unsafe { next.as_ref() } {
        let (low, high) = (state.stack_low.max(mapping.start), state.control_block | (PAGE - 1));
        let arguments = [process, state.os_id as u64, 0, 0, 0, 0];
        // A guard page, or what the program said, is where the stack ends; libc puts the control block into its last page.
        if mapping.contains(&state.control_block)
            && start <= high
            && end > low
            // SAFETY: signal 0 only probes.
            && unsafe { sys::syscall(libc::SYS_tgkill, arguments) }.is_ok()
        {
            return true;
        }
        next = state.all;
    }
    false
}

/// Its destructor tells that a thread ends.
static KEY: AtomicU32 = AtomicU32::new(0);
static ACTIVE: AtomicBool = AtomicBool::new(false);

type PthreadCreate =
    unsafe extern "C-unwind" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, usize, *mut c_void) -> c_int;
type ThrdCreate = unsafe extern "C-unwind" fn(*mut c_void, usize, *mut c_void) -> c_int;
type TimerCreate = unsafe extern "C" fn(libc::clockid_t, *mut libc::sigevent, *mut libc::timer_t) -> c_int;
type MqNotify = unsafe extern "C" fn(libc::mqd_t, *const libc::sigevent) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_PTHREAD_CREATE: Next<PthreadCreate> = unsafe { Next::new(c"pthread_create") };
// SAFETY: as above.
static NEXT_THRD_CREATE: Next<ThrdCreate> = unsafe { Next::new(c"thrd_create") };
// SAFETY: as above.
static NEXT_TIMER_CREATE: Next<TimerCreate> = unsafe { Next::new(c"timer_create") };
// SAFETY: as above.
static NEXT_MQ_NOTIFY: Next<MqNotify> = unsafe { Next::new(c"mq_notify") };

/// State and stack of the first thread, and what later threads need.
pub(crate) fn init() {
    let mut key = 0;
    // SAFETY: a plain key whose destructor lives as long as the process.
    if unsafe { libc::pthread_key_create(&mut key, Some(ended)) } != 0 {
        return;
    }
    KEY.store(key, Ordering::Relaxed);
    NEXT_PTHREAD_CREATE.resolve();
    NEXT_THRD_CREATE.resolve();
    NEXT_TIMER_CREATE.resolve();
    NEXT_MQ_NOTIFY.resolve();
    if let Some(state) = prepare() {
        enter(state);
    }
    ACTIVE.store(true, Ordering::Release);
}

/// In a forked child: it has one thread, and a new id.
pub(crate) fn reset_after_fork() {
    ENDED.lock.reset();
    signals::reset_after_fork();
    syscalls::reset_after_fork();
    let state = current();
    state.os_id = sys::gettid();
    // A child is not sent what its parent was. But it may have been sent something itself, before it came here.
    for sent in &mut state.sent {
        sent.take_if(|sent| sent.task != state.os_id);
    }
}

/// State and stack for a thread to come, used again or new.
fn prepare() -> Option<*mut ThreadState> {
    if let Some(state) = sys::without_signals(take_ended) {
        // SAFETY: its thread is gone, and it was taken from the list under the lock.
        return Some(unsafe { initialise(state) });
    }
    let memory = sys::map_anonymous(GUARD + STACK + STATE)?;
    // SAFETY: the first page of the mapping just made; then its last one.
    unsafe {
        let arguments = [memory as u64, GUARD, libc::PROT_NONE as u64, 0, 0, 0];
        let _ = sys::syscall(libc::SYS_mprotect, arguments);
        let state = initialise(memory.add((GUARD + STACK) as usize).cast());
        (*state).all = ALL.load(Ordering::Relaxed);
        while let Err(first) = ALL.compare_exchange((*state).all, state, Ordering::Release, Ordering::Relaxed) {
            (*state).all = first;
        }
        Some(state)
    }
}

fn take_ended() -> Option<*mut ThreadState> {
    let process = sys::getpid() as u64;
    let _held = ENDED.lock.lock();
    let mut link = ENDED.first.get();
    // SAFETY: the lock is held; the list holds states that are never unmapped.
    unsafe {
        while !(*link).is_null() {
            let state = *link;
            let thread = (*state).os_id as u64;
            let gone = thread == 0 || sys::syscall(libc::SYS_tgkill, [process, thread, 0, 0, 0, 0]) == Err(libc::ESRCH);
            if gone {
                *link = (*state).next;
                return Some(state);
            }
            link = &raw mut (*state).next;
        }
    }
    None
}

fn retire(state: *mut ThreadState) {
    sys::without_signals(|| {
        let _held = ENDED.lock.lock();
        // SAFETY: the lock is held.
        unsafe {
            (*state).next = *ENDED.first.get();
            *ENDED.first.get() = state;
        }
    });
}

unsafe extern "C" fn ended(state: *mut c_void) {
    retire(state.cast());
}

/// In the new thread, before anything of the program's: its state and the kernel's alternate stack.
fn enter(state: *mut ThreadState) {
    // SAFETY: the slot is this thread's; `prepare` mapped the stack below the state.
    unsafe {
        (*state).os_id = sys::gettid();
        (*state).stack = (state as u64 - STACK) as *mut c_void;
        *slot() = state;
        libc::pthread_setspecific(KEY.load(Ordering::Relaxed), state.cast());
    }
    reclaim_stack();
}

impl ThreadState {
    fn owns(&self, address: u64) -> bool {
        !self.stack.is_null() && address.wrapping_sub(self.stack as u64) < STACK
    }
}

/// Whether the address is on our own stack of this thread.
pub(crate) fn is_own_stack(address: u64) -> bool {
    current().owns(address)
}

/// Whether the caller, a handler, runs on our own stack. If not, what lies below the interrupted stack pointer is in use.
pub(crate) fn is_on_own_stack() -> bool {
    let here = 0u8;
    is_own_stack(&raw const here as u64)
}

/// Runs `f`, code of ours, on our own stack: it needs more than the program may have left on its own (a goroutine's, a handler's
/// alternate stack, a thread with the least stack that there is). Signals other than ours are blocked, so that nothing else needs our
/// stack meanwhile. A thread without one, and a task that shares the state of another (vfork, a raw clone), stays where it is.
pub(crate) fn on_own_stack<R>(f: impl FnOnce() -> R) -> R {
    struct Call<F, R> {
        f: Option<F>,
        result: Option<R>,
    }

    extern "C" fn make<F: FnOnce() -> R, R>(call: *mut c_void) {
        // SAFETY: the one below, which waits for us.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.f.take().map(|f| f());
    }

    fn with<F: FnOnce() -> R, R>(call: &mut Call<F, R>) {
        let here = 0u8;
        // SAFETY: the slot is this thread's, null or with a state that lives until the thread is gone.
        let state = unsafe { (*slot()).as_mut() }.filter(|state| {
            !state.stack.is_null() && !state.owns(&raw const here as u64) && state.os_id == sys::gettid()
        });
        let Some(state) = state else {
            make::<F, R>((&raw mut *call).cast());
            return;
        };
        let top = state.stack as u64 + STACK;
        state.left_at = Some(Registers::here());
        // SAFETY: our stack is free, since we are on another: whatever of ours runs on it has signals blocked or puts them off, and has
        // left it before code of the program's runs.
        unsafe { call_on(top, make::<F, R>, (&raw mut *call).cast()) };
        state.left_at = None;
    }

    let mut call = Call {
        f: Some(f),
        result: None,
    };
    with(&mut call);
    match call.result {
        Some(result) => result,
        None => sys::fail(b"code of the runtime has not run"),
    }
}

/// Where the program's stack was left, for whoever runs on ours by [`on_own_stack`].
pub(crate) fn left_at() -> Option<Registers> {
    current().left_at
}

/// Calls `function(argument)` with the stack pointer at `top`.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: u64, function: extern "C" fn(*mut c_void), argument: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Makes our stack the kernel's alternate stack of this thread, if it has one and it is not; returns what was there.
pub(crate) fn reclaim_stack() -> Option<libc::stack_t> {
    let ours = libc::stack_t {
        ss_sp: current().stack,
        ss_flags: 0,
        ss_size: STACK as usize,
    };
    let mut known = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: asks, then sets; the stack belongs to this thread alone. The kernel refuses while it is in use.
    unsafe {
        sys::syscall(libc::SYS_sigaltstack, [0, &raw mut known as u64, 0, 0, 0, 0]).ok()?;
        if ours.ss_sp.is_null() || known.ss_sp == ours.ss_sp {
            return None;
        }
        sys::syscall(libc::SYS_sigaltstack, [&raw const ours as u64, 0, 0, 0, 0, 0]).ok()?;
    }
    Some(known)
}

type Routine = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type RoutineC11 = extern "C-unwind" fn(*mut c_void) -> c_int;

extern "C-unwind" fn begin(state: *mut c_void) -> *mut c_void {
    let (routine, argument) = enter_new(state);
    // SAFETY: the routine given to `pthread_create`.
    unsafe { std::mem::transmute::<usize, Routine>(routine)(argument) }
}

extern "C-unwind" fn begin_c11(state: *mut c_void) -> c_int {
    let (routine, argument) = enter_new(state);
    // SAFETY: the routine given to `thrd_create`.
    unsafe { std::mem::transmute::<usize, RoutineC11>(routine)(argument) }
}

fn enter_new(state: *mut c_void) -> (usize, *mut c_void) {
    let state: *mut ThreadState = state.cast();
    enter(state);
    // SAFETY: filled in by the creator; fs:0 holds the address of the control block.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            out(reg)(*state).control_block,
            options(nostack, readonly)
        );
        signals::unblock_at_start((*state).mask);
        ((*state).routine, (*state).argument)
    }
}

/// Calls `create` with the runtime's start routine in place of the program's, or with the program's own where that fails.
fn create(
    routine: usize,
    argument: *mut c_void,
    ours: usize,
    stack_low: u64,
    create: impl FnOnce(usize, *mut c_void) -> c_int,
) -> c_int {
    watch::thread_made();
    let prepared = if ACTIVE.load(Ordering::Acquire) {
        prepare()
    } else {
        None
    };
    let Some(state) = prepared else {
        return create(routine, argument);
    };
    // SAFETY: nobody else has the state yet.
    unsafe {
        (*state).routine = routine;
        (*state).argument = argument;
        (*state).blocked = *current().blocked_here();
        (*state).stack_low = stack_low;
    }
    let mask = signals::block_for_start();
    // SAFETY: as above.
    unsafe { (*state).mask = mask };
    let result = create(ours, state.cast());
    sys::set_mask(mask);
    if result != 0 {
        retire(state);
    }
    result
}

/// Where the stack begins that the program gives to a thread; 0 if libc makes it.
fn given_stack(attributes: *const libc::pthread_attr_t) -> u64 {
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the program's attributes; libc fills in both.
    if attributes.is_null() || unsafe { libc::pthread_attr_getstack(attributes, &mut low, &mut size) } != 0 {
        return 0;
    }
    // Without one, its end is said to be at 0.
    let low = low as u64;
    if low.wrapping_add(size as u64) == 0 { 0 } else { low }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: usize,
    argument: *mut c_void,
) -> c_int {
    let stack_low = given_stack(attributes);
    create(
        routine,
        argument,
        begin as Routine as usize,
        stack_low,
        |routine, argument| {
            // SAFETY: the program's call, but for the routine.
            unsafe { NEXT_PTHREAD_CREATE.get()(thread, attributes, routine, argument) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn thrd_create(thread: *mut c_void, routine: usize, argument: *mut c_void) -> c_int {
    create(
        routine,
        argument,
        begin_c11 as RoutineC11 as usize,
        0,
        |routine, argument| {
            // SAFETY: the program's call, but for the routine.
            unsafe { NEXT_THRD_CREATE.get()(thread, routine, argument) }
        },
    )
}

/// The word of a `sigevent` in which libc has the function: behind the value and two integers.
const EVENT_FUNCTION: usize = 2;

/// What a thread of libc's is to call.
struct Notification {
    function: extern "C-unwind" fn(*mut c_void),
    value: *mut c_void,
}

extern "C-unwind" fn notified(notification: *mut c_void) {
    // SAFETY: made by `through_us`, and never freed: a timer may fire again at any time.
    let notification = unsafe { &*notification.cast::<Notification>() };
    signals::unblock_ours();
    (notification.function)(notification.value);
}

/// The event as it was, or one whose function is called through [`notified`].
unsafe fn through_us(event: *const libc::sigevent) -> Option<libc::sigevent> {
    if !ACTIVE.load(Ordering::Acquire) || event.is_null() {
        return None;
    }
    // SAFETY: the program's event; with SIGEV_THREAD its third word is a function.
    unsafe {
        let mut own = *event;
        let function = (&raw mut own).cast::<usize>().add(EVENT_FUNCTION);
        if own.sigev_notify != libc::SIGEV_THREAD || *function == 0 {
            return None;
        }
        let notification = Notification {
            function: std::mem::transmute::<usize, extern "C-unwind" fn(*mut c_void)>(*function),
            value: own.sigev_value.sival_ptr,
        };
        let notification = sys::without_signals(|| Box::leak(Box::new(notification)));
        own.sigev_value.sival_ptr = (&raw mut *notification).cast();
        *function = notified as extern "C-unwind" fn(*mut c_void) as usize;
        Some(own)
    }
}

/// Tells the program that an asynchronous operation has ended, as its event asks.
pub(crate) fn notify(event: &libc::sigevent) {
    // SAFETY: the program's event; all-zero is a valid siginfo, whose value stands behind the sender's pid and uid.
    unsafe {
        match event.sigev_notify {
            libc::SIGEV_SIGNAL => {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                info.si_signo = event.sigev_signo;
                info.si_code = libc::SI_ASYNCIO;
                (&raw mut info)
                    .cast::<*mut c_void>()
                    .add(3)
                    .write(event.sigev_value.sival_ptr);
                let arguments = [
                    sys::getpid() as u64,
                    event.sigev_signo as u64,
                    &raw const info as u64,
                    0,
                    0,
                    0,
                ];
                let _ = sys::syscall(libc::SYS_rt_sigqueueinfo, arguments);
            }
            libc::SIGEV_THREAD => {
                let function = (&raw const *event).cast::<usize>().add(EVENT_FUNCTION).read();
                let mut thread = 0;
                if pthread_create(&mut thread, std::ptr::null(), function, event.sigev_value.sival_ptr) == 0 {
                    libc::pthread_detach(thread);
                }
            }
            _ => {}
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn timer_create(
    clock: libc::clockid_t,
    event: *mut libc::sigevent,
    timer: *mut libc::timer_t,
) -> c_int {
    // SAFETY: the program's call, but for the function.
    unsafe {
        let mut own = through_us(event);
        NEXT_TIMER_CREATE.get()(clock, own.as_mut().map_or(event, |own| own), timer)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mq_notify(queue: libc::mqd_t, event: *const libc::sigevent) -> c_int {
    // SAFETY: the program's call, but for the function.
    unsafe {
        let own = through_us(event);
        NEXT_MQ_NOTIFY.get()(queue, own.as_ref().map_or(event, |own| own))
    }
}
