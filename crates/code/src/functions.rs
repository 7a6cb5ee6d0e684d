//! Where functions begin and end: from the unwind tables, then from symbols. What neither covers is a gap.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr, UnwindSection};
use libc::Elf64_Sym;

use crate::modules::{Module, bytes};

pub(crate) type Reader = EndianSlice<'static, LittleEndian>;

const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// The unwind tables of a mapped module.
pub(crate) struct UnwindTables {
    pub header: ParsedEhFrameHdr<Reader>,
    pub frames: EhFrame<Reader>,
    pub bases: BaseAddresses,
}

impl UnwindTables {
    /// # Safety
    /// The module is, and stays, mapped.
    pub(crate) unsafe fn of(module: &Module) -> Option<UnwindTables> {
        let range = module.eh_frame_hdr.clone()?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(range.start as u64);
        // SAFETY: within a mapped segment, as checked when the module was read.
        let header = EhFrameHdr::new(unsafe { bytes(range) }, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let frames = header.eh_frame_ptr().direct().ok()? as usize;
        // The header does not say how long the section is; the sorted table leads to entries, never past the last.
        // SAFETY: the caller's promise.
        let frames_bytes = unsafe { module.bytes_from(frames) }?;
        let bases = bases.set_eh_frame(frames as u64);
        Some(UnwindTables {
            header,
            frames: EhFrame::new(frames_bytes, LittleEndian),
            bases,
        })
    }

    pub(crate) fn function_at(&self, address: usize) -> Option<Range<usize>> {
        let table = self.header.table()?;
        let entry = table
            .fde_for_address(&self.frames, &self.bases, address as u64, EhFrame::cie_from_offset)
            .ok()?;
        Some(entry.initial_address() as usize..entry.end_address() as usize)
    }

    fn functions(&self) -> Vec<Range<usize>> {
        let Some(table) = self.header.table() else {
            return Vec::new();
        };
        let mut entries = table.iter(&self.bases);
        let mut functions = Vec::new();
        while let Ok(Some((_, entry))) = entries.next() {
            let function = table.pointer_to_offset(entry).and_then(|offset| {
                self.frames
                    .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            });
            if let Ok(function) = function {
                functions.push(function.initial_address() as usize..function.end_address() as usize);
            }
        }
        functions
    }
}

/// A stretch of code that is decoded from its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub range: Range<usize>,
    /// A function begins at the first byte and ends with the last.
    pub is_function: bool,
}

/// The known functions of a module, disjoint and sorted, and the data known to lie between them.
#[derive(Default)]
pub(crate) struct Functions {
    functions: Vec<Range<usize>>,
    /// Where code is known to begin without its end being known.
    starts: Vec<usize>,
    data: Vec<Range<usize>>,
}

impl Functions {
    /// # Safety
    /// The module is mapped.
    pub(crate) unsafe fn of(module: &Module, symbols_of_file: &[Elf64_Sym]) -> Functions {
        // SAFETY: the caller's promise.
        let (tables, dynamic) = unsafe { (UnwindTables::of(module), module.dynamic_symbols()) };
        let from_tables = tables.map(|tables| tables.functions()).unwrap_or_default();
        Functions::new(from_tables, symbols_of_file.iter().chain(dynamic), module.bias)
    }

    fn new<'s>(from_tables: Vec<Range<usize>>, symbols: impl Iterator<Item = &'s Elf64_Sym>, bias: usize) -> Functions {
        let mut functions = Functions {
            functions: disjoint(from_tables),
            ..Functions::default()
        };
        let mut from_symbols = Vec::new();
        for symbol in symbols.filter(|symbol| symbol.st_shndx != 0) {
            let start = bias.wrapping_add(symbol.st_value as usize);
            let range = start..start.saturating_add(symbol.st_size as usize);
            match symbol.st_info & 0xf {
                STT_FUNC | STT_GNU_IFUNC if range.is_empty() => functions.starts.push(start),
                STT_FUNC | STT_GNU_IFUNC => from_symbols.push(range),
                STT_OBJECT if !range.is_empty() => functions.data.push(range),
                _ => (),
            }
        }
        let mut extra = Vec::new();
        for symbol in disjoint(from_symbols) {
            let next = functions
                .functions
                .partition_point(|function| function.end <= symbol.start);
            match functions.functions.get(next) {
                Some(function) if function.start <= symbol.start => (),
                Some(function) => extra.push(symbol.start..symbol.end.min(function.start)),
                None => extra.push(symbol),
            }
        }
        functions.functions.extend(extra);
        functions.functions.sort_by_key(|function| function.start);
        functions.starts.sort_unstable();
        functions.starts.dedup();
        functions.data = disjoint(std::mem::take(&mut functions.data));
        functions
    }

    /// Cuts `region` into functions and gaps, leaving out known data.
    pub(crate) fn chunks(&self, region: Range<usize>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut position = region.start;
        let first = self.functions.partition_point(|function| function.end <= region.start);
        for function in self.functions[first..]
            .iter()
            .take_while(|function| function.start < region.end)
        {
            self.gap(position..function.start, &mut chunks);
            let range = function.start.max(region.start)..function.end.min(region.end);
            position = range.end;
            chunks.push(Chunk {
                range,
                is_function: true,
            });
        }
        self.gap(position..region.end, &mut chunks);
        chunks
    }

    fn gap(&self, gap: Range<usize>, chunks: &mut Vec<Chunk>) {
        let mut position = gap.start;
        let mut code_until = |end: usize, chunks: &mut Vec<Chunk>, next: usize| {
            if position < end {
                chunks.push(Chunk {
                    range: position..end,
                    is_function: false,
                });
            }
            position = next;
        };
        let starts = within(&self.starts, &gap, |start| *start)
            .iter()
            .map(|start| *start..*start);
        let data = within(&self.data, &gap, |data| data.start).iter().cloned();
        let mut cuts: Vec<_> = starts.chain(data).collect();
        cuts.sort_by_key(|cut| cut.start);
        for cut in cuts {
            code_until(cut.start, chunks, cut.end.max(cut.start));
        }
        code_until(gap.end, chunks, gap.end);
    }
}

/// Of a sorted table, what begins in a range.
fn within<'t, T>(table: &'t [T], range: &Range<usize>, start: impl Fn(&T) -> usize) -> &'t [T] {
    let first = table.partition_point(|item| start(item) < range.start);
    let length = table[first..].partition_point(|item| start(item) < range.end);
    &table[first..first + length]
}

/// Sorts ranges and takes away overlaps: of two that begin together the longer stays, otherwise the later one begins a new
/// range.
fn disjoint(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    ranges.dedup_by_key(|range| range.start);
    let mut result: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match result.last_mut() {
            // An alias for a part of a function is not a function.
            Some(last) if range.end <= last.end => (),
            Some(last) => {
                last.end = last.end.min(range.start);
                result.push(range);
            }
            None => result.push(range),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(kind: u8, value: u64, size: u64) -> Elf64_Sym {
        Elf64_Sym {
            st_name: 0,
            st_info: kind,
            st_other: 0,
            st_shndx: 1,
            st_value: value,
            st_size: size,
        }
    }

    #[test]
    fn tables_come_before_symbols_and_symbols_before_gaps() {
        let symbols = [
            symbol(STT_FUNC, 15, 10),
            symbol(STT_FUNC, 30, 20),
            symbol(STT_FUNC, 30, 5),
            symbol(STT_OBJECT, 60, 8),
            symbol(STT_FUNC, 75, 0),
        ];
        let functions = Functions::new(vec![10..20, 40..45], symbols.iter(), 0);
        let chunk = |start, end, is_function| Chunk {
            range: start..end,
            is_function,
        };
        let expected = [
            chunk(12, 20, true),
            chunk(20, 30, false),
            chunk(30, 40, true),
            chunk(40, 45, true),
            chunk(45, 60, false),
            chunk(68, 75, false),
            chunk(75, 80, false),
        ];
        assert_eq!(functions.chunks(12..80), expected);
    }

    #[test]
    fn no_overlap_survives() {
        assert_eq!(disjoint(vec![0..10, 0..4, 5..7, 8..20, 30..30]), [0..8, 8..20]);
    }
}
