//! The reference: all constraints, again and again, until nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use super::constraints::{Call, Constraint, Constraints, ObjectId, Variable};
use super::memory::{Location, distance, landing};
use super::offsets::Offsets;

#[derive(Default)]
pub(super) struct Naive {
    pub sets: BTreeMap<Variable, BTreeSet<Location>>,
    /// What is written at each location.
    cells: BTreeMap<Location, BTreeSet<Location>>,
    pub calls: Vec<(BTreeSet<ObjectId>, bool)>,
}

const UNKNOWN: Location = Location {
    object: ObjectId::UNKNOWN,
    offsets: Offsets {
        first: 0,
        last: 0,
        step: 0,
    },
};

pub(super) fn solve(problem: &Constraints) -> Naive {
    let mut naive = Naive::default();
    let calls = problem
        .constraints
        .iter()
        .filter(|constraint| matches!(constraint, Constraint::Call(_)));
    naive.calls = vec![Default::default(); calls.count()];
    naive.fixpoint(problem);
    let integers: Vec<Variable> = problem
        .constraints
        .iter()
        .filter_map(|constraint| match constraint {
            Constraint::FromInteger { to, from } if naive.set(*from).is_empty() => Some(*to),
            _ => None,
        })
        .collect();
    for to in integers {
        naive.add(to, [UNKNOWN].into());
    }
    naive.fixpoint(problem);
    naive
}

impl Naive {
    pub(super) fn set(&self, variable: Variable) -> BTreeSet<Location> {
        self.sets.get(&variable).cloned().unwrap_or_default()
    }

    fn size(&self) -> usize {
        let sets = self
            .sets
            .values()
            .chain(self.cells.values())
            .map(BTreeSet::len)
            .sum::<usize>();
        sets + self
            .calls
            .iter()
            .map(|(callees, open)| callees.len() + usize::from(*open))
            .sum::<usize>()
    }

    fn fixpoint(&mut self, problem: &Constraints) {
        loop {
            let before = self.size();
            let mut call = 0;
            for constraint in &problem.constraints {
                self.apply(problem, constraint, &mut call);
            }
            self.escape(problem);
            if self.size() == before {
                return;
            }
        }
    }

    fn add(&mut self, to: Variable, locations: BTreeSet<Location>) {
        self.sets.entry(to).or_default().extend(locations);
    }

    fn write(&mut self, problem: &Constraints, at: Location, locations: BTreeSet<Location>) {
        if at == UNKNOWN {
            self.add(Variable::ESCAPED, locations);
        } else if !locations.is_empty() && !problem.objects[at.object.0 as usize].is_constant {
            self.cells.entry(at).or_default().extend(locations);
        }
    }

    fn read(&self, at: Location) -> BTreeSet<Location> {
        if at == UNKNOWN {
            return [UNKNOWN].into();
        }
        let cells = self
            .cells
            .iter()
            .filter(|(cell, _)| cell.object == at.object && cell.offsets.overlaps(&at.offsets));
        cells.flat_map(|(_, held)| held.iter().copied()).collect()
    }

    fn store(&mut self, problem: &Constraints, pointer: Variable, locations: BTreeSet<Location>) {
        for at in self.set(pointer) {
            self.write(problem, at, locations.clone());
        }
    }

    fn apply(&mut self, problem: &Constraints, constraint: &Constraint, call_number: &mut usize) {
        let end = |object: ObjectId| problem.objects[object.0 as usize].end;
        match constraint {
            Constraint::Address { to, object, offset } => {
                let offsets = Offsets::inside(*offset, end(*object));
                self.add(
                    *to,
                    [Location {
                        object: *object,
                        offsets,
                    }]
                    .into(),
                );
            }
            Constraint::Copy { to, from } | Constraint::FromInteger { to, from } => self.add(*to, self.set(*from)),
            Constraint::Shift { to, from, shift } => {
                let shifted = self
                    .set(*from)
                    .into_iter()
                    .map(|Location { object, offsets }| Location {
                        object,
                        offsets: offsets.shift(*shift, end(object)),
                    });
                self.add(*to, shifted.collect());
            }
            Constraint::Load { to, pointer } => {
                for at in self.set(*pointer) {
                    self.add(*to, self.read(at));
                }
            }
            Constraint::Store { pointer, from } => self.store(problem, *pointer, self.set(*from)),
            Constraint::Initialise { object, offset, from } => {
                let at = Location {
                    object: *object,
                    offsets: Offsets::inside(*offset, end(*object)),
                };
                let held = self.set(*from);
                if !held.is_empty() {
                    self.cells.entry(at).or_default().extend(held);
                }
            }
            Constraint::CopyMemory { to, from, length } => {
                for source in self.set(*from) {
                    let mut copied: Vec<(Offsets, BTreeSet<Location>)> = Vec::new();
                    if source == UNKNOWN {
                        copied.push((Offsets::anywhere(u32::MAX - 1), [UNKNOWN].into()));
                    }
                    for (cell, held) in self.cells.iter().filter(|(cell, _)| cell.object == source.object) {
                        let end = end(source.object);
                        if let Some(relative) = distance(source.offsets, cell.offsets, *length, end) {
                            copied.push((relative, held.clone()));
                        }
                    }
                    for (relative, held) in copied {
                        for target in self.set(*to) {
                            if target == UNKNOWN {
                                self.write(problem, target, held.clone());
                            } else {
                                let object = target.object;
                                let offsets = landing(target.offsets, relative, end(object));
                                self.write(problem, Location { object, offsets }, held.clone());
                            }
                        }
                    }
                }
            }
            Constraint::Call(call) => {
                for callee in self.set(call.callee) {
                    self.call(problem, call, *call_number, callee.object);
                }
                *call_number += 1;
            }
        }
    }

    fn call(&mut self, problem: &Constraints, call: &Call, number: usize, callee: ObjectId) {
        let given = |naive: &Naive, index: usize| call.arguments[index].map_or_else(BTreeSet::new, |v| naive.set(v));
        if callee == ObjectId::UNKNOWN {
            self.calls[number].1 = true;
            for index in 0..call.arguments.len() {
                self.add(Variable::ESCAPED, given(self, index));
            }
            if let Some(result) = call.result {
                self.add(result, [UNKNOWN].into());
            }
        }
        let Some(function) = &problem.objects[callee.0 as usize].function else {
            return;
        };
        self.calls[number].0.insert(callee);
        for index in 0..call.arguments.len() {
            match (function.parameters.get(index), function.further) {
                (Some(parameter), _) => {
                    if let Some(parameter) = parameter {
                        self.add(*parameter, given(self, index));
                    }
                }
                (None, Some(further)) => self.store(problem, further, given(self, index)),
                (None, None) => {}
            }
        }
        if let (Some(to), Some(from)) = (call.result, function.result) {
            self.add(to, self.set(from));
        }
    }

    fn escape(&mut self, problem: &Constraints) {
        for Location { object, .. } in self.set(Variable::ESCAPED) {
            if object == ObjectId::UNKNOWN {
                continue;
            }
            let described = &problem.objects[object.0 as usize];
            if let Some(function) = &described.function {
                for parameter in function.parameters.iter().flatten() {
                    self.add(*parameter, [UNKNOWN].into());
                }
                if let Some(further) = function.further {
                    self.store(problem, further, [UNKNOWN].into());
                }
                if let Some(result) = function.result {
                    self.add(Variable::ESCAPED, self.set(result));
                }
                continue;
            }
            let anywhere = Location {
                object,
                offsets: Offsets::anywhere(described.end),
            };
            self.add(Variable::ESCAPED, self.read(anywhere));
            self.write(problem, anywhere, [UNKNOWN].into());
        }
    }
}
