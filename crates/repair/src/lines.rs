//! Which line of the unpatched source a line of the patched one was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Made from a unified diff.
#[derive(Debug, Default)]
pub struct LineMap {
    /// By the path in the tree.
    files: BTreeMap<PathBuf, Vec<Hunk>>,
}

#[derive(Debug)]
struct Hunk {
    /// First lines.
    old: u32,
    new: u32,
    /// For each line of the new text, the old one; `None` if it was added.
    lines: Vec<Option<u32>>,
    /// How many old lines it has.
    old_length: u32,
    /// How many lines of either text are still to come.
    old_left: u32,
    new_left: u32,
}

impl LineMap {
    pub fn of(diff: &str) -> LineMap {
        let mut map = LineMap::default();
        let mut current: Option<PathBuf> = None;
        for line in diff.lines() {
            let hunk = current.as_ref().and_then(|file| map.files.get_mut(file)?.last_mut());
            if let Some(hunk) = hunk.filter(|hunk| hunk.is_open()) {
                hunk.add(line);
            } else if let Some(name) = line.strip_prefix("+++ ") {
                let name = name.split('\t').next().unwrap_or(name);
                current = name.strip_prefix("b/").map(PathBuf::from);
            } else if line.starts_with("--- ") || line.starts_with("diff ") {
                current = None;
            } else if let (Some(file), Some(hunk)) = (&current, begins_hunk(line)) {
                map.files.entry(file.clone()).or_default().push(hunk);
            }
        }
        map
    }

    /// `file` is relative to the tree, `line` one of the patched text.
    pub fn old_line(&self, file: &Path, line: u32) -> Option<u32> {
        let mut shift = 0i64;
        for hunk in self.files.get(file).into_iter().flatten() {
            let length = hunk.lines.len() as u32;
            if line < hunk.new {
                break;
            }
            if line - hunk.new < length {
                return hunk.lines[(line - hunk.new) as usize];
            }
            shift = i64::from(hunk.old) + i64::from(hunk.old_length) - i64::from(hunk.new) - i64::from(length);
        }
        u32::try_from(i64::from(line) + shift).ok()
    }
}

impl Hunk {
    fn is_open(&self) -> bool {
        self.old_left > 0 || self.new_left > 0
    }

    fn add(&mut self, line: &str) {
        let (in_old, in_new) = match line.as_bytes().first() {
            Some(b'+') => (false, true),
            Some(b'-') => (true, false),
            // Some tools write an empty context line as nothing at all.
            Some(b' ') | None => (true, true),
            // `\ No newline at end of file`
            Some(_) => return,
        };
        if in_new {
            self.lines
                .push(in_old.then(|| self.old.saturating_add(self.old_length)));
            self.new_left = self.new_left.saturating_sub(1);
        }
        if in_old {
            self.old_length += 1;
            self.old_left = self.old_left.saturating_sub(1);
        }
    }
}

/// `@@ -3,7 +3,8 @@ …`
fn begins_hunk(line: &str) -> Option<Hunk> {
    let mut words = line.strip_prefix("@@ ")?.split(' ');
    let (old, old_left) = range(words.next()?.strip_prefix('-')?)?;
    let (new, new_left) = range(words.next()?.strip_prefix('+')?)?;
    Some(Hunk {
        old,
        new,
        lines: Vec::new(),
        old_length: 0,
        old_left,
        new_left,
    })
}

/// First line and number of lines, of `3,7` or `3`. Where there are no lines, the one before is named.
fn range(text: &str) -> Option<(u32, u32)> {
    let (start, length) = text.split_once(',').unwrap_or((text, "1"));
    let (start, length): (u32, u32) = (start.parse().ok()?, length.parse().ok()?);
    Some((start.saturating_add(u32::from(length == 0)), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIFF: &str = "diff --git a/src/log.c b/src/log.c\n--- a/src/log.c\n+++ b/src/log.c\n@@ -2,3 +2,4 @@ int f()\n b\n+x\n+y\n-c\n d\n\
                        @@ -10 +11,2 @@\n j\n+z\ndiff --git a/new.h b/new.h\nnew file mode 100644\n--- /dev/null\n+++ b/new.h\n@@ -0,0 +1,2 @@\n+a\n+b\n";

    #[test]
    fn lines_are_followed_through_a_diff() {
        let map = LineMap::of(DIFF);
        let old = |line| map.old_line(Path::new("src/log.c"), line);
        assert_eq!((old(1), old(2), old(3), old(4)), (Some(1), Some(2), None, None));
        assert_eq!((old(5), old(6), old(10)), (Some(4), Some(5), Some(9)));
        assert_eq!((old(11), old(12), old(13)), (Some(10), None, Some(11)));
        assert_eq!(map.old_line(Path::new("new.h"), 1), None);
        assert_eq!(map.old_line(Path::new("other.c"), 7), Some(7));
    }

    proptest! {
        /// A diff of one hunk over the whole file, from random edits: every kept line is found again, and no added one.
        #[test]
        fn kept_lines_are_found_and_added_ones_are_not(edits in proptest::collection::vec(0..3u8, 1..40)) {
            let (mut old, mut new, mut hunk) = (0, 0, String::new());
            let mut expected = Vec::new();
            for edit in &edits {
                match edit {
                    0 => { hunk.push_str("-x\n"); old += 1; }
                    1 => { hunk.push_str("+x\n"); new += 1; expected.push(None); }
                    _ => { hunk.push_str(" x\n"); old += 1; new += 1; expected.push(Some(old)); }
                }
            }
            let from = |length| if length == 0 { 0 } else { 1 };
            let diff = format!("--- a/f\n+++ b/f\n@@ -{},{old} +{},{new} @@\n{hunk}", from(old), from(new));
            let map = LineMap::of(&diff);
            for (index, expected) in expected.into_iter().enumerate() {
                prop_assert_eq!(map.old_line(Path::new("f"), index as u32 + 1), expected);
            }
            prop_assert_eq!(map.old_line(Path::new("f"), new + 1), Some(old + 1));
        }

        #[test]
        fn any_text_is_read(text in "(@@|[-+ ]|[0-9]{1,12}|,|b/f|\n|\\+\\+\\+ b/f\n){0,40}") {
            LineMap::of(&text).old_line(Path::new("f"), 3);
        }
    }
}
