//! Runs the persistency rules over the events of a trace.
//!
//! [`Steps`] takes an event apart into what a crash cannot come in the middle of. [`Replay`] runs steps over lines that are kept
//! exactly and shows an [`Observer`] what becomes of each; [`step_memory`] runs them over the tuned [`Memory`], which keeps
//! hundreds of millions of lines and shows what becomes of a store only when asked. A test compares the two.
//!
//! The rules for what is not a store, flush or fence: `write(2)` and its kin are durable at once, over whatever was stored there;
//! msync and fsync persist the bytes of their range, as far as they were stored before the call began ([`Underway`]); a truncation drops what lies beyond; sizes and names are durable at once.
//! Unmapping a file and the end of a process persist nothing and drop nothing.
//!
//! Analyses that read events in order follow two more things here: which file is mapped where ([`Mappings`]), and the
//! transactions of libpmemobj ([`Transactions`]).
//!
//! Architecture invariant: every analysis that asks whether a store is persistent takes events apart here.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod exact;
mod mappings;
mod memory;
mod ranges;
mod step;
mod transactions;
mod underway;

#[cfg(test)]
mod tests;

pub use exact::{Change, ChangeOf, LineState, Observer, Replay, StoreOf};
pub use mappings::Mappings;
pub use memory::{step_memory, sync_memory};
pub use ranges::RangeSet;
pub use step::{Cut, Step, Steps, StorePiece};
pub use transactions::{Transaction, TransactionChange, TransactionId, Transactions};
pub use underway::{SyncChange, Underway};

#[cfg(doc)]
use crashproof_model::Memory;
