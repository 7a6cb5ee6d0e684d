//! Running a relocated copy of an instruction: the general way to perform a store elsewhere.
//!
//! The copy has its memory operand replaced by `[scratch]`, where the scratch register is one that the instruction does
//! not use. It is put into a slot of executable memory, followed by a jump back, and run with the program's registers; so
//! it is one instruction of the same width, locked if the original is, and its flags are the processor's own.
//!
//! Slots are found by the copy's bytes, hence shared by all instructions that differ only in the address. They are claimed
//! without locks: two threads that want the same copy at once may make two. A slot once made is never changed, except for
//! a few that serve when all others are taken.

use crate::access::Fault;
use crate::context::{Context, RBP, RBX, RDI, RSI, RSP, flag};
use core::arch::global_asm;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use iced_x86::{EncodingKind, FlowControl, Instruction, Mnemonic, OpKind};

const SLOT: usize = 64;
const LASTING: usize = 8192;
const TEMPORARY: usize = 64;
const SLOTS: usize = LASTING + TEMPORARY;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const READY: u32 = 2;

/// An instruction whose memory operand is `[scratch]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocated {
    bytes: [u8; 15],
    length: u8,
    /// Number of the register that holds the address.
    scratch: u8,
    /// The program's rsp is an operand: the copy uses rbp for it, since rsp is the handler's.
    stack_pointer_as_rbp: bool,
    /// Needs the program's vector, x87 or mask registers.
    extended: bool,
    /// May change any of them; a store changes at most the x87 registers and MXCSR.
    changes_vectors: bool,
}

impl Relocated {
    /// `code` starts with the bytes of `instruction`, which has a ModRM memory operand without a vector index.
    pub(crate) fn new(instruction: &Instruction, code: &[u8]) -> Option<Relocated> {
        let code = code.get(..instruction.len())?;
        let layout = Encoding::parse(instruction, code)?;
        let uses = |number| uses(instruction, number);
        let scratch = [RSI, RDI, RBX].into_iter().find(|&number| !uses(number))?;

        let mut copy = Relocated {
            bytes: [0; 15],
            length: 0,
            scratch: scratch as u8,
            stack_pointer_as_rbp: false,
            extended: layout.extended(instruction, code),
            changes_vectors: false,
        };
        copy.push_prefixes(code.get(..layout.prefixes)?);
        let mut head = [0; 15];
        let head = head.get_mut(..layout.modrm - layout.prefixes)?;
        head.copy_from_slice(&code[layout.prefixes..layout.modrm]);
        // The scratch register is one of the lower eight: no extension bits for base and index.
        match instruction.encoding() {
            EncodingKind::Legacy => {
                if layout.rex {
                    head[0] &= !0b11;
                }
            }
            EncodingKind::VEX | EncodingKind::EVEX | EncodingKind::XOP => {
                if head[0] != 0xc5 {
                    head[1] |= 0b0110_0000;
                }
            }
            _ => return None,
        }
        for &byte in &*head {
            copy.push(byte);
        }
        let mut register = code[layout.modrm] & 0b0011_1000;
        if uses(RSP) {
            // Only the ModRM register field is renamed, so this must be the operand that it encodes.
            if instruction.encoding() != EncodingKind::Legacy || register >> 3 != RSP as u8 || uses(RBP) {
                return None;
            }
            copy.stack_pointer_as_rbp = true;
            register = (RBP as u8) << 3;
        }
        copy.push(register | scratch as u8);
        for &byte in code.get(layout.immediate..)? {
            copy.push(byte);
        }
        Some(copy)
    }

    /// For an instruction that takes its address in a register (`maskmovq` in rdi): the copy is the instruction itself.
    pub(crate) fn unchanged(instruction: &Instruction, code: &[u8], address: usize) -> Option<Relocated> {
        let code = code.get(..instruction.len())?;
        let prefixes = prefix_length(code);
        let mut copy = Relocated {
            bytes: [0; 15],
            length: 0,
            scratch: address as u8,
            stack_pointer_as_rbp: false,
            extended: true,
            changes_vectors: false,
        };
        copy.push_prefixes(&code[..prefixes]);
        for &byte in &code[prefixes..] {
            copy.push(byte);
        }
        Some(copy)
    }

    /// For an instruction that has no memory operand. `extended` says whether its registers are vectors.
    pub(crate) fn of_registers(instruction: &Instruction, code: &[u8], extended: bool) -> Option<Relocated> {
        const NO_SCRATCH: usize = RSP;
        let mut copy = Relocated::unchanged(instruction, code, NO_SCRATCH)?;
        copy.extended = extended;
        if uses(instruction, RSP) {
            // rsp is renamed in the ModRM byte, where it has the number 4 without an extension bit.
            if instruction.encoding() != EncodingKind::Legacy || uses(instruction, RBP) {
                return None;
            }
            let code = copy.code();
            let start = prefix_length(code);
            let rex = Some(*code.get(start)?).filter(|byte| byte & 0xf0 == 0x40).unwrap_or(0);
            let opcode = start + usize::from(rex != 0);
            let modrm = *code.get(opcode + 1)?;
            // In these the register field is an operand, respectively part of the opcode.
            let register_is_operand = match *code.get(opcode)? {
                0x00..=0x3f if code[opcode] & 7 < 4 => true,
                0x85 => true,
                0x81 | 0x83 => false,
                _ => return None,
            };
            let mut renamed = modrm;
            if modrm & 7 == RSP as u8 && rex & 1 == 0 {
                renamed = renamed & !7 | RBP as u8;
            }
            if register_is_operand && (modrm >> 3) & 7 == RSP as u8 && rex & 4 == 0 {
                renamed = renamed & !0o70 | (RBP as u8) << 3;
            }
            if modrm >> 6 != 3 {
                return None;
            }
            copy.bytes[opcode + 1] = renamed;
            copy.stack_pointer_as_rbp = true;
        }
        Some(copy)
    }

    /// Segment and address-size prefixes have had their effect on the address already.
    fn push_prefixes(&mut self, prefixes: &[u8]) {
        for &byte in prefixes {
            if matches!(byte, 0x66 | 0xf0 | 0xf2 | 0xf3) {
                self.push(byte);
            }
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
            self.length += 1;
        }
    }

    pub(crate) fn code(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn key(&self) -> (u64, u64) {
        let mut key = [0; 16];
        key[..15].copy_from_slice(&self.bytes);
        key[15] = self.length;
        let key = u128::from_le_bytes(key);
        (key as u64, (key >> 64) as u64)
    }

    pub(crate) fn changing_vectors(mut self) -> Relocated {
        self.changes_vectors = self.extended;
        self
    }

    pub(crate) fn extended(&self) -> bool {
        self.extended
    }

    /// Runs the copy with its memory operand at `operand` + `delta` and takes over the registers and flags that it leaves.
    /// Advancing rip is left to the caller. The fault, if any, has the address that the copy used.
    ///
    /// # Safety
    /// The address may be written by us, or is not mapped.
    pub(crate) unsafe fn run(&self, pool: &Pool, cx: &mut Context, operand: u64, delta: i64) -> Result<(), Fault> {
        let address = operand.wrapping_add_signed(delta);
        let mut state = State {
            general: core::array::from_fn(|number| cx.general(number)),
            flags: cx.flags() & (flag::ARITHMETIC | flag::DIRECTION) | FIXED_FLAGS,
            area: ptr::null_mut(),
            restored: 0,
            saved: 0,
            fault: Fault::default(),
        };
        if self.stack_pointer_as_rbp {
            state.general[RBP] = state.general[RSP];
        }
        state.general[usize::from(self.scratch & 7)] = address;
        if self.extended
            && let Some((area, features)) = cx.extended_area()
        {
            state.area = area;
            state.restored = features & RESTORED;
            state.saved = features & if self.changes_vectors { RESTORED } else { SAVED };
        }
        let slot = pool.find(self);
        // SAFETY: the slot holds the copy and the jump back to `crashproof_stub_return`; the copy changes no register but
        // those in `state` and writes nothing but `address`, which the caller vouches for.
        let status = unsafe { crashproof_run_stub(&mut state, pool.address(slot)) };
        if !state.area.is_null() {
            // SAFETY: the area is the one that the copy's state was saved to.
            unsafe { replace_x87_pointers(state.area, [(pool.address(slot), cx.rip()), (address, operand)]) };
        }
        pool.release(slot);
        if status != 0 {
            return Err(state.fault);
        }
        for (number, &value) in state.general.iter().enumerate() {
            let renamed = self.stack_pointer_as_rbp && number == RBP;
            if number != usize::from(self.scratch) && number != RSP && !renamed {
                cx.set_general(number, value);
            }
        }
        if self.stack_pointer_as_rbp {
            cx.set_general(RSP, state.general[RBP]);
        }
        cx.set_flags(cx.flags() & !flag::ARITHMETIC | state.flags & flag::ARITHMETIC);
        Ok(())
    }
}

/// Whether a general register is an operand, apart from those that address memory. Of the implicit ones only rbx matters.
fn uses(instruction: &Instruction, number: usize) -> bool {
    let explicit = (0..instruction.op_count()).any(|operand| {
        let register = instruction.op_register(operand);
        instruction.op_kind(operand) == OpKind::Register
            && register.is_gpr()
            && register.full_register().number() == number
    });
    let implicit = number == RBX && matches!(instruction.mnemonic(), Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b);
    explicit || implicit
}

/// The x87 unit remembers the addresses of its last instruction and operand; the program must find its own there.
///
/// # Safety
/// `area` points to an XSAVE area in the 64-bit format.
unsafe fn replace_x87_pointers(area: *mut u8, pairs: [(u64, u64); 2]) {
    const INSTRUCTION: usize = 8;
    const OPERAND: usize = 16;
    for (offset, (copy, original)) in [INSTRUCTION, OPERAND].into_iter().zip(pairs) {
        // SAFETY: both fields lie in the legacy region, which is 16-byte aligned.
        unsafe {
            let pointer = area.add(offset).cast::<u64>();
            if pointer.read() == copy {
                pointer.write(original);
            }
        }
    }
}

/// Where the parts of an instruction with a ModRM byte are.
struct Encoding {
    /// Length of the legacy prefixes.
    prefixes: usize,
    /// A REX prefix follows them.
    rex: bool,
    opcode: usize,
    modrm: usize,
    immediate: usize,
}

/// Whether this is a branch with an operand-size prefix, which some processors ignore and others do not.
pub(crate) fn is_ambiguous_branch(instruction: &Instruction, code: &[u8]) -> bool {
    let (prefixes, rest) = code.split_at_checked(prefix_length(code)).unwrap_or_default();
    let wide = rest.first().is_some_and(|byte| byte & 0xf8 == 0x48);
    instruction.flow_control() != FlowControl::Next && prefixes.contains(&0x66) && !wide
}

fn prefix_length(code: &[u8]) -> usize {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    // A REX prefix that another prefix follows has no effect; it goes with the prefixes.
    let mut length = 0;
    loop {
        let rex = code
            .get(length..)
            .map_or(0, |rest| rest.iter().take_while(|byte| **byte & 0xf0 == 0x40).count());
        if code.get(length + rex).is_some_and(is_prefix) {
            length += rex + 1;
        } else {
            return length + rex.saturating_sub(1);
        }
    }
}

impl Encoding {
    fn parse(instruction: &Instruction, code: &[u8]) -> Option<Encoding> {
        let prefixes = prefix_length(code);
        let rex = instruction.encoding() == EncodingKind::Legacy && *code.get(prefixes)? & 0xf0 == 0x40;
        let mut opcode = prefixes + usize::from(rex);
        match instruction.encoding() {
            EncodingKind::Legacy => {
                if *code.get(opcode)? == 0x0f {
                    opcode += 1;
                    if matches!(code.get(opcode)?, 0x38 | 0x3a) {
                        opcode += 1;
                    }
                }
            }
            EncodingKind::VEX => opcode += if *code.get(opcode)? == 0xc5 { 2 } else { 3 },
            EncodingKind::XOP => opcode += 3,
            EncodingKind::EVEX => opcode += 4,
            _ => return None,
        }
        let modrm = opcode + 1;
        let (mode, rm) = (*code.get(modrm)? >> 6, code[modrm] & 7);
        if mode == 3 {
            return None;
        }
        let mut immediate = modrm + 1;
        let mut base = rm;
        if rm == 4 {
            base = *code.get(immediate)? & 7;
            immediate += 1;
        }
        immediate += match (mode, base) {
            (0, 5) | (2, _) => 4,
            (1, _) => 1,
            _ => 0,
        };
        Some(Encoding {
            prefixes,
            rex,
            opcode,
            modrm,
            immediate,
        })
    }

    /// Whether the instruction uses state beyond the general registers.
    fn extended(&self, instruction: &Instruction, code: &[u8]) -> bool {
        if instruction.encoding() != EncodingKind::Legacy {
            return !(0..instruction.op_count()).all(|operand| {
                instruction.op_kind(operand) != OpKind::Register || instruction.op_register(operand).is_gpr()
            });
        }
        let opcode = code[self.opcode];
        let escape = self.opcode > self.prefixes && code[self.opcode - 1] == 0x0f;
        let operand = (code[self.modrm] >> 3) & 7;
        let other_registers = (0..instruction.op_count()).any(|operand| {
            let register = instruction.op_register(operand);
            instruction.op_kind(operand) == OpKind::Register && !register.is_gpr() && !register.is_segment_register()
        });
        let x87 = !escape && matches!(opcode, 0xd8..=0xdf);
        // fxsave, xsave, xsaveopt; xsavec, xsaves
        let state = escape && (opcode == 0xae || opcode == 0xc7 && matches!(operand, 3..=5));
        other_registers || x87 || state
    }
}

/// What the assembly below loads and stores.
#[repr(C)]
struct State {
    general: [u64; 16],
    flags: u64,
    /// The frame's XSAVE area, or null if only general registers matter.
    area: *mut u8,
    restored: u64,
    saved: u64,
    fault: Fault,
}

/// Reserved bit 1 and the interrupt flag.
const FIXED_FLAGS: u64 = 0x202;
/// x87, SSE, AVX and the AVX-512 components; not the protection keys, which are the handler's own affair.
const RESTORED: u64 = 0b1110_0111;
/// The x87 registers and MXCSR.
const SAVED: u64 = 0b11;

unsafe extern "C" {
    fn crashproof_run_stub(state: &mut State, stub: u64) -> u32;
    static crashproof_stub_return: u8;
    static crashproof_stub_failed: u8;
}

// While a copy runs, [rsp] is the stub's address and [rsp + 8] the state; above that MXCSR and the x87 control word, which
// belong to our caller.
global_asm!(
    ".pushsection .text.crashproof_stub, \"ax\", @progbits",
    ".hidden crashproof_run_stub",
    ".globl crashproof_run_stub",
    "crashproof_run_stub:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "push rdi",
    "push rsi",
    "mov rcx, [rdi + {area}]",
    "test rcx, rcx",
    "jz 2f",
    "stmxcsr [rsp + 16]",
    "fnstcw [rsp + 20]",
    "mov eax, [rdi + {restored}]",
    "mov edx, [rdi + {restored} + 4]",
    "xrstor64 [rcx]",
    "2:",
    "push qword ptr [rdi + {flags}]",
    "popfq",
    "mov rax, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "jmp qword ptr [rsp]",
    ".hidden crashproof_stub_return",
    ".globl crashproof_stub_return",
    "crashproof_stub_return:",
    "mov [rsp], rdi",
    "mov rdi, [rsp + 8]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], rdx",
    "mov [rdi + 24], rbx",
    "mov [rdi + 40], rbp",
    "mov [rdi + 48], rsi",
    "mov [rdi + 64], r8",
    "mov [rdi + 72], r9",
    "mov [rdi + 80], r10",
    "mov [rdi + 88], r11",
    "mov [rdi + 96], r12",
    "mov [rdi + 104], r13",
    "mov [rdi + 112], r14",
    "mov [rdi + 120], r15",
    "mov rax, [rsp]",
    "mov [rdi + 56], rax",
    "pushfq",
    "pop qword ptr [rdi + {flags}]",
    "cld",
    "xor ebx, ebx",
    "mov rcx, [rdi + {area}]",
    "test rcx, rcx",
    "jz 4f",
    "mov eax, [rdi + {saved}]",
    "mov edx, [rdi + {saved} + 4]",
    "xsave64 [rcx]",
    "jmp 3f",
    ".hidden crashproof_stub_failed",
    ".globl crashproof_stub_failed",
    "crashproof_stub_failed:",
    "cld",
    "mov ebx, 1",
    "mov rdi, [rsp + 8]",
    "mov rcx, [rdi + {area}]",
    "test rcx, rcx",
    "jz 4f",
    "3:",
    "fninit",
    "fldcw [rsp + 20]",
    "ldmxcsr [rsp + 16]",
    "4:",
    "mov eax, ebx",
    "add rsp, 24",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
    flags = const offset_of!(State, flags),
    area = const offset_of!(State, area),
    restored = const offset_of!(State, restored),
    saved = const offset_of!(State, saved),
);

struct Slot {
    status: AtomicU32,
    key: [AtomicU64; 2],
}

/// The executable memory.
pub(crate) struct Pool {
    code: *mut u8,
    slots: *const Slot,
}

// SAFETY: a slot's code is written only by the thread that claimed it and read after its status says so; the rest is atomic.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Without executable memory the pool is not usable; that shows in [`Pool::usable`].
    pub(crate) fn new() -> Pool {
        let map = |length, protection| {
            // SAFETY: a new anonymous mapping.
            let address = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    length,
                    protection,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            if address == libc::MAP_FAILED {
                ptr::null_mut()
            } else {
                address
            }
        };
        let read_write = libc::PROT_READ | libc::PROT_WRITE;
        Pool {
            code: map(SLOTS * SLOT, read_write | libc::PROT_EXEC).cast(),
            // All zero: every slot is free.
            slots: map(SLOTS * size_of::<Slot>(), read_write).cast(),
        }
    }

    pub(crate) fn usable(&self) -> bool {
        !self.code.is_null() && !self.slots.is_null()
    }

    fn address(&self, slot: usize) -> u64 {
        self.code as u64 + (slot * SLOT) as u64
    }

    fn slot(&self, number: usize) -> &Slot {
        // SAFETY: numbers below SLOTS only; the mapping lives for ever.
        unsafe { &*self.slots.add(number) }
    }

    /// The slot that holds this copy, to be given back with [`Pool::release`].
    fn find(&self, copy: &Relocated) -> usize {
        let key = copy.key();
        let hash = (key.0 ^ key.1.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for probe in 0..LASTING {
            let number = (hash as usize + probe) % LASTING;
            let slot = self.slot(number);
            let mut status = slot.status.load(Ordering::Acquire);
            if status == FREE {
                match slot
                    .status
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Acquire)
                {
                    Ok(_) => {
                        self.fill(number, copy);
                        slot.key[0].store(key.0, Ordering::Relaxed);
                        slot.key[1].store(key.1, Ordering::Relaxed);
                        slot.status.store(READY, Ordering::Release);
                        return number;
                    }
                    Err(other) => status = other,
                }
            }
            // A slot that is only claimed may never become ready: a fork may have come in between.
            if status == READY && key == (slot.key[0].load(Ordering::Relaxed), slot.key[1].load(Ordering::Relaxed)) {
                return number;
            }
        }
        loop {
            for number in LASTING..SLOTS {
                let status = &self.slot(number).status;
                if status
                    .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    self.fill(number, copy);
                    return number;
                }
            }
            core::hint::spin_loop();
        }
    }

    fn release(&self, slot: usize) {
        if slot >= LASTING {
            self.slot(slot).status.store(FREE, Ordering::Release);
        }
    }

    fn fill(&self, slot: usize, copy: &Relocated) {
        /// `jmp [rip]`: the address follows.
        const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
        let back = (&raw const crashproof_stub_return as u64).to_le_bytes();
        let mut code = [0xcc; SLOT];
        let parts = copy.code().iter().chain(&JUMP).chain(&back);
        for (place, &byte) in code.iter_mut().zip(parts) {
            *place = byte;
        }
        // SAFETY: the slot lies in the mapping and we have claimed it.
        unsafe { (self.address(slot) as *mut [u8; SLOT]).write(code) };
    }

    /// If `rip` is in a stub: where to go on after a fault, and the fault to fill in.
    ///
    /// # Safety
    /// `rsp` belongs to the context that `rip` was taken from.
    pub(crate) unsafe fn guard(&self, rip: u64, rsp: u64) -> Option<(u64, *mut Fault)> {
        let inside = self.usable() && rip.wrapping_sub(self.code as u64) < (SLOTS * SLOT) as u64;
        if !inside {
            return None;
        }
        // SAFETY: stubs are run by `crashproof_run_stub` alone, which leaves the state's address at [rsp + 8].
        unsafe {
            let state = ((rsp + 8) as *const *mut State).read();
            Some((&raw const crashproof_stub_failed as u64, &raw mut (*state).fault))
        }
    }
}
