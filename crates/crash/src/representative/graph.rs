//! The persistence graph of the update behaviour that a crash belongs to.
//!
//! A behaviour that is kept and has the very stores that the crash is about, as many of them as any; where the stores are of one
//! that was only counted, the kept one that stores from the same call paths.

use std::collections::BTreeSet;

use crashproof_finding::Frame;
use crashproof_finding::picture::{Graph, GraphNode};
use crashproof_trace::{Item, StackId, TraceFile};
use rustc_hash::FxHashMap;

use super::epochs::Member;
use super::groups::Group;
use super::typed::Typed;
use super::view::{Behaviour, BehaviourUpdate, Viewer};
use super::{Behaviours, analyse, show_all};
use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::explain::Scene;

/// Nodes of a graph that can still be read; a larger one is not shown.
const MAX_NODES: usize = 64;

/// For each scene the graph of its behaviour, if it has one.
pub(crate) fn graphs(
    trace: &TraceFile,
    options: &CampaignOptions,
    scenes: &[Scene],
) -> Result<Vec<Option<Graph>>, CrashError> {
    let mut subjects = Typed::open(trace, options.joint)?;
    let behaviours = analyse(options, &mut subjects, |show| show_all(trace, show))?;
    // Where the stores were made.
    let named: BTreeSet<u64> = scenes.iter().flat_map(Scene::events).collect();
    let mut stacks: FxHashMap<u64, StackId> = FxHashMap::default();
    let mut reader = trace.files()?;
    while let Some(item) = reader.next()? {
        if let Item::Event(event) = item
            && named.contains(&event.seq)
        {
            stacks.insert(event.seq, event.stack);
        }
    }
    let mut viewer = Viewer::new(&behaviours, &subjects, trace.outline());
    let graph = |scene: &Scene| {
        let (group, member) = behaviour_of(&behaviours, scene, &stacks)?;
        Some(draw(viewer.member(group, member), scene))
    };
    Ok(scenes.iter().map(graph).collect())
}

fn behaviour_of<'a>(
    behaviours: &'a Behaviours,
    scene: &Scene,
    stacks: &FxHashMap<u64, StackId>,
) -> Option<(&'a Group, &'a Member)> {
    let events = scene.events();
    let paths: BTreeSet<StackId> = events.iter().filter_map(|event| stacks.get(event)).copied().collect();
    let mut best: Option<((usize, usize, usize), &Group, &Member)> = None;
    for group in &behaviours.groups {
        for member in behaviours.members(group) {
            let nodes = behaviours.nodes(member);
            let of: BTreeSet<(u64, StackId)> = nodes.map(|node| (node.seq, node.stack)).collect();
            let same: BTreeSet<u64> = of
                .iter()
                .map(|&(seq, _)| seq)
                .filter(|seq| events.contains(seq))
                .collect();
            let alike: BTreeSet<StackId> = of
                .iter()
                .map(|&(_, stack)| stack)
                .filter(|stack| paths.contains(stack))
                .collect();
            if of.len() > MAX_NODES || same.is_empty() && alike.is_empty() {
                continue;
            }
            // Of equal ones the smallest says it best.
            let rank = (same.len(), alike.len(), usize::MAX - of.len());
            if best.as_ref().is_none_or(|(known, ..)| rank > *known) {
                best = Some((rank, group, member));
            }
        }
    }
    best.map(|(_, group, member)| (group, member))
}

fn draw(behaviour: Behaviour, scene: &Scene) -> Graph {
    let events = scene.events();
    let node = |update: BehaviourUpdate| GraphNode {
        of: update.of,
        field: update.field,
        frame: Frame {
            function: update.function,
            file: update.file,
            line: update.line,
            ..Frame::default()
        },
        pm_file: update.pm_file,
        offset: update.offset,
        length: u64::from(update.length),
        event: update.event,
        outcome: events.contains(&update.event).then(|| scene.outcome(update.event)),
    };
    Graph {
        types: behaviour.types,
        represents: behaviour.represents,
        nodes: behaviour.updates.into_iter().map(node).collect(),
        edges: behaviour.edges,
    }
}
