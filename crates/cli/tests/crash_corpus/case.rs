//! A program of `corpus/crash`: its source, and the directives and annotations in it.
//!
//! ```text
//! //~ crash-order        a finding of this kind is on this line: the store that was not persisted
//! //~? crash-order       there may be one
//! //~ crash-order one-of there is one on one of the lines so marked, perhaps on several
//! //~ persisted          a store of this line had persisted too early; `//~?` and `one-of` as above
//! ```

use std::path::{Path, PathBuf};

use crashproof_finding::Kind;

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Path in `corpus/crash`.
    pub name: String,
    pub source: PathBuf,
    pub directives: Directives,
    pub findings: Vec<Expectation<Kind>>,
    pub persisted: Vec<Expectation<()>>,
}

/// `// name: value` lines at the top of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directives {
    /// Has the mode `setup`, which makes the initial image.
    pub setup: bool,
    /// Has the mode `check`, which judges what recovery left.
    pub check: bool,
    /// Recovery hangs in the states that fail.
    pub hangs: bool,
    /// Recovery dies of this signal in the states that fail.
    pub signal: Option<i32>,
    pub no_pie: bool,
    /// Libraries, as options of the compiler.
    pub link: Vec<String>,
    /// Options of `crashproof crash`.
    pub crash: Vec<String>,
    /// The strategies to test it with, where all states are too many; empty: all strategies.
    pub strategies: Vec<String>,
    /// What the help of each finding has to name.
    pub help: Option<String>,
    /// Why its states cannot be tested by the brute-force simulator.
    pub no_brute_force: Option<String>,
}

impl Directives {
    /// A crash of the recovery is tested too.
    pub(crate) fn depth(&self) -> u32 {
        let at = self.crash.iter().position(|word| word == "--depth");
        at.and_then(|at| self.crash.get(at + 1)?.parse().ok()).unwrap_or(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    May,
    OneOf,
}

#[derive(Clone, Debug)]
pub(crate) struct Expectation<T> {
    pub line: u32,
    pub what: T,
    pub need: Need,
}

impl Case {
    fn read(root: &Path, source: PathBuf) -> Result<Case, String> {
        let text = std::fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        let name = source.strip_prefix(root).unwrap_or(&source).display().to_string();
        let directives = parse_directives(&text).map_err(|error| format!("{name}: {error}"))?;
        let mut case = Case {
            name,
            source,
            directives,
            findings: Vec::new(),
            persisted: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            for annotation in line.split("//~").skip(1) {
                let number = index as u32 + 1;
                let added = case.add_annotation(number, annotation);
                added.map_err(|error| format!("{}:{number}: {error}", case.name))?;
            }
        }
        Ok(case)
    }

    fn add_annotation(&mut self, line: u32, text: &str) -> Result<(), String> {
        let (mut need, text) = match text.strip_prefix('?') {
            Some(rest) => (Need::May, rest),
            None => (Need::Must, text),
        };
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("an annotation without a word")?;
        match words.next() {
            None => {}
            Some("one-of") => need = Need::OneOf,
            Some(word) => return Err(format!("annotation with an unknown word `{word}`")),
        }
        if name == "persisted" {
            let what = ();
            self.persisted.push(Expectation { line, what, need });
        } else {
            let what = Kind::from_name(name).ok_or_else(|| format!("no kind of finding is called `{name}`"))?;
            self.findings.push(Expectation { line, what, need });
        }
        Ok(())
    }

    pub(crate) fn is_cxx(&self) -> bool {
        self.name.ends_with(".cpp")
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.name.contains(".fixed.")
    }

    pub(crate) fn twin(&self) -> String {
        self.name.replace(".c", ".fixed.c")
    }
}

fn parse_directives(text: &str) -> Result<Directives, String> {
    let mut directives = Directives::default();
    for line in text.lines().take_while(|line| line.starts_with("//")) {
        let Some((name, value)) = line.trim_start_matches('/').trim().split_once(": ") else {
            continue;
        };
        let value = value.trim();
        match name {
            "setup" => directives.setup = value == "yes",
            "check" => directives.check = value == "yes",
            "hangs" => directives.hangs = value == "yes",
            "pie" => directives.no_pie = value == "no",
            "crash" => directives.crash = value.split_whitespace().map(str::to_owned).collect(),
            "strategies" => directives.strategies = value.split_whitespace().map(str::to_owned).collect(),
            "help" => directives.help = Some(value.to_owned()),
            "link" => directives.link = value.split_whitespace().map(str::to_owned).collect(),
            "signal" => directives.signal = Some(value.parse().map_err(|_| format!("`{line}` needs a number"))?),
            "brute-force" => directives.no_brute_force = value.strip_prefix("no, ").map(str::to_owned),
            // Prose with a colon in it.
            name if name.contains(' ') => {}
            name => return Err(format!("no directive is called `{name}`")),
        }
    }
    Ok(directives)
}

/// All programs, in the order of their names.
pub(crate) fn all() -> Vec<Case> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/crash"));
    let root = root.canonicalize().expect("the corpus lies beside the crates");
    let mut sources: Vec<PathBuf> = list(&root).iter().flat_map(|area| list(area)).collect();
    sources.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "cpp"));
    sources.sort();
    let cases = sources.into_iter().map(|source| Case::read(&root, source));
    let cases: Result<_, _> = cases.collect();
    cases.unwrap_or_else(|error| panic!("{error}"))
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
