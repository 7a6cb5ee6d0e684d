//! Representative testing (Squint, dissertation chapter 4): only the crash states of a few update behaviours are tested, each of
//! which stands for many that are alike.
//!
//! [`order`] replays the persistence graph (§4.4.2), [`epochs`] cuts it into update behaviours (§4.4.3) and finds joint ones
//! (ours), [`shape`], [`compare`] and [`groups`] put them under their representatives (§4.4.4), [`choices`] says which crash states
//! of a behaviour are tested (§4.4.5). What an update is about is behind [`subject`].
//!
//! What it may miss: a bug that shows only in a state that no representative has (§4.4.6): one between objects that are neither
//! unordered nor linked, one that depends on values rather than on which fields are updated in which order. It never
//! reports wrongly: every state is one that the model allows.

mod calls;
pub(crate) mod choices;
mod compare;
mod epochs;
mod graph;
mod groups;
mod order;
mod picture;
mod shape;
pub(crate) mod situation;
mod subject;
#[cfg(test)]
mod tests;
mod typed;
mod view;

use std::fmt;

use crashproof_finding as report;
use crashproof_trace::{Event, Tables, TraceFile};
use rustc_hash::FxHashMap;

use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use choices::Tested;
use epochs::{Class, Counts, Epoch, EpochId, Epochs, Member};
pub(crate) use graph::graphs;
pub(crate) use groups::Group;
pub(crate) use order::show_all;
use shape::NEVER;
pub use view::{Behaviour, BehaviourList, BehaviourUpdate, behaviour_list};

/// The update behaviours of a trace, and their groups.
pub(crate) struct Behaviours {
    epochs: FxHashMap<EpochId, Epoch>,
    classes: Vec<Class>,
    pub groups: Vec<Group>,
    /// Crash points, in order.
    points: Vec<u64>,
    counts: Counts,
    /// Modules whose types could not be read, and why.
    pub warnings: Vec<String>,
}

impl fmt::Debug for Behaviours {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Behaviours");
        shown.field("groups", &self.groups.len()).finish_non_exhaustive()
    }
}

/// Where a behaviour is crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    /// Just before this event.
    Event(u64),
    /// At the end of the run.
    End,
}

/// What is shown all events of a trace.
pub(crate) type Show<'s> = &'s mut dyn FnMut(&Event<'_>, &Tables);

/// The update behaviours of a trace. `pass` shows its events, in a pass that may serve something else, too.
pub(crate) fn behaviours(
    trace: &TraceFile,
    options: &CampaignOptions,
    pass: impl FnOnce(Show<'_>) -> Result<(), CrashError>,
) -> Result<Behaviours, CrashError> {
    let mut subjects = typed::Typed::open(trace, options.joint)?;
    let mut behaviours = analyse(options, &mut subjects, pass)?;
    behaviours.warnings = subjects.warnings().to_vec();
    Ok(behaviours)
}

fn analyse(
    options: &CampaignOptions,
    subjects: &mut dyn subject::Subjects,
    pass: impl FnOnce(Show<'_>) -> Result<(), CrashError>,
) -> Result<Behaviours, CrashError> {
    let mut epochs = Epochs::new(subjects, options.joint);
    let mut graph = order::GraphReplay::new(options, &mut epochs);
    pass(&mut |event, tables| graph.event(event, tables))?;
    epochs.finish();
    let Epochs {
        epochs,
        found: classes,
        points,
        counts,
        ..
    } = epochs;
    let groups = groups::group(&classes, &epochs);
    Ok(Behaviours {
        epochs,
        classes,
        groups,
        points,
        counts,
        warnings: Vec::new(),
    })
}

impl Behaviours {
    /// The figures.
    pub(crate) fn report(&self) -> report::Behaviours {
        let joint_groups = self.groups.iter().filter(|group| group.joint).count() as u64;
        report::Behaviours {
            single: self.counts.single,
            joint: self.counts.joint,
            single_groups: self.groups.len() as u64 - joint_groups,
            joint_groups,
            too_large: self.counts.large,
            ..Default::default()
        }
    }

    /// The behaviours of a group that were kept, its representative first.
    pub(crate) fn members(&self, group: &Group) -> impl Iterator<Item = &Member> {
        group.classes.iter().flat_map(|&class| &self.classes[class].members)
    }

    pub(crate) fn tested(&self, member: &Member) -> Tested {
        let mut seqs: Vec<u64> = self.nodes(member).map(|node| node.seq).collect();
        seqs.sort_unstable();
        seqs.dedup();
        Tested { seqs }
    }

    fn nodes(&self, member: &Member) -> impl Iterator<Item = &shape::Node> {
        member
            .epochs
            .iter()
            .filter_map(|id| self.epochs.get(id))
            .flat_map(|epoch| &epoch.nodes)
    }

    /// Crash points of a behaviour: just before each event that makes one of its stores persistent. Any combination of
    /// its stores that is possible at another point of its span is possible at one of these. Of stores that stay
    /// uncertain after the last is issued, there are points ever further on, and the end: something else may come
    /// to depend on them meanwhile.
    ///
    /// With each point: 0, or how far on it is.
    pub(crate) fn points(&self, member: &Member) -> Vec<(At, u32)> {
        let (mut points, mut last) = (Vec::new(), 0);
        for node in self.nodes(member) {
            last = last.max(node.seq);
            points.push((node.persistent_at, 0));
        }
        points.sort_unstable();
        points.dedup();
        if let Some(&(until, _)) = points.last() {
            let after = self.points.partition_point(|&point| point <= last);
            let later = (0..).map_while(|step| Some((*self.points.get(after + (1usize << step) - 1)?, step + 1)));
            points.extend(later.take_while(|&(point, _)| point < until));
        }
        points.sort_unstable();
        points.dedup_by_key(|(point, _)| *point);
        let at = |point| if point == NEVER { At::End } else { At::Event(point) };
        points.into_iter().map(|(point, later)| (at(point), later)).collect()
    }
}
