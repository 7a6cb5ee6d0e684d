//! Attributes of functions, calls, parameters and results.

use std::ffi::c_uint;
use std::marker::PhantomData;

use llvm_sys::core::*;
use llvm_sys::prelude::LLVMAttributeRef;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMAttributeReturnIndex};

use crate::{Type, Value};

/// What has an attribute, of a function or a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The function or call itself.
    Function,
    /// Its result.
    Result,
    /// A parameter or argument, by its number.
    Parameter(u32),
}

impl Holder {
    fn index(self) -> c_uint {
        match self {
            Holder::Function => LLVMAttributeFunctionIndex,
            Holder::Result => LLVMAttributeReturnIndex,
            Holder::Parameter(index) => index + 1,
        }
    }
}

/// An attribute that something has.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'m>(LLVMAttributeRef, PhantomData<&'m ()>);

impl<'m> Attribute<'m> {
    /// Of an attribute like `byval`.
    pub fn ty(self) -> Option<Type<'m>> {
        // SAFETY: an attribute of a live context; the kind is checked.
        unsafe { (LLVMIsTypeAttribute(self.0) != 0).then(|| Type(LLVMGetTypeAttributeValue(self.0), PhantomData)) }
    }
}

/// LLVM's number of an attribute.
fn kind(name: &str) -> c_uint {
    // SAFETY: pointer and length of one string.
    let kind = unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) };
    assert!(kind != 0, "LLVM has no attribute {name}");
    kind
}

impl<'m> Value<'m> {
    /// An attribute of a function or a call.
    pub fn attribute(self, holder: Holder, name: &str) -> Option<Attribute<'m>> {
        let (index, kind) = (holder.index(), kind(name));
        // SAFETY: a live value; the kind is checked.
        let attribute = unsafe {
            if self.is_function() {
                LLVMGetEnumAttributeAtIndex(self.raw(), index, kind)
            } else if self.is_call() {
                LLVMGetCallSiteEnumAttribute(self.raw(), index, kind)
            } else {
                return None;
            }
        };
        (!attribute.is_null()).then_some(Attribute(attribute, PhantomData))
    }

    /// Takes an attribute from a function or a call itself.
    pub fn remove_attribute(self, name: &str) {
        let (index, kind) = (Holder::Function.index(), kind(name));
        // SAFETY: a live value; the kind is checked.
        unsafe {
            if self.is_function() {
                LLVMRemoveEnumAttributeAtIndex(self.raw(), index, kind);
            } else if self.is_call() {
                LLVMRemoveCallSiteEnumAttribute(self.raw(), index, kind);
            }
        }
    }

    /// Gives an attribute without a value to a function.
    pub fn add_attribute(self, name: &str) {
        assert!(self.is_function());
        // SAFETY: a function, and an attribute of its context.
        unsafe {
            let attribute = LLVMCreateEnumAttribute(LLVMGetTypeContext(self.ty().0), kind(name), 0);
            LLVMAddAttributeAtIndex(self.raw(), Holder::Function.index(), attribute);
        }
    }
}
