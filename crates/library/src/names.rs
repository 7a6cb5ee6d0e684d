//! The names that one function goes by.

/// What a name begins with that the headers choose for a version of the standard.
const STANDARDS: [&str; 2] = ["__isoc99_", "__isoc23_"];

/// Functions that have a second name for large files (`fopen64`). Other names that end so may be anything: `read64` reads a device.
const LARGE: &str = "fopen freopen tmpfile mmap pread pwrite lseek open openat creat ftruncate truncate fallocate posix_fallocate \
    posix_fadvise stat fstat lstat fstatat statfs fseeko ftello readdir preadv pwritev sendfile fgetpos fsetpos getrlimit \
    setrlimit scandir __xstat __fxstat __lxstat";

/// The names under which the table may have a function, the exact one first. Variants do the same and have the same arguments
/// first: checked ones (`__memcpy_chk`), the names that the C library keeps for itself (`__stpcpy`), those for a version of the
/// standard or for large files, and those with the version of the symbol.
pub(crate) fn variants(name: &str) -> impl Iterator<Item = &str> {
    let exact = name.strip_prefix('\u{1}').unwrap_or(name);
    let exact = exact.split('@').next().unwrap_or(exact);
    let exact = exact.strip_prefix("__builtin_").unwrap_or(exact);
    let exact = intrinsic(exact).unwrap_or(exact);
    let standard = STANDARDS.iter().find_map(|prefix| exact.strip_prefix(prefix));
    let plain = standard.or_else(|| exact.strip_prefix("__")).unwrap_or(exact);
    let plain = plain.strip_suffix("_chk").unwrap_or(plain);
    let small = [exact, plain].into_iter().filter_map(|name| {
        let small = name.strip_suffix("64")?;
        LARGE
            .split_ascii_whitespace()
            .any(|large| large == small)
            .then_some(small)
    });
    [exact, plain].into_iter().chain(small)
}

/// The function that an intrinsic of LLVM stands for: `memcpy` for `llvm.memcpy.p0.p0.i64`. None for those that copy element by
/// element.
pub fn intrinsic(name: &str) -> Option<&str> {
    let (operation, rest) = name.strip_prefix("llvm.")?.split_once('.')?;
    let is_memory = ["memcpy", "memmove", "memset"].contains(&operation);
    (is_memory && !rest.starts_with("element.")).then_some(operation)
}

/// Whether a function is of libpmem, libpmem2 or libpmemobj. What they write on their own account is persistent, or theirs to flush; and
/// they may fence.
pub fn is_pmdk(name: &str) -> bool {
    ["pmem_", "pmem2_", "pmemobj_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}
