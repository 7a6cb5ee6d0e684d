//! What follows from a large points-to set is worked out once for all nodes that come to have it.
//!
//! In a large program thousands of pointers point to the same thousands of objects. (Hash-consed sets, as in Barbar and Sui, SAS 2021, but only where it
//! counts: of the effects of what is new in a set.)

use super::Solver;
use crate::pointers::set::Set;

impl Solver<'_> {
    /// Many nodes come to have the same large set. What follows from it is worked out once for all of them.
    pub(super) fn shared(&mut self, set: &Set) -> Option<u32> {
        const LARGE: usize = 4;
        if set.blocks() < LARGE {
            return None;
        }
        if let Some(known) = self.shared_sets.get(set) {
            return Some(*known);
        }
        let number = self.shared_nodes.len() as u32;
        self.shared_sets.insert(set.clone(), number);
        self.shared_nodes.push((None, None));
        Some(number)
    }

    /// A node of all that is read at the locations of a shared set.
    pub(super) fn shared_read(&mut self, shared: u32, set: &Set) -> u32 {
        if let Some(node) = self.shared_nodes[shared as usize].0 {
            return node;
        }
        let node = self.graph.node();
        self.shared_nodes[shared as usize].0 = Some(node);
        self.read_all(set, node);
        node
    }

    pub(super) fn shared_written(&mut self, shared: u32, set: &Set) -> u32 {
        if let Some(node) = self.shared_nodes[shared as usize].1 {
            return node;
        }
        let node = self.graph.node();
        self.shared_nodes[shared as usize].1 = Some(node);
        self.write_all(node, set);
        node
    }

    pub(super) fn read_all(&mut self, locations: &Set, to: u32) {
        for location in locations.iter() {
            let from = self.read(location);
            self.graph.include(from, to);
        }
    }

    pub(super) fn write_all(&mut self, from: u32, locations: &Set) {
        for location in locations.iter() {
            if let Some(to) = self.written(location) {
                self.graph.include(from, to);
            }
        }
    }
}
