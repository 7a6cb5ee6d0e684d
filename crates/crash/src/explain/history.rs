//! What the trace did to the files, around a crash point, change by change; and the image that any set of those changes
//! leaves, to try a recovery on.
//!
//! A campaign only makes states that the model allows. Explaining one needs others too: the state without a certain store,
//! the program's prefix a little earlier, a later store before an earlier one. So the laboratory keeps a window of the
//! trace in memory, knows for each cache line what was there before it and which changes touched it, and makes a [`State`]
//! by writing the lines in which it differs from the one that the executor holds.
//!
//! The window moves forward with the reader. It only grows backwards by reading the trace again from its start, which
//! explaining a failure needs at most a few times.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::sync::Arc;

use crashproof_finding::OutputDifference;
use crashproof_infer::Conditions;
use crashproof_model::{Chains, LINE, Order, cut};
use crashproof_sandbox::Run;
use crashproof_trace::{EventKind, Item, ReadError, StackId, Tables, ThreadId, TraceFile, TraceReader};
use crashproof_wire::recovery::Mapping;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ExplainError;
use super::snapshots::Snapshots;
use crate::campaign::{CampaignOptions, SurveyedFile, judge, surveyed_files};
use crate::edges::{EdgesSoFar, Update};
use crate::error::CrashError;
use crate::executor::{Executor, StoreId, Verdict};
use crate::oracle::Expected;
use crate::window::{Place, Window};

/// How much of the past is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// The window is cut at its start when it holds more than this and the rest is not asked for.
    pub window: usize,
    /// Kept before what is asked for, because the next question is often about a little earlier.
    pub margin: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Reach {
            window: 1 << 20,
            margin: 1 << 12,
        }
    }
}

/// Verdicts remembered.
const MAX_VERDICTS: usize = 1 << 16;

/// A change, counted over the whole trace.
pub(super) type Index = usize;

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A piece of a store: what persists at once.
    Store {
        offset: u64,
        data: Box<[u8]>,
        nontemporal: bool,
    },
    /// By write(2): durable at once.
    Write {
        offset: u64,
        data: Box<[u8]>,
    },
    Resize {
        size: u64,
    },
    Place {
        path: Option<String>,
        /// It was not there before.
        made: bool,
    },
    /// Nothing changes but what was output, which is this long now.
    Output {
        length: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub id: StoreId,
    pub thread: ThreadId,
    pub stack: StackId,
    pub file: usize,
    pub what: What,
}

impl Change {
    pub(crate) fn is_store(&self) -> bool {
        matches!(self.what, What::Store { .. })
    }

    /// The range of the file, and what it holds after the change.
    pub(crate) fn data(&self) -> Option<(u64, &[u8])> {
        match &self.what {
            What::Store { offset, data, .. } | What::Write { offset, data } => Some((*offset, data)),
            _ => None,
        }
    }

    /// A store, as the model's edges know it.
    fn update(&self, unit: u64) -> Option<Update> {
        match self.what {
            What::Store {
                offset, nontemporal, ..
            } => Some(Update {
                id: self.id,
                file: self.file as u32,
                unit: offset / unit,
                offset,
                nontemporal,
            }),
            _ => None,
        }
    }
}

/// An image, and what had been output: the first `point` changes of the trace but `missing`, and `extra` of the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub point: Index,
    pub missing: BTreeSet<Index>,
    pub extra: BTreeSet<Index>,
    /// Bytes.
    pub output: u64,
}

impl State {
    pub(crate) fn holds(&self, index: Index) -> bool {
        if index < self.point {
            !self.missing.contains(&index)
        } else {
            self.extra.contains(&index)
        }
    }

    /// The changes that one of the two holds and the other does not.
    fn difference(&self, other: &State) -> Vec<Index> {
        let between = self.point.min(other.point)..self.point.max(other.point);
        let single = [&self.missing, &self.extra, &other.missing, &other.extra];
        let single: BTreeSet<Index> = single.into_iter().flatten().copied().collect();
        let outside = single.into_iter().filter(|index| !between.contains(index));
        outside
            .chain(between.clone())
            .filter(|&index| self.holds(index) != other.holds(index))
            .collect()
    }
}

#[derive(Clone, Debug)]
struct LineHistory {
    /// Before the window.
    before: [u8; LINE as usize],
    /// Those that write to it.
    changes: Vec<Index>,
}

#[derive(Clone, Debug, Default)]
struct FileHistory {
    /// Under its name, or it is to be.
    mapped: bool,
    /// Before the window.
    size: u64,
    path: Option<String>,
    resizes: Vec<Index>,
    places: Vec<Index>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub fails: bool,
    pub timed_out: bool,
}

pub(crate) struct Laboratory {
    trace: TraceFile,
    options: CampaignOptions,
    survey_files: Vec<SurveyedFile>,
    pub reach: Reach,
    executor: Box<dyn Executor>,
    reader: TraceReader,
    /// The part of the trace that is crashed.
    crashed: Window,
    floor: Index,
    /// The number of the window's first change.
    first: Index,
    changes: VecDeque<Change>,
    lines: FxHashMap<(usize, u64), LineHistory>,
    files: Vec<FileHistory>,
    output: Vec<u8>,
    /// Where it grew, and to what length.
    outputs: Vec<(Index, u64)>,
    mappings: Vec<Mapping>,
    /// What the executor holds.
    held: State,
    snapshots: Snapshots,
    verdicts: FxHashMap<State, Judged>,
}

impl Laboratory {
    pub(crate) fn new(
        trace: &TraceFile,
        options: &CampaignOptions,
        executor: Box<dyn Executor>,
    ) -> Result<Self, CrashError> {
        let mut lab = Laboratory {
            trace: trace.clone(),
            options: options.clone(),
            survey_files: surveyed_files(trace),
            reach: Reach::default(),
            executor,
            reader: trace.files()?,
            crashed: Window::new(options.from.as_deref(), options.until.as_deref()),
            floor: 0,
            first: 0,
            changes: VecDeque::new(),
            lines: FxHashMap::default(),
            files: Vec::new(),
            output: Vec::new(),
            outputs: Vec::new(),
            mappings: Vec::new(),
            held: State {
                point: 0,
                missing: BTreeSet::new(),
                extra: BTreeSet::new(),
                output: 0,
            },
            snapshots: Snapshots::default(),
            verdicts: FxHashMap::default(),
        };
        lab.begin()?;
        Ok(lab)
    }

    pub(crate) fn trace(&self) -> &TraceFile {
        &self.trace
    }

    /// The transactions of what has been read.
    pub(super) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// What the program relies on, where that is known.
    pub(crate) fn conditions(&self) -> Option<&Arc<Conditions>> {
        self.options.conditions.as_ref()
    }

    pub(crate) fn tables(&self) -> &Tables {
        self.trace.tables()
    }

    /// What the recovery must print: one of these. None: anything.
    pub(crate) fn expected(&self, state: &State) -> Result<Option<Vec<Expected>>, ExplainError> {
        if let Some(oracle) = &self.options.oracle {
            return Ok(Some(oracle.expected(state.output)?));
        }
        let expected = self.options.expect_output.as_ref();
        Ok(expected.map(|stdout| {
            vec![Expected {
                done: 0,
                stdout: stdout.clone(),
            }]
        }))
    }

    /// Whether what the recovery prints is judged.
    pub(crate) fn judges_output(&self) -> bool {
        self.options.expect_output.is_some() || self.options.oracle.is_some()
    }

    /// What the recovery is given after its own arguments.
    pub(crate) fn arguments(&self, state: &State) -> Vec<OsString> {
        let oracle = self.options.oracle.as_ref();
        oracle.map_or_else(Vec::new, |oracle| oracle.arguments(state.output))
    }

    /// What a driver printed beside what it had to print.
    pub(crate) fn difference(&self, state: &State, run: &Run) -> Result<Option<OutputDifference>, ExplainError> {
        let oracle = self.options.oracle.as_ref();
        let difference = oracle.map(|oracle| oracle.difference(state.output, &run.recovery.stdout));
        Ok(difference.transpose()?)
    }

    /// Which of these changes (ascending) must persist before which.
    pub(crate) fn order(&self, changes: &[Index]) -> Order {
        let CampaignOptions {
            unit, reorder_in_line, ..
        } = self.options;
        let mut edges = self.options.edges.as_deref().map(EdgesSoFar::new);
        let mut chains = Chains::default();
        for (number, &index) in changes.iter().enumerate() {
            let update = self.change(index).update(unit);
            let ordered = update.filter(|update| !update.nontemporal && !reorder_in_line);
            let before = match (&mut edges, &update) {
                (Some(edges), Some(update)) => edges.take(number, update),
                _ => Vec::new(),
            };
            chains.update(ordered.map(|update| (update.file, update.unit)), before);
        }
        chains.order()
    }

    /// Bytes of a line, or of a unit of another size.
    pub(crate) fn unit(&self) -> u64 {
        self.options.unit
    }

    /// Whether a wide store persists in pieces within a line.
    pub(crate) fn tears(&self) -> bool {
        self.options.tear
    }

    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The first crash is just before this change.
    pub(crate) fn floor(&self) -> Index {
        self.floor
    }

    /// What the program had output in a state.
    pub(crate) fn output(&self, state: &State) -> &[u8] {
        let length = (state.output as usize).min(self.output.len());
        &self.output[..length]
    }

    /// The window's first change and the one after its last.
    pub(crate) fn window(&self) -> (Index, Index) {
        (self.first, self.end())
    }

    fn end(&self) -> Index {
        self.first + self.changes.len()
    }

    /// A change of the window.
    pub(crate) fn change(&self, index: Index) -> &Change {
        &self.changes[index - self.first]
    }

    pub(crate) fn find(&self, id: StoreId) -> Option<Index> {
        let at = self.changes.binary_search_by_key(&id, |change| change.id).ok()?;
        Some(self.first + at)
    }

    /// The program's own prefix: everything up to `point` has persisted. The point is in the window, or is its end.
    pub(crate) fn prefix(&self, point: Index) -> State {
        State {
            point,
            missing: BTreeSet::new(),
            extra: BTreeSet::new(),
            output: self.output_before(point),
        }
    }

    /// Bytes that had been output before a change.
    pub(crate) fn output_before(&self, index: Index) -> u64 {
        let before = self.outputs.partition_point(|&(at, _)| at < index);
        before.checked_sub(1).map_or(0, |last| self.outputs[last].1)
    }

    /// Makes the window reach from event `earliest` to the crash just before event `point`, and gives the crash's place in it.
    pub(crate) fn open(&mut self, earliest: u64, point: u64) -> Result<Index, ExplainError> {
        let covered = self.first == 0 || self.changes.front().is_some_and(|change| change.id.seq <= earliest);
        if !covered {
            self.restart(|change, _| change.id.seq >= earliest)?;
        }
        while self.changes.back().is_none_or(|change| change.id.seq < point) && self.read_event()? {}
        let wanted = self.changes.partition_point(|change| change.id.seq < earliest);
        if self.changes.len() > self.reach.window && wanted > self.reach.margin {
            self.cut(self.first + wanted - self.reach.margin);
        }
        Ok(self.first + self.changes.partition_point(|change| change.id.seq < point))
    }

    /// Whether the trace has the change; then it is in the window, however much later it is.
    pub(crate) fn reach_ahead(&mut self, index: Index) -> Result<bool, ExplainError> {
        while self.end() <= index {
            if !self.read_event()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the window begin with `index` or earlier, and end where it ends now.
    pub(crate) fn reach_back(&mut self, index: Index) -> Result<(), ExplainError> {
        if index >= self.first {
            return Ok(());
        }
        let end = self.end();
        self.restart(|_, number| number >= index)?;
        while self.end() < end && self.read_event()? {}
        Ok(())
    }

    /// Reads the trace again from its start, up to the first change that the window shall hold.
    fn restart(&mut self, begins: impl Fn(&Change, Index) -> bool) -> Result<(), ExplainError> {
        self.begin()?;
        while self.read_event()? {
            if self.changes.back().is_some_and(|last| begins(last, self.end() - 1)) {
                break;
            }
            if self.changes.len() > 2 * self.reach.margin {
                self.cut(self.end() - self.reach.margin);
            }
        }
        Ok(())
    }

    /// Makes the image what it was before the first event: a file has its first content from the start, although the trace
    /// gives it when the file is first mapped.
    fn begin(&mut self) -> Result<(), ReadError> {
        self.first = 0;
        self.changes.clear();
        self.lines.clear();
        self.files.clear();
        self.output.clear();
        self.outputs.clear();
        self.mappings.clear();
        self.snapshots.restart();
        self.held = self.prefix(0);
        self.floor = 0;
        self.crashed = Window::new(self.options.from.as_deref(), self.options.until.as_deref());
        for (index, file) in self.survey_files.iter().enumerate() {
            // What is cut off reads as zero.
            self.executor.resize(index, 0);
            self.executor.resize(index, file.size);
            let path = file.present.then(|| file.path.clone());
            self.executor.place(index, path.as_deref());
            self.files.push(FileHistory {
                mapped: file.present,
                size: file.size,
                path,
                ..FileHistory::default()
            });
        }
        let executor = &mut self.executor;
        self.trace
            .initial(|at, data| executor.write(at.file.index(), at.offset, data))?;
        self.reader = self.trace.files()?;
        Ok(())
    }

    /// Forgets the changes before `first`.
    fn cut(&mut self, first: Index) {
        self.hold(&self.prefix(self.end()));
        let base = self.prefix(first);
        let keys: Vec<(usize, u64)> = self.lines.keys().copied().collect();
        for key in keys {
            let content = self.content(key, &base);
            let cut_off = self.files[key.0].resizes.iter().any(|&index| {
                index >= first && matches!(self.change(index).what, What::Resize { size } if size < (key.1 + 1) * LINE)
            });
            let line = self.lines.get_mut(&key).expect("the key is of this map");
            line.before = content;
            line.changes.retain(|&index| index >= first);
            if line.changes.is_empty() && !cut_off {
                self.lines.remove(&key);
            }
        }
        let at_base = |file| (self.size(file, &base), self.path(file, &base).map(str::to_owned));
        let files: Vec<_> = (0..self.files.len()).map(at_base).collect();
        for (history, (size, path)) in self.files.iter_mut().zip(files) {
            (history.size, history.path) = (size, path);
            history.resizes.retain(|&index| index >= first);
            history.places.retain(|&index| index >= first);
        }
        self.changes.drain(..first - self.first);
        self.snapshots.cut(first);
        self.first = first;
        self.verdicts.clear();
    }

    /// Takes one more event into the window; false at the end of the trace.
    fn read_event(&mut self) -> Result<bool, ExplainError> {
        self.hold(&self.prefix(self.end()));
        let Some((item, tables)) = self.reader.next_with_tables()? else {
            return Ok(false);
        };
        let Item::Event(event) = item else {
            return Ok(true);
        };
        if self.crashed.event(event.stack, tables) == Place::Before {
            self.floor = self.first + self.changes.len();
        }
        let mut changes: Vec<(usize, What)> = Vec::new();
        match event.kind {
            EventKind::Store { at, data, flags } => {
                changes.extend(cut(at.offset, data.len() as u64, self.options.cut().piece).map(|part| {
                    let offset = part.start;
                    let data = data[(offset - at.offset) as usize..(part.end - at.offset) as usize].into();
                    let nontemporal = flags.nontemporal;
                    (
                        at.file.index(),
                        What::Store {
                            offset,
                            data,
                            nontemporal,
                        },
                    )
                }));
            }
            EventKind::FileWrite { at, data } => {
                let (offset, data) = (at.offset, data.into());
                changes.push((at.file.index(), What::Write { offset, data }));
            }
            EventKind::Resize { file, size } => changes.push((file.index(), What::Resize { size })),
            EventKind::Rename { file, path } => {
                let path = path.map(str::to_owned);
                self.files[file.index()].mapped = true;
                changes.push((file.index(), What::Place { path, made: false }));
            }
            EventKind::Output { data, .. } => {
                self.output.extend_from_slice(data);
                let length = self.output.len() as u64;
                changes.push((0, What::Output { length }));
            }
            EventKind::Map {
                file,
                address,
                offset,
                len,
                ..
            } => {
                let mapping = Mapping {
                    file: file.0,
                    reserved: 0,
                    offset,
                    len,
                    address,
                };
                let place = |m: &Mapping| (m.file, m.offset, m.len, m.address);
                if !self.mappings.iter().any(|known| place(known) == place(&mapping)) {
                    self.mappings.push(mapping);
                }
                let history = &mut self.files[file.index()];
                if !history.mapped {
                    history.mapped = true;
                    let path = Some(self.survey_files[file.index()].path.clone());
                    changes.push((file.index(), What::Place { path, made: true }));
                }
            }
            _ => {}
        }
        let next = self.first + self.changes.len();
        self.snapshots.event(&event, tables, next..next + changes.len());
        let (seq, thread, stack) = (event.seq, event.thread, event.stack);
        for (piece, (file, what)) in changes.into_iter().enumerate() {
            let piece = piece as u16;
            self.take(Change {
                id: StoreId { seq, piece },
                thread,
                stack,
                file,
                what,
            });
        }
        Ok(true)
    }

    /// Appends a change to the window and does it.
    fn take(&mut self, change: Change) {
        let index = self.end();
        let file = change.file;
        match &change.what {
            What::Store { offset, data, .. } | What::Write { offset, data } => {
                for line in lines_of(*offset, data.len() as u64) {
                    self.line_history((file, line)).changes.push(index);
                }
                self.executor.write(file, *offset, data);
            }
            What::Resize { size } => {
                self.keep_what_is_cut_off(file, *size);
                self.files[file].resizes.push(index);
                self.executor.resize(file, *size);
            }
            What::Place { path, .. } => {
                self.files[file].places.push(index);
                self.executor.place(file, path.as_deref());
            }
            What::Output { length } => self.outputs.push((index, *length)),
        }
        self.changes.push_back(change);
        self.held = self.prefix(index + 1);
    }

    fn line_history(&mut self, key: (usize, u64)) -> &mut LineHistory {
        self.lines.entry(key).or_insert_with(|| {
            let mut before = [0; LINE as usize];
            self.executor.read(key.0, key.1 * LINE, &mut before);
            LineHistory {
                before,
                changes: Vec::new(),
            }
        })
    }

    /// So that it can be put back.
    fn keep_what_is_cut_off(&mut self, file: usize, size: u64) {
        let old = self.size(file, &self.held);
        let mut buffer = vec![0; 1 << 16];
        let mut offset = size / LINE * LINE;
        while offset < old {
            self.executor.read(file, offset, &mut buffer);
            for (number, line) in buffer.chunks(LINE as usize).enumerate() {
                if line.iter().any(|&byte| byte != 0) {
                    self.line_history((file, offset / LINE + number as u64));
                }
            }
            offset += buffer.len() as u64;
        }
    }

    /// The last of `indices` that the state holds.
    fn last_held(&self, indices: &[Index], state: &State) -> Option<&Change> {
        let last = indices.iter().rev().find(|&&index| state.holds(index))?;
        Some(self.change(*last))
    }

    pub(crate) fn size(&self, file: usize, state: &State) -> u64 {
        let history = &self.files[file];
        match self.last_held(&history.resizes, state).map(|change| &change.what) {
            Some(What::Resize { size }) => *size,
            _ => history.size,
        }
    }

    /// The name of a file; `None` too if another was renamed over it.
    pub(crate) fn path(&self, file: usize, state: &State) -> Option<&str> {
        let (since, path) = self.own_path(file, state);
        let path = path?;
        let replaced = (0..self.files.len()).any(|other| {
            let (later, other_path) = self.own_path(other, state);
            other != file && other_path == Some(path) && (later, other) > (since, file)
        });
        (!replaced).then_some(path)
    }

    /// The name that a file was given last, and by which change (counted from 1).
    fn own_path(&self, file: usize, state: &State) -> (Index, Option<&str>) {
        let history = &self.files[file];
        let last = history.places.iter().rev().find(|&&index| state.holds(index));
        match last.map(|&index| (index, &self.change(index).what)) {
            Some((index, What::Place { path, .. })) => (index + 1, path.as_deref()),
            _ => (0, history.path.as_deref()),
        }
    }

    /// The name to show for a file: the one that it had first.
    pub(crate) fn file_name(&self, file: usize) -> &str {
        self.survey_files.get(file).map_or("", |file| &file.path)
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// What a line that the window touches holds in a state.
    fn content(&self, key: (usize, u64), state: &State) -> [u8; LINE as usize] {
        let line = &self.lines[&key];
        let start = key.1 * LINE;
        let mut bytes = line.before;
        if self.files[key.0].resizes.is_empty() {
            self.overwrite(&mut bytes, line, key, state);
            return bytes;
        }
        let mut size = self.files[key.0].size;
        let mut resizes = self.files[key.0].resizes.iter().copied().peekable();
        let mut changes = line.changes.iter().copied().peekable();
        loop {
            let next = match (resizes.peek(), changes.peek()) {
                (Some(&resize), Some(&change)) if resize < change => resizes.next(),
                (Some(_), None) => resizes.next(),
                _ => changes.next(),
            };
            let Some(index) = next else {
                return bytes;
            };
            if !state.holds(index) {
                continue;
            }
            match &self.change(index).what {
                What::Store { offset, data, .. } | What::Write { offset, data } => {
                    let from = (*offset).max(start);
                    // A page reaches beyond the end of the file; what is stored there is not in it.
                    let to = (offset + data.len() as u64).min(start + LINE).min(size).max(from);
                    let source = &data[(from - offset) as usize..(to - offset) as usize];
                    bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
                }
                What::Resize { size: new } => {
                    size = *new;
                    let kept = size.saturating_sub(start).min(LINE) as usize;
                    bytes[kept..].fill(0);
                }
                What::Place { .. } | What::Output { .. } => {}
            }
        }
    }

    /// The same for a file that keeps its size: from the last change back until every byte is known, because some lines (a log's count) are
    /// stored to in every operation of a long run.
    fn overwrite(&self, bytes: &mut [u8; LINE as usize], line: &LineHistory, key: (usize, u64), state: &State) {
        let (start, size) = (key.1 * LINE, self.files[key.0].size);
        let end = state
            .extra
            .last()
            .map_or(state.point, |&last| state.point.max(last + 1));
        let end = line.changes.partition_point(|&index| index < end);
        let mut unknown = u64::MAX;
        for &index in line.changes[..end].iter().rev().filter(|&&index| state.holds(index)) {
            let Some((offset, data)) = self.change(index).data() else {
                continue;
            };
            let from = offset.max(start);
            // A page reaches beyond the end of the file; what is stored there is not in it.
            let to = (offset + data.len() as u64).min(start + LINE).min(size).max(from);
            for at in from..to {
                let bit = 1 << (at - start);
                if unknown & bit != 0 {
                    bytes[(at - start) as usize] = data[(at - offset) as usize];
                    unknown &= !bit;
                }
            }
            if unknown == 0 {
                return;
            }
        }
    }

    /// Makes the executor's image that of the state, whose changes are all in the window.
    fn hold(&mut self, state: &State) {
        let difference = state.difference(&self.held);
        if difference.is_empty() {
            self.held = state.clone();
            return;
        }
        let mut lines: FxHashSet<(usize, u64)> = FxHashSet::default();
        let mut sizes = BTreeSet::new();
        let mut placed = false;
        for index in difference {
            let change = self.change(index);
            match &change.what {
                What::Store { offset, data, .. } | What::Write { offset, data } => {
                    lines.extend(lines_of(*offset, data.len() as u64).map(|line| (change.file, line)));
                }
                What::Resize { .. } => {
                    lines.extend(self.lines.keys().filter(|key| key.0 == change.file));
                    sizes.insert(change.file);
                }
                What::Place { .. } => placed = true,
                What::Output { .. } => {}
            }
        }
        for file in sizes {
            self.executor.resize(file, self.size(file, state));
        }
        for key in lines {
            let content = self.content(key, state);
            self.executor.write(key.0, key.1 * LINE, &content);
        }
        if placed {
            self.place_all(state);
        }
        self.held = state.clone();
    }

    /// Gives the files their names. First away with those that change: they may swap names.
    fn place_all(&mut self, state: &State) {
        let name = |lab: &Laboratory, file: usize, state: &State| lab.path(file, state).map(str::to_owned);
        let changed: Vec<(usize, Option<String>)> = (0..self.files.len())
            .map(|file| (file, name(self, file, state)))
            .filter(|(file, path)| *path != name(self, *file, &self.held))
            .collect();
        for (file, _) in &changed {
            self.executor.place(*file, None);
        }
        for (file, path) in changed.iter().filter(|(_, path)| path.is_some()) {
            self.executor.place(*file, path.as_deref());
        }
    }

    /// Runs the recovery on a state.
    pub(crate) fn run(&mut self, state: &State) -> Result<Run, ExplainError> {
        let run = self.run_with(state, &self.arguments(state))?;
        if self.verdicts.len() >= MAX_VERDICTS {
            self.verdicts.clear();
        }
        let judged = Judged {
            fails: judge(&run, state.output, &self.options)? == Verdict::Fails,
            timed_out: run.recovery.timed_out || run.check.as_ref().is_some_and(|check| check.timed_out),
        };
        self.verdicts.insert(state.clone(), judged);
        Ok(run)
    }

    /// Runs the recovery on a state with these arguments after its own, whatever a state like this has it run with.
    pub(crate) fn run_with(&mut self, state: &State, arguments: &[OsString]) -> Result<Run, ExplainError> {
        self.hold(state);
        self.executor.set_arguments(arguments)?;
        let length = (state.output as usize).min(self.output.len());
        Ok(self.executor.run(&self.output[..length])?)
    }

    /// What the recovery says of a state; run at most once for each.
    pub(crate) fn judge(&mut self, state: &State) -> Result<Judged, ExplainError> {
        if let Some(&judged) = self.verdicts.get(state) {
            return Ok(judged);
        }
        self.run(state)?;
        Ok(self.verdicts[state])
    }

    pub(crate) fn fails(&mut self, state: &State) -> Result<bool, ExplainError> {
        Ok(self.judge(state)?.fails)
    }

    /// Reads from the image of a state.
    pub(crate) fn read(&mut self, state: &State, file: usize, offset: u64, buffer: &mut [u8]) {
        self.hold(state);
        self.executor.read(file, offset, buffer);
    }
}

/// Numbers of the lines that a range touches.
fn lines_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / LINE..(offset + length).div_ceil(LINE)
}
