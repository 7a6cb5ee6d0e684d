//! The first touch of a page, and single steps over pages whose lines are told apart.
//!
//! A step: the instruction that faulted is decoded, the lines that it touches are noted, its pages are opened, and when it is
//! done they are closed again. Common instructions are done by the handler itself. For others the trap flag has the processor
//! stop behind them (behind each repetition of a string instruction), which takes twice as long, since a virtual machine
//! leaves its processor at each such stop. Signals are blocked meanwhile, so that no handler of the program's runs while the pages are open. After [`MOST_STEPS`]
//! steps over a page, or where an instruction cannot be followed, the page is noted as a whole.

use super::maps::{self, unit_at};
use super::pages::{Pages, TOUCHED, WRITTEN, is_fine};
use super::{alone, recovery};
use crate::pm::{self, PAGE, Region};
use crate::{signals, sys, threads};
use crashproof_instruction::{self as instruction, Context, Touches};
use crashproof_wire::recovery::{self as wire, Recovery};
use libc::{siginfo_t, ucontext_t};
use std::cell::UnsafeCell;

pub(crate) const MOST_STEPS: u8 = 64;

/// Bits of a page fault's error code.
const WRITE: i64 = 2;
const FETCH: i64 = 16;
const PROTECTION_KEY: i64 = 32;
const TRAP_FLAG: i64 = 0x100;
const TRAP_TRACE: i32 = 2;

/// Two operands, each on two pages.
const MOST_PAGES: usize = 4;

/// The step that the first thread is in.
struct Step {
    /// The pages that are open for it.
    pages: [u64; MOST_PAGES],
    count: usize,
    /// The program's signal mask and trap flag.
    mask: u64,
    trap_flag: i64,
}

struct Stepping(UnsafeCell<Step>);

// SAFETY: only the first thread steps, in handlers that nothing interrupts.
unsafe impl Sync for Stepping {}

static STEPPING: Stepping = Stepping(UnsafeCell::new(Step {
    pages: [0; MOST_PAGES],
    count: 0,
    mask: 0,
    trap_flag: 0,
}));

/// The step, for the thread that may be in one.
fn stepping() -> Option<&'static mut Step> {
    // SAFETY: see `Stepping`; no reference is kept over a call of this function.
    alone().then(|| unsafe { &mut *STEPPING.0.get() })
}

/// SIGSEGV. True: it was a touch of a closed page, which is open now.
pub(crate) fn segv(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    let Some(recovery) = recovery() else { return false };
    // SAFETY: SIGSEGV carries an address.
    let address = unsafe { info.si_addr() as u64 };
    let error = uc.uc_mcontext.gregs[libc::REG_ERR as usize];
    let write = error & WRITE != 0;
    let in_step = abandon_step(recovery, uc);
    let Some(region) = pm::find(address).filter(|r| may(r, error)) else {
        return false;
    };
    let reads = recovery.track == wire::TRACK_READS && error & FETCH == 0;
    if reads && !write && skip_flush(uc) {
        return true;
    }
    let fine = reads && !in_step && is_fine(recovery, unit_at(&region, address));
    if !fine || !step(recovery, uc, address) {
        maps::open_page(recovery, &region, address, write);
    }
    true
}

/// Whether the program asked for what it tried.
fn may(region: &Region, error: i64) -> bool {
    let needed = if error & PROTECTION_KEY != 0 {
        libc::PROT_NONE
    } else if error & WRITE != 0 {
        libc::PROT_WRITE
    } else if error & FETCH != 0 {
        libc::PROT_EXEC
    } else {
        libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC
    };
    region.protection & needed != 0
}

/// SIGTRAP. True: it was the end of a step.
pub(crate) fn trap(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    let Some(step) = stepping().filter(|step| step.count > 0 && info.si_code == TRAP_TRACE) else {
        return false;
    };
    leave(step, uc);
    close(step);
    // The program steps itself: the trap is for it too.
    step.trap_flag == 0
}

fn close(step: &mut Step) {
    for &page in &step.pages[..step.count] {
        maps::close_after_step(page);
    }
    step.count = 0;
}

/// Puts back what the step changed of the program's. Without the trap flag it has left the step by itself: it was sent one of
/// our signals in the middle of it, and its handler has jumped elsewhere.
fn leave(step: &Step, uc: &mut ucontext_t) {
    if uc.uc_mcontext.gregs[libc::REG_EFL as usize] & TRAP_FLAG == 0 {
        return;
    }
    *signals::mask_of(uc) = step.mask;
    let flags = &mut uc.uc_mcontext.gregs[libc::REG_EFL as usize];
    *flags = *flags & !TRAP_FLAG | step.trap_flag;
}

/// SIGBUS: a page behind the end of the file, which is the program's own affair.
pub(crate) fn bus(uc: &mut ucontext_t) {
    if let Some(recovery) = recovery() {
        abandon_step(recovery, uc);
    }
}

/// The instruction that is being stepped has faulted: it touches more than was known, or what it must not. Its pages are
/// noted as a whole. False: there was no step.
fn abandon_step(recovery: &Recovery, uc: &mut ucontext_t) -> bool {
    let Some(step) = stepping().filter(|step| step.count > 0) else {
        return false;
    };
    for &page in &step.pages[..step.count] {
        if let Some(region) = pm::find(page) {
            maps::open_page(recovery, &region, page, false);
        }
    }
    step.count = 0;
    leave(step, uc);
    true
}

/// Does the instruction here. False: it is left to the program, which stands where it stood.
fn perform(code: &[u8], uc: &mut ucontext_t) -> bool {
    if uc.uc_mcontext.gregs[libc::REG_EFL as usize] & TRAP_FLAG != 0 || !threads::is_on_own_stack() {
        return false;
    }
    // SAFETY: what the kernel passed to the handler of this thread.
    let mut cx = unsafe { Context::new(uc) };
    match instruction::step(code, &mut cx) {
        instruction::Step::Done | instruction::Step::Jumped => true,
        // SAFETY: where the program itself would store; what it must not store to reports a fault, and nothing is done.
        instruction::Step::Store(plan) => unsafe { plan.perform(&mut cx, 0) }.is_ok(),
        instruction::Step::Stop => false,
    }
}

/// Moves behind the instruction if it is a flush, which looks at nothing, and has nothing to do in a recovery.
fn skip_flush(uc: &mut ucontext_t) -> bool {
    let rip = rip(uc);
    let length = instruction::flush_length(instruction::fetch(rip, &mut [0; 15]), rip);
    if let Some(length) = length {
        uc.uc_mcontext.gregs[libc::REG_RIP as usize] = (rip + length as u64) as i64;
    }
    length.is_some()
}

fn rip(uc: &ucontext_t) -> u64 {
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// Notes the lines that the instruction touches, and has it stepped. False: it cannot be followed.
fn step(recovery: &Recovery, uc: &mut ucontext_t, address: u64) -> bool {
    let Some(step) = stepping() else { return false };
    let rip = rip(uc);
    let mut buffer = [0; 15];
    let code = instruction::fetch(rip, &mut buffer);
    let stack = [libc::REG_RSP, libc::REG_RBP].map(|r| uc.uc_mcontext.gregs[r as usize] as u64);
    // SAFETY: what the kernel passed to the handler of this thread.
    let Some(touches) = instruction::touches(code, rip, &unsafe { Context::new(uc) }) else {
        return false;
    };
    let expected = touches
        .operands()
        .iter()
        .any(|t| address.wrapping_sub(t.address) < t.length);
    // What such an instruction touches of the stack is not known to the byte.
    let stack_in_pm = touches.stack && stack.iter().any(|&r| pm::contains(r.wrapping_sub(PAGE), 2 * PAGE));
    if stack_in_pm || !expected {
        return false;
    }
    for_each_page(&touches, |region, from, to, write| {
        let page = from & !(PAGE - 1);
        if !open_lines(recovery, region, from, to, write) {
            maps::open_page(recovery, region, page, write);
        } else if !step.pages[..step.count].contains(&page) {
            // Two operands have no more than four pages.
            step.pages[step.count % MOST_PAGES] = page;
            step.count = (step.count + 1).min(MOST_PAGES);
        }
    });
    if step.count > 0 && !touches.repeated && perform(code, uc) {
        close(step);
    } else if step.count > 0 {
        step.mask = std::mem::replace(signals::mask_of(uc), !sys::OURS);
        let flags = &mut uc.uc_mcontext.gregs[libc::REG_EFL as usize];
        step.trap_flag = *flags & TRAP_FLAG;
        *flags |= TRAP_FLAG;
    }
    true
}

/// Notes the lines of [from, to), and opens their page for a step. False: the page is to be opened as a whole.
fn open_lines(recovery: &Recovery, region: &Region, from: u64, to: u64, write: bool) -> bool {
    let page = from & !(PAGE - 1);
    let unit = unit_at(region, page);
    if !is_fine(recovery, unit) {
        return false;
    }
    let noted = Pages::with(recovery, |pages| {
        if pages.flags(unit) & TOUCHED != 0 || !pages.step(unit)? {
            return Ok(None);
        }
        pages.touch_lines(unit, from - page, to - page)?;
        if write && !region.private {
            pages.write(unit)?;
        }
        Ok(Some(pages.flags(unit)))
    });
    // An operand that was opened before for writing stays so.
    matches!(noted, Ok(Some(flags)) if maps::open_for_step(region, page, flags & WRITTEN != 0).is_ok())
}

/// Shows what the instruction touches of PM, page by page: [from, to) within one page of the region.
fn for_each_page(touches: &Touches, mut show: impl FnMut(&Region, u64, u64, bool)) {
    for touch in touches.operands() {
        let end = touch.address.saturating_add(touch.length);
        let mut from = touch.address;
        while from < end {
            let to = end.min((from & !(PAGE - 1)).saturating_add(PAGE));
            let wanted = if touch.write { WRITE } else { 0 };
            if let Some(region) = pm::find(from).filter(|r| may(r, wanted)) {
                show(&region, from, to, touch.write);
            }
            from = to;
        }
    }
}
