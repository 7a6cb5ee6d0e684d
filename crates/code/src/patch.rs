//! Puts breakpoints on sites, while other threads may be executing that code.
//!
//! Only the first byte of an instruction changes, so that a thread sees the old instruction or the breakpoint, never a
//! mixture. The page stays executable throughout. Breakpoints are never taken away again.

use std::io;
use std::ops::Range;

use crate::sweep::Site;
use crate::sys::{self, PAGE};

const INT3: u8 = 0xcc;

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error("cannot read /proc/self/maps to learn how code is protected: {0}; is /proc mounted?")]
    Mappings(#[source] io::Error),
    #[error(
        "cannot make the memory at {address:#x} writable to put a breakpoint or an address there: {source}; a security module or \
         PR_SET_MDWE may forbid it"
    )]
    Protect { address: usize, source: io::Error },
}

/// What is mapped, and how it is protected, in address order.
pub fn mappings() -> Result<Vec<(Range<usize>, i32)>, PatchError> {
    let mut mappings = Vec::new();
    sys::for_each_mapping(|range, protection| mappings.push((range, protection))).map_err(PatchError::Mappings)?;
    Ok(mappings)
}

/// Writes words, each to its address, into memory that may be protected from it, and stays so. `words` are in address order; those in none of the mappings
/// are left out.
///
/// # Safety
/// Each address is that of a word of which nobody relies on what it holds, in a mapping that is protected as is said.
pub unsafe fn write_words(words: &[(usize, usize)], mappings: &[(Range<usize>, i32)]) -> Result<(), PatchError> {
    for group in words.chunk_by(|one, other| one.0 / PAGE == other.0 / PAGE) {
        let start = group[0].0 & !(PAGE - 1);
        let Some((_, protection)) = mappings.iter().find(|(range, _)| range.contains(&group[0].0)) else {
            continue;
        };
        let failed = |source| PatchError::Protect { address: start, source };
        // SAFETY: only adds rights; then writes what the caller vouches for; then restores what was there.
        unsafe {
            sys::mprotect(start..start + PAGE, protection | libc::PROT_WRITE).map_err(failed)?;
            for &(address, word) in group {
                (address as *mut usize).write_volatile(word);
            }
            sys::mprotect(start..start + PAGE, *protection).map_err(failed)?;
        }
    }
    Ok(())
}

/// Writes a breakpoint over the first byte of each site. `sites` are in address order. Those that are no longer mapped
/// are left out.
///
/// # Safety
/// Each site is the start of an instruction, and a SIGTRAP handler that knows them all is in place.
pub unsafe fn patch(sites: &[Site]) -> Result<(), PatchError> {
    if sites.is_empty() {
        return Ok(());
    }
    for (mapping, protection) in mappings()? {
        let first = sites.partition_point(|site| site.address < mapping.start);
        let end = sites.partition_point(|site| site.address < mapping.end);
        // Neighbouring pages share two system calls, distant ones stay untouched (a written page is no longer shared with
        // other processes).
        for group in sites[first..end].chunk_by(|one, other| other.address / PAGE - one.address / PAGE <= 1) {
            let start = group[0].address & !(PAGE - 1);
            let pages = start..(group[group.len() - 1].address | (PAGE - 1)) + 1;
            // SAFETY: the caller's promise.
            unsafe { patch_pages(pages, protection, group) }?;
        }
    }
    Ok(())
}

/// # Safety
/// The sites are in `pages`, which are mapped with `protection`; otherwise as for [`patch`].
unsafe fn patch_pages(pages: Range<usize>, protection: i32, sites: &[Site]) -> Result<(), PatchError> {
    let failed = |source| PatchError::Protect {
        address: pages.start,
        source,
    };
    // SAFETY: only adds rights; then writes what the caller vouches for; then restores what was there.
    unsafe {
        sys::mprotect(pages.clone(), protection | libc::PROT_READ | libc::PROT_WRITE).map_err(failed)?;
        for site in sites {
            (site.address as *mut u8).write_volatile(INT3);
        }
        sys::mprotect(pages.clone(), protection).map_err(failed)
    }
}
