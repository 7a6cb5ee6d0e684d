//! The cache lines of a crash as a picture: what happened to them before power failed, and what became of each store.
//!
//! One pass over the trace draws all causes, by the [`Replay`] that makes crash states, too. Of each cause the last events before the crash are kept, all that have to do with the stores
//! that it names, and a few of those that would have come; gaps say how many are left out.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

use crashproof_finding::picture::{
    LineState, StoreOutcome, Stored, Timeline, TimelineEvent, TimelineKind, TimelineLine,
};
use crashproof_finding::{FileOperation, Frame};
use crashproof_model::{Awaits, ByteSet, Line, LineAddress, Ranges, Tag};
use crashproof_replay::{Change, Cut, Observer, Replay, Step, Steps, StorePiece};
use crashproof_stacks::file_name;
use crashproof_trace::{Event, EventKind, FileId, FlushKind, Item, PmAddress, ReadError, StackId, Tables, TraceFile};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cause::Cause;
use super::history::Laboratory;
use super::places::{Places, blamed};
use crate::campaign::CampaignOptions;
use crate::executor::StoreId;

/// Rows.
const MAX_LINES: usize = 12;
/// Events that are kept before the crash, of those that no store of the cause is among.
const BEFORE: usize = 48;
/// The same after it.
const AFTER: usize = 8;
/// Events with stores of the cause that are kept.
const MAX_NAMED: usize = 48;
/// Bytes of what is stored, and characters of what is output.
const MAX_DATA: usize = 64;
const MAX_TEXT: usize = 120;

/// What is to be drawn of a cause; noted when it is put into words, because the laboratory moves on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Power fails just before this event.
    pub point: u64,
    /// Of the stores before, those that the image lacks.
    missing: BTreeSet<StoreId>,
    /// The stores that the cause names, missing ones first, with the lines that they touch.
    named: Vec<(StoreId, Option<LineAddress>)>,
    /// The files of these.
    files: BTreeSet<u32>,
    /// Bytes of a line.
    unit: u64,
}

impl Scene {
    pub(crate) fn new(cause: &Cause, lab: &Laboratory) -> Scene {
        let (first, end) = lab.window();
        let state = &cause.state;
        let last = state.point.checked_sub(1).filter(|&last| last >= first);
        let point = last.map_or(0, |last| lab.change(last).id.seq + 1);
        // A crash within an event, after some pieces of its store: the rest had not persisted.
        let rest = (state.point..end).take_while(|&index| lab.change(index).id.seq + 1 == point);
        let missing = state
            .missing
            .iter()
            .copied()
            .filter(|&index| index >= first)
            .chain(rest);
        let named = cause.missing.iter().chain(&cause.persisted).map(|&index| {
            let change = lab.change(index);
            let line = |(offset, _): (u64, &[u8])| LineAddress {
                file: change.file as u32,
                line: offset / lab.unit(),
            };
            (change.file as u32, change.id, change.data().map(line))
        });
        let named: Vec<_> = named.collect();
        Scene {
            point,
            unit: lab.unit(),
            missing: missing.map(|index| lab.change(index).id).collect(),
            files: named.iter().map(|&(file, ..)| file).collect(),
            named: named.into_iter().map(|(_, id, line)| (id, line)).collect(),
        }
    }

    /// Numbers of the events with stores that the cause names.
    pub(crate) fn events(&self) -> BTreeSet<u64> {
        self.named.iter().map(|(id, _)| id.seq).collect()
    }

    pub(crate) fn outcome(&self, event: u64) -> StoreOutcome {
        match event {
            event if event >= self.point => StoreOutcome::Later,
            event if self.missing.iter().any(|id| id.seq == event) => StoreOutcome::Missing,
            _ => StoreOutcome::Persisted,
        }
    }
}

/// The timelines of the scenes.
pub(super) fn draw(
    trace: &TraceFile,
    options: &CampaignOptions,
    scenes: &[Scene],
    places: &mut Places,
) -> Result<Vec<Timeline>, ReadError> {
    let mut reader = trace.files()?;
    let mut watch = Watch::new(options, scenes);
    while watch.drawings.iter().any(|drawing| !drawing.done)
        && let Some(item) = reader.next()?
    {
        if let Item::Event(event) = item {
            watch.event(&event);
        }
    }
    let Watch { lines, drawings, .. } = watch;
    let finish = |mut drawing: Drawing| {
        if !drawing.crashed {
            drawing.crash(&lines);
        }
        drawing.finish(reader.tables(), places)
    };
    Ok(drawings.into_iter().map(finish).collect())
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Piece(StoreId);

impl<B> Tag<B> for Piece {
    type Site = ();
}

type Lines = Replay<Line<Piece, Ranges>>;

struct Watch<'a> {
    /// Only the lines of drawings.
    lines: Lines,
    cut: Cut,
    /// Drawings that have the line.
    drawings_of: FxHashMap<LineAddress, Vec<usize>>,
    drawings: Vec<Drawing<'a>>,
    mapped: FxHashSet<FileId>,
}

/// What an event does to the lines of drawings.
struct Touched<'w> {
    drawings_of: &'w FxHashMap<LineAddress, Vec<usize>>,
    unit: u64,
    seq: u64,
    lines: Vec<LineAddress>,
    pieces: Vec<(StoreId, StorePiece)>,
}

impl Observer for Touched<'_> {
    type Line = Line<Piece, Ranges>;

    fn tag(&mut self, piece: &StorePiece) -> Piece {
        Piece(StoreId {
            seq: self.seq,
            piece: piece.number,
        })
    }

    fn open(&mut self, at: LineAddress) -> Option<Line<Piece, Ranges>> {
        self.drawings_of.contains_key(&at).then(Line::default)
    }

    fn change(&mut self, at: LineAddress, line: &mut Line<Piece, Ranges>, change: Change<Ranges>) {
        change.apply(line, |_| {});
        self.lines.push(at);
    }
}

impl Touched<'_> {
    /// What is shown of a step even if it changes nothing that is not persistent.
    fn step(&mut self, step: &Step) {
        match step {
            Step::Store(piece) if self.drawings_of.contains_key(&piece.line) => {
                let Piece(id) = self.tag(piece);
                self.pieces.push((id, *piece));
                self.lines.push(piece.line);
            }
            Step::Flush { line, .. } => self.lines.extend(self.drawings_of.contains_key(line).then_some(*line)),
            Step::Write { at, len } => {
                let end = at.offset.saturating_add(*len);
                let lines = self
                    .drawings_of
                    .keys()
                    .filter(|line| line.file == at.file.0)
                    .filter(|line| !Ranges::of_unit(line.line, self.unit, at.offset, end).is_empty());
                self.lines.extend(lines.copied());
            }
            _ => {}
        }
    }
}

/// What an event is, whatever lines it is about.
struct Deed {
    kind: TimelineKind,
    stored: Option<DeedStore>,
    text: Option<String>,
}

struct DeedStore {
    at: PmAddress,
    length: u64,
    data: String,
    pieces: Vec<(StoreId, StorePiece)>,
}

impl From<TimelineKind> for Deed {
    fn from(kind: TimelineKind) -> Deed {
        Deed {
            kind,
            stored: None,
            text: None,
        }
    }
}

impl<'a> Watch<'a> {
    fn new(options: &CampaignOptions, scenes: &'a [Scene]) -> Watch<'a> {
        let mut drawings_of: FxHashMap<LineAddress, Vec<usize>> = FxHashMap::default();
        let mut drawings = Vec::new();
        for (number, scene) in scenes.iter().enumerate() {
            // Missing ones and persisted ones in turn: both sides are to be seen.
            let of = |missing: bool| {
                let side = move |id: &StoreId| (scene.missing.contains(id) || id.seq >= scene.point) == missing;
                let named = scene.named.iter().filter(move |(id, _)| side(id));
                named.filter_map(|&(_, line)| line)
            };
            let (mut missing, mut persisted) = (of(true), of(false));
            let mut rows: BTreeSet<LineAddress> = BTreeSet::new();
            let mut more: BTreeSet<LineAddress> = BTreeSet::new();
            loop {
                let next = [missing.next(), persisted.next()];
                if next == [None, None] {
                    break;
                }
                for line in next.into_iter().flatten() {
                    match rows.len() < MAX_LINES {
                        true => rows.insert(line),
                        false => more.insert(line),
                    };
                }
            }
            let rows: Vec<LineAddress> = rows.into_iter().collect();
            for line in &rows {
                drawings_of.entry(*line).or_default().push(number);
            }
            let more_lines = more.iter().filter(|line| !rows.contains(line)).count() as u64;
            drawings.push(Drawing::new(scene, rows, more_lines));
        }
        Watch {
            lines: Replay::of_units(options.model, options.unit),
            cut: options.cut(),
            drawings_of,
            drawings,
            mapped: FxHashSet::default(),
        }
    }

    fn event(&mut self, event: &Event<'_>) {
        for drawing in &mut self.drawings {
            if !drawing.crashed && event.seq >= drawing.scene.point {
                drawing.crash(&self.lines);
            }
        }
        let mut touched = Touched {
            drawings_of: &self.drawings_of,
            unit: self.cut.unit,
            seq: event.seq,
            lines: Vec::new(),
            pieces: Vec::new(),
        };
        self.lines.event(event);
        for step in Steps::of(&event.kind, self.cut) {
            touched.step(&step);
            self.lines.step(event.thread.0, &step, &mut touched);
        }
        let Touched { lines, pieces, .. } = touched;
        let stored = |at, data: &[u8], pieces| DeedStore {
            at,
            length: data.len() as u64,
            data: digits(data),
            pieces,
        };
        let deed = match event.kind {
            EventKind::Store { at, data, flags } => Deed {
                stored: (!pieces.is_empty()).then(|| stored(at, data, pieces)),
                ..if flags.nontemporal {
                    TimelineKind::NtStore
                } else {
                    TimelineKind::Store
                }
                .into()
            },
            EventKind::Flush {
                kind: FlushKind::Clflush,
                ..
            } => TimelineKind::FlushNow.into(),
            EventKind::Flush { .. } => TimelineKind::Flush.into(),
            EventKind::Fence { .. } => TimelineKind::Fence.into(),
            EventKind::Sync { .. } => TimelineKind::Sync.into(),
            EventKind::FileWrite { at, data } => Deed {
                stored: Some(stored(at, data, Vec::new())),
                ..TimelineKind::Write.into()
            },
            EventKind::Resize { file, size } => {
                return self.file_operation(event, file, FileOperation::Resized { size });
            }
            EventKind::Rename { file, path } => {
                let operation = match path {
                    Some(path) => FileOperation::Renamed { path: path.to_owned() },
                    None => FileOperation::Removed,
                };
                return self.file_operation(event, file, operation);
            }
            EventKind::Map { file, .. } if self.mapped.insert(file) => {
                return self.file_operation(event, file, FileOperation::Made);
            }
            EventKind::Output { data, .. } => {
                let text: String = String::from_utf8_lossy(data).chars().take(MAX_TEXT).collect();
                for drawing in self.drawings.iter_mut().filter(|drawing| !drawing.done) {
                    drawing.output(event, &text, &self.lines);
                }
                return;
            }
            _ => return,
        };
        self.show(event, &deed, &lines);
    }

    /// Shows an event to the drawings that have one of the lines.
    fn show(&mut self, event: &Event<'_>, deed: &Deed, touched: &[LineAddress]) {
        let drawings = touched.iter().filter_map(|at| self.drawings_of.get(at)).flatten();
        for drawing in drawings.copied().collect::<BTreeSet<usize>>() {
            self.drawings[drawing].add(event, deed, touched, &self.lines);
        }
    }

    fn file_operation(&mut self, event: &Event<'_>, file: FileId, operation: FileOperation) {
        for drawing in &mut self.drawings {
            let named = drawing.scene.named.iter().any(|(id, _)| id.seq == event.seq);
            // That a file is mapped says nothing, unless that is where it appears.
            if drawing.done || !named && (operation == FileOperation::Made || !drawing.scene.files.contains(&file.0)) {
                continue;
            }
            let operation = (file, operation.clone());
            drawing.add_operation(event, operation, &self.lines);
        }
    }
}

/// An event of a drawing.
struct Shown {
    seq: u64,
    kind: TimelineKind,
    thread: u32,
    stack: StackId,
    rows: Vec<usize>,
    stored: Option<ShownStore>,
    text: Option<String>,
    /// What is to be put into words when the files' names are known.
    operation: Option<(FileId, FileOperation)>,
    /// It has to do with a store that the cause names.
    named: bool,
    /// Of all rows, after it.
    states: Vec<LineState>,
}

struct ShownStore {
    offset: u64,
    length: u64,
    data: String,
    pieces: Vec<(StoreId, u64, u64)>,
}

enum Entry {
    Event(Shown),
    Gap { omitted: u64, states: Vec<LineState> },
    Crash,
}

struct Drawing<'a> {
    scene: &'a Scene,
    rows: Vec<LineAddress>,
    more_lines: u64,
    /// Left out before all else, and the rows' states then.
    omitted: u64,
    initial: Vec<LineState>,
    entries: Vec<Entry>,
    /// The last events, before they become entries.
    recent: VecDeque<Shown>,
    named: usize,
    crashed: bool,
    /// Events after the crash.
    after: usize,
    /// Nothing more is to be shown.
    done: bool,
    /// When power failed, not guaranteed persistent.
    uncertain: FxHashSet<StoreId>,
}

impl<'a> Drawing<'a> {
    fn new(scene: &'a Scene, rows: Vec<LineAddress>, more_lines: u64) -> Drawing<'a> {
        Drawing {
            initial: vec![LineState::Persistent; rows.len()],
            done: scene.named.is_empty(),
            scene,
            rows,
            more_lines,
            omitted: 0,
            entries: Vec::new(),
            recent: VecDeque::new(),
            named: 0,
            crashed: false,
            after: 0,
            uncertain: FxHashSet::default(),
        }
    }

    fn states(&self, lines: &Lines) -> Vec<LineState> {
        let state = |at: &LineAddress| match lines.line(*at).and_then(Line::awaits) {
            None => LineState::Persistent,
            Some(Awaits::Flush) => LineState::Dirty,
            Some(Awaits::Fence) => LineState::Pending,
        };
        self.rows.iter().map(state).collect()
    }

    fn shown(&self, event: &Event<'_>, kind: TimelineKind, lines: &Lines) -> Shown {
        Shown {
            seq: event.seq,
            kind,
            thread: event.thread.0,
            stack: event.stack,
            rows: Vec::new(),
            stored: None,
            text: None,
            operation: None,
            named: self.scene.named.iter().any(|(id, _)| id.seq == event.seq),
            states: self.states(lines),
        }
    }

    fn add(&mut self, event: &Event<'_>, deed: &Deed, touched: &[LineAddress], lines: &Lines) {
        if self.done {
            return;
        }
        let row = |at: &LineAddress| self.rows.binary_search(at).ok();
        let mut rows: Vec<usize> = touched.iter().filter_map(row).collect();
        rows.sort_unstable();
        rows.dedup();
        let stored = deed.stored.as_ref().map(|stored| ShownStore {
            offset: stored.at.offset,
            length: stored.length,
            data: stored.data.clone(),
            pieces: stored
                .pieces
                .iter()
                .filter(|(_, piece)| row(&piece.line).is_some())
                .map(|(id, piece)| (*id, piece.offset, piece.len.into()))
                .collect(),
        });
        let shown = Shown {
            rows,
            stored,
            text: deed.text.clone(),
            ..self.shown(event, deed.kind, lines)
        };
        self.push(shown);
    }

    fn add_operation(&mut self, event: &Event<'_>, operation: (FileId, FileOperation), lines: &Lines) {
        let shown = Shown {
            operation: Some(operation),
            ..self.shown(event, TimelineKind::File, lines)
        };
        self.push(shown);
    }

    /// One event for what is printed in a row; nothing before the first event of the lines.
    fn output(&mut self, event: &Event<'_>, text: &str, lines: &Lines) {
        if self.recent.is_empty() && self.entries.is_empty() {
            return;
        }
        if let Some(last) = self.recent.back_mut()
            && last.kind == TimelineKind::Output
        {
            let whole = last.text.take().unwrap_or_default() + text;
            last.text = Some(whole.chars().take(MAX_TEXT).collect());
            return;
        }
        let shown = Shown {
            text: Some(text.to_owned()),
            ..self.shown(event, TimelineKind::Output, lines)
        };
        self.push(shown);
    }

    fn push(&mut self, mut shown: Shown) {
        if shown.named {
            self.named += 1;
            shown.named = self.named <= MAX_NAMED;
        }
        if !self.crashed {
            self.recent.push_back(shown);
            if self.recent.len() > BEFORE
                && let Some(oldest) = self.recent.pop_front()
            {
                self.keep(oldest);
            }
            return;
        }
        self.after += 1;
        if self.after <= AFTER || shown.named {
            self.entries.push(Entry::Event(shown));
        } else {
            self.leave_out(shown);
        }
        let last = self.scene.named.iter().map(|(id, _)| id.seq).max();
        let seen = match self.entries.last() {
            Some(Entry::Event(shown)) => last <= Some(shown.seq),
            _ => false,
        };
        self.done = self.after >= AFTER && (seen || last < Some(self.scene.point)) || self.named > MAX_NAMED;
    }

    /// An event that is no longer one of the last.
    fn keep(&mut self, shown: Shown) {
        if shown.named {
            self.entries.push(Entry::Event(shown));
        } else {
            self.leave_out(shown);
        }
    }

    fn leave_out(&mut self, shown: Shown) {
        match self.entries.last_mut() {
            None => {
                self.omitted += 1;
                self.initial = shown.states;
            }
            Some(Entry::Gap { omitted, states }) => {
                *omitted += 1;
                *states = shown.states;
            }
            Some(_) => self.entries.push(Entry::Gap {
                omitted: 1,
                states: shown.states,
            }),
        }
    }

    /// Power fails here.
    fn crash(&mut self, lines: &Lines) {
        self.crashed = true;
        let stores = self.rows.iter().filter_map(|at| lines.line(*at));
        let stores = stores.flat_map(|line| line.stores());
        self.uncertain = stores.map(|store| store.tag.0).collect();
        self.entries.extend(self.recent.drain(..).map(Entry::Event));
        self.entries.push(Entry::Crash);
    }

    fn outcome(&self, id: StoreId) -> StoreOutcome {
        if self.scene.missing.contains(&id) {
            StoreOutcome::Missing
        } else if id.seq >= self.scene.point {
            StoreOutcome::Later
        } else if self.uncertain.contains(&id) {
            StoreOutcome::Persisted
        } else {
            StoreOutcome::Certain
        }
    }

    fn finish(mut self, tables: &Tables, places: &mut Places) -> Timeline {
        // What ends with a gap ends before it.
        if let Some(Entry::Gap { .. }) = self.entries.last() {
            self.entries.pop();
        }
        let mut states = self.initial.clone();
        let entries = std::mem::take(&mut self.entries);
        let events = entries.into_iter().map(|entry| {
            let (mut event, now) = match entry {
                Entry::Event(shown) => self.event(shown, tables, places),
                Entry::Gap { omitted, states } => {
                    let gap = TimelineEvent {
                        omitted: Some(omitted),
                        ..blank(0, TimelineKind::Gap)
                    };
                    (gap, states)
                }
                Entry::Crash => (blank(self.scene.point, TimelineKind::Crash), states.clone()),
            };
            let changed = (0..).zip(&now).zip(&states).filter(|((_, now), before)| now != before);
            event.states = changed.map(|((row, now), _)| (row, *now)).collect();
            states = now;
            event
        });
        let events: Vec<TimelineEvent> = events.collect();
        let line = |(at, state): (&LineAddress, &LineState)| TimelineLine {
            file: path(tables, FileId(at.file)),
            offset: at.line * self.scene.unit,
            state: *state,
        };
        Timeline {
            lines: self.rows.iter().zip(&self.initial).map(line).collect(),
            events,
            omitted: self.omitted,
            more_lines: self.more_lines,
        }
    }

    fn event(&self, shown: Shown, tables: &Tables, places: &mut Places) -> (TimelineEvent, Vec<LineState>) {
        let frames = places.symbolize(shown.stack, tables).frames;
        let operation = shown.operation.map(|(file, operation)| {
            let path = path(tables, file);
            operation.in_words(file_name(&path))
        });
        let stored = shown.stored.map(|stored| Stored {
            offset: stored.offset,
            length: stored.length,
            data: stored.data,
            pieces: stored
                .pieces
                .into_iter()
                .map(|(id, offset, length)| (offset, length, self.outcome(id)))
                .collect(),
        });
        let event = TimelineEvent {
            thread: shown.thread,
            frame: blamed(&frames).cloned().unwrap_or_default(),
            lines: shown.rows,
            stored,
            text: shown.text.or(operation),
            ..blank(shown.seq, shown.kind)
        };
        (event, shown.states)
    }
}

fn blank(event: u64, kind: TimelineKind) -> TimelineEvent {
    TimelineEvent {
        event,
        kind,
        thread: 0,
        frame: Frame::default(),
        lines: Vec::new(),
        stored: None,
        text: None,
        omitted: None,
        states: Vec::new(),
    }
}

fn path(tables: &Tables, file: FileId) -> String {
    tables.file(file).map(|file| file.path.clone()).unwrap_or_default()
}

fn digits(data: &[u8]) -> String {
    let mut digits = String::new();
    for byte in &data[..data.len().min(MAX_DATA)] {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
