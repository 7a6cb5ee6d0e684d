//! What `crashproof cc` notes of every object file, and what an analysis learns from it: for each store its source position
//! and the type and field it writes.
//!
//! An object carries three sections that are not loaded, each a sequence of frames, because linkers concatenate:
//! `.crashproof.bc` (the front end's bitcode), `.crashproof.sites` (an [`ObjectTable`]) and `.crashproof.pc` (for each
//! instrumented site its code address, which only the linker knows). [`section`] has the bytes.
//!
//! Architecture invariant: knows no LLVM, so that `check` and `crash` need none.
#![forbid(unsafe_code)]

mod dwarf;
pub mod layout;
pub mod pointer;
mod reader;
pub mod section;
mod table;
#[cfg(test)]
mod tests;
mod typing;

pub use crashproof_trace::tracked;
pub use reader::{Bitcode, ModuleSites, SitesError, read_bitcode};
pub use table::*;
pub use typing::{FieldId, Store, TypeId, Typed, Types, Typing};

/// The executable within a program that follows its dependences (`crashproof cc --deps`), if it has one.
pub fn dependence_program(path: &std::path::Path) -> Result<Option<Vec<u8>>, tracked::TrackedError> {
    tracked::read(path)
}
