//! Basic blocks.

use std::marker::PhantomData;

use llvm_sys::core::*;
use llvm_sys::prelude::LLVMBasicBlockRef;

use crate::Value;

/// A basic block of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Block<'m>(pub(crate) LLVMBasicBlockRef, pub(crate) PhantomData<&'m ()>);

// Every block is one of a live module, as its lifetime says: no block is ever taken away while its module is borrowed.

impl<'m> Block<'m> {
    /// # Safety
    /// `raw` is null or a block of a module that is borrowed for `'m`.
    pub(crate) unsafe fn new(raw: LLVMBasicBlockRef) -> Option<Block<'m>> {
        (!raw.is_null()).then_some(Block(raw, PhantomData))
    }

    /// All instructions, debug intrinsics among them.
    pub fn instructions(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: see above.
        let first = unsafe { Value::new(LLVMGetFirstInstruction(self.0)) };
        std::iter::successors(first, |instruction| instruction.next())
    }

    /// The instructions without debug intrinsics: the same in both forms of debug information, so that they can be counted.
    pub fn code(self) -> impl Iterator<Item = Value<'m>> {
        self.instructions()
            .filter(|instruction| !instruction.is_debug_intrinsic())
    }

    /// The last instruction, if the block is complete.
    pub fn terminator(self) -> Option<Value<'m>> {
        // SAFETY: see above.
        unsafe { Value::new(LLVMGetBasicBlockTerminator(self.0)) }
    }

    /// Where the block may go on.
    pub fn successors(self) -> Vec<Block<'m>> {
        self.terminator().map(Value::successors).unwrap_or_default()
    }

    /// How many branches lead here, or take the address.
    pub fn use_count(self) -> usize {
        // SAFETY: see above.
        let value: Option<Value> = unsafe { Value::new(LLVMBasicBlockAsValue(self.0)) };
        value.map_or(0, |value| value.users().len())
    }

    /// The function that the block is in.
    pub fn function(self) -> Value<'m> {
        // SAFETY: see above; a block is in a function.
        Value(unsafe { LLVMGetBasicBlockParent(self.0) }, PhantomData)
    }
}
