//! What a function stores to, flushes and fences, in terms of what it was called with: its machine code is followed forward until
//! nothing changes. Nothing is assumed of what is not understood: it becomes [`Act::Unknown`].
//!
//! `sites/src/dwarf/flow.rs` follows values through machine code, too, and has the same shape: states at blocks, joined
//! until nothing changes. It is a follower of its own because little more than that loop is the same. It asks what a
//! pointer points to: a value is a type and an offset, debug info changes the state before every instruction, jump
//! tables are edges, and what is not known may be forgotten. Here a value is what it was computed from, vector
//! registers count, calls are summaries of other functions, gates of `crashproof cc` cut edges, and what is not known
//! must stay visible as an effect. A shared loop would take these differences as parameters, and they are longer than
//! the loop.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use rustc_hash::FxHashMap;

use super::ModuleCode;
use super::library::{self, Routine};
use super::summary::{Act, Effect, MOST_EFFECTS, Summary, fill, of_library};
use super::value::{Source, Value};
use crate::registers::{ARGUMENTS, CLOBBERED};

/// Functions with more instructions are not followed.
const MOST_INSTRUCTIONS: usize = 20_000;
/// How often the states of a function may change, for each of its instructions.
const MOST_CHANGES: usize = 40;

/// Instructions from the call of a gate to the branch on its result.
const GATE_TEST: usize = 6;

const VECTORS: usize = 32;

/// A function that was followed.
pub(super) struct Followed {
    pub(super) instructions: Arc<[Instruction]>,
    pub(super) summary: Summary,
    /// At the beginning of each block.
    states: FxHashMap<usize, State>,
}

impl Followed {
    fn unknown() -> Followed {
        Followed {
            instructions: Arc::default(),
            summary: Summary::unknown(),
            states: FxHashMap::default(),
        }
    }

    pub(super) fn index(&self, address: u64) -> Option<usize> {
        let index = self
            .instructions
            .partition_point(|instruction| instruction.ip() < address);
        (index < self.instructions.len()).then_some(index)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    registers: [Value; 16],
    /// Seldom changed.
    vectors: Arc<Vec<Value>>,
    /// Words of the frame, and their size.
    slots: BTreeMap<i64, (Value, u64)>,
    /// From here up, others may know the address of the frame's words.
    escaped: i64,
}

impl State {
    fn entry() -> State {
        let mut state = State {
            registers: std::array::from_fn(|number| Value::source(Source::Register(number))),
            vectors: Arc::new(
                (0..VECTORS)
                    .map(|number| Value::source(Source::Vector(number)))
                    .collect(),
            ),
            slots: BTreeMap::new(),
            escaped: 0,
        };
        state.set(Register::RSP, Value::Frame(Some(0)));
        state
    }

    pub(super) fn get(&self, register: Register) -> Value {
        if register.is_gpr() {
            return self.registers[register.full_register().number()].clone();
        }
        match register.is_vector_register() {
            true => self.vectors[register.number()].clone(),
            false => Value::mixed([]),
        }
    }

    fn set(&mut self, register: Register, value: Value) {
        if register.is_gpr() {
            self.registers[register.full_register().number()] = value;
        } else if register.is_vector_register() {
            Arc::make_mut(&mut self.vectors)[register.number()] = value;
        }
    }

    /// What a word of the frame holds; those above the return address are arguments.
    pub(super) fn slot(&self, at: i64, size: u64) -> Option<Value> {
        if let Some((value, known)) = self.slots.get(&at)
            && size <= *known
        {
            return Some(value.clone());
        }
        let overlaps = self.slots.range(at.saturating_sub(64)..at.saturating_add(size as i64));
        let untouched = overlaps
            .into_iter()
            .all(|(from, (_, known))| from.saturating_add(*known as i64) <= at);
        (at >= 8 && untouched).then(|| Value::source(Source::Stack(at)))
    }

    fn set_slot(&mut self, at: i64, size: u64, value: Value) {
        let end = at.saturating_add(size as i64);
        let before: Vec<i64> = self
            .slots
            .range(at.saturating_sub(64)..end)
            .map(|(from, _)| *from)
            .collect();
        for from in before {
            if self
                .slots
                .get(&from)
                .is_some_and(|(_, known)| from.saturating_add(*known as i64) > at)
            {
                self.slots.remove(&from);
            }
        }
        self.slots.insert(at, (value, size));
    }

    fn escape(&mut self, value: &Value) {
        if let Value::Frame(at) = value {
            self.escaped = self.escaped.min(at.unwrap_or(i64::MIN));
        }
    }

    fn join(&self, other: &State, at: u64) -> State {
        let mut joined = self.clone();
        for (number, value) in joined.registers.iter_mut().enumerate() {
            *value = value.join(&other.registers[number], at, number as i64);
        }
        if !Arc::ptr_eq(&self.vectors, &other.vectors) {
            for (number, value) in Arc::make_mut(&mut joined.vectors).iter_mut().enumerate() {
                *value = value.join(&other.vectors[number], at, 16 + number as i64);
            }
        }
        joined.slots.retain(|from, (value, size)| match other.slots.get(from) {
            Some((others, known)) if known == size => {
                *value = value.join(others, at, *from << 8 | 0xff);
                true
            }
            _ => false,
        });
        joined.escaped = self.escaped.min(other.escaped);
        joined
    }
}

/// Who is called.
enum Callee {
    Routine(Routine),
    Function(u64),
    Unknown,
}

struct Flow<'m> {
    module: &'m ModuleCode,
    start: u64,
    instructions: Arc<[Instruction]>,
    successors: Vec<Vec<usize>>,
    leaders: Vec<bool>,
    info: InstructionInfoFactory,
    effects: Option<Vec<Effect>>,
    /// What the function calls itself with.
    recursive: Vec<[Value; ARGUMENTS.len()]>,
}

/// Follows the function whose code is there.
pub(super) fn follow(module: &ModuleCode, code: &Range<u64>) -> Followed {
    let instructions = module.code.instructions(code);
    if instructions.is_empty() || instructions.len() > MOST_INSTRUCTIONS {
        return Followed::unknown();
    }
    let mut flow = Flow {
        module,
        start: code.start,
        successors: Vec::new(),
        leaders: vec![false; instructions.len()],
        instructions: instructions.into(),
        info: InstructionInfoFactory::new(),
        effects: None,
        recursive: Vec::new(),
    };
    flow.connect();
    let Some(states) = flow.states() else {
        return Followed::unknown();
    };
    flow.results(states)
}

impl Flow<'_> {
    fn number(&self, address: u64) -> Option<usize> {
        let found = self
            .instructions
            .binary_search_by_key(&address, |instruction| instruction.ip());
        found.ok()
    }

    fn connect(&mut self) {
        self.leaders[0] = true;
        // The last call of a gate: what follows tests its result.
        let mut gate: Option<usize> = None;
        for index in 0..self.instructions.len() {
            let instruction = self.instructions[index];
            let mut next = Vec::new();
            let declined = gate
                .filter(|gate| index - gate <= GATE_TEST)
                .and_then(|_| declines(&instruction));
            match instruction.flow_control() {
                // The original instruction is behind a gate that declines; one that does not has done the same.
                FlowControl::ConditionalBranch if declined.is_some() => {
                    let to = match declined {
                        Some(true) => instruction.near_branch_target(),
                        _ => instruction.next_ip(),
                    };
                    if let Some(target) = self.number(to) {
                        next.push(target);
                        self.leaders[target] = true;
                    }
                    if let Some(after) = self.leaders.get_mut(index + 1) {
                        *after = true;
                    }
                    gate = None;
                }
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    if let Some(target) = self.number(instruction.near_branch_target()) {
                        next.push(target);
                        self.leaders[target] = true;
                    }
                    if instruction.flow_control() == FlowControl::ConditionalBranch {
                        next.extend(self.number(instruction.next_ip()));
                    }
                    if let Some(after) = self.leaders.get_mut(index + 1) {
                        *after = true;
                    }
                }
                FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => {
                    if let Some(after) = self.leaders.get_mut(index + 1) {
                        *after = true;
                    }
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    if matches!(self.callee(&instruction), Callee::Routine(Routine::Gate)) {
                        gate = Some(index);
                    }
                    if !self.never_returns(&instruction) {
                        next.extend(self.number(instruction.next_ip()));
                    } else if let Some(after) = self.leaders.get_mut(index + 1) {
                        *after = true;
                    }
                }
                _ => next.extend(self.number(instruction.next_ip())),
            }
            self.successors.push(next);
        }
    }

    fn never_returns(&self, call: &Instruction) -> bool {
        match self.callee(call) {
            Callee::Routine(Routine::NeverReturns) => true,
            Callee::Function(start) if start != self.start => self
                .module
                .followed(start)
                .is_some_and(|followed| followed.summary.returned.is_none()),
            _ => false,
        }
    }

    /// The state in which each block is entered; `None`: too much to follow.
    fn states(&mut self) -> Option<FxHashMap<usize, State>> {
        let mut states: FxHashMap<usize, State> = FxHashMap::default();
        states.insert(0, State::entry());
        let mut pending = vec![0];
        let mut left = self.instructions.len().saturating_mul(MOST_CHANGES);
        while let Some(block) = pending.pop() {
            let mut state = states[&block].clone();
            let mut at = block;
            loop {
                left = left.checked_sub(1)?;
                self.execute(at, &mut state);
                match self.successors[at][..] {
                    [only] if only == at + 1 && !self.leaders[only] => at = only,
                    _ => break,
                }
            }
            for &next in &self.successors[at] {
                let joined = match states.get(&next) {
                    Some(known) => known.join(&state, self.instructions[next].ip()),
                    None => state.clone(),
                };
                if states.get(&next) != Some(&joined) {
                    states.insert(next, joined);
                    pending.push(next);
                }
            }
        }
        Some(states)
    }

    fn results(mut self, states: FxHashMap<usize, State>) -> Followed {
        self.effects = Some(Vec::new());
        self.recursive.clear();
        let (mut exits, mut returned): (Vec<usize>, Option<Value>) = (Vec::new(), None);
        let mut blocks: Vec<usize> = states.keys().copied().collect();
        blocks.sort_unstable();
        for block in blocks {
            let mut state = states[&block].clone();
            let mut at = block;
            loop {
                let value = self.execute(at, &mut state);
                if let Some(value) = value {
                    exits.push(at);
                    returned = Some(match returned {
                        Some(other) => other.join(&value, self.start, -1),
                        None => value,
                    });
                }
                match self.successors[at][..] {
                    [only] if only == at + 1 && !self.leaders[only] => at = only,
                    _ => break,
                }
            }
        }
        let effects = self.effects.take().unwrap_or_default();
        Followed {
            instructions: self.instructions,
            summary: Summary::new(self.successors, effects, returned, exits, &self.recursive),
            states,
        }
    }

    fn effect(&mut self, effect: Effect) {
        if let Some(effects) = &mut self.effects
            && effects.len() <= MOST_EFFECTS
            && !effect.is_own()
        {
            effects.push(effect);
        }
    }

    /// One instruction. What the function returns, if it does so there.
    fn execute(&mut self, index: usize, state: &mut State) -> Option<Value> {
        let instruction = self.instructions[index];
        let ip = instruction.ip();
        let destination = instruction.op0_register();
        let in_register = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
        match instruction.mnemonic() {
            Mnemonic::Clwb | Mnemonic::Clflush | Mnemonic::Clflushopt => {
                let address = self.address(&instruction, state);
                self.effect(Effect::new(index, Act::Flush, address, Some(1)));
            }
            Mnemonic::Sfence | Mnemonic::Mfence => {
                self.effect(Effect::new(index, Act::Fence, Value::constant(0), None))
            }
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Lfence | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Pause => {
            }
            mnemonic if is_move(mnemonic) && instruction.op_count() == 2 && !instruction.is_string_instruction() => {
                let value = self.operand(&instruction, 1, state);
                match in_register {
                    true => state.set(destination, value),
                    false => {
                        let nontemporal = is_nontemporal(mnemonic);
                        let address = self.address(&instruction, state);
                        let size = instruction.memory_size().size() as u64;
                        self.store(index, address, Some(size), value, nontemporal, state);
                    }
                }
            }
            Mnemonic::Cdqe | Mnemonic::Cwde => {}
            Mnemonic::Lea if in_register => {
                let value = self.address(&instruction, state);
                state.set(destination, value);
            }
            Mnemonic::Add | Mnemonic::Sub if in_register && !is_same(&instruction) => {
                let (left, right) = (state.get(destination), self.operand(&instruction, 1, state));
                let value = match (instruction.mnemonic(), right.as_constant()) {
                    (Mnemonic::Add, _) => left.add(&right),
                    (_, Some(constant)) => left.add(&Value::constant(constant.wrapping_neg())),
                    _ => Value::mixed([&left, &right]),
                };
                state.set(destination, value);
            }
            Mnemonic::Inc | Mnemonic::Dec if in_register => {
                let step = if instruction.mnemonic() == Mnemonic::Inc { 1 } else { -1 };
                let value = state.get(destination).add(&Value::constant(step));
                state.set(destination, value);
            }
            mnemonic if is_zeroing(mnemonic) && in_register && is_same(&instruction) => {
                state.set(destination, Value::constant(0));
            }
            Mnemonic::Push => {
                let value = self.operand(&instruction, 0, state);
                let top = state.get(Register::RSP).add(&Value::constant(-8));
                match top {
                    Value::Frame(Some(at)) => state.set_slot(at, 8, value),
                    _ => state.slots.clear(),
                }
                state.set(Register::RSP, top);
            }
            Mnemonic::Pop if in_register => {
                let top = state.get(Register::RSP);
                let value = self.read(&top, 8, ip, state);
                state.set(Register::RSP, top.add(&Value::constant(8)));
                state.set(destination, value);
            }
            Mnemonic::Leave => {
                let base = state.get(Register::RBP);
                let value = self.read(&base, 8, ip, state);
                state.set(Register::RBP, value);
                state.set(Register::RSP, base.add(&Value::constant(8)));
            }
            Mnemonic::Ret => return Some(state.get(Register::RAX)),
            Mnemonic::Call => {
                self.call(index, state);
            }
            Mnemonic::Xchg if !in_register || instruction.op1_kind() == OpKind::Memory => {
                let register = if in_register {
                    destination
                } else {
                    instruction.op1_register()
                };
                let address = self.address(&instruction, state);
                let size = instruction.memory_size().size() as u64;
                let (old, new) = (self.read(&address, size, ip, state), state.get(register));
                self.store(index, address, Some(size), new, false, state);
                state.set(register, old);
            }
            Mnemonic::Cmpxchg if !in_register => {
                let address = self.address(&instruction, state);
                let size = instruction.memory_size().size() as u64;
                let old = self.read(&address, size, ip, state);
                let new = state.get(instruction.op1_register());
                self.store(index, address, Some(size), new, false, state);
                let seen = state.get(Register::RAX).join(&old, ip, 0);
                state.set(Register::RAX, seen);
            }
            _ if instruction.is_string_instruction() => self.string(index, state),
            mnemonic if is_conditional_move(mnemonic) && in_register => {
                let moved = self.operand(&instruction, 1, state);
                let value = state.get(destination).join(&moved, ip, 0);
                state.set(destination, value);
            }
            _ => match instruction.flow_control() {
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    // To another function: its return is ours.
                    if self.number(instruction.near_branch_target()).is_none() {
                        return self.call(index, state);
                    }
                }
                FlowControl::IndirectBranch => return self.call(index, state),
                FlowControl::IndirectCall => {
                    self.call(index, state);
                }
                FlowControl::Exception => {}
                FlowControl::Next => self.other(index, state),
                _ => self.effect(Effect::unknown(index)),
            },
        }
        None
    }

    /// An instruction of which only its operands are known: each result is made of all of them.
    fn other(&mut self, index: usize, state: &mut State) {
        let instruction = self.instructions[index];
        let info = self.info.info(&instruction);
        let memory: Vec<UsedMemory> = info.used_memory().to_vec();
        let reads = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let used = info.used_registers().to_vec();
        let mut values = Vec::new();
        for register in used.iter().filter(|register| reads(register.access())) {
            let of_address = memory.iter().any(|memory| {
                let parts = [memory.base(), memory.index()];
                parts
                    .iter()
                    .any(|part| part.full_register() == register.register().full_register())
            });
            let in_operand = (0..instruction.op_count()).any(|operand| {
                instruction.op_kind(operand) == OpKind::Register
                    && instruction.op_register(operand).full_register() == register.register().full_register()
            });
            let is_value = register.register().is_gpr() || register.register().is_vector_register();
            if is_value && (!of_address || in_operand) {
                values.push(state.get(register.register()));
            }
        }
        for memory in memory.iter().filter(|memory| reads(memory.access())) {
            let address = self.used_address(memory, state);
            values.push(self.read(&address, memory.memory_size().size() as u64, instruction.ip(), state));
        }
        let result = Value::mixed(&values);
        for memory in memory.iter().filter(|memory| writes(memory.access())) {
            let address = self.used_address(memory, state);
            let size = memory.memory_size().size() as u64;
            let nontemporal = is_nontemporal(instruction.mnemonic());
            self.store(index, address, Some(size), result.clone(), nontemporal, state);
        }
        for register in used.iter().filter(|register| writes(register.access())) {
            state.set(register.register(), result.clone());
        }
    }

    /// `movs` and `stos`; what other string instructions do is like any instruction.
    fn string(&mut self, index: usize, state: &mut State) {
        let instruction = self.instructions[index];
        let is_copy = matches!(
            instruction.mnemonic(),
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq
        );
        let is_fill = matches!(
            instruction.mnemonic(),
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq
        );
        if !is_copy && !is_fill {
            return self.other(index, state);
        }
        let element = instruction.memory_size().size() as u64;
        let (to, from, count) = (
            state.get(Register::RDI),
            state.get(Register::RSI),
            state.get(Register::RCX),
        );
        let size = match instruction.has_rep_prefix() {
            true => count
                .as_constant()
                .and_then(|count| u64::try_from(count).ok()?.checked_mul(element)),
            false => Some(element),
        };
        let value = match is_copy {
            true => self.read(&from, element, instruction.ip(), state),
            false => fill(&state.get(Register::RAX), &count),
        };
        self.store_range(index, &to, size, value, state);
        let moved = |at: &Value| match size {
            Some(size) => at.add(&Value::constant(size as i64)),
            None => at.add(&Value::mixed([])),
        };
        state.set(Register::RDI, moved(&to));
        if is_copy {
            state.set(Register::RSI, moved(&from));
        }
        if instruction.has_rep_prefix() {
            state.set(Register::RCX, Value::constant(0));
        }
    }

    /// A store of many bytes.
    fn store_range(&mut self, index: usize, to: &Value, size: Option<u64>, value: Value, state: &mut State) {
        match to {
            Value::Frame(at) => state.forget(*at, size),
            _ => {
                let to = match size {
                    Some(_) => to.clone(),
                    None => to.add(&Value::mixed([])),
                };
                self.store(index, to, size, value, false, state);
            }
        }
    }

    fn store(
        &mut self,
        index: usize,
        address: Value,
        size: Option<u64>,
        value: Value,
        nontemporal: bool,
        state: &mut State,
    ) {
        let instruction = self.instructions[index];
        if has_segment(&instruction) {
            return;
        }
        state.escape(&value);
        match &address {
            Value::Frame(Some(at)) => match size {
                Some(size) if size <= 64 => state.set_slot(*at, size, value),
                size => state.forget(Some(*at), size),
            },
            Value::Frame(None) => state.forget(None, None),
            _ => self.effect(Effect::new(index, Act::Store { value, nontemporal }, address, size)),
        }
    }

    fn operand(&mut self, instruction: &Instruction, operand: u32, state: &State) -> Value {
        match instruction.op_kind(operand) {
            OpKind::Register => state.get(instruction.op_register(operand)),
            OpKind::Memory => {
                if instruction.is_ip_rel_memory_operand()
                    && self.module.code.is_slot(instruction.ip_rel_memory_address())
                {
                    return Value::Static;
                }
                let address = match has_segment(instruction) {
                    true => Value::Unknown,
                    false => self.address(instruction, state),
                };
                self.read(
                    &address,
                    instruction.memory_size().size() as u64,
                    instruction.ip(),
                    state,
                )
            }
            _ => instruction
                .try_immediate(operand)
                .map_or_else(|_| Value::mixed([]), |immediate| Value::constant(immediate as i64)),
        }
    }

    fn read(&self, address: &Value, size: u64, ip: u64, state: &State) -> Value {
        let found = match address {
            Value::Frame(Some(at)) => state.slot(*at, size),
            Value::From { .. } => address.read(),
            _ => None,
        };
        found.unwrap_or_else(|| Value::source(Source::Made(ip, 0)))
    }

    fn address(&self, instruction: &Instruction, state: &State) -> Value {
        if instruction.is_ip_rel_memory_operand() {
            return Value::Static;
        }
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64() as i64;
        self.sum(base, index, instruction.memory_index_scale(), displacement, state)
    }

    fn used_address(&self, memory: &UsedMemory, state: &State) -> Value {
        if memory.base() == Register::RIP {
            return Value::Static;
        }
        let displacement = memory.displacement() as i64;
        self.sum(memory.base(), memory.index(), memory.scale(), displacement, state)
    }

    fn sum(&self, base: Register, index: Register, scale: u32, displacement: i64, state: &State) -> Value {
        if base == Register::None && self.module.code.contains(displacement as u64) {
            return Value::Static;
        }
        let part = |register: Register| match register {
            Register::None => Value::constant(0),
            _ => state.get(register),
        };
        let step = part(index);
        let step = match (step.as_constant(), scale) {
            (Some(constant), _) => Value::constant(constant.wrapping_mul(scale.into())),
            (None, 0 | 1) => step,
            _ => Value::mixed([&step]),
        };
        part(base).add(&step).add(&Value::constant(displacement))
    }

    fn callee(&self, instruction: &Instruction) -> Callee {
        let code = &self.module.code;
        let is_direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
        let target = match is_direct {
            true => instruction.near_branch_target(),
            false if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address(),
            false => return Callee::Unknown,
        };
        if let Some(name) = code.external(target) {
            // Of another module, or of this one where others may have another.
            let own = || {
                self.module
                    .symbols
                    .named(name)
                    .map_or(Callee::Unknown, Callee::Function)
            };
            return library::routine(name).map_or_else(own, Callee::Routine);
        }
        if !is_direct {
            return Callee::Unknown;
        }
        match self.module.name_at(target) {
            Some(name) if name.starts_with(library::GATES) => Callee::Routine(Routine::Gate),
            Some(name) => match library::routine(name) {
                // Of a library that is linked statically, too.
                Some(routine) => Callee::Routine(routine),
                None => Callee::Function(target),
            },
            None => Callee::Unknown,
        }
    }

    /// What a call or a jump to another function does; what that returns, if it does.
    fn call(&mut self, index: usize, state: &mut State) -> Option<Value> {
        let instruction = self.instructions[index];
        let ip = instruction.ip();
        let arguments = ARGUMENTS.map(|register| state.get(register));
        let is_call = matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        let callee = self.callee(&instruction);
        if let Callee::Routine(Routine::Gate) = callee {
            state.set(Register::RAX, Value::mixed([]));
            state.set(Register::R11, Value::mixed([]));
            return None;
        }
        let before = state.clone();
        for argument in &arguments {
            state.escape(argument);
        }
        if is_call {
            let escaped = state.escaped;
            if escaped < 0 {
                state.slots.retain(|at, _| *at < escaped);
            }
            for (number, register) in CLOBBERED.into_iter().enumerate() {
                state.set(register, Value::source(Source::Made(ip, number as i64)));
            }
            state.vectors = Arc::new(vec![Value::source(Source::Made(ip, 64)); VECTORS]);
        }
        let made = || Value::source(Source::Made(ip, 0));
        let returned = match callee {
            Callee::Routine(routine) => self.routine(index, routine, &arguments, &before),
            Callee::Function(start) if start == self.start => {
                self.recursive.push(arguments);
                Some(made())
            }
            Callee::Function(start) => match self.module.followed(start) {
                Some(followed) => {
                    let mut of = |source: Source| of_caller(source, &before, is_call, ip);
                    let returned = followed.summary.returned.as_ref()?;
                    for effect in followed.summary.called(index, &mut of, made) {
                        self.effect(effect);
                    }
                    Some(returned.substitute(&mut of, made))
                }
                None => {
                    self.effect(Effect::unknown(index));
                    Some(made())
                }
            },
            Callee::Unknown => {
                self.effect(Effect::unknown(index));
                Some(made())
            }
        };
        if is_call {
            state.set(Register::RAX, returned.clone().unwrap_or_else(made));
        }
        returned
    }

    fn routine(
        &mut self,
        index: usize,
        routine: Routine,
        arguments: &[Value; ARGUMENTS.len()],
        state: &State,
    ) -> Option<Value> {
        let ip = self.instructions[index].ip();
        let effects = match routine {
            Routine::NeverReturns => return None,
            Routine::Gate => &[],
            Routine::Does(effects) => effects,
        };
        let argument = |number: u32| arguments.get(number as usize).cloned().unwrap_or(Value::Unknown);
        let (acts, returned) = of_library(effects, argument, |address| self.read(address, 1, ip, state));
        for (act, address) in acts {
            self.effect(Effect::new(index, act, address, None));
        }
        Some(returned)
    }
}

impl State {
    /// Words of the frame that are written in a way that is not followed.
    fn forget(&mut self, at: Option<i64>, size: Option<u64>) {
        let from = at.unwrap_or(i64::MIN);
        let to = at
            .zip(size)
            .map_or(i64::MAX, |(at, size)| at.saturating_add(size as i64));
        self.slots.retain(|slot, (_, known)| {
            let end = slot.saturating_add(*known as i64);
            end <= from || *slot >= to
        });
    }
}

impl Followed {
    /// The state before an instruction that is reached.
    pub(super) fn state_before(&self, module: &ModuleCode, start: u64, index: usize) -> Option<State> {
        let block = (0..=index).rev().find(|at| self.states.contains_key(at))?;
        let mut state = self.states[&block].clone();
        let mut flow = Flow {
            module,
            start,
            instructions: Arc::clone(&self.instructions),
            successors: Vec::new(),
            leaders: Vec::new(),
            info: InstructionInfoFactory::new(),
            effects: None,
            recursive: Vec::new(),
        };
        for at in block..index {
            if self.summary.successors[at] != [at + 1] {
                return None;
            }
            flow.execute(at, &mut state);
        }
        Some(state)
    }
}

/// Whether a branch on a result is taken if that is 0; `None`: it asks for something else.
fn declines(branch: &Instruction) -> Option<bool> {
    match branch.mnemonic() {
        Mnemonic::Je => Some(true),
        Mnemonic::Jne => Some(false),
        _ => None,
    }
}

/// What a source of a function is for its caller, in whose state the call is.
fn of_caller(source: Source, state: &State, is_call: bool, ip: u64) -> Value {
    let made = || Value::source(Source::Made(ip, 0));
    match source {
        Source::Register(number) => state.registers.get(number).cloned().unwrap_or_else(made),
        Source::Vector(number) => state.vectors.get(number).cloned().unwrap_or_else(made),
        Source::Stack(at) => {
            let pushed = if is_call { 8 } else { 0 };
            let place = state.get(Register::RSP).add(&Value::constant(at - pushed));
            match place {
                Value::Frame(Some(at)) => state.slot(at, 8).unwrap_or_else(made),
                _ => made(),
            }
        }
        Source::Made(..) => made(),
    }
}

fn has_segment(instruction: &Instruction) -> bool {
    matches!(instruction.segment_prefix(), Register::FS | Register::GS)
}

/// Whether its two inputs are one register.
fn is_same(instruction: &Instruction) -> bool {
    let last = instruction.op_count().saturating_sub(1);
    last >= 1
        && [last - 1, last]
            .iter()
            .all(|&operand| instruction.op_kind(operand) == OpKind::Register)
        && instruction.op_register(last - 1) == instruction.op_register(last)
}

fn is_zeroing(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Pxor, Sub, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps, Xor, Xorpd, Xorps};
    matches!(
        mnemonic,
        Xor | Sub | Pxor | Xorps | Xorpd | Vpxor | Vpxord | Vpxorq | Vxorps | Vxorpd
    )
}

/// Whether the second operand is all that the first becomes.
fn is_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Lddqu, Mov, Movapd, Movaps, Movd, Movdqa, Movdqu, Movntdq, Movntdqa, Movnti, Movntpd, Movntps, Movq, Movsd,
        Movss, Movsx, Movsxd, Movupd, Movups, Movzx, Vmovapd, Vmovaps, Vmovd, Vmovdqa, Vmovdqa32, Vmovdqa64, Vmovdqu,
        Vmovdqu8, Vmovdqu16, Vmovdqu32, Vmovdqu64, Vmovntdq, Vmovntpd, Vmovntps, Vmovq, Vmovsd, Vmovss, Vmovupd,
        Vmovups,
    };
    matches!(
        mnemonic,
        Lddqu
            | Mov
            | Movapd
            | Movaps
            | Movd
            | Movdqa
            | Movdqu
            | Movnti
            | Movntdq
            | Movntdqa
            | Movntpd
            | Movntps
            | Movq
            | Movsd
            | Movss
            | Movsx
            | Movsxd
            | Movupd
            | Movups
            | Movzx
            | Vmovapd
            | Vmovaps
            | Vmovd
            | Vmovdqa
            | Vmovdqa32
            | Vmovdqa64
            | Vmovdqu
            | Vmovdqu8
            | Vmovdqu16
            | Vmovdqu32
            | Vmovdqu64
            | Vmovntdq
            | Vmovntpd
            | Vmovntps
            | Vmovq
            | Vmovsd
            | Vmovss
            | Vmovupd
            | Vmovups
    )
}

fn is_nontemporal(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Maskmovdqu, Maskmovq, Movdir64b, Movdiri, Movntdq, Movnti, Movntpd, Movntps, Movntq, Vmaskmovdqu, Vmovntdq,
        Vmovntpd, Vmovntps,
    };
    matches!(
        mnemonic,
        Maskmovdqu
            | Maskmovq
            | Movdir64b
            | Movdiri
            | Movntdq
            | Movnti
            | Movntpd
            | Movntps
            | Movntq
            | Vmaskmovdqu
            | Vmovntdq
            | Vmovntpd
            | Vmovntps
    )
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp, Cmovns, Cmovo,
        Cmovp, Cmovs,
    };
    matches!(
        mnemonic,
        Cmova
            | Cmovae
            | Cmovb
            | Cmovbe
            | Cmove
            | Cmovg
            | Cmovge
            | Cmovl
            | Cmovle
            | Cmovne
            | Cmovno
            | Cmovnp
            | Cmovns
            | Cmovo
            | Cmovp
            | Cmovs
    )
}
