//! LLVM behind safe handles: the only crate that calls its C interface.
//!
//! **Lifetimes.** A [`Module`] borrows its [`Context`]. A handle ([`Value`], [`Block`], [`Type`], [`Node`], [`DebugLocation`]) borrows the module that it was
//! got from, and none can be made otherwise, so it is never null and never outlives what it refers to. What frees anything that a handle may
//! refer to (linking, passes, another form of debug information, renaming) takes the module as `&mut`. What only adds and moves takes
//! it as `&`: a [`Builder`] deletes nothing, and what it removes is kept, out of its block, until the module goes.
//!
//! ```compile_fail,E0505
//! # use crashproof_llvm::Context;
//! let context = Context::create();
//! let module = context.create_module("m");
//! let function = module.functions().next();
//! drop(module);
//! assert!(function.is_none());
//! ```
//!
//! ```compile_fail,E0502
//! # use crashproof_llvm::Context;
//! let context = Context::create();
//! let mut module = context.create_module("m");
//! let function = module.functions().next();
//! module.run_passes("globaldce").unwrap();
//! assert!(function.is_none());
//! ```
//!
//! ```compile_fail,E0505
//! # use crashproof_llvm::Context;
//! let context = Context::create();
//! let module = context.create_module("m");
//! drop(context);
//! module.verify().unwrap();
//! ```
//!
//! **Kinds.** As in the C interface there is one type for all values. A method asks for the kind itself, and answers `None`, `false` or nothing
//! where a value has no such property; an operation that makes no sense panics. LLVM's release builds would do neither.
//!
//! Its enums are LLVM's own, under shorter names.

#![warn(clippy::undocumented_unsafe_blocks, missing_docs)]

mod attribute;
mod block;
mod builder;
mod context;
mod copies;
mod debug;
mod inline_definitions;
mod types;
mod value;

use std::ffi::{CStr, CString, c_char};

pub use attribute::{Attribute, Holder};
pub use block::Block;
pub use builder::Builder;
pub use context::{Context, Module};
pub use debug::{DebugLocation, File, Node};
pub use llvm_sys::debuginfo::LLVMMetadataKind as NodeKind;
pub use llvm_sys::{
    LLVMAtomicOrdering as AtomicOrdering, LLVMAtomicRMWBinOp as AtomicOperation, LLVMCallConv as CallingConvention,
    LLVMIntPredicate as IntPredicate, LLVMLinkage as Linkage, LLVMOpcode as Opcode, LLVMTypeKind as TypeKind,
    LLVMValueKind as ValueKind, LLVMVisibility as Visibility,
};
pub use types::{Layout, Type};
pub use value::Value;

/// What is built has no name.
const UNNAMED: *const c_char = c"".as_ptr();

/// A name for LLVM. Names of programs hold no zero.
fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A message that LLVM has made for the caller.
///
/// # Safety
/// `message` is null or a C string of LLVM's that nobody else disposes of.
unsafe fn message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        llvm_sys::core::LLVMDisposeMessage(message);
        text
    }
}

/// A string that LLVM keeps.
///
/// # Safety
/// `start` is null or points to `length` bytes that live and stay the same for `'m`.
unsafe fn bytes<'m>(start: *const c_char, length: usize) -> &'m [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// The same; empty if it is no UTF-8.
///
/// # Safety
/// As of [`bytes`].
unsafe fn text<'m>(start: *const c_char, length: usize) -> &'m str {
    // SAFETY: the caller's promise.
    str::from_utf8(unsafe { bytes(start, length) }).unwrap_or_default()
}
