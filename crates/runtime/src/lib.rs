//! The runtime: a shared object preloaded into the program under test, which records every change of PM, every flush and
//! every fence, and otherwise leaves the program as it is.
//!
//! - [`files`], [`names`], [`pm`]: PM mappings get a read-only view and a writable alias; [`registered`]: so does memory without a
//!   file that the program says is persistent;
//! - [`handler`]: a store to a view faults, a flush or fence hits a breakpoint, and both are performed and logged;
//!   [`ahead`]: whether to look for the next one at once;
//! - [`hooks`]: what code built by `crashproof cc` calls instead of faulting;
//! - [`labels`]: dependences between accesses to PM, in code built by `crashproof cc --deps`;
//! - [`code_map`]: which code is loaded, where its flushes and fences are, whose call stack this is;
//! - [`signals`], [`threads`], [`syscalls`], [`raw`], [`exec`], [`sanitizers`]: what is ours and what is the program's;
//! - [`log`]: the records, into the ring that `crashproof-wire` describes;
//! - [`watch`]: what is done instead in a recovery program of `crashproof crash`.
//!
//! Architecture invariant: knows the wire, not the trace. Nothing here may allocate with the program's allocator, hold a
//! lock while the program's code runs, or leave a file descriptor open.
#![warn(clippy::undocumented_unsafe_blocks)]

mod ahead;
mod alloc;
mod calls;
mod code_map;
mod exec;
mod files;
mod handler;
mod hooks;
mod labels;
mod locks;
mod log;
mod memory;
mod names;
mod pm;
mod raw;
mod real;
mod registered;
mod requests;
mod sanitizers;
mod selection;
mod signals;
mod spin;
mod sys;
mod syscalls;
mod threads;
mod watch;

use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

#[global_allocator]
static ALLOCATOR: alloc::Allocator = alloc::Allocator::new();

/// Run by the loader before every other constructor (`-z initfirst`).
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Run by the loader after every other destructor.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

extern "C" fn start(_: c_int, arguments: *const *const c_char, environment: *const *const c_char) {
    // libc has not set `environ` yet, so the loader's own argument is read.
    let session = variable(environment, crashproof_wire::SESSION_ENV.as_bytes());
    let recovery = variable(environment, crashproof_wire::recovery::RECOVERY_ENV.as_bytes());
    // Asked first: most functions of libc are the sanitizer's here, and do not work before it has started.
    let unrecorded = session.is_some() && sanitizers::leaves_no_room();
    if !unrecorded && (session.is_some() || recovery.is_some()) {
        // SAFETY: the loader's own blocks.
        unsafe { sanitizers::come_first(arguments, environment) };
    }
    let pending = signals::Inherited::take();
    let (record, watch) = match (session, recovery) {
        (Some(path), _) if unrecorded => {
            log::open_unrecorded(path);
            sanitizers::resolve();
            // SAFETY: the loader's own block.
            unsafe { exec::init(environment) };
            (false, false)
        }
        (Some(path), _) => (log::open(path), false),
        (None, Some(path)) => (false, watch::open(path)),
        (None, None) => (false, false),
    };
    registered::resolve();
    if !record {
        calls::init();
    }
    if !record && !watch {
        pending.give_back();
        return;
    }
    let _errno = sys::KeptErrno::new();
    // SAFETY: the loader's own block.
    unsafe { exec::init(environment) };
    threads::init();
    signals::adopt_mask(pending);
    sys::without_signals(|| {
        real::resolve();
        hooks::resolve();
        locks::init();
        syscalls::resolve();
        watch::server::resolve();
        watch::opens::resolve();
        selection::resolve();
        if record {
            start_recording();
        } else {
            start_watching(environment);
        }
        // SAFETY: plain functions that live as long as the process.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
            at_quick_exit(finish);
        }
        real::forget_errors();
    });
}

fn start_recording() {
    crashproof_instruction::init();
    let mut path = [0u8; 4096];
    log::start_process(code_map::executable(&mut path), code_map::init());
    signals::install();
    code_map::modules_changed();
    if syscalls::install().is_err() {
        log::incomplete(
            crashproof_wire::record::INCOMPLETE_UNSUPPORTED,
            b"seccomp is not available: what libc itself reads into PM, and the program's output, is not recorded",
        );
    }
}

fn start_watching(environment: *const *const c_char) {
    signals::install();
    if syscalls::install().is_err() {
        watch::without_filters();
    }
    match variable(environment, crashproof_wire::recovery::SERVER_ENV.as_bytes()) {
        Some(descriptor) => watch::server::prepare(descriptor),
        None => watch::begin(),
    }
}

unsafe extern "C" {
    fn at_quick_exit(function: extern "C" fn()) -> c_int;
}

extern "C" fn finish() {
    // A child that shares our memory until it executes a program ends alone.
    if log::session().is_some() && !signals::in_vfork_child() {
        handler::finish();
    }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    if let Some(natively) = sanitizers::natively() {
        // SAFETY: ends the process.
        unsafe { natively.exit.get()(status) };
    }
    finish();
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

/// The value of an environment variable in the block that the loader passes.
fn variable<'a>(mut environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: a NULL-terminated array of NUL-terminated strings that lives as long as the process.
    unsafe {
        while !(*environment).is_null() {
            let entry = CStr::from_ptr(*environment).to_bytes();
            if let Some(value) = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            environment = environment.add(1);
        }
    }
    None
}

/// The signal mask of the thread that forks, while it does.
static MASK_BEFORE_FORK: AtomicU64 = AtomicU64::new(0);

/// The child must not inherit a lock that another thread of the parent holds, nor what that thread had half changed.
extern "C" fn before_fork() {
    let _errno = sys::KeptErrno::new();
    let mask = sys::set_mask(!sys::OURS);
    // Whoever holds it may be waiting for any of the others.
    labels::before_fork();
    code_map::lock().leave_locked();
    registered::before_fork();
    pm::lock().leave_locked();
    names::before_fork();
    watch::before_fork();
    ALLOCATOR.lock.lock().leave_locked();
    MASK_BEFORE_FORK.store(mask, Ordering::Relaxed);
}

extern "C" fn after_fork_in_parent() {
    let errno = sys::KeptErrno::new();
    let mask = MASK_BEFORE_FORK.load(Ordering::Relaxed);
    ALLOCATOR.lock.reset();
    labels::after_fork();
    watch::after_fork_in_parent();
    registered::after_fork_in_parent();
    names::after_fork();
    pm::after_fork();
    code_map::after_fork();
    drop(errno);
    sys::set_mask(mask);
}

extern "C" fn after_fork_in_child() {
    threads::reset_after_fork();
    registered::after_fork_in_child();
    after_fork_in_parent();
    watch::after_fork_in_child();
    if log::session().is_none() {
        return;
    }
    sys::without_signals(|| {
        code_map::share();
        let mut path = [0u8; 4096];
        log::start_process(code_map::executable(&mut path), code_map::address_space());
        files::after_fork();
    });
}
