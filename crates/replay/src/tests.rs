//! Both executors on random events, against each other; and rules that a reader may ask for, one by one.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use crashproof_base::{FileId, LINE, LineAddress, PAGE, PmAddress, WORD};
use crashproof_model::{ByteSet, Bytes, Keep, Limits, Line, Memory, Model, Ranges, Store, Tag, Thread};
use crashproof_trace::{Beginning, Event, EventKind, FenceKind, FlushKind, StackId, StoreFlags, ThreadId};
use proptest::prelude::*;

use crate::*;

/// Numbers the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Number(u64);

impl<B> Tag<B> for Number {
    type Site = ();
}

/// Follows all lines.
struct All<B = Bytes> {
    number: u64,
    bytes: PhantomData<B>,
}

impl<B> All<B> {
    fn new(number: u64) -> All<B> {
        All {
            number,
            bytes: PhantomData,
        }
    }
}

impl<B: ByteSet> Observer for All<B> {
    type Line = Line<Number, B>;

    fn tag(&mut self, _piece: &StorePiece) -> Number {
        Number(self.number)
    }

    fn open(&mut self, _at: LineAddress) -> Option<Line<Number, B>> {
        Some(Line::default())
    }

    fn closed(&mut self, _at: LineAddress, line: Line<Number, B>) {
        assert!(line.is_clean());
    }
}

const FILE: FileId = FileId(0);
/// Stores begin in these lines: of one page, of another, and of one far away.
const LINES: [u64; 4] = [0, 1, PAGE / LINE, 1000 * PAGE / LINE];

fn offset() -> impl Strategy<Value = u64> {
    (0..LINES.len(), 0..LINE).prop_map(|(line, byte)| LINES[line] * LINE + byte)
}

/// A part of the file, a large one at times.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let len = prop_oneof![3 => 0..2 * LINE, 1 => Just(2 * PAGE), 1 => Just(u64::MAX)];
    (prop_oneof![4 => offset(), 1 => Just(0)], len)
}

fn event() -> impl Strategy<Value = EventKind<'static>> {
    let at = || {
        (0..2u32, offset()).prop_map(|(file, offset)| PmAddress {
            file: FileId(file),
            offset,
        })
    };
    let data = |len: usize| &[0u8; LINE as usize][..len];
    let flags = (0..4).prop_map(|kind| StoreFlags {
        nontemporal: kind == 1,
        locked: kind == 2,
        syscall: false,
        exchange: false,
    });
    let kind = prop_oneof![
        Just(FlushKind::Clwb),
        Just(FlushKind::Clflushopt),
        Just(FlushKind::Clflush)
    ];
    prop_oneof![
        8 => (at(), 1..=LINE as usize, flags).prop_map(move |(at, len, flags)| EventKind::Store { at, data: data(len), flags }),
        6 => (at(), kind).prop_map(|(at, kind)| EventKind::Flush { at, kind }),
        3 => Just(EventKind::Fence { kind: FenceKind::Sfence }),
        1 => range().prop_map(|(offset, len)| EventKind::Sync { file: FILE, offset, len }),
        1 => (at(), 0..=LINE as usize).prop_map(move |(at, len)| EventKind::FileWrite { at, data: data(len) }),
        1 => offset().prop_map(|size| EventKind::Resize { file: FILE, size }),
        1 => Just(EventKind::Rename { file: FILE, path: None }),
        1 => Just(EventKind::Map { file: FILE, address: 0, offset: 0, len: PAGE, writable: true }),
        1 => Just(EventKind::Unmap { file: FILE, offset: 0, len: PAGE }),
        1 => Just(EventKind::Quiet),
    ]
}

/// The event with other offsets and lengths.
fn scaled(event: &EventKind<'static>, scale: impl Fn(u64) -> u64) -> EventKind<'static> {
    static DATA: [u8; 4096] = [0; 4096];
    let place = |at: PmAddress| PmAddress {
        offset: scale(at.offset),
        ..at
    };
    let data = |data: &[u8]| &DATA[..scale(data.len() as u64) as usize];
    match *event {
        EventKind::Store { at, data: of, flags } => EventKind::Store {
            at: place(at),
            data: data(of),
            flags,
        },
        EventKind::Flush { at, kind } => EventKind::Flush { at: place(at), kind },
        EventKind::Sync { file, offset, len } => EventKind::Sync {
            file,
            offset: scale(offset),
            len: scale(len),
        },
        EventKind::FileWrite { at, data: of } => EventKind::FileWrite {
            at: place(at),
            data: data(of),
        },
        EventKind::Resize { file, size } => EventKind::Resize {
            file,
            size: scale(size),
        },
        ref event => event.clone(),
    }
}

/// Events of threads, before some of which a sync of another thread begins.
fn events() -> impl Strategy<Value = Vec<(Thread, Option<Thread>, EventKind<'static>)>> {
    prop::collection::vec(
        (0..3 as Thread, prop::option::weighted(0.2, 0..3 as Thread), event()),
        0..40,
    )
}

/// As the trace has them: a sync has begun where its thread began one, if it is the thread's next event.
fn in_order(
    events: &[(Thread, Option<Thread>, EventKind<'static>)],
    mut each: impl FnMut(&Event<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut began: [Option<u64>; 3] = [None; 3];
    for (seq, (thread, begins, kind)) in (0..).zip(events) {
        let begins = begins.filter(|begins| begins != thread).map(ThreadId);
        if let Some(begins) = begins {
            began[begins.0 as usize] = Some(seq);
        }
        let began = began[*thread as usize].take();
        let is_sync = matches!(kind, EventKind::Sync { .. });
        let beginning = Beginning {
            before: seq - began.filter(|_| is_sync).unwrap_or(seq),
            others: begins.into_iter().collect(),
        };
        each(&Event {
            seq,
            beginning: &beginning,
            thread: ThreadId(*thread),
            stack: StackId(0),
            kind: kind.clone(),
        })?;
    }
    Ok(())
}

/// The rules for every byte that was stored, with no thought of speed.
#[derive(Default)]
struct Naive {
    stored: Vec<StoredByte>,
}

struct StoredByte {
    seq: u64,
    at: PmAddress,
    thread: Thread,
    nontemporal: bool,
    /// Pending for these threads.
    flushed: BTreeSet<Thread>,
    persistent: bool,
    /// A later one is, or it is gone.
    covered: bool,
}

impl Naive {
    fn persist(&mut self, which: impl Fn(&StoredByte) -> bool) {
        for byte in 0..self.stored.len() {
            if which(&self.stored[byte]) {
                self.stored[byte].persistent = true;
                let at = self.stored[byte].at;
                self.stored[..byte]
                    .iter_mut()
                    .filter(|of| of.at == at)
                    .for_each(|of| of.covered = true);
            }
        }
    }

    fn event(&mut self, model: Model, event: &Event<'_>) {
        let thread = event.thread.0;
        let line = |at: PmAddress| (at.file, at.offset / LINE);
        let is_fence = match event.kind {
            EventKind::Store { flags, .. } => flags.locked,
            ref kind => matches!(kind, EventKind::Fence { .. }),
        };
        if is_fence {
            self.persist(|of| of.flushed.contains(&thread) || of.nontemporal && of.thread == thread);
            self.stored.iter_mut().for_each(|of| {
                of.flushed.remove(&thread);
            });
        }
        match event.kind {
            EventKind::Store { at, data, flags } => {
                let offsets = at.offset..at.offset + data.len() as u64;
                self.stored.extend(offsets.map(|offset| StoredByte {
                    seq: event.seq,
                    at: PmAddress { offset, ..at },
                    thread,
                    nontemporal: flags.nontemporal,
                    flushed: BTreeSet::new(),
                    persistent: false,
                    covered: false,
                }));
                if model == Model::Eadr && !flags.nontemporal {
                    self.persist(|of| of.seq == event.seq);
                }
            }
            EventKind::Flush {
                at,
                kind: FlushKind::Clflush,
            } => {
                self.persist(|of| line(of.at) == line(at) && !of.nontemporal);
            }
            EventKind::Flush { at, .. } => {
                let of_line = self
                    .stored
                    .iter_mut()
                    .filter(|of| line(of.at) == line(at) && !of.nontemporal);
                of_line.for_each(|of| {
                    of.flushed.insert(thread);
                });
            }
            EventKind::Sync { file, offset, len } => {
                let range = offset..offset.saturating_add(len);
                self.persist(|of| of.seq < event.begun() && of.at.file == file && range.contains(&of.at.offset));
            }
            EventKind::FileWrite { at, data } => {
                let range = at.offset..at.offset + data.len() as u64;
                let is_gone = |of: &&mut StoredByte| of.at.file == at.file && range.contains(&of.at.offset);
                self.stored.iter_mut().filter(is_gone).for_each(|of| of.covered = true);
            }
            EventKind::Resize { file, size } => {
                let is_gone = |of: &&mut StoredByte| of.at.file == file && of.at.offset >= size;
                self.stored.iter_mut().filter(is_gone).for_each(|of| of.covered = true);
            }
            _ => {}
        }
    }

    /// What a line holds that is not persistent.
    fn line(&self, at: LineAddress) -> BTreeSet<(u64, u64)> {
        let of_line = self
            .stored
            .iter()
            .filter(|of| (of.at.file.0, of.at.offset / LINE) == (at.file, at.line));
        let uncertain = of_line.filter(|of| !of.persistent && !of.covered);
        uncertain.map(|of| (of.seq, of.at.offset % LINE)).collect()
    }
}

fn lines() -> impl Iterator<Item = LineAddress> {
    let near = |file| {
        LINES
            .into_iter()
            .flat_map(move |line| [line, line + 1].map(|line| LineAddress { file, line }))
    };
    (0..2).flat_map(near)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_tuned_memory_is_exact(
        events in events(),
        eadr: bool,
        tear: bool,
        last: bool,
        sweeping: bool,
    ) {
        let model = if eadr { Model::Eadr } else { Model::Px86 };
        let cut = Cut::units(LINE, tear);
        let limits = if sweeping { (1, 1, 1) } else { (100, 100, 100) };
        let limits = Limits { lines: limits.0, pages: limits.1 + 1, fences: limits.2 };
        let keep = if last { Keep::Last } else { Keep::All };
        let mut memory = Memory::with_limits(model, keep, limits);
        let mut replay = Replay::new(model);
        let mut underway = Underway::default();
        let mut naive = Naive::default();
        in_order(&events, |event| {
            let (thread, number) = (event.thread.0, event.seq);
            replay.event(event);
            underway.event(event, |change| sync_memory(&mut memory, change));
            naive.event(model, event);
            for step in Steps::of(&event.kind, cut) {
                step_memory(&mut memory, thread, (), &step, |_| Number(number));
                if last {
                    replay.step(thread, &step, &mut LastOnly(All::new(number)));
                } else {
                    replay.step(thread, &step, &mut All::new(number));
                }
            }
            for at in lines() {
                let fast: Vec<Store<Number>> = memory.line(at).map_or(Vec::new(), |line| line.stores().to_vec());
                let exact: Vec<Store<Number>> = replay.line(at).map_or(Vec::new(), |line| line.stores().to_vec());
                prop_assert_eq!(&fast, &exact, "{:?} after {:?}", at, event);
                let pending = |line: &Line<Number>| -> Vec<bool> {
                    (0..line.stores().len()).map(|index| line.flushed_at(index).is_some()).collect()
                };
                let fast = memory.line(at).map(pending).unwrap_or_default();
                prop_assert_eq!(fast, replay.line(at).map(pending).unwrap_or_default());
                if !last {
                    let bytes = |store: &Store<Number>| -> Vec<(u64, u64)> {
                        (0..LINE).filter(|byte| store.bytes.0 >> byte & 1 != 0).map(|byte| (store.tag.0, byte)).collect()
                    };
                    let exact: BTreeSet<(u64, u64)> = exact.iter().flat_map(bytes).collect();
                    prop_assert_eq!(exact, naive.line(at), "{:?} after {:?}", at, event);
                }
            }
            Ok(())
        })?;
    }

    /// Where everything is larger or smaller, units are too.
    #[test]
    fn units_may_have_another_size(
        events in prop::collection::vec((0..3 as Thread, event()), 0..40),
        eadr: bool,
        tear: bool,
    ) {
        let model = if eadr { Model::Eadr } else { Model::Px86 };
        // In quarters of a line, so that a unit of 16 bytes is a line in small.
        let events: Vec<(Thread, EventKind<'_>)> =
            events.iter().map(|(thread, event)| (*thread, scaled(event, |at| at / 4 * 4))).collect();
        let mut replay = Replay::new(model);
        let mut units = [16, 4096].map(|unit| (unit, Replay::of_units(model, unit)));
        for (number, (thread, event)) in (0..).zip(&events) {
            for step in Steps::of(event, Cut::units(LINE, tear)) {
                replay.step(*thread, &step, &mut All::<Bytes>::new(number));
            }
            for (unit, replay) in &mut units {
                let event = scaled(event, |at| (u128::from(at) * u128::from(*unit) / u128::from(LINE)) as u64);
                let cut = Cut { unit: *unit, piece: if tear { WORD * *unit / LINE } else { *unit } };
                for step in Steps::of(&event, cut) {
                    replay.step(*thread, &step, &mut All::<Ranges>::new(number));
                }
            }
            for at in lines() {
                let stores = replay.line(at).map_or(&[][..], |line| line.stores());
                for (unit, replay) in &units {
                    let scaled = replay.line(at).map_or(&[][..], |line| line.stores());
                    let in_bytes = |store: &Store<Number, Ranges>| -> Bytes {
                        let ranges = store.bytes.iter().map(|range| [range.start, range.end].map(|at| at as u64 * LINE / unit));
                        ranges.fold(Bytes::default(), |all, [from, to]| all.union(Bytes::range(from, to - from)))
                    };
                    let numbers = |store: &Store<Number, Ranges>| (store.tag.0, store.thread, in_bytes(store));
                    let expected: Vec<_> = stores.iter().map(|store| (store.tag.0, store.thread, store.bytes)).collect();
                    prop_assert_eq!(scaled.iter().map(numbers).collect::<Vec<_>>(), expected, "{} after {:?}", unit, event);
                }
            }
        }
    }

    /// What raises no floor makes no store persistent.
    #[test]
    fn floors_rise_only_where_it_is_said(events in events(), eadr: bool) {
        let mut replay = Replay::new(if eadr { Model::Eadr } else { Model::Px86 });
        in_order(&events, |event| {
            replay.event(event);
            for step in Steps::of(&event.kind, Cut::units(LINE, true)) {
                let raises = replay.raises_floor(event.thread.0, &step);
                let mut counting = Persisted { all: All::new(event.seq), any: false };
                replay.step(event.thread.0, &step, &mut counting);
                prop_assert!(raises || !counting.any, "{:?}", step);
            }
            Ok(())
        })?;
    }
}

/// Keeps the last store of each byte.
struct LastOnly(All);

impl Observer for LastOnly {
    type Line = Line<Number>;

    const KEEP: Keep = Keep::Last;

    fn tag(&mut self, piece: &StorePiece) -> Number {
        self.0.tag(piece)
    }

    fn open(&mut self, at: LineAddress) -> Option<Line<Number>> {
        self.0.open(at)
    }
}

/// Whether anything persisted.
struct Persisted {
    all: All,
    any: bool,
}

impl Observer for Persisted {
    type Line = Line<Number>;

    fn tag(&mut self, piece: &StorePiece) -> Number {
        self.all.tag(piece)
    }

    fn open(&mut self, at: LineAddress) -> Option<Line<Number>> {
        self.all.open(at)
    }

    fn stored_durably(&mut self, _at: LineAddress, _line: Option<&mut Line<Number>>, _store: Store<Number>) {
        self.any = true;
    }

    fn change(&mut self, _at: LineAddress, line: &mut Line<Number>, change: Change) {
        change.apply(line, |_| self.any = true);
    }
}

fn store(offset: u64, len: usize, flags: StoreFlags) -> EventKind<'static> {
    EventKind::Store {
        at: PmAddress { file: FILE, offset },
        data: &[0; 64][..len],
        flags,
    }
}

fn locked() -> StoreFlags {
    StoreFlags {
        locked: true,
        ..StoreFlags::default()
    }
}

#[test]
fn a_store_is_cut_into_lines_or_words() {
    let event = store(60, 8, locked());
    let steps: Vec<Step> = Steps::of(&event, Cut::LINES).collect();
    let line = |line| LineAddress { file: 0, line };
    let piece = |number, at, start: u32, len, from| {
        Step::Store(StorePiece {
            number,
            line: line(at),
            start,
            len,
            from,
            offset: at * LINE + u64::from(start),
            nontemporal: false,
        })
    };
    let first = piece(0, 0, 60, 4, 0);
    let second = piece(1, 1, 0, 4, 4);
    assert_eq!(steps, [Step::Fence, first, second]);
    let words = Steps::of(&store(4, 16, StoreFlags::default()), Cut::units(LINE, true));
    assert_eq!(words.count(), 3);
    let Step::Store(second) = second else { unreachable!() };
    assert_eq!(second.at().offset, 64);
    assert_eq!(second.data(&[1, 2, 3, 4, 5, 6, 7, 8]), [5, 6, 7, 8]);
}

fn run(replay: &mut Replay<Line<Number>>, events: &[EventKind<'_>]) {
    for event in events {
        for step in Steps::of(event, Cut::LINES) {
            replay.step(0, &step, &mut All::new(0));
        }
    }
}

/// What is left at offset 0 after a store of 8 bytes there and these events.
fn left(events: &[EventKind<'_>]) -> u64 {
    let mut replay = Replay::new(Model::Px86);
    run(&mut replay, &[store(0, 8, StoreFlags::default())]);
    run(&mut replay, events);
    let stores = replay
        .line(LineAddress { file: 0, line: 0 })
        .map_or(&[][..], |line| line.stores());
    stores.iter().map(|store| store.bytes.span()).sum()
}

/// A crash before a sync of nothing has no states that a later one lacks.
#[test]
fn an_empty_sync_does_nothing() {
    let mut replay = Replay::new(Model::Px86);
    run(&mut replay, &[store(0, 8, StoreFlags::default())]);
    let sync = |len| Step::Sync {
        file: FILE,
        offset: 4,
        len,
    };
    assert!(!replay.raises_floor(0, &sync(0)) && replay.raises_floor(0, &sync(1)));
}

#[test]
fn what_makes_a_store_persistent() {
    let at = |offset| PmAddress { file: FILE, offset };
    let flush = |kind| EventKind::Flush { at: at(0), kind };
    let fence = || EventKind::Fence {
        kind: FenceKind::Sfence,
    };
    assert_eq!(left(&[fence()]), 8, "a fence alone does not");
    assert_eq!(left(&[flush(FlushKind::Clwb)]), 8, "a flush alone does not");
    assert_eq!(left(&[flush(FlushKind::Clwb), fence()]), 0);
    assert_eq!(
        left(&[flush(FlushKind::Clwb), flush(FlushKind::Clflush)]),
        0,
        "clflush needs no fence"
    );
    assert_eq!(
        left(&[flush(FlushKind::Clwb), store(200, 8, locked())]),
        0,
        "a locked store fences"
    );
    assert_eq!(
        left(&[EventKind::FileWrite {
            at: at(0),
            data: &[0; 8]
        }]),
        0,
        "write(2) is durable"
    );
    assert_eq!(
        left(&[EventKind::FileWrite {
            at: at(2),
            data: &[0; 20]
        }]),
        2,
        "where it writes"
    );
    assert_eq!(
        left(&[EventKind::Sync {
            file: FILE,
            offset: 0,
            len: 4
        }]),
        4,
        "msync persists its range"
    );
    assert_eq!(
        left(&[EventKind::Resize { file: FILE, size: 4 }]),
        4,
        "truncation drops what is beyond"
    );
    assert_eq!(
        left(&[EventKind::Unmap {
            file: FILE,
            offset: 0,
            len: PAGE
        }]),
        8,
        "unmapping does not"
    );
}
