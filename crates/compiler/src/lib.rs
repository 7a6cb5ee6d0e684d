//! `crashproof cc`: a drop-in compiler driver over clang-19 that instruments every store, flush and fence, and embeds the
//! front end's bitcode, the site table and the compile command.
//!
//! Every C or C++ source goes through four steps (`driver`): (a) clang's front end makes bitcode, in which struct types, field
//! accesses and calls are still there; (b) clang optimises it; (c) it is instrumented in process; (d) clang makes an object of
//! it. Everything else that a compiler is asked to do is clang's own doing.

#![deny(unsafe_code)]

/// The front end's bitcode: which type and field each access is to.
pub mod frontend;

pub mod driver;
pub mod embed;
mod error;

/// The labels of `--deps`.
pub mod dependences;

/// Functions that only do what their callers asked for.
pub mod helpers;

/// Definitions that the front end makes for inlining only.
mod inline_definitions;

/// The hooks in the optimised code.
pub mod instrument;

pub use error::CompileError;
