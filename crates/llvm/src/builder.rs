//! Adds and moves instructions.

use std::marker::PhantomData;
use std::ptr;

use llvm_sys::core::*;
use llvm_sys::debuginfo::{LLVMInstructionGetDebugLoc, LLVMInstructionSetDebugLoc};
use llvm_sys::prelude::*;
use llvm_sys::{LLVMInlineAsmDialect, LLVMTypeKind};

use crate::{Block, DebugLocation, IntPredicate, Module, Type, UNNAMED, Value};

/// Adds instructions to a module, at the place where it was last told to.
pub struct Builder<'m> {
    module: &'m Module<'m>,
    raw: LLVMBuilderRef,
    /// Moves instructions. It never has a debug location, which it would give to them.
    mover: LLVMBuilderRef,
}

// Every value, block and type that is passed in was checked to be of the module or shared by all modules of its context; types are checked where LLVM
// would rely on them. Whether values come before their uses is for LLVM's verifier.

impl<'m> Builder<'m> {
    /// Must be told a place before anything is built.
    pub fn new(module: &'m Module<'m>) -> Builder<'m> {
        let context = module.context();
        // SAFETY: a live context, which outlives the module.
        let [raw, mover] = [(); 2].map(|()| unsafe { LLVMCreateBuilderInContext(context) });
        Builder { module, raw, mover }
    }

    /// The module that is built.
    pub fn module(&self) -> &'m Module<'m> {
        self.module
    }

    fn checked(&self, value: Value<'m>) -> LLVMValueRef {
        let is_of = match value.module() {
            Some(module) => module == self.module.raw,
            // SAFETY: a live type.
            None => !value.is_instruction() && unsafe { LLVMGetTypeContext(value.ty().0) } == self.module.context(),
        };
        assert!(is_of, "a value of another module");
        value.raw()
    }

    fn checked_block(&self, block: Block<'m>) -> LLVMBasicBlockRef {
        assert!(
            block.function().module() == Some(self.module.raw),
            "a block of another module"
        );
        block.0
    }

    fn built(&self, raw: LLVMValueRef) -> Value<'m> {
        Value(raw, PhantomData)
    }

    // --- Places --------------------------------------------------------------------------------------------------------

    /// What is built from here on goes to the end of a block, and is from a place in the source.
    pub fn at_end(&self, block: Block<'m>, location: Option<DebugLocation<'m>>) {
        // SAFETY: see above.
        unsafe { LLVMPositionBuilderAtEnd(self.raw, self.checked_block(block)) }
        self.set_location(location);
    }

    /// What is built from here on goes before an instruction, and is from a place in the source.
    pub fn before(&self, instruction: Value<'m>, location: Option<DebugLocation<'m>>) {
        assert!(instruction.block().is_some());
        // SAFETY: see above; an instruction that is in a block.
        unsafe { LLVMPositionBuilderBefore(self.raw, self.checked(instruction)) }
        self.set_location(location);
    }

    fn set_location(&self, location: Option<DebugLocation<'m>>) {
        // SAFETY: see above.
        unsafe { LLVMSetCurrentDebugLocation2(self.raw, location.map_or(ptr::null_mut(), |location| location.raw)) }
    }

    fn assert_has_place(&self) {
        // SAFETY: a live builder.
        let block = unsafe { LLVMGetInsertBlock(self.raw) };
        assert!(!block.is_null(), "the builder has no place");
    }

    // --- Moving --------------------------------------------------------------------------------------------------------

    /// A new block before another.
    pub fn block_before(&self, block: Block<'m>) -> Block<'m> {
        // SAFETY: see above.
        Block(
            unsafe { LLVMInsertBasicBlockInContext(self.module.context(), self.checked_block(block), UNNAMED) },
            PhantomData,
        )
    }

    /// A new block at the end of a function.
    pub fn block_at_end(&self, function: Value<'m>) -> Block<'m> {
        assert!(function.is_function());
        // SAFETY: see above; the kind is checked.
        Block(
            unsafe { LLVMAppendBasicBlockInContext(self.module.context(), self.checked(function), UNNAMED) },
            PhantomData,
        )
    }

    /// Takes an instruction out of its block and puts it at the end of another.
    pub fn move_to_end(&self, instruction: Value<'m>, block: Block<'m>) {
        assert!(instruction.block().is_some());
        // SAFETY: see above; an instruction that is in a block.
        unsafe {
            let (instruction, block) = (self.checked(instruction), self.checked_block(block));
            LLVMInstructionRemoveFromParent(instruction);
            LLVMPositionBuilderAtEnd(self.mover, block);
            insert(self.mover, instruction);
        }
    }

    /// Takes an instruction out of its block and puts it before another.
    pub fn move_before(&self, instruction: Value<'m>, other: Value<'m>) {
        assert!(instruction.block().is_some() && other.block().is_some() && instruction != other);
        // SAFETY: see above; two instructions that are in blocks.
        unsafe {
            let (instruction, other) = (self.checked(instruction), self.checked(other));
            LLVMInstructionRemoveFromParent(instruction);
            LLVMPositionBuilderBefore(self.mover, other);
            insert(self.mover, instruction);
        }
    }

    /// Moves what stands before `at` in its block into a new one, to which every jump to the old one goes now. The new block
    /// has no terminator yet; the old one comes second. (The C interface cannot change a phi's blocks; this way none needs to be.)
    pub fn split_before(&self, at: Value<'m>) -> (Block<'m>, Block<'m>) {
        let Some((tail, terminator)) = at.block().and_then(|block| Some((block, block.terminator()?))) else {
            panic!("an instruction without a complete block");
        };
        let head = self.block_before(tail);
        // SAFETY: see above; instructions and blocks of one function. Without a terminator the block has no successors whose phis LLVM would
        // change along with the jumps.
        unsafe {
            LLVMInstructionRemoveFromParent(terminator.raw());
            LLVMReplaceAllUsesWith(LLVMBasicBlockAsValue(tail.0), LLVMBasicBlockAsValue(head.0));
            LLVMPositionBuilderAtEnd(self.mover, tail.0);
            insert(self.mover, terminator.raw());
        }
        while let Some(first) = tail.instructions().next().filter(|first| *first != at) {
            self.move_to_end(first, head);
        }
        (head, tail)
    }

    /// Takes out an instruction whose result nobody uses, and that ends no block. Handles of it remain, of an instruction that is nowhere.
    pub fn remove(&self, instruction: Value<'m>) {
        // SAFETY: a live value.
        let ends_block = unsafe { !LLVMIsATerminatorInst(instruction.raw()).is_null() };
        assert!(instruction.block().is_some() && !instruction.is_used() && !ends_block);
        let raw = self.checked(instruction);
        // SAFETY: see above; an instruction that is in a block. It lets go of what it used, and goes when the module goes.
        unsafe {
            LLVMInstructionRemoveFromParent(raw);
            for index in 0..instruction.operand_count() {
                LLVMSetOperand(raw, index, LLVMGetPoison(LLVMTypeOf(LLVMGetOperand(raw, index))));
            }
        }
        self.module.removed.borrow_mut().push(raw);
    }

    /// Changes an operand of an instruction to a value of the same type.
    pub fn set_operand(&self, instruction: Value<'m>, index: u32, value: Value<'m>) {
        assert!(instruction.is_instruction() && instruction.operand_at(index).ty() == value.ty());
        // SAFETY: see above; the index and the types are checked.
        unsafe { LLVMSetOperand(self.checked(instruction), index, self.checked(value)) }
    }

    /// Uses of an instruction become uses of another value of the same type.
    pub fn replace_uses(&self, instruction: Value<'m>, value: Value<'m>) {
        assert!(instruction.is_instruction() && instruction.ty() == value.ty() && instruction != value);
        // SAFETY: see above; the types are checked.
        unsafe { LLVMReplaceAllUsesWith(self.checked(instruction), self.checked(value)) }
    }

    /// The same instruction once more, here, from where the original is in the source.
    pub fn clone_here(&self, instruction: Value<'m>) -> Value<'m> {
        assert!(instruction.is_instruction());
        self.assert_has_place();
        // SAFETY: see above; the kind is checked. A clone has the metadata of the original.
        unsafe {
            let raw = self.checked(instruction);
            let clone = LLVMInstructionClone(raw);
            LLVMInsertIntoBuilder(self.raw, clone);
            LLVMInstructionSetDebugLoc(clone, LLVMInstructionGetDebugLoc(raw));
            self.built(clone)
        }
    }

    // --- Values --------------------------------------------------------------------------------------------------------

    /// A constant.
    pub fn i64(&self, value: u64) -> Value<'m> {
        self.module.integer_type(64).constant(value)
    }

    /// The bits of an integer, pointer, float, or vector of at most 64 bits, as an i64.
    pub fn as_i64(&self, value: Value<'m>) -> Value<'m> {
        self.assert_has_place();
        let (i64, raw) = (self.module.integer_type(64), self.checked(value));
        let integer = match value.ty().kind() {
            LLVMTypeKind::LLVMPointerTypeKind => {
                // SAFETY: see above; the kind is checked.
                return self.built(unsafe { LLVMBuildPtrToInt(self.raw, raw, i64.0, UNNAMED) });
            }
            LLVMTypeKind::LLVMIntegerTypeKind => value,
            _ => {
                assert!(!value.ty().is_struct() && value.ty().kind() != LLVMTypeKind::LLVMArrayTypeKind);
                let bits = self.module.layout().bits_of(value.ty());
                assert!(bits > 0, "{:?}", value.ty().kind());
                let ty = self.module.integer_type(bits as u32);
                // SAFETY: see above; two types of the same number of bits.
                self.built(unsafe { LLVMBuildBitCast(self.raw, raw, ty.0, UNNAMED) })
            }
        };
        self.integer_cast(integer, i64, false)
    }

    /// An integer in another width, with or without its sign.
    pub fn integer_cast(&self, value: Value<'m>, ty: Type<'m>, signed: bool) -> Value<'m> {
        assert!(value.ty().bits().is_some() && ty.bits().is_some());
        self.assert_has_place();
        // SAFETY: see above; two integer types.
        self.built(unsafe { LLVMBuildIntCast2(self.raw, self.checked(value), ty.0, signed.into(), UNNAMED) })
    }

    /// The pointer that an i64 is.
    pub fn as_pointer(&self, value: Value<'m>) -> Value<'m> {
        assert!(value.ty().bits().is_some());
        self.assert_has_place();
        let pointer = self.module.pointer_type();
        // SAFETY: see above; the type is checked.
        self.built(unsafe { LLVMBuildIntToPtr(self.raw, self.checked(value), pointer.0, UNNAMED) })
    }

    fn binary(
        &self,
        build: unsafe extern "C" fn(
            LLVMBuilderRef,
            LLVMValueRef,
            LLVMValueRef,
            *const std::ffi::c_char,
        ) -> LLVMValueRef,
        one: Value<'m>,
        other: Value<'m>,
    ) -> Value<'m> {
        assert!(one.ty() == other.ty() && one.ty().bits().is_some());
        self.assert_has_place();
        // SAFETY: see above; two integers of one type.
        self.built(unsafe { build(self.raw, self.checked(one), self.checked(other), UNNAMED) })
    }

    /// Sum of two integers.
    pub fn add(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.binary(LLVMBuildAdd, one, other)
    }

    /// Product of two integers.
    pub fn multiply(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.binary(LLVMBuildMul, one, other)
    }

    /// Bits that both of two integers have.
    pub fn both(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.binary(LLVMBuildAnd, one, other)
    }

    /// Bits that either of two integers has.
    pub fn either(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.binary(LLVMBuildOr, one, other)
    }

    /// An i64 shifted to the left.
    pub fn shift_left(&self, value: Value<'m>, bits: u32) -> Value<'m> {
        self.binary(LLVMBuildShl, value, self.i64(bits.into()))
    }

    /// An i64 shifted to the right, zeros coming in.
    pub fn shift_right(&self, value: Value<'m>, bits: u32) -> Value<'m> {
        self.binary(LLVMBuildLShr, value, self.i64(bits.into()))
    }

    /// Compares two integers or pointers.
    pub fn compare(&self, predicate: IntPredicate, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        assert!(one.ty() == other.ty() && (one.ty().bits().is_some() || one.is_pointer()));
        self.assert_has_place();
        // SAFETY: see above; two integers or pointers of one type.
        self.built(unsafe { LLVMBuildICmp(self.raw, predicate, self.checked(one), self.checked(other), UNNAMED) })
    }

    /// Whether two integers or pointers are equal.
    pub fn equal(&self, one: Value<'m>, other: Value<'m>) -> Value<'m> {
        self.compare(IntPredicate::LLVMIntEQ, one, other)
    }

    /// One of two values, by a bit.
    pub fn select(&self, condition: Value<'m>, then: Value<'m>, otherwise: Value<'m>) -> Value<'m> {
        assert!(condition.ty().bits() == Some(1) && then.ty() == otherwise.ty());
        self.assert_has_place();
        let [condition, then, otherwise] = [condition, then, otherwise].map(|value| self.checked(value));
        // SAFETY: see above; a bit and two values of one type.
        self.built(unsafe { LLVMBuildSelect(self.raw, condition, then, otherwise, UNNAMED) })
    }

    /// A member of a struct that is a value.
    pub fn extract(&self, structure: Value<'m>, index: u32) -> Value<'m> {
        assert!(structure.ty().is_struct() && u64::from(index) < structure.ty().length());
        self.assert_has_place();
        // SAFETY: see above; a struct that has such a member.
        self.built(unsafe { LLVMBuildExtractValue(self.raw, self.checked(structure), index, UNNAMED) })
    }

    /// The pointer some bytes further on; they may lead out of its object.
    pub fn offset_pointer(&self, pointer: Value<'m>, bytes: Value<'m>) -> Value<'m> {
        assert!(pointer.is_pointer() && bytes.ty().bits().is_some());
        self.assert_has_place();
        let (pointer, mut bytes) = (self.checked(pointer), self.checked(bytes));
        let byte = self.module.integer_type(8);
        // SAFETY: see above; a pointer and an integer.
        self.built(unsafe { LLVMBuildGEP2(self.raw, byte.0, pointer, &mut bytes, 1, UNNAMED) })
    }

    /// What lies where a pointer points to.
    pub fn load(&self, ty: Type<'m>, pointer: Value<'m>) -> Value<'m> {
        assert!(pointer.is_pointer() && ty.is_sized());
        self.assert_has_place();
        // SAFETY: see above; a pointer and a type that has a size.
        self.built(unsafe { LLVMBuildLoad2(self.raw, ty.0, self.checked(pointer), UNNAMED) })
    }

    /// A store that the optimiser leaves where it is.
    pub fn store_volatile(&self, value: Value<'m>, pointer: Value<'m>) {
        assert!(pointer.is_pointer() && value.ty().is_sized());
        self.assert_has_place();
        // SAFETY: see above; a pointer and a value that has a size.
        unsafe {
            let store = LLVMBuildStore(self.raw, self.checked(value), self.checked(pointer));
            LLVMSetVolatile(store, 1);
        }
    }

    /// A phi, at the top of a block, which gets its values by [`Builder::add_incoming`].
    pub fn phi(&self, ty: Type<'m>) -> Value<'m> {
        assert!(ty.is_sized());
        self.assert_has_place();
        // SAFETY: see above; a type that has a size.
        self.built(unsafe { LLVMBuildPhi(self.raw, ty.0, UNNAMED) })
    }

    /// What a phi is if control comes from a block.
    pub fn add_incoming(&self, phi: Value<'m>, value: Value<'m>, from: Block<'m>) {
        assert!(phi.opcode() == Some(crate::Opcode::LLVMPHI) && phi.ty() == value.ty());
        let (mut value, mut from) = (self.checked(value), self.checked_block(from));
        // SAFETY: see above; a phi and a value of its type.
        unsafe { LLVMAddIncoming(self.checked(phi), &mut value, &mut from, 1) }
    }

    /// Calls a function with what its type says.
    pub fn call(&self, function: Value<'m>, arguments: &[Value<'m>]) -> Value<'m> {
        let ty = function.value_type().filter(|_| function.takes(arguments));
        let Some(ty) = ty else {
            panic!("a call of `{}` with other arguments", function.name())
        };
        self.assert_has_place();
        let mut arguments: Vec<LLVMValueRef> = arguments.iter().map(|argument| self.checked(*argument)).collect();
        let count = arguments.len() as u32;
        // SAFETY: see above; a function and so many arguments of its types.
        self.built(unsafe {
            LLVMBuildCall2(
                self.raw,
                ty.0,
                self.checked(function),
                arguments.as_mut_ptr(),
                count,
                UNNAMED,
            )
        })
    }

    /// Assembly without operands, in AT&T's syntax, that has an effect nobody knows.
    pub fn assembly(&self, text: &str) {
        self.assert_has_place();
        let (ty, att) = (
            self.module.void_type().function(&[]),
            LLVMInlineAsmDialect::LLVMInlineAsmDialectATT,
        );
        // SAFETY: see above; a function type without parameters, and pointers and lengths of strings.
        unsafe {
            let assembly = LLVMGetInlineAsm(ty.0, text.as_ptr().cast(), text.len(), UNNAMED, 0, 1, 0, att, 0);
            LLVMBuildCall2(self.raw, ty.0, assembly, ptr::null_mut(), 0, UNNAMED);
        }
    }

    /// On to another block.
    pub fn branch(&self, to: Block<'m>) {
        self.assert_has_place();
        // SAFETY: see above.
        unsafe { LLVMBuildBr(self.raw, self.checked_block(to)) };
    }

    /// On to one of two blocks, by a bit.
    pub fn branch_if(&self, condition: Value<'m>, then: Block<'m>, otherwise: Block<'m>) {
        self.conditional_branch(condition, then, otherwise);
    }

    /// The same, to `then` hardly ever.
    pub fn branch_if_unlikely(&self, condition: Value<'m>, then: Block<'m>, otherwise: Block<'m>) {
        let branch = self.conditional_branch(condition, then, otherwise);
        let (name, i32) = (c"branch_weights", self.module.integer_type(32));
        let context = self.module.context();
        // SAFETY: see above; a branch, and metadata of its context.
        unsafe {
            let mut weights = [
                LLVMMDStringInContext2(context, name.as_ptr(), name.count_bytes()),
                LLVMValueAsMetadata(i32.constant(1).raw()),
                LLVMValueAsMetadata(i32.constant(2000).raw()),
            ];
            let weights = LLVMMDNodeInContext2(context, weights.as_mut_ptr(), weights.len());
            let kind = LLVMGetMDKindIDInContext(context, c"prof".as_ptr(), 4);
            LLVMSetMetadata(branch, kind, LLVMMetadataAsValue(context, weights));
        }
    }

    fn conditional_branch(&self, condition: Value<'m>, then: Block<'m>, otherwise: Block<'m>) -> LLVMValueRef {
        assert!(condition.ty().bits() == Some(1));
        self.assert_has_place();
        let (then, otherwise) = (self.checked_block(then), self.checked_block(otherwise));
        // SAFETY: see above; a bit and two blocks.
        unsafe { LLVMBuildCondBr(self.raw, self.checked(condition), then, otherwise) }
    }

    /// Out of a function that returns nothing.
    pub fn return_void(&self) {
        self.assert_has_place();
        // SAFETY: see above.
        unsafe { LLVMBuildRetVoid(self.raw) };
    }
}

/// Inserts an instruction that was taken out of its block, under the name that it has: another one would free what [`Value::name`] gave out.
///
/// # Safety
/// A builder with a place, and an instruction that is in no block.
unsafe fn insert(builder: LLVMBuilderRef, instruction: LLVMValueRef) {
    // SAFETY: the caller's promise; names end with a zero.
    unsafe {
        let name = LLVMGetValueName2(instruction, &mut 0);
        LLVMInsertIntoBuilderWithName(builder, instruction, name);
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, used by nobody else.
        unsafe {
            LLVMDisposeBuilder(self.raw);
            LLVMDisposeBuilder(self.mover);
        }
    }
}
