//! One function: every value gets a label beside it, every branch is announced, every access is handed to the runtime.
//!
//! The pass only adds straight-line code. Where nothing can have a label (constants, addresses of variables) nothing is added, and where only one
//! operand can, its label is the result's.

use std::collections::HashMap;

use crashproof_llvm::Opcode::{self, *};
use crashproof_llvm::{Block, Type, Value};
use crashproof_sites::SiteKind;
use crashproof_wire::labels::{ALL_OPEN, LabelHook};

use super::Pass;
use super::build;
use super::postdominators::{immediate_post_dominators, post_order};

/// Closed by nothing but the end of the frame.
const NEVER: u64 = u64::MAX;

pub(super) struct Function<'p, 'm> {
    pub pass: &'p mut Pass<'m>,
    pub function: Value<'m>,
    /// The number of the frame.
    pub frame: Value<'m>,
    labels: HashMap<Value<'m>, Value<'m>>,
    /// Phis of labels, with those of the values: filled in at the end.
    phis: Vec<(Value<'m>, Value<'m>)>,
}

impl<'p, 'm> Function<'p, 'm> {
    pub(super) fn instrument(pass: &'p mut Pass<'m>, function: Value<'m>) {
        let blocks = reachable(function);
        let Some(&entry) = blocks.first() else { return };
        let number: HashMap<Block, usize> = blocks
            .iter()
            .enumerate()
            .map(|(index, &block)| (block, index))
            .collect();
        let successors: Vec<Vec<usize>> = blocks
            .iter()
            .map(|&block| block.successors().iter().map(|after| number[after]).collect())
            .collect();
        // An exception is no branch: what is thrown, and where, decides nothing by a value.
        let ordinary: Vec<Vec<usize>> = blocks
            .iter()
            .map(|&block| match block.terminator().and_then(Value::normal_destination) {
                Some(normal) => vec![number[&normal]],
                None => block.successors().iter().map(|after| number[after]).collect(),
            })
            .collect();
        let closes_at = immediate_post_dominators(&ordinary);
        let closing: Vec<bool> = {
            let mut closing = vec![false; blocks.len()];
            for (block, at) in blocks.iter().zip(&closes_at) {
                if let (Some(at), Some(_)) = (at, block.terminator().and_then(condition)) {
                    closing[*at] = true;
                }
            }
            closing
        };
        let instructions: Vec<Vec<Value>> = blocks.iter().map(|block| block.instructions().collect()).collect();

        let Some(start) = build::first_ordinary(entry) else {
            return;
        };
        pass.ir.before(start, None);
        let address = pass.ir.as_i64(function);
        let frame = build::call(&pass.ir, LabelHook::Enter, &[address]);
        let mut this = Function {
            pass,
            function,
            frame,
            labels: HashMap::new(),
            phis: Vec::new(),
        };
        this.arguments();
        // So that values come before their uses, but in phis.
        for index in post_order(&successors, 0).into_iter().rev() {
            let start = instructions[index]
                .iter()
                .find(|at| !matches!(at.opcode(), Some(LLVMPHI | LLVMLandingPad)));
            if let Some(&start) = start {
                this.enter_block(blocks[index], start, index, closing[index]);
            }
            let closes_at = closes_at[index].map_or(NEVER, |block| block as u64);
            for &instruction in &instructions[index] {
                this.instruction(instruction, index as u64, closes_at);
            }
        }
        for (phi, label) in std::mem::take(&mut this.phis) {
            for (value, from) in phi.incoming() {
                let incoming = this.label(value);
                this.pass.ir.add_incoming(label, incoming, from);
            }
        }
    }

    /// After the frame's number.
    fn arguments(&mut self) {
        for (index, parameter) in self.function.parameters().enumerate() {
            if index >= crashproof_wire::labels::MOST_ARGUMENTS {
                break;
            }
            let position = self.pass.ir.i64(index as u64);
            let label = build::call(&self.pass.ir, LabelHook::Argument, &[position]);
            match build::by_value(&self.pass.ir, self.function, index as u32) {
                // What is labelled is the copy, not its address.
                Some(size) => {
                    let address = self.pass.ir.as_i64(parameter);
                    let (size, empty) = (self.pass.ir.i64(size), self.empty());
                    build::call(&self.pass.ir, LabelHook::Store, &[address, size, label, empty]);
                }
                None => {
                    self.labels.insert(parameter, label);
                }
            }
        }
    }

    /// Phis of labels beside those of values; what the block closes goes to both.
    fn enter_block(&mut self, block: Block<'m>, start: Value<'m>, index: usize, closing: bool) {
        let phis: Vec<Value> = block
            .instructions()
            .take_while(|instruction| instruction.opcode() == Some(LLVMPHI))
            .collect();
        for &phi in &phis {
            build::build_before(&self.pass.ir, phi);
            let label = self.pass.ir.phi(self.pass.ir.module().integer_type(64));
            self.phis.push((phi, label));
            self.labels.insert(phi, label);
        }
        build::build_before(&self.pass.ir, start);
        let flag = self.pass.blocks;
        self.pass.blocks += 1;
        build::set_flag(&self.pass.ir, self.pass.flags, flag);
        if closing {
            let block = self.pass.ir.i64(index as u64);
            let closed = build::call(&self.pass.ir, LabelHook::Join, &[self.frame, block]);
            for phi in phis {
                let label = self.combine(self.label(phi), closed, LLVMPHI);
                self.labels.insert(phi, label);
            }
        }
    }

    fn size_of(&self, ty: Type) -> u64 {
        self.pass.ir.module().layout().store_size_of(ty)
    }

    pub(super) fn empty(&self) -> Value<'m> {
        self.pass.ir.i64(0)
    }

    pub(super) fn label(&self, value: Value<'m>) -> Value<'m> {
        self.labels.get(&value).copied().unwrap_or_else(|| self.empty())
    }

    pub(super) fn set_label(&mut self, value: Value<'m>, label: Value<'m>) {
        if !build::is_empty(label) {
            self.labels.insert(value, label);
        }
    }

    pub(super) fn combine(&self, one: Value<'m>, other: Value<'m>, operation: Opcode) -> Value<'m> {
        if build::is_empty(one) || one == other {
            return other;
        }
        if build::is_empty(other) {
            return one;
        }
        let operation = self.pass.ir.i64(operation as u64);
        build::call(&self.pass.ir, LabelHook::Combine, &[one, other, operation])
    }

    pub(super) fn control(&self, label: Value<'m>) -> Value<'m> {
        match build::is_empty(label) {
            true => label,
            false => build::call(&self.pass.ir, LabelHook::Control, &[label]),
        }
    }

    /// Of everything that an instruction takes, here.
    pub(super) fn operands(&self, instruction: Value<'m>, count: u32) -> Value<'m> {
        let operation = instruction.opcode().unwrap_or(LLVMUserOp1);
        (0..count).fold(self.empty(), |label, index| {
            self.combine(label, self.label(instruction.operand_at(index)), operation)
        })
    }

    /// What is built from here on goes behind the instruction.
    pub(super) fn build_after(&self, instruction: Value<'m>) -> bool {
        match instruction.next() {
            Some(after) => {
                self.pass.ir.before(after, instruction.debug_location());
                true
            }
            None => false,
        }
    }

    fn instruction(&mut self, instruction: Value<'m>, block: u64, closes_at: u64) {
        let Some(opcode) = instruction.opcode() else { return };
        build::build_before(&self.pass.ir, instruction);
        match opcode {
            LLVMPHI => {}
            LLVMAlloca => self.alloca(instruction),
            LLVMLoad => {
                let size = self.size_of(instruction.ty());
                let label = self.load(instruction, 0, size);
                self.set_label(instruction, label);
            }
            LLVMStore => {
                let value = instruction.operand_at(0);
                let size = self.pass.ir.i64(self.size_of(value.ty()));
                self.store(instruction, 1, size, self.label(value));
            }
            LLVMAtomicRMW => self.read_modify_write(instruction),
            LLVMAtomicCmpXchg => self.compare_and_exchange(instruction),
            LLVMSelect => self.select(instruction),
            LLVMBr | LLVMSwitch | LLVMIndirectBr => {
                let Some(condition) = condition(instruction) else {
                    return;
                };
                let label = self.label(condition);
                if !build::is_empty(label) {
                    let (block, closes_at) = (self.pass.ir.i64(block), self.pass.ir.i64(closes_at));
                    build::call(&self.pass.ir, LabelHook::Branch, &[self.frame, block, closes_at, label]);
                }
            }
            LLVMRet => {
                let value = (instruction.operand_count() > 0).then(|| instruction.operand_at(0));
                if !self.follows_tail_call(instruction) {
                    let label = value.map_or(self.empty(), |value| self.label(value));
                    self.leave(label);
                }
            }
            LLVMLandingPad => {
                if self.build_after(instruction) {
                    let all = self.pass.ir.i64(ALL_OPEN);
                    build::call(&self.pass.ir, LabelHook::Restore, &[self.frame, all]);
                }
            }
            LLVMCall | LLVMInvoke => self.call(instruction),
            _ if instruction.ty().is_void() => {}
            _ => {
                let label = self.operands(instruction, instruction.operand_count());
                self.set_label(instruction, label);
            }
        }
    }

    /// A call that has to be the last of its function has left already.
    fn follows_tail_call(&self, ret: Value) -> bool {
        ret.block()
            .is_some_and(|block| block.instructions().any(Value::is_musttail))
    }

    pub(super) fn leave(&self, label: Value<'m>) {
        let function = self.pass.ir.as_i64(self.function);
        build::call(&self.pass.ir, LabelHook::Leave, &[self.frame, function, label]);
    }

    fn alloca(&mut self, alloca: Value<'m>) {
        let layout = self.pass.ir.module().layout();
        let size = alloca.allocated_type().map_or(0, |ty| layout.size_of(ty));
        if size == 0 || !self.build_after(alloca) {
            return;
        }
        let ir = &self.pass.ir;
        let size = match alloca.operand_at(0).unsigned() {
            Some(count) => ir.i64(size.saturating_mul(count)),
            None => ir.multiply(ir.as_i64(alloca.operand_at(0)), ir.i64(size)),
        };
        let address = ir.as_i64(alloca);
        build::call(ir, LabelHook::Fresh, &[address, size]);
    }

    /// A load of `size` bytes by the instruction, here; its operand points there.
    fn load(&mut self, instruction: Value<'m>, operand: u32, size: u64) -> Value<'m> {
        let pointer = instruction.operand_at(operand);
        if pointer.ty().address_space() != Some(0) {
            return self.label(pointer);
        }
        let label = self.label(pointer);
        self.pass.site(SiteKind::Load, instruction, operand, Some(size));
        let (address, size) = (self.pass.ir.as_i64(pointer), self.pass.ir.i64(size));
        build::call(&self.pass.ir, LabelHook::Load, &[address, size, label])
    }

    fn store(&mut self, instruction: Value<'m>, operand: u32, size: Value<'m>, value: Value<'m>) {
        let pointer = instruction.operand_at(operand);
        if pointer.ty().address_space() != Some(0) {
            return;
        }
        let label = self.label(pointer);
        self.pass.site(SiteKind::Store, instruction, operand, size.unsigned());
        let address = self.pass.ir.as_i64(pointer);
        build::call(&self.pass.ir, LabelHook::Store, &[address, size, value, label]);
    }

    fn read_modify_write(&mut self, instruction: Value<'m>) {
        let value = instruction.operand_at(1);
        let size = self.size_of(value.ty());
        let loaded = self.load(instruction, 0, size);
        let stored = self.combine(loaded, self.label(value), LLVMAtomicRMW);
        let size = self.pass.ir.i64(size);
        self.store(instruction, 0, size, stored);
        self.set_label(instruction, loaded);
    }

    /// A load, and, if it succeeds, a store that depends on it by control.
    fn compare_and_exchange(&mut self, instruction: Value<'m>) {
        let (expected, new) = (instruction.operand_at(1), instruction.operand_at(2));
        let size = self.size_of(new.ty());
        let loaded = self.load(instruction, 0, size);
        let compared = self.combine(loaded, self.label(expected), LLVMAtomicCmpXchg);
        let guard = self.control(compared);
        let stored = self.combine(self.label(new), guard, LLVMAtomicCmpXchg);
        self.set_label(instruction, compared);
        if self.build_after(instruction) {
            let success = self.pass.ir.extract(instruction, 1);
            let success = self.pass.ir.as_i64(success);
            let length = self.pass.ir.multiply(success, self.pass.ir.i64(size));
            self.store(instruction, 0, length, stored);
        }
    }

    fn select(&mut self, select: Value<'m>) {
        let [condition, then, otherwise] = [0, 1, 2].map(|index| select.operand_at(index));
        let (then, otherwise) = (self.label(then), self.label(otherwise));
        let chosen = if then == otherwise {
            then
        } else if condition.ty().is_vector() {
            self.combine(then, otherwise, LLVMSelect)
        } else {
            self.pass.ir.select(condition, then, otherwise)
        };
        let guard = self.control(self.label(condition));
        let label = self.combine(chosen, guard, LLVMSelect);
        self.set_label(select, label);
    }
}

/// What a terminator decides by, if it decides anything.
fn condition(terminator: Value) -> Option<Value> {
    let decides = match terminator.opcode()? {
        LLVMBr => terminator.operand_count() == 3,
        LLVMSwitch | LLVMIndirectBr => true,
        _ => false,
    };
    decides
        .then(|| terminator.operand_at(0))
        .filter(|condition| !condition.is_constant())
}

/// The entry first.
pub(super) fn reachable(function: Value<'_>) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = function.blocks().take(1).collect();
    let mut seen: std::collections::HashSet<Block> = blocks.iter().copied().collect();
    let mut at = 0;
    while at < blocks.len() {
        for after in blocks[at].successors() {
            if seen.insert(after) {
                blocks.push(after);
            }
        }
        at += 1;
    }
    // As the code has them: numbers do not depend on how they are found.
    function.blocks().filter(|block| seen.contains(block)).collect()
}
