//! Verdicts and repairs against slow references.

mod parts;

use std::time::Duration;

use proptest::prelude::*;

use crate::moves::moves;
use crate::needs::{Index, Order, needs};
use crate::verdict::violations_of;
use crate::{
    Action, AddressRange, Flush, Least, Litmus, NoRepair, Op, Property, Repair, Store, StoreKind, repair, violations,
};

const LIMIT: Duration = Duration::from_secs(20);

fn parse(text: &str) -> Litmus {
    Litmus::parse(text).unwrap()
}

fn repaired(text: &str) -> (Repair, String) {
    let litmus = parse(text);
    let repair = repair(&litmus, LIMIT).unwrap();
    let text = litmus.repaired(&repair);
    // What is printed can be read again, and holds.
    assert_eq!(violations(&parse(&text)), [], "{text}");
    (repair, text)
}

fn counts(repair: &Repair) -> [usize; 4] {
    [
        repair.stores_moved,
        repair.added_fences,
        repair.added_flushes,
        repair.moved,
    ]
}

#[test]
fn flush_and_fence_are_what_durability_needs() {
    let (least, text) = repaired("store a 0 8\nrequire durable a\n");
    assert_eq!(counts(&least), [0, 1, 1, 0]);
    assert_eq!(
        text,
        "store a 0x0 8\nflush a  # added\nfence  # added\nrequire durable a\n"
    );
    assert_eq!(least.least, Least::Disjoint);
}

#[test]
fn then_branch_of_figure_4() {
    // Figure 6: name, its flush and a fence move before valid, and a fence is added.
    let (least, text) = repaired(
        "store name 0x4a3c000 8\nstore valid 0x4a3c080 8\nflush valid\nflush name\nfence\n\
         require name before valid\nrequire durable name\nrequire durable valid\n",
    );
    assert_eq!(counts(&least), [0, 1, 0, 1], "{text}");
}

#[test]
fn else_branch_of_figure_4_moves_a_store() {
    let (least, text) = repaired(
        "store counter 0x4a3c0c0 8\nstore valid 0x4a3c080 8\nflush valid\nfence\n\
         require durable counter\nrequire valid before counter\n",
    );
    assert_eq!(counts(&least), [1, 1, 1, 0], "{text}");
    assert!(text.contains("store counter 0x4a3c0c0 8  # moved"), "{text}");
}

#[test]
fn circles_are_explained() {
    let circle = parse("store a 0 8\nstore b 64 8\nrequire a before b\nrequire b before a\n");
    let error = repair(&circle, LIMIT).unwrap_err();
    assert!(error.to_string().contains("a before b"), "{error}");
    assert!(error.to_string().contains("b before a"), "{error}");
    let same_bytes = parse("store a 0 8\nstore b 0 8\nrequire b before a\n");
    let error = repair(&same_bytes, LIMIT).unwrap_err();
    assert!(matches!(error, NoRepair::Circle(_)));
    assert!(error.to_string().contains("same bytes"), "{error}");
}

#[test]
fn locked_stores_and_clflush_serve() {
    assert_eq!(
        violations(&parse("store a 0 8\nflush a\nrmw b 64 8\nrequire a before b\n")),
        []
    );
    assert_eq!(
        violations(&parse("store a 0 8\nclflush a\nstore b 64 8\nrequire a before b\n")),
        []
    );
    assert_eq!(
        violations(&parse("ntstore a 0 8\nfence\nstore b 64 8\nrequire a before b\n")),
        []
    );
    // In one line, cached stores persist in their order; a non-temporal one does not.
    assert_eq!(violations(&parse("store a 0 8\nstore b 8 8\nrequire a before b\n")), []);
    assert_eq!(
        violations(&parse("ntstore a 0 8\nstore b 8 8\nrequire a before b\n")).len(),
        1
    );
    // A fence of another thread does not help.
    let other = parse("T1: store a 0 8\nT1: flush a\nT2: fence\nrequire durable a\n");
    assert_eq!(violations(&other).len(), 1);
}

#[test]
fn errors_name_line_and_column() {
    let error = |text: &str| Litmus::parse(text).unwrap_err().to_string();
    assert_eq!(
        error("store a 0 8\nflash a"),
        "2:1: `flash` is no operation: there are store, ntstore, rmw, flush, clflush, fence, mfence and require"
    );
    assert_eq!(error("store a 0"), "1:10: the length is missing");
    assert_eq!(error("  flush b"), "1:9: no store is named `b`");
    assert_eq!(
        error("store a zero 8"),
        "1:9: `zero` is no address: give a number, as 64 or 0x40"
    );
    assert_eq!(
        error("store a 0 8\nrequire a after a"),
        "2:11: `after` instead of `before`: a property is `require durable NAME` or `require NAME before NAME`"
    );
    assert_eq!(
        error("X1: fence"),
        "1:1: `X1:` is no thread: give T and a number, as T1:"
    );
    assert_eq!(
        error("store a 0 8\nstore a 8 8"),
        "2:7: a second store `a`: names are unique"
    );
}

/// What decides which of two repairs is smaller.
type Cost = [usize; 4];

/// The least repair, by trying all sequences with few additions.
fn by_force(litmus: &Litmus, most_added: usize) -> Option<Cost> {
    let is_store: Vec<bool> = litmus
        .ops
        .iter()
        .map(|op| matches!(op.action, Action::Store(_)))
        .collect();
    let at = Index::of(litmus, &litmus.ops).at;
    // What is added belongs to the thread of a store that needs it, or that flushes it already.
    let mut flushes: Vec<(u32, Flush)> = Vec::new();
    let mut threads: Vec<u32> = Vec::new();
    let mut add = |thread: u32, names: Option<usize>, range: AddressRange| {
        let known = |(other, known): &(u32, Flush)| known.at.lines().eq(range.lines()) && *other == thread;
        if !flushes.iter().any(known) {
            flushes.push((
                thread,
                Flush {
                    names,
                    at: range,
                    at_once: false,
                },
            ));
        }
    };
    for need in needs(litmus) {
        let store = &litmus.stores[need.store];
        let thread = litmus.ops[at[need.store]].thread;
        threads.push(thread);
        if !store.is_cached() {
            continue;
        }
        add(thread, Some(need.store), store.at);
        for op in &litmus.ops {
            match op.action {
                Action::Flush(flush) if flush.at.lines().any(|line| line == need.line) => {
                    threads.push(op.thread);
                    if !flush.at_once {
                        add(op.thread, flush.names, flush.at);
                    }
                }
                _ => {}
            }
        }
    }
    threads.sort_unstable();
    threads.dedup();
    let mut orders: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut stores: Vec<usize> = (0..litmus.stores.len()).collect();
    stores.sort_by_key(|&store| at[store]);
    permutations(&mut stores, 0, &mut |stores| {
        let sequence: Vec<Option<usize>> = stores.iter().map(|&store| Some(at[store])).collect();
        orders.push((moves(&sequence, &is_store).stores, stores.to_vec()));
    });
    orders.sort();
    let items: Vec<usize> = (0..litmus.ops.len()).filter(|&at| !is_store[at]).collect();
    for stores_moved in 0..litmus.stores.len() {
        for fences in 0..=most_added {
            for flush_count in 0..=most_added - fences {
                let mut best: Option<usize> = None;
                for added in choices(flush_count, flushes.len()) {
                    for fence_threads in choices(fences, threads.len()) {
                        let new_flushes = added.iter().map(|&n| Op {
                            thread: flushes[n].0,
                            action: Action::Flush(flushes[n].1),
                        });
                        let new_fences = fence_threads.iter().map(|&n| Op {
                            thread: threads[n],
                            action: Action::Fence { full: false },
                        });
                        let mut others: Vec<(Option<usize>, Op)> =
                            items.iter().map(|&at| (Some(at), litmus.ops[at].clone())).collect();
                        others.extend(new_flushes.chain(new_fences).map(|op| (None, op)));
                        for (_, order) in orders.iter().filter(|(moved, _)| *moved == stores_moved) {
                            let mut pieces: Vec<(Option<usize>, Op)> = order
                                .iter()
                                .map(|&store| (Some(at[store]), litmus.ops[at[store]].clone()))
                                .collect();
                            insertions(&mut pieces, &others, 0, &mut |pieces| {
                                let counted = moves(&pieces.iter().map(|(i, _)| *i).collect::<Vec<_>>(), &is_store);
                                if counted.stores == stores_moved && best.is_none_or(|best| counted.others < best) {
                                    let ops: Vec<Op> = pieces.iter().map(|(_, op)| op.clone()).collect();
                                    if is_legal(litmus, &at, pieces, &ops) && violations_of(litmus, &ops).is_empty() {
                                        best = Some(counted.others);
                                    }
                                }
                            });
                        }
                    }
                }
                if let Some(moved) = best {
                    return Some([stores_moved, fences, flush_count, moved]);
                }
            }
        }
    }
    None
}

/// Puts the others between the pieces, in all ways; of equal ones the second never before the first.
fn insertions(
    pieces: &mut Vec<(Option<usize>, Op)>,
    others: &[(Option<usize>, Op)],
    from: usize,
    each: &mut impl FnMut(&[(Option<usize>, Op)]),
) {
    let Some((first, rest)) = others.split_first() else {
        return each(pieces);
    };
    for at in from..=pieces.len() {
        pieces.insert(at, first.clone());
        let same = rest.first() == Some(first);
        insertions(pieces, rest, if same { at + 1 } else { 0 }, each);
        pieces.remove(at);
    }
}

/// Stores to the same bytes in their order, and every flush after a store that it can flush, unless it had none before it. `pieces`: each
/// with its index in the original.
fn is_legal(litmus: &Litmus, old: &[usize], pieces: &[(Option<usize>, Op)], ops: &[Op]) -> bool {
    let new = Index::of(litmus, ops).at;
    let stores = &litmus.stores;
    let swapped = (0..stores.len())
        .any(|a| (0..stores.len()).any(|b| old[a] < old[b] && new[a] > new[b] && stores[a].at.overlaps(stores[b].at)));
    let follows = |ops: &[Op], at: usize, flush: &Flush| {
        ops[..at].iter().any(|op| match op.action {
            Action::Store(id) => flush
                .at
                .lines()
                .any(|line| stores[id].at.lines().any(|other| other == line)),
            _ => false,
        })
    };
    let blind = pieces.iter().enumerate().any(|(at, (original, op))| match &op.action {
        Action::Flush(flush) => !follows(ops, at, flush) && original.is_none_or(|old| follows(&litmus.ops, old, flush)),
        _ => false,
    });
    !swapped && !blind
}

fn choices(count: usize, of: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = choices(count - 1, of);
    let extended = shorter.into_iter().flat_map(|choice| {
        let from = choice.last().copied().unwrap_or(0);
        (from..of).map(move |next| [choice.clone(), vec![next]].concat())
    });
    extended.collect()
}

fn permutations<T>(items: &mut Vec<T>, from: usize, each: &mut impl FnMut(&[T])) {
    if from == items.len() {
        return each(items);
    }
    for at in from..items.len() {
        items.swap(from, at);
        permutations(items, from + 1, each);
        items.swap(from, at);
    }
}

/// The bytes of a store in a random litmus.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Own,
    /// The end of one line and the beginning of the next.
    Wide,
    /// The end of a line, for all of this shape.
    Shared,
}

fn litmus(
    stores: std::ops::Range<usize>,
    others: std::ops::Range<usize>,
    threads: u32,
) -> impl Strategy<Value = Litmus> {
    let store = (
        0..4u64,
        prop_oneof![4 => Just(StoreKind::Plain), 1 => Just(StoreKind::Nontemporal), 1 => Just(StoreKind::Locked)],
        0..threads,
        prop_oneof![6 => Just(Shape::Own), 1 => Just(Shape::Wide), 1 => Just(Shape::Shared)],
    );
    let other = (0..5usize, 0..8usize, 0..threads, 0..20usize);
    let property = (0..8usize, 0..8usize, prop::bool::ANY);
    (
        prop::collection::vec(store, stores),
        prop::collection::vec(other, others),
        prop::collection::vec(property, 1..4),
    )
        .prop_map(|(stores, others, properties)| {
            let mut litmus = Litmus {
                threads: vec![String::new(), "T1".to_owned()],
                ..Litmus::default()
            };
            for (n, (line, kind, thread, shape)) in stores.into_iter().enumerate() {
                // A non-temporal store that overwrites another makes the model forgive what the needs ask for.
                let kind = match (kind, shape) {
                    (StoreKind::Nontemporal, Shape::Wide | Shape::Shared) => StoreKind::Plain,
                    (kind, _) => kind,
                };
                let start = match shape {
                    Shape::Own => 8 + n as u64 * 4,
                    Shape::Wide => 60,
                    Shape::Shared => 56,
                };
                let at = AddressRange {
                    start: line * 64 + start,
                    len: if shape == Shape::Own { 4 } else { 8 },
                };
                litmus.stores.push(Store {
                    name: format!("s{n}"),
                    at,
                    kind,
                });
                litmus.ops.push(Op {
                    thread,
                    action: Action::Store(n),
                });
            }
            let count = litmus.stores.len();
            for (kind, target, thread, place) in others {
                let target = target % count;
                let at = litmus.stores[target].at;
                let action = match kind {
                    0 | 1 => Action::Flush(Flush {
                        names: Some(target),
                        at,
                        at_once: false,
                    }),
                    2 => Action::Flush(Flush {
                        names: Some(target),
                        at,
                        at_once: true,
                    }),
                    _ => Action::Fence { full: false },
                };
                let place = place % (litmus.ops.len() + 1);
                litmus.ops.insert(place, Op { thread, action });
            }
            for (first, second, durable) in properties {
                let (first, second) = (first % count, second % count);
                if durable || first == second {
                    litmus.properties.push(Property::Durable(first));
                } else {
                    litmus.properties.push(Property::Before(first, second));
                }
            }
            litmus
        })
}

/// Trying more than a few additions takes too long: then there must be nothing smaller among those with fewer.
fn as_by_force(litmus: &Litmus, found: &Repair, most_added: usize) -> Result<(), TestCaseError> {
    let least = by_force(litmus, most_added);
    if found.added_fences + found.added_flushes > most_added {
        prop_assert!(least.is_none_or(|least| counts(found) < least), "{}", litmus);
    } else {
        prop_assert_eq!(Some(counts(found)), least, "{}\n{}", litmus, litmus.repaired(found));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn least_as_by_force(litmus in litmus(1..5, 0..4, 1)) {
        let circle = Order::of(&litmus, &Index::of(&litmus, &litmus.ops).at).circle();
        match repair(&litmus, LIMIT) {
            Ok(found) => {
                as_by_force(&litmus, &found, 3)?;
            }
            Err(error) => prop_assert!(matches!(error, NoRepair::Circle(_)) && circle.is_some(), "{}: {}", error, &litmus),
        }
    }

    #[test]
    fn least_as_by_force_with_two_threads(litmus in litmus(1..4, 0..4, 2)) {
        if let Ok(found) = repair(&litmus, LIMIT) {
            as_by_force(&litmus, &found, 2)?;
        }
    }

    #[test]
    fn repaired_holds(litmus in litmus(1..12, 0..12, 2)) {
        // `repair` itself refuses what the model does not accept.
        match repair(&litmus, LIMIT) {
            Ok(found) => {
                let again = Litmus::parse(&litmus.repaired(&found)).unwrap();
                prop_assert_eq!(violations(&again), vec![]);
                prop_assert_eq!(counts(&repair(&again, LIMIT).unwrap()), [0; 4]);
            }
            Err(error) => prop_assert!(matches!(error, NoRepair::Circle(_)), "{}: {}", error, &litmus),
        }
    }

    #[test]
    fn text_is_read_as_it_was_written(litmus in litmus(1..8, 0..8, 2)) {
        let again = Litmus::parse(&litmus.to_string()).unwrap();
        prop_assert_eq!(again.to_string(), litmus.to_string());
    }

    #[test]
    fn no_text_makes_it_panic(text in "(store|flush|fence|require|T1:|a|b|0x1|8|#|before|durable|x3| |\n){0,40}") {
        let _ = Litmus::parse(&text);
    }

    #[test]
    fn weights_move_no_more_stores(litmus in litmus(1..6, 0..5, 1), times in prop::collection::vec(1..4u32, 12)) {
        let weighted = Litmus { times: times[..litmus.ops.len()].to_vec(), ..litmus.clone() };
        if let (Ok(plain), Ok(found)) = (repair(&litmus, LIMIT), repair(&weighted, LIMIT)) {
            prop_assert_eq!(plain.stores_moved, found.stores_moved);
            prop_assert!(plain.added_fences <= found.added_fences);
        }
    }
}

/// Lines of a litmus file, right and wrong ones.
const LINES: &str = "((T1: |T2: )?(store|ntstore|rmw) [a-e] (0x0|0x8|64|0x7c|0xffffffffffffffff|200) (8|1|64|200|0|4294967296)( x[0-9]{1,11})?\n\
    |(T1: )?(flush|clflush) ([a-e]|0|0xffffffffffffffff|70)\n|(T2: )?m?fence( x2)?\n|require (durable [a-e]|[a-e] before [a-e])\n|[a-z0-9: #]{0,9}\n){0,24}";

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_can_be_read_is_judged(text in LINES) {
        // Only lines that can be read count, or hardly any text could.
        let mut text = text;
        while let Err(error) = Litmus::parse(&text) {
            prop_assert!((1..=text.lines().count()).contains(&error.line) && error.column >= 1, "{}", error);
            let good = text.lines().enumerate().filter(|(n, _)| n + 1 != error.line);
            text = good.map(|(_, line)| format!("{line}\n")).collect();
        }
        let litmus = parse(&text);
        match repair(&litmus, LIMIT) {
            Ok(found) => prop_assert_eq!(violations(&parse(&litmus.repaired(&found))), vec![], "{}", text),
            Err(NoRepair::Circle(_) | NoRepair::TimedOut(_) | NoRepair::TooLarge) => {}
            Err(NoRepair::Unsolved) => prop_assert!(false, "{}", text),
        }
    }
}

#[test]
fn a_fence_outside_a_loop_before_one_inside() {
    // Right before `link`, it would run as often as the loop; before the loop, once.
    let (least, text) = repaired(
        "store data 0 8\nstore key 64 8 x1000\nstore link 128 8 x1000\nflush link x1000\nfence x1000\n\
         require data before link\nrequire durable link\n",
    );
    assert_eq!(counts(&least), [0, 1, 1, 0]);
    assert!(
        text.starts_with("store data 0x0 8\nflush data  # added\nfence  # added\nstore key 0x40 8 x1000\n"),
        "{text}"
    );
    // Two of them outside rather than one inside.
    let (least, text) = repaired(
        "store a 0 8\nflush a\nstore b 64 8\nstore c 128 8 x50\nstore d 192 8 x50\nflush d x50\nfence x50\n\
         require a before b\nrequire b before d\nrequire a before d\nrequire durable d\n",
    );
    assert_eq!(counts(&least), [0, 2, 1, 0], "{text}");
    let error = |text: &str| Litmus::parse(text).unwrap_err().to_string();
    assert_eq!(
        error("fence x0"),
        "1:7: `x0` is no number of times: give x and a number from 1, as x1000"
    );
    assert_eq!(error("store a 0 8\nrequire durable a x3"), "2:19: `x3` is too much");
}

#[test]
fn a_clflush_serves_in_one_place() {
    let (least, text) = repaired(
        "fence\nT1: flush s0\nstore s0 0x8 4\nstore s1 0xc 4\nstore s2 0x10 4\nstore s3 0x54 4\nstore s4 0x3c 8\nclflush s4\n\
         require durable s4\nrequire s0 before s3\n",
    );
    // The first fence, and the flush of the other thread with a fence of its own or one more flush.
    assert_eq!(least.stores_moved, 0, "{text}");
    assert_eq!(text.matches("clflush").count(), 1, "{text}");
}

#[test]
fn a_fence_that_a_locked_store_stands_for_may_move() {
    let (least, text) =
        repaired("fence\nstore s0 0x8 4\nflush s0\nrmw s1 0x4c 4\nrequire durable s1\nrequire s0 before s1\n");
    assert_eq!(counts(&least), [0, 0, 1, 1], "{text}");
}
