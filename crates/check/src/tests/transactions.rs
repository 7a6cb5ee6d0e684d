//! PMDK transactions.

use crashproof_finding::{DurableByKind, Kind};
use crashproof_trace::*;

use super::*;

/// Opens a transaction as libpmemobj does.
fn begin(b: &mut TraceBuilder) -> &mut TraceBuilder {
    b.call(T0, 90, "pmemobj_tx_begin", &[POOL_ADDRESS])
        .request(T0, 91, Request::TxBegin, None)
}

fn add(b: &mut TraceBuilder, place: u64, offset: u64, len: u64) {
    b.call(T0, place, "pmemobj_tx_add_range_direct", &[POOL_ADDRESS + offset, len]);
    b.request(T0, place, Request::TxAdd, Some((offset, len)));
}

/// Commits, flushing the ranges, and closes it.
fn end(b: &mut TraceBuilder, ranges: &[(u64, u64)]) {
    b.call(T0, 92, "pmemobj_tx_process", &[]);
    let stack = b.stack(&[(Some("libpmem.so.1"), 1), (Some("libpmemobj.so.1"), 2), (None, 92)]);
    for &(offset, len) in ranges {
        for line in offset / 64..=(offset + len - 1) / 64 {
            let at = PmAddress {
                file: POOL,
                offset: line * 64,
            };
            b.event_at(
                T0,
                stack,
                EventKind::Flush {
                    at,
                    kind: FlushKind::Clwb,
                },
            );
        }
        b.request(T0, 92, Request::TxRemove, Some((offset, len)));
    }
    b.event_at(
        T0,
        stack,
        EventKind::Fence {
            kind: FenceKind::Sfence,
        },
    );
    b.request(T0, 93, Request::TxEnd, None);
}

#[test]
fn a_right_transaction() {
    let mut b = TraceBuilder::new();
    for _ in 0..2 {
        begin(&mut b);
        add(&mut b, 1, 0x1000, 64);
        b.store(T0, 2, 0x1000, 8);
        b.request(T0, 3, Request::TxAdd, Some((0x2010, 112)))
            .store(T0, 4, 0x2010, 64);
        // Into an object that was reserved, not allocated in the transaction.
        b.store(T0, 5, 0x8000, 8).flush(T0, 6, 0x8000);
        end(&mut b, &[(0x1000, 64), (0x2010, 112)]);
    }
    assert_eq!(b.summary(), []);
}

#[test]
fn what_the_next_opening_rolls_back_need_not_be_durable() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 64);
    b.store(T0, 2, 0x1000, 8);
    end(&mut b, &[(0x1000, 64)]);
    // The process ends in the middle of its second transaction.
    begin(&mut b);
    add(&mut b, 1, 0x1000, 64);
    b.store(T0, 2, 0x1000, 8).sfence(T0, 3);
    b.event(
        T0,
        0,
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: false,
        },
    );
    assert_eq!(b.summary(), []);
}

#[test]
fn snapshot_twice() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 64);
    begin(&mut b);
    // libpmemobj makes no request for what it has.
    b.call(T0, 2, "pmemobj_tx_add_range", &[77, 0x1000, 8, 16]);
    b.request(T0, 93, Request::TxEnd, None);
    b.store(T0, 3, 0x1008, 8);
    end(&mut b, &[(0x1000, 64)]);
    begin(&mut b);
    add(&mut b, 4, 0x1008, 64);
    b.call(T0, 5, "pmemobj_tx_add_range_direct", &[POOL_ADDRESS + 0x1000, 64]);
    b.store(T0, 3, 0x1008, 8);
    end(&mut b, &[(0x1000, 64)]);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::TxSnapshotTwice, 2, 1)]);
}

#[test]
fn store_not_snapshotted() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 16);
    b.store(T0, 2, 0x1000, 8).store(T0, 3, 0x1018, 8);
    b.request(T0, 4, Request::TxAdd, Some((0x2000, 256)));
    b.store(T0, 5, 0x2000, 64);
    end(&mut b, &[(0x1000, 16), (0x2000, 64)]);
    begin(&mut b);
    b.store(T0, 6, 0x2080, 8);
    b.store(T0, 7, 0x20c0, 8).flush(T0, 8, 0x20c0).sfence(T0, 9);
    end(&mut b, &[(0x1000, 1)]);
    assert_eq!(
        b.summary(),
        [(Kind::TxStoreNotSnapshotted, 3, 1), (Kind::TxStoreNotSnapshotted, 6, 1)],
        "no missing-flush beside it, nothing where the program persists by hand"
    );
}

#[test]
fn freed_memory_is_no_evidence() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x2000, 256);
    b.store(T0, 2, 0x2000, 8);
    end(&mut b, &[(0x2000, 64)]);
    b.request(T0, 3, Request::SetClean, Some((0x2000, 256)));
    begin(&mut b);
    b.store(T0, 4, 0x2000, 8);
    end(&mut b, &[(0x2000, 64)]);
    b.store(T0, 5, 0x2000, 8)
        .sfence(T0, 6)
        .flush(T0, 7, 0x2000)
        .sfence(T0, 8);
    assert_eq!(b.summary(), [(Kind::RedundantFence, 6, 1)]);
}

#[test]
fn store_outside() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0x1000, 8).flush(T0, 2, 0x1000).sfence(T0, 3);
    begin(&mut b);
    add(&mut b, 4, 0x1000, 16);
    b.store(T0, 5, 0x1000, 8);
    end(&mut b, &[(0x1000, 16)]);
    b.store(T0, 6, 0x1000, 8).flush(T0, 7, 0x1000).sfence(T0, 8);
    b.store(T0, 9, 0x1000, 8);
    begin(&mut b);
    add(&mut b, 4, 0x1000, 16);
    end(&mut b, &[(0x1000, 16)]);
    b.store(T0, 10, 0x1000, 8);
    b.unmap(T0, 11);
    // The one at 9 is flushed by the next transaction, before a fence: by luck, but not without one.
    assert_eq!(b.summary(), [(Kind::TxStoreOutside, 10, 1)]);
}

#[test]
fn never_flushed_in_a_line_of_its_own() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 64);
    b.store(T0, 2, 0x1000, 8).store(T0, 3, 0x4000, 8);
    end(&mut b, &[(0x1000, 64)]);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::TxStoreNotSnapshotted, 3, 1)]);
    assert_eq!(findings[0].related[0].stack[0].address, 91);
    assert!(findings[0].durable_by.is_none());
}

/// Stores to a page of its own in a transaction, after `before`, and never flushes it.
fn never_flushed(before: impl FnOnce(&mut TraceBuilder)) -> Vec<(Kind, u64, u64)> {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    before(&mut b);
    b.store(T0, 3, 0x4000, 8);
    end(&mut b, &[(0x1000, 64)]);
    b.summary()
}

#[test]
fn what_is_not_the_transactions_needs_a_flush() {
    assert_eq!(never_flushed(|_| {}), [(Kind::TxStoreNotSnapshotted, 3, 1)]);
    let flush = [(Kind::MissingFlush, 3, 1)];
    for name in [
        "pmemobj_reserve",
        "pmemobj_xreserve",
        "pmemobj_alloc",
        "pmemobj_xalloc",
        "pmemobj_zalloc",
    ] {
        let made = never_flushed(|b| {
            b.gave(T0, 1, name, 128, 0x4000);
        });
        assert_eq!(made, flush, "{name}");
    }
    let published = never_flushed(|b| {
        b.gave(T0, 1, "pmemobj_reserve", 128, 0x4000)
            .call(T0, 2, "pmemobj_publish", &[POOL_ADDRESS, 0, 1]);
    });
    assert_eq!(published, [(Kind::TxStoreNotSnapshotted, 3, 1)]);
    // Allocated with NO_FLUSH: the transaction covers it, and does not flush it.
    let no_flush = never_flushed(|b| {
        b.request(T0, 1, Request::TxAdd, Some((0x4000, 128)));
    });
    assert_eq!(no_flush, flush);
    let ignored = never_flushed(|b| {
        b.request(T0, 1, Request::TxIgnore, Some((0x4000, 128)));
    });
    assert_eq!(ignored, flush);
}

#[test]
fn what_was_reserved_is_ordinary_once_it_is_published() {
    let mut b = TraceBuilder::new();
    b.gave(T0, 1, "pmemobj_reserve", 128, 0x4000);
    begin(&mut b);
    b.call(T0, 2, "pmemobj_tx_publish", &[POOL_ADDRESS, 1]);
    b.store(T0, 3, 0x4000, 8).flush(T0, 4, 0x4000).sfence(T0, 5);
    end(&mut b, &[(0x1000, 64)]);
    begin(&mut b);
    b.store(T0, 6, 0x4040, 8);
    end(&mut b, &[(0x1000, 64)]);
    assert_eq!(b.summary(), [(Kind::TxStoreNotSnapshotted, 6, 1)]);
}

#[test]
fn a_constructor_persists_its_object() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    let stack = b.stack(&[(None, 3), (Some("libpmemobj.so.1"), 2), (None, 4)]);
    let at = PmAddress {
        file: POOL,
        offset: 0x4000,
    };
    let store = EventKind::Store {
        at,
        data: &[1; 8],
        flags: StoreFlags::default(),
    };
    b.event_at(T0, stack, store);
    end(&mut b, &[(0x1000, 64)]);
    assert_eq!(b.summary(), [(Kind::MissingFlush, 3, 1)]);
}

/// A transaction that is still at work when its process ends.
fn unfinished() -> TraceBuilder {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 16);
    b.store(T0, 2, 0x1000, 8).sfence(T0, 3);
    // Beside the snapshot, and in a line of its own.
    b.store(T0, 4, 0x1010, 8).store(T0, 5, 0x4000, 8);
    b
}

#[test]
fn an_unfinished_transaction_rolls_back_its_snapshots_only() {
    let mut b = unfinished();
    b.event(
        T0,
        0,
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: false,
        },
    );
    let report = b.report(Model::Px86, "");
    assert_eq!(
        summary(&report.findings),
        [(Kind::TxStoreNotSnapshotted, 4, 1), (Kind::TxStoreNotSnapshotted, 5, 1)]
    );
    for finding in &report.findings {
        assert_eq!(finding.related[0].stack[0].address, 91);
    }
    assert!(
        report.warnings.iter().any(|w| w.contains("had not ended")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_process_may_be_killed_in_a_transaction() {
    let mut b = unfinished();
    let process = ProcessId(0);
    b.event(T0, 0, EventKind::ProcessEnd { process, killed: true });
    let report = b.report(Model::Px86, "");
    assert_eq!(summary(&report.findings), []);
    assert!(!report.warnings.iter().any(|w| w.contains("had not ended")));
}

#[test]
fn requests_alone_are_evidence() {
    let mut b = TraceBuilder::new();
    b.request(T0, 91, Request::TxBegin, None)
        .request(T0, 1, Request::TxAdd, Some((0x1000, 16)))
        .store(T0, 2, 0x1000, 8)
        .store(T0, 3, 0x1010, 8)
        .store(T0, 4, 0x4000, 8)
        // Its log.
        .store(T0, 5, 0x8000, 8)
        .flush(T0, 6, 0x8000)
        .flush(T0, 7, 0x1000)
        .sfence(T0, 8)
        .request(T0, 9, Request::TxRemove, Some((0x1000, 16)))
        .request(T0, 93, Request::TxEnd, None);
    assert_eq!(
        b.summary(),
        [(Kind::TxStoreNotSnapshotted, 3, 1), (Kind::TxStoreNotSnapshotted, 4, 1)]
    );
}

#[test]
fn durable_by_the_end_of_the_transaction() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    // The transaction covers it and is told not to flush it.
    b.request(T0, 1, Request::TxAdd, Some((0x1000, 8)));
    b.store(T0, 1, 0x1000, 8).sfence(T0, 2);
    end(&mut b, &[(0x2000, 1)]);
    let findings = b.findings();
    let missing = findings.iter().find(|f| f.kind == Kind::MissingFlush).unwrap();
    let by = missing.durable_by.as_ref().unwrap();
    assert_eq!((by.kind, by.stack[0].address), (DurableByKind::TxEnd, 93));
}

#[test]
fn without_client_requests_the_calls_say_it() {
    let mut b = TraceBuilder::with_options(Options::default());
    b.call(T0, 90, "pmemobj_tx_begin", &[POOL_ADDRESS]);
    b.call(T0, 1, "pmemobj_tx_add_range_direct", &[POOL_ADDRESS + 0x1000, 64]);
    b.call(T0, 2, "pmemobj_tx_add_range_direct", &[POOL_ADDRESS + 0x1000, 64]);
    b.store(T0, 3, 0x1000, 8)
        .store(T0, 4, 0x1040, 8)
        .flush(T0, 5, 0x1000)
        .flush(T0, 5, 0x1040)
        .sfence(T0, 6);
    b.call(T0, 7, "pmemobj_tx_process", &[])
        .call(T0, 8, "pmemobj_tx_end", &[]);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::TxSnapshotTwice, 2, 1)]);
    assert_eq!(findings[0].related[0].stack[0].address, 1);
}

#[test]
fn must_be_in_transaction() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
    add(&mut b, 1, 0x1000, 64);
    b.store(T0, 2, 0x1000, 8);
    end(&mut b, &[(0x1000, 64)]);
    b.store(T0, 3, 0x1000, 8).flush(T0, 4, 0x1000).sfence(T0, 5);
    let config = "[[rule]]\nkind = \"must-be-in-transaction\"\nstores = \"pool@0x1000-0x103f\"";
    assert_eq!(
        summary(&b.report(Model::Px86, config).findings),
        [(Kind::RuleTransaction, 3, 1)]
    );
}

/// A request about the transaction with a number.
fn numbered(b: &mut TraceBuilder, thread: u32, place: u64, number: u64, request: Request, range: Option<(u64, u64)>) {
    let range = range.map(|(offset, len)| (PmAddress { file: POOL, offset }, len));
    b.event(
        thread,
        place,
        EventKind::Request {
            request,
            transaction: number,
            range,
        },
    );
}

#[test]
fn a_numbered_transaction_has_snapshots_of_its_own() {
    let mut b = TraceBuilder::new();
    numbered(&mut b, T0, 90, 7, Request::TxBegin, None);
    numbered(&mut b, T0, 1, 7, Request::TxAdd, Some((0x1000, 8)));
    numbered(&mut b, T0, 91, 8, Request::TxBegin, None);
    numbered(&mut b, T0, 2, 8, Request::TxAdd, Some((0x2000, 8)));
    // In both: covered by one of them.
    b.store(T0, 3, 0x1000, 8).store(T0, 4, 0x2000, 8);
    b.flush(T0, 5, 0x1000).flush(T0, 5, 0x2000).sfence(T0, 5);
    numbered(&mut b, T0, 92, 8, Request::TxEnd, None);
    b.store(T0, 6, 0x2000, 8);
    numbered(&mut b, T0, 93, 7, Request::TxEnd, None);
    assert_eq!(b.summary(), [(Kind::TxStoreNotSnapshotted, 6, 1)]);
}

#[test]
fn what_an_outer_transaction_covers_is_rolled_back_with_it() {
    let mut b = TraceBuilder::new();
    numbered(&mut b, T0, 90, 7, Request::TxBegin, None);
    numbered(&mut b, T0, 1, 7, Request::TxAdd, Some((0x1000, 8)));
    numbered(&mut b, T0, 91, 8, Request::TxBegin, None);
    b.store(T0, 2, 0x1000, 8);
    numbered(&mut b, T0, 92, 8, Request::TxEnd, None);
    b.event(
        T0,
        0,
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: false,
        },
    );
    assert_eq!(b.summary(), []);
}

#[test]
fn threads_join_and_leave() {
    let mut b = TraceBuilder::new();
    b.thread(T1, 0);
    numbered(&mut b, T0, 90, 7, Request::TxBegin, None);
    numbered(&mut b, T0, 1, 7, Request::TxAdd, Some((0x1000, 8)));
    b.store(T1, 2, 0x2000, 8);
    numbered(&mut b, T1, 3, 7, Request::TxJoin, None);
    b.store(T1, 4, 0x3000, 8);
    numbered(&mut b, T1, 5, 7, Request::TxLeave, None);
    b.store(T1, 6, 0x4000, 8);
    numbered(&mut b, T1, 92, 7, Request::TxEnd, None);
    b.store(T0, 7, 0x5000, 8);
    b.event(
        T0,
        0,
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: false,
        },
    );
    let report = b.report(Model::Px86, "");
    assert_eq!(
        summary(&report.findings),
        [
            (Kind::MissingFlush, 2, 1),
            (Kind::MissingFlush, 6, 1),
            (Kind::MissingFlush, 7, 1),
            (Kind::TxStoreNotSnapshotted, 4, 1)
        ]
    );
    assert!(!report.warnings.iter().any(|w| w.contains("had not ended")));
}

#[test]
fn two_transactions_at_once_snapshot_the_same() {
    let run = |early: bool| {
        let mut b = TraceBuilder::new();
        b.thread(T1, 0)
            .request(T0, 90, Request::TxBegin, None)
            .request(T0, 1, Request::TxAdd, Some((0x1000, 16)))
            .request(T1, 91, Request::TxBegin, None);
        if early {
            b.request(T1, 2, Request::TxAdd, Some((0x1008, 16)));
        }
        b.request(T0, 3, Request::TxRemove, Some((0x1000, 16)));
        if !early {
            b.request(T1, 2, Request::TxAdd, Some((0x1008, 16)));
        }
        b.request(T0, 92, Request::TxEnd, None)
            .request(T1, 93, Request::TxEnd, None);
        b.findings()
    };
    assert_eq!(summary(&run(false)), []);
    let findings = run(true);
    assert_eq!(summary(&findings), [(Kind::TxSnapshotOverlap, 2, 1)]);
    assert_eq!(findings[0].related[0].stack[0].address, 90);
}
