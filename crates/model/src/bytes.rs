//! Bytes of a cache line as a bit set, and how a store falls into lines and words.

use crashproof_base::LINE;

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
        let base = line * LINE;
        let from = start.saturating_sub(base).min(LINE);
        let to = end.saturating_sub(base).min(LINE);
        Bytes::range(from, to.saturating_sub(from))
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
pub fn pieces(offset: u64, len: u64, unit: u64) -> Pieces {
    debug_assert!(unit <= LINE && LINE.is_multiple_of(unit));
    Pieces {
        at: offset,
        end: offset.saturating_add(len),
        unit,
    }
}

/// The pieces that are left of an access.
#[derive(Clone, Debug)]
pub struct Pieces {
    at: u64,
    end: u64,
    unit: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let next = (at / self.unit + 1).saturating_mul(self.unit).min(self.end);
        self.at = next;
        Some(Piece {
            line: at / LINE,
            bytes: Bytes::range(at % LINE, next - at),
        })
    }
}

#[cfg(test)]
mod tests {
    use crashproof_base::WORD;

    use super::*;

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
