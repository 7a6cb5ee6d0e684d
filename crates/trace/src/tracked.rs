//! The program within a program. `crashproof cc --deps` puts an executable that follows dependences (the
//! *inner* program) into a section of the executable that it links. The recorder executes the inner program
//! in place of the outer one. The modules of the trace keep the path of the outer one, so that the code is
//! found as long as that file exists.
//!
//! The section holds eight bytes that identify it, then the compressed executable.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ReadCache};
use tempfile::{NamedTempFile, TempPath};

/// Name of the section that holds the inner program. It is not loaded into memory.
pub const SECTION: &str = ".crashproof.deps";
const MAGIC: &[u8; 8] = b"cpdeps1\n";

/// A failure to get at the inner program of an executable.
#[derive(Debug, thiserror::Error)]
pub enum TrackedError {
    /// The executable cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The executable.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The section does not hold what this version puts there.
    #[error(
        "section {SECTION} of {} does not hold what crashproof cc --deps of this version puts there: {reason}; build it again",
        path.display()
    )]
    Section {
        /// The executable.
        path: PathBuf,
        /// The defect, as part of a sentence.
        reason: String,
    },
    /// The inner program cannot be written to a file.
    #[error("cannot write the executable that follows dependences to {}: {source}", path.display())]
    Write {
        /// The directory for temporary files, which was tried last.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The content of the section for this inner program.
pub fn encode(executable: &[u8]) -> Vec<u8> {
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&lz4_flex::compress_prepend_size(executable));
    content
}

/// The inner program of the executable at `path`; `None` if it has none or is not an ELF file.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, TrackedError> {
    let file = crate::symbols::open_regular(path).map_err(|source| TrackedError::Read {
        path: path.into(),
        source,
    })?;
    let malformed = |reason: String| TrackedError::Section {
        path: path.into(),
        reason,
    };
    let cache = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&cache) else {
        return Ok(None);
    };
    let Some(section) = elf.section_by_name(SECTION) else {
        return Ok(None);
    };
    let content = section.data().map_err(|error| malformed(error.to_string()))?;
    let compressed = content
        .strip_prefix(MAGIC)
        .ok_or_else(|| malformed("it begins otherwise".to_owned()))?;
    lz4_flex::decompress_size_prepended(compressed)
        .map(Some)
        .map_err(|error| malformed(error.to_string()))
}

/// The inner program of the executable at `path`, as an executable file that is removed with the result. The
/// file is beside the executable, so that the program finds files by its own path, or in the directory for
/// temporary files if that is not possible.
pub fn extract(path: &Path) -> Result<Option<TempPath>, TrackedError> {
    let Some(executable) = read(path)? else {
        return Ok(None);
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut builder = tempfile::Builder::new();
    let prefix = format!(".{name}.deps-");
    builder.prefix(&prefix);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let write = |mut file: NamedTempFile| -> io::Result<TempPath> {
        file.write_all(&executable)?;
        file.as_file().set_permissions(PermissionsExt::from_mode(0o755))?;
        // Nobody may have it open for writing when it is executed.
        Ok(file.into_temp_path())
    };
    let beside = builder.tempfile_in(folder).and_then(write);
    let extracted = beside.or_else(|_| builder.tempfile().and_then(write));
    extracted.map(Some).map_err(|source| TrackedError::Write {
        path: std::env::temp_dir(),
        source,
    })
}

/// The inner program of the executable at `path`, as a file that is removed with the result, if it has this
/// build id. The file is to be read, not executed.
pub fn extract_built(path: &Path, build_id: &[u8]) -> Option<TempPath> {
    let extracted = extract_elsewhere(path)?;
    let cache = ReadCache::new(File::open(&extracted).ok()?);
    let found = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    (found == build_id).then_some(extracted)
}

/// The inner program as a temporary file that is not executable.
fn extract_elsewhere(path: &Path) -> Option<TempPath> {
    let executable = read(path).ok()??;
    let mut file = NamedTempFile::new().ok()?;
    file.write_all(&executable).ok()?;
    Some(file.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_and_other_files_have_none() {
        assert!(read(&std::env::current_exe().unwrap()).unwrap().is_none());
        let text = NamedTempFile::new().unwrap();
        assert!(read(text.path()).unwrap().is_none());
        assert!(extract_built(text.path(), &[1]).is_none());
        let missing = read(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere"), "{missing}");
    }

    #[test]
    fn what_is_encoded_is_compressed() {
        let content = encode(&[7; 100_000]);
        assert!(content.starts_with(MAGIC) && content.len() < 1_000);
    }
}
