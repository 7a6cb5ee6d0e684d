//! Traces made by hand, of a program that never was.

use std::path::{Path, PathBuf};

use crashproof_trace::*;
use tempfile::TempDir;

/// A program that stores to line 0 and to line 1 and flushes only line 0, which is a missing flush of line 1 unless
/// `flush_both`.
pub(crate) struct Made {
    pub flush_both: bool,
    pub incomplete: Option<&'static str>,
}

pub(crate) const CLEAN: Made = Made {
    flush_both: true,
    incomplete: None,
};
pub(crate) const BUGGY: Made = Made {
    flush_both: false,
    incomplete: None,
};

impl Made {
    pub(crate) fn write(&self, folder: &TempDir, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        self.try_write(&path).expect("the trace is written");
        path
    }

    fn try_write(&self, path: &Path) -> Result<(), WriteError> {
        let header = Header {
            command: vec!["./made".into()],
            ..Header::default()
        };
        let mut writer = TraceWriter::create(path, &header)?;
        let module = Module {
            path: "/no/such/made".into(),
            build_id: Vec::new(),
            locked_sites: 0,
            place: None,
        };
        let module = writer.module(&module)?;
        let mut stack = |address| {
            writer.stack(&[Frame {
                module: Some(module),
                address,
            }])
        };
        let (store_stack, flush_stack) = (stack(0x1100)?, stack(0x1200)?);
        let file = writer.file(&PmFile {
            path: "/mnt/pm/pool".into(),
            size: 4096,
            created: false,
            kind: PmFileKind::File,
        })?;
        let at = |offset| PmAddress { file, offset };
        let (thread, process, none) = (ThreadId(0), ProcessId(0), StackId(0));
        let start = EventKind::ProcessStart {
            process,
            pid: 7,
            parent: None,
            executable: "/no/such/made",
        };
        writer.event(thread, none, &start)?;
        writer.event(thread, none, &EventKind::ThreadStart { process, os_id: 7 })?;
        writer.event(
            thread,
            none,
            &EventKind::Map {
                file,
                address: 0x10000,
                offset: 0,
                len: 4096,
                writable: true,
            },
        )?;
        let flags = StoreFlags::default();
        writer.event(
            thread,
            store_stack,
            &EventKind::Store {
                at: at(0),
                data: &[1; 8],
                flags,
            },
        )?;
        writer.event(
            thread,
            store_stack,
            &EventKind::Store {
                at: at(64),
                data: &[2; 8],
                flags,
            },
        )?;
        writer.event(
            thread,
            flush_stack,
            &EventKind::Flush {
                at: at(0),
                kind: FlushKind::Clwb,
            },
        )?;
        if self.flush_both {
            writer.event(
                thread,
                flush_stack,
                &EventKind::Flush {
                    at: at(64),
                    kind: FlushKind::Clwb,
                },
            )?;
        }
        writer.event(
            thread,
            flush_stack,
            &EventKind::Fence {
                kind: FenceKind::Sfence,
            },
        )?;
        writer.event(
            thread,
            none,
            &EventKind::Unmap {
                file,
                offset: 0,
                len: 4096,
            },
        )?;
        writer.event(thread, none, &EventKind::ProcessEnd { process, killed: false })?;
        if let Some(detail) = self.incomplete {
            writer.incomplete(&Incomplete {
                reason: IncompleteReason::Limit,
                detail: detail.into(),
            })?;
        }
        writer.finish(ProgramEnd {
            status: Some(0),
            ..ProgramEnd::default()
        })
    }
}
