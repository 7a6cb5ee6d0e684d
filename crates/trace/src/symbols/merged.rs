//! Instructions that gcc made from several statements. Its line table then has three rows for one address: a
//! statement begins at line 4, a statement begins at line 5, and line 4 again without the beginning of a
//! statement. The instruction is credited to the last row. If no instruction is credited to line 5 anywhere,
//! the store of line 5 is in this one.

use std::ops::Range;
use std::path::Path;

use addr2line::gimli::{self, DebugLine, DebugLineOffset, EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ReadCache};
use rustc_hash::FxHashSet;

use super::debug_files::open_regular;

/// Address ranges of merged instructions in a module, sorted.
#[derive(Default)]
pub(super) struct MergedStores(Vec<Range<u64>>);

/// A line of a source file, by the file's number in its line program.
type Line = (u64, u64);

#[derive(Clone, Copy)]
struct Row {
    address: u64,
    line: Line,
    begins_statement: bool,
}

impl MergedStores {
    /// Reads the line tables of a file. A part that cannot be read adds nothing.
    pub(super) fn read(file: &Path) -> MergedStores {
        let mut merged = MergedStores::default();
        // The caller has warned of debug info that it could not read.
        let _ = merged.add(file);
        merged.0.sort_by_key(|range| range.start);
        merged
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        let before = self.0.partition_point(|range| range.start <= address);
        before > 0 && self.0[before - 1].contains(&address)
    }

    fn add(&mut self, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let cache = ReadCache::new(open_regular(file)?);
        let object = object::File::parse(&cache)?;
        let Some(section) = object.section_by_name(".debug_line") else {
            return Ok(());
        };
        let data = section.uncompressed_data()?;
        let lines = DebugLine::new(&data, LittleEndian);
        let mut offset = 0;
        while let Some(length) = unit_length(data.get(offset..).unwrap_or_default()) {
            let program = lines.program(DebugLineOffset(offset), 8, None, None)?;
            self.add_program(program)?;
            offset += length;
        }
        Ok(())
    }

    fn add_program(
        &mut self,
        program: gimli::IncompleteLineProgram<EndianSlice<LittleEndian>>,
    ) -> Result<(), gimli::Error> {
        let mut rows = program.rows();
        let mut sequence: Vec<Row> = Vec::new();
        while let Some((_, row)) = rows.next_row()? {
            if row.end_sequence() {
                self.add_sequence(&sequence, row.address());
                sequence.clear();
            } else {
                sequence.push(Row {
                    address: row.address(),
                    line: (row.file_index(), row.line().map_or(0, |line| line.get())),
                    begins_statement: row.is_stmt(),
                });
            }
        }
        Ok(())
    }

    fn add_sequence(&mut self, rows: &[Row], end: u64) {
        let groups = || rows.chunk_by(|a, b| a.address == b.address);
        // The code after a group of rows is credited to the last of them.
        let credited: FxHashSet<Line> = groups().filter_map(|group| group.last()).map(|row| row.line).collect();
        let ends = groups().skip(1).map(|group| group[0].address).chain([end]);
        for (group, end) in groups().zip(ends) {
            let [first @ .., last] = group else { continue };
            let mut own = first.iter().skip_while(|row| row.line != last.line);
            let other = |row: &Row| {
                row.begins_statement && row.line.0 == last.line.0 && row.line.1 != 0 && !credited.contains(&row.line)
            };
            if !last.begins_statement && own.any(other) {
                self.0.push(last.address..end);
            }
        }
    }
}

/// The length of the line program at the start of `data`, with its length field.
fn unit_length(data: &[u8]) -> Option<usize> {
    let word = u32::from_le_bytes(*data.first_chunk()?);
    let length = match word {
        0xffff_ffff => usize::try_from(u64::from_le_bytes(*data.get(4..)?.first_chunk()?))
            .ok()?
            .checked_add(12)?,
        0xffff_fff0.. => return None,
        length => length as usize + 4,
    };
    (length <= data.len()).then_some(length)
}
