//! Which of the uncertain stores of a crash point can violate a condition, and the states in which they do (Witcher, SOSP 2021,
//! section 4.3.2).
//!
//! A condition says that U persists before P. It is violated where P has persisted and U has not. For each P with a violated condition
//! there is a minimal state: what is guaranteed, P, and P's earlier stores in its line; for each U a maximal one: everything but U and what follows
//! it in its line. With guardians, which persist together, each is P to the others and U to them.
//!
//! Conditions of addresses come from another recording than the one that is crashed (the one with dependences is of code that is
//! hardly optimised). They carry over by file and offset, and only in operations that stored to the same bytes in both; conditions of
//! types and fields hold everywhere.
//!
//! Deviation: the paper looks at the stores since the last fence, and writes everything back at the end of an operation. Here P and U are any stores
//! that are not guaranteed persistent, whichever operations they belong to; and P may be persistent already, if U is of the same operation
//! ([`progress`]).

mod index;
mod pairs;
mod progress;
#[cfg(test)]
mod tests;
mod violated;

use std::collections::BTreeSet;

use crashproof_infer::{Conditions, FieldIndex, Fields, Level, Operation, operations};
use crashproof_model::Ranges;
use crashproof_trace::{OperationIndex, TraceFile};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::edges::At;
use crate::error::CrashError;
use crate::state::{CrashPoint, State};
use index::Index;
pub(crate) use pairs::{Pair, Site};
use progress::Stores;
pub(crate) use progress::Unfinished;
pub(crate) use violated::{Condition, Stored};

/// Operations that a warning names.
const NAMED: usize = 5;

/// File and offset at which an object begins.
type Object = (u32, u64);

/// A word's worth of such a store.
struct Piece<'a> {
    at: At,
    /// Locations of conditions that it overlaps.
    locations: Vec<u32>,
    levels: &'a [Level],
    /// File and offset, to tell objects apart.
    file: u32,
    offset: u64,
}

/// What can be violated at a point.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Violated {
    /// Persisted, without what must have persisted before.
    pub persisted: BTreeSet<At>,
    /// Not persisted, with something that must not have persisted before.
    pub missing: BTreeSet<At>,
    /// Something that is persistent must not be without something that is not.
    pub nothing: bool,
}

impl Violated {
    fn add(&mut self, p: At, u: At, point: &CrashPoint) {
        if is_possible(p, u, point) {
            self.persisted.insert(p);
            self.missing.insert(u);
        }
    }

    /// Each of some stores must not persist before each of others. There may be thousands: what lies in another line can always persist, or be
    /// missing, by itself, so that only stores of one line are looked at one by one.
    fn add_all(&mut self, ps: &BTreeSet<At>, us: &BTreeSet<At>, point: &CrashPoint) {
        let by_itself = |others: &BTreeSet<At>| point.ties.is_none() && in_several_lines(others);
        if by_itself(us) {
            self.persisted.extend(ps);
        }
        if by_itself(ps) {
            self.missing.extend(us);
        }
        if !by_itself(us) || !by_itself(ps) {
            let persists = |p: &&At| us.iter().any(|&u| is_possible(**p, u, point));
            self.persisted.extend(ps.iter().filter(persists));
            let misses = |u: &&At| ps.iter().any(|&p| is_possible(p, **u, point));
            self.missing.extend(us.iter().filter(misses));
        }
    }
}

/// Whether the stores are in more than one line.
fn in_several_lines(stores: &BTreeSet<At>) -> bool {
    stores.first().map(|at| at.0) != stores.last().map(|at| at.0)
}

/// Whether P can persist without U.
fn is_possible(p: At, u: At, point: &CrashPoint) -> bool {
    if p == u {
        return false;
    }
    if let Some(ties) = &point.ties {
        return !ties.requires(p, u);
    }
    if p.0 != u.0 {
        return true;
    }
    let line = &point.lines[p.0];
    let stores = line.line().stores();
    // What is ordered persists after what came before it in its line.
    !(line.is_ordered(&stores[p.1]) && line.is_ordered(&stores[u.1]) && u.1 < p.1)
}

/// The conditions, as they apply to the stores of one trace.
pub(crate) struct Violations {
    index: Index,
    fields: Fields,
    /// Where operations begin.
    begins: OperationIndex,
    /// Operations in which only conditions of types and fields apply.
    elsewhere: FxHashSet<Option<u64>>,
    stores: Stores,
    /// By operation: digest of the basic blocks that it executes.
    paths: FxHashMap<u64, u64>,
    pub warnings: Vec<String>,
}

impl Violations {
    pub(crate) fn new(trace: &TraceFile, conditions: &Conditions) -> Result<Violations, CrashError> {
        let fields = Fields::read(trace)?;
        let files: Vec<&str> = trace.tables().files.iter().map(|file| file.path.as_str()).collect();
        let own = operations(trace)?;
        let nothing = Operation::default();
        let differs = |(number, operation): &(&Option<u64>, &Operation)| {
            let recorded = conditions.operations.get(*number).unwrap_or(&nothing);
            !recorded.written.covers(&operation.written)
        };
        let elsewhere: FxHashSet<Option<u64>> = own.iter().filter(differs).map(|(number, _)| *number).collect();
        let operations = conditions.operations.iter();
        let paths = operations.filter_map(|(number, operation)| Some(((*number)?, operation.blocks?)));
        Ok(Violations {
            paths: paths.collect(),
            stores: Stores::read(trace)?,
            index: Index::new(conditions, &fields, &files),
            warnings: differing(&elsewhere).into_iter().collect(),
            fields,
            begins: trace.operations().clone(),
            elsewhere,
        })
    }

    fn pieces<'a>(&'a self, point: &CrashPoint) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        for (number, line) in point.lines.iter().enumerate() {
            let start = line.start();
            for (store_number, store) in line.line().stores().iter().enumerate() {
                let event = store.tag.id.seq;
                let by_address = !self.elsewhere.contains(&self.begins.of(event));
                for (word, mask) in words(&store.bytes) {
                    let first = start + 8 * word;
                    let mut levels = self.fields.of(event, first, first + 8);
                    let (offset, levels) = levels.next().unwrap_or((first, &[]));
                    let locations = match by_address {
                        true => self.index.locations(line.at.file, first / 8, mask),
                        false => Vec::new(),
                    };
                    if !locations.is_empty() || !levels.is_empty() {
                        pieces.push(Piece {
                            at: (number, store_number),
                            locations,
                            levels,
                            file: line.at.file,
                            offset,
                        });
                    }
                }
            }
        }
        pieces
    }

    pub(crate) fn at(&self, point: &CrashPoint) -> Violated {
        let pieces = self.pieces(point);
        let mut violated = Violated::default();
        self.by_location(&pieces, point, &mut violated);
        self.by_field(&pieces, point, &mut violated);
        self.guardians(&pieces, point, &mut violated);
        for unfinished in self.unfinished(point) {
            violated.nothing = true;
            violated.missing.extend(unfinished.pending);
        }
        violated
    }

    fn by_location(&self, pieces: &[Piece<'_>], point: &CrashPoint, violated: &mut Violated) {
        let mut pending: FxHashMap<u32, Vec<At>> = FxHashMap::default();
        for piece in pieces {
            for &location in &piece.locations {
                pending.entry(location).or_default().push(piece.at);
            }
        }
        let mut add = |p: At, stores: Option<&Vec<At>>| {
            for &u in stores.into_iter().flatten() {
                violated.add(p, u, point);
            }
        };
        for piece in pieces {
            for &after in &piece.locations {
                let befores = self.index.befores(after);
                if befores.len() <= pending.len() {
                    befores.iter().for_each(|before| add(piece.at, pending.get(before)));
                } else {
                    let those = pending
                        .iter()
                        .filter(|(location, _)| befores.binary_search(location).is_ok());
                    those.for_each(|(_, stores)| add(piece.at, Some(stores)));
                }
            }
        }
    }

    fn by_field(&self, pieces: &[Piece<'_>], point: &CrashPoint, violated: &mut Violated) {
        let mut pending: FxHashMap<FieldIndex, Vec<(Object, At)>> = FxHashMap::default();
        for piece in pieces {
            for level in piece.levels {
                let object = (piece.file, piece.offset.wrapping_sub(level.distance));
                pending.entry(level.field).or_default().push((object, piece.at));
            }
        }
        for (&after, ps) in &pending {
            for &(before, same_object) in self.index.field_befores(after) {
                let Some(us) = pending.get(&before) else { continue };
                if !same_object {
                    let of = |stores: &[(Object, At)]| stores.iter().map(|&(_, at)| at).collect::<BTreeSet<At>>();
                    violated.add_all(&of(ps), &of(us), point);
                    continue;
                }
                let mut by_object: FxHashMap<Object, Vec<At>> = FxHashMap::default();
                for &(object, u) in us {
                    by_object.entry(object).or_default().push(u);
                }
                for &(object, p) in ps {
                    for &u in by_object.get(&object).into_iter().flatten() {
                        violated.add(p, u, point);
                    }
                }
            }
        }
    }

    fn guardians(&self, pieces: &[Piece<'_>], point: &CrashPoint, violated: &mut Violated) {
        let guardians = pieces
            .iter()
            .filter(|piece| self.guards_any(&piece.locations, piece.levels));
        let guardians: BTreeSet<At> = guardians.map(|piece| piece.at).collect();
        violated.add_all(&guardians, &guardians, point);
    }

    /// Whether some bytes guard something.
    fn guards_any(&self, locations: &[u32], levels: &[Level]) -> bool {
        let innermost = levels.first();
        locations.iter().any(|&location| self.index.is_guardian(location))
            || innermost.is_some_and(|level| self.index.is_guardian_field(level.field))
    }

    /// Digest of the basic blocks that the operation executes which an event belongs to.
    pub(crate) fn path(&self, event: u64) -> Option<u64> {
        self.paths.get(&self.begins.of(event)?).copied()
    }
}

/// A state that differs in one line, and in what is tied to it, from one with nothing or everything persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Variant {
    /// Else nothing.
    pub everything: bool,
    pub line: usize,
    pub option: u64,
}

impl Variant {
    pub(crate) fn state(self, point: &CrashPoint) -> State {
        let mut state = if self.everything {
            point.everything()
        } else {
            point.nothing()
        };
        if let Some(line) = state.0.get_mut(self.line) {
            *line = self.option;
        }
        if self.everything {
            point.lowered(state)
        } else {
            point.raised(state)
        }
    }

    /// Whether it has other contents than the state that it is a variant of. Without edges that is so if its option is another.
    fn differs(self, is_other: bool, point: &CrashPoint) -> bool {
        let of = || {
            if self.everything {
                point.everything()
            } else {
                point.nothing()
            }
        };
        match point.ties {
            Some(_) => point.state_hash(&self.state(point)) != point.state_hash(&of()),
            None => is_other,
        }
    }
}

/// Nothing more than is guaranteed.
pub(crate) const NOTHING: Variant = Variant {
    everything: false,
    line: 0,
    option: 0,
};

/// The minimal state of P.
pub(crate) fn minimal(point: &CrashPoint, (line, p): At) -> Option<Variant> {
    let of = &point.lines[line];
    let stores = of.line().stores();
    let option = match of.is_ordered(&stores[p]) {
        true => of.option_of(ordered_before(of, p) + 1, |_, _| false),
        false => of.option_of(0, |store, _| store == p),
    }?;
    let variant = Variant {
        everything: false,
        line,
        option,
    };
    // What leaves the line as it was persists nothing.
    variant.differs(option != 0, point).then_some(variant)
}

/// The maximal state of U.
pub(crate) fn maximal(point: &CrashPoint, (line, u): At) -> Option<Variant> {
    let of = &point.lines[line];
    let stores = of.line().stores();
    let option = match of.is_ordered(&stores[u]) {
        true => of.option_of(ordered_before(of, u), |_, _| true),
        false => of.option_of(usize::MAX, |store, _| store != u),
    }?;
    let variant = Variant {
        everything: true,
        line,
        option,
    };
    // What others store over is not missing.
    variant.differs(option != of.everything(), point).then_some(variant)
}

/// The words that bytes lie in, and of each which of its bytes.
fn words(bytes: &Ranges) -> Vec<(u64, u8)> {
    let mut words: Vec<(u64, u8)> = Vec::new();
    for byte in bytes.iter().flatten() {
        let (word, bit) = (byte as u64 / 8, 1 << (byte % 8));
        match words.last_mut() {
            Some((last, mask)) if *last == word => *mask |= bit,
            _ => words.push((word, bit)),
        }
    }
    words
}

fn ordered_before(line: &crate::state::UncertainLine, store: usize) -> usize {
    let stores = &line.line().stores()[..store];
    stores.iter().filter(|store| line.is_ordered(store)).count()
}

fn differing(elsewhere: &FxHashSet<Option<u64>>) -> Option<String> {
    let mut numbers: Vec<Option<u64>> = elsewhere.iter().copied().collect();
    numbers.sort_unstable();
    let named: Vec<String> = numbers
        .iter()
        .take(NAMED)
        .map(|number| number.map_or("the set-up".to_owned(), |number| number.to_string()))
        .collect();
    let more = if numbers.len() > NAMED { ", …" } else { "" };
    let operations = match numbers.len() {
        0 => return None,
        1 => "1 operation stores".to_owned(),
        count => format!("{count} operations store"),
    };
    Some(format!(
        "{operations} to other places than in the recording of dependences ({}{more}): there only conditions of types and fields \
         are tested",
        named.join(", ")
    ))
}
