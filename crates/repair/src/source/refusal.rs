//! Why a fix has no good source form.

use std::path::{Path, PathBuf};

/// The reason why the source is left alone; the bitcode can be repaired all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the compiler gave the instruction no source position")]
    NoPosition,
    #[error("{} is outside the source tree", path.display())]
    OutsideTree { path: PathBuf },
    #[error("{} is generated code ({evidence}): the next build would undo the change", path.display())]
    Generated { path: PathBuf, evidence: String },
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("no compile command of the program includes {}", path.display())]
    NoCommand { path: PathBuf },
    #[error("{}:{line}: libclang finds no statement there", path.display())]
    NoStatement { path: PathBuf, line: u32 },
    #[error("what is written there is not an expression that can be named: {what}")]
    NotNameable { what: String },
    #[error("evaluating `{expression}` again may not give the place that was written: {why}")]
    NotRepeatable { expression: String, why: String },
    #[error("the statement is in the macro {name}, whose other uses must not change")]
    Macro { name: String },
    #[error("a preprocessor directive lies within the statement")]
    Directive,
    #[error("it is part of {context}, where no statement can follow it")]
    NoStatementAfter { context: &'static str },
    #[error("the function {name} has no persistent variant in the source: {why}")]
    NoVariant { name: String, why: String },
    #[error("the call cannot be redirected: {why}")]
    NoRedirection { why: String },
    #[error("it is not a statement of its own: {why}")]
    NotRemovable { why: String },
    #[error("another fix changes the same text")]
    Overlap,
}

impl Refusal {
    /// With another path for the file that it is about.
    pub(crate) fn with_path(mut self, rename: impl Fn(&Path) -> PathBuf) -> Refusal {
        match &mut self {
            Refusal::OutsideTree { path }
            | Refusal::Generated { path, .. }
            | Refusal::Unreadable { path, .. }
            | Refusal::NoCommand { path }
            | Refusal::NoStatement { path, .. } => *path = rename(path),
            _ => {}
        }
        self
    }
}
