//! Compiles the programs, and keeps what it compiled until a source or a flag changes.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::Case;
use crate::support;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// gcc without optimisation: every store is where the source has it.
    Gcc,
    /// clang with optimisation: stores are merged and moved where the source allows it.
    Clang,
    /// `crashproof cc` with optimisation: every store has its type and field.
    Crashproof,
}

impl Variant {
    pub(crate) const ALL: [Variant; 3] = [Variant::Gcc, Variant::Clang, Variant::Crashproof];

    fn compiler(self, cxx: bool) -> &'static str {
        match (self, cxx) {
            (Variant::Gcc, false) => "gcc",
            (Variant::Gcc, true) => "g++",
            (Variant::Clang, false) => "clang-19",
            (Variant::Clang, true) => "clang++-19",
            (Variant::Crashproof, false) => "crashproof-cc",
            (Variant::Crashproof, true) => "crashproof-c++",
        }
    }

    fn command(self, cxx: bool) -> Command {
        if self != Variant::Crashproof {
            return Command::new(self.compiler(cxx));
        }
        let mut command = support::crashproof();
        command.arg(if cxx { "c++" } else { "cc" });
        command
    }

    fn flag(self) -> &'static str {
        match self {
            Variant::Gcc => "-O0",
            Variant::Clang | Variant::Crashproof => "-O2",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.compiler(false), self.flag())
    }
}

/// The program, in a folder of its own.
pub(crate) fn build(case: &Case, variant: Variant) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash").join(&case.name);
    let folder = folder.join(variant.compiler(false));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = folder.join("program");
    let standard = if case.is_cxx() { "-std=gnu++17" } else { "-std=gnu11" };
    let mut command = variant.command(case.is_cxx());
    command.args(["-g", variant.flag(), standard]);
    command.args(match case.directives.no_pie {
        true => ["-fno-pie", "-no-pie"],
        false => ["-fpie", "-pie"],
    });
    command.arg(&case.source).arg("-lpthread").args(&case.directives.link);
    command.arg("-o").arg(&program);

    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    let area = case.source.with_file_name("");
    for input in [case.source.clone(), area.join("../app.h"), area.join("../../pm.h")] {
        let content = std::fs::read(&input).map_err(|error| format!("{}: {error}", input.display()))?;
        content.hash(&mut hasher);
    }
    if variant == Variant::Crashproof {
        let compiler = Path::new(env!("CARGO_BIN_EXE_crashproof")).with_file_name("crashproof-cc");
        let built = std::fs::metadata(&compiler).and_then(|file| file.modified());
        built
            .map_err(|error| format!("{}: {error}", compiler.display()))?
            .hash(&mut hasher);
    }
    let key = format!("{:016x}", hasher.finish());
    let key_file = folder.join("key");
    if program.exists() && std::fs::read_to_string(&key_file).is_ok_and(|old| old == key) {
        return Ok(program);
    }
    let result = command
        .output()
        .map_err(|error| format!("{command:?}: {error}; tools/deps.sh installs the compilers"))?;
    if !result.status.success() {
        return Err(format!("{command:?}\n{}", String::from_utf8_lossy(&result.stderr)));
    }
    std::fs::write(&key_file, key).map_err(|error| format!("{}: {error}", key_file.display()))?;
    Ok(program)
}
