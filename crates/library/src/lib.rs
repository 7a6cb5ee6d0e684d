//! What functions of libraries do: which bytes they read and write, what they do to pointers, what they flush and fence.
//!
//! This is the only table of library functions. Each consumer asks for the effects of a name and uses those that concern it:
//! `stacks` which functions flush or copy for their caller, `sites` where a function writes, `program` what becomes of
//! pointers, `compiler` how labels move, `repair` what has to be flushed and what may be moved.
//!
//! The table lists the effects that some consumer asks for, and says where it does not know: a function that is not in it,
//! or has [`Effect::KeepsAnything`] or [`Effect::WritesElsewhere`], may do what these say. A wrong row makes a repair or a
//! points-to set wrong, so a row follows the manual of the function, and `tests.rs` has the decisions that are not obvious.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod libc;
mod names;
mod pmdk;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use libc::THROWN;
pub use names::{intrinsic, is_pmdk};
pub use pmdk::POOL;

/// The number of an argument; the first is 0.
pub type Argument = u32;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// As many as this argument says.
    Argument(Argument),
    /// As many wide characters as this argument says.
    Wide(Argument),
    /// The product of two arguments.
    Product(Argument, Argument),
    /// At most as many as this argument says.
    AtMost(Argument),
    /// At most as many elements as the second argument says, of as many bytes as the first one says.
    AtMostProduct(Argument, Argument),
    /// What the function returns, unless that is negative, and at most as many as the argument says.
    Returned {
        /// The argument with the room that there is.
        most: Argument,
    },
    /// It is not known before the function is executed.
    Unknown,
}

/// What a function that is called back is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// An argument of the call.
    Argument(Argument),
    /// A pointer somewhere into what an argument points to.
    Inside(Argument),
    /// Memory of the library, by its name.
    Shared(&'static str),
    /// What was kept under a name.
    Kept(&'static str),
}

/// One thing that a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    // The caller's memory.
    /// Reads what an argument points to.
    Reads(Argument, Extent),
    /// Reads a string with its end, or at most as many bytes of it as an argument says.
    ReadsText(Argument, Option<Argument>),
    /// Reads two strings as far as they are equal, or at most as many bytes as an argument says.
    Compares(Argument, Argument, Option<Argument>),
    /// Copies bytes.
    Copies {
        /// Points to where they go.
        to: Argument,
        /// Points to where they are.
        from: Argument,
        /// How many there are.
        extent: Extent,
    },
    /// Copies a string with its end.
    CopiesText {
        /// Points to where it goes.
        to: Argument,
        /// Points to the string.
        from: Argument,
        /// As many bytes are written as this argument says: a shorter string is filled up with zeros.
        padded_to: Option<Argument>,
    },
    /// Copies a string to the end of another.
    AppendsText {
        /// Points to the string that becomes longer.
        to: Argument,
        /// Points to the string that is read.
        from: Argument,
    },
    /// Writes the same value everywhere.
    Fills {
        /// Points to where it goes.
        to: Argument,
        /// The value.
        value: Argument,
        /// How many bytes are written.
        extent: Extent,
    },
    /// Writes bytes that do not come from the caller's memory.
    Writes(Argument, Extent),
    /// Writes a string that is made of other arguments; no more bytes than an argument says.
    WritesText(Argument, Option<Argument>),
    /// Writes a string by a format; no more bytes with its end than an argument says.
    Prints {
        /// Points to where it goes.
        to: Argument,
        /// The room that there is.
        room: Option<Argument>,
    },
    /// Writes what it reads by a format where this argument and those after it point to.
    Scans(Argument),
    /// Also writes to memory that its arguments point to, in a way that the table does not have.
    WritesElsewhere,

    // The result.
    /// Returns an argument.
    Returns(Argument),
    /// Returns a pointer somewhere into what an argument points to.
    ReturnsInside(Argument),
    /// Returns a pointer that is where an argument points to.
    ReturnsHeld(Argument),
    /// Returns new memory, of so many bytes.
    ReturnsNew(Extent),
    /// Returns new memory with a copy of the string that an argument points to.
    ReturnsCopy(Argument),
    /// Returns new memory, of so many bytes, with what an argument points to.
    ReturnsMoved(Argument, Extent),
    /// Returns a mapping: it may hold pointers into itself from an earlier run.
    ReturnsMapping,
    /// Returns memory of the library's own, which holds pointers only into itself.
    ReturnsOwn,
    /// The same; functions that name the same memory share it.
    ReturnsShared(&'static str),
    /// Returns what was kept under a name.
    ReturnsKept(&'static str),
    /// The result depends on the value of an argument.
    DependsOn(Argument),
    /// The result depends on the values of all arguments and on nothing else.
    DependsOnAll,

    // Pointers.
    /// Stores a pointer into what `from` points to.
    StoresInside {
        /// Points to where it is stored.
        at: Argument,
        /// Points into the memory.
        from: Argument,
    },
    /// Stores a pointer to new memory where an argument points to.
    StoresNew(Argument),
    /// Stores what was kept under a name where an argument points to.
    StoresKept(Argument, &'static str),
    /// Keeps an argument under a name.
    Keeps(Argument, &'static str),
    /// Keeps a pointer somewhere into what an argument points to.
    KeepsInside(Argument, &'static str),
    /// Calls an argument.
    Calls {
        /// The argument.
        function: Argument,
        /// What the function is given.
        given: &'static [Given],
        /// The name under which what it returns is kept.
        result: Option<&'static str>,
    },
    /// Calls an argument when a thread or the program ends.
    CallsLater {
        /// The argument.
        function: Argument,
        /// What the function is given.
        given: &'static [Given],
    },
    /// May keep all pointers that it is given, follow them, and return any of what it reaches.
    KeepsAnything,

    // What is persistent.
    /// Flushes a range and does not wait.
    Flushes {
        /// Points to its first byte.
        at: Argument,
        /// Its bytes.
        length: Argument,
    },
    /// Waits for all that was flushed, before it returns and whatever happens.
    Fences,
    /// A range is persistent when it returns; it need not have waited for anything else.
    Persists {
        /// Points to its first byte.
        at: Argument,
        /// Its bytes.
        length: Argument,
    },
    /// An argument has flags (`PMEM_F_MEM_...`) that may tell it not to flush or not to wait.
    TakesFlags(Argument),
    /// Does more for the range than a flush in its place would: it reaches a deeper persistence domain, or the replicas of a pool.
    ReachesFurther,
    /// Leaves nothing that waits for a fence, though it may read and write any object of the pool.
    Settles,
    /// The same, if its last argument but one, a constructor, does.
    SettlesUnlessConstructed,
    /// Makes an address of an object's id.
    Translates,

    // The rest of the world.
    /// Tells the outside something.
    Outputs,
    /// Gives the next of a sequence of random numbers, or sets the sequence.
    Draws,
    /// May throw an exception.
    Throws,
}

/// A line of the table: functions that do the same, and what that is.
type Row = (&'static [Effect], &'static str);

static TABLE: LazyLock<HashMap<&'static str, &'static [Effect]>> = LazyLock::new(|| {
    let rows = libc::ROWS.iter().chain(pmdk::ROWS);
    let named = rows.flat_map(|(effects, names)| names.split_ascii_whitespace().map(|name| (name, *effects)));
    named.collect()
});

/// The effects of a function, by its linkage name, a variant of it (`__memcpy_chk`, `fopen64`) or the name of an intrinsic that does
/// the same; `None` if the table does not have it.
pub fn effects(name: &str) -> Option<&'static [Effect]> {
    let known = names::variants(name).find_map(|name| TABLE.get(name).copied());
    let of_family = || libc::FAMILIES.iter().any(|family| name.starts_with(family));
    known.or_else(|| of_family().then_some(&[Effect::KeepsAnything]))
}

/// A function that writes what its caller points it to, in the caller's name: the argument with the address.
pub fn destination(name: &str) -> Option<Argument> {
    effects(name)?.iter().find_map(|effect| effect.destination())
}

/// How a function writes the one range that its caller gives it, and has to flush. Functions of PMDK flush what they copy.
pub fn written(name: &str) -> Option<&'static Effect> {
    let effects = effects(name).filter(|_| !is_pmdk(name))?;
    let mut writes = effects.iter().filter(|effect| effect.destination().is_some());
    writes.next().filter(|_| writes.next().is_none())
}

/// The argument that a function returns, if it never returns anything else.
pub fn returned_argument(name: &str) -> Option<Argument> {
    let mut results = effects(name)?.iter().filter(|effect| effect.is_result());
    match (results.next(), results.next()) {
        (Some(Effect::Returns(argument)), None) => Some(*argument),
        _ => None,
    }
}

/// Whether a function flushes, fences, or both for its caller, and does nothing else.
pub fn only_persists(name: &str) -> bool {
    let persists = |effect: &Effect| {
        matches!(
            effect,
            Effect::Flushes { .. } | Effect::Fences | Effect::Persists { .. } | Effect::ReachesFurther
        )
    };
    effects(name).is_some_and(|effects| !effects.is_empty() && effects.iter().all(persists))
}

/// The range that a function makes persistent before it returns, as the arguments with its address and its length.
pub fn persisted_range(name: &str) -> Option<(Argument, Argument)> {
    let effects = effects(name).filter(|_| only_persists(name))?;
    effects.iter().find_map(|effect| match *effect {
        Effect::Persists { at, length } => Some((at, length)),
        Effect::Flushes { at, length } if effects.contains(&Effect::Fences) => Some((at, length)),
        _ => None,
    })
}

impl Effect {
    /// The argument that points to the bytes that it writes.
    pub fn destination(&self) -> Option<Argument> {
        match *self {
            Effect::Copies { to, .. }
            | Effect::CopiesText { to, .. }
            | Effect::AppendsText { to, .. }
            | Effect::Fills { to, .. }
            | Effect::Writes(to, _)
            | Effect::WritesText(to, _)
            | Effect::Prints { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Whether it may change memory of the caller in a way that [`Effect::destination`] does not tell.
    pub fn writes_elsewhere(&self) -> bool {
        matches!(
            self,
            Effect::WritesElsewhere
                | Effect::Scans(_)
                | Effect::StoresInside { .. }
                | Effect::StoresNew(_)
                | Effect::StoresKept(..)
                | Effect::Calls { .. }
        )
    }

    /// Whether it says what pointer the function returns.
    fn is_result(&self) -> bool {
        matches!(
            self,
            Effect::Returns(_)
                | Effect::ReturnsInside(_)
                | Effect::ReturnsHeld(_)
                | Effect::ReturnsNew(_)
                | Effect::ReturnsCopy(_)
                | Effect::ReturnsMoved(..)
                | Effect::ReturnsMapping
                | Effect::ReturnsOwn
                | Effect::ReturnsShared(_)
                | Effect::ReturnsKept(_)
                | Effect::KeepsAnything
        )
    }

    /// Whether it only reads memory of the caller.
    pub fn is_read(&self) -> bool {
        matches!(self, Effect::Reads(..) | Effect::ReadsText(..) | Effect::Compares(..))
    }
}
