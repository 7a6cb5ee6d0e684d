//! Random operations for a driver, with the bias of Witcher (SOSP 2021, section 7.1): an insertion mostly takes a key that is not
//! in use, everything else mostly one that is. Which operations there are, and how often each is drawn, the user says by
//! templates, so that any driver can be served; the paper's generator knows those of key-value stores.
//!
//! A template is a line with placeholders in braces: `{insert}` is a key that is in use from then on, `{remove}` one that is not any
//! more, `{used}` any other, `{key}` one of all, whether in use or not, `{value}` a value, `{A..B}` a number from A to B.

use std::ops::RangeInclusive;
use std::str::FromStr;

use rustc_hash::FxHashSet;

use crate::hash::mix;

/// How operations are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    /// At least one, with weights of which one is not 0.
    pub templates: Vec<Template>,
    pub keys: Keys,
    pub values: RangeInclusive<u64>,
    /// Of a hundred keys, how many are as the placeholder wants them; the others are any.
    pub bias: u64,
    pub seed: u64,
}

/// The keys that are drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// All of a range.
    Range(RangeInclusive<u64>),
    /// So many, over all 64 bits, that share prefixes of every length: for radix trees and tries, in which the keys of a short range have one path but for
    /// their last byte.
    Sparse(u64),
}

/// An operation, and how often it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub weight: u64,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Insert,
    Remove,
    Used,
    Key,
    Value,
    Number(RangeInclusive<u64>),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TemplateError {
    #[error("`{template}` has no weight; write it as in `get {{used}}=3`")]
    NoWeight { template: String },
    #[error("`{weight}` is not a weight; write a number, as in `get {{used}}=3`")]
    Weight { weight: String },
    #[error("`{template}` has no operation")]
    Empty { template: String },
    #[error("`{template}` has a brace that nothing closes")]
    Unclosed { template: String },
    #[error(
        "`{{{name}}}` is no placeholder; there are {{insert}}, {{remove}}, {{used}}, {{key}}, {{value}} and {{A..B}}"
    )]
    Placeholder { name: String },
    #[error("the ranges, the file or the weights leave nothing to draw: {what}")]
    Nothing { what: &'static str },
}

impl FromStr for Template {
    type Err = TemplateError;

    /// `insert {insert} {value}=4`
    fn from_str(text: &str) -> Result<Template, TemplateError> {
        let template = || text.to_owned();
        let (line, weight) = text
            .rsplit_once('=')
            .ok_or_else(|| TemplateError::NoWeight { template: template() })?;
        let weight = weight.trim().parse().map_err(|_| TemplateError::Weight {
            weight: weight.to_owned(),
        })?;
        let mut parts = Vec::new();
        let mut rest = line.trim();
        if rest.is_empty() {
            return Err(TemplateError::Empty { template: template() });
        }
        while let Some((before, after)) = rest.split_once('{') {
            let (name, then) = after
                .split_once('}')
                .ok_or_else(|| TemplateError::Unclosed { template: template() })?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(part(name)?);
            rest = then;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Template { weight, parts })
    }
}

fn part(name: &str) -> Result<Part, TemplateError> {
    Ok(match name {
        "insert" => Part::Insert,
        "remove" => Part::Remove,
        "used" => Part::Used,
        "key" => Part::Key,
        "value" => Part::Value,
        other => {
            let number = |text: &str| text.trim().parse::<u64>().ok();
            let range = other
                .split_once("..")
                .and_then(|(first, last)| Some((number(first)?, number(last)?)));
            let unknown = || TemplateError::Placeholder { name: other.to_owned() };
            let (first, last) = range.filter(|(first, last)| first <= last).ok_or_else(unknown)?;
            Part::Number(first..=last)
        }
    })
}

impl Generator {
    /// The same for the same seed, on any machine.
    pub fn generate(&self, count: u64) -> Result<Vec<String>, TemplateError> {
        let weights: u64 = self.templates.iter().map(|template| template.weight).sum();
        if weights == 0 {
            let what = "all weights are 0";
            return Err(TemplateError::Nothing { what });
        }
        if self.keys.numbers().is_empty() || self.values.is_empty() {
            let what = "a range ends before it begins";
            return Err(TemplateError::Nothing { what });
        }
        let mut random = Random(self.seed);
        let spread = match self.keys {
            Keys::Range(_) => Vec::new(),
            Keys::Sparse(count) => spread(count, &mut random),
        };
        let mut drawing = Drawing {
            generator: self,
            numbers: self.keys.numbers(),
            spread,
            random,
            used: Vec::new(),
        };
        Ok((0..count).map(|_| drawing.operation(weights)).collect())
    }
}

impl Keys {
    /// What is drawn: a key, or the number of one.
    fn numbers(&self) -> RangeInclusive<u64> {
        match self {
            Keys::Range(range) => range.clone(),
            Keys::Sparse(count) => 1..=*count,
        }
    }
}

/// Distinct keys, neither 0 nor all ones, which structures use for "none". Three of four branch off from one before them after a random number of
/// bits; what follows the bit in which they differ is random.
fn spread(count: u64, random: &mut Random) -> Vec<u64> {
    let mut keys: Vec<u64> = Vec::new();
    let mut known = FxHashSet::default();
    while (keys.len() as u64) < count {
        let key = match keys.is_empty() || random.below(4) == 0 {
            true => random.next(),
            false => {
                let base = keys[random.below(keys.len() as u64) as usize];
                let differs = 1 << random.below(64);
                let below = differs - 1;
                (base ^ differs) & !below | random.next() & below
            }
        };
        if key != 0 && key != u64::MAX && known.insert(key) {
            keys.push(key);
        }
    }
    keys
}

/// SplitMix64 (Steele, Lea, Flood: OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        match (range.end() - range.start()).checked_add(1) {
            Some(count) => range.start() + self.below(count),
            None => self.next(),
        }
    }
}

struct Drawing<'a> {
    generator: &'a Generator,
    /// Of the keys.
    numbers: RangeInclusive<u64>,
    /// The keys by their number, from 1; none if they are their numbers.
    spread: Vec<u64>,
    random: Random,
    /// Ascending.
    used: Vec<u64>,
}

impl Drawing<'_> {
    fn operation(&mut self, weights: u64) -> String {
        let mut draw = self.random.below(weights);
        let templates = &self.generator.templates;
        let template = templates.iter().find(|template| {
            let chosen = draw < template.weight;
            draw = draw.wrapping_sub(template.weight);
            chosen
        });
        let mut line = String::new();
        for part in template.into_iter().flat_map(|template| &template.parts) {
            match part {
                Part::Text(text) => line += text,
                Part::Insert => {
                    let number = self.inserted();
                    line += &self.shown(number);
                }
                Part::Remove => {
                    let number = self.removed();
                    line += &self.shown(number);
                }
                Part::Used => {
                    let number = self.used();
                    line += &self.shown(number);
                }
                Part::Key => {
                    let number = self.key();
                    line += &self.shown(number);
                }
                Part::Value => line += &self.random.within(&self.generator.values).to_string(),
                Part::Number(range) => line += &self.random.within(range).to_string(),
            }
        }
        line
    }

    fn shown(&self, number: u64) -> String {
        let key = match self.spread.is_empty() {
            true => number,
            false => self.spread[number as usize - 1],
        };
        key.to_string()
    }

    fn key(&mut self) -> u64 {
        self.random.within(&self.numbers)
    }

    fn is_biased(&mut self) -> bool {
        self.random.below(100) < self.generator.bias
    }

    fn inserted(&mut self) -> u64 {
        let key = match self.is_biased() {
            true => self.unused().unwrap_or_else(|| self.key()),
            false => self.key(),
        };
        if let Err(at) = self.used.binary_search(&key) {
            self.used.insert(at, key);
        }
        key
    }

    /// None: all are in use.
    fn unused(&mut self) -> Option<u64> {
        let keys = &self.numbers;
        let all = (keys.end() - keys.start()).saturating_add(1);
        let free = all - self.used.len() as u64;
        let mut key = keys.start() + (free > 0).then(|| self.random.below(free))?;
        for &used in &self.used {
            key += (used <= key) as u64;
        }
        Some(key)
    }

    fn used(&mut self) -> u64 {
        if self.used.is_empty() || !self.is_biased() {
            return self.key();
        }
        self.used[self.random.below(self.used.len() as u64) as usize]
    }

    fn removed(&mut self) -> u64 {
        let key = self.used();
        if let Ok(at) = self.used.binary_search(&key) {
            self.used.remove(at);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn generator(templates: &[&str], bias: u64) -> Generator {
        Generator {
            templates: templates.iter().map(|text| text.parse().unwrap()).collect(),
            keys: Keys::Range(1..=40),
            values: 100..=199,
            bias,
            seed: 7,
        }
    }

    #[test]
    fn keys_are_in_use_or_not_as_the_placeholder_wants() {
        let generator = generator(
            &[
                "insert {insert} {value}=4",
                "get {used}=3",
                "remove {remove}=3",
                "rare=0",
            ],
            100,
        );
        let operations = generator.generate(2000).unwrap();
        assert_eq!(operations.len(), 2000);
        assert_eq!(operations, generator.generate(2000).unwrap(), "seeded");
        let mut used = BTreeSet::new();
        for operation in &operations {
            let words: Vec<&str> = operation.split(' ').collect();
            let key: u64 = words[1].parse().unwrap();
            assert!((1..=40).contains(&key));
            match words[0] {
                "insert" => {
                    assert!((100..200).contains(&words[2].parse::<u64>().unwrap()));
                    assert!(used.insert(key) || used.len() == 40, "{operation}");
                }
                "get" => assert!(used.is_empty() || used.contains(&key), "{operation}"),
                "remove" => {
                    let was_empty = used.is_empty();
                    assert!(used.remove(&key) || was_empty, "{operation}");
                }
                other => panic!("{other} has weight 0"),
            }
        }
    }

    #[test]
    fn sparse_keys_are_spread_and_share_prefixes() {
        let sparse = |seed| Generator {
            keys: Keys::Sparse(300),
            seed,
            ..generator(&["insert {insert}=2", "remove {remove}=1"], 100)
        };
        let operations = sparse(7).generate(2000).unwrap();
        assert_eq!(operations, sparse(7).generate(2000).unwrap(), "seeded");
        assert_ne!(operations, sparse(8).generate(2000).unwrap());
        let mut used = BTreeSet::new();
        let mut all = BTreeSet::new();
        for operation in &operations {
            let (name, key) = operation.split_once(' ').unwrap();
            let key: u64 = key.parse().unwrap();
            assert!(key != 0 && key != u64::MAX);
            all.insert(key);
            let was_empty = used.is_empty();
            match name {
                "insert" => assert!(used.insert(key) || used.len() == 300),
                _ => assert!(used.remove(&key) || was_empty),
            }
        }
        assert!(all.len() <= 300 && all.len() > 250, "{}", all.len());
        // Of neighbours, how many bits are the same: short prefixes and long ones, in all eighths of the key.
        let keys: Vec<u64> = all.into_iter().collect();
        let shared: BTreeSet<u32> = keys
            .windows(2)
            .map(|pair| (pair[0] ^ pair[1]).leading_zeros() / 8)
            .collect();
        assert_eq!(shared, (0..8).collect());
    }

    #[test]
    fn without_bias_keys_are_any() {
        let operations = generator(&["put {insert}=1"], 0).generate(400).unwrap();
        let distinct: BTreeSet<&String> = operations.iter().collect();
        assert_eq!(distinct.len(), 40);
        let numbers = generator(&["resize {8..9}=1"], 0).generate(50).unwrap();
        let distinct: BTreeSet<&str> = numbers.iter().map(String::as_str).collect();
        assert_eq!(distinct, BTreeSet::from(["resize 8", "resize 9"]));
    }

    #[test]
    fn what_is_no_template_is_told() {
        let error = |text: &str| text.parse::<Template>().unwrap_err().to_string();
        assert!(error("get {used}").contains("no weight"));
        assert!(error("get {used}=x").contains("not a weight"));
        assert!(error("=3").contains("no operation"));
        assert!(error("get {used=3").contains("nothing closes"));
        assert!(error("get {usd}=3").contains("{used}"));
        assert!(error("get {9..8}=3").contains("{A..B}"));
        assert!(generator(&["get {key}=0"], 0).generate(1).is_err());
    }
}
