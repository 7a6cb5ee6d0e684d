//! What conditions are about: bytes of a PM file that some access had as a whole, as far as they lie in one 8-byte word.

use crashproof_trace::{FileId, PmAddress};
use rustc_hash::FxHashMap;

/// What hardware persists at once.
const WORD: u64 = 8;

/// Bytes within one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub file: FileId,
    pub offset: u64,
    pub len: u8,
}

impl Location {
    /// The word that it lies in.
    pub fn word(self) -> (FileId, u64) {
        (self.file, self.offset / WORD)
    }

    /// Which bytes of the word it has.
    pub fn mask(self) -> u8 {
        let bits = (1u16 << self.len.min(WORD as u8)) - 1;
        (bits << (self.offset % WORD)) as u8
    }

    pub fn overlaps(self, other: Location) -> bool {
        self.word() == other.word() && self.mask() & other.mask() != 0
    }
}

/// The parts of a range by words.
pub fn split(at: PmAddress, len: u64) -> impl Iterator<Item = Location> {
    let end = at.offset.saturating_add(len);
    let mut offset = at.offset;
    std::iter::from_fn(move || {
        if offset >= end {
            return None;
        }
        let next = (offset / WORD + 1).saturating_mul(WORD).min(end);
        let part = Location {
            file: at.file,
            offset,
            len: (next - offset) as u8,
        };
        offset = next;
        Some(part)
    })
}

/// A location's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

impl LocationId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Each location once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locations {
    pub list: Vec<Location>,
    ids: FxHashMap<Location, LocationId>,
}

impl Locations {
    pub(crate) fn id(&mut self, location: Location) -> LocationId {
        let list = &mut self.list;
        *self.ids.entry(location).or_insert_with(|| {
            list.push(location);
            LocationId(list.len() as u32 - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_at_words() {
        let file = FileId(0);
        let parts: Vec<_> = split(PmAddress { file, offset: 6 }, 12)
            .map(|part| (part.offset, part.len, part.mask()))
            .collect();
        assert_eq!(parts, [(6, 2, 0xc0), (8, 8, 0xff), (16, 2, 0x03)]);
        assert_eq!(split(PmAddress { file, offset: 6 }, 0).count(), 0);
        let at = |offset, len| Location { file, offset, len };
        assert!(at(0, 8).overlaps(at(3, 1)) && !at(0, 3).overlaps(at(3, 1)) && !at(0, 8).overlaps(at(8, 1)));
    }
}
