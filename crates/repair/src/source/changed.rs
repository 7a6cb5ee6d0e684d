//! The changed sources: each line with its origin, and each change with what it is made for; and their unified diff, which
//! `git apply` takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use crashproof_finding::Replacement;
use similar::TextDiff;

use super::refusal::Refusal;
use super::text::SourceFile;
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

/// The fix that a change belongs to. The fix says for which findings it is made, what it does and why that is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Of the plan: its index.
    Fix(usize),
    /// Of what is put in order: its index.
    Order(usize),
}

/// A piece of a text that gives way to another.
#[derive(Clone, Debug)]
pub(crate) struct Splice {
    /// In bytes.
    pub range: Range<usize>,
    pub text: String,
    pub causes: BTreeSet<Cause>,
}

/// Where a line of a changed text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is this line, from 1, of the unchanged text.
    Kept(u32),
    Added(BTreeSet<Cause>),
}

/// A changed source. Its diff is made from it and never read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub path: SourcePath,
    /// `None`: a new file.
    pub old: Option<String>,
    pub new: String,
    /// Of each line of the new text.
    origins: Vec<Origin>,
    /// Lines of the old text, from 1, that the new one has no more.
    removed: BTreeMap<u32, BTreeSet<Cause>>,
}

/// The splices of a range in the order of the text; of those at one place, in the order in which they were made. A
/// replacement goes before what comes behind it. What overlaps with one before it is left out.
pub(crate) fn in_order(mut splices: Vec<Splice>, range: &Range<usize>) -> Vec<Splice> {
    splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
    let mut from = range.start;
    splices.retain(|Splice { range: at, .. }| {
        let fits = at.start >= from && at.end <= range.end;
        if fits {
            from = at.end;
        }
        fits
    });
    splices
}

pub fn diff(files: &[Changed]) -> String {
    files.iter().map(Changed::diff).collect()
}

/// One change after the other, as one. What does not change in the end is left out.
pub fn combine(first: &[Changed], then: &[Changed]) -> Vec<Changed> {
    let mut combined = first.to_vec();
    for change in then {
        match combined.iter_mut().find(|known| known.path == change.path) {
            Some(known) => known.then(change),
            None => combined.push(change.clone()),
        }
    }
    combined.retain(|change| change.old.as_ref() != Some(&change.new));
    combined.sort_by(|a, b| a.path.cmp(&b.path));
    combined
}

impl Changed {
    pub(crate) fn new(path: SourcePath, file: &SourceFile, splices: Vec<Splice>) -> Changed {
        let splices = in_order(splices, &(0..file.text.len()));
        let mut lines = Lines {
            file,
            changed: Changed {
                path,
                old: Some(file.text.clone()),
                new: String::new(),
                origins: Vec::new(),
                removed: BTreeMap::new(),
            },
            line: Line::default(),
        };
        let mut from = 0;
        for splice in &splices {
            lines.keep(from..splice.range.start);
            lines.add(splice);
            from = splice.range.end;
        }
        lines.keep(from..file.text.len());
        lines.finish(&splices)
    }

    /// A new file.
    pub(crate) fn file(path: SourcePath, text: &str, causes: &BTreeSet<Cause>) -> Changed {
        Changed {
            path,
            old: None,
            new: text.to_owned(),
            origins: text.lines().map(|_| Origin::Added(causes.clone())).collect(),
            removed: BTreeMap::new(),
        }
    }

    /// Where a line of the new text, from 1, comes from. Behind the end, lines are counted on.
    pub fn origin(&self, line: u32) -> Origin {
        let index = (line as usize).saturating_sub(1);
        self.origins.get(index).cloned().unwrap_or_else(|| {
            let old = self.old.as_deref().unwrap_or_default().lines().count();
            Origin::Kept((index + 1 + old - self.origins.len()) as u32)
        })
    }

    /// The lines that are made for a cause: those of the new text that it adds, then those of the old one that it removes.
    pub fn of(&self, cause: Cause) -> impl Iterator<Item = LineChange<'_>> {
        let added = (1..).zip(&self.origins).zip(self.new.lines());
        let added =
            added.filter(move |((_, origin), _)| matches!(origin, Origin::Added(causes) if causes.contains(&cause)));
        let old: Vec<&str> = self.old.as_deref().unwrap_or_default().lines().collect();
        let removed = self.removed.iter().filter(move |(_, causes)| causes.contains(&cause));
        let removed = removed.map(move |(&line, _)| LineChange {
            line,
            is_added: false,
            text: old.get(line as usize - 1).copied().unwrap_or_default(),
        });
        let added = added.map(|((line, _), text)| LineChange {
            line,
            is_added: true,
            text,
        });
        added.chain(removed)
    }

    /// Lets the fixes of orders be counted from another number.
    pub(crate) fn with_orders_from(mut self, first: usize) -> Changed {
        let count_on = |causes: &mut BTreeSet<Cause>| {
            let counted = std::mem::take(causes).into_iter().map(|cause| match cause {
                Cause::Order(index) => Cause::Order(first + index),
                fix => fix,
            });
            *causes = counted.collect();
        };
        self.removed.values_mut().for_each(count_on);
        for origin in &mut self.origins {
            if let Origin::Added(causes) = origin {
                count_on(causes);
            }
        }
        self
    }

    /// A change of the new text.
    fn then(&mut self, change: &Changed) {
        for (&line, causes) in &change.removed {
            if let Origin::Kept(old) = self.origin(line) {
                self.removed.insert(old, causes.clone());
            }
        }
        let origin = |origin: &Origin| match origin {
            Origin::Kept(line) => self.origin(*line),
            added => added.clone(),
        };
        self.origins = change.origins.iter().map(origin).collect();
        self.new.clone_from(&change.new);
    }

    /// The lines that the change replaces.
    pub fn replacements(&self) -> Vec<Replacement> {
        let old: Vec<&str> = self.old.as_deref().unwrap_or_default().split_inclusive('\n').collect();
        let mut replacements = Vec::new();
        let mut inserted = String::new();
        // The first old line that is not done with.
        let mut next = 0;
        let mut replace = |next: usize, to: usize, inserted: &mut String| {
            if next < to || !inserted.is_empty() {
                replacements.push(Replacement {
                    line: next as u32 + 1,
                    deleted: (to - next) as u32,
                    inserted: std::mem::take(inserted),
                });
            }
        };
        for (origin, text) in self.origins.iter().zip(self.new.split_inclusive('\n')) {
            match *origin {
                // The last line may have got a line break.
                Origin::Kept(line) if old[line as usize - 1] == text => {
                    replace(next, line as usize - 1, &mut inserted);
                    next = line as usize;
                }
                _ => inserted.push_str(text),
            }
        }
        replace(next, old.len(), &mut inserted);
        replacements
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
        let compared = TextDiff::from_lines(self.old.as_deref().unwrap_or_default(), &self.new);
        let _ = write!(diff, "{}", compared.unified_diff().header(&old_name, &new));
        diff
    }
}

/// A line that a change adds or removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineChange<'a> {
    /// From 1: of the new text if it is added, else of the old one.
    pub line: u32,
    pub is_added: bool,
    pub text: &'a str,
}

/// A changed text under construction.
struct Lines<'a> {
    file: &'a SourceFile,
    changed: Changed,
    line: Line,
}

/// The line of the new text that is being written.
#[derive(Default)]
struct Line {
    text: String,
    /// The old line that its first kept byte is of.
    kept: Option<usize>,
    has_added_text: bool,
    causes: BTreeSet<Cause>,
}

impl Lines<'_> {
    fn keep(&mut self, range: Range<usize>) {
        let mut start = range.start;
        for part in self.file.text[range].split_inclusive('\n') {
            self.line.kept.get_or_insert(self.file.line(start));
            self.write(part);
            start += part.len();
        }
    }

    fn add(&mut self, Splice { range, text, causes }: &Splice) {
        // What ends with a line is no change of the next.
        let is_in_line = !self.line.text.is_empty() || self.file.line_start(range.end) < range.end;
        if text.is_empty() && is_in_line {
            self.line.causes.extend(causes);
        }
        for part in text.split_inclusive('\n') {
            self.line.causes.extend(causes);
            self.line.has_added_text |= !part.trim_end_matches(['\r', '\n']).is_empty();
            self.write(part);
        }
    }

    fn write(&mut self, part: &str) {
        self.line.text.push_str(part);
        if part.ends_with('\n') {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let is_same = |&old: &usize| self.file.line_text(old) == line.text.trim_end_matches(['\r', '\n']);
        let kept = line.kept.filter(|_| !line.has_added_text).filter(is_same);
        self.changed.origins.push(match kept {
            Some(old) => Origin::Kept(old as u32),
            None => Origin::Added(line.causes),
        });
        self.changed.new.push_str(&line.text);
    }

    fn finish(mut self, splices: &[Splice]) -> Changed {
        if !self.line.text.is_empty() {
            self.end_line();
        }
        let kept = self.changed.origins.iter().filter_map(|origin| match origin {
            Origin::Kept(line) => Some(*line),
            Origin::Added(_) => None,
        });
        let kept: BTreeSet<u32> = kept.collect();
        // Behind the last line break there is no line.
        let count = self.file.text.lines().count();
        for Splice { range, text, causes } in splices {
            let ends_lines = range.start < range.end && self.file.line_start(range.end) == range.end;
            let begins_line = self.file.line_start(range.start) == range.start;
            let is_whole = text.ends_with('\n') || text.is_empty() && begins_line;
            let last = self.file.line(range.end) - usize::from(ends_lines && is_whole);
            for line in self.file.line(range.start)..=last.min(count) {
                if !kept.contains(&(line as u32)) {
                    self.changed.removed.entry(line as u32).or_default().extend(causes);
                }
            }
        }
        self.changed
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
    use proptest::prelude::*;

    fn splice(range: Range<usize>, text: &str, fix: usize) -> Splice {
        Splice {
            range,
            text: text.into(),
            causes: BTreeSet::from([Cause::Fix(fix)]),
        }
    }

    fn changed(path: &str, old: &str, splices: Vec<Splice>) -> Changed {
        let file = SourceFile::new(path.into(), old.to_owned());
        Changed::new(path.into(), &file, splices)
    }

    fn added(fix: usize) -> Origin {
        Origin::Added(BTreeSet::from([Cause::Fix(fix)]))
    }

    #[test]
    fn changes_on_top_of_changes_are_one() {
        let header = Changed::file("pm.h".into(), "x\n", &BTreeSet::from([Cause::Fix(0)]));
        let first = [changed("b.c", "1\n", vec![splice(0..1, "2", 0)]), header];
        let then = [
            changed("b.c", "2\n", vec![splice(0..1, "3", 1)]),
            changed("a.c", "7\n", vec![splice(0..1, "8", 1)]),
        ];
        let combined = combine(&first, &then);
        let texts: Vec<(&str, &str)> = combined
            .iter()
            .map(|changed| (changed.path.to_str().unwrap(), &*changed.new))
            .collect();
        assert_eq!(texts, [("a.c", "8\n"), ("b.c", "3\n"), ("pm.h", "x\n")]);
        assert!(diff(&combined).contains("--- a/b.c\n+++ b/b.c\n@@ -1 +1 @@\n-1\n+3\n"));
        let back = changed("b.c", "2\n", vec![splice(0..1, "1", 1)]);
        assert_eq!(combine(&first[..1], &[back]), []);
    }

    #[test]
    fn each_line_says_what_it_is_made_for() {
        let old = "if (a)\n    b = 1;\nflush();\nend();";
        let changes = vec![
            splice(6..6, " {", 0),
            splice(17..17, "\n    flush();\n}", 0),
            splice(18..27, "", 1),
            splice(33..33, " fence();", 2),
        ];
        let changed = changed("a.c", old, changes);
        assert_eq!(changed.new, "if (a) {\n    b = 1;\n    flush();\n}\nend(); fence();");
        let origins: Vec<Origin> = (1..=6).map(|line| changed.origin(line)).collect();
        let kept = Origin::Kept;
        assert_eq!(origins, [added(0), kept(2), added(0), added(0), added(2), kept(5)]);
        let of = |fix| -> Vec<(u32, bool, &str)> {
            let lines = changed.of(Cause::Fix(fix));
            lines.map(|line| (line.line, line.is_added, line.text)).collect()
        };
        assert_eq!(of(1), [(3, false, "flush();")]);
        assert_eq!(of(2), [(5, true, "end(); fence();"), (4, false, "end();")]);
        let renumbered = changed.clone().with_orders_from(3);
        assert_eq!(renumbered, changed, "fixes of the plan keep their numbers");
        let orders = Changed::file("a.c".into(), "x\n", &BTreeSet::from([Cause::Order(1)])).with_orders_from(3);
        assert_eq!(orders.origin(1), Origin::Added(BTreeSet::from([Cause::Order(4)])));
    }

    /// A line, and which of the first text it was.
    type Reference = Vec<(String, Option<u32>)>;

    /// Deletes, keeps, and inserts in front of the lines, as asked for; the same of a list of lines.
    fn edited(path: &str, lines: &Reference, edits: &[u8], ends: bool, fix: usize) -> (Changed, Reference) {
        let mut old: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
        if !ends {
            old.pop();
        }
        let (mut splices, mut reference) = (Vec::new(), Reference::new());
        let mut at = 0;
        for (number, (line, first)) in lines.iter().enumerate() {
            let end = (at + line.len() + 1).min(old.len());
            let edit = edits.get(number).copied().unwrap_or(0);
            if edit & 1 != 0 {
                // Lines may be alike.
                let text = format!("{}", number % 3);
                splices.push(splice(at..at, &format!("{text}\n"), fix));
                reference.push((text, None));
            }
            match edit & 2 != 0 {
                true => splices.push(splice(at..end, "", fix)),
                false => reference.push((line.clone(), *first)),
            }
            at = end;
        }
        (changed(path, &old, splices), reference)
    }

    proptest! {
        /// Each line of one or two changes has the origin that a list of lines has; and the replacements make the new text of the old one.
        #[test]
        fn lines_are_followed(
            edits in proptest::collection::vec(0..4u8, 1..30),
            more in proptest::collection::vec(0..4u8, 0..40),
            ends in any::<bool>(),
        ) {
            let lines: Reference = (1..).take(edits.len()).map(|line| (format!("{}", line % 4), Some(line))).collect();
            let (first, reference) = edited("f", &lines, &edits, ends, 0);
            let (then, reference) = match first.new.is_empty() || !first.new.ends_with('\n') {
                // What follows is made of whole lines.
                true => (None, reference),
                false => {
                    let (then, reference) = edited("f", &reference, &more, true, 1);
                    (Some(then), reference)
                }
            };
            let mut combined = first;
            if let Some(then) = &then {
                combined.then(then);
            }
            for (index, (text, first)) in reference.iter().enumerate() {
                let line = index as u32 + 1;
                prop_assert_eq!(combined.new.lines().nth(index), Some(&**text));
                match (combined.origin(line), first) {
                    (Origin::Kept(kept), first) => prop_assert_eq!(Some(kept), *first),
                    (Origin::Added(causes), None) => prop_assert!(!causes.is_empty()),
                    (Origin::Added(_), Some(_)) => prop_assert!(false, "line {} is kept", line),
                }
            }
            let gone: BTreeSet<u32> = (1..=edits.len() as u32)
                .filter(|line| !reference.iter().any(|(_, first)| first == &Some(*line)))
                .collect();
            prop_assert_eq!(combined.removed.keys().copied().collect::<BTreeSet<_>>(), gone);
            let behind = combined.origin(reference.len() as u32 + 1);
            prop_assert_eq!(behind, Origin::Kept(edits.len() as u32 + 1));

            let old = combined.old.clone().unwrap_or_default();
            let lines: Vec<&str> = old.split_inclusive('\n').collect();
            let (mut patched, mut next) = (String::new(), 0);
            for replacement in combined.replacements() {
                let start = replacement.line as usize - 1;
                patched += &lines[next..start].concat();
                patched += &replacement.inserted;
                next = start + replacement.deleted as usize;
            }
            patched += &lines[next..].concat();
            prop_assert_eq!(patched, combined.new);
        }
    }
}
