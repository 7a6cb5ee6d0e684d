//! `expect-durable` and `expect-order`: what the program says of itself by the annotations of `crashproof.h`
//! (docs/annotations.md).
//!
//! PMTest (§4.2) has the same two assertions as `isPersist` and `isOrderedBefore`. Deviations: an order is stated before the stores,
//! and checked at the next store to the second range, so that no history of what was persistent when has to be kept; stores within
//! one cache line are in order by themselves.

use crashproof_finding::Kind;
use crashproof_model::{Bytes, LINE, LineAddress, Store, pieces};
use crashproof_replay::Transaction;
use crashproof_trace::{PmAddress, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Oracle, Step, StoreAccess, World};
use crate::findings::{Detail, RawFinding, Relation};
use crate::locks::{LockFunctions, Use};
use crate::tag::StoreTag;

/// A range of a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PmRange {
    pub at: PmAddress,
    pub len: u64,
}

impl PmRange {
    fn touches(self, other: PmRange) -> bool {
        self.at.file == other.at.file
            && self.at.offset < other.at.offset.saturating_add(other.len)
            && other.at.offset < self.at.offset.saturating_add(self.len)
    }

    /// Whether all of both is in one cache line.
    fn in_line_of(self, other: PmRange) -> bool {
        let lines = |range: PmRange| {
            let last = range.at.offset.saturating_add(range.len.saturating_sub(1));
            (range.at.offset / LINE, last / LINE)
        };
        let (line, last) = lines(self);
        self.at.file == other.at.file && line == last && lines(other) == (line, line)
    }
}

/// What an annotation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Annotation {
    OpBegin,
    OpEnd,
    Durable(PmRange),
    /// The thread's transaction covers the range. Of imported traces only: PMTest asks this of every store.
    Snapshotted(PmRange),
    Order {
        before: PmRange,
        after: PmRange,
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
    before: PmRange,
    after: PmRange,
    backwards: bool,
    /// Who said so, where, and within how many operations of the thread.
    thread: u32,
    stack: StackId,
    depth: usize,
    /// `before` was stored to since, or was not durable then.
    begun: bool,
    /// The store to `after` that was made while `before` was not stored to.
    early: Option<(StackId, StoreAccess)>,
}

/// More orders that wait for a store are not kept; the oldest go.
const MAX_ORDERS: usize = 1 << 12;

/// More findings that a lock may explain are not kept.
const MAX_PERHAPS: usize = 1 << 10;

#[derive(Default)]
pub(crate) struct Annotations {
    operations: FxHashMap<u32, Vec<Operation>>,
    orders: Vec<Order>,
    functions: LockFunctions,
    /// Findings that fall away if the bytes turn out to be a lock's.
    perhaps: FxHashMap<(Kind, StackId, StackId), (RawFinding, LineAddress, Bytes)>,
}

/// A store that is not persistent.
struct Lost {
    at: LineAddress,
    bytes: Bytes,
    stack: StackId,
    flushed: bool,
}

/// The stores to the line that are not persistent.
fn lost_of_line(at: LineAddress, world: &mut World, is_it: impl Fn(&Store<StoreTag>) -> bool) -> Vec<Lost> {
    let Some(line) = world.memory.line(at) else {
        return Vec::new();
    };
    let stores = line.stores().iter().enumerate().filter(|(_, store)| is_it(store));
    stores
        .map(|(index, store)| Lost {
            at,
            bytes: store.bytes,
            stack: store.tag.stack,
            flushed: store.nontemporal || line.flushed_at(index).is_some(),
        })
        .collect()
}

/// Those to the range.
fn lost_of_range(range: PmRange, world: &mut World) -> Vec<Lost> {
    let mut lost = Vec::new();
    for at in world.memory.lines_in(range.at.file.0, range.at.offset, range.len) {
        let start = range.at.offset.max(at.line * LINE);
        let end = range.at.offset.saturating_add(range.len).min((at.line + 1) * LINE);
        let bytes = Bytes::range(start % LINE, end - start);
        lost.extend(lost_of_line(at, world, |store| store.bytes.intersects(bytes)));
    }
    lost
}

fn relation(flushed: bool) -> Relation {
    match flushed {
        true => Relation::NotFenced,
        false => Relation::NotFlushed,
    }
}

impl Annotations {
    /// Reports what is lost, with the first of it as the related place and the others beside it. Locks are volatile: nobody expects them to
    /// be durable.
    fn report(
        &mut self,
        lost: Vec<Lost>,
        finding: &RawFinding,
        relation: impl Fn(bool) -> Relation,
        world: &mut World,
    ) {
        let mut certain = finding.clone();
        for Lost {
            at,
            bytes,
            stack,
            flushed,
        } in lost
        {
            let place = (relation(flushed), stack);
            let used_as = world.locks.use_of(at, bytes, stack, world.tables);
            if matches!(used_as, Use::Lock | Use::HeldLock | Use::Object)
                || self.functions.made(stack, world.stacks, world.tables)
            {
                continue;
            }
            if used_as == Use::Perhaps {
                let key = (finding.kind, finding.stack, stack);
                if self.perhaps.len() < MAX_PERHAPS || self.perhaps.contains_key(&key) {
                    let (perhaps, ..) = self.perhaps.entry(key).or_insert_with(|| {
                        let count = 0;
                        let related = Some(place);
                        (
                            RawFinding {
                                related,
                                count,
                                ..finding.clone()
                            },
                            at,
                            bytes,
                        )
                    });
                    perhaps.count += 1;
                }
                continue;
            }
            certain.related.get_or_insert(place);
            certain.others.insert(place);
        }
        if certain.related.is_some() {
            world.findings.add(certain);
        }
    }

    fn end(&mut self, operation: Operation, step: Step, world: &mut World) {
        let mut stores: Vec<_> = operation.stores.into_iter().collect();
        stores.sort_by_key(|(at, _)| (at.file, at.line));
        let mut lost = Vec::new();
        for (at, stacks) in &stores {
            let of_it = |store: &Store<StoreTag>| store.thread == step.thread && stacks.contains(&store.tag.stack);
            lost.extend(lost_of_line(*at, world, of_it));
        }
        let finding = RawFinding {
            detail: Detail::Operation,
            ..RawFinding::new(Kind::ExpectDurable, step.stack)
        };
        self.report(lost, &finding, relation, world);
    }

    fn check_orders(&mut self, step: Step, store: StoreAccess, world: &mut World) {
        let stored = PmRange {
            at: store.at,
            len: store.len,
        };
        let early = |stack, early: StoreAccess, related| RawFinding {
            related,
            detail: Detail::Backwards,
            ..RawFinding::new(Kind::ExpectOrder, stack).at(early.at, early.len)
        };
        let mut orders = std::mem::take(&mut self.orders);
        orders.retain_mut(|order| {
            let begins = order.before.touches(stored);
            if let Some((stack, store)) = order.early {
                let violated = begins && order.thread == step.thread;
                if violated {
                    let related = Some((Relation::StoredAfter, step.stack));
                    world.findings.add(early(stack, store, related));
                }
                return !violated;
            }
            order.begun |= begins;
            if !order.after.touches(stored) {
                return true;
            }
            if order.backwards {
                world.findings.add(early(step.stack, store, None));
                return false;
            }
            // A non-temporal store overtakes what is in the cache.
            let in_order = order.before.in_line_of(stored) && !store.flags.nontemporal;
            let lost = match in_order {
                true => Vec::new(),
                false => lost_of_range(order.before, world),
            };
            let finding = RawFinding::new(Kind::ExpectOrder, step.stack).at(store.at, store.len);
            if !lost.is_empty() {
                self.report(lost, &finding, |_| Relation::MustPersistFirst, world);
            } else if !order.begun && step.thread == order.thread {
                order.early = Some((step.stack, store));
                return true;
            }
            false
        });
        self.orders = orders;
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
        if !self.orders.is_empty() {
            self.check_orders(step, store, world);
        }
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
                let depth = operations.as_ref().map_or(0, |operations| operations.len());
                if let Some(operation) = operations.and_then(Vec::pop) {
                    self.end(operation, step, world);
                    self.orders
                        .retain(|order| order.early.is_none() || order.thread != step.thread || order.depth < depth);
                }
                self.operations.retain(|_, operations| !operations.is_empty());
            }
            Annotation::Durable(range) => {
                let lost = lost_of_range(range, world);
                let finding = RawFinding::new(Kind::ExpectDurable, step.stack).at(range.at, range.len);
                self.report(lost, &finding, relation, world);
            }
            Annotation::Snapshotted(PmRange { at, len }) => {
                let covers = |transaction: &Transaction| {
                    let end = at.offset.saturating_add(len);
                    transaction.covered.covers(at.file.0, at.offset, end)
                };
                if !world.transactions.all_of(step.thread).any(covers) {
                    let finding = RawFinding::new(Kind::TxStoreNotSnapshotted, step.stack);
                    world.findings.add(finding.at(at, len));
                }
            }
            Annotation::Order {
                before,
                after,
                backwards,
            } => {
                // Said anew: what was said before holds no longer.
                self.orders.retain(|order| {
                    let same = order.before == before && order.after == after;
                    let again = order.thread == step.thread && (same || order.stack == step.stack);
                    !(same || again && order.early.is_some())
                });
                if self.orders.len() == MAX_ORDERS {
                    self.orders.remove(0);
                }
                let depth = self.operations.get(&step.thread).map_or(0, Vec::len);
                // Stored just before the annotation, and on its way: the next store to it is of the next round.
                let begun = !lost_of_range(before, world).is_empty();
                self.orders.push(Order {
                    before,
                    after,
                    backwards,
                    thread: step.thread,
                    stack: step.stack,
                    depth,
                    begun,
                    early: None,
                });
            }
        }
    }

    fn line(&mut self, step: Step) {
        self.orders
            .retain(|order| order.early.is_none() || order.thread != step.thread);
    }

    fn finish(&mut self, world: &mut World) {
        for (_, (finding, at, bytes)) in self.perhaps.drain() {
            let stack = finding.related.map_or(finding.stack, |(_, stack)| stack);
            let used_as = world.locks.use_of(at, bytes, stack, world.tables);
            if matches!(used_as, Use::Other | Use::Perhaps) {
                world.findings.add(finding);
            }
        }
    }
}
