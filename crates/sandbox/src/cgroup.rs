//! A control group that bounds the memory of all processes of one sandbox, where the caller may make one.
//!
//! Version 2: below the nearest ancestor of our own group that hands the memory controller on. Version 1: below our own group
//! of the memory hierarchy. Its name holds our process id, so that a group that `kill -9` left behind is removed by the next
//! crashproof.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PREFIX: &str = "crashproof-";
/// How often, and after what pause, the removal of a group is tried: the kernel takes a moment to forget the last process.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The file with the limit, that with the limit of memory and swap together (or of swap), and that which counts processes
    /// that were ended for lack of memory.
    fn files(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Version::One => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                "memory.oom_control",
            ),
            Version::Two => ("memory.max", "memory.swap.max", "memory.events"),
        }
    }
}

/// A group of our own; removed on drop, when its processes have ended.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    version: Version,
    /// A process that writes `0` here joins the group.
    procs: File,
    /// Has a line `oom_kill N`.
    events: File,
}

impl Cgroup {
    /// `None`: none can be made here, or no process could join it.
    pub(crate) fn create(limit: u64) -> Option<Cgroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        parents()
            .into_iter()
            .find_map(|(parent, version)| Cgroup::create_in(&parent, version, &name, limit))
    }

    fn create_in(parent: &Path, version: Version, name: &str, limit: u64) -> Option<Cgroup> {
        let folder = parent.join(name);
        fs::create_dir(&folder).ok()?;
        remove_stale(parent);
        let open = || -> io::Result<Cgroup> {
            let (_, _, events) = version.files();
            Ok(Cgroup {
                procs: OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?,
                events: File::open(folder.join(events))?,
                folder: folder.clone(),
                version,
            })
        };
        let group = open().inspect_err(|_| {
            let _ = fs::remove_dir(&folder);
        });
        group
            .ok()
            .filter(|group| group.limit(limit).is_ok() && group.can_be_joined())
    }

    /// For all processes in it together, with what they write to files in memory.
    pub(crate) fn limit(&self, bytes: u64) -> io::Result<()> {
        let (memory, swap, _) = self.version.files();
        let set = |file: &str, bytes: u64| fs::write(self.folder.join(file), bytes.to_string());
        // The kernel rounds to pages; more than it can count is no limit. Not every kernel counts swap.
        let bytes = bytes.min(i64::MAX as u64 / 2);
        match self.version {
            Version::Two => {
                let _ = set(swap, 0);
                set(memory, bytes)
            }
            // Memory alone must never have more than memory and swap together: so the second comes first, or last.
            Version::One => {
                let _ = set(swap, bytes);
                set(memory, bytes)?;
                let _ = set(swap, bytes);
                Ok(())
            }
        }
    }

    /// The descriptors that the supervisor needs: to join it, and to see what was ended in it.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.procs.as_fd(), self.events.as_fd()]
    }

    /// Whether a process of ours may join: the permission is that of a common ancestor, too, and only a try tells.
    fn can_be_joined(&self) -> bool {
        let procs = self.procs.as_raw_fd();
        // SAFETY: the child makes two system calls that are async-signal-safe and ends; the parent waits for it.
        unsafe {
            match libc::fork() {
                -1 => false,
                0 => {
                    let joined = libc::write(procs, c"0".as_ptr().cast(), 1) == 1;
                    libc::_exit(i32::from(!joined))
                }
                child => {
                    let mut status = 0;
                    while libc::waitpid(child, &mut status, 0) == -1
                        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                    {}
                    status == 0
                }
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(REMOVAL_PAUSE),
                // What cannot be removed is removed by the next crashproof.
                _ => return,
            }
        }
    }
}

/// What joins a group, and how often one of its processes was ended for lack of memory: the supervisor's side.
pub(crate) fn join(procs: BorrowedFd<'_>) -> bool {
    // SAFETY: writes one byte from a constant; async-signal-safe.
    unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) == 1 }
}

pub(crate) fn ended_for_memory(events: BorrowedFd<'_>) -> u64 {
    let mut buffer = [0; 512];
    // SAFETY: reads into the buffer, from the beginning of the file.
    let read = unsafe { libc::pread(events.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    let text = String::from_utf8_lossy(&buffer[..read.max(0) as usize]);
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Groups below which one may be made, the nearest first.
fn parents() -> Vec<(PathBuf, Version)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut parents = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let version = match (number, controllers) {
            ("0", "") => Version::Two,
            (_, controllers) if controllers.split(',').any(|name| name == "memory") => Version::One,
            _ => continue,
        };
        let Some(root) = mount_point(&mounts, version) else {
            continue;
        };
        let path = path.trim_start_matches('/');
        match version {
            Version::One => parents.push((root.join(path), version)),
            Version::Two => {
                let own = root.join(path);
                let hands_on = |folder: &&Path| {
                    let controllers = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
                    controllers.split_whitespace().any(|name| name == "memory")
                };
                let within = own.ancestors().take_while(|folder| folder.starts_with(&root));
                parents.extend(within.filter(hands_on).map(|folder| (folder.to_path_buf(), version)));
            }
        }
    }
    parents
}

/// Where the hierarchy is mounted: `36 35 98:0 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory`.
fn mount_point(mounts: &str, version: Version) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
        let found = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let point = left.split(' ').nth(4)?;
        found.then(|| PathBuf::from(point))
    })
}

/// Removes the groups of crashproofs that are gone.
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // One that still has processes cannot be removed, and is not stale.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Whether this machine lets us bound the memory of a sandbox by a control group.
pub fn is_available() -> bool {
    Cgroup::create(u64::MAX).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_of_both_versions() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
                      31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n\
                      36 30 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      37 30 0:33 / /sys/fs/cgroup/memory rw shared:15 master:2 - cgroup cgroup rw,memory\n";
        assert_eq!(mount_point(mounts, Version::One), Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(mount_point(mounts, Version::Two), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("", Version::Two), None);
    }

    #[test]
    fn a_group_is_removed_with_its_owner() {
        let Some(group) = Cgroup::create(1 << 30) else {
            eprintln!("no control group can be made here");
            return;
        };
        let folder = group.folder.clone();
        assert!(folder.is_dir());
        assert_eq!(ended_for_memory(group.events.as_fd()), 0);
        group.limit(1 << 20).unwrap();
        group.limit(1 << 31).unwrap();
        drop(group);
        assert!(!folder.exists());
    }
}
