//! The records in the ring. Frequent records begin with [`Access`]. All others are little-endian fields,
//! written with [`Fields`] and read with [`Reader`] in the order in which the constant's comment lists them.
//! A field of *bytes* is a u32 with its length, then the bytes; *data* is the rest of the record and has no
//! length of its own.
//!
//! Threads, processes, address spaces and files have the ids that [`Session`](crate::Session) hands out,
//! which are not those of the trace. A stack is the hash under which a [`STACK`] record has announced it, and
//! 0 stands for no stack. Offsets and lengths are in bytes.

use crashproof_base::LeftOutReason;

/// A store. Body: [`Access`], then the stored data.
pub const STORE: u8 = 1;
/// A flush. Body: [`Access`]; its flags are a `FLUSH_*`, its length is 0, and its place is any byte of the
/// line.
pub const FLUSH: u8 = 2;
/// A fence. Body: [`Access`]; its flags are a `FENCE_*`, its length is 0, and its place is [`Place::NONE`].
pub const FENCE: u8 = 3;
/// A call stack, announced before it is used: address space u32, hash u64, then one u64 for each frame,
/// innermost first. The first address is that of the instruction itself, the others are return addresses.
pub const STACK: u8 = 4;
/// A process starts: process u32, pid u32, parent process u32 ([`NONE`] for the root), address space u32,
/// path of the executable (bytes). After an exec, the parent is the process that executed the program.
pub const PROCESS_START: u8 = 5;
/// A thread logs for the first time in its process: thread u32, process u32, thread id of the system u32.
pub const THREAD_START: u8 = 6;
/// A module is loaded: address space u32, load bias u64, start address u64, end address u64, number of locked
/// read-modify-writes in its code u32, build id (bytes), path (bytes).
pub const MODULE: u8 = 7;
/// A PM file: file u32, size u64, device u64, inode number u64, bits of `FILE_*` u32, path (bytes). It is
/// announced once, by the process that first maps the file or that is about to put a PM file in its place.
pub const FILE: u8 = 8;
/// A range of a file is mapped: thread u32, stack u64, file u32, address u64, offset u64, length u64,
/// protection (`PROT_*`) u32.
pub const MAP: u8 = 9;
/// A range of a file is unmapped: thread u32, stack u64, file u32, offset u64, length u64.
pub const UNMAP: u8 = 10;
/// Content of a file when it is first mapped: file u32, offset u64, data. Bytes that are not announced are
/// zero. The content is announced again when the file is mapped after no process had it mapped. A difference
/// from the known content then means that the file was changed unseen.
pub const INITIAL: u8 = 11;
/// A file gets another size: thread u32, stack u64, file u32, position of the [`BEGIN`] record u64, new size
/// u64.
pub const RESIZE: u8 = 12;
/// A system call such as `write` has written to a PM file: thread u32, stack u64, file u32, position of the
/// [`BEGIN`] record u64, offset u64, data.
pub const FILE_WRITE: u8 = 13;
/// A file gets another path: thread u32, stack u64, file u32, position of the [`BEGIN`] record u64, new path
/// (bytes). An empty path means that the file was unlinked.
pub const RENAME: u8 = 14;
/// `msync`, `fsync` or `fdatasync` has made all of a range durable: thread u32, stack u64, file u32, position
/// of the [`BEGIN`] record u64, offset u64, length u64.
pub const SYNC: u8 = 15;
/// Output of the program: thread u32, descriptor u32, data.
pub const OUTPUT: u8 = 16;
/// The descriptor to which a driver with `crashproof_driver.h` writes its results and nothing else. The
/// driver begins with an empty write to this descriptor. From then on, its results are logged as output to
/// stdout, and writes of the driver to stdout as output to stderr.
pub const RESULTS: u32 = 1000;
/// Call of a known library function (`pmemobj_tx_*`), or of a function that works on a lock in PM: thread
/// u32, stack u64, six arguments u64, name (bytes).
pub const CALL: u8 = 17;
/// A client request: thread u32, stack u64, `REQUEST_*` u32, number of the transaction u64 (0: the thread's
/// own), file u32 ([`NONE`] for a request without a range), offset u64, length u64.
pub const REQUEST: u8 = 18;
/// Present content of a file, which the recorder compares with the result of replaying the log: file u32,
/// offset u64, data.
pub const VERIFY: u8 = 19;
/// A process ends, or an exec replaces it: process u32.
pub const PROCESS_END: u8 = 20;
/// A reason why the trace may lack something: `INCOMPLETE_*` u32, text (bytes).
pub const INCOMPLETE: u8 = 21;

/// An access to PM by code built with `--deps`: thread u32, stack u64, file u32, offset u64, length u32, 1
/// for a store or 0 for a load u32, then one u64 for each dependence: twice the node of an earlier load, plus
/// 1 for a control dependence. The node of the access is the position of its record in the ring.
pub const ACCESS: u8 = 22;
/// An operation of code built with `--deps` has ended: thread u32, stack u64, digest of the set of executed
/// blocks u64, number of labels that were cut u64.
pub const PATH: u8 = 23;

/// A file whose stores are not recorded: `LEFT_OUT_*` u32, errno u32 (0 unless the reason is
/// [`LEFT_OUT_OPEN_FAILED`]), path (bytes).
pub const LEFT_OUT: u8 = 24;

/// A request of `crashproof.h`: thread u32, stack u64, `ANNOTATION_*` u32, four words u64, name of the
/// operation (bytes). The words are address and length of the memory in question, then address and length of
/// the memory that is to be stored to later. Words and name that the request does not have are 0 and empty.
pub const ANNOTATION: u8 = 25;

/// A library function has returned: thread u32, stack u64, six arguments u64, result u64, 1 if the function
/// gave an object or else 0 u32, of the object the id of its pool u64, its offset u64 and its usable size u64
/// (0: not known), name (bytes).
pub const RETURN: u8 = 26;

/// A sync or an operation on a file begins: thread u32. The records of what the operation did hold the
/// position of this one in the ring, or [`NOT_BEGUN`].
pub const BEGIN: u8 = 27;
/// Position that stands for the [`BEGIN`] record of an operation whose beginning was not recorded.
pub const NOT_BEGUN: u64 = u64::MAX;

/// The id of no process or file.
pub const NONE: u32 = u32::MAX;

/// Flag of a store that passes the cache by.
pub const STORE_NONTEMPORAL: u8 = 1;
/// Flag of a store by a locked read-modify-write, which is also a full fence before and after the store.
pub const STORE_LOCKED: u8 = 2;
/// Flag of a store that the kernel made on behalf of a system call.
pub const STORE_SYSCALL: u8 = 4;
/// Flag beside [`STORE_LOCKED`]: a compare-exchange that succeeded, or an exchange whose result the code uses.
pub const STORE_EXCHANGE: u8 = 8;

/// The flush is `clwb`.
pub const FLUSH_CLWB: u8 = 0;
/// The flush is `clflushopt`.
pub const FLUSH_CLFLUSHOPT: u8 = 1;
/// The flush is `clflush`.
pub const FLUSH_CLFLUSH: u8 = 2;

/// The fence is `sfence`.
pub const FENCE_SFENCE: u8 = 0;
/// The fence is `mfence`.
pub const FENCE_MFENCE: u8 = 1;
/// The fence is a locked read-modify-write that stored nothing to PM.
pub const FENCE_LOCKED: u8 = 2;

/// The stores to the range so far need no flush.
pub const REQUEST_SET_CLEAN: u32 = 0;
/// The transaction begins.
pub const REQUEST_TX_BEGIN: u32 = 1;
/// The transaction ends.
pub const REQUEST_TX_END: u32 = 2;
/// The transaction has a snapshot of the range, or has allocated it.
pub const REQUEST_TX_ADD: u32 = 3;
/// The transaction no longer covers the range.
pub const REQUEST_TX_REMOVE: u32 = 4;
/// Stores to the range need no transaction.
pub const REQUEST_TX_IGNORE: u32 = 5;
/// The range is volatile data in a PM file from now on.
pub const REQUEST_VOLATILE: u32 = 6;
/// The range is PM (again).
pub const REQUEST_PERSISTENT: u32 = 7;
/// The thread takes part in the numbered transaction from now on.
pub const REQUEST_TX_JOIN: u32 = 8;
/// The thread no longer takes part in the numbered transaction.
pub const REQUEST_TX_LEAVE: u32 = 9;

/// An operation of the thread begins.
pub const ANNOTATION_OPERATION_BEGIN: u32 = 0;
/// An operation of the thread ends.
pub const ANNOTATION_OPERATION_END: u32 = 1;
/// The program expects that the memory is durable here.
pub const ANNOTATION_EXPECT_DURABLE: u32 = 2;
/// The program expects that the first range is durable before the next store to the second.
pub const ANNOTATION_EXPECT_ORDER: u32 = 3;

/// Flag of a file that was made after [`Session::started`](crate::Session::started).
pub const FILE_CREATED: u32 = 1;
/// Flag of a file that stands for memory which the program registered as persistent and which has no file.
pub const FILE_REGISTERED_MEMORY: u32 = 2;

/// Bytes in the program could be a flush or a fence and could not be verified to be code, or code could not
/// be given its breakpoints.
pub const INCOMPLETE_UNVERIFIED_CODE: u32 = 0;
/// The program did something that the recorder cannot follow.
pub const INCOMPLETE_UNSUPPORTED: u32 = 1;
/// The program exceeded a fixed limit of the recorder.
pub const INCOMPLETE_LIMIT: u32 = 2;

/// The file was made by `shm_open`.
pub const LEFT_OUT_SHARED_MEMORY: u32 = LeftOutReason::SharedMemory as u32;
/// The file was made by `sem_open`.
pub const LEFT_OUT_SEMAPHORE: u32 = LeftOutReason::Semaphore as u32;
/// The file was made by `memfd_create`.
pub const LEFT_OUT_MEMFD: u32 = LeftOutReason::Memfd as u32;
/// The file is a lock file, by its name and (but for `lock.mdb`) because the process holds a lock on it.
pub const LEFT_OUT_LOCK_FILE: u32 = LeftOutReason::LockFile as u32;
/// The file holds the counters of a Java virtual machine (`hsperfdata`).
pub const LEFT_OUT_JAVA_COUNTERS: u32 = LeftOutReason::JavaCounters as u32;
/// The file is the shared-memory index of an SQLite database (`*-shm`).
pub const LEFT_OUT_SQLITE_INDEX: u32 = LeftOutReason::SqliteIndex as u32;
/// The file no longer had a name when it was mapped.
pub const LEFT_OUT_UNLINKED: u32 = LeftOutReason::Unlinked as u32;
/// None of the user's patterns matches the file.
pub const LEFT_OUT_NOT_SELECTED: u32 = LeftOutReason::NotSelected as u32;
/// The program mapped the file shared, but did not open it for reading and writing.
pub const LEFT_OUT_READ_ONLY: u32 = LeftOutReason::ReadOnly as u32;
/// The program opened the file for reading and writing, and its writable mapping is private.
pub const LEFT_OUT_PRIVATE: u32 = LeftOutReason::Private as u32;
/// The program could not open the file for reading and writing.
pub const LEFT_OUT_OPEN_FAILED: u32 = LeftOutReason::OpenFailed as u32;

/// A byte of a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Id of the file.
    pub file: u32,
    /// Offset of the byte in the file.
    pub offset: u64,
}

impl Place {
    /// The place in a record that concerns no memory.
    pub const NONE: Place = Place { file: 0, offset: 0 };
}

/// The beginning of a record of a store, a flush or a fence. A store of at most 32 bytes fits in one slot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    /// Hash of the call stack.
    pub stack: u64,
    /// The offset in the file, and above it the length of the data.
    offset_and_length: u64,
    file: u32,
    /// The thread, and above it the flags.
    thread_and_flags: u32,
}

/// Bits of an offset. No file is larger.
const OFFSET_BITS: u32 = 48;
/// Bits of a thread's id. The recorder accepts no greater id.
const THREAD_BITS: u32 = 24;

impl Access {
    /// An access with `length` bytes of data, of which there may be at most 65,535. `flags` are `STORE_*`
    /// bits, a `FLUSH_*` or a `FENCE_*`, by the kind of the record.
    #[inline]
    pub const fn new(stack: u64, place: Place, thread: u32, flags: u8, length: usize) -> Access {
        const MOST_THREAD: u32 = (1 << THREAD_BITS) - 1;
        let thread = if thread < MOST_THREAD { thread } else { MOST_THREAD };
        Access {
            stack,
            offset_and_length: place.offset & ((1 << OFFSET_BITS) - 1) | (length as u64) << OFFSET_BITS,
            file: place.file,
            thread_and_flags: thread | (flags as u32) << THREAD_BITS,
        }
    }

    /// First byte of the store, any byte of the flushed line, or [`Place::NONE`].
    pub const fn place(&self) -> Place {
        Place {
            file: self.file,
            offset: self.offset_and_length & ((1 << OFFSET_BITS) - 1),
        }
    }

    /// Bytes of data that follow.
    #[inline]
    pub const fn length(&self) -> usize {
        (self.offset_and_length >> OFFSET_BITS) as usize
    }

    /// Id of the thread.
    pub const fn thread(&self) -> u32 {
        self.thread_and_flags & ((1 << THREAD_BITS) - 1)
    }

    /// `STORE_*` bits, a `FLUSH_*` or a `FENCE_*`, by the kind of the record.
    pub const fn flags(&self) -> u8 {
        (self.thread_and_flags >> THREAD_BITS) as u8
    }

    /// Bytes of an access in a record.
    pub const SIZE: usize = size_of::<Access>();

    /// The access as it stands in a record.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: repr(C) without padding (8 + 8 + 4 + 4 = 24 bytes).
        unsafe { core::slice::from_raw_parts((self as *const Access).cast(), Access::SIZE) }
    }

    /// The access that a record begins with, and the rest of the record; `None` if the record is too short.
    pub fn parse(body: &[u8]) -> Option<(Access, &[u8])> {
        let (head, data) = body.split_at_checked(Access::SIZE)?;
        // SAFETY: any bit pattern is an Access; read_unaligned needs no alignment.
        let access = unsafe { head.as_ptr().cast::<Access>().read_unaligned() };
        Some((access, data))
    }
}

const _: () = assert!(Access::SIZE == 24);

/// The fields of a record, in a buffer of `N` bytes on the stack. Data of variable length goes last, by
/// [`Fields::bytes`] or as another part of the record. A field that does not fit is a panic, but for
/// [`Fields::bytes`].
pub struct Fields<const N: usize> {
    buffer: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Fields<N> {
    fn default() -> Self {
        Fields { buffer: [0; N], len: 0 }
    }
}

impl<const N: usize> Fields<N> {
    /// Appends a u32.
    pub fn u32(self, v: u32) -> Self {
        self.raw(&v.to_le_bytes())
    }

    /// Appends a u64.
    pub fn u64(self, v: u64) -> Self {
        self.raw(&v.to_le_bytes())
    }

    /// Appends a length (u32) and the bytes, cut to what fits in the buffer.
    pub fn bytes(self, v: &[u8]) -> Self {
        let n = v.len().min(N.saturating_sub(self.len + 4));
        self.u32(n as u32).raw(&v[..n])
    }

    fn raw(mut self, v: &[u8]) -> Self {
        self.buffer[self.len..self.len + v.len()].copy_from_slice(v);
        self.len += v.len();
        self
    }

    /// The fields so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Reads the fields of a record one after the other. Its content is the part that has not been read: at the
/// end, the data of [`INITIAL`], [`FILE_WRITE`], [`OUTPUT`] and [`VERIFY`], the frames of [`STACK`], and the
/// dependences of [`ACCESS`].
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next u32; `None` if the record is too short.
    pub fn u32(&mut self) -> Option<u32> {
        let (v, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*v))
    }

    /// The next u64; `None` if the record is too short.
    pub fn u64(&mut self) -> Option<u64> {
        let (v, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*v))
    }

    /// The next field of bytes, without its length; `None` if the record is too short.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()? as usize;
        let (v, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(v)
    }
}
