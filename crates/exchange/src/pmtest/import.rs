//! From PMTest's operation trace to ours.
//!
//! Checkers become annotations as `crashproof.h` has them (docs/annotations.md). `isPersist` is `CRASHPROOF_EXPECT_DURABLE`.
//! `isOrderedBefore` looks back at stores that were made, where `CRASHPROOF_EXPECT_ORDER` is said before: so it is put in front of the
//! first of the stores that the second range's content is of. If the first range was stored to after that, the order is wrong whatever is
//! flushed when, and the annotation says so. A store in a transaction has to be snapshotted: `CRASHPROOF_EXPECT_SNAPSHOTTED`, which is in
//! imported traces only.
//!
//! Deviations from PMTest: a flush is of whole lines; a range is durable when it is flushed and fenced (PMTest takes a flush for
//! done if a fence follows anywhere in its section); a store may persist at once, not only at its flush; what a transaction
//! snapshotted is forgotten when it ends. The log has
//! neither threads nor sections (`PMTest_SEND_TRACE`) nor files: all is of one thread, and each stretch of memory is a file of its own
//! ([`PmFile::of_memory`]).

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crashproof_trace::{
    Annotation, EventKind, FenceKind, FileId, FlushKind, Frame, Header, Module, Options, PmAddress, PmFile, ProcessId,
    ProgramEnd, Request, StackId, StoreFlags, ThreadId, TraceWriter, WriteError,
};
use rustc_hash::FxHashMap;

use super::record::{Memory, Operation, Record};

const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// Memory that is closer together is one file.
const GAP: u64 = 1 << 20;
/// No record names the program.
const PROGRAM: &str = "./unknown";

const THREAD: ThreadId = ThreadId(0);
const PROCESS: ProcessId = ProcessId(0);
const NO_STACK: StackId = StackId(0);

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {what}", path.display())]
    Syntax { path: PathBuf, line: u64, what: String },
    #[error(
        "{} has no operation of PMTest; build PMTest with `make debug`, link the program with that library, and keep what it \
         prints: `./app > LOG`",
        path.display()
    )]
    NoLog { path: PathBuf },
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What there was to import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub stores: u64,
    pub flushes: u64,
    pub fences: u64,
    /// `isPersist` and `isOrderedBefore`.
    pub checkers: u64,
    /// `isOrderedBefore` that say nothing; they are left out.
    pub unordered: Vec<Unordered>,
}

/// An `isOrderedBefore` of ranges that were not, or not wholly, stored to; PMTest calls that an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unordered {
    /// Of the log.
    pub line: u64,
    /// `FILE:LINE` of the source.
    pub place: String,
}

/// Reads the log and writes the trace.
pub fn import(log: &Path, trace: &Path) -> Result<Imported, ImportError> {
    let log = Log::read(log)?;
    let (orders, unordered) = log.orders();
    let mut importer = Importer::new(trace, &log)?;
    importer.imported.unordered = unordered;
    let mut orders = orders.into_iter().peekable();
    for (index, entry) in log.entries.iter().enumerate() {
        while let Some(order) = orders.next_if(|order| order.before_entry == index) {
            importer.order(&order)?;
        }
        importer.entry(entry)?;
    }
    importer.finish()
}

/// A record with its place in the log and in the source.
struct Entry {
    operation: Operation,
    /// Of the log.
    line: u64,
    /// Index into [`Log::places`].
    place: u32,
}

struct Log {
    entries: Vec<Entry>,
    places: Vec<(String, u32)>,
}

/// An `isOrderedBefore`, put where it has to be said.
struct Order {
    before_entry: usize,
    first: Memory,
    second: Memory,
    /// The first was stored to after the second.
    backwards: bool,
    place: u32,
}

impl Log {
    fn read(path: &Path) -> Result<Log, ImportError> {
        let unreadable = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let mut reader = std::io::BufReader::new(std::fs::File::open(path).map_err(unreadable)?);
        let mut log = Log {
            entries: Vec::new(),
            places: Vec::new(),
        };
        let mut known = FxHashMap::default();
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            if reader.read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&bytes);
            let Some(record) = Record::find(text.trim_end_matches(['\n', '\r'])) else {
                continue;
            };
            let record = record.map_err(|what| ImportError::Syntax {
                path: path.to_owned(),
                line,
                what,
            })?;
            let next = log.places.len() as u32;
            let place = *known.entry((record.file.to_owned(), record.line)).or_insert(next);
            if place == next {
                log.places.push((record.file.to_owned(), record.line));
            }
            log.entries.push(Entry {
                operation: record.operation,
                line,
                place,
            });
        }
        match log.entries.is_empty() {
            true => Err(ImportError::NoLog { path: path.to_owned() }),
            false => Ok(log),
        }
    }

    /// Where each `isOrderedBefore` has to be said, in the order of the entries; and those that say nothing. As in PMTest, those
    /// that touch what is excluded at the time do not count.
    fn orders(&self) -> (Vec<Order>, Vec<Unordered>) {
        let (mut orders, mut unordered) = (Vec::new(), Vec::new());
        let mut excluded: Vec<Memory> = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            match entry.operation {
                Operation::Exclude(memory) => excluded.push(memory),
                Operation::Include(memory) => subtract(&mut excluded, memory),
                Operation::IsOrderedBefore(first, second) => {
                    let touched = |out: &Memory| out.intersects(first) || out.intersects(second);
                    if excluded.iter().any(touched) {
                        continue;
                    }
                    match self.order(index, first, second) {
                        Some(order) => orders.push(order),
                        None => {
                            let (file, line) = &self.places[entry.place as usize];
                            unordered.push(Unordered {
                                line: entry.line,
                                place: format!("{file}:{line}"),
                            });
                        }
                    }
                }
                _ => {}
            }
        }
        orders.sort_by_key(|order| order.before_entry);
        (orders, unordered)
    }

    /// Of the checker at `index`; `None` if not all of both ranges had been stored to.
    fn order(&self, index: usize, first: Memory, second: Memory) -> Option<Order> {
        let (mut first_open, mut second_open) = (vec![first], vec![second]);
        let (mut last_of_first, mut first_of_second) = (None, index);
        for (at, entry) in self.entries[..index].iter().enumerate().rev() {
            let Operation::Store(stored) = entry.operation else {
                continue;
            };
            if first_open.iter().any(|open| open.intersects(stored)) {
                last_of_first = last_of_first.or(Some(at));
                subtract(&mut first_open, stored);
            }
            if second_open.iter().any(|open| open.intersects(stored)) {
                first_of_second = at;
                subtract(&mut second_open, stored);
            }
            if first_open.is_empty() && second_open.is_empty() {
                return Some(Order {
                    before_entry: first_of_second,
                    first,
                    second,
                    backwards: last_of_first > Some(first_of_second),
                    place: self.entries[index].place,
                });
            }
        }
        None
    }

    /// The stretches of memory that the log speaks of, in ascending order.
    fn memory(&self) -> Vec<Memory> {
        let mut pages: Vec<(u64, u64)> = self
            .entries
            .iter()
            .flat_map(|entry| entry.operation.memory())
            .map(|memory| (memory.address / PAGE * PAGE, memory.end().next_multiple_of(PAGE)))
            .collect();
        pages.sort_unstable();
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (from, to) in pages {
            match stretches.last_mut() {
                Some((_, end)) if from <= end.saturating_add(GAP) => *end = to.max(*end),
                _ => stretches.push((from, to)),
            }
        }
        let memory = |(address, end)| Memory {
            address,
            size: end - address,
        };
        stretches.into_iter().map(memory).collect()
    }
}

/// Takes a range out of ranges.
fn subtract(ranges: &mut Vec<Memory>, out: Memory) {
    let between = |address: u64, end: u64| Memory {
        address,
        size: end.saturating_sub(address),
    };
    *ranges = ranges
        .iter()
        .flat_map(|&range| match range.intersects(out) {
            true => [
                between(range.address, out.address),
                between(out.end().max(range.address), range.end()),
            ],
            false => [range, between(0, 0)],
        })
        .filter(|range| range.size > 0)
        .collect();
}

struct Importer<'a> {
    writer: TraceWriter,
    log: &'a Log,
    /// Stretches of memory with the file that each is.
    files: Vec<(Memory, FileId)>,
    /// Of each place of the log.
    stacks: Vec<Option<StackId>>,
    /// Transactions that are open, one in the other.
    transactions: u32,
    /// What PMTest does not look at.
    excluded: Vec<Memory>,
    imported: Imported,
}

impl<'a> Importer<'a> {
    fn new(trace: &Path, log: &'a Log) -> Result<Importer<'a>, ImportError> {
        let header = Header {
            command: Vec::new(),
            options: Options {
                client_requests: true,
                locked_rmw: true,
                pm: Vec::new(),
            },
        };
        let mut importer = Importer {
            writer: TraceWriter::replacing(trace, &header)?,
            log,
            files: Vec::new(),
            stacks: vec![None; log.places.len()],
            transactions: 0,
            excluded: Vec::new(),
            imported: Imported::default(),
        };
        importer.event(
            NO_STACK,
            &EventKind::ProcessStart {
                process: PROCESS,
                pid: 0,
                parent: None,
                executable: PROGRAM,
            },
        )?;
        let process = PROCESS;
        importer.event(NO_STACK, &EventKind::ThreadStart { process, os_id: 0 })?;
        for memory in log.memory() {
            let file = importer.writer.file(&PmFile::of_memory(memory.address, memory.size))?;
            importer.files.push((memory, file));
            let map = EventKind::Map {
                file,
                address: memory.address,
                offset: 0,
                len: memory.size,
                writable: true,
            };
            importer.event(NO_STACK, &map)?;
        }
        Ok(importer)
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), ImportError> {
        let stack = self.stack(entry.place)?;
        match entry.operation {
            Operation::Store(memory) => {
                self.imported.stores += 1;
                if self.transactions > 0 && !self.excluded.iter().any(|out| out.intersects(memory)) {
                    self.annotation(stack, Annotation::ExpectSnapshotted(memory.into()))?;
                }
                let flags = StoreFlags::default();
                for piece in lines(memory) {
                    let data = &[0; LINE as usize][..piece.size as usize];
                    let at = self.at(piece.address);
                    self.event(stack, &EventKind::Store { at, data, flags })?;
                }
            }
            Operation::Flush(memory) => {
                self.imported.flushes += 1;
                for piece in lines(memory) {
                    let (at, kind) = (self.at(piece.address / LINE * LINE), FlushKind::Clwb);
                    self.event(stack, &EventKind::Flush { at, kind })?;
                }
            }
            Operation::Fence => {
                self.imported.fences += 1;
                let kind = FenceKind::Sfence;
                self.event(stack, &EventKind::Fence { kind })?;
            }
            Operation::IsPersist(memory) => {
                self.imported.checkers += 1;
                self.annotation(stack, Annotation::ExpectDurable(memory.into()))?;
            }
            // Said before: [`Importer::order`].
            Operation::IsOrderedBefore(..) => {}
            Operation::TransactionBegin => {
                self.transactions = self.transactions.saturating_add(1);
                self.request(stack, Request::TxBegin, None)?;
            }
            Operation::TransactionEnd => {
                self.transactions = self.transactions.saturating_sub(1);
                self.request(stack, Request::TxEnd, None)?;
            }
            Operation::TransactionAdd(memory) => self.request(stack, Request::TxAdd, Some(memory))?,
            Operation::Exclude(memory) => {
                self.excluded.push(memory);
                self.request(stack, Request::Volatile, Some(memory))?;
            }
            Operation::Include(memory) => {
                subtract(&mut self.excluded, memory);
                self.request(stack, Request::Persistent, Some(memory))?;
            }
        }
        Ok(())
    }

    fn order(&mut self, order: &Order) -> Result<(), ImportError> {
        self.imported.checkers += 1;
        let stack = self.stack(order.place)?;
        let annotation = Annotation::ExpectOrder {
            before: order.first.into(),
            after: order.second.into(),
            backwards: order.backwards,
        };
        self.annotation(stack, annotation)
    }

    fn annotation(&mut self, stack: StackId, annotation: Annotation<'_>) -> Result<(), ImportError> {
        self.event(stack, &EventKind::Annotation(annotation))
    }

    fn request(&mut self, stack: StackId, request: Request, memory: Option<Memory>) -> Result<(), ImportError> {
        let range = memory.map(|memory| (self.at(memory.address), memory.size));
        let transaction = 0;
        let event = EventKind::Request {
            request,
            transaction,
            range,
        };
        self.event(stack, &event)
    }

    fn event(&mut self, stack: StackId, kind: &EventKind<'_>) -> Result<(), ImportError> {
        Ok(self.writer.event(THREAD, stack, kind)?)
    }

    /// Every address of the log is in one of the files.
    fn at(&self, address: u64) -> PmAddress {
        let after = self.files.partition_point(|(memory, _)| memory.address <= address);
        let (memory, file) = self.files[after.saturating_sub(1)];
        PmAddress {
            file,
            offset: address.saturating_sub(memory.address),
        }
    }

    fn stack(&mut self, place: u32) -> Result<StackId, ImportError> {
        let index = place as usize;
        if let Some(stack) = self.stacks[index] {
            return Ok(stack);
        }
        let (file, line) = &self.log.places[index];
        let module = Module::of_place(PROGRAM, None, Some(file), Some(*line));
        let frame = Frame {
            module: Some(self.writer.module(&module)?),
            address: 0,
        };
        let stack = self.writer.stack(&[frame])?;
        self.stacks[index] = Some(stack);
        Ok(stack)
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.event(
            NO_STACK,
            &EventKind::ProcessEnd {
                process: PROCESS,
                killed: false,
            },
        )?;
        self.writer.finish(ProgramEnd::default())?;
        Ok(self.imported)
    }
}

/// The range, cut where cache lines begin.
fn lines(memory: Memory) -> impl Iterator<Item = Memory> {
    let mut address = memory.address;
    std::iter::from_fn(move || {
        let next = (address / LINE + 1) * LINE;
        let piece = Memory {
            address,
            size: next.min(memory.end()).checked_sub(address).filter(|size| *size > 0)?,
        };
        address = next;
        Some(piece)
    })
}
