//! seccomp filters: how one is written and installed, and the two of a recording.

use super::table::{CALLS, Call, FUTEX_COMMAND, FUTEX_WORDS, FUTEX_WRITING};
use crate::sys;
use crashproof_wire::record::RESULTS;

/// Comes with our traps in `si_errno`, so that those of a filter of the program's are told apart.
pub(super) const OURS: u32 = 0xc9af;
pub(crate) const TRAP: u32 = libc::SECCOMP_RET_TRAP | OURS;

/// The sixth argument of a write that the handler makes. The kernel does not look at it, the filters for output do.
pub(super) const UNTRAPPED: u64 = 0xc9af_5157_a11b_e9d3;
pub(super) const LAST_ARGUMENT: usize = 5;

pub(crate) type Instruction = libc::sock_filter;

pub(crate) mod bpf {
    use super::Instruction;

    pub(crate) const NUMBER: u32 = 0;
    pub(crate) const ARCHITECTURE: u32 = 4;
    pub(crate) const INSTRUCTION_POINTER: u32 = 8;
    pub(crate) const X86_64: u32 = 0xc000_003e;

    pub(crate) const fn argument(index: usize) -> u32 {
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

    pub(crate) const fn load(offset: u32) -> Instruction {
        plain(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
    }

    pub(crate) const fn and(k: u32) -> Instruction {
        plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, k)
    }

    pub(crate) const fn go(by: u32) -> Instruction {
        plain(libc::BPF_JMP | libc::BPF_JA, by)
    }

    pub(crate) const fn answer(k: u32) -> Instruction {
        plain(libc::BPF_RET | libc::BPF_K, k)
    }

    pub(crate) const fn equal(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JEQ, k, jt, jf)
    }

    pub(crate) const fn at_least(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JGE, k, jt, jf)
    }

    pub(crate) const fn above(k: u32, jt: u8, jf: u8) -> Instruction {
        jump(libc::BPF_JGT, k, jt, jf)
    }
}

/// A filter being written; on the stack, since it is made before the program has run.
pub(crate) struct Filter {
    code: [Instruction; Filter::MOST],
    len: usize,
}

impl Filter {
    const MOST: usize = 1024;

    /// Lets everything pass that is not an x86-64 call, and has the call's number loaded.
    pub(crate) fn new() -> Filter {
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

    pub(crate) fn push(&mut self, instruction: Instruction) {
        // Too long a filter is refused by `install`.
        if let Some(place) = self.code.get_mut(self.len) {
            *place = instruction;
        }
        self.len += 1;
    }

    /// If the call's number is one of these, what `body` writes decides; behind it the number is still loaded.
    pub(crate) fn case(&mut self, numbers: impl ExactSizeIterator<Item = i64>, body: impl FnOnce(&mut Filter)) {
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
    pub(crate) fn trap_within(&mut self, offset: u32, low: u64, high: u64) {
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
    pub(super) fn for_buffers(low: u64, high: u64) -> Filter {
        let mut filter = Filter::new();
        // Calls with buffers at the same arguments share their tests.
        let arguments = |call: &Call| call.outputs.iter().fold(0u8, |set, o| set | 1 << o.argument);
        let mut seen = [false; 64];
        for call in CALLS.iter().filter(|call| !call.outputs.is_empty()) {
            let set = arguments(call);
            if std::mem::replace(&mut seen[set as usize], true) {
                continue;
            }
            let mut group = [0i64; 48];
            let mut count = 0;
            for other in CALLS.iter().filter(|c| arguments(c) == set).take(group.len()) {
                group[count] = other.number;
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
    pub(super) fn for_output(low: u64, high: u64) -> Filter {
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

    pub(crate) fn install(&self) -> Result<(), i32> {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What the kernel would do with a call, by the filter's own words.
    pub(crate) fn verdict(filter: &Filter, number: i64, arguments: [u64; 6], instruction_pointer: u64) -> u32 {
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
            for Call { number, outputs, .. } in CALLS {
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
