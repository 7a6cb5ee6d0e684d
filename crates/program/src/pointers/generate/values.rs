//! The variables of values: instructions, parameters and constants.

use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMTypeRef, LLVMValueRef};
use llvm_sys::target::LLVMOffsetOfElement;
use llvm_sys::{LLVMOpcode, LLVMTypeKind, LLVMValueKind};

use super::Generator;
use crate::pointers::constraints::{Constraint, Variable};
use crate::pointers::offsets::Shift;

impl Generator {
    /// The variable of a value; `None` if it cannot point anywhere: null, a number, too narrow.
    pub(super) unsafe fn value(&mut self, value: LLVMValueRef) -> Option<Variable> {
        // SAFETY: a live value.
        let is_own = unsafe { !LLVMIsAInstruction(value).is_null() || !LLVMIsAArgument(value).is_null() };
        let known = match self.frames.last() {
            Some(frame) if is_own => frame.values.get(&value),
            _ => self.values.get(&value),
        };
        if let Some(known) = known {
            return *known;
        }
        // SAFETY: a live value.
        let variable = unsafe {
            match LLVMGetValueKind(value) {
                _ if !self.is_carrier(LLVMTypeOf(value)) => None,
                LLVMValueKind::LLVMArgumentValueKind => Some(self.constraints.variable()),
                LLVMValueKind::LLVMInstructionValueKind => self.result(value),
                _ => self.constant(value),
            }
        };
        match self.frames.last_mut() {
            Some(frame) if is_own => _ = frame.values.insert(value, variable),
            _ => _ = self.values.insert(value, variable),
        }
        variable
    }

    /// The variable of an instruction: another's, if it only passes it on. Its constraints come when it is met in the function.
    unsafe fn result(&mut self, instruction: LLVMValueRef) -> Option<Variable> {
        // SAFETY: an instruction; operands by what its opcode says.
        unsafe {
            match LLVMGetInstructionOpcode(instruction) {
                LLVMOpcode::LLVMBitCast
                | LLVMOpcode::LLVMAddrSpaceCast
                | LLVMOpcode::LLVMFreeze
                | LLVMOpcode::LLVMPtrToInt
                | LLVMOpcode::LLVMTrunc
                | LLVMOpcode::LLVMZExt
                | LLVMOpcode::LLVMExtractValue
                | LLVMOpcode::LLVMExtractElement => self.value(LLVMGetOperand(instruction, 0)),
                LLVMOpcode::LLVMLoad => {
                    let pointer = LLVMGetOperand(instruction, 0);
                    match self.is_local(pointer) {
                        true => Some(self.local(pointer)),
                        false => Some(self.constraints.variable()),
                    }
                }
                LLVMOpcode::LLVMGetElementPtr => self.element(instruction),
                _ => Some(self.constraints.variable()),
            }
        }
    }

    unsafe fn constant(&mut self, constant: LLVMValueRef) -> Option<Variable> {
        // SAFETY: a constant; operands by what its kind and opcode say.
        unsafe {
            match LLVMGetValueKind(constant) {
                LLVMValueKind::LLVMFunctionValueKind => {
                    self.declare(constant);
                    let object = self.global_object(constant);
                    let variable = self.constraints.variable();
                    self.constraints.address(variable, object);
                    Some(variable)
                }
                LLVMValueKind::LLVMGlobalVariableValueKind => {
                    let object = self.global_object(constant);
                    let variable = self.constraints.variable();
                    self.constraints.address(variable, object);
                    Some(variable)
                }
                LLVMValueKind::LLVMGlobalAliasValueKind => self.value(LLVMAliasGetAliasee(constant)),
                // Chosen when the program is loaded.
                LLVMValueKind::LLVMGlobalIFuncValueKind => Some(self.unknown()),
                LLVMValueKind::LLVMConstantExprValueKind => match LLVMGetConstOpcode(constant) {
                    LLVMOpcode::LLVMGetElementPtr => self.element(constant),
                    LLVMOpcode::LLVMAdd | LLVMOpcode::LLVMSub | LLVMOpcode::LLVMXor => {
                        let variable = self.constraints.variable();
                        self.arithmetic(constant, LLVMGetConstOpcode(constant), variable);
                        Some(variable)
                    }
                    // Casts.
                    _ => self.value(LLVMGetOperand(constant, 0)),
                },
                LLVMValueKind::LLVMConstantStructValueKind
                | LLVMValueKind::LLVMConstantArrayValueKind
                | LLVMValueKind::LLVMConstantVectorValueKind => {
                    let parts: Vec<Variable> = (0..LLVMGetNumOperands(constant) as u32)
                        .filter_map(|index| self.value(LLVMGetOperand(constant, index)))
                        .collect();
                    if parts.is_empty() {
                        return None;
                    }
                    let variable = self.constraints.variable();
                    parts.into_iter().for_each(|part| self.constraints.copy(variable, part));
                    Some(variable)
                }
                // Null, undefined, numbers, the address of a block.
                _ => None,
            }
        }
    }

    /// An address computation, as an instruction or a constant.
    unsafe fn element(&mut self, computation: LLVMValueRef) -> Option<Variable> {
        // SAFETY: a getelementptr; indices into structs are constant, LLVM's verifier sees to that.
        unsafe {
            let mut pointer = self.value(LLVMGetOperand(computation, 0))?;
            let mut ty = LLVMGetGEPSourceElementType(computation);
            let mut constant: i64 = 0;
            let mut moves = Vec::new();
            for at in 1..LLVMGetNumOperands(computation) as u32 {
                let index = LLVMGetOperand(computation, at);
                let number = constant_number(index);
                let (element, count) = match (at, LLVMGetTypeKind(ty)) {
                    (1, _) => (ty, None),
                    (_, LLVMTypeKind::LLVMStructTypeKind) => {
                        let field = number.unwrap_or(0) as u32;
                        constant += LLVMOffsetOfElement(self.layout, ty, field) as i64;
                        ty = LLVMStructGetTypeAtIndex(ty, field);
                        continue;
                    }
                    _ => (LLVMGetElementType(ty), Some(length(ty))),
                };
                let step = self.size_of(element);
                match (number, count) {
                    (Some(number), _) => constant = constant.saturating_add(number.saturating_mul(i64::from(step))),
                    (None, _) if step == 0 => {}
                    (None, None) => moves.push(Shift::Steps(step)),
                    // An array of no or one element at the end of a struct is one of any length.
                    (None, Some(count)) => moves.push(Shift::Index {
                        step,
                        count: (count > 1).then_some(count),
                    }),
                }
                ty = element;
            }
            if constant != 0 {
                pointer = self.constraints.shifted(pointer, Shift::By(constant));
            }
            for shift in moves {
                pointer = self.constraints.shifted(pointer, shift);
            }
            Some(pointer)
        }
    }

    /// Arithmetic on an address that is held as an integer.
    pub(super) unsafe fn arithmetic(&mut self, operation: LLVMValueRef, opcode: LLVMOpcode, to: Variable) {
        // SAFETY: an operation of two operands.
        unsafe {
            let [left, right] = [0, 1].map(|operand| LLVMGetOperand(operation, operand));
            let numbers = [left, right].map(|operand| constant_number(operand));
            let shift = |generator: &mut Generator, from: LLVMValueRef, shift: Shift| {
                if let Some(from) = generator.value(from) {
                    generator.constraints.push(Constraint::Shift { to, from, shift });
                }
            };
            match (opcode, numbers) {
                (LLVMOpcode::LLVMAdd, [None, Some(number)]) => shift(self, left, Shift::By(number)),
                (LLVMOpcode::LLVMAdd, [Some(number), None]) => shift(self, right, Shift::By(number)),
                (LLVMOpcode::LLVMSub, [None, Some(number)]) => shift(self, left, Shift::By(number.saturating_neg())),
                // A distance between two pointers is none.
                (LLVMOpcode::LLVMSub, _) if is_address(left) && is_address(right) => {}
                (LLVMOpcode::LLVMSub, _) => shift(self, left, Shift::Steps(1)),
                _ => [left, right]
                    .into_iter()
                    .for_each(|operand| shift(self, operand, Shift::Steps(1))),
            }
        }
    }

    /// Whether a pointer is a local variable that is only ever loaded and stored.
    pub(super) unsafe fn is_local(&mut self, pointer: LLVMValueRef) -> bool {
        if let Some(known) = self.locals.get(&pointer) {
            return *known;
        }
        // SAFETY: a live value and its users.
        let is_local = unsafe {
            !LLVMIsAAllocaInst(pointer).is_null() && {
                let first = LLVMGetFirstUse(pointer);
                let mut uses = std::iter::successors((!first.is_null()).then_some(first), |used| {
                    let next = LLVMGetNextUse(*used);
                    (!next.is_null()).then_some(next)
                });
                uses.all(|used| {
                    let user = LLVMGetUser(used);
                    match LLVMGetInstructionOpcode(user) {
                        LLVMOpcode::LLVMLoad => true,
                        LLVMOpcode::LLVMStore => LLVMGetOperand(user, 0) != pointer,
                        LLVMOpcode::LLVMCall => is_marker(user),
                        _ => false,
                    }
                })
            }
        };
        self.locals.insert(pointer, is_local);
        is_local
    }

    /// The variable of what a local variable holds.
    pub(super) fn local(&mut self, pointer: LLVMValueRef) -> Variable {
        let constraints = &mut self.constraints;
        let contents = self
            .frames
            .last_mut()
            .map_or(&mut self.contents, |frame| &mut frame.contents);
        *contents.entry(pointer).or_insert_with(|| constraints.variable())
    }
}

unsafe fn length(array: LLVMTypeRef) -> u32 {
    // SAFETY: an array or vector.
    unsafe {
        match LLVMGetTypeKind(array) {
            LLVMTypeKind::LLVMArrayTypeKind => u32::try_from(LLVMGetArrayLength2(array)).unwrap_or(u32::MAX),
            _ => LLVMGetVectorSize(array),
        }
    }
}

/// Begin or end of a variable's life, or debug information.
unsafe fn is_marker(call: LLVMValueRef) -> bool {
    // SAFETY: a call.
    unsafe {
        let callee = LLVMGetCalledValue(call);
        LLVMGetValueKind(callee) == LLVMValueKind::LLVMFunctionValueKind && {
            let name = super::name(callee);
            name.starts_with("llvm.lifetime.") || name.starts_with("llvm.dbg.")
        }
    }
}

unsafe fn is_address(value: LLVMValueRef) -> bool {
    // SAFETY: a live value.
    unsafe {
        match LLVMGetValueKind(value) {
            LLVMValueKind::LLVMInstructionValueKind => LLVMGetInstructionOpcode(value) == LLVMOpcode::LLVMPtrToInt,
            LLVMValueKind::LLVMConstantExprValueKind => LLVMGetConstOpcode(value) == LLVMOpcode::LLVMPtrToInt,
            _ => false,
        }
    }
}

pub(super) unsafe fn constant_number(value: LLVMValueRef) -> Option<i64> {
    // SAFETY: a live value.
    unsafe {
        let is_number = LLVMGetValueKind(value) == LLVMValueKind::LLVMConstantIntValueKind
            && LLVMGetIntTypeWidth(LLVMTypeOf(value)) <= 64;
        is_number.then(|| LLVMConstIntGetSExtValue(value))
    }
}
