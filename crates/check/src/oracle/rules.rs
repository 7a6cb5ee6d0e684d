//! `rule-order` and `rule-transaction`: the rules of crashproof.toml (Agamotto §4.2.2 has them as code; docs/rules.md).

use crashproof_finding::Kind;
use crashproof_model::{LINE, LineAddress, pieces};
use crashproof_trace::{FileId, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::annotation::Annotation;
use super::{Oracle, Step, StoreAccess, World};
use crate::config::{PathPattern, Rule, RuleOperations, Selector, Selects};
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
pub(crate) struct MustPersistBefore {
    index: usize,
    before: Matcher,
    after: Matcher,
    /// Lines with a store that `before` selected and that may not be persistent, and where it was made.
    open: FxHashMap<LineAddress, FxHashSet<StackId>>,
    sweep: usize,
    /// A line that a thread prints ends an operation.
    lines: bool,
    /// Operations that go on, by thread.
    operations: FxHashMap<u32, Operation>,
}

/// An operation of a thread: within it, what `before` selects comes first.
#[derive(Default)]
struct Operation {
    /// Operations that go on within it, and are parts of it.
    within: u32,
    /// Ends with the next line that the thread prints.
    of_driver: bool,
    /// A store that `before` selects was made.
    begun: bool,
    /// The first store that `after` selects, made while none that `before` selects was.
    early: Option<(StackId, StoreAccess)>,
}

impl MustPersistBefore {
    /// Stores of one operation in the wrong order: what has to persist first is only stored later.
    fn in_operation(&mut self, step: Step, store: StoreAccess, before: bool, after: bool, world: &mut World) {
        let Some(operation) = self.operations.get_mut(&step.thread) else {
            return;
        };
        operation.begun |= before;
        if let Some((stack, early)) = operation.early.take_if(|_| before) {
            world.findings.add(RawFinding {
                related: Some((Relation::StoredAfter, step.stack)),
                detail: Detail::Rule(self.index),
                ..RawFinding::new(Kind::RuleOrder, stack).at(early.at, early.len)
            });
        }
        if after && !operation.begun && operation.early.is_none() {
            operation.early = Some((step.stack, store));
        }
    }

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
        let before = self.before.matches(step.stack, store, world);
        let looked_for = !self.open.is_empty() || !self.operations.is_empty();
        let after = looked_for && self.after.matches(step.stack, store, world);
        if before || after {
            self.in_operation(step, store, before, after, world);
        }
        if after {
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
        if before {
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

    fn annotation(&mut self, step: Step, annotation: Annotation, _: &mut World) {
        match annotation {
            Annotation::OpBegin => match self.operations.get_mut(&step.thread) {
                Some(operation) if !operation.of_driver => operation.within += 1,
                _ => _ = self.operations.insert(step.thread, Operation::default()),
            },
            Annotation::OpEnd => match self.operations.get_mut(&step.thread) {
                Some(operation) if operation.within > 0 => operation.within -= 1,
                _ => _ = self.operations.remove(&step.thread),
            },
            _ => {}
        }
    }

    fn line(&mut self, step: Step) {
        let annotated = |operation: &Operation| !operation.of_driver;
        if self.lines && !self.operations.get(&step.thread).is_some_and(annotated) {
            // What comes before the first line may be the making of the pool.
            let operation = Operation {
                of_driver: true,
                ..Operation::default()
            };
            self.operations.insert(step.thread, operation);
        }
    }
}

/// Every store that is selected is made in a transaction of its thread.
pub(crate) struct MustBeInTransaction {
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

pub(crate) fn oracle(index: usize, rule: &Rule) -> Box<dyn Oracle> {
    match rule.clone() {
        Rule::MustPersistBefore {
            before,
            after,
            operations,
        } => Box::new(MustPersistBefore {
            index,
            before: Matcher::new(before),
            after: Matcher::new(after),
            open: FxHashMap::default(),
            sweep: SWEEP,
            lines: operations == RuleOperations::Lines,
            operations: FxHashMap::default(),
        }),
        Rule::MustBeInTransaction { stores } => Box::new(MustBeInTransaction {
            index,
            stores: Matcher::new(stores),
        }),
    }
}
