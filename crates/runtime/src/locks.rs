//! Functions of libc that work on locks. They are interposed for two reasons.
//!
//! - A lock in PM is volatile data. Each call of such a function for an object in PM is logged, with the object's address and size as its arguments, before
//!   it is made. So an analysis knows which bytes are a lock's, whatever libc calls its functions inside and however they call each other.
//! - `--locked-rmw`: the locked instructions of libc itself get no breakpoints, because libc runs some of them with every signal blocked. Each successful
//!   call of the functions that the program locks and unlocks with is logged as the fence that its locked instruction is. Other locked instructions in libc
//!   (malloc's, stdio's) are not seen.
//!
//! `crashproof-check` has the names by which these functions begin; `corpus/threads/locks-beside-data.c` uses every kind of lock.

use crate::real::{Next, Resolve};
use crate::{log, pm, sys};
use crashproof_wire::record::{FENCE_LOCKED, INCOMPLETE_UNSUPPORTED};
use libc::{c_char, c_int, c_void};
use std::arch::naked_asm;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// libc's own flag: while it is set, its mutexes need no locked instruction and use none.
static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Sizes of the objects. C11's `mtx_t` and `cnd_t` are as large as pthread's.
const MUTEX: usize = size_of::<libc::pthread_mutex_t>();
const RWLOCK: usize = size_of::<libc::pthread_rwlock_t>();
const CONDITION: usize = size_of::<libc::pthread_cond_t>();
const BARRIER: usize = size_of::<libc::pthread_barrier_t>();
const SPIN: usize = size_of::<libc::pthread_spinlock_t>();
const SEMAPHORE: usize = size_of::<libc::sem_t>();

/// Functions that fence if they succeed.
macro_rules! fencing {
    ($($function:ident $next:ident $name:literal $size:ident)*) => {
        $(
            // SAFETY: each takes a pointer to the lock and returns 0 for success. Some can be cancelled, which unwinds.
            static $next: Next<unsafe extern "C-unwind" fn(*mut c_void) -> c_int> = unsafe { Next::new($name) };

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $function(lock: *mut c_void) -> c_int {
                note($name, lock, $size);
                // SAFETY: the program's own call.
                let result = unsafe { $next.get()(lock) };
                if result == 0 {
                    fence();
                }
                result
            }
        )*

        static FENCING: &[&Next<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>] = &[$(&$next),*];
    };
}

fencing! {
    pthread_mutex_lock NEXT_MUTEX_LOCK c"pthread_mutex_lock" MUTEX
    pthread_mutex_trylock NEXT_MUTEX_TRYLOCK c"pthread_mutex_trylock" MUTEX
    pthread_mutex_unlock NEXT_MUTEX_UNLOCK c"pthread_mutex_unlock" MUTEX
    pthread_rwlock_rdlock NEXT_RWLOCK_RDLOCK c"pthread_rwlock_rdlock" RWLOCK
    pthread_rwlock_wrlock NEXT_RWLOCK_WRLOCK c"pthread_rwlock_wrlock" RWLOCK
    pthread_rwlock_unlock NEXT_RWLOCK_UNLOCK c"pthread_rwlock_unlock" RWLOCK
    pthread_spin_lock NEXT_SPIN_LOCK c"pthread_spin_lock" SPIN
    pthread_spin_trylock NEXT_SPIN_TRYLOCK c"pthread_spin_trylock" SPIN
    sem_post NEXT_SEM_POST c"sem_post" SEMAPHORE
    sem_wait NEXT_SEM_WAIT c"sem_wait" SEMAPHORE
}

/// A function that is only noted.
struct Noted {
    name: &'static CStr,
    /// Of the object that its first argument points to.
    size: usize,
    next: Next<unsafe extern "C" fn()>,
}

/// Their trampolines jump on to libc's function, so that it may wait, be cancelled or be left by a jump as if it had been called directly.
macro_rules! noted {
    ($($index:literal $function:ident $size:ident)*) => {
        static NOTED: [Noted; [$($index),*].len()] = [
            $(Noted {
                name: name(concat!(stringify!($function), "\0")),
                size: $size,
                // SAFETY: only jumped to, with the arguments that the program passed.
                next: unsafe { Next::new(name(concat!(stringify!($function), "\0"))) },
            },)*
        ];

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $function() {
                naked_asm!("mov r11d, {index}", "jmp {go}", index = const $index, go = sym go)
            }
        )*
    };
}

const fn name(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("one NUL, at the end"),
    }
}

noted! {
    0 pthread_mutex_destroy MUTEX
    1 pthread_mutex_timedlock MUTEX
    2 pthread_mutex_clocklock MUTEX
    3 pthread_mutex_consistent MUTEX
    4 pthread_mutex_setprioceiling MUTEX
    5 pthread_rwlock_init RWLOCK
    6 pthread_rwlock_destroy RWLOCK
    7 pthread_rwlock_tryrdlock RWLOCK
    8 pthread_rwlock_trywrlock RWLOCK
    9 pthread_rwlock_timedrdlock RWLOCK
    10 pthread_rwlock_timedwrlock RWLOCK
    11 pthread_rwlock_clockrdlock RWLOCK
    12 pthread_rwlock_clockwrlock RWLOCK
    13 pthread_cond_init CONDITION
    14 pthread_cond_destroy CONDITION
    15 pthread_cond_wait CONDITION
    16 pthread_cond_timedwait CONDITION
    17 pthread_cond_clockwait CONDITION
    18 pthread_cond_signal CONDITION
    19 pthread_cond_broadcast CONDITION
    20 pthread_barrier_init BARRIER
    21 pthread_barrier_destroy BARRIER
    22 pthread_barrier_wait BARRIER
    23 pthread_spin_init SPIN
    24 pthread_spin_destroy SPIN
    25 pthread_spin_unlock SPIN
    26 sem_init SEMAPHORE
    27 sem_destroy SEMAPHORE
    28 sem_trywait SEMAPHORE
    29 sem_timedwait SEMAPHORE
    30 sem_clockwait SEMAPHORE
    31 mtx_init MUTEX
    32 mtx_destroy MUTEX
    33 mtx_lock MUTEX
    34 mtx_trylock MUTEX
    35 mtx_timedlock MUTEX
    36 mtx_unlock MUTEX
    37 cnd_init CONDITION
    38 cnd_destroy CONDITION
    39 cnd_wait CONDITION
    40 cnd_timedwait CONDITION
    41 cnd_signal CONDITION
    42 cnd_broadcast CONDITION
}

/// Common tail of the trampolines; `r11` is the function's index.
#[unsafe(naked)]
extern "C" fn go() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        ".cfi_adjust_cfa_offset 40",
        "mov rsi, rdi",
        "mov edi, r11d",
        "call {note}",
        "mov r11, rax",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -40",
        "jmp r11",
        ".cfi_endproc",
        note = sym note_by_index,
    )
}

/// Notes the object and returns libc's function.
extern "C" fn note_by_index(index: usize, object: *const c_void) -> usize {
    let Noted { name, size, next } = &NOTED[index];
    note(name, object, *size);
    next.get() as *const () as usize
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    // SAFETY: the program's call, with its attributes.
    unsafe {
        let mut robust = 0;
        if note(c"pthread_mutex_init", mutex.cast(), MUTEX) && !attributes.is_null() {
            NEXT_MUTEXATTR_GETROBUST.get()(attributes, &mut robust);
        }
        if robust == libc::PTHREAD_MUTEX_ROBUST {
            sys::without_signals(|| {
                log::incomplete(
                    INCOMPLETE_UNSUPPORTED,
                    b"a robust mutex in PM: the kernel's write at its owner's death is neither made nor recorded",
                )
            });
        }
        NEXT_MUTEX_INIT.get()(mutex, attributes)
    }
}

type MutexInit = unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;
type GetRobust = unsafe extern "C" fn(*const libc::pthread_mutexattr_t, *mut c_int) -> c_int;

// SAFETY: each with the type that libc's headers declare.
static NEXT_MUTEX_INIT: Next<MutexInit> = unsafe { Next::new(c"pthread_mutex_init") };
// SAFETY: as above.
static NEXT_MUTEXATTR_GETROBUST: Next<GetRobust> = unsafe { Next::new(c"pthread_mutexattr_getrobust") };

/// Looks up libc's functions.
pub(crate) fn init() {
    FENCING.iter().for_each(|next| next.resolve());
    NOTED.iter().for_each(|noted| noted.next.resolve());
    NEXT_MUTEX_INIT.resolve();
    NEXT_MUTEXATTR_GETROBUST.resolve();
    let flag = crate::real::next(c"__libc_single_threaded");
    SINGLE_THREADED.store(flag as *mut c_char, Ordering::Relaxed);
}

/// Logs a call for an object in PM; whether it is one.
#[inline]
fn note(function: &CStr, object: *const c_void, size: usize) -> bool {
    let is_noted = log::session().is_some() && pm::contains(object as u64, size as u64);
    if is_noted {
        log_note(function, object, size);
    }
    is_noted
}

#[cold]
fn log_note(function: &CStr, object: *const c_void, size: usize) {
    let arguments = [object as u64, size as u64, 0, 0, 0, 0];
    sys::without_signals(|| log::call(log::stack_here(), function.to_bytes(), &arguments));
}

#[inline]
fn fence() {
    if log::session().is_some_and(|session| session.options.locked_rmw != 0) {
        log_fence();
    }
}

#[cold]
fn log_fence() {
    // SAFETY: null, or libc's variable, which lives as long as the process.
    if unsafe { SINGLE_THREADED.load(Ordering::Relaxed).as_ref() }.is_some_and(|&single| single != 0) {
        return;
    }
    sys::without_signals(|| log::fence(log::stack_here(), FENCE_LOCKED));
}
