//! What a pointer points to, followed back through the front end's code.
//!
//! Two things tell a type. LLVM's pointers are opaque, but each GEP names the struct it steps into: this is what the source's
//! expression was cast to, whatever the pointer came from. And the variable that a pointer was loaded from, or the field, has a
//! declared type in the debug info. Before optimisation every local variable and parameter lives in memory (an `alloca`), so
//! pointers are loaded from there: they are followed to the one value that the function stores, else the declared type counts.

use std::collections::HashMap;

use crashproof_llvm::{Layout, Opcode, Value};
use crashproof_sites::pointer::{Pointer, Type, TypeId};

use super::casts::cast;
use super::types::Types;

/// Chains of pointers in real code are short; this bounds what a generated function can cost.
const MAX_DEPTH: usize = 24;
const MAX_STEPS: u32 = 1000;
const MAX_CALLS: usize = 4;

/// Follows the pointers of one function.
pub(super) struct Walker<'a, 'm> {
    pub layout: Layout<'m>,
    pub types: &'a mut Types<'m>,
    parameters: HashMap<Value<'m>, u32>,
    /// The types of variables, by where they are.
    declared: HashMap<Value<'m>, TypeId>,
    /// What the function stores into each of its local variables.
    stored: HashMap<Value<'m>, Vec<Value<'m>>>,
    known: HashMap<Value<'m>, Pointer>,
    /// Being followed: a loop.
    open: Vec<Value<'m>>,
    /// Steps that following one pointer may yet take.
    budget: u32,
    context: &'a mut Context<'m>,
    /// Calls between the function that is looked at and this one.
    depth: usize,
}

impl<'a, 'm> Walker<'a, 'm> {
    pub(super) fn new(
        function: Value<'m>,
        layout: Layout<'m>,
        types: &'a mut Types<'m>,
        context: &'a mut Context<'m>,
    ) -> Walker<'a, 'm> {
        let mut declared = HashMap::new();
        let mut stored: HashMap<Value<'m>, Vec<Value<'m>>> = HashMap::new();
        for instruction in function.instructions() {
            match instruction.opcode() {
                Some(Opcode::LLVMStore) => {
                    if let Some((value, address)) = instruction.operand(0).zip(instruction.operand(1))
                        && address.opcode() == Some(Opcode::LLVMAlloca)
                    {
                        stored.entry(address).or_default().push(value);
                    }
                }
                Some(Opcode::LLVMCall) => {
                    if let Some((storage, variable)) = instruction.declares() {
                        types.add_root(variable);
                        let ty = types.of(variable.operand(3));
                        declared.entry(storage).or_insert(ty);
                    }
                }
                _ => {}
            }
        }
        Walker {
            layout,
            types,
            parameters: function.parameters().zip(0..).collect(),
            declared,
            stored,
            known: HashMap::new(),
            open: Vec::new(),
            budget: 0,
            context,
            depth: 0,
        }
    }

    pub(super) fn follow(&mut self, value: Value<'m>) -> Pointer {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        if self.open.contains(&value) {
            return Pointer::loop_back();
        }
        if self.open.is_empty() {
            self.budget = MAX_STEPS;
        }
        if self.open.len() >= MAX_DEPTH || self.budget == 0 {
            return Pointer::default();
        }
        self.budget -= 1;
        self.open.push(value);
        let pointer = self.follow_new(value);
        self.open.pop();
        // What was found within a loop may be found more precisely from outside it.
        if self.open.is_empty() {
            self.known.insert(value, pointer.clone());
        }
        pointer
    }

    fn follow_new(&mut self, value: Value<'m>) -> Pointer {
        if let Some(&ty) = self.declared.get(&value) {
            return Pointer::to(ty);
        }
        if let Some(&index) = self.parameters.get(&value) {
            return Pointer {
                argument: Some((index, Some(0))),
                ..Pointer::default()
            };
        }
        if value.is_global_variable() {
            return self.global(value).map_or_else(Pointer::default, Pointer::to);
        }
        match value.opcode() {
            Some(Opcode::LLVMGetElementPtr) => self.element(value),
            Some(Opcode::LLVMBitCast | Opcode::LLVMAddrSpaceCast | Opcode::LLVMFreeze) => self.follow_operand(value, 0),
            Some(Opcode::LLVMIntToPtr) => self.integer(value),
            Some(Opcode::LLVMLoad) => self.load(value),
            Some(Opcode::LLVMPHI) => self.meet(value.incoming().into_iter().map(|(value, _)| value).collect()),
            Some(Opcode::LLVMSelect) => self.meet([1, 2].into_iter().filter_map(|i| value.operand(i)).collect()),
            Some(Opcode::LLVMCall | Opcode::LLVMInvoke) => self.result(value),
            _ => Pointer::default(),
        }
    }

    fn follow_operand(&mut self, value: Value<'m>, index: u32) -> Pointer {
        value
            .operand(index)
            .map_or_else(Pointer::default, |operand| self.follow(operand))
    }

    fn global(&mut self, global: Value<'m>) -> Option<TypeId> {
        let types = &mut *self.types;
        *self.context.globals.entry(global).or_insert_with(|| {
            let variable = global.global_variable()?;
            Some(types.of(variable.operand(3)))
        })
    }

    fn element(&mut self, gep: Value<'m>) -> Pointer {
        let mut pointer = self.follow_operand(gep, 0);
        let Some(mut ty) = gep.source_element() else {
            return pointer;
        };
        pointer = cast(pointer, ty, self.layout, self.types);
        for operand in 1..gep.operand_count() {
            let Some(index) = gep.operand(operand) else {
                return Pointer::default();
            };
            if operand > 1 {
                let member = index.signed().unwrap_or(0) as u32;
                let is_struct = ty.is_struct();
                if is_struct {
                    pointer = cast(pointer, ty, self.layout, self.types);
                    pointer.advance(self.layout.offset_of(ty, member) as i64);
                }
                let Some(part) = ty.element(member) else { return pointer };
                ty = part;
                if is_struct {
                    continue;
                }
            }
            let step = self.layout.size_of(ty);
            match index.signed() {
                Some(constant) => pointer.advance(constant.wrapping_mul(step as i64)),
                None => pointer = pointer.vary(step, &self.types.shapes),
            }
        }
        pointer
    }

    /// (T *)((uintptr_t)p + n)
    fn integer(&mut self, cast: Value<'m>) -> Pointer {
        let mut offset = Some(0i64);
        let mut value = cast.operand(0);
        for _ in 0..MAX_DEPTH {
            let Some(current) = value else { break };
            let constant = |index| current.operand(index).and_then(Value::signed);
            value = match current.opcode() {
                Some(Opcode::LLVMPtrToInt) => {
                    let mut pointer = self.follow_operand(current, 0);
                    match offset {
                        Some(offset) => pointer.advance(offset),
                        None => pointer = pointer.vary(0, &self.types.shapes),
                    }
                    return pointer;
                }
                Some(Opcode::LLVMAdd) => {
                    offset = offset
                        .zip(constant(1))
                        .map(|(offset, constant)| offset.wrapping_add(constant));
                    current.operand(0)
                }
                Some(Opcode::LLVMSub) => {
                    offset = offset
                        .zip(constant(1))
                        .map(|(offset, constant)| offset.wrapping_sub(constant));
                    current.operand(0)
                }
                // Aligning down, tagging and untagging.
                Some(Opcode::LLVMAnd | Opcode::LLVMOr | Opcode::LLVMXor) => current.operand(0),
                _ => None,
            };
        }
        Pointer::default()
    }

    fn load(&mut self, load: Value<'m>) -> Pointer {
        let Some(address) = load.operand(0) else {
            return Pointer::default();
        };
        let declared = match self.declared.get(&address) {
            Some(&variable) => self.types.pointee(variable),
            None => {
                let holder = self.follow(address);
                self.types.shapes.at(&holder).and_then(|ty| self.types.pointee(ty))
            }
        };
        let stored = match self.stored.get(&address) {
            // All loads of a variable are one in this: p++ loads it too.
            Some(_) if self.open.contains(&address) => Pointer::loop_back(),
            Some(values) => {
                let values = values.clone();
                self.open.push(address);
                let met = self.meet(values);
                self.open.pop();
                met
            }
            None => Pointer::default(),
        };
        let Some(declared) = declared.filter(|_| !stored.looped) else {
            return stored;
        };
        match self.types.get(declared) {
            // What flows there is as declared, and says more: where that object lies.
            Type::Composite(_) | Type::Array { .. } if self.types.shapes.is_at(&stored, declared) => stored,
            Type::Composite(_) | Type::Array { .. } => Pointer {
                argument: stored.argument,
                ..Pointer::to(declared)
            },
            _ if stored.is_known() => stored,
            _ => Pointer::to(declared),
        }
    }

    /// What all of the values that can be told point to.
    fn meet(&mut self, values: Vec<Value<'m>>) -> Pointer {
        let mut met: Option<Pointer> = None;
        let mut step = 0;
        for value in values {
            let pointer = self.follow(value);
            // In a loop, p++ or p += n.
            if pointer.looped && pointer.offset != 0 {
                step = pointer.offset.unsigned_abs();
            }
            if !pointer.is_known() {
                continue;
            }
            met = match met {
                None => Some(pointer),
                Some(other) if other == pointer => Some(other),
                // The same type in different places.
                Some(other)
                    if other.object.is_some() && (other.object, other.offset) == (pointer.object, pointer.offset) =>
                {
                    Some(Pointer {
                        object: other.object,
                        offset: other.offset,
                        ..Pointer::default()
                    })
                }
                Some(_) => return Pointer::default(),
            };
        }
        let met = met.unwrap_or_default();
        if step == 0 {
            met
        } else {
            met.vary(step, &self.types.shapes)
        }
    }

    fn result(&mut self, call: Value<'m>) -> Pointer {
        let Some(callee) = call.called_value().filter(|callee| callee.is_function()) else {
            return Pointer::default();
        };
        let name = callee.name();
        let returned = if returns_its_argument(name) {
            Some(0)
        } else {
            crashproof_library::returned_argument(name)
        };
        if let Some(index) = returned.filter(|index| *index < call.argument_count()) {
            return self.follow_operand(call, index);
        }
        let summary = self.returned(callee);
        if summary.looped {
            return summary;
        }
        if let Some((index, Some(offset))) = summary.argument
            && index < call.argument_count()
        {
            let mut passed = self.follow_operand(call, index);
            passed.advance(offset);
            if passed.object.is_some() || summary.object.is_none() {
                return passed;
            }
        }
        if summary
            .object
            .is_some_and(|ty| !matches!(self.types.get(ty), Type::Opaque))
            || summary.outer.is_some()
        {
            return summary.without_arguments();
        }
        let returned = callee
            .subprogram()
            .and_then(|subprogram| subprogram.operand(4)?.operand(3)?.operand(0));
        let Some(returned) = returned else {
            return Pointer::default();
        };
        let ty = self.types.of(Some(returned));
        self.types.pointee(ty).map_or_else(Pointer::default, Pointer::to)
    }

    /// What a function of this module returns, in terms of its own arguments.
    fn returned(&mut self, function: Value<'m>) -> Pointer {
        if let Some(known) = self.context.returned.get(&function) {
            return known.clone();
        }
        if self.depth >= MAX_CALLS {
            return Pointer::default();
        }
        // A recursion returns what its end returns.
        self.context.returned.insert(function, Pointer::loop_back());
        let returns: Vec<Value<'m>> = function
            .instructions()
            .filter(|instruction| instruction.opcode() == Some(Opcode::LLVMRet))
            .filter_map(|instruction| instruction.operand(0))
            .filter(|value| value.is_pointer())
            .collect();
        let mut pointer = Pointer::default();
        if !returns.is_empty() {
            let mut walker = Walker::new(function, self.layout, self.types, self.context);
            walker.depth = self.depth + 1;
            walker.budget = MAX_STEPS;
            // Not as a start of its own: the steps are counted together.
            walker.open.push(function);
            pointer = walker.meet(returns);
            pointer.looped = false;
        }
        self.context.returned.insert(function, pointer.clone());
        pointer
    }
}

/// What the functions of a module have in common.
#[derive(Default)]
pub(super) struct Context<'m> {
    /// The types of global variables.
    globals: HashMap<Value<'m>, Option<TypeId>>,
    returned: HashMap<Value<'m>, Pointer>,
}

/// Whether an intrinsic returns the pointer that it is given, or one to the same object.
pub(crate) fn returns_its_argument(name: &str) -> bool {
    const MARKERS: [&str; 6] = [
        "llvm.launder.invariant.group",
        "llvm.strip.invariant.group",
        "llvm.ptr.annotation",
        "llvm.threadlocal.address",
        "llvm.ptrmask",
        "llvm.preserve.",
    ];
    MARKERS.iter().any(|known| name.starts_with(known))
}
