//! The bytes of the sections that `crashproof cc` puts into an object file.
//!
//! `.crashproof.bc`, `.crashproof.sites` and `.crashproof.helpers` are sequences of frames: a header of [`HEADER`]
//! bytes (8 bytes of magic, then little-endian: u32 version, u32 zero, u64 object, u64 length of the payload), the
//! payload, zeroes up to a multiple of 8. Linkers concatenate such sections and may put zeroes in between. The payload
//! of a frame in `.crashproof.sites` is an [`ObjectTable`], the one in `.crashproof.helpers` a sequence of
//! [`JudgedFunction`]s, the one in `.crashproof.bc` the front end's bitcode.
//!
//! `.crashproof.pc` is a sequence of entries of [`PC_ENTRY`] bytes: u64 address, u64 object, u32 site, u32 zero. The address is
//! the linker's; that of code that was discarded is a tombstone, and the entry is of no use.

use crate::table::{JudgedFunction, ObjectTable};

pub const BITCODE: &str = ".crashproof.bc";
pub const SITES: &str = ".crashproof.sites";
/// Objects of earlier versions have none.
pub const HELPERS: &str = ".crashproof.helpers";
pub const PC: &str = ".crashproof.pc";
/// The allocated note by which the runtime finds the hooks: stripping never drops it.
pub const NOTE: &str = ".note.crashproof";

/// Changes with every change of what an [`ObjectTable`] is made of; a test knows the bytes of this one.
pub const VERSION: u32 = 1;
pub const HEADER: usize = 32;
pub const PC_ENTRY: usize = 24;

/// What a frame holds, and so which section it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Bitcode,
    Sites,
    Helpers,
}

impl Content {
    pub fn section(self) -> &'static str {
        match self {
            Content::Bitcode => BITCODE,
            Content::Sites => SITES,
            Content::Helpers => HELPERS,
        }
    }

    fn magic(self) -> [u8; 8] {
        match self {
            Content::Bitcode => *b"cpfbc\r\n\x1a",
            Content::Sites => *b"cpsite\n\x1a",
            Content::Helpers => *b"cphelp\n\x1a",
        }
    }
}

/// The header of a frame whose payload of `length` bytes the caller appends, with zeroes up to a multiple of 8.
pub fn header(content: Content, object: u64, length: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&content.magic());
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&object.to_le_bytes());
    bytes[24..].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// A whole frame.
pub fn frame(content: Content, object: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len() + 7);
    bytes.extend_from_slice(&header(content, object, payload.len() as u64));
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// The frame of a table.
pub fn table_frame(table: &ObjectTable) -> Vec<u8> {
    // Serialising into memory fails only for sequences of unknown length, of which a table has none.
    let payload = postcard::to_stdvec(table).expect("a table has no sequence of unknown length");
    frame(Content::Sites, table.object, &payload)
}

/// The frame of an object's judged functions.
pub fn judged_frame(object: u64, judged: &[JudgedFunction]) -> Vec<u8> {
    let payload = postcard::to_stdvec(judged).expect("a slice has a known length");
    frame(Content::Helpers, object, &payload)
}

/// The text of the inline assembly, without operands, that puts the address where it stands into `.crashproof.pc` and emits
/// no instruction. `${:uid}` is LLVM's: a label of its own for every copy of the assembly.
///
/// The section is linked to (`o`) and in the group of (`?`) the section with the code. Without it GNU ld drops all entries
/// under `--gc-sections` and refuses to link two objects with the same inline function, whose second copy is
/// discarded.
pub fn pc_assembly(object: u64, site: u32) -> String {
    let label = ".Lcrashproof_pc${:uid}";
    format!(
        "{label}:\n.pushsection {PC},\"o?\",@progbits,{label}\n.quad {label}\n.quad {object:#x}\n.long {site}\n.long 0\n.popsection"
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub object: u64,
    pub payload: &'a [u8],
}

/// What is wrong in a section, and at which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{defect} at offset {offset:#x}")]
pub struct Malformed {
    pub offset: u64,
    pub defect: Defect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("no frame of crashproof cc")]
    Magic,
    #[error("a frame of another version of crashproof ({0})")]
    Version(u32),
    #[error("a frame that is cut off")]
    Truncated,
    #[error("a table that cannot be decoded")]
    Table,
    #[error("a table whose indices lead nowhere")]
    Index,
    #[error("an address entry that is cut off")]
    PcTruncated,
}

/// The frames of a section, in order; ends after the first that is malformed.
pub fn frames(content: Content, section: &[u8]) -> Frames<'_> {
    Frames {
        content,
        section,
        offset: 0,
    }
}

pub struct Frames<'a> {
    content: Content,
    section: &'a [u8],
    offset: usize,
}

impl<'a> Frames<'a> {
    fn read(&mut self) -> Result<Frame<'a>, Defect> {
        let rest = &self.section[self.offset..];
        let (magic, rest) = rest.split_first_chunk::<8>().ok_or(Defect::Truncated)?;
        if *magic != self.content.magic() {
            return Err(Defect::Magic);
        }
        let (version, rest) = rest.split_first_chunk().ok_or(Defect::Truncated)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Defect::Version(version));
        }
        let (_, rest) = rest.split_first_chunk::<4>().ok_or(Defect::Truncated)?;
        let (object, rest) = rest.split_first_chunk().ok_or(Defect::Truncated)?;
        let (length, rest) = rest.split_first_chunk().ok_or(Defect::Truncated)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| Defect::Truncated)?;
        let payload = rest.get(..length).ok_or(Defect::Truncated)?;
        self.offset += HEADER + length;
        Ok(Frame {
            object: u64::from_le_bytes(*object),
            payload,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    /// With the offset of the frame in the section.
    type Item = Result<(u64, Frame<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        // No magic begins with a zero.
        let padding = self.section[self.offset..].iter().position(|&byte| byte != 0);
        self.offset = padding.map_or(self.section.len(), |skip| self.offset + skip);
        if self.offset == self.section.len() {
            return None;
        }
        let offset = self.offset as u64;
        let frame = self.read();
        if frame.is_err() {
            self.offset = self.section.len();
        }
        Some(
            frame
                .map(|frame| (offset, frame))
                .map_err(|defect| Malformed { offset, defect }),
        )
    }
}

/// Where in the code a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PcEntry {
    /// As debug info has it: relative to the module's load bias.
    pub address: u64,
    pub object: u64,
    pub site: u32,
}

/// The entries of `.crashproof.pc`, sorted by address, without those of discarded code.
pub fn pc_entries(section: &[u8]) -> Result<Vec<PcEntry>, Malformed> {
    let (entries, rest) = section.as_chunks::<PC_ENTRY>();
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Malformed {
            offset: (section.len() - rest.len()) as u64,
            defect: Defect::PcTruncated,
        });
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let mut entries: Vec<PcEntry> = entries
        .iter()
        .map(|entry| PcEntry {
            address: word(&entry[..8]),
            object: word(&entry[8..16]),
            site: word(&entry[16..]) as u32,
        })
        // Zero from GNU ld and lld, one from GNU ld in places, the two highest from lld on request.
        .filter(|entry| !matches!(entry.address, 0 | 1 | 0xffff_ffff_ffff_fffe | u64::MAX))
        .collect();
    entries.sort_unstable();
    entries.dedup();
    Ok(entries)
}
