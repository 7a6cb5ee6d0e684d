//! Solves [`Constraints`]: the least points-to sets that fulfil them, by propagation of differences over a graph of inclusions.
//!
//! As in wave propagation (Pereira and Berlin, CGO 2009), cycles of inclusions are collapsed and nodes are visited in topological order, both
//! renewed when enough inclusions were added. Memory has two nodes at each location that is used: what is *written* there, and what may be *read*
//! there, which is what is written at any location that overlaps it. A shift in a cycle (`p = p + 1` in a loop) would visit all offsets one by one;
//! it is turned into any number of steps (positive-weight cycles: Pearce, Kelly and Hankin, TOPLAS 2007), which may add
//! offsets but loses none.

use rustc_hash::{FxHashMap, FxHashSet};

use super::constraints::{Call, Constraint, Constraints, ObjectId, Variable};
use super::cycles;
use super::memory::{Channels, Location, Memory};
use super::offsets::{Offsets, Shift};
use super::set::Set;

/// The least solution.
#[derive(Debug)]
pub struct Solution {
    locations: Vec<Location>,
    representative: Vec<u32>,
    sets: Vec<Set>,
    /// For each [`Constraint::Call`], in their order: the functions, and whether it may be an unknown one.
    pub calls: Vec<(Vec<ObjectId>, bool)>,
    pub escaped: Set,
    pub statistics: Statistics,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub variables: usize,
    pub objects: usize,
    pub constraints: usize,
    /// Of the graph when it was solved.
    pub nodes: usize,
    pub inclusions: usize,
    pub locations: usize,
    pub rounds: usize,
}

impl Solution {
    /// All may point anywhere.
    pub fn unknown(problem: &Constraints) -> Solution {
        let mut unknown = Set::default();
        unknown.insert(Memory::UNKNOWN);
        let mut escaped = Set::default();
        (0..problem.objects.len() as u32).for_each(|object| _ = escaped.insert(object));
        let calls = problem
            .constraints
            .iter()
            .filter(|constraint| matches!(constraint, Constraint::Call(_)));
        Solution {
            locations: vec![Location {
                object: ObjectId::UNKNOWN,
                offsets: Offsets::at(0),
            }],
            representative: vec![0; problem.variables as usize],
            sets: vec![unknown],
            calls: calls.map(|_| (Vec::new(), true)).collect(),
            escaped,
            statistics: Statistics {
                variables: problem.variables as usize,
                objects: problem.objects.len(),
                constraints: problem.constraints.len(),
                ..Statistics::default()
            },
        }
    }

    pub fn points_to(&self, variable: Variable) -> impl Iterator<Item = Location> + '_ {
        let set = self.set(variable);
        set.iter().map(|location| self.locations[location as usize])
    }

    /// As numbers that are the same for the same location.
    pub fn set(&self, variable: Variable) -> &Set {
        &self.sets[self.representative[variable.0 as usize] as usize]
    }

    pub fn is_escaped(&self, object: ObjectId) -> bool {
        object == ObjectId::UNKNOWN || self.escaped.contains(object.0)
    }
}

/// What a node's points-to set has an effect on besides the inclusions. Numbers are of nodes, except where it is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    Load {
        to: u32,
    },
    Store {
        store: u32,
    },
    /// What is stored; nothing is done before there is something.
    Stored {
        store: u32,
    },
    Shift {
        shift: u32,
    },
    CopyFrom {
        copy: u32,
    },
    CopyTo {
        copy: u32,
    },
    Call {
        call: u32,
    },
    Escape,
}

struct StoreState {
    pointer: u32,
    from: u32,
    started: bool,
}

#[derive(Clone, Copy)]
pub(super) struct ShiftState {
    pub to: u32,
    pub shift: Shift,
}

pub(super) struct Graph {
    pub representative: Vec<u32>,
    pub sets: Vec<Set>,
    /// The part of each set that has not been propagated.
    pub news: Vec<Set>,
    pub inclusions: Vec<Vec<u32>>,
    pub effects: Vec<Vec<Effect>>,
    pub shifts: Vec<ShiftState>,
    known: FxHashSet<(u32, u32)>,
    /// Since the last search for cycles.
    pub added: usize,
    /// Inclusions asked for and blocks of sets propagated, since the begin.
    work: usize,
}

impl Graph {
    pub fn node(&mut self) -> u32 {
        let node = self.sets.len() as u32;
        self.representative.push(node);
        self.sets.push(Set::default());
        self.news.push(Set::default());
        self.inclusions.push(Vec::new());
        self.effects.push(Vec::new());
        node
    }

    pub fn find(&mut self, node: u32) -> u32 {
        let mut root = node;
        while self.representative[root as usize] != root {
            root = self.representative[root as usize];
        }
        let mut at = node;
        while at != root {
            at = std::mem::replace(&mut self.representative[at as usize], root);
        }
        root
    }

    fn include(&mut self, from: u32, to: u32) {
        self.work += 1;
        let (from, to) = (self.find(from), self.find(to));
        if from == to || !self.known.insert((from, to)) {
            return;
        }
        self.inclusions[from as usize].push(to);
        self.added += 1;
        let set = std::mem::take(&mut self.sets[from as usize]);
        self.add(to, &set);
        self.sets[from as usize] = set;
    }

    /// `to` is a representative.
    fn add(&mut self, to: u32, set: &Set) {
        self.work += set.blocks();
        self.sets[to as usize].add(set, &mut self.news[to as usize]);
    }

    fn insert(&mut self, node: u32, location: u32) {
        let node = self.find(node) as usize;
        if self.sets[node].insert(location) {
            self.news[node].insert(location);
        }
    }

    /// Makes both one. Effects of either have not seen what only the other had, so that is news.
    pub fn unite(&mut self, into: u32, other: u32) {
        let (into, other) = (self.find(into) as usize, self.find(other) as usize);
        if into == other {
            return;
        }
        self.representative[other] = into as u32;
        let (theirs, their_news) = (
            std::mem::take(&mut self.sets[other]),
            std::mem::take(&mut self.news[other]),
        );
        let mut unseen = theirs.without(&self.sets[into]);
        unseen.merge(&self.sets[into].without(&theirs));
        unseen.merge(&their_news);
        self.news[into].merge(&unseen);
        self.sets[into].merge(&theirs);
        let inclusions = std::mem::take(&mut self.inclusions[other]);
        self.inclusions[into].extend(inclusions);
        let effects = std::mem::take(&mut self.effects[other]);
        self.effects[into].extend(effects);
    }
}

pub struct Solver<'a> {
    problem: &'a Constraints,
    graph: Graph,
    memory: Memory,
    stores: Vec<StoreState>,
    calls: Vec<&'a Call>,
    callees: Vec<(Vec<ObjectId>, bool)>,
    copies: Vec<Channels>,
    escaped: Set,
    /// What is read from unknown memory.
    unknown: u32,
    rounds: usize,
    most_work: usize,
    shifted: FxHashMap<(u32, Shift), u32>,
}

impl<'a> Solver<'a> {
    /// `None` if it takes more work than this; a step of work is some tens of nanoseconds.
    pub fn solve(problem: &'a Constraints, most_work: usize) -> Option<Solution> {
        let mut solver = Solver::new(problem);
        solver.most_work = most_work;
        (solver.propagate() && solver.integers()).then(|| solver.finish())
    }

    /// Also which shifts the solution is of: some of the problem's were in cycles.
    #[cfg(test)]
    pub fn solve_and_tell(problem: &'a Constraints) -> (Solution, Vec<Shift>) {
        let mut solver = Solver::new(problem);
        assert!(solver.propagate() && solver.integers());
        let shifts = solver.graph.shifts.iter().map(|state| state.shift).collect();
        (solver.finish(), shifts)
    }

    fn new(problem: &'a Constraints) -> Solver<'a> {
        let graph = Graph {
            representative: Vec::new(),
            sets: Vec::new(),
            news: Vec::new(),
            inclusions: Vec::new(),
            effects: Vec::new(),
            shifts: Vec::new(),
            known: FxHashSet::default(),
            added: 0,
            work: 0,
        };
        let mut solver = Solver {
            problem,
            graph,
            memory: Memory::new(problem.objects.iter().map(|object| object.end)),
            stores: Vec::new(),
            calls: Vec::new(),
            callees: Vec::new(),
            copies: Vec::new(),
            escaped: Set::default(),
            unknown: 0,
            rounds: 0,
            most_work: usize::MAX,
            shifted: FxHashMap::default(),
        };
        for _ in 0..problem.variables {
            solver.graph.node();
        }
        solver.unknown = solver.graph.node();
        solver.graph.insert(solver.unknown, Memory::UNKNOWN);
        solver.graph.effects[Variable::ESCAPED.0 as usize].push(Effect::Escape);
        for constraint in &problem.constraints {
            solver.begin(constraint);
        }
        solver
    }

    fn begin(&mut self, constraint: &'a Constraint) {
        let graph = &mut self.graph;
        let mut effect = |node: Variable, effect: Effect| graph.effects[node.0 as usize].push(effect);
        match constraint {
            Constraint::Address { to, object, offset } => {
                let offsets = Offsets::at((*offset).min(self.memory.end(*object)));
                let location = self.memory.location(*object, offsets);
                graph.insert(to.0, location);
            }
            Constraint::Copy { to, from } | Constraint::FromInteger { to, from } => graph.include(from.0, to.0),
            Constraint::Shift { to, from, shift } => {
                effect(
                    *from,
                    Effect::Shift {
                        shift: graph.shifts.len() as u32,
                    },
                );
                graph.shifts.push(ShiftState {
                    to: to.0,
                    shift: *shift,
                });
            }
            Constraint::Load { to, pointer } => effect(*pointer, Effect::Load { to: to.0 }),
            Constraint::Store { pointer, from } => {
                let store = self.stores.len() as u32;
                effect(*pointer, Effect::Store { store });
                effect(*from, Effect::Stored { store });
                self.stores.push(StoreState {
                    pointer: pointer.0,
                    from: from.0,
                    started: false,
                });
            }
            Constraint::CopyMemory { to, from, length } => {
                let copy = self.copies.len() as u32;
                effect(*from, Effect::CopyFrom { copy });
                effect(*to, Effect::CopyTo { copy });
                self.copies.push(Channels::new(*length));
            }
            Constraint::Call(call) => {
                effect(
                    call.callee,
                    Effect::Call {
                        call: self.calls.len() as u32,
                    },
                );
                self.calls.push(call);
                self.callees.push((Vec::new(), false));
            }
        }
    }

    /// Whether it came to its end.
    fn propagate(&mut self) -> bool {
        let mut order = cycles::collapse(&mut self.graph);
        loop {
            self.rounds += 1;
            let nodes = self.graph.sets.len() as u32;
            let mut changed = false;
            for &node in &order {
                if self.graph.representative[node as usize] == node && !self.graph.news[node as usize].is_empty() {
                    changed = true;
                    self.visit(node);
                    if self.graph.work > self.most_work {
                        return false;
                    }
                }
            }
            // Nodes that came in this round.
            order.extend(nodes..self.graph.sets.len() as u32);
            if !changed && nodes == self.graph.sets.len() as u32 {
                if (0..nodes).all(|node| self.graph.news[node as usize].is_empty()) {
                    return true;
                }
                order = cycles::collapse(&mut self.graph);
            } else if self.graph.added > 1000 + self.graph.sets.len() / 50 {
                order = cycles::collapse(&mut self.graph);
            }
        }
    }

    /// Integers in which nothing known was found, but that become pointers.
    fn integers(&mut self) -> bool {
        let mut any = false;
        let mut empty = Vec::new();
        for constraint in &self.problem.constraints {
            if let Constraint::FromInteger { to, from } = constraint {
                let from = self.graph.find(from.0);
                if self.graph.sets[from as usize].is_empty() {
                    empty.push(*to);
                }
            }
        }
        for to in empty {
            any = true;
            self.graph.insert(to.0, Memory::UNKNOWN);
        }
        !any || self.propagate()
    }

    fn visit(&mut self, node: u32) {
        let at = node as usize;
        let news = std::mem::take(&mut self.graph.news[at]);
        let inclusions = std::mem::take(&mut self.graph.inclusions[at]);
        for &to in &inclusions {
            let to = self.graph.find(to);
            if to != node {
                self.graph.add(to, &news);
            }
        }
        let more = std::mem::replace(&mut self.graph.inclusions[at], inclusions);
        self.graph.inclusions[at].extend(more);
        let effects = std::mem::take(&mut self.graph.effects[at]);
        for &effect in &effects {
            self.apply(effect, node, &news);
        }
        let more = std::mem::replace(&mut self.graph.effects[at], effects);
        self.graph.effects[at].extend(more);
    }

    fn apply(&mut self, effect: Effect, node: u32, news: &Set) {
        match effect {
            Effect::Load { to } => {
                for location in news.iter() {
                    let read = self.read(location);
                    self.graph.include(read, to);
                }
            }
            Effect::Store { store } => {
                let StoreState { from, started, .. } = self.stores[store as usize];
                if started {
                    self.store(from, news);
                }
            }
            Effect::Stored { store } => {
                let StoreState { pointer, started, .. } = self.stores[store as usize];
                if !started {
                    self.stores[store as usize].started = true;
                    let pointer = self.graph.find(pointer);
                    let set = self.graph.sets[pointer as usize].clone();
                    self.store(node, &set);
                }
            }
            Effect::Shift { shift } => {
                let ShiftState { to, shift } = self.graph.shifts[shift as usize];
                let to = self.graph.find(to);
                for location in news.iter() {
                    let memory = &mut self.memory;
                    let shifted = self.shifted.entry((location, shift));
                    let location = *shifted.or_insert_with(|| memory.shifted(location, shift));
                    self.graph.insert(to, location);
                }
            }
            Effect::CopyFrom { copy } => {
                for location in news.iter() {
                    self.copy_from(copy, location);
                }
            }
            Effect::CopyTo { copy } => {
                for location in news.iter() {
                    self.copies[copy as usize].targets.push(location);
                    for at in 0..self.copies[copy as usize].channels.len() {
                        let (relative, channel) = self.copies[copy as usize].channels[at];
                        self.connect(channel, relative, location);
                    }
                }
            }
            Effect::Call { call } => {
                for location in news.iter() {
                    self.call(call, self.memory.locations[location as usize].object);
                }
            }
            Effect::Escape => {
                for location in news.iter() {
                    self.escape(self.memory.locations[location as usize].object);
                }
            }
        }
    }

    fn store(&mut self, from: u32, locations: &Set) {
        for location in locations.iter() {
            let written = self.written(location);
            self.graph.include(from, written);
        }
    }

    /// The node of what may be read at a location.
    fn read(&mut self, location: u32) -> u32 {
        if location == Memory::UNKNOWN {
            return self.unknown;
        }
        if let Some(node) = self.memory.read[location as usize] {
            return node;
        }
        let node = self.graph.node();
        self.memory.read[location as usize] = Some(node);
        for other in self.memory.overlapping(location) {
            if let Some(written) = self.memory.written[other as usize] {
                self.graph.include(written, node);
            }
        }
        node
    }

    /// The node of what is written at a location.
    fn written(&mut self, location: u32) -> u32 {
        if location == Memory::UNKNOWN {
            return Variable::ESCAPED.0;
        }
        if let Some(node) = self.memory.written[location as usize] {
            return node;
        }
        let node = self.graph.node();
        self.memory.written[location as usize] = Some(node);
        for other in self.memory.overlapping(location) {
            if let Some(read) = self.memory.read[other as usize] {
                self.graph.include(node, read);
            }
        }
        let object = self.memory.locations[location as usize].object;
        for at in 0..self.memory.watchers(object).len() {
            let (copy, source) = self.memory.watchers(object)[at];
            self.channel(copy, source, location);
        }
        node
    }

    fn copy_from(&mut self, copy: u32, source: u32) {
        if source == Memory::UNKNOWN {
            let channel = self.channel_node(copy, Offsets::anywhere(u32::MAX - 1));
            self.graph.include(self.unknown, channel);
            return;
        }
        let object = self.memory.locations[source as usize].object;
        self.memory.watch(object, copy, source);
        for at in 0..self.memory.of_object(object).len() {
            let location = self.memory.of_object(object)[at];
            if self.memory.written[location as usize].is_some() {
                self.channel(copy, source, location);
            }
        }
    }

    /// What is written at `location` is copied, if it is in the part of the object from `source` on that is.
    fn channel(&mut self, copy: u32, source: u32, location: u32) {
        let [source, at] = [source, location].map(|location| self.memory.locations[location as usize].offsets);
        if let Some(relative) = self.copies[copy as usize].relative(source, at) {
            let channel = self.channel_node(copy, relative);
            let written = self.written(location);
            self.graph.include(written, channel);
        }
    }

    /// The node of all that is copied at a distance from the begin.
    fn channel_node(&mut self, copy: u32, relative: Offsets) -> u32 {
        if let Some(channel) = self.copies[copy as usize].numbers.get(&relative) {
            return *channel;
        }
        let channel = self.graph.node();
        self.copies[copy as usize].channels.push((relative, channel));
        self.copies[copy as usize].numbers.insert(relative, channel);
        for at in 0..self.copies[copy as usize].targets.len() {
            let target = self.copies[copy as usize].targets[at];
            self.connect(channel, relative, target);
        }
        channel
    }

    fn connect(&mut self, channel: u32, relative: Offsets, target: u32) {
        if let Some(location) = self.memory.copied_to(target, relative) {
            let written = self.written(location);
            self.graph.include(channel, written);
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
        if self.callees[call as usize].0.contains(&object) {
            return;
        }
        self.callees[call as usize].0.push(object);
        for (argument, parameter) in arguments.iter().zip(&function.parameters) {
            if let (Some(argument), Some(parameter)) = (argument, parameter) {
                self.graph.include(argument.0, parameter.0);
            }
        }
        if let Some(further) = function.further {
            for argument in arguments.iter().skip(function.parameters.len()).flatten() {
                self.late_store(further.0, argument.0);
            }
        }
        if let (Some(from), Some(to)) = (function.result, result) {
            self.graph.include(from.0, to.0);
        }
    }

    /// A store that was found while solving.
    fn late_store(&mut self, pointer: u32, from: u32) {
        let store = self.stores.len() as u32;
        let (pointer, from) = (self.graph.find(pointer), self.graph.find(from));
        self.graph.effects[pointer as usize].push(Effect::Store { store });
        self.graph.effects[from as usize].push(Effect::Stored { store });
        let started = !self.graph.sets[from as usize].is_empty();
        self.stores.push(StoreState { pointer, from, started });
        if started {
            let set = self.graph.sets[pointer as usize].clone();
            self.store(from, &set);
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
                self.late_store(further.0, self.unknown);
            }
            if let Some(result) = function.result {
                self.graph.include(result.0, Variable::ESCAPED.0);
            }
            return;
        }
        let anywhere = self.memory.anywhere(object);
        let (read, written) = (self.read(anywhere), self.written(anywhere));
        self.graph.include(read, Variable::ESCAPED.0);
        self.graph.include(self.unknown, written);
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
        for callees in &mut self.callees {
            callees.0.sort();
        }
        Solution {
            statistics: Statistics {
                variables: self.problem.variables as usize,
                objects: self.problem.objects.len(),
                constraints: self.problem.constraints.len(),
                nodes,
                inclusions,
                locations: self.memory.locations.len(),
                rounds: self.rounds,
            },
            locations: self.memory.locations,
            representative,
            sets,
            calls: self.callees,
            escaped: self.escaped,
        }
    }
}
