//! Which line of the unpatched source a line of the patched one was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crashproof_finding::Replacement;

use crate::paths::plain;
use crate::source::Changed;

/// Made from the changes of a patch.
#[derive(Debug, Default)]
pub struct LineMap {
    /// By the path in the user's tree.
    files: BTreeMap<PathBuf, Vec<Replacement>>,
}

impl LineMap {
    pub fn of(changes: &[Changed], tree: &Path) -> LineMap {
        let file = |change: &Changed| (tree.join(&change.path), change.replacements());
        LineMap {
            files: changes.iter().map(file).collect(),
        }
    }

    /// The old line, or `None` if the patch added it. `file` is one of the user's tree, `line` one of its patched text.
    pub fn old_line(&self, file: &Path, line: u32) -> Option<u32> {
        let line = i64::from(line);
        // How many lines the replacements above the line have added.
        let mut added = 0;
        for replacement in self.files.get(&plain(file)).into_iter().flatten() {
            let start = i64::from(replacement.line) + added;
            let inserted = replacement.inserted.lines().count() as i64;
            if line < start {
                break;
            }
            if line < start + inserted {
                return None;
            }
            added += inserted - i64::from(replacement.deleted);
        }
        u32::try_from(line - added).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(path: &str, old: Option<&str>, new: &str) -> Changed {
        Changed {
            path: path.into(),
            old: old.map(str::to_owned),
            new: new.to_owned(),
        }
    }

    #[test]
    fn lines_are_followed_through_a_patch() {
        let changes = [
            // A name that git quotes.
            change(
                "src/\"log\".c",
                Some("a\nb\nc\nd\ne\nj\nk\n"),
                "a\nb\nx\ny\nd\ne\nj\nz\nk\n",
            ),
            change("new.h", None, "a\nb\n"),
        ];
        let map = LineMap::of(&changes, Path::new("/t"));
        let old = |line| map.old_line(Path::new("/t/./src/\"log\".c"), line);
        assert_eq!((old(1), old(2), old(3), old(4)), (Some(1), Some(2), None, None));
        assert_eq!((old(5), old(6), old(7)), (Some(4), Some(5), Some(6)));
        assert_eq!((old(8), old(9), old(20)), (None, Some(7), Some(18)));
        assert_eq!(map.old_line(Path::new("/t/new.h"), 1), None);
        assert_eq!(map.old_line(Path::new("/t/other.c"), 7), Some(7));
    }

    proptest! {
        /// Every kept line is found again, and no added one; and the replacements make the new text of the old one.
        #[test]
        fn kept_lines_are_found_and_added_ones_are_not(edits in proptest::collection::vec(0..3u8, 1..40), ends in any::<bool>()) {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            let mut expected = Vec::new();
            for (number, edit) in edits.iter().enumerate() {
                // All lines differ, so that it is known which of them are kept.
                let line = format!("{number}\n");
                match edit {
                    0 => old.push(line),
                    1 => { new.push(line); expected.push(None); }
                    _ => { old.push(line.clone()); new.push(line); expected.push(Some(old.len() as u32)); }
                }
            }
            let kept = |lines: &[String]| {
                let text = lines.concat();
                if ends { text } else { text.trim_end().to_owned() }
            };
            let changed = change("f", Some(&old.concat()), &new.concat());
            let map = LineMap::of(std::slice::from_ref(&changed), Path::new("/t"));
            for (index, expected) in expected.into_iter().enumerate() {
                prop_assert_eq!(map.old_line(Path::new("/t/f"), index as u32 + 1), expected);
            }
            prop_assert_eq!(map.old_line(Path::new("/t/f"), new.len() as u32 + 1), Some(old.len() as u32 + 1));

            let changed = change("f", Some(&kept(&old)), &kept(&new));
            let text = changed.old.clone().unwrap_or_default();
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let (mut patched, mut next) = (String::new(), 0);
            for replacement in changed.replacements() {
                let start = replacement.line as usize - 1;
                patched += &lines[next..start].concat();
                patched += &replacement.inserted;
                next = start + replacement.deleted as usize;
            }
            patched += &lines[next..].concat();
            prop_assert_eq!(patched, changed.new);
        }
    }
}
