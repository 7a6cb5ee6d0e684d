//! What happens at a fault or a breakpoint: perform, log, step over.
//!
//! A store to a view faults; it is decoded, performed on the alias and logged under the locks of its lines, and the
//! program goes on behind it. A flush or fence hits a breakpoint; it is logged and stepped over. Either way the handler
//! then runs ahead: as long as the next instruction is another store to PM, flush or fence, or one that needs nothing but
//! registers and readable memory, it is done here too, because getting into a handler and out again costs more than
//! everything else together.

use crate::{code_map, hooks, log, pm, raw, registered, requests, sys, threads, watch};
use crashproof_code::sweep::{Site, SiteKind};
use crashproof_instruction::{self as instruction, Context, Fault, Plan, Step, Writes};
use crashproof_wire::{Session, record::*};
use libc::{siginfo_t, ucontext_t};
use pm::{LineLocks, Region};

/// Instructions done in one handler before the program's signals get their turn.
const RUN_AHEAD: usize = 4096;
/// The kernel's reasons for SIGSEGV: nothing mapped, or not for writing.
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
/// Instructions done in search of the next event: about as many as take the time of a signal.
const PATIENCE: u32 = 40;

/// SIGSEGV. True: it was a store to PM, and it is done.
pub(crate) fn segv(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    // SAFETY: SIGSEGV carries an address; both are what the kernel passed.
    let (nested, address) = unsafe { (instruction::fix_up(uc, info), info.si_addr() as u64) };
    if nested {
        return true;
    }
    if watch::active() {
        return watch::fault::segv(info, uc);
    }
    let Some(session) = log::session() else { return false };
    if in_hook(info, uc) {
        return true;
    }
    let is_write = uc.uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0;
    if !is_write {
        return false;
    }
    let view = pm::find(address).or_else(|| registered::find(address));
    if !view.is_some_and(|r| r.writable()) {
        return registered::try_again(address);
    }
    match store(session, uc) {
        Outcome::Done => {
            run_ahead(session, uc);
            true
        }
        Outcome::NotOurs => false,
        Outcome::Fault(fault) => {
            crate::signals::deliver_fault(&fault, uc);
            true
        }
    }
}

/// SIGBUS. True: the alias of a file that is shorter than its mapping; what was being performed reports the fault.
pub(crate) fn bus(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    // SAFETY: both are what the kernel passed.
    let nested = unsafe { instruction::fix_up(uc, info) };
    if !nested {
        watch::fault::bus(uc);
    }
    nested || in_hook(info, uc)
}

/// A fault of an instruction that a hook has sent to the alias: the program's own.
fn in_hook(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    let Some(fault) = hooks::abandon(info, uc) else {
        return false;
    };
    crate::signals::deliver_fault(&fault, uc);
    true
}

/// Whether the program stands behind a breakpoint of ours, where no instruction begins.
pub(crate) fn at_breakpoint(uc: &ucontext_t) -> bool {
    let address = rip(uc).wrapping_sub(1);
    !watch::active()
        && (code_map::is_loader_breakpoint(address)
            || code_map::site(address).is_some()
            || raw::noted(address).is_some())
}

/// SIGTRAP. True: it was one of our breakpoints.
pub(crate) fn trap(info: &siginfo_t, uc: &mut ucontext_t) -> bool {
    if watch::active() {
        return watch::fault::trap(info, uc);
    }
    let Some(session) = log::session() else { return false };
    let address = rip(uc) - 1;
    if code_map::is_loader_breakpoint(address) {
        let _errno = sys::KeptErrno::new();
        code_map::modules_changed();
        return_to_caller(uc);
        return true;
    }
    let Some(site) = code_map::site(address) else {
        let Some((number, target)) = raw::noted(address) else {
            return false;
        };
        raw::note(number, target, uc);
        return true;
    };
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
    if site.kind == SiteKind::SystemCall {
        raw::trap(&site, info, uc);
        return true;
    }
    breakpoint(session, &site, uc);
    run_ahead(session, uc);
    true
}

enum Outcome {
    Done,
    NotOurs,
    Fault(Fault),
}

fn store(session: &'static Session, uc: &mut ucontext_t) -> Outcome {
    let rip = rip(uc);
    let mut buffer = [0; 15];
    let plan = match instruction::decode(instruction::fetch(rip, &mut buffer), rip) {
        Ok(plan) => plan,
        Err(error) => {
            unsupported(rip, &error);
            return Outcome::NotOurs;
        }
    };
    perform(session, &plan, uc)
}

fn rip(uc: &ucontext_t) -> u64 {
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
}

/// The program's registers, as this handler got them.
fn context(uc: &mut ucontext_t) -> Context<'_> {
    // SAFETY: every `uc` here is what the kernel passed to the handler of this thread.
    unsafe { Context::new(uc) }
}

/// Performs the store (one chunk of it, if it repeats) and logs it.
fn perform(session: &'static Session, plan: &Plan, uc: &mut ucontext_t) -> Outcome {
    let writes = plan.writes(&context(uc));
    let bounds = writes.bounds();
    if registered::contains(bounds.address, bounds.length as u64) {
        return perform_registered(session, plan, uc, &writes);
    }
    let Some(region) = region_of(&writes) else {
        return perform_across(session, plan, uc, &writes);
    };
    let stack = log::stack_of(uc);
    let locks = LineLocks::take(
        session,
        std::iter::once((region.place(bounds.address), bounds.length as u64)),
    );
    // SAFETY: the writes lie in the region, whose alias is mapped at delta; a shorter file makes it report a fault.
    let performed = match unsafe { plan.perform(&mut context(uc), region.delta) } {
        Ok(performed) => performed,
        Err(fault) => return Outcome::Fault(fault),
    };
    if performed.wrote() {
        for write in performed.written.ranges() {
            log_written(&region, write.address, write.length, flags(plan), stack);
        }
    } else if plan.locked() {
        log::fence(stack, FENCE_LOCKED);
    }
    drop(locks);
    Outcome::Done
}

/// The same for a store to a page with registered memory on it: what lies beside that is performed and not logged.
fn perform_registered(session: &'static Session, plan: &Plan, uc: &mut ucontext_t, writes: &Writes) -> Outcome {
    let bounds = writes.bounds();
    let (start, end) = (bounds.address, bounds.address + bounds.length as u64);
    let held = registered::hold();
    if !registered::contains(start, end - start) {
        // Ordinary memory again: the program does it by itself.
        return Outcome::Done;
    }
    let Some(pages) = registered::find(start).filter(|pages| pages.writable() && end <= pages.end) else {
        drop(held);
        return perform_across(session, plan, uc, writes);
    };
    let in_pm = || parts(start, end).filter_map(|p| Some((p.region?.place(p.start), p.end - p.start)));
    let stack = in_pm().next().map(|_| log::stack_of(uc));
    let locks = LineLocks::take(session, in_pm());
    // SAFETY: the writes lie in the pages, whose alias is mapped at delta.
    let performed = match unsafe { plan.perform(&mut context(uc), pages.delta) } {
        Ok(performed) => performed,
        Err(fault) => return Outcome::Fault(fault),
    };
    if let Some(stack) = stack {
        for write in performed.written.ranges() {
            for part in parts(write.address, write.address + write.length as u64) {
                if let Some(region) = part.region {
                    let len = (part.end - part.start) as usize;
                    log_written(&region, part.start, len, flags(plan), stack);
                }
            }
        }
        if !performed.wrote() && plan.locked() {
            log::fence(stack, FENCE_LOCKED);
        }
    }
    drop(locks);
    Outcome::Done
}

/// Logs what the alias holds now, in records of at most a line each unless one store crosses two.
fn log_written(region: &Region, address: u64, len: usize, flags: u8, stack: u64) {
    let mut data = [0u8; 64];
    let mut done = 0;
    while done < len {
        let at = address + done as u64;
        let n = if len <= data.len() {
            len
        } else {
            (len - done).min((pm::LINE - at % pm::LINE) as usize)
        };
        // SAFETY: the alias was just written here, and its lines are locked.
        unsafe {
            std::ptr::copy_nonoverlapping(at.wrapping_add_signed(region.delta) as *const u8, data.as_mut_ptr(), n);
        }
        log::store(stack, region.place(at), flags, &data[..n]);
        done += n;
    }
}

/// The one region in which all the writes lie. Regions that mprotect has split are one alias still.
fn region_of(writes: &Writes) -> Option<Region> {
    let bounds = writes.bounds();
    let end = bounds.address + bounds.length as u64;
    let mut region = pm::find(bounds.address).filter(|r| r.writable())?;
    while region.end < end {
        let next = pm::find(region.end).filter(|n| n.delta == region.delta && n.file == region.file && n.writable())?;
        region.end = next.end;
    }
    Some(region)
}

/// A stretch of what an instruction writes: of one PM region, or of ordinary memory.
struct Part {
    start: u64,
    end: u64,
    region: Option<Region>,
}

fn parts(start: u64, end: u64) -> impl Iterator<Item = Part> {
    let mut from = start;
    std::iter::from_fn(move || {
        let (start, next) = (from, pm::first_after(from));
        let region = next.filter(|r| r.start <= start);
        from = match (region, next) {
            (Some(region), _) => region.end.min(end),
            (None, Some(next)) => next.start.min(end),
            (None, None) => end,
        };
        (start < end).then_some(Part {
            start,
            end: from,
            region,
        })
    })
}

/// What one instruction writes at most, other than string instructions, which go line by line.
const MOST_WRITTEN: usize = 4096;

#[repr(align(64))]
struct Scratch([u8; MOST_WRITTEN + 64]);

/// A store that crosses from one PM mapping into another, or between PM and ordinary memory: performed on a copy, from
/// which each part goes where it belongs. Not atomic, should it be a locked one.
fn perform_across(session: &'static Session, plan: &Plan, uc: &mut ucontext_t, writes: &Writes) -> Outcome {
    let bounds = writes.bounds();
    let (start, end) = (bounds.address, bounds.address + bounds.length as u64);
    if bounds.length > MOST_WRITTEN {
        return Outcome::NotOurs;
    }
    let _held = registered::contains(start, end - start).then(registered::hold);
    let mut scratch = Scratch([0; MOST_WRITTEN + 64]);
    let shift = (start % pm::LINE) as usize;
    let copy = &mut scratch.0[shift..shift + bounds.length];
    let stack = log::stack_of(uc);
    let in_pm = parts(start, end).filter_map(|p| Some((p.region?.place(p.start), p.end - p.start)));
    let locks = LineLocks::take(session, in_pm);
    for part in parts(start, end) {
        let piece = &mut copy[(part.start - start) as usize..(part.end - start) as usize];
        if !sys::read_memory(part.start, piece) {
            return Outcome::Fault(Fault::segv(part.start, SEGV_MAPERR));
        }
        // Everything must be writable before anything is written.
        let writable = match part.region {
            Some(region) => region.writable(),
            None => registered::write_beside(part.start, piece),
        };
        if !writable {
            return Outcome::Fault(Fault::segv(part.start, SEGV_ACCERR));
        }
    }
    let delta = (copy.as_ptr() as u64).wrapping_sub(start) as i64;
    // SAFETY: the writes lie in the copy, at delta.
    let performed = match unsafe { plan.perform(&mut context(uc), delta) } {
        Ok(performed) => performed,
        Err(fault) => return Outcome::Fault(fault),
    };
    for write in performed.written.ranges() {
        for part in parts(write.address, write.address + write.length as u64) {
            let piece = &copy[(part.start - start) as usize..(part.end - start) as usize];
            let Some(region) = part.region else {
                registered::write_beside(part.start, piece);
                continue;
            };
            sys::write_memory(part.start.wrapping_add_signed(region.delta), piece);
            log_written(&region, part.start, piece.len(), flags(plan), stack);
        }
    }
    if !performed.wrote() && plan.locked() {
        log::fence(stack, FENCE_LOCKED);
    }
    drop(locks);
    Outcome::Done
}

fn flags(plan: &Plan) -> u8 {
    let nontemporal = if plan.nontemporal() { STORE_NONTEMPORAL } else { 0 };
    let locked = if plan.locked() { STORE_LOCKED } else { 0 };
    let exchange = if plan.exchange() { STORE_EXCHANGE } else { 0 };
    nontemporal | locked | exchange
}

fn unsupported(rip: u64, error: &instruction::DecodeError) {
    use std::io::Write;
    let mut text = [0u8; 200];
    let mut rest = &mut text[..];
    let _ = write!(rest, "the store at address {rip:#x} cannot be performed: {error}");
    let n = 200 - rest.len();
    log::incomplete(INCOMPLETE_UNSUPPORTED, &text[..n]);
}

/// A flush, fence, locked instruction or client request whose first byte is our breakpoint; rip is at it.
fn breakpoint(session: &'static Session, site: &Site, uc: &mut ucontext_t) {
    let rip = rip(uc);
    let code = &site.original[..site.length as usize];
    match site.kind {
        SiteKind::Clwb | SiteKind::Clflushopt | SiteKind::Clflush => {
            let address = instruction::flush_address(code, rip, &context(uc));
            let kind = match site.kind {
                SiteKind::Clwb => FLUSH_CLWB,
                SiteKind::Clflushopt => FLUSH_CLFLUSHOPT,
                _ => FLUSH_CLFLUSH,
            };
            if let Some(address) = address {
                flush(session, address, kind, || log::stack_of(uc));
            }
        }
        SiteKind::Sfence | SiteKind::Mfence => {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            let kind = if matches!(site.kind, SiteKind::Sfence) {
                FENCE_SFENCE
            } else {
                FENCE_MFENCE
            };
            log::fence(log::stack_of(uc), kind);
        }
        SiteKind::ClientRequest => requests::answer(uc),
        // [`raw::trap`] has these.
        SiteKind::SystemCall => return,
        SiteKind::Locked => {
            locked(session, code, uc);
            return;
        }
    }
    uc.uc_mcontext.gregs[libc::REG_RIP as usize] = (rip + site.length as u64) as i64;
}

/// Logs a flush of the line at `address`, of which only a part may be PM, or several parts in different files.
pub(crate) fn flush(session: &'static Session, address: u64, kind: u8, stack: impl Fn() -> u64) {
    let line = address / pm::LINE * pm::LINE;
    let mut from = line;
    while let Some(region) = pm::first_after(from).filter(|r| r.start < line + pm::LINE) {
        let place = region.place(address.clamp(region.start, region.end - 1));
        let stack = stack();
        let _locks = LineLocks::take(session, std::iter::once((place, 1)));
        log::flush(stack, place, kind);
        from = region.end;
    }
}

/// A locked read-modify-write with a breakpoint: a store if it hits PM, else a fence.
fn locked(session: &'static Session, code: &[u8], uc: &mut ucontext_t) {
    let rip = rip(uc);
    let Ok(plan) = instruction::decode(code, rip) else {
        return;
    };
    let view = is_pm(&plan, uc);
    let bounds = plan.writes(&context(uc)).bounds();
    let beside = view && !pm::contains(bounds.address, bounds.length as u64);
    // That of a hook is on the alias, and is logged by the hook.
    if (!view || beside) && !threads::current().in_hook.is_set() {
        log::fence(log::stack_of(uc), FENCE_LOCKED);
    }
    if view {
        if let Outcome::Fault(fault) = perform(session, &plan, uc) {
            crate::signals::deliver_fault(&fault, uc);
        }
        return;
    }
    // SAFETY: at its own address, as the program would have done it.
    if let Err(fault) = unsafe { plan.perform(&mut context(uc), 0) } {
        crate::signals::deliver_fault(&fault, uc);
    }
}

fn is_pm(plan: &Plan, uc: &mut ucontext_t) -> bool {
    let writes = plan.writes(&context(uc));
    let bounds = writes.bounds();
    let (address, len) = (bounds.address, bounds.length as u64);
    !writes.is_empty() && (pm::contains(address, len) || registered::contains(address, len))
}

/// Does what follows, as long as it can be done here and another event is near.
fn run_ahead(session: &'static Session, uc: &mut ucontext_t) {
    if !threads::is_on_own_stack() {
        // What the program would push now would go over this very handler's frames.
        return;
    }
    let mut event = rip(uc);
    let mut idle = 0;
    for _ in 0..RUN_AHEAD {
        if idle == 0 && !log::logger().prospects.good(event) {
            return;
        }
        let at = rip(uc);
        match step(session, uc) {
            Ahead::Event => {
                log::logger().prospects.confirm(event);
                (event, idle) = (at, 0);
            }
            Ahead::Idle if idle < PATIENCE => idle += 1,
            Ahead::Idle | Ahead::Stop => {
                log::logger().prospects.disappoint(event);
                return;
            }
        }
    }
}

enum Ahead {
    /// A store to PM, a flush, a fence or a request was done.
    Event,
    /// Something else was done.
    Idle,
    /// The program must go on by itself.
    Stop,
}

fn step(session: &'static Session, uc: &mut ucontext_t) -> Ahead {
    let mut buffer = [0; 15];
    let code = instruction::fetch(rip(uc), &mut buffer);
    if code.first() == Some(&0xcc) {
        let Some(site) = code_map::site(rip(uc)).filter(|site| site.kind != SiteKind::SystemCall) else {
            return Ahead::Stop;
        };
        breakpoint(session, &site, uc);
        return Ahead::Event;
    }
    match instruction::step(code, &mut context(uc)) {
        Step::Done => Ahead::Idle,
        // A hook has the stack that this handler is on.
        Step::Jumped if code_map::is_code(rip(uc)) && !code_map::is_runtime(rip(uc)) => Ahead::Idle,
        Step::Store(plan) if is_pm(&plan, uc) => match perform(session, &plan, uc) {
            Outcome::Done => Ahead::Event,
            _ => Ahead::Stop,
        },
        // SAFETY: where the program itself would store; if it must not, it will find out by itself.
        Step::Store(plan) => match unsafe { plan.perform(&mut context(uc), 0) } {
            Ok(_) => Ahead::Idle,
            Err(_) => Ahead::Stop,
        },
        Step::Jumped | Step::Stop => Ahead::Stop,
    }
}

/// Does the `ret` that stands at the loader's breakpoint.
fn return_to_caller(uc: &mut ucontext_t) {
    let registers = &mut uc.uc_mcontext.gregs;
    let rsp = registers[libc::REG_RSP as usize];
    // SAFETY: the loader has just called here, so the return address is on top of its stack.
    registers[libc::REG_RIP as usize] = unsafe { *(rsp as *const i64) };
    registers[libc::REG_RSP as usize] = rsp + 8;
}

/// The process is about to end in order.
pub(crate) fn finish() {
    sys::without_signals(|| {
        crate::files::verify_all();
        log::end_process();
    });
}
