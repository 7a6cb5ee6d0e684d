//! Which clang is used, and how its processes are run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use crashproof_interrupt as interrupt;

use crate::CompileError;

pub(super) const VARIABLE: &str = "CRASHPROOF_CLANG";
const NAME: &str = "clang-19";
const INSTALLED: &str = "/usr/lib/llvm-19/bin/clang";

/// The kernel refuses more than two megabytes of arguments and environment.
const LONGEST_COMMAND: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cpp,
}

impl Language {
    /// The word that makes clang's driver treat inputs, and link, as for this language.
    fn mode(self) -> Option<&'static str> {
        match self {
            Language::C => None,
            Language::Cpp => Some("--driver-mode=g++"),
        }
    }
}

pub(super) struct Clang {
    pub path: PathBuf,
    pub language: Language,
}

impl Clang {
    /// The one that the environment names, else `clang-19` in `PATH`, else where LLVM's packages install it.
    pub(super) fn find(language: Language) -> Result<Clang, CompileError> {
        let path = match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(given) => {
                let found = if given.as_bytes().contains(&b'/') {
                    executable(Path::new(&given)).then(|| PathBuf::from(&given))
                } else {
                    in_path(&given)
                };
                found.ok_or_else(|| CompileError::NoClang {
                    tried: format!("{VARIABLE} is {}, which cannot be executed", given.display()),
                })?
            }
            None => in_path(OsStr::new(NAME))
                .or_else(|| executable(Path::new(INSTALLED)).then(|| INSTALLED.into()))
                .ok_or_else(|| CompileError::NoClang {
                    tried: format!("neither {NAME} in PATH nor {INSTALLED}"),
                })?,
        };
        Ok(Clang { path, language })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(self.language.mode());
        command
    }

    /// Becomes clang; returns only if that fails.
    pub(super) fn replace(&self, arguments: &[OsString]) -> CompileError {
        let source = self.command().args(arguments).exec();
        CompileError::Start {
            path: self.path.clone(),
            source,
        }
    }

    /// What clang would execute, as it tells on stderr; temporary files are to lie in `scratch`.
    pub(super) fn plan(
        &self,
        options: &[&str],
        arguments: &[OsString],
        scratch: &Path,
    ) -> Result<Output, CompileError> {
        let mut command = self.command();
        command.arg("-###").args(options).args(arguments).env("TMPDIR", scratch);
        command
            .stdin(Stdio::null())
            .output()
            .map_err(|source| CompileError::Start {
                path: self.path.clone(),
                source,
            })
    }
}

/// Runs a program with this process's stdin, stdout and stderr. Arguments that are too many for the kernel go through a response
/// file.
pub(super) fn run(program: &OsStr, arguments: &[OsString], scratch: &Path) -> Result<ExitStatus, CompileError> {
    let length: usize = arguments.iter().map(|argument| argument.len() + 9).sum();
    let mut command = Command::new(program);
    if length > LONGEST_COMMAND {
        let (kept, rest) = match arguments.first() {
            Some(first) if first.as_bytes().starts_with(b"-cc1") => arguments.split_at(1),
            _ => arguments.split_at(0),
        };
        command.args(kept).arg(response_file(rest, scratch)?);
    } else {
        command.args(arguments);
    }
    let start = |source| CompileError::Start {
        path: program.into(),
        source,
    };
    let mut child = command.spawn().map_err(start)?;
    interrupt::wait_for(child.id());
    child.wait().map_err(start)
}

/// `@file`, with each argument quoted.
fn response_file(arguments: &[OsString], scratch: &Path) -> Result<OsString, CompileError> {
    let mut text = Vec::new();
    for argument in arguments {
        text.push(b'"');
        for &byte in argument.as_bytes() {
            if matches!(byte, b'"' | b'\\') {
                text.push(b'\\');
            }
            text.push(byte);
        }
        text.extend_from_slice(b"\"\n");
    }
    let path = scratch.join("arguments");
    fs::File::create(&path)
        .and_then(|mut file| file.write_all(&text))
        .map_err(|source| CompileError::File {
            what: "write",
            path: path.clone(),
            source,
        })?;
    let mut word = OsString::from("@");
    word.push(path);
    Ok(word)
}

/// As a shell would say it.
pub(super) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| executable(path))
}

fn executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
