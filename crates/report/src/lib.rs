//! Findings and how they are shown: in a terminal, as JSON, as SARIF.
//!
//! Architecture invariant: knows only [`Finding`]; never looks at a trace. Text is made here, from [`Kind::info`] and what
//! a finding holds; analyses fill in fields.

mod crash;
pub mod finding;
mod group;
mod json;
mod kind;
mod sarif;
mod source;
mod stack;
mod terminal;

pub use finding::*;
pub use json::to_json;
pub use kind::KindInfo;
pub use sarif::to_sarif;
pub use stack::innermost_position;
pub use terminal::{TerminalOptions, render_terminal};
