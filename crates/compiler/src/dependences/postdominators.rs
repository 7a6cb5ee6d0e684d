//! Which block ends the influence of a branch: its immediate post-dominator, by Cooper, Harvey and Kennedy's algorithm on the reversed graph.
//!
//! All ends of a function (return, `unreachable`, an exception that goes on) lead to a virtual exit. Where a loop never ends there is none, and its
//! last block in reverse post-order gets an edge to the virtual exit, as if the loop might be left there.

/// For each block, by the successors of all of them: `None` is the virtual exit. Block 0 is the entry.
pub(super) fn immediate_post_dominators(successors: &[Vec<usize>]) -> Vec<Option<usize>> {
    let count = successors.len();
    let exit = count;
    let mut next: Vec<Vec<usize>> = successors.to_vec();
    for successors in next.iter_mut().filter(|successors| successors.is_empty()) {
        successors.push(exit);
    }
    next.push(Vec::new());
    // What only an exception leads to comes last.
    let mut order = post_order(&next, 0);
    let others: Vec<usize> = (0..count).filter(|block| !order.contains(block)).collect();
    order.extend(others);
    loop {
        let ending = reaching(&next, exit);
        // Post-order begins with what is last in its reverse.
        let Some(&endless) = order.iter().find(|&&block| !ending[block]) else {
            break;
        };
        next[endless].push(exit);
    }

    let mut before = vec![Vec::new(); count + 1];
    for (block, successors) in next.iter().enumerate() {
        for &successor in successors {
            before[successor].push(block);
        }
    }
    // From the exit backwards.
    let order = post_order(&before, exit);
    let mut number = vec![usize::MAX; count + 1];
    for (position, &block) in order.iter().enumerate() {
        number[block] = position;
    }
    let mut dominator: Vec<Option<usize>> = vec![None; count + 1];
    dominator[exit] = Some(exit);
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().rev().filter(|&&block| block != exit) {
            let known = next[block].iter().copied().filter(|&after| dominator[after].is_some());
            let common = known.reduce(|mut one, mut other| {
                while one != other {
                    while number[one] < number[other] {
                        one = dominator[one].unwrap_or(exit);
                    }
                    while number[other] < number[one] {
                        other = dominator[other].unwrap_or(exit);
                    }
                }
                one
            });
            if dominator[block] != common {
                dominator[block] = common;
                changed = true;
            }
        }
    }
    dominator.truncate(count);
    dominator
        .into_iter()
        .map(|block| block.filter(|&block| block != exit))
        .collect()
}

fn reaching(next: &[Vec<usize>], exit: usize) -> Vec<bool> {
    let mut reaches = vec![false; next.len()];
    reaches[exit] = true;
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..next.len()).rev() {
            if !reaches[block] && next[block].iter().any(|&after| reaches[after]) {
                reaches[block] = true;
                changed = true;
            }
        }
    }
    reaches
}

/// What can be reached from `start`, each after all that can be reached from it without coming back.
pub(super) fn post_order(next: &[Vec<usize>], start: usize) -> Vec<usize> {
    let mut order = Vec::with_capacity(next.len());
    let mut seen = vec![false; next.len()];
    let mut stack = vec![(start, 0)];
    seen[start] = true;
    while let Some((block, taken)) = stack.last_mut() {
        match next[*block].get(*taken) {
            Some(&after) => {
                *taken += 1;
                if !std::mem::replace(&mut seen[after], true) {
                    stack.push((after, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: a block post-dominates another if no path from that to the exit avoids it.
    fn naive(successors: &[Vec<usize>]) -> Vec<Option<usize>> {
        let exit = successors.len();
        let mut next: Vec<Vec<usize>> = successors.to_vec();
        next.iter_mut()
            .filter(|after| after.is_empty())
            .for_each(|after| after.push(exit));
        next.push(Vec::new());
        let reaches = |from: usize, without: usize| {
            let (mut seen, mut stack) = (vec![false; exit + 1], vec![from]);
            while let Some(block) = stack.pop() {
                if block != without && !std::mem::replace(&mut seen[block], true) {
                    stack.extend(&next[block]);
                }
            }
            seen[exit]
        };
        (0..exit)
            .map(|block| {
                let strict: Vec<usize> = (0..exit)
                    .filter(|&other| other != block && !reaches(block, other))
                    .collect();
                // The nearest is post-dominated by all the others.
                let nearest = |&&one: &&usize| strict.iter().all(|&other| other == one || !reaches(one, other));
                strict.iter().find(nearest).copied()
            })
            .collect()
    }

    #[test]
    fn of_small_graphs() {
        // if/else, a loop with a break, two returns.
        assert_eq!(
            immediate_post_dominators(&[vec![1, 2], vec![3], vec![3], vec![]]),
            [Some(3), Some(3), Some(3), None]
        );
        assert_eq!(
            immediate_post_dominators(&[vec![1], vec![2, 4], vec![3, 4], vec![1], vec![]]),
            [Some(1), Some(4), Some(4), Some(1), None]
        );
        assert_eq!(
            immediate_post_dominators(&[vec![1, 2], vec![], vec![]]),
            [None, None, None]
        );
    }

    #[test]
    fn a_loop_without_end_is_left_at_its_last_block() {
        // 1 ⇄ {2, 3} → 4 → 1
        let graph = [vec![1], vec![2, 3], vec![4], vec![4], vec![1]];
        assert_eq!(
            immediate_post_dominators(&graph),
            [Some(1), Some(4), Some(4), Some(4), None]
        );
    }

    #[test]
    fn as_the_definition_says() {
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        let mut compared = 0;
        while compared < 300 {
            let count = 2 + random(9);
            let graph: Vec<Vec<usize>> = (0..count)
                .map(|_| (0..random(3)).map(|_| random(count)).collect())
                .collect();
            let with_exit: Vec<Vec<usize>> = graph
                .iter()
                .map(|next: &Vec<usize>| if next.is_empty() { vec![count] } else { next.clone() })
                .chain([vec![]])
                .collect();
            let all_end = reaching(&with_exit, count).iter().all(|&ends| ends);
            if all_end && post_order(&with_exit, 0).len() == count + 1 {
                assert_eq!(immediate_post_dominators(&graph), naive(&graph), "{graph:?}");
                compared += 1;
            }
        }
    }
}
