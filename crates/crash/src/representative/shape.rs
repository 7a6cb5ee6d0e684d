//! What of a behaviour counts when it is compared with others: which field each store updates (the k-th store to a field
//! is the k-th of another behaviour), and which must persist before which (dissertation §4.4.4).

use crashproof_model::LineAddress;
use crashproof_trace::{PmAddress, StackId};
use rustc_hash::FxHashMap;

use super::order::NodeId;
use super::subject::InCall;
use crate::hash::{mix, pair};

/// Never, as far as the trace says.
pub(crate) const NEVER: u64 = u64::MAX;

/// A store as a behaviour keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Of its event; nodes of one event are in the order of the list.
    pub seq: u64,
    /// The event that made it guaranteed persistent: there is a crash point just before it.
    pub persistent_at: u64,
    pub at: PmAddress,
    pub len: u32,
    pub line: Option<LineAddress>,
    pub in_line_order: bool,
    pub id: NodeId,
    /// Nodes, ascending, that must persist before it because of the model's edges.
    pub after: Box<[NodeId]>,
    pub field: u64,
    pub call: Option<InCall>,
    pub stack: StackId,
    /// Where in the source, or in the code.
    pub site: u64,
}

/// Whether `a` must persist before `b`, which was issued after it.
pub(crate) fn before(a: &Node, b: &Node) -> bool {
    a.persistent_at <= b.seq
        || a.in_line_order && b.in_line_order && a.line == b.line
        || b.after.binary_search(&a.id).is_ok()
}

/// A node, and which update of a behaviour it is, whatever the instance.
pub(crate) struct Labelled<'a> {
    pub label: u64,
    /// Position in issue order.
    pub index: usize,
    pub node: &'a Node,
}

/// Of one epoch, or of two that are tested together: (type, nodes), the nodes in issue order.
pub(crate) struct Shape<'a> {
    /// In the order of their labels.
    pub nodes: Vec<Labelled<'a>>,
    /// Positions in the list, in issue order.
    by_issue: Vec<usize>,
    /// Positions in the list, in the order in which they are persistent.
    by_persistence: Vec<usize>,
    /// Of the types.
    pub ty: u64,
}

impl<'a> Shape<'a> {
    pub(super) fn new(parts: &[(u32, &'a [Node])]) -> Shape<'a> {
        // Which comes first must not depend on the instance: by type, else by time.
        let mut sides: Vec<usize> = (0..parts.len()).collect();
        sides.sort_by_key(|&side| (parts[side].0, parts[side].1.first().map(|node| node.seq)));
        let mut all: Vec<(u64, usize, &'a Node)> = Vec::new();
        let mut ty = parts.len() as u64;
        for (rank, &side) in sides.iter().enumerate() {
            let (part_type, nodes) = parts[side];
            ty = mix(ty ^ u64::from(part_type).wrapping_add(0x9e37_79b9));
            let key = mix(u64::from(part_type) << 8 | rank as u64);
            let mut counts: FxHashMap<u64, u64> = FxHashMap::default();
            for node in nodes {
                let count = counts.entry(node.field).or_default();
                all.push((mix(mix(key ^ node.field).wrapping_add(*count)), rank, node));
                *count += 1;
            }
        }
        all.sort_by_key(|&(_, rank, node)| (node.seq, rank));
        let mut nodes: Vec<Labelled<'a>> = all
            .into_iter()
            .enumerate()
            .map(|(index, (label, _, node))| Labelled { label, index, node })
            .collect();
        nodes.sort_by_key(|node| node.label);
        let mut by_issue: Vec<usize> = (0..nodes.len()).collect();
        by_issue.sort_unstable_by_key(|&at| nodes[at].index);
        let mut by_persistence = by_issue.clone();
        by_persistence.sort_by_key(|&at| nodes[at].node.persistent_at);
        Shape {
            nodes,
            by_issue,
            by_persistence,
            ty,
        }
    }

    fn edge(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.nodes[a], &self.nodes[b]);
        a.index < b.index && before(a.node, b.node)
    }

    /// By positions in issue order.
    pub(super) fn edge_list(&self) -> Vec<(usize, usize)> {
        let count = self.nodes.len();
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let edges = pairs.filter(|&(a, b)| self.edge(a, b));
        edges.map(|(a, b)| (self.nodes[a].index, self.nodes[b].index)).collect()
    }

    /// Whether updates of different lines are ordered by more than fences: then every two are looked at.
    fn has_edges_of_model(&self) -> bool {
        self.nodes.iter().any(|node| !node.node.after.is_empty())
    }

    /// How many there are, without looking at every two.
    pub(super) fn edges(&self) -> usize {
        if self.has_edges_of_model() {
            return self.edge_list().len();
        }
        let node = |at: usize| self.nodes[at].node;
        let mut persistent = self.by_persistence.iter().peekable();
        let mut lines: FxHashMap<Option<LineAddress>, Vec<usize>> = FxHashMap::default();
        let (mut before, mut edges) = (0, 0);
        for (index, &at) in self.by_issue.iter().enumerate() {
            let seq = node(at).seq;
            while persistent
                .next_if(|&&earlier| node(earlier).persistent_at <= seq)
                .is_some()
            {
                before += 1;
            }
            // Nothing is persistent before it is issued: those that come later are of the same event.
            let same_event = self.by_issue[index..]
                .iter()
                .take_while(|&&later| node(later).seq == seq);
            let later = same_event.filter(|&&later| node(later).persistent_at <= seq).count();
            edges += before - later;
            if node(at).in_line_order {
                let line = lines.entry(node(at).line).or_default();
                edges += line
                    .iter()
                    .filter(|&&earlier| node(earlier).persistent_at > seq)
                    .count();
                line.push(at);
            }
        }
        edges
    }

    /// Equal for shapes with the same updates and the same edges.
    pub(super) fn hash(&self) -> u128 {
        let mut order: Vec<&Labelled<'_>> = self.nodes.iter().collect();
        order.sort_by_key(|node| node.index);
        if self.has_edges_of_model() {
            let all = order.iter().enumerate().map(|(index, node)| {
                let earlier = order[..index].iter().filter(|earlier| before(earlier.node, node.node));
                let predecessors = earlier.fold(0u128, |sum, earlier| sum.wrapping_add(pair(1, earlier.label)));
                hash_of(node.label, predecessors)
            });
            return all.fold(pair(self.ty, self.nodes.len() as u64), u128::wrapping_add);
        }
        let mut persistent: Vec<&Labelled<'_>> = order.clone();
        persistent.sort_by_key(|node| node.node.persistent_at);
        let mut persistent = persistent.into_iter().peekable();
        // What is persistent by now; under eADR that may be nodes yet to come, of the same event.
        let mut sum = 0u128;
        let mut lines: FxHashMap<LineAddress, Vec<&Labelled<'_>>> = FxHashMap::default();
        let mut total = pair(self.ty, self.nodes.len() as u64);
        for node in order {
            while let Some(earlier) =
                persistent.next_if(|a| a.node.persistent_at <= node.node.seq && a.index < node.index)
            {
                sum = sum.wrapping_add(pair(1, earlier.label));
            }
            let mut predecessors = sum;
            if let (Some(line), true) = (node.node.line, node.node.in_line_order) {
                let line = lines.entry(line).or_default();
                line.retain(|a| a.node.persistent_at > node.node.seq);
                for earlier in line.iter() {
                    predecessors = predecessors.wrapping_add(pair(1, earlier.label));
                }
                line.push(node);
            }
            total = total.wrapping_add(hash_of(node.label, predecessors));
        }
        total
    }
}

/// Of an update, with the sum over those that must persist before it.
fn hash_of(label: u64, predecessors: u128) -> u128 {
    let low = mix(predecessors as u64 ^ mix((predecessors >> 64) as u64));
    pair(label, low)
}

/// Hashes shapes without making them: most behaviours of a long run are like one that is known, and there may be millions.
#[derive(Default)]
pub(crate) struct ShapeHasher {
    nodes: Vec<Hashed>,
    /// Positions, in the order in which they are persistent.
    persistent: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Hashed {
    seq: u64,
    rank: u32,
    label: u64,
    persistent_at: u64,
    /// If it is in the order of its line.
    line: Option<LineAddress>,
}

/// Nodes up to which comparing every two is the fastest.
const FEW: usize = 48;

impl ShapeHasher {
    /// As [`Shape::hash`].
    pub(super) fn hash(&mut self, parts: &[(u32, &[Node])]) -> u128 {
        let count: usize = parts.iter().map(|part| part.1.len()).sum();
        let is_after = |part: &(u32, &[Node])| part.1.iter().any(|node| !node.after.is_empty());
        if count > FEW || parts.len() > 2 || parts.iter().any(is_after) {
            return Shape::new(parts).hash();
        }
        let first = |part: &(u32, &[Node])| (part.0, part.1.first().map(|node| node.seq));
        let swapped = parts.len() == 2 && first(&parts[1]) < first(&parts[0]);
        self.nodes.clear();
        let mut ty = parts.len() as u64;
        for rank in 0..parts.len() {
            let (part_type, nodes) = parts[if swapped { 1 - rank } else { rank }];
            ty = mix(ty ^ u64::from(part_type).wrapping_add(0x9e37_79b9));
            let key = mix(u64::from(part_type) << 8 | rank as u64);
            for (n, node) in nodes.iter().enumerate() {
                let earlier = nodes[..n].iter().filter(|other| other.field == node.field).count() as u64;
                self.nodes.push(Hashed {
                    seq: node.seq,
                    rank: rank as u32,
                    label: mix(mix(key ^ node.field).wrapping_add(earlier)),
                    persistent_at: node.persistent_at,
                    line: node.line.filter(|_| node.in_line_order),
                });
            }
        }
        self.nodes.sort_by_key(|node| (node.seq, node.rank));
        self.persistent.clear();
        self.persistent.extend(0..count as u32);
        self.persistent.sort_by_key(|&at| self.nodes[at as usize].persistent_at);
        let mut persistent = self.persistent.iter().map(|&at| at as usize).peekable();
        let mut sum = 0u128;
        let mut total = pair(ty, count as u64);
        for (index, node) in self.nodes.iter().enumerate() {
            while let Some(earlier) = persistent.next_if(|&at| self.nodes[at].persistent_at <= node.seq && at < index) {
                sum = sum.wrapping_add(pair(1, self.nodes[earlier].label));
            }
            let mut predecessors = sum;
            if node.line.is_some() {
                let of_line = self.nodes[..index]
                    .iter()
                    .filter(|earlier| earlier.line == node.line && earlier.persistent_at > node.seq);
                for earlier in of_line {
                    predecessors = predecessors.wrapping_add(pair(1, earlier.label));
                }
            }
            total = total.wrapping_add(hash_of(node.label, predecessors));
        }
        total
    }
}
