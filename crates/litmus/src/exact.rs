//! The exact problem for one order of the stores, as a 0/1 program, solved by branch and bound (microlp).
//!
//! Between two stores of the order lies a gap, in which come, one after the other: new flushes, the operations of the original that are kept
//! there, new fences. A new flush is wanted only right after a store that needs it, and a new fence only right before a store that something
//! must precede: further apart they serve less. Columns say what lies where:
//!
//! - an existing flush or fence is kept in the gap where it was (of several gaps, if stores have moved in between, in one), or taken out and counted as moved;
//! - a flush (of a set of lines) or a fence lies in a gap: first those that were taken out are placed there, the rest is added.
//!
//! For every need, some fence between its two stores is chosen (`serves`), before which, and after the store, there is a flush of its line by
//! the same thread (`flushed`, which grows along time). The objectives are solved one after the other, each with those before it fixed: fences
//! added, flushes added, operations moved. (One weighted sum would need weights that a solver's tolerances do not bear.)

use std::ops::RangeInclusive;
use std::time::Instant;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use rustc_hash::FxHashMap;

use crate::needs::Need;
use crate::{Action, Flush, Litmus, Op, StoreId, StoreKind};

/// The part of the sequence that matters, with its stores in some order.
pub struct Slice<'a> {
    pub litmus: &'a Litmus,
    /// Gap n is right after the n-th of them, counted from 1; gap 0 is before the first.
    pub stores: &'a [StoreId],
    /// Flushes and fences.
    pub items: &'a [Item],
    pub needs: &'a [Need],
    /// Thread of each store of the litmus file.
    pub threads: &'a [u32],
    /// Further fences, for each thread, that may be taken from elsewhere.
    pub spare: &'a [Vec<usize>],
}

/// A flush or fence of the original.
#[derive(Clone, Debug)]
pub struct Item {
    /// Index of the operation.
    pub at: usize,
    /// Where it is, if it is not moved.
    pub gaps: RangeInclusive<usize>,
}

/// What lies in the sequence, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Kept, or moved: an index of an operation.
    Original(usize),
    Flush(u32, Flush),
    Fence(u32),
}

#[derive(Clone, Debug)]
pub struct Solution {
    /// Fences added, flushes added, flushes and fences moved.
    pub cost: [usize; 3],
    /// What lies in each gap.
    pub gaps: Vec<Vec<Placed>>,
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
    /// The column that says that it is; `None`: a locked store.
    present: Option<usize>,
}

/// Flushes of the same lines by the same thread.
struct Class {
    flush: Flush,
    thread: u32,
    lines: Vec<u64>,
    /// New ones: gap and column.
    new: Vec<(usize, usize)>,
    /// Indices of items.
    items: Vec<usize>,
}

/// Fences of a thread.
#[derive(Default)]
struct Fences {
    new: Vec<(usize, usize)>,
    items: Vec<usize>,
}

pub fn solve(slice: &Slice, deadline: Instant) -> Result<Solution, Unsolved> {
    Builder::new(slice).solve(deadline)
}

struct Builder<'a> {
    slice: &'a Slice<'a>,
    program: Program,
    /// Place of each store in the order, from 1.
    place: FxHashMap<StoreId, usize>,
    /// For each item, the gaps in which it can be kept, each with its column.
    kept: Vec<Vec<(usize, usize)>>,
    classes: Vec<Class>,
    fences: Vec<Fences>,
}

impl<'a> Builder<'a> {
    fn new(slice: &'a Slice<'a>) -> Builder<'a> {
        let mut builder = Builder {
            slice,
            program: Program::default(),
            place: slice
                .stores
                .iter()
                .enumerate()
                .map(|(index, &store)| (store, index + 1))
                .collect(),
            kept: Vec::new(),
            classes: Vec::new(),
            fences: slice.litmus.threads.iter().map(|_| Fences::default()).collect(),
        };
        builder.existing();
        builder.new_ones();
        builder
    }

    // Times in a gap: new flushes, items, new fences, the fence of a locked store that ends the gap.
    fn gap_time(&self, gap: usize) -> usize {
        gap * (self.slice.items.len() + 3)
    }

    fn item_time(&self, gap: usize, item: usize) -> usize {
        self.gap_time(gap) + 1 + item
    }

    fn fence_time(&self, gap: usize) -> usize {
        self.gap_time(gap + 1) - 2
    }

    fn locked_time(&self, gap: usize) -> usize {
        self.gap_time(gap + 1) - 1
    }

    fn op(&self, item: usize) -> &'a Op {
        &self.slice.litmus.ops[self.slice.items[item].at]
    }

    fn existing(&mut self) {
        for (index, item) in self.slice.items.iter().enumerate() {
            let op = self.op(index);
            let mut gaps: Vec<usize> = item.gaps.clone().collect();
            match op.action {
                Action::Flush(flush) => {
                    gaps.retain(|&gap| self.follows_a_store(&flush, item.at, gap));
                    let class = self.class(flush, op.thread);
                    self.classes[class].items.push(index);
                }
                _ => self.fences[op.thread as usize].items.push(index),
            }
            let columns: Vec<(usize, usize)> = gaps.into_iter().map(|gap| (gap, self.program.binary())).collect();
            if columns.len() > 1 {
                self.program.row(
                    columns.iter().map(|&(_, column)| (column, 1.0)).collect(),
                    f64::NEG_INFINITY,
                    1.0,
                );
            }
            // What was before it and is kept stays before it.
            for earlier in self.kept.iter().filter(|earlier| earlier.len() > 1) {
                for &(gap, _) in earlier {
                    let later_ones = earlier
                        .iter()
                        .filter(|&&(other, _)| other > gap)
                        .map(|&(_, column)| (column, 1.0));
                    let before = columns
                        .iter()
                        .filter(|&&(other, _)| other <= gap)
                        .map(|&(_, column)| (column, 1.0));
                    let both: Sum = later_ones.chain(before).collect();
                    if both.len() > 1 {
                        self.program.row(both, f64::NEG_INFINITY, 1.0);
                    }
                }
            }
            self.kept.push(columns);
        }
    }

    /// A flush comes after some store that it can flush, if it did (the paper's Φ_fs).
    fn follows_a_store(&self, flush: &Flush, at: usize, gap: usize) -> bool {
        let litmus = self.slice.litmus;
        let touches = |store: StoreId| {
            litmus.stores[store]
                .at
                .lines()
                .any(|line| flush.at.lines().any(|own| own == line))
        };
        let stores_before = litmus.ops[..at].iter().filter_map(|op| match op.action {
            Action::Store(store) => touches(store).then_some(store),
            _ => None,
        });
        let mut followed = false;
        for store in stores_before {
            followed = true;
            if self.place.get(&store).is_none_or(|&place| place <= gap) {
                return true;
            }
        }
        let now = self.slice.stores[..gap].iter().any(|&store| touches(store));
        !followed || now
    }

    fn new_ones(&mut self) {
        let slice = self.slice;
        for need in slice.needs {
            if slice.litmus.stores[need.store].is_cached() {
                let flush = Flush {
                    names: Some(need.store),
                    at: slice.litmus.stores[need.store].at,
                    at_once: false,
                };
                self.class(flush, slice.threads[need.store]);
            }
        }
        for class in 0..self.classes.len() {
            let lines = self.classes[class].lines.clone();
            for (index, &store) in slice.stores.iter().enumerate() {
                if slice.litmus.stores[store].at.lines().any(|line| lines.contains(&line)) {
                    let column = self.program.binary();
                    self.classes[class].new.push((index + 1, column));
                }
            }
        }
        let mut gaps: Vec<usize> = slice.needs.iter().map(|need| self.until(need)).collect();
        gaps.sort_unstable();
        gaps.dedup();
        for thread in 0..self.fences.len() {
            let has_items = !self.fences[thread].items.is_empty();
            let wanted = slice
                .needs
                .iter()
                .any(|need| slice.threads[need.store] as usize == thread);
            let flushes = self.classes.iter().any(|class| class.thread as usize == thread);
            if has_items || wanted || flushes {
                let new = gaps.iter().map(|&gap| (gap, self.program.binary())).collect();
                self.fences[thread].new = new;
            }
        }
    }

    fn class(&mut self, flush: Flush, thread: u32) -> usize {
        let lines: Vec<u64> = flush.at.lines().collect();
        let same =
            |class: &Class| class.thread == thread && class.flush.at_once == flush.at_once && class.lines == lines;
        self.classes.iter().position(same).unwrap_or_else(|| {
            self.classes.push(Class {
                flush,
                thread,
                lines,
                new: Vec::new(),
                items: Vec::new(),
            });
            self.classes.len() - 1
        })
    }

    /// The last gap in which the need can be met.
    fn until(&self, need: &Need) -> usize {
        need.until
            .map_or(self.slice.stores.len(), |until| self.place[&until] - 1)
    }

    fn solve(mut self, deadline: Instant) -> Result<Solution, Unsolved> {
        for need in self.slice.needs {
            self.need(need)?;
        }
        let (fences_added, spare) = self.fence_balance();
        let flushes_added = self.flush_balance();
        let mut moved: Sum = self.kept.iter().flatten().map(|&(_, keep)| (keep, -1.0)).collect();
        moved.extend(spare.iter().map(|&(_, column)| (column, 1.0)));
        let mut values = Vec::new();
        let mut cost = [0; 3];
        for (objective, cost) in [fences_added, flushes_added, moved].into_iter().zip(&mut cost) {
            values = self.program.minimise(&objective, deadline)?;
            let best: f64 = objective.iter().map(|&(column, factor)| values[column] * factor).sum();
            *cost = (best.round() as i64).unsigned_abs() as usize;
            self.program.row(objective, f64::NEG_INFINITY, best.round());
        }
        // The last one counted what is kept.
        let taken: f64 = spare.iter().map(|&(_, column)| values[column]).sum();
        let kept = self
            .kept
            .iter()
            .flatten()
            .filter(|&&(_, keep)| values[keep] > 0.5)
            .count();
        cost[2] = self.slice.items.len() - kept + taken.round() as usize;
        Ok(self.extract(cost, &values, &spare))
    }

    fn need(&mut self, need: &Need) -> Result<(), Unsolved> {
        let slice = self.slice;
        let cached = slice.litmus.stores[need.store].is_cached();
        let gaps = self.place[&need.store]..=self.until(need);
        if gaps.is_empty() {
            return Err(Unsolved::Infeasible);
        }
        let mut served: Sum = Vec::new();
        for thread in 0..self.fences.len() as u32 {
            if !cached && thread != slice.threads[need.store] {
                continue;
            }
            let flushes = match cached {
                true => self.flush_chances(need.line, thread, false, &gaps),
                false => Vec::new(),
            };
            let mut flushes = flushes.iter().peekable();
            // Whether a flush has been, after the store.
            let mut flushed: Option<usize> = None;
            for fence in self.fence_chances(thread, &gaps) {
                let mut grows: Sum = Vec::new();
                while let Some(flush) = flushes.next_if(|flush| flush.time < fence.time) {
                    grows.extend(flush.present.map(|column| (column, 1.0)));
                }
                if !grows.is_empty() {
                    grows.extend(flushed.map(|level| (level, 1.0)));
                    let level = self.program.level();
                    self.program.at_most(vec![(level, 1.0)], &grows, 0.0);
                    flushed = Some(level);
                }
                if cached && flushed.is_none() {
                    continue;
                }
                let serves = self.serves(&fence);
                if let Some(level) = flushed {
                    self.program.at_most(vec![(serves, 1.0)], &vec![(level, 1.0)], 0.0);
                }
                served.push((serves, 1.0));
            }
            if cached {
                for flush in self.flush_chances(need.line, thread, true, &gaps) {
                    served.push((self.serves(&flush), 1.0));
                }
            }
        }
        if served.is_empty() {
            return Err(Unsolved::Infeasible);
        }
        self.program.row(served, 1.0, f64::INFINITY);
        Ok(())
    }

    /// A column that may be 1 only if the chance is there.
    fn serves(&mut self, chance: &Chance) -> usize {
        let serves = self.program.binary();
        if let Some(present) = chance.present {
            self.program.at_most(vec![(serves, 1.0)], &vec![(present, 1.0)], 0.0);
        }
        serves
    }

    fn flush_chances(&self, line: u64, thread: u32, at_once: bool, gaps: &RangeInclusive<usize>) -> Vec<Chance> {
        let mut chances = Vec::new();
        let matching =
            |class: &&Class| class.thread == thread && class.flush.at_once == at_once && class.lines.contains(&line);
        for class in self.classes.iter().filter(matching) {
            let new = class.new.iter().filter(|(gap, _)| gaps.contains(gap));
            chances.extend(new.map(|&(gap, column)| Chance {
                time: self.gap_time(gap),
                present: Some(column),
            }));
            self.kept_chances(&class.items, gaps, &mut chances);
        }
        chances.sort_by_key(|chance| chance.time);
        chances
    }

    fn kept_chances(&self, items: &[usize], gaps: &RangeInclusive<usize>, chances: &mut Vec<Chance>) {
        for &item in items {
            let kept = self.kept[item].iter().filter(|(gap, _)| gaps.contains(gap));
            chances.extend(kept.map(|&(gap, column)| Chance {
                time: self.item_time(gap, item),
                present: Some(column),
            }));
        }
    }

    fn fence_chances(&self, thread: u32, gaps: &RangeInclusive<usize>) -> Vec<Chance> {
        let fences = &self.fences[thread as usize];
        let new = fences.new.iter().filter(|(gap, _)| gaps.contains(gap));
        let mut chances: Vec<Chance> = new
            .map(|&(gap, column)| Chance {
                time: self.fence_time(gap),
                present: Some(column),
            })
            .collect();
        self.kept_chances(&fences.items, gaps, &mut chances);
        for gap in gaps.clone() {
            if let Some(&store) = self.slice.stores.get(gap)
                && self.slice.litmus.stores[store].kind == StoreKind::Locked
                && self.slice.threads[store] == thread
            {
                chances.push(Chance {
                    time: self.locked_time(gap),
                    present: None,
                });
            }
        }
        chances.sort_by_key(|chance| chance.time);
        chances
    }

    /// New fences are those taken from their places, and added ones: the sum of the latter; and the columns that count the spare
    /// ones of each thread.
    fn fence_balance(&mut self) -> (Sum, Vec<(u32, usize)>) {
        let mut added_all: Sum = Vec::new();
        let mut spare = Vec::new();
        for thread in 0..self.fences.len() {
            let fences = &self.fences[thread];
            if fences.new.is_empty() {
                continue;
            }
            let (count, mut sum) = (fences.items.len() as f64, self.balance(&fences.new, &fences.items));
            let added = self.program.count(sum.len() as f64);
            sum.push((added, -1.0));
            let others = self.slice.spare[thread].len();
            if others > 0 {
                let taken = self.program.count(others as f64);
                sum.push((taken, -1.0));
                spare.push((thread as u32, taken));
            }
            self.program.row(sum, count, count);
            added_all.push((added, 1.0));
        }
        (added_all, spare)
    }

    fn flush_balance(&mut self) -> Sum {
        let mut added_all: Sum = Vec::new();
        for class in 0..self.classes.len() {
            let class = &self.classes[class];
            let (count, mut sum) = (class.items.len() as f64, self.balance(&class.new, &class.items));
            // `clflush` waits, and is not what a repair adds.
            let most = if class.flush.at_once {
                0.0
            } else {
                class.new.len() as f64
            };
            let added = self.program.count(most);
            sum.push((added, -1.0));
            self.program.row(sum, count, count);
            added_all.push((added, 1.0));
        }
        added_all
    }

    /// New ones and kept ones: as many as there are items, and those added.
    fn balance(&self, new: &[(usize, usize)], items: &[usize]) -> Sum {
        let kept = items.iter().flat_map(|&item| &self.kept[item]);
        new.iter().chain(kept).map(|&(_, column)| (column, 1.0)).collect()
    }

    fn extract(&self, cost: [usize; 3], values: &[f64], spare: &[(u32, usize)]) -> Solution {
        let slice = self.slice;
        let is = |column: usize| values[column] > 0.5;
        let kept_in = |item: usize| {
            self.kept[item]
                .iter()
                .find(|&&(_, column)| is(column))
                .map(|&(gap, _)| gap)
        };
        let loose = |items: &[usize]| -> Vec<usize> {
            let out = items.iter().filter(|&&item| kept_in(item).is_none());
            out.map(|&item| slice.items[item].at).collect()
        };
        let mut gaps = vec![Vec::new(); slice.stores.len() + 1];
        for class in &self.classes {
            let mut loose = loose(&class.items).into_iter();
            for &(gap, _) in class.new.iter().filter(|&&(_, column)| is(column)) {
                let flush = loose.next().map(Placed::Original);
                gaps[gap].push(flush.unwrap_or(Placed::Flush(class.thread, class.flush)));
            }
        }
        for item in 0..slice.items.len() {
            if let Some(gap) = kept_in(item) {
                gaps[gap].push(Placed::Original(slice.items[item].at));
            }
        }
        let mut all_taken = Vec::new();
        for (thread, fences) in self.fences.iter().enumerate() {
            let mut out = loose(&fences.items);
            if let Some(&(_, column)) = spare.iter().find(|&&(other, _)| other as usize == thread) {
                let taken = &slice.spare[thread][..values[column].round() as usize];
                all_taken.extend_from_slice(taken);
                out.extend_from_slice(taken);
            }
            out.sort_unstable();
            let mut out = out.into_iter();
            for &(gap, _) in fences.new.iter().filter(|&&(_, column)| is(column)) {
                let fence = out.next().map(Placed::Original);
                gaps[gap].push(fence.unwrap_or(Placed::Fence(thread as u32)));
            }
        }
        Solution {
            cost,
            gaps,
            taken: all_taken,
        }
    }
}
