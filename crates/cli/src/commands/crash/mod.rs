//! `crashproof crash`: set up, record, look at the trace, run the recovery on undisturbed images, then on crash states, and
//! report. What is tested and why it fails is the library's; here is the order of things, and what the user is told.

mod depth;
mod driver;
mod performance;
mod plan;
mod progress;
mod replay;
mod sandbox;
mod state;
mod trace;

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crashproof_check::{Analysis, CheckOptions};
use crashproof_crash::explain::{Investigator, Words};
use crashproof_crash::oracle::OutputOracle;
use crashproof_crash::{Baseline, CampaignOptions, Executor, Outcome, StrategyKind, Survey, Verdict};
use crashproof_finding::picture::Traffic;
use crashproof_finding::{Finding, Kind, Report};
use crashproof_sandbox::{Ended, How, Run, SandboxError, Track, Worker};
use crashproof_trace::TraceFile;

pub use driver::{Driver, read_operations};

use super::Result;
use super::outcome::{self, Judge};
use crate::arguments::CrashArguments;
use crate::exit::Exit;
use crate::interrupt::{self, NothingYet};
use crate::units::Time;
use crate::{shell, terminal};
use plan::Plan;
use sandbox::{Looked, SandboxExecutor};
use state::State;

/// A recovery that takes so many times what it takes undisturbed hangs.
const HANGS: u32 = 20;
const LEAST_TIMEOUT: Duration = Duration::from_secs(2);
/// So far from where the recorded run had them are the files mapped to see whether that changes what a driver prints.
const ELSEWHERE: u64 = 1 << 36;

/// What goes wrong before a state is tested.
#[derive(Debug, thiserror::Error)]
enum CrashCommandError {
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

pub fn run(arguments: &CrashArguments) -> Result {
    if let Some(folder) = &arguments.replay {
        return replay::run(folder, arguments);
    }
    let judge = Judge::new(&arguments.results)?;
    let Tested { exit, report, .. } = report(arguments, &judge, || ())?;
    judge.tell_gone([&report], outcome::of_crash);
    outcome::write_one(&judge, &arguments.results, "crash", &report)?;
    Ok(exit)
}

/// What came of the whole test.
pub struct Tested {
    pub exit: Exit,
    pub report: Report,
    /// With `--performance`: the data whose loss makes no difference, also where an `[[ignore]]` keeps it out of the report.
    pub transient: Vec<Finding>,
}

/// The whole test; the report has been shown. `stopped` is called if Ctrl-C ends the process before there is one.
pub fn report(
    arguments: &CrashArguments,
    judge: &Judge,
    stopped: impl FnOnce() + Send + 'static,
) -> std::result::Result<Tested, Box<dyn std::error::Error>> {
    let plan = Plan::new(arguments)?;
    let stop = interrupt::watch();
    let state = State::open(&plan.identity(arguments), arguments.resume)?;
    let folder = state.folder().to_owned();
    let resumed = arguments.resume;
    // What --setup makes stays.
    let made = plan.driver.as_ref().filter(|_| arguments.setup.is_none());
    let made = made.and_then(driver::Driver::missing_pool);
    let nothing_yet = NothingYet::new(move || {
        if !resumed {
            let _ = std::fs::remove_dir_all(folder);
        }
        if let Some(pool) = made {
            let _ = std::fs::remove_file(pool);
        }
        terminal::error(&"interrupted before anything was tested");
        stopped();
        Exit::Failed.now();
    });
    trace::obtain(arguments, plan.driver.as_ref(), &state, || plan.look_for_programs())?;
    let programs = plan.programs(arguments);
    match arguments.resume {
        true => state.compare(&programs)?,
        false => state.remember(&programs)?,
    }
    let trace = TraceFile::open(state.trace())?;
    let mut options = plan.campaign(arguments, &state.journal());
    if let Some(driver) = &plan.driver {
        crashproof_crash::oracle::check_recording(&trace, &driver.options)?;
        if options.conditions.is_none() && matches!(options.strategy, StrategyKind::Auto | StrategyKind::Conditions) {
            options.conditions = driver.conditions(&trace, &state)?.map(Arc::new);
        }
        if options.conditions.is_none() && options.strategy == StrategyKind::Conditions {
            options.strategy = StrategyKind::Auto;
        }
    }
    let (program, trace_summary, seen) = trace::summary(&trace);
    if seen.no_values {
        return Err(CrashCommandError::NoValues.into());
    }
    if seen.expectations > 0 {
        terminal::note(&format_args!(
            "the program said {} times what it expects (CRASHPROOF_EXPECT_…); a crash test goes by the recovery alone, `crashproof check` \
             looks at that",
            seen.expectations
        ));
    }
    if seen.memory_stores > 0 && seen.file_stores == 0 {
        return Err(CrashCommandError::OnlyMemory.into());
    }
    if seen.memory_stores > 0 {
        terminal::note(&format_args!(
            "a crash test is of files: memory that the program registered as persistent, and that no file is behind, is left out \
             (stores: {}); `crashproof check` looks at it",
            seen.memory_stores
        ));
    }
    let mut report = Report {
        version: 1,
        program,
        trace: trace_summary,
        files: seen.files,
        left_out: seen.left_out,
        ..Report::default()
    };
    report.look_for_doubts(arguments.allowances.into());
    if !report.inconclusive.is_empty() || report.trace.stores == 0 {
        for doubt in &mut report.inconclusive {
            doubt.notes.push("nothing was crashed".to_owned());
        }
        judge.show(&mut report);
        state.remove();
        return Ok(Tested {
            exit: judge.verdict(&report),
            report,
            transient: Vec::new(),
        });
    }
    let survey = crashproof_crash::survey(&trace, &options)?;
    if survey.points == 0 {
        return Err(CrashCommandError::NothingInWindow.into());
    }
    let test = Test {
        plan: &plan,
        arguments,
        stop,
        doubtful: Arc::default(),
        looked: Arc::default(),
        compare: Cell::new(false),
        nothing_yet: Cell::new(Some(nothing_yet)),
        samples: Mutex::new(progress::Samples::new()),
    };
    options.oracle = test.oracle(&trace, &options, &survey)?;
    let mut tested = test.crash(&trace, &options, &survey, Subject::Program)?;
    if arguments.depth == 2 && !interrupt::requested() {
        let folder = state.recoveries()?;
        depth::crash_recoveries(&test, &trace, &options, &survey, &folder, &mut tested)?;
    }
    let mut transient = Vec::new();
    if arguments.performance && !interrupt::requested() {
        let checking = CheckOptions {
            model: arguments.model.into(),
            config: plan.config.clone(),
            ..CheckOptions::default()
        };
        let mut executor = test.executor(&survey, StrategyKind::Exhaustive)?;
        let findings = performance::findings(&trace, &options, &survey, &checking, &mut executor)?;
        let is_transient = |finding: &&Finding| finding.kind == Kind::TransientData;
        transient.extend(findings.iter().filter(is_transient).cloned());
        tested.findings.extend(findings);
    }
    let mut warnings = tested.warnings;
    // The report says that by itself.
    warnings.retain(|warning| !warning.starts_with("the trace is incomplete"));
    let undecided = tested.broken || tested.unexplained > 0;
    warnings.extend(plan.config.apply_ignores(&mut tested.findings, Analysis::Crash));
    let (progress, traffic) = match test.pictures() {
        true => (test.samples().take(), self::traffic(&trace, arguments)?),
        false => (Vec::new(), Vec::new()),
    };
    report = Report {
        progress,
        traffic,
        findings: tested.findings,
        warnings,
        stats: Some(tested.stats),
        ..report
    };
    if !state.has_looked(!test.looked.nobody()) {
        report.inconclusive.push(plan.looked_at_nothing(&survey.paths));
    }
    report.count_findings();
    judge.show(&mut report);
    let verdict = judge.verdict(&report);
    Ok(Tested {
        exit: conclude(&report, verdict, state, undecided),
        report,
        transient,
    })
}

/// Who causes the traffic that was recorded.
fn traffic(
    trace: &TraceFile,
    arguments: &CrashArguments,
) -> std::result::Result<Vec<Traffic>, Box<dyn std::error::Error>> {
    let options = CheckOptions {
        model: arguments.model.into(),
        traffic: true,
        ..CheckOptions::default()
    };
    let mut reader = trace.reader()?;
    Ok(crashproof_check::check(&mut reader, &options, |_, _| ())?.traffic)
}

/// The exit code, and what becomes of the state. `undecided`: the test broke, or there are failures without a finding.
fn conclude(report: &Report, verdict: Exit, state: State, undecided: bool) -> Exit {
    let cut_short = report.stats.as_ref().is_some_and(|stats| stats.cut_short);
    let interrupted = interrupt::requested();
    if !cut_short {
        state.remove();
    } else if state.can_be_resumed() {
        let why = match (interrupted, undecided) {
            (true, _) => "interrupted",
            (false, true) => "the test ended early",
            (false, false) => "the budget ended the test",
        };
        terminal::note(&format_args!(
            "{why}; the same command with --resume goes on from here (with another --time or --max-states, if you like)"
        ));
    } else if interrupted {
        terminal::note(&"interrupted; it cannot be resumed");
    }
    match verdict {
        // What was not tested may hold anything, and so may a failure that could not be explained: this is not clean.
        Exit::Clean if interrupted || undecided => Exit::Failed,
        exit => exit,
    }
}

/// Who is crashed.
#[derive(Clone)]
enum Subject {
    Program,
    /// Its recovery, after a crash before which the program had output this.
    Recovery {
        output: Vec<u8>,
    },
}

/// What the tests of the program and of its recoveries share.
struct Test<'a> {
    plan: &'a Plan,
    arguments: &'a CrashArguments,
    stop: &'static AtomicBool,
    /// Runs that may have seen what a run before them had left.
    doubtful: Arc<AtomicU64>,
    looked: Arc<Looked>,
    /// There were such: all of the image is compared after each run.
    compare: Cell<bool>,
    /// Until the first state is tested.
    nothing_yet: Cell<Option<NothingYet>>,
    samples: Mutex<progress::Samples>,
}

impl Test<'_> {
    /// There is to be a page with them.
    fn pictures(&self) -> bool {
        self.arguments.results.html.is_some()
    }

    fn samples(&self) -> MutexGuard<'_, progress::Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Crashes what a trace recorded; again from the start, if it turns out that a recovery changed the image in a way that
    /// the runtime does not see.
    fn crash(
        &self,
        trace: &TraceFile,
        options: &CampaignOptions,
        survey: &Survey,
        subject: Subject,
    ) -> std::result::Result<Outcome, Box<dyn std::error::Error>> {
        let tested = self.crash_once(trace, options, survey, subject.clone());
        if self.doubtful.swap(0, Ordering::Relaxed) == 0 || self.compare.get() {
            return tested;
        }
        if interrupt::requested() {
            return Ok(doubtful(tested?, options));
        }
        terminal::note(
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
    ) -> std::result::Result<Outcome, Box<dyn std::error::Error>> {
        let (depth, before) = match subject {
            Subject::Program => (1, Vec::new()),
            Subject::Recovery { output } => (2, output),
        };
        let executor = || -> std::result::Result<SandboxExecutor, SandboxError> {
            Ok(self.executor(survey, options.strategy)?.after(before.clone()))
        };
        let mut first = executor()?;
        let how = first.worker.how().clone();
        let baseline = crashproof_crash::baseline(trace, options, survey, &mut first)?;
        if depth == 1 {
            self.look_at(&baseline)?;
            tell_how(&how);
        }
        let limit = self
            .arguments
            .timeout
            .map_or_else(|| (first.longest * HANGS).max(LEAST_TIMEOUT), |time| time.0);
        first.worker.set_time_limit(limit);
        let mut executors: Vec<Box<dyn Executor>> = vec![Box::new(first)];
        for _ in 1..self.plan.jobs {
            let mut executor = executor()?;
            executor.worker.set_time_limit(limit);
            executors.push(Box::new(executor));
        }
        let limits = self.plan.limits(self.arguments);
        let words = Words {
            recover: shell::show(&self.plan.recover),
            check: self.plan.check.as_ref().map(shell::show),
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
        if self.pictures() {
            explainer = explainer.with_pictures(options);
        }
        drop(self.nothing_yet.take());
        let line = Mutex::new(progress::Line::new());
        self.samples().begin();
        let samples = &self.samples;
        let update = |progress: &_| {
            line.lock().unwrap_or_else(PoisonError::into_inner).update(progress);
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
    ) -> std::result::Result<Option<Arc<OutputOracle>>, Box<dyn std::error::Error>> {
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

    fn executor(&self, survey: &Survey, strategy: StrategyKind) -> std::result::Result<SandboxExecutor, SandboxError> {
        self.executor_in(survey, strategy, None)
    }

    /// With one more variable in the environment.
    fn executor_in(
        &self,
        survey: &Survey,
        strategy: StrategyKind,
        variable: Option<(OsString, OsString)>,
    ) -> std::result::Result<SandboxExecutor, SandboxError> {
        let track = match strategy.prunes() {
            true => Track::Reads,
            false => Track::Writes,
        };
        let limits = self.plan.limits(self.arguments);
        let mut options = sandbox::options(self.plan, survey, limits, track, self.arguments.no_server);
        options.compare = self.compare.get();
        options.environment.extend(variable);
        Ok(SandboxExecutor::new(
            Worker::start(&options)?,
            &self.doubtful,
            &self.looked,
        ))
    }

    /// That the recovery succeeds where nothing has crashed.
    fn look_at(&self, baseline: &Baseline) -> std::result::Result<(), CrashCommandError> {
        // What a crash in the creation of the pool leaves is for the test to judge.
        if baseline.initial.1 == Verdict::Fails && !self.arguments.crash_creation {
            let (command, ended, output) = self.failure(&baseline.initial.0);
            return Err(CrashCommandError::InitialFails { command, ended, output });
        }
        if baseline.last.1 == Verdict::Fails {
            let (command, ended, output) = self.failure(&baseline.last.0);
            return Err(CrashCommandError::FinalFails { command, ended, output });
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
                let limit = Time(self.plan.limits(self.arguments).time);
                format!("it did not end within {limit}; --timeout gives it more time")
            }
            (false, true) => "its output is not the expected one".to_owned(),
            (false, false) => format!("it {}", how_it_ended(ended)),
        };
        (shell::show(command), how, quote(ended))
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

fn how_it_ended(ended: &Ended) -> String {
    match (ended.timed_out, ended.signal, ended.status) {
        (true, ..) => "did not end within the time limit".to_owned(),
        (_, Some(signal), _) => format!("was ended by signal {signal}"),
        (_, None, Some(status)) => format!("exited with status {status}"),
        (_, None, None) => "failed".to_owned(),
    }
}

/// What a command printed, to stand below a message.
fn quote(ended: &Ended) -> String {
    let mut text = String::new();
    for (name, bytes) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
        let printed = String::from_utf8_lossy(bytes);
        if printed.trim().is_empty() {
            continue;
        }
        text += &format!("\nIts {name}:");
        for line in printed.trim_end().lines() {
            text += "\n  ";
            text += line;
        }
    }
    // SAFETY: only returns a number of this process.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root && text.contains(OVERFLOW) {
        text += "\nThat is the sandbox's limit, not the recovery's fault: without root, it cannot change files or folders that belong \
                 to other users. Run crashproof as root, or let the recovery write to folders of your own.";
    }
    text
}

/// What programs say when an overlay in a user namespace cannot copy what belongs to a user that the namespace does not have.
const OVERFLOW: &str = "Value too large for defined data type";

fn tell_how(how: &How) {
    match how {
        How::Parked => terminal::note(&"each state forks the recovery from a process that waits at its main"),
        How::Started(why) => {
            terminal::note(&format_args!(
                "each state starts the recovery anew, which is slower: {why}"
            ));
        }
    }
}
