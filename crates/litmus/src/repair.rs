//! The least change after which every property holds.
//!
//! In this order: stores moved, fences added, flushes added, flushes and fences moved.
//!
//! - Stores move only where a required order contradicts theirs. The stores that keep their order among each other are free of contradicted
//!   pairs; contradiction is transitive, so the most that can stay are a largest antichain, and the fewest that move are a largest
//!   matching (Dilworth, König). Any such choice can be completed: what must come before what is free of circles. Which of them move,
//!   and whereto, is chosen together with the fences.
//! - If none moves and adding in place meets a lower bound, that is it ([`crate::intervals`]).
//! - Else the exact problem is solved ([`crate::exact`]) on the part of the sequence that matters: first for the needs that are not met, then with every need
//!   that its solution turned out to break, until it breaks none. A solution with fewer needs that meets them all is least for all.
//!
//! What comes out is checked on the model, whatever made it.
//!
//! Deviations from the paper: stores need not all be durable, and may overwrite each other (the paper's Φ_mo forbids it); two stores that share
//! bytes are never swapped; `clflush` is never added.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::exact::{self, Placed, Slice, Unsolved};
use crate::intervals::add_in_place;
use crate::moves::moves;
use crate::needs::{Index, Need, Order, needs};
use crate::verdict::violations_of;
use crate::{Action, Litmus, Op, Property, StoreId, StoreKind};

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
    /// By the exact program.
    Exact,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRepair {
    /// The properties, and the order of stores to the same bytes, ask for a circle.
    #[error("no order of the stores can satisfy this: {}", .0.join(", "))]
    Circle(Vec<String>),
    #[error("no repair was found within {0:?}; give a longer limit, or fewer properties")]
    TimedOut(Duration),
    /// The solver's answer did not stand up to the model, or there was none.
    #[error("the solver found no repair that the model accepts; please report this litmus file")]
    Unsolved,
}

pub fn repair(litmus: &Litmus, limit: Duration) -> Result<Repair, NoRepair> {
    let deadline = Instant::now() + limit;
    let needs = needs(litmus);
    let index = Index::of(litmus, &litmus.ops);
    let order = Order::of(litmus, &index.at);
    if let Some(circle) = order.circle() {
        return Err(NoRepair::Circle(in_words(litmus, &circle.0)));
    }
    if violations_of(litmus, &litmus.ops).is_empty() {
        let sequence = (0..litmus.ops.len()).map(Placed::Original).collect();
        return finish(litmus, sequence, Least::NothingToDo);
    }
    let pairs = contradicted(&order, &index.at).ok_or(NoRepair::TimedOut(limit))?;
    if pairs.is_empty()
        && let Some(added) = add_in_place(litmus, &litmus.ops, &needs)
    {
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
        return finish(litmus, sequence, Least::Disjoint);
    }
    let sequence = exactly(litmus, &needs, &index, &order, &pairs, deadline).map_err(|unsolved| match unsolved {
        Unsolved::TimedOut => NoRepair::TimedOut(limit),
        Unsolved::Infeasible => NoRepair::Unsolved,
    })?;
    finish(litmus, sequence, Least::Exact)
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
        if steps > STEPS {
            return None;
        }
    }
    Some(pairs)
}

/// The size of a largest matching of the pairs: as many stores have to move.
fn matching(pairs: &[(StoreId, StoreId)]) -> usize {
    fn augment(
        from: StoreId,
        pairs: &[(StoreId, StoreId)],
        matched: &mut Vec<(StoreId, StoreId)>,
        tried: &mut FxHashSet<StoreId>,
    ) -> bool {
        for &(_, to) in pairs.iter().filter(|pair| pair.0 == from) {
            if !tried.insert(to) {
                continue;
            }
            let taken = matched.iter().position(|&(_, other)| other == to);
            let free = match taken {
                None => true,
                Some(at) => augment(matched[at].0, pairs, matched, tried),
            };
            if free {
                matched.retain(|&(_, other)| other != to);
                matched.push((from, to));
                return true;
            }
        }
        false
    }
    let mut matched = Vec::new();
    let mut sources: Vec<StoreId> = pairs.iter().map(|pair| pair.0).collect();
    sources.sort_unstable();
    sources.dedup();
    let mut count = 0;
    for from in sources {
        count += usize::from(augment(from, pairs, &mut matched, &mut FxHashSet::default()));
    }
    count
}

fn exactly(
    litmus: &Litmus,
    needs: &[Need],
    index: &Index,
    order: &Order,
    pairs: &[(StoreId, StoreId)],
    deadline: Instant,
) -> Result<Vec<Placed>, Unsolved> {
    let ops = &litmus.ops;
    let mut movable: Vec<StoreId> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
    movable.sort_unstable();
    movable.dedup();
    let moving = matching(pairs);
    let may_move: FxHashSet<StoreId> = movable.iter().copied().collect();
    let touched = |a: StoreId, b: StoreId| may_move.contains(&a) || may_move.contains(&b);
    let mut kept_order = Vec::new();
    for (first, later) in order.after.iter().enumerate() {
        kept_order.extend(
            later
                .iter()
                .filter(|&&second| touched(first, second))
                .map(|&second| (first, second)),
        );
    }
    let servers: FxHashSet<usize> = needs
        .iter()
        .filter_map(|need| index.served_by(litmus, ops, need))
        .collect();
    let asks = |need: &&Need| {
        index.served_by(litmus, ops, need).is_none()
            || may_move.contains(&need.store)
            || need.until.is_some_and(|until| may_move.contains(&until))
    };
    let mut active: Vec<Need> = needs.iter().filter(asks).copied().collect();
    loop {
        let slice = slice(litmus, &active, &movable, moving, &kept_order, &servers);
        let limit = deadline.saturating_duration_since(Instant::now());
        let solution = exact::solve(&slice, limit)?;
        let sequence = spread(&slice, &solution);
        let new_ops = operations(litmus, &sequence);
        let index = Index::of(litmus, &new_ops);
        let known: FxHashSet<Need> = active.iter().copied().collect();
        let broken = needs
            .iter()
            .filter(|need| index.served_by(litmus, &new_ops, need).is_none());
        let broken: Vec<Need> = broken.filter(|need| !known.contains(need)).copied().collect();
        if broken.is_empty() {
            return Ok(sequence);
        }
        active.extend(broken);
    }
}

/// What the needs can be met with: their stores, the flushes of their lines, and of every run of fences without any of these in between, one.
fn slice<'a>(
    litmus: &'a Litmus,
    needs: &[Need],
    movable: &[StoreId],
    moving: usize,
    order: &[(StoreId, StoreId)],
    servers: &FxHashSet<usize>,
) -> Slice<'a> {
    let mut stores: FxHashSet<StoreId> = movable.iter().copied().collect();
    stores.extend(order.iter().flat_map(|&(a, b)| [a, b]));
    let mut lines: FxHashSet<u64> = movable
        .iter()
        .flat_map(|&store| litmus.stores[store].at.lines())
        .collect();
    for need in needs {
        stores.insert(need.store);
        stores.extend(need.until);
        lines.insert(need.line);
    }
    let mut items = Vec::new();
    let mut spare = vec![Vec::new(); litmus.threads.len()];
    // Threads that have fenced since the last item that is no fence.
    let mut fenced: FxHashSet<u32> = FxHashSet::default();
    for (at, op) in litmus.ops.iter().enumerate() {
        let matters = match &op.action {
            // A locked store that nobody needs is a fence that cannot move.
            Action::Store(store) => {
                stores.contains(store) || litmus.stores[*store].kind == StoreKind::Locked && fenced.insert(op.thread)
            }
            Action::Flush(flush) => flush.at.lines().any(|line| lines.contains(&line)),
            Action::Fence { .. } => {
                let first = fenced.insert(op.thread);
                if !first {
                    spare[op.thread as usize].push(at);
                }
                first
            }
        };
        if matters {
            items.push(at);
            match &op.action {
                Action::Fence { .. } => {}
                Action::Store(store) if !stores.contains(store) => {}
                _ => fenced.clear(),
            }
        }
    }
    for fences in &mut spare {
        fences.sort_by_key(|at| servers.contains(at));
    }
    Slice {
        litmus,
        ops: &litmus.ops,
        items,
        needs: needs.to_vec(),
        movable: movable.to_vec(),
        moving,
        order: order.to_vec(),
        spare,
    }
}

/// The whole sequence, from the solution of a slice.
fn spread(slice: &Slice, solution: &exact::Solution) -> Vec<Placed> {
    let taken: FxHashSet<usize> = solution.taken.iter().copied().collect();
    let mut sequence = Vec::new();
    let mut item = 0;
    // What is new comes right after the item before it; before the first item, right before that.
    for at in 0..slice.ops.len() {
        if slice.items.get(item) == Some(&at) {
            if item == 0 {
                sequence.extend(solution.slots[0].iter().cloned());
            }
            sequence.extend(solution.kept[item].then_some(Placed::Original(at)));
            item += 1;
            sequence.extend(solution.slots[item].iter().cloned());
        } else if !taken.contains(&at) {
            sequence.push(Placed::Original(at));
        }
    }
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
