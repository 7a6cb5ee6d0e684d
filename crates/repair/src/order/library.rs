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
