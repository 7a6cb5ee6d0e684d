//! Findings that were there before: a baseline is what `--json` wrote earlier, and only what it does not have is new.
//!
//! A finding is recognised by its kind, its function, the name of its file and its message without numbers; line numbers
//! change with every edit above. Several places of a function may look the same in all of these. So the *places* (lines) of
//! each are counted: if there are more than in the baseline, those on the baseline's lines are taken for the known ones, then
//! the first of the others, and what is left over is new. Another call path to a known place is not new.
//!
//! What an earlier version of crashproof took for another kind of the same mistake ([`formerly`]) is known, too: the places of
//! the baseline that no finding of their own kind needs count for it. So is what an earlier version reported in a helper ([`in_helper`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::stack::blamed;
use crate::{Finding, Frame, Kind, Report};

/// Why a baseline cannot be used.
#[derive(Debug)]
pub enum BaselineError {
    /// Not JSON.
    NotJson(serde_json::Error),
    /// JSON, but neither of a check, nor of a crash test, nor of `crashproof test`.
    NotAReport,
}

impl std::fmt::Display for BaselineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BaselineError::NotJson(error) => write!(f, "it is not JSON: {error}"),
            BaselineError::NotAReport => f.write_str("it is JSON, but no report of crashproof"),
        }
    }
}

impl std::error::Error for BaselineError {}

/// The findings of earlier reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    places: BTreeMap<Key, BTreeSet<Place>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: Kind,
    /// Of the module, where there is no function.
    function: Option<String>,
    /// The last component of its path: where the source lies is not the same on every machine.
    file: Option<String>,
    message: String,
}

/// What tells places with the same key apart; of a crash the lines of all its stores.
type Place = Vec<u64>;

/// What `crashproof test --json` writes.
#[derive(Deserialize)]
struct Tests {
    tests: Vec<Tested>,
}

#[derive(Deserialize)]
struct Tested {
    check: Option<Report>,
    crash: Option<Report>,
}

impl Baseline {
    /// `text` is what `--json` of a check, of a crash test or of `crashproof test` wrote.
    pub fn parse(text: &str) -> Result<Baseline, BaselineError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(BaselineError::NotJson)?;
        let read = |value: serde_json::Value| -> serde_json::Result<Vec<Report>> {
            if value.get("tests").is_none() {
                return Ok(vec![serde_json::from_value(value)?]);
            }
            let Tests { tests } = serde_json::from_value(value)?;
            Ok(tests
                .into_iter()
                .flat_map(|test| [test.check, test.crash])
                .flatten()
                .collect())
        };
        let reports = read(value).map_err(|_| BaselineError::NotAReport)?;
        Ok(Baseline::new(&reports))
    }

    /// The findings of these reports.
    pub fn new<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Baseline {
        Baseline::of_findings(reports.into_iter().flat_map(|report| &report.findings))
    }

    fn of_findings<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Baseline {
        let mut places: BTreeMap<Key, BTreeSet<Place>> = BTreeMap::new();
        for finding in findings {
            places.entry(key(finding)).or_default().insert(place(finding));
        }
        Baseline { places }
    }

    /// Of the current places those that the baseline has.
    fn known<'a>(&self, current: &'a Baseline) -> BTreeMap<&'a Key, BTreeSet<&'a Place>> {
        let mut known: BTreeMap<&Key, BTreeSet<&Place>> = BTreeMap::new();
        // Those that are left of the baseline: first every finding has those of its own kind.
        let mut left = self.places.clone();
        for formerly in [own, formerly] {
            for (key, places) in &current.places {
                let known = known.entry(key).or_default();
                for &kind in formerly(key.kind) {
                    let old = left.get_mut(&Key { kind, ..key.clone() });
                    let Some(old) = old else { continue };
                    let (same, moved): (Vec<&Place>, Vec<&Place>) = places
                        .iter()
                        .filter(|place| !known.contains(place))
                        .partition(|place| old.contains(*place));
                    for place in same.into_iter().chain(moved) {
                        if old.remove(place) || old.pop_first().is_some() {
                            known.insert(place);
                        }
                    }
                }
            }
        }
        known
    }

    /// Notes in the report which of its findings the baseline has.
    pub fn compare(&self, report: &mut Report) {
        let current = Baseline::new([&*report]);
        let known = self.known(&current);
        let is_among = |known: &BTreeMap<&Key, BTreeSet<&Place>>, finding: &Finding| {
            known
                .get(&key(finding))
                .is_some_and(|known| known.contains(&place(finding)))
        };
        let rest = report.findings.iter().filter(|finding| !is_among(&known, finding));
        let formerly: Vec<Finding> = rest.filter_map(in_helper).collect();
        let formerly = Baseline::of_findings(&formerly);
        let known_in_helpers = self.known(&formerly);
        let is_known = |finding: &Finding| {
            is_among(&known, finding) || in_helper(finding).is_some_and(|finding| is_among(&known_in_helpers, &finding))
        };
        let indices = (0..).zip(&report.findings);
        report.known = indices
            .filter(|(_, finding)| is_known(finding))
            .map(|(index, _)| index)
            .collect();
    }

    /// How many places of the baseline, of the kinds that `due` selects, are in none of the reports any more.
    pub fn gone<'a>(&self, reports: impl IntoIterator<Item = &'a Report>, due: impl Fn(Kind) -> bool) -> usize {
        let reports: Vec<&Report> = reports.into_iter().collect();
        let current = Baseline::new(reports.iter().copied());
        let findings = reports.iter().flat_map(|report| &report.findings);
        let in_helpers: Vec<Finding> = findings.filter_map(in_helper).collect();
        let in_helpers = Baseline::of_findings(&in_helpers);
        // Seen from the baseline: is there something now that stands for it?
        let mut left: BTreeMap<&Key, usize> = current.places.iter().map(|(key, places)| (key, places.len())).collect();
        for (key, places) in &in_helpers.places {
            *left.entry(key).or_default() += places.len();
        }
        let mut gone: BTreeMap<&Key, usize> = self.places.iter().map(|(key, places)| (key, places.len())).collect();
        for formerly in [own, formerly] {
            for (key, left) in &mut left {
                for &kind in formerly(key.kind) {
                    if let Some(gone) = gone.get_mut(&Key { kind, ..(*key).clone() }) {
                        let both = (*gone).min(*left);
                        *gone -= both;
                        *left -= both;
                    }
                }
            }
        }
        gone.into_iter()
            .filter(|(key, _)| due(key.kind))
            .map(|(_, places)| places)
            .sum()
    }
}

fn own(kind: Kind) -> &'static [Kind] {
    &Kind::ALL[Kind::ALL
        .iter()
        .position(|&other| other == kind)
        .map_or(0..0, |at| at..at + 1)]
}

/// The kinds that earlier versions of crashproof had for what is of this kind now.
fn formerly(kind: Kind) -> &'static [Kind] {
    match kind {
        // Data that is rewritten and never flushed was taken for volatile.
        Kind::MissingFlush => &[Kind::TransientData],
        // A lock that was persisted once was taken for data.
        Kind::TransientData => &[Kind::MissingFlush],
        Kind::TxStoreNotSnapshotted => &[Kind::MissingFlush, Kind::TransientData],
        _ => &[],
    }
}

/// A finding as earlier versions reported it: in the helper that its place calls.
fn in_helper(finding: &Finding) -> Option<Finding> {
    let plain = |frame: &Frame| Frame {
        helper: false,
        ..frame.clone()
    };
    let stack: Vec<Frame> = finding.stack.iter().map(plain).collect();
    let frame = blamed(&stack)
        .filter(|_| finding.stack.iter().any(|frame| frame.helper))?
        .clone();
    let is_moved = (&frame.function, &frame.file, frame.line) != (&finding.function, &finding.file, finding.line);
    is_moved.then(|| Finding {
        function: frame.function,
        file: frame.file,
        line: frame.line,
        column: frame.column,
        stack,
        ..finding.clone()
    })
}

fn key(finding: &Finding) -> Key {
    let module = || finding.stack.first()?.module_name().map(str::to_owned);
    Key {
        kind: finding.kind,
        function: finding.function.clone().or_else(module),
        file: finding.file.as_deref().map(|file| last_component(file).to_owned()),
        message: match finding.kind {
            // It says the same of all of them, or why it is of this kind, which an earlier version may have seen otherwise.
            Kind::MissingFlush | Kind::TransientData | Kind::TxStoreNotSnapshotted => String::new(),
            _ => normalised(&finding.message),
        },
    }
}

fn place(finding: &Finding) -> Place {
    let line = |line: Option<u32>| u64::from(line.unwrap_or(0));
    if let Some(crash) = &finding.crash {
        let stores = crash.missing.iter().chain(&crash.persisted);
        return stores.map(|store| line(store.frame.line)).collect();
    }
    match (finding.line, finding.stack.first()) {
        (None, Some(frame)) => vec![frame.address],
        (at, _) => vec![line(at)],
    }
}

fn last_component(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The message without what changes from run to run and from edit to edit: numbers, folders, how many of how many.
fn normalised(message: &str) -> String {
    let message = match message.rfind(" (") {
        Some(at) if message.ends_with(" here)") => &message[..at],
        _ => message,
    };
    let mut text = String::new();
    for word in message.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        let word = match last_component(word) {
            "byte" => "bytes",
            "are" => "is",
            word => word,
        };
        let mut digits = false;
        for c in word.chars() {
            if !c.is_ascii_digit() {
                text.push(c);
            } else if !digits {
                text.push('#');
            }
            digits = c.is_ascii_digit() || (digits && c.is_ascii_hexdigit());
        }
    }
    // Hexadecimal: the digits after 0x may begin with a letter.
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("#x") {
        plain += before;
        plain.push('#');
        rest = after.trim_start_matches(|c: char| c == '#' || c.is_ascii_hexdigit());
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: Kind, line: u32) -> Finding {
        let words = serde_json::json!({
            "kind": kind.name(), "severity": "error", "file": "/src/log.c", "line": line, "column": 1, "function": "append",
            "count": 1, "message": format!("{kind} in {line}"), "address": null, "stack": [],
        });
        serde_json::from_value(words).unwrap()
    }

    fn report(findings: &[(Kind, u32)]) -> Report {
        Report {
            findings: findings.iter().map(|&(kind, line)| finding(kind, line)).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn a_finding_that_changed_its_kind_is_known() {
        use Kind::{MissingFence, MissingFlush, TransientData, TxStoreNotSnapshotted};
        let old = report(&[(TransientData, 10), (MissingFlush, 20), (MissingFlush, 30)]);
        let baseline = Baseline::new([&old]);
        let mut new = report(&[(MissingFlush, 11), (TxStoreNotSnapshotted, 21), (MissingFlush, 30)]);
        baseline.compare(&mut new);
        assert_eq!(new.known, [0, 1, 2]);
        assert_eq!(baseline.gone([&new], |_| true), 0);
        // Each place of the baseline stands for one.
        let mut new = report(&[
            (MissingFlush, 10),
            (MissingFlush, 20),
            (MissingFlush, 30),
            (MissingFlush, 40),
        ]);
        baseline.compare(&mut new);
        assert_eq!(new.known, [0, 1, 2]);
        let mut new = report(&[(MissingFence, 10), (MissingFlush, 20)]);
        baseline.compare(&mut new);
        assert_eq!((new.known.as_slice(), baseline.gone([&new], |_| true)), (&[1][..], 2));
        let snapshotted = report(&[(TxStoreNotSnapshotted, 10)]);
        let mut new = report(&[(MissingFlush, 10)]);
        Baseline::new([&snapshotted]).compare(&mut new);
        assert!(new.known.is_empty(), "it was never called so");
    }

    /// Three callers of a flush wrapper were one place in it.
    #[test]
    fn a_finding_that_was_in_a_helper_is_known() {
        let frame = |function: &str, file: &str, line: u32, helper: bool| Frame {
            function: Some(function.into()),
            file: Some(file.into()),
            line: Some(line),
            helper,
            ..Frame::default()
        };
        let found = |callers: &[u32], helper: bool| Report {
            findings: callers
                .iter()
                .map(|&line| {
                    let stack = vec![
                        frame("flush", "/src/pm.h", 15, helper),
                        frame("put", "/src/kv.c", line, false),
                    ];
                    let at = blamed(&stack).unwrap().clone();
                    Finding {
                        function: at.function,
                        file: at.file,
                        line: at.line,
                        stack,
                        ..finding(Kind::RedundantFlush, 0)
                    }
                })
                .collect(),
            ..Report::default()
        };
        let old = found(&[10, 20], false);
        assert_eq!(old.findings[0].line, Some(15));
        let baseline = Baseline::new([&old]);
        let mut new = found(&[10, 20], true);
        assert_eq!(new.findings[1].line, Some(20));
        baseline.compare(&mut new);
        assert_eq!(
            (new.known.as_slice(), baseline.gone([&new], |_| true)),
            (&[0, 1][..], 0)
        );
        // A baseline of this version tells them apart.
        let mut more = found(&[10, 20, 30], true);
        Baseline::new([&new]).compare(&mut more);
        assert_eq!(more.known, [0, 1]);
        let mut none = Report::default();
        baseline.compare(&mut none);
        assert_eq!(baseline.gone([&none], |_| true), 1);
    }

    #[test]
    fn messages_without_numbers() {
        let same = |a: &str, b: &str| assert_eq!(normalised(a), normalised(b));
        same(
            "store of 8 bytes at offset 0x40 of pool.pm is never flushed",
            "store of 1 byte at offset 0xc1f of pool.pm is never flushed",
        );
        same(
            "flush of line 0xa0 of pool2, which is persistent already (3 of 7 flushes here)",
            "flush of line 0x0 of pool17, which is persistent already",
        );
        same(
            "crash after line 14 of `append`: line 14 had persisted; recovery exited with status 1",
            "crash after line 15 of `append`: line 9 had persisted; recovery exited with status 1",
        );
        assert_ne!(normalised("store of a"), normalised("store of b"));
    }
}
