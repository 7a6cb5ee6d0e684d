//! What the stores and calls of a function are given, by following values forward through its machine code until nothing changes.
//!
//! The state at an instruction has a [`Value`] for each register and for each word of the frame. Where paths meet, what both have in
//! common stays. Before each instruction the variables that debug info has in registers there are added to what is known ([`settle`]).
//! A call leaves what the calling convention says, and returns what debug info says. Words of the frame whose address was
//! taken are forgotten whenever somebody else may have written to them.

use std::collections::BTreeMap;
use std::ops::Range;

use crashproof_stacks::registers::{ARGUMENTS, BY_NUMBER, CLOBBERED};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::entries::{FrameBase, Location};
use super::functions::{Function, Variable};
use super::value::{Address, Value};
use super::{Callee, DebugInfo, UnitInfo};
use crate::layout;
use crate::pointer::{Pointer, Shapes, Type, TypeId};
use crate::table::{Field, Target, TypeIndex};

/// Functions with more instructions times variables are not followed.
const MAX_WORK: usize = 20_000_000;
const MIN_VARIABLES: usize = 400;
/// Bytes.
const LONGEST_INSTRUCTION: usize = 15;
/// How often a state may change before it is given up.
const MAX_CHANGES: u32 = 40;

/// Where a function that has a frame pointer keeps its caller's, and what its own points to.
const SAVED_FRAME_POINTER: i64 = -16;

/// What was found of a function.
#[derive(Default)]
pub(super) struct Followed {
    /// By address.
    pub stores: FxHashMap<u64, Store>,
    /// By return address.
    pub calls: FxHashMap<u64, Call>,
    /// What it returns, in terms of its own arguments: as far as all returns agree.
    pub returned: Option<Address>,
}

pub(super) struct Store {
    pub target: Target,
    pub is_copy: bool,
}

pub(super) struct Call {
    pub callee: Callee,
    /// What the argument registers point to.
    pub arguments: Vec<Target>,
}

pub(super) fn follow(module: &DebugInfo, unit_index: usize, function: &Function) -> Followed {
    // Damaged debug info may claim any range, any number of times.
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let bytes = function.ranges.iter().map(length).fold(0, u64::saturating_add);
    if bytes > (MAX_WORK / MIN_VARIABLES * LONGEST_INSTRUCTION) as u64 {
        return Followed::default();
    }
    let instructions: Vec<Instruction> = function
        .ranges
        .iter()
        .flat_map(|range| module.code.instructions(range))
        .collect();
    if instructions
        .len()
        .saturating_mul(function.variables.len().max(MIN_VARIABLES))
        > MAX_WORK
    {
        return Followed::default();
    }
    let mut flow = Flow {
        module,
        unit: module.unit(unit_index),
        unit_index,
        function,
        graph: Graph::new(module, &instructions),
        instructions: &instructions,
        info: InstructionInfoFactory::new(),
        escaped: i64::MAX,
    };
    // The first time shows which words of the frame have their address taken.
    flow.states();
    let states = flow.states();
    flow.results(&states)
}

/// Where control goes from each instruction.
struct Graph {
    by_address: FxHashMap<u64, usize>,
    /// Instructions that begin a block.
    leaders: FxHashSet<usize>,
    /// Of indirect jumps.
    tables: Vec<usize>,
}

impl Graph {
    fn new(module: &DebugInfo, instructions: &[Instruction]) -> Graph {
        let by_address: FxHashMap<u64, usize> = instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| (instruction.ip(), index))
            .collect();
        let mut leaders: FxHashSet<usize> = FxHashSet::default();
        let mut tables: Vec<usize> = Vec::new();
        let has_indirect = instructions
            .iter()
            .any(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
        for (index, instruction) in instructions.iter().enumerate() {
            if is_branch(instruction) {
                leaders.extend(by_address.get(&instruction.near_branch_target()));
            }
            let before = index.checked_sub(1).map(|before| &instructions[before]);
            let goes_on = |before: &Instruction| {
                falls_through(before) && !is_branch(before) && before.next_ip() == instruction.ip()
            };
            if !before.is_some_and(goes_on) {
                leaders.insert(index);
            }
            if has_indirect && instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
                let table = match instruction.is_ip_rel_memory_operand() {
                    true => instruction.ip_rel_memory_address(),
                    false => instruction.memory_displacement64(),
                };
                if module.code.is_data(table) {
                    let targets = module.code.jump_table(table, |target| by_address.contains_key(&target));
                    tables.extend(targets.iter().map(|target| by_address[target]));
                }
            }
        }
        leaders.extend(&tables);
        tables.sort_unstable();
        tables.dedup();
        Graph {
            by_address,
            leaders,
            tables,
        }
    }

    fn successors(&self, index: usize, instructions: &[Instruction]) -> Vec<usize> {
        let instruction = &instructions[index];
        let mut successors = Vec::new();
        if is_branch(instruction) {
            successors.extend(self.by_address.get(&instruction.near_branch_target()));
        }
        if instruction.flow_control() == FlowControl::IndirectBranch {
            successors.extend(&self.tables);
        }
        if falls_through(instruction) {
            successors.extend(self.by_address.get(&instruction.next_ip()));
        }
        successors
    }
}

fn is_branch(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    ) && instruction.near_branch_target() != 0
}

/// Whether the function ends there: by returning, or by jumping to another.
fn leaves(instruction: &Instruction, graph: &Graph) -> bool {
    match instruction.flow_control() {
        FlowControl::Return => true,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            !graph.by_address.contains_key(&instruction.near_branch_target())
        }
        FlowControl::IndirectBranch => graph.tables.is_empty(),
        _ => false,
    }
}

fn falls_through(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception
    )
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    registers: [Value; 16],
    /// Words of the frame, by their distance from what the stack pointer was before the call.
    frame: BTreeMap<i64, Value>,
}

impl State {
    fn unknown() -> State {
        State {
            registers: [const { Value::UNKNOWN }; 16],
            frame: BTreeMap::new(),
        }
    }

    fn entry() -> State {
        let mut state = State::unknown();
        state.registers[index(Register::RSP)] = Value::Frame(-8);
        for (register, number) in ARGUMENTS.into_iter().zip(0..) {
            state.registers[index(register)] = Value::to(Pointer {
                argument: Some((number, Some(0))),
                ..Pointer::default()
            });
        }
        state
    }

    fn get(&self, register: Register) -> &Value {
        match register.is_gpr() {
            true => &self.registers[index(register)],
            false => &Value::UNKNOWN,
        }
    }

    fn set(&mut self, register: Register, value: Value) {
        if register.is_gpr() {
            self.registers[index(register)] = value;
        }
    }

    /// What an instruction makes of which nothing is known.
    fn make(&mut self, address: u64) -> Value {
        for value in self.registers.iter_mut().chain(self.frame.values_mut()) {
            value.forget(address);
        }
        Value::made_at(address)
    }

    fn join(&self, other: &State, shapes: &Shapes) -> State {
        let mut joined = State::unknown();
        for (number, value) in joined.registers.iter_mut().enumerate() {
            *value = self.registers[number].join(&other.registers[number], shapes);
        }
        for (at, value) in &self.frame {
            if let Some(other) = other.frame.get(at) {
                joined.frame.insert(*at, value.join(other, shapes));
            }
        }
        joined
    }

    fn forget_frame(&mut self, from: i64, to: i64) {
        if from < to {
            let gone: Vec<i64> = self.frame.range(from..to).map(|(at, _)| *at).collect();
            for at in gone {
                self.frame.remove(&at);
            }
        }
    }
}

fn index(register: Register) -> usize {
    register.full_register().number()
}

struct Flow<'f> {
    module: &'f DebugInfo,
    unit: &'f UnitInfo,
    unit_index: usize,
    function: &'f Function,
    instructions: &'f [Instruction],
    graph: Graph,
    info: InstructionInfoFactory,
    /// The lowest word of the frame whose address is taken; what lies above it may belong to the same object.
    escaped: i64,
}

impl Flow<'_> {
    fn shapes(&self) -> &Shapes {
        &self.unit.types.shapes
    }

    /// The state in which each block is entered.
    fn states(&mut self) -> FxHashMap<usize, State> {
        let mut states: FxHashMap<usize, State> = FxHashMap::default();
        let mut changes: FxHashMap<usize, u32> = FxHashMap::default();
        let mut pending: Vec<usize> = Vec::new();
        if let Some(&entry) = self.graph.by_address.get(&self.function.entry) {
            states.insert(entry, State::entry());
            pending.push(entry);
        }
        let mut leaders: Vec<usize> = self.graph.leaders.iter().copied().collect();
        leaders.sort_unstable();
        let mut others = leaders.into_iter();
        loop {
            while let Some(block) = pending.pop() {
                let mut state = states[&block].clone();
                let mut at = block;
                loop {
                    self.step(at, &mut state);
                    let next = self.graph.successors(at, self.instructions);
                    if let [only] = next[..]
                        && only == at + 1
                        && !self.graph.leaders.contains(&only)
                    {
                        at = only;
                        continue;
                    }
                    for successor in next {
                        let joined = match states.get(&successor) {
                            Some(known) => {
                                let joined = known.join(&state, self.shapes());
                                if joined == *known {
                                    continue;
                                }
                                joined
                            }
                            None => state.clone(),
                        };
                        let count = changes.entry(successor).or_default();
                        *count += 1;
                        let joined = if *count > MAX_CHANGES { State::unknown() } else { joined };
                        if states.get(&successor) != Some(&joined) {
                            states.insert(successor, joined);
                            pending.push(successor);
                        }
                    }
                    break;
                }
            }
            // Code that nothing leads to, as far as can be seen: handlers of exceptions.
            let unreached = others.find(|leader| !states.contains_key(leader) && !self.is_padding(*leader));
            let Some(unreached) = unreached else { break };
            states.insert(unreached, State::unknown());
            pending.push(unreached);
        }
        states
    }

    fn is_padding(&self, leader: usize) -> bool {
        let mut block = self.instructions[leader..].iter().zip(leader..);
        let after = block.find(|(instruction, _)| !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3));
        after.is_none_or(|(_, index)| index > leader && self.graph.leaders.contains(&index))
    }

    fn results(&mut self, states: &FxHashMap<usize, State>) -> Followed {
        let mut followed = Followed::default();
        let mut returned: Option<Value> = None;
        for (&block, state) in states {
            let mut state = state.clone();
            let mut at = block;
            while at < self.instructions.len() && (at == block || !self.graph.leaders.contains(&at)) {
                let instruction = self.instructions[at];
                self.apply_variables(instruction.ip(), &mut state);
                if let FlowControl::Call | FlowControl::IndirectCall = instruction.flow_control() {
                    let arguments = ARGUMENTS.map(|register| self.target(state.get(register), None, true));
                    let call = Call {
                        callee: self.callee(&instruction),
                        arguments: arguments.into(),
                    };
                    followed.calls.insert(instruction.next_ip(), call);
                } else if leaves(&instruction, &self.graph) {
                    let value = match instruction.flow_control() {
                        FlowControl::Return => state.get(Register::RAX).clone(),
                        _ => Value::UNKNOWN,
                    };
                    returned = Some(match returned {
                        Some(other) => value.join(&other, self.shapes()),
                        None => value,
                    });
                } else if let Some(store) = self.store(&instruction, &state) {
                    followed.stores.insert(instruction.ip(), store);
                }
                self.execute(&instruction, &mut state);
                at += 1;
            }
        }
        if let Some(Value::Pointer(address)) = returned {
            followed.returned = Some(address);
        }
        followed
    }

    fn store(&mut self, instruction: &Instruction, state: &State) -> Option<Store> {
        let written = self.written(instruction)?;
        let is_copy = instruction.is_string_instruction();
        let size = match is_copy {
            false => Some(written.memory_size().size() as u64),
            true => self.string_size(instruction, &written, state),
        };
        let address = self.address_of(instruction, &written, state);
        let mut target = self.target(&address, size, is_copy);
        if let (Target::Place(place), true) = (&mut target, is_copy) {
            // It may be more than the members that it begins with.
            let outermost = place.levels.iter().rposition(|level| level.array.is_none());
            place.levels.drain(..outermost.unwrap_or(0));
        }
        Some(Store { target, is_copy })
    }

    /// Bytes that a string instruction writes, if their number is a constant.
    fn string_size(&self, instruction: &Instruction, written: &UsedMemory, state: &State) -> Option<u64> {
        let element = written.memory_size().size() as u64;
        match instruction.has_rep_prefix() {
            true => u64::try_from(state.get(Register::RCX).as_constant()?)
                .ok()?
                .checked_mul(element),
            false => Some(element),
        }
    }

    fn target(&self, value: &Value, size: Option<u64>, is_copy: bool) -> Target {
        let Value::Pointer(address) = value else {
            return Target::Unknown;
        };
        if address.is_some_byte() && size != Some(1) {
            return Target::Unknown;
        }
        let pointer = address.resolve(self.shapes());
        // How many pieces a copy has, or what a pointer is for, is not known.
        let bytes = size.filter(|_| !is_copy).unwrap_or(1);
        if self.is_beyond(&pointer, bytes) {
            return Target::Unknown;
        }
        let target = pointer.target(size, &self.function.name, self.shapes());
        match (target, size) {
            (Target::Place(place), Some(size)) if !is_copy => match place.levels.first() {
                Some(level) if self.is_plausible(level.ty, level.offset, size) => Target::Place(place),
                _ => Target::Unknown,
            },
            (target, _) => target,
        }
    }

    /// Whether the bytes are not of the object that the address is in: it is a part of another, such as the base of a class or the header of a
    /// record, or the next element of an array unseen.
    fn is_beyond(&self, pointer: &Pointer, bytes: u64) -> bool {
        let Some((object, offset)) = pointer.object.zip(u64::try_from(pointer.offset).ok()) else {
            return false;
        };
        let is_open = match self.shapes().get(object) {
            Type::Composite(index) => layout::is_open_ended(&self.shapes().composites[index as usize]),
            Type::Array { size, .. } => size == 0,
            _ => return false,
        };
        let end = offset.saturating_add(bytes);
        !is_open && self.shapes().size(object).is_some_and(|size| end > size)
    }

    /// Whether the bytes are whole fields: anything else speaks for another type.
    fn is_plausible(&self, ty: TypeIndex, offset: u64, size: u64) -> bool {
        let composites = &self.shapes().composites;
        let info = &composites[ty as usize];
        let mut fields = layout::overlapping(info, offset, size).peekable();
        if fields.peek().is_none() {
            let open_end = info.fields.last().is_some_and(|field| field.elements == Some(0));
            return open_end && size > 1;
        }
        let end = offset.saturating_add(size);
        let is_whole = |field: &Field| {
            let field_end = field.offset.saturating_add(field.size);
            if offset <= field.offset && field_end <= end {
                return true;
            }
            let from = offset.max(field.offset) - field.offset;
            let to = end.min(field_end) - field.offset;
            let element = match field.elements {
                Some(elements) => field.size.checked_div(elements).unwrap_or(0),
                None => field.size,
            };
            if let Some(ty) = field.ty
                && element > 0
                && from / element == (to - 1) / element
            {
                return self.is_plausible(ty, from % element, to - from);
            }
            // What is wider than an element of bytes is as likely an object of another type there.
            let of_bytes = element == 1 && to - from > 1;
            field.elements.is_some()
                && element > 0
                && !of_bytes
                && from.is_multiple_of(element)
                && to.is_multiple_of(element)
        };
        match info.is_union {
            true => fields.any(is_whole),
            false => fields.all(is_whole),
        }
    }

    fn callee(&self, instruction: &Instruction) -> Callee {
        let code = &self.module.code;
        let target = match instruction.flow_control() {
            FlowControl::Call => instruction.near_branch_target(),
            _ if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
            _ => return Callee::Unknown,
        };
        match code.external(target) {
            Some(name) => Callee::External(name.to_owned()),
            None if instruction.flow_control() == FlowControl::Call => Callee::Function(target),
            None => Callee::Unknown,
        }
    }

    fn step(&mut self, at: usize, state: &mut State) {
        let instruction = self.instructions[at];
        self.apply_variables(instruction.ip(), state);
        self.execute(&instruction, state);
    }

    /// What debug info says of the registers before the instruction at an address.
    fn apply_variables(&self, address: u64, state: &mut State) {
        let shapes = self.shapes();
        let mut declared: [Option<Value>; 16] = [const { None }; 16];
        for variable in self.variables(address) {
            if let Location::Register { register, add } = variable.location
                && let Some(&register) = BY_NUMBER.get(usize::from(register))
                && let Some(object) = self.declared_object(variable.ty)
            {
                let pointer = Value::to(Pointer::to(object)).add(Value::constant(add.wrapping_neg()));
                let said = &mut declared[index(register)];
                *said = Some(match said.take() {
                    Some(other) => agree(&other, &pointer, shapes),
                    None => pointer,
                });
            }
        }
        for (known, declared) in state.registers.iter_mut().zip(declared) {
            if let Some(declared) = declared {
                *known = settle(known, &declared, shapes);
            }
        }
    }

    fn variables(&self, address: u64) -> impl Iterator<Item = &Variable> {
        let variables = self.function.variables.iter();
        variables.filter(move |variable| variable.range.contains(&address))
    }

    /// What a variable of that type points to, if that has parts.
    fn declared_object(&self, ty: TypeId) -> Option<TypeId> {
        let pointee = self.unit.types.pointee(ty)?;
        matches!(self.shapes().get(pointee), Type::Composite(_) | Type::Array { .. }).then_some(pointee)
    }

    fn execute(&mut self, instruction: &Instruction, state: &mut State) {
        let address = instruction.ip();
        let destination = instruction.op0_register();
        let is_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
        match instruction.mnemonic() {
            Mnemonic::Mov if is_register => {
                let value = self.operand(instruction, 1, state);
                self.assign(destination, value, address, state);
            }
            Mnemonic::Movsxd | Mnemonic::Movsx | Mnemonic::Movzx if is_register => {
                // Indices do not overflow.
                let value = match instruction.op1_kind() {
                    OpKind::Register if instruction.op1_register().size() >= 4 => {
                        integer(state.get(instruction.op1_register()).clone())
                    }
                    _ => None,
                };
                let value = value.unwrap_or_else(|| state.make(address));
                state.set(destination, value);
            }
            Mnemonic::Cdqe => {
                let value = integer(state.get(Register::RAX).clone()).unwrap_or_else(|| state.make(address));
                state.set(Register::RAX, value);
            }
            Mnemonic::Lea if is_register => {
                let value = self.address(instruction, state);
                if self.is_somewhere_in_frame(instruction, &value, state) {
                    self.escaped = i64::MIN;
                }
                self.assign(destination, value, address, state);
            }
            Mnemonic::Add | Mnemonic::Sub if is_register => {
                let (left, right) = (state.get(destination).clone(), self.operand(instruction, 1, state));
                let value = match instruction.mnemonic() {
                    Mnemonic::Add => left.add(right),
                    _ => left.subtract(right),
                };
                if destination != Register::RSP {
                    self.escape_operands(instruction, state);
                }
                self.assign(destination, value, address, state);
            }
            Mnemonic::Inc | Mnemonic::Dec if is_register => {
                let step = if instruction.mnemonic() == Mnemonic::Inc { 1 } else { -1 };
                let value = state.get(destination).clone().add(Value::constant(step));
                self.assign(destination, value, address, state);
            }
            Mnemonic::Shl if is_register && instruction.op1_kind() == OpKind::Immediate8 => {
                let factor = 1u64.checked_shl(instruction.immediate8().into()).unwrap_or(0);
                let value = state.get(destination).clone().multiply(factor);
                self.assign(destination, value, address, state);
            }
            Mnemonic::Imul if is_register && instruction.op_count() == 3 => {
                let value = self.operand(instruction, 1, state).multiply(instruction.immediate(2));
                self.assign(destination, value, address, state);
            }
            Mnemonic::Xor | Mnemonic::Sub
                if is_register
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == destination =>
            {
                state.set(destination, Value::constant(0));
            }
            Mnemonic::Push => {
                let value = match instruction.op0_kind() {
                    OpKind::Register => state.get(destination).clone(),
                    _ => Value::UNKNOWN,
                };
                if let Value::Frame(at) = value {
                    self.escaped = self.escaped.min(at);
                }
                let top = state.get(Register::RSP).clone().add(Value::constant(-8));
                if let Value::Frame(at) = top {
                    state.forget_frame(at.saturating_sub(7), at.saturating_add(8));
                    state.frame.insert(at, value);
                }
                state.set(Register::RSP, top);
            }
            Mnemonic::Pop => {
                let top = state.get(Register::RSP).clone();
                let value = match top {
                    Value::Frame(at) => state.frame.get(&at).cloned(),
                    _ => None,
                };
                let value = value.unwrap_or_else(|| state.make(address));
                state.set(Register::RSP, top.add(Value::constant(8)));
                match is_register {
                    true => self.assign(destination, value, address, state),
                    false => state.forget_frame(i64::MIN, i64::MAX),
                }
            }
            Mnemonic::Leave => {
                let base = state.get(Register::RBP).clone();
                let value = match base {
                    Value::Frame(at) => state.frame.get(&at).cloned(),
                    _ => None,
                };
                state.set(Register::RBP, value.unwrap_or(Value::UNKNOWN));
                state.set(Register::RSP, base.add(Value::constant(8)));
            }
            Mnemonic::Call => self.call(instruction, state),
            Mnemonic::Ret => {}
            mnemonic if is_conditional_move(mnemonic) && is_register => {
                self.escape_operands(instruction, state);
                let moved = self.operand(instruction, 1, state);
                let value = state.get(destination).join(&moved, self.shapes());
                self.assign(destination, value, address, state);
            }
            _ => self.other(instruction, state),
        }
    }

    /// A result in a register. An address in the frame may go anywhere from there, unless it is what the frame is addressed by: the
    /// stack pointer, or the frame pointer, which points to the caller's.
    fn assign(&mut self, register: Register, value: Value, address: u64, state: &mut State) {
        if let &Value::Frame(at) = &value
            && !addresses_frame(register, &value)
        {
            self.escaped = self.escaped.min(at);
        }
        let value = match register.size() {
            8 => Some(value),
            4 => integer(value),
            _ => None,
        };
        let value = match value {
            Some(value) if value != Value::UNKNOWN => value,
            _ => state.make(address),
        };
        state.set(register, value);
    }

    /// Addresses in the frame that an instruction computes with or stores.
    fn escape_operands(&mut self, instruction: &Instruction, state: &State) {
        let is_exchange = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd);
        let first = if is_exchange { 0 } else { 1 };
        for operand in first..instruction.op_count() {
            if instruction.op_kind(operand) == OpKind::Register
                && let Value::Frame(at) = *state.get(instruction.op_register(operand))
            {
                self.escaped = self.escaped.min(at);
            }
        }
    }

    /// Whether the address is one of the frame at an index that is not known, so that it may be in any array there.
    fn is_somewhere_in_frame(&self, instruction: &Instruction, address: &Value, state: &State) -> bool {
        let registers = [instruction.memory_base(), instruction.memory_index()];
        !matches!(address, Value::Frame(_))
            && registers
                .iter()
                .any(|&register| addresses_frame(register, state.get(register)))
    }

    fn operand(&mut self, instruction: &Instruction, operand: u32, state: &State) -> Value {
        match instruction.op_kind(operand) {
            OpKind::Register => state.get(instruction.op_register(operand)).clone(),
            OpKind::Memory => {
                let address = self.address(instruction, state);
                match instruction.memory_size().size() {
                    8 => self.load(&address, instruction.ip(), state),
                    _ => Value::UNKNOWN,
                }
            }
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Value::UNKNOWN,
            _ => instruction
                .try_immediate(operand)
                .map_or(Value::UNKNOWN, |immediate| Value::constant(immediate as i64)),
        }
    }

    /// What the memory operand's address is.
    fn address(&self, instruction: &Instruction, state: &State) -> Value {
        if instruction.is_ip_rel_memory_operand() {
            return self.global(instruction.ip_rel_memory_address());
        }
        if instruction.has_segment_prefix() {
            return Value::UNKNOWN;
        }
        self.sum(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64(),
            state,
        )
    }

    fn address_of(&self, instruction: &Instruction, memory: &UsedMemory, state: &State) -> Value {
        if instruction.is_ip_rel_memory_operand() || instruction.has_segment_prefix() {
            return self.address(instruction, state);
        }
        let (base, index) = (memory.base(), memory.index());
        self.sum(base, index, memory.scale(), memory.displacement(), state)
    }

    fn sum(&self, base: Register, index: Register, scale: u32, displacement: u64, state: &State) -> Value {
        // A table at a fixed address, in code that is.
        let fixed = self.global(displacement);
        let has_base = base != Register::None;
        let mut sum = match has_base {
            true => state.get(base).clone(),
            false => fixed.clone(),
        };
        if index != Register::None {
            sum = sum.add(state.get(index).clone().multiply(scale.into()));
        }
        match has_base {
            true => sum.add(Value::constant(displacement as i64)),
            false => sum,
        }
    }

    /// The variable at a fixed address, or the number.
    fn global(&self, address: u64) -> Value {
        let globals = &self.unit.globals;
        let before = globals.partition_point(|global| global.address <= address);
        let number = Value::constant(address as i64);
        let Some(global) = before.checked_sub(1).map(|last| globals[last]) else {
            return number;
        };
        let offset = address - global.address;
        if offset >= self.shapes().size(global.ty).unwrap_or(8) {
            return number;
        }
        Value::to(Pointer::to(global.ty)).add(Value::constant(offset as i64))
    }

    /// What a word of memory holds; `UNKNOWN` if nothing is known of it.
    fn load(&self, address: &Value, at: u64, state: &State) -> Value {
        match address {
            Value::Pointer(address) => self.load_declared(&address.resolve(self.shapes())),
            Value::Frame(word) => self.load_frame(*word, at, state),
            _ => Value::UNKNOWN,
        }
    }

    fn load_declared(&self, pointer: &Pointer) -> Value {
        let pointee = self.shapes().at(pointer).and_then(|ty| self.unit.types.pointee(ty));
        pointee.map_or(Value::UNKNOWN, |ty| Value::to(Pointer::to(ty)))
    }

    fn load_frame(&self, word: i64, at: u64, state: &State) -> Value {
        let stored = state.frame.get(&word).cloned().unwrap_or(Value::UNKNOWN);
        let mut declared: Option<(Value, bool)> = None;
        for variable in self.variables(at) {
            let Some(start) = self.frame_address(variable, state) else {
                continue;
            };
            let size = self.shapes().size(variable.ty).unwrap_or(8);
            let Some(offset) = word
                .checked_sub(start)
                .filter(|offset| (0..size as i64).contains(offset))
            else {
                continue;
            };
            let mut holder = Pointer::to(variable.ty);
            holder.advance(offset);
            let held = self.load_declared(&holder);
            let is_object = matches!(&held, Value::Pointer(held) if held.base.object.is_some_and(|ty| {
                matches!(self.shapes().get(ty), Type::Composite(_) | Type::Array { .. })
            }));
            if is_object {
                declared = Some(match declared {
                    Some((other, is_fixed)) => (agree(&other, &held, self.shapes()), is_fixed && variable.is_fixed),
                    None => (held, variable.is_fixed),
                });
            }
        }
        match declared {
            None => stored,
            Some((declared, is_fixed)) => match settle(&stored, &declared, self.shapes()) {
                // The variable is read, whatever was cast to its type.
                Value::Doubtful if is_fixed => declared,
                settled => settled,
            },
        }
    }

    /// Where in the frame a variable is.
    fn frame_address(&self, variable: &Variable, state: &State) -> Option<i64> {
        let from = |register: u16, offset: i64| {
            let register = *BY_NUMBER.get(usize::from(register))?;
            match state.get(register) {
                Value::Frame(at) => Some(at.wrapping_add(offset)),
                _ => None,
            }
        };
        match (variable.location, self.function.frame_base) {
            (Location::Frame(offset), Some(FrameBase::Cfa)) => Some(offset),
            (Location::Frame(offset), Some(FrameBase::Register(register))) => from(register, offset),
            (Location::At { register, offset }, _) => from(register, offset),
            _ => None,
        }
    }

    fn call(&mut self, instruction: &Instruction, state: &mut State) {
        let address = instruction.ip();
        let returned = self.returned(instruction, state);
        state.forget_frame(self.escaped, i64::MAX);
        for register in CLOBBERED {
            state.set(register, Value::UNKNOWN);
        }
        let value = returned.unwrap_or_else(|| state.make(address));
        state.set(Register::RAX, value);
    }

    /// What a function of the module returns for the arguments that it is given.
    fn returned(&self, call: &Instruction, state: &State) -> Option<Value> {
        let Callee::Function(entry) = self.callee(call) else {
            return None;
        };
        let summary = self.module.returned(self.unit_index, entry);
        if let Some(summary) = summary {
            if let Some((argument, Some(offset))) = summary.base.argument
                && let Some(&register) = ARGUMENTS.get(argument as usize)
                && let Value::Pointer(passed) = state.get(register)
                && (passed.base.object.is_some() || summary.base.object.is_none())
            {
                let start = passed.clone().advance(offset);
                let varied = summary.steps.iter().try_fold(start, |at, &step| at.vary(step));
                return varied.map(Value::Pointer);
            }
            if summary.base.object.is_some() {
                let base = summary.base.without_arguments();
                return Some(Value::Pointer(Address { base, ..summary }));
            }
        }
        let object = self.unit.types.like(self.module.declared_return(entry)?)?;
        Some(Value::to(Pointer::to(object)))
    }

    /// Any other instruction: what it writes is new.
    fn other(&mut self, instruction: &Instruction, state: &mut State) {
        self.escape_operands(instruction, state);
        if let Some(written) = self.written(instruction) {
            let address = self.address_of(instruction, &written, state);
            if self.is_somewhere_in_frame(instruction, &address, state) {
                self.escaped = i64::MIN;
            }
            match address {
                Value::Frame(at) => {
                    let size = match instruction.is_string_instruction() {
                        true => i64::MAX - at.max(0),
                        false => written.memory_size().size() as i64,
                    };
                    state.forget_frame(at.saturating_sub(7), at.saturating_add(size));
                    let is_move = instruction.mnemonic() == Mnemonic::Mov && size == 8;
                    if is_move && instruction.op1_kind() == OpKind::Register {
                        let value = state.get(instruction.op1_register()).clone();
                        state.frame.insert(at, value);
                    }
                }
                _ => state.forget_frame(self.escaped, i64::MAX),
            }
            self.learn_from_assignment(instruction, &address, state);
        }
        let address = instruction.ip();
        let info = self.info.info(instruction);
        let written = info.used_registers().iter().filter(|used| is_write(used.access()));
        let written: Vec<Register> = written.map(|used| used.register()).filter(|r| r.is_gpr()).collect();
        for register in written {
            let value = state.make(address);
            state.set(register, value);
        }
    }

    /// What is stored to a variable or member that is declared as a pointer points to what that says: `root = mmap(…)`.
    fn learn_from_assignment(&self, instruction: &Instruction, address: &Value, state: &mut State) {
        let (Mnemonic::Mov, OpKind::Register, Value::Pointer(place)) =
            (instruction.mnemonic(), instruction.op1_kind(), address)
        else {
            return;
        };
        let holder = self.shapes().at(&place.resolve(self.shapes()));
        let source = instruction.op1_register();
        let is_new = match state.get(source) {
            Value::Integer { symbol, scale, add } => symbol.is_some() && (*scale, *add) == (1, 0),
            _ => false,
        };
        if source.is_gpr64()
            && is_new
            && let Some(object) = holder.and_then(|holder| self.declared_object(holder))
        {
            let (known, learnt) = (state.get(source).clone(), Value::to(Pointer::to(object)));
            for value in state.registers.iter_mut().chain(state.frame.values_mut()) {
                if *value == known {
                    *value = learnt.clone();
                }
            }
        }
    }

    fn written(&mut self, instruction: &Instruction) -> Option<UsedMemory> {
        let info = self.info.info(instruction);
        info.used_memory()
            .iter()
            .find(|memory| is_write(memory.access()))
            .copied()
    }
}

fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether a register has the value of a stack or frame pointer.
fn addresses_frame(register: Register, value: &Value) -> bool {
    match (register, value) {
        (Register::RSP, Value::Frame(_)) => true,
        (Register::RBP, Value::Frame(at)) => *at == SAVED_FRAME_POINTER,
        _ => false,
    }
}

/// Only as an integer, so that its upper half does not matter.
fn integer(value: Value) -> Option<Value> {
    matches!(value, Value::Integer { .. }).then_some(value)
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovne
            | Mnemonic::Cmovno
            | Mnemonic::Cmovnp
            | Mnemonic::Cmovns
            | Mnemonic::Cmovo
            | Mnemonic::Cmovp
            | Mnemonic::Cmovs
    )
}

/// What is known of a value that a variable is declared to be.
fn settle(known: &Value, declared: &Value, shapes: &Shapes) -> Value {
    match (known, declared) {
        (Value::Pointer(known_as), Value::Pointer(said)) => {
            let pointer = known_as.resolve(shapes);
            match pointer.object.map(|ty| shapes.get(ty)) {
                // Bytes, numbers, or what only the caller knows.
                None | Some(Type::Scalar | Type::Pointer | Type::Opaque) => Value::to(Pointer {
                    argument: pointer.argument,
                    ..said.base.clone()
                }),
                Some(_) => agree(known, declared, shapes),
            }
        }
        (Value::Doubtful, _) => Value::Doubtful,
        _ => declared.clone(),
    }
}

/// Two pointers to the same place: the one that says more, if the other's object is a part of its.
fn agree(a: &Value, b: &Value, shapes: &Shapes) -> Value {
    let (Value::Pointer(one), Value::Pointer(other)) = (a, b) else {
        return Value::Doubtful;
    };
    let holds = |outer: &Address, inner: &Address| {
        let start = outer.clone().advance(inner.base.offset.wrapping_neg()).resolve(shapes);
        inner.base.object.is_some_and(|object| shapes.is_at(&start, object))
    };
    if holds(one, other) {
        a.clone()
    } else if holds(other, one) {
        b.clone()
    } else {
        Value::Doubtful
    }
}
