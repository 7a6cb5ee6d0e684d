//! Small programs as traces made by hand, recoveries as functions, and what the investigator says of the states that fail.
//!
//! A place in the code is a number: the address of the innermost frame, of a module that does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crashproof_finding::{Finding, Kind};
use crashproof_model::{Keep, LINE, Line, Model, WORD, order_of, pieces};
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::*;
use proptest::prelude::*;

mod pictures;

use super::history::{Laboratory, Reach, State};
use super::*;
use crate::campaign::StrategyKind;
use crate::edges::{EdgeIndex, Edges, Update};

const POOL: FileId = FileId(0);
const SIZE: u64 = 4096;
/// The number of the first step's event: a process and a thread come before it.
const FIRST: u64 = 2;

/// What a recovery says that does not end.
const HANGS: &str = "it hangs";

type Recovery = Arc<dyn Fn(&[u8], &[u8]) -> Result<(), &'static str> + Send + Sync>;

/// An image in memory, and a function as its recovery.
struct Simulated {
    image: Vec<u8>,
    path: Option<String>,
    recovery: Recovery,
    runs: Arc<AtomicU64>,
    /// So many runs, and then no more.
    limit: u64,
}

impl Executor for Simulated {
    fn read(&self, _file: usize, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let from = (offset as usize).min(self.image.len());
        let n = buffer.len().min(self.image.len() - from);
        buffer[..n].copy_from_slice(&self.image[from..from + n]);
    }

    fn write(&mut self, _file: usize, offset: u64, data: &[u8]) {
        let from = (offset as usize).min(self.image.len());
        let n = data.len().min(self.image.len() - from);
        self.image[from..from + n].copy_from_slice(&data[..n]);
    }

    fn resize(&mut self, _file: usize, size: u64) {
        self.image.resize(size as usize, 0);
    }

    fn place(&mut self, _file: usize, path: Option<&str>) {
        self.path = path.map(str::to_owned);
    }

    fn run(&mut self, output: &[u8]) -> Result<Run, ExecutorError> {
        if self.runs.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(ExecutorError::Ends);
        }
        let result = (self.recovery)(&self.image, output);
        Ok(Run {
            recovery: Ended {
                status: Some(i32::from(result.is_err())),
                stderr: result.err().unwrap_or("").as_bytes().to_vec(),
                timed_out: result.err() == Some(HANGS),
                ..Ended::default()
            },
            ..Run::default()
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Place in the code, offset, data.
    Store(u64, u64, Vec<u8>),
    Nontemporal(u64, u64, Vec<u8>),
    Flush(u64),
    Fence,
    Output(&'static str),
    Resize(u64),
    Write(u64, Vec<u8>),
    Rename(Option<&'static str>),
}
use Step::*;

fn word(place: u64, offset: u64, value: u64) -> Step {
    Store(place, offset, value.to_le_bytes().to_vec())
}

fn persist(offset: u64) -> [Step; 2] {
    [Flush(offset), Fence]
}

fn at(image: &[u8], offset: usize) -> u64 {
    let bytes = image
        .get(offset..offset + 8)
        .map_or([0; 8], |bytes| bytes.try_into().unwrap());
    u64::from_le_bytes(bytes)
}

/// A program and its recovery.
struct Case {
    folder: tempfile::TempDir,
    steps: Vec<Step>,
    recovery: Recovery,
    runs: Arc<AtomicU64>,
    limit: u64,
}

impl Case {
    fn new(
        steps: impl IntoIterator<Item = Step>,
        recovery: impl Fn(&[u8], &[u8]) -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Case {
        let case = Case {
            folder: tempfile::tempdir().unwrap(),
            steps: steps.into_iter().collect(),
            recovery: Arc::new(recovery),
            runs: Arc::default(),
            limit: u64::MAX,
        };
        case.record();
        case
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn opened(&self) -> TraceFile {
        TraceFile::open(self.trace()).unwrap()
    }

    fn record(&self) {
        let mut writer = TraceWriter::create(self.trace(), &Header::default()).unwrap();
        let module = writer
            .module(&Module {
                path: "/no/app".into(),
                build_id: vec![1],
                locked_sites: 0,
                place: None,
            })
            .unwrap();
        let (path, created) = ("/pm/pool".into(), false);
        let size = SIZE;
        writer
            .file(&PmFile {
                path,
                size,
                created,
                kind: PmFileKind::File,
            })
            .unwrap();
        let stack = |writer: &mut TraceWriter, address: u64| {
            let module = Some(module);
            writer.stack(&[Frame { module, address }]).unwrap()
        };
        let process = ProcessId(0);
        let start = EventKind::ProcessStart {
            process,
            pid: 100,
            parent: None,
            executable: "/no/app",
        };
        writer.event(ThreadId(0), StackId(0), &start).unwrap();
        let thread = EventKind::ThreadStart { process, os_id: 100 };
        writer.event(ThreadId(0), StackId(0), &thread).unwrap();
        for step in &self.steps {
            let place = match step {
                Store(place, ..) | Nontemporal(place, ..) => stack(&mut writer, *place),
                _ => StackId(0),
            };
            let pm = |offset: u64| PmAddress { file: POOL, offset };
            let store = |offset: u64, nontemporal| EventKind::Store {
                at: pm(offset),
                data: match step {
                    Store(_, _, data) | Nontemporal(_, _, data) => data,
                    _ => &[],
                },
                flags: StoreFlags {
                    nontemporal,
                    ..StoreFlags::default()
                },
            };
            let kind = match step {
                Store(_, offset, _) => store(*offset, false),
                Nontemporal(_, offset, _) => store(*offset, true),
                Flush(offset) => EventKind::Flush {
                    at: pm(*offset),
                    kind: FlushKind::Clwb,
                },
                Fence => EventKind::Fence {
                    kind: FenceKind::Sfence,
                },
                Output(text) => EventKind::Output {
                    fd: 1,
                    data: text.as_bytes(),
                },
                Resize(size) => EventKind::Resize {
                    file: POOL,
                    size: *size,
                },
                Write(offset, data) => EventKind::FileWrite { at: pm(*offset), data },
                Rename(path) => EventKind::Rename {
                    file: POOL,
                    path: *path,
                },
            };
            writer.event(ThreadId(0), place, &kind).unwrap();
        }
        writer.finish(ProgramEnd::default()).unwrap();
    }

    fn executor(&self) -> Box<dyn Executor> {
        Box::new(Simulated {
            image: vec![0; SIZE as usize],
            path: None,
            recovery: self.recovery.clone(),
            runs: self.runs.clone(),
            limit: self.limit,
        })
    }

    fn investigator(&self) -> Investigator {
        self.investigator_with(&options(Some(self.folder.path().join("saved"))))
    }

    fn investigator_with(&self, options: &CampaignOptions) -> Investigator {
        let words = Words {
            timeout: std::time::Duration::from_secs(1),
            memory: 1 << 30,
            disk: 1 << 20,
            paths: Vec::new(),
            recover: "./app --verify pool".into(),
            check: None,
            directory: self.folder.path().to_owned(),
            depth: 1,
        };
        Investigator::new(&self.opened(), options, self.executor(), words).unwrap()
    }

    /// Every allowed state before each fence and at the end that fails.
    fn failures(&self) -> Vec<Failure> {
        let mut failures = Vec::new();
        let mut lines: BTreeMap<u64, Line<Piece>> = BTreeMap::new();
        let mut image = vec![0; SIZE as usize];
        let mut output = Vec::new();
        for (seq, step) in (FIRST..).zip(&self.steps) {
            if matches!(step, Fence) {
                self.states(seq, &lines, &image, &output, &mut failures);
            }
            match step {
                Store(_, offset, data) | Nontemporal(_, offset, data) => {
                    for (piece, part) in pieces(*offset, data.len() as u64, WORD).enumerate() {
                        let start = part.line * LINE + part.bytes.first();
                        let from = (start - offset) as usize;
                        let store = crashproof_model::Store {
                            bytes: part.bytes,
                            thread: 0,
                            nontemporal: matches!(step, Nontemporal(..)),
                            tag: Piece {
                                id: (seq, piece as u16),
                                offset: start,
                                data: data[from..from + part.bytes.span() as usize].to_vec(),
                            },
                        };
                        lines.entry(part.line).or_default().store(Model::Px86, Keep::All, store);
                    }
                }
                Flush(offset) => {
                    if let Some(line) = lines.get_mut(&(offset / LINE)) {
                        line.flush(0, ());
                    }
                }
                Fence => {
                    for line in lines.values_mut() {
                        let before: Vec<Piece> = line.stores().iter().map(|store| store.tag.clone()).collect();
                        line.fence(0);
                        let kept: Vec<_> = line.stores().iter().map(|store| store.tag.id).collect();
                        for piece in before.iter().filter(|piece| !kept.contains(&piece.id)) {
                            image[piece.offset as usize..][..piece.data.len()].copy_from_slice(&piece.data);
                        }
                    }
                }
                Output(text) => output.extend_from_slice(text.as_bytes()),
                Resize(_) | Write(..) | Rename(_) => unreachable!("not in the programs that are crashed here"),
            }
        }
        self.states(FIRST + self.steps.len() as u64, &lines, &image, &output, &mut failures);
        failures
    }

    fn states(
        &self,
        point: u64,
        lines: &BTreeMap<u64, Line<Piece>>,
        image: &[u8],
        output: &[u8],
        failures: &mut Vec<Failure>,
    ) {
        let dirty: Vec<&Line<Piece>> = lines.values().filter(|line| !line.is_clean()).collect();
        let stores = || dirty.iter().flat_map(|line| line.stores());
        for state in order_of(dirty.iter().copied(), false).states() {
            let mut crashed = image.to_vec();
            let id = |piece: &Piece| StoreId {
                seq: piece.id.0,
                piece: piece.id.1,
            };
            let mut persisted = Vec::new();
            for (store, _) in stores().zip(&state).filter(|(_, persisted)| **persisted) {
                let Piece { offset, data, .. } = &store.tag;
                crashed[*offset as usize..][..data.len()].copy_from_slice(data);
                persisted.push(id(&store.tag));
            }
            if (self.recovery)(&crashed, output).is_err() {
                let all = stores().map(|store| id(&store.tag));
                failures.push(Failure {
                    point,
                    missing: all.filter(|id| !persisted.contains(id)).collect(),
                    persisted,
                    output: output.len() as u64,
                    run: Run::default(),
                });
            }
        }
    }

    fn findings(&self) -> Vec<Finding> {
        let mut investigator = self.investigator();
        let failures = self.failures();
        assert!(!failures.is_empty(), "the program has a bug");
        for failure in &failures {
            investigator.explain(failure).unwrap();
        }
        let findings = investigator.finish();
        let states: u64 = findings.iter().map(|finding| finding.count).sum();
        assert_eq!(states, failures.len() as u64);
        assert_eq!(investigator.unconfirmed, 0);
        findings
    }

    fn finding(&self) -> Finding {
        let mut findings = self.findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Piece {
    id: (u64, u16),
    offset: u64,
    data: Vec<u8>,
}

impl crashproof_model::Tag for Piece {
    type Site = ();
}

fn options(save: Option<PathBuf>) -> CampaignOptions {
    CampaignOptions {
        strategy: StrategyKind::Exhaustive,
        save,
        ..CampaignOptions::default()
    }
}

fn places(stores: &[crashproof_finding::CrashStore]) -> Vec<u64> {
    stores.iter().map(|store| store.frame.address).collect()
}

/// (missing, persisted)
fn summary(finding: &Finding) -> (Vec<u64>, Vec<u64>) {
    let crash = finding.crash.as_ref().unwrap();
    (places(&crash.missing), places(&crash.persisted))
}

const COUNT: usize = 0;
const ENTRIES: usize = 64;

/// A log: a count, and entries in lines of their own.
fn log(image: &[u8], _: &[u8]) -> Result<(), &'static str> {
    let complete = (0..at(image, COUNT) as usize).all(|n| at(image, ENTRIES + 64 * n) != 0);
    complete.then_some(()).ok_or("an entry is empty")
}

#[test]
fn an_entry_that_is_not_flushed() {
    let append = |n: u64| {
        let entry = word(14, 64 + 64 * n, n + 7);
        [entry, word(15, 0, n + 1)].into_iter().chain(persist(0))
    };
    let case = Case::new((0..4).flat_map(append), log);
    let finding = case.finding();
    assert_eq!(finding.kind, Kind::CrashOrder);
    assert_eq!(summary(&finding), (vec![14], vec![15]));
    let crash = finding.crash.as_ref().unwrap();
    assert_eq!(crash.after.address, 15);
    assert_eq!(finding.order.len(), 1);
    let order = &finding.order[0];
    assert_eq!((order.before.address, order.after.address), (14, 15));
    let events = (crash.missing[0].event, crash.persisted[0].event);
    assert!(events.0.is_some() && (order.before_event, order.after_event) == events);
    assert_eq!(crash.recovery.status, Some(1));
    assert_eq!(crash.recovery.stderr, "an entry is empty");
    assert_eq!(finding.address.as_ref().unwrap().offset, 64);
}

/// Non-temporal stores persist before all that is stored later to other lines.
#[derive(Debug)]
struct NontemporalFirst;

impl Edges for NontemporalFirst {
    fn index(&self) -> Box<dyn EdgeIndex> {
        Box::new(Nontemporals::default())
    }
}

/// How many updates there were, and which of them are non-temporal.
#[derive(Default)]
struct Nontemporals(usize, Vec<usize>);

impl EdgeIndex for Nontemporals {
    fn take(&mut self, update: &Update) -> Vec<usize> {
        let before = self.1.clone();
        self.1.extend(update.nontemporal.then_some(self.0));
        self.0 += 1;
        before
    }
}

#[test]
fn what_comes_after_a_missing_store_in_another_line_is_missing_too() {
    let steps = [Nontemporal(14, 0, vec![1; 8]), word(15, 64, 1), Output("done")];
    let lost = |image: &[u8], output: &[u8]| match output.is_empty() || at(image, 0) != 0 {
        true => Ok(()),
        false => Err("the first is lost"),
    };
    let id = |seq| StoreId { seq, piece: 0 };
    let edges: [(Option<Arc<dyn Edges>>, _); 2] = [(None, vec![14]), (Some(Arc::new(NontemporalFirst)), vec![14, 15])];
    for (edges, missing) in edges {
        let case = Case::new(steps.clone(), lost);
        let mut investigator = case.investigator_with(&CampaignOptions { edges, ..options(None) });
        let failure = Failure {
            point: FIRST + 3,
            persisted: Vec::new(),
            missing: vec![id(FIRST), id(FIRST + 1)],
            output: 4,
            run: Run::default(),
        };
        investigator.explain(&failure).unwrap();
        assert_eq!(summary(&investigator.finish()[0]).0, missing);
    }
}

/// Two lines of one page: where pages persist, the second store is never there without the first.
#[test]
fn what_comes_after_a_missing_store_in_its_page_is_missing_too() {
    let steps = [word(14, 0, 1), word(15, 64, 1), Output("done")];
    let lost = |image: &[u8], output: &[u8]| match output.is_empty() || at(image, 0) != 0 {
        true => Ok(()),
        false => Err("the first is lost"),
    };
    let id = |seq| StoreId { seq, piece: 0 };
    for (unit, missing) in [(LINE, vec![14]), (4096, vec![14, 15])] {
        let case = Case::new(steps.clone(), lost);
        let mut investigator = case.investigator_with(&CampaignOptions { unit, ..options(None) });
        let failure = Failure {
            point: FIRST + 3,
            persisted: Vec::new(),
            missing: vec![id(FIRST), id(FIRST + 1)],
            output: 4,
            run: Run::default(),
        };
        investigator.explain(&failure).unwrap();
        assert_eq!(summary(&investigator.finish()[0]).0, missing);
    }
}

#[test]
fn a_count_before_its_entry() {
    let append = |n: u64| {
        let count = [word(15, 0, n + 1)].into_iter().chain(persist(0));
        let entry = [word(14, 64 + 64 * n, n + 7)].into_iter().chain(persist(64 + 64 * n));
        count.chain(entry)
    };
    let case = Case::new((0..4).flat_map(append), log);
    let finding = case.finding();
    assert_eq!(finding.kind, Kind::CrashOrder);
    assert_eq!(summary(&finding), (vec![14], vec![15]));
    assert_eq!(
        (finding.order[0].before.address, finding.order[0].after.address),
        (14, 15)
    );
}

fn equal(image: &[u8], _: &[u8]) -> Result<(), &'static str> {
    (at(image, 0) == at(image, 64))
        .then_some(())
        .ok_or("the counters differ")
}

#[test]
fn two_counters_in_two_lines() {
    let steps = |n: u64| {
        [word(21, 0, n), word(22, 64, n), Flush(0), Flush(64), Fence]
            .into_iter()
            .collect::<Vec<_>>()
    };
    // Either may be the one that is missing: it is one finding.
    let finding = Case::new((1..4).flat_map(steps), equal).finding();
    assert_eq!(finding.kind, Kind::CrashAtomicity);
    let (missing, persisted) = summary(&finding);
    assert_eq!(
        BTreeSet::from([missing, persisted]),
        BTreeSet::from([vec![21], vec![22]])
    );
    assert!(finding.order.is_empty());
}

#[test]
fn two_counters_one_after_the_other() {
    let steps = |n: u64| {
        let first = [word(21, 0, n)].into_iter().chain(persist(0));
        first.chain([word(22, 64, n)]).chain(persist(64))
    };
    let finding = Case::new((1..4).flat_map(steps), equal).finding();
    assert_eq!(finding.kind, Kind::CrashAtomicity);
    assert_eq!(summary(&finding), (vec![22], vec![21]));
}

#[test]
fn what_an_order_mends_only_in_some_states_has_to_be_one() {
    // The first entry may be there without its count; from then on one takes the other's place.
    let append = |n: u64| [word(14, 64, n + 7), word(15, 0, n + 1), Flush(64), Flush(0), Fence];
    let recovery = |image: &[u8], _: &[u8]| match at(image, 0) {
        0 => Ok(()),
        count => (at(image, 64) == count + 6).then_some(()).ok_or("the entry is another"),
    };
    let finding = Case::new((0..2).flat_map(append), recovery).finding();
    assert_eq!(finding.kind, Kind::CrashAtomicity);
    let (missing, persisted) = summary(&finding);
    assert_eq!(
        BTreeSet::from([missing, persisted]),
        BTreeSet::from([vec![14], vec![15]])
    );
    assert!(finding.order.is_empty());
    let note = "another order of the two would have been enough";
    assert!(
        finding.notes.iter().any(|text| text.contains(note)),
        "{:?}",
        finding.notes
    );
}

/// A log whose count (at 0) makes recovery do what it says: set the word at 64 to 1, which the size at 128 must agree with.
fn redo(image: &[u8], _: &[u8]) -> Result<(), &'static str> {
    let items = if at(image, 0) != 0 { 1 } else { at(image, 64) };
    (items == at(image, 128)).then_some(()).ok_or("the size is wrong")
}

#[test]
fn ending_the_log_is_no_order() {
    let steps = [
        vec![word(1, 0, 1)],
        persist(0).into(),
        vec![word(2, 64, 1)],
        persist(64).into(),
        vec![word(3, 0, 0)],
        persist(0).into(),
        vec![word(4, 128, 1)],
        persist(128).into(),
    ];
    let finding = Case::new(steps.concat(), redo).finding();
    // Not that the log must end (3) before it begins (1): the size (4) is to be part of it.
    assert_eq!(summary(&finding), (vec![4], vec![1]));
    assert_eq!(finding.kind, Kind::CrashAtomicity);
}

#[test]
fn two_stores_to_one_place_have_their_order() {
    let steps = [
        vec![word(1, 0, 2)],
        persist(0).into(),
        vec![word(2, 0, 1)],
        persist(0).into(),
    ];
    let valid = |image: &[u8], _: &[u8]| (at(image, 0) < 2).then_some(()).ok_or("2 is not valid");
    let finding = Case::new(steps.concat(), valid).finding();
    assert_eq!(summary(&finding), (vec![2], vec![1]));
    assert_eq!(finding.kind, Kind::CrashAtomicity);
}

#[test]
fn a_torn_pointer() {
    let mut pointer = [1u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
    let first = Store(31, 0, pointer.clone());
    pointer = [2u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
    let second = Nontemporal(32, 0, pointer);
    let steps = [first, Flush(0), Fence, second, Fence];
    let halves = |image: &[u8], _: &[u8]| (at(image, 0) == at(image, 8)).then_some(()).ok_or("torn");
    let findings = Case::new(steps, halves).findings();
    for finding in &findings {
        assert_eq!(finding.kind, Kind::CrashAtomicity);
        assert!(finding.notes.iter().any(|note| note.contains("tear")), "{finding:#?}");
    }
    assert_eq!(findings.len(), 2);
}

#[test]
fn a_store_across_two_lines_tears_always() {
    let pointer = [1u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
    let halves = |image: &[u8], _: &[u8]| (at(image, 56) == at(image, 64)).then_some(()).ok_or("torn");
    let case = Case::new([Store(31, 56, pointer), Fence], halves);
    for tear in [true, false] {
        let whole = CampaignOptions { tear, ..options(None) };
        let words = case.investigator().words;
        let mut investigator = Investigator::new(&case.opened(), &whole, case.executor(), words).unwrap();
        for failure in case.failures() {
            investigator.explain(&failure).unwrap();
        }
        let findings = investigator.finish();
        let note = if tear {
            "a wider store can tear"
        } else {
            "with --no-tear, too"
        };
        let noted = |finding: &Finding| finding.notes[0].contains(note);
        assert!(!findings.is_empty() && findings.iter().all(noted), "{findings:#?}");
    }
}

#[test]
fn a_file_operation_is_named_as_what_it_is() {
    // The file is cut before what it held is copied to its start.
    let moved = |image: &[u8], _: &[u8]| (at(image, 0) == 9 || at(image, 2048) == 9).then_some(()).ok_or("lost");
    let steps = [
        word(11, 2048, 9),
        Flush(2048),
        Fence,
        Resize(1024),
        word(12, 0, 9),
        Flush(0),
        Fence,
    ];
    let case = Case::new(steps, moved);
    let mut investigator = case.investigator();
    let failure = Failure {
        point: FIRST + 4,
        persisted: vec![],
        missing: vec![],
        output: 0,
        run: Run::default(),
    };
    assert!(investigator.explain(&failure).unwrap());
    let finding = investigator.finish().remove(0);
    assert_eq!(finding.kind, Kind::CrashOrder);
    let said = "the new size of pool (1024 bytes) had persisted";
    assert!(finding.message.contains(said), "{}", finding.message);
    let help = finding.help.as_deref().unwrap_or_default();
    assert!(help.contains("before the new size of pool"), "{help}");
}

/// What was output counts as acknowledged: one letter for each update.
fn acknowledged(image: &[u8], output: &[u8]) -> Result<(), &'static str> {
    (at(image, 0) >= output.len() as u64)
        .then_some(())
        .ok_or("an acknowledged update is lost")
}

#[test]
fn acknowledged_before_it_is_flushed() {
    let steps = |n: u64| [word(41, 0, n), Output("x"), Flush(0), Fence];
    let finding = Case::new((1..4).flat_map(steps), acknowledged).finding();
    assert_eq!(finding.kind, Kind::CrashDurability);
    assert_eq!(summary(&finding), (vec![41], vec![]));
}

#[test]
fn acknowledged_before_it_is_stored() {
    let steps = |n: u64| {
        let other = [word(40, 128, n)].into_iter().chain(persist(128));
        [Output("x")]
            .into_iter()
            .chain(other)
            .chain([word(41, 0, n)])
            .chain(persist(0))
    };
    let finding = Case::new((1..4).flat_map(steps), acknowledged).finding();
    assert_eq!(finding.kind, Kind::CrashDurability);
    assert_eq!(summary(&finding), (vec![41], vec![]));
}

#[test]
fn what_persisted_long_ago() {
    // The entry is never flushed, and later appends to other lines keep failing for the same reason.
    let append = |n: u64| {
        let entry = word(14, 64 + 64 * n, n + 7);
        let flush = (n != 1).then_some(Flush(64 + 64 * n));
        [entry]
            .into_iter()
            .chain(flush)
            .chain([Fence, word(15, 0, n + 1)])
            .chain(persist(0))
    };
    let case = Case::new((0..6).flat_map(append), log);
    let finding = case.finding();
    assert_eq!(finding.kind, Kind::CrashOrder);
    assert_eq!(summary(&finding), (vec![14], vec![15]));
    assert_eq!(finding.address.as_ref().unwrap().offset, 128);
}

#[test]
fn two_bugs_are_two_findings() {
    let recovery = |image: &[u8], _: &[u8]| {
        let flag = |flag: usize, data: usize| at(image, flag) == 0 || at(image, data) != 0;
        (flag(0, 64) && flag(128, 192))
            .then_some(())
            .ok_or("data without its flag")
    };
    let steps = [
        word(51, 64, 1),
        word(52, 0, 1),
        word(53, 192, 1),
        word(54, 128, 1),
        Fence,
    ];
    let mut all: Vec<_> = Case::new(steps, recovery).findings().iter().map(summary).collect();
    all.sort();
    assert_eq!(all, [(vec![51], vec![52]), (vec![53], vec![54])]);
}

#[test]
fn a_bug_that_shows_when_another_update_is_complete() {
    // Two tokens in a line, of which one says that the old value counts, and the other that the new one (at 64) does. The old one is cleared first.
    let recovery = |image: &[u8], _: &[u8]| match (at(image, 128), at(image, 0), at(image, 8)) {
        (0, ..) | (_, 1, _) => Ok(()),
        (.., 1) => (at(image, 64) == 7).then_some(()).ok_or("the value is another"),
        _ => Err("no token is left"),
    };
    let made = [word(1, 0, 1)].into_iter().chain(persist(0));
    let made = made.chain([word(2, 128, 1)]).chain(persist(128));
    let update = [word(61, 64, 7), word(62, 0, 0), word(63, 8, 1)];
    let steps = made.chain(update).chain(persist(64)).chain(persist(0));
    let mut all: Vec<_> = Case::new(steps, recovery).findings().iter().map(summary).collect();
    all.sort();
    assert_eq!(all, [(vec![61], vec![62, 63]), (vec![63], vec![62])]);
}

/// Two flags at 0 and 128, each for a word in the line after it.
fn two_flags(image: &[u8], _: &[u8]) -> Result<(), &'static str> {
    let flag = |flag: usize, data: usize| at(image, flag) == 0 || at(image, data) != 0;
    (flag(0, 64) && flag(128, 192))
        .then_some(())
        .ok_or("a flag without data")
}

/// What a campaign of two bugs finds: a state that shows both counts for both.
fn overlapping(steps: Vec<Step>) -> Vec<Finding> {
    let case = Case::new(steps, two_flags);
    let mut investigator = case.investigator();
    for failure in case.failures() {
        investigator.explain(&failure).unwrap();
    }
    assert_eq!(investigator.unconfirmed, 0);
    investigator.finish()
}

fn expect_both_flags(findings: &[Finding]) {
    let mut all: Vec<_> = findings.iter().map(summary).collect();
    all.sort();
    assert_eq!(all, [(vec![51], vec![52]), (vec![53], vec![54])], "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.kind == Kind::CrashOrder));
    for finding in findings {
        assert!(finding.count > 0);
    }
}

#[test]
fn a_bug_within_the_range_of_another_whose_flag_is_missing() {
    let steps = [word(52, 0, 1), word(53, 192, 1), word(54, 128, 1)].into_iter();
    let durable = [Flush(0), Flush(128), Flush(192), Fence, word(51, 64, 1)];
    let findings = overlapping(steps.chain(durable).chain(persist(64)).collect());
    expect_both_flags(&findings);
}

#[test]
fn a_bug_within_the_range_of_another_whose_flag_is_durable() {
    let first = [word(52, 0, 1)].into_iter().chain(persist(0));
    let second = [word(53, 192, 1), word(54, 128, 1), Flush(128), Flush(192), Fence];
    let end = [word(51, 64, 1)].into_iter().chain(persist(64));
    let findings = overlapping(first.chain(second).chain(end).collect());
    expect_both_flags(&findings);
    let noted = |finding: &Finding| finding.notes.iter().any(|note| note.contains("when that is mended"));
    assert!(findings.iter().any(noted), "{findings:#?}");
}

#[test]
fn ranges_that_overlap_and_ranges_within_each_other() {
    let made = |place: u64, at: u64| [word(place, at, 1)].into_iter().chain(persist(at));
    for order in [
        [(52, 0), (54, 128), (51, 64), (53, 192)],
        [(52, 0), (54, 128), (53, 192), (51, 64)],
    ] {
        let findings = overlapping(order.into_iter().flat_map(|(place, at)| made(place, at)).collect());
        expect_both_flags(&findings);
    }
}

#[test]
fn what_depends_on_a_store_that_came_too_early_is_no_other_bug() {
    // A queue: its end is stored, twice, before the entry is there, and the entry has a part that is lost by itself.
    let queue = |image: &[u8], _: &[u8]| match (at(image, 0), at(image, 64)) {
        (0, 0) => Ok(()),
        (1, 1) if at(image, 128) == 7 => Ok(()),
        _ => Err("the ends differ, or the entry is empty"),
    };
    let store = |place: u64, at: u64, value: u64| [word(place, at, value)].into_iter().chain(persist(at));
    let steps = store(61, 0, 1).chain(store(62, 64, 1)).chain(store(63, 128, 7));
    let findings = Case::new(steps, queue).findings();
    assert_eq!(findings.len(), 1, "{findings:#?}");
}

#[test]
fn many_states_cost_few_runs() {
    let append = |n: u64| {
        let entry = word(14, 64 + 64 * n, n + 7);
        [entry, word(15, 0, n + 1), Flush(0), Fence]
    };
    let case = Case::new((0..10).flat_map(append), log);
    let failures = case.failures();
    let mut investigator = case.investigator();
    let fresh: u64 = failures
        .iter()
        .map(|failure| u64::from(investigator.explain(failure).unwrap()))
        .sum();
    assert_eq!(fresh, 1);
    assert!(failures.len() > 1000, "{} failures", failures.len());
    let runs = case.runs.load(Ordering::Relaxed);
    assert!(runs < 600, "{runs} runs for {} states", failures.len());
    assert_eq!(investigator.finish()[0].count, failures.len() as u64);
}

#[test]
fn what_does_not_fail_again_is_not_reported() {
    let case = Case::new([word(1, 0, 1), Fence], |_, _| Ok(()));
    let mut investigator = case.investigator();
    let failure = Failure {
        point: FIRST + 1,
        persisted: vec![],
        missing: vec![StoreId { seq: FIRST, piece: 0 }],
        output: 0,
        run: Run::default(),
    };
    assert!(!investigator.explain(&failure).unwrap());
    assert!(investigator.finish().is_empty());
    let warnings = investigator.warnings();
    assert!(warnings[0].contains("does not always do the same"), "{warnings:?}");
}

#[test]
fn a_store_that_the_trace_does_not_have() {
    let case = Case::new([word(1, 0, 1), Fence], |_, _| Ok(()));
    let failure = Failure {
        point: FIRST + 1,
        persisted: vec![StoreId { seq: 1, piece: 4 }],
        missing: vec![],
        output: 0,
        run: Run::default(),
    };
    let error = case.investigator().explain(&failure).unwrap_err();
    assert!(error.to_string().contains("store 1.4"), "{error}");
}

#[test]
fn the_failing_image_is_saved() {
    let case = Case::new([word(14, 64, 7), word(15, 0, 1), Output("ok"), Fence], log);
    let finding = case.finding();
    let replay = finding.crash.unwrap().replay.unwrap();
    assert!(replay.directory.ends_with("saved/1-crash-order"));
    assert_eq!(
        replay.command,
        format!("crashproof crash --replay {}", replay.directory)
    );
    let folder = PathBuf::from(&replay.directory);
    let saved = load(&folder).unwrap();
    assert_eq!(saved.recover, "./app --verify pool");
    assert_eq!(saved.files.len(), 1);
    assert_eq!(saved.files[0].path.as_deref(), Some("/pm/pool"));
    let image = std::fs::read(folder.join(&saved.files[0].image)).unwrap();
    assert_eq!(image.len() as u64, SIZE);
    assert_eq!((at(&image, 0), at(&image, 64)), (1, 0));
    assert!(log(&image, b"").is_err());
    assert_eq!(saved.verdict, "recovery exited with status 1");
    assert_eq!(std::fs::read(folder.join(&saved.output)).unwrap(), b"");
}

#[test]
fn what_cannot_be_saved_is_found_all_the_same() {
    let case = Case::new([word(14, 64, 7), word(15, 0, 1), Fence], log);
    std::fs::write(case.folder.path().join("saved"), "a file in the way").unwrap();
    let mut investigator = case.investigator();
    for failure in case.failures() {
        investigator.explain(&failure).unwrap();
    }
    let findings = investigator.finish();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].crash.as_ref().unwrap().replay, None);
    let warnings = investigator.warnings();
    assert!(warnings[0].contains("cannot save the failing image"), "{warnings:?}");
}

#[test]
fn what_there_is_no_time_for_is_told_as_it_was_found() {
    let append = |n: u64| {
        let entry = word(14, 64 + 64 * n, n + 7);
        [entry, word(15, 0, n + 1), Flush(0), Fence]
    };
    for limit in [0, 1, 2, 3] {
        let case = Case {
            limit,
            ..Case::new((0..4).flat_map(append), log)
        };
        let failures = case.failures();
        let mut investigator = case.investigator();
        let mut ended = false;
        for failure in &failures {
            ended = ended || investigator.explain(failure).is_err();
            if ended {
                investigator.leave(failure.clone());
            }
        }
        assert!(ended);
        let findings = investigator.finish();
        let [finding] = &findings[..] else {
            panic!("{limit}: {findings:#?}");
        };
        let crash = finding.crash.as_ref().unwrap();
        assert!(crash.unreduced && finding.help.is_none() && finding.order.is_empty());
        assert_eq!(finding.count, failures.len() as u64);
        assert_eq!(summary(finding), (vec![14], vec![15]));
        let image = std::fs::read(PathBuf::from(&crash.replay.as_ref().unwrap().directory).join("image-0")).unwrap();
        assert!(log(&image, b"").is_err());
    }
}

#[test]
fn what_was_left_counts_for_a_cause_that_is_known() {
    let append = |n: u64| {
        let entry = word(14, 64 + 64 * n, n + 7);
        [entry, word(15, 0, n + 1), Flush(0), Fence]
    };
    let case = Case::new((0..4).flat_map(append), log);
    let failures = case.failures();
    let mut investigator = case.investigator();
    investigator.explain(&failures[0]).unwrap();
    for failure in &failures[1..] {
        investigator.leave(failure.clone());
    }
    let findings = investigator.finish();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].count, failures.len() as u64);
    assert!(!findings[0].crash.as_ref().unwrap().unreduced);
}

#[test]
fn hangs_and_runs_are_bounded() {
    // The count is durable long before the entries, all of which matter.
    let entries = 40;
    let store = |n: u64| [word(14, 64 + 64 * n, 7)].into_iter().chain(persist(64 + 64 * n));
    let steps = [word(15, 0, entries)]
        .into_iter()
        .chain(persist(0))
        .chain((0..entries).flat_map(store));
    let hangs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&hangs);
    let case = Case::new(steps, move |image, output| {
        log(image, output).map_err(|_| {
            counted.fetch_add(1, Ordering::Relaxed);
            HANGS
        })
    });
    let failure = case.failures().swap_remove(20);
    hangs.store(0, Ordering::Relaxed);
    let mut investigator = case.investigator();
    investigator.explain(&failure).unwrap();
    let finding = investigator.finish().remove(0);
    assert!(finding.crash.unwrap().recovery.timeout);
    let hangs = hangs.load(Ordering::Relaxed);
    assert!(hangs <= 32, "{hangs} hangs");
}

#[test]
fn bad_folders_are_named() {
    let case = Case::new([word(14, 64, 7), word(15, 0, 1), Fence], log);
    case.finding();
    let folder = case.folder.path().join("saved/1-crash-order");
    let description = folder.join("replay.json");
    let error = |folder: &Path| load(folder).unwrap_err().to_string();
    assert!(error(case.folder.path()).contains("is no saved crash"));
    assert!(error(&case.folder.path().join("nowhere")).contains("is no saved crash"));
    let good = std::fs::read_to_string(&description).unwrap();
    let cases = [
        ("{".to_owned(), "is damaged"),
        (good.replace("\"version\": 1", "\"version\": 9"), "version 9"),
        (good.replace("\"image-0\"", "\"../trace\""), "not a name in the folder"),
        (good.replace("\"size\": 4096", "\"size\": 1"), "4096 bytes instead of 1"),
        (good.replace("\"image-0\"", "\"image-7\""), "image-7"),
    ];
    for (text, words) in cases {
        std::fs::write(&description, &text).unwrap();
        assert!(
            error(&folder).contains(words),
            "{} does not say {words}",
            error(&folder)
        );
    }
    std::fs::write(&description, good).unwrap();
    load(&folder).unwrap();
}

fn step() -> impl Strategy<Value = Step> {
    let data = || proptest::collection::vec(1u8.., 1..40);
    prop_oneof![
        6 => (0u64..480, data()).prop_map(|(offset, data)| Store(offset, offset, data)),
        1 => (0u64..480, data()).prop_map(|(offset, data)| Write(offset, data)),
        1 => (100u64..600).prop_map(Resize),
        1 => Just(Output("x")),
        1 => Just(Rename(Some("/pm/other"))),
        1 => Just(Fence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Images of arbitrary sets of changes, asked for in any order, against a replay from the start each time.
    #[test]
    fn images_agree_with_a_replay(
        steps in proptest::collection::vec(step(), 1..60),
        questions in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>(), any::<u64>()), 1..12),
        margin in 1usize..12,
    ) {
        let case = Case::new(steps.clone(), |_, _| Ok(()));
        let mut lab = Laboratory::new(&case.opened(), &options(None), case.executor()).unwrap();
        lab.reach = Reach { window: 2 * margin, margin };
        for (a, b, missing, extra) in questions {
            let (a, b) = (a.index(steps.len() + 1) as u64, b.index(steps.len() + 1) as u64);
            let (earliest, point) = (FIRST + a.min(b), FIRST + a.max(b));
            let point = lab.open(earliest, point).unwrap();
            let (first, end) = lab.window();
            let first = first.max(point.saturating_sub(20));
            let state = State {
                missing: (first..point).filter(|i| missing >> (i % 64) & 1 == 1).collect(),
                extra: (point..end).filter(|i| extra >> (i % 64) & 1 == 1).collect(),
                ..lab.prefix(point)
            };
            let mut image = vec![0; 1024];
            lab.read(&state, 0, 0, &mut image);
            let (expected, size) = replay(&steps, &state);
            prop_assert_eq!(lab.size(0, &state), size);
            prop_assert!(image == expected);
        }
    }
}

/// The image and the file's size, change by change from the start.
fn replay(steps: &[Step], state: &State) -> (Vec<u8>, u64) {
    let mut image = vec![0; SIZE as usize];
    let mut index = 0;
    for step in steps {
        match step {
            Store(_, offset, data) | Nontemporal(_, offset, data) => {
                for piece in pieces(*offset, data.len() as u64, WORD) {
                    let start = (piece.line * LINE + piece.bytes.first()) as usize;
                    for byte in start..start + piece.bytes.span() as usize {
                        if state.holds(index) && byte < image.len() {
                            image[byte] = data[byte - *offset as usize];
                        }
                    }
                    index += 1;
                }
            }
            Write(offset, data) => {
                if state.holds(index) {
                    for (n, &byte) in data.iter().enumerate() {
                        if let Some(target) = image.get_mut(*offset as usize + n) {
                            *target = byte;
                        }
                    }
                }
                index += 1;
            }
            Resize(size) => {
                if state.holds(index) {
                    image.resize(*size as usize, 0);
                }
                index += 1;
            }
            Output(_) | Rename(_) => index += 1,
            Flush(_) | Fence => {}
        }
    }
    let size = image.len() as u64;
    image.resize(1024, 0);
    (image, size)
}
