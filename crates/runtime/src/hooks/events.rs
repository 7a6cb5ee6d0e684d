//! The events themselves. The arguments are those of `crashproof_wire::hooks`, then the caller's; 0 declines.

use crate::log::{self, Logger};
use crate::pm::{self, Region};
use crate::{spin, threads};
use crashproof_instruction::{self as instruction, Fault};
use crashproof_wire::{self as wire, Session, hooks::*, record::*};
use libc::{siginfo_t, ucontext_t};

/// No instruction that `begin` is called for writes more.
const WIDEST: u64 = 64;

/// The locks of the one or two lines of a store, held.
struct Lines {
    first: u32,
    /// The same as `first` if there is only one.
    last: u32,
}

impl Lines {
    #[inline]
    fn lock(session: &Session, place: Place, length: u64, me: u32) -> Lines {
        let Place { file, offset } = place;
        let of = |offset: u64| wire::lock_index(file, offset / pm::LINE) as u32;
        let (one, other) = (of(offset), of(offset + length.max(1) - 1));
        let lines = Lines {
            first: one.min(other),
            last: one.max(other),
        };
        spin::acquire(&session.locks[lines.first as usize], me);
        if lines.last != lines.first {
            spin::acquire(&session.locks[lines.last as usize], me);
        }
        lines
    }

    #[inline]
    fn release(self, session: &Session) {
        if self.last != self.first {
            spin::release(&session.locks[self.last as usize]);
        }
        spin::release(&session.locks[self.first as usize]);
    }
}

/// What `begin` leaves to `end`.
pub(super) struct Held {
    lines: Lines,
    region: Region,
}

/// What a hook at work needs.
struct Event {
    session: &'static Session,
    logger: &'static mut Logger,
}

impl Event {
    #[inline]
    fn enter() -> Option<Event> {
        Some(Event {
            session: log::session()?,
            logger: log::logger(),
        })
    }

    /// The writable region that holds all of [address, address + length).
    #[inline]
    fn region(&mut self, address: u64, length: u64) -> Option<Region> {
        let version = pm::version();
        let fits = |region: &Region| region.start <= address && length <= region.end.saturating_sub(address);
        if let Some((known, region)) = &self.logger.hooks.region
            && *known == version
            && fits(region)
        {
            return Some(*region);
        }
        let region = pm::find(address).filter(|region| region.writable() && fits(region))?;
        self.logger.hooks.region = Some((version, region));
        Some(region)
    }

    #[inline]
    fn access(&self, stack: u64, place: Place, flags: u8, len: usize) -> Access {
        Access::new(stack, place, self.logger.thread, flags, len)
    }

    /// A flush, a fence, or a store of at most eight bytes, which `value` holds.
    #[inline]
    fn log_word(&mut self, kind: u8, stack: u64, place: Place, flags: u8, (value, len): (u64, usize)) {
        let access = self.access(stack, place, flags, len);
        self.logger.note(kind, flags);
        log::publish_access(self.session, self.logger, kind, &access, [value, 0, 0, 0]);
    }

    #[inline]
    fn log_store(&mut self, stack: u64, place: Place, flags: u8, data: &[u8]) {
        let access = self.access(stack, place, flags, data.len());
        self.logger.note(STORE, flags);
        if data.len() > log::SLOT_DATA {
            log::publish(STORE, &[access.as_bytes(), data]);
            return;
        }
        let mut words = [0u64; log::SLOT_DATA / 8];
        // SAFETY: at most as many bytes as there are in the words.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), words.as_mut_ptr().cast(), data.len()) };
        log::publish_access(self.session, self.logger, STORE, &access, words);
    }

    /// Stores `bytes` (at most a line's worth) at an address of the region and logs it.
    fn write(&mut self, region: &Region, address: u64, bytes: &[u8], stack: u64) -> bool {
        let place = region.place(address);
        let lines = Lines::lock(self.session, place, bytes.len() as u64, self.logger.os_id);
        // SAFETY: the alias of a writable region; a file that is shorter makes it fail.
        let done = unsafe { instruction::try_store_bytes(address.wrapping_add_signed(region.delta), bytes) };
        if done {
            self.log_store(stack, place, 0, bytes);
        }
        lines.release(self.session);
        done
    }
}

pub(super) extern "C" fn store(address: u64, value: u64, what: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    let length = what_size(what);
    let Some(region) = event.region(address, length) else {
        return 0;
    };
    let stack = event.logger.stack_of_call(slot, rbp);
    let place = region.place(address);
    let lines = Lines::lock(event.session, place, length, event.logger.os_id);
    let alias = address.wrapping_add_signed(region.delta);
    // SAFETY: the alias of a writable region; a file that is shorter makes it fail.
    let done = unsafe { instruction::try_store(alias, length as usize, value) };
    if done {
        event.log_word(STORE, stack, place, what_flags(what), (value, length as usize));
    }
    lines.release(event.session);
    done as u64
}

/// Unless it declines, the hook goes on until `end`.
pub(super) extern "C" fn begin(address: u64, length: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    let region = event.region(address, length).filter(|_| (1..=WIDEST).contains(&length));
    let Some(region) = region else { return 0 };
    let alias = address.wrapping_add_signed(region.delta);
    if !instruction::is_readable(alias) || !instruction::is_readable(alias + length - 1) {
        // The file is shorter than its mapping.
        return 0;
    }
    let lines = Lines::lock(event.session, region.place(address), length, event.logger.os_id);
    event.logger.hooks.held = Some(Held { lines, region });
    region.delta as u64
}

pub(super) extern "C" fn end(address: u64, length: u64, what: u64, lanes: u64, slot: *const u64, rbp: u64) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    let held = match event.logger.hooks.held.take() {
        Some(held) => held,
        // The instruction faulted, and a handler of the program's has mended that and had it executed again.
        None => {
            let Some(region) = event.region(address, length) else {
                return 0;
            };
            let lines = Lines::lock(event.session, region.place(address), length, event.logger.os_id);
            Held { lines, region }
        }
    };
    let stack = event.logger.stack_of_call(slot, rbp);
    let mut data = [0u8; WIDEST as usize];
    let data = &mut data[..(length as usize).min(WIDEST as usize)];
    // SAFETY: the instruction has just written there, and the lines are locked.
    unsafe {
        let alias = address.wrapping_add_signed(held.region.delta) as *const u8;
        std::ptr::copy_nonoverlapping(alias, data.as_mut_ptr(), data.len());
    }
    let (size, flags) = (what_size(what).max(1), what_flags(what));
    let (mut lane, mut wrote) = (0, false);
    while lane * size < length {
        let run = (lanes >> lane).trailing_ones() as u64;
        if run == 0 {
            lane += 1;
            continue;
        }
        let (from, to) = (lane * size, ((lane + run) * size).min(data.len() as u64));
        let place = held.region.place(address + from);
        event.log_store(stack, place, flags, &data[from as usize..to as usize]);
        wrote = true;
        lane += run;
    }
    if !wrote && flags & STORE_LOCKED != 0 {
        event.log_word(FENCE, stack, Place::NONE, FENCE_LOCKED, (0, 0));
    }
    held.lines.release(event.session);
    1
}

/// The pieces of a range, each in one line; a range that is no longer than a line is one piece. Last first if `backward`.
fn pieces(to: u64, length: u64, backward: bool) -> impl Iterator<Item = (u64, usize)> {
    let (mut start, mut end) = (0, length);
    std::iter::from_fn(move || {
        let piece = if start >= end {
            return None;
        } else if length <= pm::LINE {
            (0, length)
        } else if backward {
            let from = ((to + end - 1) / pm::LINE * pm::LINE).saturating_sub(to).max(start);
            (from, end - from)
        } else {
            (start, (pm::LINE - (to + start) % pm::LINE).min(end - start))
        };
        if backward {
            end = piece.0;
        } else {
            start = piece.0 + piece.1;
        }
        if length <= pm::LINE {
            (start, end) = (0, 0);
        }
        Some((piece.0, piece.1 as usize))
    })
}

/// Writes a range piece by piece; `read` says what each is to hold, or that it cannot be read.
fn write_range(
    to: u64,
    length: u64,
    backward: bool,
    (slot, rbp): (*const u64, u64),
    read: impl Fn(u64, &mut [u8]) -> bool,
) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    let Some(region) = event.region(to, length) else {
        return 0;
    };
    let stack = event.logger.stack_of_call(slot, rbp);
    for (at, size) in pieces(to, length, backward) {
        let mut bytes = [0u8; pm::LINE as usize];
        let bytes = &mut bytes[..size];
        if !read(at, bytes) || !event.write(&region, to + at, bytes, stack) {
            return 0;
        }
    }
    1
}

/// A source that cannot be read is left to the original, which faults where the program expects it.
pub(super) extern "C" fn copy(to: u64, from: u64, length: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    let backward = to.wrapping_sub(from) < length;
    write_range(to, length, backward, (slot, rbp), |at, bytes| {
        instruction::try_load_bytes(bytes, from + at)
    })
}

pub(super) extern "C" fn fill(to: u64, byte: u64, length: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    write_range(to, length, false, (slot, rbp), |_, bytes| {
        bytes.fill(byte as u8);
        true
    })
}

pub(super) extern "C" fn flush(address: u64, kind: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    let region = event.region(address, 1).or_else(|| pm::find(address));
    let Some(region) = region.filter(|region| !region.registered) else {
        // Registered memory may be only a part of the line: the instruction has a breakpoint. Otherwise it is of no
        // consequence for PM.
        let line = address / pm::LINE * pm::LINE;
        return !pm::contains(line, pm::LINE) as u64;
    };
    let stack = event.logger.stack_of_call(slot, rbp);
    let place = region.place(address);
    let lines = Lines::lock(event.session, place, 1, event.logger.os_id);
    event.log_word(FLUSH, stack, place, kind as u8, (0, 0));
    lines.release(event.session);
    1
}

/// The locked addition by which the record gets its place orders the thread's stores and loads as the fence would.
pub(super) extern "C" fn fence(kind: u64, _: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    let Some(mut event) = Event::enter() else { return 0 };
    if kind == u64::from(FENCE_LOCKED) && !event.logger.has_pending() {
        return 1;
    }
    let stack = event.logger.stack_of_call(slot, rbp);
    event.log_word(FENCE, stack, Place::NONE, kind as u8, (0, 0));
    1
}

/// A fault between `begin` and `end` (the file has become shorter): the hook is over, and the program gets the fault at the
/// address that it knows.
pub(crate) fn abandon(info: &siginfo_t, uc: &mut ucontext_t) -> Option<Fault> {
    let state = &threads::current().in_hook;
    if !state.is_set() {
        return None;
    }
    let (session, held) = (log::session()?, log::logger().hooks.held.take()?);
    held.lines.release(session);
    if let Some(mask) = state.clear() {
        *crate::signals::mask_of(uc) = mask;
    }
    // SAFETY: both signals that this is called for carry an address.
    let address = unsafe { info.si_addr() as u64 };
    let mut fault = Fault::segv(address.wrapping_sub_signed(held.region.delta), info.si_code);
    fault.signal = info.si_signo;
    Some(fault)
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_cover_the_range_and_stay_in_their_lines() {
        for to in 0..130u64 {
            for length in 0..200u64 {
                for backward in [false, true] {
                    let mut all: Vec<(u64, usize)> = pieces(to, length, backward).collect();
                    if backward {
                        all.reverse();
                    }
                    let mut next = 0;
                    for (at, size) in all {
                        assert_eq!(at, next);
                        next = at + size as u64;
                        assert!(length <= 64 || (to + at) / 64 == (to + next - 1) / 64);
                    }
                    assert_eq!(next, length, "{to} {length} {backward}");
                }
            }
        }
    }
}
