//! Which bytes an instruction writes next, and writing them.

use crate::access::{self, Fault, Width};
use crate::context::{Context, RAX, RBP, RDX, RSP, flag};
use crate::machine::Machine;
use crate::plan::{Action, Integer, Plan, Pushed, Target};
use crate::writes::Writes;
use iced_x86::{ConditionCode, Mnemonic, OpKind, Register};

/// The unit in which a repeated string instruction proceeds.
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// What [`Plan::perform`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Performed {
    /// What was really written: nothing by a `cmpxchg` that failed, a masked store without a set bit or a repetition of
    /// length 0; part of what [`Plan::writes`] gave if the source of a copy ends.
    pub written: Writes,
}

impl Performed {
    const NOTHING: Performed = Performed { written: Writes::NONE };

    /// Whether it wrote anything.
    pub fn wrote(&self) -> bool {
        !self.written.is_empty()
    }
}

impl Plan {
    /// The bytes that the instruction is about to write. A repeated string instruction does one step at a time, which
    /// reaches to the end of a 64-byte line; a scatter one element.
    pub fn writes(&self, cx: &Context) -> Writes {
        match self.action {
            Action::Integer { width, .. } => Writes::contiguous(self.address(cx), width.bytes()),
            Action::Vector { element, .. } => match self.opmask(cx) {
                None => Writes::contiguous(self.address(cx), self.size),
                Some(mask) => Writes::masked(self.address(cx), bytes_of(mask, element, self.size)),
            },
            Action::SignMasked { mask, element, .. } => {
                Writes::masked(self.address(cx), sign_mask(&cx.vector(mask.into()), element, self.size))
            }
            Action::Compress { element, .. } => {
                let elements = self.opmask(cx).unwrap_or(u64::MAX) & elements_mask(self.size / usize::from(element));
                Writes::contiguous(self.address(cx), elements.count_ones() as usize * usize::from(element))
            }
            Action::Scatter { element, .. } => match self.next_element(cx) {
                Some((_, address)) => Writes::contiguous(address, element.into()),
                None => Writes::NONE,
            },
            Action::Fill { width } | Action::Copy { width } => match self.step(cx, width) {
                Some(step) => step.first_elements(step.count),
                None => Writes::NONE,
            },
            Action::Relocated(_) => self.relocated_writes(cx),
            Action::Direct64 { .. }
            | Action::ZeroLine
            | Action::Push { .. }
            | Action::Pop { .. }
            | Action::Enter { .. } => Writes::contiguous(self.address(cx), self.size),
        }
    }

    /// Performs what [`Plan::writes`] gave, `delta` bytes further, and changes registers, flags and rip as the processor
    /// would; rip stays if there is more to do. After a fault the registers are as the processor leaves them.
    ///
    /// # Safety
    /// What lies `delta` bytes after the addresses of `writes` may be written by us, or raises SIGBUS or SIGSEGV. A
    /// handler for those calls [`crate::fix_up`] first; both signals are not blocked.
    pub unsafe fn perform(&self, cx: &mut Context, delta: i64) -> Result<Performed, Fault> {
        let address = self.address(cx);
        if address & (self.alignment - 1) != 0 {
            return Err(Fault::MISALIGNED);
        }
        let alias = address.wrapping_add_signed(delta);
        let next = self.instruction.next_ip();
        let avx = Machine::get().avx();
        let all = Performed {
            written: Writes::contiguous(address, self.size),
        };
        // SAFETY: every store is to an address of `writes` plus `delta`, which the caller lets us write.
        let performed = unsafe {
            match self.action {
                Action::Integer { source, width } => {
                    let value = integer(cx, source, width);
                    access::store(alias, width, value).map(|()| all)
                }
                Action::Vector { register, start, .. } => {
                    let value = cx.vector(register.into());
                    let bytes = value
                        .get(start.into()..usize::from(start) + self.size)
                        .unwrap_or_default();
                    if self.opmask(cx).is_none() {
                        access::store_bytes(alias, bytes, avx).map(|()| all)
                    } else {
                        store_masked(self.writes(cx), address, bytes, delta, avx)
                    }
                }
                Action::SignMasked { data, .. } => {
                    let value = cx.vector(data.into());
                    store_masked(self.writes(cx), address, &value, delta, avx)
                }
                Action::Compress { register, element } => {
                    let (value, length) = compress(cx, register, element, self.opmask(cx), self.size);
                    let written = Writes::contiguous(address, length);
                    store_masked(written, address, &value, delta, avx)
                }
                Action::Scatter { register, element, .. } => return self.scatter(cx, register, element, delta),
                Action::Direct64 { .. } => {
                    let mut bytes = [0; 64];
                    access::load_bytes(&mut bytes, cx.effective_address(&self.instruction))?;
                    access::store_bytes(alias, &bytes, avx).map(|()| all)
                }
                Action::ZeroLine => access::store_bytes(alias, &[0; 64], avx).map(|()| all),
                Action::Fill { width } | Action::Copy { width } => return self.string(cx, width, delta),
                Action::Push { source, width } => return self.push(cx, source, width, delta),
                Action::Pop { width } => {
                    let value = access::load(cx.general(RSP), width)?;
                    let performed = access::store(alias, width, value).map(|()| all);
                    if performed.is_ok() {
                        cx.set_general(RSP, cx.general(RSP).wrapping_add(width.bytes() as u64));
                    }
                    performed
                }
                Action::Enter { size, level } => return self.enter(cx, size, level, delta),
                Action::Relocated(copy) => {
                    let operand = self.operand(cx);
                    let writes = self.writes(cx);
                    match copy.run(&Machine::get().pool, cx, operand, delta) {
                        Ok(()) if self.exchanges() && cx.flags() & flag::ZERO == 0 => Ok(Performed::NOTHING),
                        Ok(()) => Ok(Performed { written: writes }),
                        Err(fault) => {
                            let bounds = writes.bounds();
                            return Err(fault.on_alias(bounds.address, bounds.length, delta));
                        }
                    }
                }
            }
        };
        match performed {
            Ok(performed) => {
                cx.finish(next);
                Ok(performed)
            }
            Err(fault) => Err(fault.on_alias(address, self.size, delta)),
        }
    }

    /// The first address that may be written; of a scatter the base.
    fn address(&self, cx: &Context) -> u64 {
        let below_stack = |bytes: usize| cx.general(RSP).wrapping_sub(bytes as u64);
        match self.action {
            Action::Direct64 { address } => cx.register(address),
            Action::ZeroLine => cx.general(RAX) & !(LINE - 1),
            Action::Push { width, .. } => below_stack(width.bytes()),
            Action::Enter { .. } => below_stack(self.size),
            // The address is computed with the incremented stack pointer.
            Action::Pop { width } if self.instruction.memory_base() == Register::RSP => cx
                .effective_address(&self.instruction)
                .wrapping_add(width.bytes() as u64),
            Action::Relocated(_) => self.operand(cx).wrapping_add_signed(self.bit_displacement(cx)),
            _ => self.operand(cx),
        }
    }

    /// The address of the destination operand, as it is encoded.
    fn operand(&self, cx: &Context) -> u64 {
        match cx.implicit_address(&self.instruction, 0) {
            Some((address, _)) => address,
            None => cx.effective_address(&self.instruction),
        }
    }

    /// The opmask's value, if the instruction has one.
    fn opmask(&self, cx: &Context) -> Option<u64> {
        let register = self.instruction.op_mask();
        (register != Register::None).then(|| cx.opmask(register))
    }

    /// `cmpxchg` and its kin write only if the comparison, in ZF, holds.
    fn exchanges(&self) -> bool {
        matches!(
            self.instruction.mnemonic(),
            Mnemonic::Cmpxchg | Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b
        )
    }

    /// How far a bit offset in a register moves the access: in whole operands, signed.
    fn bit_displacement(&self, cx: &Context) -> i64 {
        let tests_bit = matches!(
            self.instruction.mnemonic(),
            Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        );
        if !tests_bit || self.instruction.op1_kind() != OpKind::Register {
            return 0;
        }
        let offset = cx.register(self.instruction.op1_register());
        match self.size {
            2 => i64::from(offset as i16 >> 4) * 2,
            4 => i64::from(offset as i32 >> 5) * 4,
            _ => (offset as i64 >> 6) * 8,
        }
    }

    fn relocated_writes(&self, cx: &Context) -> Writes {
        use Mnemonic::*;
        let address = self.address(cx);
        match self.instruction.mnemonic() {
            // Parts that the instruction leaves out because they are in their initial state are included; they are read
            // back unchanged.
            Xsave | Xsave64 | Xsaveopt | Xsaveopt64 | Xsavec | Xsavec64 | Xsaves | Xsaves64 => {
                let requested = cx.general(RAX) & 0xffff_ffff | cx.general(RDX) << 32;
                Writes::contiguous(address, cx.layout().extent(requested))
            }
            Maskmovq => {
                // The mask is in the x87 registers, whose order depends on the stack's top: any byte may be written.
                Writes::contiguous(address, self.size)
            }
            _ => match self.opmask(cx) {
                None => Writes::contiguous(address, self.size),
                Some(mask) => {
                    let element = self.instruction.memory_size().element_size() as u8;
                    Writes::masked(address, bytes_of(mask, element, self.size))
                }
            },
        }
    }

    /// Number and address of the next element of a scatter.
    fn next_element(&self, cx: &Context) -> Option<(u32, u64)> {
        let Action::Scatter {
            index,
            index_element,
            count,
            ..
        } = self.action
        else {
            return None;
        };
        let left = self.opmask(cx)? & elements_mask(count.into());
        if left == 0 {
            return None;
        }
        let number = left.trailing_zeros();
        let indices = cx.vector(index.into());
        let at = number as usize * usize::from(index_element);
        let value = if index_element == 4 {
            i64::from(i32::from_le_bytes(indices.get(at..at + 4)?.try_into().ok()?))
        } else {
            i64::from_le_bytes(indices.get(at..at + 8)?.try_into().ok()?)
        };
        let distance = value.wrapping_mul(self.instruction.memory_index_scale().into());
        Some((
            number,
            cx.effective_address(&self.instruction).wrapping_add_signed(distance),
        ))
    }

    /// # Safety
    /// As for [`Plan::perform`].
    unsafe fn scatter(&self, cx: &mut Context, register: u8, element: u8, delta: i64) -> Result<Performed, Fault> {
        let mask = self.instruction.op_mask();
        let mut performed = Performed::NOTHING;
        if let Some((number, address)) = self.next_element(cx) {
            let value = cx.vector(register.into());
            let at = number as usize * usize::from(element);
            let bytes = value.get(at..at + usize::from(element)).unwrap_or_default();
            // SAFETY: the address is that of `writes` plus `delta`.
            unsafe { access::store_bytes(address.wrapping_add_signed(delta), bytes, false) }
                .map_err(|fault| fault.on_alias(address, bytes.len(), delta))?;
            cx.set_opmask(mask, cx.opmask(mask) & !(1 << number));
            performed.written = Writes::contiguous(address, bytes.len());
        }
        if self.next_element(cx).is_none() {
            cx.set_opmask(mask, 0);
            cx.finish(self.instruction.next_ip());
        }
        Ok(performed)
    }

    /// # Safety
    /// As for [`Plan::perform`].
    unsafe fn push(&self, cx: &mut Context, source: Pushed, width: Width, delta: i64) -> Result<Performed, Fault> {
        let mut next = self.instruction.next_ip();
        let value = match source {
            Pushed::Register(register) if register.is_segment_register() => selector(register),
            Pushed::Register(register) => cx.register(register),
            Pushed::Immediate(value) => value,
            Pushed::Memory => access::load(cx.effective_address(&self.instruction), width)?,
            Pushed::Flags => cx.flags() & !flag::RESUME,
            Pushed::Call(target) => {
                let back = next;
                next = match target {
                    Target::Address(address) => address,
                    Target::Register(register) => cx.register(register),
                    Target::Memory => access::load(cx.effective_address(&self.instruction), Width::W8)?,
                };
                back
            }
        };
        let top = cx.general(RSP).wrapping_sub(width.bytes() as u64);
        // SAFETY: the address is that of `writes` plus `delta`.
        unsafe { access::store(top.wrapping_add_signed(delta), width, value) }
            .map_err(|fault| fault.on_alias(top, width.bytes(), delta))?;
        cx.set_general(RSP, top);
        cx.finish(next);
        Ok(Performed {
            written: Writes::contiguous(top, width.bytes()),
        })
    }

    /// # Safety
    /// As for [`Plan::perform`].
    unsafe fn enter(&self, cx: &mut Context, size: u16, level: u8, delta: i64) -> Result<Performed, Fault> {
        let mut top = cx.general(RSP);
        let frame = top.wrapping_sub(8);
        for step in 0..=u64::from(level) {
            let value = match step {
                0 => cx.general(RBP),
                _ if step == u64::from(level) => frame,
                _ => access::load(cx.general(RBP).wrapping_sub(8 * step), Width::W8)?,
            };
            top = top.wrapping_sub(8);
            // SAFETY: the address is one of those in `writes` plus `delta`.
            unsafe { access::store(top.wrapping_add_signed(delta), Width::W8, value) }
                .map_err(|fault| fault.on_alias(top, 8, delta))?;
        }
        cx.set_general(RBP, frame);
        cx.set_general(RSP, top.wrapping_sub(size.into()));
        cx.finish(self.instruction.next_ip());
        Ok(Performed {
            written: Writes::contiguous(top, self.size),
        })
    }

    /// The next step of a string instruction; `None` when nothing is left.
    fn step(&self, cx: &Context, width: Width) -> Option<Step> {
        let (address, _) = cx.implicit_address(&self.instruction, 0)?;
        let backwards = cx.flags() & flag::DIRECTION != 0;
        let size = width.bytes() as u64;
        let left = if self.repeated() {
            cx.register(self.counter())
        } else {
            1
        };
        let fitting = match address % LINE {
            at if at + size > LINE => 1,
            at if backwards => at / size + 1,
            at => (LINE - at) / size,
        };
        let count = left.min(fitting);
        (count > 0).then_some(Step {
            address,
            size,
            count,
            backwards,
        })
    }

    /// rcx, or ecx with an address-size prefix.
    fn counter(&self) -> Register {
        match self.instruction.op0_kind() {
            OpKind::MemoryESEDI => Register::ECX,
            _ => Register::RCX,
        }
    }

    /// # Safety
    /// As for [`Plan::perform`].
    unsafe fn string(&self, cx: &mut Context, width: Width, delta: i64) -> Result<Performed, Fault> {
        let Some(step) = self.step(cx, width) else {
            cx.finish(self.instruction.next_ip());
            return Ok(Performed::NOTHING);
        };
        let Some((address, destination)) = cx.implicit_address(&self.instruction, 0) else {
            return Ok(Performed::NOTHING);
        };
        let alias = address.wrapping_add_signed(delta);
        let distance = if step.backwards {
            -(step.size as i64)
        } else {
            step.size as i64
        };
        let source = match self.action {
            Action::Copy { .. } => cx.implicit_address(&self.instruction, 1),
            _ => None,
        };
        // SAFETY: the addresses are those of `writes` plus `delta`.
        let result = unsafe {
            match source {
                Some((from, _)) => access::copy(alias, width, from, step.count, distance),
                None => access::fill(alias, width, cx.general(RAX), step.count, distance),
            }
        };
        let done = step.count - result.err().map_or(0, |fault| fault.left);
        let advance = distance.wrapping_mul(done as i64);
        for register in [Some(destination), source.map(|(_, register)| register)]
            .into_iter()
            .flatten()
        {
            cx.set_register(register, cx.register(register).wrapping_add_signed(advance));
        }
        if self.repeated() {
            cx.set_register(self.counter(), cx.register(self.counter()).wrapping_sub(done));
        }
        let written = step.first_elements(done);
        match result {
            // What was done is reported now; the fault comes again with the next step.
            Err(fault) if done == 0 => {
                let bounds = step.first_elements(step.count).bounds();
                return Err(fault.on_alias(bounds.address, bounds.length, delta));
            }
            Err(_) => {}
            Ok(()) => {
                if !self.repeated() || cx.register(self.counter()) == 0 {
                    cx.finish(self.instruction.next_ip());
                }
            }
        }
        Ok(Performed { written })
    }
}

/// Elements that a string instruction does at once.
struct Step {
    address: u64,
    size: u64,
    count: u64,
    backwards: bool,
}

impl Step {
    fn first_elements(&self, count: u64) -> Writes {
        if count == 0 {
            return Writes::NONE;
        }
        let lowest = if self.backwards {
            self.address.wrapping_sub((count - 1) * self.size)
        } else {
            self.address
        };
        Writes::contiguous(lowest, (count * self.size) as usize)
    }
}

fn integer(cx: &Context, source: Integer, width: Width) -> u64 {
    match source {
        Integer::Register(register) => cx.register(register),
        Integer::Swapped(register) => cx.register(register).swap_bytes() >> (64 - 8 * width.bytes()),
        Integer::Immediate(value) => value,
        Integer::Condition(condition) => holds(condition, cx.flags()).into(),
        Integer::Mxcsr => cx.mxcsr().into(),
        Integer::ControlWord => cx.x87_words().0.into(),
        Integer::StatusWord => cx.x87_words().1.into(),
    }
}

/// Whether a condition is met with these flags.
pub(crate) fn holds(condition: ConditionCode, flags: u64) -> bool {
    let set = |flag: u64| flags & flag != 0;
    let less = set(flag::SIGN) != set(flag::OVERFLOW);
    match condition {
        ConditionCode::None => false,
        ConditionCode::o => set(flag::OVERFLOW),
        ConditionCode::no => !set(flag::OVERFLOW),
        ConditionCode::b => set(flag::CARRY),
        ConditionCode::ae => !set(flag::CARRY),
        ConditionCode::e => set(flag::ZERO),
        ConditionCode::ne => !set(flag::ZERO),
        ConditionCode::be => set(flag::CARRY) || set(flag::ZERO),
        ConditionCode::a => !set(flag::CARRY) && !set(flag::ZERO),
        ConditionCode::s => set(flag::SIGN),
        ConditionCode::ns => !set(flag::SIGN),
        ConditionCode::p => set(flag::PARITY),
        ConditionCode::np => !set(flag::PARITY),
        ConditionCode::l => less,
        ConditionCode::ge => !less,
        ConditionCode::le => less || set(flag::ZERO),
        ConditionCode::g => !less && !set(flag::ZERO),
    }
}

/// A segment register's value: a handler runs with the interrupted thread's.
fn selector(register: Register) -> u64 {
    let value: u64;
    // SAFETY: reading a segment register has no effect.
    unsafe {
        if register == Register::FS {
            core::arch::asm!("mov {:r}, fs", out(reg) value, options(nomem, nostack, preserves_flags));
        } else {
            core::arch::asm!("mov {:r}, gs", out(reg) value, options(nomem, nostack, preserves_flags));
        }
    }
    value
}

fn elements_mask(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// A mask with a bit per element turned into one with a bit per byte.
fn bytes_of(mask: u64, element: u8, size: usize) -> u64 {
    let element = usize::from(element.max(1));
    (0..size.min(64))
        .filter(|byte| mask >> (byte / element) & 1 != 0)
        .fold(0, |bytes, byte| bytes | 1 << byte)
}

/// A bit per byte of those elements whose sign bit is set.
fn sign_mask(vector: &[u8; 64], element: u8, size: usize) -> u64 {
    let element = usize::from(element.max(1));
    (0..size.min(64))
        .filter(|byte| vector[(byte / element * element + element - 1) & 63] & 0x80 != 0)
        .fold(0, |bytes, byte| bytes | 1 << byte)
}

/// Packs the selected elements of a vector register; returns them and their length in bytes.
fn compress(cx: &Context, register: u8, element: u8, mask: Option<u64>, size: usize) -> ([u8; 64], usize) {
    let value = cx.vector(register.into());
    let element = usize::from(element.max(1));
    let mut packed = [0; 64];
    let mut length = 0;
    for (number, bytes) in value[..size.min(64)].chunks_exact(element).enumerate() {
        if mask.is_none_or(|mask| mask >> number & 1 != 0) {
            packed[length..length + element].copy_from_slice(bytes);
            length += element;
        }
    }
    (packed, length)
}

/// Stores the bytes of `written` from `bytes`, which stand for memory at `address`.
///
/// # Safety
/// As for [`Plan::perform`].
unsafe fn store_masked(written: Writes, address: u64, bytes: &[u8], delta: i64, avx: bool) -> Result<Performed, Fault> {
    // All or nothing.
    for range in written {
        let first = range.address.wrapping_add_signed(delta);
        access::probe(first)?;
        // Of a page that is not there the processor names the first byte that is stored to.
        let last = first.wrapping_add(range.length as u64 - 1);
        access::probe(first.max(last & !(PAGE - 1)))?;
    }
    for range in written {
        let at = range.address.wrapping_sub(address) as usize;
        let bytes = bytes.get(at..at + range.length).unwrap_or_default();
        // SAFETY: passed on.
        unsafe { access::store_bytes(range.address.wrapping_add_signed(delta), bytes, avx)? };
    }
    Ok(Performed { written })
}
