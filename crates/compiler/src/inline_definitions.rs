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

use crashproof_llvm::{Linkage, Module, Opcode, Value, ValueKind, Visibility};

/// What the names of virtual tables begin with.
const VIRTUAL_TABLES: [&str; 3] = ["_ZTV", "_ZTT", "_ZTC"];

/// Makes every definition of the module one that code is made of. Whether there was any to change.
pub(crate) fn make_real(module: &mut Module) -> bool {
    let only_for_inlining = |value: &Value| value.linkage() == Some(Linkage::LLVMAvailableExternallyLinkage);
    let name = |value: Value| value.name().to_owned();
    let globals: Vec<String> = module.globals().filter(only_for_inlining).map(name).collect();
    let functions: Vec<String> = module.functions().filter(only_for_inlining).map(name).collect();
    for name in &globals {
        define_constant(module, name);
    }
    for name in &functions {
        define_function(module, name);
    }
    !globals.is_empty() || !functions.is_empty()
}

fn define_constant(module: &mut Module, name: &str) {
    let is_virtual_table = VIRTUAL_TABLES.iter().any(|prefix| name.starts_with(prefix));
    if is_virtual_table || !module.global(name).is_some_and(Value::is_global_constant) {
        // Code is made of neither it nor its initialiser, which would take the addresses of functions.
        module.undefine_global(name);
    } else {
        module.share_global(name);
    }
}

fn define_function(module: &mut Module, name: &str) {
    let Some(function) = module.function(name) else { return };
    let uses = function.users();
    let mut internal = name.to_owned();
    if uses.iter().any(|&user| takes_address(user, function)) {
        if uses.iter().any(|&user| is_label(user)) {
            // Addresses of labels name the function that they are in, and stay with it.
            function.set_linkage(Linkage::LLVMWeakAnyLinkage);
            return;
        }
        internal += ".inline_definition";
        module.put_behind_alias(name, &internal);
    }
    if let Some(function) = module.function(&internal) {
        function.set_visibility(Visibility::LLVMDefaultVisibility);
        function.set_linkage(Linkage::LLVMInternalLinkage);
    }
}

/// Whether it is neither a call of the function nor the address of a label in it.
fn takes_address(user: Value, function: Value) -> bool {
    match calls(user, function) {
        // What is called is the last operand.
        true => (0..user.operand_count() - 1).any(|index| user.operand(index) == Some(function)),
        false => !is_label(user),
    }
}

fn is_label(value: Value) -> bool {
    value.kind() == ValueKind::LLVMBlockAddressValueKind
}

fn calls(user: Value, function: Value) -> bool {
    user.opcode() != Some(Opcode::LLVMCallBr) && user.called_value() == Some(function)
}
