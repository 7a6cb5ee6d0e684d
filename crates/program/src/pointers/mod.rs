//! Pointer analysis of the whole program: which objects a pointer may point to, whatever the program's input and however its threads run.
//!
//! Inclusion-based (Andersen's thesis, 1994), over the front end's bitcode with opaque pointers. An assignment makes one points-to set include
//! another; order and calling context do not count. Told apart are
//!
//! - *objects*: global and local variables, functions, each call of an allocator, also of one of the program: functions that return what they
//!   allocated are taken as if they stood at each of their calls, and others that promise new memory with `__attribute__((malloc))` are believed;
//!   constants without pointers, as strings, are one object;
//! - in each, *offsets* of bytes: fields by offset, elements of arrays together but constant indices apart; see [`Offsets`];
//! - *functions* that a pointer may call, found while solving.
//!
//! What leaves the program's bitcode is one object, [`ObjectKind::Unknown`]: it stands for everything that code outside may reach.
//!
//! It errs on the safe side (a pointer's set holds all that it may point to) except where a pointer is
//!
//! - passed through less than 64 bits by more than a plain copy, or through multiplication, division or remainder;
//! - moved by a constant out of the array that its type names into another object;
//! - handed to the program by a call of one of its functions by code outside that knows it by its name alone (`dlsym`), as modules of a program that were not
//!   built by `crashproof cc` may.
//!
//! [`generate`] makes constraints of the bitcode, [`solver`] solves them and knows no LLVM; a naive solver is the reference that it is tested against, and the
//! runs of random programs.

mod constraints;
mod cycles;
mod generate;
mod graph;
mod memory;
#[cfg(test)]
mod naive;
mod offline;
mod offsets;
mod set;
mod solution;
mod solver;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crashproof_llvm::{Module, Value};
use rustc_hash::FxHashMap;

pub use constraints::ObjectId;
use constraints::Variable;
pub use memory::Location;
pub use offsets::{Offsets, Shift};
use set::Set;
use solution::Solution;
pub use solution::Statistics;
use solver::Solver;

/// After so much work a program is too large to be told apart so finely, and it is done again with less; see [`PointsTo::of`].
const MOST_WORK: usize = 300_000_000;

/// More fields of an object than this, besides what its size lets expect, are not told apart.
const FIELDS: usize = 24;

/// What an abstract object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind<'m> {
    /// Everything that code outside of the program's bitcode may reach.
    Unknown,
    Global(Value<'m>),
    Function(Value<'m>),
    /// All constants that hold no pointer, as strings.
    Constants,
    /// A local variable (its alloca), or a struct that is passed by value (the parameter).
    Stack(Value<'m>),
    /// What a call allocates with a library's allocator; the function, if that is called through a pointer.
    Heap(Value<'m>),
    /// What a call maps.
    Mapping(Value<'m>),
    /// What a call of a function of the program returns, which promises that it is new memory.
    Fresh(Value<'m>),
    /// Further arguments of a variadic function.
    Arguments(Value<'m>),
    /// Memory of a library.
    Library(String),
}

/// What a call may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callees<'m> {
    /// One of these functions and nothing else.
    Closed(Vec<Value<'m>>),
    /// Perhaps something unknown, besides these.
    Open(Vec<Value<'m>>),
}

/// The points-to sets of a module's values.
pub struct PointsTo<'m> {
    values: FxHashMap<Value<'m>, Variable>,
    objects: Vec<ObjectKind<'m>>,
    /// Where the function of a [`ObjectKind::Fresh`] has it from.
    fresh: FxHashMap<ObjectId, Variable>,
    solution: Solution,
    calls: FxHashMap<Value<'m>, Vec<usize>>,
    /// The variables of values in the clones of their functions, besides those of the functions themselves.
    clones: FxHashMap<Value<'m>, Vec<Variable>>,
}

impl<'m> PointsTo<'m> {
    pub fn of(module: &'m Module) -> PointsTo<'m> {
        let generated = generate::constraints(module);
        let mut constraints = generated.constraints;
        // Offsets are told apart up to where each object ends, then less far, then not at all; if that is not enough, pointers may point anywhere.
        let solution = [u32::MAX, 64, 0].into_iter().find_map(|end| {
            constraints
                .objects
                .iter_mut()
                .for_each(|object| object.end = object.end.min(end));
            Solver::solve(&constraints, FIELDS, MOST_WORK)
        });
        let solution = solution.unwrap_or_else(|| Solution::unknown(&constraints));
        // A call of qsort and the like is one of the function that it is given, too; the call itself is not what is asked for.
        let mut calls: FxHashMap<Value<'m>, Vec<usize>> = FxHashMap::default();
        for (index, call) in generated.calls.iter().enumerate() {
            calls.entry(*call).or_default().push(index);
        }
        PointsTo {
            values: generated.values,
            objects: generated.objects,
            fresh: generated.fresh,
            solution,
            calls,
            clones: generated.clones,
        }
    }

    /// Where a pointer may point to. Empty for null and for what is no pointer.
    pub fn locations(&self, value: Value<'m>) -> Vec<Location> {
        let own = self.values.get(&value);
        let variables = own.into_iter().chain(self.clones.get(&value).into_iter().flatten());
        let sets: Vec<&Set> = variables.map(|variable| self.solution.set(*variable)).collect();
        let mut all = Set::default();
        sets.iter().for_each(|set| all.merge(set));
        self.solution.locations(&all).collect()
    }

    /// The objects of [`PointsTo::locations`], each once.
    pub fn objects(&self, value: Value<'m>) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.locations(value).iter().map(|location| location.object).collect();
        objects.sort();
        objects.dedup();
        objects
    }

    pub fn kind(&self, object: ObjectId) -> &ObjectKind<'m> {
        &self.objects[object.0 as usize]
    }

    /// Whether code outside of the program's bitcode may reach the object.
    pub fn is_escaped(&self, object: ObjectId) -> bool {
        self.solution.is_escaped(object)
    }

    /// Whether an object may lie in persistent memory: in a mapping, in what a library of PM hands out, or in unknown memory.
    pub fn may_be_persistent(&self, object: ObjectId) -> bool {
        let mut seen = vec![object];
        let mut next = 0;
        while let Some(&object) = seen.get(next) {
            next += 1;
            match self.kind(object) {
                ObjectKind::Unknown | ObjectKind::Mapping(_) => return true,
                ObjectKind::Library(name) if name == crashproof_library::POOL => return true,
                ObjectKind::Fresh(_) => {
                    let Some(returned) = self.fresh.get(&object) else {
                        return true;
                    };
                    let objects = self.solution.points_to(*returned).map(|location| location.object);
                    for object in objects.collect::<Vec<_>>() {
                        if !seen.contains(&object) {
                            seen.push(object);
                        }
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Whether two pointers may be to the same byte.
    pub fn may_alias(&self, a: Value<'m>, b: Value<'m>) -> bool {
        self.may_overlap(a, Some(1), b, Some(1))
    }

    /// Whether accesses of so many bytes through two pointers may share one; without a size, as many as there are.
    pub fn may_overlap(&self, a: Value<'m>, a_size: Option<u32>, b: Value<'m>, b_size: Option<u32>) -> bool {
        a == b || self.any_pair(a, b, |ours, theirs| ours.offsets.meets(a_size, &theirs.offsets, b_size))
    }

    /// Whether two pointers may point into the same object, anywhere in it.
    pub fn may_share_object(&self, a: Value<'m>, b: Value<'m>) -> bool {
        a == b || self.any_pair(a, b, |_, _| true)
    }

    fn any_pair(&self, a: Value<'m>, b: Value<'m>, is_met: impl Fn(&Location, &Location) -> bool) -> bool {
        let [ours, theirs] = [a, b].map(|value| self.locations(value));
        let reaches = |locations: &[Location], others: &[Location]| {
            locations.iter().any(|location| location.object == ObjectId::UNKNOWN)
                && others.iter().any(|other| self.is_escaped(other.object))
        };
        // Sorted by object, both could be walked at once; sets are small.
        reaches(&ours, &theirs)
            || reaches(&theirs, &ours)
            || ours.iter().any(|our| {
                theirs
                    .iter()
                    .any(|their| our.object == their.object && is_met(our, their))
            })
    }

    /// What a call through a pointer may call.
    pub fn callees(&self, call: Value<'m>) -> Callees<'m> {
        let Some(indices) = self.calls.get(&call) else {
            return Callees::Open(Vec::new());
        };
        let found = indices.iter().map(|index| &self.solution.calls[*index]);
        let objects: BTreeSet<ObjectId> = found.clone().flat_map(|(objects, _)| objects.iter().copied()).collect();
        let functions = objects.iter().filter_map(|object| match self.kind(*object) {
            ObjectKind::Function(function) => Some(*function),
            _ => None,
        });
        match found.clone().any(|(_, is_open)| *is_open) {
            true => Callees::Open(functions.collect()),
            false => Callees::Closed(functions.collect()),
        }
    }

    pub fn statistics(&self) -> Statistics {
        self.solution.statistics
    }
}
