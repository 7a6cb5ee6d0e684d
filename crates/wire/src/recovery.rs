//! What the runtime inside a recovery program (`crashproof crash`) shares with the worker outside it: which files are PM,
//! which pages the recovery wrote, which parts of the crash image it looked at, and the words of the fork server.
//!
//! The worker fills everything that is not atomic before the recovery starts. It sets the atomics to 0 before each run
//! and reads them after it.

use core::sync::atomic::{AtomicU32, AtomicU64};

pub const MAGIC: u64 = u64::from_le_bytes(*b"CRSHRCV\0");
pub const VERSION: u32 = 4;
/// Names the file that holds [`Recovery`], in the environment of the recovery program.
pub const RECOVERY_ENV: &str = "CRASHPROOF_RECOVERY";
/// The number of the descriptor on which the fork server speaks; without it the program runs once, watched.
pub const SERVER_ENV: &str = "CRASHPROOF_SERVER";

/// The value of `LD_BIND_NOW` in the fork server, if the user has set none: the functions that the program calls are looked up
/// once there, not in each copy. The copies do not see it.
pub const BIND_NOW: &str = "crashproof";

pub const MAX_FILES: usize = 256;
pub const MAX_MAPPINGS: usize = 1024;
pub const MAX_FINE: usize = 1 << 16;
pub const MAX_LOG: usize = 1 << 18;
pub const MAX_ARGUMENTS: usize = 16 << 10;
pub const PAGE: u64 = 4096;

/// Only the first write to each page is noted, so that it can be put back.
pub const TRACK_WRITES: u32 = 0;
/// The first touch of each page (of each line in `fine` pages) is noted too, in order.
pub const TRACK_READS: u32 = 1;
/// Nothing is noted, and no page is closed: the worker compares the files after the run. Where a run writes to many pages of a small
/// file that is faster.
pub const TRACK_NOTHING: u32 = 2;

/// What a [`Prepare`] begins with.
pub const PREPARE_MAGIC: [u64; 2] = [u64::from_le_bytes(*b"crashpro"), u64::from_le_bytes(*b"of:ready")];

/// A program that has one in its writable data, at a multiple of [`PREPARE_ALIGN`], has a function for the fork server to call before it first
/// forks, with the arguments of that run: it does once what all runs would do. `crashproof_driver.h` has one.
#[repr(C)]
pub struct Prepare {
    pub magic: [u64; 2],
    /// Address of a C function of `argc` and `argv`.
    pub function: usize,
}

pub const PREPARE_ALIGN: usize = 16;

/// Why the logs may not hold all that the recovery did; bits of [`Recovery::unwatched`].
pub const UNWATCHED_EXEC: u32 = 1;
/// A log is full.
pub const UNWATCHED_OVERFLOW: u32 = 2;
/// Something that the runtime cannot follow.
pub const UNWATCHED_OTHER: u32 = 4;
/// Several threads or processes touched PM: the order of touches may differ from run to run.
pub const UNWATCHED_CONCURRENT: u32 = 8;

/// A PM file, as the recovery program sees it: `st_dev` and `st_ino` of its `fstat`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct File {
    pub dev: u64,
    pub ino: u64,
}

/// Where the recorded program had PM mapped: a mapping without a hint goes there again, for the raw pointers in it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Index in `files`.
    pub file: u32,
    pub reserved: u32,
    pub offset: u64,
    pub len: u64,
    pub address: u64,
}

#[repr(C)]
pub struct Recovery {
    pub magic: u64,
    pub version: u32,
    /// `TRACK_*`
    pub track: u32,
    pub file_count: u32,
    pub mapping_count: u32,
    pub fine_count: u32,
    /// Processes that the runtime watches: 0 after a run means that nothing was watched.
    pub started: AtomicU32,
    /// `UNWATCHED_*`
    pub unwatched: AtomicU32,
    pub written_count: AtomicU32,
    pub touched_count: AtomicU32,
    /// The process that the fork server has forked; 0 before.
    pub child: AtomicU32,
    /// Bytes of `arguments`.
    pub arguments_len: u32,
    /// What the program is given after its own arguments, in the next run: each ends with a zero byte.
    pub arguments: [u8; MAX_ARGUMENTS],
    pub files: [File; MAX_FILES],
    pub mappings: [Mapping; MAX_MAPPINGS],
    /// Pages (units) whose lines are told apart, ascending.
    pub fine: [u64; MAX_FINE],
    /// Pages (units) that were written to, each at least once.
    pub written: [AtomicU64; MAX_LOG],
    /// Units that were touched, by load, store or system call, in the order of the first touch.
    pub touched: [AtomicU64; MAX_LOG],
}

impl Recovery {
    /// As they lie in `arguments`: whole ones only.
    pub fn arguments(&self) -> &[u8] {
        let given = &self.arguments[..(self.arguments_len as usize).min(MAX_ARGUMENTS)];
        let end = given.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1);
        &given[..end]
    }
}

// A unit in one word: the file's index in the upper 24 bits, the line's number in it in the next 39 (files are not larger than
// 32 TiB), and 1 in the last bit for a line.
const UNIT_FILE: u32 = 40;

/// A page of a PM file.
pub const fn page_unit(file: u32, offset: u64) -> u64 {
    (file as u64) << UNIT_FILE | (offset & !(PAGE - 1)) >> 5
}

/// A line of a PM file.
pub const fn line_unit(file: u32, offset: u64) -> u64 {
    (file as u64) << UNIT_FILE | (offset & !63) >> 5 | 1
}

/// (file, offset, length)
pub const fn parse_unit(unit: u64) -> (u32, u64, u64) {
    let file = (unit >> UNIT_FILE) as u32;
    let offset = (unit & ((1 << UNIT_FILE) - 2)) << 5;
    (file, offset, if unit & 1 == 0 { PAGE } else { 64 })
}

/// The words of the fork server, each a u64 (little-endian) on a stream socket: the tag in the low byte, the rest above.
pub mod server {
    /// Server: parked at `main`.
    pub const READY: u8 = 1;
    /// Server: cannot park here; the rest is a `CANNOT_*`. It then waits to be killed.
    pub const CANNOT: u8 = 2;
    /// Supervisor: fork and run.
    pub const RUN: u8 = 3;
    /// Server: the rest is the child's wait status (32 bits).
    pub const ENDED: u8 = 4;

    /// There are several threads before `main`.
    pub const CANNOT_THREADS: u64 = 1;
    /// A constructor opened or mapped a PM file.
    pub const CANNOT_PM_OPEN: u64 = 2;
    /// A constructor opened something that runs would share.
    pub const CANNOT_DESCRIPTORS: u64 = 3;

    pub const fn word(tag: u8, rest: u64) -> u64 {
        tag as u64 | rest << 8
    }

    pub const fn parse(word: u64) -> (u8, u64) {
        (word as u8, word >> 8)
    }
}
