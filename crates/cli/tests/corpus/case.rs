//! A program of the corpus: its source, and the directives and annotations in it.

use std::path::{Path, PathBuf};

use crate::annotation::{self, Expectation};
use crate::build::{Compiler, Variant};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Path in the corpus.
    pub name: String,
    pub source: PathBuf,
    pub expectations: Vec<Expectation>,
    pub directives: Directives,
}

/// `// name: value` lines at the top of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directives {
    build: Option<Vec<String>>,
    flags: Option<Vec<String>>,
    pub cflags: Vec<String>,
    pub link: Vec<String>,
    pub no_pie: bool,
    /// A shared library's source and the flags to build it with.
    pub library: Option<(String, Vec<String>)>,
    pub run_args: Vec<String>,
    pub exit: i32,
    pub signal: Option<i32>,
    pub crashproof: Vec<String>,
    pub config: Option<String>,
    /// Features of the processor, as /proc/cpuinfo calls them.
    needs: Vec<String>,
    /// Why the PM file is not the same in two runs.
    pub file_differs: bool,
    /// Why the trace must say that it is incomplete.
    pub incomplete: bool,
    /// Built with `crashproof cc --deps` only, recorded so that its dependences are in the trace, and then checked.
    pub dependences: bool,
}

impl Case {
    fn read(root: &Path, source: PathBuf) -> Result<Case, String> {
        let text = std::fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
        let file = source.strip_prefix(root).unwrap_or(&source).to_owned();
        let directives = parse_directives(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let expectations = annotation::parse(root, &file, &text)?;
        Ok(Case {
            name: file.display().to_string(),
            source,
            expectations,
            directives,
        })
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

    /// The ways in which it is built: those that it asks for, else one of each compiler. `crashproof cc` is a clang, so it
    /// builds what clang may, a C program with and without optimisation.
    pub(crate) fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let Directives { build, flags, .. } = &self.directives;
        if self.directives.dependences {
            let compiler = Compiler::Crashproof;
            let variant = |optimise| Variant { compiler, optimise };
            return vec![variant(false), variant(true)].into_iter();
        }
        let wanted = |list: &Option<Vec<String>>, word: &str| list.as_ref().is_none_or(|l| l.iter().any(|w| w == word));
        let chosen = build.is_some() || flags.is_some();
        let mut variants = Vec::new();
        for compiler in [Compiler::Gcc, Compiler::Clang, Compiler::Crashproof] {
            let name = match compiler {
                Compiler::Crashproof => Compiler::Clang.name(),
                _ => compiler.name(),
            };
            for optimise in [false, true] {
                let variant = Variant { compiler, optimise };
                let usual = match compiler {
                    Compiler::Gcc => !optimise,
                    Compiler::Clang => optimise,
                    Compiler::Crashproof => optimise || !self.is_cxx(),
                };
                if wanted(build, name) && wanted(flags, variant.flag()) && (chosen || usual) {
                    variants.push(variant);
                }
            }
        }
        variants.into_iter()
    }

    /// Whether this machine has the instructions that it uses.
    pub(crate) fn runs_here(&self) -> bool {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        self.directives
            .needs
            .iter()
            .all(|need| flags.split_whitespace().any(|flag| flag == need))
    }
}

fn parse_directives(text: &str) -> Result<Directives, String> {
    let mut directives = Directives::default();
    for line in text.lines().take_while(|line| line.starts_with("//")) {
        let Some((name, value)) = line.trim_start_matches('/').trim().split_once(": ") else {
            continue;
        };
        let words = || value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let number = || value.trim().parse().map_err(|_| format!("`{line}` needs a number"));
        match name {
            "build" => directives.build = Some(words()),
            "flags" => directives.flags = Some(words()),
            "cflags" => directives.cflags = words(),
            "link" => directives.link = words(),
            "pie" => directives.no_pie = value.trim() == "no",
            "library" => {
                let mut words = words();
                directives.library = Some((words.remove(0), words));
            }
            "run-args" => directives.run_args = words(),
            "expect-exit" => directives.exit = number()?,
            "expect-signal" => directives.signal = Some(number()?),
            "crashproof" => directives.crashproof = words(),
            "config" => directives.config = Some(value.trim().to_owned()),
            "needs" => directives.needs = words(),
            "file-differs" => directives.file_differs = true,
            "incomplete" => directives.incomplete = true,
            "dependences" => directives.dependences = true,
            // Prose with a colon in it.
            name if name.contains(' ') => {}
            name => return Err(format!("no directive is called `{name}`")),
        }
    }
    Ok(directives)
}

/// All programs, in the order of their names.
pub(crate) fn all() -> Vec<Case> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus"));
    let root = root.canonicalize().expect("the corpus lies beside the crates");
    let mut sources = Vec::new();
    // The structures have seeded bugs that only a crash shows, and a test of their own.
    let others = ["structures", "drivers"];
    for area in list(&root)
        .into_iter()
        .filter(|area| !others.iter().any(|other| area.ends_with(other)))
    {
        sources.extend(
            list(&area)
                .into_iter()
                .filter(|p| p.extension().is_some_and(|e| e == "c" || e == "cpp")),
        );
    }
    sources.sort();
    let cases = sources
        .into_iter()
        .map(|source| Case::read(&root, source))
        .collect::<Result<_, _>>();
    cases.unwrap_or_else(|error| panic!("{error}"))
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
