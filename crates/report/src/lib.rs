//! Findings and how they are shown. Architecture invariant: knows only [`Finding`]; never looks at a trace.

pub mod finding;

pub use finding::*;
