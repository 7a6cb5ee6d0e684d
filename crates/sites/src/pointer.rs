//! An address as it is followed through code: what object it is in, and where. Code is the front end's for `crashproof cc`, and machine code
//! where only debug info is there ([`dwarf`](crate::dwarf)): what is known of a place has the same names in both.

use std::rc::Rc;

use crate::layout;
use crate::table::{Argument, Field, Level, Place, Target, TypeIndex, TypeInfo};

/// Index of a type of [`Shapes`].
pub type TypeId = usize;

/// What a type is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Index of the struct, class or union.
    Composite(TypeIndex),
    Array {
        element: TypeId,
        /// Bytes; 0 if the array is open-ended.
        size: u64,
        /// Bytes of an element.
        stride: u64,
    },
    Pointer,
    /// Integers and all else that has no parts.
    Scalar,
    /// `void`, functions, structs that are declared only.
    Opaque,
}

/// The types of an object file.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    pub types: Vec<Type>,
    pub composites: Vec<TypeInfo>,
    /// The types of the fields of each composite type.
    pub field_types: Vec<Vec<TypeId>>,
}

impl Shapes {
    pub fn get(&self, id: TypeId) -> Type {
        self.types[id]
    }

    /// Of what has parts.
    pub fn size(&self, id: TypeId) -> Option<u64> {
        match self.types[id] {
            Type::Composite(index) => Some(self.composites[index as usize].size),
            Type::Array { size, .. } => Some(size),
            _ => None,
        }
    }

    pub fn field_type(&self, composite: TypeIndex, field: usize) -> TypeId {
        self.field_types[composite as usize][field]
    }

    /// The field of a struct, or the element of an array, that holds the byte, and its offset. Unions have no one such field.
    pub fn part_at(&self, ty: TypeId, offset: u64) -> Option<(TypeId, u64)> {
        match self.get(ty) {
            Type::Array { element, size, stride } if offset < size || size == 0 => {
                Some((element, offset - offset.checked_rem(stride)?))
            }
            Type::Composite(composite) => {
                let info = &self.composites[composite as usize];
                if info.is_union && info.fields.len() != 1 {
                    return None;
                }
                let holds = |field: &Field| {
                    let open_end = field.size == 0 && field.elements.is_some();
                    field.offset <= offset && (offset - field.offset < field.size || open_end)
                };
                let index = info.fields.iter().position(holds)?;
                Some((self.field_type(composite, index), info.fields[index].offset))
            }
            _ => None,
        }
    }

    /// The declared type of what lies at the address.
    pub fn at(&self, pointer: &Pointer) -> Option<TypeId> {
        let (mut ty, mut offset) = pointer.object.zip(u64::try_from(pointer.offset).ok())?;
        while let Some((part, start)) = self.part_at(ty, offset) {
            (ty, offset) = (part, offset - start);
        }
        (offset == 0).then_some(ty)
    }

    /// Whether an object of this type begins where the pointer points to.
    pub fn is_at(&self, pointer: &Pointer, wanted: TypeId) -> bool {
        let Some((mut ty, mut offset)) = pointer.object.zip(u64::try_from(pointer.offset).ok()) else {
            return false;
        };
        loop {
            if ty == wanted && offset == 0 {
                return true;
            }
            match self.part_at(ty, offset) {
                Some((part, start)) => (ty, offset) = (part, offset - start),
                None => return false,
            }
        }
    }
}

/// An address: some bytes into an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// What the object is; `None`: not known.
    pub object: Option<TypeId>,
    /// From the object's start.
    pub offset: i64,
    /// Where the object itself lies.
    pub outer: Option<Rc<Outer>>,
    /// The parameter that the address comes from, and how far from it the address is.
    pub argument: Option<(u32, Option<i64>)>,
    /// The address is that of the value that is being followed, in a loop, and `offset` is the step.
    pub looped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    pub at: Pointer,
    /// If the object is an element of an array, at an index that is not a constant: the array's bytes (0: open-ended). `at` is where
    /// the array begins.
    pub array: Option<u64>,
}

impl Pointer {
    pub fn to(object: TypeId) -> Pointer {
        Pointer {
            object: Some(object),
            ..Pointer::default()
        }
    }

    pub fn loop_back() -> Pointer {
        Pointer {
            looped: true,
            ..Pointer::default()
        }
    }

    pub fn is_known(&self) -> bool {
        self.object.is_some() || self.argument.is_some() || self.outer.is_some()
    }

    /// As it is for those who do not know the function's arguments.
    pub fn without_arguments(&self) -> Pointer {
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

    pub fn advance(&mut self, bytes: i64) {
        self.offset = self.offset.wrapping_add(bytes);
        if let Some((_, Some(offset))) = &mut self.argument {
            *offset = offset.wrapping_add(bytes);
        }
    }

    /// Adds a number of steps that is not a constant.
    pub fn vary(self, step: u64, types: &Shapes) -> Pointer {
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
            at = types
                .part_at(ty, within)
                .map(|(part, offset)| (part, within - offset, base + offset));
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

    /// What the bytes are: `size` of them, or a mere pointer.
    pub fn target(&self, size: Option<u64>, function: &str, types: &Shapes) -> Target {
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
    fn levels(&self, size: Option<u64>, types: &Shapes, levels: &mut Vec<Level>) -> &Pointer {
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
    fn inside(&self, size: Option<u64>, types: &Shapes) -> Vec<Level> {
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
