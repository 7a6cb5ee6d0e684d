//! A unified diff as replacements of lines, which is how SARIF has a fix.

/// What a diff does to one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileChange<'a> {
    /// Without the `a/` or `b/` before it.
    pub path: &'a str,
    pub replacements: Vec<Replacement>,
}

/// Lines of the old file that give way to others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// The first of them, from 1; what is inserted only comes before it.
    pub line: u32,
    pub deleted: u32,
    pub inserted: String,
}

/// Lines that are no part of a unified diff are passed over.
pub(crate) fn changes(diff: &str) -> Vec<FileChange<'_>> {
    let mut files: Vec<FileChange<'_>> = Vec::new();
    let mut old_path = None;
    // The next line of the old file, and how many lines of the old and of the new file the hunk still has.
    let (mut line, mut old_left, mut new_left) = (0, 0, 0);
    let mut open = false;
    for text in diff.split_inclusive('\n') {
        let Some(file) = files.last_mut().filter(|_| old_left > 0 || new_left > 0) else {
            open = false;
            let text = text.trim_end();
            if let Some(path) = text.strip_prefix("--- ") {
                old_path = Some(path);
            } else if let (Some(new), Some(old)) = (text.strip_prefix("+++ "), old_path) {
                files.push(FileChange {
                    path: if new == "/dev/null" { plain(old) } else { plain(new) },
                    replacements: Vec::new(),
                });
            } else if let Some((old, new)) = hunk(text) {
                (old_left, new_left) = (old.1, new.1);
                // A hunk without old lines names the line before it.
                line = if old.1 == 0 { old.0 + 1 } else { old.0 };
            } else if text.starts_with('\\')
                && let Some(last) = files.last_mut().and_then(|file| file.replacements.last_mut())
                && last.inserted.ends_with('\n')
            {
                last.inserted.pop();
            }
            continue;
        };
        let (mark, content) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
        if matches!(mark, "-" | "+") && !open {
            file.replacements.push(Replacement {
                line,
                ..Replacement::default()
            });
        }
        open = matches!(mark, "-" | "+" | "\\");
        let last = file.replacements.last_mut();
        match (mark, last) {
            ("-", Some(last)) => {
                last.deleted += 1;
                line += 1;
                old_left -= 1;
            }
            ("+", Some(last)) => {
                last.inserted += content;
                new_left -= 1;
            }
            ("\\", _) => {}
            _ => {
                line += 1;
                old_left = u32::saturating_sub(old_left, 1);
                new_left = u32::saturating_sub(new_left, 1);
            }
        }
    }
    files
}

/// Without the folder that git puts before it, and without the time that diff puts after it.
fn plain(path: &str) -> &str {
    let path = path.split('\t').next().unwrap_or(path);
    path.strip_prefix("a/").or(path.strip_prefix("b/")).unwrap_or(path)
}

/// First line and number of lines, of the old file and of the new one.
fn hunk(text: &str) -> Option<((u32, u32), (u32, u32))> {
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| match text.split_once(',') {
        Some((line, count)) => Some((line.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    Some((range(old)?, range(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replacement(line: u32, deleted: u32, inserted: &str) -> Replacement {
        Replacement {
            line,
            deleted,
            inserted: inserted.to_owned(),
        }
    }

    #[test]
    fn insertions_deletions_and_files() {
        let diff = "diff --git a/log.c b/log.c\n--- a/log.c\n+++ b/log.c\n@@ -10,4 +10,5 @@ void f()\n a\n b\n+\tflush(b);\n c\n-d\n+e\n\
                    @@ -30 +31,0 @@\n-gone\n--- a/old.c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n--- y\n\
                    --- /dev/null\n+++ b/new.c\n@@ -0,0 +1,2 @@\n+one\n+++ two\n\\ No newline at end of file\n";
        let files = changes(diff);
        let paths: Vec<_> = files.iter().map(|file| file.path).collect();
        assert_eq!(paths, ["log.c", "old.c", "new.c"]);
        assert_eq!(
            files[0].replacements,
            [
                replacement(12, 0, "\tflush(b);\n"),
                replacement(13, 1, "e\n"),
                replacement(30, 1, "")
            ]
        );
        assert_eq!(files[1].replacements, [replacement(1, 2, "")]);
        assert_eq!(files[2].replacements, [replacement(1, 0, "one\n++ two")]);
    }

    #[test]
    fn anything_is_read_without_a_panic() {
        for text in [
            "",
            "@@ -1 +1 @@\n",
            "--- a\n+++ b\n@@ -1,9 +1,9 @@\n+é\né\n\\\n",
            "+++ b\n--- \n@@ -,+ @@",
        ] {
            changes(text);
        }
    }
}
