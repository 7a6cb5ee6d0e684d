//! System calls of a recovery program: the kernel cannot use a closed page for a buffer, and reads PM files by their
//! descriptors.
//!
//! A filter traps each call that has a pointer into the range of views. The handler opens the pages that the call will use,
//! which notes them, and makes the call as it is, by one instruction at a fixed address which the filter lets pass. Filters
//! outlive an exec, so that address must be the same in every program. Other filters trap what libc calls with indirect
//! buffers and, where reads are noted, what it calls to read a file by its descriptor; and calls with pointers into PM that
//! the program mapped at an address of its own. Another program's calls must not be trapped before its runtime is ready, so
//! these filters apply to libc's code at the address that it has in this process.
//!
//! Asynchronous input and output by the kernel cannot be watched: a recovery is told that this kernel has none. Calls that
//! are not in the tables here (they are rare) fail with EFAULT on a closed page. Calls that libc makes with all signals
//! blocked must not be trapped, since the kernel would end the process: `fork`, `posix_spawn` and the start of a thread make
//! none of these; libc's helper threads for `aio_read` and its kin do, so that those requests are done at once
//! ([`crate::syscalls`]). Those of `getaddrinfo_a`, which no recovery has been seen to use, do too where reads are noted.

use super::maps;
use super::pages::{Pages, is_fine};
use crate::pm::{self, PAGE};
use crate::sys;
use crate::syscalls::filter::{self, Filter, bpf};
use crate::syscalls::table::{
    self, CALLS, Call, Direction, FCNTL_ADDRESS, FUTEX_COMMAND, FUTEX_TWO_WORDS, FUTEX_WRITING, Indirect, NUMBERS,
    Offset, Parts, Size,
};
use crate::syscalls::{self, buffer_len};
use crashproof_wire::recovery::{self as wire, Recovery};
use libc::{c_int, iovec, mmsghdr, msghdr};
use std::arch::asm;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The beginning of input and output that goes on by itself.
const ASYNCHRONOUS: [i64; 2] = [libc::SYS_io_setup, libc::SYS_io_uring_setup];

/// By number: the arguments of the call that are addresses of buffers, as a set of bits.
const ADDRESSES: [u8; NUMBERS] = {
    let mut sets = [0; NUMBERS];
    let mut i = 0;
    while i < CALLS.len() {
        let call = &CALLS[i];
        let set = &mut sets[call.number as usize];
        let mut j = 0;
        while j < call.outputs.len() {
            *set |= 1 << call.outputs[j].argument;
            j += 1;
        }
        let mut j = 0;
        while j < call.inputs.len() {
            *set |= 1 << call.inputs[j].argument;
            j += 1;
        }
        let mut j = 0;
        while j < call.strings.len() {
            *set |= 1 << call.strings[j];
            j += 1;
        }
        i += 1;
    }
    sets
};

/// The calls whose buffers are found by an array or a message, except those that the runtime itself makes.
fn is_indirect(call: &Call) -> bool {
    matches!(
        call.indirect,
        Indirect::Parts(_) | Indirect::Message(_) | Indirect::Messages(_)
    )
}

// --- The filters ----------------------------------------------------------------------------------------------------------

/// Where the instruction is that makes the calls, outside the ranges of views and aliases.
const GATE: u64 = 0x3000_0000_0000;
/// `syscall`, `ret`
const GATE_CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
/// As a filter sees the instruction pointer: behind the instruction.
const GATE_POINTER: u64 = GATE + 2;

/// Whose calls a filter traps.
#[derive(Clone, Copy)]
enum Callers {
    /// Everyone's but the gate's.
    All,
    /// Those of the code in this range.
    Code(u64, u64),
}

/// libc's code in this process.
static LIBC: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn libc_only() -> Callers {
    let [low, high] = LIBC.each_ref().map(|bound| bound.load(Ordering::Relaxed));
    Callers::Code(low, high)
}

impl Filter {
    /// Lets the call pass unless it is made by `callers`.
    fn pass_others(&mut self, callers: Callers) {
        match callers {
            Callers::All => self.pass_gate(),
            Callers::Code(low, high) => self.pass_outside(low, high),
        }
    }

    /// Lets the call pass if it is not made by the code in [low, high).
    fn pass_outside(&mut self, low: u64, high: u64) {
        let pointer = bpf::INSTRUCTION_POINTER;
        let (last_high, last_low) = (((high - 1) >> 32) as u32, (high - 1) as u32);
        let (first_high, first_low) = ((low >> 32) as u32, low as u32);
        for instruction in [
            bpf::load(pointer + 4),
            bpf::at_least(first_high, 0, 8),
            bpf::above(last_high, 7, 0),
            bpf::equal(first_high, 0, 2),
            bpf::load(pointer),
            bpf::at_least(first_low, 0, 4),
            bpf::load(pointer + 4),
            bpf::equal(last_high, 0, 3),
            bpf::load(pointer),
            bpf::above(last_low, 0, 1),
            bpf::answer(libc::SECCOMP_RET_ALLOW),
        ] {
            self.push(instruction);
        }
    }

    /// Lets the call pass if it is made through the gate.
    fn pass_gate(&mut self) {
        for instruction in [
            bpf::load(bpf::INSTRUCTION_POINTER),
            bpf::equal(GATE_POINTER as u32, 0, 3),
            bpf::load(bpf::INSTRUCTION_POINTER + 4),
            bpf::equal((GATE_POINTER >> 32) as u32, 0, 1),
            bpf::answer(libc::SECCOMP_RET_ALLOW),
        ] {
            self.push(instruction);
        }
    }

    /// Traps each call with a buffer in [low, high).
    fn for_watching(low: u64, high: u64, callers: Callers) -> Filter {
        let mut filter = Filter::new();
        // Calls with buffers at the same arguments share their tests.
        for set in 1..64u8 {
            let mut group = [0i64; 64];
            let mut count = 0;
            for number in (0..NUMBERS)
                .filter(|&number| ADDRESSES[number] == set)
                .take(group.len())
            {
                group[count] = number as i64;
                count += 1;
            }
            if count > 0 {
                filter.case(group[..count].iter().copied(), |filter| {
                    filter.pass_others(callers);
                    for argument in (0..6).filter(|a| set & 1 << a != 0) {
                        filter.trap_within(bpf::argument(argument), low, high);
                    }
                });
            }
        }
        filter.case([libc::SYS_futex].into_iter(), |filter| {
            filter.pass_others(callers);
            filter.trap_within(bpf::argument(0), low, high);
            filter.push(bpf::load(bpf::argument(1)));
            filter.push(bpf::and(FUTEX_COMMAND));
            let count = FUTEX_TWO_WORDS.len();
            for (i, &operation) in FUTEX_TWO_WORDS.iter().enumerate() {
                filter.push(bpf::equal(operation, (count - i) as u8, 0));
            }
            filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
            filter.trap_within(bpf::argument(4), low, high);
        });
        filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        filter
    }

    /// Traps these calls, whatever their arguments are.
    fn for_calls(wanted: impl Fn(&Call) -> bool, callers: Callers) -> Filter {
        let mut filter = Filter::new();
        let mut numbers = [0i64; CALLS.len()];
        let mut count = 0;
        for call in CALLS.iter().filter(|call| wanted(call)) {
            numbers[count] = call.number;
            count += 1;
        }
        filter.case(numbers[..count].iter().copied(), |filter| {
            filter.pass_others(callers);
            filter.push(bpf::answer(filter::TRAP));
        });
        filter.case(ASYNCHRONOUS.into_iter(), |filter| {
            filter.push(bpf::answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
        });
        filter.push(bpf::answer(libc::SECCOMP_RET_ALLOW));
        filter
    }
}

/// Opens the gate and sets the filters that every recovery needs. Our SIGSYS handler is in place.
pub(crate) fn install() -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a page of our own, filled before it can be executed.
    unsafe {
        let page = sys::mmap(GATE, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        std::ptr::copy_nonoverlapping(GATE_CODE.as_ptr(), page as *mut u8, GATE_CODE.len());
        let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        sys::syscall(libc::SYS_mprotect, [page, PAGE, executable, 0, 0, 0])?;
    }
    let (low, high) = syscalls::libc_code().ok_or(libc::ENOENT)?;
    LIBC[0].store(low, Ordering::Relaxed);
    LIBC[1].store(high, Ordering::Relaxed);
    let (low, high) = pm::view_range();
    Filter::for_watching(low, high, Callers::All).install()?;
    Filter::for_calls(is_indirect, libc_only()).install()
}

/// From here on, reading a PM file by its descriptor is noted.
pub(crate) fn watch_descriptors() {
    let ready = LIBC[1].load(Ordering::Relaxed) != 0;
    if !ready
        || Filter::for_calls(|call| call.file_read.is_some(), libc_only())
            .install()
            .is_err()
    {
        super::unwatched(wire::UNWATCHED_OTHER);
    }
}

/// The filter for a mapping outside the range of views.
pub(crate) fn filter(low: u64, high: u64) -> Filter {
    Filter::for_watching(low, high, libc_only())
}

/// A mapping outside the range of views needs one more filter.
pub(crate) fn watch_range(start: u64, end: u64) {
    let (low, high) = pm::view_range();
    if start < low || end > high {
        syscalls::add_view_range(start, end);
        // SAFETY: null, or a page that is never unmapped; every value in it is atomic.
        if let Some(wanted) = unsafe { WANTED.load(Ordering::Relaxed).as_ref() } {
            let free = wanted.iter().find(|range| {
                let known = range.each_ref().map(|bound| bound.load(Ordering::Relaxed));
                known == [0, 0] || known == [start, end]
            });
            if let Some([low, high]) = free {
                low.store(start, Ordering::Relaxed);
                high.store(end, Ordering::Release);
            }
        }
    }
}

/// Ranges that copies of the server needed a filter for. To set one takes long, and copies that are alike map alike: the
/// server sets it for those that follow.
type Wanted = [[AtomicU64; 2]; 16];

static WANTED: AtomicPtr<Wanted> = AtomicPtr::new(std::ptr::null_mut());

/// In the server: lets copies say which filters they needed.
pub(crate) fn share_ranges() {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, of zeros.
    let page = unsafe { sys::mmap(0, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    WANTED.store(page.unwrap_or(0) as *mut Wanted, Ordering::Relaxed);
}

/// In the server: sets the filters that copies needed.
pub(crate) fn adopt_ranges() {
    // SAFETY: as in `watch_range`.
    for [low, high] in unsafe { WANTED.load(Ordering::Relaxed).as_ref() }.into_iter().flatten() {
        let (high, low) = (high.load(Ordering::Acquire), low.load(Ordering::Relaxed));
        if high != 0 {
            syscalls::add_view_range(low, high);
        }
    }
}

/// Makes a call by the instruction that the filters let pass.
unsafe fn through_gate(number: i64, arguments: [u64; 6]) -> Result<u64, i32> {
    let result: i64;
    // SAFETY: the gate is mapped before any filter is set; it pushes nothing but its return address, and the kernel clobbers
    // rcx and r11 only. The call itself is the caller's promise.
    unsafe {
        asm!(
            "call {gate}",
            gate = in(reg) GATE,
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as u64)
    }
}

// --- The trap -------------------------------------------------------------------------------------------------------------

/// Makes a trapped call of the program's.
pub(crate) fn perform(recovery: &'static Recovery, number: i64, arguments: [u64; 6]) -> Result<u64, i32> {
    sys::without_signals(|| {
        let call = TrappedCall {
            recovery,
            number,
            arguments,
        };
        call.open_buffers();
        if recovery.track == wire::TRACK_READS {
            call.note_descriptor();
        }
    });
    // SAFETY: the program's call.
    unsafe { through_gate(number, arguments) }
}

struct TrappedCall {
    recovery: &'static Recovery,
    number: i64,
    arguments: [u64; 6],
}

impl TrappedCall {
    fn open(&self, address: u64, len: u64, write: bool) {
        maps::open_range(self.recovery, address, len, write);
    }

    /// A value of the program's, which may lie in PM.
    fn peek<T: Copy>(&self, address: u64) -> Option<T> {
        self.open(address, size_of::<T>() as u64, false);
        let mut value = std::mem::MaybeUninit::<T>::zeroed();
        // SAFETY: the bytes of `value`; every T here is plain data that may have any bytes.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>());
            sys::read_memory(address, bytes).then(|| value.assume_init())
        }
    }

    fn open_buffers(&self) {
        let (number, arguments) = (self.number, &self.arguments);
        match number {
            libc::SYS_futex => return self.open_futex(),
            libc::SYS_fcntl if !FCNTL_ADDRESS.contains(&(arguments[1] as c_int)) => return,
            _ => {}
        }
        let Some(call) = table::find(number) else { return };
        for &string in call.strings {
            self.open_string(arguments[string]);
        }
        for (buffers, write) in [(call.inputs, false), (call.outputs, true)] {
            for buffer in buffers {
                if let Size::LengthAt(length) = buffer.size {
                    self.open(arguments[length], 4, true);
                }
                let len = buffer_len(buffer, arguments) as u64;
                self.open(arguments[buffer.argument], len, write);
            }
        }
        match call.indirect {
            Indirect::None => {}
            Indirect::Parts(arrays) | Indirect::BetweenProcesses(arrays) => {
                for &Parts {
                    argument,
                    count,
                    direction,
                } in arrays
                {
                    self.each_part(arguments[argument], arguments[count], |part| {
                        self.open(
                            part.iov_base as u64,
                            part.iov_len as u64,
                            direction == Direction::Written,
                        )
                    });
                }
            }
            Indirect::Message(direction) => self.open_message(arguments[1], direction == Direction::Written),
            Indirect::Messages(direction) => {
                let write = direction == Direction::Written;
                for i in 0..arguments[2].min(libc::UIO_MAXIOV as u64) {
                    let message = arguments[1] + i * size_of::<mmsghdr>() as u64;
                    self.open_message(message, write);
                    self.open(message, size_of::<mmsghdr>() as u64, true);
                }
                self.open(arguments[4], if write { 16 } else { 0 }, true);
            }
        }
    }

    fn open_futex(&self) {
        let operation = self.arguments[1] as u32 & FUTEX_COMMAND;
        let write = FUTEX_WRITING.contains(&operation);
        self.open(self.arguments[0], 4, write);
        if FUTEX_TWO_WORDS.contains(&operation) {
            self.open(self.arguments[4], 4, write);
        }
    }

    /// Opens a string page by page, up to its end.
    fn open_string(&self, address: u64) {
        let mut at = address;
        while pm::find(at).is_some() {
            let mut rest = [0u8; PAGE as usize];
            let rest = &mut rest[..(PAGE - at % PAGE) as usize];
            self.open(at, rest.len() as u64, false);
            if !sys::read_memory(at, rest) || rest.contains(&0) {
                return;
            }
            at += rest.len() as u64;
        }
    }

    fn each_part(&self, parts: u64, count: u64, mut show: impl FnMut(iovec)) {
        for i in 0..count.min(libc::UIO_MAXIOV as u64) {
            if let Some(part) = self.peek::<iovec>(parts + i * size_of::<iovec>() as u64) {
                show(part);
            }
        }
    }

    fn open_message(&self, address: u64, write: bool) {
        let Some(message) = self.peek::<msghdr>(address) else {
            return;
        };
        self.open(address, size_of::<msghdr>() as u64, write);
        self.open(message.msg_name as u64, message.msg_namelen as u64, write);
        self.open(message.msg_control as u64, message.msg_controllen as u64, write);
        self.each_part(message.msg_iov as u64, message.msg_iovlen as u64, |part| {
            self.open(part.iov_base as u64, part.iov_len as u64, write)
        });
    }

    /// Notes what the call may read of a PM file.
    fn note_descriptor(&self) {
        let Some(read) = table::find(self.number).and_then(|call| call.file_read.as_ref()) else {
            return;
        };
        let fd = self.arguments[read.descriptor] as c_int;
        let Some((file, size)) = maps::file_of(self.recovery, fd) else {
            return;
        };
        let length = match read.length {
            Some(argument) => self.arguments[argument],
            None => {
                let mut total = 0u64;
                self.each_part(self.arguments[1], self.arguments[2], |part| {
                    total = total.saturating_add(part.iov_len as u64)
                });
                total
            }
        };
        let given = match read.offset {
            Offset::Argument(argument) => Some(self.arguments[argument]),
            Offset::At(argument) if self.arguments[argument] != 0 => self.peek::<u64>(self.arguments[argument]),
            Offset::At(_) | Offset::Position => None,
        };
        // SAFETY: lseek by 0 reads the position.
        let position = || unsafe { sys::syscall(libc::SYS_lseek, [fd as u64, 0, libc::SEEK_CUR as u64, 0, 0, 0]) };
        // preadv2 has -1 for the position.
        let offset = given.filter(|&offset| offset != u64::MAX).or_else(|| position().ok());
        let from = offset.unwrap_or(0).min(size);
        note_range(self.recovery, file, from, from.saturating_add(length).min(size));
    }
}

/// Notes that [from, to) of a PM file is read, in lines where they are told apart.
fn note_range(recovery: &Recovery, file: u32, from: u64, to: u64) {
    let noted = Pages::with(recovery, |pages| {
        let mut at = from;
        while at < to {
            let unit = wire::page_unit(file, at);
            let page = at & !(PAGE - 1);
            let end = to.min(page + PAGE);
            let all_lines = at - page < 64 && page + PAGE - end < 64;
            if !all_lines && is_fine(recovery, unit) {
                pages.touch_lines(unit, at - page, end - page)?;
            } else {
                pages.touch(unit)?;
            }
            at = end;
        }
        Ok(())
    });
    if noted.is_err() {
        maps::open_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::filter::{TRAP, tests::verdict};
    use libc::SECCOMP_RET_ALLOW as ALLOW;

    const CODE: (u64, u64) = (0x7fff_fffe_f000, 0x8000_0001_2000);

    #[test]
    fn each_buffer_is_trapped_but_for_the_gate() {
        let (low, high) = pm::view_range();
        let filter = Filter::for_watching(low, high, Callers::All);
        for (number, set) in ADDRESSES.iter().enumerate() {
            for argument in 0..6 {
                for (address, inside) in [(low - 1, false), (low, true), (high - 1, true), (high, false)] {
                    let mut arguments = [0; 6];
                    arguments[argument] = address;
                    let trapped = set & 1 << argument != 0 || (number as i64 == libc::SYS_futex && argument == 0);
                    let expected = if trapped && inside { TRAP } else { ALLOW };
                    assert_eq!(
                        verdict(&filter, number as i64, arguments, 0x1234),
                        expected,
                        "call {number}, {address:#x}"
                    );
                    assert_eq!(verdict(&filter, number as i64, arguments, GATE_POINTER), ALLOW);
                }
            }
        }
    }

    #[test]
    fn other_code_passes_what_libc_is_trapped_for() {
        let callers = Callers::Code(CODE.0, CODE.1);
        let ranges = [
            Filter::for_watching(0x1000, 0x9000, callers),
            Filter::for_calls(|call| call.number == libc::SYS_read, callers),
        ];
        for filter in &ranges {
            for (pointer, inside) in [
                (CODE.0 - 1, false),
                (CODE.0, true),
                (0x7fff_ffff_ffff, true),
                (0x8000_0000_0000, true),
                (CODE.1 - 1, true),
                (CODE.1, false),
                (0x1_0000_1000, false),
            ] {
                let expected = if inside { TRAP } else { ALLOW };
                let arguments = [3, 0x1000, 8, 0, 0, 0];
                assert_eq!(
                    verdict(filter, libc::SYS_read, arguments, pointer),
                    expected,
                    "{pointer:#x}"
                );
            }
        }
        let refused = verdict(&ranges[1], libc::SYS_io_uring_setup, [0; 6], 0);
        assert_eq!(refused, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    }
}
