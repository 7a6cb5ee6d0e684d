//! The rows of cache lines in Perfetto's timeline.

use crashproof_exchange::perfetto::export;
use crashproof_stacks::DeclaredHelpers;
use crashproof_trace::*;
use serde_json::Value;

/// The trace of these events of threads, on a file of 4096 bytes.
fn trace_of(events: &[(u32, EventKind<'_>)]) -> TraceReader {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path, &Header::default()).unwrap();
    let file = PmFile {
        path: "/pm/pool".into(),
        size: 4096,
        created: false,
        kind: PmFileKind::File,
    };
    writer.file(&file).unwrap();
    let process = ProcessId(0);
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "/app",
    };
    writer.event(ThreadId(0), StackId(0), &start).unwrap();
    for thread in 0..2 {
        let start = EventKind::ThreadStart { process, os_id: thread };
        writer.event(ThreadId(thread), StackId(0), &start).unwrap();
    }
    for (thread, event) in events {
        writer.event(ThreadId(*thread), StackId(0), event).unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
    TraceReader::open(&path).unwrap()
}

/// Events before those of a test.
const FIRST: u64 = 3;

/// Of a line: its slices as "name from..end".
fn slices(json: &[u8], line: u64) -> Vec<String> {
    let document: Value = serde_json::from_slice(json).unwrap();
    let events = document["traceEvents"].as_array().unwrap().iter();
    let slices =
        events.filter(|event| event["pid"].as_u64() >= Some(1 << 20) && event["tid"] == line && event["ph"] == "X");
    let in_words = |slice: &Value| {
        let (start, len) = (slice["ts"].as_u64().unwrap() - FIRST, slice["dur"].as_u64().unwrap());
        format!("{} {start}..{}", slice["name"].as_str().unwrap(), start + len)
    };
    slices.map(in_words).collect()
}

fn slices_of_line_0(events: &[EventKind<'_>]) -> Vec<String> {
    let events: Vec<_> = events.iter().map(|event| (0, event.clone())).collect();
    let mut json = Vec::new();
    export(&mut trace_of(&events), DeclaredHelpers::default(), &mut json).unwrap();
    slices(&json, 0)
}

const AT: PmAddress = PmAddress {
    file: FileId(0),
    offset: 0,
};
const FENCE: EventKind = EventKind::Fence {
    kind: FenceKind::Sfence,
};

fn store(nontemporal: bool) -> EventKind<'static> {
    let flags = StoreFlags {
        nontemporal,
        ..StoreFlags::default()
    };
    EventKind::Store {
        at: AT,
        data: &[1; 8],
        flags,
    }
}

fn flush(kind: FlushKind) -> EventKind<'static> {
    EventKind::Flush { at: AT, kind }
}

#[test]
fn a_line_is_dirty_then_pending() {
    let events = [store(false), store(false), flush(FlushKind::Clwb), FENCE, FENCE];
    assert_eq!(slices_of_line_0(&events), ["dirty 0..2", "pending 2..3"]);
}

#[test]
fn clflush_needs_no_fence() {
    let events = [store(false), flush(FlushKind::Clwb), flush(FlushKind::Clflush), FENCE];
    assert_eq!(slices_of_line_0(&events), ["dirty 0..1", "pending 1..2"]);
}

#[test]
fn files_are_truncated_and_written() {
    let truncate = EventKind::Resize {
        file: FileId(0),
        size: 0,
    };
    assert_eq!(slices_of_line_0(&[store(false), truncate, FENCE]), ["dirty 0..1"]);
    let write = EventKind::FileWrite { at: AT, data: &[2; 8] };
    assert_eq!(slices_of_line_0(&[store(false), write, FENCE]), ["dirty 0..1"]);
}

#[test]
fn a_sync_persists_its_range() {
    let sync = |len| EventKind::Sync {
        file: FileId(0),
        offset: 0,
        len,
    };
    assert_eq!(
        slices_of_line_0(&[store(false), sync(4), FENCE, sync(8)]),
        ["dirty 0..3"]
    );
}

/// The fence persists the non-temporal store only.
#[test]
fn a_nontemporal_store_hides_no_dirty_bytes() {
    let mut cached = store(false);
    if let EventKind::Store { at, .. } = &mut cached {
        at.offset = 8;
    }
    let events = [cached, store(true), FENCE, FENCE];
    assert_eq!(slices_of_line_0(&events), ["dirty 0..4"]);
}

/// Each thread that flushed the line makes what it flushed persistent with its own fence.
#[test]
fn two_threads_flush_a_line() {
    let events = [
        (0, store(false)),
        (0, flush(FlushKind::Clwb)),
        (1, flush(FlushKind::Clwb)),
        (1, FENCE),
        (0, FENCE),
    ];
    let mut json = Vec::new();
    export(&mut trace_of(&events), DeclaredHelpers::default(), &mut json).unwrap();
    assert_eq!(slices(&json, 0), ["dirty 0..1", "pending 1..3"]);
}
