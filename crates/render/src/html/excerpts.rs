//! The source around every place that a page names, each line once.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::data::{Excerpt, File};
use crate::source::{Source, Sources};

/// Lines before and after a mark.
const AROUND_MARK: u32 = 4;
/// Lines before and after the line of a frame.
const AROUND_FRAME: u32 = 2;
/// Of one line; the rest is cut off.
const MAX_LINE: usize = 300;
/// Of all lines together. Marks come first, then frames.
const MAX_BYTES: usize = 300_000;

const NOT_HERE: &str = "its source is not here";
const CHANGED: &str = "its source has changed since the program was built: lines may be off";

pub(super) struct Excerpts {
    root: PathBuf,
    sources: Sources,
    files: Vec<Wanted>,
    places: HashMap<String, usize>,
    bytes: usize,
}

struct Wanted {
    path: String,
    /// What was built from it.
    module: Option<String>,
    lines: BTreeMap<u32, String>,
    problem: Option<&'static str>,
}

impl Excerpts {
    pub(super) fn new(root: &Path) -> Excerpts {
        Excerpts {
            root: root.to_owned(),
            sources: Sources::new(root),
            files: Vec::new(),
            places: HashMap::new(),
            bytes: 0,
        }
    }

    /// Its place in the table of files.
    pub(super) fn file(&mut self, path: &str, module: Option<&str>) -> usize {
        if let Some(&place) = self.places.get(path) {
            let module = module.map(str::to_owned);
            let file = &mut self.files[place];
            file.module = file.module.take().or(module);
            return place;
        }
        self.files.push(Wanted {
            path: path.to_owned(),
            module: module.map(str::to_owned),
            lines: BTreeMap::new(),
            problem: None,
        });
        self.places.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    /// Takes in the lines around a place to be marked, and says what to mark in its line, in UTF-16 units.
    pub(super) fn around_mark(&mut self, file: usize, line: u32, column: Option<u32>) -> Option<(usize, usize)> {
        self.around(file, line, AROUND_MARK);
        let wanted = &mut self.files[file];
        let source = self.sources.get(&wanted.path)?;
        let marked = source.statement(line, column).and_then(|statement| {
            let start = source.line_range(line)?.start;
            let units = |to: usize| source.text(start..to).encode_utf16().count();
            Some((units(statement.start), units(statement.end)))
        });
        if marked.is_none() {
            wanted.problem = Some(CHANGED);
        }
        marked.filter(|&(_, end)| end <= MAX_LINE)
    }

    pub(super) fn around_frame(&mut self, file: usize, line: u32) {
        self.around(file, line, AROUND_FRAME);
    }

    fn around(&mut self, file: usize, line: u32, context: u32) {
        let wanted = &mut self.files[file];
        let Some(source) = self.sources.get(&wanted.path) else {
            wanted.problem = Some(NOT_HERE);
            return;
        };
        if source.line(line).is_none() {
            wanted.problem = Some(CHANGED);
        }
        for number in line.saturating_sub(context).max(1)..=line.saturating_add(context) {
            let Some(range) = source.line_range(number) else {
                break;
            };
            if wanted.lines.contains_key(&number) {
                continue;
            }
            let text = cut(source, range);
            // With the quotes and the comma.
            self.bytes += text.len() + 3;
            if self.bytes > MAX_BYTES {
                return;
            }
            wanted.lines.insert(number, text);
        }
    }

    pub(super) fn finish(self) -> Vec<File> {
        let Excerpts {
            root, sources, files, ..
        } = self;
        let file = |wanted: Wanted| {
            let changed = || changed_since(&root.join(&wanted.path), wanted.module.as_deref()?).then_some(CHANGED);
            File {
                problem: wanted.problem.or_else(changed),
                path: sources.display(&wanted.path).to_owned(),
                excerpts: excerpts(wanted.lines),
            }
        };
        files.into_iter().map(file).collect()
    }
}

fn cut(source: &Source, range: std::ops::Range<usize>) -> String {
    let text = source.text(range).trim_end_matches('\r');
    match text.char_indices().nth(MAX_LINE) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Runs of lines.
fn excerpts(lines: BTreeMap<u32, String>) -> Vec<Excerpt> {
    let mut excerpts: Vec<Excerpt> = Vec::new();
    for (number, text) in lines {
        match excerpts.last_mut() {
            Some(last) if last.first as usize + last.lines.len() == number as usize => last.lines.push(text),
            _ => excerpts.push(Excerpt {
                first: number,
                lines: vec![text],
            }),
        }
    }
    excerpts
}

/// Whether the source is newer than what was built from it.
fn changed_since(source: &Path, module: &str) -> bool {
    let time = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    match (time(source), time(Path::new(module))) {
        (Some(source), Some(module)) => source > module,
        _ => false,
    }
}
