//! The persistence graph (dissertation §4.4.2), as a replay: which stores there are and when each is guaranteed persistent.
//!
//! Nodes are stores, cut at cache lines (how a node tears is the crash states' matter), and writes, truncations and renamings
//! of a PM file, which are durable at once. An edge says "must persist before". It comes from a thread's own flush and
//! fence: A is before B if A was guaranteed persistent when B was issued; and from each line's order: cached stores to one
//! line persist in the order in which they were made. So edges need no list ([`super::shape::before`]): for each node
//! it is enough to know when it was issued and when it was persistent, and a trace of any length is replayed in memory for what is
//! not persistent yet. A model with edges between units ([`crate::edges`]) gives each node a list of its own: what must persist
//! before it by these edges, directly or not.
//!
//! Deviation from Squint, which has one thread and knows only what the program enforces by fences: the order of each line, the
//! fences of each thread by themselves, non-temporal stores and eADR are as `model` has them.

use std::collections::BTreeSet;

use crashproof_model::{Keep, Line, LineAddress, Model, Ranges, Store, Tag};
use crashproof_replay::{Change, Cut, Observer, Replay, Step, Steps, StorePiece};
use crashproof_trace::{Event, EventKind, Item, PmAddress, StackId, Tables, TraceFile};

use rustc_hash::FxHashMap;

use crate::campaign::CampaignOptions;
use crate::edges::{self, EdgesSoFar};
use crate::error::CrashError;
use crate::executor::StoreId;
use crate::window::{Place, Window};

/// A node of the graph, numbered as issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub u64);

impl Tag<Ranges> for NodeId {
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
    /// Nodes, ascending, that must persist before it because of the model's edges.
    pub after: &'e [NodeId],
}

/// Looks at a replay. Only what lies in the window of the crash test is shown.
pub(crate) trait Watch {
    /// Before anything of the event is done.
    fn event(&mut self, event: &Event<'_>, tables: &Tables);
    fn issued(&mut self, update: &Update<'_>, tables: &Tables);
    /// By the event: there is a crash point just before it. Nodes from before the window come up, too.
    fn persistent(&mut self, node: NodeId, seq: u64);
    /// There is a crash point just before this event.
    fn point(&mut self, seq: u64);
}

type NodeLine = Line<NodeId, Ranges>;

/// Makes nodes of the steps of an event, and shows them.
struct Nodes<'a> {
    reorder: bool,
    issued: u64,
    within: bool,
    watch: &'a mut dyn Watch,
    /// What a line held before a change.
    before: Vec<NodeId>,
    edges: Option<NodesBefore>,
}

/// What must persist before what, in a model with edges.
struct NodesBefore {
    edges: EdgesSoFar<NodeId>,
    /// Of each node that is not persistent: those that must persist before it, and itself.
    before: FxHashMap<NodeId, BTreeSet<NodeId>>,
    /// The same of the last node of each line's order.
    last: FxHashMap<LineAddress, BTreeSet<NodeId>>,
}

impl NodesBefore {
    fn issued(&mut self, id: NodeId, seq: u64, piece: &StorePiece, in_line_order: bool) -> Vec<NodeId> {
        let update = edges::Update {
            id: StoreId {
                seq,
                piece: piece.number,
            },
            file: piece.line.file,
            unit: piece.line.line,
            offset: piece.offset,
            nontemporal: piece.nontemporal,
        };
        let direct = self.edges.take(id, &update);
        let direct = direct.iter().filter_map(|earlier| self.before.get(earlier));
        let in_line = self.last.get(&piece.line).filter(|_| in_line_order);
        let all: BTreeSet<NodeId> = direct.chain(in_line).flatten().copied().collect();
        let mut before: BTreeSet<NodeId> = all.into_iter().filter(|node| self.before.contains_key(node)).collect();
        let after = before.iter().copied().collect();
        before.insert(id);
        if in_line_order {
            self.last.insert(piece.line, before.clone());
        }
        self.before.insert(id, before);
        after
    }
}

impl Nodes<'_> {
    fn persistent(&mut self, node: NodeId, seq: u64) {
        if let Some(edges) = &mut self.edges {
            edges.before.remove(&node);
        }
        self.watch.persistent(node, seq);
    }
}

/// The nodes of an event.
struct EventNodes<'n, 'a, 'e> {
    nodes: &'n mut Nodes<'a>,
    event: &'e Event<'e>,
    tables: &'e Tables,
}

/// Replays the events that it is shown.
pub(crate) struct GraphReplay<'a> {
    window: Window,
    replay: Replay<NodeLine>,
    cut: Cut,
    nodes: Nodes<'a>,
    ended: bool,
}

impl<'a> GraphReplay<'a> {
    pub(super) fn new(options: &CampaignOptions, watch: &'a mut dyn Watch) -> GraphReplay<'a> {
        GraphReplay {
            window: Window::new(options.from.as_deref(), options.until.as_deref()),
            replay: Replay::of_units(options.model, options.unit),
            cut: Cut::units(options.unit, false),
            nodes: Nodes {
                reorder: options.reorder_in_line,
                issued: 0,
                within: false,
                watch,
                before: Vec::new(),
                edges: options.edges.as_deref().map(|edges| NodesBefore {
                    edges: EdgesSoFar::new(edges),
                    before: FxHashMap::default(),
                    last: FxHashMap::default(),
                }),
            },
            ended: false,
        }
    }

    /// Each event of the trace, in order.
    pub(super) fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        if self.ended {
            return;
        }
        match self.window.event(event.stack, tables) {
            Place::After => {
                self.ended = true;
                return;
            }
            place => self.nodes.within = place == Place::Within,
        }
        if self.nodes.within {
            self.nodes.watch.event(event, tables);
        }
        let mut nodes = EventNodes {
            nodes: &mut self.nodes,
            event,
            tables,
        };
        self.replay.event(event);
        for step in Steps::of(&event.kind, self.cut) {
            nodes.file_operation(&step);
            self.replay.step(event.thread.0, &step, &mut nodes);
        }
    }
}

/// Shows all events of a trace.
pub(crate) fn show_all(trace: &TraceFile, show: &mut dyn FnMut(&Event<'_>, &Tables)) -> Result<(), CrashError> {
    let mut reader = trace.files()?;
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item {
            show(&event, tables);
        }
    }
    Ok(())
}

impl EventNodes<'_, '_, '_> {
    fn issue(&mut self, at: PmAddress, data: &[u8], piece: Option<&StorePiece>) -> NodeId {
        let nodes = &mut *self.nodes;
        let id = NodeId(nodes.issued);
        nodes.issued += 1;
        let in_line_order = piece.is_some_and(|piece| !piece.nontemporal) && !nodes.reorder;
        let after = match (&mut nodes.edges, piece) {
            (Some(edges), Some(piece)) => edges.issued(id, self.event.seq, piece, in_line_order),
            _ => Vec::new(),
        };
        if nodes.within {
            let update = Update {
                id,
                seq: self.event.seq,
                thread: self.event.thread.0,
                stack: self.event.stack,
                at,
                store_at: match self.event.kind {
                    EventKind::Store { at, .. } => at,
                    _ => at,
                },
                data,
                line: piece.map(|piece| piece.line),
                in_line_order,
                after: &after,
            };
            nodes.watch.issued(&update, self.tables);
        }
        id
    }

    /// A file operation is a node, too: persistent when done.
    fn file_operation(&mut self, step: &Step) {
        let (at, data) = match (step, &self.event.kind) {
            (Step::Write { at, .. }, EventKind::FileWrite { data, .. }) => (*at, *data),
            (&Step::Resize { file, size }, _) => (PmAddress { file, offset: size }, &[][..]),
            (&Step::Rename { file }, _) => (PmAddress { file, offset: 0 }, &[][..]),
            _ => return,
        };
        let id = self.issue(at, data, None);
        self.nodes.persistent(id, self.event.seq);
        self.point();
    }

    fn point(&mut self) {
        if self.nodes.within {
            self.nodes.watch.point(self.event.seq);
        }
    }

    /// What the line holds no more after the change is persistent, or will never be seen: later bytes are.
    fn persist(&mut self, line: &mut NodeLine, change: impl FnOnce(&mut NodeLine)) {
        let mut before = std::mem::take(&mut self.nodes.before);
        before.extend(line.stores().iter().map(|store| store.tag));
        change(line);
        let mut after = line.stores().iter().map(|store| store.tag).peekable();
        let mut any = false;
        for node in before.drain(..) {
            if after.next_if_eq(&node).is_none() {
                self.nodes.persistent(node, self.event.seq);
                any = true;
            }
        }
        self.nodes.before = before;
        if any {
            self.point();
        }
    }
}

impl Observer for EventNodes<'_, '_, '_> {
    type Line = NodeLine;

    fn tag(&mut self, piece: &StorePiece) -> NodeId {
        let EventKind::Store { data, .. } = self.event.kind else {
            unreachable!("only stores have pieces");
        };
        self.issue(piece.at(), piece.data(data), Some(piece))
    }

    fn open(&mut self, _at: LineAddress) -> Option<NodeLine> {
        Some(Line::default())
    }

    fn stored_durably(&mut self, _at: LineAddress, line: Option<&mut NodeLine>, store: Store<NodeId, Ranges>) {
        self.point();
        self.nodes.persistent(store.tag, self.event.seq);
        if let Some(line) = line {
            self.persist(line, |line| line.store(Model::Eadr, Keep::All, store));
        }
    }

    fn change(&mut self, _at: LineAddress, line: &mut NodeLine, change: Change<Ranges>) {
        self.persist(line, |line| change.apply(line, |_| {}));
    }
}
