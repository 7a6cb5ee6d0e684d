//! `crashproof dump`: the events of a trace as text, filtered.

use std::collections::HashMap;
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::str::FromStr;

use crashproof_finding::Frame;
use crashproof_stacks::{DeclaredHelpers, Stacks};
use crashproof_trace::{EventKind, FileId, Item, StackId, Tables, TraceReader, dump};

use super::Result;
use crate::arguments::DumpArguments;
use crate::exit::Exit;
use crate::terminal;

/// What `--kind` chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EventClass {
    Store,
    Flush,
    Fence,
    Map,
    Unmap,
    Resize,
    Write,
    Rename,
    Sync,
    Output,
    Call,
    /// What the program says by the macros of crashproof.h
    Annotation,
    Request,
    Thread,
    Process,
    /// Access by code built with `crashproof cc --deps`
    Access,
    /// Basic blocks that an operation executed
    Path,
    /// Content of a file when it was first mapped
    Initial,
}

/// Offsets in a PM file, as `FROM..TO` or `FROM+LENGTH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetRange(pub Range<u64>);

impl FromStr for OffsetRange {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let parsed = if let Some((from, to)) = text.split_once("..") {
            number(from).zip(number(to)).map(|(from, to)| from..to)
        } else if let Some((from, length)) = text.split_once('+') {
            number(from)
                .zip(number(length))
                .and_then(|(from, length)| Some(from..from.checked_add(length)?))
        } else {
            number(text).and_then(|from| Some(from..from.checked_add(1)?))
        };
        match parsed {
            Some(range) if !range.is_empty() => Ok(OffsetRange(range)),
            _ => Err("not a range of offsets; write it as 0x40..0x80, 64+64 or 0x40".to_owned()),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(crate) fn run(arguments: &DumpArguments) -> Result {
    let helpers = arguments.project.load()?.declared_helpers();
    let reader = TraceReader::open(&arguments.trace)?;
    let stdout = std::io::stdout().lock();
    match dump_to(BufWriter::new(stdout), reader, arguments, helpers) {
        // `crashproof dump T | head` has what it wants.
        Err(DumpError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Clean),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(Exit::Clean),
    }
}

#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error(transparent)]
    Read(#[from] crashproof_trace::ReadError),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] std::io::Error),
}

fn dump_to(
    mut out: impl Write,
    mut reader: TraceReader,
    arguments: &DumpArguments,
    helpers: DeclaredHelpers,
) -> std::result::Result<(), DumpError> {
    let mut paths = CallPaths {
        stacks: Stacks::new(helpers),
        known: HashMap::new(),
    };
    while let Some((item, tables)) = reader.next_with_tables()? {
        if past_the_end(&item, arguments) {
            return Ok(out.flush()?);
        }
        if !matches(&item, tables, arguments) {
            continue;
        }
        let frames = match &item {
            Item::Event(event) if arguments.stacks || arguments.function.is_some() => paths.get(event.stack, tables),
            _ => &[],
        };
        if let Some(function) = &arguments.function
            && !frames.iter().any(|frame| frame.function.as_deref() == Some(function))
        {
            continue;
        }
        writeln!(out, "{}", dump::describe(&item, tables))?;
        if arguments.stacks {
            for frame in frames {
                writeln!(out, "    {}", frame.text)?;
            }
        }
    }
    out.flush()?;
    for incomplete in reader.incomplete() {
        terminal::warning(&format_args!("the trace is incomplete: {}", incomplete.detail));
    }
    Ok(())
}

fn past_the_end(item: &Item<'_>, arguments: &DumpArguments) -> bool {
    matches!((item, arguments.to), (Item::Event(event), Some(to)) if event.seq > to)
}

/// Every filter but the one for functions.
fn matches(item: &Item<'_>, tables: &Tables, arguments: &DumpArguments) -> bool {
    let (class, place) = classify(item);
    let event_passes = match item {
        Item::Event(event) => {
            arguments.thread.is_none_or(|thread| event.thread.0 == thread)
                && arguments.from.is_none_or(|from| event.seq >= from)
        }
        Item::Initial { .. } => arguments.thread.is_none() && arguments.from.is_none() && arguments.function.is_none(),
    };
    event_passes
        && (arguments.kind.is_empty() || arguments.kind.contains(&class))
        && arguments.file.as_ref().is_none_or(|text| {
            place
                .as_ref()
                .and_then(|place| tables.file(place.file))
                .is_some_and(|file| file.path.contains(text))
        })
        && arguments.range.as_ref().is_none_or(|OffsetRange(range)| {
            place
                .as_ref()
                .is_some_and(|place| place.start < range.end && range.start < place.end)
        })
}

/// The part of a PM file that an item is about.
struct Place {
    file: FileId,
    start: u64,
    end: u64,
}

const LINE: u64 = 64;

fn classify(item: &Item<'_>) -> (EventClass, Option<Place>) {
    let part = |file, start: u64, len: u64| {
        Some(Place {
            file,
            start,
            end: start.saturating_add(len),
        })
    };
    let event = match item {
        Item::Initial { at, data } => return (EventClass::Initial, part(at.file, at.offset, data.len() as u64)),
        Item::Event(event) => event,
    };
    match &event.kind {
        EventKind::Store { at, data, .. } => (EventClass::Store, part(at.file, at.offset, data.len() as u64)),
        EventKind::Flush { at, .. } => (EventClass::Flush, part(at.file, at.offset & !(LINE - 1), LINE)),
        EventKind::Fence { .. } => (EventClass::Fence, None),
        EventKind::Map { file, offset, len, .. } => (EventClass::Map, part(*file, *offset, *len)),
        EventKind::Unmap { file, offset, len } => (EventClass::Unmap, part(*file, *offset, *len)),
        EventKind::Resize { file, .. } => (EventClass::Resize, part(*file, 0, u64::MAX)),
        EventKind::FileWrite { at, data } => (EventClass::Write, part(at.file, at.offset, data.len() as u64)),
        EventKind::Rename { file, .. } => (EventClass::Rename, part(*file, 0, u64::MAX)),
        EventKind::Sync { file, offset, len } => (EventClass::Sync, part(*file, *offset, *len)),
        EventKind::Output { .. } => (EventClass::Output, None),
        EventKind::Call { .. } | EventKind::Return(_) => (EventClass::Call, None),
        EventKind::Annotation(_) => (EventClass::Annotation, None),
        EventKind::Request { range, .. } => (
            EventClass::Request,
            range.and_then(|(at, len)| part(at.file, at.offset, len)),
        ),
        EventKind::ThreadStart { .. } => (EventClass::Thread, None),
        EventKind::ProcessStart { .. } | EventKind::ProcessEnd { .. } | EventKind::Quiet => (EventClass::Process, None),
        EventKind::Access { at, len, .. } => (EventClass::Access, part(at.file, at.offset, *len as u64)),
        EventKind::Path { .. } => (EventClass::Path, None),
    }
}

/// The call paths that are shown, each made once.
struct CallPaths {
    stacks: Stacks,
    known: HashMap<StackId, Vec<ShownFrame>>,
}

struct ShownFrame {
    function: Option<String>,
    text: String,
}

impl CallPaths {
    fn get(&mut self, stack: StackId, tables: &Tables) -> &[ShownFrame] {
        let CallPaths { stacks, known } = self;
        known.entry(stack).or_insert_with(|| {
            let frames = stacks.symbolize(stack, tables).frames;
            frames.into_iter().map(show).collect()
        })
    }
}

fn show(frame: Frame) -> ShownFrame {
    let function = frame.function.as_deref();
    let place = match frame.module_name() {
        Some(name) => format!("{name}+{:#x}", frame.address),
        None => format!("{:#x}", frame.address),
    };
    let mut text = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{} at {file}:{line}", function.unwrap_or("??")),
        _ if function.is_some() || frame.module.is_some() => format!("{} in {place}", function.unwrap_or("??")),
        _ => place,
    };
    if frame.helper {
        text.push_str(" (helper)");
    }
    ShownFrame {
        text: text.escape_debug().to_string(),
        function: frame.function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let parse = |text: &str| OffsetRange::from_str(text).map(|range| range.0);
        assert_eq!(parse("0x40..0x80"), Ok(64..128));
        assert_eq!(parse("64+8"), Ok(64..72));
        assert_eq!(parse("0x10"), Ok(16..17));
        for bad in [
            "",
            "8..8",
            "9..8",
            "x..y",
            "1+",
            "-1",
            "0xffffffffffffffff+2",
            "18446744073709551615",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
