//! A crash test as its caller sees it: what is in the trace ([`Survey`]), what to test ([`CampaignOptions`]), what came of
//! it ([`Outcome`]).

use std::path::PathBuf;
use std::time::Duration;

use crashproof_model::Model;
use crashproof_report::{Finding, Stats};
use crashproof_wire::recovery::Mapping;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyKind {
    Prefix,
    Exhaustive,
    Dpor,
    Random,
}

#[derive(Clone, Debug)]
pub struct CampaignOptions {
    pub model: Model,
    /// Stores wider than 8 bytes persist in pieces.
    pub tear: bool,
    /// Stores within a line persist in any order (the pessimistic model of pmreorder).
    pub reorder_in_line: bool,
    pub strategy: StrategyKind,
    /// Of `random`.
    pub seed: u64,
    /// Crash points begin with the first event that has this function in its call path, and end with the first event after
    /// that which has the other.
    pub from: Option<String>,
    pub until: Option<String>,
    pub time: Option<Duration>,
    pub max_states: Option<u64>,
    /// What recovery must print to stdout.
    pub expect_output: Option<Vec<u8>>,
    /// Where tested states are noted as they are tested. If the file is there, what it notes is not tested again.
    pub journal: Option<PathBuf>,
    /// Failing images go here, one folder for each finding.
    pub save: Option<PathBuf>,
}

/// What a trace holds for a crash test; all that is needed to make executors.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// By `FileId`.
    pub files: Vec<SurveyedFile>,
    pub mappings: Vec<Mapping>,
    /// Pages (index of the file, offset) in which several lines are uncertain at one crash point.
    pub fine: Vec<(usize, u64)>,
    pub points: u64,
    /// Of all points, saturating; states that are alike in content are counted once per point.
    pub states: u128,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct SurveyedFile {
    /// When first mapped.
    pub path: String,
    pub size: u64,
    /// Largest size in the run.
    pub max_size: u64,
    /// The recorded program did not make it: it is there from the start.
    pub present: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub tested: u64,
    pub pruned: u64,
    pub failed: u64,
    /// Root causes so far.
    pub findings: u64,
    /// States in all, as far as known.
    pub total: u128,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub stats: Stats,
    pub warnings: Vec<String>,
}
