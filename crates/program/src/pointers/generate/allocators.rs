//! Heap cloning: functions that return memory that they allocate are taken as if they stood at each place that calls them.
//!
//! Without it, all that a program allocates through a function of its own (`zmalloc`, `new_node`) would be one object. (Nystrom, Kim and Hwu, PASTE
//! 2004, on why that matters most of all contexts.) A call of such a function gets constraints of its own for the function's body, so whichever
//! functions are chosen, nothing is lost. Chosen are those that return nothing but what an allocator gave them, up to a size; functions that call
//! themselves are not.

use crashproof_llvm::{Opcode, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Generator;
use super::externals::is_allocator;
use crate::pointers::constraints::{Function, Variable};

/// Instructions of a function and of all that is cloned with it.
const LARGEST: usize = 300;

/// Instructions of all clones of a program: as many as it has itself, but at least this.
const LEAST_BUDGET: usize = 100_000;

/// A function that is taken as if it stood at a call.
pub(super) struct Frame<'m> {
    pub function: Value<'m>,
    pub record: Function,
    /// As the generator's, of the function's own values.
    pub values: FxHashMap<Value<'m>, Option<Variable>>,
    pub contents: FxHashMap<Value<'m>, Variable>,
    /// The arguments that are known numbers.
    pub numbers: Vec<Option<i64>>,
}

/// Which functions are cloned, and how many instructions that costs each time.
#[derive(Default)]
pub(super) struct Allocators<'m> {
    cost: FxHashMap<Value<'m>, usize>,
    budget: usize,
}

impl<'m> Generator<'m> {
    pub(super) fn find_allocators(&mut self, functions: &[Value<'m>]) {
        let with_body = functions.iter().copied().filter(|function| !function.is_declaration());
        let mut others: Vec<Value<'m>> = with_body.collect();
        let sizes: FxHashMap<Value<'m>, usize> = others
            .iter()
            .map(|function| (*function, function.instructions().count()))
            .collect();
        others.retain(|function| {
            let returned = function.value_type().and_then(Type::returned);
            returned.is_some_and(Type::is_pointer) && sizes[function] <= LARGEST
        });
        let mut found: FxHashSet<Value<'m>> = FxHashSet::default();
        loop {
            let before = found.len();
            let new: Vec<Value<'m>> = others
                .iter()
                .copied()
                .filter(|function| returns_new_memory(*function, &found))
                .collect();
            found.extend(new);
            others.retain(|function| !found.contains(function));
            if found.len() == before {
                break;
            }
        }
        let mut costs = Costs {
            sizes: &sizes,
            known: FxHashMap::default(),
            found: &found,
        };
        for function in &found {
            costs.of(*function, 0);
        }
        let affordable = costs
            .known
            .into_iter()
            .filter_map(|(function, cost)| Some((function, cost?)));
        self.allocators = Allocators {
            cost: affordable.filter(|(_, cost)| *cost <= LARGEST).collect(),
            budget: LEAST_BUDGET.max(sizes.values().sum()),
        };
    }

    /// The parameters and the result of the function as it stands at this call, if it is cloned.
    pub(super) fn clone_at(&mut self, callee: Value<'m>, operands: &[Value<'m>]) -> Option<Function> {
        let cost = *self.allocators.cost.get(&callee)?;
        // What is cloned is paid for by the outermost of the functions.
        if self.frames.is_empty() {
            self.allocators.budget = self.allocators.budget.checked_sub(cost)?;
        }
        let numbers = operands.iter().map(|operand| self.number(*operand, 0)).collect();
        self.frames.push(Frame {
            function: callee,
            record: Function::default(),
            values: FxHashMap::default(),
            contents: FxHashMap::default(),
            numbers,
        });
        let record = self.record(callee);
        if let Some(frame) = self.frames.last_mut() {
            frame.record = record.clone();
        }
        self.body(callee);
        let frame = self.frames.pop()?;
        for (value, variable) in frame.values {
            if let Some(variable) = variable {
                self.clones.entry(value).or_default().push(variable);
            }
        }
        Some(record)
    }

    /// A number that a value may well be: the largest, of several. Says how large memory is, on which nothing but precision depends.
    pub(super) fn number(&mut self, value: Value<'m>, depth: usize) -> Option<i64> {
        const DEEPEST: usize = 8;
        if let Some(number) = value.signed() {
            return Some(number);
        }
        if let Some((function, index)) = value.as_parameter() {
            let frame = self.frames.last().filter(|frame| frame.function == function)?;
            return frame.numbers.get(index as usize).copied()?;
        }
        if !value.is_instruction() || depth > DEEPEST {
            return None;
        }
        let operand = |index| value.operand_at(index);
        match value.opcode()? {
            Opcode::LLVMLoad if self.is_local(operand(0)) => {
                let stored = stored_to(operand(0));
                stored
                    .into_iter()
                    .filter_map(|value| self.number(value, depth + 1))
                    .max()
            }
            Opcode::LLVMPHI => value
                .incoming()
                .into_iter()
                .filter_map(|(value, _)| self.number(value, depth + 1))
                .max(),
            Opcode::LLVMZExt | Opcode::LLVMSExt | Opcode::LLVMTrunc => self.number(operand(0), depth + 1),
            Opcode::LLVMAdd => self
                .number(operand(0), depth + 1)?
                .checked_add(self.number(operand(1), depth + 1)?),
            Opcode::LLVMMul => self
                .number(operand(0), depth + 1)?
                .checked_mul(self.number(operand(1), depth + 1)?),
            _ => None,
        }
    }
}

struct Costs<'a, 'm> {
    sizes: &'a FxHashMap<Value<'m>, usize>,
    /// `None`: calls itself, or it is not known yet whether it does.
    known: FxHashMap<Value<'m>, Option<usize>>,
    found: &'a FxHashSet<Value<'m>>,
}

impl<'m> Costs<'_, 'm> {
    fn of(&mut self, function: Value<'m>, depth: usize) -> Option<usize> {
        /// Of calls of allocators by allocators.
        const DEEPEST: usize = 40;
        if let Some(known) = self.known.get(&function) {
            return *known;
        }
        if depth > DEEPEST {
            return None;
        }
        self.known.insert(function, None);
        let mut cost = self.sizes[&function];
        for callee in function.instructions().filter_map(callee) {
            if !self.found.contains(&callee) {
                continue;
            }
            match self.of(callee, depth + 1) {
                // One that is too large stays as it is.
                Some(more) if more <= LARGEST => cost += more,
                Some(_) => {}
                None => return None,
            }
        }
        self.known.insert(function, Some(cost));
        Some(cost)
    }
}

/// The function that an instruction calls directly, by its own name.
fn callee(instruction: Value) -> Option<Value> {
    let is_call = instruction.opcode() != Some(Opcode::LLVMCallBr);
    instruction
        .called_value()
        .filter(|callee| is_call && callee.is_function())
}

/// Whether all that the function returns is null, or what an allocator or one of `known` returned to it.
fn returns_new_memory<'m>(function: Value<'m>, known: &FxHashSet<Value<'m>>) -> bool {
    let returns = function
        .instructions()
        .filter(|instruction| instruction.opcode() == Some(Opcode::LLVMRet));
    let mut pending: Vec<Value> = returns.filter_map(|instruction| instruction.operand(0)).collect();
    let mut seen = FxHashSet::default();
    let mut is_found = false;
    while let Some(value) = pending.pop() {
        if !seen.insert(value) || value.is_null() || value.is_undefined() {
            continue;
        }
        if !value.is_instruction() {
            return false;
        }
        let operand = |index| value.operand_at(index);
        match value.opcode() {
            Some(Opcode::LLVMCall | Opcode::LLVMInvoke) => {
                let is_new = |callee: Value<'m>| {
                    known.contains(&callee) || callee.is_declaration() && is_allocator(callee.name())
                };
                if !callee(value).is_some_and(is_new) {
                    return false;
                }
                is_found = true;
            }
            Some(Opcode::LLVMLoad) if operand(0).is_alloca() => pending.extend(stored_to(operand(0))),
            Some(Opcode::LLVMPHI) => pending.extend(value.incoming().into_iter().map(|(value, _)| value)),
            Some(Opcode::LLVMSelect) => pending.extend([operand(1), operand(2)]),
            Some(
                Opcode::LLVMGetElementPtr
                | Opcode::LLVMBitCast
                | Opcode::LLVMPtrToInt
                | Opcode::LLVMIntToPtr
                | Opcode::LLVMAdd
                | Opcode::LLVMSub
                | Opcode::LLVMAnd,
            ) => pending.push(operand(0)),
            _ => return false,
        }
    }
    is_found
}

/// What is stored to a local variable.
fn stored_to(variable: Value<'_>) -> Vec<Value<'_>> {
    let users = variable.users().into_iter();
    users
        .filter(|user| user.opcode() == Some(Opcode::LLVMStore) && user.operand(1) == Some(variable))
        .filter_map(|user| user.operand(0))
        .collect()
}
