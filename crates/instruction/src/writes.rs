//! What an instruction writes: a contiguous range of bytes, or some of the bytes of a range of at most 64.

/// The bytes that an instruction writes, as program addresses. A masked store skips bytes, so this is a list of ranges;
/// it is kept as one start and a bit mask to be small and need no memory of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writes {
    start: u64,
    length: u32,
    /// Which of the first 64 bytes are written; meaningless when `length` is above 64, then all are.
    mask: u64,
}

/// One contiguous piece of [`Writes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenRange {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: usize,
}

impl Writes {
    /// No bytes.
    pub const NONE: Writes = Writes {
        start: 0,
        length: 0,
        mask: 0,
    };

    /// All bytes of a range.
    pub fn contiguous(start: u64, length: usize) -> Writes {
        let mask = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
        Writes {
            start,
            length: length as u32,
            mask,
        }
    }

    /// Bit i of `mask` stands for the byte at `start` + i.
    pub fn masked(start: u64, mask: u64) -> Writes {
        if mask == 0 {
            return Writes::NONE;
        }
        let skipped = mask.trailing_zeros();
        let mask = mask >> skipped;
        Writes {
            start: start.wrapping_add(skipped.into()),
            length: 64 - mask.leading_zeros(),
            mask,
        }
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The smallest range that holds all the bytes written.
    pub fn bounds(&self) -> WrittenRange {
        WrittenRange {
            address: self.start,
            length: self.length as usize,
        }
    }

    /// The contiguous pieces in ascending order, apart from each other by at least a byte.
    pub fn ranges(&self) -> WrittenRanges {
        WrittenRanges {
            next: self.start,
            left: self.length,
            mask: self.mask,
            whole: self.length > 64,
        }
    }
}

impl IntoIterator for Writes {
    type Item = WrittenRange;
    type IntoIter = WrittenRanges;

    fn into_iter(self) -> WrittenRanges {
        self.ranges()
    }
}

/// Iterator over the pieces of [`Writes`].
pub struct WrittenRanges {
    next: u64,
    left: u32,
    mask: u64,
    whole: bool,
}

impl Iterator for WrittenRanges {
    type Item = WrittenRange;

    fn next(&mut self) -> Option<WrittenRange> {
        if self.left == 0 {
            return None;
        }
        if self.whole {
            let range = WrittenRange {
                address: self.next,
                length: self.left as usize,
            };
            self.left = 0;
            return Some(range);
        }
        let skipped = self.mask.trailing_zeros().min(self.left);
        let rest = self.mask.checked_shr(skipped).unwrap_or(0);
        let length = rest.trailing_ones().min(self.left - skipped);
        let range = WrittenRange {
            address: self.next.wrapping_add(skipped.into()),
            length: length as usize,
        };
        self.next = range.address.wrapping_add(length.into());
        self.left -= skipped + length;
        self.mask = rest.checked_shr(length).unwrap_or(0);
        (length > 0).then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(writes: Writes) -> Vec<(u64, usize)> {
        writes.ranges().map(|range| (range.address, range.length)).collect()
    }

    #[test]
    fn pieces() {
        assert_eq!(list(Writes::NONE), []);
        assert_eq!(list(Writes::contiguous(7, 1)), [(7, 1)]);
        assert_eq!(list(Writes::contiguous(7, 64)), [(7, 64)]);
        assert_eq!(list(Writes::contiguous(7, 832)), [(7, 832)]);
        assert_eq!(list(Writes::masked(100, 0)), []);
        assert_eq!(list(Writes::masked(100, 0b1101_1000)), [(103, 2), (106, 2)]);
        assert_eq!(list(Writes::masked(0, u64::MAX)), [(0, 64)]);
        assert_eq!(list(Writes::masked(0, 1 << 63 | 1)), [(0, 1), (63, 1)]);
        assert_eq!(list(Writes::masked(0, 0x5555_5555_5555_5555)).len(), 32);
        assert_eq!(
            Writes::masked(100, 0b1101_1000).bounds(),
            WrittenRange {
                address: 103,
                length: 5
            }
        );
    }
}
