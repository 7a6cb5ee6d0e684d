//! The entries of one compile unit, read once into plain data: what [`types`](super::types) and [`functions`](super::functions) need of
//! them. Units that it refers to are read with it, and of them what it refers to, and what that refers to, is in use. Damaged entries
//! end the reading of a unit: what was read until then counts.

use std::borrow::Cow;
use std::ops::Range;

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwAt, DwTag, EndianSlice, Expression, LittleEndian, Operation, Unit,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::units::{Home, Units};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Attribute<'a> = AttributeValue<Slice<'a>>;

/// No code is in more pieces; debug info may be damaged.
const MAX_RANGES: usize = 4096;

/// Bytes of debug info beyond this are not read for one unit, itself and what it refers to: they take a multiple of that in memory.
const LARGEST_UNIT: usize = 32 << 20;

/// Index of an entry of [`Entries`].
pub(super) type EntryId = usize;

/// Where the value of a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// It is what the register holds, plus a constant.
    Register {
        register: u16,
        add: i64,
    },
    /// In memory, at the register plus a constant.
    At {
        register: u16,
        offset: i64,
    },
    /// In memory, at the function's frame base plus a constant.
    Frame(i64),
    Static(u64),
}

#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub tag: DwTag,
    pub parent: Option<EntryId>,
    /// One behind its last descendant.
    pub end: EntryId,
    pub name: Option<Cow<'a, str>>,
    pub linkage_name: Option<Cow<'a, str>>,
    pub ty: Option<EntryId>,
    /// The abstract instance, or the declaration, that says the rest.
    pub origin: Option<EntryId>,
    pub numbers: Vec<(DwAt, i64)>,
    /// Of the whole scope, or of some code only.
    pub locations: Vec<(Option<Range<u64>>, Location)>,
    /// Code.
    pub ranges: Vec<Range<u64>>,
    pub frame_base: Option<FrameBase>,
    /// Declared in this file; only of composite types.
    pub file: Option<Cow<'a, str>>,
    /// The type itself, which is in a unit of its own; this is its declaration.
    pub definition: Option<EntryId>,
    /// Of the unit itself, or referred to.
    pub in_use: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameBase {
    /// The stack pointer before the call.
    Cfa,
    Register(u16),
}

impl Entry<'_> {
    pub(super) fn number(&self, attribute: DwAt) -> Option<i64> {
        self.numbers
            .iter()
            .find_map(|&(name, value)| (name == attribute).then_some(value))
    }

    pub(super) fn unsigned(&self, attribute: DwAt) -> Option<u64> {
        self.number(attribute).and_then(|value| value.try_into().ok())
    }

    pub(super) fn has(&self, attribute: DwAt) -> bool {
        self.number(attribute).is_some_and(|value| value != 0)
    }
}

#[derive(Debug, Default)]
pub(super) struct Entries<'a> {
    /// Those of the unit, and behind them those of other units; without those that nothing is asked of.
    pub all: Vec<Entry<'a>>,
    /// How many are of the unit itself.
    pub own: usize,
    /// For each unit: where its entries begin, and whether it is of C++, if it says so.
    units: Vec<(EntryId, Option<bool>)>,
}

/// What an attribute refers to.
#[derive(Clone, Copy, Debug)]
enum Reference {
    At(Home, usize),
    /// In `.debug_info`.
    Offset(usize),
    Signature(u64),
}

/// Reads a unit, and what it refers to.
struct Loader<'r, 'a> {
    dwarf: &'r Dwarf<'a>,
    units: &'r Units,
    entries: Entries<'a>,
    /// Units that were read, or could not be.
    seen: FxHashSet<Home>,
    /// Bytes that were read.
    size: usize,
    places: FxHashMap<(Home, usize), EntryId>,
    /// By the entry that refers, ascending.
    references: Vec<(EntryId, DwAt, Reference)>,
}

impl<'a> Entries<'a> {
    /// `None`: the unit cannot be read, or is too large.
    pub(super) fn read(dwarf: &Dwarf<'a>, units: &Units, home: Home) -> Option<Entries<'a>> {
        let mut loader = Loader {
            dwarf,
            units,
            entries: Entries::default(),
            seen: FxHashSet::default(),
            size: 0,
            places: FxHashMap::default(),
            references: Vec::new(),
        };
        loader.add(home)?;
        let own = loader.entries.all.len();
        loader.entries.own = own;
        for entry in &mut loader.entries.all {
            entry.in_use = true;
        }
        let mut pending: Vec<Range<EntryId>> = std::iter::once(0..own).collect();
        while let Some(range) = pending.pop() {
            let first = loader.references.partition_point(|&(id, ..)| id < range.start);
            let end = loader.references.partition_point(|&(id, ..)| id < range.end);
            for index in first..end {
                let (id, attribute, reference) = loader.references[index];
                let Some(to) = loader.find(reference) else { continue };
                let all = &mut loader.entries.all;
                match attribute {
                    gimli::DW_AT_type => all[id].ty = Some(to),
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => all[id].origin = Some(to),
                    gimli::DW_AT_signature => all[id].definition = Some(to),
                    _ => continue,
                }
                let (mut at, end) = (to, all[to].end);
                while at < end {
                    // All below what is in use is, too.
                    if all[at].in_use {
                        at = all[at].end;
                        continue;
                    }
                    let start = at;
                    while at < end && !all[at].in_use {
                        all[at].in_use = true;
                        at += 1;
                    }
                    pending.push(start..at);
                }
            }
        }
        Some(loader.entries)
    }

    /// Which of the units that were read an entry is in; 0 is the unit itself.
    fn unit(&self, id: EntryId) -> usize {
        self.units.partition_point(|&(start, _)| start <= id).saturating_sub(1)
    }

    /// Whether a type that is only declared at one entry can be what is defined at the other: of two units of C each may have a type of its
    /// own by that name. Units of types, or of what other units have in common, leave a definition to the unit that uses them.
    pub(super) fn can_define(&self, definition: EntryId, declaration: EntryId) -> bool {
        let (defining, declaring) = (self.unit(definition), self.unit(declaration));
        let is_shared = |unit: usize| {
            let root = self.units.get(unit).and_then(|&(start, _)| self.all.get(start));
            root.is_some_and(|root| matches!(root.tag, gimli::DW_TAG_type_unit | gimli::DW_TAG_partial_unit))
        };
        // What a function defines is its own.
        let within = |id: EntryId| {
            let parent = self.all[id].parent;
            parent.filter(|&parent| {
                let tag = self.all[parent].tag;
                matches!(tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_lexical_block)
            })
        };
        let is_visible = within(definition).is_none_or(|function| within(declaration) == Some(function));
        is_visible && (defining == declaring || defining == 0 && is_shared(declaring))
    }

    /// Whether an entry is of C++: of another unit that does not say, if the unit itself is.
    pub(super) fn is_cplusplus(&self, id: EntryId) -> bool {
        let says = |unit: usize| self.units.get(unit).and_then(|&(_, is)| is);
        says(self.unit(id)).or(says(0)).unwrap_or(false)
    }

    /// The entry, and what it refers to for the rest.
    fn origins(&self, id: EntryId) -> impl Iterator<Item = &Entry<'a>> {
        const LONGEST: usize = 4;
        std::iter::successors(Some(id), |&id| self.all[id].origin)
            .take(LONGEST)
            .map(|id| &self.all[id])
    }

    pub(super) fn type_of(&self, id: EntryId) -> Option<EntryId> {
        self.origins(id).find_map(|entry| entry.ty)
    }

    /// The name that the linker knows, if there is one.
    pub(super) fn linkage_name(&self, id: EntryId) -> Option<&str> {
        let linkage = self.origins(id).find_map(|entry| entry.linkage_name.as_deref());
        linkage.or_else(|| self.origins(id).find_map(|entry| entry.name.as_deref()))
    }

    pub(super) fn children(&self, id: EntryId) -> impl Iterator<Item = EntryId> {
        let end = self.all[id].end;
        let mut next = id + 1;
        std::iter::from_fn(move || {
            (next < end).then(|| {
                let child = next;
                next = self.all[child].end;
                child
            })
        })
    }
}

impl<'a> Loader<'_, 'a> {
    /// The entry that is referred to; the unit that it is in is read first.
    fn find(&mut self, reference: Reference) -> Option<EntryId> {
        let (home, offset) = match reference {
            Reference::At(home, offset) => (home, offset),
            Reference::Offset(offset) => self.units.at(offset)?,
            Reference::Signature(signature) => self.units.with_signature(signature)?,
        };
        if !self.seen.contains(&home) {
            self.add(home);
        }
        self.places.get(&(home, offset)).copied()
    }

    /// All entries of a unit.
    fn add(&mut self, home: Home) -> Option<()> {
        self.seen.insert(home);
        let header = Units::header(self.dwarf, home)?;
        let size = self.size.saturating_add(header.length_including_self());
        if size > LARGEST_UNIT {
            return None;
        }
        self.size = size;
        let unit = self.dwarf.unit(header).ok()?;
        let reader = Reader {
            dwarf: self.dwarf,
            unit: &unit,
        };
        let start = self.entries.all.len();
        let mut open: Vec<EntryId> = Vec::new();
        let mut depth = 0;
        // All that is deeper belongs to an entry that is left out, or whose children are.
        let mut left_out: Option<isize> = None;
        let mut cursor = unit.entries();
        while let Ok(Some((delta, entry))) = cursor.next_dfs() {
            depth += delta;
            if left_out.is_some_and(|above| depth > above) {
                continue;
            }
            left_out = None;
            if is_of_no_use(entry.tag()) {
                left_out = Some(depth);
                continue;
            }
            let id = self.entries.all.len();
            while open.len() as isize > depth.max(0) {
                if let Some(done) = open.pop() {
                    self.entries.all[done].end = id;
                }
            }
            self.places.insert((home, entry.offset().0), id);
            let mut read = Entry {
                tag: entry.tag(),
                parent: open.last().copied(),
                end: id + 1,
                name: None,
                linkage_name: None,
                ty: None,
                origin: None,
                numbers: Vec::new(),
                locations: Vec::new(),
                ranges: Vec::new(),
                frame_base: None,
                file: None,
                definition: None,
                in_use: false,
            };
            let mut attributes = entry.attrs();
            while let Ok(Some(attribute)) = attributes.next() {
                let (name, value) = (attribute.name(), attribute.value());
                let reference = match value {
                    AttributeValue::UnitRef(offset) => Reference::At(home, offset.0),
                    AttributeValue::DebugInfoRef(offset) => Reference::Offset(offset.0),
                    AttributeValue::DebugTypesRef(signature) => Reference::Signature(signature.0),
                    _ => {
                        reader.attribute(name, value, &mut read);
                        continue;
                    }
                };
                self.references.push((id, name, reference));
            }
            if has_code(read.tag) {
                reader.ranges(entry, &mut read);
            }
            // The definition has the parameters again.
            if read.tag == gimli::DW_TAG_subprogram && read.has(gimli::DW_AT_declaration) {
                left_out = Some(depth);
            }
            self.entries.all.push(read);
            open.push(id);
        }
        let end = self.entries.all.len();
        for done in open {
            self.entries.all[done].end = end;
        }
        let language = self.entries.all.get(start)?.number(gimli::DW_AT_language);
        self.entries.units.push((start, language.map(is_cplusplus)));
        Some(())
    }
}

fn is_cplusplus(language: i64) -> bool {
    [
        gimli::DW_LANG_C_plus_plus,
        gimli::DW_LANG_C_plus_plus_03,
        gimli::DW_LANG_C_plus_plus_11,
        gimli::DW_LANG_C_plus_plus_14,
        gimli::DW_LANG_C_plus_plus_17,
        gimli::DW_LANG_C_plus_plus_20,
    ]
    .iter()
    .any(|known| i64::from(known.0) == language)
}

/// A struct, class or union.
pub(super) fn is_composite(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}

fn has_code(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
    )
}

/// Nothing refers to it for a type, a name or a place of code, nor to what is within it. In C++ and optimised code this is most of all.
fn is_of_no_use(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_enumerator
            | gimli::DW_TAG_template_type_parameter
            | gimli::DW_TAG_template_value_parameter
            | gimli::DW_TAG_GNU_template_parameter_pack
            | gimli::DW_TAG_GNU_formal_parameter_pack
            | gimli::DW_TAG_imported_declaration
            | gimli::DW_TAG_imported_module
            | gimli::DW_TAG_imported_unit
            | gimli::DW_TAG_friend
            | gimli::DW_TAG_label
            | gimli::DW_TAG_call_site
            | gimli::DW_TAG_GNU_call_site
    )
}

/// Attributes whose numbers are asked for.
fn is_of_use(name: DwAt) -> bool {
    matches!(
        name,
        gimli::DW_AT_byte_size
            | gimli::DW_AT_bit_size
            | gimli::DW_AT_bit_offset
            | gimli::DW_AT_data_bit_offset
            | gimli::DW_AT_data_member_location
            | gimli::DW_AT_declaration
            | gimli::DW_AT_external
            | gimli::DW_AT_virtuality
            | gimli::DW_AT_upper_bound
            | gimli::DW_AT_count
            | gimli::DW_AT_language
    )
}

struct Reader<'r, 'a> {
    dwarf: &'r Dwarf<'a>,
    unit: &'r Unit<Slice<'a>>,
}

impl<'a> Reader<'_, 'a> {
    fn ranges(&self, entry: &DebuggingInformationEntry<Slice<'a>>, read: &mut Entry<'a>) {
        let Ok(mut ranges) = self.dwarf.die_ranges(self.unit, entry) else {
            return;
        };
        while let Ok(Some(range)) = ranges.next() {
            // What begins at 0 was left out by the linker.
            if range.begin != 0 && range.begin < range.end {
                read.ranges.push(range.begin..range.end);
            }
            if read.ranges.len() > MAX_RANGES {
                read.ranges.clear();
                break;
            }
        }
    }

    fn attribute(&self, name: DwAt, value: Attribute<'a>, entry: &mut Entry<'a>) {
        match name {
            gimli::DW_AT_name => entry.name = self.string(value),
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => entry.linkage_name = self.string(value),
            gimli::DW_AT_location => self.locations(value, entry),
            gimli::DW_AT_frame_base => {
                entry.frame_base = match value {
                    AttributeValue::Exprloc(expression) => match self.operations(expression)[..] {
                        [Operation::CallFrameCFA] => Some(FrameBase::Cfa),
                        [Operation::Register { register }] => Some(FrameBase::Register(register.0)),
                        _ => None,
                    },
                    _ => None,
                }
            }
            gimli::DW_AT_decl_file => {
                if let AttributeValue::FileIndex(index) = value
                    && is_composite(entry.tag)
                {
                    entry.file = self.file(index);
                }
            }
            _ if is_of_use(name) || name == gimli::DW_AT_decl_line && is_composite(entry.tag) => {
                let number = match value {
                    AttributeValue::Flag(flag) => Some(flag.into()),
                    AttributeValue::Language(language) => Some(language.0.into()),
                    AttributeValue::Virtuality(virtuality) => Some(virtuality.0.into()),
                    AttributeValue::Exprloc(expression) => match self.operations(expression)[..] {
                        [Operation::PlusConstant { value }] => value.try_into().ok(),
                        _ => None,
                    },
                    // A form of fixed size does not say whether it has a sign: bounds and sizes have none.
                    other => other
                        .udata_value()
                        .and_then(|value| value.try_into().ok())
                        .or_else(|| other.sdata_value()),
                };
                entry.numbers.extend(number.map(|number| (name, number)));
            }
            _ => {}
        }
    }

    fn string(&self, value: Attribute<'a>) -> Option<Cow<'a, str>> {
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(String::from_utf8_lossy(text.slice()))
    }

    fn file(&self, index: u64) -> Option<Cow<'a, str>> {
        let file = self.unit.line_program.as_ref()?.header().file(index)?;
        self.string(file.path_name())
    }

    fn locations(&self, value: Attribute<'a>, entry: &mut Entry<'a>) {
        if let AttributeValue::Exprloc(expression) = value {
            entry
                .locations
                .extend(self.location(expression).map(|location| (None, location)));
        } else if let Ok(Some(mut list)) = self.dwarf.attr_locations(self.unit, value) {
            while let Ok(Some(item)) = list.next() {
                if let Some(location) = self.location(item.data) {
                    let range = item.range.begin..item.range.end;
                    entry.locations.push((Some(range), location));
                }
            }
        }
    }

    /// `None`: computed in a way that leads to no register, such as what it was when the function was entered.
    fn location(&self, expression: Expression<Slice<'a>>) -> Option<Location> {
        match self.operations(expression)[..] {
            [Operation::Register { register }] => Some(Location::Register {
                register: register.0,
                add: 0,
            }),
            [Operation::RegisterOffset { register, offset, .. }] => Some(Location::At {
                register: register.0,
                offset,
            }),
            [
                Operation::RegisterOffset { register, offset, .. },
                Operation::StackValue,
            ] => Some(Location::Register {
                register: register.0,
                add: offset,
            }),
            [
                Operation::RegisterOffset { register, offset, .. },
                Operation::PlusConstant { value },
                Operation::StackValue,
            ] => Some(Location::Register {
                register: register.0,
                add: offset.checked_add(value.try_into().ok()?)?,
            }),
            [Operation::FrameOffset { offset }] => Some(Location::Frame(offset)),
            [Operation::Address { address }] => Some(Location::Static(address)),
            [Operation::AddressIndex { index }] => {
                let address = self.dwarf.address(self.unit, index).ok()?;
                Some(Location::Static(address))
            }
            _ => None,
        }
    }

    /// Nothing of what cannot be read.
    fn operations(&self, expression: Expression<Slice<'a>>) -> Vec<Operation<Slice<'a>>> {
        let mut found = Vec::new();
        let mut operations = expression.operations(self.unit.encoding());
        loop {
            match operations.next() {
                Ok(Some(operation)) => found.push(operation),
                Ok(None) => return found,
                Err(_) => return Vec::new(),
            }
        }
    }
}
