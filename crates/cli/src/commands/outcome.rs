//! What becomes of a report: shown, written, judged.

use std::io::Write;
use std::path::{Path, PathBuf};

use crashproof_report::{Report, TerminalOptions, render_terminal, to_json, to_sarif};

use crate::exit::Exit;
use crate::terminal;

#[derive(Debug, thiserror::Error)]
enum OutcomeError {
    #[error("cannot write the {what} to {}: {source}", path.display())]
    Output {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot make a temporary trace in {}: {source}; set TMPDIR, or name a file with --keep-trace", folder.display())]
    TemporaryTrace { folder: PathBuf, source: std::io::Error },
}

/// On stderr.
pub fn show(report: &Report) {
    let options = TerminalOptions {
        color: terminal::color(),
        width: terminal::width(),
        root: std::env::current_dir().unwrap_or_default(),
    };
    terminal::print(&render_terminal(report, &options));
}

pub fn write_machine_readable(
    report: &Report,
    json: Option<&Path>,
    sarif: Option<&Path>,
) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = json {
        write("JSON", path, &to_json(report)?)?;
    }
    if let Some(path) = sarif {
        write(
            "SARIF",
            path,
            &to_sarif(report, &std::env::current_dir().unwrap_or_default())?,
        )?;
    }
    Ok(())
}

pub fn verdict(report: &Report) -> Exit {
    match (report.findings.is_empty(), report.trace.complete) {
        (false, _) => Exit::Findings,
        (true, true) => Exit::Clean,
        // What was not recorded may hold anything, so this is not clean.
        (true, false) => Exit::Failed,
    }
}

/// `-` is stdout.
pub fn write(what: &'static str, path: &Path, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let written = match path.to_str() {
        Some("-") => std::io::stdout().lock().write_all(text.as_bytes()),
        _ => std::fs::write(path, text),
    };
    written.map_err(|source| {
        OutcomeError::Output {
            what,
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

pub fn temporary_trace() -> Result<tempfile::TempPath, Box<dyn std::error::Error>> {
    let made = tempfile::Builder::new()
        .prefix("crashproof-")
        .suffix(".trace")
        .tempfile();
    made.map(tempfile::NamedTempFile::into_temp_path).map_err(|source| {
        OutcomeError::TemporaryTrace {
            folder: std::env::temp_dir(),
            source,
        }
        .into()
    })
}
