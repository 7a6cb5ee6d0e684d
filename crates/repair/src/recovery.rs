//! The crash test of the program: from the options of the command line and the `[[test]]` of `crashproof.toml` to `crashproof crash` on a recorded run.
//!
//! The keys of a `[[test]]` are the long options of `crashproof crash`, so they are handed on as they are; what they mean is known there.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crashproof_finding::Report;
use crashproof_trace::{EventKind, Item, TraceReader};

use crate::arguments::RepairArguments;
use crate::commands::{CommandError, Run, Site};
use crate::paths::WorkingCopy;

/// A crash test that is given no budget ends after this time: there are several in one repair.
const TIME: &str = "2m";

/// Keys of a `[[test]]` that say how the program is run, not how it is crashed; and where images are saved, which is beside the copies here.
const OF_THE_RUN: [&str; 8] = [
    "name",
    "program",
    "pm",
    "setup",
    "save",
    "client-requests",
    "locked-rmw",
    "allow-failure",
];

/// How the program is crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Long options of `crashproof crash`, without the dashes; a switch has no value.
    options: Vec<(String, Option<String>)>,
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
    pub fn new(arguments: &RepairArguments, test: Option<&toml::Table>) -> Option<Recovery> {
        let mut options: Vec<(String, Option<String>)> = Vec::new();
        let mut set = |name: &str, value: Option<String>| {
            options.retain(|(known, _)| known != name);
            options.push((name.to_owned(), value));
        };
        for (key, value) in test.into_iter().flatten() {
            match value {
                _ if OF_THE_RUN.contains(&key.as_str()) => {}
                toml::Value::Boolean(false) => {}
                toml::Value::Boolean(true) => set(key, None),
                toml::Value::String(text) => set(key, Some(text.clone())),
                other => set(key, Some(other.to_string())),
            }
        }
        let given = |value: &Option<String>| value.clone();
        for (name, value) in [
            ("recover", given(&arguments.recover)),
            ("check", given(&arguments.check)),
            (
                "expect-output",
                arguments
                    .expect_output
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
            ),
            ("strategy", given(&arguments.strategy)),
            ("from", given(&arguments.from)),
            ("until", given(&arguments.until)),
            ("depth", given(&arguments.depth)),
            ("model", given(&arguments.model)),
            ("time", given(&arguments.time)),
            ("max-states", given(&arguments.max_states)),
            ("jobs", given(&arguments.jobs)),
            ("timeout", given(&arguments.timeout)),
        ] {
            if value.is_some() {
                set(name, value);
            }
        }
        for (name, on) in [
            ("no-tear", arguments.no_tear),
            ("reorder-in-line", arguments.reorder_in_line),
        ] {
            if on {
                set(name, None);
            }
        }
        let has = |name: &str| options.iter().any(|(known, _)| known == name);
        if !has("recover") {
            return None;
        }
        if !has("time") && !has("max-states") {
            options.push(("time".to_owned(), Some(TIME.to_owned())));
        }
        let requests = test.and_then(|test| test.get("client-requests")?.as_str());
        Some(Recovery {
            options,
            client_requests: requests == Some("on"),
        })
    }

    fn arguments(&self, copy: &WorkingCopy) -> Vec<String> {
        let word = |(name, value): &(String, Option<String>)| match value {
            Some(value) => format!("--{name}={}", copy.text_from_tree(value)),
            None => format!("--{name}"),
        };
        self.options.iter().map(word).collect()
    }
}

impl Site<'_> {
    /// Crashes what `run` did, or another run of the program if that one knew that it was watched.
    pub fn crash(&self, recovery: &Recovery, run: &Run) -> Result<Crashed, CommandError> {
        let trace = match recovery.client_requests || !has_requests(&run.trace) {
            true => run.trace.clone(),
            false => {
                self.remove_what_it_made(&run.trace);
                self.record_unwatched()?
            }
        };
        let (json, log) = (self.file("crash.json"), self.file("crash.log"));
        let mut command = Command::new(self.workspace.programs.join("crashproof"));
        // What a failed run means for the repair is said once, in its report.
        command
            .args(["crash", "--allow-failure"])
            .args(recovery.arguments(&self.copy));
        command.arg("--json").arg(&json).arg("--save").arg(self.file("crashes"));
        if let Some(config) = &self.commands.config {
            command.arg("--config").arg(config);
        }
        // What could be resumed is not kept longer than the copies.
        command.arg(&trace).env("XDG_STATE_HOME", self.file("state"));
        let status = self.run(command, &log, &log)?;
        let Ok(text) = std::fs::read_to_string(&json) else {
            return Err(self.not_crashed(status, &log));
        };
        let report: Report = serde_json::from_str(&text).map_err(|error| CommandError::Report {
            path: json,
            reason: error.to_string(),
        })?;
        if !report.inconclusive.is_empty() {
            return Err(self.not_crashed(status, &log));
        }
        Ok(Crashed {
            in_tree: self.copy.report_to_tree(&report),
            report,
            trace,
            decided: status.code() != Some(2),
        })
    }

    fn not_crashed(&self, status: ExitStatus, log: &Path) -> CommandError {
        CommandError::Failed {
            what: "the crash test".to_owned(),
            command: "crashproof crash".to_owned(),
            ended: crate::commands::ended(status),
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

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        repair: RepairArguments,
    }

    fn options(line: &str, test: &str) -> Option<Vec<String>> {
        let arguments = Line::parse_from(["repair"].into_iter().chain(line.split_whitespace())).repair;
        let test: toml::Table = test.parse().unwrap();
        let recovery = Recovery::new(&arguments, Some(&test))?;
        let shown = |(name, value): &(String, Option<String>)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.clone(),
        };
        Some(recovery.options.iter().map(shown).collect())
    }

    #[test]
    fn the_command_line_goes_before_the_test() {
        let test = "name = 'x'\nprogram = './app'\npm = ['a']\nsetup = 's'\nrecover = 'r'\ndepth = 2\nno-tear = true\nno-joint = false\nsave = 'd'\n";
        assert_eq!(
            options("-- ./app", test).unwrap(),
            ["depth=2", "no-tear", "recover=r", "time=2m"]
        );
        assert_eq!(
            options("--recover q --max-states 9 --depth 1 -- ./app", test).unwrap(),
            ["no-tear", "recover=q", "depth=1", "max-states=9"]
        );
    }

    #[test]
    fn without_a_recovery_there_is_no_crash_test() {
        assert_eq!(options("--time 3s -- ./app", "program = './app'\n"), None);
        assert_eq!(options("--recover r -- ./app", "").unwrap(), ["recover=r", "time=2m"]);
    }
}
