//! Trials: the program, unpatched and patched, built by the user's command with the user's compiler, each in a copy of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crashproof_report::{Finding, Report};

use crate::commands::{CommandError, Compiler, Run, Site, UserCommands};
use crate::design::Design;
use crate::lines::LineMap;
use crate::outcome::{Compared, CrashTest};
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
pub struct Trials<'a> {
    workspace: &'a Workspace,
    commands: &'a UserCommands,
    /// The configuration of the crash test.
    recovery: Option<&'a toml::Table>,
    before: Run,
    /// The unpatched program's output, if two runs of it gave the same. Asked only if the patched program's is another.
    reproducible: Option<bool>,
    crash_before: Option<Report>,
    count: usize,
}

/// What a trial of a patch showed.
pub struct Trial {
    pub comparison: Comparison,
    /// Whether the user's tests passed, if they were run.
    pub test: Option<bool>,
    pub output: Compared,
    pub crash: Option<CrashTest>,
    /// What is wrong with the patch as a whole.
    pub problem: Option<String>,
}

impl Trial {
    fn failed(problem: String, test: Option<bool>) -> Trial {
        Trial {
            comparison: Comparison::default(),
            test,
            output: Compared::NotCompared,
            crash: None,
            problem: Some(problem),
        }
    }

    /// Neither new errors nor another behaviour.
    pub fn is_harmless(&self) -> bool {
        self.problem.is_none() && self.comparison.new.is_empty()
    }
}

impl<'a> Trials<'a> {
    /// Builds, tests and records the unpatched program.
    pub fn new(
        workspace: &'a Workspace,
        commands: &'a UserCommands,
        recovery: Option<&'a toml::Table>,
    ) -> Result<Trials<'a>, TrialError> {
        let site = site(workspace, commands, "before")?;
        let doing = step("building the unpatched program by your command");
        site.build().map_err(TrialError::Unpatched)?;
        drop(doing);
        if commands.test.is_some() {
            let _doing = step("running your tests on the unpatched program");
            site.test().map_err(TrialError::Unpatched)?;
        }
        let _doing = step("recording the unpatched program");
        let before = site.record().map_err(TrialError::Unpatched)?;
        complete(&before)?;
        Ok(Trials {
            workspace,
            commands,
            recovery,
            before,
            reproducible: None,
            crash_before: None,
            count: 0,
        })
    }

    /// Builds, tests, records and checks the patched program. `Err` only for what has nothing to do with the patch.
    pub fn try_patch(&mut self, design: &Design, findings: &[Finding]) -> Result<Trial, TrialError> {
        self.count += 1;
        let site = site(self.workspace, self.commands, &format!("after-{}", self.count))?;
        write_changes(&design.changes, site.copy.root())?;
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
        let lines = LineMap::of(&design.diff);
        let comparison = verify::compare(
            findings,
            &self.before.in_tree,
            &after.in_tree,
            &lines,
            self.workspace.tree(),
        );
        let (output, mut problem) = self.compare_output(&after)?;
        let crash = self.crash(&site, &lines, &mut problem)?;
        Ok(Trial {
            comparison,
            test,
            output,
            crash,
            problem,
        })
    }

    fn compare_output(&mut self, after: &Run) -> Result<(Compared, Option<String>), TrialError> {
        let Some(difference) = verify::difference(&self.before.output, &after.output) else {
            return Ok((Compared::Same, None));
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
                verify::difference(&self.before.output, &again.output).is_none()
            }
        };
        self.reproducible = Some(reproducible);
        Ok(match reproducible {
            true => (
                Compared::Differs,
                Some(format!("the patched program behaves differently: {difference}")),
            ),
            false => (Compared::NotComparable, None),
        })
    }

    /// The crash test that the configuration has for this program; the unpatched one is tested only if the patched one fails.
    fn crash(
        &mut self,
        site: &Site,
        lines: &LineMap,
        problem: &mut Option<String>,
    ) -> Result<Option<CrashTest>, TrialError> {
        let Some(recovery) = self.recovery else {
            return Ok(None);
        };
        let after = {
            let _doing = step("crashing the patched program");
            crash_test(site, recovery).map_err(TrialError::Command)?
        };
        let Some(after) = after else {
            *problem = problem.take().or(Some(
                "the crash test could not be done on the patched program".to_owned(),
            ));
            return Ok(None);
        };
        if after.findings.is_empty() {
            return Ok(Some(CrashTest { before: None, after: 0 }));
        }
        if self.crash_before.is_none() {
            let _doing = step("crashing the unpatched program");
            let site = self::site(self.workspace, self.commands, "before-crash")?;
            site.build().map_err(TrialError::Unpatched)?;
            self.crash_before = crash_test(&site, recovery).map_err(TrialError::Unpatched)?;
        }
        if let Some(before) = &self.crash_before {
            let new = verify::compare(&[], before, &after, lines, self.workspace.tree()).new;
            if let Some(new) = new.first() {
                let root = self.workspace.tree().to_string_lossy();
                *problem = problem.take().or_else(|| {
                    Some(format!(
                        "a crash test finds something new: {}, {}",
                        new.kind,
                        new.at(&root)
                    ))
                });
            }
        }
        Ok(Some(CrashTest {
            before: self.crash_before.as_ref().map(|report| report.findings.len()),
            after: after.findings.len(),
        }))
    }
}

/// Tries a program that was made otherwise than by the user's build, in a copy of the tree in which it takes the place of what that made.
pub fn try_binary(
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
    let compared = verify::compare(
        findings,
        &before.in_tree,
        &after.in_tree,
        &LineMap::default(),
        workspace.tree(),
    );
    let root = workspace.tree().to_string_lossy();
    Ok(if let Some(&index) = compared.still.first() {
        Some(format!("it still has {}", Named::of(&findings[index]).in_words(&root)))
    } else if let Some(new) = compared.new.first() {
        Some(format!("it has something new: {}", new.in_words(&root)))
    } else {
        verify::difference(&before.output, &after.output)
    })
}

fn site<'a>(workspace: &'a Workspace, commands: &'a UserCommands, name: &str) -> Result<Site<'a>, TrialError> {
    let _doing = step("copying the source");
    Ok(Site {
        workspace,
        commands: commands.clone(),
        copy: workspace.copy(name)?,
        compiler: Compiler::Own,
        name: name.to_owned(),
    })
}

pub fn write_changes(changes: &[Changed], root: &Path) -> Result<(), TrialError> {
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

/// `crashproof test` of the one test; what its crash test found, with the names of the tree. `None`: it could not be done.
fn crash_test(site: &Site, recovery: &toml::Table) -> Result<Option<Report>, CommandError> {
    let (config, json, log) = (site.file("crash.toml"), site.file("crash.json"), site.file("crash.log"));
    let text = site.copy.text_from_tree(&recovery.to_string());
    std::fs::write(&config, text).map_err(|source| CommandError::Log {
        path: config.clone(),
        source,
    })?;
    let mut command = Command::new(site.workspace.programs.join("crashproof"));
    command
        .arg("test")
        .arg("--config")
        .arg(&config)
        .arg("--json")
        .arg(&json);
    site.run(command, &log, &log)?;
    let text = std::fs::read_to_string(&json).unwrap_or_default();
    let summary: Option<serde_json::Value> = serde_json::from_str(&site.copy.json_to_tree(&text)).ok();
    let report = summary.and_then(|summary| summary.pointer("/tests/0/crash").cloned());
    Ok(report.and_then(|report| serde_json::from_value(report).ok()))
}
