//! The constraints of instructions.

use crashproof_llvm::{AtomicOperation, Opcode, Value};

use super::{Generator, UNKNOWN_SIZE};
use crate::pointers::ObjectKind;
use crate::pointers::constraints::{Constraint, Variable};
use crate::pointers::offsets::Shift;

impl<'m> Generator<'m> {
    pub(super) fn instruction(&mut self, function: Value<'m>, instruction: Value<'m>) {
        let operand = |index| instruction.operand_at(index);
        let Some(opcode) = instruction.opcode() else { return };
        match opcode {
            Opcode::LLVMAlloca => self.alloca(instruction),
            Opcode::LLVMLoad if self.is_local(operand(0)) => {}
            Opcode::LLVMLoad => {
                if let (Some(to), Some(pointer)) = (self.value(instruction), self.value(operand(0))) {
                    let size = self.size_of(instruction.ty());
                    self.load_words(to, pointer, size);
                }
            }
            Opcode::LLVMStore => self.store_to(operand(1), operand(0)),
            Opcode::LLVMGetElementPtr => _ = self.value(instruction),
            Opcode::LLVMIntToPtr => {
                if let (Some(to), Some(from)) = (self.value(instruction), self.value(operand(0))) {
                    self.constraints.push(Constraint::FromInteger { to, from });
                } else if operand(0).signed().is_none()
                    && let Some(to) = self.value(instruction)
                {
                    let unknown = self.unknown();
                    self.constraints.copy(to, unknown);
                }
            }
            Opcode::LLVMPHI => {
                for (value, _) in instruction.incoming() {
                    self.pass(instruction, value);
                }
            }
            Opcode::LLVMSelect => {
                self.pass(instruction, operand(1));
                self.pass(instruction, operand(2));
            }
            Opcode::LLVMInsertValue | Opcode::LLVMInsertElement | Opcode::LLVMShuffleVector => {
                self.pass(instruction, operand(0));
                self.pass(instruction, operand(1));
            }
            Opcode::LLVMAdd
            | Opcode::LLVMSub
            | Opcode::LLVMAnd
            | Opcode::LLVMOr
            | Opcode::LLVMXor
            | Opcode::LLVMShl
            | Opcode::LLVMLShr
            | Opcode::LLVMAShr => {
                if let Some(to) = self.value(instruction) {
                    self.arithmetic(instruction, opcode, to);
                }
            }
            Opcode::LLVMAtomicRMW => {
                if let (Some(to), Some(pointer)) = (self.value(instruction), self.value(operand(0))) {
                    self.constraints.load(to, pointer);
                    // The new value is the operand's, or the old one and it combined.
                    let new = match instruction.atomic_operation() {
                        Some(AtomicOperation::LLVMAtomicRMWBinOpXchg) => self.value(operand(1)),
                        _ => {
                            let combined = self.constraints.shifted(to, Shift::Steps(1));
                            if let Some(from) = self.value(operand(1)) {
                                let shift = Shift::Steps(1);
                                self.constraints.push(Constraint::Shift {
                                    to: combined,
                                    from,
                                    shift,
                                });
                            }
                            Some(combined)
                        }
                    };
                    if let Some(new) = new {
                        self.constraints.store(pointer, new);
                    }
                }
            }
            Opcode::LLVMAtomicCmpXchg => {
                if let Some(pointer) = self.value(operand(0)) {
                    if let Some(to) = self.value(instruction) {
                        self.constraints.load(to, pointer);
                    }
                    if let Some(new) = self.value(operand(2)) {
                        self.constraints.store(pointer, new);
                    }
                }
            }
            Opcode::LLVMVAArg => {
                if let (Some(to), Some(list)) = (self.value(instruction), self.value(operand(0))) {
                    let area = self.constraints.variable();
                    let saved = self.constraints.shifted(list, Shift::By(16));
                    self.constraints.load(area, saved);
                    self.constraints.load(to, area);
                }
            }
            Opcode::LLVMLandingPad => {
                if let Some(to) = self.value(instruction) {
                    let (thrown, unknown) = (self.thrown(), self.unknown());
                    self.constraints.copy(to, thrown);
                    self.constraints.copy(to, unknown);
                }
            }
            Opcode::LLVMResume => {
                if let Some(value) = self.value(operand(0)) {
                    let thrown = self.thrown();
                    self.constraints.copy(thrown, value);
                }
            }
            Opcode::LLVMCall | Opcode::LLVMInvoke | Opcode::LLVMCallBr => {
                self.call(function, instruction);
            }
            // Casts have been passed through; the rest gives no pointer.
            _ => {}
        }
    }

    /// All exceptions of the program.
    pub(super) fn thrown(&mut self) -> Variable {
        self.named(crashproof_library::THROWN)
    }

    fn alloca(&mut self, instruction: Value<'m>) {
        if self.is_local(instruction) {
            return;
        }
        let size = instruction.allocated_type().map_or(0, |ty| self.size_of(ty));
        let count = instruction
            .operand_at(0)
            .signed()
            .and_then(|count| u32::try_from(count).ok());
        let end = count.and_then(|count| size.checked_mul(count)).unwrap_or(UNKNOWN_SIZE);
        if let Some(variable) = self.value(instruction) {
            let object = self.object(ObjectKind::Stack(instruction), end);
            self.constraints.address(variable, object);
        }
    }

    fn pass(&mut self, to: Value<'m>, from: Value<'m>) {
        if let (Some(to), Some(from)) = (self.value(to), self.value(from)) {
            self.constraints.copy(to, from);
        }
    }

    pub(super) fn load_words(&mut self, to: Variable, pointer: Variable, size: u32) {
        for shift in self.words(size) {
            let at = if shift == Shift::By(0) {
                pointer
            } else {
                self.constraints.shifted(pointer, shift)
            };
            self.constraints.load(to, at);
        }
    }

    pub(super) fn store_words(&mut self, pointer: Variable, from: Variable, size: u32) {
        for shift in self.words(size) {
            let at = if shift == Shift::By(0) {
                pointer
            } else {
                self.constraints.shifted(pointer, shift)
            };
            self.constraints.store(at, from);
        }
    }

    fn store_to(&mut self, pointer: Value<'m>, value: Value<'m>) {
        // Whether or not a pointer is stored: it will be asked where to.
        let to = if self.is_local(pointer) {
            None
        } else {
            self.value(pointer)
        };
        let size = self.size_of(value.ty());
        let from = match self.is_carrier(value.ty()) {
            true => self.value(value),
            false => self.part(value),
        };
        let Some(from) = from else { return };
        if self.is_local(pointer) {
            let local = self.local(pointer);
            self.constraints.copy(local, from);
        } else if let Some(to) = to {
            self.store_words(to, from, size);
        }
    }

    /// A piece of a pointer that goes straight from a load to a store.
    fn part(&mut self, value: Value<'m>) -> Option<Variable> {
        if value.opcode() != Some(Opcode::LLVMLoad) {
            return None;
        }
        let source = value.operand_at(0);
        if self.is_local(source) {
            return Some(self.local(source));
        }
        let pointer = self.value(source)?;
        let to = self.constraints.variable();
        self.constraints.load(to, pointer);
        Some(to)
    }
}
