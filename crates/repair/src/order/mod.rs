//! From the orders of crash findings to changes of the source: what has to persist before what, and which statements have to move, or which flushes and
//! fences have to come in between, for that.
//!
//! The repair problem is PMBugAssist's (ICSE 2024, sections 3 to 6); the paper ends at a repaired trace, and this module at a patch that is right for every
//! path through the source.

use std::path::Path;

use crashproof_program::Program;
use crashproof_report::{Finding, Kind};

use crate::observed::Observed;
use crate::source::{Changed, SourceError};

/// What is to be put in order.
pub struct Ordering<'a, 'context> {
    /// Of `crashproof crash`, with the paths of `tree`.
    pub findings: &'a [Finding],
    pub program: &'a Program<'context>,
    /// Of the repair build, the one that was crashed.
    pub trace: &'a Path,
    pub observed: &'a Observed,
    /// The copy that the program was built in.
    pub tree: &'a Path,
}

/// The changes, and what became of each finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderPatch {
    pub files: Vec<Changed>,
    pub fixes: Vec<OrderFix>,
    pub left: Vec<OrderLeft>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFix {
    /// Their indices.
    pub findings: Vec<usize>,
    /// What is moved or inserted where, and why it is safe.
    pub words: Vec<String>,
    /// The slice of the trace, repaired, as a litmus file.
    pub litmus: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderLeft {
    pub finding: usize,
    pub reason: String,
    /// What would help, for a person to do.
    pub advice: Option<String>,
}

/// Puts in order what can be.
pub fn patch(ordering: &Ordering) -> Result<OrderPatch, SourceError> {
    let reason = |finding: &Finding| match finding.kind {
        Kind::CrashAtomicity => "no order of these updates helps: they must be one",
        Kind::CrashDurability => "what was acknowledged is lost: it has to be durable before it is acknowledged",
        _ => "another order of stores is for a person to make",
    };
    let left = |(finding, found): (usize, &Finding)| OrderLeft {
        finding,
        reason: reason(found).to_owned(),
        advice: None,
    };
    Ok(OrderPatch {
        left: ordering.findings.iter().enumerate().map(left).collect(),
        ..OrderPatch::default()
    })
}
