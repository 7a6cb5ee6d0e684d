//! `crashproof crash --oracle output` on a driver.

use std::process::Stdio;

use crashproof_finding::Report;

use crate::driver::Place;
use crate::support;

pub(crate) struct Crashed {
    pub report: Report,
    pub stderr: String,
    /// Of `crashproof crash` itself.
    pub exit: Option<i32>,
}

impl Crashed {
    pub(crate) fn is_silent(&self) -> bool {
        self.exit == Some(0) && self.report.findings.is_empty() && self.report.trace.complete
    }
}

/// With one worker: drivers are tested beside each other. The operations are in the file `ops` of the place.
pub(crate) fn crash(place: &Place, strategy: &str, limits: &[&str]) -> Result<Crashed, String> {
    let json = place.path("report.json");
    let _ = std::fs::remove_file(place.path("pool"));
    let _ = std::fs::remove_file(&json);
    let mut command = support::crashproof();
    command.args(["crash", "--oracle", "output", "--ops", "ops", "--strategy", strategy]);
    command.args(["--jobs", "1", "--json", "report.json"]).args(limits);
    command.args(["--", "./program", "pool"]);
    command.current_dir(place.folder()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let stderr = support::text(&output.stderr);
    let text = std::fs::read_to_string(&json)
        .map_err(|_| format!("{command:?} ended with {} and no JSON:\n{stderr}", output.status))?;
    let report = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(Crashed {
        report,
        stderr,
        exit: output.status.code(),
    })
}
