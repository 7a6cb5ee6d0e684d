//! Runs a program with a fresh PM file, alone or under `crashproof check`.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crashproof_finding::Report;

use crate::build::Built;
use crate::case::Case;
use crate::support;

/// No program of the corpus takes a tenth of it.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What a run leaves behind.
#[derive(PartialEq, Eq)]
pub(crate) struct Effects {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    /// Content of the PM file; `None` if it is not to be compared.
    pub file: Option<Vec<u8>>,
}

pub(crate) struct Recorded {
    pub effects: Effects,
    pub report: Report,
    pub stderr: String,
    /// Of `crashproof check` itself.
    pub exit: Option<i32>,
}

pub(crate) fn native(case: &Case, built: &Built) -> Result<Effects, String> {
    let (status, stdout, _) = run(program(case, built, Command::new(&built.program)), built)?;
    Ok(Effects {
        status: status.code(),
        signal: status.signal(),
        stdout,
        file: pm_file(case, built)?,
    })
}

pub(crate) fn recorded(case: &Case, built: &Built) -> Result<Recorded, String> {
    let json = built.folder.join("report.json");
    let _ = std::fs::remove_file(&json);
    let mut check = support::crashproof();
    check.arg("check").arg("--json").arg(&json);
    if case.directives.exit != 0 || case.directives.signal.is_some() {
        check.arg("--allow-failure");
    }
    if let Some(config) = &case.directives.config {
        check.arg("--config").arg(case.source.with_file_name(config));
    }
    let (status, stdout, stderr) = match case.directives.dependences {
        true => {
            let trace = built.folder.join("trace");
            let mut record = support::crashproof();
            record
                .args(["record", "-o"])
                .arg(&trace)
                .args(&case.directives.crashproof);
            record.arg("--").arg(&built.program);
            let (_, stdout, recorded) = run(program(case, built, record), built)?;
            let checked = check.arg(&trace).output();
            let checked = checked.map_err(|error| format!("{check:?}: {error}"))?;
            (checked.status, stdout, recorded + &support::text(&checked.stderr))
        }
        false => {
            check.args(&case.directives.crashproof).arg("--").arg(&built.program);
            run(program(case, built, check), built)?
        }
    };
    let text =
        std::fs::read_to_string(&json).map_err(|_| format!("crashproof ended with {status} and no JSON:\n{stderr}"))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    let (program, file) = (&report.program, pm_file(case, built)?);
    let effects = Effects {
        // Of a program that a signal ended the report gives the status that a shell would.
        status: program.status.filter(|_| program.signal.is_none()),
        signal: program.signal,
        stdout,
        file,
    };
    Ok(Recorded {
        effects,
        report,
        stderr,
        exit: status.code(),
    })
}

fn program(case: &Case, built: &Built, mut command: Command) -> Command {
    let folder = built.folder.display().to_string();
    command.args(
        case.directives
            .run_args
            .iter()
            .map(|argument| argument.replace("{dir}", &folder)),
    );
    command.arg(built.folder.join("pm"));
    command
}

fn pm_file(case: &Case, built: &Built) -> Result<Option<Vec<u8>>, String> {
    let path = built.folder.join("pm");
    if case.directives.file_differs || !path.exists() {
        return Ok(None);
    }
    std::fs::read(&path)
        .map(Some)
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn run(mut command: Command, built: &Built) -> Result<(ExitStatus, Vec<u8>, String), String> {
    let Built { folder, .. } = built;
    let _ = std::fs::remove_file(folder.join("pm"));
    let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
    let create = |path: &Path| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(create(&stdout)?)
        .stderr(create(&stderr)?);
    // A group of its own, so that all of it can be ended.
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    let started = Instant::now();
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() > TIME_LIMIT => {
                let _ = Command::new("kill")
                    .args(["-KILL", "--", &format!("-{}", child.id())])
                    .status();
                let _ = child.wait();
                return Err(format!(
                    "{command:?} ran for more than {TIME_LIMIT:?}\n{}",
                    support::text(&read(&stderr)?)
                ));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(format!("{command:?}: {error}")),
        }
    };
    Ok((status, read(&stdout)?, support::text(&read(&stderr)?)))
}
