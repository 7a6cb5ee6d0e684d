//! Links bitcode as the linker linked the objects, and the loader the libraries.

use inkwell::GlobalVisibility;
use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{Linkage, Module};

/// Adds an object of a library or executable.
pub fn add_object<'context>(
    file: &Module<'context>,
    bitcode: &[u8],
    name: &str,
    context: &'context Context,
) -> Result<(), String> {
    let buffer = MemoryBuffer::create_from_memory_range_copy(bitcode, name);
    let object = Module::parse_bitcode_from_buffer(&buffer, context).map_err(|error| error.to_string())?;
    // A second definition makes LLVM give up midway; the linker has complained, or was told not to.
    let is_strong = |linkage| matches!(linkage, Linkage::External | Linkage::DLLExport);
    for function in object
        .get_functions()
        .filter(|function| function.count_basic_blocks() > 0)
    {
        let name = function.get_name().to_string_lossy().into_owned();
        if is_strong(function.get_linkage())
            && let Some(other) = file.get_function(&name)
            && other.count_basic_blocks() > 0
            && is_strong(other.get_linkage())
        {
            return Err(format!("{name} is defined in another object too"));
        }
    }
    file.link_in_module(object).map_err(|error| error.to_string())
}

/// What a library keeps to itself stays apart from what has the same name elsewhere, and what is defined already counts.
pub fn close_library(file: &Module, program: &Module) {
    for function in file
        .get_functions()
        .filter(|function| function.count_basic_blocks() > 0)
    {
        let global = function.as_global_value();
        if global.get_visibility() == GlobalVisibility::Hidden && function.get_linkage() == Linkage::External {
            global.set_visibility(GlobalVisibility::Default);
            function.set_linkage(Linkage::Internal);
        } else if function.get_linkage() == Linkage::External
            && program
                .get_function(&function.get_name().to_string_lossy())
                .is_some_and(|first| first.count_basic_blocks() > 0)
        {
            function.set_linkage(Linkage::WeakAny);
        }
    }
    for global in file.get_globals().filter(|global| !global.is_declaration()) {
        if global.get_visibility() == GlobalVisibility::Hidden && global.get_linkage() == Linkage::External {
            global.set_visibility(GlobalVisibility::Default);
            global.set_linkage(Linkage::Internal);
        } else if global.get_linkage() == Linkage::External
            && program
                .get_global(&global.get_name().to_string_lossy())
                .is_some_and(|first| !first.is_declaration())
        {
            global.set_linkage(Linkage::WeakAny);
        }
    }
}
