//! The bytes of a module, by address, and the functions of other modules that it calls.

use std::ops::Range;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};
use object::{
    Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, ReadCache, RelocationTarget, SectionKind, SymbolKind,
};
use rustc_hash::FxHashMap;

/// Code beyond this is not read.
const LARGEST: u64 = 512 << 20;

pub struct Code {
    /// Code and read-only data, by address.
    sections: Vec<(u64, Vec<u8>, bool)>,
    /// Functions by the address of the slot that the loader fills with theirs.
    externals: FxHashMap<u64, String>,
}

impl Code {
    pub fn read(path: &Path) -> Option<Code> {
        let cache = ReadCache::new(crashproof_trace::symbols::open_regular(path).ok()?);
        let object = object::File::parse(&cache).ok()?;
        if object.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let mut sections = Vec::new();
        let mut size: u64 = 0;
        for section in object.sections() {
            let is_code = section.kind() == SectionKind::Text;
            let is_read = is_code
                || matches!(
                    section.kind(),
                    SectionKind::ReadOnlyData | SectionKind::ReadOnlyDataWithRel
                );
            if is_read && section.address() != 0 {
                size = section.size().saturating_add(size);
                if size > LARGEST {
                    return None;
                }
                sections.push((section.address(), section.data().ok()?.to_vec(), is_code));
            }
        }
        let symbols = object.dynamic_symbol_table();
        let relocations = object.dynamic_relocations().into_iter().flatten();
        let externals = relocations.filter_map(|(slot, relocation)| match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let name = symbols.as_ref()?.symbol_by_index(index).ok()?.name().ok()?.to_owned();
                Some((slot, name))
            }
            _ => None,
        });
        Some(Code {
            externals: externals.collect(),
            sections,
        })
    }

    fn bytes(&self, address: u64) -> Option<&[u8]> {
        self.sections.iter().find_map(|(start, data, _)| {
            let skipped = usize::try_from(address.checked_sub(*start)?).ok()?;
            data.get(skipped..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// All instructions of a range, one after the other.
    pub fn instructions(&self, range: &Range<u64>) -> Vec<Instruction> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let bytes = self.bytes(range.start).unwrap_or_default();
        let bytes = &bytes[..length.min(bytes.len())];
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        let mut found = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            found.push(instruction);
        }
        found
    }

    /// Which function of another module is called by jumping to an address, or to what a slot holds.
    pub fn external(&self, target: u64) -> Option<&str> {
        if let Some(name) = self.externals.get(&target) {
            return Some(name);
        }
        // A stub of the procedure linkage table.
        let bytes = self.bytes(target)?;
        let mut decoder = Decoder::with_ip(64, &bytes[..bytes.len().min(16)], target, DecoderOptions::NONE);
        let mut jump = decoder.decode();
        if jump.mnemonic() == Mnemonic::Endbr64 {
            jump = decoder.decode();
        }
        let is_stub =
            jump.mnemonic() == Mnemonic::Jmp && jump.op0_kind() == OpKind::Memory && jump.is_ip_rel_memory_operand();
        is_stub.then(|| self.externals.get(&jump.ip_rel_memory_address()).map(String::as_str))?
    }

    /// Code addresses in a table of them at `table`, as `switch` is compiled to: distances from the table (position-independent code), or the
    /// addresses themselves. Those that are within the code that `is_target` knows.
    pub fn jump_table(&self, table: u64, is_target: impl Fn(u64) -> bool) -> Vec<u64> {
        let Some(bytes) = self.bytes(table) else {
            return Vec::new();
        };
        let distances = bytes.chunks_exact(4).map(|entry| {
            let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            table.wrapping_add_signed(distance.into())
        });
        let addresses = bytes
            .chunks_exact(8)
            .map(|entry| entry.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)));
        let distances: Vec<u64> = distances.take_while(|&target| is_target(target)).collect();
        match distances.is_empty() {
            true => addresses.take_while(|&target| is_target(target)).collect(),
            false => distances,
        }
    }

    /// Whether the loader puts the address of a function or variable there.
    pub fn is_slot(&self, address: u64) -> bool {
        self.externals.contains_key(&address)
    }

    /// Whether an address is in the code, or in data that is only read.
    pub fn contains(&self, address: u64) -> bool {
        self.bytes(address).is_some()
    }

    pub fn is_data(&self, address: u64) -> bool {
        self.sections.iter().any(|(start, data, is_code)| {
            !is_code && (*start..start.saturating_add(data.len() as u64)).contains(&address)
        })
    }
}

/// The functions of a module: where the code of each is, and its name.
pub struct Symbols(Vec<(Range<u64>, String)>);

impl Symbols {
    /// From the symbol tables of these files, which are of one module. What cannot be read adds nothing.
    pub fn read<'p>(files: impl Iterator<Item = &'p Path>) -> Symbols {
        let mut all = Vec::new();
        for file in files {
            let Ok(file) = crashproof_trace::symbols::open_regular(file) else {
                continue;
            };
            let cache = ReadCache::new(file);
            let Ok(object) = object::File::parse(&cache) else {
                continue;
            };
            for symbol in object.symbols().chain(object.dynamic_symbols()) {
                if symbol.kind() == SymbolKind::Text
                    && symbol.is_definition()
                    && symbol.size() > 0
                    && let Ok(name) = symbol.name()
                {
                    let end = symbol.address().saturating_add(symbol.size());
                    all.push((symbol.address()..end, name.to_owned()));
                }
            }
        }
        all.sort_by(|(a, name), (b, other)| (a.start, a.end, name).cmp(&(b.start, b.end, other)));
        all.dedup_by_key(|(range, _)| range.start);
        Symbols(all)
    }

    pub fn all(&self) -> impl Iterator<Item = (&Range<u64>, &str)> {
        self.0.iter().map(|(range, name)| (range, name.as_str()))
    }

    /// Where the function by that name is.
    pub fn named(&self, name: &str) -> Option<u64> {
        self.all()
            .find(|(_, known)| *known == name)
            .map(|(range, _)| range.start)
    }

    /// The function that is entered at an address.
    pub fn starting_at(&self, address: u64) -> Option<(Range<u64>, &str)> {
        let (range, name) = self.0.get(self.0.partition_point(|(range, _)| range.start < address))?;
        (range.start == address).then(|| (range.clone(), name.as_str()))
    }

    /// The function that an address is in.
    pub fn around(&self, address: u64) -> Option<(Range<u64>, &str)> {
        let after = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, name) = self.0[..after].last()?;
        range.contains(&address).then(|| (range.clone(), name.as_str()))
    }
}
