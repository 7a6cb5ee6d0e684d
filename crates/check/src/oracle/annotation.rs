//! `expect-durable` and `expect-order`: what the program says of itself by the annotations of `crashproof.h`
//! (docs/annotations.md).
//!
//! PMTest (§4.2) has the same two assertions as `isPersist` and `isOrderedBefore`. Deviations: an order is stated before the stores,
//! and checked at the next store to the second range, so that no history of what was persistent when has to be kept; stores within
//! one cache line are in order by themselves.

use crashproof_model::{LINE, Line, LineAddress, pieces};
use crashproof_report::Kind;
use crashproof_trace::{PmAddress, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Oracle, Step, StoreAccess, World};
use crate::findings::{Detail, RawFinding, Relation};
use crate::tag::StoreTag;
use crate::transactions::Transaction;

/// A range of a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub at: PmAddress,
    pub len: u64,
}

impl Range {
    fn touches(self, other: Range) -> bool {
        self.at.file == other.at.file
            && self.at.offset < other.at.offset.saturating_add(other.len)
            && other.at.offset < self.at.offset.saturating_add(self.len)
    }

    /// Whether all of both is in one cache line.
    fn in_line_of(self, other: Range) -> bool {
        let lines = |range: Range| {
            let last = range.at.offset.saturating_add(range.len.saturating_sub(1));
            (range.at.offset / LINE, last / LINE)
        };
        let (line, last) = lines(self);
        self.at.file == other.at.file && line == last && lines(other) == (line, line)
    }
}

/// What an annotation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    OpBegin,
    OpEnd,
    Durable(Range),
    /// The thread's transaction covers the range. Of imported traces only: PMTest asks this of every store.
    Snapshotted(Range),
    Order {
        before: Range,
        after: Range,
        /// `before` is stored to only after `after`: of an imported trace, whose checkers look back.
        backwards: bool,
    },
}

/// An operation of a thread that goes on: where it stored.
#[derive(Default)]
struct Operation {
    stores: FxHashMap<LineAddress, FxHashSet<StackId>>,
}

struct Order {
    before: Range,
    after: Range,
    backwards: bool,
}

/// More orders that wait for a store are not kept; the oldest go.
const MAX_ORDERS: usize = 1 << 12;

#[derive(Default)]
pub struct Annotations {
    operations: FxHashMap<u32, Vec<Operation>>,
    orders: Vec<Order>,
}

/// A store to the line that is not persistent: where it was made, and whether it is flushed.
fn unpersisted(line: &Line<StoreTag>, is_it: impl Fn(usize) -> bool) -> Option<(StackId, bool)> {
    let index = (0..line.stores().len()).find(|&index| is_it(index))?;
    let store = &line.stores()[index];
    Some((store.tag.stack, store.nontemporal || line.flushed_at(index).is_some()))
}

/// The first store to the range that is not persistent.
fn first_unpersisted(range: Range, world: &mut World) -> Option<(StackId, bool)> {
    pieces(range.at.offset, range.len, LINE).find_map(|piece| {
        let line = world.memory.line(LineAddress {
            file: range.at.file.0,
            line: piece.line,
        })?;
        unpersisted(line, |index| line.stores()[index].bytes.intersects(piece.bytes))
    })
}

fn relation(flushed: bool) -> Relation {
    match flushed {
        true => Relation::NotFenced,
        false => Relation::NotFlushed,
    }
}

impl Annotations {
    fn end(operation: Operation, step: Step, world: &mut World) {
        let mut stores: Vec<_> = operation.stores.into_iter().collect();
        stores.sort_by_key(|(at, _)| (at.file, at.line));
        let lost = stores.iter().find_map(|(at, stacks)| {
            let line = world.memory.line(*at)?;
            let of_it = |index: usize| {
                let store = &line.stores()[index];
                store.thread == step.thread && stacks.contains(&store.tag.stack)
            };
            unpersisted(line, of_it)
        });
        if let Some((store, flushed)) = lost {
            world.findings.add(RawFinding {
                related: Some((relation(flushed), store)),
                detail: Detail::Operation,
                ..RawFinding::new(Kind::ExpectDurable, step.stack)
            });
        }
    }
}

impl Oracle for Annotations {
    fn wants_stores(&self) -> bool {
        true
    }

    fn store(&mut self, step: Step, store: StoreAccess, world: &mut World) {
        if let Some(operations) = self.operations.get_mut(&step.thread) {
            for operation in operations {
                for piece in pieces(store.at.offset, store.len, LINE) {
                    let at = LineAddress {
                        file: store.at.file.0,
                        line: piece.line,
                    };
                    operation.stores.entry(at).or_default().insert(step.stack);
                }
            }
        }
        if self.orders.is_empty() {
            return;
        }
        let stored = Range {
            at: store.at,
            len: store.len,
        };
        self.orders.retain(|order| {
            if !order.after.touches(stored) {
                return true;
            }
            if order.backwards {
                world.findings.add(RawFinding {
                    detail: Detail::Backwards,
                    ..RawFinding::new(Kind::ExpectOrder, step.stack).at(store.at, store.len)
                });
                return false;
            }
            // A non-temporal store overtakes what is in the cache.
            let in_order = order.before.in_line_of(stored) && !store.flags.nontemporal;
            if let Some((first, _)) = first_unpersisted(order.before, world).filter(|_| !in_order) {
                world.findings.add(RawFinding {
                    related: Some((Relation::MustPersistFirst, first)),
                    ..RawFinding::new(Kind::ExpectOrder, step.stack).at(store.at, store.len)
                });
            }
            false
        });
    }

    fn annotation(&mut self, step: Step, annotation: Annotation, world: &mut World) {
        match annotation {
            Annotation::OpBegin => self
                .operations
                .entry(step.thread)
                .or_default()
                .push(Operation::default()),
            Annotation::OpEnd => {
                let operations = self.operations.get_mut(&step.thread);
                if let Some(operation) = operations.and_then(Vec::pop) {
                    Self::end(operation, step, world);
                }
                self.operations.retain(|_, operations| !operations.is_empty());
            }
            Annotation::Durable(range) => {
                if let Some((store, flushed)) = first_unpersisted(range, world) {
                    world.findings.add(RawFinding {
                        related: Some((relation(flushed), store)),
                        ..RawFinding::new(Kind::ExpectDurable, step.stack).at(range.at, range.len)
                    });
                }
            }
            Annotation::Snapshotted(Range { at, len }) => {
                let covers = |transaction: &Transaction| {
                    let end = at.offset.saturating_add(len);
                    transaction.covered.covers(at.file.0, at.offset, end)
                };
                if !world.transactions.of(step.thread).is_some_and(covers) {
                    let finding = RawFinding::new(Kind::TxStoreNotSnapshotted, step.stack);
                    world.findings.add(finding.at(at, len));
                }
            }
            Annotation::Order {
                before,
                after,
                backwards,
            } => {
                if self.orders.len() == MAX_ORDERS {
                    self.orders.remove(0);
                }
                if !self
                    .orders
                    .iter()
                    .any(|order| order.before == before && order.after == after)
                {
                    self.orders.push(Order {
                        before,
                        after,
                        backwards,
                    });
                }
            }
        }
    }
}
