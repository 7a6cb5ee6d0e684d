//! What the user sees, as snapshots.

use crate::common::*;
use crashproof_finding::*;
use crashproof_render::*;
use insta::assert_snapshot;

fn rendered(report: &Report) -> String {
    render(report, sources().path())
}

#[test]
fn missing_flush_before_a_fence() {
    assert_snapshot!(rendered(&report(vec![missing_flush()])));
}

#[test]
fn clean() {
    assert_snapshot!(rendered(&report(Vec::new())));
}

#[test]
fn nothing_stored() {
    let mut report = report(Vec::new());
    report.trace = TraceSummary {
        complete: true,
        ..TraceSummary::default()
    };
    report.program.status = Some(2);
    report.look_for_doubts(Allowed::default());
    assert_snapshot!(rendered(&report));
}

#[test]
fn every_kind_worst_first() {
    assert_snapshot!(rendered(&every_kind()));
}

#[test]
fn crash_of_each_kind() {
    let mut report = report(vec![crash_order(), crash_atomicity(), crash_durability()]);
    report.stats = Some(Stats {
        recoveries: 15_814,
        oracle_runs: 0,
        ..stats()
    });
    assert_snapshot!(rendered(&report));
}

/// What has to be durable first is an operation on a file, and so is what comes after it.
#[test]
fn the_advice_for_operations_on_files_is_a_sentence() {
    let advice = |first: Option<FileOperation>, then: Option<FileOperation>| {
        let mut finding = crash_order();
        let crash = finding.crash.as_mut().unwrap();
        crash.missing[0].operation = first;
        crash.persisted[0].operation = then;
        let text = rendered(&report(vec![finding]));
        let help = text.split("= help: ").nth(1).unwrap();
        help.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .trim_end_matches(" =")
            .to_owned()
    };
    let (id, count) = (
        "`event->id = id` (log.c:11)",
        "`log->count = log->count + 1` (log.c:14)",
    );
    let written = || Some(FileOperation::Written);
    let resized = || Some(FileOperation::Resized { size: 8192 });
    let how = "flush and fence it before that";
    for (first, then, expected) in [
        (None, None, format!("{id} must persist before {count}: {how} store")),
        (
            None,
            written(),
            format!("{id} must persist before what was written to log.pm, by {count}: {how}"),
        ),
        (
            resized(),
            written(),
            format!(
                "the new size of log.pm (8192 bytes), by {id}, must be durable before what was written to log.pm, by {count}: {how}"
            ),
        ),
    ] {
        assert_eq!(advice(first, then), expected);
    }
}

#[test]
fn crash_without_findings() {
    let mut report = report(Vec::new());
    report.stats = Some(Stats {
        states_failed: 0,
        states_pruned: 0,
        ..stats()
    });
    assert_snapshot!(rendered(&report));
}

#[test]
fn crash_test_that_was_cut_short() {
    let mut report = report(Vec::new());
    report.stats = Some(Stats {
        states_total: u64::MAX,
        states_failed: 0,
        states_tested: 1,
        seconds: 0.0,
        cut_short: true,
        ..stats()
    });
    assert_snapshot!(rendered(&report));
}

#[test]
fn the_strategies_of_auto_are_one_line() {
    let run = |name: &str, states_tested, ended| StrategyRun {
        name: name.into(),
        states_tested,
        ended,
        ..StrategyRun::default()
    };
    let mut report = report(Vec::new());
    let one = vec![run("dpor", 12_345, StrategyEnd::Done)];
    report.stats = Some(Stats {
        strategies: one,
        ..stats()
    });
    assert!(!rendered(&report).contains("dpor"));
    let strategies = vec![
        run("prefix", 12, StrategyEnd::Done),
        run("representative", 1, StrategyEnd::Budget),
        run("early states", 0, StrategyEnd::Stopped),
        run("random", 0, StrategyEnd::NotBegun),
    ];
    report.stats = Some(Stats { strategies, ..stats() });
    let expected = "prefix: 12 states, done; representative: 1 state, ended by the budget; early states: 0 states, stopped; \
                    random: not begun";
    let text = rendered(&report);
    assert!(text.lines().any(|line| line.trim() == expected), "{text}");
}

#[test]
fn crash_between_stores_of_one_line() {
    let mut finding = crash_order();
    let crash = finding.crash.as_mut().unwrap();
    crash.persisted = vec![crash_store(11, 12, 128)];
    crash.after = crash.persisted[0].frame.clone();
    crash.recovery.stderr = (1..30).map(|n| format!("line {n}\n")).collect();
    finding.order[0].after = crash.after.clone();
    finding.message =
        "crash after line 11 of `append`: line 11 had persisted, line 11 had not; recovery exited with status 1".into();
    finding.help = Some("what log.c:11 stores first has to be flushed and fenced before it stores again".into());
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn crash_with_stores_from_two_places() {
    let mut finding = crash_order();
    let crash = finding.crash.as_mut().unwrap();
    let other = stack([inlined(frame("persist", "pm.h", 4, 3)), frame("main", "log.c", 22, 2)]);
    crash.persisted[0].frame = other[0].clone();
    crash.persisted[0].stack = other;
    crash.recovery.unexpected_output = true;
    crash.recovery.status = Some(0);
    crash.recovery.stdout = "0 events\n".into();
    finding.order[0].after = crash.persisted[0].frame.clone();
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn crash_without_debug_info() {
    let bare = |address, offset| {
        let stack = stack([library(None, "/opt/app/logger", address)]);
        CrashStore {
            frame: stack[0].clone(),
            stack,
            ..crash_store(11, 12, offset)
        }
    };
    let mut finding = crash_order();
    let crash = finding.crash.as_mut().unwrap();
    (crash.missing, crash.persisted) = (vec![bare(0x1190, 64)], vec![bare(0x11a8, 0)]);
    crash.after = crash.persisted[0].frame.clone();
    finding.order = vec![Order {
        before: crash.missing[0].frame.clone(),
        after: crash.after.clone(),
        before_event: None,
        after_event: None,
    }];
    finding.stack = crash.missing[0].stack.clone();
    (finding.file, finding.line, finding.column, finding.function) = (None, None, None, None);
    finding.message =
        "crash after 0x11a8 in logger: 8 bytes at offset 0x0 of log.pm had persisted, 8 bytes at offset 0x40 of \
                       log.pm had not; recovery exited with status 1"
            .into();
    finding.help =
        Some("flush and fence 8 bytes at offset 0x40 of log.pm before the store of 8 bytes at offset 0x0".into());
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn several_call_paths_to_one_line() {
    let path = |line, count| Finding {
        count,
        stack: stack([frame("append", "log.c", 14, 13), frame("main", "log.c", line, 2)]),
        ..missing_flush()
    };
    assert_snapshot!(rendered(&report(vec![
        path(21, 12),
        path(22, 1),
        path(23, 1_000_000),
        path(24, 2),
        path(25, 3)
    ])));
}

#[test]
fn call_paths_that_look_the_same_are_one() {
    let at = |line, count| {
        let strncpy = Frame {
            module: Some("/lib/libc.so.6".into()),
            ..frame("strncpy", "./string/strcpy.S", line, 0)
        };
        let frames = [strncpy, frame("append", "log.c", 14, 13), frame("main", "log.c", 21, 2)];
        Finding {
            count,
            stack: stack(frames),
            ..missing_flush()
        }
    };
    assert_snapshot!(rendered(&report(vec![at(614, 3), at(620, 4)])));
}

#[test]
fn durable_by_in_another_file() {
    let durable_by = DurableBy {
        kind: DurableByKind::Fence,
        stack: stack([
            inlined(frame(
                "_mm_sfence",
                "/usr/lib/gcc/x86_64-linux-gnu/12/include/xmmintrin.h",
                1328,
                3,
            )),
            inlined(frame("persist", "pm.h", 5, 2)),
            frame("append", "log.c", 13, 2),
            frame("main", "log.c", 22, 2),
        ]),
    };
    assert_snapshot!(rendered(&report(vec![Finding {
        durable_by: Some(durable_by),
        ..missing_flush()
    }])));
}

#[test]
fn durable_by_on_the_line_of_the_store() {
    let durable_by = DurableBy {
        kind: DurableByKind::Fence,
        stack: stack([frame("append", "log.c", 14, 30)]),
    };
    assert_snapshot!(rendered(&report(vec![Finding {
        durable_by: Some(durable_by),
        ..missing_flush()
    }])));
}

#[test]
fn durable_by_exit_without_a_place() {
    let durable_by = DurableBy {
        kind: DurableByKind::Exit,
        stack: Vec::new(),
    };
    assert_snapshot!(rendered(&report(vec![Finding {
        count: 1,
        durable_by: Some(durable_by),
        ..missing_flush()
    }])));
}

#[test]
fn store_in_a_library_without_debug_info() {
    let note = "the store itself is in `pmem_memcpy_nodrain` of libpmem.so.1";
    let frames = [
        library(
            Some("pmem_memcpy_nodrain"),
            "/usr/lib/x86_64-linux-gnu/libpmem.so.1",
            0x9f31,
        ),
        frame("append", "log.c", 12, 2),
        frame("main", "log.c", 21, 2),
    ];
    let finding = finding(Kind::MissingFlush, "store is never flushed", stack(frames));
    assert_snapshot!(rendered(&report(vec![Finding {
        notes: vec![note.into()],
        ..finding
    }])));
}

#[test]
fn no_debug_info_at_all() {
    let frames = [
        library(Some("append"), "/opt/app/logger", 0x1190),
        library(None, "/opt/app/logger", 0x1204),
    ];
    let first = finding(Kind::MissingFlush, "store is never flushed", stack(frames));
    let second = finding(Kind::RedundantFence, "fence with nothing to wait for", vec![]);
    let third = finding(
        Kind::MissingFence,
        "store is never fenced",
        vec![Frame {
            address: 0x7f00_1234,
            ..Frame::default()
        }],
    );
    assert_snapshot!(rendered(&report(vec![first, second, third])));
}

#[test]
fn source_not_readable() {
    let mut finding = missing_flush();
    finding.file = Some("/build/gone/log.c".into());
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn source_shorter_than_the_debug_info_says() {
    let mut finding = missing_flush();
    finding.line = Some(500);
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn file_without_line() {
    let mut finding = missing_flush();
    finding.line = None;
    finding.durable_by = None;
    assert_snapshot!(rendered(&report(vec![finding])));
}

#[test]
fn deep_stack() {
    let frames = (0..40).map(|depth| frame(&format!("level{depth}"), "log.c", 11, 12));
    assert_snapshot!(rendered(&report(vec![finding(
        Kind::RuleOrder,
        "order",
        stack(frames)
    )])));
}

#[test]
fn incomplete_with_findings() {
    let mut report = report(vec![missing_flush()]);
    report.trace.complete = false;
    report.trace.incomplete = vec![
        "16 bytes at offset 0x40 of /mnt/pm/log.pm differ from what the trace replays to".into(),
        "the disk was full".into(),
    ];
    report.program = Program {
        asked_to_end: false,
        status: None,
        signal: Some(9),
        command: vec!["./logger".into()],
    };
    assert_snapshot!(rendered(&report));
}

#[test]
fn incomplete_without_findings() {
    let mut report = report(Vec::new());
    report.trace.complete = false;
    report.trace.incomplete = vec!["the trace ends without its end record".into()];
    report.program = Program::default();
    assert_snapshot!(rendered(&report));
}

#[test]
fn warnings_about_the_whole() {
    let mut report = report(Vec::new());
    report.warnings = vec!["the [[ignore]] with kind \"redundant-flush\" matched nothing; remove it".into()];
    assert_snapshot!(rendered(&report));
}

#[test]
fn narrow_terminal() {
    let folder = sources();
    let options = TerminalOptions {
        color: false,
        width: 50,
        root: folder.path().to_owned(),
    };
    assert_snapshot!(render_terminal(&report(vec![missing_flush()]), &options));
}

#[test]
fn colour_only_adds_escapes() {
    let folder = sources();
    let options = TerminalOptions {
        color: true,
        width: 100,
        root: folder.path().to_owned(),
    };
    let styled = render_terminal(&every_kind(), &options);
    assert!(styled.contains("\x1b["));
    let mut plain = String::new();
    let mut rest = styled.as_str();
    while let Some(at) = rest.find("\x1b[") {
        plain += &rest[..at];
        let end = rest[at..].find('m').expect("a style escape");
        rest = &rest[at + end + 1..];
    }
    plain += rest;
    assert_eq!(plain, render(&every_kind(), folder.path()));
}

#[test]
fn absolute_names_below_the_root_are_shown_relative() {
    let folder = sources();
    let mut finding = missing_flush();
    finding.file = Some(folder.path().join("log.c").to_str().unwrap().to_owned());
    finding.durable_by = None;
    assert!(render(&report(vec![finding]), folder.path()).contains("--> log.c:14:2"));
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut finding = finding(
        Kind::MissingFlush,
        "store",
        vec![library(Some("f\x1b[31m"), "/opt/\x1b]0;x\x07", 1)],
    );
    finding.notes = vec!["note \x1b[2J".into()];
    assert!(!rendered(&report(vec![finding])).contains('\x1b'));
}
