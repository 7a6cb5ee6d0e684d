//! Runs `crashproof crash` on a program.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crashproof_finding::Report;

use crate::case::Case;
use crate::support;

/// No program of the corpus takes a tenth of it.
const TIME_LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Crashed {
    pub report: Report,
    pub stderr: String,
    /// Of `crashproof crash` itself.
    pub exit: Option<i32>,
}

/// With one worker, unless the case asks for more: the programs are tested beside each other.
pub(crate) fn crash(case: &Case, program: &Path, strategy: &str) -> Result<Crashed, String> {
    let folder = program.with_file_name("");
    let _ = std::fs::remove_file(folder.join("pm"));
    let _ = std::fs::remove_file(folder.join("pm.data"));
    let (json, stderr) = (folder.join("report.json"), folder.join("stderr"));
    let _ = std::fs::remove_file(&json);

    // Paths from the program's own folder, so that no command needs quotes.
    let mut command = support::crashproof();
    command.args(["crash", "--strategy", strategy, "--json", "report.json"]);
    if !case.directives.crash.iter().any(|word| word == "--jobs") {
        command.args(["--jobs", "1"]);
    }
    command.args(["--recover", "./program recover pm"]);
    if case.directives.setup {
        command.args(["--setup", "./program setup pm"]);
    }
    if case.directives.check {
        command.args(["--check", "./program check pm"]);
    }
    if case.directives.hangs {
        command.args(["--timeout", "300ms"]);
    }
    let source = case.source.with_file_name("");
    let source = source.to_string_lossy();
    command.args(
        case.directives
            .crash
            .iter()
            .map(|word| word.replace("{folder}/", &source)),
    );
    command.args(["--", "./program", "run", "pm"]);
    let create = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    command
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(create(&stderr)?);
    // A group of its own, so that all of it can be ended.
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let started = Instant::now();
    let said = || std::fs::read_to_string(&stderr).unwrap_or_default();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() > TIME_LIMIT => {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Err(format!("{command:?} ran for more than {TIME_LIMIT:?}\n{}", said()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(format!("{command:?}: {error}")),
        }
    };
    let text = std::fs::read_to_string(&json)
        .map_err(|_| format!("{command:?} ended with {status} and no JSON:\n{}", said()))?;
    let report = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(Crashed {
        report,
        stderr: said(),
        exit: status.code(),
    })
}
