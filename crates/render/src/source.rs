//! Source files as the debug info names them: finding them, reading them once, and choosing what to mark in a line.
//!
//! Debug info gives a line and the column of one token in it, often the `=` of an assignment. A mark under that token
//! alone says little, so the whole statement around it is marked.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Larger files are generated code; an excerpt of them helps nobody.
const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// The sources of one report, read at most once each.
pub(crate) struct Sources {
    root: PathBuf,
    files: HashMap<String, Option<Source>>,
}

impl Sources {
    pub(crate) fn new(root: &Path) -> Self {
        Sources {
            root: root.to_owned(),
            files: HashMap::new(),
        }
    }

    /// The file, if it can be read; a relative name counts from the root.
    pub(crate) fn get(&mut self, file: &str) -> Option<&Source> {
        if !self.files.contains_key(file) {
            let source = Source::read(&self.root.join(file));
            self.files.insert(file.to_owned(), source);
        }
        self.files[file].as_ref()
    }

    /// The name to show: relative to the root for files below it.
    pub(crate) fn display<'a>(&self, file: &'a str) -> &'a str {
        Path::new(file)
            .strip_prefix(&self.root)
            .ok()
            .and_then(Path::to_str)
            .unwrap_or(file)
    }
}

pub(crate) struct Source {
    text: String,
    /// Where each line starts in `text`.
    starts: Vec<usize>,
}

/// Some lines of a file.
pub(crate) struct Excerpt<'a> {
    pub text: &'a str,
    /// Where it starts in the file.
    pub offset: usize,
    pub first_line: u32,
}

impl Source {
    fn read(path: &Path) -> Option<Source> {
        let metadata = std::fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_SOURCE_BYTES {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        Some(Source::new(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(crate) fn new(text: String) -> Source {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Source { text, starts }
    }

    /// Where line `line` (from 1) lies in `text`, without its line end.
    pub(crate) fn line_range(&self, line: u32) -> Option<Range<usize>> {
        let index = (line as usize).checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        Some(start..end.max(start))
    }

    pub(crate) fn text(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }

    /// The text of a line, without blanks around it.
    pub(crate) fn line(&self, line: u32) -> Option<&str> {
        Some(self.text[self.line_range(line)?].trim())
    }

    /// The lines `first` to `last` (from 1; both exist).
    pub(crate) fn excerpt(&self, first: u32, last: u32) -> Excerpt<'_> {
        let start = self.line_range(first).map_or(0, |range| range.start);
        let end = self.line_range(last).map_or(self.text.len(), |range| range.end);
        Excerpt {
            text: &self.text[start..end],
            offset: start,
            first_line: first,
        }
    }

    /// What to mark for a position: the statement around it, or the whole line without a usable column. `None` if the
    /// line does not exist or is blank, so the file is not the one that was compiled.
    pub(crate) fn statement(&self, line: u32, column: Option<u32>) -> Option<Range<usize>> {
        let range = self.line_range(line)?;
        let text = &self.text[range.clone()];
        let code = code_range(text);
        if code.is_empty() {
            return None;
        }
        let column = column
            .map(|column| column as usize)
            .filter(|&column| column > 0)
            .map(|column| column - 1);
        let statement = match column {
            Some(at) if code.contains(&at) => statement_around(&text.as_bytes()[..code.end], at, code.clone()),
            _ => code,
        };
        Some(range.start + statement.start..range.start + statement.end)
    }
}

/// The line without blanks and without a comment at its end; the comment itself if there is nothing else.
fn code_range(text: &str) -> Range<usize> {
    let trimmed = |range: Range<usize>| {
        let part = &text[range.clone()];
        let start = range.start + (part.len() - part.trim_start().len());
        start..start + part.trim().len()
    };
    let before_comment = text.find("//").unwrap_or(text.len());
    let code = trimmed(0..before_comment);
    if code.is_empty() { trimmed(0..text.len()) } else { code }
}

/// The statement in `text` that holds byte `at`. All delimiters are ASCII, so the result lies on character boundaries.
fn statement_around(text: &[u8], at: usize, code: Range<usize>) -> Range<usize> {
    let mut start = code.start;
    let mut depth = 0usize;
    for index in (code.start..at).rev() {
        match text[index] {
            b')' => depth += 1,
            b'(' if depth > 0 => depth -= 1,
            // A part of a `for` header stands for itself; an argument is shown with its call.
            b'(' if is_loop_header(&text[..index]) => {
                start = index + 1;
                break;
            }
            b';' | b'{' | b'}' if depth == 0 => {
                start = index + 1;
                break;
            }
            _ => {}
        }
    }
    // Unclosed parentheses between the start and the position: the statement ends after they are closed.
    let mut depth = 0usize;
    let mut end = code.end;
    for (index, byte) in text.iter().enumerate().take(code.end).skip(start) {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' if depth > 0 => depth -= 1,
            b')' if index >= at => {
                end = index;
                break;
            }
            b';' | b'}' if depth == 0 && index >= at => {
                end = index;
                break;
            }
            _ => {}
        }
    }
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    while start < end && blank(&text[start]) {
        start += 1;
    }
    while end > start && blank(&text[end - 1]) {
        end -= 1;
    }
    if start < end { start..end } else { code }
}

fn is_loop_header(before: &[u8]) -> bool {
    let word = before.trim_ascii_end();
    [b"for".as_slice(), b"while", b"if", b"switch"].iter().any(|keyword| {
        word.ends_with(keyword)
            && !word[..word.len() - keyword.len()]
                .last()
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, needle: &str) -> String {
        let source = Source::new(text.to_owned());
        let column = text.find(needle).expect("needle in text") as u32 + 1;
        text[source.statement(1, Some(column)).expect("a mark")].to_owned()
    }

    #[test]
    fn marks_the_statement() {
        assert_eq!(marked("    log->count = n;  // one more", "="), "log->count = n");
        assert_eq!(marked("  a = 1; b->x += 2; c = 3;", "+="), "b->x += 2");
        assert_eq!(
            marked("  for (i = 0; i < n; i++) p[i] = 7;", "= 7"),
            "for (i = 0; i < n; i++) p[i] = 7"
        );
        assert_eq!(marked("  for (p->i = 0; p->i < n; p->i++)", "= 0"), "p->i = 0");
        assert_eq!(marked("  for (p->i = 0; p->i < n; p->i++)", "++"), "p->i++");
        assert_eq!(
            marked("  memcpy(log->data, from, len);", "log"),
            "memcpy(log->data, from, len)"
        );
        assert_eq!(marked("static void set(int *p) { *p = 1; }", "= 1"), "*p = 1");
        assert_eq!(marked("  if (x) { p->y = 2; }", "= 2"), "p->y = 2");
        assert_eq!(marked("  p->s = (struct s){ 1, 2 };", "="), "p->s = (struct s){ 1, 2 }");
    }

    #[test]
    fn bad_positions_give_the_line_or_nothing() {
        let source = Source::new("int x;\n\n  é = ü;\r\n}".to_owned());
        assert_eq!(source.statement(0, None), None);
        assert_eq!(source.statement(2, Some(1)), None);
        assert_eq!(source.statement(9, Some(1)), None);
        assert_eq!(&source.text[source.statement(1, Some(99)).unwrap()], "int x;");
        for column in 0..12 {
            let range = source.statement(3, Some(column)).unwrap();
            assert!(source.text[range].contains('é'), "column {column}");
        }
        assert_eq!(source.line(4), Some("}"));
    }

    #[test]
    fn an_unreadable_file_is_asked_for_once() {
        let mut sources = Sources::new(Path::new("/nonexistent"));
        assert!(sources.get("a.c").is_none());
        assert!(sources.get("a.c").is_none());
        assert_eq!(sources.display("/nonexistent/src/a.c"), "src/a.c");
        assert_eq!(sources.display("/elsewhere/a.c"), "/elsewhere/a.c");
    }
}
