//! The modules that the dynamic loader has mapped, read from its own list (`_r_debug.r_map`, of every namespace).
//!
//! `dl_iterate_phdr` would take the loader's lock, which the interrupted thread may hold; the list is the debugger's
//! interface, needs no lock at the moments when it is consistent, and exists before any constructor has run. Whoever reads
//! it must do so while no other thread changes it: in an early constructor, or at the breakpoint on [`Loader::r_brk`].

use std::ffi::{CStr, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libc::{Elf64_Ehdr, Elf64_Phdr, Elf64_Rela, Elf64_Sym};

use crate::sys;

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_DEBUG: i64 = 21;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const NT_GNU_BUILD_ID: u32 = 3;

/// How far below its dynamic section the header of a module with an unusual load address is looked for.
const HEADER_SEARCH: usize = 256 << 20;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const libc::c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// glibc's `r_debug_extended`; the last field exists from version 2 on.
#[repr(C)]
struct RDebug {
    version: i32,
    map: *const LinkMap,
    brk: usize,
    state: i32,
    loader_base: usize,
    next: *const RDebug,
}

/// What the loader says about its list of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoaderState {
    Consistent,
    /// A module is being added.
    Adding,
    /// A module is being removed.
    Removing,
}

/// The dynamic loader of this process.
#[derive(Clone, Copy)]
pub struct Loader {
    debug: *const RDebug,
}

// SAFETY: the loader's structure lives as long as the process; who reads it when is in the module's contract.
unsafe impl Send for Loader {}
// SAFETY: as above.
unsafe impl Sync for Loader {}

impl Loader {
    /// `None` in a static executable.
    pub fn find() -> Option<Loader> {
        // SAFETY: the kernel's auxiliary vector describes the mapped program headers of the executable.
        let debug = unsafe {
            let headers = program_headers_of_executable()?;
            let bias = bias_of_executable(headers);
            let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
            let of_executable = dynamic.and_then(|header| {
                dynamic_entries((bias + header.p_vaddr as usize) as *const Dynamic)
                    .find(|entry| entry.tag == DT_DEBUG)
                    .map(|entry| entry.value as *const RDebug)
            });
            match of_executable {
                Some(debug) if !debug.is_null() => debug,
                // Some linkers leave DT_DEBUG out; the loader's symbol is the same structure.
                _ => libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()) as *const RDebug,
            }
        };
        (!debug.is_null()).then_some(Loader { debug })
    }

    /// The address of the function that the loader calls before and after each change of its list; after an addition, before
    /// the constructors of what was added. A breakpoint on it sees every late `dlopen` and `dlclose`.
    pub fn r_brk(&self) -> usize {
        // SAFETY: the loader's structure.
        unsafe { (*self.debug).brk }
    }

    pub fn state(&self) -> LoaderState {
        let states = self.namespaces().map(|debug| debug.state);
        match states.into_iter().find(|state| *state != 0) {
            None => LoaderState::Consistent,
            Some(1) => LoaderState::Adding,
            Some(_) => LoaderState::Removing,
        }
    }

    /// The modules loaded now, by address. Those among `known` are shared, not read again.
    pub fn modules(&self, known: &[Arc<Module>]) -> Vec<Arc<Module>> {
        let mut modules = Vec::new();
        for debug in self.namespaces() {
            let mut map = debug.map;
            while !map.is_null() {
                // SAFETY: an element of the loader's list, which does not change meanwhile (the module's contract).
                let link = unsafe { &*map };
                let same = |module: &&Arc<Module>| module.dynamic == link.dynamic as usize && module.bias == link.bias;
                match known.iter().find(same) {
                    Some(module) => modules.push(module.clone()),
                    // SAFETY: as above.
                    None => modules.extend(unsafe { Module::read(link) }.map(Arc::new)),
                }
                map = link.next;
            }
        }
        modules.sort_by_key(|module| module.range.start);
        // The loader itself is in the list of every namespace.
        modules.dedup_by_key(|module| module.range.start);
        modules
    }

    fn namespaces(&self) -> impl Iterator<Item = &RDebug> {
        // SAFETY: the loader's structures; `next` exists in version 2.
        let first = unsafe { self.debug.as_ref() };
        std::iter::successors(first, |debug| {
            if debug.version < 2 {
                return None;
            }
            // SAFETY: as above.
            unsafe { debug.next.as_ref() }
        })
    }
}

/// A part of a module's file that is mapped.
#[derive(Clone, Debug)]
pub struct Segment {
    pub range: Range<usize>,
    pub executable: bool,
    pub readable: bool,
}

/// A mapped ELF image. What it says is read from memory when the module is found; the image must stay mapped while
/// function ranges or unwind tables of it are used.
#[derive(Debug)]
pub struct Module {
    /// Add to an address of the file to get one of the process.
    pub bias: usize,
    /// `None`: mapped by the kernel (vDSO).
    pub path: Option<PathBuf>,
    /// From the first to the last mapped byte.
    pub range: Range<usize>,
    pub segments: Vec<Segment>,
    /// Empty if the linker made none.
    pub build_id: Vec<u8>,
    /// The segments with notes, in memory.
    notes: Vec<Range<usize>>,
    /// `.eh_frame_hdr` in memory.
    pub(crate) eh_frame_hdr: Option<Range<usize>>,
    /// Address and length of the dynamic symbol table.
    dynamic_symbols: Option<(usize, usize)>,
    /// Address of the strings that its names are in.
    dynamic_strings: Option<usize>,
    /// The loader's instructions, in memory.
    relocations: Vec<Range<usize>>,
    /// The ELF header and, wherever they are, the program headers, to recognise the file on disk.
    pub(crate) headers: Vec<u8>,
    dynamic: usize,
}

impl Module {
    /// # Safety
    /// `link` is an element of the loader's list and its image is mapped.
    unsafe fn read(link: &LinkMap) -> Option<Module> {
        // SAFETY: the caller's promise: the headers, and what they describe, are mapped.
        unsafe {
            let executable = program_headers_of_executable()
                .filter(|headers| dynamic_address(headers, bias_of_executable(headers)) == link.dynamic as usize);
            let (header, path) = match executable {
                Some(headers) => {
                    let bias = bias_of_executable(headers);
                    let first = headers
                        .iter()
                        .find(|header| header.p_type == libc::PT_LOAD && header.p_offset == 0)?;
                    (bias + first.p_vaddr as usize, executable_path())
                }
                None => {
                    let header = find_header(link)?;
                    let vdso = header == libc::getauxval(libc::AT_SYSINFO_EHDR) as usize;
                    (
                        header,
                        if vdso {
                            None
                        } else {
                            absolute(CStr::from_ptr(link.name))
                        },
                    )
                }
            };
            Module::from_image(header, link, path)
        }
    }

    /// # Safety
    /// An ELF image of the running process is mapped at `header`.
    unsafe fn from_image(header: usize, link: &LinkMap, path: Option<PathBuf>) -> Option<Module> {
        // SAFETY: the caller's promise.
        let program_headers = unsafe {
            let elf = &*(header as *const Elf64_Ehdr);
            let first = (header + elf.e_phoff as usize) as *const Elf64_Phdr;
            std::slice::from_raw_parts(first, elf.e_phnum as usize)
        };
        let bias = link.bias;
        let at = |header: &Elf64_Phdr| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            start..start + header.p_memsz as usize
        };
        let segments: Vec<Segment> = program_headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| Segment {
                range: at(header),
                executable: header.p_flags & libc::PF_X != 0,
                readable: header.p_flags & libc::PF_R != 0,
            })
            .collect();
        let range = segments.iter().map(|segment| segment.range.start).min()?
            ..segments.iter().map(|segment| segment.range.end).max()?;
        let within = |part: &Range<usize>| {
            segments
                .iter()
                .any(|segment| segment.range.start <= part.start && part.end <= segment.range.end)
        };
        let of_type = |kind: u32| {
            program_headers
                .iter()
                .filter(move |header| header.p_type == kind)
                .map(at)
                .filter(within)
        };

        // SAFETY: notes and the dynamic section lie within mapped segments.
        let (build_id, dynamic_symbols, dynamic_strings, relocations) = unsafe {
            let build_id = of_type(libc::PT_NOTE)
                .find_map(|notes| find_note(bytes(notes), b"GNU\0", NT_GNU_BUILD_ID))
                .unwrap_or_default()
                .to_vec();
            let strings = dynamic_entry(link, &range, DT_STRTAB).filter(|address| range.contains(address));
            let relocations = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)]
                .into_iter()
                .filter_map(|(table, size)| {
                    let start = dynamic_entry(link, &range, table)?;
                    Some(start..start.checked_add(dynamic_value(link, size)?)?)
                })
                .filter(within)
                .collect();
            (build_id, dynamic_symbols(link, &range), strings, relocations)
        };
        let notes = of_type(libc::PT_NOTE).collect();
        let first = program_headers.as_ptr() as usize;
        // SAFETY: the headers were read above.
        let headers = unsafe {
            let own = bytes(header..header + size_of::<Elf64_Ehdr>());
            [own, bytes(first..first + size_of_val(program_headers))].concat()
        };
        Some(Module {
            bias,
            path,
            eh_frame_hdr: of_type(libc::PT_GNU_EH_FRAME).next(),
            headers,
            dynamic: link.dynamic as usize,
            range,
            segments,
            build_id,
            notes,
            dynamic_symbols,
            dynamic_strings,
            relocations,
        })
    }

    pub fn executable_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.executable)
    }

    /// The description of the note with this name (zero-terminated) and type.
    ///
    /// # Safety
    /// The module is mapped.
    pub unsafe fn note(&self, name: &[u8], kind: u32) -> Option<&'static [u8]> {
        // SAFETY: the notes lie within mapped segments.
        let notes = self.notes.iter().map(|notes| unsafe { bytes(notes.clone()) });
        notes.into_iter().find_map(|notes| find_note(notes, name, kind))
    }

    /// Whether the name of its file begins with one of these.
    pub fn has_name_in(&self, names: &[&str]) -> bool {
        let name = self.path.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        name.is_some_and(|name| names.iter().any(|known| name.starts_with(known)))
    }

    /// A part of libc, or the loader.
    pub fn is_c_library(&self) -> bool {
        self.has_name_in(&[
            "libc.so",
            "ld-linux",
            "ld.so",
            "libpthread.so",
            "librt.so",
            "libdl.so",
            "libanl.so",
        ])
    }

    /// The C and C++ run-time libraries: their locked instructions are an implementation detail, not the program's own.
    pub fn is_language_runtime(&self) -> bool {
        const RUNTIMES: [&str; 7] = [
            "libc.so",
            "ld-linux",
            "libm.so",
            "libstdc++.so",
            "libgcc_s.so",
            "libpthread.so",
            "ld.so",
        ];
        self.has_name_in(&RUNTIMES)
    }

    /// The image from `address` to the end of its segment.
    ///
    /// # Safety
    /// The module is mapped.
    pub(crate) unsafe fn bytes_from(&self, address: usize) -> Option<&'static [u8]> {
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.range.contains(&address) && segment.readable)?;
        // SAFETY: within a mapped, readable segment.
        Some(unsafe { bytes(address..segment.range.end) })
    }

    /// The dynamic symbol table.
    ///
    /// # Safety
    /// The module is mapped.
    pub(crate) unsafe fn dynamic_symbols(&self) -> &'static [Elf64_Sym] {
        match self.dynamic_symbols {
            // SAFETY: address and length were checked against the segments when the module was read.
            Some((address, count)) => unsafe { std::slice::from_raw_parts(address as *const Elf64_Sym, count) },
            None => &[],
        }
    }

    /// The address of the function that this module exports under `name`.
    ///
    /// # Safety
    /// The module is mapped.
    pub unsafe fn exported_function(&self, name: &[u8]) -> Option<usize> {
        const STT_FUNC: u8 = 2;
        let strings = self.dynamic_strings?;
        // SAFETY: the module's own tables; a name ends with a zero byte, before its segment does.
        let symbol = unsafe {
            self.dynamic_symbols().iter().find(|symbol| {
                let defined = symbol.st_shndx != 0 && symbol.st_info & 0xf == STT_FUNC;
                defined
                    && self
                        .bytes_from(strings + symbol.st_name as usize)
                        .is_some_and(|text| text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)))
            })
        };
        symbol.map(|symbol| self.bias.wrapping_add(symbol.st_value as usize))
    }

    /// The functions that this module exports: each one's name, and where its value lies in the symbol table. The loader passes over one
    /// whose value is zero.
    ///
    /// # Safety
    /// The module is mapped.
    pub unsafe fn exports(&self) -> impl Iterator<Item = (&'static [u8], usize)> {
        const STT_FUNC: u8 = 2;
        // SAFETY: the caller's promise.
        let symbols = unsafe { self.dynamic_symbols() }.iter();
        symbols.filter_map(move |symbol| {
            if symbol.st_shndx == 0 || symbol.st_info & 0xf != STT_FUNC {
                return None;
            }
            // SAFETY: as above; a name ends with a zero byte, before its segment does.
            let text = unsafe { self.bytes_from(self.dynamic_strings? + symbol.st_name as usize) }?;
            let length = text.iter().position(|&byte| byte == 0)?;
            Some((&text[..length], &raw const symbol.st_value as usize))
        })
    }

    /// The words that the loader fills with the addresses of functions of other modules, and leaves zero if there is no such function (weak
    /// references).
    ///
    /// # Safety
    /// The module is mapped.
    pub unsafe fn weak_references(&self) -> impl Iterator<Item = usize> {
        const R_X86_64_64: u64 = 1;
        const R_X86_64_GLOB_DAT: u64 = 6;
        const R_X86_64_JUMP_SLOT: u64 = 7;
        const STB_WEAK: u8 = 2;
        let tables = self.relocations.iter().map(|range| {
            let count = range.len() / size_of::<Elf64_Rela>();
            // SAFETY: the caller's promise; the tables lie within mapped segments.
            unsafe { std::slice::from_raw_parts(range.start as *const Elf64_Rela, count) }
        });
        tables.flatten().filter_map(move |relocation| {
            let kind = relocation.r_info & 0xffff_ffff;
            if !matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                return None;
            }
            // The hash tables need not count symbols that the module does not define.
            let index = (relocation.r_info >> 32) as usize;
            // SAFETY: the loader has used the symbol for the relocation.
            let symbol = unsafe { &*(self.dynamic_symbols?.0 as *const Elf64_Sym).add(index) };
            let word = self.bias.wrapping_add(relocation.r_offset as usize);
            let is_weak = symbol.st_shndx == 0 && symbol.st_info >> 4 == STB_WEAK;
            let is_mapped = word.is_multiple_of(size_of::<usize>()) && self.range.contains(&word);
            (is_weak && is_mapped).then_some(word)
        })
    }
}

/// # Safety
/// The range is mapped and readable as long as the result is used.
pub(crate) unsafe fn bytes(range: Range<usize>) -> &'static [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

/// # Safety
/// The kernel started this process from an ELF executable, whose headers are mapped.
unsafe fn program_headers_of_executable() -> Option<&'static [Elf64_Phdr]> {
    // SAFETY: the auxiliary vector; the loader keeps it from the start of the process.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        (!headers.is_null()).then(|| std::slice::from_raw_parts(headers, count))
    }
}

fn bias_of_executable(headers: &[Elf64_Phdr]) -> usize {
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
    own.map_or(0, |header| {
        (headers.as_ptr() as usize).wrapping_sub(header.p_vaddr as usize)
    })
}

fn dynamic_address(headers: &[Elf64_Phdr], bias: usize) -> usize {
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
    dynamic.map_or(0, |header| bias.wrapping_add(header.p_vaddr as usize))
}

/// # Safety
/// A dynamic section with its terminator is mapped at `first`.
unsafe fn dynamic_entries(first: *const Dynamic) -> impl Iterator<Item = &'static Dynamic> {
    // SAFETY: the caller's promise: entries follow each other up to the terminator.
    let entries = (0..).map(move |index| unsafe { &*first.add(index) });
    entries.take_while(|entry| entry.tag != DT_NULL)
}

/// The ELF header of a module is at its load bias, unless it was linked for another address than zero.
fn find_header(link: &LinkMap) -> Option<usize> {
    let page_of_dynamic = link.dynamic as usize & !(sys::PAGE - 1);
    let search = (0..HEADER_SEARCH)
        .step_by(sys::PAGE)
        .filter_map(|below| page_of_dynamic.checked_sub(below));
    std::iter::once(link.bias).chain(search).find(|address| {
        let mut magic = [0; 4];
        *address != 0 && sys::read_memory(*address, &mut magic) && &magic == b"\x7fELF" && {
            // SAFETY: an ELF header is mapped here.
            let elf = unsafe { &*(*address as *const Elf64_Ehdr) };
            // Most linkers put the program headers behind it; tools that rewrite files put them anywhere.
            let first = address.wrapping_add(elf.e_phoff as usize);
            let last = first
                .wrapping_add(elf.e_phnum as usize * size_of::<Elf64_Phdr>())
                .wrapping_sub(1);
            [first, last].iter().all(|end| sys::read_memory(*end, &mut [0])) && {
                // SAFETY: mapped from end to end.
                let headers = unsafe { std::slice::from_raw_parts(first as *const Elf64_Phdr, elf.e_phnum as usize) };
                dynamic_address(headers, link.bias) == link.dynamic as usize
            }
        }
    })
}

fn executable_path() -> Option<PathBuf> {
    link_target(c"/proc/self/exe")
}

/// The loader keeps the name that it was given, which may be relative to the directory of that moment.
fn absolute(name: &CStr) -> Option<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
    if name.is_absolute() || name.as_os_str().is_empty() {
        return Some(name.to_path_buf());
    }
    Some(link_target(c"/proc/self/cwd")?.join(name.strip_prefix(".").unwrap_or(name)))
}

fn link_target(link: &CStr) -> Option<PathBuf> {
    let mut buffer = [0; libc::PATH_MAX as usize];
    let target = sys::read_link(link, &mut buffer).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(target)))
}

fn find_note<'a>(notes: &'a [u8], wanted: &[u8], wanted_kind: u32) -> Option<&'a [u8]> {
    let mut rest = notes;
    loop {
        let (header, after) = rest.split_at_checked(12)?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name_length, length, kind) = (word(0) as usize, word(4) as usize, word(8));
        let (name, after) = after.split_at_checked(name_length.next_multiple_of(4))?;
        let description = after.get(..length)?;
        if kind == wanted_kind && name.starts_with(wanted) {
            return Some(description);
        }
        rest = after.get(length.next_multiple_of(4)..)?;
    }
}

/// The address that an entry of the dynamic section holds.
///
/// # Safety
/// The module of `link` is mapped at `image`.
unsafe fn dynamic_entry(link: &LinkMap, image: &Range<usize>, tag: i64) -> Option<usize> {
    // SAFETY: the caller's promise.
    let value = unsafe { dynamic_value(link, tag) }?;
    // glibc relocates the entries in place, unless the section is read-only.
    Some(if image.contains(&value) {
        value
    } else {
        value.wrapping_add(link.bias)
    })
}

/// The value of an entry of the dynamic section.
///
/// # Safety
/// The module of `link` is mapped.
unsafe fn dynamic_value(link: &LinkMap, tag: i64) -> Option<usize> {
    // SAFETY: the dynamic section of a mapped module.
    let mut entries = unsafe { dynamic_entries(link.dynamic) };
    entries.find(|entry| entry.tag == tag).map(|entry| entry.value)
}

/// Address and length of the dynamic symbol table. ELF does not say how long it is; the hash tables do.
///
/// # Safety
/// The module of `link` is mapped at `image`.
unsafe fn dynamic_symbols(link: &LinkMap, image: &Range<usize>) -> Option<(usize, usize)> {
    // SAFETY: the caller's promise.
    let entry = |tag| unsafe { dynamic_entry(link, image, tag) };
    let word = |address: usize| {
        if !image.contains(&address) || !image.contains(&(address + 3)) {
            return None;
        }
        // SAFETY: within the image, whose tables lie in its mapped, readable part.
        Some(unsafe { *(address as *const u32) } as usize)
    };
    let count = match (entry(DT_HASH), entry(DT_GNU_HASH)) {
        (Some(table), _) => word(table + 4)?,
        (None, Some(table)) => {
            let (buckets, first, bloom) = (word(table)?, word(table + 4)?, word(table + 8)?);
            let bucket_table = table + 16 + bloom * 8;
            let chains = bucket_table + buckets * 4;
            let mut last = 0;
            for bucket in 0..buckets {
                last = last.max(word(bucket_table + bucket * 4)?);
            }
            if last < first {
                first
            } else {
                // The last chain ends at the first hash with its lowest bit set.
                while word(chains + (last - first) * 4)? & 1 == 0 {
                    last += 1;
                }
                last + 1
            }
        }
        (None, None) => return None,
    };
    let table = entry(DT_SYMTAB)?;
    let end = table.checked_add(count.checked_mul(size_of::<Elf64_Sym>())?)?;
    (image.contains(&table) && end <= image.end).then_some((table, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_the_test_and_libc() {
        let loader = Loader::find().unwrap();
        let modules = loader.modules(&[]);
        let of = |address: usize| modules.iter().find(|module| module.range.contains(&address)).unwrap();

        let own = of(the_list_holds_the_test_and_libc as *const () as usize);
        assert_eq!(own.path.as_deref(), Some(std::env::current_exe().unwrap().as_path()));
        assert!(own.eh_frame_hdr.is_some());

        // Not the PLT entry that stands for it in an executable at a fixed address.
        // SAFETY: a lookup by name.
        let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as usize;
        let libc = of(malloc);
        assert!(libc.is_language_runtime());
        assert!(!libc.build_id.is_empty());
        // SAFETY: libc stays mapped.
        let symbols = unsafe { libc.dynamic_symbols() };
        let malloc = (malloc - libc.bias) as u64;
        assert!(symbols.len() > 1000 && symbols.iter().any(|symbol| symbol.st_value == malloc));
        // SAFETY: as above.
        unsafe {
            assert_eq!(libc.exported_function(b"malloc"), Some(libc.bias + malloc as usize));
            assert_eq!(libc.exported_function(b"mallo"), None);
        }

        assert_eq!(
            modules.iter().filter(|module| module.path.is_none()).count(),
            1,
            "the vDSO"
        );
        assert_eq!(loader.state(), LoaderState::Consistent);
        assert!(
            of(loader.r_brk())
                .path
                .as_deref()
                .unwrap()
                .to_str()
                .unwrap()
                .contains("ld-linux")
        );
    }

    #[test]
    fn known_modules_are_shared() {
        let loader = Loader::find().unwrap();
        let first = loader.modules(&[]);
        let second = loader.modules(&first);
        assert!(first.iter().zip(&second).all(|(one, other)| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn build_ids_are_found_among_other_notes() {
        let mut notes = Vec::new();
        for (kind, description) in [(1u32, &b"abcde"[..]), (3, b"\x01\x02\x03")] {
            for word in [4, description.len() as u32, kind] {
                notes.extend_from_slice(&word.to_ne_bytes());
            }
            notes.extend_from_slice(b"GNU\0");
            notes.extend_from_slice(description);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        let build_id = |notes| find_note(notes, b"GNU\0", NT_GNU_BUILD_ID);
        assert_eq!(build_id(&notes), Some(&b"\x01\x02\x03"[..]));
        assert_eq!(build_id(&notes[..20]), None);
    }
}
