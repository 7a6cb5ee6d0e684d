//! How much a program did to each PM file of a trace.

use rustc_hash::FxHashMap;

use crate::event::{Event, EventKind, FileId, ThreadId};
use crate::tables::Tables;

/// What a trace says of one PM file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    pub stores: u64,
    pub flushes: u64,
    /// msync, fsync, fdatasync.
    pub syncs: u64,
    /// The program had mapped it.
    pub mapped: bool,
    /// The program deleted it. A file in whose place another one was put is not deleted: its data lived on.
    pub unlinked: bool,
    /// It had no name when it was first stored to.
    pub unlinked_first: bool,
    /// It was made without a name.
    unnamed: bool,
}

/// The use of all files, from the events that it is shown in order.
#[derive(Clone, Debug, Default)]
pub struct FileUses {
    files: Vec<FileUse>,
    /// Of files that were renamed.
    names: FxHashMap<FileId, String>,
    /// Who gave a file a new name last, and which.
    last_rename: Option<(ThreadId, FileId, String)>,
}

impl FileUses {
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
        // The new name of a file comes first, that it replaces another one comes second.
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
        // A file that gets a name after all is data.
        file.unlinked_first &= file.unlinked;
    }

    /// The name that a file has which was made without one.
    pub fn late_name(&self, file: FileId) -> Option<&str> {
        let was_unnamed = self.files.get(file.index()).is_some_and(|file| file.unnamed);
        self.names.get(&file).map(String::as_str).filter(|_| was_unnamed)
    }

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
