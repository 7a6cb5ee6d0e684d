//! What a repair runs in a copy: the user's commands, by the shell, `crashproof record`, and a check of what that wrote.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crashproof_campaign::options::Model;
use crashproof_campaign::project;
use crashproof_check::CheckOptions;
use crashproof_finding::Report;
use crashproof_trace::TraceReader;

use crate::interrupt;
use crate::paths::{InTree, WorkingCopy};
use crate::workspace::Workspace;

/// Of a failed command's output the last lines are shown.
const SHOWN_LINES: usize = 60;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot start {command:?}: {source}")]
    Start { command: String, source: std::io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Log { path: PathBuf, source: std::io::Error },
    #[error("{what} failed: `{command}` {ended}{}\n{remedy}", said(output))]
    Failed {
        what: String,
        command: String,
        ended: String,
        output: String,
        remedy: &'static str,
    },
    #[error(
        "the program could not be recorded{}\nrun `crashproof record` on it to see why, and `crashproof doctor`",
        said(output)
    )]
    NotRecorded { output: String },
    #[error(
        "the build did not make {}{}; let --build make it, in the copy of the source tree in which it runs: paths must be relative",
        program.display(),
        left_out(folders)
    )]
    NoProgram { program: PathBuf, folders: Vec<PathBuf> },
    #[error("interrupted")]
    Interrupted,
}

fn said(output: &str) -> String {
    match output.trim_end() {
        "" => " and said nothing".to_owned(),
        output => format!(
            ":\n{}",
            output
                .lines()
                .map(|line| format!("    {line}"))
                .collect::<Vec<_>>()
                .join("\n")
        ),
    }
}

fn left_out(folders: &[PathBuf]) -> String {
    match folders {
        [] => String::new(),
        folders => format!(
            " (not copied, because they hold absolute paths: {}; configure in the build command, as `cmake -B build && cmake --build build`)",
            folders
                .iter()
                .map(|folder| folder.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// Whose compiler builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// `crashproof cc`, in repair mode.
    Repair,
    /// The user's.
    Own,
}

/// What the user says is to be run.
#[derive(Clone, Debug, Default)]
pub struct UserCommands {
    pub build: String,
    pub test: Option<String>,
    pub setup: Option<String>,
    /// The program and its arguments.
    pub program: Vec<InTree>,
    pub pm: Vec<String>,
    pub locked_rmw: bool,
    /// What the hardware promises, for the check.
    pub model: Option<Model>,
    /// `crashproof.toml`.
    pub config: Option<PathBuf>,
}

/// What a recorded run of the program did.
pub struct Run {
    /// Files are named as in the copy.
    pub report: Report,
    /// Files are named as in the user's tree.
    pub in_tree: Report,
    pub trace: PathBuf,
    pub output: Output,
}

/// With the names of the user's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A copy of the tree in which commands run.
pub struct BuildSite<'a> {
    pub workspace: &'a Workspace,
    pub commands: UserCommands,
    pub copy: WorkingCopy,
    pub compiler: Compiler,
    /// Of the copy: logs and traces are named after it.
    pub name: String,
}

impl BuildSite<'_> {
    pub fn build(&self) -> Result<(), CommandError> {
        let remedy = match self.compiler {
            Compiler::Repair => {
                "it runs in a copy of the source tree with CC=crashproof-cc, a clang 19; does it work with clang? --keep FOLDER keeps the copy"
            }
            Compiler::Own => "it runs in a copy of the source tree; --keep FOLDER keeps the copy",
        };
        self.shell("the build", &self.commands.build, remedy)
    }

    pub fn test(&self) -> Result<(), CommandError> {
        match &self.commands.test {
            Some(command) => self.shell("the test", command, "--keep FOLDER keeps the copy in which it ran"),
            None => Ok(()),
        }
    }

    fn shell(&self, what: &str, line: &str, remedy: &'static str) -> Result<(), CommandError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        self.environment(&mut command);
        let log = self.file(&format!("{}.log", what.rsplit(' ').next().unwrap_or(what)));
        let status = self.run(command, &log, &log)?;
        if status.success() {
            return Ok(());
        }
        Err(CommandError::Failed {
            what: match self.compiler {
                Compiler::Repair => format!("{what} with crashproof cc"),
                Compiler::Own => what.to_owned(),
            },
            command: self.copy.to_tree(line),
            ended: ended(status),
            output: self.said(&log),
            remedy,
        })
    }

    fn environment(&self, command: &mut Command) {
        let own = env::var_os("PATH").unwrap_or_default();
        let mut path: Vec<PathBuf> = env::split_paths(&own).collect();
        match self.compiler {
            Compiler::Repair => {
                path.insert(0, self.workspace.bin());
                path.insert(0, self.workspace.compilers());
                command
                    .env("CRASHPROOF_REPAIR", "1")
                    .env("CC", self.workspace.bin().join("crashproof-cc"))
                    .env("CXX", self.workspace.bin().join("crashproof-c++"));
            }
            Compiler::Own => {
                path.push(self.workspace.bin());
                for (variable, usual) in [("CC", "cc"), ("CXX", "c++")] {
                    if env::var_os(variable).is_none_or(|value| value.is_empty()) {
                        command.env(variable, usual);
                    }
                }
            }
        }
        if let Ok(path) = env::join_paths(path) {
            command.env("PATH", path);
        }
    }

    /// Runs the program and checks what it did.
    pub fn record(&self) -> Result<Run, CommandError> {
        let words = self.copy.words(&self.commands.program);
        if let Some(program) = self.copy.program(&words).filter(|program| !program.exists()) {
            return Err(CommandError::NoProgram {
                program: self.copy.path_to_tree(&program),
                folders: self.workspace.left_out().to_vec(),
            });
        }
        let (trace, stdout, stderr) = (self.file("trace"), self.file("stdout"), self.file("stderr"));
        self.record_to(&trace, &stdout, &stderr, &[])?;
        let report = self.check(&trace)?;
        let read = |path: &Path| std::fs::read(path).unwrap_or_default();
        let in_tree = |bytes: Vec<u8>| match String::from_utf8(bytes) {
            Ok(text) => self.copy.to_tree(&text).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        Ok(Run {
            output: Output {
                status: report.program.status,
                stdout: in_tree(read(&stdout)),
                stderr: in_tree(read(&stderr)),
            },
            in_tree: self.copy.report_to_tree(&report),
            report,
            trace,
        })
    }

    /// A run of the program in which nobody tells PMDK that it is watched, as `crashproof crash` records it.
    pub fn record_unwatched(&self) -> Result<PathBuf, CommandError> {
        let (trace, log) = (self.file("unwatched.trace"), self.file("unwatched.log"));
        self.record_to(&trace, &log, &log, &["--client-requests", "off"])?;
        Ok(trace)
    }

    fn record_to(&self, trace: &Path, stdout: &Path, stderr: &Path, options: &[&str]) -> Result<(), CommandError> {
        if let Some(setup) = &self.commands.setup {
            self.shell(
                "the setup",
                &self.copy.text_from_tree(setup),
                "it runs in the copy of the source tree before each run of the program",
            )?;
        }
        let mut record = Command::new(self.workspace.programs.join("crashproof"));
        record.arg("record").arg("-o").arg(trace).args(options);
        for pattern in &self.commands.pm {
            record.arg("--pm").arg(pattern);
        }
        if self.commands.locked_rmw {
            record.arg("--locked-rmw");
        }
        record.arg("--").args(self.copy.words(&self.commands.program));
        self.run(record, stdout, stderr)?;
        match trace.exists() {
            true => Ok(()),
            false => Err(CommandError::NotRecorded {
                output: self.said(stderr),
            }),
        }
    }

    /// What a check says of a trace.
    pub fn check(&self, trace: &Path) -> Result<Report, CommandError> {
        let checked = self.checked(trace).map_err(|error| CommandError::Failed {
            what: "the check".to_owned(),
            // The trace is gone when this is read.
            command: "crashproof check".to_owned(),
            ended: "exited with status 2".to_owned(),
            output: self.copy.to_tree(&format!("crashproof: error: {error}")),
            remedy: "the trace and crashproof.toml are what it reads",
        });
        let mut report = checked?;
        if interrupt::received().is_some() {
            return Err(CommandError::Interrupted);
        }
        report.program.status = report.program.shell_status();
        Ok(report)
    }

    fn checked(&self, trace: &Path) -> Result<Report, crashproof_campaign::Error> {
        let options = CheckOptions {
            model: self.commands.model.unwrap_or(Model::Px86).into(),
            // As the commands see it, in the copy.
            config: project::load_in(&self.copy.work, self.commands.config.as_deref())?.without_tests(),
            ..CheckOptions::default()
        };
        Ok(crashproof_check::check(
            &mut TraceReader::open(trace)?,
            &options,
            |_, _| (),
        )?)
    }

    pub fn run(&self, mut command: Command, stdout: &Path, stderr: &Path) -> Result<ExitStatus, CommandError> {
        let create = |path: &Path| {
            File::create(path).map_err(|source| CommandError::Log {
                path: path.into(),
                source,
            })
        };
        let out = create(stdout)?;
        let err = match stdout == stderr {
            true => out.try_clone().map_err(|source| CommandError::Log {
                path: stderr.into(),
                source,
            })?,
            false => create(stderr)?,
        };
        command
            .current_dir(&self.copy.work)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        let line = shown(&command_words(&command));
        let start = |source| CommandError::Start { command: line, source };
        let status = match interrupt::spawn(&mut command) {
            Ok(mut child) => interrupt::wait(&mut child).map_err(start)?,
            Err(error) => return Err(start(error)),
        };
        match interrupt::received() {
            Some(_) => Err(CommandError::Interrupted),
            None => Ok(status),
        }
    }

    /// A file beside the copy.
    pub fn file(&self, what: &str) -> PathBuf {
        self.workspace.scratch().join(format!("{}.{what}", self.name))
    }

    /// The end of a log, with the names of the user's tree.
    pub fn said(&self, log: &Path) -> String {
        let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        self.copy.to_tree(&lines[from..].join("\n"))
    }
}

fn command_words(command: &Command) -> Vec<OsString> {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_owned)
        .collect()
}

pub(crate) fn shown(words: &[OsString]) -> String {
    shell_words::join(words.iter().map(|word| word.to_string_lossy()))
}

pub(crate) fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("exited with status {}", status.code().unwrap_or_default()),
    }
}
