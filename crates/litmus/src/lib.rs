//! Litmus files: a short trace of stores, flushes and fences, and what must hold of it.
//!
//! [`Litmus::parse`] reads one, [`violations`] says which properties some allowed execution breaks, [`repair()`] finds the
//! smallest change after which none does. The problem is PMBugAssist's (ICSE 2024, sections 3 to 6): durability and
//! must-persist-before properties; flushes and fences may be added and moved, stores only where a property contradicts their order.
//! The way to its solution is not: PMBugAssist blocks wrong permutations one by one with an SMT solver, and how little it changes is a
//! by-product. Here the least change is the objective ([`repair()`] says how).
//!
//! Line order is the one observed interleaving; only what persists when varies. What is allowed is `crashproof_model`'s to say.
//!
//! Architecture invariant: knows neither traces nor programs.
#![forbid(unsafe_code)]

mod intervals;
mod moves;
mod needs;
mod parse;
mod part;
mod parts;
mod render;
mod repair;
mod search;
mod verdict;

#[cfg(test)]
mod tests;

pub use moves::{Moves, moves};
pub use parse::ParseError;
pub use render::Line;
pub use repair::{Least, NoRepair, Repair, RepairedLine, repair};
pub use verdict::{Crash, Violation, violations};

use crashproof_model::{LINE, pieces};

/// Index in [`Litmus::stores`].
pub type StoreId = usize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Litmus {
    pub stores: Vec<Store>,
    /// In the order of the file.
    pub ops: Vec<Op>,
    pub properties: Vec<Property>,
    /// Their names; the first is that of lines without a prefix, and empty.
    pub threads: Vec<String>,
    /// How often the source line of each operation ran, in all; empty if that was once each.
    pub times: Vec<u32>,
}

impl Litmus {
    /// How often the source line of the operation ran: what is added next to it runs as often.
    pub fn times(&self, op: usize) -> u32 {
        self.times.get(op).copied().unwrap_or(1).max(1)
    }

    /// Whether it makes a difference where a fence is added.
    fn is_weighted(&self) -> bool {
        self.times.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// How often something would run that is added before this operation: before it, or after the one before it.
    fn times_between(&self, op: usize) -> u32 {
        match op {
            0 => 1,
            _ if op >= self.ops.len() => 1,
            _ => self.times(op - 1).min(self.times(op)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub name: String,
    pub at: AddressRange,
    pub kind: StoreKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Plain,
    Nontemporal,
    /// A locked read-modify-write: it fences, then stores.
    Locked,
}

impl Store {
    pub fn is_cached(&self) -> bool {
        self.kind != StoreKind::Nontemporal
    }
}

/// Addresses `start..start + len`; `len` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    pub start: u64,
    pub len: u64,
}

impl AddressRange {
    /// The cache lines that it touches.
    pub fn lines(self) -> impl Iterator<Item = u64> {
        pieces(self.start, self.len, LINE).map(|piece| piece.line)
    }

    pub fn overlaps(self, other: AddressRange) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Index in [`Litmus::threads`].
    pub thread: u32,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Store(StoreId),
    Flush(Flush),
    Fence {
        /// `mfence`, else `sfence`.
        full: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flush {
    /// The store that it names, if it names one.
    pub names: Option<StoreId>,
    /// Every line that this touches is flushed.
    pub at: AddressRange,
    /// `clflush`, else `clwb` or `clflushopt`.
    pub at_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Every byte persistent at the end.
    Durable(StoreId),
    /// Every byte of the first before any byte of the second.
    Before(StoreId, StoreId),
}
