//! Command lines that must do the same under the recorder as without it: output, exit status, files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a line may take.
const SECONDS: &str = "120";

/// One a line; blank lines and those that begin with `#` are for the reader.
const LINES: &str = include_str!("lines.txt");

pub fn lines() -> impl Iterator<Item = &'static str> {
    LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What a run left.
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: std::process::ExitStatus,
    files: BTreeMap<String, Vec<u8>>,
}

impl Outcome {
    /// The first thing in which a later run of the same line differs from this one.
    fn differs(&self, later: &Outcome) -> Option<&'static str> {
        if self.status != later.status {
            Some("the exit status")
        } else if self.stdout != later.stdout {
            Some("stdout")
        } else if self.files != later.files {
            Some("what is in the files")
        } else if !later.stderr.starts_with(&self.stderr) {
            // The recorder's own summary comes after what the program printed.
            Some("stderr")
        } else {
            None
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let files: Vec<_> = self.files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
        write!(
            f,
            "{}, stdout {stdout:?}, stderr {stderr:?}, files {files:?}",
            self.status
        )
    }
}

/// Runs each of the first so many lines natively and recorded; says what differs.
pub fn compare(crashproof: &Path, most: usize) -> Result<Vec<String>, String> {
    let crashproof = absolute(crashproof)?;
    let compared = lines()
        .take(most)
        .filter_map(|line| compare_one(&crashproof, line).err());
    Ok(compared.collect())
}

/// The program's path from whatever directory a command line runs in.
pub fn absolute(program: &Path) -> Result<PathBuf, String> {
    std::fs::canonicalize(program).map_err(|error| format!("cannot find {}: {error}", program.display()))
}

fn compare_one(crashproof: &Path, line: &str) -> Result<(), String> {
    let natively = || run(limited("sh").args(["-c", line]));
    let native = natively()?;
    let recorded = run(limited(crashproof).args(["record", "-o", "/dev/null", "--", "sh", "-c", line]))?;
    let Some(what) = native.differs(&recorded) else {
        return Ok(());
    };
    // What the line does is not the same each time: nothing can be said.
    if natively()?.differs(&native) == Some(what) {
        eprintln!("soak: `{line}`: {what} differs natively, too");
        return Ok(());
    }
    Err(format!(
        "`{line}`: {what} differs:\n  natively {native}\n  recorded {recorded}"
    ))
}

/// A command that is ended if it takes too long; its status is 124 then.
fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", SECONDS]).arg(program);
    command
}

fn run(command: &mut Command) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let mut files = BTreeMap::new();
    collect(folder.path(), folder.path(), &mut files);
    Ok(Outcome {
        stdout: output.stdout,
        stderr: output.stderr,
        status: output.status,
        files,
    })
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(root, &path, files),
            Ok(kind) if kind.is_file() => {
                files.insert(name, std::fs::read(&path).unwrap_or_default());
            }
            // A link, a pipe, a socket.
            kind => {
                files.insert(name, format!("{kind:?}").into_bytes());
            }
        }
    }
}
