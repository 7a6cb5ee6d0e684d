//! What the properties ask of the sequence: an order of stores, and between two stores a flush and then a fence.

use rustc_hash::FxHashSet;

use crate::{Action, Flush, Litmus, Op, Property, StoreId, StoreKind};

/// After `store`, and before `until` (or the end), the part of it in `line` must be made persistent: a flush of the line and then a fence by
/// one thread, or `clflush`; for a non-temporal store, a fence of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Need {
    pub store: StoreId,
    pub line: u64,
    pub until: Option<StoreId>,
}

pub(crate) fn needs(litmus: &Litmus) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut seen = FxHashSet::default();
    for property in &litmus.properties {
        let (store, until) = match *property {
            Property::Durable(store) => (store, None),
            Property::Before(first, second) => (first, Some(second)),
        };
        let first = &litmus.stores[store];
        for line in first.at.lines() {
            // Two cached stores to one line persist in their order.
            let by_itself = until.is_some_and(|second| {
                let second = &litmus.stores[second];
                first.is_cached() && second.is_cached() && second.at.lines().all(|other| other == line)
            });
            let need = Need { store, line, until };
            if !by_itself && seen.insert(need) {
                needs.push(need);
            }
        }
    }
    needs
}

/// Pairs of stores whose order is required, by a property or because they write the same bytes.
pub(crate) struct Order {
    /// For each store, those that have to come later.
    pub after: Vec<Vec<StoreId>>,
}

/// Why no order of the stores will do: a circle of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle(pub Vec<StoreId>);

impl Order {
    /// `at`: the position of each store.
    pub(crate) fn of(litmus: &Litmus, at: &[usize]) -> Order {
        let mut after = vec![Vec::new(); litmus.stores.len()];
        for property in &litmus.properties {
            if let Property::Before(first, second) = *property {
                after[first].push(second);
            }
        }
        // On the bytes that two stores share, the last one has to stay the last.
        let of_line = |store: StoreId| {
            litmus.stores[store]
                .at
                .lines()
                .map(move |line| (line, at[store], store))
        };
        let mut placed: Vec<(u64, usize, StoreId)> = (0..litmus.stores.len()).flat_map(of_line).collect();
        placed.sort_unstable();
        for of_line in placed.chunk_by(|a, b| a.0 == b.0) {
            for (n, &(.., store)) in of_line.iter().enumerate() {
                // The latest that covers this one wholly hides those before it.
                for &(.., other) in of_line[..n].iter().rev() {
                    let range = litmus.stores[other].at;
                    if range.overlaps(litmus.stores[store].at) {
                        after[other].push(store);
                        if range == litmus.stores[store].at {
                            break;
                        }
                    }
                }
            }
        }
        for later in &mut after {
            later.sort_unstable();
            later.dedup();
        }
        Order { after }
    }

    pub(crate) fn circle(&self) -> Option<Circle> {
        // Depth first, without recursion: 0 unseen, 1 on the path, 2 done.
        let mut state = vec![0u8; self.after.len()];
        for root in 0..self.after.len() {
            if state[root] != 0 {
                continue;
            }
            let mut path = vec![(root, 0)];
            state[root] = 1;
            while let Some((store, next)) = path.last_mut() {
                match self.after[*store].get(*next) {
                    None => {
                        state[*store] = 2;
                        path.pop();
                    }
                    Some(&to) => {
                        *next += 1;
                        if state[to] == 1 {
                            let from = path.iter().position(|&(on_path, _)| on_path == to).unwrap_or(0);
                            return Some(Circle(path[from..].iter().map(|&(store, _)| store).collect()));
                        }
                        if state[to] == 0 {
                            state[to] = 1;
                            path.push((to, 0));
                        }
                    }
                }
            }
        }
        None
    }
}

/// Where the flushes and fences are, to be asked quickly.
pub(crate) struct Index {
    /// Position of each store.
    pub at: Vec<usize>,
    /// Line, thread and position of each, sorted.
    flushes: Vec<(u64, u32, usize)>,
    /// Line and position of each, sorted.
    clflushes: Vec<(u64, usize)>,
    /// For each thread; locked stores among them.
    fences: Vec<Vec<usize>>,
}

impl Index {
    pub(crate) fn of(litmus: &Litmus, ops: &[Op]) -> Index {
        let mut index = Index {
            at: vec![usize::MAX; litmus.stores.len()],
            flushes: Vec::new(),
            clflushes: Vec::new(),
            fences: vec![Vec::new(); litmus.threads.len()],
        };
        for (position, op) in ops.iter().enumerate() {
            match &op.action {
                Action::Store(store) => {
                    index.at[*store] = position;
                    if litmus.stores[*store].kind == StoreKind::Locked {
                        index.fences[op.thread as usize].push(position);
                    }
                }
                Action::Flush(flush) => index.flush(flush, op.thread, position),
                Action::Fence { .. } => index.fences[op.thread as usize].push(position),
            }
        }
        index.flushes.sort_unstable();
        index.clflushes.sort_unstable();
        index
    }

    fn flush(&mut self, flush: &Flush, thread: u32, position: usize) {
        for line in flush.at.lines() {
            match flush.at_once {
                true => self.clflushes.push((line, position)),
                false => self.flushes.push((line, thread, position)),
            }
        }
    }

    /// Position of the fence (or `clflush`) that serves the need first, if one does.
    pub(crate) fn served_by(&self, litmus: &Litmus, ops: &[Op], need: &Need) -> Option<usize> {
        let from = self.at[need.store];
        let served = if litmus.stores[need.store].is_cached() {
            // The first flush after it, by each thread.
            let mut fenced: Option<usize> = None;
            let mut at = self.flushes.partition_point(|&(line, ..)| line < need.line);
            while let Some(&(line, thread, _)) = self.flushes.get(at)
                && line == need.line
            {
                at += self.flushes[at..].partition_point(|&other| other <= (line, thread, from));
                if let Some(&(_, _, flush)) = self
                    .flushes
                    .get(at)
                    .filter(|other| (other.0, other.1) == (line, thread))
                {
                    fenced = fenced
                        .into_iter()
                        .chain(first_after(&self.fences[thread as usize], flush))
                        .min();
                }
                at += self.flushes[at..].partition_point(|&other| other <= (line, thread, usize::MAX));
            }
            let at_once = self.clflushes.partition_point(|&other| other <= (need.line, from));
            let at_once = self.clflushes.get(at_once).filter(|(line, _)| *line == need.line);
            let at_once = at_once.map(|&(_, position)| position);
            fenced.into_iter().chain(at_once).min()
        } else {
            first_after(&self.fences[ops[from].thread as usize], from)
        };
        // A locked store fences before it stores, so it may serve what must precede itself.
        served.filter(|&at| need.until.is_none_or(|until| at <= self.at[until]))
    }
}

pub(crate) fn first_after(positions: &[usize], position: usize) -> Option<usize> {
    positions.get(positions.partition_point(|&at| at <= position)).copied()
}
