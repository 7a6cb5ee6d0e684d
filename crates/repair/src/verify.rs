//! Whether the patched program is what it was, without the bugs: compares a run of it with one of the unpatched, both built by the user's command.
//!
//! A repair is one when each finding is gone, nothing new is found, and status and output are the same. Lines are compared through the changes. Flushes
//! that only a run shows to be superfluous (`redundant-flush` and its like) are told and are no failure: they cost time, not data.

use std::collections::BTreeSet;
use std::path::Path;

use crashproof_finding::{Finding, Kind, Report, Severity};
use serde::Serialize;

use crate::commands::Output;
use crate::lines::PatchedLines;
use crate::paths::plain;
use crate::source::{Cause, Origin};

/// As the report of a repair names a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    pub kind: Kind,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
}

impl Named {
    pub fn of(finding: &Finding) -> Named {
        Named {
            kind: finding.kind,
            file: finding.file.as_deref().map(plain_name),
            line: finding.line,
            function: finding.function.clone(),
        }
    }

    fn is_at_place_of(&self, other: &Named) -> bool {
        (&self.file, self.line) == (&other.file, other.line)
    }
}

/// What a patch brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    pub finding: Named,
    /// The fixes that changed its line.
    pub causes: BTreeSet<Cause>,
}

impl New {
    /// `repaired` says what a fix repairs.
    pub(crate) fn in_words(&self, root: &str, repaired: impl Fn(Cause) -> Option<Named>) -> String {
        let finding = self.finding.in_words(root);
        match self.causes.iter().find_map(|cause| repaired(*cause)) {
            Some(repaired) => format!("{finding}, which the fix for {} has changed", repaired.in_words(root)),
            None => finding,
        }
    }
}

/// What a comparison of two checks or of two crash tests showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Findings to be repaired that are still there: their indices. Of a crash test, those at whose place the recovery still fails, for whatever reason.
    pub still: BTreeSet<usize>,
    /// Findings to be repaired that the unpatched program had, built by the user's command: their indices.
    pub seen_before: BTreeSet<usize>,
    /// Errors that were neither there before nor are to be repaired.
    pub new: Vec<New>,
    /// New, but of performance only.
    pub new_warnings: Vec<Named>,
    /// Missing flushes and fences, or failures of the recovery, that were there before and are not to be repaired.
    pub remaining: Vec<Finding>,
}

pub(crate) fn is_durability(kind: Kind) -> bool {
    matches!(kind, Kind::MissingFlush | Kind::MissingFence)
}

/// `findings`: those to be repaired. All reports name the files of the tree.
pub(crate) fn compare(findings: &[Finding], before: &Report, after: &Report, lines: PatchedLines) -> Comparison {
    let named = |findings: &[Finding]| findings.iter().map(Named::of).collect::<Vec<_>>();
    let (given, old) = (named(findings), named(&before.findings));
    // Flushed, but not fenced, is not repaired.
    let is_same = |one: &Named, other: &Named| {
        let same_kind = one.kind == other.kind || (is_durability(one.kind) && is_durability(other.kind));
        same_kind && one.is_at_place_of(other)
    };
    let seen_before = (0..given.len()).filter(|&index| old.iter().any(|old| is_same(&given[index], old)));
    let mut comparison = Comparison {
        seen_before: seen_before.collect(),
        ..Comparison::default()
    };
    for finding in &after.findings {
        let (unpatched, causes) = in_unpatched(finding.clone(), lines);
        let now = Named::of(&unpatched);
        let has_line = now.line.is_some();
        let still = (0..given.len()).filter(|&index| has_line && is_same(&given[index], &now));
        let still: BTreeSet<usize> = still.collect();
        let is_known = has_line && old.iter().any(|old| old.kind == now.kind && old.is_at_place_of(&now));
        let finding = Named::of(finding);
        match (unpatched.severity, is_known) {
            _ if !still.is_empty() => {}
            (_, true) if is_durability(now.kind) => comparison.remaining.push(unpatched),
            (_, true) => {}
            (Severity::Error, false) => comparison.new.push(New { finding, causes }),
            (_, false) => comparison.new_warnings.push(finding),
        }
        comparison.still.extend(still);
    }
    comparison
}

pub(crate) fn is_crash(kind: Kind) -> bool {
    matches!(kind, Kind::CrashOrder | Kind::CrashAtomicity | Kind::CrashDurability)
}

/// `findings`: those to be repaired. All reports name the files of the tree. Which of several missing stores a finding is at depends on which
/// failing state was met first, so two findings are one if they are of one kind and lack a store in common.
pub(crate) fn compare_crashes(
    findings: &[Finding],
    before: &[Finding],
    after: &[Finding],
    lines: PatchedLines,
) -> Comparison {
    let mut comparison = Comparison::default();
    for (index, finding) in findings.iter().enumerate() {
        if before.iter().any(|old| same_crash(finding, old)) {
            comparison.seen_before.insert(index);
        }
    }
    for finding in after {
        let (finding, causes) = in_unpatched(finding.clone(), lines);
        let now = Named::of(&finding);
        let mut wanted = false;
        for (index, given) in findings.iter().enumerate() {
            if given.line.is_some() && Named::of(given).is_at_place_of(&now) {
                comparison.still.insert(index);
                wanted = true;
            }
        }
        match before.iter().any(|old| same_crash(&finding, old)) {
            _ if wanted => {}
            false => comparison.new.push(New { finding: now, causes }),
            true if findings.iter().any(|given| same_crash(&finding, given)) => {}
            true => comparison.remaining.push(finding),
        }
    }
    comparison
}

/// Of one kind, and with a missing store in common.
pub(crate) fn same_crash(a: &Finding, b: &Finding) -> bool {
    let places = |finding: &Finding| -> BTreeSet<(String, u32)> {
        let missing = finding.crash.iter().flat_map(|crash| &crash.missing);
        let own = (finding.file.as_deref(), finding.line);
        missing
            .map(|store| (store.frame.file.as_deref(), store.frame.line))
            .chain([own])
            .filter_map(|(file, line)| Some((plain_name(file?), line?)))
            .collect()
    };
    a.kind == b.kind && !places(a).is_disjoint(&places(b))
}

/// A finding of the patched program with the lines of the unpatched one, and the fixes that changed its lines. What the
/// patch added has no line.
pub(crate) fn in_unpatched(mut finding: Finding, lines: PatchedLines) -> (Finding, BTreeSet<Cause>) {
    let mut fixes = BTreeSet::new();
    let mut old = |file: &Option<String>, line: &mut Option<u32>| {
        if let (Some(file), Some(new)) = (file, *line) {
            *line = match lines.origin(Path::new(file), new) {
                Origin::Kept(old) => Some(old),
                Origin::Added(causes) => {
                    fixes.extend(causes);
                    None
                }
            };
        }
    };
    old(&finding.file, &mut finding.line);
    for store in finding.crash.iter_mut().flat_map(|crash| &mut crash.missing) {
        old(&store.frame.file, &mut store.frame.line);
    }
    (finding, fixes)
}

/// Compilers write `src/./a.h`, or do not.
fn plain_name(file: &str) -> String {
    plain(Path::new(file)).to_string_lossy().into_owned()
}

/// The first difference of two runs, in words.
pub(crate) fn difference(before: &Output, after: &Output) -> Option<String> {
    if before.status != after.status {
        let say = |status: Option<i32>| status.map_or("nothing".to_owned(), |status| status.to_string());
        return Some(format!(
            "exit status {} became {}",
            say(before.status),
            say(after.status)
        ));
    }
    [
        ("stdout", &before.stdout, &after.stdout),
        ("stderr", &before.stderr, &after.stderr),
    ]
    .into_iter()
    .find(|(_, before, after)| before != after)
    .map(|(name, before, after)| {
        let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
        let (mut old, mut new) = (before.lines(), after.lines());
        let line = 1 + old
            .by_ref()
            .zip(new.by_ref())
            .take_while(|(old, new)| old == new)
            .count();
        let nth = |text: &str| {
            text.lines()
                .nth(line - 1)
                .map_or("nothing".to_owned(), |line| format!("{line:?}"))
        };
        format!("line {line} of {name} was {} and is {}", nth(&before), nth(&after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Changed;
    use crate::source::changed::Splice;
    use crate::source::text::SourceFile;

    fn finding(kind: Kind, severity: Severity, line: u32) -> Finding {
        let text = format!(
            r#"{{"kind": "{kind}", "severity": "error", "file": "/t/a.c", "line": {line}, "count": 1, "message": "", "stack": []}}"#
        );
        Finding {
            severity,
            ..serde_json::from_str(&text).unwrap()
        }
    }

    /// A patch that adds a line behind each of these; the fix's number is the line's.
    fn added_behind(lines: &[usize]) -> [Changed; 1] {
        let text: String = (1..=50).map(|line| format!("{line}\n")).collect();
        let file = SourceFile::new("/t/a.c".into(), text.clone());
        let splice = |&line: &usize| {
            let at = text.split_inclusive('\n').take(line).map(str::len).sum();
            Splice {
                range: at..at,
                text: "added\n".into(),
                causes: BTreeSet::from([Cause::Fix(line)]),
            }
        };
        [Changed::new("a.c".into(), &file, lines.iter().map(splice).collect())]
    }

    fn patched(changes: &[Changed]) -> PatchedLines<'_> {
        let tree = Path::new("/t");
        PatchedLines { changes, tree }
    }

    fn report(findings: &[Finding]) -> Report {
        Report {
            version: 1,
            findings: findings.to_vec(),
            ..Report::default()
        }
    }

    #[test]
    fn findings_are_compared_through_the_diff() {
        let lost = |line| finding(Kind::MissingFlush, Severity::Error, line);
        let useless = |line| finding(Kind::RedundantFlush, Severity::Warning, line);
        let (given, before) = ([lost(5), lost(9)], report(&[lost(5), lost(20), useless(30)]));
        let lines = added_behind(&[5, 9]);
        let compared = |after: &[Finding]| compare(&given, &before, &report(after), patched(&lines));
        let good = compared(&[lost(22), useless(32)]);
        assert_eq!((good.still.len(), good.new.len(), good.new_warnings.len()), (0, 0, 0));
        assert_eq!(good.remaining[0].line, Some(20));
        assert_eq!(good.seen_before, BTreeSet::from([0]));
        let bad = compared(&[
            finding(Kind::MissingFence, Severity::Error, 5),
            lost(6),
            useless(11),
            lost(50),
        ]);
        assert_eq!(
            bad.still,
            BTreeSet::from([0]),
            "flushed, but not fenced, is not repaired"
        );
        assert_eq!(
            bad.new
                .iter()
                .map(|new| (new.finding.line, &new.causes))
                .collect::<Vec<_>>(),
            [
                (Some(6), &BTreeSet::from([Cause::Fix(5)])),
                (Some(50), &BTreeSet::new())
            ]
        );
        let repaired = |_| Some(Named::of(&lost(5)));
        assert_eq!(
            bad.new[0].in_words("/t", repaired),
            "missing-flush, a.c:6, which the fix for missing-flush, a.c:5 has changed"
        );
        assert_eq!(bad.new_warnings.len(), 1);
        let mut other_name = lost(5);
        other_name.file = Some("/t/./x/../a.c".to_owned());
        assert_eq!(compared(&[other_name]).still, BTreeSet::from([0]));
    }

    #[test]
    fn crash_findings_are_compared_by_what_is_missing() {
        let crash = |kind: &str, line: u32, missing: &[u32]| -> Finding {
            let store = |line: &u32| {
                format!(
                    r#"{{"file": "/t/a.c", "line": {line}, "address": 0, "stack": [], "pm": {{"file": "p", "offset": 0, "length": 8}}, "data": ""}}"#
                )
            };
            let missing: Vec<String> = missing.iter().map(store).collect();
            let text = format!(
                r#"{{"kind": "{kind}", "severity": "error", "file": "/t/a.c", "line": {line}, "count": 1, "message": "", "stack": [],
                    "crash": {{"after": {{"address": 0}}, "after_stack": [], "persisted": [], "missing": [{}],
                               "recovery": {{"command": "", "timeout": false, "stdout": "", "stderr": ""}}, "states": 1, "depth": 1}}}}"#,
                missing.join(",")
            );
            serde_json::from_str(&text).unwrap()
        };
        let given = [crash("crash-order", 5, &[5, 6]), crash("crash-order", 9, &[9])];
        let before = [crash("crash-order", 6, &[6]), crash("crash-atomicity", 20, &[20, 21])];
        let lines = added_behind(&[5]);
        let compared = |after: &[Finding]| compare_crashes(&given, &before, after, patched(&lines));
        let good = compared(&[crash("crash-atomicity", 22, &[22])]);
        assert_eq!((good.still.len(), good.new.len(), good.remaining.len()), (0, 0, 1));
        assert_eq!(good.seen_before, BTreeSet::from([0]));
        let bad = compared(&[
            crash("crash-atomicity", 5, &[5]),
            crash("crash-order", 6, &[6]),
            crash("crash-order", 22, &[22]),
        ]);
        assert_eq!(bad.still, BTreeSet::from([0]), "of whatever kind");
        let new: Vec<_> = bad.new.iter().map(|new| new.finding.line).collect();
        assert_eq!(new, [None, Some(21)], "an added line; another kind");
    }

    #[test]
    fn the_first_difference_is_told() {
        let output = |status, stdout: &str| Output {
            status: Some(status),
            stdout: stdout.into(),
            stderr: Vec::new(),
        };
        assert_eq!(difference(&output(0, "a\nb\n"), &output(0, "a\nb\n")), None);
        assert_eq!(
            difference(&output(0, ""), &output(3, "")).unwrap(),
            "exit status 0 became 3"
        );
        let told = difference(&output(0, "a\nb\n"), &output(0, "a\nc\n")).unwrap();
        assert_eq!(told, r#"line 2 of stdout was "b" and is "c""#);
        assert!(
            difference(&output(0, "a\n"), &output(0, "a\nb\n"))
                .unwrap()
                .contains("nothing")
        );
    }
}
