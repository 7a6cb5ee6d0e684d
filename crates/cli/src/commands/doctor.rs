//! `crashproof doctor`: what this machine lacks, found out by looking, by recording a program that stores once, and by making
//! a sandbox.

use std::fmt::Write;
use std::path::Path;

use crashproof_record::{RecordOptions, Recorded};

use super::Result;
use crate::exit::Exit;
use crashproof_campaign::runtime;

/// The shared ring and its locks lie here; less than this is tight.
const SHARED_MEMORY_MIB: u64 = 256;
/// The first with `MAP_FIXED_NOREPLACE`, which the view's place in the address space needs.
const OLDEST_KERNEL: (u32, u32) = (4, 17);
const OLDEST_GLIBC: (u32, u32) = (2, 34);

type Check = fn() -> State;

/// What one look gave.
enum State {
    Good(String),
    /// Recording works, something else is less good.
    Limited(String, String),
    /// Recording does not work.
    Missing(String, String),
}
use State::{Good, Limited, Missing};

pub(crate) fn run() -> Result {
    let checks: [(&str, Check); 12] = [
        ("kernel", kernel),
        ("C library", glibc),
        ("seccomp", seccomp),
        ("processor", processor),
        ("shared memory", shared_memory),
        ("temporary files", temporary_files),
        ("debug files", debug_files),
        ("runtime", runtime_present),
        ("recording", recording),
        ("sandbox", sandbox),
        ("compiler", compiler),
        ("repair", repair),
    ];
    let mut text = String::new();
    let mut missing = 0;
    for (name, check) in checks {
        let (mark, color, detail, remedy) = match check() {
            Good(detail) => ("ok", 32, detail, None),
            Limited(detail, remedy) => ("limited", 33, detail, Some(remedy)),
            Missing(detail, remedy) => {
                missing += 1;
                ("missing", 31, detail, Some(remedy))
            }
        };
        let _ = writeln!(text, "{name:<16} \x1b[1;{color}m{mark:<8}\x1b[0m {detail}");
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "{:26}{remedy}", "");
        }
    }
    let _ = match missing {
        0 => writeln!(text, "\nReady: crashproof check -- ./app"),
        _ => writeln!(text, "\nNot ready: see what is missing above."),
    };
    std::io::Write::write_all(&mut anstream::stdout(), text.as_bytes())?;
    Ok(if missing == 0 { Exit::Clean } else { Exit::Failed })
}

fn kernel() -> State {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => Good(format!("Linux {release}")),
        Some(_) => Missing(
            format!("Linux {release}"),
            format!("needs Linux {}.{} or later", OLDEST_KERNEL.0, OLDEST_KERNEL.1),
        ),
        None => Limited(
            format!("unknown version {release:?}"),
            "the recording below tells whether it works".to_owned(),
        ),
    }
}

fn glibc() -> State {
    // SAFETY: returns a constant string of the C library.
    let text = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy();
    match version(&text) {
        Some(version) if version >= OLDEST_GLIBC => Good(format!("glibc {text}")),
        _ => Limited(
            format!("glibc {text}"),
            "tested with glibc 2.34 and later only".to_owned(),
        ),
    }
}

fn seccomp() -> State {
    match std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.split_whitespace().any(|action| action == "trap") => {
            Good("system calls that write into persistent memory can be trapped".to_owned())
        }
        _ => Missing(
            "the kernel offers no seccomp traps".to_owned(),
            "use a kernel with CONFIG_SECCOMP_FILTER, and a container profile that allows seccomp(2)".to_owned(),
        ),
    }
}

fn processor() -> State {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = information
        .lines()
        .find_map(|line| line.strip_prefix("flags"))
        .unwrap_or_default();
    let has = |flag: &&str| flags.split_whitespace().any(|word| word == *flag);
    let interesting = [
        "clflush",
        "clflushopt",
        "clwb",
        "avx",
        "avx2",
        "avx512f",
        "movdiri",
        "movdir64b",
    ];
    let (present, absent): (Vec<_>, Vec<_>) = interesting.into_iter().partition(has);
    if !present.contains(&"clflush") {
        return Missing("no clflush".to_owned(), "needs an x86-64 processor".to_owned());
    }
    let list = format!("has {}", present.join(", "));
    if absent.is_empty() {
        return Good(list);
    }
    Limited(
        format!("{list}; lacks {}", absent.join(", ")),
        "a program that uses what the processor lacks cannot run here, recorded or not".to_owned(),
    )
}

fn shared_memory() -> State {
    match free_mib(Path::new("/dev/shm")) {
        Some(free) if free >= SHARED_MEMORY_MIB => Good(format!("{free} MiB free in /dev/shm")),
        Some(free) => Limited(
            format!("{free} MiB free in /dev/shm"),
            "enlarge it (mount -o remount,size=1G /dev/shm; docker run --shm-size=1g), or the ring falls back to TMPDIR".to_owned(),
        ),
        None => Limited(
            "/dev/shm is not there".to_owned(),
            "mount a tmpfs there, or the ring falls back to TMPDIR".to_owned(),
        ),
    }
}

fn temporary_files() -> State {
    let folder = std::env::temp_dir();
    match free_mib(&folder) {
        Some(free) => Good(format!(
            "{free} MiB free in {} for the traces of `check`",
            folder.display()
        )),
        None => Missing(
            format!("{} is not there", folder.display()),
            "set TMPDIR to a folder that exists".to_owned(),
        ),
    }
}

/// The program's own debug info needs nothing; that of stock libraries comes in files of its own.
fn debug_files() -> State {
    if Path::new("/usr/lib/debug/.build-id").is_dir() {
        Good("separate debug files of libraries are in /usr/lib/debug".to_owned())
    } else {
        Limited(
            "no separate debug files in /usr/lib/debug".to_owned(),
            "library functions are named without source lines; -dbg and -dbgsym packages would add them".to_owned(),
        )
    }
}

fn runtime_present() -> State {
    match runtime::find() {
        Ok(path) => Good(path.display().to_string()),
        Err(error) => Missing("not found".to_owned(), error.to_string()),
    }
}

/// Records a store, a flush and a fence, and looks whether they arrived.
fn recording() -> State {
    match record_self() {
        Ok(recorded) if !recorded.incomplete.is_empty() => {
            let reasons: Vec<_> = recorded
                .incomplete
                .iter()
                .map(|incomplete| incomplete.detail.as_str())
                .collect();
            Missing(
                format!("the trace of a small program is incomplete: {}", reasons.join("; ")),
                "please report this".to_owned(),
            )
        }
        Ok(recorded) => {
            let counts = recorded.counts;
            let seen = format!(
                "{} store, {} flush, {} fence of a small program",
                counts.stores, counts.flushes, counts.fences
            );
            if counts.stores >= 1 && counts.flushes >= 1 && counts.fences >= 1 && recorded.end.status == Some(0) {
                Good(format!("recorded {seen}"))
            } else {
                Missing(
                    format!("recorded only {seen} that does one of each"),
                    "please report this".to_owned(),
                )
            }
        }
        Err(error) => Missing("a small program could not be recorded".to_owned(), error.to_string()),
    }
}

/// Where recoveries run; everything but `crash` works without it.
fn sandbox() -> State {
    match crashproof_sandbox::available() {
        Ok(()) => Good(format!(
            "recoveries can be run on crash images; their memory is bounded by {}",
            match crashproof_sandbox::bounds_memory() {
                true => "a control group",
                false => "looking at their processes (no memory control group can be made here)",
            }
        )),
        Err(error) => Limited("`crashproof crash` cannot run recoveries".to_owned(), error.to_string()),
    }
}

/// What `crashproof cc` needs; everything else works without it.
fn compiler() -> State {
    let unusable = |remedy: String| Limited("`crashproof cc` cannot compile".to_owned(), remedy);
    let mut command = match super::compiler::command("cc") {
        Ok(command) => command,
        Err(error) => return unusable(error.to_string()),
    };
    command.args(["-x", "c", "-c", "-", "-o", "/dev/null"]);
    match command.stdin(std::process::Stdio::null()).output() {
        Ok(output) if output.status.success() => Good("`crashproof cc` compiles, with clang 19".to_owned()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            unusable(said.lines().last().unwrap_or("it says nothing").to_owned())
        }
        Err(error) => unusable(error.to_string()),
    }
}

/// What `crashproof repair` needs; everything else works without it.
fn repair() -> State {
    let unusable = |remedy: String| Limited("`crashproof repair` cannot patch sources".to_owned(), remedy);
    let command = super::sibling::command("crashproof-repair");
    let output = match command.map(|mut command| command.arg("--doctor").output()) {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return unusable(error.to_string()),
        Err(error) => return unusable(error.to_string()),
    };
    match output.status.success() {
        true => Good("`crashproof repair` can patch sources, with libclang".to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            unusable(said.trim_end().trim_start_matches("crashproof: error: ").to_owned())
        }
    }
}

fn record_self() -> std::result::Result<Recorded, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("self-test.pm");
    let command = vec![
        std::env::current_exe()?.into_os_string(),
        "self-test".into(),
        file.clone().into_os_string(),
    ];
    let recorded = crashproof_record::record(&RecordOptions {
        remedy: "free some space",
        command,
        output: folder.path().join("self-test.trace"),
        pm: vec![file.display().to_string()],
        client_requests: true,
        locked_rmw: false,
        dependences: false,
        kept: false,
        quiet: false,
        runtime: runtime::find()?,
    })?;
    Ok(recorded)
}

/// `6.1.0-18-amd64` is (6, 1).
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn free_mib(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: an all-zero statvfs is valid, and the call fills it in.
    unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut status) == 0).then(|| (status.f_bavail * status.f_frsize) >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("2.36"), Some((2, 36)));
        assert_eq!(version("x"), None);
        assert_eq!(version(""), None);
    }
}
