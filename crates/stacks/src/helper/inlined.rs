//! Where a module's functions were inlined, and what each was given there: from its debug info.

use std::ops::Range;
use std::path::Path;

use gimli::{AttributeValue, DwarfSections, EndianSlice, LittleEndian, Operation, Unit, UnitHeader};
use object::{Object, ObjectSection, ReadCache};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;

/// Debug info beyond this is not read.
const LARGEST: u64 = 256 << 20;
/// No scopes nest deeper; debug info may be damaged.
const MAX_DEPTH: isize = 256;

pub(super) struct Inlines {
    sections: DwarfSections<Vec<u8>>,
    /// Where the code of each unit is, and where its header.
    units: Vec<(Range<u64>, usize)>,
    functions: RefCell<FxHashMap<usize, Arc<Vec<Function>>>>,
}

/// A function with code of its own.
struct Function {
    ranges: Vec<Range<u64>>,
    offset: usize,
    /// What it is an instance of: an entry of the unit.
    origin: Option<usize>,
}

/// A function that was inlined.
#[derive(Debug, Default)]
pub(super) struct Instance {
    pub ranges: Vec<Range<u64>>,
    pub parameters: Vec<Parameter>,
    /// Where the same function is as one of its own.
    pub out_of_line: Option<u64>,
}

/// Where one of its arguments is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameter {
    /// While the code is in this range; `None`: in all of it.
    pub range: Option<Range<u64>>,
    /// What these registers hold plus so much, or computed from that. By the numbers of DWARF.
    pub registers: Vec<(u16, i64)>,
    /// The same, as they were when the function around it was entered.
    pub entry: Vec<u16>,
    /// In memory, so far from what the register holds.
    pub memory: Vec<(u16, i64)>,
    /// In memory, so far from what the stack pointer was before the call.
    pub frame: Vec<i64>,
    pub constant: Option<i64>,
}

impl Inlines {
    /// `None`: cannot be read, or there is no debug info.
    pub(super) fn read(debug: &Path) -> Option<Inlines> {
        let cache = ReadCache::new(crashproof_trace::symbols::open_regular(debug).ok()?);
        let object = object::File::parse(&cache).ok()?;
        if object.section_by_name(".debug_info")?.size() > LARGEST {
            return None;
        }
        let sections = DwarfSections::load(|id| {
            let section = object.section_by_name(id.name());
            let data = section.and_then(|section| section.uncompressed_data().ok());
            Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
        })
        .ok()?;
        let mut units = Vec::new();
        let dwarf = sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.offset().as_debug_info_offset() else {
                continue;
            };
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Ok(mut ranges) = dwarf.unit_ranges(&unit) else {
                continue;
            };
            while let Ok(Some(range)) = ranges.next() {
                // What begins at 0 was left out by the linker.
                if range.begin != 0 && range.begin < range.end {
                    units.push((range.begin..range.end, offset.0));
                }
            }
        }
        Some(Inlines {
            sections,
            units,
            functions: RefCell::default(),
        })
    }

    /// The inlined functions that the code at an address is of, innermost first.
    pub(super) fn at(&self, address: u64) -> Option<Vec<Instance>> {
        let (_, header) = self.units.iter().find(|(range, _)| range.contains(&address))?;
        let dwarf = self.sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let header: UnitHeader<Slice> = dwarf
            .debug_info
            .header_from_offset(gimli::DebugInfoOffset(*header))
            .ok()?;
        let at = header.offset().as_debug_info_offset()?.0;
        let unit = dwarf.unit(header).ok()?;
        let known = self.functions.borrow().get(&at).cloned();
        let functions = known.unwrap_or_else(|| {
            let read = Arc::new(functions(&dwarf, &unit));
            self.functions.borrow_mut().insert(at, read.clone());
            read
        });
        let function = functions.iter().find(|function| is_in(&function.ranges, address))?;
        let mut instances = instances(&dwarf, &unit, function, address, &functions)?;
        instances.reverse();
        Some(instances)
    }
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

fn ranges_of<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<Slice<'a>>,
    entry: &gimli::DebuggingInformationEntry<'_, '_, Slice<'a>>,
) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    if let Ok(mut ranges) = dwarf.die_ranges(unit, entry) {
        while let Ok(Some(range)) = ranges.next() {
            if range.begin != 0 && range.begin < range.end {
                found.push(range.begin..range.end);
            }
        }
    }
    found
}

fn origin_of(entry: &gimli::DebuggingInformationEntry<'_, '_, Slice<'_>>) -> Option<usize> {
    match entry.attr_value(gimli::DW_AT_abstract_origin).ok()?? {
        AttributeValue::UnitRef(offset) => Some(offset.0),
        _ => None,
    }
}

/// All functions of a unit that have code.
fn functions<'a>(dwarf: &Dwarf<'a>, unit: &Unit<Slice<'a>>) -> Vec<Function> {
    let mut found = Vec::new();
    let mut cursor = unit.entries();
    while let Ok(Some((_, entry))) = cursor.next_dfs() {
        if entry.tag() != gimli::DW_TAG_subprogram {
            continue;
        }
        let ranges = ranges_of(dwarf, unit, entry);
        if !ranges.is_empty() {
            found.push(Function {
                ranges,
                offset: entry.offset().0,
                origin: origin_of(entry),
            });
        }
    }
    found
}

/// Outermost first.
fn instances<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<Slice<'a>>,
    function: &Function,
    address: u64,
    functions: &[Function],
) -> Option<Vec<Instance>> {
    let mut found: Vec<Instance> = Vec::new();
    // How deep the innermost of them is.
    let mut innermost = 0;
    let mut frame_is_cfa = false;
    let mut cursor = unit.entries_at_offset(gimli::UnitOffset(function.offset)).ok()?;
    let mut depth = 0;
    while let Some((delta, entry)) = cursor.next_dfs().ok()? {
        depth += delta;
        if entry.offset().0 == function.offset {
            depth = 0;
            if let Ok(Some(AttributeValue::Exprloc(expression))) = entry.attr_value(gimli::DW_AT_frame_base) {
                frame_is_cfa = matches!(
                    expression.operations(unit.encoding()).next(),
                    Ok(Some(Operation::CallFrameCFA))
                );
            }
            continue;
        }
        if depth <= 0 || depth > MAX_DEPTH {
            break;
        }
        match entry.tag() {
            gimli::DW_TAG_inlined_subroutine => {
                let ranges = ranges_of(dwarf, unit, entry);
                if is_in(&ranges, address) {
                    let origin = origin_of(entry);
                    let same = functions
                        .iter()
                        .find(|other| origin.is_some() && other.origin == origin);
                    found.push(Instance {
                        ranges,
                        parameters: Vec::new(),
                        out_of_line: same.map(|same| same.ranges[0].start),
                    });
                    innermost = depth;
                }
            }
            gimli::DW_TAG_formal_parameter if depth == innermost + 1 => {
                // Those of the innermost so far: siblings that do not have the address come without.
                if let Some(instance) = found.last_mut() {
                    add_parameter(dwarf, unit, entry, frame_is_cfa, &mut instance.parameters);
                }
            }
            _ => {}
        }
    }
    Some(found)
}

fn add_parameter<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<Slice<'a>>,
    entry: &gimli::DebuggingInformationEntry<'_, '_, Slice<'a>>,
    frame_is_cfa: bool,
    parameters: &mut Vec<Parameter>,
) {
    if let Ok(Some(value)) = entry.attr_value(gimli::DW_AT_const_value) {
        let constant = match value {
            AttributeValue::Data1(value) => Some(i64::from(value as i8)),
            AttributeValue::Data2(value) => Some(i64::from(value as i16)),
            AttributeValue::Data4(value) => Some(i64::from(value as i32)),
            AttributeValue::Data8(value) => Some(value as i64),
            other => other.sdata_value(),
        };
        parameters.push(Parameter {
            constant,
            ..Parameter::default()
        });
        return;
    }
    let Ok(Some(value)) = entry.attr_value(gimli::DW_AT_location) else {
        return;
    };
    if let AttributeValue::Exprloc(expression) = value {
        parameters.extend(parameter(expression, unit, None, frame_is_cfa));
        return;
    }
    let Ok(Some(offset)) = dwarf.attr_locations_offset(unit, value) else {
        return;
    };
    let Ok(mut entries) = dwarf.raw_locations(unit, offset) else {
        return;
    };
    let mut base = unit.low_pc;
    let address = |index| dwarf.address(unit, index).ok();
    while let Ok(Some(entry)) = entries.next() {
        use gimli::RawLocListEntry as Raw;
        // A range that is empty says where the argument is before the instruction there.
        let (begin, end, data) = match entry {
            Raw::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            Raw::BaseAddressx { addr } => {
                base = address(addr).unwrap_or(base);
                continue;
            }
            Raw::AddressOrOffsetPair { begin, end, data } | Raw::OffsetPair { begin, end, data } => {
                (base.wrapping_add(begin), base.wrapping_add(end), data)
            }
            Raw::StartEnd { begin, end, data } => (begin, end, data),
            Raw::StartLength { begin, length, data } => (begin, begin.wrapping_add(length), data),
            Raw::StartxEndx { begin, end, data } => match (address(begin), address(end)) {
                (Some(begin), Some(end)) => (begin, end, data),
                _ => continue,
            },
            Raw::StartxLength { begin, length, data } => match address(begin) {
                Some(begin) => (begin, begin.wrapping_add(length), data),
                None => continue,
            },
            Raw::DefaultLocation { data } => (0, u64::MAX, data),
        };
        parameters.extend(parameter(data, unit, Some(begin..end), frame_is_cfa));
    }
}

/// What an expression computes the argument from; `None`: from what is not known.
fn parameter(
    expression: gimli::Expression<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    range: Option<Range<u64>>,
    frame_is_cfa: bool,
) -> Option<Parameter> {
    let mut found = Parameter {
        range,
        ..Parameter::default()
    };
    let mut operations = expression.operations(unit.encoding());
    // What was pushed last is an address, unless it turns out to be the value.
    let mut offsets: Vec<(u16, i64)> = Vec::new();
    let mut constants: Vec<i64> = Vec::new();
    let mut is_value = false;
    let mut count = 0;
    while let Some(operation) = operations.next().ok()? {
        count += 1;
        match operation {
            Operation::Register { register } => found.registers.push((register.0, 0)),
            Operation::RegisterOffset { register, offset, .. } => offsets.push((register.0, offset)),
            Operation::FrameOffset { offset } if frame_is_cfa => found.frame.push(offset),
            Operation::FrameOffset { offset } => offsets.push((6, offset)),
            Operation::UnsignedConstant { value } => constants.push(value as i64),
            Operation::SignedConstant { value } => constants.push(value),
            Operation::StackValue => is_value = true,
            Operation::EntryValue { expression } => {
                let mut within = gimli::Expression(expression).operations(unit.encoding());
                match within.next().ok()?? {
                    Operation::Register { register } => found.entry.push(register.0),
                    _ => return None,
                }
            }
            Operation::Piece { .. } => {}
            Operation::Plus
            | Operation::PlusConstant { .. }
            | Operation::Minus
            | Operation::Mul
            | Operation::And
            | Operation::Or
            | Operation::Xor
            | Operation::Not
            | Operation::Neg
            | Operation::Shl
            | Operation::Shr
            | Operation::Shra
            | Operation::Convert { .. } => {}
            _ => return None,
        }
    }
    match is_value {
        true => {
            found.registers.extend(offsets);
            if let ([constant], 2) = (&constants[..], count) {
                found.constant = Some(*constant);
            }
            // The address of a word of the frame, not what it holds.
            found.frame.clear();
        }
        false => found.memory = offsets,
    }
    Some(found)
}
