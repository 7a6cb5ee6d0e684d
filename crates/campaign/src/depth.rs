//! `--depth 2`: power fails again, while the recovery runs.
//!
//! From some of the states from which the program recovers, the recovery is recorded (in the sandbox, by this very program)
//! and that recording is crashed like any other, with the same recovery and checker. Recordings that make the same stores, over
//! the same contents, with the same flushes and fences would tell the same, so only one of them is crashed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use crashproof_crash::{CampaignOptions, Executor, Outcome, Recovered, Survey, Verdict};
use crashproof_finding::{Finding, StrategyEnd};
use crashproof_sandbox::Command;
use crashproof_trace::{EventKind, Item, PmAddress, TraceFile};

use crashproof_interrupt as interrupt;

use crate::Error;
use crate::campaign::{Subject, Test};
use crate::executor::{SandboxExecutor, how_it_ended, quote};
use crate::options::Switch;

/// Crashes the recoveries of states of the program's trace, and adds what comes of it. Their traces go into the folder.
pub(crate) fn crash_recoveries(
    test: &Test,
    program: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    folder: &Path,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let start = Instant::now();
    let mut recorder = Recorder {
        test,
        program,
        options,
        folder,
        executor: test.executor(survey, crashproof_crash::StrategyKind::Exhaustive)?,
        seen: BTreeSet::new(),
    };
    let mut crashed = 0;
    let all = std::mem::take(&mut outcome.recovered);
    for (index, recovered) in all.iter().enumerate() {
        let tested = outcome.stats.states_tested;
        let left = all.len() - index;
        let Some(rest) = budget(options, start, tested, left) else {
            outcome.stats.cut_short = true;
            break;
        };
        let Some((trace, output)) = recorder.record(recovered, index, &mut outcome.warnings)? else {
            continue;
        };
        crashed += 1;
        let options = CampaignOptions {
            save: options
                .save
                .as_ref()
                .map(|save| save.join(format!("recovery-{crashed}"))),
            ..rest
        };
        let survey = crashproof_crash::survey(&trace, &options)?;
        if survey.points == 0 {
            continue;
        }
        let more = test.crash(&trace, &options, &survey, Subject::Recovery { output })?;
        let _ = std::fs::remove_file(trace.path());
        merge(outcome, more);
        if interrupt::requested() {
            break;
        }
    }
    if crashed == 0 {
        test.listener
            .note(&"the recovery stored nothing from any state that was tried: there is nothing of it to crash");
    }
    outcome.stats.seconds += start.elapsed().as_secs_f64();
    Ok(())
}

/// The least time for the recovery of one state.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// The share of the next of so many recoveries in what is left of the budget; none if nothing is.
fn budget(options: &CampaignOptions, start: Instant, tested: u64, recoveries: usize) -> Option<CampaignOptions> {
    let time = match options.time {
        // As much again for the recoveries as for the program.
        Some(time) => {
            let left = time.checked_sub(start.elapsed()).filter(|time| !time.is_zero())?;
            Some((left / recoveries as u32).max(LEAST_TIME).min(left))
        }
        None => None,
    };
    let max_states = match options.max_states {
        Some(states) => Some(states.checked_sub(tested).filter(|&states| states > 0)?),
        None => None,
    };
    Some(CampaignOptions {
        time,
        max_states,
        uses_all_time: false,
        from: None,
        until: None,
        journal: None,
        ..options.clone()
    })
}

struct Recorder<'a> {
    test: &'a Test<'a>,
    program: &'a TraceFile,
    options: &'a CampaignOptions,
    folder: &'a Path,
    executor: SandboxExecutor,
    /// What the recoveries did that were crashed.
    seen: BTreeSet<u64>,
}

impl Recorder<'_> {
    /// The trace of the recovery from the state, and what the program had output; none if it is of no use.
    fn record(
        &mut self,
        recovered: &Recovered,
        index: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Option<(TraceFile, Vec<u8>)>, Error> {
        let output = crashproof_crash::make_image(
            self.program,
            self.options,
            recovered.point,
            &recovered.persisted,
            &mut self.executor,
        )?;
        // Sets what the program had output, and shows whether the recovery still succeeds.
        let run = self.executor.run(&output)?;
        if crashproof_crash::judge(&run, output.len() as u64, self.options)? == Verdict::Fails {
            return Ok(None);
        }
        let trace = self.folder.join(format!("{index}.trace"));
        let ended = self.executor.worker.run_other(&self.command(&trace), self.folder)?;
        if !ended.succeeded() || !trace.exists() {
            warnings.push(format!(
                "a recovery could not be recorded to be crashed: crashproof record {}{}",
                how_it_ended(&ended),
                quote(&ended)
            ));
            return Ok(None);
        }
        let trace = TraceFile::open(trace)?;
        if !trace.outline().incomplete.is_empty() {
            warnings.push("the trace of a recovery that was crashed is incomplete".to_owned());
        }
        let is_new = deeds(&trace)?.is_some_and(|deeds| self.seen.insert(deeds));
        if !is_new {
            let _ = std::fs::remove_file(trace.path());
        }
        Ok(is_new.then_some((trace, output)))
    }

    /// `crashproof record`, with the options of the first recording.
    fn command(&self, trace: &Path) -> Command {
        let recording = &self.test.options.recording;
        let mut words: Vec<OsString> = vec![self.test.plan.supervisor.clone().into(), "record".into()];
        words.extend(["-o".into(), trace.into()]);
        for pattern in &recording.pm {
            words.extend(["--pm".into(), pattern.into()]);
        }
        let requests = if recording.client_requests == Switch::On {
            "on"
        } else {
            "off"
        };
        words.extend(["--client-requests".into(), requests.into()]);
        words.extend(recording.locked_rmw.then(|| "--locked-rmw".into()));
        words.push("--".into());
        match &self.test.plan.recover {
            Command::Direct(command) => words.extend(command.iter().cloned()),
            Command::Shell(text) => words.extend(["/bin/sh".into(), "-c".into(), text.clone()]),
        }
        Command::Direct(words)
    }
}

/// What the recovery did to PM and what it overwrote, as a hash; none if it stored nothing.
fn deeds(trace: &TraceFile) -> Result<Option<u64>, Error> {
    let mut reader = trace.reader()?;
    let mut hasher = DefaultHasher::new();
    let mut contents: BTreeMap<PmAddress, u8> = BTreeMap::new();
    let mut initial: BTreeMap<PmAddress, Vec<u8>> = BTreeMap::new();
    let mut stored = false;
    while let Some(item) = reader.next()? {
        let event = match item {
            Item::Initial { at, data } => {
                initial.insert(at, data.to_vec());
                continue;
            }
            Item::Event(event) => event,
        };
        match event.kind {
            EventKind::Store { at, data, flags } => {
                stored = true;
                (at, data, flags.nontemporal, flags.locked).hash(&mut hasher);
                for (offset, &byte) in (at.offset..).zip(data) {
                    let place = PmAddress { offset, ..at };
                    let old = contents.insert(place, byte).unwrap_or_else(|| byte_at(&initial, place));
                    old.hash(&mut hasher);
                }
            }
            EventKind::Flush { at, .. } => (1, at).hash(&mut hasher),
            EventKind::Fence { .. } => 2.hash(&mut hasher),
            EventKind::Resize { file, size } => (3, file, size).hash(&mut hasher),
            EventKind::FileWrite { at, data } => (4, at, data).hash(&mut hasher),
            EventKind::Rename { file, path } => (5, file, path).hash(&mut hasher),
            _ => {}
        }
    }
    Ok(stored.then(|| hasher.finish()))
}

/// What a file held when it was first mapped.
fn byte_at(initial: &BTreeMap<PmAddress, Vec<u8>>, place: PmAddress) -> u8 {
    let before = initial.range(..=place).next_back();
    let part = before.filter(|(at, _)| at.file == place.file);
    part.and_then(|(at, data)| data.get((place.offset - at.offset) as usize))
        .copied()
        .unwrap_or(0)
}

/// Adds the findings that are new; the same cause in another recording is one finding.
fn merge(outcome: &mut Outcome, more: Outcome) {
    let lines = |finding: &Finding| {
        let crash = finding.crash.clone()?;
        let line = |store: &crashproof_finding::CrashStore| (store.frame.file.clone(), store.frame.line);
        let persisted: Vec<_> = crash.persisted.iter().map(line).collect();
        let missing: Vec<_> = crash.missing.iter().map(line).collect();
        Some((finding.kind, crash.depth, persisted, missing))
    };
    for finding in more.findings {
        let same = outcome
            .findings
            .iter_mut()
            .find(|known| lines(known) == lines(&finding));
        match (same, &finding.crash) {
            (Some(known), Some(crash)) => {
                known.count += finding.count;
                if let Some(known) = &mut known.crash {
                    known.states += crash.states;
                }
            }
            _ => outcome.findings.push(finding),
        }
    }
    for warning in more.warnings {
        if !outcome.warnings.contains(&warning) {
            outcome.warnings.push(warning);
        }
    }
    let stats = &mut outcome.stats;
    stats.states_total = stats.states_total.saturating_add(more.stats.states_total);
    stats.states_tested += more.stats.states_tested;
    stats.states_pruned = stats.states_pruned.saturating_add(more.stats.states_pruned);
    stats.states_failed += more.stats.states_failed;
    stats.recoveries += more.stats.recoveries;
    stats.points_total = stats.points_total.saturating_add(more.stats.points_total);
    stats.points_reached += more.stats.points_reached;
    stats.cut_short |= more.stats.cut_short;
    for run in more.stats.strategies {
        match stats.strategies.iter_mut().find(|known| known.name == run.name) {
            Some(known) => {
                known.states_tested += run.states_tested;
                known.findings += run.findings;
                if run.ended != StrategyEnd::Done {
                    known.ended = run.ended;
                }
            }
            None => stats.strategies.push(run),
        }
    }
    outcome.broken |= more.broken;
    outcome.unexplained += more.unexplained;
}
