//! A folder with the sources of these tests, in which compilers are run.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use object::{Object, ObjectSection};
use tempfile::TempDir;

/// What the tests compare with.
pub(crate) const CLANG: &str = "clang-19";

pub(crate) struct Folder {
    root: TempDir,
}

impl Folder {
    /// `work` holds the sources, `tmp` is for temporary files.
    pub(crate) fn new() -> Folder {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        let folder = Folder { root };
        fs::create_dir_all(folder.path("objects")).unwrap();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources")).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), folder.path("").join(entry.file_name())).unwrap();
        }
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("work").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A command that runs here. The folder's name is the same for everyone who looks from inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path(""))
            .env("TMPDIR", self.root.path().join("tmp"))
            .env("LC_ALL", "C")
            .env_remove("CRASHPROOF_CLANG");
        command
    }

    pub(crate) fn run(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Output {
        self.command(program).args(arguments).output().unwrap()
    }

    /// Runs what must succeed; its stdout.
    pub(crate) fn done(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
        let output = self.run(program, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `crashproof-cc`, that must succeed without a word.
    pub(crate) fn cc(&self, arguments: &[&str]) {
        let output = self.run(cc(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }

    pub(crate) fn with_input(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that needs no input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// `crashproof-c++`, a link to `crashproof-cc`.
    pub(crate) fn cpp(&self) -> PathBuf {
        let path = self.root.path().join("crashproof-c++");
        if !path.exists() {
            std::os::unix::fs::symlink(cc(), &path).unwrap();
        }
        path
    }

    /// All files, with their content.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.path("")).unwrap().display().to_string();
                    files.insert(name, fs::read(&path).unwrap());
                }
            }
        }
        files
    }

    pub(crate) fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.root.path().join("tmp"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(left.is_empty(), "temporary files are left: {left:?}");
    }

    /// The data of a section of an object or a program.
    pub(crate) fn section(&self, name: &str, section: &str) -> Option<Vec<u8>> {
        let bytes = self.read(name);
        let file = object::File::parse(&bytes[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let section = file.section_by_name(section)?;
        Some(section.data().unwrap().to_vec())
    }
}

pub(crate) fn cc() -> &'static str {
    env!("CARGO_BIN_EXE_crashproof-cc")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
