//! Files of the source tree, in the user's tree and in the working copies: the only place that translates between them.
//!
//! Findings and changes are translated as values. Text is what others wrote (the output of programs, logs), or what is written for the user.

use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};

use crashproof_finding::{Finding, Report};

use crate::plan::Plan;

/// A file of the source tree, relative to its root: the same in every copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePath(PathBuf);

impl SourcePath {
    /// `None` if the path is not below the root.
    pub fn of(root: &Path, path: &Path) -> Option<SourcePath> {
        path.strip_prefix(root).ok().map(|inside| SourcePath(inside.to_owned()))
    }
}

impl Deref for SourcePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for SourcePath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
impl From<&str> for SourcePath {
    fn from(path: &str) -> SourcePath {
        SourcePath(path.into())
    }
}

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InTree {
    Word(OsString),
    Path(SourcePath),
}

/// Without `.` and `..`; the path need not exist.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// A copy of the user's tree.
pub struct WorkingCopy {
    root: PathBuf,
    tree: PathBuf,
    /// Where commands are run.
    pub work: PathBuf,
}

impl WorkingCopy {
    /// `folder`: where commands are run, relative to the root.
    pub fn new(root: PathBuf, tree: PathBuf, folder: &Path) -> WorkingCopy {
        WorkingCopy {
            work: root.join(folder),
            root,
            tree,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn words(&self, command: &[InTree]) -> Vec<OsString> {
        let word = |word: &InTree| match word {
            InTree::Word(word) => word.clone(),
            InTree::Path(path) => self.root.join(path).into(),
        };
        command.iter().map(word).collect()
    }

    /// The file that a command starts, if it is in the copy (or is named by a path at all).
    pub fn program(&self, words: &[OsString]) -> Option<PathBuf> {
        let first: &OsStr = words.first()?;
        let named = first.as_encoded_bytes().contains(&b'/');
        named.then(|| plain(&self.work.join(first)))
    }

    /// Text that names files of the copy, as it names those of the user's tree.
    pub fn to_tree(&self, text: &str) -> String {
        replace_path(text, &self.root.to_string_lossy(), &self.tree.to_string_lossy())
    }

    /// The other way round.
    pub fn text_from_tree(&self, text: &str) -> String {
        replace_path(text, &self.tree.to_string_lossy(), &self.root.to_string_lossy())
    }

    pub fn path_to_tree(&self, path: &Path) -> PathBuf {
        SourcePath::of(&self.root, path).map_or_else(|| path.to_owned(), |inside| self.tree.join(inside))
    }

    /// A plan for the copy, as one for the user's tree.
    pub(crate) fn plan_to_tree(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.for_each_place_mut(&mut |place| {
            if let Some(position) = &mut place.position {
                position.file = self.path_to_tree(&position.file);
            }
        });
        plan.for_each_reason_mut(&mut |reason| *reason = self.to_tree(reason));
        plan
    }

    /// A report on the copy, as one on the user's tree.
    pub fn report_to_tree(&self, report: &Report) -> Report {
        let mut report = report.clone();
        report.findings.iter_mut().for_each(forget_states);
        report.for_each_text_mut(&mut |text| *text = self.to_tree(text));
        report
    }

    pub fn findings_to_tree(&self, findings: &[Finding]) -> Vec<Finding> {
        findings.iter().map(|finding| self.finding_to_tree(finding)).collect()
    }

    pub fn finding_to_tree(&self, finding: &Finding) -> Finding {
        let mut finding = finding.clone();
        forget_states(&mut finding);
        finding.for_each_text_mut(&mut |text| *text = self.to_tree(text));
        finding
    }

    /// A finding of another build, with the source files of the copy. Its numbers of events are those of another trace.
    pub fn finding_from_tree(&self, mut finding: Finding) -> Finding {
        let rename = |file: &mut Option<String>| {
            if let Some(path) = file {
                *path = self.path_from_tree(Path::new(path)).to_string_lossy().into_owned();
            }
        };
        rename(&mut finding.file);
        finding.for_each_frame_mut(&mut |frame| rename(&mut frame.file));
        for order in &mut finding.order {
            (order.before_event, order.after_event) = (None, None);
        }
        if let Some(crash) = &mut finding.crash {
            crash.event = None;
            let stores = crash.persisted.iter_mut().chain(&mut crash.missing);
            stores.for_each(|store| store.event = None);
        }
        finding
    }

    /// A path of the tree in the copy. What was built elsewhere is recognised by the end of its path.
    fn path_from_tree(&self, path: &Path) -> PathBuf {
        if let Some(inside) = SourcePath::of(&self.tree, path) {
            return self.root.join(inside);
        }
        if path.is_relative() {
            return self.root.join(path);
        }
        if path.exists() {
            return path.to_owned();
        }
        let mut rest = path.components();
        while rest.next().is_some() {
            let inside = self.root.join(rest.as_path());
            if !rest.as_path().as_os_str().is_empty() && inside.is_file() {
                return inside;
            }
        }
        path.to_owned()
    }
}

/// The saved states of a finding are of the copy, and gone with it.
fn forget_states(finding: &mut Finding) {
    if let Some(crash) = &mut finding.crash {
        crash.replay = None;
    }
}

/// Replaces `from` where it is a whole path or the beginning of one.
fn replace_path(text: &str, from: &str, to: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        // A point ends a sentence, or goes on with a name: `after.log` lies beside `after`.
        let name = after.strip_prefix('.').unwrap_or(after);
        let goes_on = name.starts_with(|c: char| c.is_alphanumeric() || "_-+~".contains(c));
        result.push_str(before);
        result.push_str(if goes_on { from } else { to });
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_are_replaced() {
        let replaced = |text| replace_path(text, "/tmp/r/after", "/home/u/app");
        assert_eq!(replaced("/tmp/r/after/a.c:3: error"), "/home/u/app/a.c:3: error");
        assert_eq!(replaced("in /tmp/r/after: no"), "in /home/u/app: no");
        assert_eq!(replaced("/tmp/r/after-2/a.c"), "/tmp/r/after-2/a.c");
        assert_eq!(replaced("/tmp/r/after.crashes/1"), "/tmp/r/after.crashes/1");
        assert_eq!(replaced("not in /tmp/r/after."), "not in /home/u/app.");
        assert_eq!(
            replaced("-I/tmp/r/after -L/tmp/r/after/lib"),
            "-I/home/u/app -L/home/u/app/lib"
        );
    }

    #[test]
    fn paths_of_other_machines_are_found_by_their_end() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("src")).unwrap();
        std::fs::write(root.path().join("src/log.c"), "").unwrap();
        let copy = WorkingCopy::new(root.path().into(), "/home/u/app".into(), Path::new(""));
        let here = root.path().join("src/log.c");
        for path in ["/home/u/app/src/log.c", "/build/7/app/src/log.c", "src/log.c"] {
            assert_eq!(copy.path_from_tree(Path::new(path)), here, "{path}");
        }
        assert_eq!(
            copy.path_from_tree(Path::new("/build/7/other.c")),
            Path::new("/build/7/other.c")
        );
        assert_eq!(copy.path_to_tree(&here), Path::new("/home/u/app/src/log.c"));
    }

    #[test]
    fn dots_go_away() {
        assert_eq!(plain(Path::new("/a/./b/../c")), Path::new("/a/c"));
        assert_eq!(plain(Path::new("/../a")), Path::new("/a"));
    }
}
