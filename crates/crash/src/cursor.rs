//! Replays a trace on an image: keeps the image at what is guaranteed persistent, and stops at each crash point with the
//! lines that are not.
//!
//! The crash points are the design's: just before each event that raises a floor (with eADR each cached store does), before
//! truncation, writes and renames of a PM file, and at the end; every other point's states are among those. Added to them is
//! one before the first store of the window, from which the recovery has to succeed before anything is tested. That a crash
//! between an output and the next point may have less output than that point says is left out: less was promised then.
//!
//! An event costs what it touches: a fence looks at the lines that its thread has flushed or stored to non-temporally since
//! its last one; at a point only the lines that changed since the point before are looked at.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crashproof_model::{Bytes, LINE, Line, LineAddress, Model, Store, WORD, pieces};
use crashproof_trace::{Event, EventKind, FlushKind, Item, PmAddress, StackId, StoreFlags, TraceFile, TraceReader};
use crashproof_wire::recovery::PAGE;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::campaign::{CampaignOptions, surveyed_files};
use crate::error::CrashError;
use crate::executor::StoreId;
use crate::hash::{self, Content};
use crate::image::Image;
use crate::representative::Show;
use crate::state::{After, CrashPoint, Pending, PointHead, PointKind, UncertainLine, write_store};
use crate::window::{Place, Window};

/// At which places a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    CrashPoints,
    /// After each store whose call path is new, before and after file operations, and at the end.
    NewStacks,
}

/// The smallest steps: what a crash cannot come in the middle of.
enum Step {
    Fence,
    Store { at: LineAddress, store: Store<Pending> },
    Flush(LineAddress),
    FlushNow(LineAddress),
    Resize { file: usize, size: u64 },
    FileWrite { at: PmAddress, data: Vec<u8> },
    Rename { file: usize, path: Option<String> },
    Sync { file: u32, offset: u64, len: u64 },
    Map { file: usize },
}

/// An event that is being taken step by step.
struct Held {
    seq: u64,
    thread: u32,
    stack: StackId,
    /// Pieces of its store that are done.
    stored: u16,
    /// The crash point before its next step has been passed.
    passed: bool,
}

struct FileState {
    size: u64,
    path: Option<String>,
    first_path: String,
    mapped: bool,
}

/// What is guaranteed persistent, as hashes.
#[derive(Default)]
struct Base {
    hash: u128,
    /// By file and number of the page; without those that are zero.
    pages: FxHashMap<(u32, u64), u128>,
}

impl Base {
    fn add(&mut self, at: LineAddress, change: u128) {
        if change != 0 {
            self.hash = self.hash.wrapping_add(change);
            let page = self.pages.entry(page_of(at)).or_default();
            *page = page.wrapping_add(change);
        }
    }

    /// Writes the bytes in which a line differs.
    fn write(&mut self, at: LineAddress, old: &Content, new: &Content, image: &mut (impl Image + ?Sized)) {
        self.add(at, hash::change(at, old, new));
        image.write_difference(at, old, new);
    }
}

pub(crate) struct Cursor {
    reader: TraceReader,
    model: Model,
    reorder: bool,
    tear: bool,
    stops: Stops,
    window: Window,
    base: Base,
    lines: FxHashMap<LineAddress, Arc<UncertainLine>>,
    /// By thread: lines that it flushed or stored to non-temporally since its last fence.
    pending: Vec<Vec<LineAddress>>,
    files: Vec<FileState>,
    output: Vec<u8>,
    held: Option<Held>,
    /// What is left of `held`.
    steps: VecDeque<Step>,
    after: Option<After>,
    /// The event before which the last stop was.
    since: u64,
    /// Uncertain lines by file and page.
    crowded: FxHashMap<(u32, u64), u32>,
    /// How many lines have so many options.
    counts: BTreeMap<u64, u64>,
    /// Lines that changed since the last point.
    changed: Vec<LineAddress>,
    all_fresh: bool,
    started: bool,
    ended: bool,
    /// The next stop is after a file operation.
    file_operation: bool,
    seen_stacks: FxHashSet<(StackId, StackId)>,
    /// Points so far that have states of their own.
    points: u64,
    head: Option<PointHead>,
    /// Lines of which some contents were left out.
    pub capped: FxHashSet<LineAddress>,
}

impl Cursor {
    /// Begins at the start of the trace, and makes the image what it was there.
    pub fn open(
        trace: &TraceFile,
        options: &CampaignOptions,
        stops: Stops,
        image: &mut (impl Image + ?Sized),
    ) -> Result<Cursor, CrashError> {
        let mut cursor = Cursor {
            reader: trace.files()?,
            model: options.model,
            reorder: options.reorder_in_line,
            tear: options.tear,
            stops,
            window: Window::new(options.from.as_deref(), options.until.as_deref()),
            base: Base::default(),
            lines: FxHashMap::default(),
            pending: Vec::new(),
            files: Vec::new(),
            output: Vec::new(),
            held: None,
            steps: VecDeque::new(),
            after: None,
            since: 0,
            crowded: FxHashMap::default(),
            counts: BTreeMap::new(),
            changed: Vec::new(),
            all_fresh: true,
            started: false,
            ended: false,
            file_operation: false,
            seen_stacks: FxHashSet::default(),
            points: 0,
            head: None,
            capped: FxHashSet::default(),
        };
        for (index, file) in surveyed_files(trace).into_iter().enumerate() {
            image.resize(index, 0);
            image.resize(index, file.size);
            let path = file.present.then(|| file.path.clone());
            image.place(index, path.as_deref());
            cursor.files.push(FileState {
                size: file.size,
                path,
                first_path: file.path,
                mapped: false,
            });
        }
        // A file has its first content from the start, although the trace gives it when the file is first mapped.
        trace.initial(|at, data| cursor.write_durable(at, data, image))?;
        Ok(cursor)
    }

    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Of each file: how large it is, and what it is called if it is there.
    pub fn sizes_and_paths(&self) -> Vec<(u64, Option<String>)> {
        self.files.iter().map(|file| (file.size, file.path.clone())).collect()
    }

    pub fn place(&self) -> Place {
        self.window.place()
    }

    /// Hash of what is guaranteed persistent of a page.
    pub fn page_hash(&self, file: u32, page: u64) -> u128 {
        self.base.pages.get(&(file, page)).copied().unwrap_or(0)
    }

    /// Goes to the next crash point. The image has to be at what is guaranteed persistent.
    pub fn next(&mut self, image: &mut (impl Image + ?Sized)) -> Result<Option<&PointHead>, CrashError> {
        self.next_showing(image, &mut |_, _| {})
    }

    /// The same, and shows the events that it comes to.
    pub fn next_showing(
        &mut self,
        image: &mut (impl Image + ?Sized),
        show: Show<'_>,
    ) -> Result<Option<&PointHead>, CrashError> {
        if self.head.take().is_some() {
            self.leave_point();
        }
        while !self.ended {
            if self.held.is_none() {
                match self.read(show)? {
                    Read::Event => {}
                    Read::WindowEnds { seq } => return Ok(self.end(seq)),
                    Read::TraceEnds => return Ok(self.end(self.reader.events())),
                }
            }
            if let Some(held) = &self.held
                && !held.passed
                && let Some(step) = self.steps.front()
                && self.is_stop(held, step)
            {
                let (seq, stack, within) = (held.seq, held.stack, held.stored);
                if let Some(held) = &mut self.held {
                    held.passed = true;
                }
                return Ok(Some(self.stop(seq, within, stack)));
            }
            if let Some((seq, stack)) = self.step(image) {
                return Ok(Some(self.stop(seq + 1, 0, stack)));
            }
        }
        Ok(None)
    }

    /// The last point; there is none if the window never began.
    fn end(&mut self, seq: u64) -> Option<&PointHead> {
        self.ended = true;
        if self.window.place() == Place::Before {
            return None;
        }
        self.stop(seq, 0, StackId(0));
        let head = self.head.as_mut()?;
        head.what = PointKind::End;
        Some(head)
    }

    /// Goes to just before an event, without stopping anywhere. For a cursor without a window that has not stopped.
    pub fn go_to(&mut self, seq: u64, image: &mut (impl Image + ?Sized)) -> Result<(), CrashError> {
        loop {
            match &self.held {
                Some(held) if held.seq >= seq => return Ok(()),
                Some(_) => {
                    self.step(image);
                }
                None if self.reader.events() >= seq => return Ok(()),
                None => {
                    if !matches!(self.read(&mut |_, _| {})?, Read::Event) {
                        let events = self.reader.events();
                        return Err(CrashError::NoSuchPoint { point: seq, events });
                    }
                }
            }
        }
    }

    /// Writes just these stores, allowed or not, over what is guaranteed persistent where [`Cursor::go_to`] went, and those
    /// of the event there that are named.
    pub fn persist_only(
        &mut self,
        seq: u64,
        persisted: &FxHashSet<StoreId>,
        image: &mut (impl Image + ?Sized),
    ) -> Result<(), CrashError> {
        let within = persisted.iter().any(|id| id.seq >= seq);
        if within && self.held.is_none() {
            self.read(&mut |_, _| {})?;
        }
        // A locked instruction fences before it stores.
        while within && matches!(self.steps.front(), Some(Step::Fence)) {
            self.step(image);
        }
        for line in self.lines.values() {
            let content = line.content_with(|id| persisted.contains(&id));
            image.write_difference(line.at, line.base(), &content);
        }
        for step in &self.steps {
            if let Step::Store { at, store } = step
                && persisted.contains(&store.tag.id)
            {
                let old = image.read_line(*at);
                let mut new = old;
                write_store(&mut new, store);
                image.write_difference(*at, &old, &new);
            }
        }
        Ok(())
    }

    /// Takes the next event apart into steps.
    fn read(&mut self, show: Show<'_>) -> Result<Read, CrashError> {
        let Some((item, tables)) = self.reader.next_with_tables()? else {
            return Ok(Read::TraceEnds);
        };
        let Item::Event(event) = item else {
            return Ok(Read::Event);
        };
        show(&event, tables);
        if self.window.event(event.stack, tables) == Place::After {
            return Ok(Read::WindowEnds { seq: event.seq });
        }
        if let EventKind::Output { data, .. } = event.kind {
            self.output.extend_from_slice(data);
            self.all_fresh = true;
            return Ok(Read::Event);
        }
        // A flush of a line with nothing uncertain does nothing, and a program that flushes a whole file for a few stores has millions of them.
        if let EventKind::Flush { at, .. } = event.kind
            && !self.lines.contains_key(&LineAddress {
                file: at.file.0,
                line: at.offset / LINE,
            })
        {
            return Ok(Read::Event);
        }
        take_apart(&event, self.tear, &mut self.steps);
        if !self.steps.is_empty() {
            self.held = Some(Held {
                seq: event.seq,
                thread: event.thread.0,
                stack: event.stack,
                stored: 0,
                passed: false,
            });
        }
        Ok(Read::Event)
    }

    /// Whether a crash just before the step is to be looked at.
    fn is_stop(&self, held: &Held, step: &Step) -> bool {
        if self.window.place() != Place::Within {
            return false;
        }
        let changes_file = match step {
            Step::Resize { .. } | Step::FileWrite { .. } | Step::Rename { .. } => true,
            // A file that the program made appears.
            Step::Map { file } => self.started && self.appears(*file),
            _ => false,
        };
        if changes_file || self.stops == Stops::NewStacks {
            return changes_file;
        }
        match step {
            Step::Store { store, .. } => !self.started || self.model == Model::Eadr && !store.nontemporal,
            Step::Fence => self.pending_of(held.thread).iter().any(|at| {
                self.lines
                    .get(at)
                    .is_some_and(|line| line.line().awaits_fence(held.thread))
            }),
            Step::FlushNow(at) => self.lines.get(at).is_some_and(|line| line.line().awaits_flush()),
            Step::Sync { file, offset, len } => !self.lines_in(*file, *offset, *len).is_empty(),
            _ => false,
        }
    }

    fn pending_of(&self, thread: u32) -> &[LineAddress] {
        self.pending.get(thread as usize).map_or(&[], Vec::as_slice)
    }

    fn appears(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|f| !f.mapped && f.path.is_none())
    }

    /// Uncertain lines that the range touches.
    fn lines_in(&self, file: u32, offset: u64, len: u64) -> Vec<LineAddress> {
        let (first, end) = (offset / LINE, offset.saturating_add(len).div_ceil(LINE));
        if end.saturating_sub(first) <= self.lines.len() as u64 {
            let lines = (first..end).map(|line| LineAddress { file, line });
            lines.filter(|at| self.lines.contains_key(at)).collect()
        } else {
            let lines = self.lines.keys().copied();
            lines
                .filter(|at| at.file == file && (first..end).contains(&at.line))
                .collect()
        }
    }

    /// Takes the next step. If there is a stop after it: the event and its call path.
    fn step(&mut self, image: &mut (impl Image + ?Sized)) -> Option<(u64, StackId)> {
        let held = self.held.as_mut()?;
        let (seq, thread, stack) = (held.seq, held.thread, held.stack);
        let step = self.steps.pop_front();
        held.passed = false;
        let last = self.steps.is_empty();
        if matches!(step, Some(Step::Store { .. })) {
            held.stored += 1;
        }
        if last {
            self.held = None;
        }
        let is_store = matches!(step, Some(Step::Store { .. }));
        let mut file_changed = true;
        match step? {
            Step::Fence => self.fence(thread, image),
            Step::Store { at, store } => self.store(at, store, image),
            Step::Flush(at) => {
                if let Some(line) = self.lines.get_mut(&at)
                    && Arc::make_mut(line).flush(thread)
                {
                    self.remember_pending(thread, at);
                }
            }
            Step::FlushNow(at) => {
                if self.lines.get(&at).is_some_and(|line| line.line().awaits_flush()) {
                    self.persist(at, image, |line, base| {
                        line.flush_now_with(thread, (), |store| write_store(base, store));
                    });
                }
            }
            Step::Sync { file, offset, len } => self.sync(file, offset, len, image),
            Step::Resize { file, size } => self.resize(file, size, image),
            Step::FileWrite { at, data } => {
                self.write_durable(at, &data, image);
                self.file_operation = true;
            }
            Step::Rename { file, path } => self.rename(file, path, image),
            Step::Map { file } => file_changed = self.map(file, image),
        }
        if self.stops != Stops::NewStacks || self.window.place() != Place::Within || !last {
            return None;
        }
        let stops = if is_store {
            self.seen_stacks.insert((stack, stack))
        } else {
            file_changed && self.file_operation
        };
        self.file_operation = false;
        stops.then_some((seq, stack))
    }

    fn remember_pending(&mut self, thread: u32, at: LineAddress) {
        let thread = thread as usize;
        if self.pending.len() <= thread {
            self.pending.resize_with(thread + 1, Vec::new);
        }
        let lines = &mut self.pending[thread];
        if lines.last() != Some(&at) {
            lines.push(at);
        }
    }

    fn fence(&mut self, thread: u32, image: &mut (impl Image + ?Sized)) {
        let Some(pending) = self.pending.get_mut(thread as usize) else {
            return;
        };
        let mut lines = std::mem::take(pending);
        for at in lines.drain(..) {
            if self.lines.get(&at).is_some_and(|line| line.line().awaits_fence(thread)) {
                self.persist(at, image, |line, base| {
                    line.fence_with(thread, |store| write_store(base, store));
                });
            }
        }
        self.pending[thread as usize] = lines;
    }

    fn store(&mut self, at: LineAddress, store: Store<Pending>, image: &mut (impl Image + ?Sized)) {
        self.after = Some(After {
            id: store.tag.id,
            stack: store.tag.stack,
        });
        let (thread, nontemporal) = (store.thread, store.nontemporal);
        if self.model == Model::Eadr && !nontemporal {
            self.all_fresh = true;
            if self.lines.contains_key(&at) {
                self.persist(at, image, |line, base| {
                    write_store(base, &store);
                    line.store(Model::Eadr, crashproof_model::Keep::All, store);
                });
            } else {
                let old = image.read_line(at);
                let mut new = old;
                write_store(&mut new, &store);
                self.base.write(at, &old, &new, image);
            }
            return;
        }
        let line = self.lines.entry(at).or_insert_with(|| {
            *self.crowded.entry(page_of(at)).or_default() += 1;
            Arc::new(UncertainLine::new(at, image.read_line(at), self.reorder))
        });
        Arc::make_mut(line).store(store);
        if self.changed.last() != Some(&at) {
            self.changed.push(at);
        }
        if nontemporal {
            self.remember_pending(thread, at);
        }
    }

    /// Changes what is guaranteed persistent of a line, in the image too. There is a crash point just before that, or there
    /// is none yet.
    fn persist(
        &mut self,
        at: LineAddress,
        image: &mut (impl Image + ?Sized),
        change: impl FnOnce(&mut Line<Pending>, &mut Content),
    ) {
        let Some(entry) = self.lines.get_mut(&at) else {
            return;
        };
        let line = Arc::make_mut(entry);
        let old = *line.base();
        line.persist(change);
        self.base.write(at, &old, line.base(), image);
        if line.line().is_clean() {
            self.forget(at);
        } else {
            // The point just before had all that is left.
            line.refresh();
            line.settle();
            self.changed.push(at);
        }
    }

    fn sync(&mut self, file: u32, offset: u64, len: u64, image: &mut (impl Image + ?Sized)) {
        let end = offset.saturating_add(len);
        for at in self.lines_in(file, offset, len) {
            let bytes = bytes_in(at, offset, end);
            self.persist(at, image, |line, base| {
                for store in line.stores() {
                    let mut part = store.clone();
                    part.bytes = Bytes(store.bytes.0 & bytes.0);
                    write_store(base, &part);
                }
                line.set_clean(bytes);
            });
        }
    }

    /// By write(2) and the like: durable at once, and over whatever was stored there.
    fn write_durable(&mut self, at: PmAddress, data: &[u8], image: &mut (impl Image + ?Sized)) {
        let end = at.offset.saturating_add(data.len() as u64);
        let Some(file) = self.files.get_mut(at.file.index()) else {
            return;
        };
        if file.size < end {
            file.size = end;
            image.resize(at.file.index(), end);
        }
        self.all_fresh = true;
        for piece in pieces(at.offset, data.len() as u64, LINE) {
            let line_at = LineAddress {
                file: at.file.0,
                line: piece.line,
            };
            let start = piece.bytes.first() as usize;
            let from = (piece.line * LINE + start as u64 - at.offset) as usize;
            let part = &data[from..from + piece.bytes.span() as usize];
            if self.lines.contains_key(&line_at) {
                self.persist(line_at, image, |line, base| {
                    line.set_clean(piece.bytes);
                    base[start..start + part.len()].copy_from_slice(part);
                });
            } else {
                let old = image.read_line(line_at);
                let mut new = old;
                new[start..start + part.len()].copy_from_slice(part);
                self.base.write(line_at, &old, &new, image);
            }
        }
    }

    fn resize(&mut self, file: usize, size: u64, image: &mut (impl Image + ?Sized)) {
        let Some(state) = self.files.get_mut(file) else {
            return;
        };
        self.all_fresh = true;
        self.file_operation = true;
        let shrinks = size < state.size;
        state.size = size;
        if shrinks {
            let file = file as u32;
            let cut: Vec<u64> = self
                .base
                .pages
                .keys()
                .filter(|(of, page)| *of == file && (page + 1) * PAGE > size)
                .map(|&(_, page)| page)
                .collect();
            for page in cut {
                if page * PAGE >= size {
                    let sum = self.base.pages.remove(&(file, page)).unwrap_or(0);
                    self.base.hash = self.base.hash.wrapping_sub(sum);
                    continue;
                }
                for line in size / LINE..(page + 1) * PAGE / LINE {
                    let at = LineAddress { file, line };
                    let old = match self.lines.get(&at) {
                        Some(line) => *line.base(),
                        None => image.read_line(at),
                    };
                    let mut new = old;
                    new[size.saturating_sub(line * LINE) as usize..].fill(0);
                    self.base.write(at, &old, &new, image);
                }
            }
            for at in self.lines_in(file, size, u64::MAX) {
                let Some(line) = self.lines.get_mut(&at) else { continue };
                let line = Arc::make_mut(line);
                let bytes = bytes_in(at, size, u64::MAX);
                line.persist(|line, base| {
                    line.set_clean(bytes);
                    base[size.saturating_sub(at.line * LINE) as usize..].fill(0);
                });
                if line.line().is_clean() {
                    self.forget(at);
                } else {
                    line.refresh();
                    self.changed.push(at);
                }
            }
        }
        image.resize(file, size);
    }

    fn rename(&mut self, file: usize, path: Option<String>, image: &mut (impl Image + ?Sized)) {
        self.all_fresh = true;
        self.file_operation = true;
        let replaced = self.files.iter().position(|f| path.is_some() && f.path == path);
        if let Some(replaced) = replaced.filter(|&other| other != file) {
            self.files[replaced].path = None;
            image.place(replaced, None);
        }
        if let Some(state) = self.files.get_mut(file) {
            image.place(file, path.as_deref());
            state.path = path;
            // A file that was made without a name does not appear when it is mapped.
            state.mapped = true;
        }
    }

    /// Whether that made the file appear.
    fn map(&mut self, file: usize, image: &mut (impl Image + ?Sized)) -> bool {
        let appears = self.appears(file);
        if let Some(state) = self.files.get_mut(file) {
            state.mapped = true;
            if appears {
                self.all_fresh = true;
                image.place(file, Some(&state.first_path));
                state.path = Some(state.first_path.clone());
            }
        }
        self.file_operation |= appears;
        appears
    }

    /// The line is guaranteed persistent as it is.
    fn forget(&mut self, at: LineAddress) {
        if let Some(line) = self.lines.remove(&at) {
            self.count_out(line.counted);
            if let Some(lines) = self.crowded.get_mut(&page_of(at)) {
                *lines -= 1;
                if *lines == 0 {
                    self.crowded.remove(&page_of(at));
                }
            }
        }
    }

    /// At a point: pages (index of the file, offset) with a line that changed since the point before, and another that is
    /// uncertain. A recovery may read one of them and not the other.
    pub fn shared_pages(&self) -> impl Iterator<Item = (usize, u64)> {
        let pages = self.changed.iter().map(|&at| page_of(at));
        pages
            .filter(|page| self.crowded.get(page).is_some_and(|&lines| lines > 1))
            .map(|(file, page)| (file as usize, page * PAGE))
    }

    fn count_out(&mut self, counted: u64) {
        if let Some(lines) = self.counts.get_mut(&counted) {
            *lines -= 1;
            if *lines == 0 {
                self.counts.remove(&counted);
            }
        }
    }

    fn stop(&mut self, seq: u64, within: u16, stack: StackId) -> &PointHead {
        self.changed.sort_unstable();
        self.changed.dedup();
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|at| self.lines.contains_key(at));
        for at in &changed {
            let counted = self.lines[at].counted;
            self.count_out(counted);
        }
        let rest = self
            .counts
            .iter()
            .filter(|(options, _)| **options > 1)
            .map(|(&options, &lines)| (options as u128).saturating_pow(lines.try_into().unwrap_or(u32::MAX)))
            .fold(1, u128::saturating_mul);
        let (mut all, mut old) = (rest, rest);
        let mut fresh = 0;
        for at in &changed {
            let Some(line) = self.lines.get_mut(at) else { continue };
            let line = Arc::make_mut(line);
            line.refresh();
            line.counted = line.count();
            *self.counts.entry(line.counted).or_default() += 1;
            all = all.saturating_mul(line.count() as u128);
            old = old.saturating_mul(line.fresh_from() as u128);
            fresh += (line.fresh_from() < line.count()) as usize;
            if line.is_capped() {
                self.capped.insert(*at);
            }
        }
        let states = if self.all_fresh {
            all
        } else if all == u128::MAX && fresh > 0 {
            u128::MAX
        } else {
            all - old
        };
        self.changed = changed;
        let what = if self.started {
            PointKind::Middle
        } else {
            PointKind::Start
        };
        self.started = true;
        let after_stack = self.after.map_or(StackId(0), |after| after.stack);
        let new_stack = self.stops == Stops::CrashPoints && self.seen_stacks.insert((stack, after_stack));
        let number = self.points;
        self.points += (states > 0) as u64;
        self.head.insert(PointHead {
            seq,
            within,
            number,
            after: self.after,
            new_stack,
            states,
            changed: fresh,
            since: std::mem::replace(&mut self.since, seq),
            boundary: self.all_fresh,
            what,
        })
    }

    fn leave_point(&mut self) {
        for at in self.changed.drain(..) {
            if let Some(line) = self.lines.get_mut(&at) {
                Arc::make_mut(line).settle();
            }
        }
        self.all_fresh = false;
    }

    /// The point that [`Cursor::next`] went to.
    pub fn point(&self) -> Option<CrashPoint> {
        let head = self.head.clone()?;
        let mut lines: Vec<_> = self.lines.values().cloned().collect();
        lines.sort_unstable_by_key(|line| line.at);
        let fresh = self
            .changed
            .iter()
            .filter_map(|at| lines.binary_search_by_key(at, |line| line.at).ok())
            .filter(|&index| lines[index].fresh_from() < lines[index].count())
            .collect();
        let mut torn = (Vec::new(), Vec::new());
        if let Some(held) = self.held.as_ref().filter(|_| head.within > 0) {
            let piece = |piece| StoreId { seq: head.seq, piece };
            let left = self
                .steps
                .iter()
                .filter(|step| matches!(step, Step::Store { .. }))
                .count() as u16;
            torn.0.extend((0..held.stored).map(piece));
            torn.1.extend((held.stored..held.stored + left).map(piece));
        }
        Some(CrashPoint {
            lines,
            fresh,
            all_fresh: self.all_fresh,
            hash: self.base.hash,
            files: self.files_hash(),
            output: hash::pair(4, self.output.len() as u64),
            within: torn,
            head,
        })
    }

    /// Of the files' sizes and names.
    fn files_hash(&self) -> u128 {
        let files = self.files.iter().enumerate().map(|(index, file)| {
            let key = (index as u64) << 8;
            let path = file.path.iter().flat_map(|path| path.bytes());
            let path = path.fold(file.path.is_some() as u64, |sum, byte| {
                hash::mix(sum << 8 ^ byte as u64 ^ sum)
            });
            hash::pair(key | 2, file.size).wrapping_add(hash::pair(key | 3, path))
        });
        files.fold(0, u128::wrapping_add)
    }
}

fn page_of(at: LineAddress) -> (u32, u64) {
    (at.file, at.line * LINE / PAGE)
}

enum Read {
    Event,
    WindowEnds { seq: u64 },
    TraceEnds,
}

/// Bytes of the line that lie in the range.
fn bytes_in(at: LineAddress, start: u64, end: u64) -> Bytes {
    let line = at.line * LINE;
    let from = start.saturating_sub(line).min(LINE);
    let to = end.saturating_sub(line).min(LINE);
    Bytes::range(from, to.saturating_sub(from))
}

fn take_apart(event: &Event<'_>, tear: bool, steps: &mut VecDeque<Step>) {
    match event.kind {
        EventKind::Store { at, data, flags } => {
            if flags.locked {
                steps.push_back(Step::Fence);
            }
            steps.extend(store_pieces(event, at, data, flags, tear));
        }
        EventKind::Flush { at, kind } => {
            let at = LineAddress {
                file: at.file.0,
                line: at.offset / LINE,
            };
            steps.push_back(if kind == FlushKind::Clflush {
                Step::FlushNow(at)
            } else {
                Step::Flush(at)
            });
        }
        EventKind::Fence { .. } => steps.push_back(Step::Fence),
        EventKind::Map { file, .. } => steps.push_back(Step::Map { file: file.index() }),
        EventKind::Resize { file, size } => steps.push_back(Step::Resize {
            file: file.index(),
            size,
        }),
        EventKind::FileWrite { at, data } => steps.push_back(Step::FileWrite { at, data: data.into() }),
        EventKind::Rename { file, path } => steps.push_back(Step::Rename {
            file: file.index(),
            path: path.map(str::to_owned),
        }),
        EventKind::Sync { file, offset, len } => steps.push_back(Step::Sync {
            file: file.0,
            offset,
            len,
        }),
        // A crash comes as it may: what PMDK says of its ranges, and that a mapping or a process is gone, persists nothing.
        EventKind::Unmap { .. }
        | EventKind::Output { .. }
        | EventKind::Call { .. }
        | EventKind::Request { .. }
        | EventKind::ThreadStart { .. }
        | EventKind::ProcessStart { .. }
        | EventKind::ProcessEnd { .. }
        | EventKind::Quiet
        | EventKind::Access { .. }
        | EventKind::Path { .. } => {}
    }
}

/// What of a store persists at once.
fn store_pieces<'e>(
    event: &Event<'_>,
    at: PmAddress,
    data: &'e [u8],
    flags: StoreFlags,
    tear: bool,
) -> impl Iterator<Item = Step> + use<'e> {
    let (seq, thread, stack) = (event.seq, event.thread.0, event.stack);
    let unit = if tear { WORD } else { LINE };
    pieces(at.offset, data.len() as u64, unit)
        .enumerate()
        .map(move |(number, piece)| {
            let start = piece.bytes.first();
            let from = (piece.line * LINE + start - at.offset) as usize;
            Step::Store {
                at: LineAddress {
                    file: at.file.0,
                    line: piece.line,
                },
                store: Store {
                    bytes: piece.bytes,
                    thread,
                    nontemporal: flags.nontemporal,
                    tag: Pending {
                        id: StoreId {
                            seq,
                            piece: number as u16,
                        },
                        stack,
                        start: start as u8,
                        data: data[from..from + piece.bytes.span() as usize].into(),
                    },
                },
            }
        })
}
