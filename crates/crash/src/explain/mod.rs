//! From crash states that fail to findings: each is reduced to the stores that matter, and states that fail for the same
//! reason are one finding.
//!
//! A campaign can meet thousands of failing states with a handful of causes. Reducing one takes a few dozen runs of the
//! recovery, so a state is first held against the causes that are known: if the stores that a cause misses are persisted in
//! the state and it recovers, that cause explains it, with one run. A cause that has explained many that way is believed
//! without a run where the same source lines are missing and persisted.

mod cause;
mod history;
mod places;
mod save;
mod shrink;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crashproof_report::{Finding, Kind};
use crashproof_trace::ReadError;

use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::executor::{Executor, ExecutorError, Explainer, Failure, StoreId};
use cause::{Cause, Form, Investigation, Subject};
use history::{Index, Laboratory};
use places::{Places, SpotId};

pub use save::{LoadError, SavedCrash, SavedFile, SavedMapping, load};

/// A cause is believed by its source lines alone when so many states have confirmed it.
const CONFIRMATIONS: u64 = 64;
/// Known causes that a state is held against before it is investigated by itself.
const MAX_COMPARED: usize = 8;

/// The commands as the user gave them, for findings and for the replay.
#[derive(Clone, Debug)]
pub struct Words {
    pub recover: String,
    pub check: Option<String>,
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
    #[error(
        "store {}.{} of a failing state is not in the trace {}; do not record into the trace's file while it is tested",
        id.seq, id.piece, trace.display()
    )]
    UnknownStore { id: StoreId, trace: PathBuf },
    #[error("cannot save the failing image in {}: {source}; free some space, or choose another place with --save", path.display())]
    Save { path: PathBuf, source: std::io::Error },
}

/// A cause that has been put into words.
struct Known {
    kind: Kind,
    missing: BTreeSet<SpotId>,
    persisted: BTreeSet<SpotId>,
    /// Of states of this cause: what had persisted is among the uncertain stores.
    uncertain: bool,
    /// Where the program's prefix is known to fail for this reason.
    between: Vec<(Index, Index)>,
    /// There are states in which stores that had been executed are missing.
    lost: bool,
    states: u64,
    confirmed: u64,
    finding: Finding,
}

pub struct Investigator {
    lab: Laboratory,
    places: Places,
    reorder_in_line: bool,
    save: Option<PathBuf>,
    words: Words,
    known: Vec<Known>,
    /// States that failed in the campaign and not here.
    unconfirmed: u64,
}

impl Investigator {
    pub fn new(
        trace: &Path,
        options: &CampaignOptions,
        executor: Box<dyn Executor>,
        words: Words,
    ) -> Result<Self, CrashError> {
        Ok(Investigator {
            lab: Laboratory::new(trace, options, executor)?,
            places: Places::default(),
            reorder_in_line: options.reorder_in_line,
            save: options.save.clone(),
            words,
            known: Vec::new(),
            unconfirmed: 0,
        })
    }

    /// Takes a failing state in. Whether it has a cause that was not known.
    fn take(&mut self, failure: &Failure) -> Result<bool, ExplainError> {
        let subject = self.subject(failure)?;
        let mut investigation = Investigation {
            lab: &mut self.lab,
            places: &mut self.places,
            reorder_in_line: self.reorder_in_line,
            hangs: 0,
        };
        let missing = investigation.spots(&subject.missing);
        let persisted = investigation.spots(&subject.persisted);
        let by_lines = self.known.iter().position(|known| {
            let within = |&(start, end): &(Index, Index)| (start..end).contains(&subject.point);
            known.between.iter().any(within)
                || known.confirmed >= CONFIRMATIONS
                    && known.lost
                    && known.missing.is_subset(&missing)
                    && (!known.uncertain || known.persisted.is_subset(&persisted))
        });
        if let Some(index) = by_lines {
            self.known[index].states += 1;
            return Ok(false);
        }
        if !investigation.lab.fails(&subject.state())? {
            self.unconfirmed += 1;
            return Ok(false);
        }
        if let Some(index) = healing(&mut self.known, &mut investigation, &subject, &persisted)? {
            self.known[index].states += 1;
            self.known[index].confirmed += 1;
            return Ok(false);
        }
        let Some(cause) = investigation.investigate(&subject)? else {
            self.unconfirmed += 1;
            return Ok(false);
        };
        let missing = investigation.spots(&cause.missing);
        let persisted = investigation.spots(&cause.persisted);
        let between = match cause.form {
            Form::Lost => None,
            Form::Between(start, end) => Some((start, end)),
        };
        let same = self
            .known
            .iter()
            .position(|known| known.kind == cause.kind && known.missing == missing && known.persisted == persisted);
        if let Some(index) = same {
            // That the program itself stores in the wrong order says more than that what it stored was lost.
            if between.is_some() && self.known[index].between.is_empty() {
                self.known[index].finding = self.finding(&cause, index + 1)?;
            }
            let known = &mut self.known[index];
            known.states += 1;
            known.confirmed += 1;
            known.uncertain &= cause.uncertain;
            known.lost |= between.is_none();
            known.between.extend(between);
            return Ok(false);
        }
        let finding = self.finding(&cause, self.known.len() + 1)?;
        self.known.push(Known {
            kind: cause.kind,
            missing,
            persisted,
            uncertain: cause.uncertain,
            lost: between.is_none(),
            between: between.into_iter().collect(),
            states: 1,
            confirmed: 1,
            finding,
        });
        Ok(true)
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
                    trace: self.lab.trace().to_owned(),
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

    fn finding(&mut self, cause: &Cause, number: usize) -> Result<Finding, ExplainError> {
        let run = self.lab.run(&cause.state)?;
        let mut finding = words::finding(
            cause,
            &run,
            &words::Context {
                lab: &self.lab,
                words: &self.words,
            },
            &mut self.places,
        );
        if let Some(save) = &self.save {
            let directory = save.join(format!("{number}-{}", cause.kind));
            save::save(&directory, cause, &finding, &mut self.lab, &self.words)?;
            if let Some(crash) = &mut finding.crash {
                crash.replay = Some(save::replay(&directory));
            }
        }
        Ok(finding)
    }
}

impl Explainer for Investigator {
    fn explain(&mut self, failure: Failure) -> Result<bool, CrashError> {
        Ok(self.take(&failure)?)
    }

    /// By kind and position.
    fn finish(&mut self) -> Result<Vec<Finding>, CrashError> {
        let mut findings: Vec<Finding> = self.known.iter().map(known_finding).collect();
        findings.sort_by_cached_key(|finding| {
            (
                finding.kind,
                finding.file.is_none(),
                finding.file.clone(),
                finding.line,
                finding.message.clone(),
            )
        });
        Ok(findings)
    }

    fn warnings(&self) -> Vec<String> {
        let states = match self.unconfirmed {
            0 => None,
            1 => Some("1 state that failed recovered".to_owned()),
            states => Some(format!("{states} states that failed recovered")),
        };
        let flaky = states.map(|states| {
            format!("{states} when run again to be explained: the recovery does not always do the same; not reported")
        });
        flaky
            .into_iter()
            .chain(self.places.warnings().iter().cloned())
            .collect()
    }
}

impl From<ExplainError> for CrashError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Read(error) => CrashError::Trace(error),
            ExplainError::Executor(error) => CrashError::Executor(error),
            other => CrashError::Explainer(Box::new(other)),
        }
    }
}

fn known_finding(known: &Known) -> Finding {
    let mut finding = known.finding.clone();
    finding.count = known.states;
    if let Some(crash) = &mut finding.crash {
        crash.states = known.states;
    }
    finding
}

/// The known cause whose missing stores, persisted, make the state recover.
fn healing(
    known: &mut [Known],
    investigation: &mut Investigation,
    subject: &Subject,
    persisted: &BTreeSet<SpotId>,
) -> Result<Option<usize>, ExplainError> {
    let mut by_use: Vec<usize> = (0..known.len()).collect();
    by_use.sort_by_key(|&index| std::cmp::Reverse(known[index].states));
    for index in by_use.into_iter().take(MAX_COMPARED) {
        let cause = &mut known[index];
        let mut healed = Vec::new();
        if cause.lost && (!cause.uncertain || cause.persisted.is_subset(persisted)) {
            healed.extend(investigation.persist_spots(subject, &cause.missing));
        }
        if !cause.between.is_empty() && investigation.lab.fails(&subject.without([]))? {
            healed.extend(investigation.persist_next(subject, &cause.missing)?);
        }
        for state in healed {
            if !investigation.lab.fails(&state)? {
                if let Some(&last) = state.extra.last() {
                    cause.between.push((subject.point, last + 1));
                }
                return Ok(Some(index));
            }
        }
    }
    Ok(None)
}
