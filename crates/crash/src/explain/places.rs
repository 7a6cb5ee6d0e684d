//! Where in the program a change was made: the source line that stands for its call stack.

use crashproof_report::{Frame, innermost_position};
use crashproof_sites::Typing;
use crashproof_stacks::{Stacks, Symbolized, file_name, is_c_runtime};
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
pub type SpotId = usize;

#[derive(Default)]
pub struct Places {
    stacks: Stacks,
    merged: FxHashMap<StackId, bool>,
    of_stack: FxHashMap<StackId, Option<SpotId>>,
    ids: FxHashMap<Spot, SpotId>,
}

impl Places {
    pub fn symbolize(&mut self, stack: StackId, tables: &Tables) -> Symbolized {
        self.stacks.symbolize(stack, tables)
    }

    /// Whether the compiler made the store of several source lines, of which the position is only one.
    pub fn is_merged(&mut self, stack: StackId, tables: &Tables) -> bool {
        // What Typing keeps stays in one thread, and few stacks are asked for.
        *self
            .merged
            .entry(stack)
            .or_insert_with(|| Typing::new().is_merged(tables, stack))
    }

    pub fn spot(&mut self, change: &Change, tables: &Tables) -> SpotId {
        let known = match self.of_stack.get(&change.stack) {
            Some(known) => *known,
            None => {
                let frames = self.stacks.symbolize(change.stack, tables).frames;
                let spot = standing(&frames).map(|frame| match (&frame.file, frame.line) {
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
    pub fn warnings(&self) -> &[String] {
        self.stacks.warnings()
    }
}

/// The frame that stands for a stack: the innermost with a source position in the program itself; without debug info, the
/// innermost that is not in a library that stores on the program's behalf.
pub fn standing(frames: &[Frame]) -> Option<&Frame> {
    let of_library = |frame: &Frame| {
        let name = frame.module.as_deref().map_or("", file_name);
        name.starts_with("libpmem") || is_c_runtime(name)
    };
    let outside = frames.iter().position(|frame| !of_library(frame)).unwrap_or(0);
    innermost_position(&frames[outside.min(frames.len())..])
        .or_else(|| frames.get(outside))
        .filter(|frame| frame.has_position() || frame.address != 0 || frame.function.is_some())
}
