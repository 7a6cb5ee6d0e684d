//! `crashproof litmus`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::litmus::Window;
use crashproof_campaign::units::Time;

/// Say whether a short trace keeps what it promises, and repair it with the least change
///
/// A litmus file has one operation or property a line: `store NAME ADDRESS LENGTH`, `ntstore …`, `rmw …`, `flush NAME|ADDRESS`, `clflush …`, `fence`,
/// `mfence`, `require durable NAME`, `require NAME before NAME`; a thread as a prefix (`T1: fence`); `#` begins a comment. Exit status: 0 if all
/// properties hold (with --repair: if a repair was found), 1 if not, 2 if the file cannot be read.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  crashproof litmus figure4.litmus\n  crashproof litmus --repair figure4.litmus\n  \
                        crashproof litmus --from app.trace                    the surroundings of the first finding\n  \
                        crashproof litmus --from app.trace --window 120..160"
)]
pub(crate) struct LitmusArguments {
    /// Print the file with the least change after which all properties hold
    #[arg(long, conflicts_with = "from")]
    pub repair: bool,

    /// Write verdict and repair as JSON (`-`: to stdout)
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub json: Option<PathBuf>,

    /// How long to look for a repair
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "repair")]
    pub time: Time,

    /// Cut a litmus file out of a trace, and print it
    #[arg(long, value_name = "TRACE")]
    pub from: Option<PathBuf>,

    /// With --from: these events, as `crashproof dump` numbers them [default: around the first finding of `crashproof check`]
    #[arg(long, value_name = "N..M", requires = "from")]
    pub window: Option<Window>,

    /// The litmus file
    #[arg(value_name = "FILE", required_unless_present = "from", conflicts_with = "from")]
    pub file: Option<PathBuf>,
}
