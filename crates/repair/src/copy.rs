//! Copies a source tree to where it can be built and changed.
//!
//! A copy is built from scratch: what a compiler made is older in it than any source, so that `make` makes it again, and the build
//! folders of CMake and Meson, which hold absolute paths of the original, are left out. Of a git repository everything but the objects is
//! copied; the copy borrows those.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::paths::SourcePath;

/// More than this is hardly one project's source.
const LIMIT: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("cannot {what} {}: {source}; the source tree is copied before it is built, --source names another", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{} holds more than {} GiB, too much to copy it for each build; name the folder with the program's source by --source",
        root.display(),
        LIMIT >> 30
    )]
    TooLarge { root: PathBuf },
}

fn on<T>(what: &'static str, path: &Path, result: io::Result<T>) -> Result<T, CopyError> {
    result.map_err(|source| CopyError::File {
        what,
        path: path.into(),
        source,
    })
}

/// What is in a tree that a copy needs.
#[derive(Debug)]
pub(crate) struct Survey {
    root: PathBuf,
    /// Relative to the root; a folder comes before what it holds.
    entries: Vec<PathBuf>,
    /// Build folders that are left out.
    pub left_out: Vec<PathBuf>,
}

impl Survey {
    /// Looks at the tree, but not into `except`.
    pub(crate) fn of(root: &Path, except: &Path) -> Result<Survey, CopyError> {
        let mut survey = Survey {
            root: root.to_owned(),
            entries: Vec::new(),
            left_out: Vec::new(),
        };
        let mut bytes = 0;
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            for entry in on("read the folder", &path, fs::read_dir(&path))? {
                let entry = on("read the folder", &path, entry)?;
                let (name, path) = (folder.join(entry.file_name()), entry.path());
                let metadata = on("look at", &path, fs::symlink_metadata(&path))?;
                let kind = metadata.file_type();
                if path == except
                    || kind.is_socket()
                    || kind.is_fifo()
                    || kind.is_block_device()
                    || kind.is_char_device()
                {
                    continue;
                }
                if kind.is_dir() {
                    if is_git_objects(&name) {
                        continue;
                    }
                    if path.join("CMakeCache.txt").exists() || path.join("meson-private").is_dir() {
                        survey.left_out.push(name);
                        continue;
                    }
                    folders.push(name.clone());
                }
                bytes += metadata.blocks() * 512;
                if bytes > LIMIT {
                    return Err(CopyError::TooLarge { root: root.into() });
                }
                survey.entries.push(name);
            }
        }
        Ok(survey)
    }

    /// Makes a copy; its folder must not exist yet.
    pub(crate) fn copy_to(&self, target: &Path) -> Result<(), CopyError> {
        on("make the folder", target, fs::create_dir_all(target))?;
        for name in &self.entries {
            let (from, to) = (self.root.join(name), target.join(name));
            let metadata = on("look at", &from, fs::symlink_metadata(&from))?;
            if metadata.is_dir() {
                on("make the folder", &to, fs::create_dir(&to))?;
            } else if metadata.is_symlink() {
                let points_to = on("read the link", &from, fs::read_link(&from))?;
                // A link to elsewhere in the tree must not lead out of the copy.
                let points_to = match SourcePath::of(&self.root, &points_to) {
                    Some(inside) => target.join(inside),
                    None => points_to,
                };
                on("make the link", &to, std::os::unix::fs::symlink(points_to, &to))?;
            } else {
                on("copy", &from, copy_file(&from, &to, &metadata))?;
            }
        }
        self.borrow_git_objects(target)
    }

    fn borrow_git_objects(&self, target: &Path) -> Result<(), CopyError> {
        for name in self
            .entries
            .iter()
            .filter(|name| name.file_name() == Some(OsStr::new(".git")))
        {
            let objects = self.root.join(name).join("objects");
            if objects.is_dir() {
                let info = target.join(name).join("objects/info");
                let text = format!("{}\n", objects.display());
                on("make the folder", &info, fs::create_dir_all(&info))?;
                let file = info.join("alternates");
                on("write", &file, fs::write(&file, text))?;
            }
        }
        Ok(())
    }
}

fn is_git_objects(name: &Path) -> bool {
    name.file_name() == Some(OsStr::new("objects"))
        && name.parent().and_then(Path::file_name) == Some(OsStr::new(".git"))
}

fn copy_file(from: &Path, to: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    let built = copy_content(&mut source, &mut target, metadata)?;
    target.set_permissions(metadata.permissions())?;
    let modified = if built {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1)
    } else {
        metadata.modified()?
    };
    target.set_times(FileTimes::new().set_modified(modified))
}

/// Copies data and keeps holes (PM files are often sparse); whether a compiler made the file.
fn copy_content(source: &mut File, target: &mut File, metadata: &fs::Metadata) -> io::Result<bool> {
    let mut magic = Vec::new();
    (&*source).take(8).read_to_end(&mut magic)?;
    target.set_len(metadata.len())?;
    let mut at = 0;
    while at < metadata.len() {
        // SAFETY: plain system calls on an open file.
        let (data, hole) = unsafe {
            let data = libc::lseek(source.as_raw_fd(), at as i64, libc::SEEK_DATA);
            let hole = if data < 0 {
                -1
            } else {
                libc::lseek(source.as_raw_fd(), data, libc::SEEK_HOLE)
            };
            (data, hole)
        };
        let (data, hole) = match (data, hole) {
            (data, hole) if data >= 0 && hole > data => (data as u64, hole as u64),
            // No data from here on.
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => break,
            // A file system that knows no holes.
            _ => (at, metadata.len()),
        };
        source.seek(SeekFrom::Start(data))?;
        target.seek(SeekFrom::Start(data))?;
        io::copy(&mut (&*source).take(hole - data), target)?;
        at = hole;
    }
    target.flush()?;
    Ok(is_built(&magic))
}

/// Objects, programs, archives, bitcode and precompiled headers, by their first bytes.
fn is_built(magic: &[u8]) -> bool {
    [
        &b"\x7fELF"[..],
        b"!<arch>\n",
        b"!<thin>\n",
        b"BC\xc0\xde",
        b"CPCH",
        b"gpch",
    ]
    .iter()
    .any(|begin| magic.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["src", "build/CMakeFiles", ".git/objects/aa", ".git/refs", "empty"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("src/a.c"), "int a;\n").unwrap();
        fs::write(path("src/a.o"), b"\x7fELF\x02\x01\x01\0rest").unwrap();
        fs::write(path("build/CMakeCache.txt"), "").unwrap();
        fs::write(path(".git/objects/aa/bb"), "object").unwrap();
        fs::write(path(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(path("run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("a.c", path("src/b.c")).unwrap();
        symlink(path("src/a.c"), path("src/c.c")).unwrap();
        symlink("/nowhere", path("src/d.c")).unwrap();
        folder
    }

    #[test]
    fn a_copy_has_what_a_build_needs() {
        let (tree, target) = (tree(), tempfile::tempdir().unwrap());
        let survey = Survey::of(tree.path(), Path::new("/nowhere")).unwrap();
        assert_eq!(survey.left_out, [PathBuf::from("build")]);
        let copy = target.path().join("copy");
        survey.copy_to(&copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("src/b.c")).unwrap(), "int a;\n");
        assert_eq!(fs::read_link(copy.join("src/c.c")).unwrap(), copy.join("src/a.c"));
        assert_eq!(fs::read_link(copy.join("src/d.c")).unwrap(), Path::new("/nowhere"));
        assert!(copy.join("empty").is_dir() && !copy.join("build").exists());
        assert_eq!(
            fs::metadata(copy.join("run.sh")).unwrap().permissions().mode() & 0o777,
            0o755
        );
        let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(modified(&copy.join("src/a.c")), modified(&tree.path().join("src/a.c")));
        assert!(modified(&copy.join("src/a.o")) < modified(&copy.join("src/a.c")));
        assert!(!copy.join(".git/objects/aa").exists());
        let alternates = fs::read_to_string(copy.join(".git/objects/info/alternates")).unwrap();
        assert_eq!(
            alternates.trim_end(),
            tree.path().join(".git/objects").display().to_string()
        );
    }

    #[test]
    fn the_place_of_the_copies_is_not_copied() {
        let tree = tree();
        let scratch = tree.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        Survey::of(tree.path(), &scratch)
            .unwrap()
            .copy_to(&scratch.join("copy"))
            .unwrap();
        assert!(!scratch.join("copy/scratch").exists());
    }

    #[test]
    fn holes_stay_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("pool"), folder.path().join("copy"));
        let mut file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.seek(SeekFrom::Start(32 << 20)).unwrap();
        file.write_all(b"middle").unwrap();
        copy_file(&from, &to, &fs::metadata(&from).unwrap()).unwrap();
        let metadata = fs::metadata(&to).unwrap();
        assert_eq!(metadata.len(), 64 << 20);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
    }
}
