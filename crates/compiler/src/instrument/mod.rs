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
mod persistence;
pub(crate) mod position;
mod stores;

use crashproof_sites::{Location, Site, SiteKind, Target, section};
use crashproof_wire::hooks::{Hook, VIEW_PREFIX, VIEW_SHIFT};
use inkwell::module::Module;
use ir::{Block, DebugLocation, Ir, Value};
use llvm_sys::LLVMOpcode;

use crate::frontend::FrontEnd;

/// Instruments the module and returns its sites, in the order of the numbers that `.crashproof.pc` has them under. `front_end` is that of the
/// same source.
pub fn instrument(module: &Module, front_end: &FrontEnd, object: u64) -> Vec<Site> {
    instrument_further(module, front_end, object, Vec::new())
}

/// The same for a module that has sites already.
pub fn instrument_further(module: &Module, front_end: &FrontEnd, object: u64, sites: Vec<Site>) -> Vec<Site> {
    // SAFETY: the module outlives this function, and nothing of it is returned.
    let ir = unsafe { Ir::new(module.as_mut_ptr()) };
    let target = ir.target();
    if !target.starts_with("x86_64") || target.contains("x32") {
        return sites;
    }
    let known = sites.len();
    let functions: Vec<Value> = ir.functions().filter(|function| function.has_ordinary_code()).collect();
    let mut pass = Pass {
        ir,
        front_end,
        object,
        sites,
    };
    for function in functions {
        pass.function(function);
    }
    if pass.sites.len() > known {
        pass.ir.append_assembly(&gates::assembly());
    }
    pass.sites
}

struct Pass<'a> {
    ir: Ir,
    front_end: &'a FrontEnd,
    object: u64,
    sites: Vec<Site>,
}

/// The blocks around an instruction that was taken out of the line.
struct Parts {
    /// Ends before the instruction; without a terminator.
    head: Block,
    /// Holds nothing but the instruction, and goes on to the tail.
    original: Block,
    tail: Block,
    location: DebugLocation,
}

impl Pass<'_> {
    fn function(&mut self, function: Value) {
        let instructions: Vec<Value> = function.blocks().flat_map(|block| block.instructions()).collect();
        self.ir.gather_allocas(function);
        for instruction in instructions {
            match instruction.opcode() {
                Some(LLVMOpcode::LLVMStore) => self.store(instruction),
                Some(LLVMOpcode::LLVMAtomicRMW) => self.read_modify_write(instruction),
                Some(LLVMOpcode::LLVMAtomicCmpXchg) => self.compare_and_exchange(instruction),
                Some(LLVMOpcode::LLVMFence) => self.fence(instruction),
                Some(LLVMOpcode::LLVMCall) => self.call(instruction),
                _ => {}
            }
        }
    }

    fn call(&mut self, call: Value) {
        let callee = call.callee();
        if let Some((template, constraints)) = callee.inline_assembly() {
            self.inline_assembly(call, template, constraints);
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
    fn set_apart(&self, instruction: Value) -> Parts {
        let (tail, location) = (instruction.block(), instruction.debug_location());
        let head = self.ir.split_before(instruction);
        let original = self.ir.block_before(tail);
        self.ir.move_to(instruction, original);
        self.ir.build_in(original, location);
        self.ir.branch(tail);
        Parts {
            head,
            original,
            tail,
            location,
        }
    }

    /// Ends the head with the check whether the pointer is to PM, and returns the block in which it is.
    fn check(&self, parts: &Parts, pointer: Value, further: impl FnOnce(&Ir, Value) -> Value) -> Block {
        let pm = self.ir.block_at_end(parts.head.function());
        self.ir.build_in(parts.head, parts.location);
        let address = self.ir.as_i64(self.base(pointer));
        let prefix = self.ir.shift_right(address, VIEW_SHIFT);
        let is_view = self.ir.equal(prefix, self.ir.i64(VIEW_PREFIX));
        let condition = further(&self.ir, is_view);
        self.ir.branch_if_unlikely(condition, pm, parts.original);
        self.ir.build_in(pm, parts.location);
        pm
    }

    /// The pointer, computed anew here: if out of line it had to be in a register, the instruction could no longer compute it itself.
    fn recompute(&self, pointer: Value) -> Value {
        match pointer.opcode() {
            Some(LLVMOpcode::LLVMGetElementPtr) => self.ir.clone_here(pointer),
            _ => pointer,
        }
    }

    /// Calls a hook as the event of a new site.
    fn event(&mut self, site: Site, hook: Hook, arguments: &[Value]) -> Value {
        let number = self.sites.len() as u32;
        // LLVM's assembler attaches a source position to whatever comes next, be it data in another section. It is to be
        // this instruction, which the call then shares it with.
        self.ir
            .assembly(&format!("nop\n{}", section::pc_assembly(self.object, number)));
        self.sites.push(site);
        self.ir.call_preserving(hook.gate(), arguments)
    }

    /// After a hook that does everything: on to the tail, or to the original instruction if it declined.
    fn finish(&self, parts: &Parts, done: Value) {
        let declined = self.ir.equal(done, self.ir.i64(0));
        self.ir.branch_if(declined, parts.original, parts.tail);
    }

    fn site(&self, kind: SiteKind, instruction: Value, written: Option<(Value, Option<u64>)>) -> Site {
        let location = position::inlining_chain(&self.ir, instruction.debug_location());
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
    fn may_be_pm(&self, pointer: Value) -> bool {
        let base = self.walk(pointer, |_| true).0;
        pointer.ty().address_space() == 0 && !base.is_alloca() && !base.is_constant() && !base.is_by_value_argument()
    }

    /// The pointer that stays within the same object: it is in a register anyway, and several stores share it.
    fn base(&self, pointer: Value) -> Value {
        self.walk(pointer, |gep| gep.is_in_bounds()).0
    }

    /// How far the pointer is from the base of its object, if that is constant.
    fn offset(&self, pointer: Value) -> Option<i64> {
        self.walk(pointer, |_| true).1
    }

    fn walk(&self, pointer: Value, through: impl Fn(Value) -> bool) -> (Value, Option<i64>) {
        let (mut at, mut offset) = (pointer, Some(0i64));
        while at.opcode() == Some(LLVMOpcode::LLVMGetElementPtr) && through(at) && !at.ty().is_vector() {
            let (base, by) = self.ir.base_and_offset(at);
            at = base;
            offset = offset.zip(by).map(|(one, other)| one.wrapping_add(other));
        }
        (at, offset)
    }
}
