//! Bounce buffers: the kernel writes to memory of the runtime's, and what it wrote is stored to the program's and logged.

use super::table::{Buffer, Size, Written};
use crate::{log, pm, registered, sys, threads};
use libc::{c_void, iovec, ucontext_t};

/// How much of a buffer that begins in PM, or runs into it, can be written: the kernel fills what is there.
pub(super) fn writable_len(buffer: u64, len: u64) -> u64 {
    let end = buffer.saturating_add(len);
    let mut at = buffer;
    while at < end {
        let next = pm::first_after(at);
        at = match next.filter(|region| region.start <= at) {
            Some(region) if region.writable() => region.end,
            Some(_) => break,
            None => {
                let until = next.map_or(end, |region| region.start.min(end));
                let until = until.min(registered::boundary(at));
                let memory = match registered::find(at) {
                    Some(pages) => {
                        if pages.writable() {
                            until
                        } else {
                            at
                        }
                    }
                    None => sys::writable_until(at, until),
                };
                if memory < until {
                    at = memory;
                    break;
                }
                until
            }
        };
    }
    at.min(end) - buffer
}

/// Makes a call with bounce buffers in place of its own.
pub(super) fn bounced_call(number: i64, mut given: [u64; 6], outputs: &[Buffer], uc: &ucontext_t) -> Result<u64, i32> {
    if matches!(number, libc::SYS_read | libc::SYS_pread64) {
        let len = writable_len(given[1], given[2]);
        if len < given[2] && len == 0 {
            // Nothing is there, either.
            given[1] = 1;
            // SAFETY: the program's call; the kernel says what is wrong.
            return unsafe { sys::syscall(number, given) };
        }
        given[2] = len;
    }
    let used = || {
        outputs
            .iter()
            .filter(|o| given[o.argument] != 0)
            .map(|o| (o, buffer_len(o, &given)))
    };
    let mut bounce = Bounce::new(used().map(|(_, len)| Bounce::room(len)).sum())?;
    let mut arguments = given;
    let mut result = Ok(0);
    for (output, len) in used() {
        let buffer = bounce.buffer(len);
        // What the kernel leaves alone must come back as it was.
        if !matches!(output.written, Written::Returned(..) | Written::LengthAt(_)) {
            // SAFETY: a buffer of that length.
            let content = unsafe { std::slice::from_raw_parts_mut(buffer as *mut u8, len) };
            result = result.and(read_memory(given[output.argument], content).map(|()| 0));
        }
        arguments[output.argument] = buffer;
    }
    // SAFETY: the program's call, with buffers as large as its own.
    result = result.and_then(|_| unsafe { sys::syscall(number, arguments) });
    let stored = sys::without_signals(|| {
        let stack = log::stack_of_syscall(uc);
        for (output, len) in used() {
            let target = given[output.argument];
            // SAFETY: a bounce buffer of that length, which nobody else has.
            let data = unsafe { std::slice::from_raw_parts(arguments[output.argument] as *const u8, len) };
            let written = match (output.written, result) {
                (Written::Changed, _) => {
                    store_changed(target, data, stack)?;
                    continue;
                }
                (Written::All, Ok(_)) | (Written::Found, Ok(1..)) => len,
                (Written::Returned(unit, more), Ok(n)) => (n as usize).saturating_mul(unit as usize) + more as usize,
                // SAFETY: the length is in a bounce buffer too.
                (Written::LengthAt(i), Ok(_)) if arguments[i] != 0 => unsafe { *(arguments[i] as *const u32) as usize },
                _ => 0,
            };
            store(target, &data[..written.min(len)], stack)?;
        }
        Ok(())
    });
    bounce.free();
    stored.and(result)
}

/// How large the buffer is.
pub(crate) fn buffer_len(output: &Buffer, arguments: &[u64; 6]) -> usize {
    // No call fills more than this at once.
    const MOST: u64 = 0x7fff_f000;
    let count = |i: usize| arguments[i] as u32 as u64;
    let len = match (output.size, output.written) {
        (Size::Bytes(n), _) => n as u64,
        (Size::Argument(i), Written::Returned(_, more)) => arguments[i].saturating_add(more as u64),
        (Size::Argument(i), _) => arguments[i],
        (Size::Elements(i, n), _) => count(i) * n as u64,
        (Size::Bits(i), _) => count(i).div_ceil(64) * 8,
        (Size::Pages(i), _) => arguments[i].div_ceil(4096),
        (Size::LengthAt(i), _) if arguments[i] == 0 => 0,
        (Size::LengthAt(i), _) => {
            let mut len = [0u8; 4];
            read_memory(arguments[i], &mut len).map_or(0, |()| u32::from_le_bytes(len) as u64)
        }
    };
    len.min(MOST) as usize
}

/// Memory for bounce buffers. Not freed by being dropped: a signal handler may jump out of the call that uses it.
pub(super) struct Bounce {
    memory: u64,
    size: u64,
    used: u64,
    /// It is the thread's own, kept for the next call.
    kept: bool,
}

impl Bounce {
    /// What a thread keeps.
    const KEPT: u64 = 64 << 10;

    pub(super) fn room(len: usize) -> u64 {
        (len as u64).next_multiple_of(16)
    }

    pub(super) fn new(size: u64) -> Result<Bounce, i32> {
        let size = size.max(1).next_multiple_of(4096);
        // Taken out of the state while in use: a handler that interrupts the call finds none. If it jumps out, that is lost.
        let kept = std::mem::replace(&mut threads::current().bounce, std::ptr::null_mut());
        if size <= Bounce::KEPT {
            let memory = if kept.is_null() {
                sys::map_anonymous(Bounce::KEPT).ok_or(libc::ENOMEM)?
            } else {
                kept
            };
            return Ok(Bounce {
                memory: memory as u64,
                size: Bounce::KEPT,
                used: 0,
                kept: true,
            });
        }
        threads::current().bounce = kept;
        let memory = sys::map_anonymous(size).ok_or(libc::ENOMEM)? as u64;
        Ok(Bounce {
            memory,
            size,
            used: 0,
            kept: false,
        })
    }

    /// A buffer of `len` bytes, for which `new` was asked to have room.
    pub(super) fn buffer(&mut self, len: usize) -> u64 {
        let at = self.memory + self.used;
        self.used += Bounce::room(len);
        debug_assert!(self.used <= self.size);
        at
    }

    pub(super) fn free(self) {
        let state = threads::current();
        if self.kept && state.bounce.is_null() {
            state.bounce = self.memory as *mut u8;
            return;
        }
        // SAFETY: our own mapping, which nobody uses any more.
        let _ = unsafe { sys::syscall(libc::SYS_munmap, [self.memory, self.size, 0, 0, 0, 0]) };
    }
}

/// Copies memory of the program's that may not be there; zeros stand for what lies behind the end of a mapping.
fn read_memory(address: u64, into: &mut [u8]) -> Result<(), i32> {
    let local = iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    let arguments = [
        sys::getpid() as u64,
        &raw const local as u64,
        1,
        &raw const remote as u64,
        1,
        0,
    ];
    // SAFETY: the kernel checks the source and writes to our slice.
    let read = unsafe { sys::syscall(libc::SYS_process_vm_readv, arguments) }?;
    into[read as usize..].fill(0);
    Ok(())
}

/// Does what the kernel would have done: writes `data` to the program's memory at `target`, PM or not.
pub(super) fn store(target: u64, data: &[u8], stack: u64) -> Result<(), i32> {
    let mut done = 0;
    while done < data.len() {
        let at = target + done as u64;
        match pm::find(at) {
            Some(region) => {
                let n = (region.end - at).min((data.len() - done) as u64) as usize;
                if !region.writable() || !populated(at.wrapping_add_signed(region.delta), n) {
                    return Err(libc::EFAULT);
                }
                pm::write(at, &data[done..done + n], stack);
                done += n;
            }
            None => {
                let next = pm::first_after(at).map_or(u64::MAX, |r| r.start);
                let n = (pm::PAGE - at % pm::PAGE)
                    .min(next - at)
                    .min((data.len() - done) as u64) as usize;
                let _held = registered::contains(at, n as u64).then(registered::hold);
                if !registered::write_beside(at, &data[done..done + n]) {
                    return Err(libc::EFAULT);
                }
                done += n;
            }
        }
    }
    Ok(())
}

/// Whether the pages of an alias can be written: those behind the end of the file cannot.
fn populated(alias: u64, len: usize) -> bool {
    const MADV_POPULATE_WRITE: u64 = 23;
    let start = alias / pm::PAGE * pm::PAGE;
    let arguments = [start, alias + len as u64 - start, MADV_POPULATE_WRITE, 0, 0, 0];
    // SAFETY: an alias of ours; only page tables change.
    !matches!(unsafe { sys::syscall(libc::SYS_madvise, arguments) }, Err(libc::EFAULT))
}

/// Stores those runs of bytes that differ from what the program's memory holds.
pub(super) fn store_changed(target: u64, data: &[u8], stack: u64) -> Result<(), i32> {
    let mut before = [0u8; 256];
    for (i, after) in data.chunks(before.len()).enumerate() {
        let at = target + (i * before.len()) as u64;
        let before = &mut before[..after.len()];
        read_memory(at, before)?;
        let mut from = 0;
        while from < after.len() {
            let same = before[from..]
                .iter()
                .zip(&after[from..])
                .take_while(|(b, a)| b == a)
                .count();
            from += same;
            let differ = before[from..]
                .iter()
                .zip(&after[from..])
                .take_while(|(b, a)| b != a)
                .count();
            store(at + from as u64, &after[from..from + differ], stack)?;
            from += differ;
        }
    }
    Ok(())
}
