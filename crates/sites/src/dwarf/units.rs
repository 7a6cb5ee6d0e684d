//! Where the units of a module's debug info are. What a unit refers to may lie in another: types that the compiler put into units of their own
//! (`-fdebug-types-section`), what link-time optimisation left in the unit of its source, what `dwz` moved to where several units share it.

use gimli::{DebugTypes, LittleEndian, UnitHeader, UnitType};
use rustc_hash::FxHashMap;

use super::entries::{Dwarf, Slice};

/// Where a unit begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Home {
    /// In `.debug_info`.
    Info(usize),
    /// In `.debug_types`, where DWARF 4 has units of types.
    Types(usize),
}

#[derive(Debug, Default)]
pub(super) struct Units {
    /// Those of `.debug_info`, in order.
    starts: Vec<usize>,
    /// Units of a type by its signature, and where in the unit the type is.
    signatures: FxHashMap<u64, (Home, usize)>,
}

impl Units {
    /// Damaged headers end the reading: what was read until then counts.
    pub(super) fn read(dwarf: &Dwarf) -> Units {
        let mut units = Units::default();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let Some(offset) = header.offset().as_debug_info_offset() {
                units.starts.push(offset.0);
                units.add_type(&header, Home::Info(offset.0));
            }
        }
        let mut headers = dwarf.type_units();
        while let Ok(Some(header)) = headers.next() {
            if let Some(offset) = header.offset().as_debug_types_offset() {
                units.add_type(&header, Home::Types(offset.0));
            }
        }
        units
    }

    fn add_type(&mut self, header: &UnitHeader<Slice>, home: Home) {
        if let UnitType::Type {
            type_signature,
            type_offset,
        } = header.type_()
        {
            self.signatures.insert(type_signature.0, (home, type_offset.0));
        }
    }

    /// The unit, and where in it, of an offset in `.debug_info`.
    pub(super) fn at(&self, offset: usize) -> Option<(Home, usize)> {
        let before = self.starts.partition_point(|&start| start <= offset);
        let start = *self.starts[..before].last()?;
        Some((Home::Info(start), offset - start))
    }

    pub(super) fn with_signature(&self, signature: u64) -> Option<(Home, usize)> {
        self.signatures.get(&signature).copied()
    }

    pub(super) fn header<'a>(dwarf: &Dwarf<'a>, home: Home) -> Option<UnitHeader<Slice<'a>>> {
        match home {
            Home::Info(start) => dwarf.debug_info.header_from_offset(gimli::DebugInfoOffset(start)).ok(),
            Home::Types(start) => {
                let section: Slice<'a> = gimli::Section::reader(&dwarf.debug_types).to_owned();
                let rest = section.slice().get(start..)?;
                DebugTypes::new(rest, LittleEndian).units().next().ok()?
            }
        }
    }
}
