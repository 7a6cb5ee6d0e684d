//! The table of system calls: what memory each uses, which file it reads, and what the runtime has to do when one is made. Every filter,
//! breakpoint and bounce buffer is derived from it.

use libc::siginfo_t;

/// One system call.
pub(crate) struct Call {
    pub number: i64,
    /// Buffers that the kernel writes.
    pub outputs: &'static [Buffer],
    /// Buffers that the kernel reads.
    pub inputs: &'static [Buffer],
    /// Arguments that are strings.
    pub strings: &'static [usize],
    pub indirect: Indirect,
    /// The file that it reads by its descriptor.
    pub file_read: Option<FileRead>,
    pub effect: Effect,
}

/// How large the buffer at an argument is.
#[derive(Clone, Copy)]
pub(crate) enum Size {
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
pub(crate) enum Written {
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

/// A buffer at an argument.
pub(crate) struct Buffer {
    pub argument: usize,
    pub size: Size,
    /// Of a buffer that the kernel writes.
    pub written: Written,
}

/// Which way the data goes: does the kernel write or read it?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Written,
    Read,
}

/// An array of parts (`iovec`) at one argument, as many as another says.
pub(crate) struct Parts {
    pub argument: usize,
    pub count: usize,
    pub direction: Direction,
}

/// Buffers that a call finds by an array or a message of the program's, which a filter cannot read.
pub(crate) enum Indirect {
    None,
    Parts(&'static [Parts]),
    /// The same, but not trapped: the runtime itself makes these calls. libc's functions are interposed.
    BetweenProcesses(&'static [Parts]),
    /// One message, at the second argument.
    Message(Direction),
    /// An array of messages there, as many as the third says.
    Messages(Direction),
}

/// Where a call reads a file.
pub(crate) enum Offset {
    /// At the file position.
    Position,
    /// At the offset that an argument is.
    Argument(usize),
    /// At the offset to which an argument points, if it does.
    At(usize),
}

/// That a call reads a file by its descriptor.
pub(crate) struct FileRead {
    /// The argument with the descriptor.
    pub descriptor: usize,
    pub offset: Offset,
    /// The argument with the length. Scattered reads have their lengths in their parts.
    pub length: Option<usize>,
}

/// What the runtime has to do when the program makes the call with an instruction of its own ([`crate::raw`]) or by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// It maps, syncs, sizes or names files: [`crate::files::by_number`] makes it.
    Files,
    /// It opens a file, which it may truncate.
    Open,
    /// It writes what the trace may need.
    Write,
    /// It reads into several buffers, which may be in PM.
    Gather,
    /// It ends the thread or the process.
    End,
    /// It sets a handler, the mask or the alternate stack.
    Signals,
    /// It sets the thread pointer.
    ThreadPointer,
}

const fn call(number: i64) -> Call {
    Call {
        number,
        outputs: &[],
        inputs: &[],
        strings: &[],
        indirect: Indirect::None,
        file_read: None,
        effect: Effect::None,
    }
}

impl Call {
    const fn outputs(self, outputs: &'static [Buffer]) -> Call {
        Call { outputs, ..self }
    }

    const fn inputs(self, inputs: &'static [Buffer]) -> Call {
        Call { inputs, ..self }
    }

    const fn strings(self, strings: &'static [usize]) -> Call {
        Call { strings, ..self }
    }

    const fn indirect(self, indirect: Indirect) -> Call {
        Call { indirect, ..self }
    }

    const fn reads_file(self, descriptor: usize, offset: Offset, length: Option<usize>) -> Call {
        let read = FileRead {
            descriptor,
            offset,
            length,
        };
        Call {
            file_read: Some(read),
            ..self
        }
    }

    const fn does(self, effect: Effect) -> Call {
        Call { effect, ..self }
    }
}

const fn buffer(argument: usize, size: Size, written: Written) -> Buffer {
    Buffer {
        argument,
        size,
        written,
    }
}

/// Fills a buffer whose capacity is the next argument, and returns how much.
const fn filled(argument: usize) -> Buffer {
    buffer(argument, Size::Argument(argument + 1), Written::Returned(1, 0))
}

const fn structure(argument: usize, bytes: u32) -> Buffer {
    buffer(argument, Size::Bytes(bytes), Written::All)
}

const fn updated(argument: usize, bytes: u32) -> Buffer {
    buffer(argument, Size::Bytes(bytes), Written::Changed)
}

/// A buffer whose length, in and out, is at the next argument.
const fn measured(argument: usize) -> Buffer {
    buffer(argument, Size::LengthAt(argument + 1), Written::LengthAt(argument + 1))
}

const STAT: u32 = size_of::<libc::stat>() as u32;
const STATFS: u32 = size_of::<libc::statfs>() as u32;
const RUSAGE: u32 = size_of::<libc::rusage>() as u32;
const FD_SETS: [Buffer; 4] = [
    buffer(1, Size::Bits(0), Written::Changed),
    buffer(2, Size::Bits(0), Written::Changed),
    buffer(3, Size::Bits(0), Written::Changed),
    updated(4, 16),
];
const EVENTS: &[Buffer] = &[buffer(1, Size::Elements(2, 12), Written::Returned(12, 0))];
const IDS: &[Buffer] = &[structure(0, 4), structure(1, 4), structure(2, 4)];
const ADDRESS: &[Buffer] = &[measured(1), updated(2, 4)];

const fn input(argument: usize, bytes: u32) -> Buffer {
    buffer(argument, Size::Bytes(bytes), Written::All)
}

const fn sized(argument: usize, length: usize) -> Buffer {
    buffer(argument, Size::Argument(length), Written::All)
}

const fn written(argument: usize, count: usize) -> Parts {
    Parts {
        argument,
        count,
        direction: Direction::Written,
    }
}

const fn read(argument: usize, count: usize) -> Parts {
    Parts {
        argument,
        count,
        direction: Direction::Read,
    }
}

/// The calls. The most frequent of those that write to a buffer come first: the filters test them in this order.
pub(crate) const CALLS: &[Call] = &[
    call(libc::SYS_read)
        .outputs(&[filled(1)])
        .reads_file(0, Offset::Position, Some(2)),
    call(libc::SYS_pread64)
        .outputs(&[filled(1)])
        .reads_file(0, Offset::Argument(3), Some(2)),
    call(libc::SYS_recvfrom).outputs(&[filled(1), measured(4), updated(5, 4)]),
    call(libc::SYS_epoll_wait).outputs(EVENTS),
    call(libc::SYS_epoll_pwait).outputs(EVENTS).inputs(&[input(4, 8)]),
    call(libc::SYS_epoll_pwait2).outputs(EVENTS),
    call(libc::SYS_poll).outputs(&[buffer(0, Size::Elements(1, 8), Written::Changed)]),
    call(libc::SYS_ppoll)
        .outputs(&[buffer(0, Size::Elements(1, 8), Written::Changed), updated(2, 16)])
        .inputs(&[input(3, 8)]),
    call(libc::SYS_select).outputs(&FD_SETS),
    call(libc::SYS_pselect6).outputs(&FD_SETS),
    call(libc::SYS_clock_gettime).outputs(&[structure(1, 16)]),
    call(libc::SYS_clock_getres).outputs(&[structure(1, 16)]),
    call(libc::SYS_gettimeofday).outputs(&[structure(0, 16), structure(1, 8)]),
    call(libc::SYS_time).outputs(&[structure(0, 8)]),
    call(libc::SYS_nanosleep)
        .outputs(&[updated(1, 16)])
        .inputs(&[input(0, 16)]),
    call(libc::SYS_clock_nanosleep)
        .outputs(&[updated(3, 16)])
        .inputs(&[input(2, 16)]),
    call(libc::SYS_stat).outputs(&[structure(1, STAT)]).strings(&[0]),
    call(libc::SYS_fstat).outputs(&[structure(1, STAT)]),
    call(libc::SYS_lstat).outputs(&[structure(1, STAT)]).strings(&[0]),
    call(libc::SYS_newfstatat).outputs(&[structure(2, STAT)]).strings(&[1]),
    call(libc::SYS_statx)
        .outputs(&[structure(4, size_of::<libc::statx>() as u32)])
        .strings(&[1]),
    call(libc::SYS_statfs).outputs(&[structure(1, STATFS)]).strings(&[0]),
    call(libc::SYS_fstatfs).outputs(&[structure(1, STATFS)]),
    call(libc::SYS_getdents).outputs(&[filled(1)]),
    call(libc::SYS_getdents64).outputs(&[filled(1)]),
    call(libc::SYS_readlink).outputs(&[filled(1)]).strings(&[0]),
    call(libc::SYS_readlinkat).outputs(&[filled(2)]).strings(&[1]),
    call(libc::SYS_getcwd).outputs(&[filled(0)]),
    call(libc::SYS_getxattr).outputs(&[filled(2)]).strings(&[0, 1]),
    call(libc::SYS_lgetxattr).outputs(&[filled(2)]).strings(&[0, 1]),
    call(libc::SYS_fgetxattr).outputs(&[filled(2)]).strings(&[1]),
    call(libc::SYS_listxattr).outputs(&[filled(1)]).strings(&[0]),
    call(libc::SYS_llistxattr).outputs(&[filled(1)]).strings(&[0]),
    call(libc::SYS_flistxattr).outputs(&[filled(1)]),
    call(libc::SYS_getrandom).outputs(&[filled(0)]),
    call(libc::SYS_accept).outputs(ADDRESS),
    call(libc::SYS_accept4).outputs(ADDRESS),
    call(libc::SYS_getsockname).outputs(ADDRESS),
    call(libc::SYS_getpeername).outputs(ADDRESS),
    call(libc::SYS_getsockopt).outputs(&[measured(3), updated(4, 4)]),
    call(libc::SYS_socketpair).outputs(&[structure(3, 8)]),
    call(libc::SYS_pipe).outputs(&[structure(0, 8)]),
    call(libc::SYS_pipe2).outputs(&[structure(0, 8)]),
    call(libc::SYS_sendfile)
        .outputs(&[updated(2, 8)])
        .reads_file(1, Offset::At(2), Some(3)),
    call(libc::SYS_splice)
        .outputs(&[updated(1, 8), updated(3, 8)])
        .reads_file(0, Offset::At(1), Some(4)),
    call(libc::SYS_copy_file_range)
        .outputs(&[updated(1, 8), updated(3, 8)])
        .reads_file(0, Offset::At(1), Some(4)),
    call(libc::SYS_fcntl).outputs(&[updated(2, size_of::<libc::flock>() as u32)]),
    call(libc::SYS_ioctl).outputs(&[updated(2, 256)]),
    call(libc::SYS_name_to_handle_at).outputs(&[updated(2, 8 + 128), structure(3, 4)]),
    call(libc::SYS_mincore).outputs(&[buffer(2, Size::Pages(1), Written::All)]),
    call(libc::SYS_uname).outputs(&[structure(0, size_of::<libc::utsname>() as u32)]),
    call(libc::SYS_sysinfo).outputs(&[structure(0, size_of::<libc::sysinfo>() as u32)]),
    call(libc::SYS_times).outputs(&[structure(0, 32)]),
    call(libc::SYS_getrusage).outputs(&[structure(1, RUSAGE)]),
    call(libc::SYS_getrlimit).outputs(&[structure(1, 16)]),
    call(libc::SYS_prlimit64)
        .outputs(&[structure(3, 16)])
        .inputs(&[input(2, 16)]),
    call(libc::SYS_wait4).outputs(&[
        buffer(1, Size::Bytes(4), Written::Found),
        buffer(3, Size::Bytes(RUSAGE), Written::Found),
    ]),
    call(libc::SYS_waitid).outputs(&[structure(2, size_of::<siginfo_t>() as u32), structure(4, RUSAGE)]),
    call(libc::SYS_getresuid).outputs(IDS),
    call(libc::SYS_getresgid).outputs(IDS),
    call(libc::SYS_getgroups).outputs(&[buffer(1, Size::Elements(0, 4), Written::Returned(4, 0))]),
    call(libc::SYS_getcpu).outputs(&[structure(0, 4), structure(1, 4)]),
    call(libc::SYS_capget).outputs(&[updated(0, 8), updated(1, 24)]),
    call(libc::SYS_sched_getaffinity).outputs(&[buffer(2, Size::Argument(1), Written::Returned(1, 0))]),
    call(libc::SYS_sched_getparam).outputs(&[structure(1, 4)]),
    call(libc::SYS_sched_getattr).outputs(&[buffer(1, Size::Argument(2), Written::Changed)]),
    call(libc::SYS_sched_rr_get_interval).outputs(&[structure(1, 16)]),
    call(libc::SYS_getitimer).outputs(&[structure(1, 32)]),
    call(libc::SYS_setitimer)
        .outputs(&[structure(2, 32)])
        .inputs(&[input(1, 32)]),
    call(libc::SYS_timer_create)
        .outputs(&[structure(2, 4)])
        .inputs(&[input(1, 64)]),
    call(libc::SYS_timer_settime)
        .outputs(&[structure(3, 32)])
        .inputs(&[input(2, 32)]),
    call(libc::SYS_timer_gettime).outputs(&[structure(1, 32)]),
    call(libc::SYS_timerfd_settime)
        .outputs(&[structure(3, 32)])
        .inputs(&[input(2, 32)]),
    call(libc::SYS_timerfd_gettime).outputs(&[structure(1, 32)]),
    call(libc::SYS_rt_sigpending).outputs(&[buffer(0, Size::Argument(1), Written::All)]),
    call(libc::SYS_rt_sigtimedwait)
        .outputs(&[buffer(1, Size::Bytes(size_of::<siginfo_t>() as u32), Written::Found)])
        .inputs(&[input(0, 8), input(2, 16)]),
    call(libc::SYS_mq_timedreceive)
        .outputs(&[filled(1), structure(3, 4)])
        .inputs(&[input(4, 16)]),
    call(libc::SYS_mq_getsetattr).outputs(&[structure(2, 64)]),
    // The message is preceded by its type.
    call(libc::SYS_msgrcv).outputs(&[buffer(1, Size::Argument(2), Written::Returned(1, 8))]),
    call(libc::SYS_msgctl).outputs(&[updated(2, 120)]),
    call(libc::SYS_shmctl).outputs(&[updated(2, 112)]),
    call(libc::SYS_semctl).outputs(&[updated(3, 104)]),
    call(libc::SYS_prctl).outputs(&[updated(1, 16)]),
    call(libc::SYS_arch_prctl)
        .outputs(&[updated(1, 8)])
        .does(Effect::ThreadPointer),
    call(libc::SYS_io_setup).outputs(&[updated(1, 8)]),
    call(libc::SYS_io_getevents)
        .outputs(&[buffer(3, Size::Elements(2, 32), Written::Returned(32, 0))])
        .inputs(&[input(4, 16)]),
    call(libc::SYS_write).inputs(&[sized(1, 2)]).does(Effect::Write),
    call(libc::SYS_pwrite64).inputs(&[sized(1, 2)]).does(Effect::Write),
    call(libc::SYS_sendto).inputs(&[sized(1, 2), sized(4, 5)]),
    call(libc::SYS_bind).inputs(&[sized(1, 2)]),
    call(libc::SYS_connect).inputs(&[sized(1, 2)]),
    call(libc::SYS_setsockopt).inputs(&[sized(3, 4)]),
    call(libc::SYS_epoll_ctl).inputs(&[input(3, 12)]),
    call(libc::SYS_utimensat).inputs(&[input(2, 32)]).strings(&[1]),
    call(libc::SYS_utimes).inputs(&[input(1, 32)]).strings(&[0]),
    call(libc::SYS_utime).inputs(&[input(1, 16)]).strings(&[0]),
    call(libc::SYS_setrlimit).inputs(&[input(1, 16)]),
    call(libc::SYS_setxattr).inputs(&[sized(2, 3)]).strings(&[0, 1]),
    call(libc::SYS_lsetxattr).inputs(&[sized(2, 3)]).strings(&[0, 1]),
    call(libc::SYS_fsetxattr).inputs(&[sized(2, 3)]).strings(&[1]),
    call(libc::SYS_sched_setaffinity).inputs(&[sized(2, 1)]),
    call(libc::SYS_sched_setparam).inputs(&[input(1, 4)]),
    call(libc::SYS_sched_setattr).inputs(&[input(1, 56)]),
    call(libc::SYS_setgroups).inputs(&[buffer(1, Size::Elements(0, 4), Written::All)]),
    call(libc::SYS_semop).inputs(&[buffer(1, Size::Elements(2, 6), Written::All)]),
    call(libc::SYS_semtimedop).inputs(&[buffer(1, Size::Elements(2, 6), Written::All), input(3, 16)]),
    call(libc::SYS_mq_timedsend).inputs(&[sized(1, 2), input(4, 16)]),
    call(libc::SYS_msgsnd).inputs(&[buffer(1, Size::Argument(2), Written::Returned(1, 8))]),
    call(libc::SYS_openat2)
        .inputs(&[sized(2, 3)])
        .strings(&[1])
        .does(Effect::Open),
    call(libc::SYS_mlock).inputs(&[sized(0, 1)]),
    call(libc::SYS_mlock2).inputs(&[sized(0, 1)]),
    call(libc::SYS_open).strings(&[0]).does(Effect::Open),
    call(libc::SYS_openat).strings(&[1]).does(Effect::Open),
    call(libc::SYS_creat).strings(&[0]).does(Effect::Open),
    call(libc::SYS_access).strings(&[0]),
    call(libc::SYS_faccessat).strings(&[1]),
    call(libc::SYS_faccessat2).strings(&[1]),
    call(libc::SYS_chdir).strings(&[0]),
    call(libc::SYS_mkdir).strings(&[0]),
    call(libc::SYS_mkdirat).strings(&[1]),
    call(libc::SYS_rmdir).strings(&[0]),
    call(libc::SYS_unlink).strings(&[0]).does(Effect::Files),
    call(libc::SYS_unlinkat).strings(&[1]).does(Effect::Files),
    call(libc::SYS_rename).strings(&[0, 1]).does(Effect::Files),
    call(libc::SYS_renameat).strings(&[1, 3]).does(Effect::Files),
    call(libc::SYS_renameat2).strings(&[1, 3]).does(Effect::Files),
    call(libc::SYS_link).strings(&[0, 1]),
    call(libc::SYS_linkat).strings(&[1, 3]).does(Effect::Files),
    call(libc::SYS_symlink).strings(&[0, 1]),
    call(libc::SYS_symlinkat).strings(&[0, 2]),
    call(libc::SYS_chmod).strings(&[0]),
    call(libc::SYS_fchmodat).strings(&[1]),
    call(libc::SYS_chown).strings(&[0]),
    call(libc::SYS_lchown).strings(&[0]),
    call(libc::SYS_fchownat).strings(&[1]),
    call(libc::SYS_truncate).strings(&[0]).does(Effect::Files),
    call(libc::SYS_mknod).strings(&[0]),
    call(libc::SYS_mknodat).strings(&[1]),
    call(libc::SYS_mq_open).strings(&[0]),
    call(libc::SYS_mq_unlink).strings(&[0]),
    call(libc::SYS_memfd_create).strings(&[0]),
    call(libc::SYS_inotify_add_watch).strings(&[1]),
    call(libc::SYS_readv)
        .indirect(Indirect::Parts(&[written(1, 2)]))
        .reads_file(0, Offset::Position, None)
        .does(Effect::Gather),
    call(libc::SYS_preadv)
        .indirect(Indirect::Parts(&[written(1, 2)]))
        .reads_file(0, Offset::Argument(3), None)
        .does(Effect::Gather),
    call(libc::SYS_preadv2)
        .indirect(Indirect::Parts(&[written(1, 2)]))
        .reads_file(0, Offset::Argument(3), None)
        .does(Effect::Gather),
    call(libc::SYS_writev)
        .indirect(Indirect::Parts(&[read(1, 2)]))
        .does(Effect::Write),
    call(libc::SYS_pwritev)
        .indirect(Indirect::Parts(&[read(1, 2)]))
        .does(Effect::Write),
    call(libc::SYS_pwritev2)
        .indirect(Indirect::Parts(&[read(1, 2)]))
        .does(Effect::Write),
    call(libc::SYS_vmsplice).indirect(Indirect::Parts(&[written(1, 2)])),
    // The other side may be this process itself.
    call(libc::SYS_process_vm_readv)
        .indirect(Indirect::BetweenProcesses(&[written(1, 2), read(3, 4)]))
        .does(Effect::Gather),
    call(libc::SYS_process_vm_writev).indirect(Indirect::BetweenProcesses(&[read(1, 2), written(3, 4)])),
    call(libc::SYS_recvmsg)
        .indirect(Indirect::Message(Direction::Written))
        .does(Effect::Gather),
    call(libc::SYS_sendmsg).indirect(Indirect::Message(Direction::Read)),
    call(libc::SYS_recvmmsg)
        .indirect(Indirect::Messages(Direction::Written))
        .does(Effect::Gather),
    call(libc::SYS_sendmmsg).indirect(Indirect::Messages(Direction::Read)),
    call(libc::SYS_mmap).does(Effect::Files),
    call(libc::SYS_munmap).does(Effect::Files),
    call(libc::SYS_mprotect).does(Effect::Files),
    call(libc::SYS_mremap).does(Effect::Files),
    call(libc::SYS_msync).does(Effect::Files),
    call(libc::SYS_fsync).does(Effect::Files),
    call(libc::SYS_fdatasync).does(Effect::Files),
    call(libc::SYS_ftruncate).does(Effect::Files),
    call(libc::SYS_fallocate).does(Effect::Files),
    call(libc::SYS_exit).does(Effect::End),
    call(libc::SYS_exit_group).does(Effect::End),
    call(libc::SYS_rt_sigaction).does(Effect::Signals),
    call(libc::SYS_rt_sigprocmask).does(Effect::Signals),
    call(libc::SYS_sigaltstack).does(Effect::Signals),
];

/// No call in the table has a greater number.
pub(crate) const NUMBERS: usize = 512;

/// By number: the place in the table.
static PLACES: [u8; NUMBERS] = {
    let mut places = [u8::MAX; NUMBERS];
    let mut i = 0;
    while i < CALLS.len() {
        let place = &mut places[CALLS[i].number as usize];
        assert!(*place == u8::MAX && i < u8::MAX as usize, "a call is in the table once");
        *place = i as u8;
        i += 1;
    }
    places
};

/// The call with this number, if it is in the table.
pub(crate) fn find(number: i64) -> Option<&'static Call> {
    let place = *PLACES.get(usize::try_from(number).ok()?)?;
    CALLS.get(place as usize)
}

pub(crate) fn effect(number: i64) -> Effect {
    find(number).map_or(Effect::None, |call| call.effect)
}

/// The numbers of the calls that have this effect, or any if none is given.
const fn having(effect: Option<Effect>) -> ([i64; CALLS.len()], usize) {
    let (mut numbers, mut count, mut i) = ([0; CALLS.len()], 0, 0);
    while i < CALLS.len() {
        let other = CALLS[i].effect as u8;
        let wanted = match effect {
            Some(effect) => other == effect as u8,
            None => other != Effect::None as u8,
        };
        if wanted {
            numbers[count] = CALLS[i].number;
            count += 1;
        }
        i += 1;
    }
    (numbers, count)
}

/// The calls that the runtime has something to do for.
pub(crate) const WITH_EFFECT: &[i64] = {
    const FOUND: ([i64; CALLS.len()], usize) = having(None);
    FOUND.0.split_at(FOUND.1).0
};

/// The calls that write to a descriptor.
pub(crate) const WRITES: &[i64] = {
    const FOUND: ([i64; CALLS.len()], usize) = having(Some(Effect::Write));
    FOUND.0.split_at(FOUND.1).0
};

/// Those operations of `futex` that make the kernel write a futex word, at the first or the fifth argument.
pub(crate) const FUTEX_WRITING: [u32; 7] = [
    libc::FUTEX_WAKE_OP as u32,
    libc::FUTEX_LOCK_PI as u32,
    libc::FUTEX_UNLOCK_PI as u32,
    libc::FUTEX_TRYLOCK_PI as u32,
    libc::FUTEX_WAIT_REQUEUE_PI as u32,
    libc::FUTEX_CMP_REQUEUE_PI as u32,
    13, // FUTEX_LOCK_PI2
];
/// What of the second argument of `futex` is the operation.
pub(crate) const FUTEX_COMMAND: u32 = 0x7f;
/// The arguments of `futex` that are words.
pub(crate) const FUTEX_WORDS: [usize; 2] = [0, 4];

/// The operations of `futex` that use the word at the fifth argument.
pub(crate) const FUTEX_TWO_WORDS: [u32; 5] = [
    libc::FUTEX_REQUEUE as u32,
    libc::FUTEX_CMP_REQUEUE as u32,
    libc::FUTEX_WAKE_OP as u32,
    libc::FUTEX_WAIT_REQUEUE_PI as u32,
    libc::FUTEX_CMP_REQUEUE_PI as u32,
];

/// The operations of `fcntl` whose argument is an address.
pub(crate) const FCNTL_ADDRESS: [libc::c_int; 6] = [
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
];
