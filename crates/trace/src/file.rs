//! A trace that is opened once. [`TraceFile::open`] reads it from beginning to end and keeps an index. The
//! index holds everything in the trace beside its events, and facts about the events that more than one
//! analysis needs before it reads the events itself. It grows by tens of bytes for each file, mapping,
//! operation and page of first contents, and never with stores.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashSet;

use crate::event::{Event, EventKind, FileId, PmAddress, PmFile};
use crate::operations::{Boundaries, Operations};
use crate::reader::{Item, Outline, ReadError, TraceReader, open_file, read_block};
use crate::tables::Tables;
use crate::usage::FileUses;

/// A trace and its index. Clones share both.
#[derive(Clone, Debug)]
pub struct TraceFile {
    index: Arc<Index>,
}

#[derive(Debug)]
struct Index {
    path: PathBuf,
    len: u64,
    outline: Outline,
    events: Events,
    boundaries: Boundaries,
    operations: OperationIndex,
    initial: Vec<InitialContent>,
    /// Bytes that all readers of the trace have read.
    bytes_read: Arc<AtomicU64>,
}

/// A range of a file that a process mapped, with its address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappedRange {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Virtual address of the first byte.
    pub address: u64,
}

/// The beginning of an operation, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationStart {
    /// Sequence number of its first event.
    pub seq: u64,
    /// Number of the operation; `None` for the set-up before the first operation.
    pub operation: Option<u64>,
}

/// The beginnings of the operations of a run, in the order of the events. An operation has several where
/// threads take turns.
#[derive(Clone, Debug, Default)]
pub struct OperationIndex(Arc<[OperationStart]>);

impl OperationIndex {
    /// The beginnings, ascending by sequence number.
    pub fn starts(&self) -> &[OperationStart] {
        &self.0
    }

    /// The number of the operation that the event with this sequence number belongs to; `None` in the set-up.
    pub fn of(&self, seq: u64) -> Option<u64> {
        let after = self.0.partition_point(|start| start.seq <= seq);
        self.0[after.checked_sub(1)?].operation
    }
}

/// The place in the trace of a part of a file's first content.
#[derive(Debug)]
struct InitialContent {
    at: PmAddress,
    /// Byte of the trace at which the block begins that holds the part.
    block: u64,
    /// The part within the content of the block.
    data: Range<usize>,
}

impl TraceFile {
    /// Opens a trace: reads all of it and makes the index.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceFile, ReadError> {
        let bytes_read = Arc::<AtomicU64>::default();
        let mut reader = TraceReader::open(path)?.count_bytes(Arc::clone(&bytes_read));
        let mut events = Events::default();
        let mut starts = Starts::default();
        let mut initial = Vec::new();
        while let Some((item, tables)) = reader.next_with_tables()? {
            match item {
                Item::Event(event) => {
                    events.event(&event, tables);
                    starts.event(&event);
                }
                Item::Initial { at, data } => {
                    let (len, is_memory) = (data.len(), is_registered_memory(at.file, tables));
                    events.grow(at.file, at.offset + len as u64);
                    let (block, end) = reader.place();
                    if !is_memory {
                        let data = end - len..end;
                        initial.push(InitialContent { at, block, data });
                    }
                }
            }
        }
        let (boundaries, operations) = starts.finish();
        Ok(TraceFile {
            index: Arc::new(Index {
                path: reader.path().to_owned(),
                len: reader.len(),
                outline: reader.into_outline(),
                events,
                boundaries,
                operations,
                initial,
                bytes_read,
            }),
        })
    }

    /// Path of the trace.
    pub fn path(&self) -> &Path {
        &self.index.path
    }

    /// Everything in the trace beside its events.
    pub fn outline(&self) -> &Outline {
        &self.index.outline
    }

    /// Everything that the events refer to by id.
    pub fn tables(&self) -> &Tables {
        &self.index.outline.tables
    }

    /// The use that the program made of each file.
    pub fn uses(&self) -> &FileUses {
        &self.index.events.uses
    }

    /// Largest size that a file has in the run, in bytes.
    pub fn max_size(&self, file: FileId) -> u64 {
        let initial = self.tables().file(file).map_or(0, |file| file.size);
        let largest = self.index.events.max_sizes.get(file.index());
        initial.max(largest.copied().unwrap_or(0))
    }

    /// All paths that files have in the run, sorted, without those of registered memory.
    pub fn names(&self) -> Vec<String> {
        let files = self.tables().files.iter().filter(|file| !file.is_registered_memory());
        let mut names: Vec<String> = files.map(|file| file.path.clone()).collect();
        names.extend_from_slice(&self.index.events.new_names);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// All mappings of files, each range and address once, in the order of the run, without those of
    /// registered memory.
    pub fn mappings(&self) -> &[MappedRange] {
        &self.index.events.mappings
    }

    /// The kind of event that ends an operation of the run.
    pub fn boundaries(&self) -> Boundaries {
        self.index.boundaries
    }

    /// The beginnings of the operations of the run.
    pub fn operations(&self) -> &OperationIndex {
        &self.index.operations
    }

    /// Number of annotations that state an expectation (`CRASHPROOF_EXPECT_…`).
    pub fn expectations(&self) -> u64 {
        self.index.events.expectations
    }

    /// Calls `show` with each part of the files' contents when they were first mapped, without those of
    /// registered memory. It reads only the blocks that have such parts.
    pub fn initial(&self, mut show: impl FnMut(PmAddress, &[u8])) -> Result<(), ReadError> {
        let Some(first) = self.index.initial.first() else {
            return Ok(());
        };
        let mut file = open_file(self.path())?.0;
        let mut content = Vec::new();
        let mut read = |block, content: &mut Vec<u8>| {
            let bytes = read_block(self.path(), &mut file, block, content)?;
            self.index.bytes_read.fetch_add(bytes, Ordering::Relaxed);
            Ok(block)
        };
        let mut current = read(first.block, &mut content)?;
        for part in &self.index.initial {
            if part.block != current {
                current = read(part.block, &mut content)?;
            }
            let data = content.get(part.data.clone()).ok_or_else(|| ReadError::Damaged {
                path: self.path().to_owned(),
                offset: part.block,
                within: part.data.start as u64,
                what: "the trace was changed while it was in use",
            })?;
            show(part.at, data);
        }
        Ok(())
    }

    /// A reader that streams the trace from its beginning.
    pub fn reader(&self) -> Result<TraceReader, ReadError> {
        Ok(TraceReader::open(self.path())?.count_bytes(Arc::clone(&self.index.bytes_read)))
    }

    /// As [`reader`](TraceFile::reader), for analyses of files only. An event of memory that the program
    /// registered ([`PmFile::is_registered_memory`]) is replaced by [`EventKind::Quiet`], so that sequence
    /// numbers stay.
    pub fn files(&self) -> Result<TraceReader, ReadError> {
        Ok(TraceReader::open_files(self.path())?.count_bytes(Arc::clone(&self.index.bytes_read)))
    }

    /// Bytes that were read of the trace, at its opening and since then, divided by its length.
    pub fn times_read(&self) -> f64 {
        self.index.bytes_read.load(Ordering::Relaxed) as f64 / self.index.len.max(1) as f64
    }
}

fn is_registered_memory(file: FileId, tables: &Tables) -> bool {
    tables.file(file).is_some_and(PmFile::is_registered_memory)
}

/// The facts about the events that the index has.
#[derive(Debug, Default)]
struct Events {
    uses: FileUses,
    /// Largest sizes by file id, as far as events and first contents show them.
    max_sizes: Vec<u64>,
    new_names: Vec<String>,
    mappings: Vec<MappedRange>,
    mapped: FxHashSet<MappedRange>,
    expectations: u64,
}

impl Events {
    #[inline]
    fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        self.uses.event(event, tables);
        match event.kind {
            EventKind::Store { .. } | EventKind::Flush { .. } | EventKind::Fence { .. } => {}
            EventKind::Resize { file, size } => self.grow(file, size),
            EventKind::FileWrite { at, data } => self.grow(at.file, at.offset.saturating_add(data.len() as u64)),
            EventKind::Rename { path: Some(path), .. } => self.new_names.push(path.to_owned()),
            EventKind::Map {
                file,
                offset,
                len,
                address,
                ..
            } if !is_registered_memory(file, tables) => {
                let range = MappedRange {
                    file,
                    offset,
                    len,
                    address,
                };
                if self.mapped.insert(range) {
                    self.mappings.push(range);
                }
            }
            EventKind::Annotation(annotation) => self.expectations += u64::from(annotation.is_expectation()),
            _ => {}
        }
    }

    fn grow(&mut self, file: FileId, size: u64) {
        if self.max_sizes.len() <= file.index() {
            self.max_sizes.resize(file.index() + 1, 0);
        }
        let largest = &mut self.max_sizes[file.index()];
        *largest = (*largest).max(size);
    }
}

/// Beginnings of operations, by lines of output and by annotations, until the trace decides which of the two
/// count.
#[derive(Debug)]
struct Starts {
    by_lines: Sequence,
    by_annotations: Sequence,
    boundaries: Option<Boundaries>,
}

#[derive(Debug)]
struct Sequence {
    operations: Operations,
    starts: Vec<OperationStart>,
}

impl Sequence {
    fn new(boundaries: Boundaries) -> Sequence {
        Sequence {
            operations: Operations::new(boundaries),
            starts: Vec::new(),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        let operation = self.operations.of(event);
        if self.starts.last().map(|last| last.operation) != Some(operation) {
            self.starts.push(OperationStart {
                seq: event.seq,
                operation,
            });
        }
    }
}

impl Default for Starts {
    fn default() -> Starts {
        Starts {
            by_lines: Sequence::new(Boundaries::Lines),
            by_annotations: Sequence::new(Boundaries::Annotations),
            boundaries: None,
        }
    }
}

impl Starts {
    #[inline]
    fn event(&mut self, event: &Event<'_>) {
        if self.boundaries.is_none() {
            self.boundaries = Boundaries::shown_by(event);
        }
        if self.boundaries != Some(Boundaries::Annotations) {
            self.by_lines.event(event);
        }
        if self.boundaries != Some(Boundaries::Lines) {
            self.by_annotations.event(event);
        }
    }

    fn finish(self) -> (Boundaries, OperationIndex) {
        let (boundaries, sequence) = match self.boundaries {
            Some(Boundaries::Annotations) => (Boundaries::Annotations, self.by_annotations),
            _ => (Boundaries::Lines, self.by_lines),
        };
        (boundaries, OperationIndex(sequence.starts.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotation, MemoryRange};
    use crate::event::{PmFileKind, ProcessId, ProgramEnd, StackId, StoreFlags, ThreadId};
    use crate::format::Header;
    use crate::writer::TraceWriter;

    const PROCESS: ProcessId = ProcessId(0);
    const STORE: EventKind<'static> = EventKind::Store {
        at: PmAddress {
            file: FileId(0),
            offset: 8,
        },
        data: &[7; 8],
        flags: StoreFlags {
            nontemporal: false,
            locked: false,
            syscall: false,
            exchange: false,
        },
    };

    fn line(data: &'static [u8]) -> EventKind<'static> {
        EventKind::Output { fd: 1, data }
    }

    /// A trace with the events after the start of a process with one thread and one file.
    fn trace(folder: &Path, events: &[EventKind<'_>], late: &[u8]) -> TraceFile {
        let path = folder.join("trace");
        let mut writer = TraceWriter::create(&path, &Header::default()).unwrap();
        let start = EventKind::ProcessStart {
            process: PROCESS,
            pid: 1,
            parent: None,
            executable: "program",
        };
        let thread = EventKind::ThreadStart {
            process: PROCESS,
            os_id: 1,
        };
        let file = |path: &str| PmFile {
            path: path.into(),
            size: 4096,
            created: false,
            kind: PmFileKind::File,
        };
        let first = writer.file(&file("/pm/first")).unwrap();
        for event in [&start, &thread] {
            writer.event(ThreadId(0), StackId(0), event).unwrap();
        }
        let at = PmAddress { file: first, offset: 0 };
        writer.initial(at, b"first").unwrap();
        for event in events {
            writer.event(ThreadId(0), StackId(0), event).unwrap();
        }
        let second = writer.file(&file("/pm/second")).unwrap();
        let at = PmAddress {
            file: second,
            offset: 100,
        };
        writer.initial(at, late).unwrap();
        writer.event(ThreadId(0), StackId(0), &STORE).unwrap();
        writer.finish(ProgramEnd::default()).unwrap();
        TraceFile::open(&path).unwrap()
    }

    #[test]
    fn initial_contents_are_found_in_any_block() {
        let folder = tempfile::tempdir().unwrap();
        let events = vec![STORE; 200_000];
        let trace = trace(folder.path(), &events, b"second");
        let mut shown = Vec::new();
        let before = trace.times_read();
        trace
            .initial(|at, data| shown.push((at.file.0, at.offset, data.to_vec())))
            .unwrap();
        assert_eq!(shown, [(0, 0, b"first".to_vec()), (1, 100, b"second".to_vec())]);
        assert!(before < 1.1, "opening reads the trace once: {before}");
        let read = trace.times_read() - before;
        assert!(read < 0.5, "the blocks between are not read: {read}");
    }

    #[test]
    fn an_index_counts_what_analyses_ask_for() {
        let folder = tempfile::tempdir().unwrap();
        let map = EventKind::Map {
            file: FileId(0),
            offset: 0,
            len: 4096,
            address: 0x1000,
            writable: true,
        };
        let events = [
            map.clone(),
            EventKind::Annotation(Annotation::ExpectDurable(MemoryRange {
                address: 0x1000,
                len: 8,
            })),
            STORE,
            EventKind::Resize {
                file: FileId(0),
                size: 8192,
            },
            EventKind::Resize {
                file: FileId(0),
                size: 100,
            },
            map.clone(),
            EventKind::Rename {
                file: FileId(0),
                path: Some("/pm/another"),
            },
        ];
        let trace = trace(folder.path(), &events, b"second");
        assert_eq!(trace.max_size(FileId(0)), 8192);
        assert_eq!(trace.max_size(FileId(1)), 4096);
        assert_eq!(trace.mappings().len(), 1);
        assert_eq!(trace.names(), ["/pm/another", "/pm/first", "/pm/second"]);
        assert_eq!(trace.expectations(), 1);
        assert_eq!(trace.uses().of(FileId(0)).stores, 2);
        assert_eq!(trace.outline().counts.stores, 2);
    }

    #[test]
    fn operations_begin_after_lines_or_at_annotations() {
        let folder = tempfile::tempdir().unwrap();
        let start = |seq, operation| OperationStart { seq, operation };
        let lines = trace(
            folder.path(),
            &[STORE, line(b"ok\n"), STORE, line(b"o"), line(b"k\n"), STORE],
            b"",
        );
        assert_eq!(lines.boundaries(), Boundaries::Lines);
        assert_eq!(
            lines.operations().starts(),
            [start(0, Some(0)), start(4, Some(1)), start(7, Some(2))]
        );
        assert_eq!(lines.operations().of(6), Some(1));
        let begin = EventKind::Annotation(Annotation::OperationBegin { name: "put" });
        let end = EventKind::Annotation(Annotation::OperationEnd { name: "put" });
        let annotated = trace(
            folder.path(),
            &[STORE, begin.clone(), STORE, line(b"ok\n"), end, begin],
            b"",
        );
        assert_eq!(annotated.boundaries(), Boundaries::Annotations);
        assert_eq!(
            annotated.operations().starts(),
            [start(0, None), start(3, Some(0)), start(7, Some(1))]
        );
        assert_eq!(annotated.operations().of(2), None);
    }
}
