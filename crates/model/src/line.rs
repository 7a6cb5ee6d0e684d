//! The state machine of one cache line, or of a unit of another size (Agamotto §4.1 gives a line dirty, pending and clean; this is the exact form).
//!
//! The line knows the stores that are not guaranteed persistent, in execution order, and for each thread how many of the
//! cached ones it has flushed and not yet fenced. What is guaranteed persistent is dropped: the floor is always the
//! front. A fence raises it to what its thread had pending, `clflush` at once.
//!
//! Deviation from Agamotto: pending is kept per thread, because a fence only waits for the flushes of its own thread, and
//! a non-temporal store is not a store and a flush: it says nothing of the plain stores before it.

use std::hash::Hash;

use crate::{ByteSet, Bytes, Model};

/// A thread, as the caller numbers them (densely: [`crate::Memory`] indexes by it).
pub type Thread = u32;

/// What a caller keeps with each store. All methods have a do-nothing default.
pub trait Tag<B = Bytes>: Clone + Eq + Hash {
    /// What it keeps with each flush and fence.
    type Site: Copy + Eq + Hash;

    /// The first fence of the store's thread after it passed and left it unflushed. Called again, with a later fence, only
    /// if the thread touched the line in between.
    fn left_behind(&mut self, _fence: Self::Site) {}

    /// This store overwrote `bytes` of an older one that is not persistent yet; `flushed` if some thread has that pending.
    fn overwrote(&mut self, _older: &Self, _bytes: &B, _flushed: bool) {}

    /// Whether `next`, by the same thread and of the same kind with nothing in between, can be kept as one store with this
    /// one; then it has been taken in.
    fn merge(&mut self, _next: &Self) -> bool {
        false
    }

    /// The store has stayed for long: forget what would make it differ from others like it.
    fn settle(&mut self) {}
}

impl<B> Tag<B> for () {
    type Site = ();
}

impl<B> Tag<B> for u32 {
    type Site = u32;
}

/// How much of the past a line keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Every store that is not persistent: what crash states need.
    All,
    /// For each byte the last store only, so a line never holds more than 64 stores.
    Last,
}

/// A store to a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store<T, B = Bytes> {
    /// What of it counts still: bytes that a later store overwrote for good are taken out.
    pub bytes: B,
    /// The thread that stores.
    pub thread: Thread,
    /// It passes the cache by.
    pub nontemporal: bool,
    /// What the caller knows it by.
    pub tag: T,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush<S> {
    /// It covers a store that its thread had not flushed.
    Useful,
    /// Its thread flushed all of it before, at the site given, and has not fenced since.
    AlreadyPending(S),
    /// There was nothing to flush: no cached store, or all of them persistent.
    Clean,
    /// There was nothing to flush, but threads share the line: one has overwritten or flushed what another had stored,
    /// so whoever flushes its own store could not know. Only [`crate::Memory`] knows.
    Covered,
    /// There was never a store to the line. Only [`crate::Memory`] knows.
    Unmodified,
}

/// What a line needs to be persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// A flush and a fence: some cached store has not been flushed.
    Flush,
    /// A fence of each thread that flushed it or stored to it non-temporally.
    Fence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flushed<S> {
    thread: Thread,
    /// The cached stores among the first `upto` stores are pending.
    upto: usize,
    site: S,
}

/// The stores to a cache line that are not guaranteed persistent, and where they were flushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line<T: Tag<B>, B: ByteSet = Bytes> {
    stores: Vec<Store<T, B>>,
    flushed: Vec<Flushed<T::Site>>,
    /// Syncs that are under way: of which thread, and that the first so many stores were made before it began. The box keeps the line
    /// small: nearly always there are none.
    #[allow(clippy::box_collection)]
    syncs: Option<Box<Vec<(Thread, usize)>>>,
    /// A store was overwritten or flushed by another thread than its own.
    shared: bool,
}

impl<T: Tag<B>, B: ByteSet> Default for Line<T, B> {
    fn default() -> Self {
        Line {
            stores: Vec::new(),
            flushed: Vec::new(),
            syncs: None,
            shared: false,
        }
    }
}

impl<T: Tag<B>, B: ByteSet> Line<T, B> {
    /// The stores that are not guaranteed persistent, in execution order.
    pub fn stores(&self) -> &[Store<T, B>] {
        &self.stores
    }

    /// Whether all that was stored is persistent.
    pub fn is_clean(&self) -> bool {
        self.stores.is_empty()
    }

    /// Where the store at `index` was flushed, if some thread has it pending.
    pub fn flushed_at(&self, index: usize) -> Option<T::Site> {
        if self.stores[index].nontemporal {
            return None;
        }
        self.flushed.iter().find(|f| index < f.upto).map(|f| f.site)
    }

    /// The cached stores before this index are pending for some thread.
    fn flushed_upto(&self) -> usize {
        self.flushed.iter().map(|f| f.upto).max().unwrap_or(0)
    }

    /// What the line still needs to be persistent; `None` if it is.
    pub fn awaits(&self) -> Option<Awaits> {
        // A flush covers all before it, so the last cached store is the one that may lack it.
        let last = self.stores.iter().rposition(|store| !store.nontemporal);
        match last {
            Some(last) if self.flushed_at(last).is_none() => Some(Awaits::Flush),
            _ if self.is_clean() => None,
            _ => Some(Awaits::Fence),
        }
    }

    /// A store to the line.
    pub fn store(&mut self, model: Model, keep: Keep, mut store: Store<T, B>) {
        let persistent = model == Model::Eadr && !store.nontemporal;
        if keep == Keep::Last || persistent {
            let mut emptied = false;
            let flushed = self.flushed_upto();
            for (index, older) in self.stores.iter_mut().enumerate() {
                if older.bytes.intersects(&store.bytes) {
                    self.shared |= older.thread != store.thread;
                    let overwritten = older.bytes.intersection(&store.bytes);
                    store
                        .tag
                        .overwrote(&older.tag, &overwritten, index < flushed && !older.nontemporal);
                    older.bytes = older.bytes.without(&store.bytes);
                    emptied |= older.bytes.is_empty();
                }
            }
            if emptied {
                self.drop_empty();
            }
        }
        if persistent {
            return;
        }
        let len = self.stores.len();
        if keep == Keep::Last
            && (self.syncs.is_none() || self.syncs().iter().all(|&(_, upto)| upto < len))
            && let Some(last) = self.stores.last_mut()
            && last.thread == store.thread
            && last.nontemporal == store.nontemporal
            && self.flushed.iter().all(|f| f.upto < len)
            && last.tag.merge(&store.tag)
        {
            last.bytes = last.bytes.union(&store.bytes);
            return;
        }
        self.stores.push(store);
    }

    /// `clwb` or `clflushopt`: what the line holds is pending for `thread`.
    pub fn flush(&mut self, thread: Thread, site: T::Site) -> Flush<T::Site> {
        let Some(last) = self.stores.iter().rposition(|s| !s.nontemporal) else {
            return Flush::Clean;
        };
        let upto = last + 1;
        self.shared |= self.stores.iter().any(|s| !s.nontemporal && s.thread != thread);
        match self.flushed.iter_mut().find(|f| f.thread == thread) {
            Some(f) if f.upto >= upto => Flush::AlreadyPending(f.site),
            Some(f) => {
                *f = Flushed { thread, upto, site };
                Flush::Useful
            }
            None => {
                self.flushed.push(Flushed { thread, upto, site });
                Flush::Useful
            }
        }
    }

    /// `clflush`: like [`Line::flush`], and persistent at once.
    pub fn flush_now(&mut self, thread: Thread, site: T::Site) -> Flush<T::Site> {
        self.flush_now_with(thread, site, |_| {})
    }

    /// As [`Line::flush_now`], and shows the stores that became persistent, newest first, each with those of its bytes that
    /// no newer persistent store overwrote.
    pub fn flush_now_with(
        &mut self,
        thread: Thread,
        site: T::Site,
        persisted: impl FnMut(&Store<T, B>),
    ) -> Flush<T::Site> {
        let outcome = self.flush(thread, site);
        if !matches!(outcome, Flush::Clean) {
            self.persist(|_, store| !store.nontemporal, persisted);
        }
        outcome
    }

    /// Whether a fence of `thread` would persist anything.
    pub fn awaits_fence(&self, thread: Thread) -> bool {
        self.flushed.iter().any(|f| f.thread == thread)
            || self.stores.iter().any(|s| s.nontemporal && s.thread == thread)
    }

    /// Whether [`Line::flush_now`] would persist anything.
    pub fn awaits_flush(&self) -> bool {
        self.stores.iter().any(|s| !s.nontemporal)
    }

    /// `sfence`, `mfence` or a locked read-modify-write of `thread`: persists what it flushed and its non-temporal stores.
    /// Whether that was anything.
    pub fn fence(&mut self, thread: Thread) -> bool {
        self.fence_with(thread, |_| {})
    }

    /// As [`Line::fence`], and shows the stores that became persistent, newest first, each with those of its bytes that no
    /// newer persistent store overwrote.
    pub fn fence_with(&mut self, thread: Thread, persisted: impl FnMut(&Store<T, B>)) -> bool {
        let upto = match self.flushed.iter().position(|f| f.thread == thread) {
            Some(position) => self.flushed.swap_remove(position).upto,
            None => 0,
        };
        let persistent = |index, store: &Store<T, B>| {
            if store.nontemporal {
                store.thread == thread
            } else {
                index < upto
            }
        };
        self.persist(persistent, persisted)
    }

    /// After a fence of `thread`: tells its stores that stay unflushed.
    pub(crate) fn leave_behind(&mut self, thread: Thread, fence: T::Site) {
        let flushed = self.flushed_upto();
        for store in self.stores.iter_mut().skip(flushed).filter(|s| s.thread == thread) {
            store.tag.left_behind(fence);
        }
    }

    /// Whether, since last asked, a store was overwritten or flushed by another thread than its own.
    pub(crate) fn take_shared(&mut self) -> bool {
        std::mem::take(&mut self.shared)
    }

    /// The stores have stayed for long.
    pub(crate) fn settle_tags(&mut self) {
        self.stores.iter_mut().for_each(|store| store.tag.settle());
    }

    /// The thread begins msync or the like, or has begun since which the line was not stored to: what is stored from now on is not the
    /// sync's. Whether that is new.
    pub fn begin_sync(&mut self, thread: Thread) -> bool {
        let is_new = self.syncs().iter().all(|&(of, _)| of != thread);
        if is_new {
            let upto = self.stores.len();
            self.syncs.get_or_insert_default().push((thread, upto));
        }
        is_new
    }

    /// The thread's sync is over.
    pub fn end_sync(&mut self, thread: Thread) {
        if let Some(syncs) = &mut self.syncs {
            syncs.retain(|&(of, _)| of != thread);
            if syncs.is_empty() {
                self.syncs = None;
            }
        }
    }

    /// What the thread's sync guarantees: these bytes of the stores that were made before it began are persistent, of all stores if it began
    /// just now. Shows them, oldest first. Whether there were any.
    pub fn sync(&mut self, thread: Thread, bytes: &B, mut persisted: impl FnMut(&Store<T, B>)) -> bool {
        let upto = self.before_sync(thread);
        let mut any = false;
        for store in self.stores[..upto]
            .iter_mut()
            .filter(|store| store.bytes.intersects(bytes))
        {
            let left = store.bytes.without(bytes);
            store.bytes = store.bytes.intersection(bytes);
            persisted(store);
            store.bytes = left;
            any = true;
        }
        if any {
            self.drop_empty();
        }
        any
    }

    /// How many stores were made before the thread's sync began.
    pub fn before_sync(&self, thread: Thread) -> usize {
        let sync = self.syncs().iter().find(|&&(of, _)| of == thread);
        sync.map_or(self.stores.len(), |&(_, upto)| upto)
    }

    fn syncs(&self) -> &[(Thread, usize)] {
        self.syncs.as_deref().map_or(&[], Vec::as_slice)
    }

    /// It is clean, and is to be another line.
    #[inline]
    pub(crate) fn forget_syncs(&mut self) {
        if self.syncs.is_some() {
            self.syncs = None;
        }
    }

    /// Nothing was ever stored.
    pub(crate) fn clear(&mut self) {
        self.stores.clear();
        self.flushed.clear();
        self.syncs = None;
    }

    /// These bytes need no persistence: as if they had never been stored to.
    pub fn set_clean(&mut self, bytes: &B) {
        for store in &mut self.stores {
            store.bytes = store.bytes.without(bytes);
        }
        self.drop_empty();
    }

    /// Drops what is persistent now. An older store that stays loses the bytes that a newer persistent one overwrote:
    /// whether it persists or not, they hold the newer value.
    fn persist(
        &mut self,
        persistent: impl Fn(usize, &Store<T, B>) -> bool,
        mut persisted: impl FnMut(&Store<T, B>),
    ) -> bool {
        let mut overwritten = B::default();
        let mut any = false;
        for (index, store) in self.stores.iter_mut().enumerate().rev() {
            let bytes = store.bytes.without(&overwritten);
            if persistent(index, store) {
                overwritten = overwritten.union(&store.bytes);
                store.bytes = bytes;
                persisted(store);
                store.bytes = B::default();
                any = true;
            } else {
                store.bytes = bytes;
            }
        }
        if any {
            self.drop_empty();
        }
        any
    }

    fn drop_empty(&mut self) {
        for f in &mut self.flushed {
            f.upto = self.stores[..f.upto]
                .iter()
                .filter(|store| !store.bytes.is_empty())
                .count();
        }
        self.flushed.retain(|f| f.upto > 0);
        if let Some(syncs) = &mut self.syncs {
            for (_, upto) in syncs.iter_mut() {
                let before = self.stores[..*upto].iter();
                *upto = before.filter(|store| !store.bytes.is_empty()).count();
            }
        }
        self.stores.retain(|store| !store.bytes.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(start: u64, len: u64, thread: Thread, tag: u32) -> Store<u32> {
        Store {
            bytes: Bytes::range(start, len),
            thread,
            nontemporal: false,
            tag,
        }
    }

    fn nt(start: u64, len: u64, thread: Thread, tag: u32) -> Store<u32> {
        Store {
            nontemporal: true,
            ..store(start, len, thread, tag)
        }
    }

    fn line(stores: &[Store<u32>]) -> Line<u32> {
        let mut line = Line::default();
        for s in stores {
            line.store(Model::Px86, Keep::All, s.clone());
        }
        line
    }

    fn tags(line: &Line<u32>) -> Vec<u32> {
        line.stores().iter().map(|s| s.tag).collect()
    }

    #[test]
    fn a_flush_covers_what_the_line_holds() {
        let mut l = line(&[store(0, 8, 0, 1)]);
        assert_eq!(l.flush(0, 10), Flush::Useful);
        l.store(Model::Px86, Keep::All, store(8, 8, 0, 2));
        assert!(l.fence(0));
        assert_eq!(tags(&l), [2]);
        assert!(!l.fence(0));
    }

    #[test]
    fn a_flush_again() {
        let mut l = line(&[store(0, 8, 0, 1)]);
        assert_eq!(l.flush(0, 10), Flush::Useful);
        assert_eq!(l.flush(0, 11), Flush::AlreadyPending(10));
        assert_eq!(l.flush(1, 12), Flush::Useful);
        assert!(l.fence(1));
        assert_eq!(l.flush(0, 13), Flush::Clean);
    }

    #[test]
    fn only_the_flushing_thread_fences() {
        let mut l = line(&[store(0, 8, 0, 1)]);
        l.flush(0, 10);
        assert!(!l.fence(1));
        assert_eq!(l.flushed_at(0), Some(10));
        assert!(l.fence(0));
        assert!(l.is_clean());
    }

    #[test]
    fn clflush_is_immediate() {
        let mut l = line(&[store(0, 8, 0, 1), nt(16, 8, 0, 2)]);
        assert_eq!(l.flush_now(1, 10), Flush::Useful);
        assert_eq!(tags(&l), [2]);
        assert_eq!(l.flush_now(1, 10), Flush::Clean);
    }

    #[test]
    fn a_fence_persists_the_nontemporal_store_and_not_the_plain_one_before_it() {
        let mut l = line(&[store(0, 8, 0, 1), nt(4, 8, 0, 2)]);
        assert!(l.fence(0));
        assert_eq!(tags(&l), [1]);
        assert_eq!(l.stores()[0].bytes, Bytes::range(0, 4));
    }

    #[test]
    fn what_becomes_persistent_is_shown_once() {
        let mut l = line(&[store(0, 8, 0, 1), store(4, 8, 0, 2), nt(0, 2, 1, 3)]);
        assert!(l.awaits_flush() && !l.awaits_fence(0) && l.awaits_fence(1));
        l.flush(0, 10);
        assert!(l.awaits_fence(0));
        let mut shown = Vec::new();
        assert!(l.fence_with(0, |s| shown.push((s.tag, s.bytes))));
        assert_eq!(shown, [(2, Bytes::range(4, 8)), (1, Bytes::range(0, 4))]);
        assert!(!l.awaits_flush() && !l.awaits_fence(0));
        l.store(Model::Px86, Keep::All, store(0, 4, 0, 4));
        shown.clear();
        l.flush_now_with(0, 11, |s| shown.push((s.tag, s.bytes)));
        assert_eq!(shown, [(4, Bytes::range(0, 4))]);
        assert!(l.is_clean(), "the non-temporal store is overwritten for good");
    }

    #[test]
    fn keep_last_drops_what_is_overwritten() {
        let mut l = Line::default();
        for tag in 0..1000 {
            l.store(Model::Px86, Keep::Last, store(0, 8, 0, tag));
        }
        assert_eq!(tags(&l), [999]);
        l.flush(0, 1);
        l.store(Model::Px86, Keep::Last, store(4, 8, 0, 1000));
        assert_eq!(tags(&l), [999, 1000]);
        assert!(l.fence(0));
        assert_eq!(tags(&l), [1000]);
    }

    #[test]
    fn eadr_needs_a_fence_for_nontemporal_stores_only() {
        let mut l = Line::default();
        l.store(Model::Eadr, Keep::All, store(0, 8, 0, 1));
        assert!(l.is_clean());
        l.store(Model::Eadr, Keep::All, nt(0, 8, 0, 2));
        assert_eq!(l.flush(0, 1), Flush::Clean);
        assert_eq!(tags(&l), [2]);
        assert!(l.fence(0));
        assert!(l.is_clean());
    }

    #[test]
    fn clean_bytes_are_forgotten() {
        let mut l = line(&[store(0, 16, 0, 1), store(32, 8, 0, 2)]);
        l.flush(0, 1);
        l.set_clean(&Bytes::range(0, 8));
        assert_eq!(l.stores()[0].bytes, Bytes::range(8, 8));
        l.set_clean(&Bytes::range(8, 8));
        assert_eq!(tags(&l), [2]);
        assert_eq!(l.flush(0, 2), Flush::AlreadyPending(1));
        assert!(l.sync(0, &Bytes::ALL, |_| {}) && l.is_clean());
    }

    #[test]
    fn a_sync_persists_what_was_stored_before_it_began() {
        // Where only the last store of a byte is kept, nothing is left of the first.
        for (keep, synced) in [(Keep::All, vec![1, 2]), (Keep::Last, vec![2])] {
            let mut l = line(&[store(0, 16, 0, 1), nt(32, 8, 0, 2)]);
            assert!(l.begin_sync(1) && !l.begin_sync(1));
            l.store(Model::Px86, keep, store(0, 8, 0, 3));
            l.flush(0, 10);
            l.begin_sync(2);
            l.store(Model::Px86, keep, store(8, 8, 0, 4));
            let mut shown = Vec::new();
            assert!(l.sync(1, &Bytes::ALL, |s| shown.push(s.tag)));
            assert_eq!((shown, tags(&l)), (synced, vec![3, 4]));
            assert!(!l.sync(1, &Bytes::ALL, |_| {}));
            l.end_sync(1);
            assert!(l.sync(2, &Bytes::range(0, 4), |_| {}));
            assert_eq!((l.stores()[0].bytes, l.stores()[0].tag), (Bytes::range(4, 4), 3));
            assert!(l.fence(0) && l.sync(1, &Bytes::ALL, |_| {}) && l.is_clean());
        }
    }
}
