//! The narrow waist between the runtime inside the program under test and the recorder outside it.
//!
//! Both map one shared file (the *session*): a header with the options and the counters that all processes of the
//! program share, the line locks, and one ring of 64-byte slots. A producer reserves slots with one `fetch_add`; the
//! position it gets **is** the event's place in the total order, so whoever holds the locks of the lines touched while
//! it reserves gets its true place. The recorder drains the ring in order, so the trace is ordered when it is written,
//! and what was committed survives the program's death, `SIGKILL` included.
//!
//! Architecture invariant: no allocation, no system call, no knowledge of the trace format. Whoever changes a record
//! changes [`VERSION`].
#![warn(clippy::undocumented_unsafe_blocks)]
#![no_std]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub mod hooks;
pub mod labels;
pub mod record;
pub mod recovery;

pub const MAGIC: u64 = u64::from_le_bytes(*b"CRSHPRF\0");
pub const VERSION: u32 = 7;
/// Names the session file in the environment of the program under test.
pub const SESSION_ENV: &str = "CRASHPROOF_SESSION";

/// Names a file that stands for memory which the program registered as persistent; a number follows.
pub const REGISTERED_MEMORY: &str = "registered memory ";

/// A sanitizer that keeps notes for each address in a layout of its own, which leaves no room for the views of PM.
pub struct SanitizerWithoutRoom {
    pub name: &'static str,
    /// The function that starts it: the name is among the dynamic symbols of an executable that imports or exports it.
    pub start: &'static str,
    /// Functions of libc that it replaces, and nothing else does so: an executable that defines all of them, in its dynamic symbols, has
    /// the sanitizer in it although the symbol `start` may not be among them (gcc's `-static-libtsan`). Empty: there is no such executable.
    pub replaces: &'static [&'static str],
    /// How the files of its library begin, where it has one.
    pub libraries: &'static [&'static str],
}

pub const SANITIZERS_WITHOUT_ROOM: [SanitizerWithoutRoom; 2] = [
    SanitizerWithoutRoom {
        name: "ThreadSanitizer",
        start: "__tsan_init",
        replaces: &["_setjmp", "__sigsetjmp", "__tls_get_addr"],
        libraries: &["libtsan.so", "libclang_rt.tsan"],
    },
    SanitizerWithoutRoom {
        name: "MemorySanitizer",
        start: "__msan_init",
        replaces: &[],
        libraries: &["libclang_rt.msan"],
    },
];

pub const SLOT: usize = 64;
/// Payload bytes in a slot; the rest is its header word.
pub const SLOT_PAYLOAD: usize = SLOT - 8;
pub const RING_SLOTS: u64 = 1 << 19;
/// No record is larger; larger data is cut into several records.
pub const MAX_PAYLOAD: usize = 8192;

pub const LINE_LOCKS: usize = 1 << 16;
pub const MAX_PROCESSES: usize = 4096;
pub const PATTERN_BYTES: usize = 64 << 10;

/// Header word of a slot: bits 0..8 kind, 8..32 payload bytes of the whole record, 32..64 lap + 1.
pub const CONTINUATION: u8 = 0xff;

pub const fn slot_header(kind: u8, payload: usize, position: u64) -> u64 {
    kind as u64 | (payload as u64) << 8 | ((position / RING_SLOTS + 1) & 0xffff_ffff) << 32
}

/// (kind, payload length) if the slot at `position` is committed in this lap.
pub const fn parse_slot_header(word: u64, position: u64) -> Option<(u8, usize)> {
    if word >> 32 == (position / RING_SLOTS + 1) & 0xffff_ffff {
        Some((word as u8, (word >> 8 & 0xff_ffff) as usize))
    } else {
        None
    }
}

pub const fn slots_for(payload: usize) -> u64 {
    if payload == 0 {
        1
    } else {
        payload.div_ceil(SLOT_PAYLOAD) as u64
    }
}

/// What the user asked of the recording; written by the recorder before the program starts.
#[repr(C)]
pub struct Options {
    /// Answer pmemcheck's client requests, so that PMDK announces transactions and its unflushed run-time fields.
    pub client_requests: u32,
    /// Put breakpoints on locked read-modify-writes too, so that those on volatile memory count as fences.
    pub locked_rmw: u32,
    /// Number of NUL-terminated glob patterns in `patterns`; 0 = every shared, writable file mapping is PM.
    pub pattern_count: u32,
    pub reserved: u32,
    pub patterns: [u8; PATTERN_BYTES],
}

/// A process that has the runtime, so that the recorder can tell a dead producer from a slow one.
#[repr(C)]
pub struct ProcessSlot {
    /// 0 = free.
    pub pid: AtomicU32,
    /// 1 = running, 2 = ended in order.
    pub state: AtomicU32,
    /// Its id in the records: an exec keeps the pid and starts a new process in this sense.
    pub process: AtomicU32,
}

#[repr(C, align(64))]
pub struct Padded<T>(pub T);

#[repr(C)]
pub struct Session {
    pub magic: u64,
    pub version: u32,
    pub recorder_pid: u32,
    /// When the recording began, in nanoseconds since 1970: a file that was born later was made by the program.
    pub started: u64,
    /// Slots reserved so far, by all producers.
    pub tail: Padded<AtomicU64>,
    /// Slots consumed so far, by the recorder. A producer may fill slot `p` once `p < head + RING_SLOTS`.
    pub head: Padded<AtomicU64>,
    /// Set by the recorder when it stops reading: producers then drop what they would log.
    pub closed: AtomicU32,
    pub next_thread: AtomicU32,
    pub next_process: AtomicU32,
    pub next_address_space: AtomicU32,
    pub next_file: AtomicU32,
    /// Spin lock of `files`.
    pub files_lock: AtomicU32,
    pub options: Options,
    pub processes: [ProcessSlot; MAX_PROCESSES],
    /// The PM files known so far, so that all processes give one file one id: index = id.
    pub files: [FileSlot; MAX_FILES],
    /// What `shm_open` opened, by any process; written under `files_lock`.
    pub shared_memory: [FileSlot; MAX_SHARED_MEMORY],
    /// How many there were.
    pub next_shared_memory: AtomicU32,
    pub locks: [AtomicU32; LINE_LOCKS],
    pub ring: [Slot; RING_SLOTS as usize],
}

pub const MAX_FILES: usize = 4096;
pub const MAX_SHARED_MEMORY: usize = 256;

#[repr(C)]
pub struct FileSlot {
    pub dev: AtomicU64,
    pub ino: AtomicU64,
    /// Time of birth: an inode number that is used again is another file.
    pub born: AtomicU64,
    /// Mappings of it in all processes; when the first comes back, its content is announced again.
    pub mappings: AtomicU32,
    /// As the log has it.
    pub size: AtomicU64,
}

#[repr(C, align(64))]
pub struct Slot {
    pub header: AtomicU64,
    pub payload: core::cell::UnsafeCell<[u8; SLOT_PAYLOAD]>,
}

/// The lock of a cache line. The 64 lines of a page have 64 locks in a row, so a page is locked in ascending order.
pub const fn lock_index(file: u32, line: u64) -> usize {
    let page = (line >> 6) ^ (file as u64).wrapping_mul(0x9e37_79b9);
    let group = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % (LINE_LOCKS / 64);
    group * 64 + (line & 63) as usize
}

impl Session {
    /// Writes one record: reserves its slots, waits for room by calling `wait` (which returns false to give up), fills
    /// them and commits. The position returned orders the record among all others. `None`: dropped, nobody is reading.
    ///
    /// The caller holds the line locks of what it logs, and has all signals blocked, so that nothing can interrupt it
    /// between reservation and commit.
    pub fn publish(&self, kind: u8, parts: &[&[u8]], mut wait: impl FnMut() -> bool) -> Option<u64> {
        if self.closed.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let payload: usize = parts.iter().map(|p| p.len()).sum();
        debug_assert!(payload <= MAX_PAYLOAD);
        let slots = slots_for(payload);
        let position = self.tail.0.fetch_add(slots, Ordering::AcqRel);
        while position + slots > self.head.0.load(Ordering::Acquire) + RING_SLOTS {
            if self.closed.load(Ordering::Relaxed) != 0 || !wait() {
                return None;
            }
        }
        let mut slot = position;
        let mut filled = 0;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if filled == SLOT_PAYLOAD {
                    slot += 1;
                    filled = 0;
                }
                let n = rest.len().min(SLOT_PAYLOAD - filled);
                let target = self.ring[(slot % RING_SLOTS) as usize].payload.get() as *mut u8;
                // SAFETY: the slots [position, position + slots) belong to this producer until they are committed, and
                // filled + n <= SLOT_PAYLOAD.
                unsafe { core::ptr::copy_nonoverlapping(rest.as_ptr(), target.add(filled), n) };
                filled += n;
                rest = &rest[n..];
            }
        }
        for p in position + 1..position + slots {
            self.ring[(p % RING_SLOTS) as usize]
                .header
                .store(slot_header(CONTINUATION, 0, p), Ordering::Release);
        }
        self.ring[(position % RING_SLOTS) as usize]
            .header
            .store(slot_header(kind, payload, position), Ordering::Release);
        Some(position)
    }
}

impl Session {
    /// As [`Session::publish`], for a record of one slot. `head` is what this producer last saw of [`Session::head`], which it
    /// reads again only when that is not enough: the recorder writes it all the time.
    #[inline]
    pub fn publish_slot(
        &self,
        kind: u8,
        payload: &[u64; SLOT_PAYLOAD / 8],
        length: usize,
        head: &mut u64,
        mut wait: impl FnMut() -> bool,
    ) -> Option<u64> {
        if self.closed.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let position = self.tail.0.fetch_add(1, Ordering::AcqRel);
        while position + 1 > *head + RING_SLOTS {
            *head = self.head.0.load(Ordering::Acquire);
            if position + 1 > *head + RING_SLOTS && (self.closed.load(Ordering::Relaxed) != 0 || !wait()) {
                return None;
            }
        }
        let slot = &self.ring[(position % RING_SLOTS) as usize];
        // SAFETY: the slot belongs to this producer until it is committed; the payload is as long as it, at any alignment.
        unsafe { (slot.payload.get() as *mut [u64; SLOT_PAYLOAD / 8]).write_unaligned(*payload) };
        slot.header
            .store(slot_header(kind, length, position), Ordering::Release);
        Some(position)
    }
}

// SAFETY: a slot's payload is written only by the producer that reserved it and read only after its header is committed.
unsafe impl Sync for Slot {}
