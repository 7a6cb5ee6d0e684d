//! What any end of a beginning needs: a flush of each class that is the only one for something not flushed yet, and a fence if there was none since something was stored.

use super::run::{SERVED, is_unfenced, is_unflushed};
use super::{Entry, Search};

pub struct Bounds {
    /// Of each entry, where the only class that can flush it is counted.
    only: Vec<Option<usize>>,
    /// Whether nothing but fences of the one thread there is serves anything.
    by_fences: bool,
    counts: usize,
}

impl Bounds {
    pub fn of(search: &Search) -> Bounds {
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
        Bounds {
            only: search.entries.iter().map(only).collect(),
            by_fences: threads == 1 && !at_once && !search.stores.iter().any(|store| store.locked),
            counts: threads + search.classes.len(),
        }
    }

    /// Adds what has to come to what there is: fences of each thread, then flushes of each class.
    pub fn add(&self, entries: &[u64], counts: &mut [u32]) {
        let mut flushed = vec![false; self.counts];
        let mut unfenced = false;
        for (&is, only) in entries.iter().zip(&self.only) {
            if is == SERVED {
                continue;
            }
            unfenced |= is_unfenced(is);
            if let Some(class) = *only
                && is_unflushed(is)
                && !std::mem::replace(&mut flushed[class], true)
            {
                counts[class] += 1;
            }
        }
        if unfenced && self.by_fences {
            counts[0] += 1;
        }
    }
}
