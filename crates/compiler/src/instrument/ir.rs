//! The little of LLVM's C interface that instrumenting needs, with types that are hard to mix up.
//!
//! Everything here refers to the module that an [`Ir`] was made of, and is valid as long as that module is: the pass adds and moves
//! instructions and deletes none that anybody holds.

use std::ffi::{CStr, CString, c_char, c_uint};

use llvm_sys::core::*;
use llvm_sys::debuginfo::{LLVMInstructionGetDebugLoc, LLVMInstructionSetDebugLoc};
use llvm_sys::prelude::*;
use llvm_sys::target::{
    LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMOffsetOfElement, LLVMStoreSizeOfType, LLVMTargetDataRef,
};
use llvm_sys::{
    LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMAttributeFunctionIndex, LLVMCallConv, LLVMInlineAsmDialect,
    LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMTypeKind, LLVMVisibility,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value(pub(crate) LLVMValueRef);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block(pub(crate) LLVMBasicBlockRef);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Type(pub(crate) LLVMTypeRef);

/// A debug location; of an instruction without one, null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugLocation(pub(crate) LLVMMetadataRef);

/// The module and what is made once for it.
pub struct Ir {
    pub(crate) module: LLVMModuleRef,
    pub(crate) context: LLVMContextRef,
    layout: LLVMTargetDataRef,
    pub(crate) builder: LLVMBuilderRef,
    /// Moves instructions. It never has a debug location, which it would give to them.
    mover: LLVMBuilderRef,
    prof: c_uint,
    nontemporal: c_uint,
    unlikely: LLVMValueRef,
}

const UNNAMED: *const c_char = c"".as_ptr();

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// # Safety
/// `text` points to `length` bytes that live as long as the module.
unsafe fn string<'a>(text: *const c_char, length: usize) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn list<T>(first: *mut T, next: impl Fn(*mut T) -> *mut T) -> impl Iterator<Item = *mut T> {
    let mut at = first;
    std::iter::from_fn(move || {
        let here = at;
        (!here.is_null()).then(|| {
            at = next(here);
            here
        })
    })
}

impl Value {
    pub fn opcode(self) -> Option<LLVMOpcode> {
        // SAFETY: asks of a value of a live module; so in all of these.
        unsafe { (!LLVMIsAInstruction(self.0).is_null()).then(|| LLVMGetInstructionOpcode(self.0)) }
    }

    pub fn operand(self, index: u32) -> Value {
        // SAFETY: as above; the caller knows how many there are by the opcode.
        Value(unsafe { LLVMGetOperand(self.0, index) })
    }

    pub fn operands(self) -> u32 {
        // SAFETY: as above.
        unsafe { LLVMGetNumOperands(self.0) as u32 }
    }

    pub fn ty(self) -> Type {
        // SAFETY: as above.
        Type(unsafe { LLVMTypeOf(self.0) })
    }

    pub fn name(self) -> &'static str {
        let mut length = 0;
        // SAFETY: as above; the caller uses it while the module lives.
        unsafe { string(LLVMGetValueName2(self.0, &mut length), length) }
    }

    pub fn block(self) -> Block {
        // SAFETY: an instruction in a block.
        Block(unsafe { LLVMGetInstructionParent(self.0) })
    }

    pub fn is_alloca(self) -> bool {
        // SAFETY: as above.
        unsafe { !LLVMIsAAllocaInst(self.0).is_null() }
    }

    /// An alloca that, in the entry block, is part of the function's frame.
    pub fn is_static_alloca(self) -> bool {
        // SAFETY: as above; an alloca has one operand.
        self.is_alloca() && unsafe { !LLVMIsAConstantInt(self.operand(0).0).is_null() }
    }

    pub fn is_constant(self) -> bool {
        // SAFETY: as above.
        unsafe { LLVMIsConstant(self.0) != 0 }
    }

    pub fn is_in_bounds(self) -> bool {
        // SAFETY: a getelementptr.
        unsafe { LLVMIsInBounds(self.0) != 0 }
    }

    /// Of an atomic access or a fence; not atomic for any other access.
    pub fn ordering(self) -> LLVMAtomicOrdering {
        // SAFETY: a load, store or fence.
        unsafe { LLVMGetOrdering(self.0) }
    }

    pub fn is_single_threaded(self) -> bool {
        // SAFETY: an atomic instruction.
        unsafe { LLVMIsAtomicSingleThread(self.0) != 0 }
    }

    pub fn is_used(self) -> bool {
        // SAFETY: an instruction of the module.
        !unsafe { LLVMGetFirstUse(self.0) }.is_null()
    }

    pub fn read_modify_write_operation(self) -> LLVMAtomicRMWBinOp {
        // SAFETY: an atomicrmw.
        unsafe { LLVMGetAtomicRMWBinOp(self.0) }
    }

    pub fn is_global(self) -> bool {
        // SAFETY: as above.
        unsafe { !LLVMIsAGlobalValue(self.0).is_null() }
    }

    /// An argument that is a copy on the stack.
    pub fn is_by_value_argument(self) -> bool {
        // SAFETY: as above; an argument's index is found by looking for it.
        unsafe {
            if LLVMIsAArgument(self.0).is_null() {
                return false;
            }
            let function = LLVMGetParamParent(self.0);
            let index = (0..LLVMCountParams(function)).find(|&index| LLVMGetParam(function, index) == self.0);
            let kind = LLVMGetEnumAttributeKindForName(c"byval".as_ptr(), 5);
            index.is_some_and(|index| !LLVMGetEnumAttributeAtIndex(function, index + 1, kind).is_null())
        }
    }

    pub fn constant_integer(self) -> Option<u64> {
        // SAFETY: as above; wider integers have no such value.
        unsafe {
            let is = !LLVMIsAConstantInt(self.0).is_null() && LLVMGetIntTypeWidth(self.ty().0) <= 64;
            is.then(|| LLVMConstIntGetZExtValue(self.0))
        }
    }

    pub fn is_zero_or_all_ones(self) -> (bool, bool) {
        // SAFETY: as above.
        unsafe {
            let ones = LLVMConstAllOnes(self.ty().0);
            (LLVMIsNull(self.0) != 0, ones == self.0)
        }
    }

    pub fn debug_location(self) -> DebugLocation {
        // SAFETY: an instruction.
        DebugLocation(unsafe { LLVMInstructionGetDebugLoc(self.0) })
    }

    /// Of a call: what is called.
    pub fn callee(self) -> Value {
        // SAFETY: a call.
        Value(unsafe { LLVMGetCalledValue(self.0) })
    }

    pub fn arguments(self) -> u32 {
        // SAFETY: a call.
        unsafe { LLVMGetNumArgOperands(self.0) }
    }

    /// A call that has to be the last of its function.
    pub fn is_musttail(self) -> bool {
        // SAFETY: a call.
        unsafe { LLVMGetTailCallKind(self.0) == llvm_sys::LLVMTailCallKind::LLVMTailCallKindMustTail }
    }

    pub fn is_declaration(self) -> bool {
        // SAFETY: a global value.
        unsafe { LLVMIsDeclaration(self.0) != 0 }
    }

    pub fn is_inline_assembly(self) -> bool {
        // SAFETY: as above.
        unsafe { !LLVMIsAInlineAsm(self.0).is_null() }
    }

    /// Template and constraints of inline assembly, in AT&T's syntax.
    pub fn inline_assembly(self) -> Option<(&'static str, &'static str)> {
        if !self.is_inline_assembly() {
            return None;
        }
        let (mut one, mut other) = (0, 0);
        // SAFETY: inline assembly; the caller uses it while the module lives.
        unsafe {
            if LLVMGetInlineAsmDialect(self.0) != LLVMInlineAsmDialect::LLVMInlineAsmDialectATT {
                return None;
            }
            let template = LLVMGetInlineAsmAsmString(self.0, &mut one);
            let constraints = LLVMGetInlineAsmConstraintString(self.0, &mut other);
            Some((string(template, one), string(constraints, other)))
        }
    }

    /// Blocks of a function.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        // SAFETY: a function; the list is not changed while it is walked.
        unsafe { list(LLVMGetFirstBasicBlock(self.0), |block| LLVMGetNextBasicBlock(block)).map(Block) }
    }

    /// Whether code is made of the function here, by the usual rules.
    pub fn has_ordinary_code(self) -> bool {
        // SAFETY: a function.
        unsafe {
            let naked = LLVMGetEnumAttributeKindForName(c"naked".as_ptr(), 5);
            !self.is_declaration()
                && LLVMGetLinkage(self.0) != LLVMLinkage::LLVMAvailableExternallyLinkage
                && LLVMGetEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, naked).is_null()
                && LLVMGetFunctionCallConv(self.0) != LLVMCallConv::LLVMX86INTRCallConv as c_uint
        }
    }

    pub fn set_operand(self, index: u32, value: Value) {
        // SAFETY: the caller gives one of the same type.
        unsafe { LLVMSetOperand(self.0, index, value.0) }
    }
}

impl Block {
    pub fn instructions(self) -> impl Iterator<Item = Value> {
        // SAFETY: a block of a live module; the list is not changed while it is walked.
        unsafe { list(LLVMGetFirstInstruction(self.0), |at| LLVMGetNextInstruction(at)).map(Value) }
    }

    pub fn first(self) -> Value {
        // SAFETY: as above; every block has a terminator.
        Value(unsafe { LLVMGetFirstInstruction(self.0) })
    }

    pub fn function(self) -> Value {
        // SAFETY: as above.
        Value(unsafe { LLVMGetBasicBlockParent(self.0) })
    }
}

impl Type {
    pub fn kind(self) -> LLVMTypeKind {
        // SAFETY: a type of a live context.
        unsafe { LLVMGetTypeKind(self.0) }
    }

    /// Of an integer.
    pub fn bits(self) -> u32 {
        // SAFETY: as above; the caller knows that it is one.
        unsafe { LLVMGetIntTypeWidth(self.0) }
    }

    pub fn is_vector(self) -> bool {
        self.vector().is_some()
    }

    pub fn is_void(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMVoidTypeKind
    }

    /// Length and element of a vector of fixed length.
    pub fn vector(self) -> Option<(u32, Type)> {
        // SAFETY: as above.
        (self.kind() == LLVMTypeKind::LLVMVectorTypeKind)
            .then(|| unsafe { (LLVMGetVectorSize(self.0), Type(LLVMGetElementType(self.0))) })
    }

    pub fn is_scalable(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMScalableVectorTypeKind
    }

    /// Of a pointer.
    pub fn address_space(self) -> u32 {
        // SAFETY: as above; the caller knows that it is one.
        unsafe { LLVMGetPointerAddressSpace(self.0) }
    }
}

impl Ir {
    /// # Safety
    /// The module outlives the result and everything that is got from it.
    pub unsafe fn new(module: LLVMModuleRef) -> Ir {
        // SAFETY: the caller's promise.
        unsafe {
            // Variables' locations as instructions, so that they keep their places when instructions are moved.
            LLVMSetIsNewDbgInfoFormat(module, 0);
            let context = LLVMGetModuleContext(module);
            let kind = |name: &CStr| LLVMGetMDKindIDInContext(context, name.as_ptr(), name.count_bytes() as c_uint);
            let i32 = LLVMInt32TypeInContext(context);
            let weights = c"branch_weights";
            let mut weights = [
                LLVMMDStringInContext2(context, weights.as_ptr(), weights.count_bytes()),
                LLVMValueAsMetadata(LLVMConstInt(i32, 1, 0)),
                LLVMValueAsMetadata(LLVMConstInt(i32, 2000, 0)),
            ];
            let unlikely = LLVMMDNodeInContext2(context, weights.as_mut_ptr(), weights.len());
            Ir {
                module,
                context,
                layout: LLVMGetModuleDataLayout(module),
                builder: LLVMCreateBuilderInContext(context),
                mover: LLVMCreateBuilderInContext(context),
                prof: kind(c"prof"),
                nontemporal: kind(c"nontemporal"),
                unlikely: LLVMMetadataAsValue(context, unlikely),
            }
        }
    }

    pub fn functions(&self) -> impl Iterator<Item = Value> {
        // SAFETY: the module lives; the list is not changed while it is walked.
        unsafe { list(LLVMGetFirstFunction(self.module), |f| LLVMGetNextFunction(f)).map(Value) }
    }

    pub fn target(&self) -> &str {
        // SAFETY: the module owns it.
        unsafe { CStr::from_ptr(LLVMGetTarget(self.module)) }
            .to_str()
            .unwrap_or_default()
    }

    pub fn append_assembly(&self, text: &str) {
        // SAFETY: pointer and length of one string.
        unsafe { LLVMAppendModuleInlineAsm(self.module, text.as_ptr().cast(), text.len()) }
    }

    /// Bytes that a store of this type writes.
    pub fn store_size(&self, ty: Type) -> u64 {
        // SAFETY: a sized type.
        unsafe { LLVMStoreSizeOfType(self.layout, ty.0) }
    }

    pub fn is_nontemporal(&self, store: Value) -> bool {
        // SAFETY: an instruction.
        unsafe { !LLVMGetMetadata(store.0, self.nontemporal).is_null() }
    }

    /// Base of an address computation, and the offset if it is constant.
    pub fn base_and_offset(&self, gep: Value) -> (Value, Option<i64>) {
        let base = gep.operand(0);
        // SAFETY: a getelementptr of a live module.
        let mut ty = unsafe { LLVMGetGEPSourceElementType(gep.0) };
        let mut offset = 0i64;
        for index in 1..gep.operands() {
            let Some(value) = gep.operand(index).constant_integer() else {
                return (base, None);
            };
            // SAFETY: sized types, walked as the indices say.
            unsafe {
                if index > 1 && LLVMGetTypeKind(ty) == LLVMTypeKind::LLVMStructTypeKind {
                    offset = offset.wrapping_add(LLVMOffsetOfElement(self.layout, ty, value as c_uint) as i64);
                    ty = LLVMStructGetTypeAtIndex(ty, value as c_uint);
                    continue;
                }
                if index > 1 {
                    ty = LLVMGetElementType(ty);
                }
                let bits = LLVMGetIntTypeWidth(gep.operand(index).ty().0).min(64);
                let signed = (value as i64) << (64 - bits) >> (64 - bits);
                offset = offset.wrapping_add(signed.wrapping_mul(LLVMABISizeOfType(self.layout, ty) as i64));
            }
        }
        (base, Some(offset))
    }

    // --- Changing the code ---------------------------------------------------------------------------------------------

    /// Moves static allocas to the top of the entry block, so that splitting it leaves them in the frame.
    pub fn gather_allocas(&self, function: Value) {
        let Some(entry) = function.blocks().next() else { return };
        let allocas: Vec<Value> = entry.instructions().filter(|i| i.is_static_alloca()).collect();
        for alloca in allocas.into_iter().rev() {
            let first = entry.first();
            if first == alloca {
                continue;
            }
            // SAFETY: both are instructions of the entry block; an alloca of constant size needs nothing before it.
            unsafe {
                LLVMPositionBuilderBefore(self.mover, first.0);
                LLVMSetCurrentDebugLocation2(self.mover, std::ptr::null_mut());
                LLVMInstructionRemoveFromParent(alloca.0);
                LLVMInsertIntoBuilder(self.mover, alloca.0);
            }
        }
    }

    /// Moves what stands before `at` in its block into a new one, to which every jump to the old one goes now. The new block
    /// has no terminator yet. (The C interface cannot change a phi's blocks; this way none needs to be.)
    pub fn split_before(&self, at: Value) -> Block {
        let Block(tail) = at.block();
        // SAFETY: instructions and blocks of one function. Without a terminator the block has no successors whose phis LLVM would change
        // along with the jumps.
        unsafe {
            let head = LLVMInsertBasicBlockInContext(self.context, tail, UNNAMED);
            let terminator = LLVMGetBasicBlockTerminator(tail);
            LLVMInstructionRemoveFromParent(terminator);
            LLVMReplaceAllUsesWith(LLVMBasicBlockAsValue(tail), LLVMBasicBlockAsValue(head));
            LLVMPositionBuilderAtEnd(self.mover, tail);
            LLVMSetCurrentDebugLocation2(self.mover, std::ptr::null_mut());
            LLVMInsertIntoBuilder(self.mover, terminator);
            LLVMPositionBuilderAtEnd(self.mover, head);
            loop {
                let first = LLVMGetFirstInstruction(tail);
                if first == at.0 {
                    break;
                }
                LLVMInstructionRemoveFromParent(first);
                LLVMInsertIntoBuilder(self.mover, first);
            }
            Block(head)
        }
    }

    /// Takes the instruction out of its block and puts it at the end of another.
    pub fn move_to(&self, instruction: Value, block: Block) {
        // SAFETY: of one function; the mover has no debug location to give.
        unsafe {
            LLVMInstructionRemoveFromParent(instruction.0);
            LLVMPositionBuilderAtEnd(self.mover, block.0);
            LLVMInsertIntoBuilder(self.mover, instruction.0);
        }
    }

    /// A new block before another.
    pub fn block_before(&self, block: Block) -> Block {
        // SAFETY: a block of a live module.
        Block(unsafe { LLVMInsertBasicBlockInContext(self.context, block.0, UNNAMED) })
    }

    /// A new block at the end of the function, out of the way.
    pub fn block_at_end(&self, function: Value) -> Block {
        // SAFETY: a function of a live module.
        Block(unsafe { LLVMAppendBasicBlockInContext(self.context, function.0, UNNAMED) })
    }

    /// What is built from here on goes to the end of `block` and is from `location`.
    pub fn build_in(&self, block: Block, location: DebugLocation) {
        // SAFETY: both of a live module.
        unsafe {
            LLVMPositionBuilderAtEnd(self.builder, block.0);
            LLVMSetCurrentDebugLocation2(self.builder, location.0);
        }
    }

    pub fn i64(&self, value: u64) -> Value {
        // SAFETY: a constant of a live context; so below.
        Value(unsafe { LLVMConstInt(LLVMInt64TypeInContext(self.context), value, 0) })
    }

    pub fn integer_type(&self, bits: u32) -> Type {
        Type(unsafe { LLVMIntTypeInContext(self.context, bits) })
    }

    /// The bits of an integer, pointer, float, or vector of bits that has at most 64 of them, as an i64.
    pub fn as_i64(&self, value: Value) -> Value {
        let i64 = self.integer_type(64).0;
        // SAFETY: operands of the types that each operation takes.
        unsafe {
            let integer = match value.ty().kind() {
                LLVMTypeKind::LLVMPointerTypeKind => {
                    return Value(LLVMBuildPtrToInt(self.builder, value.0, i64, UNNAMED));
                }
                LLVMTypeKind::LLVMIntegerTypeKind => value.0,
                LLVMTypeKind::LLVMVectorTypeKind => {
                    let bits = self.integer_type(LLVMGetVectorSize(value.ty().0));
                    LLVMBuildBitCast(self.builder, value.0, bits.0, UNNAMED)
                }
                _ => {
                    let bits = self.integer_type(self.store_size(value.ty()) as u32 * 8);
                    LLVMBuildBitCast(self.builder, value.0, bits.0, UNNAMED)
                }
            };
            let bits = LLVMGetIntTypeWidth(LLVMTypeOf(integer));
            if bits < 64 {
                Value(LLVMBuildZExt(self.builder, integer, i64, UNNAMED))
            } else if bits > 64 {
                Value(LLVMBuildTrunc(self.builder, integer, i64, UNNAMED))
            } else {
                Value(integer)
            }
        }
    }

    pub fn shift_right(&self, value: Value, bits: u32) -> Value {
        Value(unsafe { LLVMBuildLShr(self.builder, value.0, self.i64(bits.into()).0, UNNAMED) })
    }

    pub fn equal(&self, one: Value, other: Value) -> Value {
        Value(unsafe { LLVMBuildICmp(self.builder, LLVMIntPredicate::LLVMIntEQ, one.0, other.0, UNNAMED) })
    }

    pub fn at_most(&self, one: Value, other: Value) -> Value {
        Value(unsafe { LLVMBuildICmp(self.builder, LLVMIntPredicate::LLVMIntULE, one.0, other.0, UNNAMED) })
    }

    pub fn both(&self, one: Value, other: Value) -> Value {
        Value(unsafe { LLVMBuildAnd(self.builder, one.0, other.0, UNNAMED) })
    }

    pub fn extract(&self, aggregate: Value, index: u32) -> Value {
        Value(unsafe { LLVMBuildExtractValue(self.builder, aggregate.0, index, UNNAMED) })
    }

    /// The pointer some bytes further on; they may lead out of its object.
    pub fn offset_pointer(&self, pointer: Value, bytes: Value) -> Value {
        let i8 = self.integer_type(8).0;
        let mut indices = [bytes.0];
        Value(unsafe { LLVMBuildGEP2(self.builder, i8, pointer.0, indices.as_mut_ptr(), 1, UNNAMED) })
    }

    /// What a variable that is defined in this module's assembly holds, an i64.
    pub fn load_variable(&self, name: &str) -> Value {
        let (i64, name) = (self.integer_type(64).0, c_string(name));
        // SAFETY: a variable of that type, which is there once for the linked module.
        unsafe {
            let mut variable = LLVMGetNamedGlobal(self.module, name.as_ptr());
            if variable.is_null() {
                variable = LLVMAddGlobal(self.module, i64, name.as_ptr());
                LLVMSetVisibility(variable, LLVMVisibility::LLVMHiddenVisibility);
            }
            Value(LLVMBuildLoad2(self.builder, i64, variable, UNNAMED))
        }
    }

    /// The i32 that lies some bytes behind an address.
    pub fn load_i32(&self, address: Value, offset: u64) -> Value {
        // SAFETY: operands of the types that each operation takes.
        unsafe {
            let pointer = LLVMPointerTypeInContext(self.context, 0);
            let address = LLVMBuildIntToPtr(self.builder, address.0, pointer, UNNAMED);
            let at = self.offset_pointer(Value(address), self.i64(offset));
            Value(LLVMBuildLoad2(self.builder, self.integer_type(32).0, at.0, UNNAMED))
        }
    }

    pub fn clone_here(&self, instruction: Value) -> Value {
        // SAFETY: an instruction; a clone has the metadata of the original.
        unsafe {
            let clone = LLVMInstructionClone(instruction.0);
            LLVMInsertIntoBuilder(self.builder, clone);
            LLVMInstructionSetDebugLoc(clone, instruction.debug_location().0);
            Value(clone)
        }
    }

    pub fn branch(&self, to: Block) {
        unsafe { LLVMBuildBr(self.builder, to.0) };
    }

    pub fn branch_if(&self, condition: Value, then: Block, otherwise: Block) {
        unsafe { LLVMBuildCondBr(self.builder, condition.0, then.0, otherwise.0) };
    }

    /// The same, to `then` hardly ever.
    pub fn branch_if_unlikely(&self, condition: Value, then: Block, otherwise: Block) {
        unsafe {
            let branch = LLVMBuildCondBr(self.builder, condition.0, then.0, otherwise.0);
            LLVMSetMetadata(branch, self.prof, self.unlikely);
        }
    }

    /// Uses of `original`, which `block` has, become uses of whichever was executed: it, or `other` in its block. Both lead to
    /// `tail`.
    pub fn join(&self, original: Value, block: Block, other: (Value, Block), tail: Block) {
        // SAFETY: two values of one type, each from a predecessor of the tail; the phi comes first in it. The original is added to the phi when
        // its other uses are gone.
        unsafe {
            if LLVMGetFirstUse(original.0).is_null() {
                return;
            }
            LLVMPositionBuilderBefore(self.builder, tail.first().0);
            LLVMSetCurrentDebugLocation2(self.builder, original.debug_location().0);
            let phi = LLVMBuildPhi(self.builder, original.ty().0, UNNAMED);
            LLVMReplaceAllUsesWith(original.0, phi);
            for (Value(value), Block(from)) in [(original, block), other] {
                LLVMAddIncoming(phi, [value].as_mut_ptr(), [from].as_mut_ptr(), 1);
            }
        }
    }

    /// Assembly without operands that has an effect nobody knows.
    pub fn assembly(&self, text: &str) {
        // SAFETY: a function type without parameters; pointers and lengths of strings.
        unsafe {
            let ty = LLVMFunctionType(LLVMVoidTypeInContext(self.context), std::ptr::null_mut(), 0, 0);
            let assembly = LLVMGetInlineAsm(
                ty,
                text.as_ptr().cast(),
                text.len(),
                UNNAMED,
                0,
                1,
                0,
                LLVMInlineAsmDialect::LLVMInlineAsmDialectATT,
                0,
            );
            LLVMBuildCall2(self.builder, ty, assembly, std::ptr::null_mut(), 0, UNNAMED);
        }
    }

    /// Calls a function of this module that keeps all registers but a few, with i64s, for an i64.
    pub fn call_preserving(&self, name: &str, arguments: &[Value]) -> Value {
        let i64 = self.integer_type(64).0;
        let name = c_string(name);
        let mut types = vec![i64; arguments.len()];
        let mut arguments: Vec<LLVMValueRef> = arguments.iter().map(|argument| argument.0).collect();
        let convention = LLVMCallConv::LLVMPreserveMostCallConv as c_uint;
        // SAFETY: arguments and types agree.
        unsafe {
            let ty = LLVMFunctionType(i64, types.as_mut_ptr(), types.len() as c_uint, 0);
            let mut function = LLVMGetNamedFunction(self.module, name.as_ptr());
            if function.is_null() {
                function = LLVMAddFunction(self.module, name.as_ptr(), ty);
                LLVMSetFunctionCallConv(function, convention);
                LLVMSetVisibility(function, LLVMVisibility::LLVMHiddenVisibility);
                let nounwind = LLVMGetEnumAttributeKindForName(c"nounwind".as_ptr(), 8);
                let nounwind = LLVMCreateEnumAttribute(self.context, nounwind, 0);
                LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, nounwind);
            }
            let count = arguments.len() as c_uint;
            let call = LLVMBuildCall2(self.builder, ty, function, arguments.as_mut_ptr(), count, UNNAMED);
            LLVMSetInstructionCallConv(call, convention);
            Value(call)
        }
    }
}

impl Drop for Ir {
    fn drop(&mut self) {
        // SAFETY: made in `new`, used by nobody else.
        unsafe {
            LLVMDisposeBuilder(self.builder);
            LLVMDisposeBuilder(self.mover);
        }
    }
}
