//! The table of one object file, written by `crashproof cc`.

use serde::{Deserialize, Serialize};

/// Index in [`ObjectTable::types`].
pub type TypeIndex = u32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTable {
    /// Tells the objects of a program apart: a hash of what was compiled and how.
    pub object: u64,
    /// As the compile command names it.
    pub source: String,
    pub directory: String,
    /// The whole command, response files expanded: `repair` compiles with it again.
    pub command: Vec<String>,
    pub types: Vec<TypeInfo>,
    pub sites: Vec<Site>,
    pub calls: Vec<Call>,
}

/// A struct, class or union.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeInfo {
    /// As the source names it, qualified (`struct node`, `pool::entry`); of an unnamed one, its place in the source.
    pub name: String,
    pub size: u64,
    pub is_union: bool,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    pub name: String,
    pub offset: u64,
    pub size: u64,
    /// If it is, or is an array of, a struct, class or union.
    pub ty: Option<TypeIndex>,
    /// Elements, if it is an array; the dimensions of an array of arrays multiplied.
    pub elements: Option<u64>,
    /// If it is a pointer to a struct, class or union.
    pub points_to: Option<TypeIndex>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Linkage name of the function.
    pub function: String,
    pub file: String,
    pub line: u32,
    pub column: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    Store,
    NontemporalStore,
    /// A locked read-modify-write.
    Atomic,
    /// `memcpy`, `memset` and their like: intrinsics, and calls of known functions.
    Memory,
    Flush,
    Fence,
    /// A load; only in code built with `--deps`.
    Load,
}

/// An instrumented place in the code, as the optimiser left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    pub kind: SiteKind,
    /// Where it is in the source, innermost of the inlined functions first. Empty: the compiler gave it no position.
    pub location: Vec<Location>,
    /// Further source positions whose stores the optimiser merged into this one.
    pub merged: Vec<Location>,
    pub target: Target,
}

/// What the address of a store, or an argument of a call, points to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    #[default]
    Unknown,
    /// Known to be no struct, class or union, nor a part of one: a number, an array of numbers.
    NoStruct,
    Place(Place),
    /// The caller of the enclosing function knows the type.
    Argument(Argument),
}

/// Some bytes behind a pointer that the function was called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Linkage name.
    pub function: String,
    pub index: u32,
    /// `None`: not a constant.
    pub offset: Option<i64>,
}

/// A place in an object: the struct whose field it is, the struct that this one is a member of, and so on, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Never empty.
    pub levels: Vec<Level>,
    /// Bytes that the source writes here at once; an instruction may be a piece of it. `None`: not a constant, or a mere pointer.
    pub size: Option<u64>,
    /// If the outermost object is what an argument of the enclosing function points to: it may be a member of yet another.
    pub argument: Option<Argument>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Level {
    pub ty: TypeIndex,
    /// Of the place, from the start of an object of that type; if the place is an element of an array, at an index that is not
    /// a constant: of that array.
    pub offset: u64,
    /// Bytes of that array; 0 if it is open-ended.
    pub array: Option<u64>,
}

/// A call in the source that passes a pointer to a known place, or one of its own arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub at: Location,
    /// Linkage name; `None`: through a pointer.
    pub callee: Option<String>,
    /// (index, what it points to); arguments of which nothing is known are left out.
    pub arguments: Vec<(u32, Target)>,
}

/// A function of which the front end's code says whether it is a helper (docs/helpers.md). Of the others, that is not
/// known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedFunction {
    /// Linkage name.
    pub function: String,
    /// Where it is defined.
    pub file: String,
    /// `None`: its code leaves it open. That is said of functions that only their object sees: another object may have one of
    /// the same name that is judged.
    pub is_helper: Option<bool>,
}
