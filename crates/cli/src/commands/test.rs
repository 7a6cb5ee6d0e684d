//! `crashproof test`: what `crashproof.toml` says, as the command lines that one would type.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Parser;
use crashproof_campaign::project::{Test, in_one_line};
use crashproof_campaign::{Driver, Tested as CrashTested, setup};
use crashproof_check::Config;
use crashproof_finding::group::{Which, groups};
use crashproof_finding::{Finding, Report};
use crashproof_interrupt as interrupt;
use crashproof_render::{Suite, to_json};
use serde::Serialize;
use serde_json::Value;

use super::crash::Terminal;
use super::outcome::{self, Judge};
use super::{Result, check, crash};
use crate::arguments::{Arguments, Command, ResultOptions, TestArguments};
use crate::exit::Exit;
use crate::terminal;

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
    #[error(
        "the keys of the test {title:?} in {} do not go together, as options of `crashproof crash`: {message}; see docs/test.md",
        path.display()
    )]
    Keys {
        path: PathBuf,
        title: String,
        message: String,
    },
}

impl TestError {
    fn keys(path: &Path, test: &Test, error: &clap::Error) -> TestError {
        TestError::Keys {
            path: path.to_owned(),
            title: test.title(),
            message: in_one_line(error),
        }
    }
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

/// One of the commands of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Check,
    Crash,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Check => "check",
            Step::Crash => "crash",
        }
    }
}

/// A test, its number, and the file that describes it.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    test: &'a Test,
    number: usize,
    config: &'a Path,
}

impl Chosen<'_> {
    /// What is run, in order. The check comes last where the crash test shows what of its findings is transient data.
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Check];
        if self.crash_command().is_some() {
            let first = self.test.shows_transient_data();
            steps.insert(usize::from(!first), Step::Crash);
        }
        steps
    }

    fn crash_command(&self) -> Option<Vec<OsString>> {
        self.test.crash_command(self.config, self.number)
    }

    /// The driver of operations, if it is one.
    fn driver(&self) -> std::result::Result<Option<Driver>, Error> {
        match self.crash_command().map(parse).transpose()? {
            Some(Command::Crash(arguments)) => Ok(Driver::of(&arguments.options)?),
            _ => Ok(None),
        }
    }
}

type Error = Box<dyn std::error::Error>;

fn parse(command: Vec<OsString>) -> std::result::Result<Command, clap::Error> {
    Ok(Arguments::try_parse_from([vec!["crashproof".into()], command].concat())?.command)
}

/// `transient`: what the steps before it have shown.
fn step(steps: &Shared, chosen: Chosen<'_>, step: Step, transient: &mut Vec<Finding>) -> Option<Report> {
    let (test, what) = (chosen.test, step.name());
    let stopped = {
        let (steps, test) = (Arc::clone(steps), test.clone());
        move || {
            let mut steps = lock(&steps);
            steps.add(what, &test, Exit::Failed, Err("interrupted".to_owned()));
            if let Err(error) = steps.conclude() {
                terminal::error(&error);
            }
        }
    };
    let (judge, html) = {
        let steps = lock(steps);
        (Arc::clone(&steps.judge), steps.results.html.clone())
    };
    let done = match step {
        Step::Check => check(chosen, html, &judge, std::mem::take(transient)),
        Step::Crash => crash(chosen, html, &judge, stopped).map(|(exit, tested)| {
            *transient = tested.transient;
            (exit, tested.report)
        }),
    };
    match done {
        Ok((exit, report)) => {
            lock(steps).add(what, test, exit, Ok(&report));
            Some(report)
        }
        Err(error) => {
            terminal::error(&error);
            lock(steps).add(what, test, Exit::Failed, Err(error.to_string()));
            None
        }
    }
}

pub(crate) fn run(arguments: &TestArguments) -> Result {
    let path = &arguments.config;
    if !path.exists() {
        return Err(TestError::NoFile { path: path.clone() }.into());
    }
    let config: Config<Test> = Config::load(path)?;
    let chosen = select(&config.tests, arguments)?;
    for &(number, test) in &chosen {
        let chosen = Chosen {
            test,
            number,
            config: path,
        };
        if let Some(Err(error)) = chosen.crash_command().map(parse) {
            return Err(TestError::keys(path, test, &error).into());
        }
    }
    let steps = Arc::new(Mutex::new(Steps {
        lines: Vec::new(),
        worst: Exit::Clean,
        tests: Vec::new(),
        suites: Vec::new(),
        judge: Arc::new(Judge::new(&arguments.results)?),
        results: arguments.results.clone(),
    }));
    interrupt::watch();
    'tests: for (number, test) in chosen {
        let chosen = Chosen {
            test,
            number,
            config: path,
        };
        lock(&steps).tests.push(Tested {
            name: test.title(),
            check: None,
            crash: None,
        });
        let mut transient = Vec::new();
        for what in chosen.steps() {
            let report = step(&steps, chosen, what, &mut transient);
            let written = report.as_ref().map(as_written).transpose()?;
            if let Some(tested) = lock(&steps).tests.last_mut() {
                match what {
                    Step::Check => tested.check = written,
                    Step::Crash => tested.crash = written,
                }
            }
            if interrupt::requested() {
                break 'tests;
            }
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

/// Checks, and shows what came of it. With `html`, it makes what the page needs.
fn check(
    chosen: Chosen<'_>,
    html: Option<PathBuf>,
    judge: &Judge,
    transient: Vec<Finding>,
) -> std::result::Result<(Exit, Report), Error> {
    let driver = chosen.driver()?;
    let operations = driver.as_ref().map(Driver::all_operations);
    let command = chosen.test.check_command(chosen.config, operations.as_deref());
    let line = shown(&command);
    let Command::Check(mut arguments) = parse(command)? else {
        unreachable!("it begins with the word check");
    };
    arguments.results.html = html;
    if let Some(command) = chosen.test.text("setup") {
        terminal::command(command);
        setup::run(command)?;
    }
    let _kept = driver.as_ref().map(|driver| driver.keep_pool(&Terminal)).transpose()?;
    terminal::command(&line);
    let mut report = check::report(&arguments, true, transient)?;
    judge.show(&mut report);
    Ok((judge.verdict(&report), report))
}

/// Crashes, and shows what came of it.
fn crash(
    chosen: Chosen<'_>,
    html: Option<PathBuf>,
    judge: &Judge,
    stopped: impl FnOnce() + Send + 'static,
) -> std::result::Result<(Exit, CrashTested), Error> {
    let command = chosen.crash_command().unwrap_or_default();
    let line = shown(&command);
    let Command::Crash(mut arguments) = parse(command)? else {
        unreachable!("it begins with the word crash");
    };
    arguments.results.html = html;
    terminal::command(&line);
    crash::test(&arguments, judge, stopped)
}

fn shown(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy());
    format!("crashproof {}", shell_words::join(words))
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
    let new = report.map_or(0, |report| groups(report, Which::New).len());
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
