//! How far a crash test is: on a terminal that somebody watches, and for the chart of the HTML report.

use std::time::{Duration, Instant};

use crashproof_crash::Progress;
use crashproof_finding::picture::Sample;
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// The rate is that of the last so long, not of the whole test: recoveries differ from state to state.
const WINDOW: Duration = Duration::from_secs(3);

/// One line: states tested, per second, left, findings so far.
pub struct Line {
    bar: Option<ProgressBar>,
    /// When the rate was last computed, with how many states; and the rate.
    since: (Instant, u64),
    rate: f64,
}

impl Line {
    pub fn new() -> Line {
        let bar = terminal::is_watched().then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style)
        });
        Line {
            bar,
            since: (Instant::now(), 0),
            rate: 0.0,
        }
    }

    pub fn update(&mut self, progress: &Progress) {
        let Some(bar) = &self.bar else {
            return;
        };
        let elapsed = self.since.0.elapsed();
        if self.rate == 0.0 || elapsed >= WINDOW {
            let tested = progress.tested.saturating_sub(self.since.1);
            self.rate = tested as f64 / elapsed.as_secs_f64().max(0.001);
            if elapsed >= WINDOW {
                self.since = (Instant::now(), progress.tested);
            }
        }
        bar.set_message(describe(progress, self.rate));
        bar.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Samples kept; with more, every second one goes.
const MAX_SAMPLES: usize = 240;
/// Between samples, at first.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// How a test went, in few points however long it takes: the time between them doubles as it goes on.
pub struct Samples {
    start: Instant,
    every: Duration,
    samples: Vec<Sample>,
    /// What the campaigns before this one came to: `--depth 2` crashes one recovery after the other.
    base: Sample,
    last: Sample,
}

impl Samples {
    pub fn new() -> Samples {
        Samples {
            start: Instant::now(),
            every: SAMPLE_EVERY,
            samples: Vec::new(),
            base: Sample::default(),
            last: Sample::default(),
        }
    }

    /// A campaign begins, the first one or another after it.
    pub fn begin(&mut self) {
        if self.samples.is_empty() {
            *self = Samples::new();
            self.samples.push(Sample::default());
        }
        self.base = self.last;
    }

    /// What was tested counts no more.
    pub fn begin_again(&mut self) {
        *self = Samples::new();
    }

    pub fn add(&mut self, progress: &Progress) {
        self.add_at(self.start.elapsed(), progress);
    }

    fn add_at(&mut self, time: Duration, progress: &Progress) {
        self.last = Sample {
            seconds: time.as_secs_f64(),
            tested: self.base.tested + progress.tested,
            failed: self.base.failed + progress.failed,
            findings: self.base.findings + progress.findings,
        };
        let due = self.samples.last().map_or(0.0, |last| last.seconds) + self.every.as_secs_f64();
        if self.last.seconds < due {
            return;
        }
        self.samples.push(self.last);
        if self.samples.len() > MAX_SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// All of them, and how it ended.
    pub fn take(&mut self) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.samples);
        if samples.last().is_some_and(|last| *last != self.last) {
            samples.push(self.last);
        }
        samples
    }
}

fn describe(progress: &Progress, rate: f64) -> String {
    let left = progress
        .total
        .saturating_sub(u128::from(progress.tested) + u128::from(progress.pruned));
    let mut text = format!("{} states tested", progress.tested);
    if progress.pruned > 0 {
        text += &format!(", {} alike", progress.pruned);
    }
    text += &format!(", {rate:.0} per second");
    // Else nobody knows how many there are.
    if progress.total < u128::MAX {
        text += &format!(", {} left", magnitude(left));
    }
    text += match progress.findings {
        0 => ", no bugs so far".to_owned(),
        1 => ", 1 bug so far".to_owned(),
        n => format!(", {n} bugs so far"),
    }
    .as_str();
    text
}

/// State counts can be astronomic.
fn magnitude(count: u128) -> String {
    if count < 1_000_000_000_000 {
        count.to_string()
    } else {
        format!("{:.0e}", count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_few_and_end_where_the_test_does() {
        let mut samples = Samples::new();
        samples.begin();
        let at = |tested| Progress {
            tested,
            failed: tested / 10,
            findings: u64::from(tested > 50),
            ..Progress::default()
        };
        for tested in 0..100_000 {
            samples.add_at(Duration::from_millis(tested), &at(tested));
        }
        samples.begin();
        samples.add_at(Duration::from_secs(200), &at(7));
        let taken = samples.take();
        assert!(
            (MAX_SAMPLES / 2..=MAX_SAMPLES + 2).contains(&taken.len()),
            "{}",
            taken.len()
        );
        assert_eq!(taken[0], Sample::default());
        assert!(taken.is_sorted_by(|a, b| a.seconds < b.seconds && a.tested <= b.tested));
        let last = Sample {
            seconds: 200.0,
            tested: 100_006,
            failed: 9999,
            findings: 1,
        };
        assert_eq!(taken.last(), Some(&last));
    }

    #[test]
    fn a_line_says_it_all() {
        let progress = Progress {
            tested: 120,
            pruned: 30,
            failed: 4,
            findings: 1,
            total: 1000,
        };
        assert_eq!(
            describe(&progress, 61.4),
            "120 states tested, 30 alike, 61 per second, 850 left, 1 bug so far"
        );
        assert_eq!(
            describe(&Progress::default(), 0.0),
            "0 states tested, 0 per second, 0 left, no bugs so far"
        );
        assert_eq!(magnitude(u128::MAX), "3e38");
    }
}
