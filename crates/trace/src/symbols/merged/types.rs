//! How large is what a line assigns to: the types of the variables in scope at an address, and of what they lead to.

use std::ops::Range;
use std::path::Path;

use addr2line::gimli::{
    self, AttributeValue, DebugInfoOffset, DwTag, Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit, UnitOffset,
};
use object::{Object, ObjectSection, ReadCache};

use super::super::debug_files::open_regular;
use super::statement::{Assigned, Step};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a, 'u> = gimli::DebuggingInformationEntry<'u, 'u, Slice<'a>>;

/// Debug info beyond this is not read for the sake of a mark.
const LARGEST: u64 = 256 << 20;
/// No type nests deeper; debug info may be damaged.
const DEPTH: usize = 32;

/// What an assignment writes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub size: u64,
    /// Whether a loop that the optimiser unrolled could write `width` bytes with it: the elements that it goes through lie
    /// that near.
    pub stride: Option<u64>,
}

/// The debug info of a file.
pub(super) struct Types {
    sections: DwarfSections<Vec<u8>>,
    /// Where the code of each unit is.
    units: Vec<(Range<u64>, DebugInfoOffset)>,
}

impl Types {
    pub fn read(file: &Path) -> Option<Types> {
        let cache = ReadCache::new(open_regular(file).ok()?);
        let object = object::File::parse(&cache).ok()?;
        if object.section_by_name(".debug_info")?.size() > LARGEST {
            return None;
        }
        let sections = DwarfSections::load(|id| {
            let data = object
                .section_by_name(id.name())
                .and_then(|s| s.uncompressed_data().ok());
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
                units.push((range.begin..range.end, offset));
            }
        }
        Some(Types { sections, units })
    }

    fn with<T>(&self, address: u64, ask: impl FnOnce(&Scope) -> Option<T>) -> Option<T> {
        let (_, offset) = self.units.iter().find(|(range, _)| range.contains(&address))?;
        let dwarf = self.sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let unit = dwarf.unit(dwarf.debug_info.header_from_offset(*offset).ok()?).ok()?;
        ask(&Scope {
            dwarf: &dwarf,
            unit: &unit,
            address,
        })
    }

    /// The function (not inlined) that the address is in.
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        self.with(address, |scope| {
            let mut found = None;
            scope.walk(|entry, _| {
                if entry.tag() == gimli::DW_TAG_subprogram && found.is_none() {
                    found = scope.range(entry);
                }
            });
            found
        })
    }

    pub fn extent(&self, address: u64, assigned: &Assigned) -> Option<Extent> {
        self.with(address, |scope| scope.extent(assigned))
    }
}

struct Scope<'s, 'a> {
    dwarf: &'s Dwarf<Slice<'a>>,
    unit: &'s Unit<Slice<'a>>,
    address: u64,
}

/// A type, and how many dimensions of it are indexed already.
#[derive(Clone, Copy)]
struct Place {
    kind: UnitOffset,
    indexed: usize,
}

impl<'s, 'a> Scope<'s, 'a> {
    fn extent(&self, assigned: &Assigned) -> Option<Extent> {
        match &assigned.base {
            Some(base) => self.extent_of(base, assigned),
            None => self.extent_by_member(assigned),
        }
    }

    fn extent_of(&self, base: &str, assigned: &Assigned) -> Option<Extent> {
        let mut place = match self.variable(base) {
            // A variable is in a register or on the stack.
            Some(_) if assigned.steps.is_empty() => return Some(Extent { size: 0, stride: None }),
            Some(kind) => Place { kind, indexed: 0 },
            // A member of the object whose function this is.
            None => {
                let object = self.variable("this")?;
                self.member(
                    Place {
                        kind: object,
                        indexed: 0,
                    },
                    base,
                )?
            }
        };
        let mut stride = None;
        for step in &assigned.steps {
            place = match step {
                Step::Member(name) => self.member(place, name)?,
                Step::Target => self.element(place)?,
                Step::Element { .. } => self.element(place)?,
            };
            if matches!(step, Step::Element { fixed: false }) || (assigned.moving && *step == Step::Target) {
                stride = Some(self.size(place, 0)?);
            }
        }
        Some(Extent {
            size: self.size(place, 0)?,
            stride,
        })
    }

    /// Without the variable, only the member's name is known: the largest member so called.
    fn extent_by_member(&self, assigned: &Assigned) -> Option<Extent> {
        let last = assigned
            .steps
            .iter()
            .rposition(|step| matches!(step, Step::Member(_)))?;
        let Step::Member(name) = &assigned.steps[last] else {
            return None;
        };
        let mut found: Option<Extent> = None;
        let mut entries = self.unit.entries();
        while let Ok(Some((_, entry))) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_member || self.name(entry).as_deref() != Some(name) {
                continue;
            }
            let mut place = Place {
                kind: self.type_of(entry)?,
                indexed: 0,
            };
            let mut stride = None;
            for step in &assigned.steps[last + 1..] {
                place = self.element(place)?;
                if *step == (Step::Element { fixed: false }) {
                    stride = Some(self.size(place, 0)?);
                }
            }
            let size = self.size(place, 0)?;
            if found.is_none_or(|found| found.size < size) {
                found = Some(Extent { size, stride });
            }
        }
        found
    }

    /// Calls back for every entry whose code has the address or that is not code, with its depth.
    fn walk(&self, mut visit: impl FnMut(&Entry<'a, '_>, isize)) {
        let mut entries = self.unit.entries();
        let mut depth = 0;
        // Entries deeper than this one are of other code.
        let mut skipped: Option<isize> = None;
        while let Ok(Some((delta, entry))) = entries.next_dfs() {
            depth += delta;
            if skipped.is_some_and(|skipped| depth > skipped) {
                continue;
            }
            skipped = None;
            let is_code = matches!(
                entry.tag(),
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine | gimli::DW_TAG_lexical_block
            );
            if is_code && self.range(entry).is_none() {
                skipped = Some(depth);
                continue;
            }
            if is_type(entry.tag()) {
                skipped = Some(depth);
            }
            visit(entry, depth);
        }
    }

    /// The part of the entry's code that has the address.
    fn range(&self, entry: &Entry<'a, '_>) -> Option<Range<u64>> {
        let mut ranges = self.dwarf.die_ranges(self.unit, entry).ok()?;
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&self.address) {
                return Some(range.begin..range.end);
            }
        }
        None
    }

    /// The type of the innermost variable of this name.
    fn variable(&self, name: &str) -> Option<UnitOffset> {
        let mut found: Option<(isize, UnitOffset)> = None;
        self.walk(|entry, depth| {
            let is_variable = matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter);
            if is_variable
                && found.is_none_or(|(outer, _)| outer <= depth)
                && self.name(entry).as_deref() == Some(name)
                && let Some(kind) = self.type_of(entry)
            {
                found = Some((depth, kind));
            }
        });
        found.map(|(_, kind)| kind)
    }

    fn reference(&self, value: AttributeValue<Slice<'a>>) -> Option<UnitOffset> {
        match value {
            AttributeValue::UnitRef(offset) => Some(offset),
            AttributeValue::DebugInfoRef(offset) => offset.to_unit_offset(&self.unit.header),
            _ => None,
        }
    }

    /// An attribute of the entry or of what it is an instance of.
    fn attribute(&self, entry: &Entry<'a, '_>, name: gimli::DwAt) -> Option<AttributeValue<Slice<'a>>> {
        if let Some(value) = entry.attr_value(name).ok()? {
            return Some(value);
        }
        for origin in [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification] {
            if let Some(value) = entry.attr_value(origin).ok()? {
                let origin = self.unit.entry(self.reference(value)?).ok()?;
                return origin.attr_value(name).ok()?;
            }
        }
        None
    }

    fn name(&self, entry: &Entry<'a, '_>) -> Option<String> {
        let value = self.attribute(entry, gimli::DW_AT_name)?;
        let name = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(name.to_string_lossy().into_owned())
    }

    fn type_of(&self, entry: &Entry<'a, '_>) -> Option<UnitOffset> {
        self.reference(self.attribute(entry, gimli::DW_AT_type)?)
    }

    /// Through names and qualifiers.
    fn plain(&self, mut kind: UnitOffset) -> Option<(DwTag, UnitOffset)> {
        for _ in 0..DEPTH {
            let entry = self.unit.entry(kind).ok()?;
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => kind = self.type_of(&entry)?,
                tag => return Some((tag, kind)),
            }
        }
        None
    }

    fn dimensions(&self, array: UnitOffset) -> Option<Vec<u64>> {
        let mut tree = self.unit.entries_tree(Some(array)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut dimensions = Vec::new();
        while let Some(child) = children.next().ok()? {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_subrange_type {
                continue;
            }
            let number = |name| entry.attr(name).ok()?.and_then(|attribute| attribute.udata_value());
            let count = number(gimli::DW_AT_count).or_else(|| number(gimli::DW_AT_upper_bound)?.checked_add(1));
            // A flexible array member.
            dimensions.push(count.unwrap_or(0));
        }
        Some(dimensions)
    }

    fn size(&self, place: Place, depth: usize) -> Option<u64> {
        let (tag, kind) = self.plain(place.kind)?;
        let entry = self.unit.entry(kind).ok()?;
        match tag {
            gimli::DW_TAG_array_type if depth < DEPTH => {
                let element = Place {
                    kind: self.type_of(&entry)?,
                    indexed: 0,
                };
                let mut size = self.size(element, depth + 1)?;
                for count in self.dimensions(kind)?.into_iter().skip(place.indexed) {
                    size = size.checked_mul(count)?;
                }
                Some(size)
            }
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => Some(8),
            _ => entry.attr(gimli::DW_AT_byte_size).ok()??.udata_value(),
        }
    }

    /// What a pointer points to, or an element of an array.
    fn element(&self, place: Place) -> Option<Place> {
        let (tag, kind) = self.plain(place.kind)?;
        let entry = self.unit.entry(kind).ok()?;
        match tag {
            gimli::DW_TAG_array_type => {
                let indexed = place.indexed + 1;
                if indexed < self.dimensions(kind)?.len() {
                    return Some(Place { kind, indexed });
                }
                Some(Place {
                    kind: self.type_of(&entry)?,
                    indexed: 0,
                })
            }
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                Some(Place {
                    kind: self.type_of(&entry)?,
                    indexed: 0,
                })
            }
            _ => None,
        }
    }

    /// The member of a structure, or of what a pointer points to.
    fn member(&self, place: Place, name: &str) -> Option<Place> {
        let mut kind = self.plain(place.kind)?;
        // `->` through a pointer; a reference to a pointer has two.
        for _ in 0..2 {
            if matches!(
                kind.0,
                gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
            ) {
                kind = self.plain(self.type_of(&self.unit.entry(kind.1).ok()?)?)?;
            }
        }
        self.member_of(kind.1, name, 0)
    }

    fn member_of(&self, structure: UnitOffset, name: &str, depth: usize) -> Option<Place> {
        if depth > DEPTH {
            return None;
        }
        let mut tree = self.unit.entries_tree(Some(structure)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Some(child) = children.next().ok()? {
            let entry = child.entry();
            if !matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance) {
                continue;
            }
            let Some(kind) = self.type_of(entry) else { continue };
            match self.name(entry) {
                Some(found) if found == name => return Some(Place { kind, indexed: 0 }),
                // A base class, or a structure without a name.
                None => {
                    let found = self
                        .plain(kind)
                        .and_then(|(_, kind)| self.member_of(kind, name, depth + 1));
                    if found.is_some() {
                        return found;
                    }
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// Types do not hold variables that a function sees, except for namespaces, which are not types.
fn is_type(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_array_type
            | gimli::DW_TAG_subroutine_type
    )
}
