//! Random traces: operations that any ids fit, because they are taken modulo what is defined.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{self, Cursor};
use std::sync::{Arc, Mutex};

use crashproof_trace::*;
use proptest::prelude::*;

/// One call of the writer, from plain numbers.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub what: u8,
    pub thread: u8,
    pub stack: u16,
    pub a: u64,
    pub b: u64,
    pub data: Vec<u8>,
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    // Small numbers as in real traces, and any number.
    let number = || prop_oneof![0..5000u64, any::<u64>()];
    let data = prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..70), 1 => Just(vec![7; 70_000])];
    (0..32u8, 0..6u8, any::<u16>(), number(), number(), data).prop_map(|(what, thread, stack, a, b, data)| Operation {
        what,
        thread,
        stack,
        a,
        b,
        data,
    })
}

/// A disk in memory, of limited size.
#[derive(Clone)]
pub(crate) struct Disk {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub capacity: usize,
}

impl Disk {
    pub(crate) fn new(capacity: usize) -> Disk {
        Disk {
            bytes: Arc::default(),
            capacity,
        }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Storage for Disk {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.bytes.lock().unwrap();
        let end = (offset as usize + bytes.len()).min(self.capacity);
        if disk.len() < end {
            disk.resize(end, 0);
        }
        let n = end.saturating_sub(offset as usize);
        disk[offset as usize..offset as usize + n].copy_from_slice(&bytes[..n]);
        if n < bytes.len() {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        if len as usize > self.capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
}

pub(crate) fn header() -> Header {
    Header {
        command: vec!["./app".into(), "--size".into(), "ü".into()],
        options: Options {
            client_requests: true,
            locked_rmw: false,
            pm: vec!["/mnt/pmem/*".into()],
        },
    }
}

/// A writer with a process and two files, a module and a stack.
pub(crate) fn writer(disk: &Disk) -> TraceWriter {
    let mut writer = TraceWriter::with_storage("test.trace", Box::new(disk.clone()), &header()).unwrap();
    let start = EventKind::ProcessStart {
        process: ProcessId(0),
        pid: 100,
        parent: None,
        executable: "/usr/bin/app",
    };
    writer.event(ThreadId(0), StackId(0), &start).unwrap();
    for thread in 0..6 {
        let start = EventKind::ThreadStart {
            process: ProcessId(0),
            os_id: 100 + thread,
        };
        writer.event(ThreadId(thread), StackId(0), &start).unwrap();
    }
    for name in ["pool", "other"] {
        writer
            .file(&PmFile {
                path: format!("/mnt/pmem/{name}"),
                size: 1 << 20,
                created: name == "other",
                kind: PmFileKind::File,
            })
            .unwrap();
    }
    let module = Module {
        path: "/usr/bin/app".into(),
        build_id: vec![1, 2, 3],
        locked_sites: 4,
        place: None,
    };
    let module = writer.module(&module).unwrap();
    writer
        .stack(&[
            Frame {
                module: Some(module),
                address: 0x1234,
            },
            Frame {
                module: None,
                address: 0x7f,
            },
        ])
        .unwrap();
    writer
}

impl Operation {
    fn at(&self, max_len: u64) -> PmAddress {
        PmAddress {
            file: FileId((self.b % 2) as u32),
            offset: self.a % (i64::MAX as u64 - max_len),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.data[..self.data.len().min(64)]).into_owned()
    }

    /// Of an access that follows all of them.
    fn depends(&self) -> (u64, Vec<Dependence>) {
        let node = (self.a >> 1).max(1);
        let on = |byte: &u8| Dependence {
            node: node - node.min(1 + (self.b >> 1) % (1 + *byte as u64)),
            control: byte & 1 != 0,
        };
        (node, self.data.iter().take(format::MAX_DEPENDENCES).map(on).collect())
    }

    /// `None`: not an event.
    fn kind<'a>(&'a self, text: &'a str, node: u64, depends: &'a [Dependence]) -> Option<EventKind<'a>> {
        let at = self.at(70_000);
        let PmAddress { file, offset } = at;
        let data = &self.data[..];
        let short = &data[..data.len().min(64)];
        let len = self.b % (i64::MAX as u64 - offset);
        let bit = |n: u64| self.b >> n & 1 != 0;
        Some(match self.what {
            0..=5 => {
                let flags = StoreFlags {
                    nontemporal: bit(0),
                    locked: bit(1),
                    syscall: bit(2),
                    exchange: bit(3),
                };
                EventKind::Store { at, data: short, flags }
            }
            6 => EventKind::Flush {
                at,
                kind: FlushKind::Clwb,
            },
            7 => EventKind::Flush {
                at,
                kind: FlushKind::Clflushopt,
            },
            8 => EventKind::Flush {
                at,
                kind: FlushKind::Clflush,
            },
            9 => EventKind::Fence {
                kind: FenceKind::Sfence,
            },
            10 => EventKind::Fence {
                kind: FenceKind::Mfence,
            },
            11 => EventKind::Fence {
                kind: FenceKind::Locked,
            },
            12 => EventKind::Map {
                file,
                address: self.b,
                offset,
                len,
                writable: bit(0),
            },
            13 => EventKind::Unmap { file, offset, len },
            14 => EventKind::Resize { file, size: offset },
            15 => EventKind::FileWrite {
                at,
                data: &data[..data.len().min(format::MAX_DATA)],
            },
            16 => EventKind::Rename {
                file,
                path: bit(1).then_some(text),
            },
            17 => EventKind::Sync { file, offset, len },
            18 => EventKind::Output {
                fd: self.b as u32,
                data: short,
            },
            19 => EventKind::Call {
                name: text,
                arguments: [self.a, self.b, 0, 1, 2, u64::MAX],
            },
            20 => {
                let requests = [
                    Request::SetClean,
                    Request::TxBegin,
                    Request::TxEnd,
                    Request::TxAdd,
                    Request::TxRemove,
                    Request::TxIgnore,
                    Request::TxJoin,
                    Request::TxLeave,
                ];
                let request = requests[self.a as usize % requests.len()];
                EventKind::Request {
                    request,
                    transaction: self.b,
                    range: bit(3).then_some((at, len)),
                }
            }
            21 => EventKind::ThreadStart {
                process: ProcessId(0),
                os_id: self.a as u32,
            },
            22 => EventKind::ProcessStart {
                process: ProcessId((self.a % 50) as u32),
                pid: self.b as u32,
                parent: bit(4).then_some(ProcessId(0)),
                executable: text,
            },
            23 => EventKind::ProcessEnd {
                process: ProcessId(0),
                killed: bit(5),
            },
            28 => EventKind::Access {
                store: bit(0),
                node,
                at: self.at(u32::MAX as u64),
                len: self.b as u32,
                depends: Dependences::of(depends),
            },
            30 => {
                let (name, memory) = (
                    text,
                    MemoryRange {
                        address: self.a,
                        len: self.b,
                    },
                );
                EventKind::Annotation(match self.a % 6 {
                    0 => Annotation::OperationBegin { name },
                    1 => Annotation::OperationEnd { name },
                    2 => Annotation::ExpectDurable(memory),
                    3 => Annotation::ExpectSnapshotted(memory),
                    4 => Annotation::ExpectOrder {
                        before: memory,
                        after: MemoryRange { address: 1, len: 2 },
                        backwards: bit(5),
                    },
                    _ => Annotation::Marker { name },
                })
            }
            31 => EventKind::Return(CallReturn {
                name: text,
                arguments: [self.a, self.b, 0, 1, 2, u64::MAX],
                result: self.b,
                object: bit(2).then_some(PmemObject {
                    pool: self.a,
                    offset: self.b,
                    usable: 3,
                }),
            }),
            29 => EventKind::Path {
                blocks: self.a.wrapping_mul(self.b),
                cuts: self.b,
            },
            _ => return None,
        })
    }

    /// Performs the operation; adds what a reader must give for it to `expected`.
    pub(crate) fn perform(&self, writer: &mut TraceWriter, expected: &mut Vec<String>) -> Result<(), WriteError> {
        let text = self.text();
        let (node, depends) = self.depends();
        if let Some(kind) = self.kind(&text, node, &depends) {
            let stack = StackId(self.stack as u32 % writer.tables().stack_count() as u32);
            let thread = ThreadId(self.thread as u32);
            let begun = writer.events() - self.b % (writer.events() + 1);
            // An event that the writer does not refuse.
            let is_known = |thread| writer.tables().process_of(thread).is_some();
            let other = ThreadId(self.b as u32 % 4);
            let begins = matches!(kind, EventKind::Fence { .. }) && is_known(thread) && is_known(other);
            if begins {
                writer.begin(other)?;
            }
            let begins = begins && other != thread;
            let beginning = Beginning {
                before: writer.events() - begun,
                others: if begins { vec![other] } else { Vec::new() },
            };
            let event = Event {
                seq: writer.events(),
                beginning: &beginning,
                thread,
                stack,
                kind,
            };
            writer.event_begun(begun, thread, stack, &event.kind)?;
            expected.push(format!("{:?}", Item::Event(event)));
            return Ok(());
        }
        match self.what {
            24 => {
                let data = &self.data[..self.data.len().min(format::MAX_DATA)];
                let at = self.at(70_000);
                writer.initial(at, data)?;
                if !data.is_empty() {
                    expected.push(format!("{:?}", Item::Initial { at, data }));
                }
            }
            25 => {
                let module = Module {
                    path: text,
                    build_id: self.data[..self.data.len().min(20)].into(),
                    locked_sites: 1,
                    place: None,
                };
                let function = (self.b & 1 != 0).then_some("function");
                let (file, line) = ((self.b & 2 != 0).then_some("a.c"), Some(self.a as u32));
                let place = Module::of_place(&module.path, function, file, line);
                for module in [module, place] {
                    let id = writer.module(&module)?;
                    assert_eq!(writer.tables().module(id), Some(&module));
                }
            }
            26 => {
                let modules = writer.tables().modules.len() as u64;
                let frames: Vec<Frame> = (0..self.b % 20 + 1)
                    .map(|i| {
                        let address = self.a.wrapping_mul(i + 1);
                        let module = (!address.is_multiple_of(3)).then_some(ModuleId((address % modules) as u32));
                        Frame { module, address }
                    })
                    .collect();
                let id = writer.stack(&frames)?;
                assert_eq!(writer.tables().frames(id), frames);
            }
            _ => writer.flush()?,
        }
        Ok(())
    }
}

/// A small valid trace with all kinds of records.
pub(crate) fn small_trace() -> Vec<u8> {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let mut expected = Vec::new();
    for what in 0..32 {
        let operation = Operation {
            what,
            thread: what % 3,
            stack: what as u16,
            a: 64 * what as u64,
            b: what as u64 * 7,
            data: vec![b'a' + what; 8],
        };
        operation.perform(&mut writer, &mut expected).unwrap();
    }
    let detail = "a library could not be followed".into();
    writer
        .incomplete(&Incomplete {
            reason: IncompleteReason::Unsupported,
            detail,
        })
        .unwrap();
    writer
        .finish(ProgramEnd {
            status: Some(3),
            signal: None,
            ..ProgramEnd::default()
        })
        .unwrap();
    disk.content()
}

pub(crate) fn open(bytes: Vec<u8>) -> Result<TraceReader, ReadError> {
    let len = bytes.len() as u64;
    TraceReader::from_source("test.trace", Box::new(Cursor::new(bytes)), len)
}

/// All items, and the reader at its end (or the error after them).
pub(crate) fn read_all(bytes: Vec<u8>) -> (Vec<String>, Result<TraceReader, ReadError>) {
    let mut items = Vec::new();
    let mut reader = match open(bytes) {
        Ok(reader) => reader,
        Err(error) => return (items, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(item)) => items.push(format!("{item:?}")),
            Ok(None) => return (items, Ok(reader)),
            Err(error) => return (items, Err(error)),
        }
    }
}
