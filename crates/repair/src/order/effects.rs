//! What the code of a statement does to memory and to the world, from the bitcode: whether two statements may change places.
//!
//! A statement's code is the instructions whose debug location lies in it, in every instance of the function (templates, copies of `static inline`),
//! with the functions that they call. Two accesses of which one writes are in each other's way unless they are provably apart:
//!
//! - variables of the function whose address stays in it, by name;
//! - different members of a struct;
//! - by the pointer analysis of the whole program.
//!
//! What a library function does is known for a few; any other, synchronisation, output and volatile accesses stay where they are ([`calls`](super::calls)).

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use crashproof_llvm::{Layout, Module, Opcode, Type, Value};
use crashproof_program::pointers::PointsTo;
use rustc_hash::{FxHashMap, FxHashSet};

use super::fences::Asked;
use crate::ir::{Code, Persistence};

/// What some code does.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects<'m> {
    pub accesses: Vec<Access<'m>>,
    /// It may not come to its end: who ends it.
    pub ends: Option<String>,
    /// It does what must not change places with anything, in words: "calls foo, of which nothing is known".
    pub fixed: Option<String>,
    /// It flushes or fences.
    pub persists: bool,
    /// It fences.
    pub fences: bool,
    /// What it flushes, from these addresses on.
    pub flushes: Vec<Access<'m>>,
    /// It may store where nothing is known of.
    pub stores_anywhere: bool,
    /// It may leave something waiting for a fence of which nothing is known.
    pub leaves_pending: bool,
    /// It stores past the cache, which waits for a fence.
    pub streams: bool,
    /// The compiler moves no store to PM across it.
    pub barrier: bool,
    /// It draws from the state of a library (`rand`).
    pub draws: bool,
    /// It reads the processor's clock.
    pub clock: bool,
    /// It may wait for what another thread does, or hand over to one.
    pub waits: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Access<'m> {
    pub(super) pointer: Value<'m>,
    pub(super) size: Option<u64>,
    pub writes: bool,
    /// The function that writes it makes it persistent itself.
    pub(super) settled: bool,
    pub(super) field: Option<Field<'m>>,
}

/// A member of a struct, by the struct's type and the member's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'m> {
    pub(super) record: Type<'m>,
    pub(super) index: u32,
}

impl<'m> Effects<'m> {
    /// With what a function does that it calls.
    pub(super) fn absorb(&mut self, inner: &Effects<'m>) {
        self.accesses.extend(inner.accesses.iter().cloned());
        self.persists |= inner.persists;
        self.fences |= inner.fences;
        self.flushes.extend(inner.flushes.iter().cloned());
        self.stores_anywhere |= inner.stores_anywhere;
        self.leaves_pending |= inner.leaves_pending;
        self.streams |= inner.streams;
        self.barrier |= inner.barrier;
        self.draws |= inner.draws;
        self.clock |= inner.clock;
        self.waits |= inner.waits;
        if self.ends.is_none() {
            self.ends.clone_from(&inner.ends);
        }
        if self.fixed.is_none() {
            self.fixed.clone_from(&inner.fixed);
        }
    }

    /// What waits or reads the clock stays where it is, unless that is the delay of a flush.
    fn settle_waits(&mut self) {
        let is_delay = self.clock && self.only_persists();
        if is_delay {
            return;
        }
        if self.clock {
            self.fixed.get_or_insert_with(|| "reads the clock".into());
        }
        if self.waits {
            self.stores_anywhere = true;
            self.leaves_pending = true;
            self.fixed
                .get_or_insert_with(|| "has assembly of its own, which may wait for another thread".into());
        }
    }

    /// It does what waits for a fence.
    pub(super) fn needs_fence(&self) -> bool {
        self.persists || self.streams
    }

    /// Flushes and fences, and changes nothing.
    pub(super) fn only_persists(&self) -> bool {
        self.persists
            && self.ends.is_none()
            && self.fixed.is_none()
            && !self.draws
            && !self.accesses.iter().any(|access| access.writes)
    }
}

/// Answers for one program.
pub(super) struct Analysis<'m, 'c> {
    pub(super) module: &'m Module<'c>,
    pub(super) points_to: OnceCell<PointsTo<'m>>,
    summaries: RefCell<FxHashMap<Value<'m>, Rc<Effects<'m>>>>,
    pub(super) private: RefCell<FxHashMap<Value<'m>, bool>>,
    pub(super) answers: RefCell<FxHashMap<Asked<'m>, bool>>,
    pub(super) layout: Layout<'m>,
}

impl<'m, 'c> Analysis<'m, 'c> {
    pub(super) fn new(module: &'m Module<'c>) -> Analysis<'m, 'c> {
        Analysis {
            module,
            points_to: OnceCell::new(),
            summaries: RefCell::default(),
            private: RefCell::default(),
            answers: RefCell::default(),
            layout: module.layout(),
        }
    }

    pub(super) fn of(&self, instructions: impl IntoIterator<Item = Value<'m>>) -> Effects<'m> {
        let instructions: Vec<Value<'m>> = instructions.into_iter().collect();
        let mut effects = Effects::default();
        let mut open = Vec::new();
        for instruction in &instructions {
            self.add(*instruction, &mut effects, &mut open);
        }
        // How often a loop flushes, and what, is a matter of its counter.
        if !instructions.iter().any(|at| at.is_branch()) {
            let code: FxHashSet<Value<'m>> = instructions.into_iter().collect();
            // What only this code uses, as copies of arguments, is of no concern to others.
            let is_temporary = |pointer: Value<'m>| {
                let base = pointer.base();
                self.is_own(base) && base.users().iter().all(|user| code.contains(user))
            };
            effects.accesses.retain(|access| !is_temporary(access.pointer));
        }
        effects.settle_waits();
        effects
    }

    fn add(&self, instruction: Value<'m>, effects: &mut Effects<'m>, open: &mut Vec<Value<'m>>) {
        use Opcode::*;
        if !instruction.persistence().is_empty() {
            effects.persists = true;
            effects.barrier = true;
            for operation in instruction.persistence() {
                match operation {
                    Persistence::Flush(pointer) => effects.flushes.push(self.access(pointer, None, false)),
                    Persistence::Fence => effects.fences = true,
                }
            }
            return;
        }
        if instruction.is_atomic() {
            effects
                .fixed
                .get_or_insert_with(|| "synchronises with other threads (an atomic operation)".into());
        }
        if instruction.is_volatile() {
            effects.fixed.get_or_insert_with(|| "accesses volatile memory".into());
        }
        match instruction.opcode() {
            Some(LLVMLoad) => {
                let size = self.size_of(instruction);
                effects
                    .accesses
                    .extend(instruction.operand(0).map(|pointer| self.access(pointer, size, false)));
            }
            Some(LLVMStore | LLVMAtomicRMW | LLVMAtomicCmpXchg) => {
                effects.streams |= instruction.is_nontemporal();
                let size = instruction.stored_size();
                effects.accesses.extend(
                    instruction
                        .store_pointer()
                        .map(|pointer| self.access(pointer, size, true)),
                );
            }
            Some(LLVMCall | LLVMInvoke | LLVMCallBr) => self.add_call(instruction, effects, open),
            Some(LLVMUnreachable) => {}
            Some(LLVMResume | LLVMCleanupRet | LLVMCatchSwitch) => {
                effects.ends.get_or_insert_with(|| "an exception".into());
            }
            Some(LLVMVAArg) => {
                effects.fixed.get_or_insert_with(|| "takes a variable argument".into());
            }
            _ => {}
        }
    }

    /// What a function does, but for its own variables. Of one that is under way (recursion) nothing more than that is asked.
    pub(super) fn summary(&self, function: Value<'m>, open: &mut Vec<Value<'m>>) -> Rc<Effects<'m>> {
        if let Some(known) = self.summaries.borrow().get(&function) {
            return known.clone();
        }
        if open.contains(&function) {
            return Rc::default();
        }
        open.push(function);
        let mut effects = Effects::default();
        for instruction in function.code() {
            let known = effects.accesses.len();
            self.add(instruction, &mut effects, open);
            let mut added = effects.accesses[known..].iter_mut();
            if added.any(|access| access.writes) && self.persists_itself(function, instruction) {
                effects.accesses[known..]
                    .iter_mut()
                    .for_each(|access| access.settled = true);
            }
        }
        open.pop();
        effects.accesses.retain(|access| {
            let base = access.pointer.base();
            !(base.is_alloca() && base.function() == Some(function) && self.is_private(base))
        });
        // A member that is accessed often is one.
        let mut seen = FxHashSet::default();
        effects
            .accesses
            .retain(|access| seen.insert((access.pointer, access.size, access.writes, access.settled)));
        let effects = Rc::new(effects);
        // In a cycle, inner ones lack what the outer ones do: only what is complete is kept.
        if open.is_empty() || !self.is_recursive(function) {
            self.summaries.borrow_mut().insert(function, effects.clone());
        }
        effects
    }

    pub(super) fn is_recursive(&self, function: Value<'m>) -> bool {
        let mut seen = FxHashSet::default();
        let mut open = vec![function];
        while let Some(next) = open.pop() {
            for callee in next.code().filter_map(Value::called_function) {
                if callee == function {
                    return true;
                }
                if callee.has_body() && seen.insert(callee) {
                    open.push(callee);
                }
            }
        }
        false
    }
}
