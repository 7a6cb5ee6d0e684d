//! `memcpy`, `memmove`, `memset`: as intrinsics, which they are for the compiler, and as the calls that check bounds
//! (`_FORTIFY_SOURCE`). With `-fno-builtin` a call of `memcpy` may be one of the program's own function, and stays. Other functions of libc are left to store by themselves: they
//! fault and are recorded, as everything in libc is, and none of them writes enough to pay for a hook of its own.

use crashproof_sites::SiteKind;
use crashproof_wire::hooks::Hook;
use llvm_sys::LLVMTypeKind;

use super::Pass;
use super::ir::Value;

impl Pass<'_> {
    /// `name` is without `llvm.`.
    pub(super) fn memory_intrinsic(&mut self, call: Value, name: &str) {
        if name.contains(".element.") {
            return;
        }
        if name.starts_with("memcpy.") || name.starts_with("memmove.") {
            self.memory(call, Hook::Copy, None);
        } else if name.starts_with("memset.") {
            self.memory(call, Hook::Fill, None);
        }
    }

    pub(super) fn memory_function(&mut self, call: Value, name: &str) {
        let hook = match name {
            "__memcpy_chk" | "__memmove_chk" => Hook::Copy,
            "__memset_chk" => Hook::Fill,
            _ => return,
        };
        if is_as_declared(call, hook) && !call.is_musttail() {
            self.memory(call, hook, Some(call.operand(3)));
        }
    }

    /// Longer than `bound`, it is for the original to complain.
    fn memory(&mut self, call: Value, hook: Hook, bound: Option<Value>) {
        let (to, from, length) = (call.operand(0), call.operand(1), call.operand(2));
        let size = length.constant_integer();
        if !self.may_be_pm(to) || size == Some(0) {
            return;
        }
        let site = self.site(SiteKind::Memory, call, Some((to, size)));
        let parts = self.set_apart(call);
        let pm = self.check(&parts, to, |ir, is_view| match bound {
            Some(bound) => ir.both(is_view, ir.at_most(length, bound)),
            None => is_view,
        });
        let arguments = [to, from, length].map(|argument| self.ir.as_i64(argument));
        let done = self.event(site, hook, &arguments);
        self.finish(&parts, done);
        if !call.ty().is_void() {
            self.ir.join(call, parts.original, (to, pm), parts.tail);
        }
    }
}

/// A program may have functions of its own with these names.
fn is_as_declared(call: Value, hook: Hook) -> bool {
    use LLVMTypeKind::{LLVMIntegerTypeKind, LLVMPointerTypeKind};
    let second = match hook {
        Hook::Copy => LLVMPointerTypeKind,
        _ => LLVMIntegerTypeKind,
    };
    let kinds = [LLVMPointerTypeKind, second, LLVMIntegerTypeKind, LLVMIntegerTypeKind];
    call.ty().kind() == LLVMPointerTypeKind
        && call.arguments() as usize == kinds.len()
        && kinds
            .iter()
            .enumerate()
            .all(|(index, &kind)| call.operand(index as u32).ty().kind() == kind)
}
