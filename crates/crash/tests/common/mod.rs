//! Random traces, a simulated executor, and the slow and obvious enumeration of crash states.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crashproof_crash::{
    Baseline, CampaignOptions, CrashError, EdgeIndex, Edges, Executor, ExecutorError, Explainer, Failure, Outcome,
    Progress, StoreId, StrategyKind, Update,
};
use crashproof_finding::Finding;
use crashproof_model::Model;
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::{
    EventKind, FenceKind, FlushKind, Frame, Header, Item, Module, PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd,
    StoreFlags, ThreadId, TraceFile, TraceReader, TraceWriter,
};
use proptest::prelude::*;

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    }
}
pub(crate) const SIZE: u64 = 2 * PAGE;

/// What a thread of a random program does. Offsets are those of [`PLACES`].
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Store {
        at: u64,
        data: Vec<u8>,
        nontemporal: bool,
        locked: bool,
    },
    Flush {
        at: u64,
        kind: FlushKind,
    },
    Fence,
    FileWrite {
        at: u64,
        data: Vec<u8>,
    },
    Sync {
        page: u64,
    },
    /// A sync of the thread begins, if that is what the thread does next.
    Begin,
    Resize {
        size: u64,
    },
    Output {
        byte: u8,
    },
    Rename {
        name: u8,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub thread: u32,
    /// Which call path.
    pub stack: u8,
    pub action: Action,
}

/// Lines that programs use: two in one page, one in another, so that units of both kinds matter.
const PLACES: [u64; 3] = [0, 128, PAGE + 64];

fn place() -> impl Strategy<Value = u64> {
    (0..PLACES.len(), 0..24u64).prop_map(|(line, within)| PLACES[line] + within)
}

fn data(max: usize) -> impl Strategy<Value = Vec<u8>> {
    // Few values, so that stores of what is there already come up.
    prop::collection::vec(0..3u8, 1..=max)
}

pub(crate) fn step(files: bool) -> impl Strategy<Value = Step> {
    let flush = prop_oneof![
        4 => Just(FlushKind::Clwb),
        2 => Just(FlushKind::Clflushopt),
        1 => Just(FlushKind::Clflush),
    ];
    let weight = if files { 1 } else { 0 };
    let action = prop_oneof![
        10 => (place(), data(10), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(at, data, nontemporal, locked)| {
            Action::Store { at, data, nontemporal: nontemporal && !locked, locked }
        }),
        6 => (place(), flush).prop_map(|(at, kind)| Action::Flush { at, kind }),
        5 => Just(Action::Fence),
        weight => (place(), data(20)).prop_map(|(at, data)| Action::FileWrite { at, data }),
        weight => (0..2u64).prop_map(|page| Action::Sync { page }),
        weight => Just(Action::Begin),
        weight => prop_oneof![Just(100), Just(PAGE), Just(PAGE + 80), Just(SIZE)].prop_map(|size| Action::Resize { size }),
        weight => (0..3u8).prop_map(|name| Action::Rename { name }),
        weight => any::<u8>().prop_map(|byte| Action::Output { byte }),
    ];
    (0..2u32, 0..4u8, action).prop_map(|(thread, stack, action)| Step { thread, stack, action })
}

pub(crate) fn steps(files: bool, max: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(files), 0..max)
}

/// A model with edges, for tests only: Px86, and some of the non-temporal stores persist before some of what is stored later to
/// other lines. Which ones: the number decides.
#[derive(Debug)]
struct SomeFirst(u8);

impl SomeFirst {
    /// Whether the earlier of two updates of different units persists before the later.
    fn is_edge(&self, earlier: &Update, later: &Update) -> bool {
        let pair = earlier.id.seq * 5 + later.id.seq * 3 + u64::from(later.id.piece) + u64::from(self.0);
        earlier.nontemporal && !pair.is_multiple_of(3)
    }
}

impl Edges for SomeFirst {
    fn index(&self) -> Box<dyn EdgeIndex> {
        Box::new(SomeFirstIndex {
            number: self.0,
            taken: 0,
            nontemporal: Default::default(),
        })
    }
}

/// What decides of an earlier update is the remainder of its event.
struct SomeFirstIndex {
    number: u8,
    taken: usize,
    nontemporal: [Vec<usize>; 3],
}

impl EdgeIndex for SomeFirstIndex {
    fn take(&mut self, update: &Update) -> Vec<usize> {
        let rest = update.id.seq * 3 + u64::from(update.id.piece) + u64::from(self.number);
        let of = (0..3).filter(|remainder| !(remainder * 5 + rest).is_multiple_of(3));
        let before = of
            .flat_map(|remainder| &self.nontemporal[remainder as usize])
            .copied()
            .collect();
        if update.nontemporal {
            self.nontemporal[(update.id.seq % 3) as usize].push(self.taken);
        }
        self.taken += 1;
        before
    }
}

/// A model of the tests: whether it has edges, and which; and how large its units are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Units {
    pub edges: Option<u8>,
    pub size: Option<u64>,
}

/// Cache lines at most times, and else smaller units, or pages.
pub(crate) fn units() -> impl Strategy<Value = Units> {
    let size = prop_oneof![2 => Just(None), 1 => Just(Some(16)), 1 => Just(Some(PAGE))];
    (prop::option::of(any::<u8>()), size).prop_map(|(edges, size)| Units { edges, size })
}

/// The definition of the model's edges, asked for every two updates of different units.
pub(crate) fn is_edge(units: Units, earlier: &Update, later: &Update) -> bool {
    units
        .edges
        .is_some_and(|number| SomeFirst(number).is_edge(earlier, later))
}

pub(crate) fn tied(units: Units, options: CampaignOptions) -> CampaignOptions {
    let edges = units.edges.map(|number| Arc::new(SomeFirst(number)) as Arc<dyn Edges>);
    let unit = units.size.unwrap_or(options.unit);
    CampaignOptions { edges, unit, ..options }
}

/// Leaves of a program what keeps its guarantees down-closed if there are edges: in one thread, and with flushes that wait for the
/// fence, a store is never guaranteed before the non-temporal ones that came before it.
pub(crate) fn fitting(units: Units, mut steps: Vec<Step>) -> Vec<Step> {
    if units.edges.is_some() {
        let is_ordered = |step: &Step| {
            matches!(
                step.action,
                Action::Store { .. } | Action::Flush { .. } | Action::Fence | Action::Output { .. }
            )
        };
        steps.retain(is_ordered);
        for step in &mut steps {
            step.thread = 0;
            if let Action::Flush { kind, .. } = &mut step.action {
                *kind = FlushKind::Clwb;
            }
        }
    }
    steps
}

pub(crate) const PATH: &str = "/pm/pool";

/// Writes the program's trace; its file holds `initial` at first.
pub(crate) fn write_trace(path: &Path, initial: &[u8], steps: &[Step]) {
    let mut writer = TraceWriter::create(path, &Header::default()).unwrap();
    let module = Module {
        path: "/bin/program".into(),
        build_id: Vec::new(),
        locked_sites: 0,
        place: None,
    };
    let module = writer.module(&module).unwrap();
    let process = ProcessId(0);
    let none = crashproof_trace::StackId(0);
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "program",
    };
    writer.event(ThreadId(0), none, &start).unwrap();
    for thread in 0..2 {
        writer
            .event(
                ThreadId(thread),
                none,
                &EventKind::ThreadStart { process, os_id: thread },
            )
            .unwrap();
    }
    let file = writer
        .file(&PmFile {
            path: PATH.into(),
            size: SIZE,
            created: false,
            kind: PmFileKind::File,
        })
        .unwrap();
    writer.initial(PmAddress { file, offset: 0 }, initial).unwrap();
    let map = EventKind::Map {
        file,
        address: 0x7000_0000,
        offset: 0,
        len: SIZE,
        writable: true,
    };
    writer.event(ThreadId(0), none, &map).unwrap();
    let mut size = SIZE;
    let mut begun: [Option<u64>; 2] = [None; 2];
    for step in steps {
        if let Action::Begin = step.action {
            writer.begin(ThreadId(step.thread)).unwrap();
            begun[step.thread as usize] = Some(writer.events());
            continue;
        }
        let begun = begun[step.thread as usize]
            .take()
            .filter(|_| matches!(step.action, Action::Sync { .. }));
        let frame = Frame {
            module: Some(module),
            address: 0x1000 + step.stack as u64,
        };
        let stack = writer.stack(&[frame]).unwrap();
        let name;
        let kind = match &step.action {
            // A store beyond the file's end does not happen.
            Action::Store { at, data, .. } if at + data.len() as u64 > size => continue,
            Action::FileWrite { at, data } if at + data.len() as u64 > size => continue,
            Action::Store {
                at,
                data,
                nontemporal,
                locked,
            } => EventKind::Store {
                at: PmAddress { file, offset: *at },
                data,
                flags: StoreFlags {
                    exchange: false,
                    nontemporal: *nontemporal,
                    locked: *locked,
                    syscall: false,
                },
            },
            Action::Flush { at, kind } => EventKind::Flush {
                at: PmAddress { file, offset: *at },
                kind: *kind,
            },
            Action::Fence => EventKind::Fence {
                kind: FenceKind::Sfence,
            },
            Action::FileWrite { at, data } => EventKind::FileWrite {
                at: PmAddress { file, offset: *at },
                data,
            },
            Action::Sync { page } => EventKind::Sync {
                file,
                offset: page * PAGE,
                len: PAGE,
            },
            Action::Resize { size: new } => {
                size = *new;
                EventKind::Resize { file, size }
            }
            Action::Begin => unreachable!(),
            Action::Output { byte } => EventKind::Output {
                fd: 1,
                data: std::slice::from_ref(byte),
            },
            Action::Rename { name: number } => {
                name = format!("/pm/{number}");
                EventKind::Rename {
                    file,
                    path: (*number > 0).then_some(&name),
                }
            }
        };
        let begun = begun.unwrap_or(writer.events());
        writer.event_begun(begun, ThreadId(step.thread), stack, &kind).unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
}

/// What a recovery finds of one file.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Image {
    pub path: Option<String>,
    pub content: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.content.iter().enumerate().filter(|(_, byte)| **byte != 0);
        write!(f, "{:?}, {} bytes, ", self.path, self.content.len())?;
        f.debug_map().entries(bytes).finish()
    }
}

/// A store, or a piece of one, as the reference sees it.
#[derive(Clone)]
struct Piece {
    id: StoreId,
    at: u64,
    data: Vec<u8>,
    thread: u32,
    nontemporal: bool,
    persistent: bool,
}

/// The definition in the design, event by event, with no thought of speed: all images that a crash may leave at any time.
#[derive(Clone, Default)]
struct Reference {
    pieces: Vec<Piece>,
    /// By thread: indices of pieces that it flushed and has not fenced.
    pending: BTreeMap<u32, BTreeSet<usize>>,
    size: u64,
    path: Option<String>,
    unit: u64,
    units: Units,
}

impl Reference {
    fn line(&self, index: usize) -> u64 {
        self.pieces[index].at / self.unit
    }

    fn cached_in(&self, line: u64) -> Vec<usize> {
        (0..self.pieces.len())
            .filter(|&index| self.line(index) == line && !self.pieces[index].nontemporal)
            .collect()
    }

    fn fence(&mut self, thread: u32) {
        for index in self.pending.remove(&thread).unwrap_or_default() {
            self.pieces[index].persistent = true;
        }
        for piece in self.pieces.iter_mut().filter(|p| p.nontemporal && p.thread == thread) {
            piece.persistent = true;
        }
    }

    /// Something that is durable at once.
    fn write(&mut self, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let start = at + done as u64;
            let len = ((start / self.unit + 1) * self.unit - start).min((data.len() - done) as u64) as usize;
            self.pieces.push(Piece {
                id: StoreId { seq: 0, piece: 0 },
                at: start,
                data: data[done..done + len].into(),
                thread: 0,
                // Not one of the cached stores: it has no place in their order.
                nontemporal: true,
                persistent: true,
            });
            done += len;
        }
    }

    fn images(&self, options: &CampaignOptions, out: &mut BTreeSet<Image>) {
        if options.edges.is_some() {
            self.extend(options, &mut Vec::new(), out);
            return;
        }
        let reorder = options.reorder_in_line;
        let lines: BTreeSet<u64> = (0..self.pieces.len()).map(|index| self.line(index)).collect();
        let mut images: BTreeSet<Vec<u8>> = BTreeSet::from([vec![0; SIZE as usize]]);
        for line in lines {
            let contents = self.contents(line, reorder);
            images = images
                .iter()
                .flat_map(|image| {
                    contents.iter().map(|content| {
                        let mut image = image.clone();
                        image[(line * self.unit) as usize..][..content.len()].copy_from_slice(content);
                        image
                    })
                })
                .collect();
        }
        out.extend(images.into_iter().map(|content| self.image(content)));
    }

    fn image(&self, mut content: Vec<u8>) -> Image {
        content.truncate(self.size as usize);
        Image {
            path: self.path.clone(),
            content,
        }
    }

    /// Whether the earlier of two pieces that are not persistent persists before the later.
    fn is_before(&self, options: &CampaignOptions, earlier: usize, later: usize) -> bool {
        let (a, b) = (&self.pieces[earlier], &self.pieces[later]);
        let update = |piece: &Piece| Update {
            id: piece.id,
            file: 0,
            unit: piece.at / self.unit,
            offset: piece.at,
            nontemporal: piece.nontemporal,
        };
        match self.line(earlier) == self.line(later) {
            true => !a.nontemporal && !b.nontemporal && !options.reorder_in_line,
            false => is_edge(self.units, &update(a), &update(b)),
        }
    }

    /// The images of all sets of pieces that begin with these: a piece may have persisted if everything before it has.
    fn extend(&self, options: &CampaignOptions, persisted: &mut Vec<bool>, out: &mut BTreeSet<Image>) {
        let next = persisted.len();
        if next == self.pieces.len() {
            let mut content = vec![0; SIZE as usize];
            for (piece, _) in self.pieces.iter().zip(persisted).filter(|(_, persisted)| **persisted) {
                content[piece.at as usize..][..piece.data.len()].copy_from_slice(&piece.data);
            }
            out.insert(self.image(content));
            return;
        }
        let is_persistent = self.pieces[next].persistent;
        let may_persist =
            is_persistent || (0..next).all(|earlier| persisted[earlier] || !self.is_before(options, earlier, next));
        for choice in [false, true] {
            if if choice { may_persist } else { !is_persistent } {
                persisted.push(choice);
                self.extend(options, persisted, out);
                persisted.pop();
            }
        }
    }

    /// All contents that a line may have.
    fn contents(&self, line: u64, reorder: bool) -> BTreeSet<Vec<u8>> {
        let indices: Vec<usize> = (0..self.pieces.len())
            .filter(|&index| self.line(index) == line)
            .collect();
        let uncertain: Vec<usize> = indices
            .iter()
            .copied()
            .filter(|&i| !self.pieces[i].persistent)
            .collect();
        let cached: Vec<usize> = uncertain
            .iter()
            .copied()
            .filter(|&i| !self.pieces[i].nontemporal)
            .collect();
        let free: Vec<usize> = uncertain
            .iter()
            .copied()
            .filter(|&i| reorder || self.pieces[i].nontemporal)
            .collect();
        let prefixes = if reorder { 0..=0 } else { 0..=cached.len() };
        prefixes
            .flat_map(|prefix| (0..1u32 << free.len()).map(move |subset| (prefix, subset)))
            .map(|(prefix, subset)| {
                let mut content = vec![0; self.unit as usize];
                for &index in &indices {
                    let piece = &self.pieces[index];
                    let persisted = piece.persistent
                        || match free.iter().position(|&i| i == index) {
                            Some(bit) => subset >> bit & 1 != 0,
                            None => cached.iter().position(|&i| i == index).is_some_and(|n| n < prefix),
                        };
                    if persisted {
                        content[(piece.at % self.unit) as usize..][..piece.data.len()].copy_from_slice(&piece.data);
                    }
                }
                content
            })
            .collect()
    }
}

/// Every image that a crash at any time may leave.
pub(crate) fn allowed(trace: &Path, units: Units, options: &CampaignOptions) -> BTreeSet<Image> {
    let mut reader = TraceReader::open(trace).unwrap();
    let mut state = Reference {
        size: SIZE,
        path: Some(PATH.into()),
        unit: options.unit,
        units,
        ..Default::default()
    };
    let mut images = BTreeSet::new();
    let mut stored = false;
    while let Some(item) = reader.next().unwrap() {
        let event = match item {
            Item::Initial { at, data } => {
                state.write(at.offset, data);
                continue;
            }
            Item::Event(event) => event,
        };
        let thread = event.thread.0;
        match event.kind {
            EventKind::Store { at, data, flags } => {
                state.images(options, &mut images);
                stored = true;
                if flags.locked {
                    state.fence(thread);
                    state.images(options, &mut images);
                }
                let mut done = 0;
                for number in 0.. {
                    if done == data.len() {
                        break;
                    }
                    let start = at.offset + done as u64;
                    let unit = if options.tear { 8 } else { options.unit };
                    let len = ((start / unit + 1) * unit - start).min((data.len() - done) as u64) as usize;
                    let id = StoreId {
                        seq: event.seq,
                        piece: number,
                    };
                    state.pieces.push(Piece {
                        id,
                        at: start,
                        data: data[done..done + len].into(),
                        thread,
                        nontemporal: flags.nontemporal,
                        persistent: options.model == Model::Eadr && !flags.nontemporal,
                    });
                    state.images(options, &mut images);
                    done += len;
                }
            }
            EventKind::Flush { at, kind } => {
                for index in state.cached_in(at.offset / options.unit) {
                    if kind == FlushKind::Clflush {
                        state.pieces[index].persistent = true;
                    } else {
                        state.pending.entry(thread).or_default().insert(index);
                    }
                }
            }
            EventKind::Fence { .. } => state.fence(thread),
            EventKind::FileWrite { at, data } => {
                state.images(options, &mut images);
                state.write(at.offset, data);
                stored = true;
            }
            EventKind::Resize { size, .. } => {
                state.images(options, &mut images);
                state.size = size;
                let cut = vec![0; (SIZE - size) as usize];
                state.write(size, &cut);
                stored = true;
            }
            EventKind::Rename { path, .. } => {
                state.images(options, &mut images);
                state.path = path.map(Into::into);
                stored = true;
            }
            EventKind::Sync { offset, len, .. } => {
                for piece in state.pieces.iter_mut().filter(|piece| piece.id.seq < event.begun()) {
                    piece.persistent |= (offset..offset + len).contains(&piece.at);
                }
            }
            _ => {}
        }
        if stored {
            state.images(options, &mut images);
        }
    }
    state.images(options, &mut images);
    images
}

/// What a simulated recovery sees: every access is noted.
pub(crate) struct View<'a> {
    content: &'a [u8],
    fine: bool,
    touched: Vec<u64>,
}

impl View<'_> {
    pub(crate) fn read(&mut self, offset: u64) -> u8 {
        let unit = if self.fine && offset < PAGE {
            crashproof_wire::recovery::line_unit(0, offset)
        } else {
            crashproof_wire::recovery::page_unit(0, offset)
        };
        if !self.touched.contains(&unit) {
            self.touched.push(unit);
        }
        self.content.get(offset as usize).copied().unwrap_or(0)
    }
}

/// Whether it recovers.
pub(crate) type Recovery = Arc<dyn Fn(&mut View<'_>, &[u8]) -> bool + Send + Sync>;

/// What was run: the image, what was output, the units touched with what they held, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub image: Image,
    pub output: Vec<u8>,
    pub reads: Vec<(u64, Vec<u8>)>,
    pub recovers: bool,
}

#[derive(Clone)]
pub(crate) struct Simulated {
    pub file: Image,
    pub recovery: Recovery,
    /// Reads are told: by line in the first page, by page in others.
    pub tracked: bool,
    pub fine: bool,
    /// What the program had output is looked at only if the first byte, divided by 4, leaves this.
    pub opens_output_at: Option<u8>,
    pub opened: bool,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Simulated {
    pub(crate) fn new(recovery: Recovery) -> Simulated {
        Simulated {
            // Rubbish: a campaign has to make it what it needs.
            file: Image {
                path: None,
                content: vec![0xee; 77],
            },
            recovery,
            tracked: true,
            fine: true,
            opens_output_at: None,
            opened: false,
            seen: Arc::default(),
        }
    }

    pub(crate) fn boxed(&self) -> Box<dyn Executor> {
        Box::new(self.clone())
    }
}

impl Executor for Simulated {
    fn read(&self, _file: usize, offset: u64, buffer: &mut [u8]) {
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = self.file.content.get(offset as usize + index).copied().unwrap_or(0);
        }
    }

    fn write(&mut self, _file: usize, offset: u64, data: &[u8]) {
        for (index, &byte) in data.iter().enumerate() {
            if let Some(place) = self.file.content.get_mut(offset as usize + index) {
                *place = byte;
            }
        }
    }

    fn resize(&mut self, _file: usize, size: u64) {
        self.file.content.resize(size as usize, 0);
    }

    fn place(&mut self, _file: usize, path: Option<&str>) {
        self.file.path = path.map(Into::into);
    }

    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError> {
        let mut view = View {
            content: &self.file.content,
            fine: self.fine,
            touched: Vec::new(),
        };
        let opens = self.opens_output_at.is_none_or(|at| view.read(0) % 4 == at);
        self.opened |= opens;
        let output = if opens { output } else { b"" };
        let recovers = (self.recovery)(&mut view, output);
        let touched = view.touched;
        let reads = touched.iter().map(|&unit| {
            let (_, offset, len) = crashproof_wire::recovery::parse_unit(unit);
            let mut content = vec![0; len as usize];
            self.read(0, offset, &mut content);
            (unit, content)
        });
        self.seen.lock().unwrap().push(Seen {
            image: self.file.clone(),
            output: output.into(),
            reads: reads.collect(),
            recovers,
        });
        Ok(Run {
            recovery: Ended {
                status: Some(!recovers as i32),
                ..Default::default()
            },
            touched: self.tracked.then_some(touched),
            wrote: true,
            output_unread: !self.opened,
            looked: Some(true),
            ..Default::default()
        })
    }
}

/// Keeps what it is given.
#[derive(Clone, Default)]
pub(crate) struct Collector(pub Arc<Mutex<Vec<Failure>>>);

impl Explainer for Collector {
    fn explain(&mut self, failure: &Failure) -> Result<bool, CrashError> {
        self.0.lock().unwrap().push(failure.clone());
        Ok(true)
    }

    fn leave(&mut self, _failure: Failure) {}

    fn finish(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

pub(crate) fn options(strategy: StrategyKind) -> CampaignOptions {
    CampaignOptions {
        strategy,
        ..CampaignOptions::default()
    }
}

/// A whole campaign.
pub(crate) struct Campaign {
    pub outcome: Outcome,
    pub failures: Vec<Failure>,
    pub seen: Vec<Seen>,
}

impl Campaign {
    pub(crate) fn images(&self) -> BTreeSet<Image> {
        self.seen.iter().map(|seen| seen.image.clone()).collect()
    }
}

/// Opens and surveys the trace, and tests it.
pub(crate) fn tested(
    trace: &Path,
    options: &CampaignOptions,
    executors: Vec<Box<dyn Executor>>,
    explainer: Box<dyn Explainer>,
    progress: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<Outcome, CrashError> {
    let trace = opened(trace);
    let survey = crashproof_crash::survey(&trace, options)?;
    crashproof_crash::run(&trace, options, &survey, executors, explainer, progress, stop)
}

/// Opens and surveys the trace, and runs the undisturbed recoveries.
pub(crate) fn baseline(trace: &Path, options: &CampaignOptions, executor: &mut dyn Executor) -> Baseline {
    let trace = opened(trace);
    let survey = crashproof_crash::survey(&trace, options).unwrap();
    crashproof_crash::baseline(&trace, options, &survey, executor).unwrap()
}

pub(crate) fn opened(trace: &Path) -> TraceFile {
    TraceFile::open(trace).unwrap()
}

pub(crate) fn run(trace: &Path, options: &CampaignOptions, simulated: &Simulated, workers: usize) -> Campaign {
    let simulated = Simulated {
        seen: Arc::default(),
        ..simulated.clone()
    };
    let collector = Collector::default();
    let outcome = tested(
        trace,
        options,
        (0..workers).map(|_| simulated.boxed()).collect(),
        Box::new(collector.clone()),
        &|_: &Progress| {},
        &Default::default(),
    )
    .unwrap();
    let failures = std::mem::take(&mut *collector.0.lock().unwrap());
    let seen = std::mem::take(&mut *simulated.seen.lock().unwrap());
    Campaign {
        outcome,
        failures,
        seen,
    }
}

/// A recovery that goes where the data leads it, and fails for some of it.
pub(crate) fn wandering(table: Vec<u8>) -> Recovery {
    Arc::new(move |view, output| {
        let mut state = output.len();
        for _ in 0..6 {
            let place = table[state % table.len()] as usize;
            let content = view.read(PLACES[place % PLACES.len()] + (place / 8 % 24) as u64);
            state = state * 5 + content as usize + 1;
        }
        state % 5 != 2
    })
}
