//! The label pass of `crashproof cc --deps`: on the front end's bitcode, after nothing but mem2reg, every value gets a 32-bit label beside
//! it, and the runtime is told of every access, branch and call (`crashproof_wire::labels` is the list of its functions).
//!
//! Witcher (SOSP '21, section 4.1) instruments with LLVM what its trace needs and works out dependences afterwards. Here they are
//! followed while the program runs, as SymCC follows expressions: a value's label is computed next to the value, memory's labels are in the
//! runtime. Optimised code would not do: at -O2 a guarded read is three unconditional loads and a select. Crash states come
//! from the optimised build, in the same executable; this one is only recorded.
//!
//! What labels are, and what an access depends on: `docs/dependences.md`.

mod build;
mod calls;
mod function;
mod postdominators;

use std::ffi::CStr;

use crashproof_sites::{Location, Site, SiteKind, Target, section};
use inkwell::module::Module;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use llvm_sys::transforms::pass_builder::{LLVMCreatePassBuilderOptions, LLVMDisposePassBuilderOptions, LLVMRunPasses};

use crate::frontend::FrontEnd;
use crate::instrument::ir::{Ir, Value};
use crate::instrument::{gates, position};
use function::Function;

/// Makes the bitcode ready: variables become values, and every edge has a block of its own where it needs one.
pub fn prepare(module: &Module) -> Result<(), String> {
    // SAFETY: the module outlives this function, and nothing of it is returned.
    let ir = unsafe { Ir::new(module.as_mut_ptr()) };
    ir.functions().for_each(build::remove_promises);
    // SAFETY: a live module, a C string, and options that are disposed of; without a target machine passes assume none.
    unsafe {
        let options = LLVMCreatePassBuilderOptions();
        let passes = c"function(mem2reg,break-crit-edges)";
        let error = LLVMRunPasses(module.as_mut_ptr(), passes.as_ptr(), std::ptr::null_mut(), options);
        LLVMDisposePassBuilderOptions(options);
        if error.is_null() {
            return Ok(());
        }
        let message = LLVMGetErrorMessage(error);
        let reason = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(reason)
    }
}

/// Puts the labels into a module that is ready. Its sites, in the order of the numbers that `.crashproof.pc` has them under.
pub fn label(module: &Module, front_end: &FrontEnd, object: u64) -> Vec<Site> {
    // SAFETY: the module outlives this function, and nothing of it is returned.
    let ir = unsafe { Ir::new(module.as_mut_ptr()) };
    let functions: Vec<Value> = ir.functions().filter(|function| function.has_ordinary_code()).collect();
    if functions.is_empty() {
        return Vec::new();
    }
    let flags = build::block_flags(&ir);
    let mut pass = Pass {
        ir,
        front_end,
        object,
        sites: Vec::new(),
        flags,
        blocks: 0,
    };
    for function in functions {
        Function::instrument(&mut pass, function);
    }
    build::register_flags(&pass.ir, flags, pass.blocks, object);
    pass.ir.append_assembly(&gates::label_assembly());
    pass.sites
}

pub struct Pass<'m> {
    ir: Ir,
    front_end: &'m FrontEnd,
    object: u64,
    sites: Vec<Site>,
    /// A byte for each block that is executed.
    flags: Value,
    /// Blocks so far.
    blocks: u64,
}

impl Pass<'_> {
    /// The call that is built next is an access by the instruction, to what its operand points to.
    fn site(&mut self, kind: SiteKind, instruction: Value, operand: u32, size: Option<u64>) {
        let location = position::inlining_chain(&self.ir, instruction.debug_location());
        let target = match location.first() {
            Some(Location {
                function, line, column, ..
            }) if kind == SiteKind::Load => self.front_end.loaded(function, *line, *column, operand, size),
            Some(Location {
                function, line, column, ..
            }) => self.front_end.target(function, *line, *column, size, None),
            None => Target::Unknown,
        };
        let number = self.sites.len() as u32;
        // As in `instrument`.
        self.ir
            .assembly(&format!("nop\n{}", section::pc_assembly(self.object, number)));
        self.sites.push(Site {
            kind,
            location,
            merged: Vec::new(),
            target,
        });
    }
}
