//! `auto`: several strategies one after the other, for who does not want to choose. First the states that violate what the code relies on
//! (Witcher's, where there are conditions), then the representatives of the update behaviours (Squint's), then at every crash point the
//! few states that most bugs show in. Findings are merged by their cause, as in any campaign: they are explained by one investigator, and no state
//! is run twice.
//!
//! The first two see different things: a condition needs a dependence that the run shows, a representative an object whose updates
//! are alike. The third needs neither, and is what a program gets that was compiled without types or dependences.
//!
//! So that a short budget sees something of each, a strategy that has used up its share of the time leaves the pass that it is in and
//! waits until the others have had theirs; then it makes that pass again (what was tested is not tested twice) and goes on. What a
//! strategy looks at before its first state is looked at in its own share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::{EARLY_PASSES, PassEnd, Step, Strategy, Work, early_parts, early_work};
use crate::campaign::CampaignOptions;
use crate::error::CrashError;
use crate::state::{CrashPoint, PointHead};
use crashproof_finding as report;
use crashproof_trace::TraceFile;

pub(crate) struct Auto {
    strategies: Vec<Box<dyn Strategy>>,
    /// Of all of them.
    time: Option<Duration>,
    /// Which strategy makes a pass, and which of its own passes that is.
    passes: RwLock<Passes>,
    /// The pass that is being made has no more parts: its strategy has used up its share.
    left: Arc<AtomicBool>,
}

struct Passes {
    made: Vec<(usize, u32)>,
    /// By strategy.
    own: Vec<Own>,
    current: usize,
    since: Instant,
    /// Every strategy has had its share.
    shared: bool,
}

/// How far a strategy is.
#[derive(Clone, Copy, Default)]
struct Own {
    passes: u32,
    /// It left the last of them.
    again: bool,
    ended: bool,
    /// How the last of them ended.
    last: PassEnd,
    /// The round that it was in, and what that had left unfinished when others had their turn.
    round: u32,
    unfinished: u64,
}

impl Auto {
    pub(super) fn new(strategies: Vec<Box<dyn Strategy>>, time: Option<Duration>) -> Auto {
        Auto {
            time,
            passes: RwLock::new(Passes {
                made: Vec::new(),
                own: vec![Own::default(); strategies.len()],
                current: 0,
                since: Instant::now(),
                shared: strategies.len() < 2,
            }),
            left: Arc::default(),
            strategies,
        }
    }

    fn made(&self, pass: u32) -> (usize, u32) {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        passes.made[pass as usize]
    }

    /// What a strategy has in the first round. The first, which finds most bugs with its first states, has half of the time.
    fn share(&self, strategy: usize) -> Option<Duration> {
        let others = self.strategies.len().saturating_sub(1).max(1) as u32;
        self.time.map(|time| match strategy {
            0 => time / 2,
            _ => time / 2 / others,
        })
    }

    /// When the strategy has used up its share.
    fn turn_ends(&self, passes: &Passes) -> Option<Instant> {
        let share = self.share(passes.current).filter(|_| !passes.shared)?;
        passes.since.checked_add(share)
    }

    fn is_late(&self, passes: &Passes) -> bool {
        self.turn_ends(passes).is_some_and(|end| Instant::now() >= end)
    }
}

impl Strategy for Auto {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        if passes.made.len() > pass as usize {
            return true;
        }
        let left = self.left.swap(false, Ordering::Relaxed);
        if let Some(&(before, number)) = passes.made.last() {
            let round = self.strategies[before].round(number);
            let own = &mut passes.own[before];
            if own.round != round {
                (own.round, own.unfinished) = (round, 0);
            }
            own.again = left;
            own.last = PassEnd {
                unfinished: own.unfinished + last.unfinished,
                ..last
            };
        }
        let mut stays = !left && !self.is_late(&passes);
        for _ in 0..=2 * self.strategies.len() {
            let current = passes.current;
            let own = passes.own[current];
            if stays && own.again {
                passes.own[current].again = false;
                passes.made.push((current, own.passes - 1));
                return true;
            }
            if stays && !own.ended {
                if self.strategies[current].has_pass(own.passes, own.last) {
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
            }
            passes.own[current].unfinished = own.last.unfinished;
            passes.current = (current + 1) % self.strategies.len();
            passes.shared |= passes.current == 0;
            passes.since = Instant::now();
            stays = true;
        }
        false
    }

    fn round(&self, pass: u32) -> u32 {
        let (strategy, own) = self.made(pass);
        // Rounds of different strategies are different ones.
        self.strategies[strategy].round(own) * self.strategies.len() as u32 + strategy as u32
    }

    /// Workers need not agree on the parts of a pass that is made again.
    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        if self.left.load(Ordering::Relaxed) {
            return 0;
        }
        let (strategy, own) = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            if self.is_late(&passes) {
                self.left.store(true, Ordering::Relaxed);
                return 0;
            }
            passes.made[pass as usize]
        };
        self.strategies[strategy].parts(own, head)
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let (strategy, own, end) = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            let (strategy, own) = passes.made[pass as usize];
            (strategy, own, self.turn_ends(&passes))
        };
        match (self.strategies[strategy].work(own, point, part), end) {
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
        self.strategies
            .iter()
            .try_for_each(|strategy| strategy.count(trace, options, ends))
    }

    /// What is not planned ahead is not known.
    fn planned(&self) -> Option<u128> {
        Some(u128::MAX)
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        self.strategies.iter().find_map(|strategy| strategy.behaviours())
    }

    fn left(&self) -> Option<String> {
        self.strategies.iter().find_map(|strategy| strategy.left())
    }

    fn warnings(&self) -> Vec<String> {
        self.strategies
            .iter()
            .flat_map(|strategy| strategy.warnings())
            .collect()
    }

    fn failed(&self, head: &PointHead, part: u64) {
        let strategy = {
            let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
            passes.made.last().map(|&(strategy, _)| strategy)
        };
        if let Some(strategy) = strategy {
            self.strategies[strategy].failed(head, part);
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

    /// Passes by strategy; each asks for the parts of a point if `points`.
    fn order(time: Option<Duration>, passes: &[u32], points: bool) -> Vec<(usize, u32)> {
        let strategies = passes.iter().map(|&passes| Box::new(Some(passes)) as Box<dyn Strategy>);
        let auto = Auto::new(strategies.collect(), time);
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
