//! Builds a structure and runs `crashproof crash` on it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crashproof_finding::Report;

use crate::structure::{Expectation, Structure};
use crate::support;

pub(crate) const SEED: &str = "7";

/// How a structure is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// Types are from debug info, and call paths stand in where it has none.
    Gcc,
    /// `crashproof cc`: every store has its type and field.
    Crashproof,
}

impl Compiler {
    pub(crate) const ALL: [Compiler; 2] = [Compiler::Gcc, Compiler::Crashproof];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Compiler::Gcc => "gcc",
            Compiler::Crashproof => "crashproof cc",
        }
    }

    fn command(self, cxx: bool) -> Command {
        match self {
            Compiler::Gcc => Command::new(if cxx { "g++" } else { "gcc" }),
            Compiler::Crashproof => {
                let mut command = support::crashproof();
                command.arg(if cxx { "c++" } else { "cc" });
                command
            }
        }
    }
}

/// The program in a folder of its own; kept until a source, a flag or the compiler changes.
pub(crate) fn build(structure: &Structure, bug: Option<&str>, compiler: Compiler) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("structures");
    let folder = folder
        .join(&structure.name)
        .join(bug.unwrap_or("fixed"))
        .join(compiler.name());
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let program = folder.join("program");
    let mut command = compiler.command(structure.is_cxx());
    command.args(["-g", "-O1"]);
    command.arg(if structure.is_cxx() {
        "-std=gnu++17"
    } else {
        "-std=gnu11"
    });
    command.args(bug.map(|bug| format!("-D{bug}")));
    command.arg(&structure.source).arg("-lpthread").arg("-o").arg(&program);

    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    let here = structure.source.with_file_name("");
    let headers = ["structure.h", "kv.h", "kv_model.h", "../pm.h"].map(|name| here.join(name));
    let compiler_itself = Path::new(env!("CARGO_BIN_EXE_crashproof")).with_file_name("crashproof-cc");
    for input in [&structure.source].into_iter().chain(&headers) {
        let content = std::fs::read(input).map_err(|error| format!("{}: {error}", input.display()))?;
        content.hash(&mut hasher);
    }
    if compiler == Compiler::Crashproof {
        let built = std::fs::metadata(&compiler_itself).and_then(|file| file.modified());
        built
            .map_err(|error| format!("{}: {error}", compiler_itself.display()))?
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

pub(crate) struct Crashed {
    pub report: Report,
    pub stderr: String,
    /// Of `crashproof crash` itself.
    pub exit: Option<i32>,
}

/// With one worker: structures are tested beside each other.
pub(crate) fn crash(program: &Path, operations: u32, strategy: &str, limits: &[&str]) -> Result<Crashed, String> {
    let folder = program.with_file_name("");
    let (pm, json) = (folder.join("pm"), folder.join("report.json"));
    let _ = std::fs::remove_file(&pm);
    let _ = std::fs::remove_file(&json);
    // Paths from the program's own folder, so that no command needs quotes.
    let mut command = support::crashproof();
    command.args(["crash", "--strategy", strategy, "--jobs", "1", "--json", "report.json"]);
    command.args(limits);
    command.arg("--recover").arg(format!("./program verify pm {SEED}"));
    command.args(["--", "./program", "load", "pm", &operations.to_string(), SEED]);
    command.current_dir(&folder).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let stderr = support::text(&output.stderr);
    let text = std::fs::read_to_string(&json)
        .map_err(|_| format!("{command:?} ended with {} and no JSON:\n{stderr}", output.status))?;
    let report = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(Crashed {
        report,
        stderr,
        exit: output.status.code(),
    })
}

impl Crashed {
    /// What is found names one of the lines that are marked for the bug.
    pub(crate) fn finds(&self, structure: &Structure, expectations: &[Expectation]) -> bool {
        structure.names(&self.report, expectations)
    }
}
