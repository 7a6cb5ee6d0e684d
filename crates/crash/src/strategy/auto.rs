//! `auto`, the default: several strategies one after the other. [`Prefix`](super::Prefix) first, which takes seconds and finds what
//! no reordering is needed for. If all allowed states then fit into the budget, [`Dpor`](super::Dpor) tests all of them. Otherwise
//! come the states that violate what the code relies on (Witcher's, where there are conditions), then the representatives of the
//! update behaviours (Squint's), then at every crash point the few states that most bugs show in, and at last random states, as
//! long as there is time. Findings are merged by their cause, as in any campaign: one investigator explains them, and no state is
//! run twice.
//!
//! A condition needs a dependence that the run shows, a representative an object whose updates are alike. The early states need
//! neither, and are what a program gets that was compiled without types or dependences.
//!
//! Random states have no end of their own. If the user has set a limit, they are tested until then; under the default limit, for
//! as long as all that came before them took.
//!
//! With a budget each strategy has a share of it. A strategy that has used up its share leaves the pass that it is in and waits
//! until the others have had theirs. Then those that have found most go on first, each with the pass that it left (a state that was
//! tested is not tested twice). What a strategy looks at before its first state is looked at in its own share.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::{EARLY_PASSES, PassEnd, Step, Strategy, Work, early_parts, early_work};
use crate::campaign::CampaignOptions;
use crate::cursor::Stops;
use crate::error::CrashError;
use crate::state::{CrashPoint, PointHead};
use crashproof_finding::{self as report, StrategyEnd, StrategyRun};
use crashproof_trace::TraceFile;

/// Without a budget in time, all allowed states are tested if there are no more than this.
const FEW_STATES: u128 = 4096;
/// Per cent of what is left of the budget that all allowed states may take.
const MOST_OF_BUDGET: u32 = 80;

/// How long random states are tested at least.
const LEAST_SPARE: Duration = Duration::from_secs(1);

/// A strategy of several.
pub(super) struct Part {
    pub name: &'static str,
    pub strategy: Box<dyn Strategy>,
    /// Per cent of the budget, before the others have had theirs.
    pub share: u32,
    /// It has no end of its own, and ends when it has taken as long as all before it.
    pub is_spare: bool,
}

/// The strategy that tests all states if they fit, and how many there are.
pub(super) struct AllStates {
    pub strategy: Box<dyn Strategy>,
    pub states: u128,
    pub max_states: Option<u64>,
}

pub(crate) struct Auto {
    parts: Vec<Part>,
    /// The part that tests all states; the part before it comes first in any case.
    all: Option<usize>,
    states: u128,
    max_states: Option<u64>,
    /// Of all of them.
    time: Option<Duration>,
    /// Which strategy makes a pass, and which of its own passes that is.
    passes: RwLock<Passes>,
    /// The pass that is being made has no more parts: its strategy has used up its share.
    left: Arc<AtomicBool>,
}

struct Passes {
    made: Vec<(usize, u32)>,
    /// By part.
    own: Vec<Own>,
    /// Parts in the order in which they have their turns.
    order: Vec<usize>,
    turn: usize,
    began: Instant,
    since: Instant,
    /// Every strategy has had its share.
    shared: bool,
    /// Whether all allowed states are tested, once that is decided.
    tests_all: Option<bool>,
    /// How long the spare strategy has had its turn.
    spare: Duration,
}

impl Passes {
    fn current(&self) -> usize {
        self.order[self.turn]
    }

    fn next_turn(&mut self) {
        self.turn += 1;
        if self.turn == self.order.len() {
            self.turn = 0;
            if !self.shared {
                self.shared = true;
                let own = &self.own;
                self.order.sort_by_key(|&part| Reverse(own[part].findings));
            }
        }
        self.since = Instant::now();
    }
}

/// How far a strategy is.
#[derive(Clone, Copy, Default)]
struct Own {
    passes: u32,
    /// It left the last of them.
    again: bool,
    ended: bool,
    /// It has nothing to do.
    skipped: bool,
    /// How the last of them ended.
    last: PassEnd,
    /// The round that it was in, and what that had left unfinished when others had their turn.
    round: u32,
    unfinished: u64,
    /// In all of its passes.
    tested: u64,
    findings: u64,
}

impl Auto {
    pub(super) fn new(mut parts: Vec<Part>, all: Option<AllStates>, time: Option<Duration>) -> Auto {
        let now = Instant::now();
        let (states, max_states) = all.as_ref().map_or((0, None), |all| (all.states, all.max_states));
        let all = all.map(|all| {
            let part = Part {
                name: "all states",
                strategy: all.strategy,
                share: MOST_OF_BUDGET,
                is_spare: false,
            };
            parts.insert(1, part);
            1
        });
        Auto {
            time,
            passes: RwLock::new(Passes {
                made: Vec::new(),
                own: vec![Own::default(); parts.len()],
                order: (0..parts.len()).collect(),
                turn: 0,
                began: now,
                since: now,
                shared: parts.len() < 2,
                tests_all: all.is_none().then_some(false),
                spare: Duration::ZERO,
            }),
            left: Arc::default(),
            parts,
            all,
            states,
            max_states,
        }
    }

    fn strategies(&self) -> impl Iterator<Item = &dyn Strategy> {
        self.parts.iter().map(|part| &*part.strategy)
    }

    fn made(&self, pass: u32) -> (usize, u32) {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        passes.made[pass as usize]
    }

    /// What a strategy has in the first round.
    fn share(&self, part: usize) -> Option<Duration> {
        self.time.map(|time| time * self.parts[part].share / 100)
    }

    /// When the strategy has used up its share, or what a spare one has.
    fn turn_ends(&self, passes: &Passes) -> Option<Instant> {
        let share = self.share(passes.current()).filter(|_| !passes.shared);
        let ends = share.into_iter().chain(self.spare(passes)).min()?;
        passes.since.checked_add(ends)
    }

    /// For how long the spare strategy may still go on, from the beginning of its turn.
    fn spare(&self, passes: &Passes) -> Option<Duration> {
        if !self.parts[passes.current()].is_spare {
            return None;
        }
        let others = passes.since.duration_since(passes.began).saturating_sub(passes.spare);
        Some(others.max(LEAST_SPARE).saturating_sub(passes.spare))
    }

    fn is_late(&self, passes: &Passes) -> bool {
        self.turn_ends(passes).is_some_and(|end| Instant::now() >= end)
    }

    /// Whether all allowed states fit into the budget, by what the first strategy took for its own.
    fn all_fit(&self, passes: &Passes) -> bool {
        if self.max_states.is_some_and(|most| self.states > u128::from(most)) {
            return false;
        }
        let took = passes.began.elapsed();
        match (self.time, passes.own[0].tested) {
            (None, _) | (_, 0) => self.states <= FEW_STATES,
            (Some(time), tested) => {
                let left = time.saturating_sub(took) * MOST_OF_BUDGET / 100;
                self.states.saturating_mul(took.as_nanos()) / u128::from(tested) <= left.as_nanos()
            }
        }
    }

    /// Leaves out all states, or what they make superfluous.
    fn decide(&self, passes: &mut Passes) {
        if passes.tests_all.is_none() && Some(passes.current()) == self.all {
            let fit = self.all_fit(passes);
            passes.tests_all = Some(fit);
            for (part, own) in passes.own.iter_mut().enumerate().skip(1) {
                own.skipped = fit != (Some(part) == self.all);
            }
        }
        // They took longer than they should have: the other strategies say where to look first.
        if passes.tests_all == Some(true) && passes.shared {
            passes.tests_all = Some(false);
            passes.own.iter_mut().for_each(|own| own.skipped = false);
            passes.order.retain(|&part| Some(part) != self.all);
            passes.order.extend(self.all);
            passes.turn = 0;
        }
    }
}

impl Strategy for Auto {
    fn stops(&self, pass: u32) -> Stops {
        let (part, own) = self.made(pass);
        self.parts[part].strategy.stops(own)
    }

    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        if passes.made.len() > pass as usize {
            return true;
        }
        let left = self.left.swap(false, Ordering::Relaxed);
        if let Some(&(before, number)) = passes.made.last() {
            // If states are no longer left out, all of them have to be looked at again.
            if let Some(all) = self.all.filter(|&all| all != before && passes.own[all].passes > 0) {
                passes.own[all].unfinished += last.unfinished;
                passes.own[all].last.unfinished += last.unfinished;
            }
            let round = self.parts[before].strategy.round(number);
            let own = &mut passes.own[before];
            if own.round != round {
                (own.round, own.unfinished) = (round, 0);
            }
            own.again = left;
            own.last = PassEnd {
                unfinished: own.unfinished + last.unfinished,
                // In a row of its own passes.
                idle: if last.idle == 0 { 0 } else { own.last.idle + 1 },
                ..last
            };
        }
        let mut stays = !left && !self.is_late(&passes);
        if let Some(spare) = self.spare(&passes)
            && passes.since.elapsed() >= spare
        {
            let current = passes.current();
            passes.own[current].ended = true;
            passes.own[current].again = false;
        }
        for _ in 0..=2 * self.parts.len() {
            self.decide(&mut passes);
            let current = passes.current();
            let own = passes.own[current];
            if stays && own.again {
                passes.own[current].again = false;
                passes.made.push((current, own.passes - 1));
                return true;
            }
            if stays && !own.ended && !own.skipped {
                if self.parts[current].strategy.has_pass(own.passes, own.last) {
                    // Looking at the trace may take long; half of the share is for testing.
                    let share = self.share(current);
                    let half = share.and_then(|share| Instant::now().checked_sub(share / 2));
                    passes.since = passes
                        .since
                        .max(half.filter(|_| own.passes == 0).unwrap_or(passes.since));
                    passes.own[current].passes += 1;
                    passes.made.push((current, own.passes));
                    return true;
                }
                passes.own[current].ended = true;
                if Some(current) == self.all {
                    // Nothing is left.
                    return false;
                }
            }
            passes.own[current].unfinished = own.last.unfinished;
            if self.parts[current].is_spare {
                let turn = passes.since.elapsed();
                passes.spare += turn;
            }
            passes.next_turn();
            stays = true;
        }
        false
    }

    fn passed(&self, pass: u32, end: PassEnd) {
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        let (part, _) = passes.made[pass as usize];
        let own = &mut passes.own[part];
        own.tested += end.tested;
        own.findings += end.findings;
        self.parts[part].strategy.passed(own.passes - 1, end);
    }

    fn runs(&self) -> Vec<StrategyRun> {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(part, own): (&Part, &Own)| StrategyRun {
            name: part.name.into(),
            states_tested: own.tested,
            findings: own.findings,
            ended: match (own.ended, own.passes) {
                (true, _) => StrategyEnd::Done,
                (false, 0) => StrategyEnd::NotBegun,
                (false, _) => StrategyEnd::Budget,
            },
        };
        let parts = self.parts.iter().zip(&passes.own);
        parts.filter(|(_, own)| !own.skipped).map(of).collect()
    }

    fn round(&self, pass: u32) -> u32 {
        let (part, own) = self.made(pass);
        // Rounds of different strategies are different ones.
        self.parts[part].strategy.round(own) * self.parts.len() as u32 + part as u32
    }

    /// Workers need not agree on the parts of a pass that is made again.
    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        if self.left.load(Ordering::Relaxed) {
            return 0;
        }
        let (part, own) = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            if self.is_late(&passes) {
                self.left.store(true, Ordering::Relaxed);
                return 0;
            }
            passes.made[pass as usize]
        };
        self.parts[part].strategy.parts(own, head)
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let (strategy, own, end) = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            let (strategy, own) = passes.made[pass as usize];
            (strategy, own, self.turn_ends(&passes))
        };
        match (self.parts[strategy].strategy.work(own, point, part), end) {
            // A point may have thousands of states.
            (Work::States(states), Some(end)) => {
                let left = Arc::clone(&self.left);
                let in_time = move |_: &_| {
                    let is_late = Instant::now() >= end;
                    left.fetch_or(is_late, Ordering::Relaxed);
                    !is_late
                };
                Work::States(Box::new(states.take_while(in_time)))
            }
            (work, _) => work,
        }
    }

    fn count(&self, trace: &TraceFile, options: &CampaignOptions, ends: &dyn Fn() -> bool) -> Result<(), CrashError> {
        self.strategies()
            .try_for_each(|strategy| strategy.count(trace, options, ends))
    }

    /// What is not planned ahead is not known.
    fn planned(&self) -> Option<u128> {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        (passes.tests_all != Some(true)).then_some(u128::MAX)
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        self.strategies().find_map(|strategy| strategy.behaviours())
    }

    fn left(&self) -> Option<String> {
        self.strategies().find_map(|strategy| strategy.left())
    }

    fn warnings(&self) -> Vec<String> {
        self.strategies().flat_map(|strategy| strategy.warnings()).collect()
    }

    fn failed(&self, head: &PointHead, part: u64) {
        let made = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            passes.made.last().map(|&(strategy, _)| strategy)
        };
        if let Some(strategy) = made {
            self.parts[strategy].strategy.failed(head, part);
        }
    }
}

type Open = Box<dyn Fn() -> Result<Box<dyn Strategy>, CrashError> + Send + Sync>;

/// A strategy that looks at the trace when its turn has come.
pub(crate) struct Later {
    open: Open,
    opened: OnceLock<Option<Box<dyn Strategy>>>,
    error: Mutex<Option<String>>,
}

impl Later {
    pub(super) fn new(open: Open) -> Later {
        Later {
            open,
            opened: OnceLock::new(),
            error: Mutex::default(),
        }
    }

    /// `None`: it could not be opened.
    fn strategy(&self) -> Option<&dyn Strategy> {
        let opened = self.opened.get_or_init(|| {
            let opened = (self.open)();
            opened
                .map_err(|error| {
                    let warning = format!("a strategy was left out: {error}");
                    *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
                })
                .ok()
        });
        opened.as_deref()
    }

    /// Without opening it.
    fn known(&self) -> Option<&dyn Strategy> {
        self.opened.get()?.as_deref()
    }
}

impl Strategy for Later {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        self.strategy().is_some_and(|strategy| strategy.has_pass(pass, last))
    }

    fn round(&self, pass: u32) -> u32 {
        self.strategy().map_or(pass, |strategy| strategy.round(pass))
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        self.strategy().map_or(0, |strategy| strategy.parts(pass, head))
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        match self.strategy() {
            Some(strategy) => strategy.work(pass, point, part),
            None => Work::States(Box::new(std::iter::empty())),
        }
    }

    fn count(&self, trace: &TraceFile, options: &CampaignOptions, ends: &dyn Fn() -> bool) -> Result<(), CrashError> {
        self.known()
            .map_or(Ok(()), |strategy| strategy.count(trace, options, ends))
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        self.known()?.behaviours()
    }

    fn warnings(&self) -> Vec<String> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = self.known().map(|strategy| strategy.warnings());
        own.into_iter().flatten().chain(error).collect()
    }

    fn failed(&self, head: &PointHead, part: u64) {
        if let Some(strategy) = self.known() {
            strategy.failed(head, part);
        }
    }
}

/// The few states of every point that most bugs show in.
pub(crate) struct Early;

impl Strategy for Early {
    fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
        Step::of(pass).phase < EARLY_PASSES
    }

    fn round(&self, pass: u32) -> u32 {
        Step::of(pass).phase
    }

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let step = Step::of(pass);
        match step.includes(head) {
            true => early_parts(step.phase, head),
            false => 0,
        }
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        early_work(Step::of(pass).phase, point, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::PointKind;

    /// Has so many passes.
    struct Some(u32);

    impl Strategy for Some {
        fn has_pass(&self, pass: u32, _last: PassEnd) -> bool {
            pass < self.0
        }

        fn parts(&self, _pass: u32, _head: &PointHead) -> u64 {
            0
        }

        fn work<'p>(&self, _pass: u32, _point: &'p CrashPoint, _part: u64) -> Work<'p> {
            Work::States(Box::new(std::iter::empty()))
        }
    }

    fn parts(passes: &[u32]) -> Vec<Part> {
        let part = |&passes| Part {
            name: "some",
            strategy: Box::new(Some(passes)),
            share: 10,
            is_spare: false,
        };
        passes.iter().map(part).collect()
    }

    /// Strategies in their order, if each of them finds and tests so much in a pass.
    fn run(auto: &Auto, tested: u64, findings: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut made = Vec::new();
        let mut end = PassEnd::default();
        for pass in 0.. {
            if !auto.has_pass(pass, end) {
                break;
            }
            made.push(auto.made(pass).0);
            end = PassEnd {
                tested,
                findings: findings(made[made.len() - 1]),
                ..PassEnd::default()
            };
            auto.passed(pass, end);
        }
        made
    }

    fn all(states: u128, max_states: Option<u64>) -> Option<AllStates> {
        std::option::Option::Some(AllStates {
            strategy: Box::new(Some(3)),
            states,
            max_states,
        })
    }

    #[test]
    fn all_states_are_tested_if_they_fit() {
        let minute = std::option::Option::Some(Duration::from_secs(60));
        for (states, max_states, time, expected) in [
            (FEW_STATES, None, None, vec![0, 1, 1, 1]),
            (FEW_STATES + 1, None, None, vec![0, 2, 2]),
            (100, std::option::Option::Some(99), None, vec![0, 2, 2]),
            (1_000_000, None, minute, vec![0, 1, 1, 1]),
            (u128::MAX, None, minute, vec![0, 2, 2]),
        ] {
            let auto = Auto::new(parts(&[1, 2]), all(states, max_states), time);
            assert_eq!(
                run(&auto, 1_000_000, |_| 0),
                expected,
                "{states} {max_states:?} {time:?}"
            );
            let runs = auto.runs();
            assert!(runs.iter().all(|run| run.ended == StrategyEnd::Done), "{runs:?}");
            assert_eq!(runs.len(), 2);
        }
    }

    #[test]
    fn a_spare_strategy_ends_after_a_while() {
        let mut parts = parts(&[2, u32::MAX]);
        parts[1].is_spare = true;
        let auto = Auto::new(parts, None, std::option::Option::Some(Duration::from_secs(3600)));
        auto.passes.write().unwrap().spare = LEAST_SPARE;
        assert_eq!(run(&auto, 1, |_| 0), [0, 0, 1]);
        assert!(auto.runs().iter().all(|run| run.ended == StrategyEnd::Done));
    }

    #[test]
    fn what_found_most_goes_on_first() {
        let auto = Auto::new(parts(&[3, 3, 3]), None, std::option::Option::Some(Duration::ZERO));
        let made = run(&auto, 1, |part| part as u64);
        assert_eq!(made, [1, 2, 2, 2, 1, 1, 0, 0, 0]);
    }

    /// Passes by strategy; each asks for the parts of a point if `points`.
    fn order(time: Option<Duration>, passes: &[u32], points: bool) -> Vec<(usize, u32)> {
        let auto = Auto::new(parts(passes), None, time);
        let head = PointHead {
            seq: 0,
            within: 0,
            number: 0,
            after: None,
            new_stack: false,
            states: 0,
            changed: 0,
            since: 0,
            boundary: false,
            what: PointKind::Middle,
        };
        let made = (0..).take_while(|&pass| {
            let made = auto.has_pass(pass, PassEnd::default());
            if made && points {
                auto.parts(pass, &head);
            }
            made
        });
        (0..made.count() as u32).map(|pass| auto.made(pass)).collect()
    }

    #[test]
    fn one_strategy_after_the_other() {
        assert_eq!(order(None, &[2, 0, 3], true), [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(order(None, &[0, 0], true), []);
    }

    #[test]
    fn each_has_its_share_and_goes_on_after_the_others() {
        assert_eq!(
            order(std::option::Option::Some(Duration::ZERO), &[3, 2], false),
            [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]
        );
    }

    #[test]
    fn a_pass_that_was_left_is_made_again() {
        assert_eq!(
            order(std::option::Option::Some(Duration::ZERO), &[2, 1], true),
            [(1, 0), (0, 0), (0, 1), (1, 0)]
        );
    }
}
