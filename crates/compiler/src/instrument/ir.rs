//! What both passes build that is more than one instruction.

use std::ops::Deref;

use crashproof_llvm::{Builder, CallingConvention, IntPredicate, Module, Value, Visibility};

/// A builder with the idioms of instrumented code.
pub(crate) struct Ir<'m>(Builder<'m>);

impl<'m> Deref for Ir<'m> {
    type Target = Builder<'m>;

    fn deref(&self) -> &Builder<'m> {
        &self.0
    }
}

impl<'m> Ir<'m> {
    pub(crate) fn new(module: &'m Module<'m>) -> Ir<'m> {
        Ir(Builder::new(module))
    }

    /// Moves static allocas to the top of the entry block, so that splitting it leaves them in the frame.
    pub(crate) fn gather_allocas(&self, function: Value<'m>) {
        let Some(entry) = function.blocks().next() else { return };
        let is_static = |i: &Value| i.is_alloca() && i.operand_at(0).unsigned().is_some();
        let allocas: Vec<Value> = entry.instructions().filter(is_static).collect();
        for alloca in allocas.into_iter().rev() {
            if let Some(first) = entry.instructions().next().filter(|first| *first != alloca) {
                self.move_before(alloca, first);
            }
        }
    }

    pub(crate) fn at_most(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.compare(IntPredicate::LLVMIntULE, one, other)
    }

    /// What a variable that is defined in this module's assembly holds, an i64.
    pub(crate) fn load_variable(&self, name: &str) -> Value<'m> {
        let i64 = self.module().integer_type(64);
        let variable = self.module().global(name).unwrap_or_else(|| {
            let variable = self.module().add_global(name, i64);
            variable.set_visibility(Visibility::LLVMHiddenVisibility);
            variable
        });
        self.load(i64, variable)
    }

    /// The i32 that lies some bytes behind an address.
    pub(crate) fn load_i32(&self, address: Value<'m>, offset: u64) -> Value<'m> {
        let at = self.offset_pointer(self.as_pointer(address), self.i64(offset));
        self.load(self.module().integer_type(32), at)
    }

    /// Calls a function of this module that keeps all registers but a few, with i64s, for an i64.
    pub(crate) fn call_preserving(&self, name: &str, arguments: &[Value<'m>]) -> Value<'m> {
        let convention = CallingConvention::LLVMPreserveMostCallConv;
        let function = self.module().function(name).unwrap_or_else(|| {
            let i64 = self.module().integer_type(64);
            let function = self.module().add_function(name, i64, &vec![i64; arguments.len()]);
            function.set_calling_convention(convention);
            function.set_visibility(Visibility::LLVMHiddenVisibility);
            function.add_attribute("nounwind");
            function
        });
        let call = self.call(function, arguments);
        call.set_calling_convention(convention);
        call
    }
}
