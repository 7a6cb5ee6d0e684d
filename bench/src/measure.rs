//! Wall time, processor time and peak memory of a command.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

pub(crate) struct Measured {
    pub seconds: f64,
    /// Of all its processes, on all cores.
    pub processor_seconds: f64,
    /// Peak resident memory of the command's own process.
    pub peak_bytes: u64,
}

/// The fastest of several runs.
pub(crate) fn fastest(repeats: usize, mut command: impl FnMut() -> Command) -> Measured {
    (0..repeats)
        .map(|_| once(command()).unwrap_or_else(|error| panic!("{error}")))
        .min_by(|a, b| a.seconds.total_cmp(&b.seconds))
        .expect("at least one run")
}

/// Findings are no failure: exit status 0 or 1.
pub(crate) fn once(mut command: Command) -> Result<Measured, String> {
    let start = Instant::now();
    let child = command
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    // SAFETY: all-zero is a valid rusage; wait4 fills both out parameters.
    let (usage, status) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut status = 0;
        libc::wait4(child.id() as i32, &mut status, 0, &mut usage);
        (usage, ExitStatus::from_raw(status))
    };
    let seconds = start.elapsed().as_secs_f64();
    if status.code().is_none_or(|code| code >= 2) {
        return Err(format!("{command:?} ended with {status}"));
    }
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Measured {
        seconds,
        processor_seconds: of(usage.ru_utime) + of(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
    })
}
