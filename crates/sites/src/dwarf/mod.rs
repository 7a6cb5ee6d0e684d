//! Types and fields of stores in code that `crashproof cc` did not build, from its debug info (Squint, section 4.4.2, takes all types
//! from there).
//!
//! Debug info says where variables are, not through what a store goes. [`flow`] follows values through a function's machine code: from
//! variables, parameters and globals of known types, through members that are pointers, additions of constants and multiples of an
//! element's size, to the addresses of stores and the arguments of calls. Where paths meet, only what all agree on is kept, and
//! where two sources disagree, nothing: a type that may be wrong is worse than none.
//!
//! What may be missed: whatever is computed in another way, or is read from memory whose type is not known. What is not told apart: a pointer
//! that the source casts to another type in the very expression that stores, which leaves no trace in the code unless the fields do not fit.
//!
//! Damaged debug info, or none, is never an error: there are no types then.
//!
//! It is worth its lines where a program has layers (2026-11-19; gcc `-g -O2`, `representative` with and without it, everything else the
//! same). Of 48 seeded bugs of ten drivers, 200 operations and 10 s each, it finds 44 with these types and 39 without; none is lost. Four of
//! the five are in `btree_tx.c`, on libpmemobj: found after 6 to 173 states, and without types, given 60 s, after 338 to 615 states, or not in
//! 1,502. In the thirteen plain structures, with 100 operations, all 67 bugs are found either way, after 2,419 states in all with types and
//! 2,496 without (`-O0`: 2,617 and 2,867): there a call updates one object, and stands for it.

mod entries;
mod flow;
mod functions;
#[cfg(test)]
mod tests;
mod types;
mod units;
mod value;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use gimli::{DwarfSections, EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ReadCache};
use rustc_hash::FxHashMap;

use crate::table::{Target, TypeInfo};
use crashproof_stacks::code::Code;
use entries::Entries;
use functions::{Function, Global};
use types::Types;
use units::{Home, Units};

/// Debug info beyond this is not read.
const LARGEST: u64 = 256 << 20;
/// Calls within calls that are followed for what they return.
const MAX_CALLS: usize = 6;

/// The debug info of a module, read as far as it was asked for.
pub(crate) struct DebugInfo {
    sections: DwarfSections<Vec<u8>>,
    code: Code,
    /// Where the code of each unit is, sorted; index of the unit.
    ranges: Vec<(Range<u64>, usize)>,
    /// Those that have code.
    units: Vec<(Home, OnceCell<UnitInfo>)>,
    homes: Units,
    /// By unit and number.
    followed: RefCell<FxHashMap<(usize, usize), Rc<flow::Followed>>>,
    /// Those that are being followed: a function, those that it calls, and so on.
    open: RefCell<Vec<(usize, usize)>>,
}

/// A compile unit.
#[derive(Default)]
struct UnitInfo {
    types: Types,
    functions: Vec<Function>,
    /// Where the code of each function is, sorted; index of the function.
    ranges: Vec<(Range<u64>, usize)>,
    globals: Vec<Global>,
}

/// What an instruction stores to.
pub(crate) struct StoreSite {
    /// The unit whose types it refers to.
    pub unit: usize,
    pub target: Target,
    /// A string instruction, which stores piece by piece.
    pub is_copy: bool,
}

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionName {
    pub entry: u64,
    pub name: String,
}

/// Who is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// Code of the module at that address.
    Function(u64),
    /// Of another module, or of this one through the table that the loader fills.
    External(String),
    /// Through a pointer.
    Unknown,
}

impl Callee {
    /// Whether the function was entered by this call, and not by another that ended with it.
    pub(crate) fn is(&self, function: &FunctionName) -> bool {
        match self {
            Callee::Function(address) => *address == function.entry,
            Callee::External(name) => *name == function.name,
            Callee::Unknown => false,
        }
    }
}

impl DebugInfo {
    /// `module` has the code, `debug` the debug info; they may be the same. `None`: cannot be read, or there is none.
    pub(crate) fn read(module: &Path, debug: &Path) -> Option<DebugInfo> {
        let code = Code::read(module)?;
        let cache = ReadCache::new(crashproof_trace::symbols::open_regular(debug).ok()?);
        let object = object::File::parse(&cache).ok()?;
        if object.section_by_name(".debug_info")?.size() > LARGEST {
            return None;
        }
        // Names and types that `dwz -m` moved to another file.
        if object.section_by_name(".gnu_debugaltlink").is_some() {
            return None;
        }
        let sections = DwarfSections::load(|id| {
            let section = object.section_by_name(id.name());
            let data = section.and_then(|section| section.uncompressed_data().ok());
            Ok::<_, gimli::Error>(data.unwrap_or_default().into_owned())
        })
        .ok()?;
        let (mut ranges, mut units) = (Vec::new(), Vec::new());
        let dwarf = sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.offset().as_debug_info_offset() else {
                continue;
            };
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Ok(mut of_unit) = dwarf.unit_ranges(&unit) else {
                continue;
            };
            let before = ranges.len();
            while let Ok(Some(range)) = of_unit.next() {
                // What begins at 0 was left out by the linker.
                if range.begin != 0 && range.begin < range.end {
                    ranges.push((range.begin..range.end, units.len()));
                }
            }
            if ranges.len() > before {
                units.push((Home::Info(offset.0), OnceCell::new()));
            }
        }
        let homes = Units::read(&dwarf);
        Some(DebugInfo {
            sections,
            code,
            ranges: disjoint(&ranges),
            units,
            homes,
            followed: RefCell::default(),
            open: RefCell::default(),
        })
    }

    pub(crate) fn types(&self, unit: usize) -> &[TypeInfo] {
        &self.unit(unit).types.shapes.composites
    }

    /// What the instruction at an address stores to.
    pub(crate) fn store(&self, address: u64) -> Option<StoreSite> {
        let (unit, followed) = self.followed(address)?;
        let store = followed.stores.get(&address)?;
        Some(StoreSite {
            unit,
            target: store.target.clone(),
            is_copy: store.is_copy,
        })
    }

    /// The call that returns to an address: who is called, and what the argument in the n-th register points to. The unit with it.
    pub(crate) fn argument(&self, return_address: u64, index: u32) -> Option<(Callee, usize, Target)> {
        let (unit, followed) = self.followed(return_address.checked_sub(1)?)?;
        let call = followed.calls.get(&return_address)?;
        let target = call.arguments.get(index as usize)?.clone();
        Some((call.callee.clone(), unit, target))
    }

    /// The call that returns to an address.
    pub(crate) fn callee(&self, return_address: u64) -> Option<Callee> {
        let (_, followed) = self.followed(return_address.checked_sub(1)?)?;
        Some(followed.calls.get(&return_address)?.callee.clone())
    }

    /// The function that has the address.
    pub(crate) fn function(&self, address: u64) -> Option<FunctionName> {
        let (unit, number) = self.find(address)?;
        let function = &self.unit(unit).functions[number];
        Some(FunctionName {
            entry: function.entry,
            name: function.name.clone(),
        })
    }

    fn followed(&self, address: u64) -> Option<(usize, Rc<flow::Followed>)> {
        let key = self.find(address)?;
        if let Some(known) = self.followed.borrow().get(&key) {
            return Some((key.0, known.clone()));
        }
        self.open.borrow_mut().push(key);
        let function = &self.unit(key.0).functions[key.1];
        let followed = Rc::new(flow::follow(self, key.0, function));
        self.open.borrow_mut().pop();
        self.followed.borrow_mut().insert(key, followed.clone());
        Some((key.0, followed))
    }

    /// Unit and number of the function that has the address.
    fn find(&self, address: u64) -> Option<(usize, usize)> {
        let unit = lookup(&self.ranges, address)?;
        Some((unit, lookup(&self.unit(unit).ranges, address)?))
    }

    /// What a function returns, as its code has it; `None`: not known, or not of the unit, whose types are its own.
    fn returned(&self, unit: usize, entry: u64) -> Option<value::Address> {
        if lookup(&self.ranges, entry) != Some(unit) {
            return None;
        }
        let key = self.find(entry)?;
        let is_start = self.unit(unit).functions[key.1].entry == entry;
        // A recursion returns what its end returns, which is not known yet.
        if !is_start || self.open.borrow().len() >= MAX_CALLS || self.open.borrow().contains(&key) {
            return None;
        }
        self.followed(entry)?.1.returned.clone()
    }

    /// What a function is declared to return: the composite type that it is a pointer to.
    fn declared_return(&self, entry: u64) -> Option<&TypeInfo> {
        let (unit, number) = self.find(entry)?;
        let unit = self.unit(unit);
        let function = &unit.functions[number];
        let pointee = unit
            .types
            .pointee(function.returns.filter(|_| function.entry == entry)?)?;
        match unit.types.shapes.get(pointee) {
            crate::pointer::Type::Composite(index) => unit.types.shapes.composites.get(index as usize),
            _ => None,
        }
    }

    fn unit(&self, index: usize) -> &UnitInfo {
        let (home, unit) = &self.units[index];
        unit.get_or_init(|| self.read_unit(*home).unwrap_or_default())
    }

    fn read_unit(&self, home: Home) -> Option<UnitInfo> {
        let dwarf = self.sections.borrow(|data| EndianSlice::new(data, LittleEndian));
        let entries = Entries::read(&dwarf, &self.homes, home)?;
        let types = Types::read(&entries);
        let (functions, globals) = functions::read(&entries, &types);
        let of_function = |(index, function): (usize, &Function)| {
            let ranges = function.ranges.clone().into_iter();
            ranges.map(move |range| (range, index)).collect::<Vec<_>>()
        };
        let ranges: Vec<(Range<u64>, usize)> = functions.iter().enumerate().flat_map(of_function).collect();
        Some(UnitInfo {
            types,
            functions,
            ranges: disjoint(&ranges),
            globals,
        })
    }
}

/// Sorted, without what several have: functions of the same code that the linker made one. Which of them is meant is not known.
fn disjoint(ranges: &[(Range<u64>, usize)]) -> Vec<(Range<u64>, usize)> {
    let starts = ranges.iter().map(|(range, index)| (range.start, *index, true));
    let ends = ranges.iter().map(|(range, index)| (range.end, *index, false));
    let mut bounds: Vec<(u64, usize, bool)> = starts.chain(ends).collect();
    bounds.sort_unstable();
    let mut found = Vec::new();
    // How many ranges of each index the code is in.
    let mut open: BTreeMap<usize, i64> = BTreeMap::new();
    let mut from = 0;
    for (at, index, is_start) in bounds {
        let mut owners = open.keys();
        if let (Some(&owner), None, true) = (owners.next(), owners.next(), from < at) {
            found.push((from..at, owner));
        }
        from = at;
        let count = open.entry(index).or_default();
        *count += if is_start { 1 } else { -1 };
        if *count == 0 {
            open.remove(&index);
        }
    }
    found
}

/// Which of the ranges has the address; they do not overlap.
fn lookup(ranges: &[(Range<u64>, usize)], address: u64) -> Option<usize> {
    let before = ranges.partition_point(|(range, _)| range.start <= address);
    let (range, index) = ranges[..before].last()?;
    range.contains(&address).then_some(*index)
}
