//! The files of which the trace has no events, collected until the end: a file that could not be opened at first, or was
//! mapped privately first, may be recorded later.

use crashproof_trace::LeftOut;
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
    pub(crate) fn add(&mut self, file: LeftOut) {
        if let Some(&index) = self.by_path.get(&file.path) {
            let known = &mut self.files[index];
            if known.reason.is_about_one_use() {
                *known = file;
            }
            return;
        }
        if self.files.len() < MAX_FILES {
            self.by_path.insert(file.path.clone(), self.files.len());
            self.files.push(file);
        }
    }

    /// A file whose events are in the trace.
    pub(crate) fn recorded(&mut self, path: &str) {
        self.recorded.insert(path.to_owned());
    }

    /// What the trace says at its end.
    pub(crate) fn finish(&mut self) -> Vec<LeftOut> {
        let mut files = std::mem::take(&mut self.files);
        files.retain(|file| !(file.reason.is_about_one_use() && self.recorded.contains(&file.path)));
        files
    }
}

#[cfg(test)]
mod tests {
    use crashproof_trace::LeftOutReason;

    use super::*;

    #[test]
    fn a_file_is_named_once_and_not_if_it_was_recorded_after_all() {
        let mut files = LeftOutFiles::default();
        let left = |path: &str, reason| LeftOut {
            path: path.into(),
            reason,
            errno: (reason == LeftOutReason::OpenFailed).then_some(2),
        };
        files.add(left("/a/pool", LeftOutReason::OpenFailed));
        files.add(left("/a/lock.mdb", LeftOutReason::LockFile));
        files.add(left("/a/lock.mdb", LeftOutReason::ReadOnly));
        files.add(left("/a/other", LeftOutReason::OpenFailed));
        files.add(left("/a/other", LeftOutReason::NotSelected));
        files.recorded("/a/pool");
        assert_eq!(
            files.finish(),
            [
                left("/a/lock.mdb", LeftOutReason::LockFile),
                left("/a/other", LeftOutReason::NotSelected)
            ]
        );
    }
}
