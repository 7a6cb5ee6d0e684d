//! What a PM file holds according to the log, to compare with what it really holds.
//!
//! The image is a sparse, nameless file that is mapped: a store costs one copy. A page of a mapped file that the disk
//! has no room for would kill the recorder (`SIGBUS`), so the blocks of each chunk are allocated before its first
//! byte is written; a chunk without blocks holds zeros and is never touched.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CHUNK: usize = 64 << 10;

/// How a stretch of the file differs from the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub bytes: u64,
    /// Offset of the first byte that differs.
    pub first: u64,
}

impl Difference {
    /// Both taken together, `later` being behind self or found later.
    pub(crate) fn merge(into: &mut Option<Difference>, later: Option<Difference>) {
        match (into.as_mut(), later) {
            (Some(all), Some(later)) => all.bytes += later.bytes,
            (None, later) => *into = later,
            (Some(_), None) => {}
        }
    }
}

pub(crate) struct Image {
    file: File,
    map: *mut u8,
    /// Bytes mapped, a multiple of `CHUNK`.
    capacity: usize,
    /// Size of the PM file.
    size: u64,
    /// One bit per chunk.
    allocated: Vec<u64>,
}

// SAFETY: the mapping belongs to this image alone.
unsafe impl Send for Image {}

impl Image {
    /// An image of zeros, in a nameless file in `directory`.
    pub(crate) fn create(directory: &Path, size: u64) -> io::Result<Image> {
        let file = tempfile::tempfile_in(directory)?;
        let mut image = Image {
            file,
            map: std::ptr::null_mut(),
            capacity: 0,
            size,
            allocated: Vec::new(),
        };
        image.reserve(size.max(1))?;
        Ok(image)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// A store through a mapping: does not change the size of the file.
    pub(crate) fn store(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let Some(last) = data.len().checked_sub(1) else {
            return Ok(());
        };
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if end > self.capacity as u64 {
            self.reserve(end.max(self.capacity as u64 * 2).min(MAX_SIZE).max(end))?;
        }
        let start = offset as usize;
        for chunk in start / CHUNK..=(start + last) / CHUNK {
            if !self.is_allocated(chunk) {
                self.allocate(chunk)?;
            }
        }
        // SAFETY: [start, start + len) is mapped, its chunks have blocks, and `data` is not part of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.map.add(start), data.len()) };
        Ok(())
    }

    /// write(2): extends the file.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.store(offset, data)?;
        self.size = self.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// What is cut off reads as zeros if the file grows again.
    pub(crate) fn resize(&mut self, size: u64) -> io::Result<()> {
        if size > self.capacity as u64 {
            self.reserve(size)?;
        }
        let mut start = size.min(self.size) as usize;
        while start < self.capacity {
            let chunk = start / CHUNK;
            let end = (chunk + 1) * CHUNK;
            if self.is_allocated(chunk) {
                // SAFETY: within the mapping, and the chunk has blocks.
                unsafe { self.map.add(start).write_bytes(0, end - start) };
            }
            start = self.next_allocated(chunk + 1).map_or(self.capacity, |c| c * CHUNK);
        }
        self.size = size;
        Ok(())
    }

    /// Compares, and takes over what differs so that it is not found again.
    pub(crate) fn verify(&mut self, offset: u64, actual: &[u8]) -> io::Result<Option<Difference>> {
        let difference = self.compare(offset, actual);
        if difference.is_some() {
            self.store(offset, actual)?;
        }
        Ok(difference)
    }

    /// Compares with all of `file`, holes included.
    pub(crate) fn verify_file(&self, file: &File) -> io::Result<Option<Difference>> {
        let size = file.metadata()?.len().min(self.size);
        let mut all = None;
        let mut buffer = vec![0; CHUNK];
        let mut data_from = 0;
        let mut start = 0;
        while start < size {
            let chunk = (start / CHUNK as u64) as usize;
            if data_from <= start {
                data_from = next_data(file, start);
            }
            let allocated_from = self.next_allocated(chunk).map_or(u64::MAX, |c| (c * CHUNK) as u64);
            let next = data_from.min(allocated_from);
            if next / CHUNK as u64 > chunk as u64 {
                start = next / CHUNK as u64 * CHUNK as u64;
                continue;
            }
            let actual = &mut buffer[..(size - start).min(CHUNK as u64) as usize];
            file.read_exact_at(actual, start)?;
            Difference::merge(&mut all, self.compare(start, actual));
            start += CHUNK as u64;
        }
        Ok(all)
    }

    fn compare(&self, offset: u64, actual: &[u8]) -> Option<Difference> {
        let mut all = None;
        let mut done = 0;
        while done < actual.len() {
            let at = offset + done as u64;
            let within = (at % CHUNK as u64) as usize;
            let n = (CHUNK - within).min(actual.len() - done);
            let expected = self.chunk((at / CHUNK as u64) as usize).map(|c| &c[within..within + n]);
            Difference::merge(&mut all, difference(expected, &actual[done..done + n], at));
            done += n;
        }
        all
    }

    /// The bytes of a chunk; `None`: zeros.
    fn chunk(&self, chunk: usize) -> Option<&[u8]> {
        // SAFETY: within the mapping, and the chunk has blocks.
        self.is_allocated(chunk)
            .then(|| unsafe { std::slice::from_raw_parts(self.map.add(chunk * CHUNK), CHUNK) })
    }

    fn is_allocated(&self, chunk: usize) -> bool {
        self.allocated
            .get(chunk / 64)
            .is_some_and(|word| word >> (chunk % 64) & 1 != 0)
    }

    fn next_allocated(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let masked = self.allocated.get(first)? & (!0 << (from % 64));
        let rest = self.allocated[first + 1..].iter().copied();
        std::iter::once(masked)
            .chain(rest)
            .zip(first..)
            .find(|&(word, _)| word != 0)
            .map(|(word, index)| index * 64 + word.trailing_zeros() as usize)
    }

    fn allocate(&mut self, chunk: usize) -> io::Result<()> {
        // SAFETY: a plain system call on a descriptor that we own.
        let error = unsafe {
            libc::posix_fallocate(
                self.file.as_raw_fd(),
                (chunk * CHUNK) as libc::off_t,
                CHUNK as libc::off_t,
            )
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        self.allocated[chunk / 64] |= 1 << (chunk % 64);
        Ok(())
    }

    /// Makes room for `size` bytes, which take no space on the disk yet.
    fn reserve(&mut self, size: u64) -> io::Result<()> {
        if size > MAX_SIZE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let capacity = (size as usize).next_multiple_of(CHUNK);
        self.file.set_len(capacity as u64)?;
        // SAFETY: maps our own file, or moves our own mapping of it; nothing holds a pointer into it.
        let map = unsafe {
            if self.map.is_null() {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let fd = self.file.as_raw_fd();
                libc::mmap(
                    std::ptr::null_mut(),
                    capacity,
                    protection,
                    libc::MAP_SHARED | libc::MAP_NORESERVE,
                    fd,
                    0,
                )
            } else {
                libc::mremap(self.map.cast(), self.capacity, capacity, libc::MREMAP_MAYMOVE)
            }
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.map = map.cast();
        self.capacity = capacity;
        self.allocated.resize((capacity / CHUNK).div_ceil(64), 0);
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.map.is_null() {
            // SAFETY: our own mapping, and no reference outlives self.
            unsafe { libc::munmap(self.map.cast(), self.capacity) };
        }
    }
}

/// A PM address has 48 bits of offset; what is larger cannot be mapped anyway.
const MAX_SIZE: u64 = 1 << 46;

fn difference(expected: Option<&[u8]>, actual: &[u8], at: u64) -> Option<Difference> {
    let zeros = [0; CHUNK];
    let expected = expected.unwrap_or(&zeros[..actual.len()]);
    if expected == actual {
        return None;
    }
    let differs = |i: &usize| expected[*i] != actual[*i];
    let first = (0..actual.len()).find(differs)?;
    let bytes = (first..actual.len()).filter(differs).count() as u64;
    Some(Difference {
        bytes,
        first: at + first as u64,
    })
}

/// Where the file has data at or after `from`; a file system that cannot tell has data everywhere.
fn next_data(file: &File, from: u64) -> u64 {
    // SAFETY: a plain system call; the position of the descriptor is not used by anyone.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, libc::SEEK_DATA) };
    match at {
        0.. => at as u64,
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => u64::MAX,
        _ => from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(size: u64) -> Image {
        Image::create(&std::env::temp_dir(), size).unwrap()
    }

    #[test]
    fn finds_the_bytes_that_differ_once() {
        let mut image = image(1 << 20);
        image.store(70_000, b"hello").unwrap();
        assert_eq!(image.verify(69_999, b"\0hello\0").unwrap(), None);
        let expected = Difference {
            bytes: 2,
            first: 70_001,
        };
        assert_eq!(image.verify(70_000, b"hallO").unwrap(), Some(expected));
        assert_eq!(image.verify(70_000, b"hallO").unwrap(), None);
    }

    #[test]
    fn stores_and_comparisons_cross_chunks() {
        let mut image = image(4 * CHUNK as u64);
        let data: Vec<u8> = (0..CHUNK * 2).map(|i| i as u8).collect();
        image.store(100, &data).unwrap();
        assert_eq!(image.verify(100, &data).unwrap(), None);
        let mut other = data.clone();
        other[5] ^= 1;
        other[CHUNK + 7] ^= 1;
        assert_eq!(
            image.verify(100, &other).unwrap(),
            Some(Difference { bytes: 2, first: 105 })
        );
    }

    #[test]
    fn what_is_cut_off_comes_back_as_zeros() {
        let mut image = image(3 * CHUNK as u64);
        image.store(10, &[7; 2 * CHUNK]).unwrap();
        image.resize(12).unwrap();
        image.resize(1 << 30).unwrap();
        assert_eq!(
            image.verify(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 0, 0]).unwrap(),
            None
        );
        assert_eq!(image.verify(CHUNK as u64, &[0; CHUNK]).unwrap(), None);
        assert_eq!(image.size(), 1 << 30);
    }

    #[test]
    fn compares_whole_sparse_files() {
        let size = 1 << 34;
        let mut image = image(size);
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for at in [5, 3 << 30, size - 3] {
            file.write_all_at(b"abc", at).unwrap();
            image.store(at, b"abc").unwrap();
        }
        assert_eq!(image.verify_file(&file).unwrap(), None);
        image.store(7 << 30, b"x").unwrap();
        file.write_all_at(b"yz", 8 << 30).unwrap();
        assert_eq!(
            image.verify_file(&file).unwrap(),
            Some(Difference {
                bytes: 3,
                first: 7 << 30
            })
        );
    }

    #[test]
    fn absurd_offsets_are_errors() {
        assert!(image(10).store(u64::MAX - 1, b"abc").is_err());
        assert!(image(10).store(1 << 47, b"abc").is_err());
        assert!(image(10).resize(u64::MAX).is_err());
    }
}
