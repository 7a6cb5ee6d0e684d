//! The least change after which every property holds.
//!
//! In this order: stores moved, fences added, flushes added, flushes and fences moved.
//!
//! - Stores move only where a required order contradicts theirs. The stores that keep their order among each other are free of contradicted
//!   pairs; contradiction is transitive, so the most that can stay are a largest antichain, and the fewest that move are a largest
//!   matching (Dilworth, König). Any such choice can be completed: what must come before what is free of circles. Which of them move,
//!   and whereto, is chosen together with the fences.
//! - If none moves and adding in place meets a lower bound, that is it ([`crate::intervals`]).
//! - Else every order of the stores that moves as few is looked at, the most promising by the lower bounds first, and for each the exact problem is
//!   solved ([`crate::exact`]) on the part of the sequence that matters: first for the needs that are not met, then with every need that the
//!   solution turned out to break, until it breaks none. A solution with fewer needs that meets them all is least for all.
//!
//! What comes out is checked on the model, whatever made it.
//!
//! Deviations from the paper: stores need not all be durable, and may overwrite each other (the paper's Φ_mo forbids it); two stores that share
//! bytes are never swapped; `clflush` is never added.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::exact::{self, Item, Placed, Slice, Unsolved};
use crate::intervals::add_in_place;
use crate::moves::moves;
use crate::needs::{Index, Need, Order, needs};
use crate::verdict::violations_of;
use crate::{Action, Litmus, Op, Property, StoreId, StoreKind};

/// Most steps spent looking for contradicted pairs.
const STEPS: usize = 50_000_000;
/// Most orders of the stores that are looked at.
const ORDERS: usize = 50_000;

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

struct Moving<'a> {
    pairs: &'a [(StoreId, StoreId)],
    movable: Vec<StoreId>,
    /// How many of them move.
    count: usize,
    /// Orders between two stores of which one is movable.
    order: Vec<(StoreId, StoreId)>,
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
    let moving = Moving {
        pairs,
        movable,
        count: matching(pairs),
        order: kept_order,
    };
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
        let sequence = least_sequence(litmus, &active, index, &moving, &servers, deadline)?;
        let new_ops = operations(litmus, &sequence);
        let new_index = Index::of(litmus, &new_ops);
        let known: FxHashSet<Need> = active.iter().copied().collect();
        let broken = needs
            .iter()
            .filter(|need| new_index.served_by(litmus, &new_ops, need).is_none());
        let broken: Vec<Need> = broken.filter(|need| !known.contains(need)).copied().collect();
        if broken.is_empty() {
            return Ok(sequence);
        }
        active.extend(broken);
    }
}

/// The least sequence that meets these needs, over all orders of the stores that move as few as possible.
fn least_sequence(
    litmus: &Litmus,
    needs: &[Need],
    index: &Index,
    moving: &Moving,
    servers: &FxHashSet<usize>,
    deadline: Instant,
) -> Result<Vec<Placed>, Unsolved> {
    let part = Part::of(litmus, needs, moving, servers);
    let threads: Vec<u32> = index.at.iter().map(|&at| litmus.ops[at].thread).collect();
    let orders = orders(&part.stores, moving, deadline)?;
    let mut candidates: Vec<([usize; 2], &Ordered)> = orders
        .iter()
        .map(|ordered| (part.at_least(litmus, needs, &ordered.stores), ordered))
        .collect();
    candidates.sort_by_key(|&(bound, _)| bound);
    let mut best: Option<(exact::Solution, &Ordered)> = None;
    for (bound, ordered) in candidates {
        let cost = best.as_ref().map(|(solution, _)| solution.cost);
        // Even without a move it would be no better.
        if cost.is_some_and(|cost| [bound[0], bound[1], 0] >= cost) {
            break;
        }
        let items = part.items(index, ordered);
        let slice = Slice {
            litmus,
            stores: &ordered.stores,
            items: &items,
            needs,
            threads: &threads,
            spare: &part.spare,
        };
        match exact::solve(&slice, deadline) {
            Ok(solution) if cost.is_none_or(|cost| solution.cost < cost) => best = Some((solution, ordered)),
            Ok(_) | Err(Unsolved::Infeasible) => {}
            Err(Unsolved::TimedOut) => return Err(Unsolved::TimedOut),
        }
    }
    let (solution, ordered) = best.ok_or(Unsolved::Infeasible)?;
    Ok(part.spread(litmus, index, &solution, ordered))
}

/// An order of the stores, and those that have moved for it.
struct Ordered {
    stores: Vec<StoreId>,
    moved: FxHashSet<StoreId>,
}

/// All orders of `stores` (given in the original's order) that keep what must be kept and move no more than needed.
fn orders(stores: &[StoreId], moving: &Moving, deadline: Instant) -> Result<Vec<Ordered>, Unsolved> {
    let mut chosen = Vec::new();
    covers(moving.pairs, moving.count, &mut Vec::new(), &mut chosen);
    let mut orders = Vec::new();
    for moved in chosen {
        let stay: Vec<StoreId> = stores.iter().copied().filter(|store| !moved.contains(store)).collect();
        let mut merge = Merge {
            stay: &stay,
            order: &moving.order,
            sequence: Vec::new(),
            left: moved.clone(),
            found: Vec::new(),
            deadline,
        };
        merge.go(0)?;
        let moved: FxHashSet<StoreId> = moved.into_iter().collect();
        orders.extend(merge.found.into_iter().map(|stores| Ordered {
            stores,
            moved: moved.clone(),
        }));
    }
    Ok(orders)
}

/// Sets of `count` stores that have one of every pair.
fn covers(pairs: &[(StoreId, StoreId)], count: usize, chosen: &mut Vec<StoreId>, found: &mut Vec<Vec<StoreId>>) {
    let open = pairs.iter().find(|(a, b)| !chosen.contains(a) && !chosen.contains(b));
    match open {
        None if chosen.len() == count => {
            let mut set = chosen.clone();
            set.sort_unstable();
            if !found.contains(&set) {
                found.push(set);
            }
        }
        Some(&(a, b)) if chosen.len() < count => {
            for store in [a, b] {
                chosen.push(store);
                covers(pairs, count, chosen, found);
                chosen.pop();
            }
        }
        _ => {}
    }
}

/// Puts the stores that move between those that stay, in all ways.
struct Merge<'a> {
    stay: &'a [StoreId],
    order: &'a [(StoreId, StoreId)],
    sequence: Vec<StoreId>,
    left: Vec<StoreId>,
    found: Vec<Vec<StoreId>>,
    deadline: Instant,
}

impl Merge<'_> {
    fn go(&mut self, next: usize) -> Result<(), Unsolved> {
        if self.found.len() > ORDERS || Instant::now() > self.deadline {
            return Err(Unsolved::TimedOut);
        }
        if next == self.stay.len() && self.left.is_empty() {
            self.found.push(self.sequence.clone());
            return Ok(());
        }
        if let Some(&store) = self.stay.get(next)
            && self.may_come(store, next)
        {
            self.sequence.push(store);
            self.go(next + 1)?;
            self.sequence.pop();
        }
        for at in 0..self.left.len() {
            let store = self.left[at];
            if self.may_come(store, next) {
                self.left.remove(at);
                self.sequence.push(store);
                self.go(next)?;
                self.sequence.pop();
                self.left.insert(at, store);
            }
        }
        Ok(())
    }

    /// Whether all that must be before it is.
    fn may_come(&self, store: StoreId, next: usize) -> bool {
        let open = |other: &StoreId| self.left.contains(other) || self.stay[next..].contains(other);
        let mut before = self.order.iter().filter(|(_, second)| *second == store);
        !before.any(|(first, _)| open(first))
    }
}

/// What the needs can be met with: their stores, the flushes of their lines, and of every run of fences without any of these in between, one
/// more than there are stores to move, because each of those can come to lie between two of them.
struct Part {
    /// In the original's order.
    stores: Vec<StoreId>,
    /// Indices of operations: flushes and fences.
    others: Vec<usize>,
    /// For each thread, further fences.
    spare: Vec<Vec<usize>>,
    /// Whether the bounds of [`Part::at_least`] hold: one thread, no locked stores, no `clflush`, one line a store.
    plain: bool,
}

impl Part {
    fn of(litmus: &Litmus, needs: &[Need], moving: &Moving, servers: &FxHashSet<usize>) -> Part {
        let mut wanted: FxHashSet<StoreId> = moving.movable.iter().copied().collect();
        wanted.extend(moving.order.iter().flat_map(|&(a, b)| [a, b]));
        let mut lines: FxHashSet<u64> = moving
            .movable
            .iter()
            .flat_map(|&store| litmus.stores[store].at.lines())
            .collect();
        for need in needs {
            wanted.insert(need.store);
            wanted.extend(need.until);
            lines.insert(need.line);
        }
        let mut part = Part {
            stores: Vec::new(),
            others: Vec::new(),
            spare: vec![Vec::new(); litmus.threads.len()],
            plain: true,
        };
        // How often each thread has fenced since the last store or flush that matters.
        let mut fenced = vec![0; litmus.threads.len()];
        let thread = litmus.ops.first().map_or(0, |op| op.thread);
        for (at, op) in litmus.ops.iter().enumerate() {
            part.plain &= op.thread == thread;
            match &op.action {
                Action::Store(store) if wanted.contains(store) => {
                    let one_line = litmus.stores[*store].at.lines().nth(1).is_none();
                    part.plain &= litmus.stores[*store].kind != StoreKind::Locked && one_line;
                    part.stores.push(*store);
                    fenced.fill(0);
                }
                // A locked store that nobody needs is a fence that cannot move.
                Action::Store(store) => {
                    let fences = &mut fenced[op.thread as usize];
                    if litmus.stores[*store].kind == StoreKind::Locked && *fences <= moving.count {
                        *fences += 1;
                        part.plain = false;
                        part.stores.push(*store);
                    }
                }
                Action::Flush(flush) => {
                    if flush.at.lines().any(|line| lines.contains(&line)) {
                        part.plain &= !flush.at_once && flush.at.lines().nth(1).is_none();
                        part.others.push(at);
                        fenced.fill(0);
                    }
                }
                Action::Fence { .. } => {
                    let fences = &mut fenced[op.thread as usize];
                    match *fences <= moving.count {
                        true => part.others.push(at),
                        false => part.spare[op.thread as usize].push(at),
                    }
                    *fences += 1;
                }
            }
        }
        for fences in &mut part.spare {
            fences.sort_by_key(|at| servers.contains(at));
        }
        part
    }

    /// Fences and flushes that have to be added for this order, at least: disjoint intervals need one each.
    fn at_least(&self, litmus: &Litmus, needs: &[Need], stores: &[StoreId]) -> [usize; 2] {
        if !self.plain {
            return [0, 0];
        }
        let mut place = vec![0; litmus.stores.len()];
        for (index, &store) in stores.iter().enumerate() {
            place[store] = index + 1;
        }
        let mut intervals: Vec<(usize, usize, Need)> = needs
            .iter()
            .map(|&need| {
                (
                    need.until.map_or(stores.len() + 1, |until| place[until]),
                    place[need.store],
                    need,
                )
            })
            .collect();
        intervals.sort_unstable();
        let stabs = |wanted: &dyn Fn(&Need) -> bool| {
            let mut latest = 0;
            let mut count = 0usize;
            for &(to, from, need) in &intervals {
                if wanted(&need) && latest <= from {
                    latest = to;
                    count += 1;
                }
            }
            count
        };
        let existing =
            |wanted: &dyn Fn(&Action) -> bool| self.others.iter().filter(|&&at| wanted(&litmus.ops[at].action)).count();
        let spare: usize = self.spare.iter().map(Vec::len).sum();
        let fences = existing(&|action| matches!(action, Action::Fence { .. })) + spare;
        let mut lines: Vec<u64> = needs.iter().map(|need| need.line).collect();
        lines.sort_unstable();
        lines.dedup();
        let flushes = lines.iter().map(|&line| {
            let of_line =
                |action: &Action| matches!(action, Action::Flush(flush) if flush.at.lines().any(|other| other == line));
            let wanted = |need: &Need| need.line == line && litmus.stores[need.store].is_cached();
            stabs(&wanted).saturating_sub(existing(&of_line))
        });
        [stabs(&|_| true).saturating_sub(fences), flushes.sum()]
    }

    /// The flushes and fences, with the gaps of the new order that are where they were.
    fn items(&self, index: &Index, ordered: &Ordered) -> Vec<Item> {
        let stays = |store: &StoreId| !ordered.moved.contains(store);
        let places: Vec<(usize, usize)> = ordered
            .stores
            .iter()
            .enumerate()
            .filter(|(_, store)| stays(store))
            .map(|(place, &store)| (index.at[store], place + 1))
            .collect();
        let item = |&at: &usize| {
            let next = places.partition_point(|&(other, _)| other < at);
            let first = next.checked_sub(1).map_or(0, |before| places[before].1);
            let last = places.get(next).map_or(ordered.stores.len(), |&(_, place)| place - 1);
            Item { at, gaps: first..=last }
        };
        self.others.iter().map(item).collect()
    }

    /// The whole sequence.
    fn spread(&self, litmus: &Litmus, index: &Index, solution: &exact::Solution, ordered: &Ordered) -> Vec<Placed> {
        // Everything of this part is replaced by the new order; the rest stays where it is, after the last that stays before it.
        let mut replaced: FxHashSet<usize> = self.others.iter().copied().collect();
        replaced.extend(self.stores.iter().map(|&store| index.at[store]));
        replaced.extend(solution.taken.iter().copied());
        let mut rest = (0..litmus.ops.len()).filter(|at| !replaced.contains(at)).peekable();
        let mut sequence = Vec::new();
        for gap in 0..solution.gaps.len() {
            if gap > 0 {
                let store = ordered.stores[gap - 1];
                if !ordered.moved.contains(&store) {
                    while let Some(at) = rest.next_if(|&at| at < index.at[store]) {
                        sequence.push(Placed::Original(at));
                    }
                }
                sequence.push(Placed::Original(index.at[store]));
            }
            for placed in &solution.gaps[gap] {
                // What is kept of the flushes and fences is not passed by what is around it.
                if let Placed::Original(at) = placed
                    && self.is_kept(*at, gap, index, ordered)
                {
                    while let Some(other) = rest.next_if(|other| other < at) {
                        sequence.push(Placed::Original(other));
                    }
                }
                sequence.push(placed.clone());
            }
        }
        sequence.extend(rest.map(Placed::Original));
        sequence
    }

    fn is_kept(&self, at: usize, gap: usize, index: &Index, ordered: &Ordered) -> bool {
        let stays = |store: &&StoreId| !ordered.moved.contains(*store);
        let before = ordered.stores[..gap]
            .iter()
            .rev()
            .find(stays)
            .is_none_or(|&store| index.at[store] < at);
        let after = ordered.stores[gap..]
            .iter()
            .find(stays)
            .is_none_or(|&store| at < index.at[store]);
        self.others.binary_search(&at).is_ok() && before && after
    }
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
