//! Phase 2: fixes that would flush or fence the same become one (section 4.3).
//!
//! - A store is flushed once, however many findings (stacks) it has.
//! - Of fences in one basic block with nothing but stores and flushes in between, the last serves all. Nothing that others could see lies
//!   between them, so that nobody can tell the difference. (The paper merges all fences before I; where I is the end of
//!   the program, that would put off durability to the last moment.)
//! - Ours: flushes of fields of one object become one of the whole range, if that is no longer than the lines that would be flushed one by one, and if nothing
//!   fences in between. They are in one basic block, or the last comes on every path from the others.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_llvm::{Block, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::fences::{Fences, is_compiler_barrier};
use super::needs::{Need, What};
use super::object::{self, Object, Part};
use super::{Candidate, Edit, Fix, Plan, Planner, SafeBy, known};
use crate::ir::{Code, Persistence};

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
        let mut all: Vec<(Value, Insertion)> = Vec::new();
        for block in blocks {
            let mut insertions: Vec<(Value, Insertion)> = block
                .code()
                .filter_map(|anchor| Some((anchor, after.remove(&anchor)?)))
                .collect();
            self.one_fence(&mut insertions);
            if self.options.coalesce {
                self.one_flush(&mut insertions);
            }
            all.extend(insertions);
        }
        all.sort_by_cached_key(|(anchor, _)| anchor.place());
        if self.options.coalesce {
            self.one_flush_on_all_paths(&mut all);
        }
        let mut made = BTreeMap::new();
        for (anchor, insertion) in all {
            made.extend(anchor.place().zip(fix(anchor, insertion)));
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

    /// Joins flushes of one object in different blocks.
    fn one_flush_on_all_paths(&self, insertions: &mut Vec<(Value<'m>, Insertion<'m>)>) {
        let mut index = 0;
        while index < insertions.len() {
            let (_, first) = &insertions[index];
            let later = insertions.iter().position(|(_, second)| {
                (!first.fence || second.fence) && self.may_join_later(&first.stores, &second.stores, first.fence)
            });
            match later {
                Some(later) => {
                    let (_, first) = insertions[index].clone();
                    let (_, second) = &mut insertions[later];
                    second.findings.extend(first.findings);
                    add_before(&mut second.stores, first.stores);
                    insertions.remove(index);
                    index = 0;
                }
                None => index += 1,
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
        let mut index = 0;
        while self.options.coalesce && index < groups.len() {
            let later = (0..groups.len()).find(|&later| self.may_join_later(&groups[index], &groups[later], false));
            match later {
                Some(later) => {
                    let first = groups[index].clone();
                    add_before(&mut groups[later], first);
                    groups.remove(index);
                    index = 0;
                }
                None => index += 1,
            }
        }
        groups
    }

    /// Whether stores can be flushed together with later ones of the same block, after the last.
    fn may_join(&self, first: &[Value<'m>], second: &[Value<'m>]) -> bool {
        let (Some(&earliest), Some(&earlier), Some(&later)) = (first.first(), first.last(), second.last()) else {
            return false;
        };
        let one_block = first
            .iter()
            .chain(second)
            .all(|store| store.block() == earliest.block());
        let Some(parts) = parts(first, second).filter(|_| one_block) else {
            return false;
        };
        Part::range(&parts).is_some()
            && between(earlier, later).all(|instruction| !self.fences.may_fence(instruction))
            && object::stays(parts[0].object, between(earliest, later))
    }

    /// Whether stores can be flushed together with those of another block, after the last, because it comes on every path. `quietly`: with nothing in
    /// between that anyone could see.
    fn may_join_later(&self, first: &[Value<'m>], second: &[Value<'m>], quietly: bool) -> bool {
        let (Some(&earlier), Some(&later)) = (first.last(), second.last()) else {
            return false;
        };
        if earlier.block() == later.block() || earlier.function() != later.function() {
            return false;
        }
        let Some(parts) = parts(first, second) else {
            return false;
        };
        let Object::Variable(variable) = parts[0].object else {
            return false;
        };
        let closed = matches!(Part::range(&parts), Some((_, Some(_))));
        closed
            && object::is_private(variable)
            && Fences::leads_to(earlier, later, |instruction| {
                instruction.store_pointer() != Some(variable)
                    && !self.fences.may_fence(instruction)
                    && (!quietly || self.is_quiet(instruction))
            })
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
                        pending.extend(function.code());
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

/// In the order of the function; the last stays last.
fn add_before<'m>(stores: &mut Vec<Value<'m>>, earlier: Vec<Value<'m>>) {
    stores.splice(0..0, earlier);
    let last = stores.len() - 1;
    stores[..last].sort_by_cached_key(|store| store.place());
}

fn parts<'m>(first: &[Value<'m>], second: &[Value<'m>]) -> Option<Vec<Part<'m>>> {
    first.iter().chain(second).map(|&store| object::part(store)).collect()
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
