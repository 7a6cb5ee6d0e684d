//! Raw system calls: usable in signal handlers, before libc is ready, and never trapped by our own filter's libc rule.

use std::arch::asm;

/// A system call as the kernel sees it; `Err` is the errno. Does not touch the thread's `errno`.
///
/// # Safety
/// As for the system call itself.
#[inline]
pub unsafe fn syscall(number: i64, arguments: [u64; 6]) -> Result<u64, i32> {
    let result: i64;
    // SAFETY: the kernel clobbers rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as u64)
    }
}

/// # Safety
/// As for mmap.
pub unsafe fn mmap(address: u64, len: u64, protection: i32, flags: i32, fd: i32, offset: u64) -> Result<u64, i32> {
    // SAFETY: the caller's promise.
    unsafe {
        syscall(
            libc::SYS_mmap,
            [address, len, protection as u64, flags as u64, fd as i64 as u64, offset],
        )
    }
}

/// Fresh zeroed private memory that is never given back.
pub fn map_anonymous(len: u64) -> Option<*mut u8> {
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

pub fn getpid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0) as u32
}

pub fn gettid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as u32
}

pub fn nap(nanoseconds: i64) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    // SAFETY: reads `time` only.
    let _ = unsafe { syscall(libc::SYS_nanosleep, [&raw const time as u64, 0, 0, 0, 0, 0]) };
}

/// The mapping that holds `address`, from /proc/self/maps; without allocation.
pub fn mapping_around(address: u64) -> Option<(u64, u64)> {
    let path = c"/proc/self/maps".as_ptr() as u64;
    // SAFETY: opens, reads into our own buffer, closes.
    unsafe {
        let fd = syscall(
            libc::SYS_open,
            [path, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0, 0],
        )
        .ok()?;
        let mut scan = MapsScan::default();
        let mut buffer = [0u8; 4096];
        let found = loop {
            match syscall(
                libc::SYS_read,
                [fd, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0],
            ) {
                Ok(n @ 1..) => {
                    let hit = buffer[..n as usize].iter().find_map(|&byte| scan.push(byte, address));
                    if hit.is_some() {
                        break hit;
                    }
                }
                _ => break None,
            }
        };
        let _ = syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        found
    }
}

/// Reads "low-high …" lines byte by byte.
#[derive(Default)]
struct MapsScan {
    low: u64,
    number: u64,
    in_rest: bool,
}

impl MapsScan {
    fn push(&mut self, byte: u8, address: u64) -> Option<(u64, u64)> {
        match byte {
            b'\n' => *self = MapsScan::default(),
            _ if self.in_rest => {}
            b'-' => (self.low, self.number) = (self.number, 0),
            b' ' => {
                self.in_rest = true;
                return (self.low..self.number)
                    .contains(&address)
                    .then_some((self.low, self.number));
            }
            _ => self.number = self.number << 4 | (byte as char).to_digit(16).unwrap_or(0) as u64,
        }
        None
    }
}

/// Whether a process or thread with this id exists.
pub fn alive(id: u32) -> bool {
    // SAFETY: signal 0 only probes.
    !matches!(
        unsafe { syscall(libc::SYS_kill, [id as u64, 0, 0, 0, 0, 0]) },
        Err(libc::ESRCH)
    )
}

/// Ends the process where nothing else is left to do, saying why.
pub fn fail(reason: &[u8]) -> ! {
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
pub fn to_libc(result: Result<u64, i32>) -> i64 {
    match result {
        Ok(value) => value as i64,
        Err(errno) => {
            // SAFETY: libc's own location for this thread.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

/// Runs `f` with no asynchronous signal delivered to this thread, so that the program's handlers cannot interrupt it.
/// The four signals that the runtime itself needs stay deliverable.
pub fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(u64);

    impl Drop for Restore {
        fn drop(&mut self) {
            set_mask(self.0);
        }
    }

    let _restore = Restore(set_mask(!OURS));
    f()
}

/// The signals that the runtime needs at any time, as a kernel mask.
pub const OURS: u64 =
    1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGSYS - 1);

/// Sets the thread's kernel mask and returns the old one.
pub fn set_mask(mask: u64) -> u64 {
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
