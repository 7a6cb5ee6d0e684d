//! `//~ kind` at the end of a line of a program: what must be found there.
//!
//! ```text
//! //~ KIND        on this line          //~ KIND xN        found N times, over all stacks
//! //~^ KIND       on the line above     //~ KIND one-of    on one of the lines so marked
//! //~? KIND       may be found          //~ KIND in-stack  the line is a caller of where it is found
//! //~@ FILE KIND  on the line of FILE that has the comment `// KIND`
//! ```

use std::path::{Path, PathBuf};

use crashproof_finding::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
    OneOf,
}

#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// Relative to the corpus.
    pub file: PathBuf,
    pub line: u32,
    pub kind: Kind,
    pub need: Need,
    pub count: Option<u64>,
    pub in_stack: bool,
}

/// The annotations of a program, which lies at `file` in the corpus at `root`.
pub(crate) fn parse(root: &Path, file: &Path, text: &str) -> Result<Vec<Expectation>, String> {
    let mut expectations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for annotation in line.split("//~").skip(1) {
            let number = index as u32 + 1;
            let parsed = parse_one(root, file, number, annotation);
            expectations.push(parsed.map_err(|error| format!("{}:{number}: {error}", file.display()))?);
        }
    }
    Ok(expectations)
}

fn parse_one(root: &Path, file: &Path, line: u32, text: &str) -> Result<Expectation, String> {
    let above = text.chars().take_while(|&c| c == '^').count();
    let (elsewhere, text) = match text[above..].strip_prefix('@') {
        Some(rest) => (true, rest),
        None => (false, &text[above..]),
    };
    let (need, text) = match text.strip_prefix('?') {
        Some(rest) => (Need::May, rest),
        None => (Need::Must, text),
    };
    let mut words = text.split_whitespace();
    let mut word = || words.next().ok_or_else(|| format!("annotation `//~{text}` ends early"));
    let other = if elsewhere { Some(word()?) } else { None };
    let kind = parse_kind(word()?)?;
    let mut expectation = Expectation {
        file: file.to_owned(),
        line: line - above as u32,
        kind,
        need,
        count: None,
        in_stack: false,
    };
    if let Some(other) = other {
        expectation.file = file.parent().unwrap_or(file).join(other);
        expectation.line = line_with_comment(&root.join(&expectation.file), kind)?;
    }
    for word in words {
        match word {
            "one-of" => expectation.need = Need::OneOf,
            "in-stack" => expectation.in_stack = true,
            count if count.starts_with('x') => {
                let count = count[1..].parse().map_err(|_| format!("bad count `{count}`"))?;
                expectation.count = Some(count);
            }
            word => return Err(format!("annotation with an unknown word `{word}`")),
        }
    }
    Ok(expectation)
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("no kind of finding is called `{text}`"))
}

fn line_with_comment(path: &Path, kind: Kind) -> Result<u32, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let comment = format!("// {}", kind_name(kind));
    let line = text.lines().position(|line| line.ends_with(&comment));
    line.map(|index| index as u32 + 1)
        .ok_or_else(|| format!("{} has no line with `{comment}`", path.display()))
}

pub(crate) fn kind_name(kind: Kind) -> String {
    let value = serde_json::to_value(kind).expect("a kind is a string in JSON");
    value.as_str().unwrap_or_default().to_owned()
}
