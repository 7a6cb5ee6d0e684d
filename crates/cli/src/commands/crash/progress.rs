//! `crashproof crash` on a terminal: what happens, and how far it is.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crashproof_campaign::Listener;
use crashproof_crash::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// Shows on stderr what a campaign tells.
pub(crate) struct Terminal;

impl Listener for Terminal {
    fn note(&self, text: &dyn Display) {
        terminal::note(text);
    }

    fn warning(&self, text: &dyn Display) {
        terminal::warning(text);
    }

    fn error(&self, text: &dyn Display) {
        terminal::error(text);
    }

    fn testing(&self) -> Box<dyn FnMut(&Progress) + Send> {
        let mut line = Line::new();
        Box::new(move |progress| line.update(progress))
    }
}

/// The rate is that of the last so long, not of the whole test: recoveries differ from state to state.
const WINDOW: Duration = Duration::from_secs(3);

/// One line: states tested, per second, left, findings so far.
struct Line {
    bar: Option<ProgressBar>,
    /// When the rate was last computed, with how many states; and the rate.
    since: (Instant, u64),
    rate: f64,
}

impl Line {
    fn new() -> Line {
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

    fn update(&mut self, progress: &Progress) {
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
