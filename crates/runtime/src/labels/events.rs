//! The functions themselves. The arguments are those of `crashproof_wire::labels`, then where the return address of the call lies and the caller's frame
//! pointer, as for [`crate::hooks`].

use super::branches::Thread;
use super::domain::{self, Domain, EMPTY, Label};
use super::{Blocks, IN_USE, State, with_state};
use crate::log::{self, Logger};
use crate::pm::{self, Region};
use crashproof_wire::record::{ACCESS, Fields};
use std::sync::atomic::Ordering;

/// A node is a dependence of no more than this: twice as many as a label has members.
const MOST_DEPENDENCES: usize = 2 * crashproof_wire::labels::MOST_MEMBERS;

/// What is larger is none, but a frame pointer that is used for something else.
const LARGEST_FRAME: u64 = 1 << 20;

/// A function at work: its thread, the shared state, and where the stack of its call is found.
struct Event<'a> {
    logger: &'a mut Logger,
    state: &'a mut State,
    slot: *const u64,
    rbp: u64,
}

fn enter(slot: *const u64, rbp: u64, act: impl FnOnce(&mut Event) -> Label) -> u64 {
    if log::session().is_none() {
        return 0;
    }
    let logger = log::logger();
    with_state(logger.os_id, |state| {
        let mut event = Event {
            logger,
            state,
            slot,
            rbp,
        };
        u64::from(act(&mut event))
    })
}

impl Event<'_> {
    fn thread(&mut self) -> (&mut Thread, &mut domain::Sets) {
        let os_id = self.logger.os_id;
        (self.logger.hooks.labels.of(os_id), &mut self.state.domain)
    }

    fn combine(&mut self, one: Label, other: Label) -> Label {
        self.state.domain.combine(0, one, other)
    }

    /// Of the nearest open branch, as control.
    fn guard(&mut self) -> Label {
        let (thread, domain) = self.thread();
        let nearest = thread.nearest(domain);
        domain.control(nearest)
    }

    /// The region of PM that holds the address. It may be anywhere: libpmemobj asks for addresses of its own.
    fn region(&mut self, address: u64) -> Option<Region> {
        let version = pm::version();
        let known = &self.logger.hooks.looked_at;
        match known {
            Some((at, region)) if *at == version && (region.start..region.end).contains(&address) => Some(*region),
            _ => {
                let region = pm::find(address)?;
                self.logger.hooks.looked_at = Some((version, region));
                Some(region)
            }
        }
    }

    /// Logs an access to PM that depends on what the label stands for, and on the nearest open branch. Its node.
    fn access(&mut self, region: &Region, address: u64, length: u64, store: bool, label: Label) -> Option<u64> {
        let guard = self.guard();
        let mut dependences = std::mem::take(&mut self.state.dependences);
        let domain = &self.state.domain;
        domain::merge(domain.members(label), domain.members(guard), &mut dependences);
        let mut bytes = [0u8; 8 * MOST_DEPENDENCES];
        let mut filled = 0;
        for (place, member) in bytes.chunks_exact_mut(8).zip(&dependences) {
            place.copy_from_slice(&member.to_le_bytes());
            filled += 8;
        }
        self.state.dependences = dependences;
        let stack = self.logger.stack_of_call(self.slot, self.rbp);
        let place = region.place(address);
        let fields = Fields::<32>::default()
            .u32(self.logger.thread)
            .u64(stack)
            .u32(place.file)
            .u64(place.offset)
            .u32(length.min(region.end - address).min(u32::MAX.into()) as u32)
            .u32(store.into());
        log::publish_at(ACCESS, &[fields.as_bytes(), &bytes[..filled]])
    }

    /// The label of the bytes that are read.
    fn read(&mut self, address: u64, length: u64, label: Label) -> Label {
        if length == 0 {
            return EMPTY;
        }
        if let Some(region) = self.region(address) {
            let node = self.access(&region, address, length, false, label);
            return node.map_or(EMPTY, |node| self.state.domain.load(node));
        }
        let State { domain, shadow, .. } = &mut self.state;
        let mut union = label;
        shadow.read(address, length, |byte, _| union = domain.combine(0, union, byte));
        union
    }

    fn write(&mut self, address: u64, length: u64, value: Label, label: Label) {
        if length == 0 {
            return;
        }
        if let Some(region) = self.region(address) {
            let label = self.combine(value, label);
            self.access(&region, address, length, true, label);
            return;
        }
        let guard = self.guard();
        let value = self.combine(value, guard);
        self.state.shadow.write(address, length, value);
    }

    /// Each byte keeps its own label, unless [`source`] was PM, whose load has one.
    fn copy(&mut self, to: u64, from: u64, length: u64, (label_to, label_from): (Label, Label)) {
        let loaded = self.thread().0.source.take();
        if length == 0 {
            return;
        }
        if let Some(value) = loaded {
            self.write(to, length, value, label_to);
            return;
        }
        if self.region(to).is_some() {
            let value = self.read(from, length, label_from);
            self.write(to, length, value, label_to);
            return;
        }
        let guard = self.guard();
        let with = self.combine(label_from, guard);
        let mut copied = std::mem::take(&mut self.state.copied);
        copied.clear();
        self.state
            .shadow
            .read(from, length, |label, bytes| copied.push((label, bytes)));
        let mut at = to;
        for &(label, bytes) in &copied {
            let label = self.combine(label, with);
            self.state.shadow.write(at, bytes, label);
            at += bytes;
        }
        self.state.copied = copied;
    }
}

/// How many bytes of a string, the end included, but no more than `most`.
fn text(address: u64, most: u64) -> u64 {
    let mut length = 0;
    while length < most {
        length += 1;
        // SAFETY: the program itself reads as far.
        if unsafe { *((address + length - 1) as *const u8) } == 0 {
            break;
        }
    }
    length
}

/// Two labels in one word: that of what comes first in the list of arguments is above.
fn both(labels: u64) -> (Label, Label) {
    ((labels >> 32) as Label, labels as Label)
}

pub(super) extern "C" fn combine(one: u64, other: u64, operation: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        event
            .state
            .domain
            .combine(operation as u32, one as Label, other as Label)
    })
}

pub(super) extern "C" fn control(label: u64, _: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| event.state.domain.control(label as Label))
}

pub(super) extern "C" fn load(address: u64, length: u64, label: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| event.read(address, length, label as Label))
}

pub(super) extern "C" fn store(address: u64, length: u64, value: u64, label: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        event.write(address, length, value as Label, label as Label);
        EMPTY
    })
}

pub(super) extern "C" fn source(from: u64, length: u64, label: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        let loaded = (length > 0 && event.region(from).is_some()).then(|| event.read(from, length, label as Label));
        event.thread().0.source = loaded;
        EMPTY
    })
}

pub(super) extern "C" fn copy(to: u64, from: u64, length: u64, labels: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        event.copy(to, from, length, both(labels));
        EMPTY
    })
}

pub(super) extern "C" fn written(address: u64, length: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        match event.region(address).filter(|_| length > 0) {
            Some(region) => {
                event.access(&region, address, length, true, EMPTY);
            }
            None => event.state.shadow.write(address, length, EMPTY),
        }
        EMPTY
    })
}

pub(super) extern "C" fn compared(one: u64, other: u64, most: u64, _: u64, _: *const u64, _: u64) -> u64 {
    if log::session().is_none() {
        return 0;
    }
    let mut length = 0;
    while length < most {
        // SAFETY: the program's own comparison reads as far.
        let (a, b) = unsafe { (*((one + length) as *const u8), *((other + length) as *const u8)) };
        length += 1;
        if a != b || a == 0 {
            break;
        }
    }
    length
}

pub(super) extern "C" fn text_length(address: u64, most: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    match log::session() {
        Some(_) => text(address, most),
        None => 0,
    }
}

pub(super) extern "C" fn fresh(address: u64, length: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        if address != 0 && event.region(address).is_none() {
            event.state.shadow.write(address, length, EMPTY);
        }
        EMPTY
    })
}

/// For those that need nothing but the thread.
fn of_thread(act: impl FnOnce(&mut Thread) -> u64) -> u64 {
    if log::session().is_none() {
        return 0;
    }
    let logger = log::logger();
    act(logger.hooks.labels.of(logger.os_id))
}

pub(super) extern "C" fn enter_function(function: u64, _: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| thread.enter(function))
}

pub(super) extern "C" fn argument(index: u64, _: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| thread.argument(index).into())
}

pub(super) extern "C" fn leave(frame: u64, function: u64, label: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        let (thread, domain) = event.thread();
        thread.leave(domain, frame, function, label as Label);
        // Its variables are gone: code without labels may put something else there.
        let own = rbp.saturating_sub(slot as u64);
        if own < LARGEST_FRAME {
            event.state.shadow.write(slot as u64, own, EMPTY);
        }
        EMPTY
    })
}

pub(super) extern "C" fn call(callee: u64, arguments: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| {
        thread.call(callee, arguments);
        0
    })
}

pub(super) extern "C" fn pass(index: u64, label: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| {
        thread.pass(index, label as Label);
        0
    })
}

pub(super) extern "C" fn result(callee: u64, _: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| thread.result(callee).into())
}

pub(super) extern "C" fn branch(frame: u64, branch: u64, block: u64, label: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        let (thread, domain) = event.thread();
        thread.branch(domain, frame, branch, block, label as Label);
        EMPTY
    })
}

pub(super) extern "C" fn join(frame: u64, block: u64, _: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    enter(slot, rbp, |event| {
        let (thread, domain) = event.thread();
        thread.join(domain, frame, block)
    })
}

pub(super) extern "C" fn depth(frame: u64, _: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| thread.depth(frame))
}

pub(super) extern "C" fn restore(frame: u64, depth: u64, _: u64, _: u64, _: *const u64, _: u64) -> u64 {
    of_thread(|thread| {
        thread.restore(frame, depth);
        0
    })
}

pub(super) extern "C" fn blocks(flags: u64, count: u64, object: u64, _: u64, slot: *const u64, rbp: u64) -> u64 {
    IN_USE.store(true, Ordering::Relaxed);
    enter(slot, rbp, |event| {
        // SAFETY: an array of the module's own, as long as it says; a module that is unloaded was never seen to be built so.
        let flags = unsafe { std::slice::from_raw_parts(flags as *const _, count as usize) };
        event.state.blocks.push(Blocks { flags, object });
        EMPTY
    })
}
