//! What is acknowledged before it is durable, and made durable by a later statement: that statement moves in front of the output.
//!
//! An output is recorded without its place, but it lies between what the list did before it and after it. So the statement that flushes (with what
//! fences behind it) moves to right behind the last statement that touched PM before the output. Nothing that it passes may touch PM in the recording, or be something
//! that it depends on ([`Movable::check`]).

use clang::EntityKind;

use super::across::{LONGEST, Pair, covers};
use super::list::{self, List};
use super::moves::Movable;
use super::search::Arrangement;
use super::trace::What;
use super::{Fix, Orderer, Side};

/// `broken`: each store with the output that came before it was durable.
pub(super) fn persist_earlier(orderer: &Orderer, before: &Side, broken: &[&Pair]) -> Option<Fix> {
    let events = &orderer.trace.events;
    let (flush, _) = persisted_by(orderer, broken.first()?)?;
    let flushed = orderer.trace.path(events[flush].stack);
    let parting = list::parting(&before.path, flushed).ok()?;
    let list = List::around(orderer.units, parting.before.last()?, parting.after.last()?).ok()?;
    let places = list.place(orderer.trace);
    let unit = |index: usize| places.get(&events[index].stack).map(|place| place.unit);
    let mut moved = None;
    let mut last = 0;
    for pair in broken {
        let (flush, fence) = persisted_by(orderer, pair)?;
        let own = (unit(flush)?, unit(fence)?);
        if *moved.get_or_insert(own) != own {
            return None;
        }
        let thread = events[pair.before].thread;
        let touching = (pair.before..pair.after).filter(|&index| events[index].thread == thread);
        last = touching.filter_map(unit).fold(last, usize::max);
        unit(pair.before)?;
    }
    let (first, fence) = moved?;
    let movable = Movable::new(&list, orderer.module, &orderer.analysis, &[]);
    if last >= first || first > fence || !(first..=fence).all(|unit| movable.only_persists(unit)) {
        return None;
    }
    // The output is not in that statement itself.
    let node = list.units[last].node;
    let calls = |node| list.tree.kind(node) == EntityKind::CallExpr;
    if list.tree.descendants(node).any(calls) && !movable.only_persists(last) {
        return None;
    }
    let passed = last + 1..first;
    let touches = |index: usize| unit(index).is_some_and(|unit| passed.contains(&unit));
    if passed.is_empty() || (0..events.len()).any(touches) {
        return None;
    }
    for unit in first..=fence {
        passed.clone().try_for_each(|passed| movable.check(unit, passed)).ok()?;
    }
    let arrangement = Arrangement::moved_behind(list.units.len(), first..=fence, last);
    let writer = orderer.writer(&list, &[]);
    let changes = writer.write(&arrangement).ok()?;
    let file = &list.tree.file.path;
    let moves = (first..=fence).map(|unit| {
        format!(
            "{}, {} moves to right behind {}, in front of the output",
            list.heading(),
            list.describe(unit),
            list.describe(last)
        )
    });
    let safe =
        "safe: what it moves past touches no PM and nothing that it reads, and is not left in between".to_owned();
    Some(Fix {
        key: format!("{}:{}: {arrangement:?}", file.display(), list.range().start),
        moved: (first..=fence)
            .map(|unit| (file.clone(), list.units[unit].range.clone()))
            .collect(),
        touched: vec![(file.clone(), list.units[last].range.clone())],
        changes,
        words: moves.chain([safe]).collect(),
        litmus: String::new(),
    })
}

/// The first flush after the output with which all of the store is flushed, and the fence behind it.
fn persisted_by(orderer: &Orderer, pair: &Pair) -> Option<(usize, usize)> {
    let events = &orderer.trace.events;
    let stored = &events[pair.before];
    let What::Store { at, len, .. } = stored.what else {
        return None;
    };
    let later =
        || (pair.after + 1..events.len().min(pair.after + LONGEST)).filter(|&at| events[at].thread == stored.thread);
    let flush = later().find(|&index| covers(&events[index], stored))?;
    let fence = later().find(|&index| index > flush && matches!(events[index].what, What::Fence { .. }))?;
    let is_flushed = |line: u64| {
        (flush..fence).any(|index| {
            events[index].thread == stored.thread
                && matches!(events[index].what, What::Flush { at, .. } if at / 64 == line)
        })
    };
    (at / 64..=(at + len - 1) / 64)
        .all(is_flushed)
        .then_some((flush, fence))
}
