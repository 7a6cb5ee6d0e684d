//! Heap cloning: functions that return memory that they allocate are taken as if they stood at each place that calls them.
//!
//! Without it, all that a program allocates through a function of its own (`zmalloc`, `new_node`) would be one object. (Nystrom, Kim and Hwu, PASTE
//! 2004, on why that matters most of all contexts.) A call of such a function gets constraints of its own for the function's body, so whichever
//! functions are chosen, nothing is lost. Chosen are those that return nothing but what an allocator gave them, up to a size; functions that call
//! themselves are not.

use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMValueRef;
use rustc_hash::{FxHashMap, FxHashSet};

use super::externals::is_allocator;
use super::values::constant_number;
use super::{Generator, blocks, instructions, name};
use crate::pointers::constraints::{Function, Variable};

/// Instructions of a function and of all that is cloned with it.
const LARGEST: usize = 300;

/// Instructions of all clones of a program: as many as it has itself, but at least this.
const LEAST_BUDGET: usize = 100_000;

/// A function that is taken as if it stood at a call.
pub(super) struct Frame {
    pub function: LLVMValueRef,
    pub record: Function,
    /// As the generator's, of the function's own values.
    pub values: FxHashMap<LLVMValueRef, Option<Variable>>,
    pub contents: FxHashMap<LLVMValueRef, Variable>,
    /// The arguments that are known numbers.
    pub numbers: Vec<Option<i64>>,
}

/// Which functions are cloned, and how many instructions that costs each time.
#[derive(Default)]
pub(super) struct Allocators {
    cost: FxHashMap<LLVMValueRef, usize>,
    budget: usize,
}

impl Generator {
    pub(super) unsafe fn find_allocators(&mut self, functions: &[LLVMValueRef]) {
        // SAFETY: functions of the module, here and below.
        unsafe {
            let with_body = functions
                .iter()
                .copied()
                .filter(|function| LLVMIsDeclaration(*function) == 0);
            let mut others: Vec<LLVMValueRef> = with_body.collect();
            let sizes: FxHashMap<LLVMValueRef, usize> = others
                .iter()
                .map(|function| (*function, blocks(*function).flat_map(instructions).count()))
                .collect();
            others.retain(|function| {
                let returned = LLVMGetReturnType(LLVMGlobalGetValueType(*function));
                LLVMGetTypeKind(returned) == llvm_sys::LLVMTypeKind::LLVMPointerTypeKind && sizes[function] <= LARGEST
            });
            let mut found: FxHashSet<LLVMValueRef> = FxHashSet::default();
            loop {
                let before = found.len();
                let new: Vec<LLVMValueRef> = others
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
    }

    /// The parameters and the result of the function as it stands at this call, if it is cloned.
    pub(super) unsafe fn clone_at(&mut self, callee: LLVMValueRef, operands: &[LLVMValueRef]) -> Option<Function> {
        let cost = *self.allocators.cost.get(&callee)?;
        // What is cloned is paid for by the outermost of the functions.
        if self.frames.is_empty() {
            self.allocators.budget = self.allocators.budget.checked_sub(cost)?;
        }
        // SAFETY: a function with a body, and what it is called with.
        unsafe {
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
    }

    /// A number that a value may well be: the largest, of several. Says how large memory is, on which nothing but precision depends.
    pub(super) unsafe fn number(&mut self, value: LLVMValueRef, depth: usize) -> Option<i64> {
        const DEEPEST: usize = 8;
        // SAFETY: a live value; operands by what its opcode says.
        unsafe {
            if let Some(number) = constant_number(value) {
                return Some(number);
            }
            if !LLVMIsAArgument(value).is_null() {
                let frame = self.frames.last()?;
                let mut numbers = frame.numbers.iter().enumerate();
                return numbers.find_map(|(index, number)| {
                    (LLVMGetParam(frame.function, index as u32) == value).then_some(*number)?
                });
            }
            if LLVMIsAInstruction(value).is_null() || depth > DEEPEST {
                return None;
            }
            let operand = |index| LLVMGetOperand(value, index);
            match LLVMGetInstructionOpcode(value) {
                LLVMOpcode::LLVMLoad if self.is_local(operand(0)) => {
                    let stored = stored_to(operand(0));
                    stored
                        .into_iter()
                        .filter_map(|value| self.number(value, depth + 1))
                        .max()
                }
                LLVMOpcode::LLVMPHI => (0..LLVMCountIncoming(value))
                    .filter_map(|index| self.number(LLVMGetIncomingValue(value, index), depth + 1))
                    .max(),
                LLVMOpcode::LLVMZExt | LLVMOpcode::LLVMSExt | LLVMOpcode::LLVMTrunc => {
                    self.number(operand(0), depth + 1)
                }
                LLVMOpcode::LLVMAdd => self
                    .number(operand(0), depth + 1)?
                    .checked_add(self.number(operand(1), depth + 1)?),
                LLVMOpcode::LLVMMul => self
                    .number(operand(0), depth + 1)?
                    .checked_mul(self.number(operand(1), depth + 1)?),
                _ => None,
            }
        }
    }
}

struct Costs<'a> {
    sizes: &'a FxHashMap<LLVMValueRef, usize>,
    /// `None`: calls itself, or it is not known yet whether it does.
    known: FxHashMap<LLVMValueRef, Option<usize>>,
    found: &'a FxHashSet<LLVMValueRef>,
}

impl Costs<'_> {
    unsafe fn of(&mut self, function: LLVMValueRef, depth: usize) -> Option<usize> {
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
        // SAFETY: a function with a body.
        for callee in unsafe { direct_callees(function) } {
            if !self.found.contains(&callee) {
                continue;
            }
            // SAFETY: as above.
            match unsafe { self.of(callee, depth + 1) } {
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

unsafe fn direct_callees(function: LLVMValueRef) -> Vec<LLVMValueRef> {
    // SAFETY: a function with a body.
    unsafe {
        let calls = blocks(function)
            .flat_map(instructions)
            .filter_map(|instruction| callee(instruction));
        calls.collect()
    }
}

/// The function that an instruction calls directly.
unsafe fn callee(instruction: LLVMValueRef) -> Option<LLVMValueRef> {
    // SAFETY: an instruction.
    unsafe {
        match LLVMGetInstructionOpcode(instruction) {
            LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke => {
                let callee = LLVMGetCalledValue(instruction);
                (!LLVMIsAFunction(callee).is_null()).then_some(callee)
            }
            _ => None,
        }
    }
}

/// Whether all that the function returns is null, or what an allocator or one of `known` returned to it.
unsafe fn returns_new_memory(function: LLVMValueRef, known: &FxHashSet<LLVMValueRef>) -> bool {
    // SAFETY: a function with a body; operands by what opcodes say.
    unsafe {
        let returns = blocks(function)
            .flat_map(instructions)
            .filter(|instruction| LLVMGetInstructionOpcode(*instruction) == LLVMOpcode::LLVMRet);
        let mut pending: Vec<LLVMValueRef> = returns.map(|instruction| LLVMGetOperand(instruction, 0)).collect();
        let mut seen = FxHashSet::default();
        let mut is_found = false;
        while let Some(value) = pending.pop() {
            if !seen.insert(value) || LLVMIsNull(value) != 0 || LLVMIsUndef(value) != 0 {
                continue;
            }
            if LLVMIsAInstruction(value).is_null() {
                return false;
            }
            let operand = |index| LLVMGetOperand(value, index);
            match LLVMGetInstructionOpcode(value) {
                LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke => {
                    let is_new = |callee| {
                        known.contains(&callee) || LLVMIsDeclaration(callee) != 0 && is_allocator(&name(callee))
                    };
                    if !callee(value).is_some_and(is_new) {
                        return false;
                    }
                    is_found = true;
                }
                LLVMOpcode::LLVMLoad if !LLVMIsAAllocaInst(operand(0)).is_null() => {
                    pending.extend(stored_to(operand(0)))
                }
                LLVMOpcode::LLVMPHI => {
                    pending.extend((0..LLVMCountIncoming(value)).map(|index| LLVMGetIncomingValue(value, index)));
                }
                LLVMOpcode::LLVMSelect => pending.extend([operand(1), operand(2)]),
                LLVMOpcode::LLVMGetElementPtr
                | LLVMOpcode::LLVMBitCast
                | LLVMOpcode::LLVMPtrToInt
                | LLVMOpcode::LLVMIntToPtr
                | LLVMOpcode::LLVMAdd
                | LLVMOpcode::LLVMSub
                | LLVMOpcode::LLVMAnd => pending.push(operand(0)),
                _ => return false,
            }
        }
        is_found
    }
}

/// What is stored to a local variable.
unsafe fn stored_to(variable: LLVMValueRef) -> Vec<LLVMValueRef> {
    // SAFETY: an alloca and its users.
    unsafe {
        let first = LLVMGetFirstUse(variable);
        let uses = std::iter::successors((!first.is_null()).then_some(first), |used| {
            let next = LLVMGetNextUse(*used);
            (!next.is_null()).then_some(next)
        });
        let users = uses.map(|used| LLVMGetUser(used));
        users
            .filter(|user| !LLVMIsAStoreInst(*user).is_null() && LLVMGetOperand(*user, 1) == variable)
            .map(|user| LLVMGetOperand(user, 0))
            .collect()
    }
}
