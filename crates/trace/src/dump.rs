//! Items of a trace as text, one line each: `#123 T1 store pool+0x1040 len 8 [01 00 …] nt`.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use crate::event::*;
use crate::reader::Item;
use crate::tables::Tables;

/// Bytes of data that are shown.
const SHOWN: usize = 16;

/// The item as one line of text, without its stack.
pub fn describe<'a>(item: &'a Item<'a>, tables: &'a Tables) -> impl Display + 'a {
    fmt::from_fn(move |f| match item {
        Item::Initial { at, data } => write!(f, "initial {} len {} {}", address(*at, tables), data.len(), bytes(data)),
        Item::Event(event) => {
            write!(f, "#{} T{} ", event.seq, event.thread.0)?;
            event_kind(f, &event.kind, tables)?;
            match event.begun() == event.seq {
                true => Ok(()),
                false => write!(f, " begun #{}", event.begun()),
            }
        }
    })
}

/// A byte of a PM file as text: `name+0xoffset`, with the last part of the file's path.
pub fn address(at: PmAddress, tables: &Tables) -> impl Display + '_ {
    fmt::from_fn(move |f| write!(f, "{}+{:#x}", file_name(at.file, tables), at.offset))
}

fn event_kind(f: &mut Formatter, kind: &EventKind, tables: &Tables) -> fmt::Result {
    let range = |file, offset, len| {
        fmt::from_fn(move |f| write!(f, "{} len {len}", address(PmAddress { file, offset }, tables)))
    };
    match *kind {
        EventKind::Store { at, data, flags } => {
            write!(f, "store {} len {} {}", address(at, tables), data.len(), bytes(data))?;
            for (set, name) in [
                (flags.nontemporal, " nt"),
                (flags.locked, " locked"),
                (flags.syscall, " syscall"),
                (flags.exchange, " exchange"),
            ] {
                f.write_str(if set { name } else { "" })?;
            }
            Ok(())
        }
        EventKind::Flush { at, kind } => {
            let kind = match kind {
                FlushKind::Clwb => "clwb",
                FlushKind::Clflushopt => "clflushopt",
                FlushKind::Clflush => "clflush",
            };
            write!(f, "{kind} {}", address(at, tables))
        }
        EventKind::Fence { kind } => f.write_str(match kind {
            FenceKind::Sfence => "sfence",
            FenceKind::Mfence => "mfence",
            FenceKind::Locked => "locked",
        }),
        EventKind::Map {
            file,
            address,
            offset,
            len,
            writable,
        } => {
            let access = if writable { "read-write" } else { "read-only" };
            write!(f, "map {} at {address:#x} {access}", range(file, offset, len))
        }
        EventKind::Unmap { file, offset, len } => write!(f, "unmap {}", range(file, offset, len)),
        EventKind::Resize { file, size } => write!(f, "resize {} to {size}", file_name(file, tables)),
        EventKind::FileWrite { at, data } => {
            write!(f, "write {} len {} {}", address(at, tables), data.len(), bytes(data))
        }
        EventKind::Rename { file, path: Some(path) } => {
            write!(f, "rename {} to {}", file_name(file, tables), path.escape_debug())
        }
        EventKind::Rename { file, path: None } => write!(f, "unlink {}", file_name(file, tables)),
        EventKind::Sync { file, offset, len } => write!(f, "sync {}", range(file, offset, len)),
        EventKind::Output { fd, data } => {
            write!(
                f,
                "output fd {fd} len {} \"{}\"",
                data.len(),
                data[..data.len().min(4 * SHOWN)].escape_ascii()
            )?;
            f.write_str(if data.len() > 4 * SHOWN { "…" } else { "" })
        }
        EventKind::Call {
            name,
            arguments: [a, b, c, d, e, g],
        } => {
            write!(
                f,
                "call {}({a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}, {g:#x})",
                name.escape_debug()
            )
        }
        EventKind::Return(returned) => write!(f, "return {returned}"),
        EventKind::Annotation(annotation) => write!(f, "annotation {annotation}"),
        EventKind::Request {
            request,
            transaction,
            range: place,
        } => {
            let request = match request {
                Request::SetClean => "set-clean",
                Request::TxBegin => "tx-begin",
                Request::TxEnd => "tx-end",
                Request::TxAdd => "tx-add",
                Request::TxRemove => "tx-remove",
                Request::TxIgnore => "tx-ignore",
                Request::Volatile => "volatile",
                Request::Persistent => "persistent",
                Request::TxJoin => "tx-join",
                Request::TxLeave => "tx-leave",
            };
            write!(f, "request {request} tx {transaction}")?;
            match place {
                Some((at, len)) => write!(f, " {}", range(at.file, at.offset, len)),
                None => Ok(()),
            }
        }
        EventKind::ThreadStart { process, os_id } => write!(f, "thread-start P{} tid {os_id}", process.0),
        EventKind::ProcessStart {
            process,
            pid,
            parent,
            executable,
        } => {
            write!(f, "process-start P{} pid {pid}", process.0)?;
            if let Some(parent) = parent {
                write!(f, " parent P{}", parent.0)?;
            }
            write!(f, " {}", executable.escape_debug())
        }
        EventKind::ProcessEnd { process, killed } => {
            write!(f, "process-end P{}{}", process.0, if killed { " killed" } else { "" })
        }
        EventKind::Quiet => f.write_str("quiet"),
        EventKind::Access {
            store,
            node,
            at,
            len,
            depends,
        } => {
            let what = if store { "stores" } else { "loads" };
            write!(f, "access {node} {what} {} len {len}", address(at, tables))?;
            for (index, on) in depends.iter().enumerate() {
                let (comma, how) = (
                    if index == 0 { " after" } else { "," },
                    if on.control { "control" } else { "data" },
                );
                write!(f, "{comma} {how} {}", on.node)?;
            }
            Ok(())
        }
        EventKind::Path { blocks, cuts } => write!(f, "path {blocks:#018x} cuts {cuts}"),
    }
}

fn file_name(file: FileId, tables: &Tables) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        match tables
            .file(file)
            .and_then(|file| Path::new(&file.path).file_name()?.to_str())
        {
            Some(name) => write!(f, "{}", name.escape_debug()),
            None => write!(f, "file{}", file.0),
        }
    })
}

fn bytes(data: &[u8]) -> impl Display + '_ {
    fmt::from_fn(move |f| {
        f.write_str("[")?;
        for (i, byte) in data.iter().take(SHOWN).enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        f.write_str(if data.len() > SHOWN { " …]" } else { "]" })
    })
}
