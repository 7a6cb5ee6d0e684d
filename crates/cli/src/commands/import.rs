//! `crashproof import`.

use crashproof_exchange::{pmemcheck, pmtest};

use super::Result;
use crate::arguments::{ImportArguments, Tool};
use crate::exit::Exit;
use crate::terminal;

#[derive(Debug, thiserror::Error)]
#[error("--initial is for logs of pmemcheck; a log of PMTest names no files, and has no values to crash with")]
struct NoFiles;

pub(crate) fn run(arguments: &ImportArguments) -> Result {
    match arguments.tool {
        Tool::Pmemcheck => of_pmemcheck(arguments),
        Tool::Pmtest => of_pmtest(arguments),
    }
}

fn of_pmemcheck(arguments: &ImportArguments) -> Result {
    let options = pmemcheck::ImportOptions {
        initial: arguments.initial.clone(),
    };
    let imported = pmemcheck::import(&arguments.log, &arguments.output, &options)?;
    terminal::note(&format_args!(
        "{} stores, {} flushes and {} fences imported; the log has no threads, and no places of flushes and fences",
        imported.stores, imported.flushes, imported.fences
    ));
    if imported.outside > 0 {
        terminal::warning(&format_args!(
            "{} stores are to memory that no file is registered for, and are left out",
            imported.outside
        ));
    }
    Ok(Exit::Clean)
}

/// So many checkers that say nothing are told one by one.
const MAX_TOLD: usize = 5;

fn of_pmtest(arguments: &ImportArguments) -> Result {
    if !arguments.initial.is_empty() {
        return Err(NoFiles.into());
    }
    let imported = pmtest::import(&arguments.log, &arguments.output)?;
    terminal::note(&format_args!(
        "{} stores, {} flushes, {} fences and {} checkers imported; the log has no threads, files and values",
        imported.stores, imported.flushes, imported.fences, imported.checkers
    ));
    for unordered in imported.unordered.iter().take(MAX_TOLD) {
        terminal::warning(&format_args!(
            "{}:{}: isOrderedBefore at {} is about memory that nothing was stored to, and is left out",
            arguments.log.display(),
            unordered.line,
            unordered.place
        ));
    }
    if imported.unordered.len() > MAX_TOLD {
        terminal::warning(&format_args!("… and {} more", imported.unordered.len() - MAX_TOLD));
    }
    Ok(Exit::Clean)
}
