//! The files of which the trace has no events, collected until the end: a file that could not be opened at first, or was
//! mapped privately first, may be recorded later.

use crashproof_trace::{LeftOut, LeftOutReason};
use rustc_hash::{FxHashMap, FxHashSet};

/// More than a report shows. A program that tries endless names does not fill the memory.
const MAX_FILES: usize = 4096;

#[derive(Default)]
pub(crate) struct LeftOutFiles {
    /// In the order in which they appeared.
    files: Vec<LeftOut>,
    /// By path: where in `files`.
    by_path: FxHashMap<String, usize>,
    /// Paths of files that are in the trace.
    recorded: FxHashSet<String>,
}

impl LeftOutFiles {
    /// A file that the runtime leaves out. The first reason that is about the file itself stays.
    pub(crate) fn add(&mut self, path: String, reason: LeftOutReason) {
        if let Some(&index) = self.by_path.get(&path) {
            let known = &mut self.files[index].reason;
            if is_about_one_use(*known) {
                *known = reason;
            }
            return;
        }
        if self.files.len() < MAX_FILES {
            self.by_path.insert(path.clone(), self.files.len());
            self.files.push(LeftOut { path, reason });
        }
    }

    /// A file whose events are in the trace.
    pub(crate) fn recorded(&mut self, path: &str) {
        self.recorded.insert(path.to_owned());
    }

    /// What the trace says at its end.
    pub(crate) fn finish(&mut self) -> Vec<LeftOut> {
        let mut files = std::mem::take(&mut self.files);
        files.retain(|file| !(is_about_one_use(file.reason) && self.recorded.contains(&file.path)));
        files
    }
}

/// Whether another use of the same file may be recorded, and says more.
fn is_about_one_use(reason: LeftOutReason) -> bool {
    matches!(
        reason,
        LeftOutReason::ReadOnly | LeftOutReason::Private | LeftOutReason::OpenFailed { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_once_and_not_if_it_was_recorded_after_all() {
        let mut files = LeftOutFiles::default();
        let failed = LeftOutReason::OpenFailed { errno: 2 };
        files.add("/a/pool".into(), failed);
        files.add("/a/lock.mdb".into(), LeftOutReason::LockFile);
        files.add("/a/lock.mdb".into(), LeftOutReason::ReadOnly);
        files.add("/a/other".into(), failed);
        files.add("/a/other".into(), LeftOutReason::NotSelected);
        files.recorded("/a/pool");
        let left = |path: &str, reason| LeftOut {
            path: path.into(),
            reason,
        };
        assert_eq!(
            files.finish(),
            [
                left("/a/lock.mdb", LeftOutReason::LockFile),
                left("/a/other", LeftOutReason::NotSelected)
            ]
        );
    }
}
