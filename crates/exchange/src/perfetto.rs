//! A trace as a timeline in the JSON trace event format of Chrome, which Perfetto (ui.perfetto.dev) opens as well.
//!
//! A trace has an order and no clock: one microsecond of the timeline is one event. Each thread of the program is a thread there, with its
//! stores, flushes and fences, and its operations ([`crashproof.h`](../../../docs/annotations.md)) around them. Each cache line that is
//! stored to is a row of a process named after the PM file: *dirty* from a store to its flush, *pending* from there to the fence.

use std::collections::BTreeMap;
use std::io::Write;

use crashproof_finding::blamed;
use crashproof_model::{Awaits, Keep, LINE, Line, LineAddress, Model, Store};
use crashproof_replay::{Change, Cut, Observer, Replay, Steps, StorePiece};
use crashproof_stacks::{DeclaredHelpers, Stacks};
use crashproof_trace::{
    Annotation, CallReturn, Event, EventKind, FenceKind, FlushKind, Item, PmAddress, StackId, Tables, TraceReader,
};
use serde_json::{Value, json};

use crate::{ExportError, Lost};

/// Rows beyond are left out: nobody scrolls further.
const MAX_LINES: usize = 4096;
/// The process of the first PM file; those before are the program's.
const FILES: u64 = 1 << 20;

/// Writes all of the trace; says what of it the timeline has not.
pub fn export(reader: &mut TraceReader, helpers: DeclaredHelpers, out: &mut dyn Write) -> Result<Lost, ExportError> {
    let mut exporter = Exporter {
        out,
        first: true,
        stacks: Stacks::new(helpers),
        replay: Replay::new(Model::Px86),
        rows: Rows::default(),
        lost: Lost::default(),
    };
    exporter
        .out
        .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let mut end = 0;
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item {
            end = event.seq + 1;
            exporter.event(&event, tables)?;
        }
    }
    exporter.finish(end, reader.tables())?;
    exporter.out.write_all(b"\n]}\n")?;
    Ok(exporter.lost)
}

struct Exporter<'a> {
    out: &'a mut dyn Write,
    first: bool,
    stacks: Stacks,
    replay: Replay<Line<()>>,
    rows: Rows,
    lost: Lost,
}

/// The lines that are shown.
#[derive(Default)]
struct Rows {
    /// What each awaits, and since when; `None` if all of it is persistent.
    lines: BTreeMap<LineAddress, Option<(Awaits, u64)>>,
    /// Those that the event did something to.
    touched: Vec<LineAddress>,
    /// Pieces of stores to lines that are not shown.
    left_out: u64,
}

impl Observer for Rows {
    type Line = Line<()>;

    /// What is pending does not depend on stores that are overwritten.
    const KEEP: Keep = Keep::Last;

    fn tag(&mut self, _piece: &StorePiece) {}

    fn open(&mut self, at: LineAddress) -> Option<Line<()>> {
        if !self.lines.contains_key(&at) {
            if self.lines.len() >= MAX_LINES {
                self.left_out += 1;
                return None;
            }
            self.lines.insert(at, None);
        }
        Some(Line::default())
    }

    fn stored(&mut self, at: LineAddress, line: &mut Line<()>, store: Store<()>) {
        line.store(Model::Px86, Self::KEEP, store);
        self.touched.push(at);
    }

    fn flushed(&mut self, at: LineAddress, _line: &mut Line<()>) {
        self.touched.push(at);
    }

    fn change(&mut self, at: LineAddress, line: &mut Line<()>, change: Change) {
        change.apply(line, |_| {});
        self.touched.push(at);
    }
}

impl Exporter<'_> {
    fn write(&mut self, event: &Value) -> Result<(), ExportError> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut *self.out, event).map_err(std::io::Error::from)?;
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>, tables: &Tables) -> Result<(), ExportError> {
        match event.kind {
            EventKind::Store { at, data, flags } => {
                let name = match (flags.nontemporal, flags.locked) {
                    (true, _) => "nt-store",
                    (_, true) => "locked store",
                    _ => "store",
                };
                let data: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
                self.step(event, name, json!({ "at": place(at, tables), "data": data }), tables)?;
            }
            EventKind::Flush { at, kind } => {
                let name = match kind {
                    FlushKind::Clwb => "clwb",
                    FlushKind::Clflushopt => "clflushopt",
                    FlushKind::Clflush => "clflush",
                };
                self.step(event, name, json!({ "at": place(at, tables) }), tables)?;
            }
            EventKind::Fence { kind } => {
                let name = match kind {
                    FenceKind::Sfence => "sfence",
                    FenceKind::Mfence => "mfence",
                    FenceKind::Locked => "locked instruction",
                };
                self.step(event, name, json!({}), tables)?;
            }
            EventKind::Sync { file, offset, .. } => {
                let at = place(PmAddress { file, offset }, tables);
                self.step(event, "msync", json!({ "at": at }), tables)?;
            }
            EventKind::Annotation(annotation) => match annotation {
                Annotation::OperationBegin { name } => self.operation(event, "B", name, tables)?,
                Annotation::OperationEnd { name } => self.operation(event, "E", name, tables)?,
                _ => self.step(event, annotation.name(), json!({}), tables)?,
            },
            EventKind::Call { name, .. } | EventKind::Return(CallReturn { name, .. }) => {
                self.step(event, name, json!({}), tables)?
            }
            EventKind::Output { .. } => self.step(event, "output", json!({}), tables)?,
            EventKind::ThreadStart { process, os_id } => {
                let executable = tables
                    .process(process)
                    .map_or("", |process| process.executable.as_str());
                for (name, value) in [
                    ("process_name", executable),
                    ("thread_name", &format!("thread {os_id}")),
                ] {
                    self.write(&json!({
                        "ph": "M", "name": name, "pid": process.0, "tid": event.thread.0, "args": { "name": value },
                    }))?;
                }
            }
            EventKind::Map { .. } => self.step(event, "map", json!({}), tables)?,
            EventKind::Unmap { .. } => self.step(event, "unmap", json!({}), tables)?,
            EventKind::Resize { size, .. } => self.step(event, "resize", json!({ "size": size }), tables)?,
            EventKind::FileWrite { at, .. } => {
                self.step(event, "write to the file", json!({ "at": place(at, tables) }), tables)?
            }
            EventKind::Rename { .. } => self.step(event, "rename", json!({}), tables)?,
            EventKind::Request { request, .. } => {
                self.step(event, &format!("request {request:?}"), json!({}), tables)?
            }
            EventKind::ProcessStart { .. } | EventKind::ProcessEnd { .. } | EventKind::Quiet => {}
            // Beside the store that it is about; a path is of no moment.
            EventKind::Access { .. } | EventKind::Path { .. } => {}
        }
        self.replay(event)
    }

    /// What the event does to the lines.
    fn replay(&mut self, event: &Event<'_>) -> Result<(), ExportError> {
        self.replay.event(event);
        for step in Steps::of(&event.kind, Cut::LINES) {
            self.replay.step(event.thread.0, &step, &mut self.rows);
        }
        for _ in 0..std::mem::take(&mut self.rows.left_out) {
            self.lost.add("events of cache lines beyond the first 4096");
        }
        let mut touched = std::mem::take(&mut self.rows.touched);
        for at in touched.drain(..) {
            let awaits = self.replay.line(at).and_then(Line::awaits);
            self.set(at, awaits, event.seq)?;
        }
        self.rows.touched = touched;
        Ok(())
    }

    /// One microsecond of a thread.
    fn step(
        &mut self,
        event: &Event<'_>,
        name: &str,
        mut arguments: Value,
        tables: &Tables,
    ) -> Result<(), ExportError> {
        if let Some((function, source)) = self.source(event.stack, tables) {
            arguments["function"] = function.into();
            arguments["source"] = source.into();
        }
        let pid = tables.process_of(event.thread).map_or(0, |process| process.0);
        self.write(&json!({
            "ph": "X", "name": name, "pid": pid, "tid": event.thread.0, "ts": event.seq, "dur": 1, "args": arguments,
        }))
    }

    fn operation(&mut self, event: &Event<'_>, phase: &str, name: &str, tables: &Tables) -> Result<(), ExportError> {
        let pid = tables.process_of(event.thread).map_or(0, |process| process.0);
        self.write(&json!({ "ph": phase, "name": name, "pid": pid, "tid": event.thread.0, "ts": event.seq }))
    }

    fn source(&mut self, stack: StackId, tables: &Tables) -> Option<(String, String)> {
        let frames = self.stacks.symbolize(stack, tables).frames;
        let frame = blamed(&frames)?;
        let source = format!("{}:{}", frame.file.as_deref()?, frame.line?);
        Some((frame.function.clone().unwrap_or_default(), source))
    }

    /// The line awaits this from now on; what it awaited until now is written, if that was something else.
    fn set(&mut self, line: LineAddress, awaits: Option<Awaits>, now: u64) -> Result<(), ExportError> {
        let Some(state) = self.rows.lines.get_mut(&line) else {
            return Ok(());
        };
        if state.map(|(awaits, _)| awaits) == awaits {
            return Ok(());
        }
        let Some((old, since)) = std::mem::replace(state, awaits.map(|awaits| (awaits, now))) else {
            return Ok(());
        };
        let (name, colour) = match old {
            Awaits::Flush => ("dirty", "terrible"),
            Awaits::Fence => ("pending", "bad"),
        };
        self.write(&json!({
            "ph": "X", "name": name, "pid": FILES + u64::from(line.file), "tid": line.line, "ts": since, "dur": now - since,
            "cname": colour,
        }))
    }

    /// What is not persistent stays so to the end; then the rows get their names.
    fn finish(&mut self, end: u64, tables: &Tables) -> Result<(), ExportError> {
        let lines: Vec<_> = self.rows.lines.keys().copied().collect();
        for line in lines {
            self.set(line, None, end)?;
            let (pid, tid) = (FILES + u64::from(line.file), line.line);
            let path = tables
                .files
                .get(line.file as usize)
                .map_or("", |file| file.path.as_str());
            let row = format!("line {:#x}", line.line * LINE);
            for (name, value) in [("process_name", path), ("thread_name", &row)] {
                self.write(&json!({ "ph": "M", "name": name, "pid": pid, "tid": tid, "args": { "name": value } }))?;
            }
        }
        Ok(())
    }
}

fn place(at: PmAddress, tables: &Tables) -> String {
    crashproof_trace::dump::address(at, tables).to_string()
}
