//! Definitions that clang's front end makes for inlining only, made real.
//!
//! The front end emits a C99 `inline` function without an external definition, a GNU `extern inline` function, and what an
//! `extern template` declares, as `available_externally`: the optimiser may inline the body, and the code generator drops what is left.
//! Code that is compiled without being inlined (`--deps`, repair mode) then calls functions that nobody may define: C99 leaves open
//! whether the inline definition is used or an external one, which need not exist if it is never used, and an `always_inline` member of
//! an `extern template` is in no library.
//!
//! So each unit gets a definition of its own, as inlining gives it one:
//!
//! - Calls go to an internal copy. It is the unit's own even where units define a function differently, as C99 allows.
//! - A function whose address is taken has one address in the whole program. The address is that of the external definition if there is one,
//!   else that of a copy: a weak alias of the internal function.
//! - A constant that is declared so (a `static const` member with an initialiser in its class) is the same in every unit: it is
//!   defined `linkonce_odr`. Virtual tables stay declarations, because the unit with the class's key function defines them.

use std::ffi::CString;

use inkwell::module::Module;
use llvm_sys::LLVMLinkage::{
    LLVMAvailableExternallyLinkage, LLVMExternalLinkage, LLVMInternalLinkage, LLVMLinkOnceODRLinkage,
    LLVMWeakAnyLinkage,
};
use llvm_sys::LLVMVisibility::LLVMDefaultVisibility;
use llvm_sys::comdat::{LLVMComdatSelectionKind, LLVMGetOrInsertComdat, LLVMSetComdat, LLVMSetComdatSelectionKind};
use llvm_sys::core::*;
use llvm_sys::prelude::*;

/// What the names of virtual tables begin with.
const VIRTUAL_TABLES: [&str; 3] = ["_ZTV", "_ZTT", "_ZTC"];

/// Makes every definition of the module one that code is made of. Whether there was any to change.
pub fn make_real(module: &Module) -> bool {
    let module = module.as_mut_ptr();
    // SAFETY: values of a live module, which are collected before any is changed.
    unsafe {
        let only_for_inlining = |value: &LLVMValueRef| LLVMGetLinkage(*value) == LLVMAvailableExternallyLinkage;
        let globals = list(LLVMGetFirstGlobal(module), |at| LLVMGetNextGlobal(at));
        let globals: Vec<LLVMValueRef> = globals.into_iter().filter(only_for_inlining).collect();
        for &global in &globals {
            define_constant(module, global);
        }
        let functions = list(LLVMGetFirstFunction(module), |at| LLVMGetNextFunction(at));
        let functions: Vec<LLVMValueRef> = functions.into_iter().filter(only_for_inlining).collect();
        for &function in &functions {
            define_function(module, function);
        }
        !globals.is_empty() || !functions.is_empty()
    }
}

/// # Safety
/// The list is one of a live module.
unsafe fn list(first: LLVMValueRef, next: impl Fn(LLVMValueRef) -> LLVMValueRef) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    let mut at = first;
    while !at.is_null() {
        all.push(at);
        at = next(at);
    }
    all
}

/// # Safety
/// A value of a live module.
unsafe fn name(value: LLVMValueRef) -> Vec<u8> {
    let mut length = 0;
    // SAFETY: LLVM gives the name and its length.
    unsafe {
        let text = LLVMGetValueName2(value, &mut length);
        std::slice::from_raw_parts(text.cast::<u8>(), length).to_vec()
    }
}

/// # Safety
/// A global variable of the live module, `available_externally`.
unsafe fn define_constant(module: LLVMModuleRef, global: LLVMValueRef) {
    // SAFETY: the caller's promise.
    unsafe {
        let name = name(global);
        let is_virtual_table = VIRTUAL_TABLES.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
        if is_virtual_table || LLVMIsGlobalConstant(global) == 0 {
            // Code is made of neither it nor its initialiser, which would take the addresses of functions.
            LLVMSetInitializer(global, std::ptr::null_mut());
            LLVMSetLinkage(global, LLVMExternalLinkage);
            return;
        }
        let name = CString::new(name).unwrap_or_default();
        let comdat = LLVMGetOrInsertComdat(module, name.as_ptr());
        LLVMSetComdatSelectionKind(comdat, LLVMComdatSelectionKind::LLVMAnyComdatSelectionKind);
        LLVMSetLinkage(global, LLVMLinkOnceODRLinkage);
        LLVMSetComdat(global, comdat);
    }
}

/// # Safety
/// A function of the live module, `available_externally`.
unsafe fn define_function(module: LLVMModuleRef, function: LLVMValueRef) {
    // SAFETY: the caller's promise.
    unsafe {
        let uses = users(function);
        if uses.iter().any(|&user| takes_address(user, function)) {
            if uses.iter().any(|&user| !LLVMIsABlockAddress(user).is_null()) {
                // Addresses of labels name the function that they are in, and stay with it.
                LLVMSetLinkage(function, LLVMWeakAnyLinkage);
                return;
            }
            let external = name(function);
            let internal = [&external[..], b".inline_definition"].concat();
            LLVMSetValueName2(function, internal.as_ptr().cast(), internal.len());
            let external = CString::new(external).unwrap_or_default();
            let (ty, pointer) = (LLVMGlobalGetValueType(function), LLVMTypeOf(function));
            // It gets its aliasee when all uses of that are its own.
            let alias = LLVMAddAlias2(module, ty, 0, LLVMConstNull(pointer), external.as_ptr());
            LLVMSetLinkage(alias, LLVMWeakAnyLinkage);
            LLVMReplaceAllUsesWith(function, alias);
            LLVMAliasSetAliasee(alias, function);
            for user in users(alias).into_iter().filter(|&user| calls(user, alias)) {
                LLVMSetOperand(user, LLVMGetNumOperands(user) as u32 - 1, function);
            }
        }
        LLVMSetVisibility(function, LLVMDefaultVisibility);
        LLVMSetLinkage(function, LLVMInternalLinkage);
    }
}

/// # Safety
/// A value of a live module.
unsafe fn users(value: LLVMValueRef) -> Vec<LLVMValueRef> {
    let mut users = Vec::new();
    // SAFETY: the caller's promise; nothing is changed here.
    unsafe {
        let mut at = LLVMGetFirstUse(value);
        while !at.is_null() {
            users.push(LLVMGetUser(at));
            at = LLVMGetNextUse(at);
        }
    }
    users
}

/// Whether it is neither a call of the function nor the address of a label in it.
///
/// # Safety
/// Values of a live module.
unsafe fn takes_address(user: LLVMValueRef, function: LLVMValueRef) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let among = |index| LLVMGetOperand(user, index) == function;
        match calls(user, function) {
            true => (0..LLVMGetNumOperands(user) as u32 - 1).any(among),
            false => LLVMIsABlockAddress(user).is_null(),
        }
    }
}

/// Whether it is a call of the function. What is called is the last operand.
///
/// # Safety
/// Values of a live module.
unsafe fn calls(user: LLVMValueRef, function: LLVMValueRef) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let is_call = !LLVMIsACallInst(user).is_null() || !LLVMIsAInvokeInst(user).is_null();
        is_call && LLVMGetCalledValue(user) == function
    }
}
