//! What a test runs of other packages: cargo builds only the programs of the test's own package. With this,
//! `cargo test -p PACKAGE` works on its own.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Set by `make test`, which has built everything.
const ALL_BUILT: &str = "CRASHPROOF_BUILT";

/// The runtime that is preloaded into recorded programs, up to date.
pub fn runtime() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build(&["crashproof-runtime"]));
    file("libcrashproof_runtime.so")
}

/// The directory of `crashproof`, its runtime and the programs that need LLVM, up to date.
pub fn programs() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let packages = [
        "crashproof",
        "crashproof-runtime",
        "crashproof-compiler",
        "crashproof-repair",
    ];
    BUILT.get_or_init(|| build(&packages));
    folder()
}

/// One of them.
pub fn file(name: &str) -> PathBuf {
    let path = folder().join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `make test`, or unset {ALL_BUILT}",
        path.display()
    );
    path
}

fn build(packages: &[&str]) {
    if std::env::var_os(ALL_BUILT).is_some() {
        return;
    }
    let folder = folder();
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command.args(["build", "--quiet", "--profile", profile, "--target-dir"]);
    command.arg(folder.parent().unwrap_or(Path::new("target")));
    packages.iter().for_each(|package| {
        command.args(["-p", package]);
    });
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cargo cannot be run: {error}"));
    assert!(status.success(), "{command:?} failed");
}

/// Where cargo puts the programs of the profile in which this test was built; the test is in `deps` there.
fn folder() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows where it is");
    let folder = own.ancestors().nth(2).expect("cargo puts tests into a directory");
    folder.to_owned()
}
