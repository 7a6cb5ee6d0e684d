//! `memcpy`, `memmove`, `memset`: as intrinsics, which they are for the compiler, and as the calls that check bounds
//! (`_FORTIFY_SOURCE`). With `-fno-builtin` a call of `memcpy` may be one of the program's own function, and stays. Other functions of libc are left to store by themselves: they
//! fault and are recorded, as everything in libc is, and none of them writes enough to pay for a hook of its own.

use crashproof_llvm::{TypeKind, Value};
use crashproof_sites::SiteKind;
use crashproof_wire::hooks::Hook;

use super::Pass;

impl<'m> Pass<'m> {
    /// `name` is without `llvm.`.
    pub(super) fn memory_intrinsic(&mut self, call: Value<'m>, name: &str) {
        if name.contains(".element.") {
            return;
        }
        if name.starts_with("memcpy.") || name.starts_with("memmove.") {
            self.memory(call, Hook::Copy, None);
        } else if name.starts_with("memset.") {
            self.memory(call, Hook::Fill, None);
        }
    }

    pub(super) fn memory_function(&mut self, call: Value<'m>, name: &str) {
        let hook = match name {
            "__memcpy_chk" | "__memmove_chk" => Hook::Copy,
            "__memset_chk" => Hook::Fill,
            _ => return,
        };
        if is_as_declared(call, hook) && !call.is_musttail() {
            self.memory(call, hook, Some(call.operand_at(3)));
        }
    }

    /// Longer than `bound`, it is for the original to complain.
    fn memory(&mut self, call: Value<'m>, hook: Hook, bound: Option<Value<'m>>) {
        let (to, from, length) = (call.operand_at(0), call.operand_at(1), call.operand_at(2));
        let size = length.unsigned();
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
            self.join(call, &parts, (to, pm));
        }
    }
}

/// A program may have functions of its own with these names.
fn is_as_declared(call: Value, hook: Hook) -> bool {
    use TypeKind::{LLVMIntegerTypeKind, LLVMPointerTypeKind};
    let second = match hook {
        Hook::Copy => LLVMPointerTypeKind,
        _ => LLVMIntegerTypeKind,
    };
    let kinds = [LLVMPointerTypeKind, second, LLVMIntegerTypeKind, LLVMIntegerTypeKind];
    call.ty().kind() == LLVMPointerTypeKind
        && call.argument_count() as usize == kinds.len()
        && kinds
            .iter()
            .enumerate()
            .all(|(index, &kind)| call.operand_at(index as u32).ty().kind() == kind)
        && call.operand_at(2).ty() == call.operand_at(3).ty()
}
