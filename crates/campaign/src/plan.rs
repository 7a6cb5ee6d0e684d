//! All that the command line asks for, looked at before anything runs.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crashproof_check::Config;
use crashproof_crash::{CampaignOptions, StrategyKind};
use crashproof_finding::{Inconclusive, InconclusiveReason};
use crashproof_infer::Conditions;
use crashproof_sandbox::{Command, Limits};
use crashproof_trace::TraceFile;

use crate::driver::Driver;
use crate::options::CrashOptions;
use crate::state::{Programs, Stamp};
use crate::{Error, project, runtime, shell};

/// Limits of one recovery, in bytes.
pub(crate) const DEFAULT_MEMORY: u64 = 2 << 30;
pub(crate) const DEFAULT_DISK: u64 = 1 << 30;
/// For recoveries on undisturbed images, when no limit is given: long enough for any that is of use.
const UNDISTURBED_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("cannot read the expected output {}: {source}", path.display())]
    ExpectedOutput { path: PathBuf, source: std::io::Error },
    #[error(
        "--no-joint leaves out behaviours of two objects, which only the strategy `representative` tests; leave it out with \
         --strategy {strategy}"
    )]
    NoJoint { strategy: &'static str },
    #[error(
        "the strategy `conditions` takes what the program relies on from a recording of the same run with dependences; build it with \
         `crashproof cc --deps`, `crashproof record -o deps.trace -- PROGRAM`, and give --dependences deps.trace"
    )]
    NoDependences,
    #[error("cannot find out what the current folder is: {0}; change into one that exists")]
    CurrentFolder(#[source] std::io::Error),
    #[error(
        "cannot run {option} {command:?}: there is no program {}; check the path, or PATH for a name without `/`",
        program.display()
    )]
    NoProgram {
        option: &'static str,
        command: String,
        program: PathBuf,
    },
    #[error("cannot run {option} {command:?}: {} is not executable; `chmod +x` it", program.display())]
    NotExecutable {
        option: &'static str,
        command: String,
        program: PathBuf,
    },
}

pub(crate) struct Plan {
    pub recover: Command,
    /// What is judged by its output.
    pub driver: Option<Driver>,
    pub check: Option<Command>,
    pub expect_output: Option<Vec<u8>>,
    /// Of the strategy `conditions`.
    pub conditions: Option<Arc<Conditions>>,
    pub config: Config,
    pub runtime: PathBuf,
    /// The program `crashproof`.
    pub supervisor: PathBuf,
    pub jobs: usize,
    /// Absolute.
    pub save: PathBuf,
    /// Absolute: where the commands run.
    pub directory: PathBuf,
    /// The same as it was given.
    pub relative_to: PathBuf,
}

impl Plan {
    pub(crate) fn new(arguments: &CrashOptions, supervisor: PathBuf, directory: &Path) -> Result<Plan, Error> {
        let strategy = StrategyKind::from(arguments.strategy);
        if arguments.no_joint && !matches!(strategy, StrategyKind::Representative | StrategyKind::Auto) {
            let strategy = strategy.name();
            return Err(PlanError::NoJoint { strategy }.into());
        }
        let driver = Driver::of(arguments)?;
        let recover = match &driver {
            Some(_) => Command::Direct(arguments.command.clone()),
            None => shell::command("--recover", arguments.recover.as_deref().unwrap_or_default())?,
        };
        let check = match &arguments.check {
            Some(text) => Some(shell::command("--check", text)?),
            None => None,
        };
        let expect_output = match &arguments.expect_output {
            Some(path) => Some(
                std::fs::read(directory.join(path)).map_err(|source| PlanError::ExpectedOutput {
                    path: path.clone(),
                    source,
                })?,
            ),
            None => None,
        };
        let conditions = match (&arguments.dependences, strategy) {
            (Some(trace), StrategyKind::Conditions | StrategyKind::Auto) => {
                Some(Arc::new(Conditions::infer(&TraceFile::open(directory.join(trace))?)?))
            }
            // Of a driver the recording is made with the other one.
            (None, StrategyKind::Conditions) if driver.is_none() => return Err(PlanError::NoDependences.into()),
            _ => None,
        };
        let here = std::env::current_dir().map_err(PlanError::CurrentFolder)?;
        let absolute = match directory.as_os_str().is_empty() {
            true => here,
            false => here.join(directory),
        };
        let jobs = match arguments.jobs {
            Some(jobs) => usize::from(jobs),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Ok(Plan {
            recover,
            driver,
            check,
            expect_output,
            conditions,
            config: project::load_in(directory, arguments.config.as_deref())?.without_tests(),
            runtime: runtime::find()?,
            supervisor,
            jobs,
            save: absolute.join(&arguments.save),
            directory: absolute,
            relative_to: directory.to_owned(),
        })
    }

    /// That the commands can be started at all. After the set-up, which may make them.
    pub(crate) fn look_for_programs(&self) -> Result<(), PlanError> {
        let option = if self.driver.is_some() {
            "the driver"
        } else {
            "--recover"
        };
        let directory = &self.relative_to;
        executable(directory, option, &self.recover)?;
        let check = self.check.as_ref();
        check.map_or(Ok(()), |check| executable(directory, "--check", check))
    }

    pub(crate) fn campaign(&self, arguments: &CrashOptions, journal: &Path) -> CampaignOptions {
        CampaignOptions {
            model: arguments.model.into(),
            tear: !arguments.no_tear,
            reorder_in_line: arguments.reorder_in_line,
            strategy: arguments.strategy.into(),
            joint: !arguments.no_joint,
            conditions: self.conditions.clone(),
            seed: arguments.seed,
            from: arguments.from.clone(),
            until: arguments.until.clone(),
            time: arguments.time_limit(),
            max_states: arguments.max_states,
            uses_all_time: arguments.time.is_some() || arguments.max_states.is_some(),
            fail_fast: arguments.fail_fast,
            expect_output: self.expect_output.clone(),
            // Made from the trace.
            oracle: None,
            journal: Some(journal.to_owned()),
            save: Some(self.save.clone()),
            helpers: self.config.declared_helpers(),
            // The models that can be asked for have cache lines, and no edges between them.
            ..CampaignOptions::default()
        }
    }

    /// Until it is known how long an undisturbed recovery takes.
    pub(crate) fn limits(&self, arguments: &CrashOptions) -> Limits {
        Limits {
            time: arguments.timeout.map_or(UNDISTURBED_LIMIT, |time| time.0),
            memory: arguments.memory.map_or(DEFAULT_MEMORY, |size| size.0),
            disk: arguments.disk.map_or(DEFAULT_DISK, |size| size.0),
        }
    }

    /// Everything that the test runs, as far as its command lines name it: the recorded program, recovery and checker, and for
    /// a shell or an interpreter the programs among its words.
    pub(crate) fn programs(&self, arguments: &CrashOptions) -> Programs {
        let mut programs = Programs::new();
        let mut interpreted = false;
        let mut add = |word: &OsStr, first: bool| {
            // What an interpreter is given first, options aside, is a script whatever it begins with.
            let is_script = std::mem::take(&mut interpreted);
            interpreted = is_interpreter(word) || is_script && word.as_encoded_bytes().starts_with(b"-");
            let named = find(&self.relative_to, word).filter(|path| first || is_program(path));
            // A script is named to its interpreter by its path.
            let script = Some(self.relative_to.join(word))
                .filter(|path| !first && path.is_file() && (is_script || is_program(path)));
            for path in [named, script].into_iter().flatten() {
                if let Some(stamp) = stamp(&path) {
                    programs.insert(path, stamp);
                }
            }
        };
        if let Some(program) = arguments.command.first() {
            add(program, true);
        }
        for command in [Some(&self.recover), self.check.as_ref()].into_iter().flatten() {
            match command {
                Command::Direct(words) => words.iter().enumerate().for_each(|(at, word)| add(word, at == 0)),
                Command::Shell(text) => {
                    let text = text.to_string_lossy();
                    let separates = |c: char| c.is_whitespace() || "|&;<>()$`\"'{}=".contains(c);
                    let words = text.split(separates).filter(|word| !word.is_empty());
                    words.for_each(|word| add(OsStr::new(word), false));
                }
            }
        }
        programs
    }

    /// Why a test in which nobody opened these files says nothing.
    pub(crate) fn looked_at_nothing(&self, files: &[String]) -> Inconclusive {
        let recover = shell::show(&self.recover);
        let commands = match &self.check {
            Some(check) => format!("neither {recover:?} nor {:?} opened", shell::show(check)),
            None => format!("{recover:?} did not open"),
        };
        let named = match files {
            [file] => file.clone(),
            [file, rest @ ..] => format!("{file}, nor the {} other files under test", rest.len()),
            [] => "a file under test".to_owned(),
        };
        Inconclusive {
            reason: InconclusiveReason::RecoveryLookedAtNothing,
            message: format!("{commands} {named}, in any run"),
            notes: vec!["every crash state looks the same to it, so that none failed says nothing".to_owned()],
            help: "see whether the command names the files that the program stores to: it runs in this folder, and finds the crash state \
                   under the path that the program used"
                .to_owned(),
        }
    }

    /// What is tested: a test with the same text may go on where another was interrupted. What only says how long, how fast
    /// and where to is not part of it.
    pub(crate) fn identity(&self, arguments: &CrashOptions) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "version {}\nfolder {:?}\nprogram {:?}\nsetup {:?}\ntrace {:?}\nrecording {:?}",
            env!("CARGO_PKG_VERSION"),
            self.directory,
            arguments.command,
            arguments.setup,
            arguments
                .trace
                .as_ref()
                .map(|trace| (trace, stamp(&self.relative_to.join(trace)))),
            arguments.recording,
        );
        let options = CampaignOptions {
            time: None,
            max_states: None,
            uses_all_time: true,
            fail_fast: false,
            journal: None,
            save: None,
            ..self.campaign(arguments, Path::new(""))
        };
        let limits = (arguments.timeout, arguments.memory, arguments.disk);
        let _ = writeln!(
            text,
            "commands {:?} {:?}\noptions {options:?}\nlimits {limits:?}\ndriver {:?}",
            self.recover,
            self.check,
            self.driver.as_ref().map(|driver| &driver.options)
        );
        text
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = path.metadata().ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

fn program(command: &Command) -> Option<&OsStr> {
    match command {
        Command::Direct(words) => words.first().map(OsString::as_os_str),
        Command::Shell(_) => None,
    }
}

/// As execvp(3) does in a directory.
pub(crate) fn find(directory: &Path, program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(directory.join(program)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| is_executable(path))
}

/// Something that can be executed, also by naming it to an interpreter; PM files are not.
fn is_program(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    is_executable(path) || read.is_ok() && (start == *b"\x7fELF" || start.starts_with(b"#!"))
}

/// By its name, with a version or without.
fn is_interpreter(word: &OsStr) -> bool {
    const NAMES: [&str; 13] = [
        "sh", "bash", "dash", "zsh", "ksh", "ash", "python", "perl", "ruby", "node", "lua", "tclsh", "Rscript",
    ];
    let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
    NAMES.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn executable(directory: &Path, option: &'static str, command: &Command) -> Result<(), PlanError> {
    let Some(name) = program(command) else {
        return Ok(());
    };
    let shown = shell::show(command);
    match find(directory, name) {
        None => Err(PlanError::NoProgram {
            option,
            command: shown,
            program: name.into(),
        }),
        Some(path) if !is_executable(&path) => Err(PlanError::NotExecutable {
            option,
            command: shown,
            program: path,
        }),
        Some(_) => Ok(()),
    }
}
