//! PM files: which mappings are PM, and everything the program does to them other than by stores: mapping, unmapping,
//! moving, protecting, resizing, syncing, writing and renaming.
//!
//! The functions of libc that do this are interposed. Each blocks signals for its duration, does the program's call with
//! the raw system call, and logs what came of it.

use crate::log::Begun;
use crate::selection::{self, Selection};
use crate::{code_map, log, names, pm, raw, registered, sanitizers, sys, syscalls, watch};
use crashproof_wire::{FileSlot, Session, record::*};
use libc::{c_char, c_int, c_void, off_t, size_t};
use pm::{PAGE, Region};
use std::sync::atomic::Ordering;

/// What is known of an open file.
pub(crate) struct Identity {
    pub dev: u64,
    pub ino: u64,
    pub born: u64,
    pub size: u64,
    /// Bytes that have storage.
    allocated: u64,
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
}

pub(crate) fn identity(directory: c_int, path: *const c_char, flags: c_int) -> Option<Identity> {
    // SAFETY: all-zero is a valid statx; the kernel fills it.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: `path` is NUL-terminated, `status` has room.
    unsafe {
        let arguments = [
            directory as u64,
            path as u64,
            flags as u64,
            mask as u64,
            &raw mut status as u64,
            0,
        ];
        sys::syscall(libc::SYS_statx, arguments).ok()?;
    }
    Some(Identity {
        dev: (status.stx_dev_major as u64) << 32 | status.stx_dev_minor as u64,
        ino: status.stx_ino,
        born: status.stx_btime.tv_sec as u64 * 1_000_000_000 + status.stx_btime.tv_nsec as u64,
        size: status.stx_size,
        allocated: status.stx_blocks * 512,
        mode: status.stx_mode as u32,
        links: status.stx_nlink,
    })
}

pub(crate) fn identity_of_fd(fd: c_int) -> Option<Identity> {
    identity(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

pub(crate) fn is_file(slot: &FileSlot, identity: &Identity) -> bool {
    slot.ino.load(Ordering::Relaxed) == identity.ino
        && slot.dev.load(Ordering::Relaxed) == identity.dev
        && slot.born.load(Ordering::Relaxed) == identity.born
}

/// The id of a PM file that some process has mapped before.
fn known(identity: &Identity) -> Option<u32> {
    let session = log::session()?;
    let count = (session.next_file.load(Ordering::Acquire) as usize).min(session.files.len());
    session.files[..count]
        .iter()
        .rposition(|slot| is_file(slot, identity))
        .map(|id| id as u32)
}

fn known_fd(fd: c_int) -> Option<(u32, Identity)> {
    if log::session()?.next_file.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let identity = identity_of_fd(fd)?;
    Some((known(&identity)?, identity))
}

pub(crate) fn assign(slot: &FileSlot, identity: &Identity) {
    slot.dev.store(identity.dev, Ordering::Relaxed);
    slot.ino.store(identity.ino, Ordering::Relaxed);
    slot.born.store(identity.born, Ordering::Relaxed);
}

/// Gives a file an id and announces it. `files_lock` is held; `kind` is 0, or what the file stands for (`FILE_*`).
fn add(session: &'static Session, identity: &Identity, path: &[u8], kind: u32) -> Option<u32> {
    let id = session.next_file.load(Ordering::Relaxed);
    let slot = session.files.get(id as usize)?;
    assign(slot, identity);
    slot.size.store(identity.size, Ordering::Relaxed);
    session.next_file.store(id + 1, Ordering::Release);
    let created = if identity.born > session.started {
        FILE_CREATED
    } else {
        0
    };
    log::file(id, identity.size, identity.dev, identity.ino, kind | created, path);
    Some(id)
}

/// The file's id; a new file, or one that nobody had mapped any more, is announced with its content.
fn register(session: &'static Session, fd: c_int, identity: &Identity, path: &[u8]) -> Option<u32> {
    crate::spin::acquire(&session.files_lock, sys::gettid());
    let id = known(identity).or_else(|| {
        let added = add(session, identity, path, 0)?;
        if identity.links == 0 {
            log::rename(log::stack_here(), Begun::NOT, added, b"");
        }
        Some(added)
    });
    match id {
        Some(id) if session.files[id as usize].mappings.fetch_add(1, Ordering::AcqRel) == 0 => {
            resized(id, identity.size, Begun::NOT);
            announce_content(id, fd, identity)
        }
        Some(_) => {}
        None => log::incomplete(INCOMPLETE_LIMIT, b"more PM files than the recorder can follow"),
    }
    crate::spin::release(&session.files_lock);
    id
}

/// The id of a file that nobody has mapped, and in whose place a PM file is going to be put: what it holds is needed for a
/// crash before that, and is gone after it. `None`: there is none.
fn register_replaced((directory, path): (c_int, *const c_char)) -> Option<(u32, Identity)> {
    let session = log::session()?;
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the program's NUL-terminated path.
    let fd = unsafe { sys::syscall(libc::SYS_openat, [directory as u64, path as u64, flags as u64, 0, 0, 0]) }.ok()?;
    let fd = fd as c_int;
    let mut buffer = [0; 4096];
    let regular = identity_of_fd(fd).filter(|found| found.mode & libc::S_IFMT == libc::S_IFREG);
    let id = regular.and_then(|identity| {
        let path = path_of_fd(fd, &mut buffer)?;
        crate::spin::acquire(&session.files_lock, sys::gettid());
        let id = add(session, &identity, path, 0);
        if let Some(id) = id {
            announce_content(id, fd, &identity);
        }
        crate::spin::release(&session.files_lock);
        Some((id?, identity))
    });
    // SAFETY: a descriptor of ours. The process has no locks on a file that it has not opened.
    let _ = unsafe { sys::syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
    id
}

/// The id of registered memory, which stands for a file, and whether it is new. `None`: it is not under test, or there are
/// too many files.
pub(crate) fn add_memory(session: &'static Session, dev: u64, ino: u64, born: u64, size: u64) -> Option<(u32, bool)> {
    let identity = Identity {
        dev,
        ino,
        born,
        size,
        allocated: size,
        mode: 0,
        links: 1,
    };
    crate::spin::acquire(&session.files_lock, sys::gettid());
    let found = known(&identity).map(|id| (id, false)).or_else(|| {
        let (name, len) = memory_name(session.next_file.load(Ordering::Relaxed) + 1);
        if session.options.pattern_count > 0 && !selection::matches_pattern(session, &name[..len]) {
            return None;
        }
        let added = add(session, &identity, &name[..len], FILE_REGISTERED_MEMORY);
        if added.is_none() {
            log::incomplete(INCOMPLETE_LIMIT, b"more PM files than the recorder can follow");
        }
        Some((added?, true))
    });
    crate::spin::release(&session.files_lock);
    found
}

fn memory_name(number: u32) -> ([u8; 32], usize) {
    use std::io::Write;
    let mut name = [0; 32];
    let mut rest = &mut name[..];
    let _ = write!(rest, "{}{number}", crashproof_wire::REGISTERED_MEMORY);
    let len = 32 - rest.len();
    (name, len)
}

/// Sends the pages that are not zero. Reads through the program's own descriptor: to close one of ours would drop the
/// locks (`fcntl`) that the process has on the file. The file position is used, and put back, only in large sparse files.
fn announce_content(file: u32, fd: c_int, identity: &Identity) {
    /// Up to this size, or without holes, a file is read from one end to the other.
    const SMALL: u64 = 1 << 20;
    let seek = |offset: u64, whence: c_int| {
        // SAFETY: moves the position only.
        unsafe { sys::syscall(libc::SYS_lseek, [fd as u64, offset, whence as u64, 0, 0, 0]) }
    };
    if identity.size <= SMALL || identity.allocated >= identity.size {
        announce_range(file, fd, 0, identity.size);
        return;
    }
    let Ok(position) = seek(0, libc::SEEK_CUR) else {
        announce_range(file, fd, 0, identity.size);
        return;
    };
    let mut offset = 0;
    while let Ok(data) = seek(offset, libc::SEEK_DATA) {
        offset = seek(data, libc::SEEK_HOLE).unwrap_or(identity.size);
        announce_range(file, fd, data / PAGE * PAGE, offset);
    }
    let _ = seek(position, libc::SEEK_SET);
}

fn announce_range(file: u32, fd: c_int, start: u64, end: u64) {
    let mut page = [0u8; PAGE as usize];
    for offset in (start..end).step_by(PAGE as usize) {
        // SAFETY: reads into our own buffer.
        let read = unsafe {
            sys::syscall(
                libc::SYS_pread64,
                [fd as u64, page.as_mut_ptr() as u64, PAGE, offset, 0, 0],
            )
        };
        match read {
            Ok(0) => return,
            Ok(n) if page[..n as usize].iter().any(|&b| b != 0) => log::initial(file, offset, &page[..n as usize]),
            Ok(_) => {}
            Err(_) => {
                let text = b"the initial content of a PM file could not be read";
                log::incomplete(INCOMPLETE_UNSUPPORTED, text);
                return;
            }
        }
    }
}

/// The number of a descriptor after a prefix: `/proc/self/fd/N`, NUL-terminated.
pub(crate) fn proc_fd_path(prefix: &[u8], fd: c_int, name: &mut [u8; 36]) {
    name[..prefix.len()].copy_from_slice(prefix);
    let mut digits = [0u8; 10];
    let mut n = 0;
    let mut rest = fd as u32;
    while n == 0 || rest > 0 {
        digits[n] = b'0' + (rest % 10) as u8;
        rest /= 10;
        n += 1;
    }
    for (target, &digit) in name[prefix.len()..].iter_mut().zip(digits[..n].iter().rev()) {
        *target = digit;
    }
}

pub(crate) fn path_of_fd(fd: c_int, buffer: &mut [u8; 4096]) -> Option<&[u8]> {
    let mut name = [0u8; 36];
    proc_fd_path(b"/proc/self/fd/", fd, &mut name);
    // SAFETY: NUL-terminated path, and room for the result less its final NUL.
    let n = unsafe {
        sys::syscall(
            libc::SYS_readlink,
            [name.as_ptr() as u64, buffer.as_mut_ptr() as u64, 4095, 0, 0, 0],
        )
    };
    let path = &buffer[..n.ok()? as usize];
    Some(path.strip_suffix(DELETED).unwrap_or(path))
}

/// What the kernel puts behind the path of a descriptor whose name is gone.
const DELETED: &[u8] = b" (deleted)";

/// The path of a file that is about to be mapped, and whether the file has that name. The name by which it was opened may be gone
/// while it has another one: it was made without a name (`O_TMPFILE`) or under a temporary one, and linked.
fn path_of_file<'a>(fd: c_int, identity: &Identity, buffer: &'a mut [u8; 4096]) -> Option<(&'a [u8], bool)> {
    let mut len = path_of_fd(fd, buffer)?.len();
    let mut is_name = true;
    if identity.links > 0 && buffer[len..].starts_with(DELETED) {
        let other = names::of(identity, buffer).or_else(|| other_name(identity, len, buffer));
        is_name = other.is_some();
        len = other.unwrap_or(len);
    }
    Some((&buffer[..len], is_name))
}

/// Puts a name that the file has in the place of the last part of a path; the length of the path then. `None`: no name in that
/// directory is its.
fn other_name(identity: &Identity, len: usize, path: &mut [u8; 4096]) -> Option<usize> {
    let start = path[..len].iter().rposition(|&b| b == b'/')? + 1;
    let mut directory = [0u8; 4096];
    directory[..start].copy_from_slice(&path[..start]);
    let directory = std::ffi::CStr::from_bytes_until_nul(&directory).ok()?;
    let mut candidate = *path;
    let mut found = None;
    sys::for_each_entry(directory, |_, inode, name| {
        let end = start + name.len();
        if found.is_some() || inode != identity.ino || end >= candidate.len() {
            return;
        }
        candidate[start..end].copy_from_slice(name);
        candidate[end..].fill(0);
        // The number alone is not enough: something may be mounted there.
        let there = self::identity(libc::AT_FDCWD, candidate.as_ptr().cast(), libc::AT_SYMLINK_NOFOLLOW);
        if there.is_some_and(|there| (there.dev, there.ino) == (identity.dev, identity.ino)) {
            *path = candidate;
            found = Some(end);
        }
    });
    found
}

/// Whether the file at this path, which the process has open, begins so. Read through the process's own descriptor.
pub(crate) fn starts_with(path: &[u8], content: &[u8; 16]) -> bool {
    let mut found = false;
    sys::for_each_descriptor(|fd| {
        let mut buffer = [0u8; 4096];
        if found || path_of_fd(fd, &mut buffer) != Some(path) {
            return;
        }
        let mut start = [0u8; 16];
        // SAFETY: reads into our own buffer.
        let read = unsafe { sys::syscall(libc::SYS_pread64, [fd as u64, start.as_mut_ptr() as u64, 16, 0, 0, 0]) };
        found = read == Ok(16) && start == *content;
    });
    found
}

pub(crate) fn is_shared(flags: c_int) -> bool {
    matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
}

/// The PM file behind a mapping that the program asks for, if it is one.
fn pm_file(fd: c_int, protection: c_int, flags: c_int) -> Option<u32> {
    let session = log::session().or_else(log::unrecorded)?;
    if flags & libc::MAP_ANONYMOUS != 0 || fd < 0 {
        return None;
    }
    // SAFETY: F_GETFL reads only.
    let mode = unsafe { sys::syscall(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0]) }.ok()?;
    if !is_shared(flags) {
        let data = libc::PROT_WRITE | libc::PROT_EXEC;
        if mode as c_int & libc::O_ACCMODE == libc::O_RDWR && protection & data == libc::PROT_WRITE {
            selection::unusable(LEFT_OUT_PRIVATE, fd);
        }
        return None;
    }
    if mode as c_int & libc::O_ACCMODE != libc::O_RDWR {
        selection::unusable(LEFT_OUT_READ_ONLY, fd);
        return None;
    }
    let identity = identity_of_fd(fd)?;
    let mut buffer = [0u8; 4096];
    let (path, is_name) = path_of_file(fd, &identity, &mut buffer)?;
    let device_dax = identity.mode & libc::S_IFMT == libc::S_IFCHR && path.starts_with(b"/dev/dax");
    if identity.mode & libc::S_IFMT != libc::S_IFREG && !device_dax {
        return None;
    }
    if let Selection::LeftOut(reason) = selection::of_file(session, fd, &identity, path) {
        log::left_out(reason, 0, path);
        return None;
    }
    if log::unrecorded().is_some() {
        sanitizers::mapped(path);
        return None;
    }
    if pm::is_full() {
        log::incomplete(
            INCOMPLETE_LIMIT,
            b"more PM mappings at once than the recorder can follow",
        );
        return None;
    }
    let file = register(session, fd, &identity, path)?;
    if !is_name {
        log::incomplete(
            INCOMPLETE_UNSUPPORTED,
            b"a PM file no longer has the name by which it was opened, and has another one in a directory that is not known",
        );
    }
    Some(file)
}

pub(crate) fn page_up(len: u64) -> u64 {
    len.next_multiple_of(PAGE)
}

/// Ends what lies in [start, end): verified, logged as unmapped, alias gone. The view itself is the caller's to unmap.
pub(crate) fn forget(start: u64, end: u64) {
    if !pm::contains(start, end - start) && !registered::contains(start, end - start) {
        return;
    }
    let stack = log::stack_here();
    registered::forget(stack, start, end);
    pm::remove(start, end, |piece| {
        pm::verify(piece);
        log::unmap(stack, piece.file, piece.offset, piece.len());
        if let Some(session) = log::session() {
            session.files[piece.file as usize]
                .mappings
                .fetch_sub(1, Ordering::AcqRel);
        }
        let alias = piece.start.wrapping_add_signed(piece.delta);
        // SAFETY: the alias belongs to this piece alone.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [alias, piece.len(), 0, 0, 0, 0]) };
    });
}

/// Maps `len` bytes of a PM file: a read-only view where the program wants it, and a writable alias.
fn map_pm(
    file: u32,
    address: u64,
    len: u64,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> Result<u64, i32> {
    crate::signals::reclaim();
    let view_protection = view_protection(protection);
    // SAFETY: what the program asked for, less the write permission.
    let place = |at: u64, flags: c_int| unsafe { sys::mmap(at, len, view_protection, flags, fd, offset) };
    let view = if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
        if flags & libc::MAP_FIXED_NOREPLACE == 0 {
            forget(address, address + page_up(len));
        }
        place(address, flags)?
    } else {
        let hinted = address != 0 && address.is_multiple_of(PAGE) && reserve(address, len).is_ok();
        let at = if hinted { address } else { reserve_view(len)? };
        place(at, flags | libc::MAP_FIXED).inspect_err(|_| unmap(at, len))?
    };
    let (low, high) = pm::view_range();
    if view < low || view >= high {
        syscalls::add_view_range(view, view + page_up(len));
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let alias = reserve_alias(len).and_then(|at| {
        // SAFETY: over the reservation that was just made.
        let alias = unsafe { sys::mmap(at, len, writable, libc::MAP_SHARED | libc::MAP_FIXED, fd, offset) };
        alias.inspect_err(|_| unmap(at, len))
    });
    let alias = alias.inspect_err(|_| unmap(view, len))?;
    read_no_more_than_asked(alias, len);
    log::map(log::stack_here(), file, view, offset, page_up(len), protection);
    pm::insert(Region {
        start: view,
        end: view + page_up(len),
        delta: alias.wrapping_sub(view) as i64,
        file,
        offset,
        protection,
        private: false,
        registered: false,
    });
    Ok(view)
}

/// Comparing an alias with the log must not read a sparse file's holes into memory.
fn read_no_more_than_asked(alias: u64, len: u64) {
    // SAFETY: advice about our own mapping.
    let _ = unsafe { sys::syscall(libc::SYS_madvise, [alias, len, libc::MADV_RANDOM as u64, 0, 0, 0]) };
}

/// Takes a free range of addresses, to be mapped over; 0: wherever the kernel likes. (`MAP_FIXED_NOREPLACE` itself does not go with `MAP_SYNC`.)
pub(crate) fn reserve(address: u64, len: u64) -> Result<u64, i32> {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: replaces nothing.
    unsafe { sys::mmap(address, len, libc::PROT_NONE, flags, -1, 0) }
}

/// Addresses for a view: of the range of views, or of the kernel's choice where the program has that range itself (a
/// language's run-time library may reserve half of the address space).
pub(crate) fn reserve_view(len: u64) -> Result<u64, i32> {
    reserve_preferring(pm::new_view(len), len)
}

fn reserve_alias(len: u64) -> Result<u64, i32> {
    reserve_preferring(pm::new_alias(len), len)
}

fn reserve_preferring(address: Option<u64>, len: u64) -> Result<u64, i32> {
    let preferred = address.and_then(|address| reserve(address, len).ok());
    preferred.map_or_else(|| reserve(0, len), Ok)
}

/// Ends a mapping that was just made here.
fn unmap(address: u64, len: u64) {
    // SAFETY: nobody else knows of it.
    let _ = unsafe { sys::syscall(libc::SYS_munmap, [address, len, 0, 0, 0, 0]) };
}

/// Readable where the program may read or write, never writable.
pub(crate) fn view_protection(protection: c_int) -> c_int {
    if protection & libc::PROT_WRITE != 0 {
        protection & !libc::PROT_WRITE | libc::PROT_READ
    } else {
        protection
    }
}

/// Whether the kernel will not refuse the call outright: what it refuses leaves all mappings as they are.
fn is_acceptable(address: u64, len: u64, flags: c_int, offset: u64) -> bool {
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    len > 0
        && offset.is_multiple_of(PAGE)
        && (!fixed || (address.is_multiple_of(PAGE) && address.checked_add(len).is_some()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if let Some(natively) = sanitizers::natively() {
        sys::without_signals(|| pm_file(fd, protection, flags));
        // SAFETY: the program's own call.
        return unsafe { natively.mmap.get()(address, len, protection, flags, fd, offset) };
    }
    let result = sys::without_signals(|| {
        let acceptable = is_acceptable(address as u64, len as u64, flags, offset as u64);
        if let (Some(recovery), true) = (watch::recovery(), acceptable) {
            let (address, len, offset) = (address as u64, len as u64, offset as u64);
            return watch::maps::mmap(recovery, address, len, protection, flags, fd, offset);
        }
        if let Some(file) = acceptable.then(|| pm_file(fd, protection, flags)).flatten() {
            let mapped = map_pm(file, address as u64, len as u64, protection, flags, fd, offset as u64);
            if let (Err(_), Some(session)) = (&mapped, log::session()) {
                session.files[file as usize].mappings.fetch_sub(1, Ordering::AcqRel);
            }
            return mapped;
        }
        let anonymous = flags & libc::MAP_ANONYMOUS != 0;
        if flags & libc::MAP_FIXED != 0 && acceptable && (anonymous || identity_of_fd(fd).is_some()) {
            forget(address as u64, address as u64 + page_up(len as u64));
        }
        // SAFETY: the program's own call.
        let mapped = unsafe { sys::mmap(address as u64, len as u64, protection, flags, fd, offset as u64) }?;
        if protection & libc::PROT_EXEC != 0 {
            code_map::sweep_range(mapped, mapped + page_up(len as u64));
        }
        if !anonymous && is_shared(flags) {
            note_reader(fd, mapped, len as u64, offset as u64, protection);
        }
        Ok(mapped)
    });
    sys::to_libc(result) as *mut c_void
}

/// A mapping of a PM file that cannot be stored through. It can still be flushed through: it is its own alias.
fn note_reader(fd: c_int, address: u64, len: u64, offset: u64, protection: c_int) {
    let (Some(session), Some((file, _)), false) = (log::session(), known_fd(fd), pm::is_full()) else {
        return;
    };
    session.files[file as usize].mappings.fetch_add(1, Ordering::AcqRel);
    log::map(log::stack_here(), file, address, offset, page_up(len), protection);
    pm::insert(Region {
        start: address,
        end: address + page_up(len),
        delta: 0,
        file,
        offset,
        protection: protection & !libc::PROT_WRITE,
        private: false,
        registered: false,
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(a: *mut c_void, l: size_t, p: c_int, f: c_int, fd: c_int, o: off_t) -> *mut c_void {
    // SAFETY: the same function on a 64-bit system.
    unsafe { mmap(a, l, p, f, fd, o) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    if let Some(natively) = sanitizers::natively() {
        // SAFETY: the program's own call.
        return unsafe { natively.munmap.get()(address, len) };
    }
    let result = sys::without_signals(|| {
        if is_acceptable(address as u64, len as u64, libc::MAP_FIXED, 0) {
            if watch::active() {
                return watch::maps::munmap(address as u64, len as u64);
            }
            forget(address as u64, address as u64 + page_up(len as u64));
        }
        // SAFETY: the program's own call.
        unsafe { sys::syscall(libc::SYS_munmap, [address as u64, len as u64, 0, 0, 0, 0]) }
    });
    sys::to_libc(result) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    if let Some(natively) = sanitizers::natively() {
        // SAFETY: the program's own call.
        return unsafe { natively.mprotect.get()(address, len, protection) };
    }
    let (start, end) = (address as u64, address as u64 + page_up(len as u64));
    let result = sys::without_signals(|| {
        if let Some(recovery) = watch::recovery() {
            return watch::maps::mprotect(recovery, start, len as u64, protection);
        }
        // SAFETY: the program's own call, less the write permission of PM views.
        let protect = |from: u64, to: u64, protection: c_int| unsafe {
            sys::syscall(libc::SYS_mprotect, [from, to - from, protection as u64, 0, 0, 0])
        };
        let mut from = start;
        while from < end {
            match registered::find(from).or_else(|| pm::find(from)) {
                Some(region) => {
                    let to = region.end.min(end);
                    protect(from, to, view_protection(protection))?;
                    pm::set_protection(from, to, protection);
                    registered::set_protection(from, to, protection);
                    from = to;
                }
                None => {
                    let mut to = end.min(registered::boundary(from));
                    pm::for_each(|r| {
                        if r.start > from && r.start < to {
                            to = r.start
                        }
                    });
                    protect(from, to, protection)?;
                    if protection & libc::PROT_EXEC != 0 {
                        code_map::sweep_range(from, to);
                    }
                    from = to;
                }
            }
        }
        Ok(0)
    });
    sys::to_libc(result) as c_int
}

/// Protection keys are set together with the protection: in a recovery program such PM is not watched.
#[unsafe(no_mangle)]
unsafe extern "C" fn pkey_mprotect(address: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int {
    let result = sys::without_signals(|| {
        if watch::active() && pm::contains(address as u64, len as u64) {
            watch::unwatched(crashproof_wire::recovery::UNWATCHED_OTHER);
            watch::maps::open_all();
        }
        let arguments = [address as u64, len as u64, protection as u64, key as u64, 0, 0];
        // SAFETY: the program's own call.
        unsafe { sys::syscall(libc::SYS_pkey_mprotect, arguments) }
    });
    sys::to_libc(result) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let (start, old_len, new_len) = (old as u64, page_up(old_len as u64), page_up(new_len as u64));
    let result = sys::without_signals(|| {
        if let Some(recovery) = watch::recovery() {
            return watch::maps::mremap(recovery, start, old_len, new_len, flags, new as u64);
        }
        if registered::contains(start, old_len.max(1)) {
            return registered::remap(start, old_len, new_len, flags, new as u64);
        }
        // SAFETY: the program's own call, or one on the alias that belongs to its region.
        let remap = |from: u64, flags: c_int, to: u64| unsafe {
            sys::syscall(libc::SYS_mremap, [from, old_len, new_len, flags as u64, to, 0])
        };
        let region = pm::find(start).filter(|r| r.start <= start && start + old_len <= r.end && old_len > 0);
        if flags & libc::MREMAP_FIXED != 0 {
            forget(new as u64, new as u64 + new_len);
        }
        let Some(region) = region else {
            if pm::contains(start, old_len.max(1)) {
                log::incomplete(
                    INCOMPLETE_UNSUPPORTED,
                    b"mremap across several PM mappings, or of length 0, is not followed",
                );
            }
            return remap(start, flags, new as u64);
        };
        let moved = if flags & libc::MREMAP_FIXED == 0 && flags & libc::MREMAP_MAYMOVE != 0 && new_len > old_len {
            // Kept in the range of views, wherever the kernel would have moved it.
            remap(start, 0, 0).or_else(|_| {
                let fresh = reserve_view(new_len)?;
                remap(start, flags | libc::MREMAP_FIXED, fresh).inspect_err(|_| unmap(fresh, new_len))
            })?
        } else {
            remap(start, flags, new as u64)?
        };
        let alias = start.wrapping_add_signed(region.delta);
        let fresh = reserve_alias(new_len)?;
        let new_alias = remap(alias, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, fresh)?;
        read_no_more_than_asked(new_alias, new_len);
        let stack = log::stack_here();
        let offset = region.offset + (start - region.start);
        pm::remove(start, start + old_len, |_| {});
        let protection = libc::PROT_READ | region.protection & libc::PROT_WRITE;
        // In this order, so that what stays mapped is never seen unmapped: it need not be durable by now.
        log::map(stack, region.file, moved, offset, new_len, protection);
        log::unmap(stack, region.file, offset, old_len);
        let delta = new_alias.wrapping_sub(moved) as i64;
        pm::insert(Region {
            start: moved,
            end: moved + new_len,
            delta,
            offset,
            ..region
        });
        let (low, high) = pm::view_range();
        if moved < low || moved >= high {
            syscalls::add_view_range(moved, moved + new_len);
        }
        Ok(moved)
    });
    sys::to_libc(result) as *mut c_void
}

#[unsafe(no_mangle)]
unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let result = sys::without_signals(|| {
        let waits = flags & libc::MS_SYNC != 0 && !watch::active();
        let begun = match waits && pm::find(address as u64).is_some() {
            true => log::begin(),
            false => Begun::NOT,
        };
        // SAFETY: the program's own call.
        let result = unsafe { sys::syscall(libc::SYS_msync, [address as u64, len as u64, flags as u64, 0, 0, 0]) }?;
        let (mut from, end) = (address as u64, address as u64 + len as u64);
        while waits && from < end {
            let Some(region) = pm::find(from) else { break };
            let to = region.end.min(page_up(end));
            log::sync(
                log::stack_here(),
                begun,
                region.file,
                region.place(from).offset,
                to - from,
            );
            from = to;
        }
        Ok(result)
    });
    sys::to_libc(result) as c_int
}

/// An operation begins on what may be a PM file.
pub(crate) fn begin_on(fd: c_int) -> Begun {
    match known_fd(fd) {
        Some(_) => log::begin(),
        None => Begun::NOT,
    }
}

fn sync_file(number: i64, fd: c_int) -> c_int {
    let result = sys::without_signals(|| {
        let begun = begin_on(fd);
        // SAFETY: the program's own call.
        let result = unsafe { sys::syscall(number, [fd as u64, 0, 0, 0, 0, 0]) }?;
        if let Some((file, identity)) = known_fd(fd) {
            log::sync(log::stack_here(), begun, file, 0, page_up(identity.size));
        }
        Ok(result)
    });
    sys::to_libc(result) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync_file(libc::SYS_fsync, fd)
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync_file(libc::SYS_fdatasync, fd)
}

/// Logs the size that a file has now, if the log has another.
fn resized(file: u32, size: u64, begun: Begun) {
    let Some(session) = log::session() else { return };
    if session.files[file as usize].size.swap(size, Ordering::AcqRel) != size {
        log::resize(log::stack_here(), begun, file, size);
    }
}

/// Runs a call that may change the file's size, and logs the new size if it did.
fn resizing(identify: impl Fn() -> Option<Identity>, call: impl FnOnce() -> Result<u64, i32>) -> Result<u64, i32> {
    sys::without_signals(|| {
        let before = identify().and_then(|i| Some((known(&i)?, i.size)));
        let mut begun = Begun::NOT;
        if let Some((file, size)) = before {
            resized(file, size, Begun::NOT);
            begun = log::begin();
        }
        let result = call()?;
        if let (Some((file, _)), Some(after)) = (before, identify()) {
            resized(file, after.size, begun);
        }
        Ok(result)
    })
}

/// A file was opened with `O_TRUNC`, which `O_PATH` makes void.
pub(crate) fn truncated(fd: c_int, begun: Begun) {
    sys::without_signals(|| {
        if let Some((file, identity)) = known_fd(fd) {
            resized(file, identity.size, begun);
        }
    });
}

/// An `open` that the program makes by number, or by an instruction of its own, and that truncates a PM file; `None`: it does not.
///
/// # Safety
/// The program's call, with its arguments.
pub(crate) unsafe fn truncating(number: i64, arguments: [u64; 6]) -> Option<Result<u64, i32>> {
    let [a, b, c, ..] = arguments;
    let (directory, path, flags) = match number {
        libc::SYS_open => (libc::AT_FDCWD, a, b as c_int),
        libc::SYS_creat => (libc::AT_FDCWD, a, libc::O_TRUNC),
        libc::SYS_openat => (a as c_int, b, c as c_int),
        libc::SYS_openat2 => (a as c_int, b, raw::read::<u64>(c).ok()?? as c_int),
        _ => return None,
    };
    if flags & libc::O_TRUNC == 0 || !sys::read_memory(path, &mut [0]) {
        return None;
    }
    known(&identity(directory, path as *const c_char, 0)?)?;
    let begun = sys::without_signals(log::begin);
    // SAFETY: the caller's promise. A PM file does not keep it waiting.
    let result = unsafe { sys::syscall(number, arguments) };
    if let Ok(fd) = result {
        truncated(fd as c_int, begun);
    }
    Some(result)
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::syscall(libc::SYS_ftruncate, [fd as u64, size as u64, 0, 0, 0, 0]) };
    sys::to_libc(resizing(|| identity_of_fd(fd), call)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, size: off_t) -> c_int {
    ftruncate(fd, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the program's own call.
    let call = || unsafe { sys::syscall(libc::SYS_truncate, [path as u64, size as u64, 0, 0, 0, 0]) };
    sys::to_libc(resizing(|| identity(libc::AT_FDCWD, path, 0), call)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { truncate(path, size) }
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> Result<u64, i32> {
    // SAFETY: the program's own call.
    let call = || unsafe {
        sys::syscall(
            libc::SYS_fallocate,
            [fd as u64, mode as u64, offset as u64, len as u64, 0, 0],
        )
    };
    let zeroing = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    let begun = match zeroing {
        true => sys::without_signals(|| begin_on(fd)),
        false => Begun::NOT,
    };
    let result = resizing(|| identity_of_fd(fd), call)?;
    let moving = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
    if mode & moving != 0 && known_fd(fd).is_some() {
        sys::without_signals(|| {
            log::incomplete(
                INCOMPLETE_UNSUPPORTED,
                b"fallocate collapsed or inserted a range of a PM file: what it moved is not recorded",
            )
        });
    }
    if zeroing {
        sys::without_signals(|| {
            let Some((file, identity)) = known_fd(fd) else { return };
            let end = (offset as u64 + len as u64).min(identity.size);
            let (stack, zeros) = (log::stack_here(), [0u8; PAGE as usize]);
            for at in (offset as u64..end).step_by(PAGE as usize) {
                log::file_write(stack, begun, file, at, &zeros[..(end - at).min(PAGE) as usize]);
            }
        });
    }
    Ok(result)
}

#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    sys::to_libc(allocate(fd, mode, offset, len)) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    fallocate(fd, mode, offset, len)
}

/// Returns the error instead of setting `errno`. Where the file system cannot allocate, libc's emulation by writing runs.
#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
    match allocate(fd, 0, offset, len) {
        Ok(_) => 0,
        Err(libc::EOPNOTSUPP) => {
            let real = crate::real::posix_fallocate();
            let call = || match real(fd, offset, len) {
                0 => Ok(0),
                errno => Err(errno),
            };
            resizing(|| identity_of_fd(fd), call).err().unwrap_or(0)
        }
        Err(errno) => errno,
    }
}

#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
    posix_fallocate(fd, offset, len)
}

/// After a write(2) or one of its kin on a regular file: logs what went into a PM file. `offset`: `None` for the file position.
pub(crate) fn written(fd: c_int, data: &[u8], offset: Option<u64>, begun: Begun) {
    let Some((file, identity)) = known_fd(fd) else { return };
    let end = match offset {
        Some(offset) => offset + data.len() as u64,
        // SAFETY: lseek by 0 reads the position.
        None => match unsafe { sys::syscall(libc::SYS_lseek, [fd as u64, 0, libc::SEEK_CUR as u64, 0, 0, 0]) } {
            Ok(position) => position,
            Err(_) => return,
        },
    };
    let stack = log::stack_here();
    if end == identity.size {
        resized(file, identity.size, begun);
    }
    log::file_write(stack, begun, file, end - data.len() as u64, data);
}

/// The path of a file as a mapping of it would have it: absolute.
fn resolved(directory: c_int, path: *const c_char, buffer: &mut [u8; 4096]) -> Option<&[u8]> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the program's NUL-terminated path.
    let fd = unsafe { sys::syscall(libc::SYS_openat, [directory as u64, path as u64, flags as u64, 0, 0, 0]) };
    let fd = fd.ok()? as c_int;
    let path = path_of_fd(fd, buffer);
    // SAFETY: opened here, and nobody else knows it.
    let _ = unsafe { sys::syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
    path
}

/// A rename of a PM file, or of another file over it (which unlinks it).
fn renaming(
    paths: [(c_int, *const c_char); 2],
    exchange: bool,
    call: impl FnOnce() -> Result<u64, i32>,
) -> Result<u64, i32> {
    sys::without_signals(|| {
        let [moved, mut replaced] =
            paths.map(|(d, p)| identity(d, p, libc::AT_SYMLINK_NOFOLLOW).and_then(|i| known(&i).map(|id| (id, i))));
        if moved.is_some() && replaced.is_none() && !exchange {
            replaced = register_replaced(paths[1]);
        }
        let at = |(directory, path)| identity(directory, path, libc::AT_SYMLINK_NOFOLLOW);
        let named = names::any().then(|| paths.map(at));
        let begun = match moved.is_some() || replaced.is_some() {
            true => log::begin(),
            false => Begun::NOT,
        };
        let result = call()?;
        for (file, (directory, path)) in named.into_iter().flatten().zip([paths[1], paths[0]]) {
            let mut buffer = [0; 4096];
            if let Some(file) = file
                && let Some(path) = resolved(directory, path, &mut buffer)
            {
                names::moved(&file, path);
            }
        }
        let stack = if moved.is_some() || replaced.is_some() {
            log::stack_here()
        } else {
            0
        };
        let renamed = |file: u32, (directory, path): (c_int, *const c_char)| {
            let mut buffer = [0; 4096];
            // SAFETY: the program's NUL-terminated path.
            let given = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
            log::rename(
                stack,
                begun,
                file,
                resolved(directory, path, &mut buffer).unwrap_or(given),
            );
        };
        match (moved, replaced) {
            // Two names of one file: nothing happens.
            (Some((moved, _)), Some((replaced, _))) if moved == replaced => {}
            (Some(_), Some(_)) if exchange => log::incomplete(
                INCOMPLETE_UNSUPPORTED,
                b"two PM files exchanged their names (RENAME_EXCHANGE): both keep the old ones in the trace",
            ),
            (None, Some((replaced, _))) if exchange => renamed(replaced, paths[0]),
            (moved, replaced) => {
                // The new name first. That it replaces a file follows: there is no moment without either.
                if let Some((file, _)) = moved {
                    renamed(file, paths[1]);
                }
                if let Some((file, identity)) = replaced {
                    unlinked((stack, begun), file, &identity, paths[1]);
                }
            }
        }
        Ok(result)
    })
}

/// A PM file has lost a name, its only one or one of several.
fn unlinked((stack, begun): (u64, Begun), file: u32, before: &Identity, (directory, path): (c_int, *const c_char)) {
    if before.links <= 1 {
        log::rename(stack, begun, file, b"");
        return;
    }
    let (mut buffer, mut left) = ([0; 4096], [0; 4096]);
    // SAFETY: the program's NUL-terminated path.
    let given = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let name_left = selection::absolute(directory, given, &mut buffer).and_then(|path| {
        left[..path.len()].copy_from_slice(path);
        let len = other_name(before, path.len(), &mut left)?;
        left[len..].fill(0);
        Some(left.as_ptr().cast())
    });
    match name_left.and_then(|name| resolved(libc::AT_FDCWD, name, &mut buffer)) {
        Some(name) => log::rename(stack, begun, file, name),
        None => log::incomplete(
            INCOMPLETE_UNSUPPORTED,
            b"a PM file lost one of its names (hard links) and has another one in a directory that is not known",
        ),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the program's own call.
    unsafe { renameat2(libc::AT_FDCWD, old, libc::AT_FDCWD, new, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
    // SAFETY: the program's own call.
    unsafe { renameat2(from, old, to, new, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: u32) -> c_int {
    // SAFETY: the program's own call.
    let call = || unsafe {
        sys::syscall(
            libc::SYS_renameat2,
            [from as u64, old as u64, to as u64, new as u64, flags as u64, 0],
        )
    };
    let exchange = flags & libc::RENAME_EXCHANGE != 0;
    sys::to_libc(renaming([(from, old), (to, new)], exchange, call)) as c_int
}

/// A file that was made without a name gets one; another name of a file that has one is not followed.
#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int) -> c_int {
    let linking = sys::without_signals(|| {
        let follow = match flags & libc::AT_SYMLINK_FOLLOW {
            0 => libc::AT_SYMLINK_NOFOLLOW,
            _ => 0,
        };
        let unnamed = identity(from, old, follow | flags & libc::AT_EMPTY_PATH).filter(|found| found.links == 0);
        let begun = match unnamed.as_ref().and_then(known) {
            Some(_) => log::begin(),
            None => Begun::NOT,
        };
        // SAFETY: the program's own call.
        let result = unsafe {
            sys::syscall(
                libc::SYS_linkat,
                [from as u64, old as u64, to as u64, new as u64, flags as u64, 0],
            )
        }?;
        let mut buffer = [0; 4096];
        if let Some(identity) = unnamed
            && let Some(path) = resolved(to, new, &mut buffer)
        {
            match known(&identity) {
                Some(file) => log::rename(log::stack_here(), begun, file, path),
                None => names::given(&identity, path),
            }
        }
        Ok(result)
    });
    sys::to_libc(linking) as c_int
}

fn unlinking(directory: c_int, path: *const c_char, flags: c_int) -> Result<u64, i32> {
    sys::without_signals(|| {
        let file = identity(directory, path, libc::AT_SYMLINK_NOFOLLOW).and_then(|i| known(&i).map(|id| (id, i)));
        let begun = match file {
            Some(_) => log::begin(),
            None => Begun::NOT,
        };
        // SAFETY: the program's own call.
        let result = unsafe {
            sys::syscall(
                libc::SYS_unlinkat,
                [directory as u64, path as u64, flags as u64, 0, 0, 0],
            )
        }?;
        if let Some((file, identity)) = file {
            unlinked((log::stack_here(), begun), file, &identity, (directory, path));
        }
        Ok(result)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    if let Some(natively) = sanitizers::natively() {
        // SAFETY: the program's own call.
        return unsafe { natively.unlink.get()(path) };
    }
    sys::to_libc(unlinking(libc::AT_FDCWD, path, 0)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    sys::to_libc(unlinking(directory, path, flags)) as c_int
}

/// libc's own calls its `unlink`, not ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    let removed = match unlinking(libc::AT_FDCWD, path, 0) {
        Err(libc::EISDIR) => unlinking(libc::AT_FDCWD, path, libc::AT_REMOVEDIR),
        other => other,
    };
    sys::to_libc(removed) as c_int
}

/// The call that the program makes by its number, if it is one of those above.
///
/// # Safety
/// As for the system call itself.
pub(crate) unsafe fn by_number(number: i64, [a, b, c, d, e, f]: [u64; 6]) -> Option<i64> {
    // SAFETY: the caller's promise.
    Some(unsafe {
        match number {
            libc::SYS_mmap => mmap(
                a as *mut c_void,
                b as size_t,
                c as c_int,
                d as c_int,
                e as c_int,
                f as off_t,
            ) as i64,
            libc::SYS_munmap => munmap(a as *mut c_void, b as size_t) as i64,
            libc::SYS_mprotect => mprotect(a as *mut c_void, b as size_t, c as c_int) as i64,
            libc::SYS_mremap => mremap(a as *mut c_void, b as size_t, c as size_t, d as c_int, e as *mut c_void) as i64,
            libc::SYS_msync => msync(a as *mut c_void, b as size_t, c as c_int) as i64,
            libc::SYS_fsync => fsync(a as c_int) as i64,
            libc::SYS_fdatasync => fdatasync(a as c_int) as i64,
            libc::SYS_ftruncate => ftruncate(a as c_int, b as off_t) as i64,
            libc::SYS_truncate => truncate(a as *const c_char, b as off_t) as i64,
            libc::SYS_rename => rename(a as *const c_char, b as *const c_char) as i64,
            libc::SYS_renameat => renameat(a as c_int, b as *const c_char, c as c_int, d as *const c_char) as i64,
            libc::SYS_renameat2 => {
                renameat2(a as c_int, b as *const c_char, c as c_int, d as *const c_char, e as u32) as i64
            }
            libc::SYS_linkat => linkat(
                a as c_int,
                b as *const c_char,
                c as c_int,
                d as *const c_char,
                e as c_int,
            ) as i64,
            libc::SYS_unlink => unlink(a as *const c_char) as i64,
            libc::SYS_unlinkat => unlinkat(a as c_int, b as *const c_char, c as c_int) as i64,
            libc::SYS_fallocate => fallocate(a as c_int, b as c_int, c as off_t, d as off_t) as i64,
            _ => return None,
        }
    })
}

/// The process ends: what it has mapped is compared with the log a last time.
pub(crate) fn verify_all() {
    pm::for_each(pm::verify);
    registered::confirm_all();
    if let Some(session) = log::session() {
        sys::for_each_mapping(|mapping| {
            if mapping.is_shared_and_writable()
                && !pm::is_alias(mapping.start)
                && !(mapping.start..mapping.end).contains(&(&raw const *session as u64))
            {
                unseen(session, mapping.path);
            }
        });
    }
}

/// A shared, writable mapping that was made behind our back, by a `syscall` instruction of the program's own.
fn unseen(session: &Session, path: &[u8]) {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let device = path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/") && !path.starts_with(b"/dev/dax");
    // Semaphores are mapped by libc, segments of System V have no file.
    let other = [&b"/dev/shm/sem."[..], b"/SYSV"]
        .iter()
        .any(|prefix| path.starts_with(prefix));
    if path.first() != Some(&b'/')
        || path.len() >= 4096
        || device
        || other
        || log::is_left_out(path)
        || !selection::of_path(session, path)
    {
        return;
    }
    let parts = [
        path,
        b": mapped by a system call that does not go through libc: stores to it were not seen",
    ];
    let mut text = [0u8; 4096 + 100];
    let mut len = 0;
    for part in parts {
        text[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    log::incomplete(INCOMPLETE_UNSUPPORTED, &text[..len]);
}

/// A forked child has its parent's mappings.
pub(crate) fn after_fork() {
    let Some(session) = log::session() else { return };
    pm::for_each(|region| {
        if !(region.registered && region.private) {
            session.files[region.file as usize]
                .mappings
                .fetch_add(1, Ordering::AcqRel);
        }
    });
    registered::announce_in_child();
}
