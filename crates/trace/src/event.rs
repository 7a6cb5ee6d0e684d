//! What a trace says happened: the vocabulary that recorders write and analyses read.
//!
//! Ids are dense and small, so analyses index vectors by them. Addresses are (file, offset): a trace does not depend on
//! where a file was mapped.

pub use crashproof_base::{FileId, ModuleId, PmAddress, ProcessId, StackId, ThreadId};

use crate::annotation::Annotation;
use crate::call_return::CallReturn;
use crate::dependences::Dependences;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    Clwb,
    Clflushopt,
    Clflush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    Sfence,
    Mfence,
    /// A locked read-modify-write on volatile memory (only recorded on request).
    Locked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFlags {
    pub nontemporal: bool,
    /// A locked read-modify-write on PM: also a full fence of its thread, before and after the store.
    pub locked: bool,
    /// Done by the kernel on behalf of a system call (read into PM).
    pub syscall: bool,
    /// Of a locked one: a compare-exchange that succeeded, or an exchange whose result the code looks at, as locks are taken. A
    /// sequentially consistent store is an exchange whose result nobody looks at. False also in traces that do not say.
    pub exchange: bool,
}

/// What PMDK says of itself through pmemcheck's client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The range is volatile by design or persisted by other means: its stores so far need no flush.
    SetClean,
    TxBegin,
    TxEnd,
    /// The range is snapshotted or newly allocated in the transaction.
    TxAdd,
    TxRemove,
    /// The thread takes part in the transaction, which has a number, from now on.
    TxJoin,
    TxLeave,
    /// Stores to the range are right outside transactions.
    TxIgnore,
    /// The range is volatile data in a PM file from now on: what is stored there is lost by design.
    Volatile,
    /// The range is PM (again).
    Persistent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// `None`: code outside every known module.
    pub module: Option<ModuleId>,
    /// Address relative to the module's load bias (what debug info speaks of), else the absolute address. The innermost
    /// frame has the address of the instruction, the others the return address.
    pub address: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    pub path: String,
    pub build_id: Vec<u8>,
    /// Locked read-modify-write instructions in its code; they fence unseen unless recorded on request.
    pub locked_sites: u32,
    /// The module stands for one place of its source code, as another tool describes it, whose logs have no addresses that mean something
    /// to us. There is a module for each place then.
    pub place: Option<ImportedPlace>,
}

/// A place of source code in the words of another tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportedPlace {
    pub function: Option<String>,
    /// May have its folder.
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// Until version 3, between the parts of the path of a module that is a place.
const SEPARATOR: char = '\u{1f}';

impl Module {
    /// A place in the source of the module at `path`.
    pub fn of_place(path: &str, function: Option<&str>, file: Option<&str>, line: Option<u32>) -> Module {
        Module {
            path: path.to_owned(),
            build_id: Vec::new(),
            locked_sites: 0,
            place: Some(ImportedPlace {
                function: function.map(str::to_owned),
                file: file.map(str::to_owned),
                line,
            }),
        }
    }

    /// Until version 3, the path of a module that is a place had all of it: function, file, line and path.
    pub(crate) fn of_joined_path(joined: &str) -> Option<Module> {
        let mut parts = joined.strip_prefix(SEPARATOR)?.splitn(4, SEPARATOR);
        let (function, file, line) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Module::of_place(
            parts.next().unwrap_or_default(),
            Some(function).filter(|text| !text.is_empty()),
            Some(file).filter(|text| !text.is_empty()),
            line.parse().ok(),
        ))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmFile {
    pub path: String,
    /// Size when first mapped.
    pub size: u64,
    /// The recorded program made it: it was not there before. False also where the trace does not say (format version 1, file
    /// systems that do not know when a file was made).
    pub created: bool,
    pub kind: PmFileKind,
}

/// What a [`PmFile`] stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PmFileKind {
    #[default]
    File,
    /// Memory that the program registered as persistent and that no file is behind.
    RegisteredMemory,
    /// Memory of which the log of another tool says neither what file it is of nor what is stored there: the stores to it are zeros in the trace.
    UnknownMemory,
}

impl PmFileKind {
    /// Until version 3, the path alone said what a file stands for. No path of a file begins like one of these.
    pub(crate) fn of_path(path: &str) -> PmFileKind {
        if path.starts_with("registered memory ") {
            PmFileKind::RegisteredMemory
        } else if path.starts_with("memory at ") {
            PmFileKind::UnknownMemory
        } else {
            PmFileKind::File
        }
    }
}

impl PmFile {
    /// Memory of which the log of another tool says neither what file it is of nor what is stored there.
    pub fn of_memory(address: u64, size: u64) -> PmFile {
        PmFile {
            path: format!("memory at {address:#x}"),
            size,
            created: false,
            kind: PmFileKind::UnknownMemory,
        }
    }

    /// Whether it stands for memory that the program registered as persistent and that no file is behind.
    pub fn is_registered_memory(&self) -> bool {
        self.kind == PmFileKind::RegisteredMemory
    }
}

/// One event, borrowed from the reader's block buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Position in the total order, counted from 0 over all events of the trace.
    pub seq: u64,
    /// Where it began: the position of the first event after its beginning. It is less than `seq` for a sync or an operation on a file
    /// during which other threads went on; what they did meanwhile may have come before it or after it. Otherwise it is `seq`.
    pub begun: u64,
    pub thread: ThreadId,
    pub stack: StackId,
    pub kind: EventKind<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// At most 64 bytes, so at most two lines.
    Store {
        at: PmAddress,
        data: &'a [u8],
        flags: StoreFlags,
    },
    /// Of the whole line that holds `at`.
    Flush {
        at: PmAddress,
        kind: FlushKind,
    },
    Fence {
        kind: FenceKind,
    },
    Map {
        file: FileId,
        address: u64,
        offset: u64,
        len: u64,
        writable: bool,
    },
    Unmap {
        file: FileId,
        offset: u64,
        len: u64,
    },
    /// Growth or truncation.
    Resize {
        file: FileId,
        size: u64,
    },
    /// By write(2) and friends, not through a mapping.
    FileWrite {
        at: PmAddress,
        data: &'a [u8],
    },
    /// `None`: unlinked.
    Rename {
        file: FileId,
        path: Option<&'a str>,
    },
    /// msync, fsync: all of the range is durable now.
    Sync {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Output {
        fd: u32,
        data: &'a [u8],
    },
    /// Call of a known library function (`pmemobj_tx_*`), with the six register arguments; or of a function that works on locks, for an object in PM:
    /// then the arguments are the object's address and size.
    Call {
        name: &'a str,
        arguments: [u64; 6],
    },
    /// A library function has returned. Of the functions that allocate outside transactions this is the only event, since the object
    /// is known at their end.
    Return(CallReturn<'a>),
    /// The program says something of itself.
    Annotation(Annotation<'a>),
    Request {
        request: Request,
        transaction: u64,
        range: Option<(PmAddress, u64)>,
    },
    ThreadStart {
        process: ProcessId,
        os_id: u32,
    },
    ProcessStart {
        process: ProcessId,
        pid: u32,
        parent: Option<ProcessId>,
        executable: &'a str,
    },
    /// The process ended: what it had mapped is unmapped.
    ProcessEnd {
        process: ProcessId,
        /// It did not say so itself: a signal ended it. The thread of the event is one of its own then. Traces before version 4 do
        /// not tell.
        killed: bool,
    },
    /// No process did anything to PM for so long that none can have been in the middle of an update.
    Quiet,
    /// An access to PM by code that tracks dependences, beside the events that say what the access did to PM (a store has both).
    Access {
        /// Else a load.
        store: bool,
        /// Numbers the accesses of the whole run: ascending, each once.
        node: u64,
        at: PmAddress,
        /// As a whole: the access of a library function may be long.
        len: u32,
        depends: Dependences<'a>,
    },
    /// An operation ended whose code tracks dependences.
    Path {
        /// Digest of the set of basic blocks that it executed.
        blocks: u64,
        /// Labels that had more members than are kept.
        cuts: u64,
    },
}

/// Why a trace may not hold everything that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    pub reason: IncompleteReason,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteReason {
    /// Bytes that could be a flush or fence and could not be verified to be code.
    UnverifiedCode,
    /// Something that the recorder cannot follow.
    Unsupported,
    /// A fixed limit of the recorder was reached.
    Limit,
    /// What the log replays to differs from what the file holds.
    Mismatch,
    /// The disk was full, or the trace could not be written for another reason.
    WriteFailed,
    /// The trace ends without its end record (recorder killed, file truncated).
    Truncated,
    /// A process died within an event.
    Lost,
}

/// A file that the program mapped or tried to open, and of which the trace has no events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeftOut {
    pub path: String,
    pub reason: LeftOutReason,
}

/// Why a file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeftOutReason {
    /// Shared memory that `shm_open` made.
    SharedMemory,
    /// A semaphore that `sem_open` made.
    Semaphore,
    /// Memory that `memfd_create` made.
    Memfd,
    /// A lock file: it coordinates processes and holds no data.
    LockFile,
    /// The counters of a Java virtual machine (`hsperfdata`).
    JavaCounters,
    /// The shared-memory index of an SQLite database (`*-shm`), which SQLite makes anew after a crash.
    SqliteIndex,
    /// It had no name any more when the program first stored to it.
    Unlinked,
    /// It does not match the patterns of the files to be recorded.
    NotSelected,
    /// The program opened it for reading only.
    ReadOnly,
    /// The program mapped it privately: its stores do not reach the file.
    Private,
    /// The program could not open it for reading and writing.
    OpenFailed { errno: i32 },
}

/// How the recorded command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramEnd {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    /// Ended by the user's Ctrl-C at the recorder.
    pub interrupted: bool,
    /// The user sent the recorder a signal that asks to end (SIGTERM, SIGHUP), which passed it on.
    pub terminated: bool,
}

/// How much of what is in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub stores: u64,
    pub flushes: u64,
    pub fences: u64,
}
