//! `crashproof export`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use crashproof_exchange::{perfetto, pmemcheck};
use crashproof_trace::TraceReader;

use super::Result;
use crate::arguments::{ExportArguments, ExportFormat};
use crate::exit::Exit;
use crate::terminal;

#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
struct OutputError {
    path: PathBuf,
    source: std::io::Error,
}

pub fn run(arguments: &ExportArguments) -> Result {
    let mut reader = TraceReader::open(&arguments.trace)?;
    let path = arguments.output.clone().unwrap_or_else(|| "-".into());
    let unwritable = |source| OutputError {
        path: path.clone(),
        source,
    };
    let mut out: Box<dyn Write> = match path.to_str() {
        Some("-") => Box::new(BufWriter::new(std::io::stdout().lock())),
        _ => Box::new(BufWriter::new(std::fs::File::create(&path).map_err(unwritable)?)),
    };
    let lost = match arguments.format {
        ExportFormat::Pmemcheck => pmemcheck::export(&mut reader, &mut out)?,
        ExportFormat::Perfetto => perfetto::export(&mut reader, &mut out)?,
    };
    out.flush().map_err(unwritable)?;
    for (what, count) in lost.iter() {
        terminal::note(&format_args!("not in the export: {what} ({count})"));
    }
    Ok(Exit::Clean)
}
