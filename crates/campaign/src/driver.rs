//! A driver of operations as it is set up and recorded: `DRIVER POOL` with the arguments of the protocol after it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crashproof_crash::oracle::OracleOptions;
use crashproof_infer::Conditions;
use crashproof_sandbox::Ended;
use crashproof_trace::{TraceFile, replace};
use tempfile::TempPath;

use crashproof_interrupt as interrupt;

use crate::executor::{how_it_ended, quote};
use crate::options::{CrashOptions, Strategy};
use crate::recording::{self, Manner};
use crate::state::State;
use crate::{Error, Listener, executor, obtain, plan};

#[derive(Debug, thiserror::Error)]
pub enum DriverRunError {
    #[error("cannot read the operations {}: {source}; `crashproof ops generate` makes such a file", path.display())]
    Operations { path: PathBuf, source: std::io::Error },
    #[error("{} has no operations; `crashproof ops generate` makes some", path.display())]
    NoOperations { path: PathBuf },
    #[error(
        "--oracle output needs the pool of the driver: -- DRIVER POOL; crashproof appends --ops, --from, --to and --probe itself"
    )]
    NoPool,
    #[error("crashproof appends {option} itself: give the driver and its pool only, -- DRIVER POOL")]
    Own { option: String },
    #[error(
        "--depth 2 crashes a recovery, and with --oracle output that of a driver ends with operations of its own: record and crash \
         the recovery alone, with --recover"
    )]
    Depth,
    #[error(
        "--crash-creation crashes the driver while it creates its pool, but {} is there already: move it away, or name another pool",
        pool.display()
    )]
    Exists { pool: PathBuf },
    #[error("cannot run the driver {command:?}: {source}")]
    Start { command: String, source: std::io::Error },
    #[error(
        "the driver {ended} when it had to create its pool ({command}), so there is nothing to start from: it has to create {} if it is missing, \
         and exit with 0{output}", pool.display()
    )]
    Setup {
        ended: String,
        command: String,
        pool: PathBuf,
        output: String,
    },
    #[error("the driver did not create its pool: {} is not there after `{command}`, which exited with 0; it has to create a missing pool", pool.display())]
    NoPoolMade { pool: PathBuf, command: String },
    #[error(
        "the driver printed {lines} lines when it was asked for no operation (`{command}`): it has to do the operations from --from up to --to, to print one line \
         for each, and nothing else (docs/output-oracle.md){output}"
    )]
    Ignores {
        lines: usize,
        command: String,
        output: String,
    },
    #[error(
        "the driver {ended} when it did all operations, without a crash (`{command}`): it has to exit with 0, and nothing was crashed"
    )]
    Fails { ended: String, command: String },
    #[error("cannot copy the pool {}: {source}; is the disk full?", pool.display())]
    Copy { pool: PathBuf, source: std::io::Error },
    #[error(
        "the pool {} could not be put back as it was before the test ({source}): that is in {}, copy it back when what is in the way is gone",
        pool.display(), saved.display()
    )]
    PutBack {
        pool: PathBuf,
        saved: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "a test that was killed may have changed the pool {}; what it was before is in {}: move that to the pool, or remove it if it is \
         of no use", pool.display(), saved.display()
    )]
    Left { pool: PathBuf, saved: PathBuf },
    #[error("interrupted while {program} was recorded: nothing was crashed")]
    Interrupted { program: String },
}

/// Set where a driver is to allocate something in its pool that it never uses: what it prints must not change. One that has no use for it
/// ignores it.
pub(crate) const LEAK: &str = "CRASHPROOF_LEAK";

/// What `--oracle output` tests.
pub struct Driver {
    pub options: OracleOptions,
    command: Vec<OsString>,
    pool: PathBuf,
}

/// Removes a pool that was not there before: the test leaves none.
struct Made<'a>(Option<&'a Path>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A pool that is put back, or removed, when this is dropped.
pub struct KeptPool<'a> {
    listener: &'a dyn Listener,
    pool: &'a Path,
    /// None: it was not there.
    saved: Option<TempPath>,
}

impl Drop for KeptPool<'_> {
    fn drop(&mut self) {
        let Some(saved) = self.saved.take() else {
            let _ = std::fs::remove_file(self.pool);
            return;
        };
        if let Err(source) = std::fs::copy(&saved, self.pool) {
            let saved = saved.keep().unwrap_or_else(|error| error.path.to_path_buf());
            let pool = self.pool.to_owned();
            self.listener.error(&DriverRunError::PutBack { pool, saved, source });
        }
    }
}

impl Driver {
    /// `None` without `--oracle`.
    pub fn of(arguments: &CrashOptions) -> Result<Option<Driver>, DriverRunError> {
        let (Some(_), Some(path)) = (arguments.oracle, &arguments.ops) else {
            return Ok(None);
        };
        if arguments.depth > 1 {
            return Err(DriverRunError::Depth);
        }
        let own = |word: &&OsString| {
            ["--ops", "--from", "--to", "--skip", "--probe"]
                .map(OsStr::new)
                .contains(&word.as_os_str())
        };
        if let Some(option) = arguments.command.iter().find(own) {
            let option = option.to_string_lossy().into_owned();
            return Err(DriverRunError::Own { option });
        }
        let pool = match arguments.command.as_slice() {
            [_, .., pool] => PathBuf::from(pool),
            _ => return Err(DriverRunError::NoPool),
        };
        if arguments.crash_creation && pool.exists() {
            return Err(DriverRunError::Exists { pool });
        }
        Ok(Some(Driver {
            options: OracleOptions {
                file: path.clone(),
                operations: read_operations(path)?,
                suffix: arguments.suffix.0,
                criterion: arguments.criterion.0.clone(),
                creation: arguments.crash_creation,
            },
            command: arguments.command.clone(),
            pool,
        }))
    }

    /// The pool, if it is one that the test makes, and removes.
    pub fn missing_pool(&self) -> Option<PathBuf> {
        (!self.pool.exists()).then(|| self.pool.clone())
    }

    /// Keeps the pool as it is while somebody else runs the driver.
    pub fn keep_pool<'a>(&'a self, listener: &'a dyn Listener) -> Result<KeptPool<'a>, DriverRunError> {
        let pool = self.pool.as_path();
        let copy = || {
            let file = tempfile::Builder::new()
                .prefix(".crashproof-")
                .tempfile_in(replace::folder_of(pool))?;
            std::fs::copy(pool, file.path())?;
            Ok(file.into_temp_path())
        };
        let saved = pool
            .exists()
            .then(copy)
            .transpose()
            .map_err(|source| DriverRunError::Copy {
                pool: self.pool.clone(),
                source,
            })?;
        Ok(KeptPool { listener, pool, saved })
    }

    /// All operations, without a probe.
    pub fn all_operations(&self) -> Vec<OsString> {
        self.command(0, self.options.count())
    }

    fn command(&self, from: u64, to: u64) -> Vec<OsString> {
        let mut command = self.command.clone();
        command.extend(self.options.arguments(from, to, false));
        command
    }

    /// Creates the pool, if it is missing, and records all operations; once more with their dependences, if the strategy wants
    /// them and the driver has them. The pool is then what it was.
    pub fn record(&self, arguments: &CrashOptions, state: &State, listener: &dyn Listener) -> Result<(), Error> {
        let pool = || self.pool.clone();
        if state.start().exists() {
            let saved = state.start();
            return Err(DriverRunError::Left { pool: pool(), saved }.into());
        }
        let missing = !self.pool.exists();
        let made = Made(missing.then_some(&self.pool));
        if self.options.creation {
            return self.record_creation(arguments, state, listener);
        }
        if missing {
            self.set_up()?;
        }
        // What ends the driver does not end us until the pool is back.
        let held = interrupt::hold();
        let saved = if missing { state.made() } else { state.start() };
        let unfinished = saved.with_extension("unfinished");
        let copied = std::fs::copy(&self.pool, &unfinished).and_then(|_| std::fs::rename(&unfinished, &saved));
        copied.map_err(|source| DriverRunError::Copy { pool: pool(), source })?;
        let put_back = || {
            std::fs::copy(&saved, &self.pool).map_err(|source| DriverRunError::PutBack {
                pool: pool(),
                saved: saved.clone(),
                source,
            })
        };
        let recorded = self.record_operations(arguments, &state.unfinished_trace());
        let recorded = recorded.and_then(|()| {
            if self.wants_dependences(arguments) {
                put_back()?;
                if !self.record_dependences(arguments, &state.dependences(), missing, listener)? {
                    let _ = std::fs::remove_file(state.dependences());
                }
            }
            Ok(())
        });
        if !missing {
            put_back()?;
        }
        let _ = std::fs::remove_file(&saved);
        drop(made);
        drop(held);
        recorded
    }

    /// The same if the recorded run creates the pool. The caller removes it.
    fn record_creation(&self, arguments: &CrashOptions, state: &State, listener: &dyn Listener) -> Result<(), Error> {
        let _held = interrupt::hold();
        self.record_operations(arguments, &state.unfinished_trace())?;
        if !self.pool.exists() {
            let (pool, command) = (self.pool.clone(), shown(&self.all_operations()));
            return Err(DriverRunError::NoPoolMade { pool, command }.into());
        }
        if self.wants_dependences(arguments) {
            let _ = std::fs::remove_file(&self.pool);
            if !self.record_dependences(arguments, &state.dependences(), false, listener)? {
                let _ = std::fs::remove_file(state.dependences());
            }
        }
        Ok(())
    }

    fn wants_dependences(&self, arguments: &CrashOptions) -> bool {
        matches!(arguments.strategy, Strategy::Auto | Strategy::Conditions)
            && arguments.dependences.is_none()
            && self.has_dependences()
    }

    /// Whether it was built with `crashproof cc --deps`.
    fn has_dependences(&self) -> bool {
        let program = plan::find(Path::new(""), &self.command[0]);
        let within = program.and_then(|program| crashproof_sites::dependence_program(&program).ok());
        within.flatten().is_some()
    }

    fn record_operations(&self, arguments: &CrashOptions, trace: &Path) -> Result<(), Error> {
        let command = self.all_operations();
        let (ended, _) = self.record_once(arguments, &command, trace, false)?;
        if !ended.succeeded() {
            return Err(DriverRunError::Fails {
                ended: how_it_ended(&ended),
                command: shown(&command),
            }
            .into());
        }
        Ok(())
    }

    /// Whether dependences were followed. The version of the program that does so is other code, so a pool that holds pointers to code (a
    /// virtual table, a function) is not the same to it: then it makes one of its own, if the pool is one that the driver makes.
    fn record_dependences(
        &self,
        arguments: &CrashOptions,
        trace: &Path,
        makes_pool: bool,
        listener: &dyn Listener,
    ) -> Result<bool, Error> {
        let operations = self.all_operations();
        let (ended, followed) = self.record_once(arguments, &operations, trace, true)?;
        if ended.succeeded() {
            return Ok(followed);
        }
        if makes_pool && std::fs::remove_file(&self.pool).is_ok() {
            let (created, _) = self.record_once(arguments, &self.command(0, 0), trace, true)?;
            if created.succeeded() {
                let (ended, followed) = self.record_once(arguments, &operations, trace, true)?;
                if ended.succeeded() {
                    listener.note(
                        &"the version of the driver that follows dependences cannot go on with the pool of the other one (pointers to code in it?); it made its own",
                    );
                    return Ok(followed);
                }
            }
        }
        listener.note(&format_args!(
            "the version of the driver that follows dependences {}, where the driver itself does not: it is other code, and a pool that holds pointers to code, \
             or addresses that the program does not fix, means something else to it",
            how_it_ended(&ended)
        ));
        Ok(false)
    }

    /// How it ended, and whether dependences were followed.
    fn record_once(
        &self,
        arguments: &CrashOptions,
        command: &[OsString],
        trace: &Path,
        dependences: bool,
    ) -> Result<(Ended, bool), Error> {
        let stopped = || {
            let program = self.command[0].to_string_lossy().into_owned();
            Err(DriverRunError::Interrupted { program }.into())
        };
        if interrupt::requested() {
            return stopped();
        }
        let manner = Manner {
            kept: true,
            quiet: true,
            dependences,
            remedy: Some(obtain::NO_ROOM),
        };
        let recorded = obtain::whole(recording::record(command, trace, &arguments.recording, manner)?)?;
        if recorded.end.interrupted || recorded.end.terminated {
            interrupt::request();
            return stopped();
        }
        let ended = Ended {
            status: recorded.end.status,
            signal: recorded.end.signal,
            ..Ended::default()
        };
        Ok((ended, recorded.dependences))
    }

    /// What the code relies on, by the recording with dependences; none if there is none. Operations of which the two recordings do not
    /// tell the same are told of.
    pub fn conditions(
        &self,
        trace: &TraceFile,
        state: &State,
        listener: &dyn Listener,
    ) -> Result<Option<Conditions>, Error> {
        let dependences = state.dependences();
        if !dependences.exists() {
            let why = match self.has_dependences() {
                true => "the dependences of the driver could not be recorded",
                false => "the driver was not built with `crashproof cc --deps`",
            };
            listener.note(&format_args!(
                "{why}, so nothing says what its code relies on: the strategy `conditions` is left out"
            ));
            return Ok(None);
        }
        let dependences = TraceFile::open(dependences)?;
        let differing = crashproof_crash::oracle::differing_operations(trace, &dependences)?;
        if let Some(&first) = differing.first() {
            let text = self.options.operations.get(first as usize).map_or("", String::as_str);
            listener.note(&format_args!(
                "{} of {} operations store to persistent memory in another sequence when their dependences are followed, the first is {first} ({text}): \
                 the compiler made other stores of them, and there only conditions by type and field are sure to apply",
                differing.len(),
                self.options.count()
            ));
        }
        Ok(Some(Conditions::infer(&dependences)?))
    }

    /// No operation, on a pool that is not there.
    fn set_up(&self) -> Result<(), DriverRunError> {
        let command = self.command(0, 0);
        let ended = run(&command)?;
        let pool = || self.pool.clone();
        let output = quote(&ended);
        let (command, lines) = (
            shown(&command),
            ended.stdout.split_inclusive(|&byte| byte == b'\n').count(),
        );
        if !ended.succeeded() {
            let (ended, pool) = (how_it_ended(&ended), pool());
            return Err(DriverRunError::Setup {
                ended,
                command,
                pool,
                output,
            });
        }
        if lines > 0 {
            return Err(DriverRunError::Ignores { lines, command, output });
        }
        match self.pool.exists() {
            true => Ok(()),
            false => Err(DriverRunError::NoPoolMade { pool: pool(), command }),
        }
    }
}

pub fn read_operations(path: &Path) -> Result<Vec<String>, DriverRunError> {
    let content = std::fs::read(path).map_err(|source| DriverRunError::Operations {
        path: path.to_owned(),
        source,
    })?;
    let operations: Vec<String> = String::from_utf8_lossy(&content).lines().map(str::to_owned).collect();
    match operations.is_empty() {
        true => Err(DriverRunError::NoOperations { path: path.to_owned() }),
        false => Ok(operations),
    }
}

/// Flushes as the recorded driver and the recoveries do.
fn run(command: &[OsString]) -> Result<Ended, DriverRunError> {
    let mut process = Command::new(&command[0]);
    process
        .args(&command[1..])
        .envs(executor::environment())
        .stdin(Stdio::null());
    crashproof_record::keep(&mut process);
    let Output { status, stdout, stderr } = process.output().map_err(|source| DriverRunError::Start {
        command: shown(command),
        source,
    })?;
    Ok(Ended {
        status: status.code(),
        signal: std::os::unix::process::ExitStatusExt::signal(&status),
        timed_out: false,
        stdout,
        stderr,
    })
}

fn shown(command: &[OsString]) -> String {
    shell_words::join(command.iter().map(|word| word.to_string_lossy()))
}
