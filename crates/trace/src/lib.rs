//! The trace, which recorders produce and analyses read.
//!
//! [`TraceWriter`] and [`TraceReader`] stream a trace to and from disk; [`mod@format`] has the bytes.
//! [`TraceFile`] is a trace with an index. [`Tables`] hold everything that events refer to by id. [`symbols`]
//! turns code addresses into source positions, and [`dump`] turns an item into a line of text.
//!
//! Architecture invariant: knows neither recorders nor analyses.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod annotation;
mod call_return;
mod dependences;
pub mod dump;
pub mod event;
mod file;
pub mod format;
mod operations;
mod reader;
pub mod replace;
pub mod symbols;
mod tables;
pub mod tracked;
mod usage;
mod writer;

pub use annotation::{Annotation, MemoryRange};
pub use call_return::{CallReturn, PmemObject};
pub use dependences::{Dependence, Dependences};
pub use event::*;
pub use file::{MappedRange, OperationIndex, OperationStart, TraceFile};
pub use format::{Header, Options};
pub use operations::{Boundaries, Operations};
pub use reader::{Item, Outline, ReadError, TraceReader};
pub use tables::{Process, Tables};
pub use usage::{FileUse, FileUses};
pub use writer::{Storage, TraceWriter, WriteError};
