//! The part of LLVM's C interface that reading a module needs, behind types that live as long as the module: inkwell shows
//! neither metadata nor constant expressions.

use std::ffi::{CStr, c_char, c_uint};
use std::marker::PhantomData;
use std::ptr;

use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::*;
use llvm_sys::target::*;
use llvm_sys::{LLVMOpcode, LLVMTypeKind};

/// A value of a module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value<'m>(LLVMValueRef, PhantomData<&'m ()>);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IrType<'m>(LLVMTypeRef, PhantomData<&'m ()>);

// Every function below gets a reference that LLVM gave out for a module that 'm keeps borrowed, so it points to a live value;
// what LLVM leaves undefined for another kind of value is asked only after that kind was checked.

fn value<'m>(raw: LLVMValueRef) -> Option<Value<'m>> {
    (!raw.is_null()).then_some(Value(raw, PhantomData))
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

/// A module in the form in which debug intrinsics are instructions (LLVM 19 keeps them apart, and its C interface cannot
/// read them there); goes back to the other form in the end.
pub struct Reading<'m> {
    module: LLVMModuleRef,
    was_new: LLVMBool,
    layout: LLVMTargetDataRef,
    borrowed: PhantomData<&'m ()>,
}

impl<'m> Reading<'m> {
    pub fn new(module: &'m Module<'_>) -> Reading<'m> {
        let module = module.as_mut_ptr();
        // SAFETY: the module is live.
        unsafe {
            let was_new = LLVMIsNewDbgInfoFormat(module);
            LLVMSetIsNewDbgInfoFormat(module, 0);
            Reading {
                module,
                was_new,
                layout: LLVMGetModuleDataLayout(module),
                borrowed: PhantomData,
            }
        }
    }

    pub fn functions(&self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: see above.
        let first = value(unsafe { LLVMGetFirstFunction(self.module) });
        std::iter::successors(first, |function| value(unsafe { LLVMGetNextFunction(function.0) }))
    }

    /// The compile units of the module's debug info.
    pub fn compile_units(&self) -> Vec<Node<'m>> {
        let name = c"llvm.dbg.cu".as_ptr();
        // SAFETY: the vector has room for as many operands as LLVM says there are.
        let units = unsafe {
            let mut units = vec![ptr::null_mut(); LLVMGetNamedMetadataNumOperands(self.module, name) as usize];
            LLVMGetNamedMetadataOperands(self.module, name, units.as_mut_ptr());
            units
        };
        units.into_iter().filter_map(value).filter_map(Node::new).collect()
    }

    pub fn size_of(&self, ty: IrType) -> u64 {
        // SAFETY: see above; an opaque struct has no size.
        unsafe {
            if LLVMTypeIsSized(ty.0) == 0 {
                return 0;
            }
            LLVMABISizeOfType(self.layout, ty.0)
        }
    }

    pub fn store_size_of(&self, ty: IrType) -> u64 {
        // SAFETY: see above.
        unsafe {
            if LLVMTypeIsSized(ty.0) == 0 {
                return 0;
            }
            LLVMStoreSizeOfType(self.layout, ty.0)
        }
    }

    pub fn offset_of(&self, structure: IrType, index: u32) -> u64 {
        // SAFETY: the index comes from a valid GEP into this struct type.
        unsafe { LLVMOffsetOfElement(self.layout, structure.0, index) }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // SAFETY: the module is still borrowed.
        unsafe { LLVMSetIsNewDbgInfoFormat(self.module, self.was_new) }
    }
}

impl<'m> IrType<'m> {
    pub fn kind(self) -> LLVMTypeKind {
        // SAFETY: see above.
        unsafe { LLVMGetTypeKind(self.0) }
    }

    /// Of a named struct.
    pub fn struct_name(self) -> Option<&'m str> {
        if self.kind() != LLVMTypeKind::LLVMStructTypeKind {
            return None;
        }
        // SAFETY: it is a struct; a literal one has no name.
        let name = unsafe { LLVMGetStructName(self.0) };
        if name.is_null() {
            return None;
        }
        // SAFETY: LLVM's names end with a zero.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    /// Of an array, a vector, or a member of a struct.
    pub fn element(self, index: u32) -> Option<IrType<'m>> {
        // SAFETY: the kind is checked, and the index.
        let raw = unsafe {
            match self.kind() {
                LLVMTypeKind::LLVMArrayTypeKind | LLVMTypeKind::LLVMVectorTypeKind => LLVMGetElementType(self.0),
                LLVMTypeKind::LLVMStructTypeKind if index < LLVMCountStructElementTypes(self.0) => {
                    LLVMStructGetTypeAtIndex(self.0, index)
                }
                _ => return None,
            }
        };
        Some(IrType(raw, PhantomData))
    }
}

/// Where in the source an instruction is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl<'m> Value<'m> {
    pub fn instructions(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: only functions are asked, see above.
        let first = unsafe { LLVMGetFirstBasicBlock(self.0) };
        let blocks = std::iter::successors((!first.is_null()).then_some(first), |&block| {
            let next = unsafe { LLVMGetNextBasicBlock(block) };
            (!next.is_null()).then_some(next)
        });
        blocks.flat_map(|block| {
            let first = value(unsafe { LLVMGetFirstInstruction(block) });
            std::iter::successors(first, |instruction| {
                value(unsafe { LLVMGetNextInstruction(instruction.0) })
            })
        })
    }

    pub fn parameters(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: only functions are asked, and only for as many parameters as they have.
        let count = unsafe { LLVMCountParams(self.0) };
        (0..count).filter_map(move |index| value(unsafe { LLVMGetParam(self.0, index) }))
    }

    pub fn name(self) -> &'m str {
        let mut length = 0;
        // SAFETY: see above.
        let start = unsafe { LLVMGetValueName2(self.0, &mut length) };
        text(start, length)
    }

    /// The operation of an instruction or a constant expression.
    pub fn opcode(self) -> Option<LLVMOpcode> {
        // SAFETY: the kind is checked first.
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

    pub fn is_global(self) -> bool {
        // SAFETY: see above.
        unsafe { !LLVMIsAGlobalVariable(self.0).is_null() }
    }

    /// Whether it is a function with this address, not a pointer to one.
    pub fn is_function(self) -> bool {
        // SAFETY: see above.
        unsafe { !LLVMIsAFunction(self.0).is_null() }
    }

    pub fn is_pointer(self) -> bool {
        self.ty().kind() == LLVMTypeKind::LLVMPointerTypeKind
    }

    pub fn ty(self) -> IrType<'m> {
        // SAFETY: see above.
        IrType(unsafe { LLVMTypeOf(self.0) }, PhantomData)
    }

    pub fn operand_count(self) -> u32 {
        // SAFETY: see above.
        unsafe { LLVMGetNumOperands(self.0) }.max(0) as u32
    }

    pub fn operand(self, index: u32) -> Option<Value<'m>> {
        // SAFETY: the index is checked.
        (index < self.operand_count()).then(|| value(unsafe { LLVMGetOperand(self.0, index) }))?
    }

    /// The values that meet in a phi.
    pub fn incoming(self) -> impl Iterator<Item = Value<'m>> {
        // SAFETY: only phis are asked.
        let count = unsafe { LLVMCountIncoming(self.0) };
        (0..count).filter_map(move |index| value(unsafe { LLVMGetIncomingValue(self.0, index) }))
    }

    pub fn constant(self) -> Option<i64> {
        // SAFETY: the kind is checked first; wider integers do not fit.
        unsafe {
            if LLVMIsAConstantInt(self.0).is_null() || LLVMGetIntTypeWidth(LLVMTypeOf(self.0)) > 64 {
                return None;
            }
            Some(LLVMConstIntGetSExtValue(self.0))
        }
    }

    /// What a GEP steps over.
    pub fn source_element(self) -> IrType<'m> {
        // SAFETY: only GEPs are asked.
        IrType(unsafe { LLVMGetGEPSourceElementType(self.0) }, PhantomData)
    }

    pub fn callee(self) -> Option<Value<'m>> {
        // SAFETY: only calls and invokes are asked.
        value(unsafe { LLVMGetCalledValue(self.0) })
    }

    pub fn argument_count(self) -> u32 {
        // SAFETY: only calls and invokes are asked.
        unsafe { LLVMGetNumArgOperands(self.0) }
    }

    pub fn is_intrinsic(self) -> bool {
        // SAFETY: only functions are asked.
        self.is_function() && unsafe { LLVMGetIntrinsicID(self.0) } != 0
    }

    pub fn position(self) -> Option<Position> {
        // SAFETY: only instructions are asked; none has a location of another kind.
        unsafe {
            let location = LLVMInstructionGetDebugLoc(self.0);
            if location.is_null() {
                return None;
            }
            Some(Position {
                line: LLVMDILocationGetLine(location),
                column: LLVMDILocationGetColumn(location),
            })
        }
    }

    /// The debug info of a function.
    pub fn subprogram(self) -> Option<Node<'m>> {
        // SAFETY: only functions are asked.
        unsafe {
            let subprogram = LLVMGetSubprogram(self.0);
            if subprogram.is_null() {
                return None;
            }
            let context = LLVMGetTypeContext(LLVMTypeOf(self.0));
            Node::new(value(LLVMMetadataAsValue(context, subprogram))?)
        }
    }

    /// The debug info of a global variable.
    pub fn global_variable(self) -> Option<Node<'m>> {
        // SAFETY: only globals are asked; the entries are freed, what they refer to belongs to the module.
        unsafe {
            let mut count = 0;
            let entries = LLVMGlobalCopyAllMetadata(self.0, &mut count);
            let context = LLVMGetTypeContext(LLVMTypeOf(self.0));
            let found = (0..count as c_uint)
                .filter(|&index| LLVMValueMetadataEntriesGetKind(entries, index) == 0)
                .filter_map(|index| {
                    let expression = LLVMValueMetadataEntriesGetMetadata(entries, index);
                    Node::new(value(LLVMMetadataAsValue(context, expression))?)?.operand(0)
                })
                .next();
            LLVMDisposeValueMetadataEntries(entries);
            found
        }
    }

    /// For a call of `llvm.dbg.declare`: what is declared, and the variable.
    pub fn declares(self) -> Option<(Value<'m>, Node<'m>)> {
        // SAFETY: the kind is checked first.
        if unsafe { LLVMIsADbgDeclareInst(self.0) }.is_null() {
            return None;
        }
        let storage = Node(self.operand(0)?).operands().into_iter().next()??;
        Some((storage, Node::new(self.operand(1)?)?))
    }
}

/// A node of metadata, seen as a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node<'m>(Value<'m>);

/// Debug info's own numbers: DWARF tags, and LLVM's flags.
pub mod dwarf {
    pub const ARRAY: u16 = 0x01;
    pub const CLASS: u16 = 0x02;
    pub const ENUMERATION: u16 = 0x04;
    pub const MEMBER: u16 = 0x0d;
    pub const POINTER: u16 = 0x0f;
    pub const REFERENCE: u16 = 0x10;
    pub const STRUCTURE: u16 = 0x13;
    pub const TYPEDEF: u16 = 0x16;
    pub const UNION: u16 = 0x17;
    pub const INHERITANCE: u16 = 0x1c;
    pub const CONST: u16 = 0x26;
    pub const BASE: u16 = 0x24;
    pub const VOLATILE: u16 = 0x35;
    pub const RESTRICT: u16 = 0x37;
    pub const NAMESPACE: u16 = 0x39;
    pub const RVALUE_REFERENCE: u16 = 0x42;
    pub const TEMPLATE_ALIAS: u16 = 0x43;
    pub const ATOMIC: u16 = 0x47;

    pub const FLAG_VIRTUAL: i32 = 1 << 5;
    pub const FLAG_STATIC: i32 = 1 << 12;
    pub const FLAG_FORWARD: i32 = 1 << 2;
}

impl<'m> Node<'m> {
    /// `None` if the value is no node (a string, a constant).
    fn new(value: Value<'m>) -> Option<Node<'m>> {
        // SAFETY: see above.
        (!unsafe { LLVMIsAMDNode(value.0) }.is_null()).then_some(Node(value))
    }

    fn metadata(self) -> LLVMMetadataRef {
        // SAFETY: see above.
        unsafe { LLVMValueAsMetadata(self.0.0) }
    }

    fn operands(self) -> Vec<Option<Value<'m>>> {
        // SAFETY: the vector has room for as many operands as LLVM says there are.
        let raw = unsafe {
            let mut raw = vec![ptr::null_mut(); LLVMGetMDNodeNumOperands(self.0.0) as usize];
            LLVMGetMDNodeOperands(self.0.0, raw.as_mut_ptr());
            raw
        };
        raw.into_iter().map(value).collect()
    }

    /// All operands that are nodes.
    pub fn nodes(self) -> Vec<Node<'m>> {
        self.operands().into_iter().flatten().filter_map(Node::new).collect()
    }

    pub fn operand(self, index: usize) -> Option<Node<'m>> {
        Node::new(self.operands().get(index).copied()??)
    }

    pub fn constant(self, index: usize) -> Option<i64> {
        let operand = self.operands().get(index).copied()??;
        // SAFETY: see above.
        let is_metadata = unsafe { LLVMGetTypeKind(LLVMTypeOf(operand.0)) } == LLVMTypeKind::LLVMMetadataTypeKind;
        if is_metadata { None } else { operand.constant() }
    }

    /// Empty if there is none.
    pub fn string(self, index: usize) -> &'m str {
        let Some(Some(operand)) = self.operands().get(index).copied() else {
            return "";
        };
        // SAFETY: the kind is checked first.
        unsafe {
            if LLVMIsAMDString(operand.0).is_null() {
                return "";
            }
            let mut length = 0;
            let start = LLVMGetMDString(operand.0, &mut length);
            text(start, length as usize)
        }
    }

    /// 0 of a node that is not debug info.
    pub fn tag(self) -> u16 {
        // SAFETY: asks for the kind itself.
        unsafe { LLVMGetDINodeTag(self.metadata()) }
    }

    pub fn kind(self) -> LLVMMetadataKind {
        // SAFETY: see above.
        unsafe { LLVMGetMetadataKind(self.metadata()) }
    }

    pub fn is_type(self) -> bool {
        matches!(
            self.kind(),
            LLVMMetadataKind::LLVMDIBasicTypeMetadataKind
                | LLVMMetadataKind::LLVMDIDerivedTypeMetadataKind
                | LLVMMetadataKind::LLVMDICompositeTypeMetadataKind
                | LLVMMetadataKind::LLVMDISubroutineTypeMetadataKind
        )
    }

    pub fn size_in_bits(self) -> u64 {
        // SAFETY: the kind is checked.
        if self.is_type() {
            unsafe { LLVMDITypeGetSizeInBits(self.metadata()) }
        } else {
            0
        }
    }

    pub fn offset_in_bits(self) -> u64 {
        // SAFETY: the kind is checked.
        if self.is_type() {
            unsafe { LLVMDITypeGetOffsetInBits(self.metadata()) }
        } else {
            0
        }
    }

    pub fn line(self) -> u32 {
        // SAFETY: the kind is checked.
        if self.is_type() {
            unsafe { LLVMDITypeGetLine(self.metadata()) }
        } else {
            0
        }
    }

    pub fn flags(self) -> i32 {
        // SAFETY: the kind is checked.
        if self.is_type() {
            unsafe { LLVMDITypeGetFlags(self.metadata()) }
        } else {
            0
        }
    }
}
