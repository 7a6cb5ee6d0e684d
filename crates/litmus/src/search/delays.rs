//! Where a store that moves may come: as late as makes no difference.
//!
//! A sequence in which it comes earlier is as good with the store right before the next thing that can tell: a flush of its lines, a fence that may serve it, a store that has to
//! come after it, or before which a new fence may lie; or another store that moves and for which the same holds. What it needs itself has come no later by then. So
//! it need be tried at no other place; but for a locked one, whose fence may serve others anywhere. Where new fences cost more in one place than in another, they are no longer alike, and every place is tried.

use super::run::{AHEAD, LEFT};
use super::{Piece, Search};

pub(super) struct Delays {
    /// For each step and the end, the movable stores that what comes there can tell from later ones.
    told: Vec<Vec<bool>>,
    /// For each movable store, the others that can tell it.
    by_movable: Vec<Vec<usize>>,
    everywhere: bool,
}

impl Delays {
    pub(super) fn of(search: &Search, pieces: &[&Piece]) -> Delays {
        let movable = || search.movable.iter().map(|movable| movable.store);
        let is_served = |store: usize| !search.stores[store].own.is_empty();
        let by_store = |later: usize, store: usize| {
            let after = &search.stores[later];
            let fences = after.locked || !after.required.is_empty();
            after.before.contains(&store) || (fences && is_served(store))
        };
        let by_piece = |piece: &Piece, store: usize| match piece {
            Piece::Store(later) => by_store(*later, store),
            Piece::Fence { .. } => is_served(store),
            Piece::Flush { class, .. } => {
                let mut lines = search.litmus.stores[search.stores[store].id].at.lines();
                lines.any(|line| search.classes[*class].lines.contains(&line))
            }
        };
        let told = pieces.iter().map(|piece| {
            movable()
                .map(|store| search.stores[store].locked || by_piece(piece, store))
                .collect()
        });
        let end = vec![true; search.movable.len()];
        let others = |store: usize| {
            let tells = |(_, other): &(usize, usize)| *other != store && by_store(*other, store);
            movable().enumerate().filter(tells).map(|(m, _)| m).collect()
        };
        Delays {
            told: told.chain([end]).collect(),
            by_movable: movable().map(others).collect(),
            everywhere: search.litmus.is_weighted(),
        }
    }

    /// Which movable stores need be tried before a step.
    pub(super) fn wanted(&self, step: usize, states: &[u8]) -> Vec<bool> {
        if self.everywhere {
            return vec![true; states.len()];
        }
        let is_to_come = |m: usize| states[m] == AHEAD || states[m] == LEFT;
        let mut wanted = match self.told.get(step) {
            Some(told) => told.clone(),
            None => vec![true; states.len()],
        };
        loop {
            let more = (0..wanted.len()).find(|&m| {
                let told = |other: &usize| wanted[*other] && is_to_come(*other);
                !wanted[m] && self.by_movable[m].iter().any(told)
            });
            match more {
                Some(m) => wanted[m] = true,
                None => return wanted,
            }
        }
    }
}
