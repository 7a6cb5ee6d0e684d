//! The options of `crashproof explain`.

use std::path::PathBuf;

use clap::Args;

use super::Model;

/// Say which update behaviours a trace has, and which of them stand for the others
///
/// An update behaviour is what a program does to one object in one go: which fields it stores to, and which of these stores
/// must persist before which. `crash --strategy representative` tests those that represent the others. Types and fields are the
/// program's own where `crashproof cc` built it; elsewhere a function stands for the type and a place in its code for the
/// field.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof explain app.trace\n  crashproof explain --behaviour 3 app.trace\n  \
                        crashproof explain --behaviour 3 --svg graph.svg app.trace"
)]
pub(crate) struct ExplainArguments {
    /// Show one behaviour in full: its stores, and what must persist before what
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub behaviour: Option<u64>,

    /// Write the persistence graph of the behaviour (the first, if none is given) for Graphviz (`-`: to stdout)
    #[arg(long, value_name = "FILE")]
    pub dot: Option<PathBuf>,

    /// Write it as a picture (`-`: to stdout)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write all behaviours as JSON (`-`: to stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Only behaviours of one object
    #[arg(long)]
    pub no_joint: bool,

    /// Only from the first event on that has this function in its call path
    #[arg(long, value_name = "FUNCTION")]
    pub from: Option<String>,

    /// Only up to the first event, after --from, that has this function in its call path
    #[arg(long, value_name = "FUNCTION")]
    pub until: Option<String>,

    /// What the hardware promises
    #[arg(long, value_name = "MODEL", default_value = "px86")]
    pub model: Model,

    /// Stores within a cache line persist in any order
    #[arg(long)]
    pub reorder_in_line: bool,

    /// A trace that `crashproof record` wrote
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}
