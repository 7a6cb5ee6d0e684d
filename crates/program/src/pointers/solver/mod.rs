//! Solves [`Constraints`]: the least points-to sets that fulfil them, by propagation of differences over a graph of inclusions.
//!
//! As in wave propagation (Pereira and Berlin, CGO 2009): cycles of inclusions are collapsed, what is new goes through the graph in topological order, then
//! loads, stores and calls add inclusions, along which nothing goes before cycles were looked for again. Memory has two nodes at each location that is
//! used: what is *written* there, and what may be *read* there, which is what is written at any location that overlaps it. All loads through a
//! pointer go by way of one node, and so do all stores: a pointer that many loads go through and that points to much would else cost the product. A shift in a
//! cycle (`p = p + 1` in a loop) would visit all offsets one by one; it is turned into any number of steps (positive-weight
//! cycles: Pearce, Kelly and Hankin, TOPLAS 2007), which may add offsets but loses none.

mod memory;
mod shared;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pointers::constraints::{Call, Constraint, Constraints, ObjectId, Variable};
use crate::pointers::cycles;
use crate::pointers::graph::{Effect, Graph, ShiftState};
use crate::pointers::memory::{Channels, Memory};
use crate::pointers::offline::Numbers;
use crate::pointers::offsets::{Offsets, Shift};
use crate::pointers::set::Set;
use crate::pointers::solution::{Solution, Statistics};

pub(super) struct Solver<'a> {
    problem: &'a Constraints,
    graph: Graph,
    memory: Memory,
    calls: Vec<&'a Call>,
    callees: Vec<(FxHashSet<ObjectId>, bool)>,
    copies: Vec<Channels>,
    escaped: Set,
    /// What is read from unknown memory.
    unknown: u32,
    rounds: usize,
    most_work: usize,
    shared_sets: FxHashMap<Set, u32>,
    /// For each shared set, the node of all that is read there, and that of all that is written there.
    shared_nodes: Vec<(Option<u32>, Option<u32>)>,
    shared_shifts: FxHashMap<(u32, Shift), Set>,
    /// For each [`Constraint::Shift`], in their order, its state; none if it is no shift at all.
    shift_states: Vec<Option<u32>>,
}

impl<'a> Solver<'a> {
    /// More locations of an object than `fields` and what its size lets expect are made one. `None` if it takes more work than this; a step
    /// of work is some tens of nanoseconds.
    pub(super) fn solve(problem: &'a Constraints, fields: usize, most_work: usize) -> Option<Solution> {
        let mut solver = Solver::new(problem, fields);
        solver.most_work = most_work;
        (solver.propagate() && solver.integers()).then(|| solver.finish())
    }

    /// Also which shifts the solution is of: some of the problem's were in cycles.
    #[cfg(test)]
    pub(super) fn solve_and_tell(problem: &'a Constraints, fields: usize) -> (Solution, Vec<Option<Shift>>) {
        let mut solver = Solver::new(problem, fields);
        assert!(solver.propagate() && solver.integers());
        let shift = |state: u32| {
            let mut state = solver.graph.shifts[state as usize];
            while let Some(same) = state.same_as {
                state = solver.graph.shifts[same as usize];
            }
            state.shift
        };
        let shifts = solver.shift_states.iter().map(|state| state.map(shift)).collect();
        (solver.finish(), shifts)
    }

    fn new(problem: &'a Constraints, fields: usize) -> Solver<'a> {
        let mut solver = Solver {
            problem,
            graph: Graph::default(),
            memory: Memory::new(problem.objects.iter().map(|object| object.end)),
            calls: Vec::new(),
            callees: Vec::new(),
            copies: Vec::new(),
            escaped: Set::default(),
            unknown: 0,
            rounds: 0,
            most_work: usize::MAX,
            shared_sets: FxHashMap::default(),
            shared_nodes: Vec::new(),
            shared_shifts: FxHashMap::default(),
            shift_states: Vec::new(),
        };
        for _ in 0..problem.variables {
            solver.graph.node();
        }
        let numbers = Numbers::of(problem);
        let mut first: FxHashMap<u32, u32> = FxHashMap::default();
        for variable in 0..problem.variables {
            let first = *first.entry(numbers.number(Variable(variable))).or_insert(variable);
            solver.graph.unite(first, variable);
        }
        solver.unknown = solver.graph.node();
        solver.graph.insert(solver.unknown, Memory::UNKNOWN);
        solver.graph.effects[Variable::ESCAPED.0 as usize]
            .others
            .push(Effect::Escape);
        for constraint in &problem.constraints {
            solver.begin(constraint, &numbers);
        }
        solver.memory.limit(fields);
        solver
    }

    fn begin(&mut self, constraint: &'a Constraint, numbers: &Numbers) {
        match constraint {
            Constraint::Address { to, object, offset } => {
                let offsets = Offsets::inside(*offset, self.memory.end(*object));
                let location = self.memory.location(*object, offsets);
                self.graph.insert(to.0, location);
            }
            Constraint::Copy { to, from } | Constraint::FromInteger { to, from } => {
                if !numbers.is_nothing(*from) {
                    self.graph.include(from.0, to.0);
                }
            }
            Constraint::Shift { to, from, shift } => {
                let state = self.begin_shift(*to, *from, *shift, numbers);
                self.shift_states.push(state);
            }
            Constraint::Load { to, pointer } => {
                if !numbers.is_nothing(*pointer) {
                    self.load(*pointer, *to, numbers.is_alone(*to));
                }
            }
            Constraint::Store { pointer, from } => {
                if !numbers.is_nothing(*pointer) && !numbers.is_nothing(*from) {
                    self.store(pointer.0, from.0);
                }
            }
            Constraint::Initialise { object, offset, from } => {
                if !numbers.is_nothing(*from) {
                    let offsets = Offsets::inside(*offset, self.memory.end(*object));
                    let location = self.memory.location(*object, offsets);
                    let held = self.held(location);
                    self.graph.include(from.0, held);
                }
            }
            Constraint::CopyMemory { to, from, length } => {
                let copy = self.copies.len() as u32;
                self.effect(from.0, Effect::CopyFrom { copy });
                self.effect(to.0, Effect::CopyTo { copy });
                self.copies.push(Channels::new(*length));
            }
            Constraint::Call(call) => {
                let effect = Effect::Call {
                    call: self.calls.len() as u32,
                };
                self.effect(call.callee.0, effect);
                self.calls.push(call);
                self.callees.push((FxHashSet::default(), false));
            }
        }
    }

    /// Of a node's effects one was added, or its sets differ from what they have seen.
    fn effect(&mut self, node: u32, effect: Effect) {
        let at = self.graph.find(node) as usize;
        self.graph.effects[at].others.push(effect);
        self.see_again(at);
    }

    fn see_again(&mut self, at: usize) {
        let Graph { sets, unseen, .. } = &mut self.graph;
        unseen[at].clone_from(&sets[at]);
    }

    fn begin_shift(&mut self, to: Variable, from: Variable, shift: Shift, numbers: &Numbers) -> Option<u32> {
        if shift == Shift::By(0) {
            self.graph.include(from.0, to.0);
            return None;
        }
        if numbers.is_nothing(from) {
            return None;
        }
        let (from, to, is_alone) = (self.graph.find(from.0), self.graph.find(to.0), numbers.is_alone(to));
        let others = &self.graph.effects[from as usize].others;
        let same = others.iter().find_map(|effect| match effect {
            Effect::Shift { shift: state } => {
                let known = self.graph.shifts[*state as usize];
                (known.to == to && known.shift == shift).then_some(*state)
            }
            _ => None,
        });
        if same.is_some() {
            return same;
        }
        let state = self.graph.shifts.len() as u32;
        self.graph.shifts.push(ShiftState {
            to,
            shift,
            is_alone,
            same_as: None,
        });
        self.effect(from, Effect::Shift { shift: state });
        Some(state)
    }

    fn load(&mut self, pointer: Variable, to: Variable, is_alone: bool) {
        let at = self.graph.find(pointer.0) as usize;
        match self.graph.effects[at].read {
            Some(read) => self.graph.include(read, to.0),
            None if is_alone => {
                self.graph.effects[at].read = Some(to.0);
                self.see_again(at);
            }
            None => {
                let read = self.graph.node();
                self.graph.effects[at].read = Some(read);
                self.see_again(at);
                self.graph.include(read, to.0);
            }
        }
    }

    fn store(&mut self, pointer: u32, from: u32) {
        let at = self.graph.find(pointer) as usize;
        let written = match self.graph.effects[at].written {
            Some(written) => written,
            None => {
                let written = self.graph.node();
                self.graph.effects[at].written = Some(written);
                self.see_again(at);
                written
            }
        };
        self.graph.include(from, written);
    }

    /// Whether it came to its end.
    fn propagate(&mut self) -> bool {
        loop {
            self.rounds += 1;
            self.collapse_objects();
            for node in cycles::collapse(&mut self.graph) {
                self.graph.propagate(node);
                if self.graph.work > self.most_work {
                    return false;
                }
            }
            let mut changed = false;
            for node in 0..self.graph.sets.len() as u32 {
                if !self.graph.unseen[node as usize].is_empty() {
                    changed = true;
                    self.see(node);
                    if self.graph.work > self.most_work {
                        return false;
                    }
                }
            }
            if !changed && self.graph.is_settled() && self.memory.collapsed.is_empty() {
                return true;
            }
        }
    }

    /// Integers in which nothing known was found, but that become pointers.
    fn integers(&mut self) -> bool {
        let mut empty = Vec::new();
        for constraint in &self.problem.constraints {
            if let Constraint::FromInteger { to, from } = constraint {
                let from = self.graph.find(from.0);
                if self.graph.sets[from as usize].is_empty() {
                    empty.push(*to);
                }
            }
        }
        for to in &empty {
            self.graph.insert(to.0, Memory::UNKNOWN);
        }
        empty.is_empty() || self.propagate()
    }

    /// Applies a node's effects to what they have not seen.
    fn see(&mut self, node: u32) {
        let at = node as usize;
        let unseen = std::mem::take(&mut self.graph.unseen[at]);
        let shared = self.shared(&unseen);
        if let Some(read) = self.graph.effects[at].read {
            match shared {
                Some(shared) => {
                    let all = self.shared_read(shared, &unseen);
                    self.graph.include(all, read);
                }
                None => self.read_all(&unseen, read),
            }
        }
        if let Some(written) = self.graph.effects[at].written {
            match shared {
                Some(shared) => {
                    let all = self.shared_written(shared, &unseen);
                    self.graph.include(written, all);
                }
                None => self.write_all(written, &unseen),
            }
        }
        for index in 0..self.graph.effects[at].others.len() {
            self.apply(self.graph.effects[at].others[index], &unseen, shared);
        }
    }

    fn apply(&mut self, effect: Effect, unseen: &Set, shared: Option<u32>) {
        match effect {
            Effect::Shift { shift } => {
                let ShiftState { to, shift, .. } = self.graph.shifts[shift as usize];
                let to = self.graph.find(to);
                let key = shared.map(|shared| (shared, shift));
                if let Some(moved) = key.and_then(|key| self.shared_shifts.get(&key)) {
                    self.graph.add(to, moved);
                    return;
                }
                let mut moved: Vec<u32> = unseen
                    .iter()
                    .map(|location| self.memory.shifted(location, shift))
                    .collect();
                self.graph.work += moved.len();
                moved.sort_unstable();
                let moved = Set::from_sorted(&moved);
                self.graph.add(to, &moved);
                if let Some(key) = key {
                    self.shared_shifts.insert(key, moved);
                }
            }
            Effect::CopyFrom { copy } => {
                for location in unseen.iter() {
                    if self.copies[copy as usize].sources.insert(location) {
                        self.copy_from(copy, location);
                    }
                }
            }
            Effect::CopyTo { copy } => {
                for location in unseen.iter() {
                    if !self.copies[copy as usize].targets.insert(location) {
                        continue;
                    }
                    for at in 0..self.copies[copy as usize].channels.len() {
                        let (relative, channel) = self.copies[copy as usize].channels[at];
                        self.connect(channel, relative, location);
                    }
                }
            }
            Effect::Call { call } => {
                for location in unseen.iter() {
                    self.call(call, self.memory.locations[location as usize].object);
                }
            }
            Effect::Escape => {
                for location in unseen.iter() {
                    self.escape(self.memory.locations[location as usize].object);
                }
            }
        }
    }

    fn call(&mut self, call: u32, object: ObjectId) {
        let Call { arguments, result, .. } = self.calls[call as usize];
        if object == ObjectId::UNKNOWN {
            self.callees[call as usize].1 = true;
            for argument in arguments.iter().flatten() {
                self.graph.include(argument.0, Variable::ESCAPED.0);
            }
            if let Some(result) = result {
                self.graph.include(self.unknown, result.0);
            }
            return;
        }
        let Some(function) = &self.problem.objects[object.0 as usize].function else {
            return;
        };
        if !self.callees[call as usize].0.insert(object) {
            return;
        }
        for (argument, parameter) in arguments.iter().zip(&function.parameters) {
            if let (Some(argument), Some(parameter)) = (argument, parameter) {
                self.graph.include(argument.0, parameter.0);
            }
        }
        if let Some(further) = function.further {
            for argument in arguments.iter().skip(function.parameters.len()).flatten() {
                self.store(further.0, argument.0);
            }
        }
        if let (Some(from), Some(to)) = (function.result, result) {
            self.graph.include(from.0, to.0);
        }
    }

    fn escape(&mut self, object: ObjectId) {
        if object == ObjectId::UNKNOWN || !self.escaped.insert(object.0) {
            return;
        }
        if let Some(function) = &self.problem.objects[object.0 as usize].function {
            for parameter in function.parameters.iter().flatten() {
                self.graph.include(self.unknown, parameter.0);
            }
            if let Some(further) = function.further {
                self.store(further.0, self.unknown);
            }
            if let Some(result) = function.result {
                self.graph.include(result.0, Variable::ESCAPED.0);
            }
            return;
        }
        let anywhere = self.memory.anywhere(object);
        let read = self.read(anywhere);
        self.graph.include(read, Variable::ESCAPED.0);
        if let Some(written) = self.written(anywhere) {
            self.graph.include(self.unknown, written);
        }
    }

    fn finish(mut self) -> Solution {
        let nodes = self.graph.sets.len();
        let mut representative: Vec<u32> = (0..self.problem.variables).map(|node| self.graph.find(node)).collect();
        let inclusions = self.graph.inclusions.iter().map(Vec::len).sum();
        // Only the sets of variables are kept, those of memory are not.
        let mut kept = FxHashMap::default();
        let mut sets = Vec::new();
        for node in &mut representative {
            let graph = &mut self.graph;
            *node = *kept.entry(*node).or_insert_with(|| {
                sets.push(std::mem::take(&mut graph.sets[*node as usize]));
                sets.len() as u32 - 1
            });
        }
        let calls = self.callees.into_iter().map(|(callees, is_open)| {
            let mut callees: Vec<ObjectId> = callees.into_iter().collect();
            callees.sort();
            (callees, is_open)
        });
        Solution {
            statistics: Statistics {
                variables: self.problem.variables as usize,
                objects: self.problem.objects.len(),
                constraints: self.problem.constraints.len(),
                nodes,
                inclusions,
                locations: self.memory.locations.len(),
                rounds: self.rounds,
                work: self.graph.work,
            },
            locations: self.memory.locations,
            representative,
            sets,
            calls: calls.collect(),
            escaped: self.escaped,
        }
    }
}
