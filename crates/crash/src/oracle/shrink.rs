//! The fewest operations with which a driver still fails: delta debugging (`ddmin`, as for stores) over whole crash tests.

use std::convert::Infallible;

use crashproof_model::Order;
use rustc_hash::FxHashMap;

use crate::explain::shrink::{Items, minimise};

/// What a crash test of some operations said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    Fails,
    Passes,
    /// There is no time left to try.
    Over,
}

/// Some of the operations, in their order, that still fail: none of them can be left out, unless the time was over before that
/// was known (then the second is false). All of them together fail. No sequence is tried twice.
pub fn fewest(operations: &[String], mut fails: impl FnMut(&[String]) -> Tried) -> (Vec<String>, bool) {
    let all: Vec<usize> = (0..operations.len()).collect();
    let mut known: FxHashMap<Vec<usize>, bool> = FxHashMap::from_iter([(all.clone(), true), (Vec::new(), false)]);
    let (mut best, mut over) = (all, false);
    let items = Items {
        order: Order::unordered(operations.len()),
        groups: (0..operations.len()).collect(),
    };
    let pick = |set: &[usize]| set.iter().map(|&at| operations[at].clone()).collect::<Vec<_>>();
    let test = |set: &[usize]| -> Result<bool, Infallible> {
        if let Some(&known) = known.get(set) {
            return Ok(known);
        }
        if over {
            return Ok(false);
        }
        let tried = fails(&pick(set));
        over |= tried == Tried::Over;
        let failed = tried == Tried::Fails;
        if failed && set.len() < best.len() {
            best = set.to_vec();
        }
        known.insert(set.to_vec(), failed);
        Ok(failed)
    };
    let Ok(_) = minimise(&items, test);
    (pick(&best), !over)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations() -> Vec<String> {
        (0..40).map(|number| number.to_string()).collect()
    }

    fn has(operations: &[String], wanted: &[&str]) -> bool {
        wanted.iter().all(|wanted| operations.iter().any(|one| one == wanted))
    }

    #[test]
    fn what_matters_is_left() {
        let mut tried = 0;
        let (fewest, minimal) = fewest(&operations(), |operations| {
            tried += 1;
            if has(operations, &["3", "17", "38"]) {
                Tried::Fails
            } else {
                Tried::Passes
            }
        });
        assert_eq!((fewest, minimal), (["3", "17", "38"].map(str::to_owned).to_vec(), true));
        assert!(tried < 150, "{tried}");
    }

    #[test]
    fn the_best_so_far_is_kept_when_the_time_is_over() {
        let mut left = 6;
        let (fewest, minimal) = fewest(&operations(), |operations| {
            left -= 1;
            match left {
                0 => Tried::Over,
                _ if has(operations, &["3", "17"]) => Tried::Fails,
                _ => Tried::Passes,
            }
        });
        assert!(
            !minimal && fewest.len() < 40 && has(&fewest, &["3", "17"]),
            "{fewest:?}"
        );
    }
}
