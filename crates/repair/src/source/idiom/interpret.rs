//! Runs a function of the bitcode on numbers, to see what it flushes and whether it fences.
//!
//! That a function flushes the range that it is given is not read off its code, which may count lines up or down, in bytes or in longs, or leave it to another
//! function: it is called with some ranges, on a machine that has memory for its variables, and watched. What the machine does not know (inline
//! assembly, calls of the system, input) ends the run, and the function is then no candidate.

use std::collections::BTreeMap;

use crashproof_library::{self as library, Effect};
use crashproof_llvm::{Block, IntPredicate, Layout, Module, Opcode, TypeKind, Value, ValueKind};

use crate::ir::{Code, Persistence};

/// What a function does for persistence, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Of the line at this address.
    Flush(u64),
    Fence,
}

/// More than any flush of a few lines takes.
const STEPS: usize = 100_000;
const DEPTH: usize = 32;
/// An object of zeros, for arguments that point to one.
pub(super) const OBJECT: u64 = 0x7fff_0000_0000;
const OBJECT_SIZE: u64 = 256;
const STACK: u64 = 0x7000_0000_0000;
const GLOBALS: u64 = 0x6000_0000_0000;
const FUNCTIONS: u64 = 0x5000_0000_0000;

/// What a call with these arguments does; `None`: not known.
pub(super) fn run<'m>(module: &'m Module, function: Value<'m>, arguments: &[u64]) -> Option<Vec<Action>> {
    let mut machine = Machine {
        layout: module.layout(),
        memory: BTreeMap::new(),
        addresses: BTreeMap::new(),
        functions: Vec::new(),
        top: STACK,
        steps: 0,
        actions: Vec::new(),
    };
    for offset in 0..OBJECT_SIZE {
        machine.memory.insert(OBJECT + offset, 0);
    }
    machine.call(function, arguments, 0)?;
    Some(machine.actions)
}

struct Machine<'m> {
    layout: Layout<'m>,
    memory: BTreeMap<u64, u8>,
    /// Of globals and functions.
    addresses: BTreeMap<Value<'m>, u64>,
    functions: Vec<Value<'m>>,
    top: u64,
    steps: usize,
    actions: Vec<Action>,
}

type Registers<'m> = BTreeMap<Value<'m>, u64>;

enum Next<'m> {
    Block(Block<'m>),
    Return(u64),
}

impl<'m> Machine<'m> {
    fn call(&mut self, function: Value<'m>, arguments: &[u64], depth: usize) -> Option<u64> {
        if !function.has_body() || depth > DEPTH {
            return self.library(function, arguments);
        }
        let mut registers = Registers::new();
        let mut parameters = function.parameters();
        for argument in arguments {
            registers.insert(parameters.next()?, *argument);
        }
        let mut previous = None;
        let mut block = function.blocks().next()?;
        loop {
            match self.block(block, previous, &mut registers, depth)? {
                Next::Block(next) => {
                    previous = Some(block);
                    block = next;
                }
                Next::Return(value) => return Some(value),
            }
        }
    }

    /// Functions that flush and fence, and nothing else.
    fn library(&mut self, function: Value<'m>, arguments: &[u64]) -> Option<u64> {
        let name = function.name();
        if name.starts_with("llvm.lifetime.") || name.starts_with("llvm.dbg.") {
            return Some(0);
        }
        for effect in library::effects(name).filter(|_| library::only_persists(name))? {
            match *effect {
                Effect::Flushes { at, length } => {
                    let [address, size] = [at, length].map(|index| arguments.get(index as usize).copied());
                    let (address, size) = (address?, size?);
                    let lines = address / 64..(address + size).div_ceil(64);
                    self.actions.extend(lines.map(|line| Action::Flush(line * 64)));
                }
                Effect::Fences => self.actions.push(Action::Fence),
                // It may have fenced or not.
                Effect::Persists { .. } => return None,
                _ => {}
            }
        }
        Some(0)
    }

    fn block(
        &mut self,
        block: Block<'m>,
        previous: Option<Block<'m>>,
        registers: &mut Registers<'m>,
        depth: usize,
    ) -> Option<Next<'m>> {
        for instruction in block.code() {
            self.steps += 1;
            if self.steps > STEPS {
                return None;
            }
            use Opcode::*;
            let value = |machine: &mut Self, index: u32| machine.operand(instruction.operand(index)?, registers);
            match instruction.opcode()? {
                LLVMRet => {
                    let result = match instruction.operand(0) {
                        Some(result) => self.operand(result, registers)?,
                        None => 0,
                    };
                    return Some(Next::Return(result));
                }
                LLVMBr => {
                    let successors = block.successors();
                    // The condition is the first operand; the successors are in the order of the source.
                    let taken = match successors.len() {
                        1 => 0,
                        _ => usize::from(value(self, 0)? & 1 == 0),
                    };
                    return Some(Next::Block(*successors.get(taken)?));
                }
                LLVMSwitch => return self.switch(instruction, block, registers),
                LLVMPHI => {
                    let result = self.phi(instruction, previous?, registers)?;
                    registers.insert(instruction, result);
                }
                LLVMCall => {
                    let result = self.call_instruction(instruction, registers, depth)?;
                    registers.insert(instruction, result);
                }
                LLVMFence => self
                    .actions
                    .extend(instruction.persistence().iter().map(|_| Action::Fence)),
                LLVMStore => {
                    let (stored, address) = (value(self, 0)?, value(self, 1)?);
                    let size = self.size(instruction.operand(0)?)?;
                    self.store(address, size, stored);
                }
                LLVMAtomicRMW => {
                    // A counter, as a rule: it is enough that it is memory.
                    let (address, operand) = (value(self, 0)?, value(self, 1)?);
                    let size = self.size(instruction.operand(1)?)?;
                    let old = self.load(address, size)?;
                    self.store(address, size, old.wrapping_add(operand));
                    registers.insert(instruction, old);
                }
                _ => {
                    let result = self.compute(instruction, registers)?;
                    registers.insert(instruction, result);
                }
            }
        }
        None
    }

    fn switch(&mut self, instruction: Value<'m>, block: Block<'m>, registers: &Registers<'m>) -> Option<Next<'m>> {
        let condition = self.operand(instruction.operand(0)?, registers)?;
        let successors = block.successors();
        // Operands: the condition, the default, then pairs of a value and a block.
        let case = (1..successors.len()).find(|index| {
            let constant = instruction.operand(2 * *index as u32).and_then(Value::unsigned);
            constant == Some(condition)
        });
        Some(Next::Block(*successors.get(case.unwrap_or(0))?))
    }

    fn phi(&mut self, instruction: Value<'m>, previous: Block<'m>, registers: &Registers<'m>) -> Option<u64> {
        let mut incoming = instruction.incoming().into_iter();
        let (value, _) = incoming.find(|(_, block)| *block == previous)?;
        self.operand(value, registers)
    }

    fn call_instruction(&mut self, instruction: Value<'m>, registers: &Registers<'m>, depth: usize) -> Option<u64> {
        let persistence = instruction.persistence();
        if !persistence.is_empty() {
            for operation in persistence {
                let action = match operation {
                    Persistence::Flush(pointer) => Action::Flush(self.operand(pointer, registers)?),
                    Persistence::Fence => Action::Fence,
                };
                self.actions.push(action);
            }
            return Some(0);
        }
        // An empty statement for the compiler.
        if instruction
            .assembly()
            .is_some_and(|(template, _)| template.trim().is_empty())
        {
            return Some(0);
        }
        let mut arguments = Vec::new();
        for argument in instruction.arguments() {
            arguments.push(self.operand(argument, registers)?);
        }
        let callee = match instruction.called_function() {
            Some(callee) => callee,
            None => {
                let address = self.operand(instruction.callee()?, registers)?;
                let index = address.checked_sub(FUNCTIONS + 1)? / 16;
                *self.functions.get(index as usize)?
            }
        };
        self.call(callee, &arguments, depth + 1)
    }

    fn compute(&mut self, instruction: Value<'m>, registers: &Registers<'m>) -> Option<u64> {
        use Opcode::*;
        let opcode = instruction.opcode()?;
        let operand = |machine: &mut Self, index: u32| machine.operand(instruction.operand(index)?, registers);
        let bits = |value: Value| value.ty().bits().or(value.is_pointer().then_some(64));
        let result = match opcode {
            LLVMAlloca => {
                let size = self.layout.size_of(instruction.allocated_type()?);
                let count = operand(self, 0)?;
                let address = self.top;
                self.top += size.checked_mul(count)?.max(1).div_ceil(16) * 16;
                address
            }
            LLVMLoad => {
                let address = operand(self, 0)?;
                let size = self.size(instruction)?;
                self.load(address, size)?
            }
            LLVMGetElementPtr => self.element(instruction, registers)?,
            LLVMZExt | LLVMPtrToInt | LLVMIntToPtr | LLVMBitCast | LLVMTrunc | LLVMAddrSpaceCast | LLVMFreeze => {
                operand(self, 0)?
            }
            LLVMSExt => sign_extended(operand(self, 0)?, bits(instruction.operand(0)?)?) as u64,
            LLVMSelect => match operand(self, 0)? & 1 {
                0 => operand(self, 2)?,
                _ => operand(self, 1)?,
            },
            LLVMICmp => {
                let width = bits(instruction.operand(0)?)?;
                let (a, b) = (operand(self, 0)?, operand(self, 1)?);
                u64::from(compare(instruction.predicate()?, a, b, width))
            }
            _ => {
                let width = bits(instruction)?;
                let (a, b) = (operand(self, 0)?, operand(self, 1)?);
                let (signed_a, signed_b) = (sign_extended(a, width), sign_extended(b, width));
                match opcode {
                    LLVMAdd => a.wrapping_add(b),
                    LLVMSub => a.wrapping_sub(b),
                    LLVMMul => a.wrapping_mul(b),
                    LLVMAnd => a & b,
                    LLVMOr => a | b,
                    LLVMXor => a ^ b,
                    LLVMShl => a.checked_shl(u32::try_from(b).ok()?)?,
                    LLVMLShr => a.checked_shr(u32::try_from(b).ok()?)?,
                    LLVMAShr => signed_a.checked_shr(u32::try_from(b).ok()?)? as u64,
                    LLVMUDiv => a.checked_div(b)?,
                    LLVMURem => a.checked_rem(b)?,
                    LLVMSDiv => signed_a.checked_div(signed_b)? as u64,
                    LLVMSRem => signed_a.checked_rem(signed_b)? as u64,
                    _ => return None,
                }
            }
        };
        Some(truncated(result, bits(instruction)?))
    }

    /// The address that a chain of field and element accesses gives.
    fn element(&mut self, instruction: Value<'m>, registers: &Registers<'m>) -> Option<u64> {
        let mut address = self.operand(instruction.operand(0)?, registers)?;
        let mut ty = instruction.source_element()?;
        for at in 1..instruction.operand_count() {
            let index = instruction.operand(at)?;
            let number = sign_extended(self.operand(index, registers)?, index.ty().bits()?);
            if at > 1 {
                match ty.kind() {
                    TypeKind::LLVMStructTypeKind => {
                        let field = u32::try_from(number).ok()?;
                        address = address.wrapping_add(self.layout.offset_of(ty, field));
                        ty = ty.element(field)?;
                        continue;
                    }
                    TypeKind::LLVMArrayTypeKind => ty = ty.element(0)?,
                    _ => return None,
                }
            }
            address = address.wrapping_add(number.wrapping_mul(self.layout.size_of(ty) as i64) as u64);
        }
        Some(address)
    }

    /// Bytes of a value.
    fn size(&self, value: Value) -> Option<u64> {
        let size = self.layout.store_size_of(value.ty());
        (size <= 8).then_some(size)
    }

    fn operand(&mut self, value: Value<'m>, registers: &Registers<'m>) -> Option<u64> {
        if let Some(known) = registers.get(&value) {
            return Some(*known);
        }
        if let Some(constant) = value.unsigned() {
            return Some(constant);
        }
        match value.kind() {
            ValueKind::LLVMConstantPointerNullValueKind => Some(0),
            ValueKind::LLVMFunctionValueKind => Some(self.function_address(value)),
            ValueKind::LLVMGlobalVariableValueKind => Some(self.global(value)),
            ValueKind::LLVMConstantExprValueKind => match value.opcode()? {
                Opcode::LLVMGetElementPtr => self.element(value, registers),
                Opcode::LLVMBitCast | Opcode::LLVMPtrToInt | Opcode::LLVMIntToPtr => {
                    self.operand(value.operand(0)?, registers)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn function_address(&mut self, function: Value<'m>) -> u64 {
        if let Some(address) = self.addresses.get(&function) {
            return *address;
        }
        let address = FUNCTIONS + 1 + 16 * self.functions.len() as u64;
        self.functions.push(function);
        self.addresses.insert(function, address);
        address
    }

    /// Its memory begins with what it is initialised with, as far as that is a number or a function.
    fn global(&mut self, global: Value<'m>) -> u64 {
        if let Some(address) = self.addresses.get(&global) {
            return *address;
        }
        let address = GLOBALS + 0x10_0000 * self.addresses.len() as u64;
        self.addresses.insert(global, address);
        let size = global.value_type().map_or(0, |ty| self.layout.size_of(ty));
        for offset in 0..size.min(0x1000) {
            self.memory.insert(address + offset, 0);
        }
        if let Some(initial) = global.initializer()
            && let Some(size) = self.size(initial)
            && let Some(value) = self.operand(initial, &Registers::new())
        {
            self.store(address, size, value);
        }
        address
    }

    fn store(&mut self, address: u64, size: u64, value: u64) {
        for (offset, byte) in value.to_le_bytes().iter().take(size as usize).enumerate() {
            self.memory.insert(address.wrapping_add(offset as u64), *byte);
        }
    }

    /// `None`: what nobody has written, such as the contents of the range.
    fn load(&self, address: u64, size: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        for offset in 0..size {
            bytes[offset as usize] = *self.memory.get(&address.wrapping_add(offset))?;
        }
        Some(u64::from_le_bytes(bytes))
    }
}

fn truncated(value: u64, bits: u32) -> u64 {
    match bits {
        64.. => value,
        _ => value & ((1 << bits) - 1),
    }
}

fn sign_extended(value: u64, bits: u32) -> i64 {
    match bits {
        0 | 64.. => value as i64,
        _ => (value << (64 - bits)) as i64 >> (64 - bits),
    }
}

fn compare(predicate: IntPredicate, a: u64, b: u64, bits: u32) -> bool {
    let (signed_a, signed_b) = (sign_extended(a, bits), sign_extended(b, bits));
    match predicate {
        IntPredicate::LLVMIntEQ => a == b,
        IntPredicate::LLVMIntNE => a != b,
        IntPredicate::LLVMIntUGT => a > b,
        IntPredicate::LLVMIntUGE => a >= b,
        IntPredicate::LLVMIntULT => a < b,
        IntPredicate::LLVMIntULE => a <= b,
        IntPredicate::LLVMIntSGT => signed_a > signed_b,
        IntPredicate::LLVMIntSGE => signed_a >= signed_b,
        IntPredicate::LLVMIntSLT => signed_a < signed_b,
        IntPredicate::LLVMIntSLE => signed_a <= signed_b,
    }
}
