//! System calls that the program makes with instructions of its own: inline assembly, or a language that does without libc's
//! functions (Go).
//!
//! The functions of libc that map files, end the process and set signal handlers are interposed; a `syscall` instruction of
//! the program's is not. So each that may make one of these calls has a breakpoint ([`WANTED`]), and the handler does what the
//! interposed function does. Every other call goes on in a copy of the instruction, on the program's stack and with its mask,
//! so that it blocks, is interrupted and restarted, and makes threads and processes as it would have. Of a write that the trace
//! needs, the copy has a breakpoint behind it. So no call needs more of the program's stack than it would have: it may be a
//! goroutine's, with nothing to spare and the heap below it. Only a call that reads into several buffers in PM runs as a handler of the
//! program's would.
//!
//! A seccomp filter could trap them too, but it stays in force after an exec: it would kill a program without the runtime.
//!
//! libc's own instructions have no breakpoints: what libc maps for itself is no file of the program's, and its functions are
//! interposed. Not seen are calls by code made at run time and by code of which neither unwind tables nor symbols tell where
//! its functions begin. A file mapped by such a call is noticed at the end of the process ([`files::verify_all`]).

use crate::code_map::Site;
use crate::syscalls::table::{self, Effect, Indirect};
use crate::{files, log, signals, sys, syscalls, syscalls::Destination, threads};
use libc::{c_int, c_void, iovec, off_t, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The calls that get a breakpoint; an instruction of which the number is not known gets one too.
pub(crate) const WANTED: &[i64] = table::WITH_EFFECT;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const BREAKPOINT: u8 = 0xcc;
/// A copy: the call, what follows it, and the address where the program goes on.
const COPY: usize = 16;
const TARGET: usize = 8;
/// A jump through the word at [`TARGET`].
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
/// The calls whose copy has a breakpoint behind it. A site has one copy for each, after the one with the jump.
const NOTED: &[i64] = table::WRITES;
const COPIES: usize = 1 + NOTED.len();

/// Where copies are: address and size of each block.
static BLOCKS: [(AtomicU64, AtomicU64); 64] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; 64];
static BLOCK_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes copies of each of these instructions that go on behind it. False: that is not possible.
pub(crate) fn make_copies<'a>(sites: impl ExactSizeIterator<Item = &'a mut Site>) -> bool {
    let size = ((sites.len() * COPIES * COPY) as u64).next_multiple_of(4096);
    let index = BLOCK_COUNT.load(Ordering::Relaxed);
    let (Some(block), Some(memory)) = (BLOCKS.get(index), sys::map_anonymous(size)) else {
        return false;
    };
    for (i, site) in sites.enumerate() {
        let target = site.address as u64 + SYSCALL.len() as u64;
        for kind in 0..COPIES {
            // SAFETY: within the block, which nobody else knows yet.
            unsafe {
                let copy = memory.add((i * COPIES + kind) * COPY);
                copy.cast::<[u8; 2]>().write(SYSCALL);
                match kind {
                    0 => copy.add(SYSCALL.len()).cast::<[u8; 6]>().write(JUMP),
                    _ => copy.add(SYSCALL.len()).write(BREAKPOINT),
                }
                copy.add(TARGET).cast::<u64>().write(target);
            }
        }
        site.copy = memory as usize + i * COPIES * COPY;
    }
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    // SAFETY: our own block.
    if unsafe { sys::syscall(libc::SYS_mprotect, [memory as u64, size, executable, 0, 0, 0]) }.is_err() {
        return false;
    }
    block.0.store(memory as u64, Ordering::Relaxed);
    block.1.store(size, Ordering::Relaxed);
    BLOCK_COUNT.store(index + 1, Ordering::Release);
    true
}

/// Which of its site's copies this is, and where the program goes on, if `address` is behind the system call of a copy.
fn behind_copy(address: u64) -> Option<(usize, u64)> {
    let blocks = &BLOCKS[..BLOCK_COUNT.load(Ordering::Acquire)];
    let copy = address.checked_sub(SYSCALL.len() as u64)?;
    let offset = blocks.iter().find_map(|(start, size)| {
        let offset = copy.checked_sub(start.load(Ordering::Relaxed))?;
        (offset < size.load(Ordering::Relaxed)).then_some(offset as usize)
    })?;
    // SAFETY: a copy in a block.
    offset
        .is_multiple_of(COPY)
        .then(|| unsafe { (offset / COPY % COPIES, *((copy + TARGET as u64) as *const u64)) })
}

/// Where the program stands, if `rip` is behind the system call of a copy.
pub(crate) fn origin(rip: u64) -> Option<u64> {
    behind_copy(rip).map(|(_, target)| target)
}

/// The call that was made, and where the program goes on, if the address is that of a breakpoint behind a copy.
pub(crate) fn noted(address: u64) -> Option<(i64, u64)> {
    let (kind, target) = behind_copy(address)?;
    Some((*NOTED.get(kind.checked_sub(1)?)?, target))
}

/// The arguments of a system call.
pub(crate) fn arguments(uc: &ucontext_t) -> [u64; 6] {
    use libc::{REG_R8, REG_R9, REG_R10, REG_RDI, REG_RDX, REG_RSI};
    [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(|r| uc.uc_mcontext.gregs[r as usize] as u64)
}

/// The program has come to a system call of its own: rip is at it.
pub(crate) fn trap(site: &Site, info: &siginfo_t, uc: &mut ucontext_t) {
    let behind = (site.address + SYSCALL.len()) as i64;
    let number = uc.uc_mcontext.gregs[libc::REG_RAX as usize];
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] = behind;
    let result = match table::effect(number) {
        Effect::End => {
            if number == libc::SYS_exit_group || sys::threads() == 1 {
                crate::finish();
            }
            None
        }
        Effect::ThreadPointer => {
            thread_pointer(arguments(uc));
            None
        }
        // SAFETY: the program's own call.
        Effect::Open => unsafe { files::truncating(number, arguments(uc)) },
        Effect::Signals => match number {
            libc::SYS_rt_sigaction => sigaction(arguments(uc)),
            libc::SYS_rt_sigprocmask => Some(sigprocmask(uc)),
            _ => Some(sigaltstack(uc)),
        },
        Effect::Gather => {
            if syscalls::is_into_pm(number, arguments(uc)[1], arguments(uc)[2]) && enter(info, uc, emulate_read) {
                return;
            }
            None
        }
        Effect::Files => file_call(number, uc),
        Effect::Write | Effect::None => None,
    };
    match result {
        Some(result) => answer(uc, result),
        None => {
            let kind = NOTED.iter().position(|&noted| noted == number && is_needed(uc));
            let copy = site.copy + kind.map_or(0, |kind| 1 + kind) * COPY;
            uc.uc_mcontext.gregs[libc::REG_RIP as usize] = copy as i64;
        }
    }
}

/// Whether the trace needs the data of this write.
fn is_needed(uc: &ucontext_t) -> bool {
    let [fd, ..] = arguments(uc);
    fd == 1 || fd == 2 || syscalls::is_recorded(fd as c_int)
}

/// The registers after the call: its result, and what the instruction leaves in rcx and r11.
fn answer(uc: &mut ucontext_t, result: Result<u64, i32>) {
    let registers = &mut uc.uc_mcontext.gregs;
    registers[libc::REG_RAX as usize] = match result {
        Ok(value) => value as i64,
        Err(errno) => -errno as i64,
    };
    registers[libc::REG_RCX as usize] = registers[libc::REG_RIP as usize];
    registers[libc::REG_R11 as usize] = registers[libc::REG_EFL as usize];
}

/// As the interposed function does it; `None`: it is not one of these calls.
fn file_call(number: i64, uc: &ucontext_t) -> Option<Result<u64, i32>> {
    let arguments = arguments(uc);
    let paths = table::find(number).map_or(&[][..], |call| call.strings);
    // The kernel says what is wrong with a path that cannot be read.
    if paths.iter().any(|&path| !sys::read_memory(arguments[path], &mut [0])) {
        return None;
    }
    let state = threads::current();
    state.raw_call = &raw const *uc;
    // SAFETY: the program's own call.
    let result = unsafe { as_the_kernel(|| files::by_number(number, arguments)) };
    state.raw_call = std::ptr::null();
    result
}

/// The result of a function with libc's convention; `errno` stays as it is.
unsafe fn as_the_kernel(call: impl FnOnce() -> Option<i64>) -> Option<Result<u64, i32>> {
    // SAFETY: this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = call().map(|value| if value == -1 { Err(*errno) } else { Ok(value as u64) });
        *errno = saved;
        result
    }
}

/// The runtime's state of a thread hangs off its thread pointer, as libc's does.
fn thread_pointer([operation, ..]: [u64; 6]) {
    const ARCH_SET_FS: u64 = 0x1002;
    if operation == ARCH_SET_FS {
        sys::fail(
            b"the program sets the thread pointer itself, so that libc and the recorder cannot work in it; \
              in a Go program, add `import \"C\"` to package main and build it with CGO_ENABLED=1",
        );
    }
}

pub(crate) fn read<T: Copy>(address: u64) -> Result<Option<T>, i32> {
    if address == 0 {
        return Ok(None);
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: as many bytes as a `T` has, and every use of this function is for plain data.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>());
        if !sys::read_memory(address, bytes) {
            return Err(libc::EFAULT);
        }
        Ok(Some(value.assume_init()))
    }
}

fn write_back<T: Copy>(address: u64, value: &T) -> Result<u64, i32> {
    // SAFETY: the bytes of a plain value.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    if address == 0 || sys::write_memory(address, bytes) {
        Ok(0)
    } else {
        Err(libc::EFAULT)
    }
}

const MASK_SIZE: u64 = 8;

/// `None`: for the kernel. A signal of libc's own, or an argument that it refuses.
fn sigaction([signal, new, old, size, ..]: [u64; 6]) -> Option<Result<u64, i32>> {
    if size != MASK_SIZE || !signals::is_for_programs(signal as c_int) {
        return None;
    }
    Some(read(new).and_then(|new| {
        let known = signals::change_kernel_action(signal as c_int, new.as_ref())?;
        write_back(old, &known)
    }))
}

fn sigprocmask(uc: &mut ucontext_t) -> Result<u64, i32> {
    let [how, set, old, size, ..] = arguments(uc);
    if size != MASK_SIZE {
        return Err(libc::EINVAL);
    }
    let known = signals::change_mask_in(uc, how as c_int, read(set)?)?;
    write_back(old, &known)
}

fn sigaltstack(uc: &ucontext_t) -> Result<u64, i32> {
    let [new, old, ..] = arguments(uc);
    let here = uc.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
    let known = signals::change_alternate_stack(here, read(new)?.as_ref())?;
    write_back(old, &known)
}

/// Whether the handler of a call that may block can run on the stack that the program has for signals: the stack that it
/// makes system calls on may be as small as a goroutine's.
pub(crate) fn wants_alternate_stack() -> bool {
    const ENOUGH: usize = 32 << 10;
    let stack = &threads::current().alternate;
    stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size >= ENOUGH
}

/// The kernel has made a call that the trace needs; the program goes on at `target`.
pub(crate) fn note(number: i64, target: u64, uc: &mut ucontext_t) {
    let registers = &mut uc.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = target as i64;
    registers[libc::REG_RCX as usize] = target as i64;
    let written = registers[libc::REG_RAX as usize];
    if written <= 0 {
        return;
    }
    let [fd, buffer, len, offset, _, flags] = arguments(uc);
    let whole = iovec {
        iov_base: buffer as *mut c_void,
        iov_len: len as usize,
    };
    let is_gathered = table::find(number).is_some_and(|call| matches!(call.indirect, Indirect::Parts(_)));
    let parts = if is_gathered {
        // SAFETY: the kernel has just read this array.
        unsafe { std::slice::from_raw_parts(buffer as *const iovec, len as usize) }
    } else {
        std::slice::from_ref(&whole)
    };
    let destination = match number {
        libc::SYS_write | libc::SYS_writev => Destination::Position,
        libc::SYS_pwritev2 if offset == u64::MAX => Destination::Position,
        libc::SYS_pwritev2 => Destination::Offset(offset as off_t, flags as c_int),
        _ => Destination::Offset(offset as off_t, 0),
    };
    let _errno = sys::KeptErrno::new();
    let state = threads::current();
    state.raw_call = &raw const *uc;
    syscalls::wrote_raw(fd as c_int, parts, written as u64, destination);
    state.raw_call = std::ptr::null();
}

/// Lets the program go on in `emulate`, as in a handler of its own: the call may block, be interrupted and be left. False: its stack has no room.
fn enter(info: &siginfo_t, uc: &mut ucontext_t, emulate: Emulate) -> bool {
    let mask = *signals::mask_of(uc);
    signals::enter_handler(libc::SIGTRAP, info, uc, emulate as usize, mask, wants_alternate_stack())
}

type Emulate = extern "C-unwind" fn(c_int, *const siginfo_t, *mut ucontext_t);

/// Runs like a handler of the program's.
extern "C-unwind" fn emulate_read(_: c_int, _: *const siginfo_t, uc: *mut ucontext_t) {
    // SAFETY: the frame that `enter_handler` laid.
    let uc = unsafe { &mut *uc };
    let (number, arguments) = (uc.uc_mcontext.gregs[libc::REG_RAX as usize], arguments(uc));
    // SAFETY: the program's own call.
    let result = unsafe { as_the_kernel(|| Some(syscalls::indirect(number, arguments, || log::stack_of_syscall(uc)))) };
    answer(uc, result.unwrap_or(Err(libc::EFAULT)));
}

/// The stack of the system call that is being made for the program, if one is.
pub(crate) fn stack() -> Option<u64> {
    // SAFETY: set only while the frame that it points to is in use.
    unsafe { threads::current().raw_call.as_ref() }.map(log::stack_of_syscall)
}
