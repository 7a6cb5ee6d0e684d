//! libc's own functions, where an interposed one needs them.

use crate::sys::KeptErrno;
use libc::{c_int, off_t};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The next definition of `name` behind ours.
///
/// `dlsym` forgets the thread's last error (`dlerror`) and sets one of its own if it finds nothing. So this is called before the program
/// runs ([`forget_errors`]); what is called later has to be looked up then.
pub(crate) fn next(name: &std::ffi::CStr) -> usize {
    let _errno = KeptErrno::new();
    // SAFETY: NUL-terminated name.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

static POSIX_FALLOCATE: AtomicUsize = AtomicUsize::new(0);

/// The program does not see an error of a function that this libc does not have.
pub(crate) fn forget_errors() {
    // SAFETY: returns a string of libc's, if any.
    unsafe { libc::dlerror() };
}

/// Looked up at start: dlsym allocates, and must not be called at any time.
pub(crate) fn resolve() {
    POSIX_FALLOCATE.store(next(c"posix_fallocate"), Ordering::Relaxed);
}

pub(crate) fn posix_fallocate() -> extern "C" fn(c_int, off_t, off_t) -> c_int {
    // SAFETY: libc always has it.
    unsafe { std::mem::transmute(POSIX_FALLOCATE.load(Ordering::Relaxed)) }
}

/// A function of libc's behind an interposed one of the same name; `F` is its type.
pub(crate) struct Next<F> {
    name: &'static std::ffi::CStr,
    address: AtomicUsize,
    function: std::marker::PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// `F` is the type of libc's function `name`.
    pub(crate) const unsafe fn new(name: &'static std::ffi::CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        Next {
            name,
            address: AtomicUsize::new(0),
            function: std::marker::PhantomData,
        }
    }

    /// The function, if it was looked up.
    pub(crate) fn known(&self) -> Option<F> {
        let address = self.address.load(Ordering::Relaxed);
        // SAFETY: a function pointer of the type that `new` was promised.
        (address != 0).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    /// Looked up at the start by [`Resolve::resolve`]; where that has not been (no session), at the first call.
    pub(crate) fn get(&self) -> F {
        if self.address.load(Ordering::Relaxed) == 0 {
            self.resolve();
        }
        let address = self.address.load(Ordering::Relaxed);
        // SAFETY: a function pointer of the type that `new` was promised.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

pub(crate) trait Resolve {
    fn resolve(&self);
}

impl<F> Resolve for Next<F> {
    fn resolve(&self) {
        self.address.store(next(self.name), Ordering::Relaxed);
    }
}
