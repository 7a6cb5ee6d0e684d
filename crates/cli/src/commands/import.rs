//! `crashproof import`.

use crashproof_exchange::pmemcheck;

use super::Result;
use crate::arguments::{ImportArguments, Tool};
use crate::exit::Exit;
use crate::terminal;

pub fn run(arguments: &ImportArguments) -> Result {
    let Tool::Pmemcheck = arguments.tool;
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
