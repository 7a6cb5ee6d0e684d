//! Crash tests as a library: from the options of `crashproof crash` to findings and a report, as values.
//!
//! A [`Campaign`] checks what it is asked for (`plan`), makes or finds the trace (`obtain`, `driver`), runs the recovery in
//! sandboxes (`executor`) over the crash states that `crashproof_crash` chooses, and crashes the recovery in turn (`depth`).
//! An interrupted one leaves what it needs to go on (`state`). Recording ([`recording`]), the set-up command ([`setup`]) and
//! the reader of a project's file ([`project`]) serve other commands, too.
//!
//! Architecture invariant: shows nothing. What happens on the way goes to a [`Listener`], the rest is in what is returned.
//! The supervisor of the sandbox is the program `crashproof`, whoever calls.

mod campaign;
mod depth;
mod driver;
mod executor;
mod listener;
mod obtain;
pub mod options;
mod performance;
mod plan;
pub mod project;
pub mod recording;
mod replay;
pub mod runtime;
mod samples;
pub mod setup;
pub mod shell;
mod state;
pub mod units;

pub use campaign::{Campaign, Tested};
pub use crashproof_crash::Progress;
pub use driver::{Driver, KeptPool, read_operations};
pub use executor::how_it_ended;
pub use listener::Listener;
pub use replay::{Replay, Replayed};

/// An error's text has its cause and the remedy.
pub type Error = Box<dyn std::error::Error>;
