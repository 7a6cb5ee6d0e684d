//! The breakpoints of the process by address, for the SIGTRAP handler: lookups take no lock and do not allocate.
//!
//! Open addressing in leaked memory. A slot is written once, its address last, and not reused; what is removed (its
//! module was unloaded) leaves a tombstone. A table that fills up is copied into a larger one, which is then published; the old
//! one is leaked, because a handler may be reading it.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::sweep::Site;

const EMPTY: usize = 0;
const REMOVED: usize = 1;
const SMALLEST: usize = 1024;

struct Slot {
    address: AtomicUsize,
    site: UnsafeCell<Option<Site>>,
}

struct Table {
    slots: Box<[Slot]>,
    /// Slots that are not empty, tombstones included. Touched by the writer only.
    used: AtomicUsize,
}

/// See the module's documentation.
pub struct SiteTable {
    table: AtomicPtr<Table>,
}

// SAFETY: a slot's site is written before its address is published with release order, and never again; there is one
// writer at a time by the contract of `insert` and `remove`.
unsafe impl Sync for SiteTable {}

impl SiteTable {
    pub const fn new() -> SiteTable {
        SiteTable {
            table: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The site whose first byte is at `address`.
    pub fn find(&self, address: usize) -> Option<&Site> {
        let table = self.current()?;
        let mut index = table.index(address);
        loop {
            let slot = &table.slots[index];
            match slot.address.load(Ordering::Acquire) {
                EMPTY => return None,
                // SAFETY: published, hence written and not written again.
                found if found == address => return unsafe { (*slot.site.get()).as_ref() },
                _ => index = (index + 1) & (table.slots.len() - 1),
            }
        }
    }

    /// Adds sites; those whose address is known already are left out.
    ///
    /// # Safety
    /// One thread at a time may insert or remove.
    pub unsafe fn insert(&self, sites: &[Site]) {
        let used = self.current().map_or(0, |table| table.used.load(Ordering::Relaxed));
        let capacity = self.current().map_or(0, |table| table.slots.len());
        // At most half full, so that lookups of addresses that are no sites end soon.
        if (used + sites.len()) * 2 > capacity {
            self.grow(sites.len());
        }
        if let Some(table) = self.current() {
            for site in sites.iter().filter(|site| self.find(site.address).is_none()) {
                table.insert(site.clone());
            }
        }
    }

    /// Forgets the sites of a range that was unmapped.
    ///
    /// # Safety
    /// One thread at a time may insert or remove.
    pub unsafe fn remove(&self, range: Range<usize>) {
        let slots = self.current().map_or(&[][..], |table| &table.slots);
        for slot in slots
            .iter()
            .filter(|slot| range.contains(&slot.address.load(Ordering::Relaxed)))
        {
            slot.address.store(REMOVED, Ordering::Release);
        }
    }

    fn grow(&self, more: usize) {
        let live = || self.current().into_iter().flat_map(Table::sites);
        let capacity = ((live().count() + more) * 4).next_power_of_two().max(SMALLEST);
        let empty = || Slot {
            address: AtomicUsize::new(EMPTY),
            site: UnsafeCell::new(None),
        };
        let slots = std::iter::repeat_with(empty).take(capacity).collect();
        let table = Box::leak(Box::new(Table {
            slots,
            used: AtomicUsize::new(0),
        }));
        for site in live() {
            table.insert(site.clone());
        }
        self.table.store(table, Ordering::Release);
    }

    fn current(&self) -> Option<&Table> {
        // SAFETY: null or a leaked table.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }
}

impl Default for SiteTable {
    fn default() -> Self {
        SiteTable::new()
    }
}

impl Table {
    fn index(&self, address: usize) -> usize {
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    fn insert(&self, site: Site) {
        let address = site.address;
        let mut index = self.index(address);
        while self.slots[index].address.load(Ordering::Relaxed) != EMPTY {
            index = (index + 1) & (self.slots.len() - 1);
        }
        // SAFETY: the slot is empty, so no reader looks at its site, and there is one writer.
        unsafe { *self.slots[index].site.get() = Some(site) };
        self.slots[index].address.store(address, Ordering::Release);
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    fn sites(&self) -> impl Iterator<Item = &Site> {
        let live = self
            .slots
            .iter()
            .filter(|slot| slot.address.load(Ordering::Relaxed) > REMOVED);
        // SAFETY: published and not written again.
        live.filter_map(|slot| unsafe { (*slot.site.get()).as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::SiteKind;
    use std::sync::atomic::AtomicBool;

    fn site(address: usize) -> Site {
        Site {
            address,
            kind: SiteKind::Sfence,
            length: 3,
            original: [0; 15],
            copy: 0,
        }
    }

    #[test]
    fn sites_are_found_until_removed() {
        let table = SiteTable::new();
        assert!(table.find(0x1000).is_none());
        let sites: Vec<_> = (0..5000).map(|index| site(0x1000 + index * 7)).collect();
        // SAFETY: one thread.
        unsafe {
            table.insert(&sites[..10]);
            table.insert(&sites);
            table.remove(0x1000..0x2000);
        }
        for site in &sites {
            let found = table.find(site.address);
            assert_eq!(
                found.map(|found| found.address),
                (site.address >= 0x2000).then_some(site.address)
            );
            assert!(table.find(site.address + 1).is_none());
        }
        // SAFETY: one thread.
        unsafe { table.insert(&sites) };
        assert!(sites.iter().all(|site| table.find(site.address).is_some()));
    }

    #[test]
    fn readers_see_every_site_while_the_table_grows() {
        let table = SiteTable::new();
        // SAFETY: nobody else writes yet.
        unsafe { table.insert(&[site(0x42)]) };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(table.find(0x42).unwrap().address, 0x42);
                    assert!(table.find(0x43).is_none());
                }
            });
            for index in 0..20_000 {
                // SAFETY: the only writer.
                unsafe { table.insert(&[site(0x10_0000 + index * 16)]) };
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
