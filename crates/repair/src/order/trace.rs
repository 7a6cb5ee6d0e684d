//! The trace of the repair build, as orders need it: what happened when, and where in the source.

use std::path::{Path, PathBuf};

use crashproof_base::{LINE, LineAddress};
use crashproof_finding::Frame;
use crashproof_litmus::StoreKind;
use crashproof_replay::{Cut, Step, Steps};
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, FenceKind, FileId, FlushKind, Item, PmAddress, ReadError, StackId, TraceReader};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::plan::Position;
use crate::source::units::canonical;

/// Most events that are kept; an order that shows only later is left.
const MOST_EVENTS: usize = 4_000_000;
/// PM files are this far apart in the addresses of a litmus.
const FILE_BITS: u32 = 40;

pub(super) struct Trace {
    pub events: Vec<Event>,
    stacks: FxHashMap<StackId, CallStack>,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its number.
    pub seq: u64,
    pub thread: u32,
    pub stack: StackId,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Store {
        at: u64,
        len: u64,
        kind: StoreKind,
    },
    /// Of the line at the address.
    Flush {
        at: u64,
        at_once: bool,
    },
    Fence {
        full: bool,
    },
    /// A file is made, resized, renamed, removed or written to: persistent at once, as crash tests have it.
    File(Step),
    /// What the outside knows from then on.
    Output,
    /// All of the range is durable.
    Sync {
        at: u64,
        len: u64,
    },
}

/// A call stack of the trace.
pub(super) struct CallStack {
    pub frames: Vec<Frame>,
    pub path: CallPath,
}

/// The part of a call stack that is in the source tree, innermost first.
pub(super) type CallPath = Vec<CallSite>;

/// A place on a call stack, in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallSite {
    pub function: Option<String>,
    /// The file is canonical; a column of 0 is not known.
    pub position: Position,
    pub address: u64,
    /// Of the frame in the call stack; the innermost is 0.
    pub depth: usize,
}

impl CallSite {
    /// Whether both are at one place of the source.
    pub(super) fn is_at(&self, other: &CallSite) -> bool {
        let (ours, theirs) = (&self.position, &other.position);
        self.function == other.function
            && (&ours.file, ours.line) == (&theirs.file, theirs.line)
            && (ours.column == theirs.column || ours.column == 0 || theirs.column == 0)
    }
}

/// Whether two paths lead to one place in one way.
pub(super) fn is_same_path(ours: &[CallSite], theirs: &[CallSite]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| ours.is_at(theirs))
}

/// Finds frames in the source tree.
pub(super) struct SourceTree {
    root: PathBuf,
    paths: FxHashMap<String, Option<PathBuf>>,
}

impl SourceTree {
    pub(super) fn new(root: &Path) -> SourceTree {
        SourceTree {
            root: canonical(root),
            paths: FxHashMap::default(),
        }
    }

    /// `None` if the frame is not in the tree.
    fn site(&mut self, depth: usize, frame: &Frame) -> Option<CallSite> {
        let (root, file) = (&self.root, frame.file.as_ref()?);
        let known = self.paths.entry(file.clone()).or_insert_with(|| {
            let path = canonical(Path::new(file));
            path.starts_with(root).then_some(path)
        });
        Some(CallSite {
            function: frame.function.clone(),
            position: Position {
                file: known.clone()?,
                line: frame.line.filter(|line| *line > 0)?,
                column: frame.column.unwrap_or(0),
            },
            address: frame.address,
            depth,
        })
    }

    pub(super) fn path(&mut self, stack: &[Frame]) -> CallPath {
        let sites = stack.iter().enumerate();
        sites.filter_map(|(depth, frame)| self.site(depth, frame)).collect()
    }
}

impl Trace {
    pub(super) fn read(path: &Path, tree: &mut SourceTree) -> Result<Trace, ReadError> {
        let mut reader = TraceReader::open(path)?;
        let mut events = Vec::new();
        while events.len() < MOST_EVENTS
            && let Some(item) = reader.next()?
        {
            let Item::Event(event) = item else { continue };
            let what = match event.kind {
                EventKind::Store { at, data, flags } => What::Store {
                    at: address(at.file, at.offset),
                    len: (data.len() as u64).max(1),
                    kind: match (flags.nontemporal, flags.locked) {
                        (true, _) => StoreKind::Nontemporal,
                        (_, true) => StoreKind::Locked,
                        _ => StoreKind::Plain,
                    },
                },
                EventKind::Flush { at, kind } => What::Flush {
                    at: address(at.file, at.offset),
                    at_once: kind == FlushKind::Clflush,
                },
                EventKind::Fence { kind } => What::Fence {
                    full: kind != FenceKind::Sfence,
                },
                EventKind::Sync { file, offset, len } => What::Sync {
                    at: address(file, offset),
                    len: len.max(1),
                },
                // The file is made by what maps it first.
                EventKind::Resize { .. }
                | EventKind::FileWrite { .. }
                | EventKind::Rename { .. }
                | EventKind::Map { .. } => match Steps::of(&event.kind, Cut::LINES).next() {
                    Some(step) => What::File(step),
                    None => continue,
                },
                EventKind::Output { .. } => What::Output,
                _ => continue,
            };
            events.push(Event {
                seq: event.seq,
                thread: event.thread.0,
                stack: event.stack,
                what,
            });
        }
        let mut symbols = Stacks::default();
        let mut stacks = FxHashMap::default();
        for event in &events {
            stacks.entry(event.stack).or_insert_with(|| {
                let frames = symbols.symbolize(event.stack, reader.tables()).frames;
                let path = tree.path(&frames);
                CallStack { frames, path }
            });
        }
        Ok(Trace { events, stacks })
    }

    /// For tests: stacks of one frame, by number.
    #[cfg(test)]
    pub(super) fn of(events: impl Iterator<Item = Event>, frames: &[Frame], tree: &mut SourceTree) -> Trace {
        let stacks = frames.iter().enumerate().map(|(id, frame)| {
            let frames = vec![frame.clone()];
            let path = tree.path(&frames);
            (StackId(id as u32), CallStack { frames, path })
        });
        Trace {
            stacks: stacks.collect(),
            events: events.collect(),
        }
    }

    /// The index of the event of this number.
    pub(super) fn index(&self, seq: u64) -> Option<usize> {
        self.events.binary_search_by_key(&seq, |event| event.seq).ok()
    }

    pub(super) fn stack(&self, stack: StackId) -> Option<&CallStack> {
        self.stacks.get(&stack)
    }

    pub(super) fn path(&self, stack: StackId) -> &[CallSite] {
        self.stack(stack).map_or(&[], |stack| &stack.path)
    }

    /// All stacks of events.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (StackId, &CallStack)> {
        self.stacks.iter().map(|(id, stack)| (*id, stack))
    }

    /// The stacks that lead to a place in this way.
    pub(super) fn stacks_of(&self, path: &[CallSite]) -> FxHashSet<StackId> {
        let same = self.stacks().filter(|(_, stack)| is_same_path(&stack.path, path));
        same.map(|(id, _)| id).collect()
    }
}

fn address(file: FileId, offset: u64) -> u64 {
    (u64::from(file.0) << FILE_BITS) | (offset & ((1 << FILE_BITS) - 1))
}

/// What is at an address of the litmus.
pub(super) fn place_at(address: u64) -> PmAddress {
    PmAddress {
        file: FileId((address >> FILE_BITS) as u32),
        offset: address & ((1 << FILE_BITS) - 1),
    }
}

/// The line of this number among the addresses.
pub(super) fn line_at(number: u64) -> LineAddress {
    let at = place_at(number * LINE);
    LineAddress {
        file: at.file.0,
        line: at.offset / LINE,
    }
}
