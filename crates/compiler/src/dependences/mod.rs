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

use crashproof_llvm::{Module, Value};
use crashproof_sites::{Location, Site, SiteKind, Target, section};

use crate::frontend::FrontEnd;
use crate::instrument::ir::Ir;
use crate::instrument::{gates, position};
use function::Function;

/// Makes the bitcode ready: variables become values, and every edge has a block of its own where it needs one.
pub fn prepare(module: &mut Module) -> Result<(), String> {
    module.use_debug_intrinsics();
    module.functions().for_each(build::remove_promises);
    module.run_passes("function(mem2reg,break-crit-edges)")
}

/// Puts the labels into a module that is ready. Its sites, in the order of the numbers that `.crashproof.pc` has them under.
pub fn label(module: &mut Module, front_end: &FrontEnd, object: u64) -> Vec<Site> {
    module.use_debug_intrinsics();
    let module = &*module;
    let functions: Vec<Value> = module
        .functions()
        .filter(|function| function.has_ordinary_code())
        .collect();
    if functions.is_empty() {
        return Vec::new();
    }
    let count = functions
        .iter()
        .map(|&function| function::reachable(function).len() as u64)
        .sum();
    let ir = Ir::new(module);
    let flags = build::block_flags(&ir, count);
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
    build::register_flags(&pass.ir, flags, count, object);
    module.append_assembly(gates::label_assembly().as_bytes());
    pass.sites
}

pub struct Pass<'m> {
    ir: Ir<'m>,
    front_end: &'m FrontEnd,
    object: u64,
    sites: Vec<Site>,
    /// A byte for each block that is executed.
    flags: Value<'m>,
    /// Blocks so far.
    blocks: u64,
}

impl<'m> Pass<'m> {
    /// The call that is built next is an access by the instruction, to what its operand points to.
    fn site(&mut self, kind: SiteKind, instruction: Value<'m>, operand: u32, size: Option<u64>) {
        let location = position::inlining_chain(instruction.debug_location());
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
