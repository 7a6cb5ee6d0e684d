//! 128-bit content hashes that follow changes: the hash of an image is the sum of the hashes of its words, each keyed with
//! its place, so that a change costs what it touches and the hash of a part (a page, a line) is a sum of its own.
//!
//! Words that are zero count nothing: a file grows for free.

use crashproof_model::LineAddress;
use smallvec::SmallVec;

const LINE_BYTES: usize = crashproof_model::LINE as usize;

/// What one line holds, or a unit of another size.
pub(crate) type Content = SmallVec<[u8; LINE_BYTES]>;

/// The finaliser of SplitMix64.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Two independent halves of one key and one value.
pub(crate) fn pair(key: u64, value: u64) -> u128 {
    let low = mix(mix(key ^ 0x9e37_79b9_7f4a_7c15) ^ value);
    let high = mix(mix(key ^ 0xd1b5_4a32_d192_ed03) ^ value);
    (high as u128) << 64 | low as u128
}

/// Of a word of a file, by its number.
fn word(file: u32, number: u64, value: u64) -> u128 {
    if value == 0 {
        return 0;
    }
    pair((file as u64) << 48 ^ number, value)
}

fn words(content: &[u8]) -> impl Iterator<Item = u64> {
    content
        .as_chunks()
        .0
        .iter()
        .map(|word: &[u8; 8]| u64::from_le_bytes(*word))
}

/// Of these bytes of a file, which begin at a word.
pub(crate) fn bytes(file: u32, offset: u64, content: &[u8]) -> u128 {
    let numbered = (offset / 8..).zip(words(content));
    numbered.fold(0, |sum, (number, value)| sum.wrapping_add(word(file, number, value)))
}

/// What is to be added when a line changes.
pub(crate) fn change(at: LineAddress, old: &[u8], new: &[u8]) -> u128 {
    match (<&[u8; LINE_BYTES]>::try_from(old), <&[u8; LINE_BYTES]>::try_from(new)) {
        // Most units are cache lines: compiled for their length.
        (Ok(old), Ok(new)) => change_of_words(at, old, new),
        _ => change_of_words(at, old, new),
    }
}

#[inline(always)]
fn change_of_words(at: LineAddress, old: &[u8], new: &[u8]) -> u128 {
    let first = at.line * (old.len() as u64 / 8);
    let numbered = (first..).zip(words(old).zip(words(new)));
    numbered
        .filter(|(_, (old, new))| old != new)
        .fold(0, |sum, (number, (old, new))| {
            sum.wrapping_sub(word(at.file, number, old))
                .wrapping_add(word(at.file, number, new))
        })
}

/// Of bytes that come in parts; where the parts begin matters.
#[derive(Default)]
pub(crate) struct Fold(pub u128);

impl Fold {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.word(u64::from_le_bytes(word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    fn word(&mut self, word: u64) {
        self.0 = pair(mix(self.0 as u64), (self.0 >> 64) as u64 ^ word).rotate_left(17) ^ self.0.rotate_left(64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_add_up() {
        for unit in [16, LINE_BYTES, 4096] {
            let at = LineAddress { file: 1, line: 7 };
            let line = |line, content: &[u8]| bytes(1, line * unit as u64, content);
            let (zero, mut one) = (vec![0; unit], vec![0; unit]);
            one[9] = 3;
            let mut two = one.clone();
            two[unit - 1] = 1;
            assert_eq!(line(7, &zero), 0);
            assert_eq!(line(7, &one).wrapping_add(change(at, &one, &two)), line(7, &two));
            assert_ne!(line(7, &one), line(8, &one));
            assert_ne!(line(7, &one), line(7, &two));
        }
    }
}
