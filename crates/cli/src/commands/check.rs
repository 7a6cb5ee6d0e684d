//! `crashproof check`.

use crashproof_check::CheckOptions;
use crashproof_report::Report;
use crashproof_trace::TraceReader;

use super::{Result, outcome};
use crate::arguments::{CheckArguments, Model};
use crate::progress::Progress;
use crate::project;

pub fn run(arguments: &CheckArguments) -> Result {
    let report = report(arguments)?;
    outcome::show(&report);
    outcome::write_machine_readable(&report, arguments.json.as_deref(), arguments.sarif.as_deref())?;
    Ok(outcome::verdict(&report))
}

pub fn report(arguments: &CheckArguments) -> std::result::Result<Report, Box<dyn std::error::Error>> {
    // What is wrong with the configuration is said before the program runs, not after.
    let options = CheckOptions {
        model: arguments.model.into(),
        config: project::load(arguments.config.as_deref())?.without_tests(),
    };
    match &arguments.trace {
        Some(trace) => check(TraceReader::open(trace)?, &options),
        None => check(record(arguments)?, &options),
    }
}

impl From<Model> for crashproof_check::Model {
    fn from(model: Model) -> Self {
        match model {
            Model::Px86 => crashproof_check::Model::Px86,
            Model::Eadr => crashproof_check::Model::Eadr,
        }
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
            let trace = outcome::temporary_trace()?;
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
