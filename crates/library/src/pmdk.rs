//! Functions of PMDK: libpmem, libpmem2, libpmemobj, libpmemblk and libpmemlog.
//!
//! Pools hold the offsets of objects, which libpmemobj makes pointers of; all of them are into one object, [`POOL`].

use super::Effect::*;
use super::Extent::{self, Unknown};
use super::{Effect, Given, Row};

/// The memory of all pools.
pub const POOL: &str = "pmemobj pool";

const fn copies(to: u32) -> Effect {
    Copies {
        to,
        from: to + 1,
        extent: Extent::Argument(to + 2),
    }
}

const fn fills(to: u32) -> Effect {
    Fills {
        to,
        value: to + 1,
        extent: Extent::Argument(to + 2),
    }
}

const fn flushes(at: u32, length: u32) -> Effect {
    Flushes { at, length }
}

pub(crate) const ROWS: &[Row] = &[
    // Persisting.
    (&[flushes(0, 1)], "pmem_flush"),
    (&[Fences], "pmem_drain pmemobj_drain pmem2_drain"),
    (&[flushes(0, 1), Fences], "pmem_persist pmem2_persist_cpu_cache"),
    (&[flushes(0, 1), ReachesFurther], "pmem_deep_flush"),
    (&[flushes(0, 1)], "pmem2_flush_cpu_cache"),
    // Of a file they call msync, which fences nothing else, and of a device they fence.
    (
        &[Persists { at: 0, length: 1 }, ReachesFurther],
        "pmem_deep_persist pmem_deep_drain",
    ),
    (&[Persists { at: 0, length: 1 }], "pmem_msync"),
    (&[flushes(1, 2), ReachesFurther], "pmemobj_flush pmemobj_xflush"),
    (
        &[flushes(1, 2), Fences, ReachesFurther],
        "pmemobj_persist pmemobj_xpersist",
    ),
    // Copying.
    (
        &[copies(0), Returns(0), flushes(0, 2), Fences],
        "pmem_memcpy_persist pmem_memmove_persist",
    ),
    (
        &[copies(0), Returns(0), flushes(0, 2)],
        "pmem_memcpy_nodrain pmem_memmove_nodrain",
    ),
    (
        &[copies(0), Returns(0), flushes(0, 2), TakesFlags(3)],
        "pmem_memcpy pmem_memmove",
    ),
    (&[fills(0), Returns(0), flushes(0, 2), Fences], "pmem_memset_persist"),
    (&[fills(0), Returns(0), flushes(0, 2)], "pmem_memset_nodrain"),
    (&[fills(0), Returns(0), flushes(0, 2), TakesFlags(3)], "pmem_memset"),
    (
        &[copies(1), Returns(1), flushes(1, 3), Fences],
        "pmemobj_memcpy_persist",
    ),
    (
        &[copies(1), Returns(1), flushes(1, 3), TakesFlags(4)],
        "pmemobj_memcpy pmemobj_memmove",
    ),
    (&[fills(1), Returns(1), flushes(1, 3), Fences], "pmemobj_memset_persist"),
    (&[fills(1), Returns(1), flushes(1, 3), TakesFlags(4)], "pmemobj_memset"),
    // Files.
    (&[ReturnsMapping], "pmem_map_file pmem2_map_get_address"),
    (&[StoresNew(0)], "pmem2_map_new pmem2_config_new pmem2_source_from_fd"),
    (
        &[ReturnsOwn],
        "pmem_errormsg pmemobj_errormsg pmem2_errormsg pmem_check_version pmemobj_check_version",
    ),
    (
        &[],
        "pmem_has_hw_drain pmem_has_auto_flush pmem_is_pmem pmem_unmap pmem2_map_delete pmem2_config_delete \
        pmem2_source_delete pmem2_config_set_required_store_granularity",
    ),
    (&[ReturnsNew(Unknown)], "pmemblk_create pmemlog_create"),
    (&[ReturnsShared(POOL)], "pmemblk_open pmemlog_open"),
    // Pools and objects.
    (&[ReturnsShared(POOL), Settles], "pmemobj_create pmemobj_open"),
    (
        &[DependsOnAll, ReturnsShared(POOL), Translates],
        "pmemobj_direct pmemobj_direct_inline",
    ),
    (
        &[DependsOnAll, ReturnsShared(POOL)],
        "pmemobj_pool_by_oid pmemobj_pool_by_ptr",
    ),
    (
        &[
            DependsOnAll,
            ReturnsShared(POOL),
            Returns(2),
            Calls {
                function: 4,
                given: &[Given::Argument(2), Given::Argument(5)],
                result: None,
            },
        ],
        "pmemobj_volatile",
    ),
    (&[DependsOnAll], "pmemobj_oid"),
    (
        &[
            Calls {
                function: 4,
                given: &[Given::Argument(0), Given::Shared(POOL), Given::Argument(5)],
                result: None,
            },
            SettlesUnlessConstructed,
        ],
        "pmemobj_alloc",
    ),
    (
        &[
            Calls {
                function: 5,
                given: &[Given::Argument(0), Given::Shared(POOL), Given::Argument(6)],
                result: None,
            },
            SettlesUnlessConstructed,
        ],
        "pmemobj_xalloc",
    ),
    (
        &[
            Calls {
                function: 2,
                given: &[Given::Argument(0), Given::Shared(POOL), Given::Argument(3)],
                result: None,
            },
            SettlesUnlessConstructed,
        ],
        "pmemobj_root_construct",
    ),
    // An object's id takes one argument or two, by how it is passed: the constructor is counted from the end.
    (&[KeepsAnything, SettlesUnlessConstructed], "pmemobj_list_insert_new"),
    (
        &[Settles],
        "pmemobj_root pmemobj_zalloc pmemobj_realloc pmemobj_zrealloc pmemobj_strdup pmemobj_wcsdup pmemobj_free \
        pmemobj_list_insert pmemobj_list_remove pmemobj_list_move pmemobj_type_num",
    ),
    (
        &[WritesElsewhere],
        "pmemobj_close pmemobj_check pmemobj_root_size pmemobj_tx_begin pmemobj_tx_commit pmemobj_tx_end pmemobj_tx_process pmemobj_tx_stage \
        pmemobj_tx_abort pmemobj_tx_errno pmemobj_tx_add_range pmemobj_tx_add_range_direct pmemobj_tx_xadd_range \
        pmemobj_tx_xadd_range_direct pmemobj_tx_alloc pmemobj_tx_xalloc pmemobj_tx_zalloc pmemobj_tx_realloc \
        pmemobj_tx_zrealloc pmemobj_tx_free pmemobj_tx_xfree pmemobj_tx_lock pmemobj_tx_publish \
        pmemobj_alloc_usable_size pmemobj_first pmemobj_next pmemobj_reserve pmemobj_publish pmemobj_cancel \
        pmemobj_mutex_lock pmemobj_mutex_unlock pmemobj_mutex_trylock pmemobj_mutex_zero pmemobj_rwlock_rdlock \
        pmemobj_rwlock_wrlock pmemobj_rwlock_unlock pmemobj_rwlock_zero pmemobj_cond_wait pmemobj_cond_signal \
        pmemobj_cond_broadcast pmemobj_ctl_get pmemobj_ctl_exec",
    ),
];
