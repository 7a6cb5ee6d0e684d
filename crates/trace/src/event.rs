//! The events of a trace, and the modules, files and frames that they refer to: the vocabulary that recorders
//! write and analyses read.
//!
//! Ids are dense and small, so analyses index vectors by them. Addresses of PM are (file, offset), so a trace
//! does not depend on the address at which a file was mapped. Offsets, lengths and sizes are in bytes.

pub use crashproof_base::{FileId, LeftOutReason, ModuleId, PmAddress, ProcessId, StackId, ThreadId};

use crate::annotation::Annotation;
use crate::call_return::CallReturn;
use crate::dependences::Dependences;

/// The instruction that flushes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// `clwb`: takes effect at the thread's next fence.
    Clwb,
    /// `clflushopt`: takes effect at the thread's next fence.
    Clflushopt,
    /// `clflush`: takes effect at once.
    Clflush,
}

/// The instruction that acts as a fence. All kinds complete the pending flushes and non-temporal stores of
/// their thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    /// `sfence`.
    Sfence,
    /// `mfence`.
    Mfence,
    /// A locked read-modify-write that stores nothing to PM. Those on volatile memory are recorded on request
    /// ([`Options::locked_rmw`](crate::Options::locked_rmw)); in code built by `crashproof cc` also without
    /// request, if a thread has flushes or non-temporal stores pending.
    Locked,
}

/// Properties of a store beside its address and its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFlags {
    /// The store passes the cache by. It becomes persistent at the thread's next fence, without a flush.
    pub nontemporal: bool,
    /// A locked read-modify-write on PM, which is also a full fence of its thread before and after the store.
    pub locked: bool,
    /// The kernel made the store on behalf of a system call, such as `read` into PM.
    pub syscall: bool,
    /// The store is locked, and is a compare-exchange that succeeded or an exchange whose result the code
    /// uses, as code does that takes a lock. (A sequentially consistent store is an exchange whose result is
    /// not used.) False also in traces without this information.
    pub exchange: bool,
}

/// A statement about transactions or memory. Programs and PMDK make it by pmemcheck's client requests, or by
/// `CRASHPROOF_TRANSIENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The range is volatile by design or is persisted by other means, so that the stores to it so far need
    /// no flush.
    SetClean,
    /// The transaction begins, or another level of it.
    TxBegin,
    /// The transaction ends, or its innermost level.
    TxEnd,
    /// The transaction has a snapshot of the range, or has allocated it.
    TxAdd,
    /// The transaction no longer covers the range.
    TxRemove,
    /// The thread takes part in the numbered transaction from now on.
    TxJoin,
    /// The thread no longer takes part in the numbered transaction.
    TxLeave,
    /// Stores to the range need no transaction.
    TxIgnore,
    /// The range is volatile data in a PM file from now on, and stores to it may be lost by design.
    Volatile,
    /// The range is PM (again).
    Persistent,
}

/// A frame of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The module that holds the code; `None` for code outside every known module.
    pub module: Option<ModuleId>,
    /// Address relative to the module's load bias, as in debug info, or the absolute address if there is no
    /// module. The innermost frame has the address of the instruction, the others have return addresses.
    pub address: u64,
}

/// A module: an executable or a shared library.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Path of the module's file; for a module of an imported trace, the path that the log gives.
    pub path: String,
    /// GNU build id of the module; empty if it has none. A trace keeps its first 64 bytes.
    pub build_id: Vec<u8>,
    /// Number of locked read-modify-write instructions in its code. On volatile memory they are fences that
    /// the trace does not have, unless they are recorded on request.
    pub locked_sites: u32,
    /// The one place of source code that the module stands for, in a trace that is imported from a tool whose
    /// logs give source positions and no usable addresses. Such a trace has a module for each place.
    pub place: Option<ImportedPlace>,
}

/// A place of source code as another tool's log describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImportedPlace {
    /// Name of the function.
    pub function: Option<String>,
    /// Name of the source file, with or without its directory.
    pub file: Option<String>,
    /// Number of the line, as the log gives it.
    pub line: Option<u32>,
}

/// Separates, in format versions 1 to 3, the parts of the path of a module that is a place.
const SEPARATOR: char = '\u{1f}';

impl Module {
    /// The module that stands for a place in the source of the module at `path`.
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

    /// The module of a place that a path of format versions 1 to 3 holds: function, file, line and path in
    /// one text.
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

/// A PM file, or memory that stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmFile {
    /// Path of the file when the recorder saw it first, at its first mapping as a rule; for memory, a text
    /// with a number or an address. Later paths are in [`EventKind::Rename`] events.
    pub path: String,
    /// Size when the recorder saw the file first, in bytes.
    pub size: u64,
    /// Whether the recorded program made the file. False also where the trace does not have this information
    /// (format version 1, and file systems that do not store the time of birth).
    pub created: bool,
    /// Whether this is a file or memory in place of a file.
    pub kind: PmFileKind,
}

/// Kinds of [`PmFile`]s: files, and memory in place of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PmFileKind {
    /// A file.
    #[default]
    File,
    /// Memory that the program registered as persistent and that has no file.
    RegisteredMemory,
    /// Memory of an imported log that gives neither the file nor the stored data. In the trace, all stores to
    /// it store zeros.
    UnknownMemory,
}

impl PmFileKind {
    /// The kind that the path tells in format versions 1 to 3. No path of a real file begins like one of these.
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
    /// Memory of an imported log that gives neither the file nor the stored data: `size` bytes at `address`.
    pub fn of_memory(address: u64, size: u64) -> PmFile {
        PmFile {
            path: format!("memory at {address:#x}"),
            size,
            created: false,
            kind: PmFileKind::UnknownMemory,
        }
    }

    /// Whether it stands for memory that the program registered as persistent and that has no file.
    pub fn is_registered_memory(&self) -> bool {
        self.kind == PmFileKind::RegisteredMemory
    }
}

/// One event, borrowed from the reader's block buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Position in the total order, counted from 0 over all events of the trace.
    pub seq: u64,
    /// What began before the event. It is a reference because it is nearly always [`AT_ONCE`] and an event is copied often.
    pub beginning: &'a Beginning,
    /// The thread that the event belongs to. For the kinds that belong to no thread
    /// ([`EventKind::ProcessStart`], [`EventKind::Quiet`], [`EventKind::ProcessEnd`] of a process that was
    /// not killed) it may be one that has not started.
    pub thread: ThreadId,
    /// Call stack of the thread at the event. It is the unknown stack for output, for the starts and ends of
    /// threads and processes, and wherever the recorder has none.
    pub stack: StackId,
    /// The kind of event, with its data.
    pub kind: EventKind<'a>,
}

impl Event<'_> {
    /// Where it began: the position of the first event after its beginning. It is less than `seq` for a sync or an operation on a file
    /// during which other threads went on; what they did meanwhile may have come before it or after it. Otherwise it is `seq`.
    pub fn begun(&self) -> u64 {
        self.seq - self.beginning.before
    }

    /// Threads, ascending, of which a sync or an operation on a file begins just before this event, and goes on. It need not succeed.
    pub fn begins(&self) -> &[ThreadId] {
        &self.beginning.others
    }
}

/// What began before an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// So many events before its own position the event itself.
    pub before: u64,
    /// Just before it what these threads are at: see [`Event::begins`].
    pub others: Vec<ThreadId>,
}

/// Of an event that began when it came, as nothing else did.
pub static AT_ONCE: Beginning = Beginning {
    before: 0,
    others: Vec::new(),
};

/// The kind of an event, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// A store to PM of at most 64 bytes, which therefore lie in at most two lines.
    Store {
        /// First byte of the store.
        at: PmAddress,
        /// The stored bytes.
        data: &'a [u8],
        /// Properties of the store.
        flags: StoreFlags,
    },
    /// A flush of the whole line that holds `at`.
    Flush {
        /// Any byte of the line.
        at: PmAddress,
        /// The instruction.
        kind: FlushKind,
    },
    /// A fence of the event's thread.
    Fence {
        /// The instruction.
        kind: FenceKind,
    },
    /// The process of the event's thread mapped a range of a file.
    Map {
        /// The file.
        file: FileId,
        /// Virtual address of the first byte.
        address: u64,
        /// Offset of the first byte in the file.
        offset: u64,
        /// Length of the mapping in bytes. The mapping may extend beyond the end of the file.
        len: u64,
        /// Whether the program asked for the right to write when it mapped the range.
        writable: bool,
    },
    /// The process of the event's thread unmapped a range of a file. The address is not known.
    Unmap {
        /// The file.
        file: FileId,
        /// Offset of the first byte in the file.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// A file grew or was truncated.
    Resize {
        /// The file.
        file: FileId,
        /// Size of the file after the event, in bytes.
        size: u64,
    },
    /// A system call such as `write` wrote to a file, not through a mapping. The recorder also reports
    /// changes to a file that were made while no recorded process had it mapped, at the file's next mapping.
    FileWrite {
        /// First byte that was written.
        at: PmAddress,
        /// The written bytes, at most 64 KiB. A longer write is several events.
        data: &'a [u8],
    },
    /// A file got another path or lost its path.
    Rename {
        /// The file.
        file: FileId,
        /// Path of the file after the event. `None`: the file was unlinked, or another file took its path, or
        /// (before the file is mapped) it was made without a name.
        path: Option<&'a str>,
    },
    /// `msync`, `fsync` or `fdatasync` has returned, and all of the range is durable now.
    Sync {
        /// The file.
        file: FileId,
        /// Offset of the first byte in the file.
        offset: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// The program wrote to its standard output or standard error.
    Output {
        /// 1 for standard output, 2 for standard error. Results of a driver with `crashproof_driver.h` have
        /// 1, whatever the descriptor was.
        fd: u32,
        /// The written bytes, at most 64 KiB. A longer write is several events.
        data: &'a [u8],
    },
    /// A call of a known library function (`pmemobj_tx_*`), recorded at its beginning; or of a function of
    /// libc that works on a lock in PM.
    Call {
        /// Name of the function.
        name: &'a str,
        /// The six register arguments of the call. For a function that works on a lock: address and size of
        /// the lock, then zeros.
        arguments: [u64; 6],
    },
    /// A library function has returned. A function that allocates outside transactions has this event only,
    /// because the object is known when it returns.
    Return(CallReturn<'a>),
    /// The program makes a statement about itself.
    Annotation(Annotation<'a>),
    /// The program or PMDK makes a statement about a transaction or about memory.
    Request {
        /// The statement.
        request: Request,
        /// Number of the transaction; 0 for the thread's own. It has no meaning for requests about memory
        /// alone.
        transaction: u64,
        /// First byte and length in bytes of the memory in question. A request about memory in several
        /// mappings is several events.
        range: Option<(PmAddress, u64)>,
    },
    /// A thread starts, or the recorder sees it for the first time: the thread of the event.
    ThreadStart {
        /// Process of the thread.
        process: ProcessId,
        /// Thread id of the operating system.
        os_id: u32,
    },
    /// A process starts, or an exec replaces its program.
    ProcessStart {
        /// Id of the new process.
        process: ProcessId,
        /// Process id of the operating system.
        pid: u32,
        /// The process that forked this one, or that executed its program; `None` for the first process.
        parent: Option<ProcessId>,
        /// Path of the executable.
        executable: &'a str,
    },
    /// A process ended or was replaced by an exec. Its mappings are gone.
    ProcessEnd {
        /// The process.
        process: ProcessId,
        /// True if the process ended without logging its end, because a signal killed it. The thread of the
        /// event is then the process's first. Always false in traces before version 4.
        killed: bool,
    },
    /// No process logged anything for so long that none can have been in the middle of an update. A reader
    /// that shows files only ([`TraceFile::files`](crate::TraceFile::files)) also gives this in
    /// place of an event of registered memory.
    Quiet,
    /// An access to PM by code that tracks dependences. A store has this event beside its [`EventKind::Store`].
    Access {
        /// True for a store, false for a load.
        store: bool,
        /// Number of the access, by which later accesses refer to it. Numbers are unique in the run,
        /// ascending, and below 2⁶³.
        node: u64,
        /// First byte of the access.
        at: PmAddress,
        /// Length of the whole access in bytes. The access of a library function may be long.
        len: u32,
        /// Earlier loads that the access depends on.
        depends: Dependences<'a>,
    },
    /// An operation of code that tracks dependences has ended.
    Path {
        /// Digest of the set of basic blocks that the operation executed.
        blocks: u64,
        /// Number of labels that lost members because they had too many.
        cuts: u64,
    },
}

impl EventKind<'_> {
    /// Whether it says nothing of what its thread is at.
    pub fn is_of_no_thread(&self) -> bool {
        matches!(
            self,
            EventKind::ThreadStart { .. }
                | EventKind::ProcessStart { .. }
                | EventKind::ProcessEnd { killed: false, .. }
                | EventKind::Quiet
        )
    }
}

/// Why a trace may not hold everything that happened.
/// A reason why a trace may lack something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The class of the reason.
    pub reason: IncompleteReason,
    /// The reason in words, for the user.
    pub detail: String,
}

/// The class of a reason why a trace may lack something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteReason {
    /// Bytes in the program could be a flush or a fence and could not be verified to be code.
    UnverifiedCode,
    /// The program did something that the recorder cannot follow.
    Unsupported,
    /// The program exceeded a fixed limit of the recorder.
    Limit,
    /// A file holds something else than the result of replaying the log.
    Mismatch,
    /// The disk was full, or the trace could not be written for another reason.
    WriteFailed,
    /// The trace ends without its end record (recorder killed, file truncated).
    Truncated,
    /// Records were lost or could not be understood, because a process died while it logged or overwrote the
    /// log.
    Lost,
}

/// A file that the program mapped or tried to open, and of which the trace has no events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeftOut {
    /// Path of the file.
    pub path: String,
    /// Why it was left out.
    pub reason: LeftOutReason,
    /// Error number of the failed call, of [`LeftOutReason::OpenFailed`].
    pub errno: Option<i32>,
}

/// How the recorded command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramEnd {
    /// Exit status, if the command exited.
    pub status: Option<i32>,
    /// Number of the signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// The user pressed Ctrl-C at the recorder.
    pub interrupted: bool,
    /// The user sent the recorder a signal that asks it to end (SIGTERM, SIGHUP), and the recorder passed it
    /// on.
    pub terminated: bool,
}

/// Numbers of the most frequent events of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`EventKind::Store`] events.
    pub stores: u64,
    /// [`EventKind::Flush`] events.
    pub flushes: u64,
    /// [`EventKind::Fence`] events.
    pub fences: u64,
}
