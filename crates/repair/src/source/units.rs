//! Translation units, parsed by libclang with the compile commands that `crashproof cc` noted.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{cell::RefCell, fs};

use clang::{Clang, Entity, EntityKind, Index, TranslationUnit};

use super::SourceError;
use super::refusal::Refusal;
use super::text::SourceFile;

/// How an object was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileCommand {
    pub source: PathBuf,
    pub directory: PathBuf,
    /// The whole command, the compiler first.
    pub command: Vec<String>,
}

/// libclang allows one user in a process at a time.
static LIBCLANG: Mutex<()> = Mutex::new(());

/// libclang, loaded.
pub(crate) struct Libclang {
    pub clang: Clang,
    _only: MutexGuard<'static, ()>,
}

impl Libclang {
    pub(crate) fn load() -> Result<Libclang, SourceError> {
        let only = LIBCLANG.lock().unwrap_or_else(PoisonError::into_inner);
        match Clang::new() {
            Ok(clang) => Ok(Libclang { clang, _only: only }),
            Err(reason) => Err(SourceError::Libclang { reason }),
        }
    }
}

pub(crate) struct Units<'i> {
    index: &'i Index<'i>,
    /// Canonical; nothing outside of it is changed.
    tree: PathBuf,
    commands: Vec<CompileCommand>,
    /// Of the commands, canonical.
    sources: Vec<PathBuf>,
    units: Vec<OnceCell<Result<TranslationUnit<'i>, String>>>,
    files: RefCell<BTreeMap<PathBuf, Result<Rc<SourceFile>, Refusal>>>,
    /// What libclang calls a file, and its canonical path: asking the system each time would take most of the time.
    paths: RefCell<BTreeMap<PathBuf, PathBuf>>,
}

impl<'i> Units<'i> {
    pub(crate) fn new(index: &'i Index<'i>, tree: &Path, commands: Vec<CompileCommand>) -> Units<'i> {
        Units {
            index,
            tree: canonical(tree),
            units: commands.iter().map(|_| OnceCell::new()).collect(),
            sources: commands
                .iter()
                .map(|command| canonical(&command.directory.join(&command.source)))
                .collect(),
            commands,
            files: RefCell::default(),
            paths: RefCell::default(),
        }
    }

    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }

    /// The text of a file of the tree that people edit.
    pub(crate) fn file(&self, path: &Path) -> Result<Rc<SourceFile>, Refusal> {
        let path = canonical(path);
        let read = || {
            if !path.starts_with(&self.tree) {
                return Err(Refusal::OutsideTree { path: path.clone() });
            }
            let text = fs::read_to_string(&path).map_err(|error| Refusal::Unreadable {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            match generated(&text) {
                Some(evidence) => Err(Refusal::Generated {
                    path: path.clone(),
                    evidence,
                }),
                None => Ok(Rc::new(SourceFile::new(path.clone(), text))),
            }
        };
        self.files.borrow_mut().entry(path.clone()).or_insert_with(read).clone()
    }

    /// Parsed units, the one whose main file it is first, then those that include it.
    pub(crate) fn including<'a>(&'a self, path: &Path) -> impl Iterator<Item = Unit<'a>> + use<'a, 'i> {
        let path = canonical(path);
        let main = |index: &usize| self.sources[*index] == path;
        let first: Vec<usize> = (0..self.commands.len()).filter(main).collect();
        // A source of its own is in no other unit, as a rule: the others are not parsed for it.
        let others: Vec<usize> = match first.is_empty() {
            true => (0..self.commands.len()).collect(),
            false => Vec::new(),
        };
        first
            .into_iter()
            .chain(others)
            .filter_map(|index| self.unit(index))
            .filter(move |unit| unit.includes(&path))
    }

    /// How a unit is compiled, without its source and outputs.
    pub(crate) fn arguments(&self, unit: &Unit) -> Vec<String> {
        arguments(&self.commands[unit.index], &self.commands)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Unit<'_>> {
        (0..self.commands.len()).filter_map(|index| self.unit(index))
    }

    fn unit(&self, index: usize) -> Option<Unit<'_>> {
        let unit = self.units[index].get_or_init(|| {
            let command = &self.commands[index];
            let mut parser = self.index.parser(command.directory.join(&command.source));
            let arguments = arguments(command, &self.commands);
            parser
                .arguments(&arguments)
                .detailed_preprocessing_record(true)
                .incomplete(false);
            parser.parse().map_err(|error| error.to_string())
        });
        unit.as_ref().ok().map(|unit| Unit {
            unit,
            main: &self.sources[index],
            is_cxx: is_cxx(&self.commands[index]),
            index,
            directory: &self.commands[index].directory,
            paths: &self.paths,
        })
    }
}

/// A parsed translation unit.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub unit: &'a TranslationUnit<'a>,
    /// Of its command.
    pub index: usize,
    main: &'a Path,
    is_cxx: bool,
    directory: &'a Path,
    paths: &'a RefCell<BTreeMap<PathBuf, PathBuf>>,
}

impl<'a> Unit<'a> {
    pub(crate) fn root(&self) -> Entity<'a> {
        self.unit.get_entity()
    }

    pub(crate) fn is_cxx(&self) -> bool {
        self.is_cxx
    }

    /// Canonical.
    pub(crate) fn main_file(&self) -> &'a Path {
        self.main
    }

    /// Whether a file includes another, directly or not.
    pub(crate) fn is_included_by(&self, path: &Path, by: &Path) -> bool {
        let mut reached = vec![by.to_path_buf()];
        let mut next = 0;
        let directives: Vec<(PathBuf, PathBuf)> = self
            .root()
            .get_children()
            .iter()
            .filter(|entity| entity.get_kind() == EntityKind::InclusionDirective)
            .filter_map(|entity| {
                let from = entity.get_location()?.get_file_location().file?;
                Some((self.path(from), self.path(entity.get_file()?)))
            })
            .collect();
        while next < reached.len() {
            if reached[next] == path {
                return true;
            }
            for (from, to) in &directives {
                if *from == reached[next] && !reached.contains(to) {
                    reached.push(to.clone());
                }
            }
            next += 1;
        }
        false
    }

    /// Canonical, as the working directory of the compiler has it.
    pub(crate) fn path(&self, file: clang::source::File) -> PathBuf {
        let path = self.directory.join(file.get_path());
        let mut paths = self.paths.borrow_mut();
        match paths.get(&path) {
            Some(known) => known.clone(),
            None => {
                let known = canonical(&path);
                paths.insert(path, known.clone());
                known
            }
        }
    }

    fn includes(&self, path: &Path) -> bool {
        if self.unit.get_file(path).is_some() {
            return true;
        }
        // Found under another name, e.g. through a relative -I.
        self.root().get_children().iter().any(|entity| {
            let file = entity
                .get_location()
                .and_then(|location| location.get_file_location().file);
            entity.get_kind() != EntityKind::MacroDefinition && file.is_some_and(|file| self.path(file) == path)
        })
    }
}

fn is_cxx(command: &CompileCommand) -> bool {
    let extension = command.source.extension().and_then(|extension| extension.to_str());
    let is_told = command
        .command
        .windows(2)
        .any(|pair| pair[0] == "-x" && pair[1].starts_with("c++"));
    let compiler = command.command.first();
    is_told || extension != Some("c") || compiler.is_some_and(|compiler| compiler.ends_with("++"))
}

pub(crate) fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

/// What the command says of the language: without the compiler, the source, others that it compiles as well (one of `all` has the same command
/// for each), and what concerns outputs.
fn arguments(command: &CompileCommand, all: &[CompileCommand]) -> Vec<String> {
    let mut arguments = vec![format!("-working-directory={}", command.directory.display())];
    if command.command.first().is_some_and(|compiler| compiler.ends_with("++")) {
        arguments.push("--driver-mode=g++".into());
    }
    let is_same = |other: &&CompileCommand| other.command == command.command && other.directory == command.directory;
    let sources: Vec<_> = all
        .iter()
        .filter(is_same)
        .map(|other| other.source.to_string_lossy())
        .collect();
    let mut words = command.command.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" | "-MF" | "-MT" | "-MQ" | "-MJ" => {
                words.next();
            }
            "-c" | "-S" | "-E" | "-M" | "-MM" | "-MD" | "-MMD" | "-MP" | "-MG" | "--" => {}
            word if sources.iter().any(|source| *word == **source) => {}
            // Joined forms of the above; warnings are the build's to make.
            word if word.starts_with("-o") || word.starts_with("-MF") || word.starts_with("-Werror") => {}
            word => arguments.push(word.into()),
        }
    }
    arguments.push("-w".into());
    arguments
}

/// Evidence that a program wrote the text.
fn generated(text: &str) -> Option<String> {
    let head = text.lines().take(12);
    let says_so = |line: &str| {
        let lower = line.to_lowercase();
        let is_comment = ["/*", "*", "//", "#"]
            .iter()
            .any(|mark| lower.trim_start().starts_with(mark));
        is_comment
            && [
                "generated by",
                "automatically generated",
                "auto-generated",
                "autogenerated",
                "@generated",
                "do not edit",
                "a bison parser",
                "a lexical scanner generated",
            ]
            .iter()
            .any(|mark| lower.contains(mark))
    };
    if let Some(line) = head.clone().find(|line| says_so(line)) {
        return Some(format!(
            "it says \u{201c}{}\u{201d}",
            line.trim_matches([' ', '*', '/', '#'])
        ));
    }
    let is_line_directive = |line: &str| {
        let rest = line.trim_start().strip_prefix('#').map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with("line ") || rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    text.lines()
        .any(is_line_directive)
        .then(|| "it has #line directives".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_options_are_dropped() {
        let command = CompileCommand {
            source: "a.cc".into(),
            directory: "/src".into(),
            command: [
                "crashproof-c++",
                "-O2",
                "-Iinclude",
                "-DX=1",
                "-c",
                "-MD",
                "-MF",
                "a.d",
                "a.cc",
                "-o",
                "a.o",
            ]
            .map(String::from)
            .into(),
        };
        assert_eq!(
            arguments(&command, std::slice::from_ref(&command)),
            [
                "-working-directory=/src",
                "--driver-mode=g++",
                "-O2",
                "-Iinclude",
                "-DX=1",
                "-w"
            ]
        );
    }

    #[test]
    fn other_sources_of_the_command_are_dropped() {
        let of = |source: &str| CompileCommand {
            source: source.into(),
            directory: "/src".into(),
            command: ["crashproof-cc", "-DX", "-o", "app", "a.c", "b.c"]
                .map(String::from)
                .into(),
        };
        let all = [of("a.c"), of("b.c")];
        assert_eq!(arguments(&all[1], &all), ["-working-directory=/src", "-DX", "-w"]);
    }

    #[test]
    fn generated_code_is_known_by_its_marks() {
        assert!(generated("/* A Bison parser, made by GNU Bison 3.8.2. */\nint x;\n").is_some());
        assert!(generated("int x;\n#line 3 \"x.y\"\nint y;\n").is_some());
        assert_eq!(generated("// Writes code that is generated.\nint x;\n"), None);
    }
}
