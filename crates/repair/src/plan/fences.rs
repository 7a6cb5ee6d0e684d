//! Which fences come after an instruction, whatever path is taken.
//!
//! The reduction of section 4.3 asks whether an existing fence M serves a flush F(X) that must be durable by I: `F(X) → M → I`. Post-dominance by one fence is
//! generalised to a set of them (a fence in each branch), and to functions that always fence before they return. A path that ends the program
//! (`abort`, a call that does not return) ends in no return, and asks for no fence here.

use std::cell::RefCell;

use crashproof_llvm::{Block, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::known;
use crate::ir::{Code, Persistence};

/// What all paths from an instruction on come to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// A fence, all of them.
    Fenced,
    /// Some path comes to the instruction by which it must be durable, without a fence.
    TooLate,
    /// Some path returns without a fence.
    Returns,
}

#[derive(Default)]
pub(super) struct Fences<'m> {
    /// Functions that fence on every path to a return; `None` while it is being found out, which is "no" for a recursive call.
    always: RefCell<FxHashMap<Value<'m>, Option<bool>>>,
    may: RefCell<FxHashMap<Value<'m>, bool>>,
}

impl<'m> Fences<'m> {
    /// Whether the instruction has fenced when the next one is executed.
    pub(super) fn is_fence(&self, instruction: Value<'m>) -> bool {
        if instruction.persistence().contains(&Persistence::Fence) {
            return true;
        }
        let Some(function) = instruction.called_function() else {
            return false;
        };
        match function.has_body() {
            true => self.always_fences(function),
            false => known::fences(function.name()),
        }
    }

    fn always_fences(&self, function: Value<'m>) -> bool {
        if let Some(&known) = self.always.borrow().get(&function) {
            return known.unwrap_or(false);
        }
        self.always.borrow_mut().insert(function, None);
        let Some(entry) = function.blocks().next() else {
            return false;
        };
        let fences = self.paths_of_block(entry, None) == Paths::Fenced;
        self.always.borrow_mut().insert(function, Some(fences));
        fences
    }

    /// Whether the instruction may fence: a fence, a locked operation, or a call of something that may.
    pub(super) fn may_fence(&self, instruction: Value<'m>) -> bool {
        match may_fence(instruction) {
            May::No => false,
            May::Yes => true,
            May::If(function) => self.function_may_fence(function),
        }
    }

    fn function_may_fence(&self, function: Value<'m>) -> bool {
        if let Some(&may) = self.may.borrow().get(&function) {
            return may;
        }
        let mut seen: FxHashSet<Value> = FxHashSet::from_iter([function]);
        let mut pending = vec![function];
        while let Some(next) = pending.pop() {
            for instruction in next.code() {
                match may_fence(instruction) {
                    May::No => {}
                    May::Yes => {
                        self.may.borrow_mut().insert(function, true);
                        return true;
                    }
                    May::If(callee) if seen.insert(callee) => pending.push(callee),
                    May::If(_) => {}
                }
            }
        }
        self.may
            .borrow_mut()
            .extend(seen.into_iter().map(|function| (function, false)));
        false
    }

    /// From just after the instruction on. `until` is the instruction by which it must be durable, if it is in the same function; if that is a fence
    /// itself, it is both.
    pub(super) fn after(&self, instruction: Value<'m>, until: Option<Value<'m>>) -> Paths {
        for next in instruction.following() {
            if let Some(end) = self.step(next, until) {
                return end;
            }
        }
        self.paths_of_blocks(instruction.block().map_or_else(Vec::new, Block::successors), until)
    }

    /// Whether every path from after one instruction comes to another, over instructions that are allowed alone.
    pub(super) fn leads_to(from: Value<'m>, to: Value<'m>, allowed: impl Fn(Value<'m>) -> bool) -> bool {
        /// Whether to go on with the blocks that come next; `None`: not allowed.
        fn over<'m>(
            mut instructions: impl Iterator<Item = Value<'m>>,
            to: Value<'m>,
            allowed: &impl Fn(Value<'m>) -> bool,
        ) -> Option<bool> {
            let end = instructions.find(|&next| next == to || next.is_return() || !allowed(next));
            match end {
                None => Some(true),
                Some(end) => (end == to).then_some(false),
            }
        }
        let mut pending = Vec::new();
        match over(from.following(), to, &allowed) {
            None => return false,
            Some(false) => return true,
            Some(true) => pending.extend(from.block().map_or_else(Vec::new, Block::successors)),
        }
        let mut seen: FxHashSet<Block> = FxHashSet::default();
        while let Some(block) = pending.pop() {
            if !seen.insert(block) {
                continue;
            }
            match over(block.code(), to, &allowed) {
                None => return false,
                Some(true) => pending.extend(block.successors()),
                Some(false) => {}
            }
        }
        true
    }

    fn paths_of_block(&self, entry: Block<'m>, until: Option<Value<'m>>) -> Paths {
        self.paths_of_blocks(vec![entry], until)
    }

    fn paths_of_blocks(&self, mut pending: Vec<Block<'m>>, until: Option<Value<'m>>) -> Paths {
        let mut seen: FxHashSet<Block> = FxHashSet::default();
        let mut worst = Paths::Fenced;
        while let Some(block) = pending.pop() {
            if !seen.insert(block) {
                continue;
            }
            match block.code().find_map(|next| self.step(next, until)) {
                Some(Paths::TooLate) => return Paths::TooLate,
                Some(Paths::Returns) => worst = Paths::Returns,
                Some(Paths::Fenced) => {}
                None => pending.extend(block.successors()),
            }
        }
        worst
    }

    fn step(&self, instruction: Value<'m>, until: Option<Value<'m>>) -> Option<Paths> {
        if self.is_fence(instruction) {
            Some(Paths::Fenced)
        } else if until == Some(instruction) {
            Some(Paths::TooLate)
        } else if instruction.is_return() {
            Some(Paths::Returns)
        } else {
            None
        }
    }
}

enum May<'m> {
    No,
    Yes,
    /// If this function may.
    If(Value<'m>),
}

fn may_fence(instruction: Value) -> May {
    use crashproof_llvm::Opcode::{LLVMAtomicCmpXchg, LLVMAtomicRMW, LLVMFence};
    match instruction.opcode() {
        Some(LLVMAtomicCmpXchg | LLVMAtomicRMW | LLVMFence) => return May::Yes,
        _ if !instruction.is_call() => return May::No,
        _ => {}
    }
    let operations = instruction.persistence();
    if operations.contains(&Persistence::Fence) {
        return May::Yes;
    }
    if !operations.is_empty() || is_compiler_barrier(instruction) {
        return May::No;
    }
    match instruction.called_function() {
        Some(function) if function.has_body() => May::If(function),
        Some(function) if function.is_intrinsic() => May::No,
        Some(function) if known::effect(function.name()).is_some() && !function.name().starts_with("pmem") => May::No,
        _ => May::Yes,
    }
}

/// Assembly that emits nothing.
pub(super) fn is_compiler_barrier(instruction: Value) -> bool {
    instruction
        .assembly()
        .is_some_and(|(template, _)| template.trim().is_empty())
}
