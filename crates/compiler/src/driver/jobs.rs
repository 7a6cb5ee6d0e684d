//! What clang would execute for a command line, in its own words.
//!
//! `clang -###` parses the command line and prints the processes it would start: for each source a `clang -cc1 …`, then the
//! assembler, the linker. So that no option of a real build has to be understood here twice, the driver takes this list,
//! puts its own steps in place of the compilations that make code for this machine, and executes the rest as it stands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A process that clang would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub program: OsString,
    pub arguments: Vec<OsString>,
}

/// What `-###` said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub jobs: Vec<Job>,
    /// Warnings and errors of clang's driver.
    pub diagnostics: Vec<u8>,
    /// The lines about itself that clang prints with `-v`.
    pub banner: Vec<u8>,
}

/// What a compilation makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Makes {
    Object,
    Assembly,
    /// Bitcode or its text, as the user asked for it; it is instrumented when an object is made of it.
    Bitcode,
}

impl Plan {
    pub(super) fn parse(text: &[u8]) -> Plan {
        let mut plan = Plan::default();
        let mut rest = text;
        while !rest.is_empty() {
            if rest.starts_with(b" \"") {
                let (job, after) = job(rest);
                plan.jobs.extend(job);
                rest = after;
                continue;
            }
            let end = rest
                .iter()
                .position(|&byte| byte == b'\n')
                .map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(end);
            if is_banner(line) {
                plan.banner.extend_from_slice(line);
            } else if !line.starts_with(b" (in-process)") {
                plan.diagnostics.extend_from_slice(line);
            }
            rest = after;
        }
        plan
    }
}

fn is_banner(line: &[u8]) -> bool {
    let begins = [
        "Target: ",
        "Thread model: ",
        "InstalledDir: ",
        "Build config: ",
        "Configuration file: ",
        "System configuration file directory: ",
        "User configuration file directory: ",
        "Found candidate GCC installation: ",
        "Selected GCC installation: ",
        "Candidate multilib: ",
        "Selected multilib: ",
        "Found CUDA installation: ",
        "Found HIP installation: ",
    ];
    begins.iter().any(|begin| line.starts_with(begin.as_bytes()))
        || String::from_utf8_lossy(line).contains("clang version ")
}

/// The job on the line that `text` begins with, and what follows the line. Every word is in quotes; `"`, `\` and `$` in it have a
/// backslash in front.
fn job(text: &[u8]) -> (Option<Job>, &[u8]) {
    let mut words: Vec<OsString> = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        match (&mut word, byte) {
            (None, b'\n') => break,
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => words.extend(word.take().map(OsString::from_vec)),
            (Some(word), b'\\') if at < text.len() => {
                word.push(text[at]);
                at += 1;
            }
            (Some(word), _) => word.push(byte),
        }
    }
    let mut words = words.into_iter();
    let job = words.next().map(|program| Job {
        program,
        arguments: words.collect(),
    });
    (job, &text[at..])
}

impl Job {
    fn first(&self) -> &[u8] {
        self.arguments.first().map_or(b"", |argument| argument.as_bytes())
    }

    pub(super) fn is_compilation(&self) -> bool {
        self.first() == b"-cc1"
    }

    /// Clang's own jobs explain themselves; of others the driver says that they failed.
    pub(super) fn is_clang(&self) -> bool {
        self.first().starts_with(b"-cc1")
    }

    pub(super) fn has(&self, option: &str) -> bool {
        self.arguments.iter().any(|argument| argument == option)
    }

    /// The word after an option.
    pub(super) fn value(&self, option: &str) -> Option<&OsStr> {
        let at = self.arguments.iter().position(|argument| argument == option)?;
        self.arguments.get(at + 1).map(OsString::as_os_str)
    }

    /// Where the result goes.
    pub(super) fn output(&self) -> Option<&OsStr> {
        self.value("-o")
    }

    /// The source: clang puts it last, after its language.
    pub(super) fn input(&self) -> Option<(&OsStr, &OsStr)> {
        match self.arguments.as_slice() {
            [.., x, language, input] if x == "-x" => Some((language, input)),
            _ => None,
        }
    }

    /// What this makes, if it makes code of a C or C++ source, or of bitcode, for x86-64 Linux.
    pub(super) fn makes(&self) -> Option<Makes> {
        let (language, _) = self.input().filter(|_| self.is_compilation())?;
        let offloaded = [&b"cuda"[..], b"hip", b"cl", b"renderscript", b"hlsl"]
            .iter()
            .any(|other| language.as_bytes().starts_with(other));
        if offloaded || !self.for_this_machine() {
            return None;
        }
        [
            ("-emit-obj", Makes::Object),
            ("-S", Makes::Assembly),
            ("-emit-llvm-bc", Makes::Bitcode),
            ("-emit-llvm", Makes::Bitcode),
        ]
        .into_iter()
        .find_map(|(option, makes)| self.has(option).then_some(makes))
    }

    fn for_this_machine(&self) -> bool {
        let triple = self.value("-triple").unwrap_or_default().to_string_lossy();
        triple.starts_with("x86_64") && triple.contains("linux") && !triple.ends_with("x32")
    }

    /// As clang prints it with `-v`.
    pub(super) fn shown(&self) -> Vec<u8> {
        let mut text = b" ".to_vec();
        show(&self.program, true, &mut text);
        for argument in &self.arguments {
            text.push(b' ');
            show(argument, false, &mut text);
        }
        text.push(b'\n');
        text
    }
}

fn show(word: &OsStr, quoted: bool, text: &mut Vec<u8>) {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'$');
    let word = word.as_bytes();
    if !quoted && !word.iter().any(|byte| special(byte) || *byte == b' ') {
        text.extend_from_slice(word);
        return;
    }
    text.push(b'"');
    for byte in word {
        if special(byte) {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "clang-19: warning: -lm: 'linker' input unused [-Wunused-command-line-argument]\n\
        Debian clang version 19.1.7 (3~deb12u1)\nTarget: x86_64-pc-linux-gnu\nThread model: posix\n\
        InstalledDir: /usr/lib/llvm-19/bin\n (in-process)\n \
        \"/usr/bin/clang\" \"-cc1\" \"-triple\" \"x86_64-pc-linux-gnu\" \"-emit-obj\" \"-D\" \"A=\\\"x y\\\"\" \"-o\" \"p\\$.o\" \"-x\" \"c\" \"a\nb.c\"\n \
        \"/usr/bin/ld\" \"-o\" \"p\" \"p\\$.o\"\n";

    #[test]
    fn jobs_diagnostics_and_banner_are_told_apart() {
        let plan = Plan::parse(TEXT.as_bytes());
        assert_eq!(plan.jobs.len(), 2);
        let compilation = &plan.jobs[0];
        assert_eq!(compilation.value("-D").unwrap(), "A=\"x y\"");
        assert_eq!(compilation.output().unwrap(), "p$.o");
        assert_eq!(compilation.input().unwrap(), (OsStr::new("c"), OsStr::new("a\nb.c")));
        assert_eq!(compilation.makes(), Some(Makes::Object));
        assert_eq!(plan.jobs[1].makes(), None);
        assert!(plan.diagnostics.starts_with(b"clang-19: warning: -lm"));
        assert_eq!(plan.diagnostics.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert_eq!(plan.banner.iter().filter(|&&byte| byte == b'\n').count(), 4);
        assert_eq!(plan.jobs[1].shown(), b" \"/usr/bin/ld\" -o p \"p\\$.o\"\n");
    }

    #[test]
    fn other_targets_and_languages_are_left_alone() {
        let job = |triple: &str, action: &str, language: &str| Job {
            program: "clang".into(),
            arguments: ["-cc1", "-triple", triple, action, "-x", language, "a"]
                .map(OsString::from)
                .to_vec(),
        };
        assert_eq!(job("x86_64-pc-linux-gnu", "-S", "c++").makes(), Some(Makes::Assembly));
        assert_eq!(job("x86_64-pc-linux-gnu", "-E", "c").makes(), None);
        assert_eq!(job("bpf", "-emit-obj", "c").makes(), None);
        assert_eq!(job("i386-pc-linux-gnu", "-emit-obj", "c").makes(), None);
        assert_eq!(job("x86_64-pc-linux-gnux32", "-emit-obj", "c").makes(), None);
        assert_eq!(job("x86_64-pc-linux-gnu", "-emit-obj", "cuda").makes(), None);
    }

    #[test]
    fn cut_off_text_gives_no_panic() {
        for end in 0..TEXT.len() {
            Plan::parse(&TEXT.as_bytes()[..end]);
        }
    }
}
