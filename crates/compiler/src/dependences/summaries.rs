//! What library functions do, as far as labels are concerned: which bytes they read, write and copy, and what their result comes from.
//!
//! A function of the program's own is labelled itself; this is for those that come from libraries, by their names. Of one that is not here nothing
//! is known: its result carries no label, and what it loads from PM is not seen.

/// How many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Argument(u32),
    Product(u32, u32),
    /// What the function returned, unless that is negative.
    Result,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reads what an argument points to; the result depends on it.
    Read(u32, Extent),
    /// The same for a string, or so many bytes of it as an argument says.
    Text(u32, Option<u32>),
    /// Two strings are read as far as they are equal.
    Compare(u32, u32, Option<u32>),
    /// To, from, bytes.
    Copy(u32, u32, u32),
    /// To, from: a string with its end, or so many bytes of it.
    CopyText(u32, u32, Option<u32>),
    /// To, value, bytes.
    Fill(u32, u32, u32),
    /// Writes something of its own there.
    Written(u32, Extent),
    /// Returns memory of its own, with nothing in it.
    Fresh(Extent),
    /// Returns a copy of a string.
    Duplicate(u32),
    /// Returns memory that holds what an argument points to: argument, bytes.
    Moved(u32, u32),
    /// The result depends on an argument.
    From(u32),
    /// The result depends on all arguments.
    FromAll,
}

use Effect::*;
use Extent::*;

/// What is known of a function; `None`: nothing.
pub fn of(name: &str) -> Option<&'static [Effect]> {
    // libc's own names of what a header replaces, and the versions that check bounds.
    let plain = name.strip_prefix("__").and_then(|name| name.strip_suffix("_chk"));
    let name = plain.unwrap_or(name);
    SUMMARIES
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map(|(_, effects)| *effects)
}

const SUMMARIES: &[(&[&str], &[Effect])] = &[
    (&["strlen"], &[Text(0, None)]),
    (&["strnlen"], &[Text(0, Some(1))]),
    (&["strcmp", "strcoll"], &[Compare(0, 1, None)]),
    (&["strncmp"], &[Compare(0, 1, Some(2))]),
    (&["strcasecmp"], &[Text(0, None), Text(1, None)]),
    (&["strncasecmp"], &[Text(0, Some(2)), Text(1, Some(2))]),
    (&["memcmp", "bcmp"], &[Read(0, Argument(2)), Read(1, Argument(2))]),
    (&["memchr", "memrchr"], &[Read(0, Argument(2)), From(0), From(1)]),
    (
        &["strchr", "strrchr", "index", "rindex"],
        &[Text(0, None), From(0), From(1)],
    ),
    (
        &["strstr", "strpbrk", "strcasestr"],
        &[Text(0, None), Text(1, None), From(0)],
    ),
    (&["strspn", "strcspn"], &[Text(0, None), Text(1, None)]),
    (&["memcpy", "memmove"], &[Copy(0, 1, 2), From(0)]),
    (&["mempcpy"], &[Copy(0, 1, 2), From(0), From(2)]),
    (&["strcpy", "stpcpy"], &[CopyText(0, 1, None), From(0)]),
    (&["strncpy", "stpncpy"], &[CopyText(0, 1, Some(2)), From(0)]),
    (&["memset"], &[Fill(0, 1, 2), From(0)]),
    (&["bzero", "explicit_bzero"], &[Written(0, Argument(1))]),
    // libpmem.
    (
        &[
            "pmem_memcpy",
            "pmem_memcpy_persist",
            "pmem_memcpy_nodrain",
            "pmem_memmove",
            "pmem_memmove_persist",
            "pmem_memmove_nodrain",
        ],
        &[Copy(0, 1, 2), From(0)],
    ),
    (
        &["pmem_memset", "pmem_memset_persist", "pmem_memset_nodrain"],
        &[Fill(0, 1, 2), From(0)],
    ),
    // libpmemobj; the pool is the first argument.
    (
        &["pmemobj_memcpy", "pmemobj_memcpy_persist", "pmemobj_memmove"],
        &[Copy(1, 2, 3), From(1)],
    ),
    (&["pmemobj_memset", "pmemobj_memset_persist"], &[Fill(1, 2, 3), From(1)]),
    (
        &[
            "pmemobj_direct",
            "pmemobj_oid",
            "pmemobj_pool_by_oid",
            "pmemobj_pool_by_ptr",
            "pmemobj_volatile",
        ],
        &[FromAll],
    ),
    // Memory.
    (
        &["malloc", "_Znwm", "_Znam", "__cxa_allocate_exception", "valloc"],
        &[Fresh(Argument(0))],
    ),
    (
        &[
            "_ZnwmRKSt9nothrow_t",
            "_ZnamRKSt9nothrow_t",
            "_ZnwmSt11align_val_t",
            "_ZnamSt11align_val_t",
        ],
        &[Fresh(Argument(0))],
    ),
    (&["calloc"], &[Fresh(Product(0, 1))]),
    (&["aligned_alloc", "memalign"], &[Fresh(Argument(1))]),
    (&["realloc"], &[Moved(0, 1)]),
    (&["strdup"], &[Duplicate(0)]),
    // Files and streams.
    (&["read", "pread", "pread64", "recv"], &[Written(1, Result)]),
    (&["write", "pwrite", "pwrite64", "send"], &[Read(1, Argument(2))]),
    (&["fread"], &[Written(0, Product(1, 2))]),
    (&["fwrite"], &[Read(0, Product(1, 2))]),
    (&["fgets"], &[Written(0, Argument(1))]),
    (&["puts", "fputs"], &[Text(0, None)]),
    (&["snprintf", "vsnprintf"], &[Written(0, Argument(1))]),
    (&["sprintf", "vsprintf"], &[Written(0, Result)]),
    (&["getrandom"], &[Written(0, Result)]),
    // What it sorts is elsewhere then.
    (&["qsort", "qsort_r"], &[Written(0, Product(1, 2))]),
    // Numbers.
    (
        &[
            "atoi", "atol", "atoll", "atof", "strtol", "strtoul", "strtoll", "strtoull", "strtod",
        ],
        &[Text(0, None)],
    ),
    (
        &[
            "abs", "labs", "llabs", "toupper", "tolower", "isalpha", "isdigit", "isalnum", "isspace", "isupper",
            "islower", "isxdigit", "isprint", "ispunct", "ffs", "ffsl", "ffsll", "htonl", "htons", "ntohl", "ntohs",
            "sqrt", "pow", "exp", "exp2", "log", "log2", "log10", "floor", "ceil", "round", "trunc", "fabs", "fmod",
            "fmin", "fmax", "sin", "cos", "tan", "lround",
        ],
        &[FromAll],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_and_without_bounds() {
        assert_eq!(of("memcpy"), of("__memcpy_chk"));
        assert!(of("memcpy").is_some());
        assert_eq!(of("my_memcpy"), None);
        assert_eq!(of("__cxa_allocate_exception"), Some(&[Fresh(Argument(0))][..]));
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<&str> = SUMMARIES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
