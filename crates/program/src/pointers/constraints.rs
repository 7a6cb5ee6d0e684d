//! What is asked of the points-to sets, as plain data: the solver knows nothing of LLVM.

use super::offsets::Shift;

/// A pointer: a value of the program, or one that the analysis makes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Variable(pub u32);

/// An abstract object: what one allocation stands for, or a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

impl ObjectId {
    /// What code outside of the program may reach: all that has escaped to it, and what it has of its own. See [`Variable::ESCAPED`].
    pub const UNKNOWN: ObjectId = ObjectId(0);
}

impl Variable {
    /// All that is handed to unknown code. An object in this set may be read and written by it: what the object holds escapes too, and what is
    /// loaded from it may be anything that has escaped, which the one object [`ObjectId::UNKNOWN`] stands for. (As in Gibson's and others'
    /// implicit treatment of incomplete programs; naming all escaped objects in each set would be quadratic.)
    pub(super) const ESCAPED: Variable = Variable(0);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Constraint {
    /// `to` may point to `object`, at `offset`.
    Address {
        to: Variable,
        object: ObjectId,
        offset: u32,
    },
    Copy {
        to: Variable,
        from: Variable,
    },
    Shift {
        to: Variable,
        from: Variable,
        shift: Shift,
    },
    Load {
        to: Variable,
        pointer: Variable,
    },
    Store {
        pointer: Variable,
        from: Variable,
    },
    /// What the object holds from the begin, constant or not.
    Initialise {
        object: ObjectId,
        offset: u32,
        from: Variable,
    },
    /// Copies `length` bytes of memory; without, as many as there are.
    CopyMemory {
        to: Variable,
        from: Variable,
        length: Option<u32>,
    },
    /// An integer becomes a pointer: one that holds no address that is known may be any that has escaped.
    FromInteger {
        to: Variable,
        from: Variable,
    },
    /// A call through a pointer.
    Call(Call),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub callee: Variable,
    pub arguments: Vec<Option<Variable>>,
    pub result: Option<Variable>,
}

/// A function that may be called through a pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub parameters: Vec<Option<Variable>>,
    /// Points to the memory in which further arguments are passed.
    pub further: Option<Variable>,
    pub result: Option<Variable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// Offsets up to this are told apart; 0: none.
    pub end: u32,
    /// Nothing writes to it: stores through pointers that may point to it do not, or are errors.
    pub is_constant: bool,
    pub function: Option<Function>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Constraints {
    pub variables: u32,
    pub objects: Vec<Object>,
    pub constraints: Vec<Constraint>,
}

impl Default for Constraints {
    fn default() -> Constraints {
        let unknown = Object {
            end: 0,
            is_constant: false,
            function: None,
        };
        Constraints {
            variables: 1,
            objects: vec![unknown],
            constraints: Vec::new(),
        }
    }
}

impl Constraints {
    pub(super) fn variable(&mut self) -> Variable {
        self.variables += 1;
        Variable(self.variables - 1)
    }

    pub(super) fn object(&mut self, end: u32) -> ObjectId {
        self.objects.push(Object {
            end,
            is_constant: false,
            function: None,
        });
        ObjectId(self.objects.len() as u32 - 1)
    }

    pub(super) fn push(&mut self, constraint: Constraint) {
        self.constraints.push(constraint);
    }

    pub(super) fn copy(&mut self, to: Variable, from: Variable) {
        if to != from {
            self.push(Constraint::Copy { to, from });
        }
    }

    pub(super) fn address(&mut self, to: Variable, object: ObjectId) {
        self.push(Constraint::Address { to, object, offset: 0 });
    }

    /// A new variable that points where `from` does, moved.
    pub(super) fn shifted(&mut self, from: Variable, shift: Shift) -> Variable {
        let to = self.variable();
        self.push(Constraint::Shift { to, from, shift });
        to
    }

    pub(super) fn load(&mut self, to: Variable, pointer: Variable) {
        self.push(Constraint::Load { to, pointer });
    }

    pub(super) fn store(&mut self, pointer: Variable, from: Variable) {
        self.push(Constraint::Store { pointer, from });
    }
}
