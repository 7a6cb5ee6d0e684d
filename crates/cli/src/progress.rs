//! A progress bar for work that takes long, on a terminal that somebody watches.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// Shorter work needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows itself when the work has taken a while.
pub(crate) struct Progress {
    what: &'static str,
    started: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Progress {
            what,
            started: Instant::now(),
            wanted: terminal::is_watched(),
            bar: None,
        }
    }

    /// `done` of `total` bytes.
    pub(crate) fn update(&mut self, done: u64, total: u64) {
        if !self.wanted || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}% of {total_bytes}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> ");
            ProgressBar::new(total).with_style(style).with_prefix(self.what)
        });
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
