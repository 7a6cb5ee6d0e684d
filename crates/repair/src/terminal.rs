//! Messages on stderr, and what is going on, on a terminal that somebody watches.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use anstream::{ColorChoice, stderr};
use indicatif::{ProgressBar, ProgressStyle};

/// What `--color` says.
pub fn set_color(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

/// A closed stderr is no reason to fail: the exit code says the rest.
pub fn print(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

pub fn error(error: &dyn Display) {
    print(&format!("crashproof: \x1b[1;31merror\x1b[0m: {error}\n"));
}

pub fn warning(text: &dyn Display) {
    print(&format!("crashproof: \x1b[1;33mwarning\x1b[0m: {text}\n"));
}

pub fn note(text: &dyn Display) {
    print(&format!("crashproof: \x1b[1;36mnote\x1b[0m: {text}\n"));
}

/// The step that is being done; gone when it is dropped.
pub struct Step(Option<ProgressBar>);

/// Shows `what` until it is done.
pub fn step(what: &str) -> Step {
    if !std::io::stderr().is_terminal() {
        return Step(None);
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    Step(Some(bar))
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
