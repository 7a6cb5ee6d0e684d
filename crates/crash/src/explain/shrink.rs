//! Delta debugging: the fewest stores that matter.
//!
//! This is `ddmin` (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002; Squint, dissertation
//! §4.4.5, steps back from a failing state to the last one that did not fail in the same spirit), with two deviations.
//!
//! Not every set of stores is a crash state: cached stores of a line persist in order. So an item may require another, and a
//! set is first made closed: taking an item out takes out what requires it. The result is closed, and 1-minimal among closed
//! sets: taking any one item out, with what requires it, gives a set that does not pass the test any more.
//!
//! Items come in groups, the source lines. Whole groups go first, so that a result names few of them.

/// Which items a set must hold if it holds a certain one: none or one directly, and what that one requires.
pub struct Items {
    pub requires: Vec<Option<usize>>,
    /// By item: the group's number.
    pub groups: Vec<usize>,
}

impl Items {
    /// The largest closed subset.
    fn interior(&self, mut set: Vec<usize>) -> Vec<usize> {
        let mut held = vec![false; self.requires.len()];
        for &item in &set {
            held[item] = true;
        }
        loop {
            let before = set.len();
            // A requirement lies always before or always after its item: one of the two passes takes a whole chain.
            let mut check = |&item: &usize| {
                held[item] = self.requires[item].is_none_or(|required| held[required]);
                held[item]
            };
            set.retain(&mut check);
            set.reverse();
            set.retain(&mut check);
            set.reverse();
            if set.len() == before {
                return set;
            }
        }
    }

    /// The smallest closed superset.
    fn closure(&self, set: &[usize]) -> Vec<usize> {
        let mut held = vec![false; self.requires.len()];
        for &item in set {
            let mut next = Some(item);
            while let Some(item) = next.filter(|&item| !held[item]) {
                held[item] = true;
                next = self.requires[item];
            }
        }
        (0..held.len()).filter(|&item| held[item]).collect()
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
pub fn minimise<E>(items: &Items, mut test: impl FnMut(&[usize]) -> Result<bool, E>) -> Result<Vec<usize>, E> {
    let all: Vec<usize> = (0..items.requires.len()).collect();
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
            let rest = current.iter().copied().filter(|item| !chunk.contains(item)).collect();
            let candidate = items.interior(rest);
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

    use proptest::prelude::*;

    use super::*;

    fn run(items: &Items, fails: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        minimise(items, |set| Ok::<_, Infallible>(fails(set))).unwrap()
    }

    fn free(count: usize) -> Items {
        Items {
            requires: vec![None; count],
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
    fn a_requirement_comes_along() {
        // 0, 1, 2 are one line: if 0 is missing, so are 1 and 2.
        let items = Items {
            requires: vec![Some(1), Some(2), None, None],
            groups: vec![0, 1, 2, 3],
        };
        assert_eq!(run(&items, |set| set.contains(&1)), [1, 2]);
        assert_eq!(run(&items, |set| set.contains(&2)), [2]);
    }

    #[test]
    fn few_source_lines_rather_than_few_stores() {
        let items = Items {
            requires: vec![None; 5],
            groups: vec![7, 7, 7, 8, 9],
        };
        // All of line 7, or one store each of lines 8 and 9.
        let fails = |set: &[usize]| [0, 1, 2].iter().all(|i| set.contains(i)) || [3, 4].iter().all(|i| set.contains(i));
        assert_eq!(run(&items, fails), [0, 1, 2]);
    }

    /// Lines of stores: each item requires the next of its line (`forward`), or the one before it.
    fn items(lines: &[usize], forward: bool, groups: usize) -> Items {
        let requires = (0..lines.len())
            .map(|item| {
                let same = |&other: &usize| lines[other] == lines[item];
                if forward {
                    (item + 1..lines.len()).find(same)
                } else {
                    (0..item).rev().find(same)
                }
            })
            .collect();
        Items {
            requires,
            groups: (0..lines.len()).map(|item| item % groups).collect(),
        }
    }

    fn of_bits(bits: u32, count: usize) -> Vec<usize> {
        (0..count).filter(|item| bits & 1 << item != 0).collect()
    }

    fn is_closed(items: &Items, set: &[usize]) -> bool {
        set.iter()
            .all(|&item| items.requires[item].is_none_or(|required| set.contains(&required)))
    }

    proptest! {
        /// Against all subsets: with a monotone test, the result is one of the smallest closed sets by inclusion.
        #[test]
        fn agrees_with_all_subsets(
            lines in proptest::collection::vec(0usize..4, 1..9),
            forward in any::<bool>(),
            groups in 1usize..5,
            causes in proptest::collection::vec(1u32..512, 1..4),
        ) {
            let items = items(&lines, forward, groups);
            let count = lines.len();
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
            lines in proptest::collection::vec(0usize..4, 1..9),
            forward in any::<bool>(),
            groups in 1usize..5,
            seed in any::<u64>(),
        ) {
            let items = items(&lines, forward, groups);
            let count = lines.len();
            let fails = |set: &[usize]| {
                let bits: u64 = set.iter().map(|item| 1 << item).sum();
                set.len() == count || (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).count_ones().is_multiple_of(3)
            };
            let found = run(&items, fails);
            prop_assert!(is_closed(&items, &found) && fails(&found));
            for &item in &found {
                let smaller = items.interior(found.iter().copied().filter(|&other| other != item).collect());
                prop_assert!(!fails(&smaller), "{smaller:?} of {found:?}");
            }
        }
    }
}
