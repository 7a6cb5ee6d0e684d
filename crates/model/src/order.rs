//! What may have persisted at a crash: one definition for every model.
//!
//! What reaches the medium independently of everything else is a *unit*: a cache line, a page of a file, a file's size, a
//! directory entry, a file system's journal. The *updates* of a unit that are not guaranteed to have persisted form one or
//! more *chains*: of a chain a prefix has persisted. An update may belong to several chains (a renaming, to those of both
//! directories) or to none (a non-temporal store). A model may add *edges* between updates of different units. Together that
//! is a partial order, and
//!
//! > a crash state is a down-closed set of it: an update has persisted only if everything before it has.
//!
//! The contents of a state are what is guaranteed, with the updates of the set applied in program order. What is guaranteed
//! must be down-closed itself: the model's rules have to see to it.
//!
//! Px86 has no edges between units: the cached stores of a line are a chain, in program order (so are the words of a store
//! that tears), and a non-temporal store is in none. `--reorder-in-line` puts no store into a chain. eADR is the same, with
//! cached stores guaranteed at once.
//!
//! Two states may have the same contents (a store of the value that was there, a store overwritten by another): telling
//! them apart is left to the caller, who knows the data.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::ByteSet;
use crate::line::{Line, Tag};

/// Updates that are not guaranteed to have persisted, numbered in program order, and which must persist before which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// By update: those directly before it. They have smaller numbers.
    before: Vec<Vec<usize>>,
}

impl Order {
    /// So many updates, each by itself.
    pub fn unordered(updates: usize) -> Order {
        Order {
            before: vec![Vec::new(); updates],
        }
    }

    /// Number of updates.
    pub fn len(&self) -> usize {
        self.before.len()
    }

    /// Whether there are no updates.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    fn may_persist(&self, update: usize, persisted: &[bool]) -> bool {
        self.before[update].iter().all(|&earlier| persisted[earlier])
    }

    /// Grows the set to the smallest crash state that holds it.
    pub fn raise(&self, persisted: &mut [bool]) {
        for update in (0..self.len()).rev().filter(|&update| !self.before[update].is_empty()) {
            if persisted[update] {
                self.before[update]
                    .iter()
                    .for_each(|&earlier| persisted[earlier] = true);
            }
        }
    }

    /// Shrinks the set to the largest crash state within it.
    pub fn lower(&self, persisted: &mut [bool]) {
        for update in 0..self.len() {
            persisted[update] &= self.may_persist(update, persisted);
        }
    }

    /// All crash states, each once, from "nothing" to "everything". The next one takes time in the number of updates.
    pub fn states(&self) -> CrashStates<'_> {
        CrashStates {
            order: self,
            next: Some(vec![false; self.len()]),
        }
    }
}

/// Puts updates in order by the chains that they belong to.
#[derive(Clone, Debug)]
pub struct Chains<C> {
    order: Order,
    /// Of each chain.
    last: FxHashMap<C, usize>,
}

impl<C> Default for Chains<C> {
    fn default() -> Chains<C> {
        Chains {
            order: Order::default(),
            last: FxHashMap::default(),
        }
    }
}

impl<C: Eq + Hash> Chains<C> {
    /// Adds the program's next update: it persists after what came last in each of its chains, and after what the edges to it come
    /// from. Returns its number.
    pub fn update(&mut self, chains: impl IntoIterator<Item = C>, edges: impl IntoIterator<Item = usize>) -> usize {
        let update = self.order.len();
        let last = chains.into_iter().filter_map(|chain| self.last.insert(chain, update));
        // An update that names a chain twice does not come before itself.
        let before = last.chain(edges).filter(|&earlier| earlier < update);
        self.order.before.push(before.collect());
        update
    }

    /// The order of the updates so far.
    pub fn order(self) -> Order {
        self.order
    }
}

/// The order in which the stores of some cache lines (or other units) persist, numbered line after line.
pub fn order_of<'l, T: Tag<B> + 'l, B: ByteSet + 'l>(
    lines: impl IntoIterator<Item = &'l Line<T, B>>,
    reorder_in_line: bool,
) -> Order {
    let mut chains = Chains::default();
    for (number, line) in lines.into_iter().enumerate() {
        for store in line.stores() {
            chains.update((!store.nontemporal && !reorder_in_line).then_some(number), []);
        }
    }
    chains.order()
}

/// The crash states of an order: for each update, whether it has persisted.
pub struct CrashStates<'o> {
    order: &'o Order,
    next: Option<Vec<bool>>,
}

impl Iterator for CrashStates<'_> {
    type Item = Vec<bool>;

    fn next(&mut self) -> Option<Vec<bool>> {
        let state = self.next.take()?;
        // Counts up: whatever the updates before it are, "nothing" is allowed for those after it.
        let mut following = state.clone();
        for update in (0..state.len()).rev() {
            if !following[update] && self.order.may_persist(update, &following) {
                following[update] = true;
                self.next = Some(following);
                break;
            }
            following[update] = false;
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Bytes, Keep, Model, Store};

    /// All sets, and of each whether it is down-closed.
    fn naive(order: &Order) -> BTreeSet<Vec<bool>> {
        let sets = (0..1u32 << order.len()).map(|bits| -> Vec<bool> {
            let bit = |update: usize| bits & 1 << update != 0;
            (0..order.len()).map(bit).collect()
        });
        sets.filter(|set| (0..order.len()).all(|update| !set[update] || order.may_persist(update, set)))
            .collect()
    }

    /// Updates in up to two of three chains, with edges between them.
    fn order() -> impl Strategy<Value = Order> {
        let edges = prop::collection::vec(any::<prop::sample::Index>(), 0..2);
        let update = (prop::collection::vec(0..3u8, 0..3), edges);
        prop::collection::vec(update, 0..9).prop_map(|updates| {
            let mut chains = Chains::default();
            for (number, (of, edges)) in updates.into_iter().enumerate() {
                let edges = edges.iter().filter(|_| number > 0).map(|edge| edge.index(number));
                chains.update(of, edges.collect::<Vec<_>>());
            }
            chains.order()
        })
    }

    fn within(small: &[bool], large: &[bool]) -> bool {
        small.iter().zip(large).all(|(small, large)| small <= large)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn states_are_the_down_closed_sets(order in order()) {
            let states: Vec<Vec<bool>> = order.states().collect();
            let distinct: BTreeSet<Vec<bool>> = states.iter().cloned().collect();
            prop_assert_eq!(states.len(), distinct.len());
            prop_assert_eq!(states.first(), Some(&vec![false; order.len()]));
            prop_assert_eq!(states.last(), Some(&vec![true; order.len()]));
            prop_assert_eq!(distinct, naive(&order));
        }

        #[test]
        fn raised_and_lowered_sets_are_the_nearest_states(order in order(), set in prop::collection::vec(any::<bool>(), 9)) {
            let set = &set[..order.len()];
            let (mut raised, mut lowered) = (set.to_vec(), set.to_vec());
            order.raise(&mut raised);
            order.lower(&mut lowered);
            let states = naive(&order);
            prop_assert!(states.contains(&raised) && states.contains(&lowered));
            for state in &states {
                prop_assert!(!within(set, state) || within(&raised, state));
                prop_assert!(!within(state, set) || within(state, &lowered));
            }
        }

        /// Of each line a prefix of the cached stores and any of the others; or, reordered, any of all.
        #[test]
        fn lines_hold_prefixes_and_subsets(
            stores in prop::collection::vec((0..3usize, any::<bool>()), 0..9),
            reorder in any::<bool>(),
        ) {
            let mut lines: [Line<u32>; 3] = Default::default();
            for (tag, &(line, nontemporal)) in (0..).zip(&stores) {
                let store = Store { bytes: Bytes::range(0, 8), thread: 0, nontemporal, tag };
                lines[line].store(Model::Px86, Keep::All, store);
            }
            let numbered: Vec<(usize, bool)> = lines.iter().enumerate()
                .flat_map(|(line, of)| of.stores().iter().map(move |store| (line, store.nontemporal || reorder)))
                .collect();
            let sets = (0..1u32 << numbered.len()).filter(|bits| {
                (0..3).all(|line| {
                    let cached = (0..numbered.len()).filter(|&store| numbered[store] == (line, false));
                    let persisted: Vec<bool> = cached.map(|store| bits & 1 << store != 0).collect();
                    persisted.is_sorted_by(|earlier, later| earlier >= later)
                })
            });
            let expected: BTreeSet<Vec<bool>> =
                sets.map(|bits| (0..numbered.len()).map(|store| bits & 1 << store != 0).collect()).collect();
            prop_assert_eq!(order_of(&lines, reorder).states().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn an_update_of_two_chains_persists_after_both() {
        let mut chains = Chains::default();
        chains.update(["from"], []);
        chains.update(["to"], []);
        let rename = chains.update(["from", "to", "to"], []);
        chains.update(["to"], []);
        let order = chains.order();
        let mut persisted = [false; 4];
        persisted[rename] = true;
        order.raise(&mut persisted);
        assert_eq!(persisted, [true, true, true, false]);
        let mut persisted = [true, false, true, true];
        order.lower(&mut persisted);
        assert_eq!(persisted, [true, false, false, false]);
    }

    #[test]
    fn nothing_has_one_state() {
        assert_eq!(Order::default().states().count(), 1);
    }
}
