//! Traces from other tools and for other tools.
//!
//! [`pmemcheck`] reads and writes the store log of pmemcheck (a tool of Valgrind), which pmreorder works on; [`pmtest`] reads the
//! operation trace of PMTest; [`perfetto`] writes the timeline that Perfetto and Chrome show.
//!
//! Architecture invariant: knows traces and other tools' formats, no analysis. What a format cannot express is counted and told
//! ([`Lost`]), never dropped in silence.
#![forbid(unsafe_code)]

pub mod perfetto;
mod places;
pub mod pmemcheck;
pub mod pmtest;

use std::collections::BTreeMap;

pub use places::Places;

/// What of a trace a format could not express: what, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost(BTreeMap<&'static str, u64>);

impl Lost {
    pub fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, count)| (*what, *count))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Read(#[from] crashproof_trace::ReadError),
    #[error("cannot write the export: {0}")]
    Write(#[from] std::io::Error),
}
