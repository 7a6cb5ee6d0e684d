//! The program that `doctor` records: one store to a mapped file, flushed and fenced.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

use super::Result;
use crate::arguments::SelfTestArguments;
use crate::exit::Exit;

const SIZE: usize = 4096;
/// What ends up at the start of the file.
pub(crate) const VALUE: u64 = 0x70726f6f66;

pub(crate) fn run(arguments: &SelfTestArguments) -> Result {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&arguments.file)?;
    file.set_len(SIZE as u64)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that is long enough, used by this function alone and unmapped at its end.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            protection,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if memory == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        memory.cast::<u64>().write_volatile(VALUE);
        std::arch::x86_64::_mm_clflush(memory.cast());
        std::arch::x86_64::_mm_sfence();
        libc::munmap(memory, SIZE);
    }
    Ok(Exit::Clean)
}
