//! The nodes of memory: what is written at a location, what may be read there, and what is copied from one to another.

use super::Solver;
use crate::pointers::constraints::Variable;
use crate::pointers::graph::Graph;
use crate::pointers::memory::Memory;
use crate::pointers::offsets::Offsets;
use crate::pointers::set::Set;

impl Solver<'_> {
    /// All locations of objects that have come to have too many become one.
    pub(super) fn collapse_objects(&mut self) {
        if self.memory.collapsed.is_empty() {
            return;
        }
        // They have locations that are no more.
        self.shared_shifts.clear();
        let mut retired = Set::default();
        for object in std::mem::take(&mut self.memory.collapsed) {
            let locations = self.memory.of_object(object).to_vec();
            let whole = self.memory.canonical(locations[0]);
            let (read, held) = (self.read(whole), self.held(whole));
            self.graph.include(held, read);
            for location in locations {
                for (node, whole) in [
                    (&mut self.memory.read[location as usize], read),
                    (&mut self.memory.written[location as usize], held),
                ] {
                    if let Some(node) = node.replace(whole) {
                        self.graph.same(whole, node);
                    }
                }
                if location != whole {
                    retired.insert(location);
                }
            }
            for at in 0..self.memory.watchers(object).len() {
                let (copy, source) = self.memory.watchers(object)[at];
                self.channel(copy, source, whole);
            }
        }
        let memory = &self.memory;
        let Graph { sets, news, unseen, .. } = &mut self.graph;
        for set in sets.iter_mut().chain(news).chain(unseen) {
            set.replace(&retired, |location| memory.canonical(location));
        }
    }

    /// The node of what may be read at a location.
    pub(super) fn read(&mut self, location: u32) -> u32 {
        if location == Memory::UNKNOWN {
            return self.unknown;
        }
        if let Some(node) = self.memory.read[location as usize] {
            return node;
        }
        let node = self.graph.node();
        self.memory.read[location as usize] = Some(node);
        for other in self.memory.overlapping(location) {
            if let Some(written) = self.memory.written[other as usize] {
                self.graph.include(written, node);
            }
        }
        node
    }

    /// The node to which a store at a location goes, if there can be one.
    pub(super) fn written(&mut self, location: u32) -> Option<u32> {
        if location == Memory::UNKNOWN {
            return Some(Variable::ESCAPED.0);
        }
        let object = self.memory.locations[location as usize].object;
        (!self.problem.objects[object.0 as usize].is_constant).then(|| self.held(location))
    }

    /// The node of what a location holds.
    pub(super) fn held(&mut self, location: u32) -> u32 {
        if let Some(node) = self.memory.written[location as usize] {
            return node;
        }
        let node = self.graph.node();
        self.memory.written[location as usize] = Some(node);
        for other in self.memory.overlapping(location) {
            if let Some(read) = self.memory.read[other as usize] {
                self.graph.include(node, read);
            }
        }
        let object = self.memory.locations[location as usize].object;
        for at in 0..self.memory.watchers(object).len() {
            let (copy, source) = self.memory.watchers(object)[at];
            self.channel(copy, source, location);
        }
        node
    }

    pub(super) fn copy_from(&mut self, copy: u32, source: u32) {
        if source == Memory::UNKNOWN {
            let channel = self.channel_node(copy, Offsets::anywhere(u32::MAX - 1));
            self.graph.include(self.unknown, channel);
            return;
        }
        let object = self.memory.locations[source as usize].object;
        self.memory.watch(object, copy, source);
        for at in 0..self.memory.of_object(object).len() {
            let location = self.memory.of_object(object)[at];
            if self.memory.written[location as usize].is_some() {
                self.channel(copy, source, location);
            }
        }
    }

    /// What is written at `location` is copied, if it is in the part of the object from `source` on that is.
    fn channel(&mut self, copy: u32, source: u32, location: u32) {
        let end = self.memory.end(self.memory.locations[source as usize].object);
        let [source, at] = [source, location].map(|location| self.memory.locations[location as usize].offsets);
        if let Some(relative) = self.copies[copy as usize].relative(source, at, end) {
            let channel = self.channel_node(copy, relative);
            let held = self.held(location);
            self.graph.include(held, channel);
        }
    }

    /// The node of all that is copied at a distance from the begin.
    fn channel_node(&mut self, copy: u32, relative: Offsets) -> u32 {
        if let Some(channel) = self.copies[copy as usize].numbers.get(&relative) {
            return *channel;
        }
        let channel = self.graph.node();
        self.copies[copy as usize].channels.push((relative, channel));
        self.copies[copy as usize].numbers.insert(relative, channel);
        let targets: Vec<u32> = self.copies[copy as usize].targets.iter().collect();
        for target in targets {
            self.connect(channel, relative, target);
        }
        channel
    }

    pub(super) fn connect(&mut self, channel: u32, relative: Offsets, target: u32) {
        let location = self.memory.copied_to(target, relative);
        if let Some(written) = self.written(location) {
            self.graph.include(channel, written);
        }
    }
}
