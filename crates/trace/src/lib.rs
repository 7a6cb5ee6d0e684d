//! The trace: the only thing that recorders produce and analyses read.
//!
//! Architecture invariant: knows neither recorders nor analyses.

pub mod event;

pub use event::*;
