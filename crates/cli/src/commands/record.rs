//! `crashproof record`.

use crashproof_campaign::recording::{Manner, record};

use super::Result;
use crate::arguments::RecordArguments;
use crate::exit::Exit;
use crate::terminal;

pub(crate) fn run(arguments: &RecordArguments) -> Result {
    let recorded = record(
        &arguments.command,
        &arguments.output,
        &arguments.recording,
        Manner {
            dependences: !arguments.no_deps,
            ..Manner::default()
        },
    )?;
    if recorded.dependences {
        terminal::note(&"recorded the version of the program that follows dependences (--no-deps: the optimised one)");
        if !recorded.unlabelled.is_empty() {
            terminal::note(&format_args!(
                "what {} loads from persistent memory was not seen: it was not built by crashproof cc --deps",
                recorded.unlabelled.join(", ")
            ));
        }
        if recorded.cuts > 0 {
            terminal::note(&format_args!(
                "{} labels had more than 64 members; the farthest were left out",
                recorded.cuts
            ));
        }
    }
    if recorded.trace != arguments.output {
        terminal::warning(&format_args!(
            "{} is as it was before; what was recorded is in {}",
            arguments.output.display(),
            recorded.trace.display()
        ));
    }
    for incomplete in &recorded.incomplete {
        terminal::warning(&format_args!("the trace is incomplete: {}", incomplete.detail));
    }
    Ok(match (recorded.end.signal, recorded.end.status) {
        (Some(signal), _) => Exit::Signal(signal),
        (None, Some(status)) => Exit::Status(status),
        (None, None) => Exit::Failed,
    })
}
