//! The few system calls that this crate needs, made directly: the runtime interposes libc's wrappers, and `errno` belongs
//! to the interrupted program.

use std::arch::asm;
use std::ffi::CStr;
use std::io;
use std::ops::Range;

pub(crate) const PAGE: usize = 4096;

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

/// The same, with the error as libc's wrappers have it.
///
/// # Safety
/// As for the system call itself.
unsafe fn checked(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    let result = unsafe { syscall(number, arguments.map(|argument| argument as u64)) };
    result.map(|value| value as usize).map_err(io::Error::from_raw_os_error)
}

/// A file opened for reading.
pub(crate) struct OpenFile(usize);

impl OpenFile {
    pub(crate) fn open(path: &CStr) -> io::Result<OpenFile> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: the path is terminated.
        unsafe {
            checked(
                libc::SYS_openat,
                [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0],
            )
        }
        .map(OpenFile)
    }

    /// Reads until `buffer` is full or the file ends; returns how much was read.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let arguments = [
                self.0,
                rest.as_mut_ptr() as usize,
                rest.len(),
                offset as usize + done,
                0,
                0,
            ];
            // SAFETY: the kernel writes into `rest` only.
            match unsafe { checked(libc::SYS_pread64, arguments) } {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        let _ = unsafe { checked(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Where the symbolic link `path` points, in `buffer`.
pub(crate) fn read_link<'b>(path: &CStr, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    let arguments = [
        path.as_ptr() as usize,
        buffer.as_mut_ptr() as usize,
        buffer.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes into `buffer` only.
    let length = unsafe { checked(libc::SYS_readlink, arguments) }?;
    Ok(&buffer[..length])
}

/// Copies memory of this process from an address that need not be mapped. False if it is not, wholly, readable.
pub(crate) fn read_memory(address: usize, buffer: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: buffer.len(),
    };
    // SAFETY: the kernel checks the remote side and writes into `buffer` only.
    let read = unsafe {
        checked(libc::SYS_getpid, [0; 6]).and_then(|process| {
            let (local, remote) = (&raw const local as usize, &raw const remote as usize);
            checked(libc::SYS_process_vm_readv, [process, local, 1, remote, 1, 0])
        })
    };
    read.is_ok_and(|length| length == buffer.len())
}

/// # Safety
/// Nobody may rely on a protection that this takes away.
pub(crate) unsafe fn mprotect(pages: Range<usize>, protection: i32) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        checked(
            libc::SYS_mprotect,
            [pages.start, pages.len(), protection as usize, 0, 0, 0],
        )
    }
    .map(|_| ())
}

/// Calls `each` with the range and the protection of every mapping of this process, in address order.
pub(crate) fn for_each_mapping(mut each: impl FnMut(Range<usize>, i32)) -> io::Result<()> {
    let maps = OpenFile::open(c"/proc/self/maps")?;
    let mut text = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        // The kernel hands out whole lines, at most a page of them at a time.
        let count = maps.read_at(&mut buffer, text.len() as u64)?;
        if count == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..count]);
    }
    for line in String::from_utf8_lossy(&text).lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)) else {
            continue;
        };
        let flags = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
        let protection = flags
            .iter()
            .filter(|(letter, _)| permissions.contains(*letter))
            .map(|(_, flag)| flag)
            .sum();
        each(start..end, protection);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_tell_unmapped_addresses() {
        let value = 0x1122_3344_5566_7788u64;
        let mut bytes = [0; 8];
        assert!(read_memory(&raw const value as usize, &mut bytes));
        assert_eq!(u64::from_ne_bytes(bytes), value);
        assert!(!read_memory(16, &mut bytes));
    }

    #[test]
    fn mappings_hold_this_function() {
        let here = mappings_hold_this_function as *const () as usize;
        let mut protection = None;
        for_each_mapping(|range, flags| {
            if range.contains(&here) {
                protection = Some(flags);
            }
        })
        .unwrap();
        assert_eq!(protection, Some(libc::PROT_READ | libc::PROT_EXEC));
    }
}
