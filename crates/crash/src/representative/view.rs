//! The update behaviours of a trace as `crashproof explain` shows them.

use crashproof_finding as report;
use crashproof_stacks::Stacks;
use crashproof_trace::{Outline, StackId, TraceFile};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::epochs::Member;
use super::groups::{Group, shape_of};
use super::subject::Subjects;
use super::typed::Typed;
use super::{Behaviours, NEVER, analyse, show_all};
use crate::campaign::CampaignOptions;
use crate::error::CrashError;

/// All groups of update behaviours, the one that represents most first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BehaviourList {
    pub counts: report::Behaviours,
    pub behaviours: Vec<Behaviour>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A representative, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Behaviour {
    /// One type, or two if it is joint.
    pub types: Vec<String>,
    /// Behaviours of its group, itself included.
    pub represents: u64,
    /// Different ones among them.
    pub shapes: usize,
    /// Crash points at which it is tested.
    pub points: usize,
    /// In the order of execution.
    pub updates: Vec<BehaviourUpdate>,
    /// Which update must persist before which, without what follows from others.
    pub edges: Vec<(usize, usize)>,
}

/// A store of a behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BehaviourUpdate {
    /// Which of the behaviour's types.
    pub of: usize,
    /// As the type has it; where the code has no types, the place in the code.
    pub field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    pub pm_file: String,
    pub offset: u64,
    pub length: u32,
    /// Number of the event, as `crashproof dump` has it.
    pub event: u64,
    /// The event that made it persistent; none did if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_at: Option<u64>,
}

/// Finds the update behaviours of a trace. Of the options those count that say what the model is and where to begin and end.
pub fn behaviour_list(trace: &TraceFile, options: &CampaignOptions) -> Result<BehaviourList, CrashError> {
    let mut subjects = Typed::open(trace, options.joint)?;
    let behaviours = analyse(options, &mut subjects, |show| show_all(trace, show))?;
    let mut viewer = Viewer::new(&behaviours, &subjects, trace.outline());
    let mut groups: Vec<&Group> = behaviours.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    let list = groups.iter().filter_map(|group| viewer.behaviour(group)).collect();
    Ok(BehaviourList {
        counts: behaviours.report(),
        behaviours: list,
        warnings: subjects.warnings().to_vec(),
    })
}

pub(super) struct Viewer<'a> {
    behaviours: &'a Behaviours,
    subjects: &'a Typed,
    outline: &'a Outline,
    stacks: Stacks,
    positions: FxHashMap<StackId, report::Frame>,
}

impl<'a> Viewer<'a> {
    pub(super) fn new(behaviours: &'a Behaviours, subjects: &'a Typed, outline: &'a Outline) -> Viewer<'a> {
        Viewer {
            behaviours,
            subjects,
            outline,
            stacks: Stacks::default(),
            positions: FxHashMap::default(),
        }
    }

    fn behaviour(&mut self, group: &Group) -> Option<Behaviour> {
        let member = self.behaviours.members(group).next()?;
        Some(self.member(group, member))
    }

    /// One of the behaviours of a group.
    pub(super) fn member(&mut self, group: &Group, member: &Member) -> Behaviour {
        let epochs: Vec<_> = member
            .epochs
            .iter()
            .filter_map(|id| self.behaviours.epochs.get(id))
            .collect();
        let mut updates: Vec<(usize, &super::shape::Node)> = Vec::new();
        for (of, epoch) in epochs.iter().enumerate() {
            updates.extend(epoch.nodes.iter().map(|node| (of, node)));
        }
        updates.sort_by_key(|(of, node)| (node.seq, *of));
        let types = epochs.iter().map(|epoch| self.subjects.type_name(epoch.ty())).collect();
        let views: Vec<BehaviourUpdate> = updates
            .iter()
            .map(|&(of, node)| {
                let position = self.position(node.stack);
                let pm_file = self.outline.tables.file(node.at.file);
                BehaviourUpdate {
                    of,
                    field: self.subjects.field_name(epochs[of].ty(), node.field),
                    function: position.function,
                    file: position.file,
                    line: position.line,
                    pm_file: pm_file.map(|file| file.path.clone()).unwrap_or_default(),
                    offset: node.at.offset,
                    length: node.len,
                    event: node.seq,
                    persistent_at: (node.persistent_at != NEVER).then_some(node.persistent_at),
                }
            })
            .collect();
        Behaviour {
            types,
            represents: group.count,
            shapes: group.classes.len(),
            points: self.behaviours.points(member).len(),
            updates: views,
            edges: self.edges(member),
        }
    }

    /// Where the store is in the program's own source, as far as that is known.
    fn position(&mut self, stack: StackId) -> report::Frame {
        if let Some(known) = self.positions.get(&stack) {
            return known.clone();
        }
        let frames = self.stacks.symbolize(stack, &self.outline.tables).frames;
        let position = report::blamed(&frames).or(frames.first()).cloned();
        let position = position.unwrap_or_default();
        self.positions.insert(stack, position.clone());
        position
    }

    fn edges(&self, member: &Member) -> Vec<(usize, usize)> {
        let shape = shape_of(&member.epochs, &self.behaviours.epochs);
        reduce(shape.nodes.len(), &shape.edge_list())
    }
}

/// Leaves out edges that follow from others. Edges lead from smaller to larger numbers.
fn reduce(nodes: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let words = nodes.div_ceil(64);
    let mut after = vec![vec![0u64; words]; nodes];
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for &(from, to) in edges {
        next[from].push(to);
    }
    let mut kept = Vec::new();
    for from in (0..nodes).rev() {
        next[from].sort_unstable();
        for &to in &next[from] {
            if after[from][to / 64] >> (to % 64) & 1 == 0 {
                kept.push((from, to));
                let (reached, of) = (after[to].clone(), &mut after[from]);
                of.iter_mut().zip(reached).for_each(|(set, more)| *set |= more);
                of[to / 64] |= 1 << (to % 64);
            }
        }
    }
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_left_out() {
        let edges = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)];
        assert_eq!(reduce(4, &edges), [(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(reduce(3, &[(0, 1), (1, 2), (0, 2)]), [(0, 1), (1, 2)]);
        assert_eq!(reduce(0, &[]), []);
    }
}
