//! The few changes of whole functions and variables that turn definitions for inlining into real ones. They take names away and let constants be
//! replaced, so no handle may be left of them.

use llvm_sys::comdat::{LLVMComdatSelectionKind, LLVMGetOrInsertComdat, LLVMSetComdat, LLVMSetComdatSelectionKind};
use llvm_sys::core::*;

use crate::{Linkage, Module, c_string};

impl Module<'_> {
    /// Makes a global variable a declaration.
    pub fn undefine_global(&mut self, name: &str) {
        if let Some(global) = self.global(name) {
            global.set_linkage(Linkage::LLVMExternalLinkage);
            // SAFETY: a live variable of a module of which no handles are left.
            unsafe { LLVMSetInitializer(global.raw(), std::ptr::null_mut()) }
        }
    }

    /// Makes a global variable one that every module may define, of which the linker keeps one.
    pub fn share_global(&mut self, name: &str) {
        if let Some(global) = self.global(name) {
            global.set_linkage(Linkage::LLVMLinkOnceODRLinkage);
            // SAFETY: a live variable and its module, and a C string.
            unsafe {
                let comdat = LLVMGetOrInsertComdat(self.raw, c_string(name).as_ptr());
                LLVMSetComdatSelectionKind(comdat, LLVMComdatSelectionKind::LLVMAnyComdatSelectionKind);
                LLVMSetComdat(global.raw(), comdat);
            }
        }
    }

    /// Gives a function another name, and its old one to a weak alias of it, which all that refers to it refers to now, but for calls.
    pub fn put_behind_alias(&mut self, name: &str, internal: &str) {
        let Some(function) = self.function(name) else { return };
        // SAFETY: a live function of a module of which no other handles are left; pointer and length of a string, and a C string. The alias gets its
        // aliasee when all uses of that are its own.
        unsafe {
            let raw = function.raw();
            LLVMSetValueName2(raw, internal.as_ptr().cast(), internal.len());
            let (ty, pointer) = (LLVMGlobalGetValueType(raw), LLVMTypeOf(raw));
            let alias = LLVMAddAlias2(self.raw, ty, 0, LLVMConstNull(pointer), c_string(name).as_ptr());
            LLVMSetLinkage(alias, Linkage::LLVMWeakAnyLinkage);
            LLVMReplaceAllUsesWith(raw, alias);
            LLVMAliasSetAliasee(alias, raw);
            let Some(alias) = crate::Value::new(alias) else { return };
            for call in alias
                .users()
                .into_iter()
                .filter(|user| user.called_value() == Some(alias))
            {
                LLVMSetOperand(call.raw(), call.operand_count() - 1, raw);
            }
        }
    }
}
