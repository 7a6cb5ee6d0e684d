//! What was noted of each page of the PM files. Kept per page of a file, not of a mapping: a page that is mapped twice, or
//! read by its descriptor too, is noted once.
//!
//! A hash table with open addressing, whose hash leaves neighbours neighbours: most recoveries touch few pages of it. It is
//! mapped when it is first used, so that the parked server has none of it to copy at each fork.

use super::{log_touched, log_written};
use crate::sys;
use crashproof_wire::recovery::{self as wire, Recovery};
use std::cell::UnsafeCell;

/// The page's unit is in the log of touches: it may be readable.
pub(super) const TOUCHED: u8 = 1;
/// The page is in the log of writes: it may be writable.
pub(super) const WRITTEN: u8 = 2;

const SLOTS: usize = 1 << 18;
/// More entries would make searching slow.
const MOST: usize = SLOTS / 8 * 7;

#[derive(Clone, Copy)]
pub(super) struct Notes {
    /// The page's unit and 1; 0 if the slot is free.
    key: u64,
    /// The lines that are in the log of touches.
    lines: u64,
    pub flags: u8,
    /// How often an instruction was stepped over the page.
    pub steps: u8,
}

struct Table {
    slots: UnsafeCell<*mut Notes>,
    count: UnsafeCell<usize>,
}

// SAFETY: only reached through `Pages`, of which there is one, with `super::LOCK` held.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    slots: UnsafeCell::new(std::ptr::null_mut()),
    count: UnsafeCell::new(0),
};

/// Nothing more can be noted.
#[derive(Debug)]
pub(super) struct Full;

/// The notes, while `super::LOCK` is held.
pub(super) struct Pages<'a> {
    recovery: &'a Recovery,
    slots: &'a mut [Notes],
    count: &'a mut usize,
}

impl<'a> Pages<'a> {
    pub(super) fn with<R>(recovery: &'a Recovery, f: impl FnOnce(&mut Pages) -> Result<R, Full>) -> Result<R, Full> {
        let _held = super::lock_notes();
        // SAFETY: the lock is held, so that nobody else has a reference to the table; fresh zeros are free slots.
        unsafe {
            let slots = TABLE.slots.get();
            if (*slots).is_null() {
                *slots = sys::map_anonymous((SLOTS * size_of::<Notes>()) as u64)
                    .ok_or(Full)?
                    .cast();
            }
            f(&mut Pages {
                recovery,
                slots: std::slice::from_raw_parts_mut(*slots, SLOTS),
                count: &mut *TABLE.count.get(),
            })
        }
    }

    /// The slot of the page, or the free one where it belongs.
    fn index(&self, page: u64) -> usize {
        let (file, offset, _) = wire::parse_unit(page);
        let start = (offset / wire::PAGE).wrapping_add((file as u64).wrapping_mul(0x9e37_79b9)) as usize;
        let key = page | 1;
        let probe = (0..SLOTS).map(|i| start.wrapping_add(i) % SLOTS);
        // The table is never full, so the search ends.
        let mut found = probe.skip_while(|&i| self.slots[i].key != 0 && self.slots[i].key != key);
        found.next().unwrap_or(0)
    }

    pub(super) fn flags(&self, page: u64) -> u8 {
        self.slots[self.index(page)].flags
    }

    fn entry(&mut self, page: u64) -> Result<&mut Notes, Full> {
        let index = self.index(page);
        if self.slots[index].key == 0 {
            if *self.count == MOST {
                return Err(Full);
            }
            *self.count += 1;
            self.slots[index].key = page | 1;
        }
        Ok(&mut self.slots[index])
    }

    /// All of the page was, or may have been, looked at.
    pub(super) fn touch(&mut self, page: u64) -> Result<(), Full> {
        let recovery = self.recovery;
        let notes = self.entry(page)?;
        if notes.flags & TOUCHED == 0 && recovery.track == wire::TRACK_READS {
            log_touched(recovery, page).then_some(()).ok_or(Full)?;
            notes.flags |= TOUCHED;
        }
        Ok(())
    }

    /// The lines from the one at byte `from` to the one before byte `to` of the page were looked at.
    pub(super) fn touch_lines(&mut self, page: u64, from: u64, to: u64) -> Result<(), Full> {
        let recovery = self.recovery;
        let notes = self.entry(page)?;
        for line in from / 64..to.div_ceil(64) {
            if notes.flags & TOUCHED == 0 && notes.lines & 1 << line == 0 {
                let (file, offset, _) = wire::parse_unit(page);
                log_touched(recovery, wire::line_unit(file, offset + line * 64))
                    .then_some(())
                    .ok_or(Full)?;
                notes.lines |= 1 << line;
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, page: u64) -> Result<(), Full> {
        let recovery = self.recovery;
        let notes = self.entry(page)?;
        if notes.flags & WRITTEN == 0 {
            log_written(recovery, page).then_some(()).ok_or(Full)?;
            notes.flags |= WRITTEN;
        }
        Ok(())
    }

    /// Counts a step over the page; false if it was the last one that is worth it.
    pub(super) fn step(&mut self, page: u64) -> Result<bool, Full> {
        let notes = self.entry(page)?;
        notes.steps = notes.steps.saturating_add(1);
        Ok(notes.steps <= super::fault::MOST_STEPS)
    }
}

/// Whether the worker wants the lines of this page told apart.
pub(super) fn is_fine(recovery: &Recovery, page: u64) -> bool {
    let count = (recovery.fine_count as usize).min(recovery.fine.len());
    recovery.fine[..count].binary_search(&page).is_ok()
}
