//! The shared libraries that a binary is started with, as the dynamic loader would find them.

use std::collections::HashSet;
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadCacheRange, ReadRef};

/// Where a loader looks last; the multiarch folders are Debian's.
const DEFAULT: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// The binary and its libraries, each once, in the order in which symbols are looked up; and the names that were not found.
pub(crate) fn closure(binary: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let mut files = vec![binary.to_path_buf()];
    let mut seen: HashSet<String> = HashSet::new();
    let mut missing = Vec::new();
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        next += 1;
        let Dynamic { needed, search } = Dynamic::read(&file).unwrap_or_default();
        for name in needed {
            if !seen.insert(name.clone()) {
                continue;
            }
            match find(&name, &search) {
                Some(path) => files.push(path),
                None => missing.push(name),
            }
        }
    }
    (files, missing)
}

fn find(name: &str, search: &[PathBuf]) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let variable = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    search
        .iter()
        .cloned()
        .chain(env::split_paths(&variable))
        .chain(DEFAULT.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// What the dynamic section says of libraries.
#[derive(Default)]
struct Dynamic {
    needed: Vec<String>,
    search: Vec<PathBuf>,
}

impl Dynamic {
    /// `None` if there is none, or it cannot be read.
    fn read(path: &Path) -> Option<Dynamic> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let data: ReadCacheRange<File> = cache.range(0, (&cache).len().ok()?);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let entries = segments
            .iter()
            .find_map(|segment| segment.dynamic(endian, data).ok()?)?;
        let sections = header.sections(endian, data).ok()?;
        let (_, strings) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        let text = |entry: &object::elf::Dyn64<Endianness>| {
            let bytes = strings.get(u32::try_from(entry.d_val(endian)).ok()?).ok()?;
            str::from_utf8(bytes).ok().map(str::to_owned)
        };
        let all = |tags: &[u32]| -> Vec<String> {
            let wanted =
                |entry: &&object::elf::Dyn64<Endianness>| entry.tag32(endian).is_some_and(|tag| tags.contains(&tag));
            entries.iter().filter(wanted).filter_map(text).collect()
        };
        let origin = path.canonicalize().ok()?.parent()?.to_string_lossy().into_owned();
        let search = all(&[DT_RPATH, DT_RUNPATH])
            .iter()
            .flat_map(|list| list.split(':'))
            .map(|folder| PathBuf::from(folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)))
            .collect();
        Some(Dynamic {
            needed: all(&[DT_NEEDED]),
            search,
        })
    }
}
