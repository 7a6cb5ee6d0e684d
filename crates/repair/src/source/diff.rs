//! The patch as a unified diff that `git apply` takes.

use std::fmt::Write;
use std::path::Path;

use crashproof_finding::Replacement;
use similar::{DiffOp, DiffTag, TextDiff};

use super::refusal::Refusal;
use crate::paths::SourcePath;

/// The changed sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub files: Vec<Changed>,
    /// How flushes and fences are written, for people to read.
    pub idiom: String,
    /// Fixes (their indices in the plan) that have no good source form, with the reason.
    pub impossible: Vec<(usize, Refusal)>,
}

/// A changed source. Its diff is made from it and never read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Changed {
    pub path: SourcePath,
    /// `None`: a new file.
    pub old: Option<String>,
    pub new: String,
}

pub fn diff(files: &[Changed]) -> String {
    files.iter().map(Changed::diff).collect()
}

/// One change after the other, as one. What does not change in the end is left out.
pub fn combine(first: &[Changed], then: &[Changed]) -> Vec<Changed> {
    let mut combined = first.to_vec();
    for change in then {
        match combined.iter_mut().find(|known| known.path == change.path) {
            Some(known) => known.new.clone_from(&change.new),
            None => combined.push(change.clone()),
        }
    }
    combined.retain(|change| change.old.as_ref() != Some(&change.new));
    combined.sort_by(|a, b| a.path.cmp(&b.path));
    combined
}

impl Changed {
    fn compared(&self) -> TextDiff<'_, '_, '_, str> {
        TextDiff::from_lines(self.old.as_deref().unwrap_or_default(), &self.new)
    }

    /// The lines that the change replaces.
    pub fn replacements(&self) -> Vec<Replacement> {
        let text = self.compared();
        let changed = text.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
        let replacement = |op: &DiffOp| Replacement {
            line: op.old_range().start as u32 + 1,
            deleted: op.old_range().len() as u32,
            inserted: text.new_slices()[op.new_range()].concat(),
        };
        changed.map(replacement).collect()
    }

    fn diff(&self) -> String {
        let (old, new) = (name("a", &self.path), name("b", &self.path));
        let mut diff = String::new();
        let old_name = match self.old {
            Some(_) => old,
            None => {
                // Writing to a string cannot fail.
                let _ = writeln!(diff, "diff --git {old} {new}\nnew file mode 100644");
                "/dev/null".into()
            }
        };
        let _ = write!(diff, "{}", self.compared().unified_diff().header(&old_name, &new));
        diff
    }
}

/// As git quotes it.
fn name(side: &str, path: &Path) -> String {
    let path = format!("{side}/{}", path.to_string_lossy());
    if path.contains(['"', '\\', '\n', '\t']) {
        let escaped = path
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
            .replace('\t', "\\t");
        return format!("\"{escaped}\"");
    }
    match path.contains(' ') {
        // Ends the name for programs that take the rest of the line for a date.
        true => format!("{path}\t"),
        false => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_on_top_of_changes_are_one() {
        let change = |path: &str, old: Option<&str>, new: &str| Changed {
            path: path.into(),
            old: old.map(str::to_owned),
            new: new.to_owned(),
        };
        let first = [change("b.c", Some("1\n"), "2\n"), change("pm.h", None, "x\n")];
        let then = [change("b.c", Some("2\n"), "3\n"), change("a.c", Some("7\n"), "8\n")];
        let combined = combine(&first, &then);
        assert_eq!(
            combined,
            [
                change("a.c", Some("7\n"), "8\n"),
                change("b.c", Some("1\n"), "3\n"),
                change("pm.h", None, "x\n")
            ]
        );
        assert!(diff(&combined).contains("--- a/b.c\n+++ b/b.c\n@@ -1 +1 @@\n-1\n+3\n"));
        assert_eq!(combine(&first[..1], &[change("b.c", Some("2\n"), "1\n")]), []);
    }
}
