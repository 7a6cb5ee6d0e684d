//! `crashproof crash`: a campaign, shown.

mod progress;
mod replay;

use std::path::Path;

use crashproof_campaign::{Campaign, Tested};

use super::outcome::{self, Judge};
use super::{Result, own_path};
use crate::arguments::CrashArguments;
use crate::exit::Exit;
use crate::terminal;

pub(crate) use progress::Terminal;

pub(crate) fn run(arguments: &CrashArguments) -> Result {
    if let Some(folder) = &arguments.replay {
        return replay::run(folder, arguments);
    }
    let judge = Judge::new(&arguments.results)?;
    let (exit, tested) = test(arguments, &judge, || ())?;
    judge.tell_gone([&tested.report], outcome::of_crash);
    outcome::write_one(&judge, &arguments.results, "crash", &tested.report)?;
    Ok(exit)
}

/// The whole test; the report has been shown. `stopped` is called if Ctrl-C ends the process before there is one.
pub(crate) fn test(
    arguments: &CrashArguments,
    judge: &Judge,
    stopped: impl FnOnce() + Send + 'static,
) -> std::result::Result<(Exit, Tested), Box<dyn std::error::Error>> {
    let campaign = Campaign::new(&arguments.options, own_path()?, Path::new(""), &Terminal)?;
    let mut tested = campaign.with_pictures(arguments.results.html.is_some()).run(move || {
        terminal::error(&"interrupted before anything was tested");
        stopped();
        Exit::Failed.now();
    })?;
    judge.show(&mut tested.report);
    if tested.resumable {
        let fails_fast = arguments.options.fail_fast && !tested.report.findings.is_empty();
        let why = match (tested.interrupted, tested.undecided) {
            (true, _) => "interrupted",
            (false, true) => "the test ended early",
            (false, false) if fails_fast => "the test ended with its first finding (--fail-fast)",
            (false, false) => "the budget ended the test",
        };
        terminal::note(&format_args!(
            "{why}; the same command with --resume goes on from here (with another --time or --max-states, if you like)"
        ));
    } else if tested.is_cut_short() && tested.interrupted {
        terminal::note(&"interrupted; it cannot be resumed");
    }
    let exit = match judge.verdict(&tested.report) {
        Exit::Clean if !tested.is_decided() => Exit::Failed,
        exit => exit,
    };
    Ok((exit, tested))
}
