//! The order of things in a crash test: set up, record, look at the trace, run the recovery on undisturbed images, then on crash
//! states, and make the report. What is tested and why it fails is `crashproof_crash`'s.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crashproof_check::{Analysis, CheckOptions};
use crashproof_crash::explain::{Investigator, Words};
use crashproof_crash::oracle::OutputOracle;
use crashproof_crash::{Baseline, CampaignOptions, Executor, Outcome, StrategyKind, Survey, Verdict};
use crashproof_finding::picture::Traffic;
use crashproof_finding::{Finding, Kind, Report};
use crashproof_interrupt::{self as interrupt, NothingYet};
use crashproof_sandbox::{How, Run, SandboxError, Track, Worker};
use crashproof_trace::TraceFile;

use crate::driver::{self, Driver};
use crate::executor::{self, Looked, SandboxExecutor, how_it_ended, quote};
use crate::options::CrashOptions;
use crate::plan::Plan;
use crate::samples::Samples;
use crate::state::{self, State};
use crate::units::Time;
use crate::{Error, Listener, depth, obtain, performance, shell};

/// A recovery that takes so many times what it takes undisturbed hangs.
const HANGS: u32 = 20;
const LEAST_TIMEOUT: Duration = Duration::from_secs(2);
/// So far from where the recorded run had them are the files mapped to see whether that changes what a driver prints.
const ELSEWHERE: u64 = 1 << 36;

/// What goes wrong before a state is tested.
#[derive(Debug, thiserror::Error)]
enum CampaignError {
    #[error(
        "the program stored nothing to persistent memory between --from and --until, so there is nothing to crash; choose other \
         functions, or leave them away"
    )]
    NothingInWindow,
    #[error(
        "the trace has no values: it is of a log of PMTest, which says where a program stores, and not what, nor to which file, so there \
         is nothing to crash. `crashproof check` and `crashproof repair` take it; to crash the program, let crashproof record it: \
         `crashproof crash --recover CMD -- PROGRAM`"
    )]
    NoValues,
    #[error(
        "a crash test is of files, and the program stored to none: it registered memory as persistent \
         (VALGRIND_PMC_REGISTER_PMEM_MAPPING) that no file is behind, which a recovery could not find again. `crashproof check` \
         looks at the stores to such memory"
    )]
    OnlyMemory,
    #[error(
        "{command:?} fails on the files as they were before the first crash point ({ended}), so nothing can be said about \
         crashes.\nA file that the program has yet to make, or to initialise, rightly fails: make it with --setup CMD, or \
         begin with the first call of a function after that, --from FUNCTION. Else see whether the command is right: it \
         runs in this folder, and has to exit with 0 if all is well.{output}"
    )]
    InitialFails {
        command: String,
        ended: String,
        output: String,
    },
    #[error(
        "{command:?} fails on the files as the program left them ({ended}), so nothing can be said about crashes.\nSee \
         whether the command is right: it runs in this folder, after the program has ended, and has to exit with 0 if all \
         is well. If the program ends with the files in a state that is not to be recovered, stop before with --until \
         FUNCTION.{output}"
    )]
    FinalFails {
        command: String,
        ended: String,
        output: String,
    },
}

/// A crash test that can be made.
pub struct Campaign<'a> {
    options: &'a CrashOptions,
    plan: Plan,
    listener: &'a dyn Listener,
    /// Below this is what an interrupted test needs to go on.
    states: Option<PathBuf>,
    pictures: bool,
}

/// What came of the whole test.
pub struct Tested {
    pub report: Report,
    /// With `--performance`: the data whose loss makes no difference, also where an `[[ignore]]` keeps it out of the report.
    pub transient: Vec<Finding>,
    /// The user asked for an end.
    pub interrupted: bool,
    /// The test broke, or there are failures without a finding.
    pub undecided: bool,
    /// It ended early, and the same test with `--resume` goes on from there.
    pub resumable: bool,
}

impl Tested {
    /// No finding means that none is there to be found by this test. What was not tested may hold anything, and so may a failure
    /// that could not be explained.
    pub fn is_decided(&self) -> bool {
        !self.interrupted && !self.undecided
    }

    /// The test came to no end: a budget ended it, the user, or an error.
    pub fn is_cut_short(&self) -> bool {
        self.report.stats.as_ref().is_some_and(|stats| stats.cut_short)
    }
}

impl<'a> Campaign<'a> {
    /// Looks at everything that can be wrong before anything runs. `supervisor` is the program `crashproof`. The commands run in
    /// `directory`, and relative paths begin there. If it is empty, it is the directory of this process, in which a program
    /// is recorded in any case.
    pub fn new(
        options: &'a CrashOptions,
        supervisor: PathBuf,
        directory: &Path,
        listener: &'a dyn Listener,
    ) -> Result<Campaign<'a>, Error> {
        Ok(Campaign {
            options,
            plan: Plan::new(options, supervisor, directory)?,
            listener,
            states: state::root(),
            pictures: false,
        })
    }

    /// With the pictures of an HTML page, if there is to be one.
    pub fn with_pictures(self, pictures: bool) -> Campaign<'a> {
        Campaign { pictures, ..self }
    }

    /// Keeps what an interrupted test needs below this folder, not where the user has such things.
    pub fn with_states(self, folder: PathBuf) -> Campaign<'a> {
        Campaign {
            states: Some(folder),
            ..self
        }
    }

    /// The whole test. `stopped` is called from another thread, and has to end the process, if a stop is asked for before a
    /// state is tested: what was made until then is gone by then.
    pub fn run(self, stopped: impl FnOnce() + Send + 'static) -> Result<Tested, Error> {
        let stop = interrupt::watch();
        let identity = self.plan.identity(self.options);
        let state = State::open(self.states.as_deref(), &identity, self.options.resume, self.listener)?;
        let nothing_yet = self.nothing_yet(&state, stopped);
        obtain::obtain(self.options, &self.plan, &state, self.listener)?;
        let programs = self.plan.programs(self.options);
        match self.options.resume {
            true => state.compare(&programs)?,
            false => state.remember(&programs)?,
        }
        let trace = TraceFile::open(state.trace())?;
        let mut options = self.strategy(&trace, &state)?;
        let mut report = self.begin_report(&trace)?;
        if !report.inconclusive.is_empty() || report.trace.stores == 0 {
            for doubt in &mut report.inconclusive {
                doubt.notes.push("nothing was crashed".to_owned());
            }
            state.remove();
            return Ok(Tested {
                report,
                transient: Vec::new(),
                interrupted: false,
                undecided: false,
                resumable: false,
            });
        }
        let survey = crashproof_crash::survey(&trace, &options)?;
        if survey.points == 0 {
            return Err(CampaignError::NothingInWindow.into());
        }
        let test = Test {
            plan: &self.plan,
            options: self.options,
            listener: self.listener,
            pictures: self.pictures,
            stop,
            doubtful: Arc::default(),
            looked: Arc::default(),
            compare: Cell::new(false),
            nothing_yet: Cell::new(Some(nothing_yet)),
            samples: Mutex::new(Samples::new()),
        };
        options.oracle = test.oracle(&trace, &options, &survey)?;
        let mut outcome = test.crash(&trace, &options, &survey, Subject::Program)?;
        if self.options.depth == 2 && !interrupt::requested() {
            let folder = state.recoveries()?;
            depth::crash_recoveries(&test, &trace, &options, &survey, &folder, &mut outcome)?;
        }
        let mut transient = Vec::new();
        if self.options.performance && !interrupt::requested() {
            let findings = test.performance(&trace, &options, &survey)?;
            let is_transient = |finding: &&Finding| finding.kind == Kind::TransientData;
            transient.extend(findings.iter().filter(is_transient).cloned());
            outcome.findings.extend(findings);
        }
        if !state.has_looked(!test.looked.nobody()) {
            report.inconclusive.push(self.plan.looked_at_nothing(&survey.paths));
        }
        if self.pictures {
            report.progress = test.samples().take();
            report.traffic = traffic(&trace, self.options)?;
        }
        let undecided = outcome.broken || outcome.unexplained > 0;
        self.complete(&mut report, outcome);
        let mut tested = Tested {
            report,
            transient,
            interrupted: interrupt::requested(),
            undecided,
            resumable: false,
        };
        match tested.is_cut_short() {
            true => tested.resumable = state.can_be_resumed(),
            false => state.remove(),
        }
        Ok(tested)
    }

    /// Until a state is tested, a stop leaves nothing behind.
    fn nothing_yet(&self, state: &State, stopped: impl FnOnce() + Send + 'static) -> NothingYet {
        let folder = (!self.options.resume).then(|| state.folder().to_owned());
        // What --setup makes stays.
        let driver = self.plan.driver.as_ref().filter(|_| self.options.setup.is_none());
        let made = driver.and_then(Driver::missing_pool);
        NothingYet::new(move || {
            if let Some(folder) = folder {
                let _ = std::fs::remove_dir_all(folder);
            }
            if let Some(pool) = made {
                let _ = std::fs::remove_file(pool);
            }
            stopped();
        })
    }

    /// How states are chosen: by what a driver's code relies on only if there is a recording that tells.
    fn strategy(&self, trace: &TraceFile, state: &State) -> Result<CampaignOptions, Error> {
        let mut options = self.plan.campaign(self.options, &state.journal());
        if let Some(driver) = &self.plan.driver {
            crashproof_crash::oracle::check_recording(trace, &driver.options)?;
            if options.conditions.is_none() && matches!(options.strategy, StrategyKind::Auto | StrategyKind::Conditions)
            {
                options.conditions = driver.conditions(trace, state, self.listener)?.map(Arc::new);
            }
            if options.conditions.is_none() && options.strategy == StrategyKind::Conditions {
                options.strategy = StrategyKind::Auto;
            }
        }
        Ok(options)
    }

    /// What the trace alone says.
    fn begin_report(&self, trace: &TraceFile) -> Result<Report, Error> {
        let (program, summary, seen) = obtain::summary(trace);
        if seen.no_values {
            return Err(CampaignError::NoValues.into());
        }
        if seen.expectations > 0 {
            self.listener.note(&format_args!(
                "the program said {} times what it expects (CRASHPROOF_EXPECT_…); a crash test goes by the recovery alone, `crashproof check` \
                 looks at that",
                seen.expectations
            ));
        }
        if seen.memory_stores > 0 && seen.file_stores == 0 {
            return Err(CampaignError::OnlyMemory.into());
        }
        if seen.memory_stores > 0 {
            self.listener.note(&format_args!(
                "a crash test is of files: memory that the program registered as persistent, and that no file is behind, is left out \
                 (stores: {}); `crashproof check` looks at it",
                seen.memory_stores
            ));
        }
        let mut report = Report {
            version: 1,
            program,
            trace: summary,
            files: seen.files,
            left_out: seen.left_out,
            ..Report::default()
        };
        report.look_for_doubts(self.options.allowances.into());
        Ok(report)
    }

    fn complete(&self, report: &mut Report, mut outcome: Outcome) {
        // The report says that by itself.
        outcome
            .warnings
            .retain(|warning| !warning.starts_with("the trace is incomplete"));
        let unused = self.plan.config.apply_ignores(&mut outcome.findings, Analysis::Crash);
        outcome.warnings.extend(unused);
        report.findings = outcome.findings;
        report.warnings = outcome.warnings;
        report.stats = Some(outcome.stats);
        report.count_findings();
    }
}

/// Who causes the traffic that was recorded.
fn traffic(trace: &TraceFile, arguments: &CrashOptions) -> Result<Vec<Traffic>, Error> {
    let options = CheckOptions {
        model: arguments.model.into(),
        traffic: true,
        ..CheckOptions::default()
    };
    let mut reader = trace.reader()?;
    Ok(crashproof_check::check(&mut reader, &options, |_, _| ())?.traffic)
}

/// Who is crashed.
#[derive(Clone)]
pub(crate) enum Subject {
    Program,
    /// Its recovery, after a crash before which the program had output this.
    Recovery {
        output: Vec<u8>,
    },
}

/// What the tests of the program and of its recoveries share.
pub(crate) struct Test<'a> {
    pub plan: &'a Plan,
    pub options: &'a CrashOptions,
    pub listener: &'a dyn Listener,
    /// There is to be a page with them.
    pictures: bool,
    stop: &'static AtomicBool,
    /// Runs that may have seen what a run before them had left.
    doubtful: Arc<AtomicU64>,
    looked: Arc<Looked>,
    /// There were such: all of the image is compared after each run.
    compare: Cell<bool>,
    /// Until the first state is tested.
    nothing_yet: Cell<Option<NothingYet>>,
    samples: Mutex<Samples>,
}

impl Test<'_> {
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Crashes what a trace recorded; again from the start, if it turns out that a recovery changed the image in a way that
    /// the runtime does not see.
    pub(crate) fn crash(
        &self,
        trace: &TraceFile,
        options: &CampaignOptions,
        survey: &Survey,
        subject: Subject,
    ) -> Result<Outcome, Error> {
        let tested = self.crash_once(trace, options, survey, subject.clone());
        if self.doubtful.swap(0, Ordering::Relaxed) == 0 || self.compare.get() {
            return tested;
        }
        if interrupt::requested() {
            return Ok(doubtful(tested?, options));
        }
        self.listener.note(
            &"the recovery changed the files in a way that cannot be watched; everything is tested again, and the files are \
              compared after each run, which is slower",
        );
        self.compare.set(true);
        self.samples().begin_again();
        if let Some(journal) = &options.journal {
            let _ = std::fs::remove_file(journal);
        }
        self.crash_once(trace, options, survey, subject)
    }

    fn crash_once(
        &self,
        trace: &TraceFile,
        options: &CampaignOptions,
        survey: &Survey,
        subject: Subject,
    ) -> Result<Outcome, Error> {
        let (depth, before) = match subject {
            Subject::Program => (1, Vec::new()),
            Subject::Recovery { output } => (2, output),
        };
        let executor = || -> Result<SandboxExecutor, SandboxError> {
            Ok(self.executor(survey, options.strategy)?.after(before.clone()))
        };
        let mut first = executor()?;
        let how = first.worker.how().clone();
        let baseline = crashproof_crash::baseline(trace, options, survey, &mut first)?;
        if depth == 1 {
            self.look_at(&baseline)?;
            self.tell_how(&how);
        }
        let limit = self
            .options
            .timeout
            .map_or_else(|| (first.longest * HANGS).max(LEAST_TIMEOUT), |time| time.0);
        first.worker.set_time_limit(limit);
        let mut executors: Vec<Box<dyn Executor>> = vec![Box::new(first)];
        for _ in 1..self.plan.jobs {
            let mut executor = executor()?;
            executor.worker.set_time_limit(limit);
            executors.push(Box::new(executor));
        }
        let limits = self.plan.limits(self.options);
        let words = Words {
            recover: shell::show(&self.plan.recover),
            check: self.plan.check.as_ref().map(shell::show),
            directory: self.plan.directory.clone(),
            timeout: limit,
            memory: limits.memory,
            disk: limits.disk,
            paths: survey.paths.clone(),
            depth,
        };
        // Explaining needs no reads.
        let mut executor = self
            .executor(survey, StrategyKind::Exhaustive)?
            .after(before)
            .until(self.stop, options.time_to_explain().map(|time| Instant::now() + time));
        executor.worker.set_time_limit(limit);
        let mut explainer = Investigator::new(trace, options, Box::new(executor), words)?;
        if self.pictures {
            explainer = explainer.with_pictures(options);
        }
        drop(self.nothing_yet.take());
        let line = Mutex::new(self.listener.testing());
        self.samples().begin();
        let samples = &self.samples;
        let update = |progress: &_| {
            line.lock().unwrap_or_else(PoisonError::into_inner)(progress);
            samples.lock().unwrap_or_else(PoisonError::into_inner).add(progress);
        };
        Ok(crashproof_crash::run(
            trace,
            options,
            survey,
            executors,
            Box::new(explainer),
            &update,
            self.stop,
        )?)
    }

    /// The oracle of a driver's output, if it is a driver, and one that can be judged.
    fn oracle(
        &self,
        trace: &TraceFile,
        options: &CampaignOptions,
        survey: &Survey,
    ) -> Result<Option<Arc<OutputOracle>>, Error> {
        let Some(driver) = &self.plan.driver else {
            return Ok(None);
        };
        let executor = self.executor(survey, StrategyKind::Exhaustive)?;
        let oracle = OutputOracle::new(trace, driver.options.clone(), options, Box::new(executor))?;
        // At other addresses, and with something more in the pool.
        let mut anywhere = survey.clone();
        for mapping in &mut anywhere.mappings {
            mapping.address += ELSEWHERE;
        }
        let leaks = (driver::LEAK.into(), "1".into());
        let elsewhere = self.executor_in(&anywhere, StrategyKind::Exhaustive, Some(leaks))?;
        oracle.check_driver(trace, options, Box::new(elsewhere))?;
        Ok(Some(Arc::new(oracle)))
    }

    /// What the run did for nothing.
    fn performance(
        &self,
        trace: &TraceFile,
        options: &CampaignOptions,
        survey: &Survey,
    ) -> Result<Vec<Finding>, Error> {
        let checking = CheckOptions {
            model: self.options.model.into(),
            config: self.plan.config.clone(),
            ..CheckOptions::default()
        };
        let mut executor = self.executor(survey, StrategyKind::Exhaustive)?;
        performance::findings(trace, options, survey, &checking, &mut executor)
    }

    pub(crate) fn executor(&self, survey: &Survey, strategy: StrategyKind) -> Result<SandboxExecutor, SandboxError> {
        self.executor_in(survey, strategy, None)
    }

    /// With one more variable in the environment.
    fn executor_in(
        &self,
        survey: &Survey,
        strategy: StrategyKind,
        variable: Option<(OsString, OsString)>,
    ) -> Result<SandboxExecutor, SandboxError> {
        let track = match strategy.prunes() {
            true => Track::Reads,
            false => Track::Writes,
        };
        let limits = self.plan.limits(self.options);
        let mut options = executor::options(self.plan, survey, limits, track, self.options.no_server);
        options.compare = self.compare.get();
        options.environment.extend(variable);
        Ok(SandboxExecutor::new(
            Worker::start(&options)?,
            &self.doubtful,
            &self.looked,
        ))
    }

    /// That the recovery succeeds where nothing has crashed.
    fn look_at(&self, baseline: &Baseline) -> Result<(), CampaignError> {
        // What a crash in the creation of the pool leaves is for the test to judge.
        if baseline.initial.1 == Verdict::Fails && !self.options.crash_creation {
            let (command, ended, output) = self.failure(&baseline.initial.0);
            return Err(CampaignError::InitialFails { command, ended, output });
        }
        if baseline.last.1 == Verdict::Fails {
            let (command, ended, output) = self.failure(&baseline.last.0);
            return Err(CampaignError::FinalFails { command, ended, output });
        }
        Ok(())
    }

    /// The command that failed, how, and what it said.
    fn failure(&self, run: &Run) -> (String, String, String) {
        let (command, ended) = match (&run.check, &self.plan.check) {
            (Some(ended), Some(command)) if !ended.succeeded() => (command, ended),
            _ => (&self.plan.recover, &run.recovery),
        };
        let how = match (ended.timed_out, ended.succeeded()) {
            (true, _) => {
                let limit = Time(self.plan.limits(self.options).time);
                format!("it did not end within {limit}; --timeout gives it more time")
            }
            (false, true) => "its output is not the expected one".to_owned(),
            (false, false) => format!("it {}", how_it_ended(ended)),
        };
        (shell::show(command), how, quote(ended))
    }

    fn tell_how(&self, how: &How) {
        match how {
            How::Parked => self
                .listener
                .note(&"each state forks the recovery from a process that waits at its main"),
            How::Started(why) => {
                self.listener.note(&format_args!(
                    "each state starts the recovery anew, which is slower: {why}"
                ));
            }
        }
    }
}

/// The outcome of a test that was interrupted before it could be repeated with care: it is not to be gone on from.
fn doubtful(mut tested: Outcome, options: &CampaignOptions) -> Outcome {
    tested.broken = true;
    tested.warnings.push(
        "the recovery changed the files in a way that cannot be watched, and the test was interrupted before it could be \
         repeated with a comparison after each run: what it found may be wrong, and --resume begins anew"
            .to_owned(),
    );
    if let Some(journal) = &options.journal {
        let _ = std::fs::remove_file(journal);
    }
    tested
}
