//! The words that all crates share: ids, addresses in PM files, and the sizes of lines, words and pages.
//!
//! Architecture invariant: no dependencies, no logic. `tests/edges.rs` holds which crate may depend on which.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// Bytes in a cache line.
pub const LINE: u64 = 64;
/// Bytes that hardware promises to persist together; a wider store may tear.
pub const WORD: u64 = 8;
/// Bytes in a page.
pub const PAGE: u64 = 4096;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a vector: ids are dense and small.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(/// A thread of any process of the recorded tree.
    ThreadId);
id!(/// A process of the recorded tree.
    ProcessId);
id!(/// A PM file.
    FileId);
id!(/// A call stack, deduplicated. `StackId(0)` is the unknown stack, without frames.
    StackId);
id!(/// A loaded module (executable or library) at an address, in one address space.
    ModuleId);

/// A byte in a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PmAddress {
    /// The file.
    pub file: FileId,
    /// The byte's offset in it.
    pub offset: u64,
}

/// A cache line of a PM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineAddress {
    /// Number of the file.
    pub file: u32,
    /// Number of the line in the file.
    pub line: u64,
}

/// A piece of a store of the trace: what persists at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId {
    /// Sequence number of the store's event.
    pub seq: u64,
    /// Which piece of the store.
    pub piece: u16,
}

/// Why the stores to a file are not in a trace. The numbers are those of records and of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LeftOutReason {
    /// Shared memory that `shm_open` made.
    SharedMemory = 0,
    /// A semaphore that `sem_open` made.
    Semaphore = 1,
    /// Memory that `memfd_create` made.
    Memfd = 2,
    /// A lock file: it coordinates processes and holds no data.
    LockFile = 3,
    /// The counters of a Java virtual machine (`hsperfdata`).
    JavaCounters = 4,
    /// The shared-memory index of an SQLite database (`*-shm`), which SQLite makes anew after a crash.
    SqliteIndex = 5,
    /// It had no name any more when the program first stored to it.
    Unlinked = 6,
    /// It does not match the patterns of the files to be recorded.
    NotSelected = 7,
    /// The program opened it for reading only.
    ReadOnly = 8,
    /// The program mapped it privately: its stores do not reach the file.
    Private = 9,
    /// The program could not open it for reading and writing.
    OpenFailed = 10,
}

impl LeftOutReason {
    /// All of them, by their numbers, with the names that reports have for them.
    pub const ALL: [(LeftOutReason, &'static str); 11] = [
        (LeftOutReason::SharedMemory, "shared-memory"),
        (LeftOutReason::Semaphore, "semaphore"),
        (LeftOutReason::Memfd, "memfd"),
        (LeftOutReason::LockFile, "lock-file"),
        (LeftOutReason::JavaCounters, "java-counters"),
        (LeftOutReason::SqliteIndex, "sqlite-index"),
        (LeftOutReason::Unlinked, "unlinked"),
        (LeftOutReason::NotSelected, "not-selected"),
        (LeftOutReason::ReadOnly, "read-only"),
        (LeftOutReason::Private, "private"),
        (LeftOutReason::OpenFailed, "open-failed"),
    ];

    /// The one with this number.
    pub fn numbered(number: u32) -> Option<LeftOutReason> {
        LeftOutReason::ALL.get(number as usize).map(|(reason, _)| *reason)
    }

    /// The name that reports have for it.
    pub fn name(self) -> &'static str {
        LeftOutReason::ALL[self as usize].1
    }

    /// Whether the program used the file in a way that cannot be recorded; another use of the same file may be.
    pub fn is_about_one_use(self) -> bool {
        matches!(
            self,
            LeftOutReason::ReadOnly | LeftOutReason::Private | LeftOutReason::OpenFailed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_by_their_numbers() {
        for (number, (reason, name)) in LeftOutReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
            assert_eq!(LeftOutReason::numbered(number as u32), Some(reason));
            assert_eq!(reason.name(), name);
        }
        assert_eq!(LeftOutReason::numbered(11), None);
    }
}
