//! Where PM files are mapped, as far as formats need it that know addresses only.

use crashproof_trace::{FileId, PmAddress};

struct Mapping {
    file: FileId,
    offset: u64,
    len: u64,
    address: u64,
}

/// The mappings of a program, the last one first.
#[derive(Default)]
pub struct Places(Vec<Mapping>);

impl Places {
    /// A new mapping takes the place of what it covers.
    pub fn map(&mut self, file: FileId, address: u64, offset: u64, len: u64) {
        self.0.insert(
            0,
            Mapping {
                file,
                offset,
                len,
                address,
            },
        );
    }

    pub fn unmap(&mut self, file: FileId, offset: u64, len: u64) {
        let found = self
            .0
            .iter()
            .position(|mapping| mapping.file == file && mapping.offset == offset && mapping.len == len);
        if let Some(index) = found {
            self.0.remove(index);
        }
    }

    /// Where the byte is in memory, and how many bytes from there on are mapped with it.
    pub fn address(&self, at: PmAddress) -> Option<(u64, u64)> {
        self.0.iter().find_map(|mapping| {
            let within = at.offset.checked_sub(mapping.offset)?;
            let here = mapping.file == at.file && within < mapping.len;
            here.then(|| (mapping.address.wrapping_add(within), mapping.len - within))
        })
    }

    /// The byte at an address, and how many bytes from there on are of the same mapping.
    pub fn at(&self, address: u64) -> Option<(PmAddress, u64)> {
        self.0.iter().find_map(|mapping| {
            let within = address.checked_sub(mapping.address)?;
            let at = PmAddress {
                file: mapping.file,
                offset: mapping.offset.wrapping_add(within),
            };
            (within < mapping.len).then(|| (at, mapping.len - within))
        })
    }
}
