//! What lies at an offset of a type.

use crate::table::{Field, Level, TypeIndex, TypeInfo};

/// Recursive types do not occur, but a corrupt table may claim one.
const MAX_DEPTH: usize = 32;

/// A struct or union that the bytes lie in, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    pub ty: TypeIndex,
    pub offset: u64,
}

/// The structs and unions within an object of type `ty` that hold all of `size` bytes at `offset`, outermost (`ty`) first. Without a
/// size, goes no deeper than where the bytes are the first of a member: what is pointed to is as likely all of it.
pub fn nest(types: &[TypeInfo], ty: TypeIndex, offset: u64, size: Option<u64>) -> Vec<Inside> {
    let mut found = vec![Inside { ty, offset }];
    while found.len() < MAX_DEPTH
        && let Some(Inside { ty, offset }) = found.last().copied()
        && (size.is_some() || offset > 0)
        && let Some(info) = types.get(ty as usize)
        // Members of a union lie upon each other: which one is meant is not known.
        && (!info.is_union || info.fields.len() == 1)
        && let Some(inner) = info.fields.iter().find_map(|field| field.member(types, offset, size))
    {
        found.push(inner);
    }
    found
}

/// Whether it ends with an array of which the type does not say how long it is.
pub fn is_open_ended(info: &TypeInfo) -> bool {
    info.fields.last().is_some_and(|field| field.elements == Some(0))
}

/// The fields that share a byte with the range.
pub fn overlapping(info: &TypeInfo, offset: u64, size: u64) -> impl Iterator<Item = &Field> {
    let end = offset.saturating_add(size.max(1));
    info.fields
        .iter()
        .filter(move |field| field.offset < end && offset < field.offset.saturating_add(field.size.max(1)))
}

impl Field {
    /// If it is, or is an array of, a struct that the bytes lie in: that struct, and where in it they are.
    fn member(&self, types: &[TypeInfo], offset: u64, size: Option<u64>) -> Option<Inside> {
        let ty = self.ty?;
        let element = types.get(ty as usize)?.size;
        let within = offset.checked_sub(self.offset).filter(|&within| within < self.size)?;
        let within = within.checked_rem(element)?;
        (within.checked_add(size.unwrap_or(1))? <= element).then_some(Inside { ty, offset: within })
    }
}

impl From<Inside> for Level {
    fn from(inside: Inside) -> Level {
        Level {
            ty: inside.ty,
            offset: inside.offset,
            array: None,
        }
    }
}

/// What the bytes `offset..offset + size` of a type are called: `next`, `entries[].key`, `low|high` of a union, `key+value` if
/// they are several fields, `bytes 8..24` if they are many or none.
pub fn field_name(types: &[TypeInfo], ty: TypeIndex, offset: u64, size: u64) -> String {
    path(types, ty, offset, size.max(1), MAX_DEPTH)
        .unwrap_or_else(|| format!("bytes {offset}..{}", offset.saturating_add(size)))
}

fn path(types: &[TypeInfo], ty: TypeIndex, offset: u64, size: u64, depth: usize) -> Option<String> {
    const MANY: usize = 3;
    let info = types.get(ty as usize)?;
    let end = offset.checked_add(size)?;
    let fields: Vec<&Field> = overlapping(info, offset, size).collect();
    // An open-ended array has no size; what lies behind the struct is it.
    let open_end = || {
        info.fields
            .last()
            .filter(|field| field.elements == Some(0) && field.offset <= offset)
    };
    let names: Vec<String> = match fields[..] {
        [] => vec![format!("{}[]", open_end()?.name)],
        [field] => {
            let inner = field.ty.filter(|_| depth > 0).and_then(|inner| {
                let element = types.get(inner as usize)?.size;
                let within = offset.checked_sub(field.offset)?.checked_rem(element)?;
                (within.checked_add(size)? <= element && (within, size) != (0, element))
                    .then(|| path(types, inner, within, size, depth - 1))?
            });
            let array = if field.elements.is_some() { "[]" } else { "" };
            vec![match inner {
                // A member without a name lends its fields.
                Some(inner) if field.name.is_empty() => inner,
                Some(inner) => format!("{}{array}.{inner}", field.name),
                None => format!("{}{array}", field.name),
            }]
        }
        // All that a copy covers, and of a union all that it may be.
        _ if fields.len() <= MANY => fields.iter().map(|field| field.name.clone()).collect(),
        _ => return None,
    };
    let covered = fields.iter().all(|field| field.offset < end);
    (covered && names.iter().all(|name| !name.is_empty())).then(|| names.join(if info.is_union { "|" } else { "+" }))
}
