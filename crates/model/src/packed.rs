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
pub enum States {
    Same(u32),
    Each(Box<[u32]>),
}

impl States {
    pub fn get(&self, nth: usize) -> u32 {
        match self {
            States::Same(state) => *state,
            States::Each(states) => states[nth],
        }
    }
}

/// What is known of a page.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedPage {
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

pub struct Packed<L> {
    /// By the first page of the run.
    runs: BTreeMap<(u32, u64), Run>,
    states: Vec<L>,
    index: FxHashMap<L, u32>,
}

impl<L> Default for Packed<L> {
    fn default() -> Self {
        Packed {
            runs: BTreeMap::new(),
            states: Vec::new(),
            index: FxHashMap::default(),
        }
    }
}

impl<L: Clone + Eq + Hash> Packed<L> {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn state(&self, id: u32) -> &L {
        &self.states[id as usize]
    }

    pub fn intern(&mut self, state: &L) -> u32 {
        if let Some(&id) = self.index.get(state) {
            return id;
        }
        let id = self.states.len() as u32;
        self.states.push(state.clone());
        self.index.insert(state.clone(), id);
        id
    }

    pub fn insert(&mut self, at: PageAddress, page: PackedPage) {
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
    pub fn remove(&mut self, at: PageAddress) -> Option<PackedPage> {
        let (&(file, first), run) = self.runs.range(..=(at.file, at.page)).next_back()?;
        if file != at.file || first + run.pages <= at.page {
            return None;
        }
        self.split(at.file, at.page);
        self.split(at.file, at.page + 1);
        self.runs.remove(&(at.file, at.page)).map(|run| run.page)
    }

    /// Takes out all pages in `pages`, as runs: first page, number of pages, page.
    pub fn remove_range(&mut self, file: u32, pages: std::ops::Range<u64>) -> Vec<(u64, u64, PackedPage)> {
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
    pub fn remove_all(&mut self) -> Vec<(u32, u64, u64, PackedPage)> {
        let runs = std::mem::take(&mut self.runs);
        runs.into_iter()
            .map(|((file, first), run)| (file, first, run.pages, run.page))
            .collect()
    }

    /// Puts a run back that was taken out.
    pub fn restore(&mut self, file: u32, first: u64, pages: u64, page: PackedPage) {
        self.runs.insert((file, first), Run { pages, page });
    }

    /// Changes all states, each once; drops those that no page has if there is no page at all.
    pub fn update_states(&mut self, update: impl FnMut(&mut L)) {
        if self.runs.is_empty() {
            self.states = Vec::new();
        }
        self.states.iter_mut().for_each(update);
        self.index = self.states.iter().cloned().zip(0..).collect();
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
        packed.update_states(|state| *state += 1);
        assert_eq!((packed.intern(&6), packed.intern(&5)), (0, 2));
    }
}
