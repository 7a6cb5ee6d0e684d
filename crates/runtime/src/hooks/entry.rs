//! Where instrumented code enters the runtime. The convention is that of `crashproof_wire::hooks`: every general register but
//! rax and r11 is kept, so each entry saves those that Rust's functions do not. They pass on, besides the four arguments, where
//! the return address lies and the caller's frame pointer.
//!
//! A hook runs on the thread's stack for our handlers, which nobody else uses while the program's code runs: the program's own may be too small
//! for unwinding it. From before the switch until after the switch back the program's handlers are put off ([`super::signals`]), so none ever runs on
//! our stack. A thread that has no state yet (made by a raw `clone`) is declined; the fault that follows gives it one.

use super::{events, signals};
use crate::threads::ThreadState;
use crashproof_wire::hooks::Hooks;
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

pub(crate) const FLAG: usize = offset_of!(ThreadState, in_hook) + signals::FLAG;
pub(crate) const DEFERRED: usize = offset_of!(ThreadState, in_hook) + signals::DEFERRED;

macro_rules! entry {
    // `$keep`: the jump condition, of the result compared with 0, on which the hook is not over when this returns.
    ($field:ident, $event:path, $keep:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $field() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov r11, qword ptr [rip + crashproof_thread@GOTTPOFF]",
                "mov r11, qword ptr fs:[r11]",
                "xor eax, eax",
                "test r11, r11",
                "jz 5f",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r10",
                ".cfi_adjust_cfa_offset 8",
                "push rbx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbx, 0",
                "push r11",
                ".cfi_adjust_cfa_offset 8",
                "lea r8, [rsp + 72]",
                "mov r9, rbp",
                "mov rbx, rsp",
                ".cfi_def_cfa_register rbx",
                "mov byte ptr [r11 + {flag}], 1",
                "mov rax, qword ptr [r11 + {stack}]",
                "test rax, rax",
                "jz 2f",
                "lea rsp, [rax + {size}]",
                "2: call {event}",
                "mov rsp, rbx",
                ".cfi_def_cfa_register rsp",
                "pop r11",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                concat!($keep, " 4f"),
                "mov byte ptr [r11 + {flag}], 0",
                "cmp byte ptr [r11 + {deferred}], 0",
                "jne 6f",
                "4: pop rbx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "pop r10",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "5: ret",
                ".cfi_adjust_cfa_offset 64",
                ".cfi_rel_offset rbx, 0",
                "6: push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {release}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "jmp 4b",
                ".cfi_endproc",
                flag = const $crate::hooks::entry::FLAG,
                deferred = const $crate::hooks::entry::DEFERRED,
                stack = const $crate::threads::STACK_OFFSET,
                size = const $crate::threads::STACK,
                event = sym $event,
                release = sym $crate::hooks::signals::release,
            )
        }
    };
}

pub(crate) use entry;

// No result is below zero: these are always over.
entry!(store, events::store, "js");
entry!(end, events::end, "js");
entry!(copy, events::copy, "js");
entry!(fill, events::fill, "js");
entry!(flush, events::flush, "js");
entry!(fence, events::fence, "js");
entry!(begin, events::begin, "jnz");

/// What the slots of instrumented modules point to.
pub(crate) static HOOKS: Hooks = Hooks {
    store,
    begin,
    end,
    copy,
    fill,
    flush,
    fence,
    pending: AtomicU32::new(0),
};
