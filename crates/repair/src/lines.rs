//! Where the lines of a patched tree come from.

use std::path::Path;

use crate::paths::plain;
use crate::source::{Changed, Origin};

/// The lines of the user's tree with some changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatchedLines<'a> {
    pub changes: &'a [Changed],
    pub tree: &'a Path,
}

impl PatchedLines<'_> {
    /// `file` is one of the user's tree, `line` one of its patched text.
    pub(crate) fn origin(&self, file: &Path, line: u32) -> Origin {
        let file = plain(file);
        let is_it = |change: &&Changed| self.tree.join(&change.path) == file;
        let change = self.changes.iter().find(is_it);
        change.map_or(Origin::Kept(line), |change| change.origin(line))
    }
}
