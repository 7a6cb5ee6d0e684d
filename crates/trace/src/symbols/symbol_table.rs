//! The functions of a module by address, from `.symtab` and `.dynsym`. The search respects sizes: in a module
//! whose only known functions are exported ones, an address in a local function belongs to none of them.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use super::debug_files::open_regular;

/// Largest file that is read as a whole. Of a larger one, the needed parts are read in thousands of small
/// pieces.
const MOST_AT_ONCE: u64 = 32 << 20;
/// Number of symbols before an address that are searched. Functions hardly overlap.
const NEIGHBOURS: usize = 32;

#[derive(Default)]
pub(super) struct SymbolTable {
    /// Ascending by address, then size. Of symbols that are equal in both, only the one with the plainest
    /// name is there.
    symbols: Vec<Entry>,
    names: String,
}

struct Entry {
    address: u64,
    size: u64,
    name_start: u32,
    name_end: u32,
}

/// A function found by address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Demangled name.
    pub name: String,
    pub address: u64,
}

impl SymbolTable {
    /// Reads the symbols of all the files of one module. A file that cannot be read adds nothing.
    pub(super) fn read(files: &[PathBuf]) -> SymbolTable {
        let mut table = SymbolTable::default();
        for file in files {
            // The caller has warned of files that it could not read.
            let _ = table.add(file);
        }
        let names = &table.names;
        let name = |entry: &Entry| &names[entry.name_start as usize..entry.name_end as usize];
        let underscores = |entry: &Entry| name(entry).bytes().take_while(|&byte| byte == b'_').count();
        table
            .symbols
            .sort_by_key(|entry| (entry.address, entry.size, underscores(entry), name(entry)));
        table.symbols.dedup_by_key(|entry| (entry.address, entry.size));
        table
    }

    fn add(&mut self, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let mut file = open_regular(file)?;
        if file.metadata()?.len() > MOST_AT_ONCE {
            return self.add_all(&ReadCache::new(file));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        self.add_all(content.as_slice())
    }

    fn add_all<'data>(&mut self, file: impl ReadRef<'data>) -> Result<(), Box<dyn std::error::Error>> {
        let object = object::File::parse(file)?;
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            // `memcpy@@GLIBC_2.14` is memcpy.
            let name = name.split('@').next().unwrap_or(name);
            let (Ok(name_start), Ok(name_end)) = (
                u32::try_from(self.names.len()),
                u32::try_from(self.names.len() + name.len()),
            ) else {
                break;
            };
            self.names.push_str(name);
            self.symbols.push(Entry {
                address: symbol.address(),
                size: symbol.size(),
                name_start,
                name_end,
            });
        }
        Ok(())
    }

    pub(super) fn find(&self, address: u64) -> Option<Symbol> {
        let after = self.symbols.partition_point(|entry| entry.address <= address);
        let before = &self.symbols[after.saturating_sub(NEIGHBOURS)..after];
        let nearest = before.last()?.address;
        let entry = before.iter().rev().find(|entry| match entry.size {
            // Assembly without a size: up to the next symbol.
            0 => entry.address == nearest,
            size => address - entry.address < size,
        })?;
        let name = &self.names[entry.name_start as usize..entry.name_end as usize];
        let name = addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned();
        Some(Symbol {
            name,
            address: entry.address,
        })
    }
}
