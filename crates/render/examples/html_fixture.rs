//! Writes HTML reports of hand-made findings, to look at and to test the page with:
//! `cargo run -p crashproof-report --example html_fixture -- FOLDER` makes check.html, crash.html, test.html, thousand.html and
//! empty.html there, and the sources that they show.

use std::path::{Path, PathBuf};

use crashproof_finding::picture::*;
use crashproof_finding::*;
use crashproof_render::Suite;
use crashproof_render::html::{HtmlOptions, to_html};

const LIST_C: &str = r#"#include "pm.h"

struct node {
	uint64_t key;
	uint64_t value;
	struct node *next;
};

struct list {
	struct node *head;
	uint64_t count;
};

/* Puts a node before the first one. </script><!-- is no markup. */
void insert(struct list *list, struct node *node, uint64_t key)
{
	node->key = key;
	node->value = key * 7; // "ü" and 'x'
	node->next = list->head;
	pm_flush(node);
	list->head = node;
	pm_flush(&list->head);
	pm_fence();
	list->count += 1;
	pm_flush(&list->count);
	pm_flush(&list->count);
	pm_fence();
	pm_fence();
}

int main(int argc, char **argv)
{
	struct list *list = pm_map(argv[1]);
	for (uint64_t key = 0; key < 100; key++)
		insert(list, pm_new(list), key);
	return 0;
}
"#;

const PM_H: &str = "#include <immintrin.h>\n\nstatic inline void pm_flush(void *at)\n{\n\t_mm_clwb(at);\n}\n\nstatic inline void pm_fence(void)\n{\n\t_mm_sfence();\n}\n";

fn main() {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: html_fixture FOLDER");
        std::process::exit(2);
    };
    if let Err(error) = write_all(&folder) {
        eprintln!("cannot write to {}: {error}", folder.display());
        std::process::exit(2);
    }
}

pub(crate) fn write_all(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(folder.join("src"))?;
    std::fs::write(folder.join("src/list.c"), LIST_C)?;
    std::fs::write(folder.join("src/pm.h"), PM_H)?;
    std::fs::write(folder.join("src/many.c"), many_c())?;
    let suite = |name: &str, report: Report| Suite {
        name: name.to_owned(),
        report: Ok(report),
    };
    let page = |file: &str, command: &str, suites: &[Suite]| -> Result<(), Box<dyn std::error::Error>> {
        let options = HtmlOptions {
            command: command.to_owned(),
            root: folder.to_owned(),
            compared: suites
                .iter()
                .any(|suite| suite.report.as_ref().is_ok_and(|report| !report.known.is_empty())),
        };
        std::fs::write(folder.join(file), to_html(suites, &options)?)?;
        Ok(())
    };
    page(
        "check.html",
        "crashproof check --html check.html -- ./list pool.pm",
        &[suite("check", check())],
    )?;
    page(
        "crash.html",
        "crashproof crash --html crash.html --recover './list --verify pool.pm' -- ./list pool.pm",
        &[suite("crash", crash())],
    )?;
    let failed = Suite {
        name: "check hash".to_owned(),
        report: Err("cannot run ./hash: No such file or directory".to_owned()),
    };
    page(
        "test.html",
        "crashproof test --html test.html",
        &[suite("check list", check()), suite("crash list", crash()), failed],
    )?;
    page(
        "thousand.html",
        "crashproof check --html thousand.html -- ./many pool.pm",
        &[suite("check", thousand())],
    )?;
    page(
        "empty.html",
        "crashproof check --html empty.html -- ./list pool.pm",
        &[suite("check", report(Vec::new()))],
    )?;
    Ok(())
}

fn report(findings: Vec<Finding>) -> Report {
    Report {
        version: 1,
        program: Program {
            asked_to_end: false,
            status: Some(0),
            signal: None,
            command: vec!["./list".into(), "pool.pm".into()],
        },
        trace: TraceSummary {
            stores: 500,
            flushes: 400,
            fences: 300,
            complete: true,
            incomplete: Vec::new(),
        },
        findings,
        ..Report::default()
    }
}

fn frame(function: &str, file: &str, line: u32, column: u32) -> Frame {
    Frame {
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(line),
        column: Some(column),
        module: Some("/opt/app/list".into()),
        address: 0x1000 + u64::from(line),
        inlined: file.ends_with(".h"),
        helper: false,
    }
}

/// Of `insert`, called by `main`.
fn insert(line: u32, column: u32) -> Vec<Frame> {
    vec![
        frame("insert", "src/list.c", line, column),
        frame("main", "src/list.c", 34, 3),
    ]
}

fn flush(line: u32) -> Vec<Frame> {
    [vec![frame("pm_flush", "src/pm.h", 5, 2)], insert(line, 2)].concat()
}

fn finding(kind: Kind, message: &str, stack: Vec<Frame>) -> Finding {
    let place = blamed_position(&stack).cloned().unwrap_or_default();
    Finding {
        kind,
        severity: kind.severity(),
        file: place.file,
        line: place.line,
        column: place.column,
        function: place.function,
        count: 100,
        message: message.to_owned(),
        address: None,
        stack,
        durable_by: None,
        approximate: false,
        related: Vec::new(),
        notes: Vec::new(),
        help: None,
        crash: None,
        order: Vec::new(),
    }
}

fn check() -> Report {
    let address = |offset, length| {
        Some(Address {
            file: "/mnt/pm/pool.pm".into(),
            offset,
            length,
        })
    };
    let missing = Finding {
        address: address(0x88, 8),
        durable_by: Some(DurableBy {
            kind: DurableByKind::Exit,
            stack: vec![frame("main", "src/list.c", 35, 2)],
        }),
        notes: vec!["the program has locked instructions on volatile memory, which are not seen as fences".into()],
        ..finding(
            Kind::MissingFlush,
            "store of 8 bytes at offset 0x88 of pool.pm is never flushed",
            insert(18, 14),
        )
    };
    let fence = Finding {
        address: address(0x40, 8),
        related: vec![Related {
            message: "flushed here".into(),
            stack: flush(22),
        }],
        durable_by: Some(DurableBy {
            kind: DurableByKind::Fence,
            stack: insert(27, 2),
        }),
        ..finding(
            Kind::MissingFence,
            "store of 8 bytes at offset 0x40 of pool.pm is flushed and never fenced",
            insert(21, 13),
        )
    };
    let redundant = Finding {
        address: address(0x40, 64),
        related: vec![Related {
            message: "flushed first here".into(),
            stack: flush(25),
        }],
        ..finding(
            Kind::RedundantFlush,
            "flush of line 0x40 of pool.pm, which is flushed already (100 of 100 flushes here)",
            flush(26),
        )
    };
    let library = Frame {
        function: Some("pmem_drain".into()),
        module: Some("/usr/lib/x86_64-linux-gnu/libpmem.so.1".into()),
        address: 0x1f0,
        ..Frame::default()
    };
    let gone = finding(
        Kind::RedundantFence,
        "fence of a thread that has nothing outstanding",
        vec![library, frame("drain_all", "src/gone.c", 12, 3)],
    );
    let transient = finding(
        Kind::TransientData,
        "8 bytes at offset 0x100 of pool.pm were rewritten 100 times and never persisted",
        insert(24, 14),
    );
    let mut report = report(vec![missing, fence, redundant, gone, transient]);
    report.known = vec![2];
    report.warnings = vec!["[[ignore]] number 2 of crashproof.toml matched nothing".into()];
    report.patch = Some(Patch {
        diff: "--- a/src/list.c\n+++ b/src/list.c\n@@ -16,6 +16,7 @@\n \tnode->key = key;\n \tnode->value = key * 7;\n \tnode->next = list->head;\n+\tpm_flush(&node->value);\n \tpm_flush(node);\n \tlist->head = node;\n"
            .into(),
        files: vec![FileChange {
            path: "src/list.c".into(),
            replacements: vec![Replacement {
                line: 19,
                deleted: 0,
                inserted: "\tpm_flush(&node->value);\n".into(),
            }],
        }],
        verified: true,
        findings: vec![0],
    });
    report.traffic = traffic();
    report
}

fn traffic() -> Vec<Traffic> {
    let row = |function: &str, file: &str, numbers: [u64; 6]| Traffic {
        function: Some(function.into()),
        file: Some(file.into()),
        stores: numbers[0],
        bytes: numbers[1],
        flushes: numbers[2],
        fences: numbers[3],
        redundant_flushes: numbers[4],
        redundant_fences: numbers[5],
        functions: None,
        callers: vec![Caller {
            frame: frame("main", "src/list.c", 34, 3),
            stores: numbers[0],
            flushes: numbers[2],
            fences: numbers[3],
            redundant_flushes: numbers[4],
            redundant_fences: numbers[5],
        }],
    };
    vec![
        row("insert", "src/list.c", [400, 3200, 390, 290, 100, 100]),
        row("pm_new", "src/alloc.c", [90, 720, 10, 10, 0, 0]),
        Traffic {
            stores: 10,
            bytes: 80,
            functions: Some(3),
            ..Traffic::default()
        },
    ]
}

fn crash_store(line: u32, column: u32, offset: u64, event: u64) -> CrashStore {
    let stack = insert(line, column);
    CrashStore {
        frame: stack[0].clone(),
        stack,
        pm: Address {
            file: "/mnt/pm/pool.pm".into(),
            offset,
            length: 8,
        },
        data: "0700000000000000".into(),
        executed: true,
        operation: None,
        event: Some(event),
    }
}

fn crash() -> Report {
    let (missing, persisted) = (crash_store(17, 12, 0x80, 10), crash_store(21, 13, 0, 14));
    let order = Finding {
        count: 12,
        address: Some(missing.pm.clone()),
        order: vec![Order {
            before: missing.frame.clone(),
            after: persisted.frame.clone(),
            before_event: None,
            after_event: None,
        }],
        help: Some("fence what src/list.c:17 stores before the store at src/list.c:21".into()),
        crash: Some(Crash {
            after: persisted.frame.clone(),
            after_stack: persisted.stack.clone(),
            missing: vec![missing.clone()],
            persisted: vec![persisted.clone()],
            recovery: RecoveryOutcome {
                command: "./list --verify pool.pm".into(),
                status: Some(1),
                stderr: "checking pool.pm\nnode 3 has no key </script>\n".into(),
                ..RecoveryOutcome::default()
            },
            states: 12,
            replay: Some(Replay {
                directory: "crashes/1-crash-order".into(),
                command: "crashproof crash --replay crashes/1-crash-order".into(),
            }),
            depth: 1,
            event: Some(16),
            timeline: Some(timeline()),
            graph: Some(graph()),
            ..Crash::default()
        }),
        ..finding(
            Kind::CrashOrder,
            "crash after line 21 of `insert`: line 21 had persisted, line 17 had not; recovery exited with status 1",
            missing.stack.clone(),
        )
    };
    let later = CrashStore {
        executed: false,
        ..crash_store(24, 14, 8, 30)
    };
    let atomicity = Finding {
        count: 1,
        crash: Some(Crash {
            after: persisted.frame.clone(),
            after_stack: persisted.stack.clone(),
            missing: vec![later.clone()],
            persisted: vec![persisted],
            recovery: RecoveryOutcome {
                command: "./list --verify pool.pm".into(),
                signal: Some(6),
                ..RecoveryOutcome::default()
            },
            states: 1,
            depth: 1,
            ..Crash::default()
        }),
        ..finding(
            Kind::CrashAtomicity,
            "crash after line 21 of `insert`: line 21 had persisted, line 24 was still to come; recovery was ended by signal 6 (SIGABRT)",
            later.stack.clone(),
        )
    };
    let mut report = report(vec![order, atomicity]);
    report.stats = Some(Stats {
        strategy: "representative".into(),
        states_total: 4000,
        states_tested: 640,
        states_pruned: 210,
        states_failed: 13,
        recoveries: 640,
        oracle_runs: 0,
        first_failure: Some(FirstFailure {
            states: 9,
            seconds: 0.31,
        }),
        points_total: 300,
        points_reached: 300,
        seconds: 8.4,
        ..Stats::default()
    });
    let sample = |step: u64| Sample {
        seconds: step as f64 * 0.14,
        tested: step * step * 640 / 3600,
        failed: (step / 4).min(13),
        findings: u64::from(step > 3) + u64::from(step > 40),
    };
    report.progress = (0..=60).map(sample).collect();
    report.traffic = traffic();
    report
}

/// One insertion: key and value in line 0x80, which is flushed and not fenced before the head in line 0 is stored.
fn timeline() -> Timeline {
    use LineState::*;
    let line = |offset| TimelineLine {
        file: "/mnt/pm/pool.pm".into(),
        offset,
        state: Persistent,
    };
    let event = |event: u64, kind, frame: &[Frame], lines: &[usize], states: &[(usize, LineState)]| TimelineEvent {
        event,
        kind,
        thread: 0,
        frame: frame[0].clone(),
        lines: lines.to_vec(),
        stored: None,
        text: None,
        omitted: None,
        states: states.to_vec(),
    };
    let store = |number, row: usize, source: u32, offset, outcome, states: &[(usize, LineState)]| TimelineEvent {
        stored: Some(Stored {
            offset,
            length: 8,
            data: "0700000000000000".into(),
            pieces: vec![(offset, 8, outcome)],
        }),
        ..event(number, TimelineKind::Store, &insert(source, 12), &[row], states)
    };
    let torn = TimelineEvent {
        kind: TimelineKind::NtStore,
        stored: Some(Stored {
            offset: 0x40,
            length: 16,
            data: "01000000000000000200000000000000".into(),
            pieces: vec![(0x40, 8, StoreOutcome::Persisted), (0x48, 8, StoreOutcome::Missing)],
        }),
        ..event(13, TimelineKind::NtStore, &insert(19, 13), &[1], &[(1, Pending)])
    };
    let printed = TimelineEvent {
        text: Some("inserted 0\n".into()),
        ..event(9, TimelineKind::Output, &insert(35, 2), &[], &[])
    };
    Timeline {
        lines: vec![line(0), line(0x40), line(0x80)],
        events: vec![
            store(5, 0, 24, 8, StoreOutcome::Certain, &[(0, Dirty)]),
            event(6, TimelineKind::Flush, &insert(25, 2), &[0], &[(0, Pending)]),
            event(7, TimelineKind::Fence, &insert(27, 2), &[0], &[(0, Persistent)]),
            printed,
            TimelineEvent {
                omitted: Some(37),
                ..event(9, TimelineKind::Gap, &[Frame::default()], &[], &[(2, Dirty)])
            },
            store(10, 2, 17, 0x80, StoreOutcome::Missing, &[]),
            store(11, 2, 18, 0x88, StoreOutcome::Missing, &[]),
            event(12, TimelineKind::Flush, &insert(20, 2), &[2], &[(2, Pending)]),
            torn,
            store(14, 0, 21, 0, StoreOutcome::Persisted, &[(0, Dirty)]),
            event(15, TimelineKind::Flush, &insert(22, 2), &[0], &[(0, Pending)]),
            event(16, TimelineKind::Crash, &insert(22, 2), &[], &[]),
            event(
                16,
                TimelineKind::Fence,
                &insert(23, 2),
                &[0, 1, 2],
                &[(0, Persistent), (1, Persistent), (2, Persistent)],
            ),
            store(17, 0, 24, 8, StoreOutcome::Later, &[(0, Dirty)]),
        ],
        omitted: 4,
        more_lines: 1,
    }
}

fn graph() -> Graph {
    let node = |of, field: &str, line, offset, event, outcome| GraphNode {
        of,
        field: field.into(),
        frame: insert(line, 12)[0].clone(),
        pm_file: "/mnt/pm/pool.pm".into(),
        offset,
        length: 8,
        event,
        outcome,
    };
    Graph {
        types: vec!["struct node".into(), "struct list".into()],
        represents: 100,
        nodes: vec![
            node(0, "key", 17, 0x80, 10, Some(StoreOutcome::Missing)),
            node(0, "value", 18, 0x88, 11, None),
            node(0, "next", 19, 0x90, 12, None),
            node(1, "head", 21, 0, 14, Some(StoreOutcome::Persisted)),
            node(1, "count", 24, 8, 17, None),
        ],
        edges: vec![(0, 4), (1, 4), (2, 4), (3, 4)],
    }
}

/// A source of a thousand functions.
fn many_c() -> String {
    (0..1000)
        .map(|number| format!("void function_{number}(struct node *node)\n{{\n\tnode->key = {number};\n\tnode->next = 0;\n\tfunction_{}(node);\n}}\n", number + 1))
        .collect()
}

fn thousand() -> Report {
    let kinds = [
        Kind::MissingFlush,
        Kind::MissingFence,
        Kind::RedundantFlush,
        Kind::FlushUnmodified,
        Kind::RedundantFence,
    ];
    let finding = |number: u32| {
        let call = |depth: u32| {
            let function = (number * 7 + depth * 13) % 1000;
            let line = function * 6 + if depth == 0 { 3 + number % 2 } else { 5 };
            frame(&format!("function_{function}"), "src/many.c", line, 12)
        };
        let stack: Vec<Frame> = (0..12).map(call).chain([frame("main", "src/list.c", 34, 3)]).collect();
        let kind = kinds[number as usize % kinds.len()];
        Finding {
            count: u64::from(number % 50) + 1,
            address: Some(Address {
                file: format!("/mnt/pm/pool{}.pm", number % 4),
                offset: u64::from(number) * 64,
                length: 8,
            }),
            related: vec![Related {
                message: "flushed first here".into(),
                stack: stack[3..].to_vec(),
            }],
            notes: vec!["the program has locked instructions on volatile memory, which are not seen as fences".into()],
            ..finding(
                kind,
                &format!("store of 8 bytes at offset {:#x} of pool{}.pm", number * 64, number % 4),
                stack,
            )
        }
    };
    let mut report = report((0..1000).map(finding).collect());
    report.known = (0..1000).filter(|index| index % 10 == 3).collect();
    report.traffic = traffic();
    report
}
