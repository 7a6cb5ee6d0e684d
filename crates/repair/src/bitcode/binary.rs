//! From repaired bitcode to a binary.

use std::path::Path;
use std::process::Command;

use crashproof_program::Program;

use super::{ApplyError, write};

/// Libraries that clang links anyway.
const IMPLIED: [&str; 5] = ["libc.so", "ld-linux", "libgcc_s", "libpthread.so", "libdl.so"];

/// `--out-binary`: compiles the program's module with optimisation and links it with the libraries of the original, those aside whose
/// code is in the module.
pub fn build(program: &Program, path: &Path) -> Result<(), ApplyError> {
    let compiler = std::env::var("CRASHPROOF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let write_error = |source| ApplyError::Write {
        path: path.into(),
        source,
    };
    let folder = tempfile::tempdir().map_err(write_error)?;
    let bitcode = folder.path().join("repaired.bc");
    write(program, &bitcode)?;
    let mut command = Command::new(&compiler);
    command
        .args(["-O2", "-g", "-Wno-override-module", "-o"])
        .arg(path)
        .arg(&bitcode);
    for library in program.other_libraries() {
        let name = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if IMPLIED.iter().any(|implied| name.starts_with(implied)) {
            continue;
        }
        if let Some(folder) = library.parent() {
            command.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        command.arg(library);
    }
    command.args(["-lm", "-lpthread"]);
    let output = command.output().map_err(|source| ApplyError::NoCompiler {
        compiler: compiler.clone(),
        source,
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(ApplyError::Compiler {
            compiler,
            path: path.into(),
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}
