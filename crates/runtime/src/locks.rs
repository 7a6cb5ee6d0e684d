//! `--locked-rmw` and libc's locks. The locked instructions of libc itself get no breakpoints, because libc runs some of
//! them with every signal blocked; its lock functions are interposed instead, and each successful call is logged as the
//! fence that its locked instruction is. Other locked instructions in libc (malloc's, stdio's) are not seen.

use crate::real::{Next, Resolve};
use crate::{log, sys};
use crashproof_wire::record::FENCE_LOCKED;
use libc::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// libc's own flag: while it is set, its mutexes need no locked instruction and use none.
static SINGLE_THREADED: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

macro_rules! locks {
    ($($function:ident $next:ident $name:literal)*) => {
        $(
            // SAFETY: each takes a pointer to the lock and returns 0 for success. Some can be cancelled, which unwinds.
            static $next: Next<unsafe extern "C-unwind" fn(*mut c_void) -> c_int> = unsafe { Next::new($name) };

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $function(lock: *mut c_void) -> c_int {
                // SAFETY: the program's own call.
                let result = unsafe { $next.get()(lock) };
                if result == 0 {
                    fence();
                }
                result
            }
        )*

        /// Looks up libc's functions.
        pub fn init() {
            $($next.resolve();)*
            let flag = crate::real::next(c"__libc_single_threaded");
            SINGLE_THREADED.store(flag as *mut c_char, Ordering::Relaxed);
        }
    };
}

locks! {
    pthread_mutex_lock NEXT_MUTEX_LOCK c"pthread_mutex_lock"
    pthread_mutex_trylock NEXT_MUTEX_TRYLOCK c"pthread_mutex_trylock"
    pthread_mutex_unlock NEXT_MUTEX_UNLOCK c"pthread_mutex_unlock"
    pthread_rwlock_rdlock NEXT_RWLOCK_RDLOCK c"pthread_rwlock_rdlock"
    pthread_rwlock_wrlock NEXT_RWLOCK_WRLOCK c"pthread_rwlock_wrlock"
    pthread_rwlock_unlock NEXT_RWLOCK_UNLOCK c"pthread_rwlock_unlock"
    pthread_spin_lock NEXT_SPIN_LOCK c"pthread_spin_lock"
    pthread_spin_trylock NEXT_SPIN_TRYLOCK c"pthread_spin_trylock"
    sem_post NEXT_SEM_POST c"sem_post"
    sem_wait NEXT_SEM_WAIT c"sem_wait"
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
