//! Which of the allowed states are tested, and in which order.
//!
//! A campaign goes over the trace in passes. In each, a strategy says at every stop into how many parts its work there falls
//! (workers claim parts one by one, so it must say the same to each of them), and what a part is. The first passes test
//! at each point the few states that most bugs show in: everything persisted, nothing more persisted, all but one
//! line, only one line; first at points whose call path is new.
//!
//! A budget may end a campaign in any pass. So that it has looked at all of the run by then, not at the beginning of it, what
//! is to be done at every point is spread over several passes ([`Step`]): the first goes over each 32nd point, the last over
//! every second.

mod auto;
mod conditions;
mod dpor;
mod exhaustive;
mod prefix;
mod random;
mod representative;

use std::ops::Range;
use std::sync::Arc;

use auto::{AllStates, Auto, Early, Later, Part};
pub(crate) use conditions::Violating;
pub(crate) use dpor::Dpor;
pub(crate) use exhaustive::Exhaustive;
pub(crate) use prefix::Prefix;
pub(crate) use random::Random;
pub(crate) use representative::Representative;

use crate::campaign::{CampaignOptions, StrategyKind, Survey};
use crate::cursor::Stops;
use crate::error::CrashError;
use crate::state::{CrashPoint, PointHead, State};
use crashproof_finding as report;
use crashproof_trace::TraceFile;

/// What a worker has claimed.
pub(crate) enum Work<'p> {
    /// Some states; others of the same strategy may be among them.
    States(Box<dyn Iterator<Item = State> + 'p>),
    /// States that come up once in the campaign, so that what is covered can be counted by them.
    Once(Box<dyn Iterator<Item = State> + 'p>),
    /// All states of the point that the recovery can tell apart, as far as so many runs go.
    Walk(Walk),
    /// Those in which each line has one of its options here.
    Among {
        walk: Walk,
        /// Tells it from other walks at this point, in any pass.
        id: u64,
        options: Vec<Vec<u64>>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub runs: u64,
    /// Which of how many workers that begin at different ends.
    pub way: u64,
    pub ways: u64,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassEnd {
    /// Walks that ran out of runs.
    pub unfinished: u64,
    /// So many passes, up to this one, tested nothing.
    pub idle: u32,
    /// States that were tested in it.
    pub tested: u64,
    /// Findings that were made while it went on.
    pub findings: u64,
}

pub(crate) trait Strategy: Send + Sync {
    /// Where a pass stops.
    fn stops(&self, _pass: u32) -> Stops {
        Stops::CrashPoints
    }

    /// Whether there is a pass of this number; asked when those before it are done.
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool;

    /// A pass is done.
    fn passed(&self, _pass: u32, _end: PassEnd) {}

    /// The strategies that it consists of, in their order, if there are several.
    fn runs(&self) -> Vec<report::StrategyRun> {
        Vec::new()
    }

    /// Passes of one round go over different points: what they leave unfinished counts together.
    fn round(&self, pass: u32) -> u32 {
        pass
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64;

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p>;

    /// Counts what is planned, beside the testing: it takes a pass over the trace. It need not go on once `ends`.
    fn count(
        &self,
        _trace: &TraceFile,
        _options: &CampaignOptions,
        _ends: &dyn Fn() -> bool,
    ) -> Result<(), CrashError> {
        Ok(())
    }

    /// States that it will test, if these are not all that are allowed; `u128::MAX` if that is not known.
    fn planned(&self) -> Option<u128> {
        None
    }

    /// Crash points at which it tests anything, if these are not all there are; as far as it knows by now.
    fn points(&self) -> Option<u64> {
        None
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        None
    }

    /// What it would have tested with more time, in words.
    fn left(&self) -> Option<String> {
        None
    }

    /// What the user should know, at the end.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// A state of this part of the pass failed.
    fn failed(&self, _head: &PointHead, _part: u64) {}
}

pub(crate) fn strategy(
    trace: &TraceFile,
    options: &CampaignOptions,
    survey: &Survey,
    workers: usize,
) -> Result<Box<dyn Strategy>, CrashError> {
    Ok(match options.strategy {
        StrategyKind::Prefix => Box::new(Prefix),
        StrategyKind::Exhaustive => Box::new(Exhaustive {
            largest: survey.largest,
        }),
        StrategyKind::Dpor => Box::new(Dpor {
            workers: workers as u64,
        }),
        StrategyKind::Random => Box::new(Random::new(options)),
        StrategyKind::Conditions => Box::new(Violating::open(trace, options)?),
        StrategyKind::Auto => Box::new(auto(trace, options, survey, workers)?),
        StrategyKind::Representative => match &survey.behaviours {
            Some(behaviours) => Box::new(Representative::new(Arc::clone(behaviours))),
            None => Box::new(Representative::open(trace, options)?),
        },
    })
}

/// What `auto` consists of, and how the budget is shared out.
fn auto(trace: &TraceFile, options: &CampaignOptions, survey: &Survey, workers: usize) -> Result<Auto, CrashError> {
    let part = |name, share, strategy| Part {
        name,
        strategy,
        share,
        is_spare: false,
    };
    let mut parts = vec![part("prefix", 10, Box::new(Prefix) as Box<dyn Strategy>)];
    if options.conditions.is_some() {
        parts.push(part("conditions", 40, Box::new(Violating::open(trace, options)?)));
    }
    let (trace, own) = (trace.clone(), options.clone());
    let open = move || Ok(Box::new(Representative::open(&trace, &own)?) as Box<dyn Strategy>);
    let share = if options.conditions.is_some() { 25 } else { 55 };
    parts.push(part("representative", share, Box::new(Later::new(Box::new(open)))));
    parts.push(part("early states", 15, Box::new(Early)));
    // Without a budget it would have no end of its own.
    if options.time.is_some() || options.max_states.is_some() {
        parts.push(Part {
            is_spare: !options.uses_all_time,
            ..part("random", 10, Box::new(Random::new(options)))
        });
    }
    let all = AllStates {
        strategy: Box::new(Dpor {
            workers: workers as u64,
        }),
        states: survey.states,
        max_states: options.max_states,
    };
    Ok(Auto::new(parts, Some(all), options.time))
}

/// So many passes go over all points together.
const LEVELS: u32 = 6;

/// What a pass of a strategy that spreads is for: a phase of its work, at some of the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    phase: u32,
    /// `None`: all points.
    level: Option<u32>,
}

impl Step {
    /// The first phase, at points whose call path is new, is one pass.
    fn of(pass: u32) -> Step {
        match pass.checked_sub(1) {
            None => Step { phase: 0, level: None },
            Some(pass) => Step {
                phase: 1 + pass / LEVELS,
                level: Some(pass % LEVELS),
            },
        }
    }

    fn is_first(self) -> bool {
        self.level.is_none_or(|level| level == 0)
    }

    fn includes(self, head: &PointHead) -> bool {
        let level = LEVELS - 1 - head.number.trailing_zeros().min(LEVELS - 1);
        self.level.is_none_or(|own| own == level)
    }
}

/// Phases over the states that most bugs show in.
pub(crate) const EARLY_PASSES: u32 = 2;
/// Lines in a part of an early pass.
const EARLY_LINES: usize = 32;

fn early_parts(pass: u32, head: &PointHead) -> u64 {
    if head.states == 0 {
        return 0;
    }
    let parts = head.changed.div_ceil(EARLY_LINES).max(1) as u64;
    match (pass, head.new_stack) {
        (0, true) => 1,
        (0, false) => 0,
        (_, true) => parts - 1,
        (_, false) => parts,
    }
}

fn early_work(pass: u32, point: &CrashPoint, part: u64) -> Work<'_> {
    let part = part + (pass > 0 && point.head.new_stack) as u64;
    let start = part as usize * EARLY_LINES;
    let lines: Range<usize> = start..(start + EARLY_LINES).min(point.fresh.len());
    let whole = (part == 0)
        .then(|| [point.everything(), point.nothing()])
        .into_iter()
        .flatten();
    let single = lines.flat_map(|line| {
        let line = point.fresh[line];
        [point.without(line), point.only(line)]
    });
    Work::States(Box::new(whole.chain(single)))
}
