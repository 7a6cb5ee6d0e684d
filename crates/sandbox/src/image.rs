//! One PM file's content: what it should be (`expected`, private), and the file in the sandbox, mapped, where the commands see it.
//!
//! Memory and time depend on the data, not on the size: pages never written are holes in both (large pages, in files of moderate
//! size).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use crate::error::SandboxError;
use crate::unopened::Unopened;

const PAGE: usize = crashproof_wire::recovery::PAGE as usize;
static ZEROES: [u8; PAGE] = [0; PAGE];
/// A large page, and the longest file that gets them.
const HUGE: usize = 2 << 20;
const MOST_HUGE: usize = 256 << 20;

pub(crate) struct Image {
    path: PathBuf,
    size: u64,
    expected: Memory,
    /// A bit per page: it may hold other than zeroes in `expected`.
    used: Vec<u64>,
    mapped: Option<Mapped>,
    /// So many pages were put back.
    restored: u64,
}

/// The file in the sandbox.
struct Mapped {
    file: File,
    memory: Memory,
    right: libc::stat,
    /// `None`: somebody may have opened it.
    unopened: Option<Unopened>,
}

impl Image {
    pub(crate) fn new(path: &Path, size: u64) -> Result<Self, SandboxError> {
        let mut image = Image {
            path: path.into(),
            size: 0,
            expected: Memory::none(),
            used: Vec::new(),
            mapped: None,
            restored: 0,
        };
        image.resize(size)?;
        Ok(image)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The file that the commands see from now on, empty as yet.
    pub(crate) fn attach(&mut self, file: File) -> Result<(), SandboxError> {
        let right = stat(&file).map_err(|source| self.failed("look at", source))?;
        let unopened = Unopened::watch(file.as_fd());
        self.mapped = Some(Mapped {
            file,
            memory: Memory::none(),
            right,
            unopened,
        });
        self.fit_file()?;
        self.restore_whole()?;
        Ok(())
    }

    pub(crate) fn detach(&mut self) {
        self.mapped = None;
    }

    /// Whether somebody may have opened the file that is there; `None` if none is.
    pub(crate) fn looked_at(&mut self) -> Option<bool> {
        let mapped = self.mapped.as_mut()?;
        mapped.unopened = mapped.unopened.take().and_then(Unopened::still);
        Some(mapped.unopened.is_none())
    }

    /// Device and inode, as the commands see them.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        self.mapped
            .as_ref()
            .map(|mapped| (mapped.right.st_dev, mapped.right.st_ino))
    }

    /// Beyond the end it is zero.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        let len = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (inside, outside) = buffer.split_at_mut(len);
        outside.fill(0);
        let mut at = offset as usize;
        let mut rest = inside;
        while !rest.is_empty() {
            let (part, after) = rest.split_at_mut(rest.len().min(PAGE - at % PAGE));
            match self.is_used(at / PAGE) {
                true => part.copy_from_slice(&self.expected.bytes()[at..at + part.len()]),
                // Not even looked at: it would have to be mapped in.
                false => part.fill(0),
            }
            at += part.len();
            rest = after;
        }
    }

    /// Cut off at the end.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let len = self.size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut rest = &data[..len];
        let mut at = offset as usize;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min(PAGE - at % PAGE));
            let range = at..at + part.len();
            let same = match self.is_used(at / PAGE) {
                true => self.expected.bytes()[range.clone()] == *part,
                false => ZEROES[..part.len()] == *part,
            };
            if !same {
                self.used[at / PAGE / 64] |= 1 << (at / PAGE % 64);
                self.expected.bytes_mut()[range.clone()].copy_from_slice(part);
                if let Some(mapped) = &mut self.mapped {
                    mapped.memory.bytes_mut()[range].copy_from_slice(part);
                }
            }
            at += part.len();
            rest = after;
        }
    }

    /// What is cut off reads as zero if the file grows again.
    pub(crate) fn resize(&mut self, size: u64) -> Result<(), SandboxError> {
        if size == self.size {
            return Ok(());
        }
        let pages = usize::try_from(size.div_ceil(PAGE as u64))
            .map_err(|_| self.failed("resize", io::ErrorKind::OutOfMemory.into()))?;
        if size < self.size {
            let end = size as usize;
            if !end.is_multiple_of(PAGE) && self.is_used(pages - 1) {
                self.expected.bytes_mut()[end..pages * PAGE].fill(0);
            }
        }
        let resized = self.expected.resize_private(pages * PAGE);
        resized.map_err(|source| self.failed("resize", source))?;
        self.used.resize(pages.div_ceil(64), 0);
        if !pages.is_multiple_of(64) {
            let last = self.used.len() - 1;
            self.used[last] &= (1 << (pages % 64)) - 1;
        }
        self.size = size;
        self.fit_file()
    }

    /// Gives the file its size, maps all of it, and sets its time.
    fn fit_file(&mut self) -> Result<(), SandboxError> {
        let (size, len) = (self.size, self.expected.len);
        let Some(mapped) = &mut self.mapped else { return Ok(()) };
        let fitted = (|| {
            mapped.file.set_len(size)?;
            if mapped.memory.len != len {
                mapped.memory = Memory::shared(&mapped.file, len)?;
            }
            mapped.set_sentinel()
        })();
        fitted.map_err(|source| self.failed("resize", source))
    }

    /// Puts back one page; true: it had been changed.
    pub(crate) fn restore_page(&mut self, offset: u64) -> bool {
        let page = (offset / PAGE as u64) as usize;
        if page * PAGE >= self.expected.len {
            return false;
        }
        let right = match self.is_used(page) {
            true => &self.expected.bytes()[page * PAGE..(page + 1) * PAGE],
            false => &ZEROES[..],
        };
        let Some(mapped) = &mut self.mapped else { return false };
        let now = &mut mapped.memory.bytes_mut()[page * PAGE..(page + 1) * PAGE];
        let changed = now != right;
        if changed {
            now.copy_from_slice(right);
            self.restored += 1;
        }
        changed
    }

    /// Looks whether the file was changed by a system call, and then puts all of it back; true: it had been changed.
    pub(crate) fn restore_if_disturbed(&mut self) -> Result<bool, SandboxError> {
        let Some(mapped) = &mut self.mapped else {
            return Ok(false);
        };
        let now = stat(&mapped.file);
        let now = now.map_err(|source| self.failed("look at", source))?;
        self.mend(&now)
    }

    fn mend(&mut self, now: &libc::stat) -> Result<bool, SandboxError> {
        let Some(mapped) = &mut self.mapped else {
            return Ok(false);
        };
        let right = &mapped.right;
        if (now.st_mode, now.st_uid, now.st_gid) != (right.st_mode, right.st_uid, right.st_gid) {
            let mended = mapped.restore_attributes();
            mended.map_err(|source| self.failed("restore", source))?;
        }
        let resized = now.st_size as u64 != self.size;
        if !resized && (now.st_mtime, now.st_mtime_nsec) == (0, 0) {
            return Ok(false);
        }
        self.fit_file()?;
        let changed = self.restore_pages()?;
        Ok(changed || resized)
    }

    /// Compares everything and puts it back; true: it had been changed.
    pub(crate) fn restore_whole(&mut self) -> Result<bool, SandboxError> {
        let mended = self.restore_if_disturbed()?;
        Ok(self.restore_pages()? || mended)
    }

    fn restore_pages(&mut self) -> Result<bool, SandboxError> {
        let before = self.restored;
        for range in self.held()? {
            for page in range {
                self.restore_page((page * PAGE) as u64);
            }
        }
        Ok(self.restored > before)
    }

    /// How many pages there are to be compared.
    pub(crate) fn held_pages(&self) -> Result<u64, SandboxError> {
        Ok(self.held()?.iter().map(|range| range.len() as u64).sum())
    }

    /// So many pages were put back until now.
    pub(crate) fn restored(&self) -> u64 {
        self.restored
    }

    /// The ranges of pages that may hold other than zeroes in the file, or should: in order, none twice.
    fn held(&self) -> Result<Vec<Range<usize>>, SandboxError> {
        let Some(mapped) = &self.mapped else {
            return Ok(Vec::new());
        };
        let extents = mapped.data(self.size);
        let extents = extents.map_err(|source| self.failed("look at", source))?;
        let mut held = Vec::new();
        let mut page = 0;
        let end = self.expected.len / PAGE;
        for (first, last) in extents.into_iter().chain([(end, end)]) {
            while let Some(used) = self.next_used(page, first) {
                held.push(used..used + 1);
                page = used + 1;
            }
            held.push(first.max(page)..last);
            page = page.max(last);
        }
        Ok(held)
    }

    fn is_used(&self, page: usize) -> bool {
        self.used[page / 64] >> (page % 64) & 1 == 1
    }

    /// The first used page in the range.
    fn next_used(&self, from: usize, to: usize) -> Option<usize> {
        let mut page = from;
        while page < to {
            let bits = self.used[page / 64] >> (page % 64);
            if bits != 0 {
                let found = page + bits.trailing_zeros() as usize;
                return (found < to).then_some(found);
            }
            page = (page / 64 + 1) * 64;
        }
        None
    }

    fn failed(&self, what: &'static str, source: io::Error) -> SandboxError {
        SandboxError::Image {
            what,
            path: self.path.clone(),
            source,
        }
    }
}

impl Mapped {
    /// A modification time that no clock gives: it stays as long as the file is changed through mappings only.
    fn set_sentinel(&self) -> io::Result<()> {
        let times = [
            libc::timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_OMIT,
            },
            libc::timespec { tv_sec: 0, tv_nsec: 0 },
        ];
        // SAFETY: two timespecs, as futimens reads.
        check(unsafe { libc::futimens(self.file.as_raw_fd(), times.as_ptr()) } as i64).map(drop)
    }

    fn restore_attributes(&self) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        std::os::unix::fs::fchown(self.file.as_fd(), Some(self.right.st_uid), Some(self.right.st_gid))?;
        let mode = self.right.st_mode & 0o7777;
        self.file.set_permissions(std::fs::Permissions::from_mode(mode))
    }

    /// The ranges of pages that are not holes.
    fn data(&self, size: u64) -> io::Result<Vec<(usize, usize)>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < size {
            let data = match self.seek(at, libc::SEEK_DATA) {
                // There is none any more.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => break,
                other => other?,
            };
            let hole = self.seek(data, libc::SEEK_HOLE)?;
            ranges.push((data as usize / PAGE, (hole as usize).div_ceil(PAGE)));
            at = hole;
        }
        Ok(ranges)
    }

    fn seek(&self, from: u64, to: libc::c_int) -> io::Result<u64> {
        // SAFETY: moves the offset of a file that nobody reads from there.
        check(unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, to) }).map(|at| at as u64)
    }
}

fn stat(file: &File) -> io::Result<libc::stat> {
    // SAFETY: an all-zero stat is valid, and fstat fills it.
    unsafe {
        let mut stat = std::mem::zeroed();
        check(libc::fstat(file.as_raw_fd(), &mut stat).into())?;
        Ok(stat)
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Mapped memory, readable and writable; whole pages.
struct Memory {
    address: *mut u8,
    len: usize,
}

// SAFETY: the memory is this value's own, or a file's that others only change while nobody looks (see `Image`).
unsafe impl Send for Memory {}

impl Memory {
    fn none() -> Self {
        Memory {
            address: std::ptr::NonNull::dangling().as_ptr(),
            len: 0,
        }
    }

    fn map(flags: libc::c_int, descriptor: libc::c_int, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Memory::none());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping. Supervisors are forked from this process, and need none of this.
        unsafe {
            let address = libc::mmap(std::ptr::null_mut(), len, protection, flags, descriptor, 0);
            if address == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(address, len, libc::MADV_DONTFORK);
            Ok(Memory {
                address: address.cast(),
                len,
            })
        }
    }

    /// Of a file that is as long. A file of moderate size gets large pages, because most of what a short recovery costs is
    /// mapping in the pages that it looks at (a walk over 100 entries in 8 MiB: 58 page faults a run with them, 155 without, and
    /// 0.55 against 0.72 ms of processor time); a sparse giant must not fill the memory.
    fn shared(file: &File, len: usize) -> io::Result<Self> {
        if !(HUGE..=MOST_HUGE).contains(&len) {
            return Memory::map(libc::MAP_SHARED, file.as_raw_fd(), len);
        }
        // SAFETY: a reservation of addresses, at a multiple of the large page within it the file's mapping, and the rest of
        // the reservation given back. The advice is about the new mapping.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let room = libc::mmap(std::ptr::null_mut(), len + HUGE, libc::PROT_NONE, flags, -1, 0);
            if room == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let before = (room as usize).next_multiple_of(HUGE) - room as usize;
            let at = room.cast::<u8>().add(before);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
            if libc::mmap(at.cast(), len, protection, fixed, file.as_raw_fd(), 0) == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                libc::munmap(room, len + HUGE);
                return Err(error);
            }
            libc::munmap(room, before);
            let end = len.next_multiple_of(PAGE);
            libc::munmap(at.add(end).cast(), len + HUGE - before - end);
            libc::madvise(at.cast(), len, libc::MADV_DONTFORK);
            libc::madvise(at.cast(), len, libc::MADV_HUGEPAGE);
            Ok(Memory { address: at, len })
        }
    }

    /// Private memory: what stays keeps its content, what comes is zero.
    fn resize_private(&mut self, len: usize) -> io::Result<()> {
        if self.len == 0 || len == 0 {
            *self = Memory::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, len)?;
            // A page of a sparse file must not take up two megabytes.
            // SAFETY: advice about this value's own memory.
            unsafe { libc::madvise(self.address.cast(), self.len, libc::MADV_NOHUGEPAGE) };
            return Ok(());
        }
        if len == self.len {
            return Ok(());
        }
        // SAFETY: the mapping is this value's own, and no reference to it lives.
        let address = unsafe { libc::mremap(self.address.cast(), self.len, len, libc::MREMAP_MAYMOVE) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.address = address.cast();
        self.len = len;
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and readable as long as the value lives; a file is as long as its mapping whenever this is called.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; writable, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this value's own mapping; no reference outlives it.
            unsafe { libc::munmap(self.address.cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;

    const MOST: u64 = 300_000;

    /// What may be done to an image, by the worker and by a recovery.
    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Resize(u64),
        Attach,
        Detach,
        /// A recovery stores through its mapping, and the pages are known.
        Store(u64, Vec<u8>),
        /// It writes, truncates or punches a hole by a system call, and only the time tells.
        Call(u64, Vec<u8>),
        Truncate(u64),
        Punch(u64, u64),
        /// It stores, and nobody saw it.
        Unseen(u64, Vec<u8>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = || {
            prop_oneof![
                proptest::collection::vec(0..3u8, 1..20),
                proptest::collection::vec(0..2u8, 4000..9000)
            ]
        };
        let at = || 0..MOST;
        prop_oneof![
            6 => (at(), bytes()).prop_map(|(at, bytes)| Step::Write(at, bytes)),
            2 => at().prop_map(Step::Resize),
            1 => Just(Step::Attach),
            1 => Just(Step::Detach),
            3 => (at(), bytes()).prop_map(|(at, bytes)| Step::Store(at, bytes)),
            2 => (at(), bytes()).prop_map(|(at, bytes)| Step::Call(at, bytes)),
            1 => at().prop_map(Step::Truncate),
            1 => (at(), 1..20_000u64).prop_map(|(at, len)| Step::Punch(at, len)),
            2 => (at(), bytes()).prop_map(|(at, bytes)| Step::Unseen(at, bytes)),
        ]
    }

    /// The naive image: its bytes.
    #[derive(Default)]
    struct Reference(Vec<u8>);

    impl Reference {
        fn write(&mut self, at: u64, bytes: &[u8]) {
            for (to, from) in self.0.iter_mut().skip(at as usize).zip(bytes) {
                *to = *from;
            }
        }
    }

    fn in_memory() -> File {
        tempfile::tempfile_in("/dev/shm").unwrap()
    }

    fn store(file: &File, size: u64, at: u64, bytes: &[u8]) -> bool {
        let bytes = &bytes[..(size.saturating_sub(at) as usize).min(bytes.len())];
        if bytes.is_empty() {
            return false;
        }
        let mut memory = Memory::shared(file, size as usize).unwrap();
        let to = &mut memory.bytes_mut()[at as usize..][..bytes.len()];
        let changed = to != bytes;
        to.copy_from_slice(bytes);
        changed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn an_image_is_its_bytes(steps in proptest::collection::vec(step(), 1..40)) {
            let mut image = Image::new(Path::new("pool"), 100_000).unwrap();
            let mut reference = Reference(vec![0; 100_000]);
            let mut file = None;
            for step in steps {
                let size = image.size();
                match (&step, &file) {
                    (Step::Write(at, bytes), _) => {
                        image.write(*at, bytes);
                        reference.write(*at, bytes);
                    }
                    (Step::Resize(size), _) => {
                        image.resize(*size).unwrap();
                        reference.0.resize(*size as usize, 0);
                    }
                    (Step::Attach, _) => {
                        let new = in_memory();
                        image.attach(new.try_clone().unwrap()).unwrap();
                        file = Some(new);
                    }
                    (Step::Detach, _) => {
                        image.detach();
                        file = None;
                    }
                    (Step::Store(at, bytes), Some(file)) => {
                        let changed = store(file, size, *at, bytes);
                        let mut restored = false;
                        for page in (*at / PAGE as u64)..=((at + bytes.len() as u64) / PAGE as u64) {
                            restored |= image.restore_page(page * PAGE as u64);
                        }
                        prop_assert_eq!(restored, changed);
                        prop_assert!(!image.restore_if_disturbed().unwrap());
                    }
                    (Step::Call(at, bytes), Some(file)) => {
                        file.write_all_at(bytes, *at).unwrap();
                        image.restore_if_disturbed().unwrap();
                    }
                    (Step::Truncate(to), Some(file)) => {
                        file.set_len(*to).unwrap();
                        let restored = image.restore_if_disturbed().unwrap();
                        prop_assert!(restored || *to == size);
                    }
                    (Step::Punch(at, len), Some(file)) => {
                        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                        // SAFETY: changes the content of a file.
                        let punched = unsafe { libc::fallocate(file.as_raw_fd(), mode, *at as i64, *len as i64) };
                        prop_assert_eq!(punched, 0);
                        image.restore_if_disturbed().unwrap();
                    }
                    (Step::Unseen(at, bytes), Some(file)) => {
                        let changed = store(file, size, *at, bytes);
                        prop_assert_eq!(image.restore_whole().unwrap(), changed);
                    }
                    _ => {}
                }
                let mut bytes = vec![9; reference.0.len() + 10];
                image.read(0, &mut bytes);
                prop_assert!(bytes[..reference.0.len()] == reference.0, "{:?}", step);
                prop_assert!(bytes[reference.0.len()..].iter().all(|&byte| byte == 0));
                if let Some(file) = &file {
                    let mut bytes = vec![9; reference.0.len()];
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    prop_assert!(bytes == reference.0, "{:?}", step);
                    prop_assert_eq!(file.metadata().unwrap().len(), reference.0.len() as u64);
                }
            }
        }
    }
}
