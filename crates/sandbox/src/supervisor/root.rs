//! Builds what the commands see as `/`: the caller's files, with everything that is written kept in memory.
//!
//! The supervisor's own root is a small file system in memory, with the caller's root at [`OLD`] and the commands' at
//! [`NEW`], into which they are put by chroot. As root, one overlay covers the root file system and one each other file system that can
//! be written. In a user namespace the kernel refuses an overlay on a folder that has mounts below it, so there every folder with
//! mounts below is remade entry by entry, and the others are covered by an overlay each. `/dev` has the harmless
//! devices only, `/sys` is read-only, `/proc` shows the sandbox's processes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::layer::{Layer, Overlay};
use super::mounts::{self, Mount};
use super::namespace::{self, Rights};
use super::sys;
use crate::error::{BuildError, errno};
use crate::protocol::{CONTROL, Config, Control};

/// The caller's root, as the supervisor sees it.
pub(super) const OLD: &str = "/old";
/// The commands' root, as the supervisor sees it.
pub(super) const NEW: &str = "/new";
/// What the overlays keep: a file system in memory with a size limit.
const LAYERS: &str = "/layers";
/// Links to the lower folders: their names may hold what the mount options cannot.
const LOWER: &str = "/lower";
/// Holds what is seen as [`CONTROL`] by the commands.
const CONTROL_MOUNT: &str = "/control";

/// Folders that are never covered, because they are made anew.
const MADE: [&str; 4] = ["/proc", "/sys", "/dev", CONTROL];
/// File systems of the kernel's that hold no files of the user's.
const PSEUDO: [&str; 17] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "tracefs",
];
/// What in `/proc` is the machine's and can be written by root without any capability.
const MACHINE: [&str; 9] = [
    "acpi",
    "bus",
    "driver",
    "fs",
    "irq",
    "mtrr",
    "scsi",
    "sys",
    "sysrq-trigger",
];
/// The runtime's name in [`CONTROL`]: a path that LD_PRELOAD can hold.
const RUNTIME: &str = "runtime.so";
/// A file beside a mount, in a user namespace: copied if it is not larger, else read-only.
const COPY_LIMIT: u64 = 4 << 20;

/// The built root.
pub(super) struct Root {
    pub layers: Vec<Layer>,
    /// In the order of [`Control::ALL`].
    pub control: Vec<OwnedFd>,
}

/// As the supervisor sees a path of the commands'.
pub(super) fn inside(path: impl AsRef<Path>) -> PathBuf {
    under(NEW, path.as_ref())
}

fn under(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

/// Where the commands find the runtime.
pub(super) fn runtime() -> PathBuf {
    Path::new(CONTROL).join(RUNTIME)
}

pub(super) fn build(config: &Config, rights: Rights) -> Result<Root, BuildError> {
    let mountinfo = fs::read("/proc/self/mountinfo").map_err(|error| BuildError::Mounts { errno: errno(&error) })?;
    let mounts = mounts::visible(&mountinfo);
    enter_base()?;
    let mut builder = Builder {
        rights,
        folders: config.folders.iter().map(PathBuf::from).collect(),
        mounts: &mounts,
        layers: Vec::new(),
    };
    let layers = format!("size={},nr_inodes=200000,mode=0755", config.disk);
    // Large pages for PM files that ask for them, if the kernel has any.
    tmpfs(LAYERS, &format!("{layers},huge=advise")).or_else(|_| tmpfs(LAYERS, &layers))?;
    // The log of what was read and written lies here, and what the commands print.
    tmpfs(
        CONTROL_MOUNT,
        &format!("size={},nr_inodes=1000,mode=0755", config.disk.max(64 << 20)),
    )?;
    match rights {
        Rights::Root => builder.cover_mounts()?,
        Rights::UserNamespace => {
            tmpfs(NEW, &format!("size={},nr_inodes=200000,mode=0755", config.disk))?;
            for made in MADE {
                make_folder(&inside(made), 0o755)?;
            }
            builder.cover_tree(Path::new("/"));
            builder.layers.push(Layer::new(Overlay {
                upper: NEW.into(),
                merged: NEW.into(),
                lower: None,
            }));
        }
    }
    make_proc(rights, config.memory)?;
    make_sys()?;
    builder.make_dev()?;
    mount(
        "bind",
        Path::new(CONTROL_MOUNT),
        &inside(CONTROL),
        "",
        libc::MS_BIND,
        "",
    )?;
    let control = make_control(config)?;
    namespace::loopback_up()?;
    let mut layers = builder.layers;
    for layer in &mut layers {
        layer.settle();
    }
    Ok(Root { layers, control })
}

/// Puts the supervisor into a root of its own, with the caller's below it.
fn enter_base() -> Result<(), BuildError> {
    // What is mounted from now on stays here.
    mount(
        "make private",
        Path::new(""),
        Path::new("/"),
        "",
        libc::MS_REC | libc::MS_PRIVATE,
        "",
    )?;
    let base = ["/tmp", "/mnt", "/run", "/var", "/usr"]
        .map(Path::new)
        .into_iter()
        .find(|folder| folder.symlink_metadata().is_ok_and(|m| m.is_dir()))
        .unwrap_or(Path::new("/proc"));
    mount(
        "mount a file system at",
        Path::new("tmpfs"),
        base,
        "tmpfs",
        0,
        "size=64m,mode=0755",
    )?;
    let in_base = |name: &str| under(&base.to_string_lossy(), Path::new(name));
    for folder in [OLD, NEW, LAYERS, LOWER, CONTROL_MOUNT] {
        make_folder(&in_base(folder), 0o755)?;
    }
    let failed = |what: &str, error: io::Error| BuildError::Mount {
        what: what.into(),
        path: base.into(),
        errno: errno(&error),
    };
    sys::pivot_root(base, &in_base(OLD)).map_err(|error| failed("change the root to", error))?;
    std::env::set_current_dir("/").map_err(|error| failed("enter", error))
}

struct Builder<'a> {
    rights: Rights,
    /// As in [`Config`].
    folders: Vec<PathBuf>,
    mounts: &'a [Mount],
    layers: Vec<Layer>,
}

impl Builder<'_> {
    /// An overlay for the root, and for each other file system that can be written.
    fn cover_mounts(&mut self) -> Result<(), BuildError> {
        let made: Vec<&Path> = MADE.iter().map(|made| Path::new(&made[1..])).collect();
        self.overlay(Path::new("/"), &made)?;
        for mount in &self.mounts[1..] {
            self.cover_mount(mount);
        }
        Ok(())
    }

    /// What cannot be covered is shown read-only, and what cannot be shown either is left out: few recoveries need it,
    /// and a PM file that lies there is refused later, with a reason.
    fn cover_mount(&mut self, mount: &Mount) {
        let point = &mount.point;
        if MADE.iter().any(|made| point.starts_with(made)) || PSEUDO.contains(&mount.kind.as_str()) {
            return;
        }
        let is_folder = under(OLD, point).is_dir();
        if !is_folder || mount.read_only || self.overlay(point, &[]).is_err() {
            let _ = show_read_only(point);
        }
    }

    /// In a user namespace: the folder, whose mount point in the new root is there.
    fn cover_tree(&mut self, folder: &Path) {
        let mounted = self.mounts.iter().rev().find(|mount| mount.point == folder);
        if mounted.is_some_and(|mount| PSEUDO.contains(&mount.kind.as_str())) {
            return;
        }
        if mounted.is_some_and(|mount| mount.read_only) {
            let _ = show_read_only(folder);
            return;
        }
        let mounts_below = self
            .mounts
            .iter()
            .any(|mount| mount.point != folder && mount.point.starts_with(folder));
        if !mounts_below {
            if self.overlay(folder, &[]).is_err() {
                let _ = show_read_only(folder);
            }
            return;
        }
        let Ok(entries) = fs::read_dir(under(OLD, folder)) else {
            return;
        };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if MADE.iter().any(|made| path == Path::new(made)) {
                continue;
            }
            // An entry that cannot be remade is one that this user cannot read.
            let _ = self.remake(&path);
        }
    }

    /// In a user namespace: one entry of a folder that has mounts below.
    fn remake(&mut self, path: &Path) -> io::Result<()> {
        let (old, new) = (under(OLD, path), inside(path));
        let metadata = old.symlink_metadata()?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::DirBuilder::new().mode(metadata.mode() & 0o7777).create(&new)?;
            self.cover_tree(path);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&old)?, &new)?;
        } else if kind.is_file() && metadata.size() <= COPY_LIMIT {
            fs::copy(&old, &new)?;
        } else if kind.is_file() || kind.is_socket() {
            show_read_only(path).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Covers the folder; `made` are folders that it must have, relative to it.
    fn overlay(&mut self, folder: &Path, made: &[&Path]) -> Result<(), BuildError> {
        let number = self.layers.len();
        let part = |name: &str| Path::new(LAYERS).join(format!("{name}{number}"));
        let (upper, work) = (part("upper"), part("work"));
        let lower = Path::new(LOWER).join(number.to_string());
        let old = under(OLD, folder);
        let failed = |error: io::Error| BuildError::Mount {
            what: "cover".into(),
            path: folder.into(),
            errno: errno(&error),
        };
        let _ = fs::remove_file(&lower);
        std::os::unix::fs::symlink(&old, &lower).map_err(failed)?;
        // The covered folder has the attributes of the upper one.
        let metadata = old.metadata().map_err(failed)?;
        for folder in [&upper, &work] {
            let _ = fs::create_dir(folder);
            let _ = sys::change_owner(folder, metadata.uid(), metadata.gid());
            fs::set_permissions(folder, fs::Permissions::from_mode(metadata.mode() & 0o7777)).map_err(failed)?;
        }
        for made in made {
            let _ = fs::create_dir(upper.join(made));
        }
        if self.rights == Rights::UserNamespace {
            for wanted in self
                .folders
                .iter()
                .filter_map(|wanted| wanted.strip_prefix(folder).ok())
            {
                make_own(&old, &upper, wanted);
            }
        }
        let mut options = format!(
            "lowerdir={},upperdir={},workdir={},index=off,metacopy=off,redirect_dir=nofollow,xino=off",
            lower.display(),
            upper.display(),
            work.display()
        );
        if self.rights == Rights::UserNamespace {
            options.push_str(",userxattr");
        }
        let merged = inside(folder);
        sys::mount(Path::new("overlay"), &merged, "overlay", libc::MS_NODEV, &options).map_err(failed)?;
        self.layers.push(Layer::new(Overlay {
            upper,
            merged,
            lower: Some(old),
        }));
        Ok(())
    }

    /// The devices that change nothing, terminals of its own, and `/dev/shm`, which may hold PM files.
    fn make_dev(&mut self) -> Result<(), BuildError> {
        let dev = inside("/dev");
        mount(
            "mount",
            Path::new("tmpfs"),
            &dev,
            "tmpfs",
            libc::MS_NOSUID,
            "size=1m,mode=0755",
        )?;
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let (old, new) = (under(OLD, &Path::new("/dev").join(name)), dev.join(name));
            if old.exists() {
                make_file(&new)?;
                mount("show", &old, &new, "", libc::MS_BIND, "")?;
            }
        }
        let links = [
            ("/proc/self/fd", "fd"),
            ("/proc/self/fd/0", "stdin"),
            ("/proc/self/fd/1", "stdout"),
            ("/proc/self/fd/2", "stderr"),
            ("pts/ptmx", "ptmx"),
        ];
        for (target, name) in links {
            std::os::unix::fs::symlink(target, dev.join(name)).map_err(|error| BuildError::Control {
                path: dev.join(name),
                errno: errno(&error),
            })?;
        }
        for folder in ["pts", "shm"] {
            make_folder(&dev.join(folder), 0o755)?;
        }
        // Few recoveries want a terminal; where the kernel refuses it there is none.
        let _ = sys::mount(
            Path::new("devpts"),
            &dev.join("pts"),
            "devpts",
            libc::MS_NOSUID | libc::MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620",
        );
        let shm = Path::new("/dev/shm");
        if under(OLD, shm).is_dir() {
            self.overlay(shm, &[])?;
        } else {
            mount(
                "mount",
                Path::new("tmpfs"),
                &inside(shm),
                "tmpfs",
                0,
                "size=64m,mode=1777",
            )?;
        }
        mount(
            "make read-only",
            Path::new(""),
            &dev,
            "",
            libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID,
            "",
        )
    }
}

/// Makes a folder, and those above it, in the upper folder of an overlay, as they are in the lower one but the user's own: what
/// belongs to somebody else cannot be copied up in a user namespace.
fn make_own(lower: &Path, upper: &Path, wanted: &Path) {
    let mut path = PathBuf::new();
    for part in wanted {
        path.push(part);
        let Ok(metadata) = lower.join(&path).symlink_metadata() else {
            return;
        };
        // Where it cannot be made, the commands cannot write.
        let made = fs::DirBuilder::new().create(upper.join(&path));
        if metadata.is_dir() && made.is_ok() {
            let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
            let _ = fs::set_permissions(upper.join(&path), mode);
        }
    }
}

fn make_proc(rights: Rights, memory: u64) -> Result<(), BuildError> {
    let proc = inside("/proc");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    sys::mount(Path::new("proc"), &proc, "proc", flags, "")
        .map_err(|error| BuildError::Proc { errno: errno(&error) })?;
    namespace::limit_processes(&proc);
    namespace::forget_connections(&proc);
    namespace::limit_shared_memory(&proc, memory);
    if rights == Rights::Root {
        // The settings of the machine are not the sandbox's.
        for name in MACHINE {
            let path = proc.join(name);
            if path.exists() {
                mount("show", &path, &path, "", libc::MS_BIND, "")?;
                mount(
                    "make read-only",
                    Path::new(""),
                    &path,
                    "",
                    libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | flags,
                    "",
                )?;
            }
        }
    }
    Ok(())
}

fn make_sys() -> Result<(), BuildError> {
    if !under(OLD, Path::new("/sys")).is_dir() {
        return Ok(());
    }
    show_read_only(Path::new("/sys"))
}

/// Shows the caller's file or folder, with what is mounted below it, read-only.
fn show_read_only(path: &Path) -> Result<(), BuildError> {
    let (old, new) = (under(OLD, path), inside(path));
    if !old.is_dir() && !new.exists() {
        make_file(&new)?;
    }
    mount("show", &old, &new, "", libc::MS_BIND | libc::MS_REC, "")?;
    sys::make_read_only(&new).map_err(|error| {
        let _ = sys::unmount(&new);
        BuildError::Mount {
            what: "make read-only".into(),
            path: path.into(),
            errno: errno(&error),
        }
    })
}

/// The files that worker, supervisor and commands share.
fn make_control(config: &Config) -> Result<Vec<OwnedFd>, BuildError> {
    let failed = |path: &Path, error: io::Error| BuildError::Control {
        path: path.into(),
        errno: errno(&error),
    };
    let link = Path::new(CONTROL_MOUNT).join(RUNTIME);
    std::os::unix::fs::symlink(&config.runtime, &link).map_err(|error| failed(&link, error))?;
    Control::ALL
        .iter()
        .map(|control| {
            let path = Path::new(CONTROL_MOUNT).join(control.name());
            let mut options = fs::OpenOptions::new();
            options.read(true).create_new(true);
            // What the commands print is appended, whichever process prints it.
            match control {
                Control::Recovery | Control::Output => options.write(true),
                _ => options.append(true),
            };
            let file = options.open(&path).map_err(|error| failed(&path, error))?;
            Ok(file.into())
        })
        .collect()
}

/// More room for the overlays' files.
pub(super) fn allow(disk: u64) -> Result<(), BuildError> {
    mount(
        "resize",
        Path::new(""),
        Path::new(LAYERS),
        "",
        libc::MS_REMOUNT,
        &format!("size={disk}"),
    )
}

fn tmpfs(target: &str, options: &str) -> Result<(), BuildError> {
    mount("mount", Path::new("tmpfs"), Path::new(target), "tmpfs", 0, options)
}

fn mount(
    what: &str,
    source: &Path,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    data: &str,
) -> Result<(), BuildError> {
    sys::mount(source, target, kind, flags, data).map_err(|error| BuildError::Mount {
        what: what.into(),
        path: target.into(),
        errno: errno(&error),
    })
}

fn make_folder(path: &Path, mode: u32) -> Result<(), BuildError> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(BuildError::Control {
            path: path.into(),
            errno: errno(&error),
        }),
        _ => Ok(()),
    }
}

fn make_file(path: &Path) -> Result<(), BuildError> {
    fs::File::create(path).map(drop).map_err(|error| BuildError::Control {
        path: path.into(),
        errno: errno(&error),
    })
}

/// Shows a folder of the caller's to the commands, writable.
pub(super) fn share(folder: &Path) -> Result<PathBuf, BuildError> {
    let new = inside(folder);
    let failed = |error: io::Error| BuildError::Mount {
        what: "share".into(),
        path: folder.into(),
        errno: errno(&error),
    };
    fs::create_dir_all(&new).map_err(failed)?;
    sys::mount(&under(OLD, folder), &new, "", libc::MS_BIND | libc::MS_REC, "").map_err(failed)?;
    Ok(new)
}
