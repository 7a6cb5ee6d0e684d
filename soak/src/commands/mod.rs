//! Command lines that must do the same under the recorder as without it: output, exit status, files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a line may take.
const SECONDS: &str = "30";

/// One a line; blank lines and those that begin with `#` are for the reader.
const LINES: &str = include_str!("lines.txt");

pub fn lines() -> impl Iterator<Item = &'static str> {
    LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// What a run left.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: std::process::ExitStatus,
    files: BTreeMap<String, Vec<u8>>,
}

/// Runs each line natively and recorded; says what differs.
pub fn compare(crashproof: &Path) -> Result<Vec<String>, String> {
    let crashproof = absolute(crashproof)?;
    Ok(lines()
        .filter_map(|line| compare_one(&crashproof, line).err())
        .collect())
}

/// The program's path from whatever directory a command line runs in.
pub fn absolute(program: &Path) -> Result<PathBuf, String> {
    std::fs::canonicalize(program).map_err(|error| format!("cannot find {}: {error}", program.display()))
}

fn compare_one(crashproof: &Path, line: &str) -> Result<(), String> {
    let native = run(limited("sh").args(["-c", line]))?;
    let recorded = run(limited(crashproof).args(["record", "-o", "/dev/null", "--", "sh", "-c", line]))?;
    let differs = |what: &str| {
        Err(format!(
            "`{line}`: {what} differs:\n  natively {native:?}\n  recorded {recorded:?}"
        ))
    };
    if native.status != recorded.status {
        return differs("the exit status");
    }
    if native.stdout != recorded.stdout {
        return differs("stdout");
    }
    if native.files != recorded.files {
        return differs("the files");
    }
    // The recorder's own summary comes after what the program printed.
    if !recorded.stderr.starts_with(&native.stderr) {
        return differs("stderr");
    }
    Ok(())
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
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            files.insert(name, std::fs::read(&path).unwrap_or_default());
        }
    }
}
