//! A slice of the trace as a litmus: what an instance of a list does, in some arrangement.

use std::time::Duration;

use crashproof_litmus::{Action, AddressRange, Flush, Line, Litmus, Op, Property, Store, StoreKind, violations};
use crashproof_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::instance::{Part, Roles};
use super::trace::{Event, What};

/// Pairs of stores of an instance that are required to be in order.
const PAIRS: usize = 4_000;
/// Operations of a slice that is repaired on its own, and how long that may take.
const MOST_SOLVED: usize = 80;
const SOLVED_WITHIN: Duration = Duration::from_millis(200);
/// Addresses of what is no memory.
const ELSEWHERE: u64 = 1 << 60;

/// A litmus under construction.
#[derive(Default)]
pub(super) struct Slice {
    pub litmus: Litmus,
    /// Added and moved, of each operation.
    marks: Vec<(bool, bool)>,
    pub roles: Vec<Roles>,
    /// Of the events that the stores are.
    stacks: Vec<StackId>,
    /// Stores of the instance itself.
    pub own: usize,
    names: FxHashMap<String, usize>,
}

impl Slice {
    pub(super) fn push(&mut self, action: Action, added: bool, moved: bool) {
        self.litmus.ops.push(Op { thread: 0, action });
        self.marks.push((added, moved));
    }

    pub(super) fn event(&mut self, event: &Event, roles: Roles, moved: bool) {
        match event.what {
            What::Store { at, len, kind } => self.store(event, AddressRange { start: at, len }, kind, roles, moved),
            What::Flush { at, at_once } => {
                let flush = Flush {
                    names: None,
                    at: AddressRange {
                        start: at / 64 * 64,
                        len: 1,
                    },
                    at_once,
                };
                self.push(Action::Flush(flush), false, moved);
            }
            What::Fence { full } => self.push(Action::Fence { full }, false, moved),
            What::Sync { at, len } => {
                let at = AddressRange { start: at, len };
                let flush = Flush {
                    names: None,
                    at,
                    at_once: false,
                };
                self.push(Action::Flush(flush), false, moved);
                self.push(Action::Fence { full: true }, false, moved);
            }
            // Persistent at once, in a line of its own.
            What::File(_) | What::Output => {
                let at = AddressRange {
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

    fn store(&mut self, event: &Event, at: AddressRange, kind: StoreKind, roles: Roles, moved: bool) {
        let name = slice_name(&mut self.names, stack_name(event.stack));
        self.litmus.stores.push(Store { name, at, kind });
        self.roles.push(roles);
        self.stacks.push(event.stack);
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

    pub(super) fn flush(&mut self, event: &Event) {
        if let What::Store {
            kind: StoreKind::Plain | StoreKind::Locked,
            ..
        } = event.what
        {
            self.flush_store(self.litmus.stores.len() - 1);
        }
    }

    pub(super) fn flush_all(&mut self, part: Part) {
        for id in 0..self.litmus.stores.len() {
            if self.roles[id].has(part) && self.litmus.stores[id].is_cached() {
                self.flush_store(id);
            }
        }
    }

    /// Whether what has to persist first is durable when the other is stored.
    pub(super) fn is_durable_in_order(&self) -> bool {
        let mut litmus = self.litmus.clone();
        // What comes second is put elsewhere, where no line orders it.
        let mut moved = Vec::new();
        for op in &self.litmus.ops {
            if let Action::Store(id) = op.action
                && self.roles[id].after != 0
            {
                litmus.stores.push(Store {
                    name: format!("after{id}"),
                    at: AddressRange {
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

    pub(super) fn require_orders(&mut self) {
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

    /// The operations that concern the lines of the orders. Stores of one statement next to each other are one; `name` names them by their stack.
    fn reduced(mut self, name: impl Fn(StackId) -> Option<String>) -> Slice {
        self.require_orders();
        let lines: FxHashSet<u64> = (0..self.litmus.stores.len())
            .filter(|id| self.roles[*id] != Roles::default())
            .flat_map(|id| self.litmus.stores[id].at.lines())
            .collect();
        let concerns = |at: AddressRange| at.lines().any(|line| lines.contains(&line));
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
                    let stem = name(self.stacks[id]).unwrap_or_else(|| stack_name(self.stacks[id]));
                    if last.as_deref() == Some(&stem)
                        && let Some(previous) = slice.litmus.stores.last_mut()
                        && let Some(at) = joined(previous.at, store.at)
                        && previous.kind == store.kind
                    {
                        previous.at = at;
                    } else {
                        slice.litmus.stores.push(Store {
                            name: slice_name(&mut slice.names, stem.clone()),
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
    pub(super) fn shown(self, name: impl Fn(StackId) -> Option<String>) -> String {
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
    pub(super) fn least(self) -> Option<String> {
        let mut slice = self.reduced(|_| None);
        // What is durable has to stay so, as in the source.
        let orders = std::mem::take(&mut slice.litmus.properties);
        slice.litmus.properties = (0..slice.litmus.stores.len()).map(Property::Durable).collect();
        let lost: Vec<usize> = violations(&slice.litmus)
            .iter()
            .map(|violation| violation.property)
            .collect();
        slice.litmus.properties = orders;
        let durable = (0..slice.litmus.stores.len()).filter(|id| !lost.contains(id));
        slice.litmus.properties.extend(durable.map(Property::Durable));
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

/// Of stores whose place has no name.
fn stack_name(stack: StackId) -> String {
    format!("s{}", stack.0)
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
fn joined(a: AddressRange, b: AddressRange) -> Option<AddressRange> {
    let (start, end) = (a.start.min(b.start), (a.start + a.len).max(b.start + b.len));
    let touches = a.start <= b.start + b.len && b.start <= a.start + a.len;
    (touches && start / 64 == (end - 1) / 64).then_some(AddressRange {
        start,
        len: end - start,
    })
}
