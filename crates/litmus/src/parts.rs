//! Repeated iterations collapsed: the sequence is cut into parts, as the iterations of a loop are, one of each shape is solved, and its change is made in all.
//!
//! A part is a stretch of the sequence. No contradicted pair of stores crosses a cut, and nothing that already makes a store persistent; where a required order
//! crosses one, the store that comes first is made persistent within its part. So what holds in each part holds in the whole, and the model is asked about the whole
//! in the end, too. Two parts have the same shape if they are equal up to addresses and names.
//!
//! The change is the least in each part. Over the whole there may be a smaller one, which gathers what several iterations leave open: that is for
//! [`crate::repair()`] to look for first, as far as it gets. A program has one edit for all iterations, which is what this finds.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::needs::{Index, Need};
use crate::search::Placed;
use crate::{Action, AddressRange, Flush, Litmus, Op, Property, Store, StoreId, StoreKind};

/// Ways to cut that are tried: where the fewest required orders cross, then some more.
const WAYS: usize = 4;

/// A stretch of the sequence as a litmus of its own.
pub(crate) struct Stretch {
    /// Index of its first operation in the whole.
    pub from: usize,
    pub litmus: Litmus,
    /// Its stores in the whole.
    stores: Vec<StoreId>,
}

/// Ways to cut the sequence, each into two parts or more; those with the fewest crossed orders come first.
pub(crate) fn ways(litmus: &Litmus, needs: &[Need], index: &Index, pairs: &[(StoreId, StoreId)]) -> Vec<Vec<Stretch>> {
    let ops = &litmus.ops;
    // How many spans begin or end at each cut; a cut comes right before an operation.
    let mut hard = vec![0i64; ops.len() + 2];
    let mut soft = vec![0i64; ops.len() + 2];
    let cross = |spans: &mut [i64], from: usize, to: usize| {
        spans[from + 1] += 1;
        spans[to + 1] -= 1;
    };
    for &(first, second) in pairs {
        cross(&mut hard, index.at[second], index.at[first]);
    }
    for need in needs {
        let from = index.at[need.store];
        match (index.served_by(litmus, ops, need), need.until) {
            (Some(served), _) => cross(&mut hard, from, served.max(from)),
            (None, Some(until)) if index.at[until] > from => cross(&mut soft, from, index.at[until]),
            _ => {}
        }
    }
    let (mut hard_here, mut soft_here) = (0, 0);
    let mut cuts: Vec<(i64, usize)> = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        hard_here += hard[at];
        soft_here += soft[at];
        if at > 0 && hard_here == 0 && matches!(op.action, Action::Store(_)) {
            cuts.push((soft_here, at));
        }
    }
    let mut crossed: Vec<i64> = cuts.iter().map(|&(crossed, _)| crossed).collect();
    crossed.sort_unstable();
    crossed.dedup();
    let way = |most: i64| {
        let chosen = cuts.iter().filter(|&&(crossed, _)| crossed <= most).map(|&(_, at)| at);
        let bounds: Vec<usize> = [0].into_iter().chain(chosen).chain([ops.len()]).collect();
        cut(litmus, needs, &bounds)
    };
    crossed.into_iter().take(WAYS).map(way).collect()
}

fn cut(litmus: &Litmus, needs: &[Need], bounds: &[usize]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    // Of each store, its stretch and its number there.
    let mut local: Vec<Option<(usize, StoreId)>> = vec![None; litmus.stores.len()];
    for (n, bounds) in bounds.windows(2).enumerate() {
        let mut part = Stretch {
            from: bounds[0],
            litmus: Litmus {
                threads: litmus.threads.clone(),
                times: litmus.times.get(bounds[0]..bounds[1]).unwrap_or_default().to_vec(),
                ..Litmus::default()
            },
            stores: Vec::new(),
        };
        for op in &litmus.ops[bounds[0]..bounds[1]] {
            let action = match op.action {
                Action::Store(id) => {
                    local[id] = Some((n, part.stores.len()));
                    part.stores.push(id);
                    part.litmus.stores.push(litmus.stores[id].clone());
                    Action::Store(part.stores.len() - 1)
                }
                // A flush may name a store of another part.
                Action::Flush(flush) => Action::Flush(Flush {
                    names: flush
                        .names
                        .and_then(|id| local[id])
                        .filter(|own| own.0 == n)
                        .map(|own| own.1),
                    ..flush
                }),
                ref fence => fence.clone(),
            };
            let thread = op.thread;
            part.litmus.ops.push(Op { thread, action });
        }
        stretches.push(part);
    }
    let mut known: FxHashSet<(StoreId, Option<StoreId>)> = FxHashSet::default();
    for need in needs {
        let Some((part, store)) = local[need.store] else {
            continue;
        };
        let until = need
            .until
            .and_then(|until| local[until])
            .filter(|until| until.0 == part);
        if known.insert((need.store, need.until.filter(|_| until.is_some()))) {
            stretches[part].litmus.properties.push(match until {
                Some((_, until)) => Property::Before(store, until),
                None => Property::Durable(store),
            });
        }
    }
    for part in &mut stretches {
        let key = |property: &Property| match *property {
            Property::Before(first, second) => (first, Some(second)),
            Property::Durable(store) => (store, None),
        };
        part.litmus.properties.sort_by_key(key);
    }
    stretches
}

/// What parts of the same shape have in common: all but names and where their lines are.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    ops: Vec<ShapeOp>,
    times: Vec<u32>,
    properties: Vec<(StoreId, Option<StoreId>)>,
}

#[derive(PartialEq, Eq, Hash)]
struct ShapeOp {
    thread: u32,
    /// 0 to 2 for kinds of stores, 3 and 4 for flushes, 5 and 6 for fences.
    kind: u8,
    names: Option<StoreId>,
    /// Offset in its first line, length, and its lines numbered as they come up; nothing for a fence.
    range: Option<(u64, u64, Vec<usize>)>,
}

impl Stretch {
    pub(crate) fn shape(&self) -> Shape {
        let mut numbers: FxHashMap<u64, usize> = FxHashMap::default();
        let mut range = |range: AddressRange| {
            let mut number = |line: u64| {
                let next = numbers.len();
                *numbers.entry(line).or_insert(next)
            };
            let lines = range.lines().map(&mut number).collect();
            (range.start % crashproof_model::LINE, range.len, lines)
        };
        let mut shape_of = |op: &Op| {
            let (kind, names, at) = match op.action {
                Action::Store(id) => {
                    let Store { at, kind, .. } = self.litmus.stores[id];
                    let kind = match kind {
                        StoreKind::Plain => 0,
                        StoreKind::Nontemporal => 1,
                        StoreKind::Locked => 2,
                    };
                    (kind, None, Some(at))
                }
                Action::Flush(flush) => (3 + u8::from(flush.at_once), flush.names, Some(flush.at)),
                Action::Fence { full } => (5 + u8::from(full), None, None),
            };
            ShapeOp {
                thread: op.thread,
                kind,
                names,
                range: at.map(&mut range),
            }
        };
        Shape {
            ops: self.litmus.ops.iter().map(&mut shape_of).collect(),
            times: self.litmus.times.clone(),
            properties: self
                .litmus
                .properties
                .iter()
                .map(|property| match *property {
                    Property::Before(first, second) => (first, Some(second)),
                    Property::Durable(store) => (store, None),
                })
                .collect(),
        }
    }

    /// The change that was found for another of this shape, made here: operations of the whole.
    pub(crate) fn changed_as(&self, model: &Stretch, change: &[Placed]) -> Vec<Placed> {
        let range = |op: &Op, litmus: &Litmus| match op.action {
            Action::Store(id) => Some(litmus.stores[id].at),
            Action::Flush(flush) => Some(flush.at),
            Action::Fence { .. } => None,
        };
        let theirs = model.litmus.ops.iter().map(|op| range(op, &model.litmus));
        let own = self.litmus.ops.iter().map(|op| range(op, &self.litmus));
        let moved: FxHashMap<AddressRange, AddressRange> =
            theirs.zip(own).filter_map(|(theirs, own)| theirs.zip(own)).collect();
        let placed = |placed: &Placed| match *placed {
            Placed::Original(at) => Placed::Original(self.from + at),
            Placed::Flush(thread, flush) => Placed::Flush(
                thread,
                Flush {
                    names: flush.names.map(|store| self.stores[store]),
                    at: moved.get(&flush.at).copied().unwrap_or(flush.at),
                    at_once: flush.at_once,
                },
            ),
            Placed::Fence(thread) => Placed::Fence(thread),
        };
        change.iter().map(placed).collect()
    }
}
