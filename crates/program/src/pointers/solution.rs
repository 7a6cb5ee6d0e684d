//! What solving gives.

use super::constraints::{Constraint, Constraints, ObjectId, Variable};
use super::memory::{Location, Memory};
use super::offsets::Offsets;
use super::set::Set;

/// The least solution.
#[derive(Debug)]
pub(super) struct Solution {
    pub locations: Vec<Location>,
    pub representative: Vec<u32>,
    pub sets: Vec<Set>,
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
    pub work: usize,
}

impl Solution {
    /// All may point anywhere.
    pub(super) fn unknown(problem: &Constraints) -> Solution {
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

    pub(super) fn points_to(&self, variable: Variable) -> impl Iterator<Item = Location> + '_ {
        self.locations(self.set(variable))
    }

    pub(super) fn locations<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = Location> + 'a {
        set.iter().map(|location| self.locations[location as usize])
    }

    /// As numbers that are the same for the same location.
    pub(super) fn set(&self, variable: Variable) -> &Set {
        &self.sets[self.representative[variable.0 as usize] as usize]
    }

    pub(super) fn is_escaped(&self, object: ObjectId) -> bool {
        object == ObjectId::UNKNOWN || self.escaped.contains(object.0)
    }
}
