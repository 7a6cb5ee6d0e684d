//! What a behaviour is like at one of its crash points: which of its stores are uncertain there, and what has persisted of it.
//!
//! Ours, and in Squint's spirit: as behaviours stand for others, so do their crash points. Behaviours that differ in how they begin
//! often end alike (the count is updated, the log is cut off), and a crash there need not be tested for each of them. A situation
//! stands for another of the same types if it has all of its uncertain stores, compared as those of behaviours are; if any two fields that
//! may persist in another order than stored there may do so here; and if the same fields have persisted before. Order is compared by
//! field, not store by store: where in a line an array's elements begin differs from one insertion to the next, and makes no other bug.

use rustc_hash::{FxHashMap, FxHashSet};

use super::epochs::Epoch;
use super::shape::{NEVER, Node, Shape, before};
use super::subject::InCall;
use super::{At, Behaviours, Member};
use crate::hash::mix;

/// Uncertain stores that are compared pair by pair.
const COMPARED: usize = 128;

/// All calls are of one type here: where a store is made is known by its whole path.
const CALL: u32 = u32::MAX;

struct Situation {
    /// Which store to which field; sorted.
    labels: Vec<u64>,
    /// Pairs of fields of which the later may persist without the earlier.
    unordered: FxHashSet<(u64, u64)>,
}

impl Situation {
    fn new(parts: &[(u32, Vec<Node>)]) -> (u64, Situation) {
        let parts: Vec<(u32, &[Node])> = parts.iter().map(|(ty, nodes)| (*ty, &nodes[..])).collect();
        let shape = Shape::new(&parts);
        let field = |(ty, node): &(u32, &Node)| mix(node.field ^ mix(u64::from(*ty)));
        let mut nodes: Vec<(u32, &Node)> = Vec::new();
        for (ty, of) in &parts {
            nodes.extend(of.iter().map(|node| (*ty, node)));
        }
        nodes.sort_by_key(|(_, node)| node.seq);
        nodes.truncate(COMPARED);
        let mut unordered = FxHashSet::default();
        for (index, later) in nodes.iter().enumerate() {
            let earlier = nodes[..index].iter().filter(|earlier| !before(earlier.1, later.1));
            unordered.extend(earlier.map(|earlier| (field(earlier), field(later))));
        }
        let labels = shape.nodes.iter().map(|node| node.label).collect();
        (shape.ty, Situation { labels, unordered })
    }

    fn stands_for(&self, other: &Situation) -> bool {
        let has = |label: &u64| self.labels.binary_search(label).is_ok();
        other.labels.len() <= self.labels.len()
            && other.labels.iter().all(has)
            && other.unordered.is_subset(&self.unordered)
    }
}

/// What has persisted of a behaviour, and what was done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    persisted: u64,
    /// Of a call: what its caller did last before it; none if that is not known.
    step: Option<u64>,
}

impl Before {
    fn stands_for(self, other: Before) -> bool {
        self.persisted == other.persisted && (other.step.is_none() || self.step == other.step)
    }
}

/// A situation that may be tested.
pub(crate) struct Candidate {
    /// Of the types, and how far on the point is.
    key: (u64, u32),
    before: Before,
    situation: Situation,
}

impl Candidate {
    /// Those whose caller is known come first: they stand for the others.
    pub(crate) fn order(&self) -> bool {
        self.before.step.is_none()
    }

    /// The behaviour at a crash point of its. None if it is left to another: a call whose uncertain stores are all of a call that
    /// one of its own makes.
    pub(crate) fn new(behaviours: &Behaviours, member: &Member, at: At, later: u32) -> Option<Candidate> {
        let seq = match at {
            At::Event(seq) => seq,
            At::End => NEVER,
        };
        let epochs: Vec<&Epoch> = member
            .epochs
            .iter()
            .filter_map(|id| behaviours.epochs.get(id))
            .collect();
        let is_call = epochs.len() == 1 && epochs[0].nodes.iter().all(|node| node.call.is_some());
        let continues = epochs.iter().any(|epoch| epoch.continues);
        let (mut parts, mut persisted) = (Vec::new(), Vec::new());
        for epoch in epochs {
            let ty = if is_call { CALL } else { epoch.ty() };
            let mut uncertain = Vec::new();
            for node in &epoch.nodes {
                let field = node.call.filter(|_| is_call).map_or(node.field, |call| call.path);
                let node = Node { field, ..node.clone() };
                if node.persistent_at < seq {
                    persisted.push((ty, node));
                } else if node.seq < seq || node.persistent_at == seq {
                    uncertain.push(Node {
                        persistent_at: NEVER,
                        ..node
                    });
                }
            }
            parts.push((ty, uncertain));
        }
        let mut step = None;
        if is_call && let Some(inner) = shared(&parts[0].1, |call| call.inner) {
            shared(&parts[0].1, |call| call.innermore).is_none().then_some(())?;
            let is_within = |node: &Node| node.call.is_some_and(|call| call.inner == Some(inner));
            let earlier = persisted.iter().rev().filter(|(_, node)| !is_within(node));
            let last = earlier.filter_map(|(_, node)| node.call).next();
            step = Some(last.map_or(u64::from(continues), |call| call.place));
            persisted.retain(|(_, node)| is_within(node));
        }
        let persisted: FxHashSet<u64> = persisted
            .iter()
            .map(|(ty, node)| mix(node.field ^ mix(u64::from(*ty))))
            .collect();
        let (ty, situation) = Situation::new(&parts);
        Some(Candidate {
            key: (ty, later),
            before: Before {
                persisted: persisted.into_iter().fold(0, u64::wrapping_add),
                step,
            },
            situation,
        })
    }
}

/// The call that all of the stores are in.
fn shared(nodes: &[Node], of: impl Fn(InCall) -> Option<u64>) -> Option<u64> {
    let mut calls = nodes.iter().map(|node| node.call.and_then(&of));
    let first = calls.next()??;
    calls.all(|call| call == Some(first)).then_some(first)
}

/// Those that are planned.
#[derive(Default)]
pub(crate) struct Situations {
    planned: FxHashMap<(u64, u32), Vec<(Before, Situation)>>,
}

impl Situations {
    /// Whether there is nothing yet that stands for it. Then it does from now on.
    pub(crate) fn add(&mut self, candidate: Candidate) -> bool {
        let Candidate { key, before, situation } = candidate;
        let known = self.planned.entry(key).or_default();
        let is_new = !known
            .iter()
            .any(|(earlier, other)| earlier.stands_for(before) && other.stands_for(&situation));
        if is_new {
            known.push((before, situation));
        }
        is_new
    }
}
