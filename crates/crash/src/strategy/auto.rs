//! `auto`: several strategies one after the other, for who does not want to choose. First the states that violate what the code relies on
//! (Witcher's, where there are conditions), then the representatives of the update behaviours (Squint's), then at every crash point the
//! few states that most bugs show in. Findings are merged by their cause, as in any campaign: they are explained by one investigator, and no state
//! is run twice.
//!
//! The first two see different things: a condition needs a dependence that the run shows, a representative an object whose updates
//! are alike. The third needs neither, and is what a program gets that was compiled without types or dependences.
//!
//! So that a short budget sees something of each, a strategy that has used up its share of the time waits until the others
//! have had theirs, and goes on then.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::{EARLY_PASSES, PassEnd, Step, Strategy, Work, early_parts, early_work};
use crate::state::{CrashPoint, PointHead};
use crashproof_report as report;

pub(crate) struct Auto {
    strategies: Vec<Box<dyn Strategy>>,
    /// Of each strategy, in the first round.
    share: Option<Duration>,
    /// Which strategy makes a pass, and which of its own passes that is.
    passes: RwLock<Passes>,
    warnings: Vec<String>,
}

struct Passes {
    made: Vec<(usize, u32)>,
    /// By strategy: its passes so far, and whether it has no more.
    own: Vec<(u32, bool)>,
    current: usize,
    since: Instant,
    /// Every strategy has had its share.
    shared: bool,
}

impl Auto {
    pub fn new(strategies: Vec<Box<dyn Strategy>>, time: Option<Duration>) -> Auto {
        let warnings = strategies
            .iter()
            .flat_map(|strategy| strategy.warnings().to_vec())
            .collect();
        Auto {
            share: time.map(|time| time / strategies.len().max(1) as u32),
            passes: RwLock::new(Passes {
                made: Vec::new(),
                own: vec![(0, false); strategies.len()],
                current: 0,
                since: Instant::now(),
                shared: false,
            }),
            warnings,
            strategies,
        }
    }

    fn made(&self, pass: u32) -> (usize, u32) {
        let passes = self.passes.read().unwrap_or_else(PoisonError::into_inner);
        passes.made[pass as usize]
    }
}

impl Strategy for Auto {
    fn has_pass(&self, pass: u32, last: PassEnd) -> bool {
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        if passes.made.len() > pass as usize {
            return true;
        }
        let is_late = self.share.is_some_and(|share| passes.since.elapsed() >= share);
        let mut stays = !is_late || passes.shared;
        for _ in 0..=2 * self.strategies.len() {
            let current = passes.current;
            let (own, ended) = passes.own[current];
            if stays && !ended {
                // What another strategy left unfinished is not this one's.
                let last = match passes.made.last() {
                    Some(&(before, _)) if before == current => last,
                    _ => PassEnd::default(),
                };
                if self.strategies[current].has_pass(own, last) {
                    passes.own[current].0 += 1;
                    passes.made.push((current, own));
                    return true;
                }
                passes.own[current].1 = true;
            }
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

    fn parts(&self, pass: u32, head: &PointHead) -> u64 {
        let (strategy, own) = self.made(pass);
        self.strategies[strategy].parts(own, head)
    }

    fn work<'p>(&self, pass: u32, point: &'p CrashPoint, part: u64) -> Work<'p> {
        let (strategy, own) = self.made(pass);
        self.strategies[strategy].work(own, point, part)
    }

    fn planned(&self) -> Option<u128> {
        self.strategies.iter().map(|strategy| strategy.planned()).sum()
    }

    fn behaviours(&self) -> Option<report::Behaviours> {
        self.strategies.iter().find_map(|strategy| strategy.behaviours())
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
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

    fn order(time: Option<Duration>, passes: &[u32]) -> Vec<(usize, u32)> {
        let strategies = passes.iter().map(|&passes| Box::new(Some(passes)) as Box<dyn Strategy>);
        let auto = Auto::new(strategies.collect(), time);
        let made = (0..)
            .take_while(|&pass| auto.has_pass(pass, PassEnd::default()))
            .count();
        (0..made as u32).map(|pass| auto.made(pass)).collect()
    }

    #[test]
    fn one_strategy_after_the_other() {
        assert_eq!(order(None, &[2, 0, 3]), [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(order(None, &[0, 0]), []);
    }

    #[test]
    fn each_has_its_share_and_goes_on_after_the_others() {
        assert_eq!(
            order(std::option::Option::Some(Duration::ZERO), &[3, 2]),
            [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]
        );
    }
}
