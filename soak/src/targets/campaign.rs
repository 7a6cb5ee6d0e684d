//! A crash test without processes: the recovery is a function that always succeeds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crashproof_crash::{CampaignOptions, CrashError, Executor, ExecutorError, Explainer, Failure, StrategyKind};
use crashproof_finding::Finding;
use crashproof_sandbox::{Ended, Run};
use crashproof_trace::TraceFile;

/// What of a campaign one input is worth.
const MOST_STATES: u64 = 64;

/// Tests states of the trace with strategies that differ in how they look at it. Whether all could be run.
pub(super) fn test(trace: &Path) -> bool {
    let Ok(trace) = TraceFile::open(trace) else {
        return false;
    };
    [StrategyKind::Prefix, StrategyKind::Dpor, StrategyKind::Representative]
        .into_iter()
        .all(|strategy| {
            let options = CampaignOptions {
                strategy,
                max_states: Some(MOST_STATES),
                ..CampaignOptions::default()
            };
            let executors: Vec<Box<dyn Executor>> = vec![Box::<Recovery>::default()];
            let Ok(survey) = crashproof_crash::survey(&trace, &options) else {
                return false;
            };
            crashproof_crash::run(
                &trace,
                &options,
                &survey,
                executors,
                Box::new(Unexplained),
                &|_| {},
                &AtomicBool::new(false),
            )
            .is_ok()
        })
}

/// A recovery that looks at nothing and succeeds. Its image keeps only bytes that are not zero: a damaged trace may have files of any size.
#[derive(Default)]
struct Recovery {
    bytes: BTreeMap<(usize, u64), u8>,
}

impl Executor for Recovery {
    fn read(&self, file: usize, offset: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        let end = offset.saturating_add(buffer.len() as u64);
        for (&(_, at), &byte) in self.bytes.range((file, offset)..(file, end)) {
            buffer[(at - offset) as usize] = byte;
        }
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) {
        for (at, &byte) in (offset..).zip(data) {
            match byte {
                0 => self.bytes.remove(&(file, at)),
                _ => self.bytes.insert((file, at), byte),
            };
        }
    }

    fn resize(&mut self, file: usize, size: u64) {
        self.bytes.retain(|&(other, at), _| other != file || at < size);
    }

    fn place(&mut self, _file: usize, _path: Option<&str>) {}

    fn run(&mut self, _output: &[u8]) -> Result<Run, ExecutorError> {
        Ok(Run {
            recovery: Ended {
                status: Some(0),
                ..Ended::default()
            },
            looked: Some(true),
            ..Run::default()
        })
    }
}

/// Nothing fails, so nothing is explained.
struct Unexplained;

impl Explainer for Unexplained {
    fn explain(&mut self, _failure: &Failure) -> Result<bool, CrashError> {
        Ok(false)
    }

    fn leave(&mut self, _failure: Failure) {}

    fn finish(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}
