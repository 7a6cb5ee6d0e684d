//! Compares what was found with what the annotations say.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crashproof_finding::{Crash, Finding, Frame, Kind};

use crate::case::{Case, Expectation, Need};
use crate::crash::Crashed;

/// A finding as far as strategies must agree on it. Of lines of which each explains the failure (`one-of`), which is named
/// depends on the state that fails first.
pub(crate) type Verdict = (Kind, Option<String>, Option<u32>, u32);

pub(crate) fn verdicts(case: &Case, crashed: &Crashed) -> BTreeSet<Verdict> {
    let one_of = |finding: &Finding| {
        let mut expectations = case.findings.iter().filter(|expected| expected.need == Need::OneOf);
        expectations.any(|expected| is_at(case, &finding.file, finding.line, expected.line))
    };
    let verdict = |finding: &Finding| {
        let depth = finding.crash.as_ref().map_or(0, |crash| crash.depth);
        let line = finding.line.filter(|_| !one_of(finding));
        (finding.kind, finding.file.clone(), line, depth)
    };
    crashed.report.findings.iter().map(verdict).collect()
}

pub(crate) fn judge(case: &Case, crashed: &Crashed) -> Result<(), String> {
    let mut complaints = String::new();
    let report = &crashed.report;
    let exit = if report.findings.is_empty() { 0 } else { 1 };
    if crashed.exit != Some(exit) {
        let _ = writeln!(
            complaints,
            "crashproof exited with {:?} instead of {exit}",
            crashed.exit
        );
    }
    if !report.trace.complete {
        let _ = writeln!(
            complaints,
            "the trace is incomplete: {}",
            report.trace.incomplete.join("; ")
        );
    }
    match &report.stats {
        Some(stats) if stats.cut_short => complaints.push_str("it was cut short\n"),
        Some(_) => {}
        None => complaints.push_str("the report has no stats\n"),
    }
    compare_findings(case, &report.findings, &mut complaints);
    compare_persisted(case, &report.findings, &mut complaints);
    for finding in &report.findings {
        examine(case, finding, &mut complaints);
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(format!("{complaints}\n--- its report:\n{}", crashed.stderr))
    }
}

fn compare_findings(case: &Case, findings: &[Finding], complaints: &mut String) {
    let meets = |finding: &Finding, expected: &Expectation<Kind>| {
        finding.kind == expected.what && is_at(case, &finding.file, finding.line, expected.line)
    };
    for finding in findings {
        if !case.findings.iter().any(|expected| meets(finding, expected)) {
            let _ = writeln!(complaints, "found, not expected: {}", describe(finding));
        }
    }
    let found = |expected: &Expectation<Kind>| findings.iter().any(|finding| meets(finding, expected));
    complain_of_unmet(case, &case.findings, found, complaints, |kind| kind.name());
}

/// The stores that had persisted, by any frame of their stacks: a library may have made them.
fn compare_persisted(case: &Case, findings: &[Finding], complaints: &mut String) {
    let crashes = || findings.iter().filter_map(|finding| finding.crash.as_ref());
    let at = |stack: &[Frame], line| stack.iter().any(|frame| is_at(case, &frame.file, frame.line, line));
    for crash in crashes() {
        for store in &crash.persisted {
            // An object that one line fills is several stores: some of them may have persisted.
            let of_missing = crash
                .missing
                .iter()
                .any(|missing| missing.frame.line == store.frame.line);
            let expected = case.persisted.iter().any(|expected| at(&store.stack, expected.line));
            if !expected && !of_missing {
                let line = store.frame.line.unwrap_or(0);
                let _ = writeln!(complaints, "named as persisted, not expected: line {line}");
            }
        }
    }
    let found = |expected: &Expectation<()>| {
        let mut stores = crashes().flat_map(|crash| &crash.persisted);
        stores.any(|store| at(&store.stack, expected.line))
    };
    complain_of_unmet(case, &case.persisted, found, complaints, |_| "persisted");
}

fn complain_of_unmet<T: PartialEq>(
    case: &Case,
    expectations: &[Expectation<T>],
    found: impl Fn(&Expectation<T>) -> bool,
    complaints: &mut String,
    name: impl Fn(&T) -> &'static str,
) {
    for expected in expectations {
        let met = match expected.need {
            Need::Must => found(expected),
            Need::May => true,
            Need::OneOf => expectations
                .iter()
                .any(|other| other.need == Need::OneOf && other.what == expected.what && found(other)),
        };
        if !met {
            let name = name(&expected.what);
            let _ = writeln!(
                complaints,
                "expected, not found: {name} at {}:{}",
                case.name, expected.line
            );
        }
    }
}

/// What a finding must say whatever the program.
fn examine(case: &Case, finding: &Finding, complaints: &mut String) {
    let Some(crash) = &finding.crash else {
        let _ = writeln!(complaints, "no crash in {}", describe(finding));
        return;
    };
    let mut require = |holds: bool, what: &str| {
        if !holds {
            let _ = writeln!(complaints, "{what}: {}", describe(finding));
        }
    };
    let Crash { recovery, .. } = crash;
    require(!crash.missing.is_empty(), "no missing store");
    require(crash.depth == case.directives.depth(), "crashed at another depth");
    require(recovery.timeout == case.directives.hangs, "a time-out, or none");
    require(recovery.signal == case.directives.signal, "another signal");
    if case.directives.crash.iter().any(|option| option == "--expect-output") {
        require(
            recovery.status == Some(0) && recovery.unexpected_output,
            "the output was to tell",
        );
    } else if !case.directives.hangs && case.directives.signal.is_none() {
        let failed = recovery.status == Some(1) && !recovery.stderr.is_empty();
        require(failed, "another exit status, or no message");
    }
    let help = finding.help.as_deref().unwrap_or_default();
    require(
        case.directives.help.as_ref().is_none_or(|named| help.contains(named)),
        "another help",
    );
    let ordered = finding.kind == Kind::CrashOrder;
    require(
        finding.order.is_empty() != ordered,
        "an order where there is none, or none",
    );
    let frames =
        |stores: &[crashproof_finding::CrashStore]| -> Vec<_> { stores.iter().map(|s| s.frame.line).collect() };
    let (missing, persisted) = (frames(&crash.missing), frames(&crash.persisted));
    for order in &finding.order {
        let both = missing.contains(&order.before.line) && persisted.contains(&order.after.line);
        require(both, "an order of other stores than those of the crash");
    }
}

fn is_at(case: &Case, file: &Option<String>, line: Option<u32>, expected: u32) -> bool {
    let file = file.as_ref().is_some_and(|file| Path::new(file).ends_with(&case.name));
    file && line == Some(expected)
}

fn describe(finding: &Finding) -> String {
    let file = finding.file.as_deref().unwrap_or("?");
    format!("{} at {file}:{}", finding.kind, finding.line.unwrap_or(0))
}
