//! The exact problem: the least sequence that meets the needs, over all orders of the stores that move no more than they must.
//!
//! The new sequence is built from left to right, best first; two beginnings after which the same is open are one, and the dearer is dropped. At
//! each step comes the next operation of the original, kept, or taken out to be placed elsewhere (a flush or fence), or left for later (a
//! store that may move); or a store that may move comes here. What is new is decided as late as can be, because later serves more:
//!
//! - a new fence lies right before a store that something must precede, or at the end;
//! - whether a flush is missing turns out when such a store comes: then the flush lies before the last fence of its thread, and serves every store of
//!   its lines before that fence.
//!
//! The cost grows along the way: as many fences and flushes as the sequence has more than the original had are added, and what is taken out
//! is moved. First the fewest additions are sought, where all that exists is free to be anywhere, then the fewest moves with that many.

mod bounds;
mod delays;
mod run;

use std::cmp::Reverse;
use std::time::Instant;

use rustc_hash::FxHashMap;

use self::run::{Did, Run};
use crate::needs::Need;
use crate::part::{Part, Step};
use crate::{Action, Flush, Litmus, StoreId, StoreKind};

/// Most operations of the problem: some of what is done before the search grows with their square.
const MOST_STEPS: usize = 4_000;

/// What a search may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub deadline: Instant,
    /// Bytes of the beginnings looked at.
    memory: usize,
    /// Whether to look for any sequence before the best one, to have something in the end.
    first_any: bool,
}

impl Limits {
    pub(crate) fn all(deadline: Instant) -> Limits {
        Limits {
            deadline,
            memory: 2_000_000_000,
            first_any: true,
        }
    }

    /// What a search takes that comes to its end soon: some tenths of a second. It does not depend on the machine, so that the result does not.
    pub(crate) fn quick(deadline: Instant) -> Limits {
        Limits {
            deadline,
            memory: 20_000_000,
            first_any: false,
        }
    }

    /// What is left, but for something to go on with.
    fn most(self) -> Limits {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Limits {
            deadline: self.deadline - left / 8,
            ..self
        }
    }

    /// So much of the time that is left.
    fn part_of(self, parts: u32) -> Limits {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Limits {
            deadline: self.deadline - left + left / parts,
            ..self
        }
    }
}

/// Most threads: a bit each, twice.
const MOST_THREADS: usize = 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsolved {
    /// There is none: nothing that may be changed satisfies the needs.
    Infeasible,
    TimedOut,
    TooLarge,
}

/// What lies in the sequence, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Kept, or moved: an index of an operation.
    Original(usize),
    Flush(u32, Flush),
    Fence(u32),
}

/// An operation of the solution.
pub(crate) struct Solved {
    pub placed: Placed,
    /// All of the original before this index that is no part of the problem comes before it.
    pub after_rest: Option<usize>,
}

/// A sequence with the fewest stores moved and the fewest additions.
pub(crate) struct Solution {
    pub sequence: Vec<Solved>,
    pub moves: Moves,
}

/// Flushes and fences moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Fewest,
    /// Whether fewer would do was not found out within the limits.
    Some,
}

/// The part of a store in a line that has to be made persistent.
struct Entry {
    line: u64,
    thread: usize,
    cached: bool,
    /// A bit for each thread that may flush it.
    threads: u64,
}

struct PartStore {
    id: StoreId,
    /// Index of its operation.
    at: usize,
    thread: usize,
    locked: bool,
    /// Entries that it is.
    own: Vec<usize>,
    /// Entries that have to be served before it.
    required: Vec<usize>,
    /// Stores that have to come before it.
    before: Vec<usize>,
    movable: Option<usize>,
}

struct Movable {
    store: usize,
    component: usize,
}

/// Flushes of the same lines by the same thread.
struct Class {
    flush: Flush,
    thread: usize,
    lines: Vec<u64>,
    existing: usize,
    /// What one more costs.
    weight: u32,
}

enum Piece {
    Store(usize),
    Fence {
        at: usize,
        thread: usize,
        fixed: bool,
    },
    Flush {
        at: usize,
        class: usize,
        fixed: bool,
        /// One of these stores has to be before it.
        follows: Option<Vec<usize>>,
    },
}

pub(crate) struct Search<'a> {
    litmus: &'a Litmus,
    pieces: Vec<Piece>,
    stores: Vec<PartStore>,
    movable: Vec<Movable>,
    budgets: Vec<u16>,
    entries: Vec<Entry>,
    at_end: Vec<usize>,
    classes: Vec<Class>,
    /// Of each thread of the problem: its number, its fences, and those that may be taken from elsewhere.
    threads: Vec<(u32, usize, Vec<usize>)>,
    limits: Limits,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        litmus: &'a Litmus,
        part: &Part,
        needs: &[Need],
        threads: &[u32],
        limits: Limits,
    ) -> Result<Search<'a>, Unsolved> {
        if part.steps.len() > MOST_STEPS {
            return Err(Unsolved::TooLarge);
        }
        let mut search = Search {
            litmus,
            pieces: Vec::new(),
            stores: Vec::new(),
            movable: Vec::new(),
            budgets: part.budgets.clone(),
            entries: Vec::new(),
            at_end: Vec::new(),
            classes: Vec::new(),
            threads: Vec::new(),
            limits,
        };
        for need in needs {
            let thread = search.thread(threads[need.store]);
            if litmus.stores[need.store].is_cached() {
                let flush = Flush {
                    names: Some(need.store),
                    at: litmus.stores[need.store].at,
                    at_once: false,
                };
                search.class(flush, thread);
            }
        }
        for step in &part.steps {
            if let Step::Item { at, .. } = *step
                && let Action::Flush(flush) = litmus.ops[at].action
            {
                let thread = search.thread(litmus.ops[at].thread);
                search.class(flush, thread);
            }
        }
        if search.threads.len() > MOST_THREADS {
            return Err(Unsolved::TooLarge);
        }
        search.stores(part, threads);
        search.needs(needs);
        search.pieces(part);
        for (number, _, spare) in &mut search.threads {
            spare.clone_from(&part.spare[*number as usize]);
        }
        Ok(search)
    }

    fn thread(&mut self, number: u32) -> usize {
        self.known_thread(number).unwrap_or_else(|| {
            self.threads.push((number, 0, Vec::new()));
            self.threads.len() - 1
        })
    }

    fn known_thread(&self, number: u32) -> Option<usize> {
        self.threads.iter().position(|&(known, ..)| known == number)
    }

    fn class(&mut self, flush: Flush, thread: usize) -> usize {
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
            existing: 0,
            weight: u32::MAX,
        });
        self.classes.len() - 1
    }

    fn stores(&mut self, part: &Part, threads: &[u32]) {
        let mut index: FxHashMap<StoreId, usize> = FxHashMap::default();
        for step in &part.steps {
            let Step::Store { id, at } = *step else { continue };
            index.insert(id, self.stores.len());
            self.stores.push(PartStore {
                id,
                at,
                thread: self.known_thread(threads[id]).unwrap_or(usize::MAX),
                locked: self.litmus.stores[id].kind == StoreKind::Locked,
                own: Vec::new(),
                required: Vec::new(),
                before: Vec::new(),
                movable: None,
            });
        }
        for &(first, second) in &part.order {
            if let (Some(&first), Some(&second)) = (index.get(&first), index.get(&second)) {
                self.stores[second].before.push(first);
            }
        }
        for &(id, component) in &part.movable {
            let store = index[&id];
            self.stores[store].movable = Some(self.movable.len());
            self.movable.push(Movable { store, component });
        }
    }

    fn needs(&mut self, needs: &[Need]) {
        let index: FxHashMap<StoreId, usize> = self.stores.iter().enumerate().map(|(n, store)| (store.id, n)).collect();
        let mut known: FxHashMap<(StoreId, u64), usize> = FxHashMap::default();
        for need in needs {
            let store = index[&need.store];
            let entry = *known.entry((need.store, need.line)).or_insert_with(|| {
                let classes = self.classes.iter().filter(|class| class.lines.contains(&need.line));
                self.entries.push(Entry {
                    line: need.line,
                    threads: classes.fold(0, |bits, class| bits | 1 << class.thread),
                    thread: self.stores[store].thread,
                    cached: self.litmus.stores[need.store].is_cached(),
                });
                self.stores[store].own.push(self.entries.len() - 1);
                self.entries.len() - 1
            });
            match need.until {
                None => self.at_end.push(entry),
                Some(until) => self.stores[index[&until]].required.push(entry),
            }
            // A flush runs as often as the store that it flushes.
            let times = self.litmus.times(self.stores[store].at);
            for class in self.classes.iter_mut().filter(|class| class.lines.contains(&need.line)) {
                class.weight = class.weight.min(times);
            }
        }
    }

    fn pieces(&mut self, part: &Part) {
        let mut next_store = 0;
        for step in &part.steps {
            match *step {
                Step::Store { .. } => {
                    self.pieces.push(Piece::Store(next_store));
                    next_store += 1;
                }
                Step::Item { at, fixed } => match self.litmus.ops[at].action {
                    Action::Flush(flush) => {
                        let thread = self.thread(self.litmus.ops[at].thread);
                        let class = self.class(flush, thread);
                        self.classes[class].existing += 1;
                        let follows = self.follows(&flush, at);
                        self.pieces.push(Piece::Flush {
                            at,
                            class,
                            fixed,
                            follows,
                        });
                    }
                    _ => {
                        // A fence of a thread that neither needs nor flushes anything serves nothing.
                        if let Some(thread) = self.known_thread(self.litmus.ops[at].thread) {
                            self.threads[thread].1 += 1;
                            self.pieces.push(Piece::Fence { at, thread, fixed });
                        }
                    }
                },
            }
        }
    }

    /// A flush comes after some store that it can flush, if it did (the paper's Φ_fs): one of these; `None` if it always does, or never did.
    fn follows(&self, flush: &Flush, at: usize) -> Option<Vec<usize>> {
        let touches = |id: StoreId| {
            let mut lines = self.litmus.stores[id].at.lines();
            lines.any(|line| flush.at.lines().any(|own| own == line))
        };
        let of_part: Vec<usize> = (0..self.stores.len()).filter(|&n| touches(self.stores[n].id)).collect();
        let earlier = self.litmus.ops[..at].iter().filter_map(|op| match op.action {
            Action::Store(id) if touches(id) => Some(id),
            _ => None,
        });
        let mut had = false;
        for id in earlier {
            had = true;
            if !of_part
                .iter()
                .any(|&n| self.stores[n].id == id && self.stores[n].movable.is_some())
            {
                return None;
            }
        }
        had.then_some(of_part)
    }

    /// The least sequence.
    pub(crate) fn solve(&self) -> Result<Solution, Unsolved> {
        let weighted = self.litmus.is_weighted();
        // Where all that exists is free to be anywhere, it need not be looked at one by one; unless it matters where new fences are.
        let (least, _) = Run::new(self, weighted, None).best(self.limits, u32::MAX)?;
        let run = Run::new(self, true, Some(least));
        // Some sequence with so few additions, if one is found soon; then whether one moves less.
        let any = match self.limits.first_any {
            true => run.any(self.limits.part_of(8)).ok(),
            false => None,
        };
        let less_than = any.as_ref().map_or(u32::MAX, |&(moved, _)| moved);
        let (path, moves) = match (run.best(self.limits.most(), less_than), any) {
            (Ok((_, path)), _) => (path, Moves::Fewest),
            (Err(Unsolved::Infeasible), Some((_, any))) => (any, Moves::Fewest),
            (Err(Unsolved::TimedOut | Unsolved::TooLarge), Some((_, any))) => (any, Moves::Some),
            (Err(unsolved), None) => return Err(unsolved),
        };
        let sequence = self.sequence(&path);
        Ok(Solution { sequence, moves })
    }

    /// For each of these pieces and the end: how often a new fence that lies after the piece before it runs at least, and before which operation.
    fn gaps(&self, pieces: &[&Piece]) -> Vec<(u32, usize)> {
        let ops = self.litmus.ops.len();
        let positions = pieces.iter().map(|piece| match **piece {
            Piece::Store(store) => self.stores[store].at,
            Piece::Fence { at, .. } | Piece::Flush { at, .. } => at,
        });
        let mut from = 0;
        let best = |to: usize| {
            let runs = (from..=to).map(|at| (Reverse(self.litmus.times_between(at)), at));
            let (Reverse(times), at) = runs.max().unwrap_or((Reverse(1), to));
            from = to + 1;
            (times, at)
        };
        if !self.litmus.is_weighted() {
            return positions.chain([ops]).map(|at| (1, at)).collect();
        }
        positions.chain([ops]).map(best).collect()
    }

    /// What was done, as operations.
    fn sequence(&self, path: &[Did]) -> Vec<Solved> {
        let mut taken_fences: Vec<Vec<usize>> = vec![Vec::new(); self.threads.len()];
        let mut taken_flushes: Vec<Vec<usize>> = vec![Vec::new(); self.classes.len()];
        for did in path {
            if let Did::Take(piece) = *did {
                match self.pieces[piece] {
                    Piece::Fence { at, thread, .. } => taken_fences[thread].push(at),
                    Piece::Flush { at, class, .. } => taken_flushes[class].push(at),
                    Piece::Store(_) => {}
                }
            }
        }
        for (thread, taken) in taken_fences.iter_mut().enumerate() {
            let new = |did: &&Did| matches!(did, Did::NewFence(of, _) if *of == thread);
            let wanted = path.iter().filter(new).count().saturating_sub(taken.len());
            taken.extend(self.threads[thread].2.iter().take(wanted));
        }
        let mut out = Output {
            solved: Vec::new(),
            last_fence: vec![0; self.threads.len()],
        };
        for taken in taken_fences.iter_mut().chain(&mut taken_flushes) {
            taken.sort_unstable();
            taken.reverse();
        }
        for did in path {
            match *did {
                Did::Keep(piece) => match self.pieces[piece] {
                    Piece::Fence { at, thread, .. } => out.fence(thread, Placed::Original(at), at),
                    Piece::Flush { at, .. } => out.push(Placed::Original(at), Some(at)),
                    Piece::Store(_) => {}
                },
                Did::Take(_) => {}
                Did::Store(store, moved) => {
                    let at = self.stores[store].at;
                    out.push(Placed::Original(at), (!moved).then_some(at));
                }
                Did::Locked(thread) => out.last_fence[thread] = out.solved.len(),
                Did::NewFence(thread, before) => {
                    let placed = taken_fences[thread].pop().map(Placed::Original);
                    out.fence(thread, placed.unwrap_or(Placed::Fence(self.threads[thread].0)), before);
                }
                Did::NewFlush(class) => {
                    let Class { flush, thread, .. } = self.classes[class];
                    let at = self.after_last_store(&out, class, out.last_fence[thread]);
                    let placed = taken_flushes[class].pop().map(Placed::Original);
                    out.insert(at, placed.unwrap_or(Placed::Flush(self.threads[thread].0, flush)));
                }
                Did::NewClflush(class) => {
                    if let Some(at) = taken_flushes[class].pop() {
                        out.push(Placed::Original(at), None);
                    }
                }
            }
        }
        // What was taken out and is not wanted anywhere.
        let left = taken_fences.into_iter().chain(taken_flushes).flatten();
        out.solved.extend(left.map(|at| Solved {
            placed: Placed::Original(at),
            after_rest: None,
        }));
        out.solved
    }

    /// The place before `end` right after the last store that a flush of this class flushes.
    fn after_last_store(&self, out: &Output, class: usize, end: usize) -> usize {
        let touched = |solved: &Solved| match solved.placed {
            Placed::Original(at) => match self.litmus.ops[at].action {
                Action::Store(id) => {
                    let mut lines = self.litmus.stores[id].at.lines();
                    lines.any(|line| self.classes[class].lines.contains(&line))
                }
                _ => false,
            },
            _ => false,
        };
        out.solved[..end].iter().rposition(touched).map_or(end, |at| at + 1)
    }
}

struct Output {
    solved: Vec<Solved>,
    /// Of each thread; a flush before it is fenced.
    last_fence: Vec<usize>,
}

impl Output {
    fn push(&mut self, placed: Placed, after_rest: Option<usize>) {
        self.solved.push(Solved { placed, after_rest });
    }

    fn fence(&mut self, thread: usize, placed: Placed, at: usize) {
        self.last_fence[thread] = self.solved.len();
        self.push(placed, Some(at));
    }

    fn insert(&mut self, at: usize, placed: Placed) {
        let after_rest = None;
        self.solved.insert(at, Solved { placed, after_rest });
        for last in &mut self.last_fence {
            *last += usize::from(*last >= at);
        }
    }
}
