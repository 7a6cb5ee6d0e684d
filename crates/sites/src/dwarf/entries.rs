//! The entries of one compile unit, read once into plain data: what [`types`](super::types) and [`functions`](super::functions) need of
//! them. Damaged entries end the reading: what was read until then counts.

use std::ops::Range;

use gimli::{AttributeValue, DwAt, DwTag, EndianSlice, Expression, LittleEndian, Operation, Unit};
use rustc_hash::FxHashMap;

pub type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Attribute<'a> = AttributeValue<Slice<'a>>;

/// No code is in more pieces; debug info may be damaged.
const MAX_RANGES: usize = 4096;

/// Index of an entry of [`Entries`].
pub type EntryId = usize;

/// Where the value of a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
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
pub struct Entry {
    pub tag: DwTag,
    pub parent: Option<EntryId>,
    /// One behind its last descendant.
    pub end: EntryId,
    pub name: Option<String>,
    pub linkage_name: Option<String>,
    pub ty: Option<EntryId>,
    /// The abstract instance, or the declaration, that says the rest.
    pub origin: Option<EntryId>,
    pub numbers: Vec<(DwAt, i64)>,
    /// Of the whole scope, or of some code only.
    pub locations: Vec<(Option<Range<u64>>, Location)>,
    /// Code.
    pub ranges: Vec<Range<u64>>,
    pub frame_base: Option<FrameBase>,
    /// Declared in this file.
    pub file: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBase {
    /// The stack pointer before the call.
    Cfa,
    Register(u16),
}

impl Entry {
    pub fn number(&self, attribute: DwAt) -> Option<i64> {
        self.numbers
            .iter()
            .find_map(|&(name, value)| (name == attribute).then_some(value))
    }

    pub fn unsigned(&self, attribute: DwAt) -> Option<u64> {
        self.number(attribute).and_then(|value| value.try_into().ok())
    }

    pub fn has(&self, attribute: DwAt) -> bool {
        self.number(attribute).is_some_and(|value| value != 0)
    }
}

#[derive(Debug, Default)]
pub struct Entries {
    pub all: Vec<Entry>,
    pub is_cplusplus: bool,
}

impl Entries {
    pub fn read(dwarf: &Dwarf, unit: &Unit<Slice>) -> Entries {
        let mut entries = Entries::default();
        let mut offsets: FxHashMap<usize, EntryId> = FxHashMap::default();
        let mut references: Vec<(EntryId, DwAt, usize)> = Vec::new();
        let mut open: Vec<EntryId> = Vec::new();
        let mut depth = 0;
        let mut cursor = unit.entries();
        while let Ok(Some((delta, entry))) = cursor.next_dfs() {
            depth += delta;
            let id = entries.all.len();
            while open.len() as isize > depth.max(0) {
                if let Some(done) = open.pop() {
                    entries.all[done].end = id;
                }
            }
            offsets.insert(entry.offset().0, id);
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
            };
            let reader = Reader { dwarf, unit };
            let mut attributes = entry.attrs();
            while let Ok(Some(attribute)) = attributes.next() {
                let (name, value) = (attribute.name(), attribute.value());
                if let AttributeValue::UnitRef(offset) = value {
                    references.push((id, name, offset.0));
                } else {
                    reader.attribute(name, value, &mut read);
                }
            }
            if has_code(read.tag)
                && let Ok(mut ranges) = dwarf.die_ranges(unit, entry)
            {
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
            entries.all.push(read);
            open.push(id);
        }
        let end = entries.all.len();
        for done in open {
            entries.all[done].end = end;
        }
        for (id, attribute, offset) in references {
            let Some(&to) = offsets.get(&offset) else { continue };
            match attribute {
                gimli::DW_AT_type => entries.all[id].ty = Some(to),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => entries.all[id].origin = Some(to),
                _ => {}
            }
        }
        let language = entries.all.first().and_then(|root| root.number(gimli::DW_AT_language));
        entries.is_cplusplus = language.is_some_and(|language| {
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
        });
        entries
    }

    /// The entry, and what it refers to for the rest.
    fn origins(&self, id: EntryId) -> impl Iterator<Item = &Entry> {
        const LONGEST: usize = 4;
        std::iter::successors(Some(id), |&id| self.all[id].origin)
            .take(LONGEST)
            .map(|id| &self.all[id])
    }

    pub fn type_of(&self, id: EntryId) -> Option<EntryId> {
        self.origins(id).find_map(|entry| entry.ty)
    }

    /// The name that the linker knows, if there is one.
    pub fn linkage_name(&self, id: EntryId) -> Option<&str> {
        let linkage = self.origins(id).find_map(|entry| entry.linkage_name.as_deref());
        linkage.or_else(|| self.origins(id).find_map(|entry| entry.name.as_deref()))
    }

    pub fn children(&self, id: EntryId) -> impl Iterator<Item = EntryId> {
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

fn has_code(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine
    )
}

struct Reader<'r, 'a> {
    dwarf: &'r Dwarf<'a>,
    unit: &'r Unit<Slice<'a>>,
}

impl<'a> Reader<'_, 'a> {
    fn attribute(&self, name: DwAt, value: Attribute<'a>, entry: &mut Entry) {
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
                if let AttributeValue::FileIndex(index) = value {
                    entry.file = self.file(index);
                }
            }
            _ => {
                let number = match value {
                    AttributeValue::Flag(flag) => Some(flag.into()),
                    AttributeValue::Language(language) => Some(language.0.into()),
                    AttributeValue::Virtuality(virtuality) => Some(virtuality.0.into()),
                    AttributeValue::Exprloc(expression) => match self.operations(expression)[..] {
                        [Operation::PlusConstant { value }] => value.try_into().ok(),
                        _ => None,
                    },
                    other => other.sdata_value().or_else(|| other.udata_value()?.try_into().ok()),
                };
                entry.numbers.extend(number.map(|number| (name, number)));
            }
        }
    }

    fn string(&self, value: Attribute<'a>) -> Option<String> {
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    }

    fn file(&self, index: u64) -> Option<String> {
        let file = self.unit.line_program.as_ref()?.header().file(index)?;
        self.string(file.path_name())
    }

    fn locations(&self, value: Attribute<'a>, entry: &mut Entry) {
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
