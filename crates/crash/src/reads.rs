//! The tree of reads, by which `dpor` knows states that a recovery cannot tell apart (Jaaru; dissertation §4.2.4).
//!
//! A deterministic recovery is a function of what it looks at: the first unit (page or line of the image) that it touches is
//! always the same, the second depends only on what the first held, and so on. So runs make a tree: a node is the
//! unit that is touched next, an edge is a content of it, a leaf is how the run ended. A state that leads to a leaf has
//! that leaf's verdict without a run. Each state leads to exactly one leaf, or to a node that has no edge for it yet.
//!
//! Deviation from Jaaru, which follows loads of bytes while the recovery runs: units are pages where nothing is gained by
//! telling their lines apart, and what is not tracked counts as read: the sizes and names of the files and, once a run has opened
//! the file with it, what the program had output choose the tree that a run belongs to.
//!
//! It never prunes wrongly as long as the recovery is deterministic. That is checked, not assumed: a run whose touches
//! contradict the tree is an error that ends the pruning.

use rustc_hash::FxHashMap;

use crate::executor::Verdict;

/// What a unit held.
pub(crate) type UnitHash = u64;

/// Takes half of the sum: it is only compared with other contents of the same unit.
pub(crate) fn unit_hash(content: u128) -> UnitHash {
    crate::hash::mix(content as u64) ^ (content >> 64) as u64
}

/// Touches kept in all, at 24 bytes each. Runs beyond that prune nothing.
const MAX_NODES: usize = 40 << 20;

/// Where in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Position(u32);

/// Most nodes have one edge: the first is kept in the node, the others in a table.
#[derive(Clone, Copy, Debug)]
struct Node {
    next: Next,
    content: UnitHash,
    then: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This unit is touched.
    Touch(u64),
    Ends(Verdict),
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    edges: FxHashMap<(Position, UnitHash), Position>,
    /// By what is not tracked.
    roots: FxHashMap<u128, Position>,
}

/// A recovery did not do what it had done from the same contents.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl Tree {
    pub(crate) fn root(&self, context: u128) -> Option<Position> {
        self.roots.get(&context).copied()
    }

    pub(crate) fn next(&self, at: Position) -> Next {
        self.nodes[at.0 as usize].next
    }

    /// Where a run goes on whose next unit holds this.
    pub(crate) fn follow(&self, at: Position, content: UnitHash) -> Option<Position> {
        let node = &self.nodes[at.0 as usize];
        match node.next {
            Next::Ends(_) => None,
            Next::Touch(_) if node.content == content => Some(node.then),
            Next::Touch(_) => self.edges.get(&(at, content)).copied(),
        }
    }

    /// A chain of nodes for what one run did from some touch on.
    fn add(&mut self, touches: &[(u64, UnitHash)], verdict: Verdict) -> Position {
        let first = self.nodes.len() as u32;
        for (index, &(unit, content)) in touches.iter().enumerate() {
            self.nodes.push(Node {
                next: Next::Touch(unit),
                content,
                then: Position(first + index as u32 + 1),
            });
        }
        self.nodes.push(Node {
            next: Next::Ends(verdict),
            content: 0,
            then: Position(0),
        });
        Position(first)
    }

    /// Takes in a run.
    pub(crate) fn insert(
        &mut self,
        context: u128,
        touches: &[(u64, UnitHash)],
        verdict: Verdict,
    ) -> Result<(), Contradiction> {
        let full = self.nodes.len() + touches.len() >= MAX_NODES;
        let Some(mut at) = self.root(context) else {
            if !full {
                let root = self.add(touches, verdict);
                self.roots.insert(context, root);
            }
            return Ok(());
        };
        for (done, &(unit, content)) in touches.iter().enumerate() {
            if self.next(at) != Next::Touch(unit) {
                return Err(Contradiction);
            }
            match self.follow(at, content) {
                Some(next) => at = next,
                None if full => return Ok(()),
                None => {
                    let then = self.add(&touches[done + 1..], verdict);
                    self.edges.insert((at, content), then);
                    return Ok(());
                }
            }
        }
        if self.next(at) == Next::Ends(verdict) {
            Ok(())
        } else {
            Err(Contradiction)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(tree: &Tree, context: u128, content: impl Fn(u64) -> UnitHash) -> Option<Verdict> {
        let mut at = tree.root(context)?;
        loop {
            match tree.next(at) {
                Next::Ends(verdict) => return Some(verdict),
                Next::Touch(unit) => at = tree.follow(at, content(unit))?,
            }
        }
    }

    #[test]
    fn contradictions_are_seen() {
        let mut tree = Tree::default();
        tree.insert(0, &[(1, 10), (2, 20)], Verdict::Recovers).unwrap();
        tree.insert(0, &[(1, 11), (3, 30)], Verdict::Fails).unwrap();
        assert_eq!(tree.insert(0, &[(1, 10), (2, 20)], Verdict::Recovers), Ok(()));
        assert_eq!(tree.insert(0, &[(1, 10), (2, 20)], Verdict::Fails), Err(Contradiction));
        assert_eq!(
            tree.insert(0, &[(1, 10), (4, 20)], Verdict::Recovers),
            Err(Contradiction)
        );
        assert_eq!(tree.insert(0, &[(1, 10)], Verdict::Recovers), Err(Contradiction));
        assert_eq!(
            tree.insert(0, &[(1, 11), (3, 30), (4, 1)], Verdict::Fails),
            Err(Contradiction)
        );
        assert_eq!(tree.insert(1, &[(7, 0)], Verdict::Fails), Ok(()));
    }

    /// A recovery that looks at units as their contents lead it.
    fn recover(memory: &[u8; 6], table: &[u8]) -> (Vec<(u64, UnitHash)>, Verdict) {
        let mut touched = Vec::new();
        let mut state = 0usize;
        for _ in 0..4 {
            let unit = table[state % table.len()] as usize % memory.len();
            let content = memory[unit];
            if !touched.iter().any(|&(known, _)| known == unit as u64) {
                touched.push((unit as u64, content as UnitHash));
            }
            state = state * 7 + content as usize + 1;
        }
        let verdict = if state.is_multiple_of(3) {
            Verdict::Fails
        } else {
            Verdict::Recovers
        };
        (touched, verdict)
    }

    proptest! {
        #[test]
        fn a_leaf_says_what_a_run_says(
            table in prop::collection::vec(any::<u8>(), 1..9),
            runs in prop::collection::vec(prop::array::uniform6(0..3u8), 0..40),
            asked in prop::collection::vec(prop::array::uniform6(0..3u8), 0..40),
        ) {
            let mut tree = Tree::default();
            for memory in &runs {
                let (touched, verdict) = recover(memory, &table);
                prop_assert_eq!(tree.insert(0, &touched, verdict), Ok(()));
            }
            for memory in runs.iter() {
                prop_assert!(find(&tree, 0, |unit| memory[unit as usize] as UnitHash).is_some());
            }
            for memory in runs.iter().chain(&asked) {
                if let Some(verdict) = find(&tree, 0, |unit| memory[unit as usize] as UnitHash) {
                    prop_assert_eq!(verdict, recover(memory, &table).1);
                }
            }
        }
    }
}
