//! Findings and how they are shown: in a terminal, as lines for editors, as JSON, as SARIF, as JUnit XML. And which of them
//! are new, compared with a baseline.
//!
//! Architecture invariant: knows only [`Finding`]; never looks at a trace. Text is made here, from [`Kind::info`] and what
//! a finding holds; analyses fill in fields.

mod baseline;
mod conclusive;
mod crash;
mod diff;
mod files;
pub mod finding;
mod gnu;
mod group;
pub mod html;
mod json;
mod junit;
mod kind;
pub mod picture;
mod sarif;
mod source;
mod stack;
mod terminal;

pub use baseline::{Baseline, BaselineError};
pub use conclusive::{Allowed, Inconclusive, InconclusiveReason, Verdict};
pub use finding::*;
pub use gnu::render_gnu;
pub use json::to_json;
pub use junit::{Suite, to_junit};
pub use kind::KindInfo;
pub use sarif::{Run, to_sarif};
pub use stack::innermost_position;
pub use terminal::{TerminalOptions, render_terminal};
