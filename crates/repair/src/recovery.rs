//! The crash test of the program: from the options of the command line and the `[[test]]` of `crashproof.toml` to a campaign over a recorded run.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crashproof_campaign::options::CrashOptions;
use crashproof_campaign::project::Test;
use crashproof_campaign::{Campaign, Listener, Progress, Tested};
use crashproof_finding::{Report, Severity, Verdict};
use crashproof_render::{TerminalOptions, render_terminal};
use crashproof_trace::{EventKind, Item, TraceReader};

use crate::arguments::RepairArguments;
use crate::commands::{BuildSite, CommandError, Run};
use crate::interrupt;

/// Of a crash test that is given none: a repair puts in order what an update behaviour shows, and needs the same states in each
/// round.
const STRATEGY: &str = "representative";

/// Columns of the report in the log.
const LOG_WIDTH: usize = 100;

/// How the program is crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Options of `crashproof crash` by their names, in words of its command line.
    options: Vec<(String, Vec<String>)>,
    /// PMDK is to know that it is watched also when it is crashed.
    client_requests: bool,
}

/// What came of a crash test.
pub struct Crashed {
    /// Files are named as in the copy.
    pub report: Report,
    /// Files are named as in the user's tree.
    pub in_tree: Report,
    /// The recorded run that was crashed.
    pub trace: PathBuf,
    /// The test came to its end, so that no finding means that there is none.
    pub decided: bool,
}

impl Recovery {
    /// `None`: there is no recovery. What the command line says goes before what the test says.
    pub fn new(arguments: &RepairArguments, test: Option<&Test>) -> Option<Recovery> {
        let mut options: Vec<(String, Vec<String>)> = Vec::new();
        let mut set = |name: &str, words: Vec<String>| {
            options.retain(|(known, _)| known != name);
            options.push((name.to_owned(), words));
        };
        for (name, words) in test.into_iter().flat_map(Test::crash_options) {
            set(name, words);
        }
        for (name, word) in given_options(arguments) {
            set(name, vec![word]);
        }
        let has = |name: &str| options.iter().any(|(known, _)| known == name);
        if !has("recover") {
            return None;
        }
        if !has("strategy") {
            options.push(("strategy".to_owned(), vec![format!("--strategy={STRATEGY}")]));
        }
        Some(Recovery {
            options,
            client_requests: test.and_then(|test| test.text("client-requests")) == Some("on"),
        })
    }

    /// That they are options of a crash test.
    pub fn check(&self) -> Result<(), clap::Error> {
        self.with(str::to_owned, ["trace".into()]).map(|_| ())
    }

    /// The options, with some more; `translate` says what a text is in the copy.
    fn with(
        &self,
        translate: impl Fn(&str) -> String,
        more: impl IntoIterator<Item = OsString>,
    ) -> Result<CrashOptions, clap::Error> {
        let words = self.options.iter().flat_map(|(_, words)| words);
        let words = words.map(|word| translate(word).into());
        CrashOptions::parse(std::iter::once("crash".into()).chain(words).chain(more))
    }
}

/// The options of a crash test that the command line has: the name of each, and the word.
pub(crate) fn given_options(arguments: &RepairArguments) -> impl Iterator<Item = (&'static str, String)> {
    let expected = arguments.expect_output.as_ref();
    let expected = expected.map(|path| path.to_string_lossy().into_owned());
    let with_values = [
        ("recover", &arguments.recover),
        ("check", &arguments.check),
        ("expect-output", &expected),
        ("strategy", &arguments.strategy),
        ("from", &arguments.from),
        ("until", &arguments.until),
        ("depth", &arguments.depth),
        ("model", &arguments.model),
        ("time", &arguments.time),
        ("max-states", &arguments.max_states),
        ("jobs", &arguments.jobs),
        ("timeout", &arguments.timeout),
    ];
    let switches = [
        ("no-tear", arguments.no_tear),
        ("reorder-in-line", arguments.reorder_in_line),
    ];
    let with_values = with_values.map(|(name, value)| Some((name, format!("--{name}={}", value.as_ref()?))));
    let switches = switches.map(|(name, on)| on.then(|| (name, format!("--{name}"))));
    with_values.into_iter().chain(switches).flatten()
}

/// Writes what a campaign tells to a log.
struct Log(Mutex<File>);

impl Log {
    fn print(&self, text: &str) {
        // It is shown if the test fails; without it less is.
        let _ = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(text.as_bytes());
    }

    fn message(&self, level: &str, text: &dyn Display) {
        self.print(&format!("crashproof: {level}: {text}\n"));
    }
}

impl Listener for Log {
    fn note(&self, text: &dyn Display) {
        self.message("note", text);
    }

    fn warning(&self, text: &dyn Display) {
        self.message("warning", text);
    }

    fn error(&self, text: &dyn Display) {
        self.message("error", text);
    }

    fn testing(&self) -> Box<dyn FnMut(&Progress) + Send> {
        Box::new(|_| ())
    }
}

impl BuildSite<'_> {
    /// Crashes what `run` did, or another run of the program if that one knew that it was watched.
    pub fn crash(&self, recovery: &Recovery, run: &Run) -> Result<Crashed, CommandError> {
        let trace = match recovery.client_requests || !has_requests(&run.trace) {
            true => run.trace.clone(),
            false => {
                self.remove_what_it_made(&run.trace);
                self.record_unwatched()?
            }
        };
        let (log, config) = (self.file("crash.log"), &self.commands.config);
        // What a failed run means for the repair is said once, in its report.
        let mut more: Vec<OsString> = vec!["--allow-failure".into(), "--save".into(), self.file("crashes").into()];
        more.extend(config.iter().flat_map(|config| ["--config".into(), config.into()]));
        more.push(trace.clone().into());
        let options = recovery.with(|text| self.copy.text_from_tree(text), more);
        let tested = self.campaign(options.map_err(crashproof_campaign::Error::from), &log)?;
        if !tested.report.inconclusive.is_empty() {
            return Err(self.not_crashed(&log));
        }
        Ok(Crashed {
            decided: match tested.report.verdict(Severity::Note) {
                Verdict::Findings => true,
                Verdict::Clean => tested.is_decided(),
                Verdict::Inconclusive => false,
            },
            in_tree: self.copy.report_to_tree(&tested.report),
            report: tested.report,
            trace,
        })
    }

    /// Runs a campaign in the directory of the copy in which commands run.
    fn campaign(
        &self,
        options: Result<CrashOptions, crashproof_campaign::Error>,
        path: &Path,
    ) -> Result<Tested, CommandError> {
        let unwritable = |source| CommandError::Log {
            path: path.to_owned(),
            source,
        };
        let log = Log(Mutex::new(File::create(path).map_err(unwritable)?));
        let tested = options.and_then(|options| {
            // What could be resumed is not kept longer than the copies.
            let states = self.file("state").join("crashproof/crash");
            let supervisor = self.workspace.programs.join("crashproof");
            let campaign = Campaign::new(&options, supervisor, &self.copy.work, &log)?;
            // Whoever stops this process has its copies removed.
            campaign.with_states(states).run(|| ())
        });
        if interrupt::received().is_some() {
            return Err(CommandError::Interrupted);
        }
        match tested {
            Ok(tested) => {
                let options = TerminalOptions {
                    color: false,
                    width: LOG_WIDTH,
                    root: self.copy.work.clone(),
                };
                log.print(&render_terminal(&tested.report, &options));
                Ok(tested)
            }
            Err(error) => {
                log.error(&error);
                Err(self.not_crashed(path))
            }
        }
    }

    fn not_crashed(&self, log: &Path) -> CommandError {
        CommandError::Failed {
            what: "the crash test".to_owned(),
            command: "crashproof crash".to_owned(),
            ended: "exited with status 2".to_owned(),
            output: self.said(log),
            remedy: "--recover, --check and the other options of the crash test are those of `crashproof crash`; try them with it",
        }
    }

    /// So that the next run finds what the first one found.
    fn remove_what_it_made(&self, trace: &Path) {
        let Ok(mut reader) = TraceReader::open(trace) else {
            return;
        };
        while let Ok(Some(_)) = reader.next() {}
        for file in reader.tables().files.iter().filter(|file| file.created) {
            if Path::new(&file.path).starts_with(self.copy.root()) {
                // If it is not there, or stays, the program will say so.
                let _ = std::fs::remove_file(&file.path);
            }
        }
    }
}

/// A library announced its transactions, which it does only when it is told that it is watched, and then does a few things otherwise.
fn has_requests(trace: &Path) -> bool {
    let Ok(mut reader) = TraceReader::open(trace) else {
        return false;
    };
    while let Ok(Some(item)) = reader.next() {
        if matches!(item, Item::Event(event) if matches!(event.kind, EventKind::Request { .. })) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use crashproof_check::Config;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        repair: RepairArguments,
    }

    fn options(line: &str, test: &str) -> Option<Vec<String>> {
        let arguments = Line::parse_from(["repair"].into_iter().chain(line.split_whitespace())).repair;
        let config = Config::<Test>::parse(&format!("[[test]]\n{test}"), Path::new("crashproof.toml")).unwrap();
        let recovery = Recovery::new(&arguments, config.tests.first())?;
        assert!(recovery.check().is_ok());
        Some(recovery.options.into_iter().map(|(_, words)| words.join(" ")).collect())
    }

    #[test]
    fn the_command_line_goes_before_the_test() {
        let test = "name = 'x'\nprogram = './app'\npm = ['a']\nsetup = 's'\nrecover = 'r'\ndepth = 2\nno-tear = true\nno-joint = false\nsave = 'd'\n";
        assert_eq!(
            options("-- ./app", test).unwrap(),
            ["--depth 2", "--no-tear", "--recover r", "--strategy=representative"]
        );
        assert_eq!(
            options("--recover q --max-states 9 --depth 1 -- ./app", test).unwrap(),
            [
                "--no-tear",
                "--recover=q",
                "--depth=1",
                "--max-states=9",
                "--strategy=representative"
            ]
        );
    }

    #[test]
    fn without_a_recovery_there_is_no_crash_test() {
        assert_eq!(options("--time 3s -- ./app", "program = './app'\n"), None);
        assert_eq!(
            options("--recover r -- ./app", "program = './app'\n").unwrap(),
            ["--recover=r", "--strategy=representative"]
        );
    }
}
