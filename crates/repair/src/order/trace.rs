//! The trace of the repair build, as orders need it: what happened when, and where in the source.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crashproof_base::{LINE, LineAddress};
use crashproof_finding::Frame;
use crashproof_litmus::StoreKind;
use crashproof_replay::{Cut, Step, Steps};
use crashproof_stacks::Stacks;
use crashproof_trace::{EventKind, FenceKind, FileId, FlushKind, Item, PmAddress, ReadError, StackId, TraceReader};
use rustc_hash::FxHashMap;

use crate::source::units::canonical;

/// Most events that are kept; an order that shows only later is left.
const MOST_EVENTS: usize = 4_000_000;
/// PM files are this far apart in the addresses of a litmus.
const FILE_BITS: u32 = 40;

pub(super) struct Trace {
    pub events: Vec<Event>,
    stacks: FxHashMap<StackId, Rc<[Site]>>,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
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

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub function: Option<String>,
    /// Canonical, if it is in the tree.
    pub file: Option<Rc<Path>>,
    pub line: u32,
    pub column: u32,
    pub address: u64,
}

impl Site {
    /// Whether both are at one place of the source; a column of 0 is not known.
    pub(super) fn is_at(&self, other: &Site) -> bool {
        self.function == other.function
            && self.file == other.file
            && self.line == other.line
            && (self.column == other.column || self.column == 0 || other.column == 0)
    }
}

/// Turns frames into sites.
pub(super) struct Sites {
    tree: PathBuf,
    paths: FxHashMap<String, Option<Rc<Path>>>,
}

impl Sites {
    pub(super) fn new(tree: &Path) -> Sites {
        Sites {
            tree: canonical(tree),
            paths: FxHashMap::default(),
        }
    }

    pub(super) fn site(&mut self, frame: &Frame) -> Site {
        let tree = &self.tree;
        let file = frame.file.as_ref().and_then(|file| {
            let known = self.paths.entry(file.clone()).or_insert_with(|| {
                let path = canonical(Path::new(file));
                path.starts_with(tree).then(|| path.into())
            });
            known.clone()
        });
        Site {
            function: frame.function.clone(),
            file,
            line: frame.line.unwrap_or(0),
            column: frame.column.unwrap_or(0),
            address: frame.address,
        }
    }

    pub(super) fn sites(&mut self, stack: &[Frame]) -> Vec<Site> {
        stack.iter().map(|frame| self.site(frame)).collect()
    }
}

impl Trace {
    pub(super) fn read(path: &Path, sites: &mut Sites) -> Result<Trace, ReadError> {
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
                thread: event.thread.0,
                stack: event.stack,
                what,
            });
        }
        let mut symbols = Stacks::default();
        let mut stacks: FxHashMap<StackId, Rc<[Site]>> = FxHashMap::default();
        for event in &events {
            stacks.entry(event.stack).or_insert_with(|| {
                let frames = symbols.symbolize(event.stack, reader.tables()).frames;
                sites.sites(&frames).into()
            });
        }
        Ok(Trace { events, stacks })
    }

    /// For tests: stacks of one frame, by number.
    #[cfg(test)]
    pub(super) fn of(events: impl Iterator<Item = Event>, frames: &[Frame], sites: &mut Sites) -> Trace {
        let stacks = frames.iter().enumerate();
        let stacks = stacks.map(|(id, frame)| (StackId(id as u32), vec![sites.site(frame)].into()));
        Trace {
            stacks: stacks.collect(),
            events: events.collect(),
        }
    }

    pub(super) fn stack(&self, event: &Event) -> &[Site] {
        self.stack_by_id(event.stack)
    }

    pub(super) fn stack_by_id(&self, stack: StackId) -> &[Site] {
        self.stacks.get(&stack).map_or(&[], |sites| sites)
    }

    /// All stacks of events.
    pub(super) fn stacks(&self) -> impl Iterator<Item = (StackId, &[Site])> {
        self.stacks.iter().map(|(stack, sites)| (*stack, &**sites))
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
