//! Completions and man pages, from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use super::Result;
use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::exit::Exit;

#[derive(Debug, thiserror::Error)]
#[error("cannot write man pages into {}: {source}; name a folder that can be written to", folder.display())]
struct ManError {
    folder: PathBuf,
    source: std::io::Error,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "crashproof", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Exit::Clean)
}

pub(crate) fn man(arguments: &ManArguments) -> Result {
    match &arguments.folder {
        None => clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?,
        Some(folder) => std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
            .map_err(|source| ManError {
                folder: folder.clone(),
                source,
            })?,
    }
    Ok(Exit::Clean)
}
