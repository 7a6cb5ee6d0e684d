//! What an update is about: the object and field that a store writes.

use crashproof_trace::{Event, Tables};

use super::order::Update;

/// A type, as its [`Subjects`] number them.
pub(crate) type TypeKey = u32;

/// An object: its type, and which it is.
pub(crate) type Instance = (TypeKey, u64);

/// An update, seen as one of an object. The same store updates the struct that the field is in, the struct that this is a member
/// of, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub instance: Instance,
    /// Equal for the same field of any instance of the type.
    pub field: u64,
    /// If the object is a call.
    pub call: Option<InCall>,
}

/// Where in a call a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InCall {
    /// Places in the code from the outermost call to the store.
    pub path: u64,
    /// The first of them in this call's function and below.
    pub place: u64,
    /// Calls made by this one and by that one, if the store is in them.
    pub inner: Option<u64>,
    pub innermore: Option<u64>,
}

pub(crate) trait Subjects {
    /// An event happens: objects that exist for a while only may end with it.
    fn event(&mut self, event: &Event<'_>, tables: &Tables, ended: &mut Vec<Instance>);

    /// Innermost first; never empty.
    fn of(&mut self, update: &Update<'_>, tables: &Tables, out: &mut Vec<Subject>);

    /// Where in the source, or the code, an update is made.
    fn site(&mut self, update: &Update<'_>, tables: &Tables) -> u64;

    fn type_name(&self, ty: TypeKey) -> String;

    fn field_name(&self, ty: TypeKey, field: u64) -> String;
}
