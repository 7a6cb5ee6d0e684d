//! An address as it is followed back through the front end's code: what object it is in, and where. [`walker`](super::walker) does the
//! following.

use std::rc::Rc;

use crashproof_sites::{Argument, Level, Place, Target, TypeIndex, layout};

use super::ir::{IrType, Reading};
use super::types::{Type, TypeId, Types};

/// An address: some bytes into an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// What the object is; `None`: not known.
    pub(super) object: Option<TypeId>,
    /// From the object's start.
    pub(super) offset: i64,
    /// Where the object itself lies.
    pub(super) outer: Option<Rc<Outer>>,
    /// The parameter that the address comes from, and how far from it the address is.
    pub(super) argument: Option<(u32, Option<i64>)>,
    /// The address is that of the value that is being followed, in a loop, and `offset` is the step.
    pub(super) looped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    at: Pointer,
    /// If the object is an element of an array, at an index that is not a constant: the array's bytes (0: open-ended). `at` is where
    /// the array begins.
    array: Option<u64>,
}

impl Pointer {
    pub(super) fn to(object: TypeId) -> Pointer {
        Pointer {
            object: Some(object),
            ..Pointer::default()
        }
    }

    pub(super) fn loop_back() -> Pointer {
        Pointer {
            looped: true,
            ..Pointer::default()
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.object.is_some() || self.argument.is_some() || self.outer.is_some()
    }

    /// As it is for those who do not know the function's arguments.
    pub(super) fn without_arguments(&self) -> Pointer {
        let outer = self.outer.as_ref().map(|outer| {
            Rc::new(Outer {
                at: outer.at.without_arguments(),
                array: outer.array,
            })
        });
        Pointer {
            outer,
            argument: None,
            ..self.clone()
        }
    }

    pub(super) fn advance(&mut self, bytes: i64) {
        self.offset = self.offset.wrapping_add(bytes);
        if let Some((_, Some(offset))) = &mut self.argument {
            *offset = offset.wrapping_add(bytes);
        }
    }

    /// Adds a number of steps that is not a constant.
    pub(super) fn vary(self, step: u64, types: &Types) -> Pointer {
        if self.looped {
            return Pointer {
                offset: step as i64,
                ..self
            };
        }
        let argument = self.argument.map(|(index, _)| (index, None));
        let unknown = Pointer {
            argument,
            ..Pointer::default()
        };
        let Some((object, start)) = self.object.zip(u64::try_from(self.offset).ok()) else {
            return unknown;
        };
        // An array of such elements that the address is in, or an object that is one such element of an array unseen.
        let mut found = None;
        let mut at = Some((object, start, 0));
        while let Some((ty, within, base)) = at {
            match types.get(ty) {
                Type::Array { element, size, stride } if stride == step => {
                    found = Some((Some((base, size)), element, within))
                }
                Type::Composite(_) if types.size(ty) == Some(step) && found.is_none() => {
                    found = Some((None, ty, within))
                }
                _ => {}
            }
            at = part_at(types, ty, within).map(|(part, offset)| (part, within - offset, base + offset));
        }
        let Some((array, element, within)) = found else {
            return match types.get(object) {
                // p[i] of a pointer to numbers.
                Type::Scalar | Type::Pointer => Pointer {
                    object: Some(object),
                    ..unknown
                },
                // (char *)p + n: some byte of the object, if not of another behind it.
                Type::Composite(_) => {
                    let size = types.size(object);
                    let start = Pointer {
                        offset: 0,
                        argument: None,
                        ..self
                    };
                    Pointer {
                        outer: Some(Rc::new(Outer { at: start, array: size })),
                        ..unknown
                    }
                }
                _ => unknown,
            };
        };
        let within = if step == 0 { 0 } else { within % step };
        let mut pointer = Pointer::to(element);
        pointer.offset = within as i64;
        pointer.argument = argument;
        if let Some((base, size)) = array {
            let mut outer = self;
            // The argument leads to the array's owner, which is on the way out.
            outer.argument = outer
                .argument
                .map(|(index, offset)| (index, offset.map(|o| o - outer.offset + base as i64)));
            outer.offset = base as i64;
            pointer.argument = None;
            pointer.outer = Some(Rc::new(Outer {
                at: outer,
                array: Some(size),
            }));
        }
        pointer
    }

    /// What the source's cast, or its mere field access, says that the address is: the start of a struct.
    pub(super) fn cast(self, structure: IrType, module: &Reading, types: &mut Types) -> Pointer {
        let Some(name) = structure.struct_name().map(plain_struct_name) else {
            return self;
        };
        if self.looped {
            return self;
        }
        let size = module.size_of(structure);
        if let Some(object) = self.object
            && let Ok(offset) = u64::try_from(self.offset)
        {
            let is_it = |types: &Types, composite: TypeIndex| {
                types.composites[composite as usize].size == size && same_name(types.plain_name(composite), name)
            };
            // Already seen as such, or a member of a union on the way.
            let mut at = Some((object, offset));
            while let Some((ty, within)) = at {
                if let Type::Composite(composite) = types.get(ty) {
                    if within == 0 && is_it(types, composite) {
                        return self;
                    }
                    if types.composites[composite as usize].is_union
                        && let Some((member, inside)) = union_member(types, composite, within, |c| is_it(types, c))
                    {
                        let mut pointer = Pointer::to(member);
                        pointer.offset = inside as i64;
                        pointer.outer = Some(Rc::new(Outer { at: self, array: None }));
                        return pointer;
                    }
                }
                at = part_at(types, ty, within).map(|(part, offset)| (part, within - offset));
            }
            // A base class without the tail padding that only whole objects have.
            if name.ends_with(".base") {
                return self;
            }
        }
        let candidates = types.named_composites(name.trim_end_matches(".base"), size);
        match candidates[..] {
            [object] => Pointer {
                argument: self.argument,
                ..Pointer::to(object)
            },
            // Template instances are hard to tell apart; what the pointer was before is not it.
            _ => Pointer {
                argument: self.argument,
                ..Pointer::default()
            },
        }
    }

    /// What the bytes are: `size` of them, or a mere pointer.
    pub fn target(&self, size: Option<u64>, function: &str, types: &Types) -> Target {
        let argument = |(index, offset): (u32, Option<i64>)| Argument {
            function: function.to_owned(),
            index,
            offset,
        };
        let mut levels = Vec::new();
        let outermost = self.levels(size, types, &mut levels);
        match outermost.argument {
            Some(found) if levels.is_empty() => Target::Argument(argument(found)),
            _ if levels.is_empty() => match outermost.object.map(|ty| types.get(ty)) {
                Some(Type::Scalar | Type::Pointer | Type::Array { .. }) => Target::NoStruct,
                _ => Target::Unknown,
            },
            found => Target::Place(Place {
                levels,
                size,
                argument: found.map(argument),
            }),
        }
    }

    /// Innermost first; returns the outermost pointer.
    fn levels(&self, size: Option<u64>, types: &Types, levels: &mut Vec<Level>) -> &Pointer {
        levels.extend(self.inside(size, types));
        let mut from = self;
        // Once an index is not constant, all that is further out is known up to the array.
        let mut displacement = Some(self.offset);
        let mut array = None;
        while let Some(outer) = &from.outer {
            match outer.array {
                Some(bytes) => (displacement, array) = (None, Some(bytes)),
                None => displacement = displacement.map(|d| d + outer.at.offset),
            }
            let mut place = outer.at.clone();
            let wanted = match (displacement, array) {
                (Some(exact), _) => {
                    place.offset = exact;
                    size
                }
                // More than one element, so as not to count the element itself again.
                (None, bytes) => {
                    bytes.map(|bytes| bytes.max(from.object.and_then(|ty| types.size(ty)).unwrap_or(0) + 1))
                }
            };
            let bytes = array;
            levels.extend(
                place
                    .inside(wanted, types)
                    .into_iter()
                    .map(|level| Level { array: bytes, ..level }),
            );
            from = &outer.at;
        }
        from
    }

    /// The structs around the address within the object, innermost first.
    fn inside(&self, size: Option<u64>, types: &Types) -> Vec<Level> {
        let Some((mut ty, mut offset)) = self.object.zip(u64::try_from(self.offset).ok()) else {
            return Vec::new();
        };
        while let Type::Array { element, stride, .. } = types.get(ty) {
            ty = element;
            offset = offset.checked_rem(stride).unwrap_or(0);
        }
        let Type::Composite(composite) = types.get(ty) else {
            return Vec::new();
        };
        let whole = types.composites[composite as usize].size;
        if offset >= whole {
            // The next element of an array unseen, or bytes behind a header: of a struct with an open end, the latter.
            let open_end = types.composites[composite as usize]
                .fields
                .last()
                .is_some_and(|field| field.offset >= whole || field.elements == Some(0));
            if !open_end {
                offset = offset.checked_rem(whole).unwrap_or(0);
            }
        }
        let nested = layout::nest(&types.composites, composite, offset, size);
        nested.into_iter().rev().map(Level::from).collect()
    }
}

/// The field of a struct, or the element of an array, that holds the byte, and its offset. Unions have no one such field.
pub(super) fn part_at(types: &Types, ty: TypeId, offset: u64) -> Option<(TypeId, u64)> {
    match types.get(ty) {
        Type::Array { element, size, stride } if offset < size || size == 0 => {
            Some((element, offset - offset.checked_rem(stride)?))
        }
        Type::Composite(composite) => {
            let info = &types.composites[composite as usize];
            if info.is_union && info.fields.len() != 1 {
                return None;
            }
            let holds = |field: &crashproof_sites::Field| {
                let open_end = field.size == 0 && field.elements.is_some();
                field.offset <= offset && (offset - field.offset < field.size || open_end)
            };
            let index = info.fields.iter().position(holds)?;
            Some((types.field_type(composite, index), info.fields[index].offset))
        }
        _ => None,
    }
}

/// A struct that the members of a union have at the address.
fn union_member(
    types: &Types,
    union: TypeIndex,
    offset: u64,
    is_it: impl Fn(TypeIndex) -> bool,
) -> Option<(TypeId, u64)> {
    let fields = &types.composites[union as usize].fields;
    (0..fields.len()).find_map(|index| {
        let mut at = Some((
            types.field_type(union, index),
            offset.checked_sub(fields[index].offset)?,
        ));
        while let Some((ty, within)) = at {
            if let Type::Composite(composite) = types.get(ty)
                && within == 0
                && is_it(composite)
            {
                return Some((ty, 0));
            }
            at = part_at(types, ty, within).map(|(part, start)| (part, within - start));
        }
        None
    })
}

/// `struct.node.12` is `node`.
fn plain_struct_name(name: &str) -> &str {
    let name = ["struct.", "class.", "union."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let name = match name.rsplit_once('.') {
        Some((front, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => front,
        _ => name,
    };
    // Nested in namespaces and classes; the debug info's own name is the last part.
    name.rsplit("::").next().unwrap_or(name)
}

/// LLVM leaves out template arguments, and calls unnamed types `anon`.
fn same_name(declared: &str, llvm: &str) -> bool {
    let llvm = llvm.trim_end_matches(".base");
    declared == llvm || llvm == "anon" || declared.split('<').next() == Some(llvm)
}
