//! JSON, as scripts rely on it: `docs/check.md` has the contract. The types of [`finding`](crate::finding) are its form.

use crate::{Program, Report};

/// Added to the number of a signal to give the status that a shell reports.
const SIGNAL_STATUS: i32 = 128;

impl Program {
    /// The status as a shell gives it: the program's own, or 128 and the number of the signal that ended it.
    pub fn shell_status(&self) -> Option<i32> {
        self.status.or(self.signal.map(|signal| SIGNAL_STATUS + signal))
    }
}

/// The report as JSON text with a line end. `program.status` is a number also for a program that a signal ended.
pub fn to_json(report: &Report) -> Result<String, serde_json::Error> {
    let mut report = report.clone();
    report.program.status = report.program.shell_status();
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}
