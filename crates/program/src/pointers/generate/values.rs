//! The variables of values: instructions, parameters and constants.

use crashproof_llvm::{Opcode, Value, ValueKind};

use super::Generator;
use crate::pointers::constraints::{Constraint, Variable};
use crate::pointers::offsets::Shift;

impl<'m> Generator<'m> {
    /// The variable of a value; `None` if it cannot point anywhere: null, a number, too narrow.
    pub(super) fn value(&mut self, value: Value<'m>) -> Option<Variable> {
        let is_own = value.is_instruction() || value.is_parameter();
        let known = match self.frames.last() {
            Some(frame) if is_own => frame.values.get(&value),
            _ => self.values.get(&value),
        };
        if let Some(known) = known {
            return *known;
        }
        let variable = match value.kind() {
            _ if !self.is_carrier(value.ty()) => None,
            ValueKind::LLVMArgumentValueKind => Some(self.constraints.variable()),
            ValueKind::LLVMInstructionValueKind => self.result(value),
            _ => self.constant(value),
        };
        match self.frames.last_mut() {
            Some(frame) if is_own => _ = frame.values.insert(value, variable),
            _ => _ = self.values.insert(value, variable),
        }
        variable
    }

    /// The variable of an instruction: another's, if it only passes it on. Its constraints come when it is met in the function.
    fn result(&mut self, instruction: Value<'m>) -> Option<Variable> {
        match instruction.opcode() {
            Some(
                Opcode::LLVMBitCast
                | Opcode::LLVMAddrSpaceCast
                | Opcode::LLVMFreeze
                | Opcode::LLVMPtrToInt
                | Opcode::LLVMTrunc
                | Opcode::LLVMZExt
                | Opcode::LLVMExtractValue
                | Opcode::LLVMExtractElement,
            ) => self.value(instruction.operand_at(0)),
            Some(Opcode::LLVMLoad) => {
                let pointer = instruction.operand_at(0);
                match self.is_local(pointer) {
                    true => Some(self.local(pointer)),
                    false => Some(self.constraints.variable()),
                }
            }
            Some(Opcode::LLVMGetElementPtr) => self.element(instruction),
            _ => Some(self.constraints.variable()),
        }
    }

    fn constant(&mut self, constant: Value<'m>) -> Option<Variable> {
        match constant.kind() {
            ValueKind::LLVMFunctionValueKind | ValueKind::LLVMGlobalVariableValueKind => {
                if constant.is_function() {
                    self.declare(constant);
                }
                let object = self.global_object(constant);
                let variable = self.constraints.variable();
                self.constraints.address(variable, object);
                Some(variable)
            }
            ValueKind::LLVMGlobalAliasValueKind => self.value(constant.unaliased()),
            // Chosen when the program is loaded.
            ValueKind::LLVMGlobalIFuncValueKind => Some(self.unknown()),
            ValueKind::LLVMConstantExprValueKind => match constant.opcode()? {
                Opcode::LLVMGetElementPtr => self.element(constant),
                opcode @ (Opcode::LLVMAdd | Opcode::LLVMSub | Opcode::LLVMXor) => {
                    let variable = self.constraints.variable();
                    self.arithmetic(constant, opcode, variable);
                    Some(variable)
                }
                // Casts.
                _ => self.value(constant.operand_at(0)),
            },
            ValueKind::LLVMConstantStructValueKind
            | ValueKind::LLVMConstantArrayValueKind
            | ValueKind::LLVMConstantVectorValueKind => {
                let parts: Vec<Variable> = (0..constant.operand_count())
                    .filter_map(|index| self.value(constant.operand_at(index)))
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

    /// An address computation, as an instruction or a constant.
    fn element(&mut self, computation: Value<'m>) -> Option<Variable> {
        let mut pointer = self.value(computation.operand_at(0))?;
        let mut ty = computation.source_element()?;
        let mut constant: i64 = 0;
        let mut moves = Vec::new();
        for at in 1..computation.operand_count() {
            let number = computation.operand_at(at).signed();
            let mut count = None;
            if at > 1 {
                let member = number.filter(|_| ty.is_struct()).unwrap_or(0) as u32;
                let part = ty.element(member)?;
                if ty.is_struct() {
                    constant += self.layout.offset_of(ty, member) as i64;
                    ty = part;
                    continue;
                }
                count = Some(u32::try_from(ty.length()).unwrap_or(u32::MAX));
                ty = part;
            }
            let step = self.size_of(ty);
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
        }
        if constant != 0 {
            pointer = self.constraints.shifted(pointer, Shift::By(constant));
        }
        for shift in moves {
            pointer = self.constraints.shifted(pointer, shift);
        }
        Some(pointer)
    }

    /// Arithmetic on an address that is held as an integer.
    pub(super) fn arithmetic(&mut self, operation: Value<'m>, opcode: Opcode, to: Variable) {
        let [left, right] = [0, 1].map(|operand| operation.operand_at(operand));
        let numbers = [left, right].map(Value::signed);
        let shift = |generator: &mut Self, from: Value<'m>, shift: Shift| {
            if let Some(from) = generator.value(from) {
                generator.constraints.push(Constraint::Shift { to, from, shift });
            }
        };
        match (opcode, numbers) {
            (Opcode::LLVMAdd, [None, Some(number)]) => shift(self, left, Shift::By(number)),
            (Opcode::LLVMAdd, [Some(number), None]) => shift(self, right, Shift::By(number)),
            (Opcode::LLVMSub, [None, Some(number)]) => shift(self, left, Shift::By(number.saturating_neg())),
            // A distance between two pointers is none.
            (Opcode::LLVMSub, _) if is_address(left) && is_address(right) => {}
            (Opcode::LLVMSub, _) => shift(self, left, Shift::Steps(1)),
            _ => [left, right]
                .into_iter()
                .for_each(|operand| shift(self, operand, Shift::Steps(1))),
        }
    }

    /// Whether a pointer is a local variable that is only ever loaded and stored.
    pub(super) fn is_local(&mut self, pointer: Value<'m>) -> bool {
        if let Some(known) = self.locals.get(&pointer) {
            return *known;
        }
        let is_access = |user: Value<'m>| match user.opcode() {
            Some(Opcode::LLVMLoad) => true,
            Some(Opcode::LLVMStore) => user.operand(0) != Some(pointer),
            Some(Opcode::LLVMCall) => is_marker(user),
            _ => false,
        };
        let is_local = pointer.is_alloca() && pointer.users().into_iter().all(is_access);
        self.locals.insert(pointer, is_local);
        is_local
    }

    /// The variable of what a local variable holds.
    pub(super) fn local(&mut self, pointer: Value<'m>) -> Variable {
        let constraints = &mut self.constraints;
        let contents = self
            .frames
            .last_mut()
            .map_or(&mut self.contents, |frame| &mut frame.contents);
        *contents.entry(pointer).or_insert_with(|| constraints.variable())
    }
}

/// Begin or end of a variable's life, or debug information.
fn is_marker(call: Value) -> bool {
    call.is_debug_intrinsic()
        || call
            .called_function()
            .is_some_and(|callee| callee.name().starts_with("llvm.lifetime."))
}

fn is_address(value: Value) -> bool {
    value.opcode() == Some(Opcode::LLVMPtrToInt)
}
