//! The solver against the naive one, on random constraints.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::pointers::constraints::{Call, Constraint, Constraints, Function, Object, ObjectId, Variable};
use crate::pointers::memory::{Location, distance};
use crate::pointers::naive::{self, Naive};
use crate::pointers::offsets::{Offsets, Shift};
use crate::pointers::solution::Solution;
use crate::pointers::solver::Solver;

const VARIABLES: u32 = 14;

fn variable() -> impl Strategy<Value = Variable> {
    // Escape now and then, not all the time.
    prop_oneof![1 => Just(Variable::ESCAPED), 40 => (1..VARIABLES).prop_map(Variable)]
}

fn shift() -> impl Strategy<Value = Shift> {
    let step = || prop::sample::select(vec![4u32, 8, 16]);
    prop_oneof![
        4 => prop::sample::select(vec![0i64, 4, 8, 16, -8, 100]).prop_map(Shift::By),
        1 => (step(), prop::option::of(1u32..5)).prop_map(|(step, count)| Shift::Index { step, count }),
        1 => step().prop_map(Shift::Steps),
    ]
}

fn constraint(objects: u32) -> impl Strategy<Value = Constraint> {
    let optional = || prop::option::of(variable());
    let call = (variable(), prop::collection::vec(optional(), 0..4), optional());
    prop_oneof![
        8 => (variable(), 0..objects, prop::sample::select(vec![0u32, 0, 0, 8, 16])).prop_map(|(to, object, offset)| {
            // Unknown memory is rarer.
            let object = ObjectId(if object == 0 && offset != 16 { 1 } else { object });
            Constraint::Address { to, object, offset }
        }),
        6 => (variable(), variable()).prop_map(|(to, from)| Constraint::Copy { to, from }),
        4 => (variable(), variable(), shift()).prop_map(|(to, from, shift)| Constraint::Shift { to, from, shift }),
        5 => (variable(), variable()).prop_map(|(to, pointer)| Constraint::Load { to, pointer }),
        5 => (variable(), variable()).prop_map(|(pointer, from)| Constraint::Store { pointer, from }),
        2 => (1..objects, prop::sample::select(vec![0u32, 8, 16]), variable())
            .prop_map(|(object, offset, from)| Constraint::Initialise { object: ObjectId(object), offset, from }),
        2 => (variable(), variable(), prop::option::of(1u32..40))
            .prop_map(|(to, from, length)| Constraint::CopyMemory { to, from, length }),
        1 => (variable(), variable()).prop_map(|(to, from)| Constraint::FromInteger { to, from }),
        2 => call.prop_map(|(callee, arguments, result)| Constraint::Call(Call { callee, arguments, result })),
    ]
}

fn object() -> impl Strategy<Value = Object> {
    let optional = || prop::option::of(variable());
    let function = (prop::collection::vec(optional(), 0..3), optional(), optional());
    prop_oneof![
        4 => prop::sample::select(vec![0u32, 8, 16, 32])
            .prop_map(|end| Object { end, is_constant: false, function: None }),
        1 => prop::sample::select(vec![0u32, 16]).prop_map(|end| Object { end, is_constant: true, function: None }),
        1 => function.prop_map(|(parameters, further, result)| Object {
            end: 0,
            is_constant: true,
            function: Some(Function { parameters, further, result }),
        }),
    ]
}

fn problem() -> impl Strategy<Value = Constraints> {
    prop::collection::vec(object(), 1..6).prop_flat_map(|objects| {
        let count = objects.len() as u32 + 1;
        prop::collection::vec(constraint(count), 1..30).prop_map(move |constraints| {
            let mut problem = Constraints {
                variables: VARIABLES,
                ..Constraints::default()
            };
            problem.objects.extend(objects.iter().cloned());
            problem.constraints = constraints;
            problem
        })
    })
}

fn is_covered(location: &Location, by: &[Location]) -> bool {
    by.iter()
        .any(|other| other.object == location.object && other.offsets.covers(&location.offsets))
}

/// Each location of the first is one of the second, or part of one.
pub(super) fn within(first: &[Location], second: &[Location]) -> bool {
    first.iter().all(|location| is_covered(location, second))
}

fn sets(solution: &Solution, naive: &Naive, variable: u32) -> (Vec<Location>, Vec<Location>) {
    let variable = Variable(variable);
    (
        solution.points_to(variable).collect(),
        naive.set(variable).into_iter().collect(),
    )
}

fn same_calls(solution: &Solution, naive: &Naive) -> bool {
    let naive = naive
        .calls
        .iter()
        .map(|(callees, open)| (callees.iter().copied().collect(), *open));
    solution.calls.iter().cloned().eq(naive)
}

/// The problem with those shifts in the place of its own.
pub(super) fn stepped(problem: &Constraints, shifts: Vec<Option<Shift>>) -> Constraints {
    let mut stepped = problem.clone();
    let mut shifts = shifts.into_iter();
    for constraint in &mut stepped.constraints {
        if let Constraint::Shift { shift, .. } = constraint {
            *shift = shifts.next().flatten().unwrap_or(*shift);
        }
    }
    stepped
}

proptest! {
    #![proptest_config(super::cases(400))]

    /// Without a shift in a cycle both are the same. With one, the solver takes any number of steps, from when it has found the cycle: no
    /// less than the naive one that is told which shifts those are, and no more than one that does both.
    #[test]
    fn as_the_naive_solver(problem in problem()) {
        let (solution, shifts) = Solver::solve_and_tell(&problem, usize::MAX);
        let stepped = stepped(&problem, shifts);
        let mut both = problem.clone();
        both.constraints.extend(stepped.constraints.iter().filter(|c| matches!(c, Constraint::Shift { .. })).cloned());
        if stepped != problem {
            let [least, most] = [stepped, both].map(|problem| naive::solve(&problem));
            for variable in 0..VARIABLES {
                let (ours, theirs) = sets(&solution, &least, variable);
                prop_assert!(within(&theirs, &ours), "{variable}: {ours:?}, at least {theirs:?}");
                let (ours, theirs) = sets(&solution, &most, variable);
                prop_assert!(within(&ours, &theirs), "{variable}: {ours:?}, at most {theirs:?}");
            }
        } else {
            let naive = naive::solve(&problem);
            for variable in 0..VARIABLES {
                let (mut ours, theirs) = sets(&solution, &naive, variable);
                ours.sort();
                prop_assert_eq!(ours, theirs, "variable {}", variable);
            }
            prop_assert!(same_calls(&solution, &naive));
        }
    }
}

proptest! {
    #![proptest_config(super::cases(400))]

    /// An object with many fields becomes one field, or is told apart only up to an offset, and nothing is lost. (An integer that no known address was found
    /// in is one that nothing is known of; more in the sets may mean less there.)
    #[test]
    fn with_fewer_fields_nothing_is_lost(problem in problem(), fields in 0usize..3, end in prop::sample::select(vec![u32::MAX, 12, 0])) {
        let mut problem = problem;
        problem.constraints.retain(|constraint| !matches!(constraint, Constraint::FromInteger { .. }));
        let mut coarse = problem.clone();
        coarse.objects.iter_mut().for_each(|object| object.end = object.end.min(end));
        let (solution, shifts) = Solver::solve_and_tell(&coarse, fields);
        let naive = naive::solve(&stepped(&problem, shifts));
        for variable in 0..VARIABLES {
            let (ours, theirs) = sets(&solution, &naive, variable);
            let objects = |locations: &[Location]| locations.iter().map(|location| location.object).collect::<BTreeSet<_>>();
            prop_assert!(objects(&ours).is_superset(&objects(&theirs)), "{variable}: {ours:?}, at least {theirs:?}");
            prop_assert!(end != u32::MAX || within(&theirs, &ours), "{variable}: {ours:?}, at least {theirs:?}");
        }
        for ((ours, is_open), (theirs, open)) in solution.calls.iter().zip(&naive.calls) {
            prop_assert!(theirs.iter().all(|callee| ours.contains(callee)) && is_open >= open);
        }
    }

    /// Any number of shifts that stay in the object are among any number of steps.
    #[test]
    fn steps_are_repeated_shifts(first in 0u32..64, by in 1i64..20, count in 0i64..8, is_forward: bool) {
        let (end, start) = (64, Offsets::at(first));
        let by = if is_forward { by } else { -by };
        let stepped = start.shift(Shift::Steps(by.unsigned_abs() as u32), end);
        let moved = i64::from(first) + by * count;
        if (0..=64).contains(&moved) {
            let moved = Offsets::at(moved as u32);
            prop_assert!(stepped.covers(&moved) && stepped.overlaps(&moved), "{stepped:?} {moved:?}");
        }
    }

    /// Overlap, coverage and shifts of progressions, against the sets of offsets that they stand for.
    #[test]
    fn progressions_are_sets(a in offsets(), b in offsets(), by in -30i64..30) {
        let [set, other] = [a, b].map(|offsets| elements(&offsets));
        if !set.is_disjoint(&other) {
            prop_assert!(a.overlaps(&b));
        }
        prop_assert_eq!(a.covers(&b), set.is_superset(&other));
        let moved: BTreeSet<i64> = set.iter().map(|offset| offset + by).filter(|offset| (0..=64).contains(offset)).collect();
        let shifted = elements(&a.shift(Shift::By(by), 64));
        prop_assert!(shifted.is_superset(&moved));
        prop_assert!(moved.is_empty() || shifted == moved || a.step == 1 || a.is_open(64));
        // What is copied from a lands where the distances say.
        if let Some(relative) = distance(a, b, Some(64), 64) {
            let distances: BTreeSet<i64> = other.iter().flat_map(|x| set.iter().map(move |s| x - s)).filter(|d| *d >= 0).collect();
            prop_assert!(elements(&relative).is_superset(&distances), "{relative:?} {distances:?}");
        } else {
            prop_assert!(other.iter().all(|x| set.iter().all(|s| x < s)));
        }
        for (size, other_size) in [(1, 1), (8, 1), (4, 8), (64, 3)] {
            let touched = |set: &BTreeSet<i64>, size: i64| set.iter().flat_map(|o| *o..o + size).collect::<BTreeSet<i64>>();
            if !touched(&set, size).is_disjoint(&touched(&other, other_size)) {
                prop_assert!(a.meets(Some(size as u32), &b, Some(other_size as u32)), "{size} {other_size}");
            }
        }
    }
}

fn offsets() -> impl Strategy<Value = Offsets> {
    (0u32..64, 0u32..64, 0u32..20).prop_map(|(first, last, step)| Offsets::progression(first, last.max(first), step))
}

fn elements(offsets: &Offsets) -> BTreeSet<i64> {
    let step = offsets.step.max(1) as usize;
    (offsets.first..=offsets.last).step_by(step).map(i64::from).collect()
}
