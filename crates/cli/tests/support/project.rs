//! A source tree of one program for `crashproof repair`, and the command in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// Builds it.
pub(crate) const BUILD: &str = "$CC -g -O2 -o app app.c";

pub(crate) struct Project {
    folder: TempDir,
    source: String,
}

impl Project {
    pub(crate) fn new(source: &str) -> Project {
        let project = Project {
            folder: tempfile::tempdir().unwrap(),
            source: source.to_owned(),
        };
        fs::create_dir(project.path("tmp")).unwrap();
        fs::create_dir(project.path("src")).unwrap();
        fs::write(project.path("src/app.c"), source).unwrap();
        project
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// As it is now.
    pub(crate) fn source(&self) -> String {
        fs::read_to_string(self.path("src/app.c")).unwrap()
    }

    pub(crate) fn crashproof(&self, arguments: &[&str]) -> Command {
        let mut command = super::crashproof();
        command.current_dir(self.path("src")).args(arguments);
        command
            .env("TMPDIR", self.path("tmp"))
            .env_remove("CC")
            .env_remove("CXX");
        command
    }

    pub(crate) fn repair(&self, arguments: &[&str]) -> Command {
        let mut command = self.crashproof(&["repair", "--json", "../out.json"]);
        command.args(arguments);
        command
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path("out.json")).unwrap()).unwrap()
    }

    /// Nothing is left in the folder for temporary files, and the source is as it was.
    pub(crate) fn assert_untouched(&self) {
        let left: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.source(), self.source);
    }
}
