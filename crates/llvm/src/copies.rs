//! Copies of functions within a module.
//!
//! LLVM's C interface cannot copy a function with its debug information, and two functions may not share a `DISubprogram`. But it can write a module and read it
//! again: the second module, of which only the wanted functions are kept and renamed, is linked back into the first. Symbols that only the module
//! knows get names that the linker sees meanwhile.

use std::collections::{HashMap, HashSet};
use std::ptr;

use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::comdat::LLVMSetComdat;
use llvm_sys::core::*;
use llvm_sys::prelude::*;

use crate::{Linkage, Module, Value, c_string};

impl Module<'_> {
    /// Copies functions of the module, each given by its name and that of the copy. Calls in a copy are what they were in the original. After an error the
    /// module is to be thrown away.
    pub fn copy_functions(&mut self, names: &[(&str, &str)]) -> Result<(), String> {
        let copies: HashMap<&str, &str> = names.iter().copied().collect();
        let hidden = self.show_local_symbols();
        // SAFETY: the buffer is disposed of when the module is read; a module that nobody else knows.
        let second = unsafe {
            let buffer = LLVMWriteBitcodeToMemoryBuffer(self.raw);
            let (mut second, mut error) = (ptr::null_mut(), ptr::null_mut());
            #[expect(deprecated, reason = "its successor ends the process on errors")]
            let failed =
                llvm_sys::bit_reader::LLVMParseBitcodeInContext(self.context(), buffer, &mut second, &mut error);
            LLVMDisposeMemoryBuffer(buffer);
            if failed != 0 {
                return Err(crate::message(error));
            }
            Module::new(second)
        };
        // SAFETY: a module that nobody else knows.
        unsafe { keep_only(&second, &copies) };
        self.link_in(second)?;
        for (symbol, linkage) in hidden {
            // SAFETY: linking adds to the module; what was defined in it stays.
            unsafe { LLVMSetLinkage(symbol, linkage) };
        }
        for copy in copies.values() {
            let function = self.function(copy).ok_or_else(|| format!("`{copy}` got lost"))?;
            function.set_linkage(Linkage::LLVMInternalLinkage);
        }
        Ok(())
    }

    fn symbols(&self) -> Vec<Value<'_>> {
        self.functions().chain(self.globals()).collect()
    }

    /// Makes local symbols visible, with names, and returns what they were.
    fn show_local_symbols(&mut self) -> Vec<(LLVMValueRef, Linkage)> {
        let mut hidden = Vec::new();
        for (number, symbol) in self.symbols().into_iter().enumerate() {
            let Some(linkage) = symbol.linkage().filter(|_| symbol.is_local()) else {
                continue;
            };
            if symbol.name().is_empty() {
                let name = format!("crashproof.unnamed.{number}");
                // SAFETY: a live symbol; pointer and length of a string.
                unsafe { LLVMSetValueName2(symbol.raw(), name.as_ptr().cast(), name.len()) };
            }
            symbol.set_linkage(Linkage::LLVMExternalLinkage);
            hidden.push((symbol.raw(), linkage));
        }
        hidden
    }
}

/// Leaves the functions that are named, under their new names, and declarations of what they use.
///
/// # Safety
/// Nobody has handles of the module.
unsafe fn keep_only(module: &Module, copies: &HashMap<&str, &str>) {
    // SAFETY: global values of a live module that nobody else uses; each is taken away only when nothing refers to it any more.
    unsafe {
        let aliased = aliasees(module.raw);
        for symbol in module.symbols() {
            let (raw, name) = (symbol.raw(), symbol.name().to_owned());
            if symbol.is_function() {
                if !copies.contains_key(&*name) && symbol.is_declaration() {
                    continue;
                }
                // Calls among the copies are redirected as the plan says, so its callers get the original.
                let temporary = c_string(&format!("crashproof.declared.{name}"));
                let original = LLVMAddFunction(module.raw, temporary.as_ptr(), LLVMGlobalGetValueType(raw));
                LLVMReplaceAllUsesWith(raw, original);
                if let Some(copy) = copies.get(&*name) {
                    LLVMSetValueName2(raw, copy.as_ptr().cast(), copy.len());
                    LLVMSetComdat(raw, ptr::null_mut());
                    LLVMSetLinkage(raw, Linkage::LLVMExternalLinkage);
                } else if aliased.contains(&raw) {
                    LLVMSetComdat(raw, ptr::null_mut());
                    LLVMSetLinkage(raw, Linkage::LLVMInternalLinkage);
                    LLVMSetValueName2(raw, c"".as_ptr(), 0);
                } else {
                    LLVMDeleteFunction(raw);
                }
                LLVMSetValueName2(original, name.as_ptr().cast(), name.len());
            } else if name.starts_with("llvm.") {
                if !symbol.is_used() {
                    LLVMDeleteGlobal(raw);
                }
            } else if !symbol.is_declaration() {
                LLVMSetInitializer(raw, ptr::null_mut());
                LLVMSetComdat(raw, ptr::null_mut());
                LLVMSetLinkage(raw, Linkage::LLVMExternalLinkage);
            }
        }
    }
}

/// Functions that have other names; an alias needs something to be one of, so they stay.
///
/// # Safety
/// The module lives.
unsafe fn aliasees(module: LLVMModuleRef) -> HashSet<LLVMValueRef> {
    let mut functions = HashSet::new();
    // SAFETY: aliases of a live module.
    unsafe {
        let mut alias = LLVMGetFirstGlobalAlias(module);
        while !alias.is_null() {
            functions.insert(LLVMAliasGetAliasee(alias));
            LLVMSetLinkage(alias, Linkage::LLVMInternalLinkage);
            alias = LLVMGetNextGlobalAlias(alias);
        }
    }
    functions
}
