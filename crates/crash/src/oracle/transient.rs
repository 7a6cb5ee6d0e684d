//! Data in PM that nobody would miss (Witcher, SOSP 2021, section 4.5: "unpersisted" performance bugs): stores that nothing has made durable
//! by the end of the run, and whose loss changes nothing that the driver prints.
//!
//! Deviation from the paper, which loses them at the end of the run: here they are lost at the crash points after them, all of them or, in a
//! long run, some hundred that are spread over it, so that data which is only needed for a while is not called transient.

use std::collections::BTreeSet;

use crashproof_model::LINE;
use crashproof_trace::{EventKind, Item, StackId, TraceFile};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::campaign::{CampaignOptions, Survey, judge, recover};
use crate::cursor::{Cursor, Stops};
use crate::error::CrashError;
use crate::executor::{Executor, Verdict};
use crate::image::SparseImage;
use crate::stage::Stage;
use crate::state::PointKind;

/// Runs for the stores of one call path.
const MAX_RUNS: u64 = 256;

/// A store that was lost, by what it was made by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Crash points at which it was lost, and all at which it could be.
    pub tried: u64,
    pub points: u64,
    /// It made a difference.
    pub missed: bool,
}

/// The stores of one call path that nothing persists.
#[derive(Default)]
struct Group {
    lines: BTreeSet<(u32, u64)>,
    loss: Loss,
}

/// Loses, for each place (path of the file, offset) at which nothing persists a store, all stores of the same call path that nothing persists, at the crash
/// points after them. None: everything that was stored there is durable at the end.
pub fn lose(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    executor: &mut dyn Executor,
    places: &[(String, u64)],
) -> Result<Vec<Option<Loss>>, CrashError> {
    let (mut groups, stacks) = unpersisted(trace, options, places)?;
    let stride = (survey.points / MAX_RUNS).max(1);
    let mut cursor = Cursor::open(trace, options, Stops::CrashPoints, executor)?;
    let mut number = 0u64;
    while let Some(head) = cursor.next(executor)? {
        if head.states == 0 {
            continue;
        }
        let is_last = head.what == PointKind::End;
        let chosen = is_last || number.is_multiple_of(stride);
        number += 1;
        let Some(point) = cursor.point() else { continue };
        let mut stage = Stage::new(executor, &point);
        for group in groups.values_mut().filter(|group| !group.loss.missed) {
            let mut state = point.everything();
            let mut loses = false;
            for (line, kept) in point.lines.iter().zip(&mut state.0) {
                if *kept != 0 && group.lines.contains(&(line.at.file, line.at.line)) {
                    *kept = 0;
                    loses = true;
                }
            }
            group.loss.points += loses as u64;
            if !loses || !chosen {
                continue;
            }
            stage.show(&point.lowered(state));
            let run = recover(stage.executor, cursor.output(), options)?;
            group.loss.tried += 1;
            group.loss.missed |= judge(&run, cursor.output().len() as u64, options)? == Verdict::Fails;
        }
        stage.clear();
    }
    let loss = |stack: Option<StackId>| Some(groups.get(&stack?)?.loss);
    Ok(stacks.into_iter().map(loss).collect())
}

type Groups = FxHashMap<StackId, Group>;

/// The stores that are not durable at the end, by call path; and the call path of each place.
fn unpersisted(
    trace: &TraceFile,
    options: &CampaignOptions,
    places: &[(String, u64)],
) -> Result<(Groups, Vec<Option<StackId>>), CrashError> {
    let mut image = SparseImage::default();
    let mut cursor = Cursor::open(trace, options, Stops::CrashPoints, &mut image)?;
    let mut missing = FxHashSet::default();
    while let Some(head) = cursor.next(&mut image)? {
        if head.what == PointKind::End
            && let Some(point) = cursor.point()
        {
            missing.extend(point.split(&point.nothing()).1.iter().map(|store| store.seq));
        }
    }
    let mut groups = Groups::default();
    let mut stacks = vec![None; places.len()];
    let mut reader = trace.files()?;
    while let Some((item, tables)) = reader.next_with_tables()? {
        let Item::Event(event) = item else { continue };
        let EventKind::Store { at, data, .. } = event.kind else {
            continue;
        };
        if !missing.contains(&event.seq) {
            continue;
        }
        let end = at.offset + data.len() as u64;
        let group = groups.entry(event.stack).or_default();
        group
            .lines
            .extend((at.offset / LINE..end.div_ceil(LINE)).map(|line| (at.file.0, line)));
        let path = &tables.files[at.file.index()].path;
        for ((file, offset), stack) in places.iter().zip(&mut stacks) {
            if file == path && (at.offset..end).contains(offset) {
                *stack = Some(event.stack);
            }
        }
    }
    groups.retain(|stack, _| stacks.contains(&Some(*stack)));
    Ok((groups, stacks))
}
