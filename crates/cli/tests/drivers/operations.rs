//! Random operations for the drivers of the corpus, and what each of them must print.

use std::collections::{BTreeMap, VecDeque};

/// What kind of structure a driver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Map,
    Array,
    Queue,
}

/// A sequence of operations with the output that each has, and the probe's at the end.
pub(crate) struct Operations {
    pub lines: Vec<String>,
    pub output: Vec<String>,
    pub probe: Vec<String>,
}

impl Operations {
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

const KEYS: u64 = 200;

/// As many operations, unused keys preferred for insertion and used ones for the rest (Witcher, §7.1).
pub(crate) fn generate(shape: Shape, count: usize, seed: u64) -> Operations {
    let mut random = Random(seed);
    let mut operations = Operations {
        lines: Vec::new(),
        output: Vec::new(),
        probe: Vec::new(),
    };
    match shape {
        Shape::Map => map(&mut operations, count, &mut random),
        Shape::Array => array(&mut operations, count, &mut random),
        Shape::Queue => queue(&mut operations, count, &mut random),
    }
    operations
}

fn map(operations: &mut Operations, count: usize, random: &mut Random) {
    let mut model = BTreeMap::new();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..count {
        let what = random.below(16);
        let key = (0..).map(|_| random.below(KEYS) + 1);
        let key = key.take(8).reduce(|chosen, other| {
            let fits = |key: &u64| model.contains_key(key) == (what >= 7);
            if fits(&chosen) { chosen } else { other }
        });
        let (key, value) = (key.unwrap_or(1), random.below(1 << 40) + 1);
        keys.insert(key);
        let old = model.get(&key).copied();
        let (line, output) = match (what, old) {
            (0..7, Some(_)) => (format!("insert {key} {value}"), "exists".to_owned()),
            (0..7, None) => (format!("insert {key} {value}"), "inserted".to_owned()),
            (7..10, Some(_)) => (format!("update {key} {value}"), "updated".to_owned()),
            (7..10, None) => (format!("update {key} {value}"), "none".to_owned()),
            (10..15, Some(old)) => (format!("remove {key}"), format!("removed {old}")),
            (10..15, None) => (format!("remove {key}"), "none".to_owned()),
            (_, old) => (format!("get {key}"), shown(old)),
        };
        match what {
            0..7 => _ = model.entry(key).or_insert(value),
            7..10 => _ = model.entry(key).and_modify(|old| *old = value),
            10..15 => _ = model.remove(&key),
            _ => {}
        }
        operations.lines.push(line);
        operations.output.push(output);
    }
    let probe = keys
        .iter()
        .map(|key| format!("{key}: {}", shown(model.get(key).copied())));
    operations.probe = probe.collect();
}

fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn array(operations: &mut Operations, count: usize, random: &mut Random) {
    let mut model: Vec<u64> = Vec::new();
    for _ in 0..count {
        let (index, value) = (random.below(24) as usize, random.below(1 << 40));
        let (line, output) = match random.below(8) {
            0..4 => match model.get_mut(index) {
                Some(element) => {
                    *element = value;
                    (format!("set {index} {value}"), "ok".to_owned())
                }
                None => (format!("set {index} {value}"), "no element".to_owned()),
            },
            4 | 5 => {
                model.resize(index + 8, 0);
                (format!("resize {}", index + 8), "ok".to_owned())
            }
            6 => {
                let output = model.get(index).map_or("no element".to_owned(), u64::to_string);
                (format!("get {index}"), output)
            }
            _ => {
                let elements: String = model.iter().map(|element| format!("{element} ")).collect();
                ("print".to_owned(), format!("{} elements: {elements}", model.len()))
            }
        };
        operations.lines.push(line);
        operations.output.push(output);
    }
    operations.probe.push(format!("{} elements:", model.len()));
    operations.probe.extend(model.iter().map(u64::to_string));
}

fn queue(operations: &mut Operations, count: usize, random: &mut Random) {
    let mut model = VecDeque::new();
    let mut next = 0_u64;
    for _ in 0..count {
        let (line, output) = match random.below(16) {
            0..8 => {
                model.push_back(next);
                next += 1;
                ("put", "ok".to_owned())
            }
            8..15 => ("take", model.pop_front().map_or("empty".to_owned(), |n| n.to_string())),
            _ => {
                let messages: String = model.iter().map(|message| format!("{message} ")).collect();
                ("print", format!("{} messages: {messages}", model.len()))
            }
        };
        operations.lines.push(line.to_owned());
        operations.output.push(output);
    }
    operations.probe.push(format!("{} messages:", model.len()));
    operations.probe.extend(model.iter().map(u64::to_string));
}

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}
