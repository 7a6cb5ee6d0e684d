//! The loop closed: crash, put in order, patch, build, crash again, until nothing fails or a reason is known why it goes on failing.
//!
//! A round takes the program as it is patched so far, built for repair, and what a crash test finds in it; [`order::patch`] makes a patch on top, and a
//! trial shows what the user's own build of it does. A round may uncover what a failure before it had hidden, so what a trial finds anew is not held
//! against the patch until the rounds end: then only what brought nothing new counts, and all after it is dropped.

use std::collections::{BTreeMap, BTreeSet};

use crashproof_finding::Finding;
use crashproof_llvm::Context;

use crate::commands::{BuildSite, CommandError, Compiler, Run};
use crate::flow::RepairError;
use crate::lines::PatchedLines;
use crate::loaded;
use crate::order::{self, OrderPatch, OrderRequest};
use crate::outcome::{Attempt, OrderOutcome};
use crate::recovery::{Crashed, Recovery};
use crate::source::{self, Cause, Changed};
use crate::terminal::step;
use crate::trial::{Trial, TrialError, Trials, write_changes};
use crate::verify;

/// What a patch uncovers is patched so often.
const ROUNDS: usize = 4;
/// With more fixes than this, leaving out one at a time takes too long.
const SINGLY: usize = 6;

/// What the rounds need.
pub(crate) struct Rounds<'a, 't> {
    /// The build for repair, unpatched.
    pub site: &'a BuildSite<'a>,
    pub recovery: &'a Recovery,
    /// What was found there.
    pub crashed: &'a Crashed,
    /// The findings that are asked for, with the names of that copy.
    pub wanted: &'a [Finding],
    /// Findings of the check that are repaired already, with the names of the tree.
    pub durability: &'a [Finding],
    /// Their indices: the patch that the rounds start from has fixes for them.
    pub fixed: BTreeSet<usize>,
    /// `None`: nothing is to be verified.
    pub trials: Option<&'a mut Trials<'t>>,
}

/// Why a finding is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub reason: String,
    pub advice: Option<String>,
}

/// What came of the rounds.
#[derive(Default)]
pub struct Ordered {
    /// With the names and lines of the unpatched tree: the wanted ones first, then what a patch uncovered.
    pub findings: Vec<Finding>,
    pub left: BTreeMap<usize, Left>,
    pub orders: Vec<OrderOutcome>,
    /// The whole patch, with that which the rounds started from.
    pub changes: Vec<Changed>,
    pub attempts: Vec<Attempt>,
    /// Of the patch; `None` if nothing was added, or nothing was to be verified.
    pub trial: Option<Trial>,
    /// Findings whose absence in the user's build was confirmed in the build for repair, because that build alone had them.
    pub confirmed: BTreeSet<usize>,
}

/// A patch on top of the start.
#[derive(Clone, Default)]
struct Patched {
    changes: Vec<Changed>,
    orders: Vec<OrderOutcome>,
}

impl Patched {
    fn fixed(&self) -> BTreeSet<usize> {
        self.orders
            .iter()
            .flat_map(|order| order.findings.iter().copied())
            .collect()
    }
}

/// The program of a round, built for repair.
struct Built<'w> {
    site: BuildSite<'w>,
    crashed: Crashed,
}

/// What trying a patch came to.
struct Tried {
    patched: Patched,
    trial: Trial,
    /// Crash findings to be repaired by it that are still there.
    still: BTreeSet<usize>,
}

impl Tried {
    /// Nothing that another round could not mend.
    fn is_harmless(&self) -> bool {
        self.trial.is_harmless() && self.trial.comparison.still.is_empty()
    }

    fn is_good(&self) -> bool {
        self.is_harmless() && self.trial.crash_problem.is_none() && self.still.is_empty()
    }

    fn problem(&self, findings: &[Finding]) -> String {
        let trial = &self.trial;
        let still = self.still.first().and_then(|&index| findings.get(index));
        if let Some(problem) = trial.problem.clone().or_else(|| trial.crash_problem.clone()) {
            problem
        } else if let Some(new) = trial.comparison.new.first() {
            let repaired = |cause: Cause| {
                let Cause::Order(index) = cause else { return None };
                let finding = findings.get(*self.patched.orders.get(index)?.findings.first()?)?;
                Some(verify::Named::of(finding))
            };
            format!("it brings something new: {}", new.in_words("", repaired))
        } else if !trial.comparison.still.is_empty() {
            "what had been repaired by a flush or fence is there again".to_owned()
        } else if let Some(still) = still {
            format!("recovery still fails at {}", verify::Named::of(still).at(""))
        } else {
            String::new()
        }
    }
}

impl<'a> Rounds<'a, '_> {
    /// What came of it if nothing is left to put in order.
    pub(crate) fn nothing(&self, start: &[Changed]) -> Ordered {
        Ordered {
            findings: self.site.copy.findings_to_tree(self.wanted),
            changes: start.to_vec(),
            ..Ordered::default()
        }
    }

    /// On top of `start`, which is verified or to be so with what comes.
    pub(crate) fn run(mut self, start: &[Changed]) -> Result<Ordered, RepairError> {
        let mut ordered = self.nothing(start);
        let mut current = Patched {
            changes: start.to_vec(),
            orders: Vec::new(),
        };
        let mut retry: Option<Patched> = None;
        for number in 1..=ROUNDS {
            let Some(next) = self.round(number, &current, &BTreeSet::new(), &mut ordered)? else {
                break;
            };
            let Some(tried) = self.try_it(next.clone(), format!("orders, round {number}"), &mut ordered)? else {
                // Not to be verified: there is nothing that another round could start from.
                (ordered.changes, ordered.orders) = (next.changes, next.orders);
                return Ok(ordered);
            };
            if tried.is_good() && self.confirm(number, &tried, &mut ordered)? {
                let done = tried.trial.crash.is_none_or(|crash| crash.after == 0);
                current = tried.patched.clone();
                self.accept(tried, &mut ordered);
                retry = None;
                if done {
                    break;
                }
            } else if tried.is_harmless() {
                retry = retry.or(Some(current));
                current = tried.patched;
            } else {
                retry = retry.or(Some(current.clone()));
                break;
            }
        }
        if let Some(base) = retry {
            self.without_one(&base, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn accept(&self, tried: Tried, ordered: &mut Ordered) {
        for index in tried.patched.fixed() {
            ordered.left.remove(&index);
        }
        ordered.changes = tried.patched.changes;
        ordered.orders = tried.patched.orders;
        ordered.trial = Some(tried.trial);
    }

    /// The patch of a round without one of its fixes at a time.
    fn without_one(&mut self, base: &Patched, ordered: &mut Ordered) -> Result<(), RepairError> {
        let problem = ordered
            .attempts
            .iter()
            .rev()
            .find_map(|attempt| attempt.problem.clone())
            .unwrap_or_default();
        let Some(all) = self.round(ROUNDS + 1, base, &BTreeSet::new(), ordered)? else {
            return Ok(());
        };
        let added = &all.orders[base.orders.len()..];
        let mut tried_all: BTreeSet<usize> = BTreeSet::new();
        for order in added {
            tried_all.extend(&order.findings);
        }
        if (2..=SINGLY).contains(&added.len()) {
            for (index, order) in added.iter().enumerate() {
                let without: BTreeSet<usize> = order.findings.iter().copied().collect();
                let Some(next) = self.round(ROUNDS + 2 + index, base, &without, ordered)? else {
                    continue;
                };
                let how = format!("orders, without fix {}", index + 1);
                let Some(tried) = self.try_it(next, how, ordered)? else {
                    continue;
                };
                if tried.is_good() && self.confirm(ROUNDS + 2 + index, &tried, ordered)? {
                    for &finding in &without {
                        let reason = format!("with its fix the patch does not verify: {problem}");
                        ordered.left.insert(finding, Left { reason, advice: None });
                    }
                    self.accept(tried, ordered);
                    return Ok(());
                }
            }
        }
        for finding in tried_all {
            let reason = format!("the patch that was made for it does not verify: {problem}");
            ordered.left.insert(finding, Left { reason, advice: None });
        }
        Ok(())
    }

    /// Crashes the program with `base`, and patches what can be put in order. `None`: there is nothing more to do.
    fn round(
        &mut self,
        number: usize,
        base: &Patched,
        without: &BTreeSet<usize>,
        ordered: &mut Ordered,
    ) -> Result<Option<Patched>, RepairError> {
        let built = match base.changes.is_empty() {
            true => None,
            false => match self.build(&format!("repair-{number}"), &base.changes)? {
                Ok(built) => Some(built),
                Err(problem) => {
                    ordered.attempts.push(Attempt {
                        how: format!("orders, round {number}"),
                        passed: false,
                        problem: Some(problem),
                        new_warnings: Vec::new(),
                    });
                    return Ok(None);
                }
            },
        };
        let (site, trace, found) = match &built {
            Some(built) => (
                &built.site,
                &built.crashed.trace,
                built.crashed.report.findings.as_slice(),
            ),
            None => (self.site, &self.crashed.trace, self.wanted),
        };
        let tree = self.site.workspace.tree();
        let lines = PatchedLines {
            changes: &base.changes,
            tree,
        };
        let mut indices = Vec::new();
        let mut findings = Vec::new();
        for (at, finding) in found.iter().enumerate() {
            let index = match built {
                Some(_) => identify(finding, site, lines, ordered),
                None => at,
            };
            if !without.contains(&index) {
                indices.push(index);
                findings.push(finding.clone());
            }
        }
        if findings.is_empty() {
            return Ok(None);
        }
        let doing = step("reading the trace that was crashed");
        let (reader, observed) = loaded::read_trace(trace)?;
        let context = Context::create();
        let program = loaded::load(site, &reader, &context)?;
        drop(doing);
        let doing = step("putting in order");
        let OrderPatch { files, fixes, left } = order::patch(&OrderRequest {
            findings: &findings,
            program: &program,
            trace,
            observed: &observed,
            tree: site.copy.root(),
        })
        .map_err(TrialError::from)?;
        drop(doing);
        let in_tree = |text: &str| site.copy.to_tree(text);
        for left in left {
            let Some(&index) = indices.get(left.finding) else {
                continue;
            };
            ordered.left.insert(
                index,
                Left {
                    reason: in_tree(&left.reason),
                    advice: left.advice.as_deref().map(in_tree),
                },
            );
        }
        if files.is_empty() {
            return Ok(None);
        }
        let on_top = (!base.changes.is_empty()).then_some("on top of the other changes, lines as they are then:");
        let mut orders = base.orders.clone();
        orders.extend(fixes.iter().map(|fix| {
            OrderOutcome {
                findings: fix.findings.iter().filter_map(|&at| indices.get(at).copied()).collect(),
                words: on_top
                    .iter()
                    .copied()
                    .chain(fix.words.iter().map(String::as_str))
                    .map(in_tree)
                    .collect(),
                litmus: fix.litmus.clone(),
                changes: Vec::new(),
            }
        }));
        let files: Vec<Changed> = files
            .into_iter()
            .map(|file| file.with_orders_from(base.orders.len()))
            .collect();
        Ok(Some(Patched {
            changes: source::combine(&base.changes, &files),
            orders,
        }))
    }

    /// Builds for repair, records and crashes the program with these changes. The inner error is the patch's fault.
    fn build(&self, name: &str, changes: &[Changed]) -> Result<Result<Built<'a>, String>, RepairError> {
        let workspace = self.site.workspace;
        let _doing = step("building and crashing the patched program by crashproof cc");
        let site = BuildSite {
            workspace,
            commands: self.site.commands.clone(),
            copy: workspace.copy(name)?,
            compiler: Compiler::Repair,
            name: name.to_owned(),
        };
        write_changes(changes, site.copy.root())?;
        let crashed = || -> Result<Crashed, CommandError> {
            site.build()?;
            let run: Run = site.record()?;
            site.crash(self.recovery, &run)
        };
        match crashed() {
            Ok(crashed) => Ok(Ok(Built { site, crashed })),
            Err(CommandError::Interrupted) => Err(CommandError::Interrupted.into()),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// `None`: nothing is to be verified.
    fn try_it(&mut self, patched: Patched, how: String, ordered: &mut Ordered) -> Result<Option<Tried>, RepairError> {
        let Some(trials) = self.trials.as_mut() else {
            return Ok(None);
        };
        let mut trial = trials.try_patch(&patched.changes, self.durability, &ordered.findings)?;
        trial.comparison.still.retain(|index| self.fixed.contains(index));
        let fixed = patched.fixed();
        let tried = Tried {
            still: trial.crashes.still.intersection(&fixed).copied().collect(),
            patched,
            trial,
        };
        ordered.attempts.push(Attempt {
            how,
            passed: tried.is_good(),
            problem: Some(tried.problem(&ordered.findings)).filter(|problem| !problem.is_empty()),
            new_warnings: tried.trial.comparison.new_warnings.clone(),
        });
        Ok(Some(tried))
    }

    /// What the user's own build never showed must be gone in the one that did.
    fn confirm(&self, number: usize, tried: &Tried, ordered: &mut Ordered) -> Result<bool, RepairError> {
        let unseen: BTreeSet<usize> = tried
            .patched
            .fixed()
            .difference(&tried.trial.crashes.seen_before)
            .copied()
            .collect();
        if unseen.is_empty() {
            return Ok(true);
        }
        let problem = match self.build(&format!("confirm-{number}"), &tried.patched.changes)? {
            Err(problem) => Some(problem),
            Ok(built) => {
                let tree = self.site.workspace.tree();
                let changes = &tried.patched.changes;
                let lines = PatchedLines { changes, tree };
                let found = &built.crashed.in_tree.findings;
                let before = &self.crashed.in_tree.findings;
                let compared = verify::compare_crashes(&ordered.findings, before, found, lines);
                let still = compared.still.intersection(&unseen).next();
                still.and_then(|&index| ordered.findings.get(index)).map(|finding| {
                    let place = verify::Named::of(finding).at(&tree.to_string_lossy());
                    format!("built by crashproof cc, recovery still fails at {place}")
                })
            }
        };
        let passed = problem.is_none();
        if passed {
            ordered.confirmed.extend(unseen);
        } else if let Some(attempt) = ordered.attempts.last_mut() {
            (attempt.passed, attempt.problem) = (false, problem);
        }
        Ok(passed)
    }
}

/// The index of a finding of the patched program; it is added if it is none of those known.
fn identify(finding: &Finding, site: &BuildSite, lines: PatchedLines, ordered: &mut Ordered) -> usize {
    let (finding, _) = verify::in_unpatched(site.copy.finding_to_tree(finding), lines);
    let exactly =
        |known: &Finding| (known.kind, &known.file, known.line) == (finding.kind, &finding.file, finding.line);
    let known = ordered.findings.iter().position(exactly).or_else(|| {
        let mut findings = ordered.findings.iter();
        findings.position(|known| verify::same_crash(known, &finding))
    });
    known.unwrap_or_else(|| {
        ordered.findings.push(finding);
        ordered.findings.len() - 1
    })
}
