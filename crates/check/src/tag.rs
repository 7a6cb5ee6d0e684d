//! What the checker keeps with each store that is not persistent yet.

use crashproof_model::Tag;
use crashproof_trace::StackId;

/// A stack that may be missing, in four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionalStack(u32);

impl From<Option<StackId>> for OptionalStack {
    fn from(stack: Option<StackId>) -> Self {
        OptionalStack(stack.map_or(0, |stack| stack.0 + 1))
    }
}

impl OptionalStack {
    pub fn get(self) -> Option<StackId> {
        self.0.checked_sub(1).map(StackId)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreTag {
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

    fn overwrote(&mut self, older: &StoreTag) {
        let across_fence = u16::from(older.fences != self.fences && older.fences != FORGOTTEN);
        self.rewrites = self.rewrites.max(older.rewrites.saturating_add(across_fence));
        self.repeated |= older.stack == self.stack;
    }

    fn merge(&mut self, next: &StoreTag) -> bool {
        let same = self.count != 0
            && *self
                == StoreTag {
                    count: self.count,
                    ..*next
                };
        if same {
            self.count = self.count.saturating_add(next.count);
        }
        same
    }

    fn settle(&mut self) {
        self.fences = FORGOTTEN;
    }
}
