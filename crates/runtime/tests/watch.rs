//! Recovery programs under the runtime: what is noted of their loads, stores and system calls is what they are known to do.

use crashproof_wire::recovery::*;
use recovery::{Notes, Worker};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

mod recovery;

const PAGES: usize = 64;

/// Beside the test's own executable.
fn runtime() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let library = test.with_file_name("libcrashproof_runtime.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

fn compile(directory: &Path, name: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let status = Command::new("cc")
        .args([
            "-g",
            "-O1",
            "-Wall",
            "-Wno-deprecated-declarations",
            "-Wno-infinite-recursion",
            "-pthread",
            "-o",
        ])
        .args([directory.join(name), source])
        .args(flags)
        .status()
        .expect("running cc");
    assert!(status.success(), "{name} does not compile");
}

/// A directory with a PM file and the program.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        static PROGRAM: OnceLock<tempfile::TempDir> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            compile(directory.path(), "watched", &[]);
            directory
        });
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::os::unix::fs::symlink(program.path().join("watched"), directory.path().join("watched")).expect("a link");
        std::fs::write(directory.path().join("pm"), vec![0; PAGES << 12]).expect("a PM file");
        Place(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn worker(&self) -> Worker {
        Worker::new(&self.path().join("recovery"), &[&self.path().join("pm")])
    }

    fn clear(&self) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.path().join("pm"))
            .expect("the PM file");
        file.write_all_at(&vec![0; PAGES << 12], 0).expect("zeros");
    }
}

fn pages(pages: impl IntoIterator<Item = u64>) -> Vec<u64> {
    pages.into_iter().map(|page| page_unit(0, page << 12)).collect()
}

fn line(page: u64, line: u64) -> u64 {
    line_unit(0, (page << 12) + line * 64)
}

fn sorted(units: &[u64]) -> Vec<u64> {
    units.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Runs the variant several times through the server and once without it: the notes must be the same.
fn notes(place: &Place, worker: &Worker, variant: &str) -> Notes {
    let mut runs = Vec::new();
    {
        let mut server = worker
            .park(&["watched", variant], place.path())
            .expect("the program can be parked");
        for _ in 0..3 {
            place.clear();
            let (status, notes) = server.run();
            assert!(status.success(), "{variant}: {status}, {notes:?}");
            runs.push(notes);
        }
    }
    place.clear();
    let (status, notes) = worker.run_alone(&["watched", variant], place.path());
    assert!(status.success(), "{variant}: {status}, {notes:?}");
    for run in runs {
        assert_eq!(run, notes, "{variant}");
    }
    notes
}

fn written(variant: &str) -> Notes {
    let place = Place::new();
    let notes = notes(&place, &place.worker(), variant);
    assert_eq!(notes.touched, [0u64; 0], "{variant}");
    notes
}

fn touched(variant: &str, fine: &[u64]) -> Notes {
    let place = Place::new();
    let worker = place.worker();
    worker.track_reads(&pages(fine.iter().copied()));
    notes(&place, &worker, variant)
}

fn expect(notes: Notes, written: impl IntoIterator<Item = u64>, touched: Vec<u64>) {
    let expected = Notes {
        started: 1,
        unwatched: 0,
        written: pages(written),
        touched,
    };
    assert_eq!(notes, expected);
}

#[test]
fn first_writes_are_noted() {
    expect(written("plain"), [3, 5], vec![]);
    expect(written("nothing"), [], vec![]);
}

#[test]
fn first_touches_are_noted_in_order() {
    expect(touched("plain", &[]), [3, 5], pages([3, 5, 7, 1]));
}

#[test]
fn lines_are_told_apart_where_they_are_asked_for() {
    let expected = vec![
        line(3, 1),
        page_unit(0, 5 << 12),
        line(3, 3),
        line(7, 63),
        page_unit(0, 1 << 12),
    ];
    expect(touched("plain", &[3, 7]), [3, 5], expected);
}

#[test]
fn a_page_is_noted_as_a_whole_after_many_steps() {
    let expected = vec![line(0, 0), line(0, 1), line(0, 2), line(0, 3), page_unit(0, 0)];
    expect(touched("busy-page", &[0]), [], expected);
}

#[test]
fn private_and_read_only_mappings_are_read() {
    expect(written("private"), [], vec![]);
    expect(touched("private", &[]), [], pages([2, 9, 4]));
    expect(
        touched("private", &[9]),
        [],
        vec![pages([2])[0], line(9, 0), pages([4])[0]],
    );
    expect(written("read-only"), [], vec![]);
    expect(touched("read-only", &[]), [], pages([6, 2]));
}

#[test]
fn system_calls_use_closed_pages() {
    expect(written("calls"), [1, 2, 3, 10, 30, 31], vec![]);
    expect(
        touched("calls", &[]),
        [1, 2, 3, 10, 30, 31],
        pages([1, 2, 3, 10, 20, 21, 30, 31]),
    );
}

#[test]
fn system_calls_use_pages_that_were_opened_later() {
    expect(written("opened-later"), [2], vec![]);
    expect(touched("opened-later", &[]), [2], pages([2, 4]));
}

#[test]
fn reads_by_descriptor_are_noted() {
    expect(written("descriptor"), [], vec![]);
    expect(touched("descriptor", &[]), [], pages([2, 5, 8, 11, 12, 20]));
    let mut expected = pages([2, 0, 0, 8, 11, 12, 0]);
    (expected[1], expected[2], expected[6]) = (line(5, 3), line(5, 4), line(20, 0));
    expect(touched("descriptor", &[5, 20, 11]), [], expected);
}

#[test]
fn children_of_a_recovery_are_watched() {
    expect(written("forks"), [0, 2, 4], vec![]);
    let notes = touched("forks", &[]);
    assert_eq!(notes.unwatched, UNWATCHED_CONCURRENT);
    assert_eq!((&notes.written, notes.started), (&pages([0, 2, 4]), 1));
    assert_eq!(sorted(&notes.touched), pages([0, 2, 4]));
}

#[test]
fn the_program_gets_its_own_faults() {
    expect(written("own-handler"), [12, 5], vec![]);
    expect(touched("own-handler", &[]), [12, 5], pages([3, 12, 4, 5]));
    let notes = touched("own-handler", &[3, 4, 5, 12]);
    assert_eq!(notes.written, pages([12, 5]));
    // The step over the string instruction faulted, so that its page counts as a whole.
    let expected = vec![line(3, 0), line(12, 0), line(4, 0), page_unit(0, 4 << 12), line(5, 0)];
    assert_eq!(notes.touched, expected);
}

#[test]
fn a_death_is_reported_with_its_signal() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new();
    let worker = place.worker();
    let mut server = worker.park(&["watched", "dies"], place.path()).expect("parked");
    for _ in 0..2 {
        let (status, notes) = server.run();
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        assert_eq!(notes.written, pages([0]));
    }
}

#[test]
fn mappings_go_where_they_were_recorded() {
    for address in [0x2000_0000_0000u64, 0x2000_4000_0000, 0x4123_4567_8000] {
        let place = Place::new();
        let worker = place.worker();
        let shared = worker.shared();
        shared.mappings[0] = Mapping {
            file: 0,
            reserved: 0,
            offset: 0,
            len: 1 << 12,
            address,
        };
        shared.mapping_count = 1;
        let mut server = worker.park(&["watched", "raw-pointer"], place.path()).expect("parked");
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::OpenOptions::new()
                .write(true)
                .open(place.path().join("pm"))
                .expect("the PM file"),
            &(address + (9 << 12)).to_le_bytes(),
            0,
        )
        .expect("a pointer");
        let (status, notes) = server.run();
        assert!(status.success(), "{address:#x}: {status}");
        assert_eq!((notes.started, notes.unwatched), (1, 0));
    }
}

#[test]
fn threads_have_no_order() {
    expect(written("threads"), [1, 2, 3], vec![]);
    let notes = touched("threads", &[1, 2, 3]);
    assert_eq!(notes.unwatched, UNWATCHED_CONCURRENT);
    assert_eq!(
        notes.touched,
        vec![line(1, 0), page_unit(0, 2 << 12), page_unit(0, 3 << 12)]
    );
}

#[test]
fn mappings_are_moved_protected_and_replaced() {
    expect(written("moves"), [1, 3, 10, 20, 11, 12, 30], vec![]);
    expect(
        touched("moves", &[]),
        [1, 3, 10, 20, 11, 12, 30],
        pages([1, 3, 10, 20, 11, 0, 12, 30]),
    );
}

#[test]
fn execution_of_another_program_is_told() {
    let notes = written("executes");
    assert_eq!((notes.unwatched, &notes.written), (UNWATCHED_EXEC, &pages([0])));
    assert!(notes.started >= 2, "the shell is watched too");
    let notes = written("executes-itself");
    assert_eq!((notes.unwatched, notes.started), (UNWATCHED_EXEC, 2));
    assert_eq!(notes.written, pages([3, 5]));
    let notes = touched("executes-itself", &[7]);
    assert_eq!(notes.written, pages([3, 5]));
    assert_eq!(
        notes.touched,
        vec![pages([3])[0], pages([5])[0], line(7, 63), pages([1])[0]]
    );
}

#[test]
fn flushes_touch_nothing() {
    expect(touched("flushes", &[]), [3], pages([3]));
    expect(touched("flushes", &[2, 3]), [3], vec![line(3, 0)]);
}

#[test]
fn an_instruction_may_raise_other_signals() {
    expect(written("raises"), [], vec![]);
    expect(touched("raises", &[]), [], pages([1, 2, PAGES as u64]));
    let end = PAGES as u64;
    let expected = vec![pages([1])[0], line(2, 0), line(end, 0), pages([end])[0]];
    expect(touched("raises", &[1, 2, end]), [], expected);
}

#[test]
fn too_many_pieces_are_told() {
    let place = Place::new();
    let worker = place.worker();
    worker.track_reads(&[]);
    let (status, notes) = worker.run_alone(&["watched", "islands"], place.path());
    assert!(status.success(), "{status}");
    assert_eq!(notes.unwatched, UNWATCHED_OVERFLOW);
    let expected = (0..1000).map(|i| page_unit(0, i << 13)).collect::<Vec<_>>();
    assert_eq!(notes.touched[..1000], expected);
}

#[test]
fn main_may_end_its_thread() {
    expect(written("thread-exit"), [1], vec![]);
}

#[test]
fn programs_may_be_linked_in_other_ways() {
    for flags in [
        &["-no-pie"][..],
        &["-O2", "-D_FORTIFY_SOURCE=2"],
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now"],
    ] {
        let place = Place::new();
        std::fs::remove_file(place.path().join("watched")).expect("the link");
        compile(place.path(), "watched", flags);
        expect(notes(&place, &place.worker(), "plain"), [3, 5], vec![]);
        let parked = place.path().join("recovery2");
        let worker = Worker::new(&parked, &[&place.path().join("pm")]);
        let early = worker.park_with(&["watched", "plain"], place.path(), &[("EARLY", "open")]);
        assert_eq!(early.err(), Some(server::CANNOT_PM_OPEN), "{flags:?}");
    }
}

#[test]
fn what_main_returns_is_the_status() {
    let place = Place::new();
    let worker = place.worker();
    let mut server = worker.park(&["watched", "exit"], place.path()).expect("parked");
    assert_eq!(server.run().0.code(), Some(42));
}

#[test]
fn a_program_that_has_looked_at_pm_before_main_is_not_parked() {
    let place = Place::new();
    let worker = place.worker();
    for (early, reason) in [
        ("open", server::CANNOT_PM_OPEN),
        ("read", server::CANNOT_PM_OPEN),
        ("thread", server::CANNOT_THREADS),
    ] {
        let parked = worker.park_with(&["watched", "plain"], place.path(), &[("EARLY", early)]);
        assert_eq!(parked.err(), Some(reason), "{early}");
    }
}

/// What the program's variant `random` touches of the first 16 pages, and which of them it writes.
fn naive(mut state: u64) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut lines, mut written) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..40 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let r = state >> 33;
        let at = r % (16 * 4096 - 64);
        let (at, len, writes) = match r >> 20 & 7 {
            0 => (at, 1, false),
            1 => (at, 4, false),
            2 => (at, 8, false),
            3 => (at, 8, true),
            4 => (at, 1, true),
            5 => (at, 16, false),
            6 => (at, 24, false),
            _ => (at & !63, 4, true),
        };
        lines.extend((at / 64..=(at + len - 1) / 64).map(|line| line_unit(0, line * 64)));
        if writes {
            written.extend((at / 4096..=(at + len - 1) / 4096).map(|page| page_unit(0, page * 4096)));
        }
    }
    (lines, written)
}

#[test]
fn random_touches_are_those_of_the_naive_model() {
    let place = Place::new();
    let worker = place.worker();
    for seed in 0..20u64 {
        let (lines, written) = naive(seed);
        let seed = seed.to_string();
        for fine in [0..0u64, 0..16, 5..11] {
            worker.track_reads(&pages(fine.clone()));
            place.clear();
            let parked = worker.park_with(&["watched", "random"], place.path(), &[("SEED", &seed)]);
            let (status, notes) = parked.expect("parked").run();
            assert!(status.success() && notes.unwatched == 0, "seed {seed}: {status}");
            let is_fine = |unit: u64| fine.contains(&(parse_unit(unit).1 >> 12));
            let expected = lines.iter().map(|&line| match is_fine(line) {
                true => line,
                false => page_unit(0, parse_unit(line).1),
            });
            // Pages with many steps count as a whole, and their later lines are not told apart.
            let touched: BTreeSet<u64> = notes.touched.iter().copied().collect();
            let whole = |unit: u64| is_fine(unit) && touched.contains(&page_unit(0, parse_unit(unit).1));
            let expected: BTreeSet<u64> = expected.filter(|&unit| !whole(unit)).collect();
            let in_detail: BTreeSet<u64> = touched.iter().copied().filter(|&unit| !whole(unit)).collect();
            assert_eq!(in_detail, expected, "seed {seed}, fine {fine:?}");
            let mut of_whole_pages = touched.iter().filter(|&&unit| unit & 1 == 1 && whole(unit));
            assert!(
                of_whole_pages.all(|line| lines.contains(line)),
                "seed {seed}, fine {fine:?}"
            );
            assert_eq!(sorted(&notes.touched).len(), notes.touched.len(), "each once");
            assert_eq!(
                notes.written.iter().copied().collect::<BTreeSet<_>>(),
                written,
                "seed {seed}"
            );
        }
    }
}

/// The programs that use signals, threads, processes and system calls in every way do so under a watch too.
fn behaves(name: &str) {
    let place = Place::new();
    compile(place.path(), "static_child", &["-static"]);
    compile(place.path(), name, &[]);
    let size = 1 << 20;
    let clear = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open(place.path().join("pm"))
            .and_then(|file| {
                file.set_len(0)?;
                file.set_len(size)
            })
    };
    let worker = place.worker();
    for fine in [None, Some(0), Some(size >> 12)] {
        if let Some(count) = fine {
            worker.track_reads(&pages(0..count));
        }
        for parked in [true, false] {
            clear().expect("an empty PM file");
            let (status, notes) = if parked {
                worker.park(&[name], place.path()).expect("parked").run()
            } else {
                worker.run_alone(&[name], place.path())
            };
            assert!(
                status.success(),
                "{name}, lines of {fine:?} pages, parked {parked}: {status}"
            );
            assert!(!notes.written.is_empty(), "{name} stores");
        }
    }
}

#[test]
fn masks_behave() {
    behaves("masks");
}

#[test]
fn handlers_behave() {
    behaves("handlers");
}

#[test]
fn faults_behave() {
    behaves("faults");
}

#[test]
fn deaths_behave() {
    behaves("deaths");
}

#[test]
fn threads_behave() {
    behaves("threads");
}

#[test]
fn syscalls_behave() {
    behaves("syscalls");
}

#[test]
fn unseen_behave() {
    behaves("unseen");
}

#[test]
fn interrupted_behave() {
    behaves("interrupted");
}

#[test]
fn mutexes_behave() {
    behaves("mutexes");
}

#[test]
fn children_behave() {
    behaves("children");
}

#[test]
fn storm_behave() {
    behaves("storm");
}

#[test]
fn output_behave() {
    behaves("output");
}
