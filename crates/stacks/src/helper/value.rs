//! Where a value comes from: what the function was called with, what it read through that, or what it found itself.

use std::sync::Arc;

/// What a function starts from, or what it made of something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An argument in a general register, by the register's number.
    Register(usize),
    /// An argument in a vector register.
    Vector(usize),
    /// An argument in memory, by its distance from the stack pointer when the function is entered.
    Stack(i64),
    /// Made by the instruction at this address, or by paths that meet there; the number tells several of one place apart.
    Made(u64, i64),
}

/// A source, or what was read through it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Root {
    pub source: Source,
    /// The offset of each read, the first one first; `None`: computed.
    pub path: Vec<Option<i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Too much was mixed to be followed.
    Unknown,
    /// An address in the function's own frame, from the stack pointer when the function is entered.
    Frame(Option<i64>),
    /// An address in the module's own code or data.
    Static,
    /// Arithmetic on these roots, sorted. The offset is known if the value is its only root plus that; a constant has no roots.
    From { roots: Arc<[Root]>, offset: Option<i64> },
}

/// Values of more roots than this are not followed.
const MOST_ROOTS: usize = 6;
/// Reads through reads.
const LONGEST_PATH: usize = 3;

impl Value {
    pub fn constant(value: i64) -> Value {
        Value::From {
            roots: Arc::default(),
            offset: Some(value),
        }
    }

    pub fn source(source: Source) -> Value {
        let root = Root {
            source,
            path: Vec::new(),
        };
        Value::From {
            roots: Arc::from([root]),
            offset: Some(0),
        }
    }

    pub fn as_constant(&self) -> Option<i64> {
        match self {
            Value::From { roots, offset } if roots.is_empty() => *offset,
            _ => None,
        }
    }

    pub fn roots(&self) -> &[Root] {
        match self {
            Value::From { roots, .. } => roots,
            _ => &[],
        }
    }

    pub fn offset(&self) -> Option<i64> {
        match self {
            Value::From { offset, .. } => *offset,
            _ => None,
        }
    }

    /// Whether it is a constant, or comes from something.
    pub fn is_known(&self) -> bool {
        self.as_constant().is_some() || !self.roots().is_empty()
    }

    /// Whether it is arithmetic on what is known, and not an address of the frame or of the module.
    pub fn is_from(&self) -> bool {
        matches!(self, Value::From { .. })
    }

    pub fn add(&self, other: &Value) -> Value {
        match (self, other) {
            (Value::Frame(at), other) | (other, Value::Frame(at)) => match other {
                Value::Frame(_) | Value::Unknown | Value::Static => Value::Unknown,
                _ => Value::Frame(at.zip(other.as_constant()).map(|(at, by)| at.wrapping_add(by))),
            },
            (Value::Static, other) | (other, Value::Static) if other.roots().is_empty() && other.is_from() => {
                Value::Static
            }
            (
                Value::From { roots, offset },
                Value::From {
                    roots: others,
                    offset: by,
                },
            ) => {
                let offset = match roots.is_empty() || others.is_empty() {
                    true => offset.zip(*by).map(|(offset, by)| offset.wrapping_add(by)),
                    false => None,
                };
                Value::From {
                    roots: roots.clone(),
                    offset,
                }
                .with_roots(others)
            }
            _ => Value::Unknown,
        }
    }

    fn with_roots(self, others: &[Root]) -> Value {
        let Value::From { roots, offset } = &self else {
            return self;
        };
        if others.iter().all(|other| roots.contains(other)) {
            return self;
        }
        let mut all = [roots, others].concat();
        all.sort_unstable();
        all.dedup();
        match all.len() <= MOST_ROOTS {
            true => Value::From {
                roots: all.into(),
                offset: *offset,
            },
            false => Value::Unknown,
        }
    }

    /// Some result of all of these that is not their sum.
    pub fn mixed<'v>(values: impl IntoIterator<Item = &'v Value>) -> Value {
        let mut mixed = Value::From {
            roots: Arc::default(),
            offset: None,
        };
        for value in values {
            mixed = match (mixed, value) {
                (from @ Value::From { .. }, Value::From { roots, .. }) => from.with_roots(roots),
                (Value::From { roots, .. }, Value::Frame(_)) if roots.is_empty() => Value::Frame(None),
                (Value::Frame(_), Value::From { roots, .. }) if roots.is_empty() => Value::Frame(None),
                _ => Value::Unknown,
            };
        }
        mixed
    }

    /// What is read at this address, which is not in the frame; `None`: found there by the function itself.
    pub fn read(&self) -> Option<Value> {
        let Value::From { roots, offset } = self else {
            return None;
        };
        if roots.is_empty() || roots.iter().any(|root| root.path.len() >= LONGEST_PATH) {
            return None;
        }
        let step = offset.filter(|_| roots.len() == 1);
        let mut read = roots.to_vec();
        for root in &mut read {
            root.path.push(step);
        }
        Some(Value::From {
            roots: read.into(),
            offset: Some(0),
        })
    }

    /// What holds for both, where paths meet at `at`; `place` says in which register or word.
    pub fn join(&self, other: &Value, at: u64, place: i64) -> Value {
        if self == other {
            return self.clone();
        }
        match (self, other) {
            (Value::Frame(_), Value::Frame(_)) => Value::Frame(None),
            (
                Value::From { roots, offset: one },
                Value::From {
                    roots: others,
                    offset: other,
                },
            ) => {
                let offset = one.filter(|_| one == other && roots.len() == others.len());
                let both = if roots.len() >= others.len() {
                    generalised(roots, others)
                } else {
                    generalised(others, roots)
                };
                match both {
                    Some(roots) => Value::From {
                        roots: roots.into(),
                        offset,
                    },
                    None => Value::source(Source::Made(at, place)),
                }
            }
            _ => Value::source(Source::Made(at, place)),
        }
    }

    /// In terms of the caller: `of` says what a source is there.
    pub fn substitute(&self, of: &mut impl FnMut(Source) -> Value, unknown: impl Fn() -> Value) -> Value {
        let Value::From { roots, offset } = self else {
            return self.clone();
        };
        let mut sum = Value::constant(0);
        for root in &roots[..] {
            let mut value = of(root.source);
            for step in &root.path {
                let by = Value::From {
                    roots: Arc::default(),
                    offset: *step,
                };
                value = value.add(&by).read().unwrap_or_else(&unknown);
            }
            sum = sum.add(&value);
        }
        let by = Value::From {
            roots: Arc::default(),
            offset: *offset,
        };
        sum.add(&by)
    }
}

/// The roots, of which the others are some, with what both have in common of each path; `None`: the others are no part of them.
fn generalised(roots: &[Root], others: &[Root]) -> Option<Vec<Root>> {
    let is_like = |root: &Root, other: &Root| root.source == other.source && root.path.len() == other.path.len();
    let has = |other: &Root| roots.iter().any(|root| is_like(root, other));
    if !others.iter().all(has) {
        return None;
    }
    let mut found = roots.to_vec();
    for root in &mut found {
        for other in others.iter().filter(|other| other.source == root.source) {
            if other.path.len() == root.path.len() {
                for (step, same) in root.path.iter_mut().zip(&other.path) {
                    *step = step.filter(|_| *step == *same);
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}
