//! Which functions are helpers, by the front end's code: the first evidence of docs/helpers.md.
//!
//! The rules are those for machine code, on the same summary of what a function does to memory in terms of its
//! parameters (`crashproof_stacks::helper`). Here parameters, calls and loops are those of the source, so that what is
//! found holds wherever the function is inlined and whatever the optimiser makes of it. Before it is read, LLVM turns
//! local variables into values (`sroa`). What depends on code of other objects, on pointers to functions, or on memory
//! of the function's own frame is left open: then the machine code decides.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crashproof_llvm::{
    AtomicOperation, AtomicOrdering, Block, Holder, Layout, Linkage, Module, Opcode, TypeKind, Value,
};
use crashproof_sites::JudgedFunction;
use crashproof_stacks::helper::{self, Act, Effect, MOST_EFFECTS, Routine, Source, Summary, Value as Origin};
use crashproof_stacks::registers::ARGUMENTS;

use crate::frontend::{linkage_name, returns_its_argument, source_file};
use crate::instrument::assembly::{self, Operation};
use crate::instrument::persistence;

/// Functions with more instructions are not followed.
const MOST_INSTRUCTIONS: usize = 20_000;
/// How often the values of a function may change.
const MOST_ROUNDS: usize = 40;
/// Calls within calls that are followed.
const MAX_CALLS: usize = 12;
/// Arguments that are passed by value in memory are this far apart in the frame.
const BY_VALUE: i64 = 1 << 20;
/// Arguments in vector registers.
const VECTORS: usize = 8;

/// Judges the functions of the front end's module, which it changes.
pub fn judge(module: &mut Module) -> Vec<JudgedFunction> {
    for function in module.functions() {
        // With it, a function is left as it is.
        function.remove_attribute("optnone");
    }
    if module.run_passes("function(sroa)").is_err() {
        return Vec::new();
    }
    let judge = Judge {
        layout: module.layout(),
        summaries: RefCell::default(),
        depth: Cell::default(),
    };
    let judged = module.functions().filter_map(|function| {
        let subprogram = function.subprogram().filter(|_| function.has_ordinary_code())?;
        let is_helper = judge.summary(function).and_then(|summary| summary.verdict());
        if is_helper.is_none() && !function.is_local() {
            return None;
        }
        Some(JudgedFunction {
            function: linkage_name(subprogram).to_owned(),
            file: source_file(subprogram),
            is_helper,
        })
    });
    judged.collect()
}

struct Judge<'m> {
    layout: Layout<'m>,
    /// `None`: it is being followed.
    summaries: RefCell<HashMap<Value<'m>, Option<Rc<Summary>>>>,
    /// How many are being followed: a function, those that it calls, and so on.
    depth: Cell<usize>,
}

impl<'m> Judge<'m> {
    /// `None`: it is being followed, or is too deep.
    fn summary(&self, function: Value<'m>) -> Option<Rc<Summary>> {
        if let Some(known) = self.summaries.borrow().get(&function) {
            return known.clone();
        }
        if self.depth.get() >= MAX_CALLS {
            return None;
        }
        self.depth.set(self.depth.get() + 1);
        self.summaries.borrow_mut().insert(function, None);
        let summary = Some(Rc::new(self.follow(function)));
        self.summaries.borrow_mut().insert(function, summary.clone());
        self.depth.set(self.depth.get() - 1);
        summary
    }

    fn follow(&self, function: Value<'m>) -> Summary {
        let graph = Graph::new(function, &|call| self.never_returns(call, function));
        if graph.instructions.len() > MOST_INSTRUCTIONS {
            return Summary::unknown();
        }
        let mut flow = Flow {
            judge: self,
            function,
            values: function.parameters().zip(parameters(function)).collect(),
            instructions: graph.instructions,
            effects: None,
            recursive: Vec::new(),
            writes_arguments: false,
            is_open: Cell::new(false),
        };
        flow.run(graph.successors).unwrap_or_else(Summary::unknown)
    }

    fn never_returns(&self, call: Value<'m>, within: Value<'m>) -> bool {
        let Some(callee) = call.called_function() else {
            return false;
        };
        match callee.has_body() {
            true if callee == within => false,
            true => self.summary(callee).is_some_and(|summary| summary.returned.is_none()),
            false => helper::routine(callee.name()) == Some(Routine::NeverReturns),
        }
    }
}

/// What a function is called with, by the registers that the calling convention passes it in.
fn parameters(function: Value<'_>) -> Vec<Origin> {
    let mut general = ARGUMENTS.into_iter();
    let (mut vectors, mut further) = (0..VECTORS, 1..);
    let mut found = Vec::new();
    for (parameter, number) in function.parameters().zip(0u32..) {
        use TypeKind::{LLVMDoubleTypeKind, LLVMFloatTypeKind, LLVMHalfTypeKind, LLVMVectorTypeKind};
        let is_vector = matches!(
            parameter.ty().kind(),
            LLVMHalfTypeKind | LLVMFloatTypeKind | LLVMDoubleTypeKind | LLVMVectorTypeKind
        );
        let register = match is_vector {
            true => vectors.next().map(Source::Vector),
            false => general.next().map(|register| Source::Register(register.number())),
        };
        found.push(if function.attribute(Holder::Parameter(number), "byval").is_some() {
            Origin::Frame(Some(BY_VALUE * (i64::from(number) + 1)))
        } else {
            Origin::source(register.unwrap_or_else(|| Source::Stack(8 * further.next().unwrap_or(0))))
        });
    }
    found
}

/// The code of a function that is executed, as far as nothing is thrown.
struct Graph<'m> {
    instructions: Vec<Value<'m>>,
    successors: Vec<Vec<usize>>,
}

impl<'m> Graph<'m> {
    fn new(function: Value<'m>, never_returns: &dyn Fn(Value<'m>) -> bool) -> Graph<'m> {
        let mut blocks: Vec<(Block<'m>, Vec<Value<'m>>, Vec<Block<'m>>)> = Vec::new();
        let (mut seen, mut pending) = (HashSet::new(), Vec::new());
        pending.extend(function.blocks().next());
        while let Some(block) = pending.pop() {
            if !seen.insert(block) {
                continue;
            }
            let (mut code, mut next) = (Vec::new(), Vec::new());
            for instruction in block.code() {
                code.push(instruction);
                if instruction.is_call() && never_returns(instruction) {
                    next.clear();
                    break;
                }
                next = match instruction.opcode() {
                    Some(Opcode::LLVMInvoke) => instruction.normal_destination().into_iter().collect(),
                    _ => instruction.successors(),
                };
            }
            pending.extend(next.iter().rev());
            blocks.push((block, code, next));
        }
        let mut starts = HashMap::new();
        let mut count = 0;
        for (block, code, _) in &blocks {
            starts.insert(*block, count);
            count += code.len();
        }
        let mut graph = Graph {
            instructions: Vec::with_capacity(count),
            successors: Vec::with_capacity(count),
        };
        for (_, code, next) in blocks {
            for instruction in code {
                graph.instructions.push(instruction);
                graph.successors.push(vec![graph.instructions.len()]);
            }
            if let Some(last) = graph.successors.last_mut() {
                *last = next.iter().map(|block| starts[block]).collect();
            }
        }
        graph
    }
}

struct Flow<'j, 'm> {
    judge: &'j Judge<'m>,
    function: Value<'m>,
    instructions: Vec<Value<'m>>,
    /// Of parameters and instructions.
    values: HashMap<Value<'m>, Origin>,
    effects: Option<Vec<Effect>>,
    /// What the function calls itself with.
    recursive: Vec<[Origin; ARGUMENTS.len()]>,
    /// To its own copy of an argument that was passed in memory.
    writes_arguments: bool,
    is_open: Cell<bool>,
}

impl<'m> Flow<'_, 'm> {
    /// `None`: too much to follow.
    fn run(&mut self, successors: Vec<Vec<usize>>) -> Option<Summary> {
        let mut rounds = 0..MOST_ROUNDS;
        while self.round() {
            rounds.next()?;
        }
        self.effects = Some(Vec::new());
        self.recursive.clear();
        self.is_open.set(false);
        self.round();
        let mut returned: Option<Origin> = None;
        let mut exits = Vec::new();
        for (index, instruction) in self.instructions.iter().enumerate() {
            if instruction.opcode() != Some(Opcode::LLVMRet) {
                continue;
            }
            exits.push(index);
            let value = instruction.operand(0).and_then(|value| self.value(value));
            let value = value.unwrap_or_else(|| Origin::mixed([]));
            returned = Some(match returned {
                Some(other) => other.join(&value, index as u64, -1),
                None => value,
            });
        }
        let effects = self.effects.take().unwrap_or_default();
        let mut summary = Summary::new(successors, effects, returned, exits, &self.recursive);
        summary.is_open = self.is_open.get();
        Some(summary)
    }

    /// Executes all instructions once. Whether a value changed.
    fn round(&mut self) -> bool {
        let before = self.writes_arguments;
        let mut changed = false;
        for index in 0..self.instructions.len() {
            let instruction = self.instructions[index];
            let Some(mut value) = self.execute(index, instruction) else {
                continue;
            };
            if let Some(known) = self.values.get(&instruction) {
                value = known.join(&value, index as u64, 0);
                if *known == value {
                    continue;
                }
            }
            self.values.insert(instruction, value);
            changed = true;
        }
        changed || before != self.writes_arguments
    }

    fn made(index: usize) -> Origin {
        Origin::source(Source::Made(index as u64, 0))
    }

    fn effect(&mut self, effect: Effect) {
        if let Origin::Frame(Some(_)) = effect.address
            && effect.act != Act::Flush
        {
            self.writes_arguments = true;
        }
        if effect.address == Origin::Unknown {
            self.is_open.set(true);
        }
        if let Some(effects) = &mut self.effects
            && effects.len() <= MOST_EFFECTS
            && !effect.is_own()
        {
            effects.push(effect);
        }
    }

    /// `None`: nothing is known of it yet, because nothing leads to where it is made so far.
    fn value(&self, value: Value<'m>) -> Option<Origin> {
        if value.is_instruction() || value.is_parameter() {
            return self.values.get(&value).cloned();
        }
        if value.is_global() {
            return Some(Origin::Static);
        }
        if value.is_null() || value.is_undefined() {
            return Some(Origin::constant(0));
        }
        Some(match (value.signed(), value.opcode()) {
            (Some(constant), _) => Origin::constant(constant),
            // An address in a variable.
            (None, Some(_)) => value
                .operand(0)
                .and_then(|inner| self.value(inner))
                .unwrap_or_else(|| Origin::mixed([])),
            (None, None) => Origin::mixed([]),
        })
    }

    fn operand(&self, instruction: Value<'m>, index: u32) -> Option<Origin> {
        self.value(instruction.operand(index)?)
    }

    /// What an instruction makes.
    fn execute(&mut self, index: usize, instruction: Value<'m>) -> Option<Origin> {
        let operand = |number| self.operand(instruction, number);
        match instruction.opcode()? {
            Opcode::LLVMAlloca => Some(Origin::Frame(None)),
            Opcode::LLVMLoad => Some(self.read(index, &operand(0)?)),
            Opcode::LLVMStore => {
                let (value, address) = (operand(0)?, operand(1)?);
                let nontemporal = instruction.has_metadata("nontemporal");
                self.store(index, address, instruction.stored_size(), value, nontemporal);
                None
            }
            Opcode::LLVMAtomicRMW => {
                let (address, value) = (operand(0)?, operand(1)?);
                let old = self.read(index, &address);
                let new = match instruction.atomic_operation() {
                    Some(AtomicOperation::LLVMAtomicRMWBinOpXchg) => value,
                    _ => Origin::mixed([&old, &value]),
                };
                self.store(index, address, instruction.stored_size(), new, false);
                Some(old)
            }
            Opcode::LLVMAtomicCmpXchg => {
                let (address, expected, new) = (operand(0)?, operand(1)?, operand(2)?);
                let old = self.read(index, &address);
                self.store(index, address, instruction.stored_size(), new, false);
                Some(expected.join(&old, index as u64, 0))
            }
            Opcode::LLVMFence => {
                let is_strongest = instruction.ordering() == AtomicOrdering::LLVMAtomicOrderingSequentiallyConsistent;
                if is_strongest && !instruction.is_single_threaded() {
                    self.effect(Effect::new(index, Act::Fence, Origin::constant(0), None));
                }
                None
            }
            Opcode::LLVMGetElementPtr => self.element(instruction),
            Opcode::LLVMBitCast
            | Opcode::LLVMAddrSpaceCast
            | Opcode::LLVMPtrToInt
            | Opcode::LLVMIntToPtr
            | Opcode::LLVMZExt
            | Opcode::LLVMSExt
            | Opcode::LLVMTrunc
            | Opcode::LLVMFreeze
            | Opcode::LLVMExtractValue => operand(0),
            Opcode::LLVMPHI => {
                let incoming = instruction.incoming().into_iter();
                let known = incoming.filter_map(|(value, _)| self.value(value));
                known.reduce(|one, other| one.join(&other, index as u64, 0))
            }
            Opcode::LLVMSelect => Some(operand(1)?.join(&operand(2)?, index as u64, 0)),
            Opcode::LLVMAdd => Some(operand(0)?.add(&operand(1)?)),
            Opcode::LLVMSub => {
                let (left, right) = (operand(0)?, operand(1)?);
                Some(match right.as_constant() {
                    Some(constant) => left.add(&Origin::constant(constant.wrapping_neg())),
                    None => Origin::mixed([&left, &right]),
                })
            }
            Opcode::LLVMICmp | Opcode::LLVMFCmp => Some(Origin::mixed([])),
            Opcode::LLVMCall | Opcode::LLVMInvoke => self.call(index, instruction),
            Opcode::LLVMRet | Opcode::LLVMBr | Opcode::LLVMSwitch | Opcode::LLVMUnreachable => None,
            Opcode::LLVMVAArg
            | Opcode::LLVMIndirectBr
            | Opcode::LLVMCallBr
            | Opcode::LLVMLandingPad
            | Opcode::LLVMResume
            | Opcode::LLVMCatchPad
            | Opcode::LLVMCatchRet
            | Opcode::LLVMCatchSwitch
            | Opcode::LLVMCleanupPad
            | Opcode::LLVMCleanupRet => {
                self.effect(Effect::unknown(index));
                Some(Self::made(index))
            }
            // Arithmetic.
            _ => {
                let operands = (0..instruction.operand_count()).map(operand);
                let operands: Vec<Origin> = operands.collect::<Option<_>>()?;
                Some(Origin::mixed(&operands))
            }
        }
    }

    fn element(&self, element: Value<'m>) -> Option<Origin> {
        let layout = self.judge.layout;
        let mut at = self.operand(element, 0)?;
        let mut ty = element.source_element()?;
        for number in 1..element.operand_count() {
            let index = element.operand(number)?;
            if number > 1 {
                let member = u32::try_from(index.signed().unwrap_or(0)).unwrap_or(0);
                let is_struct = ty.is_struct();
                if is_struct {
                    at = at.add(&Origin::constant(layout.offset_of(ty, member) as i64));
                }
                ty = ty.element(member)?;
                if is_struct {
                    continue;
                }
            }
            let (index, size) = (self.value(index)?, layout.size_of(ty) as i64);
            at = at.add(&match (index.as_constant(), size) {
                (Some(index), size) => Origin::constant(index.wrapping_mul(size)),
                (None, 1) => index,
                (None, _) => Origin::mixed([&index]),
            });
        }
        Some(at)
    }

    fn read(&self, index: usize, address: &Origin) -> Origin {
        match address {
            Origin::Frame(Some(at)) if !self.writes_arguments => Origin::source(Source::Stack(*at)),
            Origin::Frame(_) => {
                self.is_open.set(true);
                Self::made(index)
            }
            address => address.read().unwrap_or_else(|| Self::made(index)),
        }
    }

    fn store(&mut self, index: usize, address: Origin, size: Option<u64>, value: Origin, nontemporal: bool) {
        self.effect(Effect::new(index, Act::Store { value, nontemporal }, address, size));
    }

    fn call(&mut self, index: usize, call: Value<'m>) -> Option<Origin> {
        let callee = call.called_value()?;
        if let Some((template, constraints, is_att)) = callee.inline_assembly() {
            return self.assembly(index, call, template, constraints, is_att);
        }
        let arguments = call.arguments().into_iter().map(|argument| self.value(argument));
        let arguments: Vec<Origin> = arguments.collect::<Option<_>>()?;
        let Some(callee) = call.called_function() else {
            self.effect(Effect::unknown(index));
            return Some(Self::made(index));
        };
        if callee.has_body() {
            return self.call_of(index, callee, &arguments);
        }
        let name = callee.name();
        if let Some(intrinsic) = name.strip_prefix("llvm.") {
            return self.intrinsic(index, call, intrinsic, &arguments);
        }
        self.routine(index, name, &arguments)
    }

    /// A function that is defined here.
    fn call_of(&mut self, index: usize, callee: Value<'m>, arguments: &[Origin]) -> Option<Origin> {
        // It may write to its caller's copy of an argument.
        self.writes_arguments |= arguments
            .iter()
            .any(|argument| matches!(argument, Origin::Frame(Some(_))));
        let parameters = parameters(callee);
        let passed = |source: Source| {
            let number = parameters.iter().position(|known| *known == Origin::source(source));
            arguments.get(number?).cloned()
        };
        if callee == self.function {
            let registers = ARGUMENTS.map(|register| passed(Source::Register(register.number())));
            self.recursive
                .push(registers.map(|value| value.unwrap_or_else(|| Self::made(index))));
            return Some(Self::made(index));
        }
        let may_be_another = callee.linkage() == Some(Linkage::LLVMWeakAnyLinkage);
        let Some(summary) = self.judge.summary(callee).filter(|_| !may_be_another) else {
            self.effect(Effect::unknown(index));
            return Some(Self::made(index));
        };
        let is_open = &self.is_open;
        is_open.set(is_open.get() || summary.is_open);
        let made = || {
            is_open.set(true);
            Self::made(index)
        };
        let mut of = |source: Source| match source {
            Source::Made(..) => Self::made(index),
            Source::Stack(at) if at >= BY_VALUE => {
                let number = usize::try_from(at / BY_VALUE - 1).unwrap_or(usize::MAX);
                let within = Origin::constant(at % BY_VALUE);
                let value = arguments.get(number).and_then(|argument| argument.add(&within).read());
                value.unwrap_or_else(made)
            }
            source => passed(source).unwrap_or_else(made),
        };
        let returned = summary.returned.as_ref()?.substitute(&mut of, made);
        let effects: Vec<Effect> = summary.called(index, &mut of, made).collect();
        for effect in effects {
            self.effect(effect);
        }
        Some(returned)
    }

    /// A function of a library.
    fn routine(&mut self, index: usize, name: &str, arguments: &[Origin]) -> Option<Origin> {
        match helper::routine(name) {
            Some(Routine::Does(effects)) => {
                let argument = |number: u32| arguments.get(number as usize).cloned().unwrap_or(Origin::Unknown);
                let (acts, returned) = helper::of_library(effects, argument, |address| self.read(index, address));
                for (act, address) in acts {
                    self.effect(Effect::new(index, act, address, None));
                }
                Some(returned)
            }
            Some(Routine::NeverReturns) => None,
            _ => {
                self.effect(Effect::unknown(index));
                Some(Self::made(index))
            }
        }
    }

    /// `name` is without `llvm.`.
    fn intrinsic(&mut self, index: usize, call: Value<'m>, name: &str, arguments: &[Origin]) -> Option<Origin> {
        const NOTHING: [&str; 16] = [
            "assume",
            "donothing",
            "experimental.noalias.scope.decl",
            "invariant.",
            "instrprof.",
            "lifetime.",
            "prefetch",
            "pseudoprobe",
            "sideeffect",
            "stackrestore",
            "stacksave",
            "trap",
            "ubsantrap",
            "var.annotation",
            "x86.sse2.lfence",
            "x86.sse2.pause",
        ];
        if let Some(operation) = persistence::operation(name) {
            self.operation(index, call, operation);
            return None;
        }
        let size = || arguments[2].as_constant().and_then(|size| u64::try_from(size).ok());
        match crashproof_library::intrinsic(call.called_value()?.name()) {
            Some("memset") if size().is_some() => {
                let value = helper::fill(&arguments[1], &arguments[2]);
                self.store(index, arguments[0].clone(), size(), value, false);
                return None;
            }
            Some("memcpy" | "memmove") if size().is_some() => {
                let value = self.read(index, &arguments[1]);
                self.store(index, arguments[0].clone(), size(), value, false);
                return None;
            }
            Some(function) => return self.routine(index, function, arguments),
            None => {}
        }
        if NOTHING.iter().any(|known| name.starts_with(known)) {
            return Some(Origin::Frame(None));
        }
        let is_same = name.starts_with("expect") || returns_its_argument(call.called_value()?.name());
        if let Some(first) = arguments.first().filter(|_| is_same) {
            return Some(first.clone());
        }
        let takes_pointer = call.arguments().into_iter().any(Value::is_pointer);
        if takes_pointer && !name.starts_with("ptrmask") && !name.starts_with("objectsize") || call.ty().is_void() {
            self.effect(Effect::unknown(index));
            return Some(Self::made(index));
        }
        Some(Origin::mixed(arguments))
    }

    fn operation(&mut self, index: usize, call: Value<'m>, operation: Operation) {
        match operation {
            Operation::Flush { argument, .. } => {
                let address = self.operand(call, argument).unwrap_or(Origin::Unknown);
                self.effect(Effect::new(index, Act::Flush, address, Some(1)));
            }
            Operation::Fence { .. } => self.effect(Effect::new(index, Act::Fence, Origin::constant(0), None)),
        }
    }

    fn assembly(
        &mut self,
        index: usize,
        call: Value<'m>,
        template: &str,
        constraints: &str,
        is_att: bool,
    ) -> Option<Origin> {
        // What comes out of it is anything.
        self.is_open.set(self.is_open.get() || !call.ty().is_void());
        match assembly::recognise(template, constraints) {
            _ if template.trim().is_empty() => {}
            Some(operations) if is_att && !operations.contains(&assembly::LOCKED_FENCE) => {
                for operation in operations {
                    self.operation(index, call, operation);
                }
            }
            _ => self.effect(Effect::unknown(index)),
        }
        Some(Self::made(index))
    }
}
