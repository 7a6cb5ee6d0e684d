//! System calls that write to PM, and the program's output.
//!
//! The kernel cannot write to a view, and libc makes system calls of its own that no interposition sees (`fread` into PM
//! got EFAULT). So a seccomp filter traps every call that would write to an address in the range of views: the handler makes
//! the call with a bounce buffer, and what the kernel wrote there is stored to PM and logged. The call is made on the
//! program's own stack with the program's own mask, as if by a handler of the program's, so that it blocks, is interrupted,
//! restarted and cancelled as it would have been.
//!
//! A second filter traps `write` and `writev` to stdout and stderr when libc makes them, for output events. It names
//! addresses of this process. In a program that this one executes, other code has these addresses: by the layout of chance, once
//! in a million, the runtime's own. So what the handler writes in the program's place is marked ([`UNTRAPPED`]), and passes. The
//! first filter needs no such care, since nobody else has buffers in the range of views. Every other way to give the kernel a PM buffer or to produce output is a
//! function of libc's with an indirect buffer (`readv`, `recvmsg`) or a socket (`send`), and is interposed: a thread of libc's
//! own, which has SIGSYS blocked, must not be trapped there.

use crate::real::{Next, Resolve};
use crate::{files, log, pm, raw, registered, signals, spin::Spin, sys, threads, watch};
use crashproof_wire::{Session, record::*};
use libc::{c_int, c_void, iovec, mmsghdr, msghdr, off_t, siginfo_t, size_t, ssize_t, ucontext_t};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

// --- Which calls write where ------------------------------------------------------------------------------------------

/// How large the buffer at an argument is.
#[derive(Clone, Copy)]
pub enum Size {
    Bytes(u32),
    /// As another argument says.
    Argument(usize),
    /// So many bytes for each element, of which another argument has the number.
    Elements(usize, u32),
    /// As the `socklen_t` at another argument says.
    LengthAt(usize),
    /// One bit for each of the number that another argument has, in whole words.
    Bits(usize),
    /// One byte for each page of the length that another argument has.
    Pages(usize),
}

/// How much of it the kernel has written.
#[derive(Clone, Copy)]
pub enum Written {
    /// All, if the call succeeds.
    All,
    /// As many of these units as the call returns, and so many bytes more.
    Returned(u32, u32),
    /// All if the call returns more than 0.
    Found,
    /// As the `socklen_t` at another argument now says.
    LengthAt(usize),
    /// What differs from before, also if the call fails. Such a buffer is read by the kernel too.
    Changed,
}

pub struct Output {
    pub argument: usize,
    pub size: Size,
    written: Written,
}

pub const fn output(argument: usize, size: Size, written: Written) -> Output {
    Output {
        argument,
        size,
        written,
    }
}

/// Fills a buffer whose capacity is the next argument, and returns how much.
const fn filled(argument: usize) -> Output {
    output(argument, Size::Argument(argument + 1), Written::Returned(1, 0))
}

const fn structure(argument: usize, bytes: u32) -> Output {
    output(argument, Size::Bytes(bytes), Written::All)
}

const fn updated(argument: usize, bytes: u32) -> Output {
    output(argument, Size::Bytes(bytes), Written::Changed)
}

/// A buffer whose length, in and out, is at the next argument.
const fn measured(argument: usize) -> Output {
    output(argument, Size::LengthAt(argument + 1), Written::LengthAt(argument + 1))
}

const STAT: u32 = size_of::<libc::stat>() as u32;
const STATFS: u32 = size_of::<libc::statfs>() as u32;
const RUSAGE: u32 = size_of::<libc::rusage>() as u32;
const FD_SETS: [Output; 4] = [
    output(1, Size::Bits(0), Written::Changed),
    output(2, Size::Bits(0), Written::Changed),
    output(3, Size::Bits(0), Written::Changed),
    updated(4, 16),
];
const EVENTS: &[Output] = &[output(1, Size::Elements(2, 12), Written::Returned(12, 0))];
const IDS: &[Output] = &[structure(0, 4), structure(1, 4), structure(2, 4)];
const ADDRESS: &[Output] = &[measured(1), updated(2, 4)];

/// The calls that write to buffers given as arguments. The most frequent come first.
pub const CALLS: &[(i64, &[Output])] = &[
    (libc::SYS_read, &[filled(1)]),
    (libc::SYS_pread64, &[filled(1)]),
    (libc::SYS_recvfrom, &[filled(1), measured(4), updated(5, 4)]),
    (libc::SYS_epoll_wait, EVENTS),
    (libc::SYS_epoll_pwait, EVENTS),
    (libc::SYS_epoll_pwait2, EVENTS),
    (libc::SYS_poll, &[output(0, Size::Elements(1, 8), Written::Changed)]),
    (
        libc::SYS_ppoll,
        &[output(0, Size::Elements(1, 8), Written::Changed), updated(2, 16)],
    ),
    (libc::SYS_select, &FD_SETS),
    (libc::SYS_pselect6, &FD_SETS),
    (libc::SYS_clock_gettime, &[structure(1, 16)]),
    (libc::SYS_clock_getres, &[structure(1, 16)]),
    (libc::SYS_gettimeofday, &[structure(0, 16), structure(1, 8)]),
    (libc::SYS_time, &[structure(0, 8)]),
    (libc::SYS_nanosleep, &[updated(1, 16)]),
    (libc::SYS_clock_nanosleep, &[updated(3, 16)]),
    (libc::SYS_stat, &[structure(1, STAT)]),
    (libc::SYS_fstat, &[structure(1, STAT)]),
    (libc::SYS_lstat, &[structure(1, STAT)]),
    (libc::SYS_newfstatat, &[structure(2, STAT)]),
    (libc::SYS_statx, &[structure(4, size_of::<libc::statx>() as u32)]),
    (libc::SYS_statfs, &[structure(1, STATFS)]),
    (libc::SYS_fstatfs, &[structure(1, STATFS)]),
    (libc::SYS_getdents, &[filled(1)]),
    (libc::SYS_getdents64, &[filled(1)]),
    (libc::SYS_readlink, &[filled(1)]),
    (libc::SYS_readlinkat, &[filled(2)]),
    (libc::SYS_getcwd, &[filled(0)]),
    (libc::SYS_getxattr, &[filled(2)]),
    (libc::SYS_lgetxattr, &[filled(2)]),
    (libc::SYS_fgetxattr, &[filled(2)]),
    (libc::SYS_listxattr, &[filled(1)]),
    (libc::SYS_llistxattr, &[filled(1)]),
    (libc::SYS_flistxattr, &[filled(1)]),
    (libc::SYS_getrandom, &[filled(0)]),
    (libc::SYS_accept, ADDRESS),
    (libc::SYS_accept4, ADDRESS),
    (libc::SYS_getsockname, ADDRESS),
    (libc::SYS_getpeername, ADDRESS),
    (libc::SYS_getsockopt, &[measured(3), updated(4, 4)]),
    (libc::SYS_socketpair, &[structure(3, 8)]),
    (libc::SYS_pipe, &[structure(0, 8)]),
    (libc::SYS_pipe2, &[structure(0, 8)]),
    (libc::SYS_sendfile, &[updated(2, 8)]),
    (libc::SYS_splice, &[updated(1, 8), updated(3, 8)]),
    (libc::SYS_copy_file_range, &[updated(1, 8), updated(3, 8)]),
    (libc::SYS_fcntl, &[updated(2, size_of::<libc::flock>() as u32)]),
    (libc::SYS_ioctl, &[updated(2, 256)]),
    (libc::SYS_name_to_handle_at, &[updated(2, 8 + 128), structure(3, 4)]),
    (libc::SYS_mincore, &[output(2, Size::Pages(1), Written::All)]),
    (libc::SYS_uname, &[structure(0, size_of::<libc::utsname>() as u32)]),
    (libc::SYS_sysinfo, &[structure(0, size_of::<libc::sysinfo>() as u32)]),
    (libc::SYS_times, &[structure(0, 32)]),
    (libc::SYS_getrusage, &[structure(1, RUSAGE)]),
    (libc::SYS_getrlimit, &[structure(1, 16)]),
    (libc::SYS_prlimit64, &[structure(3, 16)]),
    (
        libc::SYS_wait4,
        &[
            output(1, Size::Bytes(4), Written::Found),
            output(3, Size::Bytes(RUSAGE), Written::Found),
        ],
    ),
    (
        libc::SYS_waitid,
        &[structure(2, size_of::<siginfo_t>() as u32), structure(4, RUSAGE)],
    ),
    (libc::SYS_getresuid, IDS),
    (libc::SYS_getresgid, IDS),
    (
        libc::SYS_getgroups,
        &[output(1, Size::Elements(0, 4), Written::Returned(4, 0))],
    ),
    (libc::SYS_getcpu, &[structure(0, 4), structure(1, 4)]),
    (libc::SYS_capget, &[updated(0, 8), updated(1, 24)]),
    (
        libc::SYS_sched_getaffinity,
        &[output(2, Size::Argument(1), Written::Returned(1, 0))],
    ),
    (libc::SYS_sched_getparam, &[structure(1, 4)]),
    (
        libc::SYS_sched_getattr,
        &[output(1, Size::Argument(2), Written::Changed)],
    ),
    (libc::SYS_sched_rr_get_interval, &[structure(1, 16)]),
    (libc::SYS_getitimer, &[structure(1, 32)]),
    (libc::SYS_setitimer, &[structure(2, 32)]),
    (libc::SYS_timer_create, &[structure(2, 4)]),
    (libc::SYS_timer_settime, &[structure(3, 32)]),
    (libc::SYS_timer_gettime, &[structure(1, 32)]),
    (libc::SYS_timerfd_settime, &[structure(3, 32)]),
    (libc::SYS_timerfd_gettime, &[structure(1, 32)]),
    (libc::SYS_rt_sigpending, &[output(0, Size::Argument(1), Written::All)]),
    (
        libc::SYS_rt_sigtimedwait,
        &[output(1, Size::Bytes(size_of::<siginfo_t>() as u32), Written::Found)],
    ),
    (libc::SYS_mq_timedreceive, &[filled(1), structure(3, 4)]),
    (libc::SYS_mq_getsetattr, &[structure(2, 64)]),
    // The message is preceded by its type.
    (
        libc::SYS_msgrcv,
        &[output(1, Size::Argument(2), Written::Returned(1, 8))],
    ),
    (libc::SYS_msgctl, &[updated(2, 120)]),
    (libc::SYS_shmctl, &[updated(2, 112)]),
    (libc::SYS_semctl, &[updated(3, 104)]),
    (libc::SYS_prctl, &[updated(1, 16)]),
    (libc::SYS_arch_prctl, &[updated(1, 8)]),
    (libc::SYS_io_setup, &[updated(1, 8)]),
    (
        libc::SYS_io_getevents,
        &[output(3, Size::Elements(2, 32), Written::Returned(32, 0))],
    ),
];

/// Those operations of `futex` that make the kernel write a futex word, at the first or the fifth argument.
pub const FUTEX_WRITING: [u32; 7] = [
    libc::FUTEX_WAKE_OP as u32,
    libc::FUTEX_LOCK_PI as u32,
    libc::FUTEX_UNLOCK_PI as u32,
    libc::FUTEX_TRYLOCK_PI as u32,
    libc::FUTEX_WAIT_REQUEUE_PI as u32,
    libc::FUTEX_CMP_REQUEUE_PI as u32,
    13, // FUTEX_LOCK_PI2
];
pub const FUTEX_COMMAND: u32 = 0x7f;
const FUTEX_WORDS: [usize; 2] = [0, 4];

// --- The filters ------------------------------------------------------------------------------------------------------

/// Comes with our traps in `si_errno`, so that those of a filter of the program's are told apart.
const OURS: u32 = 0xc9af;
pub const TRAP: u32 = libc::SECCOMP_RET_TRAP | OURS;

/// The sixth argument of a write that the handler makes. The kernel does not look at it, the filters for output do.
const UNTRAPPED: u64 = 0xc9af_5157_a11b_e9d3;
const LAST_ARGUMENT: usize = 5;

pub type Instruction = libc::sock_filter;

pub mod bpf {
    use super::Instruction;

    pub const NUMBER: u32 = 0;
    pub const ARCHITECTURE: u32 = 4;
    pub const INSTRUCTION_POINTER: u32 = 8;
    pub const X86_64: u32 = 0xc000_003e;

    pub const fn argument(index: usize) -> u32 {
        16 + 8 * index as u32
    }

    const fn plain(code: u32, k: u32) -> Instruction {
        Instruction {
            code: code as u16,
            jt: 0,
            jf: 0,
            k,
        }
    }

    const fn jump(condition: u32, k: u32, jt: u8, jf: u8) -> Instruction {
        Instruction {
            code: (libc::BPF_JMP | condition | libc::BPF_K) as u16,
            jt,
            jf,
            k,
        }
    }

    pub const fn load(offset: u32) -> Instruction {
        plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
    }

    pub const fn and(k: u32) -> Instruction {
        plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, k)
    }

    pub const fn go(by: u32) -> Instruction {
        plain(libc::BPF_JMP | libc::BPF_JA, by)
    }

    pub const fn answer(k: u32) -> Instruction {
        plain(libc::BPF_RET | libc::BPF_K, k)
    }

    pub const fn equal(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JEQ, k, jt, jf)
    }

    pub const fn at_least(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JGE, k, jt, jf)
    }

    pub const fn above(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JGT, k, jt, jf)
    }
}

/// A filter being written; on the stack, since it is made before the program has run.
pub struct Filter {
    code: [Instruction; Filter::MOST],
    len: usize,
}

impl Filter {
    const MOST: usize = 1024;

    /// Lets everything pass that is not an x86-64 call, and has the call's number loaded.
    pub fn new() -> Filter {
        let mut filter = Filter {
            code: [bpf::answer(libc::SECCOMP_RET_ALLOW); Filter::MOST],
            len: 0,
        };
        filter.push(bpf::load(bpf::ARCHITECTURE));
        filter.push(bpf::equal(bpf::X86_64, 1, 0));
        filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        filter.push(bpf::load(bpf::NUMBER));
        filter
    }

    pub fn push(&mut self, instruction: Instruction) {
        // Too long a filter is refused by `install`.
        if let Some(place) = self.code.get_mut(self.len) {
            *place = instruction;
        }
        self.len += 1;
    }

    /// If the call's number is one of these, what `body` writes decides; behind it the number is still loaded.
    pub fn case(&mut self, numbers: impl ExactSizeIterator<Item = i64>, body: impl FnOnce(&mut Filter)) {
        let count = numbers.len();
        for (i, number) in numbers.enumerate() {
            self.push(bpf::equal(number as u32, (count - i) as u8, 0));
        }
        let over = self.len;
        self.push(bpf::go(0));
        body(self);
        self.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        let by = self.len - over - 1;
        if let Some(place) = self.code.get_mut(over) {
            *place = bpf::go(by as u32);
        }
    }

    /// Traps if the 64-bit word at `offset` lies in [low, high).
    pub fn trap_within(&mut self, offset: u32, low: u64, high: u64) {
        let (last_high, last_low) = (((high - 1) >> 32) as u32, (high - 1) as u32);
        let (first_high, first_low) = ((low >> 32) as u32, low as u32);
        if first_low == 0 && last_low == u32::MAX {
            // As for the range of views: the upper half tells. Short filters are faster to set.
            for instruction in [
                bpf::load(offset + 4),
                bpf::at_least(first_high, 0, 2),
                bpf::above(last_high, 1, 0),
                bpf::answer(TRAP),
            ] {
                self.push(instruction);
            }
            return;
        }
        for instruction in [
            bpf::load(offset + 4),
            bpf::at_least(first_high, 0, 9),
            bpf::above(last_high, 8, 0),
            bpf::equal(first_high, 0, 2),
            bpf::load(offset),
            bpf::at_least(first_low, 0, 5),
            bpf::load(offset + 4),
            bpf::equal(last_high, 0, 2),
            bpf::load(offset),
            bpf::above(last_low, 1, 0),
            bpf::answer(TRAP),
        ] {
            self.push(instruction);
        }
    }

    /// Traps each call that writes to a buffer in [low, high).
    fn for_buffers(low: u64, high: u64) -> Filter {
        let mut filter = Filter::new();
        // Calls with buffers at the same arguments share their tests.
        let arguments = |call: &(i64, &[Output])| call.1.iter().fold(0u8, |set, o| set | 1 << o.argument);
        let mut seen = [false; 64];
        for call in CALLS {
            let set = arguments(call);
            if std::mem::replace(&mut seen[set as usize], true) {
                continue;
            }
            let mut group = [0i64; 48];
            let mut count = 0;
            for other in CALLS.iter().filter(|c| arguments(c) == set).take(group.len()) {
                group[count] = other.0;
                count += 1;
            }
            filter.case(group[..count].iter().copied(), |filter| {
                for argument in (0..6).filter(|a| set & 1 << a != 0) {
                    filter.trap_within(bpf::argument(argument), low, high);
                }
            });
        }
        filter.case([libc::SYS_futex].into_iter(), |filter| {
            filter.push(bpf::load(bpf::argument(1)));
            filter.push(bpf::and(FUTEX_COMMAND));
            let count = FUTEX_WRITING.len();
            for (i, &operation) in FUTEX_WRITING.iter().enumerate() {
                filter.push(bpf::equal(operation, (count - i) as u8, 0));
            }
            filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
            for word in FUTEX_WORDS {
                filter.trap_within(bpf::argument(word), low, high);
            }
        });
        filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        filter
    }

    /// Traps writes to stdout, stderr and a driver's results by the code in [low, high).
    fn for_output(low: u64, high: u64) -> Filter {
        let mut filter = Filter::new();
        filter.case([libc::SYS_write, libc::SYS_writev].into_iter(), |filter| {
            filter.push(bpf::load(bpf::argument(0)));
            filter.push(bpf::equal(1, 3, 0));
            filter.push(bpf::equal(2, 2, 0));
            filter.push(bpf::equal(RESULTS, 1, 0));
            filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
            for instruction in [
                bpf::load(bpf::argument(LAST_ARGUMENT)),
                bpf::equal(UNTRAPPED as u32, 0, 3),
                bpf::load(bpf::argument(LAST_ARGUMENT) + 4),
                bpf::equal((UNTRAPPED >> 32) as u32, 0, 1),
                bpf::answer(libc::SECCOMP_RET_ALLOW),
            ] {
                filter.push(instruction);
            }
            filter.trap_within(bpf::INSTRUCTION_POINTER, low, high);
        });
        filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        filter
    }

    pub fn install(&self) -> Result<(), i32> {
        if self.len > Filter::MOST {
            return Err(libc::E2BIG);
        }
        let program = libc::sock_fprog {
            len: self.len as u16,
            filter: self.code.as_ptr().cast_mut(),
        };
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        let arguments = [
            libc::SECCOMP_SET_MODE_FILTER as u64,
            flags,
            &raw const program as u64,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel reads the program.
        let install = || unsafe { sys::syscall(libc::SYS_seccomp, arguments) };
        let mut result = install();
        if result == Err(libc::EACCES) {
            // SAFETY: no pointers. Without privileges a filter may only be set by a process that can gain none.
            unsafe { sys::syscall(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0]) }?;
            result = install();
        }
        match result? {
            0 => Ok(()),
            // The id of a thread that could not be synchronised.
            _ => Err(libc::EBUSY),
        }
    }
}

static INSTALLED: AtomicBool = AtomicBool::new(false);
/// libc's code.
static LIBC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up libc's functions.
pub fn resolve() {
    let all: [&dyn Resolve; 20] = [
        &NEXT_AIO_READ,
        &NEXT_AIO_WRITE,
        &NEXT_LIO_LISTIO,
        &NEXT_PROCESS_VM_WRITEV,
        &NEXT_WRITE,
        &NEXT_PWRITE,
        &NEXT_WRITEV,
        &NEXT_PWRITEV,
        &NEXT_PWRITEV2,
        &NEXT_SEND,
        &NEXT_SENDTO,
        &NEXT_SENDMSG,
        &NEXT_SENDMMSG,
        &NEXT_READV,
        &NEXT_PREADV,
        &NEXT_PREADV2,
        &NEXT_RECVMSG,
        &NEXT_RECVMMSG,
        &NEXT_PROCESS_VM_READV,
        &NEXT_SYSCALL,
    ];
    all.iter().for_each(|next| next.resolve());
}

/// Sets the filters. Our SIGSYS handler is in place.
pub fn install() -> Result<(), i32> {
    if watch::active() {
        watch::calls::install()?;
    } else {
        let (low, high) = pm::view_range();
        if !inherited(low) {
            Filter::for_buffers(low, high).install()?;
        }
        let (low, high) = libc_code().ok_or(libc::ENOENT)?;
        LIBC[0].store(low, Ordering::Relaxed);
        LIBC[1].store(high, Ordering::Relaxed);
        Filter::for_output(low, high).install()?;
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Whether a filter for buffers at `address` came with the program that executed this one.
fn inherited(address: u64) -> bool {
    threads::current().probing = true;
    // SAFETY: nothing is read from no file; the kernel answers EBADF, or our handler 1.
    let answer = unsafe { sys::syscall(libc::SYS_read, [u64::MAX, address, 0, 0, 0, 0]) };
    threads::current().probing = false;
    answer == Ok(1)
}

/// The ranges outside the reserved one that have a filter. Filters are never removed, so a range that comes back has one.
struct Ranges {
    lock: Spin,
    known: UnsafeCell<[(u64, u64); Ranges::MOST]>,
}

impl Ranges {
    /// More filters than that would cost every system call of the program too much; the kernel's limit is not far.
    const MOST: usize = 32;
}

// SAFETY: `known` is only touched with the lock held.
unsafe impl Sync for Ranges {}

static RANGES: Ranges = Ranges {
    lock: Spin::new(),
    known: UnsafeCell::new([(0, 0); Ranges::MOST]),
};

/// A view outside the reserved range: one more filter. The caller has signals blocked.
pub fn add_view_range(low: u64, high: u64) {
    if !INSTALLED.load(Ordering::Acquire) {
        return;
    }
    let added = {
        let _held = RANGES.lock.lock();
        // SAFETY: the lock is held.
        let known = unsafe { &mut *RANGES.known.get() };
        if known.iter().any(|&(l, h)| l <= low && high <= h) {
            return;
        }
        known.iter_mut().find(|range| range.1 == 0).is_some_and(|free| {
            *free = (low, high);
            let filter = if watch::active() {
                watch::calls::filter(low, high)
            } else {
                Filter::for_buffers(low, high)
            };
            filter.install().is_ok()
        })
    };
    if !added {
        log::incomplete(
            INCOMPLETE_LIMIT,
            b"too many PM mappings at addresses of the program's choice: a system call that writes there may fail",
        );
        watch::unwatched(crashproof_wire::recovery::UNWATCHED_OTHER);
    }
}

/// A forked child: no other thread can hold the ranges.
pub fn reset_after_fork() {
    RANGES.lock.reset();
}

/// Where libc's code is.
pub fn libc_code() -> Option<(u64, u64)> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
        // SAFETY: the loader's description of a module, and the caller's pair.
        unsafe {
            let (info, found) = (&*info, &mut *found.cast::<(u64, u64, u64)>());
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
            for header in headers
                .iter()
                .filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0)
            {
                let low = info.dlpi_addr + header.p_vaddr;
                let high = low + header.p_memsz;
                if (low..high).contains(&found.2) {
                    (found.0, found.1) = (low, high);
                    return 1;
                }
            }
        }
        0
    }
    // Never interposed by us, so it is libc's own.
    let inside = libc::gnu_get_libc_version as *const () as u64;
    let mut found = (0u64, 0u64, inside);
    // SAFETY: the callback gets what it expects.
    let status = unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    (status == 1).then_some((found.0, found.1))
}

// --- The trap -----------------------------------------------------------------------------------------------------------

/// SIGSYS. True: one of our filters raised it, and the call is made.
pub fn trap(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    const SYS_SECCOMP: c_int = 1;
    if info.si_code != SYS_SECCOMP || info.si_errno != OURS as c_int {
        return false;
    }
    if threads::current().probing {
        uc.uc_mcontext.gregs[libc::REG_RAX as usize] = 1;
        return true;
    }
    let rip = uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    if let Some(origin) = raw::origin(rip) {
        uc.uc_mcontext.gregs[libc::REG_RIP as usize] = origin as i64;
    }
    let (mask, entry) = (*signals::mask_of(uc), emulate as *const () as usize);
    let [low, high] = LIBC.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    let alternate = !(low..high).contains(&rip) && raw::wants_alternate_stack();
    if !signals::enter_handler(libc::SIGSYS, info, uc, entry, mask, alternate) {
        // No room on the program's stack: here, then, with signals blocked.
        emulate(libc::SIGSYS, info, uc);
    }
    true
}

/// Makes the trapped call. Runs like a handler of the program's; a signal or a cancellation may take it off the stack.
extern "C-unwind" fn emulate(_: c_int, _: *const siginfo_t, uc: *mut ucontext_t) {
    // SAFETY: the frame that `enter_handler` laid.
    let uc = unsafe { &mut *uc };
    let (number, arguments) = (uc.uc_mcontext.gregs[libc::REG_RAX as usize], raw::arguments(uc));
    let result = match watch::recovery() {
        Some(recovery) => watch::calls::perform(recovery, number, arguments),
        None => recorded_call(number, arguments, uc),
    };
    uc.uc_mcontext.gregs[libc::REG_RAX as usize] = match result {
        Ok(value) => value as i64,
        Err(errno) => -errno as i64,
    };
}

fn recorded_call(number: i64, arguments: [u64; 6], uc: &ucontext_t) -> Result<u64, i32> {
    match number {
        libc::SYS_write | libc::SYS_writev => output_call(number, arguments),
        libc::SYS_futex => futex(arguments, uc),
        _ => match CALLS.iter().find(|call| call.0 == number) {
            Some((_, outputs)) => bounced_call(number, arguments, outputs, uc),
            // SAFETY: the program's call.
            None => unsafe { sys::syscall(number, arguments) },
        },
    }
}

fn output_call(number: i64, mut arguments: [u64; 6]) -> Result<u64, i32> {
    arguments[LAST_ARGUMENT] = UNTRAPPED;
    // SAFETY: the program's call, which has three arguments.
    let written = unsafe { sys::syscall(number, arguments) }?;
    let Some(fd) = shown_as(arguments[0] as u32, written) else {
        return Ok(written);
    };
    let whole = iovec {
        iov_base: arguments[1] as *mut c_void,
        iov_len: arguments[2] as usize,
    };
    let parts = if number == libc::SYS_write {
        std::slice::from_ref(&whole)
    } else {
        // SAFETY: the kernel has just read this array.
        unsafe { std::slice::from_raw_parts(arguments[1] as *const iovec, arguments[2] as usize) }
    };
    sys::without_signals(|| each_part(parts, written as usize, |data, _| log::output(fd, data)));
    Ok(written)
}

/// The descriptor under which a write is logged; none if it is no output. See [`RESULTS`].
fn shown_as(fd: u32, written: u64) -> Option<u32> {
    static SEPARATED: AtomicBool = AtomicBool::new(false);
    const STDOUT: u32 = libc::STDOUT_FILENO as u32;
    if fd == RESULTS && written == 0 {
        SEPARATED.store(true, Ordering::Relaxed);
    }
    match (fd, SEPARATED.load(Ordering::Relaxed)) {
        (RESULTS, separated) => separated.then_some(STDOUT),
        (STDOUT, true) => Some(libc::STDERR_FILENO as u32),
        (other, _) => Some(other),
    }
}

/// The first `total` bytes of a gathered write, part by part, each with its distance from the first.
fn each_part(parts: &[iovec], total: usize, mut f: impl FnMut(&[u8], u64)) {
    let mut done = 0;
    for part in parts {
        let n = part.iov_len.min(total - done);
        if n > 0 {
            // SAFETY: the kernel has just read these bytes.
            f(
                unsafe { std::slice::from_raw_parts(part.iov_base.cast(), n) },
                done as u64,
            );
        }
        done += n;
    }
}

/// A futex whose word the kernel writes: on the alias; then what the word holds is logged.
fn futex(mut arguments: [u64; 6], uc: &ucontext_t) -> Result<u64, i32> {
    let words = FUTEX_WORDS.map(|i| {
        pm::find(arguments[i])
            .filter(|r| r.writable())
            .map(|r| (arguments[i], r))
    });
    for (i, word) in FUTEX_WORDS.into_iter().zip(&words) {
        if let Some((address, region)) = word {
            arguments[i] = address.wrapping_add_signed(region.delta);
        }
    }
    // SAFETY: the program's call, on the same words.
    let result = unsafe { sys::syscall(libc::SYS_futex, arguments) };
    sys::without_signals(|| {
        let Some(session) = log::session() else { return };
        let stack = log::stack_of_syscall(uc);
        for (address, region) in words.into_iter().flatten() {
            let place = region.place(address);
            let _locks = pm::LineLocks::take(session, std::iter::once((place, 4)));
            // SAFETY: the alias of a futex word that the kernel has just used; its line is locked.
            let word = unsafe { *(address.wrapping_add_signed(region.delta) as *const u32) };
            log::store(stack, place, STORE_SYSCALL, &word.to_le_bytes());
        }
    });
    result
}

/// How much of a buffer that begins in PM, or runs into it, can be written: the kernel fills what is there.
fn writable_len(buffer: u64, len: u64) -> u64 {
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
fn bounced_call(number: i64, mut given: [u64; 6], outputs: &[Output], uc: &ucontext_t) -> Result<u64, i32> {
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
pub fn buffer_len(output: &Output, arguments: &[u64; 6]) -> usize {
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
struct Bounce {
    memory: u64,
    size: u64,
    used: u64,
    /// It is the thread's own, kept for the next call.
    kept: bool,
}

impl Bounce {
    /// What a thread keeps.
    const KEPT: u64 = 64 << 10;

    fn room(len: usize) -> u64 {
        (len as u64).next_multiple_of(16)
    }

    fn new(size: u64) -> Result<Bounce, i32> {
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
    fn buffer(&mut self, len: usize) -> u64 {
        let at = self.memory + self.used;
        self.used += Bounce::room(len);
        debug_assert!(self.used <= self.size);
        at
    }

    fn free(self) {
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
fn store(target: u64, data: &[u8], stack: u64) -> Result<(), i32> {
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
fn store_changed(target: u64, data: &[u8], stack: u64) -> Result<(), i32> {
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

// --- Interposed: indirect buffers -----------------------------------------------------------------------------------------

fn in_pm(address: *mut c_void, len: usize) -> bool {
    let (address, len) = (address as u64, len as u64);
    len > 0 && !watch::active() && (pm::contains(address, len) || registered::contains(address, len))
}

unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if parts.is_null() || count > libc::UIO_MAXIOV as usize {
        return &[];
    }
    // SAFETY: the program's array, of the length it gave.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// A scattered read whose parts lie in PM: `read` is called with bounce buffers, and what it read is stored.
fn scattered(given: &[iovec], read: impl FnOnce(*const iovec) -> ssize_t, stack: impl FnOnce() -> u64) -> ssize_t {
    let writable = |part: &iovec| match in_pm(part.iov_base, part.iov_len) {
        true => Bounce::room(writable_len(part.iov_base as u64, part.iov_len as u64) as usize),
        false => 0,
    };
    let room = Bounce::room(size_of_val(given)) + given.iter().map(writable).sum::<u64>();
    let Ok(mut bounce) = Bounce::new(room) else {
        return sys::to_libc(Err(libc::ENOMEM)) as ssize_t;
    };
    let own = redirect(given, &mut bounce, true);
    let total = read(own.as_ptr());
    let stored = match total {
        1.. => sys::without_signals(|| store_parts(given, own, total as usize, stack())),
        _ => Ok(()),
    };
    bounce.free();
    stored.map_or_else(|errno| sys::to_libc(Err(errno)) as ssize_t, |()| total)
}

/// The same parts in bounce buffers, where they are in PM. If `cut`, they end where they cannot be written.
fn redirect<'a>(given: &[iovec], bounce: &mut Bounce, cut: bool) -> &'a [iovec] {
    let at = bounce.buffer(size_of_val(given)) as *mut iovec;
    let mut over = false;
    for (i, part) in given.iter().enumerate() {
        let (mut base, mut len) = (part.iov_base, if over { 0 } else { part.iov_len });
        if in_pm(base, len) {
            if cut {
                len = writable_len(base as u64, len as u64) as usize;
                over = len < part.iov_len;
            }
            base = match len {
                // Nothing is there, either: the kernel says what is wrong, or ends before it.
                0 => {
                    len = part.iov_len;
                    std::ptr::dangling_mut()
                }
                _ => bounce.buffer(len) as *mut c_void,
            };
        }
        // SAFETY: `at` has room for as many parts as were given.
        unsafe {
            at.add(i).write(iovec {
                iov_base: base,
                iov_len: len,
            })
        };
    }
    // SAFETY: filled just now.
    unsafe { std::slice::from_raw_parts(at, given.len()) }
}

/// Stores the first `total` bytes of what was read into `own` to the parts that the program gave.
fn store_parts(given: &[iovec], own: &[iovec], total: usize, stack: u64) -> Result<(), i32> {
    let mut left = total;
    for (given, own) in given.iter().zip(own) {
        let n = given.iov_len.min(left);
        if given.iov_base != own.iov_base {
            // SAFETY: a bounce buffer of that length.
            store(
                given.iov_base as u64,
                unsafe { std::slice::from_raw_parts(own.iov_base.cast(), n) },
                stack,
            )?;
        }
        left -= n;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_readv, buffers as u64, count as u64) {
            return NEXT_READV.get()(fd, buffers, count);
        }
        let given = parts(buffers, count as usize);
        scattered(given, |buffers| NEXT_READV.get()(fd, buffers, count), log::stack_here)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_preadv, buffers as u64, count as u64) {
            return NEXT_PREADV.get()(fd, buffers, count, offset);
        }
        scattered(
            parts(buffers, count as usize),
            |buffers| NEXT_PREADV.get()(fd, buffers, count, offset),
            log::stack_here,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { preadv(fd, buffers, count, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_preadv2, buffers as u64, n as u64) {
            return NEXT_PREADV2.get()(fd, buffers, n, offset, flags);
        }
        scattered(
            parts(buffers, n as usize),
            |buffers| NEXT_PREADV2.get()(fd, buffers, n, offset, flags),
            log::stack_here,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(fd: c_int, buffers: *const iovec, n: c_int, offset: off_t, f: c_int) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { preadv2(fd, buffers, n, offset, f) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn process_vm_readv(
    process: libc::pid_t,
    local: *const iovec,
    local_count: libc::c_ulong,
    remote: *const iovec,
    remote_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if let Some(recovery) = watch::recovery() {
            let arguments = [
                process as u64,
                local as u64,
                local_count,
                remote as u64,
                remote_count,
                flags,
            ];
            let result = watch::calls::perform(recovery, libc::SYS_process_vm_readv, arguments);
            return sys::to_libc(result) as ssize_t;
        }
        let read = |local| NEXT_PROCESS_VM_READV.get()(process, local, local_count, remote, remote_count, flags);
        if is_into_pm(libc::SYS_process_vm_readv, local as u64, local_count) {
            scattered(parts(local, local_count as usize), read, log::stack_here)
        } else {
            read(local)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn process_vm_writev(
    process: libc::pid_t,
    local: *const iovec,
    local_count: libc::c_ulong,
    remote: *const iovec,
    remote_count: libc::c_ulong,
    flags: libc::c_ulong,
) -> ssize_t {
    let arguments = [
        process as u64,
        local as u64,
        local_count,
        remote as u64,
        remote_count,
        flags,
    ];
    match watch::recovery() {
        Some(recovery) => {
            sys::to_libc(watch::calls::perform(recovery, libc::SYS_process_vm_writev, arguments)) as ssize_t
        }
        // SAFETY: the program's call.
        None => unsafe { NEXT_PROCESS_VM_WRITEV.get()(process, local, local_count, remote, remote_count, flags) },
    }
}

/// A message whose parts are redirected, and what is needed to store what it received.
struct Redirected {
    given: *mut msghdr,
    own: msghdr,
}

impl Redirected {
    unsafe fn room(message: &msghdr) -> u64 {
        // SAFETY: the program's message.
        let buffers = unsafe { parts(message.msg_iov, message.msg_iovlen) };
        Bounce::room(size_of_val(buffers))
            + buffers.iter().map(|p| Bounce::room(p.iov_len)).sum::<u64>()
            + Bounce::room(message.msg_namelen as usize)
            + Bounce::room(message.msg_controllen)
    }

    unsafe fn new(given: *mut msghdr, bounce: &mut Bounce) -> Redirected {
        // SAFETY: the program's message.
        unsafe {
            let mut own = *given;
            own.msg_iov = redirect(parts(own.msg_iov, own.msg_iovlen), bounce, false)
                .as_ptr()
                .cast_mut();
            for (buffer, len) in [
                (&mut own.msg_name, own.msg_namelen as usize),
                (&mut own.msg_control, own.msg_controllen),
            ] {
                if in_pm(*buffer, len) {
                    *buffer = bounce.buffer(len) as *mut c_void;
                }
            }
            Redirected { given, own }
        }
    }

    /// Stores what was received: `total` bytes of data, name, control data, and the message's own fields.
    unsafe fn store(&self, total: usize, stack: u64) -> Result<(), i32> {
        // SAFETY: the program's message, and buffers of the lengths that the kernel reports at most.
        unsafe {
            let given = *self.given;
            let buffers = parts(given.msg_iov, given.msg_iovlen);
            store_parts(buffers, parts(self.own.msg_iov, self.own.msg_iovlen), total, stack)?;
            let name = (
                given.msg_name,
                self.own.msg_name,
                given.msg_namelen.min(self.own.msg_namelen) as usize,
            );
            let control = (
                given.msg_control,
                self.own.msg_control,
                given.msg_controllen.min(self.own.msg_controllen),
            );
            for (given, own, len) in [name, control] {
                if given != own {
                    store(given as u64, std::slice::from_raw_parts(own.cast(), len), stack)?;
                }
            }
            let mut header = given;
            header.msg_namelen = self.own.msg_namelen;
            header.msg_controllen = self.own.msg_controllen;
            header.msg_flags = self.own.msg_flags;
            let bytes = std::slice::from_raw_parts((&raw const header).cast(), size_of::<msghdr>());
            store_changed(self.given as u64, bytes, stack)
        }
    }
}

/// Receives a message some of which lies in PM: `receive` is called with one that has bounce buffers.
unsafe fn received(
    message: *mut msghdr,
    receive: impl FnOnce(*mut msghdr) -> ssize_t,
    stack: impl FnOnce() -> u64,
) -> ssize_t {
    // SAFETY: the program's message.
    unsafe {
        let Ok(mut bounce) = Bounce::new(Redirected::room(&*message)) else {
            return sys::to_libc(Err(libc::ENOMEM)) as ssize_t;
        };
        let mut redirected = Redirected::new(message, &mut bounce);
        let total = receive(&mut redirected.own);
        let stored = match total {
            0.. => sys::without_signals(|| redirected.store(total as usize, stack())),
            _ => Ok(()),
        };
        bounce.free();
        stored.map_or_else(|errno| sys::to_libc(Err(errno)) as ssize_t, |()| total)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_recvmsg, message as u64, 1) {
            return NEXT_RECVMSG.get()(fd, message, flags);
        }
        received(
            message,
            |message| NEXT_RECVMSG.get()(fd, message, flags),
            log::stack_here,
        )
    }
}

/// The same for several messages.
unsafe fn received_many(
    given: &mut [mmsghdr],
    receive: impl FnOnce(*mut mmsghdr) -> c_int,
    stack: impl FnOnce() -> u64,
) -> c_int {
    // SAFETY: the program's messages.
    unsafe {
        let room = Bounce::room(size_of_val(given)) + given.iter().map(|m| Redirected::room(&m.msg_hdr)).sum::<u64>();
        let Ok(mut bounce) = Bounce::new(room) else {
            return sys::to_libc(Err(libc::ENOMEM)) as c_int;
        };
        let own = bounce.buffer(size_of_val(given)) as *mut mmsghdr;
        for (i, message) in given.iter_mut().enumerate() {
            let redirected = Redirected::new(&mut message.msg_hdr, &mut bounce);
            own.add(i).write(mmsghdr {
                msg_hdr: redirected.own,
                msg_len: 0,
            });
        }
        let received = receive(own);
        let stored: Result<(), i32> = sys::without_signals(|| {
            let stack = stack();
            for (i, message) in given.iter_mut().enumerate().take(received.max(0) as usize) {
                let mmsghdr { msg_hdr, msg_len } = *own.add(i);
                Redirected {
                    given: &mut message.msg_hdr,
                    own: msg_hdr,
                }
                .store(msg_len as usize, stack)?;
                store_changed(&raw const message.msg_len as u64, &msg_len.to_le_bytes(), stack)?;
            }
            Ok(())
        });
        bounce.free();
        stored.map_or_else(|errno| sys::to_libc(Err(errno)) as c_int, |()| received)
    }
}

/// The kernel takes no more than this at once.
const MOST_MESSAGES: libc::c_uint = 1024;

unsafe fn messages<'a>(messages: *mut mmsghdr, count: libc::c_uint) -> &'a mut [mmsghdr] {
    if messages.is_null() {
        return &mut [];
    }
    // SAFETY: the program's array, of the length it gave.
    unsafe { std::slice::from_raw_parts_mut(messages, count.min(MOST_MESSAGES) as usize) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    list: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        if !is_into_pm(libc::SYS_recvmmsg, list as u64, count as u64) {
            return NEXT_RECVMMSG.get()(fd, list, count, flags, timeout);
        }
        let given = messages(list, count);
        let count = given.len() as libc::c_uint;
        let receive = |list| NEXT_RECVMMSG.get()(fd, list, count, flags, timeout);
        received_many(given, receive, log::stack_here)
    }
}

/// The calls that find their buffers by an array or a message of the program's, which a filter cannot read.
pub const INDIRECT: [i64; 6] = [
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_process_vm_readv,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// Whether one of [`INDIRECT`], with this array or message, writes to PM. What it points to may not be there: then it does not, and
/// the kernel says what is wrong.
pub fn is_into_pm(number: i64, at: u64, count: u64) -> bool {
    if pm::first_after(0).is_none() && !registered::any() {
        return false;
    }
    let into_pm = match number {
        libc::SYS_recvmsg => message_into_pm::<msghdr>(at, |message| message),
        libc::SYS_recvmmsg => {
            let count = count as libc::c_uint as u64;
            any_readable(count.min(MOST_MESSAGES as u64), |i| {
                message_into_pm::<mmsghdr>(at.checked_add(i * size_of::<mmsghdr>() as u64)?, |message| {
                    message.msg_hdr
                })
            })
        }
        _ => parts_into_pm(at, count),
    };
    into_pm == Some(true)
}

/// Whether it holds of any; `None`: one of them cannot be read.
fn any_readable(count: u64, holds: impl Fn(u64) -> Option<bool>) -> Option<bool> {
    (0..count).try_fold(false, |any, i| Some(any | holds(i)?))
}

fn message_into_pm<T: Copy>(at: u64, header: impl Fn(T) -> msghdr) -> Option<bool> {
    let message = header(raw::read::<T>(at).ok()??);
    let into_pm = in_pm(at as *mut c_void, size_of::<T>())
        || in_pm(message.msg_name, message.msg_namelen as usize)
        || in_pm(message.msg_control, message.msg_controllen);
    Some(into_pm | parts_into_pm(message.msg_iov as u64, message.msg_iovlen as u64)?)
}

fn parts_into_pm(at: u64, count: u64) -> Option<bool> {
    if count > libc::UIO_MAXIOV as u64 {
        return None;
    }
    const AT_ONCE: usize = 16;
    let mut into_pm = false;
    for first in (0..count).step_by(AT_ONCE) {
        let mut read = [MaybeUninit::<iovec>::zeroed(); AT_ONCE];
        let read = &mut read[..((count - first) as usize).min(AT_ONCE)];
        // SAFETY: plain bytes, all of them initialised.
        let bytes = unsafe { std::slice::from_raw_parts_mut(read.as_mut_ptr().cast::<u8>(), size_of_val(read)) };
        let there = sys::read_memory(at.checked_add(first * size_of::<iovec>() as u64)?, bytes);
        if !there {
            return None;
        }
        into_pm |= read.iter().any(|part| {
            // SAFETY: zeros, or what the program has there: any bytes are an `iovec`.
            let part = unsafe { part.assume_init() };
            in_pm(part.iov_base, part.iov_len)
        });
        // SAFETY: as above.
        if read
            .iter()
            .any(|part| unsafe { part.assume_init() }.iov_len > isize::MAX as usize)
        {
            return None;
        }
    }
    Some(into_pm)
}

/// Makes one of [`INDIRECT`] that [`is_into_pm`], as libc's function for it does.
///
/// # Safety
/// The program's call, with its arguments.
pub unsafe fn indirect(number: i64, given: [u64; 6], stack: impl FnOnce() -> u64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        let call = |at: u64| {
            let mut arguments = given;
            arguments[1] = at;
            sys::to_libc(sys::syscall(number, arguments))
        };
        let [_, at, count, ..] = given;
        match number {
            libc::SYS_recvmsg => received(at as *mut msghdr, |message| call(message as u64) as ssize_t, stack) as i64,
            libc::SYS_recvmmsg => {
                let given = messages(at as *mut mmsghdr, count as libc::c_uint);
                received_many(given, |messages| call(messages as u64) as c_int, stack) as i64
            }
            _ => {
                let given = parts(at as *const iovec, count as usize);
                scattered(given, |buffers| call(buffers as u64) as ssize_t, stack) as i64
            }
        }
    }
}

/// libc reads and writes in a thread that has every signal blocked, where the filter's trap would kill the process. What
/// would be trapped is therefore done at once: it has ended when the call returns.
unsafe fn at_once(control: *mut libc::aiocb, transfer: [Transfer; 2]) {
    /// Where libc has the outcome, which its headers keep to themselves.
    const ERROR: usize = 112;
    const RESULT: usize = 120;
    // SAFETY: the program's control block.
    unsafe {
        let request = &*control;
        let (fd, buffer, len) = (request.aio_fildes, request.aio_buf, request.aio_nbytes);
        let errno = libc::__errno_location();
        let saved = *errno;
        let [at, here] = transfer;
        let mut result = at(fd, buffer, len, request.aio_offset);
        if result == -1 && *errno == libc::ESPIPE {
            result = here(fd, buffer, len, 0);
        }
        let failed = if result == -1 { *errno } else { 0 };
        *errno = saved;
        control.cast::<u8>().add(RESULT).cast::<ssize_t>().write(result);
        control.cast::<u8>().add(ERROR).cast::<c_int>().write(failed);
    }
}

/// At an offset, or at the file position.
type Transfer = unsafe fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;

const READ: [Transfer; 2] = [
    // SAFETY: the caller's promise, here and below.
    |fd, buffer, len, offset| unsafe { libc::pread(fd, buffer, len, offset) },
    |fd, buffer, len, _| unsafe { libc::read(fd, buffer, len) },
];

const WRITE: [Transfer; 2] = [
    // SAFETY: the caller's promise, here and below.
    |fd, buffer, len, offset| unsafe { pwrite(fd, buffer, len, offset) },
    |fd, buffer, len, _| unsafe { write(fd, buffer, len) },
];

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the program's control block. It is told of the end in the way that it asked for.
    unsafe {
        if !watch::active() && !in_pm((*control).aio_buf, (*control).aio_nbytes) {
            return NEXT_AIO_READ.get()(control);
        }
        at_once(control, READ);
        threads::notify(&(*control).aio_sigevent);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read64(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { aio_read(control) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write(control: *mut libc::aiocb) -> c_int {
    // SAFETY: as in `aio_read`.
    unsafe {
        if !watch::active() {
            return NEXT_AIO_WRITE.get()(control);
        }
        at_once(control, WRITE);
        threads::notify(&(*control).aio_sigevent);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write64(control: *mut libc::aiocb) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { aio_write(control) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: the program's list.
    unsafe {
        if !watch::active() {
            return NEXT_LIO_LISTIO.get()(mode, list, count, event);
        }
        for i in 0..count.max(0) as usize {
            let control = *list.add(i);
            match control.as_ref().map(|request| request.aio_lio_opcode) {
                Some(libc::LIO_READ) => at_once(control, READ),
                Some(libc::LIO_WRITE) => at_once(control, WRITE),
                _ => continue,
            }
            threads::notify(&(*control).aio_sigevent);
        }
        if let (libc::LIO_NOWAIT, Some(event)) = (mode, event.as_ref()) {
            threads::notify(event);
        }
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    event: *mut libc::sigevent,
) -> c_int {
    // SAFETY: the same function on a 64-bit system.
    unsafe { lio_listio(mode, list, count, event) }
}

// --- Interposed: output, and writes to PM files ---------------------------------------------------------------------------

/// Where a write puts its data.
#[derive(Clone, Copy)]
pub enum Destination {
    /// At the file position, which is behind the data then.
    Position,
    /// At this offset, unless the descriptor or these flags (`RWF_*`) append: Linux then disregards the offset.
    Offset(off_t, c_int),
}

impl Destination {
    /// Where the data of a successful write begins. `size`: the file's, after the write.
    fn start(self, fd: c_int, size: u64, written: u64) -> u64 {
        match self {
            // SAFETY: lseek by 0 reads the position.
            Destination::Position => unsafe {
                let position = sys::syscall(libc::SYS_lseek, [fd as u64, 0, libc::SEEK_CUR as u64, 0, 0, 0]);
                position.unwrap_or(0).saturating_sub(written)
            },
            Destination::Offset(_, flags) if appends(fd, flags) => size.saturating_sub(written),
            Destination::Offset(offset, _) => offset as u64,
        }
    }
}

fn appends(fd: c_int, flags: c_int) -> bool {
    /// From Linux 6.9 on; libc's headers lack it.
    const RWF_NOAPPEND: c_int = 0x20;
    let mode = || {
        // SAFETY: F_GETFL reads only.
        unsafe { sys::syscall(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0]) }
    };
    flags & libc::RWF_APPEND != 0
        || flags & RWF_NOAPPEND == 0 && mode().is_ok_and(|mode| mode as c_int & libc::O_APPEND != 0)
}

/// After a successful write: an output event if it went to a socket, a file event if it went to a PM file. What went to
/// stdout or stderr is seen by the filter.
fn wrote(fd: c_int, parts: &[iovec], total: ssize_t, destination: Destination) -> ssize_t {
    let Some(session) = log::session() else { return total };
    if total <= 0 || fd == 1 || fd == 2 {
        return total;
    }
    // SAFETY: all-zero is a valid stat; the kernel fills it.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { sys::syscall(libc::SYS_fstat, [fd as u64, &raw mut status as u64, 0, 0, 0, 0]) }.is_err() {
        return total;
    }
    match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => sent(fd, parts, total),
        libc::S_IFREG if may_be_pm(session, status.st_ino) => sys::without_signals(|| {
            let start = destination.start(fd, status.st_size as u64, total as u64);
            each_part(parts, total as usize, |data, at| {
                files::written(fd, data, Some(start + at))
            });
            total
        }),
        _ => total,
    }
}

/// Whether the trace may need what is written to this descriptor: a socket, or a PM file.
pub fn is_recorded(fd: c_int) -> bool {
    let Some((session, status)) = log::session().zip(sys::fstat(fd)) else {
        return false;
    };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => true,
        libc::S_IFREG => may_be_pm(session, status.st_ino),
        _ => false,
    }
}

/// After a successful write by an instruction of the program's.
pub fn wrote_raw(fd: c_int, parts: &[iovec], total: u64, destination: Destination) {
    if fd == 1 || fd == 2 {
        each_part(parts, total as usize, |data, _| log::output(fd as u32, data));
    } else {
        wrote(fd, parts, total as ssize_t, destination);
    }
}

/// Cheap, and sure only in its no: some PM file has this inode number.
fn may_be_pm(session: &Session, inode: u64) -> bool {
    let count = (session.next_file.load(Ordering::Acquire) as usize).min(session.files.len());
    session.files[..count]
        .iter()
        .any(|file| file.ino.load(Ordering::Relaxed) == inode)
}

/// After a successful send.
fn sent(fd: c_int, parts: &[iovec], total: ssize_t) -> ssize_t {
    if total > 0 && log::session().is_some() {
        sys::without_signals(|| each_part(parts, total as usize, |data, _| log::output(fd as u32, data)));
    }
    total
}

fn one(buffer: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    }]
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's call.
    wrote(
        fd,
        &one(buffer, len),
        unsafe { NEXT_WRITE.get()(fd, buffer, len) },
        Destination::Position,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the program's call.
    wrote(
        fd,
        &one(buffer, len),
        unsafe { NEXT_PWRITE.get()(fd, buffer, len, offset) },
        Destination::Offset(offset, 0),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwrite(fd, buffer, len, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        wrote(
            fd,
            parts(buffers, count as usize),
            NEXT_WRITEV.get()(fd, buffers, count),
            Destination::Position,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        wrote(
            fd,
            parts(buffers, count as usize),
            NEXT_PWRITEV.get()(fd, buffers, count, offset),
            Destination::Offset(offset, 0),
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwritev(fd, buffers, count, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let destination = match offset {
        -1 => Destination::Position,
        _ => Destination::Offset(offset, flags),
    };
    // SAFETY: the program's call.
    unsafe {
        wrote(
            fd,
            parts(buffers, n as usize),
            NEXT_PWRITEV2.get()(fd, buffers, n, offset, flags),
            destination,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    buffers: *const iovec,
    n: c_int,
    offset: off_t,
    f: c_int,
) -> ssize_t {
    // SAFETY: the same function on a 64-bit system.
    unsafe { pwritev2(fd, buffers, n, offset, f) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    sent(fd, &one(buffer, len), unsafe {
        NEXT_SEND.get()(fd, buffer, len, flags)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const libc::sockaddr,
    address_len: libc::socklen_t,
) -> ssize_t {
    // SAFETY: the program's call.
    sent(fd, &one(buffer, len), unsafe {
        NEXT_SENDTO.get()(fd, buffer, len, flags, address, address_len)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's call.
    unsafe {
        let total = NEXT_SENDMSG.get()(fd, message, flags);
        if total <= 0 {
            total
        } else {
            sent(fd, parts((*message).msg_iov, (*message).msg_iovlen), total)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: libc::c_uint, flags: c_int) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let done = NEXT_SENDMMSG.get()(fd, messages, count, flags);
        for i in 0..done.max(0) as usize {
            let message = &*messages.add(i);
            sent(
                fd,
                parts(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen),
                message.msg_len as ssize_t,
            );
        }
        done
    }
}

// --- Interposed: the call of everything ------------------------------------------------------------------------------------

/// The program may make by number the calls that have functions above; the others are as they were.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    // SAFETY: the program's call.
    unsafe {
        match number {
            number if INDIRECT.contains(&number) && is_into_pm(number, b, c) => {
                indirect(number, [a, b, c, d, e, f], log::stack_here)
            }
            libc::SYS_write => write(a as c_int, b as *const c_void, c as size_t) as i64,
            libc::SYS_pwrite64 => pwrite(a as c_int, b as *const c_void, c as size_t, d as off_t) as i64,
            libc::SYS_writev => writev(a as c_int, b as *const iovec, c as c_int) as i64,
            libc::SYS_pwritev => pwritev(a as c_int, b as *const iovec, c as c_int, d as off_t) as i64,
            libc::SYS_pwritev2 => pwritev2(a as c_int, b as *const iovec, c as c_int, d as off_t, f as c_int) as i64,
            libc::SYS_rt_sigprocmask if d == 8 => signals::raw_sigprocmask(a as c_int, b as *const u64, c as *mut u64),
            libc::SYS_rt_sigaction if d == 8 => {
                signals::raw_sigaction(a as c_int, b as *const c_void, c as *mut c_void)
            }
            libc::SYS_sigaltstack => signals::sigaltstack(a as *const libc::stack_t, b as *mut libc::stack_t) as i64,
            _ => {
                if let Some(result) = files::truncating(number, [a, b, c, d, e, f]) {
                    return sys::to_libc(result);
                }
                match files::by_number(number, [a, b, c, d, e, f]) {
                    Some(result) => result,
                    None => NEXT_SYSCALL.get()(number, a, b, c, d, e, f),
                }
            }
        }
    }
}

// --- libc's functions behind the interposed ones -------------------------------------------------------------------------

type Scattered = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type ScatteredAt = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type ScatteredFlags = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type Pwrite = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type Sendto =
    unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int, *const libc::sockaddr, libc::socklen_t) -> ssize_t;
type Sendmsg = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;
type Sendmmsg = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, libc::c_uint, c_int) -> c_int;
type Recvmsg = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> ssize_t;
type Recvmmsg = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, libc::c_uint, c_int, *mut libc::timespec) -> c_int;
type ProcessVm = unsafe extern "C" fn(
    libc::pid_t,
    *const iovec,
    libc::c_ulong,
    *const iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> ssize_t;
type Listio = unsafe extern "C" fn(c_int, *const *mut libc::aiocb, c_int, *mut libc::sigevent) -> c_int;
type Syscall = unsafe extern "C-unwind" fn(i64, u64, u64, u64, u64, u64, u64) -> i64;

// SAFETY: each with the type that libc's headers declare.
static NEXT_READV: Next<Scattered> = unsafe { Next::new(c"readv") };
static NEXT_PREADV: Next<ScatteredAt> = unsafe { Next::new(c"preadv") };
static NEXT_PREADV2: Next<ScatteredFlags> = unsafe { Next::new(c"preadv2") };
static NEXT_WRITE: Next<Write> = unsafe { Next::new(c"write") };
static NEXT_PWRITE: Next<Pwrite> = unsafe { Next::new(c"pwrite") };
static NEXT_WRITEV: Next<Scattered> = unsafe { Next::new(c"writev") };
static NEXT_PWRITEV: Next<ScatteredAt> = unsafe { Next::new(c"pwritev") };
static NEXT_PWRITEV2: Next<ScatteredFlags> = unsafe { Next::new(c"pwritev2") };
static NEXT_SEND: Next<Send> = unsafe { Next::new(c"send") };
static NEXT_SENDTO: Next<Sendto> = unsafe { Next::new(c"sendto") };
static NEXT_SENDMSG: Next<Sendmsg> = unsafe { Next::new(c"sendmsg") };
static NEXT_SENDMMSG: Next<Sendmmsg> = unsafe { Next::new(c"sendmmsg") };
static NEXT_RECVMSG: Next<Recvmsg> = unsafe { Next::new(c"recvmsg") };
static NEXT_RECVMMSG: Next<Recvmmsg> = unsafe { Next::new(c"recvmmsg") };
static NEXT_PROCESS_VM_READV: Next<ProcessVm> = unsafe { Next::new(c"process_vm_readv") };
static NEXT_PROCESS_VM_WRITEV: Next<ProcessVm> = unsafe { Next::new(c"process_vm_writev") };
static NEXT_AIO_READ: Next<unsafe extern "C" fn(*mut libc::aiocb) -> c_int> = unsafe { Next::new(c"aio_read") };
static NEXT_AIO_WRITE: Next<unsafe extern "C" fn(*mut libc::aiocb) -> c_int> = unsafe { Next::new(c"aio_write") };
static NEXT_LIO_LISTIO: Next<Listio> = unsafe { Next::new(c"lio_listio") };
static NEXT_SYSCALL: Next<Syscall> = unsafe { Next::new(c"syscall") };

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What the kernel would do with a call, by the filter's own words.
    pub fn verdict(filter: &Filter, number: i64, arguments: [u64; 6], instruction_pointer: u64) -> u32 {
        let mut data = [0u32; 16];
        data[0] = number as u32;
        data[1] = bpf::X86_64;
        for (i, word) in [instruction_pointer].iter().chain(&arguments).enumerate() {
            data[2 + 2 * i] = *word as u32;
            data[3 + 2 * i] = (*word >> 32) as u32;
        }
        let (mut accumulator, mut at) = (0u32, 0);
        loop {
            let instruction = filter.code[..filter.len][at];
            at += 1;
            let code = instruction.code as u32;
            let k = instruction.k;
            match code & 7 {
                libc::BPF_LD => accumulator = data[k as usize / 4],
                libc::BPF_ALU => accumulator &= k,
                libc::BPF_RET => return k,
                _ if code & 0xf0 == libc::BPF_JA => at += k as usize,
                _ => {
                    let holds = match code & 0xf0 {
                        libc::BPF_JEQ => accumulator == k,
                        libc::BPF_JGE => accumulator >= k,
                        _ => accumulator > k,
                    };
                    at += if holds { instruction.jt } else { instruction.jf } as usize;
                }
            }
        }
    }

    const RANGES: [(u64, u64); 4] = [
        (0x2000_0000_0000, 0x2800_0000_0000),
        (0x7f12_3456_7000, 0x7f12_3456_8000),
        (0x5555_ffff_f000, 0x5556_0000_1000),
        (0x1_0000_0000, 0x2_0000_0000),
    ];

    #[test]
    fn each_buffer_argument_is_trapped_within_the_range_only() {
        for (low, high) in RANGES {
            let filter = Filter::for_buffers(low, high);
            assert!(filter.len <= Filter::MOST);
            for (number, outputs) in CALLS {
                for argument in 0..6 {
                    let written = outputs.iter().any(|o| o.argument == argument);
                    for (address, inside) in [
                        (low - 1, false),
                        (low, true),
                        (low + (high - low) / 2, true),
                        (high - 1, true),
                        (high, false),
                        (0, false),
                    ] {
                        let mut arguments = [0; 6];
                        arguments[argument] = address;
                        let expected = if written && inside {
                            TRAP
                        } else {
                            libc::SECCOMP_RET_ALLOW
                        };
                        assert_eq!(
                            verdict(&filter, *number, arguments, 0),
                            expected,
                            "call {number}, {address:#x}"
                        );
                    }
                }
            }
            for number in [
                libc::SYS_write,
                libc::SYS_mmap,
                libc::SYS_munmap,
                libc::SYS_rt_sigreturn,
                libc::SYS_exit_group,
            ] {
                assert_eq!(verdict(&filter, number, [low; 6], low), libc::SECCOMP_RET_ALLOW);
            }
        }
    }

    #[test]
    fn futexes_are_trapped_if_the_kernel_writes_them() {
        let (low, high) = RANGES[0];
        let filter = Filter::for_buffers(low, high);
        for operation in 0..=13u32 {
            for flags in [0, 128, 256] {
                let arguments = [low + 64, (operation | flags) as u64, 0, 0, 0, 0];
                let expected = if FUTEX_WRITING.contains(&operation) {
                    TRAP
                } else {
                    libc::SECCOMP_RET_ALLOW
                };
                assert_eq!(
                    verdict(&filter, libc::SYS_futex, arguments, 0),
                    expected,
                    "operation {operation}"
                );
            }
        }
    }

    #[test]
    fn output_is_trapped_for_two_descriptors_and_libc_only() {
        let (low, high) = RANGES[2];
        let filter = Filter::for_output(low, high);
        for number in [libc::SYS_write, libc::SYS_writev, libc::SYS_read] {
            for fd in 0..4 {
                for at in [low - 1, low, high - 1, high] {
                    let trapped = number != libc::SYS_read && (fd == 1 || fd == 2) && (low..high).contains(&at);
                    let expected = if trapped { TRAP } else { libc::SECCOMP_RET_ALLOW };
                    assert_eq!(verdict(&filter, number, [fd, 0, 0, 0, 0, 0], at), expected);
                    let half = [UNTRAPPED as u32 as u64, UNTRAPPED & !0xffff_ffff];
                    for last in half {
                        assert_eq!(verdict(&filter, number, [fd, 0, 0, 0, 0, last], at), expected);
                    }
                    let marked = [fd, 0, 0, 0, 0, UNTRAPPED];
                    assert_eq!(verdict(&filter, number, marked, at), libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }
}
