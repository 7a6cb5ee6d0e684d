//! What planning reads: the trace of a repair build, and the bitcode of the program that made it.

use std::path::{Path, PathBuf};

use crashproof_llvm::Context;
use crashproof_program::{Program, ProgramError};
use crashproof_sites::SitesError;
use crashproof_trace::TraceReader;

use crate::commands::{BuildSite, shown};
use crate::flow::RepairError;
use crate::observed::Observed;

pub(crate) fn read_trace(path: &Path) -> Result<(TraceReader, Observed), RepairError> {
    let failed = |source| RepairError::Trace {
        path: path.to_owned(),
        source,
    };
    let mut reader = TraceReader::open(path).map_err(failed)?;
    let observed = Observed::read(&mut reader).map_err(failed)?;
    Ok((reader, observed))
}

/// The program's bitcode: of the program itself, or, of a script, of what it ran.
pub(crate) fn load<'context>(
    site: &BuildSite,
    reader: &TraceReader,
    context: &'context Context,
) -> Result<Program<'context>, RepairError> {
    let words = site.copy.words(&site.commands.program);
    let program = site.copy.program(&words);
    let modules = reader.tables().modules.iter().map(|module| PathBuf::from(&module.path));
    let in_copy = modules.filter(|path| path.starts_with(site.copy.root()));
    for path in program.into_iter().chain(in_copy) {
        match Program::load(&path, context) {
            Ok(program) => return Ok(program),
            // A script, a tool of another compiler.
            Err(ProgramError::NoBitcode { .. } | ProgramError::Sites(SitesError::Elf { .. })) => {}
            Err(error) => {
                return Err(RepairError::Unreadable {
                    reason: site.copy.to_tree(&error.to_string()),
                });
            }
        }
    }
    Err(RepairError::NoBitcode {
        program: site.copy.to_tree(&shown(&words)),
    })
}
