//! Decodes an instruction that writes memory and performs it elsewhere.
//!
//! The program under test sees persistent memory through a read-only view. When it stores there, the runtime's SIGSEGV
//! handler has this crate decode the instruction ([`decode`]), say which bytes it is about to write ([`Plan::writes`]) and
//! perform it a constant distance away, on the writable alias of the same pages ([`Plan::perform`]). Registers, flags and
//! rip in the signal frame change as the processor would have changed them.
//!
//! - [`plan`](decode): classification. Common forms are performed directly, others through a relocated copy (`stub`).
//! - `context`: the registers in the signal frame, vector registers included.
//! - `access`: loads and stores that survive a fault; `stub`: running a copy of an instruction with the program's registers.
//! - `touches`: what memory an instruction loads and stores ([`touches()`]).
//! - `ahead`: executing the simple instructions between two stores ([`step`]).
//! - `machine`: what is looked up once, by [`init`]: processor layout, decoder tables, executable memory.
//!
//! Nothing here allocates, locks or calls into libc after [`init`]; nothing panics.
//!
//! Limits: `tilestored`, `enqcmd` and shadow-stack stores are refused. A floating-point exception that the program has
//! unmasked and that its store raises is reported as a [`Fault`] only if the handler of SIGFPE calls [`fix_up`] too.
#![warn(clippy::undocumented_unsafe_blocks)]
#![warn(missing_docs)]

mod access;
mod ahead;
mod context;
mod machine;
mod perform;
mod plan;
mod stub;
mod touches;
mod writes;

#[cfg(test)]
mod foreign;

pub use access::Fault;
pub use ahead::{Step, step};
pub use context::Context;
pub use perform::Performed;
pub use plan::{DecodeError, Plan, decode};
pub use touches::{Touch, Touches, touches};
pub use writes::{Writes, WrittenRange, WrittenRanges};

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

/// Prepares everything that needs memory. To be called once before the first signal can arrive.
pub fn init() {
    machine::Machine::get();
}

/// Mends a fault that happened inside [`Plan::perform`]: if the context's rip lies in one of this crate's guarded accesses,
/// sends it to where the access is reported as failed. To be called first by the handlers of SIGSEGV and SIGBUS; when it
/// returns true, they return.
///
/// # Safety
/// `uc` and `info` are what the kernel passed to the handler.
pub unsafe fn fix_up(uc: &mut libc::ucontext_t, info: &libc::siginfo_t) -> bool {
    let gregs = &mut uc.uc_mcontext.gregs;
    let rip = gregs[libc::REG_RIP as usize] as u64;
    let (target, fault) = if let Some(target) = access::guard(rip) {
        (target, gregs[libc::REG_RDX as usize] as *mut Fault)
    } else if let Some(machine) = machine::Machine::get_if_initialised() {
        // SAFETY: both registers are of the same context.
        match unsafe { machine.pool.guard(rip, gregs[libc::REG_RSP as usize] as u64) } {
            Some(guard) => guard,
            None => return false,
        }
    } else {
        return false;
    };
    // SAFETY: the guarded code keeps the address of its `Fault` where it was taken from; si_addr is set for these signals.
    unsafe {
        *fault = Fault {
            address: info.si_addr() as u64,
            signal: info.si_signo,
            code: info.si_code,
            left: gregs[libc::REG_RCX as usize] as u64,
        };
    }
    gregs[libc::REG_RIP as usize] = target as i64;
    true
}

/// Stores the low `length` bytes (1, 2, 4 or 8) of `value` with one instruction. False: it faulted, or has no such length.
///
/// # Safety
/// `address` may be written by us or is not mapped at all; [`fix_up`] is called by the handlers of SIGSEGV and SIGBUS.
pub unsafe fn try_store(address: u64, length: usize, value: u64) -> bool {
    // SAFETY: the caller's promise.
    access::Width::of(length).is_some_and(|width| unsafe { access::store(address, width, value) }.is_ok())
}

/// Stores all of `bytes`; false if an end of the range faults.
///
/// # Safety
/// As for [`try_store`].
pub unsafe fn try_store_bytes(address: u64, bytes: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { access::store_bytes(address, bytes, false) }.is_ok()
}

/// Loads `into.len()` bytes; false if one of them cannot be read.
pub fn try_load_bytes(into: &mut [u8], address: u64) -> bool {
    access::load_bytes(into, address).is_ok()
}

/// Whether the byte can be read.
pub fn is_readable(address: u64) -> bool {
    access::probe(address).is_ok()
}

/// Reads the instruction bytes at `rip` into `buffer`: 15, or fewer if the mapping ends there.
pub fn fetch(rip: u64, buffer: &mut [u8; 15]) -> &[u8] {
    const PAGE: u64 = 4096;
    let length = if access::load_bytes(buffer, rip).is_ok() {
        buffer.len()
    } else {
        let length = ((PAGE - rip % PAGE) as usize).min(buffer.len());
        match access::load_bytes(&mut buffer[..length], rip) {
            Ok(()) => length,
            Err(_) => 0,
        }
    };
    &buffer[..length]
}

/// The address that the `clwb`, `clflushopt` or `clflush` at `rip` flushes; `None` if `code` starts with anything else.
pub fn flush_address(code: &[u8], rip: u64, cx: &Context) -> Option<u64> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    is_flush(&instruction).then(|| cx.effective_address(&instruction))
}

/// The length of the `clwb`, `clflushopt` or `clflush` at `rip`; `None` if `code` starts with anything else.
pub fn flush_length(code: &[u8], rip: u64) -> Option<usize> {
    let instruction = Decoder::with_ip(64, code, rip, DecoderOptions::NONE).decode();
    is_flush(&instruction).then(|| instruction.len())
}

fn is_flush(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush
    )
}

/// Performs the instruction whose bytes `code` starts with where it is meant to be: for one that a breakpoint has
/// displaced at `rip`. rip is set to it first, so that after a fault the context is that of the instruction.
///
/// # Safety
/// As for [`Plan::perform`], with the program's own addresses.
pub unsafe fn run_in_place(code: &[u8], rip: u64, cx: &mut Context) -> Result<Result<Performed, Fault>, DecodeError> {
    let plan = decode(code, rip)?;
    cx.set_rip(rip);
    // SAFETY: passed on.
    Ok(unsafe { plan.perform(cx, 0) })
}
