//! The recovery once more on an image that an earlier test saved.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crashproof_crash::explain::{SavedCrash, load};
use crashproof_sandbox::{Limits, Options, PmFile, Run, Track, Worker};

use crate::options::CrashOptions;
use crate::plan::{DEFAULT_DISK, DEFAULT_MEMORY};
use crate::units::Size;
use crate::{Error, executor, runtime, shell};

/// Copied at once.
const BLOCK: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("cannot read {} of the saved crash: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the crash was found in the folder {}, and the recovery has to run there: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// A saved crash, ready to be recovered from.
pub struct Replay {
    pub saved: SavedCrash,
    worker: Worker,
    /// What the program had output before the crash.
    output: Vec<u8>,
    expected: Vec<Vec<u8>>,
}

/// What the recovery did.
pub struct Replayed {
    pub run: Run,
    /// Its output is one that is expected, if any is.
    pub as_expected: bool,
}

impl Replayed {
    pub fn recovers(&self) -> bool {
        let checked = self.run.check.as_ref().is_none_or(|check| check.succeeded());
        self.run.recovery.succeeded() && checked && self.as_expected
    }
}

impl Replay {
    /// Makes the image in a sandbox. The recovery runs in the folder in which the crash was found.
    /// `supervisor` is the program `crashproof`.
    pub fn open(folder: &Path, arguments: &CrashOptions, supervisor: PathBuf) -> Result<Replay, Error> {
        let saved = load(folder)?;
        let read = |name: &String| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|source| ReplayError::Read { path, source })
        };
        let output = read(&saved.output)?;
        let files = saved.expect_output.iter().chain(&saved.or_output);
        let expected = files.map(read).collect::<Result<Vec<_>, _>>()?;
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
        let directory = saved.folder.clone();
        if let Err(source) = directory.join(".").metadata() {
            let path = directory;
            return Err(ReplayError::Folder { path, source }.into());
        }
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
        let mut environment = executor::environment();
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
            directory,
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
            runtime: runtime::find()?,
            supervisor,
            // One run is not worth a server.
            no_server: true,
            compare: false,
            hidden: executor::leftovers(&saved.paths),
            capture: executor::capture(expected.iter().max_by_key(|output| output.len()).map(Vec::as_slice)),
        })?;
        for (index, image) in images.into_iter().enumerate() {
            fill(&mut worker, index, image).map_err(|source| ReplayError::Read {
                path: saved.files[index].image.clone().into(),
                source,
            })?;
        }
        Ok(Replay {
            saved,
            worker,
            output,
            expected,
        })
    }

    pub fn run(&mut self) -> Result<Replayed, Error> {
        let run = self.worker.run(&self.output)?;
        Ok(Replayed {
            as_expected: self.expected.is_empty() || self.expected.contains(&run.recovery.stdout),
            run,
        })
    }
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
