//! What code built by `crashproof cc` calls instead of faulting. `crashproof_wire::hooks` has the list and the convention.
//!
//! An event is what it is in [`crate::handler`], by the same steps: the locks of the lines, the change on the alias, the
//! record, the locks released. What is left out is what makes a fault slow: the signal, the decoding, and the
//! unwinding of a call stack that was unwound before ([`stacks`]).
//!
//! Architecture invariant: a hook does all of its event or declines it; whoever is declined executes the original instruction, which is
//! recorded by [`crate::handler`]. Hooks allocate nothing and make no system call, but for what a thread needs once.

pub(crate) mod entry;
mod events;
mod retreat;
pub(crate) mod signals;
mod stacks;

pub(crate) use entry::HOOKS;
pub(crate) use entry::entry;
pub(crate) use events::abandon;
pub(crate) use retreat::resolve;
pub(crate) use signals::InHook;

use crate::labels;
use crate::pm::Region;
use crashproof_code::modules::Module;
use crashproof_wire::hooks as wire;
use libc::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a thread keeps for its hooks.
#[derive(Default)]
pub(crate) struct Memory {
    pub stacks: stacks::KnownStacks,
    /// The consumer's position when this thread last looked.
    pub ring_head: u64,
    /// How often this thread waited for room in the ring.
    pub waits: u32,
    /// The last region, and the version of the table that it is from.
    region: Option<(u64, Region)>,
    /// The same for code built with `--deps`, which may only look at it.
    pub looked_at: Option<(u64, Region)>,
    pub labels: labels::Thread,
    /// Between `begin` and `end`.
    held: Option<events::Held>,
}

/// Fills in the slots of a module that was built by `crashproof cc`.
pub(crate) fn install(module: &Module) {
    if let Some(slot) = slot(module, NOTE, wire::VERSION) {
        crate::signals::make_endings_wait();
        slot.store(retreat::hooks().cast(), Ordering::Release);
    }
    if let Some(slot) = slot(module, LABEL_NOTE, crashproof_wire::labels::VERSION) {
        crate::signals::make_endings_wait();
        slot.store((&raw const labels::LABELS).cast_mut().cast(), Ordering::Release);
    }
}

const NOTE: &[u8] = b"crashproof\0";
const _: () = assert!(NOTE.len() == wire::NOTE_NAME.len() + 1);
const LABEL_NOTE: &[u8] = b"crashproof-deps\0";
const _: () = assert!(LABEL_NOTE.len() == crashproof_wire::labels::NOTE_NAME.len() + 1);

fn slot<'m>(module: &'m Module, name: &[u8], version: u32) -> Option<&'m AtomicPtr<c_void>> {
    // SAFETY: the loader has the module mapped.
    let note = unsafe { module.note(name, version) }?;
    let distance = note.first_chunk()?;
    let slot = (note.as_ptr() as u64).wrapping_add_signed(i64::from_le_bytes(*distance));
    if !module.range.contains(&(slot as usize)) || !slot.is_multiple_of(8) {
        return None;
    }
    // SAFETY: a word of the module's own writable data, which only its gates read.
    Some(unsafe { AtomicPtr::from_ptr(slot as *mut *mut c_void) })
}
