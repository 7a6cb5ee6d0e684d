//! Finds the file with a module's debug info as gdb does, by build id and by `.gnu_debuglink`, and the
//! supplementary file that dwz makes (`.gnu_debugaltlink`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::{Object, ReadCache};

/// Facts about an object file that help to find its debug info.
#[derive(Default)]
pub(super) struct ObjectInfo {
    pub build_id: Vec<u8>,
    pub has_debug_info: bool,
    /// File name and checksum of the separate debug file.
    debug_link: Option<(Vec<u8>, u32)>,
    /// File name and build id of the supplementary file.
    alternative: Option<(Vec<u8>, Vec<u8>)>,
}

impl ObjectInfo {
    /// Reads only the few sections that it needs.
    pub(super) fn read(path: &Path) -> Result<ObjectInfo, Box<dyn std::error::Error>> {
        let cache = ReadCache::new(open_regular(path)?);
        let object = object::File::parse(&cache)?;
        Ok(ObjectInfo {
            build_id: object.build_id()?.unwrap_or_default().to_vec(),
            has_debug_info: object.section_by_name(".debug_info").is_some(),
            debug_link: object.gnu_debuglink()?.map(|(name, crc)| (name.to_vec(), crc)),
            alternative: object
                .gnu_debugaltlink()?
                .map(|(name, build_id)| (name.to_vec(), build_id.to_vec())),
        })
    }
}

/// Opens a regular file. Anything else is an error: a path in a trace may have become a pipe, and opening it
/// would wait for ever.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// The separate debug file of the module at `path`.
pub(super) fn find(path: &Path, info: &ObjectInfo, debug_roots: &[PathBuf]) -> Option<PathBuf> {
    by_build_id(&info.build_id, debug_roots).or_else(|| by_debug_link(path, info, debug_roots))
}

/// `ROOT/.build-id/ab/cdef….debug`, if the file has the build id in its name.
pub(super) fn by_build_id(build_id: &[u8], debug_roots: &[PathBuf]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!(".build-id/{first:02x}/{rest}.debug");
    debug_roots
        .iter()
        .map(|root| root.join(&name))
        .find(|candidate| ObjectInfo::read(candidate).is_ok_and(|info| info.build_id == build_id))
}

fn by_debug_link(path: &Path, info: &ObjectInfo, debug_roots: &[PathBuf]) -> Option<PathBuf> {
    let (name, crc) = info.debug_link.as_ref()?;
    let name = Path::new(OsStr::from_bytes(name)).file_name()?;
    let canonical = path.canonicalize().ok()?;
    let directory = canonical.parent()?;
    let below_roots = debug_roots
        .iter()
        .map(|root| root.join(directory.strip_prefix("/").unwrap_or(directory)));
    [directory.to_path_buf(), directory.join(".debug")]
        .into_iter()
        .chain(below_roots)
        .map(|d| d.join(name))
        .find(|candidate| {
            *candidate != canonical
                && ObjectInfo::read(candidate).is_ok_and(|found| match info.build_id.is_empty() {
                    true => checksum(candidate).is_ok_and(|found| found == *crc),
                    false => found.build_id == info.build_id,
                })
        })
}

fn checksum(path: &Path) -> io::Result<u32> {
    let mut file = File::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// The supplementary file that the debug file refers to; an error names the one that is missing.
pub(super) fn supplement(debug_file: &Path, debug_roots: &[PathBuf]) -> Result<Option<PathBuf>, String> {
    let Ok(ObjectInfo {
        alternative: Some((name, build_id)),
        ..
    }) = ObjectInfo::read(debug_file)
    else {
        return Ok(None);
    };
    let name = Path::new(OsStr::from_bytes(&name));
    let canonical = debug_file.canonicalize().unwrap_or_else(|_| debug_file.into());
    let beside = canonical.parent().map(|directory| directory.join(name));
    let is_it = |candidate: &PathBuf| ObjectInfo::read(candidate).is_ok_and(|info| info.build_id == build_id);
    match beside.filter(is_it).or_else(|| by_build_id(&build_id, debug_roots)) {
        Some(found) => Ok(Some(found)),
        None => Err(name.display().to_string()),
    }
}
