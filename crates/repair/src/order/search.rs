//! The least change of a statement list after which an order holds in every instance of it.
//!
//! The objective is that of [`crashproof_litmus::repair`]: stores moved, then fences added, flushes added, flushes and fences moved. That knows single instructions;
//! a list has statements, and what a statement depends on. So the arrangements that can be written are made in the order of their cost, and the first that is
//! safe and that the model accepts for every instance is taken.

use std::ops::RangeInclusive;

use super::instance::{Instance, Part, Piece, Roles, Strictness};
use super::moves::Movable;
use crate::source::changes::Changes;
use crate::source::refusal::Refusal;

/// A new arrangement of the list.
#[derive(Clone, Debug)]
pub(super) struct Arrangement {
    pub pieces: Vec<Piece>,
    /// Each store that has to persist first is flushed where it is made, in the units themselves.
    pub inside: bool,
    cost: Cost,
}

/// Stores moved, fences added, flushes added, flushes and fences moved.
type Cost = (usize, usize, usize, usize);

impl Arrangement {
    /// The list as it was, with a fence behind a unit.
    pub(super) fn fence_behind(units: usize, unit: usize) -> Arrangement {
        let mut pieces: Vec<Piece> = (0..units).map(|unit| Piece::Unit { unit, moved: false }).collect();
        pieces.insert(unit + 1, Piece::Fence);
        Arrangement {
            pieces,
            inside: false,
            cost: (0, 1, 0, 0),
        }
    }

    /// With some units moved forward, to right behind another.
    pub(super) fn moved_behind(units: usize, moved: RangeInclusive<usize>, behind: usize) -> Arrangement {
        let unit = |moved: bool| move |unit: usize| Piece::Unit { unit, moved };
        let rest = (behind + 1..units).filter(|unit| !moved.contains(unit));
        let persists = moved.clone().count();
        Arrangement {
            pieces: (0..=behind)
                .map(unit(false))
                .chain(moved.clone().map(unit(true)))
                .chain(rest.map(unit(false)))
                .collect(),
            inside: false,
            cost: (0, 0, 0, persists),
        }
    }

    pub(super) fn moves(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Unit { unit, moved: true } => Some(*unit),
            _ => None,
        })
    }

    pub(super) fn has_moves(&self) -> bool {
        self.moves().next().is_some()
    }

    /// The units behind which something is inserted.
    pub(super) fn touched(&self) -> Vec<usize> {
        let mut last = None;
        let mut touched = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Unit { unit, .. } => last = Some(*unit),
                Piece::Flush(_) | Piece::Fence => touched.extend(last),
            }
        }
        touched
    }

    pub(super) fn has(&self, piece: Piece) -> bool {
        self.pieces.contains(&piece)
    }

    /// With a flush and a fence behind what comes second, if nothing made that durable.
    fn with_durable_end(&self, typical: &Instance, orders: usize, loses_flush: bool) -> Option<Arrangement> {
        if !loses_flush && typical.all_durable(&self.pieces, self.inside, Part::After) {
            return None;
        }
        let after: Vec<usize> = (0..orders)
            .flat_map(|order| typical.units(|roles| roles.after, order))
            .collect();
        let is_after = |piece: &Piece| matches!(piece, Piece::Unit { unit, .. } if after.contains(unit));
        let last = self.pieces.iter().rposition(is_after)?;
        let mut pieces = self.pieces.clone();
        pieces.splice(last + 1..last + 1, [Piece::Flush(Part::After), Piece::Fence]);
        let more = Arrangement { pieces, ..self.clone() };
        typical
            .all_durable(&more.pieces, more.inside, Part::After)
            .then_some(more)
    }

    fn order(&self) -> Vec<(usize, bool)> {
        let units = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Unit { unit, moved } => Some((*unit, *moved)),
            _ => None,
        });
        units.collect()
    }
}

/// What of an arrangement can be written.
pub(super) struct Possible {
    /// A flush of what has to persist first can be put behind the statements of the list that store it.
    pub flush_behind: bool,
    /// It can be put where the stores are made.
    pub flush_inside: bool,
    /// A flush of what comes second can be put behind the statements of the list that store it.
    pub flush_after: bool,
    /// All stores concerned are in one line, wherever their object lies.
    pub in_line: bool,
}

/// The best arrangement; or why there is none.
pub(super) fn best(
    movable: &Movable,
    instances: &[Instance],
    orders: usize,
    possible: &Possible,
    write: impl Fn(&Arrangement) -> Result<Changes, Refusal>,
) -> Result<(Arrangement, Changes), String> {
    let units = movable.list.units.len();
    let broken = |strictness: Strictness| instances.iter().find(|instance| !instance.in_order(units, strictness));
    let search = |typical: &Instance, strictness: Strictness| {
        best_by(movable, (typical, instances), orders, possible, strictness, &write)
    };
    match (broken(Strictness::Model), broken(Strictness::Durable)) {
        // Whether members share a line may be a matter of where the object lies, so this must not count.
        (Some(typical), _) if !possible.in_line => search(typical, Strictness::Durable).map_err(|reason| {
            let by_line = search(typical, Strictness::Model).is_ok();
            let others = match by_line {
                true => "; another order would hold only where both lie in one cache line, as in the recording, and their types do not say that they do",
                false => "",
            };
            reason + others
        }),
        (Some(typical), _) => search(typical, Strictness::Model),
        // A crash test may take even the order within a line for none.
        (None, Some(typical)) => search(typical, Strictness::Durable),
        (None, None) => Err("in the recording the order holds in each execution of the statements".into()),
    }
}

fn best_by(
    movable: &Movable,
    (typical, instances): (&Instance, &[Instance]),
    orders: usize,
    possible: &Possible,
    strictness: Strictness,
    write: impl Fn(&Arrangement) -> Result<Changes, Refusal>,
) -> Result<(Arrangement, Changes), String> {
    let units = movable.list.units.len();
    let mut arrangements = arrangements(movable, typical, orders, possible);
    arrangements.sort_by_key(|arrangement| arrangement.cost);
    let mut reason = None;
    // Of what would not help either.
    let mut otherwise = None;
    for arrangement in arrangements {
        let is_right = |arrangement: &Arrangement| {
            let Arrangement { pieces, inside, .. } = arrangement;
            instances.iter().all(|instance| {
                instance.holds(pieces, *inside, units, strictness, |unit| movable.always_fences(unit))
                    && instance.holds_without(pieces, *inside, strictness, |unit| movable.fences_by_chance(unit))
                    && instance.are_separated(pieces, *inside, |unit| movable.is_barrier(unit))
            })
        };
        if !is_right(&arrangement) {
            otherwise = otherwise.or_else(|| movable.check_order(&arrangement.order()).err());
            continue;
        }
        let units_of = |role: fn(&Roles) -> u32| -> Vec<usize> {
            (0..orders).flat_map(|order| typical.units(role, order)).collect()
        };
        let flushes = arrangement.inside || arrangement.has(Piece::Flush(Part::Before));
        if strictness == Strictness::Durable
            && !possible.in_line
            && !flushes
            && movable.is_flushed_late(
                &arrangement.order(),
                &units_of(|roles| roles.before),
                &units_of(|roles| roles.after),
            )
        {
            continue;
        }
        if let Err(why) = movable.check_order(&arrangement.order()) {
            reason.get_or_insert(why);
            continue;
        }
        // What comes second is to be durable, too, where that is no matter of another statement.
        let loses_flush =
            strictness == Strictness::Durable && !possible.in_line && movable.loses_flush(&arrangement.order());
        let durable = arrangement
            .with_durable_end(typical, orders, loses_flush)
            .filter(|more| possible.flush_after && arrangement.has_moves() && is_right(more))
            .and_then(|more| Some((write(&more).ok()?, more)));
        let written = match durable {
            Some(written) => Ok(written),
            None if loses_flush => continue,
            None => write(&arrangement).map(|changes| (changes, arrangement.clone())),
        };
        match written {
            Ok((changes, arrangement)) => return Ok((arrangement, changes)),
            Err(refusal) => {
                reason.get_or_insert(refusal.to_string());
            }
        }
    }
    Err(reason
        .or(otherwise)
        .unwrap_or_else(|| "no move or insertion in this statement list puts it in order".into()))
}

fn arrangements(movable: &Movable, typical: &Instance, orders: usize, possible: &Possible) -> Vec<Arrangement> {
    let mut all = Vec::new();
    for (base, stores_moved, persists_moved) in bases(movable, typical, orders) {
        let first_after = (0..orders)
            .flat_map(|order| typical.units(|roles| roles.after, order))
            .filter_map(|unit| base.iter().position(|(other, _)| *other == unit))
            .min();
        let last_before = (0..orders)
            .flat_map(|order| typical.units(|roles| roles.before, order))
            .filter_map(|unit| base.iter().position(|(other, _)| *other == unit))
            .max();
        let (Some(after), Some(before)) = (first_after, last_before) else {
            continue;
        };
        let pieces = |base: &[(usize, bool)]| -> Vec<Piece> {
            base.iter().map(|&(unit, moved)| Piece::Unit { unit, moved }).collect()
        };
        let mut add = |pieces: Vec<Piece>, inside: bool, (fences, flushes, moved): (usize, usize, usize)| {
            all.push(Arrangement {
                pieces,
                inside,
                cost: (stores_moved, fences, flushes, persists_moved + moved),
            });
        };
        add(pieces(&base), false, (0, 0, 0));
        let with_fence = |mut pieces: Vec<Piece>, at: usize| {
            pieces.insert(at, Piece::Fence);
            pieces
        };
        add(with_fence(pieces(&base), after), false, (1, 0, 0));
        for chosen in later_flushes(movable, typical, &base, after) {
            let mut order: Vec<(usize, bool)> = base.clone();
            order.retain(|(unit, _)| !chosen.contains(unit));
            for (index, unit) in chosen.iter().enumerate() {
                order.insert(after + index, (*unit, true));
            }
            add(pieces(&order), false, (0, 0, chosen.len()));
            // In front of a fence that is there.
            let fences = |&(unit, _): &(usize, bool)| movable.only_fences(unit);
            if let Some(fence) = base[..after].iter().rposition(fences).filter(|fence| *fence > before) {
                let mut order = order.clone();
                order[fence..after + chosen.len()].rotate_right(chosen.len());
                add(pieces(&order), false, (0, 0, chosen.len()));
            }
            add(
                with_fence(pieces(&order), after + chosen.len()),
                false,
                (1, 0, chosen.len()),
            );
        }
        if possible.flush_behind {
            let mut flushed = pieces(&base);
            flushed.insert(before + 1, Piece::Flush(Part::Before));
            add(flushed.clone(), false, (0, 1, 0));
            flushed.insert(before + 2, Piece::Fence);
            add(flushed, false, (1, 1, 0));
        }
        if possible.flush_inside {
            add(pieces(&base), true, (0, 1, 0));
            add(with_fence(pieces(&base), after), true, (1, 1, 0));
        }
    }
    all
}

/// An order of the units, each with whether it was moved; stores moved; flushes and fences moved.
type Base = (Vec<(usize, bool)>, usize, usize);

/// Orders of the units in which what has to persist first is stored first.
fn bases(movable: &Movable, typical: &Instance, orders: usize) -> Vec<Base> {
    let units = movable.list.units.len();
    let as_it_was: Vec<(usize, bool)> = (0..units).map(|unit| (unit, false)).collect();
    // Units that have to come behind others, and those others.
    let (mut late, mut early): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for order in 0..orders {
        let before = typical.units(|roles| roles.before, order);
        let after = typical.units(|roles| roles.after, order);
        let (Some(&last), Some(&first)) = (before.last(), after.first()) else {
            continue;
        };
        if last > first {
            late.extend(after.iter().filter(|unit| **unit < last));
            early.extend(before.iter().filter(|unit| **unit > first));
        }
    }
    for side in [&mut late, &mut early] {
        side.sort();
        side.dedup();
    }
    let (Some(&first), Some(&last)) = (late.first(), early.last()) else {
        return vec![(as_it_was, 0, 0)];
    };
    if late.iter().any(|unit| early.contains(unit)) {
        return Vec::new();
    }
    // A unit with the flushes and fences right behind it.
    let group = |unit: usize| {
        let behind = (unit + 1..units).take_while(|next| movable.only_persists(*next));
        std::iter::once(unit).chain(behind).collect::<Vec<_>>()
    };
    let grouped = |side: &[usize]| {
        let mut all: Vec<usize> = side.iter().flat_map(|unit| group(*unit)).collect();
        all.sort();
        all.dedup();
        all
    };
    let mut bases = Vec::new();
    // Moves the units in front of another, or behind it.
    let mut add = |moved: &[usize], target: usize, behind: usize| {
        if moved.contains(&target) {
            return;
        }
        let stays = as_it_was.iter().filter(|(unit, _)| !moved.contains(unit));
        let mut order: Vec<(usize, bool)> = stays.copied().collect();
        // It is there, as it is not moved itself.
        let at = order.iter().take_while(|(unit, _)| *unit != target).count() + behind;
        order.splice(at..at, moved.iter().map(|unit| (*unit, true)));
        bases.push(base(movable, typical, order));
    };
    for target in group(last).into_iter().rev() {
        add(&grouped(&late), target, 1);
        add(&late, target, 1);
    }
    add(&grouped(&early), first, 0);
    add(&early, first, 0);
    // The two in each other's place, with what lies between them where it was.
    if let ([late], [early]) = (&late[..], &early[..]) {
        let order = (0..units).map(|unit| match unit {
            unit if unit == *late => (*early, true),
            unit if unit == *early => (*late, true),
            unit => (unit, false),
        });
        let (order, mut stores, persists) = base(movable, typical, order.collect());
        // With no store between them, one has moved past the other.
        if (late + 1..*early).all(|unit| typical.stores_of(unit) == 0) {
            stores = typical.stores_of(*late).min(typical.stores_of(*early)).max(1);
        }
        bases.push((order, stores, persists));
    }
    bases
}

fn base(movable: &Movable, typical: &Instance, order: Vec<(usize, bool)>) -> Base {
    let moved = || order.iter().filter(|(_, moved)| *moved).map(|(unit, _)| *unit);
    let stores = moved()
        .filter(|unit| !movable.only_persists(*unit))
        .map(|unit| typical.stores_of(unit).max(1))
        .sum();
    let persists = moved().filter(|unit| movable.only_persists(*unit)).count();
    (order, stores, persists)
}

/// Sets of statements behind a place that flush what has to persist first.
fn later_flushes(movable: &Movable, typical: &Instance, base: &[(usize, bool)], after: usize) -> Vec<Vec<usize>> {
    let lines = typical.lines_before();
    let flushing: Vec<usize> = base[after..]
        .iter()
        .map(|(unit, _)| *unit)
        .filter(|unit| movable.only_persists(*unit))
        .filter(|unit| typical.flushed_by(*unit).iter().any(|line| lines.contains(line)))
        .collect();
    let mut sets: Vec<Vec<usize>> = flushing.iter().map(|unit| vec![*unit]).collect();
    if flushing.len() > 1 {
        sets.push(flushing);
    }
    sets
}
