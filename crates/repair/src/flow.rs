//! The repair as a whole: build, record, design, verify, deliver.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use crashproof_program::{Program, ProgramError};
use crashproof_report::{Finding, Report};
use crashproof_sites::SitesError;
use crashproof_trace::{ReadError, TraceReader};
use inkwell::context::Context;

use crate::arguments::RepairArguments;
use crate::bitcode::{self, ApplyError};
use crate::commands::{CommandError, Compiler, Run, Site, UserCommands, shown};
use crate::design::{Design, Designer};
use crate::input::{Given, Input, InputError};
use crate::ladder::{self, Verified};
use crate::observed::Observed;
use crate::outcome::{Binary, FindingOutcome, FixOutcome, Outcome, State, Verdict, not_handled};
use crate::plan::{self, Plan, PlanOptions};
use crate::source::Changed;
use crate::terminal::{self, step};
use crate::trial::{self, TrialError, Trials};
use crate::verify::Named;
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
    let mut site = Site {
        workspace: &workspace,
        commands: UserCommands {
            build: input.build.clone(),
            test: input.test.clone(),
            setup: input.setup.clone(),
            program: Vec::new(),
            pm: input.pm.clone(),
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
    let repair = Repair {
        arguments,
        input: &input,
        site: &site,
        run: &run,
        // In the copy's names, by which the bitcode knows the source.
        findings: match given {
            Some(findings) => findings.into_iter().map(|finding| from_tree(finding, &site)).collect(),
            None => run.report.findings.clone(),
        },
    };
    repair.repair()
}

/// Findings that are not those of the run to come; a trace says of which program they are.
fn given_findings(input: &mut Input, site: &Site) -> Result<Option<Vec<Finding>>, RepairError> {
    let trace = match &input.given {
        Given::Run => return Ok(None),
        Given::Findings(findings) => return Ok(Some(findings.clone())),
        Given::Trace(trace) => trace,
    };
    let _doing = step("checking the trace");
    let path = trace.canonicalize().unwrap_or_else(|_| trace.clone());
    let (report, _) = site.check(&path)?;
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

/// With the paths of the copy.
fn from_tree(mut finding: Finding, site: &Site) -> Finding {
    let map = |file: &mut Option<String>| {
        if let Some(path) = file {
            *path = site.copy.path_from_tree(Path::new(path)).to_string_lossy().into_owned();
        }
    };
    map(&mut finding.file);
    let by = finding.durable_by.iter_mut().flat_map(|by| &mut by.stack);
    let related = finding.related.iter_mut().flat_map(|related| &mut related.stack);
    finding
        .stack
        .iter_mut()
        .chain(by)
        .chain(related)
        .for_each(|frame| map(&mut frame.file));
    finding
}

/// What is known once the program was built for repair and recorded.
struct Repair<'a> {
    arguments: &'a RepairArguments,
    input: &'a Input,
    site: &'a Site<'a>,
    run: &'a Run,
    findings: Vec<Finding>,
}

impl Repair<'_> {
    fn repair(&self) -> Result<Verdict, RepairError> {
        let mut outcome = self.empty_outcome();
        let wanted = |finding: &Finding| not_handled(finding, self.arguments.performance).is_none();
        if !self.findings.iter().any(wanted) && !self.arguments.inject_flushes {
            outcome.judge();
            return self.deliver(&outcome, &Design::default());
        }
        let doing = step("reading the trace");
        let (reader, observed) = self.read_trace()?;
        drop(doing);
        outcome.notes.extend(self.outside_files(&reader));
        let context = Context::create();
        let program = self.load(&context, &reader)?;
        let designer = Designer {
            program: &program,
            findings: &self.findings,
            observed: &observed,
            tree: self.site.copy.root(),
        };
        let options = self.options();
        let doing = step("planning");
        let first = designer.design(&options, &BTreeSet::new()).map_err(TrialError::from)?;
        self.check_sources(&first)?;
        drop(doing);
        let verified = if first.diff.is_empty() || self.arguments.no_verify {
            Verified::not_done(first)
        } else {
            let Site {
                workspace, commands, ..
            } = &self.site;
            let mut trials = Trials::new(workspace, commands, self.input.recovery.as_ref())?;
            let findings: Vec<Finding> = self.findings.iter().map(|finding| self.to_tree(finding)).collect();
            ladder::climb(&designer, first, &options, &mut trials, &findings)?
        };
        self.judge(&mut outcome, &verified);
        if self.arguments.out_bitcode.is_some() || self.arguments.out_binary.is_some() {
            let without = verified.failed.keys().copied().collect();
            outcome.binary = self.repair_bitcode(&program, &designer.plan(&options, &without))?;
        }
        if self.arguments.explain {
            let text = plan::explain::explain(&verified.design.plan, &self.findings);
            terminal::print(&self.site.copy.to_tree(&text));
        }
        self.deliver(&outcome, &verified.design)
    }

    /// What the patch changes must be in the tree as it was in the copy.
    fn check_sources(&self, design: &Design) -> Result<(), RepairError> {
        let tree = self.site.workspace.tree();
        let other = |changed: &&Changed| std::fs::read_to_string(tree.join(&changed.path)).ok() != changed.old;
        match design.changes.iter().find(other) {
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

    fn read_trace(&self) -> Result<(TraceReader, Observed), RepairError> {
        let failed = |source| RepairError::Trace {
            path: self.run.trace.clone(),
            source,
        };
        let mut reader = TraceReader::open(&self.run.trace).map_err(failed)?;
        let observed = Observed::read(&mut reader).map_err(failed)?;
        Ok((reader, observed))
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

    /// The program's bitcode: of the program itself, or, of a script, of what it ran.
    fn load<'context>(
        &self,
        context: &'context Context,
        reader: &TraceReader,
    ) -> Result<Program<'context>, RepairError> {
        let words = self.site.copy.words(&self.site.commands.program);
        let program = self.site.copy.program(&words);
        let modules = reader.tables().modules.iter().map(|module| PathBuf::from(&module.path));
        let in_copy = modules.filter(|path| path.starts_with(self.site.copy.root()));
        for path in program.into_iter().chain(in_copy) {
            match Program::load(&path, context) {
                Ok(program) => return Ok(program),
                // A script, a tool of another compiler.
                Err(ProgramError::NoBitcode { .. } | ProgramError::Sites(SitesError::Elf { .. })) => {}
                Err(error) => {
                    return Err(RepairError::Unreadable {
                        reason: self.site.copy.to_tree(&error.to_string()),
                    });
                }
            }
        }
        Err(RepairError::NoBitcode {
            program: self.site.copy.to_tree(&shown(&words)),
        })
    }

    /// The program itself, repaired without its source. Its module is another afterwards.
    fn repair_bitcode(&self, program: &Program, plan: &Plan) -> Result<Option<Binary>, RepairError> {
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
            .map(|&index| self.to_tree(&self.findings[index]))
            .collect();
        let Site {
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

    fn to_tree(&self, finding: &Finding) -> Finding {
        let mut finding = finding.clone();
        if let Some(file) = &mut finding.file {
            *file = self.site.copy.to_tree(file);
        }
        finding
    }

    fn empty_outcome(&self) -> Outcome {
        let findings = self.findings.iter().map(|finding| {
            let (state, reason) = match not_handled(finding, self.arguments.performance) {
                Some((state, reason)) => (state, Some(reason.to_owned())),
                None => (State::Left, None),
            };
            FindingOutcome {
                finding: Named::of(&self.to_tree(finding)),
                state,
                reason,
                fixes: Vec::new(),
                seen_before: None,
            }
        });
        let words = self.site.copy.words(&self.site.commands.program);
        Outcome {
            version: 1,
            result: Verdict::Left,
            program: words
                .iter()
                .map(|word| self.site.copy.to_tree(&word.to_string_lossy()))
                .collect(),
            findings: findings.collect(),
            fixes: Vec::new(),
            clones: Vec::new(),
            idiom: None,
            diff: String::new(),
            verification: None,
            applied: false,
            binary: None,
            notes: Vec::new(),
        }
    }

    /// Fills in what became of each finding.
    fn judge(&self, outcome: &mut Outcome, verified: &Verified) {
        let Verified {
            design,
            failed,
            still,
            remaining,
            seen_before,
            verification,
            ..
        } = verified;
        let plan = &design.plan;
        for (index, fix) in plan.fixes.iter().enumerate() {
            let reason = design.impossible.get(&index);
            outcome.fixes.push(FixOutcome {
                findings: fix.findings.clone(),
                edit: fix.edit.clone(),
                safe_by: fix.safe_by,
                candidates: fix.candidates.clone(),
                in_source: reason.is_none(),
                reason: reason.cloned(),
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
            let refused = finding.fixes.iter().find_map(|fix| design.impossible.get(fix));
            let reason = if let Some(reason) = failed.get(&index) {
                Some(reason.clone())
            } else if let Some(left) = left {
                Some(self.site.copy.to_tree(&left.reason))
            } else if let Some(reason) = refused {
                let reason = self.site.copy.to_tree(reason);
                Some(format!(
                    "the source has no good place for the fix: {reason}; --out-binary makes a program that has it"
                ))
            } else if still.contains(&index) {
                Some("the fix did not make it go away in the program as your command builds it".to_owned())
            } else if finding.fixes.is_empty() {
                Some("no fix was planned for it".to_owned())
            } else {
                None
            };
            finding.state = if reason.is_none() { State::Repaired } else { State::Left };
            finding.reason = reason;
            if verification.is_some() {
                finding.seen_before = Some(seen_before.contains(&index));
            }
        }
        for finding in remaining {
            outcome.findings.push(FindingOutcome {
                finding: Named::of(finding),
                state: State::Left,
                reason: Some("only the program as your command builds it has this; build it without optimisation to have it repaired".to_owned()),
                fixes: Vec::new(),
                seen_before: Some(true),
            });
        }
        outcome.clones = plan.clones.clone();
        outcome.idiom = design.idiom.clone();
        outcome.diff = design.diff.clone();
        outcome.verification = verification.clone();
        outcome.judge();
    }

    /// Writes diff, JSON and report, and the tree if asked to.
    fn deliver(&self, outcome: &Outcome, design: &Design) -> Result<Verdict, RepairError> {
        let mut outcome = outcome.clone();
        let verified = outcome
            .verification
            .as_ref()
            .is_some_and(|verification| verification.verified);
        if self.arguments.apply && verified && !outcome.diff.is_empty() {
            self.apply(design)?;
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
            write("the JSON", path, &self.site.copy.json_to_tree(&json))?;
        }
        Ok(outcome.result)
    }

    /// All or nothing: a file that is no longer what it was stops it before anything is written.
    fn apply(&self, design: &Design) -> Result<(), RepairError> {
        let tree = self.site.workspace.tree();
        for change in &design.changes {
            let path = tree.join(&change.path);
            if std::fs::read_to_string(&path).ok() != change.old {
                return Err(RepairError::Changed { path });
            }
        }
        Ok(trial::write_changes(&design.changes, tree)?)
    }
}

/// `-` is stdout.
fn write(what: &'static str, path: &Path, text: &str) -> Result<(), RepairError> {
    let written = match path.to_str() {
        Some("-") => std::io::stdout().lock().write_all(text.as_bytes()),
        _ => std::fs::write(path, text),
    };
    written.map_err(|source| RepairError::Output {
        what,
        path: path.to_owned(),
        source,
    })
}
