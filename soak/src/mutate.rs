//! Malformed inputs: good ones with a few changes of the kind that storage, transfers and attackers make.

use crate::random::Random;

/// Longer inputs only take longer.
const MAX_LEN: usize = 1 << 16;

/// Numbers at which parsers go wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// One of the seeds with one to eight changes.
pub fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(8) {
        change(&mut input, seeds, random);
    }
    input.truncate(MAX_LEN);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    if input.is_empty() {
        input.push(random.number() as u8);
        return;
    }
    let at = random.below(input.len());
    let len = 1 + random.below((input.len() - at).min(64));
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.number() as u8,
        2 => {
            input.drain(at..at + len);
        }
        3 => {
            let part = input[at..at + len].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, part);
        }
        4 => input.truncate(at),
        5 => {
            let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)].min(input.len() - at);
            input[at..at + width].copy_from_slice(&number[..width]);
        }
        6 => {
            let number = NUMBERS[random.below(NUMBERS.len())];
            let text = match random.below(3) {
                0 => number.to_string(),
                1 => format!("{number:#x}"),
                _ => format!("-{number}"),
            };
            input.splice(at..at + len, text.bytes());
        }
        7 => {
            let other = &seeds[random.below(seeds.len())];
            if !other.is_empty() {
                let from = random.below(other.len());
                let part = &other[from..(from + 256).min(other.len())];
                input.splice(at..at + len, part.iter().copied());
            }
        }
        _ => {
            let byte = input[at];
            input.splice(at..at, std::iter::repeat_n(byte, 1 + random.below(200)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let seeds = vec![b"one 1 two 2".to_vec(), Vec::new(), vec![0; 100]];
        let inputs = |seed| {
            let mut random = Random(seed);
            (0..1000).map(|_| mutate(&seeds, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        assert!(inputs(3).iter().all(|input| input.len() <= MAX_LEN));
    }
}
