//! Types, and their sizes.

use std::ffi::CStr;
use std::marker::PhantomData;

use llvm_sys::LLVMTypeKind;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMTypeRef;
use llvm_sys::target::*;

use crate::{TypeKind, Value};

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Type<'m>(pub(crate) LLVMTypeRef, pub(crate) PhantomData<&'m ()>);

// Every type is one of a live context, as its lifetime says; what is undefined for another kind is asked only after that kind was checked.

impl<'m> Type<'m> {
    /// Which kind of type.
    pub fn kind(self) -> TypeKind {
        // SAFETY: see above.
        unsafe { LLVMGetTypeKind(self.0) }
    }

    /// Whether it is the type of pointers.
    pub fn is_pointer(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMPointerTypeKind
    }

    /// Whether it is a struct.
    pub fn is_struct(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMStructTypeKind
    }

    /// Whether it is the type of no value.
    pub fn is_void(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMVoidTypeKind
    }

    /// Whether it is a vector of fixed length.
    pub fn is_vector(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMVectorTypeKind
    }

    /// Whether it is a vector whose length only the processor knows.
    pub fn is_scalable(self) -> bool {
        self.kind() == LLVMTypeKind::LLVMScalableVectorTypeKind
    }

    /// Whether values of it have a size: an opaque struct has none.
    pub fn is_sized(self) -> bool {
        // SAFETY: see above.
        unsafe { LLVMTypeIsSized(self.0) != 0 }
    }

    /// Width of an integer.
    pub fn bits(self) -> Option<u32> {
        // SAFETY: the kind is checked.
        (self.kind() == LLVMTypeKind::LLVMIntegerTypeKind).then(|| unsafe { LLVMGetIntTypeWidth(self.0) })
    }

    /// Address space of a pointer.
    pub fn address_space(self) -> Option<u32> {
        // SAFETY: the kind is checked.
        self.is_pointer().then(|| unsafe { LLVMGetPointerAddressSpace(self.0) })
    }

    /// Of a named struct.
    pub fn struct_name(self) -> Option<&'m str> {
        if !self.is_struct() {
            return None;
        }
        // SAFETY: it is a struct, whose name ends with a zero and stays; a literal one has none.
        unsafe {
            let name = LLVMGetStructName(self.0);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_str().ok()).flatten()
        }
    }

    /// How many elements an array, a vector or a struct has.
    pub fn length(self) -> u64 {
        // SAFETY: the kind is checked.
        unsafe {
            match self.kind() {
                LLVMTypeKind::LLVMArrayTypeKind => LLVMGetArrayLength2(self.0),
                LLVMTypeKind::LLVMVectorTypeKind => LLVMGetVectorSize(self.0).into(),
                LLVMTypeKind::LLVMStructTypeKind => LLVMCountStructElementTypes(self.0).into(),
                _ => 0,
            }
        }
    }

    /// The type of the elements of an array or a vector, or of a member of a struct.
    pub fn element(self, index: u32) -> Option<Type<'m>> {
        // SAFETY: the kind is checked, and the index.
        let element = unsafe {
            match self.kind() {
                LLVMTypeKind::LLVMArrayTypeKind | LLVMTypeKind::LLVMVectorTypeKind => LLVMGetElementType(self.0),
                LLVMTypeKind::LLVMStructTypeKind if u64::from(index) < self.length() => {
                    LLVMStructGetTypeAtIndex(self.0, index)
                }
                _ => return None,
            }
        };
        Some(Type(element, PhantomData))
    }

    /// What a function type returns.
    pub fn returned(self) -> Option<Type<'m>> {
        // SAFETY: the kind is checked.
        (self.kind() == LLVMTypeKind::LLVMFunctionTypeKind)
            .then(|| Type(unsafe { LLVMGetReturnType(self.0) }, PhantomData))
    }

    /// Whether a function type takes further arguments.
    pub fn is_variadic(self) -> bool {
        // SAFETY: the kind is checked.
        self.kind() == LLVMTypeKind::LLVMFunctionTypeKind && unsafe { LLVMIsFunctionVarArg(self.0) != 0 }
    }

    /// The parameters of a function type.
    pub(crate) fn parameters(self) -> Vec<Type<'m>> {
        if self.kind() != LLVMTypeKind::LLVMFunctionTypeKind {
            return Vec::new();
        }
        // SAFETY: the kind is checked; the vector has room for as many as there are.
        let parameters = unsafe {
            let mut parameters = vec![std::ptr::null_mut(); LLVMCountParamTypes(self.0) as usize];
            LLVMGetParamTypes(self.0, parameters.as_mut_ptr());
            parameters
        };
        parameters.into_iter().map(|ty| Type(ty, PhantomData)).collect()
    }

    /// The type of functions that return this type.
    pub(crate) fn function(self, parameters: &[Type<'m>]) -> Type<'m> {
        let mut parameters: Vec<LLVMTypeRef> = parameters.iter().map(|ty| ty.0).collect();
        let count = parameters.len() as u32;
        // SAFETY: so many types; LLVM copies them.
        Type(
            unsafe { LLVMFunctionType(self.0, parameters.as_mut_ptr(), count, 0) },
            PhantomData,
        )
    }

    /// The type of arrays of this type.
    pub fn array(self, length: u64) -> Type<'m> {
        assert!(self.is_sized());
        // SAFETY: a type that has a size.
        Type(unsafe { LLVMArrayType2(self.0, length) }, PhantomData)
    }

    /// An integer of this type, of at most 64 bits.
    pub fn constant(self, value: u64) -> Value<'m> {
        assert!(self.bits().is_some_and(|bits| bits <= 64));
        // SAFETY: the kind is checked.
        Value(unsafe { LLVMConstInt(self.0, value, 0) }, PhantomData)
    }
}

/// How a module lays out its types.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'m>(pub(crate) LLVMTargetDataRef, pub(crate) PhantomData<&'m ()>);

impl Layout<'_> {
    /// Bytes from one element of an array to the next; 0 of a type without size.
    pub fn size_of(self, ty: Type) -> u64 {
        if !ty.is_sized() {
            return 0;
        }
        // SAFETY: a live layout, and a type that has a size.
        unsafe { LLVMABISizeOfType(self.0, ty.0) }
    }

    /// Bytes that a store of the type writes; 0 of a type without size.
    pub fn store_size_of(self, ty: Type) -> u64 {
        if !ty.is_sized() {
            return 0;
        }
        // SAFETY: as above.
        unsafe { LLVMStoreSizeOfType(self.0, ty.0) }
    }

    pub(crate) fn bits_of(self, ty: Type) -> u64 {
        if !ty.is_sized() {
            return 0;
        }
        // SAFETY: as above.
        unsafe { LLVMSizeOfTypeInBits(self.0, ty.0) }
    }

    /// Where a member of a struct is; 0 if the struct has none such.
    pub fn offset_of(self, structure: Type, index: u32) -> u64 {
        if !structure.is_struct() || !structure.is_sized() || u64::from(index) >= structure.length() {
            return 0;
        }
        // SAFETY: a live layout, a struct that has a size, and one of its members.
        unsafe { LLVMOffsetOfElement(self.0, structure.0, index) }
    }
}
