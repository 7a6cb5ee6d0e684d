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
