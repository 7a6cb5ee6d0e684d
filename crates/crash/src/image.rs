//! The image as the cursor writes it: an executor's, or, to survey a trace, one in memory that is as large as what is
//! not zero in it.

use crashproof_model::LineAddress;
use rustc_hash::FxHashMap;

use crate::executor::Executor;
use crate::hash::Content;

const PAGE: u64 = 4096;

pub(crate) trait Image {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]);
    fn write(&mut self, file: usize, offset: u64, data: &[u8]);
    fn resize(&mut self, file: usize, size: u64);
    fn place(&mut self, file: usize, path: Option<&str>);

    /// What a unit of so many bytes holds.
    fn read_unit(&self, at: LineAddress, unit: u64) -> Content {
        let mut content = Content::from_elem(0, unit as usize);
        self.read(at.file as usize, at.line * unit, &mut content);
        content
    }

    /// Writes the bytes in which a line differs.
    fn write_difference(&mut self, at: LineAddress, old: &[u8], new: &[u8]) {
        let differs = |(old, new): (&u8, &u8)| old != new;
        let first = old.iter().zip(new).position(differs);
        let last = old.iter().zip(new).rposition(differs);
        if let (Some(first), Some(last)) = (first, last) {
            let start = at.line * old.len() as u64;
            self.write(at.file as usize, start + first as u64, &new[first..=last]);
        }
    }
}

impl<E: Executor + ?Sized> Image for E {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        Executor::read(self, file, offset, buffer);
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        Executor::write(self, file, offset, data);
    }

    fn resize(&mut self, file: usize, size: u64) {
        Executor::resize(self, file, size);
    }

    fn place(&mut self, file: usize, path: Option<&str>) {
        Executor::place(self, file, path);
    }
}

/// Does not know how large its files are: what a file's end cuts off is never read.
#[derive(Debug, Default)]
pub(crate) struct SparseImage {
    pages: FxHashMap<(usize, u64), Box<[u8; PAGE as usize]>>,
}

/// Cuts a range at page boundaries: (page, offset in it, range of the buffer).
fn by_page(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let n = (PAGE as usize - within).min(len - done);
        let range = done..done + n;
        done += n;
        (n > 0).then_some((at / PAGE, within, range))
    })
}

impl Image for SparseImage {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        for (page, within, range) in by_page(offset, buffer.len()) {
            match self.pages.get(&(file, page)) {
                Some(content) => buffer[range.clone()].copy_from_slice(&content[within..][..range.len()]),
                None => buffer[range].fill(0),
            }
        }
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        for (page, within, range) in by_page(offset, data.len()) {
            let content = self
                .pages
                .entry((file, page))
                .or_insert_with(|| Box::new([0; PAGE as usize]));
            content[within..][..range.len()].copy_from_slice(&data[range]);
        }
    }

    fn resize(&mut self, file: usize, size: u64) {
        self.pages.retain(|&(of, page), content| {
            if of == file && size < (page + 1) * PAGE {
                content[size.saturating_sub(page * PAGE) as usize..].fill(0);
            }
            of != file || page * PAGE < size
        });
    }

    fn place(&mut self, _file: usize, _path: Option<&str>) {}
}

/// The files at the end of what is crashed, with everything persisted.
#[derive(Debug)]
pub(crate) struct LastImage {
    pub content: SparseImage,
    /// Of each file: how large it is, and what it is called if it is there.
    pub files: Vec<(u64, Option<String>)>,
    /// What the program had output.
    pub output: Vec<u8>,
}

impl LastImage {
    /// Makes the image this one, whatever it was.
    pub(crate) fn show(&self, image: &mut (impl Image + ?Sized)) {
        // First away with the names: files may have swapped them.
        for index in 0..self.files.len() {
            image.place(index, None);
        }
        for (index, (size, path)) in self.files.iter().enumerate() {
            image.resize(index, 0);
            image.resize(index, *size);
            image.place(index, path.as_deref());
        }
        for (&(file, page), content) in &self.content.pages {
            image.write(file, page * PAGE, &content[..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_reads_as_zero() {
        let mut image = SparseImage::default();
        image.write(0, 4090, &[1; 12]);
        image.write(1, 0, &[2; 4]);
        let mut buffer = [9; 12];
        image.read(0, 4090, &mut buffer);
        assert_eq!(buffer, [1; 12]);
        image.resize(0, 4092);
        image.read(0, 4090, &mut buffer);
        assert_eq!(buffer, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        image.read(1, 0, &mut buffer[..4]);
        assert_eq!(buffer[..4], [2; 4]);
    }
}
