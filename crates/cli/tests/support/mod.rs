//! What tests share that run the real tool on real programs.
#![allow(dead_code)]

pub(crate) mod made;
pub(crate) mod place;
pub(crate) mod pmdk;
pub(crate) mod project;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn crashproof() -> Command {
    crashproof_testing::programs();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashproof"));
    // SAFETY: between fork and exec it only makes system calls.
    unsafe { command.pre_exec(takes_signals) };
    if std::env::var_os("CRASHPROOF_RUNTIME").is_none() {
        command.env("CRASHPROOF_RUNTIME", crashproof_testing::runtime());
    }
    command
}

/// What the caller of the tests ignores or blocks (nohup, a job in the background) is not ignored by what they start.
fn takes_signals() -> std::io::Result<()> {
    // SAFETY: an all-zero set is valid; the calls only change this process, and are allowed after a fork.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_DFL);
            libc::sigaddset(&mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
    }
    Ok(())
}

/// A file system in memory of its own, gone when it is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it on the folder, which is there. Only root can.
    pub(crate) fn mount(folder: PathBuf, size: &str) -> SmallDisk {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        let mounted = mount.arg(&folder).output().expect("mount can be run");
        assert!(
            mounted.status.success(),
            "this test mounts a small disk, which only root can ({}): run it as root, or leave it out with --skip",
            text(&mounted.stderr).trim()
        );
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Best effort: the test has its verdict already.
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

/// Compiles with a C compiler, and says what it said if it fails.
pub(crate) fn compile(compiler: &str, arguments: &[&str], output: &Path) {
    let result = Command::new(compiler).args(arguments).arg("-o").arg(output).output();
    let result = result.unwrap_or_else(|error| panic!("{compiler} cannot be run ({error}): see tools/deps.sh"));
    assert!(
        result.status.success(),
        "{compiler} {arguments:?}:\n{}",
        String::from_utf8_lossy(&result.stderr)
    );
}

pub(crate) fn source(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
        .display()
        .to_string()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a command that must succeed with this status.
pub(crate) fn run(command: &mut Command, status: i32) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{command:?}\nstdout: {}\nstderr: {}",
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}
