//! The universal oracles: missing, redundant, transient.

use crashproof_finding::{DurableByKind, Kind, Severity};
use crashproof_trace::*;

use super::*;

#[test]
fn a_right_program_gets_nothing() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 60, 8).flush(T0, 2, 60).flush(T0, 2, 64).sfence(T0, 3);
    b.nt_store(T0, 4, 128, 32).sfence(T0, 5);
    b.store(T0, 6, 256, 8).flush_as(T0, 7, 256, FlushKind::Clflush);
    b.store(T0, 8, 320, 8)
        .flush(T0, 9, 320)
        .locked(T0, 10, 384)
        .flush(T0, 11, 384)
        .mfence(T0, 12);
    b.unmap(T0, 13);
    assert_eq!(b.summary(), []);
}

#[test]
fn missing_flush_by_fence_unmap_or_exit() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).sfence(T0, 2).unmap(T0, 3);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFlush, 1, 1)]);
    let by = findings[0].durable_by.as_ref().unwrap();
    assert_eq!((by.kind, by.stack[0].address), (DurableByKind::Fence, 2));
    assert_eq!(findings[0].address.as_ref().unwrap().offset, 0);
    assert_eq!(findings[0].severity, Severity::Error);

    let findings = TraceBuilder::new().store(T0, 1, 0, 8).unmap(T0, 3).findings();
    assert_eq!(findings[0].durable_by.as_ref().unwrap().kind, DurableByKind::Unmap);
    let findings = TraceBuilder::new().store(T0, 1, 0, 8).findings();
    assert_eq!(findings[0].durable_by.as_ref().unwrap().kind, DurableByKind::Exit);
    let findings = TraceBuilder::new()
        .store(T0, 1, 0, 8)
        .event(
            T0,
            0,
            EventKind::ProcessEnd {
                process: ProcessId(0),
                killed: false,
            },
        )
        .findings();
    assert_eq!(findings[0].durable_by.as_ref().unwrap().kind, DurableByKind::Exit);
}

#[test]
fn the_last_store_to_the_bytes_counts() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .store(T0, 2, 0, 8)
        .store(T0, 3, 8, 8)
        .store(T0, 4, 12, 2);
    assert_eq!(
        b.summary(),
        [
            (Kind::MissingFlush, 2, 1),
            (Kind::MissingFlush, 3, 1),
            (Kind::MissingFlush, 4, 1)
        ]
    );
}

#[test]
fn a_range_flush_that_misses_its_last_line() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 120, 16).flush(T0, 2, 64).sfence(T0, 3);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFlush, 1, 1)]);
    let address = findings[0].address.as_ref().unwrap();
    assert_eq!((address.offset, address.length), (128, 8));
}

#[test]
fn missing_fence() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).flush(T0, 2, 0).nt_store(T0, 3, 64, 8);
    let findings = b.findings();
    assert_eq!(
        summary(&findings),
        [(Kind::MissingFence, 1, 1), (Kind::MissingFence, 3, 1)]
    );
    assert!(
        findings
            .iter()
            .all(|f| f.severity == Severity::Error && f.notes.is_empty())
    );
    let flushed = findings.iter().find(|f| place(f) == 1).unwrap();
    assert_eq!(flushed.related[0].stack[0].address, 2);
}

#[test]
fn only_the_flushing_thread_can_fence() {
    let mut b = TraceBuilder::new();
    b.thread(T1, 0).store(T0, 1, 0, 8).flush(T0, 2, 0).sfence(T0, 3);
    b.store(T0, 4, 64, 8)
        .flush(T0, 5, 64)
        .nt_store(T1, 6, 128, 8)
        .sfence(T1, 7);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFence, 4, 1)]);
    assert_eq!(findings[0].severity, Severity::Warning, "a mutex may have fenced");
    assert!(findings[0].notes[0].contains("--locked-rmw"));

    let mut b = TraceBuilder::with_options(Options {
        locked_rmw: true,
        ..Options::default()
    });
    b.thread(T1, 0)
        .store(T0, 4, 64, 8)
        .flush(T0, 5, 64)
        .nt_store(T1, 6, 128, 8)
        .sfence(T1, 7);
    assert_eq!(b.findings()[0].severity, Severity::Error);
}

#[test]
fn redundant_flushes() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .flush(T0, 2, 0)
        .flush(T0, 3, 8)
        .sfence(T0, 4)
        .flush(T0, 5, 0)
        .sfence(T0, 4);
    b.flush(T0, 6, 4096).sfence(T0, 4);
    for _ in 0..3 {
        b.store(T0, 1, 0, 8).flush(T0, 5, 0).sfence(T0, 4);
    }
    let findings = b.findings();
    assert_eq!(
        summary(&findings),
        [
            (Kind::RedundantFlush, 3, 1),
            (Kind::RedundantFlush, 5, 1),
            (Kind::FlushUnmodified, 6, 1)
        ]
    );
    let find = |p| findings.iter().find(|f| place(f) == p).unwrap();
    assert_eq!(find(3).related[0].stack[0].address, 2);
    assert!(find(5).message.contains("1 of 4 flushes here"), "{}", find(5).message);
    assert!(findings.iter().all(|f| f.severity == Severity::Warning));
}

#[test]
fn threads_that_share_a_line_cannot_know_of_each_other() {
    let mut b = TraceBuilder::new();
    b.thread(T1, 0).thread(2, 0);
    b.store(T0, 1, 0, 8).store(T1, 2, 8, 8).store(2, 3, 16, 8);
    b.flush(T0, 4, 0)
        .sfence(T0, 5)
        .flush(T1, 6, 8)
        .sfence(T1, 7)
        .flush(2, 8, 16)
        .sfence(2, 9);
    assert_eq!(b.summary(), []);
}

#[test]
fn redundant_fences() {
    let mut b = TraceBuilder::new();
    b.sfence(T0, 1);
    b.store(T0, 2, 0, 8)
        .flush(T0, 3, 0)
        .sfence(T0, 4)
        .sfence(T0, 5)
        .mfence(T0, 6)
        .sfence(T0, 5);
    assert_eq!(
        b.summary(),
        [(Kind::RedundantFence, 1, 1), (Kind::RedundantFence, 5, 2)]
    );
}

#[test]
fn a_fence_too_early_is_redundant_and_one_whose_flush_lacks_is_not() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).sfence(T0, 2).flush(T0, 3, 0).sfence(T0, 4);
    assert_eq!(b.summary(), [(Kind::RedundantFence, 2, 1)]);
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).sfence(T0, 2);
    assert_eq!(b.summary(), [(Kind::MissingFlush, 1, 1)]);
}

#[test]
fn locked_stores_fence() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .flush(T0, 2, 0)
        .locked(T0, 3, 64)
        .flush(T0, 4, 64)
        .locked(T0, 5, 64);
    assert_eq!(b.summary(), [(Kind::MissingFlush, 5, 1)]);
}

#[test]
fn rewriting_is_no_evidence_of_volatility() {
    for rewrites in [2, 6] {
        let mut b = TraceBuilder::new();
        for _ in 0..rewrites {
            b.store(T0, 1, 0, 8).store(T0, 2, 64, 8).flush(T0, 3, 64).sfence(T0, 4);
        }
        let findings = b.findings();
        assert_eq!(summary(&findings), [(Kind::MissingFlush, 1, 1)]);
        assert_eq!(findings[0].severity, Severity::Error);
        let names_both = findings[0].help.as_ref().is_some_and(|help| {
            help.contains("flush it") && help.contains("CRASHPROOF_TRANSIENT") && help.contains("[[ignore]]")
        });
        assert_eq!(names_both, rewrites == 6, "{:?}", findings[0].help);
    }
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).flush(T0, 3, 0).sfence(T0, 4);
    for _ in 0..9 {
        b.store(T0, 1, 0, 8).store(T0, 2, 64, 8).flush(T0, 3, 64).sfence(T0, 4);
    }
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFlush, 1, 1)]);
    assert_eq!(findings[0].help, None, "it was persisted once, so it is meant to be");
}

#[test]
fn places_that_stored_before_and_lacked_the_flush_too_are_listed() {
    // Two functions bump one counter; a third one only prepared it, without a fence.
    let mut b = TraceBuilder::new();
    b.store(T0, 9, 0, 8);
    b.store(T0, 1, 0, 8).sfence(T0, 4).store(T0, 2, 0, 8).sfence(T0, 4);
    b.store(T0, 1, 0, 8).sfence(T0, 4).store(T0, 2, 0, 8).sfence(T0, 4);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFlush, 2, 1)]);
    let places: Vec<u64> = findings[0]
        .related
        .iter()
        .map(|related| related.stack[0].address)
        .collect();
    assert_eq!(places, [1]);
    // Overwriting alone is no mistake.
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .sfence(T0, 4)
        .store(T0, 2, 0, 8)
        .flush(T0, 3, 0)
        .sfence(T0, 5);
    assert!(b.findings().iter().all(|f| f.kind != Kind::MissingFlush));
}

#[test]
fn other_ways_to_be_durable_or_gone() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).event(
        T0,
        2,
        EventKind::Sync {
            file: POOL,
            offset: 0,
            len: 4096,
        },
    );
    b.store(T0, 3, 8192, 8)
        .event(T0, 4, EventKind::Resize { file: POOL, size: 8192 });
    b.store(T0, 5, 4096, 16)
        .request(T0, 6, Request::SetClean, Some((4096, 16)));
    let data = [1; 64];
    b.event(
        T0,
        7,
        EventKind::FileWrite {
            at: PmAddress {
                file: POOL,
                offset: 4160,
            },
            data: &data,
        },
    );
    b.flush(T0, 8, 4160).sfence(T0, 9);
    b.store(T0, 10, 4224, 8).store(T0, 11, 4232, 4);
    b.event(
        T0,
        12,
        EventKind::FileWrite {
            at: PmAddress {
                file: POOL,
                offset: 4224,
            },
            data: &data[..12],
        },
    );
    assert_eq!(b.summary(), []);
    let flags = StoreFlags {
        syscall: true,
        ..StoreFlags::default()
    };
    assert_eq!(
        TraceBuilder::new().store_as(T0, 1, 0, 8, flags).summary(),
        [(Kind::MissingFlush, 1, 1)]
    );
}

#[test]
fn a_sync_does_not_guarantee_what_is_stored_meanwhile() {
    let sync = EventKind::Sync {
        file: POOL,
        offset: 0,
        len: 4096,
    };
    for known in [true, false] {
        let mut b = TraceBuilder::new();
        b.thread(T1, 0).store(T0, 1, 0, 8);
        if known {
            b.writer.begin(ThreadId(T1)).unwrap();
        }
        let begun = b.writer.events();
        b.store(T0, 2, 0, 8).store(T0, 3, 64, 8);
        let stack = b.stack(&[(None, 4)]);
        b.writer.event_begun(begun, ThreadId(T1), stack, &sync).unwrap();
        let missing = [(Kind::MissingFlush, 2, 1), (Kind::MissingFlush, 3, 1)];
        // A trace that does not say where the sync began says that it was at once.
        assert_eq!(b.summary(), if known { &missing[..] } else { &[] });
    }
}

#[test]
fn the_last_mapping_decides() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).process(1, Some(0)).thread(T1, 1).unmap(T0, 2);
    b.flush(T1, 3, 0).sfence(T1, 4).store(T1, 5, 0, 8).unmap(T1, 6);
    let findings = b.findings();
    assert_eq!(summary(&findings), [(Kind::MissingFlush, 5, 1)]);
    assert_eq!(findings[0].durable_by.as_ref().unwrap().stack[0].address, 6);
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .flush(T0, 2, 0)
        .sfence(T0, 3)
        .unmap(T0, 4)
        .map(T0)
        .flush(T0, 5, 0)
        .sfence(T0, 3);
    assert_eq!(b.summary(), [(Kind::FlushUnmodified, 5, 1)]);
}

#[test]
fn what_was_under_way_when_the_program_was_killed_is_no_finding() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .sfence(T0, 2)
        .store(T0, 3, 64, 8)
        .store(T0, 4, 128, 8)
        .flush(T0, 5, 128);
    b.store(T0, 6, 192, 8).store(T0, 6, 192, 8);
    b.end = ProgramEnd {
        signal: Some(9),
        ..ProgramEnd::default()
    };
    assert_eq!(b.summary(), [(Kind::MissingFlush, 1, 1), (Kind::MissingFlush, 6, 1)]);
}

#[test]
fn what_was_under_way_when_a_child_was_killed_is_no_finding() {
    for killed in [false, true] {
        let mut b = TraceBuilder::new();
        b.process(1, Some(0)).thread(T1, 1).store(T1, 1, 0, 8).sfence(T1, 2);
        b.store(T1, 3, 64, 8).store(T1, 4, 128, 8).flush(T1, 5, 128);
        let process = ProcessId(1);
        b.event(T1, 0, EventKind::ProcessEnd { process, killed });
        // The parent still has the file mapped, and ends in order.
        b.unmap(T0, 6);
        let left = (Kind::MissingFlush, 1, 1);
        let under_way = [(Kind::MissingFlush, 3, 1), (Kind::MissingFence, 4, 1)];
        let expected: Vec<_> = match killed {
            true => vec![left],
            false => [left].into_iter().chain(under_way).collect(),
        };
        assert_eq!(b.summary(), expected);
    }
}

#[test]
fn a_killed_program_that_had_gone_on_is_judged() {
    for gone_on in [EventKind::Output { fd: 1, data: b"done" }, EventKind::Quiet] {
        let mut b = TraceBuilder::new();
        b.store(T0, 1, 0, 8).event(T0, 2, gone_on).store(T0, 3, 64, 8);
        b.end = ProgramEnd {
            signal: Some(2),
            ..ProgramEnd::default()
        };
        assert_eq!(b.summary(), [(Kind::MissingFlush, 1, 1)]);
    }
}

#[test]
fn volatile_ranges_are_not_looked_at() {
    let mut b = TraceBuilder::new();
    b.request(T0, 1, Request::Volatile, Some((0, 64))).store(T0, 2, 8, 8);
    b.request(T0, 3, Request::Persistent, Some((0, 64))).store(T0, 4, 16, 8);
    assert_eq!(b.summary(), [(Kind::MissingFlush, 4, 1)]);
}

#[test]
fn eadr_needs_no_flush() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8)
        .sfence(T0, 2)
        .store(T0, 1, 0, 8)
        .flush(T0, 3, 0)
        .sfence(T0, 4)
        .nt_store(T0, 5, 64, 8);
    let findings = b.report(Model::Eadr, "").findings;
    assert_eq!(
        summary(&findings),
        [(Kind::MissingFence, 5, 1), (Kind::RedundantFlush, 3, 1)]
    );
    assert!(findings[1].message.contains("eADR"), "{}", findings[1].message);
}

#[test]
fn what_pmdk_flushes_on_its_own_account_is_not_the_programs() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 8).flush(T0, 2, 0).sfence(T0, 3);
    let stack = b.stack(&[(Some("libpmem.so.1"), 10), (Some("libpmemobj.so.1"), 11), (None, 4)]);
    b.event_at(
        T0,
        stack,
        EventKind::Flush {
            at: PmAddress { file: POOL, offset: 0 },
            kind: FlushKind::Clwb,
        },
    );
    b.event_at(
        T0,
        stack,
        EventKind::Fence {
            kind: FenceKind::Sfence,
        },
    );
    b.event_at(
        T0,
        stack,
        EventKind::Fence {
            kind: FenceKind::Sfence,
        },
    );
    assert_eq!(b.summary(), []);
}

#[test]
fn run_time_fields_of_libpmemobj_without_client_requests() {
    for client_requests in [false, true] {
        let mut b = TraceBuilder::with_options(Options {
            client_requests,
            ..Options::default()
        });
        let stack = b.stack(&[(Some("libpmemobj.so.1"), 11), (None, 4)]);
        let at = PmAddress { file: POOL, offset: 0 };
        b.event_at(
            T0,
            stack,
            EventKind::Store {
                at,
                data: &[1; 8],
                flags: StoreFlags::default(),
            },
        );
        assert_eq!(b.findings().len(), usize::from(client_requests));
    }
}

#[test]
fn rules_and_ignores() {
    let trace = || {
        let mut b = TraceBuilder::new();
        b.store(T0, 1, 0x100, 8)
            .store(T0, 2, 0x40, 8)
            .flush(T0, 3, 0x40)
            .flush(T0, 3, 0x100)
            .sfence(T0, 4);
        b.store(T0, 1, 0x100, 8)
            .flush(T0, 3, 0x100)
            .sfence(T0, 4)
            .store(T0, 5, 0x40, 8)
            .flush(T0, 3, 0x40);
        b.sfence(T0, 4);
        b
    };
    let config = r#"
        [[rule]]
        kind = "must-persist-before"
        before = "pool@0x100-0x1ff"
        after = "pool@0x40"
        [[rule]]
        kind = "must-be-in-transaction"
        stores = "pool@0x40-0x47"
        [[ignore]]
        kind = "missing-flush"
        reason = "never"
    "#;
    let report = trace().report(Model::Px86, config);
    assert_eq!(
        summary(&report.findings),
        [
            (Kind::RuleOrder, 2, 1),
            (Kind::RuleTransaction, 2, 1),
            (Kind::RuleTransaction, 5, 1)
        ]
    );
    let order = report.findings.iter().find(|f| f.kind == Kind::RuleOrder).unwrap();
    assert_eq!(order.related[0].stack[0].address, 1);
    assert!(
        order.message.contains("`pool@0x100-0x1ff` persist before"),
        "{}",
        order.message
    );
    assert!(
        report
            .warnings
            .iter()
            .any(|w| w.contains("matches no finding: kind \"missing-flush\""))
    );
    let config = format!("{config}\n[[ignore]]\nkind = \"rule-order\"\nreason = \"x\"");
    assert_eq!(trace().report(Model::Px86, &config).findings.len(), 2);
}
