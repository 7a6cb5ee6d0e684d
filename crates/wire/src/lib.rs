//! The narrow waist between the runtime inside the program under test and the recorder outside it.
//!
//! Both map one shared file (the *session*): a header with the options and the counters that all processes of
//! the program share, the line locks, and one ring of 64-byte slots. A producer reserves slots with one
//! `fetch_add`, and the position that it gets **is** the event's place in the total order. A producer that
//! holds the locks of the touched lines while it reserves therefore gets its true place. The recorder drains
//! the ring in order, so the trace is ordered when it is written, and committed records survive the end of
//! the program, also by `SIGKILL`.
//!
//! Architecture invariant: no allocation, no system call, no knowledge of the trace format. A change of a
//! record changes [`VERSION`] too.
#![warn(clippy::undocumented_unsafe_blocks)]
#![warn(missing_docs)]
#![no_std]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub mod hooks;
pub mod labels;
pub mod record;
pub mod recovery;

/// First word of a session file, by which the runtime recognises it ([`Session::magic`]).
pub const MAGIC: u64 = u64::from_le_bytes(*b"CRSHPRF\0");
/// Version of the session's layout and of the records. A runtime records only into a session of its own
/// version.
pub const VERSION: u32 = 7;
/// Environment variable of the program under test that holds the path of the session file.
pub const SESSION_ENV: &str = "CRASHPROOF_SESSION";

/// Beginning of the path of a file that stands for memory which the program registered as persistent. The
/// file's id plus 1 follows.
pub const REGISTERED_MEMORY: &str = "registered memory ";

/// A sanitizer whose layout of the address space leaves no room for the views of PM.
pub struct SanitizerWithoutRoom {
    /// Name of the sanitizer in messages.
    pub name: &'static str,
    /// Name of the function that starts the sanitizer. An executable that imports or exports the function has
    /// the name among its dynamic symbols.
    pub start: &'static str,
    /// Functions of libc that this sanitizer replaces and no other software does. An executable whose dynamic
    /// symbols define all of them contains the sanitizer, although `start` may not be among its symbols
    /// (gcc's `-static-libtsan`). The list is empty if no executable can be recognised in this way.
    pub replaces: &'static [&'static str],
    /// Beginnings of the file names of its shared library, if it has one.
    pub libraries: &'static [&'static str],
}

/// All sanitizers under which a program cannot be recorded.
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

/// Bytes in a slot of the ring.
pub const SLOT: usize = 64;
/// Payload bytes in a slot. The first 8 bytes of a slot are its header word.
pub const SLOT_PAYLOAD: usize = SLOT - 8;
/// Slots in the ring. Position `p` is in slot `p % RING_SLOTS`.
pub const RING_SLOTS: u64 = 1 << 19;
/// Largest payload of a record, in bytes. Producers cut larger data into several records.
pub const MAX_PAYLOAD: usize = 8192;

/// Number of line locks. Lines share locks ([`lock_index`]).
pub(crate) const LINE_LOCKS: usize = 1 << 16;
/// Processes that a session has room for.
pub(crate) const MAX_PROCESSES: usize = 4096;
/// Bytes that [`Options::patterns`] has room for.
pub const PATTERN_BYTES: usize = 64 << 10;

/// Kind in the header word of a slot that continues the record of the slot before it.
pub const CONTINUATION: u8 = 0xff;

/// The header word of the slot at `position`: bits 0..8 are the kind, bits 8..32 the payload bytes of the
/// whole record, and bits 32..64 the lap (how often the ring was filled before) plus 1. A slot of a new
/// session, which is zero, is therefore committed in no lap.
pub const fn slot_header(kind: u8, payload: usize, position: u64) -> u64 {
    kind as u64 | (payload as u64) << 8 | ((position / RING_SLOTS + 1) & 0xffff_ffff) << 32
}

/// The kind and the payload length in bytes of the slot at `position`; `None` if the slot is not committed in
/// this lap.
pub const fn parse_slot_header(word: u64, position: u64) -> Option<(u8, usize)> {
    if word >> 32 == (position / RING_SLOTS + 1) & 0xffff_ffff {
        Some((word as u8, (word >> 8 & 0xff_ffff) as usize))
    } else {
        None
    }
}

/// Slots of a record with this many bytes of payload. A record without payload takes one slot.
pub const fn slots_for(payload: usize) -> u64 {
    if payload == 0 {
        1
    } else {
        payload.div_ceil(SLOT_PAYLOAD) as u64
    }
}

/// The user's options for the recording. The recorder writes them before the program starts.
#[repr(C)]
pub struct Options {
    /// 1: the runtime answers pmemcheck's client requests, so that PMDK announces its transactions and the
    /// run-time fields that it does not flush; else 0.
    pub client_requests: u32,
    /// 1: locked read-modify-writes have breakpoints too, so that those on volatile memory are recorded as
    /// fences; else 0.
    pub locked_rmw: u32,
    /// Number of patterns in `patterns`. With 0, every shared, writable file mapping is PM.
    pub pattern_count: u32,
    /// Padding, always 0.
    pub reserved: u32,
    /// Glob patterns of the files that are PM, each ended by a NUL.
    pub patterns: [u8; PATTERN_BYTES],
}

/// A process that has the runtime. The recorder uses these slots to distinguish a dead producer from a slow
/// one.
#[repr(C)]
pub struct ProcessSlot {
    /// Process id of the operating system; 0 if the slot is free.
    pub pid: AtomicU32,
    /// 1: the process runs; 2: it has logged its end.
    pub state: AtomicU32,
    /// Id of the process in the records. An exec keeps the pid and gets a new id.
    pub process: AtomicU32,
}

/// A value that shares its cache line with no other value.
#[repr(C, align(64))]
pub struct Padded<T>(pub T);

/// The shared file, from its first byte to its last. The recorder creates it and fills in the first fields
/// and the options before the program starts; everything that changes later is atomic.
#[repr(C)]
pub struct Session {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`] of the recorder.
    pub version: u32,
    /// Process id of the recorder, by which a producer that waits for room notices that the recorder is gone.
    pub recorder_pid: u32,
    /// Beginning of the recording, in nanoseconds since 1970. A file that was born later was made by the
    /// program.
    pub started: u64,
    /// Slots reserved so far, by all producers.
    pub tail: Padded<AtomicU64>,
    /// Slots consumed so far, by the recorder. A producer may fill slot `p` once `p < head + RING_SLOTS`.
    pub head: Padded<AtomicU64>,
    /// 1 when the ring is not read any more, else 0. Producers then drop what they would log. The recorder
    /// sets it when it stops reading, a producer when it finds that the recorder is gone.
    pub closed: AtomicU32,
    /// The id that the next thread gets in the records.
    pub next_thread: AtomicU32,
    /// The id that the next process gets in the records.
    pub next_process: AtomicU32,
    /// The id that the next address space gets in the records. Modules and stacks belong to an address space.
    pub next_address_space: AtomicU32,
    /// The id that the next PM file gets: the number of slots of `files` that are in use.
    pub next_file: AtomicU32,
    /// Spin lock of `files` and `shared_memory`: the system's id of the thread that holds it, or 0.
    pub files_lock: AtomicU32,
    /// Options of the recording.
    pub options: Options,
    /// Processes that have the runtime, in no order. The recorder frees the slot of a process that has ended.
    pub processes: [ProcessSlot; MAX_PROCESSES],
    /// The PM files known so far. The index is the file's id in the records, which is the same in all
    /// processes.
    pub files: [FileSlot; MAX_FILES],
    /// Files in /dev/shm that any process opened by `shm_open` or `sem_open`. Written under `files_lock`;
    /// when all slots are in use, the oldest is replaced.
    pub shared_memory: [FileSlot; MAX_SHARED_MEMORY],
    /// Number of files that were ever put into `shared_memory`.
    pub next_shared_memory: AtomicU32,
    /// Spin locks of cache lines, by [`lock_index`]: the system's id of the thread that holds the lock, or 0.
    pub locks: [AtomicU32; LINE_LOCKS],
    /// The ring of records. Position `p` is in slot `p % RING_SLOTS`.
    pub ring: [Slot; RING_SLOTS as usize],
}

/// PM files that a session has room for.
pub(crate) const MAX_FILES: usize = 4096;
/// Files of [`Session::shared_memory`] that a session has room for.
pub(crate) const MAX_SHARED_MEMORY: usize = 256;

/// A file, identified by device, inode number and time of birth.
#[repr(C)]
pub struct FileSlot {
    /// Device number: major in the upper 32 bits, minor in the lower 32.
    pub dev: AtomicU64,
    /// Inode number.
    pub ino: AtomicU64,
    /// Time of birth in nanoseconds since 1970; 0 if the file system does not know it. It distinguishes files
    /// that had the same inode number one after the other.
    pub born: AtomicU64,
    /// Number of mappings of the file in all processes. When it rises from 0 again, the content is announced
    /// again.
    pub mappings: AtomicU32,
    /// Size of the file in bytes, as the log has it.
    pub size: AtomicU64,
}

/// A slot of the ring.
#[repr(C, align(64))]
pub struct Slot {
    /// Header word ([`slot_header`]). Storing it commits the slot.
    pub header: AtomicU64,
    /// This slot's part of the record's payload. Only the producer that reserved the slot writes it, before
    /// the commit.
    pub payload: core::cell::UnsafeCell<[u8; SLOT_PAYLOAD]>,
}

/// Index in [`Session::locks`] of the lock of a cache line: line `line` of the file with the id `file`. The
/// 64 lines of a page have 64 locks in a row, so the locks of a page are taken in ascending order.
pub const fn lock_index(file: u32, line: u64) -> usize {
    let page = (line >> 6) ^ (file as u64).wrapping_mul(0x9e37_79b9);
    let group = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % (LINE_LOCKS / 64);
    group * 64 + (line & 63) as usize
}

impl Session {
    /// Writes one record: reserves its slots, waits for room by calling `wait` (which returns false to give
    /// up), fills them and commits. The payload is all `parts`, one after the other. The position returned
    /// orders the record among all others. `None`: the record was dropped, because the recorder reads no more.
    ///
    /// The caller holds the line locks of what it logs, and has all signals blocked, so that nothing can
    /// interrupt it between reservation and commit.
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
                // SAFETY: the slots [position, position + slots) belong to this producer until they are
                // committed, and filled + n <= SLOT_PAYLOAD.
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
    /// As [`Session::publish`], for a record of one slot, whose payload is the first `length` bytes of
    /// `payload`. `head` is the value of [`Session::head`] that this producer saw last. It is read again only
    /// when it does not suffice, because the recorder writes it all the time.
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
        // SAFETY: the slot belongs to this producer until it is committed; the payload is as long as it, at
        // any alignment.
        unsafe { (slot.payload.get() as *mut [u64; SLOT_PAYLOAD / 8]).write_unaligned(*payload) };
        slot.header
            .store(slot_header(kind, length, position), Ordering::Release);
        Some(position)
    }
}

// SAFETY: a slot's payload is written only by the producer that reserved it and read only after its header is
// committed.
unsafe impl Sync for Slot {}
