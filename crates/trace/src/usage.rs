//! The use that a program made of each PM file of a trace.

use rustc_hash::FxHashMap;

use crate::event::{Event, EventKind, FileId, ThreadId};
use crate::tables::Tables;

/// The use of one PM file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Number of store events.
    pub stores: u64,
    /// Number of flush events.
    pub flushes: u64,
    /// Number of msync, fsync and fdatasync events.
    pub syncs: u64,
    /// Whether the program mapped the file.
    pub mapped: bool,
    /// Whether the program deleted the file. A file that another one replaced is not deleted, because its
    /// data lived on.
    pub unlinked: bool,
    /// Whether the file had no name when it was first stored to, and got none later.
    pub unlinked_first: bool,
    /// Whether the file was made without a name.
    unnamed: bool,
}

/// The use of all files, counted from all events in order.
#[derive(Clone, Debug, Default)]
pub struct FileUses {
    files: Vec<FileUse>,
    /// Present paths of the files that were renamed.
    names: FxHashMap<FileId, String>,
    /// The last event that gave a file a new path: its thread, the file and the path.
    last_rename: Option<(ThreadId, FileId, String)>,
}

impl FileUses {
    /// Counts the next event. `tables` are those of the trace.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, tables: &Tables) {
        match event.kind {
            EventKind::Store { at, .. } => {
                let file = self.file(at.file);
                file.unlinked_first |= file.stores == 0 && file.unlinked;
                file.stores += 1;
            }
            EventKind::Flush { at, .. } => self.file(at.file).flushes += 1,
            EventKind::Sync { file, .. } => self.file(file).syncs += 1,
            EventKind::Map { file, .. } => self.file(file).mapped = true,
            EventKind::Rename { file, path } => self.rename(event, file, path, tables),
            _ => {}
        }
    }

    #[cold]
    fn rename(&mut self, event: &Event<'_>, file: FileId, path: Option<&str>, tables: &Tables) {
        let name = match self.names.get(&file) {
            Some(name) => Some(name.as_str()),
            None => tables.file(file).map(|file| file.path.as_str()),
        };
        // A rename over a file is two events of one thread: the new path of the one, then the loss of the
        // other.
        let replaced = self.last_rename.as_ref().is_some_and(|(thread, moved, new)| {
            *thread == event.thread && *moved != file && Some(new.as_str()) == name
        });
        self.last_rename = path.map(|path| (event.thread, file, path.to_owned()));
        if let Some(path) = path {
            self.names.insert(file, path.to_owned());
        }
        let file = self.file(file);
        file.unnamed |= path.is_none() && !file.mapped && !replaced;
        file.unlinked = path.is_none() && !replaced;
        // A file that gets a name later is data.
        file.unlinked_first &= file.unlinked;
    }

    /// The path of a file that was made without a name and got one later.
    pub fn late_name(&self, file: FileId) -> Option<&str> {
        let was_unnamed = self.files.get(file.index()).is_some_and(|file| file.unnamed);
        self.names.get(&file).map(String::as_str).filter(|_| was_unnamed)
    }

    /// The use of a file up to the last event counted.
    pub fn of(&self, file: FileId) -> FileUse {
        self.files.get(file.index()).copied().unwrap_or_default()
    }

    #[inline]
    fn file(&mut self, id: FileId) -> &mut FileUse {
        if id.index() >= self.files.len() {
            self.files.resize(id.index() + 1, FileUse::default());
        }
        &mut self.files[id.index()]
    }
}
