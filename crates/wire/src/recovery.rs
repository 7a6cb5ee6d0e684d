//! The memory that the runtime inside a recovery program (`crashproof crash`) shares with the worker outside
//! it. It holds the PM files, the pages that the recovery wrote, and the parts of the crash image that it
//! read. [`server`] has the words of the fork server.
//!
//! The worker fills in everything that is not atomic before the recovery starts. Before each run it sets the
//! atomics to 0, and after the run it reads them.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the shared file, by which the runtime recognises it ([`Recovery::magic`]).
pub const MAGIC: u64 = u64::from_le_bytes(*b"CRSHRCV\0");
/// Version of the layout of [`Recovery`]. A runtime watches only with its own version.
pub const VERSION: u32 = 4;
/// Environment variable of the recovery program that holds the path of the file with [`Recovery`].
pub const RECOVERY_ENV: &str = "CRASHPROOF_RECOVERY";
/// Environment variable that holds the number of the fork server's socket. Without it the program runs once
/// and is watched.
pub const SERVER_ENV: &str = "CRASHPROOF_SERVER";

/// Value of `LD_BIND_NOW` in the fork server, unless the user has set the variable. The functions that the
/// program calls are then looked up once in the server and not in each copy. The copies do not see the
/// variable.
pub const BIND_NOW: &str = "crashproof";

/// PM files that a recovery may have.
pub const MAX_FILES: usize = 256;
/// Recorded mappings that [`Recovery`] has room for.
pub const MAX_MAPPINGS: usize = 1024;
/// Pages whose lines are noted one by one that [`Recovery`] has room for.
pub const MAX_FINE: usize = 1 << 16;
/// Units that each of the two logs has room for.
pub const MAX_LOG: usize = 1 << 18;
/// Bytes of arguments that [`Recovery`] has room for.
pub const MAX_ARGUMENTS: usize = 16 << 10;
/// Bytes in a page.
pub const PAGE: u64 = 4096;

/// The runtime notes the first write to each page, so that the worker can restore the page.
pub const TRACK_WRITES: u32 = 0;
/// The runtime also notes the first touch of each page (in the pages of [`Recovery::fine`], of each line), in
/// order.
pub const TRACK_READS: u32 = 1;
/// The runtime notes nothing and leaves all pages accessible, and the worker compares the files after the
/// run. This is faster if a run writes to many pages of a small file.
pub const TRACK_NOTHING: u32 = 2;

/// The first words of a [`Prepare`].
pub const PREPARE_MAGIC: [u64; 2] = [u64::from_le_bytes(*b"crashpro"), u64::from_le_bytes(*b"of:ready")];

/// A structure by which a program offers a function that does once what every run would do. The program has
/// it in its writable data, at a multiple of [`PREPARE_ALIGN`]. The fork server calls the function before its
/// first fork, with the arguments of the first run. `crashproof_driver.h` defines such a structure.
#[repr(C)]
pub struct Prepare {
    /// [`PREPARE_MAGIC`].
    pub magic: [u64; 2],
    /// Address of a C function with the parameters `argc` and `argv`.
    pub function: usize,
}

/// Alignment of a [`Prepare`] in bytes.
pub const PREPARE_ALIGN: usize = 16;

/// Bit of [`Recovery::unwatched`]: the recovery executed another program, which may not have the runtime.
pub const UNWATCHED_EXEC: u32 = 1;
/// Bit of [`Recovery::unwatched`]: a log is full, or another table of the runtime. Nothing was noted from
/// then on.
pub const UNWATCHED_OVERFLOW: u32 = 2;
/// Bit of [`Recovery::unwatched`]: the recovery did something that the runtime cannot follow.
pub const UNWATCHED_OTHER: u32 = 4;
/// Bit of [`Recovery::unwatched`]: there were several threads or processes, so that the order of touches may
/// differ from run to run. The logs are complete all the same.
pub const UNWATCHED_CONCURRENT: u32 = 8;

/// A PM file, by the identity that `fstat` gives in the recovery program. A file that is not there has an
/// identity that no file has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// `st_dev`.
    pub dev: u64,
    /// `st_ino`.
    pub ino: u64,
}

/// A mapping of PM in the recorded program. The recovery's mapping of the same part, if it has no hint, gets
/// the same address, because PM may hold raw pointers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Index of the file in [`Recovery::files`].
    pub file: u32,
    /// Padding, always 0.
    pub reserved: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Address of the first byte in the recorded program.
    pub address: u64,
}

/// The shared file of one sandbox, from its first byte to its last.
#[repr(C)]
pub struct Recovery {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`] of the worker.
    pub version: u32,
    /// A `TRACK_*`: the events that the runtime notes.
    pub track: u32,
    /// Number of `files` in use.
    pub file_count: u32,
    /// Number of `mappings` in use.
    pub mapping_count: u32,
    /// Number of `fine` pages in use.
    pub fine_count: u32,
    /// Number of processes in which the runtime began to watch the program. 0 after a run means that nothing
    /// was watched.
    pub started: AtomicU32,
    /// Reasons why the logs may not hold everything that the recovery did: bits of `UNWATCHED_*`.
    pub unwatched: AtomicU32,
    /// Number of units in `written`.
    pub written_count: AtomicU32,
    /// Number of units in `touched`.
    pub touched_count: AtomicU32,
    /// Process id of the copy that the fork server has forked for this run; 0 before the fork.
    pub child: AtomicU32,
    /// Number of bytes in `arguments`.
    pub arguments_len: u32,
    /// Arguments that the program gets after its own in the next run, each ended by a zero byte.
    pub arguments: [u8; MAX_ARGUMENTS],
    /// The PM files. Units and mappings refer to them by index.
    pub files: [File; MAX_FILES],
    /// Mappings of the recorded program.
    pub mappings: [Mapping; MAX_MAPPINGS],
    /// Pages (units) in which touches are noted by line, ascending.
    pub fine: [u64; MAX_FINE],
    /// Log of the pages (units) that were written to. A page may be in it more than once.
    pub written: [AtomicU64; MAX_LOG],
    /// Log of the units that a load, a store or a system call touched, in the order of the first touches.
    pub touched: [AtomicU64; MAX_LOG],
}

impl Recovery {
    /// The bytes of `arguments` in use, up to the end of the last whole argument.
    pub fn arguments(&self) -> &[u8] {
        let given = &self.arguments[..(self.arguments_len as usize).min(MAX_ARGUMENTS)];
        let end = given.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1);
        &given[..end]
    }
}

// A unit in one word: the file's index in the upper 24 bits, the line's number in it in the next 39 (files
// are not larger than 32 TiB), and 1 in the last bit for a line.
const UNIT_FILE: u32 = 40;

/// The unit of the page that holds byte `offset` of a file (an index in [`Recovery::files`]).
pub const fn page_unit(file: u32, offset: u64) -> u64 {
    (file as u64) << UNIT_FILE | (offset & !(PAGE - 1)) >> 5
}

/// The unit of the cache line that holds byte `offset` of a file (an index in [`Recovery::files`]).
pub const fn line_unit(file: u32, offset: u64) -> u64 {
    (file as u64) << UNIT_FILE | (offset & !63) >> 5 | 1
}

/// The file of a unit (an index in [`Recovery::files`]), its offset in the file, and its length in bytes.
pub const fn parse_unit(unit: u64) -> (u32, u64, u64) {
    let file = (unit >> UNIT_FILE) as u32;
    let offset = (unit & ((1 << UNIT_FILE) - 2)) << 5;
    (file, offset, if unit & 1 == 0 { PAGE } else { 64 })
}

/// The words that supervisor and fork server exchange on a stream socket. Each is a little-endian u64 with a
/// tag in the low byte and an argument above it.
pub mod server {
    /// From the server: the program is parked at `main`. No argument.
    pub const READY: u8 = 1;
    /// From the server: the program cannot be parked; the argument is a `CANNOT_*`. The server then waits to
    /// be killed.
    pub const CANNOT: u8 = 2;
    /// From the supervisor: fork and run. No argument.
    pub const RUN: u8 = 3;
    /// From the server: the copy has ended; the argument is its wait status (32 bits).
    pub const ENDED: u8 = 4;

    /// The program has several threads before `main`.
    pub const CANNOT_THREADS: u64 = 1;
    /// A constructor of the program opened or mapped a PM file.
    pub const CANNOT_PM_OPEN: u64 = 2;
    /// A constructor of the program opened something that all runs would share.
    pub const CANNOT_DESCRIPTORS: u64 = 3;

    /// The word with this tag and this argument, of which 56 bits fit.
    pub const fn word(tag: u8, rest: u64) -> u64 {
        tag as u64 | rest << 8
    }

    /// The tag and the argument of a word.
    pub const fn parse(word: u64) -> (u8, u64) {
        (word as u8, word >> 8)
    }
}
