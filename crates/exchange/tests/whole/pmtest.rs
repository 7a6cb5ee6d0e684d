//! The operation trace of a real run under PMTest (tests/data/ledger.log, of ledger.c beside it), and logs made by hand.

use std::path::PathBuf;

use crashproof_check::{CheckOptions, check};
use crashproof_exchange::pmtest::{ImportError, Imported, import};
use crashproof_finding::{Kind, Report};
use crashproof_trace::*;
use proptest::prelude::*;
use tempfile::TempDir;

const LEDGER: &str = include_str!("../data/ledger.log");

fn trace_of(folder: &TempDir, log: &[u8]) -> Result<(PathBuf, Imported), ImportError> {
    let (from, to) = (folder.path().join("log"), folder.path().join("imported.trace"));
    std::fs::write(&from, log).unwrap();
    let imported = import(&from, &to)?;
    Ok((to, imported))
}

fn report(log: &str) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let (trace, _) = trace_of(&folder, log.as_bytes()).unwrap();
    let mut reader = TraceReader::open(&trace).unwrap();
    check(&mut reader, &CheckOptions::default(), |_, _| ()).unwrap()
}

/// Kind and source line of what is found, in order of lines.
fn found(log: &str) -> Vec<(Kind, u32)> {
    let report = report(log);
    assert!(report.trace.complete);
    let findings = report.findings.iter();
    let mut found: Vec<_> = findings.map(|f| (f.kind, f.line.unwrap_or(0))).collect();
    found.sort_by_key(|(kind, line)| (*line, kind.name()));
    found
}

#[test]
fn a_real_log_gives_what_pmtest_says_and_more() {
    let folder = tempfile::tempdir().unwrap();
    let (_, imported) = trace_of(&folder, LEDGER.as_bytes()).unwrap();
    assert_eq!((imported.stores, imported.flushes, imported.fences), (10, 8, 9));
    assert_eq!((imported.checkers, imported.unordered.len()), (7, 0));
    assert_eq!(
        found(LEDGER),
        [
            (Kind::RedundantFence, 41),
            (Kind::ExpectOrder, 43),
            (Kind::ExpectOrder, 72),
            (Kind::TxStoreNotSnapshotted, 86),
            (Kind::MissingFlush, 94),
        ]
    );
    let report = report(LEDGER);
    let file = |finding: &crashproof_finding::Finding| finding.file.clone();
    assert!(
        report
            .findings
            .iter()
            .all(|finding| file(finding).as_deref() == Some("ledger.c"))
    );
}

#[test]
fn durable_is_flushed_and_fenced() {
    let checked = |rest: &str| found(&format!("_ASSIGN 0x1000 8 a.c 1\n{rest}"));
    assert_eq!(
        checked("_PERSIST 0x1000 8 a.c 2\n"),
        [(Kind::MissingFlush, 1), (Kind::ExpectDurable, 2)]
    );
    // PMTest takes the flush for done here, because a fence follows.
    assert_eq!(
        checked("_FLUSH 0x1000 8 a.c 2\n_PERSIST 0x1000 8 a.c 3\n_FENCE a.c 4\n"),
        [(Kind::ExpectDurable, 3)]
    );
    assert_eq!(
        checked("_FLUSH 0x1000 8 a.c 2\n_FENCE a.c 3\n_PERSIST 0x1000 8 a.c 4\n"),
        []
    );
}

#[test]
fn an_order_is_asked_of_the_stores_before_it() {
    let persist =
        |at: &str, line: u32| format!("_ASSIGN {at} 8 a.c {line}\n_FLUSH {at} 8 a.c {line}\n_FENCE a.c {line}\n");
    let order = "_ORDER 0x1000 8 0x1040 8 a.c 9\n";
    let (first, second) = (persist("0x1000", 1), persist("0x1040", 2));
    assert_eq!(found(&format!("{first}{second}{order}")), []);
    assert_eq!(found(&format!("{second}{first}{order}")), [(Kind::ExpectOrder, 2)]);
    // Only the last stores count, and of those to the second range the first.
    assert_eq!(found(&format!("{second}{first}{second}{order}")), []);
    let wide = "_ORDER 0x1000 8 0x1040 16 a.c 9\n";
    let other_half = persist("0x1048", 3);
    assert_eq!(found(&format!("{first}{second}{other_half}{wide}")), []);
    assert_eq!(
        found(&format!("{second}{first}{other_half}{wide}")),
        [(Kind::ExpectOrder, 2)]
    );
    // As in PMTest, nothing is asked of what is excluded.
    let excluded = "_EXCLUDE 0x1044 1 a.c 1\n";
    assert_eq!(found(&format!("{excluded}{second}{first}{order}")), []);
    let again = "_INCLUDE 0x1000 4096 a.c 1\n";
    assert_eq!(
        found(&format!("{excluded}{again}{second}{first}{order}")),
        [(Kind::ExpectOrder, 2)]
    );
    let folder = tempfile::tempdir().unwrap();
    let (_, imported) = trace_of(&folder, format!("{first}{order}").as_bytes()).unwrap();
    assert_eq!(imported.checkers, 0);
    let [unordered] = &imported.unordered[..] else {
        panic!("{imported:?}");
    };
    assert_eq!((unordered.line, unordered.place.as_str()), (4, "a.c:9"));
}

#[test]
fn stores_in_transactions_are_snapshotted_first() {
    let store = "_ASSIGN 0x1000 8 a.c 2\n_FLUSH 0x1000 8 a.c 3\n_FENCE a.c 4\n";
    let inside = |before: &str| {
        found(&format!(
            "{before}_TRANSACTIONBEGIN a.c 1\n{store}_TRANSACTIONEND a.c 5\n"
        ))
    };
    assert_eq!(inside(""), [(Kind::TxStoreNotSnapshotted, 2)]);
    assert_eq!(inside("_EXCLUDE 0x1007 1 a.c 1\n"), []);
    let added = format!("_TRANSACTIONBEGIN a.c 1\n_TRANSACTIONADD 0x0ff8 16 a.c 1\n{store}_TRANSACTIONEND a.c 5\n");
    assert_eq!(found(&added), []);
    // What the transaction before had snapshotted does not help this one.
    assert_eq!(inside(&added), [(Kind::TxStoreNotSnapshotted, 2)]);
}

#[test]
fn memory_that_is_far_apart_is_several_files() {
    let folder = tempfile::tempdir().unwrap();
    let log = "_ASSIGN 0x7f0000000ff8 16 a.c 1\n_ASSIGN 0x55550000007f 130 a.c 2\n_FENCE a.c 3\n";
    let (trace, _) = trace_of(&folder, log.as_bytes()).unwrap();
    let mut reader = TraceReader::open(&trace).unwrap();
    let (mut stores, mut paths) = (Vec::new(), Vec::new());
    while let Some((item, tables)) = reader.next_with_tables().unwrap() {
        let Item::Event(event) = item else { continue };
        match event.kind {
            EventKind::Store { at, data, .. } => stores.push((at.file.0, at.offset, data.len())),
            EventKind::Map { file, .. } => paths.push(tables.file(file).unwrap().path.clone()),
            _ => {}
        }
    }
    assert_eq!(paths, ["memory at 0x555500000000", "memory at 0x7f0000000000"]);
    assert_eq!(
        stores,
        [
            (1, 0xff8, 8),
            (1, 0x1000, 8),
            (0, 0x7f, 1),
            (0, 0x80, 64),
            (0, 0xc0, 64),
            (0, 0x100, 1)
        ]
    );
}

#[test]
fn wrong_logs_are_told_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let error = |log: &str| trace_of(&folder, log.as_bytes()).unwrap_err().to_string();
    assert!(error("hello\n").contains("make debug"));
    assert!(error("").contains("make debug"));
    let said = error("hello\n_FENCE a.c 1\r\n_FLUSH 0x40 eight a.c 1\n");
    assert!(said.ends_with("log:3: the size \"eight\" is not a number"), "{said}");
    let missing = import(&folder.path().join("none"), &folder.path().join("trace")).unwrap_err();
    assert!(missing.to_string().contains("none"), "{missing}");
}

/// Lines as PMTest prints them, damaged ones, and other output.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "_ASSIGN",
        "_FLUSH",
        "_PERSIST",
        "_TRANSACTIONADD",
        "_EXCLUDE",
        "_INCLUDE",
        "_ORDER",
        "_FENCE",
        "_TRANSACTIONBEGIN",
        "_TRANSACTIONEND",
    ]);
    let range = (0x1000_u64..0x1200, 1_u64..200).prop_map(|(at, size)| format!("{at:#x} {size}"));
    let whole = (name, range.clone(), range).prop_map(|(name, first, second)| match name {
        "_ORDER" => format!("{name} {first} {second} a.c 7"),
        "_FENCE" | "_TRANSACTIONBEGIN" | "_TRANSACTIONEND" => format!("{name} a b.c 8"),
        _ => format!("{name} {first} a.c 9"),
    });
    let cut = (whole.clone(), 0_usize..40).prop_map(|(text, at)| text.chars().take(at).collect());
    let line = prop_oneof![20 => whole, 1 => cut, 2 => ".*", 1 => "_[A-Z]{4,8} [0-9a-fx() -]{0,30}"];
    prop::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_log_is_imported_or_refused(log in prop_oneof![4 => lines(), 1 => prop::collection::vec(any::<u8>(), 0..200)]) {
        let folder = tempfile::tempdir().unwrap();
        if let Ok((trace, imported)) = trace_of(&folder, &log) {
            let mut reader = TraceReader::open(&trace).unwrap();
            check(&mut reader, &CheckOptions::default(), |_, _| ()).unwrap();
            prop_assert!(reader.counts().stores >= imported.stores);
        }
    }
}
