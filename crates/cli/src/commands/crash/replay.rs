//! `crashproof crash --replay`: the recovery on a saved image, with its output shown.

use std::io::{self, Write};
use std::path::Path;

use crashproof_campaign::{Replay, how_it_ended};
use crashproof_sandbox::Ended;

use crate::arguments::CrashArguments;
use crate::commands::{Result, own_path};
use crate::exit::Exit;
use crate::terminal;

pub(super) fn run(folder: &Path, arguments: &CrashArguments) -> Result {
    let mut replay = Replay::open(folder, &arguments.options, own_path()?)?;
    terminal::note(&format_args!("{}: {}", replay.saved.kind, replay.saved.message));
    let replayed = replay.run()?;
    let saved = &replay.saved;
    show(&saved.recover, &replayed.run.recovery);
    if let (Some(command), Some(ended)) = (&saved.check, &replayed.run.check) {
        show(command, ended);
    }
    if !replayed.as_expected {
        terminal::note(&"its output is not the expected one");
    }
    if replayed.recovers() {
        terminal::note(&format_args!(
            "it recovers from this crash now; when it was saved: {}",
            saved.verdict
        ));
        return Ok(Exit::Clean);
    }
    terminal::note(&"it still does not recover from this crash");
    Ok(Exit::Findings)
}

/// What it printed where it would have printed it, and how it ended.
fn show(command: &str, ended: &Ended) {
    terminal::command(command);
    // A closed stdout is no reason to fail: the exit code says the rest.
    let _ = io::stdout()
        .write_all(&ended.stdout)
        .and_then(|()| io::stdout().flush());
    terminal::print(&String::from_utf8_lossy(&ended.stderr));
    terminal::print(&format!("({})\n", how_it_ended(ended)));
}
