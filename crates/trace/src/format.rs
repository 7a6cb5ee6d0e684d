//! The bytes of a trace file, shared by the writer and the reader. Read `docs/trace-format.md` first.
//!
//! A file is a header, then blocks. A block is self-contained except for the ids that earlier blocks define:
//! the state that records are coded against (`Context`) starts anew in each block. Every length is bounded,
//! so that a reader never allocates more than a block, whatever a file claims.

use crate::event::{FileId, StackId, ThreadId};

/// First bytes of a trace. The first one is not ASCII, so that no text file is taken for a trace.
pub(crate) const MAGIC: [u8; 8] = *b"\x93crashpf";
/// Version of the format that the writer writes.
pub(crate) const VERSION: u32 = 4;
/// Oldest version that the reader reads. Version 1 does not tell which files the program made. Versions
/// before 3 have no dependences. Versions before 4 do not name the files that were left out, and have calls
/// in place of annotations and paths in place of the kinds of modules and files.
pub(crate) const OLDEST_VERSION: u32 = 1;
/// Bytes of a file header before its body: magic, version, length of the body, checksum.
pub(crate) const FIXED_HEADER: usize = 20;
/// Largest body of a file header in bytes. The kernel allows no command line of this size.
pub(crate) const MAX_HEADER: usize = 16 << 20;

/// First bytes of a block.
pub const BLOCK_MARKER: [u8; 4] = *b"\x93BLK";
/// Bytes of a block before its compressed records.
pub const BLOCK_HEADER: usize = 32;
/// Bytes of records, before compression, at which the writer closes a block.
pub const BLOCK_TARGET: usize = 256 << 10;
/// Largest length of a block's records in bytes, before compression.
pub(crate) const MAX_BLOCK: usize = BLOCK_TARGET + (128 << 10);
/// Number of zeros at the end of a file that is being written. They are allocated room for a block that
/// reports a full disk.
pub(crate) const RESERVE: usize = 4096;

/// Largest store in bytes. The writer cuts longer ones at cache lines.
pub const MAX_STORE: usize = 64;
/// Largest data of another record (initial content, write, output) in bytes. The writer cuts longer data into
/// several records.
pub const MAX_DATA: usize = 64 << 10;
/// Largest text in bytes. The writer cuts longer text.
pub(crate) const MAX_TEXT: usize = 16 << 10;
/// Largest build id in bytes. The writer cuts longer ones.
pub(crate) const MAX_BUILD_ID: usize = 64;
/// Largest number of frames of a stack. The writer cuts off the outermost ones.
pub const MAX_STACK_FRAMES: usize = 1024;
/// Largest number of dependences of an access. It is many times what a label holds.
pub const MAX_DEPENDENCES: usize = 4096;
/// Largest offset or size of a file, that of `off_t`. A reader may therefore add a length to an offset
/// without overflow.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// The header of a trace: the recorded command and the options of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Words of the recorded command.
    pub command: Vec<String>,
    /// Options of the recording.
    pub options: Options,
}

/// The options of the recording that change what an analysis may conclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether pmemcheck's client requests were answered.
    pub client_requests: bool,
    /// Whether locked read-modify-writes on volatile memory were recorded.
    pub locked_rmw: bool,
    /// Glob patterns of the files that were recorded. Without patterns, every shared, writable file mapping
    /// was.
    pub pm: Vec<String>,
}

/// Kinds of records. The low five bits of a record's first byte hold the kind, or [`EXTENDED`](tag::EXTENDED) if
/// a later byte holds it. The bits above tell which of thread, stack and file change.
pub mod tag {
    /// Record of [`EventKind::Store`](crate::EventKind::Store).
    pub const STORE: u8 = 1;
    /// Record of [`EventKind::Flush`](crate::EventKind::Flush) by `clwb`.
    pub const CLWB: u8 = 2;
    /// Record of [`EventKind::Flush`](crate::EventKind::Flush) by `clflushopt`.
    pub const CLFLUSHOPT: u8 = 3;
    /// Record of [`EventKind::Flush`](crate::EventKind::Flush) by `clflush`.
    pub const CLFLUSH: u8 = 4;
    /// Record of [`EventKind::Fence`](crate::EventKind::Fence) by `sfence`.
    pub const SFENCE: u8 = 5;
    /// Record of [`EventKind::Fence`](crate::EventKind::Fence) by `mfence`.
    pub const MFENCE: u8 = 6;
    /// Record of [`EventKind::Fence`](crate::EventKind::Fence) by a locked read-modify-write.
    pub const LOCKED_FENCE: u8 = 7;
    /// Record of [`EventKind::Map`](crate::EventKind::Map).
    pub const MAP: u8 = 8;
    /// Record of [`EventKind::Unmap`](crate::EventKind::Unmap).
    pub const UNMAP: u8 = 9;
    /// Record of [`EventKind::Resize`](crate::EventKind::Resize).
    pub const RESIZE: u8 = 10;
    /// Record of [`EventKind::FileWrite`](crate::EventKind::FileWrite).
    pub const FILE_WRITE: u8 = 11;
    /// Record of [`EventKind::Rename`](crate::EventKind::Rename).
    pub const RENAME: u8 = 12;
    /// Record of [`EventKind::Sync`](crate::EventKind::Sync).
    pub const SYNC: u8 = 13;
    /// Record of [`EventKind::Output`](crate::EventKind::Output).
    pub const OUTPUT: u8 = 14;
    /// Record of [`EventKind::Call`](crate::EventKind::Call); in versions 1 to 3 also an annotation or a
    /// return.
    pub const CALL: u8 = 15;
    /// Record of [`EventKind::Request`](crate::EventKind::Request).
    pub const REQUEST: u8 = 16;
    /// Record of [`EventKind::ThreadStart`](crate::EventKind::ThreadStart).
    pub const THREAD_START: u8 = 17;
    /// Record of [`EventKind::ProcessStart`](crate::EventKind::ProcessStart).
    pub const PROCESS_START: u8 = 18;
    /// Record of [`EventKind::ProcessEnd`](crate::EventKind::ProcessEnd) of a process that was not killed.
    pub const PROCESS_END: u8 = 19;
    /// Record of [`Item::Initial`](crate::Item::Initial).
    pub const INITIAL: u8 = 20;
    /// Record of [`EventKind::Quiet`](crate::EventKind::Quiet).
    pub const QUIET: u8 = 21;
    /// Record of [`EventKind::Access`](crate::EventKind::Access).
    pub const ACCESS: u8 = 22;
    /// Record of [`EventKind::Path`](crate::EventKind::Path).
    pub const PATH: u8 = 23;
    // From here to `PLACE`: definitions, which are not items of their own.
    /// Definition of a [`Module`](crate::Module).
    pub const MODULE: u8 = 24;
    /// Definition of a stack, a list of [`Frame`](crate::Frame)s.
    pub const STACK: u8 = 25;
    /// Definition of a [`PmFile`](crate::PmFile).
    pub const FILE: u8 = 26;
    /// Record of [`Incomplete`](crate::Incomplete).
    pub const INCOMPLETE: u8 = 27;
    /// Record of [`ProgramEnd`](crate::ProgramEnd) and [`Counts`](crate::Counts). It is the last record of a
    /// trace.
    pub const END: u8 = 28;
    /// Record of [`LeftOut`](crate::LeftOut).
    pub const LEFT_OUT: u8 = 29;
    /// Definition of a [`Module`](crate::Module) that stands for a place of source code.
    pub const PLACE: u8 = 30;
    /// The kind is in a byte of its own, after the parts that the first byte announces. It is one of those
    /// from 32 on.
    pub const EXTENDED: u8 = 31;

    // From here on: kinds of extended records.
    /// Record of [`EventKind::Annotation`](crate::EventKind::Annotation).
    pub const ANNOTATION: u8 = 32;
    /// Record of [`EventKind::ProcessEnd`](crate::EventKind::ProcessEnd) of a process that was killed.
    pub const PROCESS_KILLED: u8 = 33;
    /// Record of [`EventKind::Return`](crate::EventKind::Return).
    pub const RETURN: u8 = 34;
    /// Beginning of the next event, if other events came after it: the number of events from its beginning to
    /// its position. It is not an item of its own.
    pub const BEGUN: u8 = 35;
    /// Says of a thread that a sync or an operation of its own on a file begins before the event after it. No item of its own.
    pub const BEGINS: u8 = 36;

    /// Bits of the first byte that hold the kind.
    pub const KIND: u8 = 0x1f;
    /// Bit of the first byte: the thread is not that of the record before, and follows.
    pub const NEW_THREAD: u8 = 0x20;
    /// Bit of the first byte: the stack is not that of the record before, and follows.
    pub const NEW_STACK: u8 = 0x40;
    /// Bit of the first byte: the file is not that of the record before, and follows.
    pub const NEW_FILE: u8 = 0x80;
}

/// Bit of a store's length byte: a byte of flags follows.
pub(crate) const STORE_HAS_FLAGS: u8 = 0x80;
/// Bit of a store's flags: [`StoreFlags::nontemporal`](crate::StoreFlags::nontemporal).
pub(crate) const STORE_NONTEMPORAL: u8 = 1;
/// Bit of a store's flags: [`StoreFlags::locked`](crate::StoreFlags::locked).
pub(crate) const STORE_LOCKED: u8 = 2;
/// Bit of a store's flags: [`StoreFlags::syscall`](crate::StoreFlags::syscall).
pub(crate) const STORE_SYSCALL: u8 = 4;
/// Bit of a store's flags: [`StoreFlags::exchange`](crate::StoreFlags::exchange).
pub(crate) const STORE_EXCHANGE: u8 = 8;

/// Bit of a file's flags: the program made the file.
pub(crate) const FILE_CREATED: u8 = 1;
/// Bit of a file's flags: it stands for memory that the program registered as persistent.
pub(crate) const FILE_REGISTERED_MEMORY: u8 = 2;
/// Bit of a file's flags: it stands for memory whose content is not known.
pub(crate) const FILE_UNKNOWN_MEMORY: u8 = 4;

/// The values in the previous records of the block, against which the next record is coded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    pub thread: Option<ThreadId>,
    pub stack: Option<StackId>,
    pub file: Option<FileId>,
    pub offset: u64,
    /// Node of the last access.
    pub node: u64,
}

/// Appends a LEB128 varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The signed number as an unsigned one that is small if its absolute value is small.
pub(crate) fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a length and the text, cut to [`MAX_TEXT`] between characters.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
}

/// A defect of a record or block in words, for [`crate::ReadError`].
pub type Defect = &'static str;

const SHORT: Defect = "a record runs over the end of its block";

/// Reads what the `put_*` functions wrote.
pub(crate) struct Input<'a> {
    pub data: &'a [u8],
    /// Index in `data` of the next byte.
    pub at: usize,
}

impl<'a> Input<'a> {
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Defect> {
        let byte = *self.data.get(self.at).ok_or(SHORT)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Defect> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first as u64);
        }
        let mut value = (first & 0x7f) as u64;
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = (byte & 0x7f) as u64;
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number does not fit in 64 bits")
    }

    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Result<u32, Defect> {
        u32::try_from(self.varint()?).map_err(|_| "a number does not fit in 32 bits")
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Defect> {
        let bytes = self.data.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(SHORT)?;
        self.at += len;
        Ok(bytes)
    }

    /// A number of eight bytes: a digest, which a varint would not make shorter.
    pub(crate) fn u64(&mut self) -> Result<u64, Defect> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| SHORT)?))
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Defect> {
        let len = self.varint()?;
        if len > max as u64 {
            return Err("a length is out of bounds");
        }
        self.take(len as usize)
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<&'a str, Defect> {
        str::from_utf8(self.bytes(max)?).map_err(|_| "text is not UTF-8")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }
}

/// The checksum of a file header. Since version 3 it covers the version too, so that a damaged version is
/// found that happens to be another one that can be read.
pub(crate) fn header_crc(version: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if version >= 3 {
        hasher.update(&version.to_le_bytes());
    }
    hasher.update(body);
    hasher.finalize()
}

/// The bytes of a whole file header; `None` if the command line is too long for one.
pub fn encode_header(header: &Header) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    put_list(&mut body, &header.command);
    let flags = header.options.client_requests as u64 | (header.options.locked_rmw as u64) << 1;
    put_varint(&mut body, flags);
    put_list(&mut body, &header.options.pm);
    if body.len() > MAX_HEADER {
        return None;
    }
    let mut out = Vec::with_capacity(FIXED_HEADER + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&header_crc(VERSION, &body).to_le_bytes());
    out.extend_from_slice(&body);
    Some(out)
}

fn put_list(out: &mut Vec<u8>, list: &[String]) {
    put_varint(out, list.len() as u64);
    for text in list {
        put_bytes(out, text.as_bytes());
    }
}

/// Reads the body of a file header, whose checksum has been verified. Bytes after the known fields belong to
/// later versions.
pub(crate) fn decode_header(body: &[u8]) -> Result<Header, Defect> {
    let mut input = Input { data: body, at: 0 };
    let command = take_list(&mut input)?;
    let flags = input.varint()?;
    let pm = take_list(&mut input)?;
    let options = Options {
        client_requests: flags & 1 != 0,
        locked_rmw: flags & 2 != 0,
        pm,
    };
    Ok(Header { command, options })
}

fn take_list(input: &mut Input) -> Result<Vec<String>, Defect> {
    let count = input.varint()?;
    // Each text takes a byte at least, so a false count ends at the end of the header.
    (0..count).map(|_| input.text(MAX_HEADER).map(String::from)).collect()
}

/// The fixed part before a block's compressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Length of the records before compression, in bytes.
    pub raw_len: u32,
    /// Length of the records after compression, in bytes.
    pub packed_len: u32,
    /// Number of events in the block.
    pub events: u32,
    /// Sequence number of the first event in the block, or of the next one if the block has no event.
    pub first_seq: u64,
    /// CRC-32 of the compressed bytes.
    pub payload_crc: u32,
}

impl BlockHeader {
    /// The bytes of the header, with the marker and its own checksum.
    pub fn encode(&self) -> [u8; BLOCK_HEADER] {
        let mut out = [0; BLOCK_HEADER];
        out[..4].copy_from_slice(&BLOCK_MARKER);
        out[4..8].copy_from_slice(&self.raw_len.to_le_bytes());
        out[8..12].copy_from_slice(&self.packed_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.events.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        out[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header and checks its marker, its checksum and its lengths.
    pub fn decode(bytes: &[u8; BLOCK_HEADER]) -> Result<BlockHeader, Defect> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != BLOCK_MARKER {
            return Err("no block begins here");
        }
        if u32_at(28) != crc32fast::hash(&bytes[..28]) {
            return Err("the checksum of the block's header is wrong");
        }
        let header = BlockHeader {
            raw_len: u32_at(4),
            packed_len: u32_at(8),
            events: u32_at(12),
            first_seq: u32_at(16) as u64 | (u32_at(20) as u64) << 32,
            payload_crc: u32_at(24),
        };
        if header.raw_len as usize > MAX_BLOCK || header.packed_len as usize > max_packed(MAX_BLOCK) {
            return Err("the block's length is out of bounds");
        }
        Ok(header)
    }
}

fn max_packed(raw: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(raw)
}

/// Compresses the records `raw` into a whole block, which replaces the content of `out`.
pub fn seal_block(raw: &[u8], first_seq: u64, events: u32, out: &mut Vec<u8>) {
    out.resize(BLOCK_HEADER + max_packed(raw.len()), 0);
    let packed_len = lz4_flex::block::compress_into(raw, &mut out[BLOCK_HEADER..])
        .expect("the output has the room that the compressor asked for");
    out.truncate(BLOCK_HEADER + packed_len);
    let header = BlockHeader {
        raw_len: raw.len() as u32,
        packed_len: packed_len as u32,
        events,
        first_seq,
        payload_crc: crc32fast::hash(&out[BLOCK_HEADER..]),
    };
    out[..BLOCK_HEADER].copy_from_slice(&header.encode());
}

/// Decompresses the records of a block from its header and the bytes after it. They replace the content of
/// `raw`.
pub fn open_block(header: &BlockHeader, packed: &[u8], raw: &mut Vec<u8>) -> Result<(), Defect> {
    if crc32fast::hash(packed) != header.payload_crc {
        return Err("the checksum of the block is wrong");
    }
    raw.resize(header.raw_len as usize, 0);
    match lz4_flex::block::decompress_into(packed, raw) {
        Ok(len) if len == raw.len() => Ok(()),
        _ => Err("the block cannot be decompressed"),
    }
}
