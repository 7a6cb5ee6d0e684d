//! What is written is what is read; what is cut or damaged is said to be.

use crate::common;

use common::*;
use crashproof_trace::*;
use proptest::prelude::*;

/// Items of the preamble that `common::writer` writes.
const PREAMBLE: usize = 7;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sequence_survives(operations in prop::collection::vec(operation(), 0..120)) {
        let disk = Disk::new(usize::MAX);
        let mut writer = writer(&disk);
        let mut expected = Vec::new();
        for operation in &operations {
            operation.perform(&mut writer, &mut expected).unwrap();
        }
        let (counts, tables) = (writer.counts(), writer.tables().clone());
        let end = ProgramEnd { status: None, signal: Some(9), interrupted: true, terminated: true };
        writer.finish(end).unwrap();

        let (items, reader) = read_all(disk.content());
        let reader = reader.unwrap();
        prop_assert_eq!(&items[PREAMBLE..], &expected[..]);
        prop_assert_eq!(reader.header(), &header());
        prop_assert_eq!(reader.end(), Some(end));
        prop_assert_eq!(reader.counts(), counts);
        prop_assert_eq!(reader.incomplete(), &[]);
        prop_assert_eq!(reader.position(), reader.len());
        prop_assert_eq!(&reader.tables().modules, &tables.modules);
        prop_assert_eq!(&reader.tables().files, &tables.files);
        prop_assert_eq!(reader.tables().stack_count(), tables.stack_count());
        for stack in 0..tables.stack_count() as u32 {
            prop_assert_eq!(reader.tables().frames(StackId(stack)), tables.frames(StackId(stack)));
        }
        for thread in 0..6 {
            prop_assert_eq!(reader.tables().process_of(ThreadId(thread)), Some(ProcessId(0)));
        }
    }

    #[test]
    fn any_cut_leaves_a_prefix(operations in prop::collection::vec(operation(), 0..60), cut in any::<prop::sample::Index>()) {
        let disk = Disk::new(usize::MAX);
        let mut writer = writer(&disk);
        let mut expected = Vec::new();
        for operation in &operations {
            operation.perform(&mut writer, &mut expected).unwrap();
        }
        writer.finish(ProgramEnd::default()).unwrap();
        let mut bytes = disk.content();
        bytes.truncate(cut.index(bytes.len()));
        let (items, reader) = read_all(bytes);
        if let Ok(reader) = reader {
            prop_assert_eq!(reader.incomplete()[0].reason, IncompleteReason::Truncated);
            let items = items.get(PREAMBLE..).unwrap_or(&[]);
            prop_assert_eq!(items, &expected[..items.len()]);
        } else {
            prop_assert!(items.is_empty());
        }
    }

    #[test]
    fn a_full_disk_keeps_a_prefix(operations in prop::collection::vec(operation(), 0..60), extra in 0..200_000usize) {
        let disk = Disk::new(20_000 + extra);
        let mut writer = writer(&disk);
        let mut expected = Vec::new();
        let failed = operations.iter().any(|operation| operation.perform(&mut writer, &mut expected).is_err());
        let end = ProgramEnd { status: Some(0), ..ProgramEnd::default() };
        if failed {
            let late = Incomplete { reason: IncompleteReason::Mismatch, detail: "late".into() };
            writer.incomplete(&late).unwrap();
            assert!(matches!(writer.flush(), Err(WriteError::AlreadyFailed { .. })));
        }
        writer.finish(end).unwrap();
        let (items, reader) = read_all(disk.content());
        let reader = reader.unwrap();
        let items = items.get(PREAMBLE..).unwrap_or(&[]);
        prop_assert_eq!(items, &expected[..items.len()]);
        prop_assert_eq!(reader.end(), Some(end));
        if failed {
            prop_assert_eq!(reader.incomplete()[0].reason, IncompleteReason::WriteFailed);
            prop_assert_eq!(&reader.incomplete()[1].detail, "late");
        } else if reader.incomplete().is_empty() {
            prop_assert_eq!(items.len(), expected.len());
        }
    }

    #[test]
    fn damage_is_found(position in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = small_trace();
        let (before, _) = read_all(bytes.clone());
        let position = position.index(bytes.len());
        bytes[position] ^= 1 << bit;
        let (items, reader) = read_all(bytes);
        prop_assert!(reader.is_err(), "byte {}", position);
        prop_assert_eq!(&items[..], &before[..items.len()]);
    }
}

#[test]
fn every_cut_of_a_small_trace_is_said() {
    let whole = small_trace();
    let (all, reader) = read_all(whole.clone());
    let reader = reader.unwrap();
    assert_eq!(reader.incomplete().len(), 1);
    assert_eq!(
        reader.end(),
        Some(ProgramEnd {
            status: Some(3),
            signal: None,
            ..ProgramEnd::default()
        })
    );
    let header_len = format::encode_header(&header()).unwrap().len();
    for cut in 0..whole.len() {
        let (items, reader) = read_all(whole[..cut].to_vec());
        match reader {
            Ok(reader) => {
                assert!(cut >= header_len);
                assert_eq!(items[..], all[..items.len()]);
                assert_eq!(reader.end(), None);
                assert_eq!(reader.incomplete().last().unwrap().reason, IncompleteReason::Truncated);
            }
            Err(ReadError::NotATrace { .. }) => assert_eq!(cut, 0),
            Err(ReadError::NoHeader { .. }) => assert!(cut > 0 && cut < header_len),
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
}

#[test]
fn a_trace_without_end_is_readable() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    writer.flush().unwrap();
    // As a killed recorder leaves it, with the reserve at its end.
    let (items, reader) = read_all(disk.content());
    assert_eq!(items.len(), PREAMBLE);
    assert_eq!(reader.unwrap().incomplete()[0].reason, IncompleteReason::Truncated);

    writer
        .event(
            ThreadId(0),
            StackId(0),
            &EventKind::Fence {
                kind: FenceKind::Sfence,
            },
        )
        .unwrap();
    drop(writer);
    let (items, reader) = read_all(disk.content());
    assert_eq!(items.len(), PREAMBLE + 1);
    assert_eq!(reader.unwrap().end(), None);
}

#[test]
fn long_data_is_cut_into_records() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let data: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    let at = |offset| PmAddress {
        file: FileId(0),
        offset,
    };
    let flags = StoreFlags {
        syscall: true,
        ..Default::default()
    };
    writer.initial(at(5), &data).unwrap();
    writer
        .event(
            ThreadId(1),
            StackId(1),
            &EventKind::Store {
                at: at(100),
                data: &data[..300],
                flags,
            },
        )
        .unwrap();
    writer
        .event(
            ThreadId(1),
            StackId(1),
            &EventKind::FileWrite { at: at(7), data: &data },
        )
        .unwrap();
    writer
        .event(ThreadId(1), StackId(1), &EventKind::Output { fd: 1, data: &data })
        .unwrap();
    writer.finish(ProgramEnd::default()).unwrap();

    let mut reader = open(disk.content()).unwrap();
    let (mut initial, mut stored, mut written, mut output) = (vec![], vec![], vec![], vec![]);
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Initial { at, data } => {
                assert_eq!(at.offset, 5 + initial.len() as u64);
                initial.extend_from_slice(data);
            }
            Item::Event(Event {
                kind: EventKind::Store { at, data, .. },
                ..
            }) => {
                assert_eq!(at.offset, 100 + stored.len() as u64);
                assert!(
                    at.offset / 64 == (at.offset + data.len() as u64 - 1) / 64,
                    "within a line"
                );
                stored.extend_from_slice(data);
            }
            Item::Event(Event {
                kind: EventKind::FileWrite { at, data },
                ..
            }) => {
                assert_eq!(at.offset, 7 + written.len() as u64);
                written.extend_from_slice(data);
            }
            Item::Event(Event {
                kind: EventKind::Output { data, .. },
                ..
            }) => output.extend_from_slice(data),
            _ => {}
        }
    }
    assert!(initial == data && stored == data[..300] && written == data && output == data);
}

#[test]
fn what_the_reader_would_refuse_the_writer_refuses() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let fence = EventKind::Fence {
        kind: FenceKind::Sfence,
    };
    let mut refused = |thread, stack, kind: &EventKind| {
        assert!(matches!(
            writer.event(ThreadId(thread), StackId(stack), kind),
            Err(WriteError::Invalid { .. })
        ));
    };
    refused(77, 0, &fence);
    refused(u32::MAX, 0, &EventKind::Quiet);
    refused(0, 77, &fence);
    let at = |file, offset| PmAddress {
        file: FileId(file),
        offset,
    };
    refused(
        0,
        0,
        &EventKind::Flush {
            at: at(9, 0),
            kind: FlushKind::Clwb,
        },
    );
    refused(
        0,
        0,
        &EventKind::Store {
            at: at(0, i64::MAX as u64),
            data: &[1],
            flags: StoreFlags::default(),
        },
    );
    refused(
        9,
        0,
        &EventKind::ThreadStart {
            process: ProcessId(3),
            os_id: 1,
        },
    );
    for killed in [false, true] {
        let process = ProcessId(3);
        refused(0, 0, &EventKind::ProcessEnd { process, killed });
    }
    assert!(
        writer
            .stack(&[Frame {
                module: Some(ModuleId(8)),
                address: 1
            }])
            .is_err()
    );
    // Lengths are cut instead: a sync of "everything" is common.
    let sync = EventKind::Sync {
        file: FileId(0),
        offset: 4096,
        len: u64::MAX,
    };
    writer.event(ThreadId(0), StackId(0), &sync).unwrap();
    writer.finish(ProgramEnd::default()).unwrap();
    let (items, reader) = read_all(disk.content());
    assert_eq!(reader.unwrap().incomplete(), &[]);
    assert_eq!(items.len(), PREAMBLE + 1);
}

#[test]
fn equal_definitions_share_an_id() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let module = Module {
        path: "lib.so".into(),
        build_id: vec![9],
        locked_sites: 0,
        place: None,
    };
    let id = writer.module(&module).unwrap();
    assert_eq!(writer.module(&module).unwrap(), id);
    let frames = [Frame {
        module: Some(id),
        address: 16,
    }];
    let stack = writer.stack(&frames).unwrap();
    assert_eq!(writer.stack(&frames).unwrap(), stack);
    assert_eq!(writer.stack(&[]).unwrap(), StackId(0));
}

#[test]
fn an_ordinary_store_is_small() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    // Random data, which does not compress: what is left is the coding.
    let mut random = 1u64;
    for i in 0..10_000u64 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let at = PmAddress {
            file: FileId(0),
            offset: (i * 72) % 65536,
        };
        let data = &(random ^ random >> 29).to_le_bytes();
        writer
            .event(
                ThreadId(0),
                StackId(i as u32 % 2),
                &EventKind::Store {
                    at,
                    data,
                    flags: StoreFlags::default(),
                },
            )
            .unwrap();
    }
    writer.finish(ProgramEnd::default()).unwrap();
    let bytes = disk.content().len();
    assert!(bytes < 160_000, "{bytes}");
}

/// 1024 frames a stack, more stacks than the tables take.
#[test]
fn too_many_stacks_are_unknown_and_said_to_be() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let mut last = StackId(1);
    for i in 0..4200 {
        let frames = vec![
            Frame {
                module: None,
                address: i
            };
            format::MAX_STACK_FRAMES + 5
        ];
        last = writer.stack(&frames).unwrap();
    }
    assert_eq!(last, StackId(0));
    writer.finish(ProgramEnd::default()).unwrap();
    let reader = read_all(disk.content()).1.unwrap();
    assert_eq!(reader.incomplete().len(), 1);
    assert_eq!(reader.incomplete()[0].reason, IncompleteReason::Limit);
    assert_eq!(reader.tables().frames(StackId(2)).len(), format::MAX_STACK_FRAMES);
}

/// A file of a few kilobytes that would fill the memory.
#[test]
fn a_bomb_does_not_go_off() {
    let mut records = Vec::new();
    while records.len() < format::BLOCK_TARGET {
        records.push(format::tag::STACK);
        format::put_varint(&mut records, 1000);
        records.resize(records.len() + 2000, 0);
    }
    let mut block = Vec::new();
    format::seal_block(&records, 0, 0, &mut block);
    let mut bytes = format::encode_header(&header()).unwrap();
    for _ in 0..200 {
        bytes.extend_from_slice(&block);
    }
    let error = read_all(bytes).1.err().unwrap().to_string();
    assert!(error.contains("too many stacks"), "{error}");
}

#[test]
fn an_access_depends_on_earlier_ones_only() {
    let disk = Disk::new(usize::MAX);
    let mut writer = writer(&disk);
    let at = PmAddress {
        file: FileId(0),
        offset: 64,
    };
    let mut write = |node: u64, on: &[u64]| {
        let depends: Vec<Dependence> = on
            .iter()
            .map(|node| Dependence {
                node: *node,
                control: true,
            })
            .collect();
        let access = EventKind::Access {
            store: true,
            node,
            at,
            len: 8,
            depends: Dependences::of(&depends),
        };
        writer
            .event(ThreadId(0), StackId(0), &access)
            .map_err(|error| error.to_string())
    };
    assert!(write(5, &[5]).unwrap_err().contains("an access depends on a later one"));
    assert!(
        write(u64::MAX, &[5])
            .unwrap_err()
            .contains("the number of an access is out of bounds")
    );
    assert!(
        write(1 << 40, &[3; format::MAX_DEPENDENCES + 1])
            .unwrap_err()
            .contains("too many dependences")
    );
    write(1 << 40, &[3; format::MAX_DEPENDENCES]).unwrap();
}
