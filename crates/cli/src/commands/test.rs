//! `crashproof test`: what `crashproof.toml` says, as the command lines that one would type.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Parser;
use crashproof_check::Config;
use crashproof_report::{Report, to_json};
use serde::Serialize;
use serde_json::Value;

use super::{Result, check, crash, outcome, setup};
use crate::arguments::{Arguments, Command, TestArguments};
use crate::exit::Exit;
use crate::project::Test;
use crate::{interrupt, terminal};

#[derive(Debug, thiserror::Error)]
enum TestError {
    #[error("there is no {}; `crashproof init` writes one to fill in, --config names another file", path.display())]
    NoFile { path: PathBuf },
    #[error("{} describes no [[test]]; see docs/test.md for what one looks like", path.display())]
    NoTests { path: PathBuf },
    #[error("{} has no test named {name:?}{}", path.display(), known(names))]
    Unknown {
        path: PathBuf,
        name: String,
        names: Vec<String>,
    },
    #[error("{} has two tests named {name:?}; names tell tests apart", path.display())]
    Twice { path: PathBuf, name: String },
}

fn known(names: &[String]) -> String {
    match names {
        [] => "; none of its tests has a name".to_owned(),
        names => format!("; there are {}", names.join(", ")),
    }
}

/// What `--json` writes.
#[derive(Serialize)]
struct Summary {
    version: u32,
    tests: Vec<Tested>,
}

#[derive(Serialize)]
struct Tested {
    name: String,
    /// As the command itself writes it. `None`: it could not be done.
    check: Option<Value>,
    /// `None`: it could not be done, or there is no recovery.
    crash: Option<Value>,
}

/// What came of the commands so far.
struct Steps {
    lines: Vec<String>,
    worst: Exit,
    tests: Vec<Tested>,
    json: Option<PathBuf>,
}

/// A stop may come while a command runs, from another thread.
type Shared = Arc<Mutex<Steps>>;

fn lock(steps: &Shared) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Steps {
    fn add(&mut self, what: &str, test: &Test, exit: Exit, report: Option<&Report>) {
        self.lines.push(line(what, &test.title(), exit, report));
        self.worst = worse(self.worst, exit);
    }

    /// Shows the summary and writes the JSON; the exit status of all.
    fn conclude(&mut self) -> Result {
        terminal::print(&format!("\n{}\n", self.lines.join("\n")));
        if let Some(path) = &self.json {
            let summary = Summary {
                version: 1,
                tests: std::mem::take(&mut self.tests),
            };
            outcome::write("JSON", path, &(serde_json::to_string_pretty(&summary)? + "\n"))?;
        }
        Ok(self.worst)
    }
}

fn step(steps: &Shared, test: &Test, command: Vec<OsString>) -> Option<Report> {
    let what = command[0].to_string_lossy().into_owned();
    let stopped = {
        let (steps, test, what) = (Arc::clone(steps), test.clone(), what.clone());
        move || {
            let mut steps = lock(&steps);
            steps.add(&what, &test, Exit::Failed, None);
            if let Err(error) = steps.conclude() {
                terminal::error(&error);
            }
        }
    };
    let (exit, report) = match report(test, command, stopped) {
        Ok((exit, report)) => (exit, Some(report)),
        Err(error) => {
            terminal::error(&error);
            (Exit::Failed, None)
        }
    };
    lock(steps).add(&what, test, exit, report.as_ref());
    report
}

pub fn run(arguments: &TestArguments) -> Result {
    let path = &arguments.config;
    if !path.exists() {
        return Err(TestError::NoFile { path: path.clone() }.into());
    }
    let config: Config<Test> = Config::load(path)?;
    let chosen = select(&config.tests, arguments)?;
    let steps = Arc::new(Mutex::new(Steps {
        lines: Vec::new(),
        worst: Exit::Clean,
        tests: Vec::new(),
        json: arguments.json.clone(),
    }));
    interrupt::watch();
    for (number, test) in chosen {
        let check = step(&steps, test, test.check_command(path));
        lock(&steps).tests.push(Tested {
            name: test.title(),
            check: check.as_ref().map(as_written).transpose()?,
            crash: None,
        });
        if interrupt::requested() {
            break;
        }
        let Some(command) = test.crash_command(path, number) else {
            continue;
        };
        let crash = step(&steps, test, command);
        if let Some(tested) = lock(&steps).tests.last_mut() {
            tested.crash = crash.as_ref().map(as_written).transpose()?;
        }
        if interrupt::requested() {
            break;
        }
    }
    let mut steps = lock(&steps);
    let worst = steps.conclude()?;
    // What was not run may hold anything.
    Ok(match worst {
        Exit::Clean if interrupt::requested() => Exit::Failed,
        worst => worst,
    })
}

fn as_written(report: &Report) -> serde_json::Result<Value> {
    serde_json::from_str(&to_json(report)?)
}

/// The tests to run, with their numbers, counted from 1.
fn select<'a>(tests: &'a [Test], arguments: &TestArguments) -> std::result::Result<Vec<(usize, &'a Test)>, TestError> {
    let path = arguments.config.clone();
    if tests.is_empty() {
        return Err(TestError::NoTests { path });
    }
    let names: Vec<String> = tests.iter().filter_map(|test| test.name.clone()).collect();
    let twice = (1..names.len()).find(|&index| names[..index].contains(&names[index]));
    if let Some(index) = twice {
        return Err(TestError::Twice {
            path,
            name: names[index].clone(),
        });
    }
    if let Some(name) = arguments.names.iter().find(|name| !names.contains(name)) {
        return Err(TestError::Unknown {
            path,
            name: name.clone(),
            names,
        });
    }
    let chosen = |test: &Test| {
        arguments.names.is_empty() || test.name.as_ref().is_some_and(|name| arguments.names.contains(name))
    };
    Ok((1..).zip(tests).filter(|(_, test)| chosen(test)).collect())
}

/// Runs one of the two commands and shows what came of it.
fn report(
    test: &Test,
    step: Vec<OsString>,
    stopped: impl FnOnce() + Send + 'static,
) -> std::result::Result<(Exit, Report), Box<dyn std::error::Error>> {
    let line = shell_words::join(step.iter().map(|word| word.to_string_lossy()));
    match Arguments::try_parse_from([vec!["crashproof".into()], step].concat())?.command {
        Command::Check(arguments) => {
            if let Some(command) = &test.setup {
                terminal::command(command);
                setup::run(command)?;
            }
            terminal::command(&format!("crashproof {line}"));
            let report = check::report(&arguments, true)?;
            outcome::show(&report);
            Ok((outcome::verdict(&report), report))
        }
        Command::Crash(arguments) => {
            terminal::command(&format!("crashproof {line}"));
            crash::report(&arguments, stopped)
        }
        other => unreachable!("a test is a check or a crash test, not {other:?}"),
    }
}

/// 2 is worse than 1 is worse than 0.
fn worse(a: Exit, b: Exit) -> Exit {
    let rank = |exit| match exit {
        Exit::Clean => 0,
        Exit::Findings => 1,
        _ => 2,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// `check  append: 2 findings`.
fn line(what: &str, title: &str, exit: Exit, report: Option<&Report>) -> String {
    let (color, words) = match (exit, report.map_or(0, |report| report.findings.len())) {
        (Exit::Clean, _) => (32, "clean".to_owned()),
        (Exit::Findings, 1) => (31, "1 finding".to_owned()),
        (Exit::Findings, n) => (31, format!("{n} findings")),
        _ => (33, "could not be done".to_owned()),
    };
    format!("{what:<6} \x1b[1;{color}m{words:<18}\x1b[0m {title}")
}
