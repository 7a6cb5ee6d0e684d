//! The least change after which every property holds.
//!
//! In this order: stores moved, fences added, flushes added, flushes and fences moved.
//!
//! - Stores move only where a required order contradicts theirs. The stores that keep their order among each other are free of contradicted
//!   pairs; contradiction is transitive, so the most that can stay are a largest antichain, and the fewest that move are a largest
//!   matching (Dilworth, König). Any such choice can be completed: what must come before what is free of circles. Which of them move,
//!   and whereto, is chosen together with the fences.
//! - If none moves and adding in place meets a lower bound, that is it ([`crate::intervals`]).
//! - Else the exact problem is solved ([`crate::search`]) on the part of the sequence that matters ([`crate::part`]): first for the needs that are not met,
//!   then with every need that the solution turned out to break, until it breaks none. A solution with fewer needs that meets them all is least
//!   for all.
//!
//! An added fence counts as often as it runs ([`Litmus::times`]), an added flush as often as the store that it flushes.
//!
//! Where the exact problem is too large, and the sequence falls into parts of the same shape, as the iterations of a loop, the change is the least of each part ([`crate::parts`]).
//!
//! What comes out is checked on the model, whatever made it.
//!
//! Deviations from the paper: stores need not all be durable, and may overwrite each other (the paper's Φ_mo forbids it); two stores that share
//! bytes are never swapped; `clflush` is never added. A required store is flushed itself, even where a non-temporal store overwrites it and the model would forgive that.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::intervals::add_in_place;
use crate::moves::moves;
use crate::needs::{Index, Need, Order, needs};
use crate::part::{Moving, Part};
use crate::parts::{self, Shape, Stretch};
use crate::search::{Limits, Moves, Placed, Search, Solved, Unsolved};
use crate::verdict::violations_of;
use crate::{Action, Litmus, Op, Property, StoreId};

/// Most contradicted pairs of stores: two hundred in the wrong order throughout.
const PAIRS: usize = 20_000;
/// Most steps spent looking for contradicted pairs.
const STEPS: usize = 50_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    pub lines: Vec<RepairedLine>,
    pub added_flushes: usize,
    pub added_fences: usize,
    /// Flushes and fences.
    pub moved: usize,
    pub stores_moved: usize,
    pub least: Least,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedLine {
    pub op: Op,
    /// How often its line of source ran; 1 for what is added.
    pub times: u32,
    pub added: bool,
    pub moved: bool,
}

/// Why nothing smaller will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// All properties held.
    NothingToDo,
    /// As many disjoint intervals between stores need a fence, or a flush of their line, each.
    Disjoint,
    /// All that would cost less was looked at.
    Exact,
    /// Nothing moves fewer stores or adds less; whether fewer flushes and fences could move was not found out in time.
    Additions,
    /// The least in each of these parts of the sequence, of so many different shapes. A change across parts may be smaller.
    InParts { parts: usize, shapes: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRepair {
    /// The properties, and the order of stores to the same bytes, ask for a circle.
    #[error("no order of the stores can satisfy this: {}", .0.join(", "))]
    Circle(Vec<String>),
    #[error("no repair was found within {0:?}; give a longer limit, or fewer properties")]
    TimedOut(Duration),
    #[error("no repair was found: there are too many ways to change this; give fewer properties or threads")]
    TooLarge,
    /// The solver's answer did not stand up to the model, or there was none.
    #[error("the solver found no repair that the model accepts; please report this litmus file")]
    Unsolved,
}

pub fn repair(litmus: &Litmus, limit: Duration) -> Result<Repair, NoRepair> {
    let start = Instant::now();
    let problem = Problem::of(litmus)?;
    if let Some((sequence, least)) = problem.simply() {
        return finish(litmus, sequence, least);
    }
    let (quick, all) = (Limits::quick(start + limit), Limits::all(start + limit));
    if let Ok((sequence, Moves::Fewest)) = problem.exactly(quick) {
        return finish(litmus, sequence, Least::Exact);
    }
    // Of repeated iterations one is solved. Parts that are all different are only for when the whole cannot be solved.
    if let Some(found) = problem.in_parts(quick, true) {
        return Ok(found);
    }
    let unsolved = match problem.exactly(Limits::all(start + limit * 3 / 4)) {
        Ok((sequence, Moves::Fewest)) => return finish(litmus, sequence, Least::Exact),
        Ok((sequence, Moves::Some)) => return finish(litmus, sequence, Least::Additions),
        Err(unsolved) => unsolved,
    };
    if let (Unsolved::TimedOut | Unsolved::TooLarge, Some(found)) = (unsolved, problem.in_parts(all, false)) {
        return Ok(found);
    }
    Err(match unsolved {
        Unsolved::TimedOut => NoRepair::TimedOut(limit),
        Unsolved::TooLarge => NoRepair::TooLarge,
        Unsolved::Infeasible => NoRepair::Unsolved,
    })
}

/// A litmus, and what is known of it before anything is searched.
struct Problem<'a> {
    litmus: &'a Litmus,
    needs: Vec<Need>,
    index: Index,
    order: Order,
    /// Stores in the wrong order.
    pairs: Vec<(StoreId, StoreId)>,
}

impl<'a> Problem<'a> {
    fn of(litmus: &'a Litmus) -> Result<Problem<'a>, NoRepair> {
        let index = Index::of(litmus, &litmus.ops);
        let order = Order::of(litmus, &index.at);
        if let Some(circle) = order.circle() {
            return Err(NoRepair::Circle(in_words(litmus, &circle.0)));
        }
        Ok(Problem {
            litmus,
            needs: needs(litmus),
            pairs: contradicted(&order, &index.at).ok_or(NoRepair::TooLarge)?,
            index,
            order,
        })
    }

    /// Nothing to do, or adding in place is the least.
    fn simply(&self) -> Option<(Vec<Placed>, Least)> {
        let litmus = self.litmus;
        if violations_of(litmus, &litmus.ops).is_empty() {
            let sequence = (0..litmus.ops.len()).map(Placed::Original).collect();
            return Some((sequence, Least::NothingToDo));
        }
        if !self.pairs.is_empty() || litmus.is_weighted() {
            return None;
        }
        let added = add_in_place(litmus, &litmus.ops, &self.needs)?;
        let mut before: Vec<Vec<Placed>> = vec![Vec::new(); litmus.ops.len() + 1];
        for (at, thread, flush) in added.flushes {
            before[at].push(Placed::Flush(thread, flush));
        }
        for (at, thread) in added.fences {
            before[at].push(Placed::Fence(thread));
        }
        let mut sequence = Vec::new();
        for (at, new) in before.into_iter().enumerate() {
            sequence.extend(new);
            sequence.extend((at < litmus.ops.len()).then_some(Placed::Original(at)));
        }
        Some((sequence, Least::Disjoint))
    }

    /// One part of each shape solved, the others changed alike. With `repeated`, only if most parts are like another.
    fn in_parts(&self, limits: Limits, repeated: bool) -> Option<Repair> {
        let litmus = self.litmus;
        for parts in parts::ways(litmus, &self.needs, &self.index, &self.pairs) {
            let mut first_of: FxHashMap<Shape, usize> = FxHashMap::default();
            let models: Vec<usize> = parts
                .iter()
                .enumerate()
                .map(|(n, part)| *first_of.entry(part.shape()).or_insert(n))
                .collect();
            let shapes = first_of.len();
            if repeated && shapes * 2 > parts.len() {
                continue;
            }
            let solved = |n: usize| (models[n] == n).then(|| least_of(&parts[n], limits));
            let solved: Vec<Option<Option<Vec<Placed>>>> = (0..parts.len()).map(solved).collect();
            let change = |(part, &model): (&Stretch, &usize)| {
                let change = solved[model].as_ref()?.as_deref()?;
                Some(part.changed_as(&parts[model], change))
            };
            let Some(changed) = parts.iter().zip(&models).map(change).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let count = parts.len();
            let least = Least::InParts { parts: count, shapes };
            if let Ok(found) = finish(litmus, changed.concat(), least) {
                return Some(found);
            }
        }
        None
    }
}

/// As [`repair`] does it for repeated iterations, whatever the size.
#[cfg(test)]
pub(crate) fn in_parts(litmus: &Litmus, limit: Duration) -> Option<Repair> {
    let problem = Problem::of(litmus).ok()?;
    problem.in_parts(Limits::all(Instant::now() + limit), true)
}

/// The least change of a part, as operations of it.
fn least_of(part: &Stretch, limits: Limits) -> Option<Vec<Placed>> {
    let problem = Problem::of(&part.litmus).ok()?;
    match problem.simply() {
        Some((sequence, _)) => Some(sequence),
        None => problem.exactly(limits).ok().map(|(sequence, _)| sequence),
    }
}

/// Pairs of stores that have to come in the other order than they do: (the first of them as it should be, the second).
fn contradicted(order: &Order, at: &[usize]) -> Option<Vec<(StoreId, StoreId)>> {
    let backward = |from: StoreId| order.after[from].iter().filter(move |&&to| at[to] < at[from]);
    // A way back begins at or before the last store with a step back, and ends at or after the earliest that one leads to.
    let latest = (0..at.len())
        .filter(|&from| backward(from).next().is_some())
        .map(|from| at[from])
        .max();
    let Some(latest) = latest else {
        return Some(Vec::new());
    };
    let earliest = (0..at.len()).flat_map(backward).map(|&to| at[to]).min()?;
    let mut pairs = Vec::new();
    let mut steps = 0;
    for from in (0..at.len()).filter(|&from| (earliest..=latest).contains(&at[from])) {
        let mut reached = FxHashSet::default();
        let mut open = vec![from];
        while let Some(store) = open.pop() {
            for &to in order.after[store].iter().filter(|&&to| at[to] <= latest) {
                steps += 1;
                if reached.insert(to) {
                    open.push(to);
                    if at[to] < at[from] {
                        pairs.push((from, to));
                    }
                }
            }
        }
        if steps > STEPS || pairs.len() > PAIRS {
            return None;
        }
    }
    Some(pairs)
}

impl Problem<'_> {
    /// Meets the needs with the least change.
    fn exactly(&self, limits: Limits) -> Result<(Vec<Placed>, Moves), Unsolved> {
        let Problem {
            litmus, needs, index, ..
        } = self;
        let ops = &litmus.ops;
        let moving = Moving::of(&self.order, &self.pairs);
        let may_move: FxHashSet<StoreId> = moving.movable.iter().map(|&(store, _)| store).collect();
        let asks = |need: &&Need| {
            index.served_by(litmus, ops, need).is_none()
                || may_move.contains(&need.store)
                || need.until.is_some_and(|until| may_move.contains(&until))
        };
        let mut active: FxHashSet<Need> = needs.iter().filter(asks).copied().collect();
        let threads: Vec<u32> = index.at.iter().map(|&at| ops[at].thread).collect();
        loop {
            let part = Part::of(litmus, needs, &active, index, &moving);
            let wanted: Vec<Need> = needs.iter().filter(|need| active.contains(need)).copied().collect();
            let solved = Search::new(litmus, &part, &wanted, &threads, limits)?.solve()?;
            let sequence = spread(litmus, solved.sequence);
            let new_ops = operations(litmus, &sequence);
            let new_index = Index::of(litmus, &new_ops);
            let broken = needs
                .iter()
                .filter(|need| new_index.served_by(litmus, &new_ops, need).is_none());
            let known = active.len();
            active.extend(broken);
            if active.len() == known {
                return Ok((sequence, solved.moves));
            }
        }
    }
}

/// The whole sequence: what was no part of the problem stays where it is.
fn spread(litmus: &Litmus, solved: Vec<Solved>) -> Vec<Placed> {
    let mut rest = vec![true; litmus.ops.len()];
    for solved in &solved {
        if let Placed::Original(at) = solved.placed {
            rest[at] = false;
        }
    }
    let mut rest = (0..litmus.ops.len()).filter(|&at| rest[at]).peekable();
    let mut sequence = Vec::with_capacity(litmus.ops.len() + solved.len());
    for Solved { placed, after_rest } in solved {
        if let Some(before) = after_rest {
            while let Some(at) = rest.next_if(|&at| at < before) {
                sequence.push(Placed::Original(at));
            }
        }
        sequence.push(placed);
    }
    sequence.extend(rest.map(Placed::Original));
    sequence
}

fn operations(litmus: &Litmus, sequence: &[Placed]) -> Vec<Op> {
    let operation = |placed: &Placed| match *placed {
        Placed::Original(at) => litmus.ops[at].clone(),
        Placed::Flush(thread, flush) => Op {
            thread,
            action: Action::Flush(flush),
        },
        Placed::Fence(thread) => Op {
            thread,
            action: Action::Fence { full: false },
        },
    };
    sequence.iter().map(operation).collect()
}

/// Counts what was done, and lets the model judge it.
fn finish(litmus: &Litmus, sequence: Vec<Placed>, least: Least) -> Result<Repair, NoRepair> {
    let ops = operations(litmus, &sequence);
    if !violations_of(litmus, &ops).is_empty() {
        return Err(NoRepair::Unsolved);
    }
    let originals: Vec<Option<usize>> = sequence
        .iter()
        .map(|placed| match placed {
            Placed::Original(at) => Some(*at),
            _ => None,
        })
        .collect();
    let is_store: Vec<bool> = litmus
        .ops
        .iter()
        .map(|op| matches!(op.action, Action::Store(_)))
        .collect();
    let counted = moves(&originals, &is_store);
    let added = |wanted: fn(&Placed) -> bool| sequence.iter().filter(|placed| wanted(placed)).count();
    let lines = ops.into_iter().zip(&originals).zip(&counted.moved);
    Ok(Repair {
        added_flushes: added(|placed| matches!(placed, Placed::Flush(..))),
        added_fences: added(|placed| matches!(placed, Placed::Fence(_))),
        moved: counted.others,
        stores_moved: counted.stores,
        least,
        lines: lines
            .map(|((op, original), &moved)| RepairedLine {
                op,
                times: original.map_or(1, |at| litmus.times(at)),
                added: original.is_none(),
                moved,
            })
            .collect(),
    })
}

fn in_words(litmus: &Litmus, circle: &[StoreId]) -> Vec<String> {
    let name = |store: StoreId| &litmus.stores[store].name;
    let next = circle.iter().cycle().skip(1);
    let step =
        |(&first, &second): (&StoreId, &StoreId)| match litmus.properties.contains(&Property::Before(first, second)) {
            true => format!("{} before {}", name(first), name(second)),
            false => format!(
                "{} before {} (they write the same bytes, so their order has to stay)",
                name(first),
                name(second)
            ),
        };
    circle.iter().zip(next).map(step).collect()
}
