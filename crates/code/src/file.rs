//! What only a module's file knows: its sections and its full symbol table. Neither is mapped.

use std::ffi::CString;
use std::mem::size_of;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use libc::{Elf64_Ehdr, Elf64_Shdr, Elf64_Sym};

use crate::modules::Module;
use crate::sys::OpenFile;

const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHT_SYMTAB: u32 = 2;

/// Symbol tables above this size are left alone: the sweep manages without.
const MOST_SYMBOLS: u64 = 256 << 20;

/// The module's file, if it is still the one that was mapped.
pub(crate) struct ModuleFile {
    file: OpenFile,
    sections: Vec<Elf64_Shdr>,
    bias: usize,
}

impl ModuleFile {
    pub(crate) fn open(module: &Module) -> Option<ModuleFile> {
        let path = CString::new(module.path.as_ref()?.as_os_str().as_bytes()).ok()?;
        let file = OpenFile::open(&path).ok()?;
        let own: &[u8; size_of::<Elf64_Ehdr>()] = module.headers.first_chunk()?;
        // SAFETY: any bytes are an ELF header; there are enough of them.
        let elf = unsafe { own.as_ptr().cast::<Elf64_Ehdr>().read_unaligned() };
        let mut headers = vec![0; module.headers.len()];
        let (start, program_headers) = headers.split_at_mut(own.len());
        let read = file.read_at(start, 0).ok()? + file.read_at(program_headers, elf.e_phoff).ok()?;
        // An upgrade may have put another file in the place of the one that is mapped.
        if read != headers.len() || headers != module.headers {
            return None;
        }
        if elf.e_shentsize as usize != size_of::<Elf64_Shdr>() {
            return None;
        }
        let sections = read_table(&file, elf.e_shoff, elf.e_shnum as u64 * size_of::<Elf64_Shdr>() as u64)?;
        Some(ModuleFile {
            file,
            sections,
            bias: module.bias,
        })
    }

    /// The sections that hold code, in the process. `None` if the section headers were stripped.
    pub(crate) fn code(&self) -> Option<Vec<Range<usize>>> {
        const WANTED: u64 = SHF_ALLOC | SHF_EXECINSTR;
        let code = self
            .sections
            .iter()
            .filter(|section| section.sh_flags & WANTED == WANTED && section.sh_size > 0);
        let ranges: Vec<_> = code
            .map(|section| {
                let start = self.bias.wrapping_add(section.sh_addr as usize);
                start..start.saturating_add(section.sh_size as usize)
            })
            .collect();
        (!ranges.is_empty()).then_some(ranges)
    }

    /// The full symbol table; empty if stripped.
    pub(crate) fn symbols(&self) -> Vec<Elf64_Sym> {
        let table = self.sections.iter().find(|section| section.sh_type == SHT_SYMTAB);
        table
            .and_then(|table| read_table(&self.file, table.sh_offset, table.sh_size))
            .unwrap_or_default()
    }
}

/// `T` must be one of ELF's tables: plain integers, for which any bytes are valid.
fn read_table<T: Copy>(file: &OpenFile, offset: u64, length: u64) -> Option<Vec<T>> {
    if length > MOST_SYMBOLS {
        return None;
    }
    let count = length as usize / size_of::<T>();
    let mut table = Vec::<T>::with_capacity(count);
    // SAFETY: the bytes are initialised by the read before the length is set; any bytes are a `T`.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(table.as_mut_ptr().cast::<u8>(), count * size_of::<T>());
        bytes.fill(0);
        let read = file.read_at(bytes, offset).ok()?;
        if read != bytes.len() {
            return None;
        }
        table.set_len(count);
    }
    Some(table)
}
