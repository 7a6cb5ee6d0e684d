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

use std::collections::BTreeMap;
use std::sync::Arc;

use crashproof_model::{Keep, LineAddress, Model, Ranges, cut};
use crashproof_replay::{Change, Cut, Observer, Replay, Step, Steps, StorePiece};
use crashproof_trace::{EventKind, Item, PmAddress, StackId, TraceFile, TraceReader};
use crashproof_wire::recovery::PAGE;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::campaign::{CampaignOptions, surveyed_files};
use crate::edges::{Edges, Ties};
use crate::error::CrashError;
use crate::executor::StoreId;
use crate::hash::{self, Content};
use crate::image::Image;
use crate::representative::Show;
use crate::state::{
    After, CrashPoint, Pending, PendingLine, PendingStore, PointHead, PointKind, UncertainLine, write_store,
};
use crate::window::{Place, Window};

/// At which places a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    CrashPoints,
    /// After each store whose call path is new, before and after file operations, and at the end.
    NewStacks,
}

/// An event that is being taken step by step.
struct Held {
    seq: u64,
    thread: u32,
    stack: StackId,
    /// The next step, and those after it.
    step: Step,
    rest: Steps,
    /// The file's new name, if it is renamed.
    path: Option<String>,
    /// Pieces of its store that are done.
    stored: u16,
    /// The crash point before its next step has been passed.
    passed: bool,
}

impl Held {
    /// Pieces of its store that are left.
    fn pieces(&self) -> impl Iterator<Item = StorePiece> {
        [self.step]
            .into_iter()
            .chain(self.rest.clone())
            .filter_map(|step| match step {
                Step::Store(piece) => Some(piece),
                _ => None,
            })
    }
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
    fn add(&mut self, at: LineAddress, unit: u64, change: u128) {
        if change != 0 {
            self.hash = self.hash.wrapping_add(change);
            let page = self.pages.entry(page_of(at, unit)).or_default();
            *page = page.wrapping_add(change);
        }
    }

    /// Writes the bytes in which a line differs.
    fn write(&mut self, at: LineAddress, old: &[u8], new: &[u8], image: &mut (impl Image + ?Sized)) {
        self.add(at, old.len() as u64, hash::change(at, old, new));
        image.write_difference(at, old, new);
    }
}

/// What is guaranteed persistent, and how many lines are not.
#[derive(Default)]
struct Floor {
    base: Base,
    /// Bytes of a line, or of a unit of another size.
    unit: u64,
    reorder: bool,
    /// Each set of a line's stores is an option, because there are edges.
    exact: bool,
    /// Uncertain lines by file and page.
    crowded: FxHashMap<(u32, u64), u32>,
    /// How many lines have so many options.
    counts: BTreeMap<u64, u64>,
    /// Lines that changed since the last point.
    changed: Vec<LineAddress>,
}

impl Floor {
    fn count_out(&mut self, counted: u64) {
        if let Some(lines) = self.counts.get_mut(&counted) {
            *lines -= 1;
            if *lines == 0 {
                self.counts.remove(&counted);
            }
        }
    }
}

/// Keeps the image at what is guaranteed persistent, through the steps of an event.
struct Raise<'c, I: ?Sized> {
    floor: &'c mut Floor,
    image: &'c mut I,
    seq: u64,
    stack: StackId,
    /// Of the store or write.
    data: &'c [u8],
    /// Where a write begins.
    written_at: u64,
}

impl<I: Image + ?Sized> Raise<'_, I> {
    /// Changes what is guaranteed persistent of a line, in the image too. There is a crash point just before that, or there
    /// is none yet. `cut`: the file's end now is in the line, so that its contents are new ones.
    fn persist(
        &mut self,
        at: LineAddress,
        line: &mut Arc<UncertainLine>,
        cut: bool,
        change: impl FnOnce(&mut PendingLine, &mut Content),
    ) {
        let line = Arc::make_mut(line);
        let old = line.base().clone();
        line.persist(change);
        self.floor.base.write(at, &old, line.base(), self.image);
        if !line.line().is_clean() {
            line.refresh();
            if !cut {
                // The point just before had all that is left.
                line.settle();
            }
            self.floor.changed.push(at);
        }
    }
}

impl<I: Image + ?Sized> Observer for Raise<'_, I> {
    type Line = Arc<UncertainLine>;

    fn tag(&mut self, piece: &StorePiece) -> Pending {
        Pending {
            id: StoreId {
                seq: self.seq,
                piece: piece.number,
            },
            stack: self.stack,
            start: piece.start,
            data: piece.data(self.data).into(),
        }
    }

    fn open(&mut self, at: LineAddress) -> Option<Arc<UncertainLine>> {
        let Floor {
            unit, reorder, exact, ..
        } = *self.floor;
        *self.floor.crowded.entry(page_of(at, unit)).or_default() += 1;
        let base = self.image.read_unit(at, unit);
        Some(Arc::new(UncertainLine::new(at, base, reorder, exact)))
    }

    fn stored(&mut self, at: LineAddress, line: &mut Arc<UncertainLine>, store: PendingStore) {
        Arc::make_mut(line).store(store);
        if self.floor.changed.last() != Some(&at) {
            self.floor.changed.push(at);
        }
    }

    fn stored_durably(&mut self, at: LineAddress, line: Option<&mut Arc<UncertainLine>>, store: PendingStore) {
        if let Some(line) = line {
            self.persist(at, line, false, |line, base| {
                write_store(base, &store);
                line.store(Model::Eadr, Keep::All, store);
            });
        } else {
            let old = self.image.read_unit(at, self.floor.unit);
            let mut new = old.clone();
            write_store(&mut new, &store);
            self.floor.base.write(at, &old, &new, self.image);
        }
    }

    fn change(&mut self, at: LineAddress, line: &mut Arc<UncertainLine>, change: Change<Ranges>) {
        let (data, written_at) = (self.data, self.written_at);
        let start = line.start();
        let cut = matches!(change, Change::Truncate(_));
        self.persist(at, line, cut, |line, base| {
            if let Change::Overwrite(bytes) | Change::Truncate(bytes) = &change {
                for range in bytes.iter() {
                    let from = start + range.start as u64;
                    let part = &mut base[range];
                    if cut {
                        part.fill(0);
                    } else {
                        part.copy_from_slice(&data[(from - written_at) as usize..][..part.len()]);
                    }
                }
            }
            change.apply(line, |store| write_store(base, store));
        });
    }

    fn closed(&mut self, at: LineAddress, line: Arc<UncertainLine>) {
        self.floor.count_out(line.counted);
        let page = page_of(at, self.floor.unit);
        if let Some(lines) = self.floor.crowded.get_mut(&page) {
            *lines -= 1;
            if *lines == 0 {
                self.floor.crowded.remove(&page);
            }
        }
    }
}

pub(crate) struct Cursor {
    reader: TraceReader,
    cut: Cut,
    stops: Stops,
    window: Window,
    replay: Replay<Arc<UncertainLine>>,
    floor: Floor,
    files: Vec<FileState>,
    output: Vec<u8>,
    held: Option<Held>,
    /// What `held` stores or writes.
    data: Vec<u8>,
    after: Option<After>,
    /// The event before which the last stop was.
    since: u64,
    all_fresh: bool,
    started: bool,
    ended: bool,
    /// The next stop is after a file operation.
    file_operation: bool,
    seen_stacks: FxHashSet<(StackId, StackId)>,
    /// Points so far that have states of their own.
    points: u64,
    head: Option<PointHead>,
    edges: Option<Arc<dyn Edges>>,
    /// Lines of which some combinations were left out.
    pub capped: FxHashSet<LineAddress>,
}

impl Cursor {
    /// Begins at the start of the trace, and makes the image what it was there.
    pub(crate) fn open(
        trace: &TraceFile,
        options: &CampaignOptions,
        stops: Stops,
        image: &mut (impl Image + ?Sized),
    ) -> Result<Cursor, CrashError> {
        let mut cursor = Cursor {
            reader: trace.files()?,
            cut: options.cut(),
            stops,
            window: Window::new(options.from.as_deref(), options.until.as_deref()),
            replay: Replay::of_units(options.model, options.unit),
            floor: Floor {
                unit: options.unit,
                reorder: options.reorder_in_line,
                exact: options.edges.is_some(),
                ..Floor::default()
            },
            files: Vec::new(),
            output: Vec::new(),
            held: None,
            data: Vec::new(),
            after: None,
            since: 0,
            all_fresh: true,
            started: false,
            ended: false,
            file_operation: false,
            seen_stacks: FxHashSet::default(),
            points: 0,
            head: None,
            edges: options.edges.clone(),
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

    pub(crate) fn output(&self) -> &[u8] {
        &self.output
    }

    /// Of each file: how large it is, and what it is called if it is there.
    pub(crate) fn sizes_and_paths(&self) -> Vec<(u64, Option<String>)> {
        self.files.iter().map(|file| (file.size, file.path.clone())).collect()
    }

    pub(crate) fn place(&self) -> Place {
        self.window.place()
    }

    /// Hash of what is guaranteed persistent of a page.
    pub(crate) fn page_hash(&self, file: u32, page: u64) -> u128 {
        self.floor.base.pages.get(&(file, page)).copied().unwrap_or(0)
    }

    /// Goes to the next crash point. The image has to be at what is guaranteed persistent.
    pub(crate) fn next(&mut self, image: &mut (impl Image + ?Sized)) -> Result<Option<&PointHead>, CrashError> {
        self.next_showing(image, &mut |_, _| {})
    }

    /// The same, and shows the events that it comes to.
    pub(crate) fn next_showing(
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
                && self.is_stop(held)
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
    pub(crate) fn go_to(&mut self, seq: u64, image: &mut (impl Image + ?Sized)) -> Result<(), CrashError> {
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
    pub(crate) fn persist_only(
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
        while within && self.held.as_ref().is_some_and(|held| held.step == Step::Fence) {
            self.step(image);
        }
        for line in self.replay.lines() {
            let content = line.content_with(|id| persisted.contains(&id));
            image.write_difference(line.at, line.base(), &content);
        }
        let pieces = self
            .held
            .iter()
            .flat_map(|held| held.pieces().map(|piece| (held.seq, piece)));
        for (seq, piece) in pieces {
            let id = StoreId {
                seq,
                piece: piece.number,
            };
            if persisted.contains(&id) {
                let at = piece.at();
                image.write(at.file.index(), at.offset, piece.data(&self.data));
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
        self.replay.event(&event);
        if let EventKind::Output { data, .. } = event.kind {
            self.output.extend_from_slice(data);
            self.all_fresh = true;
            return Ok(Read::Event);
        }
        // A flush of a line with nothing uncertain does nothing, and a program that flushes a whole file for a few stores has millions of them.
        let mut steps = Steps::of(&event.kind, self.cut);
        match steps.next() {
            None => return Ok(Read::Event),
            Some(Step::Flush { line, .. }) if self.replay.line(line).is_none() => return Ok(Read::Event),
            Some(step) => {
                self.held = Some(Held {
                    seq: event.seq,
                    thread: event.thread.0,
                    stack: event.stack,
                    step,
                    rest: steps,
                    path: match event.kind {
                        EventKind::Rename { path, .. } => path.map(str::to_owned),
                        _ => None,
                    },
                    stored: 0,
                    passed: false,
                });
            }
        }
        if let EventKind::Store { data, .. } | EventKind::FileWrite { data, .. } = event.kind {
            self.data.clear();
            self.data.extend_from_slice(data);
        }
        Ok(Read::Event)
    }

    /// Whether a crash just before the next step is to be looked at.
    fn is_stop(&self, held: &Held) -> bool {
        if self.window.place() != Place::Within {
            return false;
        }
        let changes_file = match held.step {
            Step::Resize { .. } | Step::Write { .. } | Step::Rename { .. } => true,
            // A file that the program made appears.
            Step::Map { file } => self.started && self.appears(file.index()),
            _ => false,
        };
        if changes_file || self.stops == Stops::NewStacks {
            return changes_file;
        }
        !self.started && matches!(held.step, Step::Store(_)) || self.replay.raises_floor(held.thread, &held.step)
    }

    fn appears(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|f| !f.mapped && f.path.is_none())
    }

    /// Takes the next step. If there is a stop after it: the event and its call path.
    fn step(&mut self, image: &mut (impl Image + ?Sized)) -> Option<(u64, StackId)> {
        let held = self.held.as_mut()?;
        let (seq, thread, stack, step) = (held.seq, held.thread, held.stack, held.step);
        let path = held.path.take();
        held.passed = false;
        let next = held.rest.next();
        let last = next.is_none();
        match next {
            Some(next) => held.step = next,
            None => self.held = None,
        }
        let mut written_at = 0;
        match step {
            Step::Store(piece) => {
                if let Some(held) = &mut self.held {
                    held.stored += 1;
                }
                let id = StoreId {
                    seq,
                    piece: piece.number,
                };
                self.after = Some(After { id, stack });
                self.all_fresh |= self.replay.raises_floor(thread, &step);
            }
            Step::Write { at, .. } => {
                let data = std::mem::take(&mut self.data);
                self.write_durable(at, &data, image);
                self.data = data;
                self.file_operation = true;
                written_at = at.offset;
            }
            _ => {}
        }
        let mut raise = Raise {
            floor: &mut self.floor,
            image: &mut *image,
            seq,
            stack,
            data: &self.data,
            written_at,
        };
        self.replay.step(thread, &step, &mut raise);
        let mut file_changed = true;
        match step {
            Step::Resize { file, size } => self.resize(file.index(), size, image),
            Step::Rename { file } => self.rename(file.index(), path, image),
            Step::Map { file } => file_changed = self.map(file.index(), image),
            _ => {}
        }
        if self.stops != Stops::NewStacks || self.window.place() != Place::Within || !last {
            return None;
        }
        let stops = if matches!(step, Step::Store(_)) {
            self.seen_stacks.insert((stack, stack))
        } else {
            file_changed && self.file_operation
        };
        self.file_operation = false;
        stops.then_some((seq, stack))
    }

    /// By write(2) and the like: durable at once. What was stored there and is not persistent is the replay's.
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
        let unit = self.cut.unit;
        for part in cut(at.offset, data.len() as u64, unit) {
            let line_at = LineAddress {
                file: at.file.0,
                line: part.start / unit,
            };
            if self.replay.line(line_at).is_none() {
                let start = (part.start % unit) as usize;
                let part = &data[(part.start - at.offset) as usize..(part.end - at.offset) as usize];
                let old = image.read_unit(line_at, unit);
                let mut new = old.clone();
                new[start..start + part.len()].copy_from_slice(part);
                self.floor.base.write(line_at, &old, &new, image);
            }
        }
    }

    fn resize(&mut self, file: usize, size: u64, image: &mut (impl Image + ?Sized)) {
        let Some(state) = self.files.get_mut(file) else {
            return;
        };
        self.all_fresh = true;
        self.file_operation = true;
        let unit = self.cut.unit;
        let shrinks = size < state.size;
        state.size = size;
        if shrinks {
            let base = &mut self.floor.base;
            let pages = base.pages.keys();
            let cut: Vec<u64> = pages
                .filter(|(of, page)| *of == file as u32 && (page + 1) * PAGE > size)
                .map(|&(_, page)| page)
                .collect();
            for page in cut {
                if page * PAGE >= size {
                    let sum = base.pages.remove(&(file as u32, page)).unwrap_or(0);
                    base.hash = base.hash.wrapping_sub(sum);
                    continue;
                }
                for line in size / unit..(page + 1) * PAGE / unit {
                    let at = LineAddress {
                        file: file as u32,
                        line,
                    };
                    let old = image.read_unit(at, unit);
                    let mut new = old.clone();
                    new[size.saturating_sub(line * unit) as usize..].fill(0);
                    base.write(at, &old, &new, image);
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

    /// At a point: pages (index of the file, offset) with a line that changed since the point before, and another that is
    /// uncertain. A recovery may read one of them and not the other.
    pub(crate) fn shared_pages(&self) -> impl Iterator<Item = (usize, u64)> {
        let pages = self.floor.changed.iter().map(|&at| page_of(at, self.floor.unit));
        pages
            .filter(|page| self.floor.crowded.get(page).is_some_and(|&lines| lines > 1))
            .map(|(file, page)| (file as usize, page * PAGE))
    }

    fn stop(&mut self, seq: u64, within: u16, stack: StackId) -> &PointHead {
        self.floor.changed.sort_unstable();
        self.floor.changed.dedup();
        let mut changed = std::mem::take(&mut self.floor.changed);
        changed.retain(|at| self.replay.line(*at).is_some());
        for line in changed.iter().filter_map(|at| self.replay.line(*at)) {
            self.floor.count_out(line.counted);
        }
        let rest = self
            .floor
            .counts
            .iter()
            .filter(|(options, _)| **options > 1)
            .map(|(&options, &lines)| (options as u128).saturating_pow(lines.try_into().unwrap_or(u32::MAX)))
            .fold(1, u128::saturating_mul);
        let (mut all, mut old) = (rest, rest);
        let mut fresh = 0;
        for at in &changed {
            let Some(line) = self.replay.line_mut(*at) else {
                continue;
            };
            let line = Arc::make_mut(line);
            line.refresh();
            line.counted = line.count();
            *self.floor.counts.entry(line.counted).or_default() += 1;
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
        self.floor.changed = changed;
        let what = if self.started {
            PointKind::Middle
        } else {
            PointKind::Start
        };
        self.started = true;
        let after_stack = self.after.map_or(StackId(0), |after| after.stack);
        let new_stack = self.stops == Stops::CrashPoints && self.seen_stacks.insert((stack, after_stack));
        let number = self.points;
        let mut head = PointHead {
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
        };
        if self.edges.is_some() {
            let point = self.point_with(&head);
            head.states = point
                .products()
                .map(|product| product.count())
                .fold(0, u128::saturating_add);
        }
        self.points += (head.states > 0) as u64;
        self.head.insert(head)
    }

    fn leave_point(&mut self) {
        for at in self.floor.changed.drain(..) {
            if let Some(line) = self.replay.line_mut(at) {
                Arc::make_mut(line).settle();
            }
        }
        self.all_fresh = false;
    }

    /// The point that [`Cursor::next`] went to.
    pub(crate) fn point(&self) -> Option<CrashPoint> {
        self.head.as_ref().map(|head| self.point_with(head))
    }

    fn point_with(&self, head: &PointHead) -> CrashPoint {
        let mut lines: Vec<_> = self.replay.lines().cloned().collect();
        lines.sort_unstable_by_key(|line| line.at);
        let fresh = self
            .floor
            .changed
            .iter()
            .filter_map(|at| lines.binary_search_by_key(at, |line| line.at).ok())
            .filter(|&index| lines[index].fresh_from() < lines[index].count())
            .collect();
        let mut torn = (Vec::new(), Vec::new());
        if let Some(held) = self.held.as_ref().filter(|_| head.within > 0) {
            let piece = |piece| StoreId { seq: head.seq, piece };
            let left = held.pieces().count() as u16;
            torn.0.extend((0..held.stored).map(piece));
            torn.1.extend((held.stored..held.stored + left).map(piece));
        }
        CrashPoint {
            ties: self.edges.as_deref().map(|edges| Ties::new(&lines, edges)),
            lines,
            fresh,
            all_fresh: self.all_fresh,
            hash: self.floor.base.hash,
            files: self.files_hash(),
            output: hash::pair(4, self.output.len() as u64),
            within: torn,
            head: head.clone(),
        }
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

/// The page of a unit, which is not larger than a page.
fn page_of(at: LineAddress, unit: u64) -> (u32, u64) {
    (at.file, at.line * unit / PAGE)
}

enum Read {
    Event,
    WindowEnds { seq: u64 },
    TraceEnds,
}
