//! The labels of volatile memory: one for each byte, in pages that are made when a label is first stored in them.

use super::domain::{EMPTY, Label};
use super::hash::Map;

const PAGE: u64 = 4096;

type Page = [Label; PAGE as usize];

#[derive(Default)]
pub(super) struct Shadow {
    pages: Vec<Box<Page>>,
    /// From the number of a page, plus 1, to its index.
    index: Map,
    /// The last page looked up.
    last: (u64, Option<u32>),
}

impl Shadow {
    fn find(&mut self, page: u64) -> Option<usize> {
        if self.last.0 != page + 1 {
            self.last = (page + 1, self.index.get(page + 1));
        }
        self.last.1.map(|index| index as usize)
    }

    /// Gives the labels of a range to `each`, run by run: equal ones, and how many.
    pub(super) fn read(&mut self, address: u64, length: u64, mut each: impl FnMut(Label, u64)) {
        self.pieces(address, length, |shadow, page, from, to| {
            let Some(index) = shadow.find(page) else {
                each(EMPTY, (to - from) as u64);
                return;
            };
            for run in shadow.pages[index][from..to].chunk_by(|one, other| one == other) {
                each(run[0], run.len() as u64);
            }
        });
    }

    pub(super) fn write(&mut self, address: u64, length: u64, label: Label) {
        self.pieces(address, length, |shadow, page, from, to| {
            let index = match shadow.find(page) {
                Some(index) => index,
                None if label == EMPTY => return,
                None => shadow.add(page),
            };
            shadow.pages[index][from..to].fill(label);
        });
    }

    fn add(&mut self, page: u64) -> usize {
        let index = self.pages.len();
        self.pages.push(Box::new([EMPTY; PAGE as usize]));
        self.index.insert(page + 1, index as u32);
        self.last = (page + 1, Some(index as u32));
        index
    }

    /// The pages of a range: number, first byte, end.
    fn pieces(&mut self, address: u64, length: u64, mut each: impl FnMut(&mut Shadow, u64, usize, usize)) {
        let end = address.saturating_add(length);
        let mut at = address;
        while at < end {
            let page = at / PAGE;
            let to = end.min((page + 1) * PAGE);
            each(self, page, (at % PAGE) as usize, (to - page * PAGE) as usize);
            at = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_last_written() {
        let mut shadow = Shadow::default();
        let base = 5 * PAGE - 4;
        shadow.write(base, 8, 7);
        shadow.write(base + 2, 4, 9);
        shadow.write(100 * PAGE, 8, EMPTY);
        let mut runs = Vec::new();
        shadow.read(base - 2, 12, |label, bytes| runs.push((label, bytes)));
        assert_eq!(runs, [(0, 2), (7, 2), (9, 2), (9, 2), (7, 2), (0, 2)]);
        assert_eq!(shadow.pages.len(), 2);
    }
}
