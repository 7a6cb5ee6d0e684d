//! What `crashproof cc` writes into every object file: for each store its source position and the type and field it
//! writes, and which functions are helpers.
//!
//! An object carries four sections that are not loaded, each a sequence of frames, because linkers concatenate:
//! `.crashproof.bc` (the front end's bitcode), `.crashproof.sites` (an [`ObjectTable`]), `.crashproof.helpers`
//! ([`JudgedFunction`]s) and `.crashproof.pc` (for each instrumented site its code address, which only the linker
//! knows). [`section`] has the bytes.
//!
//! Architecture invariant: plain data; knows neither LLVM nor what an analysis makes of it.
#![forbid(unsafe_code)]

pub mod layout;
mod reader;
pub mod section;
mod table;
#[cfg(test)]
mod tests;

pub use reader::{Bitcode, JudgedFunctions, ModuleSites, SitesError, read_bitcode};
pub use table::*;
