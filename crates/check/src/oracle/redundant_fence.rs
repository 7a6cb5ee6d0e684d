//! `redundant-fence` (Agamotto §4.2.1, the extra fence oracle): an `sfence` of a thread that has issued no flush and no
//! non-temporal store since its last fence.
//!
//! Deviations, all so that a right program gets nothing:
//! - per thread, as a fence waits for its own thread only;
//! - `mfence` is not reported, because it also orders loads, and locked instructions have a purpose of their own; nor do
//!   these make a following `sfence` redundant, as nobody writes them for that;
//! - a flush that was redundant itself excuses its fence: there is one mistake, and it is the flush;
//! - a fence after plain stores of its thread is reported only if none of them turns out as a missing flush whose fence
//!   this is: then the fence is right, and the flush is what lacks. Under eADR such a fence is always right.

use crashproof_finding::Kind;
use crashproof_model::{Flush, Model};
use crashproof_trace::{FenceKind, PmAddress, StackId};
use rustc_hash::FxHashMap;

use super::{Oracle, Step, StoreAccess, World};
use crate::findings::RawFinding;

#[derive(Clone, Copy, Default)]
struct SinceFence {
    /// A flush or a non-temporal store.
    pending: bool,
    stored: bool,
}

#[derive(Default)]
pub(crate) struct RedundantFence {
    threads: Vec<SinceFence>,
    /// Fences by stack, redundant or not.
    fences: Vec<u64>,
    /// Fences by stack that only plain stores preceded.
    after_stores: FxHashMap<StackId, u64>,
}

impl RedundantFence {
    fn thread(&mut self, thread: u32) -> &mut SinceFence {
        let index = thread as usize;
        if index >= self.threads.len() {
            self.threads.resize(index + 1, SinceFence::default());
        }
        &mut self.threads[index]
    }
}

impl Oracle for RedundantFence {
    fn wants_stores(&self) -> bool {
        true
    }

    fn store(&mut self, step: Step, store: StoreAccess, _: &mut World) {
        let thread = self.thread(step.thread);
        thread.stored = true;
        thread.pending |= store.flags.nontemporal;
    }

    fn flush(&mut self, step: Step, _: PmAddress, _: Flush<u32>, _: &mut World) {
        self.thread(step.thread).pending = true;
    }

    fn fence(&mut self, step: Step, kind: FenceKind, world: &mut World) {
        if kind == FenceKind::Locked {
            return;
        }
        let since = std::mem::take(self.thread(step.thread));
        if kind != FenceKind::Sfence {
            return;
        }
        let index = step.stack.index();
        if index >= self.fences.len() {
            self.fences.resize(index + 1, 0);
        }
        self.fences[index] += 1;
        if since.pending {
            return;
        }
        if !since.stored {
            world.findings.add(RawFinding::new(Kind::RedundantFence, step.stack));
        } else if world.model == Model::Px86 {
            *self.after_stores.entry(step.stack).or_default() += 1;
        }
    }

    fn finish(&mut self, world: &mut World) {
        for (stack, count) in self.after_stores.drain() {
            if world.findings.awaited_fences.contains(&stack) {
                continue;
            }
            world.findings.add(RawFinding {
                count,
                ..RawFinding::new(Kind::RedundantFence, stack)
            });
        }
        for finding in world.findings.iter_mut().filter(|f| f.kind == Kind::RedundantFence) {
            finding.out_of = self.fences.get(finding.stack.index()).copied();
        }
    }
}
