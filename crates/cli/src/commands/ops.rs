//! `crashproof ops`: operations for drivers.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crashproof_campaign::read_operations;
use crashproof_crash::oracle::generate::Generator;
use crashproof_crash::oracle::shrink::{Tried, fewest};
use crashproof_interrupt as interrupt;
use crashproof_trace::replace;
use serde_json::Value;

use super::Result;
use crate::arguments::{GenerateArguments, OpsArguments, OpsCommand, ShrinkArguments};
use crate::exit::Exit;
use crate::terminal;

#[derive(Debug, thiserror::Error)]
enum OpsError {
    #[error("cannot write the operations to {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot run a crash test: {0}")]
    Start(std::io::Error),
    #[error("a crash test of the operations could not be made, so there is nothing to shrink:\n{0}")]
    Test(String),
}

pub(crate) fn run(arguments: &OpsArguments) -> Result {
    match &arguments.command {
        OpsCommand::Generate(arguments) => generate(arguments),
        OpsCommand::Shrink(arguments) => shrink(arguments),
    }
}

fn generate(arguments: &GenerateArguments) -> Result {
    let templates = match arguments.templates.is_empty() {
        true => arguments.kind.templates(),
        false => arguments.templates.clone(),
    };
    let generator = Generator {
        templates,
        keys: arguments.keys.0.clone(),
        values: arguments.values.0.clone(),
        bias: arguments.bias,
        seed: arguments.seed,
    };
    let operations = generator.generate(arguments.count)?;
    write(arguments.output.as_deref(), &operations)?;
    Ok(Exit::Clean)
}

fn write(path: Option<&Path>, operations: &[String]) -> std::result::Result<(), OpsError> {
    let mut text = operations.join("\n");
    text.push('\n');
    match path {
        Some(path) => replace::write(path, text.as_bytes()).map_err(|source| OpsError::Write {
            path: path.to_owned(),
            source,
        }),
        None => {
            // A closed stdout wants no more.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
    }
}

fn shrink(arguments: &ShrinkArguments) -> Result {
    let mut operations = read_operations(&arguments.file)?;
    let stop = interrupt::watch();
    let folder = tempfile::tempdir()?;
    let tester = Tester {
        arguments,
        folder: folder.path(),
        until: Instant::now() + arguments.time.0,
    };
    terminal::note(&format_args!(
        "a crash test of all {} operations first",
        operations.len()
    ));
    let first = tester.test(&operations)?;
    if first.status == Some(2) {
        return Err(OpsError::Test(first.said).into());
    }
    if !first.fails {
        terminal::note(
            &"the driver does not fail with these operations, as far as one test went; --test-time gives it more time",
        );
        return Ok(Exit::Findings);
    }
    // What comes after the operation that printed the wrong line matters no more.
    if let Some(needed) = first.needed.filter(|&needed| needed < operations.len()) {
        let fewer = operations[..needed].to_vec();
        if tester.test(&fewer)?.fails {
            operations = fewer;
        }
    }
    let mut tests = 0;
    let mut broken = None;
    let (few, minimal) = fewest(&operations, |operations| {
        if Instant::now() >= tester.until || stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Tried::Over;
        }
        tests += 1;
        match tester.test(operations) {
            Ok(tested) if tested.fails => {
                terminal::note(&format_args!("still fails with {} operations", operations.len()));
                Tried::Fails
            }
            Ok(_) => Tried::Passes,
            Err(error) => {
                broken = Some(error);
                Tried::Over
            }
        }
    });
    if let Some(error) = broken {
        return Err(error.into());
    }
    write(arguments.output.as_deref(), &few)?;
    let least = match minimal {
        true => "none of them can be left out",
        false => "the time was over before it was known whether fewer would do",
    };
    terminal::note(&format_args!(
        "{} operations are left after {tests} crash tests; {least}",
        few.len()
    ));
    Ok(Exit::Clean)
}

/// Crash tests of some of the operations, each a process of its own.
struct Tester<'a> {
    arguments: &'a ShrinkArguments,
    folder: &'a Path,
    until: Instant,
}

struct Tested {
    fails: bool,
    status: Option<i32>,
    /// The operations up to the one that showed it.
    needed: Option<usize>,
    said: String,
}

impl Tester<'_> {
    fn test(&self, operations: &[String]) -> std::result::Result<Tested, OpsError> {
        let (file, json) = (self.folder.join("ops"), self.folder.join("report.json"));
        write(Some(&file), operations)?;
        let _ = std::fs::remove_file(&json);
        let left = self.until.saturating_duration_since(Instant::now());
        let time = self.arguments.test_time.0.min(left).max(Duration::from_secs(1));
        let mut command = Command::new(std::env::current_exe().map_err(OpsError::Start)?);
        command
            .args(["crash", "--oracle", "output", "--fail-fast", "--ops"])
            .arg(&file)
            .args(["--time", &format!("{}ms", time.as_millis())])
            .arg("--json")
            .arg(&json)
            .arg("--save")
            .arg(self.folder.join("images"))
            .args(&self.arguments.options)
            .arg("--")
            .args(&self.arguments.command)
            .stdin(Stdio::null());
        crashproof_record::keep(&mut command);
        let output = command.output().map_err(OpsError::Start)?;
        Ok(Tested {
            fails: output.status.code() == Some(1),
            status: output.status.code(),
            needed: std::fs::read(&json).ok().and_then(|report| needed(&report)),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Of the finding that shows soonest.
fn needed(report: &[u8]) -> Option<usize> {
    let report: Value = serde_json::from_slice(report).ok()?;
    let findings = report["findings"].as_array()?;
    let until = |finding: &Value| finding["crash"]["differs_at"].as_u64();
    findings.iter().filter_map(until).min().map(|last| last as usize + 1)
}
