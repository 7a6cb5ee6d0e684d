//! Persistency semantics of x86: which stores are guaranteed persistent, and which contents a crash may leave.
//!
//! Two models: [`Model::Px86`] (Raad et al.; the table is Table 1 of the PMBugAssist paper) and [`Model::Eadr`], where the
//! caches are inside the persistence domain. [`Line`] is the state machine of one cache line, or of a unit of another size.
//! [`Memory`] holds the lines of all PM files and makes fences cheap. [`Order`] is the definition of a crash state, for these
//! models and others.
//!
//! Deviation from Px86: non-temporal stores, which Px86 leaves out, follow the design's text: one is unordered with all
//! other stores, in its own line too, until its thread's next fence, which persists it and not the plain stores before
//! it. On the bytes that two stores share, the later one wins.
//!
//! Architecture invariant: pure. No I/O, no trace format, no knowledge of what a tag means.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bytes;
mod line;
mod memory;
mod order;
mod packed;
#[cfg(test)]
mod reference;

pub use bytes::{ByteSet, Bytes, Parts, Piece, Ranges, cut, pieces};
pub use crashproof_base::{LINE, LineAddress, WORD};
pub use line::{Awaits, Flush, Keep, Line, Store, Tag, Thread};
pub use memory::{Limits, Memory, Unpersisted};
pub use order::{Chains, CrashStates, Order, order_of};

/// What the hardware makes persistent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Model {
    /// Caches are lost at a crash: a store needs a flush and a fence.
    #[default]
    Px86,
    /// Caches survive: a cached store is persistent when visible, a non-temporal one still needs a fence.
    Eadr,
}
