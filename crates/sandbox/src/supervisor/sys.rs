//! The system calls of the supervisor that std does not have.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// mount(2). An empty source, type or data is none.
pub(super) fn mount(source: &Path, target: &Path, kind: &str, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let (source, target, kind, data) = (c_string(source)?, c_string(target)?, c_string(kind)?, c_string(data)?);
    let or_null = |text: &CString| {
        if text.is_empty() {
            std::ptr::null()
        } else {
            text.as_ptr()
        }
    };
    // SAFETY: all are strings that end with a zero byte and outlive the call, or null.
    check(unsafe {
        libc::mount(
            or_null(&source),
            target.as_ptr(),
            or_null(&kind),
            flags,
            or_null(&data).cast(),
        )
    })?;
    Ok(())
}

pub(super) fn unmount(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: a string that ends with a zero byte.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })?;
    Ok(())
}

/// Makes a mount, with all below it, read-only.
pub(super) fn make_read_only(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends with a zero byte; the kernel reads as many bytes of the attributes as is said.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            &attributes,
            std::mem::size_of_val(&attributes),
        )
    })?;
    Ok(())
}

pub(super) fn pivot_root(new: &Path, old: &Path) -> io::Result<()> {
    let (new, old) = (c_string(new)?, c_string(old)?);
    // SAFETY: both are strings that end with a zero byte.
    check_long(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) })?;
    Ok(())
}

/// Opens a path as a process whose root is `root` would.
pub(super) fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = c_string(path)?;
    // SAFETY: all-zero is a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT;
    // SAFETY: the path ends with a zero byte, the kernel reads as many bytes of `how` as is said; the result is a new descriptor.
    unsafe {
        let number = check_long(libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &how,
            std::mem::size_of_val(&how),
        ))?;
        Ok(OwnedFd::from_raw_fd(number as RawFd))
    }
}

pub(super) fn open_at(folder: BorrowedFd<'_>, name: &OsStr, flags: libc::c_int, mode: u32) -> io::Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: the name ends with a zero byte; the result is a new descriptor.
    unsafe {
        let number = check(libc::openat(
            folder.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            mode,
        ))?;
        Ok(OwnedFd::from_raw_fd(number))
    }
}

pub(super) fn make_folder_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends with a zero byte.
    check(unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), 0o755) })?;
    Ok(())
}

pub(super) fn remove_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends with a zero byte.
    check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) })?;
    Ok(())
}

pub(super) fn stat(file: BorrowedFd<'_>) -> io::Result<libc::stat> {
    // SAFETY: an all-zero stat is valid, and fstat fills it.
    unsafe {
        let mut stat = std::mem::zeroed();
        check(libc::fstat(file.as_raw_fd(), &mut stat))?;
        Ok(stat)
    }
}

/// Of the name in the folder itself, not of what it links to. `None`: it is not there.
pub(super) fn stat_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<libc::stat>> {
    let name = c_string(name)?;
    // SAFETY: the name ends with a zero byte; an all-zero stat is valid, and fstatat fills it.
    unsafe {
        let mut stat = std::mem::zeroed();
        let found = libc::fstatat(folder.as_raw_fd(), name.as_ptr(), &mut stat, libc::AT_SYMLINK_NOFOLLOW);
        match check(found) {
            Ok(_) => Ok(Some(stat)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Of the path itself, not of what it links to. `None`: it is not there.
pub(super) fn stat_path(path: &Path) -> io::Result<Option<libc::stat>> {
    // SAFETY: AT_FDCWD is a valid folder for the calls that take one.
    stat_at(unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) }, path.as_os_str())
}

pub(super) fn set_modified(file: BorrowedFd<'_>, time: libc::timespec) -> io::Result<()> {
    let access = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    // SAFETY: two timespecs, as futimens reads.
    check(unsafe { libc::futimens(file.as_raw_fd(), [access, time].as_ptr()) })?;
    Ok(())
}

pub(super) fn change_owner(path: &Path, user: u32, group: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(user), Some(group))
}

/// Whether the folder has the attribute set.
pub(super) fn has_attribute(folder: BorrowedFd<'_>, name: &std::ffi::CStr) -> bool {
    // SAFETY: the name ends with a zero byte; a size of 0 asks for the length and writes nothing.
    unsafe { libc::fgetxattr(folder.as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// What is ready, of descriptors waited on for input, within the time. A negative time is forever.
pub(super) fn poll(set: &mut [libc::pollfd], milliseconds: libc::c_int) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel reads and writes as many entries as there are.
        match check(unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, milliseconds) }) {
            Ok(ready) => return Ok(ready as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The process gets SIGKILL when its parent ends.
pub(super) fn die_with_parent() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
