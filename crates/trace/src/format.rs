//! The bytes of a trace file, shared by the writer and the reader. `docs/trace-format.md` is the description to read first.
//!
//! A file is a header, then blocks. A block is self-contained but for the ids defined in earlier blocks: the state that
//! records are coded against ([`Context`]) starts anew in each. Every length is bounded, so that a reader never
//! allocates more than a block whatever a file claims.

use crate::event::{FileId, StackId, ThreadId};

/// The first byte is not ASCII, so that no text file is taken for a trace.
pub const MAGIC: [u8; 8] = *b"\x93crashpf";
pub const VERSION: u32 = 4;
/// The oldest version that can be read. Version 1 does not say which files the program made; versions before 3 have no
/// dependences, versions before 4 do not name the files that were left out, have annotations as calls, and say what a module or file stands for in its path.
pub const OLDEST_VERSION: u32 = 1;
/// Magic, version, length of the body, checksum of the body.
pub const FIXED_HEADER: usize = 20;
/// More than the kernel lets a command line have.
pub const MAX_HEADER: usize = 16 << 20;

pub const BLOCK_MARKER: [u8; 4] = *b"\x93BLK";
pub const BLOCK_HEADER: usize = 32;
/// A block is closed when it holds this much.
pub const BLOCK_TARGET: usize = 256 << 10;
/// No record makes a block larger than this, before compression.
pub const MAX_BLOCK: usize = BLOCK_TARGET + (128 << 10);
/// The file ends in this many zeros while it is being written: room, already allocated, for the block that says that the
/// disk is full.
pub const RESERVE: usize = 4096;

pub const MAX_STORE: usize = 64;
/// Longer data (initial contents, writes, output) is cut into several records.
pub const MAX_DATA: usize = 64 << 10;
/// Longer text is cut.
pub const MAX_TEXT: usize = 16 << 10;
pub const MAX_BUILD_ID: usize = 64;
pub const MAX_STACK_FRAMES: usize = 1024;
/// Of one access; many times what a label holds.
pub const MAX_DEPENDENCES: usize = 4096;
/// File offsets and sizes fit in `off_t`, so that a reader may add a length to an offset without overflow.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// What was recorded, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub command: Vec<String>,
    pub options: Options,
}

/// The options of the recording that change what an analysis may conclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// pmemcheck's client requests were answered.
    pub client_requests: bool,
    /// Locked read-modify-writes on volatile memory are in the trace.
    pub locked_rmw: bool,
    /// Patterns of the files taken for PM; none: every shared, writable file mapping.
    pub pm: Vec<String>,
}

/// Low five bits of a record's first byte. The bits above say which fields of the [`Context`] change.
pub mod tag {
    pub const STORE: u8 = 1;
    pub const CLWB: u8 = 2;
    pub const CLFLUSHOPT: u8 = 3;
    pub const CLFLUSH: u8 = 4;
    pub const SFENCE: u8 = 5;
    pub const MFENCE: u8 = 6;
    pub const LOCKED_FENCE: u8 = 7;
    pub const MAP: u8 = 8;
    pub const UNMAP: u8 = 9;
    pub const RESIZE: u8 = 10;
    pub const FILE_WRITE: u8 = 11;
    pub const RENAME: u8 = 12;
    pub const SYNC: u8 = 13;
    pub const OUTPUT: u8 = 14;
    pub const CALL: u8 = 15;
    pub const REQUEST: u8 = 16;
    pub const THREAD_START: u8 = 17;
    pub const PROCESS_START: u8 = 18;
    pub const PROCESS_END: u8 = 19;
    pub const INITIAL: u8 = 20;
    pub const QUIET: u8 = 21;
    pub const ACCESS: u8 = 22;
    pub const PATH: u8 = 23;
    /// From here on: definitions, which are no items of their own.
    pub const MODULE: u8 = 24;
    pub const STACK: u8 = 25;
    pub const FILE: u8 = 26;
    pub const INCOMPLETE: u8 = 27;
    pub const END: u8 = 28;
    pub const LEFT_OUT: u8 = 29;

    pub const PLACE: u8 = 30;
    /// The kind is in a byte of its own, after what the first byte announces. It is one of those below.
    pub const EXTENDED: u8 = 31;

    /// From here on: kinds that an extended record has.
    pub const ANNOTATION: u8 = 32;
    pub const PROCESS_KILLED: u8 = 33;
    pub const RETURN: u8 = 34;
    /// Says of the event after it how many events before its own position it began. No item of its own.
    pub const BEGUN: u8 = 35;

    pub const KIND: u8 = 0x1f;
    pub const NEW_THREAD: u8 = 0x20;
    pub const NEW_STACK: u8 = 0x40;
    pub const NEW_FILE: u8 = 0x80;
}

/// Set in a store's length byte when a byte of flags follows.
pub const STORE_HAS_FLAGS: u8 = 0x80;
pub const STORE_NONTEMPORAL: u8 = 1;
pub const STORE_LOCKED: u8 = 2;
pub const STORE_SYSCALL: u8 = 4;
pub const STORE_EXCHANGE: u8 = 8;

/// A bit of a file's flags: the program made it.
pub const FILE_CREATED: u8 = 1;
/// It stands for memory that the program registered as persistent.
pub const FILE_REGISTERED_MEMORY: u8 = 2;
/// It stands for memory whose content is not known.
pub const FILE_UNKNOWN_MEMORY: u8 = 4;

/// What the previous records of the block said, against which the next one is coded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub thread: Option<ThreadId>,
    pub stack: Option<StackId>,
    pub file: Option<FileId>,
    pub offset: u64,
    /// Of the last access.
    pub node: u64,
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Cut to `MAX_TEXT`, at a character.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
}

/// What is wrong with a record, for [`crate::ReadError`].
pub type Defect = &'static str;

const SHORT: Defect = "a record runs over the end of its block";

/// Reads what the `put_*` functions wrote.
pub struct Input<'a> {
    pub data: &'a [u8],
    pub at: usize,
}

impl<'a> Input<'a> {
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Defect> {
        let byte = *self.data.get(self.at).ok_or(SHORT)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, Defect> {
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
    pub fn varint_u32(&mut self) -> Result<u32, Defect> {
        u32::try_from(self.varint()?).map_err(|_| "a number does not fit in 32 bits")
    }

    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Defect> {
        let bytes = self.data.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(SHORT)?;
        self.at += len;
        Ok(bytes)
    }

    /// Eight bytes: for digests, which no varint makes shorter.
    pub fn u64(&mut self) -> Result<u64, Defect> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| SHORT)?))
    }

    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], Defect> {
        let len = self.varint()?;
        if len > max as u64 {
            return Err("a length is out of bounds");
        }
        self.take(len as usize)
    }

    pub fn text(&mut self, max: usize) -> Result<&'a str, Defect> {
        str::from_utf8(self.bytes(max)?).map_err(|_| "text is not UTF-8")
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }
}

/// Of the version too, since version 3: a version that was damaged into another one that can be read is found.
pub fn header_crc(version: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if version >= 3 {
        hasher.update(&version.to_le_bytes());
    }
    hasher.update(body);
    hasher.finalize()
}

/// The whole file header; `None` if the command line is too long for one.
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

/// The body of a file header, its checksum verified. Bytes after the known fields are left to later versions.
pub fn decode_header(body: &[u8]) -> Result<Header, Defect> {
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
    pub raw_len: u32,
    pub packed_len: u32,
    pub events: u32,
    pub first_seq: u64,
    pub payload_crc: u32,
}

impl BlockHeader {
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

/// Compresses `raw` into a whole block, which replaces what `out` held.
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

/// The inverse of [`seal_block`], given the header and the bytes after it; `raw` is replaced.
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
