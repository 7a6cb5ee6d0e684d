//! One pass of the search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::bounds::Bounds;
use super::delays::Delays;
use super::{Limits, Piece, Search, Unsolved};

// States of a movable store.
pub(super) const AHEAD: u8 = 0;
const EARLY: u8 = 1;
pub(super) const LEFT: u8 = 2;
const PASSED: u8 = 3;

// States of an entry: not placed, served, or placed with a bit for each thread that has fenced since, and one for each that has flushed.
pub(super) const UNPLACED: u64 = 0;
pub(super) const SERVED: u64 = u64::MAX;
const PLACED: u64 = 1 << 63;

fn fenced(thread: usize) -> u64 {
    1 << thread
}

fn pending(thread: usize) -> u64 {
    1 << (32 + thread)
}

/// Whether a flush of it is still to come, where it is not served.
pub(super) fn is_unflushed(entry: u64) -> bool {
    (entry & !PLACED) >> 32 == 0
}

/// Whether a fence after it is still to come, where it is not served: if there was one, a flush may yet be put before that.
pub(super) fn is_unfenced(entry: u64) -> bool {
    entry as u32 == 0
}

fn is_open(entry: u64) -> bool {
    entry != SERVED && entry != UNPLACED
}

/// What the rest of a sequence depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    next: u32,
    movable: Vec<u8>,
    /// How many stores of each component have moved.
    used: Vec<u16>,
    entries: Vec<u64>,
}

#[derive(Clone)]
struct Label {
    state: State,
    /// Fences of each thread, then flushes of each class: new ones and kept ones.
    counts: Vec<u32>,
    moved: u32,
    /// How much more often than once new fences run.
    extra: u32,
    parent: usize,
    did: Vec<Did>,
}

#[derive(Clone, Debug)]
pub(super) enum Did {
    /// An index of the pieces.
    Keep(usize),
    Take(usize),
    /// A store, and whether it has moved.
    Store(usize, bool),
    /// A locked store is about to fence.
    Locked(usize),
    /// By a thread, before an index of the operations.
    NewFence(usize, usize),
    /// Of a class, before the last fence of its thread.
    NewFlush(usize),
    NewClflush(usize),
}

/// Fences added and flushes added, each by how often it runs.
pub(super) type Cost = [u32; 2];

pub(super) struct Run<'a> {
    search: &'a Search<'a>,
    pieces: Vec<&'a Piece>,
    /// The step of each store.
    steps: Vec<usize>,
    limit: Option<Cost>,
    /// For each step, the fences of each thread and flushes of each class from it on.
    ahead: Vec<Vec<u32>>,
    /// For each step and the end: how often a new fence before it runs at least, and before which operation.
    gaps: Vec<(u32, usize)>,
    /// Whether something has to be served before the store.
    until: Vec<bool>,
    bounds: Bounds,
    delays: Delays,
}

impl<'a> Run<'a> {
    /// Without `limit` the additions are the cost, else the moves, with no more additions than that. Without `movable_items`, those that could be
    /// taken out are: they cost nothing then, wherever they are wanted.
    pub(super) fn new(search: &'a Search<'a>, movable_items: bool, limit: Option<Cost>) -> Run<'a> {
        let wanted = |piece: &&Piece| {
            movable_items
                || matches!(
                    piece,
                    Piece::Store(_) | Piece::Fence { fixed: true, .. } | Piece::Flush { fixed: true, .. }
                )
        };
        let pieces: Vec<&Piece> = search.pieces.iter().filter(wanted).collect();
        let mut steps = vec![0; search.stores.len()];
        let mut ahead = vec![vec![0; search.threads.len() + search.classes.len()]];
        for (step, piece) in pieces.iter().enumerate().rev() {
            let mut counts = ahead[ahead.len() - 1].clone();
            match **piece {
                Piece::Store(store) => steps[store] = step,
                Piece::Fence { thread, .. } => counts[thread] += 1,
                Piece::Flush { class, .. } => counts[search.threads.len() + class] += 1,
            }
            ahead.push(counts);
        }
        ahead.reverse();
        let gaps = search.gaps(&pieces);
        let until = search.stores.iter().map(|store| !store.required.is_empty()).collect();
        let bounds = Bounds::of(search, &pieces, &steps);
        Run {
            delays: Delays::of(search, &pieces),
            search,
            pieces,
            steps,
            limit,
            ahead,
            gaps,
            until,
            bounds,
        }
    }

    /// Any sequence within the limit, the longest beginning first, and what it moves.
    pub(super) fn any(&self, limits: Limits) -> Result<(u32, Vec<Did>), Unsolved> {
        let (last, path) = self.search(limits, true, u32::MAX)?;
        Ok((self.spent(&last).moved, path))
    }

    /// The best sequence of those that move less than that.
    pub(super) fn best(&self, limits: Limits, less_than: u32) -> Result<(Cost, Vec<Did>), Unsolved> {
        let (last, path) = self.search(limits, false, less_than)?;
        Ok((self.cost(&last), path))
    }

    fn search(&self, limits: Limits, longest_first: bool, less_than: u32) -> Result<(Label, Vec<Did>), Unsolved> {
        let mut done: Vec<(usize, Vec<Did>)> = Vec::new();
        let mut heap = BinaryHeap::new();
        let mut known: FxHashMap<State, Vec<Spent>> = FxHashMap::default();
        let mut count = 0;
        let most = limits.memory / self.bytes();
        heap.push(Waiting {
            rank: (Reverse([0; 2]), 0, Reverse(0)),
            label: self.first(),
        });
        while let Some(Waiting { mut label, .. }) = heap.pop() {
            if done.len().is_multiple_of(64) && Instant::now() > limits.deadline {
                return Err(Unsolved::TimedOut);
            }
            let spent = self.spent(&label);
            // Another has come to the same since, and spent less.
            if known.get(&label.state).is_some_and(|all| !all.contains(&spent)) {
                continue;
            }
            done.push((label.parent, std::mem::take(&mut label.did)));
            label.parent = done.len() - 1;
            if label.state.next as usize > self.pieces.len() {
                return Ok((label, path(&done)));
            }
            for mut next in self.expand(&label) {
                let cost = self.bound(&next);
                if self.limit.is_some_and(|limit| cost[0] > limit[0] || cost[1] > limit[1]) {
                    continue;
                }
                self.forget(&mut next);
                let spent = self.spent(&next);
                let moved = spent.moved + self.owed(&next);
                if moved >= less_than {
                    continue;
                }
                let all = known.entry(next.state.clone()).or_default();
                if all.iter().any(|other| other.is_at_most(&spent)) {
                    continue;
                }
                all.retain(|other| !spent.is_at_most(other));
                let order = match self.limit {
                    _ if longest_first => [u32::MAX - next.state.next, spent.moved],
                    None => cost,
                    Some(_) => [moved, 0],
                };
                all.push(spent);
                count += 1;
                if count > most {
                    return Err(Unsolved::TooLarge);
                }
                heap.push(Waiting {
                    rank: (Reverse(order), next.state.next, Reverse(count)),
                    label: next,
                });
            }
        }
        Err(Unsolved::Infeasible)
    }

    /// What a beginning takes, about: its state is in the heap and among those known.
    fn bytes(&self) -> usize {
        let search = self.search;
        let state = 8 * search.entries.len() + search.movable.len() + 2 * search.budgets.len();
        let counts = 4 * (search.threads.len() + search.classes.len());
        2 * (state + counts) + 400
    }

    fn first(&self) -> Label {
        Label {
            state: State {
                next: 0,
                movable: vec![AHEAD; self.search.movable.len()],
                used: vec![0; self.search.budgets.len()],
                entries: vec![UNPLACED; self.search.entries.len()],
            },
            counts: vec![0; self.search.threads.len() + self.search.classes.len()],
            moved: 0,
            extra: 0,
            parent: usize::MAX,
            did: Vec::new(),
        }
    }

    fn cost(&self, label: &Label) -> Cost {
        self.cost_of(&label.counts, label.extra)
    }

    fn cost_of(&self, counts: &[u32], extra: u32) -> Cost {
        let (fences, flushes) = counts.split_at(self.search.threads.len());
        let fences = fences.iter().zip(&self.search.threads);
        let added = fences.map(|(count, (_, existing, spare))| count.saturating_sub((existing + spare.len()) as u32));
        let flushes = flushes.iter().zip(&self.search.classes);
        let flushed =
            flushes.map(|(count, class)| count.saturating_sub(class.existing as u32).saturating_mul(class.weight));
        [
            added.sum::<u32>().saturating_add(extra),
            flushed.fold(0, u32::saturating_add),
        ]
    }

    /// What it will have cost at least in the end.
    fn bound(&self, label: &Label) -> Cost {
        let lacking = self.bounds.lacking(&label.state.entries, label.state.next as usize);
        let least: Vec<u32> = label
            .counts
            .iter()
            .zip(&lacking.any)
            .map(|(is, more)| is + more)
            .collect();
        self.cost_of(&least, label.extra)
    }

    fn spent(&self, label: &Label) -> Spent {
        let (fences, flushes) = label.counts.split_at(self.search.threads.len());
        let flushes = flushes.iter().zip(&self.search.classes);
        Spent {
            fences: fences.to_vec(),
            added: self.cost(label)[1],
            unused: flushes
                .map(|(count, class)| (class.existing as u32).saturating_sub(*count))
                .collect(),
            // Where they are free, moves make no difference.
            moved: self.limit.map_or(0, |_| label.moved + self.spare_used(label)),
            extra: label.extra,
        }
    }

    /// How many more have to be moved at least: what is new, beyond what may be added, is taken from the original, and has not been yet.
    fn owed(&self, label: &Label) -> u32 {
        let Some([most_fences, most_flushes]) = self.limit.filter(|_| !self.search.litmus.is_weighted()) else {
            return 0;
        };
        let next = (label.state.next as usize).min(self.pieces.len());
        let lacking = self.bounds.lacking(&label.state.entries, next);
        let passed = self.ahead[0]
            .iter()
            .zip(&self.ahead[next])
            .map(|(all, ahead)| all - ahead);
        let new = label.counts.iter().zip(&lacking.new).zip(passed);
        let new: Vec<u32> = new
            .map(|((is, more), passed)| (is + more).saturating_sub(passed))
            .collect();
        let (fences, flushes) = new.split_at(self.search.threads.len());
        let fences = fences
            .iter()
            .sum::<u32>()
            .saturating_sub(most_fences + self.spare_used(label));
        fences + flushes.iter().sum::<u32>().saturating_sub(most_flushes)
    }

    /// Fences that are used here and lie elsewhere.
    fn spare_used(&self, label: &Label) -> u32 {
        let fences = label.counts.iter().zip(&self.search.threads);
        fences
            .map(|(count, (_, existing, spare))| count.saturating_sub(*existing as u32).min(spare.len() as u32))
            .sum()
    }

    /// Leaves out what can make no difference any more, so that more beginnings are the same.
    fn forget(&self, label: &mut Label) {
        let search = self.search;
        let state = &mut label.state;
        for (component, used) in state.used.iter_mut().enumerate() {
            let mut own = search
                .movable
                .iter()
                .zip(&state.movable)
                .filter(|(movable, _)| movable.component == component);
            if own.all(|(_, &is)| is == PASSED) {
                *used = search.budgets[component];
            }
        }
        let next = (state.next as usize).min(self.pieces.len());
        let unplaced = (0..search.stores.len())
            .filter(|&store| self.until[store] && !self.is_placed(state, store))
            .count();
        // New fences come right before such a store, or at the end, or where they run less often.
        let rises = (next..self.pieces.len()).filter(|&step| self.rises(step)).count();
        let new_fences = (unplaced + 1 + rises) as u32;
        for (thread, (_, existing, _)) in search.threads.iter().enumerate() {
            let most = self.ahead[next][thread] + new_fences;
            label.counts[thread] = label.counts[thread].max((*existing as u32).saturating_sub(most));
        }
        for (n, class) in search.classes.iter().enumerate() {
            let open = search.entries.iter().zip(&state.entries);
            let open = open
                .filter(|(entry, is)| **is != SERVED && class.lines.contains(&entry.line))
                .count() as u32;
            let index = search.threads.len() + n;
            let most = self.ahead[next][index] + open;
            label.counts[index] = label.counts[index].max((class.existing as u32).saturating_sub(most));
        }
    }

    /// Whether new fences run less often before this step than after it.
    fn rises(&self, step: usize) -> bool {
        self.gaps[step + 1].0 > self.gaps[step].0
    }

    fn is_placed(&self, state: &State, store: usize) -> bool {
        match self.search.stores[store].movable {
            Some(movable) => matches!(state.movable[movable], EARLY | PASSED),
            None => self.steps[store] < state.next as usize,
        }
    }

    fn expand(&self, label: &Label) -> Vec<Label> {
        let search = self.search;
        let next = label.state.next as usize;
        let mut found = Vec::new();
        match self.pieces.get(next) {
            Some(&&Piece::Store(store)) => self.store(label, store, &mut found),
            Some(&&Piece::Fence { thread, fixed, .. }) => {
                let mut kept = label.step();
                kept.counts[thread] += 1;
                self.fence(&mut kept, thread);
                kept.did.push(Did::Keep(next));
                found.push(kept);
                if !fixed {
                    found.push(take(label, next));
                }
            }
            Some(Piece::Flush {
                class,
                fixed,
                follows: follows_any,
                ..
            }) => {
                let count = search.threads.len() + class;
                // A `clflush` that already serves elsewhere is no longer here: none is ever added.
                let used_up = search.classes[*class].flush.at_once
                    && label.counts[count] as usize >= search.classes[*class].existing;
                let follows = |all: &Vec<usize>| all.iter().any(|&store| self.is_placed(&label.state, store));
                let legal = follows_any.as_ref().is_none_or(follows) && !used_up;
                if legal {
                    let mut kept = label.step();
                    kept.counts[count] += 1;
                    self.flush(&mut kept, *class);
                    kept.did.push(Did::Keep(next));
                    found.push(kept);
                }
                if !legal || !fixed {
                    found.push(take(label, next));
                }
            }
            None => {
                if label.state.movable.iter().all(|&is| is == PASSED) {
                    found.extend(self.served(label.step(), &search.at_end, None));
                }
            }
        }
        if next < self.pieces.len() && self.rises(next) {
            found.extend((0..search.threads.len()).filter_map(|thread| self.new_fence(label, thread)));
        }
        let wanted = self.delays.wanted(next, &label.state.movable);
        for (m, movable) in search.movable.iter().enumerate().filter(|(m, _)| wanted[*m]) {
            let is = label.state.movable[m];
            let early = is == AHEAD
                && self.steps[movable.store] != next
                && label.state.used[movable.component] < search.budgets[movable.component];
            if (early || is == LEFT) && self.may_come(&label.state, movable.store) {
                let mut moved = label.here();
                moved.state.movable[m] = if early { EARLY } else { PASSED };
                moved.state.used[movable.component] += u16::from(early);
                found.extend(self.place(moved, movable.store, true));
            }
        }
        found
    }

    /// The next of the original is this store.
    fn store(&self, label: &Label, store: usize, found: &mut Vec<Label>) {
        let movable = self.search.stores[store].movable;
        if let Some(m) = movable
            && label.state.movable[m] == EARLY
        {
            let mut passed = label.step();
            passed.state.movable[m] = PASSED;
            found.push(passed);
            return;
        }
        if self.may_come(&label.state, store) {
            // What is new before it comes before its step.
            let mut kept = label.here();
            if let Some(m) = movable {
                kept.state.movable[m] = PASSED;
            }
            found.extend(self.place(kept, store, false).into_iter().map(|mut label| {
                label.state.next += 1;
                label
            }));
        }
        if let Some(m) = movable {
            let component = self.search.movable[m].component;
            if label.state.used[component] < self.search.budgets[component] {
                let mut left = label.step();
                left.state.movable[m] = LEFT;
                left.state.used[component] += 1;
                found.push(left);
            }
        }
    }

    fn may_come(&self, state: &State, store: usize) -> bool {
        self.search.stores[store]
            .before
            .iter()
            .all(|&first| self.is_placed(state, first))
    }

    /// The store comes now, after what has to be before it was served.
    fn place(&self, mut label: Label, store: usize, moved: bool) -> Vec<Label> {
        let part = &self.search.stores[store];
        if part.locked && part.thread != usize::MAX {
            label.did.push(Did::Locked(part.thread));
            self.fence(&mut label, part.thread);
        }
        let mut found = self.served(label, &part.required, Some(store));
        for label in &mut found {
            for &own in &part.own {
                label.state.entries[own] = PLACED;
            }
            label.did.push(Did::Store(store, moved));
        }
        found
    }

    /// All ways to serve these entries, with new fences here.
    fn served(&self, label: Label, required: &[usize], until: Option<usize>) -> Vec<Label> {
        let is_served = |label: &Label| required.iter().all(|&entry| label.state.entries[entry] == SERVED);
        if is_served(&label) {
            return vec![label];
        }
        debug_assert!(until.is_none() || required.iter().all(|&entry| label.state.entries[entry] != UNPLACED));
        let mut variants = vec![label];
        for thread in 0..self.search.threads.len() {
            let fenced: Vec<Label> = variants
                .iter()
                .filter_map(|label| self.new_fence(label, thread))
                .collect();
            variants.extend(fenced);
        }
        let mut found = Vec::new();
        while let Some(label) = variants.pop() {
            let open = required.iter().find(|&&entry| label.state.entries[entry] != SERVED);
            let Some(&open) = open else {
                found.push(label);
                continue;
            };
            let entry = &self.search.entries[open];
            for (n, class) in self.search.classes.iter().enumerate() {
                let count = self.search.threads.len() + n;
                if !entry.cached || !class.lines.contains(&entry.line) {
                    continue;
                }
                if class.flush.at_once {
                    if (label.counts[count] as usize) < class.existing {
                        let mut next = label.clone();
                        self.serve(&mut next, n, 0);
                        next.did.push(Did::NewClflush(n));
                        variants.push(next);
                    }
                } else if label.state.entries[open] & fenced(class.thread) != 0 {
                    let mut next = label.clone();
                    self.serve(&mut next, n, fenced(class.thread));
                    next.did.push(Did::NewFlush(n));
                    variants.push(next);
                }
            }
        }
        found
    }

    /// One more of the class; it serves what is in its lines and has all of these bits.
    fn serve(&self, label: &mut Label, class: usize, bits: u64) {
        label.counts[self.search.threads.len() + class] += 1;
        let lines = &self.search.classes[class].lines;
        for (entry, is) in self.search.entries.iter().zip(&mut label.state.entries) {
            if is_open(*is) && entry.cached && lines.contains(&entry.line) && *is & bits == bits {
                *is = SERVED;
            }
        }
    }

    /// With a new fence here, if that makes a difference.
    fn new_fence(&self, label: &Label, thread: usize) -> Option<Label> {
        let mut next = label.here();
        next.did.clone_from(&label.did);
        self.fence(&mut next, thread).then(|| {
            let (weight, before) = self.gaps[(label.state.next as usize).min(self.pieces.len())];
            next.counts[thread] += 1;
            next.extra = next.extra.saturating_add(weight - 1);
            next.did.push(Did::NewFence(thread, before));
            next
        })
    }

    fn fence(&self, label: &mut Label, thread: usize) -> bool {
        let mut changed = false;
        for (entry, is) in self.search.entries.iter().zip(&mut label.state.entries) {
            let was = *is;
            if is_open(was) {
                if entry.cached {
                    match was & pending(thread) != 0 {
                        true => *is = SERVED,
                        false => *is |= fenced(thread) & entry.threads,
                    }
                } else if entry.thread == thread {
                    *is = SERVED;
                }
                changed |= *is != was;
            }
        }
        changed
    }

    fn flush(&self, label: &mut Label, class: usize) {
        let class = &self.search.classes[class];
        for (entry, is) in self.search.entries.iter().zip(&mut label.state.entries) {
            if is_open(*is) && entry.cached && class.lines.contains(&entry.line) {
                match class.flush.at_once {
                    true => *is = SERVED,
                    false => *is |= pending(class.thread),
                }
            }
        }
    }
}

fn take(label: &Label, piece: usize) -> Label {
    let mut taken = label.step();
    taken.moved += 1;
    taken.did.push(Did::Take(piece));
    taken
}

impl Label {
    /// What follows it at the same step.
    fn here(&self) -> Label {
        Label {
            state: self.state.clone(),
            counts: self.counts.clone(),
            did: Vec::new(),
            ..*self
        }
    }

    fn step(&self) -> Label {
        let mut next = self.here();
        next.state.next += 1;
        next
    }
}

/// What a beginning has cost, and has left; less of the one and more of the other is better.
#[derive(PartialEq, Eq)]
struct Spent {
    /// Of each thread.
    fences: Vec<u32>,
    /// Flushes added, of whatever class: what matters later is only how many there are, and which are left.
    added: u32,
    /// Of each class, flushes of the original that were neither kept nor used yet, as far as they can be.
    unused: Vec<u32>,
    moved: u32,
    extra: u32,
}

impl Spent {
    fn is_at_most(&self, other: &Spent) -> bool {
        self.moved <= other.moved
            && self.extra <= other.extra
            && self.added <= other.added
            && self.fences.iter().zip(&other.fences).all(|(own, other)| own <= other)
            && self.unused.iter().zip(&other.unused).all(|(own, other)| own >= other)
    }
}

struct Waiting {
    /// Cheapest first, then the longest.
    rank: (Reverse<Cost>, u32, Reverse<usize>),
    label: Label,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

fn path(done: &[(usize, Vec<Did>)]) -> Vec<Did> {
    let mut parts = Vec::new();
    let mut at = done.len() - 1;
    while let Some((parent, did)) = done.get(at) {
        parts.push(did.as_slice());
        at = *parent;
    }
    parts.into_iter().rev().flatten().cloned().collect()
}
