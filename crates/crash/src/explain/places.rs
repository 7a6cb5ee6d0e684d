//! Where in the program a change was made: the source line that stands for its call stack.

pub(super) use crashproof_finding::blamed;
use crashproof_sites::Typing;
use crashproof_stacks::{DeclaredHelpers, Origin, Stacks, Symbolized};
use crashproof_trace::{FileId, PmAddress, StackId, Tables};
use rustc_hash::FxHashMap;

use super::history::Change;

/// Places of stores whose objects are kept.
const MOST_WRITTEN: usize = 1 << 16;

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

/// What is stored to, and by which function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenObject {
    /// With its file.
    pub(super) function: Option<String>,
    pub(super) ty: Option<String>,
    /// How far before the store the object begins.
    pub(super) distance: Option<u64>,
}

/// A [`Spot`]'s number.
pub(super) type SpotId = usize;

#[derive(Default)]
pub(super) struct Places {
    stacks: Stacks,
    merged: FxHashMap<StackId, bool>,
    /// By call stack and offset: one store may be several changes, and a loop stores to many elements.
    written: FxHashMap<(StackId, u64), WrittenObject>,
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

    /// Whether libpmemobj, or another library of PMDK, did it on its own account.
    pub(super) fn is_library(&mut self, stack: StackId, tables: &Tables) -> bool {
        self.stacks.origin(stack, tables) == Origin::Pmdk
            && !self.stacks.entry(stack, tables).is_some_and(|entry| entry.is_copy())
    }

    pub(super) fn written_object(&mut self, change: &Change, tables: &Tables) -> WrittenObject {
        let key = (change.stack, change.data().map_or(0, |(offset, _)| offset));
        if let Some(known) = self.written.get(&key) {
            return known.clone();
        }
        if self.written.len() == MOST_WRITTEN {
            self.written.clear();
        }
        let frames = self.stacks.symbolize(change.stack, tables).frames;
        let function = blamed(&frames).and_then(|frame| {
            let function = frame.function.as_ref()?;
            Some(format!("{}:{function}", frame.file.as_deref().unwrap_or_default()))
        });
        let mut written = WrittenObject {
            function,
            ..WrittenObject::default()
        };
        if let Some((offset, data)) = change.data() {
            let file = FileId(change.file as u32);
            let at = PmAddress { file, offset };
            // What Typing keeps stays in one thread, and few stacks are asked for.
            let mut typing = Typing::new();
            let typed = typing.of(tables, change.stack, at, data.len());
            if let Some(outermost) = typed.last() {
                written.ty = Some(typing.type_name(outermost.ty).to_owned());
                written.distance = (!outermost.is_guessed).then(|| offset.wrapping_sub(outermost.instance.offset));
            }
        }
        self.written.insert(key, written.clone());
        written
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
