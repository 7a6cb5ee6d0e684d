//! The pictures of findings, against what one would draw by hand.

use crashproof_finding::picture::{Graph, LineState, StoreOutcome, Timeline, TimelineEvent, TimelineKind};

use super::*;

impl Case {
    /// The crash of the first finding, with its pictures.
    fn drawn(&self) -> crashproof_finding::Crash {
        let mut investigator = self.investigator().with_pictures(&options(None));
        for failure in &self.failures() {
            investigator.explain(failure).unwrap();
        }
        let finding = investigator.finish().remove(0);
        assert_eq!(
            investigator.warnings().iter().find(|text| text.contains("pictures")),
            None
        );
        finding.crash.unwrap()
    }

    fn timeline(&self) -> Timeline {
        self.drawn().timeline.unwrap()
    }
}

/// Kind, rows, changes of states, and what became of a store.
type Shown = (TimelineKind, Vec<usize>, Vec<(usize, LineState)>, Vec<StoreOutcome>);

fn shown(event: &TimelineEvent) -> Shown {
    let pieces = event.stored.iter().flat_map(|stored| &stored.pieces);
    let outcomes = pieces.map(|&(_, _, outcome)| outcome).collect();
    (event.kind, event.lines.clone(), event.states.clone(), outcomes)
}

use LineState::{Dirty, Pending, Persistent};
use StoreOutcome::{Certain, Later, Missing, Persisted};
use TimelineKind as T;

#[test]
fn two_lines_step_by_step() {
    // The entry is flushed but not fenced when the count is stored, and the count persists first.
    let append = |n: u64| {
        vec![
            word(14, 64, n + 7),
            Flush(64),
            word(15, 0, n + 1),
            Flush(0),
            Fence,
            Output("appended\n"),
        ]
    };
    let recovery = |image: &[u8], _: &[u8]| match at(image, 0) {
        0 => Ok(()),
        count => (at(image, 64) >= count + 6).then_some(()).ok_or("the entry is old"),
    };
    let case = Case::new((0..2).flat_map(append), recovery);
    let crash = case.drawn();
    let timeline = crash.timeline.unwrap();
    let lines: Vec<_> = timeline.lines.iter().map(|line| (line.offset, line.state)).collect();
    assert_eq!(lines, [(0, Persistent), (64, Persistent)]);
    assert_eq!(timeline.lines[0].file, "/pm/pool");
    assert_eq!((timeline.omitted, timeline.more_lines), (0, 0));
    let events: Vec<Shown> = timeline.events.iter().map(shown).collect();
    // After the first count is stored, before its flush: the earliest crash that fails.
    let first: Vec<Shown> = vec![
        (T::Store, vec![1], vec![(1, Dirty)], vec![Missing]),
        (T::Flush, vec![1], vec![(1, Pending)], vec![]),
        (T::Store, vec![0], vec![(0, Dirty)], vec![Persisted]),
        (T::Crash, vec![], vec![], vec![]),
        (T::Flush, vec![0], vec![(0, Pending)], vec![]),
        (T::Fence, vec![0, 1], vec![(0, Persistent), (1, Persistent)], vec![]),
        (T::Output, vec![], vec![], vec![]),
        (T::Store, vec![1], vec![(1, Dirty)], vec![Later]),
    ];
    assert_eq!(events[..first.len()], first);
    assert_eq!(crash.event, Some(FIRST + 3));
    let at = |kind| timeline.events.iter().find(|event| event.kind == kind).unwrap();
    assert_eq!(at(T::Crash).event, FIRST + 3);
    assert_eq!(at(T::Output).text.as_deref(), Some("appended\n"));
    let stored = timeline.events[0].stored.as_ref().unwrap();
    assert_eq!(
        (stored.offset, stored.length, stored.data.as_str()),
        (64, 8, "0700000000000000")
    );
    assert_eq!(timeline.events[0].frame.address, 14);
    assert_eq!(crash.missing[0].event, Some(FIRST));
}

#[test]
fn what_is_certain_what_tears_and_what_is_left_out() {
    // A checksum of two words in one store that tears; before it, the line is persisted many times.
    let warm = (1..100).flat_map(|n| [word(1, 0, n), Flush(0), Fence]);
    let both = [7u64.to_le_bytes(), 7u64.to_le_bytes()].concat();
    let torn = [Nontemporal(2, 64, both), word(3, 0, 100), Flush(0), Fence];
    let recovery = |image: &[u8], _: &[u8]| (at(image, 64) == at(image, 72)).then_some(()).ok_or("torn");
    let case = Case::new(warm.chain(torn), recovery);
    let timeline = case.timeline();
    let named = timeline.events.iter().find(|event| event.kind == T::NtStore).unwrap();
    let outcomes: BTreeSet<_> = shown(named)
        .3
        .into_iter()
        .map(|outcome| format!("{outcome:?}"))
        .collect();
    assert_eq!(outcomes, BTreeSet::from(["Missing".to_owned(), "Persisted".to_owned()]));
    assert_eq!(named.states, [(0, Pending)]);
    // Only the line of the torn store matters.
    assert_eq!(timeline.lines.len(), 1);

    // The same with a row that has a long past: the last events are shown, the store that matters is, the rest is counted.
    let steps = [word(9, 64, 1)]
        .into_iter()
        .chain((1..200).flat_map(|n| [word(1, 0, n), Flush(0), Fence]));
    let late = |image: &[u8], _: &[u8]| match at(image, 0) {
        199 => (at(image, 64) == 1).then_some(()).ok_or("the first store is gone"),
        _ => Ok(()),
    };
    let timeline = Case::new(steps, late).timeline();
    let events = &timeline.events;
    assert_eq!(shown(&events[0]), (T::Store, vec![1], vec![(1, Dirty)], vec![Missing]));
    assert_eq!(events[1].kind, T::Gap);
    assert_eq!(timeline.omitted, 0);
    let omitted = events[1].omitted.unwrap();
    let crash = events.iter().position(|event| event.kind == T::Crash).unwrap();
    // The first one, those in the gap, those shown: all of them, up to the store of 199.
    assert_eq!(omitted + crash as u64 - 1, 1 + 198 * 3 + 1);
    assert!(crash < 64, "{crash}");
    assert_eq!(shown(&events[crash - 1]).3, [Persisted]);
    let certain = events[2..crash - 1].iter().filter(|event| event.kind == T::Store);
    for event in certain {
        assert_eq!(shown(event).3, [Certain]);
    }
}

#[test]
fn files_that_change_and_too_many_lines() {
    let many = (0..40).map(|n| word(100 + n, 64 * n, 1));
    let recovery = |image: &[u8], _: &[u8]| {
        let set = (0..40).filter(|n| at(image, 64 * n) == 1).count();
        (set == 0 || set == 40).then_some(()).ok_or("some of it")
    };
    // Too many states to try them all: one of them.
    let case = Case::new(many.chain([Fence]), recovery);
    let missing = (1..40)
        .map(|n| StoreId {
            seq: FIRST + n,
            piece: 0,
        })
        .collect();
    let failure = Failure {
        point: FIRST + 40,
        persisted: vec![StoreId { seq: FIRST, piece: 0 }],
        missing,
        output: 0,
        run: Run::default(),
    };
    let mut investigator = case.investigator().with_pictures(&options(None));
    investigator.leave(failure);
    let finding = investigator.finish().remove(0);
    let timeline = finding.crash.unwrap().timeline.unwrap();
    assert_eq!(timeline.lines.len(), 12);
    assert_eq!(timeline.more_lines, 28);
    let offsets: Vec<u64> = timeline.lines.iter().map(|line| line.offset).collect();
    assert!(offsets.contains(&0) && offsets.is_sorted(), "{offsets:?}");
}

#[test]
fn the_graph_of_what_happened() {
    let append = |n: u64| {
        vec![
            word(14, 64 + 64 * n, n + 7),
            Flush(64 + 64 * n),
            word(15, 0, n + 1),
            Flush(0),
            Fence,
        ]
    };
    let case = Case::new((0..4).flat_map(append), log);
    let Graph { nodes, edges, .. } = case.drawn().graph.expect("a behaviour has these stores");
    let outcomes: Vec<_> = nodes.iter().map(|node| (node.event, node.outcome)).collect();
    assert!(outcomes.contains(&(FIRST, Some(Missing))), "{outcomes:?}");
    assert!(outcomes.contains(&(FIRST + 2, Some(Persisted))), "{outcomes:?}");
    // Nothing orders the two.
    let index = |event| nodes.iter().position(|node| node.event == event).unwrap();
    assert!(!edges.contains(&(index(FIRST), index(FIRST + 2))), "{edges:?}");
}

#[test]
fn nothing_is_drawn_that_nobody_wants() {
    let case = Case::new([word(14, 64, 7), word(15, 0, 1), Flush(0), Fence], log);
    let finding = case.finding();
    let crash = finding.crash.unwrap();
    assert_eq!((crash.timeline, crash.graph), (None, None));
}
