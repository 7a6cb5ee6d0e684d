//! The part of LLVM's C interface that locating and planning need, behind types that live as long as the module.
//!
//! Instructions are counted without the debug intrinsics, which LLVM 19 keeps now as instructions and now beside them.

use std::ffi::{c_char, c_uint};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crashproof_compiler::instrument::assembly::{self, Operation};
use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::*;
use llvm_sys::target::{LLVMGetModuleDataLayout, LLVMStoreSizeOfType};
use llvm_sys::{
    LLVMAtomicOrdering, LLVMAttributeFunctionIndex, LLVMOpcode, LLVMTailCallKind, LLVMTypeKind, LLVMValueKind,
};

use crate::plan::known::{self, Length, Written};
use crate::plan::{Place, Position};

/// A value of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Value<'m>(LLVMValueRef, PhantomData<&'m ()>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Block<'m>(LLVMBasicBlockRef, PhantomData<&'m ()>);

// Every function below gets a reference that LLVM gave out for a module that 'm keeps borrowed, so it points to a live value;
// what LLVM leaves undefined for another kind of value is asked only after that kind was checked.

fn value<'m>(raw: LLVMValueRef) -> Option<Value<'m>> {
    (!raw.is_null()).then_some(Value(raw, PhantomData))
}

fn block<'m>(raw: LLVMBasicBlockRef) -> Option<Block<'m>> {
    (!raw.is_null()).then_some(Block(raw, PhantomData))
}

/// A string that LLVM keeps.
fn text<'m>(start: *const c_char, length: usize) -> &'m str {
    if start.is_null() || length == 0 {
        return "";
    }
    // SAFETY: LLVM returned both, and keeps the bytes as long as the module.
    let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) };
    str::from_utf8(bytes).unwrap_or("")
}

pub fn functions<'m>(module: &'m Module<'_>) -> impl Iterator<Item = Value<'m>> {
    // SAFETY: see above.
    let first = value(unsafe { LLVMGetFirstFunction(module.as_mut_ptr()) });
    std::iter::successors(first, |function| value(unsafe { LLVMGetNextFunction(function.0) }))
}

pub fn function<'m>(module: &'m Module<'_>, name: &str) -> Option<Value<'m>> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: see above; the name ends with a zero.
    value(unsafe { LLVMGetNamedFunction(module.as_mut_ptr(), name.as_ptr()) })
}

/// The instruction that a plan names; `None` if the module has none such (it is another module, or was changed since).
pub fn find<'m>(module: &'m Module<'_>, place: &Place) -> Option<Value<'m>> {
    function(module, &place.function)?
        .instructions()
        .nth(place.instruction as usize)
}

impl<'m> Block<'m> {
    pub fn raw(self) -> LLVMBasicBlockRef {
        self.0
    }

    /// But for debug intrinsics.
    pub fn instructions(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: see above.
        let first = value(unsafe { LLVMGetFirstInstruction(self.0) });
        std::iter::successors(first, |instruction| {
            value(unsafe { LLVMGetNextInstruction(instruction.0) })
        })
        .filter(|instruction| !instruction.is_debug_intrinsic())
    }

    pub fn successors(self) -> Vec<Block<'m>> {
        // SAFETY: see above; the terminator has as many successors as it says.
        unsafe {
            let terminator = LLVMGetBasicBlockTerminator(self.0);
            if terminator.is_null() {
                return Vec::new();
            }
            let count = LLVMGetNumSuccessors(terminator);
            (0..count)
                .filter_map(|index| block(LLVMGetSuccessor(terminator, index)))
                .collect()
        }
    }
}

impl<'m> Value<'m> {
    /// # Safety
    /// The value must belong to a module that lives for `'m`.
    pub unsafe fn new(raw: LLVMValueRef) -> Option<Value<'m>> {
        value(raw)
    }

    pub fn raw(self) -> LLVMValueRef {
        self.0
    }

    pub fn name(self) -> &'m str {
        let mut length = 0;
        // SAFETY: see above.
        let start = unsafe { LLVMGetValueName2(self.0, &mut length) };
        text(start, length)
    }

    /// Of a function.
    pub fn blocks(self) -> impl Iterator<Item = Block<'m>> {
        // SAFETY: only functions are asked, see above.
        let first = block(unsafe { LLVMGetFirstBasicBlock(self.0) });
        std::iter::successors(first, |at| block(unsafe { LLVMGetNextBasicBlock(at.0) }))
    }

    /// Of a function, in the order of its blocks, but for debug intrinsics.
    pub fn instructions(self) -> impl Iterator<Item = Value<'m>> {
        self.blocks().flat_map(Block::instructions)
    }

    /// A function whose code is here.
    pub fn has_body(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_function() && unsafe { LLVMIsDeclaration(self.0) } == 0
    }

    pub fn is_function(self) -> bool {
        self.kind() == LLVMValueKind::LLVMFunctionValueKind
    }

    pub fn is_variadic(self) -> bool {
        // SAFETY: only functions are asked.
        unsafe { LLVMIsFunctionVarArg(LLVMGlobalGetValueType(self.0)) != 0 }
    }

    pub fn kind(self) -> LLVMValueKind {
        // SAFETY: see above.
        unsafe { LLVMGetValueKind(self.0) }
    }

    fn is_debug_intrinsic(self) -> bool {
        self.callee()
            .is_some_and(|callee| callee.is_function() && callee.name().starts_with("llvm.dbg."))
    }

    /// Of an instruction or a constant expression.
    pub fn opcode(self) -> Option<LLVMOpcode> {
        // SAFETY: the kind is checked.
        unsafe {
            if !LLVMIsAInstruction(self.0).is_null() {
                Some(LLVMGetInstructionOpcode(self.0))
            } else if !LLVMIsAConstantExpr(self.0).is_null() {
                Some(LLVMGetConstOpcode(self.0))
            } else {
                None
            }
        }
    }

    pub fn is_call(self) -> bool {
        matches!(
            self.opcode(),
            Some(LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr)
        )
    }

    pub fn operand(self, index: u32) -> Option<Value<'m>> {
        // SAFETY: an instruction or constant; the index is checked.
        unsafe {
            let count = u32::try_from(LLVMGetNumOperands(self.0)).unwrap_or(0);
            (index < count).then(|| value(LLVMGetOperand(self.0, index))).flatten()
        }
    }

    /// What a call calls: a function, inline assembly, or the pointer to what is only known at run time.
    pub fn callee(self) -> Option<Value<'m>> {
        if !self.is_call() {
            return None;
        }
        // SAFETY: it is a call; an alias has an aliasee, and aliases form no circle.
        unsafe {
            let mut callee = LLVMGetCalledValue(self.0);
            while LLVMGetValueKind(callee) == LLVMValueKind::LLVMGlobalAliasValueKind {
                callee = LLVMAliasGetAliasee(callee);
            }
            value(callee)
        }
    }

    /// The function that a call calls directly.
    pub fn called_function(self) -> Option<Value<'m>> {
        self.callee().filter(|callee| callee.is_function())
    }

    /// A call of what is only known at run time.
    pub fn is_indirect_call(self) -> bool {
        self.callee()
            .is_some_and(|callee| !callee.is_function() && callee.kind() != LLVMValueKind::LLVMInlineAsmValueKind)
    }

    pub fn is_intrinsic(self) -> bool {
        // SAFETY: the kind is checked.
        self.is_function() && unsafe { LLVMGetIntrinsicID(self.0) } != 0
    }

    /// Arguments of a call.
    pub fn arguments(self) -> Vec<Value<'m>> {
        if !self.is_call() {
            return Vec::new();
        }
        // SAFETY: it is a call.
        let count = unsafe { LLVMGetNumArgOperands(self.0) };
        (0..count).filter_map(|index| self.operand(index)).collect()
    }

    pub fn is_pointer(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMGetTypeKind(LLVMTypeOf(self.0)) == LLVMTypeKind::LLVMPointerTypeKind }
    }

    pub fn is_alloca(self) -> bool {
        self.opcode() == Some(LLVMOpcode::LLVMAlloca)
    }

    pub fn is_global_variable(self) -> bool {
        self.kind() == LLVMValueKind::LLVMGlobalVariableValueKind
    }

    pub fn constant_integer(self) -> Option<u64> {
        // SAFETY: the kind is checked; wider than 64 bits LLVM would not say.
        unsafe {
            (!LLVMIsAConstantInt(self.0).is_null() && LLVMGetIntTypeWidth(LLVMTypeOf(self.0)) <= 64)
                .then(|| LLVMConstIntGetZExtValue(self.0))
        }
    }

    /// What a pointer is computed from by field and element accesses alone.
    pub fn base(self) -> Value<'m> {
        let mut base = self;
        while let Some(LLVMOpcode::LLVMGetElementPtr | LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMAddrSpaceCast) =
            base.opcode()
        {
            match base.operand(0) {
                Some(inner) => base = inner,
                None => break,
            }
        }
        base
    }

    /// The block of an instruction.
    pub fn block(self) -> Option<Block<'m>> {
        // SAFETY: the kind is checked.
        unsafe {
            (!LLVMIsAInstruction(self.0).is_null())
                .then(|| block(LLVMGetInstructionParent(self.0)))
                .flatten()
        }
    }

    /// The function of an instruction.
    pub fn function(self) -> Option<Value<'m>> {
        // SAFETY: a block is in a function.
        value(unsafe { LLVMGetBasicBlockParent(self.block()?.0) })
    }

    /// The instructions after this one in its block.
    pub fn following(self) -> impl Iterator<Item = Value<'m>> {
        let next = |at: &Value<'m>| {
            // SAFETY: an instruction.
            value(unsafe { LLVMGetNextInstruction(at.0) })
        };
        let first = self.block().and_then(|_| next(&self));
        std::iter::successors(first, next).filter(|instruction| !instruction.is_debug_intrinsic())
    }

    /// Whether it is a null pointer.
    pub fn is_null(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMIsNull(self.0) != 0 }
    }

    /// Whether it goes on at one of several places.
    pub fn is_branch(self) -> bool {
        match self.opcode() {
            Some(LLVMOpcode::LLVMBr) => self.operand(1).is_some(),
            Some(LLVMOpcode::LLVMSwitch | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMIndirectBr) => true,
            _ => false,
        }
    }

    pub fn is_return(self) -> bool {
        matches!(
            self.opcode(),
            Some(LLVMOpcode::LLVMRet | LLVMOpcode::LLVMResume | LLVMOpcode::LLVMCleanupRet)
        )
    }

    /// A call whose caller's frame is gone when it runs.
    pub fn is_musttail(self) -> bool {
        // SAFETY: the kind is checked.
        self.opcode() == Some(LLVMOpcode::LLVMCall)
            && unsafe { LLVMGetTailCallKind(self.0) } == LLVMTailCallKind::LLVMTailCallKindMustTail
    }

    /// Whether a function is marked as one that does not return.
    pub fn never_returns(self) -> bool {
        const NAME: &str = "noreturn";
        // SAFETY: only functions are asked; the name with its length.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(NAME.as_ptr().cast(), NAME.len());
            !LLVMGetEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, kind).is_null()
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
        // SAFETY: an instruction of a module with a layout; what is stored has a size.
        unsafe {
            let module = LLVMGetGlobalParent(self.function()?.0);
            Some(LLVMStoreSizeOfType(
                LLVMGetModuleDataLayout(module),
                LLVMTypeOf(stored.0),
            ))
        }
    }

    /// Where a call of a memory function writes: a known one, or one without debug information that stores once, through a parameter, as the compiler's
    /// headers have them (`_mm_store_si128`).
    pub fn written(self) -> Option<Written> {
        let function = self.called_function()?;
        known::written(function.name()).or_else(|| {
            let mut stores = function
                .instructions()
                .filter(|_| function.is_unseen())
                .filter(|inner| inner.is_call() || inner.store_pointer().is_some_and(|to| !to.base().is_alloca()));
            let (store, None) = (stores.next()?, stores.next()) else {
                return None;
            };
            // Unoptimised: parameter, variable, pointer.
            let variable = store
                .store_pointer()?
                .operand(0)
                .filter(|variable| variable.is_alloca())?;
            let assigned = function
                .instructions()
                .find(|inner| inner.store_pointer() == Some(variable))?;
            Some(Written {
                destination: function.parameter_index(assigned.operand(0)?)?,
                length: Length::Constant(store.stored_size()?),
            })
        })
    }

    /// The pointer that a store, or a call of a memory function, writes through.
    pub fn destination(self) -> Option<Value<'m>> {
        self.store_pointer()
            .or_else(|| self.operand(self.written()?.destination))
    }

    fn parameter_index(self, parameter: Value<'m>) -> Option<u32> {
        // SAFETY: only functions are asked, for as many parameters as they have.
        let count = unsafe { LLVMCountParams(self.0) };
        (0..count).find(|&index| value(unsafe { LLVMGetParam(self.0, index) }) == Some(parameter))
    }

    /// A function whose code is here and has no debug information, so that no frame is ever in it: the compiler's intrinsics in its headers.
    pub fn is_unseen(self) -> bool {
        self.has_body() && self.source_name().is_none()
    }

    /// Whether a store is marked `!nontemporal`.
    pub fn is_nontemporal(self) -> bool {
        const NAME: &str = "nontemporal";
        // SAFETY: an instruction; the name with its length.
        unsafe {
            let context = LLVMGetTypeContext(LLVMTypeOf(self.0));
            let kind = LLVMGetMDKindIDInContext(context, NAME.as_ptr().cast(), NAME.len() as c_uint);
            !LLVMGetMetadata(self.0, kind).is_null()
        }
    }

    /// Template and constraints, of a call of inline assembly.
    pub fn assembly(self) -> Option<(&'m str, &'m str)> {
        let callee = self.callee()?;
        if callee.kind() != LLVMValueKind::LLVMInlineAsmValueKind {
            return None;
        }
        // SAFETY: the kind is checked.
        unsafe {
            let mut length = 0;
            let template = LLVMGetInlineAsmAsmString(callee.0, &mut length);
            let template = text(template, length);
            let constraints = LLVMGetInlineAsmConstraintString(callee.0, &mut length);
            Some((template, text(constraints, length)))
        }
    }

    /// What an instruction does for persistence, if it does nothing else.
    pub fn persistence(self) -> Vec<Persistence<'m>> {
        if self.opcode() == Some(LLVMOpcode::LLVMFence) {
            // SAFETY: it is a fence. Only a sequentially consistent one is an instruction on x86.
            let ordering = unsafe { LLVMGetOrdering(self.0) };
            let full = ordering == LLVMAtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
            return if full { vec![Persistence::Fence] } else { Vec::new() };
        }
        if let Some((template, constraints)) = self.assembly() {
            let operations = assembly::recognise(template, constraints).unwrap_or_default();
            return operations
                .into_iter()
                .filter_map(|operation| match operation {
                    Operation::Flush { argument, .. } => self.operand(argument).map(Persistence::Flush),
                    Operation::Fence { .. } => Some(Persistence::Fence),
                })
                .collect();
        }
        let Some(callee) = self.called_function() else {
            return Vec::new();
        };
        match callee.name() {
            "llvm.x86.sse.sfence" | "llvm.x86.sse2.mfence" => vec![Persistence::Fence],
            "llvm.x86.clwb" | "llvm.x86.clflushopt" | "llvm.x86.sse2.clflush" => {
                self.operand(0).map(Persistence::Flush).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Where in the source an instruction is.
    pub fn location(self) -> Option<Location<'m>> {
        // SAFETY: the kind is checked; a DILocation has a scope.
        unsafe {
            if LLVMIsAInstruction(self.0).is_null() {
                return None;
            }
            let location = LLVMInstructionGetDebugLoc(self.0);
            if location.is_null() {
                return None;
            }
            Some(Location {
                line: LLVMDILocationGetLine(location),
                column: LLVMDILocationGetColumn(location),
                file: LLVMDIScopeGetFile(LLVMDILocationGetScope(location)),
                borrowed: PhantomData,
            })
        }
    }

    pub fn position(self) -> Option<Position> {
        let location = self.location().filter(|location| location.line > 0)?;
        Some(Position {
            file: location.path()?,
            line: location.line,
            column: location.column,
        })
    }

    /// The name of a function that the source has, from its debug information.
    pub fn source_name(self) -> Option<&'m str> {
        const NAME: usize = 2;
        // SAFETY: a function; a DISubprogram has the operands that LLVM 19 gives it, of which this is a string or null.
        unsafe {
            let subprogram = LLVMGetSubprogram(self.0);
            if subprogram.is_null() {
                return None;
            }
            let node = LLVMMetadataAsValue(LLVMGetTypeContext(LLVMTypeOf(self.0)), subprogram);
            let mut operands = vec![std::ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
            LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
            let name = *operands.get(NAME).filter(|name| !name.is_null())?;
            let mut length = 0;
            let start = LLVMGetMDString(name, &mut length);
            Some(text(start, length as usize)).filter(|name| !name.is_empty())
        }
    }

    /// A load, store or operation that is atomic, or a fence of C11.
    pub fn is_atomic(self) -> bool {
        match self.opcode() {
            // SAFETY: the kind is checked.
            Some(LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore) => unsafe {
                LLVMGetOrdering(self.0) != LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic
            },
            Some(LLVMOpcode::LLVMAtomicRMW | LLVMOpcode::LLVMAtomicCmpXchg | LLVMOpcode::LLVMFence) => true,
            _ => false,
        }
    }

    /// A load or store that is volatile.
    pub fn is_volatile(self) -> bool {
        // SAFETY: the kind is checked.
        matches!(self.opcode(), Some(LLVMOpcode::LLVMLoad | LLVMOpcode::LLVMStore))
            && unsafe { LLVMGetVolatile(self.0) != 0 }
    }

    pub fn has_type_of(self, other: Value<'m>) -> bool {
        // SAFETY: see above.
        unsafe { LLVMTypeOf(self.0) == LLVMTypeOf(other.0) }
    }

    /// What an address computation counts in.
    pub fn element_type(self) -> Option<LLVMTypeRef> {
        // SAFETY: the kind is checked.
        (self.opcode() == Some(LLVMOpcode::LLVMGetElementPtr)).then(|| unsafe { LLVMGetGEPSourceElementType(self.0) })
    }

    /// The function and index of a parameter.
    pub fn as_parameter(self) -> Option<(Value<'m>, u32)> {
        if self.kind() != LLVMValueKind::LLVMArgumentValueKind {
            return None;
        }
        // SAFETY: the kind is checked, and it is one of its function's.
        unsafe {
            let function = LLVMGetParamParent(self.0);
            let index = (0..LLVMCountParams(function)).find(|index| LLVMGetParam(function, *index) == self.0)?;
            Some((value(function)?, index))
        }
    }

    /// The instructions and constants that have it as an operand.
    pub fn users(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: see above.
        let first = unsafe { LLVMGetFirstUse(self.0) };
        std::iter::successors((!first.is_null()).then_some(first), |used| {
            let next = unsafe { LLVMGetNextUse(*used) };
            (!next.is_null()).then_some(next)
        })
        .filter_map(|used| value(unsafe { LLVMGetUser(used) }))
    }

    /// As plans name it.
    pub fn place(self) -> Option<Place> {
        let function = self.function()?;
        let instruction = function.instructions().position(|other| other == self)?;
        Some(Place {
            function: function.name().to_owned(),
            instruction: u32::try_from(instruction).ok()?,
            position: self.position(),
        })
    }
}

/// What an instruction does for persistence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence<'m> {
    /// Of the line at this pointer.
    Flush(Value<'m>),
    Fence,
}

/// A position in the source, of which the file is looked up when it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location<'m> {
    pub line: u32,
    pub column: u32,
    file: LLVMMetadataRef,
    borrowed: PhantomData<&'m ()>,
}

impl Location<'_> {
    /// The same for the same file of a module, and cheap.
    pub fn file_key(self) -> usize {
        self.file as usize
    }

    /// As debug info has it, joined with its folder, and without `.` and `..`.
    pub fn path(self) -> Option<PathBuf> {
        if self.file.is_null() {
            return None;
        }
        // SAFETY: a DIFile; strings with their lengths.
        let text = |get: unsafe extern "C" fn(LLVMMetadataRef, *mut c_uint) -> *const c_char| unsafe {
            let mut length = 0;
            let start = get(self.file, &mut length);
            text(start, length as usize)
        };
        let (folder, name) = (text(LLVMDIFileGetDirectory), text(LLVMDIFileGetFilename));
        Some(normalized(&Path::new(folder).join(name)))
    }
}

/// Without `.`, and without `..` as far as the text goes.
pub fn normalized(path: &Path) -> PathBuf {
    use std::path::Component::*;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            CurDir => {}
            ParentDir if matches!(out.components().next_back(), Some(Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
