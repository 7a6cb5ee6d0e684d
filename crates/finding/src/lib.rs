//! Findings and reports as data: what an analysis produces, what JSON holds, what a renderer shows. With the fixed words about
//! each kind, whether a report is conclusive, and which findings are new compared with a baseline.
//!
//! Architecture invariant: knows neither traces nor renderers.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod baseline;
mod conclusive;
pub mod files;
pub mod finding;
pub mod group;
mod kind;
pub mod picture;
pub mod stack;
mod texts;
pub mod words;

pub use baseline::{Baseline, BaselineError};
pub use conclusive::{Allowed, Inconclusive, InconclusiveReason, Verdict};
pub use finding::*;
pub use kind::KindInfo;
pub use stack::{blamed, blamed_position};
