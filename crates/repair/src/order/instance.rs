//! Executions of a statement list in the trace, and what a new arrangement of the list would make of them: the repair problem of one instance as a litmus.
//!
//! An instance is a run of events of one thread under one call of the function in which the statements come in order. What persists must, as in the paper's
//! figure 6, not be lost by the repair: a store that was durable before has to be durable still.

use std::time::Duration;

use crashproof_litmus::{Action, Flush, Line, Litmus, Op, Property, Range, Store, StoreKind, violations};
use crashproof_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::list::{List, Path, Place};
use super::trace::{Event, Trace, What};

/// Events after an instance in which what it stored may still become durable.
const TAIL: usize = 4_000;
/// Longer ones, and more of them, are not looked at.
const LONGEST: usize = 20_000;
const MOST: usize = 300;
/// Pairs of stores of an instance that are required to be in order.
const PAIRS: usize = 4_000;
/// Instances with more stores than this are not asked for all orders that happen to hold in them.
const MOST_ORDERED: usize = 60;
/// Operations of a slice that is repaired on its own, and how long that may take.
const MOST_SOLVED: usize = 80;
const SOLVED_WITHIN: Duration = Duration::from_millis(200);
/// Addresses of what is no memory.
const ELSEWHERE: u64 = 1 << 60;

/// Which part an event has in an order: bits are the orders' indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    pub before: u32,
    pub after: u32,
}

pub struct Instance {
    /// Events, each with its unit.
    pub events: Vec<(Event, usize, Roles)>,
    pub tail: Vec<Event>,
}

/// One order: what leads from the list to the store that has to persist first, and to the other.
pub struct Wanted {
    pub before: Path,
    pub after: Path,
}

/// A statement of the new list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
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
pub enum Part {
    Before,
    After,
}

impl Roles {
    fn has(&self, part: Part) -> bool {
        match part {
            Part::Before => self.before != 0,
            Part::After => self.after != 0,
        }
    }
}

/// What "before" asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// What the model allows: within a line, stores persist in their order.
    Model,
    /// The first has to be persistent when the second is stored, in one line, too.
    Durable,
}

/// All instances in which both sides of an order have a part.
pub fn instances(trace: &Trace, list: &List, wanted: &[Wanted]) -> Vec<Instance> {
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
        });
        if instances.len() == MOST {
            break;
        }
    }
    instances
}

fn roles(place: &Place, wanted: &[Wanted]) -> Roles {
    let matches = |path: &Path| {
        path.len() == place.path.len() && path.iter().zip(&place.path).all(|(ours, theirs)| ours.is_at(theirs))
    };
    let bits = |side: fn(&Wanted) -> &Path| {
        wanted
            .iter()
            .enumerate()
            .filter(|(_, wanted)| matches(side(wanted)))
            .fold(0, |bits, (index, _)| bits | 1 << index)
    };
    Roles {
        before: bits(|wanted| &wanted.before),
        after: bits(|wanted| &wanted.after),
    }
}

impl Instance {
    /// The units that make stores of some orders, first to last.
    pub fn units(&self, role: impl Fn(&Roles) -> u32, order: usize) -> Vec<usize> {
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
    pub fn flushed_by(&self, unit: usize) -> Vec<u64> {
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
    pub fn lines_before(&self) -> Vec<u64> {
        let events = self.events.iter().filter(|(.., roles)| roles.before != 0);
        events
            .flat_map(|(event, ..)| match event.what {
                What::Store { at, len, .. } => (at / 64..=(at + len - 1) / 64).collect::<Vec<_>>(),
                _ => Vec::new(),
            })
            .collect()
    }

    pub fn stores_of(&self, unit: usize) -> usize {
        let is_store =
            |event: &Event| !matches!(event.what, What::Flush { .. } | What::Fence { .. } | What::Sync { .. });
        self.events
            .iter()
            .filter(|(event, at, _)| *at == unit && is_store(event))
            .count()
    }

    /// The list as it was.
    pub fn as_it_was(&self, units: usize) -> Vec<Piece> {
        (0..units).map(|unit| Piece::Unit { unit, moved: false }).collect()
    }

    /// What the arrangement makes of the instance; with `inside`, each store that has to persist first is flushed where it is made.
    pub fn litmus(&self, pieces: &[Piece], inside: bool) -> Slice {
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
        for event in &self.tail {
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

    /// Whether every order holds then, and nothing is lost: what was durable is, and what persisted in an order still does, as far as it still comes in that order.
    pub fn holds(&self, pieces: &[Piece], inside: bool, units: usize, strictness: Strictness) -> bool {
        let mut slice = self.litmus(pieces, inside);
        if strictness == Strictness::Durable && !slice.is_durable_in_order() {
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
    pub fn in_order(&self, units: usize, strictness: Strictness) -> bool {
        let mut slice = self.litmus(&self.as_it_was(units), false);
        match strictness {
            Strictness::Model => {
                slice.require_orders();
                violations(&slice.litmus).is_empty()
            }
            Strictness::Durable => slice.is_durable_in_order(),
        }
    }

    /// Whether a flush, a fence or code that the compiler moves no store across lies between any two stores of an order: without, the compiler may swap them.
    pub fn are_separated(&self, pieces: &[Piece], inside: bool, is_barrier: impl Fn(usize) -> bool) -> bool {
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
                    What::Flush { .. } | What::Fence { .. } | What::Sync { .. } | What::File | What::Output
                ) {
                    open = 0;
                }
                if open & roles.after != 0 {
                    return false;
                }
                if !inside {
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
    pub fn all_durable(&self, pieces: &[Piece], inside: bool, part: Part) -> bool {
        let mut slice = self.litmus(pieces, inside);
        let own = (0..slice.own).filter(|id| slice.roles[*id].has(part));
        slice.litmus.properties = own.map(Property::Durable).collect();
        violations(&slice.litmus).is_empty()
    }
}

/// A litmus under construction.
#[derive(Default)]
pub struct Slice {
    pub litmus: Litmus,
    /// Added and moved, of each operation.
    marks: Vec<(bool, bool)>,
    roles: Vec<Roles>,
    /// Stores of the instance itself.
    own: usize,
    names: FxHashMap<String, usize>,
}

impl Slice {
    fn push(&mut self, action: Action, added: bool, moved: bool) {
        self.litmus.ops.push(Op { thread: 0, action });
        self.marks.push((added, moved));
    }

    fn event(&mut self, event: &Event, roles: Roles, moved: bool) {
        match event.what {
            What::Store { at, len, kind } => self.store(event, Range { start: at, len }, kind, roles, moved),
            What::Flush { at, at_once } => {
                let flush = Flush {
                    names: None,
                    at: Range {
                        start: at / 64 * 64,
                        len: 1,
                    },
                    at_once,
                };
                self.push(Action::Flush(flush), false, moved);
            }
            What::Fence { full } => self.push(Action::Fence { full }, false, moved),
            What::Sync { at, len } => {
                let at = Range { start: at, len };
                let flush = Flush {
                    names: None,
                    at,
                    at_once: false,
                };
                self.push(Action::Flush(flush), false, moved);
                self.push(Action::Fence { full: true }, false, moved);
            }
            // Persistent at once, in a line of its own.
            What::File | What::Output => {
                let at = Range {
                    start: ELSEWHERE + 64 * self.litmus.stores.len() as u64,
                    len: 1,
                };
                self.store(event, at, StoreKind::Plain, roles, moved);
                let flush = Flush {
                    names: Some(self.litmus.stores.len() - 1),
                    at,
                    at_once: true,
                };
                self.push(Action::Flush(flush), false, moved);
            }
        }
    }

    fn store(&mut self, event: &Event, at: Range, kind: StoreKind, roles: Roles, moved: bool) {
        let name = slice_name(&mut self.names, format!("s{}", event.stack.0));
        self.litmus.stores.push(Store { name, at, kind });
        self.roles.push(roles);
        self.push(Action::Store(self.litmus.stores.len() - 1), false, moved);
    }

    fn flush_store(&mut self, id: usize) {
        let store = &self.litmus.stores[id];
        let flush = Flush {
            names: Some(id),
            at: store.at,
            at_once: false,
        };
        self.push(Action::Flush(flush), true, false);
    }

    fn flush(&mut self, event: &Event) {
        if let What::Store {
            kind: StoreKind::Plain | StoreKind::Locked,
            ..
        } = event.what
        {
            self.flush_store(self.litmus.stores.len() - 1);
        }
    }

    fn flush_all(&mut self, part: Part) {
        for id in 0..self.litmus.stores.len() {
            if self.roles[id].has(part) && self.litmus.stores[id].is_cached() {
                self.flush_store(id);
            }
        }
    }

    /// Whether what has to persist first is durable when the other is stored.
    fn is_durable_in_order(&self) -> bool {
        let mut litmus = self.litmus.clone();
        // What comes second is put elsewhere, where no line orders it.
        let mut moved = Vec::new();
        for op in &self.litmus.ops {
            if let Action::Store(id) = op.action
                && self.roles[id].after != 0
            {
                litmus.stores.push(Store {
                    name: format!("after{id}"),
                    at: Range {
                        start: 2 * ELSEWHERE + 64 * id as u64,
                        len: 1,
                    },
                    kind: StoreKind::Plain,
                });
                moved.push(Op {
                    thread: op.thread,
                    action: Action::Store(litmus.stores.len() - 1),
                });
            }
            moved.push(op.clone());
        }
        let mut ordered = Slice {
            litmus: Litmus { ops: moved, ..litmus },
            roles: self.roles.iter().map(|roles| Roles { after: 0, ..*roles }).collect(),
            ..Slice::default()
        };
        let doubles = (0..self.litmus.stores.len()).filter(|id| self.roles[*id].after != 0);
        // In the order in which they were pushed, which is that of the operations.
        let mut by_op: Vec<usize> = doubles.collect();
        by_op.sort_by_key(|id| self.litmus.ops.iter().position(|op| op.action == Action::Store(*id)));
        ordered.roles.extend(by_op.into_iter().map(|id| Roles {
            before: 0,
            after: self.roles[id].after,
        }));
        ordered.require_orders();
        violations(&ordered.litmus).is_empty()
    }

    fn require_orders(&mut self) {
        let with = |role: fn(&Roles) -> u32, order: u32| {
            let stores = self
                .roles
                .iter()
                .enumerate()
                .filter(move |(_, roles)| role(roles) & (1 << order) != 0);
            stores.map(|(id, _)| id).collect::<Vec<_>>()
        };
        let mut properties = Vec::new();
        for order in 0..32 {
            let (before, after) = (with(|roles| roles.before, order), with(|roles| roles.after, order));
            for first in &before {
                let pairs = after.iter().filter(|second| *second != first);
                properties.extend(pairs.map(|second| Property::Before(*first, *second)));
            }
        }
        properties.truncate(PAIRS);
        self.litmus.properties.extend(properties);
    }

    /// The operations that concern the lines of the orders. Stores of one statement next to each other are one; `name` names them.
    fn reduced(mut self, name: impl Fn(&str) -> Option<String>) -> Slice {
        self.require_orders();
        let lines: FxHashSet<u64> = (0..self.litmus.stores.len())
            .filter(|id| self.roles[*id] != Roles::default())
            .flat_map(|id| self.litmus.stores[id].at.lines())
            .collect();
        let concerns = |at: Range| at.lines().any(|line| lines.contains(&line));
        let own_ops = self
            .litmus
            .ops
            .iter()
            .position(|op| op.action == Action::Store(self.own));
        let mut slice = Slice::default();
        slice.litmus.threads.push(String::new());
        // The store that each has become, and the stem of the name of the last one.
        let mut becomes: FxHashMap<usize, usize> = FxHashMap::default();
        let mut last: Option<String> = None;
        for (op, &(added, moved)) in self
            .litmus
            .ops
            .iter()
            .zip(&self.marks)
            .take(own_ops.unwrap_or(usize::MAX))
        {
            match op.action {
                Action::Store(id) => {
                    let store = &self.litmus.stores[id];
                    if !concerns(store.at) {
                        continue;
                    }
                    let stem = store.name.split('.').next().unwrap_or_default().to_owned();
                    if last.as_deref() == Some(&stem)
                        && let Some(previous) = slice.litmus.stores.last_mut()
                        && let Some(at) = joined(previous.at, store.at)
                        && previous.kind == store.kind
                    {
                        previous.at = at;
                    } else {
                        slice.litmus.stores.push(Store {
                            name: slice_name(&mut slice.names, name(&stem).unwrap_or_else(|| stem.clone())),
                            ..store.clone()
                        });
                        slice.roles.push(self.roles[id]);
                        slice.push(Action::Store(slice.litmus.stores.len() - 1), added, moved);
                    }
                    becomes.insert(id, slice.litmus.stores.len() - 1);
                    last = Some(stem);
                }
                Action::Flush(flush) if concerns(flush.at) => {
                    let names = flush.names.and_then(|id| becomes.get(&id).copied());
                    let at = names.map_or(flush.at, |id| slice.litmus.stores[id].at);
                    let action = Action::Flush(Flush { names, at, ..flush });
                    if slice.litmus.ops.last().map(|op| &op.action) != Some(&action) {
                        slice.push(action, added, moved);
                    }
                    last = None;
                }
                Action::Fence { .. } => {
                    slice.push(op.action.clone(), added, moved);
                    last = None;
                }
                Action::Flush(_) => {}
            }
        }
        for property in &self.litmus.properties {
            if let Property::Before(first, second) = property
                && let (Some(first), Some(second)) = (becomes.get(first), becomes.get(second))
            {
                let property = Property::Before(*first, *second);
                if !slice.litmus.properties.contains(&property) {
                    slice.litmus.properties.push(property);
                }
            }
        }
        slice
    }

    /// As a litmus file, marked where operations were added or moved.
    pub fn shown(self, name: impl Fn(&str) -> Option<String>) -> String {
        let slice = self.reduced(name);
        let mut text = String::new();
        for (op, (added, moved)) in slice.litmus.ops.iter().zip(&slice.marks) {
            let mark = match (added, moved) {
                (true, _) => "  # added",
                (_, true) => "  # moved",
                _ => "",
            };
            text.push_str(&format!("{}{mark}\n", Line(&slice.litmus, op)));
        }
        for property in &slice.litmus.properties {
            text.push_str(&format!("{}\n", slice.litmus.property(*property)));
        }
        text
    }

    /// What the least repair of the trace alone would be, in words: a bound for what the source needs.
    pub fn least(self) -> Option<String> {
        let slice = self.reduced(|_| None);
        if slice.litmus.ops.len() > MOST_SOLVED {
            return None;
        }
        let least = crashproof_litmus::repair(&slice.litmus, SOLVED_WITHIN).ok()?;
        Some(format!(
            "on the trace alone, the least repair moves {} and adds {} and {}",
            counted(least.stores_moved, "store"),
            counted(least.added_fences, "fence"),
            counted(least.added_flushes, "flush")
        ))
    }
}

fn counted(count: usize, what: &str) -> String {
    match (count, what) {
        (0, _) => format!("no {what}"),
        (1, _) => format!("one {what}"),
        (count, "flush") => format!("{count} flushes"),
        (count, what) => format!("{count} {what}s"),
    }
}

/// A name that none has yet.
fn slice_name(names: &mut FxHashMap<String, usize>, stem: String) -> String {
    let number = names.entry(stem.clone()).or_default();
    *number += 1;
    match number {
        1 => stem,
        number => format!("{stem}.{number}"),
    }
}

/// Two ranges of one line that touch, as one.
fn joined(a: Range, b: Range) -> Option<Range> {
    let (start, end) = (a.start.min(b.start), (a.start + a.len).max(b.start + b.len));
    let touches = a.start <= b.start + b.len && b.start <= a.start + a.len;
    (touches && start / 64 == (end - 1) / 64).then_some(Range {
        start,
        len: end - start,
    })
}
