//! A folder with a PM file, the compiled recovery, and the options for a worker on them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crashproof_sandbox::{Command, DEFAULT_CAPTURE, Limits, Options, PmFile, Run, Track, Worker};

pub(crate) const SIZE: u64 = 1 << 20;

/// A folder of the test's own.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sandbox test, ").tempdir().unwrap();
        Place { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn pool(&self) -> PathBuf {
        self.path("pool")
    }

    pub(crate) fn options(&self, recover: Command) -> Options {
        Options {
            files: vec![PmFile {
                path: self.pool(),
                size: SIZE,
                present: true,
            }],
            recover,
            check: None,
            directory: std::env::current_dir().unwrap(),
            limits: Limits {
                time: Duration::from_secs(10),
                memory: 1 << 30,
                disk: 64 << 20,
            },
            track: Track::Writes,
            fine: Vec::new(),
            mappings: Vec::new(),
            environment: Vec::new(),
            runtime: runtime(),
            supervisor: std::env::current_exe().unwrap(),
            no_server: false,
            compare: false,
            hidden: Vec::new(),
            capture: DEFAULT_CAPTURE,
        }
    }

    /// The compiled recovery in a mode, on the PM file.
    pub(crate) fn recovery(&self, mode: &str, other: &str) -> Command {
        Command::Direct(vec![program(), mode.into(), self.pool().into(), other.into()])
    }

    pub(crate) fn shell(&self, mode: &str, other: &str) -> Command {
        let program = program().into_string().unwrap();
        let pool = self.pool().display().to_string();
        Command::Shell(format!("'{program}' '{mode}' '{pool}' '{other}'; exit $?").into())
    }
}

/// A folder with the compiled programs, for a user who cannot compile them.
pub(crate) const PROGRAMS: &str = "CRASHPROOF_TEST_PROGRAMS";

pub(crate) use crashproof_testing::runtime;

fn compile(name: &str, flags: &[&str]) -> PathBuf {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return Path::new(&folder).join(name);
    }
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER
        .get_or_init(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sandbox-{}", std::process::id())));
    std::fs::create_dir_all(folder).unwrap();
    let output = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/recovery.c");
    let status = std::process::Command::new("cc")
        .args(["-O1", "-g", "-w"])
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(source)
        .status();
    assert!(status.unwrap().success(), "cc failed");
    output
}

pub(crate) fn program() -> OsString {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("recovery", &[])).clone().into()
}

pub(crate) fn static_program() -> OsString {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| compile("recovery-static", &["-static"]))
        .clone()
        .into()
}

/// A worker, or the reason why there is none.
pub(crate) fn start(options: &Options) -> Worker {
    Worker::start(options).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn run(worker: &mut Worker) -> Run {
    worker.run(b"").unwrap_or_else(|error| panic!("{error}"))
}

/// Processes of this machine whose command line holds the text, but for this one.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}
