//! What the commands changed in files, and putting it back.
//!
//! Everything that a command writes to a file system lands in the upper folder of an overlay, so only the few folders that
//! exist there have to be looked at. Each has a modification time that no clock gives (1970): the kernel replaces it, or changes
//! the size, whenever an entry comes or goes, so one fstat a folder says that nothing happened. If something did, the entries are compared with those known:
//!
//! - what the caller's files do not have is removed;
//! - a file of the caller's that was changed, replaced or removed is copied anew;
//! - a folder that only was copied up, because something in it changed, becomes known;
//! - anything else is hopeless: the sandbox must be built anew.
//!
//! The upper folder is only looked at. Changes are made in the merged view, as the kernel demands. Contents of PM files
//! are the worker's business.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::sys;

/// A file of the caller's that is larger is not copied.
const RESTORE_LIMIT: i64 = 64 << 20;

/// No clock gives it.
const SENTINEL: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Where the three views of a folder are, for the supervisor.
pub(super) struct Overlay {
    pub upper: PathBuf,
    pub merged: PathBuf,
    /// The caller's folder.
    pub lower: Option<PathBuf>,
}

pub(super) struct Layer {
    pub overlay: Overlay,
    /// PM files, relative to the folder.
    pub pm: HashSet<PathBuf>,
    folders: Vec<Folder>,
    /// Everything in the upper folder when it was last right.
    known: HashMap<PathBuf, Known>,
    /// Known files that are not PM: they were copied from the caller's.
    copies: Vec<PathBuf>,
}

struct Folder {
    file: OwnedFd,
    stat: libc::stat,
}

struct Known {
    stat: libc::stat,
}

/// What cannot be put back.
pub(super) struct Hopeless(pub String);

impl Layer {
    pub(super) fn new(overlay: Overlay) -> Self {
        Layer {
            overlay,
            pm: HashSet::new(),
            folders: Vec::new(),
            known: HashMap::new(),
            copies: Vec::new(),
        }
    }

    /// Takes what is there now as right.
    pub(super) fn settle(&mut self) {
        self.folders.clear();
        self.known.clear();
        self.copies.clear();
        self.settle_folder(Path::new(""));
    }

    fn settle_folder(&mut self, relative: &Path) {
        let path = self.overlay.upper.join(relative);
        let Ok(file) = fs::File::open(&path) else { return };
        for (entry, stat) in self.entries(relative) {
            match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => self.settle_folder(&entry),
                libc::S_IFREG if !self.pm.contains(&entry) => self.copies.push(entry.clone()),
                _ => {}
            }
            self.known.insert(entry, Known { stat });
        }
        let _ = sys::set_modified(file.as_fd(), SENTINEL);
        if let Ok(stat) = sys::stat(file.as_fd()) {
            self.folders.push(Folder {
                file: file.into(),
                stat,
            });
        }
    }

    /// The entries of a folder of the upper one, without mount points.
    fn entries(&self, relative: &Path) -> Vec<(PathBuf, libc::stat)> {
        let path = self.overlay.upper.join(relative);
        let own_device = sys::stat_path(&path).ok().flatten().map(|stat| stat.st_dev);
        let Ok(entries) = fs::read_dir(&path) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let stat = sys::stat_path(&entry.path()).ok()??;
                (Some(stat.st_dev) == own_device).then(|| (relative.join(entry.file_name()), stat))
            })
            .collect()
    }

    /// Whether nothing happened since it was last right, but for contents of PM files.
    pub(super) fn is_clean(&self) -> bool {
        self.folders.iter().all(|folder| {
            let right = &folder.stat;
            // The kernel puts a folder's time back when it copies a file up; but then there is one entry more.
            sys::stat(folder.file.as_fd())
                .is_ok_and(|now| same_attributes(&now, right) && same_time(&now, right) && now.st_size == right.st_size)
        }) && self.copies.iter().all(|path| self.copy_is_unchanged(path))
    }

    fn copy_is_unchanged(&self, path: &Path) -> bool {
        let now = sys::stat_path(&self.overlay.upper.join(path));
        let known = self.known.get(path).map(|known| &known.stat);
        now.ok().flatten().zip(known).is_some_and(|(now, known)| {
            same_object(&now, known) && same_attributes(&now, known) && same_content(&now, known)
        })
    }

    /// Puts back what was changed, but for PM files, whose places are only cleared if they are not there any more.
    pub(super) fn tidy(&mut self) -> Result<(), Hopeless> {
        let mut seen = HashSet::new();
        self.tidy_folder(Path::new(""), &mut seen)?;
        let gone: Vec<PathBuf> = self
            .known
            .keys()
            .filter(|path| !seen.contains(*path) && !self.pm.contains(*path))
            .cloned()
            .collect();
        for path in gone {
            self.restore(&path)?;
        }
        self.settle();
        Ok(())
    }

    fn tidy_folder(&self, relative: &Path, seen: &mut HashSet<PathBuf>) -> Result<(), Hopeless> {
        for (path, now) in self.entries(relative) {
            seen.insert(path.clone());
            let known = self.known.get(&path).map(|known| &known.stat);
            match known {
                Some(known) if same_object(&now, known) => {
                    if !same_attributes(&now, known) {
                        self.restore_attributes(&path, known)?;
                    }
                    if is_folder(&now) {
                        self.tidy_folder(&path, seen)?;
                    } else if !self.pm.contains(&path) && !same_content(&now, known) {
                        self.restore(&path)?;
                    }
                }
                _ if self.pm.contains(&path) => self.clear(&path, &now)?,
                // A file that is away was made: without it the caller's is hidden again.
                Some(known) if is_whiteout(known) => self.clear(&path, &now)?,
                _ => match self.lower(&path) {
                    None => self.clear(&path, &now)?,
                    Some(lower) if is_folder(&lower) && is_folder(&now) && !self.is_opaque(&path) => {
                        if !same_attributes(&now, &lower) {
                            self.restore_attributes(&path, &lower)?;
                        }
                        self.tidy_folder(&path, seen)?;
                    }
                    Some(_) => self.restore(&path)?,
                },
            }
        }
        Ok(())
    }

    fn lower(&self, path: &Path) -> Option<libc::stat> {
        sys::stat_path(&self.overlay.lower.as_ref()?.join(path)).ok().flatten()
    }

    fn is_opaque(&self, path: &Path) -> bool {
        fs::File::open(self.overlay.upper.join(path)).is_ok_and(|folder| {
            [c"trusted.overlay.opaque", c"user.overlay.opaque"]
                .iter()
                .any(|name| sys::has_attribute(folder.as_fd(), name))
        })
    }

    /// Removes what is there, in the merged view.
    fn clear(&self, path: &Path, now: &libc::stat) -> Result<(), Hopeless> {
        if is_whiteout(now) {
            return Ok(());
        }
        let merged = self.overlay.merged.join(path);
        let removed = if is_folder(now) {
            fs::remove_dir_all(&merged)
        } else {
            fs::remove_file(&merged)
        };
        removed.map_err(|error| self.hopeless("remove", path, &error))
    }

    fn restore_attributes(&self, path: &Path, right: &libc::stat) -> Result<(), Hopeless> {
        let merged = self.overlay.merged.join(path);
        let restored = sys::change_owner(&merged, right.st_uid, right.st_gid).and_then(|()| {
            if right.st_mode & libc::S_IFMT == libc::S_IFLNK {
                return Ok(());
            }
            fs::set_permissions(&merged, fs::Permissions::from_mode(right.st_mode & 0o7777))
        });
        restored.map_err(|error| self.hopeless("restore the attributes of", path, &error))
    }

    /// Copies a file or link of the caller's anew.
    fn restore(&self, path: &Path) -> Result<(), Hopeless> {
        let whole = self.whole(path);
        let (Some(lower), Some(stat)) = (&self.overlay.lower, self.lower(path)) else {
            return Err(Hopeless(format!("{} was removed", whole.display())));
        };
        let (lower, merged) = (lower.join(path), self.overlay.merged.join(path));
        if is_folder(&stat) {
            return Err(Hopeless(format!("the folder {} was moved or removed", whole.display())));
        }
        if stat.st_size > RESTORE_LIMIT {
            return Err(Hopeless(format!("{} was changed, and it is large", whole.display())));
        }
        let copy = || -> io::Result<()> {
            if let Some(now) = sys::stat_path(&merged)? {
                if is_folder(&now) {
                    fs::remove_dir_all(&merged)?;
                } else if now.st_mode & libc::S_IFMT != libc::S_IFREG {
                    fs::remove_file(&merged)?;
                }
            }
            match stat.st_mode & libc::S_IFMT {
                libc::S_IFLNK => {
                    let _ = fs::remove_file(&merged);
                    std::os::unix::fs::symlink(fs::read_link(&lower)?, &merged)
                }
                libc::S_IFREG => {
                    fs::write(&merged, fs::read(&lower)?)?;
                    let _ = sys::change_owner(&merged, stat.st_uid, stat.st_gid);
                    fs::set_permissions(&merged, fs::Permissions::from_mode(stat.st_mode & 0o7777))?;
                    let time = libc::timespec {
                        tv_sec: stat.st_mtime,
                        tv_nsec: stat.st_mtime_nsec,
                    };
                    sys::set_modified(fs::File::open(&merged)?.as_fd(), time)
                }
                _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            }
        };
        copy().map_err(|error| self.hopeless("restore", path, &error))
    }

    fn hopeless(&self, what: &str, path: &Path, error: &io::Error) -> Hopeless {
        Hopeless(format!("cannot {what} {}: {error}", self.whole(path).display()))
    }

    /// As the commands see it.
    fn whole(&self, path: &Path) -> PathBuf {
        let merged = self.overlay.merged.join(path);
        let inside = merged.strip_prefix(super::root::NEW).unwrap_or(&merged);
        Path::new("/").join(inside)
    }
}

fn is_folder(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// How an overlay says that the file below is not there.
fn is_whiteout(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == 0
}

/// All whiteouts may be links to one.
fn same_object(one: &libc::stat, other: &libc::stat) -> bool {
    if is_whiteout(one) || is_whiteout(other) {
        return is_whiteout(one) && is_whiteout(other);
    }
    one.st_ino == other.st_ino && one.st_mode & libc::S_IFMT == other.st_mode & libc::S_IFMT
}

fn same_attributes(one: &libc::stat, other: &libc::stat) -> bool {
    is_whiteout(one) && is_whiteout(other)
        || (one.st_mode, one.st_uid, one.st_gid) == (other.st_mode, other.st_uid, other.st_gid)
}

fn same_time(one: &libc::stat, other: &libc::stat) -> bool {
    (one.st_mtime, one.st_mtime_nsec) == (other.st_mtime, other.st_mtime_nsec)
}

fn same_content(one: &libc::stat, other: &libc::stat) -> bool {
    one.st_mode & libc::S_IFMT != libc::S_IFREG || one.st_size == other.st_size && same_time(one, other)
}
