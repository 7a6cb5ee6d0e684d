//! Where PM is mapped: the views that the program sees (never writable), their writable aliases, and the line locks
//! under which every change of PM is made and logged, so that the log has the order that memory had.

use crate::{log, registered, spin, sys};
use crashproof_wire::{self as wire, Session, record::*};
use libc::c_int;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const LINE: u64 = 64;

/// Views are placed here, so that the system-call filter and instrumented code can tell PM by its address alone.
const VIEWS: (u64, u64) = wire::hooks::VIEWS;
const ALIASES: (u64, u64) = (0x2800_0000_0000, 0x3000_0000_0000);

/// A range of a view with one file, one alias and one protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    /// alias = view + delta
    pub delta: i64,
    pub file: u32,
    /// File offset of `start`.
    pub offset: u64,
    /// What the program asked for (`PROT_*`); the view itself has less.
    pub protection: c_int,
    /// Stores stay in this process (`MAP_PRIVATE`): a recovery program's, or registered memory.
    pub private: bool,
    /// Memory that the program registered, byte by byte; its pages and their alias are [`registered`]'s.
    pub registered: bool,
}

impl Region {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn writable(&self) -> bool {
        self.protection & libc::PROT_WRITE != 0
    }

    pub(crate) fn place(&self, address: u64) -> Place {
        Place {
            file: self.file,
            offset: self.offset + (address - self.start),
        }
    }

    fn cut(&self, start: u64, end: u64) -> Region {
        Region {
            start,
            end,
            offset: self.offset + (start - self.start),
            ..*self
        }
    }
}

const MAX_REGIONS: usize = 4096;

/// Sorted regions behind a sequence lock: handlers read without waiting for anything but a writer's few instructions.
pub(crate) struct Table {
    version: AtomicU64,
    writer: spin::Spin,
    len: AtomicU32,
    regions: UnsafeCell<[Region; MAX_REGIONS]>,
}

// SAFETY: `regions` is written with `writer` held and an odd version; readers copy and check the version.
unsafe impl Sync for Table {}

const EMPTY: Region = Region {
    start: 0,
    end: 0,
    delta: 0,
    file: 0,
    offset: 0,
    protection: libc::PROT_NONE,
    private: false,
    registered: false,
};

static TABLE: Table = Table::new();

static NEXT_VIEW: AtomicU64 = AtomicU64::new(VIEWS.0);
static NEXT_ALIAS: AtomicU64 = AtomicU64::new(ALIASES.0);

pub(crate) fn view_range() -> (u64, u64) {
    VIEWS
}

/// An address for a view of this length that was never used; `None` if it does not fit the range any more.
pub(crate) fn new_view(len: u64) -> Option<u64> {
    take(&NEXT_VIEW, VIEWS.1, len)
}

/// No view goes below `end` from here on, as far as the range allows.
pub(crate) fn views_after(end: u64) {
    const GAP: u64 = 2 << 20;
    if (VIEWS.0..VIEWS.1 - GAP).contains(&end) {
        NEXT_VIEW.fetch_max(end.next_multiple_of(GAP), Ordering::Relaxed);
    }
}

pub(crate) fn new_alias(len: u64) -> Option<u64> {
    take(&NEXT_ALIAS, ALIASES.1, len)
}

/// With a gap behind it, so that neighbours never merge. Large mappings start at 2 MiB, as the kernel would place them.
fn take(next: &AtomicU64, end: u64, len: u64) -> Option<u64> {
    const HUGE: u64 = 2 << 20;
    let len = len.checked_next_multiple_of(HUGE)?.checked_add(HUGE)?;
    let advance = |address: u64| address.checked_add(len).filter(|&after| after <= end);
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).ok()
}

pub(crate) fn is_alias(address: u64) -> bool {
    let mut found = (ALIASES.0..ALIASES.1).contains(&address);
    for_each(|region| found |= region.start.wrapping_add_signed(region.delta) == address);
    found
}

/// Whether another mapping, and what mprotect may split it into, would not fit the table.
pub(crate) fn is_full() -> bool {
    TABLE.is_full()
}

/// Changes with every change of the table; odd while it is being changed.
pub(crate) fn version() -> u64 {
    TABLE.version.load(Ordering::Acquire)
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table {
            version: AtomicU64::new(0),
            writer: spin::Spin::new(),
            len: AtomicU32::new(0),
            regions: UnsafeCell::new([EMPTY; MAX_REGIONS]),
        }
    }

    fn region_at(&self, index: usize) -> Region {
        // SAFETY: index < MAX_REGIONS; a torn read is thrown away by the version check.
        unsafe { (self.regions.get() as *const Region).add(index).read_volatile() }
    }

    /// The first region that ends after `address`.
    pub(crate) fn first_after(&self, address: u64) -> Option<Region> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let (mut low, mut high) = (0, self.len.load(Ordering::Relaxed) as usize);
                let len = high;
                while low < high {
                    let middle = (low + high) / 2;
                    if self.region_at(middle).end <= address {
                        low = middle + 1
                    } else {
                        high = middle
                    }
                }
                let found = (low < len).then(|| self.region_at(low));
                std::sync::atomic::fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
    }

    pub(crate) fn find(&self, address: u64) -> Option<Region> {
        self.first_after(address).filter(|r| r.start <= address)
    }

    pub(crate) fn insert(&self, region: Region) {
        let _held = self.writer.lock();
        self.edit(|regions, len| insert_sorted(regions, len, region));
    }

    /// Calls `replace` for each piece of a region that lies in [start, end), and puts what it returns in its place.
    pub(crate) fn change(&self, start: u64, end: u64, mut replace: impl FnMut(Region) -> Option<Region>) {
        let _held = self.writer.lock();
        let mut from = start;
        while let Some(region) = self.first_after(from).filter(|r| r.start < end) {
            let piece = region.cut(region.start.max(start), region.end.min(end));
            let replacement = replace(piece);
            self.edit(|regions, len| {
                let index = regions[..*len].iter().position(|r| r.start == region.start);
                let Some(index) = index else { return };
                regions.copy_within(index + 1..*len, index);
                *len -= 1;
                for part in [region.cut(region.start, piece.start), region.cut(piece.end, region.end)] {
                    if part.start < part.end {
                        insert_sorted(regions, len, part);
                    }
                }
                if let Some(replacement) = replacement {
                    insert_sorted(regions, len, replacement);
                }
            });
            from = piece.end;
        }
    }

    /// Moves what lies in [start, end) by so much; the aliases stay where they are.
    pub(crate) fn relocate(&self, start: u64, end: u64, by: i64) {
        self.change(start, end, |piece| {
            Some(Region {
                start: piece.start.wrapping_add_signed(by),
                end: piece.end.wrapping_add_signed(by),
                delta: piece.delta.wrapping_sub(by),
                ..piece
            })
        });
    }

    fn edit(&self, f: impl FnOnce(&mut [Region; MAX_REGIONS], &mut usize)) {
        self.version.fetch_add(1, Ordering::AcqRel);
        let mut len = self.len.load(Ordering::Relaxed) as usize;
        // SAFETY: the writer lock is held by the caller, the version is odd.
        f(unsafe { &mut *self.regions.get() }, &mut len);
        self.len.store(len as u32, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Each region there is now.
    pub(crate) fn for_each(&self, mut f: impl FnMut(Region)) {
        let mut from = 0;
        while let Some(region) = self.first_after(from) {
            f(region);
            from = region.end;
        }
    }

    /// Whether another region, and what may be cut out of it, would not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) as usize + 64 > MAX_REGIONS
    }
}

/// The first region that ends after `address`.
pub(crate) fn first_after(address: u64) -> Option<Region> {
    TABLE.first_after(address)
}

pub(crate) fn find(address: u64) -> Option<Region> {
    first_after(address).filter(|r| r.start <= address)
}

/// Any overlap of [address, address + len) with a PM view.
pub(crate) fn contains(address: u64, len: u64) -> bool {
    first_after(address).is_some_and(|r| r.start < address.saturating_add(len))
}

/// Takes [start, end) out of the table; `removed` gets each piece.
pub(crate) fn remove(start: u64, end: u64, mut removed: impl FnMut(Region)) {
    TABLE.change(start, end, |piece| {
        removed(piece);
        None
    });
}

pub(crate) fn set_protection(start: u64, end: u64, protection: c_int) {
    TABLE.change(start, end, |piece| Some(Region { protection, ..piece }));
}

/// The views in [start, end) have moved by so much; their aliases have not.
pub(crate) fn relocate(start: u64, end: u64, by: i64) {
    TABLE.relocate(start, end, by);
}

pub(crate) fn insert(region: Region) {
    TABLE.insert(region);
}

fn insert_sorted(regions: &mut [Region; MAX_REGIONS], len: &mut usize, region: Region) {
    if *len == MAX_REGIONS {
        log::incomplete(
            INCOMPLETE_LIMIT,
            b"more PM mappings at once than the recorder can follow",
        );
        return;
    }
    let index = regions[..*len].partition_point(|r| r.start < region.start);
    regions.copy_within(index..*len, index + 1);
    regions[index] = region;
    *len += 1;
}

/// Each region there is now.
pub(crate) fn for_each(f: impl FnMut(Region)) {
    TABLE.for_each(f);
}

/// Keeps everyone from changing the table, for a fork.
pub(crate) fn lock() -> spin::Held<'static> {
    TABLE.writer.lock()
}

pub(crate) fn after_fork() {
    TABLE.writer.reset();
}

/// The locks of all lines in some ranges, held. At most one `LineLocks` at a time per thread.
pub(crate) struct LineLocks {
    session: &'static Session,
    indices: [u32; LineLocks::MOST],
    len: usize,
}

impl LineLocks {
    /// A page, or the largest XSAVE area, with room for crossing lines.
    pub(crate) const MOST: usize = 80;

    /// Locks the lines of the given (place, length) ranges, in ascending order of lock.
    pub(crate) fn take(session: &'static Session, ranges: impl Iterator<Item = (Place, u64)>) -> LineLocks {
        let mut locks = LineLocks {
            session,
            indices: [0; Self::MOST],
            len: 0,
        };
        for (Place { file, offset }, len) in ranges {
            for line in offset / LINE..=(offset + len.max(1) - 1) / LINE {
                let index = wire::lock_index(file, line) as u32;
                if locks.len < Self::MOST {
                    locks.indices[locks.len] = index;
                    locks.len += 1;
                }
            }
        }
        locks.sort();
        let me = log::logger().os_id;
        for &index in &locks.indices[..locks.len] {
            spin::acquire(&session.locks[index as usize], me);
        }
        locks
    }
}

impl LineLocks {
    /// In ascending order, each once.
    fn sort(&mut self) {
        let indices = &mut self.indices[..self.len];
        if !indices.is_sorted_by(|a, b| a < b) {
            indices.sort_unstable();
            let mut kept = 0;
            for i in 0..indices.len() {
                if kept == 0 || indices[kept - 1] != indices[i] {
                    indices[kept] = indices[i];
                    kept += 1;
                }
            }
            self.len = kept;
        }
    }
}

impl Drop for LineLocks {
    fn drop(&mut self) {
        for &index in &self.indices[..self.len] {
            spin::release(&self.session.locks[index as usize]);
        }
    }
}

/// Stores `data` at a view address through the alias, as the kernel would have (a system call's result), and logs it.
pub(crate) fn write(address: u64, data: &[u8], stack: u64) {
    let Some(session) = log::session() else { return };
    let mut done = 0;
    while done < data.len() {
        let at = address + done as u64;
        let _held = find(at).is_some_and(|r| r.registered).then(registered::hold);
        let Some(region) = find(at) else {
            // The rest of the buffer is ordinary memory behind the view.
            // SAFETY: the program gave this buffer to the kernel to write.
            unsafe { std::ptr::copy_nonoverlapping(data[done..].as_ptr(), at as *mut u8, data.len() - done) };
            return;
        };
        let room = (LINE - at % LINE).min(region.end - at) as usize;
        let piece = &data[done..data.len().min(done + room)];
        let place = region.place(at);
        let _locks = LineLocks::take(session, std::iter::once((place, piece.len() as u64)));
        // SAFETY: the alias of a mapped region; a file shorter than the mapping was checked by the caller's system call.
        unsafe {
            let alias = at.wrapping_add_signed(region.delta) as *mut u8;
            std::ptr::copy_nonoverlapping(piece.as_ptr(), alias, piece.len());
        }
        log::store(stack, place, STORE_SYSCALL, piece);
        done += piece.len();
    }
}

/// Sends what the resident pages of the region hold, page by page under their locks, for the recorder to compare.
pub(crate) fn verify(region: Region) {
    let Some(session) = log::session() else { return };
    if region.registered {
        registered::show(session, region, log::verify);
        return;
    }
    let alias = region.start.wrapping_add_signed(region.delta);
    let mut resident = [0u8; 1024];
    let pages = region.len() / PAGE;
    for first in (0..pages).step_by(resident.len()) {
        let n = (pages - first).min(resident.len() as u64);
        let from = alias + first * PAGE;
        // SAFETY: the alias is mapped; `resident` has a byte per page asked for.
        if unsafe {
            sys::syscall(
                libc::SYS_mincore,
                [from, n * PAGE, resident.as_mut_ptr() as u64, 0, 0, 0],
            )
        }
        .is_err()
        {
            return;
        }
        for page in (0..n).filter(|&p| resident[p as usize] & 1 == 1) {
            let offset = region.offset + (first + page) * PAGE;
            let place = Place {
                file: region.file,
                offset,
            };
            let _locks = LineLocks::take(session, std::iter::once((place, PAGE)));
            // SAFETY: resident pages are within the file, so reading them cannot raise SIGBUS.
            let content = unsafe { std::slice::from_raw_parts((from + page * PAGE) as *const u8, PAGE as usize) };
            log::verify(region.file, offset, content);
        }
    }
}
