//! What each object brings along so that its sites can reach the runtime: the slot, the note by which the runtime finds it, and a gate for
//! each hook (`crashproof_wire::hooks`).
//!
//! All of it is one group, of which the linker keeps one copy in each linked module; everything is hidden, so each shared library has
//! its own. It survives `--gc-sections` because the sites call the gates, and `strip` because it is allocated.

use std::fmt::Write;

use crashproof_wire::hooks::{self, Hook};
use crashproof_wire::labels::{self, LabelHook, Shortcut};

/// Module-level assembly for the hooks of recording.
pub(crate) fn assembly() -> String {
    let gates = Hook::ALL
        .iter()
        .map(|hook| (hook.gate(), hook.offset(), Shortcut::None));
    group(hooks::SLOT, hooks::NOTE_NAME, hooks::VERSION, gates)
}

/// Module-level assembly for the functions that follow dependences.
pub(crate) fn label_assembly() -> String {
    let gates = LabelHook::ALL
        .iter()
        .map(|&hook| (hook.gate(), hook.offset(), labels::shortcut(hook)));
    group(labels::SLOT, labels::NOTE_NAME, labels::VERSION, gates)
}

fn group(slot: &str, name: &str, version: u32, gates: impl Iterator<Item = (&'static str, usize, Shortcut)>) -> String {
    let mut text = String::new();
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
        name_size = name.len() + 1,
    );
    for (gate, offset, shortcut) in gates {
        let shortcut = shortcut_assembly(gate, shortcut);
        let _ = write!(
            text,
            "
.balign 16
.weak {gate}
.hidden {gate}
.type {gate}, @function
{gate}:
.cfi_startproc
{shortcut}movq {slot}(%rip), %r11
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

fn shortcut_assembly(gate: &str, shortcut: Shortcut) -> String {
    match shortcut {
        Shortcut::None => String::new(),
        Shortcut::EitherZeroOrSame => format!(
            "movq %rsi, %rax\ntestq %rdi, %rdi\nje .L{gate}_known\nmovq %rdi, %rax\ntestq %rsi, %rsi\nje .L{gate}_known\n\
             cmpq %rdi, %rsi\njne .L{gate}_unknown\n.L{gate}_known:\nretq\n.L{gate}_unknown:\n"
        ),
        Shortcut::FirstZero => format!("testq %rdi, %rdi\nje .L{gate}_absent\n"),
        Shortcut::SecondZero => format!("testq %rsi, %rsi\nje .L{gate}_absent\n"),
    }
}
