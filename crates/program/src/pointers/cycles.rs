//! Cycles of the inclusion graph: collapsed if they are of inclusions alone; shifts in a cycle become any number of steps.

use rustc_hash::FxHashMap;

use super::graph::{Effect, Graph};
use super::offsets::{Shift, gcd};

/// Collapses; returns the representatives in topological order.
pub(super) fn collapse(graph: &mut Graph) -> Vec<u32> {
    graph.settle();
    tidy(graph);
    steps(graph);
    let components = components(graph, inclusions);
    let mut order = Vec::with_capacity(components.len());
    for component in components.iter().rev() {
        for other in &component[1..] {
            graph.unite(component[0], *other);
        }
        order.push(component[0]);
    }
    tidy(graph);
    order
}

/// Inclusions between representatives, each once.
fn tidy(graph: &mut Graph) {
    for node in 0..graph.sets.len() as u32 {
        let at = node as usize;
        if graph.representative[at] != node {
            continue;
        }
        let (mut inclusions, mut recent) = (
            std::mem::take(&mut graph.inclusions[at]),
            std::mem::take(&mut graph.recent[at]),
        );
        for list in [&mut inclusions, &mut recent] {
            list.iter_mut().for_each(|to| *to = graph.find(*to));
            list.sort_unstable();
            list.dedup();
            list.retain(|to| *to != node);
        }
        recent.retain(|to| inclusions.binary_search(to).is_err());
        graph.inclusions[at] = inclusions;
        graph.recent[at] = recent;
    }
    for at in 0..graph.shifts.len() {
        graph.shifts[at].to = graph.find(graph.shifts[at].to);
    }
}

fn inclusions(graph: &Graph, node: u32, next: &mut Vec<u32>) {
    next.extend(&graph.inclusions[node as usize]);
    next.extend(&graph.recent[node as usize]);
}

/// Shifts that lead from a component to itself.
fn steps(graph: &mut Graph) {
    let components = components(graph, |graph, node, next| {
        inclusions(graph, node, next);
        next.extend(shifts(graph, node).map(|shift| graph.shifts[shift as usize].to));
    });
    let mut component_of = vec![0; graph.sets.len()];
    for (number, component) in components.iter().enumerate() {
        component.iter().for_each(|node| component_of[*node as usize] = number);
    }
    // What a cycle adds up to is any multiple of the greatest common divisor of its shifts.
    let mut steps: FxHashMap<usize, u32> = FxHashMap::default();
    let mut inside = Vec::new();
    for node in components.iter().flatten() {
        for shift in shifts(graph, *node) {
            let state = graph.shifts[shift as usize];
            let component = component_of[*node as usize];
            if component != component_of[state.to as usize] {
                continue;
            }
            let step = match state.shift {
                Shift::By(by) => u32::try_from(by.unsigned_abs()).unwrap_or(1),
                Shift::Index { step, .. } | Shift::Steps(step) => step,
            };
            let common = steps.entry(component).or_insert(0);
            *common = gcd(*common, step);
            inside.push((*node, shift, component));
        }
    }
    for (node, shift, component) in inside {
        let steps = Shift::Steps(steps[&component]);
        if graph.shifts[shift as usize].shift != steps {
            graph.shifts[shift as usize].shift = steps;
            // All of it is to be shifted once more.
            let Graph { sets, unseen, .. } = graph;
            unseen[node as usize].clone_from(&sets[node as usize]);
        }
    }
}

fn shifts(graph: &Graph, node: u32) -> impl Iterator<Item = u32> {
    graph.effects[node as usize]
        .others
        .iter()
        .filter_map(|effect| match effect {
            Effect::Shift { shift } => Some(*shift),
            _ => None,
        })
}

/// The strongly connected components (Tarjan's algorithm, without recursion), each after those that it leads to.
fn components(graph: &Graph, successors: impl Fn(&Graph, u32, &mut Vec<u32>)) -> Vec<Vec<u32>> {
    const UNSEEN: u32 = u32::MAX;
    let nodes = graph.sets.len();
    let mut number = vec![UNSEEN; nodes];
    let mut low = vec![0; nodes];
    let mut is_open = vec![false; nodes];
    let mut open = Vec::new();
    let mut found = Vec::new();
    let mut count = 0;
    // The path: node, and where in `next` its successors that are left begin and end.
    let mut path: Vec<(u32, usize)> = Vec::new();
    let mut next: Vec<u32> = Vec::new();
    for start in 0..nodes as u32 {
        if number[start as usize] != UNSEEN || graph.representative[start as usize] != start {
            continue;
        }
        let mut enter = Some(start);
        loop {
            if let Some(node) = enter.take() {
                number[node as usize] = count;
                low[node as usize] = count;
                count += 1;
                open.push(node);
                is_open[node as usize] = true;
                path.push((node, next.len()));
                successors(graph, node, &mut next);
            }
            let Some(&(node, begin)) = path.last() else { break };
            if next.len() > begin {
                let to = next.pop().unwrap_or(node);
                if number[to as usize] == UNSEEN {
                    enter = Some(to);
                } else if is_open[to as usize] {
                    low[node as usize] = low[node as usize].min(number[to as usize]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                low[parent as usize] = low[parent as usize].min(low[node as usize]);
            }
            if low[node as usize] == number[node as usize] {
                let at = open.iter().rposition(|other| *other == node).unwrap_or(0);
                let component = open.split_off(at);
                component.iter().for_each(|node| is_open[*node as usize] = false);
                found.push(component);
            }
        }
    }
    found
}
