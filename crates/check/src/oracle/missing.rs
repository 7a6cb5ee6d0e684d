//! `missing-flush`, `missing-fence` and `transient-data`: what is not persistent when its memory goes away (Agamotto §4.2.1,
//! the unflushed bug oracle). What would be a missing flush is `tx-store-not-snapshotted` if a transaction ought to have covered it:
//! a flush would make the store durable, and what cannot be rolled back would stay so.
//!
//! Deviations: a byte that was stored several times counts for its last store only; pending is per thread, so a flush that
//! only another thread fences is a missing fence; what is volatile by the evidence of its use, such as a lock, gets a class of
//! its own. That nothing ever persists it is no such evidence: a count that is never flushed is the classic mistake.

use crashproof_finding::{DurableByKind, Kind};
use crashproof_model::{LINE, Unpersisted};
use crashproof_replay::TransactionChange;
use crashproof_trace::{FileId, PmAddress, StackId};
use rustc_hash::FxHashMap;

use super::{Gone, Oracle, Step, World};
use crate::findings::{Detail, Findings, RawFinding, Relation};
use crate::locks::{LockFunctions, Use};
use crate::tag::StoreTag;

/// After so many rewrites across fences the advice names both possibilities: that it is volatile by design, or forgotten.
const MANY_REWRITES: u16 = 3;

#[derive(Default)]
pub(crate) struct Missing {
    /// Where transactions that began at one place ended last.
    transaction_ends: FxHashMap<StackId, StackId>,
}

impl Oracle for Missing {
    fn transaction(&mut self, step: Step, change: TransactionChange, _: &mut World) {
        if let TransactionChange::Ended { begin: Some(begin), .. } = change {
            self.transaction_ends.insert(begin, step.stack);
        }
    }

    fn unpersisted(&mut self, lost: &Unpersisted<'_, StoreTag>, gone: Gone, findings: &mut Findings) {
        let tag = &lost.store.tag;
        let flushed = lost.store.nontemporal || lost.flushed.is_some();
        let used_as = match gone.used_as {
            // It could not put it back.
            Use::HeldLock if gone.killed => Use::Lock,
            used_as => used_as,
        };
        let kind = match (used_as, flushed) {
            (Use::Lock | Use::Object, _) => Kind::TransientData,
            (_, true) => Kind::MissingFence,
            (_, false) if tag.not_snapshotted => Kind::TxStoreNotSnapshotted,
            (_, false) => Kind::MissingFlush,
        };
        let rewritten = !lost.line_persisted && tag.rewrites >= MANY_REWRITES;
        let detail = match (kind, used_as) {
            (Kind::TransientData, Use::Object) => Detail::LockFunction,
            (Kind::TransientData, _) => Detail::Lock,
            _ if lost.store.nontemporal => Detail::Nontemporal,
            (Kind::TxStoreNotSnapshotted, _) => Detail::NeverFlushed,
            (_, Use::HeldLock) => Detail::HeldLock,
            (Kind::MissingFlush, Use::Perhaps) => Detail::PerhapsVolatile,
            (Kind::MissingFlush, _) if rewritten => Detail::PerhapsVolatile,
            _ => Detail::None,
        };
        let others = match kind {
            Kind::MissingFlush => tag.earlier.of(lost.store.bytes).collect(),
            _ => Vec::new(),
        };
        // Their fences were meant for them all the same.
        findings.awaited_fences.extend(others.iter().map(|&(_, fence)| fence));
        let others = others
            .into_iter()
            .map(|(stack, _)| stack)
            .filter(|&stack| stack != tag.stack);
        let transaction_end = tag
            .transaction
            .get()
            .and_then(|begin| self.transaction_ends.get(&begin));
        let durable_by = match (kind, transaction_end, tag.fence.get()) {
            (Kind::TransientData | Kind::TxStoreNotSnapshotted, ..) => None,
            (_, Some(&end), _) => Some((DurableByKind::TxEnd, end)),
            (Kind::MissingFlush, None, Some(fence)) => Some((DurableByKind::Fence, fence)),
            _ => Some((gone.by, gone.stack)),
        };
        findings.awaited_fences.extend(tag.fence.get());
        let not_snapshotted = kind == Kind::TxStoreNotSnapshotted;
        // The transaction oracle has had evidence of its own.
        let known = findings
            .get(kind, tag.stack, FileId(lost.at.file))
            .filter(|_| not_snapshotted);
        let counted = known.is_some_and(|known| known.detail != Detail::NeverFlushed);
        let bytes = lost.store.bytes;
        let at = PmAddress {
            file: FileId(lost.at.file),
            offset: lost.at.line * LINE + bytes.first(),
        };
        let finding = RawFinding {
            durable_by,
            related: match (lost.flushed, tag.transaction.get()) {
                (Some(flush), _) => Some((Relation::FlushedHere, StackId(flush))),
                (None, Some(begin)) if not_snapshotted => Some(if gone.unfinished {
                    (Relation::TransactionUnfinished, begin)
                } else {
                    (Relation::TransactionBegan, begin)
                }),
                _ => None,
            },
            others: others.map(|stack| (Relation::OverwrittenUnflushed, stack)).collect(),
            detail,
            count: if counted { 0 } else { u64::from(tag.count) },
            // libpmemobj fences in the middle of a transaction, for purposes of its own.
            in_flight: (gone.killed || gone.by == DurableByKind::Exit)
                && (tag.fence.get().is_none() || gone.unfinished)
                && !tag.repeated
                && !gone.acknowledged,
            ..RawFinding::new(kind, tag.stack).at(at, bytes.span())
        };
        if finding.in_flight && gone.killed {
            return;
        }
        if counted {
            findings.add(finding);
        } else {
            findings.add_lowest(finding);
        }
    }

    fn finish(&mut self, world: &mut World) {
        let mut functions = LockFunctions::default();
        world.findings.make_transient(|finding| {
            let unpersisted = matches!(finding.kind, Kind::MissingFlush | Kind::MissingFence);
            let stored_first = |(at, len)| finding.one_place && world.first_accesses.is_volatile(at, len);
            match unpersisted {
                true if functions.made(finding.stack, world.stacks, world.tables) => Some(Detail::LockFunction),
                true if finding.at.is_some_and(stored_first) => Some(Detail::StoredFirst),
                _ => None,
            }
        });
        for finding in world.findings.iter_mut() {
            // Only the second halves of stores that cross a line were lost: they count for no store of their own.
            finding.count = finding.count.max(1);
        }
    }
}
