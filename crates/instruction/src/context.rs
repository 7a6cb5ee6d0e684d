//! The interrupted program's registers, as the kernel saved them in the signal frame.
//!
//! Vector registers are read from the frame's XSAVE area and never from the processor: on entry to a handler they are
//! the handler's own.

use crate::machine::{Layout, Machine};
use core::arch::asm;
use core::marker::PhantomData;
use iced_x86::{Instruction, OpKind, Register};
use libc::ucontext_t;

/// Numbers of general registers as the processor encodes them.
pub(crate) const RAX: usize = 0;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;
pub(crate) const RSI: usize = 6;
pub(crate) const RDI: usize = 7;

/// Where `gregs` keeps the register that the processor encodes with this number.
const GREG: [usize; 16] = [
    libc::REG_RAX as usize,
    libc::REG_RCX as usize,
    libc::REG_RDX as usize,
    libc::REG_RBX as usize,
    libc::REG_RSP as usize,
    libc::REG_RBP as usize,
    libc::REG_RSI as usize,
    libc::REG_RDI as usize,
    libc::REG_R8 as usize,
    libc::REG_R9 as usize,
    libc::REG_R10 as usize,
    libc::REG_R11 as usize,
    libc::REG_R12 as usize,
    libc::REG_R13 as usize,
    libc::REG_R14 as usize,
    libc::REG_R15 as usize,
];

pub(crate) mod flag {
    pub(crate) const CARRY: u64 = 1 << 0;
    pub(crate) const PARITY: u64 = 1 << 2;
    pub(crate) const ZERO: u64 = 1 << 6;
    pub(crate) const SIGN: u64 = 1 << 7;
    pub(crate) const DIRECTION: u64 = 1 << 10;
    pub(crate) const OVERFLOW: u64 = 1 << 11;
    pub(crate) const RESUME: u64 = 1 << 16;
    /// What arithmetic changes: CF, PF, AF, ZF, SF, OF.
    pub(crate) const ARITHMETIC: u64 = 0x8d5;
}

/// State components of the XSAVE area.
pub(crate) mod component {
    pub(crate) const X87: usize = 0;
    pub(crate) const SSE: usize = 1;
    pub(crate) const AVX: usize = 2;
    pub(crate) const OPMASK: usize = 5;
    pub(crate) const ZMM_HIGH: usize = 6;
    pub(crate) const ZMM16: usize = 7;
}

/// "FXSR" backwards: the kernel's mark that the frame holds more than the legacy 512 bytes.
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const SW_RESERVED: usize = 464;
const XSTATE_BV: usize = 512;
const MXCSR: usize = 24;
const XMM: usize = 160;

/// The program's registers in a signal frame.
pub struct Context<'a> {
    uc: &'a mut ucontext_t,
    layout: &'a Layout,
    area: PhantomData<&'a mut [u8]>,
}

impl<'a> Context<'a> {
    /// # Safety
    /// `uc` is what the kernel passed to a signal handler of this thread: `fpregs` is null or points to the frame's
    /// XSAVE area, which nobody else accesses meanwhile.
    pub unsafe fn new(uc: &'a mut ucontext_t) -> Context<'a> {
        // SAFETY: passed on.
        unsafe { Context::with_layout(uc, &Machine::get().layout) }
    }

    /// Like [`Context::new`] for an area laid out as on another processor.
    ///
    /// # Safety
    /// As for [`Context::new`].
    pub(crate) unsafe fn with_layout(uc: &'a mut ucontext_t, layout: &'a Layout) -> Context<'a> {
        Context {
            uc,
            layout,
            area: PhantomData,
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.layout
    }

    /// Address of the next instruction.
    pub fn rip(&self) -> u64 {
        self.uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
    }

    /// Has the program go on at another instruction.
    pub fn set_rip(&mut self, rip: u64) {
        self.uc.uc_mcontext.gregs[libc::REG_RIP as usize] = rip as i64;
    }

    /// The flags register.
    pub fn flags(&self) -> u64 {
        self.uc.uc_mcontext.gregs[libc::REG_EFL as usize] as u64
    }

    /// Sets the flags register.
    pub fn set_flags(&mut self, flags: u64) {
        self.uc.uc_mcontext.gregs[libc::REG_EFL as usize] = flags as i64;
    }

    /// A general register by the number that the processor encodes it with.
    pub fn general(&self, number: usize) -> u64 {
        self.uc.uc_mcontext.gregs[GREG[number & 15]] as u64
    }

    /// Sets the general register that the processor encodes with this number.
    pub fn set_general(&mut self, number: usize, value: u64) {
        self.uc.uc_mcontext.gregs[GREG[number & 15]] = value as i64;
    }

    /// The value of a general register of any width, zero-extended.
    pub(crate) fn register(&self, register: Register) -> u64 {
        let (number, shift, bits) = general_register(register);
        (self.general(number) >> shift) & (u64::MAX >> (64 - bits))
    }

    /// Writes a general register of any width as the processor does: 32 bits clear the upper half, fewer leave the rest.
    pub(crate) fn set_register(&mut self, register: Register, value: u64) {
        let (number, shift, bits) = general_register(register);
        let value = match bits {
            64 => value,
            32 => value & 0xffff_ffff,
            _ => {
                let mask = ((1 << bits) - 1) << shift;
                self.general(number) & !mask | (value << shift) & mask
            }
        };
        self.set_general(number, value);
    }

    /// The instruction is done: go on at `next`.
    pub(crate) fn finish(&mut self, next: u64) {
        self.set_rip(next);
        self.set_flags(self.flags() & !flag::RESUME);
    }

    /// The address of the explicit memory operand; without the index part if that is a vector.
    pub(crate) fn effective_address(&self, instruction: &Instruction) -> u64 {
        segment_base(instruction.memory_segment()).wrapping_add(self.offset(instruction))
    }

    /// The address without the segment's base, as `lea` computes it.
    pub(crate) fn offset(&self, instruction: &Instruction) -> u64 {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let mut offset = instruction.memory_displacement64();
        let mut narrow = instruction.memory_displ_size() == 4;
        if base.is_gpr() {
            offset = offset.wrapping_add(self.register(base));
            narrow = base.is_gpr32();
        } else if base == Register::RIP || base == Register::EIP {
            narrow = base == Register::EIP;
        }
        if index.is_gpr() {
            offset = offset.wrapping_add(
                self.register(index)
                    .wrapping_mul(instruction.memory_index_scale().into()),
            );
            narrow = index.is_gpr32();
        }
        if narrow { offset & 0xffff_ffff } else { offset }
    }

    /// The address of an implicit operand such as `es:[rdi]`, together with the register that holds it.
    pub(crate) fn implicit_address(&self, instruction: &Instruction, operand: u32) -> Option<(u64, Register)> {
        let (register, segment) = match instruction.op_kind(operand) {
            OpKind::MemoryESRDI => (Register::RDI, Register::ES),
            OpKind::MemoryESEDI => (Register::EDI, Register::ES),
            OpKind::MemorySegRDI => (Register::RDI, instruction.memory_segment()),
            OpKind::MemorySegEDI => (Register::EDI, instruction.memory_segment()),
            OpKind::MemorySegRSI => (Register::RSI, instruction.memory_segment()),
            OpKind::MemorySegESI => (Register::ESI, instruction.memory_segment()),
            _ => return None,
        };
        Some((segment_base(segment).wrapping_add(self.register(register)), register))
    }

    fn area(&self) -> Option<*mut u8> {
        let area = self.uc.uc_mcontext.fpregs.cast::<u8>();
        (!area.is_null()).then_some(area)
    }

    /// The area, if it is more than the legacy region, and the components that it has room for.
    pub(crate) fn extended_area(&self) -> Option<(*mut u8, u64)> {
        let area = self.area()?;
        // SAFETY: the legacy region is always there and 16-byte aligned.
        unsafe {
            let magic = area.add(SW_RESERVED).cast::<u32>().read();
            (magic == FP_XSTATE_MAGIC1).then(|| (area, area.add(SW_RESERVED + 8).cast::<u64>().read()))
        }
    }

    /// Where a component is saved; `None` if it is not, because it is in its initial state or not known to the kernel.
    fn component(&self, component: usize) -> Option<*mut u8> {
        let legacy = component <= component::SSE;
        let Some((area, features)) = self.extended_area() else {
            return if legacy { self.area() } else { None };
        };
        // SAFETY: with the magic, the header follows the legacy region.
        let present = unsafe { area.add(XSTATE_BV).cast::<u64>().read() };
        if present & features & 1 << component == 0 {
            return None;
        }
        let offset = if legacy { 0 } else { self.layout.offset(component)? };
        // SAFETY: the kernel's area holds every component in `features`, at the processor's offset.
        Some(unsafe { area.add(offset) })
    }

    /// Like `component`, for writing: a component in its initial state is made explicit.
    fn component_mut(&mut self, component: usize) -> Option<*mut u8> {
        if let Some(at) = self.component(component) {
            return Some(at);
        }
        let (area, features) = self.extended_area()?;
        if features & 1 << component == 0 {
            return None;
        }
        let (offset, start, size) = match component {
            component::X87 => return None,
            component::SSE => (0, XMM, 256),
            _ => (self.layout.offset(component)?, 0, self.layout.size(component)),
        };
        // SAFETY: as in `component`.
        unsafe {
            let at = area.add(offset);
            at.add(start).write_bytes(0, size);
            let present = area.add(XSTATE_BV).cast::<u64>();
            present.write(present.read() | 1 << component);
            Some(at)
        }
    }

    /// A vector register: its lower 16, 32 or 64 bytes are those of the xmm, ymm or zmm register of that number.
    pub(crate) fn vector(&self, number: usize) -> [u8; 64] {
        let mut value = [0; 64];
        for (component, from, to, length) in vector_parts(number) {
            if let Some(at) = self.component(component) {
                // SAFETY: `from` and `length` lie in the component, `to` and `length` in the value.
                unsafe {
                    value
                        .as_mut_ptr()
                        .add(to)
                        .copy_from_nonoverlapping(at.add(from), length)
                };
            }
        }
        value
    }

    /// Sets bytes `start..start + bytes.len()` of a vector register.
    pub(crate) fn set_vector(&mut self, number: usize, start: usize, bytes: &[u8]) -> bool {
        for (component, from, to, length) in vector_parts(number) {
            let (first, last) = (start.max(to), (start + bytes.len()).min(to + length));
            if first >= last {
                continue;
            }
            // Zeroing what is in its initial state would only make the frame larger.
            if bytes[first - start..last - start].iter().all(|&byte| byte == 0) && self.component(component).is_none() {
                continue;
            }
            let Some(at) = self.component_mut(component) else {
                return false;
            };
            // SAFETY: the part of the register that the component holds, cut to what is written.
            unsafe {
                at.add(from + first - to)
                    .copy_from_nonoverlapping(bytes.as_ptr().add(first - start), last - first)
            };
        }
        true
    }

    pub(crate) fn opmask(&self, register: Register) -> u64 {
        // SAFETY: the component is eight registers of 8 bytes.
        self.component(component::OPMASK)
            .map_or(0, |at| unsafe { at.cast::<u64>().add(register.number() & 7).read() })
    }

    pub(crate) fn set_opmask(&mut self, register: Register, value: u64) {
        if let Some(at) = self.component_mut(component::OPMASK) {
            // SAFETY: as in `opmask`.
            unsafe { at.cast::<u64>().add(register.number() & 7).write(value) };
        }
    }

    pub(crate) fn mxcsr(&self) -> u32 {
        const INITIAL: u32 = 0x1f80;
        // MXCSR is saved whether or not the vector registers are in their initial state.
        // SAFETY: the legacy region is always there.
        self.area()
            .map_or(INITIAL, |area| unsafe { area.add(MXCSR).cast::<u32>().read() })
    }

    /// The x87 control and status words.
    pub(crate) fn x87_words(&self) -> (u16, u16) {
        const INITIAL: (u16, u16) = (0x37f, 0);
        // SAFETY: they are the first two words of the legacy region.
        self.component(component::X87)
            .map_or(INITIAL, |area| unsafe { area.cast::<(u16, u16)>().read() })
    }
}

/// Number, position of the lowest bit and width of a general register.
fn general_register(register: Register) -> (usize, u32, u32) {
    let number = register.number();
    match register {
        Register::AH | Register::CH | Register::DH | Register::BH => (number - 4, 8, 8),
        _ if register.is_gpr64() => (number, 0, 64),
        _ if register.is_gpr32() => (number, 0, 32),
        _ if register.is_gpr16() => (number, 0, 16),
        _ if register >= Register::SPL => (number - 4, 0, 8),
        _ => (number, 0, 8),
    }
}

/// The parts that a vector register is saved in: component, offset in it, offset in the register, length.
fn vector_parts(number: usize) -> [(usize, usize, usize, usize); 3] {
    if number < 16 {
        [
            (component::SSE, XMM + 16 * number, 0, 16),
            (component::AVX, 16 * number, 16, 16),
            (component::ZMM_HIGH, 32 * number, 32, 32),
        ]
    } else {
        let at = 64 * (number & 15);
        [
            (component::ZMM16, at, 0, 64),
            (component::ZMM16, at, 64, 0),
            (component::ZMM16, at, 64, 0),
        ]
    }
}

/// In 64-bit mode only fs and gs have a base; a handler runs with those of the interrupted thread.
pub(crate) fn segment_base(segment: Register) -> u64 {
    let base: u64;
    match segment {
        Register::FS | Register::GS => {}
        _ => return 0,
    }
    if Machine::get().fsgsbase {
        // SAFETY: the kernel says that user code may use these instructions; they only read.
        unsafe {
            if segment == Register::FS {
                asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags));
            } else {
                asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags));
            }
        }
        return base;
    }
    const ARCH_GET_FS: u64 = 0x1003;
    const ARCH_GET_GS: u64 = 0x1004;
    let which = if segment == Register::FS {
        ARCH_GET_FS
    } else {
        ARCH_GET_GS
    };
    let mut base = 0u64;
    // SAFETY: arch_prctl writes one word to the given address.
    unsafe {
        asm!("syscall", inlateout("rax") libc::SYS_arch_prctl => _, in("rdi") which, in("rsi") &raw mut base,
            out("rcx") _, out("r11") _, options(nostack));
    }
    base
}
