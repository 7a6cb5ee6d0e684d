//! How a crash test went, for the chart of the HTML report.

use std::time::{Duration, Instant};

use crashproof_crash::Progress;
use crashproof_finding::picture::Sample;

/// Samples kept; with more, every second one goes.
const MAX_SAMPLES: usize = 240;
/// Between samples, at first.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// How a test went, in few points however long it takes: the time between them doubles as it goes on.
pub(crate) struct Samples {
    start: Instant,
    every: Duration,
    samples: Vec<Sample>,
    /// What the campaigns before this one came to: `--depth 2` crashes one recovery after the other.
    base: Sample,
    last: Sample,
}

impl Samples {
    pub(crate) fn new() -> Samples {
        Samples {
            start: Instant::now(),
            every: SAMPLE_EVERY,
            samples: Vec::new(),
            base: Sample::default(),
            last: Sample::default(),
        }
    }

    /// A campaign begins, the first one or another after it.
    pub(crate) fn begin(&mut self) {
        if self.samples.is_empty() {
            *self = Samples::new();
            self.samples.push(Sample::default());
        }
        self.base = self.last;
    }

    /// What was tested counts no more.
    pub(crate) fn begin_again(&mut self) {
        *self = Samples::new();
    }

    pub(crate) fn add(&mut self, progress: &Progress) {
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
    pub(crate) fn take(&mut self) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.samples);
        if samples.last().is_some_and(|last| *last != self.last) {
            samples.push(self.last);
        }
        samples
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
}
