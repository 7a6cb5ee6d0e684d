//! The rules over the tuned memory, for whole traces.

use crashproof_model::{Flush, Memory, Store, Tag, Thread};

use crate::step::{Step, StorePiece};
use crate::underway::SyncChange;

/// Before the steps of an event: what it tells of a sync.
pub fn sync_memory<T: Tag>(memory: &mut Memory<T>, change: SyncChange) {
    match change {
        SyncChange::Begins(thread) => memory.begin_sync(thread),
        SyncChange::Ends(thread) => memory.end_sync(thread),
    }
}

/// Runs a step of the thread, whose event is at `site`. What a flush did, if it is one.
#[inline]
pub fn step_memory<T: Tag>(
    memory: &mut Memory<T>,
    thread: Thread,
    site: T::Site,
    step: &Step,
    tag: impl FnOnce(&StorePiece) -> T,
) -> Option<Flush<T::Site>> {
    match *step {
        Step::Store(piece) => {
            let store = Store {
                bytes: piece.bytes(),
                thread,
                nontemporal: piece.nontemporal,
                tag: tag(&piece),
            };
            memory.store(piece.line, store);
        }
        Step::Flush { line, at_once } => return Some(memory.flush(line, thread, at_once, site)),
        Step::Fence => memory.fence(thread, site),
        Step::Sync { file, offset, len } => memory.sync(file.0, offset, len, thread),
        Step::Write { at, len } => {
            memory.set_clean(at.file.0, at.offset, len);
            memory.written(at.file.0, at.offset, len);
        }
        Step::Resize { file, size } => memory.drain(file.0, size, u64::MAX - size, |_| {}),
        Step::Rename { .. } | Step::Map { .. } => {}
    }
    None
}
