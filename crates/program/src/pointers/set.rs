//! Sets of small numbers: sorted blocks of 64 bits, of which only those that hold something are kept.
//!
//! Points-to sets are small or clustered, are only ever added to, and what matters is what an addition brought; so a sorted list that is merged
//! is all that is needed.

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Set {
    blocks: Vec<(u32, u64)>,
}

impl Set {
    pub(super) fn from_sorted(values: &[u32]) -> Set {
        let mut set = Set::default();
        for value in values {
            let bit = 1 << (value % 64);
            match set.blocks.last_mut() {
                Some(last) if last.0 == value / 64 => last.1 |= bit,
                _ => set.blocks.push((value / 64, bit)),
            }
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(|(_, bits)| bits.count_ones() as usize).sum()
    }

    pub(super) fn contains(&self, value: u32) -> bool {
        let found = self.blocks.binary_search_by_key(&(value / 64), |block| block.0);
        found.is_ok_and(|at| self.blocks[at].1 & (1 << (value % 64)) != 0)
    }

    /// Whether it was not there before.
    pub(super) fn insert(&mut self, value: u32) -> bool {
        let bit = 1 << (value % 64);
        match self.blocks.binary_search_by_key(&(value / 64), |block| block.0) {
            Ok(at) => {
                let is_new = self.blocks[at].1 & bit == 0;
                self.blocks[at].1 |= bit;
                is_new
            }
            Err(at) => {
                self.blocks.insert(at, (value / 64, bit));
                true
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Set) {
        if self.blocks.is_empty() {
            self.blocks.clone_from(&other.blocks);
            return;
        }
        // Mostly the blocks are there already.
        let mut at = 0;
        let mut absent = 0;
        for &(index, bits) in &other.blocks {
            while at < self.blocks.len() && self.blocks[at].0 < index {
                at += 1;
            }
            match self.blocks.get_mut(at) {
                Some(block) if block.0 == index => block.1 |= bits,
                _ => absent += 1,
            }
        }
        if absent == 0 {
            return;
        }
        // From the back, in place.
        let (mut from, mut other_from) = (self.blocks.len(), other.blocks.len());
        self.blocks.resize(from + absent, (0, 0));
        let mut to = self.blocks.len();
        while other_from > 0 {
            let theirs = other.blocks[other_from - 1];
            to -= 1;
            if from > 0 && self.blocks[from - 1].0 >= theirs.0 {
                from -= 1;
                self.blocks[to] = self.blocks[from];
                if self.blocks[to].0 == theirs.0 {
                    other_from -= 1;
                }
            } else {
                self.blocks[to] = theirs;
                other_from -= 1;
            }
        }
    }

    pub(super) fn without(&self, other: &Set) -> Set {
        let mut blocks = Vec::new();
        let mut at = 0;
        for &(index, bits) in &self.blocks {
            while at < other.blocks.len() && other.blocks[at].0 < index {
                at += 1;
            }
            let theirs = other.blocks.get(at).filter(|block| block.0 == index);
            let left = bits & !theirs.map_or(0, |block| block.1);
            if left != 0 {
                blocks.push((index, left));
            }
        }
        Set { blocks }
    }

    /// Puts others in the place of those that are to be replaced.
    pub(super) fn replace(&mut self, replaced: &Set, by: impl Fn(u32) -> u32) {
        let kept = self.without(replaced);
        if kept.blocks == self.blocks {
            return;
        }
        let gone = self.without(&kept);
        *self = kept;
        for value in gone.iter() {
            self.insert(by(value));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(|&(index, bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Set;

    fn set(values: &BTreeSet<u32>) -> Set {
        let mut set = Set::default();
        for &value in values {
            assert!(set.insert(value));
        }
        set
    }

    proptest! {
        #[test]
        fn like_a_tree(
            a in prop::collection::btree_set(0u32..1000, 0..40),
            b in prop::collection::btree_set(0u32..1000, 0..40),
        ) {
            let (mut left, right) = (set(&a), set(&b));
            prop_assert!(left.iter().eq(a.iter().copied()));
            prop_assert_eq!(&left, &Set::from_sorted(&a.iter().copied().collect::<Vec<_>>()));
            prop_assert_eq!(left.len(), a.len());
            prop_assert!((0..1000).all(|value| left.contains(value) == a.contains(&value)));
            let news: BTreeSet<u32> = b.difference(&a).copied().collect();
            prop_assert!(right.without(&left).iter().eq(news.iter().copied()));
            left.merge(&right);
            prop_assert!(left.iter().eq(a.union(&b).copied()));
        }
    }
}
