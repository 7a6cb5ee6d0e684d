//! Crash testing: from a trace to the crash states it allows, to the ones from which the program does not recover, to
//! findings that say which stores had persisted and which had not.
//!
//! Architecture invariant: reads traces and makes findings; what runs a recovery is behind [`Executor`].

mod campaign;
mod executor;

pub use campaign::{CampaignOptions, Outcome, Progress, StrategyKind, Survey, SurveyedFile};
pub use executor::{Executor, ExecutorError, Failure, StoreId, Verdict};
