//! What is known of a value: an integer, an address in the function's own frame, or an address in an object of known type.

use std::rc::Rc;

use crate::pointer::{Outer, Pointer, Shapes, Type};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// `scale * n + add`. Values with the same symbol have the same n: it was made by the instruction at that address.
    Integer {
        symbol: Option<u64>,
        scale: u64,
        add: i64,
    },
    /// So far from what the stack pointer was before the call.
    Frame(i64),
    Pointer(Address),
    /// Two sources say different things, and one of them is right.
    Doubtful,
}

use Value::{Doubtful, Frame, Integer};

/// A place of an object, and from there multiples of some steps, whose number is not known. Code adds an index before the offset of the array that it is
/// for as often as behind it, so which array is meant shows only where the address is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub base: Pointer,
    /// Largest first.
    pub steps: Vec<u64>,
}

/// Indices of one address.
const MAX_STEPS: usize = 3;

impl From<Pointer> for Address {
    fn from(base: Pointer) -> Address {
        Address {
            base,
            steps: Vec::new(),
        }
    }
}

impl Address {
    pub(super) fn advance(mut self, bytes: i64) -> Address {
        self.base.advance(bytes);
        self
    }

    /// `None`: too many to be followed.
    pub(super) fn vary(mut self, step: u64) -> Option<Address> {
        if step > 0 && !self.steps.contains(&step) {
            self.steps.push(step);
            self.steps.sort_unstable_by(|a, b| b.cmp(a));
        }
        (self.steps.len() <= MAX_STEPS).then_some(self)
    }

    /// The elements that the steps are for: those of the outermost array have the largest.
    pub(super) fn resolve(&self, shapes: &Shapes) -> Pointer {
        let mut pointer = self.base.clone();
        for &step in &self.steps {
            pointer = vary(pointer, step, shapes);
            if pointer.object.is_none() {
                // That it is some byte of the object is not worth knowing here: it may as well be one behind.
                pointer.outer = None;
            }
        }
        pointer
    }

    /// Whether it is some byte of an array of bytes: what the source keeps there is as likely of another type.
    pub(super) fn is_some_byte(&self) -> bool {
        self.steps.contains(&1)
    }

    fn is_known(&self) -> bool {
        self.base.object.is_some() || self.base.argument.is_some()
    }

    /// Where paths meet: `None` if they have too little in common.
    fn join(&self, other: &Address, shapes: &Shapes) -> Option<Address> {
        let (a, b) = (&self.base, &other.base);
        let argument = match (a.argument, b.argument) {
            (Some((index, at)), Some((other, other_at))) if index == other => {
                Some((index, at.filter(|_| at == other_at)))
            }
            _ => None,
        };
        let alone = Address::from(Pointer {
            argument,
            ..Pointer::default()
        });
        if a.object.is_none() || a.object != b.object {
            return Some(alone);
        }
        let mut met = Address {
            base: Pointer {
                argument,
                outer: a.outer.clone().filter(|_| a.outer == b.outer),
                ..a.clone()
            },
            steps: self.steps.clone(),
        };
        for &step in &other.steps {
            met = met.vary(step)?;
        }
        let distance = a.offset.abs_diff(b.offset);
        // A loop over an array of which both are elements.
        match met.steps.iter().any(|step| distance % step == 0) || distance == 0 {
            true => Some(met),
            false if is_one_array(a, b, distance, shapes) => met.vary(distance),
            false => Some(alone),
        }
    }
}

impl Value {
    pub(super) const UNKNOWN: Value = Integer {
        symbol: None,
        scale: 1,
        add: 0,
    };

    pub(super) fn constant(value: i64) -> Value {
        Integer {
            symbol: None,
            scale: 0,
            add: value,
        }
    }

    pub(super) fn as_constant(&self) -> Option<i64> {
        match *self {
            Integer { scale: 0, add, .. } => Some(add),
            _ => None,
        }
    }

    /// Of which nothing else is known than which instruction made it.
    pub(super) fn made_at(address: u64) -> Value {
        Integer {
            symbol: Some(address),
            scale: 1,
            add: 0,
        }
    }

    /// An object that the pointer is known to point into, or an argument that it was computed from.
    fn known(address: Option<Address>) -> Value {
        match address.filter(Address::is_known) {
            Some(address) => Value::Pointer(address),
            None => Value::UNKNOWN,
        }
    }

    pub(super) fn to(pointer: Pointer) -> Value {
        Value::known(Some(pointer.into()))
    }

    pub(super) fn add(self, other: Value) -> Value {
        match (self, other) {
            (Doubtful, _) | (_, Doubtful) => Doubtful,
            (Frame(at), other) | (other, Frame(at)) => match other.as_constant() {
                Some(constant) => Frame(at.wrapping_add(constant)),
                None => Value::UNKNOWN,
            },
            (Value::Pointer(address), Integer { scale, add, .. })
            | (Integer { scale, add, .. }, Value::Pointer(address)) => Value::known(address.advance(add).vary(scale)),
            (Value::Pointer(_), Value::Pointer(_)) => Value::UNKNOWN,
            (
                Integer { symbol, scale, add },
                Integer {
                    symbol: other,
                    scale: other_scale,
                    add: other_add,
                },
            ) => {
                let add = add.wrapping_add(other_add);
                let is_same = symbol.is_some() && symbol == other;
                match (scale, other_scale) {
                    (0, _) => Integer {
                        symbol: other,
                        scale: other_scale,
                        add,
                    },
                    (_, 0) => Integer { symbol, scale, add },
                    _ if is_same => Integer {
                        symbol,
                        scale: scale.wrapping_add(other_scale),
                        add,
                    },
                    _ => Integer {
                        symbol: None,
                        scale: gcd(scale, other_scale),
                        add,
                    },
                }
            }
        }
    }

    pub(super) fn subtract(self, other: Value) -> Value {
        match (&self, &other) {
            (Doubtful, _) => Doubtful,
            (
                Integer { symbol, scale, add },
                Integer {
                    symbol: known,
                    scale: less,
                    add: less_add,
                },
            ) if symbol.is_some() && symbol == known && *less > 0 && scale > less => Integer {
                symbol: *symbol,
                scale: scale - less,
                add: add.wrapping_sub(*less_add),
            },
            (_, Integer { scale, add, .. }) => {
                // How often it is subtracted does not matter, only that it is a multiple.
                let negated = Integer {
                    symbol: None,
                    scale: *scale,
                    add: add.wrapping_neg(),
                };
                self.add(negated)
            }
            _ => Value::UNKNOWN,
        }
    }

    pub(super) fn multiply(self, factor: u64) -> Value {
        match self {
            Integer { symbol, scale, add } => Integer {
                symbol: symbol.filter(|_| factor != 0),
                scale: scale.wrapping_mul(factor),
                add: add.wrapping_mul(factor as i64),
            },
            // An index that the function was called with looks like a pointer that it was called with.
            _ => Integer {
                symbol: None,
                scale: factor,
                add: 0,
            },
        }
    }

    /// What is true of both: where paths meet.
    pub(super) fn join(&self, other: &Value, shapes: &Shapes) -> Value {
        if self == other {
            return self.clone();
        }
        match (self, other) {
            (Doubtful, _) | (_, Doubtful) => Doubtful,
            // Nothing is stored through a null pointer.
            (pointer @ Value::Pointer(_), null) | (null, pointer @ Value::Pointer(_))
                if null.as_constant() == Some(0) =>
            {
                pointer.clone()
            }
            (Value::Pointer(a), Value::Pointer(b)) => Value::known(a.join(b, shapes)),
            (
                Integer { scale, add, .. },
                Integer {
                    scale: other_scale,
                    add: other_add,
                    ..
                },
            ) => {
                let scale = gcd(gcd(*scale, *other_scale), add.abs_diff(*other_add));
                let add = i64::try_from(scale)
                    .ok()
                    .filter(|&scale| scale > 0)
                    .map_or(0, |scale| add.rem_euclid(scale));
                Integer {
                    symbol: None,
                    scale,
                    add,
                }
            }
            _ => Value::UNKNOWN,
        }
    }

    /// The instruction at the address is executed again, so that its symbol now stands for another value.
    pub(super) fn forget(&mut self, made_at: u64) {
        if let Integer { symbol, .. } = self
            && *symbol == Some(made_at)
        {
            *symbol = None;
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Adds a multiple of `step`. Where elements of the array are within elements of another, whose size is a multiple of the step as well, one number may be
/// both indices: the element then is in some element of the outer one.
///
/// An index less or more than a constant moves the offset, maybe out of the array that it is for: `next[i - 1]` begins in what lies before `next`. Where that is an
/// array with elements of the same size, nobody knows which of the two is meant. Behind the end of an object that is in no array that is known, it is as likely
/// the header of something larger as an element.
fn vary(pointer: Pointer, step: u64, shapes: &Shapes) -> Pointer {
    let start = pointer.object.zip(u64::try_from(pointer.offset).ok());
    if let Some((ty, within)) = start
        && let Type::Composite(_) = shapes.get(ty)
        && shapes.size(ty).is_some_and(|size| size == step && within >= size)
    {
        let argument = pointer.argument.map(|(index, _)| (index, None));
        return Pointer {
            argument,
            ..Pointer::default()
        };
    }
    let mut at = start.map(|(ty, within)| (ty, within, 0u64));
    let mut around: Option<(u64, u64)> = None;
    while let Some((ty, within, base)) = at {
        if let Type::Array { element, size, stride } = shapes.get(ty) {
            let follows = Pointer {
                offset: base.checked_add(size).and_then(|end| end.try_into().ok()).unwrap_or(-1),
                ..pointer.clone()
            };
            if stride == step && within >= step && array_at(&follows, step, shapes).is_some() {
                return Pointer::default();
            }
            if stride == step
                && let Some((base, size)) = around
            {
                let outer = Pointer {
                    offset: base as i64,
                    argument: None,
                    ..pointer
                };
                return Pointer {
                    offset: (within % step) as i64,
                    outer: Some(Rc::new(Outer {
                        at: outer,
                        array: Some(size),
                    })),
                    ..Pointer::to(element)
                };
            }
            if stride > step && stride % step == 0 && around.is_none() {
                around = Some((base, size));
            }
        }
        at = shapes
            .part_at(ty, within)
            .map(|(part, start)| (part, within - start, base + start));
    }
    pointer.vary(step, shapes)
}

/// Whether both may be elements of one array, `step` bytes apart, or lead to it by an offset that is added later.
fn is_one_array(a: &Pointer, b: &Pointer, step: u64, shapes: &Shapes) -> bool {
    array_at(a, step, shapes) == array_at(b, step, shapes)
}

/// Where the array begins that has elements of that size at the address.
fn array_at(pointer: &Pointer, step: u64, shapes: &Shapes) -> Option<u64> {
    let (ty, within) = pointer.object.zip(u64::try_from(pointer.offset).ok())?;
    let mut at = Some((ty, within, 0));
    while let Some((ty, within, base)) = at {
        if matches!(shapes.get(ty), Type::Array { stride, .. } if stride == step) {
            return Some(base);
        }
        at = shapes
            .part_at(ty, within)
            .map(|(part, start)| (part, within - start, base + start));
    }
    None
}
