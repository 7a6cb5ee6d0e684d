//! From a store log to a trace.
//!
//! What the log does not say: which thread did something (all is of one), whether a fence is a locked instruction (all are taken for
//! such, so that none is reported as redundant), where flushes and fences are in the code, whether a store is non-temporal (pmemcheck
//! has a flush after it then), when a file is unmapped, what it held before (zeros, or [`ImportOptions::initial`]).

use std::io::BufRead;
use std::path::{Path, PathBuf};

use crashproof_trace::{
    Annotation, EventKind, FenceKind, FileId, FlushKind, Frame, Header, Incomplete, IncompleteReason, Module, Options,
    PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd, StackId, StoreFlags, ThreadId, TraceWriter, WriteError,
};
use rustc_hash::FxHashMap;

use super::record::{FrameText, Record};
use crate::Places;

const LINE: u64 = 64;
/// Of a module that no frame names.
const UNKNOWN_PROGRAM: &str = "./unknown";
const LIBC: &str = "/libc.so.6";

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: record {record}: {what}", path.display())]
    Syntax {
        path: PathBuf,
        line: u64,
        /// Counted from 1 in the line.
        record: u64,
        what: String,
    },
    #[error(
        "{} has no store log; write one with `valgrind --tool=pmemcheck --log-stores=yes --log-stores-stacktraces=yes \
         --log-stores-stacktraces-depth=16 --log-file=FILE PROGRAM`",
        path.display()
    )]
    NoLog { path: PathBuf },
    #[error("{} is given for {file}, which the log does not register{}", copy.display(), known(registered))]
    NotRegistered {
        file: String,
        copy: PathBuf,
        registered: Vec<String>,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
}

fn known(registered: &[String]) -> String {
    match registered {
        [] => "; it registers no file at all".to_owned(),
        files => format!("; it registers {}", files.join(", ")),
    }
}

#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// For files of the log: a copy of what each held before the program ran.
    pub initial: Vec<(String, PathBuf)>,
}

/// What there was to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub stores: u64,
    pub flushes: u64,
    pub fences: u64,
    /// To memory that no file is registered for; they are left out, and the trace says so.
    pub outside: u64,
}

/// Reads the log and writes the trace.
pub fn import(log: &Path, trace: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let unreadable = |source| ImportError::Read {
        path: log.to_owned(),
        source,
    };
    let preface = Preface::read(log).map_err(unreadable)?;
    if !preface.has_log {
        return Err(ImportError::NoLog { path: log.to_owned() });
    }
    for (file, copy) in &options.initial {
        if !preface.files.iter().any(|(path, _)| path == file) {
            return Err(ImportError::NotRegistered {
                file: file.clone(),
                copy: copy.clone(),
                registered: preface.files.iter().map(|(path, _)| path.clone()).collect(),
            });
        }
    }
    let mut importer = Importer::new(trace, &preface)?;
    importer.files(&preface, options)?;
    let mut line = 0;
    for_each_line(log, |text| {
        line += 1;
        for (record, text) in (1..).zip(records(text)) {
            let wrong = |what| ImportError::Syntax {
                path: log.to_owned(),
                line,
                record,
                what,
            };
            importer.record(Record::parse(text).map_err(wrong)?)?;
        }
        Ok(())
    })?;
    importer.finish()
}

/// Calls for each line, without its end. Bytes that are not UTF-8 are replaced.
fn for_each_line(path: &Path, mut each: impl FnMut(&str) -> Result<(), ImportError>) -> Result<(), ImportError> {
    let unreadable = |source| ImportError::Read {
        path: path.to_owned(),
        source,
    };
    let mut reader = std::io::BufReader::new(std::fs::File::open(path).map_err(unreadable)?);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            return Ok(());
        }
        each(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']))?;
    }
}

/// The records of a line of Valgrind's output; none if it is another message. A message may follow on the same line.
fn records(line: &str) -> impl Iterator<Item = &str> {
    let (_, text) = without_pid(line);
    let text = match text.find("==").map(|at| text.split_at(at)) {
        Some((before, after)) if without_pid(after).0.is_some() => before,
        _ => text,
    };
    let is_log = text.starts_with('|') || text == "START" || text.starts_with("START|");
    let text = if is_log { text } else { "" };
    text.split('|').map(str::trim).filter(|record| !record.is_empty())
}

/// The process and the rest of a line that begins with `==PID== `.
fn without_pid(line: &str) -> (Option<u32>, &str) {
    let parse = || {
        let (pid, rest) = line.strip_prefix("==")?.split_once("==")?;
        Some((pid.parse().ok()?, rest.strip_prefix(' ').unwrap_or(rest)))
    };
    match parse() {
        Some((pid, rest)) => (Some(pid), rest),
        None => (None, line),
    }
}

/// What a trace has at its beginning and a log has anywhere.
#[derive(Default)]
struct Preface {
    has_log: bool,
    pid: u32,
    command: Vec<String>,
    /// With the largest size that is registered.
    files: Vec<(String, u64)>,
}

impl Preface {
    fn read(log: &Path) -> std::io::Result<Preface> {
        let mut preface = Preface::default();
        let read = for_each_line(log, |line| {
            let (pid, rest) = without_pid(line);
            preface.pid = pid.unwrap_or(preface.pid);
            if let Some(command) = rest.strip_prefix("Command: ") {
                preface.command = command.split_whitespace().map(str::to_owned).collect();
            }
            for record in records(line) {
                preface.has_log |= record == "START";
                // What is wrong with the others is told when they are imported.
                if let Ok(Record::RegisterFile { path, size, offset, .. }) = Record::parse(record) {
                    let end = offset.saturating_add(size);
                    match preface.files.iter_mut().find(|(known, _)| known == path) {
                        Some((_, size)) => *size = end.max(*size),
                        None => preface.files.push((path.to_owned(), end)),
                    }
                }
            }
            Ok(())
        });
        match read {
            Err(ImportError::Read { source, .. }) => Err(source),
            _ => Ok(preface),
        }
    }
}

struct Importer {
    writer: TraceWriter,
    program: String,
    files: FxHashMap<String, FileId>,
    places: Places,
    imported: Imported,
    stopped: bool,
}

const THREAD: ThreadId = ThreadId(0);
const PROCESS: ProcessId = ProcessId(0);
const NO_STACK: StackId = StackId(0);

impl Importer {
    fn new(trace: &Path, preface: &Preface) -> Result<Importer, ImportError> {
        let header = Header {
            command: preface.command.clone(),
            options: Options {
                client_requests: true,
                locked_rmw: true,
                pm: Vec::new(),
            },
        };
        let program = match preface.command.first() {
            Some(program) if program.contains('/') => program.clone(),
            Some(program) => format!("./{program}"),
            None => UNKNOWN_PROGRAM.to_owned(),
        };
        let mut writer = TraceWriter::replacing(trace, &header)?;
        let start = EventKind::ProcessStart {
            process: PROCESS,
            pid: preface.pid,
            parent: None,
            executable: &program,
        };
        writer.event(THREAD, NO_STACK, &start)?;
        let thread = EventKind::ThreadStart {
            process: PROCESS,
            os_id: preface.pid,
        };
        writer.event(THREAD, NO_STACK, &thread)?;
        Ok(Importer {
            writer,
            program,
            files: FxHashMap::default(),
            places: Places::default(),
            imported: Imported::default(),
            stopped: false,
        })
    }

    fn files(&mut self, preface: &Preface, options: &ImportOptions) -> Result<(), ImportError> {
        for (path, size) in &preface.files {
            let file = self.writer.file(&PmFile {
                path: path.clone(),
                size: *size,
                created: false,
                kind: PmFileKind::File,
            })?;
            self.files.insert(path.clone(), file);
            let Some((_, copy)) = options.initial.iter().find(|(file, _)| file == path) else {
                continue;
            };
            let mut content = std::fs::read(copy).map_err(|source| ImportError::Read {
                path: copy.clone(),
                source,
            })?;
            content.truncate(usize::try_from(*size).unwrap_or(usize::MAX));
            self.writer.initial(PmAddress { file, offset: 0 }, &content)?;
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>) -> Result<(), ImportError> {
        match record {
            Record::Start => {}
            Record::Stop => self.stopped = true,
            Record::Store {
                address,
                value,
                size,
                frames,
            } => {
                let stack = self.stack(&frames)?;
                let data = &value.to_le_bytes()[..size as usize];
                match self.places.at(address) {
                    Some((at, left)) if left >= size => {
                        self.imported.stores += 1;
                        let flags = StoreFlags::default();
                        self.event(stack, &EventKind::Store { at, data, flags })?;
                    }
                    _ => self.imported.outside += 1,
                }
            }
            Record::Flush { address, size } => {
                self.imported.flushes += 1;
                let end = address.saturating_add(size.max(1));
                let mut line = address / LINE * LINE;
                while line < end {
                    if let Some((at, _)) = self.places.at(line) {
                        let kind = FlushKind::Clwb;
                        self.event(NO_STACK, &EventKind::Flush { at, kind })?;
                    }
                    line = line.saturating_add(LINE);
                }
            }
            Record::Fence => {
                self.imported.fences += 1;
                let kind = FenceKind::Locked;
                self.event(NO_STACK, &EventKind::Fence { kind })?;
            }
            Record::DeepSync { address, size } => {
                if let Some((at, left)) = self.places.at(address) {
                    let (file, offset, len) = (at.file, at.offset, size.min(left));
                    self.event(NO_STACK, &EventKind::Sync { file, offset, len })?;
                }
            }
            Record::RegisterFile {
                path,
                address,
                size,
                offset,
            } => {
                let Some(&file) = self.files.get(path) else {
                    return Ok(());
                };
                self.places.map(file, address, offset, size);
                let map = EventKind::Map {
                    file,
                    address,
                    offset,
                    len: size,
                    writable: true,
                };
                self.event(NO_STACK, &map)?;
            }
            Record::Marker(name) => {
                self.event(NO_STACK, &EventKind::Annotation(Annotation::Marker { name }))?;
            }
        }
        Ok(())
    }

    fn event(&mut self, stack: StackId, kind: &EventKind<'_>) -> Result<(), ImportError> {
        Ok(self.writer.event(THREAD, stack, kind)?)
    }

    fn stack(&mut self, frames: &[&str]) -> Result<StackId, ImportError> {
        let mut stack = Vec::new();
        for frame in frames {
            let frame = FrameText::parse(frame);
            // Valgrind names the file or the module, never both. Assembly is glibc's: the place to show is its caller.
            let assembly = frame.file.is_some_and(|file| file.ends_with(".S"));
            let unnamed = if assembly { LIBC } else { &self.program };
            let module = Module::of_place(frame.module.unwrap_or(unnamed), frame.function, frame.file, frame.line);
            stack.push(Frame {
                module: Some(self.writer.module(&module)?),
                address: frame.address,
            });
        }
        Ok(self.writer.stack(&stack)?)
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.event(
            NO_STACK,
            &EventKind::ProcessEnd {
                process: PROCESS,
                killed: false,
            },
        )?;
        if self.imported.outside > 0 {
            let detail = format!(
                "{} stores are to memory that no REGISTER_FILE of the log names",
                self.imported.outside
            );
            let reason = IncompleteReason::Unsupported;
            self.writer.incomplete(&Incomplete { reason, detail })?;
        }
        if !self.stopped {
            let detail = "the log ends without STOP: the program was killed, or the log was cut".to_owned();
            let reason = IncompleteReason::Truncated;
            self.writer.incomplete(&Incomplete { reason, detail })?;
        }
        self.writer.finish(ProgramEnd::default())?;
        Ok(self.imported)
    }
}
