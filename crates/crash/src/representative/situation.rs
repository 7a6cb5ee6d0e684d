//! What a behaviour is like at one of its crash points: which of its stores are uncertain there, and what has persisted of it.
//!
//! Ours, and in Squint's spirit: as behaviours stand for others, so do their crash points. Behaviours that differ in how they begin
//! often end alike (the count is updated, the log is cut off), and a crash there need not be tested for each of them. A situation
//! stands for another of the same types if it has all of its uncertain stores, compared as those of behaviours are; if any two fields that
//! may persist in another order than stored there may do so here; and if the same fields have persisted before. Order is compared by
//! field, not store by store: where in a line an array's elements begin differs from one insertion to the next, and makes no other bug.

use rustc_hash::{FxHashMap, FxHashSet};

use super::shape::{NEVER, Node, Shape, before};
use super::{At, Behaviours, Member};
use crate::hash::mix;

/// Uncertain stores that are compared pair by pair.
const COMPARED: usize = 128;

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

/// Those that are planned, by types, what has persisted, and how far on the point is.
#[derive(Default)]
pub(crate) struct Situations {
    planned: FxHashMap<(u64, u64, u32), Vec<Situation>>,
}

impl Situations {
    /// Whether there is nothing yet that stands for the behaviour at this point. Then it does from now on.
    pub fn add(&mut self, behaviours: &Behaviours, member: &Member, at: At, later: u32) -> bool {
        let seq = match at {
            At::Event(seq) => seq,
            At::End => NEVER,
        };
        let mut parts = Vec::new();
        let mut persisted = FxHashSet::default();
        for epoch in member.epochs.iter().filter_map(|id| behaviours.epochs.get(id)) {
            let mut uncertain = Vec::new();
            for node in &epoch.nodes {
                if node.persistent_at < seq {
                    persisted.insert(mix(node.field ^ mix(u64::from(epoch.ty()))));
                } else if node.seq < seq || node.persistent_at == seq {
                    uncertain.push(Node {
                        persistent_at: NEVER,
                        ..node.clone()
                    });
                }
            }
            parts.push((epoch.ty(), uncertain));
        }
        let persisted = persisted.into_iter().fold(0, u64::wrapping_add);
        let (ty, situation) = Situation::new(&parts);
        let known = self.planned.entry((ty, persisted, later)).or_default();
        let is_new = !known.iter().any(|other| other.stands_for(&situation));
        if is_new {
            known.push(situation);
        }
        is_new
    }
}
