//! Messages of crashproof itself, on stderr. Colours are for terminals that have them.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use anstream::{AutoStream, ColorChoice, stderr};

/// Where stderr is not a terminal, and at most.
const DEFAULT_WIDTH: usize = 100;
const MAX_WIDTH: usize = 120;

/// Columns for a text on stderr.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size_of(std::io::stderr())
        .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0).min(MAX_WIDTH))
}

/// What `--color` says, for stdout and stderr.
pub(crate) fn set_color(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

/// Whether stderr shows colours.
pub(crate) fn color() -> bool {
    AutoStream::choice(&std::io::stderr()) != ColorChoice::Never
}

/// Whether a person watches stderr.
pub(crate) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Prints to stderr. A closed stderr is no reason to fail: the exit code says the rest.
pub(crate) fn print(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// `crashproof: error: …`, with the causes that the message does not hold itself.
pub(crate) fn error(error: &dyn Display) {
    message("error", "\x1b[1;31m", error);
}

pub(crate) fn warning(text: &dyn Display) {
    message("warning", "\x1b[1;33m", text);
}

pub(crate) fn note(text: &dyn Display) {
    message("note", "\x1b[1;36m", text);
}

/// A command, before it runs.
pub(crate) fn command(line: &str) {
    print(&format!("\x1b[1m$ {line}\x1b[0m\n"));
}

fn message(level: &str, style: &str, text: &dyn Display) {
    print(&format!("crashproof: {style}{level}\x1b[0m: {text}\n"));
}
