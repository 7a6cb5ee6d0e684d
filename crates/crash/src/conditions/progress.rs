//! What the operation under way has persisted for good while other stores of it are missing or still to come.
//!
//! A condition is violated there, too: P is persistent and U is not. Nothing more need persist for it, so the state is what is guaranteed;
//! and for a U that is pending, all that is pending but U. The paper has no such states, because it looks between two fences only. P and U are
//! of one operation here: of what an earlier one stored nearly all is persistent, and everything would violate something with it.

use crashproof_infer::{FieldIndex, Level};
use crashproof_trace::{EventKind, Item, ReadError, StackId, TraceFile};
use rustc_hash::FxHashMap;

use super::pairs::Site;
use super::{At, Object, Violations};
use crate::state::CrashPoint;

/// Words of an operation's stores before and after a point that are looked at, the nearest.
const NEAR: usize = 1 << 8;

/// A store of the trace.
struct Written {
    event: u64,
    stack: StackId,
    file: u32,
    offset: u64,
    len: u64,
}

/// All of a trace, in order.
#[derive(Default)]
pub(super) struct Stores(Vec<Written>);

impl Stores {
    pub(super) fn read(trace: &TraceFile) -> Result<Stores, ReadError> {
        let mut stores = Vec::new();
        let mut reader = trace.files()?;
        while let Some(item) = reader.next()? {
            if let Item::Event(event) = item
                && let EventKind::Store { at, data, .. } = event.kind
            {
                stores.push(Written {
                    event: event.seq,
                    stack: event.stack,
                    file: at.file.0,
                    offset: at.offset,
                    len: data.len() as u64,
                });
            }
        }
        Ok(Stores(stores))
    }
}

/// A word's worth of a store of the operation.
struct Piece<'a> {
    stack: StackId,
    locations: Vec<u32>,
    levels: &'a [Level],
    file: u32,
    offset: u64,
    /// It is pending.
    at: Option<At>,
}

impl Piece<'_> {
    fn site(&self) -> Site {
        Site {
            stack: self.stack,
            field: self.levels.first().map(|level| level.field),
        }
    }

    fn object(&self, level: &Level) -> Object {
        (self.file, self.offset.wrapping_sub(level.distance))
    }
}

/// Stores of the operation are persistent, and this one is not.
pub(crate) struct Unfinished {
    /// Of P and of U.
    pub sites: [Site; 2],
    /// U, if it is pending.
    pub pending: Option<At>,
    /// How many stores of P's statement violate a condition with U.
    pub times: u32,
}

/// Which of the stores that are pending or to come.
#[derive(Default)]
struct Set([u64; NEAR / 64]);

impl Set {
    fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(index, &word)| {
            let bits = std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            let set = bits.take_while(|&rest| rest != 0);
            set.map(move |rest| index * 64 + rest.trailing_zeros() as usize)
        })
    }
}

impl Violations {
    /// Violations of what is persistent already at a point, those of the newest first. An operation that copies a table has tens of thousands of pairs
    /// at each point, of a few statements.
    pub(crate) fn unfinished(&self, point: &CrashPoint) -> Vec<Unfinished> {
        let (done, open) = self.progress(point);
        if done.is_empty() || open.is_empty() {
            return Vec::new();
        }
        let mut by_location: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        let mut by_field: FxHashMap<FieldIndex, Vec<usize>> = FxHashMap::default();
        let mut guardians = Vec::new();
        for (number, piece) in open.iter().enumerate() {
            for &location in &piece.locations {
                by_location.entry(location).or_default().push(number);
            }
            for level in piece.levels {
                by_field.entry(level.field).or_default().push(number);
            }
            if self.guards_any(&piece.locations, piece.levels) {
                guardians.push(number);
            }
        }
        let mut groups: Vec<(Site, Vec<u32>)> = Vec::new();
        for p in &done {
            let mut found = Set::default();
            for &location in &p.locations {
                let befores = self.index.befores(location);
                if befores.len() <= by_location.len() {
                    let lists = befores.iter().filter_map(|before| by_location.get(before));
                    lists.flatten().for_each(|&u| found.insert(u));
                } else {
                    let known = by_location.iter();
                    let those = known.filter(|(location, _)| befores.binary_search(location).is_ok());
                    those.flat_map(|(_, us)| us).for_each(|&u| found.insert(u));
                }
            }
            for level in p.levels {
                for &(before, same_object) in self.index.field_befores(level.field) {
                    let us = by_field.get(&before).into_iter().flatten();
                    let is_of = |u: &&usize| {
                        let levels = open[**u].levels.iter().filter(|other| other.field == before);
                        !same_object
                            || levels
                                .into_iter()
                                .any(|other| open[**u].object(other) == p.object(level))
                    };
                    us.filter(is_of).for_each(|&u| found.insert(u));
                }
            }
            if self.guards_any(&p.locations, p.levels) {
                guardians.iter().for_each(|&u| found.insert(u));
            }
            let site = p.site();
            let known = groups.iter().position(|(other, _)| *other == site);
            let group = known.unwrap_or_else(|| {
                groups.push((site, vec![0; open.len()]));
                groups.len() - 1
            });
            found.iter().for_each(|u| groups[group].1[u] += 1);
        }
        let each = groups.into_iter().flat_map(|(site, times)| {
            let open = &open;
            let violated = times.into_iter().enumerate().filter(|&(_, times)| times > 0);
            violated.map(move |(u, times)| Unfinished {
                sites: [site, open[u].site()],
                pending: open[u].at,
                times,
            })
        });
        each.collect()
    }

    /// What the operation at a point has persisted, the newest first, and what is pending or to come.
    fn progress(&self, point: &CrashPoint) -> (Vec<Piece<'_>>, Vec<Piece<'_>>) {
        let seq = point.head.seq;
        let operation = self.begins.of(seq);
        if operation.is_none() {
            return (Vec::new(), Vec::new());
        }
        let by_address = !self.elsewhere.contains(&operation);
        let mut pending: FxHashMap<(u64, u32, u64), At> = FxHashMap::default();
        for (number, line) in point.lines.iter().enumerate() {
            for (store_number, store) in line.line().stores().iter().enumerate() {
                let start = line.start() + u64::from(store.tag.start);
                let end = start + store.tag.data.len() as u64;
                for word in start / 8..end.div_ceil(8) {
                    pending.insert((store.tag.id.seq, line.at.file, word), (number, store_number));
                }
            }
        }
        let stores = &self.stores.0;
        let now = stores.partition_point(|store| store.event < seq);
        let is_own = |store: &&Written| self.begins.of(store.event) == operation;
        let before = stores[now.saturating_sub(NEAR)..now].iter().rev().take_while(is_own);
        let after = stores[now..].iter().take(NEAR).take_while(is_own);
        let (mut done, mut open) = (Vec::new(), Vec::new());
        for (store, is_executed) in before
            .map(|store| (store, true))
            .chain(after.map(|store| (store, false)))
        {
            let end = store.offset + store.len;
            for word in store.offset / 8..end.div_ceil(8) {
                let at = pending.get(&(store.event, store.file, word)).copied();
                let is_done = is_executed && at.is_none();
                let bits = (word * 8..word * 8 + 8).map(|byte| (store.offset..end).contains(&byte));
                let mask = bits
                    .enumerate()
                    .fold(0u8, |mask, (bit, has)| mask | u8::from(has) << bit);
                let mut levels = self.fields.of(store.event, word * 8, word * 8 + 8);
                let (offset, levels) = levels.next().unwrap_or((word * 8, &[]));
                let piece = Piece {
                    stack: store.stack,
                    locations: match by_address {
                        true => self.index.locations(store.file, word, mask),
                        false => Vec::new(),
                    },
                    levels,
                    file: store.file,
                    offset,
                    at,
                };
                let pieces = if is_done { &mut done } else { &mut open };
                if pieces.len() < NEAR {
                    pieces.push(piece);
                }
            }
        }
        (done, open)
    }
}
