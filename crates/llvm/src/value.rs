//! Values: functions, variables, instructions, parameters, constants.

use std::marker::PhantomData;

use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMModuleRef, LLVMValueRef};
use llvm_sys::{LLVMCallConv, LLVMInlineAsmDialect, LLVMOpcode, LLVMTailCallKind, LLVMValueKind};

use crate::{
    AtomicOperation, AtomicOrdering, Block, CallingConvention, Holder, IntPredicate, Linkage, Opcode, Type, ValueKind,
    Visibility, text,
};

/// A value of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value<'m>(pub(crate) LLVMValueRef, pub(crate) PhantomData<&'m ()>);

// Every value is one of a live module or its context, as its lifetime says; what LLVM leaves undefined for another kind of value is asked only after
// that kind was checked.

impl<'m> Value<'m> {
    /// # Safety
    /// `raw` is null or a value of a module that is borrowed for `'m`, or of its context.
    pub(crate) unsafe fn new(raw: LLVMValueRef) -> Option<Value<'m>> {
        (!raw.is_null()).then_some(Value(raw, PhantomData))
    }

    pub(crate) fn raw(self) -> LLVMValueRef {
        self.0
    }

    /// Which kind of value.
    pub fn kind(self) -> ValueKind {
        // SAFETY: see above.
        unsafe { LLVMGetValueKind(self.0) }
    }

    /// The type.
    pub fn ty(self) -> Type<'m> {
        // SAFETY: see above.
        Type(unsafe { LLVMTypeOf(self.0) }, PhantomData)
    }

    /// The name; empty if there is none, or it is no UTF-8.
    pub fn name(self) -> &'m str {
        let mut length = 0;
        // SAFETY: see above; nothing that borrows the module changes a name.
        unsafe { text(LLVMGetValueName2(self.0, &mut length), length) }
    }

    /// Whether it is an instruction.
    pub fn is_instruction(self) -> bool {
        self.kind() == LLVMValueKind::LLVMInstructionValueKind
    }

    /// Whether it is a function, declared or defined.
    pub fn is_function(self) -> bool {
        self.kind() == LLVMValueKind::LLVMFunctionValueKind
    }

    /// Whether it is a global variable.
    pub fn is_global_variable(self) -> bool {
        self.kind() == LLVMValueKind::LLVMGlobalVariableValueKind
    }

    /// Whether it is a function, a variable, or another name of one.
    pub fn is_global(self) -> bool {
        matches!(
            self.kind(),
            LLVMValueKind::LLVMFunctionValueKind
                | LLVMValueKind::LLVMGlobalVariableValueKind
                | LLVMValueKind::LLVMGlobalAliasValueKind
                | LLVMValueKind::LLVMGlobalIFuncValueKind
        )
    }

    /// Whether it is a parameter of a function.
    pub fn is_parameter(self) -> bool {
        self.kind() == LLVMValueKind::LLVMArgumentValueKind
    }

    /// Whether it is a constant: addresses of globals are.
    pub fn is_constant(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMIsConstant(self.0) != 0 }
    }

    /// Whether it is of the type of pointers.
    pub fn is_pointer(self) -> bool {
        self.ty().is_pointer()
    }

    /// Whether it is zero: a null pointer, say.
    pub fn is_null(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMIsNull(self.0) != 0 }
    }

    /// Whether it is an undefined constant.
    pub fn is_undefined(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMIsUndef(self.0) != 0 }
    }

    /// Whether it is an integer of ones alone.
    pub fn is_all_ones(self) -> bool {
        // SAFETY: the kind is checked; constants of a type are there once.
        self.ty().bits().is_some() && unsafe { LLVMConstAllOnes(self.ty().0) == self.0 }
    }

    fn is_short_integer(self) -> bool {
        self.kind() == LLVMValueKind::LLVMConstantIntValueKind && self.ty().bits().is_some_and(|bits| bits <= 64)
    }

    /// An integer constant of at most 64 bits.
    pub fn unsigned(self) -> Option<u64> {
        // SAFETY: the kind is checked, and the width.
        self.is_short_integer()
            .then(|| unsafe { LLVMConstIntGetZExtValue(self.0) })
    }

    /// The same with its sign.
    pub fn signed(self) -> Option<i64> {
        // SAFETY: the kind is checked, and the width.
        self.is_short_integer()
            .then(|| unsafe { LLVMConstIntGetSExtValue(self.0) })
    }

    /// A part of a constant array, vector or struct.
    pub fn part(self, index: u32) -> Option<Value<'m>> {
        // SAFETY: the kind is checked; LLVM checks the index.
        self.is_constant()
            .then(|| unsafe { Value::new(LLVMGetAggregateElement(self.0, index)) })
            .flatten()
    }

    // --- Globals -------------------------------------------------------------------------------------------------------

    /// Whether a function or variable is not defined here.
    pub fn is_declaration(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_global() && unsafe { LLVMIsDeclaration(self.0) != 0 }
    }

    /// Whether it is a function whose code is here.
    pub fn has_body(self) -> bool {
        self.is_function() && !self.is_declaration()
    }

    /// Whether code is made of the function here, by the usual rules.
    pub fn has_ordinary_code(self) -> bool {
        self.has_body()
            && self.linkage() != Some(Linkage::LLVMAvailableExternallyLinkage)
            && self.attribute(Holder::Function, "naked").is_none()
            // SAFETY: the kind is checked.
            && unsafe { LLVMGetFunctionCallConv(self.0) } != LLVMCallConv::LLVMX86INTRCallConv as u32
    }

    /// Whether it is a function that the compiler knows.
    pub fn is_intrinsic(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_function() && unsafe { LLVMGetIntrinsicID(self.0) != 0 }
    }

    /// Whether it is a function that takes further arguments.
    pub fn is_variadic(self) -> bool {
        self.value_type().is_some_and(Type::is_variadic)
    }

    /// The type of a function, or of what a variable holds.
    pub fn value_type(self) -> Option<Type<'m>> {
        // SAFETY: the kind is checked.
        self.is_global()
            .then(|| Type(unsafe { LLVMGlobalGetValueType(self.0) }, PhantomData))
    }

    /// What a variable holds at first.
    pub fn initializer(self) -> Option<Value<'m>> {
        // SAFETY: the kind is checked.
        self.is_global_variable()
            .then(|| unsafe { Value::new(LLVMGetInitializer(self.0)) })
            .flatten()
    }

    /// Whether it is a variable that nobody writes.
    pub fn is_global_constant(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_global_variable() && unsafe { LLVMIsGlobalConstant(self.0) != 0 }
    }

    /// What the linker makes of a global.
    pub fn linkage(self) -> Option<Linkage> {
        // SAFETY: the kind is checked.
        self.is_global().then(|| unsafe { LLVMGetLinkage(self.0) })
    }

    /// Whether only its module sees a global.
    pub fn is_local(self) -> bool {
        matches!(
            self.linkage(),
            Some(Linkage::LLVMInternalLinkage | Linkage::LLVMPrivateLinkage)
        )
    }

    /// See [`Value::linkage`].
    pub fn set_linkage(self, linkage: Linkage) {
        assert!(self.is_global());
        // SAFETY: the kind is checked.
        unsafe { LLVMSetLinkage(self.0, linkage) }
    }

    /// Who sees a global.
    pub fn visibility(self) -> Option<Visibility> {
        // SAFETY: the kind is checked.
        self.is_global().then(|| unsafe { LLVMGetVisibility(self.0) })
    }

    /// See [`Value::visibility`].
    pub fn set_visibility(self, visibility: Visibility) {
        assert!(self.is_global());
        // SAFETY: the kind is checked.
        unsafe { LLVMSetVisibility(self.0, visibility) }
    }

    /// Which registers a function or call uses for what.
    pub fn set_calling_convention(self, convention: CallingConvention) {
        // SAFETY: the kind is checked.
        unsafe {
            if self.is_function() {
                LLVMSetFunctionCallConv(self.0, convention as u32);
            } else if self.is_call() {
                LLVMSetInstructionCallConv(self.0, convention as u32);
            }
        }
    }

    /// What an alias is another name of, be it of an alias itself.
    pub fn unaliased(self) -> Value<'m> {
        let mut value = self.0;
        // SAFETY: the kind is checked; an alias has an aliasee, and aliases form no circle, as LLVM's verifier sees to.
        unsafe {
            while LLVMGetValueKind(value) == LLVMValueKind::LLVMGlobalAliasValueKind {
                value = LLVMAliasGetAliasee(value);
            }
        }
        Value(value, PhantomData)
    }

    /// Parameters of a function.
    pub fn parameters(self) -> impl Iterator<Item = Value<'m>> {
        let count = if self.is_function() {
            // SAFETY: the kind is checked.
            unsafe { LLVMCountParams(self.0) }
        } else {
            0
        };
        // SAFETY: a function with so many parameters.
        (0..count).map(move |index| Value(unsafe { LLVMGetParam(self.0, index) }, PhantomData))
    }

    /// Function and number of a parameter.
    pub fn as_parameter(self) -> Option<(Value<'m>, u32)> {
        if !self.is_parameter() {
            return None;
        }
        // SAFETY: the kind is checked; a parameter has a function.
        let function: Value<'m> = Value(unsafe { LLVMGetParamParent(self.0) }, PhantomData);
        let index = function.parameters().position(|parameter| parameter == self)?;
        Some((function, u32::try_from(index).ok()?))
    }

    /// Whether it is a function that takes just these arguments, by their types.
    pub fn takes(self, arguments: &[Value<'m>]) -> bool {
        let given: Vec<Type> = arguments.iter().map(|argument| argument.ty()).collect();
        self.is_function() && self.value_type().is_some_and(|ty| ty.parameters() == given)
    }

    /// Blocks of a function, the entry first.
    pub fn blocks(self) -> impl Iterator<Item = Block<'m>> {
        // SAFETY: the kind is checked.
        let first = self
            .is_function()
            .then(|| unsafe { Block::new(LLVMGetFirstBasicBlock(self.0)) })
            .flatten();
        // SAFETY: a block of a live module.
        std::iter::successors(first, |at| unsafe { Block::new(LLVMGetNextBasicBlock(at.0)) })
    }

    /// Of a function: see [`Block::instructions`].
    pub fn instructions(self) -> impl Iterator<Item = Value<'m>> {
        self.blocks().flat_map(Block::instructions)
    }

    /// Of a function: see [`Block::code`].
    pub fn code(self) -> impl Iterator<Item = Value<'m>> {
        self.blocks().flat_map(Block::code)
    }

    // --- Instructions and constant expressions -------------------------------------------------------------------------

    /// What an instruction or a constant expression does.
    pub fn opcode(self) -> Option<Opcode> {
        // SAFETY: the kind is checked.
        unsafe {
            match self.kind() {
                LLVMValueKind::LLVMInstructionValueKind => Some(LLVMGetInstructionOpcode(self.0)),
                LLVMValueKind::LLVMConstantExprValueKind => Some(LLVMGetConstOpcode(self.0)),
                _ => None,
            }
        }
    }

    /// The block of an instruction.
    pub fn block(self) -> Option<Block<'m>> {
        // SAFETY: the kind is checked.
        self.is_instruction()
            .then(|| unsafe { Block::new(LLVMGetInstructionParent(self.0)) })
            .flatten()
    }

    /// The function of an instruction.
    pub fn function(self) -> Option<Value<'m>> {
        self.block().map(Block::function)
    }

    /// The next instruction of the block.
    pub fn next(self) -> Option<Value<'m>> {
        // SAFETY: an instruction that is in a block.
        self.block()
            .and_then(|_| unsafe { Value::new(LLVMGetNextInstruction(self.0)) })
    }

    /// The instructions after this one in its block, without debug intrinsics.
    pub fn following(self) -> impl Iterator<Item = Value<'m>> {
        std::iter::successors(self.next(), |instruction| instruction.next())
            .filter(|instruction| !instruction.is_debug_intrinsic())
    }

    /// Operands of an instruction, and of a constant that has parts. What a call calls is its last.
    pub fn operand_count(self) -> u32 {
        let has_operands = self.is_instruction() || self.is_constant();
        if has_operands {
            // SAFETY: the kind is checked.
            unsafe { LLVMGetNumOperands(self.0) }.max(0) as u32
        } else {
            0
        }
    }

    /// One of the operands.
    pub fn operand(self, index: u32) -> Option<Value<'m>> {
        // SAFETY: the index is checked.
        (index < self.operand_count())
            .then(|| unsafe { Value::new(LLVMGetOperand(self.0, index)) })
            .flatten()
    }

    /// One of the operands, for who knows by the opcode that it is there.
    pub fn operand_at(self, index: u32) -> Value<'m> {
        self.operand(index)
            .unwrap_or_else(|| panic!("{:?} has no operand {index}", self.opcode()))
    }

    /// The instructions and constants that have the value as an operand. Constants that are not of one module have none.
    pub fn users(self) -> Vec<Value<'m>> {
        let mut users = Vec::new();
        if self.module().is_none() {
            return users;
        }
        // SAFETY: see above; what uses a value of a module is in the module.
        unsafe {
            let mut at = LLVMGetFirstUse(self.0);
            while !at.is_null() {
                users.extend(Value::new(LLVMGetUser(at)));
                at = LLVMGetNextUse(at);
            }
        }
        users
    }

    /// Whether anything has the value as an operand.
    pub fn is_used(self) -> bool {
        // SAFETY: see above.
        !unsafe { LLVMGetFirstUse(self.0) }.is_null()
    }

    /// The module that the value is in, or that a constant refers to; `None` of what is shared by modules.
    pub(crate) fn module(self) -> Option<LLVMModuleRef> {
        // SAFETY: the kinds are checked.
        let function = unsafe {
            match self.kind() {
                LLVMValueKind::LLVMInstructionValueKind => self.function()?,
                LLVMValueKind::LLVMArgumentValueKind => Value(LLVMGetParamParent(self.0), PhantomData),
                LLVMValueKind::LLVMBasicBlockValueKind => {
                    Value(LLVMGetBasicBlockParent(LLVMValueAsBasicBlock(self.0)), PhantomData)
                }
                _ if self.is_global() => self,
                _ => return (0..self.operand_count()).find_map(|index| self.operand(index)?.module()),
            }
        };
        // SAFETY: a global value of a live module.
        Some(unsafe { LLVMGetGlobalParent(function.0) })
    }

    /// The module whose layout an instruction or global goes by.
    pub fn layout(self) -> Option<crate::Layout<'m>> {
        self.module().map(|module| {
            crate::Layout(
                // SAFETY: a module that is borrowed for 'm.
                unsafe { llvm_sys::target::LLVMGetModuleDataLayout(module) },
                PhantomData,
            )
        })
    }

    /// Whether it is a call, be it one that may throw or jump.
    pub fn is_call(self) -> bool {
        self.is_instruction()
            && matches!(
                self.opcode(),
                Some(LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr)
            )
    }

    /// What a call calls: a function, another name of one, inline assembly, or a pointer that is only known at run time.
    pub fn called_value(self) -> Option<Value<'m>> {
        // SAFETY: the kind is checked.
        self.is_call()
            .then(|| unsafe { Value::new(LLVMGetCalledValue(self.0)) })
            .flatten()
    }

    /// What a call calls, by its own name.
    pub fn callee(self) -> Option<Value<'m>> {
        self.called_value().map(Value::unaliased)
    }

    /// The function that a call calls directly.
    pub fn called_function(self) -> Option<Value<'m>> {
        self.callee().filter(|callee| callee.is_function())
    }

    /// The type of what a call calls.
    pub fn called_type(self) -> Option<Type<'m>> {
        // SAFETY: the kind is checked.
        self.is_call()
            .then(|| Type(unsafe { LLVMGetCalledFunctionType(self.0) }, PhantomData))
    }

    /// How many arguments a call has.
    pub fn argument_count(self) -> u32 {
        if self.is_call() {
            // SAFETY: the kind is checked.
            unsafe { LLVMGetNumArgOperands(self.0) }
        } else {
            0
        }
    }

    /// Arguments of a call.
    pub fn arguments(self) -> Vec<Value<'m>> {
        (0..self.argument_count())
            .filter_map(|index| self.operand(index))
            .collect()
    }

    /// Whether it calls what is only known at run time.
    pub fn is_indirect_call(self) -> bool {
        self.callee()
            .is_some_and(|callee| !callee.is_function() && !callee.is_inline_assembly())
    }

    /// Whether it is a call that has to be the last of its function.
    pub fn is_musttail(self) -> bool {
        self.is_instruction()
            && self.opcode() == Some(LLVMOpcode::LLVMCall)
            // SAFETY: the kind is checked.
            && unsafe { LLVMGetTailCallKind(self.0) } == LLVMTailCallKind::LLVMTailCallKindMustTail
    }

    /// Whether it is a call that describes a variable to debuggers and does nothing.
    pub fn is_debug_intrinsic(self) -> bool {
        self.called_function()
            .is_some_and(|callee| callee.name().starts_with("llvm.dbg."))
    }

    /// Whether it is a piece of assembly.
    pub fn is_inline_assembly(self) -> bool {
        self.kind() == LLVMValueKind::LLVMInlineAsmValueKind
    }

    /// Template and constraints of a piece of assembly, and whether it is in AT&T's syntax.
    pub fn inline_assembly(self) -> Option<(&'m str, &'m str, bool)> {
        if !self.is_inline_assembly() {
            return None;
        }
        let (mut one, mut other) = (0, 0);
        // SAFETY: the kind is checked; strings stay as long as the context.
        unsafe {
            let template = LLVMGetInlineAsmAsmString(self.0, &mut one);
            let constraints = LLVMGetInlineAsmConstraintString(self.0, &mut other);
            let is_att = LLVMGetInlineAsmDialect(self.0) == LLVMInlineAsmDialect::LLVMInlineAsmDialectATT;
            Some((text(template, one), text(constraints, other), is_att))
        }
    }

    /// Where an instruction may go on, if it ends a block.
    pub fn successors(self) -> Vec<Block<'m>> {
        // SAFETY: the kind is checked; it has as many successors as it says.
        unsafe {
            if LLVMIsATerminatorInst(self.0).is_null() {
                return Vec::new();
            }
            (0..LLVMGetNumSuccessors(self.0))
                .filter_map(|index| Block::new(LLVMGetSuccessor(self.0, index)))
                .collect()
        }
    }

    /// Where an invoke goes on if nothing was thrown.
    pub fn normal_destination(self) -> Option<Block<'m>> {
        // SAFETY: the kind is checked.
        (self.opcode() == Some(LLVMOpcode::LLVMInvoke))
            .then(|| unsafe { Block::new(LLVMGetNormalDest(self.0)) })
            .flatten()
    }

    /// The values that meet in a phi, and where each comes from.
    pub fn incoming(self) -> Vec<(Value<'m>, Block<'m>)> {
        if self.opcode() != Some(LLVMOpcode::LLVMPHI) {
            return Vec::new();
        }
        // SAFETY: the kind is checked; it has as many as it says.
        unsafe {
            (0..LLVMCountIncoming(self.0))
                .filter_map(|index| {
                    Value::new(LLVMGetIncomingValue(self.0, index)).zip(Block::new(LLVMGetIncomingBlock(self.0, index)))
                })
                .collect()
        }
    }

    /// Whether it is an alloca.
    pub fn is_alloca(self) -> bool {
        self.opcode() == Some(LLVMOpcode::LLVMAlloca)
    }

    /// What an alloca makes room for; its operand says how many.
    pub fn allocated_type(self) -> Option<Type<'m>> {
        // SAFETY: the kind is checked.
        self.is_alloca()
            .then(|| Type(unsafe { LLVMGetAllocatedType(self.0) }, PhantomData))
    }

    /// Whether it is an address computation, as an instruction or a constant.
    pub fn is_element_pointer(self) -> bool {
        self.opcode() == Some(LLVMOpcode::LLVMGetElementPtr)
    }

    /// What the first index of an address computation counts.
    pub fn source_element(self) -> Option<Type<'m>> {
        // SAFETY: the kind is checked.
        self.is_element_pointer()
            .then(|| Type(unsafe { LLVMGetGEPSourceElementType(self.0) }, PhantomData))
    }

    /// Whether an address computation promises to stay within its object.
    pub fn is_in_bounds(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_element_pointer() && unsafe { LLVMIsInBounds(self.0) != 0 }
    }

    /// The members that an `extractvalue` or `insertvalue` goes by.
    pub fn indices(self) -> &'m [u32] {
        if !matches!(
            self.opcode(),
            Some(LLVMOpcode::LLVMExtractValue | LLVMOpcode::LLVMInsertValue)
        ) {
            return &[];
        }
        // SAFETY: the kind is checked; LLVM gives so many, and does not change them.
        unsafe { std::slice::from_raw_parts(LLVMGetIndices(self.0), LLVMGetNumIndices(self.0) as usize) }
    }

    /// How an integer comparison compares.
    pub fn predicate(self) -> Option<IntPredicate> {
        // SAFETY: the kind is checked.
        (self.opcode() == Some(LLVMOpcode::LLVMICmp)).then(|| unsafe { LLVMGetICmpPredicate(self.0) })
    }

    /// How a load, store, `atomicrmw` or fence is ordered; not atomic for anything else.
    pub fn ordering(self) -> AtomicOrdering {
        match self.opcode() {
            Some(
                LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore | LLVMOpcode::LLVMAtomicRMW | LLVMOpcode::LLVMFence,
                // SAFETY: the kind is checked.
            ) => unsafe { LLVMGetOrdering(self.0) },
            _ => AtomicOrdering::LLVMAtomicOrderingNotAtomic,
        }
    }

    /// Whether a fence is one for signal handlers only.
    pub fn is_single_threaded(self) -> bool {
        // SAFETY: the kind is checked.
        self.opcode() == Some(LLVMOpcode::LLVMFence) && unsafe { LLVMIsAtomicSingleThread(self.0) != 0 }
    }

    /// What an `atomicrmw` does.
    pub fn atomic_operation(self) -> Option<AtomicOperation> {
        // SAFETY: the kind is checked.
        (self.opcode() == Some(LLVMOpcode::LLVMAtomicRMW)).then(|| unsafe { LLVMGetAtomicRMWBinOp(self.0) })
    }

    /// Whether it is a load or store that is volatile.
    pub fn is_volatile(self) -> bool {
        // SAFETY: the kind is checked.
        matches!(self.opcode(), Some(LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore))
            && unsafe { LLVMGetVolatile(self.0) != 0 }
    }

    /// Whether an instruction has metadata of this name (`nontemporal`).
    pub fn has_metadata(self, name: &str) -> bool {
        // SAFETY: the kind is checked; pointer and length of one string.
        self.is_instruction()
            && unsafe {
                let context = LLVMGetTypeContext(self.ty().0);
                let kind = LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as u32);
                !LLVMGetMetadata(self.0, kind).is_null()
            }
    }

    /// Whether an instruction goes on at one of several places.
    pub fn is_branch(self) -> bool {
        match self.opcode() {
            Some(LLVMOpcode::LLVMBr) => self.operand(1).is_some(),
            Some(LLVMOpcode::LLVMSwitch | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMIndirectBr) => true,
            _ => false,
        }
    }

    /// Whether an instruction leaves its function.
    pub fn is_return(self) -> bool {
        matches!(
            self.opcode(),
            Some(LLVMOpcode::LLVMRet | LLVMOpcode::LLVMResume | LLVMOpcode::LLVMCleanupRet)
        )
    }

    /// Whether it is a load, store or operation that is atomic, or a fence of C11.
    pub fn is_atomic(self) -> bool {
        match self.opcode() {
            Some(LLVMOpcode::LLVMAtomicRMW | LLVMOpcode::LLVMAtomicCmpXchg | LLVMOpcode::LLVMFence) => true,
            _ => self.ordering() != AtomicOrdering::LLVMAtomicOrderingNotAtomic,
        }
    }

    /// Where an instruction that writes memory writes: the pointer. Not of calls of functions.
    pub fn store_pointer(self) -> Option<Value<'m>> {
        match self.opcode()? {
            LLVMOpcode::LLVMStore => self.operand(1),
            LLVMOpcode::LLVMAtomicRMW | LLVMOpcode::LLVMAtomicCmpXchg => self.operand(0),
            _ => None,
        }
    }

    /// How many bytes a store (or atomic operation) writes.
    pub fn stored_size(self) -> Option<u64> {
        let stored = match self.opcode()? {
            LLVMOpcode::LLVMStore => self.operand(0)?,
            LLVMOpcode::LLVMAtomicRMW | LLVMOpcode::LLVMAtomicCmpXchg => self.operand(1)?,
            _ => return None,
        };
        Some(self.layout()?.store_size_of(stored.ty()))
    }

    /// What a pointer is computed from by field and element accesses alone.
    pub fn base(self) -> Value<'m> {
        let mut base = self;
        while let Some(LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMAddrSpaceCast) =
            base.opcode()
            && let Some(inner) = base.operand(0)
        {
            base = inner;
        }
        base
    }

    /// What a pointer is computed from by steps that `through` agrees to, and the distance in bytes if that is constant.
    pub fn base_and_offset(self, through: impl Fn(Value<'m>) -> bool) -> (Value<'m>, Option<i64>) {
        let (mut at, mut offset) = (self, Some(0i64));
        while at.is_element_pointer()
            && through(at)
            && let Some(base) = at.operand(0)
        {
            offset = offset.zip(at.step()).map(|(one, other)| one.wrapping_add(other));
            at = base;
        }
        (at, offset)
    }

    /// How many bytes an address computation adds, if its indices are constant.
    pub fn step(self) -> Option<i64> {
        let layout = self.layout()?;
        let mut ty = self.source_element()?;
        let mut offset = 0i64;
        for position in 1..self.operand_count() {
            let index = self.operand(position)?.signed()?;
            if position > 1 {
                let member = u32::try_from(index).unwrap_or(0);
                let is_struct = ty.is_struct();
                if is_struct {
                    offset = offset.wrapping_add(layout.offset_of(ty, member) as i64);
                }
                ty = ty.element(member)?;
                if is_struct {
                    continue;
                }
            }
            offset = offset.wrapping_add(index.wrapping_mul(layout.size_of(ty) as i64));
        }
        Some(offset)
    }
}
