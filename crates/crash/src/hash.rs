//! 128-bit content hashes that follow changes: the hash of an image is the sum of the hashes of its words, each keyed with
//! its place, so that a change costs what it touches and the hash of a part (a page, a line) is a sum of its own.
//!
//! Words that are zero count nothing: a file grows for free.

use crashproof_model::LineAddress;

pub(crate) const LINE_BYTES: usize = crashproof_model::LINE as usize;

/// What one line holds.
pub(crate) type Content = [u8; LINE_BYTES];

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

fn word(at: LineAddress, index: usize, value: u64) -> u128 {
    if value == 0 {
        return 0;
    }
    pair((at.file as u64) << 48 ^ (at.line << 3 | index as u64), value)
}

fn words(content: &Content) -> impl Iterator<Item = u64> {
    content
        .as_chunks()
        .0
        .iter()
        .map(|word: &[u8; 8]| u64::from_le_bytes(*word))
}

/// Of a line with this content.
pub(crate) fn line(at: LineAddress, content: &Content) -> u128 {
    words(content)
        .enumerate()
        .fold(0, |sum, (index, value)| sum.wrapping_add(word(at, index, value)))
}

/// What is to be added when a line changes.
pub(crate) fn change(at: LineAddress, old: &Content, new: &Content) -> u128 {
    words(old)
        .zip(words(new))
        .enumerate()
        .filter(|(_, (old, new))| old != new)
        .fold(0, |sum, (index, (old, new))| {
            sum.wrapping_sub(word(at, index, old))
                .wrapping_add(word(at, index, new))
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
        let at = LineAddress { file: 1, line: 7 };
        let other = LineAddress { file: 1, line: 8 };
        let (zero, mut one) = ([0; 64], [0; 64]);
        one[9] = 3;
        let mut two = one;
        two[63] = 1;
        assert_eq!(line(at, &zero), 0);
        assert_eq!(line(at, &one).wrapping_add(change(at, &one, &two)), line(at, &two));
        assert_ne!(line(at, &one), line(other, &one));
        assert_ne!(line(at, &one), line(at, &two));
    }
}
