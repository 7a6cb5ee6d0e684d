//! Puts the hooks into the optimised module: where it stores, flushes or fences, and the memory is PM, the runtime is called
//! instead, which does the same and records it (`crashproof_wire::hooks`).
//!
//! The design is SymCC's: a pass that emits calls, a runtime that implements them, one list of functions that both share.
//! Agamotto and Squint instrument by interpreting bitcode; here the code runs natively, and a store to ordinary memory costs a shift,
//! a comparison and a branch that is not taken.
//!
//! ```text
//!        shift, compare with the addresses that the runtime reserves for PM
//!              │ not PM                       │ PM (out of line)
//!              ▼                              ▼
//!        the instruction ◄── declined ── call a hook
//!              └──────────────┬───────────────┘ done
//!                             ▼
//! ```
//!
//! **Nothing can be lost, only slower.** The view of PM is never writable, so a store that no hook has done faults and is recorded like
//! that of unmodified code; so does each flush or fence that is executed, by the runtime's breakpoints. Therefore everything here
//! may be approximate: the check looks at the base of an address instead of the address; stores to variables on
//! the stack and to globals are not checked at all; what is rare or not understood (scatters, compressing and
//! element-wise atomic intrinsics, `maskmovdqu`, any other inline assembly) is left as it is; and a hook may decline.
//!
//! What the optimiser split or merged is seen as it is executed, because the module is instrumented after it. A single scalar store is one call.
//! Whatever else a single instruction does (wide stores, atomics) is bracketed: one hook takes the locks of the lines and says where the
//! alias is, the same instruction is executed there, another hook logs what it wrote.
//!
//! A call has the debug location of what it stands for, so that a finding is on the same line as without instrumentation.

/// Flushes and fences in inline assembly.
pub mod assembly;
pub(crate) mod gates;
pub(crate) mod ir;
mod memory;
pub(crate) mod persistence;
pub(crate) mod position;
mod stores;

use crashproof_llvm::{Block, DebugLocation, Holder, Module, Opcode, Value};
use crashproof_sites::{Location, Site, SiteKind, Target, section};
use crashproof_wire::hooks::{Hook, VIEW_PREFIX, VIEW_SHIFT};
use ir::Ir;

use crate::frontend::FrontEnd;

/// Instruments the module and returns its sites, in the order of the numbers that `.crashproof.pc` has them under. `front_end` is that of the
/// same source.
pub fn instrument(module: &mut Module, front_end: &FrontEnd, object: u64) -> Vec<Site> {
    instrument_further(module, front_end, object, Vec::new())
}

/// The same for a module that has sites already.
pub fn instrument_further(module: &mut Module, front_end: &FrontEnd, object: u64, sites: Vec<Site>) -> Vec<Site> {
    // Variables' locations as instructions, so that they keep their places when instructions are moved.
    module.use_debug_intrinsics();
    let module = &*module;
    let target = module.target();
    if !target.starts_with("x86_64") || target.contains("x32") {
        return sites;
    }
    let known = sites.len();
    let functions: Vec<Value> = module
        .functions()
        .filter(|function| function.has_ordinary_code())
        .collect();
    let mut pass = Pass {
        ir: Ir::new(module),
        front_end,
        object,
        sites,
    };
    for function in functions {
        pass.function(function);
    }
    if pass.sites.len() > known {
        module.append_assembly(gates::assembly().as_bytes());
    }
    pass.sites
}

struct Pass<'m> {
    ir: Ir<'m>,
    front_end: &'m FrontEnd,
    object: u64,
    sites: Vec<Site>,
}

/// The blocks around an instruction that was taken out of the line.
struct Parts<'m> {
    /// Ends before the instruction; without a terminator.
    head: Block<'m>,
    /// Holds nothing but the instruction, and goes on to the tail.
    original: Block<'m>,
    tail: Block<'m>,
    location: Option<DebugLocation<'m>>,
}

impl<'m> Pass<'m> {
    fn function(&mut self, function: Value<'m>) {
        let instructions: Vec<Value> = function.instructions().collect();
        self.ir.gather_allocas(function);
        for instruction in instructions {
            match instruction.opcode() {
                Some(Opcode::LLVMStore) => self.store(instruction),
                Some(Opcode::LLVMAtomicRMW) => self.read_modify_write(instruction),
                Some(Opcode::LLVMAtomicCmpXchg) => self.compare_and_exchange(instruction),
                Some(Opcode::LLVMFence) => self.fence(instruction),
                Some(Opcode::LLVMCall) => self.call(instruction),
                _ => {}
            }
        }
    }

    fn call(&mut self, call: Value<'m>) {
        let Some(callee) = call.called_value() else { return };
        if let Some((template, constraints, is_att)) = callee.inline_assembly() {
            if is_att {
                self.inline_assembly(call, template, constraints);
            }
            return;
        }
        if !callee.is_global() || !callee.is_declaration() {
            return;
        }
        let name = callee.name();
        match name.strip_prefix("llvm.") {
            Some(intrinsic) if intrinsic.starts_with("masked.store.") => self.masked_store(call),
            Some(intrinsic) if intrinsic.starts_with("mem") => self.memory_intrinsic(call, intrinsic),
            Some(intrinsic) => self.persistence_intrinsic(call, intrinsic),
            None => self.memory_function(call, name),
        }
    }

    /// Takes the instruction out of the line.
    fn set_apart(&self, instruction: Value<'m>) -> Parts<'m> {
        let location = instruction.debug_location();
        let (head, tail) = self.ir.split_before(instruction);
        let original = self.ir.block_before(tail);
        self.ir.move_to_end(instruction, original);
        self.ir.at_end(original, location);
        self.ir.branch(tail);
        Parts {
            head,
            original,
            tail,
            location,
        }
    }

    /// Ends the head with the check whether the pointer is to PM, and returns the block in which it is.
    fn check(
        &self,
        parts: &Parts<'m>,
        pointer: Value<'m>,
        further: impl FnOnce(&Ir<'m>, Value<'m>) -> Value<'m>,
    ) -> Block<'m> {
        let pm = self.ir.block_at_end(parts.head.function());
        self.ir.at_end(parts.head, parts.location);
        let address = self.ir.as_i64(self.base(pointer));
        let prefix = self.ir.shift_right(address, VIEW_SHIFT);
        let is_view = self.ir.equal(prefix, self.ir.i64(VIEW_PREFIX));
        let condition = further(&self.ir, is_view);
        self.ir.branch_if_unlikely(condition, pm, parts.original);
        self.ir.at_end(pm, parts.location);
        pm
    }

    /// The pointer, computed anew here: if out of line it had to be in a register, the instruction could no longer compute it itself.
    fn recompute(&self, pointer: Value<'m>) -> Value<'m> {
        match pointer.is_instruction() && pointer.is_element_pointer() {
            true => self.ir.clone_here(pointer),
            false => pointer,
        }
    }

    /// Calls a hook as the event of a new site.
    fn event(&mut self, site: Site, hook: Hook, arguments: &[Value<'m>]) -> Value<'m> {
        let number = self.sites.len() as u32;
        // LLVM's assembler attaches a source position to whatever comes next, be it data in another section. It is to be
        // this instruction, which the call then shares it with.
        self.ir
            .assembly(&format!("nop\n{}", section::pc_assembly(self.object, number)));
        self.sites.push(site);
        self.ir.call_preserving(hook.gate(), arguments)
    }

    /// After a hook that does everything: on to the tail, or to the original instruction if it declined.
    fn finish(&self, parts: &Parts<'m>, done: Value<'m>) {
        let declined = self.ir.equal(done, self.ir.i64(0));
        self.ir.branch_if(declined, parts.original, parts.tail);
    }

    /// Uses of `original` become uses of whichever was executed: it, or `other` in its block. Both lead to the tail.
    fn join(&self, original: Value<'m>, parts: &Parts<'m>, other: (Value<'m>, Block<'m>)) {
        let Some(first) = parts.tail.instructions().next().filter(|_| original.is_used()) else {
            return;
        };
        self.ir.before(first, original.debug_location());
        let phi = self.ir.phi(original.ty());
        // The original is added to the phi when its other uses are gone.
        self.ir.replace_uses(original, phi);
        for (value, from) in [(original, parts.original), other] {
            self.ir.add_incoming(phi, value, from);
        }
    }

    fn site(&self, kind: SiteKind, instruction: Value<'m>, written: Option<(Value<'m>, Option<u64>)>) -> Site {
        let location = position::inlining_chain(instruction.debug_location());
        let (target, merged) = match (written, location.first()) {
            (
                Some((pointer, size)),
                Some(Location {
                    function, line, column, ..
                }),
            ) => (
                self.front_end
                    .target(function, *line, *column, size, self.offset(pointer)),
                self.front_end.merged(function, *line, *column, size),
            ),
            _ => (Target::Unknown, Vec::new()),
        };
        Site {
            kind,
            location,
            merged,
            target,
        }
    }

    /// Whether it is worth asking if the pointer is to PM.
    fn may_be_pm(&self, pointer: Value<'m>) -> bool {
        let base = walk(pointer, |_| true).0;
        let is_copy = |(function, index): (Value, u32)| function.attribute(Holder::Parameter(index), "byval").is_some();
        pointer.ty().address_space() == Some(0)
            && !base.is_alloca()
            && !base.is_constant()
            && !base.as_parameter().is_some_and(is_copy)
    }

    /// The pointer that stays within the same object: it is in a register anyway, and several stores share it.
    fn base(&self, pointer: Value<'m>) -> Value<'m> {
        walk(pointer, Value::is_in_bounds).0
    }

    /// How far the pointer is from the base of its object, if that is constant.
    fn offset(&self, pointer: Value<'m>) -> Option<i64> {
        walk(pointer, |_| true).1
    }
}

/// What the pointer is computed from, and how far it is from there.
fn walk<'m>(pointer: Value<'m>, through: impl Fn(Value<'m>) -> bool) -> (Value<'m>, Option<i64>) {
    pointer.base_and_offset(|gep| gep.is_instruction() && through(gep) && !gep.ty().is_vector())
}
