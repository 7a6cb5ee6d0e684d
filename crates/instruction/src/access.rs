//! Guarded accesses: loads and stores that report a fault instead of dying of it.
//!
//! Every access that may fault is an instruction between two labels of one assembly block. The functions there are leaves
//! that never touch the stack, so a fault anywhere in them is mended by going to `crashproof_guard_failed`, which returns
//! 1. All of them take in `rdx` the [`Fault`] to fill in, and the copying ones count down in `rcx`.

use core::arch::global_asm;

/// The program must get this signal, at the instruction that was to be performed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Fault {
    /// As the program sees it: not the alias. 0 when the processor gives none (a misaligned vector store).
    pub address: u64,
    /// The signal: SIGSEGV, SIGBUS or SIGFPE.
    pub signal: i32,
    /// The signal's `si_code`.
    pub code: i32,
    /// Elements that a copy had still to do.
    pub(crate) left: u64,
}

impl Fault {
    /// A store to memory that the program may not write; `code` says why.
    pub fn segv(address: u64, code: i32) -> Fault {
        Fault {
            address,
            signal: libc::SIGSEGV,
            code,
            left: 0,
        }
    }

    /// The general protection fault of an aligned access to a misaligned address.
    pub(crate) const MISALIGNED: Fault = Fault {
        address: 0,
        signal: libc::SIGSEGV,
        code: SI_KERNEL,
        left: 0,
    };

    /// Turns an address on the alias of `[address, address + length)` into the program's.
    pub(crate) fn on_alias(mut self, address: u64, length: usize, delta: i64) -> Fault {
        let program = self.address.wrapping_sub_signed(delta);
        if program.wrapping_sub(address) < length as u64 {
            self.address = program;
        }
        self
    }
}

const SI_KERNEL: i32 = 0x80;

macro_rules! element_functions {
    ($suffix:literal, $value:literal, $scratch:literal) => {
        concat!(
            ".hidden crashproof_store",
            $suffix,
            "\n",
            ".globl crashproof_store",
            $suffix,
            "\n",
            "crashproof_store",
            $suffix,
            ":\n",
            "mov [rdi], ",
            $value,
            "\n",
            "xor eax, eax\n",
            "ret\n",
            ".hidden crashproof_fill",
            $suffix,
            "\n",
            ".globl crashproof_fill",
            $suffix,
            "\n",
            "crashproof_fill",
            $suffix,
            ":\n",
            "2: mov [rdi], ",
            $value,
            "\n",
            "add rdi, r8\n",
            "dec rcx\n",
            "jnz 2b\n",
            "xor eax, eax\n",
            "ret\n",
            ".hidden crashproof_copy",
            $suffix,
            "\n",
            ".globl crashproof_copy",
            $suffix,
            "\n",
            "crashproof_copy",
            $suffix,
            ":\n",
            "2: mov ",
            $scratch,
            ", [rsi]\n",
            "mov [rdi], ",
            $scratch,
            "\n",
            "add rsi, r8\n",
            "add rdi, r8\n",
            "dec rcx\n",
            "jnz 2b\n",
            "xor eax, eax\n",
            "ret\n",
        )
    };
}

global_asm!(
    ".pushsection .text.crashproof_guard, \"ax\", @progbits",
    ".balign 64",
    ".hidden crashproof_guard_begin",
    ".globl crashproof_guard_begin",
    "crashproof_guard_begin:",
    element_functions!("8", "sil", "al"),
    element_functions!("16", "si", "ax"),
    element_functions!("32", "esi", "eax"),
    element_functions!("64", "rsi", "rax"),
    // rdi: address, rsi: source that cannot fault
    ".hidden crashproof_store128",
    ".globl crashproof_store128",
    "crashproof_store128:",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "xor eax, eax",
    "ret",
    ".hidden crashproof_store256",
    ".globl crashproof_store256",
    "crashproof_store256:",
    "vmovups ymm0, [rsi]",
    "vmovups [rdi], ymm0",
    "vzeroupper",
    "xor eax, eax",
    "ret",
    // rdi: address; the byte is only touched
    ".hidden crashproof_probe",
    ".globl crashproof_probe",
    "crashproof_probe:",
    "mov al, [rdi]",
    "xor eax, eax",
    "ret",
    ".hidden crashproof_guard_end",
    ".globl crashproof_guard_end",
    "crashproof_guard_end:",
    ".hidden crashproof_guard_failed",
    ".globl crashproof_guard_failed",
    "crashproof_guard_failed:",
    "mov eax, 1",
    "ret",
    ".popsection",
);

type Store = unsafe extern "C" fn(address: u64, value: u64, fault: &mut Fault) -> u32;
type Wide = unsafe extern "C" fn(address: u64, from: *const u8, fault: &mut Fault) -> u32;
/// `second` is the value to fill with, or the address to copy from; `step` is the distance of the elements.
type Elements = unsafe extern "C" fn(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;

unsafe extern "C" {
    static crashproof_guard_begin: u8;
    static crashproof_guard_end: u8;
    static crashproof_guard_failed: u8;
    fn crashproof_store8(address: u64, value: u64, fault: &mut Fault) -> u32;
    fn crashproof_store16(address: u64, value: u64, fault: &mut Fault) -> u32;
    fn crashproof_store32(address: u64, value: u64, fault: &mut Fault) -> u32;
    fn crashproof_store64(address: u64, value: u64, fault: &mut Fault) -> u32;
    fn crashproof_fill8(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_fill16(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_fill32(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_fill64(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_copy8(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_copy16(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_copy32(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_copy64(address: u64, second: u64, fault: &mut Fault, count: u64, step: i64) -> u32;
    fn crashproof_store128(address: u64, from: *const u8, fault: &mut Fault) -> u32;
    fn crashproof_store256(address: u64, from: *const u8, fault: &mut Fault) -> u32;
    fn crashproof_probe(address: u64, second: u64, fault: &mut Fault) -> u32;
}

/// The width of an integer access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    W1,
    W2,
    W4,
    W8,
}

impl Width {
    pub(crate) fn of(bytes: usize) -> Option<Width> {
        match bytes {
            1 => Some(Width::W1),
            2 => Some(Width::W2),
            4 => Some(Width::W4),
            8 => Some(Width::W8),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Width::W1 => 1,
            Width::W2 => 2,
            Width::W4 => 4,
            Width::W8 => 8,
        }
    }
}

fn result(status: u32, fault: Fault) -> Result<(), Fault> {
    if status == 0 { Ok(()) } else { Err(fault) }
}

/// Stores the low bytes of `value` with one instruction.
///
/// # Safety
/// `address` may be written by us or is not mapped at all. The same holds for every function below that writes.
pub(crate) unsafe fn store(address: u64, width: Width, value: u64) -> Result<(), Fault> {
    let function: Store = match width {
        Width::W1 => crashproof_store8,
        Width::W2 => crashproof_store16,
        Width::W4 => crashproof_store32,
        Width::W8 => crashproof_store64,
    };
    let mut fault = Fault::default();
    // SAFETY: the caller vouches for the address; a fault is mended by `fix_up`.
    let status = unsafe { function(address, value, &mut fault) };
    result(status, fault)
}

/// Stores `value` `count` times, each `step` further; `count` is not 0.
pub(crate) unsafe fn fill(address: u64, width: Width, value: u64, count: u64, step: i64) -> Result<(), Fault> {
    let function: Elements = match width {
        Width::W1 => crashproof_fill8,
        Width::W2 => crashproof_fill16,
        Width::W4 => crashproof_fill32,
        Width::W8 => crashproof_fill64,
    };
    let mut fault = Fault::default();
    // SAFETY: as in `store`.
    let status = unsafe { function(address, value, &mut fault, count, step) };
    result(status, fault)
}

/// Copies `count` elements one after the other, each `step` further; `count` is not 0. `Fault::left` says how many of
/// them were not done.
pub(crate) unsafe fn copy(address: u64, width: Width, from: u64, count: u64, step: i64) -> Result<(), Fault> {
    let function: Elements = match width {
        Width::W1 => crashproof_copy8,
        Width::W2 => crashproof_copy16,
        Width::W4 => crashproof_copy32,
        Width::W8 => crashproof_copy64,
    };
    let mut fault = Fault::default();
    // SAFETY: as in `store`; a faulting source is mended as well.
    let status = unsafe { function(address, from, &mut fault, count, step) };
    result(status, fault)
}

/// Loads one value.
pub(crate) fn load(address: u64, width: Width) -> Result<u64, Fault> {
    let mut value = 0u64;
    // SAFETY: the destination is a local variable large enough for any width.
    unsafe { copy(&raw mut value as u64, width, address, 1, 0)? };
    Ok(value)
}

/// Loads `into.len()` bytes.
pub(crate) fn load_bytes(into: &mut [u8], address: u64) -> Result<(), Fault> {
    if into.is_empty() {
        return Ok(());
    }
    let (width, step) = if into.len().is_multiple_of(8) {
        (Width::W8, 8)
    } else {
        (Width::W1, 1)
    };
    // SAFETY: writes exactly the slice.
    unsafe {
        copy(
            into.as_mut_ptr() as u64,
            width,
            address,
            (into.len() / step) as u64,
            step as i64,
        )
    }
}

/// Stores all of `bytes`, or nothing when an end of the range faults. 16 and, with `avx`, 32 bytes are one store.
pub(crate) unsafe fn store_bytes(address: u64, bytes: &[u8], avx: bool) -> Result<(), Fault> {
    let function: Wide = match bytes.len() {
        0 => return Ok(()),
        16 => crashproof_store128,
        32 if avx => crashproof_store256,
        length => {
            if let Some(width) = Width::of(length) {
                let mut value = [0; 8];
                value[..length].copy_from_slice(bytes);
                // SAFETY: as for this function.
                return unsafe { store(address, width, u64::from_le_bytes(value)) };
            }
            // SAFETY: as for this function.
            return unsafe { store_pieces(address, bytes, avx) };
        }
    };
    let mut fault = Fault::default();
    // SAFETY: as for this function; the source is a slice of the right length.
    let status = unsafe { function(address, bytes.as_ptr(), &mut fault) };
    result(status, fault)
}

unsafe fn store_pieces(address: u64, bytes: &[u8], avx: bool) -> Result<(), Fault> {
    probe(address)?;
    probe(address.wrapping_add(bytes.len() as u64 - 1))?;
    let piece = match bytes.len() {
        33.. if avx => 32,
        17.. => 16,
        9.. => 8,
        5.. => 4,
        _ => 2,
    };
    let mut at = address;
    for bytes in bytes.chunks(piece) {
        // SAFETY: as for `store_bytes`; a piece is shorter than the whole, so this ends.
        unsafe { store_bytes(at, bytes, avx)? };
        at = at.wrapping_add(bytes.len() as u64);
    }
    Ok(())
}

/// Whether a byte can be read.
pub(crate) fn probe(address: u64) -> Result<(), Fault> {
    let mut fault = Fault::default();
    // SAFETY: reads one byte and drops it; a fault is mended.
    let status = unsafe { crashproof_probe(address, 0, &mut fault) };
    result(status, fault)
}

/// Whether `rip` is in a guarded access, and if so where to go on after a fault.
pub(crate) fn guard(rip: u64) -> Option<u64> {
    let (begin, end) = (
        &raw const crashproof_guard_begin as u64,
        &raw const crashproof_guard_end as u64,
    );
    (begin..end)
        .contains(&rip)
        .then_some(&raw const crashproof_guard_failed as u64)
}
