//! All lines of all PM files, laid out for one fast pass over a long trace.
//!
//! - A fence costs a counter: each thread counts its fences, a line notes at which count a thread touched it, and the
//!   fences that have passed since are applied when the line is looked at next. Nothing happens to a line in between, so
//!   the result is that of applying them at once.
//!   Only the few lines that its thread touched last are looked at by the fence itself, while they are in the cache.
//! - A line has state only while it may hold a store that is not persistent. Of other lines three bits remain: stored to,
//!   ever persisted, shared between threads. A sweep, run whenever there are too many lines with state, finds those that
//!   have become persistent unseen, and packs the rest ([`crate::packed`]). A line is unpacked when it is looked at, and not
//!   with its page: a program that stores all over a large file touches one line of a page, and the next page.
//! - Lines are found through tables of a page each, with a small direct-mapped cache before the hash map.

use crashproof_base::{LINE, LineAddress};
use rustc_hash::FxHashMap;

use crate::line::{Flush, Keep, Line, Store, Tag, Thread};
use crate::packed::{Packed, PackedPage, States};
use crate::{Bytes, Model, pieces};

/// A store that was not persistent when its line was [drained](Memory::drain).
#[derive(Debug)]
pub struct Unpersisted<'a, T: Tag> {
    /// The line.
    pub at: LineAddress,
    /// The store.
    pub store: &'a Store<T>,
    /// Where it was flushed, if a thread has it pending.
    pub flushed: Option<T::Site>,
    /// Whether any store to the line has been persisted since the line was first stored to.
    pub line_persisted: bool,
}

const PAGE_LINES: u64 = 64;
const PAGE_BYTES: u64 = PAGE_LINES * LINE;
const CHUNK_PAGES: u64 = 512;
const CACHE: usize = 1024;

/// How much is kept at hand before a sweep. Results do not depend on it: tests make it small, to see that.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Lines with state.
    pub lines: usize,
    /// Tables of pages.
    pub pages: usize,
    /// Remembered fences.
    pub fences: usize,
}

const LIMITS: Limits = Limits {
    lines: 1 << 16,
    pages: 1 << 14,
    fences: 1 << 20,
};
/// So many of the lines that a thread touched are settled by its fence.
const RECENT: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PageAddress {
    pub file: u32,
    pub page: u64,
}

impl PageAddress {
    fn of(at: LineAddress) -> (PageAddress, usize) {
        (
            PageAddress {
                file: at.file,
                page: at.line / PAGE_LINES,
            },
            (at.line % PAGE_LINES) as usize,
        )
    }

    fn line(self, index: usize) -> LineAddress {
        LineAddress {
            file: self.file,
            line: self.page * PAGE_LINES + index as u64,
        }
    }

    fn cache_index(self) -> usize {
        (self.page as usize ^ (self.file as usize).wrapping_mul(0x9e37)) % CACHE
    }
}

/// Bit n: of the page's line n.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Past {
    modified: u64,
    persisted: u64,
    /// Another thread than the storing one has once overwritten or flushed a store.
    shared: u64,
}

struct Page {
    at: PageAddress,
    past: Past,
    /// Bit n: line n has state.
    active: u64,
    /// Bit n: and it is packed still.
    packed: u64,
    /// Of those that have: index in `Memory::lines`, or which state it is in `Memory::packed`.
    lines: [u32; PAGE_LINES as usize],
}

/// A thread that touched a line when it had fenced `fences` times.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Touched {
    thread: Thread,
    fences: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct LineState<T: Tag> {
    line: Line<T>,
    touched: Vec<Touched>,
    /// A fence persisted something of it; only while it is packed, else the page knows.
    persisted: bool,
}

impl<T: Tag> Default for LineState<T> {
    fn default() -> Self {
        LineState {
            line: Line::default(),
            touched: Vec::new(),
            persisted: false,
        }
    }
}

struct ThreadState<S> {
    fences: u64,
    /// Sites of the last fences, as far back as a line may need them.
    sites: Vec<S>,
    /// Page and index of lines touched since the last fence, the first few.
    recent: Vec<(u32, u8)>,
}

impl<S> Default for ThreadState<S> {
    fn default() -> Self {
        ThreadState {
            fences: 0,
            sites: Vec::new(),
            recent: Vec::new(),
        }
    }
}

impl<S: Copy> ThreadState<S> {
    /// Site of the first fence after `fences` of them, if there was one.
    fn fence_after(&self, fences: u64) -> Option<S> {
        let passed = usize::try_from(self.fences - fences).ok()?;
        self.sites
            .len()
            .checked_sub(passed)
            .and_then(|index| self.sites.get(index))
            .copied()
    }
}

/// All lines of all files.
pub struct Memory<T: Tag> {
    model: Model,
    keep: Keep,
    limits: Limits,
    page_index: FxHashMap<PageAddress, u32>,
    cache: Box<[(PageAddress, u32)]>,
    pages: Vec<Page>,
    lines: Vec<LineState<T>>,
    free_lines: Vec<u32>,
    threads: Vec<ThreadState<T::Site>>,
    /// Syncs that are under way: of which thread, and the lines that were stored to since it began.
    syncs: Vec<(Thread, Vec<LineAddress>)>,
    logged_fences: usize,
    /// The bits of pages that have no table.
    past: FxHashMap<PageAddress, Box<[Past; CHUNK_PAGES as usize]>>,
    packed: Packed<LineState<T>>,
}

impl<T: Tag> Memory<T> {
    /// Memory in which everything is persistent.
    pub fn new(model: Model, keep: Keep) -> Self {
        Memory::with_limits(model, keep, LIMITS)
    }

    /// As [`Memory::new`], with limits of one's own.
    pub fn with_limits(model: Model, keep: Keep, limits: Limits) -> Self {
        Memory {
            model,
            keep,
            limits,
            page_index: FxHashMap::default(),
            cache: vec![(PageAddress { file: 0, page: 0 }, u32::MAX); CACHE].into(),
            pages: Vec::new(),
            lines: Vec::new(),
            free_lines: Vec::new(),
            threads: Vec::new(),
            syncs: Vec::new(),
            logged_fences: 0,
            past: FxHashMap::default(),
            packed: Packed::default(),
        }
    }

    /// A locked read-modify-write is a [`Memory::fence`] followed by a store.
    pub fn store(&mut self, at: LineAddress, store: Store<T>) {
        let (page, index) = self.page(at);
        let past = &mut self.pages[page].past;
        past.modified |= 1 << index;
        let thread = store.thread;
        let persistent = self.model == Model::Eadr && !store.nontemporal;
        if persistent {
            past.persisted |= 1 << index;
            if self.pages[page].active & 1 << index == 0 {
                return;
            }
        }
        let slot = self.settled_or_new(page, index);
        let state = &mut self.lines[slot];
        if !self.syncs.is_empty() {
            for (sync, lines) in &mut self.syncs {
                if state.line.begin_sync(*sync) {
                    lines.push(at);
                }
            }
        }
        state.line.store(self.model, self.keep, store);
        touch(&mut state.touched, thread, &mut self.threads, page, index);
        self.note_shared(page, index);
    }

    /// A flush of the line: `clflush` if `at_once`, else `clwb` or `clflushopt`.
    pub fn flush(&mut self, at: LineAddress, thread: Thread, at_once: bool, site: T::Site) -> Flush<T::Site> {
        let (page, index) = self.page(at);
        if self.pages[page].past.modified & 1 << index == 0 {
            return Flush::Unmodified;
        }
        let outcome = match self.settled(page, index) {
            None => Flush::Clean,
            Some(slot) if at_once => {
                let outcome = self.lines[slot].line.flush_now(thread, site);
                if !matches!(outcome, Flush::Clean) {
                    self.pages[page].past.persisted |= 1 << index;
                }
                self.free_if_clean(page, index);
                outcome
            }
            Some(slot) => {
                let state = &mut self.lines[slot];
                touch(&mut state.touched, thread, &mut self.threads, page, index);
                let outcome = state.line.flush(thread, site);
                self.note_shared(page, index);
                outcome
            }
        };
        match outcome {
            Flush::Clean if self.pages[page].past.shared & 1 << index != 0 => Flush::Covered,
            outcome => outcome,
        }
    }

    /// The range was written by other means than stores, and needs no flush; one is no surprise either.
    pub fn written(&mut self, file: u32, offset: u64, len: u64) {
        for piece in pieces(offset, len, LINE) {
            let (page, index) = self.page(LineAddress { file, line: piece.line });
            let past = &mut self.pages[page].past;
            past.modified |= 1 << index;
            past.shared |= 1 << index;
        }
    }

    /// `sfence`, `mfence` or a locked read-modify-write.
    pub fn fence(&mut self, thread: Thread, site: T::Site) {
        let state = thread_state(&mut self.threads, thread);
        state.fences += 1;
        state.sites.push(site);
        self.logged_fences += 1;
        let mut recent = std::mem::take(&mut state.recent);
        for (page, index) in recent.drain(..) {
            self.settled(page as usize, index as usize);
        }
        self.threads[thread as usize].recent = recent;
        if self.logged_fences >= self.limits.fences {
            self.sweep();
        }
    }

    /// The thread begins msync or the like: it does not guarantee what is stored from now on.
    pub fn begin_sync(&mut self, thread: Thread) {
        self.syncs.push((thread, Vec::new()));
    }

    /// The thread's sync is over.
    pub fn end_sync(&mut self, thread: Thread) {
        let over = self
            .syncs
            .extract_if(.., |(of, _)| *of == thread)
            .flat_map(|(_, lines)| lines);
        for at in over.collect::<Vec<_>>() {
            let (page, index) = self.page(at);
            if let Some(slot) = self.settled(page, index) {
                self.lines[slot].line.end_sync(thread);
            }
        }
    }

    /// msync and the like, by the thread: all of the range is persistent that was stored before it began.
    pub fn sync(&mut self, file: u32, offset: u64, len: u64, thread: Thread) {
        let end = offset.saturating_add(len);
        let stored_to = self
            .syncs
            .iter()
            .filter(|(of, _)| *of == thread)
            .flat_map(|(_, lines)| lines);
        let within = |at: &&LineAddress| at.file == file && !Bytes::of_line(at.line, offset, end).is_empty();
        let mut lines: Vec<LineAddress> = stored_to.filter(within).copied().collect();
        lines.sort_unstable();
        let mut from = offset;
        for at in lines {
            let start = (at.line * LINE).max(from);
            self.sync_all(file, from, start - from);
            let (page, index) = self.page(at);
            if let Some(slot) = self.settled(page, index) {
                let bytes = Bytes::of_line(at.line, offset, end);
                let any = self.lines[slot].line.sync(thread, &bytes, |_| {});
                self.pages[page].past.persisted |= u64::from(any) << index;
                self.free_if_clean(page, index);
            }
            from = ((at.line + 1) * LINE).min(end).max(from);
        }
        self.sync_all(file, from, end - from);
    }

    /// All of the range is persistent.
    fn sync_all(&mut self, file: u32, offset: u64, len: u64) {
        for (first, pages, page) in self.take_packed(file, offset, len) {
            for page_number in first..first + pages {
                let past = Past {
                    persisted: page.past.persisted | page.active,
                    ..page.past
                };
                self.remember(
                    PageAddress {
                        file,
                        page: page_number,
                    },
                    past,
                );
            }
        }
        self.for_each_line(file, offset, len, |memory, page, index, bytes| {
            let Page { lines, past, .. } = &mut memory.pages[page];
            memory.lines[lines[index] as usize].line.set_clean(&bytes);
            past.persisted |= 1 << index;
        });
    }

    /// The stores to the range so far need no flush.
    pub fn set_clean(&mut self, file: u32, offset: u64, len: u64) {
        for (first, pages, page) in self.take_packed(file, offset, len) {
            for page_number in first..first + pages {
                self.remember(
                    PageAddress {
                        file,
                        page: page_number,
                    },
                    page.past,
                );
            }
        }
        self.for_each_line(file, offset, len, |memory, page, index, bytes| {
            memory.lines[memory.pages[page].lines[index] as usize]
                .line
                .set_clean(&bytes);
        });
    }

    /// The state of a line that may hold stores that are not persistent.
    pub fn line(&mut self, at: LineAddress) -> Option<&Line<T>> {
        let (page, index) = self.page(at);
        self.settled(page, index).map(|slot| &self.lines[slot].line)
    }

    /// The lines of the range for which [`line`](Memory::line) may give a state, ascending. Takes time for these lines and not for the
    /// length of the range.
    pub fn lines_in(&self, file: u32, offset: u64, len: u64) -> Vec<LineAddress> {
        let end = offset.saturating_add(len);
        let with_table = self
            .pages_in(file, offset, end)
            .into_iter()
            .map(|page| &self.pages[page]);
        let mut pages: Vec<(u64, u64, u64)> = with_table.map(|page| (page.at.page, 1, page.active)).collect();
        pages.extend(
            self.packed
                .active_in(file, offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)),
        );
        pages.sort_unstable();
        let (first, last) = (offset / LINE, end.div_ceil(LINE));
        pages
            .into_iter()
            .flat_map(|(page, count, active)| (page..page + count).map(move |page| (page, active)))
            .flat_map(|(page, active)| bits(active).map(move |index| page * PAGE_LINES + index as u64))
            .filter(|line| offset < end && (first..last).contains(line))
            .map(|line| LineAddress { file, line })
            .collect()
    }

    /// Forgets the range, as at unmap or truncation, and hands over the stores in it that are not persistent, in no
    /// particular order of lines.
    pub fn drain(&mut self, file: u32, offset: u64, len: u64, mut each: impl FnMut(Unpersisted<'_, T>)) {
        for (first, pages, page) in self.take_packed(file, offset, len) {
            let states: Vec<_> = bits(page.active)
                .enumerate()
                .map(|(nth, index)| {
                    let mut state = self.packed.state(page.states.get(nth)).clone();
                    state.persisted |= settle(&mut state, &self.threads) | (page.past.persisted & 1 << index != 0);
                    (index, state)
                })
                .collect();
            for page_number in first..first + pages {
                let at = PageAddress {
                    file,
                    page: page_number,
                };
                for (index, state) in &states {
                    unpersisted(at.line(*index), state, state.persisted, Bytes::ALL, &mut each);
                }
            }
        }
        self.for_each_line(file, offset, len, |memory, page, index, bytes| {
            let Page { at, past, lines, .. } = &memory.pages[page];
            let state = &mut memory.lines[lines[index] as usize];
            unpersisted(
                at.line(index),
                state,
                past.persisted & 1 << index != 0,
                bytes,
                &mut each,
            );
            state.line.set_clean(&bytes);
        });
        self.forget_past(file, offset, len);
    }

    /// Room for so many more pages, and for lines with state in them.
    fn make_room(&mut self, pages: usize) {
        if self.pages.len() + pages > self.limits.pages || self.lines_with_state() >= self.limits.lines {
            self.sweep();
        }
    }

    /// How many lines have state that is not packed.
    fn lines_with_state(&self) -> usize {
        self.lines.len() - self.free_lines.len()
    }

    /// Index of the page's table, and of the line in it.
    fn page(&mut self, at: LineAddress) -> (usize, usize) {
        if self.lines_with_state() >= self.limits.lines {
            self.sweep();
        }
        let (address, index) = PageAddress::of(at);
        let cached = self.cache[address.cache_index()];
        if cached.0 == address && cached.1 != u32::MAX {
            return (cached.1 as usize, index);
        }
        if !self.page_index.contains_key(&address) {
            self.make_room(1);
        }
        (self.table(address), index)
    }

    /// The page's table; there is room for a new one.
    fn table(&mut self, address: PageAddress) -> usize {
        let page = match self.page_index.get(&address) {
            Some(&page) => page,
            None => self.new_page(address),
        };
        self.cache[address.cache_index()] = (address, page);
        page as usize
    }

    fn new_page(&mut self, at: PageAddress) -> u32 {
        let page = self.pages.len() as u32;
        self.page_index.insert(at, page);
        self.pages.push(Page {
            at,
            past: Past::default(),
            active: 0,
            packed: 0,
            lines: [0; PAGE_LINES as usize],
        });
        if let Some(packed) = (!self.packed.is_empty()).then(|| self.packed.remove(at)).flatten() {
            let page = &mut self.pages[page as usize];
            page.past = packed.past;
            page.active = packed.active;
            page.packed = packed.active;
            for (nth, index) in bits(packed.active).enumerate() {
                page.lines[index] = packed.states.get(nth);
            }
        } else if let Some(chunk) = self.past.get(&PageAddress {
            page: at.page / CHUNK_PAGES,
            ..at
        }) {
            self.pages[page as usize].past = chunk[(at.page % CHUNK_PAGES) as usize];
        }
        page
    }

    /// Slot of the line with all passed fences applied, if it holds anything then.
    fn settled(&mut self, page: usize, index: usize) -> Option<usize> {
        if self.pages[page].active & 1 << index == 0 {
            return None;
        }
        if self.pages[page].packed & 1 << index != 0 {
            self.unpack(page, index);
        }
        let Page { lines, past, .. } = &mut self.pages[page];
        let slot = lines[index] as usize;
        if settle(&mut self.lines[slot], &self.threads) {
            past.persisted |= 1 << index;
        }
        if self.free_if_clean(page, index) {
            None
        } else {
            Some(slot)
        }
    }

    fn unpack(&mut self, page: usize, index: usize) {
        let id = self.pages[page].lines[index];
        let slot = self.new_line(page, index);
        self.pages[page].packed &= !(1 << index);
        self.lines[slot].clone_from(self.packed.state(id));
        if std::mem::take(&mut self.lines[slot].persisted) {
            self.pages[page].past.persisted |= 1 << index;
        }
    }

    fn settled_or_new(&mut self, page: usize, index: usize) -> usize {
        match self.settled(page, index) {
            Some(slot) => slot,
            None => self.new_line(page, index),
        }
    }

    fn new_line(&mut self, page: usize, index: usize) -> usize {
        let slot = self.free_lines.pop().unwrap_or_else(|| {
            self.lines.push(LineState::default());
            self.lines.len() as u32 - 1
        });
        self.pages[page].active |= 1 << index;
        self.pages[page].lines[index] = slot;
        slot as usize
    }

    fn note_shared(&mut self, page: usize, index: usize) {
        let Page { lines, past, .. } = &mut self.pages[page];
        if self.lines[lines[index] as usize].line.take_shared() {
            past.shared |= 1 << index;
        }
    }

    fn free_if_clean(&mut self, page: usize, index: usize) -> bool {
        self.note_shared(page, index);
        let Page { active, lines, .. } = &mut self.pages[page];
        let state = &mut self.lines[lines[index] as usize];
        let clean = state.line.is_clean();
        if clean {
            state.line.forget_syncs();
            state.touched.clear();
            *active &= !(1 << index);
            self.free_lines.push(lines[index]);
        }
        clean
    }

    /// Calls `each` for every line with state in the range, settled, with the bytes of it that are in the range.
    fn for_each_line(
        &mut self,
        file: u32,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&mut Self, usize, usize, Bytes),
    ) {
        let end = offset.saturating_add(len);
        for page in self.pages_in(file, offset, end) {
            if self.pages[page].active == 0 {
                continue;
            }
            let base = self.pages[page].at.page * PAGE_BYTES;
            let start = offset.max(base);
            for piece in pieces(start, end.min(base.saturating_add(PAGE_BYTES)) - start, LINE) {
                let index = (piece.line % PAGE_LINES) as usize;
                if self.settled(page, index).is_some() {
                    each(self, page, index, piece.bytes);
                    self.free_if_clean(page, index);
                }
            }
        }
    }

    /// Tables of the pages that `[offset, end)` touches, found by whichever way is shorter.
    fn pages_in(&self, file: u32, offset: u64, end: u64) -> Vec<usize> {
        let range = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        if end <= offset {
            Vec::new()
        } else if range.end - range.start < self.pages.len() as u64 {
            range
                .filter_map(|page| self.page_index.get(&PageAddress { file, page }))
                .map(|&page| page as usize)
                .collect()
        } else {
            let inside = |page: &Page| page.at.file == file && range.contains(&page.at.page);
            (0..self.pages.len())
                .filter(|&page| inside(&self.pages[page]))
                .collect()
        }
    }

    /// Clears the bits of all lines that lie within the range.
    fn forget_past(&mut self, file: u32, offset: u64, len: u64) {
        let (first, end) = (offset.div_ceil(LINE), offset.saturating_add(len) / LINE);
        // Bits of the lines of the page that lie within.
        let within = |page: u64| {
            let base = page * PAGE_LINES;
            let from = first.saturating_sub(base).min(PAGE_LINES);
            let to = end.saturating_sub(base).min(PAGE_LINES);
            Bytes::range(from, to.saturating_sub(from)).0
        };
        let clear = |past: &mut Past, page: u64| {
            past.modified &= !within(page);
            past.persisted &= !within(page);
            past.shared &= !within(page);
        };
        for page in self.pages_in(file, offset, offset.saturating_add(len)) {
            let Page { at, past, .. } = &mut self.pages[page];
            clear(past, at.page);
        }
        let chunks = first / PAGE_LINES / CHUNK_PAGES..end.div_ceil(PAGE_LINES * CHUNK_PAGES);
        for (at, chunk) in self
            .past
            .iter_mut()
            .filter(|(at, _)| at.file == file && chunks.contains(&at.page))
        {
            for (i, past) in chunk.iter_mut().enumerate() {
                clear(past, at.page * CHUNK_PAGES + i as u64);
            }
        }
        self.past.retain(|_, chunk| chunk.iter().any(|past| past.modified != 0));
    }

    /// Takes out the packed pages that lie within the range, as runs; those that only overlap it get a table.
    fn take_packed(&mut self, file: u32, offset: u64, len: u64) -> Vec<(u64, u64, PackedPage)> {
        let end = offset.saturating_add(len);
        if self.packed.is_empty() || offset >= end {
            return Vec::new();
        }
        let within = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        let first_line = LineAddress {
            file,
            line: offset / LINE,
        };
        let last_line = LineAddress {
            file,
            line: (end - 1) / LINE,
        };
        // Both at once: the second must not sweep the first away.
        self.make_room(2);
        for edge in [first_line, last_line] {
            if !within.contains(&(edge.line / PAGE_LINES)) {
                self.table(PageAddress::of(edge).0);
            }
        }
        self.packed.remove_range(file, within)
    }

    /// Keeps the bits of a page that has no table.
    fn remember(&mut self, at: PageAddress, past: Past) {
        let chunk = PageAddress {
            page: at.page / CHUNK_PAGES,
            ..at
        };
        let chunk = self
            .past
            .entry(chunk)
            .or_insert_with(|| Box::new([Past::default(); CHUNK_PAGES as usize]));
        chunk[(at.page % CHUNK_PAGES) as usize] = past;
    }

    /// Frees the lines that have become persistent and packs the others; no page keeps its table.
    fn sweep(&mut self) {
        self.settle_packed();
        for page in 0..self.pages.len() {
            let Page { active, packed, .. } = self.pages[page];
            for index in bits(active & packed) {
                let page = &mut self.pages[page];
                let state = self.packed.state(page.lines[index]);
                if state.line.is_clean() {
                    page.past.persisted |= u64::from(state.persisted) << index;
                    page.active &= !(1 << index);
                    page.packed &= !(1 << index);
                }
            }
            for index in bits(active & !packed) {
                self.settled(page, index);
            }
        }
        self.page_index.clear();
        self.cache.fill((PageAddress { file: 0, page: 0 }, u32::MAX));
        for page in std::mem::take(&mut self.pages) {
            if page.active != 0 {
                self.pack(page);
            } else if page.past.modified != 0 {
                self.remember(page.at, page.past);
            }
        }
        self.packed.drop_unused();
        // Every fence has been applied to every line: none will ask for a fence of the past.
        for thread in &mut self.threads {
            thread.sites.clear();
            thread.recent.clear();
        }
        self.logged_fences = 0;
    }

    fn pack(&mut self, page: Page) {
        let states: Vec<u32> = bits(page.active)
            .map(|index| {
                let slot = page.lines[index];
                if page.packed & 1 << index != 0 {
                    return slot;
                }
                self.free_lines.push(slot);
                let state = &mut self.lines[slot as usize];
                state.line.settle_tags();
                let id = self.packed.intern(state);
                state.line.clear();
                state.touched.clear();
                id
            })
            .collect();
        let same = states.iter().all(|state| *state == states[0]);
        let states = if same {
            States::Same(states[0])
        } else {
            States::Each(states.into())
        };
        self.packed.insert(
            page.at,
            PackedPage {
                past: page.past,
                active: page.active,
                states,
            },
        );
    }

    /// Applies the fences that have passed to the packed lines.
    fn settle_packed(&mut self) {
        let threads = &self.threads;
        let mut became_clean = false;
        self.packed.update_states(|state| {
            let has_fenced = |touched: &Touched| threads[touched.thread as usize].fence_after(touched.fences).is_some();
            if !state.touched.iter().any(has_fenced) {
                return None;
            }
            let mut state = state.clone();
            if !state.line.is_clean() {
                state.persisted |= settle(&mut state, threads);
                became_clean |= state.line.is_clean();
            }
            Some(state)
        });
        if !became_clean {
            return;
        }
        for (file, first, pages, mut page) in self.packed.remove_all() {
            let (mut active, mut states) = (0, Vec::new());
            for (nth, index) in bits(page.active).enumerate() {
                let id = page.states.get(nth);
                let state = self.packed.state(id);
                if state.line.is_clean() {
                    page.past.persisted |= u64::from(state.persisted) << index;
                } else {
                    active |= 1 << index;
                    states.push(id);
                }
            }
            if active == 0 {
                (first..first + pages).for_each(|number| self.remember(PageAddress { file, page: number }, page.past));
            } else {
                let same = states.iter().all(|state| *state == states[0]);
                let states = if same {
                    States::Same(states[0])
                } else {
                    States::Each(states.into())
                };
                self.packed
                    .restore(file, first, pages, PackedPage { active, states, ..page });
            }
        }
    }
}

/// The bits that are set, ascending.
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (index < 64).then_some(index as usize)
    })
}

fn unpersisted<T: Tag>(
    at: LineAddress,
    state: &LineState<T>,
    line_persisted: bool,
    bytes: Bytes,
    each: &mut impl FnMut(Unpersisted<'_, T>),
) {
    for (i, store) in state
        .line
        .stores()
        .iter()
        .enumerate()
        .filter(|(_, s)| s.bytes.intersects(bytes))
    {
        each(Unpersisted {
            at,
            store,
            flushed: state.line.flushed_at(i),
            line_persisted,
        });
    }
}

/// Applies the fences that have passed since the line was touched. Whether they persisted anything.
fn settle<T: Tag>(state: &mut LineState<T>, threads: &[ThreadState<T::Site>]) -> bool {
    let LineState { line, touched, .. } = state;
    let mut persisted = false;
    touched.retain(|t| {
        let Some(fence) = threads[t.thread as usize].fence_after(t.fences) else {
            return true;
        };
        persisted |= line.fence(t.thread);
        line.leave_behind(t.thread, fence);
        false
    });
    persisted
}

fn touch<S>(touched: &mut Vec<Touched>, thread: Thread, threads: &mut Vec<ThreadState<S>>, page: usize, index: usize) {
    if touched.iter().all(|t| t.thread != thread) {
        let state = thread_state(threads, thread);
        touched.push(Touched {
            thread,
            fences: state.fences,
        });
        if state.recent.len() < RECENT {
            state.recent.push((page as u32, index as u8));
        }
    }
}

fn thread_state<S>(threads: &mut Vec<ThreadState<S>>, thread: Thread) -> &mut ThreadState<S> {
    let index = thread as usize;
    if index >= threads.len() {
        threads.resize_with(index + 1, ThreadState::default);
    }
    &mut threads[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u64) -> LineAddress {
        LineAddress { file: 0, line }
    }

    fn store(thread: Thread, tag: u32) -> Store<u32> {
        Store {
            bytes: Bytes::range(0, 8),
            thread,
            nontemporal: false,
            tag,
        }
    }

    fn drained(memory: &mut Memory<u32>, len: u64) -> Vec<(u64, u32, Option<u32>, bool)> {
        let mut out = Vec::new();
        memory.drain(0, 0, len, |u| {
            out.push((u.at.line, u.store.tag, u.flushed, u.line_persisted))
        });
        out.sort();
        out
    }

    #[test]
    fn persists_lazily() {
        let mut m = Memory::new(Model::Px86, Keep::Last);
        for line in 0..3 {
            m.store(at(line), store(0, line as u32));
        }
        assert_eq!(m.flush(at(0), 0, false, 7), Flush::Useful);
        assert_eq!(m.flush(at(1), 0, false, 8), Flush::Useful);
        m.fence(0, 9);
        assert_eq!(m.flush(at(0), 0, false, 7), Flush::Clean);
        m.store(at(1), store(0, 11));
        assert_eq!(m.flush(at(1), 0, false, 8), Flush::Useful);
        assert_eq!(m.flush(at(5), 0, false, 8), Flush::Unmodified);
        assert_eq!(drained(&mut m, 64 * 64), [(1, 11, Some(8), true), (2, 2, None, false)]);
        assert_eq!(m.flush(at(0), 0, false, 7), Flush::Unmodified);
        assert_eq!(m.lines_with_state(), 0);
    }

    /// The first page of a range must not be swept away when the last one gets its table.
    #[test]
    fn a_range_that_begins_and_ends_within_packed_pages_is_drained() {
        let limits = Limits {
            lines: 1 << 16,
            pages: 2,
            fences: 1 << 20,
        };
        let mut m = Memory::with_limits(Model::Px86, Keep::Last, limits);
        let pages = 8;
        for page in 0..pages {
            m.store(at(PAGE_LINES * page + 1), store(0, page as u32));
        }
        let mut lost = Vec::new();
        m.drain(0, LINE, (pages - 1) * PAGE_BYTES + LINE, |u| lost.push(u.store.tag));
        lost.sort();
        assert_eq!(lost, (0..pages as u32).collect::<Vec<_>>());
    }

    /// A program that stores all over a file and never flushes: only what it touches is unpacked and packed again.
    #[test]
    fn one_line_of_each_page_costs_one_line() {
        let limits = Limits {
            lines: 256,
            pages: 16,
            fences: 1 << 20,
        };
        let mut m = Memory::with_limits(Model::Px86, Keep::Last, limits);
        for line in 0..64 * PAGE_LINES {
            m.store(at(line), store(0, 1));
        }
        for round in 0..PAGE_LINES {
            for page in 0..64 {
                m.store(at(PAGE_LINES * page + round), store(0, 2));
                assert!(m.lines_with_state() <= limits.lines, "{}", m.lines_with_state());
                assert!(m.pages.len() <= limits.pages);
            }
        }
        assert!(m.lines.len() <= limits.lines + 1, "{}", m.lines.len());
        let lost = drained(&mut m, 64 * PAGE_BYTES);
        assert_eq!(lost.len() as u64, 64 * PAGE_LINES);
        assert!(lost.iter().all(|&(_, tag, flushed, _)| (tag, flushed) == (2, None)));
    }

    #[test]
    fn sweeps_keep_what_is_not_persistent_and_remember_the_rest() {
        let mut m = Memory::new(Model::Px86, Keep::Last);
        let lines = 10 * LIMITS.lines as u64;
        for line in 0..lines {
            m.store(at(line), store(0, 1));
            if line % 1000 != 0 {
                m.flush(at(line), 0, false, 2);
                m.fence(0, 3);
            }
        }
        assert!(m.lines_with_state() <= LIMITS.lines + 64, "{}", m.lines_with_state());
        assert_eq!(m.flush(at(1), 0, false, 2), Flush::Clean);
        assert_eq!(m.flush(at(1000), 0, false, 2), Flush::Useful);
        assert_eq!(m.flush(at(lines), 0, false, 2), Flush::Unmodified);
        let lost = drained(&mut m, lines * LINE);
        assert_eq!(lost.len() as u64, lines / 1000 + 1);
        assert!(lost.contains(&(1000, 1, Some(2), false)) && lost.contains(&(2000, 1, None, false)));
        assert_eq!(m.flush(at(1), 0, false, 2), Flush::Unmodified);
        assert!(m.past.is_empty() && m.packed.is_empty());
    }

    #[test]
    fn a_long_fill_is_packed() {
        let mut m = Memory::new(Model::Px86, Keep::Last);
        let lines = 8 * LIMITS.lines as u64;
        let nt = Store {
            nontemporal: true,
            bytes: Bytes::ALL,
            ..store(0, 1)
        };
        for line in 0..lines {
            m.store(at(line), nt.clone());
        }
        assert!(m.lines_with_state() <= LIMITS.lines + 64 && m.lines.len() <= LIMITS.lines + 64);
        // The end of it is synced, a part of a page in the middle said to be clean, and a line looked at.
        m.sync(0, (lines - 100) * LINE, 100 * LINE, 0);
        m.set_clean(0, 70 * LINE, 100 * LINE + 32);
        assert_eq!(m.line(at(1)).unwrap().stores().len(), 1);
        assert_eq!(m.line(at(170)).unwrap().stores()[0].bytes, Bytes::range(32, 32));
        assert!(m.line(at(100)).is_none() && m.line(at(lines - 1)).is_none());
        m.fence(0, 9);
        m.store(at(3), store(0, 4));
        // Many other pages, so that a sweep comes.
        for line in 0..100_000 {
            m.store(at(2 * lines + 64 * line), nt.clone());
            m.fence(0, 9);
        }
        assert_eq!(m.flush(at(5), 0, false, 8), Flush::Clean);
        assert_eq!(drained(&mut m, u64::MAX), [(3, 4, None, true)]);
        assert_eq!(m.flush(at(5), 0, false, 8), Flush::Unmodified);
    }

    #[test]
    fn lines_that_differ_are_packed_too() {
        let mut m = Memory::new(Model::Px86, Keep::Last);
        let lines = 2 * LIMITS.lines as u64;
        for line in 0..lines {
            m.store(at(line), store(0, line as u32 % 7));
        }
        assert!(m.lines_with_state() <= LIMITS.lines + 64);
        m.store(at(8), store(0, 50));
        m.drain(0, 64, 64, |lost| assert_eq!(lost.store.tag, 1));
        let lost = drained(&mut m, u64::MAX);
        assert_eq!(lost.len() as u64, lines - 1);
        assert!(
            lost.iter()
                .all(|&(line, tag, ..)| tag == if line == 8 { 50 } else { line as u32 % 7 })
        );
    }

    #[test]
    fn lines_in_a_range_are_those_that_asking_each_line_finds() {
        let limits = Limits {
            lines: 4,
            pages: 2,
            fences: 3,
        };
        let mut m = Memory::with_limits(Model::Px86, Keep::Last, limits);
        let lines = 8 * PAGE_LINES;
        let mut number: u64 = 1;
        let mut next = |below: u64| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        for step in 0..2000 {
            let line = next(lines);
            m.store(at(line), store(0, step));
            if next(2) == 0 {
                m.flush(at(line), 0, false, 2);
                m.fence(0, 3);
            }
            if step % 50 != 0 {
                continue;
            }
            let (from, len) = (next(lines * LINE), next(lines * LINE));
            let found = m.lines_in(0, from, len);
            assert!(found.is_sorted() && found.windows(2).all(|pair| pair[0] != pair[1]));
            let within = from / LINE..(from + len).div_ceil(LINE);
            for line in 0..lines {
                let inside = len > 0 && within.contains(&line);
                let holds = m.line(at(line)).is_some();
                assert!(found.contains(&at(line)) <= inside, "{line} is not in the range");
                assert!((inside && holds) <= found.contains(&at(line)), "{line} is missing");
            }
            assert!(m.lines_in(1, 0, u64::MAX).is_empty());
            assert!(m.lines_in(0, 0, u64::MAX).len() as u64 <= lines);
        }
    }

    #[test]
    fn ranges_cut_lines() {
        let mut m = Memory::new(Model::Px86, Keep::Last);
        m.store(
            at(0),
            Store {
                bytes: Bytes::ALL,
                ..store(0, 1)
            },
        );
        m.store(
            at(1),
            Store {
                bytes: Bytes::ALL,
                ..store(0, 2)
            },
        );
        m.set_clean(0, 0, 60);
        assert_eq!(m.line(at(0)).unwrap().stores()[0].bytes, Bytes::range(60, 4));
        m.sync(0, 0, 64, 0);
        assert!(m.line(at(0)).is_none());
        assert_eq!(drained(&mut m, u64::MAX), [(1, 2, None, false)]);
    }
}
