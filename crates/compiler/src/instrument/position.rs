//! Where in the source an instruction is, with the calls that were inlined to get it there.

use std::ffi::c_uint;

use crashproof_sites::Location;
use llvm_sys::core::{LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString, LLVMMetadataAsValue};
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};

use super::ir::{DebugLocation, Ir};

/// In the operands of a `DILexicalBlock` and of a `DISubprogram`, as LLVM 19 has them.
const PARENT: usize = 1;
const NAME: usize = 2;
const LINKAGE_NAME: usize = 3;

/// Innermost first; empty if the compiler gave none.
pub fn inlining_chain(ir: &Ir, location: DebugLocation) -> Vec<Location> {
    let mut chain = Vec::new();
    let mut at = location.0;
    while !at.is_null() {
        // SAFETY: a DILocation of a live module; its scope and what it was inlined at are of the kinds that LLVM's verifier asks for.
        unsafe {
            let scope = LLVMDILocationGetScope(at);
            chain.push(Location {
                function: function_of(ir.context, scope),
                file: file_of(scope),
                line: LLVMDILocationGetLine(at),
                column: LLVMDILocationGetColumn(at),
            });
            at = LLVMDILocationGetInlinedAt(at);
        }
    }
    chain
}

/// Linkage name of the function that the scope is in.
unsafe fn function_of(context: LLVMContextRef, scope: LLVMMetadataRef) -> String {
    // SAFETY: scopes lead to a subprogram, each node with the operands of its kind.
    unsafe {
        let mut node = LLVMMetadataAsValue(context, scope);
        let mut kind = LLVMGetMetadataKind(scope);
        loop {
            let operands = operands_of(node);
            match kind {
                LLVMMetadataKind::LLVMDISubprogramMetadataKind => {
                    let name = |index: usize| operands.get(index).and_then(|&name| text_of(name));
                    return name(LINKAGE_NAME).or_else(|| name(NAME)).unwrap_or_default();
                }
                LLVMMetadataKind::LLVMDILexicalBlockMetadataKind
                | LLVMMetadataKind::LLVMDILexicalBlockFileMetadataKind => {}
                _ => return String::new(),
            }
            let Some(&parent) = operands.get(PARENT).filter(|parent| !parent.is_null()) else {
                return String::new();
            };
            node = parent;
            kind = LLVMGetMetadataKind(llvm_sys::core::LLVMValueAsMetadata(parent));
        }
    }
}

unsafe fn operands_of(node: LLVMValueRef) -> Vec<LLVMValueRef> {
    // SAFETY: a metadata node; room for all operands.
    unsafe {
        let mut operands = vec![std::ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
        LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
        operands
    }
}

unsafe fn text_of(string: LLVMValueRef) -> Option<String> {
    if string.is_null() {
        return None;
    }
    let mut length: c_uint = 0;
    // SAFETY: metadata; null if it is no string.
    unsafe {
        let text = LLVMGetMDString(string, &mut length);
        (!text.is_null() && length > 0).then(|| {
            let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length as usize);
            String::from_utf8_lossy(bytes).into_owned()
        })
    }
}

/// As debug info names it, with its folder if the name is relative.
unsafe fn file_of(scope: LLVMMetadataRef) -> String {
    // SAFETY: a scope; strings with their lengths.
    unsafe {
        let file = LLVMDIScopeGetFile(scope);
        if file.is_null() {
            return String::new();
        }
        let text = |get: unsafe extern "C" fn(LLVMMetadataRef, *mut c_uint) -> *const std::ffi::c_char| {
            let mut length = 0;
            let text = get(file, &mut length);
            if text.is_null() {
                return String::new();
            }
            String::from_utf8_lossy(std::slice::from_raw_parts(text.cast(), length as usize)).into_owned()
        };
        let (directory, name) = (text(LLVMDIFileGetDirectory), text(LLVMDIFileGetFilename));
        if name.starts_with('/') || directory.is_empty() {
            name
        } else {
            format!("{directory}/{name}")
        }
    }
}
