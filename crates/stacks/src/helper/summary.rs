//! What a function does to memory, in terms of what it is called with: the same whether it was read from machine code
//! (`flow`) or, by `crashproof cc`, from the front end's code. The rules (`rules`) are on summaries.

use crashproof_library::{Effect as Library, Extent};

use super::rules::{self, Subject};
use super::value::{Source, Value};
use crate::registers::ARGUMENTS;

/// Effects of one function, with those of the functions that it calls.
pub const MOST_EFFECTS: usize = 64;

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Store {
        value: Value,
        nontemporal: bool,
    },
    Flush,
    Fence,
    /// Anything: code that cannot be followed.
    Unknown,
}

/// Something that a function does to memory other than its own frame and the module's own data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The instruction, by number.
    pub index: usize,
    pub act: Act,
    pub address: Value,
    /// Bytes, if it is known how many.
    pub size: Option<u64>,
    /// In a loop, of the function or of one that it calls.
    pub in_loop: bool,
}

impl Effect {
    pub fn new(index: usize, act: Act, address: Value, size: Option<u64>) -> Effect {
        Effect {
            index,
            act,
            address,
            size,
            in_loop: false,
        }
    }

    pub fn unknown(index: usize) -> Effect {
        Effect::new(index, Act::Unknown, Value::Unknown, None)
    }

    /// Whether it is done to the function's own frame or the module's own data, and so is none.
    pub fn is_own(&self) -> bool {
        matches!(self.address, Value::Frame(_) | Value::Static) && !matches!(self.act, Act::Unknown | Act::Fence)
    }
}

#[derive(Clone, Debug)]
pub struct Summary {
    /// Where control goes from each instruction.
    pub successors: Vec<Vec<usize>>,
    pub effects: Vec<Effect>,
    /// What it returns; `None`: it never does.
    pub returned: Option<Value>,
    /// Where it returns.
    pub exits: Vec<usize>,
    /// Something in it was not followed that a closer look may decide.
    pub is_open: bool,
}

impl Summary {
    /// Of a function that cannot be followed.
    pub fn unknown() -> Summary {
        Summary {
            successors: Vec::new(),
            effects: vec![Effect::unknown(0)],
            returned: Some(Value::Unknown),
            exits: Vec::new(),
            is_open: true,
        }
    }

    /// `recursive`: what the function calls itself with.
    pub fn new(
        successors: Vec<Vec<usize>>,
        mut effects: Vec<Effect>,
        returned: Option<Value>,
        exits: Vec<usize>,
        recursive: &[[Value; ARGUMENTS.len()]],
    ) -> Summary {
        for effect in &mut effects {
            effect.in_loop |= reaches(&successors, effect.index, effect.index, &|_| false);
        }
        if recurses_elsewhere(recursive, &effects) || effects.len() > MOST_EFFECTS {
            effects.truncate(MOST_EFFECTS);
            effects.push(Effect::unknown(0));
        }
        Summary {
            successors,
            effects,
            returned,
            exits,
            is_open: false,
        }
    }

    /// Whether a path leads from behind one instruction to another, not by way of those that `stops` has.
    pub fn reaches(&self, from: usize, to: usize, stops: &dyn Fn(usize) -> bool) -> bool {
        reaches(&self.successors, from, to, stops)
    }

    /// What a call of it, the instruction `index`, does in its caller: `of` says what a source is there.
    pub fn called(
        &self,
        index: usize,
        of: &mut impl FnMut(Source) -> Value,
        made: impl Fn() -> Value,
    ) -> impl Iterator<Item = Effect> {
        self.effects.iter().map(move |effect| {
            let act = match &effect.act {
                Act::Store { value, nontemporal } => Act::Store {
                    value: value.substitute(of, &made),
                    nontemporal: *nontemporal,
                },
                other => other.clone(),
            };
            Effect {
                index,
                act,
                address: effect.address.substitute(of, &made),
                ..*effect
            }
        })
    }

    pub fn is_helper(&self) -> bool {
        Subject {
            effects: self.effects.iter().collect(),
            summary: self,
            given: &rules::argument,
            is_given_constant: &|_, _| false,
            values: &[],
            returned: self.returned.as_ref(),
        }
        .is_helper()
    }

    /// The same; `None`: it depends on what was not followed, or the function does nothing.
    pub fn verdict(&self) -> Option<bool> {
        let is_known = !self.effects.is_empty() && self.effects.iter().all(|effect| effect.act != Act::Unknown);
        let is_helper = is_known && self.is_helper();
        (is_helper || is_known && !self.is_open).then_some(is_helper)
    }
}

fn reaches(successors: &[Vec<usize>], from: usize, to: usize, stops: &dyn Fn(usize) -> bool) -> bool {
    let mut seen = vec![false; successors.len()];
    let mut pending: Vec<usize> = successors[from].clone();
    while let Some(at) = pending.pop() {
        if at == to {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) && !stops(at) {
            pending.extend(&successors[at]);
        }
    }
    false
}

/// Whether a call of itself may store or flush what a call from outside would not: an argument that matters is not
/// arithmetic on that same argument and others.
fn recurses_elsewhere(recursive: &[[Value; ARGUMENTS.len()]], effects: &[Effect]) -> bool {
    let argument = |number: usize| Source::Register(ARGUMENTS[number].number());
    let matters = |number: usize| {
        effects.iter().any(|effect| {
            let value = match &effect.act {
                Act::Store { value, .. } => value.roots(),
                _ => &[],
            };
            let mut roots = effect.address.roots().iter().chain(value);
            roots.any(|root| root.source == argument(number))
        })
    };
    let same = |number: usize, value: &Value| {
        let is_argument = |source: Source| (0..ARGUMENTS.len()).any(|number| source == argument(number));
        let roots = value.roots();
        roots.iter().any(|root| root.source == argument(number))
            && roots
                .iter()
                .all(|root| root.path.is_empty() && is_argument(root.source))
    };
    let mut arguments = recursive.iter().flat_map(|arguments| arguments.iter().enumerate());
    arguments.any(|(number, value)| matters(number) && !same(number, value))
}

/// What a function of a library does and returns, called with these arguments; `read` says what is at an address.
pub fn of_library(
    effects: &[Library],
    argument: impl Fn(u32) -> Value,
    read: impl Fn(&Value) -> Value,
) -> (Vec<(Act, Value)>, Value) {
    let range = |number: u32| argument(number).add(&Value::mixed([]));
    let store = |value| Act::Store {
        value,
        nontemporal: false,
    };
    let fence = || (Act::Fence, Value::constant(0));
    let mut acts = Vec::new();
    let mut returned = Value::mixed([]);
    for effect in effects {
        match *effect {
            Library::Copies { to, from, .. } | Library::CopiesText { to, from, .. } => {
                acts.push((store(read(&range(from))), range(to)));
            }
            Library::Fills { to, value, extent } => {
                let count = match extent {
                    Extent::Argument(count) | Extent::Wide(count) => argument(count),
                    _ => Value::Unknown,
                };
                acts.push((store(fill(&argument(value), &count)), range(to)));
            }
            Library::Flushes { at, .. } => acts.push((Act::Flush, range(at))),
            Library::Persists { at, .. } => acts.extend([(Act::Flush, range(at)), fence()]),
            // By their flags they may leave it to the caller: what counts is that they need not.
            Library::Fences | Library::TakesFlags(_) => acts.push(fence()),
            Library::Returns(number) => returned = argument(number),
            _ => {}
        }
    }
    (acts, returned)
}

/// What a region is filled with: whoever says how long it is says that it is filled.
pub fn fill(value: &Value, count: &Value) -> Value {
    match value.roots().is_empty() && value.is_from() {
        true => Value::mixed([count]),
        false => value.clone(),
    }
}
