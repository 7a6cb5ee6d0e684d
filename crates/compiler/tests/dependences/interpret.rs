//! Executes a module's functions one instruction at a time, and writes everything into a [`Graph`]. Slow, and as plain as the definition: every branch is
//! pushed, post-dominance is asked of all paths, whether a condition depends on PM is searched for in the graph each time.

use std::collections::{HashMap, HashSet};

use crashproof_llvm::IntPredicate::*;
use crashproof_llvm::Opcode::*;
use crashproof_llvm::{AtomicOperation, Block, Layout, Module, Type, Value as Ir};

use super::graph::{Access, Graph, Instance};

const PM: u64 = 1 << 44;
const PM_BYTES: u64 = 4096;

/// A value, with a second half for pairs, and the instruction that made it.
#[derive(Clone, Copy, Default)]
struct Value {
    bits: u64,
    second: u64,
    origin: Option<usize>,
}

struct Open {
    /// The block that it ends.
    block: usize,
    /// The instruction itself.
    branch: usize,
    closes: Option<usize>,
}

/// Of a function, made when it is first called.
struct Flow<'m> {
    blocks: HashMap<Block<'m>, usize>,
    closes: Vec<Option<usize>>,
}

pub(crate) struct Machine<'m> {
    module: &'m Module<'m>,
    layout: Layout<'m>,
    memory: HashMap<u64, u8>,
    /// Who wrote a byte, in this operation.
    writers: HashMap<u64, usize>,
    globals: HashMap<Ir<'m>, u64>,
    next: u64,
    frames: Vec<Vec<Open>>,
    flows: HashMap<Ir<'m>, Flow<'m>>,
    pub graph: Graph,
}

impl<'m> Machine<'m> {
    pub(crate) fn new(module: &'m Module<'m>, word: impl Fn(u64) -> u64) -> Machine<'m> {
        let mut machine = Machine {
            module,
            layout: module.layout(),
            memory: HashMap::new(),
            writers: HashMap::new(),
            globals: HashMap::new(),
            next: 1 << 20,
            frames: Vec::new(),
            flows: HashMap::new(),
            graph: Graph::default(),
        };
        for index in 0..super::generate::WORDS {
            machine.poke(PM + index * 8, 8, word(index));
        }
        machine
    }

    /// Runs one operation; labels of earlier ones are gone.
    pub(crate) fn operation(&mut self, name: &str, arguments: [u64; 2]) {
        self.graph = Graph::default();
        self.writers.clear();
        let function = self.module.function(name).unwrap();
        let values = [PM, arguments[0], arguments[1]].map(|bits| Value {
            bits,
            ..Value::default()
        });
        self.run(function, &values);
    }

    fn size(&self, ty: Type) -> u64 {
        self.layout.store_size_of(ty)
    }

    fn poke(&mut self, address: u64, size: u64, value: u64) {
        for index in 0..size {
            self.memory.insert(address + index, (value >> (8 * index)) as u8);
        }
    }

    fn peek(&self, address: u64, size: u64) -> u64 {
        (0..size).fold(0, |value, index| {
            value | u64::from(self.memory.get(&(address + index)).copied().unwrap_or(0)) << (8 * index)
        })
    }

    fn is_pm(address: u64) -> bool {
        (PM..PM + PM_BYTES).contains(&address)
    }

    /// The nearest open branch, of those whose condition depends on PM, if `labelled`.
    fn nearest(&self, labelled: bool) -> Option<usize> {
        let open = self.frames.iter().rev().flat_map(|frame| frame.iter().rev());
        open.map(|open| open.branch)
            .find(|&branch| !labelled || self.graph.depends(branch))
    }

    fn instance(&mut self, data: Vec<usize>, control: Vec<usize>) -> usize {
        let governed_by = self.nearest(false);
        self.graph.add(Instance {
            data,
            control,
            governed_by,
            ..Instance::default()
        })
    }

    fn access(&mut self, store: bool, address: u64, length: u64, data: Vec<usize>) -> usize {
        let control = self.nearest(true).into_iter().collect();
        let node = self.instance(Vec::new(), Vec::new());
        if store {
            (address..address + length).for_each(|byte| {
                self.writers.insert(byte, node);
            });
        } else {
            let mut stores: Vec<usize> = (address..address + length)
                .filter_map(|byte| self.writers.get(&byte).copied())
                .collect();
            stores.dedup();
            self.graph.instances[node].stored_by = stores;
        }
        self.graph.instances[node].access = Some(Access {
            store,
            offset: address - PM,
            length,
            data,
            control,
        });
        node
    }

    /// The instance whose value is what these bytes hold.
    fn read(&mut self, address: u64, length: u64, pointer: Option<usize>) -> usize {
        if Self::is_pm(address) {
            return self.access(false, address, length, pointer.into_iter().collect());
        }
        let mut from: Vec<usize> = (address..address + length)
            .filter_map(|byte| self.writers.get(&byte).copied())
            .collect();
        from.dedup();
        from.extend(pointer);
        self.instance(from, Vec::new())
    }

    fn write(&mut self, address: u64, length: u64, value: Option<usize>, pointer: Option<usize>) {
        let value: Vec<usize> = value.into_iter().collect();
        if Self::is_pm(address) {
            let data = value.into_iter().chain(pointer).collect();
            self.access(true, address, length, data);
            return;
        }
        let control = self.nearest(true).into_iter().collect();
        let node = self.instance(value, control);
        for byte in address..address + length {
            self.writers.insert(byte, node);
        }
    }

    fn copy(
        &mut self,
        (to, from, length): (u64, u64, u64),
        (pointer_to, pointer_from): (Option<usize>, Option<usize>),
    ) {
        let bytes: Vec<u8> = (0..length).map(|index| self.peek(from + index, 1) as u8).collect();
        if Self::is_pm(to) || Self::is_pm(from) {
            let value = self.read(from, length, pointer_from);
            self.write(to, length, Some(value), pointer_to);
        } else {
            let labels: Vec<usize> = (0..length)
                .map(|index| self.read(from + index, 1, pointer_from))
                .collect();
            for (index, label) in labels.into_iter().enumerate() {
                self.write(to + index as u64, 1, Some(label), None);
            }
        }
        for (index, byte) in bytes.into_iter().enumerate() {
            self.memory.insert(to + index as u64, byte);
        }
    }

    fn run(&mut self, function: Ir<'m>, arguments: &[Value]) -> Value {
        self.frames.push(Vec::new());
        self.flow(function);
        let mut values: HashMap<Ir<'m>, Value> = HashMap::new();
        values.extend(function.parameters().zip(arguments.iter().copied()));
        let mut block = function.blocks().next().unwrap();
        let mut from = None;
        loop {
            let number = self.flows[&function].blocks[&block];
            let closed = self.close(|open| open.closes == Some(number));
            let mut at = block.instructions().next().unwrap();
            // All phis at once, of the values before.
            let mut chosen = Vec::new();
            while at.opcode() == Some(LLVMPHI) {
                let incoming = at.incoming().into_iter();
                let (incoming, _) = incoming.into_iter().find(|(_, block)| Some(*block) == from).unwrap();
                let mut value = self.value(incoming, &values);
                value.origin = Some(self.instance(value.origin.into_iter().collect(), closed.clone()));
                chosen.push((at, value));
                at = at.next().unwrap();
            }
            values.extend(chosen);
            let next = loop {
                match self.step(function, number, at, &mut values) {
                    Step::Next => at = at.next().unwrap(),
                    Step::Jump(next) => break next,
                    Step::Return(mut value) => {
                        let closed = self.close(|_| true);
                        self.frames.pop();
                        value.origin = Some(self.instance(value.origin.into_iter().collect(), closed));
                        return value;
                    }
                }
            };
            (from, block) = (Some(block), next);
        }
    }

    /// The branches of the frame that are closed now.
    fn close(&mut self, closes: impl Fn(&Open) -> bool) -> Vec<usize> {
        let frame = self.frames.last_mut().unwrap();
        frame
            .extract_if(.., |open| closes(open))
            .map(|open| open.branch)
            .collect()
    }

    fn flow(&mut self, function: Ir<'m>) {
        if self.flows.contains_key(&function) {
            return;
        }
        let mut blocks = HashMap::new();
        let mut next = Vec::new();
        for block in function.blocks() {
            blocks.insert(block, blocks.len());
            next.push(block);
        }
        let exit = next.len();
        let successors: Vec<Vec<usize>> = next
            .iter()
            .map(|&block| match block.successors() {
                none if none.is_empty() => vec![exit],
                some => some.iter().map(|block| blocks[block]).collect(),
            })
            .chain([Vec::new()])
            .collect();
        // A block post-dominates another if no path from that to the exit avoids it.
        let avoids = |start: usize, without: usize| {
            let (mut seen, mut paths) = (HashSet::new(), vec![start]);
            while let Some(block) = paths.pop() {
                if block != without && seen.insert(block) {
                    paths.extend(&successors[block]);
                }
            }
            seen.contains(&exit)
        };
        let closes = (0..exit)
            .map(|block| {
                let strict: Vec<usize> = (0..exit)
                    .filter(|&other| other != block && !avoids(block, other))
                    .collect();
                let nearest = |&&one: &&usize| strict.iter().all(|&other| other == one || !avoids(one, other));
                strict.iter().find(nearest).copied()
            })
            .collect();
        self.flows.insert(function, Flow { blocks, closes });
    }

    fn value(&mut self, value: Ir<'m>, values: &HashMap<Ir<'m>, Value>) -> Value {
        if let Some(&known) = values.get(&value) {
            return known;
        }
        let constant = |bits| Value {
            bits,
            ..Value::default()
        };
        if let Some(bits) = value.unsigned() {
            return constant(bits);
        }
        if value.is_global_variable() {
            let size = self.size(value.value_type().unwrap());
            if let Some(&address) = self.globals.get(&value) {
                return constant(address);
            }
            let address = self.next;
            self.next += size.next_multiple_of(16) + 16;
            self.globals.insert(value, address);
            self.initialise(address, value.initializer());
            return constant(address);
        }
        match value.opcode() {
            // Null, undefined, poison.
            None => constant(0),
            opcode => {
                assert_eq!(opcode, Some(LLVMGetElementPtr));
                self.gep(value, values)
            }
        }
    }

    fn initialise(&mut self, address: u64, constant: Option<Ir<'m>>) {
        let Some(constant) = constant.filter(|constant| !constant.is_null()) else {
            return;
        };
        if let Some(bits) = constant.unsigned() {
            self.poke(address, self.size(constant.ty()), bits);
            return;
        }
        let element = self.size(constant.ty().element(0).unwrap());
        for index in 0..constant.ty().length() {
            self.initialise(address + index * element, constant.part(index as u32));
        }
    }

    fn gep(&mut self, gep: Ir<'m>, values: &HashMap<Ir<'m>, Value>) -> Value {
        let mut operands = Vec::new();
        for index in 0..gep.operand_count() {
            operands.push(self.value(gep.operand_at(index), values));
        }
        let mut ty = gep.source_element().unwrap();
        let mut address = operands[0].bits;
        for (index, operand) in operands.iter().enumerate().skip(1) {
            if index > 1 {
                assert!(!ty.is_struct());
                ty = ty.element(0).unwrap();
            }
            let signed = extend(operand.bits, gep.operand_at(index as u32).ty().bits().unwrap());
            address = address.wrapping_add((signed as u64).wrapping_mul(self.layout.size_of(ty)));
        }
        let data: Vec<usize> = operands.iter().filter_map(|operand| operand.origin).collect();
        let origin = (!data.is_empty()).then(|| self.instance(data, Vec::new()));
        Value {
            bits: address,
            second: 0,
            origin,
        }
    }

    fn branch(&mut self, function: Ir<'m>, block: usize, condition: Value) {
        let branch = self.instance(condition.origin.into_iter().collect(), Vec::new());
        let closes = self.flows[&function].closes[block];
        let frame = self.frames.last_mut().unwrap();
        // A loop's branch replaces its previous instance.
        frame.retain(|open| open.block != block);
        frame.push(Open { block, branch, closes });
    }

    fn step(&mut self, function: Ir<'m>, block: usize, at: Ir<'m>, values: &mut HashMap<Ir<'m>, Value>) -> Step<'m> {
        let opcode = at.opcode().unwrap();
        let operands: Vec<Value> = match opcode {
            LLVMBr | LLVMSwitch | LLVMCall => Vec::new(),
            LLVMGetElementPtr => Vec::new(),
            _ => (0..at.operand_count())
                .map(|index| self.value(at.operand_at(index), values))
                .collect(),
        };
        let width = |value: Ir<'m>| value.ty().bits().unwrap_or(64);
        let operand_width = || width(at.operand_at(0));
        let origins = |operands: &[Value]| {
            operands
                .iter()
                .filter_map(|operand| operand.origin)
                .collect::<Vec<usize>>()
        };
        let (one, other) = (
            operands.first().copied().unwrap_or_default(),
            operands.get(1).copied().unwrap_or_default(),
        );
        let bits = match opcode {
            LLVMBr => {
                let successors = at.successors();
                if successors.len() == 1 {
                    return Step::Jump(successors[0]);
                }
                let condition = self.value(at.operand_at(0), values);
                self.branch(function, block, condition);
                return Step::Jump(successors[usize::from(condition.bits & 1 == 0)]);
            }
            LLVMSwitch => {
                let successors = at.successors();
                let condition = self.value(at.operand_at(0), values);
                self.branch(function, block, condition);
                let taken = (1..successors.len())
                    .find(|&index| at.operand_at(2 * index as u32).unsigned() == Some(condition.bits));
                return Step::Jump(successors[taken.unwrap_or(0)]);
            }
            LLVMRet => return Step::Return(one),
            LLVMAlloca => {
                let size = self.size(at.allocated_type().unwrap());
                let address = self.next;
                self.next += size.next_multiple_of(16) + 16;
                values.insert(
                    at,
                    Value {
                        bits: address,
                        ..Value::default()
                    },
                );
                return Step::Next;
            }
            LLVMLoad => {
                let size = self.size(at.ty());
                let node = self.read(one.bits, size, one.origin);
                let bits = self.peek(one.bits, size);
                values.insert(
                    at,
                    Value {
                        bits,
                        second: 0,
                        origin: Some(node),
                    },
                );
                return Step::Next;
            }
            LLVMStore => {
                let size = self.size(at.operand_at(0).ty());
                self.write(other.bits, size, one.origin, other.origin);
                self.poke(other.bits, size, one.bits);
                return Step::Next;
            }
            LLVMAtomicRMW => {
                let size = self.size(at.ty());
                assert_eq!(at.atomic_operation(), Some(AtomicOperation::LLVMAtomicRMWBinOpAdd));
                let before = self.peek(one.bits, size);
                let loaded = self.read(one.bits, size, one.origin);
                let sum = self.instance([Some(loaded), other.origin].into_iter().flatten().collect(), Vec::new());
                self.write(one.bits, size, Some(sum), one.origin);
                self.poke(one.bits, size, before.wrapping_add(other.bits));
                values.insert(
                    at,
                    Value {
                        bits: before,
                        second: 0,
                        origin: Some(loaded),
                    },
                );
                return Step::Next;
            }
            LLVMAtomicCmpXchg => {
                let new = operands[2];
                let size = self.size(at.operand_at(2).ty());
                let before = self.peek(one.bits, size);
                let loaded = self.read(one.bits, size, one.origin);
                let compared = self.instance([Some(loaded), other.origin].into_iter().flatten().collect(), Vec::new());
                let same = before == other.bits;
                if same {
                    let stored = self.instance(new.origin.into_iter().collect(), vec![compared]);
                    self.write(one.bits, size, Some(stored), one.origin);
                    self.poke(one.bits, size, new.bits);
                }
                let pair = Value {
                    bits: before,
                    second: same.into(),
                    origin: Some(compared),
                };
                values.insert(at, pair);
                return Step::Next;
            }
            LLVMExtractValue => match at.indices()[0] {
                0 => one.bits,
                _ => one.second,
            },
            LLVMSelect => {
                let chosen = if one.bits & 1 != 0 { other } else { operands[2] };
                let node = self.instance(chosen.origin.into_iter().collect(), one.origin.into_iter().collect());
                values.insert(
                    at,
                    Value {
                        origin: Some(node),
                        ..chosen
                    },
                );
                return Step::Next;
            }
            LLVMCall => {
                if let Some(value) = self.call(at, values) {
                    values.insert(at, value);
                }
                return Step::Next;
            }
            LLVMGetElementPtr => {
                let value = self.gep(at, values);
                values.insert(at, value);
                return Step::Next;
            }
            LLVMAdd => one.bits.wrapping_add(other.bits),
            LLVMSub => one.bits.wrapping_sub(other.bits),
            LLVMMul => one.bits.wrapping_mul(other.bits),
            LLVMAnd => one.bits & other.bits,
            LLVMOr => one.bits | other.bits,
            LLVMXor => one.bits ^ other.bits,
            LLVMZExt | LLVMTrunc | LLVMPtrToInt | LLVMIntToPtr | LLVMFreeze => one.bits,
            LLVMSExt => extend(one.bits, operand_width()) as u64,
            LLVMICmp => {
                let (a, b) = (extend(one.bits, operand_width()), extend(other.bits, operand_width()));
                u64::from(match at.predicate().unwrap() {
                    LLVMIntEQ => one.bits == other.bits,
                    LLVMIntNE => one.bits != other.bits,
                    LLVMIntULT => one.bits < other.bits,
                    LLVMIntULE => one.bits <= other.bits,
                    LLVMIntUGT => one.bits > other.bits,
                    LLVMIntUGE => one.bits >= other.bits,
                    LLVMIntSLT => a < b,
                    LLVMIntSLE => a <= b,
                    LLVMIntSGT => a > b,
                    LLVMIntSGE => a >= b,
                })
            }
            other => panic!("{other:?}"),
        };
        let node = self.instance(origins(&operands), Vec::new());
        let kept = match width(at) {
            64.. => u64::MAX,
            bits => (1 << bits) - 1,
        };
        values.insert(
            at,
            Value {
                bits: bits & kept,
                second: 0,
                origin: Some(node),
            },
        );
        Step::Next
    }

    fn call(&mut self, at: Ir<'m>, values: &HashMap<Ir<'m>, Value>) -> Option<Value> {
        let callee = at.called_value().unwrap();
        let name = callee.name();
        if ["llvm.dbg.", "llvm.lifetime."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            return None;
        }
        let arguments: Vec<Value> = (0..at.argument_count())
            .map(|index| self.value(at.operand_at(index), values))
            .collect();
        if callee.has_body() {
            return Some(self.run(callee, &arguments));
        }
        let [one, other, bytes, ..] = arguments[..] else {
            panic!("{name}")
        };
        if name.starts_with("llvm.memcpy") || name.starts_with("llvm.memmove") {
            self.copy((one.bits, other.bits, bytes.bits), (one.origin, other.origin));
            return None;
        }
        if name.starts_with("llvm.memset") {
            self.write(one.bits, bytes.bits, other.origin, one.origin);
            (0..bytes.bits).for_each(|index| self.poke(one.bits + index, 1, other.bits));
            return None;
        }
        assert_eq!(name, "memcmp");
        let first = self.read(one.bits, bytes.bits, one.origin);
        let second = self.read(other.bits, bytes.bits, other.origin);
        let differs = (0..bytes.bits).any(|index| self.peek(one.bits + index, 1) != self.peek(other.bits + index, 1));
        let origin = Some(self.instance(vec![first, second], Vec::new()));
        Some(Value {
            bits: differs.into(),
            second: 0,
            origin,
        })
    }
}

fn extend(bits: u64, width: u32) -> i64 {
    let unused = 64 - width.min(64);
    (bits << unused) as i64 >> unused
}

enum Step<'m> {
    Next,
    Jump(Block<'m>),
    Return(Value),
}
