//! The constraints of instructions.

use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMValueRef;

use super::values::constant_number;
use super::{Generator, UNKNOWN_SIZE};
use crate::pointers::ObjectKind;
use crate::pointers::constraints::{Constraint, Variable};
use crate::pointers::offsets::Shift;

impl Generator {
    pub(super) unsafe fn instruction(&mut self, function: LLVMValueRef, instruction: LLVMValueRef) {
        // SAFETY: an instruction of a function; operands by what its opcode says.
        unsafe {
            let operand = |index| LLVMGetOperand(instruction, index);
            let opcode = LLVMGetInstructionOpcode(instruction);
            match opcode {
                LLVMOpcode::LLVMAlloca => self.alloca(instruction),
                LLVMOpcode::LLVMLoad if self.is_local(operand(0)) => {}
                LLVMOpcode::LLVMLoad => {
                    if let (Some(to), Some(pointer)) = (self.value(instruction), self.value(operand(0))) {
                        let size = self.size_of(LLVMTypeOf(instruction));
                        self.load_words(to, pointer, size);
                    }
                }
                LLVMOpcode::LLVMStore => self.store_to(operand(1), operand(0)),
                LLVMOpcode::LLVMGetElementPtr => _ = self.value(instruction),
                LLVMOpcode::LLVMIntToPtr => {
                    if let (Some(to), Some(from)) = (self.value(instruction), self.value(operand(0))) {
                        self.constraints.push(Constraint::FromInteger { to, from });
                    } else if constant_number(operand(0)).is_none()
                        && let Some(to) = self.value(instruction)
                    {
                        let unknown = self.unknown();
                        self.constraints.copy(to, unknown);
                    }
                }
                LLVMOpcode::LLVMPHI => {
                    for index in 0..LLVMCountIncoming(instruction) {
                        self.pass(instruction, LLVMGetIncomingValue(instruction, index));
                    }
                }
                LLVMOpcode::LLVMSelect => {
                    self.pass(instruction, operand(1));
                    self.pass(instruction, operand(2));
                }
                LLVMOpcode::LLVMInsertValue | LLVMOpcode::LLVMInsertElement | LLVMOpcode::LLVMShuffleVector => {
                    self.pass(instruction, operand(0));
                    self.pass(instruction, operand(1));
                }
                LLVMOpcode::LLVMAdd
                | LLVMOpcode::LLVMSub
                | LLVMOpcode::LLVMAnd
                | LLVMOpcode::LLVMOr
                | LLVMOpcode::LLVMXor
                | LLVMOpcode::LLVMShl
                | LLVMOpcode::LLVMLShr
                | LLVMOpcode::LLVMAShr => {
                    if let Some(to) = self.value(instruction) {
                        self.arithmetic(instruction, opcode, to);
                    }
                }
                LLVMOpcode::LLVMAtomicRMW => {
                    if let (Some(to), Some(pointer)) = (self.value(instruction), self.value(operand(0))) {
                        self.constraints.load(to, pointer);
                        // The new value is the operand's, or the old one and it combined.
                        let new = match LLVMGetAtomicRMWBinOp(instruction) {
                            llvm_sys::LLVMAtomicRMWBinOp::LLVMAtomicRMWBinOpXchg => self.value(operand(1)),
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
                LLVMOpcode::LLVMAtomicCmpXchg => {
                    if let Some(pointer) = self.value(operand(0)) {
                        if let Some(to) = self.value(instruction) {
                            self.constraints.load(to, pointer);
                        }
                        if let Some(new) = self.value(operand(2)) {
                            self.constraints.store(pointer, new);
                        }
                    }
                }
                LLVMOpcode::LLVMVAArg => {
                    if let (Some(to), Some(list)) = (self.value(instruction), self.value(operand(0))) {
                        let area = self.constraints.variable();
                        let saved = self.constraints.shifted(list, Shift::By(16));
                        self.constraints.load(area, saved);
                        self.constraints.load(to, area);
                    }
                }
                LLVMOpcode::LLVMLandingPad => {
                    if let Some(to) = self.value(instruction) {
                        let (thrown, unknown) = (self.thrown(), self.unknown());
                        self.constraints.copy(to, thrown);
                        self.constraints.copy(to, unknown);
                    }
                }
                LLVMOpcode::LLVMResume => {
                    if let Some(value) = self.value(operand(0)) {
                        let thrown = self.thrown();
                        self.constraints.copy(thrown, value);
                    }
                }
                LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr => {
                    self.call(function, instruction);
                }
                // Casts have been passed through; the rest gives no pointer.
                _ => {}
            }
        }
    }

    /// All exceptions of the program.
    pub(super) fn thrown(&mut self) -> Variable {
        self.named(crashproof_library::THROWN)
    }

    unsafe fn alloca(&mut self, instruction: LLVMValueRef) {
        // SAFETY: an alloca.
        unsafe {
            if self.is_local(instruction) {
                return;
            }
            let size = self.size_of(LLVMGetAllocatedType(instruction));
            let count = constant_number(LLVMGetOperand(instruction, 0)).and_then(|count| u32::try_from(count).ok());
            let end = count.and_then(|count| size.checked_mul(count)).unwrap_or(UNKNOWN_SIZE);
            if let Some(variable) = self.value(instruction) {
                let object = self.object(ObjectKind::Stack(instruction), end);
                self.constraints.address(variable, object);
            }
        }
    }

    unsafe fn pass(&mut self, to: LLVMValueRef, from: LLVMValueRef) {
        // SAFETY: live values.
        unsafe {
            if let (Some(to), Some(from)) = (self.value(to), self.value(from)) {
                self.constraints.copy(to, from);
            }
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

    unsafe fn store_to(&mut self, pointer: LLVMValueRef, value: LLVMValueRef) {
        // SAFETY: the operands of a store.
        unsafe {
            // Whether or not a pointer is stored: it will be asked where to.
            let to = if self.is_local(pointer) {
                None
            } else {
                self.value(pointer)
            };
            let size = self.size_of(LLVMTypeOf(value));
            let from = match self.is_carrier(LLVMTypeOf(value)) {
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
    }

    /// A piece of a pointer that goes straight from a load to a store.
    unsafe fn part(&mut self, value: LLVMValueRef) -> Option<Variable> {
        // SAFETY: a live value.
        unsafe {
            if LLVMIsALoadInst(value).is_null() {
                return None;
            }
            let source = LLVMGetOperand(value, 0);
            if self.is_local(source) {
                return Some(self.local(source));
            }
            let pointer = self.value(source)?;
            let to = self.constraints.variable();
            self.constraints.load(to, pointer);
            Some(to)
        }
    }
}
