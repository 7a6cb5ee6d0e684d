//! `crashproof crash --replay`: the recovery once more on an image that an earlier test saved, with its output shown.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crashproof_crash::explain::{SavedCrash, load};
use crashproof_sandbox::{Ended, Limits, Options, PmFile, Track, Worker};

use super::plan::{DEFAULT_DISK, DEFAULT_MEMORY};
use super::sandbox;
use crate::arguments::CrashArguments;
use crate::commands::Result;
use crate::exit::Exit;
use crate::units::Size;
use crate::{runtime, shell, terminal};

/// Copied at once.
const BLOCK: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("cannot read {} of the saved crash: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the crash was found in the folder {}, and the recovery has to run there: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

pub fn run(folder: &Path, arguments: &CrashArguments) -> Result {
    let saved = load(folder)?;
    let read = |name: &String| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|source| ReplayError::Read { path, source })
    };
    let output = read(&saved.output)?;
    let files = saved.expect_output.iter().chain(&saved.or_output);
    let expected = files.map(read).collect::<std::result::Result<Vec<_>, _>>()?;
    let images = saved
        .files
        .iter()
        .map(|file| std::fs::File::open(folder.join(&file.image)));
    let images = images
        .collect::<io::Result<Vec<_>>>()
        .map_err(|source| ReplayError::Read {
            path: folder.to_owned(),
            source,
        })?;
    let runtime = std::path::absolute(runtime::find()?)?;
    std::env::set_current_dir(&saved.folder).map_err(|source| ReplayError::Folder {
        path: saved.folder.clone(),
        source,
    })?;
    let recover = shell::command("recover", &saved.recover)?;
    let check = match &saved.check {
        Some(text) => Some(shell::command("check", text)?),
        None => None,
    };
    let files = saved.files.iter().enumerate().map(|(index, file)| PmFile {
        // A file that is not there has no path; it needs one all the same.
        path: file
            .path
            .as_ref()
            .map_or_else(|| format!("/{index}").into(), PathBuf::from),
        size: file.size,
        present: file.path.is_some(),
    });
    let mut environment = sandbox::environment();
    environment.extend(
        saved
            .environment
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    let mut worker = Worker::start(&Options {
        files: files.collect(),
        recover,
        check,
        limits: Limits {
            time: arguments
                .timeout
                .map_or(Duration::from_millis(saved.timeout_ms), |time| time.0),
            memory: chosen(arguments.memory, saved.memory, DEFAULT_MEMORY),
            disk: chosen(arguments.disk, saved.disk, DEFAULT_DISK),
        },
        track: Track::Writes,
        fine: Vec::new(),
        mappings: saved.mappings(),
        environment,
        runtime,
        supervisor: std::env::current_exe()?,
        // One run is not worth a server.
        no_server: true,
        compare: false,
        hidden: sandbox::leftovers(&saved.paths),
        capture: sandbox::capture(expected.iter().max_by_key(|output| output.len()).map(Vec::as_slice)),
    })?;
    for (index, image) in images.into_iter().enumerate() {
        fill(&mut worker, index, image).map_err(|source| ReplayError::Read {
            path: saved.files[index].image.clone().into(),
            source,
        })?;
    }
    terminal::note(&format_args!("{}: {}", saved.kind, saved.message));
    let run = worker.run(&output)?;
    show(&saved.recover, &run.recovery);
    if let (Some(command), Some(ended)) = (&saved.check, &run.check) {
        show(command, ended);
    }
    let checked = run.check.is_none_or(|check| check.succeeded());
    let as_expected = expected.is_empty() || expected.contains(&run.recovery.stdout);
    if !as_expected {
        terminal::note(&"its output is not the expected one");
    }
    Ok(verdict(&saved, run.recovery.succeeded() && checked && as_expected))
}

/// As asked for now, else as it was when the crash was found.
fn chosen(asked: Option<Size>, saved: Option<u64>, default: u64) -> u64 {
    asked.map(|size| size.0).or(saved).unwrap_or(default)
}

fn fill(worker: &mut Worker, index: usize, mut image: std::fs::File) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK];
    let mut offset = 0;
    loop {
        match image.read(&mut buffer)? {
            0 => return Ok(()),
            read => {
                worker.write(index, offset, &buffer[..read]);
                offset += read as u64;
            }
        }
    }
}

/// What it printed where it would have printed it, and how it ended.
fn show(command: &str, ended: &Ended) {
    terminal::command(command);
    // A closed stdout is no reason to fail: the exit code says the rest.
    let _ = io::stdout()
        .write_all(&ended.stdout)
        .and_then(|()| io::stdout().flush());
    terminal::print(&String::from_utf8_lossy(&ended.stderr));
    terminal::print(&format!("({})\n", super::how_it_ended(ended)));
}

fn verdict(saved: &SavedCrash, succeeded: bool) -> Exit {
    if succeeded {
        terminal::note(&format_args!(
            "it recovers from this crash now; when it was saved: {}",
            saved.verdict
        ));
        Exit::Clean
    } else {
        terminal::note(&"it still does not recover from this crash");
        Exit::Findings
    }
}
