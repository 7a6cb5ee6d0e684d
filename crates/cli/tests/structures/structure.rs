//! A program of `corpus/structures` or `corpus/drivers`, and the bugs that its source can seed.
//!
//! ```text
//! //~[BUG_NAME] crash-order             with -DBUG_NAME a finding of this kind names a store of this line
//! //~[BUG_NAME] crash-order|crash-atomicity   of one of these kinds
//! //~^[BUG_NAME] …                      of the line above (of the nearest above that is not such a comment)
//! ```
//!
//! Which store is named depends on the state that fails first: one of the lines marked for the bug is enough.

use std::path::{Path, PathBuf};

use crashproof_finding::{CrashStore, Finding, Kind, Report};

#[derive(Clone, Debug)]
pub(crate) struct Structure {
    /// File name.
    pub name: String,
    pub source: PathBuf,
    /// By name, each with what may be found.
    pub bugs: Vec<(String, Vec<Expectation>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    pub line: u32,
    pub kinds: Vec<Kind>,
}

impl Structure {
    pub(crate) fn read(source: &Path) -> Result<Structure, String> {
        let text = std::fs::read_to_string(source).map_err(|error| format!("{}: {error}", source.display()))?;
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut structure = Structure {
            name,
            source: source.to_owned(),
            bugs: Vec::new(),
        };
        // The last line that is not only an annotation of the one above.
        let mut above = 0;
        for (index, line) in text.lines().enumerate() {
            let number = index as u32 + 1;
            if !line.trim_start().starts_with("//~^") {
                above = number;
            }
            for annotation in line.split("//~").skip(1) {
                let added = structure.add(above, annotation.trim_start_matches('^'));
                added.map_err(|error| format!("{}:{number}: {error}", structure.name))?;
            }
        }
        structure.every_bug_is_marked(&text)?;
        Ok(structure)
    }

    fn add(&mut self, line: u32, annotation: &str) -> Result<(), String> {
        let form = "an annotation is `//~[BUG_NAME] kind|kind`";
        let (bug, kinds) = annotation
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .ok_or(form)?;
        let kinds: Option<Vec<Kind>> = kinds.trim().split('|').map(Kind::from_name).collect();
        let kinds = kinds.ok_or_else(|| format!("{form}, and `{annotation}` has another kind"))?;
        let expectation = Expectation { line, kinds };
        match self.bugs.iter_mut().find(|(name, _)| name == bug) {
            Some((_, expectations)) => expectations.push(expectation),
            None => self.bugs.push((bug.to_owned(), vec![expectation])),
        }
        Ok(())
    }

    /// A bug that no line is marked for would never be tested.
    fn every_bug_is_marked(&self, text: &str) -> Result<(), String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("BUG_")) {
            if !self.bugs.iter().any(|(name, _)| name == word) {
                return Err(format!("{}: no line is marked for {word}", self.name));
            }
        }
        Ok(())
    }

    pub(crate) fn is_cxx(&self) -> bool {
        self.name.ends_with(".cpp")
    }

    /// A finding of the report is expected.
    pub(crate) fn names(&self, report: &Report, expectations: &[Expectation]) -> bool {
        let mut findings = report.findings.iter();
        findings.any(|finding| self.is_expected(finding, expectations))
    }

    /// The finding is of a kind that is expected, and names the line.
    pub(crate) fn is_expected(&self, finding: &Finding, expectations: &[Expectation]) -> bool {
        let mut of_kind = expectations
            .iter()
            .filter(|expected| expected.kinds.contains(&finding.kind));
        of_kind.any(|expected| self.names_line(finding, expected.line))
    }

    fn names_line(&self, finding: &Finding, line: u32) -> bool {
        let Some(crash) = &finding.crash else { return false };
        let is_here = |file: &Option<String>, at: Option<u32>| {
            let file = file.as_ref().is_some_and(|file| Path::new(file).ends_with(&self.name));
            file && at == Some(line)
        };
        // By any frame: helpers may make the store.
        let store_is_here = |store: &CrashStore| {
            is_here(&store.frame.file, store.frame.line)
                || store.stack.iter().any(|frame| is_here(&frame.file, frame.line))
        };
        crash.missing.iter().chain(&crash.persisted).any(store_is_here)
    }
}

/// Also for who is not as deep in the workspace as the command's tests.
pub(crate) fn corpus() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = here.ancestors().map(|folder| folder.join("corpus"));
    above
        .find(|corpus| corpus.is_dir())
        .unwrap_or_else(|| here.join("corpus"))
}

/// All programs of a folder of the corpus, in the order of their names.
pub(crate) fn in_folder(name: &str) -> Result<Vec<Structure>, String> {
    let folder = corpus().join(name);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut sources: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sources.retain(|path| path.extension().is_some_and(|e| e == "c" || e == "cpp"));
    sources.sort();
    sources.iter().map(|source| Structure::read(source)).collect()
}
