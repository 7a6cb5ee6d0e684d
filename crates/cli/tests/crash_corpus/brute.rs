//! The brute-force simulator: every image that a crash may leave, at every event of a trace, straight from the definitions of
//! the persistency model (design, "The persistency model"), each tried with a plain process.
//!
//! Shares nothing with the crash tester but the reader of traces: no crash points, no line state machine, no hash of contents, no
//! sandbox. It keeps all stores ever made, says of each how far it is guaranteed, and builds each image from the start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crashproof_trace::{EventKind, FileId, FlushKind, Item, TraceReader};

use crate::case::Case;
use crate::support;

const LINE: u64 = 64;
const WORD: u64 = 8;
/// More images than this are not tried: such a case has to say so.
const MAX_IMAGES: usize = 2_000;
/// More combinations at one event than this are not enumerated.
const MAX_COMBINATIONS: usize = 50_000;
/// A recovery takes milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Distinct images of the run's crashes.
    pub images: usize,
    pub failed: usize,
    /// What recovery said to the first one that failed.
    pub message: String,
    /// The program output something, so that one image may stand for several moments.
    pub has_output: bool,
}

/// Files by name, and what had been output.
type Image = (BTreeMap<String, Vec<u8>>, Vec<u8>);

/// Crashes `run` of the program in every way, and also its recovery if the case asks for that.
pub(crate) fn test(case: &Case, program: &Path) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
    let file = folder.path().join("pm");
    if case.directives.setup {
        native(Command::new(program).arg("setup").arg(&file))?.map_err(|error| format!("setup: {error}"))?;
    }
    let model = Model::of(case);
    let images = record_and_enumerate(folder.path(), program, "run", &file, model)?;
    let mut outcome = Outcome {
        images: images.len(),
        has_output: images.iter().any(|(_, output)| !output.is_empty()),
        ..Outcome::default()
    };
    for image in &images {
        let recovers = try_image(case, program, folder.path(), &file, image)?;
        outcome.add(recovers.clone());
        if recovers.is_ok() && case.directives.depth() > 1 {
            place(folder.path(), image)?;
            for image in &record_and_enumerate(folder.path(), program, "recover", &file, model)? {
                outcome.add(try_image(case, program, folder.path(), &file, image)?);
            }
        }
    }
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, recovers: Result<(), String>) {
        if let Err(message) = recovers {
            if self.failed == 0 {
                self.message = message;
            }
            self.failed += 1;
        }
    }
}

fn record_and_enumerate(
    folder: &Path,
    program: &Path,
    mode: &str,
    file: &Path,
    model: Model,
) -> Result<BTreeSet<Image>, String> {
    let trace = folder.join("trace");
    let mut command = support::crashproof();
    command.args(["record", "--client-requests", "off", "-o"]).arg(&trace);
    command.arg("--").arg(program).arg(mode).arg(file);
    native(&mut command)?.map_err(|error| format!("recording {mode}: {error}"))?;
    enumerate(&trace, model)
}

/// Recovery on a copy of the image.
fn try_image(
    case: &Case,
    program: &Path,
    folder: &Path,
    file: &Path,
    image: &Image,
) -> Result<Result<(), String>, String> {
    place(folder, image)?;
    let output = folder.join("output");
    std::fs::write(&output, &image.1).map_err(|error| format!("{}: {error}", output.display()))?;
    let modes: &[&str] = if case.directives.check {
        &["recover", "check"]
    } else {
        &["recover"]
    };
    for mode in modes {
        let mut command = Command::new(program);
        let result = native(command.arg(mode).arg(file).env("CRASHPROOF_OUTPUT", &output))?;
        if result.is_err() {
            return Ok(result);
        }
    }
    Ok(Ok(()))
}

fn place(folder: &Path, image: &Image) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    for (name, content) in &image.0 {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The inner error is the program's own failure.
fn native(command: &mut Command) -> Result<Result<(), String>, String> {
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| format!("{command:?}: {error}"))?;
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if started.elapsed() < TIME_LIMIT => std::thread::sleep(Duration::from_micros(200)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Err("it hangs".into()));
            }
            Err(error) => return Err(format!("{command:?}: {error}")),
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(Ok(()))
    } else {
        Ok(Err(format!("{}: {}", output.status, support::text(&output.stderr))))
    }
}

/// At most a word of a line, as it persists: at once.
struct Store {
    file: usize,
    offset: u64,
    data: Vec<u8>,
    thread: u32,
    nontemporal: bool,
    guaranteed: bool,
}

impl Store {
    fn line(&self) -> (usize, u64) {
        (self.file, self.offset / LINE)
    }
}

/// What the case's options say of the hardware.
#[derive(Clone, Copy, Default)]
struct Model {
    /// Caches survive: only non-temporal stores are uncertain.
    eadr: bool,
    /// Nothing keeps the stores within a line in order.
    reorder_in_line: bool,
}

impl Model {
    fn of(case: &Case) -> Model {
        let has = |word: &str| case.directives.crash.iter().any(|option| option == word);
        Model {
            eadr: has("eadr"),
            reorder_in_line: has("--reorder-in-line"),
        }
    }
}

/// What is done to a file, in order.
enum Change {
    Store(Store),
    Resize {
        file: usize,
        size: usize,
    },
    /// `None`: unlinked.
    Rename {
        file: usize,
        name: Option<String>,
    },
}

/// A file as it is when it is first mapped.
#[derive(Clone)]
struct InitialFile {
    name: String,
    content: Vec<u8>,
    /// The program made it: it is not there before it is mapped.
    created: bool,
}

#[derive(Default)]
struct Machine {
    model: Model,
    files: Vec<InitialFile>,
    changes: Vec<Change>,
    /// Flushed and not yet fenced: the thread, the line, and how many changes there were.
    pending: Vec<(u32, (usize, u64), usize)>,
    output: Vec<u8>,
}

fn enumerate(trace: &Path, model: Model) -> Result<BTreeSet<Image>, String> {
    let mut images = BTreeSet::new();
    let mut machine = Machine {
        model,
        files: initial_files(trace)?,
        ..Machine::default()
    };
    let initial = machine.image(&BTreeSet::new());
    let mut reader = TraceReader::open(trace).map_err(|error| error.to_string())?;
    while let Some(item) = reader.next().map_err(|error| error.to_string())? {
        if let Item::Event(event) = item {
            machine.step(event.thread.0, event.kind);
            if !machine.changes.is_empty() {
                machine.add_images(&mut images)?;
            }
        }
    }
    // Before the program makes its first file nothing is crashed; recovery runs on that in any case.
    let made = |file: usize| machine.files[file].created;
    if !matches!(machine.changes.first(), Some(Change::Rename { file, .. }) if made(*file)) {
        images.insert(initial);
    }
    let incomplete = reader.incomplete();
    if !incomplete.is_empty() {
        return Err(format!("the trace is incomplete: {incomplete:?}"));
    }
    Ok(images)
}

/// All PM files, as they are when they are first mapped, by their ids.
fn initial_files(trace: &Path) -> Result<Vec<InitialFile>, String> {
    let mut reader = TraceReader::open(trace).map_err(|error| error.to_string())?;
    let mut files: Vec<InitialFile> = Vec::new();
    while let Some((item, tables)) = reader.next_with_tables().map_err(|error| error.to_string())? {
        while let Some(file) = tables.file(FileId(files.len() as u32)) {
            files.push(InitialFile {
                name: file_name(&file.path),
                content: vec![0; file.size as usize],
                created: file.created,
            });
        }
        if let Item::Initial { at, data } = item {
            let start = at.offset as usize;
            files[at.file.index()].content[start..start + data.len()].copy_from_slice(data);
        }
    }
    Ok(files)
}

/// All files of a case lie in one folder.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

impl Machine {
    fn step(&mut self, thread: u32, event: EventKind<'_>) {
        match event {
            EventKind::Store { at, data, flags } => {
                if flags.locked {
                    self.fence(thread);
                }
                let guaranteed = self.model.eadr && !flags.nontemporal;
                self.store(at.file.index(), at.offset, data, thread, flags.nontemporal, guaranteed);
            }
            EventKind::FileWrite { at, data } => self.store(at.file.index(), at.offset, data, thread, false, true),
            EventKind::Flush { at, kind } => {
                let line = (at.file.index(), at.offset / LINE);
                match kind {
                    FlushKind::Clwb | FlushKind::Clflushopt => self.pending.push((thread, line, self.changes.len())),
                    FlushKind::Clflush => self.guarantee(line, self.changes.len()),
                }
            }
            EventKind::Fence { .. } => self.fence(thread),
            EventKind::Sync { file, offset, len } => {
                for line in offset / LINE..(offset + len).div_ceil(LINE) {
                    self.guarantee((file.index(), line), self.changes.len());
                }
            }
            EventKind::Resize { file, size } => self.changes.push(Change::Resize {
                file: file.index(),
                size: size as usize,
            }),
            EventKind::Output { data, .. } => self.output.extend_from_slice(data),
            EventKind::Rename { file, path } => self.changes.push(Change::Rename {
                file: file.index(),
                name: path.map(file_name),
            }),
            EventKind::Map { file, .. } => {
                let file = file.index();
                let mapped = |change: &Change| matches!(change, Change::Rename { file: other, .. } if *other == file);
                if self.files[file].created && !self.changes.iter().any(mapped) {
                    let name = Some(self.files[file].name.clone());
                    self.changes.push(Change::Rename { file, name });
                }
            }
            EventKind::Unmap { .. }
            | EventKind::Call { .. }
            | EventKind::Return(_)
            | EventKind::Annotation(_)
            | EventKind::Request { .. }
            | EventKind::ThreadStart { .. }
            | EventKind::ProcessStart { .. }
            | EventKind::ProcessEnd { .. }
            | EventKind::Quiet
            | EventKind::Access { .. }
            | EventKind::Path { .. } => {}
        }
    }

    fn store(&mut self, file: usize, offset: u64, data: &[u8], thread: u32, nontemporal: bool, guaranteed: bool) {
        let mut at = 0;
        while at < data.len() {
            let start = offset + at as u64;
            let end = data.len().min(at + (WORD - start % WORD) as usize);
            self.changes.push(Change::Store(Store {
                file,
                offset: start,
                data: data[at..end].to_vec(),
                thread,
                nontemporal,
                guaranteed,
            }));
            at = end;
        }
    }

    /// The cached stores to the line among the first changes are persistent.
    fn guarantee(&mut self, line: (usize, u64), first: usize) {
        for change in &mut self.changes[..first] {
            if let Change::Store(store) = change
                && store.line() == line
                && !store.nontemporal
            {
                store.guaranteed = true;
            }
        }
    }

    fn fence(&mut self, thread: u32) {
        let (flushed, pending) = self.pending.drain(..).partition(|&(by, ..)| by == thread);
        self.pending = pending;
        let flushed: Vec<_> = flushed;
        for (_, line, first) in flushed {
            self.guarantee(line, first);
        }
        for change in &mut self.changes {
            if let Change::Store(store) = change
                && store.nontemporal
                && store.thread == thread
            {
                store.guaranteed = true;
            }
        }
    }

    /// What a crash now may leave.
    fn add_images(&self, images: &mut BTreeSet<Image>) -> Result<(), String> {
        // For each line the sets of its uncertain stores that may have persisted.
        let mut lines: BTreeMap<(usize, u64), Vec<BTreeSet<usize>>> = BTreeMap::new();
        for (index, change) in self.changes.iter().enumerate() {
            let Change::Store(store) = change else { continue };
            if store.guaranteed {
                continue;
            }
            let choices = lines.entry(store.line()).or_insert_with(|| vec![BTreeSet::new()]);
            let cached_before = |choice: &BTreeSet<usize>| {
                let earlier = (0..index).filter(|&i| self.is_uncertain_cached(i, store.line()));
                earlier.into_iter().all(|i| choice.contains(&i))
            };
            let free = store.nontemporal || self.model.reorder_in_line;
            let more: Vec<_> = choices
                .iter()
                .filter(|choice| free || cached_before(choice))
                .map(|choice| choice.iter().copied().chain([index]).collect())
                .collect();
            choices.extend(more);
        }
        let combinations = lines
            .values()
            .try_fold(1usize, |n, choices| n.checked_mul(choices.len()));
        if combinations.is_none_or(|n| n > MAX_COMBINATIONS) {
            return Err("too many states: mark the case with `// brute-force: no, it has too many states`".into());
        }
        let mut states = vec![BTreeSet::new()];
        for choices in lines.values() {
            let union = |state: &BTreeSet<usize>, choice: &BTreeSet<usize>| state.union(choice).copied().collect();
            states = states
                .iter()
                .flat_map(|state| choices.iter().map(move |choice| union(state, choice)))
                .collect();
        }
        images.extend(states.iter().map(|persisted| self.image(persisted)));
        if images.len() > MAX_IMAGES {
            return Err(format!(
                "more than {MAX_IMAGES} images: mark the case with `// brute-force: no, it has too many states`"
            ));
        }
        Ok(())
    }

    fn is_uncertain_cached(&self, index: usize, line: (usize, u64)) -> bool {
        matches!(&self.changes[index], Change::Store(s) if s.line() == line && !s.nontemporal && !s.guaranteed)
    }

    fn image(&self, persisted: &BTreeSet<usize>) -> Image {
        let mut files = self.files.clone();
        let name = |file: &InitialFile| (!file.created).then(|| file.name.clone());
        let mut names: Vec<Option<String>> = files.iter().map(name).collect();
        for (index, change) in self.changes.iter().enumerate() {
            match change {
                Change::Store(store) if store.guaranteed || persisted.contains(&index) => {
                    let content = &mut files[store.file].content;
                    let start = (store.offset as usize).min(content.len());
                    let end = (start + store.data.len()).min(content.len());
                    content[start..end].copy_from_slice(&store.data[..end - start]);
                }
                Change::Store(_) => {}
                Change::Resize { file, size } => files[*file].content.resize(*size, 0),
                // What had the name is gone at the same moment.
                Change::Rename { file, name } => {
                    names
                        .iter_mut()
                        .filter(|other| *other == name)
                        .for_each(|other| *other = None);
                    names[*file] = name.clone();
                }
            }
        }
        let contents = files.into_iter().map(|file| file.content);
        let there = names
            .into_iter()
            .zip(contents)
            .filter_map(|(name, content)| Some((name?, content)));
        (there.collect(), self.output.clone())
    }
}
