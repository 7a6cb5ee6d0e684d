//! Writes a trace, block by block, so that a killed recorder leaves a readable prefix.
//!
//! A full disk does not damage the trace. The file always ends in [`RESERVE`](crate::format::RESERVE) zeros
//! that are already allocated. When a block cannot be written, the writer cuts the file back to the last
//! whole block plus that reserve, and puts a small block with the reason there. Later events are dropped, and
//! [`TraceWriter::finish`] still leaves an end record.

use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::event::*;
use crate::format::{self, Context, Header, put_bytes, put_text, put_varint, tag, zigzag};
use crate::replace::Replacement;
use crate::tables::{Process, Tables};

/// Reasons that are kept for the last block after a failed write. More would not fit there.
const MAX_LATE_REASONS: usize = 64;

/// A failure to write a trace.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be created, or cannot be put at its path.
    #[error("cannot create the trace {}: {source}", path.display())]
    Create {
        /// The trace.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A block cannot be written. Later definitions and events fail with [`WriteError::AlreadyFailed`].
    #[error(
        "cannot write the trace {} at byte {offset}: {source}; what was written before is kept",
        path.display()
    )]
    Write {
        /// The trace.
        path: PathBuf,
        /// Byte of the file at which the block was to begin.
        offset: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// An earlier write failed, so that nothing can be added any more.
    #[error("the trace {} could not be written any more; this event is not in it", path.display())]
    AlreadyFailed {
        /// The trace.
        path: PathBuf,
    },
    /// A definition or an event breaks the rules of the format. It is not in the trace.
    #[error("cannot add to the trace {}: {what}", path.display())]
    Invalid {
        /// The trace.
        path: PathBuf,
        /// The rule that is broken, as part of a sentence.
        what: &'static str,
    },
}

/// The target of a trace: a file, or a disk that a test makes fail.
pub trait Storage: Send {
    /// Writes all bytes at an offset from the beginning of the trace.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts or extends the trace to this many bytes.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Takes note that the trace is whole. The writer calls it once, at the end, if no write failed.
    fn complete(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A trace that appears at its path when it is whole.
struct Replacing(Option<Replacement>);

impl Replacing {
    fn file(&mut self) -> io::Result<&mut File> {
        self.0
            .as_mut()
            .map(Replacement::file)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Storage for Replacing {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self.file()?, bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file()?.set_len(len)
    }

    fn complete(&mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), Replacement::commit)
    }
}

impl Storage for File {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
}

/// Writes a trace. A writer that is dropped without [`finish`](TraceWriter::finish) leaves a trace without an
/// end record.
pub struct TraceWriter {
    path: PathBuf,
    storage: Box<dyn Storage>,
    /// Byte of the file at which the next block begins.
    offset: u64,
    tables: Tables,
    module_ids: FxHashMap<Module, ModuleId>,
    /// Stacks by the hash of their frames. Of two stacks with one hash, only the first is found again.
    stack_ids: FxHashMap<u64, StackId>,
    stacks_full: bool,
    /// The block being filled.
    raw: Vec<u8>,
    packed: Vec<u8>,
    context: Context,
    seq: u64,
    /// Threads, ascending, of which a sync or an operation on a file has begun since the last event.
    begins: Vec<ThreadId>,
    counts: Counts,
    /// `seq` and `counts` of the whole blocks on the disk.
    written_seq: u64,
    written_counts: Counts,
    /// Set when a write has failed: the reasons why the trace is incomplete, for its last block.
    failure: Option<Vec<Incomplete>>,
    finished: bool,
}

impl TraceWriter {
    /// Creates the file, or empties the one that is there, and writes the header.
    pub fn create(path: impl AsRef<Path>, header: &Header) -> Result<TraceWriter, WriteError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| WriteError::Create {
            path: path.into(),
            source,
        })?;
        TraceWriter::with_storage(path, Box::new(file), header)
    }

    /// As [`create`](TraceWriter::create), but a file that is at `path` stays until the trace is finished
    /// without a failure.
    pub fn replacing(path: impl AsRef<Path>, header: &Header) -> Result<TraceWriter, WriteError> {
        let path = path.as_ref();
        let replacement = Replacement::new(path).map_err(|source| WriteError::Create {
            path: path.into(),
            source,
        })?;
        TraceWriter::with_storage(path, Box::new(Replacing(Some(replacement))), header)
    }

    /// As [`create`](TraceWriter::create), with any storage. `path` is for messages.
    pub fn with_storage(
        path: impl AsRef<Path>,
        mut storage: Box<dyn Storage>,
        header: &Header,
    ) -> Result<TraceWriter, WriteError> {
        let path = path.as_ref().to_path_buf();
        let Some(mut bytes) = format::encode_header(header) else {
            return Err(WriteError::Invalid {
                path,
                what: "the command line is too long",
            });
        };
        let offset = bytes.len() as u64;
        bytes.resize(bytes.len() + format::RESERVE, 0);
        if let Err(source) = storage.write_all_at(&bytes, 0) {
            return Err(WriteError::Create { path, source });
        }
        Ok(TraceWriter {
            path,
            storage,
            offset,
            tables: Tables::default(),
            module_ids: FxHashMap::default(),
            stack_ids: FxHashMap::default(),
            stacks_full: false,
            raw: Vec::with_capacity(format::MAX_BLOCK),
            packed: Vec::new(),
            context: Context::default(),
            seq: 0,
            begins: Vec::new(),
            counts: Counts::default(),
            written_seq: 0,
            written_counts: Counts::default(),
            failure: None,
            finished: false,
        })
    }

    /// Number of events so far. It is the position of the next event.
    pub fn events(&self) -> u64 {
        self.seq
    }

    /// Numbers of events so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Everything that events may refer to by id so far.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Defines a module. Equal modules get one id.
    pub fn module(&mut self, module: &Module) -> Result<ModuleId, WriteError> {
        if let Some(&id) = self.module_ids.get(module) {
            return Ok(id);
        }
        self.check_usable()?;
        let build_id = &module.build_id[..module.build_id.len().min(format::MAX_BUILD_ID)];
        let id = self
            .tables
            .define_module(module.clone())
            .map_err(|what| self.invalid(what))?;
        self.module_ids.insert(module.clone(), id);
        match &module.place {
            None => {
                self.raw.push(tag::MODULE);
                put_text(&mut self.raw, &module.path);
                put_bytes(&mut self.raw, build_id);
                put_varint(&mut self.raw, module.locked_sites as u64);
            }
            Some(place) => {
                self.raw.push(tag::PLACE);
                put_text(&mut self.raw, &module.path);
                put_text(&mut self.raw, place.function.as_deref().unwrap_or_default());
                put_text(&mut self.raw, place.file.as_deref().unwrap_or_default());
                put_varint(&mut self.raw, place.line.map_or(0, |line| line as u64 + 1));
            }
        }
        self.close_full_block()?;
        Ok(id)
    }

    /// Defines a call stack from its frames, innermost first. Equal stacks get one id. Frames beyond
    /// [`format::MAX_STACK_FRAMES`] are cut. When the trace has too many stacks, a new one is the unknown
    /// stack, and the trace is incomplete.
    pub fn stack(&mut self, frames: &[Frame]) -> Result<StackId, WriteError> {
        let frames = &frames[..frames.len().min(format::MAX_STACK_FRAMES)];
        if frames.is_empty() {
            return Ok(StackId(0));
        }
        let hash = FxBuildHasher.hash_one(frames);
        if let Some(&id) = self.stack_ids.get(&hash)
            && self.tables.frames(id) == frames
        {
            return Ok(id);
        }
        self.check_usable()?;
        if !self.tables.has_room_for_stack(frames.len()) {
            if !self.stacks_full {
                self.stacks_full = true;
                let detail = "too many different call stacks: later ones are unknown".into();
                self.incomplete(&Incomplete {
                    reason: IncompleteReason::Limit,
                    detail,
                })?;
            }
            return Ok(StackId(0));
        }
        let id = self
            .tables
            .define_stack(frames.iter().map(|&frame| Ok(frame)))
            .map_err(|what| self.invalid(what))?;
        self.stack_ids.entry(hash).or_insert(id);
        self.raw.push(tag::STACK);
        put_varint(&mut self.raw, frames.len() as u64);
        let mut previous = 0;
        for frame in frames {
            put_varint(&mut self.raw, frame.module.map_or(0, |module| module.0 as u64 + 1));
            put_varint(&mut self.raw, zigzag(frame.address.wrapping_sub(previous) as i64));
            previous = frame.address;
        }
        self.close_full_block()?;
        Ok(id)
    }

    /// Defines a PM file. Each call gives a new id.
    pub fn file(&mut self, file: &PmFile) -> Result<FileId, WriteError> {
        self.check_usable()?;
        let size = file.size.min(format::MAX_OFFSET);
        let id = self
            .tables
            .define_file(file.clone())
            .map_err(|what| self.invalid(what))?;
        self.raw.push(tag::FILE);
        put_text(&mut self.raw, &file.path);
        put_varint(&mut self.raw, size);
        let kind = match file.kind {
            PmFileKind::File => 0,
            PmFileKind::RegisteredMemory => format::FILE_REGISTERED_MEMORY,
            PmFileKind::UnknownMemory => format::FILE_UNKNOWN_MEMORY,
        };
        self.raw.push(bit(file.created, format::FILE_CREATED) | kind);
        self.close_full_block()?;
        Ok(id)
    }

    /// Adds a part of a file's content when it was first mapped, before the events of the file. Bytes that
    /// are not given are zero.
    pub fn initial(&mut self, at: PmAddress, data: &[u8]) -> Result<(), WriteError> {
        self.check_usable()?;
        self.check_range(at, data.len())?;
        for (piece_at, piece) in pieces(at, data, format::MAX_DATA) {
            let file_bit = self.file_bit(piece_at.file);
            self.raw.push(tag::INITIAL | file_bit);
            self.put_file(file_bit, piece_at.file);
            self.put_offset(piece_at.offset);
            put_bytes(&mut self.raw, piece);
            self.close_full_block()?;
        }
        Ok(())
    }

    /// A sync or an operation on a file begins. If the thread's next event is not the next of the trace, the trace says so.
    pub fn begin(&mut self, thread: ThreadId) -> Result<(), WriteError> {
        self.tables.check_thread(thread).map_err(|what| self.invalid(what))?;
        if let Err(at) = self.begins.binary_search(&thread) {
            self.begins.insert(at, thread);
        }
        Ok(())
    }

    /// Adds the next event of the total order. An event with more data than a record holds becomes several
    /// events; a store is cut at cache lines.
    #[inline]
    pub fn event(&mut self, thread: ThreadId, stack: StackId, kind: &EventKind<'_>) -> Result<(), WriteError> {
        self.event_begun(self.seq, thread, stack, kind)
    }

    /// As [`event`](TraceWriter::event), for an event that began when the trace had `begun` events.
    #[inline]
    pub fn event_begun(
        &mut self,
        begun: u64,
        thread: ThreadId,
        stack: StackId,
        kind: &EventKind<'_>,
    ) -> Result<(), WriteError> {
        if begun > self.seq {
            return Err(self.invalid("an event begins after its end"));
        }
        match *kind {
            EventKind::Store { at, data, flags } if data.len() > format::MAX_STORE => {
                let head = (format::MAX_STORE - at.offset as usize % format::MAX_STORE).min(data.len());
                let (head, tail) = data.split_at(head);
                let tail_at = PmAddress {
                    offset: at.offset.wrapping_add(head.len() as u64),
                    ..at
                };
                self.one_event(begun, thread, stack, &EventKind::Store { at, data: head, flags })?;
                for (at, data) in pieces(tail_at, tail, format::MAX_STORE) {
                    self.one_event(begun, thread, stack, &EventKind::Store { at, data, flags })?;
                }
                Ok(())
            }
            EventKind::FileWrite { at, data } if data.len() > format::MAX_DATA => {
                for (at, data) in pieces(at, data, format::MAX_DATA) {
                    self.one_event(begun, thread, stack, &EventKind::FileWrite { at, data })?;
                }
                Ok(())
            }
            EventKind::Output { fd, data } if data.len() > format::MAX_DATA => {
                for data in data.chunks(format::MAX_DATA) {
                    self.one_event(begun, thread, stack, &EventKind::Output { fd, data })?;
                }
                Ok(())
            }
            _ => self.one_event(begun, thread, stack, kind),
        }
    }

    fn one_event(
        &mut self,
        begun: u64,
        thread: ThreadId,
        stack: StackId,
        kind: &EventKind<'_>,
    ) -> Result<(), WriteError> {
        self.check_usable()?;
        if self.context.stack != Some(stack) {
            self.tables.check_stack(stack).map_err(|what| self.invalid(what))?;
        }
        if self.context.thread != Some(thread) {
            let checked = match kind.is_of_no_thread() {
                true => self.tables.check_thread_id(thread),
                false => self.tables.check_thread(thread),
            };
            checked.map_err(|what| self.invalid(what))?;
        }
        let start = self.raw.len();
        let goes_on = |&&begins: &&ThreadId| begins != thread || kind.is_of_no_thread();
        for begins in self.begins.iter().filter(goes_on) {
            self.raw.extend_from_slice(&[tag::EXTENDED, tag::BEGINS]);
            put_varint(&mut self.raw, begins.0.into());
        }
        if begun < self.seq {
            self.raw.extend_from_slice(&[tag::EXTENDED, tag::BEGUN]);
            put_varint(&mut self.raw, self.seq - begun);
        }
        let put = self.put_kind(thread, stack, kind);
        if put.is_err() {
            self.raw.truncate(start);
        }
        put?;
        self.begins.clear();
        self.seq += 1;
        self.close_full_block()
    }

    fn put_kind(&mut self, thread: ThreadId, stack: StackId, kind: &EventKind<'_>) -> Result<(), WriteError> {
        match *kind {
            EventKind::Store { at, data, flags } => {
                self.check_range(at, data.len())?;
                self.put_event(tag::STORE, thread, stack, Some(at.file));
                self.put_offset(at.offset);
                let bits = bit(flags.nontemporal, format::STORE_NONTEMPORAL)
                    | bit(flags.locked, format::STORE_LOCKED)
                    | bit(flags.syscall, format::STORE_SYSCALL)
                    | bit(flags.exchange, format::STORE_EXCHANGE);
                if bits == 0 {
                    self.raw.push(data.len() as u8);
                } else {
                    self.raw
                        .extend_from_slice(&[data.len() as u8 | format::STORE_HAS_FLAGS, bits]);
                }
                self.raw.extend_from_slice(data);
                self.counts.stores += 1;
            }
            EventKind::Flush { at, kind } => {
                self.check_range(at, 0)?;
                let kind = match kind {
                    FlushKind::Clwb => tag::CLWB,
                    FlushKind::Clflushopt => tag::CLFLUSHOPT,
                    FlushKind::Clflush => tag::CLFLUSH,
                };
                self.put_event(kind, thread, stack, Some(at.file));
                self.put_offset(at.offset);
                self.counts.flushes += 1;
            }
            EventKind::Fence { kind } => {
                let kind = match kind {
                    FenceKind::Sfence => tag::SFENCE,
                    FenceKind::Mfence => tag::MFENCE,
                    FenceKind::Locked => tag::LOCKED_FENCE,
                };
                self.put_event(kind, thread, stack, None);
                self.counts.fences += 1;
            }
            EventKind::Map {
                file,
                address,
                offset,
                len,
                writable,
            } => {
                self.check_range(PmAddress { file, offset }, 0)?;
                self.put_event(tag::MAP, thread, stack, Some(file));
                self.put_offset(offset);
                put_varint(&mut self.raw, clamp(offset, len));
                put_varint(&mut self.raw, address);
                self.raw.push(writable as u8);
            }
            EventKind::Unmap { file, offset, len } => {
                self.check_range(PmAddress { file, offset }, 0)?;
                self.put_event(tag::UNMAP, thread, stack, Some(file));
                self.put_offset(offset);
                put_varint(&mut self.raw, clamp(offset, len));
            }
            EventKind::Resize { file, size } => {
                self.check_range(PmAddress { file, offset: 0 }, 0)?;
                self.put_event(tag::RESIZE, thread, stack, Some(file));
                put_varint(&mut self.raw, clamp(0, size));
            }
            EventKind::FileWrite { at, data } => {
                self.check_range(at, data.len())?;
                self.put_event(tag::FILE_WRITE, thread, stack, Some(at.file));
                self.put_offset(at.offset);
                put_bytes(&mut self.raw, data);
            }
            EventKind::Rename { file, path } => {
                self.check_range(PmAddress { file, offset: 0 }, 0)?;
                self.put_event(tag::RENAME, thread, stack, Some(file));
                self.raw.push(path.is_some() as u8);
                put_text(&mut self.raw, path.unwrap_or(""));
            }
            EventKind::Sync { file, offset, len } => {
                self.check_range(PmAddress { file, offset }, 0)?;
                self.put_event(tag::SYNC, thread, stack, Some(file));
                self.put_offset(offset);
                put_varint(&mut self.raw, clamp(offset, len));
            }
            EventKind::Output { fd, data } => {
                self.put_event(tag::OUTPUT, thread, stack, None);
                put_varint(&mut self.raw, fd as u64);
                put_bytes(&mut self.raw, data);
            }
            EventKind::Call { name, arguments } => {
                self.put_event(tag::CALL, thread, stack, None);
                put_text(&mut self.raw, name);
                for argument in arguments {
                    put_varint(&mut self.raw, argument);
                }
            }
            EventKind::Return(returned) => {
                self.put_event(tag::RETURN, thread, stack, None);
                returned.encode(&mut self.raw);
            }
            EventKind::Annotation(annotation) => {
                self.put_event(tag::ANNOTATION, thread, stack, None);
                annotation.encode(&mut self.raw);
            }
            EventKind::Request {
                request,
                transaction,
                range,
            } => {
                if let Some((at, _)) = range {
                    self.check_range(at, 0)?;
                }
                self.put_event(tag::REQUEST, thread, stack, range.map(|(at, _)| at.file));
                let request = match request {
                    Request::SetClean => 0,
                    Request::TxBegin => 1,
                    Request::TxEnd => 2,
                    Request::TxAdd => 3,
                    Request::TxRemove => 4,
                    Request::TxIgnore => 5,
                    Request::Volatile => 6,
                    Request::Persistent => 7,
                    Request::TxJoin => 8,
                    Request::TxLeave => 9,
                };
                self.raw.push(request << 1 | range.is_some() as u8);
                put_varint(&mut self.raw, transaction);
                if let Some((at, len)) = range {
                    self.put_offset(at.offset);
                    put_varint(&mut self.raw, clamp(at.offset, len));
                }
            }
            EventKind::ThreadStart { process, os_id } => {
                self.tables
                    .define_thread(thread, process)
                    .map_err(|what| self.invalid(what))?;
                self.put_of_no_thread(tag::THREAD_START, thread, stack);
                put_varint(&mut self.raw, process.0 as u64);
                put_varint(&mut self.raw, os_id as u64);
            }
            EventKind::ProcessStart {
                process,
                pid,
                parent,
                executable,
            } => {
                let definition = Process {
                    pid,
                    parent,
                    executable: executable.into(),
                };
                self.tables
                    .define_process(process, definition)
                    .map_err(|what| self.invalid(what))?;
                self.put_of_no_thread(tag::PROCESS_START, thread, stack);
                put_varint(&mut self.raw, process.0 as u64);
                put_varint(&mut self.raw, pid as u64);
                put_varint(&mut self.raw, parent.map_or(0, |parent| parent.0 as u64 + 1));
                put_text(&mut self.raw, executable);
            }
            EventKind::ProcessEnd { process, killed } => {
                self.tables.check_process(process).map_err(|what| self.invalid(what))?;
                match killed {
                    true => self.put_event(tag::PROCESS_KILLED, thread, stack, None),
                    false => self.put_of_no_thread(tag::PROCESS_END, thread, stack),
                }
                put_varint(&mut self.raw, process.0 as u64);
            }
            EventKind::Quiet => self.put_of_no_thread(tag::QUIET, thread, stack),
            EventKind::Access {
                store,
                node,
                at,
                len,
                depends,
            } => {
                self.check_range(at, len as usize)?;
                depends.check(node).map_err(|what| self.invalid(what))?;
                self.put_event(tag::ACCESS, thread, stack, Some(at.file));
                self.put_offset(at.offset);
                put_varint(&mut self.raw, (len as u64) << 1 | store as u64);
                put_varint(&mut self.raw, zigzag(node.wrapping_sub(self.context.node) as i64));
                self.context.node = node;
                depends.encode(&mut self.raw, node);
            }
            EventKind::Path { blocks, cuts } => {
                self.put_event(tag::PATH, thread, stack, None);
                self.raw.extend_from_slice(&blocks.to_le_bytes());
                put_varint(&mut self.raw, cuts);
            }
        }
        Ok(())
    }

    /// Adds a reason why the trace may lack something. After a failed write, the reason goes into the last
    /// block.
    pub fn incomplete(&mut self, incomplete: &Incomplete) -> Result<(), WriteError> {
        if let Some(reasons) = &mut self.failure {
            if reasons.len() < MAX_LATE_REASONS {
                reasons.push(incomplete.clone());
            }
            return Ok(());
        }
        put_incomplete(&mut self.raw, incomplete);
        self.close_full_block()
    }

    /// Adds a file of which the trace has no events.
    pub fn left_out(&mut self, left_out: &LeftOut) -> Result<(), WriteError> {
        self.check_usable()?;
        put_left_out(&mut self.raw, left_out);
        self.close_full_block()
    }

    /// Writes the buffered records as a block, so that they survive the recorder's death.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        self.write_block()
    }

    /// Writes the end record and completes the trace. After a failed write it puts the end record into the
    /// reserved room, and returns the result of that.
    pub fn finish(mut self, end: ProgramEnd) -> Result<(), WriteError> {
        self.finished = true;
        if self.failure.is_none() {
            put_end(&mut self.raw, end, self.counts);
            let written = self.write_block();
            if written.is_ok() {
                self.trim();
                return self.storage.complete().map_err(|source| WriteError::Create {
                    path: self.path.clone(),
                    source,
                });
            }
        }
        self.write_last_words(Some(end))?;
        self.trim();
        Ok(())
    }

    #[inline]
    fn check_usable(&self) -> Result<(), WriteError> {
        if self.failure.is_none() {
            Ok(())
        } else {
            Err(WriteError::AlreadyFailed {
                path: self.path.clone(),
            })
        }
    }

    #[cold]
    fn invalid(&self, what: &'static str) -> WriteError {
        WriteError::Invalid {
            path: self.path.clone(),
            what,
        }
    }

    #[inline]
    fn check_range(&self, at: PmAddress, len: usize) -> Result<(), WriteError> {
        self.tables.check_file(at.file).map_err(|what| self.invalid(what))?;
        match at.offset.checked_add(len as u64) {
            Some(end) if end <= format::MAX_OFFSET => Ok(()),
            _ => Err(self.invalid("an offset is larger than any file")),
        }
    }

    #[inline]
    fn file_bit(&self, file: FileId) -> u8 {
        bit(self.context.file != Some(file), tag::NEW_FILE)
    }

    #[inline]
    fn put_file(&mut self, file_bit: u8, file: FileId) {
        if file_bit != 0 {
            put_varint(&mut self.raw, file.0 as u64);
            self.context.file = Some(file);
        }
    }

    #[inline]
    fn put_offset(&mut self, offset: u64) {
        put_varint(&mut self.raw, zigzag(offset.wrapping_sub(self.context.offset) as i64));
        self.context.offset = offset;
    }

    /// Appends the first part of an event: kind, thread, stack and file.
    #[inline]
    fn put_event(&mut self, kind: u8, thread: ThreadId, stack: StackId, file: Option<FileId>) {
        let new_thread = self.context.thread != Some(thread);
        let new_stack = self.context.stack != Some(stack);
        let file_bit = file.map_or(0, |file| self.file_bit(file));
        let is_extended = kind > tag::EXTENDED;
        let first = if is_extended { tag::EXTENDED } else { kind };
        self.raw
            .push(first | bit(new_thread, tag::NEW_THREAD) | bit(new_stack, tag::NEW_STACK) | file_bit);
        if new_thread {
            put_varint(&mut self.raw, thread.0 as u64);
            self.context.thread = Some(thread);
        }
        if new_stack {
            let previous = self.context.stack.unwrap_or(StackId(0));
            put_varint(&mut self.raw, zigzag(stack.0 as i64 - previous.0 as i64));
            self.context.stack = Some(stack);
        }
        if let Some(file) = file {
            self.put_file(file_bit, file);
        }
        if is_extended {
            self.raw.push(kind);
        }
    }

    /// As `put_event`, for kinds whose thread may not be defined, so that the next event may not refer to it.
    fn put_of_no_thread(&mut self, kind: u8, thread: ThreadId, stack: StackId) {
        self.context.thread = None;
        self.put_event(kind, thread, stack, None);
        self.context.thread = None;
    }

    #[inline]
    fn close_full_block(&mut self) -> Result<(), WriteError> {
        if self.raw.len() < format::BLOCK_TARGET {
            Ok(())
        } else {
            self.write_block()
        }
    }

    fn write_block(&mut self) -> Result<(), WriteError> {
        if self.raw.is_empty() {
            return Ok(());
        }
        format::seal_block(
            &self.raw,
            self.written_seq,
            (self.seq - self.written_seq) as u32,
            &mut self.packed,
        );
        self.raw.clear();
        self.context = Context::default();
        let block_end = self.offset + self.packed.len() as u64;
        self.packed.resize(self.packed.len() + format::RESERVE, 0);
        match self.storage.write_all_at(&self.packed, self.offset) {
            Ok(()) => {
                self.offset = block_end;
                self.written_seq = self.seq;
                self.written_counts = self.counts;
                Ok(())
            }
            Err(source) => Err(self.fail(source)),
        }
    }

    #[cold]
    fn fail(&mut self, source: io::Error) -> WriteError {
        self.seq = self.written_seq;
        self.counts = self.written_counts;
        let detail = format!("{source}, after {} events: later ones are not in the trace", self.seq);
        self.failure = Some(vec![Incomplete {
            reason: IncompleteReason::WriteFailed,
            detail,
        }]);
        // If this fails, the last words below replace the rest, or a reader finds a block that ends too early.
        let _ = self.storage.set_len(self.offset + format::RESERVE as u64);
        let _ = self.write_last_words(None);
        WriteError::Write {
            path: self.path.clone(),
            offset: self.offset,
            source,
        }
    }

    /// Fills the reserve with a block that has the reasons why the trace is incomplete, and the end record if
    /// there is one.
    fn write_last_words(&mut self, end: Option<ProgramEnd>) -> Result<(), WriteError> {
        self.raw.clear();
        for incomplete in self.failure.iter().flatten() {
            // This is enough for a few sentences, and the block fits in the reserve whatever the texts are.
            if self.raw.len() + incomplete.detail.len() < format::RESERVE - 512 {
                put_incomplete(&mut self.raw, incomplete);
            }
        }
        if let Some(end) = end {
            put_end(&mut self.raw, end, self.counts);
        }
        format::seal_block(&self.raw, self.seq, 0, &mut self.packed);
        self.raw.clear();
        let block_len = self.packed.len();
        self.packed.resize(format::RESERVE.max(block_len), 0);
        self.storage
            .write_all_at(&self.packed, self.offset)
            .map_err(|source| WriteError::Write {
                path: self.path.clone(),
                offset: self.offset,
                source,
            })?;
        if end.is_some() {
            self.offset += block_len as u64;
        }
        Ok(())
    }

    /// Removes the reserve. A reader takes zeros for the end, so a failure does no harm.
    fn trim(&mut self) {
        let _ = self.storage.set_len(self.offset);
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        if !self.finished && self.failure.is_none() && self.write_block().is_ok() {
            self.trim();
        }
    }
}

#[inline]
fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

/// The length, cut so that the range ends no later than the largest file.
fn clamp(offset: u64, len: u64) -> u64 {
    len.min(format::MAX_OFFSET - offset)
}

/// `data` in pieces of at most `len` bytes, each with its address.
fn pieces(at: PmAddress, data: &[u8], len: usize) -> impl Iterator<Item = (PmAddress, &[u8])> {
    data.chunks(len).enumerate().map(move |(i, piece)| {
        (
            PmAddress {
                offset: at.offset.wrapping_add((i * len) as u64),
                ..at
            },
            piece,
        )
    })
}

fn put_incomplete(out: &mut Vec<u8>, incomplete: &Incomplete) {
    let reason = match incomplete.reason {
        IncompleteReason::UnverifiedCode => 0,
        IncompleteReason::Unsupported => 1,
        IncompleteReason::Limit => 2,
        IncompleteReason::Mismatch => 3,
        IncompleteReason::WriteFailed => 4,
        IncompleteReason::Truncated => 5,
        IncompleteReason::Lost => 6,
    };
    out.extend_from_slice(&[tag::INCOMPLETE, reason]);
    put_text(out, &incomplete.detail);
}

fn put_left_out(out: &mut Vec<u8>, left_out: &LeftOut) {
    out.extend_from_slice(&[tag::LEFT_OUT, left_out.reason as u8]);
    if left_out.reason == LeftOutReason::OpenFailed {
        put_varint(out, left_out.errno.unwrap_or(0).unsigned_abs().into());
    }
    put_text(out, &left_out.path);
}

fn put_end(out: &mut Vec<u8>, end: ProgramEnd, counts: Counts) {
    let bits = end.status.is_some() as u8
        | (end.signal.is_some() as u8) << 1
        | (end.interrupted as u8) << 2
        | (end.terminated as u8) << 3;
    out.extend_from_slice(&[tag::END, bits]);
    for value in [end.status, end.signal].into_iter().flatten() {
        put_varint(out, zigzag(value as i64));
    }
    for count in [counts.stores, counts.flushes, counts.fences] {
        put_varint(out, count);
    }
}
