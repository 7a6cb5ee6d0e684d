//! Delta debugging: the fewest stores that matter.
//!
//! This is `ddmin` (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002; Squint, dissertation
//! §4.4.5, steps back from a failing state to the last one that did not fail in the same spirit), with two deviations.
//!
//! Not every set of missing updates can be missing: what comes after a missing one is missing, too. So a set is first made
//! closed: taking an item out takes out what it comes after. The result is closed, and 1-minimal among closed sets: taking any
//! one item out, with what it comes after, gives a set that does not pass the test any more.
//!
//! Items come in groups, the source lines. Whole groups go first, so that a result names few of them.

use crashproof_model::Order;

/// Updates that may be missing.
pub(crate) struct Items {
    /// Which persists before which: what is not in a set is a crash state.
    pub order: Order,
    /// By item: the group's number.
    pub groups: Vec<usize>,
}

impl Items {
    /// The missing items, if `close` makes those a crash state that are not.
    fn closed(&self, set: &[usize], close: impl FnOnce(&Order, &mut [bool])) -> Vec<usize> {
        let mut persisted = vec![true; self.order.len()];
        for &item in set {
            persisted[item] = false;
        }
        close(&self.order, &mut persisted);
        (0..persisted.len()).filter(|&item| !persisted[item]).collect()
    }

    /// The largest closed subset.
    fn interior(&self, set: &[usize]) -> Vec<usize> {
        self.closed(set, Order::raise)
    }

    /// The smallest closed superset.
    fn closure(&self, set: &[usize]) -> Vec<usize> {
        self.closed(set, Order::lower)
    }

    /// The set in units that are taken out together.
    fn by_group(&self, set: &[usize]) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = Vec::new();
        let mut of_group = rustc_hash::FxHashMap::default();
        for &item in set {
            let unit = *of_group.entry(self.groups[item]).or_insert_with(|| {
                units.push(Vec::new());
                units.len() - 1
            });
            units[unit].push(item);
        }
        units
    }
}

/// A closed subset of the items, ascending, that passes the test and is 1-minimal. The set of all items must pass it. No set
/// is tested twice in a row, but some are tested again: a test that is slow should remember its answers.
pub(crate) fn minimise<E>(items: &Items, mut test: impl FnMut(&[usize]) -> Result<bool, E>) -> Result<Vec<usize>, E> {
    let all: Vec<usize> = (0..items.order.len()).collect();
    if all.is_empty() || test(&[])? {
        return Ok(Vec::new());
    }
    let few_lines = ddmin(items, all, |set| items.by_group(set), &mut test)?;
    ddmin(
        items,
        few_lines,
        |set| set.iter().map(|&item| vec![item]).collect(),
        &mut test,
    )
}

fn ddmin<E>(
    items: &Items,
    mut current: Vec<usize>,
    units_of: impl Fn(&[usize]) -> Vec<Vec<usize>>,
    test: &mut impl FnMut(&[usize]) -> Result<bool, E>,
) -> Result<Vec<usize>, E> {
    let mut granularity = 2;
    'smaller: loop {
        let units = units_of(&current);
        granularity = granularity.min(units.len());
        if granularity < 2 {
            return Ok(current);
        }
        let chunks: Vec<Vec<usize>> = (0..granularity)
            .map(|n| {
                let range = n * units.len() / granularity..(n + 1) * units.len() / granularity;
                units[range].concat()
            })
            .collect();
        for chunk in &chunks {
            let candidate = items.closure(chunk);
            if candidate.len() < current.len() && test(&candidate)? {
                current = candidate;
                granularity = 2;
                continue 'smaller;
            }
        }
        for chunk in &chunks {
            let rest: Vec<usize> = current.iter().copied().filter(|item| !chunk.contains(item)).collect();
            let candidate = items.interior(&rest);
            if !candidate.is_empty() && test(&candidate)? {
                current = candidate;
                granularity = (granularity - 1).max(2);
                continue 'smaller;
            }
        }
        if granularity == units.len() {
            return Ok(current);
        }
        granularity = (granularity * 2).min(units.len());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use crashproof_model::Chains;
    use proptest::prelude::*;

    use super::*;

    fn run(items: &Items, fails: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        minimise(items, |set| Ok::<_, Infallible>(fails(set))).unwrap()
    }

    fn free(count: usize) -> Items {
        Items {
            order: Order::unordered(count),
            groups: (0..count).collect(),
        }
    }

    #[test]
    fn finds_the_one_that_matters() {
        let mut tests = 0;
        let found = minimise(&free(1000), |set| {
            tests += 1;
            Ok::<_, Infallible>(set.contains(&613))
        });
        assert_eq!(found.unwrap(), [613]);
        assert!(tests < 40, "{tests} tests");
    }

    #[test]
    fn finds_two_that_are_far_apart() {
        assert_eq!(run(&free(64), |set| set.contains(&3) && set.contains(&60)), [3, 60]);
    }

    #[test]
    fn what_passes_with_nothing_needs_nothing() {
        assert_eq!(run(&free(5), |_| true), [] as [usize; 0]);
        assert_eq!(run(&free(0), |_| false), [] as [usize; 0]);
    }

    #[test]
    fn what_comes_after_is_missing_too() {
        // 0, 1, 2 are one line: if 0 is missing, so are 1 and 2.
        let items = items(&[vec![0], vec![0], vec![0], vec![1]], 4);
        assert_eq!(run(&items, |set| set.contains(&1)), [1, 2]);
        assert_eq!(run(&items, |set| set.contains(&2)), [2]);
    }

    #[test]
    fn few_source_lines_rather_than_few_stores() {
        let items = Items {
            order: Order::unordered(5),
            groups: vec![7, 7, 7, 8, 9],
        };
        // All of line 7, or one store each of lines 8 and 9.
        let fails = |set: &[usize]| [0, 1, 2].iter().all(|i| set.contains(i)) || [3, 4].iter().all(|i| set.contains(i));
        assert_eq!(run(&items, fails), [0, 1, 2]);
    }

    /// Updates with the chains that they belong to.
    fn items(updates: &[Vec<u8>], groups: usize) -> Items {
        let mut chains = Chains::default();
        for update in updates {
            chains.update(update.iter().copied(), []);
        }
        Items {
            order: chains.order(),
            groups: (0..updates.len()).map(|item| item % groups).collect(),
        }
    }

    /// Of up to two of four chains, so that those of different units may be ordered.
    fn updates() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(0..4u8, 0..3), 1..9)
    }

    fn of_bits(bits: u32, count: usize) -> Vec<usize> {
        (0..count).filter(|item| bits & 1 << item != 0).collect()
    }

    fn is_closed(items: &Items, set: &[usize]) -> bool {
        items.closure(set) == set
    }

    proptest! {
        /// Against all subsets: with a monotone test, the result is one of the smallest closed sets by inclusion.
        #[test]
        fn agrees_with_all_subsets(
            updates in updates(),
            groups in 1usize..5,
            causes in proptest::collection::vec(1u32..512, 1..4),
        ) {
            let items = items(&updates, groups);
            let count = updates.len();
            let causes: Vec<Vec<usize>> = causes.iter().map(|&bits| of_bits(bits, count)).filter(|c| !c.is_empty()).collect();
            prop_assume!(!causes.is_empty());
            let fails = |set: &[usize]| causes.iter().any(|cause| cause.iter().all(|item| set.contains(item)));
            let found = run(&items, fails);
            let failing: Vec<Vec<usize>> = (0..1u32 << count)
                .map(|bits| of_bits(bits, count))
                .filter(|set| is_closed(&items, set) && fails(set))
                .collect();
            let within = |small: &Vec<usize>, large: &Vec<usize>| small.len() < large.len() && small.iter().all(|i| large.contains(i));
            let smallest: Vec<&Vec<usize>> = failing.iter().filter(|set| !failing.iter().any(|other| within(other, set))).collect();
            prop_assert!(smallest.contains(&&found), "{found:?} is not among {smallest:?}");
        }

        /// With any test at all: closed, passes, and 1-minimal.
        #[test]
        fn is_one_minimal(
            updates in updates(),
            groups in 1usize..5,
            seed in any::<u64>(),
        ) {
            let items = items(&updates, groups);
            let count = updates.len();
            let fails = |set: &[usize]| {
                let bits: u64 = set.iter().map(|item| 1 << item).sum();
                set.len() == count || (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).count_ones().is_multiple_of(3)
            };
            let found = run(&items, fails);
            prop_assert!(is_closed(&items, &found) && fails(&found));
            for &item in &found {
                let rest: Vec<usize> = found.iter().copied().filter(|&other| other != item).collect();
                let smaller = items.interior(&rest);
                prop_assert!(!fails(&smaller), "{smaller:?} of {found:?}");
            }
        }
    }
}
