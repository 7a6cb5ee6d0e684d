//! A first look at a trace: its files, where they were mapped, and how many crash points and states it has.

use std::sync::{Arc, Mutex, PoisonError};

use crashproof_trace::TraceFile;
use crashproof_wire::recovery::{MAX_FINE, MAX_MAPPINGS, Mapping};
use rustc_hash::FxHashSet;

use crate::campaign::{CampaignOptions, StrategyKind, Survey, surveyed_files};
use crate::cursor::{Cursor, Stops};
use crate::error::CrashError;
use crate::image::{Image, LastImage, SparseImage};
use crate::representative::{Show, behaviours};
use crate::state::{MAX_COMBINATIONS, PointKind};
use crate::window::Place;

pub(crate) fn survey(trace: &TraceFile, options: &CampaignOptions) -> Result<Survey, CrashError> {
    let mut survey = look(trace);
    let mut pass = |show: Show<'_>| replay(trace, options, &mut survey, show);
    if options.strategy == StrategyKind::Representative {
        // In the same pass: a long trace takes long to read.
        let behaviours = behaviours(trace, options, pass)?;
        survey.behaviours = Some(Arc::new(behaviours));
    } else {
        pass(&mut |_, _| {})?;
    }
    Ok(survey)
}

/// Takes the trace through the model, and shows its events.
fn replay(trace: &TraceFile, options: &CampaignOptions, survey: &mut Survey, show: Show<'_>) -> Result<(), CrashError> {
    let mut image = SparseImage::default();
    let mut cursor = Cursor::open(trace, options, Stops::CrashPoints, &mut image)?;
    let mut fine = FxHashSet::default();
    while let Some(head) = cursor.next_showing(&mut image, show)? {
        let states = head.states;
        survey.states = survey.states.saturating_add(states);
        survey.points += (states > 0) as u64;
        survey.largest = survey.largest.max(states);
        let is_last = head.what == PointKind::End;
        if fine.len() < MAX_FINE {
            fine.extend(cursor.shared_pages());
        }
        if is_last && let Some(point) = cursor.point() {
            for line in &point.lines {
                image.write_difference(line.at, &line.content(0), &line.content(line.everything()));
            }
            let last = LastImage {
                content: std::mem::take(&mut image),
                files: cursor.sizes_and_paths(),
                output: cursor.output().to_vec(),
            };
            survey.last = Arc::new(Mutex::new(Some(last)));
        }
    }
    if let Some(function) = &options.from
        && cursor.place() == Place::Before
    {
        return Err(CrashError::FromNotFound {
            function: function.clone(),
        });
    }
    if let Some(function) = &options.until
        && cursor.place() == Place::Within
    {
        let reason = "no access to persistent memory has it in its call path after the beginning";
        survey.warnings.push(format!(
            "the crash test goes on to the program's end: {reason} (--until {function})"
        ));
    }
    if !cursor.capped.is_empty() {
        survey.warnings.push(format!(
            "in {} cache lines stores that persist in any order have more than {MAX_COMBINATIONS} combinations at one crash point: \
             only those with few, or all but few, of the stores are tested",
            cursor.capped.len()
        ));
    }
    survey.fine = fine.into_iter().collect();
    survey.fine.sort_unstable();
    survey.fine.truncate(MAX_FINE);
    Ok(())
}

/// The files at the end, once more: the survey does not keep them for longer than they are needed.
pub(crate) fn last_image(trace: &TraceFile, options: &CampaignOptions) -> Result<Option<LastImage>, CrashError> {
    let mut survey = Survey::default();
    replay(trace, options, &mut survey, &mut |_, _| {})?;
    let last = survey.last.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(last)
}

/// How often a replay stops.
pub(crate) fn count_stops(trace: &TraceFile, options: &CampaignOptions, stops: Stops) -> Result<u128, CrashError> {
    let mut image = SparseImage::default();
    let mut cursor = Cursor::open(trace, options, stops, &mut image)?;
    let mut count = 0;
    while cursor.next(&mut image)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// What the trace's index says.
fn look(trace: &TraceFile) -> Survey {
    let mappings = trace.mappings().iter().take(MAX_MAPPINGS).map(|range| Mapping {
        file: range.file.0,
        reserved: 0,
        offset: range.offset,
        len: range.len,
        address: range.address,
    });
    let incomplete = trace.outline().incomplete.iter();
    Survey {
        files: surveyed_files(trace),
        paths: trace.names(),
        mappings: mappings.collect(),
        warnings: incomplete
            .map(|why| format!("the trace is incomplete: {}", why.detail))
            .collect(),
        ..Survey::default()
    }
}
