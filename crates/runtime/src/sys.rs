//! Raw system calls: usable in signal handlers, before libc is ready, and never trapped by our own filter's libc rule.

pub(crate) use crashproof_code::syscall;

/// # Safety
/// As for mmap.
pub(crate) unsafe fn mmap(
    address: u64,
    len: u64,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: u64,
) -> Result<u64, i32> {
    // SAFETY: the caller's promise.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [address, len, protection as u64, flags as u64, fd as i64 as u64, offset],
        )
    }
}

/// Fresh zeroed private memory that is never given back.
pub(crate) fn map_anonymous(len: u64) -> Option<*mut u8> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let address = unsafe {
        mmap(
            0,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    address.ok().map(|a| a as *mut u8)
}

/// Maps the first `len` bytes of a file, shared and writable, for good.
pub(crate) fn map_file(path: &[u8], len: u64) -> Option<*mut u8> {
    let mut name = [0u8; 4096];
    if path.len() >= name.len() {
        return None;
    }
    name[..path.len()].copy_from_slice(path);
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
    // SAFETY: `name` is NUL-terminated; a new mapping at an address of the kernel's choice.
    unsafe {
        let fd = syscall(libc::SYS_open, [name.as_ptr() as u64, flags, 0, 0, 0, 0]).ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = mmap(0, len, protection, libc::MAP_SHARED, fd as i32, 0);
        let _ = syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        mapped.ok().map(|address| address as *mut u8)
    }
}

pub(crate) fn fstat(fd: i32) -> Option<libc::stat> {
    // SAFETY: all-zero is a valid stat; the kernel fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { syscall(libc::SYS_fstat, [fd as u64, &raw mut status as u64, 0, 0, 0, 0]) }.ok()?;
    Some(status)
}

/// How many threads the process has; 0 if that cannot be told.
pub(crate) fn threads() -> u64 {
    // SAFETY: as in `fstat`, with a NUL-terminated path.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let path = c"/proc/self/task".as_ptr() as u64;
    // SAFETY: as above.
    match unsafe { syscall(libc::SYS_stat, [path, &raw mut status as u64, 0, 0, 0, 0]) } {
        // A directory has two links, and one for each directory in it.
        Ok(_) => status.st_nlink.saturating_sub(2),
        Err(_) => 0,
    }
}

/// Shows every descriptor that the process has open.
pub(crate) fn for_each_descriptor(mut show: impl FnMut(i32)) {
    for_each_entry(c"/proc/self/fd", |directory, _, name| {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        if let Some(fd) = number.filter(|&fd: &i32| fd as u64 != directory) {
            show(fd);
        }
    });
}

/// Shows every entry of a directory: the descriptor by which it is read, the inode and the name.
pub(crate) fn for_each_entry(path: &std::ffi::CStr, mut show: impl FnMut(u64, u64, &[u8])) {
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    // SAFETY: a NUL-terminated path.
    let Ok(directory) = (unsafe { syscall(libc::SYS_open, [path.as_ptr() as u64, flags, 0, 0, 0, 0]) }) else {
        return;
    };
    /// Before the name: inode, offset, length of the entry, type.
    const NAME: usize = 19;
    let mut buffer = [0u8; 2048];
    loop {
        let arguments = [directory, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0];
        // SAFETY: the kernel fills our own buffer.
        let Ok(n @ 1..) = (unsafe { syscall(libc::SYS_getdents64, arguments) }) else {
            break;
        };
        let mut entries = &buffer[..n as usize];
        while entries.len() > NAME {
            let len = u16::from_le_bytes([entries[16], entries[17]]) as usize;
            let inode = entries.first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes));
            let name = entries[NAME..].split(|&b| b == 0).next().unwrap_or_default();
            show(directory, inode, name);
            entries = &entries[len.clamp(NAME, entries.len())..];
        }
    }
    // SAFETY: our own descriptor.
    let _ = unsafe { syscall(libc::SYS_close, [directory, 0, 0, 0, 0, 0]) };
}

pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

pub(crate) fn nap(nanoseconds: i64) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    // SAFETY: reads `time` only.
    let _ = unsafe { syscall(libc::SYS_nanosleep, [&raw const time as u64, 0, 0, 0, 0, 0]) };
}

/// A line of /proc/self/maps.
pub(crate) struct Mapping<'a> {
    pub start: u64,
    pub end: u64,
    permissions: &'a [u8],
    /// In the file, or in shared memory.
    pub offset: u64,
    pub dev: u64,
    pub ino: u64,
    /// Empty for memory without a name.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// From "low-high rwxs offset device inode      path".
    fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let mut fields = line.splitn(6, |&b| b == b' ');
        let mut bounds = fields.next()?.split(|&b| b == b'-').map(hexadecimal);
        Some(Mapping {
            start: bounds.next()?,
            end: bounds.next()?,
            permissions: fields.next()?,
            offset: hexadecimal(fields.next()?),
            dev: device(fields.next()?),
            ino: decimal(fields.next()?),
            path: fields.next().unwrap_or_default().trim_ascii_start(),
        })
    }

    pub(crate) fn protection(&self) -> i32 {
        let bits = [
            (b'r', libc::PROT_READ),
            (b'w', libc::PROT_WRITE),
            (b'x', libc::PROT_EXEC),
        ];
        let granted = bits
            .iter()
            .zip(self.permissions)
            .filter(|((letter, _), has)| letter == *has);
        granted.fold(0, |all, ((_, bit), _)| all | bit)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.permissions.get(3) == Some(&b's')
    }

    pub(crate) fn is_shared_and_writable(&self) -> bool {
        matches!(self.permissions, [_, b'w', _, b's', ..])
    }
}

/// The end of the stretch at `from` that can be written, up to `to`.
pub(crate) fn writable_until(from: u64, to: u64) -> u64 {
    let mut at = from;
    for_each_mapping(|mapping| {
        if (mapping.start..mapping.end).contains(&at) && mapping.protection() & libc::PROT_WRITE != 0 {
            at = mapping.end;
        }
    });
    at.min(to)
}

fn hexadecimal(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |n, &b| n << 4 | (b as char).to_digit(16).unwrap_or(0) as u64)
}

fn decimal(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |n, &b| n * 10 + (b as char).to_digit(10).unwrap_or(0) as u64)
}

/// From "major:minor", as `statx` has it.
fn device(numbers: &[u8]) -> u64 {
    numbers
        .split(|&b| b == b':')
        .fold(0, |n, part| n << 32 | hexadecimal(part))
}

/// Shows every mapping of the process, without allocation.
pub(crate) fn for_each_mapping(mut show: impl FnMut(&Mapping)) {
    let path = c"/proc/self/maps".as_ptr() as u64;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    // SAFETY: a NUL-terminated path.
    let Ok(fd) = (unsafe { syscall(libc::SYS_open, [path, flags, 0, 0, 0, 0]) }) else {
        return;
    };
    // A line is a path and some numbers.
    let mut buffer = [0u8; 2 * 4096];
    let mut len = 0;
    loop {
        let free = &mut buffer[len..];
        // SAFETY: reads into our own buffer.
        let read = unsafe {
            syscall(
                libc::SYS_read,
                [fd, free.as_mut_ptr() as u64, free.len() as u64, 0, 0, 0],
            )
        };
        let Ok(n @ 1..) = read else { break };
        len += n as usize;
        let mut begin = 0;
        while let Some(line) = buffer[begin..len].iter().position(|&b| b == b'\n') {
            if let Some(mapping) = Mapping::parse(&buffer[begin..begin + line]) {
                show(&mapping);
            }
            begin += line + 1;
        }
        buffer.copy_within(begin..len, 0);
        len -= begin;
    }
    // SAFETY: our own descriptor.
    let _ = unsafe { syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) };
}

/// The mapping that holds `address`.
pub(crate) fn mapping_around(address: u64) -> Option<(u64, u64)> {
    let mut found = None;
    for_each_mapping(|mapping| {
        if (mapping.start..mapping.end).contains(&address) {
            found = Some((mapping.start, mapping.end));
        }
    });
    found
}

/// Reads memory of this process that may not be there.
pub(crate) fn read_memory(address: u64, into: &mut [u8]) -> bool {
    copy_memory(libc::SYS_process_vm_readv, address, into.as_mut_ptr(), into.len())
}

/// Writes memory of this process that may not be there, or not be writable.
pub(crate) fn write_memory(address: u64, from: &[u8]) -> bool {
    copy_memory(
        libc::SYS_process_vm_writev,
        address,
        from.as_ptr().cast_mut(),
        from.len(),
    )
}

fn copy_memory(number: i64, address: u64, local: *mut u8, len: usize) -> bool {
    let [here, there] = [local as u64, address].map(|base| libc::iovec {
        iov_base: base as *mut libc::c_void,
        iov_len: len,
    });
    let arguments = [
        getpid() as u64,
        &raw const here as u64,
        1,
        &raw const there as u64,
        1,
        0,
    ];
    // SAFETY: the kernel checks the other side; our own is `len` bytes long.
    let copied = unsafe { syscall(number, arguments) };
    copied == Ok(len as u64)
}

/// Whether a process or thread with this id exists.
pub(crate) fn alive(id: u32) -> bool {
    // SAFETY: signal 0 only probes.
    !matches!(
        unsafe { syscall(libc::SYS_kill, [id as u64, 0, 0, 0, 0, 0]) },
        Err(libc::ESRCH)
    )
}

/// Ends the process where nothing else is left to do, saying why.
pub(crate) fn fail(reason: &[u8]) -> ! {
    for text in [&b"crashproof runtime: "[..], reason, b"\n"] {
        // SAFETY: writes from these bytes only.
        let _ = unsafe { syscall(libc::SYS_write, [2, text.as_ptr() as u64, text.len() as u64, 0, 0, 0]) };
    }
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
}

/// Turns a raw result into libc's convention for the program: -1 and `errno`.
pub(crate) fn to_libc(result: Result<u64, i32>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => {
            // SAFETY: libc's own location for this thread.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

/// The program's `errno`, which is put back when this is dropped.
///
/// System calls of ours are raw and do not touch it, but the few functions of libc that we call may. Only code of ours may run meanwhile:
/// the program's handlers, and the instructions that a handler of ours executes in its place, set `errno` for the program to see.
pub(crate) struct KeptErrno(i32);

impl KeptErrno {
    pub(crate) fn new() -> KeptErrno {
        // SAFETY: libc's own location for this thread.
        KeptErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// Runs `f`, code of ours, with no asynchronous signal delivered to this thread, so that the program's handlers cannot interrupt it,
/// with the program's `errno` kept, and on our own stack. The four signals that the runtime itself needs stay deliverable.
pub(crate) fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(u64);

    impl Drop for Restore {
        fn drop(&mut self) {
            set_mask(self.0);
            crate::signals::after_our_code(self.0);
        }
    }

    let _restore = Restore(set_mask(!OURS));
    // Put back before the mask is: a handler that comes then may set it.
    let _errno = KeptErrno::new();
    crate::threads::on_own_stack(f)
}

/// The signals that the runtime needs at any time, as a kernel mask.
pub(crate) const OURS: u64 =
    1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGSYS - 1);

/// Sets the thread's kernel mask and returns the old one.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let arguments = [
        libc::SIG_SETMASK as u64,
        &raw const mask as u64,
        &raw mut old as u64,
        8,
        0,
        0,
    ];
    // SAFETY: both masks are 8 bytes, as the kernel expects.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
    old
}
