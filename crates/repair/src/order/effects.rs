//! What the code of a statement does to memory and to the world, from the bitcode: whether two statements may change places.
//!
//! A statement's code is the instructions whose debug location lies in it, in every instance of the function (templates, copies of `static inline`),
//! with the functions that they call. Two accesses of which one writes are in each other's way unless they are provably apart:
//!
//! - variables of the function whose address stays in it, by name;
//! - different members of a struct;
//! - by the pointer analysis of the whole program.
//!
//! What a library function does is known for a few; any other, synchronisation, output and volatile accesses stay where they are.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use crashproof_program::pointers::PointsTo;
use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMTypeRef;
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMTargetDataRef};
use llvm_sys::{LLVMOpcode, LLVMTypeKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::library::{COMPUTING, FILES, OUTPUT, OWN, PERSISTING, READING};
use crate::ir::{Persistence, Value};
use crate::plan::known::{self, Length};

/// What some code does.
#[derive(Clone, Debug, Default)]
pub struct Effects<'m> {
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
    /// The compiler moves no store to PM across it.
    pub barrier: bool,
    /// It draws from the state of a library (`rand`).
    pub draws: bool,
}

#[derive(Clone, Debug)]
pub struct Access<'m> {
    pointer: Value<'m>,
    size: Option<u64>,
    pub writes: bool,
    field: Option<Field>,
}

/// A member of a struct, by the struct's type and the member's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    record: LLVMTypeRef,
    index: u32,
}

impl Effects<'_> {
    /// Flushes and fences, and changes nothing.
    pub fn only_persists(&self) -> bool {
        self.persists
            && self.ends.is_none()
            && self.fixed.is_none()
            && !self.draws
            && !self.accesses.iter().any(|access| access.writes)
    }
}

/// Answers for one program.
pub struct Analysis<'m, 'c> {
    module: &'m Module<'c>,
    points_to: OnceCell<PointsTo<'m>>,
    summaries: RefCell<FxHashMap<Value<'m>, Rc<Effects<'m>>>>,
    private: RefCell<FxHashMap<Value<'m>, bool>>,
    layout: LLVMTargetDataRef,
}

impl<'m, 'c> Analysis<'m, 'c> {
    pub fn new(module: &'m Module<'c>) -> Analysis<'m, 'c> {
        Analysis {
            module,
            points_to: OnceCell::new(),
            summaries: RefCell::default(),
            private: RefCell::default(),
            // SAFETY: the module lives as long as the analysis borrows it.
            layout: unsafe { LLVMGetModuleDataLayout(module.as_mut_ptr()) },
        }
    }

    pub fn of(&self, instructions: impl IntoIterator<Item = Value<'m>>) -> Effects<'m> {
        let mut effects = Effects::default();
        let mut open = Vec::new();
        for instruction in instructions {
            self.add(instruction, &mut effects, &mut open);
        }
        effects
    }

    fn add(&self, instruction: Value<'m>, effects: &mut Effects<'m>, open: &mut Vec<Value<'m>>) {
        use LLVMOpcode::*;
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

    fn add_call(&self, call: Value<'m>, effects: &mut Effects<'m>, open: &mut Vec<Value<'m>>) {
        if let Some((template, constraints)) = call.assembly() {
            let is_barrier = constraints.contains("~{memory}");
            effects.barrier |= is_barrier;
            // In a function of its own it is there for more than the statements of the list: the end of a critical section, say.
            if is_barrier && !open.is_empty() && template.trim().is_empty() {
                effects
                    .fixed
                    .get_or_insert_with(|| "keeps the compiler from moving memory accesses across it".into());
            }
            self.add_assembly(call, template, effects);
            return;
        }
        let Some(callee) = call.called_function() else {
            effects.fixed.get_or_insert_with(|| "calls through a pointer".into());
            effects.stores_anywhere = true;
            return;
        };
        if callee.never_returns() {
            let name = name_of(callee);
            effects.ends.get_or_insert_with(|| format!("a call of {name}"));
        }
        if callee.source_name().is_some_and(|name| OWN.contains(&name)) {
            self.add_persisting(call, effects);
            return;
        }
        if callee.has_body() {
            let inner = self.summary(callee, open);
            effects.accesses.extend(inner.accesses.iter().cloned());
            effects.persists |= inner.persists;
            effects.fences |= inner.fences;
            effects.flushes.extend(inner.flushes.iter().cloned());
            effects.stores_anywhere |= inner.stores_anywhere;
            effects.barrier |= inner.barrier;
            effects.draws |= inner.draws;
            if effects.ends.is_none() {
                effects.ends.clone_from(&inner.ends);
            }
            if effects.fixed.is_none() {
                effects.fixed.clone_from(&inner.fixed);
            }
            return;
        }
        self.add_external(call, callee.name(), effects);
    }

    /// Of a function that flushes what its pointers are to, or fences.
    fn add_persisting(&self, call: Value<'m>, effects: &mut Effects<'m>) {
        effects.persists = true;
        effects.fences |= call
            .called_function()
            .is_some_and(|callee| !callee.name().contains("flush"));
        effects.barrier = true;
        let pointers = call.arguments().into_iter().filter(|argument| argument.is_pointer());
        effects
            .flushes
            .extend(pointers.map(|pointer| self.access(pointer, None, false)));
    }

    fn add_assembly(&self, call: Value<'m>, template: &str, effects: &mut Effects<'m>) {
        let template = template.trim();
        if template.is_empty() {
            return;
        }
        if template.starts_with("movnt") && !template.contains([';', '\n']) {
            let pointers = call.arguments().into_iter().filter(|argument| argument.is_pointer());
            effects
                .accesses
                .extend(pointers.map(|pointer| self.access(pointer, Some(64), true)));
            return;
        }
        effects.stores_anywhere = true;
        effects
            .fixed
            .get_or_insert_with(|| format!("has assembly of its own (`{template}`)"));
    }

    fn add_external(&self, call: Value<'m>, name: &str, effects: &mut Effects<'m>) {
        let arguments = call.arguments();
        let pointers = || arguments.iter().copied().filter(|argument| argument.is_pointer());
        let plain = crate::source::written::plain_name(name);
        if PERSISTING.contains(&name) {
            self.add_persisting(call, effects);
            return;
        }
        if name.starts_with("llvm.") && known::written(name).is_none() {
            match name {
                "llvm.trap" | "llvm.debugtrap" | "llvm.ubsantrap" => {
                    effects.ends.get_or_insert_with(|| "a trap".into());
                }
                _ if COMPUTING.iter().any(|prefix| name.starts_with(prefix)) => {}
                _ => {
                    effects.stores_anywhere = true;
                    effects.fixed.get_or_insert_with(|| format!("uses {name}"));
                }
            }
            return;
        }
        if let Some(written) = known::written(name)
            && !matches!(written.length, Length::Returned)
        {
            let bytes = match written.length {
                Length::Argument(index) | Length::Printed { size: index } => {
                    arguments.get(index as usize).and_then(|size| size.constant_integer())
                }
                Length::Constant(bytes) => Some(bytes),
                Length::String | Length::Returned => None,
            };
            for (index, pointer) in arguments
                .iter()
                .enumerate()
                .filter(|(_, argument)| argument.is_pointer())
            {
                let is_destination = index as u32 == written.destination;
                // What it reads is no longer than what it writes, of the copying ones.
                let size = match is_destination || matches!(written.length, Length::Argument(_)) {
                    true => bytes,
                    false => None,
                };
                effects.accesses.push(self.access(*pointer, size, is_destination));
            }
            return;
        }
        if READING.contains(&plain) {
            effects
                .accesses
                .extend(pointers().map(|pointer| self.access(pointer, None, false)));
            return;
        }
        match plain {
            "rand" | "random" | "srand" | "srandom" | "lrand48" => effects.draws = true,
            "malloc" | "calloc" | "abs" | "labs" | "llabs" | "getpid" => {}
            _ if OUTPUT.contains(&plain) => {
                effects
                    .fixed
                    .get_or_insert_with(|| format!("calls {name}, so that the outside knows what was done before it"));
            }
            _ => {
                effects.stores_anywhere |= !keeps_to_itself(name) || name.starts_with("pmem");
                effects
                    .fixed
                    .get_or_insert_with(|| format!("calls {name}, which may do anything"));
            }
        }
    }

    /// What a function does, but for its own variables. Of one that is under way (recursion) nothing more than that is asked.
    fn summary(&self, function: Value<'m>, open: &mut Vec<Value<'m>>) -> Rc<Effects<'m>> {
        if let Some(known) = self.summaries.borrow().get(&function) {
            return known.clone();
        }
        if open.contains(&function) {
            return Rc::default();
        }
        open.push(function);
        let mut effects = Effects::default();
        for instruction in function.instructions() {
            self.add(instruction, &mut effects, open);
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
            .retain(|access| seen.insert((access.pointer, access.size, access.writes)));
        let effects = Rc::new(effects);
        // In a cycle, inner ones lack what the outer ones do: only what is complete is kept.
        if open.is_empty() || !self.is_recursive(function) {
            self.summaries.borrow_mut().insert(function, effects.clone());
        }
        effects
    }

    fn is_recursive(&self, function: Value<'m>) -> bool {
        let mut seen = FxHashSet::default();
        let mut open = vec![function];
        while let Some(next) = open.pop() {
            for callee in next.instructions().filter_map(Value::called_function) {
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

    fn access(&self, pointer: Value<'m>, size: Option<u64>, writes: bool) -> Access<'m> {
        Access {
            pointer,
            size,
            writes,
            field: self.field(pointer, size),
        }
    }

    fn size_of(&self, value: Value<'m>) -> Option<u64> {
        // SAFETY: what is loaded has a size.
        Some(unsafe { LLVMABISizeOfType(self.layout, LLVMTypeOf(value.raw())) })
    }

    /// The member that an address is of, if so many bytes stay within it.
    fn field(&self, pointer: Value<'m>, size: Option<u64>) -> Option<Field> {
        let size = size?;
        let mut at = pointer;
        while at.opcode() == Some(LLVMOpcode::LLVMGetElementPtr) {
            // SAFETY: it is an address computation; types and indices are what LLVM checked.
            unsafe {
                let mut ty = LLVMGetGEPSourceElementType(at.raw());
                let count = LLVMGetNumOperands(at.raw()) as u32;
                let mut found = None;
                let first_is_zero = at.operand(1)?.constant_integer() == Some(0);
                let stays_in_array = LLVMGetTypeKind(ty) == LLVMTypeKind::LLVMArrayTypeKind && first_is_zero;
                for index in 2..count {
                    match LLVMGetTypeKind(ty) {
                        LLVMTypeKind::LLVMStructTypeKind => {
                            let number = u32::try_from(at.operand(index)?.constant_integer()?).ok()?;
                            found = Some(Field {
                                record: ty,
                                index: number,
                            });
                            ty = LLVMStructGetTypeAtIndex(ty, number);
                        }
                        LLVMTypeKind::LLVMArrayTypeKind => ty = LLVMGetElementType(ty),
                        _ => return None,
                    }
                }
                if let Some(field) = found {
                    let member = LLVMStructGetTypeAtIndex(field.record, field.index);
                    return (size <= LLVMABISizeOfType(self.layout, member)).then_some(field);
                }
                if !stays_in_array {
                    return None;
                }
            }
            at = at.operand(0)?;
        }
        None
    }

    /// A variable of a function whose address does not leave it.
    fn is_private(&self, variable: Value<'m>) -> bool {
        if let Some(known) = self.private.borrow().get(&variable) {
            return *known;
        }
        let mut open = vec![variable];
        let mut is_private = true;
        while let Some(pointer) = open.pop() {
            for user in pointer.users() {
                match user.opcode() {
                    Some(LLVMOpcode::LLVMLoad) => {}
                    Some(LLVMOpcode::LLVMStore) if user.operand(0) != Some(pointer) => {}
                    Some(LLVMOpcode::LLVMGetElementPtr) => open.push(user),
                    Some(LLVMOpcode::LLVMCall) => {
                        let callee = user.called_function().map_or("", |callee| callee.name());
                        let is_copy = known::written(callee).is_some() && callee.starts_with("llvm.");
                        is_private &=
                            is_copy || callee.starts_with("llvm.dbg.") || callee.starts_with("llvm.lifetime.");
                    }
                    _ => is_private = false,
                }
            }
        }
        self.private.borrow_mut().insert(variable, is_private);
        is_private
    }

    fn may_meet(&self, a: &Access<'m>, b: &Access<'m>) -> bool {
        let (base_a, base_b) = (a.pointer.base(), b.pointer.base());
        let is_own = |base: Value<'m>| base.is_alloca() && self.is_private(base);
        if is_own(base_a) || is_own(base_b) {
            return base_a == base_b;
        }
        if let (Some(ours), Some(theirs)) = (a.field, b.field)
            && ours.record == theirs.record
            && ours.index != theirs.index
        {
            return false;
        }
        let points_to = self.points_to.get_or_init(|| PointsTo::of(self.module));
        let size = |access: &Access| access.size.and_then(|size| u32::try_from(size).ok());
        points_to.may_overlap(a.pointer.raw(), size(a), b.pointer.raw(), size(b))
    }

    /// Whether the code of one and the code of the other touch the same memory, and one of them writes it.
    pub fn conflict(&self, a: &Effects<'m>, b: &Effects<'m>) -> bool {
        (a.draws && b.draws)
            || a.accesses.iter().any(|ours| {
                b.accesses
                    .iter()
                    .any(|theirs| (ours.writes || theirs.writes) && self.may_meet(ours, theirs))
            })
    }

    /// Whether what the code flushes, whole lines of it, may hold what the other stores in a way that one execution need not show: in a branch
    /// (`branches`), at an index, or through another pointer to a struct of the same type.
    pub fn may_flush_stores_of(&self, flushing: &Effects<'m>, storing: &Effects<'m>, branches: bool) -> bool {
        let points_to = self.points_to.get_or_init(|| PointsTo::of(self.module));
        let mut stores = storing.accesses.iter().filter(|access| access.writes);
        stores.any(|store| {
            flushing.flushes.iter().any(|flush| {
                let shows = !branches && has_constant_offset(store.pointer) && {
                    let record = |access: &Access<'m>| self.field(access.pointer, Some(1)).map(|field| field.record);
                    origin(store.pointer) == origin(flush.pointer)
                        || record(store).is_none()
                        || record(store) != record(flush)
                };
                let base = store.pointer.base();
                let is_own = base.is_alloca() && self.is_private(base);
                !shows && !is_own && points_to.may_share_object(flush.pointer.raw(), store.pointer.raw())
            })
        })
    }

    /// Whether all that the code reads are variables of its function whose address stays in it.
    pub fn reads_only_variables(&self, effects: &Effects<'m>) -> bool {
        effects.accesses.iter().all(|access| {
            let base = access.pointer.base();
            base.is_alloca() && self.is_private(base)
        })
    }
}

/// A library function that stores nothing into memory that it is given, or nothing but that.
fn keeps_to_itself(name: &str) -> bool {
    known::effect(name) == Some(known::Effect::Nothing) || FILES.contains(&name)
}

fn name_of(function: Value) -> String {
    function.source_name().unwrap_or(function.name()).to_owned()
}

/// The variable or value that a pointer is computed from.
fn origin(pointer: Value) -> Value {
    let base = pointer.base();
    match base.opcode() {
        Some(LLVMOpcode::LLVMLoad) => base.operand(0).unwrap_or(base),
        _ => base,
    }
}

fn has_constant_offset(pointer: Value) -> bool {
    let mut at = pointer;
    while at.opcode() == Some(LLVMOpcode::LLVMGetElementPtr) {
        // SAFETY: it is an address computation.
        let count = unsafe { LLVMGetNumOperands(at.raw()) } as u32;
        let is_constant = |index| {
            at.operand(index)
                .is_some_and(|index| index.constant_integer().is_some())
        };
        let Some(inner) = at.operand(0).filter(|_| (1..count).all(is_constant)) else {
            return false;
        };
        at = inner;
    }
    true
}
