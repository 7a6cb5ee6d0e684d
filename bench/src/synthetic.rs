//! Traces of any length: stores, flushes and fences of a right program, at successive or at random places of a 1 GiB file.

use crashproof_trace::*;
use std::path::Path;

const FILE_BYTES: u64 = 1 << 30;

pub(crate) fn write(path: &Path, events: u64, random: bool) {
    let header = Header {
        command: vec!["synthetic".into()],
        ..Header::default()
    };
    let mut writer = TraceWriter::create(path, &header).expect("a writable disk");
    let mut fill = || -> Result<(), WriteError> {
        let module = Module {
            path: "/nowhere/synthetic".into(),
            build_id: vec![1; 20],
            locked_sites: 0,
            place: None,
        };
        let module = Some(writer.module(&module)?);
        let mut stacks = Vec::new();
        for address in 0..64 {
            stacks.push(writer.stack(&[
                Frame {
                    module,
                    address: 0x1000 + address,
                },
                Frame { module, address: 0x900 },
            ])?);
        }
        let file = writer.file(&PmFile {
            path: "/nowhere/pool".into(),
            size: FILE_BYTES,
            created: false,
            kind: PmFileKind::File,
        })?;
        let (thread, process) = (ThreadId(0), ProcessId(0));
        let start = EventKind::ProcessStart {
            process,
            pid: 1,
            parent: None,
            executable: "/nowhere/synthetic",
        };
        writer.event(thread, StackId(0), &start)?;
        writer.event(thread, StackId(0), &EventKind::ThreadStart { process, os_id: 1 })?;
        let map = EventKind::Map {
            file,
            address: 0x2000_0000_0000,
            offset: 0,
            len: FILE_BYTES,
            writable: true,
        };
        writer.event(thread, stacks[0], &map)?;
        let mut state = 1u64;
        let mut written = 3;
        while written < events {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let line = if random {
                (state >> 20) % (FILE_BYTES / 64)
            } else {
                written / 7 % (FILE_BYTES / 64)
            };
            let stack = (state >> 50) as usize % 60;
            for word in 0..5u64 {
                let data = (state ^ word).to_le_bytes();
                let at = PmAddress {
                    file,
                    offset: line * 64 + word * 8,
                };
                let store = EventKind::Store {
                    at,
                    data: &data,
                    flags: StoreFlags::default(),
                };
                writer.event(thread, stacks[stack + word as usize % 4], &store)?;
            }
            let at = PmAddress {
                file,
                offset: line * 64,
            };
            writer.event(
                thread,
                stacks[61],
                &EventKind::Flush {
                    at,
                    kind: FlushKind::Clwb,
                },
            )?;
            writer.event(
                thread,
                stacks[62],
                &EventKind::Fence {
                    kind: FenceKind::Sfence,
                },
            )?;
            written += 7;
        }
        Ok(())
    };
    fill().expect("a disk with room for the trace");
    writer
        .finish(ProgramEnd {
            status: Some(0),
            ..ProgramEnd::default()
        })
        .expect("a disk with room for the trace");
}
