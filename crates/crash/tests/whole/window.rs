//! `--from` and `--until`, and files that the program makes.

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{Collector, baseline, opened, options, tested};
use crashproof_crash::{CampaignOptions, CrashError, Executor, ExecutorError, StrategyKind};
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::{
    EventKind, FenceKind, FileId, FlushKind, Frame, Header, Module, PmAddress, PmFile, PmFileKind, ProcessId,
    ProgramEnd, StackId, ThreadId, TraceWriter,
};

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn crash_window_begins(x: u64) -> u64 {
    std::hint::black_box(x) ^ 1
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn crash_window_ends(x: u64) -> u64 {
    std::hint::black_box(x) ^ 2
}

/// A call stack in this very program, whose symbols there are.
fn frame(writer: &mut TraceWriter, function: extern "C" fn(u64) -> u64) -> StackId {
    let path = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // The first mapping of a position-independent executable is where its addresses count from.
    let bias = maps
        .lines()
        .find(|line| line.ends_with(path.to_str().unwrap()))
        .and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
        .unwrap();
    let module = Module {
        path: path.to_str().unwrap().into(),
        build_id: Vec::new(),
        locked_sites: 0,
        place: None,
    };
    let module = writer.module(&module).unwrap();
    let frame = Frame {
        module: Some(module),
        address: function as usize as u64 - bias,
    };
    writer.stack(&[frame]).unwrap()
}

/// Five stores to lines of their own, each made persistent before the next; the third is in one function, the fifth in
/// another. Two files take turns, the second of which is mapped before the fourth store.
fn write_trace(path: &Path, second_is_made: bool) {
    let mut writer = TraceWriter::create(path, &Header::default()).unwrap();
    let (thread, none, process) = (ThreadId(0), StackId(0), ProcessId(0));
    let mut events = Vec::new();
    let file = |writer: &mut TraceWriter, name: &str| {
        let path = name.into();
        let created = second_is_made && name == "/pm/second";
        let size = 4096;
        writer
            .file(&PmFile {
                path,
                size,
                created,
                kind: PmFileKind::File,
            })
            .unwrap()
    };
    let map = |file| EventKind::Map {
        file,
        address: 0,
        offset: 0,
        len: 4096,
        writable: true,
    };
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "program",
    };
    events.push((none, start));
    events.push((none, EventKind::ThreadStart { process, os_id: 1 }));
    for (stack, event) in events.drain(..) {
        writer.event(thread, stack, &event).unwrap();
    }
    let begins = frame(&mut writer, crash_window_begins);
    let ends = frame(&mut writer, crash_window_ends);
    let first = file(&mut writer, "/pm/first");
    writer.event(thread, none, &map(first)).unwrap();
    for (number, stack) in [(1u8, none), (2, none), (3, begins), (4, none), (5, ends)] {
        let mut file_of_store = first;
        if number == 4 {
            let second = file(&mut writer, "/pm/second");
            writer
                .initial(
                    PmAddress {
                        file: second,
                        offset: 0,
                    },
                    &[7],
                )
                .unwrap();
            writer.event(thread, none, &map(second)).unwrap();
            file_of_store = second;
        }
        let at = PmAddress {
            file: file_of_store,
            offset: 64 * number as u64,
        };
        let data = &[number];
        let flags = Default::default();
        writer
            .event(thread, stack, &EventKind::Store { at, data, flags })
            .unwrap();
        let kind = FlushKind::Clwb;
        writer.event(thread, stack, &EventKind::Flush { at, kind }).unwrap();
        let kind = FenceKind::Sfence;
        writer.event(thread, stack, &EventKind::Fence { kind }).unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
}

/// Path, and the numbers that were stored, by file.
type Seen = Vec<(Option<String>, Vec<u8>)>;

#[derive(Clone, Default)]
struct Files {
    files: Vec<(Option<String>, Vec<u8>)>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Executor for Files {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.files[file].1[offset as usize..][..buffer.len()]);
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        self.files[file].1[offset as usize..][..data.len()].copy_from_slice(data);
    }

    fn resize(&mut self, file: usize, size: u64) {
        if self.files.len() <= file {
            self.files.resize(file + 1, Default::default());
        }
        self.files[file].1.resize(size as usize, 0);
    }

    fn place(&mut self, file: usize, path: Option<&str>) {
        self.files[file].0 = path.map(Into::into);
    }

    fn run(&mut self, _output: &[u8]) -> Result<Run, ExecutorError> {
        let numbers = |content: &[u8]| content.iter().copied().filter(|&byte| byte != 0).collect();
        let seen = self
            .files
            .iter()
            .map(|(path, content)| (path.clone(), numbers(content)));
        self.seen.lock().unwrap().push(seen.collect());
        let recovery = Ended {
            status: Some(0),
            ..Default::default()
        };
        Ok(Run {
            recovery,
            ..Default::default()
        })
    }
}

fn states(options: &CampaignOptions) -> Result<BTreeSet<Seen>, CrashError> {
    states_of(options, false)
}

fn states_of(options: &CampaignOptions, second_is_made: bool) -> Result<BTreeSet<Seen>, CrashError> {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    write_trace(&trace, second_is_made);
    let files = Files::default();
    tested(
        &trace,
        options,
        vec![Box::new(files.clone())],
        Box::new(Collector::default()),
        &|_| {},
        &Default::default(),
    )?;
    let seen = std::mem::take(&mut *files.seen.lock().unwrap());
    Ok(seen.into_iter().collect())
}

fn state(first: &[u8], second: Option<&[u8]>) -> Seen {
    let path = |present: bool, path: &str| present.then(|| path.to_owned());
    vec![
        (path(true, "/pm/first"), first.into()),
        (path(second.is_some(), "/pm/second"), second.unwrap_or(&[7]).into()),
    ]
}

#[test]
fn a_file_that_was_there_has_its_content_from_the_start() {
    let all = states(&options(StrategyKind::Exhaustive)).unwrap();
    let (seven, eight): (&[u8], &[u8]) = (&[7], &[7, 4]);
    let expected = [
        state(&[], Some(seven)),
        state(&[1], Some(seven)),
        state(&[1, 2], Some(seven)),
        state(&[1, 2, 3], Some(seven)),
        state(&[1, 2, 3], Some(eight)),
        state(&[1, 2, 3, 5], Some(eight)),
    ];
    assert_eq!(all, BTreeSet::from(expected));
}

#[test]
fn a_file_that_the_program_made_appears_when_it_is_mapped() {
    let options = options(StrategyKind::Exhaustive);
    let all = states_of(&options, true).unwrap();
    let expected = [
        state(&[], None),
        state(&[1], None),
        state(&[1, 2], None),
        state(&[1, 2, 3], None),
        state(&[1, 2, 3], Some(&[7])),
        state(&[1, 2, 3], Some(&[7, 4])),
        state(&[1, 2, 3, 5], Some(&[7, 4])),
    ];
    assert_eq!(all, BTreeSet::from(expected));
    let prefix = CampaignOptions {
        strategy: StrategyKind::Prefix,
        ..options
    };
    let prefixes = states_of(&prefix, true);
    assert!(prefixes.unwrap().contains(&state(&[1, 2, 3], None)));
}

#[test]
fn only_the_window_is_crashed() {
    assert_eq!(crash_window_begins(2) + crash_window_ends(1), 6);
    let narrow = CampaignOptions {
        from: Some("crash_window_begins".into()),
        until: Some("crash_window_ends".into()),
        ..options(StrategyKind::Exhaustive)
    };
    let all = states(&narrow).unwrap();
    let expected = [
        state(&[1, 2], Some(&[7])),
        state(&[1, 2, 3], Some(&[7])),
        state(&[1, 2, 3], Some(&[7, 4])),
    ];
    assert_eq!(all, BTreeSet::from(expected));
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    write_trace(&trace, false);
    let mut files = Files::default();
    baseline(&trace, &narrow, &mut files);
    let seen = files.seen.lock().unwrap().clone();
    assert_eq!(seen, [state(&[1, 2], Some(&[7])), state(&[1, 2, 3], Some(&[7, 4]))]);
}

#[test]
fn a_function_that_is_not_there() {
    let nowhere = CampaignOptions {
        from: Some("no_such_function".into()),
        ..options(StrategyKind::Exhaustive)
    };
    let error = states(&nowhere).unwrap_err();
    assert!(matches!(error, CrashError::FromNotFound { .. }), "{error}");
    let endless = CampaignOptions {
        from: Some("crash_window_begins".into()),
        until: Some("no_such_function".into()),
        ..options(StrategyKind::Exhaustive)
    };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    write_trace(&trace, false);
    let survey = crashproof_crash::survey(&opened(&trace), &endless).unwrap();
    assert_eq!(survey.warnings.len(), 1, "{:?}", survey.warnings);
    assert_eq!(survey.files.len(), FileId(2).index());
}
