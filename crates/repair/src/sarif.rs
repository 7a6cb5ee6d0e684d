//! What `--sarif` writes: the findings, with the patch as the fix of those that it repairs.

use std::path::Path;

use crashproof_finding::{FileChange, Finding, Patch, Program, Report, TraceSummary};
use crashproof_render::{Run, to_sarif};

use crate::outcome::{Outcome, State};
use crate::source::Changed;

/// `changes` and `findings` are those of the outcome, in the user's tree.
pub(crate) fn log(
    outcome: &Outcome,
    changes: &[Changed],
    findings: Vec<Finding>,
    tree: &Path,
) -> Result<String, serde_json::Error> {
    let file = |change: &Changed| FileChange {
        path: change.path.to_string_lossy().into_owned(),
        replacements: change.replacements(),
    };
    let of = |index: usize| outcome.findings.get(index);
    let repaired = |index: &usize| of(*index).is_some_and(|finding| finding.state == State::Repaired);
    let report = Report {
        version: outcome.version,
        program: Program {
            command: outcome.program.clone(),
            ..Program::default()
        },
        // A repair does not begin with a trace that is not.
        trace: TraceSummary {
            complete: true,
            ..TraceSummary::default()
        },
        patch: Some(Patch {
            diff: outcome.diff.clone(),
            files: changes.iter().map(file).collect(),
            verified: outcome
                .verification
                .as_ref()
                .is_some_and(|verification| verification.verified),
            findings: (0..findings.len()).filter(repaired).collect(),
        }),
        findings,
        ..Report::default()
    };
    let run = Run {
        id: "repair",
        report: &report,
        compared: false,
    };
    to_sarif(&[run], tree)
}
