//! The supervisor's namespaces: mounts, processes, network, System V IPC, host name; and a user namespace where the caller has not
//! the right to make the others.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::sys;
use crate::error::{BuildError, errno};

const SPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
/// Those that not every kernel has; what they isolate is out of a command's reach for other reasons, too.
const OPTIONAL: [libc::c_int; 2] = [libc::CLONE_NEWCGROUP, libc::CLONE_NEWTIME];

/// Whether a user namespace was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    Root,
    UserNamespace,
}

/// Leaves the caller's namespaces. That of processes takes effect for the next child.
pub(super) fn unshare() -> Result<Rights, BuildError> {
    // SAFETY: these calls only return a number of this process.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: changes only what this process sees; it has one thread.
    if user == 0 && unsafe { libc::unshare(SPACES) } == 0 {
        unshare_optional();
        return Ok(Rights::Root);
    }
    // SAFETY: as above.
    sys::check(unsafe { libc::unshare(SPACES | libc::CLONE_NEWUSER) })
        .map_err(|error| BuildError::UserNamespace { errno: errno(&error) })?;
    let write = |file: &str, content: String| {
        std::fs::write(file, content).map_err(|error| BuildError::UserMap {
            file: file.into(),
            errno: errno(&error),
        })
    };
    // Without it the kernel does not let an ordinary user map its group.
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    unshare_optional();
    Ok(Rights::UserNamespace)
}

fn unshare_optional() {
    for space in OPTIONAL {
        // SAFETY: changes only what this process, or its children, see; it has one thread.
        unsafe { libc::unshare(space) };
    }
}

/// A new network namespace has a loopback interface that is down.
pub(super) fn loopback_up() -> Result<(), BuildError> {
    let failed = |error: io::Error| BuildError::Loopback { errno: errno(&error) };
    // SAFETY: the result is a new descriptor; an all-zero ifreq is valid, its name ends with a zero byte, and the
    // calls read and write no more than it.
    unsafe {
        let number = sys::check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0));
        let socket = OwnedFd::from_raw_fd(match number {
            // A kernel without IPv4 has no loopback to bring up.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => return Ok(()),
            other => other.map_err(failed)?,
        });
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        sys::check(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request)).map_err(failed)?;
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        sys::check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request)).map_err(failed)?;
    }
    Ok(())
}

/// A connection leaves nothing behind: without this its port would be taken for a minute, and the next run would find it so.
pub(super) fn forget_connections(proc: &Path) {
    // Where the kernel has no such setting there is no IPv4 either.
    let _ = std::fs::write(proc.join("sys/net/ipv4/tcp_max_tw_buckets"), "0");
}

/// Bounds System V shared memory, where the limit belongs to the namespace.
pub(super) fn limit_shared_memory(proc: &Path, bytes: u64) {
    // Where it cannot be set, the bound on all memory still holds.
    let _ = std::fs::write(proc.join("sys/kernel/shmall"), (bytes / 4096).to_string());
}

/// Bounds what a fork bomb can do, where the limit belongs to the namespace and not to the machine (Linux 6.14).
pub(super) fn limit_processes(proc: &Path) {
    const PROCESSES: u32 = 1024;
    let release = std::fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) >= (Some(6), Some(14)) {
        // It is a precaution; without it the time limit still ends the run.
        let _ = std::fs::write(proc.join("sys/kernel/pid_max"), PROCESSES.to_string());
    }
}
