//! What planning asks of a pointer analysis.

use crashproof_llvm::Value;

pub(super) trait Aliases<'m> {
    /// The heuristic's score of each place, store or call; `None`: it is no candidate, because it (or a call further in) passes no pointer.
    fn scores(&self, places: &[Value<'m>]) -> Vec<Option<i64>>;

    /// The same by the trace alone, to choose among equals.
    fn scores_of_trace(&self, places: &[Value<'m>]) -> Vec<Option<i64>> {
        self.scores(places)
    }

    /// Whether the pointer may be to persistent memory.
    fn may_be_pm(&self, pointer: Value<'m>) -> bool;

    /// The functions that a call through a pointer may call; `None` if it may be something unknown, too.
    fn callees(&self, call: Value<'m>) -> Option<Vec<Value<'m>>>;
}

/// Nothing is known.
pub(super) struct NoAliases;

impl<'m> Aliases<'m> for NoAliases {
    fn scores(&self, places: &[Value<'m>]) -> Vec<Option<i64>> {
        vec![Some(0); places.len()]
    }

    fn may_be_pm(&self, pointer: Value<'m>) -> bool {
        !pointer.base().is_alloca()
    }

    fn callees(&self, _: Value<'m>) -> Option<Vec<Value<'m>>> {
        None
    }
}
