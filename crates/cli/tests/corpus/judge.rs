//! Compares what was found with what the annotations say, and the recorded run with the native one.

use std::fmt::Write;
use std::path::Path;

use crashproof_finding::{Finding, Kind, Severity};

use crate::annotation::{Expectation, Need, kind_name};
use crate::case::Case;
use crate::run::{Effects, Recorded};

pub(crate) fn judge(case: &Case, native: &Effects, recorded: &Recorded) -> Result<(), String> {
    let mut complaints = String::new();
    compare_runs(case, native, &recorded.effects, &mut complaints);
    compare_findings(&case.expectations, &recorded.report.findings, &mut complaints);
    let trace = &recorded.report.trace;
    if trace.complete == case.directives.incomplete {
        let _ = writeln!(
            complaints,
            "trace.complete is {}: {}",
            trace.complete,
            trace.incomplete.join("; ")
        );
    }
    let exit = match (recorded.report.findings.is_empty(), trace.complete) {
        (false, _) => 1,
        (true, true) => 0,
        (true, false) => 2,
    };
    if recorded.exit != Some(exit) {
        let _ = writeln!(
            complaints,
            "crashproof exited with {:?} instead of {exit}",
            recorded.exit
        );
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(format!("{complaints}\n--- its report:\n{}", recorded.stderr))
    }
}

fn compare_runs(case: &Case, native: &Effects, recorded: &Effects, complaints: &mut String) {
    let expected = match case.directives.signal {
        Some(signal) => (None, Some(signal)),
        None => (Some(case.directives.exit), None),
    };
    for (name, effects) in [("natively", native), ("recorded", recorded)] {
        if (effects.status, effects.signal) != expected {
            let ended = (effects.status, effects.signal);
            let _ = writeln!(
                complaints,
                "{name}: ended with (status, signal) {ended:?} instead of {expected:?}"
            );
        }
    }
    if native.stdout != recorded.stdout {
        let (native, recorded) = (
            String::from_utf8_lossy(&native.stdout),
            String::from_utf8_lossy(&recorded.stdout),
        );
        let _ = writeln!(complaints, "stdout differs:");
        let mut pairs = native.lines().zip(recorded.lines());
        match pairs.find(|(a, b)| a != b) {
            Some((a, b)) => _ = writeln!(complaints, "  natively: {a}\n  recorded: {b}"),
            None => {
                _ = writeln!(
                    complaints,
                    "  {} lines natively, {} recorded",
                    native.lines().count(),
                    recorded.lines().count()
                )
            }
        }
    }
    if native.file.is_some() != recorded.file.is_some() {
        let _ = writeln!(complaints, "only one of the two runs left a PM file");
    }
    if let (Some(a), Some(b)) = (&native.file, &recorded.file)
        && a != b
    {
        let at = a
            .iter()
            .zip(b)
            .position(|(a, b)| a != b)
            .unwrap_or(a.len().min(b.len()));
        let show = |bytes: &[u8]| format!("{:02x?}", &bytes[at.min(bytes.len())..bytes.len().min(at + 16)]);
        let _ = writeln!(
            complaints,
            "the PM file differs from offset {at:#x} (sizes {} and {}):\n  natively: {}\n  recorded: {}",
            a.len(),
            b.len(),
            show(a),
            show(b)
        );
    }
}

fn compare_findings(expectations: &[Expectation], findings: &[Finding], complaints: &mut String) {
    let mut counts = vec![0; expectations.len()];
    for finding in findings {
        match expectations.iter().position(|expectation| meets(finding, expectation)) {
            Some(index) => counts[index] += finding.count,
            None => _ = writeln!(complaints, "found, not expected: {}", describe(finding)),
        }
        if !severities(finding.kind).contains(&finding.severity) {
            let _ = writeln!(
                complaints,
                "wrong severity {:?}: {}",
                finding.severity,
                describe(finding)
            );
        }
    }
    for (expectation, &count) in expectations.iter().zip(&counts) {
        let Expectation { file, line, kind, .. } = expectation;
        let place = format!("{} at {}:{line}", kind_name(*kind), file.display());
        let group_found = || {
            expectations
                .iter()
                .zip(&counts)
                .any(|(e, &n)| e.need == Need::OneOf && e.kind == expectation.kind && n > 0)
        };
        let found = count > 0 || expectation.need == Need::May || expectation.need == Need::OneOf && group_found();
        if !found {
            let _ = writeln!(complaints, "expected, not found: {place}");
        } else if let Some(expected) = expectation.count
            && count != expected
            && expectation.need == Need::Must
        {
            let _ = writeln!(complaints, "{place}: found {count} times instead of {expected}");
        }
    }
}

fn meets(finding: &Finding, expectation: &Expectation) -> bool {
    let is_there = |file: &Option<String>, line: Option<u32>| {
        line == Some(expectation.line) && file.as_ref().is_some_and(|f| Path::new(f).ends_with(&expectation.file))
    };
    finding.kind == expectation.kind
        && if expectation.in_stack {
            finding.stack.iter().any(|frame| is_there(&frame.file, frame.line))
        } else {
            is_there(&finding.file, finding.line)
        }
}

fn severities(kind: Kind) -> &'static [Severity] {
    match kind {
        // A warning where a locked instruction may have fenced unseen.
        Kind::MissingFence => &[Severity::Error, Severity::Warning],
        Kind::MissingFlush
        | Kind::TxStoreNotSnapshotted
        | Kind::TxStoreOutside
        | Kind::TxSnapshotOverlap
        | Kind::CrashOrder
        | Kind::CrashAtomicity
        | Kind::CrashDurability
        | Kind::ExpectDurable
        | Kind::ExpectOrder
        | Kind::RuleOrder
        | Kind::RuleTransaction => &[Severity::Error],
        Kind::RedundantFlush | Kind::FlushUnmodified | Kind::RedundantFence | Kind::TxSnapshotTwice => {
            &[Severity::Warning]
        }
        Kind::TransientData => &[Severity::Note],
    }
}

fn describe(finding: &Finding) -> String {
    let mut text = format!("{} x{}", kind_name(finding.kind), finding.count);
    let unknown = || "?".to_owned();
    let _ = write!(
        text,
        " at {}:{}",
        finding.file.clone().unwrap_or_else(unknown),
        finding.line.unwrap_or(0)
    );
    for frame in finding.stack.iter().take(4) {
        let _ = write!(
            text,
            "\n    in {} ({}:{}) {}",
            frame.function.clone().unwrap_or_else(unknown),
            frame.file.clone().unwrap_or_else(unknown),
            frame.line.unwrap_or(0),
            frame.module.clone().unwrap_or_default()
        );
    }
    text
}
