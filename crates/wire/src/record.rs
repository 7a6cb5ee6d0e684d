//! The records in the ring. Hot records start with [`Access`]; all others are little-endian fields written with
//! [`Fields`] and read with [`Reader`], in the order that the constant's comment gives.

/// Body: [`Access`], then as many data bytes as it says.
pub const STORE: u8 = 1;
/// Body: [`Access`]; the flags are a `FLUSH_*`, the length is 0, the place any byte of the line.
pub const FLUSH: u8 = 2;
/// Body: [`Access`]; the flags are a `FENCE_*`, the place is [`Place::NONE`].
pub const FENCE: u8 = 3;
/// address_space u32, stack u64, then one u64 per frame, innermost first: the exact address of the instruction, then
/// return addresses. A stack is announced before it is used.
pub const STACK: u8 = 4;
/// process u32, pid u32, parent process u32 (`NONE` for the root), address_space u32, executable path (bytes)
pub const PROCESS_START: u8 = 5;
/// thread u32, process u32, os thread id u32
pub const THREAD_START: u8 = 6;
/// address_space u32, load bias u64, start u64, end u64, locked read-modify-writes found u32, build id (bytes), path (bytes)
pub const MODULE: u8 = 7;
/// file u32, size u64, dev u64, ino u64, `FILE_*` u32, path (bytes). Announced
/// once by the process that first maps it, or is about to replace it by a PM file.
pub const FILE: u8 = 8;
/// thread u32, stack u64, file u32, address u64, offset u64, len u64, protection u32
pub const MAP: u8 = 9;
/// thread u32, stack u64, file u32, offset u64, len u64
pub const UNMAP: u8 = 10;
/// file u32, offset u64, data (bytes): content when first mapped; what is not announced is zero. Announced again when the
/// file is mapped after nobody had it mapped: where it differs from what is known, it was changed unseen meanwhile.
pub const INITIAL: u8 = 11;
/// thread u32, stack u64, file u32, position of its [`BEGIN`] u64, new size u64
pub const RESIZE: u8 = 12;
/// thread u32, stack u64, file u32, position of its [`BEGIN`] u64, offset u64, data (bytes): write(2) and friends on the PM file.
pub const FILE_WRITE: u8 = 13;
/// thread u32, stack u64, file u32, position of its [`BEGIN`] u64, new path (bytes; empty = unlinked)
pub const RENAME: u8 = 14;
/// thread u32, stack u64, file u32, position of its [`BEGIN`] u64, offset u64, len u64: msync, fsync, fdatasync. All of the range is durable
/// now.
pub const SYNC: u8 = 15;
/// thread u32, fd u32, data (bytes)
pub const OUTPUT: u8 = 16;
/// The descriptor to which a driver with `crashproof_driver.h` writes its results, and nothing else: they are logged as output to stdout, and what the
/// driver writes to stdout itself as output to stderr, where it goes. It says so by a write of nothing to it.
pub const RESULTS: u32 = 1000;
/// thread u32, stack u64, six argument words u64, name (bytes): call of a known library function (pmemobj_tx_*).
pub const CALL: u8 = 17;
/// thread u32, stack u64, `REQUEST_*` u32, argument u64 (transaction number), file u32 (`NONE`), offset u64, len u64
pub const REQUEST: u8 = 18;
/// file u32, offset u64, data (bytes): what the file holds here now, to compare with what the log replays to.
pub const VERIFY: u8 = 19;
/// process u32
pub const PROCESS_END: u8 = 20;
/// reason u32 (`INCOMPLETE_*`), text (bytes)
pub const INCOMPLETE: u8 = 21;

/// thread u32, stack u64, file u32, offset u64, length u32, 1 for a store else 0 u32, then one u64 for each dependence: twice the node of an earlier
/// load, plus 1 if it is a control dependence. An access by code built with `--deps`, whose own node is the record's position in the
/// ring.
pub const ACCESS: u8 = 22;
/// thread u32, stack u64, digest of the executed blocks u64, labels cut u64: an operation has ended.
pub const PATH: u8 = 23;

/// reason u32 (`LEFT_OUT_*`), errno u32 (0 but for `LEFT_OUT_OPEN_FAILED`), path (bytes): a file whose stores are not recorded.
pub const LEFT_OUT: u8 = 24;

/// thread u32, stack u64, `ANNOTATION_*` u32, four words u64, name (bytes): a request of `crashproof.h`. The words are address and length of the
/// memory that it speaks of, and those of the memory that is to be stored to later; the name is an operation's.
pub const ANNOTATION: u8 = 25;

/// thread u32, stack u64, six argument words u64, result u64, 1 if the function gave an object else 0 u32, the object's pool u64, offset u64 and
/// usable size u64 (0: not known), name (bytes): a library function has returned.
pub const RETURN: u8 = 26;

/// thread u32: a sync or an operation on a file begins. The records of what it did name the position of this one in the ring; those of an operation
/// whose beginning was not recorded have [`NOT_BEGUN`].
pub const BEGIN: u8 = 27;
pub const NOT_BEGUN: u64 = u64::MAX;

pub const NONE: u32 = u32::MAX;

pub const STORE_NONTEMPORAL: u8 = 1;
/// A locked read-modify-write: the store is also a full fence, before and after.
pub const STORE_LOCKED: u8 = 2;
/// Done by the kernel on behalf of a system call.
pub const STORE_SYSCALL: u8 = 4;
/// Beside [`STORE_LOCKED`]: a compare-exchange that succeeded, or an exchange whose result the code looks at.
pub const STORE_EXCHANGE: u8 = 8;

pub const FLUSH_CLWB: u8 = 0;
pub const FLUSH_CLFLUSHOPT: u8 = 1;
pub const FLUSH_CLFLUSH: u8 = 2;

pub const FENCE_SFENCE: u8 = 0;
pub const FENCE_MFENCE: u8 = 1;
pub const FENCE_LOCKED: u8 = 2;

pub const REQUEST_SET_CLEAN: u32 = 0;
pub const REQUEST_TX_BEGIN: u32 = 1;
pub const REQUEST_TX_END: u32 = 2;
pub const REQUEST_TX_ADD: u32 = 3;
pub const REQUEST_TX_REMOVE: u32 = 4;
pub const REQUEST_TX_IGNORE: u32 = 5;
/// The range is volatile data in a PM file from now on.
pub const REQUEST_VOLATILE: u32 = 6;
/// The range is PM (again).
pub const REQUEST_PERSISTENT: u32 = 7;
/// The thread takes part in the numbered transaction, or no longer.
pub const REQUEST_TX_JOIN: u32 = 8;
pub const REQUEST_TX_LEAVE: u32 = 9;

pub const ANNOTATION_OPERATION_BEGIN: u32 = 0;
pub const ANNOTATION_OPERATION_END: u32 = 1;
pub const ANNOTATION_EXPECT_DURABLE: u32 = 2;
pub const ANNOTATION_EXPECT_ORDER: u32 = 3;

/// The file was made after [`Session::started`](crate::Session).
pub const FILE_CREATED: u32 = 1;
/// It stands for memory that the program registered as persistent and that no file is behind.
pub const FILE_REGISTERED_MEMORY: u32 = 2;

pub const INCOMPLETE_UNVERIFIED_CODE: u32 = 0;
pub const INCOMPLETE_UNSUPPORTED: u32 = 1;
pub const INCOMPLETE_LIMIT: u32 = 2;

/// Made by `shm_open`.
pub const LEFT_OUT_SHARED_MEMORY: u32 = 0;
/// Made by `sem_open`.
pub const LEFT_OUT_SEMAPHORE: u32 = 1;
/// Made by `memfd_create`.
pub const LEFT_OUT_MEMFD: u32 = 2;
pub const LEFT_OUT_LOCK_FILE: u32 = 3;
pub const LEFT_OUT_JAVA_COUNTERS: u32 = 4;
pub const LEFT_OUT_SQLITE_INDEX: u32 = 5;
/// It had no name any more before the first store.
pub const LEFT_OUT_UNLINKED: u32 = 6;
/// No pattern of the user's matches it.
pub const LEFT_OUT_NOT_SELECTED: u32 = 7;
pub const LEFT_OUT_READ_ONLY: u32 = 8;
/// A private, writable mapping of a file that the program opened for writing.
pub const LEFT_OUT_PRIVATE: u32 = 9;
/// The program could not open it for reading and writing.
pub const LEFT_OUT_OPEN_FAILED: u32 = 10;

/// A byte of a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: u32,
    pub offset: u64,
}

impl Place {
    /// Of a record that is about no memory.
    pub const NONE: Place = Place { file: 0, offset: 0 };
}

/// What a record of a store, a flush or a fence begins with. With at most 32 bytes of data, a store fits in one slot.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    pub stack: u64,
    /// The offset in the file, and above it the length of the data.
    offset_and_length: u64,
    file: u32,
    /// The thread, and above it the flags.
    thread_and_flags: u32,
}

/// Files are not larger.
const OFFSET_BITS: u32 = 48;
/// The recorder knows no thread with a greater id.
const THREAD_BITS: u32 = 24;

impl Access {
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

    pub const fn place(&self) -> Place {
        Place {
            file: self.file,
            offset: self.offset_and_length & ((1 << OFFSET_BITS) - 1),
        }
    }

    /// Bytes of data.
    #[inline]
    pub const fn length(&self) -> usize {
        (self.offset_and_length >> OFFSET_BITS) as usize
    }

    pub const fn thread(&self) -> u32 {
        self.thread_and_flags & ((1 << THREAD_BITS) - 1)
    }

    pub const fn flags(&self) -> u8 {
        (self.thread_and_flags >> THREAD_BITS) as u8
    }

    pub const SIZE: usize = size_of::<Access>();

    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: repr(C) without padding (8 + 8 + 4 + 4 = 24 bytes).
        unsafe { core::slice::from_raw_parts((self as *const Access).cast(), Access::SIZE) }
    }

    pub fn parse(body: &[u8]) -> Option<(Access, &[u8])> {
        let (head, data) = body.split_at_checked(Access::SIZE)?;
        // SAFETY: any bit pattern is an Access; read_unaligned needs no alignment.
        let access = unsafe { head.as_ptr().cast::<Access>().read_unaligned() };
        Some((access, data))
    }
}

const _: () = assert!(Access::SIZE == 24);

/// Little-endian fields in a buffer on the stack; variable data goes last, as a part of its own or with [`Fields::bytes`].
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
    pub fn u32(self, v: u32) -> Self {
        self.raw(&v.to_le_bytes())
    }

    pub fn u64(self, v: u64) -> Self {
        self.raw(&v.to_le_bytes())
    }

    /// A length (u32) and the bytes, cut to what fits.
    pub fn bytes(self, v: &[u8]) -> Self {
        let n = v.len().min(N.saturating_sub(self.len + 4));
        self.u32(n as u32).raw(&v[..n])
    }

    fn raw(mut self, v: &[u8]) -> Self {
        self.buffer[self.len..self.len + v.len()].copy_from_slice(v);
        self.len += v.len();
        self
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Reads what [`Fields`] wrote. The last `data (bytes)` field of INITIAL, FILE_WRITE, OUTPUT and VERIFY, and the frames of
/// STACK, have no length of their own: they are the rest.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn u32(&mut self) -> Option<u32> {
        let (v, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*v))
    }

    pub fn u64(&mut self) -> Option<u64> {
        let (v, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*v))
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()? as usize;
        let (v, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(v)
    }
}
