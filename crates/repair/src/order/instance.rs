//! Executions of a statement list in the trace, and what a new arrangement of the list would make of them: the repair problem of one instance as a litmus.
//!
//! An instance is a run of events of one thread under one call of the function in which the statements come in order. What persists must, as in the paper's
//! figure 6, not be lost by the repair: a store that was durable before has to be durable still.

use crashproof_litmus::{Action, Property, StoreKind, violations};
use crashproof_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::list::{List, Parting, Place};
use super::slice::Slice;
use super::trace::{CallPath, Event, Trace, What, is_same_path};
use super::unpersisted::Unpersisted;

/// Events after an instance in which what it stored may still become durable.
const TAIL: usize = 4_000;
/// Longer ones, and more of them, are not looked at.
const LONGEST: usize = 20_000;
const MOST: usize = 300;
/// Instances with more stores than this are not asked for all orders that happen to hold in them.
const MOST_ORDERED: usize = 60;

/// Which part an event has in an order: bits are the orders' indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roles {
    pub before: u32,
    pub after: u32,
}

pub(super) struct Instance {
    /// Events, each with its unit.
    pub events: Vec<(Event, usize, Roles)>,
    pub tail: Vec<Event>,
    /// The units of its fences, in order.
    pub fences: Vec<usize>,
    /// Indices of those from which on something waits that was stored before the list, and flushed before or in it.
    pub awaiting: Vec<usize>,
}

/// A statement of the new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Unit {
        unit: usize,
        moved: bool,
    },
    /// Of all that had a part in the orders and was stored so far.
    Flush(Part),
    Fence,
}

/// The part of a store in the orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Before,
    After,
}

impl Roles {
    pub(super) fn has(&self, part: Part) -> bool {
        match part {
            Part::Before => self.before != 0,
            Part::After => self.after != 0,
        }
    }
}

/// What "before" asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// What the model allows: within a line, stores persist in their order.
    Model,
    /// The first has to be persistent when the second is stored, in one line, too.
    Durable,
}

/// All instances in which both sides of an order have a part.
pub(super) fn instances(trace: &Trace, list: &List, wanted: &[Parting]) -> Vec<Instance> {
    let places = list.place(trace);
    let roles: FxHashMap<StackId, Roles> = places
        .iter()
        .map(|(stack, place)| (*stack, roles(place, wanted)))
        .collect();
    let mut open: FxHashMap<u32, (Vec<usize>, usize, StackId)> = FxHashMap::default();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (index, event) in trace.events.iter().enumerate() {
        let Some(place) = places.get(&event.stack) else {
            found.extend(open.remove(&event.thread).map(|(events, ..)| events));
            continue;
        };
        let continues = open
            .get(&event.thread)
            .is_some_and(|(_, unit, stack)| place.unit >= *unit && places[stack].outer == place.outer);
        if !continues {
            found.extend(open.remove(&event.thread).map(|(events, ..)| events));
        }
        let (events, unit, _) = open.entry(event.thread).or_insert((Vec::new(), 0, event.stack));
        events.push(index);
        *unit = place.unit;
    }
    found.extend(open.into_values().map(|(events, ..)| events));
    found.sort();
    let mut instances = Vec::new();
    let mut earlier = Unpersisted::default();
    let mut replayed = 0;
    for indices in found {
        let all = indices.iter().map(|index| roles[&trace.events[*index].stack]);
        let together = all.fold(Roles::default(), |sum, roles| Roles {
            before: sum.before | roles.before,
            after: sum.after | roles.after,
        });
        if together.before & together.after == 0 || indices.len() > LONGEST {
            continue;
        }
        let last = indices.last().copied().unwrap_or_default();
        let thread = trace.events[last].thread;
        let first = indices.first().copied().unwrap_or_default();
        let pending = trace.events[..first]
            .iter()
            .rev()
            .filter(|event| event.thread == thread)
            .find_map(|event| match event.what {
                What::Fence { .. } => Some(false),
                What::Flush { .. } => Some(true),
                What::Store { kind, .. } => (kind == StoreKind::Nontemporal).then_some(true),
                _ => None,
            })
            .unwrap_or(false);
        for event in &trace.events[replayed..first] {
            earlier.event(event);
        }
        replayed = first;
        let mut fences = Vec::new();
        let mut awaiting: Vec<usize> = pending.then_some(0).into_iter().collect();
        for event in indices.iter().map(|index| &trace.events[*index]) {
            match event.what {
                What::Flush { at, .. } if earlier.has(at / 64) => awaiting.push(fences.len()),
                What::Fence { .. } => fences.push(places[&event.stack].unit),
                _ => {}
            }
        }
        awaiting.dedup();
        let tail = trace.events[last + 1..]
            .iter()
            .filter(|event| event.thread == thread)
            .take(TAIL);
        instances.push(Instance {
            events: indices
                .iter()
                .map(|index| {
                    let event = &trace.events[*index];
                    (event.clone(), places[&event.stack].unit, roles[&event.stack])
                })
                .collect(),
            tail: tail.cloned().collect(),
            fences,
            awaiting,
        });
        if instances.len() == MOST {
            break;
        }
    }
    instances
}

fn orders_hold(mut slice: Slice, strictness: Strictness) -> bool {
    match strictness {
        Strictness::Model => {
            slice.require_orders();
            violations(&slice.litmus).is_empty()
        }
        Strictness::Durable => slice.is_durable_in_order(),
    }
}

fn roles(place: &Place, wanted: &[Parting]) -> Roles {
    let bits = |side: fn(&Parting) -> &CallPath| {
        wanted
            .iter()
            .enumerate()
            .filter(|(_, wanted)| is_same_path(side(wanted), &place.path))
            .fold(0, |bits, (index, _)| bits | 1 << index)
    };
    Roles {
        before: bits(|wanted| &wanted.before),
        after: bits(|wanted| &wanted.after),
    }
}

impl Instance {
    /// The units that make stores of some orders, first to last.
    pub(super) fn units(&self, role: impl Fn(&Roles) -> u32, order: usize) -> Vec<usize> {
        let mut units: Vec<usize> = self
            .events
            .iter()
            .filter(|(.., roles)| role(roles) & (1 << order) != 0)
            .map(|(_, unit, _)| *unit)
            .collect();
        units.sort();
        units.dedup();
        units
    }

    /// The lines that a unit flushes.
    pub(super) fn flushed_by(&self, unit: usize) -> Vec<u64> {
        let events = self.events.iter().filter(|(_, at, _)| *at == unit);
        let mut lines: Vec<u64> = events
            .filter_map(|(event, ..)| match event.what {
                What::Flush { at, .. } => Some(at / 64),
                _ => None,
            })
            .collect();
        lines.sort();
        lines.dedup();
        lines
    }

    /// The lines of what has to persist first.
    pub(super) fn lines_before(&self) -> Vec<u64> {
        let events = self.events.iter().filter(|(.., roles)| roles.before != 0);
        events
            .flat_map(|(event, ..)| match event.what {
                What::Store { at, len, .. } => (at / 64..=(at + len - 1) / 64).collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect()
    }

    pub(super) fn stores_of(&self, unit: usize) -> usize {
        self.events
            .iter()
            .filter(|(event, at, _)| *at == unit && is_store(&event.what))
            .count()
    }

    /// The list as it was.
    pub(super) fn as_it_was(&self, units: usize) -> Vec<Piece> {
        (0..units).map(|unit| Piece::Unit { unit, moved: false }).collect()
    }

    /// What the arrangement makes of the instance; with `inside`, each store that has to persist first is flushed where it is made.
    pub(super) fn litmus(&self, pieces: &[Piece], inside: bool) -> Slice {
        self.litmus_with(pieces, inside, &self.tail)
    }

    fn litmus_with(&self, pieces: &[Piece], inside: bool, tail: &[Event]) -> Slice {
        let mut slice = Slice::default();
        slice.litmus.threads.push(String::new());
        for piece in pieces {
            match *piece {
                Piece::Unit { unit, moved } => {
                    for (event, at, roles) in &self.events {
                        if *at == unit {
                            slice.event(event, *roles, moved);
                            if inside && roles.before != 0 {
                                slice.flush(event);
                            }
                        }
                    }
                }
                Piece::Flush(part) => slice.flush_all(part),
                Piece::Fence => slice.push(Action::Fence { full: false }, true, false),
            }
        }
        slice.own = slice.litmus.stores.len();
        for event in tail {
            slice.event(event, Roles::default(), false);
        }
        slice
    }

    /// What holds of the instance as it was: which stores are durable at the end, and which persist before which.
    fn held(&self, units: usize) -> Vec<Property> {
        let mut slice = self.litmus(&self.as_it_was(units), false);
        let own = slice.own;
        let mut properties: Vec<Property> = (0..own).map(Property::Durable).collect();
        if own <= MOST_ORDERED {
            let pairs = (0..own).flat_map(|first| (first + 1..own).map(move |second| (first, second)));
            properties.extend(pairs.map(|(first, second)| Property::Before(first, second)));
        }
        slice.litmus.properties = properties;
        let broken: FxHashSet<usize> = violations(&slice.litmus)
            .iter()
            .map(|violation| violation.property)
            .collect();
        let all = slice.litmus.properties.into_iter().enumerate();
        all.filter(|(index, _)| !broken.contains(index))
            .map(|(_, property)| property)
            .collect()
    }

    /// Whether a store comes in front of a fence that it was behind, and that waits for what was stored before the list: the next, and further ones up to one that
    /// every execution makes.
    fn overtakes_fence(&self, pieces: &[Piece], always_fences: impl Fn(usize) -> bool) -> bool {
        let awaited: FxHashSet<usize> = self
            .awaiting
            .iter()
            .flat_map(|&from| {
                let fences = &self.fences[from..];
                let sure = fences.iter().position(|unit| always_fences(*unit));
                &fences[..sure.map_or(fences.len(), |sure| sure + 1)]
            })
            .copied()
            .collect();
        let units: Vec<usize> = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Unit { unit, .. } => Some(*unit),
                _ => None,
            })
            .collect();
        units.iter().enumerate().any(|(place, &store)| {
            self.stores_of(store) > 0
                && units[place + 1..]
                    .iter()
                    .any(|&fence| fence < store && awaited.contains(&fence))
        })
    }

    /// The stores, by the names of their events, that are durable when the list has ended, without what comes later.
    fn durable_at_end(&self, pieces: &[Piece], inside: bool) -> FxHashSet<String> {
        let mut slice = self.litmus_with(pieces, inside, &[]);
        slice.litmus.properties = (0..slice.own).map(Property::Durable).collect();
        let broken: FxHashSet<usize> = violations(&slice.litmus)
            .iter()
            .map(|violation| violation.property)
            .collect();
        let stores = slice.litmus.stores.into_iter().enumerate();
        stores
            .filter(|(id, _)| !broken.contains(id))
            .map(|(_, store)| store.name)
            .collect()
    }

    /// Whether every order holds then, and nothing is lost: what was durable is, and what persisted in an order still does, as far as it still comes in that order.
    pub(super) fn holds(
        &self,
        pieces: &[Piece],
        inside: bool,
        units: usize,
        strictness: Strictness,
        always_fences: impl Fn(usize) -> bool,
    ) -> bool {
        let mut slice = self.litmus(pieces, inside);
        if strictness == Strictness::Durable && !slice.is_durable_in_order() {
            return false;
        }
        if self.overtakes_fence(pieces, always_fences) {
            return false;
        }
        // Whoever comes behind the list may tell the world that it is done.
        let was_durable = self.durable_at_end(&self.as_it_was(units), false);
        if !was_durable.is_subset(&self.durable_at_end(pieces, inside)) {
            return false;
        }
        slice.require_orders();
        // Stores are named by their events, whatever their place.
        let ids: FxHashMap<String, usize> = slice.litmus.stores[..slice.own]
            .iter()
            .enumerate()
            .map(|(id, store)| (store.name.clone(), id))
            .collect();
        let was = self.litmus(&self.as_it_was(units), false);
        let id = |before: usize| ids.get(&was.litmus.stores[before].name).copied();
        for property in self.held(units) {
            let kept = match property {
                Property::Durable(store) => id(store).map(Property::Durable),
                Property::Before(first, second) => id(first)
                    .zip(id(second))
                    .filter(|(first, second)| first < second)
                    .map(|(first, second)| Property::Before(first, second)),
            };
            slice.litmus.properties.extend(kept);
        }
        violations(&slice.litmus).is_empty()
    }

    /// Whether every order holds.
    pub(super) fn in_order(&self, units: usize, strictness: Strictness) -> bool {
        orders_hold(self.litmus(&self.as_it_was(units), false), strictness)
    }

    /// Whether every order holds without the fences of some units: those that another execution may not make.
    pub(super) fn holds_without(
        &self,
        pieces: &[Piece],
        inside: bool,
        strictness: Strictness,
        is_left_out: impl Fn(usize) -> bool,
    ) -> bool {
        let is_fence = |event: &Event| matches!(event.what, What::Fence { .. });
        if !self
            .events
            .iter()
            .any(|(event, unit, _)| is_fence(event) && is_left_out(*unit))
        {
            return true;
        }
        let events = self
            .events
            .iter()
            .filter(|(event, unit, _)| !(is_fence(event) && is_left_out(*unit)));
        let less = Instance {
            events: events.cloned().collect(),
            tail: Vec::new(),
            fences: Vec::new(),
            awaiting: Vec::new(),
        };
        orders_hold(less.litmus(pieces, inside), strictness)
    }

    /// Whether a flush, a fence or code that the compiler moves no store across lies between any two stores of an order: without, the compiler may swap them.
    pub(super) fn are_separated(&self, pieces: &[Piece], inside: bool, is_barrier: impl Fn(usize) -> bool) -> bool {
        let mut open = 0;
        for piece in pieces {
            let Piece::Unit { unit, .. } = *piece else {
                open = 0;
                continue;
            };
            for (event, at, roles) in &self.events {
                if *at != unit {
                    continue;
                }
                if matches!(
                    event.what,
                    What::Flush { .. } | What::Fence { .. } | What::Sync { .. } | What::File(_) | What::Output
                ) {
                    open = 0;
                }
                if open & roles.after != 0 {
                    return false;
                }
                // Flushes and fences of a call that stores have its part, too.
                if !inside && is_store(&event.what) {
                    open |= roles.before;
                }
            }
            if is_barrier(unit) && self.stores_of(unit) == 0 {
                open = 0;
            }
        }
        true
    }

    /// Whether all stores with a part in the orders are durable at the end.
    pub(super) fn all_durable(&self, pieces: &[Piece], inside: bool, part: Part) -> bool {
        let mut slice = self.litmus(pieces, inside);
        let own = (0..slice.own).filter(|id| slice.roles[*id].has(part));
        slice.litmus.properties = own.map(Property::Durable).collect();
        violations(&slice.litmus).is_empty()
    }
}

fn is_store(what: &What) -> bool {
    !matches!(what, What::Flush { .. } | What::Fence { .. } | What::Sync { .. })
}
