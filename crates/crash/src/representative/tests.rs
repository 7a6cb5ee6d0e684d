//! The graph, the epochs, the shapes and the groups against slow and obvious references.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crashproof_model::{LineAddress, Model};
use crashproof_trace::{
    Event, EventKind, FenceKind, FileId, FlushKind, Header, PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd,
    StackId, StoreFlags, Tables, ThreadId, TraceFile, TraceWriter,
};
use proptest::prelude::*;
use rustc_hash::FxHashMap;

use super::analyse;
use super::compare::{Comparable, Scratch};
use super::epochs::{Class, Epochs, Member};
use super::groups;
use super::order::{GraphReplay, NodeId, Update, Watch, show_all};
use super::shape::{NEVER, Node, Shape, ShapeHasher, before};
use super::subject::{Instance, Subject, Subjects, TypeKey};
use crate::campaign::CampaignOptions;
use crate::cursor::{Cursor, Stops};
use crate::edges::{self, EdgeIndex, Edges};
use crate::executor::StoreId;
use crate::image::SparseImage;
use crate::strategy::{PassEnd, Representative, Strategy as _, Work};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}

fn options(model: Model, reorder_in_line: bool) -> CampaignOptions {
    CampaignOptions {
        model,
        reorder_in_line,
        ..CampaignOptions::default()
    }
}

#[derive(Clone, Debug)]
enum Action {
    Store { at: u64, nontemporal: bool, locked: bool },
    Flush { line: u64, now: bool },
    Fence,
}

fn action() -> impl Strategy<Value = (u32, Action)> {
    let action = prop_oneof![
        5 => (0..3u64, 0..3u64, prop::bool::weighted(0.3), prop::bool::weighted(0.1)).prop_map(
            |(line, word, nontemporal, locked)| Action::Store {
                at: line * 64 + word * 8,
                nontemporal: nontemporal && !locked,
                locked,
            }
        ),
        3 => (0..3u64, prop::bool::weighted(0.2)).prop_map(|(line, now)| Action::Flush { line, now }),
        3 => Just(Action::Fence),
    ];
    (0..2u32, action)
}

fn replay(trace: &Path, options: &CampaignOptions, watch: &mut dyn Watch) {
    let mut graph = GraphReplay::new(options, watch);
    let trace = TraceFile::open(trace).unwrap();
    show_all(&trace, &mut |event, tables| graph.event(event, tables)).unwrap();
}

fn write_trace(path: &Path, actions: &[(u32, Action)]) {
    let mut writer = TraceWriter::create(path, &Header::default()).unwrap();
    let (process, none) = (ProcessId(0), StackId(0));
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "program",
    };
    writer.event(ThreadId(0), none, &start).unwrap();
    for thread in 0..2 {
        let start = EventKind::ThreadStart { process, os_id: thread };
        writer.event(ThreadId(thread), none, &start).unwrap();
    }
    let path = "/pm".into();
    let file = writer
        .file(&PmFile {
            path,
            size: 4096,
            created: false,
            kind: PmFileKind::File,
        })
        .unwrap();
    for (thread, action) in actions {
        let kind = match *action {
            Action::Store {
                at,
                nontemporal,
                locked,
            } => EventKind::Store {
                at: PmAddress { file, offset: at },
                data: &[1; 8],
                flags: StoreFlags {
                    exchange: false,
                    nontemporal,
                    locked,
                    syscall: false,
                },
            },
            Action::Flush { line, now } => EventKind::Flush {
                at: PmAddress {
                    file,
                    offset: line * 64,
                },
                kind: if now { FlushKind::Clflush } else { FlushKind::Clwb },
            },
            Action::Fence => EventKind::Fence {
                kind: FenceKind::Sfence,
            },
        };
        writer.event(ThreadId(*thread), none, &kind).unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
}

/// All nodes of a trace.
#[derive(Default)]
struct Nodes(Vec<Node>);

impl Watch for Nodes {
    fn event(&mut self, _: &Event<'_>, _: &Tables) {}

    fn issued(&mut self, update: &Update<'_>, _: &Tables) {
        assert_eq!(update.id.0 as usize, self.0.len());
        let mut node = node(update.seq, NEVER, update.line, update.in_line_order, 0);
        (node.id, node.after) = (update.id, update.after.into());
        self.0.push(node);
    }

    fn persistent(&mut self, node: NodeId, seq: u64) {
        assert_eq!(self.0[node.0 as usize].persistent_at, NEVER, "once");
        self.0[node.0 as usize].persistent_at = seq;
    }

    fn point(&mut self, _: u64) {}
}

fn node(seq: u64, persistent_at: u64, line: Option<LineAddress>, in_line_order: bool, field: u64) -> Node {
    Node {
        seq,
        persistent_at,
        at: PmAddress {
            file: FileId(0),
            offset: 0,
        },
        len: 8,
        line,
        in_line_order,
        id: NodeId(seq),
        after: Box::default(),
        field,
        call: None,
        stack: StackId(0),
        site: field,
    }
}

/// A store of the reference, which enumerates sets of stores that a crash may leave.
#[derive(Clone)]
struct Naive {
    seq: u64,
    at: u64,
    thread: u32,
    nontemporal: bool,
    guaranteed: bool,
    /// A later one that is guaranteed has overwritten it: whether it persisted no longer shows.
    gone: bool,
}

/// A model with edges: some non-temporal stores persist before some of what is stored later to other lines. All that came before is looked
/// at for each update.
#[derive(Clone, Copy, Debug)]
struct SomeFirst(u8);

impl SomeFirst {
    fn is_edge(self, earlier: &edges::Update, later: &edges::Update) -> bool {
        earlier.nontemporal && !(earlier.id.seq * 5 + later.id.seq * 3 + u64::from(self.0)).is_multiple_of(3)
    }
}

impl Edges for SomeFirst {
    fn index(&self) -> Box<dyn EdgeIndex> {
        Box::new(AllBefore(*self, Vec::new()))
    }
}

struct AllBefore(SomeFirst, Vec<edges::Update>);

impl EdgeIndex for AllBefore {
    fn take(&mut self, update: &edges::Update) -> Vec<usize> {
        let before = (0..self.1.len()).filter(|&earlier| self.0.is_edge(&self.1[earlier], update));
        let before = before.collect();
        self.1.push(*update);
        before
    }
}

/// In one thread and with flushes that wait for a fence, what the model guarantees is down-closed.
fn fitting(actions: &mut [(u32, Action)]) {
    for (thread, action) in actions {
        *thread = 0;
        if let Action::Flush { now, .. } = action {
            *now = false;
        }
    }
}

/// (a, b): some crash leaves b and not a, which is older.
fn reorderings(
    actions: &[(u32, Action)],
    model: Model,
    reorder: bool,
    edges: Option<SomeFirst>,
) -> BTreeSet<(usize, usize)> {
    let is_edge = |earlier: &Naive, later: &Naive| {
        let update = |store: &Naive| edges::Update {
            id: StoreId {
                seq: store.seq,
                piece: 0,
            },
            file: 0,
            unit: store.at / 64,
            offset: store.at,
            nontemporal: store.nontemporal,
        };
        let is_other_line = earlier.at / 64 != later.at / 64;
        is_other_line && edges.is_some_and(|edges| edges.is_edge(&update(earlier), &update(later)))
    };
    let mut stores: Vec<Naive> = Vec::new();
    let mut flushed: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let fence = |thread: u32, stores: &mut Vec<Naive>, flushed: &mut BTreeMap<u32, BTreeSet<usize>>| {
        for store in flushed.remove(&thread).unwrap_or_default() {
            stores[store].guaranteed = true;
        }
        stores
            .iter_mut()
            .filter(|store| store.nontemporal && store.thread == thread)
            .for_each(|store| store.guaranteed = true);
    };
    // Three events start the process and its threads.
    for (seq, (thread, action)) in (3..).zip(actions) {
        match *action {
            Action::Store {
                at,
                nontemporal,
                locked,
            } => {
                if locked {
                    fence(*thread, &mut stores, &mut flushed);
                }
                stores.push(Naive {
                    seq,
                    at,
                    thread: *thread,
                    nontemporal,
                    guaranteed: model == Model::Eadr && !nontemporal,
                    gone: false,
                });
            }
            Action::Flush { line, now } => {
                let cached: Vec<usize> = (0..stores.len())
                    .filter(|&store| stores[store].at / 64 == line && !stores[store].nontemporal)
                    .collect();
                if now {
                    cached.iter().for_each(|&store| stores[store].guaranteed = true);
                } else {
                    flushed.entry(*thread).or_default().extend(cached);
                }
            }
            Action::Fence => fence(*thread, &mut stores, &mut flushed),
        }
        for store in 0..stores.len() {
            let at = stores[store].at;
            if stores[store + 1..]
                .iter()
                .any(|later| later.guaranteed && later.at == at)
            {
                stores[store].gone = true;
            }
        }
        let uncertain: Vec<usize> = (0..stores.len())
            .filter(|&store| !stores[store].guaranteed && !stores[store].gone)
            .collect();
        for set in 0..1u32 << uncertain.len() {
            let has = |store: usize| {
                let bit = uncertain.iter().position(|&other| other == store);
                bit.is_none_or(|bit| set >> bit & 1 != 0)
            };
            let tied = uncertain.iter().all(|&later| {
                let earlier = uncertain.iter().filter(|&&earlier| earlier < later);
                let mut missing = earlier.filter(|&&earlier| !has(earlier));
                !has(later) || !missing.any(|&earlier| is_edge(&stores[earlier], &stores[later]))
            });
            let allowed = tied
                && uncertain.iter().all(|&later| {
                    stores[later].nontemporal
                        || reorder
                        || !has(later)
                        || uncertain.iter().all(|&earlier| {
                            earlier >= later
                                || stores[earlier].nontemporal
                                || stores[earlier].at / 64 != stores[later].at / 64
                                || has(earlier)
                        })
                });
            if allowed {
                let pairs = (0..stores.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
                found.extend(pairs.filter(|&(a, b)| has(b) && !has(a) && !stores[b].gone));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn the_graph_orders_what_no_crash_reorders(
        actions in prop::collection::vec(action(), 0..14),
        eadr in prop::bool::weighted(0.2),
        reorder in prop::bool::weighted(0.2),
        edges in prop::option::of(any::<u8>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        // With eADR a cached store is guaranteed before the non-temporal ones that are to persist before it.
        let (edges, mut actions) = (edges.map(SomeFirst).filter(|_| !eadr), actions);
        if edges.is_some() {
            fitting(&mut actions);
        }
        write_trace(&trace, &actions);
        let model = if eadr { Model::Eadr } else { Model::Px86 };
        let mut nodes = Nodes::default();
        let tied = edges.map(|edges| Arc::new(edges) as Arc<dyn Edges>);
        replay(&trace, &CampaignOptions { edges: tied, ..options(model, reorder) }, &mut nodes);
        let reordered = reorderings(&actions, model, reorder, edges);
        for b in 0..nodes.0.len() {
            for a in 0..b {
                prop_assert_eq!(before(&nodes.0[a], &nodes.0[b]), !reordered.contains(&(a, b)), "{} {}", a, b);
            }
        }
    }
}

/// Objects of 64 bytes in objects of 128; fields of 8 and 16.
struct Nested;

impl Subjects for Nested {
    fn event(&mut self, _: &Event<'_>, _: &Tables, _: &mut Vec<Instance>) {}

    fn of(&mut self, update: &Update<'_>, _: &Tables, out: &mut Vec<Subject>) {
        for (ty, size) in [(0, 64), (1, 128)] {
            out.push(Subject {
                instance: (ty, update.at.offset / size),
                field: update.at.offset % size / 8,
                call: None,
            });
        }
    }

    fn site(&mut self, update: &Update<'_>, _: &Tables) -> u64 {
        update.at.offset
    }

    fn type_name(&self, _: TypeKey) -> String {
        String::new()
    }

    fn field_name(&self, _: TypeKey, _: u64) -> String {
        String::new()
    }
}

/// §4.4.3 word for word: for each object the events of each of its epochs.
fn naive_epochs(offsets: &[u64], nodes: &[Node]) -> BTreeSet<(Instance, Vec<u64>)> {
    let mut all = BTreeSet::new();
    for (ty, size) in [(0, 64), (1, 128)] {
        let objects: BTreeSet<u64> = offsets.iter().map(|offset| offset / size).collect();
        for object in objects {
            let of: Vec<usize> = (0..nodes.len()).filter(|&n| offsets[n] / size == object).collect();
            let mut epoch: Vec<usize> = Vec::new();
            for (position, &update) in of.iter().enumerate() {
                let persisted_before = |a: usize, b: usize| nodes[a].persistent_at <= nodes[b].seq;
                let again = epoch.iter().any(|&earlier| offsets[earlier] == offsets[update]);
                let all_persistent = of[..position].iter().all(|&earlier| persisted_before(earlier, update));
                let between = epoch.iter().any(|&first| {
                    (0..nodes.len()).any(|other| {
                        offsets[other] / size != object
                            && persisted_before(first, other)
                            && persisted_before(other, update)
                    })
                });
                if !epoch.is_empty() && (again && all_persistent || between) {
                    let seqs = epoch.drain(..).map(|n| nodes[n].seq).collect();
                    all.insert(((ty, object), seqs));
                }
                epoch.push(update);
            }
            all.insert(((ty, object), epoch.iter().map(|&n| nodes[n].seq).collect()));
        }
    }
    all
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn epochs_are_those_of_the_definition(actions in prop::collection::vec(action(), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &actions);
        let options = options(Model::Px86, false);
        let mut nodes = Nodes::default();
        replay(&trace, &options, &mut nodes);
        let offsets: Vec<u64> = actions
            .iter()
            .filter_map(|(_, action)| match action {
                Action::Store { at, .. } => Some(*at),
                _ => None,
            })
            .collect();
        let mut subjects = Nested;
        let mut epochs = Epochs::new(&mut subjects, true);
        replay(&trace, &options, &mut epochs);
        epochs.finish();
        let found: BTreeSet<_> = epochs.seen.iter().cloned().collect();
        prop_assert_eq!(found, naive_epochs(&offsets, &nodes.0));
        let of_one = epochs.found.iter().filter(|class| class.members[0].epochs.len() == 1);
        prop_assert_eq!(of_one.map(|class| class.count).sum::<u64>(), epochs.counts.single);
    }
}

/// Updates as (field, how long until persistent, line).
fn behaviour() -> impl Strategy<Value = Vec<Node>> {
    let after = prop::option::weighted(0.2, 0..5u64);
    let update = (
        0..3u64,
        prop_oneof![1..6u64, Just(NEVER)],
        0..3u64,
        any::<bool>(),
        after,
    );
    prop::collection::vec(update, 1..6).prop_map(|updates| {
        let nodes = (0u64..)
            .zip(updates)
            .map(|(seq, (field, until, line, ordered, after))| {
                let line = LineAddress { file: 0, line };
                Node {
                    after: after.filter(|&after| after < seq).map(NodeId).into_iter().collect(),
                    ..node(seq, until.saturating_add(seq), Some(line), ordered, field)
                }
            });
        nodes.collect()
    })
}

/// Labels (field, k) and the edges between them.
type Graph = (BTreeSet<(u64, usize)>, BTreeSet<((u64, usize), (u64, usize))>);

fn graph(nodes: &[Node]) -> Graph {
    let label = |index: usize| {
        let earlier = nodes[..index].iter().filter(|node| node.field == nodes[index].field);
        (nodes[index].field, earlier.count())
    };
    let labels = (0..nodes.len()).map(label).collect();
    let pairs = (0..nodes.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let edges = pairs.filter(|&(a, b)| before(&nodes[a], &nodes[b]));
    (labels, edges.map(|(a, b)| (label(a), label(b))).collect())
}

fn naive_represents(a: &Graph, b: &Graph) -> bool {
    let among = a.1.iter().filter(|(from, to)| b.0.contains(from) && b.0.contains(to));
    b.0.is_subset(&a.0) && among.into_iter().all(|edge| b.1.contains(edge))
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn shapes_are_compared_as_graphs(a in behaviour(), b in behaviour()) {
        let (shape_a, shape_b) = (Shape::new(&[(7, &a)]), Shape::new(&[(7, &b)]));
        let (graph_a, graph_b) = (graph(&a), graph(&b));
        prop_assert_eq!(shape_a.hash() == shape_b.hash(), graph_a == graph_b);
        let mut hasher = ShapeHasher::default();
        prop_assert_eq!(hasher.hash(&[(7, &a)]), shape_a.hash());
        for parts in [[(7, &a[..]), (7, &b[..])], [(9, &a[..]), (8, &b[..])]] {
            prop_assert_eq!(hasher.hash(&parts), Shape::new(&parts).hash());
        }
        prop_assert_eq!(shape_a.edges(), graph_a.1.len());
        let all = Comparable::all(&[shape_a, shape_b, Shape::new(&[(8, &a)])]);
        let represents = |a: usize, b: usize| all[a].represents(&all[b], &mut Scratch::default());
        prop_assert_eq!(represents(0, 1), naive_represents(&graph_a, &graph_b));
        prop_assert!(!represents(2, 0));
    }

    #[test]
    fn groups_are_those_of_the_definition(behaviours in prop::collection::vec(behaviour(), 0..12)) {
        let mut epochs = FxHashMap::default();
        let mut classes = Vec::new();
        for (id, nodes) in behaviours.iter().enumerate() {
            epochs.insert(id as u64, super::epochs::Epoch::of((7, 0), nodes.clone()));
            classes.push(Class {
                count: 1,
                members: vec![Member { epochs: vec![id as u64], sites: Vec::new() }],
            });
        }
        let found: Vec<Vec<usize>> = groups::group(&classes, &epochs)
            .into_iter()
            .map(|group| group.classes)
            .collect();
        let graphs: Vec<Graph> = behaviours.iter().map(|nodes| graph(nodes)).collect();
        let mut order: Vec<usize> = (0..graphs.len()).collect();
        order.sort_by_key(|&b| (usize::MAX - graphs[b].0.len(), graphs[b].1.len(), b));
        let mut naive: Vec<Vec<usize>> = Vec::new();
        for behaviour in order {
            let mut represented = false;
            for group in &mut naive {
                if naive_represents(&graphs[group[0]], &graphs[behaviour]) {
                    group.push(behaviour);
                    represented = true;
                }
            }
            if !represented {
                naive.push(vec![behaviour]);
            }
        }
        prop_assert_eq!(found, naive);
    }
}

proptest! {
    #![proptest_config(config(100))]

    /// Behaviours that are planned when others have failed are not taken for those, whose walks may be finished.
    #[test]
    fn walks_of_all_plans_are_told_apart(actions in prop::collection::vec(action(), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        write_trace(&trace, &actions);
        let options = options(Model::Px86, false);
        let trace = TraceFile::open(&trace).unwrap();
        let strategy = Representative::new(Arc::new(analyse(&options, &mut Nested, |show| show_all(&trace, show)).unwrap()));
        let mut walks: BTreeMap<(u64, u16, u64), Vec<Vec<u64>>> = BTreeMap::new();
        let unfinished = PassEnd {
            unfinished: 1,
            ..PassEnd::default()
        };
        for pass in (0..).take_while(|&pass| strategy.has_pass(pass, unfinished)) {
            let mut image = SparseImage::default();
            let mut cursor = Cursor::open(&trace, &options, Stops::CrashPoints, &mut image).unwrap();
            while let Some(head) = cursor.next(&mut image).unwrap() {
                let parts = strategy.parts(pass, head);
                let Some(point) = cursor.point() else { continue };
                for part in 0..parts {
                    strategy.failed(&point.head, part);
                    if let Work::Among { id, options, .. } = strategy.work(pass, &point, part) {
                        let key = (point.head.seq, point.head.within, id);
                        prop_assert_eq!(walks.entry(key).or_insert_with(|| options.clone()), &options);
                    }
                }
            }
        }
    }
}
