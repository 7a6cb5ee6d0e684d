//! The graph of inclusions between points-to sets, and what has yet to be propagated in it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::offsets::Shift;
use super::set::Set;

/// What a node's points-to set has an effect on besides the inclusions. Numbers are indices of the solver's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Shift { shift: u32 },
    CopyFrom { copy: u32 },
    CopyTo { copy: u32 },
    Call { call: u32 },
    Escape,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// The node of all that is read through the pointer, whichever load does it.
    pub read: Option<u32>,
    /// The node of all that is stored through it.
    pub written: Option<u32>,
    pub others: Vec<Effect>,
}

impl Effects {
    pub(super) fn is_empty(&self) -> bool {
        self.read.is_none() && self.written.is_none() && self.others.is_empty()
    }
}

#[derive(Clone, Copy)]
pub(super) struct ShiftState {
    pub to: u32,
    pub shift: Shift,
    /// Nothing else goes to `to`.
    pub is_alone: bool,
    /// The shift that this one has become one with.
    pub same_as: Option<u32>,
}

#[derive(Default)]
pub(super) struct Graph {
    pub representative: Vec<u32>,
    pub sets: Vec<Set>,
    /// The part of each set that has not been propagated along its inclusions.
    pub news: Vec<Set>,
    /// The part of each set that its effects have not seen.
    pub unseen: Vec<Set>,
    pub inclusions: Vec<Vec<u32>>,
    /// Inclusions that nothing has been propagated along.
    pub recent: Vec<Vec<u32>>,
    pub effects: Vec<Effects>,
    pub shifts: Vec<ShiftState>,
    known: FxHashSet<(u32, u32)>,
    /// Pairs of nodes to unite.
    same: Vec<(u32, u32)>,
    /// Nodes with effects of several.
    united: Vec<u32>,
    /// Inclusions asked for, locations looked at and blocks of sets propagated, since the begin.
    pub work: usize,
}

impl Graph {
    pub(super) fn node(&mut self) -> u32 {
        let node = self.sets.len() as u32;
        self.representative.push(node);
        self.sets.push(Set::default());
        self.news.push(Set::default());
        self.unseen.push(Set::default());
        self.inclusions.push(Vec::new());
        self.recent.push(Vec::new());
        self.effects.push(Effects::default());
        node
    }

    pub(super) fn find(&mut self, node: u32) -> u32 {
        let mut root = node;
        while self.representative[root as usize] != root {
            root = self.representative[root as usize];
        }
        let mut at = node;
        while at != root {
            at = std::mem::replace(&mut self.representative[at as usize], root);
        }
        root
    }

    /// Nothing is propagated before cycles were looked for.
    pub(super) fn include(&mut self, from: u32, to: u32) {
        self.work += 1;
        let (from, to) = (self.find(from), self.find(to));
        if from != to && self.known.insert((from, to)) {
            self.recent[from as usize].push(to);
        }
    }

    /// `to` is a representative.
    pub(super) fn add(&mut self, to: u32, set: &Set) {
        self.work += 1 + set.blocks();
        let at = to as usize;
        let difference = set.without(&self.sets[at]);
        if difference.is_empty() {
            return;
        }
        self.sets[at].merge(&difference);
        if !self.inclusions[at].is_empty() {
            self.news[at].merge(&difference);
        }
        if !self.effects[at].is_empty() {
            self.unseen[at].merge(&difference);
        }
    }

    pub(super) fn insert(&mut self, node: u32, location: u32) {
        self.work += 1;
        let at = self.find(node) as usize;
        if self.sets[at].insert(location) {
            if !self.inclusions[at].is_empty() {
                self.news[at].insert(location);
            }
            if !self.effects[at].is_empty() {
                self.unseen[at].insert(location);
            }
        }
    }

    /// Propagates along the inclusions of a representative what has not been.
    pub(super) fn propagate(&mut self, node: u32) {
        let at = node as usize;
        let recent = std::mem::take(&mut self.recent[at]);
        if !self.news[at].is_empty() {
            let news = std::mem::take(&mut self.news[at]);
            let inclusions = std::mem::take(&mut self.inclusions[at]);
            for &to in &inclusions {
                self.add(to, &news);
            }
            self.inclusions[at] = inclusions;
        }
        if !recent.is_empty() {
            let set = std::mem::take(&mut self.sets[at]);
            if !set.is_empty() {
                for &to in &recent {
                    self.add(to, &set);
                }
            }
            self.sets[at] = set;
            self.inclusions[at].extend(recent);
        }
    }

    /// Makes both one. Inclusions and effects of either have not had what only the other had. What follows from it is put off: see [`Graph::settle`].
    pub(super) fn unite(&mut self, into: u32, other: u32) {
        let (into, other) = (self.find(into) as usize, self.find(other) as usize);
        if into == other {
            return;
        }
        self.representative[other] = into as u32;
        let theirs = std::mem::take(&mut self.sets[other]);
        self.work += 1 + theirs.blocks() + self.sets[into].blocks();
        let (only_theirs, only_ours) = (theirs.without(&self.sets[into]), self.sets[into].without(&theirs));
        self.sets[into].merge(&only_theirs);
        let left = |ours: Option<Set>, theirs: Option<Set>| {
            let mut left = Set::default();
            if let Some(ours) = ours {
                left = ours;
                left.merge(&only_theirs);
            }
            if let Some(theirs) = theirs {
                left.merge(&theirs);
                left.merge(&only_ours);
            }
            left
        };
        let [news, their_news] =
            [into, other].map(|at| (!self.inclusions[at].is_empty()).then(|| std::mem::take(&mut self.news[at])));
        self.news[into] = left(news, their_news);
        let [unseen, their_unseen] =
            [into, other].map(|at| (!self.effects[at].is_empty()).then(|| std::mem::take(&mut self.unseen[at])));
        self.unseen[into] = left(unseen, their_unseen);
        for lists in [&mut self.inclusions, &mut self.recent] {
            let theirs = std::mem::take(&mut lists[other]);
            lists[into].extend(theirs);
        }
        let effects = std::mem::take(&mut self.effects[other]);
        let ours = &mut self.effects[into];
        // What is read through the one is what is read through the other.
        for (ours, theirs) in [(&mut ours.read, effects.read), (&mut ours.written, effects.written)] {
            match (*ours, theirs) {
                (Some(ours), Some(theirs)) => self.same.push((ours, theirs)),
                (None, theirs) => *ours = theirs,
                _ => {}
            }
        }
        if !effects.others.is_empty() && !ours.others.is_empty() {
            self.united.push(into as u32);
        }
        ours.others.extend(effects.others);
    }

    /// Unites what has become the same since it was last asked.
    pub(super) fn settle(&mut self) {
        loop {
            while let Some((into, other)) = self.same.pop() {
                self.unite(into, other);
            }
            let Some(node) = self.united.pop() else { return };
            let node = self.find(node);
            self.same_shifts(node as usize);
        }
    }

    /// Two nodes whose sets are the same, by what is known of memory.
    pub(super) fn same(&mut self, node: u32, other: u32) {
        self.same.push((node, other));
    }

    pub(super) fn is_settled(&self) -> bool {
        self.same.is_empty() && self.united.is_empty()
    }

    /// Of shifts of one node by the same distance one is enough, if nothing else goes to where the other does.
    fn same_shifts(&mut self, node: usize) {
        let mut seen: FxHashMap<Shift, u32> = FxHashMap::default();
        let Graph {
            effects, shifts, same, ..
        } = self;
        effects[node].others.retain(|effect| {
            let Effect::Shift { shift } = *effect else { return true };
            let state = shifts[shift as usize];
            if !state.is_alone {
                return true;
            }
            let first = *seen.entry(state.shift).or_insert(shift);
            if first != shift {
                shifts[shift as usize].same_as = Some(first);
                same.push((shifts[first as usize].to, state.to));
            }
            first == shift
        });
    }
}
