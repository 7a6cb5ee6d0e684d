//! What a repair moved, counted from the two sequences alone.

/// How the operations of the original sit in another sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moves {
    /// Stores outside a longest common subsequence of the store order.
    pub stores: usize,
    /// Flushes and fences outside a longest common subsequence that keeps the unmoved stores.
    pub others: usize,
    /// For each position of the sequence, whether what is there was moved; `false` for what is new.
    pub moved: Vec<bool>,
}

/// `sequence`: the original's operations by index, `None` for new ones; `is_store` by index.
///
/// The subsequence kept is the heaviest increasing one, a store weighing more than all the rest together.
pub fn moves(sequence: &[Option<usize>], is_store: &[bool]) -> Moves {
    let heavy = is_store.len() as u64 + 1;
    // A Fenwick tree of maxima over the original's indices: the heaviest subsequence that ends at or before each.
    let mut best = vec![(0u64, usize::MAX); is_store.len() + 1];
    let mut previous = vec![usize::MAX; sequence.len()];
    let mut heaviest = (0, usize::MAX);
    for (at, original) in sequence.iter().enumerate() {
        let Some(original) = *original else { continue };
        let mut before = (0, usize::MAX);
        let mut node = original;
        while node > 0 {
            before = before.max_by_weight(best[node]);
            node &= node - 1;
        }
        previous[at] = before.1;
        let own = (before.0 + if is_store[original] { heavy } else { 1 }, at);
        heaviest = heaviest.max_by_weight(own);
        let mut node = original + 1;
        while node < best.len() {
            best[node] = best[node].max_by_weight(own);
            node += node & node.wrapping_neg();
        }
    }
    let mut moved: Vec<bool> = sequence.iter().map(Option::is_some).collect();
    let mut kept = heaviest.1;
    while kept != usize::MAX {
        moved[kept] = false;
        kept = previous[kept];
    }
    let count = |wanted: bool| {
        let moved = sequence.iter().zip(&moved).filter(|(_, moved)| **moved);
        moved
            .filter(|(original, _)| original.is_some_and(|index| is_store[index] == wanted))
            .count()
    };
    Moves {
        stores: count(true),
        others: count(false),
        moved: moved.clone(),
    }
}

trait Heavier {
    fn max_by_weight(self, other: Self) -> Self;
}

impl Heavier for (u64, usize) {
    fn max_by_weight(self, other: Self) -> Self {
        if other.0 > self.0 { other } else { self }
    }
}
