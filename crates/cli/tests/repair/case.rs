//! A program to repair: its folder, and what the comments at the top of one of its sources say. See corpus/repair/README.md.

use std::path::{Path, PathBuf};

use crate::annotation::{self, Expectation};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Path in `corpus/repair`.
    pub name: String,
    pub folder: PathBuf,
    /// The fixes that must be planned, in the words of the README, sorted.
    pub fixes: Vec<String>,
    pub build: String,
    pub options: Vec<String>,
    pub exit: i32,
    /// Words that the report has to contain.
    pub refuses: Option<String>,
    /// Findings of the program as it is; files are relative to the folder.
    pub expectations: Vec<Expectation>,
}

impl Case {
    fn read(root: &Path, folder: PathBuf) -> Result<Case, String> {
        let name = folder.strip_prefix(root).unwrap_or(&folder).display().to_string();
        let mut described = Vec::new();
        let mut expectations = Vec::new();
        for path in files(&folder).into_iter().filter(|path| !is_expected(path)) {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let file = path.strip_prefix(&folder).unwrap_or(&path);
            expectations.extend(annotation::parse(&folder, file, &text).map_err(|error| format!("{name}: {error}"))?);
            if text.starts_with("// repair: ") {
                described.push(text);
            }
        }
        let [text] = described.as_slice() else {
            return Err(format!("{name}: exactly one file must begin with `// repair: `"));
        };
        let usual = match folder.join("Makefile").exists() {
            true => "make",
            false => "$CC -g -O2 -o app *.c",
        };
        let mut case = Case {
            name,
            folder,
            fixes: Vec::new(),
            build: usual.to_owned(),
            options: Vec::new(),
            exit: 0,
            refuses: None,
            expectations,
        };
        let mut exit = None;
        for line in text.lines().take_while(|line| line.starts_with("//")) {
            let Some((directive, value)) = line.trim_start_matches('/').trim().split_once(": ") else {
                continue;
            };
            let value = value.trim();
            match directive {
                "repair" => case.fixes = value.split(", ").map(str::to_owned).collect(),
                "build" => case.build = value.to_owned(),
                "options" => case.options = value.split_whitespace().map(str::to_owned).collect(),
                "exit" => {
                    exit = Some(
                        value
                            .parse()
                            .map_err(|_| format!("{}: `{line}` needs a number", case.name))?,
                    )
                }
                "refuses" => case.refuses = Some(value.to_owned()),
                // Prose with a colon in it.
                _ => {}
            }
        }
        case.fixes.sort();
        case.exit = exit.unwrap_or(i32::from(case.fixes.iter().any(|fix| fix == "left")));
        Ok(case)
    }

    /// Puts the program, without annotations, into a folder of its own.
    pub(crate) fn copy_to(&self, target: &Path) -> Result<(), String> {
        let common = self.folder.join("../../common");
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        for (folder, from) in [(&common, files(&common)), (&self.folder, files(&self.folder))] {
            for path in from.iter().filter(|path| !is_expected(path)) {
                let to = target.join(path.strip_prefix(folder).unwrap_or(path));
                let parent = to.parent().unwrap_or(target);
                std::fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
                let text = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
                std::fs::write(&to, without_annotations(&text)).map_err(|error| failed(&to, error))?;
            }
        }
        Ok(())
    }

    /// Patched files, as they must be: their path in the folder and their text.
    pub(crate) fn expected(&self) -> Vec<(PathBuf, String)> {
        let patched = |path: &PathBuf| {
            let name = path
                .strip_prefix(&self.folder)
                .ok()?
                .to_str()?
                .replace(".expected.", ".");
            Some((PathBuf::from(name), std::fs::read_to_string(path).ok()?))
        };
        let files = files(&self.folder);
        files
            .iter()
            .filter(|path| is_expected(path))
            .filter_map(patched)
            .collect()
    }
}

fn is_expected(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".expected."))
}

fn without_annotations(text: &str) -> String {
    let line = |line: &str| match line.find("//~") {
        Some(at) => line[..at].trim_end().to_owned() + if line.ends_with('\n') { "\n" } else { "" },
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// All programs, in the order of their names.
pub(crate) fn all() -> Result<Vec<Case>, String> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/repair"));
    let root = root
        .canonicalize()
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let mut folders: Vec<PathBuf> = folders(&root)
        .into_iter()
        .filter(|group| !group.ends_with("common"))
        .flat_map(|group| folders(&group))
        .collect();
    folders.sort();
    folders.into_iter().map(|folder| Case::read(&root, folder)).collect()
}

fn folders(path: &Path) -> Vec<PathBuf> {
    list(path).into_iter().filter(|path| path.is_dir()).collect()
}

/// Also those in folders of it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in list(folder) {
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
