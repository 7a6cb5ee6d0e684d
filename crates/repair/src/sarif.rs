//! What `--sarif` writes: the findings, with the patch as the fix of those that it repairs.

use std::path::Path;

use crashproof_finding::{FileChange, Finding, Patch, Program, Report, TraceSummary};
use crashproof_render::{Run, to_json, to_sarif};

use crate::outcome::{Outcome, State};
use crate::source::Changed;
use crate::workspace::Copy;

/// `changes` and `findings` are those of the outcome; the findings have the paths of the copy. `tree` is what it is a copy of.
pub fn log(
    outcome: &Outcome,
    changes: &[Changed],
    findings: &[Finding],
    copy: &Copy,
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
        findings: findings.to_vec(),
        patch: Some(Patch {
            diff: outcome.diff.clone(),
            files: changes.iter().map(file).collect(),
            verified: outcome
                .verification
                .as_ref()
                .is_some_and(|verification| verification.verified),
            findings: (0..findings.len()).filter(repaired).collect(),
        }),
        ..Report::default()
    };
    let report: Report = serde_json::from_str(&copy.json_to_tree(&to_json(&report)?))?;
    let run = Run {
        id: "repair",
        report: &report,
        compared: false,
    };
    to_sarif(&[run], tree)
}
