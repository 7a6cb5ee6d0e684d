//! Everything that reads what somebody else wrote, as functions of bytes.

mod campaign;
mod seeds;

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use crashproof_check::{CheckOptions, Config};
use crashproof_crash::{CampaignOptions, behaviour_list};
use crashproof_exchange::{perfetto, pmemcheck, pmtest};
use crashproof_finding::Baseline;
use crashproof_infer::{Conditions, Listing};
use crashproof_litmus::Litmus;
use crashproof_sites::{ModuleSites, Typing, read_bitcode};
use crashproof_trace::symbols::Symbolizer;
use crashproof_trace::{
    EventKind, Frame, Header, Item, Module, PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd, ReadError, StackId,
    StoreFlags, ThreadId, TraceFile, TraceReader, TraceWriter, WriteError, dump, format,
};

pub struct Target {
    pub name: &'static str,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Whether the input was accepted.
    pub run: fn(&[u8]) -> bool,
}

macro_rules! targets {
    ($($name:ident: $seeds:ident),* $(,)?) => {
        pub const ALL: &[Target] = &[$(Target { name: stringify!($name), seeds: seeds::$seeds, run: $name }),*];
    };
}

targets! {
    trace: traces,
    events: payloads,
    behaviours: payloads,
    infer: complete_payloads,
    export: complete_payloads,
    crash: complete_payloads,
    pmemcheck_log: pmemcheck_logs,
    pmtest_log: pmtest_logs,
    litmus: litmus_files,
    configuration: configurations,
    baseline: baselines,
    saved: saved_crashes,
    sites: programs,
    symbols: programs,
    types: programs,
}

pub fn find(name: &str) -> Result<&'static Target, String> {
    ALL.iter().find(|target| target.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|target| target.name).collect();
        format!("there is no target {name}; there are {}", names.join(", "))
    })
}

/// A file in memory that holds the bytes; `use_it` gets its path.
fn with_file<T>(bytes: &[u8], use_it: impl FnOnce(&Path) -> T) -> T {
    let mut file = tempfile::NamedTempFile::new_in(folder()).expect("there is room for a small file");
    file.write_all(bytes).expect("there is room for a small file");
    use_it(file.path())
}

/// Lets `use_it` make a file beside another one; it is removed afterwards.
fn beside<T>(path: &Path, extension: &str, use_it: impl FnOnce(&Path) -> T) -> T {
    let other = path.with_extension(extension);
    let result = use_it(&other);
    let _ = std::fs::remove_file(other);
    result
}

/// In memory, if there is such a place.
fn folder() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// Whether a reader could be opened and `use_it` came to the end of the trace.
fn read(bytes: &[u8], use_it: impl FnOnce(&mut TraceReader) -> bool) -> bool {
    let source = std::io::Cursor::new(bytes.to_vec());
    TraceReader::from_source("input", Box::new(source), bytes.len() as u64).is_ok_and(|mut reader| use_it(&mut reader))
}

/// A trace file, byte by byte.
fn trace(bytes: &[u8]) -> bool {
    let checked = read(bytes, |reader| {
        crashproof_check::check(reader, &CheckOptions::default(), |_, _| {}).is_ok()
    });
    let described = read(bytes, |reader| {
        let (mut text, mut items) = (String::new(), 0);
        while let Ok(Some((item, tables))) = reader.next_with_tables() {
            text.clear();
            use std::fmt::Write;
            let _ = write!(text, "{}", dump::describe(&item, tables));
            items += 1;
        }
        items > 1
    });
    checked && described
}

/// A trace whose checksums and counts are right, so that what is wrong with its events is seen. It ends where its events cannot be
/// read any more: analyses then come to their end.
fn sealed(payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(format::BLOCK_TARGET)];
    let (events, _) = readable(&one_block(payload, 0));
    let whole = one_block(payload, events);
    match readable(&whole) {
        (_, None) => whole,
        (_, Some(end)) => {
            let part = &payload[..end.min(payload.len())];
            let (events, _) = readable(&one_block(part, 0));
            one_block(part, events)
        }
    }
}

fn one_block(payload: &[u8], events: u32) -> Vec<u8> {
    let mut trace = format::encode_header(&header()).expect("a short header");
    let mut block = Vec::new();
    format::seal_block(payload, 0, events, &mut block);
    trace.extend_from_slice(&block);
    trace
}

/// How many events can be read, and where in the payload the reader stops if that is not its end.
fn readable(trace: &[u8]) -> (u32, Option<usize>) {
    let (mut events, mut stops) = (0, None);
    read(trace, |reader| {
        loop {
            match reader.next() {
                Ok(Some(item)) => events += u32::from(matches!(item, Item::Event(_))),
                Ok(None) => return true,
                Err(error) => {
                    if let ReadError::Damaged { within, .. } = error {
                        stops = Some(within as usize);
                    }
                    return false;
                }
            }
        }
    });
    (events, stops)
}

fn header() -> Header {
    Header {
        command: vec!["program".to_owned()],
        options: format::Options::default(),
    }
}

fn events(payload: &[u8]) -> bool {
    trace(&sealed(payload))
}

fn behaviours(payload: &[u8]) -> bool {
    with_file(&sealed(payload), |path| {
        TraceFile::open(path).is_ok_and(|trace| behaviour_list(&trace, &CampaignOptions::default()).is_ok())
    })
}

fn infer(payload: &[u8]) -> bool {
    with_file(&sealed(payload), |path| {
        match TraceFile::open(path).map(|trace| Conditions::infer(&trace)) {
            Ok(Ok(conditions)) => {
                Listing::new(&conditions, Default::default());
                true
            }
            _ => false,
        }
    })
}

fn export(payload: &[u8]) -> bool {
    let trace = sealed(payload);
    let to_perfetto = read(&trace, |reader| {
        perfetto::export(reader, Default::default(), &mut std::io::sink()).is_ok()
    });
    let to_pmemcheck = read(&trace, |reader| pmemcheck::export(reader, &mut std::io::sink()).is_ok());
    to_perfetto && to_pmemcheck
}

/// A crash test of a trace whose checksums are right.
fn crash(payload: &[u8]) -> bool {
    with_file(&sealed(payload), campaign::test)
}

fn pmemcheck_log(log: &[u8]) -> bool {
    with_file(log, |path| {
        beside(path, "trace", |trace| {
            pmemcheck::import(path, trace, &pmemcheck::ImportOptions::default()).is_ok()
        })
    })
}

fn pmtest_log(log: &[u8]) -> bool {
    with_file(log, |path| {
        beside(path, "trace", |trace| pmtest::import(path, trace).is_ok())
    })
}

fn litmus(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| Litmus::parse(text).is_ok())
}

fn configuration(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| Config::<toml::Table>::parse(text, Path::new("crashproof.toml")).is_ok())
}

fn baseline(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| Baseline::parse(text).is_ok())
}

/// The description of a saved crash, in a directory with an empty image.
fn saved(description: &[u8]) -> bool {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir_in(folder()).expect("there is room for a directory");
        for name in ["image", "output"] {
            std::fs::write(directory.path().join(name), b"").expect("there is room for an empty file");
        }
        directory
    });
    std::fs::write(directory.path().join("replay.json"), description).expect("there is room for a small file");
    crashproof_crash::explain::load(directory.path()).is_ok()
}

fn sites(program: &[u8]) -> bool {
    with_file(program, |path| {
        ModuleSites::read(path).is_ok() && read_bitcode(path).is_ok()
    })
}

/// Addresses in the code of the seeds.
const ADDRESSES: std::ops::Range<u64> = 0x1000..0x1200;

fn module(program: &Path) -> Module {
    Module {
        path: program.display().to_string(),
        build_id: Vec::new(),
        locked_sites: 0,
        place: None,
    }
}

/// Functions and lines of a program's code.
fn symbols(program: &[u8]) -> bool {
    with_file(program, |path| {
        let module = module(path);
        let mut symbolizer = Symbolizer::new(Vec::new());
        let mut frames = ADDRESSES
            .step_by(16)
            .flat_map(|address| symbolizer.frames(&module, address, false));
        frames.any(|frame| frame.function.is_some())
    })
}

/// Types of what a program's code stores.
fn types(program: &[u8]) -> bool {
    with_file(program, |path| {
        beside(path, "trace", |trace| {
            write_stores(path, trace).expect("there is room for a small trace");
            let Ok(mut reader) = TraceReader::open(trace) else {
                return false;
            };
            let (mut typing, mut typed) = (Typing::new(), false);
            while let Ok(Some((item, tables))) = reader.next_with_tables() {
                if let Item::Event(event) = item
                    && let EventKind::Store { at, data, .. } = event.kind
                {
                    typed |= !typing.of(tables, event.stack, at, data.len()).is_empty();
                }
            }
            typed
        })
    })
}

/// A trace of stores that the code at each of the addresses made.
fn write_stores(program: &Path, trace: &Path) -> Result<(), WriteError> {
    let mut writer = TraceWriter::create(trace, &header())?;
    let module = writer.module(&module(program))?;
    let file = writer.file(&PmFile {
        path: "/pool".to_owned(),
        size: 4096,
        created: true,
        kind: PmFileKind::File,
    })?;
    let process = ProcessId(0);
    let start = EventKind::ProcessStart {
        process,
        pid: 1,
        parent: None,
        executable: "program",
    };
    for event in [start, EventKind::ThreadStart { process, os_id: 1 }] {
        writer.event(ThreadId(0), StackId(0), &event)?;
    }
    for address in ADDRESSES {
        let frame = |address| Frame {
            module: Some(module),
            address,
        };
        let stack = writer.stack(&[frame(address), frame(ADDRESSES.end - 0x20)])?;
        let store = EventKind::Store {
            at: PmAddress { file, offset: 64 },
            data: &[0; 8],
            flags: StoreFlags::default(),
        };
        writer.event(ThreadId(0), stack, &store)?;
    }
    writer.finish(ProgramEnd::default())
}

/// Whether every seed is accepted: inputs that are refused at the first byte find nothing.
pub fn seeds_are_good() -> Result<(), String> {
    for target in ALL {
        let seeds = (target.seeds)();
        if seeds.is_empty() {
            return Err(format!("`{}` has no seeds", target.name));
        }
        if let Some(number) = seeds.iter().position(|seed| !(target.run)(seed)) {
            return Err(format!("seed {number} of `{}` is refused", target.name));
        }
    }
    Ok(())
}
