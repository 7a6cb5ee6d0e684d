//! Reads a trace as a stream, with one block and the tables in memory, whatever the trace's length.
//!
//! A file that ends too early (killed recorder, truncated copy) is read up to its end and is an incomplete
//! trace. Anything else that the writer does not leave behind is an error that names the place. No input
//! makes the reader panic or allocate more than the bounds in [`crate::format`] and of the tables.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::annotation::Annotation;
use crate::call_return::CallReturn;
use crate::dependences::Dependences;
use crate::event::*;
use crate::format::{self, BlockHeader, Context, Defect, Header, Input, tag, unzigzag};
use crate::tables::{Process, Tables};

/// Reasons why a trace is incomplete that are kept. More would tell the user nothing new.
const MAX_INCOMPLETE: usize = 4096;
const MAX_LEFT_OUT: usize = 4096;

/// The remedy if a trace cannot be opened.
fn open_hint(path: &Path, error: &io::Error) -> String {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(EMFILE | ENFILE) => "raise the limit of open files (`ulimit -n`)".to_owned(),
        _ => format!("record one with `crashproof record -o {} -- PROGRAM`", path.display()),
    }
}

/// A failure to read a trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the trace {}: {source}; {}", path.display(), open_hint(path, source))]
    Open {
        /// The trace.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read the trace {} at byte {offset}: {source}", path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// Byte of the file at which the read began.
        offset: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// The file does not begin as a trace does.
    #[error(
        "{} is not a crashproof trace: it does not begin like one (byte 0); record one with `crashproof record -o FILE \
         -- PROGRAM`",
        path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// The file is an ELF file or a script.
    #[error(
        "{0} is a program, not a crashproof trace; `crashproof check -- {0}` records and checks it, \
         `crashproof record -o FILE -- {0}` makes a trace",
        path.display()
    )]
    IsAProgram {
        /// The file.
        path: PathBuf,
    },
    /// The trace has a version of the format that this reader does not know.
    #[error(
        "the trace {} has format version {found}, and this crashproof reads versions {} to {}; use the crashproof that recorded \
         it, or record it again",
        path.display(),
        format::OLDEST_VERSION, format::VERSION
    )]
    Version {
        /// The trace.
        path: PathBuf,
        /// Version of the trace.
        found: u32,
    },
    /// The file ends within the header.
    #[error(
        "the trace {} ends within its header, at byte {offset}: recording stopped before it began; record it again",
        path.display()
    )]
    NoHeader {
        /// The trace.
        path: PathBuf,
        /// Length of the file in bytes.
        offset: u64,
    },
    /// The content of the file is not what a writer leaves behind.
    #[error(
        "the trace {} is damaged: {what} (block at byte {offset}, byte {within} of its content); copy it again, or \
         record it again",
        path.display()
    )]
    Damaged {
        /// The trace.
        path: PathBuf,
        /// Byte of the file at which the damaged block begins, or the damaged part of the header.
        offset: u64,
        /// Byte of the block's content, after decompression, at which the damaged record begins.
        within: u64,
        /// The defect, as part of a sentence.
        what: &'static str,
    },
}

/// An item of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event(Event<'a>),
    /// A part of a file's content when it was first mapped. Bytes without such an item were zero. The items
    /// of a file come before its events.
    Initial {
        /// First byte of the part.
        at: PmAddress,
        /// The bytes of the part.
        data: &'a [u8],
    },
}

/// Streams the items of a trace.
///
/// ```no_run
/// # fn main() -> Result<(), crashproof_trace::ReadError> {
/// let mut reader = crashproof_trace::TraceReader::open("app.trace")?;
/// while let Some((item, tables)) = reader.next_with_tables()? {
///     println!("{}", crashproof_trace::dump::describe(&item, tables));
/// }
/// if let Some(end) = reader.end() {
///     println!("exit status {:?}", end.status);
/// }
/// # Ok(())
/// # }
/// ```
pub struct TraceReader {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    len: u64,
    /// Version of the trace's format.
    version: u32,
    /// Number of bytes read from `source`.
    position: u64,
    packed: Vec<u8>,
    block: Vec<u8>,
    block_offset: u64,
    /// The next record in `block`.
    at: usize,
    /// Value of `seq` at the end of the block, by the block's header.
    block_end_seq: u64,
    context: Context,
    seq: u64,
    /// Of the next event.
    beginning: Beginning,
    outline: Outline,
    done: bool,
    /// Events of registered memory are shown as [`EventKind::Quiet`].
    files_only: bool,
    /// Bytes that all readers of a [`TraceFile`](crate::TraceFile) have read.
    bytes_read: Option<Arc<AtomicU64>>,
}

/// Everything in a trace beside its events, as far as the trace has been read.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// The recorded command and the options of the recording.
    pub header: Header,
    /// Everything that events refer to by id.
    pub tables: Tables,
    /// Numbers of events.
    pub counts: Counts,
    /// The reasons why the trace may lack something; at most 4,096 are kept.
    pub incomplete: Vec<Incomplete>,
    /// The files of which the trace has no events; at most 4,096 are kept.
    pub left_out: Vec<LeftOut>,
    /// How the program ended; `None` for a trace without an end record.
    pub end: Option<ProgramEnd>,
}

/// The item, or an empty one in place of an item about registered memory.
fn without_memory<'a>(item: Item<'a>, tables: &Tables) -> Item<'a> {
    let is_memory = |file| tables.file(file).is_some_and(PmFile::is_registered_memory);
    match item {
        Item::Initial { at, .. } if is_memory(at.file) => Item::Initial { at, data: &[] },
        Item::Event(event) => {
            let file = match event.kind {
                EventKind::Store { at, .. } | EventKind::Flush { at, .. } | EventKind::FileWrite { at, .. } => at.file,
                EventKind::Map { file, .. } | EventKind::Unmap { file, .. } | EventKind::Sync { file, .. } => file,
                EventKind::Request {
                    range: Some((at, _)), ..
                } => at.file,
                _ => return Item::Event(event),
            };
            let kind = if is_memory(file) { EventKind::Quiet } else { event.kind };
            Item::Event(Event { kind, ..event })
        }
        item => item,
    }
}

impl TraceReader {
    /// Opens a trace and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceReader, ReadError> {
        let path = path.as_ref();
        let (file, len) = open_file(path)?;
        TraceReader::from_source(path, Box::new(file), len)
    }

    /// As [`open`](TraceReader::open), for [`TraceFile::files`](crate::TraceFile::files).
    pub(crate) fn open_files(path: impl AsRef<Path>) -> Result<TraceReader, ReadError> {
        let mut reader = TraceReader::open(path)?;
        reader.files_only = true;
        Ok(reader)
    }

    /// As [`open`](TraceReader::open), from any source of bytes. `path` is for messages, and `len`, the
    /// number of bytes, is for progress.
    pub fn from_source(
        path: impl AsRef<Path>,
        mut source: Box<dyn Read + Send>,
        len: u64,
    ) -> Result<TraceReader, ReadError> {
        let path = path.as_ref().to_path_buf();
        let (header, version, position) = read_header(&path, &mut source)?;
        Ok(TraceReader {
            path,
            source,
            len,
            version,
            position,
            packed: Vec::new(),
            block: Vec::new(),
            block_offset: position,
            at: 0,
            block_end_seq: 0,
            context: Context::default(),
            seq: 0,
            beginning: Beginning::default(),
            outline: Outline {
                header,
                ..Outline::default()
            },
            done: false,
            files_only: false,
            bytes_read: None,
        })
    }

    /// The place of the last item: the byte of the file where its block begins, and the byte of the block's
    /// content where the item ends.
    pub(crate) fn place(&self) -> (u64, usize) {
        (self.block_offset, self.at)
    }

    /// Adds the bytes that are read from now on to `bytes_read`.
    pub(crate) fn count_bytes(mut self, bytes_read: Arc<AtomicU64>) -> TraceReader {
        self.bytes_read = Some(bytes_read);
        self
    }

    pub(crate) fn into_outline(self) -> Outline {
        self.outline
    }

    /// Everything in the trace beside its events, up to the last item.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The recorded command and the options of the recording.
    pub fn header(&self) -> &Header {
        &self.outline.header
    }

    /// Path of the trace, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything that events refer to by id, up to the last item.
    pub fn tables(&self) -> &Tables {
        &self.outline.tables
    }

    /// Numbers of events up to the last item.
    pub fn counts(&self) -> Counts {
        self.outline.counts
    }

    /// Number of events up to the last item.
    pub fn events(&self) -> u64 {
        self.seq
    }

    /// The reasons why the trace may lack something. The list is complete only at the end of the trace.
    pub fn incomplete(&self) -> &[Incomplete] {
        &self.outline.incomplete
    }

    /// The files of which the trace has no events. The list is complete only at the end of the trace.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.outline.left_out
    }

    /// How the program ended; `None` before the end of the trace, and if the trace has no end record.
    pub fn end(&self) -> Option<ProgramEnd> {
        self.outline.end
    }

    /// Number of bytes read so far, of [`len`](TraceReader::len).
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Length of the trace in bytes when it was opened.
    #[allow(clippy::len_without_is_empty, reason = "a length for progress, not of a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The next item; `None` at the end of the trace and after an error.
    #[allow(clippy::should_implement_trait, reason = "the item borrows the reader")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        Ok(self.next_with_tables()?.map(|(item, _)| item))
    }

    /// As [`next`](TraceReader::next), with the tables that the item refers to.
    #[inline]
    pub fn next_with_tables(&mut self) -> Result<Option<(Item<'_>, &Tables)>, ReadError> {
        if self.beginning != AT_ONCE {
            self.beginning = Beginning::default();
        }
        if !self.skip_to_item()? {
            return Ok(None);
        }
        let mut input = Input {
            data: &self.block,
            at: self.at,
        };
        match decode_item(
            self.version,
            &mut input,
            &mut self.context,
            &mut self.outline.tables,
            self.seq,
            &self.beginning,
            &mut self.outline.counts,
        ) {
            Ok(item) => {
                self.at = input.at;
                if matches!(item, Item::Event(_)) {
                    self.seq += 1;
                }
                let item = match self.files_only {
                    true => without_memory(item, &self.outline.tables),
                    false => item,
                };
                Ok(Some((item, &self.outline.tables)))
            }
            Err(what) => {
                self.done = true;
                Err(damaged(&self.path, self.block_offset, self.at, what))
            }
        }
    }

    /// Reads definitions and blocks until the next record is an item. False at the end.
    #[inline]
    fn skip_to_item(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.done {
                return Ok(false);
            }
            match self.block.get(self.at) {
                Some(first) if first & tag::KIND < tag::MODULE => return Ok(true),
                Some(&tag::EXTENDED) if matches!(self.block.get(self.at + 1), Some(&(tag::BEGUN | tag::BEGINS))) => {
                    if let Err(what) = self.take_beginning() {
                        return Err(self.damaged(what));
                    }
                }
                Some(first) if first & tag::KIND == tag::EXTENDED => return Ok(true),
                Some(_) => {
                    if let Err(what) = self.take_definition() {
                        return Err(self.damaged(what));
                    }
                    self.done = self.outline.end.is_some();
                    if self.done && !self.rest_is_zero()? {
                        self.block_offset = self.position;
                        return Err(self.damaged("something follows the end record"));
                    }
                }
                None => {
                    if self.seq != self.block_end_seq {
                        return Err(self.damaged("the block does not hold as many events as it says"));
                    }
                    if let Err(error) = self.next_block() {
                        self.done = true;
                        return Err(error);
                    }
                }
            }
        }
    }

    #[cold]
    fn damaged(&mut self, what: Defect) -> ReadError {
        self.done = true;
        damaged(&self.path, self.block_offset, self.at, what)
    }

    /// Reads `buffer.len()` bytes, or fewer at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let offset = self.position;
        let n = fill(&mut *self.source, buffer).map_err(|source| ReadError::Read {
            path: self.path.clone(),
            offset,
            source,
        })?;
        self.position += n as u64;
        if let Some(bytes_read) = &self.bytes_read {
            bytes_read.fetch_add(n as u64, Ordering::Relaxed);
        }
        Ok(n)
    }

    /// Loads the next block; at the end of the file, sets `done`.
    fn next_block(&mut self) -> Result<(), ReadError> {
        self.block.clear();
        self.at = 0;
        self.context = Context::default();
        self.block_offset = self.position;
        let mut head = [0; format::BLOCK_HEADER];
        let n = self.fill(&mut head)?;
        if head[..n].iter().all(|&byte| byte == 0) {
            // The end, or the writer's reserve at the end.
            if !self.rest_is_zero()? {
                return Err(self.damaged("zeros where a block should begin"));
            }
            self.truncated();
            return Ok(());
        }
        if n < head.len() {
            if !format::BLOCK_MARKER.starts_with(&head[..n.min(4)]) {
                return Err(self.damaged("no block begins here"));
            }
            self.truncated();
            return Ok(());
        }
        let header = BlockHeader::decode(&head).map_err(|what| self.damaged(what))?;
        if header.first_seq != self.seq {
            return Err(self.damaged("the block does not follow the one before it"));
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(header.packed_len as usize, 0);
        let n = self.fill(&mut packed)?;
        if n < packed.len() {
            self.truncated();
            return Ok(());
        }
        let opened = format::open_block(&header, &packed, &mut self.block);
        self.packed = packed;
        if let Err(what) = opened {
            self.block.clear();
            return Err(self.damaged(what));
        }
        self.block_end_seq = self.seq + header.events as u64;
        Ok(())
    }

    /// The file ends without an end record.
    fn truncated(&mut self) {
        self.done = true;
        let detail = format!(
            "the trace ends at byte {} without an end record: the recorder was killed or the file was cut; everything up \
             to event {} was read",
            self.block_offset, self.seq
        );
        self.outline.incomplete.push(Incomplete {
            reason: IncompleteReason::Truncated,
            detail,
        });
    }

    fn rest_is_zero(&mut self) -> Result<bool, ReadError> {
        let mut buffer = [0; 4096];
        loop {
            let n = self.fill(&mut buffer)?;
            if buffer[..n].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            if n < buffer.len() {
                return Ok(true);
            }
        }
    }

    /// How many events before its own position the next event began, or what begins just before it.
    fn take_beginning(&mut self) -> Result<(), Defect> {
        let mut input = Input {
            data: &self.block,
            at: self.at + 2,
        };
        if self.block[self.at + 1] == tag::BEGINS {
            let thread = ThreadId(input.varint_u32()?);
            self.outline.tables.check_thread(thread)?;
            if self.beginning.others.last().is_some_and(|&last| last >= thread) {
                return Err("threads that begin something are not in order");
            }
            self.beginning.others.push(thread);
        } else {
            self.beginning.before = input.varint()?;
            if self.beginning.before > self.seq {
                return Err("an event begins before the trace");
            }
        }
        self.at = input.at;
        Ok(())
    }

    fn take_definition(&mut self) -> Result<(), Defect> {
        let mut input = Input {
            data: &self.block,
            at: self.at,
        };
        match input.byte()? {
            tag::MODULE => {
                let path = input.text(format::MAX_TEXT)?;
                let build_id = input.bytes(format::MAX_BUILD_ID)?.into();
                let locked_sites = input.varint_u32()?;
                let module = Module::of_joined_path(path).unwrap_or_else(|| Module {
                    path: path.into(),
                    build_id,
                    locked_sites,
                    place: None,
                });
                self.outline.tables.define_module(module)?;
            }
            tag::PLACE => {
                let path = input.text(format::MAX_TEXT)?;
                let mut optional = || Ok(Some(input.text(format::MAX_TEXT)?).filter(|text| !text.is_empty()));
                let (function, file) = (optional()?, optional()?);
                let line = match input.varint()? {
                    0 => None,
                    line => Some(u32::try_from(line - 1).map_err(|_| "a line does not fit in 32 bits")?),
                };
                self.outline
                    .tables
                    .define_module(Module::of_place(path, function, file, line))?;
            }
            tag::STACK => {
                let count = input.varint()?;
                if count > format::MAX_STACK_FRAMES as u64 {
                    return Err("a stack has too many frames");
                }
                let mut address = 0u64;
                self.outline.tables.define_stack((0..count as usize).map(|_| {
                    let module = input.varint_u32()?.checked_sub(1).map(ModuleId);
                    address = address.wrapping_add(unzigzag(input.varint()?) as u64);
                    Ok(Frame { module, address })
                }))?;
            }
            tag::FILE => {
                let path: String = input.text(format::MAX_TEXT)?.into();
                let size = take_size(&mut input, 0)?;
                let flags = if self.version > 1 { input.byte()? } else { 0 };
                let kind = if flags & format::FILE_REGISTERED_MEMORY != 0 {
                    PmFileKind::RegisteredMemory
                } else if flags & format::FILE_UNKNOWN_MEMORY != 0 {
                    PmFileKind::UnknownMemory
                } else {
                    PmFileKind::of_path(&path)
                };
                self.outline.tables.define_file(PmFile {
                    path,
                    size,
                    created: flags & format::FILE_CREATED != 0,
                    kind,
                })?;
            }
            tag::INCOMPLETE => {
                let reason = match input.byte()? {
                    0 => IncompleteReason::UnverifiedCode,
                    1 => IncompleteReason::Unsupported,
                    2 => IncompleteReason::Limit,
                    3 => IncompleteReason::Mismatch,
                    4 => IncompleteReason::WriteFailed,
                    5 => IncompleteReason::Truncated,
                    6 => IncompleteReason::Lost,
                    _ => return Err("an unknown reason for incompleteness"),
                };
                let detail = input.text(format::MAX_TEXT)?;
                if self.outline.incomplete.len() < MAX_INCOMPLETE {
                    self.outline.incomplete.push(Incomplete {
                        reason,
                        detail: detail.into(),
                    });
                }
            }
            tag::LEFT_OUT => {
                let reason = LeftOutReason::numbered(input.byte()?.into());
                let reason = reason.ok_or("an unknown reason why a file was left out")?;
                let errno = match reason {
                    LeftOutReason::OpenFailed => Some(input.varint()?),
                    _ => None,
                };
                let errno = errno.map(i32::try_from).transpose();
                let errno = errno.map_err(|_| "an error number is out of bounds")?;
                let path = input.text(format::MAX_TEXT)?.into();
                if self.outline.left_out.len() < MAX_LEFT_OUT {
                    self.outline.left_out.push(LeftOut { path, reason, errno });
                }
            }
            tag::END => {
                let (end, counts) = take_end(&mut input)?;
                if counts != self.outline.counts {
                    return Err("the end record counts other events than the trace has");
                }
                if !input.is_empty() || self.seq != self.block_end_seq {
                    return Err("the end record is not the last");
                }
                self.outline.end = Some(end);
            }
            _ => return Err("an unknown kind of record"),
        }
        self.at = input.at;
        Ok(())
    }
}

/// The file of a trace, and its length.
pub(crate) fn open_file(path: &Path) -> Result<(File, u64), ReadError> {
    let open = || -> io::Result<(File, u64)> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok((file, len))
    };
    open().map_err(|source| ReadError::Open {
        path: path.into(),
        source,
    })
}

/// Reads the content of the block that begins at `offset`. Returns the number of bytes that were read from
/// the file.
pub(crate) fn read_block(path: &Path, file: &mut File, offset: u64, content: &mut Vec<u8>) -> Result<u64, ReadError> {
    let failed = |source| ReadError::Read {
        path: path.into(),
        offset,
        source,
    };
    let bad = |what| damaged(path, offset, 0, what);
    let mut head = [0; format::BLOCK_HEADER];
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    file.read_exact(&mut head).map_err(failed)?;
    let header = BlockHeader::decode(&head).map_err(bad)?;
    let mut packed = vec![0; header.packed_len as usize];
    file.read_exact(&mut packed).map_err(failed)?;
    format::open_block(&header, &packed, content).map_err(bad)?;
    Ok((head.len() + packed.len()) as u64)
}

#[cold]
fn damaged(path: &Path, offset: u64, at: usize, what: Defect) -> ReadError {
    ReadError::Damaged {
        path: path.into(),
        offset,
        within: at as u64,
        what,
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match source.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n)
}

/// The header, the version of the format, and the offset where the header ends.
fn read_header(path: &Path, source: &mut dyn Read) -> Result<(Header, u32, u64), ReadError> {
    let failed = |offset, source| ReadError::Read {
        path: path.into(),
        offset,
        source,
    };
    let mut fixed = [0; format::FIXED_HEADER];
    let n = fill(source, &mut fixed).map_err(|source| failed(0, source))?;
    if n == 0 || !fixed.starts_with(&format::MAGIC[..n.min(format::MAGIC.len())]) {
        let path = path.into();
        return Err(match fixed.starts_with(b"\x7fELF") || fixed.starts_with(b"#!") {
            true => ReadError::IsAProgram { path },
            false => ReadError::NotATrace { path },
        });
    }
    if n < fixed.len() {
        return Err(ReadError::NoHeader {
            path: path.into(),
            offset: n as u64,
        });
    }
    let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let found = u32_at(8);
    if !(format::OLDEST_VERSION..=format::VERSION).contains(&found) {
        return Err(ReadError::Version {
            path: path.into(),
            found,
        });
    }
    let len = u32_at(12) as usize;
    if len > format::MAX_HEADER {
        return Err(damaged(path, 12, 0, "the length of the header is out of bounds"));
    }
    // Through `take`, so that a false length does not allocate what the file does not have.
    let mut body = Vec::new();
    source
        .take(len as u64)
        .read_to_end(&mut body)
        .map_err(|source| failed(n as u64, source))?;
    let end = (n + body.len()) as u64;
    if body.len() < len {
        return Err(ReadError::NoHeader {
            path: path.into(),
            offset: end,
        });
    }
    if format::header_crc(found, &body) != u32_at(16) {
        return Err(damaged(path, n as u64, 0, "the checksum of the header is wrong"));
    }
    let header = format::decode_header(&body).map_err(|what| damaged(path, n as u64, 0, what))?;
    Ok((header, found, end))
}

/// A length that does not lead out of the range of file offsets.
#[inline]
fn take_size(input: &mut Input, offset: u64) -> Result<u64, Defect> {
    let size = input.varint()?;
    if size <= format::MAX_OFFSET - offset {
        Ok(size)
    } else {
        Err("a size is out of bounds")
    }
}

fn take_end(input: &mut Input) -> Result<(ProgramEnd, Counts), Defect> {
    let bits = input.byte()?;
    let mut optional = |present: bool| -> Result<Option<i32>, Defect> {
        if !present {
            return Ok(None);
        }
        i32::try_from(unzigzag(input.varint()?))
            .map(Some)
            .map_err(|_| "an exit status is out of bounds")
    };
    let status = optional(bits & 1 != 0)?;
    let signal = optional(bits & 2 != 0)?;
    let end = ProgramEnd {
        status,
        signal,
        interrupted: bits & 4 != 0,
        terminated: bits & 8 != 0,
    };
    let counts = Counts {
        stores: input.varint()?,
        flushes: input.varint()?,
        fences: input.varint()?,
    };
    Ok((end, counts))
}

impl Context {
    #[inline]
    fn take_offset(&mut self, input: &mut Input) -> Result<u64, Defect> {
        self.offset = self.offset.wrapping_add(unzigzag(input.varint()?) as u64);
        if self.offset <= format::MAX_OFFSET {
            Ok(self.offset)
        } else {
            Err("an offset is out of bounds")
        }
    }

    #[inline]
    fn file(&self) -> Result<FileId, Defect> {
        self.file.ok_or("a block refers to a file of the block before")
    }

    #[inline]
    fn take_address(&mut self, input: &mut Input) -> Result<PmAddress, Defect> {
        Ok(PmAddress {
            file: self.file()?,
            offset: self.take_offset(input)?,
        })
    }

    /// (file, offset, length)
    fn take_range(&mut self, input: &mut Input) -> Result<(FileId, u64, u64), Defect> {
        let at = self.take_address(input)?;
        Ok((at.file, at.offset, take_size(input, at.offset)?))
    }

    fn take_written<'a>(&mut self, input: &mut Input<'a>) -> Result<(PmAddress, &'a [u8]), Defect> {
        let at = self.take_address(input)?;
        Ok((at, fitting(at, input.bytes(format::MAX_DATA)?)?))
    }
}

/// `data` if it ends within the range of file offsets.
#[inline]
fn fitting(at: PmAddress, data: &[u8]) -> Result<&[u8], Defect> {
    if data.len() as u64 <= format::MAX_OFFSET - at.offset {
        Ok(data)
    } else {
        Err("an offset is out of bounds")
    }
}

#[inline]
fn decode_item<'a>(
    version: u32,
    input: &mut Input<'a>,
    context: &mut Context,
    tables: &mut Tables,
    seq: u64,
    beginning: &'a Beginning,
    counts: &mut Counts,
) -> Result<Item<'a>, Defect> {
    let first = input.byte()?;
    let kind = first & tag::KIND;
    if first & tag::NEW_THREAD != 0 {
        let thread = ThreadId(input.varint_u32()?);
        match kind {
            tag::THREAD_START | tag::PROCESS_START | tag::PROCESS_END | tag::QUIET => tables.check_thread_id(thread)?,
            _ => tables.check_thread(thread)?,
        }
        context.thread = Some(thread);
    }
    if first & tag::NEW_STACK != 0 {
        let previous = context.stack.map_or(0, |stack| stack.0) as i64;
        let stack = previous
            .checked_add(unzigzag(input.varint()?))
            .and_then(|stack| u32::try_from(stack).ok());
        let stack = StackId(stack.ok_or("a stack's id is out of bounds")?);
        tables.check_stack(stack)?;
        context.stack = Some(stack);
    }
    if first & tag::NEW_FILE != 0 {
        let file = FileId(input.varint_u32()?);
        tables.check_file(file)?;
        context.file = Some(file);
    }
    if kind == tag::INITIAL {
        let (at, data) = context.take_written(input)?;
        return Ok(Item::Initial { at, data });
    }
    let (Some(thread), Some(stack)) = (context.thread, context.stack) else {
        return Err("a block refers to a thread or stack of the block before");
    };
    let kind = match kind {
        tag::STORE => {
            let at = context.take_address(input)?;
            let len = input.byte()?;
            let bits = if len & format::STORE_HAS_FLAGS != 0 {
                input.byte()?
            } else {
                0
            };
            let len = (len & !format::STORE_HAS_FLAGS) as usize;
            if len > format::MAX_STORE {
                return Err("a store is too long");
            }
            let data = fitting(at, input.take(len)?)?;
            let flags = StoreFlags {
                nontemporal: bits & format::STORE_NONTEMPORAL != 0,
                locked: bits & format::STORE_LOCKED != 0,
                syscall: bits & format::STORE_SYSCALL != 0,
                exchange: bits & format::STORE_EXCHANGE != 0,
            };
            counts.stores += 1;
            EventKind::Store { at, data, flags }
        }
        tag::CLWB | tag::CLFLUSHOPT | tag::CLFLUSH => {
            counts.flushes += 1;
            let kind = match kind {
                tag::CLWB => FlushKind::Clwb,
                tag::CLFLUSHOPT => FlushKind::Clflushopt,
                _ => FlushKind::Clflush,
            };
            EventKind::Flush {
                at: context.take_address(input)?,
                kind,
            }
        }
        tag::SFENCE | tag::MFENCE | tag::LOCKED_FENCE => {
            counts.fences += 1;
            let kind = match kind {
                tag::SFENCE => FenceKind::Sfence,
                tag::MFENCE => FenceKind::Mfence,
                _ => FenceKind::Locked,
            };
            EventKind::Fence { kind }
        }
        _ => decode_rare(kind, version, input, context, tables, thread)?,
    };
    Ok(Item::Event(Event {
        seq,
        beginning,
        thread,
        stack,
        kind,
    }))
}

/// Decodes an extended record from the byte with its kind.
fn decode_extended<'a>(input: &mut Input<'a>, tables: &Tables) -> Result<EventKind<'a>, Defect> {
    Ok(match input.byte()? {
        tag::RETURN => EventKind::Return(CallReturn::decode(input)?),
        tag::ANNOTATION => EventKind::Annotation(Annotation::decode(input)?),
        tag::PROCESS_KILLED => {
            let process = ProcessId(input.varint_u32()?);
            tables.check_process(process)?;
            EventKind::ProcessEnd { process, killed: true }
        }
        _ => return Err("an unknown kind of record"),
    })
}

/// Decodes the kinds of events that are not frequent. It is a function of its own so that the frequent ones
/// stay fast.
fn decode_rare<'a>(
    kind: u8,
    version: u32,
    input: &mut Input<'a>,
    context: &mut Context,
    tables: &mut Tables,
    thread: ThreadId,
) -> Result<EventKind<'a>, Defect> {
    Ok(match kind {
        tag::MAP => {
            let (file, offset, len) = context.take_range(input)?;
            EventKind::Map {
                file,
                offset,
                len,
                address: input.varint()?,
                writable: input.byte()? != 0,
            }
        }
        tag::UNMAP => {
            let (file, offset, len) = context.take_range(input)?;
            EventKind::Unmap { file, offset, len }
        }
        tag::RESIZE => EventKind::Resize {
            file: context.file()?,
            size: take_size(input, 0)?,
        },
        tag::FILE_WRITE => {
            let (at, data) = context.take_written(input)?;
            EventKind::FileWrite { at, data }
        }
        tag::RENAME => {
            let present = input.byte()? != 0;
            let path = input.text(format::MAX_TEXT)?;
            EventKind::Rename {
                file: context.file()?,
                path: present.then_some(path),
            }
        }
        tag::SYNC => {
            let (file, offset, len) = context.take_range(input)?;
            EventKind::Sync { file, offset, len }
        }
        tag::OUTPUT => EventKind::Output {
            fd: input.varint_u32()?,
            data: input.bytes(format::MAX_DATA)?,
        },
        tag::CALL => {
            let name = input.text(format::MAX_TEXT)?;
            let mut arguments = [0; 6];
            for argument in &mut arguments {
                *argument = input.varint()?;
            }
            let returned = CallReturn::of_call(name, &arguments).filter(|_| version < 4);
            match (Annotation::of_call(name, &arguments), returned) {
                (Some(annotation), _) => EventKind::Annotation(annotation),
                (None, Some(returned)) => EventKind::Return(returned),
                (None, None) => EventKind::Call { name, arguments },
            }
        }
        tag::EXTENDED => decode_extended(input, tables)?,
        tag::REQUEST => {
            let bits = input.byte()?;
            let request = match bits >> 1 {
                0 => Request::SetClean,
                1 => Request::TxBegin,
                2 => Request::TxEnd,
                3 => Request::TxAdd,
                4 => Request::TxRemove,
                5 => Request::TxIgnore,
                6 => Request::Volatile,
                7 => Request::Persistent,
                8 => Request::TxJoin,
                9 => Request::TxLeave,
                _ => return Err("an unknown request"),
            };
            let transaction = input.varint()?;
            let range = if bits & 1 != 0 {
                let (file, offset, len) = context.take_range(input)?;
                Some((PmAddress { file, offset }, len))
            } else {
                None
            };
            EventKind::Request {
                request,
                transaction,
                range,
            }
        }
        tag::THREAD_START => {
            context.thread = None;
            let process = ProcessId(input.varint_u32()?);
            tables.define_thread(thread, process)?;
            EventKind::ThreadStart {
                process,
                os_id: input.varint_u32()?,
            }
        }
        tag::PROCESS_START => {
            context.thread = None;
            let process = ProcessId(input.varint_u32()?);
            let pid = input.varint_u32()?;
            let parent = input.varint_u32()?.checked_sub(1).map(ProcessId);
            let executable = input.text(format::MAX_TEXT)?;
            tables.define_process(
                process,
                Process {
                    pid,
                    parent,
                    executable: executable.into(),
                },
            )?;
            EventKind::ProcessStart {
                process,
                pid,
                parent,
                executable,
            }
        }
        tag::PROCESS_END => {
            context.thread = None;
            let process = ProcessId(input.varint_u32()?);
            tables.check_process(process)?;
            EventKind::ProcessEnd { process, killed: false }
        }
        tag::QUIET => {
            context.thread = None;
            EventKind::Quiet
        }
        tag::ACCESS => {
            let at = context.take_address(input)?;
            let coded = input.varint()?;
            let len = u32::try_from(coded >> 1).map_err(|_| "a length is out of bounds")?;
            if len as u64 > format::MAX_OFFSET - at.offset {
                return Err("an offset is out of bounds");
            }
            let node = context.node.wrapping_add(unzigzag(input.varint()?) as u64);
            if node >> 63 != 0 {
                return Err("the number of an access is out of bounds");
            }
            context.node = node;
            EventKind::Access {
                store: coded & 1 != 0,
                node,
                at,
                len,
                depends: Dependences::decode(input, node)?,
            }
        }
        tag::PATH => EventKind::Path {
            blocks: input.u64()?,
            cuts: input.varint()?,
        },
        _ => return Err("an unknown kind of record"),
    })
}
