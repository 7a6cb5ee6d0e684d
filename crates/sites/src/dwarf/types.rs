//! The types that a compile unit uses as [`Shapes`], with the names that `crashproof cc` gives them, which reads the same debug info as metadata of
//! the front end's code.

use gimli::DwTag;
use rustc_hash::FxHashMap;

use super::entries::{Entries, EntryId, is_composite};
use crate::pointer::{Shapes, Type, TypeId};
use crate::table::{Field, TypeIndex, TypeInfo};

/// No type nests deeper; debug info may be damaged.
const MAX_DEPTH: usize = 64;

const OPAQUE: TypeId = 0;

pub(super) struct Types {
    pub shapes: Shapes,
    ids: FxHashMap<EntryId, TypeId>,
    pointees: FxHashMap<TypeId, Option<EntryId>>,
    /// Composite types.
    names: FxHashMap<String, Vec<TypeId>>,
}

impl Default for Types {
    fn default() -> Types {
        Types {
            shapes: Shapes {
                types: vec![Type::Opaque],
                ..Shapes::default()
            },
            ids: FxHashMap::default(),
            pointees: FxHashMap::default(),
            names: FxHashMap::default(),
        }
    }
}

impl Types {
    /// All types of the unit, and those of other units that are in use.
    pub(super) fn read(entries: &Entries) -> Types {
        let names = Names::read(entries);
        let mut types = Types::default();
        let mut reader = Reader {
            entries,
            names: &names,
            types: &mut types,
            open: Vec::new(),
        };
        for id in 0..entries.all.len() {
            if is_type(entries.all[id].tag) && entries.all[id].in_use {
                reader.of(Some(id), 0);
            }
        }
        for (id, ty) in types.shapes.types.iter().enumerate() {
            if let Type::Composite(index) = ty {
                let name = types.shapes.composites[*index as usize].name.clone();
                types.names.entry(name).or_default().push(id);
            }
        }
        types
    }

    /// `None` is `void`.
    pub(super) fn of(&self, entry: Option<EntryId>) -> TypeId {
        entry.and_then(|entry| self.ids.get(&entry).copied()).unwrap_or(OPAQUE)
    }

    /// The type of what a pointer or reference points to; `None`: nothing that has a known type.
    pub(super) fn pointee(&self, pointer: TypeId) -> Option<TypeId> {
        let pointee = self.of(*self.pointees.get(&pointer)?);
        (self.shapes.get(pointee) != Type::Opaque).then_some(pointee)
    }

    /// The type of the same name and fields as one that another unit has.
    pub(super) fn like(&self, other: &TypeInfo) -> Option<TypeId> {
        let is_alike = |own: &TypeInfo| {
            let mut fields = own.fields.iter().zip(&other.fields);
            let are_alike = fields.all(|(own, other)| {
                own.name == other.name
                    && (own.offset, own.size, own.elements) == (other.offset, other.size, other.elements)
            });
            are_alike && own.size == other.size && own.fields.len() == other.fields.len()
        };
        let mut of_name = self.names.get(&other.name)?.iter().copied();
        of_name.find(|&ty| match self.shapes.get(ty) {
            Type::Composite(index) => is_alike(&self.shapes.composites[index as usize]),
            _ => false,
        })
    }
}

fn is_type(tag: DwTag) -> bool {
    is_composite(tag)
        || is_alias(tag)
        || is_pointer(tag)
        || matches!(
            tag,
            gimli::DW_TAG_array_type | gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type
        )
}

fn is_alias(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_template_alias
    )
}

fn is_pointer(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
    )
}

/// What has to be looked for among all entries.
#[derive(Default)]
struct Names {
    /// `typedef struct { … } node;`
    typedefs: FxHashMap<EntryId, EntryId>,
    /// What an unnamed struct or union is a member of, if it is not nested there: in C by gcc, in a unit of its own by clang.
    holders: FxHashMap<EntryId, EntryId>,
    /// Composite types by their plain names; not those that are declared only.
    definitions: FxHashMap<String, Vec<EntryId>>,
}

impl Names {
    fn read(entries: &Entries) -> Names {
        let mut names = Names::default();
        let in_use = entries.all.iter().enumerate().filter(|(_, entry)| entry.in_use);
        for (id, entry) in in_use {
            if entry.tag == gimli::DW_TAG_typedef
                && let Some(named) = entry.ty.map(|ty| entries.all[ty].definition.unwrap_or(ty))
                && is_composite(entries.all[named].tag)
                && entries.all[named].name.is_none()
            {
                names.typedefs.entry(named).or_insert(id);
            }
            if entry.tag == gimli::DW_TAG_member
                && let Some((held, is_elsewhere)) = held(entries, entry.ty)
                && (is_elsewhere || !entries.is_cplusplus(id))
            {
                names.holders.extend(entry.parent.map(|holder| (held, holder)));
            }
            if is_composite(entry.tag)
                && !entry.has(gimli::DW_AT_declaration)
                && entry.definition.is_none()
                && let Some(name) = &entry.name
            {
                names.definitions.entry(name.to_string()).or_default().push(id);
            }
        }
        names
    }
}

/// The unnamed struct or union that a member is, or is an array of, and whether it is in a unit of its own.
fn held(entries: &Entries, mut ty: Option<EntryId>) -> Option<(EntryId, bool)> {
    let mut is_elsewhere = false;
    for _ in 0..MAX_DEPTH {
        let entry = &entries.all[ty?];
        match entry.tag {
            _ if entry.definition.is_some() => (ty, is_elsewhere) = (entry.definition, true),
            tag if is_composite(tag) => return ty.filter(|_| entry.name.is_none()).map(|ty| (ty, is_elsewhere)),
            gimli::DW_TAG_array_type => ty = entry.ty,
            tag if is_alias(tag) && tag != gimli::DW_TAG_typedef => ty = entry.ty,
            _ => return None,
        }
    }
    None
}

struct Reader<'r> {
    entries: &'r Entries<'r>,
    names: &'r Names,
    types: &'r mut Types,
    /// Composite types that are being read.
    open: Vec<EntryId>,
}

impl Reader<'_> {
    fn of(&mut self, id: Option<EntryId>, depth: usize) -> TypeId {
        let Some(id) = id.filter(|_| depth < MAX_DEPTH) else {
            return OPAQUE;
        };
        if let Some(&known) = self.types.ids.get(&id) {
            // Pointers are not followed here: a type that is being read and comes up again holds itself.
            return if self.open.contains(&id) { OPAQUE } else { known };
        }
        let entry = &self.entries.all[id];
        match entry.tag {
            tag if is_alias(tag) => {
                let ty = self.of(entry.ty, depth + 1);
                self.types.ids.insert(id, ty);
                ty
            }
            tag if is_pointer(tag) => {
                let ty = self.add(id, Type::Pointer);
                self.types.pointees.insert(ty, entry.ty);
                ty
            }
            tag if is_composite(tag) => self.composite(id, depth),
            gimli::DW_TAG_array_type => self.array(id, depth),
            gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => self.add(id, Type::Scalar),
            _ => self.add(id, Type::Opaque),
        }
    }

    fn add(&mut self, id: EntryId, ty: Type) -> TypeId {
        self.types.shapes.types.push(ty);
        let number = self.types.shapes.types.len() - 1;
        self.types.ids.insert(id, number);
        number
    }

    fn byte_size(&self, mut id: EntryId) -> u64 {
        let mut elements: u64 = 1;
        for _ in 0..MAX_DEPTH {
            let entry = &self.entries.all[id];
            if let Some(size) = entry.unsigned(gimli::DW_AT_byte_size) {
                return size.saturating_mul(elements);
            }
            if let Some(definition) = entry.definition {
                id = definition;
                continue;
            }
            match (entry.tag, entry.ty) {
                (tag, _) if is_pointer(tag) => return elements.saturating_mul(8),
                (gimli::DW_TAG_array_type, Some(element)) => {
                    let dimensions = self.dimensions(id).into_iter();
                    elements = dimensions.fold(elements, u64::saturating_mul);
                    id = element;
                }
                (tag, Some(aliased)) if is_alias(tag) => id = aliased,
                _ => return 0,
            }
        }
        0
    }

    /// Elements in each; 0 for an open end.
    fn dimensions(&self, array: EntryId) -> Vec<u64> {
        let subranges = self.entries.children(array).map(|child| &self.entries.all[child]);
        subranges
            .filter(|child| child.tag == gimli::DW_TAG_subrange_type)
            .map(|subrange| {
                let bound = subrange.number(gimli::DW_AT_upper_bound);
                let count = bound.and_then(|bound| bound.checked_add(1)?.try_into().ok());
                subrange.unsigned(gimli::DW_AT_count).or(count).unwrap_or(0)
            })
            .collect()
    }

    /// An array of arrays is an array whose elements are arrays.
    fn array(&mut self, id: EntryId, depth: usize) -> TypeId {
        let element = self.entries.all[id].ty;
        let mut ty = self.of(element, depth + 1);
        let mut size = element.map_or(0, |element| self.byte_size(element));
        for count in self.dimensions(id).into_iter().rev() {
            let stride = size;
            size = size.saturating_mul(count);
            self.types.shapes.types.push(Type::Array {
                element: ty,
                size,
                stride,
            });
            ty = self.types.shapes.types.len() - 1;
        }
        self.types.ids.insert(id, ty);
        ty
    }

    fn composite(&mut self, id: EntryId, depth: usize) -> TypeId {
        let entry = &self.entries.all[id];
        if let Some(definition) = entry.definition {
            let ty = self.of(Some(definition), depth + 1);
            self.types.ids.insert(id, ty);
            return ty;
        }
        if entry.has(gimli::DW_AT_declaration) {
            let of_name = entry
                .name
                .as_ref()
                .and_then(|name| self.names.definitions.get(name.as_ref()));
            let name = self.name(id);
            let mut definitions = of_name
                .into_iter()
                .flatten()
                .copied()
                .filter(|&definition| self.entries.can_define(definition, id) && self.name(definition) == name);
            let ty = match (definitions.next(), definitions.next()) {
                (Some(definition), None) => self.of(Some(definition), depth + 1),
                _ => OPAQUE,
            };
            self.types.ids.insert(id, ty);
            return ty;
        }
        let index = self.types.shapes.composites.len() as TypeIndex;
        let ty = self.add(id, Type::Composite(index));
        self.types.shapes.composites.push(TypeInfo {
            name: self.name(id),
            size: entry.unsigned(gimli::DW_AT_byte_size).unwrap_or(0),
            is_union: entry.tag == gimli::DW_TAG_union_type,
            fields: Vec::new(),
        });
        self.types.shapes.field_types.push(Vec::new());
        self.open.push(id);
        let (mut fields, mut field_types) = (Vec::new(), Vec::new());
        for child in self.entries.children(id) {
            let member = &self.entries.all[child];
            let is_field = match member.tag {
                gimli::DW_TAG_inheritance => !member.has(gimli::DW_AT_virtuality),
                gimli::DW_TAG_member => !member.has(gimli::DW_AT_external) && !member.has(gimli::DW_AT_declaration),
                _ => false,
            };
            if is_field {
                let ty = self.of(member.ty, depth + 1);
                fields.push(self.field(child, ty));
                field_types.push(ty);
            }
        }
        self.open.pop();
        self.types.shapes.composites[index as usize].fields = fields;
        self.types.shapes.field_types[index as usize] = field_types;
        ty
    }

    fn field(&self, id: EntryId, ty: TypeId) -> Field {
        let shapes = &self.types.shapes;
        let member = &self.entries.all[id];
        let bytes = member.ty.map_or(0, |ty| self.byte_size(ty));
        let bits = member
            .unsigned(gimli::DW_AT_bit_size)
            .unwrap_or(bytes.saturating_mul(8));
        let start = member
            .unsigned(gimli::DW_AT_data_member_location)
            .unwrap_or(0)
            .saturating_mul(8);
        let first = match (
            member.unsigned(gimli::DW_AT_data_bit_offset),
            member.unsigned(gimli::DW_AT_bit_offset),
        ) {
            (Some(bit), _) => bit,
            // DWARF 3 counts from the most significant bit of the unit that holds it.
            (None, Some(from_top)) => {
                let unit = member
                    .unsigned(gimli::DW_AT_byte_size)
                    .unwrap_or(bytes)
                    .saturating_mul(8);
                start.saturating_add(unit.saturating_sub(from_top).saturating_sub(bits))
            }
            (None, None) => start,
        };
        let is_base = member.tag == gimli::DW_TAG_inheritance;
        let size = first.saturating_add(bits).div_ceil(8) - first / 8;
        let name = match &member.name {
            // Of a class with virtual functions: as clang has it.
            Some(name) => name.replacen("_vptr.", "_vptr$", 1),
            None => match shapes.get(ty) {
                Type::Composite(base) if is_base => shapes.composites[base as usize].name.clone(),
                _ => String::new(),
            },
        };
        let (mut innermost, mut stride) = (ty, None);
        while let Type::Array {
            element, stride: step, ..
        } = shapes.get(innermost)
        {
            (innermost, stride) = (element, Some(step));
        }
        let composite = match shapes.get(innermost) {
            Type::Composite(index) => Some(index),
            _ => None,
        };
        let element = composite.map_or(stride.unwrap_or(0), |index| shapes.composites[index as usize].size);
        Field {
            name,
            offset: first / 8,
            size,
            ty: composite,
            elements: stride.map(|_| size.checked_div(element).unwrap_or(0)),
            points_to: None,
        }
    }

    /// As the source names it, qualified.
    fn name(&self, id: EntryId) -> String {
        let entry = &self.entries.all[id];
        if let Some(plain) = &entry.name {
            let name = self.qualify(id, plain);
            return match entry.tag {
                _ if self.entries.is_cplusplus(id) => name,
                gimli::DW_TAG_union_type => format!("union {name}"),
                _ => format!("struct {name}"),
            };
        }
        if let Some(&typedef) = self.names.typedefs.get(&id)
            && let Some(plain) = &self.entries.all[typedef].name
        {
            return self.qualify(typedef, plain);
        }
        let file = entry.file.as_deref().unwrap_or("");
        let file = file.rsplit('/').next().unwrap_or(file);
        let line = entry.number(gimli::DW_AT_decl_line).unwrap_or(0);
        self.qualify(id, &format!("(unnamed {file}:{line})"))
    }

    /// With the namespaces and classes around it.
    fn qualify(&self, id: EntryId, plain: &str) -> String {
        let mut name = plain.to_owned();
        let around = |id: EntryId| {
            // What is declared in one scope and defined elsewhere is of the first.
            let declared = self.entries.all[id].origin.unwrap_or(id);
            self.names
                .holders
                .get(&id)
                .copied()
                .or(self.entries.all[declared].parent)
        };
        let mut scope = around(id);
        for _ in 0..MAX_DEPTH {
            let Some(outer) = scope else { break };
            let entry = &self.entries.all[outer];
            match &entry.name {
                Some(outer) if is_composite(entry.tag) || entry.tag == gimli::DW_TAG_namespace => {
                    name = format!("{outer}::{name}");
                }
                None if entry.tag == gimli::DW_TAG_namespace => name = format!("(anonymous)::{name}"),
                _ => {}
            }
            scope = around(outer);
        }
        name
    }
}
