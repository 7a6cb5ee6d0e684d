//! The consumer's side of the ring: committed records in order, and the holes that dead producers leave.

use std::sync::atomic::Ordering;

use crashproof_wire as wire;
use wire::{CONTINUATION, MAX_PAYLOAD, RING_SLOTS, SLOT_PAYLOAD, Session};

/// `head` is shared with every producer; it is advanced once for this many slots.
const HEAD_BATCH: u64 = 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// Its position, kind and payload.
    Record(u64, u8, &'a [u8]),
    /// Everything reserved was consumed.
    Empty,
    /// The next slot is reserved and not committed: its producer is at work, or dead.
    Uncommitted,
}

/// Reads the ring in order. There is one consumer of a session.
pub(crate) struct Consumer<'s> {
    session: &'s Session,
    position: u64,
    /// What `head` says; at most `position`.
    published: u64,
    /// A record of several slots, put together.
    assembled: Vec<u8>,
    /// Slots of the record that was handed out last.
    handed_out: u64,
}

impl<'s> Consumer<'s> {
    pub(crate) fn new(session: &'s Session) -> Consumer<'s> {
        let head = session.head.0.load(Ordering::Acquire);
        Consumer {
            session,
            position: head,
            published: head,
            assembled: Vec::with_capacity(MAX_PAYLOAD),
            handed_out: 0,
        }
    }

    /// The next record. Its slots stay the consumer's until the next call.
    pub(crate) fn next(&mut self) -> Next<'_> {
        self.position += std::mem::take(&mut self.handed_out);
        if self.position - self.published >= HEAD_BATCH {
            self.release();
        }
        let Some((kind, payload)) = self.committed(self.position) else {
            self.release();
            let reserved = self.session.tail.0.load(Ordering::Acquire);
            return if reserved > self.position {
                Next::Uncommitted
            } else {
                Next::Empty
            };
        };
        let slots = wire::slots_for(payload);
        self.handed_out = slots;
        if slots == 1 {
            return Next::Record(self.position, kind, &slot(self.session, self.position)[..payload]);
        }
        self.assembled.clear();
        for p in self.position..self.position + slots {
            let n = (payload - self.assembled.len()).min(SLOT_PAYLOAD);
            self.assembled.extend_from_slice(&slot(self.session, p)[..n]);
        }
        Next::Record(self.position, kind, &self.assembled)
    }

    /// Slots that await the consumer.
    pub(crate) fn pending(&self) -> u64 {
        let reserved = self.session.tail.0.load(Ordering::Acquire);
        reserved.saturating_sub(self.position())
    }

    pub(crate) fn position(&self) -> u64 {
        self.position + self.handed_out
    }

    /// Where the hole that starts at the next slot ends: at the next record that is committed, or where the last
    /// producer reserved. A record that is waiting for room in the ring is not in the hole.
    pub(crate) fn hole_end(&self) -> u64 {
        let start = self.position();
        let waiting_for_room = start + RING_SLOTS - wire::slots_for(MAX_PAYLOAD);
        let end = self.session.tail.0.load(Ordering::Acquire).min(waiting_for_room);
        (start..end).find(|&p| self.committed(p).is_some()).unwrap_or(end)
    }

    /// Gives up the slots before `position`, which nobody will ever commit.
    pub(crate) fn skip_to(&mut self, position: u64) {
        debug_assert!(position >= self.position());
        self.handed_out = 0;
        self.position = position;
        self.release();
    }

    /// Tells the producers that the slots consumed so far are free.
    fn release(&mut self) {
        if self.published != self.position {
            self.session.head.0.store(self.position, Ordering::Release);
            self.published = self.position;
        }
    }

    /// (kind, payload length) if a record that starts at `position` is committed.
    fn committed(&self, position: u64) -> Option<(u8, usize)> {
        let word = self.session.ring[(position % RING_SLOTS) as usize]
            .header
            .load(Ordering::Acquire);
        // A length that no producer writes comes from memory that the program under test overwrote.
        wire::parse_slot_header(word, position)
            .filter(|&(kind, payload)| kind != CONTINUATION && payload <= MAX_PAYLOAD)
    }
}

fn slot(session: &Session, position: u64) -> &[u8; SLOT_PAYLOAD] {
    // SAFETY: the slot belongs to a committed record, which its producer does not touch any more, and it is not given
    // back through `head` before the reference is gone.
    unsafe { &*session.ring[(position % RING_SLOTS) as usize].payload.get() }
}
