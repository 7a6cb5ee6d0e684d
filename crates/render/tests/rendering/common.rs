//! Hand-made findings on a small program, for the rendering tests.

use std::path::Path;

use crashproof_finding::*;
use crashproof_render::*;

pub(crate) const LOG_C: &str = "\
#include \"pm.h\"

struct log {
	uint64_t count;
	struct event events[1024];
};

void append(struct log *log, uint64_t id)
{
	struct event *event = &log->events[log->count];
	event->id = id;
	event->time = now(); event->kind = 1;
	persist(event, sizeof *event);
	log->count = log->count + 1;	// publishes the event
	_mm_sfence();
}

int main(void)
{
	struct log *log = map_log(\"log.pm\");
	append(log, 1);
	append(log, 2);
	return 0;
}
";

pub(crate) const PM_H: &str = "\
static inline void persist(const void *at, size_t len)
{
	for (const char *line = at; line < (const char *)at + len; line += 64)
		_mm_clwb((void *)line);
	_mm_sfence();
}
";

/// The two sources in a folder of their own.
pub(crate) fn sources() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("log.c"), LOG_C).expect("log.c written");
    std::fs::write(folder.path().join("pm.h"), PM_H).expect("pm.h written");
    folder
}

pub(crate) fn frame(function: &str, file: &str, line: u32, column: u32) -> Frame {
    Frame {
        function: Some(function.to_owned()),
        file: Some(file.to_owned()),
        line: Some(line),
        column: Some(column),
        module: Some("/opt/app/logger".to_owned()),
        address: 0x1100 + u64::from(line),
        inlined: false,
        helper: false,
    }
}

pub(crate) fn inlined(frame: Frame) -> Frame {
    Frame { inlined: true, ..frame }
}

/// A frame of a library without debug info.
pub(crate) fn library(function: Option<&str>, module: &str, address: u64) -> Frame {
    Frame {
        function: function.map(str::to_owned),
        module: Some(module.to_owned()),
        address,
        ..Frame::default()
    }
}

pub(crate) fn start_frames() -> Vec<Frame> {
    vec![
        library(
            Some("__libc_start_call_main"),
            "/lib/x86_64-linux-gnu/libc.so.6",
            0x27305,
        ),
        library(
            Some("__libc_start_main_impl"),
            "/lib/x86_64-linux-gnu/libc.so.6",
            0x273a5,
        ),
        library(Some("_start"), "/opt/app/logger", 0x1081),
    ]
}

pub(crate) fn stack(frames: impl IntoIterator<Item = Frame>) -> Vec<Frame> {
    frames.into_iter().chain(start_frames()).collect()
}

/// A finding whose position is that of its innermost frame with debug info.
pub(crate) fn finding(kind: Kind, message: &str, stack: Vec<Frame>) -> Finding {
    let at = blamed_position(&stack).cloned().unwrap_or_default();
    Finding {
        kind,
        severity: kind.severity(),
        file: at.file,
        line: at.line,
        column: at.column,
        function: at.function,
        count: 1,
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

pub(crate) fn address(offset: u64, length: u64) -> Option<Address> {
    Some(Address {
        file: "/mnt/pm/log.pm".to_owned(),
        offset,
        length,
    })
}

/// The forgotten flush of the counter, seen by the fence below it.
pub(crate) fn missing_flush() -> Finding {
    Finding {
        count: 12,
        address: address(0, 8),
        durable_by: Some(DurableBy {
            kind: DurableByKind::Fence,
            stack: stack([frame("append", "log.c", 15, 2), frame("main", "log.c", 22, 2)]),
        }),
        ..finding(
            Kind::MissingFlush,
            "store is never flushed",
            stack([frame("append", "log.c", 14, 13), frame("main", "log.c", 21, 2)]),
        )
    }
}

/// A store of `append`, called from line 21 of `main`.
pub(crate) fn crash_store(line: u32, column: u32, offset: u64) -> CrashStore {
    let stack = stack([frame("append", "log.c", line, column), frame("main", "log.c", 21, 2)]);
    CrashStore {
        frame: stack[0].clone(),
        stack,
        pm: address(offset, 8).unwrap(),
        data: "0100000000000000".into(),
        executed: true,
        operation: None,
        event: None,
    }
}

fn crash_finding(kind: Kind, message: &str, crash: Crash) -> Finding {
    let store = crash.missing.first().expect("a missing store");
    Finding {
        count: crash.states,
        address: Some(store.pm.clone()),
        crash: Some(crash.clone()),
        ..finding(kind, message, store.stack.clone())
    }
}

/// The event's id is not flushed before the count is.
pub(crate) fn crash_order() -> Finding {
    let (missing, persisted) = (crash_store(11, 12, 64), crash_store(14, 13, 0));
    Finding {
        order: vec![Order {
            before: missing.frame.clone(),
            after: persisted.frame.clone(),
            before_event: None,
            after_event: None,
        }],
        help: Some("flush and fence what log.c:11 stores before the store at log.c:14".into()),
        ..crash_finding(
            Kind::CrashOrder,
            "crash after line 14 of `append`: line 14 had persisted, line 11 had not; recovery exited with status 1",
            Crash {
                after: persisted.frame.clone(),
                after_stack: persisted.stack.clone(),
                missing: vec![missing],
                persisted: vec![persisted],
                recovery: RecoveryOutcome {
                    command: "./logger --verify log.pm".into(),
                    status: Some(1),
                    stderr: "checking log.pm\nevent 0 has no id\n".into(),
                    ..RecoveryOutcome::default()
                },
                states: 12,
                replay: Some(Replay {
                    directory: "crashes/1-crash-order".into(),
                    command: "crashproof crash --replay crashes/1-crash-order".into(),
                }),
                depth: 1,
                unreduced: false,
                ..Crash::default()
            },
        )
    }
}

/// Id and time of an event are stored one after the other, and recovery wants both.
pub(crate) fn crash_atomicity() -> Finding {
    let missing = CrashStore {
        executed: false,
        operation: None,
        ..crash_store(12, 14, 72)
    };
    let persisted = crash_store(11, 12, 64);
    crash_finding(
        Kind::CrashAtomicity,
        "crash after line 11 of `append`: line 11 had persisted, line 12 was still to come; recovery was ended by signal 6 \
         (SIGABRT)",
        Crash {
            after: persisted.frame.clone(),
            after_stack: persisted.stack.clone(),
            missing: vec![missing],
            persisted: vec![persisted],
            recovery: RecoveryOutcome {
                command: "./logger --verify log.pm".into(),
                signal: Some(6),
                ..RecoveryOutcome::default()
            },
            states: 1,
            replay: None,
            depth: 1,
            unreduced: false,
            ..Crash::default()
        },
    )
}

/// The count is acknowledged before it is durable.
pub(crate) fn crash_durability() -> Finding {
    let missing = crash_store(14, 13, 0);
    crash_finding(
        Kind::CrashDurability,
        "crash after line 14 of `append`: line 14 had not persisted, and the program had output what depends on it; the \
         checker did not end within the time limit",
        Crash {
            after: missing.frame.clone(),
            after_stack: missing.stack.clone(),
            missing: vec![missing],
            persisted: Vec::new(),
            recovery: RecoveryOutcome {
                command: "./check-log log.pm".into(),
                timeout: true,
                stdout: "waiting for event 1\n".into(),
                ..RecoveryOutcome::default()
            },
            states: 3456,
            replay: None,
            depth: 1,
            unreduced: false,
            ..Crash::default()
        },
    )
}

pub(crate) fn stats() -> Stats {
    Stats {
        strategy: "dpor".into(),
        states_total: 13_345,
        states_tested: 12_345,
        states_pruned: 1_000,
        states_failed: 3_469,
        recoveries: 0,
        oracle_runs: 0,
        points_total: 812,
        points_reached: 640,
        seconds: 3.2,
        cut_short: false,
        behaviours: None,
        first_failure: None,
        strategies: Vec::new(),
    }
}

pub(crate) fn report(findings: Vec<Finding>) -> Report {
    Report {
        version: 1,
        program: Program {
            asked_to_end: false,
            status: Some(0),
            signal: None,
            command: vec!["./logger".to_owned(), "2".to_owned()],
        },
        trace: TraceSummary {
            stores: 297_123,
            flushes: 78_004,
            fences: 1,
            complete: true,
            incomplete: Vec::new(),
        },
        findings,
        ..Report::default()
    }
}

/// One finding or more of every kind, with every optional field used somewhere.
pub(crate) fn every_kind() -> Report {
    let append = |line, column| stack([frame("append", "log.c", line, column), frame("main", "log.c", 21, 2)]);
    let exit = Some(DurableBy {
        kind: DurableByKind::Exit,
        stack: Vec::new(),
    });
    let unmap = Some(DurableBy {
        kind: DurableByKind::Unmap,
        stack: stack([
            library(Some("munmap"), "/lib/libc.so.6", 0x100),
            frame("main", "log.c", 23, 2),
        ]),
    });
    let tx_end = Some(DurableBy {
        kind: DurableByKind::TxEnd,
        stack: stack([
            library(Some("pmemobj_tx_commit"), "/lib/libpmemobj.so.1", 0x200),
            frame("persist", "pm.h", 5, 2),
            frame("main", "log.c", 22, 2),
        ]),
    });
    report(vec![
        Finding {
            notes: vec!["a note of its own".into()],
            ..finding(Kind::TransientData, "location is volatile data", append(14, 13))
        },
        Finding {
            related: vec![Related {
                message: "flushed first here".into(),
                stack: append(13, 2),
            }],
            ..finding(
                Kind::RedundantFlush,
                "flush of a line that is already flushed",
                append(15, 2),
            )
        },
        missing_flush(),
        Finding {
            durable_by: exit,
            help: Some("help of its own".into()),
            ..finding(Kind::MissingFence, "store is flushed, never fenced", append(11, 12))
        },
        Finding {
            approximate: true,
            durable_by: unmap,
            ..finding(Kind::MissingFlush, "store is never flushed", append(12, 35))
        },
        finding(
            Kind::FlushUnmodified,
            "flush of a line that was never stored to",
            append(13, 2),
        ),
        finding(Kind::RedundantFence, "fence with nothing to wait for", append(15, 2)),
        Finding {
            durable_by: tx_end,
            ..finding(
                Kind::TxStoreNotSnapshotted,
                "store outside the transaction's snapshots",
                append(11, 12),
            )
        },
        finding(Kind::TxSnapshotTwice, "range is snapshotted twice", append(13, 2)),
        finding(Kind::TxStoreOutside, "store outside any transaction", append(11, 12)),
        finding(
            Kind::TxSnapshotOverlap,
            "range is snapshotted by two transactions at once",
            append(11, 12),
        ),
        finding(
            Kind::RuleOrder,
            "`log.count` persists before `event.id`",
            append(14, 13),
        ),
        finding(
            Kind::RuleTransaction,
            "`struct log` changed outside a transaction",
            append(14, 13),
        ),
        Finding {
            related: vec![Related {
                message: "stored here, and not flushed yet".to_owned(),
                stack: append(11, 12),
            }],
            ..finding(
                Kind::ExpectDurable,
                "48 bytes at offset 0x40 of log.pm are said to be durable here, and are not",
                append(13, 2),
            )
        },
        finding(
            Kind::ExpectOrder,
            "store of 8 bytes at offset 0x0 of log.pm comes before what has to persist first is durable",
            append(14, 13),
        ),
        crash_order(),
        crash_atomicity(),
        crash_durability(),
    ])
}

/// Relative names, so that snapshots do not depend on the folder.
pub(crate) fn render(report: &Report, root: &Path) -> String {
    render_terminal(
        report,
        &TerminalOptions {
            color: false,
            width: 100,
            root: root.to_owned(),
        },
    )
}
