//! A first look at a trace: its files, where they were mapped, and how many crash points and states it has.

use std::path::Path;

use crashproof_trace::{EventKind, Item, TraceReader};
use crashproof_wire::recovery::{MAX_FINE, MAX_MAPPINGS, Mapping};
use rustc_hash::FxHashSet;

use crate::campaign::{CampaignOptions, Survey, SurveyedFile};
use crate::cursor::{Contents, Cursor, Stops};
use crate::error::CrashError;
use crate::image::SparseImage;
use crate::state::MAX_OPTIONS;
use crate::window::Place;

/// What a campaign needs beside the survey that its caller gets.
pub(crate) struct Surveyed {
    pub contents: Contents,
    pub survey: Survey,
    /// States of the point that has most.
    pub largest: u128,
}

pub(crate) fn survey(trace: &Path, options: &CampaignOptions) -> Result<Surveyed, CrashError> {
    let (contents, mut survey) = look(trace)?;
    let mut image = SparseImage::default();
    let mut cursor = Cursor::open(trace, &contents, options, Stops::CrashPoints, &mut image)?;
    let mut fine = FxHashSet::default();
    let mut largest = 0;
    while let Some(head) = cursor.next(&mut image)? {
        let states = head.states;
        survey.states = survey.states.saturating_add(states);
        survey.points += (states > 0) as u64;
        largest = largest.max(states);
        if fine.len() < MAX_FINE {
            fine.extend(cursor.shared_pages());
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
            "{} cache lines have more than {MAX_OPTIONS} possible contents at one crash point: only some of them are tested \
             (data that is stored to again and again and never flushed does that)",
            cursor.capped.len()
        ));
    }
    survey.fine = fine.into_iter().collect();
    survey.fine.sort_unstable();
    survey.fine.truncate(MAX_FINE);
    Ok(Surveyed {
        contents,
        survey,
        largest,
    })
}

/// How often a replay stops.
pub(crate) fn count_stops(
    trace: &Path,
    contents: &Contents,
    options: &CampaignOptions,
    stops: Stops,
) -> Result<u128, CrashError> {
    let mut image = SparseImage::default();
    let mut cursor = Cursor::open(trace, contents, options, stops, &mut image)?;
    let mut count = 0;
    while cursor.next(&mut image)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// What a replay starts from.
pub(crate) fn contents(trace: &Path) -> Result<Contents, CrashError> {
    Ok(look(trace)?.0)
}

/// Files and mappings, in one pass without the model.
fn look(trace: &Path) -> Result<(Contents, Survey), CrashError> {
    let mut reader = TraceReader::open_files(trace)?;
    let mut survey = Survey::default();
    let mut max_sizes: Vec<u64> = Vec::new();
    let mut initial_until = 0;
    let mut mapped = FxHashSet::default();
    loop {
        let events = reader.events();
        let Some(item) = reader.next()? else { break };
        let mut grows = |file: usize, size: u64| {
            if max_sizes.len() <= file {
                max_sizes.resize(file + 1, 0);
            }
            max_sizes[file] = max_sizes[file].max(size);
        };
        let event = match item {
            Item::Initial { at, data } => {
                initial_until = events;
                grows(at.file.index(), at.offset + data.len() as u64);
                continue;
            }
            Item::Event(event) => event,
        };
        match event.kind {
            EventKind::Resize { file, size } => grows(file.index(), size),
            EventKind::Rename { path: Some(path), .. } => survey.paths.push(path.to_owned()),
            EventKind::FileWrite { at, data } => grows(at.file.index(), at.offset.saturating_add(data.len() as u64)),
            EventKind::Map {
                file,
                address,
                offset,
                len,
                ..
            } => {
                let mapping = Mapping {
                    file: file.0,
                    reserved: 0,
                    offset,
                    len,
                    address,
                };
                if mapped.insert((file, offset, len, address)) && survey.mappings.len() < MAX_MAPPINGS {
                    survey.mappings.push(mapping);
                }
            }
            _ => {}
        }
    }
    survey.paths.extend(
        reader
            .tables()
            .files
            .iter()
            .filter(|file| !file.is_registered_memory())
            .map(|file| file.path.clone()),
    );
    survey.paths.sort_unstable();
    survey.paths.dedup();
    for (index, file) in reader.tables().files.iter().enumerate() {
        survey.files.push(SurveyedFile {
            path: file.path.clone(),
            size: file.size,
            max_size: file.size.max(max_sizes.get(index).copied().unwrap_or(0)),
            present: !file.created,
        });
    }
    survey.warnings.extend(
        reader
            .incomplete()
            .iter()
            .map(|why| format!("the trace is incomplete: {}", why.detail)),
    );
    let contents = Contents {
        files: survey.files.clone(),
        initial_until,
    };
    Ok((contents, survey))
}
