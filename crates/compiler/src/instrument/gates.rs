//! What each object brings along so that its sites can reach the runtime: the slot, the note by which the runtime finds it, and a gate for
//! each hook (`crashproof_wire::hooks`).
//!
//! All of it is one group, of which the linker keeps one copy in each linked module; everything is hidden, so each shared library has
//! its own. It survives `--gc-sections` because the sites call the gates, and `strip` because it is allocated.

use std::fmt::Write;

use crashproof_wire::hooks::{self, Hook};

/// Module-level assembly.
pub fn assembly() -> String {
    let mut text = String::new();
    let slot = hooks::SLOT;
    // Writing into a string does not fail.
    let _ = write!(
        text,
        "
.pushsection .bss.{slot},\"awG\",@nobits,{slot},comdat
.balign 8
.weak {slot}
.hidden {slot}
.type {slot}, @object
.size {slot}, 8
{slot}:
.zero 8
.popsection
.pushsection .note.{name},\"aG\",@note,{slot},comdat
.balign 4
.long {name_size}
.long 8
.long {version}
.asciz \"{name}\"
.balign 4
.L{slot}_note:
.quad {slot} - .L{slot}_note
.popsection
.pushsection .text.{slot},\"axG\",@progbits,{slot},comdat
",
        name = hooks::NOTE_NAME,
        name_size = hooks::NOTE_NAME.len() + 1,
        version = hooks::VERSION,
    );
    for &hook in Hook::ALL {
        let (gate, offset) = (hook.gate(), hook.offset());
        let _ = write!(
            text,
            "
.balign 16
.weak {gate}
.hidden {gate}
.type {gate}, @function
{gate}:
.cfi_startproc
movq {slot}(%rip), %r11
testq %r11, %r11
je .L{gate}_absent
jmpq *{offset}(%r11)
.L{gate}_absent:
xorl %eax, %eax
retq
.cfi_endproc
.size {gate}, . - {gate}
"
        );
    }
    text.push_str(".popsection\n");
    text
}
