//! The bound on what all processes of the sandbox take together: by a control group where the worker could make one, else
//! by looking at them every so often.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::process::{self, Pid};
use super::root;
use crate::cgroup;

/// How often the processes are looked at.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// What the commands may take.
pub(super) struct Memory {
    /// Private memory of one process, and of all together beside files.
    memory: u64,
    /// What they may write to files, which are in memory, with the PM files.
    disk: u64,
    group: Option<Group>,
}

struct Group {
    procs: OwnedFd,
    events: OwnedFd,
    /// Processes that were ended for lack of memory, as far as was asked.
    ended: u64,
}

impl Memory {
    /// `descriptors`: those of the worker's control group, if it has one.
    pub(super) fn new(memory: u64, disk: u64, descriptors: Vec<OwnedFd>) -> Memory {
        let mut descriptors = descriptors.into_iter();
        let group = match (descriptors.next(), descriptors.next()) {
            (Some(procs), Some(events)) => Some(Group {
                ended: cgroup::ended_for_memory(events.as_fd()),
                procs,
                events,
            }),
            _ => None,
        };
        Memory { memory, disk, group }
    }

    /// More room for files.
    pub(super) fn allow(&mut self, disk: u64) {
        self.disk = disk;
    }

    /// What a new process joins.
    pub(super) fn group(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref().map(|group| group.procs.as_fd())
    }

    /// Whether the kernel has ended a process for lack of memory since this was last asked.
    pub(super) fn was_exceeded(&mut self) -> bool {
        let Some(group) = &mut self.group else { return false };
        let ended = cgroup::ended_for_memory(group.events.as_fd());
        let before = std::mem::replace(&mut group.ended, ended);
        ended > before
    }

    /// Whether the processes take more than they may, where no control group sees to it.
    pub(super) fn is_exceeded(&self) -> bool {
        self.group.is_none() && self.memory < u64::MAX && used() > self.memory.saturating_add(self.disk)
    }
}

/// What the processes of the sandbox take together, without the supervisor. Memory files that are mapped count where they are
/// mapped; where a process only has them open, by their size. A file may be both, so the larger sum of the two counts.
fn used() -> u64 {
    let (mut private, mut shared, mut opened) = (0, 0, 0);
    let mut seen = HashSet::new();
    for process in process::processes() {
        if process == 1 {
            continue;
        }
        let (process_private, process_shared) = mapped(process);
        private += process_private;
        shared += process_shared;
        opened += memory_files(process, &mut seen);
    }
    private + u64::max(shared, opened)
}

/// Private and shared memory of a process, each page divided by the number of processes that have it.
fn mapped(process: Pid) -> (u64, u64) {
    let path = root::inside(format!("/proc/{process}/smaps_rollup"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        number.unwrap_or(0) << 10
    };
    (of("Pss_Anon") + of("SwapPss"), of("Pss_Shmem"))
}

/// Files without a name (memfd_create, unlinked files in memory) that the process has open, each counted once for all processes.
fn memory_files(process: Pid, seen: &mut HashSet<(u64, u64)>) -> u64 {
    let folder = root::inside(format!("/proc/{process}/fd"));
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
        })
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .filter(|file| seen.insert((file.dev(), file.ino())))
        .map(|file| file.blocks() * 512)
        .sum()
}
