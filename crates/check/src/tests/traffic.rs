//! PM traffic by function, against numbers counted by hand. Without debug info a place in the code has no function: what tells
//! places apart here is a library's name.

use super::*;
use crashproof_finding::picture::Traffic;

fn numbers(traffic: &Traffic) -> [u64; 6] {
    [
        traffic.stores,
        traffic.bytes,
        traffic.flushes,
        traffic.fences,
        traffic.redundant_flushes,
        traffic.redundant_fences,
    ]
}

#[test]
fn every_event_is_counted_once() {
    let mut trace = TraceBuilder::new();
    trace.map(0);
    for place in 1..=3 {
        trace
            .store(0, place, 64 * place, 8)
            .store(0, place, 64 * place + 8, 4)
            .flush(0, 10, 64 * place)
            .flush(0, 11, 64 * place)
            .sfence(0, 12);
    }
    trace
        .nt_store(0, 4, 640, 16)
        .sfence(0, 12)
        .sfence(0, 13)
        .flush(0, 14, 1024);
    let report = trace.report(Model::Px86, "");
    let [all] = &report.traffic[..] else {
        panic!("one row without names: {:?}", report.traffic);
    };
    assert_eq!(all.function, None);
    // Three flushes are repeated, one is of a line never stored to; one fence follows another.
    assert_eq!(numbers(all), [7, 3 * 12 + 16, 7, 5, 4, 1]);
    let summary = &report.trace;
    assert_eq!(
        [all.stores, all.flushes, all.fences],
        [summary.stores, summary.flushes, summary.fences]
    );
    let of = |kind| report.findings.iter().filter(move |finding| finding.kind == kind);
    let count = |kind| of(kind).map(|finding| finding.count).sum::<u64>();
    assert_eq!(
        count(Kind::RedundantFlush) + count(Kind::FlushUnmodified),
        all.redundant_flushes
    );
    assert_eq!(count(Kind::RedundantFence), all.redundant_fences);
}

#[test]
fn by_function_and_caller() {
    // Places as another tool describes them have names.
    let mut trace = TraceBuilder::new();
    trace.map(0);
    let mut module = |name: &str, line: u32| {
        let module = Module::of_place("/no/app", Some(name), Some("/src/app.c"), Some(line));
        trace.writer.module(&module).unwrap()
    };
    let (persist, put, get, main) = (
        module("persist", 5),
        module("put", 20),
        module("get", 30),
        module("main", 50),
    );
    let mut stack = |frames: &[crashproof_trace::ModuleId]| {
        let frame = |&module: &crashproof_trace::ModuleId| Frame {
            module: Some(module),
            address: 0,
        };
        let frames: Vec<Frame> = frames.iter().map(frame).collect();
        trace.writer.stack(&frames).unwrap()
    };
    let stores = stack(&[put, main]);
    let persists = [stack(&[persist, put, main]), stack(&[persist, get, main])];
    for n in 0..3 {
        let at = PmAddress {
            file: POOL,
            offset: 64 * n,
        };
        let (data, flags) = (&[7; 8][..], StoreFlags::default());
        trace.event_at(0, stores, EventKind::Store { at, data, flags });
        for by in persists {
            let kind = FlushKind::Clwb;
            trace.event_at(0, by, EventKind::Flush { at, kind });
            let kind = FenceKind::Sfence;
            trace.event_at(0, by, EventKind::Fence { kind });
        }
    }
    let report = trace.report(Model::Px86, "");
    let rows: Vec<_> = report
        .traffic
        .iter()
        .map(|row| (row.function.as_deref().unwrap(), numbers(row)))
        .collect();
    // The second flush of each is redundant; a redundant flush excuses its fence.
    assert_eq!(rows, [("persist", [0, 0, 6, 6, 3, 0]), ("put", [3, 24, 0, 0, 0, 0])]);
    let callers: Vec<_> = report.traffic[0]
        .callers
        .iter()
        .map(|caller| {
            (
                caller.frame.function.as_deref().unwrap(),
                caller.frame.line,
                caller.flushes,
                caller.redundant_flushes,
            )
        })
        .collect();
    assert_eq!(callers, [("put", Some(20), 3, 0), ("get", Some(30), 3, 3)]);
}

#[test]
fn it_is_counted_only_if_it_is_wanted() {
    let bytes = TraceBuilder::new().map(0).store(0, 1, 0, 8).bytes();
    let len = bytes.len() as u64;
    let mut reader = TraceReader::from_source("test.trace", Box::new(io::Cursor::new(bytes)), len).unwrap();
    let report = check(&mut reader, &CheckOptions::default(), |_, _| {}).unwrap();
    assert_eq!(report.traffic, []);
}
