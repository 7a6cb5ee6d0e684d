//! The lines of `crashproof dump`, which scripts may have come to rely on.

use crate::common;

use common::*;
use crashproof_trace::*;

#[test]
fn one_line_per_item() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let at = PmAddress {
        file: FileId(0),
        offset: 0x1040,
    };
    let (thread, stack) = (ThreadId(1), StackId(1));
    writer.initial(at, &[7; 20]).unwrap();
    let flags = StoreFlags {
        nontemporal: true,
        ..Default::default()
    };
    let arguments = [1, 2, 3, 4, 5, 0xffff];
    for kind in [
        EventKind::Map {
            file: FileId(0),
            address: 0x7f00_0000_0000,
            offset: 0,
            len: 4096,
            writable: true,
        },
        EventKind::Store {
            at,
            data: &[1, 0, 0xff],
            flags,
        },
        EventKind::Flush {
            at,
            kind: FlushKind::Clwb,
        },
        EventKind::Fence {
            kind: FenceKind::Sfence,
        },
        EventKind::FileWrite { at, data: b"x" },
        EventKind::Rename {
            file: FileId(1),
            path: None,
        },
        EventKind::Rename {
            file: FileId(1),
            path: Some("/mnt/new\nname"),
        },
        EventKind::Output { fd: 1, data: b"done\n" },
        EventKind::Call {
            name: "pmemobj_tx_begin",
            arguments,
        },
        EventKind::Request {
            request: Request::TxAdd,
            transaction: 5,
            range: Some((at, 64)),
        },
        EventKind::Unmap {
            file: FileId(0),
            offset: 0,
            len: 4096,
        },
        EventKind::Access {
            store: false,
            node: 6,
            at,
            len: 8,
            depends: Dependences::of(&[]),
        },
        EventKind::Access {
            store: true,
            node: 7,
            at,
            len: 100,
            depends: Dependences::of(&[
                Dependence {
                    node: 6,
                    control: false,
                },
                Dependence { node: 2, control: true },
            ]),
        },
        EventKind::Path { blocks: 0xabc, cuts: 2 },
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: true,
        },
        EventKind::ProcessEnd {
            process: ProcessId(0),
            killed: false,
        },
    ] {
        writer.event(thread, stack, &kind).unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
    let mut reader = open(disk.content()).unwrap();
    let mut lines = Vec::new();
    while let Some((item, tables)) = reader.next_with_tables().unwrap() {
        lines.push(dump::describe(&item, tables).to_string());
    }
    let expected = r##"#0 T0 process-start P0 pid 100 /usr/bin/app
#1 T0 thread-start P0 tid 100
#2 T1 thread-start P0 tid 101
#3 T2 thread-start P0 tid 102
#4 T3 thread-start P0 tid 103
#5 T4 thread-start P0 tid 104
#6 T5 thread-start P0 tid 105
initial pool+0x1040 len 20 [07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 …]
#7 T1 map pool+0x0 len 4096 at 0x7f0000000000 read-write
#8 T1 store pool+0x1040 len 3 [01 00 ff] nt
#9 T1 clwb pool+0x1040
#10 T1 sfence
#11 T1 write pool+0x1040 len 1 [78]
#12 T1 unlink other
#13 T1 rename other to /mnt/new\nname
#14 T1 output fd 1 len 5 "done\n"
#15 T1 call pmemobj_tx_begin(0x1, 0x2, 0x3, 0x4, 0x5, 0xffff)
#16 T1 request tx-add tx 5 pool+0x1040 len 64
#17 T1 unmap pool+0x0 len 4096
#18 T1 access 6 loads pool+0x1040 len 8
#19 T1 access 7 stores pool+0x1040 len 100 after data 6, control 2
#20 T1 path 0x0000000000000abc cuts 2
#21 T1 process-end P0 killed
#22 T1 process-end P0"##;
    assert_eq!(lines.join("\n"), expected);
}
