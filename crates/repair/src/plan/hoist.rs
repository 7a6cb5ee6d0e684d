//! Phase 3: which fixes become persistent subprograms, and where (section 4.3).
//!
//! Candidates are the store and the calls on its stack below the function that holds `durable_by`; the one with the highest score wins, the innermost
//! of equals. A candidate whose subprogram is not known completely is out, and the next one is tried; the store itself is always left.
//!
//! Beyond the paper: a stack that another fix's subprogram lies on needs no fix of its own, if it would be in time.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_llvm::Value;
use rustc_hash::FxHashSet;

use super::aliases::Aliases;
use super::needs::{Need, What};
use super::reduce::Intra;
use super::subprogram::Subprograms;
use super::{Candidate, Edit, Fix, Plan, Planner, SafeBy, StorePath};
use crate::ir::Code;

/// What was chosen for a need.
struct Choice<'m> {
    need: Need<'m>,
    candidates: Vec<Candidate>,
    /// Which of its calls becomes one of a persistent subprogram; none: the store itself is flushed.
    call: Option<usize>,
}

/// A call that becomes one of a persistent subprogram.
#[derive(Default)]
struct Hoisted {
    findings: BTreeSet<usize>,
    fence: bool,
    candidates: Vec<Candidate>,
}

impl<'m> Planner<'m, '_> {
    /// Adds the persistent subprograms to the plan, and returns the fixes that stay where the stores are.
    pub(super) fn hoist(
        &self,
        needs: Vec<Need<'m>>,
        aliases: &dyn Aliases<'m>,
        subprograms: &mut Subprograms<'m, '_>,
        plan: &mut Plan,
    ) -> Vec<Intra<'m>> {
        let mut choices: Vec<Choice> = needs
            .into_iter()
            .map(|need| self.choose(need, aliases, subprograms))
            .collect();
        stay_with_flushed(&mut choices);
        join_outer(&mut choices);

        let mut intra = Vec::new();
        let mut hoisted: BTreeMap<(Value, Value), Hoisted> = BTreeMap::new();
        for Choice { need, candidates, call } in choices {
            let chosen = call.and_then(|call| Some((*need.stack_calls.get(call)?, need.callee(call)?)));
            let Some(chosen) = chosen else {
                intra.push(Intra { need, candidates });
                continue;
            };
            let entry = hoisted.entry(chosen).or_default();
            entry.findings.extend(need.finding);
            entry.fence |= need.fences();
            if entry.candidates.len() < candidates.len() {
                entry.candidates = candidates;
            }
        }
        let mut fixes = BTreeMap::new();
        for ((call, callee), hoisted) in hoisted {
            let Some(place) = call.place() else { continue };
            let fix = Fix {
                findings: hoisted.findings.into_iter().collect(),
                edit: Edit::Subprogram {
                    call: place.clone(),
                    clone: subprograms.copy_of(callee),
                    fence: hoisted.fence,
                },
                safe_by: SafeBy::PersistentSubprogram,
                candidates: hoisted.candidates,
            };
            fixes.insert((place, callee.name()), fix);
        }
        plan.fixes.extend(fixes.into_values());
        intra
    }

    fn choose(&self, need: Need<'m>, aliases: &dyn Aliases<'m>, subprograms: &mut Subprograms<'m, '_>) -> Choice<'m> {
        let store = match &need.what {
            What::Flush { stores, .. } => stores.first().copied(),
            What::Fence { .. } => None,
        };
        let Some(store) = store.filter(|_| need.calls > 0 && !self.options.intra_only) else {
            return Choice {
                need,
                candidates: Vec::new(),
                call: None,
            };
        };
        let calls = need.stack_calls.iter().take(need.calls).copied();
        let places: Vec<Value> = std::iter::once(store).chain(calls).collect();
        let mut candidates: Vec<(Value, Candidate)> = places
            .iter()
            .zip(aliases.scores(&places))
            .filter_map(|(place, score)| {
                let reason = "it passes no pointer, or a call further in does not";
                let candidate = Candidate {
                    place: place.place()?,
                    score,
                    reason: score.is_none().then(|| reason.to_owned()),
                };
                Some((*place, candidate))
            })
            .collect();
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        // Stable: the innermost of equals stays first. The store is always possible, whatever its score.
        let by_trace = aliases.scores_of_trace(&places);
        order.sort_by_key(|&index| std::cmp::Reverse((candidates[index].1.score, by_trace[index])));
        let mut chosen = None;
        // The innermost place that no store comes by which the program flushes itself, if there is one, is before the score.
        if self.options.spare_flushed {
            let spares = |index: &usize| self.spares(store, &need.stack_calls[..*index]);
            let (mut first, others): (Vec<usize>, Vec<usize>) = (0..candidates.len()).partition(spares);
            first.extend(order.into_iter().filter(|index| others.contains(index)));
            order = first;
        }
        for index in order {
            let (place, candidate) = &mut candidates[index];
            if *place == store {
                break;
            }
            if candidate.reason.is_some() {
                continue;
            }
            match self.usable(&need, index - 1, candidate, aliases, subprograms) {
                Ok(()) => {
                    chosen = Some(index - 1);
                    break;
                }
                Err(reason) => candidate.reason = Some(reason),
            }
        }
        Choice {
            need,
            candidates: candidates.into_iter().map(|(_, candidate)| candidate).collect(),
            call: chosen,
        }
    }

    /// Whether the program never flushes, by itself, what the store writes when these calls lead to it.
    fn spares(&self, store: Value<'m>, calls: &[Value<'m>]) -> bool {
        let leads_there = |path: &&StorePath<'m>| path.at.contains(&store) && path.calls.starts_with(calls);
        !self.paths.iter().filter(leads_there).any(|path| path.flushed)
    }

    /// Whether a call on the stack can become one of a persistent subprogram.
    fn usable(
        &self,
        need: &Need<'m>,
        call: usize,
        candidate: &Candidate,
        aliases: &dyn Aliases<'m>,
        subprograms: &mut Subprograms<'m, '_>,
    ) -> Result<(), String> {
        if let Some(reason) = self.options.excluded.get(&candidate.place) {
            return Err(reason.clone());
        }
        let callee = need.callee(call).ok_or("it is not known what it calls")?;
        let call = need.stack_calls[call];
        if call.is_indirect_call() && aliases.callees(call).is_none() {
            return Err("it calls through a pointer that may be to anything".into());
        }
        if call.is_musttail() {
            return Err("it must be the last thing that its function does".into());
        }
        subprograms.check(callee)
    }
}

/// What another fix flushes where it is stored needs no subprogram: whoever calls, it is flushed.
fn stay_with_flushed(choices: &mut [Choice]) {
    let mut flushed: FxHashSet<Value> = FxHashSet::default();
    let mut fenced: FxHashSet<Value> = FxHashSet::default();
    for choice in choices.iter().filter(|choice| choice.call.is_none()) {
        if let What::Flush { stores, fence } = &choice.need.what {
            flushed.extend(stores);
            fenced.extend(stores.iter().filter(|_| *fence));
        }
    }
    for choice in choices.iter_mut().filter(|choice| choice.call.is_some()) {
        if let What::Flush { stores, fence } = &choice.need.what {
            let enough = if *fence { &fenced } else { &flushed };
            if stores.iter().all(|store| enough.contains(store)) {
                choice.call = None;
            }
        }
    }
}

/// A stack on which a subprogram of another fix lies, further out, is flushed by that; and fenced in time, if the call is still a candidate.
fn join_outer(choices: &mut [Choice]) {
    let chosen: FxHashSet<(Value, Value)> = choices
        .iter()
        .filter_map(|choice| Some((choice.need.stack_calls[choice.call?], choice.need.callee(choice.call?)?)))
        .collect();
    for choice in choices.iter_mut() {
        let need = &choice.need;
        if !matches!(need.what, What::Flush { .. }) {
            continue;
        }
        let until = if need.fences() {
            need.calls
        } else {
            need.stack_calls.len()
        };
        let outermost = (0..until).rev().find(|&call| {
            let callee = need.callee(call);
            callee.is_some_and(|callee| chosen.contains(&(need.stack_calls[call], callee)))
        });
        choice.call = outermost.or(choice.call);
    }
}
