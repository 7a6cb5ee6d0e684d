//! Persistency semantics of x86: which stores are guaranteed persistent, and which contents a crash may leave.
//!
//! Two models: [`Model::Px86`] (Raad et al.; the table is Table 1 of the PMBugAssist paper) and [`Model::Eadr`], where the
//! caches are inside the persistence domain. [`Line`] is the state machine of one cache line, [`Memory`] holds the lines
//! of all PM files and makes fences cheap, [`crash_states`] enumerates what a crash may leave of a few lines.
//!
//! Deviation from Px86: non-temporal stores, which Px86 leaves out, follow the design's text: one is unordered with all
//! other stores, in its own line too, until its thread's next fence, which persists it and not the plain stores before
//! it. On the bytes that two stores share, the later one wins.
//!
//! Architecture invariant: pure. No I/O, no trace format, no knowledge of what a tag means.
#![forbid(unsafe_code)]

mod bytes;
mod crash;
mod line;
mod memory;
mod packed;
#[cfg(test)]
mod reference;

pub use bytes::{Bytes, Piece, Pieces, pieces};
pub use crash::{CrashState, CrashStates, crash_states};
pub use crashproof_base::{LINE, LineAddress, WORD};
pub use line::{Awaits, Flush, Keep, Line, Store, Tag, Thread};
pub use memory::{Limits, Memory, Unpersisted};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Model {
    /// Caches are lost at a crash: a store needs a flush and a fence.
    #[default]
    Px86,
    /// Caches survive: a cached store is persistent when visible, a non-temporal one still needs a fence.
    Eadr,
}
