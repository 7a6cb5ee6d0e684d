//! `crashproof check`.

use std::path::Path;

use crashproof_campaign::recording;
use crashproof_check::CheckOptions;
use crashproof_finding::{Finding, Report};
use crashproof_interrupt as interrupt;
use crashproof_trace::TraceReader;

use super::Result;
use super::outcome::{self, Judge};
use crate::arguments::CheckArguments;
use crate::progress::Progress;

pub(crate) fn run(arguments: &CheckArguments) -> Result {
    let judge = Judge::new(&arguments.results)?;
    let mut report = report(arguments, false, Vec::new())?;
    judge.show(&mut report);
    judge.tell_gone([&report], |kind| !outcome::of_crash(kind));
    outcome::write_one(&judge, &arguments.results, "check", &report)?;
    Ok(judge.verdict(&report))
}

/// `kept`: the program does not outlive us. `transient`: what a crash test of the same run has shown.
pub(crate) fn report(
    arguments: &CheckArguments,
    kept: bool,
    transient: Vec<Finding>,
) -> std::result::Result<Report, Box<dyn std::error::Error>> {
    // What is wrong with the configuration is said before the program runs, not after.
    let options = CheckOptions {
        model: arguments.model.into(),
        config: arguments.project.load()?,
        traffic: arguments.results.html.is_some(),
        transient,
    };
    let reader = match &arguments.trace {
        Some(trace) => TraceReader::open(trace)?,
        None => record(arguments, kept)?,
    };
    let mut report = check(reader, &options)?;
    report.look_for_doubts(arguments.allowances.into());
    Ok(report)
}

/// Runs the program and opens its trace.
fn record(arguments: &CheckArguments, kept: bool) -> std::result::Result<TraceReader, Box<dyn std::error::Error>> {
    let record = |path: &Path| -> std::result::Result<TraceReader, Box<dyn std::error::Error>> {
        let manner = recording::Manner {
            kept,
            remedy: Some(match &arguments.keep_trace {
                Some(_) => "free some space, or choose another place with --keep-trace",
                None => "free some space, set TMPDIR to a folder that has more, or name a file with --keep-trace",
            }),
            ..Default::default()
        };
        let recorded = recording::record(&arguments.command, path, &arguments.recording, manner)?;
        // A signal that ends a program that does not outlive us is meant for us, too.
        if recorded.end.interrupted || kept && recorded.end.terminated {
            interrupt::request();
        }
        Ok(TraceReader::open(recorded.trace)?)
    };
    match &arguments.keep_trace {
        Some(path) => record(path),
        // Its name goes away as soon as it is open: a check that is interrupted leaves nothing behind.
        None => record(&outcome::temporary_trace()?),
    }
}

fn check(mut reader: TraceReader, options: &CheckOptions) -> std::result::Result<Report, Box<dyn std::error::Error>> {
    let mut progress = Progress::new("checking");
    Ok(crashproof_check::check(&mut reader, options, |done, total| {
        progress.update(done, total)
    })?)
}
