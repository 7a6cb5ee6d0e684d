//! From a trace to a store log, for pmreorder.

use std::fmt::Write as _;
use std::io::Write;

use crashproof_finding::Frame;
use crashproof_model::LINE;
use crashproof_stacks::Stacks;
use crashproof_trace::{Annotation, EventKind, FlushKind, Item, PmAddress, StackId, Tables, ThreadId, TraceReader};

use crate::{ExportError, Lost, Places};

/// A STORE record has at most so many bytes.
const MAX_STORE: usize = 8;

/// Writes all of the trace; says what of it the log has not.
pub fn export(reader: &mut TraceReader, out: &mut dyn Write) -> Result<Lost, ExportError> {
    let mut exporter = Exporter {
        out,
        places: Places::default(),
        stacks: Stacks::default(),
        known: Vec::new(),
        lost: Lost::default(),
        thread: None,
    };
    exporter.out.write_all(b"START")?;
    while let Some((item, tables)) = reader.next_with_tables()? {
        exporter.item(item, tables)?;
    }
    exporter.out.write_all(b"|STOP\n")?;
    for _ in reader.incomplete() {
        exporter.lost.add("reasons why the trace is incomplete");
    }
    Ok(exporter.lost)
}

struct Exporter<'a> {
    out: &'a mut dyn Write,
    places: Places,
    stacks: Stacks,
    /// What is written of each stack.
    known: Vec<Option<String>>,
    lost: Lost,
    /// Who did the last event.
    thread: Option<ThreadId>,
}

impl Exporter<'_> {
    fn item(&mut self, item: Item<'_>, tables: &Tables) -> Result<(), ExportError> {
        let event = match item {
            Item::Initial { .. } => {
                self.lost
                    .add("parts of what the files held before (keep a copy of them for pmreorder)");
                return Ok(());
            }
            Item::Event(event) => event,
        };
        if matches!(
            event.kind,
            EventKind::Store { .. } | EventKind::Flush { .. } | EventKind::Fence { .. }
        ) && self
            .thread
            .replace(event.thread)
            .is_some_and(|thread| thread != event.thread)
        {
            self.lost.add("changes of thread: the log has no threads");
        }
        match event.kind {
            EventKind::Store { at, data, flags } => {
                if flags.locked {
                    self.fence()?;
                }
                self.store(at, data, event.stack, tables)?;
                if flags.nontemporal {
                    // As libpmem has it under pmemcheck: flushed at once, durable at the next fence.
                    self.lost.add("non-temporal stores, which are a store and its flush");
                    self.range("FLUSH", at, data.len() as u64)?;
                }
                if flags.locked {
                    self.lost.add("locked stores, which are a store between fences");
                    self.fence()?;
                }
                if flags.syscall {
                    self.lost.add("marks of stores by system calls");
                }
            }
            EventKind::Flush { at, kind } => {
                match kind {
                    FlushKind::Clwb => {}
                    FlushKind::Clflushopt => self.lost.add("kinds of flush: all are the same"),
                    FlushKind::Clflush => self.lost.add("kinds of flush: clflush needs a fence in the log"),
                }
                let offset = at.offset / LINE * LINE;
                self.range("FLUSH", PmAddress { offset, ..at }, LINE)?;
            }
            EventKind::Fence { .. } => self.fence()?,
            EventKind::Map {
                file,
                address,
                offset,
                len,
                ..
            } => {
                self.places.map(file, address, offset, len);
                let path = tables.file(file).map_or("", |file| file.path.as_str());
                if path.contains([';', '|', '\n']) {
                    self.lost.add("characters of paths (; and |)");
                }
                write!(
                    self.out,
                    "|REGISTER_FILE;{};{address:#x};{len:#x};{offset:#x}",
                    plain(path)
                )?;
            }
            EventKind::Unmap { file, offset, len } => {
                self.places.unmap(file, offset, len);
                self.lost.add("unmappings");
            }
            EventKind::Sync { file, offset, len } => self.range("DEEP_SYNC", PmAddress { file, offset }, len)?,
            EventKind::Call { .. } | EventKind::Return(_) => self.lost.add("calls of library functions"),
            EventKind::Annotation(annotation) => match annotation {
                Annotation::OperationBegin { name } => write!(self.out, "|{}.BEGIN", plain(name))?,
                Annotation::OperationEnd { name } => write!(self.out, "|{}.END", plain(name))?,
                Annotation::Marker { name } => write!(self.out, "|{}", plain(name))?,
                Annotation::ExpectDurable(_) | Annotation::ExpectSnapshotted(_) | Annotation::ExpectOrder { .. } => {
                    self.lost.add("what the program expects (annotations)")
                }
            },
            EventKind::Resize { .. } => self.lost.add("changes of a file's size"),
            EventKind::FileWrite { .. } => self.lost.add("writes to a file by system calls"),
            EventKind::Rename { .. } => self.lost.add("renamed or removed files"),
            EventKind::Output { .. } => self.lost.add("outputs of the program"),
            EventKind::Request { .. } => self.lost.add("client requests (transactions, volatile ranges)"),
            // One of each is what a log has by itself.
            EventKind::ThreadStart { .. } | EventKind::ProcessStart { .. } | EventKind::ProcessEnd { .. } => {}
            EventKind::Quiet => self.lost.add("times at which nothing happened"),
            EventKind::Access { .. } | EventKind::Path { .. } => self.lost.add("dependences"),
        }
        Ok(())
    }

    fn fence(&mut self) -> Result<(), ExportError> {
        Ok(self.out.write_all(b"|FENCE")?)
    }

    fn store(&mut self, at: PmAddress, data: &[u8], stack: StackId, tables: &Tables) -> Result<(), ExportError> {
        let trace = self.stack(stack, tables);
        for (index, piece) in data.chunks(MAX_STORE).enumerate() {
            let offset = at.offset + (index * MAX_STORE) as u64;
            let Some((address, _)) = self.places.address(PmAddress { offset, ..at }) else {
                self.lost.add("stores to what is not mapped");
                continue;
            };
            let mut value = [0; MAX_STORE];
            value[..piece.len()].copy_from_slice(piece);
            let value = u64::from_le_bytes(value);
            write!(self.out, "|STORE;{address:#x};{value:#x};{:#x}{trace}", piece.len())?;
        }
        Ok(())
    }

    fn range(&mut self, name: &str, at: PmAddress, len: u64) -> Result<(), ExportError> {
        match self.places.address(at) {
            Some((address, _)) => write!(self.out, "|{name};{address:#x};{len:#x}")?,
            None => self.lost.add("flushes of what is not mapped"),
        }
        Ok(())
    }

    /// The fields of a STORE that give its stack.
    fn stack(&mut self, stack: StackId, tables: &Tables) -> String {
        let index = stack.index();
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        let stacks = &mut self.stacks;
        let text = self.known[index].get_or_insert_with(|| {
            let frames = stacks.symbolize(stack, tables).frames;
            frames
                .iter()
                .map(|frame| format!(";{}", plain(&describe(frame))))
                .collect()
        });
        text.clone()
    }
}

/// As Valgrind does it.
fn describe(frame: &Frame) -> String {
    let mut text = format!("0x{:X}: {}", frame.address, frame.function.as_deref().unwrap_or("???"));
    match (&frame.file, frame.line, &frame.module) {
        (Some(file), Some(line), _) => {
            let _ = write!(text, " ({file}:{line})");
        }
        (_, _, Some(module)) => {
            let _ = write!(text, " (in {module})");
        }
        _ => {}
    }
    text
}

/// Without what separates records and fields.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if matches!(c, ';' | '|') || c.is_control() {
                '_'
            } else {
                c
            }
        })
        .collect()
}
