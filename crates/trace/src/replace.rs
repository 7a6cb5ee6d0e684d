//! Files that are written for the user, whole or not at all. A file that is there already stays until the new
//! one is complete, so a full disk never replaces a good file by a part of one.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file in the making. If it is dropped before [`commit`](Replacement::commit), nothing has changed at its
/// path, unless the path can only be written in place.
pub struct Replacement {
    /// Path of the file, with symbolic links resolved.
    target: PathBuf,
    place: Place,
}

enum Place {
    /// A temporary file beside the target, which is renamed at the end.
    Beside(NamedTempFile),
    /// The target itself, because it is not a file (a pipe, a terminal, `/dev/null`), has other names that
    /// must stay its names, or is in a directory that cannot be written to.
    Direct(File),
}

impl Replacement {
    /// Begins a file for `path`. A file that is at `path` does not change yet, unless it can only be written
    /// in place.
    pub fn new(path: &Path) -> io::Result<Replacement> {
        let found = path.metadata();
        let is_link = || path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let permissions = match &found {
            Ok(found) if replaceable(found) => {
                // A file that may not be written to is not replaced either.
                OpenOptions::new().write(true).open(path)?;
                found.permissions()
            }
            // The umask takes rights away.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link() => Permissions::from_mode(0o666),
            _ => return Replacement::direct(path),
        };
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let made = tempfile::Builder::new()
            .prefix(".crashproof-")
            .permissions(permissions)
            .tempfile_in(folder_of(&target));
        match made {
            Ok(file) => Ok(Replacement {
                target,
                place: Place::Beside(file),
            }),
            Err(error) if found.is_ok() && is_refused(&error) => Replacement::direct(path),
            // The error without the temporary file's path, as if the file itself could not be made.
            Err(error) => Err(error.raw_os_error().map_or(error, io::Error::from_raw_os_error)),
        }
    }

    fn direct(path: &Path) -> io::Result<Replacement> {
        Ok(Replacement {
            target: path.to_owned(),
            place: Place::Direct(File::create(path)?),
        })
    }

    /// The file to write to.
    pub fn file(&mut self) -> &mut File {
        match &mut self.place {
            Place::Beside(file) => file.as_file_mut(),
            Place::Direct(file) => file,
        }
    }

    /// Puts the complete file at its path.
    pub fn commit(self) -> io::Result<()> {
        let Place::Beside(file) = self.place else {
            return Ok(());
        };
        file.persist(&self.target)
            .map(drop)
            .or_else(|error| match error.error.raw_os_error() {
                // A mount point cannot be replaced.
                Some(EBUSY) => std::fs::copy(error.file.path(), &self.target).map(drop),
                _ => Err(error.error),
            })
    }
}

const EBUSY: i32 = 16;

fn replaceable(found: &Metadata) -> bool {
    found.is_file() && found.nlink() == 1
}

/// Whether there is a file at `path` that has content, that may be written to, and that can be replaced by a
/// rename.
pub fn is_worth_keeping(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| replaceable(&found) && found.len() > 0)
        && OpenOptions::new().write(true).open(path).is_ok()
}

/// Moves the complete file `file` to the place of the existing file `of`, and gives it the permissions of
/// that file.
pub fn take_place(file: &Path, of: &Path) -> io::Result<()> {
    let target = of.canonicalize()?;
    std::fs::set_permissions(file, target.metadata()?.permissions())?;
    std::fs::rename(file, &target).or_else(|error| match error.raw_os_error() {
        // A mount point cannot be replaced.
        Some(EBUSY) => std::fs::copy(file, &target).and_then(|_| std::fs::remove_file(file)),
        _ => Err(error),
    })
}

/// Whether an error means that a directory cannot be written to: no permission, or a read-only file system.
pub fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// The directory of a file's path: `.` for a name alone, and `/` for `/`.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) => Path::new("."),
        None => Path::new("/"),
    }
}

/// Writes `content` to a file at `path`, all of it or nothing.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut replacement = Replacement::new(path)?;
    replacement.file().write_all(content)?;
    replacement.commit()
}

/// Copies the file `from` to `path`, all of it or nothing.
pub fn copy(from: &Path, path: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut replacement = Replacement::new(path)?;
    io::copy(&mut from, replacement.file())?;
    replacement.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_not_committed_leaves_everything_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, "old").unwrap();
        let mut replacement = Replacement::new(&path).unwrap();
        replacement.file().write_all(b"part").unwrap();
        drop(replacement);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
        write(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn links_permissions_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "old").unwrap();
        std::fs::set_permissions(at("file"), Permissions::from_mode(0o640)).unwrap();
        symlink("file", at("link")).unwrap();
        write(&at("link"), b"new").unwrap();
        assert!(at("link").symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        assert_eq!(at("file").metadata().unwrap().mode() & 0o777, 0o640);

        symlink("later", at("dangling")).unwrap();
        write(&at("dangling"), b"made").unwrap();
        assert_eq!(std::fs::read(at("later")).unwrap(), b"made");

        std::fs::hard_link(at("file"), at("other")).unwrap();
        write(&at("file"), b"both").unwrap();
        assert_eq!(std::fs::read(at("other")).unwrap(), b"both");

        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(write(Path::new("/dev/full"), b"no").is_err());
        assert!(write(&at("no/such/folder"), b"x").is_err());
        assert!(write(folder.path(), b"x").is_err());
    }
}
