//! What becomes of the findings: the options that `check`, `crash` and `test` share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use crashproof_campaign::options::RESULTS;
use crashproof_finding::Severity;

#[derive(Clone, Debug, Args)]
pub(crate) struct ResultOptions {
    /// Write the findings as JSON (`-`: to stdout)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub json: Option<PathBuf>,

    /// Write the findings as SARIF 2.1.0 (`-`: to stdout)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub sarif: Option<PathBuf>,

    /// Write the findings as JUnit XML (`-`: to stdout)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub junit: Option<PathBuf>,

    /// Write a page for a browser, with pictures (`-`: to stdout)
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub html: Option<PathBuf>,

    /// How findings are shown on stderr
    #[arg(long, value_name = "FORMAT", default_value = "full", help_heading = RESULTS)]
    pub format: Format,

    /// Only findings that this file does not have count: what --json wrote earlier
    ///
    /// A finding is recognised by its kind, function, file and message; its line may have changed.
    #[arg(long, value_name = "FILE", help_heading = RESULTS)]
    pub baseline: Option<PathBuf>,

    /// Exit with 1 only if there is a finding of this severity or worse
    #[arg(long, value_name = "SEVERITY", default_value = "note", help_heading = RESULTS)]
    pub fail_on: FailOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// With source excerpts and explanations
    Full,
    /// A line for each place, `file:line:column: kind: message`, for editors
    Gnu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Data can be lost
    Error,
    /// Errors, and flushes, fences and snapshots that do nothing
    Warning,
    /// Any finding
    Note,
}

impl From<FailOn> for Severity {
    fn from(fail_on: FailOn) -> Severity {
        match fail_on {
            FailOn::Error => Severity::Error,
            FailOn::Warning => Severity::Warning,
            FailOn::Note => Severity::Note,
        }
    }
}
