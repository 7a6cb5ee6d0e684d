//! Locks and other volatile data are told from data by the way they are used.

use crashproof_finding::{Finding, Kind, Severity};
use crashproof_trace::*;

use super::*;

const PLAIN: StoreFlags = StoreFlags {
    nontemporal: false,
    locked: false,
    syscall: false,
    exchange: false,
};
const LOCKED: StoreFlags = StoreFlags { locked: true, ..PLAIN };
const EXCHANGE: StoreFlags = StoreFlags {
    exchange: true,
    ..LOCKED
};
/// Places of the code.
const LOCK: u64 = 1;
const UNLOCK: u64 = 2;

fn kinds(b: &mut TraceBuilder) -> Vec<(Kind, u64)> {
    b.summary().into_iter().map(|(kind, place, _)| (kind, place)).collect()
}

#[test]
fn a_word_that_is_taken_and_put_back_is_a_lock() {
    let mut b = TraceBuilder::new();
    for _ in 0..2 {
        b.value(T0, LOCK, 0, 1, EXCHANGE)
            .value(T0, UNLOCK, 0, 0, PLAIN)
            .sfence(T0, 9);
        b.store(T0, 3, 64, 8).flush(T0, 4, 64).sfence(T0, 5);
    }
    let findings = b.findings();
    assert!(
        findings
            .iter()
            .any(|f| f.kind == Kind::TransientData && place(f) == UNLOCK),
        "{findings:?}"
    );
    let lock = findings.iter().find(|f| f.kind == Kind::TransientData).unwrap();
    assert_eq!(lock.severity, Severity::Note);
    assert!(lock.message.contains("a lock"), "{}", lock.message);
    assert!(findings.iter().all(|f| f.kind != Kind::MissingFlush));
}

/// Used once it may be one, or data: an error that names both possibilities.
#[test]
fn a_word_that_was_taken_once_may_be_a_lock() {
    let mut b = TraceBuilder::new();
    b.value(T0, LOCK, 0, 1, EXCHANGE).value(T0, UNLOCK, 0, 0, PLAIN);
    let findings = b.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].kind, Kind::MissingFlush);
    let help = findings[0].help.as_deref().unwrap_or_default();
    assert!(
        help.contains("flush") && help.contains("CRASHPROOF_TRANSIENT"),
        "{help}"
    );
}

#[test]
fn threads_that_wait_for_it_change_its_value() {
    let mut b = TraceBuilder::new();
    b.thread(T1, 0);
    for _ in 0..3 {
        b.value(T0, LOCK, 0, 1, EXCHANGE)
            .value(T1, 7, 0, 2, EXCHANGE)
            .value(T0, UNLOCK, 0, 0, LOCKED);
        b.value(T1, 7, 0, 2, EXCHANGE).value(T1, UNLOCK, 0, 0, LOCKED);
    }
    assert_eq!(kinds(&mut b), [(Kind::TransientData, UNLOCK)]);
}

/// One that finds it free takes it with the value of one that waits, too.
#[test]
fn a_lock_that_others_wait_for_has_two_values() {
    for (waits_first, waits_at_all, kind) in [
        (true, true, Kind::TransientData),
        (false, true, Kind::TransientData),
        (false, false, Kind::MissingFlush),
    ] {
        let mut b = TraceBuilder::new();
        b.thread(T1, 0);
        let waits = |b: &mut TraceBuilder| {
            b.value(T0, LOCK, 0, 1, EXCHANGE).value(T1, 7, 0, 2, EXCHANGE);
            b.value(T0, UNLOCK, 0, 0, LOCKED).value(T1, 7, 0, 2, EXCHANGE);
            b.value(T1, UNLOCK, 0, 0, LOCKED);
        };
        if waits_first {
            waits(&mut b);
        }
        for (place, value) in [(LOCK, 1), (7, 2), (LOCK, 1)] {
            b.value(T1, place, 0, value, EXCHANGE).value(T1, UNLOCK, 0, 0, LOCKED);
        }
        if waits_at_all && !waits_first {
            waits(&mut b);
        }
        assert_eq!(kinds(&mut b), [(kind, UNLOCK)], "{waits_first} {waits_at_all}");
    }
}

/// The instruction that empties mailboxes puts words back, and no evidence comes of that.
#[test]
fn a_mailbox_that_was_used_once_is_no_lock_either() {
    let mut b = TraceBuilder::new();
    for value in [1, 2, 1] {
        b.value(T0, LOCK, 0, value, EXCHANGE).value(T0, UNLOCK, 0, 0, PLAIN);
    }
    b.value(T0, LOCK, 256, 1, EXCHANGE).value(T0, UNLOCK, 256, 0, PLAIN);
    assert_eq!(b.summary(), [(Kind::MissingFlush, UNLOCK, 2)]);
}

#[test]
fn threads_take_a_lock_with_numbers_of_their_own() {
    let mut b = TraceBuilder::new();
    b.thread(T1, 0);
    for _ in 0..3 {
        for (thread, number) in [(T0, 4711), (T1, 4712)] {
            b.value(thread, LOCK, 0, number, EXCHANGE)
                .value(thread, UNLOCK, 0, 0, PLAIN);
        }
    }
    assert_eq!(kinds(&mut b), [(Kind::TransientData, UNLOCK)]);
}

#[test]
fn what_is_no_lock() {
    // Each is (thread, place, value, flags) to one word.
    type Case<'a> = (&'a str, &'a [(u32, u64, u32, StoreFlags)]);
    let cases: [Case; 10] = [
        ("taken once", &[(T0, LOCK, 1, EXCHANGE), (T0, UNLOCK, 0, PLAIN)]),
        (
            "a counter",
            &[(T0, LOCK, 1, LOCKED), (T0, LOCK, 2, LOCKED), (T0, LOCK, 3, LOCKED)],
        ),
        (
            "references that are counted",
            &[
                (T0, LOCK, 1, LOCKED),
                (T0, UNLOCK, 0, LOCKED),
                (T0, LOCK, 1, LOCKED),
                (T0, UNLOCK, 0, LOCKED),
            ],
        ),
        (
            "a flag that is stored in sequentially consistent order",
            &[
                (T0, LOCK, 1, LOCKED),
                (T0, UNLOCK, 0, LOCKED),
                (T0, LOCK, 1, LOCKED),
                (T0, UNLOCK, 0, LOCKED),
            ],
        ),
        (
            "a switch between two copies",
            &[
                (T0, LOCK, 1, EXCHANGE),
                (T0, LOCK, 0, EXCHANGE),
                (T0, LOCK, 1, EXCHANGE),
                (T0, LOCK, 0, EXCHANGE),
            ],
        ),
        (
            "a version",
            &[
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 2, PLAIN),
                (T0, LOCK, 3, EXCHANGE),
                (T0, UNLOCK, 4, PLAIN),
            ],
        ),
        (
            "the head of a list",
            &[
                (T0, LOCK, 100, EXCHANGE),
                (T0, UNLOCK, 0, EXCHANGE),
                (T0, LOCK, 200, EXCHANGE),
                (T0, UNLOCK, 0, EXCHANGE),
            ],
        ),
        (
            "a mailbox for small numbers",
            &[
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, LOCK, 2, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
            ],
        ),
        (
            "a mailbox for three commands, each posted at a place of its own",
            &[
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, 7, 2, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, 8, 3, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
            ],
        ),
        (
            "a slot that stays taken",
            &[
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, LOCK, 1, EXCHANGE),
                (T0, UNLOCK, 0, PLAIN),
                (T0, LOCK, 1, EXCHANGE),
            ],
        ),
    ];
    for (what, stores) in cases {
        let mut b = TraceBuilder::new();
        for &(thread, place, value, flags) in stores {
            b.value(thread, place, 0, value, flags);
        }
        let last = stores.last().unwrap().1;
        assert_eq!(kinds(&mut b), [(Kind::MissingFlush, last)], "{what}");
    }
}

#[test]
fn a_lock_that_was_used_once_is_known_by_the_code_that_puts_locks_back() {
    let mut b = TraceBuilder::new();
    for _ in 0..3 {
        b.value(T0, LOCK, 0, 1, EXCHANGE).value(T0, UNLOCK, 0, 0, PLAIN);
    }
    b.value(T0, LOCK, 256, 1, EXCHANGE).value(T0, UNLOCK, 256, 0, PLAIN);
    assert_eq!(b.summary(), [(Kind::TransientData, UNLOCK, 2)]);
}

#[test]
fn a_program_that_was_killed_may_hold_its_lock() {
    let (program, process) = ((Some(9), false), (None, true));
    for (signal, killed) in [(None, false), program, process] {
        let mut b = TraceBuilder::new();
        for _ in 0..3 {
            b.value(T0, LOCK, 0, 1, EXCHANGE).value(T0, UNLOCK, 0, 0, PLAIN);
        }
        b.value(T0, LOCK, 0, 1, EXCHANGE).mfence(T0, 8);
        let process = ProcessId(0);
        b.event(T0, 0, EventKind::ProcessEnd { process, killed });
        b.end.signal = signal;
        let kind = if signal.is_some() || killed {
            Kind::TransientData
        } else {
            Kind::MissingFlush
        };
        assert_eq!(kinds(&mut b), [(kind, LOCK)]);
    }
}

/// Of one call path. What it says about other kinds of findings does not matter.
#[test]
fn a_crash_test_is_evidence_for_its_call_path() {
    let findings = |transient: Vec<Finding>| {
        let mut b = TraceBuilder::new();
        b.store(T0, 1, 0, 8).store(T0, 2, 64, 8).flush(T0, 3, 128).sfence(T0, 4);
        b.transient = transient;
        b.findings()
    };
    let shown = |mut finding: Finding| {
        finding.kind = Kind::TransientData;
        finding.severity = Severity::Note;
        finding.message = "its loss changed nothing".into();
        finding
    };
    let not_second = findings(Vec::new()).into_iter().filter(|f| place(f) != 2);
    let with = findings(not_second.map(shown).collect());
    assert_eq!(
        summary(&with),
        [
            (Kind::MissingFlush, 2, 1),
            (Kind::FlushUnmodified, 3, 1),
            (Kind::TransientData, 1, 1)
        ]
    );
    assert_eq!(with[2].message, "its loss changed nothing");
}

/// The end of an operation expects nothing of it either, but of what lies beside it.
#[test]
fn a_crash_test_is_evidence_for_the_end_of_an_operation() {
    for (both, left) in [(false, vec![]), (true, vec![(Kind::ExpectDurable, 4, 1)])] {
        let findings = |transient: Vec<Finding>| {
            let mut b = TraceBuilder::new();
            b.annotation(T0, 1, Annotation::OperationBegin { name: "put" });
            b.store(T0, 2, 0, 8);
            if both {
                b.store(T0, 3, 64, 8);
            }
            b.annotation(T0, 4, Annotation::OperationEnd { name: "put" });
            b.transient = transient;
            b.findings()
        };
        let shown = findings(Vec::new()).into_iter().filter(|f| place(f) == 2);
        let with = findings(shown.collect());
        let with: Vec<_> = with.iter().filter(|f| f.kind == Kind::ExpectDurable).collect();
        assert_eq!(
            with.iter().map(|f| (f.kind, place(f), f.count)).collect::<Vec<_>>(),
            left
        );
        assert!(
            with.iter()
                .all(|f| f.related.len() == 1 && f.related[0].stack[0].address == 3)
        );
    }
}

#[test]
fn what_every_process_stores_before_it_reads_is_volatile() {
    // Two processes, one after the other; the second may read first. With one process nothing is known.
    for (processes, reads, kind) in [
        (2, false, Kind::TransientData),
        (2, true, Kind::MissingFlush),
        (1, false, Kind::MissingFlush),
    ] {
        let mut b = TraceBuilder::new();
        let mut node = 0;
        let mut access = |b: &mut TraceBuilder, thread, store| {
            node += 1;
            let at = PmAddress { file: POOL, offset: 0 };
            let depends = Dependences::of(&[]);
            b.event(
                thread,
                5,
                EventKind::Access {
                    store,
                    node,
                    at,
                    len: 8,
                    depends,
                },
            );
        };
        for process in 0..processes {
            if process > 0 {
                b.process(process, None).thread(process, process).map(process);
            }
            if process == 1 && reads {
                access(&mut b, process, false);
            }
            for _ in 0..2 {
                b.store(process, 1, 0, 8);
                access(&mut b, process, true);
                access(&mut b, process, false);
                b.sfence(process, 2);
            }
            b.event(
                process,
                0,
                EventKind::ProcessEnd {
                    process: ProcessId(process),
                    killed: false,
                },
            );
        }
        assert_eq!(kinds(&mut b), [(kind, 1)], "{processes} {reads}");
    }
}

/// Of a mutex at the start of the pool, with data behind it in the same line.
const MUTEX: [u64; 2] = [POOL_ADDRESS, 40];

impl TraceBuilder {
    /// A call for an object, and a store that the C library makes in it, in functions that have no names.
    fn lock_call(&mut self, place: u64, function: &str, offset: u64) -> &mut Self {
        self.call(T0, place, function, &MUTEX);
        let stack = self.stack(&[(Some("libc.so.6"), 0x500), (Some("libc.so.6"), 0x700), (None, place)]);
        let at = PmAddress { file: POOL, offset };
        let store = EventKind::Store {
            at,
            data: &[7; 4],
            flags: PLAIN,
        };
        self.event_at(T0, stack, store)
    }
}

#[test]
fn an_object_of_the_c_library_is_a_lock_without_names() {
    let mut b = TraceBuilder::new();
    // The program's own initialisation is the lock's, too.
    b.store(T0, 1, 0, 40);
    b.lock_call(2, "pthread_mutex_lock", 0).store(T0, 3, 40, 8);
    b.lock_call(4, "pthread_mutex_unlock", 0).sfence(T0, 5);
    let findings = b.findings();
    assert_eq!(
        summary(&findings),
        [
            (Kind::MissingFlush, 3, 1),
            (Kind::TransientData, 1, 1),
            (Kind::TransientData, 4, 1)
        ]
    );
    assert!(findings.iter().any(|f| f.message.contains("a lock of the C library")));
}

#[test]
fn a_store_to_a_lock_and_to_data_counts_for_the_data() {
    let mut b = TraceBuilder::new();
    b.store(T0, 1, 0, 64).lock_call(2, "sem_post", 0).sfence(T0, 3);
    let findings = b.findings();
    let data = findings.iter().find(|f| f.kind == Kind::MissingFlush).unwrap();
    let address = data.address.as_ref().unwrap();
    assert_eq!((place(data), address.offset, address.length), (1, 40, 24));
}

#[test]
fn data_in_the_place_of_a_lock_is_data() {
    let mut b = TraceBuilder::new();
    b.lock_call(1, "pthread_mutex_lock", 0)
        .lock_call(2, "pthread_mutex_destroy", 16);
    b.store(T0, 3, 8, 8).sfence(T0, 4);
    assert_eq!(
        kinds(&mut b),
        [
            (Kind::MissingFlush, 3),
            (Kind::TransientData, 1),
            (Kind::TransientData, 2)
        ]
    );
    // In a mapping that was made later, too.
    b.lock_call(1, "pthread_mutex_lock", 0).unmap(T0, 2).map(T0);
    b.store(T0, 3, 0, 8).sfence(T0, 4);
    assert_eq!(kinds(&mut b), [(Kind::MissingFlush, 3), (Kind::TransientData, 1)]);
}

#[test]
fn a_lock_is_shared_until_the_last_process_unmaps_it() {
    let mut b = TraceBuilder::new();
    b.process(1, Some(0)).thread(T1, 1);
    b.lock_call(1, "pthread_mutex_lock", 0).unmap(T1, 2).sfence(T0, 3);
    assert_eq!(kinds(&mut b), [(Kind::TransientData, 1)]);
}
