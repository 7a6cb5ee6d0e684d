//! Compiles the programs, and keeps what it compiled until a source or a flag changes.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::Case;
use crate::support;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    Gcc,
    Clang,
    /// `crashproof cc`
    Crashproof,
}

impl Compiler {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Compiler::Gcc => "gcc",
            Compiler::Clang => "clang",
            Compiler::Crashproof => "crashproof-cc",
        }
    }

    fn command(self, cxx: bool) -> Command {
        match (self, cxx) {
            (Compiler::Gcc, false) => Command::new("gcc"),
            (Compiler::Gcc, true) => Command::new("g++"),
            (Compiler::Clang, false) => Command::new("clang-19"),
            (Compiler::Clang, true) => Command::new("clang++-19"),
            (Compiler::Crashproof, _) => {
                let mut command = support::crashproof();
                command.arg(if cxx { "c++" } else { "cc" });
                command
            }
        }
    }

    /// Changes when what it makes may change.
    fn version(self) -> impl Hash + use<> {
        let own = support::crashproof();
        let path = Path::new(own.get_program()).with_file_name("crashproof-cc");
        let made = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        (self == Compiler::Crashproof).then(|| made.ok())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub compiler: Compiler,
    pub optimise: bool,
}

impl Variant {
    pub(crate) fn flag(self) -> &'static str {
        if self.optimise { "-O2" } else { "-O0" }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.compiler.name(), self.flag())
    }
}

pub(crate) struct Built {
    /// Where it runs; holds nothing but this program.
    pub folder: PathBuf,
    pub program: PathBuf,
}

pub(crate) fn build(case: &Case, variant: Variant) -> Result<Built, String> {
    let directives = &case.directives;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("corpus")
        .join(format!("{}{}", case.name, variant.flag()));
    let folder = folder.join(variant.compiler.name());
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;

    let program = folder.join("program");
    let mut command = variant.compiler.command(case.is_cxx());
    command.args(directives.dependences.then_some("--deps"));
    command.args([
        "-g",
        variant.flag(),
        if case.is_cxx() { "-std=gnu++17" } else { "-std=gnu11" },
    ]);
    command.args(if directives.no_pie {
        ["-fno-pie", "-no-pie"]
    } else {
        ["-fpie", "-pie"]
    });
    command
        .args(&directives.cflags)
        .arg(&case.source)
        .args(&directives.link)
        .arg("-lpthread");
    let mut inputs = vec![case.source.clone()];
    inputs.extend(headers(case));
    compile(command, &program, &inputs, variant.compiler)?;

    if let Some((source, flags)) = &directives.library {
        let source = case.source.with_file_name("").join(source);
        let library = folder.join(source.file_stem().unwrap_or_default()).with_extension("so");
        let mut command = variant.compiler.command(false);
        command.args(["-shared", "-fPIC"]).args(flags).arg(&source);
        inputs.push(source);
        compile(command, &library, &inputs, variant.compiler)?;
    }
    Ok(Built { folder, program })
}

fn headers(case: &Case) -> [PathBuf; 2] {
    ["../pm.h", "../../include/crashproof.h"].map(|header| case.source.with_file_name("").join(header))
}

fn compile(mut command: Command, output: &Path, inputs: &[PathBuf], compiler: Compiler) -> Result<(), String> {
    command.arg("-o").arg(output);
    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    compiler.version().hash(&mut hasher);
    for input in inputs {
        std::fs::read(input)
            .map_err(|error| format!("{}: {error}", input.display()))?
            .hash(&mut hasher);
    }
    let key = format!("{:016x}", hasher.finish());
    let key_file = output.with_extension("key");
    if output.exists() && std::fs::read_to_string(&key_file).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let result = command
        .output()
        .map_err(|error| format!("{command:?}: {error}; tools/deps.sh installs the compilers"))?;
    if !result.status.success() {
        return Err(format!("{command:?}\n{}", String::from_utf8_lossy(&result.stderr)));
    }
    std::fs::write(&key_file, key).map_err(|error| format!("{}: {error}", key_file.display()))
}
