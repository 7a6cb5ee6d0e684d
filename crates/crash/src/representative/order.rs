//! The persistence graph (dissertation §4.4.2), as a replay: which stores there are and when each is guaranteed persistent.
//!
//! Nodes are stores, cut at cache lines (how a node tears is the crash states' matter), and writes, truncations and renamings
//! of a PM file, which are durable at once. An edge says "must persist before". It comes from a thread's own flush and
//! fence: A is before B if A was guaranteed persistent when B was issued; and from each line's order: cached stores to one
//! line persist in the order in which they were made. So edges need no list ([`super::shape::before`]): for each node
//! it is enough to know when it was issued and when it was persistent, and a trace of any length is replayed in memory for what is
//! not persistent yet.
//!
//! Deviation from Squint, which has one thread and knows only what the program enforces by fences: the order of each line, the
//! fences of each thread by themselves, non-temporal stores and eADR are as `model` has them.

use crashproof_model::{Bytes, Keep, LINE, Line, LineAddress, Model, Store, Tag, pieces};
use crashproof_trace::{Event, EventKind, FlushKind, Item, PmAddress, StackId, Tables, TraceFile};
use rustc_hash::FxHashMap;

use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::window::{Place, Window};

/// A node of the graph, numbered as issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub u64);

impl Tag for NodeId {
    type Site = ();
}

/// What a node is when it is issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'e> {
    pub id: NodeId,
    /// Of its event.
    pub seq: u64,
    pub thread: u32,
    pub stack: StackId,
    pub at: PmAddress,
    /// Where the whole store begins, which may cross into the line.
    pub store_at: PmAddress,
    /// Empty for a truncation or renaming.
    pub data: &'e [u8],
    /// If it is a store.
    pub line: Option<LineAddress>,
    /// It persists in the order of its line's stores.
    pub in_line_order: bool,
}

/// Who looks at a replay. Only what lies in the window of the crash test is shown.
pub(crate) trait Watch {
    /// Before anything of the event is done.
    fn event(&mut self, event: &Event<'_>, tables: &Tables);
    fn issued(&mut self, update: &Update<'_>, tables: &Tables);
    /// By the event: there is a crash point just before it. Nodes from before the window come up, too.
    fn persistent(&mut self, node: NodeId, seq: u64);
    /// There is a crash point just before this event.
    fn point(&mut self, seq: u64);
}

struct Replay<'a> {
    model: Model,
    reorder: bool,
    lines: FxHashMap<LineAddress, Line<NodeId>>,
    /// By thread: lines that it flushed or stored to non-temporally since its last fence.
    pending: Vec<Vec<LineAddress>>,
    issued: u64,
    within: bool,
    watch: &'a mut dyn Watch,
}

pub(crate) fn replay(trace: &TraceFile, options: &CampaignOptions, watch: &mut dyn Watch) -> Result<(), CrashError> {
    let mut reader = trace.files()?;
    let mut window = Window::new(options.from.as_deref(), options.until.as_deref());
    let mut replay = Replay {
        model: options.model,
        reorder: options.reorder_in_line,
        lines: FxHashMap::default(),
        pending: Vec::new(),
        issued: 0,
        within: false,
        watch,
    };
    while let Some((item, tables)) = reader.next_with_tables()? {
        let Item::Event(event) = item else { continue };
        match window.event(event.stack, tables) {
            Place::After => break,
            place => replay.within = place == Place::Within,
        }
        replay.event(&event, tables);
    }
    Ok(())
}

impl Replay<'_> {
    fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        if self.within {
            self.watch.event(event, tables);
        }
        let thread = event.thread.0;
        match event.kind {
            EventKind::Store { at, data, flags } => {
                if flags.locked {
                    self.fence(thread, event.seq);
                }
                for piece in pieces(at.offset, data.len() as u64, LINE) {
                    let start = piece.line * LINE + piece.bytes.first();
                    let from = (start - at.offset) as usize;
                    let part = &data[from..from + piece.bytes.span() as usize];
                    let line = LineAddress {
                        file: at.file.0,
                        line: piece.line,
                    };
                    let part_at = PmAddress {
                        file: at.file,
                        offset: start,
                    };
                    let in_line_order = !flags.nontemporal && !self.reorder;
                    let id = self.issue(event, part_at, part, Some(line), in_line_order, tables);
                    self.store(line, piece.bytes, thread, flags.nontemporal, id, event.seq);
                }
            }
            EventKind::Flush { at, kind } => {
                let at = LineAddress {
                    file: at.file.0,
                    line: at.offset / LINE,
                };
                if kind == FlushKind::Clflush {
                    self.persist(at, event.seq, |line| {
                        line.flush_now(thread, ());
                    });
                } else if let Some(line) = self.lines.get_mut(&at) {
                    line.flush(thread, ());
                    self.remember_pending(thread, at);
                }
            }
            EventKind::Fence { .. } => self.fence(thread, event.seq),
            EventKind::Sync { file, offset, len } => self.clean(file.0, offset, len, event.seq),
            EventKind::FileWrite { at, data } => {
                self.durable(event, at, data, tables);
                self.clean(at.file.0, at.offset, data.len() as u64, event.seq);
            }
            EventKind::Resize { file, size } => {
                self.durable(event, PmAddress { file, offset: size }, &[], tables);
                self.clean(file.0, size, u64::MAX - size, event.seq);
            }
            EventKind::Rename { file, .. } => self.durable(event, PmAddress { file, offset: 0 }, &[], tables),
            _ => {}
        }
    }

    fn issue(
        &mut self,
        event: &Event<'_>,
        at: PmAddress,
        data: &[u8],
        line: Option<LineAddress>,
        in_line_order: bool,
        tables: &Tables,
    ) -> NodeId {
        let id = NodeId(self.issued);
        self.issued += 1;
        if self.within {
            let update = Update {
                id,
                seq: event.seq,
                thread: event.thread.0,
                stack: event.stack,
                at,
                store_at: match event.kind {
                    EventKind::Store { at, .. } => at,
                    _ => at,
                },
                data,
                line,
                in_line_order,
            };
            self.watch.issued(&update, tables);
        }
        id
    }

    /// A file operation: persistent when done.
    fn durable(&mut self, event: &Event<'_>, at: PmAddress, data: &[u8], tables: &Tables) {
        let id = self.issue(event, at, data, None, false, tables);
        self.watch.persistent(id, event.seq);
        self.point(event.seq);
    }

    fn point(&mut self, seq: u64) {
        if self.within {
            self.watch.point(seq);
        }
    }

    fn store(&mut self, at: LineAddress, bytes: Bytes, thread: u32, nontemporal: bool, id: NodeId, seq: u64) {
        let store = Store {
            bytes,
            thread,
            nontemporal,
            tag: id,
        };
        if self.model == Model::Eadr && !nontemporal {
            self.point(seq);
            self.watch.persistent(id, seq);
            self.persist(at, seq, |line| line.store(Model::Eadr, Keep::All, store));
            return;
        }
        self.lines.entry(at).or_default().store(Model::Px86, Keep::All, store);
        if nontemporal {
            self.remember_pending(thread, at);
        }
    }

    fn remember_pending(&mut self, thread: u32, at: LineAddress) {
        let thread = thread as usize;
        if self.pending.len() <= thread {
            self.pending.resize_with(thread + 1, Vec::new);
        }
        if self.pending[thread].last() != Some(&at) {
            self.pending[thread].push(at);
        }
    }

    fn fence(&mut self, thread: u32, seq: u64) {
        let Some(pending) = self.pending.get_mut(thread as usize) else {
            return;
        };
        for at in std::mem::take(pending) {
            self.persist(at, seq, |line| {
                line.fence(thread);
            });
        }
    }

    /// These bytes are durable as they are, or are gone.
    fn clean(&mut self, file: u32, offset: u64, len: u64, seq: u64) {
        let end = offset.saturating_add(len);
        let (first, last) = (offset / LINE, end.div_ceil(LINE));
        let lines: Vec<LineAddress> = if last - first <= self.lines.len() as u64 {
            (first..last).map(|line| LineAddress { file, line }).collect()
        } else {
            let lines = self.lines.keys().copied();
            let mut lines: Vec<_> = lines
                .filter(|at| at.file == file && (first..last).contains(&at.line))
                .collect();
            lines.sort_unstable();
            lines
        };
        for at in lines {
            let start = at.line * LINE;
            let from = offset.saturating_sub(start).min(LINE);
            let to = end.saturating_sub(start).min(LINE);
            self.persist(at, seq, |line| line.set_clean(Bytes::range(from, to - from)));
        }
    }

    /// What the line holds no more after the change is persistent, or will never be seen: later bytes are.
    fn persist(&mut self, at: LineAddress, seq: u64, change: impl FnOnce(&mut Line<NodeId>)) {
        let Some(line) = self.lines.get_mut(&at) else {
            return;
        };
        let before: Vec<NodeId> = line.stores().iter().map(|store| store.tag).collect();
        change(line);
        let mut after = line.stores().iter().map(|store| store.tag).peekable();
        let mut any = false;
        for node in before {
            if after.next_if_eq(&node).is_none() {
                self.watch.persistent(node, seq);
                any = true;
            }
        }
        drop(after);
        if line.is_clean() {
            self.lines.remove(&at);
        }
        if any {
            self.point(seq);
        }
    }
}
