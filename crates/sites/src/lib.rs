//! What a store of a trace writes: its type, instance and field, by the tables that `crashproof cc` put into the code
//! ([`crashproof_tables`]), else by debug info.
//!
//! Architecture invariant: knows no LLVM, so that `check` and `crash` need none.
#![forbid(unsafe_code)]

mod dwarf;
pub mod pointer;
mod typing;

use crashproof_tables as table;
pub use crashproof_tables::*;
pub use crashproof_trace::tracked;
pub use typing::{FieldId, Store, TypeId, Typed, Types, Typing};

/// The executable within a program that follows its dependences (`crashproof cc --deps`), if it has one.
pub fn dependence_program(path: &std::path::Path) -> Result<Option<Vec<u8>>, tracked::TrackedError> {
    tracked::read(path)
}
