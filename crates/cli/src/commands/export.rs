//! `crashproof export`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use crashproof_exchange::{perfetto, pmemcheck};
use crashproof_trace::TraceReader;
use crashproof_trace::replace::Replacement;

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

pub(crate) fn run(arguments: &ExportArguments) -> Result {
    let helpers = arguments.project.load()?.declared_helpers();
    let mut reader = TraceReader::open(&arguments.trace)?;
    let path = arguments.output.clone().unwrap_or_else(|| "-".into());
    let unwritable = |source| OutputError {
        path: path.clone(),
        source,
    };
    let export = |reader: &mut TraceReader, out: &mut dyn Write| match arguments.format {
        ExportFormat::Pmemcheck => pmemcheck::export(reader, out),
        ExportFormat::Perfetto => perfetto::export(reader, helpers.clone(), out),
    };
    let lost = match path.to_str() {
        Some("-") => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            let lost = export(&mut reader, &mut out)?;
            out.flush().map_err(unwritable)?;
            lost
        }
        _ => {
            let mut replacement = Replacement::new(&path).map_err(unwritable)?;
            let mut out = BufWriter::new(replacement.file());
            let lost = export(&mut reader, &mut out)?;
            out.flush().map_err(unwritable)?;
            drop(out);
            replacement.commit().map_err(unwritable)?;
            lost
        }
    };
    for (what, count) in lost.iter() {
        terminal::note(&format_args!("not in the export: {what} ({count})"));
    }
    Ok(Exit::Clean)
}
