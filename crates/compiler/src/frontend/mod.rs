//! What the source writes: read from the front end's bitcode, in which struct types, field accesses and calls are still there.
//!
//! Squint (dissertation, section 4.4.2) takes the types of stores from the debug info of the optimised binary, where a field is a bare
//! offset from a register. Here they are looked up, by source position, in the code as it was before the optimiser:
//! `walker` follows each address back to a typed object. A store through a pointer whose type only the caller knows (`memcpy`, a
//! helper that takes `void *`) is noted as such, with every call's arguments, and resolved along the recorded stack
//! (`crashproof_sites::Typing`).
//!
//! A position that is shared by several accesses (a macro, a loop header) is told apart by size and offset; if that does not
//! decide, the type stays unknown rather than being guessed.

mod accesses;
mod casts;
mod dwarf;
mod types;
mod walker;

use std::cell::RefCell;
use std::collections::HashMap;

use crashproof_llvm::Module;
use crashproof_sites::{Call, Level, Location, Place, Target, TypeIndex, TypeInfo};

use accesses::{Access, Object};
pub(crate) use accesses::{linkage_name, source_file};
pub(crate) use walker::returns_its_argument;

/// Where in the source something is, within a function.
type Position = (u32, u32);

/// The accesses, types and calls of a module.
pub struct FrontEnd {
    functions: HashMap<String, Function>,
    types: Vec<TypeInfo>,
    calls: Vec<Call>,
    /// A C++ module knows thousands of types, of which few are written to: only those get a place in the object's table.
    exported: RefCell<Exported>,
}

#[derive(Default)]
struct Function {
    file: String,
    accesses: Vec<Access>,
    by_position: HashMap<Position, Vec<usize>>,
    /// What is read there, by the operand that points to it.
    loads: HashMap<(Position, u32), Vec<Access>>,
}

#[derive(Default)]
struct Exported {
    indices: HashMap<TypeIndex, TypeIndex>,
    order: Vec<TypeIndex>,
}

impl FrontEnd {
    /// Reads the front end's bitcode. It must have debug info; where it has none, nothing is known.
    pub fn read(module: &mut Module) -> FrontEnd {
        accesses::read(module, false)
    }

    /// The same, with what the source reads.
    pub fn read_with_loads(module: &mut Module) -> FrontEnd {
        accesses::read(module, true)
    }

    /// What an instruction reads through one of its operands.
    pub fn loaded(&self, function: &str, line: u32, column: u32, operand: u32, size: Option<u64>) -> Target {
        let loads = self
            .functions
            .get(function)
            .and_then(|function| function.loads.get(&((line, column), operand)));
        let all: Vec<&Access> = loads.into_iter().flatten().collect();
        let exact: Vec<&Access> = all.iter().copied().filter(|access| access.size == size).collect();
        let common = common(if exact.is_empty() { &all } else { &exact });
        self.export(common.unwrap_or_default())
    }

    /// What an instruction of the optimised module writes: by the innermost position of its debug location (`function` is the
    /// linkage name of that position's subprogram); `size` in bytes and the constant `offset` of its address from the pointer
    /// that it was computed from tell apart what shares a position, and say which piece of a struct's copy it is.
    pub fn target(&self, function: &str, line: u32, column: u32, size: Option<u64>, offset: Option<i64>) -> Target {
        let Some(function) = self.functions.get(function) else {
            return Target::Unknown;
        };
        let candidates: Vec<&Access> = function.at((line, column)).collect();
        let exact: Vec<&Access> = candidates
            .iter()
            .copied()
            .filter(|a| a.size == size && size.is_some())
            .collect();
        let pool = if exact.is_empty() { &candidates } else { &exact };
        // What is known to be at that offset; else what is not known to be elsewhere.
        let [here, maybe] = [Some(true), None]
            .map(|wanted| -> Vec<&Access> { pool.iter().copied().filter(|a| a.is_at(offset) == wanted).collect() });
        let pool = match (here.is_empty(), maybe.is_empty()) {
            (false, _) => &here,
            (true, false) => &maybe,
            (true, true) => pool,
        };
        if let [access] = pool[..]
            && let Some(merged) = function.merged(access, size)
        {
            return self.export(access.widened(&merged, &self.types));
        }
        let Some(mut common) = common(pool) else {
            return Target::Unknown;
        };
        if let Target::Place(place) = &mut common
            && size.zip(place.size).is_some_and(|(size, whole)| size > whole)
            && here.is_empty()
        {
            // It begins with something else, which is not known: all that is sure is the array that it is in.
            place.levels.retain(|level| level.array.is_some());
            if place.levels.is_empty() {
                return Target::Unknown;
            }
        }
        self.export(piece(common, size, offset))
    }

    /// Source positions of the further stores that an instruction at this position must have merged, because it writes more than
    /// the source does there: those next to it in the same object.
    pub fn merged(&self, function: &str, line: u32, column: u32, size: Option<u64>) -> Vec<Location> {
        let Some(found) = self.functions.get(function) else {
            return Vec::new();
        };
        let candidates = found.at((line, column)).filter_map(|access| found.merged(access, size));
        let mut merged = candidates
            .map(|merged| merged.positions)
            .max_by_key(Vec::len)
            .unwrap_or_default();
        merged.sort_unstable();
        merged.dedup();
        merged.retain(|&position| position != (line, column));
        merged
            .into_iter()
            .map(|(line, column)| Location {
                function: function.to_owned(),
                file: found.file.clone(),
                line,
                column,
            })
            .collect()
    }

    /// The types that targets refer to, and the calls.
    pub fn finish(mut self) -> (Vec<TypeInfo>, Vec<Call>) {
        let mut calls = std::mem::take(&mut self.calls);
        for call in &mut calls {
            for (_, target) in &mut call.arguments {
                *target = self.export(std::mem::take(target));
            }
        }
        let Exported { indices, order } = self.exported.into_inner();
        let types = order
            .iter()
            .map(|&index| {
                let mut info = self.types[index as usize].clone();
                for field in &mut info.fields {
                    field.ty = field.ty.and_then(|ty| indices.get(&ty).copied());
                    field.points_to = field.points_to.and_then(|ty| indices.get(&ty).copied());
                }
                info
            })
            .collect();
        (types, calls)
    }

    fn export(&self, mut target: Target) -> Target {
        if let Target::Place(place) = &mut target {
            for level in &mut place.levels {
                level.ty = self.export_type(level.ty);
            }
        }
        target
    }

    /// With the types of its members.
    fn export_type(&self, ty: TypeIndex) -> TypeIndex {
        let index = {
            let mut exported = self.exported.borrow_mut();
            if let Some(&index) = exported.indices.get(&ty) {
                return index;
            }
            let index = exported.order.len() as TypeIndex;
            exported.order.push(ty);
            exported.indices.insert(ty, index);
            index
        };
        for member in self.types[ty as usize].fields.iter().filter_map(|field| field.ty) {
            self.export_type(member);
        }
        index
    }
}

impl Function {
    /// The optimiser drops the column where code of two columns met.
    fn at(&self, (line, column): Position) -> impl Iterator<Item = &Access> {
        let exact = self.by_position.get(&(line, column)).map_or(&[][..], Vec::as_slice);
        let on_line = self
            .accesses
            .iter()
            .filter(move |access| column == 0 && line != 0 && access.position.0 == line);
        exact.iter().map(|&index| &self.accesses[index]).chain(on_line)
    }

    /// The stores that together with this one fill `size` bytes of one object without a gap, if it does not do so alone.
    fn merged(&self, access: &Access, size: Option<u64>) -> Option<Merged> {
        let size = size?;
        let (object, start, own) = access.extent()?;
        if own >= size {
            return None;
        }
        let same: Vec<(Position, u64, u64)> = self
            .accesses
            .iter()
            .filter_map(|other| {
                let (other_object, start, size) = other.extent()?;
                (other_object == object).then_some((other.position, start, size))
            })
            .collect();
        // The merged store begins with one of them.
        let starts = same.iter().map(|&(_, other, _)| other);
        starts
            .filter(|&first| first <= start && start + own <= first.saturating_add(size))
            .find_map(|first| covering(&same, first, first.saturating_add(size)))
    }
}

/// Stores that the optimiser made one of.
struct Merged {
    start: u64,
    size: u64,
    positions: Vec<Position>,
}

/// The stores within `start..end`, if they leave no gap.
fn covering(stores: &[(Position, u64, u64)], start: u64, end: u64) -> Option<Merged> {
    let mut within: Vec<_> = stores
        .iter()
        .filter(|(_, first, size)| *first >= start && first.saturating_add(*size) <= end)
        .collect();
    within.sort_unstable_by_key(|(_, first, _)| *first);
    let filled = within.iter().try_fold(start, |filled, (_, first, size)| {
        (*first <= filled).then(|| filled.max(first + size))
    });
    (filled == Some(end)).then(|| Merged {
        start,
        size: end - start,
        positions: within.iter().map(|(position, ..)| *position).collect(),
    })
}

/// What the accesses have in common, so that each of them may be meant.
fn common(accesses: &[&Access]) -> Option<Target> {
    let (first, rest) = accesses.split_first()?;
    let mut common = first.target.clone();
    for access in rest {
        common = match (common, &access.target) {
            (a, b) if a == *b => a,
            (Target::Place(mut a), Target::Place(b)) => {
                // Two fields of one struct, say: the struct, not knowing where in it.
                a.levels.retain(|level| b.levels.contains(level));
                if a.levels.is_empty() {
                    return None;
                }
                if a.size != b.size {
                    a.size = None;
                }
                if a.argument != b.argument {
                    a.argument = None;
                }
                Target::Place(a)
            }
            _ => return None,
        };
    }
    Some(common)
}

/// The optimiser makes several stores of a struct's copy: which bytes of it one is.
fn piece(target: Target, size: Option<u64>, offset: Option<i64>) -> Target {
    let Target::Place(place) = &target else { return target };
    let (Some(whole), Some(size), Some(offset)) = (place.size, size, offset.and_then(|o| u64::try_from(o).ok())) else {
        return target;
    };
    if size >= whole {
        return target;
    }
    // The offset is from an object of one of the levels: the outermost that makes the piece lie within what is written.
    let skipped = place.levels.iter().rev().find_map(|level| {
        let skipped = offset.checked_sub(level.offset)?;
        (level.array.is_none() && skipped + size <= whole).then_some(skipped)
    });
    let Some(skipped) = skipped else { return target };
    let moved = |level: &Level| Level {
        offset: if level.array.is_none() {
            level.offset + skipped
        } else {
            level.offset
        },
        ..*level
    };
    Target::Place(Place {
        levels: place.levels.iter().map(moved).collect(),
        size: Some(size),
        argument: place.argument.clone().map(|mut argument| {
            argument.offset = argument.offset.map(|offset| offset + skipped as i64);
            argument
        }),
    })
}

impl Access {
    /// Whether the constant offset from some pointer speaks for this access; `None`: neither for nor against.
    fn is_at(&self, offset: Option<i64>) -> Option<bool> {
        let offset = offset?;
        match &self.target {
            Target::Place(place) => Some(place.levels.iter().any(|level| level.offset as i64 == offset)),
            Target::Argument(argument) => Some(argument.offset? == offset),
            Target::Unknown | Target::NoStruct => None,
        }
    }

    /// What the merged store writes, of which this is a part.
    fn widened(&self, merged: &Merged, types: &[TypeInfo]) -> Target {
        let Target::Place(place) = &self.target else {
            return Target::Unknown;
        };
        let Some(holder) = holder(place) else {
            return Target::Unknown;
        };
        let back = holder.offset - merged.start;
        // The inner structs that do not hold all of it are not what is written.
        let levels = place.levels.iter().filter_map(|level| {
            if level.array.is_some() {
                return Some(*level);
            }
            let offset = level.offset.checked_sub(back)?;
            (offset + merged.size <= types[level.ty as usize].size).then_some(Level { offset, ..*level })
        });
        let levels: Vec<Level> = levels.collect();
        if levels.is_empty() {
            return Target::Unknown;
        }
        Target::Place(Place {
            levels,
            size: Some(merged.size),
            argument: place.argument.clone().map(|mut argument| {
                // That of an array is where the array begins.
                if place.levels.iter().all(|level| level.array.is_none()) {
                    argument.offset = argument.offset.map(|offset| offset - back as i64);
                }
                argument
            }),
        })
    }

    /// The object and what it is, and the bytes of it that are written.
    fn extent(&self) -> Option<((Object, TypeIndex), u64, u64)> {
        let Target::Place(place) = &self.target else {
            return None;
        };
        let holder = holder(place)?;
        Some(((self.object, holder.ty), holder.offset, self.size?))
    }
}

/// The outermost object in which it is known where the place is: the element of an array, if the index is not a constant.
fn holder(place: &Place) -> Option<&Level> {
    place.levels.iter().take_while(|level| level.array.is_none()).last()
}
