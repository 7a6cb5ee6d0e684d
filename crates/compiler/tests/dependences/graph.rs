//! The full dependence graph of a run: a node for every executed instruction, and what follows from it by the definition, word for word.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An executed instruction.
#[derive(Default)]
pub(crate) struct Instance {
    /// What its value, or what it writes, was computed from.
    pub data: Vec<usize>,
    /// Branches that decided which value that is.
    pub control: Vec<usize>,
    pub access: Option<Access>,
    /// For the paper's graph: the nearest open branch, and the stores to PM that a load reads from.
    pub governed_by: Option<usize>,
    pub stored_by: Vec<usize>,
}

/// An access to PM. Its own dependences; as a value, a load is nothing but itself.
pub(crate) struct Access {
    pub store: bool,
    pub offset: u64,
    pub length: u64,
    pub data: Vec<usize>,
    pub control: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct Graph {
    pub instances: Vec<Instance>,
    depends: RefCell<HashMap<usize, bool>>,
}

impl Graph {
    pub(crate) fn add(&mut self, instance: Instance) -> usize {
        self.instances.push(instance);
        self.instances.len() - 1
    }

    fn is_load(&self, node: usize) -> bool {
        self.instances[node].access.as_ref().is_some_and(|access| !access.store)
    }

    /// The loads from PM that can be reached with nothing but other values in between; true if a path to it has a control edge.
    fn nearest_loads(&self, data: &[usize], control: &[usize]) -> BTreeMap<usize, bool> {
        let mut found: BTreeMap<usize, bool> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut paths: Vec<(usize, bool)> = data.iter().map(|&node| (node, false)).collect();
        paths.extend(control.iter().map(|&node| (node, true)));
        while let Some((node, by_control)) = paths.pop() {
            if !seen.insert((node, by_control)) {
                continue;
            }
            if self.is_load(node) {
                *found.entry(node).or_default() |= by_control;
                continue;
            }
            let instance = &self.instances[node];
            paths.extend(instance.data.iter().map(|&next| (next, by_control)));
            paths.extend(instance.control.iter().map(|&next| (next, true)));
        }
        found
    }

    /// Whether a value depends on any load from PM. Edges lead to what was there before, so that stays.
    pub(crate) fn depends(&self, node: usize) -> bool {
        let known = self.depends.borrow().get(&node).copied();
        known.unwrap_or_else(|| {
            let depends = !self.nearest_loads(&[node], &[]).is_empty();
            self.depends.borrow_mut().insert(node, depends);
            depends
        })
    }

    /// Every access with its dependences.
    pub(crate) fn edges(&self) -> Vec<(usize, &Access, BTreeMap<usize, bool>)> {
        let accesses = self.instances.iter().enumerate();
        accesses
            .filter_map(|(node, instance)| {
                let access = instance.access.as_ref()?;
                Some((node, access, self.nearest_loads(&access.data, &access.control)))
            })
            .collect()
    }

    /// How many pairs of accesses a path joins in the paper's graph: through memory of both kinds, other accesses, and all branches around.
    pub(crate) fn paper_edges(&self) -> usize {
        let mut pairs = 0;
        for (node, instance) in self
            .instances
            .iter()
            .enumerate()
            .filter(|(_, instance)| instance.access.is_some())
        {
            let mut seen = BTreeSet::new();
            let mut paths = self.all_edges(instance);
            while let Some(next) = paths.pop() {
                if next != node && seen.insert(next) {
                    paths.extend(self.all_edges(&self.instances[next]));
                }
            }
            pairs += seen
                .iter()
                .filter(|&&other| self.instances[other].access.is_some())
                .count();
        }
        pairs
    }

    fn all_edges(&self, instance: &Instance) -> Vec<usize> {
        let mut edges = [&instance.data[..], &instance.control, &instance.stored_by].concat();
        edges.extend(instance.governed_by);
        if let Some(access) = &instance.access {
            edges.extend(access.data.iter().chain(&access.control));
        }
        edges
    }
}
