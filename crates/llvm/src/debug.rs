//! Metadata, and what debug information says of instructions, functions and variables.

use std::borrow::Cow;
use std::ffi::{c_char, c_uint};
use std::marker::PhantomData;
use std::ptr;

use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef};

use crate::{NodeKind, Value, bytes, text};

/// A node of metadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node<'m> {
    metadata: LLVMMetadataRef,
    context: LLVMContextRef,
    borrowed: PhantomData<&'m ()>,
}

// Metadata lives as long as the context. What LLVM leaves undefined for another kind of node is asked only after that kind was checked.

impl<'m> Node<'m> {
    /// `None` if the value is no node: a string, a constant.
    pub(crate) fn of(value: Value<'m>) -> Option<Node<'m>> {
        // SAFETY: a live value; only metadata is asked for its kind.
        unsafe {
            if LLVMIsAMDNode(value.raw()).is_null() {
                return None;
            }
            let metadata = LLVMValueAsMetadata(value.raw());
            if matches!(
                LLVMGetMetadataKind(metadata),
                NodeKind::LLVMConstantAsMetadataMetadataKind | NodeKind::LLVMLocalAsMetadataMetadataKind
            ) {
                return None;
            }
            let context = LLVMGetTypeContext(value.ty().0);
            Some(Node {
                metadata,
                context,
                borrowed: PhantomData,
            })
        }
    }

    /// Which kind of node.
    pub fn kind(self) -> NodeKind {
        // SAFETY: see above.
        unsafe { LLVMGetMetadataKind(self.metadata) }
    }

    fn operands(self) -> Vec<Option<Value<'m>>> {
        // SAFETY: see above; the vector has room for as many operands as LLVM says there are.
        unsafe {
            let node = LLVMMetadataAsValue(self.context, self.metadata);
            let mut raw = vec![ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
            LLVMGetMDNodeOperands(node, raw.as_mut_ptr());
            raw.into_iter().map(|value| Value::new(value)).collect()
        }
    }

    /// All operands that are nodes.
    pub fn nodes(self) -> Vec<Node<'m>> {
        self.operands().into_iter().flatten().filter_map(Node::of).collect()
    }

    /// An operand that is a node.
    pub fn operand(self, index: usize) -> Option<Node<'m>> {
        Node::of(self.operands().get(index).copied()??)
    }

    /// An operand that is an integer.
    pub fn constant(self, index: usize) -> Option<i64> {
        self.operands().get(index).copied()??.signed()
    }

    /// An operand that is a string; empty if there is none.
    pub fn string(self, index: usize) -> &'m str {
        let Some(Some(operand)) = self.operands().get(index).copied() else {
            return "";
        };
        let mut length = 0;
        // SAFETY: LLVM gives null for what is no string of metadata; strings live as long as the context.
        unsafe { text(LLVMGetMDString(operand.raw(), &mut length), length as usize) }
    }

    /// The DWARF tag; 0 of a node that is not debug information.
    pub fn tag(self) -> u16 {
        // SAFETY: LLVM asks for the kind itself.
        unsafe { LLVMGetDINodeTag(self.metadata) }
    }

    fn is_type(self) -> bool {
        matches!(
            self.kind(),
            NodeKind::LLVMDIBasicTypeMetadataKind
                | NodeKind::LLVMDIDerivedTypeMetadataKind
                | NodeKind::LLVMDICompositeTypeMetadataKind
                | NodeKind::LLVMDISubroutineTypeMetadataKind
        )
    }

    /// Size of a type; 0 of anything else.
    pub fn size_in_bits(self) -> u64 {
        if self.is_type() {
            // SAFETY: the kind is checked.
            unsafe { LLVMDITypeGetSizeInBits(self.metadata) }
        } else {
            0
        }
    }

    /// Where a member is in its struct; 0 of anything else.
    pub fn offset_in_bits(self) -> u64 {
        if self.is_type() {
            // SAFETY: the kind is checked.
            unsafe { LLVMDITypeGetOffsetInBits(self.metadata) }
        } else {
            0
        }
    }

    /// The line of a type; 0 of anything else.
    pub fn line(self) -> u32 {
        if self.is_type() {
            // SAFETY: the kind is checked.
            unsafe { LLVMDITypeGetLine(self.metadata) }
        } else {
            0
        }
    }

    /// LLVM's flags of a type; 0 of anything else.
    pub fn flags(self) -> i32 {
        if self.is_type() {
            // SAFETY: the kind is checked.
            unsafe { LLVMDITypeGetFlags(self.metadata) }
        } else {
            0
        }
    }
}

/// Where in the source an instruction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugLocation<'m> {
    pub(crate) raw: LLVMMetadataRef,
    context: LLVMContextRef,
    borrowed: PhantomData<&'m ()>,
}

impl<'m> DebugLocation<'m> {
    /// # Safety
    /// `raw` is null or a `DILocation` of the context, which lives for `'m`.
    unsafe fn new(raw: LLVMMetadataRef, context: LLVMContextRef) -> Option<DebugLocation<'m>> {
        (!raw.is_null()).then_some(DebugLocation {
            raw,
            context,
            borrowed: PhantomData,
        })
    }

    /// 0 if the compiler gave none.
    pub fn line(self) -> u32 {
        // SAFETY: a DILocation; so below.
        unsafe { LLVMDILocationGetLine(self.raw) }
    }

    /// 0 if the compiler gave none.
    pub fn column(self) -> u32 {
        // SAFETY: as above.
        unsafe { LLVMDILocationGetColumn(self.raw) }
    }

    /// The block or function of the source.
    pub fn scope(self) -> Node<'m> {
        // SAFETY: as above; every location has a scope, which is a node.
        let metadata = unsafe { LLVMDILocationGetScope(self.raw) };
        Node {
            metadata,
            context: self.context,
            borrowed: PhantomData,
        }
    }

    /// Where the call was that was inlined to get the instruction here.
    pub fn inlined_at(self) -> Option<DebugLocation<'m>> {
        // SAFETY: as above.
        unsafe { DebugLocation::new(LLVMDILocationGetInlinedAt(self.raw), self.context) }
    }

    /// The file of the scope.
    pub fn file(self) -> Option<File<'m>> {
        // SAFETY: as above; a location's scope is a DIScope.
        let file = unsafe { LLVMDIScopeGetFile(LLVMDILocationGetScope(self.raw)) };
        (!file.is_null()).then_some(File(file, PhantomData))
    }
}

/// A source file, as the compiler was given it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct File<'m>(LLVMMetadataRef, PhantomData<&'m ()>);

impl<'m> File<'m> {
    fn text(self, get: unsafe extern "C" fn(LLVMMetadataRef, *mut c_uint) -> *const c_char) -> Cow<'m, str> {
        let mut length = 0;
        // SAFETY: a DIFile; strings live as long as the context.
        String::from_utf8_lossy(unsafe { bytes(get(self.0, &mut length), length as usize) })
    }

    /// Where the compiler ran.
    pub fn directory(self) -> Cow<'m, str> {
        self.text(LLVMDIFileGetDirectory)
    }

    /// The name, often relative to the directory.
    pub fn name(self) -> Cow<'m, str> {
        self.text(LLVMDIFileGetFilename)
    }
}

impl<'m> Value<'m> {
    /// Where in the source an instruction is.
    pub fn debug_location(self) -> Option<DebugLocation<'m>> {
        // SAFETY: the kind is checked.
        self.is_instruction()
            .then(|| unsafe {
                DebugLocation::new(LLVMInstructionGetDebugLoc(self.raw()), LLVMGetTypeContext(self.ty().0))
            })
            .flatten()
    }

    /// The debug information of a function.
    pub fn subprogram(self) -> Option<Node<'m>> {
        // SAFETY: the kind is checked.
        let metadata = unsafe { self.is_function().then(|| LLVMGetSubprogram(self.raw()))? };
        // SAFETY: a live type.
        let context = unsafe { LLVMGetTypeContext(self.ty().0) };
        (!metadata.is_null()).then_some(Node {
            metadata,
            context,
            borrowed: PhantomData,
        })
    }

    /// The debug information of a global variable.
    pub fn global_variable(self) -> Option<Node<'m>> {
        /// LLVM's number of the attachment `dbg`.
        const DEBUG: c_uint = 0;
        if !self.is_global_variable() {
            return None;
        }
        // SAFETY: the kind is checked; the entries are freed, what they refer to belongs to the context.
        unsafe {
            let mut count = 0;
            let entries = LLVMGlobalCopyAllMetadata(self.raw(), &mut count);
            let context = LLVMGetTypeContext(self.ty().0);
            let found = (0..count as c_uint)
                .filter(|&index| LLVMValueMetadataEntriesGetKind(entries, index) == DEBUG)
                .map(|index| LLVMValueMetadataEntriesGetMetadata(entries, index))
                .find_map(|expression| Node::of(Value::new(LLVMMetadataAsValue(context, expression))?)?.operand(0));
            LLVMDisposeValueMetadataEntries(entries);
            found
        }
    }

    /// Of a call of `llvm.dbg.declare`: what is declared, and the variable.
    pub fn declares(self) -> Option<(Value<'m>, Node<'m>)> {
        // SAFETY: a live value; LLVM asks for the kind itself, and such a call has a wrapped value first.
        unsafe {
            if LLVMIsADbgDeclareInst(self.raw()).is_null() {
                return None;
            }
            let wrapped = self.operand(0)?;
            let mut storage = ptr::null_mut();
            if LLVMGetMDNodeNumOperands(wrapped.raw()) == 1 {
                LLVMGetMDNodeOperands(wrapped.raw(), &mut storage);
            }
            Value::new(storage).zip(Node::of(self.operand(1)?))
        }
    }
}
