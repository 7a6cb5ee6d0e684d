//! Where instrumented code enters the runtime. The convention is that of `crashproof_wire::hooks`: every general register but
//! rax and r11 is kept, so each entry saves those that Rust's functions do not. They pass on, besides the four arguments, where the return
//! address lies and the caller's frame pointer.

use super::events;
use crashproof_wire::hooks::Hooks;
use std::arch::naked_asm;

macro_rules! entries {
    ($($field:ident)*) => {
        $(
            #[unsafe(naked)]
            unsafe extern "C" fn $field() {
                naked_asm!(
                    ".cfi_startproc",
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
                    "lea r8, [rsp + 56]",
                    "mov r9, rbp",
                    "call {event}",
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
                    "ret",
                    ".cfi_endproc",
                    event = sym events::$field,
                )
            }
        )*

        /// What the slots of instrumented modules point to.
        pub static HOOKS: Hooks = Hooks { $($field,)* };
    };
}

entries! { store begin end copy fill flush fence }
