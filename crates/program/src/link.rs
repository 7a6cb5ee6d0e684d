//! Links bitcode as the linker linked the objects, and the loader the libraries.

use crashproof_llvm::{Context, Linkage, Module, Value, Visibility};

/// Adds an object of a library or executable.
pub(crate) fn add_object<'context>(
    file: &mut Module<'context>,
    bitcode: &[u8],
    context: &'context Context,
) -> Result<(), String> {
    let object = context.parse_bitcode(bitcode)?;
    // A second definition makes LLVM give up midway; the linker has complained, or was told not to.
    let is_strong = |function: &Value| {
        function.has_body()
            && matches!(
                function.linkage(),
                Some(Linkage::LLVMExternalLinkage | Linkage::LLVMDLLExportLinkage)
            )
    };
    for function in object.functions().filter(is_strong) {
        if file.function(function.name()).is_some_and(|other| is_strong(&other)) {
            return Err(format!("{} is defined in another object too", function.name()));
        }
    }
    file.link_in(object)
}

/// What a library keeps to itself stays apart from what has the same name elsewhere, and what is defined already counts.
pub(crate) fn close_library(file: &Module, program: &Module) {
    let is_external =
        |symbol: &Value| !symbol.is_declaration() && symbol.linkage() == Some(Linkage::LLVMExternalLinkage);
    let close = |symbol: Value, first: Option<Value>| {
        if symbol.visibility() == Some(Visibility::LLVMHiddenVisibility) {
            symbol.set_visibility(Visibility::LLVMDefaultVisibility);
            symbol.set_linkage(Linkage::LLVMInternalLinkage);
        } else if first.is_some_and(|first| !first.is_declaration()) {
            symbol.set_linkage(Linkage::LLVMWeakAnyLinkage);
        }
    };
    for function in file.functions().filter(is_external) {
        close(function, program.function(function.name()));
    }
    for global in file.globals().filter(is_external) {
        close(global, program.global(global.name()));
    }
}
