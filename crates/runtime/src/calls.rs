//! Calls of libpmemobj's transaction functions, logged with their six register arguments.
//!
//! Each name gets a trampoline that the program's calls bind to. It saves the argument registers, has the call logged,
//! and jumps on to the real function, so that stack arguments, variable arguments and results are untouched.

use crate::{code_map, log, real, sys};
use std::arch::naked_asm;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! calls {
    ($($index:literal $name:ident)*) => {
        const NAMES: &[&str] = &[$(concat!(stringify!($name), "\0")),*];

        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            extern "C" fn $name() {
                naked_asm!("mov r11d, {index}", "jmp {call}", index = const $index, call = sym call)
            }
        )*
    };
}

calls! {
    0 pmemobj_tx_begin
    1 pmemobj_tx_lock
    2 pmemobj_tx_xlock
    3 pmemobj_tx_abort
    4 pmemobj_tx_commit
    5 pmemobj_tx_end
    6 pmemobj_tx_process
    7 pmemobj_tx_add_range
    8 pmemobj_tx_add_range_direct
    9 pmemobj_tx_xadd_range
    10 pmemobj_tx_xadd_range_direct
    11 pmemobj_tx_alloc
    12 pmemobj_tx_xalloc
    13 pmemobj_tx_zalloc
    14 pmemobj_tx_realloc
    15 pmemobj_tx_zrealloc
    16 pmemobj_tx_strdup
    17 pmemobj_tx_xstrdup
    18 pmemobj_tx_wcsdup
    19 pmemobj_tx_xwcsdup
    20 pmemobj_tx_free
    21 pmemobj_tx_xfree
    22 pmemobj_tx_publish
    23 pmemobj_tx_xpublish
}

static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Common tail of the trampolines; `r11` is the function's index.
#[unsafe(naked)]
extern "C" fn call() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        ".cfi_adjust_cfa_offset 56",
        "mov edi, r11d",
        "lea rsi, [rsp + 8]",
        "call {log}",
        "mov r11, rax",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp r11",
        ".cfi_endproc",
        log = sym log_call,
    )
}

/// Logs the call and returns the real function. `saved` holds the argument registers, last first.
unsafe extern "C" fn log_call(index: usize, saved: *const [u64; 6]) -> usize {
    let name = NAMES[index];
    // SAFETY: the trampoline pushed six registers there.
    let mut arguments = unsafe { *saved };
    arguments.reverse();
    sys::without_signals(|| {
        if log::session().is_some() {
            log::call(log::stack_here(), &name.as_bytes()[..name.len() - 1], &arguments);
        }
    });
    match REAL[index].load(Ordering::Relaxed) {
        0 => {
            let found = lookup(name);
            REAL[index].store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// The library's own function: behind us in the global scope, or in a library that was loaded with a scope of its own.
fn lookup(name: &str) -> usize {
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
        std::process::abort()
    };
    if let Some(found) = sys::without_signals(|| code_map::exported_function(name.to_bytes())) {
        return found;
    }
    let _errno = sys::KeptErrno::new();
    let next = real::next(name);
    if next != 0 {
        return next;
    }
    // SAFETY: NUL-terminated names; NOLOAD loads nothing.
    unsafe {
        let library = libc::dlopen(c"libpmemobj.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let found = libc::dlsym(library, name.as_ptr()) as usize;
        if found == 0 {
            std::process::abort();
        }
        found
    }
}
