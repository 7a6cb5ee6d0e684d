//! Crash testing: from a trace to the crash states it allows, to the ones from which the program does not recover, to
//! findings that say which stores had persisted and which had not.
//!
//! Architecture invariant: reads traces and makes findings; what runs a recovery is behind [`Executor`].
#![forbid(unsafe_code)]

mod campaign;
mod conditions;
mod cursor;
mod edges;
mod error;
mod executor;
pub mod explain;
mod hash;
mod image;
mod journal;
pub mod oracle;
mod reads;
mod representative;
mod runner;
mod stage;
mod state;
mod strategy;
mod survey;
mod window;

pub use campaign::{
    Baseline, CampaignOptions, Outcome, Progress, Recovered, StrategyKind, Survey, SurveyedFile, baseline, judge,
    make_image, recover, run, survey,
};
pub use edges::{EdgeIndex, Edges, Update};
pub use error::CrashError;
pub use executor::{Executor, ExecutorError, Explainer, Failure, StoreId, Verdict};
pub use representative::{Behaviour, BehaviourList, BehaviourUpdate, behaviour_list};
