//! The exact problem as a 0/1 program, solved by branch and bound (microlp).
//!
//! Time is cut into points: every operation of the slice has one, and between two of them there is a slot, in which new flushes, then new
//! fences, and then one moved store may lie, as many times over as stores move. Columns say what lies where:
//!
//! - an existing flush or fence is kept where it is, or taken out and counted as moved;
//! - a flush (of a set of lines) or a fence lies in a slot: first those that were taken out are placed there, the rest is added;
//! - a store that a property contradicts stays, or lies in a slot.
//!
//! For every need, some fence between its two stores is chosen (`serves`), before which, and after the store, there is a flush of its line by
//! the same thread (`flushed`, which grows along time). The objectives are solved one after the other, each with those before it fixed: fences
//! added, flushes added, operations moved. (One weighted sum would need weights that a solver's tolerances do not bear.)

use std::time::{Duration, Instant};

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use rustc_hash::FxHashMap;

use crate::needs::Need;
use crate::{Action, Flush, Litmus, Op, StoreId, StoreKind};

/// The part of the sequence that matters.
pub struct Slice<'a> {
    pub litmus: &'a Litmus,
    pub ops: &'a [Op],
    /// Indices of operations, in order.
    pub items: Vec<usize>,
    pub needs: Vec<Need>,
    /// Stores that may move: those of contradicted pairs. Exactly `moving` of them do.
    pub movable: Vec<StoreId>,
    pub moving: usize,
    /// Pairs of stores of which one is movable: the first has to come first.
    pub order: Vec<(StoreId, StoreId)>,
    /// Further fences, for each thread, that may be taken from elsewhere.
    pub spare: Vec<Vec<usize>>,
}

/// What lies in the sequence, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Kept, or moved: an index of an operation.
    Original(usize),
    Flush(u32, Flush),
    Fence(u32),
}

pub struct Solution {
    /// The content of slot n comes before the n-th item; of the last one, at the end.
    pub slots: Vec<Vec<Placed>>,
    /// For each item, whether it is still at its place.
    pub kept: Vec<bool>,
    /// Spare fences that were taken from their places.
    pub taken: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsolved {
    /// There is none: nothing that may be changed satisfies the needs.
    Infeasible,
    TimedOut,
}

/// A sum of columns.
type Sum = Vec<(usize, f64)>;

struct Column {
    upper: f64,
    integer: bool,
}

struct Row {
    sum: Sum,
    lower: f64,
    upper: f64,
}

#[derive(Default)]
struct Program {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Program {
    fn binary(&mut self) -> usize {
        self.columns.push(Column {
            upper: 1.0,
            integer: true,
        });
        self.columns.len() - 1
    }

    fn count(&mut self, upper: f64) -> usize {
        self.columns.push(Column { upper, integer: true });
        self.columns.len() - 1
    }

    /// Between 0 and 1; integer by what bounds it.
    fn level(&mut self) -> usize {
        self.columns.push(Column {
            upper: 1.0,
            integer: false,
        });
        self.columns.len() - 1
    }

    fn row(&mut self, sum: Sum, lower: f64, upper: f64) {
        self.rows.push(Row { sum, lower, upper });
    }

    /// `left <= right + constant`.
    fn at_most(&mut self, mut left: Sum, right: &Sum, constant: f64) {
        left.extend(right.iter().map(|&(column, factor)| (column, -factor)));
        self.row(left, f64::NEG_INFINITY, constant);
    }

    fn minimise(&self, objective: &Sum, deadline: Instant) -> Result<Vec<f64>, Unsolved> {
        let mut factors = vec![0.0; self.columns.len()];
        for &(column, factor) in objective {
            factors[column] += factor;
        }
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let columns: Vec<Variable> = self
            .columns
            .iter()
            .zip(&factors)
            .map(|(column, &factor)| match column.integer {
                true => problem.add_integer_var(factor, (0, column.upper as i32)),
                false => problem.add_var(factor, (0.0, column.upper)),
            })
            .collect();
        for row in &self.rows {
            let mut terms: FxHashMap<usize, f64> = FxHashMap::default();
            for &(column, factor) in &row.sum {
                *terms.entry(column).or_default() += factor;
            }
            let mut terms: Vec<(usize, f64)> = terms.into_iter().filter(|&(_, factor)| factor != 0.0).collect();
            terms.sort_unstable_by_key(|&(column, _)| column);
            let terms: Vec<(Variable, f64)> = terms
                .iter()
                .map(|&(column, factor)| (columns[column], factor))
                .collect();
            match row.lower == row.upper {
                true => problem.add_constraint(terms, ComparisonOp::Eq, row.upper),
                false if row.upper.is_finite() => problem.add_constraint(terms, ComparisonOp::Le, row.upper),
                false => problem.add_constraint(terms, ComparisonOp::Ge, row.lower),
            }
        }
        problem.set_time_limit(deadline.saturating_duration_since(Instant::now()));
        let outcome = problem.solve().map_err(|_| Unsolved::Infeasible)?;
        if !outcome.is_optimal() {
            return Err(Unsolved::TimedOut);
        }
        let solution = outcome.into_solution().map_err(|_| Unsolved::TimedOut)?;
        Ok(columns.iter().map(|&column| solution.var_value(column)).collect())
    }
}

/// A flush or fence that can be there.
struct Chance {
    time: usize,
    /// The column that says that it is; `None`: a locked store that cannot move.
    present: Option<usize>,
}

/// New flushes of the same lines.
struct Class {
    flush: Flush,
    thread: u32,
    lines: Vec<u64>,
    /// For each place, the column.
    places: Vec<usize>,
    /// Items of this kind, that can be taken from their places.
    items: Vec<usize>,
}

/// The columns of a store that may move.
struct Movable {
    stays: usize,
    places: Vec<usize>,
}

pub fn solve(slice: &Slice, limit: Duration) -> Result<Solution, Unsolved> {
    Builder::new(slice).solve(Instant::now() + limit)
}

struct Builder<'a> {
    slice: &'a Slice<'a>,
    program: Program,
    /// Item of each store in the slice.
    item_of: FxHashMap<StoreId, usize>,
    movable: FxHashMap<StoreId, Movable>,
    /// Of a flush or fence item: whether it is kept.
    keep: FxHashMap<usize, usize>,
    classes: Vec<Class>,
    /// For each thread: the columns of new fences by place, and the items.
    fences: FxHashMap<u32, (Vec<usize>, Vec<usize>)>,
}

impl<'a> Builder<'a> {
    fn new(slice: &'a Slice<'a>) -> Builder<'a> {
        let mut builder = Builder {
            slice,
            program: Program::default(),
            item_of: FxHashMap::default(),
            movable: FxHashMap::default(),
            keep: FxHashMap::default(),
            classes: Vec::new(),
            fences: FxHashMap::default(),
        };
        builder.columns();
        builder
    }

    /// Turns in a slot: flushes, fences, a store, and so on; there is one turn more than stores that move.
    fn turns(&self) -> usize {
        self.slice.moving + 1
    }

    fn places(&self) -> usize {
        (self.slice.items.len() + 1) * self.turns()
    }

    // Times. A place (slot and turn) has four: flushes, fences, the fence of a locked store, the store. An item has two of them: the
    // fence of a locked store, and itself.
    fn slot_time(&self, slot: usize) -> usize {
        slot * (self.turns() * 4 + 2)
    }

    fn place_time(&self, place: usize) -> usize {
        self.slot_time(place / self.turns()) + place % self.turns() * 4
    }

    fn item_time(&self, item: usize) -> usize {
        self.slot_time(item) + self.turns() * 4 + 1
    }

    fn op(&self, item: usize) -> &'a Op {
        &self.slice.ops[self.slice.items[item]]
    }

    fn columns(&mut self) {
        let slice = self.slice;
        for item in 0..slice.items.len() {
            let op = self.op(item);
            match op.action {
                Action::Store(store) => {
                    self.item_of.insert(store, item);
                }
                Action::Flush(flush) => {
                    let keep = self.program.binary();
                    self.keep.insert(item, keep);
                    let class = self.class(flush, op.thread);
                    self.classes[class].items.push(item);
                }
                Action::Fence { .. } => {
                    let keep = self.program.binary();
                    self.keep.insert(item, keep);
                    self.fences.entry(op.thread).or_default().1.push(item);
                }
            }
        }
        for need in &slice.needs {
            let store = &slice.litmus.stores[need.store];
            let thread = self.op(self.item_of[&need.store]).thread;
            self.fences.entry(thread).or_default();
            if store.is_cached() {
                let flush = Flush {
                    names: Some(need.store),
                    at: store.at,
                    at_once: false,
                };
                self.class(flush, thread);
            }
        }
        for store in &slice.movable {
            let stays = self.program.binary();
            let places = (0..self.places()).map(|_| self.program.binary()).collect();
            self.movable.insert(*store, Movable { stays, places });
        }
        for class in 0..self.classes.len() {
            self.classes[class].places = (0..self.places()).map(|_| self.program.binary()).collect();
        }
        let mut threads: Vec<u32> = self.fences.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            let places = (0..self.places()).map(|_| self.program.binary()).collect();
            if let Some(fences) = self.fences.get_mut(&thread) {
                fences.0 = places;
            }
        }
    }

    fn class(&mut self, flush: Flush, thread: u32) -> usize {
        let lines: Vec<u64> = flush.at.lines().collect();
        let same =
            |class: &Class| class.thread == thread && class.flush.at_once == flush.at_once && class.lines == lines;
        if let Some(known) = self.classes.iter().position(same) {
            return known;
        }
        self.classes.push(Class {
            flush,
            thread,
            lines,
            places: Vec::new(),
            items: Vec::new(),
        });
        self.classes.len() - 1
    }

    /// The columns that say that the store was executed before the time, and 1 if it was for certain.
    fn executed(&self, store: StoreId, time: usize) -> (Sum, f64) {
        let by_itself = self
            .item_of
            .get(&store)
            .is_some_and(|&item| self.item_time(item) < time);
        let Some(movable) = self.movable.get(&store) else {
            return (Vec::new(), f64::from(u8::from(by_itself)));
        };
        let mut sum: Sum = Vec::new();
        if by_itself {
            sum.push((movable.stays, 1.0));
        }
        let earlier = movable.places.iter().enumerate();
        let earlier = earlier.take_while(|&(place, _)| self.place_time(place) + 3 < time);
        sum.extend(earlier.map(|(_, &column)| (column, 1.0)));
        (sum, 0.0)
    }

    fn solve(mut self, deadline: Instant) -> Result<Solution, Unsolved> {
        self.stores();
        self.flushes_follow_stores();
        let needs = self.slice.needs.clone();
        for need in &needs {
            self.need(need)?;
        }
        let (fences_added, spare) = self.fence_balance();
        let flushes_added = self.flush_balance();
        let mut moved: Sum = self.keep.values().map(|&keep| (keep, -1.0)).collect();
        moved.extend(spare.iter().map(|&(_, column)| (column, 1.0)));
        let mut values = Vec::new();
        for objective in [fences_added, flushes_added, moved] {
            values = self.program.minimise(&objective, deadline)?;
            let best: f64 = objective.iter().map(|&(column, factor)| values[column] * factor).sum();
            self.program.row(objective, f64::NEG_INFINITY, best.round());
        }
        Ok(self.extract(&values, &spare))
    }

    fn stores(&mut self) {
        let slice = self.slice;
        if slice.movable.is_empty() {
            return;
        }
        let stay: Sum = slice
            .movable
            .iter()
            .map(|store| (self.movable[store].stays, 1.0))
            .collect();
        let count = (slice.movable.len() - slice.moving) as f64;
        self.program.row(stay, count, count);
        for movable in self.movable.values() {
            let mut sum: Sum = movable.places.iter().map(|&column| (column, 1.0)).collect();
            sum.push((movable.stays, 1.0));
            self.program.row(sum, 1.0, 1.0);
        }
        for place in 0..self.places() {
            let one: Sum = slice
                .movable
                .iter()
                .map(|store| (self.movable[store].places[place], 1.0))
                .collect();
            self.program.row(one, f64::NEG_INFINITY, 1.0);
        }
        for &(first, second) in &slice.order {
            // Wherever the second is, the first was before.
            let at_item = self.executed(first, self.item_time(self.item_of[&second]));
            let Some(movable) = self.movable.get(&second) else {
                self.program.at_most(Vec::new(), &at_item.0, at_item.1 - 1.0);
                continue;
            };
            let (stays, places) = (movable.stays, movable.places.clone());
            self.program.at_most(vec![(stays, 1.0)], &at_item.0, at_item.1);
            for (place, column) in places.into_iter().enumerate() {
                let (sum, constant) = self.executed(first, self.place_time(place) + 3);
                self.program.at_most(vec![(column, 1.0)], &sum, constant);
            }
        }
    }

    /// A flush comes after some store that it can flush, if it did (the paper's Φ_fs).
    fn flushes_follow_stores(&mut self) {
        for class in 0..self.classes.len() {
            let lines = self.classes[class].lines.clone();
            let matching: Vec<StoreId> = self.matching(&lines);
            if !matching.iter().any(|store| self.movable.contains_key(store)) {
                continue;
            }
            for item in self.classes[class].items.clone() {
                let time = self.item_time(item);
                let followed = matching.iter().any(|store| self.item_time(self.item_of[store]) < time);
                if followed {
                    self.follows(vec![(self.keep[&item], 1.0)], &matching, time);
                }
            }
            for (place, column) in self.classes[class].places.clone().into_iter().enumerate() {
                self.follows(vec![(column, 1.0)], &matching, self.place_time(place));
            }
        }
    }

    fn matching(&self, lines: &[u64]) -> Vec<StoreId> {
        let stores = &self.slice.litmus.stores;
        let touches = |store: StoreId| stores[store].at.lines().any(|line| lines.contains(&line));
        let mut matching: Vec<StoreId> = self.item_of.keys().copied().filter(|&store| touches(store)).collect();
        matching.sort_unstable();
        matching
    }

    fn follows(&mut self, what: Sum, stores: &[StoreId], time: usize) {
        let mut before: Sum = Vec::new();
        let mut constant = 0.0;
        for &store in stores {
            let (sum, certain) = self.executed(store, time);
            before.extend(sum);
            constant += certain;
        }
        self.program.at_most(what, &before, constant);
    }

    fn need(&mut self, need: &Need) -> Result<(), Unsolved> {
        let slice = self.slice;
        let cached = slice.litmus.stores[need.store].is_cached();
        let own_thread = self.op(self.item_of[&need.store]).thread;
        let mut served: Sum = Vec::new();
        let mut threads: Vec<u32> = self.fences.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            if !cached && thread != own_thread {
                continue;
            }
            let flushes = match cached {
                true => self.flush_chances(need.line, thread, false),
                false => Vec::new(),
            };
            let mut next_flush = 0;
            // Whether a flush has been, after the store.
            let mut flushed: Option<usize> = None;
            for fence in self.fence_chances(thread) {
                if !self.possible(need, fence.time) {
                    continue;
                }
                if cached {
                    let mut grows: Sum = flushed.iter().map(|&level| (level, 1.0)).collect();
                    let before = grows.len();
                    while let Some(flush) = flushes.get(next_flush).filter(|flush| flush.time < fence.time) {
                        next_flush += 1;
                        if self.possible(need, flush.time) {
                            let after = self.after(need.store, flush);
                            grows.extend(after);
                        }
                    }
                    if grows.len() > before {
                        let level = self.program.level();
                        self.program.at_most(vec![(level, 1.0)], &grows, 0.0);
                        flushed = Some(level);
                    }
                    let Some(level) = flushed else { continue };
                    let serves = self.serves(need, &fence);
                    self.program.at_most(vec![(serves, 1.0)], &vec![(level, 1.0)], 0.0);
                    served.push((serves, 1.0));
                } else {
                    let serves = self.serves(need, &fence);
                    let (sum, constant) = self.executed(need.store, fence.time);
                    self.program.at_most(vec![(serves, 1.0)], &sum, constant);
                    served.push((serves, 1.0));
                }
            }
        }
        if cached {
            let threads: Vec<u32> = self.classes.iter().map(|class| class.thread).collect();
            let mut done = Vec::new();
            for thread in threads {
                if done.contains(&thread) {
                    continue;
                }
                done.push(thread);
                for flush in self.flush_chances(need.line, thread, true) {
                    if self.possible(need, flush.time) {
                        let serves = self.serves(need, &flush);
                        let (sum, constant) = self.executed(need.store, flush.time);
                        self.program.at_most(vec![(serves, 1.0)], &sum, constant);
                        served.push((serves, 1.0));
                    }
                }
            }
        }
        if served.is_empty() {
            return Err(Unsolved::Infeasible);
        }
        self.program.row(served, 1.0, f64::INFINITY);
        Ok(())
    }

    /// Whether the time can lie between the two stores at all.
    fn possible(&self, need: &Need, time: usize) -> bool {
        let after = self.movable.contains_key(&need.store) || self.item_time(self.item_of[&need.store]) < time;
        let before = need
            .until
            .is_none_or(|until| self.movable.contains_key(&until) || time < self.item_time(self.item_of[&until]));
        after && before
    }

    /// A column that may be 1 only if the chance is there and the need's second store is not before it.
    fn serves(&mut self, need: &Need, chance: &Chance) -> usize {
        let serves = self.program.binary();
        if let Some(present) = chance.present {
            self.program.at_most(vec![(serves, 1.0)], &vec![(present, 1.0)], 0.0);
        }
        if let Some(until) = need.until.filter(|until| self.movable.contains_key(until)) {
            let (sum, constant) = self.executed(until, chance.time + 1);
            let mut left = vec![(serves, 1.0)];
            left.extend(sum);
            self.program.row(left, f64::NEG_INFINITY, 1.0 - constant);
        }
        serves
    }

    /// What says that the flush is there, after the store.
    fn after(&mut self, store: StoreId, flush: &Chance) -> Sum {
        let present: Sum = flush.present.iter().map(|&column| (column, 1.0)).collect();
        if !self.movable.contains_key(&store) {
            return present;
        }
        let both = self.program.level();
        self.program.at_most(vec![(both, 1.0)], &present, 0.0);
        let (sum, constant) = self.executed(store, flush.time);
        self.program.at_most(vec![(both, 1.0)], &sum, constant);
        vec![(both, 1.0)]
    }

    fn flush_chances(&self, line: u64, thread: u32, at_once: bool) -> Vec<Chance> {
        let mut chances = Vec::new();
        let matching =
            |class: &&Class| class.thread == thread && class.flush.at_once == at_once && class.lines.contains(&line);
        for class in self.classes.iter().filter(matching) {
            chances.extend(class.places.iter().enumerate().map(|(place, &column)| Chance {
                time: self.place_time(place),
                present: Some(column),
            }));
            chances.extend(class.items.iter().map(|item| Chance {
                time: self.item_time(*item),
                present: Some(self.keep[item]),
            }));
        }
        chances.sort_by_key(|chance| chance.time);
        chances
    }

    fn fence_chances(&self, thread: u32) -> Vec<Chance> {
        let mut chances = Vec::new();
        let Some((places, items)) = self.fences.get(&thread) else {
            return chances;
        };
        chances.extend(places.iter().enumerate().map(|(place, &column)| Chance {
            time: self.place_time(place) + 1,
            present: Some(column),
        }));
        chances.extend(items.iter().map(|item| Chance {
            time: self.item_time(*item),
            present: Some(self.keep[item]),
        }));
        for (&store, &item) in &self.item_of {
            if self.slice.litmus.stores[store].kind != StoreKind::Locked || self.op(item).thread != thread {
                continue;
            }
            let movable = self.movable.get(&store);
            chances.push(Chance {
                time: self.item_time(item) - 1,
                present: movable.map(|movable| movable.stays),
            });
            let places = movable
                .into_iter()
                .flat_map(|movable| movable.places.iter().enumerate());
            chances.extend(places.map(|(place, &column)| Chance {
                time: self.place_time(place) + 2,
                present: Some(column),
            }));
        }
        chances.sort_by_key(|chance| chance.time);
        chances
    }

    /// Fences in slots are those taken from their places, and added ones: the sum of the latter; and the columns that count the spare
    /// ones of each thread.
    fn fence_balance(&mut self) -> (Sum, Vec<(u32, usize)>) {
        let mut added_all: Sum = Vec::new();
        let mut spare = Vec::new();
        let mut threads: Vec<u32> = self.fences.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            let (places, items) = self.fences[&thread].clone();
            let keep: Vec<usize> = items.iter().map(|item| self.keep[item]).collect();
            let added = self.program.count(places.len() as f64);
            let mut sum = balance(&places, &keep, added);
            let others = self.slice.spare.get(thread as usize).map_or(0, Vec::len);
            if others > 0 {
                let taken = self.program.count(others as f64);
                sum.push((taken, -1.0));
                spare.push((thread, taken));
            }
            let taken_out = items.len() as f64;
            self.program.row(sum, taken_out, taken_out);
            added_all.push((added, 1.0));
        }
        (added_all, spare)
    }

    fn flush_balance(&mut self) -> Sum {
        let mut added_all: Sum = Vec::new();
        for class in 0..self.classes.len() {
            let places = self.classes[class].places.clone();
            let items = self.classes[class].items.clone();
            let keep: Vec<usize> = items.iter().map(|item| self.keep[item]).collect();
            // What persists at once and waits is not what a repair adds.
            let most = if self.classes[class].flush.at_once {
                0.0
            } else {
                places.len() as f64
            };
            let added = self.program.count(most);
            let taken_out = items.len() as f64;
            self.program.row(balance(&places, &keep, added), taken_out, taken_out);
            added_all.push((added, 1.0));
        }
        added_all
    }

    fn extract(&self, values: &[f64], spare: &[(u32, usize)]) -> Solution {
        let is = |column: usize| values[column] > 0.5;
        let slice = self.slice;
        let mut kept = vec![true; slice.items.len()];
        for (&item, &keep) in &self.keep {
            kept[item] = is(keep);
        }
        for (store, movable) in &self.movable {
            kept[self.item_of[store]] = is(movable.stays);
        }
        let mut taken: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for &(thread, column) in spare {
            let count = values[column].round() as usize;
            taken.insert(thread, slice.spare[thread as usize][..count].to_vec());
        }
        let all_taken: Vec<usize> = taken.values().flatten().copied().collect();
        // The nearest of those taken out comes into each place.
        let mut loose_flushes: Vec<Vec<usize>> = Vec::new();
        for class in &self.classes {
            let out = class
                .items
                .iter()
                .filter(|item| !kept[**item])
                .map(|item| slice.items[*item]);
            loose_flushes.push(out.collect());
        }
        let mut loose_fences: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (&thread, (_, items)) in &self.fences {
            let out = items.iter().filter(|item| !kept[**item]).map(|item| slice.items[*item]);
            let mut out: Vec<usize> = out.chain(taken.remove(&thread).unwrap_or_default()).collect();
            out.sort_unstable();
            loose_fences.insert(thread, out);
        }
        let mut threads: Vec<u32> = self.fences.keys().copied().collect();
        threads.sort_unstable();
        let mut slots = vec![Vec::new(); slice.items.len() + 1];
        for place in 0..self.places() {
            let slot = &mut slots[place / self.turns()];
            for (class, loose) in self.classes.iter().zip(&mut loose_flushes) {
                if is(class.places[place]) {
                    slot.push(match loose.is_empty() {
                        true => Placed::Flush(class.thread, class.flush),
                        false => Placed::Original(loose.remove(0)),
                    });
                }
            }
            for &thread in &threads {
                if is(self.fences[&thread].0[place]) {
                    let loose = loose_fences.entry(thread).or_default();
                    slot.push(match loose.is_empty() {
                        true => Placed::Fence(thread),
                        false => Placed::Original(loose.remove(0)),
                    });
                }
            }
            for store in &slice.movable {
                if is(self.movable[store].places[place]) {
                    slot.push(Placed::Original(slice.items[self.item_of[store]]));
                }
            }
        }
        Solution {
            slots,
            kept,
            taken: all_taken,
        }
    }
}

/// Those in slots, less those taken out, less those added: 0. With `keep` for `1 - taken out`: the number of items.
fn balance(places: &[usize], keep: &[usize], added: usize) -> Sum {
    let mut sum: Sum = places.iter().map(|&column| (column, 1.0)).collect();
    sum.extend(keep.iter().map(|&column| (column, 1.0)));
    sum.push((added, -1.0));
    sum
}
