//! The part of a sequence that can matter to the needs, sliced out for the exact search.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::needs::{Index, Need, Order};
use crate::{Action, Litmus, StoreId, StoreKind};

/// Which stores may move.
pub(crate) struct Moving {
    /// Each with its component: contradicted pairs that share a store are of one.
    pub movable: Vec<(StoreId, usize)>,
    /// How many of each component move: as many as have to.
    pub budgets: Vec<u16>,
    /// Orders between two stores of which one is movable.
    pub order: Vec<(StoreId, StoreId)>,
}

impl Moving {
    pub(crate) fn of(order: &Order, pairs: &[(StoreId, StoreId)]) -> Moving {
        let mut component: FxHashMap<StoreId, usize> = FxHashMap::default();
        let mut of_pairs: Vec<Vec<(StoreId, StoreId)>> = Vec::new();
        for &(a, b) in pairs {
            let (of_a, of_b) = (component.get(&a).copied(), component.get(&b).copied());
            let own = of_a.or(of_b).unwrap_or_else(|| {
                of_pairs.push(Vec::new());
                of_pairs.len() - 1
            });
            if let Some(other) = of_b.filter(|&other| other != own) {
                let taken = std::mem::take(&mut of_pairs[other]);
                of_pairs[own].extend(taken);
                component
                    .values_mut()
                    .filter(|of| **of == other)
                    .for_each(|of| *of = own);
            }
            of_pairs[own].push((a, b));
            component.extend([(a, own), (b, own)]);
        }
        let mut movable: Vec<(StoreId, usize)> = component.into_iter().collect();
        movable.sort_unstable();
        let may_move: FxHashSet<StoreId> = movable.iter().map(|&(store, _)| store).collect();
        let mut kept = Vec::new();
        for (first, later) in order.after.iter().enumerate() {
            let touched = |second: &&StoreId| may_move.contains(&first) || may_move.contains(second);
            kept.extend(later.iter().filter(touched).map(|&second| (first, second)));
        }
        Moving {
            movable,
            budgets: of_pairs.iter().map(|pairs| matching(pairs) as u16).collect(),
            order: kept,
        }
    }

    fn count(&self) -> usize {
        self.budgets.iter().map(|&count| usize::from(count)).sum()
    }
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

pub(crate) enum Step {
    Store {
        id: StoreId,
        at: usize,
    },
    /// A flush or fence: its index, and whether it has to stay.
    Item {
        at: usize,
        fixed: bool,
    },
}

/// What the needs can be met with: their stores, the flushes of their lines, and of every run of fences without any of these in between, one
/// more than there are stores to move, because each of those can come to lie between two of them.
pub(crate) struct Part {
    pub steps: Vec<Step>,
    pub movable: Vec<(StoreId, usize)>,
    pub budgets: Vec<u16>,
    pub order: Vec<(StoreId, StoreId)>,
    /// For each thread, further fences that may be taken from where they are.
    pub spare: Vec<Vec<usize>>,
}

impl Part {
    pub(crate) fn of(litmus: &Litmus, all: &[Need], needs: &FxHashSet<Need>, index: &Index, moving: &Moving) -> Part {
        let movable = moving.movable.iter().map(|&(store, _)| store);
        let mut wanted: FxHashSet<StoreId> = movable.clone().collect();
        wanted.extend(moving.order.iter().flat_map(|&(a, b)| [a, b]));
        let mut lines: FxHashSet<u64> = movable.flat_map(|store| litmus.stores[store].at.lines()).collect();
        for need in needs {
            wanted.insert(need.store);
            wanted.extend(need.until);
            lines.insert(need.line);
        }
        // A locked store that nobody needs is a fence that cannot move.
        let is_store = |at: usize| match litmus.ops[at].action {
            Action::Store(store) => wanted.contains(&store) || litmus.stores[store].kind == StoreKind::Locked,
            _ => false,
        };
        let is_flush = |at: usize| match &litmus.ops[at].action {
            Action::Flush(flush) => flush.at.lines().any(|line| lines.contains(&line)),
            _ => false,
        };
        let ops = 0..litmus.ops.len();
        let stores: Vec<usize> = ops.clone().filter(|&at| is_store(at)).collect();
        let marks: Vec<usize> = ops.clone().filter(|&at| is_store(at) || is_flush(at)).collect();
        let held = Held::of(litmus, all, needs, index, &stores, &marks);
        let mut part = Part {
            steps: Vec::new(),
            movable: moving.movable.clone(),
            budgets: moving.budgets.clone(),
            order: moving.order.clone(),
            spare: vec![Vec::new(); litmus.threads.len()],
        };
        // How often each thread has fenced since the last store or flush that matters.
        let mut fenced = vec![0; litmus.threads.len()];
        let mut run = 0;
        for at in ops {
            let op = &litmus.ops[at];
            match op.action {
                Action::Store(id) if is_store(at) => part.steps.push(Step::Store { id, at }),
                Action::Flush(flush) if is_flush(at) => {
                    let region = stores.partition_point(|&store| store < at);
                    let fixed = flush.at.lines().all(|line| held.flushes.contains(&(region, line)));
                    part.steps.push(Step::Item { at, fixed });
                }
                Action::Fence { .. } => {
                    let fences = &mut fenced[op.thread as usize];
                    let fixed = held.fences.contains(&run);
                    match *fences <= moving.count() {
                        true => part.steps.push(Step::Item { at, fixed }),
                        false if !fixed => part.spare[op.thread as usize].push(at),
                        false => {}
                    }
                    *fences += 1;
                    continue;
                }
                _ => continue,
            }
            run += 1;
            fenced.fill(0);
        }
        let serves: FxHashSet<usize> = all
            .iter()
            .filter_map(|need| index.served_by(litmus, &litmus.ops, need))
            .collect();
        for fences in &mut part.spare {
            fences.sort_by_key(|at| serves.contains(at));
        }
        part
    }
}

/// What cannot be taken from where it is, because as many disjoint spans right there need one each.
#[derive(Default)]
struct Held {
    /// Runs between two operations that matter.
    fences: FxHashSet<usize>,
    /// Regions between two stores that matter, and lines.
    flushes: FxHashSet<(usize, u64)>,
}

impl Held {
    /// `stores` and `marks`: positions of the stores, and of the stores and flushes that matter.
    fn of(
        litmus: &Litmus,
        all: &[Need],
        needs: &FxHashSet<Need>,
        index: &Index,
        stores: &[usize],
        marks: &[usize],
    ) -> Held {
        let thread = litmus.ops.first().map_or(0, |op| op.thread);
        let plain = litmus.ops.iter().all(|op| {
            op.thread == thread
                && match op.action {
                    Action::Flush(flush) => !flush.at_once && flush.at.lines().nth(1).is_none(),
                    _ => true,
                }
        });
        if !plain {
            return Held::default();
        }
        let within = |cuts: &[usize], from: usize, to: usize| {
            let region = cuts.partition_point(|&cut| cut <= from);
            (region == cuts.partition_point(|&cut| cut < to)).then_some(region)
        };
        let is_locked = |store: StoreId| litmus.stores[store].kind == StoreKind::Locked;
        let mut spans: Vec<(usize, usize, u64, bool)> = Vec::new();
        for need in all.iter().filter(|need| !needs.contains(need)) {
            let to = need.until.map_or(litmus.ops.len(), |until| index.at[until]);
            // A locked store fences what comes before it.
            let wants_fence = !need.until.is_some_and(is_locked);
            spans.push((to, index.at[need.store], need.line, wants_fence));
        }
        spans.sort_unstable();
        // The end of the last span counted, and how many were.
        let mut fences: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        let mut flushes: FxHashMap<(usize, u64), (usize, usize)> = FxHashMap::default();
        for (to, from, line, wants_fence) in spans {
            let count = |latest: &mut (usize, usize)| {
                if latest.0 <= from {
                    *latest = (to, latest.1 + 1);
                }
            };
            if let Some(run) = within(marks, from, to).filter(|_| wants_fence) {
                count(fences.entry(run).or_default());
            }
            // A non-temporal store needs no flush.
            let cached = |store: &StoreId| litmus.stores[*store].is_cached();
            let flushed = match litmus.ops[from].action {
                Action::Store(store) => cached(&store),
                _ => false,
            };
            if let Some(region) = within(stores, from, to).filter(|_| flushed) {
                count(flushes.entry((region, line)).or_default());
            }
        }
        let mut there: FxHashMap<usize, usize> = FxHashMap::default();
        let mut flushed: FxHashMap<(usize, u64), usize> = FxHashMap::default();
        for (at, op) in litmus.ops.iter().enumerate() {
            match op.action {
                Action::Fence { .. } => *there.entry(marks.partition_point(|&cut| cut < at)).or_default() += 1,
                Action::Flush(flush) => {
                    let region = stores.partition_point(|&cut| cut < at);
                    flush
                        .at
                        .lines()
                        .for_each(|line| *flushed.entry((region, line)).or_default() += 1);
                }
                Action::Store(_) => {}
            }
        }
        let needed = |count: Option<&(usize, usize)>| count.map_or(0, |&(_, count)| count);
        Held {
            fences: there
                .iter()
                .filter(|&(run, &count)| needed(fences.get(run)) >= count)
                .map(|(&run, _)| run)
                .collect(),
            flushes: flushed
                .iter()
                .filter(|&(of, &count)| needed(flushes.get(of)) >= count)
                .map(|(&of, _)| of)
                .collect(),
        }
    }
}
