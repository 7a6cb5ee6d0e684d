//! Random programs that lose flushes (and fences) are repaired: afterwards nothing is found in them that loses data, none of the flushes that
//! they kept is redundant if it was not before, and they do what they did.
//!
//! A few programs, always the same, by default; `CRASHPROOF_RANDOM_REPAIRS=N` tries N others, from the seed
//! `CRASHPROOF_RANDOM_REPAIRS_SEED` (default 1) on.

mod generator;
mod printer;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crashproof_finding::{Finding, Report, Severity};

use generator::{Program, Random};
use printer::Removed;

/// Of the programs that are always tried.
const SEEDS: std::ops::Range<u64> = 0..12;

/// How often flushes are removed until it shows.
const TRIES: usize = 8;

const BUILD: &str = "$CC -g -O2 -o app app.c";

fn main() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("CRASHPROOF_RANDOM_REPAIRS") {
        Some(count) => {
            let first = number("CRASHPROOF_RANDOM_REPAIRS_SEED").unwrap_or(1);
            first..first + count
        }
        None => SEEDS,
    };
    let trials = seeds
        .map(|seed| {
            libtest_mimic::Trial::test(format!("seed {seed}"), move || {
                repair(seed).map_err(|complaint| complaint.into())
            })
        })
        .collect();
    let mut arguments = libtest_mimic::Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let (begun, repaired) = (BEGUN.load(Ordering::Relaxed), REPAIRED.load(Ordering::Relaxed));
    if !conclusion.has_failed() && 2 * repaired < begun {
        eprintln!(
            "of {begun} programs only {repaired} lost data without flushes, so that little was repaired: this tests nothing"
        );
        std::process::exit(101);
    }
    conclusion.exit();
}

/// How many programs were tried, and how many of them had something to repair.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static REPAIRED: AtomicUsize = AtomicUsize::new(0);

/// What a command printed, and how it ended.
struct Ran {
    output: String,
    status: Option<i32>,
    report: String,
}

/// A program that ran under `crashproof check`.
struct Checked {
    ran: Ran,
    findings: Vec<Finding>,
}

impl Checked {
    fn loses_data(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.severity == Severity::Error)
    }
}

fn repair(seed: u64) -> Result<(), String> {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(seed);
    let program = Program::random(&mut random);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let right = write(&folder.path().join("right"), &program.whole()).and_then(|folder| check(&folder))?;
    if right.ran.status != Some(0) {
        return Err(format!(
            "the program is not right to begin with:\n{}{}",
            right.ran.report,
            program.whole()
        ));
    }
    let fences = random.one_in(2).then_some(3);
    let mut lossy = (0..TRIES).map(|_| program.without(&mut random, 2, fences));
    // What a later flush makes good is no bug.
    let broken = folder.path().join("broken");
    let found = lossy.find_map(|(source, removed)| {
        let checked = write(&broken, &source).and_then(|folder| check(&folder));
        match checked {
            Ok(checked) if checked.loses_data() => Some(Ok(removed)),
            Ok(_) => None,
            Err(complaint) => Some(Err(complaint)),
        }
    });
    let Some(removed) = found.transpose()? else {
        return Ok(());
    };
    REPAIRED.fetch_add(1, Ordering::Relaxed);
    let repaired = run(support::crashproof()
        .args([
            "repair",
            "--apply",
            "--json",
            "outcome.json",
            "--build",
            BUILD,
            "--",
            "./app",
            "pool",
        ])
        .current_dir(&broken)
        .env("CC", "clang-19"))?;
    let explain = |what: &str| {
        let now = std::fs::read_to_string(broken.join("app.c")).unwrap_or_default();
        let Removed { flushes, fences } = removed;
        format!(
            "{what} ({flushes} flushes and {fences} fences were removed)\n--- repair said:\n{}\n--- it made:\n{now}",
            repaired.report
        )
    };
    if repaired.status != Some(0) {
        return Err(explain(&format!("repair exited with {:?}", repaired.status)));
    }
    let json = std::fs::read_to_string(broken.join("outcome.json")).unwrap_or_default();
    let outcome: serde_json::Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let attempts = outcome["verification"]["attempts"].as_array();
    let warnings = attempts.and_then(|attempts| Some(&attempts.last()?["new_warnings"]));
    if warnings.is_some_and(|warnings| warnings.as_array().is_some_and(|warnings| !warnings.is_empty())) {
        return Err(explain(&format!("new warnings: {warnings:?}")));
    }
    let after = check(&broken)?;
    if after.loses_data() {
        return Err(explain(&format!("not repaired:\n{}", after.ran.report)));
    }
    if after.ran.output != right.ran.output {
        let (after, right) = (after.ran.output, right.ran.output);
        return Err(explain(&format!("prints {after:?} instead of {right:?}")));
    }
    Ok(())
}

/// Builds the program in the folder as a user would, and checks it.
fn check(folder: &Path) -> Result<Checked, String> {
    let built = run(Command::new("sh")
        .args(["-c", BUILD])
        .current_dir(folder)
        .env("CC", "clang-19"))?;
    if built.status != Some(0) {
        let source = std::fs::read_to_string(folder.join("app.c")).unwrap_or_default();
        return Err(format!("{}\n{source}", built.report));
    }
    let ran = run(support::crashproof()
        .args(["check", "--json", "report.json", "--", "./app", "pool"])
        .current_dir(folder))?;
    let json = std::fs::read_to_string(folder.join("report.json")).unwrap_or_default();
    let report: Report = serde_json::from_str(&json).map_err(|error| format!("{error}:\n{}", ran.report))?;
    if !report.trace.complete {
        return Err(format!("the trace is not complete:\n{}", ran.report));
    }
    Ok(Checked {
        ran,
        findings: report.findings,
    })
}

/// The folder, with the source as its program.
fn write(folder: &Path, source: &str) -> Result<PathBuf, String> {
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join("app.c"), source));
    written.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder.to_owned())
}

fn run(command: &mut Command) -> Result<Ran, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    Ok(Ran {
        output: support::text(&output.stdout),
        status: output.status.code(),
        report: support::text(&output.stderr),
    })
}
