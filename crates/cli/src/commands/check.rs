//! `crashproof check`.

use std::io::Write;
use std::path::{Path, PathBuf};

use crashproof_check::{CheckOptions, Config};
use crashproof_report::{Report, TerminalOptions, render_terminal, to_json, to_sarif};
use crashproof_trace::TraceReader;

use super::Result;
use crate::arguments::{CheckArguments, Model};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::terminal;

const DEFAULT_CONFIG: &str = "crashproof.toml";

#[derive(Debug, thiserror::Error)]
enum CheckCommandError {
    #[error("cannot write the {what} to {}: {source}", path.display())]
    Output {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot make a temporary trace in {}: {source}; set TMPDIR, or name a file with --keep-trace", folder.display())]
    TemporaryTrace { folder: PathBuf, source: std::io::Error },
}

pub fn run(arguments: &CheckArguments) -> Result {
    // What is wrong with the configuration is said before the program runs, not after.
    let options = CheckOptions {
        model: match arguments.model {
            Model::Px86 => crashproof_check::Model::Px86,
            Model::Eadr => crashproof_check::Model::Eadr,
        },
        config: config(arguments.config.as_deref())?,
    };
    let report = match &arguments.trace {
        Some(trace) => check(TraceReader::open(trace)?, &options)?,
        None => check(record(arguments)?, &options)?,
    };
    let root = std::env::current_dir().unwrap_or_default();
    let options = TerminalOptions {
        color: terminal::color(),
        width: terminal::width(),
        root: root.clone(),
    };
    terminal::print(&render_terminal(&report, &options));
    if let Some(path) = &arguments.json {
        write("JSON", path, &to_json(&report)?)?;
    }
    if let Some(path) = &arguments.sarif {
        write("SARIF", path, &to_sarif(&report, &root)?)?;
    }
    Ok(verdict(&report))
}

fn verdict(report: &Report) -> Exit {
    match (report.findings.is_empty(), report.trace.complete) {
        (false, _) => Exit::Findings,
        (true, true) => Exit::Clean,
        // What was not recorded may hold anything, so this is not clean.
        (true, false) => Exit::Failed,
    }
}

/// Runs the program and opens its trace.
fn record(arguments: &CheckArguments) -> std::result::Result<TraceReader, Box<dyn std::error::Error>> {
    match &arguments.keep_trace {
        Some(path) => {
            super::record::record(&arguments.command, path, &arguments.recording)?;
            Ok(TraceReader::open(path)?)
        }
        None => {
            // Its name goes away as soon as it is open: a check that is interrupted leaves nothing behind.
            let trace = temporary_trace()?;
            super::record::record(&arguments.command, &trace, &arguments.recording)?;
            Ok(TraceReader::open(&trace)?)
        }
    }
}

fn check(mut reader: TraceReader, options: &CheckOptions) -> std::result::Result<Report, Box<dyn std::error::Error>> {
    let mut progress = Progress::new("checking");
    Ok(crashproof_check::check(&mut reader, options, |done, total| {
        progress.update(done, total)
    })?)
}

fn config(path: Option<&Path>) -> std::result::Result<Config, Box<dyn std::error::Error>> {
    match path {
        Some(path) => Ok(Config::load(path)?),
        None if Path::new(DEFAULT_CONFIG).exists() => Ok(Config::load(Path::new(DEFAULT_CONFIG))?),
        None => Ok(Config::default()),
    }
}

fn temporary_trace() -> std::result::Result<tempfile::TempPath, CheckCommandError> {
    let made = tempfile::Builder::new()
        .prefix("crashproof-")
        .suffix(".trace")
        .tempfile();
    made.map(tempfile::NamedTempFile::into_temp_path)
        .map_err(|source| CheckCommandError::TemporaryTrace {
            folder: std::env::temp_dir(),
            source,
        })
}

/// `-` is stdout.
fn write(what: &'static str, path: &Path, text: &str) -> std::result::Result<(), CheckCommandError> {
    let written = match path.to_str() {
        Some("-") => std::io::stdout().lock().write_all(text.as_bytes()),
        _ => std::fs::write(path, text),
    };
    written.map_err(|source| CheckCommandError::Output {
        what,
        path: path.to_owned(),
        source,
    })
}
