//! The patch as a unified diff that `git apply` takes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use super::refusal::Refusal;

/// The changed sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub files: Vec<Changed>,
    /// How flushes and fences are written, for people to read.
    pub idiom: String,
    /// Fixes (their indices in the plan) that have no good source form, with the reason.
    pub impossible: Vec<(usize, Refusal)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Relative to the tree.
    pub path: PathBuf,
    /// `None`: a new file.
    pub old: Option<String>,
    pub new: String,
}

impl Patch {
    pub fn diff(&self) -> String {
        self.files.iter().map(Changed::diff).collect()
    }
}

impl Changed {
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
        let text = TextDiff::from_lines(self.old.as_deref().unwrap_or_default(), &self.new);
        let _ = write!(diff, "{}", text.unified_diff().header(&old_name, &new));
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
