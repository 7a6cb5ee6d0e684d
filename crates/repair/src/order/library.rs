//! What is known of library functions that are in the way of a move.

/// Library functions that flush, fence, or both, and do nothing else.
pub const PERSISTING: [&str; 9] = [
    "pmem_persist",
    "pmem_flush",
    "pmem_deep_flush",
    "pmem_drain",
    "pmemobj_persist",
    "pmemobj_flush",
    "pmemobj_drain",
    "pmemobj_xpersist",
    "pmemobj_xflush",
];

/// Functions of PMDK that make an address of an object's id, in the library or in its headers; what they keep is of no concern to others.
pub const POINTING: [&str; 2] = ["pmemobj_direct", "pmemobj_direct_inline"];

/// What a function of PMDK copies or fills; indices are of its arguments.
pub struct Copying {
    pub destination: usize,
    pub size: usize,
    /// It waits for what was flushed, or may.
    pub fences: bool,
    /// Flags that say how follow the size.
    pub has_flags: bool,
}

/// Of PMDK's functions that write a range and flush it: `pmem_memcpy_persist`, `pmemobj_memset` and their like.
pub fn copying(name: &str) -> Option<Copying> {
    let (destination, name) = match name.strip_prefix("pmemobj_") {
        Some(name) => (1, name),
        None => (0, name.strip_prefix("pmem_")?),
    };
    let operations = ["memcpy", "memmove", "memset"];
    let rest = operations.iter().find_map(|operation| name.strip_prefix(operation))?;
    ["", "_persist", "_nodrain"].contains(&rest).then_some(Copying {
        destination,
        size: destination + 2,
        fences: rest != "_nodrain",
        has_flags: rest.is_empty(),
    })
}

/// Flags of the copying functions: `PMEM_F_MEM_NODRAIN` and `PMEM_F_MEM_NOFLUSH`, which libpmemobj gives the same values.
pub const NOT_WAITING: u64 = 1 << 0 | 1 << 5;

/// Functions of libpmemobj that leave nothing that waits for a fence: what they update is persistent when they return ("fail-safe atomic", libpmemobj's manual), or the pool is
/// ready for use.
pub const SETTLING: [&str; 13] = [
    "pmemobj_create",
    "pmemobj_open",
    "pmemobj_root",
    "pmemobj_zalloc",
    "pmemobj_realloc",
    "pmemobj_zrealloc",
    "pmemobj_strdup",
    "pmemobj_wcsdup",
    "pmemobj_free",
    "pmemobj_list_insert",
    "pmemobj_list_remove",
    "pmemobj_list_move",
    "pmemobj_type_num",
];

/// The same of those that call a constructor, their last argument but one, which may be null.
pub const CONSTRUCTING: [&str; 2] = ["pmemobj_alloc", "pmemobj_list_insert_new"];

/// Instructions that compute in registers, or wait, when they have no operand in memory.
pub const REGISTERS: [&str; 16] = [
    "rdtsc", "rdtscp", "pause", "nop", "bsf", "bsfl", "bsfq", "bsr", "bsrl", "bsrq", "bswap", "lzcnt", "tzcnt",
    "popcnt", "lzcntq", "tzcntq",
];

/// Library functions that only read what they are given.
pub const READING: [&str; 13] = [
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "memcmp",
    "bcmp",
    "strchr",
    "strrchr",
    "memchr",
    "atoi",
    "atol",
    "strstr",
];

/// Library functions that read a text by a format, and store what it says where their further arguments point to.
pub const SCANNING: [&str; 3] = ["sscanf", "__isoc99_sscanf", "__isoc23_sscanf"];

/// Library functions that tell the outside something.
pub const OUTPUT: [&str; 14] = [
    "printf", "fprintf", "dprintf", "vprintf", "vfprintf", "puts", "fputs", "putchar", "fputc", "putc", "write",
    "fwrite", "perror", "send",
];

/// Functions of the header that a repair adds (`crashproof_pm.h`): which instruction they flush with, they ask once.
pub const OWN: [&str; 3] = ["crashproof_flush", "crashproof_fence", "crashproof_persist"];

/// Library functions that do something to files and store nothing.
pub const FILES: [&str; 9] = [
    "rename", "renameat", "unlink", "remove", "truncate", "link", "symlink", "mkdir", "rmdir",
];

/// Intrinsics that touch no memory, by their beginnings.
pub const COMPUTING: [&str; 24] = [
    "llvm.abs.",
    "llvm.annotation",
    "llvm.assume",
    "llvm.bitreverse.",
    "llvm.bswap.",
    "llvm.ceil.",
    "llvm.ctlz.",
    "llvm.ctpop.",
    "llvm.cttz.",
    "llvm.dbg.",
    "llvm.expect.",
    "llvm.fabs.",
    "llvm.floor.",
    "llvm.fmuladd.",
    "llvm.fshl.",
    "llvm.fshr.",
    "llvm.is.constant.",
    "llvm.lifetime.",
    "llvm.objectsize.",
    "llvm.ptrmask.",
    "llvm.smax.",
    "llvm.smin.",
    "llvm.umax.",
    "llvm.umin.",
];
