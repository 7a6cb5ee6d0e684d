//! Events, taken apart.

use crashproof_base::{FileId, LineAddress, PmAddress};
use crashproof_model::{ByteSet, LINE, Parts, WORD, cut};
use crashproof_trace::{EventKind, FlushKind, StoreFlags};

/// Where stores are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of a unit: what persists independently of the rest. [`LineAddress`] counts units.
    pub unit: u64,
    /// Bytes of it that persist at once.
    pub piece: u64,
}

impl Cut {
    /// Cache lines, in which stores do not tear.
    pub const LINES: Cut = Cut::units(LINE, false);

    /// Units of so many bytes. Stores that tear are cut at each word.
    pub const fn units(unit: u64, tear: bool) -> Cut {
        Cut {
            unit,
            piece: if tear { WORD } else { unit },
        }
    }
}

/// What a crash cannot come in the middle of. Steps hold no data: those of a store and of a write are the event's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A fence of the thread.
    Fence,
    /// A store, or the part of it that persists on its own.
    Store(StorePiece),
    /// A flush: `clflush` if `at_once`, else `clwb` or `clflushopt`.
    Flush {
        /// What is flushed.
        line: LineAddress,
        /// It is persistent without a fence.
        at_once: bool,
    },
    /// All of the range is durable.
    Sync {
        /// The file.
        file: FileId,
        /// Where the range begins.
        offset: u64,
        /// Its bytes.
        len: u64,
    },
    /// By write(2) and its kin, durable at once.
    Write {
        /// Where.
        at: PmAddress,
        /// How many bytes.
        len: u64,
    },
    /// The file is longer or shorter, durable at once.
    Resize {
        /// The file.
        file: FileId,
        /// Bytes that it has from now on.
        size: u64,
    },
    /// The file has another name or none, durable at once.
    Rename {
        /// The file.
        file: FileId,
    },
    /// The file is mapped: with the first mapping a file that the program made appears.
    Map {
        /// The file.
        file: FileId,
    },
}

impl Step {
    /// That of an event which is one step; a store may be several ([`Steps`]).
    #[inline]
    pub fn of(event: &EventKind<'_>, cut: Cut) -> Option<Step> {
        Some(match *event {
            EventKind::Flush { at, kind } => Step::flush(at, kind, cut),
            EventKind::Fence { .. } => Step::Fence,
            EventKind::Sync { file, offset, len } => Step::Sync { file, offset, len },
            EventKind::FileWrite { at, data } => Step::Write {
                at,
                len: data.len() as u64,
            },
            EventKind::Resize { file, size } => Step::Resize { file, size },
            EventKind::Rename { file, .. } => Step::Rename { file },
            EventKind::Map { file, .. } => Step::Map { file },
            // What PMDK says of its ranges, and that a mapping or a process is gone, persists nothing.
            EventKind::Store { .. }
            | EventKind::Unmap { .. }
            | EventKind::Output { .. }
            | EventKind::Call { .. }
            | EventKind::Return(_)
            | EventKind::Annotation(_)
            | EventKind::Request { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ProcessStart { .. }
            | EventKind::ProcessEnd { .. }
            | EventKind::Quiet
            | EventKind::Access { .. }
            | EventKind::Path { .. } => return None,
        })
    }

    /// A flush of the line that holds the byte.
    #[inline]
    pub fn flush(at: PmAddress, kind: FlushKind, cut: Cut) -> Step {
        Step::Flush {
            line: LineAddress {
                file: at.file.0,
                line: at.offset / cut.unit,
            },
            at_once: kind == FlushKind::Clflush,
        }
    }
}

/// The part of a store that lies in one line or word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePiece {
    /// Counts the pieces of the store.
    pub number: u16,
    /// The line, or unit of another size, where it goes.
    pub line: LineAddress,
    /// Where it goes in the line.
    pub start: u32,
    /// How many bytes.
    pub len: u32,
    /// Where its bytes begin in the store's data.
    pub from: u32,
    /// Where it goes in the file.
    pub offset: u64,
    /// The store bypasses the cache.
    pub nontemporal: bool,
}

impl StorePiece {
    /// Where its first byte goes.
    pub fn at(&self) -> PmAddress {
        PmAddress {
            file: FileId(self.line.file),
            offset: self.offset,
        }
    }

    /// Which bytes of the line.
    #[inline]
    pub fn bytes<B: ByteSet>(&self) -> B {
        B::range(self.start.into(), self.len.into())
    }

    /// What it writes, of the store's data.
    pub fn data<'d>(&self, data: &'d [u8]) -> &'d [u8] {
        &data[self.from as usize..][..self.len as usize]
    }
}

/// The steps of an event, in order.
#[derive(Clone, Debug)]
pub struct Steps {
    /// A locked store fences first.
    fence: bool,
    /// The event, if it is one step.
    step: Option<Step>,
    /// What is left of the store.
    parts: Parts,
    /// Bytes of a unit.
    unit: u64,
    /// Where the whole store begins.
    at: PmAddress,
    nontemporal: bool,
    number: u16,
}

impl Steps {
    /// Those of an event.
    #[inline]
    pub fn of(event: &EventKind<'_>, cut: Cut) -> Steps {
        match *event {
            EventKind::Store { at, data, flags } => Steps::of_store(at, data.len() as u64, flags, cut),
            _ => Steps {
                step: Step::of(event, cut),
                ..Steps::default()
            },
        }
    }

    /// Those of a store of so many bytes.
    #[inline]
    pub fn of_store(at: PmAddress, len: u64, flags: StoreFlags, Cut { unit, piece }: Cut) -> Steps {
        Steps {
            fence: flags.locked,
            step: None,
            parts: cut(at.offset, len, piece),
            unit,
            at,
            nontemporal: flags.nontemporal,
            number: 0,
        }
    }
}

/// None.
impl Default for Steps {
    fn default() -> Steps {
        Steps {
            fence: false,
            step: None,
            parts: cut(0, 0, LINE),
            unit: LINE,
            at: PmAddress {
                file: FileId(0),
                offset: 0,
            },
            nontemporal: false,
            number: 0,
        }
    }
}

impl Iterator for Steps {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if std::mem::take(&mut self.fence) {
            return Some(Step::Fence);
        }
        if let Some(step) = self.step.take() {
            return Some(step);
        }
        let part = self.parts.next()?;
        let number = self.number;
        self.number += 1;
        Some(Step::Store(StorePiece {
            number,
            line: LineAddress {
                file: self.at.file.0,
                line: part.start / self.unit,
            },
            start: (part.start % self.unit) as u32,
            len: (part.end - part.start) as u32,
            from: (part.start - self.at.offset) as u32,
            offset: part.start,
            nontemporal: self.nontemporal,
        }))
    }
}
