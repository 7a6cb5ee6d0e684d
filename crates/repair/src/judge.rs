//! From what was verified to what became of each finding.

use crashproof_finding::Finding;

use crate::flow::Repair;
use crate::ladder::Verified;
use crate::outcome::{ChangedLine, FindingOutcome, FixOutcome, Outcome, State, Verification, not_handled};
use crate::plan::Plan;
use crate::rounds::Ordered;
use crate::source::{self, Cause, Changed};
use crate::verify::{Comparison, Named};

/// A finding that the user's build has and the build for repair has not.
const ONLY_THERE: &str =
    "only the program as your command builds it has this; build it without optimisation to have it repaired";
const STAYS: &str = "the fix did not make it go away in the program as your command builds it";

impl Repair<'_> {
    pub fn empty_outcome(&self) -> Outcome {
        let findings = self.findings.iter().map(|finding| {
            let (state, reason) = match not_handled(finding, self.arguments.performance) {
                Some((state, reason)) => (state, Some(reason.to_owned())),
                None => (State::Left, None),
            };
            FindingOutcome {
                state,
                reason,
                ..FindingOutcome::of(&self.site.copy.finding_to_tree(finding))
            }
        });
        let words = self.site.copy.words(&self.site.commands.program);
        let program = words.iter().map(|word| self.site.copy.to_tree(&word.to_string_lossy()));
        Outcome {
            notes: self.how_it_ended().into_iter().collect(),
            ..Outcome::new(program.collect(), findings.collect())
        }
    }

    /// What a failed run did may not be what its author wants repaired.
    fn how_it_ended(&self) -> Option<String> {
        let ended = match (self.run.report.program.signal, self.run.output.status) {
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, Some(0)) => return None,
            (None, status) => format!("exited with status {}", status.unwrap_or_default()),
        };
        Some(format!(
            "the program {ended}: only what it did until then was looked at, and the patched program has to end the same way"
        ))
    }

    /// Fills in what became of each finding; returns the whole patch.
    pub fn judge(&self, outcome: &mut Outcome, verified: &Verified, ordered: &Ordered) -> Vec<Changed> {
        // The last trial is that of the patch that is delivered.
        let changes = match ordered.orders.is_empty() {
            true => verified.design.changes.clone(),
            false => ordered.changes.clone(),
        };
        let plan = self.site.copy.plan_to_tree(&verified.design.plan);
        self.judge_durability(outcome, &plan, verified, ordered);
        self.judge_crashes(outcome, verified, ordered);
        let (checks, crashes) = last_comparisons(verified, ordered);
        for finding in checks.remaining.iter().chain(&crashes.remaining) {
            outcome.findings.push(FindingOutcome {
                reason: Some(ONLY_THERE.to_owned()),
                seen_before: Some(true),
                ..FindingOutcome::of(finding)
            });
        }
        let tree = self.site.workspace.tree();
        for (index, fix) in outcome.fixes.iter_mut().enumerate() {
            fix.changes = ChangedLine::of(&changes, Cause::Fix(index), tree);
        }
        for (index, order) in outcome.orders.iter_mut().enumerate() {
            order.changes = ChangedLine::of(&changes, Cause::Order(index), tree);
        }
        outcome.clones = plan.clones;
        outcome.idiom = verified.design.idiom.clone();
        outcome.diff = source::diff(&changes);
        outcome.verification = verification(verified, ordered);
        outcome.judge();
        changes
    }

    fn judge_durability(&self, outcome: &mut Outcome, plan: &Plan, verified: &Verified, ordered: &Ordered) {
        let Verified { design, failed, .. } = verified;
        let (checks, _) = last_comparisons(verified, ordered);
        let copy = &self.site.copy;
        let refused = |fix: &usize| {
            let refusal = design.impossible.get(fix)?.clone();
            Some(refusal.with_path(|path| copy.path_to_tree(path)).to_string())
        };
        for (index, fix) in plan.fixes.iter().enumerate() {
            let reason = refused(&index);
            outcome.fixes.push(FixOutcome {
                findings: fix.findings.clone(),
                edit: fix.edit.clone(),
                safe_by: fix.safe_by,
                candidates: fix.candidates.clone(),
                in_source: reason.is_none(),
                reason,
                changes: Vec::new(),
            });
            for &finding in &fix.findings {
                if let Some(finding) = outcome.findings.get_mut(finding) {
                    finding.fixes.push(index);
                }
            }
        }
        for (index, finding) in outcome.findings.iter_mut().enumerate() {
            if finding.reason.is_some() {
                continue;
            }
            let left = plan.left.iter().find(|left| left.finding == index);
            let refused = finding.fixes.iter().find_map(refused);
            let reason = if let Some(reason) = failed.get(&index) {
                Some(reason.clone())
            } else if let Some(left) = left {
                Some(left.reason.clone())
            } else if let Some(reason) = refused {
                Some(format!(
                    "the source has no good place for the fix: {reason}; --out-binary makes a program that has it"
                ))
            } else if checks.still.contains(&index) {
                Some(STAYS.to_owned())
            } else if finding.fixes.is_empty() {
                Some("no fix was planned for it".to_owned())
            } else {
                None
            };
            finding.state = if reason.is_none() { State::Repaired } else { State::Left };
            finding.reason = reason;
            if verified.verification.is_some() {
                finding.seen_before = Some(checks.seen_before.contains(&index));
            }
        }
    }

    fn judge_crashes(&self, outcome: &mut Outcome, verified: &Verified, ordered: &Ordered) {
        let (_, crashes) = last_comparisons(verified, ordered);
        let has_patch = !verified.design.changes.is_empty() || !ordered.orders.is_empty();
        let is_tried = ordered.trial.is_some() || verified.verification.is_some();
        let fixes = |index: usize| ordered.orders.iter().position(|order| order.findings.contains(&index));
        // Where a finding of the rounds is in the outcome.
        let mut places = Vec::new();
        for (index, finding) in ordered.findings.iter().enumerate() {
            let fix = fixes(index);
            let seen = crashes.seen_before.contains(&index);
            // What only a patch that was dropped uncovered is no finding of this program.
            if index >= self.crashes.len() && (fix.is_none() && !seen || finding.line.is_none()) {
                places.push(None);
                continue;
            }
            let gone = !crashes.still.contains(&index);
            let repaired = has_patch && gone && (fix.is_some() || is_tried && seen);
            let left = ordered.left.get(&index).filter(|_| !repaired);
            let reason = match left {
                _ if repaired => None,
                Some(left) => Some(left.reason.clone()),
                None if fix.is_some() => Some(STAYS.to_owned()),
                None => Some("no order was found that mends it".to_owned()),
            };
            places.push(Some(outcome.findings.len()));
            outcome.findings.push(FindingOutcome {
                state: if repaired { State::Repaired } else { State::Left },
                reason,
                advice: left.and_then(|left| left.advice.clone()),
                orders: fix.into_iter().filter(|_| repaired).collect(),
                seen_before: is_tried.then_some(seen),
                ..FindingOutcome::of(finding)
            });
        }
        outcome.orders = ordered.orders.clone();
        for order in &mut outcome.orders {
            let placed = order
                .findings
                .iter()
                .filter_map(|&index| places.get(index).copied().flatten());
            order.findings = placed.collect();
        }
    }
}

impl FindingOutcome {
    /// Left, so far.
    fn of(finding: &Finding) -> FindingOutcome {
        FindingOutcome {
            finding: Named::of(finding),
            state: State::Left,
            reason: None,
            advice: None,
            fixes: Vec::new(),
            orders: Vec::new(),
            seen_before: None,
        }
    }
}

/// What the patch that is delivered left: of the check, and of the crash test.
fn last_comparisons<'a>(verified: &'a Verified, ordered: &'a Ordered) -> (&'a Comparison, &'a Comparison) {
    match &ordered.trial {
        Some(trial) => (&trial.comparison, &trial.crashes),
        None => (&verified.comparison, &verified.crashes),
    }
}

fn verification(verified: &Verified, ordered: &Ordered) -> Option<Verification> {
    let before = verified.verification.clone();
    if before.is_none() && ordered.attempts.is_empty() {
        return None;
    }
    let mut verification = before.unwrap_or_default();
    verification.attempts.extend(ordered.attempts.iter().cloned());
    if let Some(trial) = &ordered.trial {
        verification.verified = true;
        verification.test = trial.test;
        verification.output = trial.output;
        verification.crash = trial.crash;
    }
    // The one that counts is the last.
    if verification.verified
        && let Some(at) = verification.attempts.iter().rposition(|attempt| attempt.passed)
    {
        let attempt = verification.attempts.remove(at);
        verification.attempts.push(attempt);
    }
    Some(verification)
}
