//! Trials: the program, unpatched and patched, built by the user's command with the user's compiler, each in a copy of its own.

use std::path::{Path, PathBuf};

use crashproof_finding::Finding;

use crate::commands::{BuildSite, CommandError, Compiler, Run, UserCommands};
use crate::lines::PatchedLines;
use crate::outcome::{CrashTest, OutputComparison};
use crate::recovery::Recovery;
use crate::source::{Changed, SourceError};
use crate::terminal::step;
use crate::verify::{self, Comparison, Named};
use crate::workspace::{Workspace, WorkspaceError};

#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("without any patch, {0}")]
    Unpatched(CommandError),
    #[error("{0}")]
    Command(CommandError),
    #[error("the recording of the program, built by your command, is incomplete: {}; without a complete one nothing can be verified (--no-verify leaves it out)", reasons.join("; "))]
    Incomplete { reasons: Vec<String> },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("cannot write the patched {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}

/// What is needed for every trial.
pub(crate) struct Trials<'a> {
    workspace: &'a Workspace,
    commands: &'a UserCommands,
    recovery: Option<&'a Recovery>,
    /// Once it is known that there is something to try.
    before: Option<Before<'a>>,
    /// The unpatched program's output, if two runs of it gave the same. Asked only if the patched program's is another.
    reproducible: Option<bool>,
    /// Asked only if there is something to compare with it.
    crash_before: Option<Vec<Finding>>,
    count: usize,
}

/// The unpatched program, built by the user's command.
struct Before<'a> {
    site: BuildSite<'a>,
    run: Run,
}

/// What a trial of a patch showed.
pub struct Trial {
    pub comparison: Comparison,
    /// Whether the user's tests passed, if they were run.
    pub test: Option<bool>,
    pub output: OutputComparison,
    pub crash: Option<CrashTest>,
    pub crashes: Comparison,
    /// What is wrong with the patch as a whole.
    pub problem: Option<String>,
    /// What a crash test of the patched program says against it.
    pub crash_problem: Option<String>,
}

impl Trial {
    pub(crate) fn failed(problem: String, test: Option<bool>) -> Trial {
        Trial {
            comparison: Comparison::default(),
            test,
            output: OutputComparison::NotCompared,
            crash: None,
            crashes: Comparison::default(),
            problem: Some(problem),
            crash_problem: None,
        }
    }

    /// Neither new errors nor another behaviour.
    pub fn is_harmless(&self) -> bool {
        self.problem.is_none() && self.comparison.new.is_empty()
    }
}

impl<'a> Trials<'a> {
    pub(crate) fn new(
        workspace: &'a Workspace,
        commands: &'a UserCommands,
        recovery: Option<&'a Recovery>,
    ) -> Trials<'a> {
        Trials {
            workspace,
            commands,
            recovery,
            before: None,
            reproducible: None,
            crash_before: None,
            count: 0,
        }
    }

    fn before(&mut self) -> Result<&Before<'a>, TrialError> {
        let before = match self.before.take() {
            Some(before) => before,
            None => self.build_unpatched()?,
        };
        Ok(self.before.insert(before))
    }

    /// Builds, tests and records the unpatched program.
    fn build_unpatched(&self) -> Result<Before<'a>, TrialError> {
        let site = site(self.workspace, self.commands, "before")?;
        let doing = step("building the unpatched program by your command");
        site.build().map_err(TrialError::Unpatched)?;
        drop(doing);
        if self.commands.test.is_some() {
            let _doing = step("running your tests on the unpatched program");
            site.test().map_err(TrialError::Unpatched)?;
        }
        let _doing = step("recording the unpatched program");
        let run = site.record().map_err(TrialError::Unpatched)?;
        complete(&run)?;
        Ok(Before { site, run })
    }

    /// Builds, tests, records, checks and crashes the patched program. `findings` and `crashes` are those to be repaired, with the names of the
    /// tree. `Err` only for what has nothing to do with the patch.
    pub(crate) fn try_patch(
        &mut self,
        changes: &[Changed],
        findings: &[Finding],
        crashes: &[Finding],
    ) -> Result<Trial, TrialError> {
        self.before()?;
        self.count += 1;
        let site = site(self.workspace, self.commands, &format!("after-{}", self.count))?;
        write_changes(changes, site.copy.root())?;
        let doing = step("building the patched program by your command");
        if let Some(problem) = of_patch(site.build())? {
            return Ok(Trial::failed(problem, None));
        }
        drop(doing);
        let mut test = None;
        if self.commands.test.is_some() {
            let _doing = step("running your tests on the patched program");
            if let Some(problem) = of_patch(site.test())? {
                return Ok(Trial::failed(problem, Some(false)));
            }
            test = Some(true);
        }
        let doing = step("recording the patched program");
        let after = match site.record() {
            Ok(run) => run,
            Err(CommandError::Interrupted) => return Err(TrialError::Command(CommandError::Interrupted)),
            Err(error) => return Ok(Trial::failed(error.to_string(), test)),
        };
        drop(doing);
        complete(&after)?;
        let lines = PatchedLines {
            changes,
            tree: self.workspace.tree(),
        };
        let comparison = verify::compare(findings, &self.before()?.run.in_tree, &after.in_tree, lines);
        let (output, problem) = self.compare_output(&after)?;
        let mut trial = Trial {
            comparison,
            test,
            output,
            crash: None,
            crashes: Comparison::default(),
            problem,
            crash_problem: None,
        };
        if let (Some(recovery), true) = (self.recovery, trial.is_harmless()) {
            self.crash(&site, recovery, &after, crashes, lines, &mut trial)?;
        }
        Ok(trial)
    }

    fn compare_output(&mut self, after: &Run) -> Result<(OutputComparison, Option<String>), TrialError> {
        let before = self.before()?.run.output.clone();
        let Some(difference) = verify::difference(&before, &after.output) else {
            return Ok((OutputComparison::Same, None));
        };
        let reproducible = match self.reproducible {
            Some(known) => known,
            None => {
                let _doing = step("running the unpatched program once more, for its output");
                let site = site(self.workspace, self.commands, "before-again")?;
                site.build().map_err(TrialError::Unpatched)?;
                // What the tests leave behind was there in the other runs, too.
                site.test().map_err(TrialError::Unpatched)?;
                let again = site.record().map_err(TrialError::Unpatched)?;
                verify::difference(&before, &again.output).is_none()
            }
        };
        self.reproducible = Some(reproducible);
        Ok(match reproducible {
            true => (
                OutputComparison::Differs,
                Some(format!("the patched program behaves differently: {difference}")),
            ),
            false => (OutputComparison::NotComparable, None),
        })
    }

    /// Crashes the patched program. The unpatched one is crashed only if that fails, or findings of a crash test are to be repaired.
    fn crash(
        &mut self,
        site: &BuildSite,
        recovery: &Recovery,
        run: &Run,
        crashes: &[Finding],
        lines: PatchedLines,
        trial: &mut Trial,
    ) -> Result<(), TrialError> {
        let doing = step("crashing the patched program");
        let after = match site.crash(recovery, run) {
            Ok(crashed) => crashed,
            Err(CommandError::Interrupted) => return Err(TrialError::Command(CommandError::Interrupted)),
            Err(error) => {
                trial.crash_problem = Some(error.to_string());
                return Ok(());
            }
        };
        drop(doing);
        if !after.decided {
            let why = after.in_tree.warnings.join("; ");
            trial.crash_problem = Some(format!("the crash test of the patched program decided nothing: {why}"));
        }
        let found = &after.in_tree.findings;
        let before = match found.is_empty() && crashes.is_empty() {
            true => None,
            false => Some(self.crash_before(recovery)?),
        };
        trial.crash = Some(CrashTest {
            before: before.as_ref().map(Vec::len),
            after: found.len(),
        });
        let compared = verify::compare_crashes(crashes, &before.unwrap_or_default(), found, lines);
        if let Some(new) = compared.new.first() {
            let words = new.finding.in_words(&self.workspace.tree().to_string_lossy());
            trial.crash_problem = Some(format!("a crash test finds something new: {words}"));
        }
        trial.crashes = compared;
        Ok(())
    }

    /// What a crash test finds in the unpatched program, built by the user's command.
    fn crash_before(&mut self, recovery: &Recovery) -> Result<Vec<Finding>, TrialError> {
        if let Some(known) = &self.crash_before {
            return Ok(known.clone());
        }
        let before = self.before()?;
        let _doing = step("crashing the unpatched program");
        let crashed = before
            .site
            .crash(recovery, &before.run)
            .map_err(TrialError::Unpatched)?;
        self.crash_before = Some(crashed.in_tree.findings.clone());
        Ok(crashed.in_tree.findings)
    }
}

/// Tries a program that was made otherwise than by the user's build, in a copy of the tree in which it takes the place of what that made.
pub(crate) fn try_binary(
    binary: &Path,
    workspace: &Workspace,
    commands: &UserCommands,
    findings: &[Finding],
    before: &Run,
) -> Result<Option<String>, TrialError> {
    let site = site(workspace, commands, "binary")?;
    let doing = step("building the unpatched program by your command");
    site.build().map_err(TrialError::Unpatched)?;
    drop(doing);
    let words = site.copy.words(&commands.program);
    let Some(place) = site
        .copy
        .program(&words)
        .filter(|place| place.starts_with(site.copy.root()))
    else {
        return Ok(Some("it is not what the command starts, and was not run".to_owned()));
    };
    let written = std::fs::remove_file(&place).and_then(|()| std::fs::copy(binary, &place));
    written.map_err(|source| TrialError::Write { path: place, source })?;
    let _doing = step("recording the repaired binary");
    let after = site.record().map_err(TrialError::Command)?;
    let unpatched = PatchedLines {
        changes: &[],
        tree: workspace.tree(),
    };
    let compared = verify::compare(findings, &before.in_tree, &after.in_tree, unpatched);
    let root = workspace.tree().to_string_lossy();
    Ok(if let Some(&index) = compared.still.first() {
        Some(format!("it still has {}", Named::of(&findings[index]).in_words(&root)))
    } else if let Some(new) = compared.new.first() {
        Some(format!("it has something new: {}", new.finding.in_words(&root)))
    } else {
        verify::difference(&before.output, &after.output)
    })
}

fn site<'a>(workspace: &'a Workspace, commands: &'a UserCommands, name: &str) -> Result<BuildSite<'a>, TrialError> {
    let _doing = step("copying the source");
    Ok(BuildSite {
        workspace,
        commands: commands.clone(),
        copy: workspace.copy(name)?,
        compiler: Compiler::Own,
        name: name.to_owned(),
    })
}

pub(crate) fn write_changes(changes: &[Changed], root: &Path) -> Result<(), TrialError> {
    // All or nothing: a file that cannot be written is found before another is.
    for change in changes.iter().filter(|change| change.old.is_some()) {
        let path = root.join(&change.path);
        let opened = std::fs::OpenOptions::new().write(true).open(&path);
        opened.map_err(|source| TrialError::Write { path, source })?;
    }
    for change in changes {
        let path = root.join(&change.path);
        std::fs::write(&path, &change.new).map_err(|source| TrialError::Write { path, source })?;
    }
    Ok(())
}

/// A command that fails only with the patch is the patch's fault.
fn of_patch(result: Result<(), CommandError>) -> Result<Option<String>, TrialError> {
    match result {
        Ok(()) => Ok(None),
        Err(error @ CommandError::Failed { .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(TrialError::Command(error)),
    }
}

fn complete(run: &Run) -> Result<(), TrialError> {
    match run.in_tree.trace.complete {
        true => Ok(()),
        false => Err(TrialError::Incomplete {
            reasons: run.in_tree.trace.incomplete.clone(),
        }),
    }
}
