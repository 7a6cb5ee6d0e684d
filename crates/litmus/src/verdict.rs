//! Whether every allowed execution satisfies the properties: the file is executed on the model once.
//!
//! "A before B" is broken exactly if, just after B was executed, B may be persistent and A not: whatever is
//! guaranteed of A stays so, so no later crash is worse. Two cached stores to one line persist in their order.

use crashproof_model::{Bytes, Keep, LINE, LineAddress, Memory, Model, pieces};
use rustc_hash::FxHashMap;

use crate::{Action, Litmus, Op, Property, StoreId, StoreKind};

/// A property that some allowed execution breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Index in [`Litmus::properties`].
    pub property: usize,
    pub crash: Crash,
}

/// A crash that shows it: besides what is guaranteed, only `persisted` has persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The last operation executed, as an index in the operations.
    pub after: Option<usize>,
    pub persisted: Vec<StoreId>,
    pub missing: Vec<StoreId>,
}

pub fn violations(litmus: &Litmus) -> Vec<Violation> {
    violations_of(litmus, &litmus.ops)
}

/// As [`violations`], of another sequence of operations over the same stores.
pub(crate) fn violations_of(litmus: &Litmus, ops: &[Op]) -> Vec<Violation> {
    // What must be persistent when a store is executed.
    let mut must_precede: FxHashMap<StoreId, Vec<(usize, StoreId)>> = FxHashMap::default();
    for (index, property) in litmus.properties.iter().enumerate() {
        if let Property::Before(first, second) = *property {
            must_precede.entry(second).or_default().push((index, first));
        }
    }
    let mut machine = Machine::new(litmus);
    let mut violations = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        machine.execute(op);
        if let Action::Store(second) = op.action {
            for &(property, first) in must_precede.get(&second).into_iter().flatten() {
                if let Some(persisted) = machine.may_lack(first, second) {
                    let crash = Crash {
                        after: Some(at),
                        persisted,
                        missing: vec![first],
                    };
                    violations.push(Violation { property, crash });
                }
            }
        }
    }
    for (property, &wanted) in litmus.properties.iter().enumerate() {
        if let Property::Durable(store) = wanted
            && !machine.is_durable(store)
        {
            let crash = Crash {
                after: ops.len().checked_sub(1),
                persisted: Vec::new(),
                missing: vec![store],
            };
            violations.push(Violation { property, crash });
        }
    }
    violations.sort_by_key(|violation| violation.property);
    violations
}

struct Machine<'a> {
    litmus: &'a Litmus,
    memory: Memory<u32>,
    executed: Vec<bool>,
}

impl<'a> Machine<'a> {
    fn new(litmus: &'a Litmus) -> Machine<'a> {
        Machine {
            litmus,
            memory: Memory::new(Model::Px86, Keep::All),
            executed: vec![false; litmus.stores.len()],
        }
    }

    fn execute(&mut self, op: &Op) {
        match &op.action {
            Action::Store(id) => {
                let store = &self.litmus.stores[*id];
                if store.kind == StoreKind::Locked {
                    self.memory.fence(op.thread, 0);
                }
                for piece in pieces(store.at.start, store.at.len, LINE) {
                    let stored = crashproof_model::Store {
                        bytes: piece.bytes,
                        thread: op.thread,
                        nontemporal: store.kind == StoreKind::Nontemporal,
                        tag: *id as u32,
                    };
                    self.memory.store(line(piece.line), stored);
                }
                self.executed[*id] = true;
            }
            Action::Flush(flush) => {
                for at in flush.at.lines() {
                    self.memory.flush(line(at), op.thread, flush.at_once, 0);
                }
            }
            Action::Fence { .. } => self.memory.fence(op.thread, 0),
        }
    }

    /// If a crash now may have persisted (a part of) `second` and lost (a part of) `first`: what else has to have persisted then.
    fn may_lack(&mut self, first: StoreId, second: StoreId) -> Option<Vec<StoreId>> {
        let litmus = self.litmus;
        let (a, b) = (&litmus.stores[first], &litmus.stores[second]);
        for lost in a.at.lines() {
            if self.executed[first] && !self.is_uncertain(first, lost) {
                continue;
            }
            for kept in b.at.lines() {
                let ordered = self.executed[first] && lost == kept && a.is_cached() && b.is_cached();
                if !ordered {
                    return Some(self.with(second, kept));
                }
            }
        }
        None
    }

    fn is_uncertain(&mut self, store: StoreId, at: u64) -> bool {
        let line = self.memory.line(line(at));
        line.is_some_and(|line| {
            line.stores()
                .iter()
                .any(|s| s.tag as usize == store && s.bytes != Bytes(0))
        })
    }

    /// `store` and the cached stores of its line that come before it.
    fn with(&mut self, store: StoreId, at: u64) -> Vec<StoreId> {
        let mut persisted = Vec::new();
        if self.litmus.stores[store].is_cached()
            && let Some(line) = self.memory.line(line(at))
        {
            let cached = line.stores().iter().filter(|s| !s.nontemporal);
            persisted.extend(cached.map(|s| s.tag as usize).take_while(|&id| id != store));
        }
        persisted.push(store);
        persisted
    }

    fn is_durable(&mut self, store: StoreId) -> bool {
        let lines: Vec<u64> = self.litmus.stores[store].at.lines().collect();
        self.executed[store] && lines.into_iter().all(|at| !self.is_uncertain(store, at))
    }
}

fn line(line: u64) -> LineAddress {
    LineAddress { file: 0, line }
}
