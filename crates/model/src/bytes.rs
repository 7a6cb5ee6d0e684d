//! Sets of bytes of a unit, and how a store falls into units and words.
//!
//! What persists independently of everything else is a unit, and how large it is is the model's matter. [`Bytes`] is for cache
//! lines, and [`Ranges`] for units of any size.

use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Range;

use crashproof_base::LINE;
use smallvec::SmallVec;

/// A set of bytes of one unit.
pub trait ByteSet: Clone + Debug + Default + Eq + Hash {
    /// `len` bytes from `start`.
    fn range(start: u64, len: u64) -> Self;

    /// Those of a unit of `size` bytes, by its number in the file, that lie in `[start, end)` of the file.
    fn of_unit(unit: u64, size: u64, start: u64, end: u64) -> Self {
        let base = unit * size;
        let from = start.saturating_sub(base).min(size);
        let to = end.saturating_sub(base).min(size);
        Self::range(from, to.saturating_sub(from))
    }

    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// Those of both.
    fn union(&self, other: &Self) -> Self;

    /// Those that are in both.
    fn intersection(&self, other: &Self) -> Self;

    /// Those that are not in the other.
    fn without(&self, other: &Self) -> Self;

    /// Whether they have a byte in common.
    fn intersects(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }
}

/// A set of bytes of one line: bit n is byte n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// All bytes of a line.
    pub const ALL: Bytes = Bytes(!0);

    /// `len` bytes from `start`, cut at the line's end.
    pub const fn range(start: u64, len: u64) -> Bytes {
        let len = if start + len > LINE { LINE - start } else { len };
        if len == 0 {
            Bytes(0)
        } else {
            Bytes((!0 >> (LINE - len)) << start)
        }
    }

    /// Those of a line, by its number in the file, that lie in `[start, end)` of the file.
    pub fn of_line(line: u64, start: u64, end: u64) -> Bytes {
        Self::of_unit(line, LINE, start, end)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether they have a byte in common.
    pub const fn intersects(self, other: Bytes) -> bool {
        self.0 & other.0 != 0
    }

    /// Those that are not in the other.
    pub const fn without(self, other: Bytes) -> Bytes {
        Bytes(self.0 & !other.0)
    }

    /// Those of both.
    pub const fn union(self, other: Bytes) -> Bytes {
        Bytes(self.0 | other.0)
    }

    /// Those that are in both.
    pub const fn intersection(self, other: Bytes) -> Bytes {
        Bytes(self.0 & other.0)
    }

    /// Whether all of the other are among them.
    pub const fn contains(self, other: Bytes) -> bool {
        other.0 & !self.0 == 0
    }

    /// Offset of the first one; 64 if there is none.
    pub const fn first(self) -> u64 {
        self.0.trailing_zeros() as u64
    }

    /// Bytes from the first to the last of the set.
    pub const fn span(self) -> u64 {
        if self.0 == 0 {
            0
        } else {
            LINE - self.0.leading_zeros() as u64 - self.first()
        }
    }
}

impl ByteSet for Bytes {
    #[inline]
    fn range(start: u64, len: u64) -> Bytes {
        Bytes::range(start, len)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        Bytes::is_empty(*self)
    }

    #[inline]
    fn union(&self, other: &Bytes) -> Bytes {
        Bytes::union(*self, *other)
    }

    #[inline]
    fn intersection(&self, other: &Bytes) -> Bytes {
        Bytes::intersection(*self, *other)
    }

    #[inline]
    fn without(&self, other: &Bytes) -> Bytes {
        Bytes::without(*self, *other)
    }
}

/// A set of bytes of a unit of any size, as ranges: ascending, not empty, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(SmallVec<[(u32, u32); 2]>);

impl Ranges {
    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().map(|&(from, to)| from as usize..to as usize)
    }

    /// The bytes of which `keep` says so, when told whether each set has them. It keeps none that neither has.
    fn combine(&self, other: &Ranges, keep: impl Fn(bool, bool) -> bool) -> Ranges {
        let mut combined = SmallVec::new();
        let (mut own, mut others) = (Ends::of(self), Ends::of(other));
        let mut from = None;
        loop {
            let at = own.next().min(others.next());
            if at == u32::MAX {
                return Ranges(combined);
            }
            let kept = keep(own.pass(at), others.pass(at));
            match (from, kept) {
                (None, true) => from = Some(at),
                (Some(start), false) => {
                    combined.push((start, at));
                    from = None;
                }
                _ => {}
            }
        }
    }
}

/// Goes through where the ranges of a set begin and end.
struct Ends<'r> {
    ranges: &'r [(u32, u32)],
    inside: bool,
}

impl Ends<'_> {
    fn of(set: &Ranges) -> Ends<'_> {
        Ends {
            ranges: &set.0,
            inside: false,
        }
    }

    fn next(&self) -> u32 {
        match self.ranges.first() {
            Some(&(_, to)) if self.inside => to,
            Some(&(from, _)) => from,
            None => u32::MAX,
        }
    }

    /// Goes on to a place that is not beyond the next. Whether the set has the byte there.
    fn pass(&mut self, at: u32) -> bool {
        if self.next() == at && at != u32::MAX {
            if self.inside {
                self.ranges = &self.ranges[1..];
            }
            self.inside = !self.inside;
        }
        self.inside
    }
}

impl ByteSet for Ranges {
    fn range(start: u64, len: u64) -> Ranges {
        let range = (start as u32, (start + len) as u32);
        Ranges(SmallVec::from_buf_and_len([range, (0, 0)], usize::from(len > 0)))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn union(&self, other: &Ranges) -> Ranges {
        match (&self.0[..], &other.0[..]) {
            ([], _) => other.clone(),
            (_, []) => self.clone(),
            (&[(from, to)], &[(start, end)]) if from <= end && start <= to => {
                Ranges(SmallVec::from_buf_and_len([(from.min(start), to.max(end)), (0, 0)], 1))
            }
            _ => self.combine(other, |own, others| own || others),
        }
    }

    fn intersection(&self, other: &Ranges) -> Ranges {
        self.combine(other, |own, others| own && others)
    }

    fn without(&self, other: &Ranges) -> Ranges {
        if !self.intersects(other) {
            return self.clone();
        }
        self.combine(other, |own, others| own && !others)
    }

    fn intersects(&self, other: &Ranges) -> bool {
        let meet = |&(from, to): &(u32, u32)| other.0.iter().any(|&(start, end)| from < end && start < to);
        self.0.iter().any(meet)
    }
}

/// The part of an access that lies in one line (or one word of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the line, counted from the file's start.
    pub line: u64,
    /// The bytes of the line.
    pub bytes: Bytes,
}

/// Cuts `[offset, offset + len)` at every multiple of `unit`: [`LINE`] for what a flush covers, [`WORD`](crashproof_base::WORD) for what may tear.
///
/// ```
/// use crashproof_model::{LINE, WORD, pieces};
/// assert_eq!(pieces(60, 8, LINE).count(), 2);
/// assert_eq!(pieces(0, 32, WORD).count(), 4);
/// ```
#[inline]
pub fn pieces(offset: u64, len: u64, unit: u64) -> impl Iterator<Item = Piece> {
    debug_assert!(unit <= LINE && LINE.is_multiple_of(unit));
    cut(offset, len, unit).map(|part| Piece {
        line: part.start / LINE,
        bytes: Bytes::range(part.start % LINE, part.end - part.start),
    })
}

/// Cuts `[offset, offset + len)` at every multiple of `unit`.
#[inline]
pub fn cut(offset: u64, len: u64, unit: u64) -> Parts {
    Parts {
        at: offset,
        end: offset.saturating_add(len),
        unit,
    }
}

/// The parts that are left of an access.
#[derive(Clone, Debug)]
pub struct Parts {
    at: u64,
    end: u64,
    unit: u64,
}

impl Iterator for Parts {
    type Item = Range<u64>;

    #[inline]
    fn next(&mut self) -> Option<Range<u64>> {
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let next = (at / self.unit + 1).saturating_mul(self.unit).min(self.end);
        self.at = next;
        Some(at..next)
    }
}

#[cfg(test)]
mod tests {
    use crashproof_base::WORD;
    use proptest::prelude::*;

    use super::*;

    fn marked(set: &Ranges) -> Vec<bool> {
        let mut bytes = vec![false; 100];
        set.iter().for_each(|range| bytes[range].fill(true));
        bytes
    }

    fn some() -> impl Strategy<Value = Ranges> {
        let range = (0..80u64, 0..20u64).prop_map(|(start, len)| Ranges::range(start, len));
        prop::collection::vec(range, 0..5).prop_map(|all| all.iter().fold(Ranges::default(), |a, b| a.union(b)))
    }

    proptest! {
        #[test]
        fn ranges_are_sets_of_bytes(a in some(), b in some()) {
            let by_byte = |both: fn(bool, bool) -> bool| -> Vec<bool> {
                marked(&a).into_iter().zip(marked(&b)).map(|(a, b)| both(a, b)).collect()
            };
            prop_assert_eq!(marked(&a.union(&b)), by_byte(|a, b| a || b));
            prop_assert_eq!(marked(&a.intersection(&b)), by_byte(|a, b| a && b));
            prop_assert_eq!(marked(&a.without(&b)), by_byte(|a, b| a && !b));
            prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
            prop_assert_eq!(a == b, marked(&a) == marked(&b));
            for set in [a.union(&b), a.intersection(&b), a.without(&b)] {
                prop_assert_eq!(set.is_empty(), !marked(&set).contains(&true));
                prop_assert!(set.0.is_sorted_by(|one, next| one.1 < next.0) && set.0.iter().all(|range| range.0 < range.1));
            }
        }
    }

    #[test]
    fn ranges() {
        assert_eq!(Bytes::range(0, 64), Bytes::ALL);
        assert_eq!(Bytes::range(63, 1), Bytes(1 << 63));
        assert_eq!(Bytes::range(4, 0), Bytes(0));
        assert_eq!((Bytes::range(5, 7).first(), Bytes::range(5, 7).span()), (5, 7));
        assert_eq!(Bytes(0).span(), 0);
        assert_eq!(Bytes::of_line(1, 100, 1000), Bytes::range(36, 28));
        assert_eq!(Bytes::of_line(1, 0, 70), Bytes::range(0, 6));
        assert_eq!(Bytes::of_line(1, 0, 64), Bytes(0));
        assert_eq!(Bytes::of_line(1, 200, 300), Bytes(0));
    }

    #[test]
    fn a_store_falls_into_lines_and_words() {
        let lines: Vec<_> = pieces(120, 16, LINE).collect();
        assert_eq!(
            lines,
            [
                Piece {
                    line: 1,
                    bytes: Bytes::range(56, 8)
                },
                Piece {
                    line: 2,
                    bytes: Bytes::range(0, 8)
                }
            ]
        );
        let words: Vec<_> = pieces(6, 4, WORD).map(|p| p.bytes).collect();
        assert_eq!(words, [Bytes::range(6, 2), Bytes::range(8, 2)]);
        assert_eq!(pieces(8, 0, LINE).count(), 0);
        assert_eq!(pieces(u64::MAX - 3, 64, LINE).count(), 1);
    }
}
