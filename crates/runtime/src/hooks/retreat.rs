//! Where hooks would go wrong, they decline from then on, and instrumented code is recorded by faults, as all other code is.
//!
//! A hook has a stack and a state of its thread's. Tasks that a raw `clone` makes with the memory of their maker, and without
//! thread-local storage of their own, would share both. A thread that may be cancelled at any instruction might be
//! cancelled in the middle of a hook, by a signal of libc's own that nothing puts off.

use super::{NOTE, entry, slot};
use crate::real::{Next, Resolve};
use crate::{code_map, log, sys};
use crashproof_wire::hooks::Hooks;
use crashproof_wire::hooks::VERSION;
use libc::{c_int, c_void};
use std::arch::naked_asm;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static RETREATED: AtomicBool = AtomicBool::new(false);

#[unsafe(naked)]
unsafe extern "C" fn decline() {
    naked_asm!("xor eax, eax", "ret")
}

/// What has begun is ended.
static DECLINING: Hooks = Hooks {
    store: decline,
    begin: decline,
    end: entry::HOOKS.end,
    copy: decline,
    fill: decline,
    flush: decline,
    fence: decline,
    pending: AtomicU32::new(0),
};

pub(super) fn hooks() -> *mut Hooks {
    let hooks = match RETREATED.load(Ordering::Acquire) {
        true => &DECLINING,
        false => &entry::HOOKS,
    };
    (&raw const *hooks).cast_mut()
}

fn retreat() {
    if log::session().is_none() || RETREATED.swap(true, Ordering::AcqRel) {
        return;
    }
    sys::without_signals(|| {
        code_map::for_each_module(|module| {
            if let Some(slot) = slot(module, NOTE, VERSION) {
                slot.store(hooks().cast(), Ordering::Release);
            }
        });
    });
}

type Clone =
    unsafe extern "C" fn(usize, *mut c_void, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_void) -> c_int;
type SetCancelType = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;

// SAFETY: as libc declares them; the last three of `clone` are variable arguments, passed as any others.
static NEXT_CLONE: Next<Clone> = unsafe { Next::new(c"clone") };
// SAFETY: as above.
static NEXT_SET_CANCEL_TYPE: Next<SetCancelType> = unsafe { Next::new(c"pthread_setcanceltype") };

/// Looks up libc's functions.
pub(crate) fn resolve() {
    NEXT_CLONE.resolve();
    NEXT_SET_CANCEL_TYPE.resolve();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    routine: usize,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    // With CLONE_VFORK the maker waits for the child.
    if flags & libc::CLONE_VM != 0 && flags & (libc::CLONE_SETTLS | libc::CLONE_VFORK) == 0 {
        retreat();
    }
    // SAFETY: the program's own call.
    unsafe { NEXT_CLONE.get()(routine, stack, flags, argument, parent, tls, child) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    const ASYNCHRONOUS: c_int = 1;
    if kind == ASYNCHRONOUS {
        retreat();
    }
    // SAFETY: the program's own call.
    unsafe { NEXT_SET_CANCEL_TYPE.get()(kind, old) }
}
