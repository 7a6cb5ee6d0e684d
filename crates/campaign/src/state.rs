//! Where a crash test keeps what it needs to go on after an interruption: the trace and the journal of tested states, in a
//! folder of their own below `$XDG_STATE_HOME/crashproof/crash` (or `~/.local/state`), named after what is tested. The
//! folder is there while a test runs, stays if it is interrupted, also by SIGKILL, and goes when the test is done.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};

use crate::Listener;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "there is nothing to resume in {}: --resume goes on with an interrupted test of the same program, recovery and options, \
         started in the same folder; start without --resume",
        folder.display()
    )]
    Nothing { folder: PathBuf },
    #[error(
        "{} has changed since the interrupted test began, so what was tested does not count any more: start without --resume",
        program.display()
    )]
    Rebuilt { program: PathBuf },
    #[error("the same test is still running (it holds {}); wait for it, or stop it", folder.display())]
    Running { folder: PathBuf },
    #[error("cannot use {} for the state of the test: {source}; set XDG_STATE_HOME to a folder that can be written to", folder.display())]
    Unusable { folder: PathBuf, source: io::Error },
    #[error("cannot make a temporary folder in {}: {source}; set TMPDIR", folder.display())]
    Temporary { folder: PathBuf, source: io::Error },
}

/// Changes when a file is written anew: its inode, size and time.
pub(crate) type Stamp = (u64, u64, i64, i64);
/// The programs that a test runs.
pub(crate) type Programs = BTreeMap<PathBuf, Stamp>;

pub struct State {
    folder: PathBuf,
    /// Locked until the test ends.
    _lock: Option<File>,
    /// Nothing can be resumed: it goes away in any case.
    temporary: Option<tempfile::TempDir>,
}

impl State {
    /// `identity` says what is tested: equal for a test that may be resumed by another.
    pub fn open(
        root: Option<&Path>,
        identity: &str,
        resume: bool,
        listener: &dyn Listener,
    ) -> Result<State, StateError> {
        let Some(root) = root else {
            listener
                .warning(&"neither XDG_STATE_HOME nor HOME is set: this test cannot be resumed if it is interrupted");
            return State::temporary();
        };
        let folder = root.join(name(identity));
        remove_abandoned(root);
        if resume && !folder.join(TRACE).exists() {
            return Err(StateError::Nothing { folder });
        }
        match acquire(&folder) {
            Ok(Some(lock)) => {
                let state = State {
                    folder,
                    _lock: Some(lock),
                    temporary: None,
                };
                if !resume {
                    state.clear();
                }
                Ok(state)
            }
            Ok(None) if resume => Err(StateError::Running { folder }),
            Ok(None) => {
                listener
                    .warning(&"the same test is running already, so this one cannot be resumed if it is interrupted");
                State::temporary()
            }
            Err(source) if resume => Err(StateError::Unusable { folder, source }),
            Err(source) => {
                listener.warning(&format_args!(
                    "cannot use {} ({source}): this test cannot be resumed if it is interrupted; set XDG_STATE_HOME to a \
                     folder that can be written to",
                    folder.display()
                ));
                State::temporary()
            }
        }
    }

    fn temporary() -> Result<State, StateError> {
        let made = tempfile::Builder::new().prefix("crashproof-").tempdir();
        let temporary = made.map_err(|source| StateError::Temporary {
            folder: std::env::temp_dir(),
            source,
        })?;
        Ok(State {
            folder: temporary.path().to_owned(),
            _lock: None,
            temporary: Some(temporary),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The complete trace: it is there only if the recording came to its end.
    pub fn trace(&self) -> PathBuf {
        self.folder.join(TRACE)
    }

    /// The recording of the same run with its dependences, if there is one.
    pub fn dependences(&self) -> PathBuf {
        self.folder.join(DEPENDENCES)
    }

    /// What the pool of a driver was before it ran: it is there until the pool is that again, whatever ends the test.
    pub fn start(&self) -> PathBuf {
        self.folder.join(START)
    }

    /// What the driver made of a pool that was not there.
    pub fn made(&self) -> PathBuf {
        self.folder.join(MADE)
    }

    /// Where the trace is recorded, until it is complete.
    pub fn unfinished_trace(&self) -> PathBuf {
        self.folder.join(UNFINISHED)
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    /// Remembers which programs the test runs, for who resumes it.
    pub fn remember(&self, programs: &Programs) -> Result<(), StateError> {
        let folder = &self.folder;
        let unusable = |source| StateError::Unusable {
            folder: folder.clone(),
            source,
        };
        let text = serde_json::to_string(programs).map_err(io::Error::other);
        text.and_then(|text| std::fs::write(folder.join(PROGRAMS), text))
            .map_err(unusable)
    }

    /// That they are still the same.
    pub fn compare(&self, programs: &Programs) -> Result<(), StateError> {
        let known = std::fs::read(self.folder.join(PROGRAMS)).unwrap_or_default();
        let known: Programs = serde_json::from_slice(&known).unwrap_or_default();
        match programs
            .iter()
            .find(|(program, stamp)| known.get(*program) != Some(stamp))
        {
            Some((program, _)) => Err(StateError::Rebuilt {
                program: program.clone(),
            }),
            None => Ok(()),
        }
    }

    /// An empty folder for traces of recoveries.
    pub fn recoveries(&self) -> Result<PathBuf, StateError> {
        let folder = self.folder.join(RECOVERIES);
        let _ = std::fs::remove_dir_all(&folder);
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(folder),
            Err(source) => Err(StateError::Unusable { folder, source }),
        }
    }

    /// Whether the recovery looked at a file, now or before the test was resumed. Remembers it for who resumes it.
    pub fn has_looked(&self, now: bool) -> bool {
        let mark = self.folder.join(LOOKED);
        if now {
            // If it cannot be, the runs that are to come tell.
            let _ = std::fs::write(&mark, "");
        }
        now || mark.exists()
    }

    /// Whether states have been tested and a later `--resume` finds them.
    pub fn can_be_resumed(&self) -> bool {
        self.temporary.is_none() && self.trace().exists() && self.journal().exists()
    }

    fn clear(&self) {
        for name in [TRACE, DEPENDENCES, MADE, UNFINISHED, PROGRAMS, JOURNAL, LOOKED] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        let _ = std::fs::remove_dir_all(self.folder.join(RECOVERIES));
    }

    /// The test is done: nothing of it is needed any more.
    pub fn remove(self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for State {
    /// Ended before there was anything to go on with.
    fn drop(&mut self) {
        if self.start().exists() {
            self.temporary.take().map(tempfile::TempDir::keep);
        } else if !self.can_be_resumed() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

const TRACE: &str = "trace";
const LOOKED: &str = "looked";
const DEPENDENCES: &str = "dependences";
const START: &str = "start";
const MADE: &str = "made";
const UNFINISHED: &str = "trace.unfinished";
const PROGRAMS: &str = "programs";
const JOURNAL: &str = "journal";
const RECOVERIES: &str = "recoveries";
const LOCK: &str = "lock";

/// Where the states of tests are, if there is such a place.
pub(crate) fn root() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = match set("XDG_STATE_HOME") {
        Some(home) => PathBuf::from(home),
        None => Path::new(&set("HOME")?).join(".local/state"),
    };
    Some(home.join("crashproof/crash"))
}

/// Folders are told apart by it; equal names of different tests would be harmless only by luck, so it is long enough.
fn name(identity: &str) -> String {
    let half = |salt: u8| {
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(identity.as_bytes());
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(0), half(1))
}

/// Removes what tests left that were killed before there was anything to resume.
fn remove_abandoned(root: &Path) {
    let Ok(folders) = std::fs::read_dir(root) else { return };
    for folder in folders.flatten().map(|folder| folder.path()) {
        let nothing = |folder: &Path| {
            let is_missing = |name| folder.join(name).symlink_metadata().is_err();
            is_missing(TRACE) && is_missing(START)
        };
        if !nothing(&folder) {
            continue;
        }
        // Without a lock nobody has begun to use it, or it is none of ours.
        let Ok(lock) = File::open(folder.join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() && nothing(&folder) {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}

/// The folder's lock; none if another has it. The kernel gives it back when its holder ends, however it does.
fn acquire(folder: &Path) -> io::Result<Option<File>> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(LOCK);
    let file = match File::create(&path) {
        // Somebody took it for abandoned.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return acquire(folder),
        other => other?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Whoever held it may have removed the folder just before giving it back.
    if path.exists() { Ok(Some(file)) } else { acquire(folder) }
}
