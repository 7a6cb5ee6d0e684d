//! What any end of a beginning needs.
//!
//! What has to be persistent before a store, or at the end, needs a flush of its line and a fence in between; needs whose spans do not overlap need one each. Where a line has one class of
//! flushes, those of it are counted, and fences where there is one thread and nothing else serves. A span without a flush (or fence) of the original needs a new one. Where a store may move, its span is
//! taken for as long as it can become.

use super::run::{SERVED, UNPLACED, is_unfenced, is_unflushed};
use super::{Entry, Piece, Search};

pub(super) struct Bounds {
    /// Of each entry, where the only class that can flush it is counted.
    only: Vec<Option<usize>>,
    /// Whether nothing but fences of the one thread there is serves anything.
    by_fences: bool,
    needs: Vec<Span>,
    /// For each count.
    counted: Vec<Counted>,
}

/// An entry, and before which step it has to be served.
struct Span {
    entry: usize,
    /// The step of its store, if that does not move.
    from: Option<usize>,
    until: usize,
}

/// Fences, or flushes of a class.
struct Counted {
    /// For each step, the most spans that begin there or later and do not overlap; and of those without one of the original.
    any: Vec<u32>,
    bare: Vec<u32>,
    /// For each step, the next one with one of the original.
    next: Vec<usize>,
}

/// What has to come.
pub(super) struct Lacking {
    /// Fences of each thread, then flushes of each class.
    pub any: Vec<u32>,
    /// Of those, what is not of the original where it is.
    pub new: Vec<u32>,
}

impl Bounds {
    pub(super) fn of(search: &Search, pieces: &[&Piece], steps: &[usize]) -> Bounds {
        let threads = search.threads.len();
        let only = |entry: &Entry| {
            let mut classes = search
                .classes
                .iter()
                .enumerate()
                .filter(|(_, class)| class.lines.contains(&entry.line));
            let (n, class) = classes.next()?;
            (entry.cached && !class.flush.at_once && classes.next().is_none()).then_some(threads + n)
        };
        let at_once = search.classes.iter().any(|class| class.flush.at_once);
        let step = |store: usize| search.stores[store].movable.is_none().then(|| steps[store]);
        let mut from = vec![None; search.entries.len()];
        let mut needs: Vec<Span> = Vec::new();
        for (n, store) in search.stores.iter().enumerate() {
            store.own.iter().for_each(|own| from[*own] = step(n));
            let until = step(n).unwrap_or(pieces.len());
            needs.extend(store.required.iter().map(|&entry| Span {
                entry,
                from: None,
                until,
            }));
        }
        needs.extend(search.at_end.iter().map(|&entry| Span {
            entry,
            from: None,
            until: pieces.len(),
        }));
        needs.iter_mut().for_each(|need| need.from = from[need.entry]);
        let only: Vec<Option<usize>> = search.entries.iter().map(only).collect();
        let by_fences = threads == 1 && !at_once && !search.stores.iter().any(|store| store.locked);
        let counted = (0..threads + search.classes.len()).map(|count| {
            let is_one = |piece: &Piece| match (piece, count.checked_sub(threads)) {
                (Piece::Fence { thread, .. }, None) => *thread == count,
                // Of whatever class it is.
                (Piece::Flush { class, .. }, Some(own)) => {
                    let mut lines = search.classes[*class].lines.iter();
                    lines.any(|line| search.classes[own].lines.contains(line))
                }
                _ => false,
            };
            let is_counted = |need: &&Span| match count.checked_sub(threads) {
                None => by_fences,
                Some(_) => only[need.entry] == Some(count),
            };
            let mut next = vec![pieces.len(); pieces.len() + 1];
            for at in (0..pieces.len()).rev() {
                next[at] = if is_one(pieces[at]) { at } else { next[at + 1] };
            }
            let most = |bare: bool| {
                let mut most = vec![0; pieces.len() + 1];
                for at in (0..pieces.len()).rev() {
                    let begin = |need: &&Span| need.from == Some(at) && (!bare || next[at] >= need.until);
                    let spans = needs.iter().filter(is_counted).filter(begin);
                    let best = spans.map(|need| 1 + most[need.until]).max().unwrap_or(0);
                    most[at] = best.max(most[at + 1]);
                }
                most
            };
            Counted {
                any: most(false),
                bare: most(true),
                next,
            }
        });
        let counted = counted.collect();
        Bounds {
            only,
            by_fences,
            needs,
            counted,
        }
    }

    /// What has to come after a beginning with these entries and this step.
    pub(super) fn lacking(&self, entries: &[u64], step: usize) -> Lacking {
        let step = step.min(self.counted.first().map_or(0, |counted| counted.next.len() - 1));
        let mut lacking = Lacking {
            any: self.counted.iter().map(|counted| counted.any[step]).collect(),
            new: self.counted.iter().map(|counted| counted.bare[step]).collect(),
        };
        for need in &self.needs {
            let is = entries[need.entry];
            // Those that come at a step of their own later are counted there.
            if is == SERVED || (is == UNPLACED && need.from.is_some()) {
                continue;
            }
            let mut count = |count: usize| {
                let counted = &self.counted[count];
                // A store that comes second and has come is served.
                let until = need.until.max(step);
                lacking.any[count] = lacking.any[count].max(1 + counted.any[until]);
                if counted.next[step] >= until {
                    lacking.new[count] = lacking.new[count].max(1 + counted.bare[until]);
                }
            };
            if self.by_fences && is_unfenced(is) {
                count(0);
            }
            if let Some(class) = self.only[need.entry].filter(|_| is_unflushed(is)) {
                count(class);
            }
        }
        lacking
    }
}
