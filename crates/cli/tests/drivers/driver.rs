//! The drivers of the corpus, built and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::listing;
use crate::operations::Shape;
use crate::structure::Structure;
use crate::support;

#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub structure: Structure,
    pub shape: Shape,
    needs_pmemobj: bool,
}

pub(crate) fn all() -> Result<Vec<Driver>, String> {
    let drivers = listing::drivers()?.into_iter().map(|structure| {
        let shape = match structure.name.as_str() {
            "array.c" => Shape::Array,
            "queue.c" => Shape::Queue,
            _ => Shape::Map,
        };
        let needs_pmemobj = listing::needs_pmemobj(&structure)?;
        Ok(Driver {
            structure,
            shape,
            needs_pmemobj,
        })
    });
    drivers.collect()
}

impl Driver {
    /// The program as gcc builds it, or `crashproof cc` with these options, in a folder of its own.
    pub(crate) fn build(&self, crashproof: Option<&[&str]>, defines: &[&str]) -> Result<Place, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("a temporary folder: {error}"))?;
        let cxx = self.structure.is_cxx();
        let mut command = match crashproof {
            Some(options) => {
                let mut command = support::crashproof();
                command.arg(if cxx { "c++" } else { "cc" }).args(options);
                command
            }
            None => Command::new(if cxx { "g++" } else { "gcc" }),
        };
        command.args(["-g", "-O1", "-DDRIVER"]);
        command.arg(if cxx { "-std=gnu++17" } else { "-std=gnu11" });
        command.args(defines.iter().map(|define| format!("-D{define}")));
        command.arg(&self.structure.source).args(["-o", "program"]);
        command.args(self.needs_pmemobj.then_some("-lpmemobj"));
        let result = command.current_dir(folder.path()).output();
        let result = result.map_err(|error| format!("{command:?}: {error}; tools/deps.sh installs the compilers"))?;
        if !result.status.success() {
            return Err(format!("{command:?}\n{}", support::text(&result.stderr)));
        }
        Ok(Place { folder })
    }
}

/// Where a driver lies, as `program`, with its operations and its pool.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.path(name), text).map_err(|error| format!("{name}: {error}"))
    }

    pub(crate) fn run(&self, pool: &str, arguments: &[&str]) -> Result<Output, String> {
        let mut command = Command::new(self.path("program"));
        command
            .arg(pool)
            .args(arguments)
            .env("PMEM_IS_PMEM_FORCE", "1")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        // Another test that forks just now may still have the program open for writing.
        loop {
            match command.output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                result => return result.map_err(|error| format!("{command:?}: {error}")),
            }
        }
    }

    /// The lines that it prints; it must succeed.
    pub(crate) fn lines(&self, pool: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let output = self.run(pool, arguments)?;
        if !output.status.success() {
            return Err(format!(
                "{arguments:?} ends with {}: {}",
                output.status,
                support::text(&output.stderr)
            ));
        }
        Ok(support::text(&output.stdout).lines().map(str::to_owned).collect())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
