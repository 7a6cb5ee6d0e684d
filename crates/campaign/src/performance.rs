//! `--performance`: what the run does for nothing. Flushes, fences and snapshots that are not needed are those of `crashproof check`; that
//! data is only volatile, the driver's output confirms.

use crashproof_check::{CheckOptions, UNPERSISTED, check};
use crashproof_crash::oracle::transient::{Loss, lose};
use crashproof_crash::{CampaignOptions, Executor, Survey};
use crashproof_finding::{Finding, Kind};
use crashproof_trace::TraceFile;

use crate::Error;

const UNNEEDED: [Kind; 4] = [
    Kind::RedundantFlush,
    Kind::FlushUnmodified,
    Kind::RedundantFence,
    Kind::TxSnapshotTwice,
];

pub(crate) fn findings(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    checking: &CheckOptions,
    executor: &mut dyn Executor,
) -> Result<Vec<Finding>, Error> {
    let checked = check(&mut trace.reader()?, checking, |_, _| ())?;
    let (unpersisted, others): (Vec<Finding>, Vec<Finding>) = checked
        .findings
        .into_iter()
        .partition(|finding| UNPERSISTED.contains(&finding.kind));
    let places: Vec<(String, u64)> = unpersisted
        .iter()
        .map(|finding| {
            finding
                .address
                .as_ref()
                .map_or_else(Default::default, |at| (at.file.clone(), at.offset))
        })
        .collect();
    let losses = lose(trace, options, survey, executor, &places)?;
    let transient = unpersisted
        .into_iter()
        .zip(losses)
        .filter_map(|(finding, loss)| confirmed(finding, loss?));
    let unneeded = others.into_iter().filter(|finding| UNNEEDED.contains(&finding.kind));
    Ok(unneeded.chain(transient).collect())
}

/// What was lost and not missed.
fn confirmed(finding: Finding, loss: Loss) -> Option<Finding> {
    if loss.missed || loss.tried == 0 {
        return None;
    }
    let points = match loss.tried == loss.points {
        true => format!("each of the {} crash points", loss.points),
        false => format!("{} of the {} crash points", loss.tried, loss.points),
    };
    Some(Finding {
        kind: Kind::TransientData,
        severity: Kind::TransientData.severity(),
        message: format!(
            "nothing persists this store, and its loss at {points} after it changed nothing that the driver prints"
        ),
        help: None,
        durable_by: None,
        ..finding
    })
}
