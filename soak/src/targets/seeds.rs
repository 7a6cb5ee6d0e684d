//! Good inputs, from which malformed ones are made.

use std::path::Path;
use std::process::Command;

use crashproof_check::CheckOptions;
use crashproof_exchange::{pmemcheck, pmtest};
use crashproof_trace::{
    Dependence, Dependences, EventKind, FenceKind, FileId, FlushKind, Frame, Header, Incomplete, IncompleteReason,
    LeftOut, LeftOutReason, Module, PmAddress, PmFile, PmFileKind, ProcessId, ProgramEnd, Request, StoreFlags,
    ThreadId, TraceWriter, WriteError, format,
};

use super::{beside, read, with_file};

const PMEMCHECK_LOG: &str = "==1== pmemcheck-1.0, a simple persistent store checker\n\
    ==1== START|REGISTER_FILE;/mnt/pmem/pool;0x5200000;0x1000;0x0\
    |STORE;0x5200040;0x1;0x8;0x1091A8: push (queue.c:17);0x109227: main (queue.c:36)\
    |STORE;0x5200048;0x656e6f;0x4;0x49F0182: __strcpy_avx2 (strcpy-avx2.S:582);0x1091B5: push (queue.c:18)\
    |FLUSH;0x5200040;0x40|FENCE|STORE;0x5200008;0x1;0x8|FLUSH;0x5200000;0x40|FENCE|STOP\n";
const PMTEST_LOG: &str =
    "_ASSIGN 0x1040 8 a.c 1\n_FLUSH 0x1040 8 a.c 2\n_FENCE 0 0 a.c 3\n_ISPERSISTED 0x1040 8 a.c 4\n";

/// A small program with stores to structures, built with debug info.
const PROGRAM: &str = r#"
struct node { struct node *next; long key; char name[24]; };
struct list { long count; struct node *head; struct node nodes[8]; };
static long total;
void insert(struct list *list, long key) {
    struct node *node = &list->nodes[list->count % 8];
    node->key = key;
    for (unsigned i = 0; i < sizeof node->name; i++)
        node->name[i] = (char)(key + i);
    node->next = list->head;
    list->head = node;
    total += list->count++;
}
int main(int argc, char **argv) {
    struct list list = {0};
    for (long key = 0; key < argc; key++)
        insert(&list, key);
    return (int)total + argv[0][0];
}
"#;

pub(super) fn pmemcheck_logs() -> Vec<Vec<u8>> {
    vec![PMEMCHECK_LOG.into()]
}

pub(super) fn pmtest_logs() -> Vec<Vec<u8>> {
    vec![PMTEST_LOG.into()]
}

/// Imported ones, and one with an event of each kind.
pub(super) fn traces() -> Vec<Vec<u8>> {
    let imported = |import: &dyn Fn(&Path, &Path) -> bool, log: &str| {
        with_file(log.as_bytes(), |path| {
            beside(path, "trace", |trace| {
                import(path, trace).then(|| std::fs::read(trace).ok()).flatten()
            })
        })
    };
    let from_pmemcheck = |log: &Path, trace: &Path| pmemcheck::import(log, trace, &Default::default()).is_ok();
    let from_pmtest = |log: &Path, trace: &Path| pmtest::import(log, trace).is_ok();
    let written = with_file(b"", |path| {
        write_every_kind(path).ok().and_then(|()| std::fs::read(path).ok())
    });
    let traces = [
        imported(&from_pmemcheck, PMEMCHECK_LOG),
        imported(&from_pmtest, PMTEST_LOG),
        written,
    ];
    traces.into_iter().flatten().collect()
}

/// A trace of two threads that has an event of each kind, a module, stacks and initial contents.
fn write_every_kind(path: &Path) -> Result<(), WriteError> {
    let header = Header {
        command: vec!["program".to_owned()],
        options: format::Options::default(),
    };
    let mut trace = TraceWriter::create(path, &header)?;
    let module = trace.module(&Module {
        path: "/usr/bin/program".to_owned(),
        build_id: vec![1, 2, 3, 4],
        locked_sites: 1,
        place: None,
    })?;
    let frame = |address| Frame {
        module: Some(module),
        address,
    };
    let stacks = [
        trace.stack(&[frame(0x1000), frame(0x2000)])?,
        trace.stack(&[frame(0x1010), frame(0x2000)])?,
    ];
    let file = |path: &str| PmFile {
        path: path.to_owned(),
        size: 4096,
        created: true,
        kind: PmFileKind::File,
    };
    let files = [trace.file(&file("/mnt/pool"))?, trace.file(&file("/mnt/journal"))?];
    let at = |file: FileId, offset| PmAddress { file, offset };
    trace.initial(at(files[0], 0), b"what was there before")?;
    let flag = |nontemporal, locked, syscall, exchange| StoreFlags {
        nontemporal,
        locked,
        syscall,
        exchange,
    };
    let store = |offset, data: &'static [u8], flags| EventKind::Store {
        at: at(files[0], offset),
        data,
        flags,
    };
    let flush = |offset, kind| EventKind::Flush {
        at: at(files[0], offset),
        kind,
    };
    let request = |request, range| EventKind::Request {
        request,
        transaction: 1,
        range,
    };
    let call = |name: &'static str, arguments| EventKind::Call { name, arguments };
    let range = Some((at(files[0], 64), 16));
    let (process, depends) = (ProcessId(0), [Dependence { node: 1, control: true }]);
    let access = |store, node, depends| EventKind::Access {
        store,
        node,
        at: at(files[0], 64),
        len: 8,
        depends,
    };
    let events = [
        EventKind::ProcessStart {
            process,
            pid: 100,
            parent: None,
            executable: "/usr/bin/program",
        },
        EventKind::ThreadStart { process, os_id: 100 },
        EventKind::Map {
            file: files[0],
            address: 0x7000_0000_0000,
            offset: 0,
            len: 4096,
            writable: true,
        },
        call("CRASHPROOF_OP_BEGIN put", [0; 6]),
        access(false, 1, Dependences::of(&[])),
        store(64, b"eight by", StoreFlags::default()),
        access(true, 2, Dependences::of(&depends)),
        EventKind::Path { blocks: 7, cuts: 0 },
        flush(64, FlushKind::Clwb),
        EventKind::Fence {
            kind: FenceKind::Sfence,
        },
        call("CRASHPROOF_OP_END put", [0; 6]),
        store(128, b"past the cache..", flag(true, false, false, false)),
        EventKind::Fence {
            kind: FenceKind::Mfence,
        },
        store(192, &[1, 0, 0, 0], flag(false, true, false, true)),
        store(192, &[0, 0, 0, 0], StoreFlags::default()),
        store(256, &[7; 64], flag(false, false, true, false)),
        flush(256, FlushKind::Clflushopt),
        flush(256, FlushKind::Clflush),
        EventKind::Fence {
            kind: FenceKind::Locked,
        },
        request(Request::TxBegin, None),
        request(Request::TxAdd, range),
        store(72, b"in a transaction", StoreFlags::default()),
        request(Request::TxRemove, range),
        request(Request::TxIgnore, range),
        request(Request::SetClean, range),
        request(Request::TxEnd, None),
        request(Request::Volatile, range),
        request(Request::Persistent, range),
        call("CRASHPROOF_EXPECT_DURABLE", [0x7000_0000_0040, 8, 0, 0, 0, 0]),
        EventKind::Resize {
            file: files[0],
            size: 8192,
        },
        EventKind::FileWrite {
            at: at(files[0], 4096),
            data: b"by a system call",
        },
        EventKind::Sync {
            file: files[0],
            offset: 0,
            len: 8192,
        },
        EventKind::Output { fd: 1, data: b"done\n" },
        EventKind::Rename {
            file: files[1],
            path: Some("/mnt/other"),
        },
        EventKind::Rename {
            file: files[1],
            path: None,
        },
        EventKind::Quiet,
        EventKind::Unmap {
            file: files[0],
            offset: 0,
            len: 4096,
        },
        EventKind::ProcessEnd { process, killed: false },
    ];
    for (number, event) in events.iter().enumerate() {
        trace.event(ThreadId(0), stacks[number % 2], event)?;
    }
    trace.left_out(&LeftOut {
        path: "/mnt/lock.mdb".to_owned(),
        reason: LeftOutReason::LockFile,
        errno: None,
    })?;
    trace.incomplete(&Incomplete {
        reason: IncompleteReason::Limit,
        detail: "a limit".to_owned(),
    })?;
    trace.finish(ProgramEnd {
        status: Some(0),
        ..ProgramEnd::default()
    })
}

/// What the blocks of the good traces hold.
pub(super) fn payloads() -> Vec<Vec<u8>> {
    blocks(&traces())
}

/// What the blocks of the trace with every kind of event hold.
pub(super) fn complete_payloads() -> Vec<Vec<u8>> {
    blocks(&traces()[2..])
}

fn blocks(traces: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for trace in traces {
        let mut rest = &trace[..];
        while let Some(at) = rest.windows(4).position(|window| window == format::BLOCK_MARKER) {
            rest = &rest[at..];
            let Some((head, after)) = rest.split_first_chunk::<{ format::BLOCK_HEADER }>() else {
                break;
            };
            let mut raw = Vec::new();
            if let Ok(header) = format::BlockHeader::decode(head)
                && let Some(packed) = after.get(..header.packed_len as usize)
                && format::open_block(&header, packed, &mut raw).is_ok()
            {
                payloads.push(raw);
            }
            rest = after;
        }
    }
    payloads
}

pub(super) fn litmus_files() -> Vec<Vec<u8>> {
    vec![
        b"store name 0x4a3c000 8\nstore valid 0x4a3c080 8\nflush valid\nflush name\nfence\n\
          require name before valid\nrequire durable valid\n"
            .to_vec(),
        b"# two threads\nT1: ntstore a 64 16\nT2: rmw b 128 8 x1000\nT1: clflush 64\nT2: mfence\n\
          require a before b\n"
            .to_vec(),
    ]
}

pub(super) fn configurations() -> Vec<Vec<u8>> {
    vec![
        b"[[ignore]]\nkind = \"missing-flush\"\nfunction = \"log_*\"\nstack = [\"memcpy*\", \"...\"]\nreason = \"volatile\"\n\n\
          [[rule]]\nkind = \"must-persist-before\"\nbefore = \"write_entry\"\nafter = \"log.c:10-20\"\n\n\
          [[rule]]\nkind = \"must-be-in-transaction\"\nstores = \"accounts.pm@0x40-0xfff\"\n"
            .to_vec(),
        b"[[test]]\nname = \"kv\"\ncommand = \"./kv pool\"\nrecover = \"./kv pool --check\"\ntime = \"2m\"\n".to_vec(),
    ]
}

/// The report of the trace with every kind of event.
pub(super) fn baselines() -> Vec<Vec<u8>> {
    let mut reports = Vec::new();
    read(&traces()[2], |reader| {
        let report = crashproof_check::check(reader, &CheckOptions::default(), |_, _| {});
        reports.extend(report.ok().and_then(|report| crashproof_render::to_json(&report).ok()));
        true
    });
    reports.into_iter().map(String::into_bytes).collect()
}

pub(super) fn saved_crashes() -> Vec<Vec<u8>> {
    vec![
        br#"{"version":1,"recover":"./verify pool","folder":"/tmp","timeout_ms":1000,"paths":["/tmp/pool"],
        "files":[{"path":"/tmp/pool","size":0,"image":"image"}],"output":"output",
        "mappings":[{"file":0,"address":4096,"offset":0,"len":4096}],"environment":{"A":"1"},
        "kind":"crash-order","message":"recovery fails","verdict":"exit status 1"}"#
            .to_vec(),
    ]
}

/// Small programs with symbols and debug info of the versions that compilers write.
pub(super) fn programs() -> Vec<Vec<u8>> {
    let built = ["-gdwarf-5", "-gdwarf-4"].into_iter().filter_map(|debug| {
        with_file(PROGRAM.as_bytes(), |source| {
            beside(source, "out", |program| {
                let mut compiler = Command::new("cc");
                compiler.args(["-O1", "-nostartfiles", "-Wl,-emain", debug, "-xc"]);
                let built = compiler.arg(source).arg("-o").arg(program).status();
                built.ok().filter(|status| status.success())?;
                std::fs::read(program).ok()
            })
        })
    });
    built.collect()
}
