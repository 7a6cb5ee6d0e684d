//! Where in the program a change was made: the source line that stands for its call stack.

pub(super) use crashproof_finding::blamed;
use crashproof_sites::Typing;
use crashproof_stacks::{DeclaredHelpers, Stacks, Symbolized};
use crashproof_trace::{StackId, Tables};
use rustc_hash::FxHashMap;

use super::history::Change;

/// Changes of one spot are one thing to the user, and causes are told apart by spots.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Spot {
    /// File and line.
    Source(String, u32),
    /// Module and address, without debug info.
    Code(String, u64),
    /// Nothing is known of the code: the PM file and the offset.
    Offset(usize, u64),
}

/// A [`Spot`]'s number.
pub(super) type SpotId = usize;

#[derive(Default)]
pub(super) struct Places {
    stacks: Stacks,
    merged: FxHashMap<StackId, bool>,
    of_stack: FxHashMap<StackId, Option<SpotId>>,
    ids: FxHashMap<Spot, SpotId>,
}

impl Places {
    pub(super) fn new(helpers: DeclaredHelpers) -> Places {
        Places {
            stacks: Stacks::new(helpers),
            ..Places::default()
        }
    }

    /// Those that the user declares.
    pub(super) fn helpers(&self) -> &DeclaredHelpers {
        self.stacks.declared()
    }

    pub(super) fn symbolize(&mut self, stack: StackId, tables: &Tables) -> Symbolized {
        self.stacks.symbolize(stack, tables)
    }

    /// Whether the compiler made the store of several source lines, of which the position is only one.
    pub(super) fn is_merged(&mut self, stack: StackId, tables: &Tables) -> bool {
        // What Typing keeps stays in one thread, and few stacks are asked for.
        *self
            .merged
            .entry(stack)
            .or_insert_with(|| Typing::new().is_merged(tables, stack))
    }

    pub(super) fn spot(&mut self, change: &Change, tables: &Tables) -> SpotId {
        let known = match self.of_stack.get(&change.stack) {
            Some(known) => *known,
            None => {
                let frames = self.stacks.symbolize(change.stack, tables).frames;
                let spot = blamed(&frames).map(|frame| match (&frame.file, frame.line) {
                    (Some(file), Some(line)) => Spot::Source(file.clone(), line),
                    _ => Spot::Code(frame.module.clone().unwrap_or_default(), frame.address),
                });
                let id = spot.map(|spot| self.id(spot));
                self.of_stack.insert(change.stack, id);
                id
            }
        };
        known.unwrap_or_else(|| self.id(Spot::Offset(change.file, change.data().map_or(0, |(offset, _)| offset))))
    }

    fn id(&mut self, spot: Spot) -> SpotId {
        let next = self.ids.len();
        *self.ids.entry(spot).or_insert(next)
    }

    /// What the symbolizer could not do.
    pub(super) fn warnings(&self) -> &[String] {
        self.stacks.warnings()
    }
}
