//! Which syncs are under way, so that what other threads store meanwhile is not theirs.
//!
//! A sync guarantees what was stored before it began. Its event is where it ended, and the trace says at another thread's event that it
//! began just before (older traces do not: there a sync guarantees what was stored before its event).
//!
//! Deviations. An msync over several mappings is several events; those that come after another thread's event guarantee all that was stored
//! before them. So does a sync that takes more than its share of [`LONGEST`] events, because a thread may also have been killed in
//! one, one that begins while [`MOST`] others go on, and one during which a signal handler of its own thread stores.

use crashproof_model::Thread;
use crashproof_trace::{Event, EventKind, ThreadId};

/// Events that a sync is waited for; all that are under way share them, since each store costs something for each of them.
const LONGEST: u64 = 1 << 20;
/// Syncs that are followed at once.
const MOST: usize = 64;

/// What the event tells of the thread's sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncChange {
    /// It begins before the event.
    Begins(Thread),
    /// It is over: the event's steps have nothing to do with it.
    Ends(Thread),
}

/// The syncs that are under way.
#[derive(Default)]
pub struct Underway(Vec<UnderwaySync>);

struct UnderwaySync {
    thread: Thread,
    /// The event before which it began.
    since: u64,
    /// Its event came.
    synced: bool,
}

impl Underway {
    /// Before the steps of each event: shows what changes.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, change: impl FnMut(SyncChange)) {
        if !self.0.is_empty() || !event.begins().is_empty() {
            self.changes(event, change);
        }
    }

    fn changes(&mut self, event: &Event<'_>, mut change: impl FnMut(SyncChange)) {
        let own = (!event.kind.is_of_no_thread()).then_some(event.thread.0);
        let longest = LONGEST / (self.0.len() as u64).max(1);
        self.0.retain(|sync| {
            let goes_on = match Some(sync.thread) == own {
                true => event.begun() < event.seq,
                // It may have failed, and the thread has begun another.
                false => !sync.synced && event.begins().binary_search(&ThreadId(sync.thread)).is_err(),
            };
            let goes_on = goes_on && event.seq - sync.since <= longest;
            if !goes_on {
                change(SyncChange::Ends(sync.thread));
            }
            goes_on
        });
        let room = MOST - self.0.len();
        for &ThreadId(thread) in event.begins().iter().take(room) {
            self.0.push(UnderwaySync {
                thread,
                since: event.seq,
                synced: false,
            });
            change(SyncChange::Begins(thread));
        }
        if let EventKind::Sync { .. } = event.kind
            && let Some(sync) = self.0.iter_mut().find(|sync| Some(sync.thread) == own)
        {
            sync.synced = true;
        }
    }
}
