//! Which process has which part of which PM file mapped, and where.

use std::ops::Range;

use crashproof_trace::{EventKind, FileId, PmAddress, ProcessId};

struct Mapping {
    process: ProcessId,
    file: FileId,
    /// Bytes of the file.
    range: Range<u64>,
    /// Where the range's first byte is in the process.
    address: u64,
}

/// All mappings that exist. There are few, so a list does.
#[derive(Default)]
pub struct Mappings {
    list: Vec<Mapping>,
}

impl Mappings {
    /// The process has mapped the range of the file at the address.
    pub fn map(&mut self, process: ProcessId, file: FileId, offset: u64, len: u64, address: u64) {
        self.list.push(Mapping {
            process,
            file,
            range: offset..offset.saturating_add(len),
            address,
        });
    }

    /// A forked child has what its parent has mapped.
    pub fn inherit(&mut self, child: ProcessId, parent: ProcessId) {
        let inherited: Vec<_> = self
            .list
            .iter()
            .filter(|m| m.process == parent)
            .map(|m| Mapping {
                process: child,
                range: m.range.clone(),
                ..*m
            })
            .collect();
        self.list.extend(inherited);
    }

    /// Takes the range out of one mapping of the process; the parts that nobody has mapped any more.
    pub fn unmap(&mut self, process: ProcessId, file: FileId, offset: u64, len: u64) -> Vec<Range<u64>> {
        let range = offset..offset.saturating_add(len);
        let overlaps = |m: &Mapping| {
            m.process == process && m.file == file && m.range.start < range.end && range.start < m.range.end
        };
        // A file that is mapped twice loses one mapping at a time: rather the one that fits.
        let found = self
            .list
            .iter()
            .position(|m| overlaps(m) && m.range == range)
            .or_else(|| self.list.iter().position(overlaps));
        if let Some(index) = found {
            let m = self.list.swap_remove(index);
            if m.range.start < range.start {
                self.list.push(Mapping {
                    range: m.range.start..range.start,
                    ..m
                });
            }
            if range.end < m.range.end {
                let address = m.address.wrapping_add(range.end - m.range.start);
                self.list.push(Mapping {
                    range: range.end..m.range.end,
                    address,
                    ..m
                });
            }
        }
        self.unmapped(file, range)
    }

    /// Takes all mappings of the process away; the parts of files that nobody has mapped any more.
    pub fn end(&mut self, process: ProcessId) -> Vec<(FileId, Range<u64>)> {
        let (gone, rest) = std::mem::take(&mut self.list)
            .into_iter()
            .partition(|m| m.process == process);
        self.list = rest;
        let gone: Vec<Mapping> = gone;
        gone.into_iter()
            .flat_map(|m| self.unmapped(m.file, m.range).into_iter().map(move |r| (m.file, r)))
            .collect()
    }

    /// Takes in an event of the process, for those who only want to resolve addresses.
    pub fn event(&mut self, process: ProcessId, event: &EventKind<'_>) {
        match *event {
            EventKind::Map {
                file,
                address,
                offset,
                len,
                ..
            } => self.map(process, file, offset, len, address),
            EventKind::Unmap { file, offset, len } => {
                self.unmap(process, file, offset, len);
            }
            EventKind::ProcessStart {
                process,
                parent: Some(parent),
                ..
            } => self.inherit(process, parent),
            EventKind::ProcessEnd { process, .. } => {
                self.end(process);
            }
            _ => {}
        }
    }

    /// What an address of the process points to.
    pub fn resolve(&self, process: ProcessId, address: u64) -> Option<PmAddress> {
        self.list.iter().find_map(|m| {
            let within = address.checked_sub(m.address)?;
            (m.process == process && within < m.range.end - m.range.start).then(|| PmAddress {
                file: m.file,
                offset: m.range.start + within,
            })
        })
    }

    /// The parts of the range that no mapping covers.
    fn unmapped(&self, file: FileId, range: Range<u64>) -> Vec<Range<u64>> {
        let mut parts = vec![range];
        for m in self.list.iter().filter(|m| m.file == file) {
            parts = parts
                .into_iter()
                .flat_map(|part| {
                    [
                        part.start..part.end.min(m.range.start),
                        part.start.max(m.range.end)..part.end,
                    ]
                })
                .filter(|part| part.start < part.end)
                .collect();
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FileId = FileId(0);
    const A: ProcessId = ProcessId(0);
    const B: ProcessId = ProcessId(1);

    #[test]
    fn the_last_mapping_counts() {
        let mut m = Mappings::default();
        m.map(A, F, 0, 0x3000, 0x10000);
        m.inherit(B, A);
        assert_eq!(m.unmap(A, F, 0x1000, 0x1000), []);
        assert_eq!(m.resolve(A, 0x11000), None);
        assert_eq!(
            m.resolve(A, 0x12008),
            Some(PmAddress {
                file: F,
                offset: 0x2008
            })
        );
        assert_eq!(
            m.resolve(B, 0x11000),
            Some(PmAddress {
                file: F,
                offset: 0x1000
            })
        );
        assert_eq!(m.end(B), [(F, 0x1000..0x2000)]);
        assert_eq!(m.end(A), [(F, 0..0x1000), (F, 0x2000..0x3000)]);
    }

    #[test]
    fn mapped_twice_by_one_process() {
        let mut m = Mappings::default();
        m.map(A, F, 0, 0x2000, 0x10000);
        m.map(A, F, 0, 0x1000, 0x90000);
        assert_eq!(m.unmap(A, F, 0, 0x1000), []);
        assert_eq!(m.resolve(A, 0x10000), Some(PmAddress { file: F, offset: 0 }));
        assert_eq!(m.unmap(A, F, 0, 0x2000), vec![0..0x2000]);
    }
}
