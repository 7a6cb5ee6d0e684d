//! Whether one shape represents another (dissertation §4.4.4), made for asking it millions of times: updates are numbered over all shapes, so that a shape
//! is a set of bits, and are kept in the order in which they are compared. Most questions end at the sets or after a few updates.

use rustc_hash::FxHashMap;

use super::order::NodeId;
use super::shape::{NEVER, Shape};

/// Sixty-four numbers of updates, some of which a shape has.
struct Word {
    index: u32,
    bits: u64,
    /// How many the words before have.
    before: u32,
}

struct Update {
    number: u32,
    /// By a number in the shape.
    line: u32,
    in_line_order: bool,
    seq: u64,
    persistent_at: u64,
    /// Those that must persist before it because of the model's edges.
    after: Vec<u32>,
}

/// A shape, to be compared with others. Updates are named by their position in issue order.
pub(super) struct Comparable {
    ty: u64,
    words: Vec<Word>,
    updates: Vec<Update>,
    /// In the order of their numbers.
    by_number: Vec<u32>,
    /// As they are persistent; not those that never are.
    persistent: Vec<u32>,
    lines: usize,
}

/// What a comparison takes, kept from one to the next.
#[derive(Default)]
pub(super) struct Scratch {
    /// By line of the larger shape: the last update, in the smaller one.
    newest: Vec<Option<u32>>,
    /// By update of the smaller shape: the one of the same line before.
    previous: Vec<Option<u32>>,
}

impl Comparable {
    /// All that are to be compared with each other.
    pub(super) fn all(shapes: &[Shape<'_>]) -> Vec<Comparable> {
        // What many shapes have gets a low number: their words are few then.
        let mut counts: FxHashMap<u64, u32> = FxHashMap::default();
        for node in shapes.iter().flat_map(|shape| &shape.nodes) {
            *counts.entry(node.label).or_default() += 1;
        }
        let mut labels: Vec<(u64, u32)> = counts.into_iter().collect();
        labels.sort_unstable_by_key(|&(label, count)| (u32::MAX - count, label));
        let numbers = labels.iter().zip(0..).map(|(&(label, _), number)| (label, number));
        let numbers: FxHashMap<u64, u32> = numbers.collect();
        shapes.iter().map(|shape| Comparable::new(shape, &numbers)).collect()
    }

    fn new(shape: &Shape<'_>, numbers: &FxHashMap<u64, u32>) -> Comparable {
        let mut nodes: Vec<_> = shape.nodes.iter().collect();
        nodes.sort_unstable_by_key(|node| node.index);
        let mut lines = FxHashMap::default();
        let is_tied = nodes.iter().any(|node| !node.node.after.is_empty());
        let places = nodes.iter().map(|node| node.node.id).zip(0..).take_while(|_| is_tied);
        let places: FxHashMap<NodeId, u32> = places.collect();
        let updates = nodes.iter().map(|labelled| {
            let next = lines.len() as u32;
            Update {
                number: numbers[&labelled.label],
                line: *lines.entry(labelled.node.line).or_insert(next),
                in_line_order: labelled.node.in_line_order,
                seq: labelled.node.seq,
                persistent_at: labelled.node.persistent_at,
                after: labelled
                    .node
                    .after
                    .iter()
                    .filter_map(|id| places.get(id))
                    .copied()
                    .collect(),
            }
        });
        let updates: Vec<Update> = updates.collect();
        let of = |at: &u32| &updates[*at as usize];
        let mut by_number: Vec<u32> = (0..updates.len() as u32).collect();
        by_number.sort_unstable_by_key(|at| of(at).number);
        let mut persistent: Vec<u32> = (0..updates.len() as u32).collect();
        persistent.retain(|at| of(at).persistent_at != NEVER);
        persistent.sort_by_key(|at| of(at).persistent_at);
        let mut words: Vec<Word> = Vec::new();
        for (before, at) in by_number.iter().enumerate() {
            let (index, bit) = (of(at).number / 64, of(at).number % 64);
            if words.last().is_none_or(|last| last.index != index) {
                words.push(Word {
                    index,
                    bits: 0,
                    before: before as u32,
                });
            }
            if let Some(last) = words.last_mut() {
                last.bits |= 1 << bit;
            }
        }
        Comparable {
            ty: shape.ty,
            words,
            updates,
            by_number,
            persistent,
            lines: lines.len(),
        }
    }

    fn has_all(&self, other: &Comparable) -> bool {
        let mut words = self.words.iter();
        other.words.iter().all(|word| {
            let own = words.find(|own| own.index >= word.index);
            own.is_some_and(|own| own.index == word.index && word.bits & !own.bits == 0)
        })
    }

    /// Which of its updates has a number.
    fn find(&self, number: u32) -> Option<u32> {
        let (index, bit) = (number / 64, number % 64);
        let word = match self.words.get(index as usize) {
            Some(word) if word.index == index => word,
            _ => &self.words[self.words.binary_search_by_key(&index, |word| word.index).ok()?],
        };
        let is_there = word.bits >> bit & 1 == 1;
        let before = word.before + (word.bits & ((1 << bit) - 1)).count_ones();
        is_there.then(|| self.by_number[before as usize])
    }

    /// Whether one must persist before the other.
    fn edge(&self, a: u32, b: u32) -> bool {
        let [first, second] = [a, b].map(|at| &self.updates[at as usize]);
        let in_line = first.in_line_order && second.in_line_order && first.line == second.line;
        a < b && (first.persistent_at <= second.seq || in_line || second.after.contains(&a))
    }

    /// Has all updates of the other, and among these no edge that the other has not.
    pub(super) fn represents(&self, other: &Comparable, scratch: &mut Scratch) -> bool {
        if self.ty != other.ty || other.updates.len() > self.updates.len() || !self.has_all(other) {
            return false;
        }
        let Scratch { newest, previous } = scratch;
        newest.clear();
        newest.resize(self.lines, None);
        if previous.len() < other.updates.len() {
            previous.resize(other.updates.len(), None);
        }
        let mut persistent = self.persistent.iter().map(|&at| &self.updates[at as usize]).peekable();
        // When all that is persistent here is persistent there.
        let mut latest = 0;
        for (own, update) in (0..).zip(&self.updates) {
            let Some(at) = other.find(update.number) else { continue };
            while let Some(earlier) = persistent.next_if(|earlier| earlier.persistent_at <= update.seq) {
                let there = other.find(earlier.number).map(|at| &other.updates[at as usize]);
                latest = latest.max(there.map_or(0, |there| there.persistent_at));
            }
            let line = &mut newest[update.line as usize];
            let is_allowed = if latest < other.updates[at as usize].seq {
                let mut of_line = std::iter::successors(*line, |&earlier| previous[earlier as usize]);
                let after = update.after.iter().filter(|&&a| a < own);
                let mut after = after.filter_map(|&a| other.find(self.updates[a as usize].number));
                (!update.in_line_order || of_line.all(|earlier| other.edge(earlier, at)))
                    && after.all(|earlier| other.edge(earlier, at))
            } else {
                (0..own).all(|a| {
                    let there = other.find(self.updates[a as usize].number);
                    there.is_none_or(|there| !self.edge(a, own) || other.edge(there, at))
                })
            };
            if !is_allowed {
                return false;
            }
            if update.in_line_order {
                previous[at as usize] = line.replace(at);
            }
        }
        true
    }

    /// As [`Comparable::represents`], by looking at every two.
    #[cfg(test)]
    fn represents_by_pairs(&self, other: &Comparable) -> bool {
        let numbers: Vec<u32> = other.updates.iter().map(|update| update.number).collect();
        let place = |number: u32| self.updates.iter().position(|update| update.number == number);
        let places: Option<Vec<usize>> = numbers.into_iter().map(place).collect();
        let Some(places) = places.filter(|_| self.ty == other.ty) else {
            return false;
        };
        let all = 0..places.len();
        all.clone().all(|a| {
            let implies = |b: usize| !self.edge(places[a] as u32, places[b] as u32) || other.edge(a as u32, b as u32);
            all.clone().all(implies)
        })
    }
}

#[cfg(test)]
mod tests {
    use crashproof_model::LineAddress;
    use crashproof_trace::{FileId, PmAddress, StackId};
    use proptest::prelude::*;

    use super::super::shape::Node;
    use super::*;

    /// Nodes in issue order: several of one event, persistent by their own event, later, or never.
    fn nodes(fields: u64, most: usize) -> impl Strategy<Value = Vec<Node>> {
        let after = prop::option::weighted(0.2, any::<prop::sample::Index>());
        let node = (0u64..3, 0u64..8, 0u64..3, any::<bool>(), 0..fields, after);
        prop::collection::vec(node, 0..most).prop_map(|nodes| {
            let mut seq = 1;
            let made = nodes
                .into_iter()
                .zip(0..)
                .map(|((step, later, line, in_line_order, field, after), id)| {
                    seq += step;
                    Node {
                        seq,
                        persistent_at: if later == 7 { NEVER } else { seq + later },
                        at: PmAddress {
                            file: FileId(0),
                            offset: line * 64,
                        },
                        len: 8,
                        line: Some(LineAddress { file: 0, line }),
                        in_line_order,
                        id: NodeId(id),
                        after: after
                            .filter(|_| id > 0)
                            .map(|after| NodeId(after.index(id as usize) as u64))
                            .into_iter()
                            .collect(),
                        field,
                        call: None,
                        stack: StackId(0),
                        site: 0,
                    }
                });
            made.collect()
        })
    }

    /// Some of them, and the same ones without much order.
    fn parts(nodes: &[Node], cut: usize, chosen: u64) -> [Vec<Node>; 3] {
        let some = nodes.iter().enumerate().filter(|(at, _)| chosen >> (at % 64) & 1 == 1);
        let some: Vec<Node> = some.map(|(_, node)| node.clone()).collect();
        let mut ordered = some.clone();
        ordered.iter_mut().for_each(|node| node.persistent_at = node.seq);
        [nodes[..cut.min(nodes.len())].to_vec(), some, ordered]
    }

    fn compare(a: &[Node], b: &[Node], parts: &[Vec<Node>; 3]) -> Result<(), TestCaseError> {
        let all = [a, b].into_iter().chain(parts.iter().map(Vec::as_slice));
        let mut shapes: Vec<Shape<'_>> = all.map(|nodes| Shape::new(&[(1, nodes)])).collect();
        shapes.push(Shape::new(&[(2, a)]));
        let comparables = Comparable::all(&shapes);
        let mut scratch = Scratch::default();
        for (one, shape) in comparables.iter().zip(&shapes) {
            prop_assert_eq!(shape.edges(), shape.edge_list().len());
            for other in &comparables {
                prop_assert_eq!(one.represents(other, &mut scratch), one.represents_by_pairs(other));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn as_by_every_two(a in nodes(3, 10), b in nodes(3, 10), cut in 0usize..10, chosen: u64) {
            compare(&a, &b, &parts(&a, cut, chosen))?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Several words of bits.
        #[test]
        fn as_by_every_two_when_large(a in nodes(200, 300), b in nodes(200, 300), cut in 0usize..300, chosen: u64) {
            compare(&a, &b, &parts(&a, cut, chosen))?;
        }
    }
}
