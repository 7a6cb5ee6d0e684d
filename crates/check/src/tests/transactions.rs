//! PMDK transactions.

use crashproof_report::{DurableByKind, Kind};
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
    b.event(T0, 0, EventKind::ProcessEnd { process: ProcessId(0) });
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
fn durable_by_the_end_of_the_transaction() {
    let mut b = TraceBuilder::new();
    begin(&mut b);
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
