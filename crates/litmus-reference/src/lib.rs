//! PMBugAssist's own encoding of the problem, and the rows of its table 3 (ICSE 2024).
//!
//! Verdicts and repairs of `crashproof_litmus` are tested against both here, and measured beside them by the bench. Nothing that is shipped links this.
#![forbid(unsafe_code)]

mod rows;
#[cfg(test)]
mod tests;
mod z3;

pub use rows::{ROWS, Row};
pub use z3::{Blocking, Outcome, Reference, ReferenceError, Tried, extended};
