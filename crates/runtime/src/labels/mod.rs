//! Dependences in one native run: the functions that code built by `crashproof cc --deps` calls (`crashproof_wire::labels` has the list), over
//! a [`domain`] of labels.
//!
//! Witcher (SOSP '21, sections 4.1 and 4.2.2) traces every instruction and builds the dependence graph afterwards. Here every value carries
//! a label that says which loads from PM it comes from, and each access to PM is logged with the loads that it depends on:
//!
//! - the value of a PM load carries that load alone, neither its address's labels nor those of what was stored there: an edge joins nearest accesses,
//!   and PM has no shadow;
//! - a volatile load carries the labels of the bytes ([`shadow`]) and of the address;
//! - a PM access depends, by control, on the nearest open branch whose condition has a label ([`branches`]); so does, as a value, what is stored
//!   in volatile memory.
//!
//! The paper's graph has an edge for every path. `docs/dependences.md` compares the two.
//!
//! Architecture invariant: what a label means is known only to [`domain`]; nothing here changes what the program does.

mod branches;
mod domain;
mod entry;
mod events;
mod hash;
mod shadow;

pub(crate) use branches::Thread;
pub(crate) use entry::LABELS;

use crate::{log, spin::Spin};
use crashproof_wire::record::{Fields, PATH};
use domain::{Domain, Label, Sets};
use shadow::Shadow;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The executed blocks of an object, a byte each.
struct Blocks {
    flags: &'static [AtomicU8],
    object: u64,
}

/// What all threads share.
#[derive(Default)]
struct State {
    domain: Sets,
    shadow: Shadow,
    blocks: Vec<Blocks>,
    /// Labels of bytes that are being copied.
    copied: Vec<(Label, u64)>,
    /// What an access depends on.
    dependences: Vec<u64>,
}

struct Shared {
    lock: Spin,
    state: UnsafeCell<Option<State>>,
}

// SAFETY: `state` is only touched with `lock` held.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    lock: Spin::new(),
    state: UnsafeCell::new(None),
};

/// Whether any code of the process is built with `--deps`.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The thread `me` has the state to itself. Hooks, and handlers of the runtime's own, which never interrupt one.
fn with_state<T>(me: u32, act: impl FnOnce(&mut State) -> T) -> T {
    let _held = SHARED.lock.lock_as(me);
    // SAFETY: the lock is held.
    act(unsafe { &mut *SHARED.state.get() }.get_or_insert_default())
}

/// The child of a fork must not inherit a state that another thread had half changed.
pub(crate) fn before_fork() {
    SHARED.lock.lock().leave_locked();
}

pub(crate) fn after_fork() {
    SHARED.lock.reset();
}

/// What ends operations, as in `crashproof_trace::Boundaries`: annotations, if one comes before the first line of output.
static BOUNDARIES: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const LINES: u8 = 1;
const ANNOTATIONS: u8 = 2;

fn ends_with(boundaries: u8) -> bool {
    match BOUNDARIES.compare_exchange(UNDECIDED, boundaries, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(decided) => decided == boundaries,
    }
}

/// The program has completed a line of its output.
pub(crate) fn line_written() {
    if IN_USE.load(Ordering::Relaxed) && ends_with(LINES) {
        end_operation();
    }
}

/// The program has said that an operation begins.
pub(crate) fn operation_begins() {
    if IN_USE.load(Ordering::Relaxed) && ends_with(ANNOTATIONS) {
        *operations_within() += 1;
    }
}

/// The program has said that an operation has ended.
pub(crate) fn operation_ends() {
    if IN_USE.load(Ordering::Relaxed) && ends_with(ANNOTATIONS) {
        let within = operations_within();
        *within = within.saturating_sub(1);
        if *within == 0 {
            end_operation();
        }
    }
}

/// How many annotated operations the thread is in, one within the other.
fn operations_within() -> &'static mut u32 {
    let logger = log::logger();
    &mut logger.hooks.labels.of(logger.os_id).operations
}

/// No label outlives its operation.
fn end_operation() {
    let (thread, me) = {
        let logger = log::logger();
        (logger.thread, logger.os_id)
    };
    with_state(me, |state| {
        let cuts = state.domain.end_operation();
        let digest = state.blocks.iter().map(Blocks::take_digest).fold(0, u64::wrapping_add);
        let fields = Fields::<32>::default().u32(thread).u64(0).u64(digest).u64(cuts);
        log::publish(PATH, &[fields.as_bytes()]);
    });
}

impl Blocks {
    /// Of the set of executed blocks, which is empty then: a sum, so that neither their order nor that of the objects matters.
    fn take_digest(&self) -> u64 {
        let executed = self
            .flags
            .iter()
            .enumerate()
            .filter(|(_, flag)| flag.load(Ordering::Relaxed) != 0);
        executed.fold(0, |digest: u64, (index, flag)| {
            flag.store(0, Ordering::Relaxed);
            let mixed = (self.object ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            digest.wrapping_add((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9))
        })
    }
}
