//! The functions of a compile unit: where their code is, and where their variables are.

use std::ops::Range;

use super::entries::{Entries, EntryId, FrameBase, Location};
use super::types::Types;
use crate::pointer::TypeId;

/// No scopes nest deeper; debug info may be damaged.
const MAX_DEPTH: usize = 256;

#[derive(Debug)]
pub(super) struct Function {
    /// As the linker knows it.
    pub name: String,
    /// Where it is entered.
    pub entry: u64,
    pub ranges: Vec<Range<u64>>,
    pub frame_base: Option<FrameBase>,
    pub variables: Vec<Variable>,
    /// What it returns; `None` is `void`.
    pub returns: Option<TypeId>,
}

/// A variable or parameter, of the function or of one that was inlined there, while it is in one place.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub ty: TypeId,
    pub range: Range<u64>,
    pub location: Location,
    /// It is nowhere else while it is in scope: not optimised.
    pub is_fixed: bool,
}

/// A variable at a fixed address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Global {
    pub address: u64,
    pub ty: TypeId,
}

/// Functions by where they are entered; globals by their address.
pub(super) fn read(entries: &Entries, types: &Types) -> (Vec<Function>, Vec<Global>) {
    let (mut functions, mut globals) = (Vec::new(), Vec::new());
    for (id, entry) in entries.all[..entries.own].iter().enumerate() {
        if entry.tag == gimli::DW_TAG_subprogram && !entry.ranges.is_empty() {
            functions.push(function(entries, types, id));
        }
        if entry.tag == gimli::DW_TAG_variable
            && let &[(None, Location::Static(address))] = &entry.locations[..]
            // The linker left it out.
            && address != 0
        {
            globals.push(Global {
                address,
                ty: types.of(entries.type_of(id)),
            });
        }
    }
    functions.sort_unstable_by_key(|function| function.entry);
    globals.sort_unstable_by_key(|global| global.address);
    (functions, globals)
}

fn function(entries: &Entries, types: &Types, id: EntryId) -> Function {
    let entry = &entries.all[id];
    let mut function = Function {
        name: entries.linkage_name(id).unwrap_or_default().to_owned(),
        // Parts that were moved away as seldom executed follow.
        entry: entry.ranges[0].start,
        ranges: entry.ranges.clone(),
        frame_base: entry.frame_base,
        variables: Vec::new(),
        returns: entries.type_of(id).map(|ty| types.of(Some(ty))),
    };
    add_variables(entries, types, id, &mut function, 0);
    function
}

fn add_variables(entries: &Entries, types: &Types, scope: EntryId, function: &mut Function, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    for child in entries.children(scope) {
        let entry = &entries.all[child];
        match entry.tag {
            gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                let ty = types.of(entries.type_of(child));
                for (range, location) in &entry.locations {
                    let is_fixed = range.is_none();
                    let ranges = match range {
                        Some(range) => std::slice::from_ref(range),
                        None => &entries.all[scope].ranges[..],
                    };
                    function.variables.extend(ranges.iter().map(|range| Variable {
                        ty,
                        range: range.clone(),
                        location: *location,
                        is_fixed,
                    }));
                }
            }
            gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine => {
                add_variables(entries, types, child, function, depth + 1);
            }
            _ => {}
        }
    }
}
