//! Phase 2: fixes that would flush or fence the same become one (section 4.3).
//!
//! - A store is flushed once, however many findings (stacks) it has.
//! - Of fences in one basic block with nothing but stores and flushes in between, the last serves all. Nothing that others could see lies
//!   between them, so that nobody can tell the difference. (The paper merges all fences before I; where I is the end of
//!   the program, that would put off durability to the last moment.)
//! - Ours: flushes of fields of one object in one basic block become one of the whole range, if it is no longer than the lines that would be
//!   flushed one by one.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::fences::is_compiler_barrier;
use super::needs::{Need, What};
use super::object::{self, Part};
use super::{Candidate, Edit, Fix, Plan, Planner, SafeBy, known};
use crate::ir::{Block, Persistence, Value};

/// Bytes of a cache line.
const LINE: u64 = 64;

/// A fix to be made right after an instruction.
#[derive(Clone, Debug)]
struct Insertion<'m> {
    findings: BTreeSet<usize>,
    /// What is flushed; none: only a fence.
    stores: Vec<Value<'m>>,
    fence: bool,
    candidates: Vec<Candidate>,
}

/// An intraprocedural fix, before reduction.
pub(super) struct Intra<'m> {
    pub need: Need<'m>,
    pub candidates: Vec<Candidate>,
}

impl<'m> Planner<'m, '_> {
    pub(super) fn reduce(&self, fixes: Vec<Intra<'m>>, plan: &mut Plan) {
        let mut after: FxHashMap<Value<'m>, Insertion<'m>> = FxHashMap::default();
        for Intra { need, candidates } in fixes {
            let (anchors, flushes, fence) = match need.what {
                What::Flush { stores, fence } => (stores, true, fence),
                What::Fence { after } => (vec![after], false, true),
            };
            let last = anchors.last().copied();
            for anchor in anchors {
                let insertion = after.entry(anchor).or_insert_with(|| Insertion {
                    findings: BTreeSet::new(),
                    stores: Vec::new(),
                    fence: false,
                    candidates: candidates.clone(),
                });
                insertion.findings.extend(need.finding);
                insertion.fence |= fence && last == Some(anchor);
                if flushes && insertion.stores.is_empty() {
                    insertion.stores.push(anchor);
                }
            }
        }
        let blocks: FxHashSet<Block> = after.keys().filter_map(|anchor| anchor.block()).collect();
        let mut made = BTreeMap::new();
        for block in blocks {
            let mut insertions: Vec<(Value, Insertion)> = block
                .instructions()
                .filter_map(|anchor| Some((anchor, after.remove(&anchor)?)))
                .collect();
            self.one_fence(&mut insertions);
            if self.options.coalesce {
                self.one_flush(&mut insertions);
            }
            for (anchor, insertion) in insertions {
                made.extend(anchor.place().zip(fix(anchor, insertion)));
            }
        }
        plan.fixes.extend(made.into_values());
    }

    /// Leaves the last fence of a sequence with nothing in between.
    fn one_fence(&self, insertions: &mut [(Value<'m>, Insertion<'m>)]) {
        let mut next: Option<usize> = None;
        for index in (0..insertions.len()).rev() {
            if !insertions[index].1.fence {
                continue;
            }
            let served_by = next.filter(|&next| {
                between(insertions[index].0, insertions[next].0).all(|instruction| self.is_quiet(instruction))
            });
            match served_by {
                Some(next) => {
                    let findings = insertions[index].1.findings.clone();
                    insertions[index].1.fence = false;
                    insertions[next].1.findings.extend(findings);
                }
                None => next = Some(index),
            }
        }
    }

    /// Joins flushes of one object.
    fn one_flush(&self, insertions: &mut Vec<(Value<'m>, Insertion<'m>)>) {
        let mut index = 0;
        while index + 1 < insertions.len() {
            let (first, second) = (&insertions[index].1, &insertions[index + 1].1);
            if !first.fence && self.may_join(&first.stores, &second.stores) {
                let (_, first) = insertions.remove(index);
                let (_, second) = &mut insertions[index];
                second.findings.extend(first.findings);
                second.stores.splice(0..0, first.stores);
            } else {
                index += 1;
            }
        }
    }

    /// Stores of a function, those together that are flushed at once.
    pub(super) fn group(&self, stores: Vec<Value<'m>>) -> Vec<Vec<Value<'m>>> {
        let mut groups: Vec<Vec<Value>> = Vec::new();
        for store in stores {
            match groups.last_mut() {
                Some(last) if self.options.coalesce && self.may_join(last, &[store]) => last.push(store),
                _ => groups.push(vec![store]),
            }
        }
        groups
    }

    /// Whether stores can be flushed together with later ones, after the last.
    fn may_join(&self, first: &[Value<'m>], second: &[Value<'m>]) -> bool {
        let (Some(&earliest), Some(&earlier), Some(&later)) = (first.first(), first.last(), second.last()) else {
            return false;
        };
        let stores = || first.iter().chain(second);
        let parts: Option<Vec<Part>> = stores().map(|&store| object::part(store)).collect();
        let Some(parts) = parts else { return false };
        let one_block = stores().all(|store| store.block() == earliest.block());
        let one_object = parts.iter().all(|part| part.object == parts[0].object);
        let start = parts.iter().map(|part| part.start).min().unwrap_or(0);
        let end = parts.iter().map(|part| part.end).max().unwrap_or(0);
        let saves = end.abs_diff(start) <= LINE * parts.len() as u64;
        one_block
            && one_object
            && saves
            && between(earlier, later).all(|instruction| !self.fences.may_fence(instruction))
            && object::stays(parts[0].object, between(earliest, later))
    }

    /// Whether an instruction does nothing that anyone else could see: it computes, stores, flushes, or calls what does no more.
    fn is_quiet(&self, instruction: Value<'m>) -> bool {
        let mut pending = vec![instruction];
        let mut seen = FxHashSet::default();
        while let Some(next) = pending.pop() {
            match next.called_function() {
                _ if !next.is_call() => {
                    if self.fences.may_fence(next) {
                        return false;
                    }
                }
                None => {
                    let operations = next.persistence();
                    let flushes = operations
                        .iter()
                        .all(|operation| matches!(operation, Persistence::Flush(_)));
                    if !(flushes && !operations.is_empty() || is_compiler_barrier(next)) {
                        return false;
                    }
                }
                Some(function) if function.has_body() => {
                    if seen.insert(function) {
                        pending.extend(function.instructions());
                    }
                }
                Some(function) => {
                    let name = function.name();
                    let copies =
                        known::written(name).is_some_and(|written| !matches!(written.length, known::Length::Returned));
                    if !copies && (!function.is_intrinsic() || self.fences.may_fence(next)) {
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// The instructions after `earlier`, up to and with `later`, of one block.
fn between<'m>(earlier: Value<'m>, later: Value<'m>) -> impl Iterator<Item = Value<'m>> {
    let mut ended = earlier == later;
    earlier.following().take_while(move |&instruction| {
        let go_on = !ended;
        ended |= instruction == later;
        go_on
    })
}

fn fix(anchor: Value, insertion: Insertion) -> Option<Fix> {
    let Insertion {
        findings,
        stores,
        fence,
        candidates,
    } = insertion;
    let (edit, safe_by) = match stores.is_empty() {
        true => (Edit::Fence { after: anchor.place()? }, SafeBy::FenceInsertion),
        false => (
            Edit::Flush {
                stores: stores.iter().filter_map(|store| store.place()).collect(),
                fence,
            },
            match fence {
                true => SafeBy::FlushAndFenceInsertion,
                false => SafeBy::FlushInsertion,
            },
        ),
    };
    // A lone fence that a later one serves for is no fix.
    if stores.is_empty() && !fence {
        return None;
    }
    Some(Fix {
        findings: findings.into_iter().collect(),
        edit,
        safe_by,
        candidates,
    })
}
