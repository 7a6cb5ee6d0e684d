//! The rules over lines that are kept exactly, while they hold stores that are not persistent.
//!
//! A step costs what it touches: a fence looks at the lines that its thread has flushed or stored to non-temporally since its
//! last one.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use crashproof_base::{FileId, LINE, LineAddress};
use crashproof_model::{ByteSet, Bytes, Flush, Keep, Line, Model, Store, Tag, Thread};
use rustc_hash::FxHashMap;

use crashproof_trace::Event;

use crate::step::{Step, StorePiece};
use crate::underway::{SyncChange, Underway};

/// What is kept of a line, or a unit of another size: the model's state, and what an observer adds to it.
pub trait LineState {
    /// Which of its bytes.
    type Bytes: ByteSet;
    /// What is kept with each store.
    type Tag: Tag<Self::Bytes, Site = ()>;

    /// The model's state.
    fn line(&self) -> &Line<Self::Tag, Self::Bytes>;

    /// The same, to be changed.
    fn line_mut(&mut self) -> &mut Line<Self::Tag, Self::Bytes>;
}

/// A change to a line.
pub type ChangeOf<L> = Change<<L as LineState>::Bytes>;

/// A store to a line.
pub type StoreOf<L> = Store<<L as LineState>::Tag, <L as LineState>::Bytes>;

impl<T: Tag<B, Site = ()>, B: ByteSet> LineState for Line<T, B> {
    type Bytes = B;
    type Tag = T;

    fn line(&self) -> &Line<T, B> {
        self
    }

    fn line_mut(&mut self) -> &mut Line<T, B> {
        self
    }
}

/// A line that others hold on to: it is copied when it changes.
impl<L: LineState + Clone> LineState for Arc<L> {
    type Bytes = L::Bytes;
    type Tag = L::Tag;

    fn line(&self) -> &Line<L::Tag, L::Bytes> {
        L::line(self)
    }

    fn line_mut(&mut self) -> &mut Line<L::Tag, L::Bytes> {
        Arc::make_mut(self).line_mut()
    }
}

/// What raises a line's floor, or takes stores out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<B = Bytes> {
    /// What the thread has pending persists.
    Fence(Thread),
    /// `clflush` by the thread: all cached stores persist.
    FlushAtOnce(Thread),
    /// These bytes persist, of what was stored before the thread's sync began.
    Sync(Thread, B),
    /// These bytes are overwritten by what is durable.
    Overwrite(B),
    /// These bytes are beyond the file's end.
    Truncate(B),
}

impl<B: ByteSet> Change<B> {
    /// Makes the change. `persisted` is shown what of each store persists; written in the order shown, that is what is guaranteed.
    pub fn apply<T: Tag<B, Site = ()>>(self, line: &mut Line<T, B>, persisted: impl FnMut(&Store<T, B>)) {
        match self {
            Change::Fence(thread) => {
                line.fence_with(thread, persisted);
            }
            Change::FlushAtOnce(thread) => {
                line.flush_now_with(thread, (), persisted);
            }
            Change::Sync(thread, bytes) => {
                line.sync(thread, &bytes, persisted);
            }
            Change::Overwrite(bytes) | Change::Truncate(bytes) => line.set_clean(&bytes),
        }
    }
}

/// Sees what the steps do. The context of a step (its event, its data) is the observer's own.
pub trait Observer {
    /// What is kept of a line.
    type Line: LineState;

    /// Which stores are kept of a line.
    const KEEP: Keep = Keep::All;

    /// What is kept with the store.
    fn tag(&mut self, piece: &StorePiece) -> <Self::Line as LineState>::Tag;

    /// The line gets a store that is not persistent, and had none. `None`: the observer does not follow the line.
    fn open(&mut self, at: LineAddress) -> Option<Self::Line>;

    /// A store that is not persistent at once.
    fn stored(&mut self, _at: LineAddress, line: &mut Self::Line, store: StoreOf<Self::Line>) {
        line.line_mut().store(Model::Px86, Self::KEEP, store);
    }

    /// A store that is (eADR); with the line, if it holds stores that are not.
    fn stored_durably(&mut self, _at: LineAddress, line: Option<&mut Self::Line>, store: StoreOf<Self::Line>) {
        if let Some(line) = line {
            line.line_mut().store(Model::Eadr, Self::KEEP, store);
        }
    }

    /// A flush that made stores pending.
    fn flushed(&mut self, _at: LineAddress, _line: &mut Self::Line) {}

    /// Makes a change to a line.
    fn change(&mut self, _at: LineAddress, line: &mut Self::Line, change: ChangeOf<Self::Line>) {
        change.apply(line.line_mut(), |_| {});
    }

    /// All of the line is persistent.
    fn closed(&mut self, _at: LineAddress, _line: Self::Line) {}
}

/// Runs steps.
pub struct Replay<L> {
    model: Model,
    /// Bytes of a unit.
    unit: u64,
    lines: FxHashMap<LineAddress, L>,
    /// By thread: lines that it flushed or stored to non-temporally since its last fence.
    pending: Vec<Vec<LineAddress>>,
    underway: Underway,
    /// Syncs that are under way: of which thread, and the lines that were stored to since it began.
    syncs: Vec<(Thread, Vec<LineAddress>)>,
}

impl<L: LineState> Replay<L> {
    /// At the start of a trace: everything is persistent.
    pub fn new(model: Model) -> Replay<L> {
        Replay::of_units(model, LINE)
    }

    /// The same where units have so many bytes: its steps are cut into these.
    pub fn of_units(model: Model, unit: u64) -> Replay<L> {
        Replay {
            model,
            unit,
            lines: FxHashMap::default(),
            pending: Vec::new(),
            underway: Underway::default(),
            syncs: Vec::new(),
        }
    }

    /// Before the steps of an event: which syncs begin there, and which are over.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>) {
        let Replay {
            underway, syncs, lines, ..
        } = self;
        underway.event(event, |change| match change {
            SyncChange::Begins(thread) => syncs.push((thread, Vec::new())),
            SyncChange::Ends(thread) => {
                for at in syncs
                    .extract_if(.., |(of, _)| *of == thread)
                    .flat_map(|(_, lines)| lines)
                {
                    if let Some(line) = lines.get_mut(&at) {
                        line.line_mut().end_sync(thread);
                    }
                }
            }
        });
    }

    /// The line, if it holds stores that are not persistent.
    pub fn line(&self, at: LineAddress) -> Option<&L> {
        self.lines.get(&at)
    }

    /// The same, to change what an observer keeps in it.
    pub fn line_mut(&mut self, at: LineAddress) -> Option<&mut L> {
        self.lines.get_mut(&at)
    }

    /// All lines that hold stores that are not persistent, in no order.
    pub fn lines(&self) -> impl Iterator<Item = &L> {
        self.lines.values()
    }

    /// Whether the step raises a floor: a crash just before it may leave states that no later crash leaves.
    pub fn raises_floor(&self, thread: Thread, step: &Step) -> bool {
        match *step {
            Step::Store(piece) => self.is_durable(&piece),
            Step::Fence => {
                let pending = self.pending.get(thread as usize).map_or(&[][..], Vec::as_slice);
                pending.iter().any(|at| self.awaits_fence(at, thread))
            }
            Step::Flush { line, at_once } => at_once && self.awaits_flush(&line),
            Step::Sync { file, offset, len } => {
                let awaits = |at| self.lines[at].line().before_sync(thread) > 0;
                self.lines_in(file, offset, len).iter().any(awaits)
            }
            Step::Write { .. } | Step::Resize { .. } | Step::Rename { .. } | Step::Map { .. } => false,
        }
    }

    /// Runs a step of the thread.
    pub fn step<O: Observer<Line = L>>(&mut self, thread: Thread, step: &Step, observer: &mut O) {
        match *step {
            Step::Store(piece) => self.store(thread, &piece, observer),
            Step::Flush { line, at_once: false } => {
                if let Some(state) = self.lines.get_mut(&line)
                    && state.line_mut().flush(thread, ()) == Flush::Useful
                {
                    observer.flushed(line, state);
                    self.remember_pending(thread, line);
                }
            }
            Step::Flush { line, at_once: true } => {
                if self.awaits_flush(&line) {
                    self.change(line, Change::FlushAtOnce(thread), observer);
                }
            }
            Step::Fence => self.fence(thread, observer),
            Step::Sync { file, offset, len } => {
                self.change_range(file, offset, len, |bytes| Change::Sync(thread, bytes), observer);
            }
            Step::Write { at, len } => self.change_range(at.file, at.offset, len, Change::Overwrite, observer),
            Step::Resize { file, size } => {
                self.change_range(file, size, u64::MAX - size, Change::Truncate, observer);
            }
            Step::Rename { .. } | Step::Map { .. } => {}
        }
    }

    fn is_durable(&self, piece: &StorePiece) -> bool {
        self.model == Model::Eadr && !piece.nontemporal
    }

    fn awaits_fence(&self, at: &LineAddress, thread: Thread) -> bool {
        self.lines
            .get(at)
            .is_some_and(|state| state.line().awaits_fence(thread))
    }

    fn awaits_flush(&self, at: &LineAddress) -> bool {
        self.lines.get(at).is_some_and(|state| state.line().awaits_flush())
    }

    fn store<O: Observer<Line = L>>(&mut self, thread: Thread, piece: &StorePiece, observer: &mut O) {
        let at = piece.line;
        let store = |observer: &mut O| Store {
            bytes: piece.bytes(),
            thread,
            nontemporal: piece.nontemporal,
            tag: observer.tag(piece),
        };
        if self.is_durable(piece) {
            let store = store(observer);
            let mut line = self.lines.get_mut(&at);
            observer.stored_durably(at, line.as_deref_mut(), store);
            if line.is_some_and(|line| line.line().is_clean()) {
                self.close(at, observer);
            }
            return;
        }
        let line = match self.lines.entry(at) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match observer.open(at) {
                Some(line) => entry.insert(line),
                None => return,
            },
        };
        for (sync, lines) in &mut self.syncs {
            if line.line_mut().begin_sync(*sync) {
                lines.push(at);
            }
        }
        let store = store(observer);
        observer.stored(at, line, store);
        if piece.nontemporal {
            self.remember_pending(thread, at);
        }
    }

    fn remember_pending(&mut self, thread: Thread, at: LineAddress) {
        let thread = thread as usize;
        if self.pending.len() <= thread {
            self.pending.resize_with(thread + 1, Vec::new);
        }
        let lines = &mut self.pending[thread];
        if lines.last() != Some(&at) {
            lines.push(at);
        }
    }

    fn fence<O: Observer<Line = L>>(&mut self, thread: Thread, observer: &mut O) {
        let Some(pending) = self.pending.get_mut(thread as usize) else {
            return;
        };
        let mut lines = std::mem::take(pending);
        for at in lines.drain(..) {
            if self.awaits_fence(&at, thread) {
                self.change(at, Change::Fence(thread), observer);
            }
        }
        self.pending[thread as usize] = lines;
    }

    fn change<O: Observer<Line = L>>(&mut self, at: LineAddress, change: ChangeOf<L>, observer: &mut O) {
        if let Some(line) = self.lines.get_mut(&at) {
            observer.change(at, line, change);
            if line.line().is_clean() {
                self.close(at, observer);
            }
        }
    }

    fn close<O: Observer<Line = L>>(&mut self, at: LineAddress, observer: &mut O) {
        if let Some(line) = self.lines.remove(&at) {
            observer.closed(at, line);
        }
    }

    fn change_range<O: Observer<Line = L>>(
        &mut self,
        file: FileId,
        offset: u64,
        len: u64,
        change: impl Fn(L::Bytes) -> ChangeOf<L>,
        observer: &mut O,
    ) {
        let end = offset.saturating_add(len);
        for at in self.lines_in(file, offset, len) {
            self.change(at, change(L::Bytes::of_unit(at.line, self.unit, offset, end)), observer);
        }
    }

    /// Lines with stores that are not persistent which the range touches, ascending.
    fn lines_in(&self, file: FileId, offset: u64, len: u64) -> Vec<LineAddress> {
        if len == 0 {
            return Vec::new();
        }
        let file = file.0;
        let (first, end) = (offset / self.unit, offset.saturating_add(len).div_ceil(self.unit));
        if end.saturating_sub(first) <= self.lines.len() as u64 {
            let lines = (first..end).map(|line| LineAddress { file, line });
            return lines.filter(|at| self.lines.contains_key(at)).collect();
        }
        let lines = self.lines.keys().copied();
        let mut lines: Vec<LineAddress> = lines
            .filter(|at| at.file == file && (first..end).contains(&at.line))
            .collect();
        lines.sort_unstable();
        lines
    }
}
