//! Pairs of stores that violate a condition, for those of them that came up since the point before.
//!
//! A program that leaves lines unflushed has ever more stores pending, each of which violates something with any new one: then there are thousands
//! of pairs at a point, alike in all but their addresses. Of those only the newest are given here.

use crashproof_infer::FieldIndex;
use crashproof_trace::StackId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{At, Object, Piece, Violations, is_possible};
use crate::state::CrashPoint;

/// Partners of a new store that are looked at, of one kind of condition.
const PARTNERS: usize = 64;

/// What a store is in the program: its call path, and the field that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub stack: StackId,
    pub field: Option<FieldIndex>,
}

/// P persists without U.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub p: At,
    pub u: At,
    /// Of P and of U.
    pub sites: [Site; 2],
}

/// All that is pending at a point, newest first.
struct Waiting<'a> {
    pieces: Vec<Piece<'a>>,
    by_location: FxHashMap<u32, Vec<usize>>,
    by_field: FxHashMap<FieldIndex, Vec<(Object, usize)>>,
    guardians: Vec<usize>,
}

impl Waiting<'_> {
    /// Those at one of some (sorted) locations, newest first.
    fn at(&self, locations: &[u32]) -> Vec<usize> {
        let mut found: Vec<usize> = if locations.len() <= self.by_location.len() {
            let lists = locations.iter().filter_map(|location| self.by_location.get(location));
            lists.flatten().copied().collect()
        } else {
            let known = self.by_location.iter();
            let those = known.filter(|(location, _)| locations.binary_search(location).is_ok());
            those.flat_map(|(_, pieces)| pieces).copied().collect()
        };
        found.sort_unstable();
        found.dedup();
        found.truncate(PARTNERS);
        found
    }

    /// Those of a field; of an object, if it is given.
    fn of(&self, field: FieldIndex, object: Option<Object>) -> impl Iterator<Item = usize> {
        let pieces = self.by_field.get(&field).into_iter().flatten();
        let pieces = pieces.filter(move |(other, _)| object.is_none_or(|object| object == *other));
        pieces.take(PARTNERS).map(|&(_, piece)| piece)
    }
}

impl Violations {
    /// Of which a store is at or after the event `since`; each once, those of the newest first.
    pub(crate) fn pairs(&self, point: &CrashPoint, since: u64) -> Vec<Pair> {
        let event = |at: At| point.lines[at.0].line().stores()[at.1].tag.id.seq;
        let is_new = |line: &crate::state::UncertainLine| line.line().stores().iter().any(|s| s.tag.id.seq >= since);
        if !point.lines.iter().any(|line| is_new(line)) {
            return Vec::new();
        }
        let waiting = self.waiting(point);
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (own, piece) in waiting.pieces.iter().enumerate() {
            if event(piece.at) < since {
                break;
            }
            for &location in &piece.locations {
                let befores = waiting.at(self.index.befores(location));
                found.extend(befores.into_iter().map(|u| (own, u)));
                let afters = waiting.at(self.index.afters(location));
                found.extend(afters.into_iter().map(|p| (p, own)));
            }
            for level in piece.levels {
                let object = (piece.file, piece.offset.wrapping_sub(level.distance));
                let within = |same: bool| same.then_some(object);
                for &(before, same) in self.index.field_befores(level.field) {
                    found.extend(waiting.of(before, within(same)).map(|u| (own, u)));
                }
                for &(after, same) in self.index.field_afters(level.field) {
                    found.extend(waiting.of(after, within(same)).map(|p| (p, own)));
                }
            }
            if self.guards_any(&piece.locations, piece.levels) {
                let others = waiting.guardians.iter().take(PARTNERS);
                found.extend(others.flat_map(|&other| [(own, other), (other, own)]));
            }
        }
        let site = |piece: &Piece<'_>| Site {
            stack: point.lines[piece.at.0].line().stores()[piece.at.1].tag.stack,
            field: piece.levels.first().map(|level| level.field),
        };
        let mut known: FxHashSet<(At, At)> = FxHashSet::default();
        let pairs = found.into_iter().filter_map(|(p, u)| {
            let (p, u) = (&waiting.pieces[p], &waiting.pieces[u]);
            let new = is_possible(p.at, u.at, point) && known.insert((p.at, u.at));
            new.then(|| Pair {
                p: p.at,
                u: u.at,
                sites: [site(p), site(u)],
            })
        });
        pairs.collect()
    }

    fn waiting(&self, point: &CrashPoint) -> Waiting<'_> {
        let mut pieces = self.pieces(point);
        pieces.sort_by_key(|piece| std::cmp::Reverse(point.lines[piece.at.0].line().stores()[piece.at.1].tag.id));
        let mut by_location: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut by_field: FxHashMap<FieldIndex, Vec<(Object, usize)>> = FxHashMap::default();
        let mut guardians = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            for &location in &piece.locations {
                by_location.entry(location).or_default().push(number);
            }
            for level in piece.levels {
                let object = (piece.file, piece.offset.wrapping_sub(level.distance));
                by_field.entry(level.field).or_default().push((object, number));
            }
            if self.guards_any(&piece.locations, piece.levels) {
                guardians.push(number);
            }
        }
        Waiting {
            pieces,
            by_location,
            by_field,
            guardians,
        }
    }
}
