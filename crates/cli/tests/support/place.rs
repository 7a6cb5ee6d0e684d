//! A place to crash a small program in: `crash/pool.c`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{compile, source, text};

/// A folder with the program and an empty pool, in which crashproof runs.
pub(crate) struct Place {
    folder: TempDir,
}

/// Compiled once.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        compile(
            "gcc",
            &["-g", "-O1", "-Wall", "-Wextra", &source("crash/pool.c")],
            &path,
        );
        (folder, path)
    });
    path
}

impl Place {
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(program(), folder.path().join("pool")).unwrap();
        let place = Place { folder };
        let create = || {
            Command::new("./pool")
                .args(["create", "p"])
                .current_dir(place.path())
                .status()
        };
        let mut created = create();
        // Another test that forks just now may still have the copy open for writing.
        while created
            .as_ref()
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ExecutableFileBusy)
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
            created = create();
        }
        assert!(created.unwrap().success());
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = super::crashproof();
        command
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env_remove("COLUMNS");
        command
    }

    pub(crate) fn crashproof(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("crashproof runs")
    }

    /// The report of `crash` with these options; it must exit with the status.
    pub(crate) fn crash(&self, status: i32, options: &[&str], program: &[&str]) -> Value {
        let mut arguments = vec!["crash", "--json", "-", "--jobs", "1"];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(program);
        let output = self.crashproof(&arguments);
        expect(&output, status);
        // What the program prints goes there, too.
        let json = output
            .stdout
            .iter()
            .position(|&byte| byte == b'{')
            .expect("JSON on stdout");
        serde_json::from_slice(&output.stdout[json..]).unwrap()
    }

    /// What tests keep to be resumed.
    pub(crate) fn state(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.path().join("state/crashproof/crash"));
        folders.map_or_else(
            |_| Vec::new(),
            |folders| folders.map(|folder| folder.unwrap().path()).collect(),
        )
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    pub(crate) fn script(&self, name: &str, content: &str) {
        self.write(name, content);
        let path = self.path().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[track_caller]
pub(crate) fn expect(output: &Output, status: i32) {
    assert_eq!(
        output.status.code(),
        Some(status),
        "stdout: {}\nstderr: {}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[track_caller]
pub(crate) fn expect_words(output: &Output, words: &[&str]) {
    // Texts are wrapped.
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {}", text(&output.stderr));
    }
}

pub(crate) const VERIFY: [&str; 2] = ["--recover", "./pool verify p"];
pub(crate) const APPEND: [&str; 4] = ["./pool", "append", "p", "3"];
pub(crate) const APPEND_EARLY: [&str; 4] = ["./pool", "append-early", "p", "3"];

/// Processes that have the place in their environment: crashproof, its sandboxes, and what runs in them.
pub(crate) fn running(place: &Place) -> Vec<String> {
    let mark = place.path().display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        if text(&environment).contains(&mark) {
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            found.push(format!("{}: {}", path.display(), text(&command).replace('\0', " ")));
        }
    }
    found
}

pub(crate) fn nothing_runs(place: &Place) {
    let start = Instant::now();
    while !running(place).is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "left running: {:?}",
            running(place)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a finding is, wherever the program lies.
pub(crate) fn cause(finding: &Value) -> Value {
    let order = finding["order"].as_array().cloned().unwrap_or_default();
    let order: Vec<Value> = order
        .iter()
        .map(|pair| serde_json::json!([pair["before"]["line"], pair["after"]["line"]]))
        .collect();
    serde_json::json!([finding["kind"], finding["line"], order])
}
