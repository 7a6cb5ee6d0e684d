//! The repair as a whole: build, record, design, verify, deliver.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use crashproof_finding::{Finding, Report};
use crashproof_llvm::Context;
use crashproof_program::Program;
use crashproof_trace::{ReadError, TraceReader};

use crate::arguments::RepairArguments;
use crate::bitcode::{self, ApplyError};
use crate::commands::{BuildSite, CommandError, Compiler, Run, UserCommands};
use crate::design::{Design, Designer};
use crate::input::{Given, Input, InputError};
use crate::ladder::{self, Subject, Verified};
use crate::loaded;
use crate::outcome::{Binary, Outcome, Verdict, not_handled};
use crate::plan::{self, Plan, PlanOptions};
use crate::recovery::Crashed;
use crate::rounds::{Ordered, Rounds};
use crate::sarif;
use crate::source::Changed;
use crate::terminal::{self, step};
use crate::trial::{self, TrialError, Trials};
use crate::verify::{is_crash, same_crash};
use crate::workspace::{Workspace, WorkspaceError};

#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error("cannot read the trace {}: {source}", path.display())]
    Trace { path: PathBuf, source: ReadError },
    #[error("the trace {} does not say which program it is of; give it after --", path.display())]
    TraceWithoutProgram { path: PathBuf },
    #[error("the recording is incomplete: {}; what was not recorded cannot be repaired (docs/record.md says what helps)", reasons.join("; "))]
    Incomplete { reasons: Vec<String> },
    #[error(
        "the build made `{program}` without crashproof cc, so there is no bitcode to plan with; it must use $CC (`make CC=\"$CC\"`, or a \
         compiler that is called cc, gcc, clang, c++, g++ or clang++) and make everything anew (`make clean all`)"
    )]
    NoBitcode { program: String },
    #[error("{reason}")]
    Unreadable { reason: String },
    #[error(transparent)]
    Bitcode(#[from] ApplyError),
    #[error("cannot write {what} to {}: {source}", path.display())]
    Output {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "the build writes to {}, a source that the patch would change; the patch would not fit your tree. Change what the build makes it \
         from, or build once before the repair",
        path.display()
    )]
    Generated { path: PathBuf },
    #[error("{} has changed since the repair began; nothing was written, run the repair again", path.display())]
    Changed { path: PathBuf },
}

/// Repairs as asked, and delivers the result.
pub fn run(arguments: &RepairArguments) -> Result<Verdict, RepairError> {
    let mut input = Input::new(arguments)?;
    let source = arguments.source.clone().unwrap_or_else(|| PathBuf::from("."));
    let doing = step("looking at the source tree");
    let workspace = Workspace::new(&source, arguments.keep.as_deref())?;
    drop(doing);

    let doing = step("copying the source");
    let mut site = BuildSite {
        workspace: &workspace,
        commands: UserCommands {
            build: input.build.clone(),
            test: input.test.clone(),
            setup: input.setup.clone(),
            program: Vec::new(),
            pm: input.pm.clone(),
            locked_rmw: input.locked_rmw,
            model: input.model,
            config: input.config.as_ref().and_then(|path| path.canonicalize().ok()),
        },
        copy: workspace.copy("repair")?,
        compiler: Compiler::Repair,
        name: "repair".to_owned(),
    };
    drop(doing);
    let given = given_findings(&mut input, &site)?;
    site.commands.program = workspace.command(&input.program);
    let doing = step("building the program by crashproof cc");
    site.build()?;
    drop(doing);
    let doing = step("recording it");
    let run = site.record()?;
    drop(doing);
    complete(&run.in_tree)?;
    // In the copy's names, by which the bitcode knows the source.
    let given: Option<Vec<Finding>> = given.map(|findings| {
        let in_copy = findings.into_iter().map(|finding| site.copy.finding_from_tree(finding));
        in_copy.collect()
    });
    let asks_for_orders = match (&input.given, &given) {
        (Given::Findings(_), Some(given)) => given.iter().any(|finding| is_crash(finding.kind)),
        _ => true,
    };
    let crashed = match input.recovery.as_ref().filter(|_| asks_for_orders) {
        Some(recovery) => {
            let _doing = step("crashing it");
            Some(site.crash(recovery, &run)?)
        }
        None => None,
    };
    let (crashes, findings) = wanted(&input, given, &run, crashed.as_ref());
    let repair = Repair {
        arguments,
        input: &input,
        site: &site,
        run: &run,
        findings,
        crashes,
        crashed,
    };
    repair.repair()
}

/// Findings of a crash test, which need a recovery, and the others.
fn wanted(
    input: &Input,
    given: Option<Vec<Finding>>,
    run: &Run,
    crashed: Option<&Crashed>,
) -> (Vec<Finding>, Vec<Finding>) {
    let found = crashed.map_or(&[][..], |crashed| &crashed.report.findings);
    let Some(given) = given else {
        return (found.to_vec(), run.report.findings.clone());
    };
    if let Given::Trace(_) = input.given {
        return (found.to_vec(), given);
    }
    let of_crashes = |finding: &Finding| crashed.is_some() && is_crash(finding.kind);
    let (asked, others): (Vec<Finding>, Vec<Finding>) = given.into_iter().partition(of_crashes);
    // What this build showed is known better.
    let mut crashes: Vec<Finding> = Vec::new();
    for asked in asked {
        let same: Vec<&Finding> = found.iter().filter(|found| same_crash(found, &asked)).collect();
        if same.is_empty() {
            crashes.push(asked);
        }
        for finding in same {
            if !crashes.contains(finding) {
                crashes.push(finding.clone());
            }
        }
    }
    (crashes, others)
}

/// Findings that are not those of the run to come; a trace says of which program they are.
fn given_findings(input: &mut Input, site: &BuildSite) -> Result<Option<Vec<Finding>>, RepairError> {
    let trace = match &input.given {
        Given::Run => return Ok(None),
        Given::Findings(findings) => return Ok(Some(findings.clone())),
        Given::Trace(trace) => trace,
    };
    let _doing = step("checking the trace");
    let path = trace.canonicalize().unwrap_or_else(|_| trace.clone());
    let report = site.check(&path)?;
    if input.program.is_empty() {
        input.program = report.program.command.iter().map(OsString::from).collect();
    }
    match input.program.is_empty() {
        true => Err(RepairError::TraceWithoutProgram { path: trace.clone() }),
        false => Ok(Some(report.findings)),
    }
}

fn complete(report: &Report) -> Result<(), RepairError> {
    match report.trace.complete {
        true => Ok(()),
        false => Err(RepairError::Incomplete {
            reasons: report.trace.incomplete.clone(),
        }),
    }
}

/// What is known once the program was built for repair and recorded.
pub struct Repair<'a> {
    pub arguments: &'a RepairArguments,
    pub input: &'a Input,
    pub site: &'a BuildSite<'a>,
    pub run: &'a Run,
    /// Those of a check; and those of a crash test, if there is no recovery to crash it with.
    pub findings: Vec<Finding>,
    /// Those of a crash test.
    pub crashes: Vec<Finding>,
    pub crashed: Option<Crashed>,
}

impl Repair<'_> {
    fn repair(&self) -> Result<Verdict, RepairError> {
        let mut outcome = self.empty_outcome();
        let doing = step("reading the trace");
        let (reader, observed) = loaded::read_trace(&self.run.trace)?;
        drop(doing);
        outcome.notes.extend(self.outside_files(&reader));
        let BuildSite {
            workspace, commands, ..
        } = self.site;
        let mut trials =
            (!self.arguments.no_verify).then(|| Trials::new(workspace, commands, self.input.recovery.as_ref()));
        let wanted = |finding: &Finding| not_handled(finding, self.arguments.performance).is_none();
        let mut verified = Verified::not_done(Design::default());
        let mut ordered = Ordered::default();
        if self.findings.iter().any(wanted) || self.arguments.inject_flushes {
            let context = Context::create();
            let mut program = loaded::load(self.site, &reader, &context)?;
            let designer = Designer {
                program: &program,
                points_to: OnceCell::new(),
                findings: &self.findings,
                observed: &observed,
                tree: self.site.copy.root(),
            };
            let options = self.options();
            verified = self.make_durable(&designer, &options, self.crashed.is_some(), trials.as_mut())?;
            ordered = self.put_in_order(&verified, trials.as_mut())?;
            if verified.crash_problem.is_some() && ordered.trial.is_none() {
                // No order mends what it does to the recovery.
                verified = self.make_durable(&designer, &options, false, trials.as_mut())?;
            }
            if self.arguments.out_bitcode.is_some() || self.arguments.out_binary.is_some() {
                let without = verified.failed.keys().copied().collect();
                let plan = designer.plan(&options, &without);
                outcome.binary = self.repair_bitcode(&mut program, &plan)?;
            }
            if self.arguments.explain {
                let (copy, design) = (&self.site.copy, &verified.design);
                let (plan, findings) = (copy.plan_to_tree(&design.plan), copy.findings_to_tree(&self.findings));
                terminal::print(&plan::explain::explain(&plan, &findings, &design.changes));
            }
        } else if !self.crashes.is_empty() {
            ordered = self.put_in_order(&verified, trials.as_mut())?;
        }
        let changes = self.judge(&mut outcome, &verified, &ordered);
        self.check_sources(&changes)?;
        if self.arguments.explain {
            let root = self.site.workspace.tree().to_string_lossy();
            terminal::print(&outcome.orders_explained(&root));
        }
        self.deliver(&outcome, &changes)
    }

    /// Flushes and fences.
    fn make_durable(
        &self,
        designer: &Designer,
        options: &PlanOptions,
        orders_follow: bool,
        trials: Option<&mut Trials>,
    ) -> Result<Verified, RepairError> {
        let doing = step("planning");
        let first = designer.design(options, &BTreeSet::new()).map_err(TrialError::from)?;
        self.check_sources(&first.changes)?;
        drop(doing);
        let Some(trials) = trials.filter(|_| !first.changes.is_empty()) else {
            return Ok(Verified::not_done(first));
        };
        let copy = &self.site.copy;
        let subject = Subject {
            options,
            findings: &copy.findings_to_tree(&self.findings),
            crashes: &copy.findings_to_tree(&self.crashes),
            orders_follow,
        };
        Ok(ladder::climb(designer, first, &subject, trials)?)
    }

    /// What a crash test says, on top of what is durable now.
    fn put_in_order(&self, verified: &Verified, trials: Option<&mut Trials>) -> Result<Ordered, RepairError> {
        let (Some(recovery), Some(crashed)) = (&self.input.recovery, &self.crashed) else {
            return Ok(Ordered::default());
        };
        let clean = verified.crashes.still.is_empty() && verified.crash_problem.is_none();
        let all_seen = verified.crashes.seen_before.len() == self.crashes.len();
        let rounds = Rounds {
            site: self.site,
            recovery,
            crashed,
            wanted: &self.crashes,
            durability: &self.site.copy.findings_to_tree(&self.findings),
            fixed: verified
                .design
                .fixed()
                .filter(|index| !verified.failed.contains_key(index))
                .collect(),
            trials,
        };
        // What was missing was the reason of all.
        match clean && all_seen && !verified.design.changes.is_empty() {
            true => Ok(rounds.nothing(&verified.design.changes)),
            false => rounds.run(&verified.design.changes),
        }
    }

    /// What the patch changes must be in the tree as it was in the copy.
    fn check_sources(&self, changes: &[Changed]) -> Result<(), RepairError> {
        let tree = self.site.workspace.tree();
        let other = |changed: &&Changed| std::fs::read_to_string(tree.join(&changed.path)).ok() != changed.old;
        match changes.iter().find(other) {
            Some(changed) => Err(RepairError::Generated {
                path: tree.join(&changed.path),
            }),
            None => Ok(()),
        }
    }

    fn options(&self) -> PlanOptions {
        PlanOptions {
            intra_only: self.arguments.intra_only,
            trace_aliases: self.arguments.trace_aliases,
            performance: self.arguments.performance,
            inject_flushes: self.arguments.inject_flushes,
            coalesce: true,
            ..PlanOptions::default()
        }
    }

    /// PM that every run shares, because it is not in the copy.
    fn outside_files(&self, reader: &TraceReader) -> Option<String> {
        let files = &reader.tables().files;
        let outside = files
            .iter()
            .find(|file| !Path::new(&file.path).starts_with(self.site.copy.root()))?;
        match self.input.setup {
            Some(_) => None,
            None => Some(format!(
                "{} is not in the source tree, so each run started from what the run before left in it; --setup COMMAND can make it anew",
                outside.path
            )),
        }
    }

    /// The program itself, repaired without its source. Its module is another afterwards.
    fn repair_bitcode(&self, program: &mut Program, plan: &Plan) -> Result<Option<Binary>, RepairError> {
        let _doing = step("repairing the bitcode");
        bitcode::apply(program, plan)?;
        if let Some(path) = &self.arguments.out_bitcode {
            bitcode::write(program, path)?;
        }
        let Some(path) = &self.arguments.out_binary else {
            return Ok(None);
        };
        bitcode::build(program, path)?;
        let repaired: BTreeSet<usize> = plan.fixes.iter().flat_map(|fix| fix.findings.iter().copied()).collect();
        let findings: Vec<Finding> = repaired
            .iter()
            .map(|&index| self.site.copy.finding_to_tree(&self.findings[index]))
            .collect();
        let BuildSite {
            workspace, commands, ..
        } = &self.site;
        let problem = match self.arguments.no_verify {
            true => Some("it was not to be verified".to_owned()),
            false => trial::try_binary(path, workspace, commands, &findings, self.run)?,
        };
        Ok(Some(Binary {
            verified: problem.is_none(),
            problem,
            findings: repaired.into_iter().collect(),
        }))
    }

    /// Writes diff, JSON and report, and the tree if asked to.
    fn deliver(&self, outcome: &Outcome, changes: &[Changed]) -> Result<Verdict, RepairError> {
        let mut outcome = outcome.clone();
        let verified = outcome
            .verification
            .as_ref()
            .is_some_and(|verification| verification.verified);
        if self.arguments.apply && verified && !outcome.diff.is_empty() {
            self.apply(changes)?;
            outcome.applied = true;
        }
        let root = self.site.workspace.tree().to_string_lossy();
        terminal::print(&outcome.in_words(&root));
        match &self.arguments.out {
            Some(path) => write("the diff", path, &outcome.diff)?,
            None if self.arguments.json.as_deref() == Some(Path::new("-")) => {}
            None => write("the diff", Path::new("-"), &outcome.diff)?,
        }
        if let Some(path) = &self.arguments.json {
            let json = serde_json::to_string_pretty(&outcome).unwrap_or_default() + "\n";
            write("the JSON", path, &json)?;
        }
        if let Some(path) = &self.arguments.sarif {
            let tree = self.site.workspace.tree();
            let findings = [self.findings.as_slice(), &self.crashes].concat();
            let findings = self.site.copy.findings_to_tree(&findings);
            let log = sarif::log(&outcome, changes, findings, tree).unwrap_or_default();
            write("the SARIF", path, &log)?;
        }
        Ok(outcome.result)
    }

    /// All or nothing: a file that is no longer what it was stops it before anything is written.
    fn apply(&self, changes: &[Changed]) -> Result<(), RepairError> {
        let tree = self.site.workspace.tree();
        for change in changes {
            let path = tree.join(&change.path);
            if std::fs::read_to_string(&path).ok() != change.old {
                return Err(RepairError::Changed { path });
            }
        }
        Ok(trial::write_changes(changes, tree)?)
    }
}

/// `-` is stdout.
fn write(what: &'static str, path: &Path, text: &str) -> Result<(), RepairError> {
    let written = match path.to_str() {
        Some("-") => std::io::stdout().lock().write_all(text.as_bytes()),
        _ => crashproof_trace::replace::write(path, text.as_bytes()),
    };
    written.map_err(|source| RepairError::Output {
        what,
        path: path.to_owned(),
        source,
    })
}
