//! That the table says what was decided where the tables before it disagreed, or where the obvious row would be wrong.

use std::collections::BTreeSet;

use super::Effect::*;
use super::*;

fn of(name: &str) -> &'static [Effect] {
    effects(name).unwrap_or_else(|| panic!("{name} is not in the table"))
}

fn has(name: &str, effect: Effect) -> bool {
    of(name).contains(&effect)
}

#[test]
fn every_name_has_one_row() {
    let mut seen = BTreeSet::new();
    for (_, names) in libc::ROWS.iter().chain(pmdk::ROWS) {
        for name in names.split_ascii_whitespace() {
            assert!(seen.insert(name), "{name} has two rows");
        }
    }
}

#[test]
fn variants_of_a_name_are_one_function() {
    for name in [
        "__memcpy_chk",
        "__builtin___memcpy_chk",
        "__memcpy",
        "memcpy@@GLIBC_2.14",
        "\u{1}memcpy",
        "llvm.memcpy.p0.p0.i64",
        "llvm.memcpy.inline.p0.p0.i64",
    ] {
        assert_eq!(effects(name), effects("memcpy"), "{name}");
    }
    assert_eq!(effects("__isoc99_sscanf"), effects("sscanf"));
    assert_eq!(effects("pread64"), effects("pread"));
    for name in [
        "my_memcpy",
        "memcpy2",
        "_memcpy",
        "read64",
        "llvm.memcpy.element.unordered.atomic.p0.p0.i64",
        "llvm.sqrt.f64",
    ] {
        assert_eq!(effects(name), None, "{name}");
    }
}

/// Theirs have the size of the buffer before what the function itself has there.
#[test]
fn checked_reads_of_streams_have_their_own_arguments() {
    assert!(has("fread", Writes(0, Extent::AtMostProduct(1, 2))));
    assert!(has("__fread_chk", Writes(0, Extent::AtMostProduct(2, 3))));
    assert!(has("__fgets_chk", Writes(0, Extent::AtMost(2))));
}

#[test]
fn destinations() {
    let expected = [
        ("memcpy", Some(0)),
        ("__memset_chk", Some(0)),
        ("bcopy", Some(1)),
        ("pread64", Some(1)),
        ("getrandom", Some(0)),
        ("pmem_memcpy_persist", Some(0)),
        ("pmemobj_memset", Some(1)),
        ("pmemobj_persist", None),
        ("memcmp", None),
    ];
    for (name, argument) in expected {
        assert_eq!(destination(name), argument, "{name}");
    }
}

/// Six tables had `pmem_persist`; one of them had `pmem_deep_flush`, one `pmem_msync`, and one `pmem_deep_persist`.
#[test]
fn all_that_persists_for_its_caller_is_known() {
    for name in [
        "pmem_persist",
        "pmem_flush",
        "pmem_drain",
        "pmem_deep_persist",
        "pmem_deep_flush",
        "pmem_deep_drain",
        "pmem_msync",
        "pmemobj_persist",
        "pmemobj_flush",
        "pmemobj_drain",
        "pmemobj_xpersist",
        "pmemobj_xflush",
        "pmem2_persist_cpu_cache",
        "pmem2_flush_cpu_cache",
        "pmem2_drain",
    ] {
        assert!(only_persists(name), "{name}");
    }
    for name in [
        "pmem_memcpy_persist",
        "pmem_is_pmem",
        "pmemobj_tx_commit",
        "msync",
        "write",
        "persist",
    ] {
        assert!(!only_persists(name), "{name}");
    }
}

#[test]
fn ranges_are_persistent_after_a_flush_and_a_fence() {
    let expected = [
        ("pmem_persist", Some((0, 1))),
        ("pmemobj_xpersist", Some((1, 2))),
        ("pmem_msync", Some((0, 1))),
        ("pmem_flush", None),
        ("pmem_drain", None),
        ("pmem_memcpy_persist", None),
    ];
    for (name, range) in expected {
        assert_eq!(persisted_range(name), range, "{name}");
    }
}

/// They make their range durable by msync, where the file is not on a device: what was flushed elsewhere still waits.
#[test]
fn msync_is_not_a_fence() {
    for name in ["pmem_msync", "pmem_deep_persist", "pmem_deep_drain"] {
        assert!(!has(name, Fences), "{name}");
        assert!(has(name, Persists { at: 0, length: 1 }), "{name}");
    }
}

/// A deep flush reaches further than a flush, and libpmemobj's reach the replicas: one that looks redundant may not be removed.
#[test]
fn a_deep_flush_is_more_than_a_flush() {
    assert_eq!(of("pmem_flush"), [Flushes { at: 0, length: 1 }]);
    for name in ["pmem_deep_flush", "pmemobj_flush"] {
        assert!(has(name, ReachesFurther), "{name}");
    }
}

/// The commit of a transaction within another one does not fence.
#[test]
fn a_commit_need_not_fence() {
    assert!(!has("pmemobj_tx_commit", Fences));
}

#[test]
fn names_that_pmdk_does_not_have_are_not_there() {
    for name in ["pmemobj_memmove_persist", "pmemobj_memcpy_nodrain", "pmem_memcpy2"] {
        assert_eq!(effects(name), None, "{name}");
    }
}

/// Their flags come before the constructor, or an object's id as one argument or two.
#[test]
fn constructors_are_found() {
    let constructor = |name| {
        of(name).iter().find_map(|effect| match effect {
            Calls { function, .. } => Some(*function),
            _ => None,
        })
    };
    assert_eq!(constructor("pmemobj_alloc"), Some(4));
    assert_eq!(constructor("pmemobj_xalloc"), Some(5));
    assert_eq!(constructor("pmemobj_root_construct"), Some(2));
    assert_eq!(constructor("pmemobj_volatile"), Some(4));
    assert!(has("pmemobj_list_insert_new", KeepsAnything));
    for name in [
        "pmemobj_alloc",
        "pmemobj_xalloc",
        "pmemobj_root_construct",
        "pmemobj_list_insert_new",
    ] {
        assert!(has(name, SettlesUnlessConstructed), "{name}");
    }
}

/// The argument after the two pointers is the byte at which it stops.
#[test]
fn memccpy_has_its_length_last() {
    let extent = Extent::AtMost(3);
    assert!(has("memccpy", Copies { to: 0, from: 1, extent }));
}

#[test]
fn results_are_the_right_arguments() {
    for (name, argument) in [
        ("inet_ntop", 2),
        ("strerror_r", 1),
        ("dcgettext", 1),
        ("ngettext", 1),
        ("localtime_r", 1),
        ("freopen", 2),
        ("realpath", 1),
        ("getcwd", 0),
        ("mmap", 0),
    ] {
        assert!(has(name, Returns(argument)), "{name}");
    }
}

/// The front end followed every pointer that is written to as the result, also where that is the end of what was written.
#[test]
fn the_end_of_a_copy_is_not_its_beginning() {
    assert_eq!(returned_argument("memcpy"), Some(0));
    assert_eq!(returned_argument("pmemobj_memcpy"), Some(1));
    for name in ["mempcpy", "stpcpy", "mmap", "getcwd", "snprintf", "strlen"] {
        assert_eq!(returned_argument(name), None, "{name}");
    }
}

#[test]
fn new_memory_is_stored_in_the_right_argument() {
    for (name, argument) in [
        ("posix_memalign", 0),
        ("getline", 0),
        ("scandir", 1),
        ("getaddrinfo", 3),
    ] {
        assert!(has(name, StoresNew(argument)), "{name}");
    }
    assert!(has("open_memstream", ReturnsNew(Extent::Unknown)));
}

/// Later calls have no text of their own and return what is in that of the first.
#[test]
fn strtok_goes_on_with_the_text_of_an_earlier_call() {
    assert!(has("strtok_r", ReturnsHeld(2)));
    let kept = of("strtok").iter().find_map(|effect| match effect {
        KeepsInside(0, name) => Some(*name),
        _ => None,
    });
    assert!(has("strtok", ReturnsKept(kept.expect("it keeps the text"))));
    assert!(has("strsep", KeepsAnything));
}

/// `strtol` stores where the number ends, and other functions into more than their buffer.
#[test]
fn what_writes_more_than_one_range_says_so() {
    for name in [
        "__isoc99_strtol",
        "recvfrom",
        "sscanf",
        "getline",
        "qsort",
        "pthread_create",
        "strtok",
        "stat",
    ] {
        assert!(of(name).iter().any(Effect::writes_elsewhere), "{name}");
    }
    for name in [
        "memcpy",
        "read",
        "strlen",
        "free",
        "fopen",
        "pthread_mutex_lock",
        "_ZNSolsEi",
        "write",
    ] {
        assert!(!of(name).iter().any(Effect::writes_elsewhere), "{name}");
    }
}

/// A null pointer is a text for these: what reads it would have to ask first.
#[test]
fn texts_that_may_be_missing_are_not_read() {
    assert!(!of("perror").iter().any(Effect::is_read));
}
