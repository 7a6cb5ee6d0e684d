//! What the checker keeps with each store that is not persistent yet.

use crashproof_model::{Bytes, Tag};
use crashproof_trace::StackId;

/// A stack that may be missing, in four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct OptionalStack(u32);

impl From<Option<StackId>> for OptionalStack {
    fn from(stack: Option<StackId>) -> Self {
        OptionalStack(stack.map_or(0, |stack| stack.0 + 1))
    }
}

impl OptionalStack {
    pub(crate) fn get(self) -> Option<StackId> {
        self.0.checked_sub(1).map(StackId)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreTag {
    pub stack: StackId,
    /// Where the transaction began that it was made in.
    pub transaction: OptionalStack,
    /// It was made in a transaction that ought to cover it and does not.
    pub not_snapshotted: bool,
    /// The first fence of its thread that passed it by.
    pub fence: OptionalStack,
    /// Fences of any thread before it, or [`FORGOTTEN`].
    pub fences: u32,
    /// Signs before it that its thread was not in the middle of an update: output, quiet.
    pub outputs: u32,
    /// How often it rewrote bytes across a fence while nothing persisted them.
    pub rewrites: u16,
    /// It rewrote bytes that the same code had stored.
    pub repeated: bool,
    /// Stores that this stands for; none for the second line of a store that crosses into it.
    pub count: u32,
    pub earlier: Earlier,
}

/// More places are not kept with a store.
pub(crate) const MAX_EARLIER: usize = 8;

/// Where bytes of a store had been stored before: stores that a fence of their thread passed by and that were overwritten before
/// anything flushed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
// The box keeps the tag small: most stores have no earlier ones.
#[allow(clippy::box_collection)]
pub(crate) struct Earlier(Option<Box<Vec<EarlierStore>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EarlierStore {
    stack: StackId,
    /// The fence that passed it by.
    fence: StackId,
    bytes: Bytes,
}

impl Earlier {
    fn add(&mut self, store: EarlierStore) {
        let stores = self.0.get_or_insert_default();
        if let Some(known) = stores.iter_mut().find(|known| known.stack == store.stack) {
            known.bytes = known.bytes.union(store.bytes);
        } else if stores.len() < MAX_EARLIER {
            stores.push(store);
        }
    }

    fn stores(&self) -> &[EarlierStore] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Those to one of the bytes: where they were made, and the fence that passed them by.
    pub(crate) fn of(&self, bytes: Bytes) -> impl Iterator<Item = (StackId, StackId)> {
        let touching = self.stores().iter().filter(move |store| store.bytes.intersects(bytes));
        touching.map(|store| (store.stack, store.fence))
    }
}

/// A store has stayed so long that it counts for less as evidence of rewriting.
const FORGOTTEN: u32 = u32::MAX;

impl Tag for StoreTag {
    type Site = u32;

    fn left_behind(&mut self, fence: u32) {
        if self.fence.get().is_none() {
            self.fence = Some(StackId(fence)).into();
        }
    }

    fn overwrote(&mut self, older: &StoreTag, &bytes: &Bytes, flushed: bool) {
        let across_fence = u16::from(older.fences != self.fences && older.fences != FORGOTTEN);
        self.rewrites = self.rewrites.max(older.rewrites.saturating_add(across_fence));
        self.repeated |= older.stack == self.stack;
        for &store in older
            .earlier
            .stores()
            .iter()
            .filter(|store| store.bytes.intersects(bytes))
        {
            let bytes = store.bytes.intersection(bytes);
            self.earlier.add(EarlierStore { bytes, ..store });
        }
        if let (Some(fence), false) = (older.fence.get(), flushed) {
            let stack = older.stack;
            self.earlier.add(EarlierStore { stack, fence, bytes });
        }
    }

    fn merge(&mut self, next: &StoreTag) -> bool {
        let same = self.count != 0
            && self.stack == next.stack
            && self.transaction == next.transaction
            && self.not_snapshotted == next.not_snapshotted
            && self.fence == next.fence
            && self.fences == next.fences
            && self.outputs == next.outputs
            && self.rewrites == next.rewrites
            && self.repeated == next.repeated
            && self.earlier == next.earlier;
        if same {
            self.count = self.count.saturating_add(next.count);
        }
        same
    }

    fn settle(&mut self) {
        self.fences = FORGOTTEN;
    }
}
