//! What is tried when a patch does not verify: less and less clever plans, then without the fix that fails.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_finding::Finding;

use crate::design::{Design, Designer};
use crate::outcome::{Attempt, Verification};
use crate::plan::PlanOptions;
use crate::source::{self, Cause};
use crate::trial::{Trial, TrialError, Trials};
use crate::verify::{Comparison, Named};

/// With more fixes than this, leaving out one at a time takes too long.
const SINGLY: usize = 8;

/// A design, and what its verification showed.
pub struct Verified {
    pub design: Design,
    /// Findings that are left because nothing that was tried repairs them, and why.
    pub failed: BTreeMap<usize, String>,
    pub comparison: Comparison,
    /// Of the crash findings.
    pub crashes: Comparison,
    /// All is well but a crash test, which what comes after may mend.
    pub crash_problem: Option<String>,
    pub verification: Option<Verification>,
}

impl Verified {
    pub fn not_done(design: Design) -> Verified {
        Verified {
            design,
            failed: BTreeMap::new(),
            comparison: Comparison::default(),
            crashes: Comparison::default(),
            crash_problem: None,
            verification: None,
        }
    }
}

/// Something to try.
struct Rung {
    how: String,
    options: PlanOptions,
    without: BTreeMap<usize, String>,
}

struct Ladder<'a, 'b, 't> {
    designer: &'a Designer<'b>,
    trials: &'a mut Trials<'t>,
    findings: &'a [Finding],
    crashes: &'a [Finding],
    attempts: Vec<Attempt>,
    /// The diffs.
    tried: BTreeSet<String>,
}

/// What trying a rung came to.
struct Tried {
    design: Design,
    trial: Trial,
    without: BTreeMap<usize, String>,
    /// Its index in the attempts.
    attempt: usize,
}

impl Tried {
    /// Nothing wrong, and nothing that costs time either.
    fn is_perfect(&self) -> bool {
        self.is_good() && self.trial.comparison.new_warnings.is_empty()
    }

    fn is_good(&self) -> bool {
        self.is_good_but_for_crashes() && self.trial.crash_problem.is_none()
    }

    fn is_good_but_for_crashes(&self) -> bool {
        self.trial.is_harmless() && self.trial.comparison.still.is_empty()
    }
}

/// What is verified.
pub(crate) struct Subject<'a> {
    pub options: &'a PlanOptions,
    /// Of the check and of a crash test; they name the files of the user's tree.
    pub findings: &'a [Finding],
    pub crashes: &'a [Finding],
    /// What a crash test says against a patch may be mended by another one on top.
    pub orders_follow: bool,
}

/// Verifies `first`, and what comes after it if it fails.
pub(crate) fn climb(
    designer: &Designer,
    first: Design,
    subject: &Subject,
    trials: &mut Trials,
) -> Result<Verified, TrialError> {
    let mut ladder = Ladder {
        designer,
        trials,
        findings: subject.findings,
        crashes: subject.crashes,
        attempts: Vec::new(),
        tried: BTreeSet::new(),
    };
    let options = subject.options;
    let asked = Rung {
        how: "as planned".to_owned(),
        options: options.clone(),
        without: BTreeMap::new(),
    };
    let mut tried: Vec<Tried> = Vec::new();
    let Some(attempt) = ladder.try_design(first, &asked)? else {
        return Ok(Verified::not_done(Design::default()));
    };
    let may_be_mended = subject.orders_follow && attempt.trial.crash.is_some();
    if attempt.is_perfect() || (may_be_mended && attempt.is_good_but_for_crashes()) {
        return Ok(ladder.conclude(attempt));
    }
    let spares = attempt.is_good().then(|| sparing(options)).flatten();
    tried.push(attempt);
    for rung in spares.into_iter().chain(simpler(options)) {
        if let Some(attempt) = ladder.try_rung(&rung)? {
            if attempt.is_perfect() {
                return Ok(ladder.conclude(attempt));
            }
            tried.push(attempt);
        }
    }
    let good = (0..tried.len()).filter(|&at| tried[at].is_good());
    if let Some(at) = good.min_by_key(|&at| tried[at].trial.comparison.new_warnings.len()) {
        return Ok(ladder.conclude(tried.swap_remove(at)));
    }
    for rung in without_what_fails(&tried, options, subject.findings) {
        if let Some(attempt) = ladder.try_rung(&rung)?.filter(Tried::is_good) {
            return Ok(ladder.conclude(attempt));
        }
    }
    Ok(ladder.give_up(tried))
}

/// All is well, but a flush of the program has become redundant.
fn sparing(options: &PlanOptions) -> Option<Rung> {
    (!options.intra_only).then(|| Rung {
        how: "flushed for those callers alone that do not flush".to_owned(),
        options: PlanOptions {
            spare_flushed: true,
            ..options.clone()
        },
        without: BTreeMap::new(),
    })
}

fn simpler(options: &PlanOptions) -> Vec<Rung> {
    let rung = |how: &str, options: PlanOptions| Rung {
        how: how.to_owned(),
        options,
        without: BTreeMap::new(),
    };
    let mut rungs = Vec::new();
    let one_by_one = PlanOptions {
        coalesce: false,
        ..options.clone()
    };
    if options.coalesce {
        rungs.push(rung("each store flushed by itself", one_by_one.clone()));
    }
    if !options.intra_only {
        let intra_only = PlanOptions {
            intra_only: true,
            ..one_by_one
        };
        rungs.push(rung("without persistent variants of functions", intra_only));
    }
    rungs
}

/// Where it is known which findings stay, without those; else without one fix at a time.
fn without_what_fails(tried: &[Tried], options: &PlanOptions, findings: &[Finding]) -> Vec<Rung> {
    let best = tried
        .iter()
        .filter(|tried| tried.trial.is_harmless() && tried.trial.crash_problem.is_none())
        .min_by_key(|tried| tried.trial.comparison.still.len());
    if let Some(best) = best {
        let reason = "every fix that was tried leaves it there, in the program as your command builds it";
        return vec![Rung {
            how: "without the findings that stay".to_owned(),
            options: options.clone(),
            without: best
                .trial
                .comparison
                .still
                .iter()
                .map(|&index| (index, reason.to_owned()))
                .collect(),
        }];
    }
    let Some(first) = tried.first() else {
        return Vec::new();
    };
    let fixes = &first.design.plan.fixes;
    if fixes.len() < 2 {
        return Vec::new();
    }
    // What is new on lines that a fix has changed is most likely brought by that fix.
    let of_check = first.trial.comparison.new.iter();
    let new = of_check.chain(&first.trial.crashes.new).flat_map(|new| &new.causes);
    let suspects: BTreeSet<usize> = new
        .filter_map(|cause| match cause {
            Cause::Fix(index) => Some(*index),
            Cause::Order(_) => None,
        })
        .collect();
    let others = (0..fixes.len()).filter(|index| fixes.len() <= SINGLY && !suspects.contains(index));
    let singly = suspects.iter().copied().chain(others).take(SINGLY);
    let problem = first.problem(findings);
    let without = |findings: &[usize]| {
        let reason = format!("with its fix the patch does not verify: {problem}");
        findings.iter().map(|&index| (index, reason.clone())).collect()
    };
    singly
        .map(|index| Rung {
            how: format!("without fix {}", index + 1),
            options: options.clone(),
            without: without(&fixes[index].findings),
        })
        .collect()
}

impl Tried {
    /// `findings` are those to be repaired.
    fn problem(&self, findings: &[Finding]) -> String {
        let Comparison { still, new, .. } = &self.trial.comparison;
        if let Some(problem) = &self.trial.problem {
            return problem.clone();
        }
        if let Some(new) = new.first() {
            let repaired = |cause: Cause| {
                let Cause::Fix(index) = cause else { return None };
                let finding = *self.design.plan.fixes.get(index)?.findings.first()?;
                findings.get(finding).map(Named::of)
            };
            return format!("it brings something new: {}", new.in_words("", repaired));
        }
        match still.len() {
            0 => self.trial.crash_problem.clone().unwrap_or_default(),
            1 => "1 finding is still there".to_owned(),
            count => format!("{count} findings are still there"),
        }
    }
}

impl Ladder<'_, '_, '_> {
    fn try_rung(&mut self, rung: &Rung) -> Result<Option<Tried>, TrialError> {
        let without: BTreeSet<usize> = rung.without.keys().copied().collect();
        let design = self.designer.design(&rung.options, &without)?;
        self.try_design(design, rung)
    }

    /// `None` if there is nothing to try, or it was tried before.
    fn try_design(&mut self, design: Design, rung: &Rung) -> Result<Option<Tried>, TrialError> {
        if design.changes.is_empty() || !self.tried.insert(source::diff(&design.changes)) {
            return Ok(None);
        }
        let mut trial = self.trials.try_patch(&design.changes, self.findings, self.crashes)?;
        // What has no fix is expected to stay.
        let fixed: BTreeSet<usize> = design.fixed().collect();
        trial.comparison.still.retain(|index| fixed.contains(index));
        let tried = Tried {
            design,
            trial,
            without: rung.without.clone(),
            attempt: self.attempts.len(),
        };
        self.attempts.push(Attempt {
            how: rung.how.clone(),
            passed: tried.is_good(),
            problem: Some(tried.problem(self.findings)).filter(|problem| !problem.is_empty()),
            new_warnings: tried.trial.comparison.new_warnings.clone(),
        });
        Ok(Some(tried))
    }

    fn verification(&self, verified: bool, trial: &Trial) -> Verification {
        Verification {
            verified,
            attempts: self.attempts.clone(),
            test: trial.test,
            output: trial.output,
            crash: trial.crash,
        }
    }

    fn conclude(mut self, tried: Tried) -> Verified {
        let Tried {
            design,
            trial,
            without,
            attempt,
        } = tried;
        // It need not be the last that was tried.
        if attempt < self.attempts.len() {
            let attempt = self.attempts.remove(attempt);
            self.attempts.push(attempt);
        }
        Verified {
            verification: Some(self.verification(trial.crash_problem.is_none(), &trial)),
            design,
            crashes: trial.crashes,
            crash_problem: trial.crash_problem,
            failed: without,
            comparison: trial.comparison,
        }
    }

    /// Nothing is changed.
    fn give_up(self, tried: Vec<Tried>) -> Verified {
        let Some(first) = tried.into_iter().next() else {
            return Verified::not_done(Design::default());
        };
        let reason = format!("the patch does not verify: {}", first.problem(self.findings));
        let failed = first.design.fixed().map(|index| (index, reason.clone())).collect();
        Verified {
            verification: Some(self.verification(false, &first.trial)),
            failed,
            crashes: Comparison::default(),
            crash_problem: None,
            comparison: Comparison {
                remaining: Vec::new(),
                ..first.trial.comparison
            },
            design: Design {
                changes: Vec::new(),
                ..first.design
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Edit, Fix, Place, Plan, SafeBy};
    use crate::verify::New;
    use crashproof_finding::Kind;

    #[test]
    fn the_fix_that_changed_the_line_is_left_out_first() {
        let fix = |finding| Fix {
            findings: vec![finding],
            edit: Edit::Fence {
                after: Place {
                    function: "f".into(),
                    instruction: 0,
                    position: None,
                },
            },
            safe_by: SafeBy::FenceInsertion,
            candidates: Vec::new(),
        };
        let rungs = |fixes: usize, suspect: Option<usize>| -> Vec<String> {
            let new = New {
                finding: Named {
                    kind: Kind::MissingFlush,
                    file: None,
                    line: None,
                    function: None,
                },
                causes: suspect.into_iter().map(Cause::Fix).collect(),
            };
            let tried = Tried {
                design: Design {
                    plan: Plan {
                        fixes: (0..fixes).map(fix).collect(),
                        ..Plan::default()
                    },
                    ..Design::default()
                },
                trial: Trial {
                    comparison: Comparison {
                        new: vec![new],
                        ..Comparison::default()
                    },
                    problem: None,
                    ..Trial::failed(String::new(), None)
                },
                without: BTreeMap::new(),
                attempt: 0,
            };
            let rungs = without_what_fails(&[tried], &PlanOptions::default(), &[]);
            rungs.into_iter().map(|rung| rung.how).collect()
        };
        assert_eq!(rungs(3, None), ["without fix 1", "without fix 2", "without fix 3"]);
        assert_eq!(rungs(3, Some(2)), ["without fix 3", "without fix 1", "without fix 2"]);
        assert_eq!(rungs(20, Some(4)), ["without fix 5"]);
        assert!(rungs(20, None).is_empty());
    }
}
