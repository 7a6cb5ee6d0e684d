//! What a cast in the source says of an address, by the struct type that the front end's code names.

use std::rc::Rc;

use crashproof_sites::TypeIndex;
use crashproof_sites::pointer::{Outer, Pointer, Shapes, Type, TypeId};

use super::types::Types;
use crashproof_llvm::{Layout, Type as IrType};

/// What the source's cast, or its mere field access, says that the address is: the start of a struct.
pub(super) fn cast(pointer: Pointer, structure: IrType, layout: Layout, types: &mut Types) -> Pointer {
    let Some(name) = structure.struct_name().map(plain_struct_name) else {
        return pointer;
    };
    if pointer.looped {
        return pointer;
    }
    let size = layout.size_of(structure);
    if let Some(object) = pointer.object
        && let Ok(offset) = u64::try_from(pointer.offset)
    {
        let is_it = |composite: TypeIndex| {
            types.shapes.composites[composite as usize].size == size && same_name(types.plain_name(composite), name)
        };
        // Already seen as such, or a member of a union on the way.
        let mut at = Some((object, offset));
        while let Some((ty, within)) = at {
            if let Type::Composite(composite) = types.get(ty) {
                if within == 0 && is_it(composite) {
                    return pointer;
                }
                if types.shapes.composites[composite as usize].is_union
                    && let Some((member, inside)) = union_member(&types.shapes, composite, within, is_it)
                {
                    return Pointer {
                        offset: inside as i64,
                        outer: Some(Rc::new(Outer {
                            at: pointer,
                            array: None,
                        })),
                        ..Pointer::to(member)
                    };
                }
            }
            at = types
                .shapes
                .part_at(ty, within)
                .map(|(part, offset)| (part, within - offset));
        }
        // A base class without the tail padding that only whole objects have.
        if name.ends_with(".base") {
            return pointer;
        }
    }
    let candidates = types.named_composites(name.trim_end_matches(".base"), size);
    match candidates[..] {
        [object] => Pointer {
            argument: pointer.argument,
            ..Pointer::to(object)
        },
        // Template instances are hard to tell apart; what the pointer was before is not it.
        _ => Pointer {
            argument: pointer.argument,
            ..Pointer::default()
        },
    }
}

/// A struct that the members of a union have at the address.
fn union_member(
    types: &Shapes,
    union: TypeIndex,
    offset: u64,
    is_it: impl Fn(TypeIndex) -> bool,
) -> Option<(TypeId, u64)> {
    let fields = &types.composites[union as usize].fields;
    (0..fields.len()).find_map(|index| {
        let mut at = Some((
            types.field_type(union, index),
            offset.checked_sub(fields[index].offset)?,
        ));
        while let Some((ty, within)) = at {
            if let Type::Composite(composite) = types.get(ty)
                && within == 0
                && is_it(composite)
            {
                return Some((ty, 0));
            }
            at = types.part_at(ty, within).map(|(part, start)| (part, within - start));
        }
        None
    })
}

/// `struct.node.12` is `node`.
fn plain_struct_name(name: &str) -> &str {
    let name = ["struct.", "class.", "union."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let name = match name.rsplit_once('.') {
        Some((front, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => front,
        _ => name,
    };
    // Nested in namespaces and classes; the debug info's own name is the last part.
    name.rsplit("::").next().unwrap_or(name)
}

/// LLVM leaves out template arguments, and calls unnamed types `anon`.
fn same_name(declared: &str, llvm: &str) -> bool {
    let llvm = llvm.trim_end_matches(".base");
    declared == llvm || llvm == "anon" || declared.split('<').next() == Some(llvm)
}
