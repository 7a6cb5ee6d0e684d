//! Which calls led to an instruction: unwinds the stack of an interrupted thread of this process, in its signal handler.
//!
//! Nearly every frame of compiled code follows one of three rules: the caller's frame is at a distance from the stack pointer,
//! or from the frame pointer, or at an address saved relative to the frame pointer; the frame pointer itself is kept or saved
//! in the frame. Such a rule takes twelve bytes, is found once for each address (unwind tables, `cfi`) and kept in
//! a [`Cache`] of the thread: from then on a frame costs a lookup and two loads.
//! A frame with any other rule (a signal frame, a PLT entry, the loader's trampolines) makes the whole stack be unwound
//! with all registers and without the cache.
//!
//! Code without unwind tables is read instead ([`guess`](self)): from the interrupted instruction forward to a return, which
//! says where the return address must be. A frame found so, or by the frame pointer, counts only if its return address
//! follows a call instruction.

mod cache;
mod cfi;
mod guess;
mod stack;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use cache::Cache;
use cache::{Base, Rule};
use cfi::Step;
pub use stack::Evidence;
use stack::Stack;

use crate::functions::UnwindTables;
use crate::modules::{Module, bytes};

/// The registers of an interrupted thread, by their DWARF numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers([u64; 17]);

impl Registers {
    const RBP: usize = 6;
    const RSP: usize = 7;
    const RIP: usize = 16;

    /// All that frames with ordinary rules need.
    pub fn new(rip: u64, rsp: u64, rbp: u64) -> Registers {
        let mut registers = Registers::default();
        registers.0[Self::RIP] = rip;
        registers.0[Self::RSP] = rsp;
        registers.0[Self::RBP] = rbp;
        registers
    }

    /// Those of the calling function, good for as long as it has not returned.
    #[inline(always)]
    pub fn here() -> Registers {
        let (rip, rsp, rbp): (u64, u64, u64);
        // SAFETY: reads three registers.
        unsafe {
            std::arch::asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) rip, out(reg) rsp, out(reg) rbp);
        }
        Registers::new(rip, rsp, rbp)
    }

    /// The context that the kernel gave to a signal handler.
    pub fn from_context(context: &libc::ucontext_t) -> Registers {
        use libc::*;
        const ORDER: [c_int; 17] = [
            REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10, REG_R11,
            REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
        ];
        Registers(ORDER.map(|register| context.uc_mcontext.gregs[register as usize] as u64))
    }

    /// At the instruction of this length that has just been executed.
    pub fn before(mut self, length: u64) -> Registers {
        self.0[Self::RIP] -= length;
        self
    }

    pub fn rip(&self) -> u64 {
        self.0[Self::RIP]
    }

    pub fn rsp(&self) -> u64 {
        self.0[Self::RSP]
    }

    pub fn rbp(&self) -> u64 {
        self.0[Self::RBP]
    }
}

/// A stretch of code, and the module that it is of.
struct Code {
    range: Range<u64>,
    module: Option<usize>,
}

/// The code of the process at a moment. Immutable: when modules come or go the caller makes another and swaps them.
pub struct Unwinder {
    /// Tells caches that were filled by another unwinder.
    id: u64,
    /// Sorted, disjoint.
    code: Vec<Code>,
    modules: Vec<Arc<Module>>,
}

/// A frame needs more registers than the cached rules follow.
struct NeedsAllRegisters;

impl Unwinder {
    /// `others`: executable memory outside modules, such as that of a just-in-time compiler.
    ///
    /// # Safety
    /// The modules and the other ranges are mapped and readable, as long as frames in them are unwound.
    pub unsafe fn new(modules: &[Arc<Module>], others: &[Range<usize>]) -> Unwinder {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let segment_of = |(index, module): (usize, &Arc<Module>)| {
            let ranges: Vec<_> = module
                .executable_segments()
                .map(|segment| segment.range.clone())
                .collect();
            ranges.into_iter().map(move |range| (range, Some(index)))
        };
        let segments = modules.iter().enumerate().flat_map(segment_of);
        let others = others.iter().map(|range| (range.clone(), None));
        let mut code: Vec<Code> = segments
            .chain(others)
            .map(|(range, module)| Code {
                range: range.start as u64..range.end as u64,
                module,
            })
            .collect();
        code.sort_by_key(|code| code.range.start);
        // The decoder builds its tables, and allocates, on first use: now, not in a handler.
        guess::prepare();
        Unwinder {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            code,
            modules: modules.to_vec(),
        }
    }

    /// Writes the call stack to `out`, innermost first: the interrupted instruction, then return addresses. Of an
    /// instruction that a signal handler further out interrupted, the address after its first byte, so that every address but
    /// the first can be treated as a return address: what it belongs to is at the address minus one.
    /// Returns how many there are; the outermost may be missing if `out` is full or a frame cannot be unwound.
    ///
    /// Memory in `[rsp, stack_limit)` must be readable; anything beyond is read through the kernel, so a limit of zero is
    /// right, only slower. Does not allocate.
    pub fn unwind(&self, cache: &mut Cache, registers: &Registers, stack_limit: u64, out: &mut [u64]) -> usize {
        self.unwind_on(cache, registers, Stack::new(registers.rsp(), stack_limit), out)
    }

    /// As [`Unwinder::unwind`], and notes by what the call stack can be known again.
    pub fn unwind_noting(
        &self,
        cache: &mut Cache,
        registers: &Registers,
        stack_limit: u64,
        out: &mut [u64],
        evidence: &mut Evidence,
    ) -> usize {
        let stack = Stack::with_evidence(registers.rsp(), stack_limit, evidence);
        self.unwind_on(cache, registers, stack, out)
    }

    fn unwind_on(&self, cache: &mut Cache, registers: &Registers, mut stack: Stack, out: &mut [u64]) -> usize {
        cache.adopt(self.id);
        let Some(first) = out.first_mut() else { return 0 };
        *first = registers.rip();
        match self.unwind_cached(cache, registers, &mut stack, out) {
            Ok(count) => count,
            Err(NeedsAllRegisters) => self.unwind_all_registers(registers, &mut stack, out),
        }
    }

    fn unwind_cached(
        &self,
        cache: &mut Cache,
        registers: &Registers,
        stack: &mut Stack,
        out: &mut [u64],
    ) -> Result<usize, NeedsAllRegisters> {
        let (mut rsp, mut rbp) = (registers.rsp(), registers.rbp());
        // Where the rule is looked up: a return address may already belong to the next function.
        let mut pc = registers.rip();
        let mut count = 1;
        while count < out.len() {
            let mut rule = match cache.get(pc) {
                Some(rule) => rule,
                None => cache.insert(pc, self.find_rule(pc, count == 1, (rsp, rbp), stack)),
            };
            if rule.guessed && !self.is_plausible(&rule, rsp, rbp, stack) {
                // Right for another stack, not for this one.
                rule = cache.insert(pc, self.guess(pc, count == 1, (rsp, rbp), stack));
            }
            let frame = match rule.base {
                Base::Rsp | Base::Rbp | Base::SavedAtRbp => rule.apply(rsp, rbp, stack),
                Base::Other => return Err(NeedsAllRegisters),
                Base::Outermost => None,
                Base::NotCode => return Ok(count.max(2) - 1),
            };
            let Some(frame) = frame else { break };
            if frame.return_address == 0 {
                break;
            }
            (rsp, rbp) = (frame.cfa, frame.rbp);
            out[count] = frame.return_address;
            pc = frame.return_address.wrapping_sub(1);
            count += 1;
        }
        Ok(count)
    }

    fn find_rule(&self, pc: u64, innermost: bool, (rsp, rbp): (u64, u64), stack: &mut Stack) -> Rule {
        match self.tables_at(pc).and_then(|tables| cfi::rule(&tables, pc)) {
            Some(rule) => rule,
            None => self.guess(pc, innermost, (rsp, rbp), stack),
        }
    }

    #[cold]
    fn unwind_all_registers(&self, registers: &Registers, stack: &mut Stack, out: &mut [u64]) -> usize {
        let mut registers = *registers;
        let mut pc = registers.rip();
        let mut count = 1;
        while count < out.len() {
            let step = match self
                .tables_at(pc)
                .and_then(|tables| cfi::step(&tables, pc, &registers, stack))
            {
                Some(step) => step,
                None => self.guess_step(pc, count == 1, &registers, stack),
            };
            let (next, interrupted) = match step {
                Step::Outermost => break,
                Step::NotCode => return count.max(2) - 1,
                Step::Caller { registers, interrupted } => (registers, interrupted),
            };
            // A signal handler may have its own stack, anywhere; every other caller's frame is further out.
            if next.rip() == 0 || (!interrupted && next.rsp() <= registers.rsp()) {
                break;
            }
            registers = next;
            out[count] = registers.rip() + interrupted as u64;
            pc = registers.rip() - !interrupted as u64;
            count += 1;
        }
        count
    }

    /// The rule of code without unwind tables.
    #[cold]
    fn guess(&self, pc: u64, innermost: bool, (rsp, rbp): (u64, u64), stack: &mut Stack) -> Rule {
        let code = match self.code_at(pc) {
            // SAFETY: mapped and readable by the promise of `new`.
            Some(code) => unsafe { bytes(code.range.start as usize..code.range.end as usize) },
            // What runs there can still have a frame pointer.
            None if innermost => &[],
            None => return Rule::NOT_CODE,
        };
        // Execution goes on after the call.
        let resume = if innermost { pc } else { pc + 1 };
        if guess::is_signal_return(code, resume) {
            return Rule::OTHER;
        }
        guess::rule(code, resume, |rule| self.is_plausible(rule, rsp, rbp, stack)).unwrap_or(Rule::OUTERMOST)
    }

    fn guess_step(&self, pc: u64, innermost: bool, registers: &Registers, stack: &mut Stack) -> Step {
        let rule = self.guess(pc, innermost, (registers.rsp(), registers.rbp()), stack);
        match rule.base {
            Base::NotCode => Step::NotCode,
            Base::Outermost => Step::Outermost,
            // The only other rule that is guessed.
            Base::Other => guess::signal_frame(registers, stack),
            Base::Rsp | Base::Rbp | Base::SavedAtRbp => match rule.apply(registers.rsp(), registers.rbp(), stack) {
                Some(frame) => {
                    let mut caller = *registers;
                    caller.0[Registers::RIP] = frame.return_address;
                    caller.0[Registers::RSP] = frame.cfa;
                    caller.0[Registers::RBP] = frame.rbp;
                    Step::Caller {
                        registers: caller,
                        interrupted: false,
                    }
                }
                None => Step::Outermost,
            },
        }
    }

    /// Whether a guessed rule leads to an address that a call instruction can have left.
    fn is_plausible(&self, rule: &Rule, rsp: u64, rbp: u64, stack: &mut Stack) -> bool {
        if matches!(rule.base, Base::Outermost | Base::NotCode | Base::Other) {
            return true;
        }
        let Some(frame) = rule.apply(rsp, rbp, stack) else {
            return false;
        };
        let Some(code) = self.code_at(frame.return_address.wrapping_sub(1)) else {
            return false;
        };
        // SAFETY: mapped and readable by the promise of `new`.
        guess::follows_call(unsafe { bytes(code.range.start as usize..frame.return_address as usize) })
    }

    /// Whether the address is in executable memory that this unwinder knows.
    pub fn is_code(&self, pc: u64) -> bool {
        self.code_at(pc).is_some()
    }

    /// The function that the address is in, as its module's unwind tables have it.
    pub fn function_at(&self, pc: u64) -> Option<Range<usize>> {
        self.tables_at(pc)?.function_at(pc as usize)
    }

    fn code_at(&self, pc: u64) -> Option<&Code> {
        let index = self
            .code
            .partition_point(|code| code.range.start <= pc)
            .checked_sub(1)?;
        self.code.get(index).filter(|code| code.range.contains(&pc))
    }

    fn tables_at(&self, pc: u64) -> Option<UnwindTables> {
        let module = self.modules.get(self.code_at(pc)?.module?)?;
        // SAFETY: the promise of `new`.
        unsafe { UnwindTables::of(module) }
    }
}

/// A hash of a call stack, never zero. Stacks are told apart by it alone, so all 64 bits depend on all frames and their
/// order. A folded multiplication takes in two frames at a time (as wyhash does).
pub fn stack_hash(frames: &[u64]) -> u64 {
    const SECRETS: [u64; 3] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3];
    let fold = |one: u64, other: u64| {
        let product = one as u128 * other as u128;
        product as u64 ^ (product >> 64) as u64
    };
    let (pairs, rest) = frames.as_chunks::<2>();
    let mut hash = SECRETS[2] ^ frames.len() as u64;
    for [one, other] in pairs {
        hash = fold(one ^ SECRETS[0], other ^ hash);
    }
    if let [last] = rest {
        hash = fold(last ^ SECRETS[1], hash);
    }
    fold(hash ^ SECRETS[0], SECRETS[1] ^ frames.len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn hashes_depend_on_frames_order_and_length() {
        let mut hashes = HashSet::new();
        let mut count = 0;
        for one in 0..64 {
            for other in 0..64 {
                for frames in [
                    &[0x5555_0000 + one, 0x7fff_0000 + other][..],
                    &[one, other],
                    &[one, other, 0],
                ] {
                    hashes.insert(stack_hash(frames));
                    count += 1;
                }
            }
        }
        assert_eq!(hashes.len(), count);
        assert_ne!(stack_hash(&[]), 0);
    }
}
