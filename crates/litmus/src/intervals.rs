//! The common case, solved without a solver: no store has to move, and leaving everything in its place and adding a little is provably
//! the least.
//!
//! With the store order fixed, a need is an interval between two stores that must hold a flush of its line and then a fence. The
//! fewest fences are an interval stabbing, and so are the fewest flushes of each line. Fences and flushes that no number of moves could
//! save are the lower bound: disjoint intervals need one each. If what is added to the sequence as it stands meets the bound, it is least.

use crate::needs::{Index, Need, first_after};
use crate::{Action, Flush, Litmus, Op, StoreKind};

/// Where to add what: positions in the operations, each meaning "right before the operation at".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Additions {
    pub flushes: Vec<(usize, u32, Flush)>,
    pub fences: Vec<(usize, u32)>,
}

/// Needs, as intervals of positions: after the first, before the second (`ops.len()` for the end).
struct Interval {
    need: Need,
    from: usize,
    to: usize,
}

/// `None`: the bound was not met, or the sequence has what this does not judge (several threads, locked stores, `clflush`, stores
/// over several lines).
pub(crate) fn add_in_place(litmus: &Litmus, ops: &[Op], needs: &[Need]) -> Option<Additions> {
    let plain = litmus
        .stores
        .iter()
        .all(|store| store.kind != StoreKind::Locked && store.at.lines().nth(1).is_none());
    let thread = ops.first().map_or(0, |op| op.thread);
    let one_thread = ops.iter().all(|op| op.thread == thread);
    let simple = |op: &Op| match &op.action {
        Action::Flush(flush) => !flush.at_once && flush.at.lines().nth(1).is_none(),
        _ => true,
    };
    if !plain || !one_thread || !ops.iter().all(simple) {
        return None;
    }
    let index = Index::of(litmus, ops);
    let mut intervals: Vec<Interval> = needs
        .iter()
        .map(|&need| Interval {
            need,
            from: index.at[need.store],
            to: need.until.map_or(ops.len(), |until| index.at[until]),
        })
        .collect();
    intervals.sort_by_key(|interval| interval.to);

    let fences: Vec<usize> = positions(ops, |action| matches!(action, Action::Fence { .. }));
    let existing_fences = fences.len();
    let mut additions = Additions::default();
    let mut latest = None;
    for interval in &intervals {
        let has = first_after(&fences, interval.from).is_some_and(|at| at < interval.to);
        if !has && latest.is_none_or(|at| at <= interval.from) {
            latest = Some(interval.to);
            additions.fences.push((interval.to, thread));
        }
    }
    if additions.fences.len() != stabs(intervals.iter()).saturating_sub(existing_fences) {
        return None;
    }
    let added: Vec<usize> = additions.fences.iter().map(|&(at, _)| at).collect();

    let mut by_line: Vec<&Interval> = intervals
        .iter()
        .filter(|interval| litmus.stores[interval.need.store].is_cached())
        .collect();
    // Stable: within a line they stay sorted by their end.
    by_line.sort_by_key(|interval| interval.need.line);
    let mut flushes: Vec<(u64, usize)> = Vec::new();
    for (at, op) in ops.iter().enumerate() {
        if let Action::Flush(flush) = &op.action {
            flushes.extend(flush.at.lines().map(|line| (line, at)));
        }
    }
    flushes.sort_unstable();
    let mut existing = Vec::new();
    for intervals in by_line.chunk_by(|a, b| a.need.line == b.need.line) {
        let line = intervals[0].need.line;
        let from = flushes.partition_point(|&(other, _)| other < line);
        existing.clear();
        existing.extend(
            flushes[from..]
                .iter()
                .take_while(|&&(other, _)| other == line)
                .map(|&(_, at)| at),
        );
        let mut of_line = Vec::new();
        // (from, position before which the last fence of the interval is), by that position.
        let mut open: Vec<(usize, usize, &Interval)> = Vec::new();
        for &interval in intervals {
            let last = last_before(&fences, interval.to).max(last_at_or_before(&added, interval.to));
            let fence = last.filter(|&at| at > interval.from)?;
            if first_after(&existing, interval.from).is_none_or(|at| at >= fence) {
                open.push((interval.from, fence, interval));
            }
        }
        open.sort_by_key(|&(_, fence, _)| fence);
        while let Some(&(_, fence, _)) = open.first() {
            // All that begin before the first fence share a flush: right after the last of their stores.
            let last = open
                .iter()
                .filter(|&&(from, ..)| from < fence)
                .max_by_key(|&&(from, ..)| from)?;
            let (from, store) = (last.0, last.2.need.store);
            let flush = Flush {
                names: Some(store),
                at: litmus.stores[store].at,
                at_once: false,
            };
            of_line.push((from + 1, thread, flush));
            open.retain(|&(other, ..)| other > from);
        }
        if of_line.len() != stabs(intervals.iter().copied()).saturating_sub(existing.len()) {
            return None;
        }
        additions.flushes.extend(of_line);
    }
    Some(additions)
}

/// The fewest points that hit all of the intervals, which are sorted by their end: as many as can be disjoint.
fn stabs<'a>(intervals: impl Iterator<Item = &'a Interval>) -> usize {
    let mut count = 0;
    let mut latest = None;
    for interval in intervals {
        if latest.is_none_or(|at| at <= interval.from) {
            latest = Some(interval.to);
            count += 1;
        }
    }
    count
}

fn positions(ops: &[Op], wanted: impl Fn(&Action) -> bool) -> Vec<usize> {
    let all = ops.iter().enumerate();
    all.filter(|(_, op)| wanted(&op.action)).map(|(at, _)| at).collect()
}

fn last_before(positions: &[usize], position: usize) -> Option<usize> {
    positions[..positions.partition_point(|&at| at < position)]
        .last()
        .copied()
}

fn last_at_or_before(positions: &[usize], position: usize) -> Option<usize> {
    positions[..positions.partition_point(|&at| at <= position)]
        .last()
        .copied()
}
