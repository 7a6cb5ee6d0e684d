//! How findings are shown: in a terminal, as lines for editors, as JSON, as SARIF, as JUnit XML, as an HTML page.
//!
//! Architecture invariant: reads [`crashproof_finding`] and source files, never a trace. Only binaries depend on this crate
//! (`crates/base/tests/edges.rs`).
#![forbid(unsafe_code)]

mod crash;
mod gnu;
pub mod html;
mod json;
mod junit;
mod sarif;
mod source;
mod terminal;

pub use gnu::render_gnu;
pub use json::to_json;
pub use junit::{Suite, to_junit};
pub use sarif::{Run, to_sarif};
pub use terminal::{TerminalOptions, render_terminal};
