//! `crashproof test`: what `crashproof.toml` says, as the command lines that one would type.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Parser;
use crashproof_check::Config;
use crashproof_finding::Report;
use crashproof_render::{Suite, to_json};
use serde::Serialize;
use serde_json::Value;

use super::outcome::{self, Judge};
use super::{Result, check, crash, setup};
use crate::arguments::{Arguments, Command, ResultOptions, TestArguments};
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
    /// What each command came to.
    suites: Vec<Suite>,
    judge: Arc<Judge>,
    results: ResultOptions,
}

/// A stop may come while a command runs, from another thread.
type Shared = Arc<Mutex<Steps>>;

fn lock(steps: &Shared) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Steps {
    fn add(&mut self, what: &str, test: &Test, exit: Exit, report: std::result::Result<&Report, String>) {
        self.lines
            .push(line(what, &test.title(), exit, report.as_ref().ok().copied()));
        self.worst = worse(self.worst, exit);
        self.suites.push(Suite {
            name: format!("{what} {}", test.title()),
            report: report.cloned(),
        });
    }

    /// Shows the summary and writes what is asked for; the exit status of all.
    fn conclude(&mut self) -> Result {
        terminal::print(&format!("\n{}\n", self.lines.join("\n")));
        if let Some(path) = &self.results.json {
            let summary = Summary {
                version: 1,
                tests: std::mem::take(&mut self.tests),
            };
            outcome::write("JSON", path, &(serde_json::to_string_pretty(&summary)? + "\n"))?;
        }
        self.judge.write(&self.results, &self.suites)?;
        Ok(self.worst)
    }

    /// Says what of the baseline is gone, if every test could tell.
    fn tell_gone(&self) {
        let reports: Vec<&Report> = self
            .suites
            .iter()
            .filter_map(|suite| suite.report.as_ref().ok())
            .collect();
        if reports.len() == self.suites.len() {
            self.judge.tell_gone(reports, |_| true);
        }
    }
}

fn step(steps: &Shared, test: &Test, command: Vec<OsString>) -> Option<Report> {
    let what = command[0].to_string_lossy().into_owned();
    let stopped = {
        let (steps, test, what) = (Arc::clone(steps), test.clone(), what.clone());
        move || {
            let mut steps = lock(&steps);
            steps.add(&what, &test, Exit::Failed, Err("interrupted".to_owned()));
            if let Err(error) = steps.conclude() {
                terminal::error(&error);
            }
        }
    };
    let (judge, html) = {
        let steps = lock(steps);
        (Arc::clone(&steps.judge), steps.results.html.clone())
    };
    match report(test, command, html, &judge, stopped) {
        Ok((exit, report)) => {
            lock(steps).add(&what, test, exit, Ok(&report));
            Some(report)
        }
        Err(error) => {
            terminal::error(&error);
            lock(steps).add(&what, test, Exit::Failed, Err(error.to_string()));
            None
        }
    }
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
        suites: Vec::new(),
        judge: Arc::new(Judge::new(&arguments.results)?),
        results: arguments.results.clone(),
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
    if arguments.names.is_empty() && !interrupt::requested() {
        steps.tell_gone();
    }
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

/// Runs one of the two commands and shows what came of it. With `html`, it makes what the page needs.
fn report(
    test: &Test,
    step: Vec<OsString>,
    html: Option<PathBuf>,
    judge: &Judge,
    stopped: impl FnOnce() + Send + 'static,
) -> std::result::Result<(Exit, Report), Box<dyn std::error::Error>> {
    let line = shell_words::join(step.iter().map(|word| word.to_string_lossy()));
    match Arguments::try_parse_from([vec!["crashproof".into()], step].concat())?.command {
        Command::Check(mut arguments) => {
            arguments.results.html = html;
            if let Some(command) = &test.setup {
                terminal::command(command);
                setup::run(command)?;
            }
            terminal::command(&format!("crashproof {line}"));
            let mut report = check::report(&arguments, true)?;
            judge.show(&mut report);
            Ok((judge.verdict(&report), report))
        }
        Command::Crash(mut arguments) => {
            arguments.results.html = html;
            terminal::command(&format!("crashproof {line}"));
            crash::report(&arguments, judge, stopped)
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
    let new = report.map_or(0, |report| report.findings.len() - report.known.len());
    let doubt = report.and_then(|report| report.inconclusive.first());
    let (color, words) = match (exit, new) {
        (Exit::Clean, n) if n > 0 => (32, format!("clean ({n} minor)")),
        (Exit::Clean, _) => (32, "clean".to_owned()),
        (Exit::Findings, 1) => (31, "1 finding".to_owned()),
        (Exit::Findings, n) => (31, format!("{n} findings")),
        _ => (
            33,
            doubt
                .map_or("could not be done", |doubt| doubt.reason.label())
                .to_owned(),
        ),
    };
    format!("{what:<6} \x1b[1;{color}m{words:<18}\x1b[0m {title}")
}
