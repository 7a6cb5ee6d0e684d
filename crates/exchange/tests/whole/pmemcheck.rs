//! The store log of a real run of pmemcheck (tests/data/queue.log, of queue.c beside it), and logs made by hand.

use std::path::{Path, PathBuf};

use crashproof_check::{CheckOptions, check};
use crashproof_exchange::pmemcheck::{ImportError, ImportOptions, export, import};
use crashproof_finding::{Kind, Report};
use crashproof_stacks::DeclaredHelpers;
use crashproof_trace::*;
use tempfile::TempDir;

const QUEUE: &str = include_str!("../data/queue.log");

/// The trace of a log.
fn trace_of(folder: &TempDir, log: &str) -> Result<PathBuf, ImportError> {
    let (from, to) = (folder.path().join("log"), folder.path().join("imported.trace"));
    std::fs::write(&from, log).unwrap();
    import(&from, &to, &ImportOptions::default())?;
    Ok(to)
}

fn log_of(trace: &Path) -> (String, Vec<(&'static str, u64)>) {
    let mut log = Vec::new();
    let lost = export(&mut TraceReader::open(trace).unwrap(), &mut log).unwrap();
    (String::from_utf8(log).unwrap(), lost.iter().collect())
}

fn report(trace: &Path) -> Report {
    let mut reader = TraceReader::open(trace).unwrap();
    check(&mut reader, &CheckOptions::default(), |_, _| ()).unwrap()
}

/// The records of a log, without Valgrind's other lines.
fn records(log: &str) -> String {
    let line = |line: &str| {
        let rest = line.strip_prefix("==4711== ").unwrap_or(line).to_owned();
        (rest.starts_with("START") || rest.starts_with('|')).then_some(rest)
    };
    log.lines().filter_map(line).collect::<String>() + "\n"
}

#[test]
fn a_real_log_gives_the_findings_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(&trace_of(&folder, QUEUE).unwrap());
    assert!(report.trace.complete, "{:?}", report.trace.incomplete);
    assert_eq!(report.program.command, ["./queue", "pool"]);
    let mut lost: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.kind == Kind::MissingFlush)
        .map(|finding| (finding.file.as_deref(), finding.line, finding.function.as_deref()))
        .collect();
    lost.sort();
    lost.dedup();
    let main = Some("main");
    assert_eq!(
        lost,
        [(Some("queue.c"), Some(27), main), (Some("queue.c"), Some(40), main)]
    );
    let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    assert!(
        kinds.contains(&Kind::RedundantFlush) && !kinds.contains(&Kind::RedundantFence),
        "{kinds:?}"
    );
}

#[test]
fn what_is_imported_is_exported_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = trace_of(&folder, QUEUE).unwrap();
    let (log, lost) = log_of(&first);
    assert_eq!(log, records(QUEUE));
    assert_eq!(lost, []);
    let again = tempfile::tempdir().unwrap();
    assert_eq!(log_of(&trace_of(&again, &log).unwrap()).0, log);
}

/// A trace with one event or more of every kind.
fn everything(path: &Path) -> Result<(), WriteError> {
    let mut writer = TraceWriter::create(path, &Header::default())?;
    let (process, none) = (ProcessId(0), StackId(0));
    let file = writer.file(&PmFile {
        path: "/mnt/pmem/a;b".into(),
        size: 8192,
        created: true,
        kind: PmFileKind::File,
    })?;
    let at = |offset| PmAddress { file, offset };
    writer.initial(at(0), &[7; 16])?;
    let mut event = |thread, kind| writer.event(ThreadId(thread), none, &kind);
    event(
        0,
        EventKind::ProcessStart {
            process,
            pid: 7,
            parent: None,
            executable: "/bin/a",
        },
    )?;
    event(0, EventKind::ThreadStart { process, os_id: 7 })?;
    event(1, EventKind::ThreadStart { process, os_id: 8 })?;
    let (address, offset, len) = (0x10000, 4096, 4096);
    event(
        0,
        EventKind::Map {
            file,
            address,
            offset,
            len,
            writable: true,
        },
    )?;
    let plain = StoreFlags::default();
    let store = |offset, data, flags| EventKind::Store {
        at: at(offset),
        data,
        flags,
    };
    event(0, store(4096, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], plain))?;
    let kind = FlushKind::Clflush;
    event(0, EventKind::Flush { at: at(4100), kind })?;
    let nontemporal = StoreFlags {
        nontemporal: true,
        ..plain
    };
    event(1, store(4224, &[1; 4], nontemporal))?;
    let locked = StoreFlags { locked: true, ..plain };
    event(1, store(4352, &[1; 8], locked))?;
    let kind = FenceKind::Mfence;
    event(1, EventKind::Fence { kind })?;
    event(1, store(0, &[1; 8], plain))?;
    let offset = 4096;
    event(1, EventKind::Sync { file, offset, len: 64 })?;
    event(1, EventKind::Annotation(Annotation::OperationBegin { name: "put" }))?;
    event(1, EventKind::Annotation(Annotation::OperationEnd { name: "put" }))?;
    let (name, arguments) = ("pmemobj_tx_begin", [0; 6]);
    event(1, EventKind::Call { name, arguments })?;
    event(1, EventKind::Output { fd: 1, data: b"done" })?;
    event(1, EventKind::Resize { file, size: 9000 })?;
    event(1, EventKind::Unmap { file, offset, len })?;
    event(1, EventKind::ProcessEnd { process, killed: false })?;
    writer.finish(ProgramEnd::default())
}

#[test]
fn what_the_log_cannot_express_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    everything(&trace).unwrap();
    let (log, lost) = log_of(&trace);
    assert_eq!(
        log,
        "START|REGISTER_FILE;/mnt/pmem/a_b;0x10000;0x1000;0x1000|STORE;0x10000;0x807060504030201;0x8|STORE;0x10008;0xa09;0x2\
         |FLUSH;0x10000;0x40|STORE;0x10080;0x1010101;0x4|FLUSH;0x10080;0x4|FENCE|STORE;0x10100;0x101010101010101;0x8|FENCE|FENCE\
         |DEEP_SYNC;0x10000;0x40|put.BEGIN|put.END|STOP\n"
    );
    let told: Vec<_> = lost.iter().map(|(what, _)| what.split(' ').next().unwrap()).collect();
    let expected = [
        "calls",
        "changes",
        "changes",
        "characters",
        "kinds",
        "locked",
        "non-temporal",
        "outputs",
        "parts",
        "stores",
        "unmappings",
    ];
    assert_eq!(told, expected, "{lost:?}");
    // A flush is of a whole line, as the processor has it.
    let imported = trace_of(&folder, &log).unwrap();
    assert_eq!(
        log_of(&imported).0,
        log.replace("|FLUSH;0x10080;0x4|", "|FLUSH;0x10080;0x40|")
    );
}

#[test]
fn wrong_logs_are_told_with_their_line() {
    let error = |log: &str| {
        let folder = tempfile::tempdir().unwrap();
        let error = trace_of(&folder, log).unwrap_err().to_string();
        error.replace(&folder.path().display().to_string(), "")
    };
    let wrong = error("==1== pmemcheck\n==1== START|FENCE\n==1== |FENCE|STORE;0x10;0x1\n==1== |STOP\n");
    assert!(wrong.starts_with("/log:3: record 2: STORE has 2 fields"), "{wrong}");
    let wrong = error("START|JUMP;0x1|STOP\n");
    assert!(wrong.starts_with("/log:1: record 2: \"JUMP\" is no record"), "{wrong}");
    for log in ["", "==1== Memcheck, a memory error detector\n", "no log at all\n"] {
        assert!(error(log).contains("has no store log; write one with"), "{log}");
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = import(
        &folder.path().join("no"),
        &folder.path().join("trace"),
        &ImportOptions::default(),
    );
    assert!(matches!(missing, Err(ImportError::Read { .. })));
}

#[test]
fn logs_that_were_cut_and_stores_elsewhere_make_the_trace_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let cut = report(&trace_of(&folder, "START|FENCE|STORE;0x10;0x1;0x8\n").unwrap());
    assert_eq!(cut.trace.incomplete.len(), 2, "{:?}", cut.trace.incomplete);
}

#[test]
fn what_files_held_before() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("log"), QUEUE).unwrap();
    std::fs::write(place("copy"), [5; 100]).unwrap();
    let options = |file: &str| ImportOptions {
        initial: vec![(file.to_owned(), place("copy"))],
    };
    import(&place("log"), &place("trace"), &options("/mnt/pmem/pool")).unwrap();
    let mut reader = TraceReader::open(place("trace")).unwrap();
    let mut initial = 0;
    while let Some(item) = reader.next().unwrap() {
        if let Item::Initial { data, .. } = item {
            initial += data.iter().filter(|&&byte| byte == 5).count();
        }
    }
    assert_eq!(initial, 100);
    let other = import(&place("log"), &place("trace"), &options("/other"))
        .unwrap_err()
        .to_string();
    assert!(other.contains("it registers /mnt/pmem/pool"), "{other}");
}

#[test]
fn no_log_makes_it_panic() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = QUEUE.as_bytes();
    for at in (300..bytes.len()).step_by(23) {
        let _ = trace_of(&folder, &String::from_utf8_lossy(&bytes[..at]));
        let mut changed = bytes.to_vec();
        changed[at] = b";|=0x\n\xff("[at % 8];
        let _ = trace_of(&folder, &String::from_utf8_lossy(&changed));
    }
}

#[test]
fn a_timeline_has_threads_and_cache_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut json = Vec::new();
    let trace = trace_of(&folder, QUEUE).unwrap();
    let lost = crashproof_exchange::perfetto::export(
        &mut TraceReader::open(&trace).unwrap(),
        DeclaredHelpers::default(),
        &mut json,
    )
    .unwrap();
    assert!(lost.is_empty());
    let timeline: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
    let store = named("store")[0];
    assert_eq!(
        (&store["args"]["source"], &store["args"]["function"]),
        (&"queue.c:17".into(), &"push".into())
    );
    assert_eq!(store["args"]["at"], "pool+0x40");
    // Each line that is stored to: until its flush, then until the fence; three stay dirty to the end.
    let end = events
        .iter()
        .filter_map(|event| Some(event["ts"].as_u64()? + event["dur"].as_u64()?))
        .max();
    let (dirty, pending) = (named("dirty"), named("pending"));
    assert!(dirty.len() > pending.len() && !pending.is_empty());
    let to_the_end =
        |event: &&&serde_json::Value| Some(event["ts"].as_u64().unwrap() + event["dur"].as_u64().unwrap()) == end;
    assert_eq!(dirty.iter().filter(to_the_end).count(), 3);
    let mut whole = Vec::new();
    everything(&folder.path().join("trace")).unwrap();
    let mut reader = TraceReader::open(folder.path().join("trace")).unwrap();
    crashproof_exchange::perfetto::export(&mut reader, DeclaredHelpers::default(), &mut whole).unwrap();
    let whole: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    let phases: String = whole["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["ph"].as_str())
        .collect();
    assert!(phases.contains("BE"), "{phases}");
}
