//! Runs an instruction in this process with a given register state, natively or through the crate.
//!
//! One mapping of a memory file plays the persistent memory at the same address in both cases: writable for the native
//! run; read-only, with a writable alias elsewhere, for the other. So registers and memory afterwards must be equal bit
//! by bit.

use core::arch::{global_asm, naked_asm};
use crashproof_instruction::{Context, Fault, Step, decode, fetch, fix_up, init, step};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::ptr::{self, null_mut};

pub(crate) const PAGE: usize = 4096;
/// Size of the persistent memory: its last page lies beyond the end of the file.
pub(crate) const MEMORY: usize = 5 * PAGE;
pub(crate) const FILE: usize = 4 * PAGE;
const AREA: usize = 8192;
const BRANCH: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Registers {
    pub area: [u8; AREA],
    pub general: [u64; 16],
    pub flags: u64,
}

impl Registers {
    pub(crate) const ZERO: Registers = Registers {
        area: [0; AREA],
        general: [0; 16],
        flags: 2,
    };
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum End {
    Done,
    /// The program got this signal, natively or because the crate said so. With the address.
    Signal(i32, u64),
    /// The crate refused the instruction.
    Refused,
}

pub(crate) struct Outcome {
    pub end: End,
    pub registers: Box<Registers>,
    pub memory: Vec<u8>,
    /// The crate had to do something.
    pub handled: bool,
    /// Bytes that changed although the crate did not announce them.
    pub unannounced: usize,
}

/// Who executes the instruction.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    /// The processor, on writable memory.
    Native,
    /// The crate, if it writes the memory that is read-only now.
    Emulate,
    /// The crate's `step`, whatever it is.
    Step,
}

/// What the signal handler uses; there is one harness in the process.
struct Shared {
    code: u64,
    memory: u64,
    alias: u64,
    mode: Mode,
    signals: usize,
    end: End,
    handled: bool,
    unannounced: usize,
    before: [u8; FILE],
}

static mut SHARED: Shared = Shared {
    code: 0,
    memory: 0,
    alias: 0,
    mode: Mode::Native,
    signals: 0,
    end: End::Done,
    handled: false,
    unannounced: 0,
    before: [0; FILE],
};

/// # Safety
/// Only one run at a time; the handler interrupts it where it does not use this.
unsafe fn shared() -> &'static mut Shared {
    let pointer = &raw mut SHARED;
    // SAFETY: the caller's promise.
    unsafe { &mut *pointer }
}

static mut OUTPUT: Registers = Registers::ZERO;

pub(crate) struct Harness {
    pub memory: u64,
    /// Ordinary memory, two pages followed by an unmapped one.
    pub source: u64,
    code: u64,
}

// rdi: registers to load, rsi: where to go. Everything is saved in statics, since all registers are the program's.
#[unsafe(naked)]
unsafe extern "C" fn enter(_registers: *const Registers, _entry: u64) {
    naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
        "mov [rip + harness_stack], rsp",
        "mov [rip + harness_entry], rsi",
        "mov eax, 7", "xor edx, edx", "xrstor64 [rdi]",
        "add rdi, {area}",
        "push [rdi + 128]", "popfq",
        "mov rax, [rdi]", "mov rcx, [rdi + 8]", "mov rdx, [rdi + 16]", "mov rbx, [rdi + 24]", "mov rsp, [rdi + 32]",
        "mov rbp, [rdi + 40]", "mov rsi, [rdi + 48]", "mov r8, [rdi + 64]", "mov r9, [rdi + 72]", "mov r10, [rdi + 80]",
        "mov r11, [rdi + 88]", "mov r12, [rdi + 96]", "mov r13, [rdi + 104]", "mov r14, [rdi + 112]",
        "mov r15, [rdi + 120]", "mov rdi, [rdi + 56]",
        "jmp qword ptr [rip + harness_entry]",
        area = const AREA,
    )
}

#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "mov [rip + harness_entry], rdi",
        "lea rdi, [rip + {output}]",
        "lea rdi, [rdi + {area}]",
        "mov [rdi], rax", "mov [rdi + 8], rcx", "mov [rdi + 16], rdx", "mov [rdi + 24], rbx", "mov [rdi + 32], rsp",
        "mov [rdi + 40], rbp", "mov [rdi + 48], rsi", "mov [rdi + 64], r8", "mov [rdi + 72], r9", "mov [rdi + 80], r10",
        "mov [rdi + 88], r11", "mov [rdi + 96], r12", "mov [rdi + 104], r13", "mov [rdi + 112], r14",
        "mov [rdi + 120], r15",
        "mov rax, [rip + harness_entry]", "mov [rdi + 56], rax",
        "mov rsp, [rip + harness_stack]",
        "pushfq", "pop [rdi + 128]", "cld",
        "mov eax, 7", "xor edx, edx", "lea rdi, [rip + {output}]", "xsave64 [rdi]",
        "fninit", "mov dword ptr [rsp - 8], 0x1f80", "ldmxcsr [rsp - 8]", "vzeroupper",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
        output = sym OUTPUT,
        area = const AREA,
    )
}

global_asm!(
    ".pushsection .data",
    ".balign 8",
    "harness_stack: .quad 0",
    "harness_entry: .quad 0",
    ".popsection"
);

impl Harness {
    pub(crate) fn new() -> Harness {
        init();
        // SAFETY: mappings and code of our own, which nothing else knows.
        unsafe {
            let file = libc::memfd_create(c"memory".as_ptr(), 0);
            assert_eq!(libc::ftruncate(file, FILE as i64), 0);
            let memory = map(MEMORY, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_32BIT, file);
            let alias = map(MEMORY, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file);
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
            let code = map(PAGE, all, private, -1);
            let source = map(3 * PAGE, libc::PROT_READ | libc::PROT_WRITE, private, -1);
            libc::munmap((source + 2 * PAGE as u64) as *mut c_void, PAGE);
            let stack = map(
                1 << 18,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
            );
            let alternate = libc::stack_t {
                ss_sp: stack as *mut c_void,
                ss_flags: 0,
                ss_size: 1 << 18,
            };
            assert_eq!(libc::sigaltstack(&alternate, null_mut()), 0);
            for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
            }
            SHARED.code = code;
            SHARED.memory = memory;
            SHARED.alias = alias;
            Harness { memory, source, code }
        }
    }

    /// Where the instruction is put.
    pub(crate) fn instruction(&self) -> u64 {
        self.code + 2
    }

    /// Where a run ends: calls must go there.
    pub(crate) fn exit(&self, length: usize) -> u64 {
        self.instruction() + length as u64
    }

    /// Where a branch may go: the carry flag is set when it did.
    pub(crate) fn branch(&self) -> u64 {
        self.code + BRANCH as u64
    }

    /// Runs `instruction`; `memory` is the content of the file before.
    pub(crate) fn run(&self, instruction: &[u8], registers: &Registers, memory: &[u8], mode: Mode) -> Outcome {
        // SAFETY: one run at a time; the memory and the code are those that `new` has mapped.
        unsafe {
            let shared = shared();
            let alias = std::slice::from_raw_parts_mut(shared.alias as *mut u8, FILE);
            alias.copy_from_slice(memory);
            shared.before.copy_from_slice(memory);
            (shared.mode, shared.signals, shared.end) = (mode, 0, End::Done);
            (shared.handled, shared.unannounced) = (false, 0);
            let code = std::slice::from_raw_parts_mut(self.code as *mut u8, PAGE);
            // ud2 to enter the handler, or a no-op of the same length.
            let mut bytes = if mode == Mode::Step {
                vec![0x0f, 0x0b]
            } else {
                vec![0x66, 0x90]
            };
            bytes.extend(instruction);
            let leave = jump(leave as *const () as u64);
            bytes.extend(&leave);
            code[..bytes.len()].copy_from_slice(&bytes);
            // stc; jmp leave
            code[BRANCH] = 0xf9;
            code[BRANCH + 1..][..leave.len()].copy_from_slice(&leave);
            let protection = if mode == Mode::Emulate {
                libc::PROT_READ
            } else {
                libc::PROT_READ | libc::PROT_WRITE
            };
            assert_eq!(libc::mprotect(self.memory as *mut c_void, MEMORY, protection), 0);
            OUTPUT = Registers::ZERO;
            enter(registers, self.code);
            Outcome {
                end: shared.end,
                registers: Box::new(OUTPUT),
                memory: alias.to_vec(),
                handled: shared.handled,
                unannounced: shared.unannounced,
            }
        }
    }
}

fn jump(target: u64) -> Vec<u8> {
    [&[0xff, 0x25, 0, 0, 0, 0], &target.to_le_bytes()[..]].concat()
}

fn uc_rip(uc: &ucontext_t) -> u64 {
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// # Safety
/// `uc` is what the kernel passed to the handler.
unsafe fn step_over(shared: &mut Shared, uc: &mut ucontext_t) -> Option<End> {
    let mut buffer = [0; 15];
    // SAFETY: the caller's promise.
    let mut cx = unsafe { Context::new(uc) };
    cx.set_rip(shared.code + 2);
    match step(fetch(shared.code + 2, &mut buffer), &mut cx) {
        Step::Done | Step::Jumped => {
            shared.handled = true;
            None
        }
        Step::Store(_) | Step::Stop => Some(End::Refused),
    }
}

fn map(length: usize, protection: c_int, flags: c_int, file: c_int) -> u64 {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let address = unsafe { libc::mmap(null_mut(), length, protection, flags, file, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address as u64
}

unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, uc: *mut c_void) {
    // SAFETY: the kernel's arguments, and the run that the signal interrupted.
    unsafe {
        let uc = &mut *uc.cast::<ucontext_t>();
        if fix_up(uc, &*info) {
            return;
        }
        let shared = shared();
        let address = (*info).si_addr() as u64;
        shared.signals += 1;
        let inside = address.wrapping_sub(shared.memory) < MEMORY as u64;
        // An instruction that faults again and again is not getting on.
        let end = if shared.signals > 100 {
            Some(End::Refused)
        } else if shared.mode == Mode::Step && signal == libc::SIGILL && uc_rip(uc) == shared.code {
            step_over(shared, uc)
        } else if shared.mode == Mode::Emulate && signal == libc::SIGSEGV && inside {
            perform(shared, uc)
        } else {
            Some(End::Signal(signal, address))
        };
        if let Some(end) = end {
            shared.end = end;
            uc.uc_mcontext.gregs[libc::REG_RIP as usize] = leave as *const () as i64;
        }
    }
}

/// What the runtime does: perform step after step, as long as the instruction writes persistent memory.
///
/// # Safety
/// `uc` is what the kernel passed to the handler.
unsafe fn perform(shared: &mut Shared, uc: &mut ucontext_t) -> Option<End> {
    // SAFETY: the caller's promise; the code and the alias are those that `new` has mapped.
    unsafe {
        shared.handled = true;
        let mut cx = Context::new(uc);
        let rip = cx.rip();
        let code = std::slice::from_raw_parts(rip as *const u8, 15);
        let Ok(plan) = decode(code, rip) else {
            return Some(End::Refused);
        };
        while cx.rip() == rip {
            let writes = plan.writes(&cx);
            let inside = |at: u64| at.wrapping_sub(shared.memory) < MEMORY as u64;
            if !writes.is_empty()
                && !writes
                    .ranges()
                    .all(|r| inside(r.address) && inside(r.address + r.length as u64 - 1))
            {
                return None;
            }
            match plan.perform(&mut cx, shared.alias.wrapping_sub(shared.memory) as i64) {
                Ok(performed) => {
                    for range in performed.written {
                        let covered = |w: crashproof_instruction::WrittenRange| {
                            w.address <= range.address
                                && range.address + range.length as u64 <= w.address + w.length as u64
                        };
                        if !writes.ranges().any(covered) {
                            shared.unannounced += range.length;
                        }
                        let at = (range.address - shared.memory) as usize;
                        let length = range.length.min(FILE - at);
                        let now = (shared.alias + at as u64) as *const u8;
                        ptr::copy_nonoverlapping(now, (&raw mut shared.before).cast::<u8>().add(at), length);
                    }
                    let now = std::slice::from_raw_parts(shared.alias as *const u8, FILE);
                    shared.unannounced += now.iter().zip(&shared.before).filter(|(a, b)| a != b).count();
                }
                Err(Fault { address, signal, .. }) => return Some(End::Signal(signal, address)),
            }
        }
        None
    }
}

/// xorshift64*: the same cases in every run.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }

    pub(crate) fn registers(&mut self) -> Registers {
        let mut registers = Registers::ZERO;
        self.fill(&mut registers.area[..416]);
        self.fill(&mut registers.area[576..832]);
        registers.area[..32].fill(0);
        registers.area[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
        // Status word: any top of stack and condition codes, no pending exception.
        registers.area[2..4].copy_from_slice(&(self.next() as u16 & 0x7f00).to_le_bytes());
        registers.area[4] = self.next() as u8;
        registers.area[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        for register in registers.area[32..160].chunks_mut(16) {
            register[10..].fill(0);
            // Mostly ordinary numbers.
            if !self.chance(4) {
                let exponent = 0x3ff0 + self.below(80) as u16;
                register[7] |= 0x80;
                register[8..10].copy_from_slice(&exponent.to_le_bytes());
            }
        }
        registers.area[512] = 7;
        for value in &mut registers.general {
            *value = self.next();
            if self.chance(4) {
                *value = self.below(256);
            }
        }
        registers.flags = self.next() & 0x8d5 | 2;
        registers
    }
}
