//! What came of a repair: as JSON (docs/repair.md has the contract) and in words.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crashproof_finding::{Finding, Kind, Severity};
use serde::Serialize;

use crate::plan::{Candidate, Edit, PersistentFunction, SafeBy};
use crate::source::{Cause, Changed, LineChange};
use crate::verify::Named;

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub version: u32,
    pub result: Verdict,
    /// As it was run, in the user's tree.
    pub program: Vec<String>,
    pub findings: Vec<FindingOutcome>,
    pub fixes: Vec<FixOutcome>,
    /// What the patch puts in order.
    pub orders: Vec<OrderOutcome>,
    pub clones: Vec<PersistentFunction>,
    /// With which functions the patch flushes and fences.
    pub idiom: Option<String>,
    pub diff: String,
    /// `None`: there was no patch, or it was not to be verified.
    pub verification: Option<Verification>,
    /// The patch was written to the tree.
    pub applied: bool,
    /// Of `--out-binary`.
    pub binary: Option<Binary>,
    /// What the user should know beside.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every error is repaired, or there was none.
    Repaired,
    Left,
}

#[derive(Clone, Debug, Serialize)]
pub struct FindingOutcome {
    #[serde(flatten)]
    pub finding: Named,
    pub state: State,
    /// Why it is not repaired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would help, for a person to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Indices of the fixes that repair it.
    pub fixes: Vec<usize>,
    /// Indices of the orders that repair it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<usize>,
    /// The unpatched program had it, too, built by the user's command. If not, its absence afterwards proves nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_before: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Repaired,
    Left,
    /// A matter of performance, which is repaired only on request, or none at all.
    NotAsked,
}

#[derive(Clone, Debug, Serialize)]
pub struct FixOutcome {
    /// Indices of the findings that it repairs, or helps to.
    pub findings: Vec<usize>,
    pub edit: Edit,
    pub safe_by: SafeBy,
    pub candidates: Vec<Candidate>,
    /// Whether the diff has it; if not, only the bitcode can be repaired, and `reason` says why.
    pub in_source: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The lines of the patch that it makes.
    pub changes: Vec<ChangedLine>,
}

/// A line that is changed for a fix; some are for several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedLine {
    pub file: PathBuf,
    /// From 1: in the patched file if it is added, else in the unpatched one.
    pub line: u32,
    pub change: LineKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    Added,
    Removed,
}

impl ChangedLine {
    /// Those of a patch of the tree that are made for a cause.
    pub(crate) fn of(changes: &[Changed], cause: Cause, tree: &Path) -> Vec<ChangedLine> {
        let in_file = |changed: &Changed| {
            let file = tree.join(&changed.path);
            let line = |line: LineChange| ChangedLine {
                file: file.clone(),
                line: line.line,
                change: if line.is_added {
                    LineKind::Added
                } else {
                    LineKind::Removed
                },
                text: line.text.to_owned(),
            };
            changed.of(cause).map(line).collect::<Vec<_>>()
        };
        changes.iter().flat_map(in_file).collect()
    }
}

/// What is put in order for crash findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OrderOutcome {
    /// Indices of the findings that it repairs.
    pub findings: Vec<usize>,
    /// What is moved or inserted where, and why it is safe.
    pub words: Vec<String>,
    /// The slice of the trace, repaired.
    pub litmus: String,
    /// The lines of the patch that it makes.
    pub changes: Vec<ChangedLine>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    pub verified: bool,
    /// What was tried, the last of them with success if it is verified.
    pub attempts: Vec<Attempt>,
    /// The user's tests passed; `None` if there are none, or it did not come to them.
    pub test: Option<bool>,
    pub output: OutputComparison,
    /// Findings of the crash test that is configured, without and with the patch; `None` if there is none.
    pub crash: Option<CrashTest>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    pub how: String,
    pub passed: bool,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Flushes and fences that do nothing in this run, and were not there before.
    pub new_warnings: Vec<Named>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputComparison {
    Same,
    Differs,
    /// The unpatched program's own output is not the same in two runs.
    NotComparable,
    #[default]
    NotCompared,
}

/// The program that was made of the repaired bitcode.
#[derive(Clone, Debug, Serialize)]
pub struct Binary {
    pub verified: bool,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Findings that it repairs.
    pub findings: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CrashTest {
    pub before: Option<usize>,
    pub after: usize,
}

/// Why a repair has nothing to do with a finding; `None` if it has.
pub(crate) fn not_handled(finding: &Finding, performance: bool) -> Option<(State, &'static str)> {
    match finding.kind {
        Kind::MissingFlush | Kind::MissingFence => None,
        Kind::RedundantFlush | Kind::FlushUnmodified | Kind::RedundantFence if performance => None,
        Kind::RedundantFlush | Kind::FlushUnmodified | Kind::RedundantFence => Some((
            State::NotAsked,
            "it costs time, not data; --performance removes it where that is safe",
        )),
        Kind::CrashOrder | Kind::CrashAtomicity | Kind::CrashDurability => Some((
            State::Left,
            "what a crash test found is repaired, and the repair verified, only with the recovery: --recover COMMAND, or `recover` of the [[test]] in crashproof.toml",
        )),
        Kind::TxStoreNotSnapshotted | Kind::TxStoreOutside => Some((
            State::Left,
            "a store that its transaction cannot roll back needs a snapshot (pmemobj_tx_add_range), not a flush",
        )),
        Kind::TransientData => Some((State::NotAsked, "it is volatile by its use, so that it needs no flush")),
        Kind::RuleOrder | Kind::RuleTransaction => Some((State::Left, "rules of your own are for you to meet")),
        _ if finding.severity == Severity::Error => Some((State::Left, "it is no missing flush or fence")),
        _ => Some((State::NotAsked, "it costs time, not data")),
    }
}

impl Outcome {
    /// Nothing is repaired so far.
    pub fn new(program: Vec<String>, findings: Vec<FindingOutcome>) -> Outcome {
        Outcome {
            version: 1,
            result: Verdict::Left,
            program,
            findings,
            fixes: Vec::new(),
            orders: Vec::new(),
            clones: Vec::new(),
            idiom: None,
            diff: String::new(),
            verification: None,
            applied: false,
            binary: None,
            notes: Vec::new(),
        }
    }

    pub fn judge(&mut self) {
        let left = self.findings.iter().any(|finding| finding.state == State::Left);
        self.result = if left { Verdict::Left } else { Verdict::Repaired };
    }

    fn count(&self, state: State) -> usize {
        self.findings.iter().filter(|finding| finding.state == state).count()
    }

    /// For people, with colours. Findings of which the same is to be said (the same place, by other call paths) are one.
    pub fn in_words(&self, root: &str) -> String {
        let mut alike: Vec<(String, String, usize)> = Vec::new();
        let mut known = HashMap::new();
        for (index, finding) in self.findings.iter().enumerate() {
            let Some(heading) = heading(finding, root) else {
                continue;
            };
            let details = self.details(index, finding);
            let at = *known.entry((heading.clone(), details.clone())).or_insert_with(|| {
                alike.push((heading, details, 0));
                alike.len() - 1
            });
            alike[at].2 += 1;
        }
        let mut text = String::new();
        for (heading, details, count) in alike {
            let paths = match count {
                1 => String::new(),
                count => format!(" (by {count} call paths)"),
            };
            let _ = write!(text, "{heading}{paths}\n{details}");
        }
        self.verification_in_words(root, &mut text);
        for note in &self.notes {
            let _ = writeln!(text, "crashproof: \x1b[1;36mnote\x1b[0m: {note}");
        }
        let _ = writeln!(text, "crashproof: {}", self.summary());
        match &self.binary {
            Some(Binary {
                problem: None,
                findings,
                ..
            }) => {
                let count = self::findings(findings.len(), "repaired");
                let _ = writeln!(text, "            the binary: {count}; recorded and checked");
            }
            Some(Binary {
                problem: Some(problem), ..
            }) => {
                let _ = writeln!(text, "            the binary does not verify: {problem}");
            }
            None => {}
        }
        text
    }

    /// The lines below the heading of a finding.
    fn details(&self, index: usize, finding: &FindingOutcome) -> String {
        let mut text = String::new();
        if let Some(reason) = &finding.reason {
            let _ = writeln!(text, "  = {}", indented(reason));
        }
        if let Some(advice) = &finding.advice {
            let _ = writeln!(text, "  = help: {}", indented(advice));
        }
        // One change may repair several; it is told once.
        let orders = finding.orders.iter().filter_map(|&order| self.orders.get(order));
        for words in orders
            .filter(|order| order.findings.first() == Some(&index))
            .flat_map(|order| &order.words)
        {
            let _ = writeln!(text, "  = {}", indented(words));
        }
        if finding.seen_before == Some(false) && finding.state == State::Repaired {
            let proof = match finding.orders.is_empty() {
                true => "so that it is gone there proves nothing",
                false => "it is gone in the build that did",
            };
            let _ = writeln!(text, "  = note: your own build did not show it, {proof}");
        }
        text
    }

    /// Of `--explain`: what is put in order, on the trace.
    pub fn orders_explained(&self, root: &str) -> String {
        let mut text = String::new();
        for (number, order) in (1..).zip(&self.orders) {
            let findings: Vec<String> = order
                .findings
                .iter()
                .filter_map(|&index| Some(self.findings.get(index)?.finding.in_words(root)))
                .collect();
            let _ = writeln!(text, "\x1b[1morder {number}\x1b[0m: {}", findings.join("; "));
            for words in &order.words {
                let _ = writeln!(text, "  {}", indented(words));
            }
            for line in order.litmus.lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        text
    }

    fn verification_in_words(&self, root: &str, text: &mut String) {
        let Some(verification) = &self.verification else {
            return;
        };
        for attempt in verification.attempts.iter().filter(|attempt| !attempt.passed) {
            let problem = attempt.problem.as_deref().unwrap_or_default();
            let _ = writeln!(text, "not verified ({}): {}", attempt.how, indented(problem));
        }
        for warning in verification
            .attempts
            .last()
            .into_iter()
            .flat_map(|attempt| &attempt.new_warnings)
        {
            let _ = writeln!(
                text,
                "note: the patch adds a {} in this run: {}",
                warning.kind,
                warning.at(root)
            );
        }
    }

    fn summary(&self) -> String {
        let (repaired, left) = (self.count(State::Repaired), self.count(State::Left));
        let mut text = match (repaired, left) {
            (0, 0) => "nothing to repair".to_owned(),
            (0, left) => format!("nothing repaired, {}", findings(left, "left")),
            (repaired, 0) => findings(repaired, "repaired"),
            (repaired, left) => format!("{}, {left} left", findings(repaired, "repaired")),
        };
        let not_asked = |transient: bool| {
            let findings = self.findings.iter().filter(|finding| finding.state == State::NotAsked);
            findings
                .filter(|finding| (finding.finding.kind == Kind::TransientData) == transient)
                .count()
        };
        let mut others = Vec::new();
        match not_asked(false) {
            0 => {}
            of_performance => others.push(format!("{of_performance} of performance not looked at")),
        }
        match not_asked(true) {
            0 => {}
            volatile => others.push(format!("{volatile} of volatile data, which needs no flush")),
        }
        if !others.is_empty() {
            let _ = write!(text, " ({})", others.join(", "));
        }
        match &self.verification {
            Some(verification) if verification.verified => {
                let tested = if verification.test == Some(true) {
                    "tested, "
                } else {
                    ""
                };
                let crashed = match verification.crash {
                    Some(_) => "recorded, checked and crashed again",
                    None => "recorded and checked again",
                };
                let output = match verification.output {
                    OutputComparison::NotComparable => "its output differs from run to run and was not compared",
                    _ => "its output is the same",
                };
                let _ = write!(text, "; verified: built by your command, {tested}{crashed}; {output}");
            }
            Some(_) => text.push_str("; not verified, nothing was changed"),
            None if !self.diff.is_empty() => text.push_str("; not verified"),
            None => {}
        }
        if self.applied {
            text.push_str("; written to the source");
        }
        text
    }
}

/// `repaired[missing-flush]: append at log.c:31`; nothing of what was not asked for.
fn heading(finding: &FindingOutcome, root: &str) -> Option<String> {
    let (color, word) = match finding.state {
        State::Repaired => (32, "repaired"),
        State::Left => (31, "left"),
        State::NotAsked => return None,
    };
    let Named { kind, .. } = &finding.finding;
    Some(format!(
        "\x1b[1;{color}m{word}[{kind}]\x1b[0m: {}",
        finding.finding.at(root)
    ))
}

fn findings(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 finding {what}"),
        count => format!("{count} findings {what}"),
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

impl Named {
    /// `missing-flush, append at log.c:31`.
    pub fn in_words(&self, root: &str) -> String {
        format!("{}, {}", self.kind, self.at(root))
    }

    /// `append at log.c:31`; paths are given from `root`.
    pub fn at(&self, root: &str) -> String {
        let mut text = String::new();
        if let Some(function) = &self.function {
            let _ = write!(text, "{function} at ");
        }
        match (&self.file, self.line) {
            (Some(file), line) => {
                let shorter = file.strip_prefix(root).filter(|_| !root.is_empty());
                let shorter = shorter.map(|rest| rest.trim_start_matches('/'));
                text.push_str(shorter.filter(|rest| !rest.is_empty()).unwrap_or(file));
                if let Some(line) = line {
                    let _ = write!(text, ":{line}");
                }
            }
            (None, _) => text.push_str("an unknown place"),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(line: u32, reason: &str) -> FindingOutcome {
        FindingOutcome {
            finding: Named {
                kind: Kind::MissingFlush,
                file: Some("/src/log.c".to_owned()),
                line: Some(line),
                function: Some("append".to_owned()),
            },
            state: State::Left,
            reason: Some(reason.to_owned()),
            advice: None,
            fixes: Vec::new(),
            orders: Vec::new(),
            seen_before: None,
        }
    }

    #[test]
    fn volatile_data_is_not_called_a_matter_of_performance() {
        let not_asked = |kind| {
            let mut finding = left(31, "so");
            finding.state = State::NotAsked;
            finding.finding.kind = kind;
            finding
        };
        let outcome = Outcome::new(
            Vec::new(),
            vec![
                not_asked(Kind::TransientData),
                not_asked(Kind::RedundantFlush),
                not_asked(Kind::RedundantFence),
            ],
        );
        assert_eq!(
            outcome.summary(),
            "nothing to repair (2 of performance not looked at, 1 of volatile data, which needs no flush)"
        );
    }

    #[test]
    fn what_is_said_alike_is_said_once() {
        let outcome = Outcome::new(
            Vec::new(),
            vec![left(31, "so"), left(31, "so"), left(31, "otherwise"), left(32, "so")],
        );
        let words = outcome
            .in_words("/src")
            .replace("\x1b[1;31m", "")
            .replace("\x1b[0m", "");
        let expected = "left[missing-flush]: append at log.c:31 (by 2 call paths)\n  = so\n\
                        left[missing-flush]: append at log.c:31\n  = otherwise\n\
                        left[missing-flush]: append at log.c:32\n  = so\n\
                        crashproof: nothing repaired, 4 findings left\n";
        assert_eq!(words, expected);
    }
}
