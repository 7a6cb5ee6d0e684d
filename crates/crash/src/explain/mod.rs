//! From crash states that fail to findings: each is reduced to the stores that matter, and states that fail for the same
//! reason are one finding.
//!
//! A campaign can meet thousands of failing states with a handful of causes. Reducing one takes a few dozen runs of the
//! recovery, so a state is first held against the causes that are known: if the stores that a cause misses are persisted in
//! the state and it recovers, that cause explains it, with one run. A cause that has explained many that way is believed
//! without a run where the same source lines are missing and persisted. Where the program's own prefix fails for a known
//! reason, a state is held against that first, and is looked into if it fails for another one as well.

mod cause;
pub(crate) mod clusters;
mod history;
mod known;
mod left;
mod places;
mod relied;
mod save;
pub(crate) mod shrink;
mod snapshots;
#[cfg(test)]
mod tests;
mod timeline;
mod words;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crashproof_finding::picture::TimelineKind;
use crashproof_finding::{Finding, Kind, ViolatedCondition};
use crashproof_sandbox::Run;
use crashproof_trace::{ReadError, TraceFile};
use rustc_hash::FxHashMap;

use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::executor::{Executor, ExecutorError, Explainer, Failure, StoreId};
use crate::representative;
use cause::{Cause, Form, Investigation, Subject};
use clusters::{Clusters, Doing};
use history::Index;
pub(crate) use history::{Laboratory, Reach};
use known::{FailingSpan, Known, Signature, Spots};
use left::Left;
use places::Places;
use relied::Relied;
use snapshots::Suspect;
pub(crate) use timeline::Scene;

pub use save::{LoadError, SavedCrash, SavedFile, SavedMapping, load};

/// Causes that one state is looked into for.
const MAX_CAUSES: usize = 4;
/// Known causes that a state is held against before it is investigated by itself.
const MAX_COMPARED: usize = 8;

/// The commands as the user gave them, for findings and for the replay.
#[derive(Clone, Debug)]
pub struct Words {
    pub recover: String,
    pub check: Option<String>,
    /// Where they run.
    pub directory: PathBuf,
    /// Of one run.
    pub timeout: Duration,
    /// Limits of one run, in bytes, and all paths that PM files had in the recorded one: for a replay.
    pub memory: u64,
    pub disk: u64,
    pub paths: Vec<String>,
    /// 1: the program is crashed; 2: its recovery.
    pub depth: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Oracle(Box<CrashError>),
    #[error(
        "store {}.{} of a failing state is not in the trace {}; do not record into the trace's file while it is tested",
        id.seq, id.piece, trace.display()
    )]
    UnknownStore { id: StoreId, trace: PathBuf },
    #[error("cannot save the failing image in {}: {source}; free some space, or choose another place with --save", path.display())]
    Save { path: PathBuf, source: std::io::Error },
}

pub struct Investigator {
    lab: Laboratory,
    places: Places,
    save: Option<PathBuf>,
    words: Words,
    known: Vec<Known>,
    clusters: Clusters,
    /// Made for the first finding, where conditions are known; `None` within: it could not be made.
    relied: Option<Option<Relied>>,
    /// The causes of states in which the program's prefix fails, so that those alike need no run.
    explained: FxHashMap<Signature, Vec<usize>>,
    /// States that failed in the campaign and not here.
    unconfirmed: u64,
    left: Left,
    /// Images that could not be saved, pictures that could not be drawn.
    undone: Vec<String>,
    /// For the pictures; none are wanted otherwise.
    drawn: Option<CampaignOptions>,
}

impl Investigator {
    pub fn new(
        trace: &TraceFile,
        options: &CampaignOptions,
        executor: Box<dyn Executor>,
        words: Words,
    ) -> Result<Self, CrashError> {
        Ok(Investigator {
            lab: Laboratory::new(trace, options, executor)?,
            places: Places::new(options.helpers.clone()),
            save: options.save.clone(),
            words,
            known: Vec::new(),
            clusters: Clusters::new(trace, options.conditions.as_deref()),
            relied: None,
            explained: FxHashMap::default(),
            unconfirmed: 0,
            left: Left::default(),
            undone: Vec::new(),
            drawn: None,
        })
    }

    /// Draws the timeline and the persistence graph of each finding, too.
    pub fn with_pictures(self, options: &CampaignOptions) -> Self {
        Investigator {
            drawn: Some(options.clone()),
            ..self
        }
    }

    /// Takes a failing state in. Whether it has a cause that was not known.
    fn take(&mut self, failure: &Failure) -> Result<bool, ExplainError> {
        let subject = self.subject(failure)?;
        let spots = self.spots(&subject);
        let before = self.known.len();
        let doing: Option<Doing> = self.clusters.doing(failure.point);
        if let Some(index) = self.known.iter().position(|known| known.is_believed(&spots)) {
            self.known[index].count(doing);
            return Ok(false);
        }
        let alike = doing.and_then(|doing| self.clusters.causes(doing, &spots));
        let causes = match alike {
            Some(causes) => causes.to_vec(),
            None => self.causes(&subject, &spots)?,
        };
        self.unconfirmed += u64::from(causes.is_empty());
        for &index in &causes {
            self.known[index].count(doing);
        }
        if let Some(doing) = doing
            && !causes.is_empty()
        {
            self.clusters.explain(doing, spots, &causes);
        }
        Ok(self.known.len() > before)
    }

    /// Why a state fails; nothing, if it does not fail again.
    fn causes(&mut self, subject: &Subject, spots: &Spots) -> Result<Vec<usize>, ExplainError> {
        let mut causes: Vec<usize> = Vec::new();
        loop {
            // Where the prefix fails for known reasons, whether there is another.
            let ranges = known::ranges_at(&self.known, subject);
            let signature = (ranges.clone(), spots.clone());
            if let Some(explained) = self.explained.get(&signature) {
                return Ok(explained.clone());
            }
            let mut investigation = Investigation::new(&mut self.lab, &mut self.places);
            if let Some(&(first, _)) = ranges.first() {
                let (persisted, missing) = known::updates_of(&self.known, &ranges);
                if causes.is_empty() {
                    causes.push(first);
                }
                if causes.len() >= MAX_CAUSES || !investigation.beyond(subject, &persisted, &missing)? {
                    self.explained.insert(signature, causes.clone());
                    return Ok(causes);
                }
                investigation.keep_missing(&persisted);
            }
            let state = investigation.state(subject);
            if !investigation.lab.fails(&state)? {
                return Ok(causes);
            }
            if let Some(index) = healing(&mut self.known, &mut investigation, subject, spots)? {
                self.known[index].confirmed += 1;
                push_new(&mut causes, index);
                return Ok(causes);
            }
            if let Some(suspect) = investigation.suspect(subject)? {
                let index = self.note_suspect(suspect)?;
                push_new(&mut causes, index);
                return Ok(causes);
            }
            let Some(cause) = investigation.investigate(subject)? else {
                return Ok(causes);
            };
            // Of a state with several reasons one is left now, which may be a snapshot.
            let reduced = cause.subject();
            let mut investigation = Investigation::new(&mut self.lab, &mut self.places);
            let index = match investigation.suspect(&reduced)? {
                Some(suspect) => self.note_suspect(suspect)?,
                None => self.note(&cause)?,
            };
            if !push_new(&mut causes, index) || cause.form == Form::Lost {
                return Ok(causes);
            }
            if known::ranges_at(&self.known, subject) == ranges {
                return Ok(causes);
            }
        }
    }

    /// The number of the cause that a state fails for which lacks a snapshot.
    fn note_suspect(&mut self, suspect: Suspect) -> Result<usize, ExplainError> {
        for (index, known) in self.known.iter_mut().enumerate() {
            if let Some(snapshot) = &mut known.snapshot
                && snapshot.is_same(&suspect.snapshot)
            {
                snapshot.extend(&suspect.snapshot);
                known.confirmed += 1;
                return Ok(index);
            }
        }
        let mut investigation = Investigation::new(&mut self.lab, &mut self.places);
        investigation.keep_missing(&suspect.kept);
        let aside: Vec<Index> = suspect.kept.iter().copied().collect();
        let subject = suspect.subject().clone();
        let mut cause = investigation.lacking_snapshot(suspect)?;
        investigation.take_back(&mut cause, &subject, &aside)?;
        self.note(&cause)
    }

    /// The number of the cause, which is put into words if it is new.
    fn note(&mut self, cause: &Cause) -> Result<usize, ExplainError> {
        let mut investigation = Investigation::new(&mut self.lab, &mut self.places);
        let spots = Spots {
            missing: investigation.spots(&cause.missing),
            persisted: investigation.spots(&cause.persisted),
        };
        let between = match cause.form {
            Form::Lost => None,
            Form::Between(start, end) => Some(FailingSpan {
                start,
                end,
                persisted: cause.persisted.iter().copied().collect(),
                missing: cause.missing.iter().copied().collect(),
            }),
        };
        let completed = match cause.form {
            Form::Lost => None,
            Form::Between(..) => cause.missing.last().map(|&last| investigation.spot(last)),
        };
        let is_same = |known: &Known| match (&known.snapshot, &cause.snapshot) {
            (None, None) => known.is_same(cause.kind, &spots, completed),
            (Some(known), Some(snapshot)) => known.is_same(snapshot),
            _ => false,
        };
        let same = self.known.iter().position(is_same);
        if let Some(index) = same {
            // That the program itself stores in the wrong order says more than that what it stored was lost.
            if between.is_some() && self.known[index].between.is_empty() {
                let run = self.lab.run(&cause.state)?;
                self.known[index].finding = self.finding(cause, &run, index + 1);
                self.known[index].scene = self.scene(cause);
            }
            let known = &mut self.known[index];
            known.confirmed += 1;
            known.uncertain &= cause.uncertain;
            known.lost |= between.is_none();
            known.between.extend(between);
            known.completed = known.completed.or(completed);
            return Ok(index);
        }
        let run = self.lab.run(&cause.state)?;
        let finding = self.finding(cause, &run, self.known.len() + 1);
        let scene = self.scene(cause);
        self.known.push(Known {
            kind: cause.kind,
            spots,
            completed,
            uncertain: cause.uncertain,
            lost: between.is_none(),
            between: between.into_iter().collect(),
            states: 0,
            operations: BTreeSet::new(),
            paths: BTreeSet::new(),
            confirmed: 1,
            snapshot: cause.snapshot.clone(),
            finding,
            scene,
        });
        Ok(self.known.len() - 1)
    }

    fn spots(&mut self, subject: &Subject) -> Spots {
        let mut investigation = Investigation::new(&mut self.lab, &mut self.places);
        Spots {
            missing: investigation.spots(&subject.missing),
            persisted: investigation.spots(&subject.persisted),
        }
    }

    /// The failing state as changes of the laboratory's window.
    fn subject(&mut self, failure: &Failure) -> Result<Subject, ExplainError> {
        let uncertain = failure.persisted.iter().chain(&failure.missing);
        let earliest = uncertain.map(|id| id.seq).min().unwrap_or(failure.point);
        let point = self.lab.open(earliest.min(failure.point), failure.point)?;
        let indices = |ids: &[StoreId]| -> Result<Vec<Index>, ExplainError> {
            let find = |&id: &StoreId| {
                self.lab.find(id).ok_or_else(|| ExplainError::UnknownStore {
                    id,
                    trace: self.lab.trace().path().to_owned(),
                })
            };
            let mut indices = ids.iter().map(find).collect::<Result<Vec<Index>, _>>()?;
            indices.sort_unstable();
            Ok(indices)
        };
        let (persisted, missing) = (indices(&failure.persisted)?, indices(&failure.missing)?);
        // With eADR a crash may be within a store that tears.
        let last = persisted.iter().chain(&missing).max().map_or(0, |last| last + 1);
        Ok(Subject {
            point: point.max(last),
            output: failure.output,
            persisted,
            missing,
        })
    }

    /// The cause in words; its image is saved.
    fn finding(&mut self, cause: &Cause, run: &Run, number: usize) -> Finding {
        let context = words::Context {
            lab: &self.lab,
            words: &self.words,
        };
        let mut finding = words::finding(cause, run, &context, &mut self.places);
        words::violates(&mut finding, self.violated(cause));
        if let Some(save) = &self.save {
            let directory = save.join(format!("{number}-{}", cause.kind));
            match save::save(&directory, cause, &finding, &mut self.lab, &self.words) {
                Ok(()) => {
                    if let Some(crash) = &mut finding.crash {
                        crash.replay = Some(save::replay(&directory));
                    }
                }
                Err(error) => self.undone.push(format!("{error}; the finding stands without it")),
            }
        }
        finding
    }

    fn violated(&mut self, cause: &Cause) -> Option<ViolatedCondition> {
        if self.relied.is_none() {
            let relied = Relied::new(&self.lab, self.lab.conditions()?, self.places.helpers().clone());
            let relied = relied.map_err(|error| self.undone.push(format!("a finding names no condition: {error}")));
            self.relied = Some(relied.ok());
        }
        self.relied.as_mut()?.as_mut()?.violated(cause, &self.lab)
    }

    /// One finding for the states that are left and that no known cause explains by its source lines; as it was found, because
    /// there is no time to reduce it.
    fn finding_of_left(&mut self) -> Option<(Finding, Scene)> {
        let left = std::mem::take(&mut self.left);
        let (mut states, mut first) = (left.beyond(), None);
        for failure in left.failures() {
            // What is not in the trace cannot be told; that it failed is told by the warning.
            let Ok(subject) = self.subject(failure) else {
                self.unconfirmed += 1;
                continue;
            };
            let spots = self.spots(&subject);
            let within = known::ranges_at(&self.known, &subject).first().map(|&(known, _)| known);
            let alike = |known: &Known| known.lost && known.spots.missing.is_subset(&spots.missing);
            match within.or_else(|| self.known.iter().position(alike)) {
                Some(index) => self.known[index].states += 1,
                None => {
                    states += 1;
                    first.get_or_insert((failure, subject));
                }
            }
        }
        let Some((failure, subject)) = first else {
            // Beyond those that were kept: like the others.
            if let Some(known) = self.known.first_mut() {
                known.states += states;
            }
            return None;
        };
        let state = Investigation::new(&mut self.lab, &mut self.places).state(&subject);
        let cause = Cause {
            kind: Kind::CrashAtomicity,
            form: Form::Lost,
            missing: subject.missing,
            persisted: subject.persisted,
            state,
            uncertain: false,
            aside: Vec::new(),
            snapshot: None,
        };
        let number = self.known.len() + 1;
        // Of the failure's own run only the end was kept, which says nothing of the lines before.
        let again = self.lab.run(&cause.state);
        let mut finding = self.finding(&cause, again.as_ref().unwrap_or(&failure.run), number);
        let scene = self.scene(&cause);
        words::unreduced(&mut finding);
        if again.is_err()
            && let Some(crash) = &mut finding.crash
        {
            crash.output = None;
        }
        finding.count = states;
        if let Some(crash) = &mut finding.crash {
            crash.states = states;
        }
        Some((finding, scene))
    }

    /// What there is to draw of a cause, if anything is wanted.
    fn scene(&self, cause: &Cause) -> Scene {
        match self.drawn {
            Some(_) => Scene::new(cause, &self.lab),
            None => Scene::default(),
        }
    }

    fn draw(&mut self, findings: &mut [(Finding, Scene)]) {
        let Some(options) = &self.drawn else {
            return;
        };
        if findings.is_empty() {
            return;
        }
        let scenes: Vec<Scene> = findings.iter().map(|(_, scene)| scene.clone()).collect();
        let mut failed: Option<CrashError> = None;
        match timeline::draw(self.lab.trace(), options, &scenes, &mut self.places) {
            Ok(timelines) => {
                for ((finding, _), mut timeline) in findings.iter_mut().zip(timelines) {
                    if let Some(crash) = &mut finding.crash {
                        let powerless = timeline
                            .events
                            .iter_mut()
                            .filter(|event| event.kind == TimelineKind::Crash);
                        powerless.for_each(|event| event.frame = crash.after.clone());
                        crash.timeline = Some(timeline).filter(|timeline| !timeline.events.is_empty());
                    }
                }
            }
            Err(error) => failed = Some(error.into()),
        }
        match representative::graphs(self.lab.trace(), options, &scenes) {
            Ok(graphs) => {
                for ((finding, _), graph) in findings.iter_mut().zip(graphs) {
                    if let Some(crash) = &mut finding.crash {
                        crash.graph = graph;
                    }
                }
            }
            Err(error) => failed = Some(error),
        }
        if let Some(error) = failed {
            self.undone.push(format!("not all pictures could be drawn: {error}"));
        }
    }
}

impl Explainer for Investigator {
    fn explain(&mut self, failure: &Failure) -> Result<bool, CrashError> {
        Ok(self.take(failure)?)
    }

    fn leave(&mut self, failure: Failure) {
        self.left.add(failure);
    }

    /// By kind and position.
    fn finish(&mut self) -> Vec<Finding> {
        let left = self.finding_of_left();
        self.known = known::merge(std::mem::take(&mut self.known));
        let known = self.known.iter().map(|known| (known.finding(), known.scene.clone()));
        let mut findings: Vec<(Finding, Scene)> = known.chain(left).collect();
        self.draw(&mut findings);
        let mut findings: Vec<Finding> = findings.into_iter().map(|(finding, _)| finding).collect();
        findings.sort_by_cached_key(|finding| {
            (
                finding.kind,
                finding.file.is_none(),
                finding.file.clone(),
                finding.line,
                finding.message.clone(),
            )
        });
        findings
    }

    fn unexplained(&self) -> u64 {
        self.unconfirmed
    }

    fn warnings(&self) -> Vec<String> {
        let states = match self.unconfirmed {
            0 => None,
            1 => Some("1 state that failed recovered".to_owned()),
            states => Some(format!("{states} states that failed recovered")),
        };
        let flaky = states.map(|states| {
            format!(
                "{states} when run again to be explained: the recovery does not always do the same; not reported, and not \
                 clean"
            )
        });
        let saving = self.undone.iter().cloned();
        flaky
            .into_iter()
            .chain(saving)
            .chain(self.places.warnings().iter().cloned())
            .collect()
    }
}

impl From<ExplainError> for CrashError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Read(error) => CrashError::Trace(error),
            ExplainError::Executor(error) => CrashError::Executor(error),
            ExplainError::Oracle(error) => *error,
            other => CrashError::Explainer(Box::new(other)),
        }
    }
}

impl From<CrashError> for ExplainError {
    /// What went wrong when an oracle was asked.
    fn from(error: CrashError) -> Self {
        match error {
            CrashError::Trace(error) => ExplainError::Read(error),
            CrashError::Executor(error) => ExplainError::Executor(error),
            other => ExplainError::Oracle(Box::new(other)),
        }
    }
}

/// Whether it was not there yet.
fn push_new(causes: &mut Vec<usize>, index: usize) -> bool {
    let new = !causes.contains(&index);
    if new {
        causes.push(index);
    }
    new
}

/// The known cause whose missing stores, persisted, make the state recover.
fn healing(
    known: &mut [Known],
    investigation: &mut Investigation,
    subject: &Subject,
    spots: &Spots,
) -> Result<Option<usize>, ExplainError> {
    let mut by_use: Vec<usize> = (0..known.len()).collect();
    by_use.sort_by_key(|&index| std::cmp::Reverse(known[index].states));
    for index in by_use.into_iter().take(MAX_COMPARED) {
        let cause = &mut known[index];
        let mut healed = Vec::new();
        if cause.lost && (!cause.uncertain || cause.spots.persisted.is_subset(&spots.persisted)) {
            healed.extend(investigation.persist_spots(subject, &cause.spots.missing));
        }
        let prefix = investigation.without(subject, []);
        if !cause.between.is_empty() && investigation.lab.fails(&prefix)? {
            healed.extend(investigation.persist_next(subject, &cause.spots.missing)?);
        }
        for state in healed {
            if !investigation.lab.fails(&state)? {
                if let Some(&last) = state.extra.last() {
                    let persisted = investigation.last_of(subject.point, &cause.spots.persisted);
                    cause.between.push(FailingSpan {
                        start: subject.point,
                        end: last + 1,
                        persisted,
                        missing: state.extra,
                    });
                }
                return Ok(Some(index));
            }
        }
    }
    Ok(None)
}
