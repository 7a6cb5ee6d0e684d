//! Oracles: small types that look at events in order and emit findings.
//!
//! The pass ([`crate::pass`]) runs the persistency model once for all of them. A store is shown to the oracles before it
//! takes effect, a flush with what it did, a fence before it takes effect, and at unmap, exit and the end of the trace
//! every store that is not persistent.
//!
//! Agamotto §4.2 calls the first two universal and the rest custom oracles; docs/oracles.md has the exact definitions.

use crashproof_finding::DurableByKind;
use crashproof_model::{Flush, Memory, Model, Unpersisted};
use crashproof_replay::{TransactionChange, Transactions};
use crashproof_trace::{FenceKind, PmAddress, ProcessId, StackId, StoreFlags, Tables};

use crate::findings::Findings;
use crate::first_access::FirstAccesses;
use crate::locks::{Locks, Use};
use crate::tag::StoreTag;
use annotation::Annotation;
use crashproof_stacks::Stacks;

pub(crate) mod annotation;
pub(crate) mod missing;
pub(crate) mod redundant_fence;
pub(crate) mod redundant_flush;
pub(crate) mod rules;
pub(crate) mod transaction;

/// Who did something, and where in the code.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub thread: u32,
    pub process: ProcessId,
    pub stack: StackId,
}

/// What an oracle may look at and write to.
pub(crate) struct World<'a> {
    pub model: Model,
    pub memory: &'a mut Memory<StoreTag>,
    pub transactions: &'a Transactions,
    pub locks: &'a Locks,
    pub first_accesses: &'a FirstAccesses,
    pub stacks: &'a mut Stacks,
    pub tables: &'a Tables,
    pub findings: &'a mut Findings,
}

#[derive(Clone, Copy)]
pub(crate) struct StoreAccess {
    pub at: PmAddress,
    pub len: u64,
    pub flags: StoreFlags,
}

/// Why a range of PM is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// [`DurableByKind::Unmap`] or [`DurableByKind::Exit`].
    pub by: DurableByKind,
    pub stack: StackId,
    /// The thread has output something since it stored: it had gone on to other things.
    pub acknowledged: bool,
    /// The process that stored was killed, so what it was in the middle of is no evidence of a mistake.
    pub killed: bool,
    /// The store's transaction has not committed, and the store is not covered by it.
    pub unfinished: bool,
    /// What the bytes are used for.
    pub used_as: Use,
}

pub(crate) trait Oracle {
    /// Whether it wants to see stores: most oracles do not, and stores are the most frequent events.
    fn wants_stores(&self) -> bool {
        false
    }

    fn store(&mut self, _step: Step, _store: StoreAccess, _world: &mut World) {}

    fn flush(&mut self, _step: Step, _at: PmAddress, _outcome: Flush<u32>, _world: &mut World) {}

    fn fence(&mut self, _step: Step, _kind: FenceKind, _world: &mut World) {}

    fn transaction(&mut self, _step: Step, _change: TransactionChange, _world: &mut World) {}

    /// The program says something of itself.
    fn annotation(&mut self, _step: Step, _annotation: Annotation, _world: &mut World) {}

    /// The thread has printed a line: of a driver, that ends an operation.
    fn line(&mut self, _step: Step) {}

    /// The range needs no flush for what was stored to it; PMDK says so of memory that it frees, too.
    fn clean(&mut self, _at: PmAddress, _len: u64) {}

    /// Some mappings of the process (of every process, if not given) go away now.
    fn before_gone(&mut self, _process: Option<ProcessId>, _world: &mut World) {}

    /// A store that was not persistent when the last mapping of its line went away.
    fn unpersisted(&mut self, _store: &Unpersisted<'_, StoreTag>, _gone: Gone, _findings: &mut Findings) {}

    /// After the last event.
    fn finish(&mut self, _world: &mut World) {}
}
