//! A litmus file, cut out of a trace.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use crashproof_check::CheckOptions;
use crashproof_finding::{Finding, Kind};
use crashproof_trace::symbols::Symbolizer;
use crashproof_trace::{Event, EventKind, FenceKind, FileId, FlushKind, Item, PmAddress, StackId, Tables, TraceReader};

use super::Window;

/// Events shown on either side of the store that a finding is about.
const AROUND: u64 = 24;
/// Litmus files are for reading.
const MOST: u64 = 100_000;
/// Distance of two PM files in the address space of a litmus file.
const FILE_SHIFT: u32 = 44;

type Error = Box<dyn std::error::Error>;

pub(super) fn cut(trace: &Path, window: Option<&Window>) -> Result<String, Error> {
    let (range, required) = match window {
        Some(Window(range)) => (range.clone(), None),
        None => {
            let seq = store_of_first_finding(trace)?;
            (seq.saturating_sub(AROUND)..seq + AROUND, Some(seq))
        }
    };
    if range.end - range.start > MOST {
        return Err(format!(
            "{} events are too many for a litmus file: at most {MOST}",
            range.end - range.start
        )
        .into());
    }
    let mut text = Text {
        times: times(trace)?,
        ..Text::default()
    };
    let mut reader = TraceReader::open(trace)?;
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item
            && range.contains(&event.seq)
        {
            text.event(&event, tables, required)?;
        }
    }
    if text.body.is_empty() {
        return Err(format!(
            "events {}..{} of {} hold no store, flush or fence; `crashproof dump` shows the numbers",
            range.start,
            range.end,
            trace.display()
        )
        .into());
    }
    let mut out = format!("# events {}..{} of {}\n", range.start, range.end, trace.display());
    for (index, path) in text.files.iter().enumerate() {
        let _ = writeln!(out, "# {:#x}: {path}", (index as u64) << FILE_SHIFT);
    }
    out.push_str(&text.body);
    match text.required {
        Some(name) => {
            let _ = writeln!(out, "require durable {name}");
        }
        None => out.push_str("# add what is required: require durable NAME, require NAME before NAME\n"),
    }
    Ok(out)
}

/// How often each place of the program made an event: what is added next to it runs as often.
fn times(trace: &Path) -> Result<HashMap<StackId, u32>, Error> {
    let mut reader = TraceReader::open(trace)?;
    let mut times: HashMap<StackId, u32> = HashMap::new();
    while let Some((item, _)) = reader.next_with_tables()? {
        if let Item::Event(event) = item
            && matches!(
                event.kind,
                EventKind::Store { .. } | EventKind::Flush { .. } | EventKind::Fence { .. }
            )
        {
            let count = times.entry(event.stack).or_default();
            *count = count.saturating_add(1);
        }
    }
    Ok(times)
}

/// The last store to where the first finding about durability is.
fn store_of_first_finding(trace: &Path) -> Result<u64, Error> {
    let report = crashproof_check::check(&mut TraceReader::open(trace)?, &CheckOptions::default(), |_, _| ())?;
    let about_durability = |finding: &&Finding| matches!(finding.kind, Kind::MissingFlush | Kind::MissingFence);
    let place = report
        .findings
        .iter()
        .filter(about_durability)
        .find_map(|finding| finding.address.as_ref());
    let place = place
        .ok_or("crashproof check finds no missing flush or fence in it; say with --window N..M what to cut out")?;
    let mut reader = TraceReader::open(trace)?;
    let mut last = None;
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item
            && let EventKind::Store { at, data, .. } = event.kind
            && tables.file(at.file).is_some_and(|file| file.path == place.file)
            && at.offset < place.offset + place.length
            && place.offset < at.offset + data.len() as u64
        {
            last = Some(event.seq);
        }
    }
    last.ok_or_else(|| {
        "the store of the first finding is not in the trace; say with --window N..M what to cut out".into()
    })
}

#[derive(Default)]
struct Text {
    body: String,
    symbolizer: Symbolizer,
    names: HashMap<StackId, String>,
    used: HashSet<String>,
    known_files: Vec<FileId>,
    files: Vec<String>,
    required: Option<String>,
    times: HashMap<StackId, u32>,
}

impl Text {
    fn event(&mut self, event: &Event, tables: &Tables, required: Option<u64>) -> Result<(), std::fmt::Error> {
        let thread = event.thread.0 + 1;
        let times = match self.times.get(&event.stack) {
            Some(&times) if times > 1 => format!(" x{times}"),
            _ => String::new(),
        };
        match &event.kind {
            EventKind::Store { at, data, flags } => {
                let name = self.name(event.stack, tables);
                if required == Some(event.seq) {
                    self.required = Some(name.clone());
                }
                let word = match (flags.locked, flags.nontemporal) {
                    (true, _) => "rmw",
                    (_, true) => "ntstore",
                    _ => "store",
                };
                let at = self.address(*at, tables);
                writeln!(self.body, "T{thread}: {word} {name} {at:#x} {}{times}", data.len())
            }
            EventKind::Flush { at, kind } => {
                let word = if *kind == FlushKind::Clflush {
                    "clflush"
                } else {
                    "flush"
                };
                let at = self.address(*at, tables);
                writeln!(self.body, "T{thread}: {word} {at:#x}{times}")
            }
            EventKind::Fence {
                kind: FenceKind::Mfence,
            } => writeln!(self.body, "T{thread}: mfence{times}"),
            EventKind::Fence { .. } => writeln!(self.body, "T{thread}: fence{times}"),
            EventKind::Sync { file, offset, len } => {
                let at = PmAddress {
                    file: *file,
                    offset: *offset,
                };
                let at = self.address(at, tables);
                writeln!(
                    self.body,
                    "# here {len} bytes from {at:#x} were synchronised (msync, fsync): a litmus file cannot say it"
                )
            }
            _ => Ok(()),
        }
    }

    fn address(&mut self, at: PmAddress, tables: &Tables) -> u64 {
        let index = self
            .known_files
            .iter()
            .position(|&file| file == at.file)
            .unwrap_or_else(|| {
                self.known_files.push(at.file);
                let path = tables.file(at.file).map_or("a PM file", |file| &file.path);
                self.files.push(path.escape_debug().to_string());
                self.known_files.len() - 1
            });
        ((index as u64) << FILE_SHIFT) + at.offset
    }

    /// Function and line; numbered if it was there before.
    fn name(&mut self, stack: StackId, tables: &Tables) -> String {
        let symbolizer = &mut self.symbolizer;
        let base = self.names.entry(stack).or_insert_with(|| {
            let frames = tables.frames(stack).iter().enumerate();
            let mut sources = frames.flat_map(|(depth, frame)| {
                let module = frame.module.and_then(|module| tables.module(module));
                module
                    .map(|module| symbolizer.frames(module, frame.address, depth > 0))
                    .unwrap_or_default()
            });
            let source = sources.find(|source| source.line.is_some());
            let function = source
                .as_ref()
                .and_then(|source| source.function.as_deref())
                .unwrap_or("store");
            let clean = |c: char| if c.is_alphanumeric() || c == '_' { c } else { '_' };
            let function: String = function.chars().map(clean).collect();
            let first = if function.starts_with(|c: char| c.is_ascii_digit()) {
                "_"
            } else {
                ""
            };
            match source.and_then(|source| source.line) {
                Some(line) => format!("{first}{function}:{line}"),
                None => format!("{first}{function}"),
            }
        });
        let base = base.clone();
        let numbered = (1..).map(|n| if n == 1 { base.clone() } else { format!("{base}.{n}") });
        let mut numbered = numbered.skip_while(|name| self.used.contains(name));
        let name = numbered.next().unwrap_or(base.clone());
        self.used.insert(name.clone());
        name
    }
}
