//! Library functions that need no bitcode, because what they write is known.
//!
//! A persistent subprogram (section 4.2.4) has to flush whatever it writes. The paper does not say what happens to callees without
//! bitcode; here such a callee is known, or the candidate is out.

/// What a call does to memory that its caller passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the caller would have to flush: it writes only memory of its own, or makes durable what it writes.
    Nothing,
    /// A range that starts at an argument.
    Writes(Written),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Index of the argument that points to the first byte.
    pub destination: u32,
    pub length: Length,
}

/// How much of a range a call has written, when it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As much as this argument says.
    Argument(u32),
    /// The string at the destination, with its zero.
    String,
    /// What `snprintf` returned, and the zero, but no more than the argument says; nothing if that is 0.
    Printed { size: u32 },
    /// As many bytes as it returned, if that is positive.
    Returned,
    /// Always so many bytes: of an intrinsic of the compiler's headers.
    Constant(u64),
}

/// Of a library function or memory intrinsic, by its linkage name; `None` if nothing is known of it.
pub fn effect(name: &str) -> Option<Effect> {
    if let Some(written) = written(name) {
        return Some(Effect::Writes(written));
    }
    let harmless =
        HARMLESS.binary_search(&name).is_ok() || HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    harmless.then_some(Effect::Nothing)
}

/// Of a library function or memory intrinsic that writes a range which it is given.
pub fn written(name: &str) -> Option<Written> {
    let name = match name.strip_prefix("llvm.") {
        Some(intrinsic) => {
            let (operation, rest) = intrinsic.split_once('.')?;
            if rest.starts_with("element.") || !["memcpy", "memmove", "memset"].contains(&operation) {
                return None;
            }
            operation
        }
        None => name
            .strip_prefix("__")
            .and_then(|name| name.strip_suffix("_chk"))
            .unwrap_or(name),
    };
    let (destination, length) = match name {
        "memcpy" | "memmove" | "memset" | "mempcpy" | "strncpy" | "stpncpy" => (0, Length::Argument(2)),
        "bzero" | "explicit_bzero" => (0, Length::Argument(1)),
        "bcopy" => (1, Length::Argument(2)),
        "strcpy" | "stpcpy" | "strcat" | "strncat" | "sprintf" | "vsprintf" => (0, Length::String),
        "snprintf" | "vsnprintf" => (0, Length::Printed { size: 1 }),
        "read" | "pread" | "pread64" | "recv" | "recvfrom" => (1, Length::Returned),
        "getrandom" => (0, Length::Returned),
        _ => return None,
    };
    Some(Written { destination, length })
}

/// Library functions that fence before they return, whatever happens.
pub fn fences(name: &str) -> bool {
    const FENCING: [&str; 13] = [
        "pmem_drain",
        "pmem_memcpy_persist",
        "pmem_memmove_persist",
        "pmem_memset_persist",
        "pmem_msync",
        "pmem_persist",
        "pmemobj_drain",
        "pmemobj_memcpy_persist",
        "pmemobj_memmove_persist",
        "pmemobj_memset_persist",
        "pmemobj_persist",
        "pmemobj_tx_commit",
        "pmemobj_xpersist",
    ];
    FENCING.contains(&name)
}

/// PMDK makes durable what it writes on its own account, or asks for a drain; C++ streams and the unwinder keep to ordinary memory.
const HARMLESS_PREFIXES: [&str; 15] = [
    "_ZNSo",
    "_ZNSt8ios_base",
    "_ZStls",
    "_ZSt16__ostream_insert",
    "_ZSt4endl",
    "_ZSt17__throw_",
    "_ZSt20__throw_",
    "_ZSt19__throw_",
    "_ZSt9terminatev",
    "__cxa_",
    "pmem2_",
    "pmem_",
    "pmemobj_",
    "llvm.va_",
    "_Unwind_",
];

/// Sorted.
#[rustfmt::skip]
const HARMLESS: [&str; 151] = [
    "_ZdaPv", "_ZdaPvm", "_ZdlPv", "_ZdlPvSt11align_val_t", "_ZdlPvm", "_ZdlPvmSt11align_val_t", "_Znam",
    "_ZnamRKSt9nothrow_t", "_Znwm", "_ZnwmRKSt9nothrow_t", "_ZnwmSt11align_val_t", "__assert_fail",
    "__clang_call_terminate", "__ctype_b_loc", "__ctype_tolower_loc", "__ctype_toupper_loc", "__errno_location",
    "__fprintf_chk", "__gxx_personality_v0", "__isoc99_strtol", "__printf_chk", "__stack_chk_fail", "__vfprintf_chk",
    "__vprintf_chk", "_exit", "abort", "abs", "access", "aligned_alloc", "assert", "atof", "atoi", "atol", "atoll",
    "bcmp", "calloc", "ceil", "close", "exit", "fabs", "fclose", "fdatasync", "feof", "ferror", "fflush", "fileno",
    "floor", "fopen", "fprintf", "fputc", "fputs", "free", "fsync", "ftruncate", "fwrite", "getenv", "getpid",
    "index", "isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper", "labs", "llvm.assume",
    "llvm.debugtrap", "llvm.eh.typeid.for", "llvm.eh.typeid.for.p0", "llvm.expect.i64", "llvm.frameaddress.p0",
    "llvm.lifetime.end.p0", "llvm.lifetime.start.p0", "llvm.prefetch.p0", "llvm.readcyclecounter",
    "llvm.returnaddress", "llvm.stackrestore.p0", "llvm.stacksave.p0", "llvm.threadlocal.address.p0", "llvm.trap",
    "llvm.x86.clflushopt", "llvm.x86.clwb", "llvm.x86.sse.sfence", "llvm.x86.sse2.clflush", "llvm.x86.sse2.lfence",
    "llvm.x86.sse2.mfence", "llvm.x86.sse2.pause", "log", "malloc", "memchr", "memcmp", "memmem", "memrchr", "mmap",
    "msync", "munmap", "open", "perror", "posix_fallocate", "pow", "printf", "pthread_cond_broadcast",
    "pthread_cond_signal", "pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_unlock",
    "pthread_rwlock_rdlock", "pthread_rwlock_unlock", "pthread_rwlock_wrlock", "pthread_self", "pthread_spin_lock",
    "pthread_spin_unlock", "putc", "putchar", "puts", "pwrite", "raise", "rand", "random", "realloc", "rindex",
    "sched_yield", "send", "sleep", "sqrt", "srand", "srandom", "strcasecmp", "strchr", "strcmp", "strcoll",
    "strcspn", "strdup", "strerror", "strlen", "strncasecmp", "strncmp", "strndup", "strnlen", "strpbrk", "strrchr",
    "strspn", "strstr", "sysconf", "tolower", "toupper", "usleep", "vfprintf", "vprintf", "write", "writev",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(HARMLESS.is_sorted());
    }

    #[test]
    fn memory_functions_in_all_their_names() {
        for name in [
            "memcpy",
            "llvm.memcpy.p0.p0.i64",
            "__memmove_chk",
            "llvm.memset.p0.i64",
            "strncpy",
        ] {
            let expected = Written {
                destination: 0,
                length: Length::Argument(2),
            };
            assert_eq!(written(name), Some(expected), "{name}");
        }
        for name in [
            "memcpy2",
            "llvm.memcpy.element.unordered.atomic.p0.p0.i64",
            "llvm.sqrt.f64",
            "memchr",
        ] {
            assert_eq!(written(name), None, "{name}");
        }
        assert_eq!(effect("strlen"), Some(Effect::Nothing));
        assert_eq!(effect("qsort"), None);
    }
}
