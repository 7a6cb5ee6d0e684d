//! JSON, as scripts rely on it: `docs/check.md` has the contract. The types of [`crashproof_finding::finding`] are its form.

use crashproof_finding::Report;

/// The report as JSON text with a line end. `program.status` is a number also for a program that a signal ended.
pub fn to_json(report: &Report) -> Result<String, serde_json::Error> {
    let mut report = report.clone();
    report.program.status = report.program.shell_status();
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    Ok(text)
}
