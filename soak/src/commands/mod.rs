//! Command lines that must do the same under the recorder as without it: output, exit status, files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Each runs with `sh -c` in an empty directory. What differs from run to run anyway (process ids, times) is not printed.
pub const LINES: &[&str] = &[
    "true",
    "false",
    "echo a b c",
    "printf '%s\\n' one two | sort -r",
    "seq 1 1000 | awk '{ s += $1 } END { print s }'",
    "sh -c 'exit 7'",
    "sh -c 'kill -TERM $$'; echo $?",
    "sh -c 'kill -SEGV $$'; echo $?",
    "sleep 0.3 & p=$!; kill -SEGV $p; wait $p; echo $?",
    "sleep 0.3 & p=$!; kill -BUS $p; wait $p; echo $?",
    "cat /no/such/file; echo $?",
    "echo text > f && cp f g && mv g h && cat h && ls",
    "mkdir -p a/b && touch a/b/c && find . | sort",
    "seq 1 100 > f && tail -n 3 f && head -n 2 f && wc -l f",
    "dd if=/dev/zero of=f bs=4k count=3 2>/dev/null && od -An -tx1 f | head -2",
    "yes | head -n 5",
    "(echo 3; echo 1; echo 2) | sort -n | tr '\\n' ' '",
    "tar cf t.tar --mtime=@0 --owner=0 --group=0 . 2>/dev/null; tar tf t.tar",
    "gzip -nc < /etc/hostname | gzip -dc | cmp - /etc/hostname && echo same",
    "grep -c root /etc/passwd",
    "sed -n 1p /etc/passwd",
    "env -i A=1 sh -c 'echo $A; env | grep -v -e PWD -e SHLVL -e ^_= | sort'",
    "ulimit -n 64; echo ok | cat",
    "exec 3>f; echo through >&3; exec 3>&-; cat f",
    "trap 'echo caught' USR1; kill -USR1 $$; echo after",
    "timeout 0.2 sleep 5; echo $?",
    "nohup echo x 2>/dev/null",
    "python3 -c 'print(sum(range(100)))'",
    "python3 -c 'import sys; sys.exit(3)'",
    "python3 -c 'import os; os.abort()'; echo $?",
    "python3 -c 'import threading; t = [threading.Thread(target=print, args=(1,)) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]'",
    "python3 -c 'import subprocess; print(subprocess.run([\"echo\", \"child\"], capture_output=True).stdout)'",
    "python3 -c 'import mmap; m = mmap.mmap(-1, 8192); m[0] = 65; print(m[0])'",
    "python3 -c 'import os; r, w = os.pipe(); p = os.fork(); p or os._exit(5); print(os.waitstatus_to_exitcode(os.wait()[1]))'",
    "perl -e 'print join(\",\", map { $_ * 2 } 1..5), \"\\n\"'",
    "perl -e '$SIG{ALRM} = sub { print \"alarm\\n\"; exit 2 }; alarm 1; sleep 5'",
];

/// What a run left.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: std::process::ExitStatus,
    files: BTreeMap<String, Vec<u8>>,
}

/// Runs each line natively and recorded; says what differs.
pub fn compare(crashproof: &Path) -> Vec<String> {
    LINES
        .iter()
        .filter_map(|line| compare_one(crashproof, line).err())
        .collect()
}

fn compare_one(crashproof: &Path, line: &str) -> Result<(), String> {
    let mut native = Command::new("sh");
    let native = run(native.args(["-c", line]))?;
    let mut recorded = Command::new(crashproof);
    let recorded = run(recorded.args(["record", "-o", "/dev/null", "--", "sh", "-c", line]))?;
    let differs = |what: &str| {
        Err(format!(
            "`{line}`: {what} differs:\n  natively {native:?}\n  recorded {recorded:?}"
        ))
    };
    if native.status != recorded.status {
        return differs("the exit status");
    }
    if native.stdout != recorded.stdout {
        return differs("stdout");
    }
    if native.files != recorded.files {
        return differs("the files");
    }
    // The recorder's own summary comes after what the program printed.
    if !recorded.stderr.starts_with(&native.stderr) {
        return differs("stderr");
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = command.current_dir(folder.path()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let mut files = BTreeMap::new();
    collect(folder.path(), folder.path(), &mut files);
    Ok(Outcome {
        stdout: output.stdout,
        stderr: output.stderr,
        status: output.status,
        files,
    })
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            files.insert(name, std::fs::read(&path).unwrap_or_default());
        }
    }
}
