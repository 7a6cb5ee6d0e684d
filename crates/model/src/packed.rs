//! Lines that hold stores which nobody has persisted for long, in little memory.
//!
//! A program that fills a large range before its fence, or that never flushes, leaves millions of lines in the same few
//! states. Equal states are kept once; adjacent pages in the same state are kept as one run.

use std::collections::BTreeMap;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::memory::{PageAddress, Past};

/// States of the lines of a page, for the lines in `active` in ascending order.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum States {
    Same(u32),
    Each(Box<[u32]>),
}

impl States {
    pub(crate) fn get(&self, nth: usize) -> u32 {
        match self {
            States::Same(state) => *state,
            States::Each(states) => states[nth],
        }
    }
}

/// What is known of a page.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PackedPage {
    pub past: Past,
    /// Bit n: line n has state.
    pub active: u64,
    pub states: States,
}

/// Equal pages in a row.
struct Run {
    pages: u64,
    page: PackedPage,
}

pub(crate) struct Packed<L> {
    /// By the first page of the run.
    runs: BTreeMap<(u32, u64), Run>,
    states: Vec<L>,
    index: FxHashMap<L, u32>,
    /// So many states were in use when the unused ones were dropped last.
    used: usize,
}

/// Fewer states are not worth looking for those that no page has.
const FEW_STATES: usize = 1 << 12;

impl<L> Default for Packed<L> {
    fn default() -> Self {
        Packed {
            runs: BTreeMap::new(),
            states: Vec::new(),
            index: FxHashMap::default(),
            used: 0,
        }
    }
}

impl<L: Clone + Eq + Hash> Packed<L> {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn state(&self, id: u32) -> &L {
        &self.states[id as usize]
    }

    pub(crate) fn intern(&mut self, state: &L) -> u32 {
        if let Some(&id) = self.index.get(state) {
            return id;
        }
        let id = self.states.len() as u32;
        self.states.push(state.clone());
        self.index.insert(state.clone(), id);
        id
    }

    pub(crate) fn insert(&mut self, at: PageAddress, page: PackedPage) {
        let mut run = Run { pages: 1, page };
        let mut first = at.page;
        if let Some((&(file, start), before)) = self.runs.range(..(at.file, at.page)).next_back()
            && file == at.file
            && start + before.pages == at.page
            && before.page == run.page
        {
            run.pages += before.pages;
            first = start;
            self.runs.remove(&(file, start));
        }
        if let Some(after) = self.runs.get(&(at.file, at.page + 1))
            && after.page == run.page
        {
            run.pages += after.pages;
            self.runs.remove(&(at.file, at.page + 1));
        }
        self.runs.insert((at.file, first), run);
    }

    /// Takes one page out.
    pub(crate) fn remove(&mut self, at: PageAddress) -> Option<PackedPage> {
        let (&(file, first), run) = self.runs.range(..=(at.file, at.page)).next_back()?;
        if file != at.file || first + run.pages <= at.page {
            return None;
        }
        self.split(at.file, at.page);
        self.split(at.file, at.page + 1);
        self.runs.remove(&(at.file, at.page)).map(|run| run.page)
    }

    /// The pages in `pages`, as runs: first page, number of pages, which of their lines have state.
    pub(crate) fn active_in(
        &self,
        file: u32,
        pages: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let before = self.runs.range(..(file, pages.start)).next_back();
        let within = self.runs.range((file, pages.start)..(file, pages.end.max(pages.start)));
        before.into_iter().chain(within).filter_map(move |(&(of, first), run)| {
            let (start, end) = (first.max(pages.start), (first + run.pages).min(pages.end));
            (of == file && start < end).then(|| (start, end - start, run.page.active))
        })
    }

    /// Takes out all pages in `pages`, as runs: first page, number of pages, page.
    pub(crate) fn remove_range(&mut self, file: u32, pages: std::ops::Range<u64>) -> Vec<(u64, u64, PackedPage)> {
        if pages.is_empty() {
            return Vec::new();
        }
        self.split(file, pages.start);
        self.split(file, pages.end);
        let mut rest = self.runs.split_off(&(file, pages.start));
        let mut after = rest.split_off(&(file, pages.end));
        self.runs.append(&mut after);
        rest.into_iter()
            .map(|((_, first), run)| (first, run.pages, run.page))
            .collect()
    }

    /// Takes out everything, as runs: file, first page, number of pages, page. The states stay.
    pub(crate) fn remove_all(&mut self) -> Vec<(u32, u64, u64, PackedPage)> {
        let runs = std::mem::take(&mut self.runs);
        runs.into_iter()
            .map(|((file, first), run)| (file, first, run.pages, run.page))
            .collect()
    }

    /// Puts a run back that was taken out.
    pub(crate) fn restore(&mut self, file: u32, first: u64, pages: u64, page: PackedPage) {
        self.runs.insert((file, first), Run { pages, page });
    }

    /// Looks at all states, each once; those become another for which `update` gives one.
    pub(crate) fn update_states(&mut self, mut update: impl FnMut(&L) -> Option<L>) {
        let changed = (0..)
            .zip(&self.states)
            .filter_map(|(id, state)| Some((id, update(state)?)));
        let changed: Vec<(u32, L)> = changed.collect();
        for &(id, _) in &changed {
            // Two that have become equal stay two; the index has one of them.
            let state = &self.states[id as usize];
            if self.index.get(state) == Some(&id) {
                self.index.remove(state);
            }
        }
        for (id, state) in changed {
            self.index.entry(state.clone()).or_insert(id);
            self.states[id as usize] = state;
        }
    }

    /// Forgets the states that no page has, once they may be as many as the others. All pages that have any are packed.
    pub(crate) fn drop_unused(&mut self) {
        if self.states.len() < FEW_STATES.max(2 * self.used) {
            return;
        }
        const UNUSED: u32 = u32::MAX;
        let mut new_ids = vec![UNUSED; self.states.len()];
        let mut states = Vec::new();
        let mut index = FxHashMap::default();
        let old = &self.states;
        let mut renumber = |id: &mut u32| {
            let new = &mut new_ids[*id as usize];
            if *new == UNUSED {
                let state = &old[*id as usize];
                *new = *index.entry(state.clone()).or_insert(states.len() as u32);
                if *new as usize == states.len() {
                    states.push(state.clone());
                }
            }
            *id = *new;
        };
        for run in self.runs.values_mut() {
            match &mut run.page.states {
                States::Same(id) => renumber(id),
                States::Each(ids) => ids.iter_mut().for_each(&mut renumber),
            }
        }
        self.used = states.len();
        self.states = states;
        self.index = index;
    }

    /// Makes `page` the first of its run.
    fn split(&mut self, file: u32, page: u64) {
        if let Some((&(f, first), run)) = self.runs.range_mut(..(file, page)).next_back()
            && f == file
            && first + run.pages > page
        {
            let pages = first + run.pages - page;
            run.pages -= pages;
            let page_state = run.page.clone();
            self.runs.insert(
                (file, page),
                Run {
                    pages,
                    page: page_state,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(state: u32) -> PackedPage {
        PackedPage {
            past: Past::default(),
            active: 1,
            states: States::Same(state),
        }
    }

    fn at(page: u64) -> PageAddress {
        PageAddress { file: 1, page }
    }

    #[test]
    fn runs_grow_and_split() {
        let mut packed = Packed::<u8>::default();
        for i in [0, 1, 3, 2, 5] {
            packed.insert(at(i), page(0));
        }
        assert_eq!(packed.runs.len(), 2);
        assert!(packed.remove(at(4)).is_none());
        assert!(packed.remove(PageAddress { file: 0, page: 1 }).is_none());
        assert!(packed.remove(at(1)).is_some());
        assert_eq!(packed.runs.len(), 3);
        packed.insert(at(1), page(7));
        assert_eq!(packed.runs.len(), 4);
        let removed: Vec<_> = packed
            .remove_range(1, 1..3)
            .into_iter()
            .map(|(first, pages, _)| (first, pages))
            .collect();
        assert_eq!(removed, [(1, 1), (2, 1)]);
        assert_eq!(packed.remove_range(0, 0..u64::MAX).len(), 0);
        assert_eq!(packed.remove_range(1, 0..u64::MAX).len(), 3);
        assert!(packed.is_empty());
    }

    #[test]
    fn equal_states_are_kept_once() {
        let mut packed = Packed::<u8>::default();
        assert_eq!((packed.intern(&5), packed.intern(&6), packed.intern(&5)), (0, 1, 0));
        packed.insert(at(0), page(0));
        packed.update_states(|state| Some(state + 1));
        assert_eq!((packed.intern(&6), packed.intern(&5)), (0, 2));
    }

    #[test]
    fn states_that_no_page_has_are_dropped() {
        let mut packed = Packed::<u32>::default();
        for state in 0..2 * FEW_STATES as u32 {
            let id = packed.intern(&state);
            if state % 1000 == 0 {
                packed.insert(at(u64::from(state)), page(id));
            }
        }
        packed.drop_unused();
        assert_eq!(packed.states.len(), 9);
        for state in (0..2 * FEW_STATES as u32).step_by(1000) {
            let States::Same(id) = packed.remove(at(u64::from(state))).unwrap().states else {
                unreachable!();
            };
            assert_eq!((*packed.state(id), packed.intern(&state)), (state, id));
        }
        packed.drop_unused();
        assert_eq!(packed.states.len(), 9, "few are not worth it");
    }
}
