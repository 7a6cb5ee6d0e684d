//! Checks a trace: which stores are not persistent when they have to be, which flushes and fences do nothing, which
//! transactions and rules of the program are broken.
//!
//! One pass ([`pass`]) runs the persistency model over the events and shows them to the oracles ([`oracle`]); what they
//! emit is deduplicated by kind and stack ([`findings`]), symbolised and put into words ([`render`]).
//!
//! Architecture invariant: reads traces and makes findings; knows neither recorders nor how a finding is shown.
#![forbid(unsafe_code)]

mod config;
pub mod files;
mod findings;
mod first_access;
mod locks;
mod oracle;
mod pass;
mod render;

mod tag;
#[cfg(test)]
mod tests;
mod traffic;
mod words;

pub use config::{Analysis, Config, ConfigError, Helper, Ignore, RepairCommands, Rule, Selector};
pub use crashproof_model::Model;

use crashproof_finding::{Finding, Kind, Program, Report, TraceSummary};
use crashproof_trace::{FileUses, Item, LeftOutReason, ReadError, TraceReader};

#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    pub model: Model,
    pub config: Config,
    /// Who stores, flushes and fences is wanted, too.
    pub traffic: bool,
    /// What a crash test of the same run has shown to be transient: findings of the same call path, if they are about data that is not
    /// persisted, are these instead.
    pub transient: Vec<Finding>,
}

/// What is said of data that is not persisted. A test that its loss makes no difference shows it to be transient.
pub const UNPERSISTED: [Kind; 3] = [Kind::MissingFlush, Kind::MissingFence, Kind::TransientData];

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Progress is told every so many events.
const PROGRESS_EVENTS: u64 = 1 << 16;

/// Checks all of the trace. `progress` gets how many bytes of how many have been read.
pub fn check(
    reader: &mut TraceReader,
    options: &CheckOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Report, CheckError> {
    let mut pass = pass::Pass::new(options.model, &options.config.rules, options.config.declared_helpers());
    pass.traffic = options.traffic.then(traffic::ByStack::default);
    let mut uses = FileUses::default();
    let mut until_progress = PROGRESS_EVENTS;
    while let Some((item, tables)) = reader.next_with_tables()? {
        if let Item::Event(event) = item {
            uses.event(&event, tables);
            pass.event(&event, tables);
        }
        until_progress -= 1;
        if until_progress == 0 {
            until_progress = PROGRESS_EVENTS;
            progress(reader.position(), reader.len());
        }
    }
    progress(reader.len(), reader.len());
    // A pattern of the user's makes a file PM, whatever becomes of it.
    let by_evidence = reader.header().options.pm.is_empty();
    let deleted = |file| by_evidence && uses.of(file).unlinked;
    let mut outcome = pass.finish(reader.tables(), deleted);
    // A fence may have waited for flushes of memory that is not in the trace.
    if (reader.left_out().iter()).any(|left_out| left_out.reason == LeftOutReason::NotSelected) {
        outcome.findings.forget(Kind::RedundantFence);
    }
    let by_stack = outcome.traffic.take();
    let traffic =
        by_stack.map(|by_stack| by_stack.by_function(&outcome.findings, &mut outcome.stacks, reader.tables()));
    let context = render::Context {
        model: options.model,
        config: &options.config,
        transient: &options.transient,
        header: reader.header(),
        tables: reader.tables(),
        uses: &uses,
        end: reader.end(),
    };
    let rendered = render::render(outcome, deleted, &context);
    let (files, left_out) = files::files(reader.outline(), &uses, &rendered.in_deleted);
    let counts = reader.counts();
    let end = reader.end().unwrap_or_default();
    let mut report = Report {
        version: 1,
        program: Program {
            status: end.status,
            signal: end.signal,
            asked_to_end: end.interrupted || end.terminated,
            command: reader.header().command.clone(),
        },
        trace: TraceSummary {
            stores: counts.stores,
            flushes: counts.flushes,
            fences: counts.fences,
            complete: reader.incomplete().is_empty(),
            incomplete: reader
                .incomplete()
                .iter()
                .map(|incomplete| incomplete.detail.clone())
                .collect(),
        },
        findings: rendered.findings,
        warnings: rendered.warnings,
        files,
        left_out,
        traffic: traffic.unwrap_or_default(),
        ..Report::default()
    };
    report.count_findings();
    Ok(report)
}
