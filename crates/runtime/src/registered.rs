//! Memory that the program registers as persistent by pmemcheck's request and that no PM file is behind: anonymous and
//! private mappings, the heap, static data.
//!
//! The pages that hold a registered range become views, with an alias, where they are. Private pages are copied to shared
//! memory, of which both are mappings; pages that are shared already (anonymous ones, a memfd) are mapped a second time. The ranges themselves are
//! [`Region`]s of [`pm`], byte by byte, each a file of its own in the trace. What is stored beside them, on the same pages, is
//! performed on the alias and not logged.
//!
//! Pages change while other threads store to them: a page is first made read-only, then copied, then replaced. A store that
//! faults meanwhile waits for [`STORES`], which everyone holds who stores to such a page or changes what is one.
//!
//! A forked child gets a copy, made before the fork, as it would of private memory; it is a file of its own there.

use crate::files::view_protection;
use crate::pm::{self, LineLocks, PAGE, Region, Table};
use crate::real::{Next, Resolve};
use crate::spin::{Held, Spin};
use crate::{files, log, signals, sys, syscalls, threads};
use crashproof_wire::{Session, record::*};
use libc::{c_int, c_void, size_t, ucontext_t};
use std::arch::naked_asm;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The pages that are views; their regions have no file.
static PAGES: Table = Table::new();
static STORES: Spin = Spin::new();
/// There have been such pages. A program without them pays for a load.
static EVER: AtomicBool = AtomicBool::new(false);
/// How often pages became ordinary memory again: a store that faulted before that must be tried again.
static RESTORED: AtomicU32 = AtomicU32::new(0);
/// Where the copies for a child are, and their length, while a fork is under way.
static FOR_CHILD: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Keeps the pages as they are, and other threads from storing to them. Signals are blocked.
pub(crate) fn hold() -> Held<'static> {
    STORES.lock_as(threads::current().os_id)
}

/// Whether the program has registered any memory.
pub(crate) fn any() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// The pages around `address`, if they are views.
pub(crate) fn find(address: u64) -> Option<Region> {
    if !any() {
        return None;
    }
    PAGES.find(address)
}

/// Whether some of [address, address + len) is on such a page.
pub(crate) fn contains(address: u64, len: u64) -> bool {
    any()
        && PAGES
            .first_after(address)
            .is_some_and(|pages| pages.start < address.saturating_add(len))
}

/// The end of the stretch at `address` that is such pages throughout, or not at all.
pub(crate) fn boundary(address: u64) -> u64 {
    match any().then(|| PAGES.first_after(address)).flatten() {
        Some(pages) if pages.start <= address => pages.end,
        Some(pages) => pages.start,
        None => u64::MAX,
    }
}

/// Whether the store that faulted must be tried again: the page has just become a view, or has just ceased to be one.
pub(crate) fn try_again(address: u64) -> bool {
    if !any() {
        return false;
    }
    drop(hold());
    if find(address).is_some_and(|pages| pages.writable()) {
        return true;
    }
    let restored = RESTORED.load(Ordering::Acquire);
    let state = threads::current();
    std::mem::replace(&mut state.restored, restored) != restored
}

/// Writes to memory of the program's that is not PM, and may not be there or not be writable. What is beside registered
/// memory is [held](hold).
pub(crate) fn write_beside(address: u64, data: &[u8]) -> bool {
    let mut done = 0;
    while done < data.len() {
        let at = address + done as u64;
        let n = ((boundary(at) - at) as usize).min(data.len() - done);
        let to = match find(at) {
            Some(pages) if !pages.writable() => return false,
            Some(pages) => at.wrapping_add_signed(pages.delta),
            None => at,
        };
        if !sys::write_memory(to, &data[done..done + n]) {
            return false;
        }
        done += n;
    }
    true
}

/// Tells the recorder that all of the registered memory has been sent: only then does it count as compared.
pub(crate) fn confirm_all() {
    pm::for_each(|region| {
        if region.registered {
            confirm(region.file);
        }
    });
}

fn confirm(file: u32) {
    log::verify(file, 0, &[]);
}

/// After an exec nothing of the memory is left to compare.
pub(crate) fn before_exec() {
    if log::session().is_none() || !any() || signals::in_vfork_child() {
        return;
    }
    sys::without_signals(|| {
        pm::for_each(|region| {
            if region.registered {
                pm::verify(region);
            }
        });
        confirm_all();
    });
}

/// Shows what the region holds, page by page with its lines locked. Pages without memory, which are zeros, are left out.
pub(crate) fn show(session: &'static Session, region: Region, show: impl Fn(u32, u64, &[u8])) {
    let mut from = region.start;
    while from < region.end {
        let to = region.end.min((from / PAGE + 1) * PAGE);
        let (place, alias) = (region.place(from), from.wrapping_add_signed(region.delta));
        let mut resident = 0u8;
        let arguments = [alias / PAGE * PAGE, PAGE, &raw mut resident as u64, 0, 0, 0];
        // SAFETY: the alias is mapped; there is a byte for its page.
        let known = unsafe { sys::syscall(libc::SYS_mincore, arguments) }.is_ok();
        if known && resident & 1 == 1 {
            let _locks = LineLocks::take(session, std::iter::once((place, to - from)));
            // SAFETY: the region's alias is mapped.
            let content = unsafe { std::slice::from_raw_parts(alias as *const u8, (to - from) as usize) };
            show(region.file, place.offset, content);
        }
        from = to;
    }
}

// --- Registering ----------------------------------------------------------------------------------------------------

/// A mapping of the program's.
#[derive(Clone, Copy, Default)]
struct Memory {
    start: u64,
    end: u64,
    protection: c_int,
    shared: bool,
    special: bool,
    stack: bool,
    dev: u64,
    ino: u64,
    offset: u64,
}

const MOST_MAPPINGS: usize = 64;

/// The mappings that hold some of [low, high); `None`: too many.
fn mappings(low: u64, high: u64) -> Option<([Memory; MOST_MAPPINGS], usize)> {
    let mut found = [Memory::default(); MOST_MAPPINGS];
    let mut count = 0;
    sys::for_each_mapping(|mapping| {
        if mapping.start >= high || mapping.end <= low {
            return;
        }
        if let Some(place) = found.get_mut(count) {
            *place = Memory {
                start: mapping.start,
                end: mapping.end,
                protection: mapping.protection(),
                shared: mapping.is_shared(),
                special: mapping.path.starts_with(b"[v"),
                stack: mapping.path == b"[stack]",
                dev: mapping.dev,
                ino: mapping.ino,
                offset: mapping.offset,
            };
        }
        count += 1;
    });
    (count <= MOST_MAPPINGS).then_some((found, count))
}

/// The program says that [start, start + len) is persistent. What is PM already stays what it is.
pub(crate) fn register(uc: &ucontext_t, start: u64, len: u64) {
    let (Some(session), Some(end)) = (log::session(), start.checked_add(len)) else {
        return;
    };
    let stack_pointer = uc.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
    let stack = log::stack_of(uc);
    let _held = hold();
    let mut from = start;
    while from < end {
        let next = pm::first_after(from);
        let to = next.map_or(end, |r| r.start.min(end));
        if from < to {
            add(session, from, to, stack, stack_pointer);
        }
        from = next.map_or(end, |r| r.end);
    }
}

/// Says why registered memory is not in the trace.
fn refuse(why: &[u8]) {
    let parts: [&[u8]; 2] = [
        b"memory that the program registered as persistent is not recorded: ",
        why,
    ];
    let mut text = [0u8; 256];
    let mut len = 0;
    for part in parts {
        text[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    log::incomplete(INCOMPLETE_UNSUPPORTED, &text[..len]);
}

/// Registers [from, to), of which nothing is PM. [`STORES`] is held.
fn add(session: &'static Session, from: u64, to: u64, stack: u64, stack_pointer: u64) {
    let (low, high) = (from / PAGE * PAGE, to.next_multiple_of(PAGE));
    let Some((found, count)) = mappings(low, high) else {
        return refuse(b"it spans too many mappings");
    };
    let mut at = from;
    for memory in &found[..count] {
        if memory.start > at {
            refuse(b"some of it is not mapped");
        }
        let (first, last) = (memory.start.max(from), memory.end.min(to));
        at = last;
        let pages = (memory.start.max(low), memory.end.min(high));
        let stack_of_thread = memory.stack
            || (pages.0..pages.1).contains(&stack_pointer)
            || threads::is_stack(pages.0, pages.1, memory.start..memory.end);
        if stack_of_thread {
            refuse(b"it is on the stack of a running thread");
        } else if memory.special || view_protection(memory.protection) & libc::PROT_READ == 0 {
            refuse(b"it cannot be read");
        } else if PAGES.is_full() || pm::is_full() {
            return refuse(b"there are more such ranges at once than the recorder can follow");
        } else if let Err(why) = protect_all(memory, pages.0, pages.1) {
            refuse(why);
        } else {
            add_regions(session, memory, first, last, stack);
        }
    }
    if at < to {
        refuse(b"some of it is not mapped");
    }
}

/// Makes views of those pages in [low, high) that are not.
fn protect_all(memory: &Memory, low: u64, high: u64) -> Result<(), &'static [u8]> {
    let mut from = low;
    while from < high {
        let next = PAGES.first_after(from).filter(|pages| pages.start < high);
        let to = next.map_or(high, |pages| pages.start);
        if from < to {
            protect(memory, from, to)?;
        }
        from = next.map_or(high, |pages| pages.end);
    }
    Ok(())
}

const NO_MEMORY: &[u8] = b"there is no memory for a second mapping of it";

fn protect(memory: &Memory, start: u64, end: u64) -> Result<(), &'static [u8]> {
    let len = end - start;
    let view = view_protection(memory.protection);
    let alias = pm::new_alias(len).ok_or(NO_MEMORY)?;
    begin_to_look();
    if memory.shared {
        duplicate(start, len, alias).map_err(|_| NO_MEMORY)?;
        let made =
            protection(alias, len, libc::PROT_READ | libc::PROT_WRITE).and_then(|_| protection(start, len, view));
        if made.is_err() {
            unmap(alias, len);
            return Err(b"a second, writable mapping of it is not allowed");
        }
    } else {
        shared_memory(alias, len).map_err(|_| NO_MEMORY)?;
        let made = protection(start, len, view).and_then(|_| {
            copy(start, alias, len);
            map_view(alias, len, view, start)
        });
        if made.is_err() {
            let _ = protection(start, len, memory.protection);
            unmap(alias, len);
            return Err(NO_MEMORY);
        }
    }
    PAGES.insert(Region {
        start,
        end,
        delta: alias.wrapping_sub(start) as i64,
        file: NONE,
        offset: 0,
        protection: memory.protection,
        private: !memory.shared,
        registered: true,
    });
    // All of the mapping, so that many ranges of one heap take one filter.
    syscalls::add_view_range(memory.start, memory.end);
    Ok(())
}

/// Sets the protection of an alias, or of the program's pages: to what it asked for, or less.
fn protection(start: u64, len: u64, protection: c_int) -> Result<u64, i32> {
    // SAFETY: see above.
    unsafe { sys::syscall(libc::SYS_mprotect, [start, len, protection as u64, 0, 0, 0]) }
}

/// Fresh memory that can be mapped more than once, at a free address; 0: of the kernel's choice. It needs no descriptor.
fn shared_memory(at: u64, len: u64) -> Result<u64, i32> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: replaces nothing.
    unsafe { sys::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
}

/// Maps the pages of a shared mapping once more, at `to`; 0: where the kernel likes.
fn duplicate(from: u64, len: u64, to: u64) -> Result<u64, i32> {
    let fixed = if to == 0 { 0 } else { libc::MREMAP_FIXED };
    let flags = (libc::MREMAP_MAYMOVE | fixed) as u64;
    // SAFETY: with a length of 0 nothing is moved; `to` is an address for an alias.
    unsafe { sys::syscall(libc::SYS_mremap, [from, 0, len, flags, to, 0]) }
}

/// Puts a view of an alias in the place of the program's pages, of which the alias has the content. It is never writable.
fn map_view(alias: u64, len: u64, view: c_int, to: u64) -> Result<u64, i32> {
    let made = duplicate(alias, len, 0)?;
    let moved = protection(made, len, view).and_then(|_| replace(made, len, to));
    moved.inspect_err(|_| unmap(made, len))
}

/// Moves a mapping of ours to the place of another.
fn replace(from: u64, len: u64, to: u64) -> Result<u64, i32> {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    // SAFETY: what is replaced has the same content.
    unsafe { sys::syscall(libc::SYS_mremap, [from, len, len, flags, to, 0]) }
}

fn unmap(at: u64, len: u64) {
    // SAFETY: a mapping of ours.
    let _ = unsafe { sys::syscall(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) };
}

/// Copies pages, those of zeros excepted, to fresh memory. A page that cannot be read is one of zeros.
fn copy(from: u64, to: u64, len: u64) {
    let mut page = [0u8; PAGE as usize];
    for offset in (0..len).step_by(PAGE as usize) {
        if sys::read_memory(from + offset, &mut page) && page.iter().any(|&b| b != 0) {
            // SAFETY: fresh memory of ours, as long as what is copied.
            unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), (to + offset) as *mut u8, page.len()) };
        }
    }
}

/// [first, last), whose pages are views: a file for it, its content, and where it is mapped.
fn add_regions(session: &'static Session, memory: &Memory, first: u64, last: u64, stack: u64) {
    let low = first / PAGE * PAGE;
    // Shared memory is the same for all who have it; private memory is of this process.
    let (added, base) = if memory.shared {
        let size = memory.offset + (memory.end - memory.start);
        let added = files::add_memory(session, memory.dev, memory.ino, 0, size);
        (added, low - memory.start + memory.offset)
    } else {
        (private_file(session, first, last), 0)
    };
    let Some((file, fresh)) = added else {
        // libpmemobj registers a word of its own for a moment, to see whether pmemcheck is there.
        if session.options.pattern_count > 0 && last - first > size_of::<u64>() as u64 {
            log::left_out(
                LEFT_OUT_NOT_SELECTED,
                0,
                crashproof_wire::REGISTERED_MEMORY.trim_end().as_bytes(),
            );
        }
        return;
    };
    let mut from = first;
    while let Some(pages) = PAGES.find(from).filter(|_| from < last) {
        let to = pages.end.min(last);
        let region = Region {
            start: from,
            end: to,
            file,
            offset: base + (from - low),
            ..pages
        };
        begin(session, stack, region, fresh);
        from = to;
    }
}

/// The file that stands for private memory of this process, and whether it is new.
fn private_file(session: &'static Session, first: u64, last: u64) -> Option<(u32, bool)> {
    let born = (log::process() as u64) << 32 | (last - first) & 0xffff_ffff;
    // No device has this number.
    files::add_memory(session, u64::MAX, first, born, last - first / PAGE * PAGE)
}

fn begin(session: &'static Session, stack: u64, region: Region, fresh: bool) {
    session.files[region.file as usize]
        .mappings
        .fetch_add(1, Ordering::AcqRel);
    // The recorder takes a new file to be zeros.
    let initial = |file: u32, offset: u64, content: &[u8]| {
        if content.iter().any(|&b| b != 0) || !fresh {
            log::initial(file, offset, content);
        }
    };
    show(session, region, initial);
    log::map(
        stack,
        region.file,
        region.start,
        region.offset,
        region.len(),
        region.protection,
    );
    pm::insert(region);
}

// --- Restoring ------------------------------------------------------------------------------------------------------

/// The program says that [start, start + len) is not persistent any more, or gives it back.
pub(crate) fn unregister(stack: u64, start: u64, len: u64) {
    let end = start.saturating_add(len);
    if !contains(start, len) {
        return;
    }
    let _held = hold();
    end_regions(stack, start, end);
    let (mut from, end) = (
        start / PAGE * PAGE,
        end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
    );
    while let Some(pages) = PAGES.first_after(from).filter(|pages| pages.start < end) {
        // Up to the next page that another range is on.
        let first = pages.start.max(from);
        let kept = pm::first_after(first).filter(|r| r.registered && r.start < pages.end.min(end));
        let to = kept.map_or(pages.end.min(end), |r| (r.start / PAGE * PAGE).max(first));
        if first < to {
            restore(first, to);
        }
        from = kept.map_or(to, |r| r.end.next_multiple_of(PAGE).min(pages.end));
    }
}

fn end_regions(stack: u64, start: u64, end: u64) {
    let mut from = start;
    while let Some(region) = pm::first_after(from).filter(|r| r.start < end) {
        if region.registered {
            pm::remove(region.start.max(start), region.end.min(end), |piece| {
                pm::verify(piece);
                log::unmap(stack, piece.file, piece.offset, piece.len());
                if let Some(session) = log::session() {
                    session.files[piece.file as usize]
                        .mappings
                        .fetch_sub(1, Ordering::AcqRel);
                }
            });
            let mut left = false;
            pm::for_each(|other| left |= other.file == region.file);
            if !left {
                confirm(region.file);
            }
        }
        from = region.end;
    }
}

/// Makes views ordinary memory again, with what they hold.
fn restore(start: u64, end: u64) {
    PAGES.change(start, end, |pages| {
        let (len, alias) = (pages.len(), pages.start.wrapping_add_signed(pages.delta));
        let restored = match pages.private {
            true => restore_private(&pages, alias),
            false => protection(pages.start, len, pages.protection),
        };
        if restored.is_err() {
            sys::fail(b"no memory to give registered memory back to the program");
        }
        unmap(alias, len);
        None
    });
    RESTORED.fetch_add(1, Ordering::AcqRel);
}

fn restore_private(pages: &Region, alias: u64) -> Result<u64, i32> {
    let len = pages.len();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let fresh = unsafe { sys::mmap(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }?;
    copy(alias, fresh, len);
    protection(fresh, len, pages.protection)?;
    replace(fresh, len, pages.start)
}

/// The program unmaps [start, end), or maps something else there: what was registered is gone. The pages are page-aligned.
pub(crate) fn forget(stack: u64, start: u64, end: u64) {
    if !contains(start, end - start) {
        return;
    }
    let _held = hold();
    end_regions(stack, start, end);
    PAGES.change(start, end, |pages| {
        unmap(pages.start.wrapping_add_signed(pages.delta), pages.len());
        None
    });
    RESTORED.fetch_add(1, Ordering::AcqRel);
}

pub(crate) fn set_protection(start: u64, end: u64, protection: c_int) {
    if contains(start, end - start) {
        let _held = hold();
        PAGES.change(start, end, |pages| Some(Region { protection, ..pages }));
    }
}

// --- Moving ---------------------------------------------------------------------------------------------------------

/// `mremap` of memory some of which is registered. Views are mappings of their own, so it is done piece by piece; what is
/// registered stays so, at its new place. The lengths are of whole pages. What is grown by is not registered.
pub(crate) fn remap(start: u64, old_len: u64, new_len: u64, flags: c_int, new: u64) -> Result<u64, i32> {
    const MOVING: c_int = libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    let (fixed, stays) = (flags & libc::MREMAP_FIXED != 0, flags & libc::MREMAP_DONTUNMAP != 0);
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let (end, new_end) = (start.checked_add(old_len), new.checked_add(new_len));
    let (Some(end), Some(new_end)) = (end, new_end) else {
        return Err(libc::EINVAL);
    };
    if flags & !(libc::MREMAP_MAYMOVE | MOVING) != 0
        || flags & MOVING != 0 && !may_move
        || stays && old_len != new_len
        || !start.is_multiple_of(PAGE)
        || new_len == 0
        || fixed && (!new.is_multiple_of(PAGE) || new < end && start < new_end)
    {
        return Err(libc::EINVAL);
    }
    if old_len == 0 {
        return map_again(start, new_len, flags, new);
    }
    let (found, count) = mappings(start, end).ok_or(libc::ENOMEM)?;
    let mut covered = start;
    for memory in &found[..count] {
        if memory.start > covered {
            return Err(libc::EFAULT);
        }
        covered = memory.end;
    }
    if covered < end {
        return Err(libc::EFAULT);
    }
    // The kernel unmaps what is too much first.
    let kept_end = end.min(start + new_len);
    if kept_end < end {
        forget(log::stack_here(), kept_end, end);
        unmap(kept_end, end - kept_end);
    }
    if flags & MOVING == 0 && new_len <= old_len {
        return Ok(start);
    }
    let more = (start + new_len).saturating_sub(end);
    if flags & MOVING == 0 {
        let _held = hold();
        match grow(end, more) {
            Err(libc::ENOMEM | libc::EEXIST) if may_move => {}
            Err(libc::EEXIST) => return Err(libc::ENOMEM),
            done => return done.map(|()| start),
        }
    }
    let to = if fixed {
        files::forget(new, new_end);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the program replaces what is there.
        unsafe { sys::mmap(new, new_len, libc::PROT_NONE, flags, -1, 0) }?
    } else {
        files::reserve(0, new_len)?
    };
    let _held = hold();
    for memory in found[..count].iter().filter(|memory| memory.start < kept_end) {
        let (from, until) = (memory.start.max(start), memory.end.min(kept_end));
        let last = until == kept_end;
        if shift(from, until, to + (from - start), if last { more } else { 0 }, stays).is_err() {
            sys::fail(b"no memory to move registered memory as the program asked");
        }
    }
    relocate(start, kept_end, to, stays);
    syscalls::add_view_range(to, to + new_len);
    Ok(to)
}

/// Maps so much more memory at `end`, of the kind that is before it. [`STORES`] is held.
fn grow(end: u64, more: u64) -> Result<(), i32> {
    let last = end - PAGE;
    match PAGES.find(last) {
        Some(pages) if pages.private => anonymous(end, more, pages.protection, libc::MAP_FIXED_NOREPLACE),
        pages => {
            // SAFETY: the program's own call, for the last page of its memory.
            unsafe { sys::syscall(libc::SYS_mremap, [last, PAGE, PAGE + more, 0, 0, 0]) }?;
            pages.map_or(Ok(()), |pages| protection(end, more, pages.protection).map(drop))
        }
    }
}

/// Moves one mapping to reserved addresses, and makes it so much longer.
fn shift(from: u64, until: u64, to: u64, more: u64, stays: bool) -> Result<(), i32> {
    let len = until - from;
    let pages = PAGES.find(until - PAGE);
    let private = pages.is_some_and(|pages| pages.private);
    let by_kernel = if private { 0 } else { more };
    let stay = if stays { libc::MREMAP_DONTUNMAP } else { 0 };
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | stay) as u64;
    // SAFETY: the program's own call, to addresses that are reserved for it.
    unsafe { sys::syscall(libc::SYS_mremap, [from, len, len + by_kernel, flags, to, 0]) }?;
    match pages {
        Some(pages) if more > 0 && private => anonymous(to + len, more, pages.protection, libc::MAP_FIXED),
        Some(pages) if more > 0 => protection(to + len, more, pages.protection).map(drop),
        _ => Ok(()),
    }
}

/// Fresh memory of the program's.
fn anonymous(at: u64, len: u64, protection: c_int, fixed: c_int) -> Result<(), i32> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: the program asked for memory here.
    unsafe { sys::mmap(at, len, protection, flags, -1, 0) }.map(drop)
}

/// The views in [start, end) are at `to` now. [`STORES`] is held.
fn relocate(start: u64, end: u64, to: u64, stays: bool) {
    let by = to.wrapping_sub(start) as i64;
    if stays && leave_behind(start, end, by) {
        return;
    }
    let stack = log::stack_here();
    let mut from = start;
    while let Some(region) = pm::first_after(from).filter(|r| r.start < end) {
        let (first, last) = (region.start.max(start), region.end.min(end));
        let (offset, len) = (region.place(first).offset, last - first);
        // In this order, so that it is never seen unmapped: it need not be durable by now.
        log::map(
            stack,
            region.file,
            first.wrapping_add_signed(by),
            offset,
            len,
            region.protection,
        );
        log::unmap(stack, region.file, offset, len);
        if let (true, Some(session)) = (region.private, log::session()) {
            // What is registered at the old address from now on is something else.
            let slot = &session.files[region.file as usize];
            slot.ino.store(u64::MAX - region.file as u64, Ordering::Relaxed);
        }
        from = last;
    }
    PAGES.relocate(start, end, by);
    pm::relocate(start, end, by);
    RESTORED.fetch_add(1, Ordering::AcqRel);
}

/// With `MREMAP_DONTUNMAP`: private memory leaves zeros behind, which are not registered. Shared memory is the same at both places, of
/// which only the old one is recorded; true.
fn leave_behind(start: u64, end: u64, by: i64) -> bool {
    let mut shared = false;
    let mut from = start;
    while let Some(pages) = PAGES.first_after(from).filter(|pages| pages.start < end) {
        let (first, last) = (pages.start.max(start), pages.end.min(end));
        let done = if pages.private {
            anonymous(first, last - first, pages.protection, libc::MAP_FIXED)
        } else {
            shared = true;
            protection(first.wrapping_add_signed(by), last - first, pages.protection).map(drop)
        };
        if done.is_err() {
            sys::fail(b"no memory to move registered memory as the program asked");
        }
        from = last;
    }
    refuse(match shared {
        true => b"it was mapped once more by mremap",
        false => b"mremap left it mapped where it was, too",
    });
    shared
}

/// Shared memory, of which `mremap` with a length of 0 makes another mapping.
fn map_again(start: u64, len: u64, flags: c_int, new: u64) -> Result<u64, i32> {
    let Some(pages) = find(start).filter(|pages| !pages.private) else {
        return Err(libc::EINVAL);
    };
    if flags & libc::MREMAP_FIXED != 0 {
        files::forget(new, new + len);
    }
    // SAFETY: the program's own call.
    let made = unsafe { sys::syscall(libc::SYS_mremap, [start, 0, len, flags as u64, new, 0]) }?;
    protection(made, len, pages.protection)?;
    refuse(b"it was mapped once more by mremap");
    Ok(made)
}

// --- Giving memory back ---------------------------------------------------------------------------------------------

type Free = unsafe extern "C" fn(*mut c_void);
type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;

// SAFETY: each with the type that libc's headers declare.
static NEXT_FREE: Next<Free> = unsafe { Next::new(c"free") };
// SAFETY: as above.
static NEXT_REALLOC: Next<Realloc> = unsafe { Next::new(c"realloc") };

/// Where [`free`] and [`realloc`] jump to: the allocator's own, until memory is registered. Programs call them too often for more than a jump.
static FREE: AtomicPtr<()> = AtomicPtr::new(giving_free as *mut ());
static REALLOC: AtomicPtr<()> = AtomicPtr::new(giving_realloc as *mut ());

/// Looks up the allocator's functions.
pub(crate) fn resolve() {
    NEXT_FREE.resolve();
    NEXT_REALLOC.resolve();
    if !any() {
        FREE.store(NEXT_FREE.get() as *mut (), Ordering::Relaxed);
        REALLOC.store(NEXT_REALLOC.get() as *mut (), Ordering::Relaxed);
    }
}

/// There is registered memory, or is about to be.
fn begin_to_look() {
    if !EVER.swap(true, Ordering::Release) {
        FREE.store(giving_free as *mut (), Ordering::Release);
        REALLOC.store(giving_realloc as *mut (), Ordering::Release);
    }
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn free() {
    naked_asm!("jmp qword ptr [rip + {target}]", target = sym FREE)
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn realloc() {
    naked_asm!("jmp qword ptr [rip + {target}]", target = sym REALLOC)
}

unsafe extern "C" {
    fn malloc_usable_size(block: *mut c_void) -> size_t;
}

/// The bytes of a block of the allocator's with registered memory in it.
fn registered_block(block: *mut c_void) -> Option<u64> {
    if !any() || block.is_null() {
        return None;
    }
    // SAFETY: a block that the program is about to give back.
    let size = unsafe { malloc_usable_size(block) } as u64;
    contains(block as u64, size).then_some(size)
}

/// A block that the program gives back is not persistent any more.
unsafe extern "C" fn giving_free(block: *mut c_void) {
    if let Some(size) = registered_block(block) {
        sys::without_signals(|| unregister(log::stack_here(), block as u64, size));
    }
    // Before the first constructor has run, the loader may come here: nothing is lost but the memory.
    if let Some(next) = NEXT_FREE.known() {
        // SAFETY: the program's own call.
        unsafe { next(block) }
    }
}

/// A block with registered memory stays, or is copied to a new one, which is ordinary memory: the allocator itself may
/// move its pages.
unsafe extern "C" fn giving_realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    match registered_block(block) {
        Some(old) if size as u64 <= old && size > 0 => block,
        // SAFETY: blocks of the program's allocator, of at least these sizes.
        Some(old) if size > 0 => unsafe {
            let fresh = libc::malloc(size);
            if !fresh.is_null() {
                std::ptr::copy_nonoverlapping(block.cast::<u8>(), fresh.cast(), old as usize);
                giving_free(block);
            }
            fresh
        },
        // SAFETY: the program's own call; a size of 0 gives the block back.
        _ => unsafe {
            if let Some(size) = registered_block(block) {
                sys::without_signals(|| unregister(log::stack_here(), block as u64, size));
            }
            NEXT_REALLOC.get()(block, size)
        },
    }
}

// --- Forking --------------------------------------------------------------------------------------------------------

/// Before a fork: copies the private pages for the child. They stay as they are until [`after_fork_in_parent`].
pub(crate) fn before_fork() {
    STORES.lock().leave_locked();
    let mut total = 0;
    for_each_private(|pages| total += pages.len());
    if total == 0 {
        return;
    }
    // Without memory for it there would be none for the child, either: `after_fork_in_child` says so.
    let Ok(copies) = shared_memory(0, total) else { return };
    let mut at = copies;
    for_each_private(|pages| {
        copy(pages.start, at, pages.len());
        at += pages.len();
    });
    FOR_CHILD[0].store(copies, Ordering::Relaxed);
    FOR_CHILD[1].store(total, Ordering::Relaxed);
}

fn for_each_private(mut f: impl FnMut(Region)) {
    PAGES.for_each(|pages| {
        if pages.private {
            f(pages)
        }
    });
}

pub(crate) fn after_fork_in_parent() {
    let [copies, total] = [0, 1].map(|i| FOR_CHILD[i].swap(0, Ordering::Relaxed));
    if total > 0 {
        unmap(copies, total);
    }
    STORES.reset();
}

/// In the child: its pages are the copies, and what is registered there is its own.
pub(crate) fn after_fork_in_child() {
    let mut at = FOR_CHILD[0].load(Ordering::Relaxed);
    let mut mapped = true;
    for_each_private(|pages| {
        let (len, alias) = (pages.len(), pages.start.wrapping_add_signed(pages.delta));
        let view = view_protection(pages.protection);
        mapped &= at != 0 && duplicate(at, len, alias).is_ok() && map_view(alias, len, view, pages.start).is_ok();
        at += len;
    });
    if !mapped {
        sys::fail(b"no memory for the child's copy of registered memory");
    }
    after_fork_in_parent();
}

/// In the child, which is a process of the trace by now: announces what it has.
pub(crate) fn announce_in_child() {
    let Some(session) = log::session() else { return };
    let mut from = 0;
    while let Some(region) = pm::first_after(from) {
        from = region.end;
        if !(region.registered && region.private) {
            continue;
        }
        let Some((file, fresh)) = private_file(session, region.start, region.end) else {
            continue;
        };
        pm::remove(region.start, region.end, |_| {});
        log::unmap(0, region.file, region.offset, region.len());
        let region = Region {
            file,
            offset: region.start % PAGE,
            ..region
        };
        begin(session, 0, region, fresh);
    }
}
