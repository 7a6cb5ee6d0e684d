//! What the driver itself must know of the command line. Everything else is clang's to parse (see `jobs`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Files named `@file` may name further ones; a file that names itself must not be read for ever.
const RESPONSE_DEPTH: usize = 16;

/// With one of these clang makes no code.
const MAKES_NO_CODE: &[&str] = &["-E", "-M", "-MM", "-fsyntax-only", "--analyze", "--version", "-###"];

/// What clang compiles by itself, by its ending; anything else is for the linker unless `-x` says what it is.
const SOURCES: &[&str] = &[
    "c", "i", "C", "cc", "CC", "cp", "cpp", "CPP", "cxx", "CXX", "c++", "C++", "ii", "m", "mi", "M", "mm", "mii", "bc",
    "ll", "cppm", "ccm", "cxxm", "c++m", "ixx", "pcm", "iim",
];

/// Ours, not clang's.
const DEPENDENCES: &str = "--deps";

/// Repair mode, if it is 1.
pub(super) const REPAIR_VARIABLE: &str = "CRASHPROOF_REPAIR";

/// Repair mode, as in section 5.1 of Hippocrates: neither optimised nor inlined, so that the stack of every store is whole and each store is
/// one of the source. The embedded bitcode may still be optimised (no `optnone`), because a fixed binary may be made of it.
/// glibc warns of `_FORTIFY_SOURCE` without optimisation, which `-Werror` would make an error.
const REPAIR: &[&str] = &[
    "-O0",
    "-Xclang",
    "-disable-O0-optnone",
    "-fno-inline",
    "-U_FORTIFY_SOURCE",
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    /// As given, with response files expanded and without what is dropped.
    pub all: Vec<OsString>,
    /// Link-time optimisation was asked for, and is not done: code that is optimised after it was instrumented would no longer
    /// store what is recorded.
    pub lto_dropped: bool,
    /// `--deps`: a version that follows dependences is put into the program.
    pub dependences: bool,
    /// Repair mode.
    pub repair: bool,
}

impl Arguments {
    pub(super) fn parse(given: impl IntoIterator<Item = OsString>) -> Arguments {
        let mut all = Vec::new();
        for argument in given {
            expand(argument, 0, &mut all);
        }
        let before = all.len();
        all.retain(|argument| argument != DEPENDENCES);
        let dependences = all.len() < before;
        let before = all.len();
        all.retain(|argument| !is_lto(argument.as_bytes()));
        Arguments {
            lto_dropped: all.len() < before,
            dependences,
            repair: false,
            all,
        }
    }

    /// Repair mode. The last `-O` counts, so these come last, but before the `--` after which there are only files. A command that
    /// compiles nothing stays as it is.
    pub(super) fn for_repair(&mut self) {
        if self.may_compile() {
            let files = self.all.iter().position(|argument| argument == "--");
            let at = files.unwrap_or(self.all.len());
            self.all.splice(at..at, REPAIR.iter().map(OsString::from));
            self.repair = true;
        }
    }

    pub(super) fn has(&self, option: &str) -> bool {
        self.all.iter().any(|argument| argument == option)
    }

    /// The word after an option.
    pub(super) fn value(&self, option: &str) -> Option<&OsStr> {
        let at = self.all.iter().position(|argument| argument == option)?;
        self.all.get(at + 1).map(OsString::as_os_str)
    }

    /// False if clang certainly compiles nothing; the driver then has no part in it.
    pub(super) fn may_compile(&self) -> bool {
        !MAKES_NO_CODE.iter().any(|option| self.has(option)) && self.all.iter().any(|argument| may_be_source(argument))
    }

    /// Whether it may link, nothing else, and is asked for dependences.
    pub(super) fn links_with_dependences(&self) -> bool {
        let only = ["-c", "-S"].iter().chain(MAKES_NO_CODE).any(|option| self.has(option));
        self.dependences && !only && !self.all.is_empty()
    }

    /// Whether the command says how diagnostics are to be coloured.
    pub(super) fn choose_color(&self) -> bool {
        self.all.iter().any(|argument| {
            let argument = argument.as_bytes();
            [
                &b"-fcolor-diagnostics"[..],
                b"-fno-color-diagnostics",
                b"-fdiagnostics-color",
                b"-fno-diagnostics-color",
            ]
            .iter()
            .any(|option| argument.starts_with(option))
        })
    }
}

fn may_be_source(argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    if bytes == b"-" || bytes.starts_with(b"-x") || bytes.starts_with(b"--language") {
        return true;
    }
    let ending = Path::new(argument).extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| SOURCES.contains(&ending))
}

fn is_lto(argument: &[u8]) -> bool {
    argument.starts_with(b"-flto")
        || [
            &b"-ffat-lto-objects"[..],
            b"-fwhole-program-vtables",
            b"-fsplit-lto-unit",
            b"-fvirtual-function-elimination",
        ]
        .contains(&argument)
}

/// An `@file` that cannot be read stays as it is, as with clang and gcc.
fn expand(argument: OsString, depth: usize, all: &mut Vec<OsString>) {
    let content = match argument.as_bytes().strip_prefix(b"@") {
        Some(file) if depth < RESPONSE_DEPTH => fs::read(OsStr::from_bytes(file)).ok(),
        _ => None,
    };
    match content {
        None => all.push(argument),
        Some(content) => {
            for word in words(&content) {
                expand(word, depth + 1, all);
            }
        }
    }
}

/// Splits as clang does in GNU mode: whitespace separates; quotes of both kinds group; a backslash takes the next character as it
/// is, within single quotes, too.
fn words(content: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = content.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(byte),
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (_, None) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[&str]) -> Arguments {
        Arguments::parse(given.iter().map(OsString::from))
    }

    #[test]
    fn response_files_are_split_as_clang_does() {
        let text = br#" -DA=1  "-DB=a b" '-DC=c "d"' -DD=\"x\" "" e\ f
            -O2"#;
        let expected = ["-DA=1", "-DB=a b", "-DC=c \"d\"", "-DD=\"x\"", "", "e f", "-O2"];
        assert_eq!(words(text), expected);
    }

    #[test]
    fn response_files_nest_and_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("outer"), folder.path().join("inner"));
        fs::write(&inner, "-c a.c").unwrap();
        fs::write(&outer, format!("-O2 @{}", inner.display())).unwrap();
        let arguments = parse(&[&format!("@{}", outer.display()), "@missing"]);
        assert_eq!(arguments.all, ["-O2", "-c", "a.c", "@missing"]);

        fs::write(&inner, format!("@{}", inner.display())).unwrap();
        assert_eq!(parse(&[&format!("@{}", inner.display())]).all.len(), 1);
    }

    #[test]
    fn lto_is_dropped() {
        let arguments = parse(&["-flto=thin", "-O2", "-fno-lto", "-ffat-lto-objects", "a.c"]);
        assert_eq!(arguments.all, ["-O2", "-fno-lto", "a.c"]);
        assert!(arguments.lto_dropped);
        assert!(!parse(&["-fno-lto", "a.c"]).lto_dropped);
    }

    #[test]
    fn dependences_are_not_clangs_business() {
        let arguments = parse(&["--deps", "a.o", "-o", "a"]);
        assert_eq!(arguments.all, ["a.o", "-o", "a"]);
        assert!(arguments.dependences && arguments.links_with_dependences());
        assert!(!parse(&["--deps", "-c", "a.c"]).links_with_dependences());
        assert!(!parse(&["a.o", "-o", "a"]).links_with_dependences());
    }

    #[test]
    fn repair_mode_comes_after_all_other_options() {
        let mut arguments = parse(&["-O2", "-c", "--", "a.c"]);
        arguments.for_repair();
        assert_eq!(arguments.all[..2], ["-O2", "-c"]);
        assert_eq!(arguments.all[2..2 + REPAIR.len()], *REPAIR);
        assert_eq!(arguments.all[2 + REPAIR.len()..], ["--", "a.c"]);
        let mut arguments = parse(&["-O2", "a.o", "-o", "a"]);
        arguments.for_repair();
        assert_eq!(arguments.all, ["-O2", "a.o", "-o", "a"]);
    }

    #[test]
    fn what_may_compile() {
        for given in [
            &["-c", "a.c"][..],
            &["a.cpp"],
            &["-xc", "-"],
            &["-x", "c++", "a.inc"],
            &["-S", "dir.d/a.ll"],
        ] {
            assert!(parse(given).may_compile(), "{given:?}");
        }
        for given in [
            &["-E", "a.c"][..],
            &["a.o", "-lm"],
            &["-c", "a.S"],
            &["--version"],
            &["-o", "a", "b.a"],
            &[],
        ] {
            assert!(!parse(given).may_compile(), "{given:?}");
        }
    }
}
