//! Traces made by hand, in memory, and what the checker says of them.

mod annotations;
mod corruption;
mod locks;
mod naive;
mod oracles;
mod traffic;
mod transactions;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use crashproof_finding::{Finding, Kind, Report};
use crashproof_trace::*;

use crate::{CheckOptions, Config, Model, check};

const POOL: FileId = FileId(0);
/// Where the pool is mapped.
const POOL_ADDRESS: u64 = 0x7000_0000_0000;
const POOL_SIZE: u64 = 1 << 20;

#[derive(Clone, Default)]
struct SharedBytes(Arc<Mutex<Vec<u8>>>);

impl Storage for SharedBytes {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut data = self.0.lock().unwrap();
        let end = offset as usize + bytes.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
}

/// Writes a trace of one pool. A place in the code is a number: the address of the innermost frame.
struct TraceBuilder {
    writer: TraceWriter,
    bytes: SharedBytes,
    app: ModuleId,
    stacks: HashMap<Vec<(Option<&'static str>, u64)>, StackId>,
    libraries: HashMap<&'static str, ModuleId>,
    end: ProgramEnd,
    /// What a crash test has shown.
    transient: Vec<Finding>,
}

const T0: u32 = 0;
const T1: u32 = 1;

impl TraceBuilder {
    fn new() -> Self {
        Self::with_options(Options {
            client_requests: true,
            ..Options::default()
        })
    }

    fn with_options(options: Options) -> Self {
        let bytes = SharedBytes::default();
        let header = Header {
            command: vec!["app".into()],
            options,
        };
        let mut writer = TraceWriter::with_storage("test.trace", Box::new(bytes.clone()), &header).unwrap();
        let app = writer
            .module(&Module {
                path: "/no/app".into(),
                build_id: vec![1],
                locked_sites: 0,
                place: None,
            })
            .unwrap();
        writer
            .file(&PmFile {
                path: "/pm/pool".into(),
                size: POOL_SIZE,
                created: false,
                kind: PmFileKind::File,
            })
            .unwrap();
        let mut builder = TraceBuilder {
            writer,
            bytes,
            app,
            stacks: HashMap::new(),
            libraries: HashMap::new(),
            end: ProgramEnd {
                status: Some(0),
                ..ProgramEnd::default()
            },
            transient: Vec::new(),
        };
        builder.process(0, None);
        builder.thread(0, 0);
        builder.map(T0);
        builder
    }

    fn process(&mut self, process: u32, parent: Option<u32>) -> &mut Self {
        let kind = EventKind::ProcessStart {
            process: ProcessId(process),
            pid: 100 + process,
            parent: parent.map(ProcessId),
            executable: "/no/app",
        };
        self.event(0, 0, kind)
    }

    fn thread(&mut self, thread: u32, process: u32) -> &mut Self {
        self.event(
            thread,
            0,
            EventKind::ThreadStart {
                process: ProcessId(process),
                os_id: 200 + thread,
            },
        )
    }

    fn event(&mut self, thread: u32, place: u64, kind: EventKind<'_>) -> &mut Self {
        let stack = self.stack(&[(None, place)]);
        self.event_at(thread, stack, kind)
    }

    fn event_at(&mut self, thread: u32, stack: StackId, kind: EventKind<'_>) -> &mut Self {
        self.writer.event(ThreadId(thread), stack, &kind).unwrap();
        self
    }

    /// Frames from the innermost; `None` is the program.
    fn stack(&mut self, frames: &[(Option<&'static str>, u64)]) -> StackId {
        if frames == [(None, 0)] {
            return StackId(0);
        }
        if let Some(&stack) = self.stacks.get(frames) {
            return stack;
        }
        let frames_of_trace: Vec<_> = frames
            .iter()
            .map(|&(library, address)| {
                let module = match library {
                    None => self.app,
                    Some(name) => *self.libraries.entry(name).or_insert_with(|| {
                        let path = format!("/no/{name}");
                        self.writer
                            .module(&Module {
                                path,
                                build_id: vec![2],
                                locked_sites: 0,
                                place: None,
                            })
                            .unwrap()
                    }),
                };
                Frame {
                    module: Some(module),
                    address,
                }
            })
            .collect();
        let stack = self.writer.stack(&frames_of_trace).unwrap();
        self.stacks.insert(frames.to_vec(), stack);
        stack
    }

    fn map(&mut self, thread: u32) -> &mut Self {
        let kind = EventKind::Map {
            file: POOL,
            address: POOL_ADDRESS,
            offset: 0,
            len: POOL_SIZE,
            writable: true,
        };
        self.event(thread, 0, kind)
    }

    fn unmap(&mut self, thread: u32, place: u64) -> &mut Self {
        self.event(
            thread,
            place,
            EventKind::Unmap {
                file: POOL,
                offset: 0,
                len: POOL_SIZE,
            },
        )
    }

    fn store(&mut self, thread: u32, place: u64, offset: u64, len: usize) -> &mut Self {
        self.store_as(thread, place, offset, len, StoreFlags::default())
    }

    fn nt_store(&mut self, thread: u32, place: u64, offset: u64, len: usize) -> &mut Self {
        self.store_as(
            thread,
            place,
            offset,
            len,
            StoreFlags {
                nontemporal: true,
                ..StoreFlags::default()
            },
        )
    }

    fn locked(&mut self, thread: u32, place: u64, offset: u64) -> &mut Self {
        self.store_as(
            thread,
            place,
            offset,
            8,
            StoreFlags {
                locked: true,
                ..StoreFlags::default()
            },
        )
    }

    fn store_as(&mut self, thread: u32, place: u64, offset: u64, len: usize, flags: StoreFlags) -> &mut Self {
        let at = PmAddress { file: POOL, offset };
        self.event(
            thread,
            place,
            EventKind::Store {
                at,
                data: &[7; 64][..len],
                flags,
            },
        )
    }

    /// A store of four bytes with a value.
    fn value(&mut self, thread: u32, place: u64, offset: u64, value: u32, flags: StoreFlags) -> &mut Self {
        let at = PmAddress { file: POOL, offset };
        let data = &value.to_le_bytes();
        self.event(thread, place, EventKind::Store { at, data, flags })
    }

    fn flush(&mut self, thread: u32, place: u64, offset: u64) -> &mut Self {
        self.flush_as(thread, place, offset, FlushKind::Clwb)
    }

    fn flush_as(&mut self, thread: u32, place: u64, offset: u64, kind: FlushKind) -> &mut Self {
        self.event(
            thread,
            place,
            EventKind::Flush {
                at: PmAddress { file: POOL, offset },
                kind,
            },
        )
    }

    fn sfence(&mut self, thread: u32, place: u64) -> &mut Self {
        self.event(
            thread,
            place,
            EventKind::Fence {
                kind: FenceKind::Sfence,
            },
        )
    }

    fn mfence(&mut self, thread: u32, place: u64) -> &mut Self {
        self.event(
            thread,
            place,
            EventKind::Fence {
                kind: FenceKind::Mfence,
            },
        )
    }

    fn request(&mut self, thread: u32, place: u64, request: Request, range: Option<(u64, u64)>) -> &mut Self {
        let range = range.map(|(offset, len)| (PmAddress { file: POOL, offset }, len));
        self.event(
            thread,
            place,
            EventKind::Request {
                request,
                transaction: 0,
                range,
            },
        )
    }

    fn call(&mut self, thread: u32, place: u64, name: &str, arguments: &[u64]) -> &mut Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.event(thread, place, EventKind::Call { name, arguments: all })
    }

    /// A function of libpmemobj has given an object.
    fn gave(&mut self, thread: u32, place: u64, name: &str, size: u64, offset: u64) -> &mut Self {
        let returned = CallReturn {
            name,
            arguments: [POOL_ADDRESS, 0, size, 0, 0, 0],
            result: 0,
            object: Some(PmemObject {
                pool: 7,
                offset,
                usable: 0,
            }),
        };
        self.event(thread, place, EventKind::Return(returned))
    }

    fn annotation(&mut self, thread: u32, place: u64, annotation: Annotation<'_>) -> &mut Self {
        self.event(thread, place, EventKind::Annotation(annotation))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let TraceBuilder { writer, bytes, end, .. } = std::mem::replace(self, TraceBuilder::new());
        writer.finish(end).unwrap();
        bytes.0.lock().unwrap().clone()
    }

    fn report(&mut self, model: Model, config: &str) -> Report {
        let transient = std::mem::take(&mut self.transient);
        let bytes = self.bytes();
        let config = Config::parse(config, std::path::Path::new("crashproof.toml")).unwrap();
        let len = bytes.len() as u64;
        let mut reader = TraceReader::from_source("test.trace", Box::new(io::Cursor::new(bytes)), len).unwrap();
        check(
            &mut reader,
            &CheckOptions {
                model,
                config,
                traffic: true,
                transient,
            },
            |_, _| {},
        )
        .unwrap()
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.report(Model::Px86, "").findings
    }

    /// Kind, place and count of each finding, sorted.
    fn summary(&mut self) -> Vec<(Kind, u64, u64)> {
        summary(&self.findings())
    }
}

fn place(finding: &Finding) -> u64 {
    finding
        .stack
        .iter()
        .find(|f| f.module.as_deref() == Some("/no/app"))
        .map_or(0, |f| f.address)
}

fn summary(findings: &[Finding]) -> Vec<(Kind, u64, u64)> {
    let mut all: Vec<_> = findings.iter().map(|f| (f.kind, place(f), f.count)).collect();
    all.sort();
    all
}
