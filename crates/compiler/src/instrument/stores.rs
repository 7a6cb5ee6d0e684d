//! Stores and atomics.

use crashproof_llvm::AtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
use crashproof_llvm::{AtomicOperation, Type, TypeKind, Value};
use crashproof_sites::SiteKind;
use crashproof_wire::hooks::{Hook, what};
use crashproof_wire::record::{STORE_EXCHANGE, STORE_LOCKED, STORE_NONTEMPORAL};

use super::Pass;

/// No single instruction writes more.
const WIDEST: u64 = 64;

impl<'m> Pass<'m> {
    pub(super) fn store(&mut self, store: Value<'m>) {
        self.hooked_store(store);
        // An exchange, which is locked.
        if store.ordering() == LLVMAtomicOrderingSequentiallyConsistent {
            self.fence_by_lock(store);
        }
    }

    fn hooked_store(&mut self, store: Value<'m>) {
        let (value, pointer) = (store.operand_at(0), store.operand_at(1));
        if value.ty().is_scalable() || !self.may_be_pm(pointer) {
            return;
        }
        let size = self.ir.module().layout().store_size_of(value.ty());
        let nontemporal = match store.has_metadata("nontemporal") {
            true => has_nontemporal_form(value.ty(), size),
            false => Some(false),
        };
        let Some(nontemporal) = nontemporal else { return };
        let (kind, flags) = if nontemporal {
            (SiteKind::NontemporalStore, STORE_NONTEMPORAL)
        } else if store.ordering() == LLVMAtomicOrderingSequentiallyConsistent {
            (SiteKind::Atomic, STORE_LOCKED)
        } else {
            (SiteKind::Store, 0)
        };
        if flags & STORE_LOCKED != 0 || !fits_a_register(value.ty(), size) {
            self.bracketed(store, 1, size, kind, flags, |pass, _| pass.ir.i64(1));
            return;
        }
        let site = self.site(kind, store, Some((pointer, Some(size))));
        let parts = self.set_apart(store);
        self.check(&parts, pointer, |_, is_view| is_view);
        let pointer = self.recompute(pointer);
        let arguments = [
            self.ir.as_i64(pointer),
            self.ir.as_i64(value),
            self.ir.i64(what(size, flags)),
        ];
        let done = self.event(site, Hook::Store, &arguments);
        self.finish(&parts, done);
    }

    pub(super) fn read_modify_write(&mut self, instruction: Value<'m>) {
        let (pointer, value) = (instruction.operand_at(0), instruction.operand_at(1));
        if self.may_be_pm(pointer) && !changes_nothing(instruction, value) {
            let size = self.ir.module().layout().store_size_of(value.ty());
            let exchange = instruction.atomic_operation() == Some(AtomicOperation::LLVMAtomicRMWBinOpXchg)
                && instruction.is_used();
            let flags = STORE_LOCKED | if exchange { STORE_EXCHANGE } else { 0 };
            self.bracketed(instruction, 0, size, SiteKind::Atomic, flags, |pass, _| pass.ir.i64(1));
        }
        self.fence_by_lock(instruction);
    }

    pub(super) fn compare_and_exchange(&mut self, instruction: Value<'m>) {
        if self.may_be_pm(instruction.operand_at(0)) {
            let size = self.ir.module().layout().store_size_of(instruction.operand_at(1).ty());
            let flags = STORE_LOCKED | STORE_EXCHANGE;
            self.bracketed(instruction, 0, size, SiteKind::Atomic, flags, |pass, clone| {
                let exchanged = pass.ir.extract(clone, 1);
                pass.ir.as_i64(exchanged)
            });
        }
        self.fence_by_lock(instruction);
    }

    /// `llvm.masked.store(value, pointer, alignment, mask)`
    pub(super) fn masked_store(&mut self, call: Value<'m>) {
        let ty = call.operand_at(0).ty();
        let Some(element) = ty.element(0).filter(|_| ty.is_vector()) else {
            return;
        };
        let lanes = ty.length();
        let size = self.ir.module().layout().store_size_of(element);
        if self.may_be_pm(call.operand_at(1)) && lanes <= 64 {
            self.bracketed_elements(call, 1, (size, lanes), SiteKind::Store, 0, |pass, _| {
                pass.ir.as_i64(call.operand_at(3))
            });
        }
    }

    fn bracketed(
        &mut self,
        instruction: Value<'m>,
        pointer: u32,
        size: u64,
        kind: SiteKind,
        flags: u8,
        lanes: impl FnOnce(&Self, Value<'m>) -> Value<'m>,
    ) {
        self.bracketed_elements(instruction, pointer, (size, 1), kind, flags, lanes);
    }

    /// Executes a copy of the instruction, whose operand `pointer` says where it writes, on the alias, between two hooks. `lanes` gives a bit
    /// for each of the elements (size, number): whether the copy wrote it.
    fn bracketed_elements(
        &mut self,
        instruction: Value<'m>,
        pointer: u32,
        (size, number): (u64, u64),
        kind: SiteKind,
        flags: u8,
        lanes: impl FnOnce(&Self, Value<'m>) -> Value<'m>,
    ) {
        let (at, length) = (instruction.operand_at(pointer), size * number);
        if length == 0 || length > WIDEST {
            return;
        }
        let site = self.site(kind, instruction, Some((at, Some(length))));
        let parts = self.set_apart(instruction);
        self.check(&parts, at, |_, is_view| is_view);
        let at = self.recompute(at);
        let (address, size_in_bytes) = (self.ir.as_i64(at), self.ir.i64(length));
        let delta = self.ir.call_preserving(Hook::Begin.gate(), &[address, size_in_bytes]);
        let on_alias = self.ir.block_at_end(parts.head.function());
        let declined = self.ir.equal(delta, self.ir.i64(0));
        self.ir.branch_if(declined, parts.original, on_alias);

        self.ir.at_end(on_alias, parts.location);
        let alias = self.ir.offset_pointer(at, delta);
        let copy = self.ir.clone_here(instruction);
        self.ir.set_operand(copy, pointer, alias);
        let lanes = lanes(self, copy);
        let arguments = [address, size_in_bytes, self.ir.i64(what(size, flags)), lanes];
        self.event(site, Hook::End, &arguments);
        self.ir.branch(parts.tail);
        self.join(instruction, &parts, (copy, on_alias));
    }
}

/// A scalar that one `mov` stores.
fn fits_a_register(ty: Type, size: u64) -> bool {
    match ty.kind() {
        TypeKind::LLVMIntegerTypeKind => [1, 2, 4, 8].contains(&size) && ty.bits().is_some_and(u32::is_power_of_two),
        TypeKind::LLVMPointerTypeKind
        | TypeKind::LLVMHalfTypeKind
        | TypeKind::LLVMBFloatTypeKind
        | TypeKind::LLVMFloatTypeKind
        | TypeKind::LLVMDoubleTypeKind => true,
        _ => false,
    }
}

/// Of what is marked as non-temporal, code generation makes ordinary stores where the processor has no such form. `None`: it depends on the
/// processor that code is made for, so the store is left to be recorded as it is executed.
fn has_nontemporal_form(ty: Type, size: u64) -> Option<bool> {
    match ty.kind() {
        TypeKind::LLVMIntegerTypeKind | TypeKind::LLVMPointerTypeKind => Some(size >= 4),
        TypeKind::LLVMVectorTypeKind if size >= 16 => Some(true),
        _ => None,
    }
}

/// Code generation makes a fence and a load of it, not a store.
fn changes_nothing(instruction: Value, value: Value) -> bool {
    use AtomicOperation::*;
    match instruction.atomic_operation() {
        Some(LLVMAtomicRMWBinOpAdd | LLVMAtomicRMWBinOpSub | LLVMAtomicRMWBinOpOr | LLVMAtomicRMWBinOpXor) => {
            value.is_null()
        }
        Some(LLVMAtomicRMWBinOpAnd) => value.is_all_ones(),
        _ => false,
    }
}
