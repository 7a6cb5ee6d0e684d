//! What becomes of reports: compared with a baseline, shown, written, judged.

use std::io::Write;
use std::path::{Path, PathBuf};

use crashproof_finding::{Baseline, BaselineError, Kind, Report, Severity, Verdict};
use crashproof_render::html::{HtmlOptions, to_html};
use crashproof_render::{Run, Suite, TerminalOptions, render_gnu, render_terminal, to_json, to_junit, to_sarif};
use crashproof_trace::replace;

use crate::arguments::{Format, ResultOptions};
use crate::exit::Exit;
use crate::terminal;

type Error = Box<dyn std::error::Error>;

#[derive(Debug, thiserror::Error)]
enum OutcomeError {
    #[error("cannot write the {what} to {}: {source}", path.display())]
    Output {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot read the baseline {}: {source}; write one with --json FILE", path.display())]
    NoBaseline { path: PathBuf, source: std::io::Error },
    #[error("{} is no baseline: {source}; one is what --json of check, crash or test writes", path.display())]
    BadBaseline { path: PathBuf, source: BaselineError },
    #[error("cannot write the HTML report to {}: {source}; --html names the file, in a folder that exists", path.display())]
    NoPage { path: PathBuf, source: std::io::Error },
    #[error("cannot make a temporary trace in {}: {source}; set TMPDIR, or name a file with --keep-trace", folder.display())]
    TemporaryTrace { folder: PathBuf, source: std::io::Error },
}

/// What the user wants to be told, and what to fail on.
pub(crate) struct Judge {
    baseline: Option<Baseline>,
    fail_on: Severity,
    format: Format,
    root: PathBuf,
}

impl Judge {
    /// What is wrong with the files is said before the program runs, not after.
    pub(crate) fn new(options: &ResultOptions) -> Result<Judge, Error> {
        options.html.as_deref().map_or(Ok(()), can_be_there)?;
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|source| OutcomeError::NoBaseline {
                path: path.clone(),
                source,
            })?;
            Baseline::parse(&text).map_err(|source| OutcomeError::BadBaseline {
                path: path.clone(),
                source,
            })
        };
        Ok(Judge {
            baseline: options.baseline.as_ref().map(read).transpose()?,
            fail_on: options.fail_on.into(),
            format: options.format,
            root: std::env::current_dir().unwrap_or_default(),
        })
    }

    /// Compares with the baseline and shows on stderr what is new.
    pub(crate) fn show(&self, report: &mut Report) {
        if let Some(baseline) = &self.baseline {
            baseline.compare(report);
        }
        if self.format == Format::Gnu {
            terminal::print(&render_gnu(report, &self.root));
            for reason in &report.trace.incomplete {
                terminal::warning(&format_args!("the trace is incomplete: {reason}"));
            }
            for warning in &report.warnings {
                terminal::warning(warning);
            }
            return;
        }
        let options = TerminalOptions {
            color: terminal::color(),
            width: terminal::width(),
            root: self.root.clone(),
        };
        terminal::print(&render_terminal(report, &options));
    }

    pub(crate) fn verdict(&self, report: &Report) -> Exit {
        match report.verdict(self.fail_on) {
            Verdict::Clean => Exit::Clean,
            Verdict::Findings => Exit::Findings,
            Verdict::Inconclusive => Exit::Failed,
        }
    }

    /// Says how much of the baseline is gone, which the reports should have: of the kinds that `due` selects.
    pub(crate) fn tell_gone<'a>(&self, reports: impl IntoIterator<Item = &'a Report>, due: impl Fn(Kind) -> bool) {
        let Some(baseline) = &self.baseline else {
            return;
        };
        let gone = match baseline.gone(reports, due) {
            0 => return,
            1 => "1 finding of the baseline is gone; write it anew with --json, so that it counts if it".to_owned(),
            n => format!("{n} findings of the baseline are gone; write it anew with --json, so that one counts if it"),
        };
        terminal::note(&format_args!("{gone} comes back"));
    }

    /// SARIF, JUnit and HTML, as far as they are asked for.
    pub(crate) fn write(&self, options: &ResultOptions, suites: &[Suite]) -> Result<(), Error> {
        if let Some(path) = &options.sarif {
            let ids: Vec<String> = suites.iter().map(|suite| suite.name.replace(' ', "/")).collect();
            let mut runs = Vec::new();
            for (id, suite) in ids.iter().zip(suites) {
                if let Ok(report) = &suite.report {
                    let compared = self.baseline.is_some();
                    runs.push(Run { id, report, compared });
                }
            }
            write("SARIF", path, &to_sarif(&runs, &self.root)?)?;
        }
        if let Some(path) = &options.junit {
            write("JUnit XML", path, &to_junit(suites, self.fail_on, &self.root))?;
        }
        if let Some(path) = &options.html {
            let html = HtmlOptions {
                command: command_line(),
                root: self.root.clone(),
                compared: self.baseline.is_some(),
            };
            write("HTML report", path, &to_html(suites, &html)?)?;
        }
        Ok(())
    }
}

pub(crate) fn of_crash(kind: Kind) -> bool {
    kind.name().starts_with("crash-")
}

/// All that `check` and `crash` are asked to write.
pub(crate) fn write_one(judge: &Judge, options: &ResultOptions, name: &str, report: &Report) -> Result<(), Error> {
    if let Some(path) = &options.json {
        write("JSON", path, &to_json(report)?)?;
    }
    let suite = Suite {
        name: name.to_owned(),
        report: Ok(report.clone()),
    };
    judge.write(options, &[suite])
}

/// All of it, or nothing: a file that is there already stays until the new one is whole. `-` is stdout.
pub(crate) fn write(what: &'static str, path: &Path, text: &str) -> Result<(), Error> {
    let written = match path.to_str() {
        Some("-") => std::io::stdout().lock().write_all(text.as_bytes()),
        _ => replace::write(path, text.as_bytes()),
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

/// As it could be typed again.
fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    format!("crashproof {}", shell_words::join(words))
}

/// That a page can be put there is known before the program runs.
fn can_be_there(path: &Path) -> Result<(), Error> {
    let folder = replace::folder_of(path);
    let source = match folder.metadata() {
        _ if path == Path::new("-") => return Ok(()),
        Ok(_) if path.is_dir() => std::io::ErrorKind::IsADirectory.into(),
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => std::io::ErrorKind::NotADirectory.into(),
        Err(source) => source,
    };
    let path = path.to_owned();
    Err(OutcomeError::NoPage { path, source }.into())
}

pub(crate) fn temporary_trace() -> Result<tempfile::TempPath, Error> {
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
