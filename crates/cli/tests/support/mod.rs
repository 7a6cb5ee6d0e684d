//! What tests share that run the real tool on real programs.
#![allow(dead_code)]

pub mod made;
pub mod place;
pub mod pmdk;
pub mod project;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn crashproof() -> Command {
    crashproof_testing::programs();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashproof"));
    if std::env::var_os("CRASHPROOF_RUNTIME").is_none() {
        command.env("CRASHPROOF_RUNTIME", crashproof_testing::runtime());
    }
    command
}

/// Compiles with a C compiler, and says what it said if it fails.
pub fn compile(compiler: &str, arguments: &[&str], output: &Path) {
    let result = Command::new(compiler).args(arguments).arg("-o").arg(output).output();
    let result = result.unwrap_or_else(|error| panic!("{compiler} cannot be run ({error}): see tools/deps.sh"));
    assert!(
        result.status.success(),
        "{compiler} {arguments:?}:\n{}",
        String::from_utf8_lossy(&result.stderr)
    );
}

pub fn source(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
        .display()
        .to_string()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a command that must succeed with this status.
pub fn run(command: &mut Command, status: i32) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{command:?}\nstdout: {}\nstderr: {}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}
