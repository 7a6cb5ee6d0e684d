//! The plan as a unified diff of the source.
//!
//! Hippocrates (section 5.2) stops at bitcode and calls the way back to source code easy, because its fixes only insert flushes and fences and copy
//! functions. The insertions are; to name what was written is not: this module takes statements and expressions from libclang, and
//! refuses with a reason what it cannot say with certainty (see [`Refusal`]).
//!
//! - `units`, `tree`, `text`: the source, parsed with the compile command of its object;
//! - `written`, `spelling`, `repeatable`: what a store wrote, its address and size in source text, and whether that text still means the same place behind it;
//! - `hoist`: variables for what must not be evaluated twice;
//! - `anchor`, `edits`: where a statement can be inserted, and how it is laid out;
//! - `variants`: persistent subprograms;
//! - `idiom`: the functions to call;
//! - `changed`: the result.

pub(crate) mod anchor;
pub(crate) mod changed;
pub(crate) mod changes;
pub(crate) mod edits;
pub(crate) mod hint;
mod hoist;
pub(crate) mod idiom;
mod includes;
pub(crate) mod patcher;
pub(crate) mod refusal;
mod repeatable;
pub(crate) mod spelling;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod tree;
pub(crate) mod units;
mod variants;
pub(crate) mod written;

use std::path::{Path, PathBuf};

use clang::Index;
use crashproof_llvm::Module;
use crashproof_program::Program;
use crashproof_trace::ReadError;

use crate::observed::Observed;
use crate::plan::Plan;
pub use changed::{Cause, Changed, LineChange, Origin, Patch, combine, diff};
pub use refusal::Refusal;
pub use units::CompileCommand;

use patcher::Patcher;
use units::{Libclang, Units};

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(
        "libclang could not be loaded: {reason}; install it (Debian, Ubuntu: apt install libclang1-19), or set LIBCLANG_PATH to the folder that holds libclang.so"
    )]
    Libclang { reason: String },
    #[error("cannot read the trace {}: {source}", path.display())]
    Trace { path: PathBuf, source: ReadError },
}

/// Whether sources can be read at all.
pub fn available() -> Result<(), SourceError> {
    Libclang::load().map(drop)
}

/// Turns the plan into changes of the sources below `tree`. The program must be the one that was planned for, its bitcode unchanged.
pub fn patch(plan: &Plan, program: &Program, observed: &Observed, tree: &Path) -> Result<Patch, SourceError> {
    patch_sources(plan, &program.module, commands(program), observed, tree)
}

/// How the objects of the program were compiled.
pub(crate) fn commands(program: &Program) -> Vec<CompileCommand> {
    let objects = program.files.iter().flat_map(|(_, sites)| sites.objects());
    objects
        .map(|object| CompileCommand {
            source: object.source.clone().into(),
            directory: object.directory.clone().into(),
            command: object.command.clone(),
        })
        .collect()
}

fn patch_sources(
    plan: &Plan,
    module: &Module,
    commands: Vec<CompileCommand>,
    observed: &Observed,
    tree: &Path,
) -> Result<Patch, SourceError> {
    let libclang = Libclang::load()?;
    let index = Index::new(&libclang.clang, false, false);
    let units = Units::new(&index, tree, commands);
    Ok(Patcher::new(plan, module, observed, &units).patch())
}
