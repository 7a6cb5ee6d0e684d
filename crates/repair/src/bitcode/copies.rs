//! Copies of functions within a module.
//!
//! LLVM's C interface cannot copy a function with its debug information, and two functions may not share a `DISubprogram`. But it can write a module and read it
//! again: the second module, of which only the wanted functions are kept and renamed, is linked back into the first. Symbols that only the module
//! knows get names that the linker sees meanwhile.

use inkwell::module::Module;
use llvm_sys::LLVMLinkage;
use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::comdat::LLVMSetComdat;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ApplyError;
use crate::ir;
use crate::plan::PersistentFunction;

pub fn make(module: &Module, clones: &[PersistentFunction]) -> Result<(), ApplyError> {
    if clones.is_empty() {
        return Ok(());
    }
    for clone in clones {
        let original = ir::function(module, &clone.original).filter(|original| original.has_body());
        if original.is_none() {
            return Err(ApplyError::NoSuchFunction {
                name: clone.original.clone(),
            });
        }
    }
    let failed = |reason: String| ApplyError::Copy { reason };
    let names: FxHashMap<&str, &str> = clones
        .iter()
        .map(|clone| (clone.original.as_str(), clone.name.as_str()))
        .collect();
    // SAFETY: all values are of the module, which is borrowed, and nobody else holds values of it that this takes away.
    let hidden = unsafe { show_internal_symbols(module.as_mut_ptr()) };
    // SAFETY: the buffer is given up to inkwell, which frees it.
    let buffer = unsafe {
        let buffer = LLVMWriteBitcodeToMemoryBuffer(module.as_mut_ptr());
        inkwell::memory_buffer::MemoryBuffer::new(buffer)
    };
    let context = module.get_context();
    let second = Module::parse_bitcode_from_buffer(&buffer, context).map_err(|reason| failed(reason.to_string()))?;
    // SAFETY: a module that nobody else knows.
    unsafe { keep_only(second.as_mut_ptr(), &names) };
    module
        .link_in_module(second)
        .map_err(|reason| failed(reason.to_string()))?;
    // SAFETY: linking adds to the module; what was in it stays.
    unsafe {
        for (symbol, linkage) in hidden {
            LLVMSetLinkage(symbol, linkage);
        }
        for clone in clones {
            let copy = ir::function(module, &clone.name).ok_or_else(|| failed(format!("`{}` got lost", clone.name)))?;
            LLVMSetLinkage(copy.raw(), LLVMLinkage::LLVMInternalLinkage);
        }
    }
    Ok(())
}

fn is_internal(linkage: LLVMLinkage) -> bool {
    matches!(
        linkage,
        LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage
    )
}

unsafe fn symbols(module: LLVMModuleRef) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: a live module.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            all.push(function);
            function = LLVMGetNextFunction(function);
        }
        let mut variable = LLVMGetFirstGlobal(module);
        while !variable.is_null() {
            all.push(variable);
            variable = LLVMGetNextGlobal(variable);
        }
    }
    all
}

/// Makes internal symbols visible, with names, and returns what they were.
unsafe fn show_internal_symbols(module: LLVMModuleRef) -> Vec<(LLVMValueRef, LLVMLinkage)> {
    let mut hidden = Vec::new();
    // SAFETY: global values of a live module.
    unsafe {
        for (number, symbol) in symbols(module).into_iter().enumerate() {
            let linkage = LLVMGetLinkage(symbol);
            if is_internal(linkage) {
                let mut length = 0;
                LLVMGetValueName2(symbol, &mut length);
                if length == 0 {
                    let name = format!("crashproof.unnamed.{number}");
                    LLVMSetValueName2(symbol, name.as_ptr().cast(), name.len());
                }
                LLVMSetLinkage(symbol, LLVMLinkage::LLVMExternalLinkage);
                hidden.push((symbol, linkage));
            }
        }
    }
    hidden
}

/// Leaves the functions that are named, under their new names, and declarations of what they use.
unsafe fn keep_only(module: LLVMModuleRef, names: &FxHashMap<&str, &str>) {
    // SAFETY: global values of a live module that nobody else uses; each is taken away only when nothing refers to it any more.
    unsafe {
        let aliased = aliasees(module);
        for symbol in symbols(module) {
            let mut length = 0;
            let start = LLVMGetValueName2(symbol, &mut length);
            let name = String::from_utf8_lossy(std::slice::from_raw_parts(start.cast::<u8>(), length)).into_owned();
            if !LLVMIsAFunction(symbol).is_null() {
                if let Some(copy) = names.get(name.as_str()) {
                    // Calls among the copies are redirected as the plan says, so its callers get the original.
                    let original = declaration(module, symbol, &name);
                    LLVMReplaceAllUsesWith(symbol, original);
                    LLVMSetValueName2(symbol, copy.as_ptr().cast(), copy.len());
                    LLVMSetValueName2(original, name.as_ptr().cast(), name.len());
                    LLVMSetComdat(symbol, std::ptr::null_mut());
                    LLVMSetLinkage(symbol, LLVMLinkage::LLVMExternalLinkage);
                } else if LLVMIsDeclaration(symbol) == 0 {
                    let original = declaration(module, symbol, &name);
                    LLVMReplaceAllUsesWith(symbol, original);
                    if aliased.contains(&symbol) {
                        LLVMSetComdat(symbol, std::ptr::null_mut());
                        LLVMSetLinkage(symbol, LLVMLinkage::LLVMInternalLinkage);
                        LLVMSetValueName2(symbol, c"".as_ptr(), 0);
                    } else {
                        LLVMDeleteFunction(symbol);
                    }
                    LLVMSetValueName2(original, name.as_ptr().cast(), name.len());
                }
            } else if name.starts_with("llvm.") {
                if LLVMGetFirstUse(symbol).is_null() {
                    LLVMDeleteGlobal(symbol);
                }
            } else if LLVMIsDeclaration(symbol) == 0 {
                LLVMSetInitializer(symbol, std::ptr::null_mut());
                LLVMSetComdat(symbol, std::ptr::null_mut());
                LLVMSetLinkage(symbol, LLVMLinkage::LLVMExternalLinkage);
            }
        }
    }
}

/// A declaration with another name for now.
unsafe fn declaration(module: LLVMModuleRef, function: LLVMValueRef, name: &str) -> LLVMValueRef {
    let temporary = format!("crashproof.declared.{name}\0");
    // SAFETY: a function of the module; the name ends with a zero.
    unsafe { LLVMAddFunction(module, temporary.as_ptr().cast(), LLVMGlobalGetValueType(function)) }
}

/// Functions that have other names; an alias needs something to be one of, so they stay.
unsafe fn aliasees(module: LLVMModuleRef) -> FxHashSet<LLVMValueRef> {
    let mut functions = FxHashSet::default();
    // SAFETY: aliases of a live module.
    unsafe {
        let mut alias = LLVMGetFirstGlobalAlias(module);
        while !alias.is_null() {
            functions.insert(LLVMAliasGetAliasee(alias));
            LLVMSetLinkage(alias, LLVMLinkage::LLVMInternalLinkage);
            alias = LLVMGetNextGlobalAlias(alias);
        }
    }
    functions
}
