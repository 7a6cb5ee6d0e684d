//! The recorder against fake producers that fill the ring as the runtime would.
//!
//! The process that the log speaks of is a `sleep` that stands in for it, so that it can die when the test wants.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crashproof_trace::*;
use crashproof_wire::record::{self as wire, Access, Fields, Place};
use crashproof_wire::{CONTINUATION, RING_SLOTS, Session, slot_header};

use crate::drain::Recording;
use crate::output::{Output, Written};
use crate::session::{SessionFile, SessionOptions};
use crate::verify::Images;

/// An event with what it holds copied.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Store {
        thread: u32,
        offset: u64,
        data: Vec<u8>,
        flags: StoreFlags,
    },
    Initial {
        offset: u64,
        data: Vec<u8>,
    },
    Other {
        thread: u32,
        text: String,
    },
}

struct Trace {
    seen: Vec<Seen>,
    tables: Tables,
    incomplete: Vec<Incomplete>,
    end: Option<ProgramEnd>,
    stacks: Vec<StackId>,
    /// Of each sync, how many events before its own position it began.
    syncs_begun_before: Vec<u64>,
    /// Threads that began something which went on.
    begins: Vec<u32>,
}

impl Trace {
    fn read(path: &Path) -> Trace {
        let mut reader = TraceReader::open(path).unwrap();
        let (mut seen, mut stacks, mut syncs_begun_before) = (Vec::new(), Vec::new(), Vec::new());
        let mut begins = Vec::new();
        while let Some(item) = reader.next().unwrap() {
            seen.push(match item {
                Item::Initial { at, data } => Seen::Initial {
                    offset: at.offset,
                    data: data.to_vec(),
                },
                Item::Event(event) => {
                    stacks.push(event.stack);
                    begins.extend(event.begins().iter().map(|thread| thread.0));
                    if let EventKind::Sync { .. } = event.kind {
                        syncs_begun_before.push(event.seq - event.begun());
                    }
                    let thread = event.thread.0;
                    match event.kind {
                        EventKind::Store { at, data, flags } => Seen::Store {
                            thread,
                            offset: at.offset,
                            data: data.to_vec(),
                            flags,
                        },
                        kind => Seen::Other {
                            thread,
                            text: format!("{kind:?}"),
                        },
                    }
                }
            });
        }
        let incomplete = reader.incomplete().to_vec();
        Trace {
            seen,
            stacks,
            syncs_begun_before,
            begins,
            tables: reader.tables().clone(),
            end: reader.end(),
            incomplete,
        }
    }

    fn reasons(&self) -> Vec<IncompleteReason> {
        self.incomplete.iter().map(|i| i.reason).collect()
    }

    fn texts(&self) -> Vec<&str> {
        self.seen
            .iter()
            .filter_map(|seen| match seen {
                Seen::Other { text, .. } => Some(text.as_str()),
                Seen::Store { .. } | Seen::Initial { .. } => None,
            })
            .collect()
    }

    fn stored(&self) -> impl Iterator<Item = (u32, u64)> {
        self.seen.iter().filter_map(|seen| match seen {
            Seen::Store { thread, data, .. } => Some((*thread, u64::from_le_bytes(data[..8].try_into().unwrap()))),
            _ => None,
        })
    }
}

struct Fake {
    session: SessionFile,
    directory: tempfile::TempDir,
    stand_in: Child,
}

const END: ProgramEnd = ProgramEnd {
    status: Some(0),
    signal: None,
    interrupted: false,
    terminated: false,
};

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

impl Fake {
    fn new() -> Fake {
        let session = SessionFile::create(&SessionOptions::default()).unwrap();
        Fake {
            session,
            directory: tempfile::tempdir().unwrap(),
            stand_in: sleeper(),
        }
    }

    fn trace_path(&self) -> PathBuf {
        self.directory.path().join("trace")
    }

    /// Records what `produce` does; then the stand-in dies, orderly only if `produce` said so.
    fn record(&mut self, produce: impl FnOnce(&Session, u32) + Send) -> Trace {
        let path = self.trace_path();
        self.record_to(&path, produce);
        Trace::read(&path)
    }

    fn record_to(&mut self, path: &Path, produce: impl FnOnce(&Session, u32) + Send) -> Written {
        let output = Output::create(path, &Header::default(), "free some space").unwrap();
        let mut recording = Recording::new(&self.session, output, Images::new(path), None);
        let done = AtomicBool::new(false);
        let stand_in = &mut self.stand_in;
        let session: &Session = &self.session;
        std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                produce(session, stand_in.id());
                kill(stand_in);
                done.store(true, Ordering::Release);
            });
            recording.run(|| done.load(Ordering::Acquire).then_some(()));
        });
        assert!(recording.saw_runtime());
        recording.finish(END)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        kill(&mut self.stand_in);
    }
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

fn publish(session: &Session, kind: u8, parts: &[&[u8]]) -> u64 {
    let wait = || {
        std::thread::yield_now();
        true
    };
    session.publish(kind, parts, wait).unwrap()
}

fn start(session: &Session, process: u32, pid: u32, parent: u32) {
    let slot = session.processes.iter().find(|s| {
        s.pid
            .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    slot.unwrap().state.store(1, Ordering::Release);
    let fields = Fields::<64>::default()
        .u32(process)
        .u32(pid)
        .u32(parent)
        .u32(process)
        .bytes(b"/bin/app");
    publish(session, wire::PROCESS_START, &[fields.as_bytes()]);
}

fn thread(session: &Session, thread: u32, process: u32) {
    let fields = Fields::<16>::default().u32(thread).u32(process).u32(1000 + thread);
    publish(session, wire::THREAD_START, &[fields.as_bytes()]);
}

fn end(session: &Session, process: u32) {
    publish(session, wire::PROCESS_END, &[&process.to_le_bytes()]);
}

fn file(session: &Session, file: u32, path: &Path) {
    let status = path.metadata().unwrap();
    let dev = (libc::major(status.dev()) as u64) << 32 | libc::minor(status.dev()) as u64;
    let fields = Fields::<4200>::default()
        .u32(file)
        .u64(status.len())
        .u64(dev)
        .u64(status.ino())
        .u32(0);
    publish(
        session,
        wire::FILE,
        &[fields.bytes(path.to_str().unwrap().as_bytes()).as_bytes()],
    );
}

fn map(session: &Session, thread: u32, file: u32) {
    let fields = Fields::<48>::default()
        .u32(thread)
        .u64(0)
        .u32(file)
        .u64(0x7000_0000)
        .u64(0)
        .u64(4096)
        .u32(3);
    publish(session, wire::MAP, &[fields.as_bytes()]);
}

fn store(session: &Session, thread: u32, file: u32, offset: u64, data: &[u8]) -> u64 {
    let place = Place { file, offset };
    let access = Access::new(0, place, thread, 0, data.len());
    publish(session, wire::STORE, &[access.as_bytes(), data])
}

/// file u32, offset u64, data
fn contents(session: &Session, kind: u8, file: u32, offset: u64, data: &[u8]) {
    publish(
        session,
        kind,
        &[Fields::<12>::default().u32(file).u64(offset).as_bytes(), data],
    );
}

/// What a runtime says of a file in which nothing differs. These tests do not really store to it, so nobody finds it at the end.
fn verified(session: &Session, path: &Path) {
    contents(session, wire::VERIFY, 0, 0, &[]);
    std::fs::remove_file(path).unwrap();
}

/// One process with threads 0..n and one mapped file of zeros.
fn begin(session: &Session, pid: u32, threads: u32, path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
    start(session, 0, pid, wire::NONE);
    (0..threads).for_each(|t| thread(session, t, 0));
    file(session, 0, path);
    map(session, 0, 0);
}

#[test]
fn threads_are_recorded_in_the_order_of_the_ring_over_several_laps() {
    const THREADS: u32 = 4;
    // Stores of 80 bytes take two slots: two laps and a half.
    let per_thread = (RING_SLOTS / THREADS as u64) * 5 / 4;
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let mut order = Vec::new();
    let trace = fake.record(|session, pid| {
        begin(session, pid, THREADS, &pool, 1 << 20);
        let positions = std::thread::scope(|scope| {
            let run = |t: u32| {
                let store = |i: u64| {
                    let mut data = [t as u8; 64];
                    data[..8].copy_from_slice(&i.to_le_bytes());
                    (store(session, t, 0, (i * 64) % (1 << 20), &data), t, i)
                };
                (0..per_thread).map(store).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || run(t))).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        order = positions;
        verified(session, &pool);
        end(session, 0);
    });
    assert!(order.iter().map(|o| o.0).max().unwrap() > RING_SLOTS * 2);
    order.sort_unstable();
    assert_eq!(trace.incomplete, []);
    assert_eq!(trace.end, Some(END));
    assert_eq!(trace.stored().count(), order.len());
    assert!(trace.stored().eq(order.iter().map(|&(_, thread, i)| (thread, i))));
}

#[test]
fn a_hole_left_by_a_killed_process_is_passed_and_said() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let mut other = sleeper();
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        start(session, 1, other.id(), 0);
        thread(session, 1, 1);
        store(session, 0, 0, 0, &1u64.to_le_bytes());
        // Another process reserves five slots, commits two of them as the rest of a record, and dies.
        let hole = session.tail.0.fetch_add(5, Ordering::AcqRel);
        for p in hole + 2..hole + 4 {
            session.ring[(p % RING_SLOTS) as usize]
                .header
                .store(slot_header(CONTINUATION, 0, p), Ordering::Release);
        }
        store(session, 0, 0, 8, &2u64.to_le_bytes());
        kill(&mut other);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        store(session, 0, 0, 16, &3u64.to_le_bytes());
        // The dead process had the file mapped, so it is read.
        let stored: Vec<u8> = [1u64, 2, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
        File::options()
            .write(true)
            .open(&pool)
            .unwrap()
            .write_all_at(&stored, 0)
            .unwrap();
        end(session, 0);
    });
    assert_eq!(trace.stored().map(|s| s.1).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(trace.reasons(), [IncompleteReason::Lost]);
    assert!(
        trace
            .texts()
            .iter()
            .any(|t| t.contains("ProcessEnd { process: ProcessId(1), killed: true }"))
    );
}

#[test]
fn a_slow_producer_is_waited_for() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        let late = session.tail.0.fetch_add(1, Ordering::AcqRel);
        store(session, 0, 0, 8, &2u64.to_le_bytes());
        std::thread::sleep(std::time::Duration::from_millis(400));
        let access = Access::new(0, Place::NONE, 0, wire::FENCE_SFENCE, 0);
        let slot = &session.ring[(late % RING_SLOTS) as usize];
        // SAFETY: the slot was reserved above and is not committed.
        unsafe { slot.payload.get().cast::<Access>().write_unaligned(access) };
        slot.header
            .store(slot_header(wire::FENCE, Access::SIZE, late), Ordering::Release);
        verified(session, &pool);
        end(session, 0);
    });
    assert_eq!(trace.incomplete, []);
    let at = trace.seen.iter().position(|s| matches!(s, Seen::Store { .. })).unwrap();
    assert!(matches!(&trace.seen[at - 1], Seen::Other { text, .. } if text.starts_with("Fence")));
}

#[test]
fn killed_writers_lose_at_most_what_they_were_writing() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let counters: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let published = shared_words(4);
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        let children: Vec<i32> = (1..4u32)
            .map(|process| fork_writer(session, process, &published[process as usize]))
            .collect();
        for i in 0..200_000u64 {
            store(session, 0, 0, 0, &i.to_le_bytes());
            if i == 100_000 {
                // On a busy machine they may not have begun yet.
                while published[1..].iter().any(|count| count.load(Ordering::Relaxed) == 0) {
                    std::thread::yield_now();
                }
                children.iter().for_each(|&child| kill_forked(child));
            }
        }
        end(session, 0);
    });
    let mut process_of_thread = [0; 4];
    for seen in &trace.seen {
        if let Seen::Other { thread, text } = seen
            && let Some(process) = text.strip_prefix("ThreadStart { process: ProcessId(")
        {
            process_of_thread[*thread as usize] = process[..1].parse::<usize>().unwrap();
        }
    }
    for (thread, value) in trace.stored() {
        let counter = &counters[process_of_thread[thread as usize]];
        assert_eq!(
            counter.fetch_add(1, Ordering::Relaxed),
            value,
            "in order and without a gap"
        );
    }
    assert_eq!(counters[0].load(Ordering::Relaxed), 200_000);
    let total_published: u64 = published.iter().map(|p| p.load(Ordering::Relaxed)).sum();
    let recorded: u64 = counters[1..].iter().map(|c| c.load(Ordering::Relaxed)).sum();
    assert!(
        recorded >= total_published,
        "{recorded} recorded, {total_published} published"
    );
    // Nothing was really stored, and the files of killed processes are read.
    let expected = [IncompleteReason::Lost, IncompleteReason::Mismatch];
    assert!(
        trace.reasons().iter().all(|r| expected.contains(r)),
        "{:?}",
        trace.incomplete
    );
    assert_eq!(trace.texts().iter().filter(|t| t.starts_with("ProcessEnd")).count(), 4);
}

/// Words that a forked child shares with us.
fn shared_words(n: usize) -> &'static [AtomicU64] {
    // SAFETY: a fresh anonymous mapping of zeros, never unmapped.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let map = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        std::slice::from_raw_parts(map.cast(), n)
    }
}

/// A child that stores 0, 1, 2… until it is killed, or nobody listens.
fn fork_writer(session: &Session, process: u32, published: &AtomicU64) -> i32 {
    // SAFETY: the child only touches shared memory and its stack, and never returns.
    match unsafe { libc::fork() } {
        0 => {
            start(session, process, std::process::id(), 0);
            thread(session, process, process);
            let place = Place {
                file: 0,
                offset: 64 * process as u64,
            };
            let access = Access::new(0, place, process, 0, 8);
            for i in 0u64.. {
                let data = i.to_le_bytes();
                if session
                    .publish(wire::STORE, &[access.as_bytes(), &data], || true)
                    .is_none()
                {
                    break;
                }
                published.store(i + 1, Ordering::Relaxed);
            }
            loop {
                // SAFETY: waits for the signal that ends this child.
                unsafe { libc::pause() };
            }
        }
        child => child,
    }
}

fn kill_forked(child: i32) {
    // SAFETY: our own child, not reaped yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn bytes_that_differ_are_reported_once() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        File::create(&pool).unwrap().set_len(1 << 20).unwrap();
        start(session, 0, pid, wire::NONE);
        thread(session, 0, 0);
        file(session, 0, &pool);
        let mut page = [0; 4096];
        page[..5].copy_from_slice(b"hello");
        contents(session, wire::INITIAL, 0, 8192, &page);
        map(session, 0, 0);
        store(session, 0, 0, 8192, b"J");
        page[0] = b'J';
        contents(session, wire::VERIFY, 0, 8192, &page);
        page[100] = 1;
        page[4000] = 1;
        contents(session, wire::VERIFY, 0, 8192, &page);
        contents(session, wire::VERIFY, 0, 8192, &page);
        std::fs::remove_file(&pool).unwrap();
        end(session, 0);
    });
    let [note] = &trace.incomplete[..] else {
        panic!("{:?}", trace.incomplete)
    };
    assert_eq!(note.reason, IncompleteReason::Mismatch);
    assert!(
        note.detail
            .ends_with("pool: 2 bytes differ, first at offset 0x2064 from what the log replays to"),
        "{}",
        note.detail
    );
}

#[test]
fn what_changed_while_a_file_was_not_mapped_is_a_write() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 8192);
        store(session, 0, 0, 4, b"abc");
        contents(session, wire::INITIAL, 0, 0, b"\0\0\0\0abc\0");
        contents(session, wire::INITIAL, 0, 0, b"\0\0\0\0abd\0");
        verified(session, &pool);
        end(session, 0);
    });
    assert!(trace.incomplete.is_empty(), "{:?}", trace.incomplete);
    // Only what was news is in the trace.
    assert_eq!(trace.texts().iter().filter(|t| t.starts_with("FileWrite")).count(), 1);
}

/// Files of processes that were killed are read at the end.
#[test]
fn files_of_killed_processes_are_verified() {
    for (content, expected) in [
        (Some(&b"logged!!"[..]), &[][..]),
        (Some(b"LOGGED!!"), &[IncompleteReason::Mismatch]),
        (Some(b"logged!!and grown"), &[IncompleteReason::Mismatch]),
        (None, &[IncompleteReason::Unsupported]),
    ] {
        let mut fake = Fake::new();
        let pool = fake.directory.path().join("pool");
        let trace = fake.record(|session, pid| {
            begin(session, pid, 1, &pool, 8);
            store(session, 0, 0, 0, b"logged!!");
            match content {
                Some(content) => File::options()
                    .write(true)
                    .open(&pool)
                    .unwrap()
                    .write_all_at(content, 0)
                    .unwrap(),
                None => std::fs::remove_file(&pool).unwrap(),
            }
        });
        assert_eq!(trace.reasons(), expected, "{:?}", trace.incomplete);
        assert!(trace.texts().last().unwrap().starts_with("ProcessEnd"));
    }
}

/// A process without the runtime may change a file after all others have unmapped it.
#[test]
fn what_changes_after_the_last_mapping_is_noticed() {
    for (content, expected) in [
        (Some(&b"logged!!"[..]), &[][..]),
        (Some(b"logged??"), &[IncompleteReason::Mismatch]),
        (Some(b"logged!!and grown"), &[IncompleteReason::Mismatch]),
        (None, &[]),
    ] {
        let mut fake = Fake::new();
        let pool = fake.directory.path().join("pool");
        let trace = fake.record(|session, pid| {
            begin(session, pid, 1, &pool, 8);
            store(session, 0, 0, 0, b"logged!!");
            contents(session, wire::VERIFY, 0, 0, b"logged!!");
            end(session, 0);
            match content {
                Some(content) => std::fs::write(&pool, b"").and_then(|()| {
                    let pool = File::options().write(true).open(&pool)?;
                    pool.write_all_at(content, 0)
                }),
                None => std::fs::remove_file(&pool),
            }
            .unwrap();
        });
        assert_eq!(trace.reasons(), expected, "{:?}", trace.incomplete);
    }
}

#[test]
fn growth_writes_and_truncation_are_replayed() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 16);
        let head = || Fields::<64>::default().u32(0).u64(0).u32(0);
        store(session, 0, 0, 0, b"0123456789abcdef");
        publish(session, wire::RESIZE, &[head().u64(wire::NOT_BEGUN).u64(4).as_bytes()]);
        publish(
            session,
            wire::RESIZE,
            &[head().u64(wire::NOT_BEGUN).u64(100_000).as_bytes()],
        );
        publish(
            session,
            wire::FILE_WRITE,
            &[
                head().u64(wire::NOT_BEGUN).u64(99_990).as_bytes(),
                b"written past the end",
            ],
        );
        let actual = File::create(&pool).unwrap();
        actual.write_all_at(b"0123", 0).unwrap();
        actual.write_all_at(b"written past the end", 99_990).unwrap();
    });
    assert_eq!(trace.incomplete, []);
    let expected = ["Resize", "Resize", "FileWrite"];
    let texts = trace.texts();
    assert!(
        expected.iter().all(|e| texts.iter().any(|t| t.starts_with(e))),
        "{texts:?}"
    );
}

#[test]
fn a_sync_says_where_it_began() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 2, &pool, 4096);
        let begun = |thread: u32| publish(session, wire::BEGIN, &[&thread.to_le_bytes()]);
        let sync = |thread: u32, begun: u64| {
            let fields = Fields::<48>::default().u32(thread).u64(0).u32(0).u64(begun);
            publish(session, wire::SYNC, &[fields.u64(0).u64(4096).as_bytes()]);
        };
        let first = begun(0);
        store(session, 1, 0, 8, &[1; 8]);
        let second = begun(1);
        store(session, 0, 0, 16, &[2; 8]);
        sync(0, first);
        sync(1, second);
        // Whose beginning nobody noted, and one that names the beginning of another.
        sync(0, wire::NOT_BEGUN);
        sync(1, first);
    });
    // A moment at which nothing happens is an event, too.
    let [first, second, 0, 0] = trace.syncs_begun_before[..] else {
        panic!("{:?}", trace.syncs_begun_before);
    };
    assert!(first >= 2 && second >= 2, "{first} {second}");
    assert_eq!(trace.begins, [0, 1]);
}

#[test]
fn every_other_record_becomes_its_event() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        let head = || Fields::<128>::default().u32(0).u64(0);
        publish(
            session,
            wire::OUTPUT,
            &[Fields::<8>::default().u32(0).u32(1).as_bytes(), b"hi\n"],
        );
        publish(
            session,
            wire::SYNC,
            &[head().u32(0).u64(wire::NOT_BEGUN).u64(0).u64(4096).as_bytes()],
        );
        let call = (1..=6).fold(head(), |f, a| f.u64(a)).bytes(b"pmemobj_tx_begin");
        publish(session, wire::CALL, &[call.as_bytes()]);
        let returned = (1..=7).fold(head(), |f, a| f.u64(a)).u32(1).u64(8).u64(9).u64(10);
        publish(session, wire::RETURN, &[returned.bytes(b"pmemobj_alloc").as_bytes()]);
        let annotation = (1..=4).fold(head().u32(wire::ANNOTATION_EXPECT_ORDER), |f, a| f.u64(a));
        publish(session, wire::ANNOTATION, &[annotation.bytes(b"").as_bytes()]);
        let annotation = (1..=4).fold(head().u32(wire::ANNOTATION_OPERATION_END), |f, a| f.u64(a));
        publish(session, wire::ANNOTATION, &[annotation.bytes(b"put").as_bytes()]);
        let request = head().u32(wire::REQUEST_TX_ADD).u64(7).u32(0).u64(64).u64(32);
        publish(session, wire::REQUEST, &[request.as_bytes()]);
        let request = head().u32(wire::REQUEST_TX_BEGIN).u64(7).u32(wire::NONE).u64(0).u64(0);
        publish(session, wire::REQUEST, &[request.as_bytes()]);
        let access = |flags| Access::new(0, Place { file: 0, offset: 70 }, 0, flags, 0);
        publish(session, wire::FLUSH, &[access(wire::FLUSH_CLFLUSHOPT).as_bytes()]);
        publish(session, wire::FENCE, &[access(wire::FENCE_MFENCE).as_bytes()]);
        publish(
            session,
            wire::RENAME,
            &[head().u32(0).u64(wire::NOT_BEGUN).bytes(b"/new/name").as_bytes()],
        );
        publish(
            session,
            wire::RENAME,
            &[head().u32(0).u64(wire::NOT_BEGUN).bytes(b"").as_bytes()],
        );
        publish(session, wire::UNMAP, &[head().u32(0).u64(0).u64(4096).as_bytes()]);
        let note = Fields::<64>::default().u32(wire::INCOMPLETE_LIMIT).bytes(b"too many");
        publish(session, wire::INCOMPLETE, &[note.as_bytes()]);
        end(session, 0);
    });
    let at = "PmAddress { file: FileId(0), offset";
    assert_eq!(
        trace.texts()[3..],
        [
            "Output { fd: 1, data: [104, 105, 10] }".to_owned(),
            "Sync { file: FileId(0), offset: 0, len: 4096 }".into(),
            "Call { name: \"pmemobj_tx_begin\", arguments: [1, 2, 3, 4, 5, 6] }".into(),
            "Return(CallReturn { name: \"pmemobj_alloc\", arguments: [1, 2, 3, 4, 5, 6], result: 7, object: \
             Some(PmemObject { pool: 8, offset: 9, usable: 10 }) })"
                .into(),
            "Annotation(ExpectOrder { before: MemoryRange { address: 1, len: 2 }, after: MemoryRange { address: 3, len: 4 }, \
             backwards: false })"
                .into(),
            "Annotation(OperationEnd { name: \"put\" })".into(),
            format!("Request {{ request: TxAdd, transaction: 7, range: Some(({at}: 64 }}, 32)) }}"),
            "Request { request: TxBegin, transaction: 7, range: None }".into(),
            format!("Flush {{ at: {at}: 70 }}, kind: Clflushopt }}"),
            "Fence { kind: Mfence }".into(),
            "Rename { file: FileId(0), path: Some(\"/new/name\") }".into(),
            "Rename { file: FileId(0), path: None }".into(),
            "Unmap { file: FileId(0), offset: 0, len: 4096 }".into(),
            "ProcessEnd { process: ProcessId(0), killed: false }".into(),
        ]
    );
    assert_eq!(
        trace.incomplete,
        [Incomplete {
            reason: IncompleteReason::Limit,
            detail: "too many".into()
        }]
    );
}

#[test]
fn addresses_become_modules_and_equal_stacks_one() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        let module = |space: u32, bias: u64, start: u64, end: u64, path: &[u8]| {
            let fields = Fields::<256>::default().u32(space).u64(bias).u64(start).u64(end).u32(3);
            publish(
                session,
                wire::MODULE,
                &[fields.bytes(b"\x12\x34").bytes(path).as_bytes()],
            );
        };
        let stack = |space: u32, hash: u64, frames: &[u64]| {
            let bytes: Vec<u8> = frames.iter().flat_map(|f| f.to_le_bytes()).collect();
            publish(
                session,
                wire::STACK,
                &[Fields::<12>::default().u32(space).u64(hash).as_bytes(), &bytes],
            );
        };
        let fence = |stack: u64| {
            let access = Access::new(stack, Place::NONE, 0, 0, 0);
            publish(session, wire::FENCE, &[access.as_bytes()]);
        };
        module(0, 0x1000, 0x2000, 0x3000, b"/bin/app");
        // The second frame returns to the first byte after the module: the call was in it.
        stack(0, 11, &[0x2010, 0x3000, 0x9999]);
        fence(11);
        // The same program elsewhere.
        module(1, 0x10_1000, 0x10_2000, 0x10_3000, b"/bin/app");
        stack(1, 12, &[0x10_2010, 0x10_3000, 0x9999]);
        fence(12);
        // Another module takes the place of the first.
        module(0, 0x2000, 0x2000, 0x2800, b"/lib/plugin.so");
        stack(0, 13, &[0x2010, 0x2900]);
        fence(13);
        fence(77);
        end(session, 0);
    });
    let ids: Vec<StackId> = trace.stacks[3..7].to_vec();
    assert_eq!(ids, [StackId(1), StackId(1), StackId(2), StackId(0)]);
    let app = Some(ModuleId(0));
    assert_eq!(
        trace.tables.frames(StackId(1)),
        [
            Frame {
                module: app,
                address: 0x1010
            },
            Frame {
                module: app,
                address: 0x2000
            },
            Frame {
                module: None,
                address: 0x9999
            }
        ]
    );
    assert_eq!(
        trace.tables.frames(StackId(2)),
        [
            Frame {
                module: Some(ModuleId(1)),
                address: 0x10
            },
            Frame {
                module: None,
                address: 0x2900
            }
        ]
    );
    assert_eq!(trace.tables.modules[0].locked_sites, 3);
    assert_eq!(trace.tables.modules[0].build_id, [0x12, 0x34]);
}

#[test]
fn an_exec_ends_the_process_and_a_new_one_has_its_number() {
    let mut fake = Fake::new();
    let trace = fake.record(|session, pid| {
        start(session, 0, pid, wire::NONE);
        thread(session, 0, 0);
        let fields = Fields::<64>::default()
            .u32(1)
            .u32(pid)
            .u32(0)
            .u32(1)
            .bytes(b"/bin/other");
        publish(session, wire::PROCESS_START, &[fields.as_bytes()]);
        thread(session, 1, 1);
        end(session, 1);
    });
    let texts = trace.texts();
    let kinds = texts.iter().map(|text| text.split(' ').next().unwrap());
    // On a busy machine a moment may pass in which nothing happens.
    let kinds: Vec<&str> = kinds.filter(|kind| *kind != "Quiet").collect();
    assert_eq!(
        kinds,
        [
            "ProcessStart",
            "ThreadStart",
            "ProcessEnd",
            "ProcessStart",
            "ThreadStart",
            "ProcessEnd"
        ]
    );
    assert_eq!(trace.tables.process(ProcessId(1)).unwrap().parent, Some(ProcessId(0)));
}

#[test]
fn garbage_in_the_ring_is_said_and_survived() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        for kind in 1..=40 {
            for len in [0, 3, 11, 23, 24, 60, 200] {
                if !(kind == wire::PROCESS_START || kind == wire::THREAD_START) {
                    publish(session, kind, &[&vec![0xaa; len]]);
                }
            }
        }
        store(session, 9, 0, 0, b"unknown thread");
        store(session, 0, 9, 0, b"unknown file");
        store(session, 0, 0, (1 << 48) - 1, b"far behind any file");
        store(session, 0, 0, 8, &4u64.to_le_bytes());
        end(session, 0);
    });
    assert!(trace.reasons().contains(&IncompleteReason::Lost));
    assert_eq!(trace.stored().last(), Some((0, 4)));
}

#[test]
fn processes_that_outlive_the_command_are_not_waited_for() {
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let mut idle = sleeper();
    let busy = AtomicI32::new(0);
    let before = std::time::Instant::now();
    let trace = fake.record(|session, pid| {
        begin(session, pid, 1, &pool, 4096);
        start(session, 7, idle.id(), 0);
        busy.store(fork_writer(session, 1, &shared_words(1)[0]), Ordering::Relaxed);
        verified(session, &pool);
        end(session, 0);
    });
    kill(&mut idle);
    kill_forked(busy.into_inner());
    assert!(before.elapsed().as_secs() < 20);
    let [note] = &trace.incomplete[..1] else {
        panic!("{:?}", trace.incomplete)
    };
    assert_eq!(note.reason, IncompleteReason::Unsupported, "{}", note.detail);
    assert!(note.detail.contains("(/bin/app), process"), "{}", note.detail);
    assert_eq!(fake.session.closed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_full_disk_stops_the_trace_and_not_the_program() {
    let small = tempfile::tempdir().unwrap();
    let target = std::ffi::CString::new(small.path().to_str().unwrap()).unwrap();
    // SAFETY: mounts on our own directory; all strings end in NUL.
    let mounted = unsafe {
        let (kind, options) = (c"tmpfs".as_ptr(), c"size=1m".as_ptr());
        libc::mount(kind, target.as_ptr(), kind, 0, options.cast()) == 0
    };
    assert!(
        mounted,
        "this test mounts a small disk, which only root can: run it as root, or leave it out with --skip"
    );
    let trace_path = small.path().join("trace");
    let mut fake = Fake::new();
    let pool = fake.directory.path().join("pool");
    let published = AtomicU32::new(0);
    let written = fake.record_to(&trace_path, |session, pid| {
        begin(session, pid, 1, &pool, 1 << 20);
        let mut random = 1u64;
        for _ in 0..200_000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            store(session, 0, 0, random % (1 << 20), &random.to_le_bytes());
            published.fetch_add(1, Ordering::Relaxed);
        }
        verified(session, &pool);
        end(session, 0);
    });
    let trace = Trace::read(&trace_path);
    // SAFETY: unmounts what was mounted above.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    assert_eq!(published.load(Ordering::Relaxed), 200_000);
    assert!(written.failure.is_some());
    assert!(
        written
            .incomplete
            .iter()
            .any(|i| i.reason == IncompleteReason::WriteFailed)
    );
    assert!(
        trace.reasons().contains(&IncompleteReason::WriteFailed),
        "{:?}",
        trace.incomplete
    );
    assert_eq!(trace.end, Some(END));
    let stores = trace.stored().count();
    assert!((1..200_000).contains(&stores), "{stores}");
}

#[test]
fn the_session_is_removed_and_tells_the_options() {
    let options = SessionOptions {
        pm: vec!["*.pool".into(), "/x/y".into()],
        client_requests: true,
        locked_rmw: false,
    };
    let session = SessionFile::create(&options).unwrap();
    let path = session.path().to_owned();
    assert_eq!(session.magic, crashproof_wire::MAGIC);
    assert_eq!(session.recorder_pid, std::process::id());
    assert_eq!((session.options.client_requests, session.options.locked_rmw), (1, 0));
    assert_eq!(session.options.pattern_count, 2);
    assert!(session.options.patterns.starts_with(b"*.pool\0/x/y\0\0"));
    assert_eq!(path.metadata().unwrap().len(), size_of::<Session>() as u64);
    assert!(
        path.metadata().unwrap().blocks() * 512 >= size_of::<Session>() as u64,
        "every page has memory"
    );
    drop(session);
    assert!(!path.exists());
}

mod whole {
    //! `record` itself, with a runtime that is none.

    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::signals::Signals;
    use crate::{RECORDING, RecordError, RecordOptions, record};

    /// A shared object that can be preloaded and does nothing.
    fn harmless() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .lines()
            .filter_map(|l| l.find('/').map(|at| &l[at..]))
            .find(|p| p.contains("/libc.so"))
            .unwrap();
        PathBuf::from(libc)
    }

    fn options(command: &[&str], directory: &Path) -> RecordOptions {
        RecordOptions {
            remedy: "free some space",
            command: command.iter().map(Into::into).collect(),
            output: directory.join("trace"),
            pm: Vec::new(),
            client_requests: true,
            locked_rmw: false,
            runtime: harmless(),
            dependences: false,
            kept: false,
            quiet: false,
        }
    }

    #[test]
    fn what_cannot_be_run_is_said_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let no_interpreter = file("script", "#!/no/such/interpreter\n", 0o755);
        let no_permission = file("plain", "#!/bin/sh\n", 0o644);
        let no_program = file("text", "just text", 0o755);
        let error = |command: &[&str]| record(&options(command, directory.path())).unwrap_err();
        assert!(matches!(error(&[]), RecordError::NoCommand));
        assert!(matches!(error(&["no-such-program-here"]), RecordError::NotFound { .. }));
        assert!(matches!(error(&["/no/such/program"]), RecordError::NotFound { .. }));
        assert!(matches!(error(&[&no_interpreter]), RecordError::NoInterpreter { .. }));
        assert!(matches!(error(&[&no_permission]), RecordError::NotExecutable { .. }));
        assert!(matches!(error(&[&no_program]), RecordError::NotAProgram { .. }));
        assert!(!directory.path().join("trace").exists());
        let missing = RecordOptions {
            runtime: "/no/runtime.so".into(),
            ..options(&["true"], directory.path())
        };
        assert!(matches!(record(&missing).unwrap_err(), RecordError::Runtime { .. }));
        let elsewhere = RecordOptions {
            output: "/no/such/place".into(),
            ..options(&["true"], directory.path())
        };
        assert!(matches!(record(&elsewhere).unwrap_err(), RecordError::Trace { .. }));
    }

    #[test]
    fn a_program_without_the_runtime_has_run_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let seen = directory.path().join("environment");
        let script = format!("env > {}; exit 7", seen.display());
        let error = record(&options(&["sh", "-c", &script], directory.path())).unwrap_err();
        let RecordError::NoRuntime { end, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(
            end,
            ProgramEnd {
                status: Some(7),
                signal: None,
                ..ProgramEnd::default()
            }
        );
        let environment = std::fs::read_to_string(seen).unwrap();
        assert!(environment.contains("PMEM_IS_PMEM_FORCE=1\n"));
        assert!(environment.contains("PMEM2_FORCE_GRANULARITY=CACHE_LINE\n"));
        let preload = format!("LD_PRELOAD={}", harmless().display());
        assert!(environment.lines().any(|l| l.starts_with(&preload)));
        let session = environment
            .lines()
            .find_map(|l| l.strip_prefix("CRASHPROOF_SESSION="))
            .unwrap();
        assert!(!Path::new(session).exists());
        assert!(!directory.path().join("trace").exists());
    }

    #[test]
    fn a_runtime_whose_path_has_a_space_is_preloaded_by_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let runtime = directory.path().join("my runtime.so");
        std::fs::write(&runtime, "").unwrap();
        let mut session = SessionFile::create(&SessionOptions::default()).unwrap();
        let name = session.preloadable(&runtime).unwrap();
        assert!(!name.to_str().unwrap().contains(' '));
        assert_eq!(name.canonicalize().unwrap(), runtime.canonicalize().unwrap());
        drop(session);
        assert!(name.symlink_metadata().is_err());
    }

    #[test]
    fn signals_are_remembered_or_passed_on() {
        let _no_recording = RECORDING.lock().unwrap_or_else(|e| e.into_inner());
        // What the caller ignores (nohup, a job in the background) stays ignored otherwise, by us and by what we start.
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: no other test of this process has handlers of these signals while it records.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let signals = Signals::install();
        // SAFETY: the handlers of these signals were just installed.
        unsafe { libc::raise(libc::SIGTERM) };
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        signals.program_started(child.id());
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(libc::SIGTERM)
        );
        signals.program_ended();
        assert!(!signals.interrupted());
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGINT) };
        assert!(signals.interrupted());
    }
}
