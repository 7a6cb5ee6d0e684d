//! `rule-order` and `rule-transaction`: the rules of crashproof.toml (Agamotto §4.2.2 has them as code; docs/rules.md).

use crashproof_model::{LINE, LineAddress, pieces};
use crashproof_report::Kind;
use crashproof_trace::{FileId, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Oracle, Step, StoreAccess, World};
use crate::config::{PathPattern, Rule, Selector, Selects};
use crate::findings::{Detail, RawFinding, Relation};

/// A selector with what is known about each stack (or file, for one that speaks of PM).
struct Matcher {
    selector: Selector,
    known: FxHashMap<u32, bool>,
}

impl Matcher {
    fn new(selector: Selector) -> Self {
        Matcher {
            selector,
            known: FxHashMap::default(),
        }
    }

    fn matches(&mut self, stack: StackId, store: StoreAccess, world: &mut World) -> bool {
        match &*self.selector.selects {
            Selects::Pm { file, bytes } => {
                let touches = store.at.offset <= *bytes.end() && *bytes.start() < store.at.offset + store.len;
                touches
                    && *self
                        .known
                        .entry(store.at.file.0)
                        .or_insert_with(|| file_matches(file, store.at.file, world))
            }
            selects => *self
                .known
                .entry(stack.0)
                .or_insert_with(|| stack_matches(selects, stack, world)),
        }
    }
}

fn file_matches(pattern: &PathPattern, file: FileId, world: &World) -> bool {
    world.tables.file(file).is_some_and(|file| pattern.matches(&file.path))
}

fn stack_matches(selects: &Selects, stack: StackId, world: &mut World) -> bool {
    let symbolized = world.stacks.symbolize(stack, world.tables);
    symbolized.frames.iter().any(|frame| match selects {
        Selects::Function(pattern) => frame
            .function
            .as_deref()
            .is_some_and(|name| pattern.matches_function(name)),
        Selects::Source { file, lines } => {
            frame.line.is_some_and(|line| lines.contains(&line))
                && frame.file.as_deref().is_some_and(|path| file.matches(path))
        }
        Selects::Pm { .. } => false,
    })
}

/// Forget persistent lines when so many are noted.
const SWEEP: usize = 1 << 14;

/// Every store that `before` selects is persistent when one that `after` selects is made.
pub struct MustPersistBefore {
    index: usize,
    before: Matcher,
    after: Matcher,
    /// Lines with a store that `before` selected and that may not be persistent, and where it was made.
    open: FxHashMap<LineAddress, FxHashSet<StackId>>,
    sweep: usize,
}

impl MustPersistBefore {
    /// The stores of `stacks` to the line that are not persistent: stack, first byte, length.
    fn unpersisted(world: &mut World, at: LineAddress, stacks: &FxHashSet<StackId>) -> Option<StackId> {
        let line = world.memory.line(at)?;
        line.stores()
            .iter()
            .map(|s| s.tag.stack)
            .find(|stack| stacks.contains(stack))
    }
}

impl Oracle for MustPersistBefore {
    fn wants_stores(&self) -> bool {
        true
    }

    fn store(&mut self, step: Step, store: StoreAccess, world: &mut World) {
        if !self.open.is_empty() && self.after.matches(step.stack, store, world) {
            // Each store is reported once, with the first that came too early for it.
            for (at, stacks) in self.open.drain() {
                if let Some(first) = Self::unpersisted(world, at, &stacks) {
                    world.findings.add(RawFinding {
                        related: Some((Relation::MustPersistFirst, first)),
                        detail: Detail::Rule(self.index),
                        ..RawFinding::new(Kind::RuleOrder, step.stack).at(store.at, store.len)
                    });
                }
            }
        }
        if self.before.matches(step.stack, store, world) {
            for piece in pieces(store.at.offset, store.len, LINE) {
                let at = LineAddress {
                    file: store.at.file.0,
                    line: piece.line,
                };
                self.open.entry(at).or_default().insert(step.stack);
            }
            if self.open.len() >= self.sweep {
                self.open
                    .retain(|&at, stacks| Self::unpersisted(world, at, stacks).is_some());
                self.sweep = SWEEP.max(2 * self.open.len());
            }
        }
    }
}

/// Every store that is selected is made in a transaction of its thread.
pub struct MustBeInTransaction {
    index: usize,
    stores: Matcher,
}

impl Oracle for MustBeInTransaction {
    fn wants_stores(&self) -> bool {
        true
    }

    fn store(&mut self, step: Step, store: StoreAccess, world: &mut World) {
        if world.transactions.of(step.thread).is_none() && self.stores.matches(step.stack, store, world) {
            world.findings.add(RawFinding {
                detail: Detail::Rule(self.index),
                ..RawFinding::new(Kind::RuleTransaction, step.stack).at(store.at, store.len)
            });
        }
    }
}

pub fn oracle(index: usize, rule: &Rule) -> Box<dyn Oracle> {
    match rule.clone() {
        Rule::MustPersistBefore { before, after } => Box::new(MustPersistBefore {
            index,
            before: Matcher::new(before),
            after: Matcher::new(after),
            open: FxHashMap::default(),
            sweep: SWEEP,
        }),
        Rule::MustBeInTransaction { stores } => Box::new(MustBeInTransaction {
            index,
            stores: Matcher::new(stores),
        }),
    }
}
