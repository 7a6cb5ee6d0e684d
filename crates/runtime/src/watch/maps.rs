//! Mappings of PM files in a recovery program: placed where they were recorded, and closed until they are touched.

use super::{OPEN, pages};
use crate::files::{is_shared, page_up, reserve, reserve_view};
use crate::pm::{self, PAGE, Region};
use crate::{signals, sys};
use crashproof_wire::recovery::{self as wire, Recovery};
use libc::c_int;
use pages::{Full, Pages, TOUCHED, WRITTEN};
use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that were opened alone, with closed ones on both sides. Each costs the kernel two more mappings, of which a process
/// may have 65530 (`vm.max_map_count`), the program's own among them.
static ISLANDS: AtomicU32 = AtomicU32::new(0);
const MOST_ISLANDS: u32 = 16 << 10;

/// The PM file behind a descriptor: its index and its size.
pub(crate) fn file_of(recovery: &Recovery, fd: c_int) -> Option<(u32, u64)> {
    let status = sys::fstat(fd)?;
    let count = (recovery.file_count as usize).min(recovery.files.len());
    let file = recovery.files[..count]
        .iter()
        .position(|file| file.ino == status.st_ino && file.dev == status.st_dev)?;
    Some((file as u32, status.st_size as u64))
}

/// No mapping without a recorded address may take one that was.
pub(crate) fn keep_recorded_free(recovery: &Recovery) {
    for mapping in recorded(recovery) {
        pm::views_after(mapping.address + page_up(mapping.len));
    }
}

fn recorded(recovery: &Recovery) -> &[wire::Mapping] {
    &recovery.mappings[..(recovery.mapping_count as usize).min(recovery.mappings.len())]
}

pub(crate) fn unit_at(region: &Region, address: u64) -> u64 {
    wire::page_unit(region.file, region.offset + (address - region.start))
}

/// The protection of a page that has these notes.
fn protection(recovery: &Recovery, region: &Region, flags: u8) -> c_int {
    let asked = region.protection;
    if OPEN.load(Ordering::Relaxed) || asked == libc::PROT_NONE || recovery.track == wire::TRACK_NOTHING {
        asked
    } else if recovery.track == wire::TRACK_READS && flags & TOUCHED == 0 {
        libc::PROT_NONE
    } else if region.private || !region.writable() || flags & WRITTEN != 0 {
        asked
    } else {
        asked & !libc::PROT_WRITE | libc::PROT_READ
    }
}

fn protect(from: u64, to: u64, protection: c_int) -> Result<u64, i32> {
    // SAFETY: the protection of the program's own mapping, no more than it asked for.
    unsafe { sys::syscall(libc::SYS_mprotect, [from, to - from, protection as u64, 0, 0, 0]) }
}

/// Notes that the page at `address` is touched, and written if `write`, and opens it for that.
pub(crate) fn open_page(recovery: &Recovery, region: &Region, address: u64, write: bool) {
    let page = address & !(PAGE - 1);
    let unit = unit_at(region, page);
    let noted = Pages::with(recovery, |pages| {
        let known = pages.flags(unit);
        pages.touch(unit)?;
        if write && !region.private {
            pages.write(unit)?;
        }
        let flags = pages.flags(unit);
        let (file, offset, _) = wire::parse_unit(unit);
        let alone =
            |neighbour: Option<u64>| neighbour.is_none_or(|offset| pages.flags(wire::page_unit(file, offset)) != flags);
        if known != flags && alone(offset.checked_sub(PAGE)) && alone(offset.checked_add(PAGE)) {
            let islands = ISLANDS.fetch_add(1, Ordering::Relaxed);
            (islands < MOST_ISLANDS).then_some(()).ok_or(Full)?;
        }
        Ok(flags)
    });
    let opened = noted
        .map_err(|Full| libc::ENOMEM)
        .and_then(|flags| protect(page, page + PAGE, protection(recovery, region, flags)));
    if opened.is_err() {
        open_all();
    }
}

/// Opens a page of which only some lines are noted, for one instruction.
pub(crate) fn open_for_step(region: &Region, page: u64, write: bool) -> Result<u64, i32> {
    let less = if write || region.private { 0 } else { libc::PROT_WRITE };
    protect(page, page + PAGE, region.protection & !less | libc::PROT_READ)
}

pub(crate) fn close_after_step(page: u64) {
    // Where it fails the mappings of the process are too many: then nothing can be watched.
    if protect(page, page + PAGE, libc::PROT_NONE).is_err() {
        open_all();
    }
}

/// Opens every page of [address, address + len) that is PM: the kernel is going to use it.
pub(crate) fn open_range(recovery: &Recovery, address: u64, len: u64, write: bool) {
    if recovery.track == wire::TRACK_NOTHING {
        return;
    }
    let end = address.saturating_add(len);
    let mut from = address;
    while let Some(region) = pm::first_after(from).filter(|r| r.start < end) {
        let to = region.end.min(end);
        let mut page = region.start.max(from) & !(PAGE - 1);
        let write = write && region.writable();
        while page < to && region.protection != libc::PROT_NONE && !OPEN.load(Ordering::Relaxed) {
            open_page(recovery, &region, page, write);
            page += PAGE;
        }
        from = region.end;
    }
}

/// Gives up: everything gets what the program asked for.
pub(crate) fn open_all() {
    super::unwatched(wire::UNWATCHED_OVERFLOW);
    OPEN.store(true, Ordering::Relaxed);
    pm::for_each(|region| {
        let _ = protect(region.start, region.end, region.protection);
    });
}

fn closed(recovery: &Recovery, region: &Region) -> c_int {
    protection(recovery, region, 0)
}

/// The program's `mmap`.
pub(crate) fn mmap(
    recovery: &'static Recovery,
    address: u64,
    len: u64,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> Result<u64, i32> {
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: the program's own call, if need be with less protection.
    let map = |at: u64, protection: c_int, flags: c_int| unsafe { sys::mmap(at, len, protection, flags, fd, offset) };
    let anonymous = flags & libc::MAP_ANONYMOUS != 0;
    let Some((file, _)) = (!anonymous && fd >= 0).then(|| file_of(recovery, fd)).flatten() else {
        let mapped = map(address, protection, flags)?;
        if fixed == libc::MAP_FIXED {
            pm::remove(mapped, mapped + page_up(len), |_| {});
        }
        return Ok(mapped);
    };
    let mut region = Region {
        start: 0,
        end: 0,
        delta: 0,
        file,
        offset,
        protection,
        private: !is_shared(flags),
        registered: false,
    };
    if pm::is_full() || refused(fd, &region) {
        if pm::is_full() {
            open_all();
        }
        return map(address, protection, flags);
    }
    signals::reclaim();
    let closed = closed(recovery, &region);
    let mapped = if fixed != 0 {
        map(address, closed, flags)?
    } else {
        let at = place(recovery, &region, address, len)?;
        map(at, closed, flags | libc::MAP_FIXED).inspect_err(|_| {
            // SAFETY: the reservation was just made by `place`.
            let _ = unsafe { sys::syscall(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
        })?
    };
    (region.start, region.end) = (mapped, mapped + page_up(len));
    pm::remove(region.start, region.end, |_| {});
    pm::insert(region);
    // Also what is not closed yet: `mprotect` may open it for writing, which is what is watched.
    if recovery.track != wire::TRACK_NOTHING {
        super::calls::watch_range(region.start, region.end);
    }
    Ok(mapped)
}

/// Whether the kernel refuses the mapping for its protection, which the closed one would hide.
fn refused(fd: c_int, region: &Region) -> bool {
    // SAFETY: F_GETFL reads only.
    let mode = unsafe { sys::syscall(libc::SYS_fcntl, [fd as u64, libc::F_GETFL as u64, 0, 0, 0, 0]) };
    let mode = mode.unwrap_or(0) as c_int & libc::O_ACCMODE;
    mode == libc::O_WRONLY || (mode == libc::O_RDONLY && region.writable() && !region.private)
}

/// Reserves addresses: where the program hints, else where this part of the file was when it was recorded, else in the range
/// of views.
fn place(recovery: &Recovery, region: &Region, hint: u64, len: u64) -> Result<u64, i32> {
    let free = |at: u64| at != 0 && at.is_multiple_of(PAGE) && reserve(at, len).is_ok();
    if free(hint) {
        return Ok(hint);
    }
    let same = |m: &&wire::Mapping| m.file == region.file && m.offset == region.offset && free(m.address);
    if hint == 0
        && let Some(mapping) = recorded(recovery).iter().find(same)
    {
        return Ok(mapping.address);
    }
    reserve_view(len)
}

pub(crate) fn munmap(address: u64, len: u64) -> Result<u64, i32> {
    // SAFETY: the program's own call.
    let result = unsafe { sys::syscall(libc::SYS_munmap, [address, len, 0, 0, 0, 0]) }?;
    pm::remove(address, address + page_up(len), |_| {});
    Ok(result)
}

/// What is PM is closed again: its pages open without being noted anew.
pub(crate) fn mprotect(recovery: &Recovery, address: u64, len: u64, asked: c_int) -> Result<u64, i32> {
    let end = address.saturating_add(page_up(len));
    if !address.is_multiple_of(PAGE) || !pm::contains(address, end - address) {
        return protect(address, end, asked);
    }
    let mut from = address;
    while from < end {
        let next = pm::first_after(from);
        from = match next.filter(|r| r.start <= from) {
            Some(region) => {
                let to = region.end.min(end);
                let region = Region {
                    protection: asked & (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
                    ..region
                };
                // What the kernel refuses (the file is not open for writing) must be refused before anything is closed.
                protect(from, to, asked)?;
                pm::set_protection(from, to, region.protection);
                protect(from, to, closed(recovery, &region))?;
                to
            }
            None => {
                let to = next.map_or(end, |r| r.start.min(end));
                protect(from, to, asked)?;
                to
            }
        };
    }
    Ok(0)
}

pub(crate) fn mremap(
    recovery: &Recovery,
    old: u64,
    old_len: u64,
    new_len: u64,
    flags: c_int,
    new: u64,
) -> Result<u64, i32> {
    // SAFETY: the program's own call.
    let remap =
        |flags: c_int, to: u64| unsafe { sys::syscall(libc::SYS_mremap, [old, old_len, new_len, flags as u64, to, 0]) };
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let region = pm::find(old).filter(|r| old + old_len <= r.end);
    if let Some(region) = &region {
        // The kernel moves one mapping at a time: what was opened page by page must be one again.
        protect(region.start, region.end, closed(recovery, region))?;
    }
    let in_place = || remap(0, 0);
    let moved = match &region {
        Some(_) if !fixed && flags & libc::MREMAP_MAYMOVE != 0 && new_len > old_len && old_len > 0 => {
            // Kept in the range of views, wherever the kernel would have moved it.
            in_place().or_else(|_| {
                let fresh = reserve_view(new_len)?;
                remap(flags | libc::MREMAP_FIXED, fresh)
            })?
        }
        _ => remap(flags, new)?,
    };
    if fixed {
        pm::remove(moved, moved + new_len, |_| {});
    }
    let Some(region) = region else { return Ok(moved) };
    let stays = old_len == 0 || flags & libc::MREMAP_DONTUNMAP != 0;
    if !stays {
        pm::remove(old, old + old_len, |_| {});
    }
    let offset = region.offset + (old - region.start);
    let region = Region {
        start: moved,
        end: moved + new_len,
        offset,
        ..region
    };
    pm::insert(region);
    super::calls::watch_range(region.start, region.end);
    Ok(moved)
}
