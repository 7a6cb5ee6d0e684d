//! Stores that the optimiser made of several source lines.
//!
//! gcc's line table tells them ([`line_table`]). clang credits such a store to one of the lines and leaves no trace of the
//! others, so debug info alone does not tell. The source does, together with the types in the debug info: a store that is wider than what its
//! line assigns to ([`statement`], [`types`]) writes something of another line, too, unless it is a loop whose turns were
//! made one. Where a line may well write much (a structure, an array, `memset`), its neighbours are looked at: a line beside it
//! that assigns to memory and has no code at all must have gone somewhere.
//!
//! The last is a guess (such a line may also have been found to have no effect), hence "approximate". What is not understood,
//! or whose source is not there, is not marked.

mod line_table;
mod statement;
mod types;

use std::path::{Path, PathBuf};

use addr2line::Loader;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess};
use object::{Object, ObjectSection, ReadCache};
use rustc_hash::FxHashMap;

use super::SourceFrame;
use super::debug_files::open_regular;
use line_table::MergedByTable;
use statement::{Assigned, Statement};
use types::Types;

/// The longest instruction.
const LONGEST: u64 = 15;
/// Lines beside a store's own that are looked at, in either direction.
const NEIGHBOURS: usize = 4;
/// Source files beyond this are not read.
const LARGEST_SOURCE: u64 = 16 << 20;

/// What is known of the merged stores of a module. Read when it is first needed.
pub(super) struct Merged {
    by_table: MergedByTable,
    module: PathBuf,
    debug_file: PathBuf,
    types: Option<Option<Types>>,
    sources: FxHashMap<String, Vec<String>>,
}

impl Merged {
    pub fn new(module: &Path, debug_file: &Path) -> Merged {
        Merged {
            by_table: MergedByTable::read(debug_file),
            module: module.into(),
            debug_file: debug_file.into(),
            types: None,
            sources: FxHashMap::default(),
        }
    }

    /// Whether the store at this address, which the debug info credits to `frame`, is also of another line. Or the call: the
    /// optimiser makes `memset` and `memcpy` of lines that call nothing.
    pub fn contains(&mut self, address: u64, is_call: bool, frame: &SourceFrame, loader: &Loader) -> bool {
        (!is_call && self.by_table.contains(address))
            || self.is_wider_than_its_line(address, is_call, frame, loader) == Some(true)
    }

    fn is_wider_than_its_line(
        &mut self,
        address: u64,
        is_call: bool,
        frame: &SourceFrame,
        loader: &Loader,
    ) -> Option<bool> {
        let (file, line) = (frame.file.as_deref()?, frame.line? as usize);
        let width = match is_call {
            true => u64::MAX,
            false => store_width(&code_at(&self.module, address)?)?,
        };
        if width < 2 {
            return Some(false);
        }
        let Merged {
            types,
            debug_file,
            sources,
            ..
        } = self;
        let source = sources.entry(file.to_owned()).or_insert_with(|| read_source(file));
        let statement = Statement::parse(source.get(line.checked_sub(1)?)?);
        if is_call && statement.calls && !statement.fills {
            return Some(false);
        }
        let types = types.get_or_insert_with(|| Types::read(debug_file)).as_ref()?;
        let extents: Option<Vec<_>> = statement.assigned.iter().map(|a| types.extent(address, a)).collect();
        let extents = extents?;
        let size: u64 = extents.iter().map(|extent| extent.size).sum();
        let is_loop = extents
            .iter()
            .any(|extent| extent.stride.is_some_and(|stride| stride < width));
        if !statement.fills && size > 0 {
            // A structure may be copied by a call.
            if width > size && !is_loop && (!is_call || size <= 8) {
                return Some(true);
            }
            if size <= 8 && !is_loop {
                return Some(false);
            }
        } else if !statement.fills {
            return Some(false);
        }
        let function = types.function(address)?;
        let rows = loader.find_location_range(function.start, function.end).ok()?;
        let has_code: Vec<usize> = rows
            .filter(|(_, _, row)| row.file == Some(file))
            .filter_map(|(_, _, row)| row.line.map(|line| line as usize))
            .collect();
        let writes_memory = |assigned: &Assigned| {
            !assigned.steps.is_empty()
                && types
                    .extent(address, assigned)
                    .is_some_and(|extent| extent.stride.is_none())
        };
        // A line that assigns to memory, reached over lines without code only, and within a block.
        let vanished = |lines: &mut dyn Iterator<Item = usize>| {
            lines
                .take(NEIGHBOURS)
                .take_while(|line| !has_code.contains(line))
                .map_while(|line| source.get(line.checked_sub(1)?))
                .take_while(|text| !text.contains(['{', '}']))
                .any(|text| Statement::parse(text).assigned.iter().any(writes_memory))
        };
        Some(vanished(&mut (1..line).rev()) || vanished(&mut (line + 1..)))
    }
}

/// The instruction at the address, and perhaps some bytes behind it.
fn code_at(module: &Path, address: u64) -> Option<Vec<u8>> {
    let cache = ReadCache::new(open_regular(module).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let contains =
        |section: &object::Section<_>| (section.address()..section.address() + section.size()).contains(&address);
    let section = object.sections().find(contains)?;
    let length = LONGEST.min(section.address() + section.size() - address);
    section.data_range(address, length).ok()?.map(<[u8]>::to_vec)
}

/// How many bytes the instruction stores; as many as you like if it repeats.
fn store_width(code: &[u8]) -> Option<u64> {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.is_stack_instruction() {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let written = info.used_memory().iter().find(|memory| {
        matches!(
            memory.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    })?;
    if instruction.has_rep_prefix() {
        return Some(u64::MAX);
    }
    Some(written.memory_size().size() as u64)
}

/// The lines of a source file; none if it cannot be read.
fn read_source(file: &str) -> Vec<String> {
    let text = open_regular(Path::new(file))
        .and_then(|opened| opened.metadata())
        .ok()
        .filter(|metadata| metadata.len() <= LARGEST_SOURCE)
        .and_then(|_| std::fs::read(file).ok())
        .unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}
